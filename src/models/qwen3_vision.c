#include "models/qwen3_vision.h"
#include "base/assert.h"
#include "models/config.h"
#include <stdio.h>
#include <string.h>

// ---- What the files say ---------------------------------------------------------------------------------------------

static const sumi_qwen_tower_kind s_kind = {.name = "Qwen3-VL",
                                            .projector = "qwen3vl_merger",
                                            .hidden = "blocks.0.mlp.linear_fc1.weight",
                                            .merger_in = "merger.linear_fc1.weight",
                                            .merger_out = "merger.linear_fc2.weight"};

// Values from the files beside those of every tower.
typedef struct deep_values {
    int32_t places; // of the learned positions
    int32_t deep_blocks[SUMI_MAX_DEEP_LEVELS], deep_count;
} deep_values;

// llama.cpp's files name the mergers of DeepStack by their blocks.
static void read_files(sumi_qwen_tower_values* t, deep_values* v, sumi_binder* b,
                       const sumi_qwen3_vision_settings* settings, const sumi_qwen_tower_files* files)
{
    const sumi_config_field fields[] = {
        {"vision_config.num_position_embeddings", SUMI_CONFIG_INTEGER, &v->places, 0, NULL},
        {"vision_config.deepstack_visual_indexes", SUMI_CONFIG_INTEGERS, v->deep_blocks, SUMI_MAX_DEEP_LEVELS,
         &v->deep_count}};
    *v = (deep_values){0};
    if (settings != NULL) {
        v->deep_count = settings->deep_count;
        memcpy(v->deep_blocks, settings->deep_blocks, sizeof v->deep_blocks);
    }
    sumi_qwen_tower_read(t, b, &s_kind, settings != NULL ? &settings->tower : NULL,
                         &(sumi_qwen_tower_files){files->config, files->processor, fields, 2});
    if (!sumi_qwen_tower_is_from_llama_cpp(b)) return;
    v->deep_count = 0;
    for (int32_t block = 0; block < SUMI_QWEN_TOWER_MAX_BLOCKS; block++) {
        char name[SUMI_NAME_BYTES];
        snprintf(name, sizeof name, "v.deepstack.%d.norm.weight", (int)block);
        if (sumi_component_find(b->component, name) == NULL) continue;
        if (v->deep_count < SUMI_MAX_DEEP_LEVELS) v->deep_blocks[v->deep_count] = block;
        v->deep_count++;
    }
}

// ---- Weights --------------------------------------------------------------------------------------------------------

// llama.cpp's names: "v.blk.3.attn_out.weight" for "blocks.3.attn.proj.weight", and "v.deepstack.16.fc1.weight" for
// "deepstack_merger_list.1.linear_fc1.weight" if the second merger reads block 16.
static bool vision_alias(const void* context, const char* canonical, int32_t which, char* out, size_t out_bytes)
{
    static const char* const s_whole[][2] = {{"patch_embed.proj.", "v.patch_embd."}, {"pos_embed.", "v.position_embd."},
                                             {"merger.norm.", "v.post_ln."},         {"merger.linear_fc1.", "mm.0."},
                                             {"merger.linear_fc2.", "mm.2."},        {NULL, NULL}};
    static const char* const s_modules[][2] = {{"norm1.", "ln1."},
                                               {"norm2.", "ln2."},
                                               {"attn.qkv.", "attn_qkv."},
                                               {"attn.proj.", "attn_out."},
                                               {"mlp.linear_fc1.", "ffn_up."},
                                               {"mlp.linear_fc2.", "ffn_down."},
                                               {NULL, NULL}};
    const sumi_qwen3_vision* model = context;
    if (which != 0) return false;
    for (int32_t level = 0; level < model->deep_count; level++) {
        char merger[SUMI_NAME_BYTES], deep[SUMI_NAME_BYTES], name[SUMI_NAME_BYTES];
        snprintf(merger, sizeof merger, "deepstack_merger_list.%d.", (int)level);
        snprintf(deep, sizeof deep, "v.deepstack.%d.", (int)model->deep_blocks[level]);
        if (!sumi_replace_text(canonical, merger, deep, name, sizeof name)) continue;
        return sumi_replace_text(name, "linear_", "", out, out_bytes)
            || (size_t)snprintf(out, out_bytes, "%s", name) < out_bytes;
    }
    return sumi_qwen_tower_alias(canonical, s_whole, s_modules, out, out_bytes);
}

static void bind_layer(sumi_binder* b, sumi_biased_weight* layer, const char* module, int32_t rows, int32_t cols)
{
    sumi_bind_linear(b, &layer->weight, &layer->bias, module, rows, cols);
}

static void bind_norm(sumi_binder* b, sumi_biased_weight* norm, const char* module, int32_t cols)
{
    char name[SUMI_NAME_BYTES];
    sumi_bind_vector(b, &norm->weight, sumi_bind_join(name, module, "weight"), cols);
    sumi_bind_vector(b, &norm->bias, sumi_bind_join(name, module, "bias"), cols);
}

static void bind_vision_block(sumi_qwen3_vision* model, sumi_binder* b, int32_t index)
{
    sumi_qwen3_vision_block* w = &model->blocks[index];
    const int32_t width = model->tower.width, hidden = model->tower.hidden;
    char name[SUMI_NAME_BYTES];
    bind_norm(b, &w->norm1, sumi_qwen_tower_name_in(name, index, "norm1"), width);
    bind_layer(b, &w->qkv, sumi_qwen_tower_name_in(name, index, "attn.qkv"), 3 * width, width);
    bind_layer(b, &w->out, sumi_qwen_tower_name_in(name, index, "attn.proj"), width, width);
    bind_norm(b, &w->norm2, sumi_qwen_tower_name_in(name, index, "norm2"), width);
    bind_layer(b, &w->up, sumi_qwen_tower_name_in(name, index, "mlp.linear_fc1"), hidden, width);
    bind_layer(b, &w->down, sumi_qwen_tower_name_in(name, index, "mlp.linear_fc2"), width, hidden);
}

static void bind_merger(const sumi_qwen3_vision* model, sumi_binder* b, sumi_qwen3_vision_merger* merger,
                        const char* module, int32_t norm_width)
{
    const int32_t merged = model->tower.merge * model->tower.merge * model->tower.width;
    char name[SUMI_NAME_BYTES];
    bind_norm(b, &merger->norm, sumi_bind_join(name, module, "norm"), norm_width);
    bind_layer(b, &merger->in, sumi_bind_join(name, module, "linear_fc1"), merged, merged);
    bind_layer(b, &merger->out, sumi_bind_join(name, module, "linear_fc2"), model->tower.out_width, merged);
}

static void find_grid(sumi_qwen3_vision* model, sumi_binder* b, const deep_values* v)
{
    const int32_t places = sumi_bind_size(b, "pos_embed.weight", 0);
    if (b->result != SUMI_OK) return;
    while ((int64_t)model->grid * model->grid < places && model->grid < 1024) model->grid++;
    if (model->grid * model->grid != places || sumi_qwen_tower_contradicts(v->places, places)) {
        sumi_bind_fail(b, SUMI_TENSOR_MISMATCH,
                       "%s: the vision tower's %d positions are not those of a square, or contradict its config.json; "
                       "the file is of another model",
                       b->component->path, (int)places);
    }
}

// Which blocks the mergers of DeepStack read: their numbers rise.
static void find_deep_blocks(sumi_qwen3_vision* model, sumi_binder* b, const deep_values* v)
{
    bool is_good = v->deep_count >= 0 && v->deep_count <= SUMI_MAX_DEEP_LEVELS;
    for (int32_t i = 0; i < v->deep_count && is_good; i++) {
        const int32_t block = v->deep_blocks[i];
        is_good = block >= 0 && block < model->tower.block_count && (i == 0 || block > v->deep_blocks[i - 1]);
        model->deep_blocks[i] = block;
        if (is_good) model->blocks[block].deep_level = i;
    }
    model->deep_count = is_good ? v->deep_count : 0;
    if (!is_good) {
        sumi_bind_fail(
            b, SUMI_NOT_SUPPORTED,
            "%s: deepstack_visual_indexes has to name up to %d blocks of the vision tower's %d, in their order",
            b->component->path, SUMI_MAX_DEEP_LEVELS, (int)model->tower.block_count);
    }
}

static void bind_blocks(sumi_qwen3_vision* model, sumi_binder* b, const deep_values* v)
{
    const int32_t count = model->tower.block_count;
    const size_t bytes = (size_t)count * sizeof *model->blocks;
    model->blocks = sumi_weight_list_reserve(b->list, bytes);
    if (model->blocks == NULL) {
        b->result = sumi_out_of_memory(b->error, bytes, "the vision tower's blocks");
        return;
    }
    for (int32_t i = 0; i < count; i++) model->blocks[i].deep_level = -1;
    find_deep_blocks(model, b, v);
    for (int32_t i = 0; i < count; i++) bind_vision_block(model, b, i);
}

static void bind_inputs(sumi_qwen3_vision* model, sumi_binder* b)
{
    sumi_qwen_tower_bind_patches(&model->tower, b, &model->patch_embed.weight, &model->patch_embed.bias);
    const bool adaptable = b->adaptable;
    b->adaptable = false; // rows are looked up, not multiplied: no change can be added
    sumi_bind_matrix(b, &model->positions, "pos_embed", model->grid * model->grid, model->tower.width);
    b->adaptable = adaptable;
}

static sumi_result bind_vision_tower(void* memory, const void* settings, sumi_binder* b,
                                     const sumi_module_config* config, const sumi_module_config* processor)
{
    sumi_qwen3_vision* model = memory;
    sumi_qwen_tower_values t;
    deep_values v;
    b->alias = vision_alias;
    b->alias_context = model;
    read_files(&t, &v, b, settings, &(sumi_qwen_tower_files){.config = config, .processor = processor});
    sumi_qwen_tower_measure(&model->tower, b, &s_kind, &t);
    find_grid(model, b, &v);
    if (b->result != SUMI_OK) return b->result;
    bind_inputs(model, b);
    bind_blocks(model, b, &v);
    bind_merger(model, b, &model->merger, "merger", model->tower.width);
    for (int32_t i = 0; i < model->deep_count; i++) {
        char name[SUMI_NAME_BYTES];
        snprintf(name, sizeof name, "deepstack_merger_list.%d", (int)i);
        bind_merger(model, b, &model->deep_mergers[i], name,
                    model->tower.merge * model->tower.merge * model->tower.width);
    }
    return b->result;
}

static sumi_vision_properties vision_properties(const void* memory)
{
    const sumi_qwen3_vision* model = memory;
    sumi_vision_properties properties = sumi_qwen_tower_properties(&model->tower);
    properties.deep_count = model->deep_count;
    return properties;
}

// ---- Where the patches are ------------------------------------------------------------------------------------------

typedef struct place {
    int32_t y, x;
} place;

// The patch of a row.
static place patch_of(int32_t row, int32_t wide, int32_t merge)
{
    const int32_t cell = row / (merge * merge), inside = row % (merge * merge), cells_wide = wide / merge;
    return (place){cell / cells_wide * merge + inside / merge, cell % cells_wide * merge + inside % merge};
}

// The two places of the grid beside patch number `patch` of `patches` along a side, and how far it is from the first
// one to the second, in whole numbers up to here: floor() of a rounded quotient could be one less at a place itself.
static void find_pair(int32_t patch, int32_t patches, int32_t grid, int32_t pair[2], double* distance)
{
    const int64_t steps = patches > 1 ? patches - 1 : 1, scaled = (int64_t)patch * (grid - 1);
    pair[0] = (int32_t)(scaled / steps);
    pair[1] = pair[0] + 1 < grid ? pair[0] + 1 : pair[0];
    *distance = (double)(scaled % steps) / (double)steps;
}

void sumi_qwen3_vision_neighbours(const sumi_qwen3_vision_grid* size, int32_t* neighbours, float* factors)
{
    SUMI_ASSERT(size->high >= 1 && size->wide >= 1 && size->grid >= 1);
    SUMI_ASSERT(size->high % size->merge == 0 && size->wide % size->merge == 0);
    for (int32_t row = 0; row < size->high * size->wide; row++, neighbours += 4, factors += 4) {
        const place patch = patch_of(row, size->wide, size->merge);
        int32_t y[2], x[2];
        double below, right;
        find_pair(patch.y, size->high, size->grid, y, &below);
        find_pair(patch.x, size->wide, size->grid, x, &right);
        for (int32_t t = 0; t < SUMI_QWEN3_VISION_NEIGHBOURS; t++) {
            neighbours[t] = y[t / 2] * size->grid + x[t % 2];
            factors[t] = (float)((t / 2 == 0 ? 1.0 - below : below) * (t % 2 == 0 ? 1.0 - right : right));
        }
    }
}

// What a plan needs to know of a picture.
typedef struct layout {
    int32_t height, width;          // of the picture in pixels
    int32_t rows;                   // patches
    sumi_value cells;               // the numbers of the picture's cells, in the order of their rows: 0, 1, 2, ..
    sumi_value positions;           // (y, x) of the patch of every row
    sumi_value neighbours, factors; // [rows, SUMI_QWEN3_VISION_NEIGHBOURS]
} layout;

static bool write_vision_layout(const sumi_qwen3_vision* model, sumi_plan* plan, layout* out)
{
    enum { NEIGHBOURS = SUMI_QWEN3_VISION_NEIGHBOURS };
    const int32_t merge = model->tower.merge, high = out->height / model->tower.patch,
                  wide = out->width / model->tower.patch;
    out->rows = high * wide;
    const int32_t cells = out->rows / (merge * merge);
    const size_t rows = (size_t)out->rows, ints = (size_t)cells + 2 * rows + NEIGHBOURS * rows;
    int32_t* numbers = sumi_alloc_array(plan->heap, ints, sizeof *numbers);
    float* factors = sumi_alloc_array(plan->heap, NEIGHBOURS * rows, sizeof *factors);
    const bool is_good = numbers != NULL && factors != NULL;
    if (is_good) {
        int32_t *positions = numbers + cells, *neighbours = positions + 2 * rows;
        for (int32_t i = 0; i < cells; i++) numbers[i] = i;
        for (int32_t r = 0; r < out->rows; r++) {
            const place patch = patch_of(r, wide, merge);
            positions[2 * r] = patch.y;
            positions[2 * r + 1] = patch.x;
        }
        sumi_qwen3_vision_neighbours(&(sumi_qwen3_vision_grid){high, wide, merge, model->grid}, neighbours, factors);
        out->cells = sumi_plan_constant(plan, "cells", SUMI_ELEMENT_INT, cells, 1, numbers);
        out->positions = sumi_plan_constant(plan, "patch_positions", SUMI_ELEMENT_INT, out->rows, 2, positions);
        out->neighbours = sumi_plan_constant(plan, "neighbours", SUMI_ELEMENT_INT, out->rows, NEIGHBOURS, neighbours);
        out->factors =
            sumi_plan_constant(plan, "neighbour_factors", SUMI_ELEMENT_FLOAT, out->rows, NEIGHBOURS, factors);
    } else {
        sumi_out_of_memory(&plan->error, ints * sizeof *numbers, "the places of an image's patches");
    }
    sumi_free(plan->heap, numbers);
    sumi_free(plan->heap, factors);
    return is_good;
}

// ---- Forward --------------------------------------------------------------------------------------------------------

static sumi_value write_norm(sumi_plan* plan, const char* label, sumi_value x, const sumi_biased_weight* norm)
{
    return sumi_plan_norm(plan, &(sumi_plan_norm_args){.label = label,
                                                       .x = x,
                                                       .norm = SUMI_NORM_LAYER,
                                                       .weight = &norm->weight,
                                                       .bias = &norm->bias,
                                                       .eps = SUMI_QWEN_TOWER_NORM_EPS});
}

static sumi_value write_layer(sumi_plan* plan, const char* label, sumi_value x, const sumi_biased_weight* layer,
                              sumi_activation activation)
{
    return sumi_plan_linear(
        plan, &(sumi_plan_linear_args){
                  .label = label, .x = x, .weight = &layer->weight, .bias = &layer->bias, .activation = activation});
}

// h = h + x W + b
static void write_branch(sumi_plan* plan, const char* label, sumi_value x, const sumi_biased_weight* layer,
                         sumi_value h)
{
    sumi_plan_linear(plan, &(sumi_plan_linear_args){
                               .label = label, .x = x, .weight = &layer->weight, .bias = &layer->bias, .residual = h});
}

// The patches' product is added to their positions, in place.
static sumi_value write_vision_patches(const sumi_qwen3_vision* model, sumi_plan* plan, const layout* rows,
                                       sumi_value pixels)
{
    sumi_value values =
        sumi_qwen_tower_write_patches(&model->tower, plan, pixels, rows->cells, rows->height, rows->width);
    sumi_value x = sumi_plan_mix_rows(plan, "positions", rows->neighbours, rows->factors, &model->positions);
    write_branch(plan, "patch_embed", values, &model->patch_embed, x);
    return x;
}

static void write_vision_block(const sumi_qwen3_vision* model, sumi_plan* plan, const sumi_qwen3_vision_block* w,
                               sumi_value rope, sumi_value x)
{
    const sumi_sequence all_rows = {.span = {{0, sumi_plan_rows(plan, x)}}, .span_count = 1, .query_spans = 1};
    sumi_value a = write_norm(plan, "norm1", x, &w->norm1);
    sumi_value qkv = write_layer(plan, "attn.qkv", a, &w->qkv, SUMI_ACT_NONE);
    write_branch(plan, "attn.proj", sumi_qwen_tower_write_attention(&model->tower, plan, qkv, rope, &all_rows, 1),
                 &w->out, x);
    sumi_value m = write_norm(plan, "norm2", x, &w->norm2);
    write_branch(plan, "mlp.linear_fc2", write_layer(plan, "mlp.linear_fc1", m, &w->up, SUMI_ACT_GELU_TANH), &w->down,
                 x);
}

// The patches of a cell follow each other, so that a cell is one row of all of them. is_deep: the norm is that of the
// whole cell.
static sumi_value write_merger(const sumi_qwen3_vision* model, sumi_plan* plan, const sumi_qwen3_vision_merger* w,
                               sumi_value x, bool is_deep)
{
    const int32_t per_cell = model->tower.merge * model->tower.merge, cells = sumi_plan_rows(plan, x) / per_cell;
    sumi_value n = is_deep ? x : write_norm(plan, "norm", x, &w->norm);
    n = sumi_plan_reshape(plan, "cells", n, cells, per_cell * model->tower.width);
    if (is_deep) n = write_norm(plan, "norm", n, &w->norm);
    sumi_value h = write_layer(plan, "linear_fc1", n, &w->in, SUMI_ACT_GELU_ERF);
    return write_layer(plan, "linear_fc2", h, &w->out, SUMI_ACT_NONE);
}

static sumi_vision_rows write_vision_model(const void* memory, sumi_plan* plan, sumi_value pixels, int32_t height,
                                           int32_t width)
{
    const sumi_qwen3_vision* model = memory;
    sumi_vision_rows out = {.value = SUMI_NO_VALUE};
    if (!sumi_qwen_tower_takes(&model->tower, plan, pixels, height, width)) return out;
    layout rows = {.height = height, .width = width};
    if (!write_vision_layout(model, plan, &rows)) return out;
    sumi_plan_prefix(plan, "vision.");
    sumi_value rope = sumi_qwen_tower_write_rope(&model->tower, plan, rows.positions);
    sumi_value x = write_vision_patches(model, plan, &rows, pixels);
    for (int32_t i = 0; i < model->tower.block_count; i++) {
        const int32_t level = model->blocks[i].deep_level;
        sumi_plan_prefix(plan, "vision.blocks.%d.", (int)i);
        write_vision_block(model, plan, &model->blocks[i], rope, x);
        if (level < 0) continue;
        sumi_plan_prefix(plan, "vision.deep_mergers.%d.", (int)level);
        out.deep[level] = write_merger(model, plan, &model->deep_mergers[level], x, true);
    }
    sumi_plan_prefix(plan, "vision.merger.");
    out.value = write_merger(model, plan, &model->merger, x, false);
    sumi_plan_prefix(plan, "%s", "");
    return out;
}

const sumi_vision_module sumi_qwen3_vision_module = {.model_bytes = sizeof(sumi_qwen3_vision),
                                                     .bind = bind_vision_tower,
                                                     .properties = vision_properties,
                                                     .write = write_vision_model};
