// Pictures that stay on the device: written to device memory of the host program, or to memory of sumi from where they
// are copied into an import (imports.c).
#include "base/pixel_formats.h"
#include "cuda/driver.h"
#include "cuda/modules.h"
#include "cuda/state.h"
#include "cuda/transfers.h"
#include "device/device_memory.h"
#include "interop/interop.h"
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
    const uint64_t pixel_bytes = (uint64_t)info->cols * (sumi_format_is_float(picture->format) ? 2 : 1);
    sumi_pixels_to_args args = {.from = cuda->stock.arena.address + info->offset + picture->first_pixel * pixel_bytes,
                                .to = picture->address != 0
                                        ? picture->address
                                        : cuda->stock.arena.address + sumi_plan_info(plan, picture->into)->offset
                                              + picture->into_offset,
                                .pitch = picture->row_bytes,
                                .width = picture->width,
                                .format = kernel_format(picture->format),
                                .channels = info->cols};
    CUfunction function;
    SUMI_TRY(sumi_cuda_kernel(cuda->modules, "sumi_pixels_to", 0, &function, error));
    void* params[] = {&args};
    // The previous picture may still be on its way from this memory into the import.
    if (picture->import != NULL && picture->import->has_copied)
        SUMI_CU(driver, cuStreamWaitEvent(cuda->device.compute, picture->import->copied, 0),
                "waiting for the copy of an image into an import");
    const unsigned blocks = (unsigned)((picture->width + SUMI_PICTURES_THREADS - 1) / SUMI_PICTURES_THREADS);
    SUMI_CU(driver,
            cuLaunchKernel(function, blocks, (unsigned)picture->height, 1, SUMI_PICTURES_THREADS, 1, 1, 0,
                           cuda->device.compute, params, NULL),
            "writing an image to device memory of the host program");
    if (picture->event != NULL)
        SUMI_CU(driver, cuEventRecord(picture->event, cuda->device.compute), "recording the event of a target");
    return SUMI_OK;
}
