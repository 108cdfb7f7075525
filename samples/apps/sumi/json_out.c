#include "json_out.h"
#include "utf8.h"
#include <math.h>
#include <string.h>

static void put_string(json_out* out, const char* text)
{
    const size_t length = strlen(text);
    fputc('"', out->file);
    for (size_t i = 0, bytes; i < length; i += bytes ? bytes : 1) {
        uint32_t code_point;
        bytes = utf8_decode(text + i, length - i, &code_point);
        if (bytes == 0) fputs("\xEF\xBF\xBD", out->file);
        else if (code_point == '"' || code_point == '\\') fprintf(out->file, "\\%c", (int)code_point);
        else if (code_point == '\n') fputs("\\n", out->file);
        else if (code_point < ' ' || code_point == 0x7F) fprintf(out->file, "\\u%04x", (unsigned)code_point);
        else fwrite(text + i, 1, bytes, out->file);
    }
    fputc('"', out->file);
}

// What comes before a value: the comma after the one before, a line of its own, the key.
static void begin_value(json_out* out, const char* key)
{
    if (out->depth > 0) {
        fputs(out->has_items[out->depth - 1] ? ",\n" : "\n", out->file);
        out->has_items[out->depth - 1] = true;
    }
    fprintf(out->file, "%*s", 2 * out->depth, "");
    if (key) {
        put_string(out, key);
        fputs(": ", out->file);
    }
}

static void open_bracket(json_out* out, const char* key, char bracket)
{
    begin_value(out, key);
    fputc(bracket, out->file);
    out->has_items[out->depth++] = false;
}

static void close_bracket(json_out* out, char bracket)
{
    out->depth--;
    if (out->has_items[out->depth]) fprintf(out->file, "\n%*s", 2 * out->depth, "");
    fputc(bracket, out->file);
    if (out->depth == 0) fputc('\n', out->file);
}

void json_begin_object(json_out* out, const char* key) { open_bracket(out, key, '{'); }
void json_end_object(json_out* out) { close_bracket(out, '}'); }
void json_begin_array(json_out* out, const char* key) { open_bracket(out, key, '['); }
void json_end_array(json_out* out) { close_bracket(out, ']'); }

void json_text(json_out* out, const char* key, const char* text)
{
    begin_value(out, key);
    if (text) put_string(out, text);
    else fputs("null", out->file);
}

void json_integer(json_out* out, const char* key, int64_t value)
{
    begin_value(out, key);
    fprintf(out->file, "%lld", (long long)value);
}

void json_unsigned(json_out* out, const char* key, uint64_t value)
{
    begin_value(out, key);
    fprintf(out->file, "%llu", (unsigned long long)value);
}

void json_number(json_out* out, const char* key, double value)
{
    begin_value(out, key);
    if (isfinite(value)) fprintf(out->file, "%.9g", value);
    else fputs("null", out->file);
}

void json_bool(json_out* out, const char* key, bool value)
{
    begin_value(out, key);
    fputs(value ? "true" : "false", out->file);
}
