// What must be true of every tokenizer that loads. What breaks a rule aborts the fuzzer.
#ifndef TOKENIZER_RULES_H
#define TOKENIZER_RULES_H
#include "text/tokenizer.h"
#include "text/unicode.h"
#include <stdlib.h>
#include <string.h>

static sumi_heap s_heap;

// Loads in small steps. NULL if the files are refused, which they are with a sentence.
static inline sumi_tokenizer* finish(sumi_tokenizer* tokenizer)
{
    bool done = false;
    sumi_error error = {0};
    while (!done) {
        const sumi_result result = sumi_tokenizer_step(tokenizer, 3, &done, NULL, &error);
        if (result != SUMI_OK) {
            if (result != error.result || error.text[0] == '\0'
                || (result != SUMI_FILE_MALFORMED && result != SUMI_NOT_SUPPORTED))
                abort();
            sumi_tokenizer_destroy(tokenizer);
            return NULL;
        }
    }
    return tokenizer;
}

// The first ids again, in steps of work that follow from the ids. They are given up now and then.
static inline void encode_in_steps(const sumi_tokenizer* tokenizer, const char* text, size_t bytes, const int32_t* ids,
                                   size_t count)
{
    uint32_t random = (uint32_t)(bytes * 2654435761u + count);
    for (size_t i = 0; i < count && i < 8; i++) random = random * 31 + (uint32_t)ids[i];
    sumi_tokenizer_run* run = NULL;
    int32_t* stepped = malloc((count + 1) * sizeof *stepped);
    sumi_tokenizer_request request = {.special = true, .ids = stepped, .part_count = 2};
    request.capacity = random % 3 == 0 ? count : random % (count + 1);
    request.max_count = random % 5 == 0 ? SIZE_MAX : request.capacity;
    size_t cut = bytes > 0 ? random % bytes : 0; // at a character, so that no part begins inside of one
    while (cut > 0 && (unsigned char)text[cut] >= 0x80) cut--;
    request.parts[0] = (sumi_text_part){text, cut};
    request.parts[1] = (sumi_text_part){text + cut, bytes - cut};
    if (sumi_tokenizer_run_create(&s_heap, NULL, &run) != SUMI_OK) abort();
    for (int32_t pass = random % 4 == 0 ? 0 : 1; pass < 2; pass++) {
        if (sumi_tokenizer_run_begin(run, tokenizer, &request, NULL) != SUMI_OK) abort();
        bool is_done = false;
        for (uint32_t step = 0; !is_done && (pass == 1 || step < random % 64); step++) {
            const uint64_t work = 1 + random % 997 * (step % 3), before = sumi_tokenizer_run_work(run);
            if (sumi_tokenizer_run_step(run, work, &is_done, NULL) != SUMI_OK
                || sumi_tokenizer_run_work(run) - before > work + SUMI_TOKENIZER_STEP_WORK)
                abort();
        }
    }
    const size_t made = sumi_tokenizer_run_count(run), kept = made < request.capacity ? made : request.capacity;
    if ((count < request.max_count ? made != count : made < request.max_count)
        || memcmp(ids, stepped, kept * sizeof *ids) != 0)
        abort();
    sumi_tokenizer_run_destroy(run);
    free(stepped);
}

// The same ids twice, and in steps, all below the tokenizer's size, and the same for the text as repaired. `may_lack_unknown`: a
// character outside the vocabulary is refused, because the file may have no unknown token.
static inline void encode(sumi_tokenizer* tokenizer, const char* text, size_t bytes, bool may_lack_unknown)
{
    size_t count, again;
    sumi_error error = {0};
    const sumi_result result = sumi_tokenizer_encode(tokenizer, text, bytes, true, NULL, 0, &count, &error);
    if (result != SUMI_OK) {
        if (!may_lack_unknown || result != SUMI_FILE_MALFORMED || count != 0) abort();
        return;
    }
    int32_t* ids = malloc((2 * count + 1) * sizeof *ids);
    if (sumi_tokenizer_encode(tokenizer, text, bytes, true, ids, count, &again, NULL) != SUMI_OK || again != count)
        abort();
    for (size_t i = 0; i < count; i++) {
        if (ids[i] < 0 || (size_t)ids[i] >= sumi_tokenizer_size(tokenizer)) abort();
    }
    sumi_text_buffer repaired = {0};
    if (sumi_utf8_repair(&s_heap, &repaired, text, bytes, NULL) != SUMI_OK
        || sumi_tokenizer_encode(tokenizer, sumi_text_data(&repaired), repaired.bytes, true, ids + count, count, &again,
                                 NULL)
               != SUMI_OK
        || again != count || memcmp(ids, ids + count, count * sizeof *ids) != 0)
        abort();
    sumi_text_release(&s_heap, &repaired);
    encode_in_steps(tokenizer, text, bytes, ids, count);
    free(ids);
}
#endif
