#include "cuda/image.h"
#include "base/assert.h"
#include "cuda/driver.h"
#include <stdio.h>
#include <zlib.h>

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

// Whether the failure means that this driver cannot load the image, and is not temporary. Then the next image is tried.
// Drivers differ in how they refuse machine code of a newer CUDA.
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

bool sumi_cuda_can_compile_at_once(const sumi_cuda_device* device)
{
    const sumi_cuda_driver* driver = &device->driver;
    return driver->cuLinkCreate != NULL && driver->cuLinkAddData != NULL && driver->cuLinkComplete != NULL
        && driver->cuLinkDestroy != NULL;
}

// Compiles PTX with the linker, because several linkers may work at once, and loads the result.
static CUresult link_and_load(const sumi_cuda_driver* driver, void* data, size_t bytes, uint32_t option_count,
                              CUjit_option* options, void** values, CUmodule* out_module)
{
    CUlinkState state;
    void* code;
    size_t code_bytes;
    CUresult result = driver->cuLinkCreate(option_count, options, values, &state);
    if (result != CUDA_SUCCESS) return result;
    result = driver->cuLinkAddData(state, CU_JIT_INPUT_PTX, data, bytes, "sumi", 0, NULL, NULL);
    if (result == CUDA_SUCCESS) result = driver->cuLinkComplete(state, &code, &code_bytes);
    if (result == CUDA_SUCCESS) result = driver->cuModuleLoadDataEx(out_module, code, 0, NULL, NULL);
    driver->cuLinkDestroy(state); // which owns the code
    return result;
}

sumi_result sumi_cuda_load_image(sumi_heap* heap, const sumi_cuda_device* device, const sumi_cuda_image* image,
                                 CUmodule* out_module, CUresult* out_refusal, char* log, sumi_error* error)
{
    const sumi_cuda_driver* driver = &device->driver;
    *out_module = NULL;
    log[0] = 0;
    unsigned char* data;
    SUMI_TRY(unpack(heap, image, &data, error));
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {log, (void*)(uintptr_t)SUMI_CUDA_LOG_BYTES}; // the API passes numbers in the pointer itself
    const CUresult result = !image->is_binary && sumi_cuda_can_compile_at_once(device)
                              ? link_and_load(driver, data, image->bytes, 2, options, values, out_module)
                              : driver->cuModuleLoadDataEx(out_module, data, 2, options, values);
    sumi_free(heap, data);
    if (result == CUDA_SUCCESS) return SUMI_OK;
    *out_module = NULL;
    *out_refusal = result;
    log[SUMI_CUDA_LOG_BYTES - 1] = 0;
    for (char* c = log; *c != 0; c++) { // makes it one line of text
        if (*c == '\n' || *c == '\r' || *c == '\t') *c = ' ';
    }
    if (is_image_refused(image, result)) return SUMI_OK;
    char what[160];
    snprintf(what, sizeof what, "loading the GPU kernels of %s (%d)", image->source, (int)image->target);
    return sumi_cuda_failure(driver, result, what, error);
}
