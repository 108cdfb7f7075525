// The text is produced twice: the first pass checks every value and counts bytes, the second writes into a buffer of
// sufficient size. So a buffer never holds a partial text.
#include "text/xml_prompt.h"
#include "text/unicode.h"
#include <stddef.h>
#include <stdio.h>
#include <string.h>

// A text member of a struct and its tag.
typedef struct field {
    const char *tag, *member;
    size_t offset;
} field;
#define FIELD(type, tag, member)                                                                                       \
    {                                                                                                                  \
        tag, #member, offsetof(type, member)                                                                           \
    }

static const field s_character_fields[] = {
    FIELD(sumi_xml_character, "n", name), // the tag of a name in the captions
    FIELD(sumi_xml_character, "gender", gender),
    FIELD(sumi_xml_character, "appearance", appearance),
    FIELD(sumi_xml_character, "clothing", clothing),
    FIELD(sumi_xml_character, "body_type", body_type),
    FIELD(sumi_xml_character, "expression", expression),
    FIELD(sumi_xml_character, "action", action),
    FIELD(sumi_xml_character, "interaction", interaction),
    FIELD(sumi_xml_character, "position", position),
};
static const field s_tag_fields[] = {
    FIELD(sumi_xml_tags, "count", count),
    FIELD(sumi_xml_tags, "artists", artists),
    FIELD(sumi_xml_tags, "style", style),
    FIELD(sumi_xml_tags, "background", background),
    FIELD(sumi_xml_tags, "environment", environment),
    FIELD(sumi_xml_tags, "perspective", perspective),
    FIELD(sumi_xml_tags, "atmosphere", atmosphere),
    FIELD(sumi_xml_tags, "lighting", lighting),
    FIELD(sumi_xml_tags, "resolution", resolution),
    FIELD(sumi_xml_tags, "quality", quality),
    FIELD(sumi_xml_tags, "objects", objects),
    FIELD(sumi_xml_tags, "other", other),
    FIELD(sumi_xml_tags, "extra_tags", extra_tags),
};
#define FIELD_COUNT(fields) ((int32_t)(sizeof(fields) / sizeof((fields)[0])))
// Fails to compile if a struct has a member without a line above.
_Static_assert(sizeof(s_character_fields) / sizeof(field) * sizeof(char*) == sizeof(sumi_xml_character),
               "a field each");
_Static_assert(sizeof(s_tag_fields) / sizeof(field) * sizeof(char*) == sizeof(sumi_xml_tags), "a field each");

static const char* field_text(const void* texts, const field* f)
{
    const char* text;
    memcpy(&text, (const char*)texts + f->offset, sizeof text);
    return text;
}

// ---- Output ---------------------------------------------------------------------------------------------------------

typedef struct output {
    char* into; // NULL: only count
    size_t bytes;
    int32_t indent;
} output;

static void append_bytes(output* out, const char* text, size_t bytes)
{
    if (out->into != NULL) memcpy(out->into + out->bytes, text, bytes);
    out->bytes += bytes;
}
static void append_string(output* out, const char* text) { append_bytes(out, text, strlen(text)); }

static void begin_line(output* out)
{
    if (out->bytes != 0) append_string(out, "\n");
    for (int32_t i = 0; i < out->indent; i++) append_string(out, " ");
}
static void end_group(output* out) // leaves an empty line, without indent, before the next group
{
    if (out->bytes != 0) append_string(out, "\n");
}

// ---- Values ---------------------------------------------------------------------------------------------------------

typedef struct value {
    const char* text;
    size_t bytes; // 0: no value
} value;

// Removes white space from both ends and checks the UTF-8. `where` and `member` name the value in messages:
// "characters[2]." and "action".
static sumi_result read_member(const char* text, const char* where, const char* member, value* out, sumi_error* error)
{
    *out = (value){0};
    const size_t bytes = text == NULL ? 0 : strlen(text);
    size_t first = bytes, end = 0; // of the text without white space at its ends
    for (size_t at = 0; at < bytes;) {
        bool valid;
        size_t length = sumi_utf8_part(text + at, bytes - at, &valid);
        if (!valid) {
            return sumi_fail(error, SUMI_TEXT_INVALID, "%s%s: not UTF-8 at byte %zu: give UTF-8 of whole characters",
                             where, member, at);
        }
        if (!sumi_char_is_space(sumi_utf8_get(text + at, &length))) {
            if (first == bytes) first = at;
            end = at + length;
        }
        at += length;
    }
    if (end != 0) *out = (value){text + first, end - first};
    return SUMI_OK;
}

static void put_escaped(output* out, const value* v)
{
    size_t copied = 0;
    for (size_t at = 0; at < v->bytes; at++) {
        const char c = v->text[at];
        const char* escape = c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : NULL;
        if (escape == NULL) continue;
        append_bytes(out, v->text + copied, at - copied);
        append_string(out, escape);
        copied = at + 1;
    }
    append_bytes(out, v->text + copied, v->bytes - copied);
}

static void put_tag(output* out, const char* before, const char* tag, const char* after)
{
    append_string(out, before);
    append_string(out, tag);
    append_string(out, after);
}

static void put_element(output* out, const char* tag, const value* v)
{
    begin_line(out);
    put_tag(out, "<", tag, ">");
    put_escaped(out, v);
    put_tag(out, "</", tag, ">");
}

// ---- Groups ---------------------------------------------------------------------------------------------------------

static sumi_result put_character(output* out, const sumi_xml_character* character, int32_t number, sumi_error* error)
{
    char group[32], placeholder[sizeof group + 2], where[32];
    snprintf(group, sizeof group, "character_%d", (int)number);
    snprintf(placeholder, sizeof placeholder, "$%s$", group);
    snprintf(where, sizeof where, "characters[%d].", (int)number - 1);
    begin_line(out);
    put_tag(out, "<", group, ">");
    for (int32_t i = 0; i < FIELD_COUNT(s_character_fields); i++) {
        const field* f = &s_character_fields[i];
        value v;
        SUMI_TRY(read_member(field_text(character, f), where, f->member, &v, error));
        if (v.bytes == 0 && f->offset == offsetof(sumi_xml_character, name)) {
            v = (value){placeholder, strlen(placeholder)};
        }
        if (v.bytes != 0) put_element(out, f->tag, &v);
    }
    begin_line(out);
    put_tag(out, "</", group, ">");
    return SUMI_OK;
}

static sumi_result put_tags(output* out, const sumi_xml_tags* tags, sumi_error* error)
{
    bool is_open = false;
    for (int32_t i = 0; i < FIELD_COUNT(s_tag_fields); i++) {
        const field* f = &s_tag_fields[i];
        value v;
        SUMI_TRY(read_member(field_text(tags, f), "tags.", f->member, &v, error));
        if (v.bytes == 0) continue;
        if (!is_open) {
            end_group(out);
            begin_line(out);
            append_string(out, "<general_tags>");
            is_open = true;
        }
        put_element(out, f->tag, &v);
    }
    if (is_open) {
        begin_line(out);
        append_string(out, "</general_tags>");
    }
    return SUMI_OK;
}

static sumi_result put_prompt(output* out, const sumi_xml_prompt_desc* desc, sumi_error* error)
{
    for (int32_t i = 0; i < desc->character_count; i++) {
        end_group(out);
        SUMI_TRY(put_character(out, &desc->characters[i], i + 1, error));
    }
    SUMI_TRY(put_tags(out, &desc->tags, error));
    value caption;
    SUMI_TRY(read_member(desc->caption, "", "caption", &caption, error));
    if (caption.bytes != 0) {
        end_group(out);
        put_element(out, "caption", &caption);
    }
    append_bytes(out, "", 1);
    return SUMI_OK;
}

sumi_result sumi_xml_write(const sumi_xml_prompt_desc* desc, char* into, size_t capacity, size_t* out_bytes,
                           sumi_error* error)
{
    *out_bytes = 0;
    if (into == NULL && capacity != 0) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "into is NULL: give a buffer, or capacity 0 to ask for its size");
    }
    if (desc->indent < 0 || desc->indent > SUMI_XML_MAX_INDENT) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "indent %d: give 0 to %d spaces", (int)desc->indent,
                         SUMI_XML_MAX_INDENT);
    }
    if (desc->character_count < 0 || desc->character_count > SUMI_XML_MAX_CHARACTERS) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "character_count %d: give 0 to %d", (int)desc->character_count,
                         SUMI_XML_MAX_CHARACTERS);
    }
    if (desc->character_count != 0 && desc->characters == NULL) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "characters is NULL, and character_count is %d",
                         (int)desc->character_count);
    }
    output counter = {.indent = desc->indent};
    SUMI_TRY(put_prompt(&counter, desc, error));
    *out_bytes = counter.bytes;
    if (into == NULL) return SUMI_OK;
    if (counter.bytes > capacity) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "the text takes %zu bytes, and capacity is %zu", counter.bytes,
                         capacity);
    }
    output writer = {.into = into, .indent = desc->indent};
    return put_prompt(&writer, desc, error);
}
