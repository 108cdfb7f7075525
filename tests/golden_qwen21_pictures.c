#include "golden_qwen_image_21.h"

bool run_qwen21_pictures_case(golden_case* c)
{
    (void)c;
    return false;
}
