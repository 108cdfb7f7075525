// The "Precompiled" normalizer: SentencePiece's character map (nmt_nfkc for XLM-R), a double-array trie from short byte
// strings to replacements, applied as huggingface/tokenizers does: per grapheme cluster, shortest key first.
#ifndef SUMI_TEXT_CHARSMAP_H
#define SUMI_TEXT_CHARSMAP_H
#include "text/text_buffer.h"

typedef struct sumi_charsmap {
    sumi_heap* heap;
    unsigned char* blob; // trie units, then the replacements, each ended by a zero byte
    size_t unit_count, replacement_bytes;
    // what a lone ASCII character becomes: begin in the replacements, -1 itself
    struct {
        int32_t begin;
        uint32_t bytes;
    } ascii[128];
} sumi_charsmap;

// base64: the member precompiled_charsmap, without JSON escapes. The map must be zeroed. Failures name `path`.
sumi_result sumi_charsmap_begin(sumi_charsmap* map, sumi_heap* heap, const char* base64, size_t bytes, const char* path,
                                sumi_error* error);
// The same with the map's own bytes, as a SentencePiece model holds them.
sumi_result sumi_charsmap_begin_bytes(sumi_charsmap* map, sumi_heap* heap, const void* data, size_t bytes,
                                      const char* path, sumi_error* error);
void sumi_charsmap_destroy(sumi_charsmap* map);
// Appends the normalised form of valid UTF-8.
sumi_result sumi_charsmap_append(sumi_heap* heap, sumi_text_buffer* out, const sumi_charsmap* map, const char* text,
                                 size_t bytes, sumi_error* error);
#endif
