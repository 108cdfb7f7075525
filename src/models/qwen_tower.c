#include "models/qwen_tower.h"
#include "files/json.h"
#include "models/config.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define ROPE_THETA 10000.0

// ---- What the files say ---------------------------------------------------------------------------------------------

static void take_settings(sumi_qwen_tower_values* t, const sumi_qwen_tower_settings* settings)
{
    *t = (sumi_qwen_tower_values){.rescale = 1.0 / 255.0, .rescales = true, .normalises = true};
    if (settings == NULL) return;
    t->heads = settings->heads;
    t->mean_count = t->deviation_count = 3;
    memcpy(t->mean, settings->mean, sizeof t->mean);
    memcpy(t->deviation, settings->deviation, sizeof t->deviation);
}

// Chooses the limits of the area: min_pixels and max_pixels; otherwise `size`, of newer files, which holds areas in
// spite of the names of its members; otherwise those of the settings.
static void choose_areas(sumi_qwen_tower_values* t, const sumi_qwen_tower_settings* settings)
{
    if (t->min_pixels == 0) t->min_pixels = t->shortest;
    if (t->max_pixels == 0) t->max_pixels = t->longest;
    if (t->min_pixels == 0 && settings != NULL) t->min_pixels = settings->min_pixels;
    if (t->max_pixels == 0 && settings != NULL) t->max_pixels = settings->max_pixels;
}

static void read_configs(sumi_qwen_tower_values* t, sumi_binder* b, const sumi_qwen_tower_files* files)
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
                                        {"vision_config.spatial_merge_size", SUMI_CONFIG_INTEGER, &t->merge, 0, NULL}};
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
    const struct {
        const sumi_module_config* file;
        const sumi_config_field* fields;
        int32_t count;
    } reads[] = {{files->config, fields, sizeof fields / sizeof *fields},
                 {files->config, files->fields, files->field_count},
                 {files->processor, processor_fields, sizeof processor_fields / sizeof *processor_fields}};
    for (size_t i = 0; i < sizeof reads / sizeof *reads && b->result == SUMI_OK; i++) {
        if (reads[i].file != NULL)
            b->result = sumi_config_read(reads[i].file, reads[i].fields, reads[i].count, b->error);
    }
}

void sumi_qwen_tower_metadata(const sumi_component* component, const char* key, int32_t* into)
{
    const char* text = sumi_metadata_find(component->set, key);
    sumi_json json;
    if (text == NULL) return;
    sumi_json_begin(&json, text, strlen(text), NULL);
    const double value = sumi_json_number(&json);
    *into = sumi_json_end(&json) == SUMI_OK && value >= 0 && value <= 1e9 ? (int32_t)value : -1;
}

static void read_metadata(sumi_qwen_tower_values* t, sumi_binder* b, const sumi_qwen_tower_kind* kind)
{
    const sumi_component* component = b->component;
    const char* projector = sumi_metadata_find(component->set, "clip.vision.projector_type");
    if (projector == NULL) projector = sumi_metadata_find(component->set, "clip.projector_type");
    if (projector != NULL && strcmp(projector, kind->projector) != 0) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED,
                       "%s: clip.projector_type is \"%.60s\"; the vision tower of %s, \"%s\", is needed: give its "
                       "mmproj file, or its safetensors files, as vision_path",
                       component->path, projector, kind->name, kind->projector);
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
        sumi_qwen_tower_metadata(component, numbers[i].key, numbers[i].into);
}

void sumi_qwen_tower_read(sumi_qwen_tower_values* values, sumi_binder* b, const sumi_qwen_tower_kind* kind,
                          const sumi_qwen_tower_settings* settings, const sumi_qwen_tower_files* files)
{
    take_settings(values, settings);
    values->numbers_path = sumi_qwen_tower_is_from_llama_cpp(b) ? b->component->path : files->config->path;
    values->processor_path = files->processor != NULL ? files->processor->path : NULL;
    read_configs(values, b, files);
    read_metadata(values, b, kind);
    choose_areas(values, settings);
}

bool sumi_qwen_tower_is_from_llama_cpp(const sumi_binder* b)
{
    return sumi_component_find(b->component, "v.patch_embd.weight") != NULL;
}

// ---- Sizes ----------------------------------------------------------------------------------------------------------

bool sumi_qwen_tower_contradicts(int32_t config_size, int32_t size) { return config_size != 0 && config_size != size; }

static void find_block_count(sumi_qwen_tower* tower, sumi_binder* b, const sumi_qwen_tower_values* t)
{
    const int32_t stored_blocks = sumi_bind_count(b, sumi_qwen_tower_is_from_llama_cpp(b) ? "v.blk." : "blocks.");
    tower->block_count = t->depth != 0 ? t->depth : stored_blocks;
    // if there are fewer blocks than the config says, binding reports the missing tensor by its name
    if (t->depth > 0 && stored_blocks > t->depth)
        sumi_bind_check(b, t->numbers_path, "vision_config.depth", tower->block_count, stored_blocks);
    if (tower->block_count < 1 || tower->block_count > SUMI_QWEN_TOWER_MAX_BLOCKS) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED, "%s: the vision tower has %d blocks; between 1 and %d are supported",
                       b->component->path, (int)tower->block_count, SUMI_QWEN_TOWER_MAX_BLOCKS);
    }
}

// Whether the processor's file describes the processing that this code does. Members that are missing do not matter.
static bool is_known_processor(const sumi_qwen_tower* tower, const sumi_qwen_tower_values* t)
{
    const int32_t cell = tower->patch * tower->merge;
    return t->rescales && t->normalises && fabs(t->rescale * 255.0 - 1.0) < 1e-6 && t->mean_count == 3
        && t->deviation_count == 3 && t->deviation[0] > 0 && t->deviation[1] > 0 && t->deviation[2] > 0
        && !sumi_qwen_tower_contradicts(t->processor_patch, tower->patch)
        && !sumi_qwen_tower_contradicts(t->processor_frames, tower->frames)
        && !sumi_qwen_tower_contradicts(t->processor_merge, tower->merge) && t->min_pixels >= 1
        && t->max_pixels >= cell * cell && t->max_pixels >= t->min_pixels;
}

static void take_processing(sumi_qwen_tower* tower, sumi_binder* b, const sumi_qwen_tower_values* t)
{
    if (b->result == SUMI_OK && !is_known_processor(tower, t)) {
        sumi_bind_fail(
            b, SUMI_NOT_SUPPORTED,
            "%s: a preprocessor_config.json asks for images that the vision tower does not take here; "
            "supported are mean and deviation of three channels, 8 bits scaled by 1/255, patches of %d pixels, "
            "cells of %d patches, and an area of at least a cell",
            t->processor_path != NULL ? t->processor_path : b->component->path, (int)tower->patch, (int)tower->merge);
    }
    tower->min_pixels = t->min_pixels;
    tower->max_pixels = t->max_pixels;
    for (int32_t c = 0; c < 3; c++) {
        tower->mean[c] = (float)t->mean[c];
        tower->deviation[c] = (float)t->deviation[c];
    }
}

void sumi_qwen_tower_measure(sumi_qwen_tower* tower, sumi_binder* b, const sumi_qwen_tower_kind* kind,
                             const sumi_qwen_tower_values* t)
{
    static const char s_patch_embed[] = "patch_embed.proj.weight";
    const bool is_sliced = sumi_qwen_tower_is_from_llama_cpp(b); // the kernel's slices in time are separate tensors
    tower->width = sumi_bind_size(b, s_patch_embed, 0);
    const int32_t channels = sumi_bind_size(b, s_patch_embed, 1);
    const int32_t across = sumi_bind_size(b, s_patch_embed, is_sliced ? 3 : 4);
    tower->frames = is_sliced ? 2 : sumi_bind_size(b, s_patch_embed, 2);
    tower->patch = sumi_bind_size(b, s_patch_embed, is_sliced ? 2 : 3);
    tower->hidden = sumi_bind_size(b, kind->hidden, 0);
    const int32_t merged = sumi_bind_size(b, kind->merger_in, 1);
    tower->out_width = sumi_bind_size(b, kind->merger_out, 0);
    if (b->result != SUMI_OK) return;
    for (tower->merge = 1; tower->merge < 16; tower->merge++)
        if ((int64_t)tower->merge * tower->merge * tower->width >= merged) break;
    tower->heads = t->heads;
    const bool has_cells = channels == 3 && across == tower->patch && tower->patch <= 64 && tower->frames <= 16
                        && (int64_t)tower->merge * tower->merge * tower->width == merged;
    if (!has_cells || sumi_qwen_tower_contradicts(t->width, tower->width)
        || sumi_qwen_tower_contradicts(t->patch, tower->patch) || sumi_qwen_tower_contradicts(t->frames, tower->frames)
        || sumi_qwen_tower_contradicts(t->merge, tower->merge)) {
        sumi_bind_fail(b, SUMI_TENSOR_MISMATCH,
                       "%s: the vision tower's patches of %d x %d pixels, or the %d columns of its merger, contradict "
                       "its config.json or are not squares; the file is of another model",
                       b->component->path, (int)tower->patch, (int)across, (int)merged);
    } else if (tower->heads < 1 || tower->width % tower->heads != 0 || tower->width / tower->heads % 4 != 0) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED,
                       "%s: the vision tower has %d heads for a width of %d; heads of a multiple of 4 channels are "
                       "supported",
                       b->component->path, (int)tower->heads, (int)tower->width);
    }
    sumi_bind_check(b, t->numbers_path, "vision_config.in_channels", t->channels, channels);
    sumi_bind_check(b, t->numbers_path, "vision_config.intermediate_size", t->hidden, tower->hidden);
    sumi_bind_check(b, t->numbers_path, "vision_config.out_hidden_size", t->out_width, tower->out_width);
    take_processing(tower, b, t);
    find_block_count(tower, b, t);
}

// ---- Weights --------------------------------------------------------------------------------------------------------

// "v.blk.3.attn_out.weight" for "blocks.3.attn.proj.weight"
bool sumi_qwen_tower_alias(const char* canonical, const char* const (*whole)[2], const char* const (*in_blocks)[2],
                           char* out, size_t out_bytes)
{
    for (; (*whole)[0] != NULL; whole++)
        if (sumi_replace_text(canonical, (*whole)[0], (*whole)[1], out, out_bytes)) return true;
    char block[SUMI_NAME_BYTES];
    if (!sumi_replace_text(canonical, "blocks.", "v.blk.", block, sizeof block)) return false;
    for (; (*in_blocks)[0] != NULL; in_blocks++)
        if (sumi_replace_text(block, (*in_blocks)[0], (*in_blocks)[1], out, out_bytes)) return true;
    return false;
}

const char* sumi_qwen_tower_name_in(char* out, int32_t block, const char* module)
{
    snprintf(out, SUMI_NAME_BYTES, "blocks.%d.%s", (int)block, module);
    return out;
}

void sumi_qwen_tower_bind_patches(const sumi_qwen_tower* tower, sumi_binder* b, sumi_weight* weight, sumi_weight* bias)
{
    static const char s_module[] = "patch_embed.proj";
    static const char* const s_slices[] = {"patch_embed.proj.weight", "patch_embed.proj.weight.1"};
    const int32_t area = tower->patch * tower->patch;
    if (sumi_qwen_tower_is_from_llama_cpp(b)) {
        sumi_bind_kernel_slices(b, weight,
                                &(sumi_kernel_slices){.label = s_module,
                                                      .names = s_slices,
                                                      .count = tower->frames,
                                                      .rows = tower->width,
                                                      .channels = 3,
                                                      .area = area});
    } else {
        sumi_bind_matrix(b, weight, s_module, tower->width, 3 * tower->frames * area);
    }
    if (bias != NULL) sumi_bind_vector(b, bias, "patch_embed.proj.bias", tower->width);
}

// ---- Plan -----------------------------------------------------------------------------------------------------------

sumi_vision_properties sumi_qwen_tower_properties(const sumi_qwen_tower* tower)
{
    return (sumi_vision_properties){.width = tower->out_width,
                                    .cell = tower->patch * tower->merge,
                                    .min_pixels = tower->min_pixels,
                                    .max_pixels = tower->max_pixels};
}

bool sumi_qwen_tower_takes(const sumi_qwen_tower* tower, sumi_plan* plan, sumi_value pixels, int32_t height,
                           int32_t width)
{
    const int32_t cell = tower->patch * tower->merge;
    if (plan->error.result != SUMI_OK) return false;
    if (height >= cell && width >= cell && height % cell == 0 && width % cell == 0
        && sumi_plan_info(plan, pixels)->rows == (int64_t)height * width)
        return true;
    sumi_fail(
        &plan->error, SUMI_INTERNAL,
        "the plan cannot be written: an image of %d x %d pixels, or its value, does not consist of whole cells of "
        "%d",
        (int)width, (int)height, (int)cell);
    return false;
}

// A still picture fills all frames of its patches. Adding up the weights of the frames beforehand would halve a product
// that takes a thousandth of the tower's time, but would round the weights.
sumi_value sumi_qwen_tower_write_patches(const sumi_qwen_tower* tower, sumi_plan* plan, sumi_value pixels,
                                         sumi_value cells, int32_t height, int32_t width)
{
    sumi_op_patches_in patches = {
        .height = height, .width = width, .patch = tower->patch, .cell = tower->merge, .frames = tower->frames};
    memcpy(patches.mean, tower->mean, sizeof patches.mean);
    memcpy(patches.deviation, tower->deviation, sizeof patches.deviation);
    return sumi_plan_patches_in(plan, pixels, cells, &patches);
}

sumi_value sumi_qwen_tower_write_rope(const sumi_qwen_tower* tower, sumi_plan* plan, sumi_value positions)
{
    const int32_t quarter = tower->width / tower->heads / 4;
    return sumi_plan_rope_table(
        plan,
        &(sumi_plan_rope_args){.positions = positions, .axes = 2, .pairs = {quarter, quarter}, .theta = ROPE_THETA});
}

sumi_value sumi_qwen_tower_write_attention(const sumi_qwen_tower* tower, sumi_plan* plan, sumi_value qkv,
                                           sumi_value rope, const sumi_sequence* sequences, int32_t sequence_count)
{
    const int32_t dim = tower->width / tower->heads;
    const sumi_attention attention = {.q_heads = tower->heads,
                                      .kv_heads = tower->heads,
                                      .dim = dim,
                                      .scale = (float)(1.0 / sqrt((double)dim)),
                                      .sequences = sequences,
                                      .sequence_count = sequence_count};
    sumi_plan_qk_norm_rope(plan, &(sumi_plan_qk_args){.label = "attn.rope",
                                                      .qkv = qkv,
                                                      .q_heads = tower->heads,
                                                      .kv_heads = tower->heads,
                                                      .dim = dim,
                                                      .rotary = SUMI_ROTARY_HALVES,
                                                      .rope = rope});
    return sumi_plan_attention(plan, "attn", qkv, &attention);
}
