// XLM-RoBERTa with rotary positions as a text encoder that pools: token ids of a prompt in, one row of features out.
// The text tower of Jina CLIP v2 is this network.
//
//   h = LN(embedding[id] + type)                        one row of types, added to every token
//   for each layer:
//     q, k, v = h Wqkv + b                              heads of 64
//     q, k = rotated by the token's position            pairs (i, i + head_dim / 2)
//     o = attention(q, k, v)                            every token sees its whole prompt
//     h = LN(h + o Wo + b)
//     h = LN(h + gelu(h W1 + b) W2 + b)                 exact GELU
//   features = mean of h over the prompt's tokens, the first and the last included
//
// The released file has a low-rank adapter beside its weights that is always active, for embeddings too: W + alpha /
// rank * B A, for tables W + alpha / rank * A B. It is bound as the change of its weight (plan/weight.h), so the plan
// equals that for merged weights. With separate products for the factors the released tower had 414 ops instead of 196;
// these took 4.4 of the 9.3 ms that both encoders of NewBie-image needed for a prompt (H200), and rounding their
// results to bfloat16 made the error of the row up to 2.7 times that of the reference in bfloat16. In a file with plain
// names the adapter is merged, or there is none.
//
// Sturua et al. 2024 (jina-embeddings-v3); Koukounas et al. 2024 (Jina CLIP v2). Reference: jinaai's
// xlm-roberta-flash-implementation; transformers' jina_embeddings_v3.
#ifndef SUMI_MODELS_XLM_ROBERTA_H
#define SUMI_MODELS_XLM_ROBERTA_H
#include "models/network_modules.h"

#define SUMI_XLM_ROBERTA_MAX_LAYERS 128

typedef struct sumi_xlm_roberta_settings {
    const char* name; // "Jina CLIP", for messages
    int32_t head_dim; // not given in the files
    float eps;        // of the norms
    double theta;
} sumi_xlm_roberta_settings;

// Of a product or a norm.
typedef struct sumi_xlm_roberta_weights {
    sumi_weight weight, bias;
} sumi_xlm_roberta_weights;

typedef struct sumi_xlm_roberta_layer {
    sumi_xlm_roberta_weights qkv, out, fc1, fc2, norm1, norm2;
} sumi_xlm_roberta_layer;

typedef struct sumi_xlm_roberta {
    const sumi_xlm_roberta_settings* settings;
    int32_t width, vocabulary, heads, hidden, layer_count;
    float scaling;               // alpha / rank of the low-rank changes
    sumi_weight embedding, type; // type: the row that is added to all tokens
    sumi_xlm_roberta_weights embedding_norm;
    sumi_xlm_roberta_layer* layers; // in memory of the weight list
} sumi_xlm_roberta;

// settings: sumi_xlm_roberta_settings. Names: the released ones, with or without the adapter, and those of ComfyUI
// ("model.").
extern const sumi_text_encoder_module sumi_xlm_roberta_module;
#endif
