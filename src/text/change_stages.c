// The stages of a run that change text: the normalizer's steps, and the pre-tokenizer's that writes marks for spaces.
// Each piece that such a stage takes becomes one piece of its output.
#include "text/tokenizer_run.h"

enum { WORD_BYTES = 64 };

static void put_text(sumi_tokenizer_run* run, sumi_window* in, size_t bytes)
{
    sumi_window_take(in, bytes);
    run->work += 1 + bytes / 4;
}

// Examines the available text once. Sets *out_waits if more is needed.
static sumi_result change_by_characters(sumi_tokenizer_run* run, size_t index, bool* out_waits)
{
    sumi_text_stage* stage = &run->stages[index];
    sumi_window* in = &run->stages[index - 1].out;
    sumi_text_piece piece = {
        .text = in->text, .bytes = in->bytes, .is_last = in->is_last, .work = 2 * SUMI_STAGE_BYTES};
    const sumi_text_output out = {run->heap, &stage->buffer, run->error};
    if (stage->kind == SUMI_STAGE_NFC) {
        SUMI_TRY(sumi_nfc_append(stage->s.nfc, &piece, &out));
    } else {
        SUMI_TRY(sumi_charsmap_append(&run->tokenizer->charsmap, &stage->s.charsmap, &piece, &out));
    }
    sumi_window_take(in, piece.taken);
    run->work += 4 + piece.done;
    *out_waits = piece.done < piece.work;
    return SUMI_OK;
}

// Copies text up to the pattern's next occurrence.
static sumi_result copy_to_pattern(sumi_tokenizer_run* run, size_t index, const sumi_short_text* pattern,
                                   bool* out_found)
{
    sumi_window* in = &run->stages[index - 1].out;
    const size_t bytes = in->bytes < 4 * SUMI_STAGE_BYTES ? in->bytes : 4 * SUMI_STAGE_BYTES;
    size_t end = sumi_pattern_find(in->text, bytes, 0, pattern);
    *out_found = end < bytes;
    if (!*out_found && !(in->is_last && bytes == in->bytes)) { // the pattern may begin in the last bytes
        end = bytes < pattern->bytes ? 0 : sumi_window_whole(in, bytes - pattern->bytes + 1);
    }
    SUMI_TRY(sumi_text_append(run->heap, &run->stages[index].buffer, in->text, end, run->error));
    put_text(run, in, end);
    return SUMI_OK;
}

// Replaces the pattern where the window begins with it, and copies the text before the next one.
static sumi_result change_patterns(sumi_tokenizer_run* run, size_t index, bool* out_waits)
{
    sumi_text_stage* stage = &run->stages[index];
    sumi_window* in = &run->stages[index - 1].out;
    sumi_stage_replace* s = &stage->s.replace;
    const sumi_normalize_step* step = stage->step;
    const sumi_short_text* pattern = &step->pattern;
    *out_waits = false;
    if (!s->is_replaced && s->run == 0) {
        bool is_found;
        const size_t before = in->bytes;
        SUMI_TRY(copy_to_pattern(run, index, pattern, &is_found));
        *out_waits = !is_found && in->bytes == before;
        s->run = is_found ? pattern->bytes : 0;
        return SUMI_OK;
    }
    run->work++;
    if (!s->is_replaced && s->run >= step->min_run * pattern->bytes) {
        SUMI_TRY(sumi_text_append(run->heap, &stage->buffer, step->content.data, step->content.bytes, run->error));
        put_text(run, in, s->run);
        s->run = 0;
        s->is_replaced = step->min_run > 0; // and so is the rest of the run
        return SUMI_OK;
    }
    const size_t rest = in->bytes - s->run;
    *out_waits = rest < pattern->bytes && !in->is_last;
    if (*out_waits) return SUMI_OK;
    const bool goes_on = rest >= pattern->bytes && memcmp(in->text + s->run, pattern->data, pattern->bytes) == 0;
    if (s->is_replaced) {
        if (goes_on) put_text(run, in, pattern->bytes);
        s->is_replaced = goes_on;
        return SUMI_OK;
    }
    if (goes_on) {
        s->run += pattern->bytes;
        return SUMI_OK;
    }
    SUMI_TRY(sumi_text_append(run->heap, &stage->buffer, in->text, s->run, run->error)); // the run is too short
    put_text(run, in, s->run);
    s->run = 0;
    return SUMI_OK;
}

// Replaces each space by the mark, and puts a mark in front of the piece if `prepend` says so.
static sumi_result change_spaces(sumi_tokenizer_run* run, size_t index, bool* out_waits)
{
    sumi_text_stage* stage = &run->stages[index];
    sumi_window* in = &run->stages[index - 1].out;
    const sumi_split_step* step = stage->step;
    const sumi_short_text* mark = &step->pattern;
    *out_waits = in->bytes == 0;
    if (!stage->s.is_open) {
        *out_waits = in->bytes == 0 || (in->bytes < mark->bytes && !in->is_last);
        if (*out_waits) return SUMI_OK;
        stage->s.is_open = true;
        const bool begins_marked =
            *in->text == ' ' || (in->bytes >= mark->bytes && memcmp(in->text, mark->data, mark->bytes) == 0);
        if (!begins_marked
            && (step->prepend == SUMI_PREPEND_ALWAYS || (step->prepend == SUMI_PREPEND_FIRST && in->at_begin)))
            SUMI_TRY(sumi_text_append(run->heap, &stage->buffer, mark->data, mark->bytes, run->error));
    }
    const size_t end = sumi_window_whole(in, in->bytes < SUMI_STAGE_BYTES ? in->bytes : (size_t)SUMI_STAGE_BYTES);
    const char* text = in->text;
    size_t copied = 0;
    for (const char* blank; copied < end && (blank = memchr(text + copied, ' ', end - copied)) != NULL;
         copied = (size_t)(blank - text) + 1) {
        SUMI_TRY(
            sumi_text_append(run->heap, &stage->buffer, text + copied, (size_t)(blank - text) - copied, run->error));
        SUMI_TRY(sumi_text_append(run->heap, &stage->buffer, mark->data, mark->bytes, run->error));
        run->work++;
    }
    SUMI_TRY(sumi_text_append(run->heap, &stage->buffer, text + copied, end - copied, run->error));
    put_text(run, in, end);
    return SUMI_OK;
}

static void begin_piece(sumi_tokenizer_run* run, size_t index)
{
    sumi_text_stage* stage = &run->stages[index];
    stage->has_input = true;
    stage->buffer.bytes = stage->shown_bytes = 0;
    stage->out = (sumi_window){.text = "", .at_begin = run->stages[index - 1].out.at_begin};
    switch (stage->kind) {
    case SUMI_STAGE_CHARSMAP: stage->s.charsmap = (sumi_charsmap_state){0}; break;
    case SUMI_STAGE_REPLACE: stage->s.replace = (sumi_stage_replace){0}; break;
    case SUMI_STAGE_METASPACE: stage->s.is_open = false; break;
    default: break; // NFC holds nothing when a piece has ended
    }
}

// A short piece without spaces, such as a word that was split at white space: a mark and its text.
static sumi_result mark_word(sumi_tokenizer_run* run, size_t index, bool* out_is_word)
{
    sumi_text_stage* stage = &run->stages[index];
    sumi_window* in = &run->stages[index - 1].out;
    *out_is_word = in->is_last && in->bytes > 0 && in->bytes <= WORD_BYTES && memchr(in->text, ' ', in->bytes) == NULL;
    if (!*out_is_word) return SUMI_OK;
    const sumi_split_step* step = stage->step;
    const sumi_short_text* mark = &step->pattern;
    stage->buffer.bytes = 0;
    SUMI_TRY(sumi_text_reserve(run->heap, &stage->buffer, SUMI_TOKENIZER_MAX_PATTERN + WORD_BYTES, run->error));
    char* text = sumi_text_data(&stage->buffer);
    const bool begins_marked = in->bytes >= mark->bytes && memcmp(in->text, mark->data, mark->bytes) == 0,
               marks = step->prepend == SUMI_PREPEND_ALWAYS || (step->prepend == SUMI_PREPEND_FIRST && in->at_begin);
    const size_t before = marks && !begins_marked ? mark->bytes : 0;
    memcpy(text, mark->data, before);
    memcpy(text + before, in->text, in->bytes);
    stage->buffer.bytes = stage->shown_bytes = before + in->bytes;
    stage->out = (sumi_window){text, stage->buffer.bytes, true, in->at_begin};
    put_text(run, in, in->bytes);
    stage->has_input = stage->waits = true;
    return SUMI_OK;
}

sumi_result sumi_stage_change_pull(sumi_tokenizer_run* run, size_t index, sumi_pull* out_pull)
{
    sumi_text_stage* stage = &run->stages[index];
    const sumi_window* in = &run->stages[index - 1].out;
    if (stage->out.is_last) stage->out.is_last = stage->has_input = false;
    for (;;) {
        if (!stage->has_input || (stage->waits && !in->is_last)) {
            SUMI_TRY(sumi_stage_refill(run, index, out_pull));
            if (*out_pull != SUMI_PULL_MORE) return SUMI_OK;
            if (!stage->has_input) {
                bool is_word = false;
                if (stage->kind == SUMI_STAGE_METASPACE) SUMI_TRY(mark_word(run, index, &is_word));
                if (is_word) return SUMI_OK;
                begin_piece(run, index);
            }
        }
        if (stage->buffer.bytes == stage->shown_bytes) SUMI_TRY(sumi_stage_room(run, index, SUMI_STAGE_BYTES));
        switch (stage->kind) {
        case SUMI_STAGE_REPLACE: SUMI_TRY(change_patterns(run, index, &stage->waits)); break;
        case SUMI_STAGE_METASPACE: SUMI_TRY(change_spaces(run, index, &stage->waits)); break;
        default: SUMI_TRY(change_by_characters(run, index, &stage->waits)); break;
        }
        const bool is_over = stage->waits && in->is_last;
        SUMI_ASSERT(!is_over || in->bytes == 0);
        const bool enough = stage->buffer.bytes - stage->shown_bytes >= SUMI_STAGE_BYTES / 2;
        if (is_over || enough || stage->waits || sumi_run_must_pause(run)) {
            *out_pull = SUMI_PULL_MORE;
            if (sumi_stage_show_buffer(run, index, is_over)) return SUMI_OK;
            *out_pull = SUMI_PULL_PAUSE;
            if (sumi_run_must_pause(run)) return SUMI_OK;
        }
    }
}
