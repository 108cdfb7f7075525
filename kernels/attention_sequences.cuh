// Where a tile's tokens lie: for attention.cu and attention_any.cu.
#pragma once
#include "attention.h"

// The sequence of which `tile` is: the first one whose tiles end behind it. A vision tower has a hundred, hence halves.
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
// Token i's row, from the sequence's first row.
static __device__ __forceinline__ int row_of(const sumi_attention_sequence& s, int i)
{
    return i + (i >= s.split ? s.jump : 0);
}
