// The ops: about 30 kinds of operations that make up the networks of image diffusion. Each kind has one struct of
// parameters in this file, one line in the table of op_kinds.c (name, unit of work, in-place rule, cost), a CPU
// implementation (src/cpu), a CUDA implementation (src/cuda) and a test against golden numbers.
//
// Conventions for all ops:
//  value       a matrix [rows, cols], row-major, with one of the element types of plan.h
//              A picture has rows = height * width, cols = channels (NHWC).
//              A latent has one row per channel plane: [items * channels, height * width] (NCHW, the layout of
//              PyTorch's noise). Its elements are always float32.
//  work range  The work of an op is cut into `range_count` independent work ranges: ranges of rows,
//              blocks of queries of one head, groups and so on. No sum crosses a work range, so the result has the
//              same bits in any order of the work ranges, split over slices or not, and on any number of threads.
//  step row    Ops in a repeated section read the numbers of the step from row `counter` of a table. The counter is the
//              iteration of the section plus the section's first_counter.
#ifndef SUMI_PLAN_OPS_H
#define SUMI_PLAN_OPS_H
#include "base/result.h"
#include "plan/weight.h"

typedef enum sumi_op_kind {
    SUMI_OP_EMBED_ROWS,
    SUMI_OP_FILL_ROWS,
    SUMI_OP_COPY_ROWS,
    SUMI_OP_MEAN_ROWS,
    SUMI_OP_ADD_ROWS,
    SUMI_OP_RESIDUAL_CHANGE,
    SUMI_OP_ADD_RESIDUAL,
    SUMI_OP_LINEAR,
    SUMI_OP_KRONECKER_ADD,
    SUMI_OP_ACTIVATE,
    SUMI_OP_GATED,
    SUMI_OP_NORM_MODULATE,
    SUMI_OP_NORM_GATE_ADD,
    SUMI_OP_QK_NORM_ROPE,
    SUMI_OP_ATTENTION,
    SUMI_OP_ROPE_TABLE,
    SUMI_OP_TIME_EMBED,
    SUMI_OP_FINISH_MODULATION,
    SUMI_OP_PATCHIFY,
    SUMI_OP_UNPATCHIFY,
    SUMI_OP_ADD_NOISE,
    SUMI_OP_GUIDE,
    SUMI_OP_SOLVE,
    SUMI_OP_PREVIEW,
    SUMI_OP_PIXELS_IN,
    SUMI_OP_PATCHES_IN,
    SUMI_OP_POSTERIOR,
    SUMI_OP_LATENT_IN,
    SUMI_OP_CONV,
    SUMI_OP_SHORTCUT,
    SUMI_OP_GROUP_SUMS,
    SUMI_OP_GROUP_NORM,
    SUMI_OP_TILE_BLEND,
    SUMI_OP_TILE_PLACE,
    SUMI_OP_COMPOSITE,
    SUMI_OP_PIXELS_OUT,
    SUMI_OP_KIND_COUNT
} sumi_op_kind;
const char* sumi_op_name(sumi_op_kind kind); // "linear", for tables and messages

typedef enum sumi_activation {
    SUMI_ACT_NONE,
    SUMI_ACT_SILU,
    SUMI_ACT_GELU_TANH,
    SUMI_ACT_GELU_ERF,
    SUMI_ACT_QUICK_GELU,
    SUMI_ACT_TANH
} sumi_activation;
typedef enum sumi_norm { SUMI_NORM_RMS, SUMI_NORM_LAYER } sumi_norm;
typedef enum sumi_rotary {
    SUMI_ROTARY_NONE,
    SUMI_ROTARY_INTERLEAVED, // rotates pairs (2k, 2k + 1): the diffusion transformers
    SUMI_ROTARY_HALVES       // rotates pairs (k, k + dim / 2): the language models
} sumi_rotary;

typedef struct sumi_value {
    int32_t id;
} sumi_value; // id: index in sumi_plan.values + 1; {0} means none
#define SUMI_NO_VALUE ((sumi_value){0})

// A row of a step table: row `counter` (row 0 without per_step), columns [column, column + columns of the op).
typedef struct sumi_step_row {
    sumi_value table;
    int32_t column;
    bool per_step;
} sumi_step_row;
#define SUMI_NO_ROW ((sumi_step_row){{0}, 0, false})

// A band: the op's rows from the end of the previous band (0 for the first) to `end`. They read row `table_row` + the
// usual row of each step table. Used where every prompt has its own rows in a table. The bands of an op cover all
// its rows.
typedef struct sumi_row_band {
    int32_t end, table_row;
} sumi_row_band;

typedef struct sumi_span {
    int32_t begin, count;
} sumi_span; // a range of rows

// One attention sequence: up to two row ranges that are read as one sequence (image rows, then caption rows). The query
// rows are the ranges [query_first, query_first + query_spans). query_first is 0, or 1 if the first range is also the
// beginning of other sequences and its queries belong to another one. Sequences of one op may read the same rows if
// their query_first differ, but have no queries in common.
// The keys are the first key_spans ranges; 0: all of them. A range after them is padding, which has queries only. It
// comes after all keys, so it sees all of them, causal or not. A sequence with padding has no window.
typedef struct sumi_sequence {
    sumi_span span[2];
    int32_t span_count, query_spans, query_first, key_spans;
} sumi_sequence;

// Whether the numbers of ranges fit an op with kept keys and values (ATTENTION): the first range is rows of the kept
// ones, and the second one is the sequence's own, whose queries see all of the first.
static inline bool sumi_sequence_has_kept(const sumi_sequence* sequence)
{
    return sequence->span_count == 2 && sequence->query_first == 1 && sequence->query_spans == 1
        && (sequence->key_spans == 0 || sequence->key_spans == 2);
}

// Number of ranges that hold keys.
static inline int32_t sumi_sequence_key_spans(const sumi_sequence* sequence)
{
    return sequence->key_spans > 0 ? sequence->key_spans : sequence->span_count;
}

static inline int32_t sumi_sequence_keys(const sumi_sequence* sequence)
{
    int32_t count = 0;
    for (int32_t i = 0; i < sumi_sequence_key_spans(sequence); i++) count += sequence->span[i].count;
    return count;
}

// Whether the numbers of ranges fit together, in an op with this window.
static inline bool sumi_sequence_is_valid(const sumi_sequence* sequence, int32_t window)
{
    const int32_t spans = sequence->span_count, key_spans = sequence->key_spans, first = sequence->query_first;
    if (spans < 1 || spans > 2 || sequence->query_spans < 1 || first < 0 || sequence->query_spans > spans - first
        || key_spans < 0 || key_spans > spans)
        return false;
    // padding has queries, and each of them sees a key
    return key_spans == 0 || key_spans == spans || (first + sequence->query_spans == spans && window == 0);
}

static inline int32_t sumi_sequence_queries(const sumi_sequence* sequence)
{
    int32_t count = 0;
    for (int32_t i = 0; i < sequence->query_spans; i++) count += sequence->span[sequence->query_first + i].count;
    return count;
}

// ---- The parameters of each kind ------------------------------------------------------------------------------------
//
// in[i] and out are the values, weight and bias the weights of the op that has the parameters. "bias (none: 0)" means
// that the op computes with 0 if it has no bias. The plan owns copies of the lists that parameters point to.

// EMBED_ROWS: out[r] = table[ids[r]] * scale + bias (none: 0). The table is the weight, or in[1] if the op has no
// weight. With in[2], the factors f of several rows of the table (terms), it has neither scale nor bias:
//     out[r] = f[r, 0] * table[ids[r, 0]] + f[r, 1] * table[ids[r, 1]] + ...
// in[0]: ids [rows, terms] int. weight: table [vocabulary, cols]. in[1]: table [.., cols] of activations. in[2]: factors
// [rows, terms] float (none: one term). out: [rows, cols].
typedef struct sumi_op_embed_rows {
    float scale;
    int32_t terms;
} sumi_op_embed_rows;

// FILL_ROWS: out[r] = weight (none: 0) for every row r of the spans (learned padding tokens). The other rows of out are
// not changed.
// in[0] = out: [rows, cols]. weight: [1, cols].
typedef struct sumi_op_fill_rows {
    const sumi_span* spans;
    int32_t span_count;
} sumi_op_fill_rows;

// COPY_ROWS: out[to + r] = in[0][from + r] for the op's rows r. The row of x is written to the columns of y from
// y_column on. The other rows and columns of y are not changed.
// in[0]: x, which may be a view of some columns. in[1] = out: y, which has as many columns as x, or more if x is another
// value.
typedef struct sumi_op_copy_rows {
    int32_t from, to, y_column;
} sumi_op_copy_rows;

// MEAN_ROWS: out[s] = mean of the rows of x in span s (pooling). A work range is a span.
// in[0]: x [.., cols]. out: [span_count, cols].
typedef struct sumi_op_mean_rows {
    const sumi_span* spans;
    int32_t span_count;
} sumi_op_mean_rows;

// ADD_ROWS: out[to + r] = in[0][from + r] + scale * out[to + r] for the op's rows r. The other rows of out are not
// changed.
// in[0]: x. in[1] = out: y. x and y have the same number of columns.
typedef struct sumi_op_add_rows {
    float scale;
    int32_t from, to;
} sumi_op_add_rows;

// RESIDUAL_CHANGE: how much the residual d[r] = in[0][r] - in[1][r] of the op's rows r differs from an earlier one, k =
// in[2]. Row p of out is (sum of |d - k|, sum of |k|) over the elements of work range p. Then in[2][r] = d[r].
// in[0], in[1], in[2]: [.., cols]. out: [work ranges, 2] float. It has no parameters.

// ADD_RESIDUAL: out[r] += in[1][r] + f * in[2][r] for the op's rows r: a residual, extrapolated from two earlier ones.
// in[1] is the newer one, in[2] its difference from the older one. With their sigmas s0 (older) and s1, columns
// `column` of rows 0 and 1 of in[3], and the current sigma s: f = min((s1 - s) / (s0 - s1), most), or 0 unless s0 > s1.
// in[0] = out: [.., cols]. in[1], in[2]: [.., cols]. in[3]: [2, any] float. in[4]: the table of s, [.., any] float.
typedef struct sumi_op_add_residual {
    sumi_step_row sigma;
    int32_t column;
    float most;
} sumi_op_add_residual;

// LINEAR: with P = x[x_row + r] W^T + bias, for the op's rows r. P has a column for each row of the weight and is
// written to the columns of out from y_column on:
//     out[y_row + r] = activation(P)                            without in[1]
//     out[y_row + r] = in[1][y_row + r] + gate * P              in[1]: the residual, the same value as out; no gate: 1
//     out[y_row + r] = in[1][y_row + r] + gate * scale * P      accumulates: an adapter's second product, without bias
// in[0]: x [.., weight cols]. If the weight's columns are not a multiple of 8, x may be padded with columns of 0 up to
// the next multiple, because a GPU reads such rows faster. in[2]: the gate's table; or out, if the op does not write
// all rows and columns of out.
typedef struct sumi_op_linear {
    sumi_activation activation;
    bool is_adapter_product;
    float scale;
    int32_t x_row, y_row; // first rows that are read in x and written in out
    int32_t y_column;     // first column that is written in out
    sumi_step_row gate;   // factor of P, if there is a residual
} sumi_op_linear;

// KRONECKER_ADD: the second half of an adapter's change W1 (x) W2, a Kronecker product of W1 [a, c] and W2 [b, d]. For
// the op's rows r, i < a and k < b:
//     out[y_row + r][y_column + i b + k] += gate * scale * sum over j < c of W1[i, j] * in[0][r c + j][k]
// in[0]: the first half, [rows * c, b]: every row of x read as c rows of d columns, times W2^T. weight: W1.
// in[1] = out. in[2]: the gate's table.
typedef struct sumi_op_kronecker_add {
    float scale;
    int32_t y_row, y_column; // first row and column that are written in out
    sumi_step_row gate;      // none: 1
} sumi_op_kronecker_add;

// ACTIVATE: out[row + r] = activation(in[0][row + r]), element by element, for the op's rows r. If these are not all
// rows, out is in[0].
typedef struct sumi_op_activate {
    sumi_activation activation;
    int32_t row;
} sumi_op_activate;

// GATED: out[r, y_column + j] = activation(x[r, j]) * x[r, cols + j] (SwiGLU, GeGLU).
// in[0]: x [rows, 2 * cols]. out: [rows, y_column + cols or more]. in[1]: out, if the op does not write all its columns.
typedef struct sumi_op_gated {
    sumi_activation activation;
    int32_t y_column; // first column that is written in out
} sumi_op_gated;

// NORM_MODULATE: out[y_row + r] = norm(x[x_row + r]) * w * scale + shift, where w is the weight, or weight + 1 with
// weight_plus_one. Weight (none: 1), scale (none: 1) and shift (none: 0) are optional. eps is added to the mean square
// (RMS norm) or to the variance (layer norm).
// With a bias: norm(x) * w + bias. There is neither scale nor shift nor silu.
// With silu: SiLU(norm(x) * w). There is neither scale nor shift.
// in[0]: x, which may be out if x_row is y_row. in[1], in[2]: the tables of scale and shift. in[3]: [1, cols] floats
// that replace a weight which adapters change; the op has no weight then.
typedef struct sumi_op_norm_modulate {
    sumi_norm norm;
    float eps;
    bool weight_plus_one, silu;
    sumi_step_row scale, shift;
    int32_t x_row, y_row, band_count; // band_count 0: one band of all rows, table_row 0
    const sumi_row_band* bands;
} sumi_op_norm_modulate;

// NORM_GATE_ADD: x[x_row + r] += gate * (rms(b[b_row + r]) * weight). Some networks normalise the output of a branch
// before they add it.
// in[0] = out: x. in[1]: b. in[2]: the gate's table (none: 1). in[3]: replaces the weight, as in NORM_MODULATE.
typedef struct sumi_op_norm_gate_add {
    float eps;
    sumi_step_row gate;
    int32_t x_row, b_row, band_count; // bands as in NORM_MODULATE
    const sumi_row_band* bands;
} sumi_op_norm_gate_add;

// QK_NORM_ROPE: for every head of q and of k in rows row + r of the matrix: RMS norm with the head's weight (no weight:
// no norm), then rotation by row rope_row + r of the rotary table.
// in[0] = out: qkv [.., (q_heads + 2 * kv_heads) * dim]. in[1]: rotary table [.., dim]. weight: of q, [1, dim].
// in[2], in[3]: replace the weights of q and k, as in NORM_MODULATE.
typedef struct sumi_op_qk_norm_rope {
    int32_t q_heads, kv_heads, dim;
    float eps;
    sumi_rotary rotary;
    const sumi_weight* k_weight; // [1, dim] or NULL
    int32_t row, rope_row;
} sumi_op_qk_norm_rope;

// ATTENTION: softmax(q k^T * scale + mask) v per head and sequence. Query head h uses head h / (q_heads / kv_heads) of
// k and v.
// in[0]: q, k and v in the columns of one matrix [rows, ..]. out: [rows, y_column + q_heads * dim or more]; row i has
// the result for the query in row i of in[0], from y_column on. in[1]: out, if the op does not write all its columns, or
// if other ops write some of its rows.
// in[2] (none: no kept keys): keys and values that were computed before, k | v [.., 2 * kv_heads * dim], with heads as in
// in[0]. Then the first range of every sequence is rows of in[2], and the second one is rows of in[0], whose queries and
// keys follow the kept keys: with `causal` a query sees all kept keys and those of in[0] up to itself. Without a window.
// The result has the bits of a sequence whose rows all lie in in[0]; or nearly, where a backend keeps k in 8 bits, for it
// was in the type of activations before.
typedef struct sumi_op_attention {
    int32_t q_heads, kv_heads, dim;
    float scale;
    bool causal;
    int32_t window; // keys more than `window` positions before the query are masked; 0: none
    const sumi_sequence* sequences;
    int32_t sequence_count;
    int32_t query_block;                  // queries per work range; the order is: sequence, head, block
    int32_t q_column, k_column, v_column; // first columns of q, k and v in in[0]
    int32_t y_column;                     // first column that is written in out
} sumi_op_attention;

// Which pairs of a rotary table belong to which axis, and what their frequencies count.
typedef enum sumi_rope_order {
    SUMI_ROPE_BY_AXIS,   // the pairs of the first axis come first, then those of the next; the frequencies restart
    SUMI_ROPE_CONTINUED, // the same, but the frequencies continue from axis to axis
    // The axes take turns, and the frequencies continue from pair to pair: pair p belongs to axis p % axes while p is
    // below axes * pairs of that axis. All others belong to the first axis.
    SUMI_ROPE_IN_TURNS
} sumi_rope_order;

// ROPE_TABLE: out[r, 2 p], out[r, 2 p + 1] = cos, sin of positions[r, axis] / divisor * theta^(-k / n). If frequencies
// restart, pair p is the k-th pair of its axis, and n is the number of pairs of the axis. If they continue, k is p, and
// n is the number of pairs of all axes.
// in[0]: positions [rows, axes] int. out: [rows, 2 * sum of pairs] float.
typedef struct sumi_op_rope_table {
    int32_t axes; // 1 to 4
    int32_t pairs[4];
    double theta, divisor;
    sumi_rope_order order;
} sumi_op_rope_table;

// TIME_EMBED: out[r] = cosines and sines of times[r] * scale * max_period^(-i / (width / 2)), i < width / 2.
// in[0]: times [rows, 1]. out: [rows, width]; with cos_first the cosines are the first half, else the sines.
typedef struct sumi_op_time_embed {
    float max_period;
    float scale;
    bool cos_first;
} sumi_op_time_embed;

// FINISH_MODULATION: converts the output of a modulation layer to the factors and summands that other ops read. The
// columns are `vector_count` vectors of equal width. An element v of vector p becomes 1 + v if bit p of adds_one is
// set, tanh v if bit p of applies_tanh is set, and is not changed if neither is set.
// in[0]: table [evaluations, cols]. out: the table itself; or a separate value, whose row r comes from row x_row + r
// of the table, with per_step from row x_row + r + `counter`.
typedef struct sumi_op_finish_modulation {
    int32_t vector_count;
    uint32_t adds_one, applies_tanh;
    int32_t x_row;
    bool per_step;
} sumi_op_finish_modulation;

// PATCHIFY: for every sequence i, the latent of item items[i] is cut into patches of `patch` x `patch` pixels, which
// become rows from row_begin[i] on. patch is 1 or 2.
//     in[0]: latents [items * channels, height * width]. in[1] = out: rows [.., patch^2 * channels]; other rows stay as
//     is.
// UNPATCHIFY: the inverse of PATCHIFY, multiplied by `sign`. Sequence i becomes latent i.
//     in[0]: rows [.., patch^2 * channels]. out: [sequence_count * channels, height * width].
// A row has all channels of the patch's upper left pixel, then of the upper right, lower left and lower right pixel.
// With by_channel it has all pixels of the first channel, then of the next.
typedef struct sumi_op_patch {
    int32_t height, width, channels; // of a latent
    int32_t patch;
    const int32_t* items;
    int32_t sequence_count;
    const int32_t* row_begin;
    float sign; // of UNPATCHIFY; PATCHIFY has 1
    bool by_channel;
} sumi_op_patch;

// ADD_NOISE: out = sigma * noise + (1 - sigma) * clean.
// in[0]: noise. in[1]: clean. in[2]: the table of sigma. All latents have the same shape.
typedef struct sumi_op_add_noise {
    sumi_step_row sigma;
} sumi_op_add_noise;

// GUIDE: out[item] = u = p + s (p - n). p and n are the predictions of the sequences positive[item] and negative[item],
// s is the guidance scale. out[item] = p if negative[item] is below 0 (without a negative prediction) or s = 0.
//     NORM_LIMIT     The norm of u over an item is limited to norm_limit times the norm of p; norm_limit 0: no limit.
//     NORM_RESCALE   u |p| / |u| for each token. A token is patch_size x patch_size pixels in all channels. |u| = 0: 0.
// in[0]: predictions [sequences * channels, height * width]. in[1]: the table of s. out: [item_count * channels, ..].
typedef struct sumi_op_guide {
    int32_t item_count;
    const int32_t* positive;
    const int32_t* negative;
    sumi_step_row scale;
    sumi_guidance_rule rule; // not SUMI_GUIDANCE_MODEL: the engine replaces it by the model's rule
    float norm_limit;        // of NORM_LIMIT
    int32_t channels;
    int32_t width, patch_size; // for NORM_RESCALE: pixels per row of a plane, and per side of a token
} sumi_op_guide;

// SOLVE: one row of the solver's table (12 columns, the floats of sumi_solver_row in order) is applied to the states.
// With a mask, the region that is not repainted is replaced by a blend of noise and clean (solver.h).
// in[0] = out: x. in[1]: y. in[2]: h. in[3]: v. in[4]: noise. in[5]: clean. mask: the op's member. The op also writes
// y and h.
typedef struct sumi_op_solve {
    sumi_step_row row;
    int32_t channels;
} sumi_op_solve;

// PREVIEW, POSTERIOR and LATENT_IN convert between latents and pictures of an autoencoder, which may be larger: a latent
// of n channels is a picture of n / packing^2 channels with `packing` times the height and width. Channel c of its pixel
// (y, x) is the latents' channel
//     k(c, y, x) = c * packing^2 + y % packing * packing + x % packing
// at (y / packing, x / packing). packing is 1 or 2; with 1 the picture is the latent itself. `channels`, `width` and
// `height` describe the picture.
// Whether a picture of `pixels` pixels in rows of `width` pixels can be packed. `width` is not read if packing is 1.
static inline bool sumi_is_packing(int32_t packing, int32_t width, int64_t pixels)
{
    return packing == 1 || (packing == 2 && width >= 2 && width % 2 == 0 && pixels % (2 * (int64_t)width) == 0);
}

// PREVIEW: x0 = x - sigma * v, then RGB = bias + sum over c of x0[k(c, y, x)] * factors[c], at the size of the picture.
// in[0]: x [items * channels * packing^2, height * width / packing^2]. in[1]: v, of the same shape. in[2]: the table of
// sigma. in[3] = out: [items * 3, height * width] float.
typedef struct sumi_op_preview {
    sumi_step_row sigma;
    int32_t channels, packing;
    int32_t width;        // 0 if packing is 1
    const float* factors; // [channels, 3]
    const float* bias;    // [3]
} sumi_op_preview;

// PIXELS_IN: a tile of an 8-bit picture is converted to values in [-1, 1]. If the picture has a fourth byte and out has
// no fourth channel, the values are multiplied by the byte / 255: where it is 0 they are 0, a grey between two bytes.
// in[0]: bytes [picture pixels, 3 or 4]. out: [tile pixels, 3 or 4], of RGB or RGBA.
typedef struct sumi_op_pixels_in {
    int32_t width; // of the tile
    int32_t y, x;  // upper left pixel of the tile in the picture
    int32_t picture_width, item_rows;
    int32_t cols; // of in[0]
    // in[0] holds several pictures of item_rows pixels each, and the tile is cut from number `counter`.
    bool per_item;
} sumi_op_pixels_in;

// PATCHES_IN: an 8-bit RGB picture becomes one row per square patch, with (byte / 255 - mean) / deviation per channel.
// The picture is divided into cells of cell x cell patches, numbered row by row, and in[1] lists cell numbers: row (i *
// cell + y) * cell + x of out is patch (y, x) of cell in[1][i]. The columns are (channel, frame, y, x); all frames have
// the same pixels.
// in[0]: bytes [height * width, 3]. in[1]: cells [.., 1] int. out: [cells * cell^2, 3 * frames * patch^2].
typedef struct sumi_op_patches_in {
    int32_t height, width; // of the picture: multiples of patch * cell
    int32_t patch, cell, frames;
    float mean[3], deviation[3];
} sumi_op_patches_in;

// POSTERIOR: converts the VAE's moments to latents. Channel k is (mean + exp(log variance / 2) * eps[k] - shift[k]) *
// scale[k], with the mean and the log variance of the pixel and channel that it stands for.
// in[0]: moments picture [height * width, 2 * channels]: the means, then the log variances. in[1]: eps (none: 0).
// out: latents of one item, [channels * packing^2, height * width / packing^2], the shape of eps too.
typedef struct sumi_op_posterior {
    int32_t channels, packing;
    int32_t width;              // 0 if packing is 1
    const float *scale, *shift; // [channels * packing^2]; every scale differs from 0
} sumi_op_posterior;

// LATENT_IN: converts a tile of the picture that a latent is. Channel c of pixel (y, x) is z / scale[k] + shift[k], with
// k = k(c, y, x) and the latent's value z.
// in[0]: latents [items * channels * packing^2, height * width / packing^2]. out: [tile_height * tile_width, channels].
typedef struct sumi_op_latent_in {
    int32_t channels, height, width, packing;
    int32_t y, x, tile_height, tile_width; // in pixels of the picture, not necessarily multiples of packing
    const float *scale, *shift;            // [channels * packing^2]; every scale differs from 0
    bool per_item;                         // from item `counter`; false: from item 0
} sumi_op_latent_in;

// CONV: 3 x 3 or 1 x 1 convolution of a picture, plus bias, plus a residual. With upsamples, the picture is first
// doubled in both directions by repeating pixels.
// in[0]: x [height * width, channels]. in[1]: residual (none: 0), which may be out.
// weight: [out channels, channels * kernel^2].
typedef struct sumi_op_conv {
    int32_t height, width; // of the input
    int32_t kernel, stride;
    bool upsamples;
    bool pads_end;        // pads with zeros at the right and the bottom only (downsampling); false: on all four sides
    int32_t above, below; // rows of the input before and after the strip that the output covers
} sumi_op_conv;

// SHORTCUT: the way around a stage of a residual autoencoder, without weights. It trades pixels for channels and makes
// up for another number of channels by copies or by means.
//     upsamples   channel o of pixel (2 y + a, 2 x + b) of out is the channel ((o * frames + frames - 1) * 4 + 2 a + b)
//                 / n of pixel (y, x), where n = out's channels * frames * 4 / channels of in[0].
//     else        with the values of `scale` x `scale` pixels in the order (channel, frame, row, column), where all
//                 frames but the last are zeros: channel o of the pixel in their place is the mean of the o-th of as
//                 many equal groups as out has channels.
// Both divisions are without remainder. The picture is the last frame of a video whose other frames are zeros.
// in[0]: x [height * width, channels]. out: [height * 2 * width * 2, ..] or [height / scale * width / scale, ..].
typedef struct sumi_op_shortcut {
    int32_t width;  // of the input
    int32_t frames; // 1 or 2
    int32_t scale;  // 1 or 2; 2 if it upsamples
    bool upsamples;
} sumi_op_shortcut;

// Whether it makes this number of channels out of that, with parameters that are known.
static inline bool sumi_is_shortcut(const sumi_op_shortcut* s, int32_t in_channels, int32_t out_channels)
{
    const int64_t values = (int64_t)s->frames * s->scale * s->scale;
    if ((s->frames != 1 && s->frames != 2) || (s->scale != 2 && (s->scale != 1 || s->upsamples)) || in_channels < 1
        || out_channels < 1 || s->width < 1 || (!s->upsamples && s->width % s->scale != 0))
        return false;
    return s->upsamples ? out_channels * values % in_channels == 0 : in_channels * values % out_channels == 0;
}

// GROUP_SUMS: mean and sum of squared deviations for each block of rows and each group of channels. A work range is a
// block of rows.
//     in[0]: x [rows, cols]. out: [block_count, groups * 2] float.
// GROUP_NORM: (x - mean) / sqrt(variance + eps) * weight + bias per group, then SiLU if `silu` is set. It combines the
// blocks in double, in their order. Its rows may be a range of the all_rows rows that GROUP_SUMS has read.
//     in[0]: x. in[1]: the output of GROUP_SUMS. out: may be x.
typedef struct sumi_op_group {
    int32_t groups;
    float eps;
    bool silu;
    int32_t block_count, block_rows, all_rows;
} sumi_op_group;

// TILE_BLEND: mixes the first `extent` rows and columns of a decoded tile, in place, with the last rows of the tile
// above and the last columns of the tile to the left.
// in[0] = out: tile [height * width, cols]. in[1]: the tile above (none: no seam), above_height rows of pixels.
// in[2]: the tile to the left (none: no seam), left_width pixels wide.
typedef struct sumi_op_tile_blend {
    int32_t height, width;
    int32_t above_height, left_width;
    int32_t extent;
} sumi_op_tile_blend;

// TILE_PLACE: copies the upper left height x width pixels of a tile into a picture at (y, x).
// in[0]: tile, tile_width pixels wide. in[1] = out: pictures [items * item_rows, cols]; their other rows do not change.
typedef struct sumi_op_tile_place {
    int32_t tile_width, picture_width;
    int32_t y, x, height, width;
    bool per_item; // into picture `counter`; false: into picture 0
    int32_t item_rows;
} sumi_op_tile_place;

// COMPOSITE: puts pictures over a picture beneath, in place. Row r of out is a pixel of one of several pictures; with x
// = out[r], and b = in[1][r] / 127.5 - 1 and a = in[2][r] / 255 for the same pixel of the picture beneath,
//     out[r] = x if a is 1, b if a is 0, else b + a (x - b)
// Of pictures with alpha, a colour is b + t (x - b) instead, in which both count by their alpha, p and q, from 0 to 1:
// t = a p / (a p + (1 - a) q); t = a if both are transparent.
// in[0] = out: pictures [n * rows, 3 or 4]. in[1]: 8-bit [rows, 3 or 4], alike. in[2]: opacity, bytes [rows, 1]. No
// parameters.

// PIXELS_OUT: converts values in [-1, 1] to 8 bits, and adds the number of values that are not finite to a counter.
// No parameters. in[0]: picture [pixels, 3 or 4]. in[1]: counter [1, 1] int, also written. out: bytes of its shape.

#define SUMI_OP_MAX_INPUTS 6

typedef struct sumi_op {
    sumi_op_kind kind;
    const char* label;                 // "layers.3.attention.out": static text, or owned by the plan
    sumi_value in[SUMI_OP_MAX_INPUTS]; // their meaning depends on the kind: see the kind's struct
    sumi_value out;
    sumi_value mask;           // SOLVE: inpainting mask [items, h * w] (1 = repaint) or none
    const sumi_weight* weight; // matrix, table, norm weight
    const sumi_weight* bias;
    int32_t section;
    // The work in the unit of the kind (op_kinds.c), and how it is cut: work range p is [p * range_rows, min(rows, (p +
    // 1) * range_rows)).
    int32_t rows;
    int32_t range_count, range_rows;
    // A backend has cut the op into its own work ranges, see sumi_plan_arrange in plan.h. The first preparing_count of
    // them only prepare data that all others need: for example, they reorder weights.
    bool is_cut;
    int32_t preparing_count;
    double flops, bytes; // of one run of the whole op
    // The backend executes this op and the next one together. Set by a backend, see sumi_plan_arrange in plan.h.
    bool is_first_of_pair, is_beside_next;
    uint8_t marks; // for the backend's own use
    union {
        sumi_op_embed_rows embed;
        sumi_op_fill_rows fill;
        sumi_op_copy_rows copy;
        sumi_op_mean_rows mean;
        sumi_op_add_rows add;
        sumi_op_add_residual add_residual;
        sumi_op_linear linear;
        sumi_op_kronecker_add kronecker;
        sumi_op_activate activate;
        sumi_op_gated gated;
        sumi_op_norm_modulate norm;
        sumi_op_norm_gate_add gate_add;
        sumi_op_qk_norm_rope qk;
        sumi_op_attention attention;
        sumi_op_rope_table rope;
        sumi_op_time_embed time;
        sumi_op_finish_modulation finish;
        sumi_op_patch patch;
        sumi_op_add_noise add_noise;
        sumi_op_guide guide;
        sumi_op_solve solve;
        sumi_op_preview preview;
        sumi_op_pixels_in pixels;
        sumi_op_patches_in patches;
        sumi_op_posterior posterior;
        sumi_op_latent_in latent_in;
        sumi_op_conv conv;
        sumi_op_shortcut shortcut;
        sumi_op_group group;
        sumi_op_tile_blend blend;
        sumi_op_tile_place tile_place;
    } u;
} sumi_op;
#endif
