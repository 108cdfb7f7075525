#include "base/utf8.h"
#include "base/assert.h"

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
    if (length == 0) { return 1; }
    for (size_t i = 1; i < length; i++) {
        if (i >= bytes || c[i] < low || c[i] > high) { return i; }
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
