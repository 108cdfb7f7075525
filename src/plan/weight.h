// A weight as the networks see it: a matrix [rows, cols] that may be stacked from several tensors of the file (to_q,
// to_k, to_v are one GEMM), in whatever type the file has. The CPU reads it where it lies; a GPU uploads the stack as
// one block. Adapters (LoRA) hang on weights, not on networks.
#ifndef SUMI_PLAN_WEIGHT_H
#define SUMI_PLAN_WEIGHT_H
#include "base/dtype.h"
#include <stdbool.h>

#define SUMI_WEIGHT_MAX_PARTS 4

typedef struct sumi_weight_part {
    const void* data; // `rows` rows of `cols` elements, dense unless there are chunks; no alignment promised
    sumi_dtype dtype;
    int32_t rows;
    // Not 0: a row's elements lie in chunks of so many, each chunk_stride elements behind the one before, from row to
    // row too. So lies one slice of a kernel that has three dimensions. Of types without blocks, and of convolutions
    // only: their readers gather.
    int32_t chunk, chunk_stride;
    float scale; // of fp8 and int8 files; 1 otherwise
    // float32 for each row, at no alignment, of files whose rows have scales of their own; NULL: none
    const void* row_scales;
    int32_t rotation; // not 0: rows lie rotated in groups of so many columns (base/rotation.h). Scales come after it
    // The whole mapping of ours (base/platform.h) in which the data lies, which a device may page-lock. NULL: the data
    // lies elsewhere, in memory of the host's or of the heap.
    const void* mapping;
    uint64_t mapping_bytes;
} sumi_weight_part;

// What a file keeps beside a weight and adds to it always: W + up @ down. Whoever makes floats of the weight's rows adds
// it, so it is merged in float32 and no sum is rounded to the file's type, while both lie where they lie. The parts have
// no chunks, row scales or rotation; `up` has a type without blocks, because its elements are read one by one; alpha /
// rank is in its scale.
typedef struct sumi_weight_change {
    sumi_weight_part down, up; // [rank, cols], [rows, rank]
} sumi_weight_change;

typedef struct sumi_weight {
    const char* name; // "layers.3.attention.qkv": for profiles and messages
    // out features, in features. A convolution [co, ci, kh, kw] is rows = co, cols = ci * kh * kw. A vector is rows = 1
    int32_t rows, cols;
    int32_t part_count;
    sumi_weight_part parts[SUMI_WEIGHT_MAX_PARTS];
    // NULL: there is none. With it the bytes of the parts are not the weight's: copying them is not enough.
    const sumi_weight_change* change;
    // The weight of the norm that makes a matrix's input, [1, cols]: by it a backend may balance the matrix's columns and
    // the input against each other before it rounds both (cuda/balance.h). NULL: there is no such norm.
    const struct sumi_weight* balance;
    int32_t index;        // in the model's list of weights
    bool keeps_precision; // never quantised further: embedders, modulation, final layers
} sumi_weight;

// What is read of it: its change too, not what lies between chunks.
uint64_t sumi_weight_bytes(const sumi_weight* weight);
bool sumi_weight_is_dense(const sumi_weight* weight);
// Whether the part's elements are the weight's, but for the part's scale: rows have no scales and are not rotated.
static inline bool sumi_weight_part_is_straight(const sumi_weight_part* part)
{
    return part->row_scales == NULL && part->rotation == 0;
}
// Rows [begin, begin + count), which lie in one part, one behind the other in the type of the file. Of weights without a
// change.
void sumi_weight_copy_rows(const sumi_weight* weight, int32_t begin, int32_t count, void* into);
// Rows [begin, begin + count) as float, row r at into + (r - begin) * stride. Vectors and norms use this with count 1.
void sumi_weight_to_float(const sumi_weight* weight, int32_t begin, int32_t count, float* into, int32_t stride);

typedef struct sumi_weight_block {
    int32_t row, rows, column, cols;
} sumi_weight_block;
// The same of some columns. `column` is a multiple of 256, and of all types' blocks and rotations with it; so is
// `column + cols`, or it is the end of the row. A weight that lies in chunks is converted by whole rows only.
void sumi_weight_block_to_float(const sumi_weight* weight, sumi_weight_block block, float* into, int32_t stride);

typedef enum sumi_delta_kind {
    SUMI_DELTA_LOW_RANK,  // up [rows, rank] @ down [rank, in]
    SUMI_DELTA_KRONECKER, // up [a, c] (x) down [b, d]: [i b + k, j d + l] is up[i, j] * down[k, l]; a b rows, c d is in
    SUMI_DELTA_VECTOR     // of a vector: up [n, 1] as a row. There is no down
} sumi_delta_kind;

// A change of a range of a weight's rows: W[row_begin .. + sumi_delta_rows) += scale * what the kind makes of up and down.
typedef struct sumi_delta {
    int32_t weight_index, row_begin;
    float scale; // alpha / rank, or the file's own rule
    sumi_weight down, up;
    sumi_delta_kind kind;
} sumi_delta;

static inline int32_t sumi_delta_rows(const sumi_delta* delta)
{
    return delta->kind == SUMI_DELTA_VECTOR    ? 1
         : delta->kind == SUMI_DELTA_KRONECKER ? delta->up.rows * delta->down.rows
                                               : delta->up.rows;
}

typedef struct sumi_adapter {
    const sumi_delta* deltas;
    int32_t delta_count;
} sumi_adapter; // sorted by weight_index
typedef struct sumi_adapter_use {
    const sumi_adapter* adapter;
    float scale;
} sumi_adapter_use;
// Rows of W + sum of deltas, in float: what merging would give. For tests and for backends that merge.
void sumi_weight_merged_row(const sumi_weight* weight, const sumi_adapter_use* uses, int32_t use_count, int32_t row,
                            float* into);
#endif
