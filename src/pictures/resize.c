// An output pixel of one axis is a weighted sum of the input pixels in a window. Both axes use one inner loop, which
// adds 16 columns of bytes, each output with its own weights:
//
//     columns of a picture:                       rows of a picture, 16 at a time, transposed in blocks of the row:
//     row first      | 16 bytes |                 pixel first      | a byte of each of 16 rows |
//     row first + 1  | 16 bytes |   * weights     pixel first + 1  | a byte of each of 16 rows |   * weights
//     ..                                          ..
//
// x86-64 has no product of 32 bits before SSE4.1, but one instruction for two products of 16 bits and their sum. So a
// weight is kept as two numbers of 16 bits, high * 2^LOW_BITS + low. The sums of each may wrap around, because what
// both give together is right modulo 2^32 and fits into 32 bits. AVX2 would take 0.7 of the time, and AVX-512 0.65.
#include "pictures/resize.h"
#include "base/assert.h"
#include "base/memory.h"
#include "base/numbers.h"
#include <math.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum {
    FRACTION_BITS = 22,
    LOW_BITS = 11,
    LANES = 16,
    BLOCK = 512,          // values of a row that are transposed at once: 8 KiB of the stack of a task
    RANGE_WORK = 1 << 19, // products of the smallest range of a worker: a tenth of a millisecond
};
static const double s_pi = 3.14159265358979323846;

// ---- Filters and weights --------------------------------------------------------------------------------------------

static double sinc(double x)
{
    if (x == 0.0) return 1.0;
    x *= s_pi;
    return sin(x) / x;
}

static double lanczos(double x) { return x >= -3.0 && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0; }

// Keys' cubic convolution with a = -0.5.
static double bicubic(double x)
{
    const double a = -0.5;
    if (x < 0.0) x = -x;
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
    return 0.0;
}

typedef struct axis_window {
    int32_t first, count;
} axis_window;
// The weights of two neighbouring inputs: high * 2^LOW_BITS + low, with low from 0 to 2^LOW_BITS - 1.
typedef struct weight_pair {
    int16_t low[2], high[2];
} weight_pair;
// Output i of an axis is the sum over j < windows[i].count of weight j of pairs[i * stride ..] with input
// windows[i].first + j. The second weight of the last pair is 0 if the count is odd.
struct sumi_resize_axis {
    axis_window* windows;
    weight_pair* pairs;
    size_t stride;
    int32_t length; // number of outputs
};

static double filter_support(int32_t length, int32_t new_length, sumi_filter filter)
{
    const double scale = (double)length / new_length;
    return (filter == SUMI_FILTER_LANCZOS ? 3.0 : 2.0) * (scale < 1.0 ? 1.0 : scale);
}

static size_t pairs_of_support(double support) { return (size_t)ceil(support) + 1; }

uint64_t sumi_resize_axis_bytes(int32_t length, int32_t new_length, sumi_filter filter)
{
    const uint64_t stride = pairs_of_support(filter_support(length, new_length, filter));
    return sizeof(sumi_resize_axis) + 2 * stride * sizeof(double)
         + (uint64_t)new_length * (sizeof(axis_window) + stride * sizeof(weight_pair));
}

// Returns the window of output i, and its exact weights, which do not add up to 1.
static axis_window weigh_exactly(double* exact, int32_t i, int32_t length, int32_t new_length, sumi_filter filter)
{
    const double scale = (double)length / new_length, support = filter_support(length, new_length, filter),
                 step = 1.0 / (scale < 1.0 ? 1.0 : scale), center = (i + 0.5) * scale;
    const int32_t first = sumi_max_int(0, (int32_t)(center - support + 0.5)),
                  end = sumi_min_int(length, (int32_t)(center + support + 0.5));
    for (int32_t j = 0; j < end - first; j++) {
        const double x = (j + first - center + 0.5) * step;
        exact[j] = filter == SUMI_FILTER_LANCZOS ? lanczos(x) : bicubic(x);
    }
    return (axis_window){first, end - first};
}

static void set_weight(weight_pair* pairs, int32_t j, int32_t weight)
{
    const int32_t low = weight & ((1 << LOW_BITS) - 1), high = (weight - low) / (1 << LOW_BITS);
    SUMI_ASSERT(high >= INT16_MIN && high <= INT16_MAX);
    pairs[j / 2].low[j % 2] = (int16_t)low;
    pairs[j / 2].high[j % 2] = (int16_t)high;
}

const sumi_resize_axis* sumi_resize_axis_make(void* memory, int32_t length, int32_t new_length, sumi_filter filter)
{
    SUMI_ASSERT(memory != NULL && length >= 1 && new_length >= 1 && length != new_length);
    sumi_resize_axis* axis = memory;
    axis->length = new_length;
    axis->stride = pairs_of_support(filter_support(length, new_length, filter));
    double* exact = (double*)(void*)(axis + 1);
    axis->windows = (axis_window*)(void*)(exact + 2 * axis->stride);
    axis->pairs = (weight_pair*)(void*)(axis->windows + new_length);
    for (int32_t i = 0; i < new_length; i++) {
        const axis_window window = weigh_exactly(exact, i, length, new_length, filter);
        SUMI_ASSERT(window.count >= 1 && (size_t)window.count < 2 * axis->stride);
        double sum = 0.0;
        for (int32_t j = 0; j < window.count; j++) sum += exact[j];
        weight_pair* pairs = axis->pairs + (size_t)i * axis->stride;
        for (int32_t j = 0; j < window.count; j++) {
            const double weight = (sum != 0.0 ? exact[j] / sum : exact[j]) * (1 << FRACTION_BITS);
            set_weight(pairs, j, (int32_t)(weight + (weight < 0.0 ? -0.5 : 0.5)));
        }
        if (window.count % 2 != 0) set_weight(pairs, window.count, 0);
        axis->windows[i] = window;
    }
    return axis;
}

// ---- Sums -----------------------------------------------------------------------------------------------------------

// Values of an input, and the inputs of a window, `stride` bytes apart.
typedef struct tap_list {
    const uint8_t* from;
    size_t stride;
    int32_t count;
    const weight_pair* pairs;
} tap_list;

// The weights add up to 2^22, and their absolute values to at most 1.6 times that (half a window at an edge), so 255
// times this sum fits 31 bits.
static inline uint8_t from_fixed(int32_t sum)
{
    if (sum < 0) return 0; // also because a shift of a negative number is not portable
    sum >>= FRACTION_BITS;
    return (uint8_t)(sum > 255 ? 255 : sum);
}

static inline int32_t weight_at(const tap_list* taps, int32_t j)
{
    const weight_pair* pair = &taps->pairs[j / 2];
    return pair->high[j % 2] * (1 << LOW_BITS) + pair->low[j % 2];
}

// Writes one output of `count` values: for less than LANES, and for windows longer than a block.
static void add_few(const tap_list* taps, int32_t count, uint8_t* into)
{
    for (int32_t i = 0; i < count; i++) {
        int32_t sum = 1 << (FRACTION_BITS - 1);
        const uint8_t* from = taps->from + i;
        for (int32_t j = 0; j < taps->count; j++, from += taps->stride) sum += weight_at(taps, j) * *from;
        into[i] = from_fixed(sum);
    }
}

#if defined(__SSE2__)
static inline __m128i load(const void* from) { return _mm_loadu_si128((const __m128i*)from); }
static inline void store(void* into, __m128i values) { _mm_storeu_si128((__m128i*)into, values); }

static inline __m128i all_pairs(const int16_t* pair)
{
    int32_t both;
    memcpy(&both, pair, sizeof both);
    return _mm_set1_epi32(both);
}

// The sums of four values, by the parts of the weights.
typedef struct quarter {
    __m128i low, high;
} quarter;

static inline void add_quarter(quarter* sums, __m128i values, __m128i low_weights, __m128i high_weights)
{
    sums->low = _mm_add_epi32(sums->low, _mm_madd_epi16(values, low_weights));
    sums->high = _mm_add_epi32(sums->high, _mm_madd_epi16(values, high_weights));
}

static inline __m128i end_quarter(quarter sums)
{
    return _mm_srai_epi32(_mm_add_epi32(_mm_slli_epi32(sums.high, LOW_BITS), sums.low), FRACTION_BITS);
}

// Writes one output of LANES values.
static inline void add_lanes(const tap_list* taps, uint8_t* into)
{
    const __m128i zero = _mm_setzero_si128(), half = _mm_set1_epi32(1 << (FRACTION_BITS - 1));
    quarter a = {half, zero}, b = a, c = a, d = a;
    const uint8_t* from = taps->from;
    const weight_pair* pair = taps->pairs;
    for (int32_t count = taps->count; count > 0; count -= 2, from += 2 * taps->stride, pair++) {
        const __m128i first = load(from), second = count > 1 ? load(from + taps->stride) : zero,
                      left = _mm_unpacklo_epi8(first, second), right = _mm_unpackhi_epi8(first, second),
                      low = all_pairs(pair->low), high = all_pairs(pair->high);
        add_quarter(&a, _mm_unpacklo_epi8(left, zero), low, high);
        add_quarter(&b, _mm_unpackhi_epi8(left, zero), low, high);
        add_quarter(&c, _mm_unpacklo_epi8(right, zero), low, high);
        add_quarter(&d, _mm_unpackhi_epi8(right, zero), low, high);
    }
    store(into, _mm_packus_epi16(_mm_packs_epi32(end_quarter(a), end_quarter(b)),
                                 _mm_packs_epi32(end_quarter(c), end_quarter(d))));
}

// Transposes LANES x LANES bytes: each round interleaves the first eight rows with the others.
static inline void transpose(const uint8_t* const* from, uint8_t* into)
{
    __m128i rows[LANES], next[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) rows[i] = load(from[i]);
#pragma GCC unroll 4
    for (int round = 0; round < 4; round++) {
#pragma GCC unroll 8
        for (int i = 0; i < LANES / 2; i++) {
            next[2 * i] = _mm_unpacklo_epi8(rows[i], rows[i + LANES / 2]);
            next[2 * i + 1] = _mm_unpackhi_epi8(rows[i], rows[i + LANES / 2]);
        }
        memcpy(rows, next, sizeof rows);
    }
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) store(into + i * LANES, rows[i]);
}
#else
static inline void add_lanes(const tap_list* taps, uint8_t* into)
{
    int32_t sums[LANES];
    for (int i = 0; i < LANES; i++) sums[i] = 1 << (FRACTION_BITS - 1);
    const uint8_t* from = taps->from;
    for (int32_t j = 0; j < taps->count; j++, from += taps->stride) {
        const int32_t weight = weight_at(taps, j);
        for (int i = 0; i < LANES; i++) sums[i] += weight * from[i];
    }
    for (int i = 0; i < LANES; i++) into[i] = from_fixed(sums[i]);
}

static inline void transpose(const uint8_t* const* from, uint8_t* into)
{
    for (int i = 0; i < LANES; i++) {
        for (int k = 0; k < LANES; k++) into[k * LANES + i] = from[i][k];
    }
}
#endif

// ---- Passes ---------------------------------------------------------------------------------------------------------

typedef struct pass_loop {
    const sumi_resize_pass* pass;
    int32_t begin, end; // of the rows
} pass_loop;

// Runs a loop over items that take `products` each.
static void run_loop(sumi_workers* workers, int32_t count, double products, sumi_loop_body* body, pass_loop* loop)
{
    if (workers == NULL) body(0, count, 0, loop);
    else sumi_parallel(workers, count, (int32_t)(RANGE_WORK / (products + 1.0)) + 1, body, loop);
}

// Mean number of products for a value out.
static double mean_taps(const sumi_resize_axis* axis) { return axis != NULL ? 2.0 * (double)axis->stride : 1.0; }

static void copy_row(const sumi_resize_pass* pass, int32_t y)
{
    const size_t from_channels = (size_t)pass->from_channels, channels = (size_t)pass->channels,
                 width = (size_t)pass->width;
    const uint8_t* from = pass->from + (size_t)y * pass->from_row_bytes;
    uint8_t* into = pass->into + (size_t)y * width * channels;
    if (from_channels == channels) {
        memcpy(into, from, width * channels);
        return;
    }
    for (size_t x = 0; x < width; x++, from += from_channels, into += channels) {
        for (size_t c = 0; c < channels; c++) into[c] = from[c];
    }
}

// LANES rows on their way through a pass; if there are fewer, the last one is there several times.
typedef struct row_band {
    const sumi_resize_pass* pass;
    const uint8_t* from[LANES];
    uint8_t* into[LANES];
    int32_t count;
    int32_t begin, end;                     // pixels in the block
    uint8_t block[(BLOCK + LANES) * LANES]; // values of pixels from `begin` on, a byte of each row
    int32_t value_count, written;           // values of the output that wait to be written; values that are written
    uint8_t values[LANES * LANES];          // a byte of each row
} row_band;

// Transposes the pixels from `begin` on, as many as fit.
static void fill_block(row_band* band, int32_t begin)
{
    const int32_t channels = band->pass->from_channels, first = begin * channels;
    band->begin = begin;
    band->end = sumi_min_int(band->pass->width, begin + BLOCK / channels);
    const int32_t count = (band->end - begin) * channels;
    for (int32_t i = 0; i < count; i += LANES) {
        const uint8_t* from[LANES];
        uint8_t last[LANES][LANES];
        for (int k = 0; k < LANES; k++) from[k] = band->from[k] + first + i;
        if (count - i < LANES) { // nothing is read after the end of a row
            memset(last, 0, sizeof last);
            for (int k = 0; k < LANES; k++) from[k] = memcpy(last[k], from[k], (size_t)(count - i));
        }
        transpose(from, band->block + i * LANES);
    }
}

static void write_values(row_band* band)
{
    uint8_t rows[LANES * LANES];
    const uint8_t* from[LANES];
    for (int i = 0; i < LANES; i++) from[i] = band->values + i * LANES;
    transpose(from, rows);
    for (int32_t k = 0; k < band->count; k++)
        memcpy(band->into[k] + band->written, rows + k * LANES, (size_t)band->value_count);
    band->written += band->value_count;
    band->value_count = 0;
}

// Adds up output x of all rows. The block contains its window, which is wider than a block of pixels otherwise.
static void add_pixel(row_band* band, int32_t x)
{
    const sumi_resize_axis* axis = band->pass->axis;
    const int32_t from_channels = band->pass->from_channels, channels = band->pass->channels;
    const axis_window window = axis->windows[x];
    const bool is_in_block = window.first + window.count <= band->end;
    tap_list taps = {.count = window.count, .pairs = axis->pairs + (size_t)x * axis->stride};
    for (int32_t c = 0; c < channels; c++) {
        uint8_t* into = band->values + band->value_count++ * LANES;
        taps.stride = (size_t)from_channels * (is_in_block ? LANES : 1);
        taps.from = band->block + ((window.first - band->begin) * from_channels + c) * LANES;
        if (is_in_block) add_lanes(&taps, into);
        for (int32_t k = 0; k < band->count && !is_in_block; k++) {
            taps.from = band->from[k] + (size_t)window.first * (size_t)from_channels + c;
            add_few(&taps, 1, into + k);
        }
        if (band->value_count == LANES) write_values(band);
    }
}

static void resize_band(row_band* band)
{
    const sumi_resize_axis* axis = band->pass->axis;
    band->begin = band->end = band->value_count = band->written = 0;
    for (int32_t x = 0; x < axis->length; x++) {
        const axis_window window = axis->windows[x];
        if (window.first + window.count > band->end) fill_block(band, window.first);
        add_pixel(band, x);
    }
    if (band->value_count > 0) write_values(band);
}

// Items are bands.
static void resize_bands(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    (void)worker_index;
    const pass_loop* loop = context;
    const sumi_resize_pass* pass = loop->pass;
    for (int32_t i = begin; i < end; i++) {
        const int32_t first = loop->begin + i * LANES, last = sumi_min_int(first + LANES, loop->end) - 1;
        if (pass->axis == NULL) {
            for (int32_t y = first; y <= last; y++) copy_row(pass, y);
            continue;
        }
        row_band band;
        band.pass = pass;
        band.count = last - first + 1;
        for (int32_t k = 0; k < LANES; k++) {
            const size_t y = (size_t)sumi_min_int(first + k, last);
            band.from[k] = pass->from + y * pass->from_row_bytes;
            band.into[k] = pass->into + y * (size_t)pass->axis->length * (size_t)pass->channels;
        }
        resize_band(&band);
    }
}

void sumi_resize_rows(const sumi_resize_pass* pass, sumi_workers* workers, int32_t begin, int32_t end)
{
    SUMI_ASSERT(begin >= 0 && begin < end && pass->width >= 1);
    SUMI_ASSERT(pass->channels >= 1 && pass->channels <= pass->from_channels && pass->from_channels <= 4);
    pass_loop loop = {pass, begin, end};
    const double width = pass->axis != NULL ? pass->axis->length : pass->width;
    run_loop(workers, sumi_divide_up(end - begin, LANES), LANES * width * pass->channels * mean_taps(pass->axis),
             resize_bands, &loop);
}

// Items are rows of the output.
static void resize_columns(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    (void)worker_index;
    const pass_loop* loop = context;
    const sumi_resize_pass* pass = loop->pass;
    const sumi_resize_axis* axis = pass->axis;
    const int32_t count = pass->width * pass->channels;
    for (int32_t y = loop->begin + begin; y < loop->begin + end; y++) {
        uint8_t* into = pass->into + (size_t)y * (size_t)count;
        if (axis == NULL) {
            copy_row(pass, y);
            continue;
        }
        const axis_window window = axis->windows[y];
        const uint8_t* from = pass->from + (size_t)window.first * pass->from_row_bytes;
        tap_list taps = {from, pass->from_row_bytes, window.count, axis->pairs + (size_t)y * axis->stride};
        if (count < LANES) add_few(&taps, count, into);
        for (int32_t i = 0; i < count && count >= LANES; i += LANES) {
            if (i > count - LANES) i = count - LANES; // the last values are computed twice
            taps.from = from + i;
            add_lanes(&taps, into + i);
        }
    }
}

void sumi_resize_columns(const sumi_resize_pass* pass, sumi_workers* workers, int32_t begin, int32_t end)
{
    SUMI_ASSERT(begin >= 0 && begin < end && pass->width >= 1);
    SUMI_ASSERT(pass->channels >= 1 && pass->channels == pass->from_channels && pass->channels <= 4);
    pass_loop loop = {pass, begin, end};
    run_loop(workers, end - begin, (double)pass->width * pass->channels * mean_taps(pass->axis), resize_columns, &loop);
}
