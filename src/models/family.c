#include "models/family.h"
#include "base/platform.h"
#include "models/network.h"
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
    network->asked_for[SUMI_PART_TEXT_ENCODER] = desc->text_encoder_path != NULL && !desc->without_text_encoder;
    network->asked_for[SUMI_PART_VAE] = desc->vae_path != NULL;
    network->asked_for_text_encoder_2 = desc->text_encoder_2_path != NULL ? "text_encoder_2_path"
                                      : desc->tokenizer_2_path != NULL    ? "tokenizer_2_path"
                                                                          : NULL;
    network->asked_for_vision = desc->vision_path != NULL    ? "vision_path"
                              : desc->processor_path != NULL ? "processor_path"
                                                             : NULL;
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

// Paths of components that this family does not have.
static sumi_result check_components(const sumi_network* network, sumi_error* error)
{
    const sumi_family* family = network->family;
    if (network->asked_for_text_encoder_2 != NULL && (family->components & SUMI_HAS_TEXT_ENCODER_2) == 0)
        return sumi_fail(error, SUMI_NOT_SUPPORTED, "%s: %s has one text encoder; leave it NULL",
                         network->asked_for_text_encoder_2, family->name);
    if (network->asked_for_vision != NULL && (family->components & SUMI_HAS_VISION) == 0)
        return sumi_fail(error, SUMI_NOT_SUPPORTED, "%s: %s takes no pictures in its prompts; leave it NULL",
                         network->asked_for_vision, family->name);
    return SUMI_OK;
}

// The family whose tensors these are, once all files are open.
static sumi_result recognise(sumi_network* network, sumi_error* error)
{
    for (int32_t kind = 0; kind < SUMI_PART_COUNT; kind++) {
        const sumi_part* part = &network->checkpoint.parts[kind];
        if (network->asked_for[kind] && !part->present) {
            return sumi_fail(error, SUMI_MODEL_UNKNOWN, "%s holds no %s that this library knows",
                             part->path != NULL ? part->path : "the given path",
                             sumi_part_kind_name((sumi_part_kind)kind));
        }
    }
    for (size_t i = 0; i < sizeof s_families / sizeof *s_families; i++) {
        if (s_families[i]->recognises(&network->checkpoint)) {
            network->family = s_families[i];
            return check_components(network, error);
        }
    }
    const char* path = network->checkpoint.parts[SUMI_PART_TRANSFORMER].path != NULL
                         ? network->checkpoint.parts[SUMI_PART_TRANSFORMER].path
                         : network->checkpoint.path;
    const char* guess = network->checkpoint.family;
    return sumi_fail(error, SUMI_MODEL_UNKNOWN,
                     "%s holds no transformer of a family that this library runs (z-image)%s%s; give the model's "
                     "folder or its transformer file",
                     path != NULL ? path : "the given path", guess != NULL && guess[0] != 0 ? "; it looks like " : "",
                     guess != NULL ? guess : "");
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
