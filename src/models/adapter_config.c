#include "models/adapter_config.h"
#include "base/assert.h"
#include "files/json.h"
#include "models/adapter_names.h"
#include "models/adapter_pattern.h"
#include <stdio.h>
#include <string.h>

#define CONFIG_NAME "adapter_config.json"

// How the entries of the components begin.
static const char* const s_components[SUMI_ADAPTER_CONFIGS] = {"transformer.", "text_encoder.", "text_encoder_2."};

// Compares a key without the component that it is for ("transformer.r" is compared as "r"). False for the keys of other
// components, where the object tells them apart.
static bool key_is(const sumi_adapter_config* config, const sumi_json_text* key, const char* name)
{
    static const char s_text_encoder[] = "text_encoder";
    const size_t length = strlen(name);
    if (key->bytes < length || memcmp(key->data + key->bytes - length, name, length) != 0) return false;
    const size_t before = key->bytes - length; // of the component, with its dot
    if (before == 0) return true;
    const char* own = s_components[config->component];
    if (config->has_own) return before == strlen(own) && memcmp(key->data, own, before) == 0;
    return config->component == 0 && key->data[before - 1] == '.'
        && (before < sizeof s_text_encoder - 1 || memcmp(key->data, s_text_encoder, sizeof s_text_encoder - 1) != 0);
}

static bool is_bool(sumi_json_type type) { return type == SUMI_JSON_TRUE || type == SUMI_JSON_FALSE; }

// ---- Patterns -------------------------------------------------------------------------------------------------------

static bool pattern_fits(const sumi_json_text* text, const char* module, size_t module_bytes)
{
    char pattern_text[512];
    sumi_pattern pattern;
    const size_t bytes = sumi_json_decode(text, pattern_text, sizeof pattern_text);
    // read_patterns has refused what cannot be read
    if (bytes > sizeof pattern_text || !sumi_pattern_read(&pattern, pattern_text, bytes)) return false;
    // PEFT matches the names of the component's modules, without what it puts before them in a file
    const size_t skipped = sumi_adapter_prefix_bytes(module, module_bytes);
    return sumi_pattern_matches(&pattern, module + skipped, module_bytes - skipped)
        || sumi_pattern_matches(&pattern, module, module_bytes);
}

// The number of the first pattern in the member `name` that matches the module, otherwise `otherwise`.
static double number_of(const sumi_adapter_config* config, const char* name, const char* module, size_t module_bytes,
                        double otherwise)
{
    if (!config->has_patterns) return otherwise;
    sumi_json json;
    sumi_json_begin(&json, config->text, config->bytes, NULL);
    sumi_json_text key, pattern;
    double value = otherwise;
    bool found = false;
    if (!sumi_json_object(&json)) return value;
    while (sumi_json_key(&json, &key)) {
        if (!key_is(config, &key, name) || sumi_json_peek(&json) != SUMI_JSON_OBJECT || !sumi_json_object(&json)) {
            sumi_json_skip(&json);
            continue;
        }
        while (sumi_json_key(&json, &pattern)) {
            if (!found && pattern_fits(&pattern, module, module_bytes) && sumi_json_peek(&json) == SUMI_JSON_NUMBER) {
                value = sumi_json_number(&json);
                found = true;
            } else {
                sumi_json_skip(&json);
            }
        }
    }
    return value;
}

double sumi_adapter_config_alpha(const sumi_adapter_config* config, const char* module, size_t bytes)
{
    return number_of(config, "alpha_pattern", module, bytes, config->alpha);
}

double sumi_adapter_config_rank(const sumi_adapter_config* config, const char* module, size_t bytes)
{
    return number_of(config, "rank_pattern", module, bytes, config->rank);
}

sumi_result sumi_adapter_config_check_rank(const sumi_adapter_config* config, const char* module, size_t bytes,
                                           int32_t rank, sumi_error* error)
{
    const double config_rank = sumi_adapter_config_rank(config, module, bytes);
    if (config_rank < 0 || config_rank == (double)rank) return SUMI_OK;
    return sumi_fail(error, SUMI_TENSOR_MISMATCH,
                     "%s: it gives %.*s the rank %.9g, the tensors have %d; it belongs to another adapter",
                     config->path, (int)(bytes < 256 ? bytes : 256), module, config_rank, (int)rank);
}

// ---- Reading --------------------------------------------------------------------------------------------------------

static void read_patterns(sumi_json* json, sumi_adapter_config* config)
{
    sumi_json_text text;
    sumi_pattern pattern;
    sumi_json_object(json);
    while (sumi_json_key(json, &text)) {
        char pattern_text[512], reason[384];
        const size_t bytes = sumi_json_decode(&text, pattern_text, sizeof pattern_text);
        if (bytes > sizeof pattern_text || !sumi_pattern_read(&pattern, pattern_text, bytes)) {
            snprintf(reason, sizeof reason, "the regular expression %.*s has parts that are not supported",
                     (int)(text.bytes < 256 ? text.bytes : 256), text.data);
            json->failure = SUMI_NOT_SUPPORTED;
            sumi_json_refuse(json, reason);
        }
        sumi_json_skip(json);
        config->has_patterns = true;
    }
}

// Finds out whether the object tells components apart.
static void find_own(sumi_adapter_config* config)
{
    const char* own = s_components[config->component];
    sumi_json json;
    sumi_json_text key;
    sumi_json_begin(&json, config->text, config->bytes, NULL);
    if (!sumi_json_object(&json)) return;
    while (sumi_json_key(&json, &key)) {
        if (key.bytes > strlen(own) && memcmp(key.data, own, strlen(own)) == 0) config->has_own = true;
        sumi_json_skip(&json);
    }
}

// Uses the peft_type: which of the two alphas counts, and whether the kind is known.
static sumi_result use_kind(sumi_adapter_config* config, const sumi_json_text* kind, double alpha, sumi_error* error)
{
    const bool is_lokr = sumi_json_is(kind, "LOKR");
    if (is_lokr || sumi_json_is(kind, "LOHA")) {
        if (alpha >= 0) config->alpha = alpha; // these two do not call it lora_alpha
        config->scales_whole_factors = is_lokr;
        return SUMI_OK;
    }
    if (sumi_json_is(kind, "LORA") || sumi_json_is(kind, "LYCORIS")) return SUMI_OK;
    return sumi_fail(error, SUMI_NOT_SUPPORTED,
                     "%s: adapters of the peft_type %.*s are not supported; LORA, LOKR, LOHA and LYCORIS are",
                     config->path, (int)(kind->bytes < 64 ? kind->bytes : 64), kind->data);
}

static sumi_result read_adapter_object(sumi_adapter_config* config, sumi_error* error)
{
    sumi_error detail = {.result = SUMI_OK};
    sumi_json json;
    sumi_json_text key, kind = {.data = "LORA", .bytes = 4};
    double alpha = -1.0;
    find_own(config);
    sumi_json_begin(&json, config->text, config->bytes, &detail);
    if (sumi_json_object(&json)) {
        while (sumi_json_key(&json, &key)) {
            sumi_json_type type = sumi_json_peek(&json);
            if (key_is(config, &key, "lora_alpha") && type == SUMI_JSON_NUMBER) {
                config->alpha = sumi_json_number(&json);
            } else if (key_is(config, &key, "alpha") && type == SUMI_JSON_NUMBER) {
                alpha = sumi_json_number(&json);
            } else if (key_is(config, &key, "r") && type == SUMI_JSON_NUMBER) {
                config->rank = sumi_json_number(&json);
            } else if (key_is(config, &key, "use_rslora") && is_bool(type)) {
                config->rank_stabilised = sumi_json_bool(&json);
            } else if (key_is(config, &key, "use_dora") && is_bool(type)) {
                config->uses_dora = sumi_json_bool(&json);
            } else if (key_is(config, &key, "peft_type") && type == SUMI_JSON_STRING) {
                sumi_json_string(&json, &kind);
            } else if ((key_is(config, &key, "alpha_pattern") || key_is(config, &key, "rank_pattern"))
                       && type == SUMI_JSON_OBJECT) {
                read_patterns(&json, config);
            } else {
                sumi_json_skip(&json);
            }
        }
    }
    if (sumi_json_end(&json) != SUMI_OK) {
        return sumi_fail(error, json.failure, "%s: %s%s", config->path,
                         config->is_metadata ? "lora_adapter_metadata: " : "", detail.text);
    }
    return use_kind(config, &kind, alpha, error);
}

// Opens CONFIG_NAME in the folder of `path`, if it exists and is for this file.
static sumi_result open_beside(sumi_adapter_config* config, sumi_heap* heap, const sumi_files* files, const char* path,
                               sumi_error* error)
{
    size_t folder = strlen(path);
    while (folder > 0 && path[folder - 1] != '/' && path[folder - 1] != '\\') folder--;
    if (strcmp(path + folder, "adapter_model.safetensors") != 0) return SUMI_OK;
    const size_t bytes = folder + sizeof CONFIG_NAME;
    char* beside = sumi_alloc(heap, bytes);
    if (beside == NULL) return sumi_out_of_memory(error, bytes, "a file name");
    memcpy(beside, path, folder);
    memcpy(beside + folder, CONFIG_NAME, sizeof CONFIG_NAME);
    sumi_result result =
        sumi_file_exists(files, beside) ? sumi_file_open(&config->file, heap, files, beside, error) : SUMI_OK;
    sumi_free(heap, beside);
    return result;
}

// Reads lora_alpha in the header, a number written as text. Other texts are ignored.
static void read_header_alpha(sumi_adapter_config* config, const sumi_tensor_set* set)
{
    const char* text = sumi_metadata_find(set, "lora_alpha");
    if (text == NULL) return;
    sumi_json json;
    sumi_json_begin(&json, text, strlen(text), NULL);
    double alpha = sumi_json_peek(&json) == SUMI_JSON_NUMBER ? sumi_json_number(&json) : -1.0;
    if (sumi_json_end(&json) == SUMI_OK && alpha >= 0) config->alpha = alpha;
}

static sumi_result read_config(sumi_adapter_config* config, const sumi_file* beside, const sumi_tensor_set* set,
                               const char* path, sumi_error* error)
{
    SUMI_ASSERT(config->text == NULL);
    config->alpha = config->rank = -1.0;
    config->path = path;
    config->text = sumi_metadata_find(set, "lora_adapter_metadata");
    if (config->text != NULL) {
        config->bytes = strlen(config->text);
        config->is_metadata = true;
        return read_adapter_object(config, error);
    }
    if (beside->heap != NULL) {
        // an empty file has no data, and is not a JSON object
        config->text = beside->bytes > 0 ? (const char*)beside->data : "";
        config->bytes = (size_t)beside->bytes;
        config->path = beside->path;
        SUMI_TRY(read_adapter_object(config, error));
    }
    read_header_alpha(config, set);
    return SUMI_OK;
}

sumi_result sumi_adapter_configs_read(sumi_adapter_config configs[SUMI_ADAPTER_CONFIGS], sumi_heap* heap,
                                      const sumi_files* files, const sumi_tensor_set* set, const char* path,
                                      sumi_error* error)
{
    SUMI_ASSERT(configs->file.heap == NULL);
    if (sumi_metadata_find(set, "lora_adapter_metadata") == NULL)
        SUMI_TRY(open_beside(configs, heap, files, path, error)); // the others read this file too
    for (int32_t i = 0; i < SUMI_ADAPTER_CONFIGS; i++) {
        configs[i].component = i;
        SUMI_TRY(read_config(&configs[i], &configs->file, set, path, error));
    }
    return SUMI_OK;
}

void sumi_adapter_configs_close(sumi_adapter_config configs[SUMI_ADAPTER_CONFIGS])
{
    if (configs->file.heap != NULL) sumi_file_close(&configs->file);
    memset(configs, 0, SUMI_ADAPTER_CONFIGS * sizeof *configs);
}

const sumi_adapter_config* sumi_adapter_config_of(const sumi_adapter_config configs[SUMI_ADAPTER_CONFIGS],
                                                  int32_t encoder)
{
    SUMI_ASSERT(encoder >= SUMI_ADAPTER_ANY_ENCODER);
    return &configs[encoder < 0 ? 1 : encoder >= SUMI_ADAPTER_CONFIGS ? SUMI_ADAPTER_CONFIGS - 1 : encoder];
}
