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

bool fake_read_ptx(fake_module* module, const char* text, int newest)
{
    const char* text_end = text + strlen(text);
    const char* version = find(text, text_end, ".version ");
    if (version == NULL) return false;
    int major = 0, minor = 0;
    char number[32];
    snprintf(number, sizeof number, "%.31s", version + strlen(".version "));
    if (sscanf(number, "%d.%d", &major, &minor) != 2 || major * 10 + minor > newest) return false;
    module->has_text = true;
    for (const char* at = text; (at = find(at, text_end, ".entry ")) != NULL;) {
        at += strlen(".entry ");
        const char* body = memchr(at, '{', (size_t)(text_end - at));
        if (body == NULL) return false;
        const char* close = find(body, text_end, "\n}");
        if (close == NULL) return false;
        fake_function* function = calloc(1, sizeof *function);
        if (function == NULL) abort();
        size_t length = strcspn(at, "( \t\r\n");
        if (length >= sizeof function->name) length = sizeof function->name - 1;
        memcpy(function->name, at, length);
        function->module = module;
        const char* list_end = at + strcspn(at, ")"); // no parameter has a parenthesis
        if (list_end < body) read_parameters(function, at, list_end);
        unsigned threads[3] = {0, 1, 1}; // 0: not said
        read_triple(list_end, body, ".maxntid ", threads);
        function->max_threads = threads[0] * threads[1] * threads[2];
        function->cluster[0] = function->cluster[1] = function->cluster[2] = 1;
        read_triple(list_end, body, ".reqnctapercluster ", function->cluster);
        function->static_shared = shared_bytes(body, close);
        if (module->function_count == module->capacity) {
            module->capacity = module->capacity == 0 ? 64 : 2 * module->capacity;
            module->functions = realloc(module->functions, (size_t)module->capacity * sizeof(fake_function*));
            if (module->functions == NULL) abort();
        }
        module->functions[module->function_count++] = function;
        at = close;
    }
    return true;
}
