// Pictures that stay on the device: into memory of the host's.
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
                                .to = picture->address,
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
