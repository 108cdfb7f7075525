// A CUDA driver that passes every call on to the real one and says that the device is another card. It is a file
// libcuda.so.1, so any program finds it by LD_LIBRARY_PATH and need not know of it:
//
//     SUMI_PRETEND=8.9,28 LD_LIBRARY_PATH=build/release/pretend build/release/bin/sumi info
//
//     SUMI_PRETEND=CARD[,MULTIPROCESSORS[,L2]][,ptx]
//         CARD             compute capability: 8.0, 8.6, 8.7, 8.9, 9.0, 10.0, 12.0 or 12.1
//         MULTIPROCESSORS  of the card; the real card's if left out
//         L2               MiB of the card's L2 cache; the real card's if left out
//         ptx              machine code is refused, as by a card that is newer than the program
//     SUMI_PRETEND_DRIVER=FILE    the real driver; without it the next libcuda.so.1 where the loader would look
//
// It answers cuDeviceGetAttribute for the capability, multiprocessors, L2 and shared memory, and the device's name ends
// with what is pretended. It refuses what the card would refuse: images for other cards, and more shared memory than a
// block may have. Everything else is the real driver's answer, speeds and free memory too. So a program chooses kernels
// as for the card, and the real driver decides what it loads. It refuses machine code of a card that it is not. Then
// this library looks for the same kernels in the real card's machine code, in the program's own table of images. That
// table is visible where programs share one library (Premake's --shared-tests); otherwise the refusal goes to the
// program, which loads its PTX, and the real driver compiles that.
//
// How it works: every entry of the driver is a jump through a slot. When this library is loaded it opens the real
// driver and fills the slots with the real entries, but for those that it answers itself. Whoever asks
// cuGetProcAddress, as sumi and the CUDA runtime do, gets the same ones.
#define _GNU_SOURCE
#include "../fake_cuda/cards.h"
#include "cuda/modules.h" // sumi_cuda_image
#include <cuda.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>
#include <zlib.h>

static int s_capability;                // 89 for 8.9; 0: nothing is pretended
static int s_multiprocessors, s_l2_mib; // 0: the real card's
static bool s_refuses_binaries;
static char s_setting[64];

// ---- The entries ----------------------------------------------------------------------------------------------------
// ENTRIES(X): every entry of the driver that cuda.h knows, under its exported name. Written by premake5.lua.
#include "pretend_entries.h"

typedef void entry_function(void);

// An entry that the real driver lacks. cuGetProcAddress says more exactly that it is missing.
static CUresult missing_entry(void) { return CUDA_ERROR_NOT_SUPPORTED; }

#if defined(__x86_64__)
#define JUMP(slot) "jmp *" slot "(%rip)\n"
#elif defined(__aarch64__)
#define JUMP(slot) "adrp x16, " slot "\nldr x16, [x16, :lo12:" slot "]\nbr x16\n"
#else
#error "the jump through a slot is written for x86-64 and AArch64"
#endif
// A jump keeps the arguments, whatever they are, in registers and on the stack.
#define DEFINE_ENTRY(name)                                                                                             \
    __attribute__((used, visibility("hidden"))) entry_function* slot_##name = (entry_function*)missing_entry;          \
    __asm__(".text\n.globl " #name "\n.type " #name ", %function\n" #name                                              \
            ":\n" JUMP("slot_" #name) ".size " #name ", . - " #name "\n");
ENTRIES(DEFINE_ENTRY)

static const struct {
    const char* name;
    entry_function** slot;
} s_entries[] = {
#define LIST_ENTRY(name) {#name, &slot_##name},
    ENTRIES(LIST_ENTRY)};
enum { ENTRY_COUNT = sizeof s_entries / sizeof s_entries[0] };

// ---- What is answered here ------------------------------------------------------------------------------------------

static struct {
    CUresult(CUDAAPI* get_attribute)(int*, CUdevice_attribute, CUdevice);
    CUresult(CUDAAPI* get_capability)(int*, int*, CUdevice);
    CUresult(CUDAAPI* get_name)(char*, int, CUdevice);
    CUresult(CUDAAPI* load_data)(CUmodule*, const void*);
    CUresult(CUDAAPI* load_data_ex)(CUmodule*, const void*, unsigned, CUjit_option*, void**);
    CUresult(CUDAAPI* link_complete)(CUlinkState, void**, size_t*);
    CUresult(CUDAAPI* set_function_attribute)(CUfunction, CUfunction_attribute, int);
    CUresult(CUDAAPI* get_function_attribute)(int*, CUfunction_attribute, CUfunction);
    CUresult(CUDAAPI* get_address_v1)(const char*, void**, int, cuuint64_t);
    CUresult(CUDAAPI* get_address_v2)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
} s_real;

static int shared_per_block(void) { return (card_shared_kib(s_capability) - 1) << 10; }

static CUresult CUDAAPI get_attribute(int* value, CUdevice_attribute attribute, CUdevice device)
{
    const CUresult result = s_real.get_attribute(value, attribute, device);
    if (result != CUDA_SUCCESS) return result;
    switch ((int)attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = s_capability / 10; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = s_capability % 10; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = shared_per_block(); break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *value = card_shared_kib(s_capability) << 10; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        if (s_multiprocessors > 0) *value = s_multiprocessors;
        break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
        if (s_l2_mib > 0) *value = s_l2_mib << 20;
        break;
    default: break;
    }
    return result;
}

static CUresult CUDAAPI get_capability(int* major, int* minor, CUdevice device)
{
    const CUresult result = s_real.get_capability(major, minor, device);
    if (result == CUDA_SUCCESS) *major = s_capability / 10, *minor = s_capability % 10;
    return result;
}

// What is pretended stands in the name, so that no log can be taken for that of the card.
static CUresult CUDAAPI get_name(char* name, int length, CUdevice device)
{
    const CUresult result = s_real.get_name(name, length, device);
    if (result != CUDA_SUCCESS || length <= 0) return result;
    const size_t used = strnlen(name, (size_t)length);
    if (used < (size_t)length) snprintf(name + used, (size_t)length - used, " as %s", s_setting);
    return result;
}

static _Thread_local const void* s_linked; // what this thread's driver has compiled last

static CUresult CUDAAPI link_complete(CUlinkState state, void** out, size_t* out_bytes)
{
    const CUresult result = s_real.link_complete(state, out, out_bytes);
    if (result == CUDA_SUCCESS) s_linked = *out;
    return result;
}

// Code that the real driver has compiled is for the real card, and so no question of what the program has.
static bool is_refused(const void* image)
{
    if (image == s_linked) return false;
    const image_target target = read_image_target(image);
    return !image_runs_on(target, s_capability) || (target.is_binary && s_refuses_binaries);
}

static CUresult CUDAAPI load_data(CUmodule* module, const void* image)
{
    return is_refused(image) ? CUDA_ERROR_NO_BINARY_FOR_GPU : s_real.load_data(module, image);
}

// The caller frees it. NULL: it is damaged, or there is no memory.
static unsigned char* unpack(const sumi_cuda_image* image)
{
    unsigned char* data = malloc(image->bytes);
    uLongf bytes = image->bytes;
    if (data != NULL && uncompress(data, &bytes, image->data, image->packed_bytes) == Z_OK && bytes == image->bytes)
        return data;
    free(data);
    return NULL;
}

// Machine code ends with one of its two tables of headers.
static uint64_t elf_bytes(const unsigned char* elf)
{
    uint64_t program_at, section_at;
    uint16_t numbers[4]; // size and count of program headers, of section headers
    memcpy(&program_at, elf + 32, sizeof program_at);
    memcpy(&section_at, elf + 40, sizeof section_at);
    memcpy(numbers, elf + 54, sizeof numbers);
    const uint64_t program_end = program_at + (uint64_t)numbers[0] * numbers[1],
                   section_end = section_at + (uint64_t)numbers[2] * numbers[3];
    return program_end > section_end ? program_end : section_end;
}

static bool is_same(const sumi_cuda_image* listed, const void* image)
{
    if (!listed->is_binary || listed->bytes != elf_bytes(image)) return false;
    unsigned char* data = unpack(listed);
    const bool is_equal = data != NULL && memcmp(data, image, listed->bytes) == 0;
    free(data);
    return is_equal;
}

// Loads the kernels of this machine code as the program has them for the real card. `refusal`: what is returned if the
// program does not have them, or does not show its table.
static CUresult load_for_real_card(CUmodule* module, const void* image, unsigned count, CUjit_option* options,
                                   void** values, CUresult refusal)
{
    const sumi_cuda_image* images = dlsym(RTLD_DEFAULT, "sumi_cuda_images");
    const int32_t* image_count = dlsym(RTLD_DEFAULT, "sumi_cuda_image_count");
    if (images == NULL || image_count == NULL) return refusal;
    const char* source = NULL;
    for (int32_t i = 0; i < *image_count && source == NULL; i++)
        if (is_same(&images[i], image)) source = images[i].source;
    for (int32_t i = 0; i < *image_count && source != NULL; i++) {
        if (!images[i].is_binary || strcmp(images[i].source, source) != 0) continue;
        unsigned char* data = unpack(&images[i]);
        const CUresult result =
            data != NULL ? s_real.load_data_ex(module, data, count, options, values) : CUDA_ERROR_OUT_OF_MEMORY;
        free(data);
        if (result == CUDA_SUCCESS) return result;
    }
    return refusal;
}

static CUresult CUDAAPI load_data_ex(CUmodule* module, const void* image, unsigned count, CUjit_option* options,
                                     void** values)
{
    if (is_refused(image)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    const CUresult result = s_real.load_data_ex(module, image, count, options, values);
    const bool is_refusal = result == CUDA_ERROR_NO_BINARY_FOR_GPU || result == CUDA_ERROR_INVALID_IMAGE;
    return is_refusal && read_image_target(image).is_binary
             ? load_for_real_card(module, image, count, options, values, result)
             : result;
}

// The real card may have more shared memory than the pretended one.
static CUresult CUDAAPI set_function_attribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
        int own = 0;
        const CUresult result = s_real.get_function_attribute(&own, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function);
        if (result != CUDA_SUCCESS) return result;
        if (value > shared_per_block() - own) return CUDA_ERROR_INVALID_VALUE;
    }
    return s_real.set_function_attribute(function, attribute, value);
}

static CUresult CUDAAPI get_address_v1(const char* name, void** out, int version, cuuint64_t flags);
static CUresult CUDAAPI get_address_v2(const char* name, void** out, int version, cuuint64_t flags,
                                       CUdriverProcAddressQueryResult* status);

// by_address: what cuGetProcAddress calls it; NULL: it is one of the two names of that function itself.
static const struct {
    const char *exported, *by_address;
    entry_function* own;
    entry_function** real;
} s_answers[] = {
#define ANSWER(exported, by_address, function)                                                                         \
    {                                                                                                                  \
        exported, by_address, (entry_function*)function, (entry_function**)&s_real.function                            \
    }
    ANSWER("cuDeviceGetAttribute", "cuDeviceGetAttribute", get_attribute),
    ANSWER("cuDeviceComputeCapability", "cuDeviceComputeCapability", get_capability),
    ANSWER("cuDeviceGetName", "cuDeviceGetName", get_name),
    ANSWER("cuModuleLoadData", "cuModuleLoadData", load_data),
    ANSWER("cuModuleLoadDataEx", "cuModuleLoadDataEx", load_data_ex),
    ANSWER("cuLinkComplete", "cuLinkComplete", link_complete),
    ANSWER("cuFuncSetAttribute", "cuFuncSetAttribute", set_function_attribute),
    ANSWER("cuGetProcAddress", NULL, get_address_v1),
    ANSWER("cuGetProcAddress_v2", NULL, get_address_v2),
};
enum { ANSWER_COUNT = sizeof s_answers / sizeof s_answers[0] };

// What the real cuGetProcAddress has found under this name, or what is answered instead.
static void replace_address(const char* name, void** out, int version)
{
    entry_function* own = NULL;
    for (int i = 0; i < ANSWER_COUNT && *out != NULL; i++) {
        if (s_answers[i].by_address != NULL && strcmp(s_answers[i].by_address, name) == 0) own = s_answers[i].own;
    }
    if (*out != NULL && strcmp(name, "cuGetProcAddress") == 0)
        own = version >= 12000 ? (entry_function*)get_address_v2 : (entry_function*)get_address_v1;
    if (own != NULL) memcpy(out, &own, sizeof own);
}

static CUresult CUDAAPI get_address_v1(const char* name, void** out, int version, cuuint64_t flags)
{
    const CUresult result = s_real.get_address_v1(name, out, version, flags);
    if (result == CUDA_SUCCESS) replace_address(name, out, version);
    return result;
}

static CUresult CUDAAPI get_address_v2(const char* name, void** out, int version, cuuint64_t flags,
                                       CUdriverProcAddressQueryResult* status)
{
    const CUresult result = s_real.get_address_v2(name, out, version, flags, status);
    if (result == CUDA_SUCCESS) replace_address(name, out, version);
    return result;
}

// ---- Setting up -----------------------------------------------------------------------------------------------------

// A program that was to run as another card must not run as the real one.
static void give_up(const char* reason, const char* what)
{
    fprintf(stderr, "pretend_cuda: %s: %s\n", reason, what);
    _exit(2);
}

static void read_setting(void)
{
    const char* text = getenv("SUMI_PRETEND");
    if (text == NULL || text[0] == 0) return;
    if (strlen(text) >= sizeof s_setting) give_up("SUMI_PRETEND is too long", text);
    strcpy(s_setting, text);
    char parts[sizeof s_setting], *rest = parts;
    strcpy(parts, text);
    const char* name = strsep(&rest, ",");
    static const int s_cards[] = {80, 86, 87, 89, 90, 100, 120, 121};
    for (size_t i = 0; i < sizeof s_cards / sizeof *s_cards; i++) {
        char known[16];
        snprintf(known, sizeof known, "%d.%d", s_cards[i] / 10, s_cards[i] % 10);
        if (strcmp(name, known) == 0) s_capability = s_cards[i];
    }
    if (s_capability == 0)
        give_up("SUMI_PRETEND names no card: write 8.0, 8.6, 8.7, 8.9, 9.0, 10.0, 12.0 or 12.1 first", text);
    int* const numbers[] = {&s_multiprocessors, &s_l2_mib};
    for (int i = 0; rest != NULL; i++) {
        const char* part = strsep(&rest, ",");
        char* end;
        if (strcmp(part, "ptx") == 0 && rest == NULL) {
            s_refuses_binaries = true;
            break;
        }
        const long number = strtol(part, &end, 10);
        if (i >= 2 || end == part || *end != 0 || number < 1 || number > 1000)
            give_up("SUMI_PRETEND is CARD[,MULTIPROCESSORS[,L2 in MiB]][,ptx]", text);
        *numbers[i] = (int)number;
    }
}

// Opens a libcuda.so.1 that is another file than this one.
static void* open_other(const char* path)
{
    char own[PATH_MAX], other[PATH_MAX];
    Dl_info here;
    if (dladdr((void*)s_entries, &here) == 0 || realpath(here.dli_fname, own) == NULL || realpath(path, other) == NULL
        || strcmp(own, other) == 0)
        return NULL;
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static void* open_in(const char* folder, size_t length)
{
    char path[PATH_MAX];
    if (length == 0 || length + 16 > sizeof path) return NULL;
    snprintf(path, sizeof path, "%.*s/libcuda.so.1", (int)length, folder);
    return open_other(path);
}

// The loader's order: LD_LIBRARY_PATH, its cache, its own folders. It would not look any further than this library.
static void* find_driver(void)
{
    const char* named = getenv("SUMI_PRETEND_DRIVER");
    if (named != NULL && named[0] != 0) return open_other(named);
    void* driver = NULL;
    for (const char* folder = getenv("LD_LIBRARY_PATH"); folder != NULL && driver == NULL;) {
        const size_t length = strcspn(folder, ":");
        driver = open_in(folder, length);
        folder = folder[length] == ':' ? folder + length + 1 : NULL;
    }
    FILE* cache = driver == NULL ? popen("PATH=/sbin:/usr/sbin:$PATH ldconfig -p 2>/dev/null", "r") : NULL;
    char line[PATH_MAX];
    while (cache != NULL && driver == NULL && fgets(line, sizeof line, cache) != NULL) {
        char* path = strstr(line, " => ");
        if (strstr(line, "libcuda.so.1 (") == NULL || path == NULL) continue;
        path[strcspn(path, "\n")] = 0;
        driver = open_other(path + strlen(" => ")); // that of another architecture does not open
    }
    if (cache != NULL) pclose(cache);
    static const char* const s_folders[] = {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",
                                            "/usr/lib", "/usr/lib/wsl/lib"};
    for (size_t i = 0; i < sizeof s_folders / sizeof *s_folders && driver == NULL; i++)
        driver = open_in(s_folders[i], strlen(s_folders[i]));
    return driver;
}

__attribute__((constructor)) static void begin(void)
{
    read_setting();
    void* driver = find_driver();
    if (driver == NULL) { // cuInit fails, and programs say that there is no device
        fprintf(stderr,
                "pretend_cuda: there is no other libcuda.so.1 on this machine (SUMI_PRETEND_DRIVER names it)\n");
        return;
    }
    const bool pretends = s_capability != 0;
    for (int i = 0; i < ENTRY_COUNT; i++) {
        void* real = dlsym(driver, s_entries[i].name);
        if (real != NULL) memcpy(s_entries[i].slot, &real, sizeof real);
        for (int a = 0; a < ANSWER_COUNT; a++) {
            if (!pretends || strcmp(s_answers[a].exported, s_entries[i].name) != 0 || real == NULL) continue;
            memcpy(s_answers[a].real, &real, sizeof real);
            *s_entries[i].slot = s_answers[a].own;
        }
    }
    void* real = dlsym(driver, "cuFuncGetAttribute");
    if (real != NULL) memcpy(&s_real.get_function_attribute, &real, sizeof real);
}
