// The Qwen3 language model as a text encoder: token ids in, the residual stream after the last but one layer out
// (hidden_states[-2]), without the final norm. Grouped-query attention, causal; RMS norm of every query and key head
// before rotary positions (half-split pairs). Yang et al. 2025; spec z-image.md section 4.
#ifndef SUMI_MODELS_QWEN3_H
#define SUMI_MODELS_QWEN3_H
#include "models/weights.h"
#include "plan/plan.h"

#define SUMI_QWEN3_MAX_LAYERS 128

typedef struct sumi_qwen3_layer {
    sumi_weight input_norm, qkv, q_norm, k_norm, out, post_norm, gate_up, down;
} sumi_qwen3_layer;

typedef struct sumi_qwen3 {
    int32_t width, vocabulary, q_heads, kv_heads, head_dim, hidden;
    int32_t layer_count; // that are run: all but the last
    float eps;
    double theta;
    sumi_weight embedding;
    sumi_qwen3_layer* layers; // in the weight list's memory
} sumi_qwen3;

// Names: transformers' with or without `model.`, or llama.cpp's (blk.N.*). binder->alias is set here. config:
// config.json or NULL (a single file), then the shapes and the released constants tell everything.
sumi_result sumi_qwen3_bind(sumi_qwen3* model, sumi_binder* binder, const void* config, size_t config_bytes,
                            const char* config_path);

// ids [sum of counts, 1] of several prompts, one after another; each is its own sequence from position 0. Returns the
// features [sum of counts, width].
sumi_value sumi_qwen3_write(const sumi_qwen3* model, sumi_plan* plan, sumi_value ids, const int32_t* counts,
                            int32_t prompt_count);
#endif
