// The pre-tokenizer of Qwen2 and Qwen3: splits a text as their regular expression does.
#ifndef SUMI_TEXT_WORD_SPLIT_H
#define SUMI_TEXT_WORD_SPLIT_H
#include <stdbool.h>
#include <stddef.h>

// The regular expression that sumi_word_split_find implements, as in tokenizer.json.
#define SUMI_WORD_SPLIT_QWEN                                                                                           \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "                                              \
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

typedef enum sumi_word_kind {
    SUMI_WORD_NEW,
    SUMI_WORD_WHOLE, // the end is known
    SUMI_WORD_LETTERS,
    SUMI_WORD_SYMBOLS,
    SUMI_WORD_LINE_ENDS, // after symbols
    SUMI_WORD_SPACES
} sumi_word_kind;

// A word whose text comes in pieces. Positions are counted from the word's beginning. Zeroed: a new word.
typedef struct sumi_word_split {
    sumi_word_kind kind;
    size_t end;   // the text before it has been examined; when the word is whole, its end
    size_t known; // the text before it belongs to the word
    // SPACES: where the last character before `end` begins; the end of the last line end, 0: none
    size_t last, line_end;
} sumi_word_split;

// Continues to look for the word's end. text[0] is the character at position `passed`, which is not above `known`;
// `bytes` of the text are available; if is_last, nothing follows them. The text is valid UTF-8 of whole characters. A
// word has at least one, so that words cover every text. Returns whether the word is whole, which it is if is_last.
bool sumi_word_split_find(sumi_word_split* word, const char* text, size_t passed, size_t bytes, bool is_last);
#endif
