// Reads from PTX what a launch can be checked against.
#include "fake_state.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// strstr in [text, end): a module's text is megabytes, and most keys are not in most functions. The address sanitizer's
// strstr measures all of the text in every call.
static const char* find(const char* text, const char* end, const char* key)
{
    const size_t length = strlen(key);
    while ((size_t)(end - text) >= length && (text = memchr(text, key[0], (size_t)(end - text) - length + 1)) != NULL) {
        if (memcmp(text, key, length) == 0) return text;
        text++;
    }
    return NULL;
}

// The up to three numbers behind `key` in [text, end); nothing is written when it is not there.
static void read_triple(const char* text, const char* end, const char* key, unsigned triple[3])
{
    const char* at = find(text, end, key);
    if (at == NULL) return;
    at += strlen(key); // no sscanf: it measures all of the text first
    for (int i = 0; i < 3; i++) {
        char* behind;
        triple[i] = (unsigned)strtoul(at, &behind, 10);
        if (*behind != ',') return;
        at = behind + 1;
    }
}

static int bytes_of_type(const char* type) // ".u64", ".b8"
{
    const char* digits = type + strcspn(type, "0123456789");
    int bits = atoi(digits);
    return bits > 8 ? bits / 8 : 1;
}

// ".param .align 8 .b8 name[64]" or ".param .u64 name": its bytes.
static int parameter_bytes(const char* text, const char* end)
{
    const char* type = text + strlen(".param");
    const char* align = find(text, end, ".align");
    if (align != NULL) type = align + strlen(".align");
    while (type < end && *type != '.') type++;
    int bytes = bytes_of_type(type);
    const char* count = memchr(type, '[', (size_t)(end - type));
    return count != NULL ? bytes * atoi(count + 1) : bytes;
}

static void read_parameters(fake_function* function, const char* at, const char* end)
{
    while ((at = find(at, end, ".param")) != NULL) {
        const char* stop = at + strcspn(at, ",)");
        if (function->parameter_count == FAKE_MOST_PARAMETERS)
            fake_violation("%s has more than %d parameters", function->name, FAKE_MOST_PARAMETERS);
        else function->parameter_bytes[function->parameter_count++] = parameter_bytes(at, stop);
        at = stop;
    }
}

// Static shared memory is declared at the head of the body, or before all functions; only the body's is its own.
static unsigned shared_bytes(const char* at, const char* end)
{
    unsigned sum = 0;
    while ((at = find(at, end, ".shared .align")) != NULL) {
        const char* line_end = at + strcspn(at, ";\n");
        const char* type = at + strlen(".shared .align");
        while (type < line_end && *type != '.') type++;
        const char* count = memchr(type, '[', (size_t)(line_end - type));
        sum += (unsigned)(bytes_of_type(type) * (count != NULL ? atoi(count + 1) : 1));
        at = line_end;
    }
    return sum;
}

// What was read from the text of an image, kept for the next engine that loads the same text: a test makes up to
// hundreds of engines, each loads megabytes of PTX, and reading them took a third of the time of test_cuda_kernels. The
// whole text is compared, so that images of pretended cards and damaged ones are read as what they are.
typedef struct image {
    struct image* next;
    int version; // ".version 8.7" is 87
    int function_count, capacity;
    fake_function* functions;
    size_t bytes;
    char text[]; // and a zero behind it
} image;
static image* s_images; // guarded by the fake driver's lock, which every entry holds

static void free_image(image* one)
{
    free(one->functions);
    free(one);
}

// At the end of the process, and where a program closes the driver that it opened. After it every text is read again.
// Windows has ended all threads by then, one of which may have held the lock.
#if !defined(_WIN32)
__attribute__((destructor)) static void free_images(void)
{
    fake_lock();
    while (s_images != NULL) {
        image* next = s_images->next;
        free_image(s_images);
        s_images = next;
    }
    fake_unlock();
}
#endif

// 0: there is none.
static int read_version(const char* text, const char* end)
{
    int major = 0, minor = 0;
    char number[32];
    const char* version = find(text, end, ".version ");
    if (version == NULL) return 0;
    snprintf(number, sizeof number, "%.31s", version + strlen(".version "));
    return sscanf(number, "%d.%d", &major, &minor) == 2 ? major * 10 + minor : 0;
}

static bool read_functions(image* one, const char* text, const char* text_end)
{
    for (const char* at = text; (at = find(at, text_end, ".entry ")) != NULL;) {
        at += strlen(".entry ");
        const char* body = memchr(at, '{', (size_t)(text_end - at));
        if (body == NULL) return false;
        const char* close = find(body, text_end, "\n}");
        if (close == NULL) return false;
        if (one->function_count == one->capacity) {
            one->capacity = one->capacity == 0 ? 16 : 2 * one->capacity;
            one->functions = realloc(one->functions, (size_t)one->capacity * sizeof(fake_function));
            if (one->functions == NULL) abort();
        }
        fake_function* function = &one->functions[one->function_count++];
        memset(function, 0, sizeof *function);
        size_t length = strcspn(at, "( \t\r\n");
        if (length >= sizeof function->name) length = sizeof function->name - 1;
        memcpy(function->name, at, length);
        const char* list_end = at + strcspn(at, ")"); // no parameter has a parenthesis
        if (list_end < body) read_parameters(function, at, list_end);
        unsigned threads[3] = {0, 1, 1}; // 0: not said
        read_triple(list_end, body, ".maxntid ", threads);
        function->max_threads = threads[0] * threads[1] * threads[2];
        function->cluster[0] = function->cluster[1] = function->cluster[2] = 1;
        read_triple(list_end, body, ".reqnctapercluster ", function->cluster);
        function->static_shared = shared_bytes(body, close);
        at = close;
    }
    return true;
}

static const image* find_image(const char* text, size_t bytes)
{
    const image* one = s_images;
    while (one != NULL && (one->bytes != bytes || memcmp(one->text, text, bytes) != 0)) one = one->next;
    return one;
}

static void add_functions(fake_module* module, const image* one)
{
    module->function_count = module->capacity = one->function_count;
    module->functions = malloc((size_t)one->function_count * sizeof(fake_function*) + 1);
    if (module->functions == NULL) abort();
    for (int i = 0; i < one->function_count; i++) {
        fake_function* function = malloc(sizeof *function);
        if (function == NULL) abort();
        *function = one->functions[i];
        function->module = module;
        module->functions[i] = function;
    }
    module->has_text = true;
}

bool fake_read_ptx(fake_module* module, const char* text, int newest)
{
    const size_t bytes = strlen(text);
    const image* before = find_image(text, bytes);
    if (before != NULL) {
        if (before->version > newest) return false;
        add_functions(module, before);
        return true;
    }
    const int version = read_version(text, text + bytes), violations = fake.violations;
    if (version == 0 || version > newest) return false;
    image* one = calloc(1, sizeof *one + bytes + 1);
    if (one == NULL) abort();
    one->version = version;
    one->bytes = bytes;
    memcpy(one->text, text, bytes);
    const bool is_read = read_functions(one, one->text, one->text + bytes);
    if (is_read) add_functions(module, one);
    if (is_read && fake.violations == violations) { // a text that breaks a rule does so in every test that loads it
        one->next = s_images;
        s_images = one;
    } else free_image(one);
    return is_read;
}
