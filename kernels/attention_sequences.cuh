// Finds the tokens of a tile, for attention.cu and attention_any.cu.
#pragma once
#include "attention.h"
#include "device.cuh"

// The index of the sequence that `tile` belongs to: the first sequence whose tile_end is greater than `tile`. This is a
// binary search, because an image of a vision tower has a hundred sequences (its windows).
SUMI_DEVICE int sequence_of(const sumi_attention_args& args, int tile)
{
    int low = 0, high = args.sequence_count - 1;
    while (low < high) {
        const int middle = (low + high) >> 1;
        if (tile < args.sequences[middle].tile_end) high = middle;
        else low = middle + 1;
    }
    return low;
}
// The row of a token of the sequence, counted from the row of its first token. With kept keys only for tokens of the
// second span: they are counted from the row of the first one of these.
SUMI_DEVICE int row_of(const sumi_attention_sequence& sequence, int token)
{
    return token + (token >= sequence.first_span_tokens ? sequence.second_span_offset : 0);
}
// Where the channels of a kept token begin. `kept`: those of row 0.
SUMI_DEVICE const u16* kept_row_of(const sumi_attention_args& args, const sumi_attention_sequence& sequence,
                                   const u16* kept, int token)
{
    return kept + (int64_t)(sequence.first_kept_row + token) * args.kept_pitch;
}
