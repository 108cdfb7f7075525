#include "files/json.h"
#include "models/config.h"
#include <string.h>

#define TRAINED_LEVELS 1000

sumi_sigma_rule sumi_scheduler_defaults(void)
{
    return (sumi_sigma_rule){.shift = 1.0f,
                             .dynamic = {.base_shift = 0.5, .max_shift = 1.15, .base_tokens = 256, .max_tokens = 4096}};
}

sumi_sigma_rule sumi_scheduler_released_dynamic(void)
{
    sumi_sigma_rule rule = sumi_scheduler_defaults();
    rule.kind = SUMI_SHIFT_DYNAMIC;
    rule.dynamic.base_shift = 0.5;
    rule.dynamic.max_shift = 0.9;
    rule.dynamic.base_tokens = 256;
    rule.dynamic.max_tokens = 8192;
    rule.dynamic.curve = SUMI_CURVE_EXPONENTIAL;
    rule.terminal = 0.02f;
    return rule;
}

typedef struct scheduler_texts {
    char class_name[64], shift_type[32]; // longer names are cut, and then match no known name
    bool ends_at_zero;                   // shift_terminal is there and null
} scheduler_texts;

static void copy_text(sumi_json* json, char* into, size_t capacity)
{
    sumi_json_text text;
    if (!sumi_json_string(json, &text)) return;
    const size_t bytes = text.bytes < capacity ? text.bytes : capacity - 1;
    memcpy(into, text.data, bytes);
    into[bytes] = '\0';
}

// Reads the members that sumi_config_read cannot read.
static sumi_result read_texts(const void* data, size_t bytes, const char* path, scheduler_texts* texts,
                              sumi_error* error)
{
    sumi_error detail = {.result = SUMI_OK};
    sumi_json json;
    sumi_json_text key;
    sumi_json_begin(&json, data, bytes, &detail);
    if (sumi_json_object(&json)) {
        while (sumi_json_key(&json, &key)) {
            const bool is_null = sumi_json_peek(&json) == SUMI_JSON_NULL;
            if (!is_null && sumi_json_is(&key, "_class_name")) {
                copy_text(&json, texts->class_name, sizeof texts->class_name);
            } else if (!is_null && sumi_json_is(&key, "time_shift_type")) {
                copy_text(&json, texts->shift_type, sizeof texts->shift_type);
            } else {
                if (sumi_json_is(&key, "shift_terminal")) texts->ends_at_zero = is_null;
                sumi_json_skip(&json);
            }
        }
    }
    if (sumi_json_end(&json) != SUMI_OK) return sumi_fail(error, SUMI_FILE_MALFORMED, "%s: %s", path, detail.text);
    return SUMI_OK;
}

sumi_result sumi_scheduler_read(const void* json, size_t bytes, const char* path, sumi_sigma_rule* rule,
                                sumi_error* error)
{
    if (json == NULL) return SUMI_OK;
    int32_t levels = TRAINED_LEVELS;
    double shift = (double)rule->shift, terminal = (double)rule->terminal;
    // The file says whether the shift moves at all. If the recipe knows how, the file's own numbers for it are unused.
    const sumi_shift_kind moving = rule->kind == SUMI_SHIFT_EMPIRICAL ? SUMI_SHIFT_EMPIRICAL : SUMI_SHIFT_DYNAMIC;
    bool is_dynamic = rule->kind != SUMI_SHIFT_STATIC;
    bool is_set[5] = {false};
    static const char* const s_names[] = {"invert_sigmas", "stochastic_sampling", "use_karras_sigmas",
                                          "use_exponential_sigmas", "use_beta_sigmas"};
    sumi_sigma_rule read = *rule;
    const sumi_config_field fields[] = {{"num_train_timesteps", SUMI_CONFIG_INTEGER, &levels, 0, NULL},
                                        {"use_dynamic_shifting", SUMI_CONFIG_BOOL, &is_dynamic, 0, NULL},
                                        {"shift", SUMI_CONFIG_NUMBER, &shift, 0, NULL},
                                        {"shift_terminal", SUMI_CONFIG_NUMBER, &terminal, 0, NULL},
                                        {"base_shift", SUMI_CONFIG_NUMBER, &read.dynamic.base_shift, 0, NULL},
                                        {"max_shift", SUMI_CONFIG_NUMBER, &read.dynamic.max_shift, 0, NULL},
                                        {"base_image_seq_len", SUMI_CONFIG_INTEGER, &read.dynamic.base_tokens, 0, NULL},
                                        {"max_image_seq_len", SUMI_CONFIG_INTEGER, &read.dynamic.max_tokens, 0, NULL},
                                        {s_names[0], SUMI_CONFIG_BOOL, &is_set[0], 0, NULL},
                                        {s_names[1], SUMI_CONFIG_BOOL, &is_set[1], 0, NULL},
                                        {s_names[2], SUMI_CONFIG_BOOL, &is_set[2], 0, NULL},
                                        {s_names[3], SUMI_CONFIG_BOOL, &is_set[3], 0, NULL},
                                        {s_names[4], SUMI_CONFIG_BOOL, &is_set[4], 0, NULL}};
    SUMI_TRY(sumi_config_read(&(sumi_module_config){json, bytes, path}, fields,
                              (int32_t)(sizeof fields / sizeof *fields), error));
    scheduler_texts texts = {.ends_at_zero = false};
    SUMI_TRY(read_texts(json, bytes, path, &texts, error));
    if (texts.class_name[0] != '\0' && strcmp(texts.class_name, "FlowMatchEulerDiscreteScheduler") != 0) {
        return sumi_fail(error, SUMI_NOT_SUPPORTED,
                         "%s: the scheduler is a %s; only FlowMatchEulerDiscreteScheduler is supported", path,
                         texts.class_name);
    }
    if (levels != TRAINED_LEVELS) {
        return sumi_fail(error, SUMI_NOT_SUPPORTED, "%s: num_train_timesteps is %d; only %d is supported", path,
                         (int)levels, TRAINED_LEVELS);
    }
    for (int i = 0; i < 5; i++) {
        if (is_set[i]) return sumi_fail(error, SUMI_NOT_SUPPORTED, "%s: %s is not supported", path, s_names[i]);
    }
    if (strcmp(texts.shift_type, "exponential") == 0) {
        read.dynamic.curve = SUMI_CURVE_EXPONENTIAL;
    } else if (strcmp(texts.shift_type, "linear") == 0) {
        read.dynamic.curve = SUMI_CURVE_LINEAR;
    } else if (texts.shift_type[0] != '\0') {
        return sumi_fail(error, SUMI_NOT_SUPPORTED, "%s: time_shift_type is \"%s\"; exponential and linear are known",
                         path, texts.shift_type);
    }
    read.empirical.curve = read.dynamic.curve;
    read.kind = is_dynamic ? moving : SUMI_SHIFT_STATIC;
    read.shift = (float)shift;
    read.terminal = texts.ends_at_zero ? 0.0f : (float)terminal;
    sumi_error detail = {.result = SUMI_OK};
    if (sumi_sigma_rule_check(&read, &detail) != SUMI_OK)
        return sumi_fail(error, SUMI_NOT_SUPPORTED, "%s: %s", path, detail.text);
    *rule = read;
    return SUMI_OK;
}
