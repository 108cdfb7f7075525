#include "models/qwen_vision.h"
#include "base/assert.h"
#include "files/json.h"
#include "models/config.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define NORM_EPS 1e-6f // no config gives it
#define ROPE_THETA 10000.0

// ---- What the files say ---------------------------------------------------------------------------------------------

// Values from the files. 0 for an int32_t: not given. Values of the configs replace the settings'.
typedef struct file_values {
    int32_t depth, width, hidden, out_width, channels, heads, patch, frames, merge, window;
    int32_t full_blocks[SUMI_QWEN_VISION_MAX_BLOCKS], full_block_count;
    int32_t full_every; // of GGUF files, in place of full_blocks: blocks full_every - 1, 2 full_every - 1, ...
    int32_t processor_patch, processor_frames, processor_merge;
    int32_t min_pixels, max_pixels, shortest, longest;
    double mean[3], deviation[3], rescale;
    int32_t mean_count, deviation_count;
    bool rescales, normalises;
} file_values;

static void take_settings(file_values* t, const sumi_qwen_vision_settings* settings)
{
    t->rescale = 1.0 / 255.0;
    t->rescales = t->normalises = true;
    if (settings == NULL) return;
    t->heads = settings->heads;
    t->window = settings->window;
    t->full_block_count = settings->full_block_count;
    for (int32_t i = 0; i < settings->full_block_count; i++) t->full_blocks[i] = settings->full_blocks[i];
    t->mean_count = t->deviation_count = 3;
    for (int32_t c = 0; c < 3; c++) {
        t->mean[c] = settings->mean[c];
        t->deviation[c] = settings->deviation[c];
    }
}

// Chooses the limits of the area: min_pixels and max_pixels; otherwise `size`, of newer files; otherwise those of the
// settings.
static void choose_areas(file_values* t, const sumi_qwen_vision_settings* settings)
{
    if (t->min_pixels == 0) t->min_pixels = t->shortest;
    if (t->max_pixels == 0) t->max_pixels = t->longest;
    if (t->min_pixels == 0 && settings != NULL) t->min_pixels = settings->min_pixels;
    if (t->max_pixels == 0 && settings != NULL) t->max_pixels = settings->max_pixels;
}

static void read_configs(file_values* t, sumi_binder* b, const sumi_module_config* config,
                         const sumi_module_config* processor)
{
    const sumi_config_field fields[] = {{"vision_config.depth", SUMI_CONFIG_INTEGER, &t->depth, 0, NULL},
                                        {"vision_config.hidden_size", SUMI_CONFIG_INTEGER, &t->width, 0, NULL},
                                        {"vision_config.intermediate_size", SUMI_CONFIG_INTEGER, &t->hidden, 0, NULL},
                                        {"vision_config.out_hidden_size", SUMI_CONFIG_INTEGER, &t->out_width, 0, NULL},
                                        {"vision_config.in_chans", SUMI_CONFIG_INTEGER, &t->channels, 0, NULL},
                                        {"vision_config.in_channels", SUMI_CONFIG_INTEGER, &t->channels, 0, NULL},
                                        {"vision_config.num_heads", SUMI_CONFIG_INTEGER, &t->heads, 0, NULL},
                                        {"vision_config.patch_size", SUMI_CONFIG_INTEGER, &t->patch, 0, NULL},
                                        {"vision_config.temporal_patch_size", SUMI_CONFIG_INTEGER, &t->frames, 0, NULL},
                                        {"vision_config.spatial_merge_size", SUMI_CONFIG_INTEGER, &t->merge, 0, NULL},
                                        {"vision_config.window_size", SUMI_CONFIG_INTEGER, &t->window, 0, NULL},
                                        {"vision_config.fullatt_block_indexes", SUMI_CONFIG_INTEGERS, t->full_blocks,
                                         SUMI_QWEN_VISION_MAX_BLOCKS, &t->full_block_count}};
    const sumi_config_field processor_fields[] = {
        {"patch_size", SUMI_CONFIG_INTEGER, &t->processor_patch, 0, NULL},
        {"temporal_patch_size", SUMI_CONFIG_INTEGER, &t->processor_frames, 0, NULL},
        {"merge_size", SUMI_CONFIG_INTEGER, &t->processor_merge, 0, NULL},
        {"min_pixels", SUMI_CONFIG_INTEGER, &t->min_pixels, 0, NULL},
        {"max_pixels", SUMI_CONFIG_INTEGER, &t->max_pixels, 0, NULL},
        {"size.shortest_edge", SUMI_CONFIG_INTEGER, &t->shortest, 0, NULL},
        {"size.longest_edge", SUMI_CONFIG_INTEGER, &t->longest, 0, NULL},
        {"image_mean", SUMI_CONFIG_NUMBERS, t->mean, 3, &t->mean_count},
        {"image_std", SUMI_CONFIG_NUMBERS, t->deviation, 3, &t->deviation_count},
        {"rescale_factor", SUMI_CONFIG_NUMBER, &t->rescale, 0, NULL},
        {"do_rescale", SUMI_CONFIG_BOOL, &t->rescales, 0, NULL},
        {"do_normalize", SUMI_CONFIG_BOOL, &t->normalises, 0, NULL}};
    b->result = sumi_config_read(config, fields, sizeof fields / sizeof *fields, b->error);
    if (b->result == SUMI_OK && processor != NULL) {
        b->result =
            sumi_config_read(processor, processor_fields, sizeof processor_fields / sizeof *processor_fields, b->error);
    }
}

// A number of llama.cpp's files. Unchanged if there is none; -1 if it cannot be a size.
static void read_vision_number(const sumi_component* component, const char* key, int32_t* into)
{
    const char* text = sumi_metadata_find(component->set, key);
    sumi_json json;
    if (text == NULL) return;
    sumi_json_begin(&json, text, strlen(text), NULL);
    const double value = sumi_json_number(&json);
    *into = sumi_json_end(&json) == SUMI_OK && value >= 0 && value <= 1e9 ? (int32_t)value : -1;
}

// A GGUF file describes its own tensors, so its numbers count before a config.json that lies elsewhere. Its mean and
// deviation are the processor's.
static void read_vision_metadata(file_values* t, sumi_binder* b)
{
    const sumi_component* component = b->component;
    const char* projector = sumi_metadata_find(component->set, "clip.vision.projector_type");
    if (projector == NULL) projector = sumi_metadata_find(component->set, "clip.projector_type");
    if (projector != NULL && strcmp(projector, "qwen2.5vl_merger") != 0) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED,
                       "%s: clip.projector_type is \"%.60s\"; the vision tower of Qwen2.5-VL, \"qwen2.5vl_merger\", is "
                       "needed: give its mmproj file, or its safetensors files, as vision_path",
                       component->path, projector);
        return;
    }
    const struct {
        const char* key;
        int32_t* into;
    } numbers[] = {{"clip.vision.block_count", &t->depth},          {"clip.vision.embedding_length", &t->width},
                   {"clip.vision.feed_forward_length", &t->hidden}, {"clip.vision.projection_dim", &t->out_width},
                   {"clip.vision.attention.head_count", &t->heads}, {"clip.vision.patch_size", &t->patch},
                   {"clip.vision.spatial_merge_size", &t->merge},   {"clip.vision.window_size", &t->window},
                   {"clip.vision.n_wa_pattern", &t->full_every}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        read_vision_number(component, numbers[i].key, numbers[i].into);
    const bool has_pattern = sumi_metadata_find(component->set, "clip.vision.n_wa_pattern") != NULL;
    if (has_pattern && t->full_every < 1) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED,
                       "%s: clip.vision.n_wa_pattern, which says how many blocks attend to the whole picture, is not a "
                       "number from 1 on; download the file again",
                       component->path);
    }
    if (has_pattern) t->full_block_count = 0;
}

// Whether the processor's file describes the processing that this code does. Members that are missing do not matter.
static bool is_known_processor(const file_values* t, const sumi_qwen_vision* model)
{
    return t->rescales && t->normalises && fabs(t->rescale * 255.0 - 1.0) < 1e-6 && t->mean_count == 3
        && t->deviation_count == 3 && t->deviation[0] > 0 && t->deviation[1] > 0 && t->deviation[2] > 0
        && (t->processor_patch == 0 || t->processor_patch == model->patch)
        && (t->processor_frames == 0 || t->processor_frames == model->frames)
        && (t->processor_merge == 0 || t->processor_merge == model->merge);
}

static bool contradicts(int32_t config_size, int32_t size) { return config_size != 0 && config_size != size; }

// ---- Weights --------------------------------------------------------------------------------------------------------

// llama.cpp's names: "v.blk.3.attn_out.weight" for "blocks.3.attn.proj.weight".
static bool vision_alias(const void* context, const char* canonical, int32_t which, char* out, size_t out_bytes)
{
    static const char* const s_whole[][2] = {
        {"patch_embed.proj.", "v.patch_embd."}, {"merger.ln_q.", "v.post_ln."}, {"merger.mlp.", "mm."}};
    static const char* const s_modules[][2] = {{"norm1.", "ln1."},
                                               {"norm2.", "ln2."},
                                               {"attn.proj.", "attn_out."},
                                               {"attn.q.", "attn_q."},
                                               {"attn.k.", "attn_k."},
                                               {"attn.v.", "attn_v."},
                                               {"mlp.gate_proj.", "ffn_gate."},
                                               {"mlp.up_proj.", "ffn_up."},
                                               {"mlp.down_proj.", "ffn_down."}};
    (void)context;
    if (which != 0) return false;
    for (size_t i = 0; i < sizeof s_whole / sizeof *s_whole; i++) {
        if (sumi_replace_text(canonical, s_whole[i][0], s_whole[i][1], out, out_bytes)) return true;
    }
    char block[SUMI_NAME_BYTES];
    if (!sumi_replace_text(canonical, "blocks.", "v.blk.", block, sizeof block)) return false;
    for (size_t i = 0; i < sizeof s_modules / sizeof *s_modules; i++) {
        if (sumi_replace_text(block, s_modules[i][0], s_modules[i][1], out, out_bytes)) return true;
    }
    return false;
}

static bool is_from_llama_cpp(const sumi_binder* b)
{
    return sumi_component_find(b->component, "v.patch_embd.weight") != NULL;
}

static const char* vision_name_in(char* out, int32_t block, const char* suffix)
{
    snprintf(out, SUMI_NAME_BYTES, "blocks.%d.%s", (int)block, suffix);
    return out;
}

static void bind_vision_block(sumi_qwen_vision* model, sumi_binder* b, int32_t index)
{
    sumi_qwen_vision_block* w = &model->blocks[index];
    const int32_t width = model->width, hidden = model->hidden, padding = (8 - hidden % 8) % 8;
    char n[3][SUMI_NAME_BYTES];
    sumi_bind_vector(b, &w->norm1, vision_name_in(n[0], index, "norm1.weight"), width);
    if (is_from_llama_cpp(b)) {
        const char* const parts[] = {vision_name_in(n[0], index, "attn.q"), vision_name_in(n[1], index, "attn.k"),
                                     vision_name_in(n[2], index, "attn.v")};
        const int32_t part_rows[] = {width, width, width};
        char label[2][SUMI_NAME_BYTES];
        sumi_module_stack qkv = {vision_name_in(label[0], index, "attn.qkv"), parts, part_rows, 3};
        sumi_bind_stack(b, &w->qkv, &qkv, width);
        qkv.label = vision_name_in(label[1], index, "attn.qkv.bias");
        sumi_bind_stacked_bias(b, &w->qkv_bias, &qkv);
    } else {
        sumi_bind_linear(b, &w->qkv, &w->qkv_bias, vision_name_in(n[0], index, "attn.qkv"), 3 * width, width);
    }
    sumi_bind_linear(b, &w->out, &w->out_bias, vision_name_in(n[0], index, "attn.proj"), width, width);
    sumi_bind_vector(b, &w->norm2, vision_name_in(n[0], index, "norm2.weight"), width);
    // Gate and up have 3420 rows, but a GPU's products read and write 8 at once. Rows of zeros are added up to a
    // multiple of 8; they make columns of zeros, which change nothing.
    const char *gate = vision_name_in(n[0], index, "mlp.gate_proj"), *up = vision_name_in(n[1], index, "mlp.up_proj");
    const char* label = vision_name_in(n[2], index, "mlp.gate_up");
    const bool is_padded = padding > 0;
    const char* const modules[] = {gate, is_padded ? NULL : up, up, NULL};
    const int32_t rows[] = {hidden, is_padded ? padding : hidden, hidden, padding}, count = is_padded ? 4 : 2;
    const sumi_module_stack stack = {label, modules, rows, count};
    sumi_bind_stack(b, &w->gate_up, &stack, width);
    snprintf(n[2], sizeof n[2], "blocks.%d.mlp.gate_up.bias", (int)index);
    sumi_bind_stacked_bias(b, &w->gate_up_bias, &stack); // under the new name
    sumi_bind_linear(b, &w->down, &w->down_bias, vision_name_in(n[0], index, "mlp.down_proj"), width, hidden);
}

// Widths follow from the tensors. The configs give the values that shapes do not show, and must not contradict the
// shapes.
static void read_shapes(sumi_qwen_vision* model, sumi_binder* b, const file_values* t, const char* config_path)
{
    static const char s_patch_embed[] = "patch_embed.proj.weight", s_merger[] = "merger.mlp.0.weight";
    model->width = sumi_bind_size(b, s_patch_embed, 0);
    const bool is_sliced = is_from_llama_cpp(b); // the kernel's two slices in time are tensors of their own
    const int32_t channels = sumi_bind_size(b, s_patch_embed, 1);
    const int32_t across = sumi_bind_size(b, s_patch_embed, is_sliced ? 3 : 4);
    model->frames = is_sliced ? 2 : sumi_bind_size(b, s_patch_embed, 2);
    model->patch = sumi_bind_size(b, s_patch_embed, is_sliced ? 2 : 3);
    model->hidden = sumi_bind_size(b, "blocks.0.mlp.gate_proj.weight", 0);
    const int32_t merged = sumi_bind_size(b, s_merger, 1);
    model->out_width = sumi_bind_size(b, "merger.mlp.2.weight", 0);
    if (b->result != SUMI_OK) return;
    while (model->merge < 16 && (int64_t)model->merge * model->merge * model->width < merged) model->merge++;
    model->heads = t->heads;
    model->window = t->window / (model->patch * model->merge);
    const bool has_cells = channels == 3 && across == model->patch && model->patch <= 64 && model->frames <= 16
                        && (int64_t)model->merge * model->merge * model->width == merged;
    if (!has_cells || contradicts(t->width, model->width) || contradicts(t->patch, model->patch)
        || contradicts(t->frames, model->frames) || contradicts(t->merge, model->merge)) {
        sumi_bind_fail(b, SUMI_TENSOR_MISMATCH,
                       "%s: the vision tower's patches of %d x %d pixels, or the %d columns of its merger, contradict "
                       "its config.json or are not squares; the file is of another model",
                       b->component->path, (int)model->patch, (int)across, (int)merged);
    } else if (model->heads < 1 || model->width % model->heads != 0 || model->width / model->heads % 4 != 0
               || model->window < 1) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED,
                       "%s: the vision tower has %d heads for a width of %d and windows of %d pixels; "
                       "heads of a multiple of 4 channels and windows of a cell at least are supported",
                       b->component->path, (int)model->heads, (int)model->width, (int)t->window);
    }
    sumi_bind_check(b, config_path, "vision_config.in_channels", t->channels, channels);
    sumi_bind_check(b, config_path, "vision_config.intermediate_size", t->hidden, model->hidden);
    sumi_bind_check(b, config_path, "vision_config.out_hidden_size", t->out_width, model->out_width);
}

static void bind_blocks(sumi_qwen_vision* model, sumi_binder* b, const file_values* t, const char* config_path)
{
    const int32_t stored_blocks = sumi_bind_count(b, is_from_llama_cpp(b) ? "v.blk." : "blocks.");
    const int32_t count = t->depth != 0 ? t->depth : stored_blocks;
    // if there are fewer blocks than the config says, binding reports the missing tensor by its name
    if (t->depth > 0 && stored_blocks > t->depth)
        sumi_bind_check(b, config_path, "vision_config.depth", count, stored_blocks);
    if (count < 1 || count > SUMI_QWEN_VISION_MAX_BLOCKS) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED, "%s: the vision tower has %d blocks; between 1 and %d are supported",
                       b->component->path, (int)count, SUMI_QWEN_VISION_MAX_BLOCKS);
        return;
    }
    model->block_count = count;
    const size_t bytes = (size_t)count * sizeof *model->blocks;
    model->blocks = sumi_weight_list_reserve(b->list, bytes);
    if (model->blocks == NULL) {
        b->result = sumi_out_of_memory(b->error, bytes, "the vision tower's blocks");
        return;
    }
    for (int32_t i = 0; i < t->full_block_count; i++) {
        if (t->full_blocks[i] < 0 || t->full_blocks[i] >= count) {
            sumi_bind_fail(b, SUMI_NOT_SUPPORTED, "%s: fullatt_block_indexes names block %d, the vision tower has %d",
                           b->component->path, (int)t->full_blocks[i], (int)count);
            return;
        }
        model->blocks[t->full_blocks[i]].attends_to_all = true;
    }
    for (int32_t i = t->full_every - 1; i >= 0 && i < count; i += t->full_every) model->blocks[i].attends_to_all = true;
    for (int32_t i = 0; i < count; i++) bind_vision_block(model, b, i);
}

static void bind_patch_embed(sumi_qwen_vision* model, sumi_binder* b)
{
    static const char* const s_slices[] = {"patch_embed.proj.weight", "patch_embed.proj.weight.1"};
    const int32_t area = model->patch * model->patch;
    if (is_from_llama_cpp(b)) {
        sumi_bind_kernel_slices(b, &model->patch_embed,
                                &(sumi_kernel_slices){.label = "patch_embed.proj",
                                                      .names = s_slices,
                                                      .count = model->frames,
                                                      .rows = model->width,
                                                      .channels = 3,
                                                      .area = area});
    } else {
        sumi_bind_matrix(b, &model->patch_embed, "patch_embed.proj", model->width, 3 * model->frames * area);
    }
}

static sumi_result bind_vision_tower(void* memory, const void* settings, sumi_binder* b,
                                     const sumi_module_config* config, const sumi_module_config* processor)
{
    sumi_qwen_vision* model = memory;
    const char* numbers_path = is_from_llama_cpp(b) ? b->component->path : config->path;
    file_values t = {0};
    model->merge = 1;
    b->alias = vision_alias;
    take_settings(&t, settings);
    read_configs(&t, b, config, processor);
    read_vision_metadata(&t, b);
    if (b->result != SUMI_OK) return b->result;
    choose_areas(&t, settings);
    read_shapes(model, b, &t, numbers_path);
    if (b->result != SUMI_OK) return b->result;
    const int32_t cell = model->patch * model->merge;
    if (!is_known_processor(&t, model) || t.min_pixels < 1 || t.max_pixels < cell * cell
        || t.max_pixels < t.min_pixels) {
        sumi_bind_fail(
            b, SUMI_NOT_SUPPORTED,
            "%s: a preprocessor_config.json asks for images that the vision tower does not take here; "
            "supported are mean and deviation of three channels, 8 bits scaled by 1/255, patches of %d pixels, "
            "cells of %d patches, and an area of at least a cell",
            processor != NULL && processor->path != NULL ? processor->path : b->component->path, (int)model->patch,
            (int)model->merge);
        return b->result;
    }
    model->min_pixels = t.min_pixels;
    model->max_pixels = t.max_pixels;
    for (int32_t c = 0; c < 3; c++) {
        model->mean[c] = (float)t.mean[c];
        model->deviation[c] = (float)t.deviation[c];
    }
    bind_blocks(model, b, &t, numbers_path);
    const int32_t width = model->width, merged = model->merge * model->merge * width;
    bind_patch_embed(model, b);
    sumi_bind_vector(b, &model->merger_norm, "merger.ln_q.weight", width);
    sumi_bind_linear(b, &model->merger_in, &model->merger_in_bias, "merger.mlp.0", merged, merged);
    sumi_bind_linear(b, &model->merger_out, &model->merger_out_bias, "merger.mlp.2", model->out_width, merged);
    return b->result;
}

static sumi_vision_properties vision_properties(const void* memory)
{
    const sumi_qwen_vision* model = memory;
    return (sumi_vision_properties){.width = model->out_width,
                                    .cell = model->patch * model->merge,
                                    .min_pixels = model->min_pixels,
                                    .max_pixels = model->max_pixels};
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
    int32_t height, width;  // of the picture in pixels
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
    const int32_t cells = high * wide, per_cell = model->merge * model->merge, merge = model->merge;
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

static sumi_value write_vision_patches(const sumi_qwen_vision* model, sumi_plan* plan, const layout* row_layout,
                                       sumi_value pixels)
{
    sumi_op_patches_in patches = {.height = row_layout->height,
                                  .width = row_layout->width,
                                  .patch = model->patch,
                                  .cell = model->merge,
                                  .frames = model->frames};
    for (int32_t c = 0; c < 3; c++) {
        patches.mean[c] = model->mean[c];
        patches.deviation[c] = model->deviation[c];
    }
    // A still picture fills all frames of its patches. Adding up the weights of the frames beforehand would halve a
    // product that takes a thousandth of the tower's time, but would round the weights.
    sumi_value rows = sumi_plan_patches_in(plan, pixels, row_layout->cells, &patches);
    return sumi_plan_linear(plan,
                            &(sumi_plan_linear_args){.label = "patch_embed", .x = rows, .weight = &model->patch_embed});
}

static void write_vision_block(const sumi_qwen_vision* model, sumi_plan* plan, const sumi_qwen_vision_block* w,
                               const layout* row_layout, sumi_value rope, sumi_value x)
{
    const int32_t dim = model->width / model->heads;
    const sumi_sequence all_rows = {.span = {{0, row_layout->rows}}, .span_count = 1, .query_spans = 1};
    const sumi_attention attention = {.q_heads = model->heads,
                                      .kv_heads = model->heads,
                                      .dim = dim,
                                      .scale = (float)(1.0 / sqrt((double)dim)),
                                      .sequences = w->attends_to_all ? &all_rows : row_layout->windows,
                                      .sequence_count = w->attends_to_all ? 1 : row_layout->window_count};
    sumi_value a =
        sumi_plan_norm(plan, &(sumi_plan_norm_args){.label = "norm1", .x = x, .weight = &w->norm1, .eps = NORM_EPS});
    sumi_value qkv = sumi_plan_linear(
        plan, &(sumi_plan_linear_args){.label = "attn.qkv", .x = a, .weight = &w->qkv, .bias = &w->qkv_bias});
    sumi_plan_qk_norm_rope(plan, &(sumi_plan_qk_args){.label = "attn.rope",
                                                      .qkv = qkv,
                                                      .q_heads = model->heads,
                                                      .kv_heads = model->heads,
                                                      .dim = dim,
                                                      .rotary = SUMI_ROTARY_HALVES,
                                                      .rope = rope});
    sumi_value o = sumi_plan_attention(plan, "attn", qkv, &attention);
    sumi_plan_linear(plan, &(sumi_plan_linear_args){
                               .label = "attn.proj", .x = o, .weight = &w->out, .bias = &w->out_bias, .residual = x});
    sumi_value m =
        sumi_plan_norm(plan, &(sumi_plan_norm_args){.label = "norm2", .x = x, .weight = &w->norm2, .eps = NORM_EPS});
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
    const int32_t per_cell = model->merge * model->merge;
    sumi_value n = sumi_plan_norm(
        plan, &(sumi_plan_norm_args){.label = "ln_q", .x = x, .weight = &model->merger_norm, .eps = NORM_EPS});
    sumi_value cells = sumi_plan_reshape(plan, "cells", n, row_layout->rows / per_cell, per_cell * model->width);
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
    const int32_t cell = model->patch * model->merge;
    sumi_vision_rows out = {.value = SUMI_NO_VALUE};
    if (plan->error.result != SUMI_OK) return out;
    if (height < cell || width < cell || height % cell != 0 || width % cell != 0
        || sumi_plan_info(plan, pixels)->rows != (int64_t)height * width) {
        sumi_fail(&plan->error, SUMI_INTERNAL,
                  "the plan cannot be written: an image of %d x %d pixels, or its value, does not consist of whole "
                  "cells of %d",
                  (int)width, (int)height, (int)cell);
        return out;
    }
    layout row_layout = {.height = height, .width = width};
    if (write_vision_layout(model, plan, height / cell, width / cell, &row_layout)) {
        const int32_t quarter = model->width / model->heads / 4;
        sumi_plan_prefix(plan, "vision.");
        sumi_value rope = sumi_plan_rope_table(
            plan, &(sumi_plan_rope_args){
                      .positions = row_layout.positions, .axes = 2, .pairs = {quarter, quarter}, .theta = ROPE_THETA});
        sumi_value x = write_vision_patches(model, plan, &row_layout, pixels);
        for (int32_t i = 0; i < model->block_count; i++) {
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
