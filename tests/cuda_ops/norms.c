// Cases of norms, rotary positions, and tables of times and modulation.
#include "cuda_ops/linear.h"

// BANDED: each third of the rows reads another row of the tables. The counter of such a case is at most 2.
#define BANDED 2048
typedef struct thirds {
    sumi_row_band list[3];
    int32_t count;
} thirds;
static thirds bands_of(const op_case* c, int rows)
{
    thirds bands = {{{rows / 3, 2}, {2 * rows / 3, 0}, {rows, 3}}, c->a & BANDED ? 3 : 0};
    return bands;
}
static void build_norm(scene* s, const op_case* c)
{
    // a: 1 layer norm, 2 no weight, 4 scale, 8 shift, 16 rows from row 3 on, 32 the inputs have a mean of 50, 64 tables
    // of activations, 128 not per step, 256 SiLU, 512 in place, 1024 a bias, BANDED
    const thirds bands = bands_of(c, c->m);
    int before = c->a & 16 ? 3 : 0;
    sumi_element element = c->a & 64 ? SUMI_ELEMENT_ACTIVATION : SUMI_ELEMENT_FLOAT;
    sumi_value x = activations_of(s, c->m + before, c->n, 1.0f, c->a & 32 ? 50.0f : 0.0f);
    sumi_step_row scale =
        c->a & 4 ? c->b ? aligned_row(s, element, c->n, !(c->a & 128)) : step_row(s, element, c->n, !(c->a & 128))
                 : SUMI_NO_ROW;
    sumi_step_row shift = c->a & 8 ? step_row(s, element, c->n, !(c->a & 128)) : SUMI_NO_ROW;
    sumi_weight* weight = c->a & 2 ? NULL : norm_weight(s, c->n, c->dtype);
    if (c->e) adapt_norms(s, weight, weight);
    expect(s,
           sumi_plan_norm(&s->plan, &(sumi_plan_norm_args){.label = "norm",
                                                           .x = x,
                                                           .x_row = before,
                                                           .rows = c->m,
                                                           .norm = c->a & 1 ? SUMI_NORM_LAYER : SUMI_NORM_RMS,
                                                           .weight = weight,
                                                           .bias = c->a & 1024 ? bias_of(s, c->n, c->dtype) : NULL,
                                                           .eps = 1e-5f,
                                                           .scale = scale,
                                                           .shift = shift,
                                                           .bands = bands.list,
                                                           .band_count = bands.count,
                                                           .silu = (c->a & 256) != 0,
                                                           .y = c->a & 512 ? x : SUMI_NO_VALUE}),
           c->bound);
}
static void build_gate_add(scene* s, const op_case* c)
{
    // a: 2 no weight, 4 gate, 16 rows from row 3 on, 64 a table of activations, 128 not per step, BANDED
    const thirds bands = bands_of(c, c->m);
    int before = c->a & 16 ? 3 : 0;
    sumi_element element = c->a & 64 ? SUMI_ELEMENT_ACTIVATION : SUMI_ELEMENT_FLOAT;
    sumi_value x = activations(s, c->m + before + 1, c->n), branch = activations_of(s, c->m + 2, c->n, 3.0f, 0.0f);
    sumi_step_row gate =
        c->a & 4 ? c->b ? aligned_row(s, element, c->n, !(c->a & 128)) : step_row(s, element, c->n, !(c->a & 128))
                 : SUMI_NO_ROW;
    sumi_weight* weight = c->a & 2 ? NULL : norm_weight(s, c->n, c->dtype);
    if (c->e) adapt_norms(s, weight, weight);
    sumi_plan_norm_gate_add(&s->plan, &(sumi_plan_norm_gate_add_args){.label = "gate_add",
                                                                      .x = x,
                                                                      .x_row = before,
                                                                      .branch = branch,
                                                                      .rows = c->m,
                                                                      .weight = weight,
                                                                      .eps = 1e-5f,
                                                                      .gate = gate,
                                                                      .bands = bands.list,
                                                                      .band_count = bands.count});
    expect(s, x, c->bound);
}
// A sum and the norm after it, which a GPU computes in one kernel if the norm reads the rows that the sum wrote; and
// both again with another op between them, in two kernels. Both must have the same bits. a: 1 layer norm, 2 no weights,
// 4 gate and scale, 8 shift, 16 rows from row 3 on, 32 the norm begins one row later, 64 tables of activations, 128 the
// norm has a row less, 256 the norm has a bias and no scale, 512 other bands in the norm, BANDED; b: aligned tables; k:
// the norm is in 8 bits, for a product with k columns; 1024: int8 instead of e4m3
static void build_norm_pair(scene* s, const op_case* c)
{
    sumi_plan* p = &s->plan;
    p->weight_options.weights = c->k == 0 ? SUMI_WEIGHTS_AUTO : c->a & 1024 ? SUMI_WEIGHTS_INT8 : SUMI_WEIGHTS_FP8;
    int before = c->a & 16 ? 3 : 0, from = before + (c->a & 32 ? 1 : 0), rows = c->m - (c->a & 128 ? 1 : 0);
    sumi_element element = c->a & 64 ? SUMI_ELEMENT_ACTIVATION : SUMI_ELEMENT_FLOAT;
    float* data = random_numbers(s, (size_t)(c->m + before + 1) * (size_t)c->n, 1.0f, 0.5f);
    sumi_value branch = activations_of(s, c->m + 2, c->n, 3.0f, 0.0f);
    sumi_step_row gate =
        c->a & 4 ? c->b ? aligned_row(s, element, c->n, true) : step_row(s, element, c->n, true) : SUMI_NO_ROW;
    const bool has_bias = (c->a & 256) != 0; // of the norm, instead of tables
    sumi_step_row scale = (c->a & 4) && !has_bias
                            ? c->b ? aligned_row(s, element, c->n, true) : step_row(s, element, c->n, true)
                            : SUMI_NO_ROW;
    sumi_step_row shift = c->a & 8 ? step_row(s, element, c->n, true) : SUMI_NO_ROW;
    sumi_weight *of_sum = c->a & 2 ? NULL : norm_weight(s, c->n, c->dtype),
                *of_norm = c->a & 2 ? NULL : norm_weight(s, c->n, c->dtype),
                *bias = has_bias ? bias_of(s, c->n, c->dtype) : NULL;
    if (c->e) { // the changed weights are computed first, so that no op is between the sum and the norm
        adapt_norms(s, of_sum, of_norm);
        sumi_plan_changed_vector(p, of_sum);
        sumi_plan_changed_vector(p, of_norm);
    }
    sumi_weight* product = c->k > 0 ? matrix_weight(s, c->k, c->n, 0) : NULL;
    sumi_value between = activations(s, 24, 40);
    const thirds of_rows = bands_of(c, c->m), others = c->a & 512 ? (thirds){{{rows, 1}}, 1} : bands_of(c, rows);
    for (int i = 0; i < 2; i++) {
        sumi_value x = add_input(s, SUMI_ELEMENT_ACTIVATION, c->m + before + 1, c->n, data, false);
        sumi_plan_norm_gate_add(p, &(sumi_plan_norm_gate_add_args){.label = "sum",
                                                                   .x = x,
                                                                   .x_row = before,
                                                                   .branch = branch,
                                                                   .rows = c->m,
                                                                   .weight = of_sum,
                                                                   .eps = 1e-5f,
                                                                   .gate = gate,
                                                                   .bands = of_rows.list,
                                                                   .band_count = of_rows.count});
        if (i == 1) expect(s, sumi_plan_activate(p, between, SUMI_ACT_SILU), STORED);
        sumi_value y = sumi_plan_norm(p, &(sumi_plan_norm_args){.label = "norm",
                                                                .x = x,
                                                                .x_row = from,
                                                                .rows = rows,
                                                                .norm = c->a & 1 ? SUMI_NORM_LAYER : SUMI_NORM_RMS,
                                                                .weight = of_norm,
                                                                .bias = bias,
                                                                .eps = 1e-5f,
                                                                .scale = scale,
                                                                .shift = shift,
                                                                .bands = others.list,
                                                                .band_count = others.count});
        s->equal_pairs[0].a = s->equal_pairs[0].b, s->equal_pairs[0].b = s->output_count;
        expect(s, x, c->repeat > 1 ? CHAINED : STORED); // the sum is stored in every repetition
        s->equal_pairs[1].a = s->equal_pairs[1].b, s->equal_pairs[1].b = s->output_count;
        if (product != NULL) {
            y = sumi_plan_linear(p, &(sumi_plan_linear_args){.label = "product", .x = y, .weight = product});
        }
        expect(s, y, c->bound);
    }
    s->equal_pair_count = 2;
}
static void build_qk(scene* s, const op_case* c)
{
    // m rows, n heads, k dim; a: 1 pairs are halves of a head, 2 no rotary, 4 no norms, 8 only q has a norm, 16
    // not from the first row on; b: key heads
    int q = c->n, kv = c->b > 0 ? c->b : q, dim = c->k, before = c->a & 16 ? 2 : 0;
    sumi_value qkv = activations(s, c->m + 2 * before, (q + 2 * kv) * dim);
    sumi_value rope =
        c->a & 2 ? SUMI_NO_VALUE
                 // the table is in floats: no rounding
                 : sumi_plan_rope_table(&s->plan, &(sumi_plan_rope_args){.positions = integers(s, c->m + 3, 1, 400),
                                                                         .axes = 1,
                                                                         .pairs = {dim / 2},
                                                                         .theta = 10000.0});
    sumi_weight* k_norm = c->a & (4 | 8) ? NULL : norm_weight(s, dim, c->dtype);
    sumi_weight* q_norm = c->a & 4 ? NULL : norm_weight(s, dim, c->dtype);
    if (c->e) adapt_norms(s, q_norm, k_norm != NULL ? k_norm : q_norm);
    sumi_plan_qk_norm_rope(&s->plan, &(sumi_plan_qk_args){.label = "qk",
                                                          .qkv = qkv,
                                                          .row = before,
                                                          .rows = c->m,
                                                          .q_heads = q,
                                                          .kv_heads = kv,
                                                          .dim = dim,
                                                          .q_norm = q_norm,
                                                          .k_norm = k_norm,
                                                          .eps = 1e-6f,
                                                          .rope = rope,
                                                          .rope_row = c->a & 2 ? 0 : 3,
                                                          .rotary = c->a & 2 ? SUMI_ROTARY_NONE
                                                                  : c->a & 1 ? SUMI_ROTARY_HALVES
                                                                             : SUMI_ROTARY_INTERLEAVED});
    expect(s, qkv, c->bound);
}
static void build_rope(scene* s, const op_case* c)
{
    const int32_t pairs[4] = {c->a, c->b, c->c, c->d};
    sumi_plan_rope_args args = {
        .positions = integers(s, c->m, c->n, c->k), .axes = c->n, .theta = 256.0, .order = (sumi_rope_order)c->e};
    memcpy(args.pairs, pairs, (size_t)c->n * sizeof *pairs);
    expect(s, sumi_plan_rope_table(&s->plan, &args), c->bound);
}
static void build_time(scene* s, const op_case* c)
{
    bool is_new;
    float* t = next_block_of_case(s, 4 * (size_t)c->m, &is_new);
    for (int i = 0; is_new && i < c->m; i++) t[i] = i == 0 ? 0.0f : 1.0f - (float)i / (float)c->m;
    sumi_value times = add_input(s, SUMI_ELEMENT_FLOAT, c->m, 1, t, true);
    expect(s,
           sumi_plan_time_embed(
               &s->plan,
               &(sumi_plan_time_args){
                   .times = times, .width = c->n, .scale = 1000.0f, .max_period = 10000.0f, .cos_first = c->a != 0}),
           c->bound);
}
static void build_finish(scene* s, const op_case* c)
{
    // a: 1 gates, otherwise scales; 2 six vectors, and the row of the step is a value of its own; 4 that value is in
    // activations, otherwise in floats
    sumi_value table = c->b ? activations(s, c->m, c->n) : floats(s, c->m, c->n);
    if (c->a & 2) {
        table = sumi_plan_modulation(
            &s->plan, &(sumi_plan_modulation_args){.label = "modulation",
                                                   .table = table,
                                                   .vector_count = 6,
                                                   .adds_one = 1 << 1 | 1 << 4,
                                                   .applies_tanh = 1 << 5,
                                                   .rows = 1,
                                                   .x_row = 1,
                                                   .per_step = true,
                                                   .element = c->a & 4 ? SUMI_ELEMENT_ACTIVATION : SUMI_ELEMENT_FLOAT});
    } else {
        sumi_plan_finish_modulation(&s->plan, table, c->a != 0);
    }
    expect(s, table, c->bound);
}
static const op_case s_norms[] = {
    {"rms 5x3", build_norm, 5, 3, .bound = STORED},
    {"rms 33x21, scale, shift, offset", build_norm, 33, 21, .a = 4 | 8 | 16, .counter = 2, .bound = STORED},
    {"rms 9x100, no weight, scale of activations", build_norm, 9, 100, .a = 2 | 4 | 64, .counter = 5, .bound = STORED},
    {"layer 17x72, mean 50, scale and shift", build_norm, 17, 72, .a = 1 | 4 | 8 | 32, .counter = 1, .bound = STORED},
    {"layer 17x75, weight, not per step", build_norm, 17, 75, .a = 1 | 4 | 128, .counter = 4, .bound = STORED},
    {"rms 33x21, adapters", build_norm, 33, 21, .a = 4 | 8 | 16, .e = 1, .counter = 2, .bound = STORED},
    {"rms 33x64, adapters", build_norm, 33, 64, .a = 4, .e = 1, .repeat = 2, .bound = STORED},
    {"layer 17x75, adapters", build_norm, 17, 75, .a = 1 | 4 | 128, .e = 1, .counter = 4, .bound = STORED},
    {"gate add 33x24, adapters", build_gate_add, 33, 24, .a = 4, .e = 1, .counter = 1, .bound = STORED},
    {"rms 77x2560", build_norm, 77, 2560, .bound = STORED},
    {"rms 4224x3840, scale", build_norm, 4224, 3840, .a = 4, .b = 1, .counter = 3, .bound = STORED},
    {"rms 1153x3840, unaligned scale", build_norm, 1153, 3840, .a = 4, .counter = 3, .bound = STORED},
    {"layer 4096x3840, no weight, scale", build_norm, 4096, 3840, .a = 1 | 2 | 4, .b = 1, .counter = 5,
     .bound = STORED},
    {"rms 288x192, demo, scale", build_norm, 288, 192, .a = 4, .b = 1, .counter = 1, .bound = STORED},
    {"rms 3x20000", build_norm, 3, 20000, .bound = STORED},
    {"rms 33x72, three bands, scale, shift, offset", build_norm, 33, 72, .a = 4 | 8 | 16 | BANDED, .counter = 2,
     .bound = STORED},
    {"layer 34x21, three bands, table of activations", build_norm, 34, 21, .a = 1 | 4 | 64 | BANDED, .counter = 1,
     .bound = STORED},
    {"rms 4224x2304, three bands, scale", build_norm, 4224, 2304, .a = 4 | BANDED, .b = 1, .counter = 2,
     .bound = STORED},
    {"rms 40x72, in place", build_norm, 40, 72, .a = 512, .bound = STORED},
    {"layer 33x21, bias, in place", build_norm, 33, 21, .a = 1 | 512 | 1024, .bound = STORED},
    {"layer 17x72, bias, mean 50", build_norm, 17, 72, .a = 1 | 32 | 1024, .bound = STORED},
    {"layer 29x128, bias, no weight, offset", build_norm, 29, 128, .a = 1 | 2 | 16 | 1024, .bound = STORED},
    {"layer 512x1024, bias, in place", build_norm, 512, 1024, .a = 1 | 512 | 1024, .bound = STORED},
    {"rms 9x4096, bias", build_norm, 9, 4096, .a = 1024, .bound = STORED},
    {"layer 3x20000, bias", build_norm, 3, 20000, .a = 1 | 1024, .bound = STORED},
    {"silu 33x21, in place", build_norm, 33, 21, .a = 256 | 512, .bound = STORED},
    {"silu 53x8", build_norm, 53, 8, .a = 256, .bound = STORED},
    {"silu 49x96, offset", build_norm, 49, 96, .a = 16 | 256, .bound = STORED},
    {"silu 71x96, in place", build_norm, 71, 96, .a = 256 | 512, .bound = STORED},
    {"silu 1x128, no weight", build_norm, 1, 128, .a = 2 | 256, .bound = STORED},
    {"silu 37x192, in place", build_norm, 37, 192, .a = 256 | 512, .bound = STORED},
    {"silu 29x384, layer, mean 50", build_norm, 29, 384, .a = 1 | 32 | 256, .bound = STORED},
    {"silu 13x384, in place", build_norm, 13, 384, .a = 256 | 512, .bound = STORED},
    {"silu 9x520, in place", build_norm, 9, 520, .a = 256 | 512, .bound = STORED},
    {"silu 65537x96, in place", build_norm, 65537, 96, .a = 256 | 512, .bound = STORED},
    {"silu 30011x192", build_norm, 30011, 192, .a = 256, .bound = STORED},
    {"silu 16389x384", build_norm, 16389, 384, .a = 256, .bound = STORED},
    {"gate add 5x3", build_gate_add, 5, 3, .bound = STORED},
    {"gate add 33x21, gate, offset", build_gate_add, 33, 21, .a = 4 | 16, .counter = 2, .bound = STORED},
    {"gate add 33x24, gate, three times", build_gate_add, 33, 24, .a = 4, .b = 1, .repeat = 3, .counter = 1,
     .bound = CHAINED},
    {"gate add 9x100, no weight, gate of activations", build_gate_add, 9, 100, .a = 2 | 4 | 64, .counter = 5,
     .bound = STORED},
    {"gate add 4224x3840, gate", build_gate_add, 4224, 3840, .a = 4, .b = 1, .counter = 3, .bound = STORED},
    {"gate add 288x192, demo, gate", build_gate_add, 288, 192, .a = 4, .b = 1, .counter = 1, .bound = STORED},
    {"gate add 128x3840, no gate", build_gate_add, 128, 3840, .bound = STORED},
    {"gate add 3x20000", build_gate_add, 3, 20000, .a = 4, .bound = STORED},
    {"gate add 50x21, three bands, offset", build_gate_add, 50, 21, .a = 4 | 16 | BANDED, .counter = 2,
     .bound = STORED},
    {"gate add 4224x2304, three bands, three times", build_gate_add, 4224, 2304, .a = 4 | BANDED, .b = 1, .repeat = 3,
     .bound = CHAINED},
    {"gate add and norm 33x72, three bands", build_norm_pair, 33, 72, .a = 4 | 8 | 16 | BANDED, .counter = 2,
     .bound = CHAINED},
    {"gate add and norm 33x72, other bands, two kernels", build_norm_pair, 33, 72, .a = 4 | 8 | 512 | BANDED,
     .counter = 2, .bound = CHAINED},
    {"gate add and norm 4224x2304, three bands", build_norm_pair, 4224, 2304, .a = 4 | BANDED, .b = 1, .counter = 1,
     .bound = CHAINED},
    {"gate add and norm, fp8 1153x2304, three bands", build_norm_pair, 1153, 2304, 256, .a = 4 | BANDED, .b = 1,
     .counter = 2, .bound = FP8},
    {"gate add and norm 5x8", build_norm_pair, 5, 8, .bound = CHAINED},
    {"gate add and norm 33x21, two kernels", build_norm_pair, 33, 21, .a = 4 | 16, .counter = 2, .bound = CHAINED},
    {"gate add and norm 33x72, offset", build_norm_pair, 33, 72, .a = 4 | 8 | 16, .counter = 2, .bound = CHAINED},
    {"gate add and norm 33x72, adapters", build_norm_pair, 33, 72, .a = 4 | 8 | 16, .e = 1, .counter = 2,
     .bound = CHAINED},
    {"gate add and norm 33x72, another row, two kernels", build_norm_pair, 33, 72, .a = 4 | 16 | 32, .b = 1,
     .counter = 2, .bound = CHAINED},
    {"gate add and norm 33x72, fewer rows, two kernels", build_norm_pair, 33, 72, .a = 4 | 16 | 128, .b = 1,
     .counter = 2, .bound = CHAINED},
    {"gate add and layer norm 70x264, tables of activations", build_norm_pair, 70, 264, .a = 1 | 4 | 8 | 16 | 64,
     .counter = 5, .bound = CHAINED},
    {"gate add and layer norm 19x1000, no weights", build_norm_pair, 19, 1000, .a = 1 | 2 | 4, .b = 1, .counter = 1,
     .bound = CHAINED},
    {"gate add and norm 41x1160, three times", build_norm_pair, 41, 1160, .a = 4 | 8, .b = 1, .repeat = 3, .counter = 1,
     .bound = 2 * CHAINED},
    {"gate add and layer norm 33x72, bias", build_norm_pair, 33, 72, .a = 1 | 4 | 256, .counter = 2, .bound = CHAINED},
    {"gate add and layer norm 70x1024, bias", build_norm_pair, 70, 1024, .a = 1 | 256, .bound = CHAINED},
    {"gate add and layer norm, fp8 77x144, bias", build_norm_pair, 77, 144, 256, .a = 1 | 4 | 256, .b = 1, .counter = 3,
     .bound = FP8},
    {"gate add and norm 9x4104, two kernels", build_norm_pair, 9, 4104, .a = 4, .b = 1, .bound = CHAINED},
    {"gate add and norm 288x192, demo", build_norm_pair, 288, 192, .a = 4, .b = 1, .counter = 1, .bound = CHAINED},
    {"gate add and norm 4224x3840", build_norm_pair, 4224, 3840, .a = 4, .b = 1, .counter = 3, .bound = CHAINED},
    {"gate add and layer norm 1153x3840, offset", build_norm_pair, 1153, 3840, .a = 1 | 2 | 4 | 16, .counter = 3,
     .bound = CHAINED},
    {"gate add and norm, fp8 77x144", build_norm_pair, 77, 144, 256, .a = 4, .b = 1, .counter = 3, .bound = FP8},
    {"gate add and norm, fp8 70x272, shift", build_norm_pair, 70, 272, 256, .a = 4 | 8 | 16, .counter = 3,
     .bound = FP8},
    {"gate add and norm, fp8 33x1008", build_norm_pair, 33, 1008, 256, .a = 4, .b = 1, .counter = 3, .bound = FP8},
    {"gate add and layer norm, fp8 33x1040", build_norm_pair, 33, 1040, 256, .a = 1 | 4, .counter = 3, .bound = FP8},
    {"gate add and norm, fp8 1152x3840", build_norm_pair, 1152, 3840, 512, .a = 4, .b = 1, .counter = 3, .bound = FP8},
    {"gate add and norm, int8 1153x2304, three bands", build_norm_pair, 1153, 2304, 256, .a = 4 | 1024 | BANDED, .b = 1,
     .counter = 2, .bound = INT8},
    {"gate add and layer norm, int8 77x288, bias", build_norm_pair, 77, 288, 256, .a = 1 | 4 | 256 | 1024, .b = 1,
     .counter = 3, .bound = INT8},
    {"gate add and norm, int8 70x272, shift", build_norm_pair, 70, 272, 256, .a = 4 | 8 | 16 | 1024, .counter = 3,
     .bound = INT8},
    {"gate add and layer norm, int8 33x1040", build_norm_pair, 33, 1040, 256, .a = 1 | 4 | 1024, .counter = 3,
     .bound = INT8},
    {"gate add and norm, int8 1152x3840", build_norm_pair, 1152, 3840, 512, .a = 4 | 1024, .b = 1, .counter = 3,
     .bound = INT8},
    // widths at and near those that fill the lanes of a block, and blocks that compute several rows
    {"layer 4096x3072, no weight, scale and shift", build_norm, 4096, 3072, .a = 1 | 2 | 4 | 8, .b = 1, .counter = 3,
     .bound = STORED},
    {"layer 1500x768, scale and shift", build_norm, 1500, 768, .a = 1 | 4 | 8, .b = 1, .counter = 1, .bound = STORED},
    {"rms 1500x776, scale, three times", build_norm, 1500, 776, .a = 4, .counter = 2, .repeat = 3, .bound = STORED},
    {"layer 700x8192, mean 50, shift", build_norm, 700, 8192, .a = 1 | 8 | 32, .b = 1, .counter = 2, .bound = STORED},
    {"rms 900x1536, in place", build_norm, 900, 1536, .a = 512, .bound = STORED},
    {"gate add 700x8192, gate", build_gate_add, 700, 8192, .a = 4, .b = 1, .counter = 1, .bound = STORED},
    {"gate add and norm 2500x776, shift", build_norm_pair, 2500, 776, .a = 4 | 8 | 16, .counter = 2, .bound = CHAINED},
    {"gate add and norm 1500x4096", build_norm_pair, 1500, 4096, .a = 4, .b = 1, .counter = 2, .bound = CHAINED},
};
CASE_TABLE(norms);
static const op_case s_rotary_and_tables[] = {
    {"qk 5 rows, 2 heads of 6", build_qk, 5, 2, 6, .bound = STORED},
    {"qk 9 rows, 4 and 2 heads of 32, halves, offset", build_qk, 9, 4, 32, 1 | 16, 2, .bound = STORED},
    {"qk 9 rows, 3 heads of 20, interleaved, offset", build_qk, 9, 3, 20, 16, .bound = STORED},
    {"qk 9 rows, 4 and 2 heads of 32, adapters", build_qk, 9, 4, 32, 1 | 16, 2, .e = 1, .bound = STORED},
    {"qk 9 rows, 3 heads of 20, adapters of q", build_qk, 9, 3, 20, 8 | 16, .e = 1, .bound = STORED},
    {"qk 33 rows, 3 heads of 64", build_qk, 33, 3, 64, .bound = STORED},
    {"qk 33 rows, 3 heads of 64, halves", build_qk, 33, 3, 64, 1, .bound = STORED},
    {"qk 33 rows, 2 heads of 256", build_qk, 33, 2, 256, .bound = STORED},
    {"qk 33 rows, 4 and 1 heads of 256, halves", build_qk, 33, 4, 256, 1, 1, .bound = STORED},
    {"qk 7 rows, 3 heads of 17, norms alone", build_qk, 7, 3, 17, 2, .bound = STORED},
    {"qk 7 rows, 3 heads of 16, rotary alone", build_qk, 7, 3, 16, 4, .bound = STORED},
    {"qk 7 rows, 3 heads of 96, halves, q's norm alone", build_qk, 7, 3, 96, 1 | 8, .bound = STORED},
    {"qk 70 rows, 2 heads of 80, halves, rotary alone", build_qk, 70, 2, 80, 1 | 4, .bound = STORED},
    {"qk 5476 rows, 16 heads of 80, halves, rotary alone", build_qk, 5476, 16, 80, 1 | 4, .bound = STORED},
    {"qk 4096 rows, 16 heads of 72, halves, rotary alone", build_qk, 4096, 16, 72, 1 | 4, .bound = STORED},
    {"qk 77 rows, 32 and 8 heads of 128, halves", build_qk, 77, 32, 128, 1, 8, .bound = STORED},
    {"qk 4224 rows, 30 heads of 128", build_qk, 4224, 30, 128, .bound = STORED},
    {"qk 128 rows, 30 heads of 128, f32 norms", build_qk, 128, 30, 128, .dtype = SUMI_DTYPE_F32, .bound = STORED},
    {"rope table, 9 rows", build_rope, 9, 3, 500, 3, 2, 4, .bound = 2e-6},
    {"rope table, 4224 rows", build_rope, 4224, 3, 1200, 16, 24, 24, .bound = 2e-6},
    {"rope table, text", build_rope, 512, 1, 512, 64, .bound = 2e-6},
    {"rope table, vision", build_rope, 5476, 2, 74, 20, 20, .bound = 2e-6},
    {"rope table, axes in turns", build_rope, 512, 3, 512, 24, 20, 20, .e = SUMI_ROPE_IN_TURNS, .bound = 2e-6},
    {"rope table, four axes", build_rope, 7, 4, 40, 1, 1, 2, 3, .bound = 2e-6},
    {"time embedding, 8 x 256", build_time, 8, 256, .a = 1, .bound = FLOATING},
    {"time embedding, sine first, 100 x 256", build_time, 100, 256, .bound = FLOATING},
    {"time embedding, 3 x 24", build_time, 3, 24, .a = 1, .bound = FLOATING},
    {"modulation, gates, 8 x 15360", build_finish, 8, 15360, .a = 1, .bound = FLOATING},
    {"modulation, gates, 5 x 28", build_finish, 5, 28, .a = 1, .bound = FLOATING},
    {"modulation, scales, 5 x 27", build_finish, 5, 27, .bound = FLOATING},
    {"modulation of activations", build_finish, 5, 28, .a = 1, .b = 1, .bound = STORED},
    {"modulation, a step's row, 5 x 30", build_finish, 5, 30, .a = 2, .counter = 3, .bound = FLOATING},
    {"modulation, a step's row of activations, 50 x 18432", build_finish, 50, 18432, .a = 2, .b = 1, .counter = 48,
     .bound = FLOATING},
    {"modulation, a step's row as activations, 7 x 3078", build_finish, 7, 3078, .a = 2 | 4, .b = 1, .counter = 2,
     .bound = STORED},
    // rows that a block computes in several rounds, and blocks that compute several rows
    {"qk 4096 rows, 24 heads of 128, offset", build_qk, 4096, 24, 128, 16, .bound = STORED},
    {"qk 4352 rows, 24 and 8 heads of 96", build_qk, 4352, 24, 96, .b = 8, .bound = STORED},
    {"qk 4099 rows, 5 and 2 heads of 64, halves, offset", build_qk, 4099, 5, 64, 1 | 16, 2, .bound = STORED},
    {"qk 3000 rows, 9 heads of 32, no rotary", build_qk, 3000, 9, 32, 2, .bound = STORED},
};
CASE_TABLE(rotary_and_tables);
