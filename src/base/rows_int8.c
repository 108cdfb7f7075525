#include "base/rows_int8.h"
#include "base/assert.h"
#include "base/dtype.h"
#include "base/numbers.h"
#include <math.h>
#include <string.h>

enum { GROUP = SUMI_INT8_GROUP, LARGEST = 127 };

// Limits that keep every product a normal, finite float: column_scale >= 2^-60, and a row scale that is not zero
// >= 2^-57.
#define MAX_VALUE 0x1p126f
#define MIN_COLUMN_SCALE 0x1p-60f
#define MIN_GROUP_VALUE 0x1p-50f

static float put_bf16(float value, unsigned char* into)
{
    const uint16_t bits = sumi_float_to_bf16(value);
    memcpy(into, &bits, sizeof bits);
    return sumi_bf16_to_float(bits);
}

// Copies up to GROUP values and fills the others with zero. All loops have a fixed length and no branch, so that the
// compiler vectorises them.
static void take_group(const float* restrict from, size_t count, float* restrict into)
{
    if (count < GROUP) memset(into, 0, GROUP * sizeof *into);
    memcpy(into, from, count * sizeof *into);
    for (int i = 0; i < GROUP; i++) {
        into[i] = into[i] > MAX_VALUE ? MAX_VALUE : into[i];
        into[i] = into[i] < -MAX_VALUE ? -MAX_VALUE : into[i];
    }
}

// values: of one row, divided by their column scales.
static void put_group(const float* restrict values, size_t count, unsigned char* restrict into,
                      unsigned char* restrict row_scale)
{
    int32_t most_bits = 0; // bits of floats that are not negative have the order of the floats
    for (int i = 0; i < GROUP; i++) {
        const int32_t bits = (int32_t)(sumi_bits_of_float(values[i]) & 0x7fffffffu);
        most_bits = bits > most_bits ? bits : most_bits;
    }
    const float most = sumi_float_of_bits((uint32_t)most_bits);
    const float scale = put_bf16(most < MIN_GROUP_VALUE ? 0.0f : most / (float)LARGEST, row_scale),
                divisor = scale > 0.0f ? scale : 1.0f;
    signed char codes[GROUP];
    for (int i = 0; i < GROUP; i++) {
        // 1.5 * 2^23: floats of this size are whole numbers, so the sum is rounded to the nearest even one. Magnitudes
        // are below 127.5 (rows_int8.h).
        codes[i] = (signed char)(int32_t)((values[i] / divisor + 0x1.8p23f) - 0x1.8p23f);
    }
    memcpy(into, codes, count);
}

void sumi_rows_to_int8(const float* source, const sumi_int8_rows* into)
{
    SUMI_ASSERT(into->rows > 0 && into->cols > 0);
    const size_t groups = sumi_int8_groups(into->cols);
    for (size_t group = 0; group < groups; group++) {
        const size_t begin = group * GROUP, count = into->cols - begin < GROUP ? into->cols - begin : GROUP;
        double sums[GROUP] = {0};
        float values[GROUP], scales[GROUP];
        for (size_t row = 0; row < into->rows; row++) {
            take_group(source + row * into->cols + begin, count, values);
            for (int i = 0; i < GROUP; i++) sums[i] += (double)fabsf(values[i]);
        }
        for (size_t i = 0; i < GROUP; i++) {
            const float mean = (float)(sums[i] / (double)into->rows);
            unsigned char unused[2], *at = i < count ? (unsigned char*)into->column_scales + 2 * (begin + i) : unused;
            scales[i] = put_bf16(mean < MIN_COLUMN_SCALE ? MIN_COLUMN_SCALE : mean, at);
        }
        for (size_t row = 0; row < into->rows; row++) {
            take_group(source + row * into->cols + begin, count, values);
            for (int i = 0; i < GROUP; i++) values[i] /= scales[i];
            put_group(values, count, (unsigned char*)into->values + row * into->cols + begin,
                      (unsigned char*)into->row_scales + 2 * (row * groups + group));
        }
    }
}

static inline float take_bf16(const unsigned char* from)
{
    uint16_t bits;
    memcpy(&bits, from, sizeof bits);
    return sumi_float_of_bits((uint32_t)bits << 16);
}

void sumi_row_from_int8(size_t cols, const void* values, const void* row_scales, const void* column_scales, float* into)
{
    const signed char* codes = values;
    const unsigned char *row = row_scales, *column = column_scales;
    SUMI_ASSERT(cols > 0 && into != NULL);
    size_t at = 0;
    for (; at + GROUP <= cols; at += GROUP, row += 2) {
        const float scale = take_bf16(row);
        for (size_t i = at; i < at + GROUP; i++) into[i] = (float)codes[i] * scale * take_bf16(column + 2 * i);
    }
    for (; at < cols; at++) into[at] = (float)codes[at] * take_bf16(row) * take_bf16(column + 2 * at);
}
