#include "models/adapter_config.h"
#include "base/assert.h"
#include "files/json.h"
#include <string.h>

#define CONFIG_NAME "adapter_config.json"

// Compares a key without its component ("transformer.r" is compared as "r").
static bool key_is(const sumi_json_text* key, const char* name)
{
    size_t length = strlen(name);
    return key->bytes >= length && memcmp(key->data + key->bytes - length, name, length) == 0
        && (key->bytes == length || key->data[key->bytes - length - 1] == '.');
}

static bool is_bool(sumi_json_type type) { return type == SUMI_JSON_TRUE || type == SUMI_JSON_FALSE; }

// ---- Patterns -------------------------------------------------------------------------------------------------------

// The programs that write these files treat a pattern as a regular expression that must match the end of a module's
// name. Nearly all patterns are plain names; a dot in a plain name is taken for a dot.
static void check_pattern(sumi_json* json, const sumi_json_text* pattern)
{
    for (size_t i = 0; i < pattern->bytes; i++) {
        if (strchr("\\([{*+?|", pattern->data[i]) != NULL) {
            sumi_json_refuse(json, "alpha_pattern and rank_pattern are supported with plain module names only");
            return;
        }
    }
}

static bool pattern_fits(const sumi_json_text* pattern, const char* module, size_t module_bytes)
{
    size_t skip = pattern->bytes > 0 && pattern->data[0] == '^' ? 1 : 0, bytes = pattern->bytes - skip;
    if (bytes > 0 && pattern->data[pattern->bytes - 1] == '$') bytes--;
    return bytes > 0 && bytes <= module_bytes && memcmp(module + module_bytes - bytes, pattern->data + skip, bytes) == 0
        && (bytes == module_bytes || module[module_bytes - bytes - 1] == '.');
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
        if (!key_is(&key, name) || sumi_json_peek(&json) != SUMI_JSON_OBJECT || !sumi_json_object(&json)) {
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

sumi_result sumi_adapter_config_check_rank(const sumi_adapter_config* config, const char* module, size_t bytes,
                                           int32_t rank, sumi_error* error)
{
    double config_rank = number_of(config, "rank_pattern", module, bytes, config->rank);
    if (config_rank < 0 || config_rank == (double)rank) return SUMI_OK;
    return sumi_fail(error, SUMI_TENSOR_MISMATCH,
                     "%s: it gives %.*s the rank %.9g, the tensors have %d; it belongs to another adapter",
                     config->path, (int)(bytes < 256 ? bytes : 256), module, config_rank, (int)rank);
}

// ---- Reading --------------------------------------------------------------------------------------------------------

static void read_patterns(sumi_json* json, sumi_adapter_config* config)
{
    sumi_json_text pattern;
    sumi_json_object(json);
    while (sumi_json_key(json, &pattern)) {
        check_pattern(json, &pattern);
        sumi_json_skip(json);
        config->has_patterns = true;
    }
}

static sumi_result read_adapter_object(sumi_adapter_config* config, sumi_error* error)
{
    sumi_error detail = {.result = SUMI_OK};
    sumi_json json;
    sumi_json_begin(&json, config->text, config->bytes, &detail);
    sumi_json_text key, kind = {.data = "LORA", .bytes = 4};
    bool has_dora = false;
    if (sumi_json_object(&json)) {
        while (sumi_json_key(&json, &key)) {
            sumi_json_type type = sumi_json_peek(&json);
            if (key_is(&key, "lora_alpha") && type == SUMI_JSON_NUMBER) {
                config->alpha = sumi_json_number(&json);
            } else if (key_is(&key, "r") && type == SUMI_JSON_NUMBER) {
                config->rank = sumi_json_number(&json);
            } else if (key_is(&key, "use_rslora") && is_bool(type)) {
                config->rank_stabilised = sumi_json_bool(&json);
            } else if (key_is(&key, "use_dora") && is_bool(type)) {
                has_dora = sumi_json_bool(&json);
            } else if (key_is(&key, "peft_type") && type == SUMI_JSON_STRING) {
                sumi_json_string(&json, &kind);
            } else if ((key_is(&key, "alpha_pattern") || key_is(&key, "rank_pattern")) && type == SUMI_JSON_OBJECT) {
                read_patterns(&json, config);
            } else {
                sumi_json_skip(&json);
            }
        }
    }
    if (sumi_json_end(&json) != SUMI_OK) {
        return sumi_fail(error, SUMI_FILE_MALFORMED, "%s: %s%s", config->path,
                         config->file.heap == NULL ? "lora_adapter_metadata: " : "", detail.text);
    }
    if (has_dora) {
        return sumi_fail(error, SUMI_NOT_SUPPORTED,
                         "%s: the adapter uses DoRA, which is not supported; use a plain LoRA", config->path);
    }
    if (!sumi_json_is(&kind, "LORA") && !sumi_json_is(&kind, "LYCORIS")) {
        return sumi_fail(error, SUMI_NOT_SUPPORTED,
                         "%s: adapters of the peft_type %.*s are not supported; LORA is, and LYCORIS with LoKr",
                         config->path, (int)(kind.bytes < 64 ? kind.bytes : 64), kind.data);
    }
    return SUMI_OK;
}

// Opens CONFIG_NAME in the folder of `path`, if it exists.
static sumi_result open_beside(sumi_adapter_config* config, sumi_heap* heap, const sumi_files* files, const char* path,
                               sumi_error* error)
{
    size_t folder = strlen(path);
    while (folder > 0 && path[folder - 1] != '/' && path[folder - 1] != '\\') folder--;
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

sumi_result sumi_adapter_config_read(sumi_adapter_config* config, sumi_heap* heap, const sumi_files* files,
                                     const sumi_tensor_set* set, const char* path, sumi_error* error)
{
    SUMI_ASSERT(config->text == NULL && config->file.heap == NULL);
    config->alpha = config->rank = -1.0;
    config->path = path;
    config->text = sumi_metadata_find(set, "lora_adapter_metadata");
    if (config->text != NULL) {
        config->bytes = strlen(config->text);
        return read_adapter_object(config, error);
    }
    SUMI_TRY(open_beside(config, heap, files, path, error));
    if (config->file.heap != NULL) {
        // an empty file has no data, and is not a JSON object
        config->text = config->file.bytes > 0 ? (const char*)config->file.data : "";
        config->bytes = (size_t)config->file.bytes;
        config->path = config->file.path;
        SUMI_TRY(read_adapter_object(config, error));
    }
    read_header_alpha(config, set);
    return SUMI_OK;
}

void sumi_adapter_config_close(sumi_adapter_config* config)
{
    if (config->file.heap != NULL) sumi_file_close(&config->file);
    memset(config, 0, sizeof *config);
}
