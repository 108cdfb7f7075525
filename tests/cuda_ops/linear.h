// Builders of products, for the files of this folder that need them too.
#ifndef TEST_CUDA_OPS_LINEAR_H
#define TEST_CUDA_OPS_LINEAR_H
#include "cuda_ops/scene.h"

// Flags of a product's case, in op_case.a.
enum {
    BIASED = 1,
    INTO = 2,
    RESIDUAL = 4,
    GATED_RESIDUAL = 8,
    TO_FLOAT = 16,
    STACKED = 32,
    ADAPTED = 64,
    FLOAT_TABLE = 128
};
enum {
    ALIGNED = 256,
    IN_FP8 = 512,
    PADDED = 1024,
    INTO_COLUMNS = 2048,
    ADDING = 4096,
    IN_INT8 = 8192,
    IN_STORED = 16384
};

// In op_case.b, in the place of a rank: a whole matrix with factors of its rows, and a bias.
enum { WHOLE = 32768 };

void build_linear(scene* s, const op_case* c);  // y [m][n] = x [m][k] w^T and what the flags say
void build_gated(scene* s, const op_case* c);   // act(gate) * up of a product with 2 n columns
void build_streams(scene* s, const op_case* c); // products of two streams, c->m and c->b rows
// Two adapters that change a norm each, or one both times.
void adapt_norms(scene* s, const sumi_weight* first, const sumi_weight* second);
#endif
