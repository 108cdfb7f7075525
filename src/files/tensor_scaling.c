#include "files/tensor_scaling.h"
#include "base/assert.h"
#include "base/rotation.h"
#include "files/json.h"
#include <stdio.h>
#include <string.h>

// ---- What the file says about a layer -------------------------------------------------------------------------------

typedef struct layer_format {
    char format[64]; // "" if the file does not say
    bool is_rotated;
    int64_t rotation_group; // columns that are rotated together
    int64_t scale_group;    // columns that share a scale; 0: not given
    char unknown[32];       // a member that is true and not known, such as another rotation; "": none
} layer_format;

// What says nothing about the values.
static bool is_note(const sumi_json_text* key)
{
    static const char* const s_notes[] = {"per_row", "full_precision_matrix_mult", "symmetric"};
    bool is_known = false;
    for (size_t i = 0; i < sizeof s_notes / sizeof *s_notes; i++) is_known = is_known || sumi_json_is(key, s_notes[i]);
    return is_known;
}

// Reads {"format": "int8_tensorwise", "convrot": true, "convrot_groupsize": 256}. All but the first may be in an object
// "params" instead. The older files of ComfyUI-INT8-Fast have no format: {"convrot": true, "per_row": true}.
static sumi_result read_format(sumi_json* json, layer_format* out)
{
    sumi_json_text key, text;
    sumi_json_object(json);
    while (sumi_json_key(json, &key)) {
        const sumi_json_type type = sumi_json_peek(json);
        if (sumi_json_is(&key, "format") && sumi_json_string(json, &text)) {
            const size_t bytes = sumi_json_decode(&text, out->format, sizeof out->format - 1);
            out->format[bytes < sizeof out->format ? bytes : 0] = '\0';
            if (bytes >= sizeof out->format) sumi_json_refuse(json, "a format with an overlong name");
        } else if (sumi_json_is(&key, "convrot_groupsize")) {
            out->rotation_group = sumi_json_integer(json);
        } else if (sumi_json_is(&key, "group_size") && type == SUMI_JSON_NUMBER) {
            out->scale_group = sumi_json_integer(json);
        } else if (sumi_json_is(&key, "params") && type == SUMI_JSON_OBJECT) {
            SUMI_TRY(read_format(json, out));
        } else {
            const bool is_convrot = sumi_json_is(&key, "convrot");
            out->is_rotated = out->is_rotated || (is_convrot && type == SUMI_JSON_TRUE);
            if (type == SUMI_JSON_TRUE && !is_convrot && !is_note(&key)) {
                snprintf(out->unknown, sizeof out->unknown, "%.*s",
                         (int)(key.bytes < sizeof out->unknown ? key.bytes : sizeof out->unknown - 1), key.data);
            }
            sumi_json_skip(json);
        }
    }
    return json->failed ? json->failure : SUMI_OK;
}

// Reads a layer's entry in the header's metadata: {"format_version": ..., "layers": {L: {"format": ...}}}, where L is
// the layer's name with or without the component's prefix.
static sumi_result format_of_metadata(const sumi_component* component, const char* text, const char* layer,
                                      layer_format* out, sumi_error* error)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", component->prefix, layer);
    sumi_json json;
    sumi_json_text key, name;
    sumi_json_begin(&json, text, strlen(text), error);
    json.name = component->path;
    sumi_json_object(&json);
    while (sumi_json_key(&json, &key)) {
        if (!sumi_json_is(&key, "layers")) {
            sumi_json_skip(&json);
            continue;
        }
        sumi_json_object(&json);
        while (sumi_json_key(&json, &name)) {
            if (sumi_json_is(&name, full) || sumi_json_is(&name, layer)) {
                SUMI_TRY(read_format(&json, out));
            } else {
                sumi_json_skip(&json);
            }
        }
    }
    return sumi_json_end(&json);
}

static const sumi_tensor* find_beside(const sumi_component* component, const char* layer, const char* suffix)
{
    char name[512];
    const int written = snprintf(name, sizeof name, "%s%s", layer, suffix);
    return written > 0 && (size_t)written < sizeof name ? sumi_component_find(component, name) : NULL;
}

// Finds what the files say about a layer's quantisation: a tensor "comfy_quant", otherwise the metadata of the headers.
static sumi_result find_format(const sumi_component* component, const char* layer, layer_format* out, sumi_error* error)
{
    *out = (layer_format){.rotation_group = SUMI_ROTATION_MAX};
    const sumi_tensor* quant = find_beside(component, layer, ".comfy_quant");
    if (quant != NULL) {
        sumi_json json;
        sumi_json_begin(&json, quant->data, (size_t)quant->bytes, error);
        json.name = component->path;
        SUMI_TRY(read_format(&json, out));
        return sumi_json_end(&json);
    }
    for (size_t i = 0; i < component->set->metadata_count; i++) { // every shard may have its own metadata
        const sumi_metadata* metadata = &component->set->metadata[i];
        if (strcmp(metadata->key, "_quantization_metadata") == 0)
            SUMI_TRY(format_of_metadata(component, metadata->value, layer, out, error));
    }
    return SUMI_OK;
}

// ---- A weight and the tensors beside it -----------------------------------------------------------------------------

typedef struct stored_weight {
    const sumi_component* component;
    char layer[480];
    const sumi_tensor* weight;
    layer_format said;
    const sumi_tensor *scale, *second_scale, *column_scale, *codebook, *row_scale;
    sumi_tensor_scaling* out;
    sumi_error* error;
} stored_weight;

static int64_t values_in(const sumi_tensor* tensor)
{
    uint64_t count = 1; // unsigned: an empty tensor may have any other extents
    for (int32_t i = 0; i < tensor->rank; i++) count *= (uint64_t)tensor->shape[i];
    return (int64_t)count;
}

static bool is_format(const stored_weight* w, const char* format) { return strcmp(w->said.format, format) == 0; }

static bool is_fp8(sumi_dtype dtype) { return dtype == SUMI_DTYPE_F8_E4M3 || dtype == SUMI_DTYPE_F8_E5M2; }

static bool is_wide_float(sumi_dtype dtype)
{
    return dtype == SUMI_DTYPE_F32 || dtype == SUMI_DTYPE_BF16 || dtype == SUMI_DTYPE_F16 || dtype == SUMI_DTYPE_F64;
}

// `reason` ends "is quantised as ..."
static sumi_result refuse_weight(const stored_weight* w, const char* reason)
{
    return sumi_fail(w->error, SUMI_NOT_SUPPORTED,
                     "%s: tensor %s%s.weight is quantised as %s, which is not supported; " SUMI_QUANTISATION_ADVICE,
                     w->component->path, w->component->prefix, w->layer, reason);
}

// What a message calls the format.
static const char* format_name(const stored_weight* w)
{
    return w->said.format[0] != '\0'         ? w->said.format
         : is_fp8(w->weight->dtype)          ? "fp8"
         : w->weight->dtype == SUMI_DTYPE_I8 ? "int8"
         : w->second_scale != NULL           ? "nvfp4"
                                             : sumi_dtype_get(w->weight->dtype)->name;
}

// Whether `own`, the name of a tensor after a layer's name and a dot, is known beside a quantised weight. Tensors of
// modules below the layer ("norm.weight") are not beside it, unless they are parts of the weight ("weight.x").
static bool is_known_neighbour(const char* own)
{
    static const char* const s_known[] = {
        "weight", "bias", "comfy_quant", "weight_scale", "scale_weight", "weight_scale_inv", "scale", "weight_scale_2",
        "pre_quant_scale", "weight_s_rel", "weight_s_channel", "weight_codebook",
        // of activations, which are not quantised here
        "input_scale", "scale_input", "input_scale_ub", "input_scale_inv", "activation_scale", "activation_scale_ub",
        "input_zero_point", "output_scale", "scale_output", "k_scale", "v_scale", "q_scale"};
    bool is_known = strchr(own, '.') != NULL && strncmp(own, "weight.", 7) != 0;
    for (size_t k = 0; k < sizeof s_known / sizeof *s_known && !is_known; k++) is_known = strcmp(own, s_known[k]) == 0;
    return is_known;
}

static bool is_narrow(sumi_dtype dtype) { return is_fp8(dtype) || dtype == SUMI_DTYPE_I8 || dtype == SUMI_DTYPE_U8; }

bool sumi_tensor_neighbours_are_known(const sumi_component* component)
{
    for (size_t i = 0; component->present && i < component->set->count; i++) {
        const char* name = sumi_component_tensor_name(component, &component->set->tensors[i]);
        const char* part = name != NULL ? strstr(name, ".weight.") : NULL;
        const char* dot = part != NULL ? part : name != NULL ? strrchr(name, '.') : NULL;
        char weight_name[512];
        if (dot == NULL || is_known_neighbour(dot + 1)) continue;
        if (snprintf(weight_name, sizeof weight_name, "%.*s.weight", (int)(dot - name), name)
            >= (int)sizeof weight_name)
            return false; // found out for each weight
        const sumi_tensor* weight = sumi_component_find(component, weight_name);
        if (weight != NULL && is_narrow(weight->dtype)) return false;
    }
    return true;
}

// Everything beside a quantised weight has to be known: an overlooked factor is a wrong picture without a word.
static sumi_result check_neighbours(const stored_weight* w)
{
    const size_t layer_bytes = strlen(w->layer);
    for (size_t i = 0; i < w->component->set->count && !w->component->knows_neighbours; i++) {
        const char* name = sumi_component_tensor_name(w->component, &w->component->set->tensors[i]);
        if (name == NULL || strncmp(name, w->layer, layer_bytes) != 0 || name[layer_bytes] != '.') continue;
        const char* own = name + layer_bytes + 1;
        if (is_known_neighbour(own)) continue;
        return sumi_fail(w->error, SUMI_NOT_SUPPORTED,
                         "%s: beside the quantised (%s) tensor %s%s.weight there is %s, and what it does to the weight "
                         "is not known; " SUMI_QUANTISATION_ADVICE,
                         w->component->path, format_name(w), w->component->prefix, w->layer, own);
    }
    return SUMI_OK;
}

// ---- Scales ---------------------------------------------------------------------------------------------------------

// Checks that all values are of a known type and finite. Powers of two have one code for NaN, and pictures are checked
// for that.
static sumi_result check_finite(const stored_weight* w, const sumi_tensor* tensor)
{
    const int64_t count = values_in(tensor);
    if (!is_wide_float(tensor->dtype) && tensor->dtype != SUMI_DTYPE_F8_E8M0) {
        return sumi_fail(w->error, SUMI_NOT_SUPPORTED,
                         "%s: the scale %s is of type %s; only F32, F16 and BF16 are supported", w->component->path,
                         tensor->name, sumi_dtype_get(tensor->dtype)->name);
    }
    const int32_t step = sumi_dtype_get(tensor->dtype)->block_bytes;
    for (int64_t i = 0; step > 1 && i < count; i++) {
        float scale;
        sumi_dtype_to_float(tensor->dtype, (const unsigned char*)tensor->data + i * step, &scale, 1);
        if (!(scale - scale == 0.0f)) { // infinity or NaN
            return sumi_fail(w->error, SUMI_FILE_MALFORMED, "%s: the scale %s is not finite", w->component->path,
                             tensor->name);
        }
    }
    return SUMI_OK;
}

static sumi_result use_single(const stored_weight* w, const sumi_tensor* scale)
{
    SUMI_TRY(check_finite(w, scale));
    sumi_dtype_to_float(scale->dtype, scale->data, &w->out->scale, 1);
    w->out->is_scaled = true;
    return SUMI_OK;
}

// Whether there is a scale for each row of the weight: [rows], [rows, 1] and so on.
static bool is_for_rows(const stored_weight* w, const sumi_tensor* scale)
{
    return w->weight->rank >= 2 && scale->rank >= 1 && scale->shape[0] == w->weight->shape[0]
        && values_in(scale) == scale->shape[0];
}

static sumi_result use_rows(const stored_weight* w, const sumi_tensor* scale)
{
    SUMI_TRY(check_finite(w, scale));
    w->out->is_scaled = true;
    if (scale->dtype == SUMI_DTYPE_F32) {
        w->out->row_scales = scale->data;
        return SUMI_OK;
    }
    w->out->has_decoding = true;
    sumi_decoding* decoding = &w->out->decoding;
    SUMI_ASSERT(decoding->scales == NULL); // rows beside blocks are F32
    decoding->scales = scale->data;
    decoding->scale_dtype = scale->dtype;
    decoding->block_rows = decoding->pitch = 1;
    decoding->block_cols = INT32_MAX;
    return SUMI_OK;
}

// The length of the blocks of a dimension that is cut into `count` of them: the given one, otherwise 128, otherwise a
// power of two that divides it. 0: none of these.
static int64_t block_length(int64_t extent, int64_t count, int64_t given)
{
    if (count < 1 || given < 0 || given > INT32_MAX) return 0;
    if (given > 0) return (extent + given - 1) / given == count ? given : 0;
    if ((extent + 127) / 128 == count) return 128;
    const int64_t length = extent / count;
    return extent % count == 0 && (length & (length - 1)) == 0 ? length : 0;
}

// Scales of blocks, [block rows, block columns], maybe followed by a 1.
static bool use_blocks(const stored_weight* w, const sumi_tensor* scale)
{
    const bool is_flat = scale->rank == 2 || (scale->rank == 3 && scale->shape[2] == 1);
    const sumi_tensor* weight = w->weight;
    if (!is_flat || weight->rank != 2 || weight->shape[0] > INT32_MAX || weight->shape[1] > INT32_MAX / 2) return false;
    const int64_t group = w->said.scale_group, cols = weight->shape[1] * w->out->packed;
    const int64_t said_rows = w->component->quantisation.block_rows, said_cols = w->component->quantisation.block_cols;
    // one row of blocks for each row of the weight, or as many rows in a block as columns
    const int64_t rows = scale->shape[0] == weight->shape[0] && said_rows == 0
                           ? 1
                           : block_length(weight->shape[0], scale->shape[0], said_rows != 0 ? said_rows : group);
    const int64_t length = block_length(cols, scale->shape[1], said_cols != 0 ? said_cols : group);
    if (rows < 1 || length < 1) return false;
    w->out->is_scaled = w->out->has_decoding = true;
    w->out->decoding.scales = scale->data;
    w->out->decoding.scale_dtype = scale->dtype;
    w->out->decoding.block_rows = (int32_t)rows;
    w->out->decoding.block_cols = (int32_t)length;
    w->out->decoding.pitch = (int32_t)scale->shape[1];
    return true;
}

// A scale for each `length` columns of each row, in cuBLAS's tiles or in rows. False if the tensor is of another size.
static bool use_fine_blocks(const stored_weight* w, int32_t length, bool is_tiled)
{
    const int64_t rows = w->weight->shape[0], cols = w->weight->shape[1] * w->out->packed;
    if (w->weight->rank != 2 || rows < 1 || rows > INT32_MAX / 2 || cols < 1 || cols > INT32_MAX / 2
        || cols % length != 0)
        return false;
    const int64_t blocks = cols / length, pitch = is_tiled ? (blocks + 3) / 4 * 4 : blocks;
    if (values_in(w->scale) != (is_tiled ? (rows + 127) / 128 * 128 : rows) * pitch) return false;
    w->out->is_scaled = w->out->has_decoding = true;
    w->out->decoding.scales = w->scale->data;
    w->out->decoding.block_rows = 1;
    w->out->decoding.block_cols = length;
    w->out->decoding.pitch = (int32_t)pitch;
    w->out->decoding.is_tiled = is_tiled;
    return true;
}

// The type of the scales in the file, where bytes stand for `narrow`. SUMI_DTYPE_NONE: neither of them.
static sumi_dtype type_of_bytes(const sumi_tensor* scale, sumi_dtype narrow)
{
    return scale->dtype == SUMI_DTYPE_U8 || scale->dtype == narrow ? narrow : SUMI_DTYPE_NONE;
}

// "scale" alone may also be what the weight was multiplied by (448 / largest). Only a factor that undoes that is below 1:
// the largest weight would be 448 or more otherwise.
static bool undoes_quantisation(const sumi_tensor* scale)
{
    const int32_t step = sumi_dtype_get(scale->dtype)->block_bytes;
    const int64_t count = is_wide_float(scale->dtype) ? values_in(scale) : 0;
    bool is_small = is_wide_float(scale->dtype);
    for (int64_t i = 0; is_small && i < count; i++) {
        float value;
        sumi_dtype_to_float(scale->dtype, (const unsigned char*)scale->data + i * step, &value, 1);
        is_small = value <= 1.0f;
    }
    return is_small;
}

// ---- Formats --------------------------------------------------------------------------------------------------------

static sumi_result use_rotation(const stored_weight* w)
{
    const int64_t group = w->said.rotation_group, cols = w->weight->shape[1] * w->out->packed;
    char text[192];
    if (w->weight->rank != 2 || !sumi_rotation_is_known(group)) {
        snprintf(text, sizeof text, "%s, convrot in groups of %lld", format_name(w), (long long)group);
        return refuse_weight(w, text);
    }
    if (cols % group != 0) {
        return sumi_fail(w->error, SUMI_FILE_MALFORMED,
                         "%s: tensor %s%s.weight has rows of %lld values, not a multiple of the %lld that are rotated "
                         "together",
                         w->component->path, w->component->prefix, w->layer, (long long)cols, (long long)group);
    }
    w->out->rotation = (int32_t)group;
    return SUMI_OK;
}

// fp8 and int8 with a scale of any shape.
static sumi_result use_8bit(const stored_weight* w)
{
    char text[192];
    const bool is_int8 = w->weight->dtype == SUMI_DTYPE_I8;
    if (is_int8 && w->scale == NULL) {
        snprintf(text, sizeof text, "%s without a scale", format_name(w));
        return refuse_weight(w, text);
    }
    if (w->scale == find_beside(w->component, w->layer, ".scale") && w->scale != NULL
        && !undoes_quantisation(w->scale)) {
        snprintf(text, sizeof text, "%s with a scale above 1, which may be a factor or a divisor", format_name(w));
        return refuse_weight(w, text);
    }
    if (w->said.is_rotated) {
        if (!is_int8 || (!is_format(w, "int8_tensorwise") && !is_format(w, ""))) {
            snprintf(text, sizeof text, "%s, convrot in groups of %lld", format_name(w),
                     (long long)w->said.rotation_group);
            return refuse_weight(w, text);
        }
        SUMI_TRY(use_rotation(w));
    }
    if (w->scale == NULL) return SUMI_OK;
    if (values_in(w->scale) == 1) return use_single(w, w->scale);
    if (is_for_rows(w, w->scale)) return use_rows(w, w->scale);
    // A power of two for each row and 32 columns may lie in tiles or not: mxfp8 without its name.
    const bool is_power = w->scale->dtype == SUMI_DTYPE_F8_E8M0 || w->scale->dtype == SUMI_DTYPE_U8;
    const bool is_mxfp8 = is_power && !is_int8 && w->scale->rank >= 1 && w->scale->shape[0] >= w->weight->shape[0];
    if (!is_mxfp8) SUMI_TRY(check_finite(w, w->scale));
    if (is_mxfp8 || w->said.is_rotated || !use_blocks(w, w->scale)) {
        snprintf(text, sizeof text, "%s with a scale per block of %s", is_mxfp8 ? "mxfp8 (fp8" : format_name(w),
                 is_mxfp8 ? "32 columns) whose order the file does not say" : "an unknown size");
        return refuse_weight(w, text);
    }
    return SUMI_OK;
}

static sumi_result use_mxfp8(const stored_weight* w)
{
    if (w->scale == NULL || !is_fp8(w->weight->dtype)) return refuse_weight(w, "mxfp8 without its scales");
    w->out->decoding.scale_dtype = type_of_bytes(w->scale, SUMI_DTYPE_F8_E8M0);
    if (w->out->decoding.scale_dtype == SUMI_DTYPE_NONE || !use_fine_blocks(w, 32, true))
        return refuse_weight(w, "mxfp8 with scales that are not F8_E8M0 in tiles of 128 x 4");
    return SUMI_OK;
}

static void use_codes(const stored_weight* w, const float codes[SUMI_CODE_COUNT])
{
    w->out->has_decoding = w->out->decoding.has_codes = true;
    memcpy(w->out->decoding.codes, codes, sizeof w->out->decoding.codes);
}

static void use_integer_codes(const stored_weight* w, bool is_signed)
{
    float codes[SUMI_CODE_COUNT];
    for (int32_t i = 0; i < SUMI_CODE_COUNT; i++) codes[i] = (float)(is_signed ? i - (i >= 8 ? 16 : 0) : i - 8);
    use_codes(w, codes);
}

static sumi_result use_nvfp4(const stored_weight* w)
{
    static const float s_e2m1[SUMI_CODE_COUNT] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                                  -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
    const bool is_comfy = is_format(w, "nvfp4");
    const sumi_quantisation* quantisation = &w->component->quantisation;
    if (!is_comfy && strcmp(quantisation->method, "modelopt") != 0)
        return refuse_weight(w, "nvfp4 by a program that the file does not name (the order of the elements differs)");
    if (w->scale == NULL) return refuse_weight(w, "nvfp4 without its scales");
    use_codes(w, s_e2m1);
    w->out->decoding.high_first = is_comfy || quantisation->has_swapped_codes;
    w->out->decoding.scale_dtype = type_of_bytes(w->scale, SUMI_DTYPE_F8_E4M3);
    if (w->out->decoding.scale_dtype == SUMI_DTYPE_NONE || !use_fine_blocks(w, 16, is_comfy))
        return refuse_weight(w, is_comfy ? "nvfp4 with scales that are not F8_E4M3 in tiles of 128 x 4"
                                         : "nvfp4 with scales that are not F8_E4M3 for each 16 columns");
    if (w->second_scale == NULL) return SUMI_OK;
    return values_in(w->second_scale) == 1 ? use_single(w, w->second_scale)
                                           : refuse_weight(w, "nvfp4 with more than one weight_scale_2");
}

static sumi_result use_w4a4(const stored_weight* w)
{
    if (w->scale == NULL || !is_for_rows(w, w->scale)) return refuse_weight(w, "convrot_w4a4 without a scale per row");
    use_integer_codes(w, true);
    if (w->scale->dtype != SUMI_DTYPE_F32) return refuse_weight(w, "convrot_w4a4 with scales that are not F32");
    SUMI_TRY(use_rotation(w));
    return use_rows(w, w->scale);
}

static sumi_result use_w4a8(const stored_weight* w)
{
    const int64_t group = w->said.scale_group != 0 ? w->said.scale_group : 16;
    if (w->scale == NULL || w->row_scale == NULL || !is_for_rows(w, w->row_scale)
        || w->row_scale->dtype != SUMI_DTYPE_F32)
        return refuse_weight(w, "asym_w4a8_int8 without weight_s_rel and weight_s_channel");
    if (w->codebook != NULL) {
        if (w->codebook->dtype != SUMI_DTYPE_F32 || values_in(w->codebook) != SUMI_CODE_COUNT)
            return refuse_weight(w, "asym_w4a8_int8 with a codebook that is not 16 values of F32");
        SUMI_TRY(check_finite(w, w->codebook));
        float codes[SUMI_CODE_COUNT];
        memcpy(codes, w->codebook->data, sizeof codes);
        use_codes(w, codes);
    } else {
        use_integer_codes(w, false);
    }
    w->out->decoding.is_rounded = true;
    w->out->decoding.scale_dtype =
        w->scale->dtype == SUMI_DTYPE_F32 ? SUMI_DTYPE_F32 : type_of_bytes(w->scale, SUMI_DTYPE_F8_E4M3);
    if (w->out->decoding.scale_dtype == SUMI_DTYPE_NONE || group < 2 || group > 1024
        || !use_fine_blocks(w, (int32_t)group, false))
        return refuse_weight(w, "asym_w4a8_int8 with scales of an unknown size or type");
    if (w->scale->dtype == SUMI_DTYPE_F32) SUMI_TRY(check_finite(w, w->scale));
    SUMI_TRY(use_rotation(w));
    return use_rows(w, w->row_scale);
}

// ModelOpt's AWQ multiplies the input of the layer by a factor for each feature: a column of the weight.
static sumi_result use_column_scale(const stored_weight* w)
{
    const int64_t cols = w->weight->rank == 2 ? w->weight->shape[1] * w->out->packed : 0;
    if (!is_wide_float(w->column_scale->dtype) || values_in(w->column_scale) != cols)
        return refuse_weight(w, "AWQ with a pre_quant_scale that is not a factor for each column");
    SUMI_TRY(check_finite(w, w->column_scale));
    w->out->has_decoding = true;
    w->out->decoding.column_scales = w->column_scale->data;
    w->out->decoding.column_dtype = w->column_scale->dtype;
    return SUMI_OK;
}

// Finds the tensors with scales. A file has one of the first names; "scale" is a name that layers have without being
// quantised, too.
static sumi_result find_scales(stored_weight* w)
{
    static const char* const s_names[] = {".weight_scale", ".scale_weight", ".weight_scale_inv", ".weight_s_rel",
                                          ".scale"};
    const bool is_8bit = is_fp8(w->weight->dtype) || w->weight->dtype == SUMI_DTYPE_I8;
    for (size_t i = 0; i < sizeof s_names / sizeof *s_names; i++) {
        const sumi_tensor* scale = find_beside(w->component, w->layer, s_names[i]);
        if (scale == NULL || (!is_8bit && strcmp(s_names[i], ".scale") == 0)) continue;
        if (w->scale != NULL) {
            char text[192];
            snprintf(text, sizeof text, "%s with two scales, one of them %s", format_name(w), s_names[i] + 1);
            return refuse_weight(w, text);
        }
        w->scale = scale;
    }
    w->second_scale = find_beside(w->component, w->layer, ".weight_scale_2");
    w->row_scale = find_beside(w->component, w->layer, ".weight_s_channel");
    w->codebook = find_beside(w->component, w->layer, ".weight_codebook");
    w->column_scale = find_beside(w->component, w->layer, ".pre_quant_scale");
    return SUMI_OK;
}

static sumi_result use_format(const stored_weight* w)
{
    const sumi_dtype dtype = w->weight->dtype;
    if (w->said.unknown[0] != '\0') {
        char text[192];
        snprintf(text, sizeof text, "%s with \"%s\"", format_name(w), w->said.unknown);
        return refuse_weight(w, text);
    }
    const bool is_4bit = is_format(w, "nvfp4") || is_format(w, "convrot_w4a4") || is_format(w, "asym_w4a8_int8")
                      || (w->said.format[0] == '\0' && dtype == SUMI_DTYPE_U8 && w->second_scale != NULL);
    const bool is_fp8_format = is_format(w, "float8_e4m3fn") || is_format(w, "float8_e4m3fn_rowwise")
                            || is_format(w, "float8_e4m3fn_blockwise") || is_format(w, "float8_e4m3fn_block3d")
                            || is_format(w, "float8_e5m2");
    const bool is_int8_format = is_format(w, "int8_tensorwise") || is_format(w, "int8_blockwise");
    if (is_4bit
        && (w->weight->rank != 2 || (dtype != SUMI_DTYPE_U8 && dtype != SUMI_DTYPE_I8)
            || w->weight->shape[1] > INT32_MAX / 2)) {
        return refuse_weight(w, format_name(w));
    }
    w->out->packed = is_4bit ? 2 : 1;
    if (is_format(w, "convrot_w4a4")) return use_w4a4(w);
    if (is_format(w, "asym_w4a8_int8")) return use_w4a8(w);
    if (is_4bit) return use_nvfp4(w);
    if (is_format(w, "mxfp8")) return use_mxfp8(w);
    const bool is_named = w->said.format[0] != '\0';
    if (w->second_scale != NULL || w->row_scale != NULL || w->codebook != NULL
        || (is_named && (dtype == SUMI_DTYPE_I8 ? !is_int8_format : !is_fp8_format))
        || (w->scale != NULL && !is_fp8(dtype) && dtype != SUMI_DTYPE_I8))
        return refuse_weight(w, format_name(w));
    return is_fp8(dtype) || dtype == SUMI_DTYPE_I8 ? use_8bit(w) : SUMI_OK;
}

sumi_result sumi_tensor_find_scaling(const sumi_component* component, const char* name, sumi_tensor_scaling* out,
                                     sumi_error* error)
{
    *out = (sumi_tensor_scaling){.scale = 1.0f, .packed = 1};
    stored_weight w = {
        .component = component, .weight = sumi_component_find(component, name), .out = out, .error = error};
    const size_t bytes = strlen(name);
    if (w.weight == NULL || bytes < 7 || strcmp(name + bytes - 7, ".weight") != 0 || bytes - 7 >= sizeof w.layer)
        return SUMI_OK;
    memcpy(w.layer, name, bytes - 7);
    SUMI_TRY(find_format(component, w.layer, &w.said, error));
    SUMI_TRY(find_scales(&w));
    const bool is_named = w.said.format[0] != '\0';
    if (is_narrow(w.weight->dtype) && !is_named) SUMI_TRY(check_neighbours(&w)); // they say more than the type
    SUMI_TRY(use_format(&w));
    if (is_narrow(w.weight->dtype) && is_named) SUMI_TRY(check_neighbours(&w));
    return w.column_scale != NULL ? use_column_scale(&w) : SUMI_OK;
}

int64_t sumi_tensor_find_size(const sumi_component* component, const char* name, int32_t axis)
{
    const sumi_tensor* tensor = sumi_component_find(component, name);
    sumi_tensor_scaling scaling;
    sumi_error ignored;
    if (tensor == NULL || axis < 0 || axis >= tensor->rank) return 0;
    const sumi_result result = sumi_tensor_find_scaling(component, name, &scaling, &ignored);
    const int64_t packed = result == SUMI_OK ? scaling.packed : tensor->dtype == SUMI_DTYPE_U8 ? 2 : 1;
    return axis + 1 == tensor->rank ? tensor->shape[axis] * packed : tensor->shape[axis];
}
