#include "golden_qwen_image.h"
#include "golden_control.h"

bool run_qwen_image_case(golden_case* c)
{
    bool is_known = run_language_model_case(c);
    is_known = run_qwen_vision_case(c) || is_known;
    is_known = run_two_stream_case(c) || is_known;
    is_known = run_qwen_vae_case(c) || is_known;
    is_known = run_qwen_prompt_case(c) || is_known;
    is_known = run_qwen_pipeline_case(c) || is_known;
    is_known = run_control_case(c) || is_known;
    return is_known;
}
