// The ops: the verbs of image diffusion, about 30 of them. Each has one struct of parameters here, one line in the
// table of op_kinds.c (name, unit of work, in-place rule, cost), a CPU version (src/cpu), a CUDA version (src/cuda) and
// a test against golden numbers.
//
// Conventions for every op
//   value      a matrix [rows, cols], row-major, of elements as plan.h lists them.
//              A picture is rows = height * width, cols = channels (NHWC).
//              A latent is one row per channel plane: [items * channels, height * width] (NCHW, as PyTorch's noise is
//              laid out), always float32.
//   parts      an op's work is cut into `part_count` independent parts (ranges of rows, heads x query blocks, groups
//   ...).
//              Running the parts in any order, split or together, on any number of threads gives the same bits: no part
//              sums across parts. Slices are ranges of parts.
//   step       ops inside a repeated section read per-step numbers from tables at row `counter`, the section's
//   iteration
//              + its first counter.
#ifndef SUMI_PLAN_OPS_H
#define SUMI_PLAN_OPS_H
#include "base/result.h"
#include "plan/weight.h"

typedef enum sumi_op_kind {
    SUMI_OP_EMBED_ROWS,
    SUMI_OP_FILL_ROWS,
    SUMI_OP_COPY_ROWS,
    SUMI_OP_MEAN_ROWS,
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
    SUMI_ROTARY_INTERLEAVED, // pairs (2k, 2k + 1): the diffusion transformers
    SUMI_ROTARY_HALVES       // pairs (k, k + dim / 2): the language models
} sumi_rotary;

typedef struct sumi_value {
    int32_t id;
} sumi_value; // index + 1; {0} is none
#define SUMI_NO_VALUE ((sumi_value){0})

// A row of a step table: row `counter` (or 0 when not per_step), columns [column, column + cols of the op).
typedef struct sumi_step_row {
    sumi_value table;
    int32_t column;
    bool per_step;
} sumi_step_row;
#define SUMI_NO_ROW ((sumi_step_row){{0}, 0, false})

// Rows of an op, from the end of the band before (0) to `end`, that read step tables `table_row` rows further down:
// where every prompt has rows of its own in a table. The bands of an op cover its rows.
typedef struct sumi_row_band {
    int32_t end, table_row;
} sumi_row_band;

typedef struct sumi_span {
    int32_t begin, count;
} sumi_span; // a range of rows

// One attention sequence: up to two row ranges read as one (image rows, then caption rows). The queries are query_spans
// of them from query_first on: 0, or 1 where the first range is the beginning of other sequences too, whose queries it
// is. Sequences of an op with other query_first may read the same rows, but have no queries in common.
typedef struct sumi_sequence {
    sumi_span span[2];
    int32_t span_count, query_spans, query_first;
} sumi_sequence;

static inline int32_t sumi_sequence_queries(const sumi_sequence* sequence)
{
    int32_t count = 0;
    for (int32_t i = 0; i < sequence->query_spans; i++) { count += sequence->span[sequence->query_first + i].count; }
    return count;
}

// ---- The parameters of each kind ------------------------------------------------------------------------------------
//
// in[i] and out are the values of the op that has the parameters; weight and bias are its weights. Lists are kept by
// the plan.

// EMBED_ROWS: out[r] = table[ids[r]] * scale + bias (none: 0). The table is the weight or, where there is none, in[1].
// in[0]: ids [rows, 1] int. weight: table [vocabulary, cols]. in[1]: table [.., cols] of activations. out: [rows,
// cols].
typedef struct sumi_op_embed_rows {
    float scale;
} sumi_op_embed_rows;

// FILL_ROWS: out[r] = weight for every row r of the spans (learned pad tokens); the other rows stay.
// in[0] = out: [rows, cols]. weight: [1, cols].
typedef struct sumi_op_fill_rows {
    const sumi_span* spans;
    int32_t span_count;
} sumi_op_fill_rows;

// COPY_ROWS: out[to + r] = in[0][from + r] for the op's rows; the other rows of out stay.
// in[0]: x. in[1] = out: y. Both have the same columns.
typedef struct sumi_op_copy_rows {
    int32_t from, to;
} sumi_op_copy_rows;

// MEAN_ROWS: out[s] = mean of the rows of x in span s (pooling). A part is a span.
// in[0]: x [.., cols]. out: [span_count, cols].
typedef struct sumi_op_mean_rows {
    const sumi_span* spans;
    int32_t span_count;
} sumi_op_mean_rows;

// LINEAR: with P = x[x_row + r] W^T + bias, for the op's rows r and the weight's rows as columns from y_column on,
//     out[y_row + r] = activation(P)                            in general
//     out[y_row + r] = in[1][y_row + r] + gate * P              in[1]: residual, which is out; no gate: 1
//     out[y_row + r] = in[1][y_row + r] + gate * scale * P      accumulates: an adapter's second product, without bias
// in[0]: x [.., weight cols]; where these are no multiple of 8 it may have columns of 0 behind them, up to the next
// one, which is what a GPU reads fast. in[2]: the gate's table, or out where other rows or columns of it stay.
typedef struct sumi_op_linear {
    sumi_activation activation;
    bool accumulates;
    float scale;
    int32_t x_row, y_row; // first row in x and in out
    int32_t y_column;     // first column in out
    sumi_step_row gate;   // of a residual
} sumi_op_linear;

// KRONECKER_ADD: the second half of an adapter's change W1 (x) W2 with [a, c] (x) [b, d], for the op's rows r, i < a and
// k < b:
//     out[y_row + r][y_column + i b + k] += gate * scale * sum over j < c of W1[i, j] * in[0][r c + j][k]
// in[0], the first half: every row of x as c rows of d, times W2^T: [rows * c, b]. weight: W1. in[1] = out. in[2]: the
// gate's table.
typedef struct sumi_op_kronecker_add {
    float scale;
    int32_t y_row, y_column; // first row and column in out
    sumi_step_row gate;      // none: 1
} sumi_op_kronecker_add;

// ACTIVATE: out[row + r] = activation(in[0][row + r]), element by element, for the op's rows r. Where these are not all
// rows, out is in[0].
typedef struct sumi_op_activate {
    sumi_activation activation;
    int32_t row;
} sumi_op_activate;

// GATED: out[r, j] = activation(x[r, j]) * x[r, cols + j] (SwiGLU, GeGLU).
// in[0]: x [rows, 2 * cols]. out: [rows, cols].
typedef struct sumi_op_gated {
    sumi_activation activation;
} sumi_op_gated;

// NORM_MODULATE: out[y_row + r] = norm(x[x_row + r]) * w * scale + shift, with w = weight (+ 1 with weight_plus_one).
// Weight (none: 1), scale (none: 1) and shift (none: 0) are optional; eps is added to the mean square or the variance.
// A bias, which takes neither scale nor shift nor silu: norm(x) * w + bias.
// With silu, which takes neither scale nor shift: SiLU of that.
// in[0]: x, which may be out when x_row is y_row. in[1], in[2]: the tables of scale and shift. in[3]: [1, cols] floats in
// place of the weight, which adapters change; then there is no weight.
typedef struct sumi_op_norm_modulate {
    sumi_norm norm;
    float eps;
    bool weight_plus_one, silu;
    sumi_step_row scale, shift;
    int32_t x_row, y_row, band_count; // 0: one band of all rows, which reads the tables from their first row on
    const sumi_row_band* bands;
} sumi_op_norm_modulate;

// NORM_GATE_ADD: x[x_row + r] += gate * (rms(b[b_row + r]) * weight): some networks norm what a branch returns.
// in[0] = out: x. in[1]: b. in[2]: the gate's table (none: 1). in[3]: in place of the weight, as above.
typedef struct sumi_op_norm_gate_add {
    float eps;
    sumi_step_row gate;
    int32_t x_row, b_row, band_count; // as above
    const sumi_row_band* bands;
} sumi_op_norm_gate_add;

// QK_NORM_ROPE: every head of q and of k in rows row + r of the matrix: RMS norm with its weight (none: no norm), then
// rotated by row rope_row + r of the table.
// in[0] = out: qkv [.., (q_heads + 2 * kv_heads) * dim]. in[1]: rotary table [.., dim]. weight: of q [1, dim]. in[2],
// in[3]: in place of the weights of q and k, as above.
typedef struct sumi_op_qk_norm_rope {
    int32_t q_heads, kv_heads, dim;
    float eps;
    sumi_rotary rotary;
    const sumi_weight* k_weight; // [1, dim] or NULL
    int32_t row, rope_row;
} sumi_op_qk_norm_rope;

// ATTENTION: softmax(q k^T * scale + mask) v per head and sequence. Query head h reads head h / (q_heads / kv_heads) of
// k and v.
// in[0]: q, k and v in the columns of one matrix [rows, ..]. out: [rows, q_heads * dim], row i of out is of row i of
// in[0].
typedef struct sumi_op_attention {
    int32_t q_heads, kv_heads, dim;
    float scale;
    bool causal;
    int32_t window; // keys further back than this are masked; 0: none are
    const sumi_sequence* sequences;
    int32_t sequence_count;
    int32_t query_block;                  // queries of a part. Parts go by sequence, then by head, then by block
    int32_t q_column, k_column, v_column; // where q, k and v begin in the columns of in[0]
} sumi_op_attention;

// ROPE_TABLE: out[r, 2 p], out[r, 2 p + 1] = cos, sin of positions[r, axis] / divisor * theta^(-k / n), axes in order.
// Pair p is the k-th of its axis, and n the axis' number of pairs; with is_continuous k is p, and n the number of all
// pairs.
// in[0]: positions [rows, axes] int. out: [rows, 2 * sum of pairs] float.
typedef struct sumi_op_rope_table {
    int32_t axes; // 1 to 4
    int32_t pairs[4];
    double theta, divisor;
    bool is_continuous;
} sumi_op_rope_table;

// TIME_EMBED: out[r] = cosines and sines of times[r] * scale * max_period^(-i / (width / 2)), i < width / 2.
// in[0]: times [rows, 1]. out: [rows, width], cosines in the first half with cos_first, else sines.
typedef struct sumi_op_time_embed {
    float max_period;
    float scale;
    bool cos_first;
} sumi_op_time_embed;

// FINISH_MODULATION: what a modulation layer made becomes the factors and summands that other ops take. The columns are
// `parts` equal parts; in part p an element v becomes 1 + v where bit p of adds_one is set, tanh v where bit p of
// squashes is, and stays as it is where neither is.
// in[0]: table [evaluations, cols]. out: the table itself, or rows of their own: row r is of the table's row x_row + r,
// with per_step x_row + r + `counter`.
typedef struct sumi_op_finish_modulation {
    int32_t parts;
    uint32_t adds_one, squashes;
    int32_t x_row;
    bool per_step;
} sumi_op_finish_modulation;

// PATCHIFY: latents of item items[i] -> rows of 2 x 2 patches from row row_begin[i] on, for every sequence i.
//     in[0]: latents [items * channels, height * width]. in[1] = out: rows [.., 4 * channels]; the other rows stay.
// UNPATCHIFY: the way back, times sign; sequence i makes latents i.
//     in[0]: rows [.., 4 * channels]. out: [sequence_count * channels, height * width].
// A row holds its patch's upper left pixel with all channels, then upper right, lower left and lower right; or, with
// by_channel, channel by channel its four pixels.
typedef struct sumi_op_patch {
    int32_t height, width, channels; // of a latent
    const int32_t* items;
    int32_t sequence_count;
    const int32_t* row_begin;
    float sign; // PATCHIFY: 1
    bool by_channel;
} sumi_op_patch;

// ADD_NOISE: out = sigma * noise + (1 - sigma) * clean.
// in[0]: noise. in[1]: clean. in[2]: sigma's table. All latents of one shape.
typedef struct sumi_op_add_noise {
    sumi_step_row sigma;
} sumi_op_add_noise;

// GUIDE: out[item] = u = p + s (p - n), with p and n the predictions of sequences positive[item] and negative[item].
// A negative below 0 means there is none: out[item] = p; so does s = 0.
//     NORM_LIMIT     the norm of u over an item is at most norm_limit times the norm of p; 0: it is not bounded
//     NORM_RESCALE   u |p| / |u| for each token: its channels in patch_size x patch_size pixels of every plane. |u| = 0: 0
// in[0]: predictions [sequences * channels, height * width]. in[1]: scale's table. out: [item_count * channels, ..].
typedef struct sumi_op_guide {
    int32_t item_count;
    const int32_t* positive;
    const int32_t* negative;
    sumi_step_row scale;
    sumi_guidance_rule rule; // not MODEL: that is settled before
    float norm_limit;        // of NORM_LIMIT
    int32_t channels;
    int32_t width, patch_size; // of NORM_RESCALE: pixels along a row of a plane, and along a side of a token
} sumi_op_guide;

// SOLVE: one row of the solver's table (12 columns, the floats of sumi_solver_row in order) applied to the states; with
// a mask, what is not repainted follows noise and clean.
// in[0] = out: x. in[1]: y. in[2]: h. in[3]: v. in[4]: noise. in[5]: clean. mask: the op's member. y and h are written
// too.
typedef struct sumi_op_solve {
    sumi_step_row row;
    int32_t channels;
} sumi_op_solve;

// PREVIEW: x0 = x - sigma * v, and then RGB = bias + sum over c of x0[c] * factors[c], at latent size.
// in[0]: x. in[1]: v. in[2]: sigma's table. in[3] = out: [items * 3, height * width] float.
typedef struct sumi_op_preview {
    sumi_step_row sigma;
    int32_t channels;
    const float* factors; // [channels, 3]
    const float* bias;    // [3]
} sumi_op_preview;

// PIXELS_IN: a tile of a picture of 8-bit RGB -> values in [-1, 1].
// in[0]: bytes [picture pixels, 3]. out: [tile pixels, 3].
typedef struct sumi_op_pixels_in {
    int32_t width; // of the tile
    int32_t y, x;  // where it begins in the picture
    int32_t picture_width, item_rows;
    bool per_item; // the picture is number `counter` of several of item_rows pixels
} sumi_op_pixels_in;

// PATCHES_IN: a picture of 8-bit RGB -> a row per square patch, (byte / 255 - mean) / deviation per channel. The
// picture is cut into cells of cell x cell patches, numbered row by row, and in[1] lists their numbers: row (i * cell +
// y) * cell + x of out is patch (y, x) of cell in[1][i]. The columns are (channel, frame, y, x), each frame the same
// pixels.
// in[0]: bytes [height * width, 3]. in[1]: cells [.., 1] int. out: [cells * cell^2, 3 * frames * patch^2].
typedef struct sumi_op_patches_in {
    int32_t height, width; // of the picture: multiples of patch * cell
    int32_t patch, cell, frames;
    float mean[3], deviation[3];
} sumi_op_patches_in;

// POSTERIOR: the VAE's moments -> latents: (mean + exp(log variance / 2) * eps - shift[c]) * scale[c].
// in[0]: moments picture [height * width, 2 * channels]. in[1]: eps (none: 0). out: latents of one item.
typedef struct sumi_op_posterior {
    int32_t channels;
    const float *scale, *shift; // [channels]
} sumi_op_posterior;

// LATENT_IN: a tile of a latent -> picture of latent channels, z / scale[c] + shift[c].
// in[0]: latents. out: [tile_height * tile_width, channels].
typedef struct sumi_op_latent_in {
    int32_t channels, height, width; // of the latent
    int32_t y, x, tile_height, tile_width;
    const float *scale, *shift; // [channels]; no scale is 0
    bool per_item;              // of item `counter`; else of the first
} sumi_op_latent_in;

// CONV: 3 x 3 or 1 x 1 convolution with bias, of a picture that may first be doubled by repeating its pixels, plus a
// residual.
// in[0]: x [height * width, channels]. in[1]: residual (none: 0), which may be out. weight: [out channels, channels *
// kernel^2].
typedef struct sumi_op_conv {
    int32_t height, width; // of the input
    int32_t kernel, stride;
    bool upsamples;
    bool pads_end;        // zeros on no side but the right and the bottom (downsampling); else on all four
    int32_t above, below; // rows of the input beyond the strip that the output covers
} sumi_op_conv;

// GROUP_SUMS: mean and sum of squared deviations of each block of rows and each group of channels. A part is a block.
//     in[0]: x [rows, cols]. out: [block_count, groups * 2] float.
// GROUP_NORM: (x - mean) / sqrt(variance + eps) * weight + bias per group, then SiLU with silu. Combines the blocks in
// double, in their order. Its rows may be some of the all_rows that were summed.
//     in[0]: x. in[1]: those sums. out: may be x.
typedef struct sumi_op_group {
    int32_t groups;
    float eps;
    bool silu;
    int32_t block_count, block_rows, all_rows;
} sumi_op_group;

// TILE_BLEND: mixes the first `extent` rows and columns of a decoded tile with the last ones of its upper and left
// neighbours, in place.
// in[0] = out: tile [height * width, cols]. in[1]: above (none: no seam) of above_height rows. in[2]: left, of
// left_width.
typedef struct sumi_op_tile_blend {
    int32_t height, width;
    int32_t above_height, left_width;
    int32_t extent;
} sumi_op_tile_blend;

// TILE_PLACE: the upper left height x width pixels of a tile into a picture at (y, x).
// in[0]: tile, tile_width pixels wide. in[1] = out: pictures [items * item_rows, cols]; their other rows stay.
typedef struct sumi_op_tile_place {
    int32_t tile_width, picture_width;
    int32_t y, x, height, width;
    bool per_item; // into picture `counter`; else into the first
    int32_t item_rows;
} sumi_op_tile_place;

// COMPOSITE: what an opacity of 0 hides becomes the picture beneath, in place: with x = out[r], of a row of pixels r of
// several pictures, b = in[1][r] / 127.5 - 1 and a = in[2][r] / 255 of pixel r of one,
//     out[r] = x where a is 1, else b + a (x - b), and b where a is 0.
// in[0] = out: pictures [n * rows, 3]. in[1]: 8-bit RGB [rows, 3]. in[2]: opacity, bytes [rows, 1]. No parameters.

// PIXELS_OUT: values in [-1, 1] -> 8 bits; adds the number of values that are not finite to a counter. No parameters.
// in[0]: picture [pixels, 3]. in[1]: counter [1, 1] int, written too. out: bytes [pixels, 3].

#define SUMI_OP_MAX_INPUTS 6

typedef struct sumi_op {
    sumi_op_kind kind;
    const char* label;                 // "layers.3.attention.out": static or from the plan's own text
    sumi_value in[SUMI_OP_MAX_INPUTS]; // meaning per kind, see the struct of the kind
    sumi_value out;
    sumi_value mask;           // SOLVE: inpainting mask [items, h * w] (1 = repaint) or none
    const sumi_weight* weight; // matrix, table, norm weight
    const sumi_weight* bias;
    int32_t section;
    // The work in the kind's unit (op_kinds.c) and how it is cut: part p is [p * part_rows, min(rows, (p + 1) *
    // part_rows)).
    int32_t rows;
    int32_t part_count, part_rows;
    double flops, bytes; // of the whole op, once
    bool joins_next;     // the op and the one behind it are done together. Set by a backend, see sumi_plan_arrange
    uint8_t marks;       // the backend's own
    union {
        sumi_op_embed_rows embed;
        sumi_op_fill_rows fill;
        sumi_op_copy_rows copy;
        sumi_op_mean_rows mean;
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
        sumi_op_group group;
        sumi_op_tile_blend blend;
        sumi_op_tile_place place;
    } u;
} sumi_op;
#endif
