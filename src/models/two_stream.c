#include "base/assert.h"
#include "models/control_module.h"
#include "models/two_stream_blocks.h"
#include <string.h>

// The most bytes for modulation tables of all evaluations. For 60 blocks of width 3072 they take 60 * 2 * 6 * 3072
// elements per evaluation: 4.4 MB with bfloat16 activations (221 MB for 50 evaluations; 442 MB in float), 8.8 MB with
// float activations. With tables, the weights of the modulation layers, 13.6 GB and a third of the model, are read once
// per job and can then leave the GPU. If the tables do not fit, each evaluation computes its own 8.8 MB block by block
// and reads these weights again: 4 ms at 3.35 TB/s, compared with 100 to 250 ms for an evaluation of 1024 x 1024
// pixels, but half a second if they come over PCIe. Sections for chunks of evaluations would read them less often, but
// would repeat all ops and graphs for each chunk.
//
// If the tables fit as floats (up to 30 evaluations) they are also finished at once. Otherwise an op for each side of a
// block finishes the row of an evaluation: 120 launches of 5 us on an H200, compared with 80 to 120 ms for an
// evaluation.
#define TABLE_BYTES (256ull << 20)

// The final norm has them in another order: scale, shift.
enum { FINAL_SCALE, FINAL_SHIFT, FINAL_PARTS };
#define FINAL_ADDS_ONE (1u << FINAL_SCALE)

// ---- Weights --------------------------------------------------------------------------------------------------------

static sumi_result bind_model(void* memory, const void* settings, sumi_binder* b, const sumi_module_config* config)
{
    sumi_two_stream* model = memory;
    const sumi_two_stream_settings* overrides = settings;
    sumi_two_stream_bind_sizes(model, b, config);
    if (b->result != SUMI_OK) return b->result;
    // single files have no config.json: an empty tensor of this name stands for zero_cond_t
    model->zero_cond = model->zero_cond || sumi_bind_find(b, "__index_timestep_zero__") != NULL
                    || (overrides != NULL && overrides->zero_cond);
    model->table_bytes = overrides != NULL && overrides->table_bytes != 0 ? overrides->table_bytes : TABLE_BYTES;
    sumi_two_stream_bind_inputs(model, b);
    sumi_bind_linear(b, &model->final_modulation, &model->final_modulation_bias, "norm_out.linear",
                     FINAL_PARTS * model->dim, model->dim);
    sumi_bind_linear(b, &model->final_linear, &model->final_linear_bias, "proj_out", 4 * model->channels, model->dim);
    model->final_modulation.keeps_precision = model->final_linear.keeps_precision = true;
    sumi_two_stream_bind_blocks(model, b, "transformer_blocks");
    return b->result;
}

static sumi_denoiser_properties two_stream_properties(const void* memory)
{
    const sumi_two_stream* model = memory;
    return (sumi_denoiser_properties){.channels = model->channels,
                                      .patch = 2,
                                      .stream_width = model->dim,
                                      .feature_width = {model->feature_width},
                                      .takes_references = true};
}

// ---- What all evaluations share -------------------------------------------------------------------------------------

static void write_final_table(const sumi_two_stream* model, sumi_plan* plan, const sumi_denoising* job)
{
    sumi_two_stream_state* state = job->state;
    if (!state->has_tables) return;
    sumi_plan_prefix(plan, "%s", "");
    state->final_table = sumi_two_stream_write_layer(plan, SUMI_ELEMENT_ACTIVATION,
                                                     (sumi_plan_linear_args){.label = "norm_out.linear",
                                                                             .x = state->condition,
                                                                             .rows = job->evaluation_count,
                                                                             .weight = &model->final_modulation,
                                                                             .bias = &model->final_modulation_bias});
    if (!state->has_float_tables) return;
    state->final_table = sumi_plan_modulation(plan, &(sumi_plan_modulation_args){.label = "norm_out.modulation",
                                                                                 .table = state->final_table,
                                                                                 .vector_count = FINAL_PARTS,
                                                                                 .adds_one = FINAL_ADDS_ONE,
                                                                                 .rows = job->evaluation_count,
                                                                                 .element = SUMI_ELEMENT_FLOAT});
}

static void write_two_stream_prepare(const void* memory, sumi_plan* plan, sumi_denoising* job)
{
    const sumi_two_stream* model = memory;
    sumi_two_stream_state* state = job->state;
    sumi_two_stream_write_captions(model, plan, job, state);
    state->has_zero = model->zero_cond && (job->reference_count > 0 || job->computes_unused_rows);
    sumi_two_stream_write_condition(model, plan, job, state);
    sumi_two_stream_write_tables(model, plan, job, state);
    write_final_table(model, plan, job);
    sumi_controls_write_prepare(plan, job, model);
    sumi_plan_prefix(plan, "%s", "");
}

static void write_two_stream_layout(const void* memory, sumi_plan* plan, sumi_denoising* job,
                                    const sumi_evaluation_list* list)
{
    const sumi_two_stream* model = memory;
    sumi_two_stream_state* state = job->state;
    state->rope[list->slot] = sumi_two_stream_write_rope(model, plan, job, list, sumi_two_stream_text_position(job));
    if (job->keeps_residuals) {
        const int32_t tokens = job->height / 2 * (job->width / 2);
        job->residuals[list->slot] = sumi_block_residuals_make(plan, list->count * tokens, model->dim);
    }
    sumi_controls_write_layout(plan, job, model, list);
}

// ---- One evaluation -------------------------------------------------------------------------------------------------

// Writes the 2x2 patches of all targets, then of the references, which are the same for every evaluation, through
// img_in; and the prompts.
static void write_inputs(sumi_two_stream_evaluation* e)
{
    const sumi_two_stream* model = e->model;
    const sumi_denoising* job = e->job;
    const sumi_joint_rows* l = &e->layout;
    sumi_plan* plan = e->plan;
    const int32_t targets = l->count * l->tokens;
    const sumi_value patches = sumi_joint_rows_patches(l, plan, job, e->latents, model->channels);
    sumi_plan_linear_args in = {.label = "img_in",
                                .x = patches,
                                .weight = &model->image_in,
                                .bias = &model->image_in_bias,
                                .y = e->streams[0].x};
    // in one stream, the references of the first evaluation also follow the targets
    bool has_reference_stream = e->stream_count == 3;
    in.rows = targets + (has_reference_stream ? 0 : l->reference_rows);
    sumi_plan_linear(plan, &in);
    in.label = has_reference_stream ? "ref_in" : "img_in";
    in.y = has_reference_stream ? e->streams[2].x : in.y;
    in.x_row = targets;
    in.rows = l->reference_rows;
    for (int32_t s = has_reference_stream ? 0 : 1; s < l->count && l->reference_rows > 0; s++) {
        in.y_row = (has_reference_stream ? 0 : targets) + s * l->reference_rows;
        sumi_plan_linear(plan, &in);
    }
    sumi_plan_prefix(plan, "txt_in.");
    sumi_two_stream_write_texts(e, e->state);
}

static sumi_value write_final(const sumi_two_stream_evaluation* e, sumi_value x, const char* norm, const char* linear,
                              sumi_step_row row)
{
    const sumi_two_stream* model = e->model;
    sumi_value z =
        sumi_plan_norm(e->plan, &(sumi_plan_norm_args){.label = norm,
                                                       .x = x,
                                                       .norm = SUMI_NORM_LAYER,
                                                       .eps = SUMI_TWO_STREAM_EPS,
                                                       .scale = sumi_two_stream_vector(row, FINAL_SCALE, model->dim),
                                                       .shift = sumi_two_stream_vector(row, FINAL_SHIFT, model->dim)});
    return sumi_plan_linear(
        e->plan, &(sumi_plan_linear_args){
                     .label = linear, .x = z, .weight = &model->final_linear, .bias = &model->final_linear_bias});
}

static sumi_step_row write_final_row(sumi_two_stream_evaluation* e)
{
    sumi_plan_prefix(e->plan, "%s", "");
    return sumi_two_stream_write_modulation(e,
                                            &(sumi_plan_modulation_args){.label = "norm_out.modulation",
                                                                         .table = e->state->final_table,
                                                                         .vector_count = FINAL_PARTS,
                                                                         .adds_one = FINAL_ADDS_ONE},
                                            &e->model->final_modulation, &e->model->final_modulation_bias);
}

static void write_blocks(sumi_two_stream_evaluation* e, sumi_denoising* job)
{
    const bool keeps = job->kind == SUMI_EVALUATION_WHOLE, reuses = job->kind == SUMI_EVALUATION_REUSED;
    const int32_t count = reuses ? 1 : e->model->block_count;
    const sumi_value x = e->streams[0].x;
    sumi_block_residuals* residuals = &job->residuals[e->list->slot];
    sumi_control_place place = {.stage = SUMI_CONTROL_BLOCKS,
                                .block = -1,
                                .x = sumi_two_stream_targets(e),
                                .list = e->list,
                                .base = e->model,
                                .evaluation = e};
    SUMI_ASSERT((!keeps && !reuses) || !job->computes_unused_rows);
    sumi_controls_write_place(e->plan, job, &place);
    if (keeps) sumi_block_residuals_before_first(e->plan, residuals, x);
    for (int32_t i = 0; i < count; i++) {
        place.block = i;
        place.is_last = i == count - 1;
        sumi_two_stream_write_block(e, i, place.is_last);
        sumi_controls_write_place(e->plan, job, &place);
        if (!keeps || i > 0) continue;
        const sumi_value reused = sumi_block_residuals_after_first(e->plan, residuals, x, &job->extrapolation);
        const sumi_value out = write_final(e, reused, "norm_out", "proj_out", write_final_row(e));
        job->reused_velocities = sumi_joint_rows_latents(&e->layout, e->plan, job, out, e->model->channels);
    }
    if (keeps) sumi_block_residuals_after_last(e->plan, residuals, x);
    if (reuses) sumi_block_residuals_reuse(e->plan, residuals, x, &job->extrapolation);
}

static sumi_value write_evaluation_with(sumi_two_stream_evaluation* e, sumi_denoising* job)
{
    const sumi_two_stream* model = e->model;
    sumi_plan* plan = e->plan;
    sumi_plan_prefix(plan, "%s", "");
    sumi_two_stream_begin(e);
    sumi_plan_prefix(plan, "%s", "");
    write_inputs(e);
    write_blocks(e, job);
    const sumi_step_row row = write_final_row(e);
    sumi_value out = write_final(e, e->streams[0].last_view, "norm_out", "proj_out", row);
    // the references are not modulated by time 0 here
    if (e->stream_count == 3 && job->computes_unused_rows)
        write_final(e, e->streams[2].last_view, "ref_norm_out", "ref_proj_out", row);
    return sumi_joint_rows_latents(&e->layout, plan, job, out, model->channels);
}

static sumi_value write_two_stream_evaluation(const void* memory, sumi_plan* plan, sumi_denoising* job,
                                              const sumi_evaluation_list* list, sumi_value latents)
{
    const sumi_two_stream_state* state = job->state;
    // too large for the stack, which may be the host program's
    sumi_two_stream_evaluation* e = plan->error.result == SUMI_OK ? sumi_alloc_zero(plan->heap, sizeof *e) : NULL;
    if (e == NULL) {
        sumi_out_of_memory(&plan->error, sizeof *e, "writing a plan");
        return SUMI_NO_VALUE;
    }
    e->model = memory;
    e->plan = plan;
    e->job = job;
    e->state = state;
    e->list = list;
    e->latents = latents;
    e->rope = state->rope[list->slot];
    sumi_joint_rows_lay_out(job, list, 2, &e->layout);
    const sumi_value velocity = write_evaluation_with(e, job);
    sumi_free(plan->heap, e);
    return velocity;
}

const sumi_denoiser_module sumi_two_stream_module = {.model_bytes = sizeof(sumi_two_stream),
                                                     .state_bytes = sizeof(sumi_two_stream_state),
                                                     .bind = bind_model,
                                                     .properties = two_stream_properties,
                                                     .write_prepare = write_two_stream_prepare,
                                                     .write_layout = write_two_stream_layout,
                                                     .write_evaluation = write_two_stream_evaluation};
