#include "models/config.h"
#include "base/assert.h"
#include "files/json.h"
#include <stdio.h>
#include <string.h>

#define KEY_BYTES 96

static void copy_text(const sumi_json_text* text, char* into)
{
    snprintf(into, SUMI_CONFIG_TEXT_BYTES, "%.*s",
             (int)(text->bytes < SUMI_CONFIG_TEXT_BYTES ? text->bytes : SUMI_CONFIG_TEXT_BYTES), text->data);
}

static void read_config_field(sumi_json* json, const sumi_config_field* field)
{
    SUMI_ASSERT(field->into != NULL);
    SUMI_ASSERT(field->kind < SUMI_CONFIG_INTEGERS || (field->count != NULL && field->capacity >= 1));
    switch (field->kind) {
    case SUMI_CONFIG_INTEGER: {
        int64_t value = sumi_json_integer(json);
        if (value < INT32_MIN || value > INT32_MAX) {
            sumi_json_refuse(json, "the number is too large");
            return;
        }
        *(int32_t*)field->into = (int32_t)value;
        return;
    }
    case SUMI_CONFIG_NUMBER: *(double*)field->into = sumi_json_number(json); return;
    case SUMI_CONFIG_BOOL: *(bool*)field->into = sumi_json_bool(json); return;
    case SUMI_CONFIG_TEXT: {
        sumi_json_text text;
        if (sumi_json_string(json, &text)) copy_text(&text, field->into);
        return;
    }
    case SUMI_CONFIG_INTEGERS:
        *field->count = 0;
        if (sumi_json_array(json)) {
            while (sumi_json_item(json)) {
                int64_t value = sumi_json_integer(json);
                if (*field->count >= field->capacity || value < INT32_MIN || value > INT32_MAX) {
                    sumi_json_refuse(json, "the list is too long or holds a number too large");
                    return;
                }
                ((int32_t*)field->into)[(*field->count)++] = (int32_t)value;
            }
        }
        return;
    case SUMI_CONFIG_TEXTS:
        *field->count = 0;
        if (sumi_json_array(json)) {
            while (sumi_json_item(json)) {
                sumi_json_text text;
                if (!sumi_json_string(json, &text)) return;
                if (*field->count >= field->capacity) {
                    sumi_json_refuse(json, "the list is too long");
                    return;
                }
                copy_text(&text, (char*)field->into + (size_t)(*field->count)++ * SUMI_CONFIG_TEXT_BYTES);
            }
        }
        return;
    case SUMI_CONFIG_BOOLS:
        *field->count = 0;
        if (sumi_json_array(json)) {
            while (sumi_json_item(json)) {
                const bool value = sumi_json_bool(json);
                if (*field->count >= field->capacity) {
                    sumi_json_refuse(json, "the list is too long");
                    return;
                }
                ((bool*)field->into)[(*field->count)++] = value;
            }
        }
        return;
    case SUMI_CONFIG_NUMBERS:
        *field->count = 0;
        if (sumi_json_array(json)) {
            while (sumi_json_item(json)) {
                double value = sumi_json_number(json);
                if (*field->count >= field->capacity) {
                    sumi_json_refuse(json, "the list is too long");
                    return;
                }
                ((double*)field->into)[(*field->count)++] = value;
            }
        }
        return;
    }
}

// Reads the members of one object. `outer` is the path of the object followed by a dot, or "". Objects that contain no
// field are skipped.
static void read_config_object(sumi_json* json, const char* outer, const sumi_config_field* fields, int32_t field_count)
{
    if (!sumi_json_object(json)) return;
    sumi_json_text key;
    while (sumi_json_key(json, &key)) {
        char name[KEY_BYTES];
        int length = snprintf(name, sizeof name, "%s%.*s", outer,
                              (int)(key.bytes < KEY_BYTES ? key.bytes : KEY_BYTES - 1), key.data);
        const sumi_config_field* field = NULL;
        bool holds_field = false; // an object with fields to read inside
        for (int32_t i = 0; i < field_count && length >= 0 && (size_t)length < sizeof name; i++) {
            field = strcmp(fields[i].key, name) == 0 ? &fields[i] : field;
            holds_field =
                holds_field || (strncmp(fields[i].key, name, (size_t)length) == 0 && fields[i].key[length] == '.');
        }
        sumi_json_type type = sumi_json_peek(json);
        if (field != NULL && type != SUMI_JSON_NULL) {
            read_config_field(json, field);
        } else if (holds_field && type == SUMI_JSON_OBJECT) {
            char inner[KEY_BYTES + 1];
            snprintf(inner, sizeof inner, "%s.", name);
            read_config_object(json, inner, fields, field_count);
        } else {
            sumi_json_skip(json);
        }
    }
}

sumi_result sumi_config_read(const sumi_module_config* config, const sumi_config_field* fields, int32_t field_count,
                             sumi_error* error)
{
    SUMI_ASSERT(field_count >= 1);
    if (config->data == NULL) return SUMI_OK;
    sumi_error detail = {.result = SUMI_OK};
    sumi_json json;
    sumi_json_begin(&json, config->data, config->bytes, &detail);
    read_config_object(&json, "", fields, field_count);
    if (sumi_json_end(&json) != SUMI_OK)
        return sumi_fail(error, SUMI_FILE_MALFORMED, "%s: %s", config->path, detail.text);
    return SUMI_OK;
}
