#include "utf8.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t utf8_decode(const char* text, size_t length, uint32_t* code_point)
{
    static const uint32_t s_smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
    if (length == 0) return 0;
    const unsigned char first = (unsigned char)text[0];
    const size_t bytes = first < 0x80 ? 1 : first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : first >> 3 == 30 ? 4 : 0;
    if (bytes == 0 || bytes > length) return 0;
    uint32_t value = bytes == 1 ? first : first & (0x7Fu >> bytes);
    for (size_t i = 1; i < bytes; i++) {
        const unsigned char next = (unsigned char)text[i];
        if (next >> 6 != 2) return 0;
        value = value << 6 | (next & 0x3Fu);
    }
    if (value < s_smallest[bytes] || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return 0;
    *code_point = value;
    return bytes;
}

size_t utf8_encode(uint32_t code_point, char* into)
{
    if (code_point < 0x80) {
        into[0] = (char)code_point;
        return 1;
    }
    const size_t bytes = code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
    for (size_t i = bytes; i-- > 1; code_point >>= 6) into[i] = (char)(0x80 | (code_point & 0x3F));
    into[0] = (char)((0xF00 >> bytes & 0xFF) | code_point);
    return bytes;
}

// The bytes of the next piece that is copied whole: a character, or an escape that was written before. 0: the byte
// there has to be escaped.
static size_t shown_part(const char* text, size_t length)
{
    uint32_t point = 0;
    if (length >= 4 && text[0] == '\\' && text[1] == 'x' && strspn(text + 2, "0123456789abcdef") >= 2) return 4;
    const size_t bytes = utf8_decode(text, length, &point);
    return point < 0x20 || (point >= 0x7F && point < 0xA0) ? 0 : bytes;
}

size_t utf8_show(char* into, size_t capacity, const char* text)
{
    size_t used = 0, written = 0;
    for (size_t length = strlen(text); length > 0;) {
        char escape[8];
        const size_t part = shown_part(text, length), piece = part > 0 ? part : 4;
        snprintf(escape, sizeof escape, "\\x%02x", (unsigned)(unsigned char)text[0]);
        if (used == written && used + piece < capacity) {
            memcpy(into + used, part > 0 ? text : escape, piece);
            written += piece;
        }
        used += piece;
        text += part > 0 ? part : 1;
        length -= part > 0 ? part : 1;
    }
    if (capacity > 0) into[written] = 0;
    return used;
}

char* utf8_from_latin1(const char* text, size_t length)
{
    char* utf8 = malloc(2 * length + 1);
    size_t used = 0;
    for (size_t i = 0; utf8 && i < length; i++) used += utf8_encode((unsigned char)text[i], utf8 + used);
    if (utf8) utf8[used] = 0;
    return utf8;
}

char* utf8_from_utf16(const uint8_t* units, size_t unit_count, int is_little_endian)
{
    char* utf8 = malloc(3 * unit_count + 1); // a pair of units takes 4 bytes
    size_t used = 0;
    for (size_t i = 0; utf8 && i < unit_count; i++) {
        const uint8_t* unit = units + 2 * i;
        uint32_t value = is_little_endian ? unit[0] | (uint32_t)unit[1] << 8 : (uint32_t)unit[0] << 8 | unit[1];
        if (value >= 0xD800 && value < 0xE000) {
            const uint8_t* low = unit + 2;
            uint32_t second = 0;
            if (value < 0xDC00 && i + 1 < unit_count)
                second = is_little_endian ? low[0] | (uint32_t)low[1] << 8 : (uint32_t)low[0] << 8 | low[1];
            if (second >= 0xDC00 && second < 0xE000) {
                value = 0x10000 + ((value - 0xD800) << 10) + (second - 0xDC00);
                i++;
            } else {
                value = 0xFFFD;
            }
        }
        if (value == 0) break;
        used += utf8_encode(value, utf8 + used);
    }
    if (utf8) utf8[used] = 0;
    return utf8;
}

char* utf8_to_latin1(const char* text)
{
    const size_t length = strlen(text);
    char* latin1 = malloc(length + 1);
    size_t used = 0;
    for (size_t i = 0; latin1 && i < length;) {
        uint32_t code_point = 0;
        const size_t bytes = utf8_decode(text + i, length - i, &code_point);
        if (bytes == 0 || code_point > 0xFF) {
            free(latin1);
            return NULL;
        }
        latin1[used++] = (char)code_point;
        i += bytes;
    }
    if (latin1) latin1[used] = 0;
    return latin1;
}
