// See arrange.h. When this code runs, the values have no offsets yet; they are computed later, from the marks.
#include "cuda/arrange.h"
#include "base/assert.h"
#include "cuda/choose_conv.h"
#include "cuda/device.h"
#include "cuda/launch.h"
#include "kernels/rows.h"

// Returns the next op, if it is in the same section and reads what this op writes; otherwise NULL.
static const sumi_op* next_reader(const sumi_plan* plan, int32_t op_index)
{
    SUMI_ASSERT(op_index >= 0 && (size_t)op_index < plan->op_count);
    const sumi_op* op = &plan->ops[op_index];
    if ((size_t)op_index + 1 >= plan->op_count || op[1].section != op->section || op[1].in[0].id != op->out.id)
        return NULL;
    return op + 1;
}

// Whether the value that the second op of a pair writes shares no memory with the inputs of the first op, which are
// read at the same time. Values that live at the same time are apart in the plan, except those that share memory on
// purpose.
static bool has_rows_apart(const sumi_plan* plan, const sumi_op* op, sumi_value written)
{
    const int32_t base = sumi_device_base_id(plan, written),
                  container = sumi_plan_info(plan, (sumi_value){base})->container.id;
    for (int32_t i = 0; i < SUMI_OP_MAX_INPUTS; i++) {
        if (op->in[i].id == 0) continue;
        const int32_t input_base = sumi_device_base_id(plan, op->in[i]);
        if (input_base == base || input_base == container
            || sumi_plan_info(plan, (sumi_value){input_base})->container.id == base)
            return false;
    }
    return true;
}

// ---- Attention in 8 bits --------------------------------------------------------------------------------------------

typedef struct row_range {
    int32_t begin, end;
} row_range;

static bool meets_any(const row_range* ranges, int32_t count, row_range range)
{
    bool is_any = false;
    for (int32_t i = 0; i < count; i++) is_any = is_any || (range.begin < ranges[i].end && ranges[i].begin < range.end);
    return is_any;
}

static bool uses_value(const sumi_plan* plan, const sumi_op* op, int32_t id)
{
    bool is_any = (op->out.id > 0 && sumi_device_base_id(plan, op->out) == id) || op->mask.id == id;
    for (int32_t i = 0; i < SUMI_OP_MAX_INPUTS; i++)
        is_any = is_any || (op->in[i].id > 0 && sumi_device_base_id(plan, op->in[i]) == id);
    return is_any;
}

// Whether the transformer has this attention, in a form that kernels in 8 bits can compute if they have its head dim.
static bool is_attention_for_8bit(const sumi_plan* plan, const sumi_op* op)
{
    const sumi_op_attention* a = &op->u.attention;
    if (op->kind != SUMI_OP_ATTENTION || plan->sections[op->section].kind != SUMI_SECTION_DENOISE || a->causal
        || a->window != 0 || a->scale <= 0.0f)
        return false;
    const sumi_value_info *qkv = sumi_plan_info(plan, op->in[0]), *out = sumi_plan_info(plan, op->out);
    bool is_plain = true; // without padding, and the queries begin at the first token that is not kept
    for (int32_t i = 0; i < a->sequence_count; i++)
        is_plain = is_plain && a->sequences[i].query_first == (op->in[2].id != 0 ? 1 : 0)
                && sumi_sequence_key_spans(&a->sequences[i]) == a->sequences[i].span_count;
    return is_plain && qkv->element == SUMI_ELEMENT_ACTIVATION
        && (a->q_column | a->k_column | a->v_column | a->y_column | qkv->cols | out->cols) % 8 == 0;
}

static bool takes_e4m3_attention(const sumi_plan* plan, const sumi_op* op)
{
    const sumi_op_attention* a = &op->u.attention;
    const sumi_value_info* qkv = sumi_plan_info(plan, op->in[0]);
    return sumi_cuda_has_e4m3_attention(a->dim, op->in[2].id != 0) && a->q_column == 0
        && a->k_column == a->q_heads * a->dim && a->v_column == (a->q_heads + a->kv_heads) * a->dim && qkv->base.id == 0
        && !qkv->bound;
}

// Whether QK_NORM_ROPE ops write the q and k of all rows that the attention reads, each row once, only products write
// the value before them, and nothing but this attention uses it after them.
static bool has_normed_rows_only(const sumi_plan* plan, const sumi_op* attention)
{
    enum { MAX_RANGES = 256 }; // the streams of a network, of each evaluation in a batch
    row_range normed[MAX_RANGES];
    int32_t count = 0, normed_rows = 0;
    const int32_t id = attention->in[0].id;
    const sumi_value_info* qkv = sumi_plan_info(plan, attention->in[0]);
    for (int32_t i = qkv->first_use; i <= qkv->last_use; i++) {
        const sumi_op* op = &plan->ops[i];
        if (op == attention || !uses_value(plan, op, id)) continue;
        if (op > attention || op->out.id != id) return false;
        if (op->kind == SUMI_OP_QK_NORM_ROPE) {
            const row_range rows = {op->u.qk.row, op->u.qk.row + op->rows};
            if (count == MAX_RANGES || meets_any(normed, count, rows) || op->u.qk.dim != attention->u.attention.dim
                || op->u.qk.q_heads != attention->u.attention.q_heads
                || op->u.qk.kv_heads != attention->u.attention.kv_heads)
                return false;
            normed[count++] = rows;
            normed_rows += op->rows;
        } else if (op->kind == SUMI_OP_LINEAR || op->kind == SUMI_OP_KRONECKER_ADD) {
            const int32_t row = op->kind == SUMI_OP_LINEAR ? op->u.linear.y_row : op->u.kronecker.y_row;
            if (meets_any(normed, count, (row_range){row, row + op->rows})) return false;
        } else return false;
    }
    return normed_rows == qkv->rows;
}

static bool is_marked(const sumi_plan* plan, sumi_value value, uint8_t mark)
{
    return value.id != 0 && (sumi_plan_info(plan, value)->marks & mark) != 0;
}

// Whether the op copies k | v as whole rows in bfloat16 to the kept ones, from another value and at multiples of 16
// bytes, as sumi_copy_kept_fp8 needs them.
static bool copies_kept_rows(const sumi_plan* plan, const sumi_op* op, const sumi_value_info* kept)
{
    if (op->kind != SUMI_OP_COPY_ROWS || op->in[0].id == op->out.id) return false;
    const sumi_value_info* x = sumi_plan_info(plan, op->in[0]);
    return x->element == SUMI_ELEMENT_ACTIVATION && x->cols == kept->cols && x->pitch % 8 == 0
        && x->base_element % 8 == 0;
}

// Whether a value of kept k and v can hold k in e4m3: only copies write it, and all that read it are attentions whose own
// q and k are marked as e4m3.
static bool can_keep_e4m3(const sumi_plan* plan, sumi_value value)
{
    const sumi_value_info* kept = sumi_plan_info(plan, value);
    bool can = kept->element == SUMI_ELEMENT_ACTIVATION && kept->base.id == 0 && !kept->bound;
    for (int32_t i = kept->first_use; i <= kept->last_use && can; i++) {
        const sumi_op* op = &plan->ops[i];
        if (!uses_value(plan, op, value.id)) continue;
        can = op->kind == SUMI_OP_ATTENTION
                ? op->in[2].id == value.id && is_marked(plan, op->in[0], SUMI_CUDA_VALUE_QK_E4M3)
                : op->out.id == value.id && copies_kept_rows(plan, op, kept);
    }
    return can;
}

// Whether the op is an attention whose own q and k are marked as e4m3 and that reads kept ones.
static bool reads_kept_beside_e4m3(const sumi_plan* plan, const sumi_op* op)
{
    return op->kind == SUMI_OP_ATTENTION && op->in[2].id != 0 && is_marked(plan, op->in[0], SUMI_CUDA_VALUE_QK_E4M3);
}

// q and own k are e4m3 only where the kept k are too. Where one reader of kept ones cannot have e4m3, none has.
static void mark_kept_keys(sumi_plan* plan)
{
    for (size_t i = 0; i < plan->op_count; i++) {
        const sumi_op* op = &plan->ops[i];
        if (reads_kept_beside_e4m3(plan, op) && !can_keep_e4m3(plan, op->in[2]))
            plan->values[op->in[0].id - 1].marks &= (uint8_t)~SUMI_CUDA_VALUE_QK_E4M3;
    }
    for (size_t i = 0; i < plan->op_count; i++) {
        const sumi_op* op = &plan->ops[i];
        if (reads_kept_beside_e4m3(plan, op)) plan->values[op->in[2].id - 1].marks |= SUMI_CUDA_VALUE_KEPT_E4M3;
    }
}

static void mark_8bit_attention(const sumi_cuda_device* device, bool allows_hopper, sumi_plan* plan)
{
    if (plan->weight_options.attention != SUMI_ATTENTION_8BIT) return;
    const bool has_hopper = sumi_cuda_has_hopper(device, allows_hopper);
    for (size_t i = 0; i < plan->op_count; i++) {
        sumi_op* op = &plan->ops[i];
        if (!is_attention_for_8bit(plan, op)) continue;
        const int32_t dim = op->u.attention.dim;
        if (has_hopper && takes_e4m3_attention(plan, op) && has_normed_rows_only(plan, op))
            plan->values[op->in[0].id - 1].marks |= SUMI_CUDA_VALUE_QK_E4M3;
        // the kernels in int8 read no kept keys
        if (!has_hopper && op->in[2].id == 0 && (dim == 64 || dim == 96 || dim == 128))
            op->marks |= SUMI_CUDA_OP_INT8_ATTENTION;
    }
    if (has_hopper) mark_kept_keys(plan);
}

// ---- A product and its gate -----------------------------------------------------------------------------------------

// The kernels have an epilogue for SiLU.
static bool is_gated_pair(const sumi_plan* plan, int32_t op_index)
{
    const sumi_op *op = &plan->ops[op_index], *gated = next_reader(plan, op_index);
    if (gated == NULL || gated->kind != SUMI_OP_GATED || gated->u.gated.activation != SUMI_ACT_SILU
        || !sumi_device_is_plain_product(plan, op))
        return false;
    const sumi_value_info* product_out = sumi_plan_info(plan, op->out);
    return product_out->base.id == 0 && product_out->container.id == 0 && product_out->first_use == op_index
        && product_out->last_use == op_index + 1 && has_rows_apart(plan, op, gated->out);
}

// ---- A sum and its norm ---------------------------------------------------------------------------------------------

// Whether two ops on the same rows have the same bands.
static bool are_bands_equal(const sumi_op_norm_gate_add* add, const sumi_op_norm_modulate* norm)
{
    bool are_equal = add->band_count == norm->band_count;
    for (int32_t i = 0; i < add->band_count && are_equal; i++)
        are_equal = add->bands[i].end == norm->bands[i].end && add->bands[i].table_row == norm->bands[i].table_row;
    return are_equal;
}

static bool is_norm_pair(const sumi_plan* plan, int32_t op_index)
{
    const sumi_op *op = &plan->ops[op_index], *norm = next_reader(plan, op_index);
    if (norm == NULL || op->kind != SUMI_OP_NORM_GATE_ADD || norm->kind != SUMI_OP_NORM_MODULATE
        || norm->rows != op->rows || norm->u.norm.x_row != op->u.gate_add.x_row || norm->u.norm.silu
        || !are_bands_equal(&op->u.gate_add, &norm->u.norm))
        return false;
    const sumi_value_info *x = sumi_plan_info(plan, op->out), *b = sumi_plan_info(plan, op->in[1]),
                          *y = sumi_plan_info(plan, norm->out);
    if (x->element != SUMI_ELEMENT_ACTIVATION || b->element != SUMI_ELEMENT_ACTIVATION
        || y->element != SUMI_ELEMENT_ACTIVATION)
        return false;
    return x->cols % 8 == 0 && x->cols <= SUMI_NORM_PAIR_MAX_COLS && has_rows_apart(plan, op, norm->out);
}

// ---- A convolution and its norm -------------------------------------------------------------------------------------

// The norm is over the channels of a pixel, and reads and writes what the convolution wrote, which nothing else reads.
static bool is_conv_pair(const sumi_cuda_device* device, bool allows_hopper, const sumi_plan* plan, int32_t op_index)
{
    const sumi_op *op = &plan->ops[op_index], *norm = next_reader(plan, op_index);
    return norm != NULL && op->kind == SUMI_OP_CONV && norm->kind == SUMI_OP_NORM_MODULATE && norm->out.id == op->out.id
        && norm->rows == op->rows && norm->u.norm.norm == SUMI_NORM_RMS && norm->u.norm.silu
        && !norm->u.norm.weight_plus_one && norm->weight != NULL && norm->u.norm.x_row == 0 && norm->u.norm.y_row == 0
        && norm->u.norm.band_count == 0 && sumi_plan_info(plan, op->out)->element == SUMI_ELEMENT_ACTIVATION
        && sumi_cuda_conv_takes_norm(device, plan, op, allows_hopper);
}

// ---- Products beside each other -------------------------------------------------------------------------------------

// Whether the rows that both ops write are different ones, if they write to one value.
static bool writes_other_rows(const sumi_plan* plan, const sumi_op* a, const sumi_op* b)
{
    if (sumi_device_base_id(plan, a->out) != sumi_device_base_id(plan, b->out)) return true;
    const int32_t a_row = a->u.linear.y_row, b_row = b->u.linear.y_row;
    return a->out.id == b->out.id && (a_row + a->rows <= b_row || b_row + b->rows <= a_row);
}

// Whether `reader` reads what `writer` writes, other than rows of what it writes itself.
static bool reads_output(const sumi_plan* plan, const sumi_op* reader, const sumi_op* writer)
{
    bool is_any = false;
    for (int32_t k = 0; k < SUMI_OP_MAX_INPUTS; k++) {
        is_any = is_any
              || (reader->in[k].id != 0 && reader->in[k].id != reader->out.id
                  && sumi_device_base_id(plan, reader->in[k]) == sumi_device_base_id(plan, writer->out));
    }
    return is_any;
}

// Products of two streams with weights of one shape, such as image and text, in int8: their sums are exact, so the rows
// of few tokens may be computed with the tiles of many.
static bool are_products_beside(const sumi_plan* plan, int32_t op_index)
{
    const sumi_op *a = &plan->ops[op_index], *b = a + 1;
    if ((size_t)op_index + 1 >= plan->op_count || a->section != b->section || a->kind != SUMI_OP_LINEAR
        || b->kind != SUMI_OP_LINEAR || a->is_first_of_pair)
        return false;
    const bool is_int8 = (a->marks & b->marks & SUMI_DEVICE_OP_8BIT) != 0
                      && sumi_device_quantised_operands(plan, a) == SUMI_DEVICE_INT8
                      && sumi_device_quantised_operands(plan, b) == SUMI_DEVICE_INT8;
    return is_int8 && ((a->marks | b->marks) & SUMI_DEVICE_OP_GATED) == 0 && a->weight != b->weight
        && a->weight->rows == b->weight->rows && a->weight->cols == b->weight->cols
        && a->u.linear.activation == b->u.linear.activation && (a->bias == NULL) == (b->bias == NULL)
        && (a->in[1].id == 0) == (b->in[1].id == 0) && writes_other_rows(plan, a, b) && !reads_output(plan, a, b)
        && !reads_output(plan, b, a);
}

// ---- The plan -------------------------------------------------------------------------------------------------------

void sumi_cuda_arrange(const sumi_cuda_device* device, bool allows_hopper, sumi_plan* plan)
{
    sumi_device_choose_forms(plan, device->capability >= 89);
    for (int32_t i = 0; i < (int32_t)plan->op_count; i++) {
        sumi_op* op = &plan->ops[i];
        const bool is_gated = is_gated_pair(plan, i);
        op->is_first_of_pair = is_gated || is_norm_pair(plan, i) || is_conv_pair(device, allows_hopper, plan, i);
        if (is_gated) plan->values[op->out.id - 1].is_unstored = true;
    }
    for (int32_t i = 0; sumi_cuda_has_hopper(device, allows_hopper) && i + 1 < (int32_t)plan->op_count; i++) {
        if (plan->ops[i + 1].is_first_of_pair || !are_products_beside(plan, i)) continue;
        plan->ops[i++].is_beside_next = true;
    }
    mark_8bit_attention(device, allows_hopper, plan);
}

static bool joins(const sumi_plan* plan, int32_t op_index, sumi_op_kind kind)
{
    return op_index >= 0 && (size_t)op_index < plan->op_count && plan->ops[op_index].kind == kind
        && plan->ops[op_index].is_first_of_pair;
}

bool sumi_cuda_is_fused_gated(const sumi_plan* plan, int32_t op_index)
{
    return joins(plan, op_index, SUMI_OP_LINEAR) || joins(plan, op_index - 1, SUMI_OP_LINEAR);
}

bool sumi_cuda_is_fused_norm(const sumi_plan* plan, int32_t op_index)
{
    return joins(plan, op_index, SUMI_OP_NORM_GATE_ADD) || joins(plan, op_index - 1, SUMI_OP_NORM_GATE_ADD);
}

bool sumi_cuda_is_fused_conv(const sumi_plan* plan, int32_t op_index)
{
    return joins(plan, op_index, SUMI_OP_CONV) || joins(plan, op_index - 1, SUMI_OP_CONV);
}
