#include "models/block_residuals.h"
#include "base/assert.h"

sumi_block_residuals sumi_block_residuals_make(sumi_plan* plan, int32_t rows, int32_t cols)
{
    sumi_block_residuals residuals = {
        .rest = sumi_plan_value(plan, "rest_residual", SUMI_ELEMENT_ACTIVATION, rows, cols),
        .first = sumi_plan_value(plan, "first_residual", SUMI_ELEMENT_ACTIVATION, rows, cols),
        .slope = sumi_plan_value(plan, "residual_slope", SUMI_ELEMENT_ACTIVATION, rows, cols),
        .rows = rows};
    sumi_plan_fill_rows(plan, residuals.rest, NULL, &(sumi_span){0, rows}, 1);
    sumi_plan_fill_rows(plan, residuals.first, NULL, &(sumi_span){0, rows}, 1);
    sumi_plan_fill_rows(plan, residuals.slope, NULL, &(sumi_span){0, rows}, 1);
    return residuals;
}

// A copy of the first rows of x.
static sumi_value copy_of(sumi_plan* plan, const char* name, const sumi_block_residuals* residuals, sumi_value x)
{
    const sumi_value y =
        sumi_plan_value(plan, name, SUMI_ELEMENT_ACTIVATION, residuals->rows, sumi_plan_cols(plan, residuals->rest));
    sumi_plan_copy_rows(plan, &(sumi_plan_copy_args){.x = x, .y = y, .rows = residuals->rows});
    return y;
}

void sumi_block_residuals_before_first(sumi_plan* plan, sumi_block_residuals* residuals, sumi_value x)
{
    SUMI_ASSERT(residuals->rows > 0 || plan->error.result != SUMI_OK);
    residuals->before = copy_of(plan, "rows_before_first", residuals, x);
}

sumi_value sumi_block_residuals_after_first(sumi_plan* plan, sumi_block_residuals* residuals, sumi_value x,
                                            const sumi_extrapolation* extrapolation)
{
    residuals->change = sumi_plan_residual_change(plan, &(sumi_plan_residual_change_args){.label = "first_block_change",
                                                                                          .x = x,
                                                                                          .before = residuals->before,
                                                                                          .kept = residuals->first,
                                                                                          .rows = residuals->rows,
                                                                                          .change = residuals->change});
    const sumi_value reused = copy_of(plan, "reused_rows", residuals, x);
    sumi_block_residuals_reuse(plan, residuals, reused, extrapolation);
    sumi_plan_copy_rows(plan, &(sumi_plan_copy_args){.x = residuals->rest, .y = residuals->slope});
    sumi_plan_copy_rows(plan, &(sumi_plan_copy_args){.x = x, .y = residuals->rest, .rows = residuals->rows});
    return reused;
}

void sumi_block_residuals_after_last(sumi_plan* plan, const sumi_block_residuals* residuals, sumi_value x)
{
    sumi_plan_add_rows(
        plan, &(sumi_plan_add_rows_args){
                  .label = "rest_residual", .x = x, .y = residuals->rest, .rows = residuals->rows, .scale = -1.0f});
    sumi_plan_add_rows(plan,
                       &(sumi_plan_add_rows_args){
                           .label = "residual_slope", .x = residuals->rest, .y = residuals->slope, .scale = -1.0f});
}

void sumi_block_residuals_reuse(sumi_plan* plan, const sumi_block_residuals* residuals, sumi_value x,
                                const sumi_extrapolation* extrapolation)
{
    sumi_plan_add_residual(plan, &(sumi_plan_add_residual_args){.label = "reused_residual",
                                                                .x = x,
                                                                .residual = residuals->rest,
                                                                .change = residuals->slope,
                                                                .rows = residuals->rows,
                                                                .sigmas = extrapolation->whole_sigmas,
                                                                .column = extrapolation->sigma.column,
                                                                .sigma = extrapolation->sigma,
                                                                .most = extrapolation->most_ahead});
}
