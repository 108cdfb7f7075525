#include "cuda/modules.h"
#include "base/assert.h"
#include "base/sort.h"
#include "cuda/device.h"
#include "cuda/driver.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

// One .cu file. A device can use at most two of its images.
typedef struct source {
    const sumi_cuda_image* binary; // or NULL
    const sumi_cuda_image* text;   // or NULL
    CUmodule module;               // NULL: not loaded, or left out
} source;

typedef struct kernel {
    const char* name;
    int32_t source_index;
    CUfunction function;   // looked up at the first use
    uint32_t shared_bytes; // the dynamic shared memory that it was prepared for
    uint64_t use_count;
} kernel;

struct sumi_cuda_modules {
    sumi_heap* heap;
    const sumi_cuda_device* device;
    source* sources;
    int32_t source_count, loaded_count; // sources are loaded in order
    kernel* kernels;                    // sorted by name
    int32_t kernel_count;
    int32_t ready_count; // kernels [0, ready_count) were looked up when the modules had been loaded
};

// ---- Choosing -------------------------------------------------------------------------------------------------------

// Images of 9.0 run only on 9.0; PTX of 8.0 and 8.9 also runs on everything newer.
static bool runs_on(const sumi_cuda_image* image, int32_t capability)
{
    return image->is_binary || image->target >= 90 ? image->target == capability : image->target <= capability;
}

static void choose_image(source* chosen, const sumi_cuda_image* image)
{
    if (image->is_binary) chosen->binary = image;
    else if (chosen->text == NULL || image->target > chosen->text->target) chosen->text = image;
}

static const sumi_cuda_image* any_image(const source* of) { return of->binary != NULL ? of->binary : of->text; }
static bool is_required(const source* of) { return of->text != NULL && of->text->target <= 80; }

static int compare_kernels(const void* a, const void* b)
{
    return strcmp(((const kernel*)a)->name, ((const kernel*)b)->name);
}

sumi_result sumi_cuda_modules_create(sumi_heap* heap, const sumi_cuda_device* device, const sumi_cuda_image* images,
                                     int32_t image_count, sumi_error* error, sumi_cuda_modules** out_modules)
{
    SUMI_ASSERT(image_count >= 0 && (image_count == 0 || images != NULL));
    *out_modules = NULL;
    sumi_cuda_modules* modules = sumi_alloc_zero(heap, sizeof *modules);
    if (modules == NULL) return sumi_out_of_memory(error, sizeof *modules, "the table of GPU kernels");
    modules->heap = heap;
    modules->device = device;
    modules->sources = sumi_alloc_zero(heap, ((size_t)image_count + 1) * sizeof *modules->sources);
    if (modules->sources == NULL) {
        sumi_cuda_modules_destroy(modules);
        return sumi_out_of_memory(error, ((size_t)image_count + 1) * sizeof(source), "the table of GPU kernels");
    }
    int32_t kernel_count = 0;
    for (int32_t i = 0; i < image_count; i++) {
        if (!runs_on(&images[i], device->capability)) continue;
        source* last = modules->source_count > 0 ? &modules->sources[modules->source_count - 1] : NULL;
        if (last == NULL || strcmp(any_image(last)->source, images[i].source) != 0) {
            last = &modules->sources[modules->source_count++];
            kernel_count += images[i].kernel_count;
        }
        choose_image(last, &images[i]);
    }
    modules->kernels = sumi_alloc_zero(heap, ((size_t)kernel_count + 1) * sizeof *modules->kernels);
    if (modules->kernels == NULL) {
        sumi_cuda_modules_destroy(modules);
        return sumi_out_of_memory(error, ((size_t)kernel_count + 1) * sizeof(kernel), "the table of GPU kernels");
    }
    for (int32_t s = 0; s < modules->source_count; s++) {
        const sumi_cuda_image* image = any_image(&modules->sources[s]);
        for (int32_t k = 0; k < image->kernel_count; k++)
            modules->kernels[modules->kernel_count++] = (kernel){.name = image->kernels[k], .source_index = s};
    }
    sumi_sort(modules->kernels, (size_t)modules->kernel_count, sizeof *modules->kernels, compare_kernels);
    *out_modules = modules;
    return SUMI_OK;
}

void sumi_cuda_modules_destroy(sumi_cuda_modules* modules)
{
    if (modules == NULL) return;
    const sumi_cuda_driver* driver = &modules->device->driver;
    for (int32_t s = 0; s < modules->loaded_count; s++) {
        if (modules->sources[s].module != NULL) driver->cuModuleUnload(modules->sources[s].module);
    }
    sumi_free(modules->heap, modules->kernels);
    sumi_free(modules->heap, modules->sources);
    sumi_free(modules->heap, modules);
}

// ---- Loading --------------------------------------------------------------------------------------------------------

static void* allocate_for_zlib(void* heap, unsigned count, unsigned bytes)
{
    return sumi_alloc_array(heap, count, bytes);
}
static void release_for_zlib(void* heap, void* memory) { sumi_free(heap, memory); }

// Unpacks an image; the caller frees it.
static sumi_result unpack(sumi_heap* heap, const sumi_cuda_image* image, unsigned char** out_data, sumi_error* error)
{
    *out_data = NULL;
    unsigned char* data = sumi_alloc(heap, image->bytes);
    if (data == NULL) return sumi_out_of_memory(error, image->bytes, "a GPU kernel's image");
    z_stream stream = {.zalloc = allocate_for_zlib, .zfree = release_for_zlib, .opaque = heap};
    // zlib's member is not const, but zlib does not write there
    stream.next_in = (unsigned char*)(uintptr_t)image->data;
    stream.avail_in = image->packed_bytes;
    stream.next_out = data;
    stream.avail_out = image->bytes;
    int state = inflateInit(&stream);
    if (state == Z_OK) {
        state = inflate(&stream, Z_FINISH);
        inflateEnd(&stream);
    }
    bool is_complete = state == Z_STREAM_END && stream.avail_out == 0 && stream.avail_in == 0
                    && (image->is_binary || (image->bytes > 0 && data[image->bytes - 1] == 0));
    if (is_complete) {
        *out_data = data;
        return SUMI_OK;
    }
    sumi_free(heap, data);
    if (state == Z_MEM_ERROR) return sumi_out_of_memory(error, 1u << 16, "unpacking a GPU kernel's image");
    return sumi_fail(error, SUMI_INTERNAL,
                     "the GPU kernels of %s (%d) inside this program are damaged (zlib %d): build or install it again",
                     image->source, (int)image->target, state);
}

// Whether the failure means that this driver cannot load the image, and not a failure that may pass. Then the next
// image is tried. Drivers differ in how they refuse machine code of a newer CUDA.
static bool is_image_refused(const sumi_cuda_image* image, CUresult result)
{
    switch ((int)result) {
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
    case CUDA_ERROR_JIT_COMPILATION_DISABLED:
    case CUDA_ERROR_INVALID_SOURCE: return true;
    default: return image->is_binary && sumi_cuda_may_be_refusal(result);
    }
}

// If the driver refuses the image, *out_module is NULL, the result is SUMI_OK, *out_refusal is the driver's code, and
// `log` the driver's message.
static sumi_result load_image(sumi_cuda_modules* modules, const sumi_cuda_image* image, CUmodule* out_module,
                              CUresult* out_refusal, char* log, uint32_t log_bytes, sumi_error* error)
{
    const sumi_cuda_driver* driver = &modules->device->driver;
    *out_module = NULL;
    log[0] = 0;
    unsigned char* data;
    SUMI_TRY(unpack(modules->heap, image, &data, error));
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {log, (void*)(uintptr_t)log_bytes}; // the API passes numbers in the pointer itself
    CUresult result = driver->cuModuleLoadDataEx(out_module, data, 2, options, values);
    sumi_free(modules->heap, data);
    if (result == CUDA_SUCCESS) return SUMI_OK;
    *out_module = NULL;
    *out_refusal = result;
    log[log_bytes - 1] = 0;
    for (char* c = log; *c != 0; c++) { // makes it one line of text
        if (*c == '\n' || *c == '\r' || *c == '\t') *c = ' ';
    }
    if (is_image_refused(image, result)) return SUMI_OK;
    char what[160];
    snprintf(what, sizeof what, "loading the GPU kernels of %s (%d)", image->source, (int)image->target);
    return sumi_cuda_failure(driver, result, what, error);
}

static sumi_result load_source(sumi_cuda_modules* modules, source* next, sumi_error* error)
{
    const sumi_cuda_image* images[2] = {next->binary, next->text};
    char log[2048] = "";
    CUresult refusal = CUDA_SUCCESS;
    for (int i = 0; i < 2 && next->module == NULL; i++) {
        if (images[i] != NULL)
            SUMI_TRY(load_image(modules, images[i], &next->module, &refusal, log, (uint32_t)sizeof log, error));
    }
    if (next->module != NULL || !is_required(next)) return SUMI_OK;
    char what[320];
    snprintf(what, sizeof what, "loading the GPU kernels of %s: %.200s%s", next->text->source, log,
             log[0] != 0 ? " " : "");
    return sumi_cuda_failure(&modules->device->driver, refusal, what, error);
}

sumi_result sumi_cuda_modules_step(sumi_cuda_modules* modules, bool* out_done, float* out_progress, sumi_error* error)
{
    if (modules->loaded_count < modules->source_count) {
        SUMI_TRY(load_source(modules, &modules->sources[modules->loaded_count], error));
        modules->loaded_count++;
    }
    *out_done = modules->loaded_count == modules->source_count;
    *out_progress = modules->source_count > 0 ? (float)modules->loaded_count / (float)modules->source_count : 1.0f;
    return SUMI_OK;
}

// ---- Finding --------------------------------------------------------------------------------------------------------

static kernel* find_kernel(const sumi_cuda_modules* modules, const char* name)
{
    kernel key = {.name = name};
    return bsearch(&key, modules->kernels, (size_t)modules->kernel_count, sizeof key, compare_kernels);
}

bool sumi_cuda_has_kernel(const sumi_cuda_modules* modules, const char* name)
{
    const kernel* entry = find_kernel(modules, name);
    return entry != NULL && modules->sources[entry->source_index].module != NULL;
}

// A driver that loads lazily loads a kernel's code when it is first asked for its properties, and may wait meanwhile for
// what runs in the context (on an H100 it did not). A capture would forbid this if the thread's mode were not relaxed.
static sumi_result make_ready(const sumi_cuda_modules* modules, kernel* entry, uint32_t shared_bytes, sumi_error* error)
{
    const sumi_cuda_driver* driver = &modules->device->driver;
    CUresult result = CUDA_SUCCESS;
    if (entry->function == NULL) {
        CUfunction function = NULL;
        int registers = 0;
        result = driver->cuModuleGetFunction(&function, modules->sources[entry->source_index].module, entry->name);
        if (result == CUDA_SUCCESS)
            result = driver->cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function);
        if (result == CUDA_SUCCESS) entry->function = function;
    }
    if (result == CUDA_SUCCESS && shared_bytes > entry->shared_bytes) {
        result = driver->cuFuncSetAttribute(entry->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                            (int)shared_bytes);
        if (result == CUDA_SUCCESS) entry->shared_bytes = shared_bytes;
    }
    return result == CUDA_SUCCESS ? SUMI_OK : sumi_cuda_failure(driver, result, entry->name, error);
}

void sumi_cuda_modules_ready_step(sumi_cuda_modules* modules, int32_t count, bool* out_done)
{
    SUMI_ASSERT(modules->loaded_count == modules->source_count && count >= 1);
    for (int32_t i = 0; i < count && modules->ready_count < modules->kernel_count; i++) {
        kernel* entry = &modules->kernels[modules->ready_count++];
        sumi_error ignored = {0};
        if (entry->function == NULL && modules->sources[entry->source_index].module != NULL)
            (void)make_ready(modules, entry, 0, &ignored);
    }
    *out_done = modules->ready_count == modules->kernel_count;
}

sumi_result sumi_cuda_kernel(sumi_cuda_modules* modules, const char* name, uint32_t shared_bytes,
                             CUfunction* out_function, sumi_error* error)
{
    *out_function = NULL;
    kernel* entry = find_kernel(modules, name);
    if (entry == NULL || modules->sources[entry->source_index].module == NULL) {
        return sumi_fail(error, SUMI_INTERNAL,
                         "no loaded image has a kernel %s for compute capability %d.%d; please report this message",
                         name, (int)(modules->device->capability / 10), (int)(modules->device->capability % 10));
    }
    if (shared_bytes > (uint32_t)modules->device->shared_per_block) {
        return sumi_fail(
            error, SUMI_INTERNAL,
            "%s wants %u bytes of shared memory, a block of this device has %d; please report this message", name,
            shared_bytes, (int)modules->device->shared_per_block);
    }
    if (entry->function == NULL || shared_bytes > entry->shared_bytes)
        SUMI_TRY(make_ready(modules, entry, shared_bytes, error));
    entry->use_count++;
    *out_function = entry->function;
    return SUMI_OK;
}

void sumi_cuda_list_kernels(const sumi_cuda_modules* modules, sumi_kernel_callback* seen, void* user_data)
{
    for (int32_t k = 0; k < modules->kernel_count; k++)
        seen(modules->kernels[k].name, modules->kernels[k].use_count, user_data);
}
