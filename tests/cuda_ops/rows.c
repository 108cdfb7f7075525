// Cases of ops that move rows: embedding, means, gathering, filling, copying.
#include "cuda_ops/scene.h"

static void build_embed(scene* s, const op_case* c)
{
    sumi_weight* table = stacked_weight(s, c->n, c->k, 1, c->dtype, 1.0f, 0.0f);
    expect(s, sumi_plan_embed_rows(&s->plan, integers(s, c->m, 1, c->n), table, c->a ? 0.3f : 1.0f), c->bound);
}
static void build_embed_biased(scene* s, const op_case* c)
{
    sumi_weight *table = stacked_weight(s, c->n, c->k, 1, c->dtype, 1.0f, 0.0f), *bias = bias_of(s, c->k, c->dtype);
    expect(s, sumi_plan_embed_rows_biased(&s->plan, integers(s, c->m, 1, c->n), table, bias), c->bound);
}
// Four rows of a table of n rows and k columns for each of m rows.
static void build_mix(scene* s, const op_case* c)
{
    sumi_weight* table = stacked_weight(s, c->n, c->k, 1, c->dtype, 1.0f, 0.0f);
    sumi_value ids = integers(s, c->m, 4, c->n), factors = floats(s, c->m, 4);
    expect(s, sumi_plan_mix_rows(&s->plan, "mix", ids, factors, table), c->bound);
}
// Means over k spans of several lengths, which overlap, of m rows of n columns. a: floats, otherwise activations
static void build_mean(scene* s, const op_case* c)
{
    enum { MOST = 80 };
    sumi_span spans[MOST];
    const int count = c->k;
    if (count > MOST) abort();
    for (int i = 0; i < count; i++) {
        const int begin = i * 7 % c->m;
        spans[i] = (sumi_span){begin, i % 5 == 4 ? 1 : c->m - begin};
    }
    sumi_value x = c->a ? floats(s, c->m, c->n) : activations(s, c->m, c->n);
    expect(s, sumi_plan_mean_rows(&s->plan, "mean", x, spans, count), c->bound);
}
static void build_gather(scene* s, const op_case* c)
{
    expect(s, sumi_plan_gather_rows(&s->plan, "gather", integers(s, c->m, 1, c->n), activations(s, c->n, c->k)),
           c->bound);
}
static void build_fill(scene* s, const op_case* c)
{
    sumi_value y = activations(s, c->m, c->n);
    const sumi_span spans[] = {{1, 3}, {c->m - 2, 2}, {5, 0}, {6, 1}};
    sumi_plan_fill_rows(&s->plan, y, norm_weight(s, c->n, c->dtype), spans, 4);
    expect(s, y, EXACT);
}
static void build_copy(scene* s, const op_case* c)
{
    sumi_element element = c->a ? SUMI_ELEMENT_FLOAT : SUMI_ELEMENT_ACTIVATION;
    sumi_value x = c->a ? floats(s, c->m + 3, c->n) : activations(s, c->m + 3, c->n);
    sumi_value y =
        add_input(s, element, c->m + 4, c->n, random_numbers(s, (size_t)(c->m + 4) * (size_t)c->n, 1.0f, 0.0f), false);
    sumi_plan_copy_rows(&s->plan, &(sumi_plan_copy_args){.x = x, .x_row = 2, .y = y, .y_row = 3, .rows = c->m});
    expect(s, y, EXACT);
}
// Into columns b to b + n of k. a: floats, otherwise activations
static void build_copy_columns(scene* s, const op_case* c)
{
    sumi_element element = c->a ? SUMI_ELEMENT_FLOAT : SUMI_ELEMENT_ACTIVATION;
    sumi_value x = c->a ? floats(s, c->m + 3, c->n) : activations(s, c->m + 3, c->n);
    sumi_value y =
        add_input(s, element, c->m + 4, c->k, random_numbers(s, (size_t)(c->m + 4) * (size_t)c->k, 1.0f, 0.0f), false);
    sumi_plan_copy_rows(
        &s->plan,
        &(sumi_plan_copy_args){
            .x = x, .x_row = 2, .y = y, .y_row = 3, .rows = c->m, .writes_some_columns = true, .y_column = c->b});
    expect(s, y, EXACT);
}
// Out of a view of columns b to b + n of k, into columns 2 to n + 2 of n + e. a: floats, otherwise activations
static void build_copy_view(scene* s, const op_case* c)
{
    sumi_value wide = c->a ? floats(s, c->m + 3, c->k) : activations(s, c->m + 3, c->k),
               base = sumi_plan_value(&s->plan, "base", c->a ? SUMI_ELEMENT_FLOAT : SUMI_ELEMENT_ACTIVATION, c->m + 3,
                                      c->k),
               y = sumi_plan_value(&s->plan, "y", c->a ? SUMI_ELEMENT_FLOAT : SUMI_ELEMENT_ACTIVATION, c->m,
                                   c->n + c->e);
    sumi_plan_copy_rows(&s->plan, &(sumi_plan_copy_args){.x = wide, .y = base});
    sumi_plan_fill_rows(&s->plan, y, NULL, &(sumi_span){0, c->m}, 1);
    sumi_value view = sumi_plan_view(&s->plan, "view", base, (sumi_span){1, c->m + 1}, (sumi_span){c->b, c->n});
    sumi_plan_copy_rows(
        &s->plan, &(sumi_plan_copy_args){
                      .x = view, .x_row = 1, .y = y, .writes_some_columns = c->e > 0, .y_column = c->e > 0 ? 2 : 0});
    expect(s, y, EXACT);
}
// a: floats, otherwise activations; the first m of m + 2 rows
static void build_zeros(scene* s, const op_case* c)
{
    sumi_value y = c->a ? floats(s, c->m + 2, c->n) : activations(s, c->m + 2, c->n);
    sumi_plan_fill_rows(&s->plan, y, NULL, &(sumi_span){0, c->m}, 1);
    expect(s, y, EXACT);
}
// y = x + b y for m rows, from row c of y on. a: y is floats
static void build_add(scene* s, const op_case* c)
{
    const int32_t rows = c->m + c->c;
    sumi_value x = activations(s, c->m + 3, c->n), y = c->a ? floats(s, rows, c->n) : activations(s, rows, c->n);
    sumi_plan_add_rows(
        &s->plan,
        &(sumi_plan_add_rows_args){
            .label = "add", .x = x, .x_row = c->c > 0, .y = y, .y_row = c->c, .rows = c->m, .scale = (float)c->b});
    expect(s, y, c->bound);
}
// The change of a residual of the first m rows. a: the earlier residual is floats
static void build_change(scene* s, const op_case* c)
{
    sumi_value x = activations(s, c->m + 3, c->n), before = activations(s, c->m, c->n),
               kept = c->a ? floats(s, c->m, c->n) : activations(s, c->m, c->n);
    expect(s,
           sumi_plan_residual_change(&s->plan,
                                     &(sumi_plan_residual_change_args){
                                         .label = "change", .x = x, .before = before, .kept = kept, .rows = c->m}),
           c->bound);
    // Only what is an op's result can be read.
    sumi_value copy =
        sumi_plan_value(&s->plan, "copy", c->a ? SUMI_ELEMENT_FLOAT : SUMI_ELEMENT_ACTIVATION, c->m, c->n);
    sumi_plan_copy_rows(&s->plan, &(sumi_plan_copy_args){.x = kept, .y = copy});
    expect(s, copy, STORED);
}
// x += residual + f * change for the first m rows. a: x is floats
static void build_add_residual(scene* s, const op_case* c)
{
    sumi_value x = c->a ? floats(s, c->m + 1, c->n) : activations(s, c->m + 1, c->n),
               residual = activations(s, c->m, c->n), change = activations(s, c->m + 2, c->n);
    static const float s_sigmas[2][3] = {{0.0f, 0.9f, 0.0f}, {0.0f, 0.7f, 0.0f}},
                       s_table[4] = {0.95f, 0.8f, 0.64f, 0.2f};
    sumi_value sigmas = sumi_plan_constant(&s->plan, "sigmas", SUMI_ELEMENT_FLOAT, 2, 3, s_sigmas),
               table = sumi_plan_constant(&s->plan, "table", SUMI_ELEMENT_FLOAT, 4, 1, s_table);
    sumi_plan_add_residual(&s->plan, &(sumi_plan_add_residual_args){.label = "residual",
                                                                    .x = x,
                                                                    .residual = residual,
                                                                    .change = change,
                                                                    .rows = c->m,
                                                                    .sigmas = sigmas,
                                                                    .column = 1,
                                                                    .sigma = {table, 0, true},
                                                                    .most = 0.5f});
    expect(s, x, c->bound);
}
static const op_case s_moving_rows[] = {
    {"embed, bf16", build_embed, 77, 1000, 2560, .bound = EXACT},
    {"embed, bf16, odd width, scaled", build_embed, 9, 30, 21, 1, .bound = STORED},
    {"embed, f32 of bf16 numbers", build_embed, 33, 300, 192, .dtype = SUMI_DTYPE_F32, .bound = EXACT},
    {"embed, f16", build_embed, 33, 300, 100, .dtype = SUMI_DTYPE_F16, .bound = STORED},
    {"embed, e4m3 with a scale", build_embed, 33, 300, 64, .dtype = SUMI_DTYPE_F8_E4M3, .bound = STORED},
    {"embed and bias, bf16", build_embed_biased, 77, 1000, 1024, .bound = STORED},
    {"embed and bias, odd width", build_embed_biased, 9, 30, 21, .bound = STORED},
    {"embed and bias, f32 of bf16 numbers", build_embed_biased, 33, 300, 192, .dtype = SUMI_DTYPE_F32, .bound = STORED},
    {"embed and bias, 4 columns", build_embed_biased, 33, 300, 4, .bound = STORED},
    {"mixed rows, 1152", build_mix, 4096, 2304, 1152, .bound = STORED},
    {"mixed rows, f32 of bf16 numbers", build_mix, 33, 300, 192, .dtype = SUMI_DTYPE_F32, .bound = STORED},
    {"mixed rows, odd width", build_mix, 9, 30, 21, .bound = STORED},
    {"means, 3 spans of 1024", build_mean, 512, 1024, 3, .bound = STORED},
    {"means, 9 spans of an odd width", build_mean, 40, 21, 9, .bound = STORED},
    {"means, 80 spans", build_mean, 70, 128, 80, .bound = STORED},
    {"means of floats", build_mean, 300, 72, 5, 1, .bound = STORED},
    {"gather, 3584", build_gather, 196, 196, 3584, .bound = EXACT},
    {"gather, odd width", build_gather, 9, 30, 21, .bound = EXACT},
    {"fill, 3840", build_fill, 64, 3840, .bound = EXACT},
    {"fill, odd width", build_fill, 12, 21, .dtype = SUMI_DTYPE_BF16},
    {"copy, 3840", build_copy, 128, 3840, .bound = EXACT},
    {"copy, odd width", build_copy, 7, 21, .bound = EXACT},
    {"copy of floats", build_copy, 16, 16384, .a = 1},
    {"copy of floats, odd width", build_copy, 5, 35, .a = 1},
    {"copy, 2560 of 7680 columns", build_copy_columns, 512, 2560, 7680, .b = 2560, .bound = EXACT},
    {"copy, odd columns", build_copy_columns, 7, 21, 50, .b = 3, .bound = EXACT},
    {"copy, even columns of an odd width", build_copy_columns, 7, 16, 37, .b = 4, .bound = EXACT},
    {"copy of floats, columns", build_copy_columns, 5, 35, 90, .a = 1, .b = 50},
    {"copy of floats, 64 of 192 columns", build_copy_columns, 70, 64, 192, .a = 1, .b = 128},
    {"copy of a view, 2048 of 3072 columns", build_copy_view, 70, 2048, 3072, .b = 1024, .bound = EXACT},
    {"copy of a view, odd columns", build_copy_view, 9, 21, 50, .b = 7, .e = 3, .bound = EXACT},
    {"copy of a view of floats", build_copy_view, 9, 16, 48, .a = 1, .b = 32, .e = 32},
    {"zeros, 3840", build_zeros, 64, 3840, .bound = EXACT},
    {"zeros, floats of an odd width", build_zeros, 12, 21, .a = 1},
    {"add, 3840", build_add, 130, 3840, .b = 1, .bound = STORED},
    {"add to rows from the middle on", build_add, 77, 2304, .b = 1, .c = 50, .bound = STORED},
    {"add to rows of floats from the middle on, odd width", build_add, 9, 21, .a = 1, .b = 1, .c = 3,
     .bound = FLOATING},
    {"subtract, 2304", build_add, 77, 2304, .b = -1, .bound = STORED},
    {"subtract floats, odd width", build_add, 9, 21, .a = 1, .b = -1, .bound = FLOATING},
    {"change of a residual, 3840", build_change, 130, 3840, .bound = STORED},
    {"change of a residual, 3072", build_change, 40, 3072, .bound = STORED},
    {"change of a residual, floats of an odd width", build_change, 9, 21, .a = 1, .bound = STORED},
    {"residual, 3840", build_add_residual, 130, 3840, .counter = 2, .bound = STORED},
    {"residual, 3072, the most", build_add_residual, 40, 3072, .counter = 3, .bound = STORED},
    {"residual, floats of an odd width", build_add_residual, 9, 21, .a = 1, .counter = 2, .bound = FLOATING},
};
CASE_TABLE(moving_rows);
