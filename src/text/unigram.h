// The state of a run of Unigram between steps: the best segmentations of the piece that is being encoded.
#ifndef SUMI_TEXT_UNIGRAM_H
#define SUMI_TEXT_UNIGRAM_H
#include "text/pages.h"
#include <stdint.h>

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
    // BACK: the way back has reached `end`; the piece after it ends at `next`. WRITE: the ids up to `begin`
    // have been written, text[begin, end) is unknown, and the next piece ends at `next`.
    uint32_t begin, end, next;
    size_t unknown_at;     // UNKNOWN: the byte that is examined
    bool unknown_is_known; // UNKNOWN: every byte so far has a token
} sumi_unigram_state;
#endif
