// A decoder-only language model as a text encoder: token ids in, features of every token out. Qwen3, Qwen2.5-VL,
// Qwen3-VL and Gemma 3 are this one network with other settings.
//
//   h = embedding[id] * factor                        some rows are replaced by rows of pictures (Qwen-VL)
//   for each layer that is run:
//     a = norm(h)
//     q, k, v = a Wq + bq, a Wk + bk, a Wv + bv       biases: Qwen2.5-VL
//     q, k = norm(q), norm(k) per head                Qwen3, Qwen3-VL, Gemma 3
//     q, k = rotated by the token's position          pairs (i, i + head_dim / 2); three axes for Qwen-VL (M-RoPE)
//     o = attention(q, k, v), causal, grouped heads   the last `window` tokens only in some of Gemma 3's layers
//     h = h + norm(o Wo)                              this norm: Gemma 3
//     m = norm(h)
//     h = h + norm((act(m Wgate) * (m Wup)) Wdown)    this norm: Gemma 3
//     h = h + further rows of the pictures            after the first layers of Qwen3-VL (DeepStack)
//   features = h, or norm(h), or h after several layers side by side
//
// Padding after a text has rows too: a row of padding sees the text's tokens, and no other row sees it.
//
// Yang et al. 2025 (Qwen3); Bai et al. 2025 (Qwen2.5-VL, Qwen3-VL); Gemma Team 2025 (Gemma 3). Reference: transformers'
// modeling_qwen3, modeling_qwen2_5_vl, modeling_qwen3_vl, modeling_gemma3.
#ifndef SUMI_MODELS_LANGUAGE_MODEL_H
#define SUMI_MODELS_LANGUAGE_MODEL_H
#include "models/network_modules.h"

#define SUMI_LANGUAGE_MODEL_MAX_LAYERS 128
#define SUMI_LANGUAGE_MODEL_MAX_TAPS 8

typedef struct sumi_language_model_settings {
    const char* name;      // "Qwen3", for messages
    int32_t unused_layers; // how many of the last layers are not run: 1 for hidden_states[-2] of transformers
    bool norms_features;   // the final norm is applied
    // Features are h after taps[0], taps[1], .. layers (1: after the first one), in the columns of one value, without
    // the final norm. The numbers rise. Layers after the last one are neither bound nor run; unused_layers is 0.
    // tap_count 0: features are h after the last layer that is run.
    int32_t tap_count, taps[SUMI_LANGUAGE_MODEL_MAX_TAPS];
    bool has_qkv_bias, has_qk_norm;
    bool norms_branches; // the outputs of attention and MLP are normed before they are added
    bool adds_one;       // norm weights are stored without the 1 that is added to them, except in llama.cpp's files
    // The embedding is multiplied by the square root of its width, rounded to bfloat16 as the released weights are.
    bool scales_embedding;
    bool takes_pictures;
    sumi_activation activation;
    // Defaults where config.json does not give a value, or is missing:
    double theta;
    int32_t sections[3];   // pairs that frame, row and column rotate; all 0: one position per token
    bool interleaves_axes; // frame, row and column take turns in the pairs; otherwise their sections follow each other
    int32_t window;        // in tokens, of the layers that have a window; 0: none has
    int32_t full_every;    // every full_every-th layer has no window
    double window_theta;   // of the layers with a window; 0: the same as theta
    double position_divisor; // in layers without a window; 0: 1
} sumi_language_model_settings;

typedef struct sumi_language_layer {
    sumi_weight input_norm, qkv, qkv_bias, q_norm, k_norm, out, out_norm, mlp_norm, gate_up, down, down_norm;
    bool has_window;
} sumi_language_layer;

typedef struct sumi_language_model {
    const sumi_language_model_settings* settings;
    int32_t width, vocabulary, q_heads, kv_heads, head_dim, hidden;
    int32_t layer_count; // layers that are run
    float eps, attention_scale;
    double theta, window_theta, position_divisor; // position_divisor: of layers without a window
    int32_t sections[3], window;
    bool interleaves_axes;
    sumi_weight embedding, final_norm;
    sumi_language_layer* layers; // in the weight list's memory
} sumi_language_model;

// settings: sumi_language_model_settings. Names: transformers', old and new (language_model.), and llama.cpp's
// (blk.N.*).
extern const sumi_text_encoder_module sumi_language_model_module;
#endif
