#include "text/tokenizer_run.h"

#define MAX_TEXT_BYTES ((size_t)64 << 20)

// ---- Source ---------------------------------------------------------------------------------------------------------

static bool is_continuation(char c) { return ((unsigned char)c & 0xC0) == 0x80; }

// The end of the next bytes of a part that are repaired by themselves: no character, and no invalid part that counts as
// one, crosses this end.
static size_t whole_end(const sumi_text_part* part, size_t at)
{
    if (part->bytes - at <= SUMI_STAGE_BYTES) return part->bytes;
    const size_t end = at + SUMI_STAGE_BYTES;
    for (size_t back = 0; back < 4; back++) {
        if (!is_continuation(part->text[end - back])) return end - back;
    }
    return end; // no character is that long
}

static sumi_result pull_source(sumi_tokenizer_run* run, size_t index, sumi_pull* out_pull)
{
    sumi_text_stage* stage = &run->stages[index];
    *out_pull = SUMI_PULL_END;
    if (stage->out.is_last) return SUMI_OK;
    SUMI_TRY(sumi_stage_room(run, index, 3 * SUMI_STAGE_BYTES)); // as if every byte had to be replaced
    size_t taken = 0;
    while (run->part_index < run->part_count && taken < SUMI_STAGE_BYTES / 2) {
        const sumi_text_part* part = &run->parts[run->part_index];
        const size_t end = whole_end(part, run->part_at);
        SUMI_TRY(
            sumi_utf8_repair(run->heap, &stage->buffer, part->text + run->part_at, end - run->part_at, run->error));
        taken += end - run->part_at;
        run->part_at = end;
        if (end == part->bytes) {
            run->part_index++;
            run->part_at = 0;
        }
    }
    run->work += 8 + taken / 4;
    stage->out.at_begin = true;
    (void)sumi_stage_show_buffer(run, index, run->part_index == run->part_count);
    *out_pull = SUMI_PULL_MORE;
    return SUMI_OK;
}

// ---- Kinds ----------------------------------------------------------------------------------------------------------

static sumi_stage_pull* pull_of(sumi_stage_kind kind)
{
    switch (kind) {
    case SUMI_STAGE_SOURCE: return pull_source;
    case SUMI_STAGE_ADDED: return sumi_stage_added_pull;
    case SUMI_STAGE_NFC:
    case SUMI_STAGE_CHARSMAP:
    case SUMI_STAGE_REPLACE:
    case SUMI_STAGE_METASPACE: return sumi_stage_change_pull;
    case SUMI_STAGE_STRIP:
    case SUMI_STAGE_LITERAL:
    case SUMI_STAGE_WHITESPACE:
    case SUMI_STAGE_MARKS:
    case SUMI_STAGE_WORDS: break;
    }
    return sumi_stage_split_pull;
}

// ---- Run ------------------------------------------------------------------------------------------------------------

sumi_result sumi_tokenizer_run_create(sumi_heap* heap, sumi_error* error, sumi_tokenizer_run** out_run)
{
    *out_run = sumi_alloc_zero(heap, sizeof **out_run);
    if (*out_run == NULL) return sumi_out_of_memory(error, sizeof **out_run, "a text's tokens");
    (*out_run)->heap = heap;
    return SUMI_OK;
}

// Frees buffers that are larger than a usual text needs; all of them if `kept` is 0.
static void release_buffers(sumi_tokenizer_run* run, size_t kept)
{
    sumi_heap* heap = run->heap;
    for (size_t i = 0; i < SUMI_MAX_STAGES; i++) {
        if (run->stages[i].buffer.capacity > kept) sumi_text_release(heap, &run->stages[i].buffer);
    }
    for (size_t i = 0; i < SUMI_TOKENIZER_MAX_STEPS; i++) {
        if (run->nfc[i] != NULL && run->nfc[i]->mark_capacity * sizeof(sumi_nfc_mark) > kept)
            sumi_nfc_release(heap, run->nfc[i]);
    }
    if (run->bpe.mapped.capacity > kept) sumi_text_release(heap, &run->bpe.mapped);
    (void)sumi_pages_trim(heap, &run->bpe.symbols, SUMI_KEPT_PAGES, SIZE_MAX);
    (void)sumi_pages_trim(heap, &run->bpe.queue, SUMI_KEPT_PAGES, SIZE_MAX);
    (void)sumi_pages_trim(heap, &run->unigram.nodes, SUMI_KEPT_PAGES, SIZE_MAX);
}

void sumi_tokenizer_run_end(sumi_tokenizer_run* run)
{
    if (run == NULL || run->phase == SUMI_RUN_IDLE) return;
    release_buffers(run, SUMI_KEPT_BYTES);
    run->tokenizer = NULL;
    run->phase = SUMI_RUN_IDLE;
}

void sumi_tokenizer_run_destroy(sumi_tokenizer_run* run)
{
    if (run == NULL) return;
    release_buffers(run, 0);
    for (size_t i = 0; i < SUMI_TOKENIZER_MAX_STEPS; i++) sumi_free(run->heap, run->nfc[i]);
    sumi_pages_release(run->heap, &run->bpe.symbols);
    sumi_pages_release(run->heap, &run->bpe.queue);
    sumi_pages_release(run->heap, &run->unigram.nodes);
    sumi_free(run->heap, run);
}

static sumi_text_stage* add_stage(sumi_tokenizer_run* run, sumi_stage_kind kind, const void* step)
{
    SUMI_ASSERT(run->stage_count < SUMI_MAX_STAGES);
    sumi_text_stage* stage = &run->stages[run->stage_count++];
    const sumi_text_buffer buffer = stage->buffer;
    *stage = (sumi_text_stage){.kind = kind, .pull = pull_of(kind), .step = step, .buffer = buffer};
    stage->buffer.bytes = 0;
    stage->makes_text = kind == SUMI_STAGE_SOURCE || kind == SUMI_STAGE_NFC || kind == SUMI_STAGE_CHARSMAP
                     || kind == SUMI_STAGE_REPLACE || kind == SUMI_STAGE_METASPACE;
    return stage;
}

static sumi_result add_normalizer(sumi_tokenizer_run* run, sumi_error* error)
{
    static const sumi_stage_kind s_kinds[] = {[SUMI_NORMALIZE_NFC] = SUMI_STAGE_NFC,
                                              [SUMI_NORMALIZE_CHARSMAP] = SUMI_STAGE_CHARSMAP,
                                              [SUMI_NORMALIZE_REPLACE] = SUMI_STAGE_REPLACE,
                                              [SUMI_NORMALIZE_STRIP] = SUMI_STAGE_STRIP};
    const sumi_tokenizer* t = run->tokenizer;
    for (size_t i = 0; i < t->normalize_count; i++) {
        sumi_text_stage* stage = add_stage(run, s_kinds[t->normalize[i].kind], &t->normalize[i]);
        if (stage->kind != SUMI_STAGE_NFC) continue;
        if (run->nfc[i] == NULL) run->nfc[i] = sumi_alloc_zero(run->heap, sizeof **run->nfc);
        if (run->nfc[i] == NULL) return sumi_out_of_memory(error, sizeof **run->nfc, "a text's tokens");
        sumi_nfc_reset(run->nfc[i]);
        stage->s.nfc = run->nfc[i];
    }
    return SUMI_OK;
}

static void add_pre_tokenizer(sumi_tokenizer_run* run)
{
    static const sumi_stage_kind s_kinds[] = {[SUMI_SPLIT_QWEN] = SUMI_STAGE_WORDS,
                                              [SUMI_SPLIT_LITERAL] = SUMI_STAGE_LITERAL,
                                              [SUMI_SPLIT_WHITESPACE] = SUMI_STAGE_WHITESPACE,
                                              [SUMI_SPLIT_METASPACE] = SUMI_STAGE_METASPACE};
    const sumi_tokenizer* t = run->tokenizer;
    for (size_t i = 0; i < t->split_count; i++) {
        (void)add_stage(run, s_kinds[t->split[i].kind], &t->split[i]);
        if (t->split[i].kind == SUMI_SPLIT_METASPACE && t->split[i].split)
            (void)add_stage(run, SUMI_STAGE_MARKS, &t->split[i]);
    }
}

// Makes the source read these parts.
static void begin_source(sumi_tokenizer_run* run, const sumi_tokenizer* tokenizer, const sumi_text_part* parts,
                         int32_t part_count)
{
    run->tokenizer = tokenizer;
    run->part_count = run->part_index = 0;
    run->part_at = 0;
    for (int32_t i = 0; i < part_count; i++) {
        if (parts[i].bytes > 0) run->parts[run->part_count++] = parts[i];
    }
    run->stage_count = 0;
    run->work = 0;
    run->phase = SUMI_RUN_TEXT;
    (void)add_stage(run, SUMI_STAGE_SOURCE, NULL);
}

sumi_result sumi_tokenizer_run_begin(sumi_tokenizer_run* run, const sumi_tokenizer* tokenizer,
                                     const sumi_tokenizer_request* request, sumi_error* error)
{
    sumi_tokenizer_run_end(run);
    if (tokenizer->loading != NULL) {
        return sumi_fail(error, SUMI_WRONG_STATE, "%s: the tokenizer is not loaded; step until it is done",
                         tokenizer->path);
    }
    SUMI_ASSERT(request->part_count >= 0 && request->part_count <= SUMI_TOKENIZER_MAX_PARTS);
    SUMI_ASSERT(tokenizer->before_count <= SUMI_TOKENIZER_MAX_ENDS && tokenizer->model != SUMI_TOKEN_MODEL_NONE);
    size_t bytes = 0;
    bool has_null = request->ids == NULL && request->capacity != 0;
    for (int32_t i = 0; i < request->part_count; i++) {
        const sumi_text_part* part = &request->parts[i];
        has_null = has_null || (part->text == NULL && part->bytes != 0);
        bytes = part->bytes > MAX_TEXT_BYTES ? part->bytes : bytes + part->bytes;
        if (bytes > MAX_TEXT_BYTES) break;
    }
    if (has_null || bytes > MAX_TEXT_BYTES) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "a text of %zu bytes cannot be tokenized; at most %zu bytes, and no NULL", bytes,
                         MAX_TEXT_BYTES);
    }
    begin_source(run, tokenizer, request->parts, request->part_count);
    run->special = request->special;
    run->max_count = request->max_count;
    run->ids = (sumi_ids){request->ids, request->capacity, 0};
    (void)add_stage(run, SUMI_STAGE_ADDED, NULL);
    SUMI_TRY(add_normalizer(run, error));
    if (tokenizer->added_normalized.count > 0) add_stage(run, SUMI_STAGE_ADDED, NULL)->s.added.is_normalized = true;
    add_pre_tokenizer(run);
    sumi_bpe_reset(&run->bpe);
    sumi_unigram_reset(&run->unigram);
    for (size_t i = 0; run->special && i < tokenizer->before_count; i++) sumi_ids_put(&run->ids, tokenizer->before[i]);
    return SUMI_OK;
}

static bool has_all(const sumi_tokenizer_run* run) { return run->ids.count >= run->max_count; }

sumi_result sumi_tokenizer_run_step(sumi_tokenizer_run* run, uint64_t work, bool* out_done, sumi_error* error)
{
    SUMI_ASSERT(run->phase != SUMI_RUN_IDLE);
    const sumi_tokenizer* t = run->tokenizer;
    run->error = error;
    run->work_limit = work < UINT64_MAX - run->work ? run->work + (work > 0 ? work : 1) : UINT64_MAX;
    sumi_pull pull = SUMI_PULL_MORE;
    while (run->phase == SUMI_RUN_TEXT && pull != SUMI_PULL_PAUSE) {
        sumi_result result = SUMI_OK;
        if (has_all(run)) {
            pull = SUMI_PULL_END;
        } else if (t->model == SUMI_TOKEN_MODEL_BPE) {
            result = sumi_bpe_run(run, &pull);
        } else {
            result = sumi_unigram_run(run, &pull);
        }
        if (result != SUMI_OK) {
            sumi_tokenizer_run_end(run);
            return result;
        }
        if (pull == SUMI_PULL_END) run->phase = SUMI_RUN_ENDS;
    }
    if (run->phase == SUMI_RUN_ENDS) {
        for (size_t i = 0; run->special && !has_all(run) && i < t->after_count; i++)
            sumi_ids_put(&run->ids, t->after[i]);
        run->phase = SUMI_RUN_DONE;
    }
    *out_done = run->phase == SUMI_RUN_DONE;
    return SUMI_OK;
}

size_t sumi_tokenizer_run_count(const sumi_tokenizer_run* run) { return run->ids.count; }

uint64_t sumi_tokenizer_run_work(const sumi_tokenizer_run* run) { return run->work; }

sumi_result sumi_tokenizer_encode(const sumi_tokenizer* tokenizer, const char* text, size_t bytes, bool special,
                                  int32_t* ids, size_t capacity, size_t* out_count, sumi_error* error)
{
    *out_count = 0;
    sumi_tokenizer_run* run;
    SUMI_TRY(sumi_tokenizer_run_create(tokenizer->heap, error, &run));
    const sumi_tokenizer_request request = {.parts = {{text, bytes}},
                                            .part_count = 1,
                                            .special = special,
                                            .ids = ids,
                                            .capacity = capacity,
                                            .max_count = SIZE_MAX};
    sumi_result result = sumi_tokenizer_run_begin(run, tokenizer, &request, error);
    for (bool is_done = false; result == SUMI_OK && !is_done;)
        result = sumi_tokenizer_run_step(run, UINT64_MAX, &is_done, error);
    if (result == SUMI_OK) *out_count = sumi_tokenizer_run_count(run);
    sumi_tokenizer_run_destroy(run);
    return result;
}

sumi_result sumi_tokenizer_normalize(const sumi_tokenizer* tokenizer, const char* text, size_t bytes,
                                     sumi_text_buffer* out, sumi_error* error)
{
    sumi_tokenizer_run* run;
    SUMI_TRY(sumi_tokenizer_run_create(tokenizer->heap, error, &run));
    begin_source(run, tokenizer, &(sumi_text_part){text, bytes}, 1);
    run->error = error;
    run->work_limit = UINT64_MAX;
    sumi_result result = add_normalizer(run, error);
    sumi_window* made = &run->stages[run->stage_count - 1].out;
    for (sumi_pull pull = SUMI_PULL_MORE; result == SUMI_OK && !made->is_last && pull == SUMI_PULL_MORE;) {
        result = sumi_run_pull(run, run->stage_count - 1, &pull);
        if (result == SUMI_OK) {
            result = sumi_text_append(tokenizer->heap, out, made->text, made->bytes, error);
            sumi_window_take(made, made->bytes);
        }
    }
    sumi_tokenizer_run_destroy(run);
    return result;
}
