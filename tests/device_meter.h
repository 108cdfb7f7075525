// A device allocator that counts what is held, and has an end: for tests on the driver of fake_cuda.
#ifndef DEVICE_METER_H
#define DEVICE_METER_H
#include <cuda.h>
#include <sumi.h>

typedef struct meter {
    uint64_t held, peak, cap; // of device bytes; cap 0: none
    uint64_t pinned;
    size_t refused_pinned;   // blocks of pinned memory up to this size are refused
    int32_t fails_at, count; // device allocations; the fails_at-th one is refused
} meter;

static inline uint64_t meter_allocate(size_t bytes, size_t alignment, sumi_memory_kind kind, void* user_data)
{
    meter* m = user_data;
    (void)alignment;
    if (kind == SUMI_MEMORY_STAGING) {
        void* pinned = NULL;
        if (bytes <= m->refused_pinned) return 0;
        if (cuMemHostAlloc(&pinned, bytes, CU_MEMHOSTALLOC_PORTABLE) != CUDA_SUCCESS) return 0;
        m->pinned += bytes;
        return (uint64_t)(uintptr_t)pinned;
    }
    CUdeviceptr address = 0;
    if ((m->cap != 0 && m->held + bytes > m->cap) || ++m->count == m->fails_at) return 0;
    if (cuMemAlloc(&address, bytes) != CUDA_SUCCESS) return 0;
    m->held += bytes;
    if (m->held > m->peak) m->peak = m->held;
    return address;
}

static inline void meter_release(uint64_t address, size_t bytes, sumi_memory_kind kind, void* user_data)
{
    meter* m = user_data;
    if (address == 0) return;
    if (kind == SUMI_MEMORY_STAGING) {
        m->pinned -= bytes;
        cuMemFreeHost((void*)(uintptr_t)address);
    } else {
        m->held -= bytes;
        cuMemFree(address);
    }
}
#endif
