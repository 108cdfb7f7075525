// Unicode for the tokenizers: UTF-8, the regex classes, NFC, grapheme clusters. Results are those of the reference
// tokenizer (huggingface/tokenizers 0.23), which mixes Unicode 9.0 (NFC), 16.0 (regex) and 17.0 (clusters). The tables
// in unicode_tables.inc list where libutf8proc 2.8 differs.
#ifndef SUMI_TEXT_UNICODE_H
#define SUMI_TEXT_UNICODE_H
#include "base/utf8.h"
#include "text/text_buffer.h"

#define SUMI_REPLACEMENT_CHARACTER 0xFFFDu

// Appends text with each maximal invalid part replaced by U+FFFD.
sumi_result sumi_utf8_repair(sumi_heap* heap, sumi_text_buffer* out, const char* text, size_t bytes, sumi_error* error);

// For valid text only: the length of the character with this first byte; and the character with its length.
static inline size_t sumi_utf8_length(const char* text)
{
    unsigned char first = (unsigned char)*text;
    return first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

static inline uint32_t sumi_utf8_get(const char* text, size_t* out_bytes)
{
    const unsigned char* c = (const unsigned char*)text;
    if (c[0] < 0x80) {
        *out_bytes = 1;
        return c[0];
    }
    if (c[0] < 0xE0) {
        *out_bytes = 2;
        return (c[0] & 0x1Fu) << 6 | (c[1] & 0x3Fu);
    }
    if (c[0] < 0xF0) {
        *out_bytes = 3;
        return (c[0] & 0x0Fu) << 12 | (c[1] & 0x3Fu) << 6 | (c[2] & 0x3Fu);
    }
    *out_bytes = 4;
    return (c[0] & 0x07u) << 18 | (c[1] & 0x3Fu) << 12 | (c[2] & 0x3Fu) << 6 | (c[3] & 0x3Fu);
}

typedef enum sumi_char_class { SUMI_CHAR_OTHER, SUMI_CHAR_LETTER, SUMI_CHAR_NUMBER, SUMI_CHAR_SPACE } sumi_char_class;
sumi_char_class sumi_char_classify(uint32_t code_point); // \p{L}, \p{N}, \s of the regex
bool sumi_char_is_space(uint32_t code_point);
// \w of the regex; an added token with single_word may not touch such characters
bool sumi_char_is_word(uint32_t code_point);

// Appends the NFC of valid text. `scratch` holds code points (int32_t) and keeps its capacity between calls. Takes
// linear time for any text.
typedef struct sumi_nfc_scratch {
    void* points;
    size_t capacity;
} sumi_nfc_scratch;
sumi_result sumi_nfc_append(sumi_heap* heap, sumi_text_buffer* out, sumi_nfc_scratch* scratch, const char* text,
                            size_t bytes, sumi_error* error);
// True only if the text is its own NFC (ASCII, Latin-1, kana, ideographs, Hangul syllables, ...); may be false for
// others.
bool sumi_nfc_is_plain(const char* text, size_t bytes);

// Whether an extended grapheme cluster ends between two adjacent code points. *state is 0 at the begin of a text.
bool sumi_cluster_ends(uint32_t before, uint32_t after, int32_t* state);
#endif
