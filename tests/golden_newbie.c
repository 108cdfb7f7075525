// The cases of NewBie-image that need its language model alone.
#include "golden_qwen_image.h"

bool run_newbie_case(golden_case* c) { return run_language_model_case(c); }
