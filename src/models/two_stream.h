// A transformer with two streams, image rows and text rows, that meet in attention alone (MMDiT): each stream has its
// own weights for everything else. Qwen team 2025; spec qwen-image.md section 5.
//
//   latents -> 2x2 patches -> img_in --> image rows --+
//                                                     +--> blocks --> norm, proj_out of the targets' rows -> velocity
//   features -> RMS norm -> txt_in ----> text rows ---+
//
// Block, for either stream:  q, k, v = linear(ln(x) * (1 + s1) + b1), q and k normed and rotated;
//                            x += g1 * linear(attention over both);   x += g2 * mlp(ln(x) * (1 + s2) + b2)
//
// Each stream is one matrix of the rows of all evaluations, so that its products run once. In the image stream come the
// targets of all evaluations, then each evaluation's references (pictures that the network looks at). q, k and v of
// all streams are rows of one joint matrix, in which a sequence of attention is two ranges of rows: its target, and its
// references together with its text. Every second evaluation has its text first, so that the rows of two neighbours lie
// side by side and go through a product together (t: targets, r: references, c: text):
//
//   | t0 | t1 | t2 | t3 | r0 | c0 | c1 | r1 | r2 | c2 | c3 | r3 |
//
// Where references are modulated by time 0 (zero_cond_t), they are a stream of their own with the image's weights.
//
// The modulation of all blocks depends on the time alone. It is made for all evaluations at once while its tables stay
// below a bound; beyond, each evaluation makes its own. As floats that ops take as they are, while these stay below it;
// else each evaluation converts its rows. See TABLE_BYTES in two_stream.c for the numbers.
#ifndef SUMI_MODELS_TWO_STREAM_H
#define SUMI_MODELS_TWO_STREAM_H
#include "models/network_modules.h"

#define SUMI_TWO_STREAM_MAX_BLOCKS 128

// NULL stands for zeros.
typedef struct sumi_two_stream_settings {
    bool zero_cond;       // also where neither config.json nor a marker tensor says so
    uint64_t table_bytes; // of modulation tables at most; 0: TABLE_BYTES
} sumi_two_stream_settings;

typedef enum sumi_two_stream_side { SUMI_TWO_STREAM_IMAGE, SUMI_TWO_STREAM_TEXT } sumi_two_stream_side;

// A block's weights of one side.
typedef struct sumi_two_stream_weights {
    sumi_weight modulation, modulation_bias; // [shift 1, scale 1, gate 1, shift 2, scale 2, gate 2]
    sumi_weight qkv, qkv_bias, q_norm, k_norm, out, out_bias, mlp_in, mlp_in_bias, mlp_out, mlp_out_bias;
    bool is_whole; // false: a last block without what follows attention, which nothing reads there
} sumi_two_stream_weights;

typedef struct sumi_two_stream_block {
    sumi_two_stream_weights side[2];
} sumi_two_stream_block;

typedef struct sumi_two_stream {
    int32_t channels, dim, heads, head_dim, hidden, feature_width;
    int32_t time_width, time_hidden; // sinusoids, hidden layer of the time MLP
    int32_t axis_pairs[3];           // frame, row, column
    bool zero_cond;
    uint64_t table_bytes;
    int32_t block_count;
    sumi_weight image_in, image_in_bias, text_norm, text_in, text_in_bias, time_in, time_in_bias, time_out,
        time_out_bias, final_modulation, final_modulation_bias, final_linear, final_linear_bias;
    sumi_two_stream_block* blocks; // in the weight list's memory
} sumi_two_stream;

extern const sumi_denoiser_module sumi_two_stream_module;
#endif
