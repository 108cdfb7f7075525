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
// The row of a token of the sequence, counted from the row of its first token.
SUMI_DEVICE int row_of(const sumi_attention_sequence& sequence, int token)
{
    return token + (token >= sequence.first_span_tokens ? sequence.second_span_offset : 0);
}
