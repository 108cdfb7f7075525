// What launchers use: see launch.h.
#include "base/assert.h"
#include "cuda/state.h"
#include "kernels/rows.h"

static const sumi_value_info* info_of(const sumi_cuda_run* run, sumi_value value)
{
    return sumi_plan_info(run->plan, value);
}

CUdeviceptr sumi_cuda_value(const sumi_cuda_run* run, sumi_value value)
{
    return value.id == 0 ? 0 : run->arena + info_of(run, value)->offset;
}
int32_t sumi_cuda_cols(const sumi_cuda_run* run, sumi_value value) { return info_of(run, value)->cols; }
int32_t sumi_cuda_rows(const sumi_cuda_run* run, sumi_value value) { return info_of(run, value)->rows; }
int32_t sumi_cuda_pitch(const sumi_cuda_run* run, sumi_value value) { return info_of(run, value)->pitch; }
sumi_element sumi_cuda_element(const sumi_cuda_run* run, sumi_value value) { return info_of(run, value)->element; }

static bool has_flag(const sumi_cuda_run* run, sumi_value value, unsigned char flag)
{
    SUMI_ASSERT(value.id >= 0 && (size_t)value.id <= run->plan->value_count);
    return value.id > 0 && run->cuda->current->value_flags != NULL
        && (run->cuda->current->value_flags[value.id - 1] & flag) != 0;
}
bool sumi_cuda_is_fp8(const sumi_cuda_run* run, sumi_value value) { return has_flag(run, value, SUMI_CUDA_VALUE_FP8); }
bool sumi_cuda_is_gated(const sumi_cuda_run* run, sumi_value value)
{
    return has_flag(run, value, SUMI_CUDA_VALUE_GATED);
}

CUdeviceptr sumi_cuda_fp8_scales(const sumi_cuda_run* run, sumi_value value)
{
    const sumi_value_info* info = info_of(run, value);
    return sumi_cuda_value(run, value) + ((uint64_t)info->rows * (uint64_t)info->cols + 15) / 16 * 16;
}

// ---- What an op is --------------------------------------------------------------------------------------------------

bool sumi_cuda_op_is_fp8(const sumi_cuda_device* device, const sumi_plan* plan, const sumi_op* op)
{
    SUMI_ASSERT(op >= plan->ops && op < plan->ops + plan->op_count);
    if (!plan->fp8_weights || device->capability < 89 || op->kind != SUMI_OP_LINEAR
        || plan->sections[op->section].kind != SUMI_SECTION_DENOISE)
        return false;
    const sumi_weight* w = op->weight;
    const sumi_op* next = op + 1 < plan->ops + plan->op_count ? op + 1 : NULL;
    // the first half of an adapter
    if (next != NULL && next->kind == SUMI_OP_LINEAR && next->u.linear.accumulates && next->in[0].id == op->out.id)
        return false;
    // The rule looks at the weight, not at the rows of the product: a model's weights must have the same form in every
    // plan, or they would lie here twice.
    return !w->keeps_precision && w->rows % 16 == 0 && w->cols % 16 == 0 && w->rows >= 256 && w->cols >= 128
        && !op->u.linear.accumulates && sumi_plan_info(plan, op->in[0])->element == SUMI_ELEMENT_ACTIVATION
        && sumi_plan_info(plan, op->out)->element == SUMI_ELEMENT_ACTIVATION;
}

// Whether a LINEAR writes the input of a GATED op, with nothing between them but the products of adapters.
static bool feeds_gated(const sumi_plan* plan, int32_t op_index)
{
    SUMI_ASSERT(op_index >= 0 && (size_t)op_index < plan->op_count);
    const sumi_op* op = &plan->ops[op_index];
    if (op->kind != SUMI_OP_LINEAR || op->u.linear.accumulates || op->in[1].id != 0 || op->bias != NULL
        || op->u.linear.activation != SUMI_ACT_NONE)
        return false;
    if (op->weight->rows % 16 != 0 || op->u.linear.y_row != 0 || op->u.linear.y_column != 0) return false;
    const sumi_value_info* out = sumi_plan_info(plan, op->out);
    if (out->element != SUMI_ELEMENT_ACTIVATION || out->bound || out->rows != op->rows || out->cols != op->weight->rows)
        return false;
    for (size_t i = (size_t)op_index + 1; i < plan->op_count && plan->ops[i].section == op->section; i++) {
        const sumi_op* next = &plan->ops[i];
        if (next->kind == SUMI_OP_GATED && next->in[0].id == op->out.id) return true;
        if (next->kind != SUMI_OP_LINEAR || next->in[0].id == op->out.id) return false;
    }
    return false;
}

static bool overlaps(const sumi_value_info* a, const sumi_value_info* b)
{
    return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

// A fused pair writes the second op's value an op earlier than the plan says. layout.c keeps it clear of the first op's
// inputs for that; if it did not, the pair stays two kernels.
static bool is_clear(const sumi_plan* plan, const sumi_op* op, sumi_value value)
{
    for (int32_t i = 0; i < SUMI_OP_MAX_INPUTS; i++) {
        if (op->in[i].id != 0 && overlaps(sumi_plan_info(plan, value), sumi_plan_info(plan, op->in[i]))) return false;
    }
    return true;
}

// As the plan's layout says: it gave no memory to what such a product would write, and keeps what the second op writes
// clear of the first one's inputs.
static bool is_fused_pair(const sumi_plan* plan, int32_t linear) { return sumi_plan_is_gated_pair(plan, linear); }

bool sumi_cuda_is_fused_gated(const sumi_plan* plan, int32_t op_index)
{
    return is_fused_pair(plan, op_index) || is_fused_pair(plan, op_index - 1);
}

static bool is_norm_pair(const sumi_plan* plan, int32_t add)
{
    if (add < 0 || (size_t)add + 1 >= plan->op_count) return false;
    const sumi_op *op = &plan->ops[add], *norm = &plan->ops[add + 1];
    if (op->kind != SUMI_OP_NORM_GATE_ADD || norm->kind != SUMI_OP_NORM_MODULATE || norm->section != op->section)
        return false;
    if (norm->in[0].id != op->out.id || norm->rows != op->rows || norm->u.norm.x_row != op->u.gate_add.x_row)
        return false;
    const sumi_value_info *x = sumi_plan_info(plan, op->out), *b = sumi_plan_info(plan, op->in[1]),
                          *y = sumi_plan_info(plan, norm->out);
    if (x->element != SUMI_ELEMENT_ACTIVATION || b->element != SUMI_ELEMENT_ACTIVATION
        || y->element != SUMI_ELEMENT_ACTIVATION)
        return false;
    return x->cols % 8 == 0 && x->cols <= SUMI_NORM_PAIR_MOST_COLS && is_clear(plan, op, norm->out);
}

bool sumi_cuda_is_fused_norm(const sumi_plan* plan, int32_t op_index)
{
    return is_norm_pair(plan, op_index) || is_norm_pair(plan, op_index - 1);
}

// A value may be kept as e4m3 when one NORM_MODULATE writes all of it and all readers are products with fp8 weights.
static void flag_fp8(const sumi_cuda_device* device, const sumi_plan* plan, unsigned char* flags)
{
    enum { WRITTEN = 64, OTHER = 128 };
    if (!plan->fp8_weights) return;
    for (size_t i = 0; i < plan->op_count; i++) {
        const sumi_op* op = &plan->ops[i];
        const sumi_value_info* out = sumi_plan_info(plan, op->out);
        const bool norms_all = op->kind == SUMI_OP_NORM_MODULATE && op->u.norm.y_row == 0 && op->rows == out->rows
                            && out->element == SUMI_ELEMENT_ACTIVATION && !out->bound && out->cols % 16 == 0
                            && plan->sections[op->section].kind == SUMI_SECTION_DENOISE;
        if (op->out.id > 0)
            flags[op->out.id - 1] |= norms_all && (flags[op->out.id - 1] & WRITTEN) == 0 ? WRITTEN : OTHER;
        for (int32_t k = 0; k < SUMI_OP_MAX_INPUTS; k++) {
            const bool is_product = k == 0 && op->in[0].id != op->out.id && sumi_cuda_op_is_fp8(device, plan, op)
                                 && op->u.linear.x_row == 0 && op->rows == sumi_plan_info(plan, op->in[0])->rows;
            if (op->in[k].id > 0 && !is_product) flags[op->in[k].id - 1] |= OTHER;
        }
        if (op->mask.id > 0) flags[op->mask.id - 1] |= OTHER;
    }
    for (size_t v = 0; v < plan->value_count; v++) {
        const unsigned char seen = flags[v] & (WRITTEN | OTHER);
        flags[v] = (unsigned char)((flags[v] & ~(WRITTEN | OTHER)) | (seen == WRITTEN ? SUMI_CUDA_VALUE_FP8 : 0));
    }
}

void sumi_cuda_flag_values(const sumi_cuda_device* device, const sumi_plan* plan, unsigned char* flags)
{
    flag_fp8(device, plan, flags);
    for (size_t i = 0; i < plan->op_count; i++) {
        if (feeds_gated(plan, (int32_t)i)) flags[plan->ops[i].out.id - 1] |= SUMI_CUDA_VALUE_GATED;
    }
}

// ---- Weights --------------------------------------------------------------------------------------------------------

static sumi_cuda_form matrix_form(const sumi_cuda_device* device, const sumi_plan* plan, int32_t op_index)
{
    const bool is_fp8 = sumi_cuda_op_is_fp8(device, plan, &plan->ops[op_index]);
    if (feeds_gated(plan, op_index)) return is_fp8 ? SUMI_CUDA_FORM_GATED_FP8 : SUMI_CUDA_FORM_GATED;
    return is_fp8 ? SUMI_CUDA_FORM_MATRIX_FP8 : SUMI_CUDA_FORM_MATRIX;
}

bool sumi_cuda_op_weight(const sumi_cuda_device* device, const sumi_plan* plan, int32_t op_index, int32_t which,
                         const sumi_weight** out_weight, sumi_cuda_form* out_form)
{
    SUMI_ASSERT(op_index >= 0 && (size_t)op_index < plan->op_count && which >= 0);
    const sumi_op* op = &plan->ops[op_index];
    const sumi_weight* list[3] = {op->weight, op->bias, op->kind == SUMI_OP_QK_NORM_ROPE ? op->u.qk.k_weight : NULL};
    for (int32_t i = 0; i < 3; i++) {
        if (list[i] == NULL || which-- > 0) continue;
        *out_weight = list[i];
        *out_form = SUMI_CUDA_FORM_VECTOR;
        if (i > 0) return true;
        if (op->kind == SUMI_OP_EMBED_ROWS) *out_form = SUMI_CUDA_FORM_MATRIX;
        if (op->kind == SUMI_OP_LINEAR) *out_form = matrix_form(device, plan, op_index);
        if (op->kind == SUMI_OP_CONV)
            *out_form = op->u.conv.kernel == 1 ? SUMI_CUDA_FORM_MATRIX
                      : op->u.conv.upsamples   ? SUMI_CUDA_FORM_CONV_UP
                                               : SUMI_CUDA_FORM_CONV;
        return true;
    }
    return false;
}

sumi_cuda_form sumi_cuda_weight_form(const sumi_cuda_run* run, const sumi_weight* weight)
{
    const sumi_weight* its = NULL;
    sumi_cuda_form form = SUMI_CUDA_FORM_VECTOR;
    for (int32_t i = 0; sumi_cuda_op_weight(run->device, run->plan, run->op_index, i, &its, &form); i++) {
        if (its == weight) return form;
    }
    return SUMI_CUDA_FORM_VECTOR;
}

sumi_cuda_weight sumi_cuda_find_weight(const sumi_cuda_run* run, const sumi_weight* weight)
{
    const sumi_cuda_resident* resident =
        weight != NULL ? sumi_cuda_weights_find(&run->cuda->weights, weight, sumi_cuda_weight_form(run, weight)) : NULL;
    sumi_cuda_weight streamed;
    if (resident != NULL && sumi_cuda_stream_place(run->cuda, run->cuda->current, run->op_index, resident, &streamed))
        return streamed;
    return resident != NULL ? resident->place : (sumi_cuda_weight){.data = 0};
}

// ---- Launching ------------------------------------------------------------------------------------------------------

sumi_step sumi_cuda_step_of(const sumi_cuda_run* run, sumi_step_row row)
{
    if (row.table.id == 0) return (sumi_step){0, 0, 0, 0, 0};
    const sumi_value_info* info = info_of(run, row.table);
    return (sumi_step){run->arena + info->offset, row.per_step ? info->cols : 0, row.column,
                       info->element == SUMI_ELEMENT_FLOAT, 0};
}

sumi_cuda_range sumi_cuda_rows_of(const sumi_cuda_run* run)
{
    SUMI_ASSERT(run->part_begin >= 0 && run->part_begin <= run->part_end && run->part_end <= run->op->part_count);
    const sumi_op* op = run->op;
    const int64_t begin = (int64_t)run->part_begin * op->part_rows, end = (int64_t)run->part_end * op->part_rows;
    return (sumi_cuda_range){begin < op->rows ? (int32_t)begin : op->rows, end < op->rows ? (int32_t)end : op->rows};
}

void sumi_cuda_share(const sumi_cuda_run* run, int32_t units, int32_t* unit_begin, int32_t* unit_end)
{
    SUMI_ASSERT(run->part_begin >= 0 && run->part_begin <= run->part_end && run->part_end <= run->op->part_count);
    SUMI_ASSERT(units >= 0);
    *unit_begin = (int32_t)((int64_t)units * run->part_begin / run->op->part_count);
    *unit_end = (int32_t)((int64_t)units * run->part_end / run->op->part_count);
}

sumi_result sumi_cuda_launch(const sumi_cuda_run* run, const char* kernel, sumi_cuda_grid grid, void** params)
{
    SUMI_ASSERT(grid.block >= 1 && grid.block <= 1024 && params != NULL);
    SUMI_ASSERT(grid.y <= 65535 && grid.z <= 65535);
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return SUMI_OK; // a share without a unit
    CUfunction function = NULL;
    SUMI_TRY(sumi_cuda_kernel(run->modules, kernel, grid.shared_bytes, &function, run->error));
    const sumi_cuda_driver* driver = &run->device->driver;
    CUresult result;
    if (run->cuda->only_looks_up) {
        int registers = 0; // asking makes a driver that loads lazily load it now
        result = driver->cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function);
    } else {
        result = driver->cuLaunchKernel(function, grid.x, grid.y, grid.z, grid.block, 1, 1, grid.shared_bytes,
                                        run->stream, params, NULL);
    }
    return result == CUDA_SUCCESS ? SUMI_OK : sumi_cuda_failure(driver, result, kernel, run->error);
}

sumi_result sumi_cuda_tensor_map(const sumi_cuda_run* run, CUtensorMap* out_map, CUtensorMapDataType type,
                                 uint32_t rank, CUdeviceptr address, const uint64_t* dims, const uint64_t* strides,
                                 const uint32_t* box, CUtensorMapSwizzle swizzle)
{
    SUMI_ASSERT(rank >= 2 && rank <= 5);
    SUMI_ASSERT(address % 16 == 0); // of TMA, as are the multiples and the limit of the box
    const sumi_cuda_driver* driver = &run->device->driver;
    if (driver->cuTensorMapEncodeTiled == NULL)
        return sumi_fail(run->error, SUMI_DRIVER_TOO_OLD,
                         "the NVIDIA driver knows no tensor maps: install one for CUDA 12.0 or newer");
    cuuint64_t size[5], stride[5];
    cuuint32_t boxes[5], ones[5] = {1, 1, 1, 1, 1};
    for (uint32_t i = 0; i < rank && i < 5; i++) {
        size[i] = dims[i];
        boxes[i] = box[i];
        SUMI_ASSERT(dims[i] >= 1 && box[i] >= 1 && box[i] <= 256);
        if (i + 1 < rank) stride[i] = strides[i];
        SUMI_ASSERT(i + 1 >= rank || strides[i] % 16 == 0);
    }
    CUresult result = driver->cuTensorMapEncodeTiled(
        out_map, type, rank, (void*)(uintptr_t)address, size, stride, boxes, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
        swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? SUMI_OK
                                  : sumi_cuda_failure(driver, result, "describing a tensor for TMA", run->error);
}
