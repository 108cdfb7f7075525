// What a run of a model keeps between steps (bpe.c, unigram.c).
#ifndef SUMI_TEXT_TOKEN_MODELS_H
#define SUMI_TEXT_TOKEN_MODELS_H
#include "text/pages.h"
#include "text/text_buffer.h"
#include <stdint.h>

// ---- BPE: the piece that is being encoded

typedef enum sumi_bpe_phase {
    SUMI_BPE_READ,    // until the piece, or a part of it that can be encoded by itself, is available
    SUMI_BPE_SYMBOLS, // its characters
    SUMI_BPE_RANK,    // the ranks of their pairs
    SUMI_BPE_MERGE,
    SUMI_BPE_WRITE, // ids
    SUMI_BPE_TRIM   // frees what only a long part needed
} sumi_bpe_phase;

typedef struct sumi_bpe_state {
    sumi_bpe_phase phase;
    bool has_piece;
    bool is_cut; // a part of the piece was encoded already
    // The part: text[0, bytes) of the window. symbol_bytes: of them, those that have symbols.
    size_t part_bytes, symbol_bytes;
    // fuse_unk: unknown characters in a row become one symbol, which is added when a known one follows
    bool unknown_waits;
    sumi_pages symbols, queue;
    uint32_t symbol_count, queue_count, cursor;
    // The search for a cut: the text before `swept` has been examined; the tokens that begin in it reach to `reach`.
    bool is_sweeping;
    size_t sweep_begin, swept, reach;
    // Byte level: stand-in characters of the text from sweep_begin on; the position of `swept` in it; how many bytes of
    // the window it stands for.
    sumi_text_buffer mapped;
    size_t mapped_at, mapped_bytes;
} sumi_bpe_state;

// ---- Unigram: the best segmentations of the piece that is being encoded

typedef enum sumi_unigram_phase {
    SUMI_UNIGRAM_READ,    // visits starts as the text comes
    SUMI_UNIGRAM_BACK,    // follows the best segmentation back from the end
    SUMI_UNIGRAM_WRITE,   // ids
    SUMI_UNIGRAM_UNKNOWN, // ids of a run of unknown characters
    SUMI_UNIGRAM_TRIM
} sumi_unigram_phase;

typedef struct sumi_unigram_state {
    sumi_unigram_phase phase;
    bool has_piece;
    sumi_pages nodes;
    size_t node_count;   // nodes that are set, which are those up to node_count
    size_t start, reach; // the next start; the end of the longest piece so far
    size_t part_bytes;   // of the part whose ids are written
    double end_score;    // of the best segmentation of all parts so far
    // BACK: `end` is where the way back has come, `next` the end of the piece behind it. WRITE: the ids up to `begin`
    // have been written, text[begin, end) is unknown, and the next piece ends at `next`.
    uint32_t begin, end, next;
    size_t unknown_at;     // UNKNOWN: the byte that is examined
    bool unknown_is_known; // UNKNOWN: every byte so far has a token
} sumi_unigram_state;
#endif
