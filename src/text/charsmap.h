// The "Precompiled" normalizer: SentencePiece's character map (nmt_nfkc for XLM-R). It is a double-array trie from
// short byte strings to replacements. It is applied as in huggingface/tokenizers: per grapheme cluster, with the
// shortest key.
#ifndef SUMI_TEXT_CHARSMAP_H
#define SUMI_TEXT_CHARSMAP_H
#include "text/unicode.h"

typedef struct sumi_charsmap {
    sumi_heap* heap;
    unsigned char* blob; // trie units, then the replacements, each ended by a zero byte
    size_t unit_count, replacement_bytes;
    // replacement of a single ASCII character: its position in the replacements; -1: the character is unchanged
    struct {
        int32_t begin;
        uint32_t bytes;
    } ascii[128];
} sumi_charsmap;

// base64: the value of precompiled_charsmap with JSON escapes decoded. The map must be zeroed. Failures name `path`.
sumi_result sumi_charsmap_begin(sumi_charsmap* map, sumi_heap* heap, const char* base64, size_t bytes, const char* path,
                                sumi_error* error);
// As sumi_charsmap_begin, from the map's bytes as a SentencePiece model holds them.
sumi_result sumi_charsmap_begin_bytes(sumi_charsmap* map, sumi_heap* heap, const void* data, size_t bytes,
                                      const char* path, sumi_error* error);
void sumi_charsmap_destroy(sumi_charsmap* map);
// The position of a cut in a text that is given in pieces. Zeroed: its beginning.
typedef struct sumi_charsmap_state {
    int32_t break_state; // of sumi_cluster_ends
    uint32_t before;     // the last code point of the cluster
    bool is_inside;      // of a cluster that is too long to be looked up as a whole
} sumi_charsmap_state;

// Appends the normalised form of a piece of a text, which must be valid UTF-8. The whole text has been written when the
// last piece is taken.
sumi_result sumi_charsmap_append(const sumi_charsmap* map, sumi_charsmap_state* state, sumi_text_piece* piece,
                                 const sumi_text_output* out);
#endif
