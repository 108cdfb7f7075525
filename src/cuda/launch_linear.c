// LINEAR: launches the kernel that choose_linear.c has chosen.
//
// Scratch:  [weight in bfloat16, if its stored bytes are unpacked][partial sums of shared k]
//      or   [x in 8 bits][scale of x per row][partial sums of shared k]; of two products in one launch
//           [x in 8 bits][scale of x per row], twice
#include "base/assert.h"
#include "base/numbers.h"
#include "cuda/arrange.h"
#include "cuda/device.h"
#include "cuda/launch.h"
#include "cuda/linear.h"
#include "cuda/state.h"
#include "device/form.h"
#include "device/stored.h"
#include "device/weight_forms.h"
#include "kernels/rows.h"

_Static_assert(sizeof(sumi_gemm_epilogue) == 96 && offsetof(sumi_gemm_portable_args, epilogue) == 128,
               "the kernels read these structs");

// ---- Scratch --------------------------------------------------------------------------------------------------------

// The partial sums of the choice that needs most. Only the launcher knows the op's epilogue and whether the kernels for
// Hopper are allowed.
static uint64_t max_partial_sum_bytes(const sumi_cuda_device* device, int32_t m, int32_t n, int32_t k,
                                      sumi_cuda_operands operands)
{
    uint64_t largest_bytes = 0;
    for (int32_t e = SUMI_CUDA_EPILOGUE_plain; e <= SUMI_CUDA_EPILOGUE_any; e++) {
        for (int32_t hopper = 0; hopper <= 1; hopper++) {
            const sumi_cuda_shape s = {m, n, k, operands, true, (sumi_cuda_epilogue)e};
            const sumi_cuda_linear_choice choice = sumi_cuda_choose_linear(device, hopper == 1, &s);
            const uint64_t bytes = sumi_cuda_partial_sum_bytes(&choice, m, n);
            largest_bytes = bytes > largest_bytes ? bytes : largest_bytes;
        }
    }
    return sumi_align(largest_bytes, 256);
}

// Bytes of x in 8 bits with its scales.
static uint64_t quantised_bytes(int32_t rows, int32_t pitch)
{
    return sumi_align((uint64_t)rows * (uint64_t)pitch, 256)
         + sumi_align(((uint64_t)rows + 3) / 4 * 4 * sizeof(float), 256);
}

static uint64_t unpacked_bytes(const sumi_weight* weight)
{
    return sumi_align(2 * (uint64_t)weight->rows * (uint64_t)weight->cols, 256);
}

// For an op that reads its weight as it is stored.
static sumi_cuda_stored_choice stored_choice(const sumi_cuda_device* device, bool allows_hopper, const sumi_plan* plan,
                                             const sumi_op* op)
{
    if (sumi_plan_info(plan, op->in[0])->element != SUMI_ELEMENT_ACTIVATION)
        return (sumi_cuda_stored_choice){.tile = -1, .blocks = 1, .cluster = 1};
    return sumi_cuda_choose_stored(device, allows_hopper, op->weight, sumi_device_stored_form(plan, op), op->rows);
}

uint64_t sumi_cuda_linear_scratch(const sumi_cuda_device* device, const sumi_plan* plan, const sumi_op* op)
{
    const int32_t depth = sumi_plan_info(plan, op->in[0])->cols;
    if ((op->marks & SUMI_DEVICE_OP_8BIT) != 0) {
        const sumi_cuda_operands operands = sumi_device_quantised_operands(plan, op);
        const int32_t pitch = sumi_device_quantised_pitch(operands, depth);
        return quantised_bytes(op->rows, pitch) + (op->is_beside_next ? quantised_bytes(op[1].rows, pitch) : 0)
             + max_partial_sum_bytes(device, op->rows, op->weight->rows, pitch, operands);
    }
    const uint64_t partial_sum_bytes = max_partial_sum_bytes(device, op->rows, op->weight->rows, depth, SUMI_CUDA_BF16);
    if ((op->marks & SUMI_DEVICE_OP_STORED) == 0) return partial_sum_bytes;
    uint64_t largest_bytes = 0; // only the launcher knows whether the kernels for Hopper are allowed
    for (int32_t hopper = 0; hopper <= 1; hopper++) {
        const sumi_cuda_stored_choice c = stored_choice(device, hopper == 1, plan, op);
        const uint64_t bytes =
            c.tile >= 0 ? sumi_align(c.partial_sum_bytes, 256) : unpacked_bytes(op->weight) + partial_sum_bytes;
        largest_bytes = bytes > largest_bytes ? bytes : largest_bytes;
    }
    return largest_bytes;
}

// ---- Launching ------------------------------------------------------------------------------------------------------
// A product as the kernels see it. Rows are counted from the first row of the slice.
typedef struct product {
    sumi_cuda_shape shape; // of the slice: m is the number of its rows
    CUdeviceptr x, row_scales;
    sumi_device_weight weight;
    int32_t ldx;
    bool x_is_float, is_fused, has_quantised_input;
    uint64_t x_bytes; // of an element
    sumi_gemm_epilogue epilogue;
} product;

// A matrix whose rows are `pitch` elements apart, read in boxes.
typedef struct mapped_matrix {
    sumi_cuda_operands operands;
    CUdeviceptr address;
    int32_t cols, rows, pitch, box_cols, box_rows;
    bool is_plain; // without a swizzle of 128 bytes
} mapped_matrix;

static sumi_result map_matrix(const sumi_cuda_run* run, const mapped_matrix* m, CUtensorMap* out_map)
{
    SUMI_ASSERT(m->cols >= 1 && m->rows >= 1 && m->pitch >= m->cols);
    const bool is_bf16 = m->operands == SUMI_CUDA_BF16;
    const sumi_cuda_tensor tensor = {.address = m->address,
                                     .type = is_bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_UINT8,
                                     .swizzle = m->is_plain ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B,
                                     .rank = 2,
                                     .dims = {(uint64_t)m->cols, (uint64_t)m->rows},
                                     .strides = {(uint64_t)m->pitch * (is_bf16 ? 2 : 1)},
                                     .box = {(uint32_t)m->box_cols, (uint32_t)m->box_rows}};
    return sumi_cuda_tensor_map(run, &tensor, out_map);
}

// The operands of a product: rows of x, rows of w.
static mapped_matrix rows_of_x(const product* p, int32_t box_rows)
{
    const sumi_cuda_shape* s = &p->shape;
    return (mapped_matrix){.operands = s->operands,
                           .address = p->x,
                           .cols = s->k,
                           .rows = s->m,
                           .pitch = p->ldx,
                           .box_cols = s->operands != SUMI_CUDA_BF16 ? 128 : 64,
                           .box_rows = box_rows};
}
static mapped_matrix rows_of_weight(const product* p, int32_t box_rows)
{
    const sumi_cuda_shape* s = &p->shape;
    return (mapped_matrix){.operands = s->operands,
                           .address = p->weight.data,
                           .cols = s->k,
                           .rows = s->n,
                           .pitch = p->weight.pitch,
                           .box_cols = s->operands != SUMI_CUDA_BF16 ? 128 : 64,
                           .box_rows = box_rows};
}

static uint32_t cluster_grid(const sumi_cuda_device* device, int64_t items)
{
    SUMI_ASSERT(items >= 1);
    const int64_t max_clusters = sumi_max_int(device->multiprocessors / 2, 1);
    return (uint32_t)(2 * (items < max_clusters ? items : max_clusters));
}

// Row pairs of tiles that are walked together, nearly the same number in each group. The part of x that a group reads
// stays in the L2 cache while all of w is read. With larger groups w is read less often, but more of x must stay in the
// cache: on an H200 a forward of 4224 rows took 1 % more with one group than with two.
static int32_t group_of(int32_t m, int32_t tile_rows)
{
    SUMI_ASSERT(m >= 1 && tile_rows >= 1);
    enum { GROUP_ROWS = 2048, ONE_GROUP_ROWS = 2304 };
    const int32_t pair_rows = 2 * tile_rows, pairs = sumi_max_int(sumi_divide_up(m, tile_rows) / 2, 1);
    return pairs * pair_rows <= ONE_GROUP_ROWS
             ? pairs
             : sumi_divide_up(pairs, sumi_divide_up(pairs, sumi_max_int(GROUP_ROWS / pair_rows, 1)));
}

// The tensor maps of x, w, y and the residual.
static sumi_result map_product(const sumi_cuda_run* run, const product* p, const sumi_cuda_wgmma* kernel,
                               CUtensorMap* out_maps[4])
{
    const sumi_cuda_shape* s = &p->shape;
    const sumi_gemm_epilogue* f = &p->epilogue;
    const mapped_matrix x = rows_of_x(p, kernel->rows / 2), w = rows_of_weight(p, kernel->cols / 2);
    mapped_matrix y = {.operands = SUMI_CUDA_BF16,
                       .address = f->y + 2 * (uint64_t)f->column,
                       .cols = p->is_fused ? s->n / 2 : s->n,
                       .rows = s->m,
                       .pitch = f->ldy,
                       .box_cols = kernel->slab_cols,
                       .box_rows = kernel->slab_rows,
                       .is_plain = kernel->slab_cols != 64};
    SUMI_TRY(map_matrix(run, &x, out_maps[0]));
    SUMI_TRY(map_matrix(run, &w, out_maps[1]));
    SUMI_TRY(map_matrix(run, &y, out_maps[2]));
    *out_maps[3] = *out_maps[2];
    y.address = f->residual + 2 * (uint64_t)f->column; // a residual has the shape of y
    return f->residual != 0 ? map_matrix(run, &y, out_maps[3]) : SUMI_OK;
}

static sumi_gemm_sm90_args wgmma_args(const product* p, const sumi_cuda_wgmma* kernel, int64_t whole_items)
{
    const sumi_cuda_shape* s = &p->shape;
    const sumi_gemm_epilogue* f = &p->epilogue;
    return (sumi_gemm_sm90_args){.bias = f->bias,
                                 .gate = f->gate,
                                 .counter = f->counter,
                                 .row_scale = f->row_scale,
                                 .col_scale = f->col_scale,
                                 .gate_stride = f->gate_stride,
                                 .gate_column = f->gate_column,
                                 .m = s->m,
                                 .n = s->n,
                                 .k = s->k,
                                 .group = group_of(s->m, kernel->rows),
                                 .whole_items = (int32_t)whole_items};
}

static sumi_result launch_wgmma(const sumi_cuda_run* run, const product* p, const sumi_cuda_linear_choice* c)
{
    SUMI_ASSERT(c->method == SUMI_CUDA_METHOD_WGMMA && c->split == 1 && p->epilogue.is_aligned);
    const sumi_cuda_wgmma* kernel = &sumi_cuda_wgmma_kernels[c->kernel];
    const sumi_cuda_shape* s = &p->shape;
    CUtensorMap maps[4], *places[4] = {&maps[0], &maps[1], &maps[2], &maps[3]};
    SUMI_TRY(map_product(run, p, kernel, places));
    const int64_t items = sumi_cuda_tile_pairs(s->m, s->n, kernel->rows, kernel->cols),
                  whole = sumi_cuda_whole_items(kernel, items, sumi_max_int(run->device->multiprocessors / 2, 1));
    sumi_gemm_sm90_args args = wgmma_args(p, kernel, whole);
    void* params[] = {&maps[0], &maps[1], &maps[2], &maps[3], &args};
    const sumi_cuda_grid grid = {cluster_grid(run->device, 2 * items - whole), 1, 1, kernel->threads, kernel->shared};
    return sumi_cuda_launch(run, kernel->name, grid, params);
}

// Both products in one launch. kernel: whose tile the pair's kernel has.
static sumi_result launch_pair(const sumi_cuda_run* run, const product* first, const product* second, int32_t kernel)
{
    const sumi_cuda_wgmma* tile = &sumi_cuda_wgmma_kernels[kernel];
    const product* products[2] = {first, second};
    struct { // sumi_gemm_pair_maps in gemm_sm90.cuh
        CUtensorMap x[2], w[2], y[2], residual[2];
    } maps;
    sumi_gemm_sm90_args args[2];
    int64_t items = 0;
    for (int i = 0; i < 2; i++) {
        const product* p = products[i];
        CUtensorMap* places[4] = {&maps.x[i], &maps.w[i], &maps.y[i], &maps.residual[i]};
        SUMI_TRY(map_product(run, p, tile, places));
        const int64_t its_items = sumi_cuda_tile_pairs(p->shape.m, p->shape.n, tile->rows, tile->cols);
        args[i] = wgmma_args(p, tile, its_items);
        items += its_items;
    }
    void* params[] = {&maps, &args[0], &args[1]};
    const sumi_cuda_grid grid = {cluster_grid(run->device, items), 1, 1, tile->threads, tile->shared};
    return sumi_cuda_launch(run, sumi_cuda_pair_name(kernel), grid, params);
}

// A plan without products that share k has no such scratch.
static CUdeviceptr partial_sums_of(const sumi_cuda_run* run, const product* p, const sumi_cuda_linear_choice* c)
{
    if (c->split <= 1) return 0;
    return run->scratch + (p->shape.operands != SUMI_CUDA_BF16 ? quantised_bytes(run->op->rows, p->shape.k) : 0);
}

static sumi_result launch_split(const sumi_cuda_run* run, const product* p, const sumi_cuda_linear_choice* c)
{
    SUMI_ASSERT(c->method == SUMI_CUDA_METHOD_SPLIT && c->split >= 1);
    const sumi_cuda_split* kernel = &sumi_cuda_split_kernels[c->kernel];
    const sumi_cuda_shape* s = &p->shape;
    SUMI_ASSERT(kernel->operands == s->operands);
    const mapped_matrix x = rows_of_x(p, 64), w = rows_of_weight(p, kernel->cols / 2);
    CUtensorMap mx, mw;
    SUMI_TRY(map_matrix(run, &x, &mx));
    SUMI_TRY(map_matrix(run, &w, &mw));
    sumi_gemm_split_args args = {.partial_sums = partial_sums_of(run, p, c),
                                 .arrivals = run->arrivals,
                                 .m = s->m,
                                 .n = s->n,
                                 .k = s->k,
                                 .group = group_of(s->m, 128),
                                 .split = c->split,
                                 .epilogue = p->epilogue};
    void* params[] = {&mx, &mw, &args};
    const sumi_cuda_grid grid = {
        cluster_grid(run->device, sumi_cuda_tile_pairs(s->m, s->n, 128, kernel->cols) * c->split), 1, 1, 384,
        kernel->shared};
    return sumi_cuda_launch(run, p->is_fused ? kernel->swiglu : kernel->any, grid, params);
}

static sumi_result launch_portable_product(const sumi_cuda_run* run, const product* p, const sumi_cuda_linear_choice* c)
{
    SUMI_ASSERT(c->method == SUMI_CUDA_METHOD_PORTABLE && c->split >= 1);
    SUMI_ASSERT(sumi_cuda_portable_kernels[c->kernel].operands == p->shape.operands);
    const sumi_cuda_portable* kernel = &sumi_cuda_portable_kernels[c->kernel];
    const sumi_cuda_shape* s = &p->shape;
    const sumi_gemm_epilogue* f = &p->epilogue;
    sumi_gemm_portable_args args = {.x = p->x,
                                    .w = p->weight.data,
                                    .y = f->y + 2 * (uint64_t)f->column,
                                    .row_scale = f->row_scale,
                                    .col_scale = f->col_scale,
                                    .partial_sums = partial_sums_of(run, p, c),
                                    .arrivals = run->arrivals,
                                    .m = s->m,
                                    .n = s->n,
                                    .k = s->k,
                                    .ldx = p->ldx,
                                    .ldw = p->weight.pitch,
                                    .ldy = f->ldy,
                                    .ldr = f->ldy,
                                    .group = 8,
                                    .split = c->split,
                                    .epilogue = *f};
    void* params[] = {&args};
    const sumi_cuda_grid grid = {(uint32_t)sumi_divide_up(s->m, kernel->rows)
                                     * (uint32_t)sumi_divide_up(s->n, kernel->cols),
                                 (uint32_t)c->split, 1, (uint32_t)kernel->threads, kernel->shared};
    return sumi_cuda_launch(run, sumi_cuda_portable_name(kernel, s->epilogue), grid, params);
}

static sumi_result launch_gemv(const sumi_cuda_run* run, const product* p, const sumi_cuda_linear_choice* c)
{
    SUMI_ASSERT(c->method == SUMI_CUDA_METHOD_GEMV && p->shape.m <= 16);
    const sumi_cuda_shape* s = &p->shape;
    sumi_gemv_args args = {.x = p->x,
                           .w = p->weight.data,
                           .partial_sums = partial_sums_of(run, p, c),
                           .arrivals = run->arrivals,
                           .m = s->m,
                           .n = s->n,
                           .k = s->k,
                           .ldx = p->ldx,
                           .ldw = p->weight.pitch,
                           .split = c->split,
                           .swiglu = p->is_fused,
                           .epilogue = p->epilogue};
    void* params[] = {&args};
    const sumi_cuda_grid grid = {(uint32_t)sumi_divide_up(s->n, 16), (uint32_t)c->split, 1, 256, 0};
    return sumi_cuda_launch(run, s->m <= 8 ? "sumi_gemv_bf16_8" : "sumi_gemv_bf16_16", grid, params);
}

static sumi_result launch_any_product(const sumi_cuda_run* run, const product* p)
{
    const sumi_cuda_shape* s = &p->shape;
    sumi_gemm_any_args args = {.x = p->x,
                               .w = p->weight.data,
                               .m = s->m,
                               .n = s->n,
                               .k = s->k,
                               .ldx = p->ldx,
                               .ldw = p->weight.pitch,
                               .x_is_float = p->x_is_float,
                               .swiglu = p->is_fused,
                               .epilogue = p->epilogue};
    void* params[] = {&args};
    const sumi_cuda_grid grid = {(uint32_t)sumi_divide_up(s->n, 64),
                                 (uint32_t)sumi_min_int(sumi_divide_up(s->m, 64), 65535), 1, 256, 0};
    return sumi_cuda_launch(run, "sumi_gemm_any", grid, params);
}
// Writes x in 8 bits with a scale per row to scratch, only the rows of the slice. Balances x here, because no earlier
// op has done so.
static sumi_result quantize(const sumi_cuda_run* run, product* p)
{
    SUMI_ASSERT(p->shape.m >= 1 && p->shape.k % 16 == 0);
    const CUdeviceptr y = run->scratch, scales = y + sumi_align((uint64_t)p->shape.m * (uint64_t)p->shape.k, 256);
    sumi_quantize_rows_args args = {.x = p->x,
                                    .y = y,
                                    .scales = scales,
                                    .balance = p->weight.balance,
                                    .ldx = p->ldx,
                                    .rows = p->shape.m,
                                    .cols = p->ldx};
    void* params[] = {&args};
    const int32_t multiprocessors = sumi_max_int(run->device->multiprocessors, 1);
    sumi_cuda_grid grid = {(uint32_t)sumi_min_int(p->shape.m, 8 * multiprocessors), 1, 1, SUMI_ROWS_THREADS, 0};
    const char* name = p->shape.operands == SUMI_CUDA_INT8 ? "sumi_rotate_rows_any" : "sumi_quantize_rows";
    for (int32_t chunks = 3; chunks <= 5 && p->shape.operands == SUMI_CUDA_INT8; chunks += 2) {
        const int32_t threads = SUMI_ROTATE_THREADS(p->ldx, chunks);
        if (threads > SUMI_ROTATE_MAX_THREADS) continue;
        name = chunks == 3 ? "sumi_rotate_rows_3" : "sumi_rotate_rows_5";
        grid.x = (uint32_t)sumi_min_int(p->shape.m, SUMI_ROTATE_LIMIT / threads * multiprocessors);
        grid.block = (uint32_t)threads;
        break;
    }
    SUMI_TRY(sumi_cuda_launch(run, name, grid, params));
    p->x = y;
    p->ldx = p->shape.k;
    p->epilogue.row_scale = scales;
    return SUMI_OK;
}

// ---- The op ---------------------------------------------------------------------------------------------------------
static uint64_t element_bytes(sumi_element element) { return element == SUMI_ELEMENT_FLOAT ? 4 : 2; }

static sumi_gemm_epilogue epilogue_args_of(const sumi_cuda_run* run, sumi_value out, bool is_fused,
                                           bool is_weight_gated)
{
    SUMI_ASSERT(!is_fused || is_weight_gated);
    const sumi_op* op = run->op;
    const int32_t cols = sumi_cuda_cols(run, out), n = op->weight->rows;
    const uint64_t element = element_bytes(sumi_cuda_element(run, out)),
                   first = (uint64_t)op->u.linear.y_row * (uint64_t)cols * element;
    const sumi_step gate = sumi_cuda_step_of(run, op->u.linear.gate);
    sumi_gemm_epilogue f = {.y = sumi_cuda_value(run, out) + first,
                            .bias = sumi_cuda_find_weight(run, op->bias).data,
                            .counter = run->counter,
                            .gate = gate.table,
                            .gate_stride = gate.stride,
                            .gate_column = gate.column,
                            .gate_is_float = gate.is_float,
                            .ldy = cols,
                            .column = is_fused ? (op + 1)->u.gated.y_column : op->u.linear.y_column,
                            .activation = (int32_t)op->u.linear.activation,
                            .is_float = element == 4,
                            .scale = op->u.linear.is_adapter_product ? op->u.linear.scale : 1.0f};
    f.residual = op->in[1].id != 0 ? sumi_cuda_value(run, op->in[1]) + first : 0;
    // The output is interleaved but the weight (an adapter's) is not: the epilogue computes the columns.
    f.half = !is_fused && !is_weight_gated && sumi_cuda_is_gated(run, out) ? cols / 2 : 0;
    f.is_aligned = !f.is_float && ((f.y | f.residual) & 15) == 0 && ((n | cols | f.column | f.half) & 7) == 0;
    return f;
}

// The compiled epilogue that the op needs, or `any`.
static sumi_cuda_epilogue epilogue_of(const sumi_gemm_epilogue* f, bool is_fused)
{
    if (!f->is_aligned) return SUMI_CUDA_EPILOGUE_any;
    if (is_fused) return SUMI_CUDA_EPILOGUE_swiglu;
    const bool has_bias = f->bias != 0, has_residual = f->residual != 0, has_gate = f->gate != 0;
    if (f->half != 0 || f->scale != 1.0f
        || (has_gate && (!has_residual || !f->gate_is_float || ((f->gate_stride | f->gate_column) & 3) != 0)))
        return SUMI_CUDA_EPILOGUE_any;
    if (f->activation == SUMI_ACT_GELU_TANH && has_bias && !has_residual) return SUMI_CUDA_EPILOGUE_gelu;
    if (f->activation == SUMI_ACT_GELU_ERF && has_bias && !has_residual) return SUMI_CUDA_EPILOGUE_gelu_erf;
    if (f->activation != SUMI_ACT_NONE) return SUMI_CUDA_EPILOGUE_any;
    if (has_gate) return has_bias ? SUMI_CUDA_EPILOGUE_gate_bias : SUMI_CUDA_EPILOGUE_gate;
    if (has_residual) return has_bias ? SUMI_CUDA_EPILOGUE_resid_bias : SUMI_CUDA_EPILOGUE_resid;
    return has_bias ? SUMI_CUDA_EPILOGUE_bias : SUMI_CUDA_EPILOGUE_plain;
}

// Moves the addresses to the first row of the slice and counts its rows. False: the slice has none.
static bool take_slice(const sumi_cuda_run* run, product* p, int32_t unit_rows, uint64_t x_bytes)
{
    int32_t begin, end;
    sumi_cuda_share(run, sumi_divide_up(run->op->rows, unit_rows), &begin, &end);
    if (begin >= end) return false;
    const int32_t row = begin * unit_rows;
    SUMI_ASSERT(row < run->op->rows);
    p->shape.m = sumi_min_int(run->op->rows, end * unit_rows) - row;
    p->x += (uint64_t)row * (uint64_t)p->ldx * x_bytes;
    const uint64_t y_first = (uint64_t)row * (uint64_t)p->epilogue.ldy * (p->epilogue.is_float ? 4 : 2);
    p->epilogue.y += y_first;
    if (p->epilogue.residual != 0) p->epilogue.residual += y_first;
    if (p->epilogue.row_scale != 0) p->epilogue.row_scale += 4 * (uint64_t)row;
    return true;
}

static sumi_result launch_stored(const sumi_cuda_run* run, product* p, const sumi_cuda_stored_choice* c, bool is_gated)
{
    if (!take_slice(run, p, c->unit_rows, 2)) return SUMI_OK;
    sumi_gemm_stored_args args = {.x = p->x,
                                  .m = p->shape.m,
                                  .ldx = p->ldx,
                                  .is_gated = is_gated,
                                  .swiglu = p->is_fused,
                                  .epilogue = p->epilogue};
    return sumi_cuda_launch_stored(run, run->op->weight, sumi_device_stored_form(run->plan, run->op), p->weight.data, c,
                                   &args);
}

// The run's product, all rows of the op. Its weight may still have to be unpacked.
static sumi_result describe(const sumi_cuda_run* run, product* out)
{
    const sumi_op* op = run->op;
    const sumi_cuda_operands operands = sumi_device_traits(sumi_cuda_weight_form(run, op->weight))->operands;
    const bool is_8bit = operands != SUMI_CUDA_BF16, is_fused = sumi_cuda_is_fused_gated(run->plan, run->op_index),
               is_weight_gated = (op->marks & SUMI_DEVICE_OP_GATED) != 0;
    const sumi_value y = is_fused ? (op + 1)->out : op->out;
    // The columns of the weight, rounded up to 8: both operands have zeros there. For int8 rounded up to 256.
    const int32_t cols = sumi_cuda_cols(run, op->in[0]),
                  depth = is_8bit ? sumi_device_quantised_pitch(operands, cols) : cols;
    product p = {.weight = sumi_cuda_find_weight(run, op->weight),
                 .is_fused = is_fused,
                 .has_quantised_input = sumi_cuda_operands_of(run, op->in[0]) != SUMI_CUDA_BF16,
                 .x_is_float = sumi_cuda_element(run, op->in[0]) == SUMI_ELEMENT_FLOAT};
    if (p.weight.data == 0 || (op->bias != NULL && sumi_cuda_find_weight(run, op->bias).data == 0)) {
        return sumi_fail(run->error, SUMI_INTERNAL, "%s: the weight %s is not on the device", op->label,
                         op->weight->name);
    }
    if ((is_weight_gated && (op->bias != NULL || op->in[1].id != 0 || op->u.linear.y_column != 0))
        || (is_fused && !is_weight_gated) || (p.has_quantised_input && !is_8bit)
        || (op->in[1].id != 0 && sumi_cuda_element(run, op->in[1]) != sumi_cuda_element(run, op->out))
        || (is_8bit && p.x_is_float) || (operands == SUMI_CUDA_E4M3 && run->device->capability < 89))
        return sumi_fail(run->error, SUMI_INTERNAL, "%s: a product that the GPU has no kernel for", op->label);
    // weight_forms.c never stores the weights of adapters in 8 bits
    SUMI_ASSERT(!op->u.linear.is_adapter_product || (op->in[1].id == op->out.id && !is_8bit));
    SUMI_ASSERT(!p.has_quantised_input || (p.weight.balance != 0) == sumi_cuda_is_balanced(run, op->in[0]));
    p.epilogue = epilogue_args_of(run, y, is_fused, is_weight_gated);
    p.epilogue.col_scale = is_8bit ? p.weight.scales : 0;
    p.ldx = p.has_quantised_input ? depth : cols;
    p.x_bytes = p.has_quantised_input ? 1 : element_bytes(sumi_cuda_element(run, op->in[0]));
    const uint64_t x_row = (uint64_t)op->u.linear.x_row;
    p.x = sumi_cuda_value(run, op->in[0]) + x_row * (uint64_t)p.ldx * p.x_bytes;
    p.epilogue.row_scale = p.has_quantised_input ? sumi_cuda_quantised_scales(run, op->in[0]) + 4 * x_row : 0;
    p.shape =
        (sumi_cuda_shape){op->rows, op->weight->rows, depth, operands, is_8bit, epilogue_of(&p.epilogue, is_fused)};
    if (is_8bit
        && (((depth | p.weight.pitch) & 15) != 0 || !p.epilogue.is_aligned
            || ((p.epilogue.row_scale | p.epilogue.col_scale) & 15) != 0))
        return sumi_fail(run->error, SUMI_INTERNAL, "%s: 8-bit rows that are not aligned to 16 bytes", op->label);
    *out = p;
    return SUMI_OK;
}

// The product beside this one (plan.h), if one kernel computes both. Then this one is computed with that kernel's tile
// also where slices part the two, so that slices do not change the bits.
typedef struct companion {
    sumi_cuda_run run; // of the other op, whole
    product product;
    int32_t kernel; // in sumi_cuda_wgmma_kernels; -1: none
} companion;
static sumi_result find_companion(const sumi_cuda_run* run, const product* p, companion* out)
{
    const bool is_first = run->op->is_beside_next, is_second = run->op_index > 0 && (run->op - 1)->is_beside_next;
    out->kernel = -1;
    if (!is_first && !is_second) return SUMI_OK;
    out->run = *run;
    out->run.op_index += is_first ? 1 : -1;
    out->run.op = &run->plan->ops[out->run.op_index];
    out->run.range_begin = 0;
    out->run.range_end = out->run.op->range_count;
    SUMI_TRY(describe(&out->run, &out->product));
    const sumi_cuda_shape *mine = &p->shape, *its = &out->product.shape;
    out->kernel = sumi_cuda_choose_pair(run->device, is_first ? mine : its, is_first ? its : mine);
    return SUMI_OK;
}

// The first of two products in one slice launches both.
static sumi_result launch_with_companion(const sumi_cuda_run* run, product* p, companion* other)
{
    if (!run->op->is_beside_next) return SUMI_OK;
    if (!p->has_quantised_input) SUMI_TRY(quantize(run, p));
    other->run.scratch += quantised_bytes(run->op->rows, p->shape.k);
    if (!other->product.has_quantised_input) SUMI_TRY(quantize(&other->run, &other->product));
    return launch_pair(run, p, &other->product, other->kernel);
}

sumi_result sumi_cuda_linear(sumi_cuda_run* run)
{
    SUMI_ASSERT(run->op->kind == SUMI_OP_LINEAR && run->op->weight != NULL);
    const sumi_op* op = run->op;
    sumi_cuda_run shifted_run; // its scratch begins after the unpacked weight
    product p;
    SUMI_TRY(describe(run, &p));
    const bool is_8bit = p.shape.operands != SUMI_CUDA_BF16;
    if ((op->marks & SUMI_DEVICE_OP_STORED) != 0) {
        const bool is_weight_gated = (op->marks & SUMI_DEVICE_OP_GATED) != 0;
        const sumi_cuda_stored_choice c = stored_choice(run->device, run->allows_hopper, run->plan, op);
        if (c.tile >= 0) return launch_stored(run, &p, &c, is_weight_gated);
        // Each slice unpacks the whole weight: other ops may have overwritten the data that the previous slice left in
        // scratch.
        SUMI_TRY(sumi_cuda_unpack(run, op->weight, sumi_cuda_weight_form(run, op->weight), p.weight.data,
                                  is_weight_gated, run->scratch));
        p.weight = (sumi_device_weight){.data = run->scratch, .pitch = op->weight->cols};
        shifted_run = *run;
        shifted_run.scratch += unpacked_bytes(op->weight);
        run = &shifted_run;
    }
    if (!is_8bit)
        p.shape.reads_aligned =
            !p.x_is_float && ((p.ldx | p.weight.pitch) & 7) == 0 && ((p.x | p.weight.data) & 15) == 0;

    companion other;
    SUMI_TRY(find_companion(run, &p, &other));
    if (other.kernel >= 0 && other.run.op_index >= run->slice->op_begin && other.run.op_index < run->slice->op_end)
        return launch_with_companion(run, &p, &other);
    const sumi_cuda_linear_choice c = other.kernel >= 0
                                        ? (sumi_cuda_linear_choice){SUMI_CUDA_METHOD_WGMMA, other.kernel, 1,
                                                                    2 * sumi_cuda_wgmma_kernels[other.kernel].rows}
                                        : sumi_cuda_choose_linear(run->device, run->allows_hopper, &p.shape);
    if (is_8bit && c.method == SUMI_CUDA_METHOD_ANY)
        return sumi_fail(run->error, SUMI_INTERNAL, "%s: no 8-bit kernel fits into %d bytes of shared memory",
                         op->label, (int)run->device->shared_per_block);
    if (!take_slice(run, &p, c.unit_rows, p.x_bytes)) return SUMI_OK;
    if (is_8bit && !p.has_quantised_input) SUMI_TRY(quantize(run, &p));

    switch (c.method) {
    case SUMI_CUDA_METHOD_WGMMA: return launch_wgmma(run, &p, &c);
    case SUMI_CUDA_METHOD_SPLIT: return launch_split(run, &p, &c);
    case SUMI_CUDA_METHOD_PORTABLE: return launch_portable_product(run, &p, &c);
    case SUMI_CUDA_METHOD_GEMV: return launch_gemv(run, &p, &c);
    case SUMI_CUDA_METHOD_ANY: break;
    }
    return launch_any_product(run, &p);
}
