// The pre-tokenizer of Qwen2 and Qwen3: where their regular expression cuts a text.
#ifndef SUMI_TEXT_WORD_SPLIT_H
#define SUMI_TEXT_WORD_SPLIT_H
#include <stddef.h>

// The pattern this file implements, as it stands in tokenizer.json.
#define SUMI_WORD_SPLIT_QWEN                                                                                           \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "                                              \
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

// Bytes of the match at text[0], `bytes` > 0, valid UTF-8. Every text is covered: each position matches at least one
// character.
size_t sumi_word_split_qwen(const char* text, size_t bytes);
#endif
