// Ops on pictures (NHWC): group norm, shortcuts, tiles, and 8-bit pixels in and out.
#include "base/assert.h"
#include "base/numbers.h"
#include "cpu/ops_cpu.h"
#include <math.h>
#include <stdatomic.h>
#include <string.h>

// ---- GROUP_SUMS -----------------------------------------------------------------------------------------------------
// A work range is a block of rows. Each block gives its mean and its sum of squared deviations from that mean for each
// group of channels. Rows are summed in float over a run of RUN_ROWS rows, and the sums of runs are added in double.
enum { RUN_ROWS = 64 };

typedef struct group_loop {
    sumi_cpu_run* run;
    const float* x;
    float* y;
    int32_t channels;
    int64_t x_pitch, y_pitch;
} group_loop;

// sums: one for each channel, of the rows of a run; mean NULL: of the values, else of the squared deviations from it.
static void sum_run(const group_loop* loop, int32_t row, int32_t end, const float* mean, float* sums)
{
    SUMI_ASSERT(row < end && end - row <= RUN_ROWS);
    memset(sums, 0, (size_t)loop->channels * sizeof(float));
    for (int32_t r = row; r < end; r++)
        loop->run->kernels->channel_sums(sums, loop->x + r * loop->x_pitch, mean, loop->channels);
}

static void add_run(const group_loop* loop, const float* sums, double* totals)
{
    for (int32_t c = 0; c < loop->channels; c++) totals[c] += (double)sums[c];
}

// Writes the means of a block of `rows` rows, or its sums of squared deviations, from the totals of the channels.
static void end_pass(const group_loop* loop, int32_t block, int32_t rows, bool is_mean, const double* totals)
{
    const int32_t groups = loop->run->op->u.group.groups, size = loop->channels / groups;
    float* y = loop->y + (int64_t)block * groups * 2 + (is_mean ? 0 : 1);
    for (int32_t g = 0; g < groups; g++) {
        double total = 0.0;
        for (int32_t c = 0; c < size; c++) total += totals[g * size + c];
        y[2 * g] = (float)(is_mean ? total / ((double)rows * size) : total);
    }
}

static void fill_mean(const group_loop* loop, int32_t block, float* mean)
{
    const int32_t groups = loop->run->op->u.group.groups, size = loop->channels / groups;
    const float* y = loop->y + (int64_t)block * groups * 2;
    for (int32_t c = 0; c < loop->channels; c++) mean[c] = y[2 * (c / size)];
}

static void group_sums(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    const group_loop* loop = context;
    const sumi_op* op = loop->run->op;
    double* totals = (double*)(void*)sumi_cpu_worker(loop->run, worker_index);
    float *sums = (float*)(totals + loop->channels), *mean = sums + loop->channels;
    for (int32_t block = loop->run->range_begin + begin; block < loop->run->range_begin + end; block++) {
        const int32_t first = block * op->u.group.block_rows,
                      last = sumi_min_int(op->rows, first + op->u.group.block_rows);
        for (int32_t pass = 0; pass < 2; pass++) {
            if (pass == 1) fill_mean(loop, block, mean);
            memset(totals, 0, (size_t)loop->channels * sizeof(double));
            for (int32_t row = first; row < last; row += RUN_ROWS) {
                sum_run(loop, row, sumi_min_int(row + RUN_ROWS, last), pass == 1 ? mean : NULL, sums);
                add_run(loop, sums, totals);
            }
            end_pass(loop, block, last - first, pass == 0, totals);
        }
    }
}

// The blocks of a large picture take longer than a slice should: there are 64 at most. Such an op is cut into chunks of
// a block's rows (whole runs), which are read once for the mean and once for the deviations:
//
//     work ranges   | block 0: rows, rows, rows | block 0: rows, rows, rows | block 1: rows, rows, rows | ..
//                   |  mean                     |  deviations               |  mean                     |
//
// The sums of all runs of a block stay in the shared region from slice to slice, and are added in their order when the
// last one is complete: the bits are those of whole blocks. Loop items are runs.
void sumi_cpu_group_sums_cut(const sumi_cpu_kernels* kernels, sumi_op* op)
{
    (void)kernels;
    const double row_bytes = op->bytes / op->rows;
    const int32_t block_rows = op->u.group.block_rows,
                  rows = sumi_round_up(
                      sumi_divide_up(block_rows, sumi_cpu_range_count(0.0, row_bytes * block_rows, block_rows)),
                      RUN_ROWS);
    if (rows >= block_rows) return;
    op->is_cut = true;
    op->range_rows = rows;
    op->range_count = 2 * op->u.group.block_count * sumi_divide_up(block_rows, rows);
}

typedef struct chunk_loop {
    const group_loop* loop;
    int32_t row, end;  // of the chunk
    const float* mean; // of the channels; NULL: of the first pass
    float* sums;       // of the chunk's runs
} chunk_loop;

static void sum_chunk(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    (void)worker_index;
    const chunk_loop* chunk = context;
    for (int32_t i = begin; i < end; i++) {
        const int32_t row = chunk->row + i * RUN_ROWS;
        sum_run(chunk->loop, row, sumi_min_int(row + RUN_ROWS, chunk->end), chunk->mean,
                chunk->sums + (size_t)i * (size_t)chunk->loop->channels);
    }
}

// Chunks [begin, end) of one pass over a block.
static void run_chunks(const group_loop* loop, int32_t block, bool is_mean, int32_t begin, int32_t end)
{
    const sumi_op* op = loop->run->op;
    const int32_t first = block * op->u.group.block_rows, last = sumi_min_int(op->rows, first + op->u.group.block_rows),
                  row = first + begin * op->range_rows, after = sumi_min_int(last, first + end * op->range_rows);
    float *mean = loop->run->shared, *sums = mean + loop->channels;
    if (!is_mean) fill_mean(loop, block, mean);
    chunk_loop chunk = {loop, row, after, is_mean ? NULL : mean,
                        sums + (size_t)(begin * (op->range_rows / RUN_ROWS)) * (size_t)loop->channels};
    // the last block may be so short that chunks are empty
    if (row < after) sumi_parallel(loop->run->workers, sumi_divide_up(after - row, RUN_ROWS), 1, sum_chunk, &chunk);
    if (end < sumi_divide_up(op->u.group.block_rows, op->range_rows)) return;
    double* totals = (double*)(void*)sumi_cpu_worker(loop->run, 0);
    memset(totals, 0, (size_t)loop->channels * sizeof(double));
    for (int32_t i = 0; i < sumi_divide_up(last - first, RUN_ROWS); i++)
        add_run(loop, sums + (size_t)i * (size_t)loop->channels, totals);
    end_pass(loop, block, last - first, is_mean, totals);
}

sumi_result sumi_cpu_group_sums(sumi_cpu_run* run)
{
    SUMI_ASSERT(sumi_cpu_cols(run, run->op->in[0]) % run->op->u.group.groups == 0 && run->op->u.group.block_rows >= 1);
    const sumi_op* op = run->op;
    sumi_value x = op->in[0];
    group_loop loop = {
        run, sumi_cpu_value(run, x), sumi_cpu_value(run, op->out), sumi_cpu_cols(run, x), sumi_cpu_pitch(run, x), 0};
    if (!op->is_cut) {
        sumi_parallel(run->workers, run->range_end - run->range_begin, 1, group_sums, &loop);
        return SUMI_OK;
    }
    // Slices of other ops that ran in between would have overwritten the sums.
    SUMI_ASSERT(*run->packed_count == run->range_begin);
    const int32_t chunks = sumi_divide_up(op->u.group.block_rows, op->range_rows);
    for (int32_t range = run->range_begin, count; range < run->range_end; range += count) {
        const int32_t pass = range / chunks, chunk = range % chunks;
        count = sumi_min_int(chunks - chunk, run->range_end - range);
        run_chunks(&loop, pass / 2, pass % 2 == 0, chunk, chunk + count);
    }
    *run->packed_count = run->range_end;
    return SUMI_OK;
}

// ---- GROUP_NORM -----------------------------------------------------------------------------------------------------
static void group_norm(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    (void)worker_index;
    const group_loop* loop = context;
    const float *mean = loop->run->shared, *factor = mean + loop->channels, *bias = factor + loop->channels;
    const bool silu = loop->run->op->u.group.silu;
    for (int32_t r = loop->run->row_begin + begin; r < loop->run->row_begin + end; r++) {
        loop->run->kernels->channel_norm(loop->y + r * loop->y_pitch, loop->x + r * loop->x_pitch, mean, factor, bias,
                                         silu, loop->channels);
    }
}

// Combines the blocks one by one (Chan, Golub & LeVeque 1979). Writes mean, factor and bias of each channel.
static void combine_blocks(const group_loop* loop, const float* sums, float* mean, float* factor, float* bias)
{
    const sumi_op* op = loop->run->op;
    const int32_t groups = op->u.group.groups, size = loop->channels / groups;
    if (op->weight != NULL) sumi_cpu_vector(op->weight, loop->channels, factor);
    if (op->bias != NULL) sumi_cpu_vector(op->bias, loop->channels, bias);
    for (int32_t g = 0; g < groups; g++) {
        double count = 0.0, centre = 0.0, deviation = 0.0;
        for (int32_t block = 0; block < op->u.group.block_count; block++) {
            double n = (double)(sumi_min_int(op->u.group.all_rows, (block + 1) * op->u.group.block_rows)
                                - block * op->u.group.block_rows)
                     * size;
            const float* s = sums + ((int64_t)block * groups + g) * 2;
            double distance = (double)s[0] - centre;
            centre += distance * n / (count + n);
            deviation += (double)s[1] + distance * distance * count * n / (count + n);
            count += n;
        }
        float rstd = (float)(1.0 / sqrt(deviation / count + (double)op->u.group.eps));
        for (int32_t c = g * size; c < (g + 1) * size; c++) {
            mean[c] = (float)centre;
            factor[c] = op->weight == NULL ? rstd : rstd * factor[c];
            bias[c] = op->bias == NULL ? 0.0f : bias[c];
        }
    }
}

void sumi_cpu_group_norm_cut(const sumi_cpu_kernels* kernels, sumi_op* op)
{
    (void)kernels;
    op->is_cut = true;
    op->range_rows = sumi_divide_up(op->rows, sumi_cpu_range_count(0.0, op->bytes, op->rows));
    op->range_count = sumi_divide_up(op->rows, op->range_rows);
}

sumi_result sumi_cpu_group_norm(sumi_cpu_run* run)
{
    SUMI_ASSERT(sumi_cpu_cols(run, run->op->in[0]) % run->op->u.group.groups == 0 && run->op->u.group.block_count >= 1);
    const sumi_op* op = run->op;
    group_loop loop = {run,
                       sumi_cpu_value(run, op->in[0]),
                       sumi_cpu_value(run, op->out),
                       sumi_cpu_cols(run, op->in[0]),
                       sumi_cpu_pitch(run, op->in[0]),
                       sumi_cpu_pitch(run, op->out)};
    float *mean = run->shared, *factor = mean + loop.channels, *bias = factor + loop.channels;
    if (*run->packed_count == 0) {
        combine_blocks(&loop, sumi_cpu_value(run, op->in[1]), mean, factor, bias);
        *run->packed_count = 1;
    }
    sumi_parallel(run->workers, run->row_end - run->row_begin, 1 + 4096 / loop.channels, group_norm, &loop);
    return SUMI_OK;
}

sumi_cpu_scratch sumi_cpu_group_scratch(const sumi_cpu_kernels* kernels, const sumi_plan* plan, const sumi_op* op)
{
    (void)kernels;
    const uint64_t channels = (uint64_t)sumi_plan_info(plan, op->in[0])->cols,
                   runs = (uint64_t)sumi_divide_up(op->u.group.block_rows, RUN_ROWS);
    if (op->kind == SUMI_OP_GROUP_NORM) { return (sumi_cpu_scratch){3 * channels * sizeof(float), 0}; }
    return (sumi_cpu_scratch){op->is_cut ? (1 + runs) * channels * sizeof(float) : 0,
                              channels * (sizeof(double) + 2 * sizeof(float))};
}

// ---- SHORTCUT -------------------------------------------------------------------------------------------------------
typedef struct shortcut_loop {
    const sumi_op_shortcut* shape;
    const float* x;
    float* y;
    int32_t in, out, row_begin; // in, out: channels
} shortcut_loop;

static void copy_up(const shortcut_loop* loop, int32_t row)
{
    const sumi_op_shortcut* s = loop->shape;
    const int32_t width = 2 * s->width, y = row / width, x = row % width,
                  copies = (int32_t)((int64_t)loop->out * s->frames * 4 / loop->in);
    const float* from = loop->x + ((int64_t)(y / 2) * s->width + x / 2) * loop->in;
    float* into = loop->y + (int64_t)row * loop->out;
    for (int32_t o = 0; o < loop->out; o++)
        into[o] = from[((o * s->frames + s->frames - 1) * 4 + y % 2 * 2 + x % 2) / copies];
}

static void average_down(const shortcut_loop* loop, int32_t row)
{
    const sumi_op_shortcut* s = loop->shape;
    const int32_t area = s->scale * s->scale, width = s->width / s->scale, y = row / width, x = row % width,
                  group = loop->in * s->frames * area / loop->out;
    const float* from = loop->x + ((int64_t)y * s->scale * s->width + x * s->scale) * loop->in;
    float* into = loop->y + (int64_t)row * loop->out;
    for (int32_t o = 0; o < loop->out; o++) {
        float sum = 0.0f;
        for (int32_t i = o * group; i < (o + 1) * group; i++) {
            const int32_t channel = i / area / s->frames, frame = i / area % s->frames, pixel = i % area;
            if (frame == s->frames - 1)
                sum += from[((int64_t)(pixel / s->scale) * s->width + pixel % s->scale) * loop->in + channel];
        }
        into[o] = sum / (float)group;
    }
}

static void shortcut(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    (void)worker_index;
    const shortcut_loop* loop = context;
    for (int32_t r = loop->row_begin + begin; r < loop->row_begin + end; r++)
        (loop->shape->upsamples ? copy_up : average_down)(loop, r);
}

sumi_result sumi_cpu_shortcut(sumi_cpu_run* run)
{
    const sumi_op* op = run->op;
    SUMI_ASSERT(sumi_is_shortcut(&op->u.shortcut, sumi_cpu_cols(run, op->in[0]), sumi_cpu_cols(run, op->out)));
    shortcut_loop loop = {.shape = &op->u.shortcut,
                          .x = sumi_cpu_value(run, op->in[0]),
                          .y = sumi_cpu_value(run, op->out),
                          .in = sumi_cpu_cols(run, op->in[0]),
                          .out = sumi_cpu_cols(run, op->out),
                          .row_begin = run->row_begin};
    sumi_parallel(run->workers, run->row_end - run->row_begin, 1 + 4096 / loop.out, shortcut, &loop);
    return SUMI_OK;
}

// ---- TILE_BLEND, TILE_PLACE -----------------------------------------------------------------------------------------
// Where rows (or columns) of pixels lie. Strides in floats: `step` from one row to the next, `along` from pixel to pixel.
typedef struct edge {
    int64_t step, along;
    int32_t count, length, channels; // rows, pixels of a row
} edge;

// Blends the first rows of b, in place: b[i] = a[i] (1 - i / count) + b[i] (i / count). a: its last rows.
static void blend_edge(float* b, const edge* to_b, const float* a, const edge* to_a)
{
    const int64_t b_step = to_b->step, b_along = to_b->along, a_step = to_a->step, a_along = to_a->along;
    const int32_t count = to_b->count, length = to_b->length, channels = to_b->channels;
    SUMI_ASSERT(count >= 0 && length >= 0 && channels >= 1);
    for (int32_t i = 0; i < count; i++) {
        float new_weight = (float)((double)i / (double)count), old_weight = (float)(1.0 - (double)i / (double)count);
        for (int32_t j = 0; j < length; j++) {
            float* to = b + i * b_step + j * b_along;
            const float* from = a + i * a_step + j * a_along;
            for (int32_t c = 0; c < channels; c++) to[c] = from[c] * old_weight + to[c] * new_weight;
        }
    }
}

sumi_result sumi_cpu_tile_blend(sumi_cpu_run* run)
{
    const sumi_op* op = run->op;
    int32_t height = op->u.blend.height, width = op->u.blend.width, channels = sumi_cpu_cols(run, op->out);
    float* tile = sumi_cpu_value(run, op->out);
    const float *above = sumi_cpu_value(run, op->in[1]), *left = sumi_cpu_value(run, op->in[2]);
    int64_t row = (int64_t)width * channels;
    if (run->row_begin >= run->row_end) return SUMI_OK;
    if (above != NULL) {
        int32_t count = sumi_min_int(op->u.blend.extent, sumi_min_int(height, op->u.blend.above_height));
        const edge rows = {row, channels, count, width, channels};
        blend_edge(tile, &rows, above + (op->u.blend.above_height - count) * row, &rows);
    }
    if (left != NULL) {
        int32_t left_width = op->u.blend.left_width,
                count = sumi_min_int(op->u.blend.extent, sumi_min_int(width, left_width));
        const edge columns = {channels, row, count, height, channels};
        const edge left_columns = {channels, (int64_t)left_width * channels, count, height, channels};
        blend_edge(tile, &columns, left + (int64_t)(left_width - count) * channels, &left_columns);
    }
    return SUMI_OK;
}

sumi_result sumi_cpu_tile_place(sumi_cpu_run* run)
{
    SUMI_ASSERT(run->op->u.tile_place.width >= 1 && run->op->u.tile_place.width <= run->op->u.tile_place.tile_width);
    const sumi_op* op = run->op;
    int32_t channels = sumi_cpu_cols(run, op->out);
    const float* tile = sumi_cpu_value(run, op->in[0]);
    float* picture = (float*)sumi_cpu_value(run, op->out)
                   + (int64_t)(op->u.tile_place.per_item ? run->counter : 0) * op->u.tile_place.item_rows * channels;
    for (int32_t r = run->row_begin; r < run->row_end; r++) {
        int32_t y = r / op->u.tile_place.width, x = r % op->u.tile_place.width;
        memcpy(picture
                   + ((int64_t)(op->u.tile_place.y + y) * op->u.tile_place.picture_width + op->u.tile_place.x + x)
                         * channels,
               tile + ((int64_t)y * op->u.tile_place.tile_width + x) * channels, (size_t)channels * sizeof(float));
    }
    return SUMI_OK;
}

// ---- PIXELS_IN, PATCHES_IN, COMPOSITE, PIXELS_OUT -------------------------------------------------------------------
sumi_result sumi_cpu_pixels_in(sumi_cpu_run* run)
{
    SUMI_ASSERT(run->op->u.pixels.width >= 1);
    const sumi_op* op = run->op;
    const uint8_t* bytes =
        (const uint8_t*)sumi_cpu_value(run, op->in[0])
        + (int64_t)(op->u.pixels.per_item ? run->counter : 0) * op->u.pixels.item_rows * op->u.pixels.cols;
    const int32_t cols = op->u.pixels.cols, channels = sumi_cpu_cols(run, op->out);
    float* out = sumi_cpu_value(run, op->out);
    for (int32_t r = run->row_begin; r < run->row_end; r++) {
        int64_t pixel = (int64_t)(op->u.pixels.y + r / op->u.pixels.width) * op->u.pixels.picture_width + op->u.pixels.x
                      + r % op->u.pixels.width;
        const float opacity = cols > channels ? (float)bytes[pixel * cols + 3] / 255.0f : 1.0f;
        for (int32_t c = 0; c < channels; c++)
            out[(int64_t)r * channels + c] = ((float)bytes[pixel * cols + c] / 255.0f * 2.0f - 1.0f) * opacity;
    }
    return SUMI_OK;
}

typedef struct patches_loop {
    const sumi_op_patches_in* layout;
    const uint8_t* bytes;
    const int32_t* cells;
    float* out;
    int32_t row_begin;
} patches_loop;

static void patches_in(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    (void)worker_index;
    const patches_loop* loop = context;
    const sumi_op_patches_in* p = loop->layout;
    int32_t area = p->patch * p->patch, per_cell = p->cell * p->cell, across = p->width / (p->patch * p->cell);
    for (int32_t r = loop->row_begin + begin; r < loop->row_begin + end; r++) {
        int32_t cell = loop->cells[r / per_cell], in_cell = r % per_cell;
        int32_t y0 = (cell / across * p->cell + in_cell / p->cell) * p->patch,
                x0 = (cell % across * p->cell + in_cell % p->cell) * p->patch;
        float* out = loop->out + (int64_t)r * 3 * p->frames * area;
        for (int32_t c = 0; c < 3; c++, out += p->frames * area) {
            for (int32_t i = 0; i < area; i++) {
                int64_t pixel = (int64_t)(y0 + i / p->patch) * p->width + x0 + i % p->patch;
                out[i] = ((float)loop->bytes[pixel * 3 + c] / 255.0f - p->mean[c]) / p->deviation[c];
            }
            for (int32_t f = 1; f < p->frames; f++) memcpy(out + f * area, out, (size_t)area * sizeof *out);
        }
    }
}

sumi_result sumi_cpu_patches_in(sumi_cpu_run* run)
{
    const sumi_op_patches_in* p = &run->op->u.patches;
    SUMI_ASSERT(p->patch >= 1 && p->cell >= 1 && p->frames >= 1 && p->width >= p->patch * p->cell);
    patches_loop loop = {.layout = p,
                         .bytes = sumi_cpu_value(run, run->op->in[0]),
                         .cells = sumi_cpu_value(run, run->op->in[1]),
                         .out = sumi_cpu_value(run, run->op->out),
                         .row_begin = run->row_begin};
    int32_t per_cell = p->cell * p->cell, cells = run->op->rows / per_cell;
    for (int32_t i = run->row_begin / per_cell; i < (run->row_end + per_cell - 1) / per_cell; i++) {
        if (loop.cells[i] < 0 || loop.cells[i] >= cells) {
            return sumi_fail(run->error, SUMI_INTERNAL, "%s: the image has %d cells, and none of the number %d",
                             run->op->label, cells, loop.cells[i]);
        }
    }
    sumi_parallel(run->workers, run->row_end - run->row_begin, 8, patches_in, &loop);
    return SUMI_OK;
}

typedef struct composite_loop {
    float* pictures;
    const uint8_t *beneath, *opacity;
    int32_t row_begin, rows, cols; // rows: of `beneath`
} composite_loop;

static void composite(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    (void)worker_index;
    const composite_loop* loop = context;
    for (int32_t r = loop->row_begin + begin; r < loop->row_begin + end; r++) {
        const int32_t pixel = r % loop->rows, opacity = loop->opacity[pixel];
        if (opacity == 255) continue;
        float* x = loop->pictures + loop->cols * (int64_t)r;
        const uint8_t* beneath = loop->beneath + loop->cols * (int64_t)pixel;
        const float share = (float)opacity / 255.0f;
        float colour_share = share;
        if (loop->cols == 4) {
            const float over = share * fminf(fmaxf(x[3] * 0.5f + 0.5f, 0.0f), 1.0f),
                        under = (1.0f - share) * ((float)beneath[3] / 255.0f);
            if (over + under > 0.0f) colour_share = over / (over + under);
        }
        for (int32_t c = 0; c < loop->cols; c++) {
            const float b = (float)beneath[c] / 127.5f - 1.0f;
            x[c] = opacity == 0 ? b : b + (c < 3 ? colour_share : share) * (x[c] - b);
        }
    }
}

sumi_result sumi_cpu_composite(sumi_cpu_run* run)
{
    const sumi_op* op = run->op;
    SUMI_ASSERT(op->in[0].id == op->out.id);
    composite_loop loop = {.pictures = sumi_cpu_value(run, op->out),
                           .beneath = sumi_cpu_value(run, op->in[1]),
                           .opacity = sumi_cpu_value(run, op->in[2]),
                           .row_begin = run->row_begin,
                           .rows = sumi_plan_info(run->plan, op->in[1])->rows,
                           .cols = sumi_cpu_cols(run, op->out)};
    sumi_parallel(run->workers, run->row_end - run->row_begin, 4096, composite, &loop);
    return SUMI_OK;
}

typedef struct pixels_loop {
    const float* picture;
    uint8_t* bytes;
    int32_t row_begin, cols;
    atomic_int not_finite;
} pixels_loop;

static void pixels_out(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    (void)worker_index;
    pixels_loop* loop = context;
    int32_t bad = 0;
    for (int64_t i = (int64_t)(loop->row_begin + begin) * loop->cols; i < (int64_t)(loop->row_begin + end) * loop->cols;
         i++) {
        float value = loop->picture[i];
        bad += !isfinite(value);
        value = value * 0.5f + 0.5f;
        value = value > 0.0f ? (value < 1.0f ? value : 1.0f) : 0.0f; // NaN becomes 0
        loop->bytes[i] = (uint8_t)nearbyintf(value * 255.0f);
    }
    if (bad > 0) atomic_fetch_add(&loop->not_finite, bad);
}

// Rounding a value takes five nanoseconds.
#define PIXELS_OUT_ROWS 16384

void sumi_cpu_pixels_out_cut(const sumi_cpu_kernels* kernels, sumi_op* op)
{
    (void)kernels;
    op->is_cut = true;
    op->range_rows = sumi_min_int(op->rows, PIXELS_OUT_ROWS);
    op->range_count = sumi_divide_up(op->rows, op->range_rows);
}

sumi_result sumi_cpu_pixels_out(sumi_cpu_run* run)
{
    const sumi_op* op = run->op;
    pixels_loop loop = {.picture = sumi_cpu_value(run, op->in[0]),
                        .bytes = sumi_cpu_value(run, op->out),
                        .row_begin = run->row_begin,
                        .cols = sumi_cpu_cols(run, op->in[0])};
    atomic_init(&loop.not_finite, 0);
    sumi_parallel(run->workers, run->row_end - run->row_begin, 4096, pixels_out, &loop);
    int32_t* counter = sumi_cpu_value(run, op->in[1]);
    if (counter != NULL) {
        *counter += atomic_load(&loop.not_finite); // an integer count: the order of the work ranges does not matter
    }
    return SUMI_OK;
}
