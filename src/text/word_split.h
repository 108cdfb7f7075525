// The pre-tokenizer of Qwen2 and Qwen3: splits a text as their regular expression does.
#ifndef SUMI_TEXT_WORD_SPLIT_H
#define SUMI_TEXT_WORD_SPLIT_H
#include <stddef.h>

// The regular expression that sumi_word_split_qwen implements, as in tokenizer.json.
#define SUMI_WORD_SPLIT_QWEN                                                                                           \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "                                              \
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

// The length in bytes of the match at text[0]; requires bytes > 0 and valid UTF-8. The match has at least one
// character, so matches cover every text.
size_t sumi_word_split_qwen(const char* text, size_t bytes);
#endif
