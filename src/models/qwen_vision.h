// The vision tower of Qwen2.5-VL: a transformer over the patches of a picture, whose rows stand in a prompt.
//
//     picture -> patches (14 x 14 pixels) -> blocks -> merger: a cell of 2 x 2 patches becomes one row of the prompt
//
// Most blocks attend inside windows of 4 x 4 cells only. So the rows lie window by window from the first op to the
// last, the four patches of a cell together; the cells at the right and the lower edge make smaller windows. The last op
// puts the merged rows back into the order of the picture.
#ifndef SUMI_MODELS_QWEN_VISION_H
#define SUMI_MODELS_QWEN_VISION_H
#include "models/network_modules.h"

#define SUMI_QWEN_VISION_MAX_BLOCKS 128

// What neither the tensors' shapes nor a config.json may say. Where they do, they win.
typedef struct sumi_qwen_vision_settings {
    int32_t heads;
    int32_t window;                                                     // pixels along a side of a window
    int32_t full_blocks[SUMI_QWEN_VISION_MAX_BLOCKS], full_block_count; // those that attend to the whole picture
    int32_t min_pixels, max_pixels;                                     // areas
    double mean[3], deviation[3];                                       // of channels in [0, 1]
} sumi_qwen_vision_settings;

typedef struct sumi_qwen_vision_block {
    sumi_weight norm1, qkv, qkv_bias, out, out_bias;
    sumi_weight norm2, gate_up, gate_up_bias, down, down_bias; // gate and up: a multiple of 8 rows each
    bool attends_to_all;
} sumi_qwen_vision_block;

typedef struct sumi_qwen_vision {
    int32_t width, heads, block_count, hidden, out_width;
    int32_t patch, frames, merge, window; // pixels of a patch; patches along a side of a cell; cells of a window
    int32_t min_pixels, max_pixels;
    float mean[3], deviation[3];
    sumi_weight patch_embed, merger_norm, merger_in, merger_in_bias, merger_out, merger_out_bias;
    sumi_qwen_vision_block* blocks; // [block_count]
} sumi_qwen_vision;

// Settings: sumi_qwen_vision_settings; NULL: a checkpoint must have the configs that say these things. The tower's
// config is vision_config of its text encoder's.
extern const sumi_vision_module sumi_qwen_vision_module;

// The numbers of high x wide cells, row by row, in the order of their windows: order [high * wide], and of each window
// the cells up to its end: ends [windows]. Returns how many windows there are: as many as windows of `window` cells
// cover the picture.
int32_t sumi_qwen_vision_windows(int32_t high, int32_t wide, int32_t window, int32_t* order, int32_t* ends);
#endif
