// Control nets of the VideoX-Fun project for Z-Image ("Fun Controlnet Union", versions 1.0, 2.0 and 2.1, with Lite and
// Tile): a second stream of blocks like the denoiser's, which begins with its rows and the control picture. The
// authors' rule, by which these nets were trained: hints of the refiner stage reach the denoiser's stream, and hints of
// the joint stage reach all rows, captions and pads too. docs/architectures/control.md, "Z-Image Fun".
//
//   control planes -> 2x2 patches -> embedder --+-- 1.0: refiner blocks, without hints ----------------------+
//                                               +-- 2.0: all layers, on image rows, with hints --------------+--> c
//                                               +-- 2.1: refiner blocks, with hints ------------------------ +
//   [c | captions] --before_proj, + the stream before the first layer--> layer 0 -> layer 1 -> ..
//   after layer i:  stream += strength * after_proj(layer i)             at the places of the net
//
// before_proj is a linear layer in the first block of a stage that begins with the denoiser's rows. Of the refiner stage
// its product does not change from step to step, so it is computed once.
#include "base/assert.h"
#include "models/config.h"
#include "models/control_module.h"
#include "models/next_dit_blocks.h"
#include <stdio.h>
#include <string.h>

typedef enum fun_version { FUN_1_0, FUN_2_0, FUN_2_1 } fun_version;

typedef struct fun_block {
    sumi_next_dit_block block;
    sumi_weight before, before_bias, after, after_bias; // `before` of the first block only
} fun_block;

typedef struct sumi_next_dit_fun {
    fun_version version;
    int32_t channels; // of the planes
    sumi_weight embedder, embedder_bias;
    int32_t layer_count, refiner_count;
    fun_block *layers, *refiner; // in memory of the weight list; no refiner in 2.0
    sumi_control_net_info info;
} sumi_next_dit_fun;

typedef struct fun_state {
    sumi_value modulation[SUMI_NEXT_DIT_MAX_BLOCKS]; // by table_index
    sumi_value first; // [pictures * image rows, dim]: what the stream begins with, from the control picture alone
    // Of the evaluation that is written: the stream [joint rows, dim]; `next_layer` is the layer that comes next.
    // `normed` is the first norm of the rows that the next block of the stage reads, if it was written already.
    sumi_value stream, normed;
    int32_t next_layer;
    // What computes the hint of this place, from the first rows of the stream. NULL: nothing.
    const fun_block* hint;
    int32_t hint_rows;
    char label[64]; // of its block
} fun_state;

// ---- Weights --------------------------------------------------------------------------------------------------------

#define EMBEDDER "control_all_x_embedder.2-1"
#define LAYERS "control_layers."
#define REFINER "control_noise_refiner."

static bool is_zero(const sumi_tensor* tensor)
{
    const unsigned char* bytes = tensor->data;
    uint64_t i = 0;
    while (i < tensor->bytes && bytes[i] == 0) i++;
    return i == tensor->bytes;
}

// The block of this name, with the projections that a block in its place has.
static void bind_fun_block(const sumi_next_dit* base, sumi_binder* binder, fun_block* block, const char* prefix,
                           int32_t table_index)
{
    const bool is_first = prefix[strlen(prefix) - 2] == '.' && prefix[strlen(prefix) - 1] == '0';
    char name[SUMI_NAME_BYTES];
    sumi_dit_bind_block(base, binder, &block->block, prefix, table_index);
    block->block.modulation.keeps_precision = true;
    if (is_first) {
        sumi_bind_linear(binder, &block->before, &block->before_bias, sumi_bind_join(name, prefix, "before_proj"),
                         base->dim, base->dim);
    }
    sumi_bind_linear(binder, &block->after, &block->after_bias, sumi_bind_join(name, prefix, "after_proj"), base->dim,
                     base->dim);
}

// The version follows from the input of the embedder, and from the projections of the refiner: those of 2.0 are not
// there or zero, because its authors' program never used them.
static void find_version(sumi_next_dit_fun* net, const sumi_next_dit* base, sumi_binder* binder)
{
    const int32_t width = sumi_bind_size(binder, EMBEDDER ".weight", 1);
    if (binder->result != SUMI_OK) return;
    net->channels = width / 4;
    const bool is_1 = width == 4 * base->channels, is_2 = width == 4 * (2 * base->channels + 1);
    if (!is_1 && !is_2) {
        sumi_bind_fail(binder, SUMI_NOT_SUPPORTED,
                       "%s: the control picture has %d columns; this library knows nets of %d (1.0) and %d (2.0, 2.1)",
                       binder->component->path, (int)width, 4 * (int)base->channels, 4 * (2 * (int)base->channels + 1));
        return;
    }
    net->refiner_count = sumi_bind_count(binder, REFINER);
    net->layer_count = sumi_bind_count(binder, LAYERS);
    const sumi_tensor* projection = sumi_bind_find(binder, REFINER "0.after_proj.weight");
    net->version = is_1 ? FUN_1_0 : projection != NULL && !is_zero(projection) ? FUN_2_1 : FUN_2_0;
    if (net->version == FUN_2_0) net->refiner_count = 0;
    if (net->layer_count < 1 || net->layer_count > base->layer_count
        || net->layer_count + net->refiner_count > SUMI_NEXT_DIT_MAX_BLOCKS
        || (net->version != FUN_2_0 && net->refiner_count != base->refiner_count)) {
        sumi_bind_fail(binder, SUMI_TENSOR_MISMATCH,
                       "%s: a control net of %d layers and %d refiner layers does not fit a transformer of %d and %d; "
                       "take one that was released for this model",
                       binder->component->path, (int)net->layer_count, (int)net->refiner_count, (int)base->layer_count,
                       (int)base->refiner_count);
    }
}

// No tensor says which layers take a hint. Without a config.json it is every d-th, with d = layers / layers of the
// net, rounded half to even.
static void find_places(sumi_next_dit_fun* net, const sumi_next_dit* base, const sumi_module_config* config,
                        sumi_binder* binder)
{
    int32_t given[SUMI_CONTROL_MAX_PLACES], given_count = 0;
    const sumi_config_field fields[] = {
        {"control_layers_places", SUMI_CONFIG_INTEGERS, given, SUMI_CONTROL_MAX_PLACES, &given_count}};
    if (binder->result == SUMI_OK) binder->result = sumi_config_read(config, fields, 1, binder->error);
    const int32_t n = net->layer_count, quotient = base->layer_count / n, rest = base->layer_count % n;
    const bool rounds_up = 2 * rest > n || (2 * rest == n && quotient % 2 == 1);
    const int32_t distance = quotient + rounds_up;
    for (int32_t i = 0; i < n; i++) {
        const int32_t place = given_count > 0 && i < given_count ? given[i] : i * distance;
        net->info.places[i] = (int16_t)place;
        net->info.hints[i] = (int16_t)i;
        if (given_count > 0 && given_count != n) {
            sumi_bind_fail(binder, SUMI_TENSOR_MISMATCH, "%s: control_layers_places has %d numbers for %d layers",
                           config->path, (int)given_count, (int)n);
        }
        if (place < 0 || place >= base->layer_count || (i > 0 && place <= net->info.places[i - 1])) {
            sumi_bind_fail(binder, SUMI_TENSOR_MISMATCH,
                           "%s: layer %d of the control net adds its hint after layer %d of %d; places are in rising "
                           "order, and there is one for each layer",
                           config->path, (int)i, (int)place, (int)base->layer_count);
        }
    }
    net->info.place_count = n;
}

static sumi_result bind_fun(void* memory, const void* base_model, sumi_binder* binder, const sumi_module_config* config)
{
    sumi_next_dit_fun* net = memory;
    const sumi_next_dit* base = base_model;
    static const char* const s_kinds[] = {[FUN_1_0] = "z-fun-1.0", [FUN_2_0] = "z-fun-2.0", [FUN_2_1] = "z-fun-2.1"};
    binder->alias = sumi_dit_alias;
    find_version(net, base, binder);
    if (binder->result != SUMI_OK) return binder->result;
    find_places(net, base, config, binder);
    const size_t bytes = (size_t)(net->layer_count + net->refiner_count) * sizeof *net->layers;
    net->layers = sumi_weight_list_reserve(binder->list, bytes);
    if (net->layers == NULL) return binder->result = sumi_out_of_memory(binder->error, bytes, "a control net's blocks");
    net->refiner = net->layers + net->layer_count;
    sumi_bind_linear(binder, &net->embedder, &net->embedder_bias, EMBEDDER, base->dim, 4 * net->channels);
    net->embedder.keeps_precision = true;
    char name[SUMI_NAME_BYTES];
    for (int32_t i = 0; i < net->layer_count; i++) {
        snprintf(name, sizeof name, LAYERS "%d", (int)i);
        bind_fun_block(base, binder, &net->layers[i], name, i);
    }
    for (int32_t i = 0; i < net->refiner_count; i++) {
        snprintf(name, sizeof name, REFINER "%d", (int)i);
        if (net->version == FUN_1_0) {
            sumi_dit_bind_block(base, binder, &net->refiner[i].block, name, net->layer_count + i);
            net->refiner[i].block.modulation.keeps_precision = true;
        } else {
            bind_fun_block(base, binder, &net->refiner[i], name, net->layer_count + i);
        }
    }
    net->info.kind = s_kinds[net->version];
    net->info.planes = net->version == FUN_1_0 ? SUMI_PLANES_PICTURE : SUMI_PLANES_PICTURE_MASK_MASKED;
    net->info.has_binary_mask = true;
    net->info.depth_stretch = SUMI_STRETCH_DISTANCE;
    net->info.usual_strength = net->version == FUN_2_1 ? 0.9f : 0.75f;
    return binder->result;
}

static sumi_control_net_info fun_info(const void* memory) { return ((const sumi_next_dit_fun*)memory)->info; }

// ---- What all evaluations share -------------------------------------------------------------------------------------

static void write_fun_prepare(const sumi_planned_control* control, sumi_plan* plan, sumi_denoising* job,
                              const void* base)
{
    const sumi_next_dit_fun* net = control->model;
    const sumi_next_dit_state* state = job->state;
    fun_state* own = control->state;
    for (int32_t i = 0; i < net->layer_count + net->refiner_count; i++) {
        const sumi_next_dit_block* block = &net->layers[i].block; // the refiner's follow in memory
        const bool refines = i >= net->layer_count;
        sumi_plan_prefix(plan, "%s%d.", refines ? REFINER : LAYERS, (int)(refines ? i - net->layer_count : i));
        own->modulation[block->table_index] = sumi_dit_write_table(base, plan, block, state->condition);
    }
}

// The rows of the control pictures, the same for every evaluation and every list of them.
static void write_fun_layout(const sumi_planned_control* control, sumi_plan* plan, sumi_denoising* job,
                             const void* base_model, const sumi_evaluation_list* list)
{
    const sumi_next_dit_fun* net = control->model;
    const sumi_next_dit* base = base_model;
    fun_state* own = control->state;
    if (own->first.id != 0) return;
    const sumi_dit_layout layout = sumi_dit_lay_out(base, job, list);
    const int32_t rows = control->picture_count * layout.image_rows;
    int32_t pictures[SUMI_MAX_ITEMS];
    for (int32_t i = 0; i < control->picture_count; i++) pictures[i] = i;
    sumi_plan_prefix(plan, "control.");
    own->first = sumi_plan_value(plan, "pictures", SUMI_ELEMENT_ACTIVATION, rows, base->dim);
    sumi_dit_embed(base, plan, &layout,
                   &(sumi_dit_embedding){.label = "x_embedder",
                                         .latents = control->planes,
                                         .channels = net->channels,
                                         .pictures = pictures,
                                         .count = control->picture_count,
                                         .weight = &net->embedder,
                                         .bias = &net->embedder_bias},
                   own->first);
    const fun_block* first = net->version == FUN_1_0 ? NULL : net->version == FUN_2_0 ? net->layers : net->refiner;
    if (first == NULL) return;
    sumi_plan_prefix(plan, "control.");
    own->first = sumi_plan_linear(
        plan, &(sumi_plan_linear_args){
                  .label = "before_proj", .x = own->first, .weight = &first->before, .bias = &first->before_bias});
}

// ---- One evaluation -------------------------------------------------------------------------------------------------

// The net's blocks in one stage, and the rows of the stream that they work on.
typedef struct fun_stage {
    const char* stem; // of their names
    const fun_block* blocks;
    int32_t count;
    sumi_dit_rows in, out;
    const sumi_attention* attention;
} fun_stage;

// Writes block i and, beside its last sum, the first norm of the block that follows in this evaluation.
static void write_fun_block(const sumi_planned_control* control, sumi_plan* plan, const sumi_control_place* place,
                            const fun_stage* stage, int32_t i)
{
    const sumi_next_dit* base = place->base;
    const sumi_next_dit_block* block = &stage->blocks[i].block;
    const sumi_dit_evaluation* e = place->evaluation;
    fun_state* own = control->state;
    sumi_dit_block_rows rows = {.x = own->stream,
                                .in = stage->in,
                                .out = stage->out,
                                .attention = stage->attention,
                                .rope = e->rope,
                                .modulation = own->modulation[block->table_index]};
    snprintf(own->label, sizeof own->label, "%s%d.", stage->stem, (int)i);
    sumi_plan_prefix(plan, "%s", own->label);
    if (own->normed.id == 0) own->normed = sumi_dit_write_first_norm(base, plan, block, &rows);
    const sumi_value branch = sumi_dit_write_branches(base, plan, block, &rows, own->normed);
    own->normed = SUMI_NO_VALUE;
    sumi_dit_write_last_sum(base, plan, block, &rows, branch);
    if (place->is_last || i + 1 >= stage->count) return;
    const sumi_next_dit_block* next = &stage->blocks[i + 1].block;
    sumi_plan_prefix(plan, "%s%d.", stage->stem, (int)i + 1);
    rows.modulation = own->modulation[next->table_index];
    own->normed = sumi_dit_write_first_norm(base, plan, next, &rows);
}

// Makes the stream, whose image rows begin as the control picture of each entry. In 2.x the entry's own rows are added.
static void begin_fun_stream(const sumi_planned_control* control, sumi_plan* plan, const sumi_control_place* place)
{
    const sumi_next_dit_fun* net = control->model;
    const sumi_next_dit* base = place->base;
    const sumi_dit_evaluation* e = place->evaluation;
    fun_state* own = control->state;
    const int32_t image_rows = e->layout.image_rows;
    sumi_plan_prefix(plan, "control.");
    own->next_layer = 0;
    own->normed = SUMI_NO_VALUE;
    own->stream = sumi_plan_value(plan, "control_stream", SUMI_ELEMENT_ACTIVATION, e->layout.rows, base->dim);
    for (int32_t entry = 0; entry < place->list->count; entry++) {
        const int32_t picture = control->picture_count > 1 ? place->list->evaluations[entry].item : 0;
        sumi_plan_copy_rows(plan, &(sumi_plan_copy_args){.x = own->first,
                                                         .x_row = picture * image_rows,
                                                         .y = own->stream,
                                                         .y_row = entry * image_rows,
                                                         .rows = image_rows});
    }
    if (net->version != FUN_1_0)
        sumi_plan_add_rows(
            plan, &(sumi_plan_add_rows_args){
                      .label = "add_stream", .x = place->x, .y = own->stream, .rows = e->image_rows, .scale = 1.0f});
}

// 2.0 has its layers in this stage too.
static fun_stage refiner_of(const sumi_next_dit_fun* net, const sumi_dit_evaluation* e)
{
    const bool uses_layers = net->version == FUN_2_0;
    return (fun_stage){.stem = uses_layers ? LAYERS "image_" : REFINER,
                       .blocks = uses_layers ? net->layers : net->refiner,
                       .count = uses_layers ? net->layer_count : net->refiner_count,
                       .in = e->modulated_images,
                       .out = e->modulated_images,
                       .attention = &e->images};
}

// The refiner stage up to this place. 2.0 uses its layers here, and only as many hints as the denoiser has refiner
// blocks; the others only change the stream.
static void write_fun_refiner(const sumi_planned_control* control, sumi_plan* plan, const sumi_control_place* place)
{
    const sumi_next_dit_fun* net = control->model;
    const sumi_dit_evaluation* e = place->evaluation;
    fun_state* own = control->state;
    const fun_stage stage = refiner_of(net, e);
    if (place->block < 0) begin_fun_stream(control, plan, place);
    else if (place->block < stage.count) {
        write_fun_block(control, plan, place, &stage, place->block);
        own->hint = net->version != FUN_1_0 ? &stage.blocks[place->block] : NULL;
        own->hint_rows = e->image_rows;
    }
}

// 2.0 runs all its layers on the image rows. Those without a block of the refiner beside them come here, after the hint
// of the last one with such a block was added.
static void end_fun_refiner(const sumi_planned_control* control, sumi_plan* plan, const sumi_control_place* place)
{
    const sumi_next_dit_fun* net = control->model;
    const sumi_next_dit* base = place->base;
    const fun_stage stage = refiner_of(net, place->evaluation);
    for (int32_t i = base->refiner_count; net->version == FUN_2_0 && i < stage.count; i++)
        write_fun_block(control, plan, place, &stage, i);
}

// stream := before_proj([stream | captions]) + the denoiser's rows before its first layer
static void begin_fun_layers(const sumi_planned_control* control, sumi_plan* plan, const sumi_control_place* place)
{
    const sumi_next_dit_fun* net = control->model;
    const sumi_dit_evaluation* e = place->evaluation;
    fun_state* own = control->state;
    sumi_plan_prefix(plan, "control.");
    sumi_plan_copy_rows(plan, &(sumi_plan_copy_args){.x = place->x,
                                                     .x_row = e->image_rows,
                                                     .y = own->stream,
                                                     .y_row = e->image_rows,
                                                     .rows = e->layout.rows - e->image_rows});
    const sumi_value joint =
        sumi_plan_value(plan, "control_joint", SUMI_ELEMENT_ACTIVATION, e->layout.rows, sumi_plan_cols(plan, place->x));
    sumi_plan_copy_rows(plan, &(sumi_plan_copy_args){.x = place->x, .y = joint});
    sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "before_proj",
                                                    .x = own->stream,
                                                    .weight = &net->layers[0].before,
                                                    .bias = &net->layers[0].before_bias,
                                                    .residual = joint});
    own->stream = joint;
}

static void write_fun_place(const sumi_planned_control* control, sumi_plan* plan, const sumi_denoising* job,
                            const sumi_control_place* place)
{
    const sumi_next_dit_fun* net = control->model;
    const sumi_dit_evaluation* e = place->evaluation;
    fun_state* own = control->state;
    if (place->stage == SUMI_CONTROL_REFINER) {
        write_fun_refiner(control, plan, place);
    } else if (place->block < 0) {
        end_fun_refiner(control, plan, place);
        begin_fun_layers(control, plan, place);
    } else if (own->next_layer < net->layer_count && net->info.places[own->next_layer] == place->block) {
        // after the last layer nothing reads captions
        const bool reads_images_only = place->is_last && !job->computes_unused_rows;
        const fun_stage stage = {.stem = LAYERS,
                                 .blocks = net->layers,
                                 .count = net->layer_count,
                                 .in = e->modulated_all,
                                 .out = reads_images_only ? e->modulated_images : e->modulated_all,
                                 .attention = reads_images_only ? &e->last : &e->joint};
        own->hint = &net->layers[own->next_layer];
        own->hint_rows = stage.out.count;
        write_fun_block(control, plan, place, &stage, own->next_layer++);
    }
}

// The hint reaches all rows, or the rows of images alone.
static void write_fun_hint(const sumi_planned_control* control, sumi_plan* plan, const sumi_control_place* place)
{
    const sumi_next_dit* base = place->base;
    const sumi_dit_evaluation* e = place->evaluation;
    fun_state* own = control->state;
    if (own->hint == NULL) return;
    const bool is_whole = own->hint_rows == e->layout.rows;
    sumi_plan_prefix(plan, "%s", own->label);
    const sumi_value rows = is_whole ? own->stream
                                     : sumi_plan_view(plan, "images", own->stream, (sumi_span){0, own->hint_rows},
                                                      (sumi_span){0, base->dim});
    sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "after_proj",
                                                    .x = rows,
                                                    .weight = &own->hint->after,
                                                    .bias = &own->hint->after_bias,
                                                    .residual = is_whole ? place->x : e->images_of_stream,
                                                    .gate = control->strength});
    own->hint = NULL;
}

const sumi_control_module sumi_next_dit_fun_module = {.network = "z-image-fun",
                                                      .model_bytes = sizeof(sumi_next_dit_fun),
                                                      .state_bytes = sizeof(fun_state),
                                                      .bind = bind_fun,
                                                      .info = fun_info,
                                                      .write_prepare = write_fun_prepare,
                                                      .write_layout = write_fun_layout,
                                                      .write_place = write_fun_place,
                                                      .write_hint = write_fun_hint};
