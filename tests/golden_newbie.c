// The cases of NewBie-image that need its text encoders alone.
#include "golden_qwen_image.h"
#include "golden_xlm_roberta.h"

bool run_newbie_case(golden_case* c) { return run_language_model_case(c) || run_xlm_roberta_case(c); }
