// Text to token ids, exactly as the released tokenizers give them. Four forms are read: `tokenizer.json`; `vocab.json`
// with `merges.txt`; SentencePiece models; the metadata of GGUF files. The fields of all but the second describe the
// pipeline:
//   byte-level BPE    Qwen2 / Qwen3: NFC, regex split, byte level
//   Gemma's BPE       U+2581 for spaces, byte fallback, BOS
//   Unigram           XLM-R: Precompiled map, metaspace, Viterbi
// Reference: huggingface/tokenizers 0.23. Invalid UTF-8 in the text: every maximal invalid part counts as U+FFFD (the
// Unicode recommendation). If the file asks for something that sumi does not implement (another normalizer, another
// regex), the result is SUMI_NOT_SUPPORTED with its name. The file's truncation and padding are not applied: the caller
// truncates.
#ifndef SUMI_TEXT_TOKENIZER_H
#define SUMI_TEXT_TOKENIZER_H
#include "files/checkpoint.h"

typedef struct sumi_tokenizer sumi_tokenizer;

// Begins to load a tokenizer.json. Loading is stepwise, so that a file of 11 MB does not stall a frame: call step until
// *out_done. `json` must stay valid until then. A step reads about `item_budget` vocabulary or merge entries (SIZE_MAX:
// all). After a failed step the caller destroys the tokenizer; a failed begin leaves *out_tokenizer NULL. `path` is
// only for messages.
sumi_result sumi_tokenizer_begin(sumi_heap* heap, const void* json, size_t bytes, const char* path, sumi_error* error,
                                 sumi_tokenizer** out_tokenizer);
sumi_result sumi_tokenizer_step(sumi_tokenizer* tokenizer, size_t item_budget, bool* out_done, float* out_progress,
                                sumi_error* error);
void sumi_tokenizer_destroy(sumi_tokenizer* tokenizer); // accepts NULL and half-loaded tokenizers

// The files of a tokenizer without tokenizer.json. Their data must stay valid until loading is done. Missing files have
// data NULL.
typedef struct sumi_tokenizer_bytes {
    const void* data;
    size_t bytes;
    const char* path; // for messages
} sumi_tokenizer_bytes;

typedef struct sumi_tokenizer_files {
    sumi_tokenizer_bytes main;   // vocab.json: {"!": 0, ...}, or a SentencePiece model
    sumi_tokenizer_bytes merges; // merges.txt: "left right" per line; only with a vocab.json
    sumi_tokenizer_bytes config; // tokenizer_config.json: the class, and added tokens with their ids
    sumi_tokenizer_bytes added;  // added_tokens.json: {"<|endoftext|>": 151643, ...}
    // special_tokens_map.json: every token that it names must have an id from the other files
    sumi_tokenizer_bytes special;
} sumi_tokenizer_files;

// Begins to load vocab.json with merges.txt. These files do not describe the pipeline; only the pipeline of the Qwen2
// class (NFC, its regex, byte level) is supported. Another class in tokenizer_config.json is SUMI_NOT_SUPPORTED.
sumi_result sumi_tokenizer_begin_files(sumi_heap* heap, const sumi_tokenizer_files* files, sumi_error* error,
                                       sumi_tokenizer** out_tokenizer);
// Begins to load a SentencePiece model. Two layouts are supported: BPE with spaces as U+2581 and a BOS, with the ids of
// the model (Gemma); and Unigram with the ids that XLM-RoBERTa gives the pieces: <s> 0, <pad> 1, </s> 2, <unk> 3, piece
// i at i + 1, <mask> last. The ids equal those in the same tokenizer's tokenizer.json. The SentencePiece library
// differs: here control pieces are matched in the text, user-defined pieces are matched before spaces become U+2581,
// and the character map takes the shortest key, not the longest.
sumi_result sumi_tokenizer_begin_sentencepiece(sumi_heap* heap, const sumi_tokenizer_files* files, sumi_error* error,
                                               sumi_tokenizer** out_tokenizer);

// Begins to load the tokenizer in the metadata of a GGUF file, as llama.cpp's converter writes it. The set must stay
// open until loading is done. "tokenizer.ggml.model" gpt2 is byte-level BPE whose pipeline "tokenizer.ggml.pre" names:
// qwen2 is known; "default" and none stand for it in files of Qwen's architectures. llama is SentencePiece's BPE (Gemma).
// Another model or pipeline is SUMI_NOT_SUPPORTED with its name. Ids equal those of the same tokenizer's tokenizer.json
// where that gives its added tokens no flags, which the metadata do not keep.
sumi_result sumi_tokenizer_begin_gguf(sumi_heap* heap, const sumi_tensor_set* set, const char* path, sumi_error* error,
                                      sumi_tokenizer** out_tokenizer);

// Begins to load the files that a checkpoint has found, in any of the forms. They must stay open until loading is
// done. SUMI_FILE_NOT_FOUND if the checkpoint has found none.
sumi_result sumi_tokenizer_open_begin(sumi_heap* heap, const sumi_checkpoint_tokenizer* source, sumi_error* error,
                                      sumi_tokenizer** out_tokenizer);

// ---- Encoding --------------------------------------------------------------------------------------------------------
// A loaded tokenizer is only read, by any number of threads. The state for encoding a text is in a run, which is used
// for one text after the other, by one thread at a time.

enum { SUMI_TOKENIZER_MAX_PARTS = 40 };

typedef struct sumi_text_part {
    const char* text;
    size_t bytes;
} sumi_text_part;

typedef struct sumi_tokenizer_request {
    // The text: these one after another, together at most 64 MiB. They must stay valid until the run has ended. No
    // character reaches from one part into the next.
    sumi_text_part parts[SUMI_TOKENIZER_MAX_PARTS];
    int32_t part_count;
    // Adds BOS and EOS as the file's post processor does. Added tokens are found in the text in any case.
    bool special;
    int32_t* ids; // receives the first `capacity` ids; must stay valid until the run has ended
    size_t capacity;
    // The run stops when this many ids are known; they equal the first ids of the whole text. SIZE_MAX: it reads the
    // whole text.
    size_t max_count;
} sumi_tokenizer_request;

typedef struct sumi_tokenizer_run sumi_tokenizer_run;

sumi_result sumi_tokenizer_run_create(sumi_heap* heap, sumi_error* error, sumi_tokenizer_run** out_run);
void sumi_tokenizer_run_destroy(sumi_tokenizer_run* run); // accepts NULL
// Begins a text. A text that was begun before is abandoned. SUMI_WRONG_STATE: the tokenizer is not loaded.
sumi_result sumi_tokenizer_run_begin(sumi_tokenizer_run* run, const sumi_tokenizer* tokenizer,
                                     const sumi_tokenizer_request* request, sumi_error* error);
// Does `work`, and at most SUMI_TOKENIZER_STEP_WORK more, whatever the text is; *out_done: the ids are complete. Work
// is counted in units of about two nanoseconds: no clock is read. After a failure the text is abandoned.
//
// Memory grows with the longest part of the text that must be examined as a whole, in most texts some thousand bytes.
// The memory for a usual text is kept, so that a second one allocates nothing. Time is O(n log n) in the bytes read,
// for any text. SUMI_OUT_OF_HOST_MEMORY; SUMI_FILE_MALFORMED: the tokenizer has no token for a character, nor one for
// unknown characters.
sumi_result sumi_tokenizer_run_step(sumi_tokenizer_run* run, uint64_t work, bool* out_done, sumi_error* error);
#define SUMI_TOKENIZER_STEP_WORK 8192u
// The number of ids so far; ids beyond the capacity count.
size_t sumi_tokenizer_run_count(const sumi_tokenizer_run* run);
uint64_t sumi_tokenizer_run_work(const sumi_tokenizer_run* run); // done since begin
void sumi_tokenizer_run_end(sumi_tokenizer_run* run); // forgets the text and the tokenizer; accepts NULL, and no text

// The ids of text[0, bytes): a run from begin to end, whose memory is freed. Writes the first `capacity` ids; *out_count
// is the number of all ids.
sumi_result sumi_tokenizer_encode(const sumi_tokenizer* tokenizer, const char* text, size_t bytes, bool special,
                                  int32_t* ids, size_t capacity, size_t* out_count, sumi_error* error);

// The id of a token of the vocabulary or of an added token; -1 if there is none.
int32_t sumi_tokenizer_id(const sumi_tokenizer* tokenizer, const char* token);
size_t sumi_tokenizer_size(const sumi_tokenizer* tokenizer); // largest id + 1
#endif
