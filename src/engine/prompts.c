// Encoded prompts: made by a job, or read from bytes that sumi_prompt_save wrote.
//
// The bytes are a safetensors file: tensor "features" [tokens, width] (of a second encoder: "features.1"); tensors of
// bytes "reference.0" [height, width, 3] and so on, for the references that the prompt was encoded with; metadata with
// the version of the format, the family, the number of tokens and the adapters that the prompt was encoded with. Reading trusts nothing: sizes, types, names and
// metadata are all checked.
#include "base/assert.h"
#include "base/dtype.h"
#include "base/result.h"
#include "engine/calls.h"
#include "files/tensors.h"
#include "jobs/engine_state.h"
#include "jobs/objects.h"
#include "jobs/prompt.h"
#include "models/limits.h"
#include "models/network.h"
#include "pictures/picture_sizes.h"
#include "pictures/pixels.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define FORMAT_VERSION "1"
#define MAX_TOKENS 65536

sumi_prompt_info sumi_prompt_get_info(const sumi_prompt* prompt)
{
    sumi_prompt_info info = {.encoder_count = 0};
    _Static_assert(SUMI_MAX_TEXT_ENCODERS <= sizeof info.encoders / sizeof *info.encoders, "the header has room");
    if (prompt == NULL) return info;
    info.encoder_count = prompt->encoder_count;
    for (int32_t e = 0; e < prompt->encoder_count; e++) {
        info.encoders[e] = (sumi_prompt_encoder){
            .token_count = prompt->token_count[e], .width = prompt->width[e], .features = prompt->features[e]};
    }
    info.reference_count = prompt->reference_count;
    info.adapters = prompt->adapters;
    return info;
}

static const char* const s_tensor_names[SUMI_MAX_TEXT_ENCODERS] = {"features", "features.1"};

#define REFERENCE_NAME_BYTES 24
static void reference_name(int32_t index, char* into)
{
    snprintf(into, REFERENCE_NAME_BYTES, "reference.%d", (int)index);
}

size_t sumi_prompt_save(const sumi_prompt* prompt, void* into, size_t capacity)
{
    if (prompt == NULL) return 0;
    sumi_tensor tensors[SUMI_MAX_TEXT_ENCODERS + SUMI_MAX_REFERENCES];
    char names[SUMI_MAX_REFERENCES][REFERENCE_NAME_BYTES];
    memset(tensors, 0, sizeof tensors);
    for (int32_t e = 0; e < prompt->encoder_count; e++) {
        sumi_tensor* tensor = &tensors[e];
        tensor->name = s_tensor_names[e];
        tensor->dtype = SUMI_DTYPE_F32;
        tensor->rank = 2;
        tensor->shape[0] = prompt->token_count[e];
        tensor->shape[1] = prompt->width[e];
        tensor->data = prompt->features[e];
        tensor->bytes = (uint64_t)prompt->token_count[e] * (uint64_t)prompt->width[e] * sizeof(float);
        tensor->file_index = -1;
    }
    for (int32_t i = 0; i < prompt->reference_count; i++) {
        const sumi_picture_size size = prompt->reference_sizes[i];
        sumi_tensor* tensor = &tensors[prompt->encoder_count + i];
        reference_name(i, names[i]);
        tensor->name = names[i];
        tensor->dtype = SUMI_DTYPE_U8;
        tensor->rank = 3;
        tensor->shape[0] = size.height;
        tensor->shape[1] = size.width;
        tensor->shape[2] = 3;
        tensor->data = prompt->references[i];
        tensor->bytes = (uint64_t)size.height * (uint64_t)size.width * 3;
        tensor->file_index = -1;
    }
    char tokens[16];
    snprintf(tokens, sizeof tokens, "%d", (int)prompt->token_count[0]);
    const sumi_metadata metadata[] = {{"sumi_prompt", FORMAT_VERSION},
                                      {"family", prompt->family},
                                      {"token_count", tokens},
                                      {"adapters", prompt->adapters}}; // the last one: not if there are none
    const size_t metadata_count = prompt->adapters[0] != '\0' ? 4 : 3;
    const size_t count = (size_t)prompt->encoder_count + (size_t)prompt->reference_count;
    uint64_t bytes =
        sumi_safetensors_write(tensors, count, metadata, metadata_count, into, into != NULL ? capacity : 0);
    return bytes <= SIZE_MAX ? (size_t)bytes : 0;
}

static sumi_result check_saved(const sumi_model* model, const sumi_tensor_set* set, int32_t* token_count,
                               sumi_error* error)
{
    const sumi_network_info* info = &model->info;
    const char* version = sumi_metadata_find(set, "sumi_prompt");
    const char* family = sumi_metadata_find(set, "family");
    const char* tokens = sumi_metadata_find(set, "token_count");
    if (version == NULL || family == NULL || tokens == NULL)
        return sumi_fail(error, SUMI_FILE_MALFORMED,
                         "these bytes are safetensors, but not a prompt saved by sumi_prompt_save");
    if (strcmp(version, FORMAT_VERSION) != 0) {
        return sumi_fail(error, SUMI_FILE_MALFORMED,
                         "the saved prompt has format %.16s, this version reads %s: encode it again", version,
                         FORMAT_VERSION);
    }
    if (strcmp(family, info->family) != 0) {
        return sumi_fail(error, SUMI_TENSOR_MISMATCH,
                         "the saved prompt was encoded for %.31s, this model is %s: encode it again", family,
                         info->family);
    }
    int32_t encoder_count = 0;
    for (int32_t e = 0; e < SUMI_MAX_TEXT_ENCODERS; e++)
        encoder_count += sumi_tensor_find(set, s_tensor_names[e]) != NULL;
    if (encoder_count > 0 && encoder_count != info->text_encoder_count) {
        return sumi_fail(error, SUMI_TENSOR_MISMATCH,
                         "the saved prompt holds the features of %d text encoder%s, this model has %d: encode it again",
                         (int)encoder_count, encoder_count == 1 ? "" : "s", (int)info->text_encoder_count);
    }
    for (int32_t e = 0; e < info->text_encoder_count; e++) {
        const sumi_tensor* tensor = sumi_tensor_find(set, s_tensor_names[e]);
        if (tensor == NULL)
            return sumi_fail(error, SUMI_FILE_MALFORMED, "the saved prompt has no tensor \"%s\"", s_tensor_names[e]);
        if (tensor->dtype != SUMI_DTYPE_F32 || tensor->rank != 2 || tensor->shape[0] < 1
            || tensor->shape[0] > (info->is_pooled[e] ? 1 : MAX_TOKENS)) {
            return sumi_fail(error, SUMI_FILE_MALFORMED,
                             "the saved prompt's tensor \"%s\" is not a float32 matrix of 1 to %d rows",
                             s_tensor_names[e], info->is_pooled[e] ? 1 : MAX_TOKENS);
        }
        if (tensor->shape[1] != info->feature_width[e]) {
            return sumi_fail(
                error, SUMI_TENSOR_MISMATCH,
                "the saved prompt is %lld wide, this model's features are %d: it was encoded by another text encoder",
                (long long)tensor->shape[1], (int)info->feature_width[e]);
        }
        token_count[e] = (int32_t)tensor->shape[0];
    }
    char count[16];
    snprintf(count, sizeof count, "%d", (int)token_count[0]);
    if (strcmp(tokens, count) != 0)
        return sumi_fail(error, SUMI_FILE_MALFORMED, "the saved prompt says %.16s tokens and holds %s", tokens, count);
    return SUMI_OK;
}

// Reads the number and the sizes of the references of a saved prompt.
static sumi_result check_saved_references(const sumi_model* model, const sumi_tensor_set* set, sumi_prompt_shape* shape,
                                          sumi_error* error)
{
    const sumi_network_info* info = &model->info;
    int32_t named = 0;
    for (size_t i = 0; i < set->count; i++) named += strncmp(set->tensors[i].name, "reference.", 10) == 0;
    if (named > info->max_references) {
        return sumi_fail(error, SUMI_TENSOR_MISMATCH,
                         "the saved prompt was encoded with %d reference images, this %s model takes %d: it was "
                         "encoded for another model",
                         (int)named, info->family, (int)info->max_references);
    }
    for (int32_t i = 0; i < named; i++) {
        char name[REFERENCE_NAME_BYTES];
        reference_name(i, name);
        const sumi_tensor* tensor = sumi_tensor_find(set, name);
        if (tensor == NULL)
            return sumi_fail(error, SUMI_FILE_MALFORMED, "the saved prompt holds %d images, but no tensor \"%s\"",
                             (int)named, name);
        if (tensor->dtype != SUMI_DTYPE_U8 || tensor->rank != 3 || tensor->shape[2] != 3 || tensor->shape[0] < 1
            || tensor->shape[1] < 1 || tensor->shape[0] > SUMI_PIXELS_MAX_SIDE
            || tensor->shape[1] > SUMI_PIXELS_MAX_SIDE) {
            return sumi_fail(error, SUMI_FILE_MALFORMED,
                             "the saved prompt's tensor \"%s\" is not an image: bytes [height, width, 3]", name);
        }
        const sumi_picture_size size = {(int32_t)tensor->shape[1], (int32_t)tensor->shape[0]};
        if (size.width % info->size_multiple != 0 || size.height % info->size_multiple != 0
            || size.width > info->max_side || size.height > info->max_side) {
            return sumi_fail(error, SUMI_TENSOR_MISMATCH,
                             "the saved prompt's image \"%s\" has %d x %d pixels, this model reads multiples of %d up "
                             "to %d: it was encoded for another model",
                             name, (int)size.width, (int)size.height, (int)info->size_multiple, (int)info->max_side);
        }
        shape->references[i] = size;
    }
    shape->reference_count = named;
    return SUMI_OK;
}

// Copies floats. Returns the index of the first one that is NaN or infinite; `count`: there is none. The host program
// calls this inside a frame, so each block is checked while it is still in the first-level cache, without a branch per
// value.
static size_t copy_finite(const void* from, float* into, size_t count)
{
    enum { BLOCK = 4096 };
    for (size_t block_begin = 0; block_begin < count; block_begin += BLOCK) {
        const size_t block_end = count - block_begin < BLOCK ? count : block_begin + BLOCK;
        memcpy(into + block_begin, (const unsigned char*)from + block_begin * sizeof *into,
               (block_end - block_begin) * sizeof *into);
        int32_t bad = 0;
        for (size_t i = block_begin; i < block_end; i++) {
            uint32_t bits;
            memcpy(&bits, &into[i], sizeof bits);
            bad += (bits & 0x7f800000u) == 0x7f800000u;
        }
        for (size_t i = block_begin; bad > 0; i++) {
            if (!isfinite(into[i])) return i;
        }
    }
    return count;
}

static sumi_result load_prompt(sumi_model* model, const void* data, size_t bytes, sumi_tensor_set* set,
                               sumi_prompt** out_prompt, sumi_error* error)
{
    SUMI_ASSERT(model->info.text_encoder_count <= SUMI_MAX_TEXT_ENCODERS);
    SUMI_TRY(sumi_safetensors_read(set, data, bytes, "the saved prompt", error));
    int32_t token_count[SUMI_MAX_TEXT_ENCODERS] = {0};
    SUMI_TRY(check_saved(model, set, token_count, error));
    sumi_prompt* prompt;
    sumi_prompt_shape shape = {.family = model->info.family,
                               .encoder_count = model->info.text_encoder_count,
                               .token_count = token_count,
                               .width = model->info.feature_width,
                               .adapters = sumi_metadata_find(set, "adapters")};
    if (shape.adapters != NULL && strlen(shape.adapters) >= SUMI_PROMPT_ADAPTERS_BYTES)
        return sumi_fail(error, SUMI_FILE_MALFORMED, "the saved prompt's list of adapters is longer than %d bytes",
                         SUMI_PROMPT_ADAPTERS_BYTES - 1);
    SUMI_TRY(check_saved_references(model, set, &shape, error));
    SUMI_TRY(sumi_prompt_create(model->engine, &shape, &prompt, error));
    for (int32_t i = 0; i < prompt->reference_count; i++) {
        char name[REFERENCE_NAME_BYTES];
        reference_name(i, name);
        const sumi_tensor* tensor = sumi_tensor_find(set, name);
        memcpy(prompt->references[i], tensor->data, (size_t)tensor->bytes);
    }
    for (int32_t e = 0; e < prompt->encoder_count; e++) {
        const sumi_tensor* tensor = sumi_tensor_find(set, s_tensor_names[e]);
        const size_t count = (size_t)prompt->token_count[e] * (size_t)prompt->width[e];
        const size_t bad = copy_finite(tensor->data, prompt->features[e], count);
        if (bad < count) {
            sumi_prompt_free(prompt);
            return sumi_fail(error, SUMI_FILE_MALFORMED, "the saved prompt holds NaN or infinity at value %zu", bad);
        }
    }
    *out_prompt = prompt;
    return SUMI_OK;
}

sumi_result sumi_prompt_load(sumi_model* model, const void* data, size_t bytes, sumi_prompt** out_prompt)
{
    if (out_prompt != NULL) *out_prompt = NULL;
    if (model == NULL) return SUMI_INVALID_ARGUMENT;
    sumi_engine* engine = model->engine;
    SUMI_TRY(sumi_call_begin(engine, "sumi_prompt_load"));
    sumi_error error = {0};
    if (data == NULL || out_prompt == NULL) {
        (void)sumi_fail(&error, SUMI_INVALID_ARGUMENT, "sumi_prompt_load: data or out_prompt is NULL");
        return sumi_call_end(engine, error.result, &error);
    }
    sumi_tensor_set set;
    sumi_tensor_set_init(&set, &engine->heap, NULL);
    sumi_result result = load_prompt(model, data, bytes, &set, out_prompt, &error);
    sumi_tensor_set_close(&set);
    return sumi_call_end(engine, result, &error);
}

void sumi_prompt_release(sumi_prompt* prompt)
{
    if (prompt != NULL && !sumi_call_is_foreign(prompt->engine)) sumi_prompt_free(prompt);
}
