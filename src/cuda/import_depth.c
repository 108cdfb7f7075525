// Depth buffers of the host program, as imports.c has copied them to memory of sumi: greys are computed on the GPU and
// written to the arena, as an input of the plan. Kernels: kernels/depth.cu.
//
//   import's stream    used | wait | external -> memory | copied | signal          in sumi_submit_images
//   compute stream                    copied | state 0, count, rank, .., picture | picture -> staging | used    in INPUT
#include "base/assert.h"
#include "base/numbers.h"
#include "cuda/driver.h"
#include "cuda/modules.h"
#include "cuda/state.h"
#include "cuda/transfers.h"
#include "device/device_memory.h"
#include "interop/interop.h"
#include "kernels/depth.h"
#include <math.h>

#define STATE_ALIGNMENT 256

uint64_t sumi_cuda_depth_bytes(int32_t width, int32_t height)
{
    return sumi_align((uint64_t)width * (uint64_t)height * sizeof(float), STATE_ALIGNMENT);
}

uint64_t sumi_cuda_depth_all_bytes(int32_t width, int32_t height)
{
    return sumi_cuda_depth_bytes(width, height) + sizeof(sumi_depth_state);
}

// The pinned memory for the control picture.
static sumi_result reserve_staging(sumi_cuda* cuda, sumi_imported* import, uint64_t bytes, sumi_error* error)
{
    if (import->staging_bytes >= bytes) return SUMI_OK;
    sumi_device_block block = {.address = import->staging,
                               .bytes = import->staging_bytes,
                               .kind = SUMI_MEMORY_STAGING,
                               .is_registered = import->staging_is_registered};
    if (import->has_used)
        SUMI_CU(&cuda->device.driver, cuEventSynchronize(import->used), "waiting for a control picture");
    sumi_device_release(&cuda->stock.memory, &block);
    import->staging = import->staging_bytes = 0;
    SUMI_TRY(sumi_device_allocate(&cuda->stock.memory, bytes, SUMI_MEMORY_STAGING,
                                  "pinned memory for a control picture", &block, error));
    import->staging = block.address, import->staging_bytes = block.bytes;
    import->staging_is_registered = block.is_registered;
    return SUMI_OK;
}

// As sumi_depth_begin (pictures/depth.c) has it.
static sumi_depth_kernel_args args_of(const sumi_depth_input* input)
{
    const sumi_depth* depth = input->depth;
    const bool inverse = input->is_inverse, has_range = depth->high > 0.0f;
    const float far_plane = depth->far_plane != 0.0f ? depth->far_plane : INFINITY, inverse_far = 1.0f / far_plane;
    sumi_depth_kernel_args args = {.depth = input->import->address,
                                   .from_width = input->import->width,
                                   .from_height = input->import->height,
                                   .width = input->width,
                                   .height = input->height,
                                   .kind = (int32_t)depth->kind,
                                   .inverse = inverse,
                                   .bottom_up = depth->bottom_up,
                                   .inverse_near = depth->kind == SUMI_DEPTH_DISTANCE ? 0.0f : 1.0f / depth->near_plane,
                                   .inverse_far = inverse_far,
                                   .far_plane = far_plane,
                                   .sky = !inverse  ? INFINITY
                                        : has_range ? 0.0f
                                                    : inverse_far,
                                   .has_range = has_range};
    args.state = args.depth + sumi_cuda_depth_bytes(args.from_width, args.from_height);
    if (has_range) {
        args.white = inverse ? 1.0f / depth->low : depth->low;
        args.black = inverse ? 1.0f / depth->high : depth->high;
        args.scale = 1.0f / (args.white - args.black);
    }
    return args;
}

typedef struct grid {
    uint64_t blocks;
    unsigned threads; // of each
} grid;

static sumi_result launch(const sumi_cuda* cuda, const char* name, grid size, sumi_depth_kernel_args* args,
                          sumi_error* error)
{
    CUfunction function;
    SUMI_TRY(sumi_cuda_kernel(cuda->modules, name, 0, &function, error));
    void* params[] = {args};
    SUMI_CU(&cuda->device.driver,
            cuLaunchKernel(function, (unsigned)size.blocks, 1, 1, size.threads, 1, 1, 0, cuda->device.compute, params,
                           NULL),
            "making a control picture");
    return SUMI_OK;
}

static uint64_t blocks_of(int32_t width, int32_t height, int32_t each)
{
    return ((uint64_t)width * (uint64_t)height + (uint64_t)each - 1) / (uint64_t)each;
}

static sumi_result find_percentiles(const sumi_cuda* cuda, sumi_depth_kernel_args* args, sumi_error* error)
{
    const uint64_t blocks = blocks_of(args->from_width, args->from_height, SUMI_DEPTH_COUNTED);
    SUMI_CU(&cuda->device.driver, cuMemsetD32Async(args->state, 0, sizeof(sumi_depth_state) / 4, cuda->device.compute),
            "making a control picture");
    for (args->digit = 0; args->digit < SUMI_DEPTH_DIGITS; args->digit++) {
        SUMI_TRY(launch(cuda, "sumi_depth_count", (grid){blocks, SUMI_DEPTH_THREADS}, args, error));
        SUMI_TRY(launch(cuda, "sumi_depth_rank", (grid){1, 32 * SUMI_DEPTH_RANKS}, args, error));
    }
    return SUMI_OK;
}

sumi_result sumi_cuda_write_depth(sumi_cuda* cuda, const sumi_plan* plan, const sumi_depth_input* input,
                                  sumi_error* error)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    sumi_imported* import = input->import;
    const uint64_t bytes = 3 * (uint64_t)input->width * (uint64_t)input->height;
    sumi_depth_kernel_args args = args_of(input);
    SUMI_ASSERT(import->is_depth && sumi_plan_info(plan, input->value)->bytes >= bytes);
    args.picture = cuda->stock.arena.address + sumi_plan_info(plan, input->value)->offset;
    SUMI_TRY(reserve_staging(cuda, import, bytes, error));
    if (import->has_copied)
        SUMI_CU(driver, cuStreamWaitEvent(cuda->device.compute, import->copied, 0),
                "waiting for the copy of a depth buffer");
    if (!args.has_range) SUMI_TRY(find_percentiles(cuda, &args, error));
    const uint64_t blocks = blocks_of(input->width, input->height, SUMI_DEPTH_THREADS);
    SUMI_TRY(launch(cuda, "sumi_depth_picture", (grid){blocks, SUMI_DEPTH_THREADS}, &args, error));
    SUMI_CU(driver,
            cuMemcpyDtoHAsync((void*)(uintptr_t)import->staging, args.picture, (size_t)bytes, cuda->device.compute),
            "keeping a control picture");
    SUMI_CU(driver, cuEventRecord(import->used, cuda->device.compute), "recording the use of a depth buffer");
    import->has_used = true;
    return SUMI_OK;
}
