// Adapters: finds the file, reads what it changes (adapter_layers.h), finds each layer in the model, and makes the
// changes that plans add (adapter_change.h).
//
// Every key must belong to a layer of the model. A file whose keys belong only in part is refused, because silently
// dropping the rest would change the result. Two things are left out, which sumi_adapter_notice() tells: layers of text
// encoders if the model was opened without them, and a change of fused q, k and v beside changes of all three.
#include "base/assert.h"
#include "base/memory.h"
#include "base/platform.h"
#include "models/adapter_change.h"
#include "models/adapter_parts.h"
#include "models/network_state.h"
#include <stdio.h>
#include <string.h>

// What is changed of some rows of a weight. Two changes of one group are the same one twice, or contradict each other.
typedef enum change_group { GROUP_MATRIX, GROUP_BIAS, GROUP_VECTOR } change_group;

// The changes that one layer of the file makes of one group.
typedef struct applied_layer {
    const sumi_adapter_target* target;
    change_group group;
    const sumi_adapter_layer* layer;
    size_t first; // of its changes
    int32_t count;
    bool is_dropped;
} applied_layer;

struct sumi_adapter_file {
    sumi_heap* heap;
    const sumi_network* network;
    char* path; // of the file that holds the tensors
    sumi_tensor_set set;
    sumi_adapter_config configs[SUMI_ADAPTER_CONFIGS];
    sumi_adapter_layers layers;
    size_t layers_done;
    sumi_adapter_memory memory;
    sumi_delta* deltas;
    size_t delta_count, delta_capacity;
    applied_layer* applied;
    size_t applied_count, applied_capacity;
    sumi_adapter adapter, text_adapter; // of the denoiser, and of the text encoders: parts of `deltas`
    bool is_done;
    char notice[512];
};

// ---- Layers ---------------------------------------------------------------------------------------------------------

// Finds the layer, or with is_vector the norm, that a module path names. NULL: there is none.
static const sumi_adapter_target* find_target(const sumi_network* network, const sumi_adapter_layer* layer,
                                              bool is_vector)
{
    const size_t skipped = sumi_adapter_prefix_bytes(layer->module, layer->module_bytes);
    char folded[SUMI_NAME_BYTES];
    if (!sumi_fold_path(layer->module + skipped, layer->module_bytes - skipped, folded, sizeof folded)) return NULL;
    for (size_t i = 0; i < network->weights.target_count; i++) {
        const sumi_adapter_target* target = &network->weights.targets[i];
        const bool is_of_component =
            layer->encoder == SUMI_ADAPTER_ANY_ENCODER ? target->encoder != 0 : target->encoder == layer->encoder;
        if (is_of_component && target->is_vector == is_vector && strcmp(target->path, folded) == 0) return target;
    }
    return NULL;
}

static sumi_result fail_twice(const sumi_adapter_file* file, const sumi_adapter_layer* a, const sumi_adapter_layer* b,
                              sumi_error* error)
{
    return sumi_fail(error, SUMI_NOT_SUPPORTED,
                     "%s: %.*s and %.*s are two different changes of one layer; use a file with one of them",
                     file->path, (int)a->module_bytes, a->module, (int)b->module_bytes, b->module);
}

// Keeps the changes of a layer, unless another name of the layer has brought them already.
static sumi_result add_changes(sumi_adapter_file* file, applied_layer applied, const sumi_change_list* list,
                               sumi_error* error)
{
    for (size_t i = 0; i < file->applied_count; i++) {
        const applied_layer* old = &file->applied[i];
        const sumi_adapter_target *a = old->target, *b = applied.target;
        if (old->group != applied.group || a->weight_index != b->weight_index || a->row_begin != b->row_begin
            || a->rows != b->rows)
            continue;
        bool differ = old->count != 0 || list->count != 0;
        if (differ) {
            SUMI_TRY(sumi_adapter_changes_differ(file->heap, (sumi_change_range){file->deltas + old->first, old->count},
                                                 (sumi_change_range){list->deltas, list->count}, &differ, error));
        }
        return differ ? fail_twice(file, old->layer, applied.layer, error) : SUMI_OK;
    }
    applied.first = file->delta_count;
    applied.count = list->count;
    SUMI_TRY(sumi_grow(file->heap, (void**)&file->applied, &file->applied_capacity, file->applied_count + 1,
                       sizeof *file->applied, error));
    file->applied[file->applied_count++] = applied;
    SUMI_TRY(sumi_grow(file->heap, (void**)&file->deltas, &file->delta_capacity,
                       file->delta_count + (size_t)list->count, sizeof *file->deltas, error));
    for (int32_t i = 0; i < list->count; i++) file->deltas[file->delta_count++] = list->deltas[i];
    return SUMI_OK;
}

static const char* first_name(const sumi_adapter_layer* layer)
{
    for (int32_t i = 0; i < SUMI_PART_COUNT; i++) {
        if (layer->parts[i] != NULL) return layer->parts[i]->name;
    }
    return "";
}

typedef sumi_result make_changes(const sumi_adapter_place* place, const sumi_adapter_layer* layer,
                                 sumi_change_list* out, sumi_error* error);

// Makes the changes of one group, for the layer as a whole, and adds them part by part.
static sumi_result apply_group(sumi_adapter_file* file, const applied_layer* applied, make_changes* make,
                               sumi_error* error)
{
    const sumi_weight_list* weights = &file->network->weights;
    const sumi_adapter_target* first = applied->target;
    SUMI_ASSERT(first->weight_index >= 0 && (size_t)first->weight_index < weights->count);
    sumi_adapter_place place = {&file->memory, file->path, first, weights->weights[first->weight_index]};
    sumi_change_list list = {.count = 0};
    if (first->more_parts == 0) {
        SUMI_TRY(make(&place, applied->layer, &list, error));
        return add_changes(file, *applied, &list, error);
    }
    sumi_adapter_whole whole;
    SUMI_TRY(sumi_adapter_join_parts(weights, first, &place, &whole, error));
    place.target = &whole.target;
    place.weight = &whole.weight;
    SUMI_TRY(make(&place, applied->layer, &list, error));
    for (int32_t i = 0, row = 0; i <= first->more_parts; row += first[i++].rows) {
        applied_layer part = *applied;
        part.target = place.target = &first[i];
        sumi_change_list part_list;
        SUMI_TRY(sumi_adapter_take_part(&place, &list, row, &part_list, error));
        SUMI_TRY(add_changes(file, part, &part_list, error));
    }
    return SUMI_OK;
}

static sumi_result apply_layer(sumi_adapter_file* file, const sumi_adapter_layer* layer, sumi_error* error)
{
    const sumi_network* network = file->network;
    const bool is_norm = layer->parts[SUMI_PART_NORM] != NULL || layer->parts[SUMI_PART_NORM_BIAS] != NULL,
               may_be_norm = is_norm || layer->kind == SUMI_ADAPTER_DIFF || layer->kind == SUMI_ADAPTER_NONE;
    const sumi_adapter_target* target = is_norm ? NULL : find_target(network, layer, false);
    if (target == NULL && may_be_norm) target = find_target(network, layer, true);
    if (target == NULL) {
        sumi_adapter_add_unknown(&file->layers, first_name(layer));
        return SUMI_OK;
    }
    applied_layer applied = {.target = target, .layer = layer};
    if (target->is_vector) {
        applied.group = GROUP_VECTOR;
        return apply_group(file, &applied, sumi_adapter_change_norm, error);
    }
    if (layer->kind != SUMI_ADAPTER_NONE) SUMI_TRY(apply_group(file, &applied, sumi_adapter_change_matrix, error));
    if (layer->parts[SUMI_PART_BIAS_DIFF] == NULL && layer->parts[SUMI_PART_UP_BIAS] == NULL) return SUMI_OK;
    applied.group = GROUP_BIAS;
    return apply_group(file, &applied, sumi_adapter_change_bias, error);
}

// ---- Fused layers ---------------------------------------------------------------------------------------------------

static bool has_rows(const sumi_adapter_target* a, const sumi_adapter_target* b)
{
    return a->weight_index == b->weight_index && a->row_begin < b->row_begin + b->rows
        && b->row_begin < a->row_begin + a->rows;
}

// If a file has a fused change of q, k and v and also all single ones, these are the same change twice in the way that
// its program splits it, and the fused one is dropped. With some of the single ones they contradict each other.
static sumi_result drop_fused(sumi_adapter_file* file, applied_layer* fused, sumi_error* error)
{
    int32_t rows = 0;
    const applied_layer* single = NULL;
    for (size_t i = 0; i < file->applied_count; i++) {
        const applied_layer* other = &file->applied[i];
        if (other->group != fused->group || !has_rows(other->target, fused->target)
            || other->target->rows >= fused->target->rows)
            continue;
        rows += other->target->rows;
        single = other;
    }
    if (single == NULL) return SUMI_OK;
    if (rows != fused->target->rows) return fail_twice(file, fused->layer, single->layer, error);
    fused->is_dropped = true;
    for (int32_t i = 0; i < fused->count; i++) file->deltas[fused->first + (size_t)i].row_begin = -1;
    return SUMI_OK;
}

static sumi_result drop_all_fused(sumi_adapter_file* file, sumi_error* error)
{
    size_t dropped = 0, kept = 0;
    const applied_layer* first = NULL;
    for (size_t i = 0; i < file->applied_count; i++) {
        SUMI_TRY(drop_fused(file, &file->applied[i], error));
        if (!file->applied[i].is_dropped) continue;
        if (dropped++ == 0) first = &file->applied[i];
    }
    for (size_t i = 0; i < file->delta_count; i++) {
        if (file->deltas[i].row_begin >= 0) file->deltas[kept++] = file->deltas[i];
    }
    file->delta_count = kept;
    if (first != NULL) {
        const size_t used = strlen(file->notice);
        snprintf(file->notice + used, sizeof file->notice - used,
                 "%s%s %zu fused layer%s left out, because the file has the changes of all parts, too (%.*s)",
                 used > 0 ? "; the changes of" : file->path, used > 0 ? "" : ": the changes of", dropped,
                 dropped == 1 ? " are" : "s are", (int)first->layer->module_bytes, first->layer->module);
    }
    return SUMI_OK;
}

static int compare_deltas(const void* a, const void* b)
{
    const sumi_delta *x = a, *y = b;
    if (x->weight_index != y->weight_index) return x->weight_index < y->weight_index ? -1 : 1;
    if (x->row_begin != y->row_begin) return x->row_begin < y->row_begin ? -1 : 1;
    const int32_t x_rows = sumi_delta_rows(x), y_rows = sumi_delta_rows(y);
    return x_rows != y_rows ? (x_rows < y_rows ? -1 : 1) : (int)x->kind - (int)y->kind;
}

// ---- The file -------------------------------------------------------------------------------------------------------

// Finds the file: `path` itself, or the file in the folder that PEFT or diffusers saved.
static sumi_result find_file(sumi_adapter_file* file, const sumi_files* files, const char* path, sumi_error* error)
{
    static const char* const s_names[] = {"adapter_model.safetensors", "pytorch_lora_weights.safetensors"};
    const size_t bytes = strlen(path) + 64;
    file->path = sumi_alloc(file->heap, bytes);
    if (file->path == NULL) return sumi_out_of_memory(error, bytes, "a file name");
    snprintf(file->path, bytes, "%s", path);
    if (!sumi_file_is_folder(files, path)) return SUMI_OK;
    for (size_t i = 0; i < sizeof s_names / sizeof *s_names; i++) {
        SUMI_ASSERT(strlen(s_names[i]) + 2 <= 64);
        sumi_path_join(file->path, bytes, path, s_names[i]);
        if (sumi_file_exists(files, file->path)) return SUMI_OK;
    }
    return sumi_fail(error, SUMI_FILE_NOT_FOUND, "%s: no such file, and no folder with %s or %s", path, s_names[0],
                     s_names[1]);
}

// Layers of text encoders cannot be compared with a model that has none.
static bool leaves_out_text(const sumi_adapter_file* file) { return !file->network->info.has_text_encoder; }

// Whether a tensor that is part of no change has the name of a weight of the model.
static bool is_whole_weight(const sumi_adapter_file* file, const char* name)
{
    const char* end = strrchr(name, '.');
    if (end == NULL || (strcmp(end, ".weight") != 0 && strcmp(end, ".bias") != 0)) return false;
    sumi_adapter_layer layer = {.module = name, .module_bytes = (size_t)(end - name)};
    layer.encoder = sumi_adapter_encoder(name, layer.module_bytes);
    return find_target(file->network, &layer, false) != NULL || find_target(file->network, &layer, true) != NULL;
}

// Whether the name is of the vision tower, which prompts with references run through and adapters do not change.
static bool is_of_vision_tower(const sumi_adapter_file* file, const char* name)
{
    return file->network->info.prompts_read_references
        && (strstr(name, "visual.") != NULL || strstr(name, "visual_") != NULL);
}

// What a file without a layer for this model is refused with.
static sumi_result check_matches(const sumi_adapter_file* file, sumi_error* error)
{
    const sumi_adapter_layers* layers = &file->layers;
    if (layers->unknown_count == 0 && layers->count > (leaves_out_text(file) ? layers->text_count : 0)) return SUMI_OK;
    if (layers->unknown_count == 0 && layers->text_count > 0) {
        return sumi_fail(error, SUMI_NOT_SUPPORTED,
                         "%s: all layers, %zu, are of the text encoder (%s), and the model was opened without it: open "
                         "it with its text encoder",
                         file->path, layers->text_count, layers->text_name);
    }
    char names[256] = "";
    size_t used = 0;
    for (size_t i = 0; i < layers->unknown_count && i < SUMI_ADAPTER_SHOWN_NAMES && used < sizeof names; i++) {
        if (is_of_vision_tower(file, layers->unknown_names[i])) {
            return sumi_fail(error, SUMI_NOT_SUPPORTED,
                             "%s: %s changes the vision tower, which is not supported; use an adapter without such "
                             "layers",
                             file->path, layers->unknown_names[i]);
        }
        if (is_whole_weight(file, layers->unknown_names[i])) {
            return sumi_fail(
                error, SUMI_NOT_SUPPORTED,
                "%s: %s would replace a weight of the model, which is not supported: adapters change "
                "weights; use a LoRA or a file of differences, and open a file with all weights as a model",
                file->path, layers->unknown_names[i]);
        }
        const int written =
            snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : " (", layers->unknown_names[i]);
        used += written > 0 ? (size_t)written : 0;
    }
    return sumi_fail(error, SUMI_LORA_NO_MATCH,
                     "%s: %zu layers of the adapter are not in this %s model%s%s; it is of another model or format",
                     file->path, layers->unknown_count, file->network->info.family, names,
                     layers->unknown_count == 0                         ? ""
                     : layers->unknown_count > SUMI_ADAPTER_SHOWN_NAMES ? " ...)"
                                                                        : ")");
}

static sumi_result begin_reading(sumi_adapter_file* file, const sumi_files* files, const char* requested_path,
                                 sumi_error* error)
{
    SUMI_TRY(find_file(file, files, requested_path, error));
    const char* path = file->path;
    SUMI_TRY(sumi_tensor_set_open(&file->set, path, error));
    SUMI_TRY(sumi_adapter_configs_read(file->configs, file->heap, files, &file->set, path, error));
    file->layers.heap = file->heap;
    return sumi_adapter_layers_read(&file->layers, path, &file->set, file->configs, error);
}

// The denoiser's weights are bound first, so its deltas are first in the order of weights.
static void split_deltas(sumi_adapter_file* file)
{
    const sumi_weight_list* list = &file->network->weights;
    int32_t text_begin = INT32_MAX;
    size_t count = 0;
    for (size_t i = 0; i < list->target_count; i++) {
        const sumi_adapter_target* target = &list->targets[i];
        if (target->encoder != 0 && target->weight_index < text_begin) text_begin = target->weight_index;
        SUMI_ASSERT(target->encoder != 0 || target->weight_index < text_begin);
    }
    while (count < file->delta_count && file->deltas[count].weight_index < text_begin) count++;
    file->adapter = (sumi_adapter){file->deltas, (int32_t)count};
    if (count < file->delta_count)
        file->text_adapter = (sumi_adapter){file->deltas + count, (int32_t)(file->delta_count - count)};
    file->is_done = true;
}

// What needs all layers.
static sumi_result finish_reading(sumi_adapter_file* file, sumi_error* error)
{
    SUMI_TRY(check_matches(file, error));
    if (file->layers.text_count > 0 && leaves_out_text(file)) {
        snprintf(file->notice, sizeof file->notice,
                 "%s: %zu layer%s of the text encoder left out (%s): the model was opened without it", file->path,
                 file->layers.text_count, file->layers.text_count == 1 ? "" : "s", file->layers.text_name);
    }
    SUMI_TRY(drop_all_fused(file, error));
    sumi_sort(file->deltas, file->delta_count, sizeof *file->deltas, compare_deltas);
    split_deltas(file);
    return SUMI_OK;
}

// What is needed only to read the file.
static void end_reading(sumi_adapter_file* file)
{
    sumi_adapter_configs_close(file->configs);
    sumi_adapter_layers_close(&file->layers);
    sumi_free(file->heap, file->applied);
    file->applied = NULL;
}

sumi_result sumi_adapter_open_begin(sumi_heap* heap, const sumi_files* files, const sumi_network* network,
                                    const char* path, sumi_error* error, sumi_adapter_file** out_file)
{
    SUMI_ASSERT(network->is_open);
    *out_file = NULL;
    sumi_adapter_file* file = sumi_alloc_zero(heap, sizeof *file);
    if (file == NULL) return sumi_out_of_memory(error, sizeof *file, "an adapter");
    file->heap = file->memory.heap = heap;
    file->network = network;
    sumi_tensor_set_init(&file->set, heap, files);
    sumi_result result = begin_reading(file, files, path, error);
    if (result != SUMI_OK) {
        sumi_adapter_close(file);
        return result;
    }
    *out_file = file;
    return SUMI_OK;
}

sumi_result sumi_adapter_open_step(sumi_adapter_file* file, uint32_t budget_us, bool* out_done, float* out_progress,
                                   sumi_error* error)
{
    const uint64_t begin = sumi_clock_ns();
    const size_t count = file->layers.count;
    SUMI_ASSERT(!file->is_done && file->layers_done <= count);
    *out_done = false;
    while (file->layers_done < count) {
        const sumi_adapter_layer* layer = &file->layers.layers[file->layers_done++];
        if (layer->encoder != 0 && leaves_out_text(file)) continue;
        SUMI_TRY(sumi_adapter_layer_check(layer, file->path, error));
        SUMI_TRY(apply_layer(file, layer, error));
        *out_progress = (float)file->layers_done / (float)count;
        if ((sumi_clock_ns() - begin) / 1000 >= budget_us) return SUMI_OK;
    }
    SUMI_TRY(finish_reading(file, error));
    end_reading(file);
    *out_progress = 1.0f;
    *out_done = true;
    return SUMI_OK;
}

void sumi_adapter_close(sumi_adapter_file* file)
{
    if (file != NULL) {
        end_reading(file);
        sumi_adapter_memory_close(&file->memory);
        sumi_free(file->heap, file->deltas);
        sumi_free(file->heap, file->path);
        sumi_tensor_set_close(&file->set);
        sumi_free(file->heap, file);
    }
}

const sumi_adapter* sumi_adapter_get(const sumi_adapter_file* file) { return &file->adapter; }
const sumi_adapter* sumi_adapter_get_text(const sumi_adapter_file* file) { return &file->text_adapter; }
const char* sumi_adapter_notice(const sumi_adapter_file* file) { return file->notice; }
