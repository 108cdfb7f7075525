// Blockwise control nets of DiffSynth for Qwen-Image (canny, depth, inpaint): after every block of the denoiser a small
// MLP of its rows and the control picture. docs/architectures/control.md, "Qwen-Image blockwise".
//
//   y = img_in(control planes), once
//   h = rms(image rows) * x_rms + rms(y) * y_rms;   image rows += strength * output_proj(gelu(input_proj(h)))
//
// GELU is the one with erf. Several nets read the rows as they are before any of their hints is added.
#include "base/assert.h"
#include "models/two_stream_nets.h"
#include <stdio.h>

typedef struct blockwise_block {
    sumi_weight x_norm, y_norm, in, in_bias, out, out_bias;
} blockwise_block;

typedef struct blockwise {
    int32_t dim;
    sumi_picture_input input;
    blockwise_block blocks[SUMI_TWO_STREAM_MAX_BLOCKS];
    sumi_control_net_info info;
} blockwise;

typedef struct blockwise_state {
    sumi_value pictures; // [pictures * tokens, dim]
    sumi_value hidden;   // of the place that is written, [targets, dim]
} blockwise_state;

static sumi_result bind_blockwise(void* memory, const void* base_model, sumi_binder* b,
                                  const sumi_module_config* config)
{
    blockwise* net = memory;
    const sumi_two_stream* base = base_model;
    (void)config; // no config.json of such a net is known
    const int32_t count = sumi_bind_count(b, "controlnet_blocks.");
    net->dim = base->dim;
    net->info.planes = sumi_picture_input_bind(&net->input, b, base, "img_in", SUMI_PLANES_MASKED_MASK);
    if (count != base->block_count) {
        sumi_bind_fail(b, SUMI_TENSOR_MISMATCH,
                       "%s: a control net of %d blocks does not fit a transformer of %d, which needs as many; take one "
                       "that was released for this model",
                       b->component->path, (int)count, (int)base->block_count);
    }
    for (int32_t i = 0; i < count && b->result == SUMI_OK; i++) {
        blockwise_block* block = &net->blocks[i];
        char prefix[64], name[SUMI_NAME_BYTES];
        snprintf(prefix, sizeof prefix, "controlnet_blocks.%d", (int)i);
        sumi_bind_norm(b, &block->x_norm, sumi_bind_join(name, prefix, "x_rms.weight"), net->dim);
        sumi_bind_norm(b, &block->y_norm, sumi_bind_join(name, prefix, "y_rms.weight"), net->dim);
        sumi_bind_linear(b, &block->in, &block->in_bias, sumi_bind_join(name, prefix, "input_proj"), net->dim,
                         net->dim);
        sumi_bind_linear(b, &block->out, &block->out_bias, sumi_bind_join(name, prefix, "output_proj"), net->dim,
                         net->dim);
        net->info.places[i] = net->info.hints[i] = (int16_t)i;
    }
    net->info.kind = "qwen-blockwise";
    net->info.masks_with_black = true;
    net->info.depth_stretch = SUMI_STRETCH_INVERSE;
    net->info.usual_strength = 1.0f;
    net->info.place_count = count;
    return b->result;
}

static sumi_control_net_info blockwise_info(const void* memory) { return ((const blockwise*)memory)->info; }

static void write_blockwise_prepare(const sumi_planned_control* control, sumi_plan* plan, sumi_denoising* job,
                                    const void* base)
{
    (void)control;
    (void)plan;
    (void)job;
    (void)base;
}

static void write_blockwise_layout(const sumi_planned_control* control, sumi_plan* plan, sumi_denoising* job,
                                   const void* base, const sumi_evaluation_list* list)
{
    const blockwise* net = control->model;
    blockwise_state* own = control->state;
    (void)base;
    (void)list;
    if (own->pictures.id == 0) own->pictures = sumi_picture_input_write(&net->input, plan, control, job, net->dim);
}

// rms(y) * y_rms does not change from step to step either, but computing it again moves fewer bytes than keeping it for
// every block.
static void write_blockwise_place(const sumi_planned_control* control, sumi_plan* plan, const sumi_denoising* job,
                                  const sumi_control_place* place)
{
    const blockwise* net = control->model;
    const sumi_two_stream_evaluation* e = place->evaluation;
    blockwise_state* own = control->state;
    (void)job;
    if (place->block < 0) return;
    const blockwise_block* block = &net->blocks[place->block];
    const sumi_span columns = {0, net->dim};
    sumi_picture_run runs[SUMI_MAX_JOINT_EVALUATIONS];
    const int32_t count = sumi_picture_runs(control, &e->layout, runs);
    sumi_plan_prefix(plan, "control.%d.", (int)place->block);
    const sumi_value h =
        sumi_plan_value(plan, "normed", SUMI_ELEMENT_ACTIVATION, sumi_plan_rows(plan, place->x), net->dim);
    for (int32_t i = 0; i < count; i++) {
        const sumi_value rows =
            count == 1 ? h : sumi_plan_view(plan, "rows", h, (sumi_span){runs[i].row, runs[i].rows}, columns);
        sumi_plan_norm(plan, &(sumi_plan_norm_args){.label = "y_rms",
                                                    .x = own->pictures,
                                                    .x_row = runs[i].picture_row,
                                                    .rows = runs[i].rows,
                                                    .weight = &block->y_norm,
                                                    .eps = SUMI_TWO_STREAM_EPS,
                                                    .y = rows});
    }
    sumi_plan_norm_gate_add(
        plan, &(sumi_plan_norm_gate_add_args){
                  .label = "x_rms", .x = h, .branch = place->x, .weight = &block->x_norm, .eps = SUMI_TWO_STREAM_EPS});
    own->hidden = sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "input_proj",
                                                                  .x = h,
                                                                  .weight = &block->in,
                                                                  .bias = &block->in_bias,
                                                                  .activation = SUMI_ACT_GELU_ERF});
}

static void write_blockwise_hint(const sumi_planned_control* control, sumi_plan* plan, const sumi_control_place* place)
{
    const blockwise* net = control->model;
    const blockwise_state* own = control->state;
    if (place->block < 0) return;
    sumi_plan_prefix(plan, "control.%d.", (int)place->block);
    sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "hint",
                                                    .x = own->hidden,
                                                    .weight = &net->blocks[place->block].out,
                                                    .bias = &net->blocks[place->block].out_bias,
                                                    .residual = place->x,
                                                    .gate = control->strength});
}

const sumi_control_module sumi_blockwise_module = {.network = "qwen-image-blockwise",
                                                   .model_bytes = sizeof(blockwise),
                                                   .state_bytes = sizeof(blockwise_state),
                                                   .bind = bind_blockwise,
                                                   .info = blockwise_info,
                                                   .write_prepare = write_blockwise_prepare,
                                                   .write_layout = write_blockwise_layout,
                                                   .write_place = write_blockwise_place,
                                                   .write_hint = write_blockwise_hint};
