// The bytes of a weight in its device form, in pinned host memory.
//
// The memory is in pieces, because pinning a megabyte takes half a millisecond (H200) of the caller's frame, and the
// embedding table of an encoder has hundreds of megabytes. Pieces hold whole rows of matrices, so that an op can read
// rows of a table from pinned memory, through the list of the pieces' addresses, which is pinned too.
#ifndef SUMI_DEVICE_PINNED_H
#define SUMI_DEVICE_PINNED_H
#include "base/assert.h"
#include "base/memory.h"
#include "device/device_memory.h"

typedef struct sumi_device_pinned {
    sumi_device_block* pieces;
    int32_t count, made;         // pieces [0, made) exist
    uint64_t bytes, piece_bytes; // the last piece may be shorter
    int32_t piece_rows;
    sumi_device_block list; // uint64 addresses of the pieces; address 0: without a list
} sumi_device_pinned;

typedef struct sumi_device_pinned_size {
    uint64_t bytes, row_bytes; // row_bytes: a multiple of 16
    bool has_list;
} sumi_device_pinned_size;

// Makes the next piece, and more until the time is over. *out_done: all pieces exist, and the list if there is one.
// After a failure the existing pieces stay.
sumi_result sumi_device_pin(sumi_heap* heap, sumi_device_memory* memory, const sumi_device_pinned_size* size,
                            uint64_t until_ns, sumi_device_pinned* pinned, bool* out_done, sumi_error* error);
// Accepts a zeroed struct. Zeroes it.
void sumi_device_unpin(sumi_heap* heap, sumi_device_memory* memory, sumi_device_pinned* pinned);
// Bytes of the list, as sumi_device_allocate counts them.
uint64_t sumi_device_pinned_list_bytes(uint64_t bytes, uint64_t row_bytes);

static inline bool sumi_device_has_pinned(const sumi_device_pinned* pinned, bool lists)
{
    return pinned->made > 0 && pinned->made == pinned->count && (!lists || pinned->list.address != 0);
}
// The address of an offset. Reduces *io_bytes to the bytes in the same piece.
static inline unsigned char* sumi_device_pinned_at(const sumi_device_pinned* pinned, uint64_t offset,
                                                   uint64_t* io_bytes)
{
    SUMI_ASSERT(offset < pinned->bytes && offset / pinned->piece_bytes < (uint64_t)pinned->made);
    const uint64_t in_piece = offset % pinned->piece_bytes, remaining_bytes = pinned->piece_bytes - in_piece;
    *io_bytes = *io_bytes < remaining_bytes ? *io_bytes : remaining_bytes;
    return (unsigned char*)sumi_device_host(&pinned->pieces[offset / pinned->piece_bytes]) + in_piece;
}
#endif
