// Any bytes as the values of a prompt in XML: the text has the bytes that were announced, keeps to its buffer, is UTF-8
// again, and its tags are those of the layout alone.
// Seeds: tests/golden/common/tokenizers/qwen
#include "base/utf8.h"
#include "text/xml_prompt.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes);

// The input is cut at its zeros: one value after the other.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes)
{
    char* values = malloc(bytes + 1);
    if (bytes != 0) memcpy(values, data, bytes);
    values[bytes] = '\0';
    sumi_xml_character characters[2] = {{0}};
    sumi_xml_prompt_desc desc = {.characters = characters, .character_count = 2};
    const char** places[] = {&desc.caption,         &characters[0].name,     &characters[1].action,
                             &desc.tags.style,      &desc.tags.extra_tags,   &characters[1].name,
                             &characters[0].gender, &characters[0].position, &desc.tags.count};
    size_t at = 0, given = 0;
    while (at <= bytes && given < sizeof places / sizeof places[0]) {
        *places[given++] = values + at;
        at += strlen(values + at) + 1;
    }
    sumi_error error = {0};
    size_t asked = 0, written = 0;
    const sumi_result result = sumi_xml_write(&desc, NULL, 0, &asked, &error);
    if (result != SUMI_OK) {
        if (asked != 0 || error.text[0] == '\0') abort();
        free(values);
        return 0;
    }
    char* text = malloc(asked);
    if (sumi_xml_write(&desc, text, asked, &written, NULL) != SUMI_OK || written != asked) abort();
    if (strlen(text) + 1 != asked || !sumi_utf8_is_valid(text, asked - 1)) abort();
    size_t open = 0, close = 0;
    for (const char* c = text; *c != '\0'; c++) {
        open += *c == '<';
        close += *c == '>';
    }
    // two characters with a name each, general_tags where a value is in them, and two tags per value that is not empty
    if (open != close || open % 2 != 0 || open < 8 || open > 2 * (2 + 2 + 1 + given)) abort();
    if (sumi_xml_write(&desc, text, asked - 1, &written, NULL) == SUMI_OK || written != asked) abort();
    free(text);
    free(values);
    return 0;
}
