#include "base/result.h"
#include "base/assert.h"
#include "base/utf8.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// The length of the text in bytes, without a last character that was cut in the middle.
static size_t whole_bytes(const char* text, size_t bytes)
{
    for (size_t back = 1; back < 4 && back <= bytes; back++) {
        bool is_valid;
        if (((unsigned char)text[bytes - back] & 0xC0) == 0x80) continue;
        const size_t part = sumi_utf8_part(text + bytes - back, back, &is_valid);
        return part == back && !is_valid ? bytes - back : bytes;
    }
    return bytes;
}

sumi_result sumi_fail_at(const char* file, int line, sumi_error* error, sumi_result result, const char* format, ...)
{
    SUMI_ASSERT(result != SUMI_OK && format != NULL);
    if (error != NULL && error->result == SUMI_OK) {
        error->result = result;
        error->file = file;
        error->line = line;
        char raw[SUMI_ERROR_TEXT_BYTES];
        va_list arguments;
        va_start(arguments, format);
        const int bytes = vsnprintf(raw, sizeof raw, format, arguments);
        va_end(arguments);
        // Names and paths come from files. Messages themselves have no control characters, so all of it is shown.
        const bool is_cut = bytes < 0 || (size_t)bytes >= sizeof raw;
        const size_t raw_bytes = strlen(raw);
        sumi_utf8_show(error->text, sizeof error->text, raw, is_cut ? whole_bytes(raw, raw_bytes) : raw_bytes);
    }
    return result;
}

sumi_result sumi_fail_with(sumi_error* error, const sumi_error* from)
{
    SUMI_ASSERT(from->result != SUMI_OK);
    if (error != NULL && error->result == SUMI_OK) *error = *from;
    return from->result;
}

#if defined(SUMI_CHECKED)
void sumi_assert_failed(const char* condition, const char* file, int line)
{
    fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, condition);
    fflush(stderr);
    __builtin_trap();
}
#endif
