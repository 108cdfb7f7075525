// Memory and semaphores of graphics APIs, and the copies into them.
//
//   compute stream     .. last slice | image -> memory of sumi | copies that are fetched      the job is done when these have ended
//   import's stream                                               wait | memory -> import | event | signal     in sumi_fetch_images
//
// Every import has its own stream. Only this stream waits for the host program's semaphores, so neither the compute
// stream nor other imports are delayed by a host program that does not signal. The compute stream waits for the event
// when it writes the next image over the memory (targets.c).
//
// OpenGL and ID3D11Texture2D have no semaphores. Between mapping and unmapping a resource its stream is in order with
// the graphics commands of the calling thread.
#include "base/pixel_formats.h"
#include "base/platform.h"
#include "cuda/driver.h"
#include "cuda/transfers.h"
#include "device/device_memory.h"
#include <stdio.h>
#include <string.h>

#define NO_TIMEOUT UINT32_MAX // of keyed mutexes: INFINITE of Windows

static bool is_semaphore(sumi_external_kind kind) { return kind >= SUMI_EXTERNAL_VULKAN_TIMELINE; }
// Kinds that are mapped for each copy and ordered by their API.
static bool is_registered(sumi_external_kind kind)
{
    return kind == SUMI_EXTERNAL_GL_TEXTURE || kind == SUMI_EXTERNAL_GL_BUFFER || kind == SUMI_EXTERNAL_D3D11_TEXTURE;
}
static bool is_gl(sumi_external_kind kind)
{
    return kind == SUMI_EXTERNAL_GL_TEXTURE || kind == SUMI_EXTERNAL_GL_BUFFER;
}

static const char* name_of(sumi_external_kind kind)
{
    switch (kind) {
    case SUMI_EXTERNAL_GL_TEXTURE: return "OpenGL texture";
    case SUMI_EXTERNAL_GL_BUFFER: return "OpenGL buffer";
    case SUMI_EXTERNAL_VULKAN_MEMORY: return "Vulkan memory";
    case SUMI_EXTERNAL_D3D12_RESOURCE: return "Direct3D 12 resource";
    case SUMI_EXTERNAL_D3D12_HEAP: return "Direct3D 12 heap";
    case SUMI_EXTERNAL_D3D11_RESOURCE: return "Direct3D 11 resource";
    case SUMI_EXTERNAL_D3D11_TEXTURE: return "Direct3D 11 texture";
    case SUMI_EXTERNAL_VULKAN_TIMELINE: return "Vulkan timeline semaphore";
    case SUMI_EXTERNAL_VULKAN_SEMAPHORE: return "Vulkan semaphore";
    case SUMI_EXTERNAL_D3D12_FENCE: return "Direct3D 12 fence";
    case SUMI_EXTERNAL_D3D11_FENCE: return "Direct3D 11 fence";
    case SUMI_EXTERNAL_D3D11_KEYED_MUTEX: return "keyed mutex";
    case SUMI_EXTERNAL_NONE: break;
    }
    return "import";
}

// ---- Failures -------------------------------------------------------------------------------------------------------

static const char* article_of(sumi_external_kind kind) { return is_gl(kind) ? "an" : "a"; }

// Whether the device is not lost. Refused calls return "unknown error" at times, which would otherwise mean that it is.
static bool is_healthy(const sumi_cuda* cuda)
{
    const CUresult health = cuda->device.driver.cuStreamQuery(cuda->device.copy);
    return health == CUDA_SUCCESS || health == CUDA_ERROR_NOT_READY;
}

// Whether this thread has no OpenGL context, or the context of another GPU. Drivers then report various errors (invalid
// texture, invalid device, unknown) or none.
static bool lacks_gl_context(const sumi_cuda* cuda)
{
    enum { MOST_DEVICES = 16 };
    const sumi_cuda_driver* driver = &cuda->device.driver;
    CUdevice devices[MOST_DEVICES];
    unsigned count = 0;
    if (driver->cuGLGetDevices == NULL || !is_healthy(cuda)) return false;
    if (driver->cuGLGetDevices(&count, devices, MOST_DEVICES, 1 /* CU_GL_DEVICE_LIST_ALL */) != CUDA_SUCCESS)
        return true;
    for (unsigned i = 0; i < count && i < MOST_DEVICES; i++) {
        if (devices[i] == cuda->device.device) return false;
    }
    return true;
}

// The failure of a call on a registered resource.
static sumi_result graphics_failure(const sumi_cuda* cuda, sumi_external_kind kind, CUresult failure, const char* what,
                                    sumi_error* error)
{
    if (!is_gl(kind) || !lacks_gl_context(cuda)) {
        char text[64];
        snprintf(text, sizeof text, "%s %s %s", what, article_of(kind), name_of(kind));
        return sumi_cuda_failure(&cuda->device.driver, failure, text, error);
    }
    return sumi_fail(error, SUMI_WRONG_STATE,
                     "%s an %s failed (CUDA's error %d): make the OpenGL context current on the calling thread; it "
                     "must be of this GPU",
                     what, name_of(kind), (int)failure);
}

// The failure of a call with a handle of the host program's. Drivers report invalid handles, and handles of another
// device or of another kind, in different ways (invalid value, invalid handle, operating system call failed, unknown),
// and the device is not lost.
static sumi_result handle_failure(const sumi_cuda* cuda, sumi_external_kind kind, CUresult failure, sumi_error* error)
{
    char text[64];
    snprintf(text, sizeof text, "importing a %s", name_of(kind));
    if (failure == CUDA_ERROR_OUT_OF_MEMORY || !is_healthy(cuda))
        return sumi_cuda_failure(&cuda->device.driver, failure, text, error);
    if (failure == CUDA_ERROR_NOT_SUPPORTED)
        return sumi_fail(error, SUMI_NOT_SUPPORTED,
                         "%s failed: this driver or operating system does not share them with CUDA; give host_memory "
                         "or a device_address",
                         text);
    return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                     "%s failed (CUDA's error %d): the handle must be open, of this kind and of this GPU, and "
                     "memory_bytes and is_dedicated must be as the memory was allocated",
                     text, (int)failure);
}

static sumi_result missing_entries(sumi_external_kind kind, sumi_error* error)
{
    return sumi_fail(error, SUMI_NOT_SUPPORTED,
                     "this NVIDIA driver does not share %s %s with CUDA: give host_memory or a device_address",
                     article_of(kind), name_of(kind));
}

static bool has_entries(const sumi_cuda_driver* driver, sumi_external_kind kind)
{
    if (driver->cuMemcpy2DAsync == NULL) return false;
    if (is_semaphore(kind))
        return driver->cuImportExternalSemaphore != NULL && driver->cuDestroyExternalSemaphore != NULL
            && driver->cuSignalExternalSemaphoresAsync != NULL && driver->cuWaitExternalSemaphoresAsync != NULL;
    if (!is_registered(kind))
        return driver->cuImportExternalMemory != NULL && driver->cuDestroyExternalMemory != NULL
            && driver->cuExternalMemoryGetMappedBuffer != NULL
            && driver->cuExternalMemoryGetMappedMipmappedArray != NULL && driver->cuMipmappedArrayGetLevel != NULL
            && driver->cuMipmappedArrayDestroy != NULL;
    if (driver->cuGraphicsUnregisterResource == NULL || driver->cuGraphicsMapResources == NULL
        || driver->cuGraphicsUnmapResources == NULL)
        return false;
    if (kind == SUMI_EXTERNAL_GL_BUFFER)
        return driver->cuGraphicsGLRegisterBuffer != NULL && driver->cuGraphicsResourceGetMappedPointer != NULL;
    return driver->cuGraphicsSubResourceGetMappedArray != NULL && driver->cuArray3DGetDescriptor != NULL
        && (kind == SUMI_EXTERNAL_GL_TEXTURE ? driver->cuGraphicsGLRegisterImage != NULL
                                             : driver->cuGraphicsD3D11RegisterResource != NULL);
}

// ---- Copies ---------------------------------------------------------------------------------------------------------

static sumi_result copy_image(const sumi_cuda* cuda, const sumi_import_copy* copy, CUarray array, CUdeviceptr rows,
                              sumi_error* error)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    const sumi_imported* import = copy->to;
    const CUDA_MEMCPY2D how = {
        .srcMemoryType = copy->from_staging ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
        .srcHost = copy->from_staging ? (const void*)(uintptr_t)import->staging : NULL,
        .srcDevice = copy->from_staging ? 0 : import->address,
        .srcPitch = (size_t)import->pitch,
        .dstMemoryType = array != NULL ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_DEVICE,
        .dstArray = array,
        .dstDevice = array != NULL ? 0 : rows,
        .dstPitch = array != NULL ? 0 : (size_t)import->row_bytes,
        .WidthInBytes = (size_t)import->pitch,
        .Height = (size_t)import->height,
    };
    SUMI_CU(driver, cuMemcpy2DAsync(&how, import->stream), "copying an image into an import");
    return SUMI_OK;
}

// The other way, once the depth before it was used.
static sumi_result copy_depth(const sumi_cuda* cuda, const sumi_imported* import, CUarray array, CUdeviceptr rows,
                              sumi_error* error)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    const CUDA_MEMCPY2D how = {
        .srcMemoryType = array != NULL ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_DEVICE,
        .srcArray = array,
        .srcDevice = array != NULL ? 0 : rows,
        .srcPitch = array != NULL ? 0 : (size_t)import->row_bytes,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = import->address,
        .dstPitch = (size_t)import->pitch,
        .WidthInBytes = (size_t)import->pitch,
        .Height = (size_t)import->height,
    };
    if (import->has_used)
        SUMI_CU(driver, cuStreamWaitEvent(import->stream, import->used, 0), "waiting for the use of a depth buffer");
    SUMI_CU(driver, cuMemcpy2DAsync(&how, import->stream), "copying a depth buffer");
    return SUMI_OK;
}

static sumi_result copy_pixels(const sumi_cuda* cuda, const sumi_import_copy* copy, CUarray array, CUdeviceptr rows,
                               sumi_error* error)
{
    return copy->to->is_depth ? copy_depth(cuda, copy->to, array, rows, error)
                              : copy_image(cuda, copy, array, rows, error);
}

// CUDA imports no texture of a depth format, whatever the API.
#define R32F_PASS "copy a depth buffer to an R32F texture in one full-screen pass (sumi.h, Depth buffers)"

// CUDA accepts many formats, and a copy into a larger texture, or into another format of as many bytes, would succeed.
// So both are checked.
static sumi_result check_texture(const sumi_cuda* cuda, CUarray array, const sumi_imported* import, sumi_error* error)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    CUDA_ARRAY3D_DESCRIPTOR storage;
    SUMI_CU(driver, cuArray3DGetDescriptor(&storage, array), "asking for the size of a texture");
    if (storage.Width != (size_t)import->width || storage.Height != (size_t)import->height || storage.Depth > 1)
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "the texture is %zu x %zu in %zu layers: it must be %d x %d in one layer", storage.Width,
                         storage.Height, storage.Depth > 1 ? storage.Depth : 1, (int)import->width,
                         (int)import->height);
    if (import->is_depth) {
        if (storage.Format == CU_AD_FORMAT_FLOAT && storage.NumChannels == 1) return SUMI_OK;
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "the texture has %u channels of CUDA's format %#x: depth is read from %s; " R32F_PASS,
                         storage.NumChannels, (unsigned)storage.Format,
                         import->kind == SUMI_EXTERNAL_GL_TEXTURE ? "GL_R32F" : "R32_FLOAT");
    }
    const bool is_half = import->format == SUMI_FORMAT_RGBA16F;
    if (storage.Format != (is_half ? CU_AD_FORMAT_HALF : CU_AD_FORMAT_UNSIGNED_INT8) || storage.NumChannels != 4)
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "the texture has %u channels of CUDA's format %#x: it must be %s", storage.NumChannels,
                         (unsigned)storage.Format,
                         is_half                                    ? "GL_RGBA16F or R16G16B16A16_FLOAT"
                         : import->kind == SUMI_EXTERNAL_GL_TEXTURE ? "GL_RGBA8"
                                                                    : "of four channels of 8 bits");
    return SUMI_OK;
}

static sumi_result check_buffer(size_t bytes, const sumi_imported* import, sumi_error* error)
{
    const uint64_t needed = import->mapped + (uint64_t)(import->height - 1) * import->row_bytes + import->pitch;
    if (bytes >= needed) return SUMI_OK;
    return sumi_fail(
        error, SUMI_INVALID_ARGUMENT, "the OpenGL buffer has %zu bytes: %d x %d pixels from byte %llu on need %llu",
        bytes, (int)import->width, (int)import->height, (unsigned long long)import->mapped, (unsigned long long)needed);
}

// Maps a registered resource, copies into it, and unmaps it whatever the result is. With `copies` false it only checks
// size and format of copy->to.
static sumi_result use_registered(const sumi_cuda* cuda, const sumi_import_copy* copy, bool copies, sumi_error* error)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    const sumi_imported* import = copy->to;
    CUgraphicsResource resource = import->resource;
    CUarray array = NULL;
    CUdeviceptr rows = 0;
    size_t bytes = 0;
    const CUresult map_result = driver->cuGraphicsMapResources(1, &resource, import->stream);
    if (map_result != CUDA_SUCCESS) return graphics_failure(cuda, import->kind, map_result, "mapping", error);
    const CUresult storage_result = import->kind == SUMI_EXTERNAL_GL_BUFFER
                                      ? driver->cuGraphicsResourceGetMappedPointer(&rows, &bytes, resource)
                                      : driver->cuGraphicsSubResourceGetMappedArray(&array, resource, 0, 0);
    sumi_result result = SUMI_OK;
    if (storage_result != CUDA_SUCCESS)
        result = sumi_cuda_failure(driver, storage_result, "finding the storage of a texture or buffer", error);
    // a buffer may be made again between two copies
    else if (array == NULL) result = check_buffer(bytes, import, error);
    else if (!copies) result = check_texture(cuda, array, import, error);
    if (result == SUMI_OK && copies) result = copy_pixels(cuda, copy, array, rows + import->mapped, error);
    const CUresult unmap_result = driver->cuGraphicsUnmapResources(1, &resource, import->stream);
    if (result != SUMI_OK || unmap_result == CUDA_SUCCESS) return result;
    return graphics_failure(cuda, import->kind, unmap_result, "unmapping", error);
}

static sumi_result wait_for(const sumi_cuda* cuda, const sumi_import_copy* copy, sumi_error* error)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    CUexternalSemaphore semaphore = copy->wait->semaphore;
    CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS params = {0};
    if (copy->wait->kind == SUMI_EXTERNAL_D3D11_KEYED_MUTEX) {
        params.params.keyedMutex.key = copy->wait_value;
        params.params.keyedMutex.timeoutMs = NO_TIMEOUT;
    } else if (copy->wait->kind != SUMI_EXTERNAL_VULKAN_SEMAPHORE) {
        params.params.fence.value = copy->wait_value;
    }
    SUMI_CU(driver, cuWaitExternalSemaphoresAsync(&semaphore, &params, 1, copy->to->stream),
            "waiting for a semaphore of the host program");
    return SUMI_OK;
}

static sumi_result signal_to(const sumi_cuda* cuda, const sumi_imported* to, const sumi_imported* signal,
                             uint64_t value, sumi_error* error)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    CUexternalSemaphore semaphore = signal->semaphore;
    CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS params = {0};
    if (signal->kind == SUMI_EXTERNAL_D3D11_KEYED_MUTEX) params.params.keyedMutex.key = value;
    else if (signal->kind != SUMI_EXTERNAL_VULKAN_SEMAPHORE) params.params.fence.value = value;
    SUMI_CU(driver, cuSignalExternalSemaphoresAsync(&semaphore, &params, 1, to->stream),
            "signalling a semaphore of the host program");
    return SUMI_OK;
}

static sumi_result copy_shared(const sumi_cuda* cuda, const sumi_import_copy* copy, sumi_error* error)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    sumi_imported* to = copy->to;
    SUMI_TRY(copy_pixels(cuda, copy, to->array, to->mapped, error));
    SUMI_CU(driver, cuEventRecord(to->copied, to->stream), "recording the end of a copy into an import");
    to->has_copied = true;
    return copy->signal != NULL ? signal_to(cuda, to, copy->signal, copy->signal_value, error) : SUMI_OK;
}

sumi_result sumi_cuda_copy_to_import(const sumi_cuda* cuda, const sumi_import_copy* copy, sumi_error* error)
{
    sumi_imported* to = copy->to;
    if (is_registered(to->kind)) {
        SUMI_TRY(use_registered(cuda, copy, true, error));
        SUMI_CU(&cuda->device.driver, cuEventRecord(to->copied, to->stream),
                "recording the end of a copy into an import");
        to->has_copied = true;
        return SUMI_OK;
    }
    if (copy->wait != NULL) SUMI_TRY(wait_for(cuda, copy, error));
    const sumi_result result = copy_shared(cuda, copy, error);
    // A mutex that was acquired, and a signal that was taken, are given back. Otherwise nobody could use the texture
    // any more, and another attempt would wait for ever.
    if (result != SUMI_OK && copy->wait != NULL
        && (copy->wait->kind == SUMI_EXTERNAL_D3D11_KEYED_MUTEX || copy->wait->kind == SUMI_EXTERNAL_VULKAN_SEMAPHORE))
        (void)signal_to(cuda, to, copy->wait, copy->wait_value, NULL);
    return result;
}

bool sumi_cuda_is_copying(const sumi_cuda* cuda, const sumi_imported* import)
{
    return import->has_copied && cuda->device.driver.cuEventQuery(import->copied) == CUDA_ERROR_NOT_READY;
}

// ---- Importing ------------------------------------------------------------------------------------------------------

static sumi_result register_resource(const sumi_cuda* cuda, const sumi_import_desc* desc, sumi_imported* import,
                                     sumi_error* error)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    CUgraphicsResource resource = NULL;
    // Asked first, because a driver may accept the texture of another GPU.
    if (is_gl(desc->kind) && lacks_gl_context(cuda))
        return sumi_fail(
            error, SUMI_WRONG_STATE,
            "importing an %s: make the OpenGL context current on the calling thread; it must be of this GPU",
            name_of(desc->kind));
    // not WRITE_DISCARD: the host program may show the old content until the picture is written
    const unsigned flags = CU_GRAPHICS_REGISTER_FLAGS_NONE;
    const CUresult result = desc->kind == SUMI_EXTERNAL_GL_TEXTURE
                              ? driver->cuGraphicsGLRegisterImage(&resource, desc->gl_name, desc->gl_target, flags)
                          : desc->kind == SUMI_EXTERNAL_GL_BUFFER
                              ? driver->cuGraphicsGLRegisterBuffer(&resource, desc->gl_name, flags)
                              : driver->cuGraphicsD3D11RegisterResource(&resource, desc->handle, flags);
    import->resource = resource;
    if (result == CUDA_SUCCESS) return use_registered(cuda, &(sumi_import_copy){.to = import}, false, error);
    import->resource = NULL;
    if (!is_gl(desc->kind)) return handle_failure(cuda, desc->kind, result, error);
    if (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_HANDLE)
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         desc->kind == SUMI_EXTERNAL_GL_TEXTURE && desc->is_depth
                             ? "texture %u (target %#x) cannot be shared: it must be GL_R32F with its storage made, "
                               "because CUDA shares no depth formats; " R32F_PASS
                         : desc->kind == SUMI_EXTERNAL_GL_TEXTURE
                             ? "texture %u (target %#x) cannot be shared: it must be GL_RGBA8 or GL_RGBA16F with its "
                               "storage made"
                             : "buffer %u (target %#x) cannot be shared: its storage must have been made",
                         (unsigned)desc->gl_name, (unsigned)desc->gl_target);
    return graphics_failure(cuda, desc->kind, result, "importing", error);
}

static CUexternalMemoryHandleType memory_type(const sumi_import_desc* desc)
{
    switch (desc->kind) {
    case SUMI_EXTERNAL_D3D12_RESOURCE: return CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_RESOURCE;
    case SUMI_EXTERNAL_D3D12_HEAP: return CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_HEAP;
    case SUMI_EXTERNAL_D3D11_RESOURCE: return CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D11_RESOURCE;
    default: break;
    }
    return desc->fd >= 0 ? CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD : CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32;
}

static CUexternalSemaphoreHandleType semaphore_type(const sumi_import_desc* desc)
{
    switch (desc->kind) {
    case SUMI_EXTERNAL_VULKAN_SEMAPHORE:
        return desc->fd >= 0 ? CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD
                             : CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_WIN32;
    case SUMI_EXTERNAL_D3D12_FENCE: return CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D12_FENCE;
    case SUMI_EXTERNAL_D3D11_FENCE: return CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_FENCE;
    case SUMI_EXTERNAL_D3D11_KEYED_MUTEX: return CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_KEYED_MUTEX;
    default: break;
    }
    return desc->fd >= 0 ? CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD
                         : CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_WIN32;
}

// CUDA takes a file descriptor with the import, whose later steps can still fail. It is given a copy, so that the host
// program keeps its own after a failure. *out_copy is -1 where there is none.
static sumi_result copy_descriptor(const sumi_import_desc* desc, int32_t* out_copy, sumi_error* error)
{
    *out_copy = -1;
    if (desc->fd < 0) return SUMI_OK;
    *out_copy = sumi_descriptor_copy(desc->fd);
    if (*out_copy >= 0) return SUMI_OK;
#if defined(_WIN32)
    return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                     "fd is %d, but Windows shares no file descriptors: set it to -1 and give handle", (int)desc->fd);
#else
    return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                     "fd is %d, which is not open or cannot be copied: give a new one, as every import takes its own",
                     (int)desc->fd);
#endif
}

// Maps the whole memory, as CUDA recommends where several parts of it may be mapped. A part would have to begin and end
// where the graphics API could have put a buffer, and a driver has refused one that began at byte 256.
static sumi_result map_rows(const sumi_cuda* cuda, const sumi_import_desc* desc, sumi_imported* import,
                            sumi_error* error)
{
    CUdeviceptr begin = 0;
    const CUDA_EXTERNAL_MEMORY_BUFFER_DESC whole = {.size = desc->memory_bytes};
    const CUresult result = cuda->device.driver.cuExternalMemoryGetMappedBuffer(&begin, import->memory, &whole);
    if (result != CUDA_SUCCESS) return handle_failure(cuda, desc->kind, result, error);
    import->mapping = begin;
    import->mapped = begin + desc->offset;
    return SUMI_OK;
}

static sumi_result map_image(const sumi_cuda* cuda, const sumi_import_desc* desc, sumi_imported* import,
                             sumi_error* error)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    CUmipmappedArray levels = NULL;
    CUarray array = NULL;
    const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC image = {
        .offset = desc->offset,
        .arrayDesc = {.Width = (size_t)desc->width,
                      .Height = (size_t)desc->height,
                      .Format = desc->is_depth                      ? CU_AD_FORMAT_FLOAT
                              : desc->format == SUMI_FORMAT_RGBA16F ? CU_AD_FORMAT_HALF
                                                                    : CU_AD_FORMAT_UNSIGNED_INT8,
                      .NumChannels = desc->is_depth ? 1 : 4,
                      .Flags = desc->is_color_attachment ? CUDA_ARRAY3D_COLOR_ATTACHMENT : 0},
        .numLevels = (unsigned)desc->level_count};
    CUresult result = driver->cuExternalMemoryGetMappedMipmappedArray(&levels, import->memory, &image);
    if (result != CUDA_SUCCESS) return handle_failure(cuda, desc->kind, result, error);
    import->levels = levels;
    result = driver->cuMipmappedArrayGetLevel(&array, levels, 0);
    if (result != CUDA_SUCCESS) return handle_failure(cuda, desc->kind, result, error);
    import->array = array;
    return SUMI_OK;
}

static sumi_result import_memory(const sumi_cuda* cuda, const sumi_import_desc* desc, sumi_imported* import,
                                 sumi_error* error)
{
    // the resources of Direct3D have dedicated memory
    const bool is_dedicated =
        desc->is_dedicated || desc->kind == SUMI_EXTERNAL_D3D12_RESOURCE || desc->kind == SUMI_EXTERNAL_D3D11_RESOURCE;
    int32_t copy;
    SUMI_TRY(copy_descriptor(desc, &copy, error));
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC handle = {.type = memory_type(desc),
                                               .size = desc->memory_bytes,
                                               .flags = is_dedicated ? CUDA_EXTERNAL_MEMORY_DEDICATED : 0};
    if (copy >= 0) handle.handle.fd = copy;
    else handle.handle.win32.handle = desc->handle;
    CUexternalMemory memory = NULL;
    const CUresult result = cuda->device.driver.cuImportExternalMemory(&memory, &handle);
    if (result != CUDA_SUCCESS) {
        if (copy >= 0) sumi_descriptor_close(copy);
        return handle_failure(cuda, desc->kind, result, error);
    }
    import->memory = memory;
    return desc->is_image ? map_image(cuda, desc, import, error) : map_rows(cuda, desc, import, error);
}

static sumi_result import_semaphore(const sumi_cuda* cuda, const sumi_import_desc* desc, sumi_imported* import,
                                    sumi_error* error)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    int32_t copy;
    int has_timelines = 1;
    if (desc->kind == SUMI_EXTERNAL_VULKAN_TIMELINE
        && (driver->cuDeviceGetAttribute(&has_timelines, CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED,
                                         cuda->device.device)
                != CUDA_SUCCESS
            || has_timelines == 0))
        return sumi_fail(error, SUMI_NOT_SUPPORTED,
                         "this NVIDIA driver does not share timeline semaphores with CUDA: use binary ones");
    SUMI_TRY(copy_descriptor(desc, &copy, error));
    CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC handle = {.type = semaphore_type(desc)};
    if (copy >= 0) handle.handle.fd = copy;
    else handle.handle.win32.handle = desc->handle;
    CUexternalSemaphore semaphore = NULL;
    const CUresult result = driver->cuImportExternalSemaphore(&semaphore, &handle);
    if (result != CUDA_SUCCESS) {
        if (copy >= 0) sumi_descriptor_close(copy);
        return handle_failure(cuda, desc->kind, result, error);
    }
    import->semaphore = semaphore;
    return SUMI_OK;
}

// Whether the host program's device is the one of the engine.
static sumi_result check_device(const sumi_cuda* cuda, const sumi_import_desc* desc, sumi_error* error)
{
    const sumi_cuda_device* device = &cuda->device;
    if (desc->device_uuid != NULL && memcmp(desc->device_uuid, device->uuid, sizeof device->uuid) != 0) {
        char theirs[33], ours[33];
        for (int i = 0; i < 16; i++) {
            snprintf(theirs + 2 * i, 3, "%02x", desc->device_uuid[i]);
            snprintf(ours + 2 * i, 3, "%02x", device->uuid[i]);
        }
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "device_uuid is %s, but the engine's GPU is %s: create the engine with cuda.uuid of the "
                         "device that draws, or draw with the device of sumi_engine_info.device_uuid",
                         theirs, ours);
    }
    static const uint8_t s_no_luid[8] = {0};
    if (desc->device_luid != NULL && desc->device_uuid == NULL
        && memcmp(device->luid, s_no_luid, sizeof s_no_luid) == 0)
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "device_luid means nothing here, because GPUs have no LUIDs on this system: give device_uuid");
    if (desc->device_luid != NULL && memcmp(desc->device_luid, device->luid, sizeof device->luid) != 0)
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "device_luid is not that of the engine's GPU: create the engine with cuda.luid of the adapter "
                         "that draws, or draw with the adapter of sumi_engine_info.device_luid");
    return SUMI_OK;
}

static sumi_result make_own_part(sumi_cuda* cuda, const sumi_import_desc* desc, sumi_imported* import,
                                 sumi_error* error)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    CUstream stream = NULL;
    CUevent event = NULL;
    int least = 0, greatest = 0;
    SUMI_CU(driver, cuCtxGetStreamPriorityRange(&least, &greatest), "asking for stream priorities");
    SUMI_CU(driver, cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, least),
            "making a stream for an import");
    import->stream = stream;
    SUMI_CU(driver, cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "making an event");
    import->copied = event;
    import->pitch = (uint64_t)desc->width * (uint64_t)sumi_format_bytes(desc->format);
    import->row_bytes = desc->row_bytes != 0 ? (uint64_t)desc->row_bytes : import->pitch;
    if (desc->is_depth) {
        SUMI_CU(driver, cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "making an event");
        import->used = event;
    }
    const uint64_t bytes =
        desc->is_depth ? sumi_cuda_depth_all_bytes(desc->width, desc->height) : import->pitch * (uint64_t)desc->height;
    sumi_device_block block;
    SUMI_TRY(sumi_device_allocate(&cuda->stock.memory, bytes, SUMI_MEMORY_IMAGE, "device memory of an import", &block,
                                  error));
    import->address = block.address, import->bytes = block.bytes;
    if (!desc->takes_previews) return SUMI_OK;
    SUMI_TRY(sumi_device_allocate(&cuda->stock.memory, bytes, SUMI_MEMORY_STAGING, "pinned memory for previews", &block,
                                  error));
    import->staging = block.address, import->staging_bytes = block.bytes;
    import->staging_is_registered = block.is_registered;
    return SUMI_OK;
}

static sumi_result import_all(sumi_cuda* cuda, const sumi_import_desc* desc, sumi_imported* import, sumi_error* error)
{
    if (!has_entries(&cuda->device.driver, desc->kind)) return missing_entries(desc->kind, error);
    SUMI_TRY(check_device(cuda, desc, error));
    if (is_semaphore(desc->kind)) return import_semaphore(cuda, desc, import, error);
    SUMI_TRY(make_own_part(cuda, desc, import, error));
    if (!is_registered(desc->kind)) return import_memory(cuda, desc, import, error);
    import->mapped = desc->offset; // of a buffer: the address of its first row
    return register_resource(cuda, desc, import, error);
}

sumi_result sumi_cuda_import(sumi_cuda* cuda, const sumi_import_desc* desc, sumi_imported* out_import,
                             sumi_error* error)
{
    *out_import = (sumi_imported){.kind = desc->kind,
                                  .width = desc->width,
                                  .height = desc->height,
                                  .format = desc->format,
                                  .is_depth = desc->is_depth};
    const sumi_result result = import_all(cuda, desc, out_import, error);
    if (result != SUMI_OK) sumi_cuda_release_import(cuda, out_import);
    else if (desc->fd >= 0) sumi_descriptor_close(desc->fd); // it is sumi's now, and CUDA has a copy
    return result;
}

void sumi_cuda_finish_import(const sumi_cuda* cuda, const sumi_imported* import)
{
    if (import->stream != NULL) cuda->device.driver.cuStreamSynchronize(import->stream);
}

void sumi_cuda_release_import(sumi_cuda* cuda, sumi_imported* import)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    sumi_cuda_finish_import(cuda, import);
    if (import->has_used) driver->cuEventSynchronize(import->used);
    if (import->used != NULL) driver->cuEventDestroy(import->used);
    if (import->resource != NULL) driver->cuGraphicsUnregisterResource(import->resource);
    if (import->levels != NULL) driver->cuMipmappedArrayDestroy(import->levels);
    if (import->memory != NULL) {
        if (import->mapping != 0) driver->cuMemFree(import->mapping);
        driver->cuDestroyExternalMemory(import->memory);
    }
    if (import->semaphore != NULL) driver->cuDestroyExternalSemaphore(import->semaphore);
    if (import->copied != NULL) driver->cuEventDestroy(import->copied);
    if (import->stream != NULL) driver->cuStreamDestroy(import->stream);
    sumi_device_block block = {.address = import->address, .bytes = import->bytes, .kind = SUMI_MEMORY_IMAGE};
    sumi_device_release(&cuda->stock.memory, &block);
    block = (sumi_device_block){.address = import->staging,
                                .bytes = import->staging_bytes,
                                .kind = SUMI_MEMORY_STAGING,
                                .is_registered = import->staging_is_registered};
    sumi_device_release(&cuda->stock.memory, &block);
    *import = (sumi_imported){.kind = SUMI_EXTERNAL_NONE};
}
