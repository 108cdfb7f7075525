// The vision tower of Qwen2.5-VL: a transformer over the patches of a picture. Its rows take the place of tokens in a
// prompt.
//
//     picture -> patches (14 x 14 pixels) -> blocks -> merger: a cell of 2 x 2 patches becomes one row of the prompt
//
// Most blocks attend only inside windows of 4 x 4 cells. So the rows are ordered by windows from the first op to the
// last, and the four patches of a cell are neighbours. Windows at the right and lower edges are smaller. The last op
// puts the merged rows into the order of the picture.
#ifndef SUMI_MODELS_QWEN_VISION_H
#define SUMI_MODELS_QWEN_VISION_H
#include "models/qwen_tower.h"

// Defaults for values that neither the tensors' shapes nor a config.json give.
typedef struct sumi_qwen_vision_settings {
    sumi_qwen_tower_settings tower;
    int32_t window;                                                    // pixels along a side of a window
    int32_t full_blocks[SUMI_QWEN_TOWER_MAX_BLOCKS], full_block_count; // blocks that attend to the whole picture
} sumi_qwen_vision_settings;

typedef struct sumi_qwen_vision_block {
    sumi_weight norm1, qkv, qkv_bias, out, out_bias;
    // gate and up: the rows of each are padded to a multiple of 8
    sumi_weight norm2, gate_up, gate_up_bias, down, down_bias;
    bool attends_to_all;
} sumi_qwen_vision_block;

typedef struct sumi_qwen_vision {
    sumi_qwen_tower tower;
    int32_t window; // cells along a side of a window
    sumi_weight patch_embed, merger_norm, merger_in, merger_in_bias, merger_out, merger_out_bias;
    sumi_qwen_vision_block* blocks; // [tower.block_count]
} sumi_qwen_vision;

// Settings: sumi_qwen_vision_settings, or NULL: then the checkpoint must have the configs that give these values. The
// tower's config is vision_config in the text encoder's.
extern const sumi_vision_module sumi_qwen_vision_module;

// Lists the cells of a picture of high x wide cells, numbered row by row, in the order of their windows: order [high *
// wide]. ends [windows]: for each window the number of cells up to its end. Returns the number of windows, which is as
// many as cover the picture with windows of `window` cells.
int32_t sumi_qwen_vision_windows(int32_t high, int32_t wide, int32_t window, int32_t* order, int32_t* ends);
#endif
