#include "models/prompt_reader.h"
#include "base/assert.h"
#include "models/network_state.h"
#include <stdio.h>
#include <string.h>

enum {
    SEARCHED_BYTES = 8192, // of a text in one go
    SEARCHED_PER_WORK = 2, // bytes per unit of work
    MAX_END_TOKENS = 4
};

typedef enum reader_phase {
    READER_IDLE,
    READER_MARK,  // looks for the end of opening words in the text
    READER_BLANK, // looks for the text's first character that is not blank
    READER_PARTS, // puts the parts together
    READER_TEXT,  // tokenises
    READER_END,   // the tokens after the text
    READER_DONE
} reader_phase;

struct sumi_prompt_reader {
    sumi_heap* heap;
    sumi_tokenizer_run* run;
    const sumi_network* network;
    const sumi_prompt_template* prompt_template;
    const sumi_tokenizer* tokenizer;
    const char* tokenizer_path; // for messages
    sumi_prompt_text prompt;
    sumi_prompt_ids out;
    reader_phase phase;
    size_t at;           // of the search
    size_t skipped;      // bytes of the text that are not read
    const char* opening; // words in front of the text; NULL: none
    sumi_tokenizer_request request;
    char numbers[SUMI_MAX_REFERENCES][16];
    uint64_t work;
    int32_t count, cut, pad_id, dropped_rows;
};

// ---- The template ---------------------------------------------------------------------------------------------------

// Looks for the mark that ends a text's own opening words.
static void search_mark(sumi_prompt_reader* reader)
{
    const sumi_prompt_opening* opening = reader->prompt_template->opening;
    const char* text = reader->prompt.text;
    const size_t mark = strlen(opening->end_mark), bytes = reader->prompt.bytes,
                 last = bytes >= mark ? bytes - mark + 1 : 0, // after the last place for a mark
        end = last - reader->at < SEARCHED_BYTES ? last : reader->at + SEARCHED_BYTES;
    reader->work += 1 + (end - reader->at) / SEARCHED_PER_WORK;
    while (reader->at < end) {
        const char* first = memchr(text + reader->at, opening->end_mark[0], end - reader->at);
        reader->at = first != NULL ? (size_t)(first - text) : end;
        if (first == NULL) break;
        if (memcmp(first, opening->end_mark, mark) == 0) {
            const bool skips = reader->at == 0 || reader->prompt_template->skips_opening;
            reader->skipped = skips ? reader->at + mark : 0;
            reader->phase = READER_PARTS;
            return;
        }
        reader->at++;
    }
    if (reader->at < last) return;
    reader->at = 0;
    reader->phase = reader->prompt_template->skips_opening ? READER_PARTS : READER_BLANK;
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Chooses the opening words by the text's first character.
static void search_character(sumi_prompt_reader* reader)
{
    const char* text = reader->prompt.text;
    const size_t bytes = reader->prompt.bytes,
                 end = bytes - reader->at < SEARCHED_BYTES ? bytes : reader->at + SEARCHED_BYTES, begin = reader->at;
    while (reader->at < end && is_blank(text[reader->at])) reader->at++;
    reader->work += 1 + (reader->at - begin) / SEARCHED_PER_WORK;
    if (reader->at == end && end < bytes) return;
    const sumi_prompt_opening* opening = reader->prompt_template->opening;
    reader->opening = reader->at < bytes && text[reader->at] == '<' ? opening->markup : opening->plain;
    reader->phase = READER_PARTS;
}

static void add_part(sumi_prompt_reader* reader, const char* text, size_t bytes)
{
    SUMI_ASSERT(reader->request.part_count < SUMI_TOKENIZER_MAX_PARTS);
    reader->request.parts[reader->request.part_count++] = (sumi_text_part){text, bytes};
}

static void add_text(sumi_prompt_reader* reader, const char* text)
{
    if (text != NULL) add_part(reader, text, strlen(text));
}

static sumi_result begin_text(sumi_prompt_reader* reader, sumi_error* error)
{
    _Static_assert(3 * SUMI_MAX_REFERENCES + 4 <= SUMI_TOKENIZER_MAX_PARTS, "a part for each piece of the template");
    const sumi_prompt_template* prompt_template = reader->prompt_template;
    const size_t capacity = (size_t)reader->out.capacity, most = (size_t)prompt_template->max_tokens;
    reader->request = (sumi_tokenizer_request){.special = prompt_template->adds_special,
                                               .ids = reader->out.ids,
                                               .capacity = capacity < most ? capacity : most};
    reader->request.max_count = reader->request.capacity + SUMI_MAX_CUT_TOKENS;
    add_text(reader, prompt_template->before);
    for (int32_t i = 0; i < reader->prompt.picture_count; i++) {
        const bool is_later = i > 0 && prompt_template->later_picture != NULL;
        const char *picture = is_later ? prompt_template->later_picture : prompt_template->picture,
                   *number = strchr(picture, '#');
        add_part(reader, picture, number != NULL ? (size_t)(number - picture) : strlen(picture));
        if (number == NULL) continue;
        snprintf(reader->numbers[i], sizeof reader->numbers[i], "%d", (int)(i + 1));
        add_text(reader, reader->numbers[i]);
        add_text(reader, number + 1);
    }
    add_text(reader, reader->opening);
    if (reader->prompt.bytes > reader->skipped)
        add_part(reader, reader->prompt.text + reader->skipped, reader->prompt.bytes - reader->skipped);
    else add_text(reader, prompt_template->empty_text);
    add_text(reader, prompt_template->after);
    reader->phase = READER_TEXT;
    return sumi_tokenizer_run_begin(reader->run, reader->tokenizer, &reader->request, error);
}

// ---- The end --------------------------------------------------------------------------------------------------------

// Tokenises a short text of the recipe at once.
static sumi_result tokenise_short(sumi_prompt_reader* reader, const char* text, bool special, int32_t* ids,
                                  size_t capacity, size_t* out_count, sumi_error* error)
{
    const sumi_tokenizer_request request = {.parts = {{text, strlen(text)}},
                                            .part_count = 1,
                                            .special = special,
                                            .ids = ids,
                                            .capacity = capacity,
                                            .max_count = SIZE_MAX};
    bool is_done;
    SUMI_TRY(sumi_tokenizer_run_begin(reader->run, reader->tokenizer, &request, error));
    SUMI_TRY(sumi_tokenizer_run_step(reader->run, UINT64_MAX, &is_done, error));
    *out_count = sumi_tokenizer_run_count(reader->run);
    return SUMI_OK;
}

// Replaces the token of each picture with as many tokens as the picture has rows, from the last picture to the first.
static sumi_result expand_pictures(sumi_prompt_reader* reader, sumi_error* error)
{
    const sumi_prompt_text* prompt = &reader->prompt;
    int32_t *ids = reader->out.ids, *rows = reader->out.picture_rows, capacity = reader->out.capacity;
    int32_t token = 0, extra = 0, found_count = 0;
    size_t tokens = 0;
    SUMI_TRY(tokenise_short(reader, reader->prompt_template->picture_token, false, &token, 1, &tokens, error));
    if (tokens != 1) {
        return sumi_fail(error, SUMI_FILE_MALFORMED,
                         "%s does not know %s, which stands for images in prompts; the tokenizer is of another model",
                         reader->tokenizer_path, reader->prompt_template->picture_token);
    }
    for (int32_t i = 0; i < reader->count && found_count < prompt->picture_count; i++) {
        if (ids[i] == token) rows[found_count++] = i;
    }
    for (int32_t i = 0; i < prompt->picture_count; i++) {
        SUMI_ASSERT(prompt->picture_tokens[i] >= 1);
        extra += prompt->picture_tokens[i] - 1;
    }
    if (found_count < prompt->picture_count || extra > capacity - reader->count) {
        return sumi_fail(error, SUMI_TEXT_INVALID, "the prompt with its images needs more than %d tokens",
                         (int)capacity);
    }
    int32_t end = reader->count;
    reader->count += extra;
    for (int32_t i = prompt->picture_count - 1; i >= 0; i--) {
        const int32_t position = rows[i], behind = end - (position + 1);
        extra -= prompt->picture_tokens[i] - 1;
        // what follows this picture, up to the next one
        memmove(ids + position + extra + prompt->picture_tokens[i], ids + position + 1, (size_t)behind * sizeof *ids);
        for (int32_t k = 0; k < prompt->picture_tokens[i]; k++) ids[position + extra + k] = token;
        rows[i] = position + extra;
        end = position;
    }
    return SUMI_OK;
}

static sumi_result end_text(sumi_prompt_reader* reader, sumi_error* error)
{
    const sumi_prompt_template* prompt_template = reader->prompt_template;
    const size_t count = sumi_tokenizer_run_count(reader->run), most = reader->request.capacity;
    // the first ids are kept: a longer prompt loses the end of the template, as in the references
    reader->count = (int32_t)(count < most ? count : most);
    size_t cut = count - (size_t)reader->count;
    if (cut > 0 && prompt_template->keeps_end_token) {
        int32_t special[MAX_END_TOKENS]; // the tokens of an empty text, which every text has
        size_t special_count;
        SUMI_TRY(tokenise_short(reader, "", true, special, MAX_END_TOKENS, &special_count, error));
        if (special_count > 0 && special_count <= MAX_END_TOKENS)
            reader->out.ids[reader->count - 1] = special[special_count - 1];
    }
    if (reader->prompt.picture_count > 0) SUMI_TRY(expand_pictures(reader, error));
    for (int32_t i = reader->count; i < prompt_template->padded_tokens; i++) reader->out.ids[i] = reader->pad_id;
    const int32_t rows = reader->count - reader->dropped_rows, max_rows = prompt_template->max_feature_rows;
    cut += max_rows > 0 && rows > max_rows ? (size_t)(rows - max_rows) : 0;
    reader->cut = cut < SUMI_MAX_CUT_TOKENS ? (int32_t)cut : SUMI_MAX_CUT_TOKENS;
    reader->phase = READER_DONE;
    sumi_tokenizer_run_end(reader->run);
    return SUMI_OK;
}

// ---- Reading --------------------------------------------------------------------------------------------------------

sumi_result sumi_prompt_reader_create(sumi_heap* heap, sumi_error* error, sumi_prompt_reader** out_reader)
{
    sumi_prompt_reader* reader = *out_reader = sumi_alloc_zero(heap, sizeof *reader);
    if (reader == NULL) return sumi_out_of_memory(error, sizeof *reader, "a reader of prompts");
    reader->heap = heap;
    const sumi_result result = sumi_tokenizer_run_create(heap, error, &reader->run);
    if (result != SUMI_OK) {
        sumi_prompt_reader_destroy(reader);
        *out_reader = NULL;
    }
    return result;
}

void sumi_prompt_reader_end(sumi_prompt_reader* reader)
{
    if (reader == NULL) return;
    sumi_tokenizer_run_end(reader->run);
    reader->network = NULL;
    reader->tokenizer = NULL;
    reader->phase = READER_IDLE;
}

void sumi_prompt_reader_destroy(sumi_prompt_reader* reader)
{
    if (reader == NULL) return;
    sumi_tokenizer_run_destroy(reader->run);
    sumi_free(reader->heap, reader);
}

sumi_result sumi_prompt_reader_begin(sumi_prompt_reader* reader, const sumi_network* network, int32_t encoder,
                                     const sumi_prompt_text* prompt, const sumi_prompt_ids* ids, sumi_error* error)
{
    sumi_prompt_reader_end(reader);
    if (!network->info.has_text_encoder) {
        return sumi_fail(error, SUMI_NOT_SUPPORTED,
                         "the model was opened without a text encoder; open it with text_encoder_path and "
                         "tokenizer_path, or use prompts encoded before");
    }
    if (encoder < 0 || encoder >= network->info.text_encoder_count || ids->capacity < 1) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "the model has %d text encoders, not number %d",
                         (int)network->info.text_encoder_count, (int)encoder);
    }
    SUMI_ASSERT(prompt->picture_count >= 0 && prompt->picture_count <= network->info.max_references);
    SUMI_ASSERT(ids->capacity >= network->recipe->encoders[encoder].prompt.padded_tokens);
    reader->network = network;
    reader->prompt_template = &network->recipe->encoders[encoder].prompt;
    reader->tokenizer = network->encoders[encoder].tokenizer;
    reader->pad_id = network->encoders[encoder].pad_id;
    reader->dropped_rows = network->encoders[encoder].dropped_rows;
    reader->tokenizer_path = network->checkpoint.tokenizers[encoder].path;
    reader->prompt = *prompt;
    if (reader->prompt_template->picture == NULL) reader->prompt.picture_count = 0;
    reader->out = *ids;
    reader->at = reader->skipped = 0;
    reader->opening = NULL;
    reader->work = 0;
    reader->count = reader->cut = 0;
    const bool may_open = reader->prompt_template->opening != NULL && prompt->bytes > 0;
    reader->phase = may_open ? READER_MARK : READER_PARTS;
    return SUMI_OK;
}

static sumi_result step(sumi_prompt_reader* reader, uint64_t work, sumi_error* error)
{
    switch (reader->phase) {
    case READER_MARK: search_mark(reader); return SUMI_OK;
    case READER_BLANK: search_character(reader); return SUMI_OK;
    case READER_PARTS: return begin_text(reader, error);
    case READER_TEXT: {
        bool is_done;
        const uint64_t before = sumi_tokenizer_run_work(reader->run);
        SUMI_TRY(sumi_tokenizer_run_step(reader->run, work, &is_done, error));
        reader->work += sumi_tokenizer_run_work(reader->run) - before;
        reader->phase = is_done ? READER_END : READER_TEXT;
        return SUMI_OK;
    }
    default: return end_text(reader, error);
    }
}

sumi_result sumi_prompt_reader_step(sumi_prompt_reader* reader, uint64_t work, bool* out_done, sumi_error* error)
{
    SUMI_ASSERT(reader->phase != READER_IDLE);
    const uint64_t limit = work < UINT64_MAX - reader->work ? reader->work + (work > 0 ? work : 1) : UINT64_MAX;
    while (reader->phase != READER_DONE && reader->work < limit) {
        const sumi_result result = step(reader, limit - reader->work, error);
        if (result != SUMI_OK) {
            sumi_prompt_reader_end(reader);
            return result;
        }
    }
    *out_done = reader->phase == READER_DONE;
    return SUMI_OK;
}

int32_t sumi_prompt_reader_count(const sumi_prompt_reader* reader) { return reader->count; }

int32_t sumi_prompt_reader_cut(const sumi_prompt_reader* reader) { return reader->cut; }

uint64_t sumi_prompt_reader_work(const sumi_prompt_reader* reader) { return reader->work; }
