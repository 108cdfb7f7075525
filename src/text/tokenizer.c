// Runs a loaded tokenizer over a text. The stages pass segments of the text on, and only the last stage writes ids:
//
//     encode          the whole text, repaired if it is not valid UTF-8
//     added tokens    "<|im_start|>user\nA fox" -> id 151644, "user\nA fox"       the leftmost, of these the longest
//     normalize       "user\nA fox"                    per segment: a combining mark after an added token has no base
//     added tokens    again, for those that are matched in normalised text
//     pre-tokenize    "user" "\n" "A" " fox"           steps nest: each splits the pieces of the previous one
//     model           872 198 32 38835
//
// A segment stays in the caller's text as long as no step changes it (NFC never changes pure ASCII). Changed segments
// are in one of two buffers that alternate.
#include "base/assert.h"
#include "text/tokenizer_parts.h"
#include "text/word_split.h"

#define MAX_TEXT_BYTES ((size_t)64 << 20)
#define NONE SUMI_VOCABULARY_NONE

static bool is_ascii(const char* text, size_t bytes)
{
    unsigned char bits = 0;
    for (size_t i = 0; i < bytes; i++) { bits |= (unsigned char)text[i]; }
    return bits < 0x80;
}

// ---- Normalizer -----------------------------------------------------------------------------------------------------

// The first occurrence of pattern at or after `at`; `bytes` if there is none.
static size_t find_pattern(const char* text, size_t bytes, size_t at, const sumi_short_text* pattern)
{
    SUMI_ASSERT(pattern->bytes > 0 && pattern->bytes <= SUMI_TOKENIZER_MAX_PATTERN && at <= bytes);
    while (at < bytes) {
        const char* first = memchr(text + at, pattern->data[0], bytes - at);
        if (first == NULL) { return bytes; }
        at = (size_t)(first - text);
        if (bytes - at >= pattern->bytes && memcmp(first, pattern->data, pattern->bytes) == 0) { return at; }
        at++;
    }
    return bytes;
}

static sumi_result replace(sumi_heap* heap, sumi_text_buffer* out, const sumi_normalize_step* step, const char* text,
                           size_t bytes, sumi_error* error)
{
    SUMI_ASSERT(step->kind == SUMI_NORMALIZE_REPLACE);
    size_t copied = 0, at = 0;
    while ((at = find_pattern(text, bytes, at, &step->pattern)) < bytes) {
        size_t end = at + step->pattern.bytes, run = 1;
        while (step->min_run != 0 && bytes - end >= step->pattern.bytes
               && memcmp(text + end, step->pattern.data, step->pattern.bytes) == 0) {
            end += step->pattern.bytes;
            run++;
        }
        if (run >= step->min_run) {
            SUMI_TRY(sumi_text_append(heap, out, text + copied, at - copied, error));
            SUMI_TRY(sumi_text_append(heap, out, step->content.data, step->content.bytes, error));
            copied = end;
        }
        at = end;
    }
    return sumi_text_append(heap, out, text + copied, bytes - copied, error);
}

// Where the trailing white space of text begins.
static size_t trimmed_end(const char* text, size_t bytes)
{
    size_t end = bytes;
    while (end > 0) {
        size_t at = end - 1, length;
        while (at > 0 && ((unsigned char)text[at] & 0xC0) == 0x80) { at--; }
        if (!sumi_char_is_space(sumi_utf8_get(text + at, &length))) { break; }
        end = at;
    }
    return end;
}

static size_t trimmed_begin(const char* text, size_t bytes)
{
    size_t at = 0, length;
    while (at < bytes && sumi_char_is_space(sumi_utf8_get(text + at, &length))) { at += length; }
    return at;
}

static void strip(const sumi_normalize_step* step, const char** text, size_t* bytes)
{
    if (step->strip_right) { *bytes = trimmed_end(*text, *bytes); }
    size_t begin = step->strip_left ? trimmed_begin(*text, *bytes) : 0;
    *text += begin;
    *bytes -= begin;
}

sumi_result sumi_tokenizer_normalize(sumi_tokenizer* tokenizer, const char** text, size_t* bytes, sumi_error* error)
{
    SUMI_ASSERT(tokenizer->normalize_count <= SUMI_TOKENIZER_MAX_STEPS);
    sumi_heap* heap = tokenizer->heap;
    size_t buffer_index = 0;
    for (size_t i = 0; i < tokenizer->normalize_count; i++) {
        const sumi_normalize_step* step = &tokenizer->normalize[i];
        sumi_text_buffer* out = &tokenizer->normal[buffer_index];
        SUMI_ASSERT(*bytes == 0 || *text != sumi_text_data(out)); // the previous change went into the other buffer
        out->bytes = 0;
        switch (step->kind) {
        case SUMI_NORMALIZE_STRIP: strip(step, text, bytes); continue;
        case SUMI_NORMALIZE_NFC:
            if (is_ascii(*text, *bytes) || sumi_nfc_is_plain(*text, *bytes)) { continue; }
            SUMI_TRY(sumi_nfc_append(heap, out, &tokenizer->nfc, *text, *bytes, error));
            break;
        case SUMI_NORMALIZE_CHARSMAP:
            SUMI_TRY(sumi_charsmap_append(heap, out, &tokenizer->charsmap, *text, *bytes, error));
            break;
        case SUMI_NORMALIZE_REPLACE:
            if (find_pattern(*text, *bytes, 0, &step->pattern) == *bytes) { continue; }
            SUMI_TRY(replace(heap, out, step, *text, *bytes, error));
            break;
        }
        *text = out->bytes != 0 ? sumi_text_data(out) : "";
        *bytes = out->bytes;
        buffer_index = 1 - buffer_index;
    }
    return SUMI_OK;
}

// ---- Model ----------------------------------------------------------------------------------------------------------

static sumi_result encode_piece(sumi_tokenizer* t, const char* piece, size_t bytes, sumi_ids* out, sumi_error* error)
{
    SUMI_ASSERT(t->model != SUMI_TOKEN_MODEL_NONE);
    if (bytes == 0) { return SUMI_OK; }
    return t->model == SUMI_TOKEN_MODEL_BPE
             ? sumi_bpe_encode(t->heap, &t->bpe, &t->scratch, piece, bytes, out, error)
             : sumi_unigram_encode(t->heap, &t->unigram, &t->scratch, piece, bytes, out, error);
}

// ---- Pre-tokenizer --------------------------------------------------------------------------------------------------

typedef struct splitting {
    sumi_tokenizer* t;
    sumi_ids* out;
    sumi_error* error;
} splitting;

static sumi_result pre_tokenize(splitting* s, size_t step_index, const char* text, size_t bytes, bool at_begin);

// Each piece is the text between two cuts. The behaviour decides at each boundary of a pattern whether to cut.
static sumi_result split_literal(splitting* s, size_t step_index, const char* text, size_t bytes, bool at_begin)
{
    SUMI_ASSERT(bytes > 0);
    const sumi_split_step* step = &s->t->split[step_index];
    size_t piece = 0, at = 0;
    bool piece_has_pattern = false; // whether the text just before `at` is a pattern
    while (at < bytes) {
        size_t match_begin = find_pattern(text, bytes, at, &step->pattern);
        bool is_pattern = match_begin == at;
        size_t end = is_pattern ? at + step->pattern.bytes : match_begin;
        bool cut = at != 0;
        switch (step->behavior) {
        case SUMI_SPLIT_ISOLATED:
        case SUMI_SPLIT_REMOVED: break;
        case SUMI_SPLIT_MERGED_PREVIOUS: cut = cut && !(is_pattern && !piece_has_pattern); break;
        case SUMI_SPLIT_MERGED_NEXT: cut = cut && !(!is_pattern && piece_has_pattern); break;
        case SUMI_SPLIT_CONTIGUOUS: cut = cut && is_pattern != piece_has_pattern; break;
        }
        if (cut) {
            if (!(step->behavior == SUMI_SPLIT_REMOVED && piece_has_pattern)) {
                SUMI_TRY(pre_tokenize(s, step_index + 1, text + piece, at - piece, at_begin && piece == 0));
            }
            piece = at;
        }
        piece_has_pattern = is_pattern;
        at = end;
    }
    if (step->behavior == SUMI_SPLIT_REMOVED && piece_has_pattern) { return SUMI_OK; }
    return pre_tokenize(s, step_index + 1, text + piece, bytes - piece, at_begin && piece == 0);
}

static sumi_result split_whitespace(splitting* s, size_t step_index, const char* text, size_t bytes, bool at_begin)
{
    size_t piece = 0, length;
    for (size_t at = 0; at < bytes; at += length) {
        if (sumi_char_is_space(sumi_utf8_get(text + at, &length))) {
            SUMI_TRY(pre_tokenize(s, step_index + 1, text + piece, at - piece, at_begin && piece == 0));
            piece = at + length;
        }
    }
    return pre_tokenize(s, step_index + 1, text + piece, bytes - piece, at_begin && piece == 0);
}

// Replaces each space by the mark, puts a mark in front if `prepend` says so, and begins a piece at each mark if
// `split` is set.
static sumi_result split_metaspace(splitting* s, size_t step_index, const char* text, size_t bytes, bool at_begin)
{
    SUMI_ASSERT(bytes > 0);
    const sumi_split_step* step = &s->t->split[step_index];
    const sumi_short_text* mark = &step->pattern;
    sumi_text_buffer* out = &s->t->metaspace; // the loader allows only one such step per tokenizer
    out->bytes = 0;
    bool begins_marked = *text == ' ' || (bytes >= mark->bytes && memcmp(text, mark->data, mark->bytes) == 0);
    if (!begins_marked && (step->prepend == SUMI_PREPEND_ALWAYS || (step->prepend == SUMI_PREPEND_FIRST && at_begin))) {
        SUMI_TRY(sumi_text_append(s->t->heap, out, mark->data, mark->bytes, s->error));
    }
    size_t copied = 0;
    for (const char* blank; copied < bytes && (blank = memchr(text + copied, ' ', bytes - copied)) != NULL;
         copied = (size_t)(blank - text) + 1) {
        SUMI_TRY(sumi_text_append(s->t->heap, out, text + copied, (size_t)(blank - text) - copied, s->error));
        SUMI_TRY(sumi_text_append(s->t->heap, out, mark->data, mark->bytes, s->error));
    }
    SUMI_TRY(sumi_text_append(s->t->heap, out, text + copied, bytes - copied, s->error));
    const char* marked = sumi_text_data(out);
    size_t piece = 0;
    for (size_t next; step->split && (next = find_pattern(marked, out->bytes, piece + 1, mark)) < out->bytes;
         piece = next) {
        SUMI_TRY(pre_tokenize(s, step_index + 1, marked + piece, next - piece, at_begin && piece == 0));
    }
    SUMI_ASSERT(piece < out->bytes);
    return pre_tokenize(s, step_index + 1, marked + piece, out->bytes - piece, at_begin && piece == 0);
}

static sumi_result pre_tokenize(splitting* s, size_t step_index, const char* text, size_t bytes, bool at_begin)
{
    SUMI_ASSERT(step_index <= s->t->split_count);
    if (bytes == 0) { return SUMI_OK; }
    if (step_index == s->t->split_count) { return encode_piece(s->t, text, bytes, s->out, s->error); }
    switch (s->t->split[step_index].kind) {
    case SUMI_SPLIT_LITERAL: return split_literal(s, step_index, text, bytes, at_begin);
    case SUMI_SPLIT_WHITESPACE: return split_whitespace(s, step_index, text, bytes, at_begin);
    case SUMI_SPLIT_METASPACE: return split_metaspace(s, step_index, text, bytes, at_begin);
    case SUMI_SPLIT_QWEN:
        for (size_t at = 0, length; at < bytes; at += length) {
            length = sumi_word_split_qwen(text + at, bytes - at);
            SUMI_ASSERT(length > 0 && length <= bytes - at);
            SUMI_TRY(pre_tokenize(s, step_index + 1, text + at, length, at_begin && at == 0));
        }
        break;
    }
    return SUMI_OK;
}

// ---- Added tokens ---------------------------------------------------------------------------------------------------

typedef struct added_match {
    size_t begin, end; // of the token's text, without stripped white space
    const sumi_added_token* token;
} added_match;

// Finds the leftmost match at or after `at`, and of those that begin there the longest.
static bool find_added(const sumi_tokenizer* t, bool normalized, const char* text, size_t bytes, size_t at,
                       added_match* out)
{
    SUMI_ASSERT(at <= bytes);
    const sumi_vocabulary* tokens = normalized ? &t->added_normalized : &t->added;
    const sumi_added_token* list = t->added_tokens;
    for (; at < bytes; at++) {
        if (!tokens->first_bytes[(unsigned char)text[at]]) { continue; }
        *out = (added_match){.begin = at};
        sumi_vocabulary_walk walk = {0};
        while (sumi_vocabulary_next(tokens, &walk, text + at, bytes - at)) {
            const sumi_added_token* token = &list[normalized ? sumi_vocabulary_id(tokens, walk.entry) : walk.entry];
            if (token->normalized == normalized) {
                out->token = token;
                out->end = at + walk.bytes;
            }
        }
        if (out->token != NULL) { return true; }
    }
    return false;
}

static bool touches_word(const char* text, size_t bytes, const added_match* match)
{
    SUMI_ASSERT(match->begin < match->end && match->end <= bytes);
    size_t length, before = match->begin;
    while (before > 0 && ((unsigned char)text[--before] & 0xC0) == 0x80) {}
    return (match->begin > 0 && sumi_char_is_word(sumi_utf8_get(text + before, &length)))
        || (match->end < bytes && sumi_char_is_word(sumi_utf8_get(text + match->end, &length)));
}

static sumi_result encode_stretch(splitting* s, const char* text, size_t bytes, bool at_begin);

// Finds the added tokens in text and writes their ids. The text between them goes on: raw text to the normalizer,
// normalised text to the pre-tokenizer.
static sumi_result cut_added(splitting* s, bool normalized, const char* text, size_t bytes, bool at_begin)
{
    size_t from = 0, at = 0; // from: end of what has been written; at: where the search continues
    added_match match;
    while (find_added(s->t, normalized, text, bytes, at, &match)) {
        at = match.end;
        SUMI_ASSERT(match.begin < match.end && match.end <= bytes);
        if (match.token->single_word && touches_word(text, bytes, &match)) { continue; }
        size_t begin = match.begin, end = match.end;
        if (match.token->lstrip) {
            size_t trimmed = trimmed_end(text, begin);
            begin = trimmed > from ? trimmed : from;
        }
        if (match.token->rstrip) { end += trimmed_begin(text + end, bytes - end); }
        if (from < begin) {
            SUMI_TRY((normalized ? pre_tokenize(s, 0, text + from, begin - from, at_begin && from == 0)
                                 : encode_stretch(s, text + from, begin - from, at_begin && from == 0)));
        }
        // empty if a token with rstrip has already taken the white space that this token, with lstrip, consists of
        if (begin < end) { sumi_ids_put(s->out, match.token->id); }
        SUMI_ASSERT(end >= from && end <= bytes);
        from = end;
    }
    if (from >= bytes) { return SUMI_OK; }
    return normalized ? pre_tokenize(s, 0, text + from, bytes - from, at_begin && from == 0)
                      : encode_stretch(s, text + from, bytes - from, at_begin && from == 0);
}

static sumi_result encode_stretch(splitting* s, const char* text, size_t bytes, bool at_begin)
{
    SUMI_TRY(sumi_tokenizer_normalize(s->t, &text, &bytes, s->error));
    return cut_added(s, true, text, bytes, at_begin);
}

// ---- Encoding -------------------------------------------------------------------------------------------------------

sumi_result sumi_tokenizer_encode(sumi_tokenizer* tokenizer, const char* text, size_t bytes, bool special, int32_t* ids,
                                  size_t capacity, size_t* out_count, sumi_error* error)
{
    sumi_tokenizer* t = tokenizer;
    *out_count = 0;
    if (t->loading != NULL) {
        return sumi_fail(error, SUMI_WRONG_STATE, "%s: the tokenizer is not loaded; step until it is done", t->path);
    }
    if ((text == NULL && bytes != 0) || (ids == NULL && capacity != 0) || bytes > MAX_TEXT_BYTES) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "a text of %zu bytes cannot be tokenized; at most %zu bytes, and no NULL", bytes,
                         MAX_TEXT_BYTES);
    }
    SUMI_ASSERT(t->before_count <= SUMI_TOKENIZER_MAX_ENDS && t->after_count <= SUMI_TOKENIZER_MAX_ENDS);
    text = text != NULL ? text : "";
    sumi_ids out = {ids, capacity, 0};
    splitting s = {t, &out, error};
    if (!is_ascii(text, bytes) && !sumi_utf8_is_valid(text, bytes)) {
        t->repaired.bytes = 0;
        SUMI_TRY(sumi_utf8_repair(t->heap, &t->repaired, text, bytes, error));
        text = sumi_text_data(&t->repaired);
        bytes = t->repaired.bytes;
    }
    for (size_t i = 0; special && i < t->before_count; i++) { sumi_ids_put(&out, t->before[i]); }
    SUMI_TRY(cut_added(&s, false, text, bytes, true));
    for (size_t i = 0; special && i < t->after_count; i++) { sumi_ids_put(&out, t->after[i]); }
    *out_count = out.count;
    return SUMI_OK;
}

int32_t sumi_tokenizer_id(const sumi_tokenizer* tokenizer, const char* token)
{
    const sumi_vocabulary* vocabularies[] = {&tokenizer->added, &tokenizer->bpe.vocabulary,
                                             &tokenizer->unigram.vocabulary};
    for (size_t i = 0; i < 3; i++) {
        uint32_t entry = sumi_vocabulary_find(vocabularies[i], token, strlen(token));
        if (entry != NONE) { return (int32_t)sumi_vocabulary_id(vocabularies[i], entry); }
    }
    return -1;
}

size_t sumi_tokenizer_size(const sumi_tokenizer* tokenizer) { return tokenizer->size; }
