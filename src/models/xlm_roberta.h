// XLM-RoBERTa with rotary positions as a text encoder that pools: token ids of a prompt in, one row out. The text tower
// of Jina CLIP v2 is this network.
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
// The released file keeps a low-rank adapter beside its weights that is always active, embeddings included:
// W + alpha / rank * B A. It is not merged: a product x W is followed by (x A^T) B^T, a row of the embedding by a row of
// A times B. So weights stay where they lie in the file, and no sum is rounded to the file's type. A file with plain
// names has it merged, or has none.
//
// Sturua et al. 2024 (jina-embeddings-v3); Koukounas et al. 2024 (Jina CLIP v2). Reference: jinaai's
// xlm-roberta-flash-implementation; transformers' jina_embeddings_v3.
#ifndef SUMI_MODELS_XLM_ROBERTA_H
#define SUMI_MODELS_XLM_ROBERTA_H
#include "models/parts.h"

#define SUMI_XLM_ROBERTA_MAX_LAYERS 128

typedef struct sumi_xlm_roberta_settings {
    const char* name; // "Jina CLIP", for messages
    int32_t head_dim; // the files do not say
    float eps;        // of the norms
    double theta;
} sumi_xlm_roberta_settings;

// A product with its low-rank change: down [rank, in], up [out, rank].
typedef struct sumi_xlm_roberta_linear {
    sumi_weight weight, bias, down, up;
    int32_t rank; // 0: none
} sumi_xlm_roberta_linear;

typedef struct sumi_xlm_roberta_norm {
    sumi_weight weight, bias;
} sumi_xlm_roberta_norm;

typedef struct sumi_xlm_roberta_layer {
    sumi_xlm_roberta_linear qkv, out, fc1, fc2;
    sumi_xlm_roberta_norm norm1, norm2;
} sumi_xlm_roberta_layer;

typedef struct sumi_xlm_roberta {
    const sumi_xlm_roberta_settings* settings;
    int32_t width, vocabulary, heads, hidden, layer_count;
    float scaling;                           // alpha / rank of the low-rank changes
    sumi_weight embedding, type;             // type: the row that is added to all tokens, its change included
    sumi_weight embedding_low, embedding_up; // [vocabulary, rank], [width, rank]
    int32_t embedding_rank;                  // 0: none
    sumi_xlm_roberta_norm embedding_norm;
    sumi_xlm_roberta_layer* layers; // in the weight list's memory
} sumi_xlm_roberta;

// settings: sumi_xlm_roberta_settings. Names: the released ones, with or without the adapter, and ComfyUI's ("model.").
extern const sumi_text_encoder_part sumi_xlm_roberta_part;
#endif
