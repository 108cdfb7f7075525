// The data of a tokenizer, shared by the files that load it (tokenizer_load.c and others), the file that runs it
// (tokenizer_run.h) and the two models (bpe.c, unigram.c). It is only read once it is loaded.
#ifndef SUMI_TEXT_TOKENIZER_PARTS_H
#define SUMI_TEXT_TOKENIZER_PARTS_H
#include "files/json.h"
#include "text/charsmap.h"
#include "text/tokenizer.h"
#include "text/unicode.h"
#include "text/vocabulary.h"

enum {
    SUMI_TOKENIZER_MAX_STEPS = 8,    // of a normalizer, and of a pre-tokenizer
    SUMI_TOKENIZER_MAX_ENDS = 16,    // ids before the text, and ids after it
    SUMI_TOKENIZER_MAX_PATTERN = 32, // bytes of a literal pattern or replacement
    // bytes of an added token or a Unigram piece: bounds the lookup at each position of a text
    SUMI_TOKENIZER_MAX_WALKED_TOKEN = 1024,
};

typedef struct sumi_short_text {
    char data[SUMI_TOKENIZER_MAX_PATTERN];
    size_t bytes;
} sumi_short_text;

typedef enum sumi_normalize_kind {
    SUMI_NORMALIZE_NFC,
    SUMI_NORMALIZE_CHARSMAP,
    // replaces every occurrence of pattern, or every run of min_run or more of them, by content
    SUMI_NORMALIZE_REPLACE,
    SUMI_NORMALIZE_STRIP // white space at the ends of the text
} sumi_normalize_kind;

typedef struct sumi_normalize_step {
    sumi_normalize_kind kind;
    sumi_short_text pattern, content;
    // 0: each occurrence separately; n: a run of n or more is replaced as a whole (the regex "x{n,}")
    size_t min_run;
    bool strip_left, strip_right;
} sumi_normalize_step;

typedef enum sumi_split_kind {
    SUMI_SPLIT_QWEN,
    SUMI_SPLIT_LITERAL,
    SUMI_SPLIT_WHITESPACE,
    SUMI_SPLIT_METASPACE
} sumi_split_kind;
// What happens to a matched pattern: the behaviors of Split in huggingface/tokenizers.
typedef enum sumi_split_behavior {
    SUMI_SPLIT_ISOLATED,
    SUMI_SPLIT_REMOVED,
    SUMI_SPLIT_MERGED_PREVIOUS,
    SUMI_SPLIT_MERGED_NEXT,
    SUMI_SPLIT_CONTIGUOUS
} sumi_split_behavior;
typedef enum sumi_prepend { SUMI_PREPEND_ALWAYS, SUMI_PREPEND_FIRST, SUMI_PREPEND_NEVER } sumi_prepend;

typedef struct sumi_split_step {
    sumi_split_kind kind;
    sumi_split_behavior behavior; // for literal
    sumi_short_text pattern;      // literal: where to split; metaspace: the mark that replaces a space
    sumi_prepend prepend;         // for metaspace
    bool split;                   // metaspace: split before each mark
} sumi_split_step;

typedef struct sumi_added_token {
    uint32_t id;
    bool single_word, lstrip, rstrip, normalized;
} sumi_added_token;

typedef struct sumi_ids { // output of encode: count continues past capacity
    int32_t* ids;
    size_t capacity, count;
} sumi_ids;

static inline void sumi_ids_put(sumi_ids* out, uint32_t id)
{
    if (out->count < out->capacity) out->ids[out->count] = (int32_t)id;
    out->count++;
}

typedef enum sumi_token_model {
    SUMI_TOKEN_MODEL_NONE,
    SUMI_TOKEN_MODEL_BPE,
    SUMI_TOKEN_MODEL_UNIGRAM
} sumi_token_model;

// The data of a BPE model, filled while loading and only read afterwards. The id SUMI_VOCABULARY_NONE stands for a
// token that the vocabulary lacks.
typedef struct sumi_bpe {
    sumi_vocabulary vocabulary;
    sumi_merges merges;
    // With by_score the model has no list of merges: two adjacent symbols merge if their joined text is a token, the
    // pair of highest score first. One uint32_t per vocabulary entry: a higher score has a lower rank; NONE: no merge
    // makes this token.
    void* ranks;
    size_t rank_capacity;
    uint32_t byte_ids[256]; // byte level: the token of the byte's stand-in character; byte fallback: of <0xHH>
    uint32_t unknown_id;
    bool byte_level, byte_fallback, fuse_unknown, ignore_merges, has_unknown, by_score;
    bool has_all_bytes; // no byte of byte_ids is NONE
    // Some merge contains a symbol that does not stand for text of the piece (one of a byte, or of unknown characters),
    // so it is not known where merges end.
    bool merges_stand_ins;
} sumi_bpe;

typedef struct sumi_unigram {
    sumi_vocabulary vocabulary; // with prefixes; id = position in the file
    void* scores;               // one double per vocabulary entry
    size_t score_capacity, piece_count;
    double min_score;
    uint32_t unknown_id;
    bool byte_fallback;
} sumi_unigram;

// Writes the printable stand-in character of a byte (GPT-2's table) as UTF-8 and returns its length in bytes.
size_t sumi_byte_level_character(unsigned char byte, char out[4]);

typedef struct sumi_tokenizer_loading sumi_tokenizer_loading; // tokenizer_loading.h

struct sumi_tokenizer {
    sumi_heap* heap;
    char* path;
    sumi_token_model model;
    sumi_bpe bpe;
    sumi_unigram unigram;
    sumi_charsmap charsmap;
    sumi_vocabulary added; // every added token; id = the token's id
    // normalised texts of the tokens that are matched after the normalizer; id = entry in `added`
    sumi_vocabulary added_normalized;
    void* added_tokens; // one sumi_added_token per entry of `added`
    size_t added_capacity;
    sumi_normalize_step normalize[SUMI_TOKENIZER_MAX_STEPS];
    sumi_split_step split[SUMI_TOKENIZER_MAX_STEPS];
    uint32_t before[SUMI_TOKENIZER_MAX_ENDS], after[SUMI_TOKENIZER_MAX_ENDS];
    size_t normalize_count, split_count, before_count, after_count, size;
    bool byte_level, has_template;
    sumi_tokenizer_loading* loading;      // NULL once loaded
    bool strips_before, has_single_words; // an added token has lstrip; single_word
};

// Appends the normalised text to `out`.
sumi_result sumi_tokenizer_normalize(const sumi_tokenizer* tokenizer, const char* text, size_t bytes,
                                     sumi_text_buffer* out, sumi_error* error);
#endif
