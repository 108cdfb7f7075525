// The bytes of a weight as they lie on the device, in pinned host memory.
//
// In pieces, for pinning a megabyte takes half a millisecond (H200) of the caller's frame, and a table of an encoder
// has hundreds. Pieces hold whole rows of matrices, so that an op can read a table's rows where they lie: through the
// list of the pieces' addresses, which is pinned as well.
#ifndef SUMI_CUDA_PINNED_H
#define SUMI_CUDA_PINNED_H
#include "base/assert.h"
#include "base/memory.h"
#include "cuda/device_memory.h"

typedef struct sumi_cuda_pinned {
    sumi_cuda_block* pieces;
    int32_t count, made;         // pieces [0, made) are there
    uint64_t bytes, piece_bytes; // the last one may be shorter
    int32_t piece_rows;
    sumi_cuda_block list; // uint64 addresses; address 0: nobody reads rows
} sumi_cuda_pinned;

// The next piece, and more while there is time; *out_done when all are there, and with `lists` the list. row_bytes: a
// multiple of 16. What is there stays after a failure.
sumi_result sumi_cuda_pin(sumi_heap* heap, sumi_cuda_memory* memory, uint64_t bytes, uint64_t row_bytes, bool lists,
                          uint64_t until_ns, sumi_cuda_pinned* pinned, bool* out_done, sumi_error* error);
// accepts a zeroed one; zeroes it
void sumi_cuda_unpin(sumi_heap* heap, sumi_cuda_memory* memory, sumi_cuda_pinned* pinned);
// as sumi_cuda_allocate counts
uint64_t sumi_cuda_pinned_list_bytes(uint64_t bytes, uint64_t row_bytes);

static inline bool sumi_cuda_has_pinned(const sumi_cuda_pinned* pinned, bool lists)
{
    return pinned->made > 0 && pinned->made == pinned->count && (!lists || pinned->list.address != 0);
}
// What lies at an offset, and how much of *io_bytes in one piece.
static inline unsigned char* sumi_cuda_pinned_at(const sumi_cuda_pinned* pinned, uint64_t offset, uint64_t* io_bytes)
{
    SUMI_ASSERT(offset < pinned->bytes && offset / pinned->piece_bytes < (uint64_t)pinned->made);
    const uint64_t in_piece = offset % pinned->piece_bytes, left = pinned->piece_bytes - in_piece;
    *io_bytes = *io_bytes < left ? *io_bytes : left;
    return (unsigned char*)sumi_cuda_host(&pinned->pieces[offset / pinned->piece_bytes]) + in_piece;
}
#endif
