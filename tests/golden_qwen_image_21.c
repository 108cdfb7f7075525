#include "golden_qwen_image_21.h"

bool run_qwen_image_21_case(golden_case* c)
{
    bool is_known = run_prefix_dit_case(c);
    is_known = run_qwen21_text_case(c) || is_known;
    is_known = run_qwen21_vae_case(c) || is_known;
    is_known = run_qwen21_pictures_case(c) || is_known;
    is_known = run_qwen21_pipeline_case(c) || is_known;
    return is_known;
}
