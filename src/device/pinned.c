#include "device/pinned.h"
#include "base/assert.h"
#include "base/platform.h"
#include "device/device_memory.h"

// Pinned in 1.9 ms. The driver queues a few hundred copies and then lets the caller wait; with pieces of 1 MB a slice
// of an encoder would have two thousand copies.
#define PIECE_BYTES (4u << 20)
// times 16 bytes: pieces are multiples of 512 bytes, so that their sizes add up to the size of the whole
#define ROW_STEP 32

static uint64_t piece_rows_of(uint64_t row_bytes)
{
    SUMI_ASSERT(row_bytes > 0 && row_bytes % 16 == 0);
    const uint64_t rows = PIECE_BYTES / row_bytes / ROW_STEP * ROW_STEP;
    return rows > 0 ? rows : ROW_STEP;
}

static uint64_t count_pieces(uint64_t bytes, uint64_t row_bytes)
{
    const uint64_t piece = piece_rows_of(row_bytes) * row_bytes;
    return (bytes + piece - 1) / piece;
}

uint64_t sumi_device_pinned_list_bytes(uint64_t bytes, uint64_t row_bytes)
{
    return (count_pieces(bytes, row_bytes) * sizeof(uint64_t) + 511) / 512 * 512;
}

static sumi_result begin(sumi_heap* heap, const sumi_device_pinned_size* size, sumi_device_pinned* pinned,
                         sumi_error* error)
{
    const uint64_t bytes = size->bytes, row_bytes = size->row_bytes;
    SUMI_ASSERT(bytes > 0 && pinned->pieces == NULL && pinned->made == 0);
    const uint64_t count = count_pieces(bytes, row_bytes);
    sumi_device_block* pieces = sumi_alloc_array(heap, (size_t)count, sizeof *pieces);
    if (pieces == NULL)
        return sumi_out_of_memory(error, (size_t)count * sizeof *pieces, "the list of a weight's pinned pieces");
    *pinned = (sumi_device_pinned){
        .pieces = pieces, .count = (int32_t)count, .bytes = bytes, .piece_rows = (int32_t)piece_rows_of(row_bytes)};
    pinned->piece_bytes = (uint64_t)pinned->piece_rows * row_bytes;
    SUMI_ASSERT(pinned->piece_bytes % 512 == 0);
    return SUMI_OK;
}

static sumi_result make_list(sumi_device_memory* memory, sumi_device_pinned* pinned, sumi_error* error)
{
    SUMI_ASSERT(pinned->made == pinned->count && pinned->list.address == 0);
    SUMI_TRY(sumi_device_allocate(memory, (uint64_t)pinned->count * sizeof(uint64_t), SUMI_MEMORY_STAGING,
                                  "a table that is read where it lies", &pinned->list, error));
    uint64_t* addresses = sumi_device_host(&pinned->list);
    for (int32_t i = 0; i < pinned->count; i++) addresses[i] = pinned->pieces[i].address;
    return SUMI_OK;
}

sumi_result sumi_device_pin(sumi_heap* heap, sumi_device_memory* memory, const sumi_device_pinned_size* size,
                            uint64_t until_ns, sumi_device_pinned* pinned, bool* out_done, sumi_error* error)
{
    SUMI_ASSERT(size->row_bytes > 0 && size->row_bytes % 16 == 0);
    SUMI_ASSERT(pinned->pieces == NULL || (pinned->bytes == size->bytes && pinned->made <= pinned->count));
    *out_done = false;
    if (pinned->pieces == NULL) SUMI_TRY(begin(heap, size, pinned, error));
    for (bool is_first = true; pinned->made < pinned->count && (is_first || sumi_clock_ns() < until_ns);
         is_first = false) {
        const uint64_t remaining_bytes = size->bytes - (uint64_t)pinned->made * pinned->piece_bytes,
                       piece = remaining_bytes < pinned->piece_bytes ? remaining_bytes : pinned->piece_bytes;
        SUMI_TRY(sumi_device_allocate(memory, piece, SUMI_MEMORY_STAGING, "weights that are streamed",
                                      &pinned->pieces[pinned->made], error));
        pinned->made++;
    }
    if (pinned->made < pinned->count) return SUMI_OK;
    if (size->has_list && pinned->list.address == 0) SUMI_TRY(make_list(memory, pinned, error));
    *out_done = true;
    return SUMI_OK;
}

void sumi_device_unpin(sumi_heap* heap, sumi_device_memory* memory, sumi_device_pinned* pinned)
{
    while (pinned->made > 0) sumi_device_release(memory, &pinned->pieces[--pinned->made]);
    sumi_device_release(memory, &pinned->list);
    sumi_free(heap, pinned->pieces);
    *pinned = (sumi_device_pinned){.pieces = NULL};
}
