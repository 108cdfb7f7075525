#include "models/family.h"
#include "base/platform.h"
#include "models/network.h"
#include "models/signatures.h"
#include <string.h>

static const sumi_family* const s_families[] = {&sumi_family_z_image};

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
    network->asked_for[SUMI_COMPONENT_TEXT_ENCODER] = desc->text_encoder_path != NULL && !desc->without_text_encoder;
    network->asked_for[SUMI_COMPONENT_VAE] = desc->vae_path != NULL;
    sumi_weight_list_init(&network->weights, heap);
    sumi_checkpoint_desc where = {.path = desc->path,
                                  .component_paths = {[SUMI_COMPONENT_TRANSFORMER] = desc->transformer_path,
                                                      [SUMI_COMPONENT_TEXT_ENCODER] = desc->text_encoder_path,
                                                      [SUMI_COMPONENT_VAE] = desc->vae_path},
                                  .tokenizer_paths = {desc->tokenizer_path},
                                  .without_text_encoder = desc->without_text_encoder};
    where.signatures = sumi_signatures(&where.signature_count);
    sumi_result result = sumi_checkpoint_begin(&network->checkpoint, heap, files, &where, error);
    if (result != SUMI_OK) {
        sumi_network_close(network);
        return result;
    }
    *out_network = network;
    return SUMI_OK;
}

// The family whose tensors these are, once all files are open.
static sumi_result recognise(sumi_network* network, sumi_error* error)
{
    for (int32_t kind = 0; kind < SUMI_COMPONENT_COUNT; kind++) {
        const sumi_component* component = &network->checkpoint.components[kind];
        if (network->asked_for[kind] && !component->present) {
            return sumi_fail(error, SUMI_MODEL_UNKNOWN, "%s holds no %s that this library knows",
                             component->path != NULL ? component->path : "the given path",
                             sumi_component_kind_name((sumi_component_kind)kind));
        }
    }
    SUMI_TRY(sumi_signatures_check(&network->checkpoint, error));
    for (size_t i = 0; i < sizeof s_families / sizeof *s_families; i++) {
        if (s_families[i]->recognises(&network->checkpoint)) {
            network->family = s_families[i];
            return SUMI_OK;
        }
    }
    const char* path = network->checkpoint.components[SUMI_COMPONENT_TRANSFORMER].path != NULL
                         ? network->checkpoint.components[SUMI_COMPONENT_TRANSFORMER].path
                         : network->checkpoint.path;
    const sumi_component* transformer = &network->checkpoint.components[SUMI_COMPONENT_TRANSFORMER];
    const char* guess = transformer->present ? sumi_component_network(transformer)
                                             : sumi_family_of_class(network->checkpoint.class_name);
    return sumi_fail(error, SUMI_MODEL_UNKNOWN,
                     "%s holds no transformer of a family that this library runs (z-image)%s%s; give the model's "
                     "folder or its transformer file",
                     path != NULL ? path : "the given path", guess[0] != 0 ? "; it looks like " : "", guess);
}

static sumi_result open_piece(sumi_network* network, bool* out_done, float* out_progress, sumi_error* error)
{
    if (network->family == NULL) {
        bool done = false;
        SUMI_TRY(sumi_checkpoint_step(&network->checkpoint, &done, error));
        *out_progress = FILES_SHARE * sumi_checkpoint_progress(&network->checkpoint);
        return done ? recognise(network, error) : SUMI_OK;
    }
    bool stage_done = false;
    float progress = 0.0f;
    SUMI_TRY(
        network->family->open_step(network, network->stage, ITEMS_PER_STEP, &stage_done, out_done, &progress, error));
    *out_progress = FILES_SHARE + (1.0f - FILES_SHARE) * progress;
    network->stage += stage_done ? 1 : 0;
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
    if (network->family != NULL) { network->family->close(network); }
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
    return network->family->tokenise(network, encoder, text, bytes, ids, capacity, out_count, error);
}

float sumi_network_time(const sumi_network* network, float sigma) { return network->family->time(network, sigma); }
