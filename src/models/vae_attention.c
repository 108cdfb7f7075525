#include "models/vae_attention.h"
#include <math.h>

sumi_value sumi_vae_attention_write(const sumi_vae_attention* attention, sumi_plan* plan, sumi_value normed,
                                    sumi_value x, int32_t pixels)
{
    const int32_t channels = attention->out.cols;
    const sumi_sequence all_pixels = {.span = {{0, pixels}}, .span_count = 1, .query_spans = 1};
    const sumi_value qkv = sumi_plan_linear(
        plan,
        &(sumi_plan_linear_args){.label = "qkv", .x = normed, .weight = &attention->qkv, .bias = &attention->qkv_bias});
    const sumi_value o = sumi_plan_attention(plan, "attention", qkv,
                                             &(sumi_attention){.q_heads = 1,
                                                               .kv_heads = 1,
                                                               .dim = channels,
                                                               .scale = (float)(1.0 / sqrt((double)channels)),
                                                               .sequences = &all_pixels,
                                                               .sequence_count = 1});
    return sumi_plan_linear(
        plan, &(sumi_plan_linear_args){
                  .label = "out", .x = o, .weight = &attention->out, .bias = &attention->out_bias, .residual = x});
}
