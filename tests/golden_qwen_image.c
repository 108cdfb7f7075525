#include "golden_qwen_image.h"

bool run_qwen_image_case(golden_case* c) { return run_language_model_case(c) || run_qwen_vae_case(c); }
