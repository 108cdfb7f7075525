#include "golden_qwen_image_21.h"

bool run_qwen_image_21_case(golden_case* c) { return run_qwen21_text_case(c); }
