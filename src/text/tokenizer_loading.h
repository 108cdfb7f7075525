// The state of a tokenizer while it is loaded, and the functions that its readers share: tokenizer_load.c (phases,
// tokenizer.json), tokenizer_files.c and sentencepiece.c (the other forms), tokenizer_pipeline.c (normalizer,
// pre-tokenizer, post processor), gguf_tokenizer.c and tokenizer_loader.c (failures, texts, ids, tokens, merges).
#ifndef SUMI_TEXT_TOKENIZER_LOADING_H
#define SUMI_TEXT_TOKENIZER_LOADING_H
#include "text/tokenizer_parts.h"

// The phases of loading. The head of tokenizer_load.c shows their order for each form.
typedef enum sumi_load_phase {
    SUMI_LOAD_TOP,
    SUMI_LOAD_ADDED,
    SUMI_LOAD_MODEL,
    SUMI_LOAD_VOCABULARY,
    SUMI_LOAD_MERGES,
    SUMI_LOAD_MERGES_TEXT,
    SUMI_LOAD_SCAN,
    SUMI_LOAD_PIECES,
    SUMI_LOAD_GGUF_TOKENS,
    SUMI_LOAD_GGUF_MERGES,
    SUMI_LOAD_ADDED_FILE,
    SUMI_LOAD_CONFIG,
    SUMI_LOAD_CONFIG_TOKENS,
    SUMI_LOAD_SPECIAL,
    SUMI_LOAD_FINISH,
    SUMI_LOAD_DONE
} sumi_load_phase;

enum { SUMI_WAITING_MERGES = 16 };

typedef struct sumi_waiting_merge { // a merge whose hash slots in the vocabulary are being prefetched
    const char *left, *right;
    size_t left_bytes, right_bytes;
    uint64_t left_hash, right_hash;
} sumi_waiting_merge;

// The settings of a SentencePiece model. dummy_prefix: a space is added in front of a text. removes_whitespace: extra
// spaces are dropped. escapes_whitespace: spaces are written as U+2581. whitespace_suffix: the mark of a space ends a
// word instead of beginning it.
typedef struct sumi_piece_spec {
    uint64_t model_type; // 1 unigram, 2 BPE
    bool byte_fallback, whitespace_suffix;
    bool dummy_prefix, removes_whitespace, escapes_whitespace;
    const char *charsmap, *bos;
    size_t charsmap_bytes, bos_bytes;
} sumi_piece_spec;

enum {
    SUMI_PIECE_NORMAL = 1,
    SUMI_PIECE_UNKNOWN,
    SUMI_PIECE_CONTROL,
    SUMI_PIECE_USER_DEFINED,
    SUMI_PIECE_UNUSED,
    SUMI_PIECE_BYTE
};

typedef struct sumi_piece {
    const char* text;
    size_t bytes;
    float score;
    uint64_t type; // SUMI_PIECE_*
} sumi_piece;

struct sumi_tokenizer_loading {
    sumi_json json, merges_json; // merges_json: reader state at merges that precede the vocabulary in the file
    sumi_load_phase phase;
    sumi_result failure;
    size_t expected_count, total_bytes, passed_bytes; // passed_bytes: of the files that have been read
    sumi_tokenizer_form form;
    sumi_tokenizer_files files; // main: also the tokenizer.json
    const sumi_tensor_set* set; // of a GGUF file
    size_t position;            // in merges.txt, the SentencePiece model or an array of a GGUF file, in bytes
    size_t merge_line, piece_count, unknown_count;
    sumi_piece_spec spec;
    // Members of tokenizer_config.json. has_decoder: it has added_tokens_decoder; has_bos_setting: it has
    // add_bos_token; wants_bos, wants_eos: the values of add_bos_token and add_eos_token.
    bool has_decoder, has_bos_setting, wants_bos, wants_eos;
    void* id_bits; // one bit per id, set if a token has it
    size_t id_bit_bytes, id_bit_capacity;
    sumi_waiting_merge waiting[SUMI_WAITING_MERGES]; // ring buffer of pending merges
    size_t waiting_first, waiting_count;
    sumi_text_buffer text;    // decoded strings
    sumi_text_buffer joined;  // text of the token that a merge makes
    sumi_text_buffer unknown; // unk_token
    int64_t unknown_id;       // unk_id; -1: none
    uint32_t last_result;     // vocabulary entry of the token that the last merge makes
    // merges_precede_vocabulary: the merges precede the vocabulary in the file and are read after it; has_*: the member
    // was seen
    bool started, merges_precede_vocabulary, has_type, has_vocabulary, has_merges;
    bool has_added, has_normalizer, has_pre_tokenizer, has_post_processor, has_model;
};

typedef struct sumi_loader { // arguments of every reading function
    sumi_tokenizer* t;
    sumi_tokenizer_loading* l;
    sumi_json* j;
    sumi_error* error;
} sumi_loader;

// Failures: each function returns the result that it has recorded in error.
// SUMI_FILE_MALFORMED, with the position in the file
sumi_result sumi_load_refuse(sumi_loader* load, const char* reason);
sumi_result sumi_load_unsupported(sumi_loader* load, const char* what, const sumi_json_text* name);
int sumi_load_shown(const char* text, size_t bytes); // bytes of a name to show in a message; never cuts a character

// Decodes a string's escapes. *out_text points into the file if there are none, otherwise into l->text, to which the
// decoded string is appended; the caller empties l->text.
sumi_result sumi_load_text(sumi_loader* load, const sumi_json_text* text, const char** out_text, size_t* out_bytes);
sumi_result sumi_load_short_text(sumi_loader* load, const sumi_json_text* text, const char* what, sumi_short_text* out);

// ---- tokenizer_loader.c

sumi_result sumi_load_begin(sumi_heap* heap, sumi_tokenizer_form form, const sumi_tokenizer_files* files,
                            size_t bytes_per_token, sumi_error* error, sumi_tokenizer** out_tokenizer);
sumi_result sumi_load_begin_vocabulary(sumi_loader* load);
sumi_result sumi_load_unigram_piece(sumi_loader* load, const char* text, size_t bytes, double score);
// Marks an id as used by a token. *out_was_marked: it was marked before.
sumi_result sumi_load_mark_id(sumi_loader* load, uint64_t id, bool* out_was_marked);
// SUMI_FILE_MALFORMED if the id is above SUMI_VOCABULARY_MAX_COUNT.
sumi_result sumi_load_check_id(sumi_loader* load, uint64_t id, const char* token, size_t bytes);
sumi_result sumi_load_add_token(sumi_loader* load, const char* text, size_t bytes, uint64_t id,
                                const sumi_added_token* flags);
// Reads the member `key` of an added token if it is a flag. False if it is not.
bool sumi_load_flag(sumi_loader* load, const sumi_json_text* key, sumi_added_token* flags);
// Reads one object of added_tokens, or one of added_tokens_decoder, whose id is the key (id_of_key).
sumi_result sumi_load_added_token(sumi_loader* load, const uint64_t* id_of_key);
// Puts a merge into the ring buffer of pending merges. If the ring buffer is full, first moves the oldest pending merge
// to the table of merges. The texts must stay valid while the merge is pending.
sumi_result sumi_load_queue_merge(sumi_loader* load, const char* left, size_t left_bytes, const char* right,
                                  size_t right_bytes);
// Queues a merge "left right", with exactly one space. Merges stay pending while the vocabulary's memory for them is
// prefetched.
sumi_result sumi_load_merge_line(sumi_loader* load, const char* line, size_t bytes);
// Moves all pending merges to the table of merges.
sumi_result sumi_load_waiting_merges(sumi_loader* load);
void sumi_load_free(sumi_tokenizer* t); // frees what only loading needs

// ---- tokenizer_files.c: each call reads one item

sumi_result sumi_load_merges_text(sumi_loader* load);
sumi_result sumi_load_added_file(sumi_loader* load);
sumi_result sumi_load_config(sumi_loader* load);
sumi_result sumi_load_config_token(sumi_loader* load);
sumi_result sumi_load_special(sumi_loader* load);
// Begins the next existing file beside the main one, from `phase` on. Ends loading if there is none.
sumi_result sumi_load_beside(sumi_loader* load, sumi_load_phase phase);

// ---- sentencepiece.c: each call reads one item

sumi_result sumi_load_scan_pieces(sumi_loader* load);
sumi_result sumi_load_piece(sumi_loader* load);
sumi_result sumi_load_finish_pieces(sumi_loader* load); // called after the files beside the model are read
// Begins a BPE model that merges by score, and its pipeline.
sumi_result sumi_load_begin_scored_bpe(sumi_loader* load);
// Adds a piece to it; pieces that are neither normal nor bytes become added tokens. *out_existed: a piece has this text.
sumi_result sumi_load_scored_piece(sumi_loader* load, const sumi_piece* piece, uint32_t id, bool* out_existed);

// ---- gguf_tokenizer.c: each call reads one item

sumi_result sumi_load_gguf_token(sumi_loader* load);
sumi_result sumi_load_gguf_merge(sumi_loader* load);
sumi_result sumi_load_finish_gguf(sumi_loader* load);

// ---- tokenizer_pipeline.c

// Each reads one member of tokenizer.json; the caller passes depth 0.
sumi_result sumi_load_normalizer(sumi_loader* load, int32_t depth);
sumi_result sumi_load_pre_tokenizer(sumi_loader* load, int32_t depth);
sumi_result sumi_load_post_processor(sumi_loader* load, int32_t depth);

static inline sumi_result sumi_load_result(const sumi_json* json) { return json->failed ? json->failure : SUMI_OK; }

static inline bool sumi_load_has(const sumi_json_text* text) { return text->data != NULL; }

// Reads a boolean; null gives `missing`.
static inline bool sumi_load_bool(sumi_loader* load, bool missing)
{
    return sumi_json_null(load->j) ? missing : sumi_json_bool(load->j);
}

static inline void sumi_load_string_or_null(sumi_loader* load, sumi_json_text* out)
{
    if (!sumi_json_null(load->j)) sumi_json_string(load->j, out);
}
#endif
