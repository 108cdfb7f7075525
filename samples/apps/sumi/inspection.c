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
    if (part->signature && part->signature->refusal) {
        check->state = PART_NOT_USABLE;
        snprintf(check->reason, sizeof check->reason, "%s", part->signature->refusal);
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

static bool ends_with(const char* text, const char* ending, size_t* out_stem_bytes)
{
    size_t bytes = strlen(text), ending_bytes = strlen(ending);
    if (bytes < ending_bytes || strcmp(text + bytes - ending_bytes, ending) != 0) return false;
    *out_stem_bytes = bytes - ending_bytes;
    return true;
}

// Whether the name is that of the "down" matrix [rank, in] of an adapter's layer.
static bool is_down(const char* name, size_t* out_stem_bytes)
{
    return ends_with(name, ".lora_A.weight", out_stem_bytes)
        || ends_with(name, ".lora_A.default.weight", out_stem_bytes)
        || ends_with(name, ".lora_down.weight", out_stem_bytes);
}

static const char* naming_of(const char* name)
{
    if (strncmp(name, "lora_unet_", 10) == 0 || strncmp(name, "lora_te", 7) == 0) return "kohya";
    if (strstr(name, ".lora_down.")) return "kohya with dots";
    return strncmp(name, "diffusion_model.", 16) == 0 ? "ComfyUI" : "PEFT";
}

// LoKr: the first factor of a layer is stored as one matrix, or as the product of two.
static bool read_kronecker(const sumi_tensor_set* set, adapter_summary* adapter)
{
    size_t stem_bytes;
    for (size_t i = 0; i < set->count; i++) {
        const char* name = set->tensors[i].name;
        const bool is_whole = ends_with(name, ".lokr_w1", &stem_bytes),
                   is_product = ends_with(name, ".lokr_w1_a", &stem_bytes);
        if (!adapter->first && (is_whole || is_product)) adapter->first = name;
        adapter->whole_factors += is_whole;
        adapter->product_factors += is_product;
        adapter->norms += ends_with(name, ".w_norm", &stem_bytes);
    }
    adapter->is_kronecker = true;
    adapter->layers = adapter->whole_factors + adapter->product_factors;
    return adapter->first || adapter->norms > 0;
}

bool inspection_read_adapter(const sumi_tensor_set* set, adapter_summary* adapter)
{
    size_t alphas = 0, stem_bytes;
    *adapter = (adapter_summary){0};
    for (size_t i = 0; i < set->count; i++) {
        const sumi_tensor* tensor = &set->tensors[i];
        if (ends_with(tensor->name, ".alpha", &stem_bytes)) alphas++;
        if (!is_down(tensor->name, &stem_bytes) || tensor->rank < 1) continue;
        if (!adapter->first) adapter->first = tensor->name;
        adapter->layers++;
        const long long rank = (long long)tensor->shape[0];
        size_t index = 0;
        while (index < ADAPTER_MAX_RANKS - 1 && adapter->rank_counts[index] && adapter->ranks[index] != rank) index++;
        adapter->ranks[index] = rank;
        adapter->rank_counts[index]++;
    }
    if (adapter->layers == 0) return read_kronecker(set, adapter);
    adapter->naming = naming_of(adapter->first);
    adapter->alpha = alphas                                           ? "a tensor per layer"
                   : sumi_metadata_find(set, "lora_adapter_metadata") ? "in the file's metadata"
                                                                      : "none here: adapter_config.json beside it "
                                                                        "says, else the scale is 1";
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
