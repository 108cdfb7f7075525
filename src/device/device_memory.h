// Device memory and pinned memory, counted by kind. All of it comes from the host program's device allocator, or from
// the device port if there is none.
#ifndef SUMI_DEVICE_MEMORY_H
#define SUMI_DEVICE_MEMORY_H
#include "device/port.h"
#include <stdatomic.h>

typedef struct sumi_device_memory {
    sumi_device_port* port;
    sumi_device_allocator allocator;    // allocate NULL: the port allocates
    atomic_uint_fast64_t held_bytes[4]; // by sumi_memory_kind
    // When the newest allocation failed: the bytes that were held on the device, and the bytes that were refused.
    uint64_t failed_held_bytes, failed_request_bytes;
} sumi_device_memory;

void sumi_device_memory_init(sumi_device_memory* memory, sumi_device_port* port,
                             const sumi_device_allocator* allocator);
// Allocates uninitialised memory, aligned to 512 bytes. On SUMI_OUT_OF_DEVICE_MEMORY (SUMI_OUT_OF_HOST_MEMORY for
// STAGING) *out_block is zeroed. The context must be current.
sumi_result sumi_device_allocate(sumi_device_memory* memory, uint64_t bytes, sumi_memory_kind kind, const char* what,
                                 sumi_device_block* out_block, sumi_error* error);
// Bytes that a block of this size takes.
static inline uint64_t sumi_device_block_bytes(uint64_t bytes) { return (bytes + 511) / 512 * 512; }
static inline uint64_t sumi_device_held_bytes(const sumi_device_memory* memory) // bytes on the device
{
    return atomic_load(&memory->held_bytes[SUMI_MEMORY_WEIGHTS]) + atomic_load(&memory->held_bytes[SUMI_MEMORY_ARENA])
         + atomic_load(&memory->held_bytes[SUMI_MEMORY_IMAGE]);
}
void sumi_device_release(sumi_device_memory* memory,
                         sumi_device_block* block); // Accepts a zeroed block. Zeroes the block.
// The same for a block in frames of the host program: device memory is freed after the work submitted to the stream
// COMPUTE, and at the latest when that stream is next waited for. Freeing at once waits for everything that runs on the
// device, kernels of the host program too.
void sumi_device_release_behind(sumi_device_memory* memory, sumi_device_block* block);
// The memory of a STAGING block.
static inline void* sumi_device_host(const sumi_device_block* block) { return (void*)(uintptr_t)block->address; }
#endif
