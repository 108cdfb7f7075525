// The Z-Image transformer (S3-DiT): one stream in which image and caption tokens are equals. Z-Image team 2025; spec
// z-image.md section 5.
//
//   latents -> 2x2 patches -> x_embedder -> noise refiner (image rows alone) --+
//                                                                              +--> layers (all rows) -> final layer -> patches -> velocity
//   features -> RMS norm -> cap_embedder -> context refiner (caption rows) ----+
//
// Block: x += tanh(g1) * rms(attention(rms(x) * (1 + s1)));  x += tanh(g2) * rms(swiglu(rms(x) * (1 + s2))); the context refiner has no s and g.
//
// Rows of the joint matrix, for a batch of evaluations ("sequences") a, b, ...:
//
//   | image a + pad | image b + pad | ... | caption a + pad | caption b + pad | ...
//     all the same length (multiple of 32)   each its own length (multiple of 32)
//
// so the noise refiner works on the leading rows, and in the last layer, where only image rows are needed, queries and
// everything after them are the leading rows. Pads are learned tokens and take part in attention like any other.
#ifndef SUMI_MODELS_Z_IMAGE_H
#define SUMI_MODELS_Z_IMAGE_H
#include "models/family.h"
#include "models/weights.h"

#define SUMI_Z_IMAGE_MAX_BLOCKS 128 // of all kinds together

typedef struct sumi_z_image_block {
    bool is_modulated;
    int32_t slot; // of its modulation table
    sumi_weight attention_norm1, attention_norm2, ffn_norm1, ffn_norm2, qkv, q_norm, k_norm, out, gate_up, down,
        modulation, modulation_bias;
} sumi_z_image_block;

typedef struct sumi_z_image {
    int32_t channels, dim, heads, kv_heads, head_dim, hidden, feature_width;
    int32_t time_width, time_hidden, condition_width; // sinusoids, hidden layer, result of the time MLP
    int32_t axis_pairs[3];
    float eps;
    double theta, time_scale;
    int32_t layer_count, refiner_count;
    sumi_weight x_embedder, x_embedder_bias, time_in, time_in_bias, time_out, time_out_bias, caption_norm,
        caption_embedder, caption_embedder_bias, x_pad, caption_pad;
    sumi_weight final_modulation, final_modulation_bias, final_linear, final_linear_bias;
    sumi_z_image_block *layers, *noise_refiner, *context_refiner; // in the weight list's memory
} sumi_z_image;

// Names: diffusers', the original's (fused qkv, final_layer, x_embedder) and mixtures. config: transformer/config.json
// or NULL for a single file.
sumi_result sumi_z_image_bind(sumi_z_image* model, sumi_binder* binder, const void* config, size_t config_bytes,
                              const char* config_path);

// The three pieces of sumi_family (see family.h): captions and modulation tables; rotary tables of a list; one
// evaluation of a list.
typedef struct sumi_z_image_state {
    sumi_value captions;                                                     // [all padded captions, dim], refined
    int32_t caption_begin[SUMI_MAX_PROMPTS], caption_rows[SUMI_MAX_PROMPTS]; // per prompt
    sumi_value modulation[SUMI_Z_IMAGE_MAX_BLOCKS], final_scale;             // tables with one row per evaluation
    sumi_value rope[2];
} sumi_z_image_state;
void sumi_z_image_write_prepare(const sumi_z_image* model, sumi_plan* plan, sumi_denoising* denoiser);
void sumi_z_image_write_layout(const sumi_z_image* model, sumi_plan* plan, sumi_denoising* denoiser, int32_t slot,
                               const sumi_evaluation* list, int32_t count);
sumi_value sumi_z_image_write_evaluation(const sumi_z_image* model, sumi_plan* plan, sumi_denoising* denoiser,
                                         int32_t slot, sumi_value latents, const sumi_evaluation* list, int32_t count);
#endif
