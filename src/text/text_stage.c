// What the stages of a run share. It knows no kind of stage: a stage is pulled through its `pull`, which
// tokenizer_run.c sets when it puts the stages in a row.
#include "text/tokenizer_run.h"

sumi_result sumi_run_pull(sumi_tokenizer_run* run, size_t index, sumi_pull* out_pull)
{
    SUMI_ASSERT(index < run->stage_count);
    *out_pull = SUMI_PULL_PAUSE;
    return sumi_run_must_pause(run) ? SUMI_OK : run->stages[index].pull(run, index, out_pull);
}

size_t sumi_pattern_find(const char* text, size_t bytes, size_t at, const sumi_short_text* pattern)
{
    SUMI_ASSERT(pattern->bytes > 0 && pattern->bytes <= SUMI_TOKENIZER_MAX_PATTERN && at <= bytes);
    while (at < bytes) {
        const char* first = memchr(text + at, pattern->data[0], bytes - at);
        if (first == NULL) return bytes;
        at = (size_t)(first - text);
        if (bytes - at >= pattern->bytes && memcmp(first, pattern->data, pattern->bytes) == 0) return at;
        at++;
    }
    return bytes;
}

sumi_result sumi_stage_refill(sumi_tokenizer_run* run, size_t index, sumi_pull* out_pull)
{
    SUMI_ASSERT(index > 0);
    sumi_text_stage* stage = &run->stages[index];
    const sumi_window* in = &run->stages[index - 1].out;
    const bool shows_input = stage->has_output && !stage->makes_text;
    const size_t shown = shows_input ? (size_t)(stage->out.text - in->text) : 0;
    SUMI_ASSERT(shown <= in->bytes && (!stage->has_input || !in->is_last));
    SUMI_TRY(sumi_run_pull(run, index - 1, out_pull));
    if (shows_input) stage->out.text = in->text + shown;
    if (*out_pull == SUMI_PULL_MORE) stage->waits = false;
    return SUMI_OK;
}

void sumi_stage_follow(sumi_tokenizer_run* run, size_t index)
{
    sumi_text_stage* stage = &run->stages[index];
    if (stage->has_output) {
        sumi_window* in = &run->stages[index - 1].out;
        const size_t taken = (size_t)(stage->out.text - in->text);
        sumi_window_take(in, taken);
        stage->base += taken;
    }
    sumi_stage_end_piece(run, index);
}

void sumi_stage_end_piece(sumi_tokenizer_run* run, size_t index)
{
    sumi_text_stage* stage = &run->stages[index];
    if (!stage->out.is_last) return;
    SUMI_ASSERT(stage->out.bytes == 0);
    stage->out.is_last = stage->has_output = false;
    if (stage->is_ending) {
        sumi_window* in = &run->stages[index - 1].out;
        sumi_window_take(in, in->bytes);
        stage->is_ending = stage->has_input = false;
    }
}

bool sumi_stage_show(sumi_tokenizer_run* run, size_t index, size_t begin, size_t end, bool is_last)
{
    sumi_text_stage* stage = &run->stages[index];
    const sumi_window* in = &run->stages[index - 1].out;
    SUMI_ASSERT(begin <= end && end <= stage->base + in->bytes && !stage->out.is_last);
    if (!stage->has_output) {
        SUMI_ASSERT(begin >= stage->base);
        stage->has_output = true;
        const bool at_begin = in->at_begin && (begin == 0 || stage->kind == SUMI_STAGE_STRIP);
        stage->out = (sumi_window){.text = in->text + (begin - stage->base), .at_begin = at_begin};
    }
    const size_t bytes = end - stage->base - (size_t)(stage->out.text - in->text);
    const bool is_news = bytes != stage->out.bytes || is_last;
    stage->out.bytes = bytes;
    stage->out.is_last = is_last;
    return is_news;
}

sumi_result sumi_stage_room(sumi_tokenizer_run* run, size_t index, size_t bytes)
{
    sumi_text_stage* stage = &run->stages[index];
    sumi_text_buffer* buffer = &stage->buffer;
    const size_t taken = buffer->bytes - stage->out.bytes;
    if (taken > 0 && taken >= stage->out.bytes) { // so that every byte is moved once at most, on average
        memmove(sumi_text_data(buffer), sumi_text_data(buffer) + taken, stage->out.bytes);
        buffer->bytes = stage->out.bytes;
    }
    SUMI_TRY(sumi_text_reserve(run->heap, buffer, bytes, run->error));
    stage->shown_bytes = buffer->bytes;
    return SUMI_OK;
}

bool sumi_stage_show_buffer(sumi_tokenizer_run* run, size_t index, bool is_last)
{
    sumi_text_stage* stage = &run->stages[index];
    const size_t more = stage->buffer.bytes - stage->shown_bytes;
    stage->shown_bytes = stage->buffer.bytes;
    stage->out.bytes += more;
    stage->out.text = sumi_text_data(&stage->buffer) + (stage->buffer.bytes - stage->out.bytes);
    stage->out.is_last = is_last;
    return more > 0 || is_last;
}
