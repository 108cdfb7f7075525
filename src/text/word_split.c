// A backtracking regex engine takes the first alternative that matches, not the longest. The alternatives, in order:
//
//     1  's 't 're 've 'm 'll 'd    any case; U+017F folds to s
//     2  [^\r\n L N]? L+            one other character may precede the letters: a space, a quote, a mark
//     3  N                          each number character is a separate match
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
    if (at >= bytes) return false;
    *out_class = sumi_char_classify(sumi_utf8_get(text + at, out_length));
    return true;
}

static size_t contraction(const char* text, size_t bytes)
{
    if (bytes < 2 || text[0] != '\'') return 0;
    char first = (char)(text[1] | 0x20), second = bytes > 2 ? (char)(text[2] | 0x20) : '\0';
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
    if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l')) return 3;
    return bytes > 2 && text[1] == '\xC5' && text[2] == '\xBF' ? 3 : 0; // U+017F, the long s
}

enum { BEGIN_BYTES = 8 }; // enough of a word to know its kind: two characters, or a contraction

static bool end_word(sumi_word_split* word, size_t end)
{
    word->kind = SUMI_WORD_WHOLE;
    word->end = word->known = end;
    return true;
}

// Finds the kind of a word by its first characters.
static void begin_word(sumi_word_split* word, const char* text, size_t bytes)
{
    size_t length = contraction(text, bytes), next_length = 0;
    if (length != 0) {
        end_word(word, length);
        return;
    }
    sumi_char_class first = SUMI_CHAR_OTHER, next = SUMI_CHAR_OTHER;
    class_at(text, bytes, 0, &first, &length);
    word->end = length;
    if (first == SUMI_CHAR_LETTER) {
        word->kind = SUMI_WORD_LETTERS;
    } else if (first == SUMI_CHAR_NUMBER) {
        end_word(word, length);
    } else {
        const bool has_next = class_at(text, bytes, length, &next, &next_length);
        if (has_next && next == SUMI_CHAR_LETTER && !is_line_end(text[0])) {
            word->kind = SUMI_WORD_LETTERS;
            word->end += next_length;
        } else if (first == SUMI_CHAR_OTHER || (text[0] == ' ' && has_next && next == SUMI_CHAR_OTHER)) {
            word->kind = SUMI_WORD_SYMBOLS;
        } else {
            word->kind = SUMI_WORD_SPACES;
            word->end = 0;
        }
    }
}

typedef struct word_text { // text[0] is the character at position `passed` of the word
    const char* text;
    size_t passed, bytes;
} word_text;

// Continues while characters are of the class. Returns whether another one has been found.
static bool pass_class(sumi_word_split* word, const word_text* t, sumi_char_class char_class)
{
    sumi_char_class found = char_class;
    size_t length, at = word->end - t->passed;
    while (class_at(t->text, t->bytes, at, &found, &length) && found == char_class) {
        if (char_class == SUMI_CHAR_SPACE) {
            word->last = at + t->passed;
            if (is_line_end(t->text[at])) word->line_end = at + t->passed + length;
        }
        at += length;
    }
    word->end = at + t->passed;
    return found != char_class;
}

static bool find_end(sumi_word_split* word, const word_text* t, bool is_last)
{
    if (word->kind == SUMI_WORD_LETTERS && (pass_class(word, t, SUMI_CHAR_LETTER) || is_last))
        return end_word(word, word->end);
    if (word->kind == SUMI_WORD_SYMBOLS && (pass_class(word, t, SUMI_CHAR_OTHER) || is_last))
        word->kind = SUMI_WORD_LINE_ENDS;
    if (word->kind == SUMI_WORD_LINE_ENDS) {
        size_t at = word->end - t->passed;
        while (at < t->bytes && is_line_end(t->text[at])) at++;
        word->end = at + t->passed;
        if (at < t->bytes || is_last) return end_word(word, word->end);
    }
    if (word->kind == SUMI_WORD_SPACES) {
        const bool is_end = pass_class(word, t, SUMI_CHAR_SPACE);
        if (is_end || is_last) {
            const size_t all = is_end && word->last > 0 ? word->last : word->end;
            return end_word(word, word->line_end != 0 ? word->line_end : all);
        }
        // a run with a line end reaches to its last line end; one without leaves its last character to the next word
        word->known = word->line_end != 0 ? word->line_end : word->last;
        return false;
    }
    word->known = word->end;
    return false;
}

bool sumi_word_split_find(sumi_word_split* word, const char* text, size_t passed, size_t bytes, bool is_last)
{
    SUMI_ASSERT(passed <= word->known && (bytes > 0 || passed > 0));
    if (word->kind == SUMI_WORD_NEW) {
        if (bytes < BEGIN_BYTES && !is_last) return false;
        begin_word(word, text, bytes);
    }
    return word->kind == SUMI_WORD_WHOLE || find_end(word, &(word_text){text, passed, bytes}, is_last);
}
