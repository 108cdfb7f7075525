#include "files/tensor_scaling.h"
#include "base/assert.h"
#include "base/rotation.h"
#include "files/json.h"
#include <stdio.h>
#include <string.h>

typedef struct quantisation {
    char format[64]; // "" if the file does not say
    bool is_rotated;
    int64_t group; // columns that are rotated together
} quantisation;

// Reads {"format": "int8_tensorwise", "convrot": true, "convrot_groupsize": 256}. The last two may be in an object
// "params" instead.
static sumi_result read_quantisation(sumi_json* json, quantisation* out)
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
            out->group = sumi_json_integer(json);
        } else if (sumi_json_is(&key, "params") && type == SUMI_JSON_OBJECT) {
            SUMI_TRY(read_quantisation(json, out));
        } else {
            out->is_rotated = out->is_rotated || (sumi_json_is(&key, "convrot") && type == SUMI_JSON_TRUE);
            sumi_json_skip(json);
        }
    }
    return json->failed ? json->failure : SUMI_OK;
}

// Reads a layer's entry in the header's metadata: {"format_version": ..., "layers": {L: {"format": ...}}}, where L is
// the layer's name with or without the component's prefix.
static sumi_result quantisation_of_metadata(const sumi_component* component, const char* text, const char* layer,
                                            quantisation* out, sumi_error* error)
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
                SUMI_TRY(read_quantisation(&json, out));
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
static sumi_result find_quantisation(const sumi_component* component, const char* layer, quantisation* out,
                                     sumi_error* error)
{
    *out = (quantisation){.group = SUMI_ROTATION_MAX};
    const sumi_tensor* quant = find_beside(component, layer, ".comfy_quant");
    if (quant != NULL) {
        sumi_json json;
        sumi_json_begin(&json, quant->data, (size_t)quant->bytes, error);
        json.name = component->path;
        SUMI_TRY(read_quantisation(&json, out));
        return sumi_json_end(&json);
    }
    for (size_t i = 0; i < component->set->metadata_count; i++) { // every shard may have its own metadata
        const sumi_metadata* metadata = &component->set->metadata[i];
        if (strcmp(metadata->key, "_quantization_metadata") == 0)
            SUMI_TRY(quantisation_of_metadata(component, metadata->value, layer, out, error));
    }
    return SUMI_OK;
}

static int64_t values_in(const sumi_tensor* tensor)
{
    int64_t count = 1;
    for (int32_t i = 0; i < tensor->rank; i++) count *= tensor->shape[i];
    return count;
}

// Why a weight cannot be read, as the end of "is quantised as ..."; NULL: it can be read. scale is NULL if the weight
// has none.
static const char* unsupported_format(const quantisation* declared, const sumi_tensor* weight, const sumi_tensor* scale,
                                      char* text, size_t text_bytes)
{
    const bool is_fp8 = weight->dtype == SUMI_DTYPE_F8_E4M3 || weight->dtype == SUMI_DTYPE_F8_E5M2;
    const bool is_int8_format = strcmp(declared->format, "int8_tensorwise") == 0;
    const bool is_fp8_format =
        strcmp(declared->format, "float8_e4m3fn") == 0 || strcmp(declared->format, "float8_e5m2") == 0;
    if (declared->format[0] != '\0' && !is_fp8_format && (!is_int8_format || weight->dtype != SUMI_DTYPE_I8))
        return declared->format;
    if (weight->dtype == SUMI_DTYPE_I8 && (!is_int8_format || scale == NULL))
        return is_int8_format ? "int8_tensorwise without a scale" : "int8 of an unknown format";
    if (scale != NULL && !is_fp8 && weight->dtype != SUMI_DTYPE_I8) return sumi_dtype_get(weight->dtype)->name;
    if (declared->is_rotated && (!is_int8_format || weight->rank != 2 || !sumi_rotation_is_known(declared->group))) {
        snprintf(text, text_bytes, "%s, convrot in groups of %lld",
                 declared->format[0] != '\0' ? declared->format : sumi_dtype_get(weight->dtype)->name,
                 (long long)declared->group);
        return text;
    }
    if (scale != NULL && values_in(scale) != 1) {
        const bool is_column = scale->rank == 1 || (scale->rank == 2 && scale->shape[1] == 1);
        if (!is_column || weight->rank < 2 || scale->shape[0] != weight->shape[0]) {
            snprintf(text, text_bytes, "%s with a scale per block", is_fp8 ? "fp8" : "int8");
            return text;
        }
    }
    return NULL;
}

// Checks that all scales are finite. A single scale is copied; one scale per row stays in the mapped file.
static sumi_result read_scales(const sumi_component* component, const sumi_tensor* tensor, sumi_tensor_scaling* out,
                               sumi_error* error)
{
    const int64_t count = values_in(tensor);
    const bool is_float = tensor->dtype == SUMI_DTYPE_F32 || tensor->dtype == SUMI_DTYPE_BF16
                       || tensor->dtype == SUMI_DTYPE_F16 || tensor->dtype == SUMI_DTYPE_F64;
    if (count > 1 ? tensor->dtype != SUMI_DTYPE_F32 : !is_float) {
        return sumi_fail(error, SUMI_NOT_SUPPORTED, "%s: the scale %s is of type %s; only F32 is supported",
                         component->path, tensor->name, sumi_dtype_get(tensor->dtype)->name);
    }
    const int32_t step = sumi_dtype_get(tensor->dtype)->block_bytes;
    float scale = 1.0f;
    for (int64_t i = 0; i < count; i++) {
        sumi_dtype_to_float(tensor->dtype, (const unsigned char*)tensor->data + i * step, &scale, 1);
        if (!(scale - scale == 0.0f)) { // infinity or NaN
            return sumi_fail(error, SUMI_FILE_MALFORMED, "%s: the scale %s is not finite", component->path,
                             tensor->name);
        }
    }
    out->is_scaled = true;
    out->row_scales = count > 1 ? tensor->data : NULL;
    out->scale = count > 1 ? 1.0f : scale;
    return SUMI_OK;
}

sumi_result sumi_tensor_find_scaling(const sumi_component* component, const char* name, sumi_tensor_scaling* out,
                                     sumi_error* error)
{
    *out = (sumi_tensor_scaling){.scale = 1.0f};
    char layer[480], text[96];
    const size_t bytes = strlen(name);
    const sumi_tensor* weight = sumi_component_find(component, name);
    if (weight == NULL || bytes < 7 || strcmp(name + bytes - 7, ".weight") != 0 || bytes - 7 >= sizeof layer)
        return SUMI_OK;
    memcpy(layer, name, bytes - 7);
    layer[bytes - 7] = '\0';

    quantisation declared;
    SUMI_TRY(find_quantisation(component, layer, &declared, error));
    const sumi_tensor* scale = find_beside(component, layer, ".weight_scale");
    scale = scale != NULL ? scale : find_beside(component, layer, ".scale_weight");
    const char* unsupported = find_beside(component, layer, ".weight_scale_2") != NULL
                                ? "nvfp4"
                                : unsupported_format(&declared, weight, scale, text, sizeof text);
    if (unsupported != NULL) {
        return sumi_fail(error, SUMI_NOT_SUPPORTED,
                         "%s: tensor %s%s is quantised as %s, which is not supported; use the bf16, fp8 (one scale), "
                         "int8_tensorwise or GGUF file of the model",
                         component->path, component->prefix, name, unsupported);
    }
    if (declared.is_rotated) {
        if (weight->shape[1] % declared.group != 0) {
            return sumi_fail(error, SUMI_FILE_MALFORMED,
                             "%s: tensor %s%s has rows of %lld values, not a multiple of the %lld that are rotated "
                             "together",
                             component->path, component->prefix, name, (long long)weight->shape[1],
                             (long long)declared.group);
        }
        out->rotation = (int32_t)declared.group;
    }
    return scale != NULL ? read_scales(component, scale, out, error) : SUMI_OK;
}
