#include "prompt_lines.h"
#include "files.h"
#include "utf8.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX_BYTES ((size_t)256 << 20)

static const char s_blanks[] = " \t\r\f\v";

static const char* name_of(const char* path) { return strcmp(path, "-") == 0 ? "standard input" : path; }

void prompt_line_name(const prompt_line* line, const char* path, char* into, size_t capacity)
{
    if (line->number > 0) snprintf(into, capacity, "%s:%d", name_of(path), line->number);
    else snprintf(into, capacity, "the prompt");
}

// ---- Texts ----------------------------------------------------------------------------------------------------------

// Where a text stops to be UTF-8; its length when it does not.
static size_t valid_bytes(const char* text, size_t length)
{
    size_t at = 0;
    uint32_t ignored;
    for (size_t bytes; at < length && (bytes = utf8_decode(text + at, length - at, &ignored)) > 0; at += bytes) {}
    return at;
}

// Checks the bytes of one prompt. Returns false with what is wrong with them.
static bool check_text(const char* text, size_t length, char* reason, size_t capacity)
{
    const size_t valid = valid_bytes(text, length);
    reason[0] = 0;
    if (memchr(text, 0, length)) snprintf(reason, capacity, "a zero byte; this is not a text file");
    else if (length > PROMPT_MAX_BYTES)
        snprintf(reason, capacity, "%zu bytes; a prompt has at most %d", length, PROMPT_MAX_BYTES);
    else if (valid < length)
        snprintf(reason, capacity, "byte %zu is not UTF-8; save the file with the encoding UTF-8", valid + 1);
    return reason[0] == 0;
}

// Editors on Windows begin files with a byte order mark. Returns the bytes of UTF-8's; 0: there is none.
static size_t mark_bytes(const char* data, size_t bytes)
{
    return bytes >= 3 && !memcmp(data, "\xEF\xBB\xBF", 3) ? 3 : 0;
}

// Reads a whole file and makes it a string.
static int read_file(const cli_command* command, const char* path, size_t most_bytes, char** out_data,
                     size_t* out_bytes)
{
    char message[FILES_MESSAGE_BYTES];
    void* data;
    *out_data = NULL;
    if (!file_read(path, most_bytes, &data, out_bytes, message)) {
        fprintf(stderr, "sumi: %s\n", message);
        return EXIT_FAILED;
    }
    if (*out_bytes >= 2 && (memcmp(data, "\xFF\xFE", 2) == 0 || memcmp(data, "\xFE\xFF", 2) == 0)) {
        free(data);
        return args_wrong(command, "%s is UTF-16; save it with the encoding UTF-8", name_of(path));
    }
    char* text = realloc(data, *out_bytes + 1);
    if (!text) {
        free(data);
        fprintf(stderr, "sumi: cannot read %s: no memory\n", name_of(path));
        return EXIT_FAILED;
    }
    text[*out_bytes] = 0;
    *out_data = text;
    return EXIT_OK;
}

int prompt_text_read(const cli_command* command, const char* option, const char** text, char** out_memory)
{
    *out_memory = NULL;
    if ((*text)[0] != '@') return EXIT_OK;
    const char* path = *text + 1;
    if (path[0] == '@') {
        *text = path;
        return EXIT_OK;
    }
    if (!path[0]) return args_wrong(command, "%s @: name the file, as in @prompt.txt; @@ is one @", option);
    size_t bytes;
    int code = read_file(command, path, FILE_MAX_BYTES, out_memory, &bytes);
    if (code == EXIT_FAILED) fprintf(stderr, "  %s takes @FILE for a file; @@ stands for one @\n", option);
    if (code != EXIT_OK) return code;
    char *data = *out_memory, reason[160];
    const size_t begin = mark_bytes(data, bytes);
    if (bytes > begin && data[bytes - 1] == '\n') bytes--;
    if (bytes > begin && data[bytes - 1] == '\r') bytes--;
    data[bytes] = 0;
    *text = data + begin;
    if (check_text(data + begin, bytes - begin, reason, sizeof reason)) return EXIT_OK;
    free(data);
    *out_memory = NULL;
    return args_wrong(command, "%s: %s", name_of(path), reason);
}

// ---- Lines ----------------------------------------------------------------------------------------------------------

static char* trim(char* text)
{
    text += strspn(text, s_blanks);
    size_t length = strlen(text);
    while (length > 0 && strchr(s_blanks, text[length - 1])) text[--length] = 0;
    return text;
}

// Reads one of the last words, cuts it off, and says in *out_is_setting whether it was one. Returns false with what is
// wrong with its value.
static bool take_setting(char* text, prompt_line* line, bool* out_is_setting, const char** out_reason)
{
    char* word = text + strlen(text);
    while (word > text && !strchr(s_blanks, word[-1])) word--;
    *out_is_setting = true;
    if (strncmp(word, "seed=", 5) == 0) {
        if (line->has_seed) *out_reason = "seed= is there twice";
        else if (!args_read_seed(word + 5, &line->seed))
            *out_reason = "seed= needs a whole number from 0 to 18446744073709551615, as in seed=7";
        line->has_seed = true;
    } else if (strncmp(word, "size=", 5) == 0) {
        if (line->size[0] > 0) *out_reason = "size= is there twice";
        else if (!args_read_size(word + 5, line->size))
            *out_reason = "size= needs width and height in pixels, as in size=1024x768";
    } else {
        *out_is_setting = false;
        return true;
    }
    *word = 0;
    trim(text); // the blanks before the word
    return *out_reason == NULL;
}

// Reads a line that is a zero-terminated text. Returns false with what is wrong with it.
static bool read_line(char* text, prompt_line* line, const char** out_reason)
{
    *out_reason = NULL;
    line->text = text = trim(text);
    for (bool is_setting = true; is_setting;) {
        if (!take_setting(text, line, &is_setting, out_reason)) return false;
    }
    if (text[0]) return true;
    *out_reason = "there is no prompt before seed= or size=";
    return false;
}

static bool is_left_out(const char* text, size_t length) { return text[0] == '#' || strspn(text, s_blanks) == length; }

static prompt_line* add_line(prompt_lines* lines, int32_t* capacity)
{
    if (lines->count == *capacity) {
        *capacity = *capacity ? 2 * *capacity : 64;
        prompt_line* more = realloc(lines->lines, (size_t)*capacity * sizeof *more);
        if (!more) return NULL;
        lines->lines = more;
    }
    return &lines->lines[lines->count];
}

static int read_lines(const cli_command* command, const char* path, char* data, size_t bytes, prompt_lines* out)
{
    int32_t number = 1, capacity = 0;
    for (char *text = data, *end; text < data + bytes; text = end + 1, number++) {
        char checked[160];
        const char* reason = checked;
        end = memchr(text, '\n', (size_t)(data + bytes - text));
        if (!end) end = data + bytes;
        *end = 0;
        const size_t length = (size_t)(end - text);
        bool is_right = check_text(text, length, checked, sizeof checked);
        if (is_right && is_left_out(text, length)) continue;
        prompt_line* line = add_line(out, &capacity);
        if (!line) {
            fprintf(stderr, "sumi: cannot read %s: no memory\n", name_of(path));
            return EXIT_FAILED;
        }
        *line = (prompt_line){.number = number};
        if (is_right) is_right = read_line(text, line, &reason);
        if (!is_right) return args_wrong(command, "%s:%d: %s", name_of(path), number, reason);
        out->count++;
    }
    if (out->count == 0) return args_wrong(command, "%s has no prompts; write one in each line", name_of(path));
    return EXIT_OK;
}

int prompt_lines_read(const cli_command* command, const char* path, prompt_lines* out)
{
    *out = (prompt_lines){0};
    size_t bytes;
    int code = read_file(command, path, FILE_MAX_BYTES, &out->file, &bytes);
    if (code != EXIT_OK) return code;
    const size_t begin = mark_bytes(out->file, bytes);
    code = read_lines(command, path, out->file + begin, bytes - begin, out);
    if (code != EXIT_OK) prompt_lines_free(out);
    return code;
}

void prompt_lines_free(prompt_lines* freed)
{
    free(freed->lines);
    free(freed->file);
    *freed = (prompt_lines){0};
}
