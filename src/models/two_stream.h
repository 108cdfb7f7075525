// A transformer with two streams, image rows and text rows, that interact only in attention (MMDiT). Each stream has
// its own weights for everything else. Qwen team 2025. Formulas: docs/architectures/qwen-image.md, "Transformer".
//
//   latents -> 2x2 patches -> img_in --> image rows --+
//                                                     +--> blocks --> norm, proj_out of the targets' rows -> velocity
//   features -> RMS norm -> txt_in ----> text rows ---+
//
// Block, for either stream:  q, k, v = linear(ln(x) * (1 + s1) + b1), q and k normed and rotated;
//                            x += g1 * linear(attention over both);   x += g2 * mlp(ln(x) * (1 + s2) + b2)
//
// Each stream is one matrix with the rows of all evaluations, so that its products run once. q, k and v of all streams
// are rows of one joint matrix, in the order of joint_rows.h.
//
// If references are modulated by time 0 (zero_cond_t), they are a separate stream, with the weights of the image.
//
// The modulation of all blocks depends only on the time. It is computed for all evaluations at once if its tables take
// no more than TABLE_BYTES; otherwise each evaluation computes its own. The tables are floats, which ops read directly,
// if they fit as floats; otherwise each evaluation converts its rows. Numbers: two_stream.c.
#ifndef SUMI_MODELS_TWO_STREAM_H
#define SUMI_MODELS_TWO_STREAM_H
#include "models/network_modules.h"

#define SUMI_TWO_STREAM_MAX_BLOCKS 128

// NULL means all zeros.
typedef struct sumi_two_stream_settings {
    bool zero_cond;       // even if neither config.json nor a marker tensor says so
    uint64_t table_bytes; // the most bytes of modulation tables; 0: TABLE_BYTES
} sumi_two_stream_settings;

typedef enum sumi_two_stream_side { SUMI_TWO_STREAM_IMAGE, SUMI_TWO_STREAM_TEXT } sumi_two_stream_side;

// A block's weights for one stream.
typedef struct sumi_two_stream_weights {
    sumi_weight modulation, modulation_bias; // [shift 1, scale 1, gate 1, shift 2, scale 2, gate 2]
    sumi_weight qkv, qkv_bias, q_norm, k_norm, out, out_bias, mlp_in, mlp_in_bias, mlp_out, mlp_out_bias;
    bool has_output_weights; // false: a last block without the weights after attention, whose output is not used
} sumi_two_stream_weights;

typedef struct sumi_two_stream_block {
    sumi_two_stream_weights side[2];
} sumi_two_stream_block;

typedef struct sumi_two_stream {
    int32_t channels, dim, heads, head_dim, hidden, feature_width;
    int32_t time_width, time_hidden; // widths of the sinusoids and of the hidden layer of the time MLP
    int32_t axis_pairs[3];           // pairs of a head for frame, row, column
    bool zero_cond;
    uint64_t table_bytes;
    int32_t block_count;
    sumi_weight image_in, image_in_bias, text_norm, text_in, text_in_bias, time_in, time_in_bias, time_out,
        time_out_bias, final_modulation, final_modulation_bias, final_linear, final_linear_bias;
    sumi_two_stream_block* blocks; // in memory of the weight list
    const char* label;             // how the labels of the ops of a block begin; NULL: "transformer_blocks."
} sumi_two_stream;

extern const sumi_denoiser_module sumi_two_stream_module;
#endif
