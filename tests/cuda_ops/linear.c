// Cases of products, of gating and activations, and of products in 8 bits.
#include "cuda_ops/linear.h"

// ---- LINEAR ---------------------------------------------------------------------------------------------------------
static sumi_weight_format weights_of(int flags)
{
    return flags & IN_FP8    ? SUMI_WEIGHTS_FP8
         : flags & IN_INT8   ? SUMI_WEIGHTS_INT8
         : flags & IN_STORED ? SUMI_WEIGHTS_AS_STORED
                             : SUMI_WEIGHTS_AUTO;
}

typedef struct adapters {
    sumi_delta deltas[2];
    sumi_adapter adapters[2];
    sumi_adapter_use uses[2];
} adapters;

static void use_adapters(scene* s, adapters* a)
{
    for (int i = 0; i < 2; i++) {
        a->adapters[i] = (sumi_adapter){&a->deltas[i], 1};
        a->uses[i] = (sumi_adapter_use){&a->adapters[i], i == 0 ? 0.8f : -1.5f};
    }
    sumi_plan_adapters(&s->plan, a->uses, 2);
}

// A Kronecker product for `rows` rows from `begin` on. Its left factor has `folds` columns and at most `runs` rows.
static sumi_delta kronecker(scene* s, const sumi_weight* w, int begin, int rows, int folds, int runs, float scale)
{
    while (rows % runs != 0) runs--;
    return (sumi_delta){.weight_index = w->index,
                        .row_begin = begin,
                        .scale = scale,
                        .up = *matrix_weight(s, runs, folds, SUMI_DTYPE_F32),
                        .down = *matrix_weight(s, rows / runs, w->cols / folds, SUMI_DTYPE_BF16),
                        .kind = SUMI_DELTA_KRONECKER};
}

// A whole matrix whose rows have factors, as the part of DoRA that is the model's own weight, for all rows; and a bias
// of a range in the middle.
static void change_whole(scene* s, const sumi_weight* w, adapters* a, int begin, int rows)
{
    bool is_new;
    sumi_weight* up = matrix_weight(s, w->rows, w->cols, SUMI_DTYPE_BF16);
    float* factors = next_block_of_case(s, (size_t)w->rows * sizeof *factors, &is_new);
    for (int i = 0; is_new && i < w->rows; i++) factors[i] = random_normal(s->store);
    up->tensors[0].row_scales = factors;
    a->deltas[0] = (sumi_delta){.weight_index = w->index, .scale = 0.5f, .up = *up, .kind = SUMI_DELTA_WHOLE};
    a->deltas[1] = (sumi_delta){.weight_index = w->index,
                                .row_begin = begin,
                                .scale = 0.25f,
                                .up = *matrix_weight(s, rows < 1 ? 1 : rows, 1, SUMI_DTYPE_F32),
                                .kind = SUMI_DELTA_BIAS};
}

// Two adapters: one changes all rows, the other a range in the middle, with a negative strength. rank < 0: they are
// Kronecker products, whose left factors have -rank columns. WHOLE: see change_whole().
static void adapt_weight(scene* s, const sumi_weight* w, int rank)
{
    bool is_new;
    adapters* a = next_block_of_case(s, sizeof *a, &is_new);
    int begin = w->rows / 3 / 4 * 4, rows = w->rows / 3;
    if (rank == WHOLE) {
        change_whole(s, w, a, begin, rows);
    } else if (rank < 0) {
        a->deltas[0] = kronecker(s, w, 0, w->rows, -rank, 8, 0.5f);
        a->deltas[1] = kronecker(s, w, begin, rows, -rank, 11, 0.25f);
    } else {
        a->deltas[0] = (sumi_delta){.weight_index = w->index,
                                    .scale = 0.5f,
                                    .down = *matrix_weight(s, rank, w->cols, SUMI_DTYPE_F32),
                                    .up = *matrix_weight(s, w->rows, rank, SUMI_DTYPE_BF16)};
        a->deltas[1] = (sumi_delta){.weight_index = w->index,
                                    .row_begin = begin,
                                    .scale = 0.25f,
                                    .down = *matrix_weight(s, 3, w->cols, SUMI_DTYPE_BF16),
                                    .up = *matrix_weight(s, rows < 1 ? 1 : rows, 3, SUMI_DTYPE_F32)};
    }
    use_adapters(s, a);
}

void adapt_norms(scene* s, const sumi_weight* first, const sumi_weight* second)
{
    bool is_new;
    adapters* a = next_block_of_case(s, sizeof *a, &is_new);
    const sumi_weight* norms[2] = {first, second};
    for (int i = 0; i < 2; i++) {
        a->deltas[i] = (sumi_delta){.weight_index = norms[i]->index,
                                    .scale = 0.5f,
                                    .up = *stacked_weight(s, norms[i]->cols, 1, 1, SUMI_DTYPE_F32, 0.5f, 0.0f),
                                    .kind = SUMI_DELTA_VECTOR};
    }
    use_adapters(s, a);
}
// Columns of zeros behind the first `cols`, up to the next multiple of 8.
static sumi_value padded_activations(scene* s, int rows, int cols)
{
    bool is_new;
    const int pitch = (cols + 7) / 8 * 8;
    float* x = next_block_of_case(s, (size_t)rows * (size_t)pitch * sizeof *x, &is_new);
    for (int i = 0; is_new && i < rows * pitch; i++)
        x[i] = i % pitch < cols ? round_to_bf16(random_normal(s->store)) : 0.0f;
    return add_input(s, SUMI_ELEMENT_ACTIVATION, rows, pitch, x, false);
}
// A plan refers to an adapter's weights inside its sumi_delta. These are copies with addresses of their own.
void build_linear(scene* s, const op_case* c)
{
    int m = c->m, n = c->n, k = c->k, flags = c->a;
    s->plan.weight_options.weights = weights_of(flags);
    sumi_weight* w = stacked_weight(s, n, k, flags & STACKED ? 3 : 1, c->dtype, 1.0f / sqrtf((float)k), 0.0f);
    sumi_weight* b =
        flags & BIASED ? bias_of(s, n, c->dtype == SUMI_DTYPE_F16 ? SUMI_DTYPE_F16 : SUMI_DTYPE_BF16) : NULL;
    sumi_value x = flags & PADDED ? padded_activations(s, m, k) : activations(s, flags & INTO ? m + 5 : m, k), y;
    if (flags & ADAPTED) adapt_weight(s, w, c->b != 0 ? c->b : 16);
    if (flags & (RESIDUAL | GATED_RESIDUAL)) {
        sumi_element element = flags & FLOAT_TABLE ? SUMI_ELEMENT_FLOAT : SUMI_ELEMENT_ACTIVATION;
        sumi_step_row gate = flags & GATED_RESIDUAL
                               ? flags & ALIGNED ? aligned_row(s, element, n, true) : step_row(s, element, n, true)
                               : SUMI_NO_ROW;
        y = sumi_plan_linear(
            &s->plan,
            &(sumi_plan_linear_args){
                .label = "linear", .x = x, .weight = w, .bias = b, .gate = gate, .residual = activations(s, m, n)});
        // as the second product of an adapter: added to the residual with a scale
        if (flags & ADDING && s->plan.op_count > 0) {
            s->plan.ops[0].u.linear.is_adapter_product = true;
            s->plan.ops[0].u.linear.scale = 0.5f;
        }
    } else if (flags & INTO_COLUMNS) {
        y = activations(s, m, n + 40);
        sumi_plan_linear(&s->plan, &(sumi_plan_linear_args){.label = "linear",
                                                            .x = x,
                                                            .weight = w,
                                                            .bias = b,
                                                            .y = y,
                                                            .writes_some_columns = true,
                                                            .y_column = 24});
    } else if (flags & INTO) {
        y = activations(s, m + 4, n);
        sumi_plan_linear(&s->plan, &(sumi_plan_linear_args){.label = "linear",
                                                            .x = x,
                                                            .x_row = 3,
                                                            .rows = m,
                                                            .weight = w,
                                                            .bias = b,
                                                            .activation = c->act,
                                                            .y = y,
                                                            .y_row = 2});
    } else if (flags & TO_FLOAT) {
        y = sumi_plan_value(&s->plan, "table", SUMI_ELEMENT_FLOAT, m, n);
        sumi_plan_linear(
            &s->plan, &(sumi_plan_linear_args){
                          .label = "linear", .x = x, .rows = m, .weight = w, .bias = b, .activation = c->act, .y = y});
    } else {
        y = sumi_plan_linear(&s->plan, &(sumi_plan_linear_args){
                                           .label = "linear", .x = x, .weight = w, .bias = b, .activation = c->act});
    }
    expect(s, y, c->bound);
}
// Two streams with weights of one shape, which a GPU may compute at once: c->m rows, and c->b rows that follow them in one
// matrix, or that are added to rows of their own.
void build_streams(scene* s, const op_case* c)
{
    const int rows[2] = {c->m, c->b};
    sumi_value x[2], y = SUMI_NO_VALUE;
    sumi_plan_linear_args products[2];
    s->plan.weight_options.weights = weights_of(c->a);
    if (!(c->a & GATED_RESIDUAL)) y = activations(s, rows[0] + rows[1], c->n);
    for (int i = 0; i < 2; i++) {
        x[i] = activations(s, rows[i], c->k);
        products[i] = (sumi_plan_linear_args){
            .label = i == 0 ? "image" : "text",
            .x = x[i],
            .rows = rows[i],
            .weight = stacked_weight(s, c->n, c->k, 1, SUMI_DTYPE_BF16, 1.0f / sqrtf((float)c->k), 0.0f),
            .bias = bias_of(s, c->n, SUMI_DTYPE_BF16),
            .activation = c->act};
        if (c->a & GATED_RESIDUAL) {
            products[i].residual = activations(s, rows[i], c->n);
            products[i].gate = aligned_row(s, SUMI_ELEMENT_FLOAT, c->n, true);
        } else {
            products[i].y = y;
            products[i].y_row = i * rows[0];
        }
    }
    for (int i = 0; i < 2; i++) {
        const sumi_value out = sumi_plan_linear(&s->plan, &products[i]);
        if (c->a & GATED_RESIDUAL) expect(s, out, c->bound);
    }
    if (!(c->a & GATED_RESIDUAL)) expect(s, y, c->bound);
}

static const op_case s_linear[] = {
    {"linear 1x1x1", build_linear, 1, 1, 1, .bound = STORED},
    {"linear 1x3x5, bias", build_linear, 1, 3, 5, BIASED, .bound = STORED},
    {"linear 7x13x17", build_linear, 7, 13, 17, .bound = STORED},
    {"linear 33x21x40, bias, silu", build_linear, 33, 21, 40, BIASED, .act = SUMI_ACT_SILU, .bound = STORED},
    {"linear 5x64x24, gelu tanh", build_linear, 5, 64, 24, BIASED, .act = SUMI_ACT_GELU_TANH, .bound = STORED},
    {"linear 65x129x72, gelu erf", build_linear, 65, 129, 72, BIASED, .act = SUMI_ACT_GELU_ERF, .bound = STORED},
    {"linear 16x32x33, quick gelu", build_linear, 16, 32, 33, .act = SUMI_ACT_QUICK_GELU, .bound = STORED},
    {"linear 16x40x32, tanh", build_linear, 16, 40, 32, BIASED, .act = SUMI_ACT_TANH, .bound = STORED},
    {"linear 130x136x264, stacked, residual", build_linear, 130, 136, 264, STACKED | RESIDUAL, .bound = STORED},
    {"linear 131x100x64, gated residual", build_linear, 131, 100, 64, BIASED | GATED_RESIDUAL, .counter = 3,
     .bound = STORED},
    {"linear 131x104x64, gated residual, float table", build_linear, 131, 104, 64, GATED_RESIDUAL | FLOAT_TABLE,
     .counter = 2, .bound = STORED},
    {"linear 256x256x128, gated residual, aligned", build_linear, 256, 256, 128, GATED_RESIDUAL | FLOAT_TABLE | ALIGNED,
     .repeat = 2, .counter = 1, .bound = CHAINED},
    {"linear 40x64x48 into rows", build_linear, 40, 64, 48, BIASED | INTO, .bound = STORED},
    {"linear 7x9x11 into rows", build_linear, 7, 9, 11, INTO, .bound = STORED},
    {"linear, modulation table 8x15360x256", build_linear, 8, 15360, 256, BIASED | TO_FLOAT, .bound = PRODUCT},
    {"linear, modulation table 1x28x24", build_linear, 1, 28, 24, BIASED | TO_FLOAT, .bound = PRODUCT},
    {"linear, modulation table 100x768x192", build_linear, 100, 768, 192, BIASED | TO_FLOAT, .bound = PRODUCT},
    {"linear 45x96x80, f32 weights", build_linear, 45, 96, 80, BIASED, .dtype = SUMI_DTYPE_F32, .bound = STORED},
    {"linear 45x96x80, f16 weights", build_linear, 45, 96, 80, BIASED, .dtype = SUMI_DTYPE_F16, .bound = CHAINED},
    {"linear 45x96x80, e4m3 weights with a scale", build_linear, 45, 96, 80, STACKED, .dtype = SUMI_DTYPE_F8_E4M3,
     .bound = CHAINED},
    {"linear 45x96x80, e5m2 weights with a scale", build_linear, 45, 96, 80, BIASED, .dtype = SUMI_DTYPE_F8_E5M2,
     .bound = CHAINED},
    {"linear 50x96x64, two adapters", build_linear, 50, 96, 64, ADAPTED, 16, .bound = CHAINED},
    {"linear 50x39x30, two adapters, rank 5, silu", build_linear, 50, 39, 30, ADAPTED, 5, .act = SUMI_ACT_SILU,
     .bound = 6e-3},
    {"linear 50x96x64, two adapters, residual", build_linear, 50, 96, 64, ADAPTED | RESIDUAL, 4, .bound = CHAINED},
    {"linear 50x96x64, adapters, gelu", build_linear, 50, 96, 64, ADAPTED | BIASED, 8, .act = SUMI_ACT_GELU_TANH,
     .bound = 6e-3},
    {"linear 9x104x64, adapters, rank 33, quick gelu", build_linear, 9, 104, 64, ADAPTED, 33,
     .act = SUMI_ACT_QUICK_GELU, .bound = 6e-3},
    {"linear 131x100x64, adapters, gated residual", build_linear, 131, 100, 64, ADAPTED | BIASED | GATED_RESIDUAL, 16,
     .counter = 3, .bound = CHAINED},
    {"linear 131x104x64, adapters, rank 1, float gate", build_linear, 131, 104, 64,
     ADAPTED | GATED_RESIDUAL | FLOAT_TABLE, 1, .counter = 2, .bound = CHAINED},
    {"linear 256x256x128, adapters, aligned gate", build_linear, 256, 256, 128,
     ADAPTED | BIASED | GATED_RESIDUAL | FLOAT_TABLE | ALIGNED, 32, .repeat = 2, .counter = 1, .bound = 6e-3},
    {"linear 40x64x48 into rows, adapters, gelu", build_linear, 40, 64, 48, ADAPTED | BIASED | INTO, 16,
     .act = SUMI_ACT_GELU_TANH, .bound = 6e-3},
    {"linear 40x63x48 into rows, adapters, silu", build_linear, 40, 63, 48, ADAPTED | INTO, 4, .act = SUMI_ACT_SILU,
     .bound = 6e-3},
    {"linear 50x96x64, whole change", build_linear, 50, 96, 64, ADAPTED, WHOLE, .bound = CHAINED},
    {"linear 1x96x64, whole change", build_linear, 1, 96, 64, ADAPTED | BIASED, WHOLE, .bound = CHAINED},
    {"linear 50x39x30, whole change, silu", build_linear, 50, 39, 30, ADAPTED, WHOLE, .act = SUMI_ACT_SILU,
     .bound = 6e-3},
    {"linear 131x100x64, whole change, gated residual", build_linear, 131, 100, 64, ADAPTED | BIASED | GATED_RESIDUAL,
     WHOLE, .counter = 3, .bound = CHAINED},
    {"linear 40x64x48 into rows, whole change, gelu", build_linear, 40, 64, 48, ADAPTED | BIASED | INTO, WHOLE,
     .act = SUMI_ACT_GELU_TANH, .bound = 6e-3},
    {"linear 50x96x64 into columns, whole change", build_linear, 50, 96, 64, ADAPTED | STACKED | INTO_COLUMNS | BIASED,
     WHOLE, .bound = CHAINED},
    {"linear, modulation table 8x768x192, whole change", build_linear, 8, 768, 192, ADAPTED | BIASED | TO_FLOAT, WHOLE,
     .bound = CHAINED},
    {"linear 5x39x30, zeros behind x, whole change", build_linear, 5, 39, 30, PADDED | ADAPTED, WHOLE,
     .bound = CHAINED},
    {"linear, fp8 64x256x128, whole change, gate", build_linear, 64, 256, 128,
     IN_FP8 | ADAPTED | BIASED | GATED_RESIDUAL | FLOAT_TABLE | ALIGNED, WHOLE, .counter = 1, .bound = FP8},
    {"linear, int8 64x256x384, whole change, gate", build_linear, 64, 256, 384,
     IN_INT8 | ADAPTED | BIASED | GATED_RESIDUAL | FLOAT_TABLE | ALIGNED, WHOLE, .counter = 1, .bound = INT8},
    {"linear, mlp out 4096x3072x12288, whole change", build_linear, 4096, 3072, 12288,
     ADAPTED | BIASED | GATED_RESIDUAL | FLOAT_TABLE | ALIGNED, WHOLE, .counter = 2, .bound = CHAINED},
    {"linear 50x96x64 into columns", build_linear, 50, 96, 64, INTO_COLUMNS | BIASED, .bound = STORED},
    {"linear 50x96x64 into columns, adapters", build_linear, 50, 96, 64, ADAPTED | STACKED | INTO_COLUMNS | BIASED, 16,
     .bound = CHAINED},
    {"linear 50x39x64 into columns, adapters, rank 33", build_linear, 50, 39, 64, ADAPTED | INTO_COLUMNS, 33,
     .bound = CHAINED},
    {"linear, modulation table 8x768x192, adapters", build_linear, 8, 768, 192, ADAPTED | BIASED | TO_FLOAT, 16,
     .bound = CHAINED},
    {"linear, modulation table 4x96x64, adapters, silu", build_linear, 4, 96, 64, ADAPTED | BIASED | TO_FLOAT, 4,
     .act = SUMI_ACT_SILU, .bound = CHAINED},
    {"linear, fp8 64x256x128, adapters, gate", build_linear, 64, 256, 128,
     IN_FP8 | ADAPTED | BIASED | GATED_RESIDUAL | FLOAT_TABLE | ALIGNED, 16, .counter = 1, .bound = FP8},
    {"linear, int8 64x256x384, adapters, gate", build_linear, 64, 256, 384,
     IN_INT8 | ADAPTED | BIASED | GATED_RESIDUAL | FLOAT_TABLE | ALIGNED, 16, .counter = 1, .bound = INT8},
    {"linear, int8 64x256x128, adapters, gelu", build_linear, 64, 256, 128, IN_INT8 | ADAPTED | BIASED, 16,
     .act = SUMI_ACT_GELU_TANH, .bound = 2 * INT8},
    {"linear, fp8 64x256x128, adapters, gelu", build_linear, 64, 256, 128, IN_FP8 | ADAPTED | BIASED, 16,
     .act = SUMI_ACT_GELU_TANH, .bound = 2 * FP8},
    {"linear, mlp in 4096x12288x3072, adapters, gelu", build_linear, 4096, 12288, 3072, ADAPTED | BIASED, 64,
     .act = SUMI_ACT_GELU_TANH, .bound = 6e-3},
    {"linear, mlp out 4096x3072x12288, adapters, gate", build_linear, 4096, 3072, 12288,
     ADAPTED | BIASED | GATED_RESIDUAL | FLOAT_TABLE | ALIGNED, 64, .counter = 2, .bound = CHAINED},
    {"linear 50x96x64, LoKr", build_linear, 50, 96, 64, ADAPTED | STACKED, -8, .bound = CHAINED},
    {"linear 1x96x64, LoKr", build_linear, 1, 96, 64, ADAPTED | BIASED, -4, .bound = CHAINED},
    {"linear 50x39x30, LoKr, silu", build_linear, 50, 39, 30, ADAPTED, -5, .act = SUMI_ACT_SILU, .bound = 6e-3},
    {"linear 50x96x64, LoKr, residual", build_linear, 50, 96, 64, ADAPTED | RESIDUAL, -2, .bound = CHAINED},
    {"linear 131x100x64, LoKr, gated residual", build_linear, 131, 100, 64, ADAPTED | BIASED | GATED_RESIDUAL, -8,
     .counter = 3, .bound = CHAINED},
    {"linear 131x104x64, LoKr, float gate", build_linear, 131, 104, 64, ADAPTED | GATED_RESIDUAL | FLOAT_TABLE, -64,
     .counter = 2, .bound = CHAINED},
    {"linear 256x256x128, LoKr, aligned gate", build_linear, 256, 256, 128,
     ADAPTED | BIASED | GATED_RESIDUAL | FLOAT_TABLE | ALIGNED, -8, .repeat = 2, .counter = 1, .bound = 6e-3},
    {"linear 40x64x48 into rows, LoKr, gelu", build_linear, 40, 64, 48, ADAPTED | BIASED | INTO, -6,
     .act = SUMI_ACT_GELU_TANH, .bound = 6e-3},
    {"linear 50x96x64 into columns, LoKr", build_linear, 50, 96, 64, ADAPTED | STACKED | INTO_COLUMNS | BIASED, -8,
     .bound = CHAINED},
    {"linear 50x39x64 into columns, LoKr", build_linear, 50, 39, 64, ADAPTED | INTO_COLUMNS, -4, .bound = CHAINED},
    {"linear, modulation table 8x768x192, LoKr", build_linear, 8, 768, 192, ADAPTED | BIASED | TO_FLOAT, -8,
     .bound = CHAINED},
    {"linear, fp8 64x256x128, LoKr, gate", build_linear, 64, 256, 128,
     IN_FP8 | ADAPTED | BIASED | GATED_RESIDUAL | FLOAT_TABLE | ALIGNED, -8, .counter = 1, .bound = FP8},
    {"linear, LoKr 1153x3840x3840", build_linear, 1153, 3840, 3840, ADAPTED | STACKED, -8, .bound = CHAINED},
    {"linear, LoKr 1152x3840x2304, 64 folds", build_linear, 1152, 3840, 2304, ADAPTED, -64, .bound = CHAINED},
    {"linear, patches 4096x3840x64", build_linear, 4096, 3840, 64, BIASED, .bound = STORED},
    {"linear, to patches 4096x64x3840", build_linear, 4096, 64, 3840, BIASED, .bound = STORED},
    {"linear, caption 128x3840x2560", build_linear, 128, 3840, 2560, BIASED, .bound = STORED},
    {"linear, text qkv 37x6144x2560", build_linear, 37, 6144, 2560, STACKED, .bound = STORED},
    {"linear, text out 200x2560x4096, residual", build_linear, 200, 2560, 4096, RESIDUAL, .bound = STORED},
    {"linear, text down 512x2560x9728, residual", build_linear, 512, 2560, 9728, RESIDUAL, .bound = STORED},
    {"linear, text 1x2560x4096, residual", build_linear, 1, 2560, 4096, RESIDUAL, .bound = STORED},
    {"linear, qkv 4224x11520x3840", build_linear, 4224, 11520, 3840, STACKED, .bound = STORED},
    {"linear, out 4224x3840x3840", build_linear, 4224, 3840, 3840, .bound = STORED},
    {"linear, down 4224x3840x10240", build_linear, 4224, 3840, 10240, .bound = STORED},
    {"linear, out 2432x3840x3840", build_linear, 2432, 3840, 3840, .bound = STORED},
    {"linear, out 1152x3840x3840", build_linear, 1152, 3840, 3840, .bound = STORED},
    {"linear, three consumers 1100x3848x520", build_linear, 1100, 3848, 520, .bound = STORED},
    {"linear, out 1153x3840x3840, adapters", build_linear, 1153, 3840, 3840, ADAPTED, 16, .bound = CHAINED},
    {"linear, batch of four 16896x3840x3840", build_linear, 16896, 3840, 3840, .bound = STORED},
    {"linear 33x24x20, zeros behind x", build_linear, 33, 24, 20, PADDED | BIASED, .bound = STORED},
    {"linear 130x136x76, zeros behind x, residual", build_linear, 130, 136, 76, PADDED | BIASED | RESIDUAL,
     .bound = STORED},
    {"linear 5x39x30, zeros behind x, adapters", build_linear, 5, 39, 30, PADDED | ADAPTED, 5, .bound = CHAINED},
    {"linear, vision patches 5476x1280x1176", build_linear, 5476, 1280, 1176, .bound = STORED},
    {"linear, vision down 5476x1280x3420, residual", build_linear, 5476, 1280, 3420, PADDED | BIASED | RESIDUAL,
     .bound = STORED},
    {"linear, vision down 784x1280x3420, residual", build_linear, 784, 1280, 3420, PADDED | BIASED | RESIDUAL,
     .bound = STORED},
    {"linear, merger 1369x5120x5120, gelu erf", build_linear, 1369, 5120, 5120, BIASED, .act = SUMI_ACT_GELU_ERF,
     .bound = STORED},
    {"linear, demo 288x576x192", build_linear, 288, 576, 192, STACKED, .bound = STORED},
    {"linear, vae qkv 4096x1536x512, bias", build_linear, 4096, 1536, 512, BIASED | STACKED, .bound = STORED},
    {"linear, vae out 4096x512x512, bias, residual", build_linear, 4096, 512, 512, BIASED | RESIDUAL, .bound = STORED},
    {"linear, vae shortcut 16384x256x512", build_linear, 16384, 256, 512, BIASED, .bound = STORED},
};
CASE_TABLE(linear);
// ---- GATED, ACTIVATE, products in 8 bits ----------------------------------------------------------------------------
void build_gated(scene* s, const op_case* c)
{
    sumi_weight* w = stacked_weight(s, 2 * c->n, c->k, 2, c->dtype, 1.0f / sqrtf((float)c->k), 0.0f);
    s->plan.weight_options.weights = weights_of(c->a);
    if (c->a & ADAPTED) adapt_weight(s, w, c->b != 0 ? c->b : 16); // what it adds to may be interleaved
    expect(s, sumi_plan_linear_gated(&s->plan, "gated", activations(s, c->m, c->k), w, c->act), c->bound);
}
static void build_gated_bias(scene* s, const op_case* c)
{
    sumi_weight *w = stacked_weight(s, 2 * c->n, c->k, 2, c->dtype, 1.0f / sqrtf((float)c->k), 0.0f),
                *b = bias_of(s, 2 * c->n, c->dtype);
    sumi_value both = sumi_plan_linear(
        &s->plan,
        &(sumi_plan_linear_args){.label = "gate_up", .x = activations(s, c->m, c->k), .weight = w, .bias = b});
    expect(s, sumi_plan_gated(&s->plan, "gated", both, c->act), c->bound);
}
static void build_activate(scene* s, const op_case* c)
{
    sumi_value x = c->a ? floats(s, c->m, c->n) : activations_of(s, c->m, c->n, 3.0f, 0.0f);
    expect(s, sumi_plan_activate(&s->plan, x, c->act), c->bound);
}
// A norm and the products that read it, in 8 bits. a: which products, and IN_INT8, otherwise fp8
static void build_8bit_block(scene* s, const op_case* c)
{
    sumi_plan* p = &s->plan;
    const int what = c->a & ~IN_INT8;
    p->weight_options.weights = c->a & IN_INT8 ? SUMI_WEIGHTS_INT8 : SUMI_WEIGHTS_FP8;
    sumi_value x = activations(s, c->m, c->k);
    sumi_step_row scale = aligned_row(s, SUMI_ELEMENT_FLOAT, c->k, true);
    sumi_value n = sumi_plan_norm(
        p, &(sumi_plan_norm_args){
               .label = "norm", .x = x, .weight = norm_weight(s, c->k, 0), .eps = 1e-5f, .scale = scale});
    if (what == 0) { // norm -> qkv
        expect(s,
               sumi_plan_linear(p, &(sumi_plan_linear_args){.label = "qkv",
                                                            .x = n,
                                                            .weight = stacked_weight(s, 3 * c->n, c->k, 3, c->dtype,
                                                                                     1.0f / sqrtf((float)c->k), 0.0f)}),
               c->bound);
        return;
    }
    if (what == 2 || what == 4) { // two readers of one norm; 4: the second reads its first rows, by a view
        const sumi_span rows = {0, c->m - 10}, cols = {0, c->k};
        expect(s,
               sumi_plan_linear(p, &(sumi_plan_linear_args){.label = "first",
                                                            .x = n,
                                                            .weight = matrix_weight(s, c->n, c->k, c->dtype)}),
               c->bound);
        expect(s,
               sumi_plan_linear(
                   p, &(sumi_plan_linear_args){.label = "second",
                                               .x = what == 4 ? sumi_plan_view(p, "first rows", n, rows, cols) : n,
                                               .weight = matrix_weight(s, 2 * c->n, c->k, c->dtype)}),
               c->bound);
        return;
    }
    if (what == 3) { // one weight keeps its precision, so the norm cannot write 8 bits
        sumi_weight* precise = matrix_weight(s, c->n, c->k, c->dtype);
        precise->keeps_precision = true;
        expect(s, sumi_plan_linear(p, &(sumi_plan_linear_args){.label = "precise", .x = n, .weight = precise}),
               CHAINED);
        expect(s,
               sumi_plan_linear(p, &(sumi_plan_linear_args){.label = "second",
                                                            .x = n,
                                                            .weight = matrix_weight(s, 2 * c->n, c->k, c->dtype)}),
               c->bound);
        return;
    }
    sumi_weight* both = stacked_weight(s, 2 * c->n, c->k, 2, c->dtype, 1.0f / sqrtf((float)c->k), 0.0f);
    if (c->b) adapt_weight(s, both, c->b > 0 ? 16 : c->b);
    sumi_value g = sumi_plan_linear_gated(p, "gated", n, both, SUMI_ACT_SILU);
    sumi_plan_adapters(p, NULL, 0);
    expect(s,
           sumi_plan_linear(
               p, &(sumi_plan_linear_args){.label = "down", .x = g, .weight = matrix_weight(s, c->k, c->n, c->dtype)}),
           c->bound);
}
// A norm whose weight has outliers (one channel of 30 is 40 times as large), and products that it balances. In
// op_case.a:
enum {
    TO_PRODUCT, // in this and the next three the norm writes 8 bits
    TO_GATED,
    OF_SUM, // the kernel that adds and norms writes them
    TO_PRODUCTS,
    TO_ADAPTED, // adapters read it too: in this and all others the norm writes bfloat16, rounded before the product
    TO_ADAPTED_GATED,
    TO_PRECISE,    // a precise weight reads it
    TO_UNBALANCED, // a matrix that is not balanced by this norm reads it
    OF_ADAPTED,    // an adapter changes the norm
    OF_SHIFTED     // the norm adds a shift
};
static sumi_weight* outlier_norm(scene* s, int cols)
{
    bool is_new;
    uint16_t* data = next_block_of_case(s, (size_t)cols * sizeof *data, &is_new);
    for (int c = 0; is_new && c < cols; c++)
        data[c] = sumi_float_to_bf16((1.0f + 0.3f * random_normal(s->store)) * (c % 30 == 7 ? 40.0f : 1.0f));
    sumi_weight* w = norm_weight(s, cols, 0);
    w->tensors[0].data = data;
    return w;
}
static sumi_value balanced_product(scene* s, sumi_value x, sumi_weight* w, const sumi_weight* norm, bool is_gated)
{
    w->balance = norm;
    return is_gated ? sumi_plan_linear_gated(&s->plan, "gated", x, w, SUMI_ACT_SILU)
                    : sumi_plan_linear(&s->plan, &(sumi_plan_linear_args){.label = "product", .x = x, .weight = w});
}
static void build_balanced(scene* s, const op_case* c)
{
    sumi_plan* p = &s->plan;
    const bool is_gated = c->a == TO_GATED || c->a == TO_ADAPTED_GATED;
    p->weight_options.weights = SUMI_WEIGHTS_INT8;
    sumi_value x = activations(s, c->m, c->k);
    sumi_weight* norm = outlier_norm(s, c->k);
    sumi_step_row scale = aligned_row(s, SUMI_ELEMENT_FLOAT, c->k, true),
                  shift = c->a == OF_SHIFTED ? aligned_row(s, SUMI_ELEMENT_FLOAT, c->k, true) : SUMI_NO_ROW;
    sumi_weight* w = stacked_weight(s, c->n, c->k, 2, c->dtype, 1.0f / sqrtf((float)c->k), 0.0f);
    if (c->a == OF_SUM)
        sumi_plan_norm_gate_add(p, &(sumi_plan_norm_gate_add_args){.label = "sum",
                                                                   .x = x,
                                                                   .branch = activations(s, c->m, c->k),
                                                                   .weight = norm_weight(s, c->k, 0),
                                                                   .eps = 1e-5f});
    if (c->a == OF_ADAPTED) adapt_norms(s, norm, norm);
    sumi_value n = sumi_plan_norm(
        p,
        &(sumi_plan_norm_args){.label = "norm", .x = x, .weight = norm, .eps = 1e-5f, .scale = scale, .shift = shift});
    if (c->a == TO_ADAPTED || c->a == TO_ADAPTED_GATED) adapt_weight(s, w, 16);
    expect(s, balanced_product(s, n, w, norm, is_gated), c->bound);
    sumi_plan_adapters(p, NULL, 0);
    if (c->a == TO_PRODUCTS) expect(s, balanced_product(s, n, matrix_weight(s, c->n, c->k, 0), norm, false), c->bound);
    if (c->a != TO_PRECISE && c->a != TO_UNBALANCED) return;
    sumi_weight* other = matrix_weight(s, c->n, c->k, 0);
    other->keeps_precision = c->a == TO_PRECISE;
    expect(s, balanced_product(s, n, other, NULL, false), c->a == TO_PRECISE ? CHAINED : INT8);
}
static const op_case s_gated[] = {
    // 3 columns cannot be interleaved by 8
    {"gated 5x3x7", build_gated, 5, 3, 7, .act = SUMI_ACT_SILU, .bound = CHAINED},
    {"gated 33x8x16", build_gated, 33, 8, 16, .act = SUMI_ACT_SILU, .bound = CHAINED},
    {"gated 70x44x50, gelu tanh", build_gated, 70, 44, 50, .act = SUMI_ACT_GELU_TANH, .bound = CHAINED},
    {"gated 130x88x72", build_gated, 130, 88, 72, .act = SUMI_ACT_SILU, .bound = CHAINED},
    {"gated 130x88x72, f32 weights", build_gated, 130, 88, 72, .act = SUMI_ACT_GELU_ERF, .dtype = SUMI_DTYPE_F32,
     .bound = CHAINED},
    {"gated 65x48x40, adapters", build_gated, 65, 48, 40, ADAPTED, .act = SUMI_ACT_SILU, .bound = 8e-3},
    {"gated 65x48x40, whole change", build_gated, 65, 48, 40, ADAPTED, WHOLE, .act = SUMI_ACT_SILU, .bound = 8e-3},
    {"gated 65x45x40, adapters", build_gated, 65, 45, 40, ADAPTED, .act = SUMI_ACT_SILU, .bound = 8e-3},
    {"gated 65x48x40, LoKr", build_gated, 65, 48, 40, ADAPTED, -8, .act = SUMI_ACT_SILU, .bound = 8e-3},
    {"gated 65x45x40, LoKr", build_gated, 65, 45, 40, ADAPTED, -5, .act = SUMI_ACT_SILU, .bound = 8e-3},
    {"gated 65x64x64, LoKr", build_gated, 65, 64, 64, ADAPTED, -8, .act = SUMI_ACT_SILU, .bound = 8e-3},
    {"gated 1152x6144x2304, LoKr", build_gated, 1152, 6144, 2304, ADAPTED, -8, .act = SUMI_ACT_SILU, .bound = 8e-3},
    {"gated with biases 33x12x20", build_gated_bias, 33, 12, 20, .act = SUMI_ACT_SILU, .bound = CHAINED},
    {"gated with biases 70x80x64", build_gated_bias, 70, 80, 64, .act = SUMI_ACT_SILU, .bound = CHAINED},
    {"gated with biases, vision 5476x3424x1280", build_gated_bias, 5476, 3424, 1280, .act = SUMI_ACT_SILU,
     .bound = CHAINED},
    {"gated, demo 288x512x192", build_gated, 288, 512, 192, .act = SUMI_ACT_SILU, .bound = CHAINED},
    {"gated, text 37x9728x2560", build_gated, 37, 9728, 2560, .act = SUMI_ACT_SILU, .bound = CHAINED},
    {"gated, three consumers 1100x1504x520", build_gated, 1100, 1504, 520, .act = SUMI_ACT_SILU, .bound = CHAINED},
    {"gated, 1152x10240x3840", build_gated, 1152, 10240, 3840, .act = SUMI_ACT_SILU, .bound = CHAINED},
    {"gated, 1152x10240x3840, adapters", build_gated, 1152, 10240, 3840, ADAPTED, .act = SUMI_ACT_SILU, .bound = 8e-3},
    {"gated, 4224x10240x3840", build_gated, 4224, 10240, 3840, .act = SUMI_ACT_SILU, .bound = CHAINED},
    {"activate, none", build_activate, 37, 43, .act = SUMI_ACT_NONE, .bound = EXACT},
    {"activate, silu", build_activate, 37, 43, .act = SUMI_ACT_SILU, .bound = STORED},
    {"activate, gelu tanh", build_activate, 37, 43, .act = SUMI_ACT_GELU_TANH, .bound = STORED},
    {"activate, gelu erf", build_activate, 37, 43, .act = SUMI_ACT_GELU_ERF, .bound = STORED},
    {"activate, quick gelu", build_activate, 37, 43, .act = SUMI_ACT_QUICK_GELU, .bound = STORED},
    {"activate, tanh", build_activate, 37, 43, .act = SUMI_ACT_TANH, .bound = STORED},
    {"activate, silu 100x256", build_activate, 100, 256, .act = SUMI_ACT_SILU, .bound = STORED},
    {"activate, silu of floats", build_activate, 9, 256, .a = 1, .act = SUMI_ACT_SILU, .bound = 2e-5},
};
CASE_TABLE(gated);
static const op_case s_fp8[] = {
    {"fp8, norm and qkv 130x96x128", build_8bit_block, 130, 96, 128, 0, .bound = FP8},
    {"fp8, norm and feed-forward 130x96x128", build_8bit_block, 130, 96, 128, 1, .bound = 2 * FP8},
    {"fp8, norm and feed-forward with adapters", build_8bit_block, 130, 96, 128, 1, 1, .bound = 2 * FP8},
    {"fp8, norm and feed-forward with LoKr", build_8bit_block, 130, 96, 128, 1, -8, .bound = 2 * FP8},
    {"fp8, two readers", build_8bit_block, 77, 112, 144, 2, .bound = FP8},
    {"fp8, two readers, one of some rows", build_8bit_block, 77, 256, 144, 4, .bound = FP8},
    {"fp8, a precise reader", build_8bit_block, 77, 112, 144, 3, .bound = FP8},
    {"fp8, shapes that are no multiple of 16", build_8bit_block, 50, 36, 52, 1, .bound = 2 * FP8},
    {"fp8, of e4m3 files", build_8bit_block, 130, 96, 128, 0, .dtype = SUMI_DTYPE_F8_E4M3, .bound = FP8},
    {"fp8, norm of 1008 and qkv", build_8bit_block, 40, 96, 1008, 0, .bound = FP8},
    {"fp8, norm of 8000 and qkv", build_8bit_block, 20, 96, 8000, 0, .bound = FP8},
    {"fp8, norm of 8208 and qkv", build_8bit_block, 20, 96, 8208, 0, .bound = FP8},
    {"fp8, norm and qkv 1152x3840x3840", build_8bit_block, 1152, 3840, 3840, 0, .bound = FP8},
    {"fp8, norm and feed-forward 1152x10240x3840", build_8bit_block, 1152, 10240, 3840, 1, .bound = 2 * FP8},
    {"fp8, norm and qkv 4224x3840x3840", build_8bit_block, 4224, 3840, 3840, 0, .bound = FP8},
    {"fp8, norm and qkv 4096x3072x3072", build_8bit_block, 4096, 3072, 3072, 0, .bound = FP8},
    {"fp8, norm of 2304 and qkv", build_8bit_block, 1500, 272, 2304, 0, .bound = FP8},
    {"fp8, norm of 784 and qkv", build_8bit_block, 2900, 272, 784, 0, .bound = FP8},
};
CASE_TABLE(fp8);
static const op_case s_int8[] = {
    {"int8, norm and qkv 130x96x256", build_8bit_block, 130, 96, 256, IN_INT8, .bound = INT8},
    {"int8, two readers, one of some rows", build_8bit_block, 77, 256, 272, IN_INT8 | 4, .bound = INT8},
    {"int8, a block filled up, 130x96x272", build_8bit_block, 130, 96, 272, IN_INT8, .bound = INT8},
    {"int8, rows that would not be shorter, 130x96x128", build_8bit_block, 130, 96, 128, IN_INT8, .bound = INT8},
    {"int8, norm and feed-forward 130x272x256", build_8bit_block, 130, 272, 256, IN_INT8 | 1, .bound = 2 * INT8},
    {"int8, norm and feed-forward with adapters", build_8bit_block, 130, 96, 256, IN_INT8 | 1, 1, .bound = 2 * INT8},
    {"int8, norm and feed-forward with LoKr", build_8bit_block, 130, 96, 256, IN_INT8 | 1, -8, .bound = 2 * INT8},
    {"int8, two readers", build_8bit_block, 77, 256, 400, IN_INT8 | 2, .bound = INT8},
    {"int8, a precise reader", build_8bit_block, 77, 256, 400, IN_INT8 | 3, .bound = INT8},
    {"int8, shapes that are no multiple of 16", build_8bit_block, 50, 36, 52, IN_INT8 | 1, .bound = 2 * INT8},
    {"int8, of e4m3 files", build_8bit_block, 130, 96, 256, IN_INT8, .dtype = SUMI_DTYPE_F8_E4M3, .bound = INT8},
    {"int8, norm of 1008 and qkv", build_8bit_block, 40, 96, 1008, IN_INT8, .bound = INT8},
    {"int8, norm of 8000 and qkv", build_8bit_block, 20, 96, 8000, IN_INT8, .bound = INT8},
    {"int8, norm of 8208 and qkv", build_8bit_block, 20, 96, 8208, IN_INT8, .bound = INT8},
    {"int8, norm and qkv 1152x3840x3840", build_8bit_block, 1152, 3840, 3840, IN_INT8, .bound = INT8},
    {"int8, norm and feed-forward 1152x10240x3840", build_8bit_block, 1152, 10240, 3840, IN_INT8 | 1,
     .bound = 2 * INT8},
    {"int8, norm and feed-forward 20x15616x256", build_8bit_block, 20, 15616, 256, IN_INT8 | 1, .bound = 2 * INT8},
    {"int8, norm and feed-forward 270x12304x3072", build_8bit_block, 270, 12304, 3072, IN_INT8 | 1, .bound = 2 * INT8},
    {"int8, norm and qkv 4224x3840x3840", build_8bit_block, 4224, 3840, 3840, IN_INT8, .bound = INT8},
    {"int8, norm and qkv 4096x3072x3072", build_8bit_block, 4096, 3072, 3072, IN_INT8, .bound = INT8},
    {"int8, norm of 2304 and qkv", build_8bit_block, 1500, 272, 2304, IN_INT8, .bound = INT8},
    {"int8, norm of 784 and qkv", build_8bit_block, 2900, 272, 784, IN_INT8, .bound = INT8},
    {"int8, two streams 1792 and 128 x1536x512", build_streams, 1792, 1536, 512, IN_INT8, 128, .bound = INT8},
    {"int8, two streams 1700 and 77 x1536x512", build_streams, 1700, 1536, 512, IN_INT8, 77, .bound = INT8},
    {"int8, two streams 1792 and 300 x1504x512", build_streams, 1792, 1504, 512, IN_INT8, 300, .bound = INT8},
    {"int8, two streams 1792 and 128 x1536x512, gelu", build_streams, 1792, 1536, 512, IN_INT8, 128,
     .act = SUMI_ACT_GELU_TANH, .bound = 2 * INT8},
    {"int8, two streams 1700 and 77 x1536x512, gelu", build_streams, 1700, 1536, 512, IN_INT8, 77,
     .act = SUMI_ACT_GELU_TANH, .bound = 2 * INT8},
    {"int8, two streams 1792 and 128 x1536x512, gate", build_streams, 1792, 1536, 512, IN_INT8 | GATED_RESIDUAL, 128,
     .counter = 1, .bound = INT8},
    {"int8, two streams 1700 and 77 x1536x512, gate", build_streams, 1700, 1536, 512, IN_INT8 | GATED_RESIDUAL, 77,
     .counter = 2, .bound = INT8},
    {"int8, two streams 100 and 7 x512x256", build_streams, 100, 512, 256, IN_INT8, 7, .bound = INT8},
};
CASE_TABLE(int8);
static const op_case s_balanced[] = {
    {"balanced, norm and product 130x288x256", build_balanced, 130, 288, 256, TO_PRODUCT, .bound = BALANCED},
    {"balanced, a block filled up, 130x288x272", build_balanced, 130, 288, 272, TO_PRODUCT, .bound = BALANCED},
    {"balanced, no room for the scales, 130x256x128", build_balanced, 130, 256, 128, TO_PRODUCT, .bound = BALANCED},
    {"balanced, of e4m3 files", build_balanced, 130, 288, 256, TO_PRODUCT, .dtype = SUMI_DTYPE_F8_E4M3,
     .bound = BALANCED},
    {"balanced, of f32 files", build_balanced, 130, 288, 256, TO_PRODUCT, .dtype = SUMI_DTYPE_F32, .bound = BALANCED},
    {"balanced, norm and gated product 77x272x256", build_balanced, 77, 544, 256, TO_GATED, .bound = 1.4 * BALANCED},
    {"balanced, sum, norm and product 130x288x272", build_balanced, 130, 288, 272, OF_SUM, .bound = BALANCED},
    {"balanced, two products 77x256x272", build_balanced, 77, 256, 272, TO_PRODUCTS, .bound = BALANCED},
    {"balanced, adapters 130x288x272", build_balanced, 130, 288, 272, TO_ADAPTED, .bound = BALANCED},
    {"balanced, gated product with adapters 77x272x256", build_balanced, 77, 544, 256, TO_ADAPTED_GATED,
     .bound = 1.4 * BALANCED},
    {"balanced, a precise reader", build_balanced, 77, 256, 272, TO_PRECISE, .bound = BALANCED},
    {"balanced, a reader that is not", build_balanced, 77, 256, 272, TO_UNBALANCED, .bound = BALANCED},
    {"balanced, a changed norm 77x256x400", build_balanced, 77, 256, 400, OF_ADAPTED, .bound = BALANCED},
    {"balanced, a norm with a shift 77x256x400", build_balanced, 77, 256, 400, OF_SHIFTED, .bound = BALANCED},
    {"balanced, norm of 8208", build_balanced, 20, 288, 8208, TO_PRODUCT, .bound = BALANCED},
    {"balanced, adapters 40x288x10240", build_balanced, 40, 288, 10240, TO_ADAPTED, .bound = BALANCED},
    {"balanced, adapters 20x288x16400", build_balanced, 20, 288, 16400, TO_ADAPTED, .bound = BALANCED},
    {"balanced, norm and product 1152x3840x3840", build_balanced, 1152, 3840, 3840, TO_PRODUCT, .bound = BALANCED},
    {"balanced, adapters 1152x3840x3840", build_balanced, 1152, 3840, 3840, TO_ADAPTED, .bound = BALANCED},
    {"balanced, sum, norm and product 1152x11520x3840", build_balanced, 1152, 11520, 3840, OF_SUM, .bound = BALANCED},
};
CASE_TABLE(balanced);
