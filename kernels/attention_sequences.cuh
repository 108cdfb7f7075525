// Finds the tokens of a tile, for attention.cu and attention_any.cu.
#pragma once
#include "attention.h"

// The index of the sequence that `tile` belongs to: the first sequence whose tile_end is greater than `tile`. This is a
// binary search, because an image of a vision tower has a hundred sequences (its windows).
static __device__ __forceinline__ int sequence_of(const sumi_attention_args& a, int tile)
{
    int low = 0, high = a.sequence_count - 1;
    while (low < high) {
        const int middle = (low + high) >> 1;
        if (tile < a.sequences[middle].tile_end) high = middle;
        else low = middle + 1;
    }
    return low;
}
// The row of token i, counted from the row of the sequence's first token.
static __device__ __forceinline__ int row_of(const sumi_attention_sequence& s, int i)
{
    return i + (i >= s.split ? s.jump : 0);
}
