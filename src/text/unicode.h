// Unicode for the tokenizers: UTF-8, the regex classes, NFC, grapheme clusters. Results equal those from the reference
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

// NFC of a valid text that is given in pieces. A mark far away may belong before one that is near, so the marks of one
// letter are held until the letter's last one is known; everything else is written as it comes. Zeroed: ready. Memory
// grows with the longest run of marks. Takes linear time for any text.
typedef struct sumi_nfc_mark {
    int32_t point; // -1: composed with its letter
    uint32_t next; // the next mark of the same combining class
} sumi_nfc_mark;

typedef enum sumi_nfc_phase { SUMI_NFC_READ, SUMI_NFC_COMPOSE, SUMI_NFC_WRITE } sumi_nfc_phase;

enum { SUMI_NFC_MAX_DECOMPOSITION = 32 }; // canonical decompositions have at most 4 code points

typedef struct sumi_nfc {
    // The letter whose marks are read; the letter that follows its marks. has_*: whether there is one.
    int32_t letter, next_letter;
    bool has_letter, has_next_letter;
    int32_t kept_class; // the combining class of the last mark that stays after the letter; -1: none
    void* marks;        // sumi_nfc_mark, in the order of the text
    size_t mark_count, mark_capacity;
    uint64_t used[4]; // one bit per combining class: the run has marks of it
    uint32_t first[256], last[256];
    // The code points of the character that is being read.
    int32_t points[SUMI_NFC_MAX_DECOMPOSITION];
    size_t point_count, point_index;
    sumi_nfc_phase phase;
    uint32_t class_cursor, mark_cursor; // where COMPOSE or WRITE continues; mark_cursor NONE: at the class's first mark
} sumi_nfc;

// A piece of text for a function that works in pieces: it reads text[taken, bytes) until it needs more text or has done
// `work`, and adds to taken and done. If is_last, nothing follows. Work is counted in units of about two nanoseconds.
typedef struct sumi_text_piece {
    const char* text;
    size_t bytes, taken;
    bool is_last;
    size_t work, done;
} sumi_text_piece;

// Appends the NFC of the piece. The whole text has been written when the last piece is taken and done < work.
sumi_result sumi_nfc_append(sumi_nfc* nfc, sumi_text_piece* piece, const sumi_text_output* out);
void sumi_nfc_reset(sumi_nfc* nfc);                    // abandons the text; keeps memory
void sumi_nfc_release(sumi_heap* heap, sumi_nfc* nfc); // the same, and frees it

// Whether an extended grapheme cluster ends between two adjacent code points. *state is 0 at the beginning of a text.
bool sumi_cluster_ends(uint32_t before, uint32_t after, int32_t* state);
#endif
