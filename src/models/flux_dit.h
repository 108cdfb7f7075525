// A transformer whose first blocks have two streams, image rows and text rows with separate weights, and whose other
// blocks have one stream of all rows, with attention and MLP side by side. Black Forest Labs 2024 (FLUX.1), 2025
// (FLUX.2). Formulas: docs/architectures/flux2-klein.md, "Transformer".
//
//   latents -> patches -> x_embedder ------> image rows --+
//                                                         +--> double blocks --> single blocks --> norm, proj_out of the
//   features -------> context_embedder ----> text rows ---+                                        targets' rows -> velocity
//
// Double block, for either stream:  q, k, v = linear(ln(x) * (1 + s1) + b1), q and k normed and rotated;
//                                   x += g1 * linear(attention over both);   x += g2 * mlp(ln(x) * (1 + s2) + b2)
// Single block:                     y = ln(x) * (1 + s) + b;   x += g * linear([attention(y) | hidden layer of mlp(y)])
//
// All rows are one matrix, in the order of joint_rows.h, whose rows double blocks read and change as runs of a stream.
// Single blocks then need no copies. Their attention and the hidden layer of their MLP are columns of one matrix, which
// one product reads. The file's fused product (q, k, v, gate, up) is two: one writes q, k and v, the other one is
// multiplied by its gate before it is written, so that a third of the bytes are.
//
// The last block computes queries, MLP and output for the targets' rows only: nothing reads the others.
//
// With keeps_references the references see only each other, at time 0. They depend on nothing that changes, so they go
// through the blocks once per job, and every evaluation reads the keys and values that they left in each block:
//
//   once per job    references -> patches -> x_embedder -> blocks -> k, v of every block, kept
//   per evaluation  targets, texts ----------------------> blocks, whose attention reads [kept k, k] and [kept v, v]
//
// The kept k | v are in the type of activations, 4 * dim bytes a row and block on a GPU, or k in 8 bits, as in
// prefix_dit.h. A query sees the same keys as with one matrix of all rows, but its sums are over the kept keys first, so
// that results differ from those of another order by rounding. Queries of an op with kept keys are all rows of an
// evaluation: in the last block the text's are computed too, and not read. Without references a job is the same as without
// keeps_references.
//
// What the files say:
//
//   modulation   one vector for all blocks of a kind (FLUX.2), or layers of each block (FLUX.1). The former are
//                computed once for all evaluations: 15 * dim floats each
//   MLP          gated, act(g) * p (FLUX.2), or GELU (FLUX.1)
//   biases       none (FLUX.2), or everywhere (FLUX.1)
//   positions    three or four axes
#ifndef SUMI_MODELS_FLUX_DIT_H
#define SUMI_MODELS_FLUX_DIT_H
#include "models/network_modules.h"

#define SUMI_FLUX_DIT_MAX_BLOCKS 128
#define SUMI_FLUX_DIT_MAX_AXES 4

// What a file without a config.json does not say, and what no file says.
typedef struct sumi_flux_dit_settings {
    int32_t axis_count; // of a position: frame, row, column, and with a fourth one the place in the text
    int32_t axis_share[SUMI_FLUX_DIT_MAX_AXES]; // the parts of a head that the axes rotate, in proportion
    double theta;
    // The frame of reference r is reference_frame * (r + 1); that of targets and texts is 0.
    int32_t reference_frame;
    // References are modulated with time 0 and see only references. Not with a modulation of each block.
    bool keeps_references;
    // For files that say that the transformer takes the guidance as an input: a sentence about what to use instead.
    const char* guidance_advice;
} sumi_flux_dit_settings;

typedef enum sumi_flux_side { SUMI_FLUX_IMAGE, SUMI_FLUX_TEXT } sumi_flux_side;

// A double block's weights for one stream. Biases and modulation are bound only if the model has them.
typedef struct sumi_flux_stream_weights {
    sumi_weight modulation, modulation_bias; // [shift 1, scale 1, gate 1, shift 2, scale 2, gate 2]
    sumi_weight qkv, qkv_bias, q_norm, k_norm, out, out_bias, mlp_in, mlp_in_bias, mlp_out, mlp_out_bias;
} sumi_flux_stream_weights;

typedef struct sumi_flux_double {
    sumi_flux_stream_weights side[2];
} sumi_flux_double;

typedef struct sumi_flux_single {
    sumi_weight modulation, modulation_bias; // [shift, scale, gate]
    sumi_weight qkv, qkv_bias, q_norm, k_norm, mlp_in, mlp_in_bias;
    sumi_weight out, out_bias; // [dim, dim + hidden]: of attention, then of the MLP
} sumi_flux_single;

typedef struct sumi_flux_dit {
    const sumi_flux_dit_settings* settings;
    int32_t channels, patch, dim, heads, head_dim, hidden, feature_width;
    int32_t time_width, time_hidden;
    int32_t axis_count, axis_pairs[SUMI_FLUX_DIT_MAX_AXES];
    double theta;
    bool has_biases, has_block_modulation, is_gated;
    bool final_shift_first; // the vectors of the final modulation are shift, scale; otherwise scale, shift
    int32_t double_count, single_count;
    sumi_weight image_in, image_in_bias, text_in, text_in_bias, time_in, time_in_bias, time_out, time_out_bias;
    sumi_weight shared[3]; // modulation of all double blocks, image and text, and of all single blocks
    sumi_weight final_modulation, final_modulation_bias, final_linear, final_linear_bias;
    sumi_flux_double* doubles; // in memory of the weight list
    sumi_flux_single* singles;
} sumi_flux_dit;

extern const sumi_denoiser_module sumi_flux_dit_module;
#endif
