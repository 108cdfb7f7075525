// UTF-8 in the texts of picture files, whose formats hold Latin-1, UTF-8 or UTF-16, and texts of files on a terminal.
// For samples and tests.
#ifndef UTF8_H
#define UTF8_H
#include <stddef.h>
#include <stdint.h>

// The bytes (1 to 4) of the character at the start of `text`, of at most `length` bytes, and its code point. 0: the
// bytes there are no valid UTF-8 (overlong forms and surrogates are not), or length is 0.
size_t utf8_decode(const char* text, size_t length, uint32_t* code_point);
// Writes a code point below 0x110000 as UTF-8 to `into`, which has 4 bytes; returns how many it wrote.
size_t utf8_encode(uint32_t code_point, char* into);

// Copies a text that may come from a file, so that a terminal may print it: each byte of a control character (line ends
// too) and each byte that is not UTF-8 becomes \xNN. Writes at most `capacity` bytes, the terminator included, and ends
// neither inside of a character nor of an escape. Returns the bytes of the whole copy without the terminator.
size_t utf8_show(char* into, size_t capacity, const char* text);

// These return a zero-terminated copy that the caller frees, or NULL without memory.
char* utf8_from_latin1(const char* text, size_t length);
char* utf8_from_utf16(const uint8_t* units, size_t unit_count, int is_little_endian); // unpaired surrogates: U+FFFD
// NULL also when the text is not UTF-8 or has a character beyond U+00FF.
char* utf8_to_latin1(const char* text);
#endif
