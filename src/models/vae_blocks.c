#include "models/vae_blocks.h"
#include <math.h>

int32_t sumi_vae_factor(const sumi_vae_half* half)
{
    int32_t factor = 1;
    for (int32_t i = 0; i < half->stage_count; i++) factor *= half->stages[i].resamples ? 2 : 1;
    return factor;
}

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

// ---- Strips ---------------------------------------------------------------------------------------------------------

static int32_t round_up(int32_t rows)
{
    return (rows + SUMI_VAE_STRIP_MULTIPLE - 1) / SUMI_VAE_STRIP_MULTIPLE * SUMI_VAE_STRIP_MULTIPLE;
}

int32_t sumi_vae_strip_rows(int32_t height, uint64_t most)
{
    const int32_t max_rows = most > 2 + SUMI_VAE_STRIP_MULTIPLE
                               ? ((int32_t)most - 2) / SUMI_VAE_STRIP_MULTIPLE * SUMI_VAE_STRIP_MULTIPLE
                               : SUMI_VAE_STRIP_MULTIPLE,
                  count = (height + max_rows - 1) / max_rows, rows = round_up((height + count - 1) / count);
    return rows < height ? rows : height;
}

sumi_value sumi_vae_rows(sumi_plan* plan, sumi_value of, int32_t width, int32_t begin, int32_t end)
{
    return sumi_plan_view(plan, "rows", of, (sumi_span){begin * width, (end - begin) * width},
                          (sumi_span){0, sumi_plan_info(plan, of)->cols});
}

// The first small row of the strip before `end` that can be upsampled: its output must lie after every small row that
// this strip and earlier strips read. Returns `end` if none can.
static int32_t strip_begin(const sumi_vae_growth* g, int32_t end)
{
    const uint64_t read = (uint64_t)(end < g->height ? end + 1 : g->height) * g->small_row;
    for (int32_t row = 0; row < end; row += SUMI_VAE_STRIP_MULTIPLE) {
        if (read <= (uint64_t)(g->spare_rows + 2 * row) * g->large_row) return row;
    }
    return end;
}

bool sumi_vae_can_grow(const sumi_vae_growth* growth)
{
    for (int32_t end = growth->height, row; end > 0; end = row) {
        row = strip_begin(growth, end);
        if (row == end) return false;
    }
    return true;
}

// Rows [begin, end) of x, to y: the rows above and below are read too. y none: a new value.
static sumi_value write_rows(const sumi_vae_stage* stage, sumi_plan* plan, const sumi_vae_upsampling* u, sumi_span rows,
                             sumi_value y)
{
    const int32_t begin = rows.begin, end = begin + rows.count, above = begin > 0, below = end < u->height;
    const bool is_new = y.id == 0;
    if (u->shortcut.id != 0) {
        y = sumi_plan_shortcut(plan,
                               &(sumi_plan_shortcut_args){
                                   .label = "shortcut",
                                   .x = is_new ? u->shortcut : sumi_vae_rows(plan, u->shortcut, u->width, begin, end),
                                   .shape = {.width = u->width, .frames = u->frames, .upsamples = true},
                                   .channels = stage->resample.rows,
                                   .y = y});
    }
    return sumi_plan_conv(
        plan,
        &(sumi_plan_conv_args){.label = "upsample",
                               .x = is_new ? u->x : sumi_vae_rows(plan, u->x, u->width, begin - above, end + below),
                               .weight = &stage->resample,
                               .bias = &stage->resample_bias,
                               .shape = {.height = above + rows.count + below,
                                         .width = u->width,
                                         .upsamples = true,
                                         .above = above,
                                         .below = below},
                               .residual = u->shortcut.id != 0 ? y : SUMI_NO_VALUE,
                               .y = y});
}

void sumi_vae_upsample_write(const sumi_vae_stage* stage, sumi_plan* plan, const sumi_vae_upsampling* u)
{
    for (int32_t end = u->height, row; end > 0; end = row) {
        row = u->growth != NULL ? strip_begin(u->growth, end) : 0;
        write_rows(stage, plan, u, (sumi_span){row, end - row},
                   sumi_vae_rows(plan, u->y, 2 * u->width, 2 * row, 2 * end));
    }
}

sumi_value sumi_vae_upsample_whole(const sumi_vae_stage* stage, sumi_plan* plan, const sumi_vae_upsampling* u)
{
    return write_rows(stage, plan, u, (sumi_span){0, u->height}, SUMI_NO_VALUE);
}
