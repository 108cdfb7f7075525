// Pictures that stay on the device: into memory of the host's, or, by way of memory of ours, into its textures.
//
//   compute stream   .. last slice | picture -> memory of the import | copies that are fetched      the job is done when these are
//   graphics stream                                                     map | memory -> texture | unmap      in sumi_fetch_images: on the thread that has the graphics' context
//
// The graphics stream is a stream of its own: in the compute stream the texture would wait for what the next job has submitted.
#include "cuda/targets.h"
#include "kernels/pictures.h"

static int32_t kernel_format(sumi_format format)
{
    return format == SUMI_FORMAT_RGB8 ? SUMI_PIXELS_RGB8 : format == SUMI_FORMAT_RGB32F ? SUMI_PIXELS_RGB32F : SUMI_PIXELS_RGBA8;
}

sumi_result sumi_cuda_publish(sumi_cuda* cuda, const sumi_plan* plan, const sumi_publication* picture, sumi_error* error)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    const sumi_value_info* info = sumi_plan_info(plan, picture->value);
    const uint64_t pixel_bytes = picture->format == SUMI_FORMAT_RGB32F ? 6 : 3;
    sumi_pixels_to_args args = {.from = cuda->arena.address + info->offset + picture->first_pixel * pixel_bytes,
                                .to = picture->address != 0 ? picture->address : cuda->arena.address + sumi_plan_info(plan, picture->into)->offset + picture->into_offset,
                                .pitch = picture->row_bytes,
                                .width = picture->width,
                                .format = kernel_format(picture->format)};
    CUfunction function;
    SUMI_TRY(sumi_cuda_kernel(cuda->modules, "sumi_pixels_to", 0, &function, error));
    void* params[] = {&args};
    const unsigned blocks = (unsigned)((picture->width + SUMI_PICTURES_THREADS - 1) / SUMI_PICTURES_THREADS);
    SUMI_CU(driver, cuLaunchKernel(function, blocks, (unsigned)picture->height, 1, SUMI_PICTURES_THREADS, 1, 1, 0, cuda->device.compute, params, NULL), "writing a picture to the host's device memory");
    if (picture->event != NULL) SUMI_CU(driver, cuEventRecord(picture->event, cuda->device.compute), "recording the event of a target");
    return SUMI_OK;
}

#define WRITE_DISCARD 2u // CU_GRAPHICS_REGISTER_FLAGS_WRITE_DISCARD: what was in the texture does not matter

static bool has_graphics(const sumi_cuda_driver* driver)
{
    return driver->cuMemcpy2DAsync != NULL && driver->cuGraphicsGLRegisterImage != NULL && driver->cuGraphicsUnregisterResource != NULL && driver->cuGraphicsMapResources != NULL
        && driver->cuGraphicsUnmapResources != NULL && driver->cuGraphicsSubResourceGetMappedArray != NULL;
}

sumi_result sumi_cuda_import_gl(sumi_cuda* cuda, uint32_t texture, uint32_t target, uint64_t bytes, sumi_import* out_import, sumi_error* error)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    *out_import = (sumi_import){.resource = NULL};
    if (!has_graphics(driver)) return sumi_fail(error, SUMI_NOT_SUPPORTED, "this NVIDIA driver does not share OpenGL textures with CUDA: give host_memory or a device_address");
    if (cuda->graphics == NULL) {
        int least = 0, greatest = 0;
        SUMI_CU(driver, cuCtxGetStreamPriorityRange(&least, &greatest), "asking for stream priorities");
        SUMI_CU(driver, cuStreamCreateWithPriority(&cuda->graphics, CU_STREAM_NON_BLOCKING, least), "making a stream for textures");
    }
    sumi_cuda_block block;
    SUMI_TRY(sumi_cuda_allocate(&cuda->memory, bytes, SUMI_MEMORY_IMAGE, "a picture for a texture", &block, error));
    CUgraphicsResource resource = NULL;
    const CUresult result = driver->cuGraphicsGLRegisterImage(&resource, texture, target, WRITE_DISCARD);
    if (result != CUDA_SUCCESS) {
        sumi_cuda_release(&cuda->memory, &block);
        if (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_HANDLE)
            return sumi_fail(error, SUMI_INVALID_ARGUMENT, "texture %u (target %#x) cannot be shared: it must be GL_RGBA8 with its storage made", (unsigned)texture, (unsigned)target);
        return sumi_cuda_failure(driver, result, "importing an OpenGL texture", error);
    }
    *out_import = (sumi_import){.resource = resource, .address = block.address, .bytes = block.bytes};
    return SUMI_OK;
}

void sumi_cuda_release_import(sumi_cuda* cuda, sumi_import* import)
{
    if (import->address == 0) return;
    const sumi_cuda_driver* driver = &cuda->device.driver;
    driver->cuStreamSynchronize(cuda->graphics);
    driver->cuGraphicsUnregisterResource(import->resource);
    sumi_cuda_block block = {import->address, import->bytes, SUMI_MEMORY_IMAGE};
    sumi_cuda_release(&cuda->memory, &block);
    *import = (sumi_import){.resource = NULL};
}

static sumi_result copy_to_texture(const sumi_cuda* cuda, const sumi_import* import, int32_t width, int32_t height, sumi_error* error)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    CUarray array = NULL;
    SUMI_CU(driver, cuGraphicsSubResourceGetMappedArray(&array, import->resource, 0, 0), "finding the storage of a texture");
    const CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = import->address,
                                .srcPitch = (size_t)width * 4,
                                .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                                .dstArray = array,
                                .WidthInBytes = (size_t)width * 4,
                                .Height = (size_t)height};
    SUMI_CU(driver, cuMemcpy2DAsync(&copy, cuda->graphics), "copying a picture into a texture");
    return SUMI_OK;
}

sumi_result sumi_cuda_show(const sumi_cuda* cuda, const sumi_import* import, int32_t width, int32_t height, sumi_error* error)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    CUgraphicsResource resource = import->resource;
    SUMI_CU(driver, cuGraphicsMapResources(1, &resource, cuda->graphics), "taking a texture from OpenGL");
    const sumi_result result = copy_to_texture(cuda, import, width, height, error);
    const CUresult unmapped = driver->cuGraphicsUnmapResources(1, &resource, cuda->graphics); // whatever the copy came to
    if (result != SUMI_OK || unmapped == CUDA_SUCCESS) return result;
    return sumi_cuda_failure(driver, unmapped, "giving a texture back to OpenGL", error);
}
