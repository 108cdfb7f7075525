#include "models/qwen3_vision.h"
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
    int32_t depth, width, hidden, out_width, channels, heads, patch, frames, merge, places;
    int32_t deep_blocks[SUMI_MAX_DEEP_LEVELS], deep_count;
    int32_t processor_patch, processor_frames, processor_merge;
    int32_t min_pixels, max_pixels, shortest, longest;
    double mean[3], deviation[3], rescale;
    int32_t mean_count, deviation_count;
    bool rescales, normalises;
} file_values;

static void take_settings(file_values* t, const sumi_qwen3_vision_settings* settings)
{
    t->rescale = 1.0 / 255.0;
    t->rescales = t->normalises = true;
    if (settings == NULL) return;
    t->heads = settings->heads;
    t->deep_count = settings->deep_count;
    memcpy(t->deep_blocks, settings->deep_blocks, sizeof t->deep_blocks);
    t->mean_count = t->deviation_count = 3;
    memcpy(t->mean, settings->mean, sizeof t->mean);
    memcpy(t->deviation, settings->deviation, sizeof t->deviation);
}

// Chooses the limits of the area: `size` of the processor, which holds areas in spite of its names; otherwise those of
// the settings.
static void choose_areas(file_values* t, const sumi_qwen3_vision_settings* settings)
{
    if (t->min_pixels == 0) t->min_pixels = t->shortest;
    if (t->max_pixels == 0) t->max_pixels = t->longest;
    if (t->min_pixels == 0 && settings != NULL) t->min_pixels = settings->min_pixels;
    if (t->max_pixels == 0 && settings != NULL) t->max_pixels = settings->max_pixels;
}

static void read_configs(file_values* t, sumi_binder* b, const sumi_module_config* config,
                         const sumi_module_config* processor)
{
    const sumi_config_field fields[] = {
        {"vision_config.depth", SUMI_CONFIG_INTEGER, &t->depth, 0, NULL},
        {"vision_config.hidden_size", SUMI_CONFIG_INTEGER, &t->width, 0, NULL},
        {"vision_config.intermediate_size", SUMI_CONFIG_INTEGER, &t->hidden, 0, NULL},
        {"vision_config.out_hidden_size", SUMI_CONFIG_INTEGER, &t->out_width, 0, NULL},
        {"vision_config.in_channels", SUMI_CONFIG_INTEGER, &t->channels, 0, NULL},
        {"vision_config.num_heads", SUMI_CONFIG_INTEGER, &t->heads, 0, NULL},
        {"vision_config.patch_size", SUMI_CONFIG_INTEGER, &t->patch, 0, NULL},
        {"vision_config.temporal_patch_size", SUMI_CONFIG_INTEGER, &t->frames, 0, NULL},
        {"vision_config.spatial_merge_size", SUMI_CONFIG_INTEGER, &t->merge, 0, NULL},
        {"vision_config.num_position_embeddings", SUMI_CONFIG_INTEGER, &t->places, 0, NULL},
        {"vision_config.deepstack_visual_indexes", SUMI_CONFIG_INTEGERS, t->deep_blocks, SUMI_MAX_DEEP_LEVELS,
         &t->deep_count}};
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

static bool is_from_llama_cpp(const sumi_binder* b)
{
    return sumi_component_find(b->component, "v.patch_embd.weight") != NULL;
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

// A GGUF file describes its own tensors, so its numbers count before a config.json that lies elsewhere. It names the
// mergers of DeepStack by their blocks.
static void read_vision_metadata(file_values* t, sumi_binder* b)
{
    const sumi_component* component = b->component;
    const char* projector = sumi_metadata_find(component->set, "clip.vision.projector_type");
    if (projector == NULL) projector = sumi_metadata_find(component->set, "clip.projector_type");
    if (projector != NULL && strcmp(projector, "qwen3vl_merger") != 0) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED,
                       "%s: clip.projector_type is \"%.60s\"; the vision tower of Qwen3-VL, \"qwen3vl_merger\", is "
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
                   {"clip.vision.spatial_merge_size", &t->merge}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        read_vision_number(component, numbers[i].key, numbers[i].into);
    if (!is_from_llama_cpp(b)) return;
    t->deep_count = 0;
    for (int32_t block = 0; block < SUMI_QWEN3_VISION_MAX_BLOCKS; block++) {
        char name[SUMI_NAME_BYTES];
        snprintf(name, sizeof name, "v.deepstack.%d.norm.weight", (int)block);
        if (sumi_component_find(component, name) == NULL) continue;
        if (t->deep_count < SUMI_MAX_DEEP_LEVELS) t->deep_blocks[t->deep_count] = block;
        t->deep_count++;
    }
}

// Whether the processor's file describes the processing that this code does. Members that are missing do not matter.
static bool is_known_processor(const file_values* t, const sumi_qwen3_vision* model)
{
    return t->rescales && t->normalises && fabs(t->rescale * 255.0 - 1.0) < 1e-6 && t->mean_count == 3
        && t->deviation_count == 3 && t->deviation[0] > 0 && t->deviation[1] > 0 && t->deviation[2] > 0
        && (t->processor_patch == 0 || t->processor_patch == model->patch)
        && (t->processor_frames == 0 || t->processor_frames == model->frames)
        && (t->processor_merge == 0 || t->processor_merge == model->merge);
}

static bool contradicts(int32_t config_size, int32_t size) { return config_size != 0 && config_size != size; }

// ---- Weights --------------------------------------------------------------------------------------------------------

// llama.cpp's names: "v.blk.3.attn_out.weight" for "blocks.3.attn.proj.weight", and "v.deepstack.16.fc1.weight" for
// "deepstack_merger_list.1.linear_fc1.weight" if the second merger reads block 16.
static bool vision_alias(const void* context, const char* canonical, int32_t which, char* out, size_t out_bytes)
{
    static const char* const s_whole[][2] = {{"patch_embed.proj.", "v.patch_embd."},
                                             {"pos_embed.", "v.position_embd."},
                                             {"merger.norm.", "v.post_ln."},
                                             {"merger.linear_fc1.", "mm.0."},
                                             {"merger.linear_fc2.", "mm.2."}};
    static const char* const s_modules[][2] = {{"norm1.", "ln1."},
                                               {"norm2.", "ln2."},
                                               {"attn.qkv.", "attn_qkv."},
                                               {"attn.proj.", "attn_out."},
                                               {"mlp.linear_fc1.", "ffn_up."},
                                               {"mlp.linear_fc2.", "ffn_down."}};
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

// "blocks.3.norm1"
static const char* block_name_in(char* out, int32_t block, const char* module)
{
    snprintf(out, SUMI_NAME_BYTES, "blocks.%d.%s", (int)block, module);
    return out;
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
    const int32_t width = model->width, hidden = model->hidden;
    char name[SUMI_NAME_BYTES];
    bind_norm(b, &w->norm1, block_name_in(name, index, "norm1"), width);
    bind_layer(b, &w->qkv, block_name_in(name, index, "attn.qkv"), 3 * width, width);
    bind_layer(b, &w->out, block_name_in(name, index, "attn.proj"), width, width);
    bind_norm(b, &w->norm2, block_name_in(name, index, "norm2"), width);
    bind_layer(b, &w->up, block_name_in(name, index, "mlp.linear_fc1"), hidden, width);
    bind_layer(b, &w->down, block_name_in(name, index, "mlp.linear_fc2"), width, hidden);
}

static void bind_merger(const sumi_qwen3_vision* model, sumi_binder* b, sumi_qwen3_vision_merger* merger,
                        const char* module, int32_t norm_width)
{
    const int32_t merged = model->merge * model->merge * model->width;
    char name[SUMI_NAME_BYTES];
    bind_norm(b, &merger->norm, sumi_bind_join(name, module, "norm"), norm_width);
    bind_layer(b, &merger->in, sumi_bind_join(name, module, "linear_fc1"), merged, merged);
    bind_layer(b, &merger->out, sumi_bind_join(name, module, "linear_fc2"), model->out_width, merged);
}

// Widths follow from the tensors. The configs give the values that shapes do not show, and must not contradict the
// shapes.
static void read_shapes(sumi_qwen3_vision* model, sumi_binder* b, const file_values* t, const char* config_path)
{
    static const char s_patch_embed[] = "patch_embed.proj.weight";
    model->width = sumi_bind_size(b, s_patch_embed, 0);
    const bool is_sliced = is_from_llama_cpp(b); // the kernel's two slices in time are separate tensors
    const int32_t channels = sumi_bind_size(b, s_patch_embed, 1);
    const int32_t across = sumi_bind_size(b, s_patch_embed, is_sliced ? 3 : 4);
    model->frames = is_sliced ? 2 : sumi_bind_size(b, s_patch_embed, 2);
    model->patch = sumi_bind_size(b, s_patch_embed, is_sliced ? 2 : 3);
    model->hidden = sumi_bind_size(b, "blocks.0.mlp.linear_fc1.weight", 0);
    const int32_t places = sumi_bind_size(b, "pos_embed.weight", 0);
    const int32_t merged = sumi_bind_size(b, "merger.linear_fc1.weight", 1);
    model->out_width = sumi_bind_size(b, "merger.linear_fc2.weight", 0);
    if (b->result != SUMI_OK) return;
    while (model->merge < 16 && (int64_t)model->merge * model->merge * model->width < merged) model->merge++;
    while ((int64_t)model->grid * model->grid < places && model->grid < 1024) model->grid++;
    model->heads = t->heads;
    const bool has_cells = channels == 3 && across == model->patch && model->patch <= 64 && model->frames <= 16
                        && (int64_t)model->merge * model->merge * model->width == merged;
    if (!has_cells || contradicts(t->width, model->width) || contradicts(t->patch, model->patch)
        || contradicts(t->frames, model->frames) || contradicts(t->merge, model->merge)) {
        sumi_bind_fail(b, SUMI_TENSOR_MISMATCH,
                       "%s: the vision tower's patches of %d x %d pixels, or the %d columns of its merger, contradict "
                       "its config.json or are not squares; the file is of another model",
                       b->component->path, (int)model->patch, (int)across, (int)merged);
    } else if (model->grid * model->grid != places || contradicts(t->places, places)) {
        sumi_bind_fail(b, SUMI_TENSOR_MISMATCH,
                       "%s: the vision tower's %d positions are not those of a square, or contradict its config.json; "
                       "the file is of another model",
                       b->component->path, (int)places);
    } else if (model->heads < 1 || model->width % model->heads != 0 || model->width / model->heads % 4 != 0) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED,
                       "%s: the vision tower has %d heads for a width of %d; heads of a multiple of 4 channels are "
                       "supported",
                       b->component->path, (int)model->heads, (int)model->width);
    }
    sumi_bind_check(b, config_path, "vision_config.in_channels", t->channels, channels);
    sumi_bind_check(b, config_path, "vision_config.intermediate_size", t->hidden, model->hidden);
    sumi_bind_check(b, config_path, "vision_config.out_hidden_size", t->out_width, model->out_width);
}

// Which blocks the mergers of DeepStack read: their numbers rise.
static void find_deep_blocks(sumi_qwen3_vision* model, sumi_binder* b, const file_values* t)
{
    bool is_good = t->deep_count >= 0 && t->deep_count <= SUMI_MAX_DEEP_LEVELS;
    for (int32_t i = 0; i < t->deep_count && is_good; i++) {
        const int32_t block = t->deep_blocks[i];
        is_good = block >= 0 && block < model->block_count && (i == 0 || block > t->deep_blocks[i - 1]);
        model->deep_blocks[i] = block;
        if (is_good) model->blocks[block].deep_level = i;
    }
    model->deep_count = is_good ? t->deep_count : 0;
    if (!is_good) {
        sumi_bind_fail(
            b, SUMI_NOT_SUPPORTED,
            "%s: deepstack_visual_indexes has to name up to %d blocks of the vision tower's %d, in their order",
            b->component->path, SUMI_MAX_DEEP_LEVELS, (int)model->block_count);
    }
}

static void bind_blocks(sumi_qwen3_vision* model, sumi_binder* b, const file_values* t, const char* config_path)
{
    const int32_t stored_blocks = sumi_bind_count(b, is_from_llama_cpp(b) ? "v.blk." : "blocks.");
    const int32_t count = t->depth != 0 ? t->depth : stored_blocks;
    // if there are fewer blocks than the config says, binding reports the missing tensor by its name
    if (t->depth > 0 && stored_blocks > t->depth)
        sumi_bind_check(b, config_path, "vision_config.depth", count, stored_blocks);
    if (count < 1 || count > SUMI_QWEN3_VISION_MAX_BLOCKS) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED, "%s: the vision tower has %d blocks; between 1 and %d are supported",
                       b->component->path, (int)count, SUMI_QWEN3_VISION_MAX_BLOCKS);
        return;
    }
    model->block_count = count;
    const size_t bytes = (size_t)count * sizeof *model->blocks;
    model->blocks = sumi_weight_list_reserve(b->list, bytes);
    if (model->blocks == NULL) {
        b->result = sumi_out_of_memory(b->error, bytes, "the vision tower's blocks");
        return;
    }
    for (int32_t i = 0; i < count; i++) model->blocks[i].deep_level = -1;
    find_deep_blocks(model, b, t);
    for (int32_t i = 0; i < count; i++) bind_vision_block(model, b, i);
}

static void bind_inputs(sumi_qwen3_vision* model, sumi_binder* b)
{
    static const char* const s_slices[] = {"patch_embed.proj.weight", "patch_embed.proj.weight.1"};
    const int32_t area = model->patch * model->patch;
    if (is_from_llama_cpp(b)) {
        sumi_bind_kernel_slices(b, &model->patch_embed.weight,
                                &(sumi_kernel_slices){.label = "patch_embed.proj",
                                                      .names = s_slices,
                                                      .count = model->frames,
                                                      .rows = model->width,
                                                      .channels = 3,
                                                      .area = area});
        sumi_bind_vector(b, &model->patch_embed.bias, "patch_embed.proj.bias", model->width);
    } else {
        bind_layer(b, &model->patch_embed, "patch_embed.proj", model->width, 3 * model->frames * area);
    }
    const bool adaptable = b->adaptable;
    b->adaptable = false; // rows are looked up, not multiplied: no change can be added
    sumi_bind_matrix(b, &model->positions, "pos_embed", model->grid * model->grid, model->width);
    b->adaptable = adaptable;
}

static sumi_result bind_vision_tower(void* memory, const void* settings, sumi_binder* b,
                                     const sumi_module_config* config, const sumi_module_config* processor)
{
    sumi_qwen3_vision* model = memory;
    const char* numbers_path = is_from_llama_cpp(b) ? b->component->path : config->path;
    file_values t = {0};
    model->merge = 1;
    b->alias = vision_alias;
    b->alias_context = model;
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
    bind_inputs(model, b);
    bind_blocks(model, b, &t, numbers_path);
    bind_merger(model, b, &model->merger, "merger", model->width);
    for (int32_t i = 0; i < model->deep_count; i++) {
        char name[SUMI_NAME_BYTES];
        snprintf(name, sizeof name, "deepstack_merger_list.%d", (int)i);
        bind_merger(model, b, &model->deep_mergers[i], name, model->merge * model->merge * model->width);
    }
    return b->result;
}

static sumi_vision_properties vision_properties(const void* memory)
{
    const sumi_qwen3_vision* model = memory;
    return (sumi_vision_properties){.width = model->out_width,
                                    .cell = model->patch * model->merge,
                                    .deep_count = model->deep_count,
                                    .min_pixels = model->min_pixels,
                                    .max_pixels = model->max_pixels};
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
    const int32_t merge = model->merge, high = out->height / model->patch, wide = out->width / model->patch;
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
                                                       .eps = NORM_EPS});
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
    sumi_op_patches_in patches = {.height = rows->height,
                                  .width = rows->width,
                                  .patch = model->patch,
                                  .cell = model->merge,
                                  .frames = model->frames};
    for (int32_t c = 0; c < 3; c++) {
        patches.mean[c] = model->mean[c];
        patches.deviation[c] = model->deviation[c];
    }
    // A still picture fills all frames of its patches, as in qwen_vision.c.
    sumi_value values = sumi_plan_patches_in(plan, pixels, rows->cells, &patches);
    sumi_value x = sumi_plan_mix_rows(plan, "positions", rows->neighbours, rows->factors, &model->positions);
    write_branch(plan, "patch_embed", values, &model->patch_embed, x);
    return x;
}

static void write_vision_block(const sumi_qwen3_vision* model, sumi_plan* plan, const sumi_qwen3_vision_block* w,
                               sumi_value rope, sumi_value x)
{
    const int32_t dim = model->width / model->heads;
    const sumi_sequence all_rows = {.span = {{0, sumi_plan_rows(plan, x)}}, .span_count = 1, .query_spans = 1};
    const sumi_attention attention = {.q_heads = model->heads,
                                      .kv_heads = model->heads,
                                      .dim = dim,
                                      .scale = (float)(1.0 / sqrt((double)dim)),
                                      .sequences = &all_rows,
                                      .sequence_count = 1};
    sumi_value a = write_norm(plan, "norm1", x, &w->norm1);
    sumi_value qkv = write_layer(plan, "attn.qkv", a, &w->qkv, SUMI_ACT_NONE);
    sumi_plan_qk_norm_rope(plan, &(sumi_plan_qk_args){.label = "attn.rope",
                                                      .qkv = qkv,
                                                      .q_heads = model->heads,
                                                      .kv_heads = model->heads,
                                                      .dim = dim,
                                                      .rotary = SUMI_ROTARY_HALVES,
                                                      .rope = rope});
    write_branch(plan, "attn.proj", sumi_plan_attention(plan, "attn", qkv, &attention), &w->out, x);
    sumi_value m = write_norm(plan, "norm2", x, &w->norm2);
    write_branch(plan, "mlp.linear_fc2", write_layer(plan, "mlp.linear_fc1", m, &w->up, SUMI_ACT_GELU_TANH), &w->down,
                 x);
}

// The patches of a cell follow each other, so that a cell is one row of all of them. is_deep: the norm is that of the
// whole cell.
static sumi_value write_merger(const sumi_qwen3_vision* model, sumi_plan* plan, const sumi_qwen3_vision_merger* w,
                               sumi_value x, bool is_deep)
{
    const int32_t per_cell = model->merge * model->merge, cells = sumi_plan_rows(plan, x) / per_cell;
    sumi_value n = is_deep ? x : write_norm(plan, "norm", x, &w->norm);
    n = sumi_plan_reshape(plan, "cells", n, cells, per_cell * model->width);
    if (is_deep) n = write_norm(plan, "norm", n, &w->norm);
    sumi_value h = write_layer(plan, "linear_fc1", n, &w->in, SUMI_ACT_GELU_ERF);
    return write_layer(plan, "linear_fc2", h, &w->out, SUMI_ACT_NONE);
}

static sumi_vision_rows write_vision_model(const void* memory, sumi_plan* plan, sumi_value pixels, int32_t height,
                                           int32_t width)
{
    const sumi_qwen3_vision* model = memory;
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
    layout rows = {.height = height, .width = width};
    if (!write_vision_layout(model, plan, &rows)) return out;
    const int32_t quarter = model->width / model->heads / 4;
    sumi_plan_prefix(plan, "vision.");
    sumi_value rope = sumi_plan_rope_table(
        plan, &(sumi_plan_rope_args){
                  .positions = rows.positions, .axes = 2, .pairs = {quarter, quarter}, .theta = ROPE_THETA});
    sumi_value x = write_vision_patches(model, plan, &rows, pixels);
    for (int32_t i = 0; i < model->block_count; i++) {
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
