#include "inspection.h"
#include <stdio.h>
#include <string.h>

// ---- Totals ---------------------------------------------------------------------------------------------------------

static void add_tensor(tensor_totals* sum, const sumi_tensor* tensor)
{
    uint64_t values = 1;
    for (int32_t i = 0; i < tensor->rank; i++) values *= (uint64_t)tensor->shape[i];
    sum->count++;
    sum->values += values;
    sum->bytes += tensor->bytes;
    sum->type_counts[tensor->dtype]++;
    sum->type_bytes[tensor->dtype] += tensor->bytes;
}

tensor_totals inspection_set_totals(const sumi_tensor_set* set)
{
    tensor_totals sum = {0};
    for (size_t i = 0; i < set->count; i++) add_tensor(&sum, &set->tensors[i]);
    return sum;
}

tensor_totals inspection_part_totals(const sumi_component* part)
{
    tensor_totals sum = {0};
    for (size_t i = 0; i < part->set->count; i++) {
        if (sumi_component_tensor_name(part, &part->set->tensors[i])) add_tensor(&sum, &part->set->tensors[i]);
    }
    return sum;
}

// ---- Family, components, files ----------------------------------------------------------------------------------------

const char* inspection_family(const sumi_checkpoint* checkpoint)
{
    const sumi_component* transformer = &checkpoint->components[SUMI_COMPONENT_TRANSFORMER];
    return transformer->present ? sumi_component_network(transformer) : sumi_family_of_class(checkpoint->class_name);
}

// Finds the recipe as opening a model does: the first recipe for the transformer's network that claims the checkpoint.
// The recipe gives the variant and the sigma schedule of the files.
void inspection_find_recipe(inspection* in)
{
    const sumi_checkpoint* checkpoint = &in->checkpoint;
    const char* network = sumi_component_network(&checkpoint->components[SUMI_COMPONENT_TRANSFORMER]);
    const sumi_recipe* recipe;
    in->sigmas = sumi_scheduler_defaults();
    for (int32_t i = 0; (recipe = sumi_recipe_get(i)) != NULL && !in->recipe; i++) {
        if (strcmp(recipe->network, network) == 0 && (!recipe->is_this_family || recipe->is_this_family(checkpoint)))
            in->recipe = recipe;
    }
    sumi_error ignored = {0}; // inspection_read_schedule reports a broken schedule
    if (in->recipe) (void)in->recipe->describe(checkpoint, &in->sigmas, &in->variant, &ignored);
}

bool inspection_uses(const inspection* in, sumi_component_kind kind)
{
    if (kind == SUMI_COMPONENT_TEXT_ENCODER_2) return in->recipe && in->recipe->encoder_count > 1;
    return kind != SUMI_COMPONENT_VISION;
}

// Binds the tensors of a component with the code of its network module, which checks names, shapes and types as opening
// the model would.
static sumi_result bind_part(inspection* in, sumi_component_kind kind, sumi_error* error)
{
    const sumi_recipe* recipe = in->recipe;
    const sumi_component* part = &in->checkpoint.components[kind];
    const int32_t encoder = kind == SUMI_COMPONENT_TEXT_ENCODER_2;
    size_t bytes = kind == SUMI_COMPONENT_TRANSFORMER ? recipe->denoiser->model_bytes
                 : kind == SUMI_COMPONENT_VAE         ? recipe->autoencoder->model_bytes
                 : kind == SUMI_COMPONENT_VISION      ? (recipe->vision ? recipe->vision->model_bytes : 0)
                 : encoder < recipe->encoder_count    ? recipe->encoders[encoder].module->model_bytes
                                                      : 0;
    if (!bytes) return SUMI_OK; // the family does not use this component
    sumi_weight_list list;
    sumi_weight_list_init(&list, &in->heap);
    sumi_binder binder = {.list = &list, .component = part, .what = "it", .error = error};
    const sumi_module_config config = {part->config.data, (size_t)part->config.bytes,
                                       part->config.path ? part->config.path : part->path};
    const sumi_file* file = &in->checkpoint.processor;
    const sumi_module_config processor = {file->data, (size_t)file->bytes, file->path};
    const void* settings =
        in->variant && in->variant->denoiser_settings ? in->variant->denoiser_settings : recipe->denoiser_settings;
    void* model = sumi_alloc_zero(&in->heap, bytes);
    sumi_result result;
    if (!model) result = sumi_out_of_memory(error, bytes, "a model");
    else if (kind == SUMI_COMPONENT_TRANSFORMER) result = recipe->denoiser->bind(model, settings, &binder, &config);
    else if (kind == SUMI_COMPONENT_VAE)
        result = recipe->autoencoder->bind(model, recipe->autoencoder_settings, &binder, &config, false);
    else if (kind == SUMI_COMPONENT_VISION)
        result = recipe->vision->bind(model, recipe->vision_settings, &binder, &config, &processor);
    else result = recipe->encoders[encoder].module->bind(model, recipe->encoders[encoder].settings, &binder, &config);
    sumi_free(&in->heap, model);
    sumi_weight_list_close(&list);
    return result;
}

void inspection_check(inspection* in, sumi_component_kind kind, part_check* check)
{
    const sumi_component* part = &in->checkpoint.components[kind];
    sumi_error error = {0};
    check->missing.count = 0;
    check->state = PART_COMPLETE;
    if (sumi_component_is_refused(part, check->reason, sizeof check->reason)) {
        check->state = PART_NOT_USABLE;
    } else {
        const bool is_listed = expected_check(inspection_family(&in->checkpoint), part, kind, &check->missing);
        if (is_listed && check->missing.count > 0) {
            check->state = PART_INCOMPLETE;
        } else if (!is_listed && !in->recipe) {
            check->state = PART_UNKNOWN;
        } else if (in->recipe && bind_part(in, kind, &error) != SUMI_OK) {
            check->state = PART_NOT_USABLE;
            snprintf(check->reason, sizeof check->reason, "%s", error.text);
        }
    }
    in->has_faults |= check->state == PART_INCOMPLETE || check->state == PART_NOT_USABLE;
}

bool inspection_count_ids(inspection* in, int32_t encoder, size_t* ids, sumi_error* error)
{
    sumi_tokenizer* tokenizer = NULL;
    float progress;
    bool done = false;
    sumi_result result = sumi_tokenizer_open_begin(&in->heap, &in->checkpoint.tokenizers[encoder], error, &tokenizer);
    while (result == SUMI_OK && !done) result = sumi_tokenizer_step(tokenizer, SIZE_MAX, &done, &progress, error);
    *ids = result == SUMI_OK ? sumi_tokenizer_size(tokenizer) : 0;
    in->has_faults |= result != SUMI_OK;
    sumi_tokenizer_destroy(tokenizer);
    return result == SUMI_OK;
}

const char* inspection_tokenizer_form(const sumi_checkpoint_tokenizer* files)
{
    return files->form == SUMI_TOKENIZER_JSON       ? "all in one file"
         : files->form == SUMI_TOKENIZER_VOCABULARY ? "with merges.txt"
         : files->form == SUMI_TOKENIZER_GGUF       ? "in the file's metadata"
                                                    : "SentencePiece";
}

bool inspection_read_schedule(inspection* in, sumi_error* error)
{
    const sumi_file* file = &in->checkpoint.scheduler;
    const sumi_result result = in->recipe
                                 ? in->recipe->describe(&in->checkpoint, &in->sigmas, &in->variant, error)
                                 : sumi_scheduler_read(file->data, (size_t)file->bytes, file->path, &in->sigmas, error);
    in->has_faults |= result != SUMI_OK;
    return result == SUMI_OK;
}

// ---- Adapters -------------------------------------------------------------------------------------------------------

static const char* naming_of(const char* name)
{
    if (strncmp(name, "lora_", 5) == 0) return "kohya";
    if (strncmp(name, "lycoris_", 8) == 0) return "LyCORIS";
    if (strstr(name, ".lora_down")) return "kohya with dots";
    return strncmp(name, "diffusion_model.", 16) == 0 ? "ComfyUI" : "PEFT";
}

const char* inspection_kind_name(sumi_adapter_kind kind)
{
    static const char* const s_names[] = {"", "LoRA", "LoHa", "LoKr", "full differences"};
    return s_names[kind];
}

// Whether most tensors are parts of changes. A text encoder may have factors among its own weights.
static bool is_adapter(const sumi_tensor_set* set)
{
    size_t known = 0;
    for (size_t i = 0; i < set->count; i++) {
        const char* name = set->tensors[i].name;
        if (strstr(name, ".parametrizations.")) return false;
        known += sumi_adapter_read_name(name).part != SUMI_PART_UNKNOWN;
    }
    return known > 0 && 2 * known >= set->count;
}

static void count_rank(adapter_summary* adapter, long long rank)
{
    size_t index = 0;
    while (index < ADAPTER_MAX_RANKS - 1 && adapter->rank_counts[index] && adapter->ranks[index] != rank) index++;
    adapter->ranks[index] = rank;
    adapter->rank_counts[index]++;
}

static void count_layer(adapter_summary* adapter, const sumi_adapter_layer* layer)
{
    const sumi_tensor* diff = layer->parts[SUMI_PART_DIFF];
    const bool is_vector = layer->parts[SUMI_PART_NORM] || (diff && diff->rank < 2);
    adapter->norms += is_vector;
    adapter->biases += layer->parts[SUMI_PART_BIAS_DIFF] || layer->parts[SUMI_PART_UP_BIAS];
    if (layer->kind == SUMI_ADAPTER_NONE || is_vector) return;
    adapter->kinds[layer->kind]++;
    adapter->layers++;
    adapter->doras += layer->parts[SUMI_PART_MAGNITUDE] != NULL;
    if (layer->kind == SUMI_ADAPTER_LORA || layer->kind == SUMI_ADAPTER_LOHA) count_rank(adapter, layer->rank);
    if (layer->kind != SUMI_ADAPTER_LOKR) return;
    if (layer->parts[SUMI_PART_LOKR_1]) adapter->whole_factors++;
    else adapter->product_factors++;
}

bool inspection_read_adapter(inspection* in, const sumi_tensor_set* set, adapter_summary* adapter)
{
    size_t alphas = 0;
    sumi_error error = {0};
    sumi_adapter_config configs[SUMI_ADAPTER_CONFIGS] = {0};
    sumi_adapter_layers layers = {.heap = &in->heap};
    *adapter = (adapter_summary){0};
    if (!is_adapter(set)) return false;
    for (size_t i = 0; i < set->count; i++) {
        const sumi_adapter_part part = sumi_adapter_read_name(set->tensors[i].name).part;
        if (part == SUMI_PART_ALPHA) alphas++;
        else if (!adapter->first && part < SUMI_PART_COUNT) adapter->first = set->tensors[i].name;
    }
    if (!adapter->first) adapter->first = set->tensors[0].name;
    sumi_result result = sumi_adapter_configs_read(configs, &in->heap, NULL, set, in->path, &error);
    if (result == SUMI_OK) result = sumi_adapter_layers_read(&layers, in->path, set, configs, &error);
    for (size_t i = 0; i < layers.count; i++) {
        if (result == SUMI_OK) result = sumi_adapter_layer_check(&layers.layers[i], in->path, &error);
        count_layer(adapter, &layers.layers[i]);
    }
    adapter->text_layers = layers.text_count;
    in->has_text_layers = layers.text_count > 0;
    adapter->text_name = layers.text_name;
    adapter->unknown = layers.unknown_count;
    adapter->unknown_name = layers.unknown_names[0];
    adapter->naming = naming_of(adapter->first);
    adapter->alpha = alphas                ? "a tensor per layer"
                   : configs->file.heap    ? "adapter_config.json beside it"
                   : configs->text != NULL ? "in the file's metadata"
                   : configs->alpha >= 0   ? "lora_alpha in the file's metadata"
                                           : "none: the scale is 1";
    if (result != SUMI_OK) snprintf(adapter->fault, sizeof adapter->fault, "%s", error.text);
    else if (layers.unknown_count)
        snprintf(adapter->fault, sizeof adapter->fault, "%zu tensors are part of no change (%s)", layers.unknown_count,
                 layers.unknown_names[0]);
    in->has_faults |= adapter->fault[0] != 0;
    sumi_adapter_layers_close(&layers);
    sumi_adapter_configs_close(configs);
    return true;
}

void inspection_enter_adapter_folder(inspection* in)
{
    static const char* const s_names[] = {"adapter_model.safetensors", "pytorch_lora_weights.safetensors"};
    for (size_t i = 0; i < sizeof s_names / sizeof *s_names && !sumi_path_is_file(in->path); i++) {
        snprintf(in->file, sizeof in->file, "%s/%s", in->path, s_names[i]);
        if (sumi_path_is_file(in->file)) in->path = in->file;
    }
}
