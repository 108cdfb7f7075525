// From a prompt's text to the token ids of one text encoder, in steps: the text is put into the recipe's template,
// tokenised, and cut to the length that the encoder reads; pictures get their tokens.
//
//     "<|im_start|>user\n"  "Picture 1: <|image_pad|>"  opening words  text  "<|im_end|>"
//      before                for each picture                                 after
//
// Reading stops when the ids for the encoder are known and SUMI_MAX_CUT_TOKENS more are counted.
#ifndef SUMI_MODELS_PROMPT_READER_H
#define SUMI_MODELS_PROMPT_READER_H
#include "models/network.h"

// Tokens that are cut off are counted up to here.
#define SUMI_MAX_CUT_TOKENS 1024

typedef struct sumi_prompt_text {
    const char* text; // may be NULL if bytes is 0
    size_t bytes;
    // Tokens of each reference: as many as the vision tower makes rows of it.
    const int32_t* picture_tokens;
    int32_t picture_count;
} sumi_prompt_text;

typedef struct sumi_prompt_ids {
    // Receives the ids of the tokens and then of padding, sumi_network_id_rows in all.
    int32_t* ids;
    // The prompt's max_tokens plus all picture_tokens always suffice. At least the template's padded_tokens.
    int32_t capacity;
    int32_t* picture_rows; // receives picture_count indices into ids, the first token of each picture
} sumi_prompt_ids;

// A reader reads one text after the other, of any network, by one thread at a time. Networks are only read.
typedef struct sumi_prompt_reader sumi_prompt_reader;

sumi_result sumi_prompt_reader_create(sumi_heap* heap, sumi_error* error, sumi_prompt_reader** out_reader);
void sumi_prompt_reader_destroy(sumi_prompt_reader* reader); // accepts NULL
// Begins a text, for text encoder `encoder`. The text, picture_tokens and the memory for ids must stay valid until the
// reader ends. A text that was begun before is abandoned. Failures: SUMI_NOT_SUPPORTED, SUMI_INVALID_ARGUMENT,
// SUMI_OUT_OF_HOST_MEMORY.
sumi_result sumi_prompt_reader_begin(sumi_prompt_reader* reader, const sumi_network* network, int32_t encoder,
                                     const sumi_prompt_text* prompt, const sumi_prompt_ids* ids, sumi_error* error);
// Does about `work`, counted as by sumi_tokenizer_run_step, whatever the text is. *out_done: the ids are complete.
// After a failure the text is abandoned. Failures: SUMI_TEXT_INVALID, SUMI_FILE_MALFORMED, SUMI_OUT_OF_HOST_MEMORY.
sumi_result sumi_prompt_reader_step(sumi_prompt_reader* reader, uint64_t work, bool* out_done, sumi_error* error);
// Of the text that is done. count: its tokens, without padding. cut: the tokens beyond the limits of the encoder and of
// the transformer, which are ids that were cut off and rows of features that are dropped; SUMI_MAX_CUT_TOKENS means this
// many or more.
int32_t sumi_prompt_reader_count(const sumi_prompt_reader* reader);
int32_t sumi_prompt_reader_cut(const sumi_prompt_reader* reader);
uint64_t sumi_prompt_reader_work(const sumi_prompt_reader* reader); // done since begin
void sumi_prompt_reader_end(sumi_prompt_reader* reader);            // forgets the text and the network; accepts NULL
#endif
