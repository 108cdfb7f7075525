#include "device/mapped.h"
#include "base/assert.h"
#include "base/platform.h"
#include <string.h>

// Locking a chunk takes as long as a call of update may last. Larger chunks mean fewer copies per weight; each copy
// costs the caller some microseconds.
#define CHUNK_BYTES ((size_t)32 << 20)
#define GROUP_ROWS 8 // of each half, alternately (kernels/upload.cuh)

void sumi_device_mapped_init(sumi_device_mapped* mapped, sumi_heap* heap, sumi_device_port* port)
{
    memset(mapped, 0, sizeof *mapped);
    mapped->heap = heap;
    mapped->port = port;
    mapped->chunk_bytes = CHUNK_BYTES;
    mapped->is_supported = port->functions->can_lock_pages(port);
}

static void unlock_chunk(sumi_device_mapped* mapped, size_t index)
{
    SUMI_ASSERT(index < mapped->count && mapped->chunks[index].users == 0);
    mapped->port->functions->unlock_pages(mapped->port, (void*)mapped->chunks[index].begin);
    mapped->count--;
    memmove(&mapped->chunks[index], &mapped->chunks[index + 1], (mapped->count - index) * sizeof *mapped->chunks);
}

void sumi_device_mapped_close(sumi_device_mapped* mapped)
{
    if (mapped->heap == NULL) return;
    while (mapped->count > 0) unlock_chunk(mapped, mapped->count - 1);
    sumi_free(mapped->heap, mapped->chunks);
    memset(mapped, 0, sizeof *mapped);
}

bool sumi_device_mapped_holds(const sumi_device_mapped* mapped, const sumi_weight* weight)
{
    bool is_mapped = mapped->is_supported && weight->tensor_count > 0 && weight->change == NULL;
    for (int32_t p = 0; p < weight->tensor_count; p++) is_mapped = is_mapped && weight->tensors[p].mapping != NULL;
    return is_mapped;
}

// ---- Chunks ---------------------------------------------------------------------------------------------------------

static uintptr_t chunk_begin(const sumi_device_mapped* mapped, uintptr_t address)
{
    return address / mapped->chunk_bytes * mapped->chunk_bytes;
}
static uint64_t tensor_bytes(const sumi_weight* weight, const sumi_stacked_tensor* tensor)
{
    return sumi_dtype_bytes(tensor->dtype, (uint64_t)tensor->rows * (uint64_t)weight->cols);
}

// Finds chunk `number` of a weight, in the order of its tensors, cut to the mapping of the file. False: it has
// fewer.
static bool find_chunk(const sumi_device_mapped* mapped, const sumi_weight* weight, int32_t number,
                       sumi_device_chunk* out_chunk)
{
    SUMI_ASSERT(number >= 0);
    for (int32_t p = 0; p < weight->tensor_count; p++) {
        const sumi_stacked_tensor* tensor = &weight->tensors[p];
        const uintptr_t data = (uintptr_t)tensor->data, map = (uintptr_t)tensor->mapping,
                        map_end = map + (uintptr_t)tensor->mapping_bytes;
        const uintptr_t first = chunk_begin(mapped, data),
                        last = chunk_begin(mapped, data + (uintptr_t)tensor_bytes(weight, tensor) - 1);
        const int32_t count = (int32_t)((last - first) / mapped->chunk_bytes) + 1;
        if (number >= count) {
            number -= count;
            continue;
        }
        const uintptr_t chunk_address = first + (uintptr_t)number * mapped->chunk_bytes,
                        begin = chunk_address > map ? chunk_address : map;
        const uintptr_t end = map_end - begin < mapped->chunk_bytes - (begin - chunk_address)
                                ? map_end
                                : chunk_address + mapped->chunk_bytes;
        *out_chunk = (sumi_device_chunk){begin, end - begin, 1};
        SUMI_ASSERT(begin < end && begin >= map && end <= map_end && end - begin <= mapped->chunk_bytes);
        return true;
    }
    return false;
}

// The index of the chunk that begins there, or the index at which to insert it.
static size_t chunk_index(const sumi_device_mapped* mapped, uintptr_t begin)
{
    size_t low = 0, high = mapped->count;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (mapped->chunks[middle].begin < begin) low = middle + 1;
        else high = middle;
    }
    return low;
}

static bool is_locked(const sumi_device_mapped* mapped, size_t index, uintptr_t begin)
{
    return index < mapped->count && mapped->chunks[index].begin == begin;
}

static sumi_result use_chunk(sumi_device_mapped* mapped, const sumi_device_chunk* chunk, sumi_error* error)
{
    SUMI_ASSERT(mapped->is_supported && chunk->bytes > 0);
    const size_t index = chunk_index(mapped, chunk->begin);
    if (is_locked(mapped, index, chunk->begin)) {
        SUMI_ASSERT(mapped->chunks[index].users > 0);
        mapped->chunks[index].users++;
        return SUMI_OK;
    }
    SUMI_TRY(sumi_grow(mapped->heap, (void**)&mapped->chunks, &mapped->capacity, mapped->count + 1,
                       sizeof *mapped->chunks, error));
    bool is_locked_now = false;
    const sumi_result result =
        mapped->port->functions->lock_pages(mapped->port, (void*)chunk->begin, chunk->bytes, &is_locked_now, error);
    if (!is_locked_now) {
        mapped->is_supported = false;
        return result;
    }
    memmove(&mapped->chunks[index + 1], &mapped->chunks[index], (mapped->count - index) * sizeof *mapped->chunks);
    SUMI_ASSERT(index == 0 || mapped->chunks[index - 1].begin < chunk->begin); // sorted
    SUMI_ASSERT(index == mapped->count || mapped->chunks[index + 1].begin > chunk->begin);
    mapped->chunks[index] = *chunk;
    mapped->count++;
    return SUMI_OK;
}

sumi_result sumi_device_mapped_lock(sumi_device_mapped* mapped, const sumi_weight* weight, int32_t* io_chunks,
                                    uint64_t until_ns, bool* out_done, sumi_error* error)
{
    SUMI_ASSERT(*io_chunks >= 0);
    sumi_device_chunk chunk;
    *out_done = false;
    for (bool is_first = true; find_chunk(mapped, weight, *io_chunks, &chunk); is_first = false) {
        if (!is_first && sumi_clock_ns() >= until_ns) return SUMI_OK;
        SUMI_TRY(use_chunk(mapped, &chunk, error));
        if (!mapped->is_supported) return SUMI_OK;
        ++*io_chunks;
    }
    *out_done = true;
    return SUMI_OK;
}

void sumi_device_mapped_unlock(sumi_device_mapped* mapped, const sumi_weight* weight, int32_t* io_chunks,
                               int32_t max_count)
{
    SUMI_ASSERT(*io_chunks >= 0);
    sumi_device_chunk chunk;
    for (; max_count > 0 && *io_chunks > 0 && find_chunk(mapped, weight, --*io_chunks, &chunk); max_count--) {
        const size_t index = chunk_index(mapped, chunk.begin);
        if (is_locked(mapped, index, chunk.begin) && --mapped->chunks[index].users == 0) unlock_chunk(mapped, index);
    }
}

// ---- Copies ---------------------------------------------------------------------------------------------------------

typedef struct target {
    const sumi_device_mapped* mapped;
    uint64_t to;
    uint64_t half, group; // bytes of one half of the rows; of a group of rows
} target;

static sumi_result copy_chunked(const target* t, uint64_t offset, const unsigned char* from, uint64_t bytes,
                                sumi_error* error)
{
    SUMI_ASSERT(t->to != 0 && from != NULL);
    if (bytes == 0) return SUMI_OK;
    sumi_device_port* port = t->mapped->port;
    const sumi_device_copy copy = {t->to + offset, sumi_device_address(from), bytes, "streaming weights"};
    return port->functions->copy_in(port, &copy, error);
}

// Copies bytes [at, at + bytes) of one half: the end of a group, whole groups, the beginning of a group.
static sumi_result copy_groups(const target* t, bool is_second, uint64_t offset, const unsigned char* from,
                               uint64_t bytes, sumi_error* error)
{
    SUMI_ASSERT(t->group > 0 && offset < t->half && bytes <= t->half - offset);
    sumi_device_port* port = t->mapped->port;
    const uint64_t group = t->group, begin = is_second ? group : 0, in_group = offset % group;
    uint64_t destination = offset / group * 2 * group + begin + in_group;
    uint64_t head = in_group == 0 ? 0 : group - in_group;
    head = head < bytes ? head : bytes;
    SUMI_TRY(copy_chunked(t, destination, from, head, error));
    if (head == bytes) return SUMI_OK;
    from += head;
    bytes -= head;
    if (head > 0) destination += head + group; // skips the group of the other half
    const uint64_t count = bytes / group;
    if (count > 0) {
        const sumi_device_rows rows = {.to = t->to + destination,
                                       .from = sumi_device_address(from),
                                       .row_bytes = group,
                                       .row_count = count,
                                       .to_pitch = 2 * group,
                                       .from_pitch = group,
                                       .what = "streaming weights"};
        SUMI_TRY(port->functions->copy_rows_in(port, &rows, error));
    }
    return copy_chunked(t, destination + 2 * group * count, from + group * count, bytes - group * count, error);
}

sumi_result sumi_device_mapped_copy(const sumi_device_mapped* mapped, const sumi_weight* weight, bool is_gated,
                                    uint64_t to, sumi_error* error)
{
    SUMI_ASSERT(to != 0 && weight->tensor_count > 0 && weight->change == NULL);
    SUMI_ASSERT(!is_gated || (weight->rows % 2 == 0 && weight->rows / 2 % GROUP_ROWS == 0));
    const uint64_t row_bytes = sumi_dtype_bytes(weight->tensors[0].dtype, (uint64_t)weight->cols);
    const target t = {mapped, to, row_bytes * (uint64_t)(weight->rows / 2), row_bytes * GROUP_ROWS};
    uint64_t offset = 0; // position in the stacked weight
    for (int32_t p = 0; p < weight->tensor_count; p++) {
        const unsigned char* from = weight->tensors[p].data;
        for (uint64_t remaining_bytes = tensor_bytes(weight, &weight->tensors[p]), piece; remaining_bytes > 0;
             remaining_bytes -= piece, offset += piece, from += piece) {
            // a copy must not cross from one chunk into the next
            piece = chunk_begin(mapped, (uintptr_t)from) + mapped->chunk_bytes - (uintptr_t)from;
            piece = piece < remaining_bytes ? piece : remaining_bytes;
            if (!is_gated) {
                SUMI_TRY(copy_chunked(&t, offset, from, piece, error));
                continue;
            }
            if (offset < t.half && piece > t.half - offset) piece = t.half - offset;
            const bool is_second = offset >= t.half;
            SUMI_TRY(copy_groups(&t, is_second, is_second ? offset - t.half : offset, from, piece, error));
        }
    }
    return SUMI_OK;
}
