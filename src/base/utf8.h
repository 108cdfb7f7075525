// UTF-8: checking it, writing it, and showing text that comes from a file. text/unicode.h repairs it.
#ifndef SUMI_BASE_UTF8_H
#define SUMI_BASE_UTF8_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The length in bytes of the sequence at text[0]; requires bytes > 0. If the sequence is malformed, *out_valid is false
// and the length is that of the maximal invalid part, which counts as one U+FFFD.
size_t sumi_utf8_part(const char* text, size_t bytes, bool* out_valid);
// Whether the bytes are well-formed UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
bool sumi_utf8_is_valid(const void* text, size_t bytes);
// Writes a code point, which is at most U+10FFFF, and returns its bytes: 1 to 4.
size_t sumi_utf8_encode(uint32_t code_point, char out[4]);
// Copies a text that may come from a file for messages, logs and terminals, so that no terminal obeys it. Each byte of
// a control character (U+0000 to U+001F, U+007F to U+009F, so line ends too) and each byte that is not UTF-8 becomes
// \xNN; everything else stays. Shown text stays as it is when it is shown again. Writes at most `capacity` bytes, the
// terminator included, and never ends inside a character or an escape. Returns the bytes of the whole copy
// without the terminator.
size_t sumi_utf8_show(char* out, size_t capacity, const char* text, size_t bytes);
#endif
