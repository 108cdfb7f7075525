// Text to token ids, exactly as the released tokenizers do it. Three forms are read: `tokenizer.json`; `vocab.json` with
// `merges.txt`; SentencePiece models. The pipeline inside is told by the fields of the first and the last:
//   byte-level BPE (Qwen2 / Qwen3: NFC, regex split, byte level), Gemma BPE (U+2581, byte fallback, BOS), Unigram (XLM-R: Precompiled map, metaspace, Viterbi).
// Reference: huggingface/tokenizers 0.23. Invalid UTF-8 in the text: every maximal invalid part counts as U+FFFD (the
// Unicode recommendation). What the file asks for and this library does not do (another normalizer, another regex) is
// SUMI_NOT_SUPPORTED with its name. The file's own truncation and padding are not applied: the caller cuts.
#ifndef SUMI_TEXT_TOKENIZER_H
#define SUMI_TEXT_TOKENIZER_H
#include "files/checkpoint.h"

typedef struct sumi_tokenizer sumi_tokenizer;

// Loading is stepwise, so that an 11 MB file does not stall a frame: begin, then step until *done. `json` must stay in
// place until done (not longer). step does about `item_budget` vocabulary or merge entries (SIZE_MAX: all). On failure
// the tokenizer is destroyed by the caller as usual; a failed begin leaves *out_tokenizer NULL. `path` is only for
// messages.
sumi_result sumi_tokenizer_begin(sumi_heap* heap, const void* json, size_t bytes, const char* path, sumi_error* error,
                                 sumi_tokenizer** out_tokenizer);
sumi_result sumi_tokenizer_step(sumi_tokenizer* tokenizer, size_t item_budget, bool* out_done, float* out_progress,
                                sumi_error* error);
void sumi_tokenizer_destroy(sumi_tokenizer* tokenizer); // accepts NULL and half-loaded ones

// The forms without tokenizer.json, file by file. All of it stays in place until done. Those that are not there have no
// data.
typedef struct sumi_tokenizer_bytes {
    const void* data;
    size_t bytes;
    const char* path; // for messages
} sumi_tokenizer_bytes;

typedef struct sumi_tokenizer_files {
    sumi_tokenizer_bytes main;    // vocab.json: {"!": 0, ...}, or a SentencePiece model
    sumi_tokenizer_bytes merges;  // merges.txt: "left right" per line; only with a vocab.json
    sumi_tokenizer_bytes config;  // tokenizer_config.json: the class, and added tokens with their ids
    sumi_tokenizer_bytes added;   // added_tokens.json: {"<|endoftext|>": 151643, ...}
    sumi_tokenizer_bytes special; // special_tokens_map.json: every token it names must have an id by now
} sumi_tokenizer_files;

// Only for the Qwen2 class (NFC, its regex, byte level), which these files do not say themselves; another class in
// tokenizer_config.json is SUMI_NOT_SUPPORTED.
sumi_result sumi_tokenizer_begin_files(sumi_heap* heap, const sumi_tokenizer_files* files, sumi_error* error,
                                       sumi_tokenizer** out_tokenizer);
// Two layouts are known: BPE with blanks as U+2581 and a BOS, ids as in the model (Gemma), and Unigram, whose ids are
// those that XLM-RoBERTa gives the pieces: <s> 0, <pad> 1, </s> 2, <unk> 3, piece i at i + 1, <mask> last. The ids are
// those of the tokenizer.json of the same tokenizer, where the SentencePiece library differs: control pieces are found in
// the text, user-defined ones before blanks become U+2581, and the character map takes the shortest key, not the longest.
sumi_result sumi_tokenizer_begin_sentencepiece(sumi_heap* heap, const sumi_tokenizer_files* files, sumi_error* error,
                                               sumi_tokenizer** out_tokenizer);

// Begins with the files that a checkpoint has found, whatever their form, which stay open until done. Without any
// it is SUMI_FILE_NOT_FOUND.
sumi_result sumi_tokenizer_open_begin(sumi_heap* heap, const sumi_checkpoint_tokenizer* files, sumi_error* error,
                                      sumi_tokenizer** out_tokenizer);

// Ids of text[0, bytes). Adds BOS / EOS where the file's post processor does (special == true), finds added tokens in
// the raw text. Writes the first `capacity` ids; *out_count is how many there are in all. No allocation on the heap
// after the first call of a size: scratch grows in the tokenizer, so one thread at a time per tokenizer. Time is linear
// in the text but for a logarithm, whatever the text. Text over 64 MiB is refused.
sumi_result sumi_tokenizer_encode(sumi_tokenizer* tokenizer, const char* text, size_t bytes, bool special, int32_t* ids,
                                  size_t capacity, size_t* out_count, sumi_error* error);

// of a whole vocabulary or added token, -1 when unknown
int32_t sumi_tokenizer_id(const sumi_tokenizer* tokenizer, const char* token);
size_t sumi_tokenizer_size(const sumi_tokenizer* tokenizer); // largest id + 1
#endif
