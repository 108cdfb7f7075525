// The table of op kinds. The functions that its columns name come first; several kinds share some of them.
#include "plan/op_kinds.h"
#include "base/assert.h"

#define PART_FLOPS 2e8      // FLOPs of a work range of a large op: 1 ms of two CPU cores, microseconds of a GPU
#define PART_ELEMENTS 65536 // elements of a work range of a memory-bound op

// ---- Units of work --------------------------------------------------------------------------------------------------

static int64_t rows_of_op(const sumi_plan* plan, const sumi_op* op)
{
    (void)plan;
    return op->rows;
}

static int64_t rows_of_output(const sumi_plan* plan, const sumi_op* op) { return sumi_plan_rows(plan, op->out); }

static int64_t rows_of_input(const sumi_plan* plan, const sumi_op* op) { return sumi_plan_rows(plan, op->in[0]); }

static int64_t one_unit(const sumi_plan* plan, const sumi_op* op)
{
    (void)plan;
    (void)op;
    return 1;
}

static int64_t spans(const sumi_plan* plan, const sumi_op* op)
{
    (void)plan;
    return op->u.fill.span_count;
}

static int64_t spans_averaged(const sumi_plan* plan, const sumi_op* op)
{
    (void)plan;
    return op->u.mean.span_count;
}

static int64_t sequences(const sumi_plan* plan, const sumi_op* op)
{
    (void)plan;
    return op->u.patch.sequence_count;
}

static int64_t items_of_guide(const sumi_plan* plan, const sumi_op* op)
{
    (void)plan;
    return op->u.guide.item_count;
}

static int64_t items_of_preview(const sumi_plan* plan, const sumi_op* op) { return sumi_plan_rows(plan, op->out) / 3; }

static int64_t pixels_of_tile(const sumi_plan* plan, const sumi_op* op)
{
    (void)plan;
    return (int64_t)op->u.tile_place.height * op->u.tile_place.width;
}

// Heads times blocks of queries, summed over all sequences.
static int64_t query_blocks(const sumi_plan* plan, const sumi_op* op)
{
    (void)plan;
    SUMI_ASSERT(op->u.attention.query_block >= 1 && op->u.attention.sequence_count >= 1);
    int64_t block_count = 0, block_rows = op->u.attention.query_block;
    for (int32_t s = 0; s < op->u.attention.sequence_count; s++) {
        const sumi_sequence* sequence = &op->u.attention.sequences[s];
        block_count += op->u.attention.q_heads * ((sumi_sequence_queries(sequence) + block_rows - 1) / block_rows);
    }
    return block_count;
}

// ---- Work ranges ----------------------------------------------------------------------------------------------------

// Rows per work range of a memory-bound op with `cols` columns.
static int32_t memory_bound_rows(int32_t cols)
{
    return cols >= PART_ELEMENTS ? 1 : PART_ELEMENTS / (cols < 1 ? 1 : cols);
}

// Rows per work range of an op with `flops` FLOPs per row: a multiple of `multiple`.
static int32_t compute_bound_rows(double flops, int32_t multiple, int32_t max_rows)
{
    SUMI_ASSERT(multiple >= 1 && max_rows >= multiple);
    double rows = PART_FLOPS / (flops < 1 ? 1 : flops);
    int32_t count = rows > max_rows ? max_rows : (int32_t)rows;
    count = count / multiple * multiple;
    return count < multiple ? multiple : count;
}

static int64_t memory_bound(const sumi_plan* plan, const sumi_op* op)
{
    return memory_bound_rows(sumi_plan_cols(plan, op->out));
}

// A sine, cosine or power takes about as long as reading and writing 32 elements.
static int64_t sine_rows(const sumi_plan* plan, const sumi_op* op)
{
    return memory_bound_rows(sumi_plan_cols(plan, op->out) * 32);
}

static int64_t sine_pair_rows(const sumi_plan* plan, const sumi_op* op)
{
    return memory_bound_rows(sumi_plan_cols(plan, op->out) / 2 * 32);
}

static int32_t head_cols(const sumi_op* op) { return (op->u.qk.q_heads + op->u.qk.kv_heads) * op->u.qk.dim; }

static int64_t head_rows(const sumi_plan* plan, const sumi_op* op)
{
    (void)plan;
    return memory_bound_rows(head_cols(op));
}

// A single work range, because PIXELS_OUT adds the number of values that are not finite to one counter, and the spans
// of FILL_ROWS are small.
static int64_t single_range(const sumi_plan* plan, const sumi_op* op)
{
    (void)plan;
    (void)op;
    return INT32_MAX;
}

static int64_t input_bound(const sumi_plan* plan, const sumi_op* op)
{
    return memory_bound_rows(sumi_plan_cols(plan, op->in[0]));
}

static int64_t linear_rows(const sumi_plan* plan, const sumi_op* op)
{
    (void)plan;
    return compute_bound_rows(2.0 * op->weight->rows * op->weight->cols, 8, 256);
}

int32_t sumi_plan_conv_effort(const sumi_weight* weight)
{
    SUMI_ASSERT(weight->rows >= 1);
    return weight->rows < 16 ? 16 : weight->rows;
}

// Whole rows of the convolution's output picture.
static int64_t conv_rows(const sumi_plan* plan, const sumi_op* op)
{
    (void)plan;
    int32_t width = op->u.conv.width * (op->u.conv.upsamples ? 2 : 1) / op->u.conv.stride;
    return compute_bound_rows(2.0 * sumi_plan_conv_effort(op->weight) * op->weight->cols, width < 1 ? 1 : width,
                              1 << 20);
}

// Rows per block of GROUP_SUMS. There are at most 64 blocks, because every work range of GROUP_NORM combines all
// blocks.
static int32_t group_block_rows(int32_t rows, int32_t cols)
{
    int32_t block_rows = memory_bound_rows(cols);
    return (rows + block_rows - 1) / block_rows > 64 ? (rows + 63) / 64 : block_rows;
}

static int64_t group_block(const sumi_plan* plan, const sumi_op* op)
{
    return group_block_rows(sumi_plan_rows(plan, op->in[0]), sumi_plan_cols(plan, op->in[0]));
}

static int64_t group_share(const sumi_plan* plan, const sumi_op* op)
{
    return group_block_rows(op->u.group.all_rows, sumi_plan_cols(plan, op->out));
}

// ---- Bytes ----------------------------------------------------------------------------------------------------------

static double fill_bytes(const sumi_plan* plan, const sumi_op* op)
{
    double rows = 0;
    for (int32_t i = 0; i < op->u.fill.span_count; i++) rows += op->u.fill.spans[i].count;
    return rows * sumi_plan_cols(plan, op->out) * plan->activation_bytes;
}

static double copy_bytes(const sumi_plan* plan, const sumi_op* op)
{
    return 2.0 * op->rows * sumi_plan_cols(plan, op->in[0]) * plan->activation_bytes;
}

static double mean_bytes(const sumi_plan* plan, const sumi_op* op)
{
    double rows = op->u.mean.span_count; // rows that are written
    for (int32_t i = 0; i < op->u.mean.span_count; i++) rows += op->u.mean.spans[i].count;
    return rows * sumi_plan_cols(plan, op->out) * plan->activation_bytes;
}

static double add_bytes(const sumi_plan* plan, const sumi_op* op)
{
    return 3.0 * op->rows * sumi_plan_cols(plan, op->out) * plan->activation_bytes;
}

static double change_bytes(const sumi_plan* plan, const sumi_op* op)
{
    return 4.0 * op->rows * sumi_plan_cols(plan, op->in[0]) * plan->activation_bytes;
}

static double linear_bytes(const sumi_plan* plan, const sumi_op* op)
{
    const sumi_weight* weight = op->weight;
    return (double)sumi_weight_bytes(weight)
         + (double)op->rows * ((double)weight->cols + weight->rows) * plan->activation_bytes;
}

// For each of the op's rows, c rows of b columns are read, and a rows of b columns are added to.
static double kronecker_bytes(const sumi_plan* plan, const sumi_op* op)
{
    return (double)op->rows * sumi_plan_cols(plan, op->in[0]) * ((double)op->weight->cols + 2.0 * op->weight->rows)
         * plan->activation_bytes;
}

static double activate_bytes(const sumi_plan* plan, const sumi_op* op)
{
    const sumi_value_info* out = sumi_plan_info(plan, op->out);
    return 2.0 * op->rows * out->cols * (double)sumi_plan_element_bytes(plan, out->element);
}

static double gate_add_bytes(const sumi_plan* plan, const sumi_op* op)
{
    return 3.0 * op->rows * sumi_plan_cols(plan, op->out) * plan->activation_bytes;
}

static double head_bytes(const sumi_plan* plan, const sumi_op* op)
{
    return 2.0 * op->rows * head_cols(op) * plan->activation_bytes;
}

static double attention_bytes(const sumi_plan* plan, const sumi_op* op)
{
    double rows = 0, kept = 0;
    for (int32_t s = 0; s < op->u.attention.sequence_count; s++) {
        const sumi_sequence* sequence = &op->u.attention.sequences[s];
        rows += (double)sumi_sequence_queries(sequence);
        kept += op->in[2].id != 0 ? sequence->span[0].count : 0;
    }
    double heads = 2.0 * op->u.attention.q_heads + 2.0 * op->u.attention.kv_heads;
    return (rows * heads + kept * 2.0 * op->u.attention.kv_heads) * op->u.attention.dim * plan->activation_bytes;
}

static double patch_bytes(const sumi_plan* plan, const sumi_op* op)
{
    (void)plan;
    return 2.0 * op->u.patch.sequence_count * op->u.patch.height * op->u.patch.width * op->u.patch.channels * 4;
}

static double preview_bytes(const sumi_plan* plan, const sumi_op* op)
{
    return 2 * sumi_plan_value_bytes(plan, op->in[0]);
}

static double posterior_bytes(const sumi_plan* plan, const sumi_op* op)
{
    return sumi_plan_value_bytes(plan, op->in[0]) + 2 * sumi_plan_value_bytes(plan, op->out);
}

static double conv_bytes(const sumi_plan* plan, const sumi_op* op)
{
    return sumi_plan_value_bytes(plan, op->in[0]) + sumi_plan_value_bytes(plan, op->out)
         + (double)sumi_weight_bytes(op->weight);
}

static double shortcut_bytes(const sumi_plan* plan, const sumi_op* op)
{
    return sumi_plan_value_bytes(plan, op->in[0]) + sumi_plan_value_bytes(plan, op->out);
}

static double input_bytes(const sumi_plan* plan, const sumi_op* op) { return sumi_plan_value_bytes(plan, op->in[0]); }

static double tile_place_bytes(const sumi_plan* plan, const sumi_op* op)
{
    return 2.0 * op->u.tile_place.height * op->u.tile_place.width * sumi_plan_cols(plan, op->in[0]) * 4;
}

static double pixels_out_bytes(const sumi_plan* plan, const sumi_op* op)
{
    return sumi_plan_value_bytes(plan, op->in[0]) + sumi_plan_value_bytes(plan, op->out);
}

// ---- FLOPs ----------------------------------------------------------------------------------------------------------

static double product_flops(const sumi_plan* plan, const sumi_op* op)
{
    (void)plan;
    return 2.0 * op->weight->rows * op->weight->cols * op->rows;
}

static double kronecker_flops(const sumi_plan* plan, const sumi_op* op)
{
    return 2.0 * op->weight->rows * op->weight->cols * sumi_plan_cols(plan, op->in[0]) * op->rows;
}

static double attention_flops(const sumi_plan* plan, const sumi_op* op)
{
    (void)plan;
    const sumi_op_attention* a = &op->u.attention;
    double flops = 0;
    for (int32_t s = 0; s < a->sequence_count; s++) {
        const sumi_sequence* sequence = &a->sequences[s];
        double queries = (double)sumi_sequence_queries(sequence), padding = 0;
        double keys = (double)sumi_sequence_keys(sequence), share = a->causal ? 0.5 : 1.0;
        // padding sees all keys
        for (int32_t i = sumi_sequence_key_spans(sequence); i < sequence->span_count; i++)
            padding += sequence->span[i].count;
        queries -= padding;
        // all queries see the first span
        if (a->causal && sequence->query_first > 0) share = 1.0 - 0.5 * queries / keys;
        flops += 4.0 * (queries * share + padding) * keys * a->q_heads * a->dim;
    }
    return flops;
}

static double rope_flops(const sumi_plan* plan, const sumi_op* op)
{
    return 100.0 * op->rows * (sumi_plan_cols(plan, op->out) / 2); // sine, cosine and power in double
}

static double time_flops(const sumi_plan* plan, const sumi_op* op)
{
    return 50.0 * op->rows * sumi_plan_cols(plan, op->out);
}

static double group_sums_flops(const sumi_plan* plan, const sumi_op* op)
{
    return 3.0 * op->rows * sumi_plan_cols(plan, op->in[0]);
}

static double group_norm_flops(const sumi_plan* plan, const sumi_op* op)
{
    return (op->u.group.silu ? 20.0 : 2.0) * op->rows * sumi_plan_cols(plan, op->out);
}

// ---- The table ------------------------------------------------------------------------------------------------------

// The column in_place: the output may be one of these inputs (MAY_BE), or always is one of them (IS_ONE_OF).
#define MAY_BE(inputs) .in_place = (inputs)
#define IS_ONE_OF(inputs) .in_place = (inputs), .is_always_in_place = true

static const sumi_op_kind_info s_kinds[SUMI_OP_KIND_COUNT] = {
    [SUMI_OP_EMBED_ROWS] = {"embed_rows", rows_of_output, memory_bound, .output_count = 2},
    [SUMI_OP_FILL_ROWS] = {"fill_rows", spans, single_range, IS_ONE_OF(SUMI_IN(0)), .bytes = fill_bytes},
    [SUMI_OP_COPY_ROWS] = {"copy_rows", rows_of_op, memory_bound, IS_ONE_OF(SUMI_IN(0) | SUMI_IN(1)),
                           .reads_any_pitch = true, .bytes = copy_bytes},
    [SUMI_OP_MEAN_ROWS] = {"mean_rows", spans_averaged, one_unit, .bytes = mean_bytes},
    [SUMI_OP_ADD_ROWS] = {"add_rows", rows_of_op, memory_bound, IS_ONE_OF(SUMI_IN(1)), .bytes = add_bytes},
    [SUMI_OP_RESIDUAL_CHANGE] = {"residual_change", rows_of_op, input_bound, .bytes = change_bytes},
    [SUMI_OP_ADD_RESIDUAL] = {"add_residual", rows_of_op, memory_bound, IS_ONE_OF(SUMI_IN(0)), .bytes = change_bytes},
    // The CPU cuts a product into the same number of work ranges differently: by columns as well as by rows.
    [SUMI_OP_LINEAR] = {"linear", rows_of_op, linear_rows, MAY_BE(SUMI_IN(1) | SUMI_IN(2)), .bytes = linear_bytes,
                        .flops = product_flops},
    [SUMI_OP_KRONECKER_ADD] = {"kronecker_add", rows_of_op, memory_bound, IS_ONE_OF(SUMI_IN(1)),
                               .bytes = kronecker_bytes, .flops = kronecker_flops},
    [SUMI_OP_ACTIVATE] = {"activate", rows_of_op, memory_bound, MAY_BE(SUMI_IN(0)), .bytes = activate_bytes},
    [SUMI_OP_GATED] = {"gated", rows_of_output, memory_bound, MAY_BE(SUMI_IN(1)), .output_count = 3},
    [SUMI_OP_NORM_MODULATE] = {"norm_modulate", rows_of_output, memory_bound, MAY_BE(SUMI_IN(0)), .output_count = 2},
    [SUMI_OP_NORM_GATE_ADD] = {"norm_gate_add", rows_of_op, memory_bound, IS_ONE_OF(SUMI_IN(0)),
                               .bytes = gate_add_bytes},
    [SUMI_OP_QK_NORM_ROPE] = {"qk_norm_rope", rows_of_op, head_rows, IS_ONE_OF(SUMI_IN(0)), .bytes = head_bytes},
    [SUMI_OP_ATTENTION] = {"attention", query_blocks, one_unit, MAY_BE(SUMI_IN(1)), .bytes = attention_bytes,
                           .flops = attention_flops},
    [SUMI_OP_ROPE_TABLE] = {"rope_table", rows_of_output, sine_pair_rows, .output_count = 1, .flops = rope_flops},
    [SUMI_OP_TIME_EMBED] = {"time_embed", rows_of_output, sine_rows, .output_count = 1, .flops = time_flops},
    [SUMI_OP_FINISH_MODULATION] = {"finish_modulation", rows_of_output, memory_bound, MAY_BE(SUMI_IN(0)),
                                   .output_count = 2},
    [SUMI_OP_PATCHIFY] = {"patchify", sequences, one_unit, IS_ONE_OF(SUMI_IN(1)), .bytes = patch_bytes},
    [SUMI_OP_UNPATCHIFY] = {"unpatchify", sequences, one_unit, .bytes = patch_bytes},
    [SUMI_OP_ADD_NOISE] = {"add_noise", rows_of_output, memory_bound, .output_count = 3}, // a row is a channel plane
    [SUMI_OP_GUIDE] = {"guide", items_of_guide, one_unit, .output_count = 3},
    [SUMI_OP_SOLVE] = {"solve", rows_of_output, memory_bound, IS_ONE_OF(SUMI_IN(0)), .output_count = 6},
    [SUMI_OP_PREVIEW] = {"preview", items_of_preview, one_unit, IS_ONE_OF(SUMI_IN(3)), .bytes = preview_bytes},
    [SUMI_OP_PIXELS_IN] = {"pixels_in", rows_of_output, memory_bound, .output_count = 1}, // a row is a pixel
    [SUMI_OP_PATCHES_IN] = {"patches_in", rows_of_output, memory_bound, .output_count = 2},
    [SUMI_OP_POSTERIOR] = {"posterior", one_unit, one_unit, .bytes = posterior_bytes},
    [SUMI_OP_LATENT_IN] = {"latent_in", rows_of_output, memory_bound, .output_count = 2},
    [SUMI_OP_CONV] = {"conv", rows_of_output, conv_rows, MAY_BE(SUMI_IN(1)), .takes_pitch = true, .bytes = conv_bytes,
                      .flops = product_flops},
    [SUMI_OP_SHORTCUT] = {"shortcut", rows_of_output, memory_bound, .bytes = shortcut_bytes},
    [SUMI_OP_GROUP_SUMS] = {"group_sums", rows_of_input, group_block, .takes_pitch = true, .bytes = input_bytes,
                            .flops = group_sums_flops},
    [SUMI_OP_GROUP_NORM] = {"group_norm", rows_of_output, group_share, MAY_BE(SUMI_IN(0)), .takes_pitch = true,
                            .output_count = 2, .flops = group_norm_flops},
    // A single work range, because the upper and the left seam share a corner. The rows below the upper seam could be
    // separate ranges.
    [SUMI_OP_TILE_BLEND] = {"tile_blend", one_unit, one_unit, IS_ONE_OF(SUMI_IN(0)), .output_count = 1},
    [SUMI_OP_TILE_PLACE] = {"tile_place", pixels_of_tile, memory_bound, IS_ONE_OF(SUMI_IN(1)),
                            .bytes = tile_place_bytes},
    [SUMI_OP_COMPOSITE] = {"composite", rows_of_output, memory_bound, IS_ONE_OF(SUMI_IN(0)), .output_count = 2},
    [SUMI_OP_PIXELS_OUT] = {"pixels_out", rows_of_output, single_range, .bytes = pixels_out_bytes},
};

const sumi_op_kind_info* sumi_op_kind_get(sumi_op_kind kind) { return &s_kinds[kind]; }

const char* sumi_op_name(sumi_op_kind kind)
{
    return kind >= 0 && kind < SUMI_OP_KIND_COUNT ? s_kinds[kind].name : "unknown";
}
