// A weight: a matrix [rows, cols] in the type that the file has. It may be stacked from several tensors of the file,
// one below the other: to_q, to_k and to_v are one GEMM. The CPU reads the tensors in the mapped file; a GPU uploads
// the stack as one block. Adapters (LoRA) change weights, not networks.
#ifndef SUMI_PLAN_WEIGHT_H
#define SUMI_PLAN_WEIGHT_H
#include "base/decoding.h"

#define SUMI_WEIGHT_MAX_TENSORS 4

// One stacked tensor of a weight.
typedef struct sumi_stacked_tensor {
    // `rows` rows of `cols` elements, dense unless `chunk` is set, at any alignment.
    const void* data;
    sumi_dtype dtype;
    int32_t rows;
    // chunk, if not 0: the elements lie in chunks of this many, and each chunk begins chunk_stride elements after the
    // previous one, across rows too. One slice of a three-dimensional convolution kernel is stored like this. Only for
    // types without blocks, and only for convolutions, whose readers gather elements.
    int32_t chunk, chunk_stride;
    float scale; // factor of all elements, in fp8 and int8 files; 1 otherwise
    // One float32 factor per row, at any alignment, for files whose rows have their own scales; NULL: none.
    const void* row_scales;
    // Not 0: each group of this many columns is multiplied by a Hadamard matrix (base/rotation.h). The scales are
    // applied after the rotation is undone.
    int32_t rotation;
    // Not NULL: what else has to be known to read the elements, such as factors of blocks. Lives as long as the weight.
    const sumi_decoding* decoding;
    // The mapping (base/platform.h) that contains the data, which a backend may page-lock as a whole. NULL: the data
    // lies in memory of the host program or of the heap instead.
    const void* mapping;
    uint64_t mapping_bytes;
} sumi_stacked_tensor;

// Low-rank factors that a file keeps beside a weight and that are always added to it: W + up @ down. Every function
// that converts rows of the weight to float adds them. So the sum is computed in float32 and never rounded to the
// file's type, and weight and factors stay in the mapped file. The factors have no chunks, row scales, rotation or
// decoding. `up` has a type without blocks, because its elements are read one by one. The scale of `up` contains alpha / rank.
typedef struct sumi_weight_change {
    sumi_stacked_tensor down, up; // [rank, cols], [rows, rank]
} sumi_weight_change;

typedef struct sumi_weight {
    const char* name; // "layers.3.attention.qkv": for profiles and messages
    // rows: output features; cols: input features. A convolution [co, ci, kh, kw] has rows = co, cols = ci * kh * kw. A
    // vector has rows = 1.
    int32_t rows, cols;
    int32_t tensor_count;
    sumi_stacked_tensor tensors[SUMI_WEIGHT_MAX_TENSORS];
    // NULL: none. With a change, the stacked tensors alone are not the weight, so their bytes must not be used as the
    // weight.
    const sumi_weight_change* change;
    // The weight, [1, cols], of the norm whose output is this matrix's input. With it a backend may balance the
    // matrix's columns against the input before it rounds both to 8 bits (device/weight_forms.h). NULL: without such a norm.
    const struct sumi_weight* balance;
    const void* owner;    // the list of weights of a model or control net. A device frees weights of one owner together
    int32_t index;        // position in the model's list of weights; those of control nets have numbers beyond it
    bool keeps_precision; // never quantised further: embedders, modulation, final layers
} sumi_weight;

// Bytes of the stacked tensors, their factors and the change; gaps between chunks are not counted.
uint64_t sumi_weight_bytes(const sumi_weight* weight);
bool sumi_weight_is_dense(const sumi_weight* weight);
// Whether the stored elements, times `scale`, are the weight's elements: no row scales, rotation or decoding.
static inline bool sumi_stacked_tensor_is_plain(const sumi_stacked_tensor* tensor)
{
    return tensor->row_scales == NULL && tensor->rotation == 0 && tensor->decoding == NULL;
}
// The rows [begin, begin + count) of a weight without a change or chunks, in place. `decodings` receives the
// decodings of the stacked tensors of `out`, which refer to them. False: the rows do not begin
// with a block of elements or of factors.
bool sumi_weight_take_rows(const sumi_weight* weight, int32_t begin, int32_t count, sumi_weight* out,
                           sumi_decoding decodings[SUMI_WEIGHT_MAX_TENSORS]);
// Copies rows [begin, begin + count) without gaps, in the type of the file. The rows must lie in one stacked tensor of
// a weight without a change.
void sumi_weight_copy_rows(const sumi_weight* weight, int32_t begin, int32_t count, void* into);
// Converts rows [begin, begin + count) to float, row r at into + (r - begin) * stride. Vectors and norms are read with
// count 1.
void sumi_weight_to_float(const sumi_weight* weight, int32_t begin, int32_t count, float* into, int32_t stride);

typedef struct sumi_weight_block {
    int32_t row, rows, column, cols;
} sumi_weight_block;
// Converts a block of rows and columns to float. `column` is a multiple of 256, and thereby of the block length of
// every type and of every rotation; `column + cols` is such a multiple too, or the end of the row. A weight that lies
// in chunks is converted in whole rows only.
void sumi_weight_block_to_float(const sumi_weight* weight, sumi_weight_block block, float* into, int32_t stride);

typedef enum sumi_delta_kind {
    SUMI_DELTA_LOW_RANK, // up [rows, rank] @ down [rank, in]
    // up [a, c] (x) down [b, d]: element [i b + k, j d + l] is up[i, j] * down[k, l]. There are a b rows and c d input
    // features.
    SUMI_DELTA_KRONECKER,
    SUMI_DELTA_WHOLE, // up [rows, in] is the change itself, without down
    SUMI_DELTA_BIAS,  // up [rows, 1] is added to the bias of the product, without down
    SUMI_DELTA_VECTOR // for a vector: up [n, 1], read as a row, without down
} sumi_delta_kind;

// The change that an adapter adds to a range of rows of one weight: W[row_begin .. + sumi_delta_rows) += scale * D,
// where D is made from up and down, depending on the kind. A bias has the rows of its weight.
typedef struct sumi_delta {
    int32_t weight_index, row_begin;
    float scale; // alpha / rank, or another rule of the file
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
} sumi_adapter; // deltas are sorted by weight_index
typedef struct sumi_adapter_use {
    const sumi_adapter* adapter;
    float scale;
} sumi_adapter_use;
#endif
