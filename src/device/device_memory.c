#include "device/device_memory.h"
#include "base/assert.h"
#include <string.h>

#define ALIGNMENT 512u // the alignment of the driver's own allocations, on which every kernel relies

void sumi_device_memory_init(sumi_device_memory* memory, sumi_device_port* port, const sumi_device_allocator* allocator)
{
    memset(memory, 0, sizeof *memory);
    memory->port = port;
    if (allocator != NULL && allocator->allocate != NULL && allocator->release != NULL) memory->allocator = *allocator;
    for (int kind = 0; kind < 4; kind++) atomic_init(&memory->held_bytes[kind], 0);
}

static sumi_result no_memory(sumi_device_memory* memory, uint64_t bytes, sumi_memory_kind kind, const char* what,
                             sumi_error* error)
{
    double mib = (double)bytes / 1048576.0;
    if (kind == SUMI_MEMORY_STAGING)
        return sumi_fail(error, SUMI_OUT_OF_HOST_MEMORY,
                         "the system has no %.1f MiB of pinned host memory for %s; free memory or use smaller sizes",
                         mib, what);
    memory->failed_held_bytes = sumi_device_held_bytes(memory);
    memory->failed_request_bytes = bytes;
    if (memory->allocator.allocate != NULL) {
        return sumi_fail(
            error, SUMI_OUT_OF_DEVICE_MEMORY,
            "device_allocator has no %.1f MiB for %s; free device memory, use smaller sizes or a smaller batch", mib,
            what);
    }
    uint64_t free_bytes = 0, total_bytes = 0;
    (void)memory->port->functions->count_free(memory->port, &free_bytes, &total_bytes);
    return sumi_fail(error, SUMI_OUT_OF_DEVICE_MEMORY,
                     "the device has no %.1f MiB for %s (%.0f of its %.0f MiB are free); free device memory, use "
                     "smaller sizes or a smaller batch",
                     mib, what, (double)free_bytes / 1048576.0, (double)total_bytes / 1048576.0);
}

sumi_result sumi_device_allocate(sumi_device_memory* memory, uint64_t bytes, sumi_memory_kind kind, const char* what,
                                 sumi_device_block* out_block, sumi_error* error)
{
    SUMI_ASSERT((int)kind >= 0 && (int)kind < 4 && what != NULL);
    memset(out_block, 0, sizeof *out_block);
    if (bytes > SIZE_MAX - ALIGNMENT) return no_memory(memory, bytes, kind, what, error);
    size_t rounded_bytes = bytes == 0 ? ALIGNMENT : (size_t)((bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    SUMI_ASSERT(rounded_bytes % ALIGNMENT == 0 && rounded_bytes >= bytes);
    sumi_device_block block = {.bytes = rounded_bytes, .kind = kind};
    if (memory->allocator.allocate != NULL) {
        block.address = memory->allocator.allocate(rounded_bytes, ALIGNMENT, kind, memory->allocator.user_data);
        if (block.address % ALIGNMENT != 0) {
            memory->allocator.release(block.address, rounded_bytes, kind, memory->allocator.user_data);
            return sumi_fail(
                error, SUMI_OUT_OF_DEVICE_MEMORY,
                "device_allocator returned an address for %s that is not a multiple of %u: honour `alignment`", what,
                ALIGNMENT);
        }
    } else {
        SUMI_TRY(memory->port->functions->allocate(memory->port, &block, what, error));
    }
    if (block.address == 0) return no_memory(memory, rounded_bytes, kind, what, error);
    SUMI_ASSERT(!block.is_registered || kind == SUMI_MEMORY_STAGING);
    *out_block = block;
    atomic_fetch_add(&memory->held_bytes[kind], rounded_bytes);
    return SUMI_OK;
}

void sumi_device_release_behind(sumi_device_memory* memory, sumi_device_block* block)
{
    const bool is_ports = block->address != 0 && memory->allocator.release == NULL;
    if (!is_ports || block->kind == SUMI_MEMORY_STAGING
        || !memory->port->functions->release_behind(memory->port, block)) {
        sumi_device_release(memory, block);
        return;
    }
    atomic_fetch_sub(&memory->held_bytes[block->kind], block->bytes);
    memset(block, 0, sizeof *block);
}

void sumi_device_release(sumi_device_memory* memory, sumi_device_block* block)
{
    if (block->address != 0) {
        SUMI_ASSERT(block->bytes > 0 && atomic_load(&memory->held_bytes[block->kind]) >= block->bytes);
        if (memory->allocator.release != NULL)
            memory->allocator.release(block->address, (size_t)block->bytes, block->kind, memory->allocator.user_data);
        else memory->port->functions->release(memory->port, block);
        atomic_fetch_sub(&memory->held_bytes[block->kind], block->bytes);
    }
    memset(block, 0, sizeof *block);
}
