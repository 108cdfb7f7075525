#include "base/utf8.h"
#include "base/assert.h"
#include <string.h>

size_t sumi_utf8_part(const char* text, size_t bytes, bool* out_valid)
{
    SUMI_ASSERT(bytes > 0);
    const unsigned char* c = (const unsigned char*)text;
    // The table of well-formed sequences (Unicode 16.0, table 3-7): only the second byte's limits depend on the first
    // byte.
    size_t length = c[0] < 0x80 ? 1 : c[0] < 0xC2 ? 0 : c[0] < 0xE0 ? 2 : c[0] < 0xF0 ? 3 : c[0] < 0xF5 ? 4 : 0;
    unsigned char low = c[0] == 0xE0 ? 0xA0 : c[0] == 0xF0 ? 0x90 : 0x80;
    unsigned char high = c[0] == 0xED ? 0x9F : c[0] == 0xF4 ? 0x8F : 0xBF;
    *out_valid = false;
    if (length == 0) return 1;
    for (size_t i = 1; i < length; i++) {
        if (i >= bytes || c[i] < low || c[i] > high) return i;
        low = 0x80;
        high = 0xBF;
    }
    *out_valid = true;
    return length;
}

bool sumi_utf8_is_valid(const void* text, size_t bytes)
{
    const char* at = text;
    bool is_valid = true;
    for (size_t done = 0; done < bytes && is_valid;) done += sumi_utf8_part(at + done, bytes - done, &is_valid);
    return is_valid;
}

size_t sumi_utf8_encode(uint32_t code_point, char out[4])
{
    SUMI_ASSERT(code_point <= 0x10FFFF);
    if (code_point < 0x80) {
        out[0] = (char)code_point;
        return 1;
    }
    if (code_point < 0x800) {
        out[0] = (char)(0xC0 | code_point >> 6);
        out[1] = (char)(0x80 | (code_point & 0x3F));
        return 2;
    }
    if (code_point < 0x10000) {
        out[0] = (char)(0xE0 | code_point >> 12);
        out[1] = (char)(0x80 | (code_point >> 6 & 0x3F));
        out[2] = (char)(0x80 | (code_point & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | code_point >> 18);
    out[1] = (char)(0x80 | (code_point >> 12 & 0x3F));
    out[2] = (char)(0x80 | (code_point >> 6 & 0x3F));
    out[3] = (char)(0x80 | (code_point & 0x3F));
    return 4;
}

static bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

// The length of the next piece of text that is copied whole: a character, or an escape that this function has written
// before. 0: the next byte must be escaped.
static size_t shown_part(const char* text, size_t bytes)
{
    bool is_valid;
    const unsigned char* c = (const unsigned char*)text;
    const size_t length = sumi_utf8_part(text, bytes, &is_valid);
    const bool is_control = c[0] < 0x20 || c[0] == 0x7F || (length == 2 && c[0] == 0xC2 && c[1] < 0xA0);
    if (!is_valid || is_control) return 0;
    const bool is_escape = bytes >= 4 && text[0] == '\\' && text[1] == 'x' && is_hex(text[2]) && is_hex(text[3]);
    return is_escape ? 4 : length;
}

size_t sumi_utf8_show(char* out, size_t capacity, const char* text, size_t bytes)
{
    static const char s_digits[] = "0123456789abcdef";
    size_t used = 0, written = 0;
    for (size_t at = 0; at < bytes;) {
        const unsigned char c = (unsigned char)text[at];
        const char escape[4] = {'\\', 'x', s_digits[c >> 4], s_digits[c & 15]};
        const size_t part = shown_part(text + at, bytes - at), piece = part > 0 ? part : sizeof escape;
        if (used == written && used + piece < capacity) {
            memcpy(out + used, part > 0 ? text + at : escape, piece);
            written += piece;
        }
        used += piece;
        at += part > 0 ? part : 1;
    }
    if (capacity > 0) out[written] = '\0';
    return used;
}
