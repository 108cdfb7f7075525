#include "models/network.h"
#include "base/assert.h"
#include "base/platform.h"
#include "models/network_state.h"
#include "models/signatures.h"
#include <stdio.h>
#include <string.h>

#define ITEMS_PER_STEP 2000u // vocabulary and merge entries: about a millisecond of work
#define PIECES_PER_STEP 4u   // of a file that is read: limits by how much the last piece exceeds the time of the step
#define FILES_SHARE 0.2f     // share of opening the files in the progress

sumi_result sumi_network_open_begin(sumi_heap* heap, const sumi_files* files, const sumi_network_desc* desc,
                                    sumi_error* error, sumi_network** out_network)
{
    *out_network = NULL;
    sumi_network* network = sumi_alloc_zero(heap, sizeof *network);
    if (network == NULL) return sumi_out_of_memory(error, sizeof *network, "a model");
    network->heap = heap;
    sumi_file_cache_init(&network->cache, heap, files);
    network->without_text_encoder = desc->without_text_encoder;
    network->without_vae_encoder = desc->without_vae_encoder;
    snprintf(network->requested_variant, sizeof network->requested_variant, "%s",
             desc->variant != NULL ? desc->variant : "");
    sumi_weight_list_init(&network->weights, heap);
    sumi_checkpoint_desc checkpoint_desc = {
        .path = desc->path,
        .component_paths = {[SUMI_COMPONENT_TRANSFORMER] = desc->transformer_path,
                            [SUMI_COMPONENT_TEXT_ENCODER] = desc->text_encoder_path,
                            [SUMI_COMPONENT_TEXT_ENCODER_2] = desc->text_encoder_2_path,
                            [SUMI_COMPONENT_VISION] = desc->vision_path,
                            [SUMI_COMPONENT_VAE] = desc->vae_path},
        .tokenizer_paths = {desc->tokenizer_path, desc->tokenizer_2_path},
        .processor_path = desc->processor_path,
        .without_text_encoder = desc->without_text_encoder};
    checkpoint_desc.signatures = sumi_signatures(&checkpoint_desc.signature_count);
    checkpoint_desc.methods = sumi_foreign_methods(&checkpoint_desc.method_count);
    checkpoint_desc.class_words = sumi_class_words();
    for (int32_t kind = 0; kind < SUMI_COMPONENT_COUNT; kind++) {
        const bool is_text = kind != SUMI_COMPONENT_TRANSFORMER && kind != SUMI_COMPONENT_VAE;
        network->is_requested[kind] =
            checkpoint_desc.component_paths[kind] != NULL && !(is_text && desc->without_text_encoder);
    }
    network->text_encoder_2_option = desc->text_encoder_2_path != NULL ? "text_encoder_2_path"
                                   : desc->tokenizer_2_path != NULL    ? "tokenizer_2_path"
                                                                       : NULL;
    network->vision_option = desc->vision_path != NULL    ? "vision_path"
                           : desc->processor_path != NULL ? "processor_path"
                                                          : NULL;
    sumi_result result = sumi_checkpoint_begin(&network->checkpoint, heap, sumi_file_cache_files(&network->cache),
                                               &checkpoint_desc, error);
    if (result != SUMI_OK) {
        sumi_network_close(network);
        return result;
    }
    *out_network = network;
    return SUMI_OK;
}

// ---- Opening --------------------------------------------------------------------------------------------------------

static const sumi_component_kind s_encoder_components[] = {SUMI_COMPONENT_TEXT_ENCODER, SUMI_COMPONENT_TEXT_ENCODER_2};
_Static_assert(sizeof s_encoder_components / sizeof *s_encoder_components == SUMI_MAX_TEXT_ENCODERS
                   && SUMI_CHECKPOINT_ENCODERS == SUMI_MAX_TEXT_ENCODERS,
               "every text encoder has a component and a tokenizer");

static void add_name(char* list, size_t bytes, const char* name)
{
    const size_t used = strlen(list);
    snprintf(list + used, bytes - used, "%s%s", used > 0 ? ", " : "", name);
}

// Several families may share a transformer. If neither the files nor the caller say which one it is, and the family that
// it is taken for reads no images, writes a sentence about the variants of those that do; otherwise "".
static void write_edit_hint(sumi_network* network)
{
    const sumi_recipe *recipe = network->recipe, *other;
    const sumi_component* transformer = &network->checkpoint.components[SUMI_COMPONENT_TRANSFORMER];
    char names[256] = "", option[64];
    network->edit_hint[0] = '\0';
    if (recipe->references.max_count > 0 || network->requested_variant[0] != '\0'
        || network->checkpoint.class_name[0] != '\0')
        return;
    for (int32_t i = 0; (other = sumi_recipe_get(i)) != NULL; i++) {
        if (strcmp(other->network, recipe->network) != 0 || other->references.max_count == 0) continue;
        for (int32_t k = 0; k < other->variant_count; k++) {
            snprintf(option, sizeof option, "--variant %s", other->variants[k]->name);
            add_name(names, sizeof names, option);
        }
    }
    if (names[0] == '\0') return;
    snprintf(network->edit_hint, sizeof network->edit_hint,
             "variant: the file %s does not say which model it is and is taken for %s, which takes no reference "
             "images; if it is an edit model, name its variant: %s",
             transformer->path, recipe->family, names);
}

// Whether the file's name has the variant's name in it: "z_image_turbo_bf16.safetensors".
static bool names_variant(const char* path, const char* variant)
{
    const size_t bytes = strlen(variant);
    const char* name = path + strlen(path);
    while (name > path && name[-1] != '/' && name[-1] != '\\') name--;
    for (; strlen(name) >= bytes; name++) {
        size_t i = 0;
        while (i < bytes && (name[i] | 0x20) == variant[i]) i++; // the names of variants are small letters here
        if (i == bytes) return true;
    }
    return false;
}

// If nothing says which variant the transformer is, what it is taken for is worth a note.
static void write_variant_note(sumi_network* network)
{
    const sumi_checkpoint* checkpoint = &network->checkpoint;
    const char* path = checkpoint->components[SUMI_COMPONENT_TRANSFORMER].path;
    const bool is_told = network->requested_variant[0] != '\0' || checkpoint->scheduler.data != NULL
                      || network->recipe->variant_note == NULL || names_variant(path, network->variant->name);
    network->variant_note[0] = '\0';
    if (!is_told)
        snprintf(network->variant_note, sizeof network->variant_note, "%s: does not say which variant of %s it is; %s",
                 path, network->recipe->family, network->recipe->variant_note);
    network->info.variant_note = network->variant_note;
    network->info.edit_hint = network->edit_hint;
}

// Refuses paths of components that the family does not use.
static sumi_result check_use(const sumi_network* network, sumi_error* error)
{
    const sumi_recipe* recipe = network->recipe;
    if (network->vision_option != NULL && recipe->vision == NULL && network->edit_hint[0] != '\0')
        return sumi_fail(error, SUMI_NOT_SUPPORTED, "%s", network->edit_hint);
    if (network->text_encoder_2_option != NULL && recipe->encoder_count < 2) {
        return sumi_fail(error, SUMI_NOT_SUPPORTED, "%s: %s has one text encoder; leave it NULL",
                         network->text_encoder_2_option, recipe->family);
    }
    if (network->vision_option != NULL && recipe->vision == NULL) {
        return sumi_fail(error, SUMI_NOT_SUPPORTED, "%s: %s takes no images in its prompts; leave it NULL",
                         network->vision_option, recipe->family);
    }
    return SUMI_OK;
}

// The variant of that name. NULL for "" and for a name of another family.
static const sumi_variant* find_variant(const sumi_recipe* recipe, const char* name)
{
    const sumi_variant* variant = NULL;
    for (int32_t i = 0; i < recipe->variant_count && variant == NULL; i++)
        variant = strcmp(recipe->variants[i]->name, name) == 0 ? recipe->variants[i] : NULL;
    return variant;
}

// Chooses the recipe for a transformer: the one that has the requested variant, otherwise the first that claims the
// checkpoint. NULL: there is none.
static sumi_result choose_recipe(sumi_network* network, const char* transformer, sumi_error* error)
{
    char variants[160] = "";
    const bool is_requested = network->requested_variant[0] != 0;
    const sumi_recipe* recipe;
    for (int32_t i = 0; (recipe = sumi_recipe_get(i)) != NULL && network->recipe == NULL; i++) {
        if (strcmp(transformer, recipe->network) != 0) continue;
        const sumi_variant* variant = find_variant(recipe, network->requested_variant);
        if (is_requested ? variant != NULL
                         : recipe->is_this_family == NULL || recipe->is_this_family(&network->checkpoint)) {
            network->recipe = recipe;
            network->variant = variant;
        }
        for (int32_t k = 0; k < recipe->variant_count; k++)
            add_name(variants, sizeof variants, recipe->variants[k]->name);
    }
    if (is_requested && network->recipe == NULL && variants[0] != 0) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "variant is \"%s\", but this transformer can only be one of these: %s",
                         network->requested_variant, variants);
    }
    return SUMI_OK;
}

// Refuses a model's folder in which the weights of a component that the family uses were left out.
static sumi_result check_absent(const sumi_network* network, sumi_error* error)
{
    SUMI_TRY(sumi_checkpoint_check_absent(&network->checkpoint, SUMI_COMPONENT_TEXT_ENCODER, error));
    if (network->recipe->encoder_count > 1)
        SUMI_TRY(sumi_checkpoint_check_absent(&network->checkpoint, SUMI_COMPONENT_TEXT_ENCODER_2, error));
    return sumi_checkpoint_check_absent(&network->checkpoint, SUMI_COMPONENT_VAE, error);
}

// Finds the recipe by the tensors, once all files are open.
static sumi_result recognise(sumi_network* network, sumi_error* error)
{
    const sumi_checkpoint* checkpoint = &network->checkpoint;
    const sumi_component* transformer = &checkpoint->components[SUMI_COMPONENT_TRANSFORMER];
    SUMI_TRY(sumi_checkpoint_check_absent(checkpoint, SUMI_COMPONENT_TRANSFORMER, error));
    SUMI_TRY(sumi_signatures_check(checkpoint, error));
    if (transformer->present) SUMI_TRY(choose_recipe(network, sumi_component_network(transformer), error));
    const sumi_recipe* recipe = network->recipe;
    if (recipe != NULL) {
        write_edit_hint(network);
        SUMI_TRY(check_use(network, error));
        SUMI_TRY(check_absent(network, error));
    }
    for (int32_t kind = SUMI_COMPONENT_TRANSFORMER + 1; kind < SUMI_COMPONENT_COUNT; kind++) {
        const sumi_component* component = &checkpoint->components[kind];
        if (network->is_requested[kind] && !component->present) {
            return sumi_fail(error, SUMI_MODEL_UNKNOWN, "%s holds no %s that this library knows",
                             component->path != NULL ? component->path : "the given path",
                             sumi_component_kind_name((sumi_component_kind)kind));
        }
    }
    if (recipe != NULL) return SUMI_OK;
    char names[160] = "";
    for (int32_t i = 0; (recipe = sumi_recipe_get(i)) != NULL; i++) add_name(names, sizeof names, recipe->family);
    const char* path = transformer->path != NULL ? transformer->path : checkpoint->path;
    const char* guess =
        transformer->present ? sumi_component_network(transformer) : sumi_family_of_class(checkpoint->class_name);
    if (transformer->present && sumi_recipe_is_left_out(guess)) {
        return sumi_fail(error, SUMI_NOT_SUPPORTED,
                         "%s is a model of the family %s, which this program was built without (it has %s): use a "
                         "model of these, or build sumi with the family (docs/building.md, \"What can be left out\")",
                         path != NULL ? path : "the given path", guess, names);
    }
    return sumi_fail(error, SUMI_MODEL_UNKNOWN,
                     "%s holds no transformer of a family that this library runs (%s)%s%s; give the model's "
                     "folder or its transformer file",
                     path != NULL ? path : "the given path", names, guess[0] != 0 ? "; it looks like " : "", guess);
}

// Allocates a module's model and returns the arguments that its bind function takes from the component with its
// tensors.
static sumi_result begin_component(sumi_network* network, sumi_component_kind kind, size_t model_bytes,
                                   void** out_model, sumi_binder* out_binder, sumi_module_config* out_config,
                                   sumi_error* error)
{
    static const char* const s_names[SUMI_COMPONENT_COUNT] = {[SUMI_COMPONENT_TRANSFORMER] = "the transformer",
                                                              [SUMI_COMPONENT_TEXT_ENCODER] = "the text encoder",
                                                              [SUMI_COMPONENT_TEXT_ENCODER_2] =
                                                                  "the second text encoder",
                                                              [SUMI_COMPONENT_VISION] = "the vision tower",
                                                              [SUMI_COMPONENT_VAE] = "the VAE"};
    SUMI_ASSERT(*out_model == NULL && network->checkpoint.components[kind].present);
    const sumi_component* component = &network->checkpoint.components[kind];
    *out_model = sumi_alloc_zero(network->heap, model_bytes);
    if (*out_model == NULL) return sumi_out_of_memory(error, model_bytes, "a model");
    int32_t encoder = 0;
    for (int32_t e = 0; e < SUMI_MAX_TEXT_ENCODERS; e++) encoder = s_encoder_components[e] == kind ? e + 1 : encoder;
    *out_binder = (sumi_binder){.list = &network->weights,
                                .component = component,
                                .what = s_names[kind],
                                .adaptable = kind == SUMI_COMPONENT_TRANSFORMER || encoder > 0,
                                .encoder = encoder,
                                .error = error};
    *out_config =
        (sumi_module_config){.data = component->config.data,
                             .bytes = (size_t)component->config.bytes,
                             .path = component->config.path != NULL ? component->config.path : component->path};
    return SUMI_OK;
}

#define MAX_GUIDANCE 1000.0 // as for sumi_image_desc.guidance

// Replaces the family's numbers with those of the checkpoint's author (model_index.json): the steps in
// SUMI_PRESET_MODEL, the guidance in every preset that has the family's usual one, but not in FAST, which is for
// adapters. A number that cannot be used is left out with a warning, so that it makes no model unusable.
static void use_author_values(sumi_network* network)
{
    const sumi_author_values* author = &network->checkpoint.author;
    sumi_preset_values* presets = network->presets;
    const float usual = presets[SUMI_PRESET_MODEL].guidance, off = network->recipe->guidance_off;
    const int32_t only_steps = sumi_sigma_rule_steps(&network->info.sigmas),
                  least_steps = only_steps > 0 ? only_steps : 1,
                  most_steps = only_steps > 0 ? only_steps : SUMI_SCHEDULE_MAX_STEPS;
    const bool are_steps_good = author->steps >= (double)least_steps && author->steps <= (double)most_steps
                             && author->steps == (double)(int32_t)author->steps,
               is_guidance_good = author->guidance >= (double)off && author->guidance <= MAX_GUIDANCE;
    if (author->has_steps && are_steps_good) presets[SUMI_PRESET_MODEL].step_count = (int32_t)author->steps;
    for (int32_t i = 0; i < SUMI_PRESET_COUNT && author->has_guidance && is_guidance_good; i++) {
        if (i != SUMI_PRESET_FAST && presets[i].guidance == usual) presets[i].guidance = (float)author->guidance;
    }
    char* fault = network->preset_fault;
    const size_t capacity = sizeof network->preset_fault;
    const char* folder = network->checkpoint.path;
    fault[0] = '\0';
    if (author->is_no_object) {
        snprintf(fault, capacity, "%s/model_index.json: \"sumi\" is not used: it is not an object", folder);
    } else if (author->has_steps && !are_steps_good) {
        snprintf(fault, capacity, "%s/model_index.json: the \"steps\" of \"sumi\" are not used: give %d to %d", folder,
                 (int)least_steps, (int)most_steps);
    } else if (author->has_guidance && !is_guidance_good) {
        snprintf(fault, capacity, "%s/model_index.json: the \"guidance\" of \"sumi\" is not used: give %g (off) to %g",
                 folder, (double)off, MAX_GUIDANCE);
    }
    network->info.preset_fault = fault;
}

// Scales presets and sizes, in pixels, for this checkpoint, which may be made for another side than the released ones.
static void scale_presets(sumi_network* network)
{
    const sumi_variant* variant = network->variant;
    SUMI_ASSERT(variant->size_count >= 0 && variant->size_count <= SUMI_MAX_SIZES);
    sumi_network_info* info = &network->info;
    const sumi_size_scale scale = {variant->sample_size, info->sample_size, info->size_multiple, info->max_side};
    sumi_presets_scaled(variant->presets, &scale, network->presets);
    for (int32_t i = 0; i < variant->size_count; i++) network->sizes[i] = sumi_size_scaled(variant->sizes[i], &scale);
    const int32_t only_steps = sumi_sigma_rule_steps(&info->sigmas);
    for (int32_t i = 0; i < SUMI_PRESET_COUNT && only_steps > 0; i++) network->presets[i].step_count = only_steps;
    use_author_values(network);
    info->presets = network->presets;
    info->sizes = network->sizes;
    info->size_count = variant->size_count;
}

// What follows from the size of the denoiser's latents, which the autoencoder gives: pixels per latent along a side, and
// the packing.
static void set_latents(sumi_network* network, int32_t factor, int32_t packing)
{
    sumi_network_info* info = &network->info;
    SUMI_ASSERT(factor >= 1 && packing >= 1 && 4 % packing == 0);
    info->vae_factor = factor;
    info->packing = packing;
    const int32_t token_side = info->patch_size * factor, multiple = network->recipe->size_multiple;
    info->size_multiple = multiple > token_side && multiple % token_side == 0 ? multiple : token_side;
    const int32_t tile_multiple = 4 / packing;
    info->tile_latent = info->sample_size / factor / tile_multiple * tile_multiple;
    const sumi_preview_factors* preview = network->recipe->preview();
    const bool is_known = preview->channel_count * packing * packing == info->latent_channels
                       && factor % (packing * SUMI_PREVIEW_FACTOR) == 0;
    info->preview = is_known ? preview : NULL;
    info->preview_scale = is_known ? factor / (packing * SUMI_PREVIEW_FACTOR) : 1;
}

static sumi_result open_denoiser(sumi_network* network, sumi_error* error)
{
    const sumi_recipe* recipe = network->recipe;
    sumi_sigma_rule sigmas;
    SUMI_TRY(recipe->describe(&network->checkpoint, &sigmas, &network->variant, error));
    const sumi_variant* variant = network->variant;
    sumi_binder binder;
    sumi_module_config config;
    SUMI_TRY(begin_component(network, SUMI_COMPONENT_TRANSFORMER, recipe->denoiser->model_bytes, &network->denoiser,
                             &binder, &config, error));
    const void* settings = variant->denoiser_settings != NULL ? variant->denoiser_settings : recipe->denoiser_settings;
    SUMI_TRY(recipe->denoiser->bind(network->denoiser, settings, &binder, &config));
    const sumi_denoiser_properties properties = recipe->denoiser->properties(network->denoiser);
    sumi_network_info* info = &network->info;
    *info =
        (sumi_network_info){.family = recipe->family,
                            .variant = variant->name,
                            .sigmas = sigmas,
                            .sample_size = variant->sample_size,
                            .latent_channels = properties.channels,
                            .max_side = recipe->max_side,
                            .text_encoder_count = recipe->encoder_count,
                            .patch_size = properties.patch,
                            .guidance_formula = recipe->guidance_formula,
                            .guidance_off = recipe->guidance_off,
                            .ignores_guidance = recipe->may_ignore_guidance
                                             && variant->presets[SUMI_PRESET_MODEL].guidance == recipe->guidance_off,
                            .guidance_rule = recipe->guidance_rule,
                            .start = recipe->start};
    SUMI_ASSERT(!info->start.is_reference || recipe->references.max_count > 0);
    memcpy(info->feature_width, properties.feature_width, sizeof info->feature_width);
    memcpy(info->is_pooled, properties.reads_pooled, sizeof info->is_pooled);
    for (int32_t e = 0; e < recipe->encoder_count; e++) {
        const sumi_prompt_template* prompt = &recipe->encoders[e].prompt;
        if (prompt->max_tokens > info->max_prompt_tokens) info->max_prompt_tokens = prompt->max_tokens;
        network->encoders[e].dropped_rows = prompt->dropped_feature_rows;
        info->min_prompt_tokens[e] = prompt->dropped_feature_rows + 1;
    }
    if (properties.takes_references) {
        SUMI_ASSERT(recipe->references.min_count <= recipe->references.max_count
                    && recipe->references.max_count <= SUMI_MAX_REFERENCES);
        info->min_references = recipe->references.min_count;
        info->max_references = recipe->references.max_count;
        info->reference_seed = recipe->reference_seed;
        info->size_follows_last_reference = recipe->references.size_follows_last;
    }
    info->prompts_read_references = recipe->encoders[0].prompt.picture != NULL;
    info->prompts_place_references = properties.takes_references && properties.places_references;
    // a start image that is a reference has no rows in prompts
    SUMI_ASSERT(!info->prompts_place_references || (info->prompts_read_references && !info->start.is_reference));
    info->picture_channels = recipe->picture_channels > 0 ? recipe->picture_channels : 3;
    // until the autoencoder gives its own
    set_latents(network, recipe->latent_factor > 0 ? recipe->latent_factor : 8,
                recipe->latent_packing > 0 ? recipe->latent_packing : 1);
    scale_presets(network);
    write_variant_note(network);
    return SUMI_OK;
}

#define SMALLEST_TILE 16 // latents of the autoencoder; most of a smaller tile would be overlap

int32_t sumi_network_smaller_tile(const sumi_network_info* info, int32_t tile)
{
    // in latents of the autoencoder
    const int32_t largest = info->tile_latent > 0 ? info->tile_latent * info->packing : 128,
                  next = tile == 0 ? largest : tile * info->packing / 2 / 8 * 8;
    return next >= SMALLEST_TILE ? next / info->packing : 0;
}

static sumi_result open_autoencoder(sumi_network* network, sumi_error* error)
{
    const sumi_recipe* recipe = network->recipe;
    const sumi_component* component = &network->checkpoint.components[SUMI_COMPONENT_VAE];
    if (!component->present) return SUMI_OK;
    sumi_binder binder;
    sumi_module_config config;
    SUMI_TRY(begin_component(network, SUMI_COMPONENT_VAE, recipe->autoencoder->model_bytes, &network->autoencoder,
                             &binder, &config, error));
    SUMI_TRY(recipe->autoencoder->bind(network->autoencoder, recipe->autoencoder_settings, &binder, &config,
                                       network->without_vae_encoder));
    const sumi_autoencoder_properties properties = recipe->autoencoder->properties(network->autoencoder);
    sumi_network_info* info = &network->info;
    if (properties.channels != info->latent_channels) {
        return sumi_fail(error, SUMI_TENSOR_MISMATCH,
                         "%s: the VAE's latents have %d channels, the transformer's %d; they do not belong together",
                         component->path, (int)properties.channels, (int)info->latent_channels);
    }
    // otherwise the config gives nothing useful
    if (properties.sample_size >= 4 * info->patch_size * properties.factor && properties.sample_size <= info->max_side)
        info->sample_size = properties.sample_size;
    set_latents(network, properties.factor, properties.packing);
    SUMI_ASSERT(properties.picture_channels == info->picture_channels); // the recipe's value
    scale_presets(network);
    info->has_vae_decoder = properties.has_decoder;
    info->has_vae_encoder = properties.has_encoder;
    info->has_long_strips = properties.has_long_strips;
    return SUMI_OK;
}

static sumi_result open_vision(sumi_network* network, sumi_error* error)
{
    const sumi_recipe* recipe = network->recipe;
    const sumi_component* component = &network->checkpoint.components[SUMI_COMPONENT_VISION];
    const sumi_file* processor = &network->checkpoint.processor;
    if (recipe->vision == NULL || network->without_text_encoder || !component->present) return SUMI_OK;
    SUMI_ASSERT(recipe->vision_network != NULL);
    const char* tower = sumi_component_network(component);
    if (tower[0] != '\0' && strcmp(tower, recipe->vision_network) != 0) {
        return sumi_fail(error, SUMI_TENSOR_MISMATCH,
                         "%s: this is the vision tower %s; %s needs %s: take the one that was released with the model",
                         component->path, tower, recipe->family, recipe->vision_network);
    }
    sumi_binder binder;
    sumi_module_config config;
    SUMI_TRY(begin_component(network, SUMI_COMPONENT_VISION, recipe->vision->model_bytes, &network->vision, &binder,
                             &config, error));
    const sumi_module_config processing = {
        .data = processor->data, .bytes = (size_t)processor->bytes, .path = processor->path};
    SUMI_TRY(recipe->vision->bind(network->vision, recipe->vision_settings, &binder, &config, &processing));
    network->info.has_vision = true;
    return SUMI_OK;
}

// Checks that the transformer reads the width of the encoder's features, and that the encoder reads the vision tower's
// width.
static sumi_result check_widths(const sumi_network* network, int32_t e, const sumi_component* component,
                                sumi_error* error)
{
    const sumi_recipe* recipe = network->recipe;
    const sumi_text_encoder_properties properties = recipe->encoders[e].module->properties(network->encoders[e].model);
    if (properties.width != network->info.feature_width[e]) {
        return sumi_fail(error, SUMI_TENSOR_MISMATCH,
                         "%s: the %stext encoder makes features of %d values, the transformer reads %d; they do not "
                         "belong together: take "
                         "the one that was released with the model",
                         component->path, e == 0 ? "" : "second ", (int)properties.width,
                         (int)network->info.feature_width[e]);
    }
    SUMI_ASSERT(properties.pools == network->info.is_pooled[e]); // the recipe's value
    if (network->vision != NULL && properties.takes_pictures
        && recipe->vision->properties(network->vision).width != properties.row_width) {
        return sumi_fail(
            error, SUMI_TENSOR_MISMATCH,
            "%s: the text encoder takes rows of %d values, the vision tower makes %d; they do not belong together",
            component->path, (int)properties.row_width, (int)recipe->vision->properties(network->vision).width);
    }
    if (network->vision != NULL && properties.takes_pictures
        && recipe->vision->properties(network->vision).deep_count > properties.layer_count) {
        return sumi_fail(
            error, SUMI_TENSOR_MISMATCH,
            "%s: the vision tower adds rows after %d layers of the text encoder, which has %d; they do not "
            "belong together",
            component->path, (int)recipe->vision->properties(network->vision).deep_count, (int)properties.layer_count);
    }
    return SUMI_OK;
}

// If a model has several text encoders and only some are given, no prompt can be encoded; this is refused as a mistake.
static sumi_result check_encoders(const sumi_network* network, sumi_error* error)
{
    const sumi_recipe* recipe = network->recipe;
    const sumi_component *missing = NULL, *present = NULL;
    for (int32_t e = 0; e < recipe->encoder_count; e++) {
        const sumi_component* component = &network->checkpoint.components[s_encoder_components[e]];
        if (component->present) {
            present = component;
        } else {
            missing = component;
        }
    }
    if (network->without_text_encoder || missing == NULL || present == NULL) return SUMI_OK;
    const bool is_first = missing == &network->checkpoint.components[s_encoder_components[0]];
    return sumi_fail(error, SUMI_FILE_NOT_FOUND,
                     "%s%s%s needs its %s text encoder beside the one in %s; give text_encoder%s_path, or open the "
                     "model without text encoders",
                     missing->path != NULL ? missing->path : "", missing->path != NULL ? ": not found; " : "",
                     recipe->family, is_first ? "first" : "second", present->path, is_first ? "" : "_2");
}

// Refuses files of another family's encoder by name, because otherwise the message would be about some missing tensor.
static sumi_result check_encoder_network(const sumi_network* network, int32_t e, const sumi_component* component,
                                         sumi_error* error)
{
    const sumi_recipe* recipe = network->recipe;
    const char *network_name = sumi_component_network(component), *required_name = recipe->encoders[e].network;
    const sumi_recipe* candidate;
    for (int32_t i = 0; (candidate = sumi_recipe_get(i)) != NULL && strcmp(network_name, required_name) != 0; i++) {
        for (int32_t k = 0; k < candidate->encoder_count; k++) {
            if (strcmp(network_name, candidate->encoders[k].network) != 0) continue;
            return sumi_fail(
                error, SUMI_TENSOR_MISMATCH,
                "%s: this is the text encoder %s, which %s has; %s needs %s: take the one that was released "
                "with the model",
                component->path, network_name, candidate->family, recipe->family, required_name);
        }
    }
    return SUMI_OK;
}

static sumi_result open_text_encoder(sumi_network* network, int32_t e, sumi_error* error)
{
    const sumi_recipe_encoder* encoder = &network->recipe->encoders[e];
    const sumi_component* component = &network->checkpoint.components[s_encoder_components[e]];
    if (e == 0) SUMI_TRY(check_encoders(network, error));
    if (network->without_text_encoder || !component->present) return SUMI_OK;
    SUMI_TRY(check_encoder_network(network, e, component, error));
    const sumi_checkpoint_tokenizer* tokenizer = &network->checkpoint.tokenizers[e];
    if (tokenizer->form == SUMI_TOKENIZER_ABSENT)
        return sumi_checkpoint_tokenizer_missing(tokenizer, e, component->path, error);
    sumi_binder binder;
    sumi_module_config config;
    SUMI_TRY(begin_component(network, s_encoder_components[e], encoder->module->model_bytes,
                             &network->encoders[e].model, &binder, &config, error));
    SUMI_TRY(encoder->module->bind(network->encoders[e].model, encoder->settings, &binder, &config));
    SUMI_TRY(check_widths(network, e, component, error));
    SUMI_ASSERT(encoder->prompt.padded_tokens == 0
                || (encoder->prompt.padded_tokens <= encoder->prompt.max_tokens
                    && encoder->module->properties(network->encoders[e].model).takes_padding));
    return sumi_tokenizer_open_begin(network->heap, tokenizer, error, &network->encoders[e].tokenizer);
}

// The tokens of a template, such as <|im_start|>, have to be tokens of the tokenizer. Without them their letters would be
// read as text: a vocab.json does not have them, so they are missing where the files beside it are.
static sumi_result check_template(const sumi_tokenizer* tokenizer, const char* text, const char* path,
                                  sumi_error* error)
{
    for (const char* token = text != NULL ? strstr(text, "<|") : NULL; token != NULL; token = strstr(token + 2, "<|")) {
        const char* end = strstr(token, "|>");
        if (end == NULL) break;
        const size_t bytes = (size_t)(end + 2 - token);
        int32_t id;
        size_t count;
        SUMI_TRY(sumi_tokenizer_encode(tokenizer, token, bytes, false, &id, 1, &count, error));
        if (count != 1) {
            return sumi_fail(
                error, SUMI_FILE_MALFORMED,
                "%s: this tokenizer does not have the token %.*s of the text encoder's template, and would "
                "read it as %zu others; a whole tokenizer is tokenizer.json, or vocab.json and merges.txt "
                "with tokenizer_config.json or added_tokens.json beside them",
                path, (int)bytes, token, count);
        }
    }
    return SUMI_OK;
}

static sumi_result step_tokenizer(sumi_network* network, int32_t e, bool* out_done, float* out_progress,
                                  sumi_error* error)
{
    sumi_network_encoder* encoder = &network->encoders[e];
    *out_done = true;
    if (encoder->tokenizer == NULL) return SUMI_OK;
    SUMI_TRY(sumi_tokenizer_step(encoder->tokenizer, ITEMS_PER_STEP, out_done, out_progress, error));
    const sumi_recipe_encoder* recipe = &network->recipe->encoders[e];
    const int32_t vocabulary = recipe->module->properties(encoder->model).vocabulary;
    if (*out_done && sumi_tokenizer_size(encoder->tokenizer) > (size_t)vocabulary) {
        return sumi_fail(error, SUMI_TENSOR_MISMATCH,
                         "%s has %zu ids, the text encoder in %s %d embeddings; they do not belong together: "
                         "take the one that was released with it",
                         network->checkpoint.tokenizers[e].path, sumi_tokenizer_size(encoder->tokenizer),
                         network->checkpoint.components[s_encoder_components[e]].path, (int)vocabulary);
    }
    if (*out_done && recipe->token != NULL
        && sumi_tokenizer_id(encoder->tokenizer, recipe->token) != recipe->token_id) {
        return sumi_fail(error, SUMI_TENSOR_MISMATCH,
                         "%s is not the tokenizer of the text encoder in %s, in which %s has the id %d; they do not "
                         "belong together: take the one that was released with it",
                         network->checkpoint.tokenizers[e].path,
                         network->checkpoint.components[s_encoder_components[e]].path, recipe->token,
                         (int)recipe->token_id);
    }
    const char* const texts[] = {recipe->prompt.before, recipe->prompt.picture, recipe->prompt.later_picture,
                                 recipe->prompt.after};
    for (size_t i = 0; i < sizeof texts / sizeof *texts && *out_done; i++)
        SUMI_TRY(check_template(encoder->tokenizer, texts[i], network->checkpoint.tokenizers[e].path, error));
    if (*out_done && recipe->prompt.dropped_text != NULL) {
        const char* text = recipe->prompt.dropped_text;
        size_t count;
        SUMI_ASSERT(strncmp(recipe->prompt.before, text, strlen(text)) == 0);
        SUMI_TRY(sumi_tokenizer_encode(encoder->tokenizer, text, strlen(text), false, NULL, 0, &count, error));
        encoder->dropped_rows = (int32_t)count;
        network->info.min_prompt_tokens[e] = encoder->dropped_rows + 1;
    }
    if (*out_done && recipe->prompt.padded_tokens > 0) {
        encoder->pad_id = sumi_tokenizer_id(encoder->tokenizer, recipe->prompt.pad_token);
        if (encoder->pad_id < 0) {
            return sumi_fail(error, SUMI_FILE_MALFORMED,
                             "%s: this tokenizer does not have the token %s, with which texts are filled up to %d "
                             "tokens; take the tokenizer that was released with the model",
                             network->checkpoint.tokenizers[e].path, recipe->prompt.pad_token,
                             (int)recipe->prompt.padded_tokens);
        }
    }
    return SUMI_OK;
}

// The denoiser's weights are bound first.
static void count_denoiser(sumi_network* network)
{
    const sumi_weight_list* list = &network->weights;
    network->info.denoiser_bytes = list->weight_bytes;
    for (size_t i = 0; i < list->count; i++)
        network->info.denoiser_values += (uint64_t)list->weights[i]->rows * (uint64_t)list->weights[i]->cols;
}

#define MODULE_STAGES 3 // of the opening: denoiser, autoencoder, vision tower; then two stages for each text encoder

// Does the next piece of opening the modules. progress covers all modules.
static sumi_result open_modules(sumi_network* network, bool* out_done, float* out_progress, sumi_error* error)
{
    const int32_t stage = network->stage, e = (stage - MODULE_STAGES) / 2, count = network->recipe->encoder_count;
    bool stage_done = true;
    float tokens = 0.0f;
    switch (stage) {
    case 0:
        SUMI_TRY(open_denoiser(network, error));
        count_denoiser(network);
        break;
    case 1: SUMI_TRY(open_autoencoder(network, error)); break;
    case 2: SUMI_TRY(open_vision(network, error)); break;
    default:
        if (e < count && (stage - MODULE_STAGES) % 2 == 0) {
            SUMI_TRY(open_text_encoder(network, e, error));
        } else if (e < count) {
            SUMI_TRY(step_tokenizer(network, e, &stage_done, &tokens, error));
        }
    }
    // modules take little of the time, tokenizers most of it
    const float share = (stage - MODULE_STAGES) % 2 != 0 ? (stage_done ? 1.0f : tokens) : 0.0f;
    *out_progress = stage < MODULE_STAGES || count == 0
                      ? 0.1f * (float)(stage < MODULE_STAGES ? stage + 1 : MODULE_STAGES)
                      : 0.3f + 0.7f * ((float)e + share) / (float)count;
    network->stage += stage_done;
    *out_done = network->stage >= MODULE_STAGES + 2 * count;
    return SUMI_OK;
}

// Prompts can be encoded if every encoder is open.
static void finish_opening(sumi_network* network)
{
    const sumi_recipe* recipe = network->recipe;
    network->info.has_text_encoder = recipe->encoder_count > 0;
    for (int32_t e = 0; e < recipe->encoder_count; e++)
        network->info.has_text_encoder = network->info.has_text_encoder && network->encoders[e].tokenizer != NULL;
    network->info.weight_bytes = network->weights.weight_bytes;
    sumi_file_cache_trim(&network->cache);
    network->is_open = true;
}

// Does a step of opening the checkpoint, or reads a piece of the file that it waits for.
static sumi_result open_files(sumi_network* network, uint32_t budget_us, float* out_progress, sumi_error* error)
{
    bool done = false;
    if (sumi_file_cache_is_reading(&network->cache)) {
        SUMI_TRY(sumi_file_cache_read(&network->cache, budget_us, error));
    } else {
        const sumi_result result = sumi_checkpoint_step(&network->checkpoint, &done, error);
        if (result != SUMI_TIMEOUT) SUMI_TRY(result);
    }
    *out_progress =
        FILES_SHARE * sumi_checkpoint_progress(&network->checkpoint, sumi_file_cache_progress(&network->cache));
    return done ? recognise(network, error) : SUMI_OK;
}

static sumi_result open_piece(sumi_network* network, uint32_t budget_us, bool* out_done, float* out_progress,
                              sumi_error* error)
{
    if (network->recipe == NULL) return open_files(network, budget_us, out_progress, error);
    float progress = 0.0f;
    SUMI_TRY(open_modules(network, out_done, &progress, error));
    *out_progress = FILES_SHARE + (1.0f - FILES_SHARE) * progress;
    return SUMI_OK;
}

sumi_result sumi_network_open_step(sumi_network* network, uint32_t budget_us, bool* out_done, float* out_progress,
                                   sumi_error* error)
{
    uint64_t begin = sumi_clock_ns();
    *out_done = network->is_open;
    *out_progress = network->is_open ? 1.0f : 0.0f;
    while (!*out_done) {
        SUMI_TRY(open_piece(network, budget_us / PIECES_PER_STEP, out_done, out_progress, error));
        if ((sumi_clock_ns() - begin) / 1000 >= budget_us) break;
    }
    if (*out_done) {
        if (!network->is_open) finish_opening(network);
        *out_progress = 1.0f;
    }
    return SUMI_OK;
}

void sumi_network_close(sumi_network* network)
{
    if (network == NULL) return;
    for (int32_t e = 0; e < SUMI_MAX_TEXT_ENCODERS; e++) {
        sumi_tokenizer_destroy(network->encoders[e].tokenizer);
        sumi_free(network->heap, network->encoders[e].model);
    }
    sumi_free(network->heap, network->vision);
    sumi_free(network->heap, network->denoiser);
    sumi_free(network->heap, network->autoencoder);
    sumi_weight_list_close(&network->weights);
    sumi_checkpoint_close(&network->checkpoint);
    sumi_file_cache_close(&network->cache);
    sumi_free(network->heap, network);
}

const sumi_network_info* sumi_network_get_info(const sumi_network* network) { return &network->info; }

const sumi_weight* const* sumi_network_weights(const sumi_network* network, int32_t* out_count)
{
    *out_count = (int32_t)network->weights.count;
    return network->weights.weights;
}

// The rule's area for the autoencoder, for this checkpoint.
static int64_t autoencoder_area(const sumi_network* network)
{
    const sumi_reference_rule* rule = &network->recipe->references;
    SUMI_ASSERT(rule->max_count > 0 && rule->autoencoder_area > 0 && rule->multiple > 0);
    const int64_t side = network->info.sample_size, variant_side = network->variant->sample_size;
    return rule->autoencoder_area * side * side / (variant_side * variant_side);
}

static sumi_result fit_reference(const sumi_network* network, sumi_picture_size picture, sumi_reference_sizes* sizes,
                                 sumi_error* error)
{
    const sumi_reference_rule* rule = &network->recipe->references;
    const int64_t area = autoencoder_area(network);
    if (rule->fit == SUMI_REFERENCE_RESIZED) {
        SUMI_TRY(sumi_picture_size_of_area(picture, area, rule->multiple, &sizes->autoencoder, error));
        sizes->resized = sizes->autoencoder;
        return SUMI_OK;
    }
    const sumi_crop_rule limits = {
        .max_area = area, .multiple = rule->multiple, .min_side = rule->min_side, .max_ratio = rule->max_ratio};
    sumi_picture_crop crop = {.left = 0};
    SUMI_TRY(sumi_picture_crop_within(picture, &limits, &crop, error));
    sizes->resized = crop.resized;
    sizes->autoencoder = crop.size;
    sizes->left = crop.left;
    sizes->top = crop.top;
    return SUMI_OK;
}

static sumi_result check_longest(sumi_picture_size picture, sumi_picture_size resized, int32_t max_side,
                                 sumi_error* error)
{
    if (resized.width <= max_side && resized.height <= max_side) return SUMI_OK;
    return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                     "an image of %d x %d pixels would be resized to %d x %d for the network, and %d is the most along "
                     "a side: give one that is closer to a square",
                     (int)picture.width, (int)picture.height, (int)resized.width, (int)resized.height, (int)max_side);
}

sumi_result sumi_network_reference_sizes(const sumi_network* network, sumi_picture_size picture,
                                         sumi_reference_sizes* out_sizes, sumi_error* error)
{
    const sumi_reference_rule* rule = &network->recipe->references;
    const int32_t max_side = network->info.max_side;
    sumi_reference_sizes sizes = {.tokens = 0};
    SUMI_TRY(fit_reference(network, picture, &sizes, error));
    SUMI_TRY(check_longest(picture, sizes.autoencoder, max_side, error)); // the sentence has the caller's own size
    if (network->vision != NULL) {
        const sumi_vision_properties properties = network->recipe->vision->properties(network->vision);
        const sumi_size_limits limits = {properties.cell, properties.min_pixels, properties.max_pixels,
                                         rule->max_ratio};
        if (rule->vision_area == 0) sizes.first = sizes.resized;
        else SUMI_TRY(sumi_picture_size_of_area(picture, rule->vision_area, rule->multiple, &sizes.first, error));
        SUMI_TRY(sumi_picture_size_within(sizes.first, &limits, &sizes.vision, error));
    }
    SUMI_TRY(check_longest(picture, sizes.vision, max_side, error));
    if (network->vision != NULL) {
        const int32_t cell = network->recipe->vision->properties(network->vision).cell;
        sizes.tokens = (sizes.vision.width / cell) * (sizes.vision.height / cell);
    }
    *out_sizes = sizes;
    return SUMI_OK;
}

sumi_result sumi_network_start_size(const sumi_network* network, sumi_picture_size picture, sumi_picture_size* out_size,
                                    sumi_error* error)
{
    const sumi_reference_rule* rule = &network->recipe->references;
    const int64_t area = autoencoder_area(network);
    if (rule->fit == SUMI_REFERENCE_RESIZED)
        return sumi_picture_size_of_area(picture, area, rule->multiple, out_size, error);
    sumi_picture_crop crop = {.left = 0};
    SUMI_TRY(sumi_picture_crop_within(picture, &(sumi_crop_rule){.max_area = area, .multiple = rule->multiple}, &crop,
                                      error));
    *out_size = crop.size;
    return SUMI_OK;
}

int32_t sumi_network_id_rows(const sumi_network* network, int32_t encoder, int32_t token_count)
{
    SUMI_ASSERT(encoder >= 0 && encoder < network->recipe->encoder_count);
    const int32_t padded_tokens = network->recipe->encoders[encoder].prompt.padded_tokens;
    return token_count < padded_tokens ? padded_tokens : token_count;
}

int32_t sumi_network_feature_rows(const sumi_network* network, int32_t encoder, int32_t token_count)
{
    const sumi_recipe_encoder* recipe_encoder = &network->recipe->encoders[encoder];
    SUMI_ASSERT(encoder >= 0 && encoder < network->recipe->encoder_count);
    if (network->info.is_pooled[encoder]) return 1;
    const int32_t rows = sumi_network_id_rows(network, encoder, token_count) - network->encoders[encoder].dropped_rows,
                  max_rows = recipe_encoder->prompt.max_feature_rows;
    return rows < 1 ? 0 : max_rows > 0 && rows > max_rows ? max_rows : rows;
}

int32_t sumi_network_feature_row(const sumi_network* network, int32_t encoder, int32_t token)
{
    SUMI_ASSERT(encoder >= 0 && encoder < network->recipe->encoder_count && !network->info.is_pooled[encoder]);
    return token - network->encoders[encoder].dropped_rows;
}

float sumi_network_time(const sumi_network* network, float sigma) { return network->recipe->time(sigma); }
