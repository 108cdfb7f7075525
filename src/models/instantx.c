// Control nets of InstantX for Qwen-Image (Union, Inpainting): a smaller copy of the denoiser with separate inputs,
// whose blocks give one hint each. docs/architectures/control.md, "Qwen-Image InstantX".
//
//   x = img_in(latents) + controlnet_x_embedder(control planes);   s = txt_in(norm(text))
//   s, x = block j(s, x);   hint j = controlnet_blocks[j](x)
//   image rows += strength * hint[b / interval]                    after every block b of the denoiser
//
// interval is the number of the denoiser's blocks for each of the net, rounded up. With guidance the net runs once, with
// the positive text, and its hints go into both evaluations, as in diffusers. Block j is computed just before the first
// place of its hint.
#include "base/assert.h"
#include "models/two_stream_nets.h"
#include <stdio.h>

typedef struct instantx {
    sumi_two_stream blocks; // with all inputs, and without an output
    sumi_picture_input input;
    sumi_weight hint[SUMI_TWO_STREAM_MAX_BLOCKS], hint_bias[SUMI_TWO_STREAM_MAX_BLOCKS];
    int32_t interval;
    sumi_control_net_info info;
} instantx;

typedef struct instantx_state {
    sumi_two_stream_state streams;
    sumi_value first; // [pictures * tokens, dim], the embedded control pictures
    // Of the evaluation that is written: the positive ones of its list, and the hint [all targets, dim].
    sumi_two_stream_evaluation evaluation;
    sumi_evaluation_list positive;
    sumi_value hint;
} instantx_state;

// ---- Weights --------------------------------------------------------------------------------------------------------

static void check_sizes(const instantx* net, const sumi_two_stream* base, sumi_binder* b)
{
    const sumi_two_stream* m = &net->blocks;
    if (m->dim != base->dim || m->head_dim != base->head_dim || m->channels != base->channels
        || m->feature_width != base->feature_width) {
        sumi_bind_fail(b, SUMI_TENSOR_MISMATCH,
                       "%s: a control net of width %d, heads of %d, %d channels and text of %d does not fit a "
                       "transformer of %d, %d, %d and %d; take one that was released for this model",
                       b->component->path, (int)m->dim, (int)m->head_dim, (int)m->channels, (int)m->feature_width,
                       (int)base->dim, (int)base->head_dim, (int)base->channels, (int)base->feature_width);
    }
    if (m->block_count > base->block_count) {
        sumi_bind_fail(b, SUMI_TENSOR_MISMATCH, "%s: a control net of %d blocks does not fit a transformer of %d",
                       b->component->path, (int)m->block_count, (int)base->block_count);
    }
}

static sumi_result bind_instantx(void* memory, const void* base_model, sumi_binder* b, const sumi_module_config* config)
{
    instantx* net = memory;
    const sumi_two_stream* base = base_model;
    sumi_two_stream_bind_sizes(&net->blocks, b, config);
    if (b->result == SUMI_OK) check_sizes(net, base, b);
    if (b->result != SUMI_OK) return b->result;
    net->blocks.label = "control.transformer_blocks.";
    for (int32_t a = 0; a < 3; a++) net->blocks.axis_pairs[a] = base->axis_pairs[a]; // it has the denoiser's rotations
    net->blocks.zero_cond = false;                                                   // no such net was trained with it
    net->blocks.table_bytes = base->table_bytes;
    sumi_two_stream_bind_inputs(&net->blocks, b);
    net->info.planes = sumi_picture_input_bind(&net->input, b, base, "controlnet_x_embedder", SUMI_PLANES_MASKED_MASK);
    sumi_two_stream_bind_blocks(&net->blocks, b, "transformer_blocks");
    for (int32_t i = 0; i < net->blocks.block_count; i++) {
        char name[64];
        snprintf(name, sizeof name, "controlnet_blocks.%d", (int)i);
        sumi_bind_linear(b, &net->hint[i], &net->hint_bias[i], name, base->dim, base->dim);
    }
    net->interval = (base->block_count + net->blocks.block_count - 1) / net->blocks.block_count;
    net->info.kind = "qwen-instantx";
    net->info.has_binary_mask = true;
    net->info.masks_with_black = true;
    net->info.depth_stretch = SUMI_STRETCH_INVERSE;
    net->info.usual_strength = 1.0f;
    net->info.place_count = base->block_count;
    for (int32_t i = 0; i < base->block_count; i++) {
        net->info.places[i] = (int16_t)i;
        net->info.hints[i] = (int16_t)(i / net->interval);
    }
    return b->result;
}

static sumi_control_net_info instantx_info(const void* memory) { return ((const instantx*)memory)->info; }

// ---- What all evaluations share -------------------------------------------------------------------------------------

static void write_instantx_prepare(const sumi_planned_control* control, sumi_plan* plan, sumi_denoising* job,
                                   const void* base)
{
    const instantx* net = control->model;
    instantx_state* own = control->state;
    (void)base;
    sumi_two_stream_write_captions(&net->blocks, plan, job, &own->streams);
    sumi_two_stream_write_condition(&net->blocks, plan, job, &own->streams);
    sumi_two_stream_write_tables(&net->blocks, plan, job, &own->streams);
}

// The first evaluation of each item, which has the positive text: they come before the others.
static sumi_evaluation_list positive_evaluations(const sumi_evaluation_list* list)
{
    int32_t count = 1;
    while (count < list->count && list->evaluations[count].item > list->evaluations[count - 1].item) count++;
    return (sumi_evaluation_list){list->evaluations, count, list->slot};
}

static void write_instantx_layout(const sumi_planned_control* control, sumi_plan* plan, sumi_denoising* job,
                                  const void* base_model, const sumi_evaluation_list* list)
{
    const instantx* net = control->model;
    const sumi_two_stream* base = base_model;
    instantx_state* own = control->state;
    const sumi_denoising without = sumi_without_references(job);
    const sumi_evaluation_list positive = positive_evaluations(list);
    own->streams.rope[list->slot] =
        sumi_two_stream_write_rope(&net->blocks, plan, &without, &positive, sumi_two_stream_text_position(job));
    if (own->first.id == 0) own->first = sumi_picture_input_write(&net->input, plan, control, job, base->dim);
}

// ---- One evaluation -------------------------------------------------------------------------------------------------

static void begin_instantx_streams(const sumi_planned_control* control, sumi_plan* plan, const sumi_denoising* job,
                                   const sumi_control_place* place)
{
    const instantx* net = control->model;
    const sumi_two_stream_evaluation* of_base = place->evaluation;
    instantx_state* own = control->state;
    sumi_two_stream_evaluation* e = &own->evaluation;
    const sumi_denoising without = sumi_without_references(job);
    own->positive = positive_evaluations(place->list);
    SUMI_ASSERT(place->list->count == own->positive.count || place->list->count == 2 * own->positive.count);
    *e = (sumi_two_stream_evaluation){.model = &net->blocks,
                                      .plan = plan,
                                      .job = job,
                                      .state = &own->streams,
                                      .list = &own->positive,
                                      .rope = own->streams.rope[place->list->slot]};
    sumi_joint_rows_lay_out(&without, &own->positive, 2, &e->layout);
    sumi_plan_prefix(plan, "control.");
    sumi_two_stream_begin(e);
    sumi_plan_prefix(plan, "control.");
    const sumi_value patches =
                         sumi_joint_rows_patches(&e->layout, plan, &without, of_base->latents, net->blocks.channels),
                     x = e->streams[0].x;
    sumi_picture_run runs[SUMI_MAX_JOINT_EVALUATIONS];
    const int32_t count = sumi_picture_runs(control, &e->layout, runs);
    for (int32_t i = 0; i < count; i++) {
        sumi_plan_copy_rows(
            plan,
            &(sumi_plan_copy_args){
                .x = own->first, .x_row = runs[i].picture_row, .y = x, .y_row = runs[i].row, .rows = runs[i].rows});
    }
    sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "latents_in",
                                                    .x = patches,
                                                    .weight = &net->blocks.image_in,
                                                    .bias = &net->blocks.image_in_bias,
                                                    .residual = x});
    sumi_two_stream_write_texts(e, &own->streams);
}

// The factor is part of the hint, because the op that adds it to the rows of every block has none that a job can change.
static void write_instantx_place(const sumi_planned_control* control, sumi_plan* plan, const sumi_denoising* job,
                                 const sumi_control_place* place)
{
    const instantx* net = control->model;
    instantx_state* own = control->state;
    if (place->block < 0) {
        begin_instantx_streams(control, plan, job, place);
        return;
    }
    if (place->block % net->interval != 0) return;
    const int32_t block = place->block / net->interval;
    const sumi_two_stream_rows* image = &own->evaluation.streams[0];
    sumi_two_stream_write_block(&own->evaluation, block, block == net->blocks.block_count - 1 || place->is_last);
    sumi_plan_prefix(plan, "control.%d.", (int)place->block);
    own->hint = sumi_plan_value(plan, "hint", SUMI_ELEMENT_ACTIVATION, sumi_plan_rows(plan, place->x), net->blocks.dim);
    const sumi_value of_positive =
        sumi_plan_view(plan, "positive", own->hint, (sumi_span){0, image->rows}, (sumi_span){0, net->blocks.dim});
    sumi_plan_fill_rows(plan, of_positive, NULL, &(sumi_span){0, image->rows}, 1);
    sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "hint",
                                                    .x = image->x,
                                                    .weight = &net->hint[block],
                                                    .bias = &net->hint_bias[block],
                                                    .residual = of_positive,
                                                    .gate = control->strength});
    if (place->list->count > own->positive.count) {
        sumi_plan_copy_rows(
            plan, &(sumi_plan_copy_args){.x = own->hint, .y = own->hint, .y_row = image->rows, .rows = image->rows});
    }
}

static void write_instantx_hint(const sumi_planned_control* control, sumi_plan* plan, const sumi_control_place* place)
{
    const instantx_state* own = control->state;
    if (place->block < 0) return;
    sumi_plan_prefix(plan, "control.%d.", (int)place->block);
    sumi_plan_add_rows(plan,
                       &(sumi_plan_add_rows_args){.label = "add_hint", .x = own->hint, .y = place->x, .scale = 1.0f});
}

const sumi_control_module sumi_instantx_module = {.network = "qwen-image-instantx",
                                                  .model_bytes = sizeof(instantx),
                                                  .state_bytes = sizeof(instantx_state),
                                                  .bind = bind_instantx,
                                                  .info = instantx_info,
                                                  .write_prepare = write_instantx_prepare,
                                                  .write_layout = write_instantx_layout,
                                                  .write_place = write_instantx_place,
                                                  .write_hint = write_instantx_hint};
