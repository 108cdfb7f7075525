// Encoded prompts: made by a job, or read from bytes that sumi_prompt_save wrote.
//
// The bytes are a safetensors file: tensor "features" [tokens, width] (of a second encoder: "features.1"), in float32,
// bfloat16 or int8; for int8 also "features.row_scale" and "features.column_scale" (base/rows_int8.h); tensors of bytes
// "reference.0" [height, width, 3] and so on, for the references that the prompt was encoded with, or [height, width, 4]
// for a model that reads alpha; metadata with the version of the format, the family, the number of tokens, the
// adapters that the prompt was encoded with, and for some families the rows of the features at which references stand.
// Reading trusts nothing: sizes, types, names and metadata are all checked.
#include "base/assert.h"
#include "base/dtype.h"
#include "base/result.h"
#include "base/rows_int8.h"
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

#define FORMAT_VERSION "1"         // features in float32, as version 0.1 of sumi reads them
#define FORMAT_VERSION_SMALLER "2" // features in other types
#define MAX_TOKENS 65536

// The prompt is const for the host program. That its features are converted when they are first asked for is not part
// of that.
static const float* features_of(const sumi_prompt* prompt, int32_t encoder)
{
    return sumi_prompt_floats((sumi_prompt*)prompt, encoder);
}

sumi_prompt_info sumi_prompt_get_info(const sumi_prompt* prompt)
{
    sumi_prompt_info info = {.encoder_count = 0};
    _Static_assert(SUMI_MAX_TEXT_ENCODERS <= sizeof info.encoders / sizeof *info.encoders, "the header has room");
    if (prompt == NULL) return info;
    info.encoder_count = prompt->encoder_count;
    for (int32_t e = 0; e < prompt->encoder_count; e++) {
        info.encoders[e] = (sumi_prompt_encoder){
            .token_count = prompt->token_count[e], .width = prompt->width[e], .features = features_of(prompt, e)};
    }
    info.reference_count = prompt->reference_count;
    info.adapters = prompt->adapters;
    return info;
}

static const char* const s_tensor_names[SUMI_MAX_TEXT_ENCODERS] = {"features", "features.1"};
static const char* const s_row_scale_names[SUMI_MAX_TEXT_ENCODERS] = {"features.row_scale", "features.1.row_scale"};
static const char* const s_column_scale_names[SUMI_MAX_TEXT_ENCODERS] = {"features.column_scale",
                                                                         "features.1.column_scale"};

#define REFERENCE_NAME_BYTES 24
static void reference_name(int32_t index, char* into)
{
    snprintf(into, REFERENCE_NAME_BYTES, "reference.%d", (int)index);
}

// ---- Saving ---------------------------------------------------------------------------------------------------------

// The tensors of a file; those without data are converted into it.
typedef struct saved_tensors {
    sumi_tensor tensors[3 * SUMI_MAX_TEXT_ENCODERS + SUMI_MAX_REFERENCES];
    char reference_names[SUMI_MAX_REFERENCES][REFERENCE_NAME_BYTES];
    size_t count;
} saved_tensors;

static sumi_tensor* add_tensor(saved_tensors* saved, const char* name, sumi_dtype dtype, int64_t rows, int64_t cols)
{
    sumi_tensor* tensor = &saved->tensors[saved->count++];
    *tensor = (sumi_tensor){.name = name, .dtype = dtype, .rank = 2, .shape = {rows, cols}, .file_index = -1};
    tensor->bytes = sumi_dtype_bytes(dtype, (uint64_t)rows * (uint64_t)cols);
    return tensor;
}

static void add_features(saved_tensors* saved, const sumi_prompt* prompt, int32_t encoder, sumi_prompt_format format)
{
    const int64_t rows = prompt->token_count[encoder], cols = prompt->width[encoder];
    const sumi_dtype dtype = format == SUMI_PROMPT_F32  ? SUMI_DTYPE_F32
                           : format == SUMI_PROMPT_BF16 ? SUMI_DTYPE_BF16
                                                        : SUMI_DTYPE_I8;
    sumi_tensor* tensor = add_tensor(saved, s_tensor_names[encoder], dtype, rows, cols);
    if (format == SUMI_PROMPT_F32 && prompt->has_features) tensor->data = prompt->features[encoder];
    // What a job's features were rounded to may be infinite, so halves of features are not saved.
    if (format == SUMI_PROMPT_BF16 && !prompt->has_features) tensor->data = prompt->halves[encoder];
    if (format != SUMI_PROMPT_INT8) return;
    add_tensor(saved, s_row_scale_names[encoder], SUMI_DTYPE_BF16, rows, (int64_t)sumi_int8_groups((size_t)cols));
    add_tensor(saved, s_column_scale_names[encoder], SUMI_DTYPE_BF16, 1, cols);
}

static void add_references(saved_tensors* saved, const sumi_prompt* prompt)
{
    for (int32_t i = 0; i < prompt->reference_count; i++) {
        const sumi_picture_size size = prompt->reference_sizes[i];
        reference_name(i, saved->reference_names[i]);
        sumi_tensor* tensor = add_tensor(saved, saved->reference_names[i], SUMI_DTYPE_U8, size.height, size.width);
        tensor->rank = 3;
        tensor->shape[2] = prompt->picture_channels;
        tensor->bytes *= (uint64_t)prompt->picture_channels;
        tensor->data = prompt->references[i];
    }
}

#define PLACES_BYTES (24 * SUMI_MAX_REFERENCES)
// "row+count" of each reference, with blanks between them; "" if the model does not need to know.
static void write_places(const sumi_prompt* prompt, char into[PLACES_BYTES])
{
    size_t used = 0;
    into[0] = '\0';
    for (int32_t i = 0; i < prompt->reference_count && prompt->places[i].count > 0; i++)
        used += (size_t)snprintf(into + used, PLACES_BYTES - used, "%s%d+%d", i > 0 ? " " : "",
                                 (int)prompt->places[i].row, (int)prompt->places[i].count);
}

// Rounds to nearest even. Features are finite; those above the largest bfloat16 value become that.
static void convert_to_bf16(const float* from, size_t count, unsigned char* into)
{
    uint16_t halves[4096];
    for (size_t done = 0, piece; done < count; done += piece) {
        piece = count - done < sizeof halves / sizeof *halves ? count - done : sizeof halves / sizeof *halves;
        sumi_floats_to_bf16(from + done, halves, piece);
        for (size_t i = 0; i < piece; i++) halves[i] = (uint16_t)(halves[i] - ((halves[i] & 0x7fff) == 0x7f80));
        memcpy(into + done * sizeof *halves, halves, piece * sizeof *halves);
    }
}

static void convert_to_floats(const uint16_t* from, size_t count, unsigned char* into)
{
    float values[2048]; // `into` may have any alignment
    for (size_t done = 0, piece; done < count; done += piece) {
        piece = count - done < sizeof values / sizeof *values ? count - done : sizeof values / sizeof *values;
        sumi_dtype_to_float(SUMI_DTYPE_BF16, from + done, values, piece);
        memcpy(into + done * sizeof *values, values, piece * sizeof *values);
    }
}

// Writes the features of all encoders that are converted to `at`, where the first of the tensors begins.
static void convert_features(const sumi_prompt* prompt, const saved_tensors* saved, unsigned char* at)
{
    const sumi_tensor* tensor = saved->tensors;
    for (int32_t e = 0; e < prompt->encoder_count; e++) {
        const size_t rows = (size_t)prompt->token_count[e], cols = (size_t)prompt->width[e];
        if (tensor->dtype != SUMI_DTYPE_I8) {
            if (tensor->data == NULL && tensor->dtype == SUMI_DTYPE_BF16)
                convert_to_bf16(prompt->features[e], rows * cols, at);
            else if (tensor->data == NULL) convert_to_floats(prompt->halves[e], rows * cols, at);
            at += tensor++->bytes;
            continue;
        }
        unsigned char *row_scales = at + tensor[0].bytes, *column_scales = row_scales + tensor[1].bytes;
        sumi_rows_to_int8(features_of(prompt, e), &(sumi_int8_rows){rows, cols, at, row_scales, column_scales});
        at = column_scales + tensor[2].bytes;
        tensor += 3;
    }
}

static size_t refuse_format(sumi_engine* engine, int format)
{
    sumi_error error = {0};
    if (sumi_call_begin(engine, "sumi_prompt_save_as") != SUMI_OK) return 0;
    (void)sumi_fail(&error, SUMI_INVALID_ARGUMENT, "sumi_prompt_save_as: format is %d: no such format", format);
    (void)sumi_call_end(engine, error.result, &error);
    return 0;
}

size_t sumi_prompt_save_as(const sumi_prompt* prompt, sumi_prompt_format format, void* into, size_t capacity)
{
    if (prompt == NULL) return 0;
    if ((int)format < 0 || (int)format > SUMI_PROMPT_INT8) return refuse_format(prompt->engine, (int)format);
    saved_tensors saved;
    saved.count = 0;
    for (int32_t e = 0; e < prompt->encoder_count; e++) add_features(&saved, prompt, e, format);
    add_references(&saved, prompt);
    uint64_t data_bytes = 0;
    for (size_t i = 0; i < saved.count; i++) data_bytes += saved.tensors[i].bytes;
    char tokens[16];
    snprintf(tokens, sizeof tokens, "%d", (int)prompt->token_count[0]);
    char places[PLACES_BYTES];
    write_places(prompt, places);
    sumi_metadata metadata[5] = {{"sumi_prompt", format == SUMI_PROMPT_F32 ? FORMAT_VERSION : FORMAT_VERSION_SMALLER},
                                 {"family", prompt->family},
                                 {"token_count", tokens}};
    size_t metadata_count = 3;
    if (prompt->adapters[0] != '\0') metadata[metadata_count++] = (sumi_metadata){"adapters", prompt->adapters};
    if (places[0] != '\0') metadata[metadata_count++] = (sumi_metadata){"reference_rows", places};
    if (into == NULL) capacity = 0;
    const uint64_t bytes = sumi_safetensors_write(saved.tensors, saved.count, metadata, metadata_count, into, capacity);
    if (bytes > SIZE_MAX) return 0;
    if (bytes <= capacity) convert_features(prompt, &saved, (unsigned char*)into + (bytes - data_bytes));
    return (size_t)bytes;
}

size_t sumi_prompt_save(const sumi_prompt* prompt, void* into, size_t capacity)
{
    return sumi_prompt_save_as(prompt, SUMI_PROMPT_F32, into, capacity);
}

// ---- Loading --------------------------------------------------------------------------------------------------------

static bool is_bf16_matrix(const sumi_tensor* tensor, int64_t rows, int64_t cols)
{
    return tensor->dtype == SUMI_DTYPE_BF16 && tensor->rank == 2 && tensor->shape[0] == rows
        && tensor->shape[1] == cols;
}

// Whether int8 features have their scales, and others none.
static sumi_result check_scales(const sumi_tensor_set* set, int32_t encoder, const sumi_tensor* features,
                                sumi_error* error)
{
    const int64_t rows = features->shape[0], cols = features->shape[1],
                  groups = (int64_t)sumi_int8_groups((size_t)cols);
    const struct {
        const char* name;
        int64_t rows, cols;
    } scales[] = {{s_row_scale_names[encoder], rows, groups}, {s_column_scale_names[encoder], 1, cols}};
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        const sumi_tensor* tensor = sumi_tensor_find(set, scales[i].name);
        if (features->dtype != SUMI_DTYPE_I8) {
            if (tensor == NULL) continue;
            return sumi_fail(error, SUMI_FILE_MALFORMED,
                             "the saved prompt has a tensor \"%s\", but its features are not int8: save it again",
                             scales[i].name);
        }
        if (tensor == NULL)
            return sumi_fail(error, SUMI_FILE_MALFORMED,
                             "the saved prompt's features are int8, but it has no tensor \"%s\": save it again",
                             scales[i].name);
        if (!is_bf16_matrix(tensor, scales[i].rows, scales[i].cols)) {
            return sumi_fail(error, SUMI_FILE_MALFORMED,
                             "the saved prompt's tensor \"%s\" is not a bfloat16 matrix of %lld x %lld: save it again",
                             scales[i].name, (long long)scales[i].rows, (long long)scales[i].cols);
        }
    }
    return SUMI_OK;
}

static bool is_feature_type(sumi_dtype dtype)
{
    return dtype == SUMI_DTYPE_F32 || dtype == SUMI_DTYPE_BF16 || dtype == SUMI_DTYPE_F16 || dtype == SUMI_DTYPE_I8;
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
    if (strcmp(version, FORMAT_VERSION) != 0 && strcmp(version, FORMAT_VERSION_SMALLER) != 0) {
        return sumi_fail(error, SUMI_FILE_MALFORMED,
                         "the saved prompt has format %.16s, this version reads %s and %s: encode it again", version,
                         FORMAT_VERSION, FORMAT_VERSION_SMALLER);
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
        if (!is_feature_type(tensor->dtype) || tensor->rank != 2 || tensor->shape[0] < 1
            || tensor->shape[0] > (info->is_pooled[e] ? 1 : MAX_TOKENS)) {
            return sumi_fail(error, SUMI_FILE_MALFORMED,
                             "the saved prompt's tensor \"%s\" is not a matrix of 1 to %d rows in float32, bfloat16, "
                             "float16 or int8",
                             s_tensor_names[e], info->is_pooled[e] ? 1 : MAX_TOKENS);
        }
        if (tensor->shape[1] != info->feature_width[e]) {
            return sumi_fail(
                error, SUMI_TENSOR_MISMATCH,
                "the saved prompt is %lld wide, this model's features are %d: it was encoded by another text encoder",
                (long long)tensor->shape[1], (int)info->feature_width[e]);
        }
        SUMI_TRY(check_scales(set, e, tensor, error));
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
        if (tensor->dtype != SUMI_DTYPE_U8 || tensor->rank != 3 || tensor->shape[2] != info->picture_channels
            || tensor->shape[0] < 1 || tensor->shape[1] < 1 || tensor->shape[0] > SUMI_PIXELS_MAX_SIDE
            || tensor->shape[1] > SUMI_PIXELS_MAX_SIDE) {
            return sumi_fail(error, SUMI_FILE_MALFORMED,
                             "the saved prompt's tensor \"%s\" is not an image: bytes [height, width, %d]", name,
                             (int)info->picture_channels);
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
    shape->picture_channels = info->picture_channels;
    return SUMI_OK;
}

// Reads a number of digits alone, below MAX_TOKENS; -1: there is none.
static int32_t read_row(const char** at)
{
    int32_t row = **at >= '0' && **at <= '9' ? 0 : -1;
    for (; row >= 0 && **at >= '0' && **at <= '9'; (*at)++) row = row < MAX_TOKENS ? 10 * row + (**at - '0') : -1;
    return row;
}

// Reads where the references of a saved prompt stand: "row+count" of each, one after the other, within the features.
static sumi_result read_saved_places(const sumi_model* model, const sumi_tensor_set* set, sumi_prompt_shape* shape,
                                     sumi_error* error)
{
    const char *text = sumi_metadata_find(set, "reference_rows"), *at = text != NULL ? text : "";
    if (!model->info.prompts_place_references || shape->reference_count == 0) return SUMI_OK;
    bool is_good = true;
    for (int32_t i = 0, after = 0; i < shape->reference_count && is_good; i++) {
        sumi_reference_place* place = &shape->places[i];
        if (i > 0 && *at == ' ') at++;
        place->row = read_row(&at);
        is_good = place->row >= after && *at++ == '+';
        if (is_good) place->count = read_row(&at);
        is_good = is_good && place->count >= 1 && place->count <= shape->token_count[0] - place->row;
        after = place->row + place->count;
    }
    if (is_good && *at == '\0') return SUMI_OK;
    return sumi_fail(
        error, SUMI_FILE_MALFORMED,
        "the saved prompt's \"reference_rows\" are \"%.80s\", which do not say where its %d images stand in "
        "its %d tokens: encode it again",
        text != NULL ? text : "", (int)shape->reference_count, (int)shape->token_count[0]);
}

// Returns the index of the first value that is NaN or infinite; `count`: there is none. Has no branch per value.
static size_t first_not_finite(const float* values, size_t count)
{
    int32_t bad = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        bad += (bits & 0x7f800000u) == 0x7f800000u;
    }
    size_t first = bad == 0 ? count : 0;
    while (first < count && isfinite(values[first])) first++;
    return first;
}

// Copies features in bfloat16. Returns the index of the first value that is NaN or infinite, or the number of values.
static size_t read_saved_halves(const sumi_tensor_set* set, int32_t encoder, uint16_t* into)
{
    const sumi_tensor* tensor = sumi_tensor_find(set, s_tensor_names[encoder]);
    const size_t count = (size_t)tensor->shape[0] * (size_t)tensor->shape[1];
    memcpy(into, tensor->data, count * sizeof *into);
    int32_t bad = 0; // without a branch per value, as in first_not_finite
    for (size_t i = 0; i < count; i++) bad += !sumi_bf16_is_finite(into[i]);
    size_t first = bad == 0 ? count : 0;
    while (first < count && sumi_bf16_is_finite(into[first])) first++;
    return first;
}

// Reads the features of a text encoder as float32. Returns the index of the first value that is NaN or infinite, or the
// number of values. The host program calls this inside a frame, so each block is checked while it is still in the
// first-level cache.
static size_t read_saved(const sumi_tensor_set* set, int32_t encoder, float* into)
{
    enum { BLOCK = 4096 };
    const sumi_tensor* tensor = sumi_tensor_find(set, s_tensor_names[encoder]);
    const unsigned char* from = tensor->data;
    const size_t cols = (size_t)tensor->shape[1], count = (size_t)tensor->shape[0] * cols;
    const bool is_int8 = tensor->dtype == SUMI_DTYPE_I8;
    const unsigned char *row_scales = NULL, *column_scales = NULL;
    if (is_int8) {
        row_scales = sumi_tensor_find(set, s_row_scale_names[encoder])->data;
        column_scales = sumi_tensor_find(set, s_column_scale_names[encoder])->data;
    }
    const size_t bytes = (size_t)sumi_dtype_bytes(tensor->dtype, 1), block = is_int8 ? cols : BLOCK;
    for (size_t begin = 0, piece; begin < count; begin += piece) {
        piece = count - begin < block ? count - begin : block;
        if (is_int8) {
            sumi_row_from_int8(cols, from + begin, row_scales, column_scales, into + begin);
            row_scales += 2 * sumi_int8_groups(cols);
        } else {
            sumi_dtype_to_float(tensor->dtype, from + begin * bytes, into + begin, piece);
        }
        const size_t bad = first_not_finite(into + begin, piece);
        if (bad < piece) return begin + bad;
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
    SUMI_TRY(read_saved_places(model, set, &shape, error));
    SUMI_TRY(sumi_prompt_create(model->engine, &shape, &prompt, error));
    for (int32_t i = 0; i < prompt->reference_count; i++) {
        char name[REFERENCE_NAME_BYTES];
        reference_name(i, name);
        const sumi_tensor* tensor = sumi_tensor_find(set, name);
        memcpy(prompt->references[i], tensor->data, (size_t)tensor->bytes);
    }
    // Where jobs read bfloat16, features that were saved in it are only copied.
    bool is_in_halves = true;
    for (int32_t e = 0; e < prompt->encoder_count; e++)
        is_in_halves = is_in_halves && prompt->halves[e] != NULL
                    && sumi_tensor_find(set, s_tensor_names[e])->dtype == SUMI_DTYPE_BF16;
    prompt->has_halves = is_in_halves;
    prompt->has_features = !is_in_halves;
    for (int32_t e = 0; e < prompt->encoder_count; e++) {
        const size_t bad =
            is_in_halves ? read_saved_halves(set, e, prompt->halves[e]) : read_saved(set, e, prompt->features[e]);
        if (bad < sumi_prompt_value_count(prompt, e)) {
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
