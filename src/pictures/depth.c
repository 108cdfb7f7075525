// Percentiles are found by radix select: floats that are not negative are ordered as their bits, so three passes, which
// count 11, 10 and 10 bits of them, find any rank exactly, whatever the range of the distances. A histogram with bins of
// equal width would not do: one far mountain would put everything near the camera into a single bin.
//
// Four ranks are needed, two neighbours for each percentile. Ranks whose bits have agreed so far share their counts.
#include "pictures/depth.h"
#include "base/assert.h"
#include "base/numbers.h"
#include "pictures/pixels.h"
#include <float.h>
#include <math.h>
#include <string.h>

enum { RANKS = 4, DIGITS = 3, MAX_DIGIT = 2048 };
static const int32_t s_shifts[DIGITS] = {20, 10, 0}, s_bits[DIGITS] = {11, 10, 10};

// Distances below it are none: their inverse must be finite.
#define LEAST_DISTANCE 1e-30f

// ---- Checks ---------------------------------------------------------------------------------------------------------

int32_t sumi_depth_element_bytes(sumi_depth_format format) { return format == SUMI_DEPTH_U16 ? 2 : 4; }

int32_t sumi_depth_row_bytes(const sumi_depth* depth)
{
    return depth->row_bytes != 0 ? depth->row_bytes : depth->width * sumi_depth_element_bytes(depth->format);
}

static sumi_result check_planes(const sumi_depth* depth, const char* name, sumi_error* error)
{
    const double near_plane = depth->near_plane, far_plane = depth->far_plane;
    if (depth->kind == SUMI_DEPTH_DISTANCE) {
        if (far_plane == 0.0 && depth->format != SUMI_DEPTH_U16) return SUMI_OK;
        if (!(far_plane >= LEAST_DISTANCE) || (depth->format == SUMI_DEPTH_U16 && isinf(far_plane))) {
            return sumi_fail(error, SUMI_INVALID_ARGUMENT, "%s.far_plane is %g: give %s", name, far_plane,
                             depth->format == SUMI_DEPTH_U16
                                 ? "the distance for which 65535 stands"
                                 : "the distance from which on all is sky, or 0 if only INFINITY is");
        }
        return SUMI_OK;
    }
    if (!(near_plane >= LEAST_DISTANCE) || isinf(near_plane)) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "%s.near_plane is %g: give the distance of the camera's near plane, above 0", name,
                         near_plane);
    }
    if (!(far_plane > near_plane)) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "%s.far_plane is %g: give the distance of the camera's far plane, above near_plane, %g, or "
                         "INFINITY",
                         name, far_plane, near_plane);
    }
    return SUMI_OK;
}

sumi_result sumi_depth_check(const sumi_depth* depth, const char* name, sumi_error* error)
{
    const int32_t width = depth->width, height = depth->height, most = SUMI_PIXELS_MAX_SIDE;
    if (depth->data == NULL && depth->external == NULL)
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "%s has no depth: data is NULL", name);
    if (depth->format != SUMI_DEPTH_F32 && depth->format != SUMI_DEPTH_U16) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "%s.format is %d: give SUMI_DEPTH_F32 or SUMI_DEPTH_U16", name,
                         (int)depth->format);
    }
    if (depth->kind < SUMI_DEPTH_STANDARD || depth->kind > SUMI_DEPTH_DISTANCE) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "%s.kind is %d: give a sumi_depth_kind", name, (int)depth->kind);
    }
    if (depth->kind == SUMI_DEPTH_OPENGL && depth->format == SUMI_DEPTH_U16) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "%s.kind is SUMI_DEPTH_OPENGL, whose values are -1 to 1, and 16 bits hold 0 to 1: give "
                         "SUMI_DEPTH_STANDARD for OpenGL's depth buffer",
                         name);
    }
    if (width < 1 || width > most || height < 1 || height > most) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "%s is %d x %d: each side must be 1 to %d pixels", name,
                         (int)width, (int)height, (int)most);
    }
    const int32_t row_bytes = width * sumi_depth_element_bytes(depth->format);
    if (sumi_depth_row_bytes(depth) < row_bytes) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "%s has row_bytes %d, but a row of %d pixels takes %d bytes: give 0 if rows follow each other",
                         name, (int)depth->row_bytes, (int)width, (int)row_bytes);
    }
    SUMI_TRY(check_planes(depth, name, error));
    const bool has_range = depth->low != 0.0f || depth->high != 0.0f;
    if (has_range && (!(depth->low >= LEAST_DISTANCE) || !(depth->high > depth->low) || isinf(depth->high))) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "%s.low and high are %g and %g: give distances with 0 < low < high, or 0 and 0 for this "
                         "picture's percentiles",
                         name, (double)depth->low, (double)depth->high);
    }
    return SUMI_OK;
}

// ---- Filter ---------------------------------------------------------------------------------------------------------

// Output i of an axis is the sum over j < counts[i] of weights[i * stride + j] * input[firsts[i] + j].
typedef struct axis {
    int32_t *firsts, *counts;
    float* weights;
    int32_t stride, length;
} axis;

static int32_t axis_stride(int32_t from, int32_t to) { return 2 * sumi_max_int(sumi_divide_up(from, to), 1) + 1; }

static void axis_fill(const axis* a, int32_t from)
{
    const double scale = (double)from / a->length, support = scale > 1.0 ? scale : 1.0;
    for (int32_t i = 0; i < a->length; i++) {
        const double center = (i + 0.5) * scale;
        const int32_t first = sumi_max_int((int32_t)(center - support + 0.5), 0),
                      end = sumi_min_int((int32_t)(center + support + 0.5), from);
        float* weights = a->weights + (size_t)i * (size_t)a->stride;
        double sum = 0.0;
        SUMI_ASSERT(first < end && end - first <= a->stride);
        for (int32_t j = first; j < end; j++) {
            const double x = fabs(j + 0.5 - center) / support;
            sum += x < 1.0 ? 1.0 - x : 0.0;
        }
        for (int32_t j = first; j < end; j++) {
            const double x = fabs(j + 0.5 - center) / support;
            weights[j - first] = (float)((x < 1.0 ? 1.0 - x : 0.0) / sum);
        }
        a->firsts[i] = first;
        a->counts[i] = end - first;
    }
}

// ---- Work -----------------------------------------------------------------------------------------------------------

typedef enum stage { DISTANCES, SECOND_DIGIT, THIRD_DIGIT, ROWS, COLUMNS, DONE } stage;

typedef struct work {
    sumi_depth depth;
    sumi_depth_stretch stretch;
    int32_t width, height;
    stage stage;
    int32_t row;
    // For 1 / z = near_weight * inverse_near + far_weight * inverse_far; 1 / far_plane is 0 at infinity.
    float inverse_near, inverse_far;
    float sky; // its t
    // The grey is (t - black) * scale. is_flat: it is 1 where t is `white` or nearer, unless it is sky.
    float white, black, scale;
    bool is_flat;
    // Of each rank: how many values with the same bits as its prefix are smaller, those bits, and which rank counts for
    // it: the first one with the same prefix.
    uint32_t ranks[RANKS], prefixes[RANKS], counts[RANKS][MAX_DIGIT];
    int32_t owners[RANKS];
    double shares[RANKS / 2]; // of the second rank of each percentile
    axis across, down;
    float *values, *rows, *sums; // [source height][source width], [source height][width], [width]
} work;

// Lays the work out in memory, or only measures with NULL.
static uint64_t lay_out(const sumi_depth_args* args, work* w)
{
    const uint64_t from_width = (uint64_t)args->depth->width, from_height = (uint64_t)args->depth->height,
                   width = (uint64_t)args->width, height = (uint64_t)args->height;
    const int32_t strides[2] = {axis_stride(args->depth->width, args->width),
                                axis_stride(args->depth->height, args->height)};
    const uint64_t counts[] = {width,
                               width,
                               width * (uint64_t)strides[0],
                               height,
                               height,
                               height * (uint64_t)strides[1],
                               from_width * from_height,
                               width * from_height,
                               width};
    void* places[sizeof counts / sizeof *counts];
    uint64_t used = sumi_align(sizeof *w, SUMI_ALIGNMENT);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        places[i] = w != NULL ? (char*)w + used : NULL;
        used += sumi_align(4 * counts[i], SUMI_ALIGNMENT);
    }
    if (w == NULL) return used;
    w->across = (axis){places[0], places[1], places[2], strides[0], args->width};
    w->down = (axis){places[3], places[4], places[5], strides[1], args->height};
    w->values = places[6];
    w->rows = places[7];
    w->sums = places[8];
    return used;
}

uint64_t sumi_depth_bytes(const sumi_depth_args* args) { return lay_out(args, NULL); }

static void set_range(work* w, float white, float black)
{
    w->white = white;
    w->black = black;
    w->is_flat = white == black;
    w->scale = w->is_flat ? 0.0f : 1.0f / (white - black);
}

static bool has_range(const sumi_depth* depth) { return depth->high > 0.0f; }

void sumi_depth_begin(const sumi_depth_args* args, void* memory)
{
    work* w = memory;
    const sumi_depth* depth = args->depth;
    memset(w, 0, sizeof *w);
    w->depth = *depth;
    w->stretch = args->stretch;
    w->width = args->width;
    w->height = args->height;
    w->inverse_near = depth->kind == SUMI_DEPTH_DISTANCE ? 0.0f : 1.0f / depth->near_plane;
    if (w->depth.far_plane == 0.0f) w->depth.far_plane = INFINITY;
    w->inverse_far = 1.0f / w->depth.far_plane;
    // With a range that is given, sky is black even if the range ends beyond the far plane.
    w->sky = w->stretch == SUMI_STRETCH_DISTANCE ? INFINITY : has_range(depth) ? 0.0f : w->inverse_far;
    lay_out(args, w);
    axis_fill(&w->across, depth->width);
    axis_fill(&w->down, depth->height);
    if (!has_range(depth)) return;
    if (w->stretch == SUMI_STRETCH_DISTANCE) set_range(w, depth->low, depth->high);
    else set_range(w, 1.0f / depth->low, 1.0f / depth->high);
}

// ---- Distances ------------------------------------------------------------------------------------------------------

// t of a distance, or of its inverse, whichever the caller has.
static inline float from_distance(bool wants_inverse, float z) { return wants_inverse ? 1.0f / z : z; }
static inline float from_inverse(bool wants_inverse, float q) { return wants_inverse ? q : 1.0f / q; }

// Comparisons are written so that NaN is far.
static inline float t_of(const work* w, const sumi_depth_kind kind, const bool wants_inverse, float d)
{
    float near_weight, far_weight;
    switch (kind) {
    case SUMI_DEPTH_DISTANCE:
        return !(d < w->depth.far_plane) ? w->sky
                                         : from_distance(wants_inverse, d > LEAST_DISTANCE ? d : LEAST_DISTANCE);
    case SUMI_DEPTH_REVERSED:
        near_weight = !(d > 0.0f) ? 0.0f : d < 1.0f ? d : 1.0f;
        far_weight = 1.0f - near_weight;
        break;
    case SUMI_DEPTH_OPENGL:
        far_weight = !(d < 1.0f) ? 1.0f : d > -1.0f ? d : -1.0f;
        near_weight = 0.5f * (1.0f - far_weight);
        far_weight = 0.5f * (1.0f + far_weight);
        break;
    default:
        far_weight = !(d < 1.0f) ? 1.0f : d > 0.0f ? d : 0.0f;
        near_weight = 1.0f - far_weight;
        break;
    }
    return near_weight > 0.0f ? from_inverse(wants_inverse, near_weight * w->inverse_near + far_weight * w->inverse_far)
                              : w->sky;
}

static inline void row_of(const work* w, const sumi_depth_kind kind, const bool wants_inverse, float* row)
{
    for (int32_t x = 0; x < w->depth.width; x++) row[x] = t_of(w, kind, wants_inverse, row[x]);
}

// The loop exists once per kind and stretch.
static void row_to_t(const work* w, float* row)
{
    const bool inverse = w->stretch == SUMI_STRETCH_INVERSE;
    switch (w->depth.kind) {
    case SUMI_DEPTH_STANDARD:
        inverse ? row_of(w, SUMI_DEPTH_STANDARD, true, row) : row_of(w, SUMI_DEPTH_STANDARD, false, row);
        break;
    case SUMI_DEPTH_REVERSED:
        inverse ? row_of(w, SUMI_DEPTH_REVERSED, true, row) : row_of(w, SUMI_DEPTH_REVERSED, false, row);
        break;
    case SUMI_DEPTH_OPENGL:
        inverse ? row_of(w, SUMI_DEPTH_OPENGL, true, row) : row_of(w, SUMI_DEPTH_OPENGL, false, row);
        break;
    default: inverse ? row_of(w, SUMI_DEPTH_DISTANCE, true, row) : row_of(w, SUMI_DEPTH_DISTANCE, false, row); break;
    }
}

static void read_row(const work* w, int32_t y, float* into)
{
    const sumi_depth* depth = &w->depth;
    const int32_t width = depth->width, from = depth->bottom_up ? depth->height - 1 - y : y;
    const char* row = (const char*)depth->data + (size_t)from * (size_t)sumi_depth_row_bytes(depth);
    if (depth->format == SUMI_DEPTH_F32) {
        memcpy(into, row, (size_t)width * sizeof *into);
        return;
    }
    const float unit = depth->kind == SUMI_DEPTH_DISTANCE ? depth->far_plane : 1.0f;
    for (int32_t x = 0; x < width; x++) {
        uint16_t value;
        memcpy(&value, row + 2 * (size_t)x, sizeof value);
        into[x] = value == UINT16_MAX ? unit : (float)value / 65535.0f * unit;
    }
}

// ---- Percentiles ----------------------------------------------------------------------------------------------------

// Counts a digit of the values that have the same bits above it as a rank.
static void count_row(work* w, int32_t digit, const float* row)
{
    const int32_t shift = s_shifts[digit], above = shift + s_bits[digit];
    const uint32_t mask = (1u << s_bits[digit]) - 1;
    for (int32_t k = 0; k < RANKS; k++) {
        if (w->owners[k] != k) continue;
        uint32_t* counts = w->counts[k];
        for (int32_t x = 0; x < w->depth.width; x++) {
            const uint32_t bits = sumi_bits_of_float(row[x]);
            if (bits >> above == w->prefixes[k]) counts[bits >> shift & mask]++;
        }
    }
}

// The ranks of the percentiles, when all values have been counted once. Sky is infinite if it does not count, and is
// the greatest value then.
static uint32_t set_ranks(work* w)
{
    const bool inverse = w->stretch == SUMI_STRETCH_INVERSE;
    static const double s_percentiles[2][2] = {{99.0, 1.0}, {2.0, 85.0}}; // white, black
    const uint32_t all = (uint32_t)w->depth.width * (uint32_t)w->depth.height,
                   count = all - w->counts[0][sumi_bits_of_float(INFINITY) >> s_shifts[0]];
    for (int i = 0; i < 2 && count > 0; i++) {
        const double place = s_percentiles[inverse ? 0 : 1][i] / 100.0 * (count - 1);
        const uint32_t first = (uint32_t)place;
        w->ranks[2 * i] = first;
        w->ranks[2 * i + 1] = first + 1 < count ? first + 1 : first;
        w->shares[i] = place - first;
    }
    return count;
}

// Appends the digit of each rank to its prefix.
static void end_digit(work* w, int32_t digit)
{
    const uint32_t count = digit == 0 ? set_ranks(w) : 1;
    if (count == 0) { // nothing but sky: black, because every distance lies beyond 0
        set_range(w, 0.0f, 0.0f);
        w->stage = THIRD_DIGIT;
        return;
    }
    for (int32_t k = 0; k < RANKS; k++) {
        const uint32_t* counts = w->counts[w->owners[k]];
        uint32_t found = 0;
        while (w->ranks[k] >= counts[found]) w->ranks[k] -= counts[found++];
        SUMI_ASSERT(found < MAX_DIGIT);
        w->prefixes[k] = w->prefixes[k] << s_bits[digit] | found;
    }
    for (int32_t k = 0; k < RANKS; k++) {
        w->owners[k] = 0;
        while (w->prefixes[w->owners[k]] != w->prefixes[k]) w->owners[k]++;
    }
    memset(w->counts, 0, sizeof w->counts);
    if (digit + 1 < DIGITS) return;
    float found[2];
    for (int i = 0; i < 2; i++) {
        const double first = sumi_float_of_bits(w->prefixes[2 * i]),
                     second = sumi_float_of_bits(w->prefixes[2 * i + 1]);
        found[i] = (float)(first + w->shares[i] * (second - first));
    }
    set_range(w, found[0], found[1]);
}

// ---- Greys ----------------------------------------------------------------------------------------------------------

static void stretch_row(const work* w, float* row)
{
    const bool inverse = w->stretch == SUMI_STRETCH_INVERSE;
    const float black = w->black, scale = w->scale;
    if (w->is_flat) {
        for (int32_t x = 0; x < w->depth.width; x++)
            row[x] = (inverse ? row[x] >= w->white && row[x] > w->sky : row[x] <= w->white) ? 1.0f : 0.0f;
        return;
    }
    for (int32_t x = 0; x < w->depth.width; x++) {
        const float grey = (row[x] - black) * scale;
        row[x] = grey > 0.0f ? grey < 1.0f ? grey : 1.0f : 0.0f;
    }
}

static void resize_row(const work* w, const float* row, float* into)
{
    for (int32_t x = 0; x < w->width; x++) {
        const float *weights = w->across.weights + (size_t)x * (size_t)w->across.stride,
                    *from = row + w->across.firsts[x];
        float sum = 0.0f;
        for (int32_t j = 0; j < w->across.counts[x]; j++) sum += weights[j] * from[j];
        into[x] = sum;
    }
}

static void write_row(const work* w, int32_t y, uint8_t* rgb)
{
    const size_t width = (size_t)w->width;
    const float* weights = w->down.weights + (size_t)y * (size_t)w->down.stride;
    memset(w->sums, 0, width * sizeof *w->sums);
    for (int32_t j = 0; j < w->down.counts[y]; j++) {
        const float* row = w->rows + (size_t)(w->down.firsts[y] + j) * width;
        for (size_t x = 0; x < width; x++) w->sums[x] += weights[j] * row[x];
    }
    uint8_t* to = rgb + (size_t)y * width * 3;
    for (size_t x = 0; x < width; x++, to += 3) to[0] = to[1] = to[2] = (uint8_t)(255.0f * w->sums[x] + 0.5f);
}

// ---- Pieces ---------------------------------------------------------------------------------------------------------

static void advance_row(work* w, uint8_t* rgb)
{
    const size_t from_width = (size_t)w->depth.width, y = (size_t)w->row;
    float* values = w->values + (w->stage == COLUMNS ? 0 : y * from_width);
    switch (w->stage) {
    case DISTANCES:
        read_row(w, w->row, values);
        row_to_t(w, values);
        if (!has_range(&w->depth)) count_row(w, 0, values);
        break;
    case SECOND_DIGIT: count_row(w, 1, values); break;
    case THIRD_DIGIT: count_row(w, 2, values); break;
    case ROWS:
        stretch_row(w, values);
        resize_row(w, values, w->rows + y * (size_t)w->width);
        break;
    default: write_row(w, w->row, rgb); break;
    }
}

static void end_stage(work* w)
{
    if (w->stage <= THIRD_DIGIT && !has_range(&w->depth)) end_digit(w, (int32_t)w->stage);
    w->stage = w->stage == DISTANCES && has_range(&w->depth) ? ROWS : w->stage + 1;
    w->row = 0;
}

#define PIECE 500000 // elements that are read: about two milliseconds

bool sumi_depth_advance(void* memory, uint8_t* rgb)
{
    work* w = memory;
    SUMI_ASSERT(w->stage != DONE);
    const int32_t count = w->stage == COLUMNS ? w->height : w->depth.height;
    const int64_t row = w->stage == COLUMNS ? (int64_t)w->width * (w->down.stride + 2)
                      : w->stage == ROWS    ? w->depth.width + (int64_t)w->width * w->across.stride
                                            : w->depth.width;
    for (int64_t done = 0; done < PIECE && w->row < count; done += row, w->row++) advance_row(w, rgb);
    if (w->row == count) end_stage(w);
    return w->stage == DONE;
}
