#include "licence.h"
#include "files.h"
#include "system.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CARD_MAX_BYTES ((size_t)4 << 20)

// ---- The model card -------------------------------------------------------------------------------------------------

// Copies the value of a line of YAML, without the quotes and the comment that it may have.
static void copy_value(const char* begin, const char* end, char* into, size_t capacity)
{
    while (begin < end && (*begin == ' ' || *begin == '\t')) begin++;
    while (end > begin && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r')) end--;
    const char quote = begin < end && (*begin == '"' || *begin == '\'') ? *begin : 0;
    const char* close = quote ? memchr(begin + 1, quote, (size_t)(end - begin - 1)) : NULL;
    if (close) begin++, end = close;
    for (const char* at = begin; !quote && at + 1 < end; at++) {
        if (*at != ' ' || at[1] != '#') continue;
        end = at;
        break;
    }
    const size_t bytes = (size_t)(end - begin) < capacity ? (size_t)(end - begin) : capacity - 1;
    memcpy(into, begin, bytes);
    into[bytes] = 0;
}

// Whether the line is "KEY:..."; only keys at the line's beginning are the card's own.
static const char* value_of(const char* line, const char* end, const char* key)
{
    const size_t bytes = strlen(key);
    return (size_t)(end - line) > bytes && memcmp(line, key, bytes) == 0 && line[bytes] == ':' ? line + bytes + 1
                                                                                               : NULL;
}

static void read_card(const char* text, size_t bytes, licence* out)
{
    static const char* const s_keys[] = {"license", "license_name", "license_link"};
    char* const into[] = {out->id, out->name, out->link};
    const size_t capacities[] = {sizeof out->id, sizeof out->name, sizeof out->link};
    const char *at = text, *end = text + bytes;
    char* listed = NULL; // where the first item of a list belongs: "license:" and then "- mit"
    size_t listed_capacity = 0;
    for (int32_t number = 0; at < end; number++) {
        const char* line_end = memchr(at, '\n', (size_t)(end - at));
        if (!line_end) line_end = end;
        const bool is_fence = line_end - at >= 3 && memcmp(at, "---", 3) == 0;
        if (is_fence != (number == 0) && (is_fence || number == 0)) return; // no such lines, or their end
        const char* item = at;
        while (item < line_end && *item == ' ') item++;
        if (listed && !listed[0] && item < line_end && *item == '-')
            copy_value(item + 1, line_end, listed, listed_capacity);
        for (size_t i = 0; i < 3; i++) {
            const char* value = value_of(at, line_end, s_keys[i]);
            if (!value) continue;
            copy_value(value, line_end, into[i], capacities[i]);
            listed = into[i], listed_capacity = capacities[i];
        }
        if (*at != ' ' && *at != '-' && listed && !value_of(at, line_end, "license")) listed = NULL;
        at = line_end < end ? line_end + 1 : end;
    }
}

static bool find_card(const char* path, licence* out)
{
    char card[1000], message[FILES_MESSAGE_BYTES];
    void* text;
    size_t bytes;
    const bool is_folder = system_look_at(path) == SYSTEM_FOLDER;
    const int folder_bytes = is_folder ? (int)strlen(path) : (int)(system_file_name(path) - path);
    const char* between = folder_bytes > 0 && path[folder_bytes - 1] != '/' ? "/" : "";
    const int written = snprintf(card, sizeof card, "%.*s%sREADME.md", folder_bytes, path, between);
    if (written < 0 || (size_t)written >= sizeof card || system_look_at(card) != SYSTEM_FILE) return false;
    if (!file_read(card, CARD_MAX_BYTES, &text, &bytes, message)) return false;
    read_card(text, bytes, out);
    free(text);
    snprintf(out->source, sizeof out->source, "%s", card);
    return out->id[0] || out->name[0];
}

// ---- Metadata -------------------------------------------------------------------------------------------------------

static bool find_metadata(const sumi_checkpoint* checkpoint, licence* out)
{
    static const char* const s_keys[] = {"general.license", "modelspec.license", "license"};
    for (int32_t kind = 0; kind < SUMI_COMPONENT_COUNT; kind++) {
        const sumi_component* part = &checkpoint->components[kind];
        for (size_t i = 0; part->present && i < sizeof s_keys / sizeof *s_keys; i++) {
            const char *id = sumi_metadata_find(part->set, s_keys[i]),
                       *name = i == 0 ? sumi_metadata_find(part->set, "general.license.name") : NULL,
                       *link = i == 0 ? sumi_metadata_find(part->set, "general.license.link") : NULL;
            if (!id || !id[0]) continue;
            snprintf(out->id, sizeof out->id, "%s", id);
            snprintf(out->name, sizeof out->name, "%s", name ? name : "");
            snprintf(out->link, sizeof out->link, "%s", link ? link : "");
            snprintf(out->source, sizeof out->source, "%s of %s", s_keys[i], part->path);
            return true;
        }
    }
    return false;
}

void licence_find(const char* path, const sumi_checkpoint* checkpoint, const sumi_recipe* recipe, licence* out)
{
    *out = (licence){.id = ""};
    if (find_card(path, out) || find_metadata(checkpoint, out)) return;
    *out = (licence){.id = ""};
    const char* released = recipe && recipe->licence ? recipe->licence(checkpoint) : NULL;
    if (!released) return;
    snprintf(out->id, sizeof out->id, "%s", released);
    snprintf(out->source, sizeof out->source, "of the released model with these sizes: the files name none");
}
