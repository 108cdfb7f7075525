// Streamed weights that the device copies straight from the mapping of their file, without a second copy in pinned
// memory.
//
//   a file's mapping   | chunk 0 | chunk 1 | chunk 2 | ..       cut where addresses are multiples of chunk_bytes
//                           [ weight a ][ weight b ]             chunk 1 has two users and is page-locked until both have gone
//
// Page-locking a chunk that is in the page cache takes 1.5 ms (H200, 21 GB/s); pinning as much memory and copying the
// file into it took 17 ms. Only mappings made by sumi are locked. Memory that the host program's file functions return
// is not, because the host program may want to lock it itself.
#ifndef SUMI_DEVICE_MAPPED_H
#define SUMI_DEVICE_MAPPED_H
#include "base/memory.h"
#include "device/port.h"
#include "plan/weight.h"
#include <stdatomic.h>

typedef struct sumi_device_chunk {
    uintptr_t begin;
    size_t bytes;
    int32_t users;
} sumi_device_chunk;

typedef struct sumi_device_mapped {
    sumi_heap* heap;
    sumi_device_port* port;
    size_t chunk_bytes; // at most; a power of two
    sumi_device_chunk* chunks;
    size_t count, capacity;   // of the page-locked chunks, sorted by address
    atomic_bool is_supported; // the device can lock pages, and has not refused yet. For `need`, on any thread
} sumi_device_mapped;

void sumi_device_mapped_init(sumi_device_mapped* mapped, sumi_heap* heap, sumi_device_port* port);
void sumi_device_mapped_close(sumi_device_mapped* mapped); // Accepts a zeroed struct. No weight may use it any more.

// Whether all bytes of a weight are in mappings made by sumi, and the device can lock them. False for a weight with a
// change.
bool sumi_device_mapped_holds(const sumi_device_mapped* mapped, const sumi_weight* weight);
// Locks the next chunk of a weight, and more until the time is over. *io_chunks counts the chunks that the weight uses,
// and is 0 at first. If the device refuses, is_supported becomes false and the weight needs a pinned copy; this is not
// a failure. *out_done: all chunks are locked.
sumi_result sumi_device_mapped_lock(sumi_device_mapped* mapped, const sumi_weight* weight, int32_t* io_chunks,
                                    uint64_t until_ns, bool* out_done, sumi_error* error);
// Unlocks at most max_count chunks of the weight. Nothing may be reading them.
void sumi_device_mapped_unlock(sumi_device_mapped* mapped, const sumi_weight* weight, int32_t* io_chunks,
                               int32_t max_count);
// Copies a locked weight whose form has the bytes of the file, on the copy stream: row by row, or, if is_gated, both
// halves of its rows interleaved by 8 (kernels/upload.cuh).
sumi_result sumi_device_mapped_copy(const sumi_device_mapped* mapped, const sumi_weight* weight, bool is_gated,
                                    uint64_t to, sumi_error* error);
#endif
