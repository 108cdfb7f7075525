// The vision tower of Qwen3-VL: a transformer over the patches of a picture. Its rows take the place of tokens in a
// prompt, and further rows are added to theirs inside the language model (DeepStack).
//
//   picture --> patches (16 x 16 pixels) --> block 0 .. 8 .. 16 .. 24 .. 26 --> merger --> rows of the prompt
//                                                    |     |     |
//                                                 merger' merger' merger' --> rows added after layers 0, 1, 2
//
//   x = patch Wp + bp + positions                    positions: of a learned grid of 48 x 48, see below
//   for each block:
//     x = x + attention(LN(x)) Wo + bo               all patches of the picture see each other; heads of 72
//     x = x + gelu_tanh(LN(x) W1 + b1) W2 + b2
//   merger:    LN of a row, then the rows of a cell of 2 x 2 patches side by side, then W1, gelu, W2
//   merger':   the rows of a cell side by side, then LN of all of them, then W1, gelu, W2
//
// The rows are ordered by cells, row by row: the four patches of a cell are neighbours, so that a reshape puts them
// side by side, and merged rows are in the picture's order. q and k are rotated in pairs (i, i + 36): the first half
// of the pairs by the patch's row, the second half by its column.
//
// The learned grid is stretched over the picture, so that its corners are the centres of the corner patches. A patch
// reads the four nearest places of the grid (neighbours), each with the share of its distance (bilinear):
//
//   o---------o        y (48 - 1) / (high - 1) = row of the upper neighbours + f         factors of the neighbours:
//   |  f      |        x (48 - 1) / (wide - 1) = column of the left neighbours + g       (1-f)(1-g)  (1-f) g
//   |g x      |                                                                       f (1-g)     f g
//   o---------o
//
// This is a lookup of four rows of a table with a factor each, sumi_plan_mix_rows. As a product with a matrix
// [patches, 2304] it would have four elements in a row that are not 0; computed when the plan is written, a picture of
// 1024 x 1024 would need 19 MB of constants.
//
// On a GPU the general kernel of attention_any.cu computes heads of 72, as heads of 128 whose other channels are 0. The
// faster kernel for heads of 80 would want zeros between the channels of each head, in q, k, v and the columns of Wo,
// and weights have none there. Attention is a third of a tower's work at 1024 x 1024, once for each reference.
//
// Bai et al. 2025 (Qwen3-VL). Reference: transformers' modeling_qwen3_vl.
#ifndef SUMI_MODELS_QWEN3_VISION_H
#define SUMI_MODELS_QWEN3_VISION_H
#include "models/qwen_tower.h"

// Defaults for values that neither the tensors' shapes nor a config.json give.
typedef struct sumi_qwen3_vision_settings {
    sumi_qwen_tower_settings tower;
    int32_t deep_blocks[SUMI_MAX_DEEP_LEVELS], deep_count; // blocks whose outputs go into the language model's layers
} sumi_qwen3_vision_settings;

// A linear layer, or a norm, with its bias.
typedef struct sumi_biased_weight {
    sumi_weight weight, bias;
} sumi_biased_weight;

typedef struct sumi_qwen3_vision_block {
    sumi_biased_weight norm1, qkv, out, norm2, up, down;
    int32_t deep_level; // of the merger that reads its output; -1: none
} sumi_qwen3_vision_block;

typedef struct sumi_qwen3_vision_merger {
    sumi_biased_weight norm, in, out;
} sumi_qwen3_vision_merger;

typedef struct sumi_qwen3_vision {
    sumi_qwen_tower tower;
    int32_t grid; // places along a side of the learned positions
    sumi_biased_weight patch_embed;
    sumi_weight positions; // [grid * grid, width]
    int32_t deep_blocks[SUMI_MAX_DEEP_LEVELS], deep_count;
    sumi_qwen3_vision_merger merger, deep_mergers[SUMI_MAX_DEEP_LEVELS];
    sumi_qwen3_vision_block* blocks; // [tower.block_count]
} sumi_qwen3_vision;

// Settings: sumi_qwen3_vision_settings, or NULL: then the checkpoint must have the configs that give these values. The
// tower's config is vision_config in the text encoder's. Names: transformers', and llama.cpp's (mmproj).
extern const sumi_vision_module sumi_qwen3_vision_module;

#define SUMI_QWEN3_VISION_NEIGHBOURS 4
// For every patch of a picture of high x wide patches, in the order of the rows, the places of a grid of grid x grid
// that it reads, and their factors: neighbours and factors [high * wide * SUMI_QWEN3_VISION_NEIGHBOURS]. merge: patches along the
// side of a cell.
typedef struct sumi_qwen3_vision_grid {
    int32_t high, wide, merge, grid;
} sumi_qwen3_vision_grid;
void sumi_qwen3_vision_neighbours(const sumi_qwen3_vision_grid* size, int32_t* neighbours, float* factors);
#endif
