#include "models/qwen21_parts.h"

// Features are the last layer's output before the final norm, which is never applied. theta and the sections stand here
// for files without a config.json, such as GGUF.
const sumi_language_model_settings sumi_qwen21_language_model = {.name = "Qwen3-VL",
                                                                 .has_qk_norm = true,
                                                                 .takes_pictures = true,
                                                                 .activation = SUMI_ACT_SILU,
                                                                 .theta = 5e6,
                                                                 .sections = {24, 20, 20},
                                                                 .interleaves_axes = true};

// The released tower. Sizes of references are multiples of its cells already, so that the limits of the area change
// nothing unless a reference is tiny.
const sumi_qwen3_vision_settings sumi_qwen21_vision = {.tower = {.heads = 16,
                                                                 .min_pixels = 65536,
                                                                 .max_pixels = 16777216,
                                                                 .mean = {0.5, 0.5, 0.5},
                                                                 .deviation = {0.5, 0.5, 0.5}},
                                                       .deep_blocks = {8, 16, 24},
                                                       .deep_count = 3};
