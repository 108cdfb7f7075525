// A backtracking regex engine takes the first alternative that matches, not the longest. The alternatives, in order:
//
//     1  's 't 're 've 'm 'll 'd    any case; U+017F folds to s
//     2  [^\r\n L N]? L+            one other character may precede the letters: a space, a quote, a mark
//     3  N                          each number character is a match of its own
//     4  " "? [^\s L N]+ [\r\n]*    symbols, with one space before and line ends after
//     5  \s* [\r\n]+                a run of white space up to its last line end
//     6  \s+ (?!\S)                 a run of white space without its last character, which is left to the next word;
//                                   at the end of the text the whole run
//     7  \s+
#include "text/word_split.h"
#include "base/assert.h"
#include "text/unicode.h"

static bool is_line_end(char c) { return c == '\r' || c == '\n'; }

// Gives the class and the length in bytes of the character at `at`. False at the end of the text.
static bool class_at(const char* text, size_t bytes, size_t at, sumi_char_class* out_class, size_t* out_length)
{
    SUMI_ASSERT(bytes > 0);
    if (at >= bytes) { return false; }
    *out_class = sumi_char_classify(sumi_utf8_get(text + at, out_length));
    return true;
}

static size_t run_end(const char* text, size_t bytes, size_t at, sumi_char_class char_class)
{
    sumi_char_class current;
    size_t length;
    while (class_at(text, bytes, at, &current, &length) && current == char_class) { at += length; }
    return at;
}

static size_t contraction(const char* text, size_t bytes)
{
    if (bytes < 2 || text[0] != '\'') { return 0; }
    char first = (char)(text[1] | 0x20), second = bytes > 2 ? (char)(text[2] | 0x20) : '\0';
    if (first == 's' || first == 't' || first == 'm' || first == 'd') { return 2; }
    if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l')) {
        return 3;
    }
    return bytes > 2 && text[1] == '\xC5' && text[2] == '\xBF' ? 3 : 0; // U+017F, the long s
}

static size_t white_space(const char* text, size_t bytes)
{
    size_t end = 0, last = 0, after_line_end = 0, length;
    sumi_char_class found;
    while (class_at(text, bytes, end, &found, &length) && found == SUMI_CHAR_SPACE) {
        last = end;
        end += length;
        after_line_end = is_line_end(text[last]) ? end : after_line_end;
    }
    if (after_line_end != 0) { return after_line_end; }
    return end == bytes || last == 0 ? end : last;
}

size_t sumi_word_split_qwen(const char* text, size_t bytes)
{
    SUMI_ASSERT(bytes > 0);
    size_t length = contraction(text, bytes), next_length = 0;
    if (length != 0) { return length; }
    sumi_char_class first = SUMI_CHAR_OTHER, next = SUMI_CHAR_OTHER;
    class_at(text, bytes, 0, &first, &length);
    if (first == SUMI_CHAR_LETTER) { return run_end(text, bytes, length, SUMI_CHAR_LETTER); }
    if (first == SUMI_CHAR_NUMBER) { return length; }
    bool has_next = class_at(text, bytes, length, &next, &next_length);
    if (has_next && next == SUMI_CHAR_LETTER && !is_line_end(text[0])) {
        return run_end(text, bytes, length + next_length, SUMI_CHAR_LETTER);
    }
    if (first == SUMI_CHAR_OTHER || (text[0] == ' ' && has_next && next == SUMI_CHAR_OTHER)) {
        size_t end = run_end(text, bytes, length, SUMI_CHAR_OTHER);
        while (end < bytes && is_line_end(text[end])) { end++; }
        return end;
    }
    return white_space(text, bytes);
}
