#include "files/quantisation.h"
#include "files/json.h"
#include <stdio.h>
#include <string.h>

static void read_name(sumi_json* json, char* out, size_t out_bytes)
{
    sumi_json_text text;
    if (!sumi_json_string(json, &text)) return;
    const size_t bytes = sumi_json_decode(&text, out, out_bytes - 1);
    out[bytes < out_bytes ? bytes : 0] = '\0';
    if (bytes >= out_bytes) sumi_json_refuse(json, "a quantisation with an overlong name");
}

static bool skip_unless(sumi_json* json, sumi_json_type type)
{
    if (sumi_json_peek(json) == type) return true;
    sumi_json_skip(json);
    return false;
}

static void read_blocks(sumi_json* json, sumi_quantisation* out)
{
    int64_t sizes[2] = {0, 0};
    int32_t count = 0;
    sumi_json_array(json);
    while (sumi_json_item(json)) {
        const int64_t size = sumi_json_peek(json) == SUMI_JSON_NUMBER ? sumi_json_integer(json) : -1;
        if (size < 1 || size > INT32_MAX || count == 2) {
            sumi_json_refuse(json, "a weight_block_size that is not two positive numbers");
            return;
        }
        sizes[count++] = size;
    }
    if (count == 1) sumi_json_refuse(json, "a weight_block_size that is not two positive numbers");
    out->block_rows = (int32_t)sizes[0];
    out->block_cols = (int32_t)sizes[1];
}

// {"producer": {"name": "modelopt", "version": ...}}: files that do not name a method name their program
static void read_producer(sumi_json* json, char* out, size_t out_bytes)
{
    sumi_json_text key;
    sumi_json_object(json);
    while (sumi_json_key(json, &key)) {
        if (sumi_json_is(&key, "name") && sumi_json_peek(json) == SUMI_JSON_STRING) read_name(json, out, out_bytes);
        else sumi_json_skip(json);
    }
}

// An object with members, such as {"config_groups": {...}}
static bool read_is_filled(sumi_json* json)
{
    sumi_json_text key;
    bool is_filled = false;
    sumi_json_object(json);
    while (sumi_json_key(json, &key)) {
        is_filled = true;
        sumi_json_skip(json);
    }
    return is_filled;
}

static void read_object(sumi_json* json, sumi_quantisation* out)
{
    sumi_json_text key;
    char producer[sizeof out->method] = "";
    *out = (sumi_quantisation){.is_said = true};
    sumi_json_object(json);
    while (sumi_json_key(json, &key)) {
        const sumi_json_type type = sumi_json_peek(json);
        if ((sumi_json_is(&key, "quant_method") || sumi_json_is(&key, "method")) && type == SUMI_JSON_STRING) {
            read_name(json, out->method, sizeof out->method);
        } else if ((sumi_json_is(&key, "format") || sumi_json_is(&key, "quant_algo")) && type == SUMI_JSON_STRING) {
            read_name(json, out->format, sizeof out->format);
        } else if (sumi_json_is(&key, "weight_block_size") && type == SUMI_JSON_ARRAY) {
            read_blocks(json, out);
        } else if (sumi_json_is(&key, "producer") && type == SUMI_JSON_OBJECT) {
            read_producer(json, producer, sizeof producer);
        } else if (sumi_json_is(&key, "transform_config") && type == SUMI_JSON_OBJECT) {
            out->has_transform = read_is_filled(json);
        } else {
            out->has_swapped_codes =
                out->has_swapped_codes || (sumi_json_is(&key, "swap_weight_nibbles") && type == SUMI_JSON_TRUE);
            sumi_json_skip(json);
        }
    }
    if (out->method[0] == '\0') memcpy(out->method, producer, sizeof producer);
}

sumi_result sumi_quantisation_read(const sumi_quantisation_text* text, sumi_quantisation* out, sumi_error* error)
{
    sumi_json json;
    *out = (sumi_quantisation){.is_said = false};
    sumi_json_begin(&json, text->data, text->bytes, error);
    json.name = text->path;
    if (sumi_json_peek(&json) == SUMI_JSON_OBJECT) {
        read_object(&json, out);
        return sumi_json_end(&json);
    }
    // metadata are texts, so there may be the method alone
    out->is_said = text->bytes > 0 && strncmp(text->data, "null", text->bytes) != 0;
    if (out->is_said) {
        snprintf(out->method, sizeof out->method, "%.*s",
                 (int)(text->bytes < sizeof out->method ? text->bytes : sizeof out->method - 1), text->data);
    }
    return SUMI_OK;
}

sumi_result sumi_quantisation_read_config(const sumi_quantisation_text* config, sumi_quantisation* out,
                                          sumi_error* error)
{
    sumi_json json;
    sumi_json_text key;
    *out = (sumi_quantisation){.is_said = false};
    sumi_json_begin(&json, config->data, config->bytes, error);
    json.name = config->path;
    sumi_json_object(&json);
    while (sumi_json_key(&json, &key)) {
        const bool is_it = sumi_json_is(&key, "quantization_config") || sumi_json_is(&key, "compression_config");
        if (!is_it) sumi_json_skip(&json);
        else if (skip_unless(&json, SUMI_JSON_OBJECT)) read_object(&json, out);
    }
    return sumi_json_end(&json);
}

const char* sumi_quantisation_unknown(const sumi_quantisation* quantisation, char* text, size_t text_bytes)
{
    // Methods, and their formats that are read; NULL: whatever the format says. Tensors say the rest.
    static const char* const s_known[][6] = {
        {"fp8", NULL}, // of transformers: a scale for each block, or one
        {"fbgemm_fp8", NULL},
        {"gguf", NULL},
        {"compressed-tensors", "float-quantized", "int-quantized", "naive-quantized", "dense", NULL},
        {"modelopt", "FP8", "NVFP4", "NVFP4_AWQ", NULL},
    };
    static const char* const s_names[][2] = {{"svdquant", "SVDQuant (nunchaku)"},
                                             {"nunchaku", "SVDQuant (nunchaku)"},
                                             {"gptq", "GPTQ"},
                                             {"awq", "AWQ"},
                                             {"bitsandbytes", "bitsandbytes"},
                                             {"torchao", "torchao"},
                                             {"quanto", "optimum-quanto"},
                                             {"sdnq", "SDNQ"}};
    if (!quantisation->is_said) return NULL;
    const char *method = quantisation->method, *format = quantisation->format;
    bool is_known = false;
    for (size_t i = 0; i < sizeof s_known / sizeof *s_known; i++) {
        if (strcmp(method, s_known[i][0]) != 0) continue;
        is_known = s_known[i][1] == NULL || format[0] == '\0';
        for (size_t k = 1; s_known[i][k] != NULL; k++) is_known = is_known || strcmp(format, s_known[i][k]) == 0;
    }
    if (is_known && !quantisation->has_transform) return NULL;
    const char* name = method[0] != '\0' ? method : "a method that it does not name";
    for (size_t i = 0; i < sizeof s_names / sizeof *s_names; i++)
        if (strcmp(method, s_names[i][0]) == 0) name = s_names[i][1];
    snprintf(text, text_bytes, "%s%s%s%s", name, format[0] != '\0' ? ", " : "", format,
             quantisation->has_transform ? ", with transformed inputs (transform_config)" : "");
    return text;
}
