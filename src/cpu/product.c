// y = x W^T, blocked (Goto & van de Geijn 2008, van Zee & van de Geijn 2015), and LINEAR, which uses it. A loop item is
// a block of C = y of up to 588 rows x 256 columns, summed in the worker's own memory:
//
//     for each 256 of depth:
//         pack W's 256 columns x 256 of depth into panels of tile_cols columns, converted to float      B, 256 KiB: L2
//         for each 14 rows: copy x's 14 x 256 into a tile                                               A, 15 KiB: L1
//             for each panel: C[14 x 32] += A B in registers            the panel is read from L2: 9 bytes per cycle
//     finish each row: bias, activation, gate, residual                                                C, 588 KiB: L2
//
// The depth blocks and the order inside them are fixed, so an element is the same chain of multiply-adds for any
// blocking of rows and columns and any number of workers. Copying x row by row (not k by k) costs a tenth of
// transposing it and suits the convolution, whose rows are runs of channels. The copy is needed because rows that are 4
// KiB apart fall into one set of the L1.
//
// Two kinds of products are computed differently. A product of few columns (the last convolution of a VAE has 3) would
// leave most of a tile empty: it uses dot products of A's rows with rows of B. A product of very few rows (modulation
// tables, time embedding) reads each row of W once and uses dot products. The op's rows and columns decide between
// them, never a slice's.
//
// The upper bound is 2 multiply-adds of 16 floats per cycle, 64 FLOP. On a Zen 5 core at 4 GHz (256 GFLOP/s) the tile
// alone reaches 255 GFLOP/s; a product of 1088 x 3072 x 1024 reaches 226; the rest is packing W (5 %), copying x (5 %)
// and finishing (2 %). A product of 64 rows reaches 170: a quarter of its time is packing W.
#include "base/assert.h"
#include "base/numbers.h"
#include "cpu/ops_cpu.h"
#include <math.h>
#include <string.h>

// 588 is a multiple of every tile height: 14, 6 and 4
enum { BLOCK_ROWS = 588, BLOCK_COLS = 256, FEW_ROWS = 7, DOT_COLS = 64 };

// The work is counted in units. A unit is one panel of columns for one block of rows; all panels of a row block come
// before those of the next. A slice is a range of units:
//
//     row block 0   | 0 | 1 | 2 | 3 |      units 2 .. 9: two of row block 0, all of row block 1, two of row block 2
//     row block 1   | 4 | 5 | 6 | 7 |
//     row block 2   | 8 | 9 | . | . |
typedef struct product_loop {
    const sumi_cpu_product* product;
    int32_t block_rows, panels; // of the whole product
    int32_t item_panels;        // the maximum number of panels of a loop item
    int64_t unit_begin, unit_end;
} product_loop;

typedef struct block {
    int32_t row, rows, column, cols;
} block;

static int32_t panels_in(const product_loop* loop, int64_t row_block, int32_t* first)
{
    SUMI_ASSERT(row_block >= 0 && loop->unit_begin <= loop->unit_end);
    int64_t begin = loop->unit_begin - row_block * loop->panels, end = loop->unit_end - row_block * loop->panels;
    begin = begin < 0 ? 0 : begin;
    end = end > loop->panels ? loop->panels : end;
    *first = (int32_t)begin;
    return end > begin ? (int32_t)(end - begin) : 0;
}

static int32_t count_items(const product_loop* loop)
{
    int32_t items = 0, first;
    for (int64_t r = loop->unit_begin / loop->panels; r * loop->panels < loop->unit_end; r++)
        items += sumi_divide_up(panels_in(loop, r, &first), loop->item_panels);
    return items;
}

static block find_item(const product_loop* loop, int32_t item)
{
    SUMI_ASSERT(item >= 0);
    const sumi_cpu_product* product = loop->product;
    int32_t first = 0, panels = 0, tile_cols = product->run->kernels->tile_cols;
    int64_t r = loop->unit_begin / loop->panels;
    for (; r * loop->panels < loop->unit_end; r++) { // same order as in count_items
        panels = panels_in(loop, r, &first);
        int32_t items = sumi_divide_up(panels, loop->item_panels);
        if (item < items) break;
        item -= items;
    }
    first += item * loop->item_panels;
    panels = sumi_min_int(loop->item_panels, panels - item * loop->item_panels);
    block b = {.row = product->row_begin + (int32_t)r * loop->block_rows, .column = first * tile_cols};
    b.rows = sumi_min_int(loop->block_rows, product->row_end - b.row);
    b.cols = sumi_min_int(panels * tile_cols, product->cols - b.column);
    SUMI_ASSERT(b.rows >= 1 && b.cols >= 1 && b.row >= product->row_begin);
    return b;
}

// Alignment of panels in bytes: a cache line, or tile_cols floats if that is less (4-float vectors).
SUMI_ONLY_ASSERTED static size_t panel_alignment(const sumi_cpu_kernels* kernels)
{
    const size_t step = (size_t)kernels->tile_cols * sizeof(float);
    return step < SUMI_ALIGNMENT ? step : SUMI_ALIGNMENT;
}

// Packs one panel of W, depth [k, k + depth).
static void pack_panel(const sumi_cpu_product* product, int32_t column, int32_t count, int32_t k, int32_t depth,
                       float* panel, float* converted)
{
    SUMI_ASSERT(count >= 1 && count <= product->run->kernels->tile_cols && depth >= 1 && depth <= SUMI_CPU_DEPTH);
    SUMI_ASSERT(k % SUMI_CPU_DEPTH == 0); // a multiple of every quantised block
    SUMI_ASSERT((uintptr_t)panel % panel_alignment(product->run->kernels) == 0);
    const sumi_cpu_kernels* kernels = product->run->kernels;
    const void* rows[SUMI_CPU_MAX_TILE_COLS];
    sumi_dtype first = SUMI_DTYPE_NONE;
    bool is_plain = true;
    for (int32_t i = 0; i < count && is_plain; i++) {
        sumi_dtype dtype;
        const unsigned char* row = sumi_cpu_weight_row(product->weight, column + i, &dtype);
        first = i == 0 ? dtype : first;
        is_plain = row != NULL && dtype == first;
        if (is_plain) rows[i] = row + sumi_dtype_bytes(dtype, (uint64_t)k);
    }
    if (!is_plain) {
        sumi_weight_block_to_float(product->weight, (sumi_weight_block){column, count, k, depth}, converted,
                                   SUMI_CPU_DEPTH);
        for (int32_t i = 0; i < count; i++) rows[i] = converted + i * SUMI_CPU_DEPTH;
        first = SUMI_DTYPE_F32;
    }
    (first == SUMI_DTYPE_F32   ? kernels->pack_f32
     : first == SUMI_DTYPE_F16 ? kernels->pack_f16
                               : kernels->pack_bf16)(panel, rows, count, depth);
}

static void finish_rows(const sumi_cpu_product* product, int32_t row, int32_t rows, int32_t column, int32_t cols,
                        const float* c, int32_t c_stride)
{
    SUMI_ASSERT(row >= product->row_begin && row + rows <= product->row_end && column + cols <= product->cols);
    sumi_cpu_finish finish = product->finish;
    finish.bias = finish.bias == NULL ? NULL : finish.bias + column;
    finish.gate = finish.gate == NULL ? NULL : finish.gate + column;
    for (int32_t r = 0; r < rows; r++) {
        int64_t at = (int64_t)(row + r) * product->y_stride + column;
        product->run->kernels->finish(&finish, product->y + at, c + (size_t)r * (size_t)c_stride,
                                      product->residual == NULL ? NULL : product->residual + at, cols);
    }
}

bool sumi_cpu_is_narrow(int32_t cols) { return cols <= 8; }

// Adds one depth block of a narrow product to the sums c [rows][8]. B is row-major: [cols][depth of the product].
static void run_narrow(const sumi_cpu_product* product, int32_t row, int32_t rows, int32_t k, int32_t depth, float* a,
                       float* c)
{
    SUMI_ASSERT(sumi_cpu_is_narrow(product->cols) && depth <= SUMI_CPU_DEPTH && k + depth <= product->depth);
    const sumi_cpu_kernels* kernels = product->run->kernels;
    enum { WIDTH = 8 };
    for (int32_t r = 0; r < rows; r += 12) { // 12 rows: three dot products of four rows
        int32_t tile = sumi_min_int(12, rows - r);
        float* sums = c + (size_t)r * WIDTH;
        product->load(product, row + r, tile, k, depth, a);
        for (int32_t j = 0; j < product->cols; j++) {
            const float* b = product->panels + (size_t)j * (size_t)product->depth + k;
            for (int32_t q = 0; q < tile; q += 4) {
                float dots[4];
                int32_t count = sumi_min_int(4, tile - q);
                kernels->dot_f32(a + q * SUMI_CPU_A_STRIDE, SUMI_CPU_A_STRIDE, count, b, depth, dots, 1);
                for (int32_t i = 0; i < count; i++) {
                    float* sum = &sums[(q + i) * WIDTH + j];
                    *sum = k == 0 ? dots[i] : *sum + dots[i];
                }
            }
        }
        if (k + depth == product->depth) finish_rows(product, row + r, tile, 0, product->cols, sums, WIDTH);
    }
}

static void run_blocks(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    SUMI_ASSERT(begin >= 0 && begin < end);
    const product_loop* loop = context;
    const sumi_cpu_product* product = loop->product;
    const sumi_cpu_kernels* kernels = product->run->kernels;
    int32_t tile_rows = kernels->tile_rows, tile_cols = kernels->tile_cols;
    float* a = sumi_cpu_worker(product->run, worker_index);
    float* b = a + SUMI_CPU_MAX_TILE_ROWS * SUMI_CPU_A_STRIDE;
    float* c = b + (product->panels == NULL ? SUMI_CPU_DEPTH * loop->item_panels * tile_cols : 0);
    float* converted = c + (size_t)loop->block_rows * (size_t)(loop->item_panels * tile_cols);
    for (int32_t item = begin; item < end; item++) {
        block item_block = find_item(loop, item);
        int32_t row = item_block.row, rows = item_block.rows, column = item_block.column, cols = item_block.cols;
        int32_t panels = sumi_divide_up(cols, tile_cols), c_stride = panels * tile_cols;
        // tiles of equal height: a last tile of 2 rows would run at a quarter of the speed
        int32_t tiles = sumi_divide_up(rows, tile_rows), height = sumi_divide_up(rows, tiles);
        for (int32_t k = 0; k < product->depth; k += SUMI_CPU_DEPTH) {
            int32_t depth = sumi_min_int(SUMI_CPU_DEPTH, product->depth - k);
            if (sumi_cpu_is_narrow(product->cols) && product->panels != NULL) {
                run_narrow(product, row, rows, k, depth, a, c);
                continue;
            }
            for (int32_t p = 0; product->panels == NULL && p < panels; p++) {
                pack_panel(product, column + p * tile_cols, sumi_min_int(tile_cols, cols - p * tile_cols), k, depth,
                           b + (size_t)p * (size_t)(depth * tile_cols), converted);
            }
            for (int32_t r = 0; r < rows; r += height) {
                int32_t tile = sumi_min_int(height, rows - r);
                product->load(product, row + r, tile, k, depth, a);
                for (int32_t p = 0; p < panels; p++) {
                    const float* panel =
                        product->panels == NULL
                            ? b + (size_t)p * (size_t)(depth * tile_cols)
                            : product->panels
                                  + ((size_t)(column / tile_cols + p) * (size_t)product->depth + (size_t)k)
                                        * (size_t)tile_cols;
                    const bool is_half = cols - p * tile_cols <= tile_cols / 2;
                    (is_half ? kernels->half_tile : kernels->tile)(
                        tile, depth, a, panel, c + (size_t)r * (size_t)c_stride + p * tile_cols, c_stride, k == 0);
                }
                if (k + depth == product->depth)
                    finish_rows(product, row + r, tile, column, cols, c + (size_t)r * (size_t)c_stride, c_stride);
            }
        }
    }
}

// Blocks of about equal height, of whole tiles. A slice has at least one unit, so the units of a very deep product are
// lower, although W is then packed more often: with AVX-512, 305 rows where the depth is 10240.
#define MAX_UNIT_FLOPS 2e8

static int32_t block_rows(const sumi_cpu_kernels* kernels, int32_t rows, int32_t depth)
{
    const double max_rows = MAX_UNIT_FLOPS / (2.0 * kernels->tile_cols * depth);
    const int32_t least_rows = 8 * SUMI_CPU_MAX_TILE_ROWS,
                  most_rows = max_rows < least_rows ? least_rows
                            : max_rows < BLOCK_ROWS ? (int32_t)max_rows
                                                    : BLOCK_ROWS,
                  row_blocks = sumi_divide_up(rows, most_rows);
    return sumi_min_int(sumi_round_up(sumi_divide_up(rows, row_blocks), kernels->tile_rows), BLOCK_ROWS);
}

void sumi_cpu_product_run(const sumi_cpu_product* product)
{
    SUMI_ASSERT(product->row_begin < product->row_end && product->cols >= 1 && product->depth >= 1);
    SUMI_ASSERT(product->share_begin >= 0 && product->share_begin <= product->share_end);
    SUMI_ASSERT(product->share_end <= product->share_count);
    const sumi_cpu_kernels* kernels = product->run->kernels;
    int32_t rows = product->row_end - product->row_begin;
    product_loop loop = {.product = product,
                         .block_rows = block_rows(kernels, rows, product->depth),
                         .panels = sumi_divide_up(product->cols, kernels->tile_cols)};
    int64_t units = (int64_t)sumi_divide_up(rows, loop.block_rows) * loop.panels;
    loop.unit_begin = units * product->share_begin / product->share_count;
    loop.unit_end = units * product->share_end / product->share_count;
    // narrower items if there are too few to keep every worker busy to the end
    int64_t target_items = 4 * (int64_t)sumi_workers_count(product->run->workers),
            share = (loop.unit_end - loop.unit_begin + target_items - 1) / target_items;
    int32_t max_panels = BLOCK_COLS / kernels->tile_cols;
    loop.item_panels = share < 1 ? 1 : share > max_panels ? max_panels : (int32_t)share;
    loop.item_panels = sumi_min_int(loop.item_panels, loop.panels);
    sumi_parallel(product->run->workers, count_items(&loop), 1, run_blocks, &loop);
}

uint64_t sumi_cpu_product_worker_bytes(const sumi_cpu_kernels* kernels, int32_t cols, int32_t rows)
{
    SUMI_ASSERT(cols >= 1 && rows >= 1);
    uint64_t block_cols = (uint64_t)sumi_min_int(BLOCK_COLS, sumi_round_up(cols, kernels->tile_cols)),
             block_rows = (uint64_t)sumi_min_int(BLOCK_ROWS, sumi_round_up(rows, kernels->tile_rows));
    return (SUMI_CPU_MAX_TILE_ROWS * SUMI_CPU_A_STRIDE + SUMI_CPU_DEPTH * block_cols + block_rows * block_cols
            + (uint64_t)kernels->tile_cols * SUMI_CPU_DEPTH)
         * sizeof(float);
}

uint64_t sumi_cpu_panel_bytes(const sumi_cpu_kernels* kernels, int32_t cols, int32_t depth)
{
    return (uint64_t)sumi_round_up(cols, kernels->tile_cols) * (uint64_t)depth * sizeof(float);
}

// ---- LINEAR ---------------------------------------------------------------------------------------------------------
static void load_matrix(const sumi_cpu_product* product, int32_t row, int32_t rows, int32_t k, int32_t depth,
                        float* tile)
{
    SUMI_ASSERT(rows >= 1 && rows <= SUMI_CPU_MAX_TILE_ROWS && depth <= SUMI_CPU_DEPTH);
    for (int32_t r = 0; r < rows; r++) {
        memcpy(tile + r * SUMI_CPU_A_STRIDE, (const float*)product->source + (row + r) * product->source_stride + k,
               (size_t)depth * sizeof(float));
    }
}

// The first block of DOT_COLS columns of a share of the work.
static int32_t first_dots(const sumi_cpu_product* product, int32_t share)
{
    return (int32_t)((int64_t)sumi_divide_up(product->cols, DOT_COLS) * share / product->share_count);
}

// Loop items are blocks of DOT_COLS columns, counted from the first of the slice.
static void run_dots(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    SUMI_ASSERT(begin >= 0 && begin < end);
    const sumi_cpu_product* product = context;
    const sumi_cpu_kernels* kernels = product->run->kernels;
    float* c = sumi_cpu_worker(product->run, worker_index);
    float* converted = c + FEW_ROWS * DOT_COLS;
    const int32_t first = first_dots(product, product->share_begin);
    for (int32_t b = first + begin; b < first + end; b++) {
        const int32_t column = b * DOT_COLS;
        int32_t cols = sumi_min_int(DOT_COLS, product->cols - column);
        for (int32_t j = 0; j < cols; j++) {
            sumi_dtype dtype;
            const void* w = sumi_cpu_weight_row(product->weight, column + j, &dtype);
            if (w == NULL) {
                sumi_weight_to_float(product->weight, column + j, 1, converted, product->depth);
                w = converted;
                dtype = SUMI_DTYPE_F32;
            }
            for (int32_t row = product->row_begin; row < product->row_end; row += 4) {
                const float* x = (const float*)product->source + row * product->source_stride;
                (dtype == SUMI_DTYPE_F32 ? kernels->dot_f32
                 : dtype == SUMI_DTYPE_F16
                     ? kernels->dot_f16
                     : kernels->dot_bf16)(x, (ptrdiff_t)product->source_stride, sumi_min_int(4, product->row_end - row),
                                          w, product->depth, c + (row - product->row_begin) * DOT_COLS + j, DOT_COLS);
            }
        }
        finish_rows(product, product->row_begin, product->row_end - product->row_begin, column, cols, c, DOT_COLS);
    }
}

sumi_cpu_scratch sumi_cpu_linear_scratch(const sumi_cpu_kernels* kernels, const sumi_plan* plan, const sumi_op* op)
{
    (void)plan;
    sumi_cpu_scratch scratch = {op->bias == NULL ? 0 : (uint64_t)op->weight->rows * sizeof(float), 0};
    if (op->rows <= FEW_ROWS) {
        scratch.worker_bytes = ((uint64_t)FEW_ROWS * DOT_COLS + (uint64_t)op->weight->cols) * sizeof(float);
    } else {
        scratch.worker_bytes = sumi_cpu_product_worker_bytes(kernels, op->weight->rows, op->rows);
    }
    return scratch;
}

int32_t sumi_cpu_range_count(double flops, double bytes, int64_t max_count)
{
    SUMI_ASSERT(max_count >= 1 && flops >= 0.0 && bytes >= 0.0);
    const double by_flops = flops / SUMI_CPU_RANGE_FLOPS, by_bytes = bytes / SUMI_CPU_RANGE_BYTES,
                 wanted = ceil(by_flops > by_bytes ? by_flops : by_bytes);
    const int64_t most = max_count < INT32_MAX ? max_count : INT32_MAX;
    return wanted >= (double)most ? (int32_t)most : wanted < 1.0 ? 1 : (int32_t)wanted;
}

// Every range has work: at least one unit, or one block of columns.
void sumi_cpu_linear_cut(const sumi_cpu_kernels* kernels, sumi_op* op)
{
    const int64_t units = op->rows <= FEW_ROWS
                            ? sumi_divide_up(op->weight->rows, DOT_COLS)
                            : (int64_t)sumi_divide_up(op->rows, block_rows(kernels, op->rows, op->weight->cols))
                                  * sumi_divide_up(op->weight->rows, kernels->tile_cols);
    op->is_cut = true;
    op->range_count = sumi_cpu_range_count(op->flops, op->bytes, units);
    op->range_rows = sumi_divide_up(op->rows, op->range_count);
}

sumi_result sumi_cpu_linear(sumi_cpu_run* run)
{
    const sumi_op* op = run->op;
    SUMI_ASSERT(!op->u.linear.is_adapter_product || (op->in[1].id == op->out.id && op->bias == NULL));
    int32_t x_cols = sumi_cpu_cols(run, op->in[0]), y_cols = sumi_cpu_cols(run, op->out);
    sumi_cpu_product product = {
        .run = run, .cols = op->weight->rows, .depth = op->weight->cols, .weight = op->weight, .load = load_matrix};
    product.source = (const float*)sumi_cpu_value(run, op->in[0]) + (int64_t)op->u.linear.x_row * x_cols;
    product.source_stride = x_cols;
    int64_t first = (int64_t)op->u.linear.y_row * y_cols + op->u.linear.y_column;
    product.y = (float*)sumi_cpu_value(run, op->out) + first;
    product.y_stride = y_cols;
    const float* residual = sumi_cpu_value(run, op->in[1]);
    product.residual = residual == NULL ? NULL : residual + first;
    product.finish = (sumi_cpu_finish){NULL, sumi_cpu_step(run, op->u.linear.gate), op->u.linear.activation,
                                       op->u.linear.is_adapter_product, op->u.linear.scale};
    if (op->bias != NULL) {
        sumi_cpu_vector(op->bias, product.cols, run->shared);
        product.finish.bias = run->shared;
    }
    // A slice computes its share of the columns or of the units, not its rows: by rows, every slice would pack all of W
    // (40 % more time with slices of 1 ms), and a product of few rows could not be cut at all.
    product.row_end = op->rows;
    product.share_begin = run->range_begin;
    product.share_end = run->range_end;
    product.share_count = op->range_count;
    if (op->rows <= FEW_ROWS) {
        sumi_parallel(run->workers, first_dots(&product, run->range_end) - first_dots(&product, run->range_begin), 1,
                      run_dots, &product);
    } else {
        sumi_cpu_product_run(&product);
    }
    return SUMI_OK;
}
