// The stage of a run that finds added tokens: the leftmost, of these the longest. It writes their ids and passes on the
// text between them:
//
//     "<|im_start|>user\nA fox" -> id 151644, "user\nA fox"
//
// It runs before the normalizer, where the text is as it was given, and again after it for tokens that are matched in
// normalised text. Each text that it passes on is normalised and split by itself: a combining mark after an added token
// has no base.
#include "text/tokenizer_run.h"

enum { CHARACTER_BYTES = 4 };

// Where the white space that ends at `end` begins, but not before `from`.
static size_t trimmed_end(const char* text, size_t from, size_t end)
{
    while (end > from) {
        size_t at = end - 1, length;
        while (at > from && ((unsigned char)text[at] & 0xC0) == 0x80) at--;
        if (!sumi_char_is_space(sumi_utf8_get(text + at, &length))) break;
        end = at;
    }
    return end;
}

// Whether the last character of text[0, end) belongs to a word.
static bool ends_in_word(const char* text, size_t end)
{
    size_t at = end - 1, length;
    while (at > 0 && ((unsigned char)text[at] & 0xC0) == 0x80) at--;
    return sumi_char_is_word(sumi_utf8_get(text + at, &length));
}

// Drops the text that the next stage has taken and the search has passed.
static void follow(sumi_tokenizer_run* run, size_t index)
{
    sumi_text_stage* stage = &run->stages[index];
    sumi_window* in = &run->stages[index - 1].out;
    sumi_stage_added* s = &stage->s.added;
    const size_t ahead = stage->has_input && s->at > stage->base ? s->at - stage->base : 0,
                 left_out = s->from > stage->base ? s->from - stage->base : 0,
                 taken = stage->has_output ? (size_t)(stage->out.text - in->text) : left_out,
                 dropped = taken < ahead ? taken : ahead;
    if (stage->has_input && dropped > 0) {
        s->before_is_word = run->tokenizer->has_single_words && ends_in_word(in->text, dropped);
        sumi_window_take(in, dropped);
        stage->base += dropped;
    }
    sumi_stage_end_piece(run, index);
}

typedef struct added_match {
    size_t begin, end; // of the token's text in the window
    const sumi_added_token* token;
} added_match;

// The longest token in the window at `at`.
static bool match_at(sumi_tokenizer_run* run, const sumi_window* in, bool is_normalized, size_t at, added_match* out)
{
    const sumi_tokenizer* t = run->tokenizer;
    const sumi_vocabulary* tokens = is_normalized ? &t->added_normalized : &t->added;
    const sumi_added_token* list = t->added_tokens;
    *out = (added_match){.begin = at};
    sumi_vocabulary_walk walk = {0};
    while (sumi_vocabulary_next(tokens, &walk, in->text + at, in->bytes - at)) {
        const sumi_added_token* token = &list[is_normalized ? sumi_vocabulary_id(tokens, walk.entry) : walk.entry];
        if (token->normalized == is_normalized) {
            out->token = token;
            out->end = at + walk.bytes;
        }
    }
    run->work += 2 + 2 * walk.bytes;
    return out->token != NULL;
}

static bool touches_word(const sumi_stage_added* s, const sumi_window* in, const added_match* match)
{
    size_t length;
    return (match->begin > 0 ? ends_in_word(in->text, match->begin) : s->before_is_word)
        || (match->end < in->bytes && sumi_char_is_word(sumi_utf8_get(in->text + match->end, &length)));
}

// Continues the search in the available text, except for the last bytes, where an incomplete token may begin. Finds no
// more than one token.
static void search(sumi_tokenizer_run* run, size_t index)
{
    sumi_text_stage* stage = &run->stages[index];
    const sumi_window* in = &run->stages[index - 1].out;
    sumi_stage_added* s = &stage->s.added;
    const sumi_tokenizer* t = run->tokenizer;
    const sumi_vocabulary* tokens = s->is_normalized ? &t->added_normalized : &t->added;
    const size_t ahead = tokens->max_bytes + CHARACTER_BYTES, begin = s->at - stage->base,
                 known = in->is_last       ? in->bytes
                       : in->bytes < ahead ? 0
                                           : in->bytes - ahead,
                 limit = known < begin + SUMI_STAGE_BYTES ? known : begin + SUMI_STAGE_BYTES,
                 end = limit > begin ? sumi_window_whole(in, limit) : begin;
    size_t at = begin;
    added_match match = {0};
    const uint64_t most = run->work + 4 * SUMI_STAGE_BYTES;
    while (at < end && run->work < most) {
        if (!tokens->first_bytes[(unsigned char)in->text[at]]) {
            at++;
        } else if (!match_at(run, in, s->is_normalized, at, &match)) {
            at++;
            while (at < end && ((unsigned char)in->text[at] & 0xC0) == 0x80) at++;
        } else {
            at = match.end;
            if (!match.token->single_word || !touches_word(s, in, &match)) break;
            match.token = NULL;
        }
    }
    const size_t looked = match.token != NULL ? match.begin : at;
    if (t->strips_before && looked > begin) {
        const size_t solid = trimmed_end(in->text, begin, looked);
        s->solid = solid > begin && stage->base + solid > s->solid ? stage->base + solid : s->solid;
    } else if (!t->strips_before && stage->base + looked > s->solid) {
        s->solid = stage->base + looked;
    }
    run->work += 1 + (at - begin) / 4;
    s->at = stage->base + at;
    s->token = match.token;
    if (match.token != NULL) {
        const size_t token_begin = stage->base + match.begin;
        s->token_begin = !match.token->lstrip ? token_begin : s->solid < s->from ? s->from : s->solid;
        s->token_end = s->at;
    }
}

// White space after the token is a part of it. False: more text is needed.
static bool strip_behind(sumi_tokenizer_run* run, size_t index)
{
    sumi_text_stage* stage = &run->stages[index];
    const sumi_window* in = &run->stages[index - 1].out;
    sumi_stage_added* s = &stage->s.added;
    size_t at = s->token_end - stage->base, length;
    const size_t begin = at;
    while (s->token->rstrip && at < in->bytes && at - begin < SUMI_STAGE_BYTES) {
        if (!sumi_char_is_space(sumi_utf8_get(in->text + at, &length))) break;
        at += length;
    }
    const bool is_known =
        !s->token->rstrip || at < in->bytes ? at - begin < SUMI_STAGE_BYTES : in->is_last && at == in->bytes;
    run->work += 1 + (at - begin);
    s->token_end = stage->base + at;
    return is_known;
}

static void put_token(sumi_tokenizer_run* run, sumi_stage_added* s)
{
    // empty if a token with rstrip has already taken the white space that this token, with lstrip, consists of
    if (s->token_begin < s->token_end) sumi_ids_put(&run->ids, s->token->id);
    s->from = s->solid = s->token_end;
    s->token = NULL;
}

sumi_result sumi_stage_added_pull(sumi_tokenizer_run* run, size_t index, sumi_pull* out_pull)
{
    sumi_text_stage* stage = &run->stages[index];
    sumi_window* in = &run->stages[index - 1].out;
    sumi_stage_added* s = &stage->s.added;
    for (;;) {
        follow(run, index);
        if (!stage->has_input || stage->waits) {
            SUMI_TRY(sumi_stage_refill(run, index, out_pull));
            if (*out_pull != SUMI_PULL_MORE) return SUMI_OK;
            if (!stage->has_input) {
                *s = (sumi_stage_added){.is_normalized = s->is_normalized};
                stage->has_input = true;
                stage->base = 0;
            }
        }
        *out_pull = SUMI_PULL_PAUSE;
        if (sumi_run_must_pause(run)) return SUMI_OK;
        const size_t end = stage->base + in->bytes;
        if (s->token != NULL) { // the text before it has been passed on
            if (strip_behind(run, index)) {
                put_token(run, s);
            } else {
                stage->waits = s->token_end == end && !in->is_last;
            }
            continue;
        }
        const size_t before = s->at;
        search(run, index);
        *out_pull = SUMI_PULL_MORE;
        if (s->token != NULL) {
            if (s->from < s->token_begin) {
                (void)sumi_stage_show(run, index, s->from, s->token_begin, true);
                return SUMI_OK;
            }
        } else if (in->is_last && s->at == end) {
            if (s->from < end) {
                (void)sumi_stage_show(run, index, s->from, end, true);
                stage->is_ending = true;
                return SUMI_OK;
            }
            sumi_window_take(in, in->bytes);
            stage->has_input = false;
        } else if (s->solid > s->from && sumi_stage_show(run, index, s->from, s->solid, false)) {
            return SUMI_OK;
        } else {
            stage->waits = s->at == before && !in->is_last;
        }
    }
}
