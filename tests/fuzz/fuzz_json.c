// Any bytes as JSON: the deadline_adaptation walk and a reading walk must agree on whether the text is JSON, and neither may read
// past the end.
// Seeds: tests/golden/common/files/index tests/golden/common/tokenizers/qwen
#include "base/utf8.h"
#include "files/json.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes);

// Reads every value through the typed functions. Numbers may be refused for their size, so only the deadline_adaptation walk
// decides what is JSON.
static void read_value(sumi_json* json, int32_t depth)
{
    sumi_json_text text;
    char decoded[256];
    switch (sumi_json_peek(json)) {
    case SUMI_JSON_OBJECT:
        sumi_json_object(json);
        while (sumi_json_key(json, &text)) {
            sumi_json_decode(&text, decoded, sizeof decoded);
            if (sumi_json_is(&text, "skip")) {
                sumi_json_skip(json);
            } else {
                read_value(json, depth + 1);
            }
        }
        break;
    case SUMI_JSON_ARRAY:
        sumi_json_array(json);
        while (sumi_json_item(json)) read_value(json, depth + 1);
        break;
    case SUMI_JSON_STRING:
        if (sumi_json_string(json, &text)) {
            char* whole = malloc(text.bytes + 1);
            const size_t needed = sumi_json_decode(&text, whole, text.bytes);
            if (needed > text.bytes || !sumi_utf8_is_valid(whole, needed)) abort();
            whole[needed] = '\0';
            if (strlen(whole) == needed && !sumi_json_is(&text, whole)) abort();
            free(whole);
        }
        break;
    case SUMI_JSON_NUMBER:
        if (depth % 3 == 0) {
            sumi_json_integer(json);
        } else if (depth % 3 == 1) {
            sumi_json_unsigned(json);
        } else {
            sumi_json_number(json);
        }
        break;
    case SUMI_JSON_TRUE:
    case SUMI_JSON_FALSE: sumi_json_bool(json); break;
    case SUMI_JSON_NULL: sumi_json_null(json); break;
    case SUMI_JSON_ERROR: break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes)
{
    sumi_json json;
    sumi_error error = {0};
    sumi_json_begin(&json, data, bytes, &error);
    sumi_json_skip(&json);
    const sumi_result skipped = sumi_json_end(&json);
    if ((skipped == SUMI_OK) != (error.text[0] == '\0')) abort();
    sumi_json_begin(&json, data, bytes, NULL);
    read_value(&json, 0);
    const sumi_result read = sumi_json_end(&json);
    if (read == SUMI_OK && skipped != SUMI_OK) abort();
    return 0;
}
