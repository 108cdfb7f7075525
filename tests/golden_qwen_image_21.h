// The cases of the Qwen-Image-2.1 family, by the part that they are about. Each function returns false when the case's
// kind is not its own. Cases of kind "op" are of several parts.
#ifndef GOLDEN_QWEN_IMAGE_21_H
#define GOLDEN_QWEN_IMAGE_21_H
#include "golden_support.h"

bool run_prefix_dit_case(golden_case* c);
bool run_qwen21_text_case(golden_case* c);
bool run_qwen21_vae_case(golden_case* c);
bool run_qwen21_pictures_case(golden_case* c);
bool run_qwen21_pipeline_case(golden_case* c);
#endif
