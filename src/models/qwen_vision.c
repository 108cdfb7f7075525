#include "models/qwen_vision.h"
#include "base/assert.h"
#include "models/config.h"
#include <stdio.h>
#include <string.h>

// ---- What the files say ---------------------------------------------------------------------------------------------

static const sumi_qwen_tower_kind s_kind = {.name = "Qwen2.5-VL",
                                            .projector = "qwen2.5vl_merger",
                                            .hidden = "blocks.0.mlp.gate_proj.weight",
                                            .merger_in = "merger.mlp.0.weight",
                                            .merger_out = "merger.mlp.2.weight"};

// Values from the files beside those of every tower.
typedef struct window_values {
    int32_t window; // in pixels
    int32_t full_blocks[SUMI_QWEN_TOWER_MAX_BLOCKS], full_block_count;
    int32_t full_every; // of GGUF files, in place of full_blocks: blocks full_every - 1, 2 full_every - 1, ...
} window_values;

static void read_files(sumi_qwen_tower_values* t, window_values* v, sumi_binder* b,
                       const sumi_qwen_vision_settings* settings, const sumi_qwen_tower_files* files)
{
    const sumi_config_field fields[] = {{"vision_config.window_size", SUMI_CONFIG_INTEGER, &v->window, 0, NULL},
                                        {"vision_config.fullatt_block_indexes", SUMI_CONFIG_INTEGERS, v->full_blocks,
                                         SUMI_QWEN_TOWER_MAX_BLOCKS, &v->full_block_count}};
    *v = (window_values){0};
    if (settings != NULL) {
        v->window = settings->window;
        v->full_block_count = settings->full_block_count;
        memcpy(v->full_blocks, settings->full_blocks, sizeof v->full_blocks);
    }
    sumi_qwen_tower_read(t, b, &s_kind, settings != NULL ? &settings->tower : NULL,
                         &(sumi_qwen_tower_files){files->config, files->processor, fields, 2});
    sumi_qwen_tower_metadata(b->component, "clip.vision.window_size", &v->window);
    sumi_qwen_tower_metadata(b->component, "clip.vision.n_wa_pattern", &v->full_every);
    if (sumi_metadata_find(b->component->set, "clip.vision.n_wa_pattern") == NULL) return;
    v->full_block_count = 0;
    if (v->full_every < 1) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED,
                       "%s: clip.vision.n_wa_pattern, which says how many blocks attend to the whole picture, is not a "
                       "number from 1 on; download the file again",
                       b->component->path);
    }
}

// ---- Weights --------------------------------------------------------------------------------------------------------

static bool vision_alias(const void* context, const char* canonical, int32_t which, char* out, size_t out_bytes)
{
    static const char* const s_whole[][2] = {
        {"patch_embed.proj.", "v.patch_embd."}, {"merger.ln_q.", "v.post_ln."}, {"merger.mlp.", "mm."}, {NULL, NULL}};
    static const char* const s_modules[][2] = {{"norm1.", "ln1."},
                                               {"norm2.", "ln2."},
                                               {"attn.proj.", "attn_out."},
                                               {"attn.q.", "attn_q."},
                                               {"attn.k.", "attn_k."},
                                               {"attn.v.", "attn_v."},
                                               {"mlp.gate_proj.", "ffn_gate."},
                                               {"mlp.up_proj.", "ffn_up."},
                                               {"mlp.down_proj.", "ffn_down."},
                                               {NULL, NULL}};
    (void)context;
    return which == 0 && sumi_qwen_tower_alias(canonical, s_whole, s_modules, out, out_bytes);
}

static void bind_vision_block(sumi_qwen_vision* model, sumi_binder* b, int32_t index)
{
    sumi_qwen_vision_block* w = &model->blocks[index];
    const int32_t width = model->tower.width, hidden = model->tower.hidden, padding = (8 - hidden % 8) % 8;
    char n[3][SUMI_NAME_BYTES];
    sumi_bind_vector(b, &w->norm1, sumi_qwen_tower_name_in(n[0], index, "norm1.weight"), width);
    if (sumi_qwen_tower_is_from_llama_cpp(b)) {
        const char* const parts[] = {sumi_qwen_tower_name_in(n[0], index, "attn.q"),
                                     sumi_qwen_tower_name_in(n[1], index, "attn.k"),
                                     sumi_qwen_tower_name_in(n[2], index, "attn.v")};
        const int32_t part_rows[] = {width, width, width};
        char label[2][SUMI_NAME_BYTES];
        sumi_module_stack qkv = {sumi_qwen_tower_name_in(label[0], index, "attn.qkv"), parts, part_rows, 3};
        sumi_bind_stack(b, &w->qkv, &qkv, width);
        qkv.label = sumi_qwen_tower_name_in(label[1], index, "attn.qkv.bias");
        sumi_bind_stacked_bias(b, &w->qkv_bias, &qkv);
    } else {
        sumi_bind_linear(b, &w->qkv, &w->qkv_bias, sumi_qwen_tower_name_in(n[0], index, "attn.qkv"), 3 * width, width);
    }
    sumi_bind_linear(b, &w->out, &w->out_bias, sumi_qwen_tower_name_in(n[0], index, "attn.proj"), width, width);
    sumi_bind_vector(b, &w->norm2, sumi_qwen_tower_name_in(n[0], index, "norm2.weight"), width);
    // Gate and up have 3420 rows, but a GPU's products read and write 8 at once. Rows of zeros are added up to a
    // multiple of 8; they make columns of zeros, which change nothing.
    const char *gate = sumi_qwen_tower_name_in(n[0], index, "mlp.gate_proj"),
               *up = sumi_qwen_tower_name_in(n[1], index, "mlp.up_proj");
    const char* label = sumi_qwen_tower_name_in(n[2], index, "mlp.gate_up");
    const bool is_padded = padding > 0;
    const char* const modules[] = {gate, is_padded ? NULL : up, up, NULL};
    const int32_t rows[] = {hidden, is_padded ? padding : hidden, hidden, padding}, count = is_padded ? 4 : 2;
    const sumi_module_stack stack = {label, modules, rows, count};
    sumi_bind_stack(b, &w->gate_up, &stack, width);
    snprintf(n[2], sizeof n[2], "blocks.%d.mlp.gate_up.bias", (int)index);
    sumi_bind_stacked_bias(b, &w->gate_up_bias, &stack); // under the new name
    sumi_bind_linear(b, &w->down, &w->down_bias, sumi_qwen_tower_name_in(n[0], index, "mlp.down_proj"), width, hidden);
}

static void bind_blocks(sumi_qwen_vision* model, sumi_binder* b, const window_values* v)
{
    const int32_t count = model->tower.block_count;
    const size_t bytes = (size_t)count * sizeof *model->blocks;
    model->blocks = sumi_weight_list_reserve(b->list, bytes);
    if (model->blocks == NULL) {
        b->result = sumi_out_of_memory(b->error, bytes, "the vision tower's blocks");
        return;
    }
    for (int32_t i = 0; i < v->full_block_count; i++) {
        if (v->full_blocks[i] < 0 || v->full_blocks[i] >= count) {
            sumi_bind_fail(b, SUMI_NOT_SUPPORTED, "%s: fullatt_block_indexes names block %d, the vision tower has %d",
                           b->component->path, (int)v->full_blocks[i], (int)count);
            return;
        }
        model->blocks[v->full_blocks[i]].attends_to_all = true;
    }
    for (int32_t i = v->full_every - 1; i >= 0 && i < count; i += v->full_every) model->blocks[i].attends_to_all = true;
    for (int32_t i = 0; i < count; i++) bind_vision_block(model, b, i);
}

static sumi_result bind_vision_tower(void* memory, const void* settings, sumi_binder* b,
                                     const sumi_module_config* config, const sumi_module_config* processor)
{
    sumi_qwen_vision* model = memory;
    sumi_qwen_tower_values t;
    window_values v;
    b->alias = vision_alias;
    read_files(&t, &v, b, settings, &(sumi_qwen_tower_files){.config = config, .processor = processor});
    sumi_qwen_tower_measure(&model->tower, b, &s_kind, &t);
    if (b->result != SUMI_OK) return b->result;
    const int32_t width = model->tower.width, cell = model->tower.patch * model->tower.merge,
                  merged = model->tower.merge * model->tower.merge * width;
    model->window = v.window / cell;
    if (model->window < 1) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED,
                       "%s: the vision tower has windows of %d pixels; windows of a cell, %d pixels, at least are "
                       "supported",
                       b->component->path, (int)v.window, (int)cell);
        return b->result;
    }
    bind_blocks(model, b, &v);
    sumi_qwen_tower_bind_patches(&model->tower, b, &model->patch_embed, NULL);
    sumi_bind_vector(b, &model->merger_norm, "merger.ln_q.weight", width);
    sumi_bind_linear(b, &model->merger_in, &model->merger_in_bias, "merger.mlp.0", merged, merged);
    sumi_bind_linear(b, &model->merger_out, &model->merger_out_bias, "merger.mlp.2", model->tower.out_width, merged);
    return b->result;
}

static sumi_vision_properties vision_properties(const void* memory)
{
    return sumi_qwen_tower_properties(&((const sumi_qwen_vision*)memory)->tower);
}

// ---- Windows --------------------------------------------------------------------------------------------------------

int32_t sumi_qwen_vision_windows(int32_t high, int32_t wide, int32_t window, int32_t* order, int32_t* ends)
{
    SUMI_ASSERT(high >= 1 && wide >= 1 && window >= 1);
    int32_t windows = 0, cells = 0;
    for (int32_t top = 0; top < high; top += window) {
        for (int32_t left = 0; left < wide; left += window) {
            for (int32_t y = top; y < top + window && y < high; y++) {
                for (int32_t x = left; x < left + window && x < wide; x++) order[cells++] = y * wide + x;
            }
            ends[windows++] = cells;
        }
    }
    SUMI_ASSERT(cells == high * wide);
    return windows;
}

// The data that a plan needs for the order of the rows.
typedef struct layout {
    int32_t rows;           // patches
    sumi_value cells;       // the picture's cells in the order of their rows
    sumi_value cell_rows;   // for each cell of the picture its row
    sumi_value positions;   // (y, x) of the patch of every row
    sumi_sequence* windows; // sequences of rows
    int32_t window_count;
} layout;

// Builds the lists of a layout, in one block of memory.
static bool write_vision_layout(const sumi_qwen_vision* model, sumi_plan* plan, int32_t high, int32_t wide, layout* out)
{
    const int32_t cells = high * wide, per_cell = model->tower.merge * model->tower.merge, merge = model->tower.merge;
    const int32_t max_windows = ((high - 1) / model->window + 1) * ((wide - 1) / model->window + 1);
    out->rows = cells * per_cell;
    const size_t ints = 2 * (size_t)cells + 2 * (size_t)out->rows + (size_t)max_windows;
    int32_t* order = sumi_alloc_array(plan->heap, ints, sizeof *order);
    out->windows = sumi_alloc_array(plan->heap, (size_t)max_windows, sizeof *out->windows);
    if (order == NULL || out->windows == NULL) {
        sumi_free(plan->heap, order);
        sumi_out_of_memory(&plan->error, ints * sizeof *order, "the order of an image's patches");
        return false;
    }
    int32_t *cell_rows = order + cells, *positions = cell_rows + cells, *ends = positions + 2 * (size_t)out->rows;
    out->window_count = sumi_qwen_vision_windows(high, wide, model->window, order, ends);
    for (int32_t i = 0; i < cells; i++) {
        cell_rows[order[i]] = i;
        for (int32_t k = 0; k < per_cell; k++) {
            int32_t* position = positions + 2 * ((size_t)i * (size_t)per_cell + (size_t)k);
            position[0] = order[i] / wide * merge + k / merge;
            position[1] = order[i] % wide * merge + k % merge;
        }
    }
    for (int32_t w = 0, begin = 0; w < out->window_count; begin = ends[w++]) {
        out->windows[w] = (sumi_sequence){
            .span = {{begin * per_cell, (ends[w] - begin) * per_cell}}, .span_count = 1, .query_spans = 1};
    }
    out->cells = sumi_plan_constant(plan, "window_cells", SUMI_ELEMENT_INT, cells, 1, order);
    out->cell_rows = sumi_plan_constant(plan, "cell_rows", SUMI_ELEMENT_INT, cells, 1, cell_rows);
    out->positions = sumi_plan_constant(plan, "patch_positions", SUMI_ELEMENT_INT, out->rows, 2, positions);
    sumi_free(plan->heap, order);
    return true;
}

// ---- Forward --------------------------------------------------------------------------------------------------------

static void write_vision_block(const sumi_qwen_vision* model, sumi_plan* plan, const sumi_qwen_vision_block* w,
                               const layout* row_layout, sumi_value rope, sumi_value x)
{
    const sumi_sequence all_rows = {.span = {{0, row_layout->rows}}, .span_count = 1, .query_spans = 1};
    sumi_value a = sumi_plan_norm(
        plan, &(sumi_plan_norm_args){.label = "norm1", .x = x, .weight = &w->norm1, .eps = SUMI_QWEN_TOWER_NORM_EPS});
    sumi_value qkv = sumi_plan_linear(
        plan, &(sumi_plan_linear_args){.label = "attn.qkv", .x = a, .weight = &w->qkv, .bias = &w->qkv_bias});
    sumi_value o = sumi_qwen_tower_write_attention(&model->tower, plan, qkv, rope,
                                                   w->attends_to_all ? &all_rows : row_layout->windows,
                                                   w->attends_to_all ? 1 : row_layout->window_count);
    sumi_plan_linear(plan, &(sumi_plan_linear_args){
                               .label = "attn.proj", .x = o, .weight = &w->out, .bias = &w->out_bias, .residual = x});
    sumi_value m = sumi_plan_norm(
        plan, &(sumi_plan_norm_args){.label = "norm2", .x = x, .weight = &w->norm2, .eps = SUMI_QWEN_TOWER_NORM_EPS});
    sumi_value gate_and_up = sumi_plan_linear(
        plan,
        &(sumi_plan_linear_args){.label = "mlp.gate_up", .x = m, .weight = &w->gate_up, .bias = &w->gate_up_bias});
    sumi_value g = sumi_plan_gated(plan, "mlp.gated", gate_and_up, SUMI_ACT_SILU);
    sumi_plan_linear(plan,
                     &(sumi_plan_linear_args){
                         .label = "mlp.down_proj", .x = g, .weight = &w->down, .bias = &w->down_bias, .residual = x});
}

// The patches of a cell follow each other, so that a cell is one row of all of them.
static sumi_value write_merger(const sumi_qwen_vision* model, sumi_plan* plan, const layout* row_layout, sumi_value x)
{
    const int32_t per_cell = model->tower.merge * model->tower.merge;
    sumi_value n = sumi_plan_norm(
        plan, &(sumi_plan_norm_args){
                  .label = "ln_q", .x = x, .weight = &model->merger_norm, .eps = SUMI_QWEN_TOWER_NORM_EPS});
    sumi_value cells = sumi_plan_reshape(plan, "cells", n, row_layout->rows / per_cell, per_cell * model->tower.width);
    sumi_value h = sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "mlp.0",
                                                                   .x = cells,
                                                                   .weight = &model->merger_in,
                                                                   .bias = &model->merger_in_bias,
                                                                   .activation = SUMI_ACT_GELU_ERF});
    sumi_value z = sumi_plan_linear(
        plan, &(sumi_plan_linear_args){
                  .label = "mlp.2", .x = h, .weight = &model->merger_out, .bias = &model->merger_out_bias});
    return sumi_plan_gather_rows(plan, "rows", row_layout->cell_rows, z);
}

static sumi_vision_rows write_vision_model(const void* memory, sumi_plan* plan, sumi_value pixels, int32_t height,
                                           int32_t width)
{
    const sumi_qwen_vision* model = memory;
    const int32_t cell = model->tower.patch * model->tower.merge;
    sumi_vision_rows out = {.value = SUMI_NO_VALUE};
    if (!sumi_qwen_tower_takes(&model->tower, plan, pixels, height, width)) return out;
    layout row_layout = {0};
    if (write_vision_layout(model, plan, height / cell, width / cell, &row_layout)) {
        sumi_plan_prefix(plan, "vision.");
        sumi_value rope = sumi_qwen_tower_write_rope(&model->tower, plan, row_layout.positions);
        sumi_value patches =
            sumi_qwen_tower_write_patches(&model->tower, plan, pixels, row_layout.cells, height, width);
        sumi_value x = sumi_plan_linear(
            plan, &(sumi_plan_linear_args){.label = "patch_embed", .x = patches, .weight = &model->patch_embed});
        for (int32_t i = 0; i < model->tower.block_count; i++) {
            sumi_plan_prefix(plan, "vision.blocks.%d.", (int)i);
            write_vision_block(model, plan, &model->blocks[i], &row_layout, rope, x);
        }
        sumi_plan_prefix(plan, "vision.merger.");
        out.value = write_merger(model, plan, &row_layout, x);
        sumi_plan_prefix(plan, "%s", "");
    }
    sumi_free(plan->heap, row_layout.windows);
    return out;
}

const sumi_vision_module sumi_qwen_vision_module = {.model_bytes = sizeof(sumi_qwen_vision),
                                                    .bind = bind_vision_tower,
                                                    .properties = vision_properties,
                                                    .write = write_vision_model};
