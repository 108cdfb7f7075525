// Device memory and pinned memory, counted by kind. All of it comes from the host program's device allocator, or from
// the driver if there is none.
#ifndef SUMI_CUDA_DEVICE_MEMORY_H
#define SUMI_CUDA_DEVICE_MEMORY_H
#include "cuda/device.h"
#include <stdatomic.h>

typedef struct sumi_cuda_memory {
    const sumi_cuda_device* device;
    sumi_device_allocator allocator;    // allocate NULL: the driver allocates
    atomic_uint_fast64_t held_bytes[4]; // by sumi_memory_kind
    // When the newest allocation failed: the bytes that were held on the device, and the bytes that were refused.
    uint64_t failed_held_bytes, failed_request_bytes;
} sumi_cuda_memory;

typedef struct sumi_cuda_block {
    CUdeviceptr address; // 0: no memory. STAGING: the address of pinned host memory (sumi_cuda_host)
    uint64_t bytes;
    sumi_memory_kind kind;
    bool is_registered; // STAGING: large pages of the operating system, page-locked by the driver
} sumi_cuda_block;

void sumi_cuda_memory_init(sumi_cuda_memory* memory, const sumi_cuda_device* device,
                           const sumi_device_allocator* allocator);
// Allocates uninitialised memory, aligned to 512 bytes. On SUMI_OUT_OF_DEVICE_MEMORY (SUMI_OUT_OF_HOST_MEMORY for
// STAGING) *out_block is zeroed. The context must be current.
sumi_result sumi_cuda_allocate(sumi_cuda_memory* memory, uint64_t bytes, sumi_memory_kind kind, const char* what,
                               sumi_cuda_block* out_block, sumi_error* error);
// Bytes that a block of this size takes.
static inline uint64_t sumi_cuda_block_bytes(uint64_t bytes) { return (bytes + 511) / 512 * 512; }
static inline uint64_t sumi_cuda_held_bytes(const sumi_cuda_memory* memory) // bytes on the device
{
    return atomic_load(&memory->held_bytes[SUMI_MEMORY_WEIGHTS]) + atomic_load(&memory->held_bytes[SUMI_MEMORY_ARENA])
         + atomic_load(&memory->held_bytes[SUMI_MEMORY_IMAGE]);
}
void sumi_cuda_release(sumi_cuda_memory* memory, sumi_cuda_block* block); // Accepts a zeroed block. Zeroes the block.
// The same for a block in frames of the host program: the driver frees device memory behind what was submitted to the
// stream, and at the latest when the stream is next waited for. A free that is done at once waits for everything that
// runs in the context, kernels of the host program too.
void sumi_cuda_release_behind(sumi_cuda_memory* memory, sumi_cuda_block* block, CUstream stream);
// The memory of a STAGING block.
static inline void* sumi_cuda_host(const sumi_cuda_block* block) { return (void*)(uintptr_t)block->address; }
#endif
