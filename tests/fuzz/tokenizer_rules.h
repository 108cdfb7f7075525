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
                || (result != SUMI_FILE_MALFORMED && result != SUMI_NOT_SUPPORTED)) {
                abort();
            }
            sumi_tokenizer_destroy(tokenizer);
            return NULL;
        }
    }
    return tokenizer;
}

// The same ids twice, all below the tokenizer's size, and the same for the text as repaired. `may_lack_unknown`: a
// character outside the vocabulary is refused, because the file may have no unknown token.
static inline void encode(sumi_tokenizer* tokenizer, const char* text, size_t bytes, bool may_lack_unknown)
{
    size_t count, again;
    sumi_error error = {0};
    const sumi_result result = sumi_tokenizer_encode(tokenizer, text, bytes, true, NULL, 0, &count, &error);
    if (result != SUMI_OK) {
        if (!may_lack_unknown || result != SUMI_FILE_MALFORMED || count != 0) { abort(); }
        return;
    }
    int32_t* ids = malloc((2 * count + 1) * sizeof *ids);
    if (sumi_tokenizer_encode(tokenizer, text, bytes, true, ids, count, &again, NULL) != SUMI_OK || again != count) {
        abort();
    }
    for (size_t i = 0; i < count; i++) {
        if (ids[i] < 0 || (size_t)ids[i] >= sumi_tokenizer_size(tokenizer)) { abort(); }
    }
    sumi_text_buffer repaired = {0};
    if (sumi_utf8_repair(&s_heap, &repaired, text, bytes, NULL) != SUMI_OK
        || sumi_tokenizer_encode(tokenizer, sumi_text_data(&repaired), repaired.bytes, true, ids + count, count, &again,
                                 NULL)
               != SUMI_OK
        || again != count || memcmp(ids, ids + count, count * sizeof *ids) != 0) {
        abort();
    }
    sumi_text_release(&s_heap, &repaired);
    free(ids);
}
#endif
