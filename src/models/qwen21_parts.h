// What the authors of Qwen-Image-2.1 say about prompts: Qwen3-VL's language model and vision tower as they are used,
// and the template. The recipe and its tests read them here.
#ifndef SUMI_MODELS_QWEN21_PARTS_H
#define SUMI_MODELS_QWEN21_PARTS_H
#include "models/language_model.h"
#include "models/qwen3_vision.h"

extern const sumi_language_model_settings sumi_qwen21_language_model;
extern const sumi_qwen3_vision_settings sumi_qwen21_vision;

#define SUMI_QWEN21_SYSTEM "<|im_start|>system\nComprehend and analyze the provided prompt.<|im_end|>\n"
#define SUMI_QWEN21_PICTURE "<image#><|vision_start|><|image_pad|><|vision_end|>"

// The initialiser of the recipe's text encoder. The features of the system turn are not passed on: 14 tokens in the
// released vocabulary. The authors set no limit to the length of prompts; this one is a reasonable length. Rows of
// pictures are passed on too: the denoiser puts the pictures' latents into their places.
#define SUMI_QWEN21_ENCODER                                                                                            \
    {                                                                                                                  \
        .module = &sumi_language_model_module, .settings = &sumi_qwen21_language_model, .network = "qwen3",            \
        .prompt = {                                                                                                    \
            .before = SUMI_QWEN21_SYSTEM "<|im_start|>user\n",                                                         \
            .after = "<|im_end|>\n<|im_start|>assistant\n",                                                            \
            .picture = SUMI_QWEN21_PICTURE,                                                                            \
            .later_picture = " " SUMI_QWEN21_PICTURE,                                                                  \
            .picture_token = "<|image_pad|>",                                                                          \
            .empty_text = " ",                                                                                         \
            .max_tokens = 2048,                                                                                        \
            .dropped_text = SUMI_QWEN21_SYSTEM                                                                         \
        }                                                                                                              \
    }
#endif
