#include "base/decoding.h"
#include "base/assert.h"
#include <math.h>

// Where the factor of a block lies. In tiles, 32 rows of blocks are 16 bytes apart, and the four quarters of a tile's
// rows are 4 bytes apart:
//
//     tile (r / 128, c / 4)   512 factors:  (r % 32) * 16 + (r % 128) / 32 * 4 + c % 4
static uint64_t scale_index(const sumi_decoding* decoding, int32_t row, int32_t column)
{
    const uint64_t r = (uint64_t)row + (uint64_t)decoding->first_block_row, c = (uint64_t)column,
                   pitch = (uint64_t)decoding->pitch;
    if (!decoding->is_tiled) return r * pitch + c;
    return (r / 128 * (pitch / 4) + c / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + c % 4;
}

const void* sumi_decoding_scale_at(const sumi_decoding* decoding, int32_t row, int32_t column)
{
    SUMI_ASSERT(decoding->scales != NULL && row >= 0 && column >= 0);
    return (const unsigned char*)decoding->scales
         + sumi_dtype_bytes(decoding->scale_dtype, scale_index(decoding, row, column));
}

static float scale_at(const sumi_decoding* decoding, int32_t row, int32_t column)
{
    float scale;
    sumi_dtype_to_float(decoding->scale_dtype, sumi_decoding_scale_at(decoding, row, column), &scale, 1);
    return scale;
}

static void decode_codes(const sumi_decoding* decoding, const unsigned char* pairs, int32_t count, float* into)
{
    const int32_t first = decoding->high_first ? 4 : 0;
    for (int32_t i = 0; i < count / 2; i++) {
        into[2 * i] = decoding->codes[pairs[i] >> first & 15];
        into[2 * i + 1] = decoding->codes[pairs[i] >> (4 - first) & 15];
    }
}

void sumi_decode(const sumi_decoding* decoding, const sumi_decoding_span* span, float* into)
{
    const int32_t count = span->count;
    SUMI_ASSERT(span->row >= 0 && span->column >= 0 && count >= 0);
    SUMI_ASSERT(decoding->has_codes == (span->dtype == SUMI_DTYPE_CODES4));
    SUMI_ASSERT(!decoding->has_codes || (span->column % 2 == 0 && count % 2 == 0));
    if (decoding->has_codes) decode_codes(decoding, span->source, count, into);
    else sumi_dtype_to_float(span->dtype, span->source, into, (size_t)count);
    if (decoding->scales == NULL) return;
    SUMI_ASSERT(decoding->block_rows >= 1 && decoding->block_cols >= 1);
    for (int32_t at = 0; at < count;) {
        const int32_t block = (span->column + at) / decoding->block_cols;
        const int64_t block_end = ((int64_t)block + 1) * decoding->block_cols - span->column;
        const int32_t end = block_end < count ? (int32_t)block_end : count;
        const float scale = scale_at(decoding, span->row / decoding->block_rows, block);
        for (; at < end; at++) into[at] *= scale;
    }
    for (int32_t i = 0; decoding->is_rounded && i < count; i++)
        into[i] = rintf(into[i] < -127.0f ? -127.0f : into[i] > 127.0f ? 127.0f : into[i]);
}

void sumi_decode_columns(const sumi_decoding* decoding, int32_t column, int32_t count, float* values)
{
    SUMI_ASSERT(column >= 0 && count >= 0);
    if (decoding->column_scales == NULL) return;
    const uint64_t step = sumi_dtype_bytes(decoding->column_dtype, 1);
    for (int32_t i = 0; i < count; i++) {
        float scale;
        sumi_dtype_to_float(decoding->column_dtype,
                            (const unsigned char*)decoding->column_scales + step * (uint64_t)(column + i), &scale, 1);
        values[i] *= scale;
    }
}

uint64_t sumi_decoding_bytes(const sumi_decoding* decoding, int32_t rows, int32_t cols)
{
    uint64_t bytes = 0;
    if (decoding->scales != NULL) {
        const uint64_t used = ((uint64_t)rows + (uint64_t)decoding->block_rows - 1) / (uint64_t)decoding->block_rows,
                       stored = decoding->is_tiled ? (used + 127) / 128 * 128 : used;
        bytes += sumi_dtype_bytes(decoding->scale_dtype, stored * (uint64_t)decoding->pitch);
    }
    if (decoding->column_scales != NULL) bytes += sumi_dtype_bytes(decoding->column_dtype, (uint64_t)cols);
    return bytes;
}
