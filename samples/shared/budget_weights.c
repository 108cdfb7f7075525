#include "budget_weights.h"
#include <stdio.h>

sumi_weight_format budget_weights(const budget_weights_desc* desc, char text[BUDGET_WEIGHTS_TEXT_BYTES])
{
    const uint64_t bf16_bytes = 2 * desc->values;
    text[0] = 0;
    if (desc->budget_bytes == 0 || bf16_bytes <= desc->budget_bytes) return SUMI_WEIGHTS_AUTO;
    // What a file has in 10 bits or less is no more precise in bfloat16, and may be smaller than in int8.
    const bool is_quantised = desc->bytes <= bf16_bytes / 8 * 5;
    snprintf(text, BUDGET_WEIGHTS_TEXT_BYTES,
             "in bfloat16 the transformer takes %.1f GB and the memory budget is %.1f GB: its weights %s; --weights "
             "bf16 copies them to the GPU for every step",
             (double)bf16_bytes * 1e-9, (double)desc->budget_bytes * 1e-9,
             is_quantised ? "stay as their file has them" : "are held in int8");
    return is_quantised ? SUMI_WEIGHTS_AS_STORED : SUMI_WEIGHTS_INT8;
}
