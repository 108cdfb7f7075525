// Pictures that stay on the device: written to device memory of the host program, or to memory of sumi and from there
// to an OpenGL texture.
//
//   compute stream   .. last slice | picture -> memory of the import | copies that are fetched      the job is done when these are
//   graphics stream                                                     map | memory -> texture | unmap      in sumi_fetch_images: on the thread that has the graphics' context
//
// The graphics stream is separate, because in the compute stream a texture would wait for the work that the next job
// has submitted.
#include "cuda/targets.h"
#include "cuda/device_memory.h"
#include "cuda/driver.h"
#include "cuda/modules.h"
#include "cuda/state.h"
#include "kernels/pictures.h"

static int32_t kernel_format(sumi_format format)
{
    return format == SUMI_FORMAT_RGB8    ? SUMI_PIXELS_RGB8
         : format == SUMI_FORMAT_BGRA8   ? SUMI_PIXELS_BGRA8
         : format == SUMI_FORMAT_RGB32F  ? SUMI_PIXELS_RGB32F
         : format == SUMI_FORMAT_RGBA16F ? SUMI_PIXELS_RGBA16F
                                         : SUMI_PIXELS_RGBA8;
}

sumi_result sumi_cuda_publish(sumi_cuda* cuda, const sumi_plan* plan, const sumi_publication* picture,
                              sumi_error* error)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    const sumi_value_info* info = sumi_plan_info(plan, picture->value);
    const bool is_float = picture->format == SUMI_FORMAT_RGB32F || picture->format == SUMI_FORMAT_RGBA16F;
    const uint64_t pixel_bytes = is_float ? 6 : 3;
    sumi_pixels_to_args args = {.from = cuda->arena.address + info->offset + picture->first_pixel * pixel_bytes,
                                .to = picture->address != 0
                                        ? picture->address
                                        : cuda->arena.address + sumi_plan_info(plan, picture->into)->offset
                                              + picture->into_offset,
                                .pitch = picture->row_bytes,
                                .width = picture->width,
                                .format = kernel_format(picture->format)};
    CUfunction function;
    SUMI_TRY(sumi_cuda_kernel(cuda->modules, "sumi_pixels_to", 0, &function, error));
    void* params[] = {&args};
    const unsigned blocks = (unsigned)((picture->width + SUMI_PICTURES_THREADS - 1) / SUMI_PICTURES_THREADS);
    SUMI_CU(driver,
            cuLaunchKernel(function, blocks, (unsigned)picture->height, 1, SUMI_PICTURES_THREADS, 1, 1, 0,
                           cuda->device.compute, params, NULL),
            "writing an image to device memory of the host program");
    if (picture->event != NULL)
        SUMI_CU(driver, cuEventRecord(picture->event, cuda->device.compute), "recording the event of a target");
    return SUMI_OK;
}

static bool has_graphics(const sumi_cuda_driver* driver)
{
    return driver->cuMemcpy2DAsync != NULL && driver->cuGraphicsGLRegisterImage != NULL
        && driver->cuGraphicsUnregisterResource != NULL && driver->cuGraphicsMapResources != NULL
        && driver->cuGraphicsUnmapResources != NULL && driver->cuGraphicsSubResourceGetMappedArray != NULL
        && driver->cuArray3DGetDescriptor != NULL;
}

// Whether this thread has no OpenGL context, or the context of another GPU. Drivers then report various errors (invalid
// texture, invalid device, unknown), but the device is not lost.
static bool lacks_gl_context(const sumi_cuda* cuda)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    const CUresult health = driver->cuStreamQuery(cuda->graphics);
    CUdevice device;
    unsigned count = 0;
    if (driver->cuGLGetDevices == NULL || (health != CUDA_SUCCESS && health != CUDA_ERROR_NOT_READY)) return false;
    return driver->cuGLGetDevices(&count, &device, 1, 1 /* CU_GL_DEVICE_LIST_ALL */) != CUDA_SUCCESS || count == 0;
}

static sumi_result graphics_failure(const sumi_cuda* cuda, CUresult failure, const char* what, sumi_error* error)
{
    if (!lacks_gl_context(cuda)) return sumi_cuda_failure(&cuda->device.driver, failure, what, error);
    return sumi_fail(
        error, SUMI_WRONG_STATE,
        "%s failed (CUDA's error %d): make the OpenGL context current on the calling thread, one of this GPU", what,
        (int)failure);
}

// Calls `body` between mapping and unmapping a texture. The texture is unmapped whatever the result of `body` is.
typedef sumi_result mapped_body(const sumi_cuda* cuda, CUarray array, const sumi_import* import, int32_t width,
                                int32_t height, sumi_error* error);
static sumi_result with_storage(const sumi_cuda* cuda, const sumi_import* import, int32_t width, int32_t height,
                                mapped_body* body, sumi_error* error)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    CUgraphicsResource resource = import->resource;
    CUarray array = NULL;
    const CUresult map_result = driver->cuGraphicsMapResources(1, &resource, cuda->graphics);
    if (map_result != CUDA_SUCCESS) return graphics_failure(cuda, map_result, "mapping an OpenGL texture", error);
    const CUresult array_result = driver->cuGraphicsSubResourceGetMappedArray(&array, resource, 0, 0);
    const sumi_result result = array_result == CUDA_SUCCESS
                                 ? body(cuda, array, import, width, height, error)
                                 : sumi_cuda_failure(driver, array_result, "finding the storage of a texture", error);
    const CUresult unmap_result = driver->cuGraphicsUnmapResources(1, &resource, cuda->graphics);
    if (result != SUMI_OK || unmap_result == CUDA_SUCCESS) return result;
    return sumi_cuda_failure(driver, unmap_result, "unmapping an OpenGL texture", error);
}

// CUDA accepts many formats, and a copy into a larger texture or one of another four-byte format would succeed. So both
// are checked.
static sumi_result check_storage(const sumi_cuda* cuda, CUarray array, const sumi_import* import, int32_t width,
                                 int32_t height, sumi_error* error)
{
    (void)import;
    const sumi_cuda_driver* driver = &cuda->device.driver;
    CUDA_ARRAY3D_DESCRIPTOR storage;
    SUMI_CU(driver, cuArray3DGetDescriptor(&storage, array), "asking for the size of a texture");
    if (storage.Width != (size_t)width || storage.Height != (size_t)height || storage.Depth > 1)
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "the texture is %zu x %zu in %zu layers: %d x %d in one is asked for", storage.Width,
                         storage.Height, storage.Depth > 1 ? storage.Depth : 1, (int)width, (int)height);
    if (storage.Format != CU_AD_FORMAT_UNSIGNED_INT8 || storage.NumChannels != 4)
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "the texture has %u channels of CUDA's format %#x: it must be GL_RGBA8", storage.NumChannels,
                         (unsigned)storage.Format);
    return SUMI_OK;
}

sumi_result sumi_cuda_import_gl(sumi_cuda* cuda, uint32_t texture, uint32_t target, int32_t width, int32_t height,
                                sumi_import* out_import, sumi_error* error)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    *out_import = (sumi_import){.resource = NULL};
    if (!has_graphics(driver))
        return sumi_fail(
            error, SUMI_NOT_SUPPORTED,
            "this NVIDIA driver does not share OpenGL textures with CUDA: give host_memory or a device_address");
    if (cuda->graphics == NULL) {
        int least = 0, greatest = 0;
        SUMI_CU(driver, cuCtxGetStreamPriorityRange(&least, &greatest), "asking for stream priorities");
        SUMI_CU(driver, cuStreamCreateWithPriority(&cuda->graphics, CU_STREAM_NON_BLOCKING, least),
                "making a stream for textures");
    }
    sumi_cuda_block block;
    SUMI_TRY(sumi_cuda_allocate(&cuda->memory, (uint64_t)width * (uint64_t)height * 4, SUMI_MEMORY_IMAGE,
                                "device memory of an imported texture", &block, error));
    CUgraphicsResource resource = NULL;
    // not WRITE_DISCARD: the host program may show the old content until the picture is written
    const CUresult result =
        driver->cuGraphicsGLRegisterImage(&resource, texture, target, CU_GRAPHICS_REGISTER_FLAGS_NONE);
    if (result != CUDA_SUCCESS) {
        sumi_cuda_release(&cuda->memory, &block);
        if ((result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_HANDLE) && !lacks_gl_context(cuda))
            return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                             "texture %u (target %#x) cannot be shared: it must be GL_RGBA8 with its storage made",
                             (unsigned)texture, (unsigned)target);
        return graphics_failure(cuda, result, "importing an OpenGL texture", error);
    }
    sumi_import import = {.resource = resource, .address = block.address, .bytes = block.bytes};
    const sumi_result checked = with_storage(cuda, &import, width, height, check_storage, error);
    if (checked == SUMI_OK) *out_import = import;
    else sumi_cuda_release_import(cuda, &import);
    return checked;
}

void sumi_cuda_release_import(sumi_cuda* cuda, sumi_import* import)
{
    if (import->address == 0) return;
    const sumi_cuda_driver* driver = &cuda->device.driver;
    driver->cuStreamSynchronize(cuda->graphics);
    driver->cuGraphicsUnregisterResource(import->resource);
    sumi_cuda_block block = {.address = import->address, .bytes = import->bytes, .kind = SUMI_MEMORY_IMAGE};
    sumi_cuda_release(&cuda->memory, &block);
    *import = (sumi_import){.resource = NULL};
}

static sumi_result copy_to_storage(const sumi_cuda* cuda, CUarray array, const sumi_import* import, int32_t width,
                                   int32_t height, sumi_error* error)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    const CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = import->address,
                                .srcPitch = (size_t)width * 4,
                                .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                                .dstArray = array,
                                .WidthInBytes = (size_t)width * 4,
                                .Height = (size_t)height};
    SUMI_CU(driver, cuMemcpy2DAsync(&copy, cuda->graphics), "copying an image into a texture");
    return SUMI_OK;
}

sumi_result sumi_cuda_show(const sumi_cuda* cuda, const sumi_import* import, int32_t width, int32_t height,
                           sumi_error* error)
{
    return with_storage(cuda, import, width, height, copy_to_storage, error);
}
