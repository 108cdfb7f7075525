// A transformer of one stream in which a prompt and the reference pictures inside it never see the image: a prefix, whose
// keys and values are computed once and kept. Qwen-Image-2.1, Alibaba 2026.
//
//   prompt      text text text [ reference ] text [ reference ] text text | target
//   position    0    1    2      3             3+max(h,w) ...               the number of positions before it
//   modulation  <------------------------ time 0 -----------------------> | t
//
//   row sees    text           itself and everything before it
//               a reference    all rows of the same reference and everything before them
//               a target       everything
//
//   once per job    features -> norm -> txt_in --+
//                   references ------> img_in ---+--> blocks -> k, v of every block, kept
//   per evaluation  latents ---------> img_in ------> blocks, which read k and v: kept, then their own
//                                                       -> norm_out, proj_out -> velocity
//
// Block: y = ln(x) * (1 + s1);   q, k, v = linear(y), q and k normed and rotated;
//                                x += tanh(g1) * linear(attention(q, [kept k, k], [kept v, v]))
//        y = ln(x) * (1 + s2);   x += tanh(g2) * linear(SiLU(gate(y)) * proj(y))
// The vectors [s1, g1, s2, g2] are the same for all blocks, 4 * dim floats for each time. No layer has a bias.
//
// The prefix of all prompts is one matrix. If all prompts begin with the same rows up to the last reference, these are
// computed once:
//
//   | shared: text, references | rest of prompt a | rest of prompt b | ...          otherwise | prompt a | prompt b | ...
//
// The kept k | v have the rows of prompt a, then those of prompt b, and so on, so that an evaluation reads one range of
// them: shared rows are computed once, but kept for each prompt. They are in the type of activations, 4 * dim bytes a row
// and block on a GPU. A backend that computes attention of the evaluations in 8 bits may keep k in 8 bits there; attention
// of the prefix itself reads the rows as they were before. The last block of the prefix computes k and v only (q too, with
// the product that it shares).
#ifndef SUMI_MODELS_PREFIX_DIT_H
#define SUMI_MODELS_PREFIX_DIT_H
#include "models/network_modules.h"

#define SUMI_PREFIX_DIT_MAX_BLOCKS 128
#define SUMI_PREFIX_DIT_AXES 3 // of a position: frame, row, column

// What a file without a config.json does not say, and what no file says.
typedef struct sumi_prefix_dit_settings {
    int32_t axis_share[SUMI_PREFIX_DIT_AXES]; // the parts of a head that the axes rotate, in proportion
    double theta;
    float eps;
} sumi_prefix_dit_settings;

typedef struct sumi_prefix_dit_block {
    sumi_weight qkv, q_norm, k_norm, out, gate_up, down;
} sumi_prefix_dit_block;

typedef struct sumi_prefix_dit {
    const sumi_prefix_dit_settings* settings;
    int32_t channels, dim, heads, head_dim, hidden, feature_width, time_width, time_hidden;
    int32_t axis_pairs[SUMI_PREFIX_DIT_AXES];
    float eps;
    int32_t block_count;
    sumi_weight image_in, text_norm, text_in, text_out, time_in, time_out, modulation, final_modulation, final_linear;
    sumi_prefix_dit_block* blocks; // in memory of the weight list
} sumi_prefix_dit;

// settings: sumi_prefix_dit_settings. Names: those of diffusers, with gate and projection of the MLP as two tensors or as
// one, "gate_up". Times are sigmas.
extern const sumi_denoiser_module sumi_prefix_dit_module;
#endif
