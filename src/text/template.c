#include "text/template.h"

sumi_template_parts sumi_template_get(sumi_template kind)
{
    switch (kind) {
    case SUMI_TEMPLATE_NONE: break;
    case SUMI_TEMPLATE_Z_IMAGE:
        // no system turn, and no <think> block: Qwen3's template writes an empty one only when thinking is switched
        // off, and the model was trained with it on
        return (sumi_template_parts){"<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"};
    }
    return (sumi_template_parts){"", ""};
}
