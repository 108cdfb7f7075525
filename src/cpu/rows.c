// Row by row ops on token matrices: embedding, norms, rotary embedding, gating, tables of positions and timesteps.
#include "base/assert.h"
#include "cpu/ops_cpu.h"
#include <math.h>
#include <string.h>

// the fewest rows per range of sumi_parallel
static int32_t min_range(int32_t cols) { return cols >= 4096 ? 1 : 1 + 4096 / (cols > 0 ? cols : 1); }

// Loop bodies get rows relative to the run's first row.
typedef struct row_loop {
    sumi_cpu_run* run;
    const float *x, *b, *w, *k_w, *scale, *shift, *bias, *table, *factors;
    const int32_t* ids;
    float* y;
    int32_t cols, x_cols, scale_pitch, shift_pitch; // pitches: floats from row to row of the step tables
} row_loop;

static void over_rows(row_loop* loop, sumi_loop_body* body)
{
    SUMI_ASSERT(loop->y != NULL && loop->run->row_begin < loop->run->row_end);
    sumi_parallel(loop->run->workers, loop->run->row_end - loop->run->row_begin, min_range(loop->x_cols), body, loop);
}

// ---- EMBED_ROWS, FILL_ROWS, COPY_ROWS, MEAN_ROWS --------------------------------------------------------------------
// Sums of several rows, in the order of their numbers.
static void mix(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    row_loop* loop = context;
    const sumi_cpu_run* run = loop->run;
    const int32_t terms = run->op->u.embed.terms, cols = loop->cols;
    float* converted = sumi_cpu_worker(run, worker_index);
    for (int32_t r = run->row_begin + begin; r < run->row_begin + end; r++) {
        float* y = loop->y + (int64_t)r * cols;
        for (int64_t t = (int64_t)r * terms; t < (int64_t)(r + 1) * terms; t++) {
            const float* x = loop->table != NULL ? loop->table + (int64_t)loop->ids[t] * cols : converted;
            if (loop->table == NULL) sumi_weight_to_float(run->op->weight, loop->ids[t], 1, converted, cols);
            if (t == (int64_t)r * terms) run->kernels->scale(y, x, loop->factors[t], cols);
            else run->kernels->gate_add(y, y, x, loop->factors[t], NULL, NULL, cols);
        }
    }
}

static void embed(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    (void)worker_index;
    row_loop* loop = context;
    for (int32_t r = loop->run->row_begin + begin; r < loop->run->row_begin + end; r++) {
        float* y = loop->y + (int64_t)r * loop->cols;
        if (loop->table != NULL) {
            memcpy(y, loop->table + (int64_t)loop->ids[r] * loop->cols, (size_t)loop->cols * sizeof(float));
        } else {
            sumi_weight_to_float(loop->run->op->weight, loop->ids[r], 1, y, loop->cols);
        }
        if (loop->run->op->u.embed.scale != 1.0f)
            loop->run->kernels->scale(y, y, loop->run->op->u.embed.scale, loop->cols);
        if (loop->bias != NULL) loop->run->kernels->channel_sums(y, loop->bias, NULL, loop->cols);
    }
}

sumi_result sumi_cpu_embed_rows(sumi_cpu_run* run)
{
    const sumi_weight* weight = run->op->weight;
    SUMI_ASSERT((weight == NULL) == (run->op->in[1].id != 0));
    const sumi_value_info* table = sumi_plan_info(run->plan, run->op->in[1]);
    int32_t cols = sumi_cpu_cols(run, run->op->out), rows = weight != NULL ? weight->rows : table->rows;
    row_loop loop = {.run = run,
                     .ids = sumi_cpu_value(run, run->op->in[0]),
                     .table = sumi_cpu_value(run, run->op->in[1]),
                     .factors = sumi_cpu_value(run, run->op->in[2]),
                     .y = sumi_cpu_value(run, run->op->out),
                     .cols = cols,
                     .x_cols = cols};
    const int64_t terms = run->op->u.embed.terms;
    for (int64_t i = run->row_begin * terms; i < run->row_end * terms; i++) {
        if (loop.ids[i] < 0 || loop.ids[i] >= rows) {
            return sumi_fail(run->error, SUMI_INTERNAL, "%s: token id %d is not below the table's %d rows",
                             weight != NULL ? weight->name : run->op->label, loop.ids[i], rows);
        }
    }
    if (run->op->bias != NULL) {
        sumi_cpu_vector(run->op->bias, cols, run->shared);
        loop.bias = run->shared;
    }
    over_rows(&loop, loop.factors != NULL ? mix : embed);
    return SUMI_OK;
}

sumi_result sumi_cpu_fill_rows(sumi_cpu_run* run)
{
    SUMI_ASSERT(run->row_end <= run->op->u.fill.span_count);
    const sumi_op* op = run->op;
    int32_t cols = sumi_cpu_cols(run, op->out);
    float* y = sumi_cpu_value(run, op->out);
    if (op->weight != NULL) {
        sumi_cpu_vector(op->weight, cols, run->shared);
    } else {
        memset(run->shared, 0, (size_t)cols * sizeof *run->shared);
    }
    for (int32_t s = run->row_begin; s < run->row_end; s++) {
        SUMI_ASSERT(op->u.fill.spans[s].begin >= 0 && op->u.fill.spans[s].count >= 0);
        for (int32_t r = 0; r < op->u.fill.spans[s].count; r++)
            memcpy(y + (int64_t)(op->u.fill.spans[s].begin + r) * cols, run->shared, (size_t)cols * sizeof(float));
    }
    return SUMI_OK;
}

sumi_result sumi_cpu_copy_rows(sumi_cpu_run* run)
{
    SUMI_ASSERT(run->op->u.copy.from >= 0 && run->op->u.copy.to >= 0);
    const sumi_op* op = run->op;
    const int32_t cols = sumi_cpu_cols(run, op->in[0]), y_cols = sumi_cpu_cols(run, op->out);
    SUMI_ASSERT(op->u.copy.y_column >= 0 && op->u.copy.y_column <= y_cols - cols);
    const int64_t element_bytes = sumi_plan_info(run->plan, op->in[0])->element == SUMI_ELEMENT_BYTE ? 1 : 4,
                  row_bytes = cols * element_bytes, x_row_bytes = sumi_cpu_pitch(run, op->in[0]) * element_bytes,
                  y_row_bytes = y_cols * element_bytes;
    const unsigned char* x = (unsigned char*)sumi_cpu_value(run, op->in[0]) + op->u.copy.from * x_row_bytes;
    unsigned char* y = (unsigned char*)sumi_cpu_value(run, op->out) + op->u.copy.to * y_row_bytes
                     + op->u.copy.y_column * element_bytes;
    if (cols == y_cols && x_row_bytes == row_bytes) {
        memmove(y + run->row_begin * row_bytes, x + run->row_begin * row_bytes,
                (size_t)((run->row_end - run->row_begin) * row_bytes));
        return SUMI_OK;
    }
    for (int64_t r = run->row_begin; r < run->row_end; r++)
        memcpy(y + r * y_row_bytes, x + r * x_row_bytes, (size_t)row_bytes);
    return SUMI_OK;
}

// A work range is a span of rows, which are added in order, so the result does not depend on the split.
static void mean_rows(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    (void)worker_index;
    row_loop* loop = context;
    const sumi_cpu_kernels* kernels = loop->run->kernels;
    for (int32_t s = loop->run->row_begin + begin; s < loop->run->row_begin + end; s++) {
        const sumi_span span = loop->run->op->u.mean.spans[s];
        float* y = loop->y + (int64_t)s * loop->cols;
        memset(y, 0, (size_t)loop->cols * sizeof *y);
        for (int32_t r = span.begin; r < span.begin + span.count; r++)
            kernels->channel_sums(y, loop->x + (int64_t)r * loop->cols, NULL, loop->cols);
        for (int32_t c = 0; c < loop->cols; c++) y[c] /= (float)span.count;
    }
}

sumi_result sumi_cpu_mean_rows(sumi_cpu_run* run)
{
    SUMI_ASSERT(run->row_end <= run->op->u.mean.span_count);
    const int32_t cols = sumi_cpu_cols(run, run->op->out);
    row_loop loop = {.run = run,
                     .x = sumi_cpu_value(run, run->op->in[0]),
                     .y = sumi_cpu_value(run, run->op->out),
                     .cols = cols,
                     .x_cols = 4096}; // makes one span the smallest range for a worker
    over_rows(&loop, mean_rows);
    return SUMI_OK;
}

// ---- ADD_ROWS, RESIDUAL_CHANGE, ADD_RESIDUAL ------------------------------------------------------------------------
static void add_rows(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    (void)worker_index;
    const row_loop* loop = context;
    const float scale = loop->run->op->u.add.scale;
    const int64_t first = (int64_t)(loop->run->row_begin + begin) * loop->cols,
                  last = (int64_t)(loop->run->row_begin + end) * loop->cols;
    for (int64_t i = first; i < last; i++) loop->y[i] = loop->x[i] + scale * loop->y[i];
}

sumi_result sumi_cpu_add_rows(sumi_cpu_run* run)
{
    const int32_t cols = sumi_cpu_cols(run, run->op->out);
    const sumi_op_add_rows* add = &run->op->u.add;
    row_loop loop = {.run = run,
                     .x = (const float*)sumi_cpu_value(run, run->op->in[0]) + (int64_t)add->from * cols,
                     .y = (float*)sumi_cpu_value(run, run->op->out) + (int64_t)add->to * cols,
                     .cols = cols,
                     .x_cols = cols};
    over_rows(&loop, add_rows);
    return SUMI_OK;
}

typedef struct change_loop {
    const sumi_cpu_run* run;
    const float *x, *before;
    float *kept, *change;
    int32_t cols;
} change_loop;

#define CHANGE_LANES 8 // sums side by side, so that the compiler can add them as vectors

// A work range is added up in double, row by row, so the sums do not depend on slices and threads.
static void residual_change(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    (void)worker_index;
    const change_loop* loop = context;
    const sumi_op* op = loop->run->op;
    for (int32_t p = loop->run->range_begin + begin; p < loop->run->range_begin + end; p++) {
        const int64_t row = (int64_t)p * op->range_rows, last = row + op->range_rows;
        double change = 0.0, size = 0.0;
        for (int64_t r = row; r < last && r < op->rows; r++) {
            const float *x = loop->x + r * loop->cols, *before = loop->before + r * loop->cols;
            float* kept = loop->kept + r * loop->cols;
            float changes[CHANGE_LANES] = {0}, sizes[CHANGE_LANES] = {0};
            for (int32_t c = 0; c < loop->cols; c++) {
                const float d = x[c] - before[c];
                changes[c % CHANGE_LANES] += fabsf(d - kept[c]);
                sizes[c % CHANGE_LANES] += fabsf(kept[c]);
                kept[c] = d;
            }
            for (int32_t i = 0; i < CHANGE_LANES; i++) {
                change += (double)changes[i];
                size += (double)sizes[i];
            }
        }
        loop->change[2 * p] = (float)change;
        loop->change[2 * p + 1] = (float)size;
    }
}

sumi_result sumi_cpu_residual_change(sumi_cpu_run* run)
{
    const sumi_op* op = run->op;
    change_loop loop = {.run = run,
                        .x = sumi_cpu_value(run, op->in[0]),
                        .before = sumi_cpu_value(run, op->in[1]),
                        .kept = sumi_cpu_value(run, op->in[2]),
                        .change = sumi_cpu_value(run, op->out),
                        .cols = sumi_cpu_cols(run, op->in[0])};
    sumi_parallel(run->workers, run->range_end - run->range_begin, 1, residual_change, &loop);
    return SUMI_OK;
}

// table: the residual; b: its change; scale: the factor of the change
static void add_residual(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    (void)worker_index;
    const row_loop* loop = context;
    const float factor = *loop->scale;
    const int64_t first = (int64_t)(loop->run->row_begin + begin) * loop->cols,
                  last = (int64_t)(loop->run->row_begin + end) * loop->cols;
    for (int64_t i = first; i < last; i++) loop->y[i] += loop->table[i] + factor * loop->b[i];
}

sumi_result sumi_cpu_add_residual(sumi_cpu_run* run)
{
    const sumi_op* op = run->op;
    const sumi_op_add_residual* of = &op->u.add_residual;
    const int32_t cols = sumi_cpu_cols(run, op->out);
    const float* sigmas = sumi_cpu_value(run, op->in[3]);
    const float older = sigmas[of->column], newer = sigmas[sumi_cpu_cols(run, op->in[3]) + of->column],
                present = *sumi_cpu_step(run, of->sigma);
    float factor = older > newer ? (newer - present) / (older - newer) : 0.0f;
    factor = factor < of->most ? factor : of->most;
    row_loop loop = {.run = run,
                     .table = sumi_cpu_value(run, op->in[1]),
                     .b = sumi_cpu_value(run, op->in[2]),
                     .scale = &factor,
                     .y = sumi_cpu_value(run, op->out),
                     .cols = cols,
                     .x_cols = cols};
    over_rows(&loop, add_residual);
    return SUMI_OK;
}

// ---- KRONECKER_ADD --------------------------------------------------------------------------------------------------
// Adds to one row of out its a groups of b columns. Each group is a sum of c rows of in[0], weighted by W1 and
// multiplied by scale and gate.
static void kronecker_add(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    const row_loop* loop = context;
    const sumi_cpu_run* run = loop->run;
    const sumi_op* op = run->op;
    const int32_t a = op->weight->rows, c = op->weight->cols, b = loop->x_cols;
    float* sums = sumi_cpu_worker(run, worker_index);
    for (int32_t r = run->row_begin + begin; r < run->row_begin + end; r++) {
        const float* x = loop->x + (int64_t)r * c * b;
        for (int32_t i = 0; i < a; i++) {
            sumi_cpu_finish finish = {.accumulates = true};
            memset(sums, 0, (size_t)b * sizeof *sums);
            for (int32_t j = 0; j < c; j++) {
                finish.scale = loop->w[i * c + j];
                run->kernels->finish(&finish, sums, x + (int64_t)j * b, NULL, b);
            }
            finish.scale = op->u.kronecker.scale;
            finish.gate = loop->scale == NULL ? NULL : loop->scale + (int64_t)i * b;
            float* y = loop->y + (int64_t)(op->u.kronecker.y_row + r) * loop->cols + op->u.kronecker.y_column;
            run->kernels->finish(&finish, y + (int64_t)i * b, sums, NULL, b);
        }
    }
}

sumi_result sumi_cpu_kronecker_add(sumi_cpu_run* run)
{
    const sumi_op* op = run->op;
    SUMI_ASSERT(op->in[1].id == op->out.id && op->weight != NULL);
    row_loop loop = {.run = run,
                     .x = sumi_cpu_value(run, op->in[0]),
                     .y = sumi_cpu_value(run, op->out),
                     .w = run->shared,
                     .scale = sumi_cpu_step(run, op->u.kronecker.gate),
                     .cols = sumi_cpu_cols(run, op->out),
                     .x_cols = sumi_cpu_cols(run, op->in[0])};
    sumi_cpu_vector(op->weight, (int64_t)op->weight->rows * op->weight->cols, run->shared);
    const int64_t work = (int64_t)op->weight->rows * op->weight->cols * loop.x_cols;
    sumi_parallel(run->workers, run->row_end - run->row_begin, min_range(work > 4096 ? 4096 : (int32_t)work),
                  kronecker_add, &loop);
    return SUMI_OK;
}

sumi_cpu_scratch sumi_cpu_kronecker_scratch(const sumi_cpu_kernels* kernels, const sumi_plan* plan, const sumi_op* op)
{
    (void)kernels;
    return (sumi_cpu_scratch){(uint64_t)op->weight->rows * (uint64_t)op->weight->cols * sizeof(float),
                              (uint64_t)sumi_plan_info(plan, op->in[0])->cols * sizeof(float)};
}

// ---- ACTIVATE, GATED ------------------------------------------------------------------------------------------------
static void activate(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    (void)worker_index;
    row_loop* loop = context;
    int64_t at = (int64_t)(loop->run->row_begin + begin) * loop->cols;
    loop->run->kernels->activate(loop->run->op->u.activate.activation, loop->y + at, loop->x + at,
                                 (size_t)(end - begin) * (size_t)loop->cols);
}

sumi_result sumi_cpu_activate(sumi_cpu_run* run)
{
    int32_t cols = sumi_cpu_cols(run, run->op->out);
    int64_t first = (int64_t)run->op->u.activate.row * cols;
    row_loop loop = {.run = run,
                     .x = (const float*)sumi_cpu_value(run, run->op->in[0]) + first,
                     .y = (float*)sumi_cpu_value(run, run->op->out) + first,
                     .cols = cols,
                     .x_cols = cols};
    // the split does not change the result: activate gives elements past the last whole vector the same arithmetic
    over_rows(&loop, activate);
    return SUMI_OK;
}

static void gated(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    (void)worker_index;
    row_loop* loop = context;
    for (int32_t r = loop->run->row_begin + begin; r < loop->run->row_begin + end; r++) {
        const float* x = loop->x + (int64_t)r * loop->x_cols;
        const int32_t half = loop->x_cols / 2;
        loop->run->kernels->gated(loop->run->op->u.gated.activation, loop->y + (int64_t)r * loop->cols, x, x + half,
                                  (size_t)half);
    }
}

sumi_result sumi_cpu_gated(sumi_cpu_run* run)
{
    SUMI_ASSERT(sumi_cpu_cols(run, run->op->in[0]) <= 2 * sumi_cpu_cols(run, run->op->out));
    row_loop loop = {.run = run,
                     .x = sumi_cpu_value(run, run->op->in[0]),
                     .y = (float*)sumi_cpu_value(run, run->op->out) + run->op->u.gated.y_column,
                     .cols = sumi_cpu_cols(run, run->op->out),
                     .x_cols = sumi_cpu_cols(run, run->op->in[0])};
    over_rows(&loop, gated);
    return SUMI_OK;
}

// ---- NORM_MODULATE, NORM_GATE_ADD -----------------------------------------------------------------------------------

// The row of a table that applies to `row` of the op.
static const float* in_band(const float* table, int32_t pitch, const sumi_row_band* bands, int32_t band_count,
                            int32_t row)
{
    if (table == NULL || band_count == 0) return table;
    int32_t i = 0;
    while (row >= bands[i].end) {
        i++;
        SUMI_ASSERT(i < band_count);
    }
    return table + (int64_t)bands[i].table_row * pitch;
}

static int32_t step_pitch(const sumi_cpu_run* run, sumi_step_row step)
{
    return step.table.id != 0 ? sumi_cpu_cols(run, step.table) : 0;
}

// Copies the weight of a norm as floats into `into`, from the op's weight or from the value that replaces it. NULL:
// neither. The caller may change the copy.
static float* take_weight(const sumi_cpu_run* run, const sumi_weight* weight, sumi_value value, int32_t cols,
                          float* into)
{
    SUMI_ASSERT(weight == NULL || value.id == 0);
    if (weight == NULL && value.id == 0) return NULL;
    if (weight != NULL) {
        sumi_cpu_vector(weight, cols, into);
    } else {
        memcpy(into, sumi_cpu_value(run, value), (size_t)cols * sizeof *into);
    }
    return into;
}

#define ACTIVATED_TOGETHER 2048 // floats: they stay in the L1 cache

static void norm_modulate(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    (void)worker_index;
    row_loop* loop = context;
    const sumi_op* op = loop->run->op;
    const sumi_cpu_kernels* kernels = loop->run->kernels;
    // Several narrow rows are activated at once: the few vectors of a single row do not hide the latency of the
    // activation.
    const int32_t together = loop->cols >= ACTIVATED_TOGETHER ? 1 : ACTIVATED_TOGETHER / loop->cols;
    int32_t waiting = 0;
    for (int32_t r = loop->run->row_begin + begin; r < loop->run->row_begin + end; r++) {
        const float* x = loop->x + (int64_t)(op->u.norm.x_row + r) * loop->cols;
        // the mean first: E[x^2] - mean^2 loses the variance of rows with a large mean
        float mean = op->u.norm.norm == SUMI_NORM_LAYER ? kernels->sum(x, loop->cols) / (float)loop->cols : 0.0f;
        float factor = 1.0f / sqrtf(kernels->sum_squares(x, mean, loop->cols) / (float)loop->cols + op->u.norm.eps);
        float* y = loop->y + (int64_t)(op->u.norm.y_row + r) * loop->cols;
        const float *scale = in_band(loop->scale, loop->scale_pitch, op->u.norm.bands, op->u.norm.band_count, r),
                    *shift = in_band(loop->shift, loop->shift_pitch, op->u.norm.bands, op->u.norm.band_count, r);
        kernels->normalise(y, x, mean, factor, loop->w, scale, shift, loop->cols);
        if (!op->u.norm.silu) continue;
        if (++waiting < together && r + 1 < loop->run->row_begin + end) continue;
        float* first = y - (int64_t)(waiting - 1) * loop->cols;
        kernels->activate(SUMI_ACT_SILU, first, first, (size_t)waiting * (size_t)loop->cols);
        waiting = 0;
    }
}

sumi_result sumi_cpu_norm_modulate(sumi_cpu_run* run)
{
    const sumi_op* op = run->op;
    int32_t cols = sumi_cpu_cols(run, op->out);
    row_loop loop = {.run = run,
                     .x = sumi_cpu_value(run, op->in[0]),
                     .y = sumi_cpu_value(run, op->out),
                     .cols = cols,
                     .x_cols = cols};
    loop.scale = sumi_cpu_step(run, op->u.norm.scale);
    loop.shift = sumi_cpu_step(run, op->u.norm.shift);
    loop.scale_pitch = step_pitch(run, op->u.norm.scale);
    loop.shift_pitch = step_pitch(run, op->u.norm.shift);
    float* w = take_weight(run, op->weight, op->in[3], cols, run->shared);
    for (int32_t c = 0; w != NULL && op->u.norm.weight_plus_one && c < cols; c++) w[c] += 1.0f;
    loop.w = w;
    if (op->bias != NULL) { // used in place of a shift
        sumi_cpu_vector(op->bias, cols, run->shared + cols);
        loop.shift = run->shared + cols;
    }
    over_rows(&loop, norm_modulate);
    return SUMI_OK;
}

static void norm_gate_add(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    (void)worker_index;
    row_loop* loop = context;
    const sumi_op* op = loop->run->op;
    const sumi_cpu_kernels* kernels = loop->run->kernels;
    for (int32_t r = loop->run->row_begin + begin; r < loop->run->row_begin + end; r++) {
        const float* b = loop->b + (int64_t)(op->u.gate_add.b_row + r) * loop->cols;
        int64_t at = (int64_t)(op->u.gate_add.x_row + r) * loop->cols;
        float factor = 1.0f / sqrtf(kernels->sum_squares(b, 0.0f, loop->cols) / (float)loop->cols + op->u.gate_add.eps);
        const float* gate = in_band(loop->scale, loop->scale_pitch, op->u.gate_add.bands, op->u.gate_add.band_count, r);
        kernels->gate_add(loop->y + at, loop->x + at, b, factor, loop->w, gate, loop->cols);
    }
}

sumi_result sumi_cpu_norm_gate_add(sumi_cpu_run* run)
{
    const sumi_op* op = run->op;
    int32_t cols = sumi_cpu_cols(run, op->out);
    row_loop loop = {.run = run,
                     .x = sumi_cpu_value(run, op->in[0]),
                     .b = sumi_cpu_value(run, op->in[1]),
                     .y = sumi_cpu_value(run, op->out),
                     .cols = cols,
                     .x_cols = cols};
    loop.scale = sumi_cpu_step(run, op->u.gate_add.gate);
    loop.scale_pitch = step_pitch(run, op->u.gate_add.gate);
    loop.w = take_weight(run, op->weight, op->in[3], cols, run->shared);
    over_rows(&loop, norm_gate_add);
    return SUMI_OK;
}

// ---- QK_NORM_ROPE ---------------------------------------------------------------------------------------------------
static void qk_norm_rope(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    (void)worker_index;
    row_loop* loop = context;
    const sumi_op* op = loop->run->op;
    const sumi_cpu_kernels* kernels = loop->run->kernels;
    int32_t dim = op->u.qk.dim, pairs = loop->table == NULL ? 0 : sumi_cpu_cols(loop->run, op->in[1]) / 2;
    for (int32_t r = loop->run->row_begin + begin; r < loop->run->row_begin + end; r++) {
        float* x = loop->y + (int64_t)(op->u.qk.row + r) * loop->cols;
        for (int32_t head = 0; head < op->u.qk.q_heads + op->u.qk.kv_heads; head++, x += dim) {
            const float* w = head < op->u.qk.q_heads ? loop->w : loop->k_w;
            if (w != NULL) {
                float factor = 1.0f / sqrtf(kernels->sum_squares(x, 0.0f, dim) / (float)dim + op->u.qk.eps);
                kernels->normalise(x, x, 0.0f, factor, w, NULL, NULL, dim);
            }
            if (pairs > 0)
                kernels->rotate(x, loop->table + (int64_t)(op->u.qk.rope_row + r) * 2 * pairs, pairs, op->u.qk.rotary);
        }
    }
}

sumi_result sumi_cpu_qk_norm_rope(sumi_cpu_run* run)
{
    SUMI_ASSERT(run->op->u.qk.dim >= 1 && run->op->u.qk.q_heads >= 1 && run->op->u.qk.kv_heads >= 1);
    const sumi_op* op = run->op;
    int32_t cols = sumi_cpu_cols(run, op->out);
    row_loop loop = {.run = run, .y = sumi_cpu_value(run, op->out), .cols = cols, .x_cols = cols};
    loop.table = op->u.qk.rotary == SUMI_ROTARY_NONE ? NULL : sumi_cpu_value(run, op->in[1]);
    loop.w = take_weight(run, op->weight, op->in[2], op->u.qk.dim, run->shared);
    loop.k_w = take_weight(run, op->u.qk.k_weight, op->in[3], op->u.qk.dim, run->shared + op->u.qk.dim);
    over_rows(&loop, qk_norm_rope);
    return SUMI_OK;
}

sumi_cpu_scratch sumi_cpu_rows_scratch(const sumi_cpu_kernels* kernels, const sumi_plan* plan, const sumi_op* op)
{
    (void)kernels;
    const uint64_t cols = (uint64_t)sumi_plan_info(plan, op->out)->cols;
    uint64_t floats = op->kind == SUMI_OP_QK_NORM_ROPE ? 2 * (uint64_t)op->u.qk.dim
                    : op->kind == SUMI_OP_EMBED_ROWS   ? (op->bias != NULL ? cols : 0)
                                                       : cols * (op->bias != NULL ? 2 : 1); // weight, bias
    const bool converts = op->kind == SUMI_OP_EMBED_ROWS && op->in[2].id != 0;
    return (sumi_cpu_scratch){floats * sizeof(float), converts ? cols * sizeof(float) : 0};
}

// ---- ROPE_TABLE, TIME_EMBED, FINISH_MODULATION ----------------------------------------------------------------------
// As in the references: frequency and product in double, the angle rounded to float, then its cosine and sine. A row of
// the table is (cos, sin) for each pair.
static void rope_table(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    (void)worker_index;
    row_loop* loop = context;
    const sumi_op* op = loop->run->op;
    for (int32_t pair = 0; pair < loop->cols / 2; pair++) {
        const sumi_rope_pair from = sumi_plan_rope_pair(op, pair);
        for (int32_t r = loop->run->row_begin + begin; r < loop->run->row_begin + end; r++) {
            float angle = (float)(loop->ids[(int64_t)r * op->u.rope.axes + from.axis] * from.frequency);
            loop->y[(int64_t)r * loop->cols + 2 * pair] = (float)cos((double)angle);
            loop->y[(int64_t)r * loop->cols + 2 * pair + 1] = (float)sin((double)angle);
        }
    }
}

sumi_result sumi_cpu_rope_table(sumi_cpu_run* run)
{
    int32_t cols = sumi_cpu_cols(run, run->op->out);
    row_loop loop = {.run = run,
                     .ids = sumi_cpu_value(run, run->op->in[0]),
                     .y = sumi_cpu_value(run, run->op->out),
                     .cols = cols,
                     .x_cols = 64 * cols};
    over_rows(&loop, rope_table);
    return SUMI_OK;
}

sumi_result sumi_cpu_time_embed(sumi_cpu_run* run)
{
    SUMI_ASSERT(run->op->u.time.max_period > 0.0f);
    const sumi_op* op = run->op;
    const float* times = sumi_cpu_value(run, op->in[0]);
    float* y = sumi_cpu_value(run, op->out);
    int32_t width = sumi_cpu_cols(run, op->out), half = width / 2;
    for (int32_t r = run->row_begin; r < run->row_end; r++, times++) {
        float u = times[run->row_begin] * op->u.time.scale, *row = y + (int64_t)r * width;
        // float in every step, as in the reference: u reaches 1000, so the last bit of the frequency matters
        for (int32_t i = 0; i < half; i++) {
            float frequency = (float)exp((double)((float)-log((double)op->u.time.max_period) * (float)i / (float)half));
            double angle = (double)(u * frequency);
            row[op->u.time.cos_first ? i : half + i] = (float)cos(angle);
            row[op->u.time.cos_first ? half + i : i] = (float)sin(angle);
        }
        if (width % 2 == 1) row[width - 1] = 0.0f;
    }
    return SUMI_OK;
}

sumi_result sumi_cpu_finish_modulation(sumi_cpu_run* run)
{
    const sumi_op_finish_modulation* finish = &run->op->u.finish;
    SUMI_ASSERT(finish->vector_count >= 1 && finish->vector_count <= 32
                && sumi_cpu_cols(run, run->op->out) % finish->vector_count == 0);
    int32_t cols = sumi_cpu_cols(run, run->op->out), vector_cols = cols / finish->vector_count;
    int64_t first = finish->x_row + (finish->per_step ? run->counter : 0);
    const float* x = sumi_cpu_value(run, run->op->in[0]);
    float* y = sumi_cpu_value(run, run->op->out);
    for (int32_t r = run->row_begin; r < run->row_end; r++) {
        const float* from = x + (first + r) * cols;
        float* to = y + (int64_t)r * cols;
        for (int32_t c = 0; c < cols; c++) {
            int32_t vector = c / vector_cols;
            bool squashes = (finish->applies_tanh >> vector & 1) != 0, adds_one = (finish->adds_one >> vector & 1) != 0;
            to[c] = squashes ? (float)tanh((double)from[c]) : adds_one ? 1.0f + from[c] : from[c];
        }
    }
    return SUMI_OK;
}
