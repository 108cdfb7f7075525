// The stages of a run that cut text: the pre-tokenizer's steps, and the normalizer's that strips white space. They show
// parts of the text that they take.
#include "text/tokenizer_run.h"

// The known part of the output piece after the text was examined once.
typedef struct cut_found {
    size_t end;    // the text before it belongs to the piece
    bool is_last;  // and nothing else
    bool is_empty; // without a piece: the examined text is left out
    size_t next;   // with is_last: where the next piece begins
} cut_found;

typedef struct cut_text { // the input window; positions are within the input piece
    const char* text;
    size_t base, bytes;
    bool is_last;
} cut_text;

static size_t end_of(const cut_text* t) { return t->base + t->bytes; }

static uint32_t character_at(const cut_text* t, size_t at, size_t* out_length)
{
    return sumi_utf8_get(t->text + (at - t->base), out_length);
}

// The most text that is examined in one pull.
static size_t limit_of(const cut_text* t, size_t at)
{
    const sumi_window window = {.text = t->text, .bytes = t->bytes};
    const size_t rest = end_of(t) - at;
    if (rest <= SUMI_STAGE_BYTES) return end_of(t);
    return t->base + sumi_window_whole(&window, at - t->base + SUMI_STAGE_BYTES);
}

// White space at the ends of the text is left out.
static cut_found look_strip(sumi_stage_cut* s, const sumi_normalize_step* step, const cut_text* t)
{
    const size_t limit = limit_of(t, s->at);
    for (size_t length; s->at < limit; s->at += length) {
        const bool is_space = sumi_char_is_space(character_at(t, s->at, &length));
        const bool is_leading = is_space && step->strip_left && s->from == s->at;
        if (is_leading) s->from = s->solid = s->at + length;
        if (!is_space || (!step->strip_right && !is_leading)) s->solid = s->at + length;
    }
    return (cut_found){.end = s->solid, .is_last = t->is_last && s->at == end_of(t), .next = end_of(t)};
}

// White space separates pieces.
static cut_found look_white_space(sumi_stage_cut* s, const cut_text* t)
{
    const size_t limit = limit_of(t, s->at);
    for (size_t length; s->at < limit; s->at += length) {
        if (!sumi_char_is_space(character_at(t, s->at, &length))) continue;
        const size_t end = s->at;
        s->at += length;
        return (cut_found){.end = end, .is_last = true, .is_empty = end == s->from, .next = s->at};
    }
    const bool is_last = t->is_last && s->at == end_of(t);
    return (cut_found){.end = s->at, .is_last = is_last, .is_empty = is_last && s->at == s->from, .next = s->at};
}

// A piece begins at each mark.
static cut_found look_marks(sumi_stage_cut* s, const sumi_short_text* mark, const cut_text* t)
{
    s->at = s->at == s->from && s->at < end_of(t) ? s->at + 1 : s->at;
    const size_t limit = limit_of(t, s->at);
    const size_t found = t->base + sumi_pattern_find(t->text, limit - t->base, s->at - t->base, mark);
    s->at = found; // a mark is one character, so it ends where the window does
    const bool is_last = found < limit || (t->is_last && found == end_of(t));
    return (cut_found){.end = found, .is_last = is_last, .is_empty = is_last && found == s->from, .next = found};
}

static cut_found look_word(sumi_stage_cut* s, const cut_text* t)
{
    const size_t looked = s->from + s->word.end, limit = limit_of(t, looked > t->base ? looked : t->base);
    const bool is_last = t->is_last && limit == end_of(t);
    if (s->from == limit) { return (cut_found){.end = s->from, .is_last = is_last, .is_empty = true, .next = s->from}; }
    const size_t passed = t->base > s->from ? t->base - s->from : 0,
                 skipped = t->base > s->from ? 0 : s->from - t->base;
    const bool is_whole = sumi_word_split_find(&s->word, t->text + skipped, passed, limit - t->base - skipped, is_last);
    s->at = s->from + s->word.end;
    const cut_found found = {.end = s->from + s->word.known, .is_last = is_whole, .next = s->from + s->word.end};
    if (is_whole) { s->word = (sumi_word_split){0}; }
    return found;
}

// Each piece is the text between two cuts. The behaviour decides at each boundary of a pattern whether to cut.
static bool cuts_before(sumi_split_behavior behavior, bool is_pattern, bool has_pattern)
{
    switch (behavior) {
    case SUMI_SPLIT_MERGED_PREVIOUS: return !(is_pattern && !has_pattern);
    case SUMI_SPLIT_MERGED_NEXT: return is_pattern || !has_pattern;
    case SUMI_SPLIT_CONTIGUOUS: return is_pattern != has_pattern;
    default: return true;
    }
}

static cut_found look_literal(sumi_stage_cut* s, const sumi_split_step* step, const cut_text* t)
{
    const sumi_short_text* pattern = &step->pattern;
    const sumi_window window = {.text = t->text, .bytes = t->bytes};
    const size_t end = end_of(t), limit = limit_of(t, s->at);
    const bool is_removed = step->behavior == SUMI_SPLIT_REMOVED;
    while (s->at < limit) {
        const size_t at = s->at - t->base;
        if (!s->is_in_text) { // at a boundary
            if (t->bytes - at < pattern->bytes && !t->is_last) break;
            const bool is_pattern =
                t->bytes - at >= pattern->bytes && memcmp(t->text + at, pattern->data, pattern->bytes) == 0;
            const bool cuts = s->at != 0 && !s->is_cut && cuts_before(step->behavior, is_pattern, s->has_pattern);
            s->is_cut = cuts;
            if (cuts) {
                return (cut_found){
                    .end = s->at, .is_last = true, .is_empty = is_removed && s->has_pattern, .next = s->at};
            }
            s->is_cut = false;
            s->has_pattern = is_pattern;
            s->is_in_text = !is_pattern;
            s->at += is_pattern ? pattern->bytes : 0;
            continue;
        }
        const size_t found = sumi_pattern_find(t->text, t->bytes, at, pattern);
        if (found < t->bytes || t->is_last) {
            s->at = t->base + found;
            s->is_in_text = false;
            continue;
        }
        const size_t known = t->bytes < pattern->bytes ? 0 : sumi_window_whole(&window, t->bytes - pattern->bytes + 1);
        s->at = known > at ? t->base + known : s->at;
        break;
    }
    const bool is_last = t->is_last && s->at == end;
    const bool is_hidden = is_removed && s->has_pattern; // a pattern that is left out
    return (cut_found){.end = is_hidden ? s->from : s->at,
                       .is_last = is_last,
                       .is_empty = is_last && (is_hidden || s->at == s->from),
                       .next = s->at};
}

static cut_found look(sumi_tokenizer_run* run, size_t index)
{
    sumi_text_stage* stage = &run->stages[index];
    const sumi_window* in = &run->stages[index - 1].out;
    sumi_stage_cut* s = &stage->s.cut;
    const cut_text t = {in->text, stage->base, in->bytes, in->is_last};
    const size_t before = s->at;
    cut_found found;
    switch (stage->kind) {
    case SUMI_STAGE_STRIP: found = look_strip(s, stage->step, &t); break;
    case SUMI_STAGE_WHITESPACE: found = look_white_space(s, &t); break;
    case SUMI_STAGE_MARKS: found = look_marks(s, &((const sumi_split_step*)stage->step)->pattern, &t); break;
    case SUMI_STAGE_WORDS: found = look_word(s, &t); break;
    default: found = look_literal(s, stage->step, &t); break;
    }
    run->work += 2 + (s->at > before ? s->at - before : 0); // a word may end before the end of the examined text
    return found;
}

// Finds the next piece in a window that begins with it, if it is whole there, as most pieces are.
static bool find_whole(const sumi_text_stage* stage, const sumi_window* in, size_t* out_begin, size_t* out_end,
                       size_t* out_next)
{
    size_t at = 0, length = 0;
    *out_begin = 0;
    const size_t limit = in->bytes <= SUMI_STAGE_BYTES ? in->bytes : sumi_window_whole(in, SUMI_STAGE_BYTES);
    if (stage->kind == SUMI_STAGE_WORDS) {
        sumi_word_split word = {0};
        if (!sumi_word_split_find(&word, in->text, 0, limit, in->is_last && limit == in->bytes)) return false;
        *out_end = *out_next = word.end;
        return true;
    }
    if (stage->kind == SUMI_STAGE_MARKS) {
        at = sumi_pattern_find(in->text, limit, 1, &((const sumi_split_step*)stage->step)->pattern);
    } else if (limit == in->bytes) {
        while (at < limit && sumi_char_is_space(sumi_utf8_get(in->text + at, &length))) at += length;
        *out_begin = at;
        length = 0;
        while (at < limit && !sumi_char_is_space(sumi_utf8_get(in->text + at, &length))) at += length;
        length = at < limit ? length : 0;
    }
    *out_end = at;
    *out_next = at + length;
    return at > *out_begin && (at < limit || (in->is_last && at == in->bytes));
}

static bool show_whole(sumi_tokenizer_run* run, size_t index)
{
    sumi_text_stage* stage = &run->stages[index];
    sumi_window* in = &run->stages[index - 1].out;
    sumi_stage_cut* s = &stage->s.cut;
    if (stage->out.is_last && !stage->is_ending) { // its text has been taken
        const size_t taken = s->from - stage->base;
        sumi_window_take(in, taken);
        stage->base = s->from;
        stage->out.is_last = stage->has_output = false;
    }
    if (!stage->has_input || stage->has_output || in->bytes == 0 || s->from != stage->base || s->at != s->from)
        return false;
    size_t begin, end, next;
    if (!find_whole(stage, in, &begin, &end, &next)) return false;
    stage->out = (sumi_window){in->text + begin, end - begin, true, in->at_begin && stage->base + begin == 0};
    stage->has_output = true;
    stage->is_ending = in->is_last && next == in->bytes;
    stage->waits = false;
    s->from = s->at = stage->base + next;
    run->work += 2 + next;
    return true;
}

sumi_result sumi_stage_split_pull(sumi_tokenizer_run* run, size_t index, sumi_pull* out_pull)
{
    sumi_text_stage* stage = &run->stages[index];
    const sumi_window* in = &run->stages[index - 1].out;
    sumi_stage_cut* s = &stage->s.cut;
    *out_pull = SUMI_PULL_MORE;
    const bool has_short_pieces =
        stage->kind == SUMI_STAGE_WORDS || stage->kind == SUMI_STAGE_MARKS || stage->kind == SUMI_STAGE_WHITESPACE;
    if (has_short_pieces && show_whole(run, index)) return SUMI_OK;
    sumi_stage_follow(run, index);
    for (;;) {
        if (!stage->has_input || stage->waits) {
            SUMI_TRY(sumi_stage_refill(run, index, out_pull));
            if (*out_pull != SUMI_PULL_MORE) return SUMI_OK;
            if (!stage->has_input) {
                stage->has_input = true;
                stage->base = 0;
                *s = (sumi_stage_cut){0};
            }
        }
        *out_pull = SUMI_PULL_PAUSE;
        if (sumi_run_must_pause(run)) return SUMI_OK;
        if (!stage->has_output && s->from > stage->base) { // the text that was left out
            sumi_window_take(&run->stages[index - 1].out, s->from - stage->base);
            stage->base = s->from;
        }
        const size_t before = s->at;
        const cut_found found = look(run, index);
        const bool is_over = found.is_last && in->is_last && found.next == stage->base + in->bytes;
        if (!found.is_empty) {
            const bool is_news = (found.end > s->from || found.is_last)
                              && sumi_stage_show(run, index, s->from, found.end, found.is_last);
            stage->is_ending = is_over;
            if (found.is_last) s->from = found.next;
            if (is_news) {
                *out_pull = SUMI_PULL_MORE;
                return SUMI_OK;
            }
        } else if (is_over) {
            sumi_window_take(&run->stages[index - 1].out, in->bytes);
            stage->has_input = false;
        } else if (found.is_last) {
            s->from = found.next;
        }
        stage->waits = stage->has_input && !found.is_last && s->at == before; // nothing more can be known yet
    }
}
