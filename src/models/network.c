#include "models/network.h"
#include "base/assert.h"
#include "base/platform.h"
#include "models/network_state.h"
#include <stdio.h>
#include <string.h>

#define ITEMS_PER_STEP 2000u // vocabulary and merge entries: about a millisecond
#define FILES_SHARE 0.2f     // of the progress: opening files against everything after

sumi_result sumi_network_open_begin(sumi_heap* heap, const sumi_files* files, const sumi_network_desc* desc,
                                    sumi_error* error, sumi_network** out_network)
{
    *out_network = NULL;
    sumi_network* network = sumi_alloc_zero(heap, sizeof *network);
    if (network == NULL) { return sumi_out_of_memory(error, sizeof *network, "a model"); }
    network->heap = heap;
    network->files = files;
    network->without_text_encoder = desc->without_text_encoder;
    network->without_vae_encoder = desc->without_vae_encoder;
    network->asked_for[SUMI_PART_TEXT_ENCODER] = desc->text_encoder_path != NULL && !desc->without_text_encoder;
    network->asked_for[SUMI_PART_VAE] = desc->vae_path != NULL;
    sumi_weight_list_init(&network->weights, heap);
    sumi_checkpoint_desc parts = {
        .path = desc->path, .tokenizer_path = desc->tokenizer_path, .without_text_encoder = desc->without_text_encoder};
    parts.part_paths[SUMI_PART_TRANSFORMER] = desc->transformer_path;
    parts.part_paths[SUMI_PART_TEXT_ENCODER] = desc->text_encoder_path;
    parts.part_paths[SUMI_PART_VAE] = desc->vae_path;
    sumi_result result = sumi_checkpoint_begin(&network->checkpoint, heap, files, &parts, error);
    if (result != SUMI_OK) {
        sumi_network_close(network);
        return result;
    }
    *out_network = network;
    return SUMI_OK;
}

// ---- Opening --------------------------------------------------------------------------------------------------------

// The recipe whose tensors these are, once all files are open.
static sumi_result recognise(sumi_network* network, sumi_error* error)
{
    const sumi_checkpoint* checkpoint = &network->checkpoint;
    for (int32_t kind = 0; kind < SUMI_PART_COUNT; kind++) {
        const sumi_part* part = &checkpoint->parts[kind];
        if (network->asked_for[kind] && !part->present) {
            return sumi_fail(error, SUMI_MODEL_UNKNOWN, "%s holds no %s that this library knows",
                             part->path != NULL ? part->path : "the given path",
                             sumi_part_kind_name((sumi_part_kind)kind));
        }
    }
    char names[160] = "";
    const sumi_recipe* recipe;
    for (int32_t i = 0; (recipe = sumi_recipe_get(i)) != NULL; i++) {
        if (checkpoint->parts[SUMI_PART_TRANSFORMER].present && strcmp(checkpoint->family, recipe->family) == 0) {
            network->recipe = recipe;
            return SUMI_OK;
        }
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "", recipe->family);
    }
    const char* path = checkpoint->parts[SUMI_PART_TRANSFORMER].path != NULL
                         ? checkpoint->parts[SUMI_PART_TRANSFORMER].path
                         : checkpoint->path;
    const char* guess = checkpoint->family;
    return sumi_fail(error, SUMI_MODEL_UNKNOWN,
                     "%s holds no transformer of a family that this library runs (%s)%s%s; give the model's "
                     "folder or its transformer file",
                     path != NULL ? path : "the given path", names,
                     guess != NULL && guess[0] != 0 ? "; it looks like " : "", guess != NULL ? guess : "");
}

// Memory for a part's model, and what its bind takes from the component that its tensors are in.
static sumi_result begin_part(sumi_network* network, sumi_part_kind kind, size_t model_bytes, void** out_model,
                              sumi_binder* out_binder, sumi_part_config* out_config, sumi_error* error)
{
    static const char* const names[SUMI_PART_COUNT] = {[SUMI_PART_TRANSFORMER] = "the transformer",
                                                       [SUMI_PART_TEXT_ENCODER] = "the text encoder",
                                                       [SUMI_PART_VAE] = "the VAE"};
    SUMI_ASSERT(*out_model == NULL && network->checkpoint.parts[kind].present);
    const sumi_part* part = &network->checkpoint.parts[kind];
    *out_model = sumi_alloc_zero(network->heap, model_bytes);
    if (*out_model == NULL) { return sumi_out_of_memory(error, model_bytes, "a model"); }
    *out_binder = (sumi_binder){.list = &network->weights,
                                .part = part,
                                .what = names[kind],
                                .adaptable = kind == SUMI_PART_TRANSFORMER,
                                .error = error};
    *out_config = (sumi_part_config){.data = part->config.data,
                                     .bytes = (size_t)part->config.bytes,
                                     .path = part->config.path != NULL ? part->config.path : part->path};
    return SUMI_OK;
}

static sumi_result open_denoiser(sumi_network* network, sumi_error* error)
{
    const sumi_recipe* recipe = network->recipe;
    sumi_binder binder;
    sumi_part_config config;
    SUMI_TRY(begin_part(network, SUMI_PART_TRANSFORMER, recipe->denoiser->model_bytes, &network->denoiser, &binder,
                        &config, error));
    SUMI_TRY(recipe->denoiser->bind(network->denoiser, recipe->denoiser_settings, &binder, &config));
    const sumi_denoiser_facts facts = recipe->denoiser->facts(network->denoiser);
    sumi_network_info* info = &network->info;
    *info = (sumi_network_info){.family = recipe->family,
                                .latent_channels = facts.channels,
                                .vae_factor = 8, // until an autoencoder says its own
                                .text_encoder_count = recipe->encoder_count};
    memcpy(info->feature_width, facts.feature_width, sizeof info->feature_width);
    for (int32_t e = 0; e < recipe->encoder_count; e++) {
        const sumi_prompt_template* prompt = &recipe->encoders[e].prompt;
        if (prompt->max_tokens > info->max_prompt_tokens) { info->max_prompt_tokens = prompt->max_tokens; }
        info->min_prompt_tokens[e] = prompt->dropped_rows + 1;
    }
    SUMI_TRY(recipe->describe(&network->checkpoint, info, error));
    info->size_multiple = facts.patch * info->vae_factor;
    info->tile_latent = info->sample_size / info->vae_factor / 4 * 4;
    return SUMI_OK;
}

static sumi_result open_autoencoder(sumi_network* network, sumi_error* error)
{
    const sumi_recipe* recipe = network->recipe;
    const sumi_part* part = &network->checkpoint.parts[SUMI_PART_VAE];
    if (!part->present) { return SUMI_OK; }
    sumi_binder binder;
    sumi_part_config config;
    SUMI_TRY(begin_part(network, SUMI_PART_VAE, recipe->autoencoder->model_bytes, &network->autoencoder, &binder,
                        &config, error));
    SUMI_TRY(recipe->autoencoder->bind(network->autoencoder, recipe->autoencoder_settings, &binder, &config,
                                       network->without_vae_encoder));
    const sumi_autoencoder_facts facts = recipe->autoencoder->facts(network->autoencoder);
    sumi_network_info* info = &network->info;
    if (facts.channels != info->latent_channels) {
        return sumi_fail(error, SUMI_TENSOR_MISMATCH,
                         "%s: the VAE's latents have %d channels, the transformer's %d; they do not belong together",
                         part->path, (int)facts.channels, (int)info->latent_channels);
    }
    info->vae_factor = facts.factor;
    info->size_multiple = recipe->denoiser->facts(network->denoiser).patch * facts.factor;
    // else the config says nothing useful
    if (facts.sample_size >= 4 * info->size_multiple && facts.sample_size <= info->max_side) {
        info->sample_size = facts.sample_size;
        info->tile_latent = facts.sample_size / facts.factor / 4 * 4;
    }
    info->has_vae_decoder = facts.has_decoder;
    info->has_vae_encoder = facts.has_encoder;
    return SUMI_OK;
}

static sumi_result open_text_encoder(sumi_network* network, sumi_error* error)
{
    const sumi_recipe_encoder* encoder = &network->recipe->encoders[0];
    const sumi_part* part = &network->checkpoint.parts[SUMI_PART_TEXT_ENCODER];
    const sumi_file* json = &network->checkpoint.tokenizer;
    if (network->without_text_encoder || !part->present) { return SUMI_OK; }
    if (json->data == NULL) {
        return sumi_fail(error, SUMI_FILE_NOT_FOUND,
                         "%s: the text encoder needs a tokenizer.json; give tokenizer_path, or open the model without "
                         "its text encoder",
                         part->path);
    }
    sumi_binder binder;
    sumi_part_config config;
    SUMI_TRY(begin_part(network, SUMI_PART_TEXT_ENCODER, encoder->part->model_bytes, &network->encoders[0].model,
                        &binder, &config, error));
    SUMI_TRY(encoder->part->bind(network->encoders[0].model, encoder->settings, &binder, &config));
    const int32_t width = encoder->part->facts(network->encoders[0].model).width;
    if (width != network->info.feature_width[0]) {
        return sumi_fail(
            error, SUMI_TENSOR_MISMATCH,
            "%s: the text encoder makes features of %d values, the transformer reads %d; they do not belong together",
            part->path, (int)width, (int)network->info.feature_width[0]);
    }
    return sumi_tokenizer_begin(network->heap, json->data, (size_t)json->bytes, json->path, error,
                                &network->encoders[0].tokenizer);
}

static sumi_result step_tokenizer(sumi_network* network, bool* out_done, float* out_progress, sumi_error* error)
{
    const sumi_network_encoder* encoder = &network->encoders[0];
    *out_done = true;
    if (encoder->tokenizer == NULL) { return SUMI_OK; }
    SUMI_TRY(sumi_tokenizer_step(encoder->tokenizer, ITEMS_PER_STEP, out_done, out_progress, error));
    const int32_t vocabulary = network->recipe->encoders[0].part->facts(encoder->model).vocabulary;
    if (*out_done && sumi_tokenizer_size(encoder->tokenizer) > (size_t)vocabulary) {
        return sumi_fail(error, SUMI_TENSOR_MISMATCH,
                         "%s has %zu ids, the text encoder in %s %d embeddings; they do not belong together",
                         network->checkpoint.tokenizer.path, sumi_tokenizer_size(encoder->tokenizer),
                         network->checkpoint.parts[SUMI_PART_TEXT_ENCODER].path, (int)vocabulary);
    }
    network->info.has_text_encoder = *out_done;
    return SUMI_OK;
}

static sumi_result open_piece(sumi_network* network, bool* out_done, float* out_progress, sumi_error* error)
{
    if (network->recipe == NULL) {
        bool done = false;
        SUMI_TRY(sumi_checkpoint_step(&network->checkpoint, &done, error));
        *out_progress = FILES_SHARE * sumi_checkpoint_progress(&network->checkpoint);
        return done ? recognise(network, error) : SUMI_OK;
    }
    // of what comes after the files: the parts take little, the tokenizer the rest
    static const float shares[] = {0.1f, 0.2f, 0.3f};
    float tokens = 0.0f, progress = 1.0f;
    const int32_t stage = network->stage;
    switch (stage) {
    case 0: SUMI_TRY(open_denoiser(network, error)); break;
    case 1: SUMI_TRY(open_autoencoder(network, error)); break;
    case 2: SUMI_TRY(open_text_encoder(network, error)); break;
    default:
        SUMI_TRY(step_tokenizer(network, out_done, &tokens, error));
        progress = shares[2] + (1.0f - shares[2]) * tokens;
    }
    if (stage < (int32_t)(sizeof shares / sizeof *shares)) {
        progress = shares[stage];
        network->stage++;
    }
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
        SUMI_TRY(open_piece(network, out_done, out_progress, error));
        if ((sumi_clock_ns() - begin) / 1000 >= budget_us) { break; }
    }
    if (*out_done) {
        network->is_open = true;
        network->info.weight_bytes = network->weights.weight_bytes;
        *out_progress = 1.0f;
    }
    return SUMI_OK;
}

void sumi_network_close(sumi_network* network)
{
    if (network == NULL) { return; }
    for (int32_t e = 0; e < SUMI_MAX_TEXT_ENCODERS; e++) {
        sumi_tokenizer_destroy(network->encoders[e].tokenizer);
        sumi_free(network->heap, network->encoders[e].model);
    }
    sumi_free(network->heap, network->denoiser);
    sumi_free(network->heap, network->autoencoder);
    sumi_free(network->heap, network->prompt);
    sumi_weight_list_close(&network->weights);
    sumi_checkpoint_close(&network->checkpoint);
    sumi_free(network->heap, network);
}

const sumi_network_info* sumi_network_get_info(const sumi_network* network) { return &network->info; }

const sumi_weight* const* sumi_network_weights(const sumi_network* network, int32_t* out_count)
{
    *out_count = (int32_t)network->weights.count;
    return network->weights.weights;
}

sumi_result sumi_network_tokenise(sumi_network* network, int32_t encoder, const char* text, size_t bytes, int32_t* ids,
                                  int32_t capacity, int32_t* out_count, sumi_error* error)
{
    *out_count = 0;
    if (!network->info.has_text_encoder) {
        return sumi_fail(error, SUMI_NOT_SUPPORTED,
                         "the model was opened without a text encoder; open it with text_encoder_path and "
                         "tokenizer_path, or use prompts encoded before");
    }
    if (encoder < 0 || encoder >= network->info.text_encoder_count || capacity < 1) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "the model has %d text encoders, not number %d",
                         (int)network->info.text_encoder_count, (int)encoder);
    }
    const sumi_prompt_template* around = &network->recipe->encoders[encoder].prompt;
    size_t before = strlen(around->before), after = strlen(around->after);
    if (bytes > SIZE_MAX / 2) { return sumi_fail(error, SUMI_TEXT_INVALID, "the prompt is too long"); }
    SUMI_TRY(sumi_grow(network->heap, (void**)&network->prompt, &network->prompt_capacity, before + bytes + after, 1,
                       error));
    char* whole = network->prompt;
    memcpy(whole, around->before, before);
    if (bytes > 0) { memcpy(whole + before, text, bytes); }
    memcpy(whole + before + bytes, around->after, after);
    size_t most = capacity < around->max_tokens ? (size_t)capacity : (size_t)around->max_tokens, count = 0;
    SUMI_TRY(sumi_tokenizer_encode(network->encoders[encoder].tokenizer, whole, before + bytes + after, false, ids,
                                   most, &count, error));
    // the first ids are kept: a longer prompt loses the end of the template, as in the references
    *out_count = (int32_t)(count < most ? count : most);
    return SUMI_OK;
}

int32_t sumi_network_feature_rows(const sumi_network* network, int32_t encoder, int32_t token_count)
{
    const sumi_recipe_encoder* from = &network->recipe->encoders[encoder];
    SUMI_ASSERT(encoder >= 0 && encoder < network->recipe->encoder_count);
    if (network->encoders[encoder].model != NULL && from->part->facts(network->encoders[encoder].model).pools) {
        return 1;
    }
    const int32_t rows = token_count - from->prompt.dropped_rows, most = from->prompt.max_rows;
    return rows < 1 ? 0 : most > 0 && rows > most ? most : rows;
}

float sumi_network_time(const sumi_network* network, float sigma) { return network->recipe->time(sigma); }
