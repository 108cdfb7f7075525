// Lumina 2's NextDiT and networks derived from it: the transformers of Z-Image (S3-DiT) and of NewBie-image. Image
// tokens and caption tokens are equal parts of one sequence. Qin et al. 2025; Z-Image team 2025; NewBie team 2025.
// Formulas: docs/architectures/z-image.md, "Transformer"; docs/architectures/newbie-image.md, "Transformer".
//
//   latents -> 2x2 patches -> x_embedder -> noise refiner (image rows alone) --+
//                                                                              +--> layers (all rows) -> final layer -> patches -> velocity
//   features -> RMS norm -> cap_embedder -> context refiner (caption rows) ----+
//
// Block: x += tanh(g1) * rms(attention(rms(x) * (1 + s1)));  x += tanh(g2) * rms(swiglu(rms(x) * (1 + s2))); the
// context refiner has no s and g. s and g come from the condition:   time MLP
// Z-Image
//                                    SiLU([time MLP, pooled vector -> RMS norm -> linear]) -> linear   NewBie: each prompt has its own
//
// Rows of the joint matrix, for a batch of evaluations ("sequences") a, b, ...:
//
//   | image a + pad | image b + pad | ... | caption a + pad | caption b + pad | ...
//     all the same length                   each its own length
//
// So the noise refiner works on the leading rows. The last layer, which needs only image rows, computes queries and
// everything after them for the leading rows. Only Z-Image pads, to a multiple of 32 tokens: its pads are learned
// tokens that take part in attention like any other. If each prompt has its own condition, the captions are in reverse
// order, so that image and caption of the last sequence are neighbours and form one band of rows with the same
// modulation.
#ifndef SUMI_MODELS_NEXT_DIT_H
#define SUMI_MODELS_NEXT_DIT_H
#include "models/network_modules.h"

#define SUMI_NEXT_DIT_MAX_BLOCKS 128 // of all kinds together

typedef struct sumi_next_dit_settings {
    const char* name; // "Z-Image", for messages
    // Names of the embedder, the final layer and the blocks' modulation in the files: "all_x_embedder.2-1",
    // "all_final_layer.2-1", "adaLN_modulation.0".
    const char *x_embedder, *final_layer, *modulation;
    // image and caption are padded with learned tokens to multiples of this many tokens; 1: no pads
    int32_t pad_multiple;
    int32_t first_frame;      // the frame of a caption's first row; the image's frame follows the caption's last one
    bool reads_pooled;        // a vector from the second text encoder is part of the condition
    bool activates_condition; // blocks read SiLU of the condition, like the final layer
    float qk_eps;             // epsilon of the norms of heads; 0: the same as for the other norms
    // Defaults if config.json does not give them: base of the rotary positions, factor of the time, and the released
    // split of a head over frame, row and column.
    double theta, time_scale;
    int32_t axes[3];
} sumi_next_dit_settings;

typedef struct sumi_next_dit_block {
    bool is_modulated;
    int32_t table_index; // of its modulation table in sumi_next_dit_state.modulation; -1: none
    sumi_weight attention_norm1, attention_norm2, ffn_norm1, ffn_norm2, qkv, q_norm, k_norm, out, gate_up, down,
        modulation, modulation_bias;
} sumi_next_dit_block;

typedef struct sumi_next_dit {
    const sumi_next_dit_settings* settings;
    int32_t channels, dim, heads, kv_heads, head_dim, hidden, feature_width;
    int32_t pooled_width, pooled_hidden; // width of the pooled vector, and of the vector computed from it

    // widths of the sinusoids, the hidden layer and the result of the time MLP
    int32_t time_width, time_hidden, condition_width;
    int32_t axis_pairs[3];
    float eps, qk_eps;
    double theta, time_scale;
    int32_t layer_count, refiner_count;
    sumi_weight x_embedder, x_embedder_bias, time_in, time_in_bias, time_out, time_out_bias, caption_norm,
        caption_embedder, caption_embedder_bias, x_pad, caption_pad, pooled_norm, pooled_embedder, pooled_embedder_bias,
        fusion, fusion_bias;
    sumi_weight final_modulation, final_modulation_bias, final_linear, final_linear_bias;
    sumi_next_dit_block *layers, *noise_refiner, *context_refiner; // in memory of the weight list
} sumi_next_dit;

// State that the functions of one plan pass to each other.
typedef struct sumi_next_dit_state {
    sumi_value captions;                                                     // [all padded captions, dim], refined
    int32_t caption_begin[SUMI_MAX_PROMPTS], caption_rows[SUMI_MAX_PROMPTS]; // per prompt
    // Tables with one row per evaluation; if each prompt has its own condition, one after the other for each prompt.
    sumi_value modulation[SUMI_NEXT_DIT_MAX_BLOCKS], final_scale;
    sumi_value condition; // the input of the blocks' modulation layers, with the same rows
    sumi_value rope[2];
} sumi_next_dit_state;

// settings: sumi_next_dit_settings. Names: those of diffusers, of the original (fused qkv, final_layer, x_embedder),
// mixtures of both, and those of diffusers' Lumina 2.
extern const sumi_denoiser_module sumi_next_dit_module;
#endif
