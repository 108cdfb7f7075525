// The state of a run of BPE between steps: the piece that is being encoded.
#ifndef SUMI_TEXT_BPE_H
#define SUMI_TEXT_BPE_H
#include "text/pages.h"
#include "text/text_buffer.h"

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
#endif
