#include "cuda/device_memory.h"
#include "base/assert.h"
#include "base/platform.h"
#include "cuda/device.h"
#include "cuda/driver.h"
#include "cuda/pinned.h"
#include <string.h>

#define ALIGNMENT 512u // the alignment of the driver's own allocations, on which every kernel relies

void sumi_cuda_memory_init(sumi_cuda_memory* memory, const sumi_cuda_device* device,
                           const sumi_device_allocator* allocator)
{
    memset(memory, 0, sizeof *memory);
    memory->device = device;
    if (allocator != NULL && allocator->allocate != NULL && allocator->release != NULL) memory->allocator = *allocator;
    for (int kind = 0; kind < 4; kind++) atomic_init(&memory->held_bytes[kind], 0);
}

// Allocates pinned memory in large pages. The driver zeroes and locks small pages one by one: 4 MB take 1.4 ms (H200).
// Memory in large pages, which the driver only has to lock, takes a third of that.
static CUdeviceptr register_large_pages(const sumi_cuda_driver* driver, size_t bytes)
{
    SUMI_ASSERT(bytes > 0);
    if (bytes % SUMI_LARGE_PAGE != 0 || driver->cuMemHostRegister == NULL || driver->cuMemHostUnregister == NULL)
        return 0;
    void* memory = sumi_large_pages_take(bytes);
    if (memory == NULL || driver->cuMemHostRegister(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS)
        return (CUdeviceptr)(uintptr_t)memory;
    sumi_large_pages_give(memory, bytes);
    return 0;
}

static CUresult allocate_from_driver(const sumi_cuda_driver* driver, size_t bytes, sumi_memory_kind kind,
                                     CUdeviceptr* out_address)
{
    *out_address = 0;
    CUresult result;
    if (kind == SUMI_MEMORY_STAGING) {
        void* host = NULL;
        // page-aligned, which is more than needed
        result = driver->cuMemHostAlloc(&host, bytes, CU_MEMHOSTALLOC_PORTABLE);
        if (result == CUDA_SUCCESS) *out_address = (CUdeviceptr)(uintptr_t)host;
    } else {
        result = driver->cuMemAlloc(out_address, bytes);
    }
    return result;
}

static void release_to_driver(const sumi_cuda_driver* driver, const sumi_cuda_block* block)
{
    SUMI_ASSERT(block->address != 0);
    if (block->is_registered) {
        driver->cuMemHostUnregister(sumi_cuda_host(block));
        sumi_large_pages_give(sumi_cuda_host(block), (size_t)block->bytes);
    } else if (block->kind == SUMI_MEMORY_STAGING) {
        driver->cuMemFreeHost(sumi_cuda_host(block));
    } else {
        driver->cuMemFree(block->address);
    }
}

static sumi_result no_memory(sumi_cuda_memory* memory, uint64_t bytes, sumi_memory_kind kind, const char* what,
                             sumi_error* error)
{
    double mib = (double)bytes / 1048576.0;
    if (kind == SUMI_MEMORY_STAGING)
        return sumi_fail(error, SUMI_OUT_OF_HOST_MEMORY,
                         "there are no %.1f MiB of pinned host memory for %s; free memory or use smaller sizes", mib,
                         what);
    memory->failed_held_bytes = sumi_cuda_held_bytes(memory);
    memory->failed_request_bytes = bytes;
    if (memory->allocator.allocate != NULL) {
        return sumi_fail(
            error, SUMI_OUT_OF_DEVICE_MEMORY,
            "device_allocator has no %.1f MiB for %s; free device memory, use smaller sizes or a smaller batch", mib,
            what);
    }
    size_t free_bytes = 0, total_bytes = 0;
    memory->device->driver.cuMemGetInfo(&free_bytes, &total_bytes);
    return sumi_fail(error, SUMI_OUT_OF_DEVICE_MEMORY,
                     "the device has no %.1f MiB for %s (%.0f of its %.0f MiB are free); free device memory, use "
                     "smaller sizes or a smaller batch",
                     mib, what, (double)free_bytes / 1048576.0, (double)total_bytes / 1048576.0);
}

sumi_result sumi_cuda_allocate(sumi_cuda_memory* memory, uint64_t bytes, sumi_memory_kind kind, const char* what,
                               sumi_cuda_block* out_block, sumi_error* error)
{
    SUMI_ASSERT((int)kind >= 0 && (int)kind < 4 && what != NULL);
    memset(out_block, 0, sizeof *out_block);
    if (bytes > SIZE_MAX - ALIGNMENT) return no_memory(memory, bytes, kind, what, error);
    size_t rounded_bytes = bytes == 0 ? ALIGNMENT : (size_t)((bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    SUMI_ASSERT(rounded_bytes % ALIGNMENT == 0 && rounded_bytes >= bytes);
    const sumi_cuda_driver* driver = &memory->device->driver;
    CUdeviceptr address = 0;
    bool is_registered = false;
    if (memory->allocator.allocate != NULL) {
        address = memory->allocator.allocate(rounded_bytes, ALIGNMENT, kind, memory->allocator.user_data);
        if (address % ALIGNMENT != 0) {
            memory->allocator.release(address, rounded_bytes, kind, memory->allocator.user_data);
            return sumi_fail(
                error, SUMI_OUT_OF_DEVICE_MEMORY,
                "device_allocator returned an address for %s that is not a multiple of %u: honour `alignment`", what,
                ALIGNMENT);
        }
    } else {
        address = kind == SUMI_MEMORY_STAGING ? register_large_pages(driver, rounded_bytes) : 0;
        is_registered = address != 0;
        const CUresult result =
            is_registered ? CUDA_SUCCESS : allocate_from_driver(driver, rounded_bytes, kind, &address);
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY)
            return sumi_cuda_failure(driver, result, what, error);
    }
    if (address == 0) return no_memory(memory, rounded_bytes, kind, what, error);
    SUMI_ASSERT(!is_registered || kind == SUMI_MEMORY_STAGING);
    *out_block = (sumi_cuda_block){address, rounded_bytes, kind, is_registered};
    atomic_fetch_add(&memory->held_bytes[kind], rounded_bytes);
    return SUMI_OK;
}

void sumi_cuda_release_behind(sumi_cuda_memory* memory, sumi_cuda_block* block, CUstream stream)
{
    const sumi_cuda_driver* driver = &memory->device->driver;
    const bool is_drivers = block->address != 0 && memory->allocator.release == NULL;
    if (!is_drivers || block->kind == SUMI_MEMORY_STAGING || driver->cuMemFreeAsync == NULL
        || driver->cuMemFreeAsync(block->address, stream) != CUDA_SUCCESS) {
        sumi_cuda_release(memory, block);
        return;
    }
    atomic_fetch_sub(&memory->held_bytes[block->kind], block->bytes);
    memset(block, 0, sizeof *block);
}

void sumi_cuda_release(sumi_cuda_memory* memory, sumi_cuda_block* block)
{
    if (block->address != 0) {
        SUMI_ASSERT(block->bytes > 0 && atomic_load(&memory->held_bytes[block->kind]) >= block->bytes);
        if (memory->allocator.release != NULL)
            memory->allocator.release(block->address, (size_t)block->bytes, block->kind, memory->allocator.user_data);
        else release_to_driver(&memory->device->driver, block);
        atomic_fetch_sub(&memory->held_bytes[block->kind], block->bytes);
    }
    memset(block, 0, sizeof *block);
}
