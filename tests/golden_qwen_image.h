// The cases of the Qwen-Image family, by the part that they are about. Each function returns false when the case's kind
// is not its own. Cases of kind "op" are of several parts.
#ifndef GOLDEN_QWEN_IMAGE_H
#define GOLDEN_QWEN_IMAGE_H
#include "golden_component.h"

bool run_language_model_case(golden_case* c);
bool run_qwen_vision_case(golden_case* c);
bool run_two_stream_case(golden_case* c);
bool run_qwen_vae_case(golden_case* c);
#endif
