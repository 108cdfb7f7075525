// Launchers of the ops that work row by row on token matrices: embedding, norms, rotary, gating, tables of positions
// and times, residuals. The kernels are in kernels/rows.cu, norms.cu, rows_fp8.cu, rows_int8.cu and residuals.cu.
// Columns and element types decide which kernel runs. A grid only distributes rows to blocks, so slices change no bits.
#include "base/numbers.h"
#include "cuda/arrange.h"
#include "cuda/launch.h"
#include "device/choose_forms.h"
#include "device/form.h"
#include "device/stored.h"
#include "kernels/residuals.h"
#include "kernels/rows.h"
#include <math.h>

_Static_assert(SUMI_ACT_NONE == 0 && SUMI_ACT_SILU == 1 && SUMI_ACT_GELU_TANH == 2 && SUMI_ACT_GELU_ERF == 3
                   && SUMI_ACT_QUICK_GELU == 4 && SUMI_ACT_TANH == 5,
               "kernels/rows.cu switches on these numbers");

// Per multiprocessor. More blocks gain nothing, because the kernels have grid-stride loops over rows.
#define ELEMENTWISE_BLOCKS 16
#define ANY_BLOCKS 4 // for the kernels for any width

static sumi_rows_matrix matrix_of(const sumi_cuda_run* run, sumi_value value)
{
    return (sumi_rows_matrix){sumi_cuda_value(run, value), sumi_cuda_element(run, value) == SUMI_ELEMENT_FLOAT, 0};
}

// One block per unit of work, at most `most` per multiprocessor. Zero blocks without work.
static sumi_cuda_grid row_grid(const sumi_cuda_run* run, int64_t units, int32_t max_blocks)
{
    return (sumi_cuda_grid){(uint32_t)sumi_min_int64(units, (int64_t)run->device->multiprocessors * max_blocks), 1, 1,
                            SUMI_ROWS_THREADS, 0};
}
static int64_t blocks_of(int64_t units, int64_t per_block) { return (units + per_block - 1) / per_block; }

// Threads of an elementwise kernel along a row: a power of two, at most a block.
static int32_t lanes_log2_of(int32_t cols, bool is_vector)
{
    int32_t units = is_vector ? cols / 8 : cols, log2 = 0;
    while ((1 << log2) < units && (1 << log2) < SUMI_ROWS_THREADS) log2++;
    return log2;
}
static sumi_cuda_grid elementwise_grid(const sumi_cuda_run* run, int64_t rows, int32_t lanes_log2)
{
    return row_grid(run, blocks_of(rows, SUMI_ROWS_THREADS >> lanes_log2), ELEMENTWISE_BLOCKS);
}

// ---- EMBED_ROWS, FILL_ROWS, COPY_ROWS, MEAN_ROWS --------------------------------------------------------------------
sumi_result sumi_cuda_embed_rows(sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    const sumi_cuda_range rows = sumi_cuda_rows_of(run);
    const bool is_value = op->weight == NULL;
    const sumi_device_weight table = is_value ? (sumi_device_weight){.data = sumi_cuda_value(run, op->in[1]),
                                                                     .pitch = sumi_cuda_cols(run, op->in[1])}
                                              : sumi_cuda_find_weight(run, op->weight);
    sumi_embed_rows_args args = {
        .ids = sumi_cuda_value(run, op->in[0]), .table = table.data, .y = matrix_of(run, op->out)};
    args.factors = op->in[2].id != 0 ? sumi_cuda_value(run, op->in[2]) : 0;
    args.terms = op->u.embed.terms;
    args.bias = sumi_cuda_find_weight(run, op->bias).data;
    args.table_rows = is_value ? sumi_cuda_rows(run, op->in[1]) : op->weight->rows;
    args.pitch = table.pitch;
    args.piece_rows = table.piece_rows;
    args.cols = sumi_cuda_cols(run, op->out);
    args.row_begin = rows.begin;
    args.row_end = rows.end;
    args.is_vector = !args.y.is_float && args.cols % 8 == 0;
    args.lanes_log2 = lanes_log2_of(args.cols, args.is_vector);
    args.scale = op->u.embed.scale;
    const char* name = "sumi_embed_rows";
    if ((op->marks & SUMI_DEVICE_OP_STORED) != 0) {
        sumi_device_stored_tensor tensors[SUMI_WEIGHT_MAX_TENSORS];
        (void)sumi_device_stored_tensors(op->weight, SUMI_DEVICE_FORM_STORED, tensors);
        name = "sumi_embed_rows_stored";
        args.pitch = (int32_t)tensors[0].row_bytes;
        args.type = tensors[0].type;
        args.type_scale = tensors[0].scale;
        args.lanes_log2 = lanes_log2_of(args.cols, true);
    }
    if (args.factors != 0) name = "sumi_mix_rows";
    return sumi_cuda_launch_args(run, name, elementwise_grid(run, rows.end - rows.begin, args.lanes_log2), &args);
}

sumi_result sumi_cuda_fill_rows(sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    const sumi_cuda_range spans = sumi_cuda_rows_of(run);
    sumi_fill_rows_args args = {.row = sumi_cuda_find_weight(run, op->weight).data,
                                .y = matrix_of(run, op->out),
                                .cols = sumi_cuda_cols(run, op->out)};
    args.is_vector = !args.y.is_float && args.cols % 8 == 0;
    args.lanes_log2 = lanes_log2_of(args.cols, args.is_vector);
    for (int32_t first = spans.begin; first < spans.end; first += SUMI_ROWS_BATCH) {
        int64_t largest_count = 0;
        for (args.span_count = 0; args.span_count < SUMI_ROWS_BATCH && first + args.span_count < spans.end;
             args.span_count++) {
            const sumi_span span = op->u.fill.spans[first + args.span_count];
            args.begin[args.span_count] = span.begin;
            args.count[args.span_count] = span.count;
            largest_count = span.count > largest_count ? span.count : largest_count;
        }
        sumi_cuda_grid grid = elementwise_grid(run, largest_count, args.lanes_log2);
        grid.y = (uint32_t)args.span_count;
        SUMI_TRY(sumi_cuda_launch_args(run, "sumi_fill_rows", grid, &args));
    }
    return SUMI_OK;
}

// Into some columns of a wider value, of the same type; or kept keys and values, whose k becomes e4m3.
static sumi_result copy_columns(sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    const sumi_cuda_range rows = sumi_cuda_rows_of(run);
    const sumi_element element = sumi_cuda_element(run, op->out);
    if (element != sumi_cuda_element(run, op->in[0]))
        return sumi_fail(run->error, SUMI_INTERNAL, "%s: columns are copied to another type", op->label);
    const int64_t bytes = (int64_t)sumi_plan_element_bytes(run->plan, element);
    sumi_copy_columns_args args = {.rows = rows.end - rows.begin,
                                   .row_bytes = sumi_cuda_cols(run, op->in[0]) * bytes,
                                   .x_pitch = sumi_cuda_pitch(run, op->in[0]) * bytes,
                                   .y_pitch = sumi_cuda_cols(run, op->out) * bytes};
    args.x = sumi_cuda_value(run, op->in[0]) + (uint64_t)((op->u.copy.from + rows.begin) * args.x_pitch);
    args.y = sumi_cuda_value(run, op->out)
           + (uint64_t)((op->u.copy.to + rows.begin) * args.y_pitch + op->u.copy.y_column * bytes);
    if (sumi_cuda_is_kept_e4m3(run, op->out))
        return sumi_cuda_launch_args(run, "sumi_copy_kept_fp8", row_grid(run, args.rows, ELEMENTWISE_BLOCKS), &args);
    args.lanes_log2 = lanes_log2_of((int32_t)((args.row_bytes + 15) / 16), false);
    return sumi_cuda_launch_args(run, "sumi_copy_columns", elementwise_grid(run, args.rows, args.lanes_log2), &args);
}

sumi_result sumi_cuda_copy_rows(sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    if (sumi_cuda_cols(run, op->in[0]) != sumi_cuda_cols(run, op->out)
        || sumi_cuda_cols(run, op->in[0]) != sumi_cuda_pitch(run, op->in[0]) || sumi_cuda_is_kept_e4m3(run, op->out))
        return copy_columns(run);
    const sumi_cuda_range rows = sumi_cuda_rows_of(run);
    const int64_t cols = sumi_cuda_cols(run, op->in[0]), count = (rows.end - rows.begin) * cols;
    const sumi_element from = sumi_cuda_element(run, op->in[0]), to = sumi_cuda_element(run, op->out);
    const uint64_t from_bytes = sumi_plan_element_bytes(run->plan, from),
                   to_bytes = sumi_plan_element_bytes(run->plan, to);
    const uint64_t x =
        sumi_cuda_value(run, op->in[0]) + (uint64_t)((op->u.copy.from + (int64_t)rows.begin) * cols) * from_bytes;
    const uint64_t y =
        sumi_cuda_value(run, op->out) + (uint64_t)((op->u.copy.to + (int64_t)rows.begin) * cols) * to_bytes;
    if (op->in[0].id == op->out.id && op->u.copy.from < op->u.copy.to + op->rows
        && op->u.copy.to < op->u.copy.from + op->rows)
        return sumi_fail(run->error, SUMI_INTERNAL, "%s: rows are copied onto themselves", op->label);
    if (from == to) {
        sumi_copy_bytes_args args = {x, y, (uint64_t)count * from_bytes};
        return sumi_cuda_launch_args(
            run, "sumi_copy_bytes",
            row_grid(run, blocks_of(count * (int64_t)from_bytes, 16 * SUMI_ROWS_THREADS), ELEMENTWISE_BLOCKS), &args);
    }
    if (from == SUMI_ELEMENT_BYTE || from == SUMI_ELEMENT_INT || to == SUMI_ELEMENT_BYTE || to == SUMI_ELEMENT_INT)
        return sumi_fail(run->error, SUMI_INTERNAL, "%s: rows of integers are copied to another type", op->label);
    sumi_activate_args args = {
        .x = {x, from == SUMI_ELEMENT_FLOAT, 0}, .y = {y, to == SUMI_ELEMENT_FLOAT, 0}, .end = count};
    return sumi_cuda_launch_args(run, "sumi_activate",
                                 row_grid(run, blocks_of(count, SUMI_ROWS_THREADS), ELEMENTWISE_BLOCKS), &args);
}

sumi_result sumi_cuda_mean_rows(sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    const sumi_cuda_range spans = sumi_cuda_rows_of(run);
    sumi_mean_rows_args args = {
        .x = matrix_of(run, op->in[0]), .y = matrix_of(run, op->out), .cols = sumi_cuda_cols(run, op->out)};
    for (args.y_row = spans.begin; args.y_row < spans.end; args.y_row += args.span_count) {
        args.span_count = (int32_t)sumi_min_int64(spans.end - args.y_row, SUMI_ROWS_BATCH);
        for (int32_t i = 0; i < args.span_count; i++) {
            args.begin[i] = op->u.mean.spans[args.y_row + i].begin;
            args.count[i] = op->u.mean.spans[args.y_row + i].count;
        }
        sumi_cuda_grid grid = row_grid(run, blocks_of(args.cols, 32), ELEMENTWISE_BLOCKS);
        grid.y = (uint32_t)args.span_count;
        SUMI_TRY(sumi_cuda_launch_args(run, "sumi_mean_rows", grid, &args));
    }
    return SUMI_OK;
}

// ---- ADD_ROWS, RESIDUAL_CHANGE, ADD_RESIDUAL ------------------------------------------------------------------------
sumi_result sumi_cuda_add_rows(sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    const sumi_cuda_range rows = sumi_cuda_rows_of(run);
    const int64_t cols = sumi_cuda_cols(run, op->out), count = (rows.end - rows.begin) * cols;
    sumi_add_rows_args args = {.x = matrix_of(run, op->in[0]),
                               .y = matrix_of(run, op->out),
                               .begin = rows.begin * cols,
                               .end = rows.end * cols,
                               .scale = op->u.add.scale};
    args.x.data += (uint64_t)(op->u.add.from * cols) * (args.x.is_float ? sizeof(float) : sizeof(uint16_t));
    args.y.data += (uint64_t)(op->u.add.to * cols) * (args.y.is_float ? sizeof(float) : sizeof(uint16_t));
    args.is_vector = !args.x.is_float && !args.y.is_float && cols % 8 == 0;
    return sumi_cuda_launch_args(
        run, "sumi_add_rows",
        row_grid(run, blocks_of(count, (args.is_vector ? 8 : 1) * SUMI_ROWS_THREADS), ELEMENTWISE_BLOCKS), &args);
}

sumi_result sumi_cuda_residual_change(sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    const int64_t cols = sumi_cuda_cols(run, op->in[0]);
    sumi_residual_change_args args = {.x = matrix_of(run, op->in[0]),
                                      .before = matrix_of(run, op->in[1]),
                                      .kept = matrix_of(run, op->in[2]),
                                      .change = sumi_cuda_value(run, op->out),
                                      .part_size = op->range_rows * cols,
                                      .count = op->rows * cols,
                                      .part_begin = run->range_begin,
                                      .part_end = run->range_end};
    args.is_vector = !args.x.is_float && !args.before.is_float && !args.kept.is_float && cols % 8 == 0;
    return sumi_cuda_launch_args(run, "sumi_residual_change",
                                 row_grid(run, args.part_end - args.part_begin, ELEMENTWISE_BLOCKS), &args);
}

sumi_result sumi_cuda_add_residual(sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    const sumi_op_add_residual* of = &op->u.add_residual;
    const sumi_cuda_range rows = sumi_cuda_rows_of(run);
    const int64_t cols = sumi_cuda_cols(run, op->out), count = (rows.end - rows.begin) * cols;
    const uint64_t sigmas = sumi_cuda_value(run, op->in[3]) + (uint64_t)of->column * sizeof(float);
    sumi_add_residual_args args = {.x = matrix_of(run, op->out),
                                   .residual = matrix_of(run, op->in[1]),
                                   .change = matrix_of(run, op->in[2]),
                                   .older_sigma = sigmas,
                                   .newer_sigma = sigmas + (uint64_t)sumi_cuda_cols(run, op->in[3]) * sizeof(float),
                                   .counter = run->counter,
                                   .sigma = sumi_cuda_step_of(run, of->sigma),
                                   .begin = rows.begin * cols,
                                   .end = rows.end * cols,
                                   .most = of->most};
    args.is_vector = !args.x.is_float && !args.residual.is_float && !args.change.is_float && cols % 8 == 0;
    return sumi_cuda_launch_args(
        run, "sumi_add_residual",
        row_grid(run, blocks_of(count, (args.is_vector ? 8 : 1) * SUMI_ROWS_THREADS), ELEMENTWISE_BLOCKS), &args);
}

// ---- KRONECKER_ADD --------------------------------------------------------------------------------------------------
sumi_result sumi_cuda_kronecker_add(sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    const sumi_op_kronecker_add* k = &op->u.kronecker;
    const sumi_cuda_range rows = sumi_cuda_rows_of(run);
    sumi_kronecker_add_args args = {.x = matrix_of(run, op->in[0]),
                                    .y = matrix_of(run, op->out),
                                    .w = sumi_cuda_find_weight(run, op->weight).data,
                                    .counter = run->counter};
    if (args.w == 0)
        return sumi_fail(run->error, SUMI_INTERNAL, "%s: the weight %s is not on the device", op->label,
                         op->weight->name);
    args.gate = sumi_cuda_step_of(run, k->gate);
    args.w_rows = op->weight->rows;
    args.x_cols = sumi_cuda_cols(run, op->in[0]);
    args.w_cols = op->weight->cols;
    args.ldy = sumi_cuda_cols(run, op->out);
    args.column = k->y_column;
    args.half = sumi_cuda_is_gated(run, op->out) ? args.ldy / 2 : 0;
    args.y_row = k->y_row;
    args.row_begin = rows.begin;
    args.row_end = rows.end;
    args.scale = k->scale;
    const bool is_vector =
        !args.x.is_float && !args.y.is_float && ((args.x_cols | args.ldy | args.column | args.half) & 7) == 0;
    const int32_t units = (args.w_rows + 7) / 8 * (is_vector ? args.x_cols / 8 : args.x_cols);
    args.lanes_log2 = lanes_log2_of(units, false);
    return sumi_cuda_launch_args(run, is_vector ? "sumi_kronecker_add" : "sumi_kronecker_add_any",
                                 elementwise_grid(run, rows.end - rows.begin, args.lanes_log2), &args);
}

// ---- ACTIVATE, GATED ------------------------------------------------------------------------------------------------
sumi_result sumi_cuda_activate(sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    const sumi_cuda_range rows = sumi_cuda_rows_of(run);
    const int64_t cols = sumi_cuda_cols(run, op->out), first = op->u.activate.row * cols;
    sumi_activate_args args = {.x = matrix_of(run, op->in[0]),
                               .y = matrix_of(run, op->out),
                               .begin = first + rows.begin * cols,
                               .end = first + rows.end * cols};
    args.activation = (int32_t)op->u.activate.activation;
    args.is_vector = !args.x.is_float && !args.y.is_float && args.begin % 8 == 0;
    const int64_t per_block = (args.is_vector ? 8 : 1) * SUMI_ROWS_THREADS;
    return sumi_cuda_launch_args(run, "sumi_activate",
                                 row_grid(run, blocks_of(args.end - args.begin, per_block), ELEMENTWISE_BLOCKS), &args);
}

sumi_result sumi_cuda_gated(sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    if (sumi_cuda_is_fused_gated(run->plan, run->op_index)) return SUMI_OK; // the product wrote it
    const sumi_cuda_range rows = sumi_cuda_rows_of(run);
    sumi_gated_args args = {.x = matrix_of(run, op->in[0]),
                            .y = matrix_of(run, op->out),
                            .cols = sumi_cuda_cols(run, op->in[0]) / 2,
                            .ldy = sumi_cuda_cols(run, op->out)};
    args.y.data += (uint64_t)op->u.gated.y_column * (args.y.is_float ? 4 : 2);
    args.row_begin = rows.begin;
    args.row_end = rows.end;
    args.activation = (int32_t)op->u.gated.activation;
    args.is_interleaved = sumi_cuda_is_gated(run, op->in[0]);
    args.is_vector = !args.x.is_float && !args.y.is_float && (args.cols | args.ldy | op->u.gated.y_column) % 8 == 0;
    args.lanes_log2 = lanes_log2_of(args.cols, args.is_vector);
    return sumi_cuda_launch_args(run, "sumi_gated", elementwise_grid(run, rows.end - rows.begin, args.lanes_log2),
                                 &args);
}

// ---- NORM_MODULATE, NORM_GATE_ADD -----------------------------------------------------------------------------------
// Whether the kernels that keep a row in registers can be used.
static bool fits_registers(int32_t cols, bool is_bf16) { return is_bf16 && cols % 8 == 0 && cols <= SUMI_ROW_MAX_COLS; }
// One block per row, up to as many as the registers of a multiprocessor allow, which suffice for `limit` threads.
static sumi_cuda_grid rows_grid(const sumi_cuda_run* run, int64_t rows, int32_t cols, int32_t matrices, int32_t limit)
{
    const int32_t threads = SUMI_ROW_THREADS_OF(cols);
    sumi_cuda_grid grid = row_grid(run, rows, limit / threads);
    grid.block = (uint32_t)threads;
    grid.shared_bytes = (uint32_t)SUMI_ROW_SHARED_BYTES(threads, matrices);
    return grid;
}

// The norms with SiLU compute several rows per warp. For each kernel, by the most columns it takes: rows per block, and
// blocks per multiprocessor by registers.
enum { NORM_SILU_SIZES = 3 };
static const struct norm_silu_size {
    const char* name;
    int32_t cols, rows, blocks;
} s_norm_silu_sizes[NORM_SILU_SIZES + 1] = {{"sumi_norm_silu_128", 128, 16, 4},
                                            {"sumi_norm_silu_256", 256, 8, 4},
                                            {"sumi_norm_silu_512", 512, 8, 3},
                                            {"sumi_norm_silu_any", INT32_MAX, 1, ANY_BLOCKS}};
// Address of floats: the weight, or the value that replaces it. 0: neither.
static CUdeviceptr norm_weight(const sumi_cuda_run* run, const sumi_weight* weight, sumi_value value)
{
    return value.id != 0 ? sumi_cuda_value(run, value) : sumi_cuda_find_weight(run, weight).data;
}

// All arguments except the rows and the rows of step tables, which depend on the band.
static sumi_norm_modulate_args norm_modulate_args(const sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    sumi_norm_modulate_args args = {.x = matrix_of(run, op->in[0]),
                                    .y = matrix_of(run, op->out),
                                    .w = norm_weight(run, op->weight, op->in[3]),
                                    .counter = run->counter};
    if (sumi_cuda_operands_of(run, op->out) != SUMI_CUDA_BF16) args.y_scales = sumi_cuda_quantised_scales(run, op->out);
    args.cols = sumi_cuda_cols(run, op->out);
    args.x_row = op->u.norm.x_row;
    args.y_row = op->u.norm.y_row;
    args.is_layer = op->u.norm.norm == SUMI_NORM_LAYER;
    args.plus_one = op->u.norm.weight_plus_one;
    args.eps = op->u.norm.eps;
    return args;
}

// Iterates over bands of rows. Kernels keep a row of a step table in registers for all rows that they compute, so each
// band is a launch. Returns true while there is a band; *index is 0 at first.
typedef struct row_bands {
    const sumi_row_band* bands;
    int32_t count;
    sumi_cuda_range rows; // of the op
} row_bands;
static bool next_band(const row_bands* step_bands, int32_t* index, sumi_cuda_range* out_rows, int32_t* out_table_row)
{
    if (step_bands->count == 0) {
        *out_rows = step_bands->rows;
        *out_table_row = 0;
        return (*index)++ == 0;
    }
    for (; *index < step_bands->count; (*index)++) {
        const int32_t first = *index > 0 ? step_bands->bands[*index - 1].end : 0, end = step_bands->bands[*index].end;
        out_rows->begin = first > step_bands->rows.begin ? first : step_bands->rows.begin;
        out_rows->end = end < step_bands->rows.end ? end : step_bands->rows.end;
        *out_table_row = step_bands->bands[*index].table_row;
        if (out_rows->begin < out_rows->end) {
            (*index)++;
            return true;
        }
    }
    return false;
}

// The step table's row for a band: table_row rows further down.
static sumi_step step_in_band(const sumi_cuda_run* run, sumi_step_row row, int32_t table_row)
{
    sumi_step step = sumi_cuda_step_of(run, row);
    if (step.table == 0) return step;
    step.table += (uint64_t)table_row * (uint64_t)sumi_cuda_cols(run, row.table) * (step.is_float ? 4 : 2);
    return step;
}

// A bias is a shift that is the same in every step.
static sumi_step shift_in_band(const sumi_cuda_run* run, const sumi_op* norm, int32_t table_row)
{
    return norm->bias == NULL ? step_in_band(run, norm->u.norm.shift, table_row)
                              : (sumi_step){.table = sumi_cuda_find_weight(run, norm->bias).data, .is_float = 1};
}

// The kernels by the type that they write.
static const struct norm_names {
    const char *rows, *any, *pair;
    int32_t limit; // of `rows`: threads per multiprocessor that the kernel's registers allow
} s_norm_names[] = {
    [SUMI_CUDA_BF16] = {"sumi_norm_modulate_rows", "sumi_norm_modulate_any", "sumi_norm_pair_rows", SUMI_NORM_LIMIT},
    [SUMI_CUDA_E4M3] = {"sumi_norm_modulate_fp8_rows", "sumi_norm_modulate_fp8_any", "sumi_norm_pair_fp8_rows",
                        SUMI_NORM_FP8_LIMIT},
    [SUMI_CUDA_INT8] = {"sumi_norm_modulate_int8_rows", "sumi_norm_modulate_int8_any", "sumi_norm_pair_int8_rows",
                        SUMI_NORM_LIMIT}};
static const struct norm_names* norm_names_of(const sumi_cuda_run* run, const sumi_norm_modulate_args* args)
{
    return &s_norm_names[args->y_scales != 0 ? sumi_device_quantised_operands(run->plan, run->op) : SUMI_CUDA_BF16];
}

static sumi_result norm_modulate_rows(sumi_cuda_run* run, const sumi_norm_modulate_args* band)
{
    sumi_norm_modulate_args args = *band;
    const bool is_bf16 = !args.x.is_float && !args.y.is_float;
    if (run->op->u.norm.silu) {
        const bool is_vector = is_bf16 && args.cols % 8 == 0;
        const struct norm_silu_size* silu = s_norm_silu_sizes;
        while (is_vector ? args.cols > silu->cols : silu->cols < INT32_MAX) silu++;
        return sumi_cuda_launch_args(
            run, silu->name, row_grid(run, blocks_of(args.row_end - args.row_begin, silu->rows), silu->blocks), &args);
    }
    const struct norm_names* names = norm_names_of(run, &args);
    const int64_t rows = args.row_end - args.row_begin;
    if (!fits_registers(args.cols, is_bf16))
        return sumi_cuda_launch_args(run, names->any, row_grid(run, rows, ANY_BLOCKS), &args);
    return sumi_cuda_launch_args(run, names->rows, rows_grid(run, rows, args.cols, 1, names->limit), &args);
}

sumi_result sumi_cuda_norm_modulate(sumi_cuda_run* run)
{
    if (sumi_cuda_is_fused_norm(run->plan, run->op_index) || sumi_cuda_is_fused_conv(run->plan, run->op_index))
        return SUMI_OK; // the op before wrote it
    const sumi_op_norm_modulate* norm = &run->op->u.norm;
    sumi_norm_modulate_args args = norm_modulate_args(run);
    const row_bands step_bands = {norm->bands, norm->band_count, sumi_cuda_rows_of(run)};
    sumi_cuda_range rows;
    for (int32_t i = 0, table_row; next_band(&step_bands, &i, &rows, &table_row);) {
        args.row_begin = rows.begin;
        args.row_end = rows.end;
        args.scale = step_in_band(run, norm->scale, table_row);
        args.shift = shift_in_band(run, run->op, table_row);
        SUMI_TRY(norm_modulate_rows(run, &args));
    }
    return SUMI_OK;
}

// Launches the rows of one band, with the following norm if both are one kernel.
static sumi_result norm_gate_add_rows(sumi_cuda_run* run, const sumi_norm_gate_add_args* args, int32_t table_row)
{
    const int32_t rows = args->row_end - args->row_begin;
    if (sumi_cuda_is_fused_norm(run->plan, run->op_index)) {
        sumi_cuda_run next = *run;
        next.op = &run->plan->ops[++next.op_index];
        sumi_norm_pair_args pair = {*args, norm_modulate_args(&next)};
        // of this op's slice: the work ranges of the other op may be cut elsewhere
        pair.norm.row_begin = args->row_begin;
        pair.norm.row_end = args->row_end;
        pair.norm.scale = step_in_band(run, next.op->u.norm.scale, table_row);
        pair.norm.shift = shift_in_band(run, next.op, table_row);
        return sumi_cuda_launch_args(run, norm_names_of(run, &pair.norm)->pair,
                                     rows_grid(run, rows, args->cols, 2, SUMI_NORM_LIMIT), &pair);
    }
    sumi_norm_gate_add_args copy = *args;
    if (!fits_registers(args->cols, !args->x.is_float && !args->b.is_float))
        return sumi_cuda_launch_args(run, "sumi_norm_gate_add_any", row_grid(run, rows, ANY_BLOCKS), &copy);
    return sumi_cuda_launch_args(run, "sumi_norm_gate_add_rows", rows_grid(run, rows, args->cols, 2, SUMI_NORM_LIMIT),
                                 &copy);
}

sumi_result sumi_cuda_norm_gate_add(sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    sumi_norm_gate_add_args args = {.x = matrix_of(run, op->out),
                                    .b = matrix_of(run, op->in[1]),
                                    .w = norm_weight(run, op->weight, op->in[3]),
                                    .counter = run->counter};
    args.cols = sumi_cuda_cols(run, op->out);
    args.x_row = op->u.gate_add.x_row;
    args.b_row = op->u.gate_add.b_row;
    args.eps = op->u.gate_add.eps;
    const row_bands step_bands = {op->u.gate_add.bands, op->u.gate_add.band_count, sumi_cuda_rows_of(run)};
    sumi_cuda_range rows;
    for (int32_t i = 0, table_row; next_band(&step_bands, &i, &rows, &table_row);) {
        args.row_begin = rows.begin;
        args.row_end = rows.end;
        args.gate = step_in_band(run, op->u.gate_add.gate, table_row);
        SUMI_TRY(norm_gate_add_rows(run, &args, table_row));
    }
    return SUMI_OK;
}

// ---- QK_NORM_ROPE ---------------------------------------------------------------------------------------------------
// Log2 of how many of a block's groups of lanes work on one row. If all rows run at once: as many as there are heads,
// which is fastest. Otherwise: the largest number whose groups have a head in 8 of 9 of their turns, because groups
// without a head take as long. resident: groups of all blocks that run at once.
static int32_t qk_heads_log2(int32_t heads, int32_t groups, int64_t rows, int64_t resident)
{
    int32_t log2 = 0;
    while ((1 << log2) < heads && (1 << log2) < groups) log2++;
    if (rows << log2 <= resident) return log2;
    for (; log2 > 0; log2--) {
        const int32_t round_heads = SUMI_QK_HEADS_AT_ONCE << log2,
                      places = (heads + round_heads - 1) / round_heads * round_heads;
        if (8 * places <= 9 * heads) break;
    }
    return log2;
}

sumi_result sumi_cuda_qk_norm_rope(sumi_cuda_run* run)
{
    static const char* const s_names[2][4] = {{"sumi_qk_norm_rope_pairs_4", "sumi_qk_norm_rope_pairs_8",
                                               "sumi_qk_norm_rope_pairs_16", "sumi_qk_norm_rope_pairs_32"},
                                              {"sumi_qk_norm_rope_halves_4", "sumi_qk_norm_rope_halves_8",
                                               "sumi_qk_norm_rope_halves_16", "sumi_qk_norm_rope_halves_32"}};
    static const char* const s_fp8_names[2] = {"sumi_qk_norm_rope_fp8_pairs_16", "sumi_qk_norm_rope_fp8_halves_16"};
    const sumi_op* op = run->op;
    const sumi_cuda_range rows = sumi_cuda_rows_of(run);
    const bool rotates = op->u.qk.rotary != SUMI_ROTARY_NONE;
    sumi_qk_norm_rope_args args = {.x = matrix_of(run, op->out),
                                   .q_w = norm_weight(run, op->weight, op->in[2]),
                                   .k_w = norm_weight(run, op->u.qk.k_weight, op->in[3])};
    args.rope = rotates ? sumi_cuda_value(run, op->in[1]) : 0;
    args.pitch = sumi_cuda_cols(run, op->out);
    args.q_heads = op->u.qk.q_heads;
    args.kv_heads = op->u.qk.kv_heads;
    args.dim = op->u.qk.dim;
    args.row_begin = rows.begin;
    args.row_end = rows.end;
    args.x_row = op->u.qk.row;
    args.rope_row = op->u.qk.rope_row;
    args.is_halves = op->u.qk.rotary == SUMI_ROTARY_HALVES;
    args.eps = op->u.qk.eps;
    const int64_t count = rows.end - rows.begin;
    const bool is_e4m3 = sumi_cuda_is_qk_e4m3(run, op->out); // then heads have 96 or 128 channels
    if (args.x.is_float || args.dim % (args.is_halves ? 16 : 8) != 0 || args.dim > 256 || args.pitch % 8 != 0)
        return sumi_cuda_launch_args(run, "sumi_qk_norm_rope_any", row_grid(run, count, ANY_BLOCKS), &args);
    int32_t size = 0; // 4 << size lanes hold a head
    while ((32 << size) < args.dim) size++;
    const int32_t groups = SUMI_ROWS_THREADS / (4 << size), blocks = args.is_halves ? 2 : 3;
    args.heads_log2 = qk_heads_log2(args.q_heads + args.kv_heads, groups, count,
                                    (int64_t)run->device->multiprocessors * blocks * groups);
    return sumi_cuda_launch_args(run, is_e4m3 ? s_fp8_names[args.is_halves] : s_names[args.is_halves][size],
                                 row_grid(run, blocks_of(count, groups >> args.heads_log2), blocks), &args);
}

// ---- ROPE_TABLE, TIME_EMBED, FINISH_MODULATION ----------------------------------------------------------------------
sumi_result sumi_cuda_rope_table(sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    const sumi_cuda_range rows = sumi_cuda_rows_of(run);
    sumi_rope_table_args args = {
        .positions = sumi_cuda_value(run, op->in[0]), .y = sumi_cuda_value(run, op->out), .axes = op->u.rope.axes};
    args.cols = sumi_cuda_cols(run, op->out);
    args.row_begin = rows.begin;
    args.row_end = rows.end;
    for (int32_t pair = 0; pair < args.cols / 2; pair++) {
        // computed by the CPU's pow, as in the CPU backend, so that the angles are the same floats
        const sumi_rope_pair from = sumi_plan_rope_pair(op, pair);
        args.frequency[args.pair_count] = from.frequency;
        args.axis[args.pair_count++] = from.axis;
        if (args.pair_count == SUMI_ROPE_BATCH || pair + 1 == args.cols / 2) {
            const int64_t count = (int64_t)(rows.end - rows.begin) * args.pair_count;
            SUMI_TRY(sumi_cuda_launch_args(
                run, "sumi_rope_table", row_grid(run, blocks_of(count, SUMI_ROWS_THREADS), ELEMENTWISE_BLOCKS), &args));
            args.pair_begin += args.pair_count;
            args.pair_count = 0;
        }
    }
    return SUMI_OK;
}

sumi_result sumi_cuda_time_embed(sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    const sumi_cuda_range rows = sumi_cuda_rows_of(run);
    sumi_time_embed_args args = {
        .times = sumi_cuda_value(run, op->in[0]), .y = matrix_of(run, op->out), .width = sumi_cuda_cols(run, op->out)};
    args.row_begin = rows.begin;
    args.row_end = rows.end;
    args.cos_first = op->u.time.cos_first;
    args.scale = op->u.time.scale;
    args.log_period = (float)-log((double)op->u.time.max_period);
    return sumi_cuda_launch_args(run, "sumi_time_embed", row_grid(run, rows.end - rows.begin, ELEMENTWISE_BLOCKS),
                                 &args);
}

sumi_result sumi_cuda_finish_modulation(sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    const sumi_cuda_range rows = sumi_cuda_rows_of(run);
    sumi_finish_modulation_args args = {.x = matrix_of(run, op->in[0]),
                                        .y = matrix_of(run, op->out),
                                        .counter = run->counter,
                                        .cols = sumi_cuda_cols(run, op->out)};
    args.vector_cols = args.cols / op->u.finish.vector_count;
    args.row_begin = rows.begin;
    args.row_end = rows.end;
    args.x_row = op->u.finish.x_row;
    args.per_step = op->u.finish.per_step;
    args.adds_one = op->u.finish.adds_one;
    args.squashes = op->u.finish.applies_tanh;
    const int64_t count = (int64_t)(rows.end - rows.begin) * args.cols;
    return sumi_cuda_launch_args(run, "sumi_finish_modulation",
                                 row_grid(run, blocks_of(count, SUMI_ROWS_THREADS), ELEMENTWISE_BLOCKS), &args);
}
