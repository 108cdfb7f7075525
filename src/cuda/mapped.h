// Streamed weights that the device copies from where their file is mapped, without a second copy of them in pinned
// memory.
//
//   a file's mapping   | chunk 0 | chunk 1 | chunk 2 | ..       cut where addresses are multiples of chunk_bytes
//                          [ weight a ][ weight b ]             chunk 1 has two users and stays page-locked until both have gone
//
// Page-locking a chunk that is in the page cache takes 1.5 ms (H200, 21 GB/s); pinning as much memory and copying the
// file into it took 17. Only mappings of ours are locked: what the host's own file functions return is the host's
// memory, and the host may want to lock it itself.
#ifndef SUMI_CUDA_MAPPED_H
#define SUMI_CUDA_MAPPED_H
#include "base/memory.h"
#include "cuda/device.h"
#include "plan/weight.h"
#include <stdatomic.h>

typedef struct sumi_cuda_chunk {
    uintptr_t begin;
    size_t bytes;
    int32_t users;
} sumi_cuda_chunk;

typedef struct sumi_cuda_mapped {
    sumi_heap* heap;
    const sumi_cuda_device* device;
    size_t chunk_bytes; // at most; a power of two
    sumi_cuda_chunk* chunks;
    size_t count, capacity; // page-locked, by address
    atomic_bool
        is_supported; // the driver locks read-only memory, and has not refused to yet. For `need`, of any thread
} sumi_cuda_mapped;

// the context is current
void sumi_cuda_mapped_init(sumi_cuda_mapped* mapped, sumi_heap* heap, const sumi_cuda_device* device);
void sumi_cuda_mapped_close(sumi_cuda_mapped* mapped); // accepts a zeroed one; every user has gone

// Whether all of a weight's bytes lie in mappings of ours and the driver can lock them. Those of a weight with a change
// lie nowhere.
bool sumi_cuda_mapped_holds(const sumi_cuda_mapped* mapped, const sumi_weight* weight);
// Locks the next chunk of a weight, and more until the time is over. *io_chunks counts those that the weight uses: 0 at
// first. When the driver refuses, is_supported becomes false and the weight has to take another way; that is no
// failure. *out_done: all are locked.
sumi_result sumi_cuda_mapped_lock(sumi_cuda_mapped* mapped, const sumi_weight* weight, int32_t* io_chunks,
                                  uint64_t until_ns, bool* out_done, sumi_error* error);
// at most so many of its chunks; nothing reads them any more
void sumi_cuda_mapped_unlock(sumi_cuda_mapped* mapped, const sumi_weight* weight, int32_t* io_chunks, int32_t most);
// Copies a locked weight, of which the device wants the file's bytes, on the copy stream: row by row, or, is_gated, the
// two halves of its rows in turns of 8 (kernels/upload.cuh).
sumi_result sumi_cuda_mapped_copy(const sumi_cuda_mapped* mapped, const sumi_weight* weight, bool is_gated,
                                  CUdeviceptr to, sumi_error* error);
#endif
