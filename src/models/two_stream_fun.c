// Control nets of the VideoX-Fun project for Qwen-Image ("Fun Controlnet Union"): a second pair of streams, whose image
// rows begin with the control picture and the denoiser's rows. docs/architectures/control.md, "Qwen-Image Fun".
//
//   control planes -> 2x2 patches -> control_img_in --before_proj, + image rows before the first block--> c
//   captions before the first block --> s
//   s, c = block i(s, c);   image rows += strength * after_proj(c)       after the denoiser's block at place i
//
// The text rows s are not the denoiser's: only their first values are the same. The net does not read references.
#include "base/assert.h"
#include "models/two_stream_nets.h"
#include <stdio.h>

typedef struct two_stream_fun {
    sumi_two_stream blocks; // the denoiser's sizes, and the net's own blocks
    sumi_picture_input input;
    sumi_weight before, before_bias;
    sumi_weight after[SUMI_TWO_STREAM_MAX_BLOCKS], after_bias[SUMI_TWO_STREAM_MAX_BLOCKS];
    sumi_control_net_info info;
} two_stream_fun;

typedef struct fun_state {
    sumi_two_stream_state streams;
    sumi_value first; // [pictures * tokens, dim]: what the image rows begin with, from the control picture alone
    // Of the evaluation that is written. next_block comes next; has_hint: the one before it has a hint to add.
    sumi_two_stream_evaluation evaluation;
    int32_t next_block;
    bool has_hint;
} fun_state;

static sumi_result bind_fun(void* memory, const void* base_model, sumi_binder* b, const sumi_module_config* config)
{
    two_stream_fun* net = memory;
    const sumi_two_stream* base = base_model;
    (void)config; // no config.json of such a net is known
    net->blocks = sumi_two_stream_sizes_of(base);
    net->blocks.label = "control_blocks.";
    net->blocks.block_count = sumi_bind_count(b, "control_blocks.");
    net->info.planes = sumi_picture_input_bind(&net->input, b, base, "control_img_in", SUMI_PLANES_PICTURE_MASK_MASKED);
    const int32_t n = net->blocks.block_count, distance = n > 0 ? base->block_count / n : 0;
    if (n < 1 || distance < 1) {
        sumi_bind_fail(b, SUMI_TENSOR_MISMATCH,
                       "%s: a control net of %d blocks does not fit a transformer of %d; take one that was released "
                       "for this model",
                       b->component->path, (int)n, (int)base->block_count);
    }
    if (b->result != SUMI_OK) return b->result;
    sumi_two_stream_bind_blocks(&net->blocks, b, "control_blocks");
    sumi_bind_linear(b, &net->before, &net->before_bias, "control_blocks.0.before_proj", base->dim, base->dim);
    for (int32_t i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, "control_blocks.%d.after_proj", (int)i);
        sumi_bind_linear(b, &net->after[i], &net->after_bias[i], name, base->dim, base->dim);
        net->info.places[i] = (int16_t)(i * distance);
        net->info.hints[i] = (int16_t)i;
    }
    net->info.kind = "qwen-fun";
    net->info.has_binary_mask = true;
    net->info.depth_stretch = SUMI_STRETCH_DISTANCE;
    net->info.usual_strength = 0.8f;
    net->info.place_count = n;
    return b->result;
}

static sumi_control_net_info fun_info(const void* memory) { return ((const two_stream_fun*)memory)->info; }

static void write_fun_prepare(const sumi_planned_control* control, sumi_plan* plan, sumi_denoising* job,
                              const void* base)
{
    const two_stream_fun* net = control->model;
    const sumi_two_stream_state* shared = job->state;
    fun_state* own = control->state;
    (void)base;
    own->streams.condition = shared->condition;
    sumi_two_stream_write_tables(&net->blocks, plan, job, &own->streams);
}

static void write_fun_layout(const sumi_planned_control* control, sumi_plan* plan, sumi_denoising* job,
                             const void* base_model, const sumi_evaluation_list* list)
{
    const two_stream_fun* net = control->model;
    const sumi_two_stream* base = base_model;
    const sumi_two_stream_state* shared = job->state;
    fun_state* own = control->state;
    const sumi_denoising without = sumi_without_references(job);
    own->streams.rope[list->slot] = shared->rope[list->slot];
    if (job->reference_count > 0) {
        own->streams.rope[list->slot] =
            sumi_two_stream_write_rope(base, plan, &without, list, sumi_two_stream_text_position(job));
    }
    if (own->first.id != 0) return;
    const sumi_value pictures = sumi_picture_input_write(&net->input, plan, control, job, base->dim);
    sumi_plan_prefix(plan, "control.");
    own->first = sumi_plan_linear(
        plan, &(sumi_plan_linear_args){
                  .label = "before_proj", .x = pictures, .weight = &net->before, .bias = &net->before_bias});
}

static void begin_fun_streams(const sumi_planned_control* control, sumi_plan* plan, const sumi_denoising* job,
                              const sumi_control_place* place)
{
    const two_stream_fun* net = control->model;
    fun_state* own = control->state;
    sumi_two_stream_evaluation* e = &own->evaluation;
    const sumi_denoising without = sumi_without_references(job);
    *e = (sumi_two_stream_evaluation){.model = &net->blocks,
                                      .plan = plan,
                                      .job = job,
                                      .state = &own->streams,
                                      .list = place->list,
                                      .rope = own->streams.rope[place->list->slot]};
    own->next_block = 0;
    sumi_joint_rows_lay_out(&without, place->list, 2, &e->layout);
    sumi_plan_prefix(plan, "control.");
    sumi_two_stream_begin(e);
    sumi_plan_prefix(plan, "control.");
    sumi_two_stream_write_texts(e, job->state);
    sumi_picture_run runs[SUMI_MAX_JOINT_EVALUATIONS];
    const int32_t count = sumi_picture_runs(control, &e->layout, runs);
    for (int32_t i = 0; i < count; i++) {
        sumi_plan_copy_rows(plan, &(sumi_plan_copy_args){.x = own->first,
                                                         .x_row = runs[i].picture_row,
                                                         .y = e->streams[0].x,
                                                         .y_row = runs[i].row,
                                                         .rows = runs[i].rows});
    }
    sumi_plan_add_rows(
        plan, &(sumi_plan_add_rows_args){.label = "add_stream", .x = place->x, .y = e->streams[0].x, .scale = 1.0f});
}

static void write_fun_place(const sumi_planned_control* control, sumi_plan* plan, const sumi_denoising* job,
                            const sumi_control_place* place)
{
    const two_stream_fun* net = control->model;
    fun_state* own = control->state;
    const int32_t next = own->next_block, count = net->blocks.block_count;
    if (place->block < 0) {
        begin_fun_streams(control, plan, job, place);
        return;
    }
    own->has_hint = next < count && net->info.places[next] == place->block;
    if (!own->has_hint) return;
    sumi_two_stream_write_block(&own->evaluation, next, next == count - 1 || place->is_last);
    own->next_block++;
}

static void write_fun_hint(const sumi_planned_control* control, sumi_plan* plan, const sumi_control_place* place)
{
    const two_stream_fun* net = control->model;
    fun_state* own = control->state;
    if (!own->has_hint) return;
    const int32_t block = own->next_block - 1;
    own->has_hint = false;
    sumi_plan_prefix(plan, "control.%d.", (int)place->block);
    sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "hint",
                                                    .x = own->evaluation.streams[0].x,
                                                    .weight = &net->after[block],
                                                    .bias = &net->after_bias[block],
                                                    .residual = place->x,
                                                    .gate = control->strength});
}

const sumi_control_module sumi_two_stream_fun_module = {.network = "qwen-image-fun",
                                                        .model_bytes = sizeof(two_stream_fun),
                                                        .state_bytes = sizeof(fun_state),
                                                        .bind = bind_fun,
                                                        .info = fun_info,
                                                        .write_prepare = write_fun_prepare,
                                                        .write_layout = write_fun_layout,
                                                        .write_place = write_fun_place,
                                                        .write_hint = write_fun_hint};
