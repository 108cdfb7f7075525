// Cases of weights as stored in their files, and in 4 bits.
#include "cuda_ops/linear.h"
#include "cuda_ops/quantised.h"

// Flags of a case, in op_case.a.
enum {
    INEXACT = 1,    // the sums are not exact: outputs need not have the same bits
    FROM_PARTS = 2, // the weight is stacked of two tensors
    OF_TWO_TYPES = 4,
    WITH_GATE = 8,
    WITH_BIAS = 16,
    WITH_RESIDUAL = 32,
    AS_INT4 = 64
};

// The same weight in bfloat16, the form that a device uses if weights are not kept as stored.
static sumi_weight* bf16_copy(scene* s, const sumi_weight* of)
{
    bool is_new;
    if (s->next_weight == MAX_WEIGHTS) abort();
    uint16_t* data = next_block_of_case(s, (size_t)of->rows * (size_t)of->cols * sizeof *data, &is_new);
    float* row = malloc((size_t)of->cols * sizeof *row);
    for (int r = 0; is_new && r < of->rows; r++) {
        sumi_weight_to_float(of, r, 1, row, of->cols);
        sumi_floats_to_bf16(row, data + (size_t)r * (size_t)of->cols, (size_t)of->cols);
    }
    free(row);
    sumi_weight* w = &s->store->weights[s->next_weight];
    *w = (sumi_weight){.name = "bf16 copy",
                       .rows = of->rows,
                       .cols = of->cols,
                       .tensor_count = 1,
                       .tensors = {{.data = data, .dtype = SUMI_DTYPE_BF16, .rows = of->rows, .scale = 1.0f}},
                       .index = s->next_weight++};
    return w;
}

// Of a GGUF type or fp8, or, with op_case.b, of a quantised format.
static sumi_weight* weight_of_case(scene* s, const op_case* c, int rows, int parts)
{
    return c->b != NO_FORMAT ? quantised_weight(s, rows, c->k, rows / 2, c->b, parts == 2 ? c->b : NO_FORMAT)
                             : stacked_weight(s, rows, c->k, parts, c->dtype, 1.0f / sqrtf((float)c->k), 0.0f);
}

static sumi_value stored_product(scene* s, const op_case* c, sumi_value x, sumi_weight* w, sumi_weight* b,
                                 sumi_value residual)
{
    if (c->a & WITH_GATE) return sumi_plan_linear_gated(&s->plan, "gated", x, w, SUMI_ACT_SILU);
    return sumi_plan_linear(
        &s->plan, &(sumi_plan_linear_args){
                      .label = "stored", .x = x, .weight = w, .bias = b, .residual = residual, .activation = c->act});
}

// A product with a weight as stored, and the same product with the weight in bfloat16. Both must have the same bits.
// The inputs are small integers, so the sums are exact, and the order in which a kernel adds does not matter. INEXACT:
// the bits may differ, because sums of fp8 weights are not exact, kernels of few rows add in an order of their own, and
// they compute the sigmoid of SwiGLU by another instruction.
static void build_stored(scene* s, const op_case* c)
{
    const int parts = c->a & (FROM_PARTS | WITH_GATE) ? 2 : 1;
    s->plan.weight_options.weights = c->a & AS_INT4 ? SUMI_WEIGHTS_INT4 : SUMI_WEIGHTS_AS_STORED;
    sumi_weight* w = weight_of_case(s, c, c->n, parts);
    if (c->a & OF_TWO_TYPES) {
        sumi_weight* other = stacked_weight(s, c->n, c->k, parts, SUMI_DTYPE_Q6_K, 1.0f / sqrtf((float)c->k), 0.0f);
        w->tensors[1] = other->tensors[1];
    }
    bool is_new;
    float* data = next_block_of_case(s, (size_t)c->m * (size_t)c->k * sizeof *data, &is_new);
    for (int i = 0; is_new && i < c->m * c->k; i++) data[i] = (float)((int)(random_bits(s->store) >> 33) % 3 - 1);
    sumi_value x = add_input(s, SUMI_ELEMENT_ACTIVATION, c->m, c->k, data, false),
               residual = c->a & WITH_RESIDUAL ? activations(s, c->m, c->n) : SUMI_NO_VALUE;
    sumi_weight* b = c->a & WITH_BIAS ? bias_of(s, c->n, SUMI_DTYPE_BF16) : NULL;
    expect(s, stored_product(s, c, x, w, b, residual), c->bound);
    if (c->a & AS_INT4) return;
    expect(s, stored_product(s, c, x, bf16_copy(s, w), b, residual), c->bound);
    s->equal_pairs[0].a = 0, s->equal_pairs[0].b = 1, s->equal_pairs[0].is_bf16 = true;
    s->equal_pair_count = c->a & INEXACT ? 0 : 1;
}
static void build_stored_embed(scene* s, const op_case* c)
{
    s->plan.weight_options.weights = SUMI_WEIGHTS_AS_STORED;
    sumi_weight *w = c->b != NO_FORMAT ? weight_of_case(s, c, c->n, 1)
                                       : stacked_weight(s, c->n, c->k, 1, c->dtype, 1.0f, 0.0f),
                *b = c->a ? bias_of(s, c->k, 0) : NULL;
    sumi_value ids = integers(s, c->m, 1, c->n);
    for (int i = 0; i < 2; i++) {
        sumi_weight* table = i == 0 ? w : bf16_copy(s, w);
        expect(s,
               b != NULL ? sumi_plan_embed_rows_biased(&s->plan, ids, table, b)
                         : sumi_plan_embed_rows(&s->plan, ids, table, 0.7f),
               c->bound);
    }
    s->equal_pairs[0].a = 0, s->equal_pairs[0].b = 1, s->equal_pairs[0].is_bf16 = true;
    s->equal_pair_count = 1;
}
// The CPU computes with the precision of the file, a GPU rounds weights to bfloat16 (UNPACKED) or to 4-bit codes
// (INT4).
#define UNPACKED 5.2e-3
#define INT4 0.11
// Shapes that take the kernel of few rows, with each size of its tile, with k split and not split, and one shape whose
// weight is unpacked first.
#define SHAPE(name, m, n, k, type, format, flags)                                                                      \
    {                                                                                                                  \
        "stored " name " " #m "x" #n "x" #k, build_stored, m, n, k, flags, format, .dtype = type, .bound = UNPACKED    \
    }
// format: of quantised.h, in the place of a type.
#define EVERY_SHAPE_OF(name, type, format, flags)                                                                      \
    {"stored " name ", embed", build_stored_embed, 40, 300, 512, 0, format, .dtype = type, .bound = UNPACKED},         \
        SHAPE(name, 5, 80, 512, type, format, flags), SHAPE(name, 50, 320, 768, type, format, flags),                  \
        SHAPE(name, 130, 192, 1024, type, format, flags), SHAPE(name, 30, 6200, 512, type, format, flags),             \
        SHAPE(name, 100, 6200, 512, type, format, flags), SHAPE(name, 200, 12300, 256, type, format, flags),           \
        SHAPE(name, 300, 200, 256, type, format, 0)
#define EVERY_SHAPE(name, type, flags) EVERY_SHAPE_OF(name, type, NO_FORMAT, flags)
static const op_case s_stored[] = {
    EVERY_SHAPE("q8_0", SUMI_DTYPE_Q8_0, 0),
    EVERY_SHAPE("q4_0", SUMI_DTYPE_Q4_0, 0),
    EVERY_SHAPE("q4_1", SUMI_DTYPE_Q4_1, 0),
    EVERY_SHAPE("q5_0", SUMI_DTYPE_Q5_0, 0),
    EVERY_SHAPE("q5_1", SUMI_DTYPE_Q5_1, 0),
    EVERY_SHAPE("q2_k", SUMI_DTYPE_Q2_K, 0),
    EVERY_SHAPE("q3_k", SUMI_DTYPE_Q3_K, 0),
    EVERY_SHAPE("q4_k", SUMI_DTYPE_Q4_K, 0),
    EVERY_SHAPE("q5_k", SUMI_DTYPE_Q5_K, 0),
    EVERY_SHAPE("q6_k", SUMI_DTYPE_Q6_K, 0),
    EVERY_SHAPE("iq4_nl", SUMI_DTYPE_IQ4_NL, 0),
    EVERY_SHAPE("iq4_xs", SUMI_DTYPE_IQ4_XS, 0),
    EVERY_SHAPE("e4m3", SUMI_DTYPE_F8_E4M3, INEXACT),
    EVERY_SHAPE("e5m2", SUMI_DTYPE_F8_E5M2, INEXACT),
    EVERY_SHAPE_OF("nvfp4", 0, NVFP4, 0),
    EVERY_SHAPE_OF("fp8 in blocks", 0, FP8_BLOCKS, INEXACT),
    // other places and types of factors in the file, the same bytes on the device
    {"stored nvfp4 in rows 50x320x768", build_stored, 50, 320, 768, 0, NVFP4_IN_ROWS, .bound = UNPACKED},
    {"stored fp8 in blocks, float 50x320x768", build_stored, 50, 320, 768, INEXACT, FP8_BLOCKS_F32, .bound = UNPACKED},
    {"stored fp8 in rows 50x320x768", build_stored, 50, 320, 768, INEXACT, FP8_ROWS, .bound = UNPACKED},
    {"stored fp8 in rows, float 50x320x768", build_stored, 50, 320, 768, INEXACT, FP8_ROWS_F32, .bound = UNPACKED},
    {"stored fp8 in rows, float 300x200x256", build_stored, 300, 200, 256, 0, FP8_ROWS_F32, .bound = UNPACKED},
    {"stored nvfp4 20x96x96", build_stored, 20, 96, 96, 0, NVFP4, .bound = UNPACKED},
    {"stored nvfp4 20x96x320", build_stored, 20, 96, 320, 0, NVFP4, .bound = UNPACKED},
    {"stored nvfp4 60x6200x640", build_stored, 60, 6200, 640, 0, NVFP4, .bound = UNPACKED},
    {"stored nvfp4, embed of 96, bias", build_stored_embed, 9, 30, 96, 1, NVFP4, .bound = UNPACKED},
    {"stored nvfp4 77x520x512, parts, bias, residual", build_stored, 77, 520, 512,
     FROM_PARTS | WITH_BIAS | WITH_RESIDUAL, NVFP4, .bound = UNPACKED},
    {"stored fp8 in blocks 77x520x512, parts, silu", build_stored, 77, 520, 512, INEXACT | FROM_PARTS | WITH_BIAS,
     FP8_BLOCKS, .act = SUMI_ACT_SILU, .bound = UNPACKED},
    {"stored nvfp4 and q6_k 77x520x512", build_stored, 77, 520, 512, FROM_PARTS | OF_TWO_TYPES | WITH_BIAS, NVFP4,
     .bound = UNPACKED},
    {"stored fp8 in blocks and q6_k, gated 300x512x512", build_stored, 300, 512, 512, OF_TWO_TYPES | WITH_GATE,
     FP8_BLOCKS, .bound = 2 * UNPACKED},
    {"stored nvfp4, gated 12x512x512", build_stored, 12, 512, 512, INEXACT | WITH_GATE, NVFP4, .bound = 2 * UNPACKED},
    {"stored fp8 in blocks, gated 100x416x256", build_stored, 100, 416, 256, INEXACT | WITH_GATE, FP8_BLOCKS,
     .bound = 2 * UNPACKED},
    // for the kernels of Hopper, with and without clusters
    {"stored nvfp4 64x6200x768, bias, residual", build_stored, 64, 6200, 768, WITH_BIAS | WITH_RESIDUAL, NVFP4,
     .bound = UNPACKED},
    {"stored nvfp4 77x1536x4096, parts, bias, residual", build_stored, 77, 1536, 4096,
     FROM_PARTS | WITH_BIAS | WITH_RESIDUAL, NVFP4, .bound = UNPACKED},
    {"stored fp8 in blocks 250x1208x2816, residual", build_stored, 250, 1208, 2816, INEXACT | WITH_RESIDUAL, FP8_BLOCKS,
     .bound = UNPACKED},
    {"stored nvfp4, gated 230x2048x1792", build_stored, 230, 2048, 1792, INEXACT | WITH_GATE, NVFP4,
     .bound = 2 * UNPACKED},
    {"stored nvfp4 4096x3840x3840", build_stored, 4096, 3840, 3840, 0, NVFP4, .bound = UNPACKED},
    // rows whose length is a multiple of a block (32) but not of 256, and not of 64 either
    {"stored q8_0 20x96x320", build_stored, 20, 96, 320, 0, .dtype = SUMI_DTYPE_Q8_0, .bound = UNPACKED},
    {"stored q4_0 100x72x1088", build_stored, 100, 72, 1088, 0, .dtype = SUMI_DTYPE_Q4_0, .bound = UNPACKED},
    {"stored q5_1 20x96x96", build_stored, 20, 96, 96, 0, .dtype = SUMI_DTYPE_Q5_1, .bound = UNPACKED},
    {"stored q4_1 300x96x96", build_stored, 300, 96, 96, 0, .dtype = SUMI_DTYPE_Q4_1, .bound = UNPACKED},
    {"stored iq4_nl, embed of 96, bias", build_stored_embed, 9, 30, 96, 1, .dtype = SUMI_DTYPE_IQ4_NL,
     .bound = UNPACKED},
    {"stored q4_k 77x520x512, parts, bias, residual", build_stored, 77, 520, 512,
     FROM_PARTS | WITH_BIAS | WITH_RESIDUAL, .dtype = SUMI_DTYPE_Q4_K, .bound = UNPACKED},
    {"stored q6_k 77x520x512, parts, silu", build_stored, 77, 520, 512, FROM_PARTS | WITH_BIAS, .act = SUMI_ACT_SILU,
     .dtype = SUMI_DTYPE_Q6_K, .bound = UNPACKED},
    {"stored q3_k 7x520x512, parts", build_stored, 7, 520, 512, FROM_PARTS, .dtype = SUMI_DTYPE_Q3_K,
     .bound = UNPACKED},
    {"stored q4_k and q6_k 77x520x512", build_stored, 77, 520, 512, FROM_PARTS | OF_TWO_TYPES | WITH_BIAS,
     .dtype = SUMI_DTYPE_Q4_K, .bound = UNPACKED},
    {"stored q4_k and q6_k, gated 300x512x512", build_stored, 300, 512, 512, OF_TWO_TYPES | WITH_GATE,
     .dtype = SUMI_DTYPE_Q4_K, .bound = 2 * UNPACKED},
    {"stored e4m3 300x520x512, parts", build_stored, 300, 520, 512, FROM_PARTS, .dtype = SUMI_DTYPE_F8_E4M3,
     .bound = UNPACKED},
    {"stored q4_k, gated 12x512x512", build_stored, 12, 512, 512, INEXACT | WITH_GATE, .dtype = SUMI_DTYPE_Q4_K,
     .bound = 2 * UNPACKED},
    {"stored q5_k, gated 100x416x256", build_stored, 100, 416, 256, INEXACT | WITH_GATE, .dtype = SUMI_DTYPE_Q5_K,
     .bound = 2 * UNPACKED},
    {"stored q8_0, gated 260x512x512", build_stored, 260, 512, 512, WITH_GATE, .dtype = SUMI_DTYPE_Q8_0,
     .bound = 2 * UNPACKED},
    {"stored e4m3, gated 100x416x256", build_stored, 100, 416, 256, INEXACT | WITH_GATE, .dtype = SUMI_DTYPE_F8_E4M3,
     .bound = 2 * UNPACKED},
    {"stored q8_0, adapters 70x96x128", build_linear, 70, 96, 128, IN_STORED | ADAPTED | BIASED, 16,
     .dtype = SUMI_DTYPE_Q8_0, .bound = UNPACKED},
    {"stored q4_k, adapters, gated 40x64x256", build_gated, 40, 64, 256, IN_STORED | ADAPTED, .act = SUMI_ACT_SILU,
     .dtype = SUMI_DTYPE_Q4_K, .bound = 2 * UNPACKED},
    {"stored q4_0, float table 40x768x192", build_linear, 40, 768, 192, IN_STORED | BIASED | TO_FLOAT,
     .dtype = SUMI_DTYPE_Q4_0, .bound = UNPACKED},
    {"int4 70x256x384", build_stored, 70, 256, 384, AS_INT4, .bound = INT4},
    {"int4 300x256x384, parts", build_stored, 300, 256, 384, AS_INT4 | FROM_PARTS | WITH_BIAS, .dtype = SUMI_DTYPE_F16,
     .bound = INT4},
    {"int4, gated 300x512x256", build_stored, 300, 512, 256, AS_INT4 | WITH_GATE, .bound = 2 * INT4},
    {"int4, gated 40x512x256, of q8_0", build_stored, 40, 512, 256, AS_INT4 | WITH_GATE, .dtype = SUMI_DTYPE_Q8_0,
     .bound = 2 * INT4},
    // for the kernels of Hopper: stacked weights, biases, residuals, rows that are no multiple of a tile
    {"stored q6_k 64x6200x768, bias, residual", build_stored, 64, 6200, 768, WITH_BIAS | WITH_RESIDUAL,
     .dtype = SUMI_DTYPE_Q6_K, .bound = UNPACKED},
    {"stored q8_0 128x6144x1024, parts", build_stored, 128, 6144, 1024, FROM_PARTS, .dtype = SUMI_DTYPE_Q8_0,
     .bound = UNPACKED},
    {"stored q4_0 200x12288x512, silu", build_stored, 200, 12288, 512, WITH_BIAS, .dtype = SUMI_DTYPE_Q4_0,
     .act = SUMI_ACT_SILU, .bound = UNPACKED},
    {"stored iq4_nl 60x6200x640", build_stored, 60, 6200, 640, 0, .dtype = SUMI_DTYPE_IQ4_NL, .bound = UNPACKED},
    // tiles that the blocks of a cluster share: clusters of eight and of five, unequal parts, unaligned results
    {"stored q4_k 77x1536x4096, parts, bias, residual", build_stored, 77, 1536, 4096,
     FROM_PARTS | WITH_BIAS | WITH_RESIDUAL, .dtype = SUMI_DTYPE_Q4_K, .bound = UNPACKED},
    {"stored q8_0 40x1600x2112, silu", build_stored, 40, 1600, 2112, WITH_BIAS, .dtype = SUMI_DTYPE_Q8_0,
     .act = SUMI_ACT_SILU, .bound = UNPACKED},
    {"stored iq4_nl 250x1208x2816, residual", build_stored, 250, 1208, 2816, WITH_RESIDUAL, .dtype = SUMI_DTYPE_IQ4_NL,
     .bound = UNPACKED},
    {"stored e4m3 130x1500x2304, bias, residual", build_stored, 130, 1500, 2304, INEXACT | WITH_BIAS | WITH_RESIDUAL,
     .dtype = SUMI_DTYPE_F8_E4M3, .bound = UNPACKED},
    {"stored q6_k, gated 230x2048x1792", build_stored, 230, 2048, 1792, INEXACT | WITH_GATE, .dtype = SUMI_DTYPE_Q6_K,
     .bound = 2 * UNPACKED},
    {"stored q5_k, gated 77x6400x512", build_stored, 77, 6400, 512, INEXACT | WITH_GATE, .dtype = SUMI_DTYPE_Q5_K,
     .bound = 2 * UNPACKED},
    {"stored q4_k 4096x3840x3840", build_stored, 4096, 3840, 3840, 0, .dtype = SUMI_DTYPE_Q4_K, .bound = UNPACKED},
    {"stored q6_k, gated 520x20480x3840", build_stored, 520, 20480, 3840, WITH_GATE, .dtype = SUMI_DTYPE_Q6_K,
     .bound = 2 * UNPACKED},
    {"stored q4_k 200x3072x12288", build_stored, 200, 3072, 12288, INEXACT, .dtype = SUMI_DTYPE_Q4_K,
     .bound = UNPACKED},
};
CASE_TABLE(stored);
