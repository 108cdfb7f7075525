// The verbs of plan.h on latents: patches, noise, guidance, the solver, previews.
#include "base/assert.h"
#include "plan/verb.h"

// Converts a layout to an op's parameters, with its arrays copied into the plan.
static sumi_op_patch copy_layout(sumi_plan* plan, const sumi_patch_layout* layout, float sign)
{
    size_t bytes = sumi_plan_has_failed(plan) ? 0 : (size_t)layout->sequence_count * sizeof(int32_t);
    const int32_t* items = sumi_plan_copy(plan, layout->items, bytes);
    const int32_t* row_begin = sumi_plan_copy(plan, layout->row_begin, bytes);
    return (sumi_op_patch){.height = layout->height,
                           .width = layout->width,
                           .channels = layout->channels,
                           .patch = layout->patch,
                           .items = items,
                           .sequence_count = layout->sequence_count,
                           .row_begin = row_begin,
                           .sign = sign,
                           .by_channel = layout->by_channel};
}

static void check_layout(sumi_plan* plan, const char* label, const sumi_patch_layout* layout, sumi_value rows)
{
    const int32_t patch = layout->patch;
    if ((patch != 1 && patch != 2) || sumi_plan_cols(plan, rows) != patch * patch * layout->channels
        || layout->height % patch != 0 || layout->width % patch != 0 || layout->sequence_count < 1)
        sumi_plan_mismatch(plan, label, "rows do not fit the layout");
}

void sumi_plan_patchify(sumi_plan* plan, sumi_value latents, const sumi_patch_layout* layout, sumi_value rows)
{
    check_layout(plan, "patchify", layout, rows);
    if (sumi_plan_cols(plan, latents) != layout->height * layout->width)
        sumi_plan_mismatch(plan, "patchify", "latents do not fit the layout");
    sumi_plan_add_op(
        plan, "patchify",
        &(sumi_op){
            .kind = SUMI_OP_PATCHIFY, .in = {latents, rows}, .out = rows, .u.patch = copy_layout(plan, layout, 1.0f)});
}

sumi_value sumi_plan_unpatchify(sumi_plan* plan, sumi_value rows, const sumi_patch_layout* layout, float sign)
{
    check_layout(plan, "unpatchify", layout, rows);
    sumi_value y = sumi_plan_value(plan, "prediction", SUMI_ELEMENT_FLOAT, layout->sequence_count * layout->channels,
                                   layout->height * layout->width);
    return sumi_plan_add_op(
        plan, "unpatchify",
        &(sumi_op){.kind = SUMI_OP_UNPATCHIFY, .in = {rows}, .out = y, .u.patch = copy_layout(plan, layout, sign)});
}

void sumi_plan_add_noise(sumi_plan* plan, sumi_value noise, sumi_value clean, sumi_step_row sigma, sumi_value x)
{
    int32_t rows = sumi_plan_rows(plan, x), cols = sumi_plan_cols(plan, x);
    if (!sumi_plan_is_shape(plan, noise, rows, cols) || !sumi_plan_is_shape(plan, clean, rows, cols)
        || !sumi_plan_is_step_row(plan, sigma, 1))
        sumi_plan_mismatch(plan, "add_noise", "noise, clean and x are one shape");
    sumi_plan_add_op(
        plan, "add_noise",
        &(sumi_op){
            .kind = SUMI_OP_ADD_NOISE, .in = {noise, clean, sigma.table}, .out = x, .u.add_noise = {.sigma = sigma}});
}

sumi_value sumi_plan_guide(sumi_plan* plan, const sumi_plan_guide_args* args)
{
    const int32_t *positive = args->positive, *negative = args->negative;
    int32_t items = args->item_count, channels = args->channels, rows = sumi_plan_rows(plan, args->predictions);
    const int32_t width = args->width, patch = args->patch_size, plane = sumi_plan_cols(plan, args->predictions);
    if (!sumi_plan_is_step_row(plan, args->scale, 1) || items < 1)
        sumi_plan_mismatch(plan, "guide", "the scale's column is not in its table");
    if (args->rule <= SUMI_GUIDANCE_MODEL || args->rule > SUMI_GUIDANCE_NORM_RESCALE || !(args->norm_limit >= 0.0f))
        sumi_plan_mismatch(plan, "guide", "the rule is none of those that the op has");
    if (args->rule == SUMI_GUIDANCE_NORM_RESCALE
        && (patch < 1 || width < patch || width % patch != 0 || plane % ((int64_t)width * patch) != 0))
        sumi_plan_mismatch(plan, "guide", "tokens do not tile the planes");
    for (int32_t i = 0; i < items; i++) {
        if (positive[i] < 0 || (positive[i] + 1) * channels > rows || (negative[i] + 1) * channels > rows)
            sumi_plan_mismatch(plan, "guide", "a sequence is not among the predictions");
    }
    sumi_value v = sumi_plan_value(plan, "velocity", SUMI_ELEMENT_FLOAT, items * channels, plane);
    size_t bytes = sumi_plan_has_failed(plan) ? 0 : (size_t)items * sizeof *positive;
    return sumi_plan_add_op(plan, "guide",
                            &(sumi_op){.kind = SUMI_OP_GUIDE,
                                       .in = {args->predictions, args->scale.table},
                                       .out = v,
                                       .u.guide = {.item_count = items,
                                                   .positive = sumi_plan_copy(plan, positive, bytes),
                                                   .negative = sumi_plan_copy(plan, negative, bytes),
                                                   .scale = args->scale,
                                                   .rule = args->rule,
                                                   .norm_limit = args->norm_limit,
                                                   .channels = channels,
                                                   .width = width,
                                                   .patch_size = patch}});
}

void sumi_plan_solve(sumi_plan* plan, const sumi_plan_solve_args* args)
{
    int32_t rows = sumi_plan_rows(plan, args->x), cols = sumi_plan_cols(plan, args->x);
    sumi_value states[] = {args->y, args->h, args->v, args->noise, args->clean};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        if (states[i].id != 0 && !sumi_plan_is_shape(plan, states[i], rows, cols))
            sumi_plan_mismatch(plan, "solve", "all states are one shape");
    }
    if (!sumi_plan_is_step_row(plan, args->row, 12)
        || (args->mask.id != 0
            && (args->noise.id == 0 || args->clean.id == 0 || sumi_plan_cols(plan, args->mask) != cols)))
        sumi_plan_mismatch(plan, "solve", "the solver table has 12 columns, a mask needs noise and clean latents");
    sumi_plan_add_op(plan, "solve",
                     &(sumi_op){.kind = SUMI_OP_SOLVE,
                                .in = {args->x, args->y, args->h, args->v, args->noise, args->clean},
                                .out = args->x,
                                .mask = args->mask,
                                .u.solve = {.row = args->row, .channels = args->channels}});
}

void sumi_plan_preview(sumi_plan* plan, const sumi_plan_preview_args* args)
{
    const int32_t channels = args->channels, packing = args->packing != 0 ? args->packing : 1, area = packing * packing,
                  rows = sumi_plan_rows(plan, args->x), pixels = sumi_plan_cols(plan, args->x) * area,
                  items = channels > 0 ? rows / (channels * area) : 0;
    if (!sumi_is_packing(packing, args->width, pixels) || items < 1
        || !sumi_plan_is_shape(plan, args->rgb, items * 3, pixels) || sumi_plan_rows(plan, args->v) != rows)
        sumi_plan_mismatch(plan, "preview", "three planes per item are needed");
    size_t bytes = sumi_plan_has_failed(plan) ? 0 : sizeof(float);
    sumi_plan_add_op(
        plan, "preview",
        &(sumi_op){.kind = SUMI_OP_PREVIEW,
                   .in = {args->x, args->v, args->sigma.table, args->rgb},
                   .out = args->rgb,
                   .u.preview = {.sigma = args->sigma,
                                 .channels = channels,
                                 .packing = packing,
                                 .width = packing > 1 ? args->width : 0,
                                 .factors = sumi_plan_copy(plan, args->factors, (size_t)channels * 3 * bytes),
                                 .bias = sumi_plan_copy(plan, args->bias, 3 * bytes)}});
}
