// What the CUDA backend decides about a plan before anything runs (cuda/arrange.h): which products are computed in 8
// bits, in which form a weight is needed, which two ops become one kernel; and how slices share out the work of an op.
// Most plans here are only written and arranged, for a device of a given compute capability.
#include "test.h"
#ifdef SUMI_HAS_CUDA
#include "cuda/arrange.h"
#include "cuda/launch.h"
#include "device/weight_forms.h"
#include "fake_cuda.h"
#include "runner_fixture.h"

// ---- Plans without a runner -----------------------------------------------------------------------------------------

// Arranges as the runner does on a device of compute capability 9.0 or 8.6.
static void arrange_for_90(const sumi_runner* runner, sumi_plan* plan)
{
    (void)runner;
    sumi_cuda_arrange(&(sumi_cuda_device){.capability = 90}, true, plan);
}

static void arrange_for_86(const sumi_runner* runner, sumi_plan* plan)
{
    (void)runner;
    sumi_cuda_arrange(&(sumi_cuda_device){.capability = 86}, true, plan);
}

static void begin_plan_for_90(sumi_plan* plan, sumi_heap* heap)
{
    sumi_plan_begin(plan, heap, 2);
    plan->arrange = arrange_for_90;
}

// ---- Marks and forms ------------------------------------------------------------------------------------------------

TEST(forms_follow_from_the_ops)
{
    static small_model s_model;
    runner_setup setup;
    small_plan small;
    sumi_error error = {0};
    open_small_plan(&setup, &s_model, &small, 0, &error);
    const sumi_plan* plan = &small.plan;
    int32_t linear = 0;
    while (plan->ops[linear].kind != SUMI_OP_LINEAR) linear++;
    CHECK(sumi_cuda_is_fused_gated(plan, linear) && sumi_cuda_is_fused_gated(plan, linear + 1));
    CHECK(!sumi_cuda_is_fused_gated(plan, linear - 1) && !sumi_cuda_is_fused_gated(plan, linear + 2));
    const sumi_value_info *x = sumi_plan_info(plan, plan->ops[linear].in[0]),
                          *y = sumi_plan_info(plan, plan->ops[linear + 1].out);
    // the fused kernel reads x while it writes y, so they must not overlap
    CHECK(y->offset >= x->offset + x->bytes || x->offset >= y->offset + y->bytes);
    for (size_t v = 0; v < plan->value_count; v++) {
        const bool is_gate_and_up = (int32_t)v == plan->ops[linear].out.id - 1;
        CHECK_NUMBER(plan->values[v].marks, is_gate_and_up ? SUMI_DEVICE_VALUE_GATED : 0);
        CHECK_NUMBER(plan->values[v].is_unstored, is_gate_and_up);
    }
    close_small_plan(&setup, &small);
}

// The large products of the denoising section are computed in 8 bits: in e4m3 if the device can, in int8 on every
// device. gated, plain: the expected forms of a gated and of another weight. on_86: a device of 8.6 uses 8 bits too
static void check_8bit_marks(sumi_weight_format weights, sumi_device_form gated, sumi_device_form plain, bool on_86)
{
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    sumi_error error = {0};
    sumi_weight a = make_weight("a", 512, 256, NULL, SUMI_DTYPE_BF16),
                b = make_weight("b", 256, 256, NULL, SUMI_DTYPE_BF16),
                small = make_weight("small", 48, 256, NULL, SUMI_DTYPE_BF16),
                kept = make_weight("kept", 256, 256, NULL, SUMI_DTYPE_BF16),
                early = make_weight("early", 256, 256, NULL, SUMI_DTYPE_BF16);
    kept.keeps_precision = true;
    sumi_plan plan;
    begin_plan_for_90(&plan, &heap);
    plan.weight_options.weights = weights;
    sumi_plan_section(&plan, SUMI_SECTION_PREPARE, 1, 0);
    sumi_value in = sumi_plan_bound(&plan, "in", SUMI_ELEMENT_ACTIVATION, 32, 256);
    // The comments give the index of each op. Op 0 is in another section, and no step reads its weight.
    sumi_value x = sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "before", .x = in, .weight = &early});
    sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 2, 0);
    sumi_value n = sumi_plan_norm(&plan, &(sumi_plan_norm_args){.label = "n", .x = x, .eps = 1e-5f}); // 1
    // ops 2 and 3
    sumi_value g = sumi_plan_linear_gated(&plan, "a", n, &a, SUMI_ACT_SILU);
    (void)sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "b", .x = g, .weight = &b});                // 4
    sumi_value shared = sumi_plan_norm(&plan, &(sumi_plan_norm_args){.label = "shared", .x = x, .eps = 1e-5f}); // 5
    (void)sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "b", .x = shared, .weight = &b});           // 6
    (void)sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "small", .x = shared, .weight = &small});   // 7
    (void)sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "kept", .x = shared, .weight = &kept});     // 8
    CHECK(sumi_plan_finish(&plan, &error) == SUMI_OK);
    const bool expected[] = {false, false, true, false, true, false, true, false, false};
    for (int32_t i = 0; i < 9; i++) CHECK(((plan.ops[i].marks & SUMI_DEVICE_OP_8BIT) != 0) == expected[i]);
    CHECK(sumi_plan_info(&plan, n)->marks == SUMI_DEVICE_VALUE_QUANTISED);
    // a reader of `shared` needs bfloat16, and no norm writes g
    CHECK(sumi_plan_info(&plan, shared)->marks == 0 && sumi_plan_info(&plan, g)->marks == 0
          && sumi_plan_info(&plan, x)->marks == 0);
    const sumi_weight* weight;
    sumi_device_form form;
    CHECK(sumi_device_op_weight(&plan, 2, 0, &weight, &form) && form == gated);
    CHECK(sumi_device_op_weight(&plan, 4, 0, &weight, &form) && form == plain);
    CHECK(sumi_device_op_weight(&plan, 0, 0, &weight, &form) && form == SUMI_DEVICE_FORM_MATRIX);
    plan.arrange = arrange_for_86;
    CHECK(sumi_plan_finish(&plan, &error) == SUMI_OK);
    for (int32_t i = 0; i < 9; i++) CHECK(((plan.ops[i].marks & SUMI_DEVICE_OP_8BIT) != 0) == (on_86 && expected[i]));
    CHECK((sumi_plan_info(&plan, n)->marks != 0) == on_86 && plan.ops[2].is_first_of_pair);
    // a plan that no backend arranges runs op by op, in bfloat16
    plan.arrange = NULL;
    CHECK(sumi_plan_finish(&plan, &error) == SUMI_OK);
    CHECK(sumi_device_op_weight(&plan, 2, 0, &weight, &form) && form == SUMI_DEVICE_FORM_MATRIX);
    CHECK(!sumi_cuda_is_fused_gated(&plan, 2));
    sumi_plan_end(&plan);
}

TEST(eight_bits_take_large_weights_of_the_denoising_section)
{
    check_8bit_marks(SUMI_WEIGHTS_FP8, SUMI_DEVICE_FORM_GATED_FP8, SUMI_DEVICE_FORM_MATRIX_FP8, false);
    check_8bit_marks(SUMI_WEIGHTS_INT8, SUMI_DEVICE_FORM_GATED_INT8, SUMI_DEVICE_FORM_MATRIX_INT8, true);
}

// Rows of int8 end with a whole block of 256 columns, which must save memory.
TEST(eight_bits_take_rows_that_become_shorter)
{
    static const struct {
        int32_t cols;
        bool is_fp8, is_int8;
    } s_cases[] = {{112, false, false}, {128, true, false}, {144, true, true}, {256, true, true}, {272, true, true}};
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    sumi_error error = {0};
    for (size_t i = 0; i < 2 * sizeof s_cases / sizeof *s_cases; i++) {
        const int32_t cols = s_cases[i / 2].cols;
        sumi_weight weight = make_weight("w", 256, cols, NULL, SUMI_DTYPE_BF16);
        const sumi_weight* read;
        sumi_device_form form;
        sumi_plan plan;
        begin_plan_for_90(&plan, &heap);
        plan.weight_options.weights = i % 2 ? SUMI_WEIGHTS_INT8 : SUMI_WEIGHTS_FP8;
        sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 2, 0);
        sumi_value in = sumi_plan_bound(&plan, "in", SUMI_ELEMENT_ACTIVATION, 32, cols);
        (void)sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "w", .x = in, .weight = &weight});
        CHECK(sumi_plan_finish(&plan, &error) == SUMI_OK);
        CHECK(sumi_device_op_weight(&plan, 0, 0, &read, &form));
        const bool is_8bit = i % 2 ? s_cases[i / 2].is_int8 : s_cases[i / 2].is_fp8;
        CHECK((sumi_device_traits(form)->operands != SUMI_CUDA_BF16) == is_8bit);
        CHECK(!is_8bit
              || sumi_device_form_bytes(&weight, form) < sumi_device_form_bytes(&weight, SUMI_DEVICE_FORM_MATRIX));
        sumi_plan_end(&plan);
    }
}

// The sections TEXT and VISION have one weight format, DENOISE has another, and the other sections are in bfloat16.
// Only ops of the same format read a value that is stored in 8 bits.
TEST(text_encoders_have_a_format_of_their_own)
{
    static const float s_values[256];
    static const struct {
        sumi_weight_format weights, text_weights;
        sumi_device_form forms[4]; // vision, text, prepare, denoise
        uint8_t text_marks;        // of the value that the norm of the text section writes
    } s_cases[] = {
        {SUMI_WEIGHTS_BF16,
         SUMI_WEIGHTS_INT8,
         {SUMI_DEVICE_FORM_MATRIX_INT8, SUMI_DEVICE_FORM_MATRIX_INT8, SUMI_DEVICE_FORM_MATRIX, SUMI_DEVICE_FORM_MATRIX},
         SUMI_DEVICE_VALUE_QUANTISED | SUMI_DEVICE_VALUE_BALANCED},
        {SUMI_WEIGHTS_INT8,
         SUMI_WEIGHTS_BF16,
         {SUMI_DEVICE_FORM_MATRIX, SUMI_DEVICE_FORM_MATRIX, SUMI_DEVICE_FORM_MATRIX, SUMI_DEVICE_FORM_MATRIX_INT8},
         0},
        {SUMI_WEIGHTS_INT8,
         SUMI_WEIGHTS_FP8,
         {SUMI_DEVICE_FORM_MATRIX_FP8, SUMI_DEVICE_FORM_MATRIX_FP8, SUMI_DEVICE_FORM_MATRIX,
          SUMI_DEVICE_FORM_MATRIX_INT8},
         SUMI_DEVICE_VALUE_QUANTISED},
        {SUMI_WEIGHTS_FP8,
         SUMI_WEIGHTS_INT4,
         {SUMI_DEVICE_FORM_INT4, SUMI_DEVICE_FORM_INT4, SUMI_DEVICE_FORM_MATRIX, SUMI_DEVICE_FORM_MATRIX_FP8},
         0},
        {SUMI_WEIGHTS_AS_STORED,
         SUMI_WEIGHTS_INT8,
         {SUMI_DEVICE_FORM_MATRIX_INT8, SUMI_DEVICE_FORM_MATRIX_INT8, SUMI_DEVICE_FORM_STORED, SUMI_DEVICE_FORM_STORED},
         SUMI_DEVICE_VALUE_QUANTISED | SUMI_DEVICE_VALUE_BALANCED},
        {SUMI_WEIGHTS_INT4,
         SUMI_WEIGHTS_AS_STORED,
         {SUMI_DEVICE_FORM_STORED, SUMI_DEVICE_FORM_STORED, SUMI_DEVICE_FORM_MATRIX, SUMI_DEVICE_FORM_INT4},
         0}};
    static const sumi_section_kind s_kinds[] = {SUMI_SECTION_VISION, SUMI_SECTION_TEXT, SUMI_SECTION_PREPARE,
                                                SUMI_SECTION_DENOISE};
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    sumi_error error = {0};
    sumi_weight norm = make_weight("norm", 1, 256, s_values, SUMI_DTYPE_F32), products[4];
    for (int32_t s = 0; s < 4; s++) {
        products[s] = make_weight("product", 256, 256, s_values, SUMI_DTYPE_Q8_0); // its data is never read
        products[s].balance = &norm;
    }
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        sumi_plan plan;
        begin_plan_for_90(&plan, &heap);
        plan.weight_options.weights = s_cases[i].weights;
        plan.weight_options.text_weights = s_cases[i].text_weights;
        sumi_value normed[4], x = SUMI_NO_VALUE;
        for (int32_t s = 0; s < 4; s++) {
            sumi_plan_section(&plan, s_kinds[s], 1, 0);
            if (s == 0) x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 32, 256);
            normed[s] =
                sumi_plan_norm(&plan, &(sumi_plan_norm_args){.label = "n", .x = x, .weight = &norm, .eps = 1e-5f});
            // the denoising section reads what a norm of the vision section wrote: it is in bfloat16, as the formats
            // differ
            if (s == 3 && i % 2 == 0) {
                (void)sumi_plan_linear(
                    &plan, &(sumi_plan_linear_args){.label = "across", .x = normed[0], .weight = &products[3]});
            }
            x = sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "p", .x = normed[s], .weight = &products[s]});
        }
        CHECK(sumi_plan_finish(&plan, &error) == SUMI_OK);
        CHECK_TEXT(error.text, "");
        for (int32_t k = 0; k < (int32_t)plan.op_count; k++) {
            const sumi_weight* weight = NULL;
            sumi_device_form form;
            if (plan.ops[k].kind != SUMI_OP_LINEAR || !sumi_device_op_weight(&plan, k, 0, &weight, &form)) continue;
            CHECK_NUMBER(form, s_cases[i].forms[weight - products]);
        }
        CHECK_NUMBER(sumi_plan_info(&plan, normed[0])->marks, i % 2 == 0 ? 0 : s_cases[i].text_marks);
        CHECK_NUMBER(sumi_plan_info(&plan, normed[1])->marks, s_cases[i].text_marks);
        CHECK_NUMBER(sumi_plan_info(&plan, normed[2])->marks, 0);
        sumi_plan_end(&plan);
    }
}

// A matrix in int8 that has a norm is balanced by it in every plan. The norm writes balanced 8-bit rows if only
// balanced products read them, and bfloat16 otherwise.
TEST(a_norm_balances_what_it_writes_for_balanced_products_alone)
{
    enum { ALONE, PLAIN_TOO, PRECISE_TOO, ADAPTED, NORM_ADAPTED, SHIFTED, OTHER_NORM, IN_FP8, CASES };
    static const float s_values[16 * 256];
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    sumi_error error = {0};
    sumi_weight norm = make_weight("norm", 1, 256, s_values, SUMI_DTYPE_F32),
                other_norm = make_weight("other norm", 1, 256, s_values, SUMI_DTYPE_F32),
                wide = make_weight("wide", 512, 256, NULL, SUMI_DTYPE_BF16),
                second = make_weight("second", 256, 256, NULL, SUMI_DTYPE_BF16);
    wide.balance = &norm;
    wide.index = 7;
    norm.index = 8;
    const sumi_delta deltas[] = {{.weight_index = 7,
                                  .scale = 1.0f,
                                  .down = make_weight("down", 4, 256, NULL, SUMI_DTYPE_BF16),
                                  .up = make_weight("up", 512, 4, NULL, SUMI_DTYPE_BF16)},
                                 {.weight_index = 8,
                                  .scale = 1.0f,
                                  .up = make_weight("change", 256, 1, s_values, SUMI_DTYPE_F32),
                                  .kind = SUMI_DELTA_VECTOR}};
    for (int32_t i = 0; i < CASES; i++) {
        const sumi_adapter adapter = {i == NORM_ADAPTED ? &deltas[1] : &deltas[0], 1};
        const sumi_adapter_use use = {&adapter, 0.5f};
        sumi_plan plan;
        begin_plan_for_90(&plan, &heap);
        plan.weight_options.weights = i == IN_FP8 ? SUMI_WEIGHTS_FP8 : SUMI_WEIGHTS_INT8;
        sumi_plan_adapters(&plan, &use, i == ADAPTED || i == NORM_ADAPTED);
        sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 2, 0);
        sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 32, 256),
                   table = sumi_plan_bound(&plan, "table", SUMI_ELEMENT_FLOAT, 2, 256);
        sumi_value n = sumi_plan_norm(
            &plan, &(sumi_plan_norm_args){.label = "n",
                                          .x = x,
                                          .eps = 1e-5f,
                                          .weight = i == OTHER_NORM ? &other_norm : &norm,
                                          .scale = {table, 0, true},
                                          .shift = i == SHIFTED ? (sumi_step_row){table, 0, true} : SUMI_NO_ROW});
        sumi_value y = sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "wide", .x = n, .weight = &wide});
        second.keeps_precision = i == PRECISE_TOO;
        if (i == PLAIN_TOO || i == PRECISE_TOO)
            (void)sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "second", .x = n, .weight = &second});
        CHECK(sumi_plan_finish(&plan, &error) == SUMI_OK);
        CHECK_TEXT(error.text, "");
        CHECK_NUMBER(sumi_plan_info(&plan, n)->marks, i == ALONE
                                                          ? SUMI_DEVICE_VALUE_QUANTISED | SUMI_DEVICE_VALUE_BALANCED
                                                      : i == IN_FP8 ? SUMI_DEVICE_VALUE_QUANTISED
                                                                    : 0);
        CHECK_NUMBER(sumi_plan_info(&plan, y)->marks, 0);
        int32_t norms = 0, products = 0;
        for (int32_t k = 0; k < (int32_t)plan.op_count; k++) {
            const sumi_weight* weight = NULL;
            sumi_device_form form;
            if (!sumi_device_op_weight(&plan, k, 0, &weight, &form)) continue;
            if (weight == &norm && plan.ops[k].kind == SUMI_OP_NORM_MODULATE) {
                CHECK(form == (i == ALONE ? SUMI_DEVICE_FORM_VECTOR_BALANCED : SUMI_DEVICE_FORM_VECTOR));
                norms++;
            }
            if (weight != &wide) continue;
            CHECK(form == (i == IN_FP8 ? SUMI_DEVICE_FORM_MATRIX_FP8 : SUMI_DEVICE_FORM_MATRIX_INT8));
            CHECK((sumi_device_weight_at(512, weight, form).balance != 0) == (i != IN_FP8));
            products++;
        }
        // a norm that an adapter changes reads a value instead of a weight
        CHECK(norms == (i != OTHER_NORM && i != NORM_ADAPTED) && products == 1);
        sumi_plan_end(&plan);
    }
}

TEST(an_adapter_between_product_and_gate_keeps_them_two_kernels)
{
    static small_model s_model;
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    make_small_model(&s_model);
    small_plan small;
    sumi_error error = {0};
    sumi_delta delta = {.weight_index = s_model.gate_up.index,
                        .row_begin = HIDDEN,
                        .scale = 1.0f,
                        .down = make_weight("lora.down", 4, WIDTH, s_model.odd, SUMI_DTYPE_BF16),
                        .up = make_weight("lora.up", HIDDEN, 4, s_model.odd, SUMI_DTYPE_BF16)};
    const sumi_adapter adapter = {&delta, 1};
    const sumi_adapter_use use = {&adapter, 0.5f};
    memset(&small, 0, sizeof small);
    begin_plan_for_90(&small.plan, &heap);
    sumi_plan_adapters(&small.plan, &use, 1);
    sumi_plan_section(&small.plan, SUMI_SECTION_DENOISE, 1, 0);
    sumi_value x = sumi_plan_bound(&small.plan, "x", SUMI_ELEMENT_ACTIVATION, 8, WIDTH);
    (void)sumi_plan_linear_gated(&small.plan, "mlp", x, &s_model.gate_up, SUMI_ACT_SILU);
    CHECK(sumi_plan_finish(&small.plan, &error) == SUMI_OK);
    CHECK_NUMBER(small.plan.op_count, 4);
    for (int32_t i = 0; i < 4; i++) CHECK(!sumi_cuda_is_fused_gated(&small.plan, i));
    // the value is still interleaved, and the adapter adds to it
    CHECK(sumi_plan_info(&small.plan, small.plan.ops[0].out)->marks == SUMI_DEVICE_VALUE_GATED);
    const sumi_weight* weight;
    sumi_device_form form;
    CHECK(sumi_device_op_weight(&small.plan, 0, 0, &weight, &form) && form == SUMI_DEVICE_FORM_GATED);
    CHECK(sumi_device_op_weight(&small.plan, 2, 0, &weight, &form) && form == SUMI_DEVICE_FORM_MATRIX);
    sumi_plan_end(&small.plan);
}

// The scales of a value in 8 bits lie behind its last row, which a view of fewer rows does not know.
TEST(a_value_that_is_read_by_a_view_stays_in_16_bits)
{
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    sumi_error error = {0};
    const sumi_weight weights[2] = {make_weight("all", 512, 256, NULL, SUMI_DTYPE_BF16),
                                    make_weight("some", 512, 256, NULL, SUMI_DTYPE_BF16)};
    for (int32_t views = 0; views < 2; views++) {
        sumi_plan plan;
        begin_plan_for_90(&plan, &heap);
        plan.weight_options.weights = SUMI_WEIGHTS_FP8;
        sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 2, 0);
        sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 32, 256);
        sumi_value n = sumi_plan_norm(&plan, &(sumi_plan_norm_args){.label = "n", .x = x, .eps = 1e-5f});
        sumi_value some = sumi_plan_view(&plan, "some", n, (sumi_span){0, 20}, (sumi_span){0, 256});
        (void)sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "all", .x = n, .weight = &weights[0]});
        (void)sumi_plan_linear(&plan,
                               &(sumi_plan_linear_args){.label = "some", .x = views ? some : n, .weight = &weights[1]});
        CHECK(sumi_plan_finish(&plan, &error) == SUMI_OK);
        CHECK((plan.ops[1].marks & plan.ops[2].marks & SUMI_DEVICE_OP_8BIT) != 0);
        CHECK_NUMBER(sumi_plan_info(&plan, n)->marks, views ? 0 : SUMI_DEVICE_VALUE_QUANTISED);
        sumi_plan_end(&plan);
    }
}

// The factors of a Kronecker product are not in 8 bits: `down` is a bfloat16 matrix, `up` a vector of floats. What they
// give is added to interleaved columns. The adapter reads the norm's value through a view, so the value is in bfloat16.
TEST(a_kronecker_product_keeps_its_forms)
{
    static small_model s_model;
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    make_small_model(&s_model);
    sumi_error error = {0};
    sumi_weight wide = make_weight("wide", 512, 256, NULL, SUMI_DTYPE_BF16);
    wide.index = 9;
    const sumi_delta delta = {.weight_index = 9,
                              .scale = 1.0f,
                              .up = make_weight("w1", 2, 2, s_model.left, SUMI_DTYPE_F32),
                              .down = make_weight("w2", 256, 128, NULL, SUMI_DTYPE_BF16),
                              .kind = SUMI_DELTA_KRONECKER};
    const sumi_adapter adapter = {&delta, 1};
    const sumi_adapter_use use = {&adapter, 0.5f};
    for (int32_t uses = 0; uses < 2; uses++) {
        sumi_plan plan;
        begin_plan_for_90(&plan, &heap);
        plan.weight_options.weights = SUMI_WEIGHTS_FP8;
        sumi_plan_adapters(&plan, &use, uses);
        sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 2, 0);
        sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 32, 256);
        sumi_value n = sumi_plan_norm(&plan, &(sumi_plan_norm_args){.label = "n", .x = x, .eps = 1e-5f});
        (void)sumi_plan_linear_gated(&plan, "wide", n, &wide, SUMI_ACT_SILU);
        CHECK(sumi_plan_finish(&plan, &error) == SUMI_OK);
        CHECK_NUMBER(plan.op_count, uses == 0 ? 3 : 5);
        CHECK(sumi_cuda_is_fused_gated(&plan, 1) == (uses == 0));
        CHECK((plan.ops[1].marks & SUMI_DEVICE_OP_8BIT) != 0);
        CHECK_NUMBER(sumi_plan_info(&plan, n)->marks, uses == 0 ? SUMI_DEVICE_VALUE_QUANTISED : 0);
        for (size_t i = 0; i < plan.op_count; i++)
            CHECK(sumi_device_is_adapter_op(&plan, i) == (uses == 1 && (i == 2 || i == 3)));
        if (uses == 1) {
            const sumi_weight* weight;
            sumi_device_form form;
            CHECK(plan.ops[3].kind == SUMI_OP_KRONECKER_ADD && plan.ops[2].marks == 0);
            CHECK_NUMBER(sumi_plan_info(&plan, plan.ops[1].out)->marks, SUMI_DEVICE_VALUE_GATED);
            CHECK(sumi_device_op_weight(&plan, 2, 0, &weight, &form) && weight == &delta.down
                  && form == SUMI_DEVICE_FORM_MATRIX);
            CHECK(sumi_device_op_weight(&plan, 3, 0, &weight, &form) && weight == &delta.up
                  && form == SUMI_DEVICE_FORM_VECTOR);
        }
        sumi_plan_end(&plan);
    }
}

static CUresult CUDAAPI never_called(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                     const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
                                     const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                                     CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                     CUtensorMapFloatOOBfill fill)
{
    (void)map, (void)type, (void)rank, (void)address, (void)dims, (void)strides, (void)box, (void)element_strides;
    (void)interleave, (void)swizzle, (void)promotion, (void)fill;
    return CUDA_ERROR_UNKNOWN;
}

static void arrange_for_hopper(const sumi_runner* runner, sumi_plan* plan)
{
    (void)runner;
    sumi_cuda_device device = {.capability = 90, .shared_per_block = 232448};
    device.driver.cuTensorMapEncodeTiled = never_called;
    sumi_cuda_arrange(&device, true, plan);
}

// WHOLE: all rows are queries and keys. LATER: the first rows are only keys. PADDED: the last rows are only queries.
typedef enum queries_of_case { WHOLE, LATER, PADDED } queries_of_case;

// Attention is computed in e4m3 if a norm has written every row of q and k, and nothing else reads them; in int8 in any
// case, where the kernels for Hopper cannot run.
TEST(attention_in_8_bits_has_its_conditions)
{
    enum { ROWS = 40, HEADS = 4 };
    static const struct {
        const char* what;
        int32_t dim, normed_rows; // rows that norms write, of ROWS, by two ops
        bool is_requested, is_causal, writes_after, reads_after;
        queries_of_case queries;
        bool is_denoising, e4m3, int8;
    } s_cases[] = {
        {"heads of 80", 80, ROWS, true, false, false, false, WHOLE, true, false, false},
        {"two streams", 128, ROWS, true, false, false, false, WHOLE, true, true, true},
        {"not requested", 128, ROWS, false, false, false, false, WHOLE, true, false, false},
        {"heads of 96", 96, ROWS, true, false, false, false, WHOLE, true, true, true},
        {"heads of 64", 64, ROWS, true, false, false, false, WHOLE, true, false, true},
        {"a row without a norm", 128, ROWS - 1, true, false, false, false, WHOLE, true, false, true},
        {"causal", 128, ROWS, true, true, false, false, WHOLE, true, false, false},
        {"a product after a norm", 128, ROWS, true, false, true, false, WHOLE, true, false, true},
        {"another reader", 128, ROWS, true, false, false, true, WHOLE, true, false, true},
        {"later queries", 128, ROWS, true, false, false, false, LATER, true, false, false},
        {"padding", 128, ROWS, true, false, false, false, PADDED, true, false, false},
        {"a text encoder", 128, ROWS, true, false, false, false, WHOLE, false, false, false},
    };
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    sumi_error error = {0};
    for (size_t k = 0; k < 2 * (sizeof s_cases / sizeof *s_cases); k++) {
        const size_t i = k / 2;
        const bool is_hopper = k % 2 == 0;
        sumi_weight qkv_weight = make_weight("qkv", 3 * HEADS * s_cases[i].dim, 64, NULL, SUMI_DTYPE_BF16),
                    norm = make_weight("norm", 1, s_cases[i].dim, NULL, SUMI_DTYPE_BF16);
        sumi_plan plan;
        sumi_plan_begin(&plan, &heap, 2);
        plan.arrange = is_hopper ? arrange_for_hopper : arrange_for_86;
        plan.weight_options.attention = s_cases[i].is_requested ? SUMI_ATTENTION_8BIT : SUMI_ATTENTION_AUTO;
        sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, ROWS, 64);

        sumi_plan_section(&plan, s_cases[i].is_denoising ? SUMI_SECTION_DENOISE : SUMI_SECTION_TEXT, 1, 0);
        sumi_plan_linear_args product = {.label = "qkv", .x = x, .weight = &qkv_weight};
        sumi_value qkv = sumi_plan_linear(&plan, &product);
        for (int32_t row = 0; row < s_cases[i].normed_rows; row = row == 0 ? 30 : ROWS) {
            sumi_plan_qk_norm_rope(&plan, &(sumi_plan_qk_args){.label = "norm",
                                                               .qkv = qkv,
                                                               .row = row,
                                                               .rows = row == 0 ? 30 : s_cases[i].normed_rows - 30,
                                                               .q_heads = HEADS,
                                                               .kv_heads = HEADS,
                                                               .dim = s_cases[i].dim,
                                                               .q_norm = &norm,
                                                               .k_norm = &norm,
                                                               .eps = 1e-5f,
                                                               .rotary = SUMI_ROTARY_NONE});
        }
        if (s_cases[i].writes_after) {
            product.y = qkv;
            sumi_plan_linear(&plan, &product);
        }
        const sumi_sequence whole = {{{0, ROWS}}, 1, 1, 0, 0}, later = {{{0, 30}, {30, 10}}, 2, 1, 1, 0},
                            padded = {{{0, 30}, {30, 10}}, 2, 2, 0, 1};
        const sumi_attention attention = {.q_heads = HEADS,
                                          .kv_heads = HEADS,
                                          .dim = s_cases[i].dim,
                                          .scale = 0.1f,
                                          .causal = s_cases[i].is_causal,
                                          .sequences = s_cases[i].queries == LATER  ? &later
                                                     : s_cases[i].queries == PADDED ? &padded
                                                                                    : &whole,
                                          .sequence_count = 1};
        sumi_value y = sumi_plan_attention(&plan, "attention", qkv, &attention);
        if (s_cases[i].reads_after) y = sumi_plan_attention(&plan, "attention", qkv, &attention);
        plan.values[y.id - 1].bound = true;
        CHECK_NUMBER(sumi_plan_finish(&plan, &error), SUMI_OK);
        const bool is_e4m3 = (sumi_plan_info(&plan, qkv)->marks & SUMI_CUDA_VALUE_QK_E4M3) != 0,
                   is_int8 = (plan.ops[plan.op_count - 1].marks & SUMI_CUDA_OP_INT8_ATTENTION) != 0;
        if (is_e4m3 != (is_hopper && s_cases[i].e4m3) || is_int8 != (!is_hopper && s_cases[i].int8))
            printf("  %s\n", s_cases[i].what);
        CHECK(is_e4m3 == (is_hopper && s_cases[i].e4m3) && is_int8 == (!is_hopper && s_cases[i].int8));
        sumi_plan_end(&plan);
    }
    CHECK_TEXT(error.text, "");
}

// q, k and v by a product, normed by ops of `part` rows each, which divide all rows.
typedef struct normed_value {
    int32_t rows, part, heads, dim;
    const sumi_weight *weight, *norm;
} normed_value;
static sumi_value write_normed(sumi_plan* plan, const normed_value* n)
{
    const sumi_value x = sumi_plan_bound(plan, "x", SUMI_ELEMENT_ACTIVATION, n->rows, 64),
                     qkv =
                         sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "qkv", .x = x, .weight = n->weight});
    for (int32_t row = 0; row < n->rows; row += n->part) {
        sumi_plan_qk_norm_rope(plan, &(sumi_plan_qk_args){.label = "norm",
                                                          .qkv = qkv,
                                                          .row = row,
                                                          .rows = n->part,
                                                          .q_heads = n->heads,
                                                          .kv_heads = n->heads,
                                                          .dim = n->dim,
                                                          .q_norm = n->norm,
                                                          .k_norm = n->norm,
                                                          .eps = 1e-5f,
                                                          .rotary = SUMI_ROTARY_NONE});
    }
    return qkv;
}

// Kept k are e4m3 if all that read them are attentions whose own q and k are, and only copies of k | v in bfloat16 write
// them. Otherwise nothing of these attentions is. The prefix's own q and k stay in bfloat16, which the copies read.
TEST(kept_keys_are_e4m3_for_all_readers_or_for_none)
{
    enum { KEPT = 33, ROWS = 40, HEADS = 3, READERS = 2 };
    typedef enum trouble {
        NONE,
        BATCH,         // no trouble: many ops norm the own rows
        BOUND,         // the host reads the kept value
        OTHER_READER,  // an op that is no attention reads it
        CAUSAL_READER, // the second attention cannot have e4m3
        OTHER_WRITER,  // a sum changes the kept value
        UNALIGNED,     // k | v begins at an odd column
        NOT_NORMED,    // the second attention's own k are not normed
        IN_PREPARATION // the second attention is in another section
    } trouble;
    static const struct {
        const char* what;
        int32_t dim;
        bool is_requested;
        trouble how;
        bool e4m3;
    } s_cases[] = {{"two readers", 128, true, NONE, true},
                   {"a batch", 128, true, BATCH, true},
                   {"not requested", 128, false, NONE, false},
                   {"heads of 96", 96, true, NONE, false},
                   {"heads of 64", 64, true, NONE, false},
                   {"bound", 128, true, BOUND, false},
                   {"another reader", 128, true, OTHER_READER, false},
                   {"a causal reader", 128, true, CAUSAL_READER, false},
                   {"another writer", 128, true, OTHER_WRITER, false},
                   {"an odd column", 128, true, UNALIGNED, false},
                   {"keys without a norm", 128, true, NOT_NORMED, false},
                   {"a reader in another section", 128, true, IN_PREPARATION, false}};
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    sumi_error error = {0};
    for (size_t n = 0; n < 2 * (sizeof s_cases / sizeof *s_cases); n++) {
        const size_t i = n / 2;
        const bool is_hopper = n % 2 == 0;
        const int32_t dim = s_cases[i].dim, width = HEADS * dim;
        const trouble how = s_cases[i].how;
        sumi_weight weight = make_weight("qkv", 3 * width, 64, NULL, SUMI_DTYPE_BF16),
                    norm = make_weight("norm", 1, dim, NULL, SUMI_DTYPE_BF16);
        sumi_plan plan;
        sumi_plan_begin(&plan, &heap, 2);
        plan.arrange = is_hopper ? arrange_for_hopper : arrange_for_86;
        plan.weight_options.attention = s_cases[i].is_requested ? SUMI_ATTENTION_8BIT : SUMI_ATTENTION_AUTO;
        sumi_plan_section(&plan, SUMI_SECTION_PREPARE, 1, 0);
        normed_value of = {KEPT, KEPT, HEADS, dim, &weight, &norm};
        const sumi_value prefix = write_normed(&plan, &of),
                         kept = sumi_plan_value(&plan, "kept", SUMI_ELEMENT_ACTIVATION, KEPT, 2 * width);
        for (int32_t row = 0; row < KEPT; row += 11) {
            const int32_t column = how == UNALIGNED && row > 0 ? width - 1 : width;
            const sumi_value part =
                sumi_plan_view(&plan, "k_and_v", prefix, (sumi_span){row, 11}, (sumi_span){column, 2 * width});
            sumi_plan_copy_rows(&plan, &(sumi_plan_copy_args){.x = part, .y = kept, .y_row = row, .rows = 11});
        }
        const sumi_value other = sumi_plan_bound(&plan, "other", SUMI_ELEMENT_ACTIVATION, KEPT, 2 * width);
        const sumi_plan_copy_args read = {.x = kept, .y = other, .rows = KEPT};
        const sumi_plan_add_rows_args write = {.label = "sum", .x = other, .y = kept, .rows = 1, .scale = 1.0f};
        if (how == OTHER_READER) sumi_plan_copy_rows(&plan, &read);
        if (how == OTHER_WRITER) sumi_plan_add_rows(&plan, &write);
        plan.values[kept.id - 1].bound = how == BOUND;

        of.rows = ROWS;
        of.part = how == BATCH ? 2 : ROWS;
        sumi_value own[READERS];
        const sumi_sequence sequence = {{{3, KEPT - 3}, {0, ROWS}}, 2, 1, 1, 0};
        for (int32_t r = 0; r < READERS; r++) {
            const bool is_denoising = r == 0 || how != IN_PREPARATION;
            sumi_plan_section(&plan, is_denoising ? SUMI_SECTION_DENOISE : SUMI_SECTION_PREPARE, 1, 0);
            const sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, ROWS, 64);
            own[r] = r == 1 && how == NOT_NORMED
                       ? sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "qkv", .x = x, .weight = &weight})
                       : write_normed(&plan, &of);
            sumi_attention attention = {.q_heads = HEADS,
                                        .kv_heads = HEADS,
                                        .dim = dim,
                                        .scale = 0.1f,
                                        .causal = r == 1 && how == CAUSAL_READER,
                                        .sequences = &sequence,
                                        .sequence_count = 1};
            const sumi_value y = sumi_plan_bound(&plan, "y", SUMI_ELEMENT_ACTIVATION, ROWS, width);
            sumi_plan_attention_into(
                &plan, &(sumi_plan_attention_args){
                           .label = "attention", .qkv = own[r], .attention = &attention, .y = y, .kept = kept});
        }
        CHECK_NUMBER(sumi_plan_finish(&plan, &error), SUMI_OK);
        const bool is_wanted = is_hopper && s_cases[i].e4m3,
                   is_kept = (sumi_plan_info(&plan, kept)->marks & SUMI_CUDA_VALUE_KEPT_E4M3) != 0;
        bool is_right = is_kept == is_wanted && sumi_plan_info(&plan, prefix)->marks == 0;
        for (int32_t r = 0; r < READERS; r++) {
            const bool is_e4m3 = (sumi_plan_info(&plan, own[r])->marks & SUMI_CUDA_VALUE_QK_E4M3) != 0;
            is_right = is_right && is_e4m3 == is_wanted;
        }
        for (size_t op = 0; op < plan.op_count; op++)
            is_right = is_right && (plan.ops[op].marks & SUMI_CUDA_OP_INT8_ATTENTION) == 0;
        if (!is_right) printf("  %s, %s\n", s_cases[i].what, is_hopper ? "9.0" : "8.6");
        CHECK(is_right);
        sumi_plan_end(&plan);
    }
    CHECK_TEXT(error.text, "");
}

TEST(a_sum_and_the_norm_of_its_rows_are_one_kernel)
{
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    sumi_error error = {0};
    // The sum writes rows 2 to 33 of 40. cols, rows, row: columns, rows and first row of the norm. is_same: the norm
    // reads the sum. is_apart: there is another op between them.
    static const struct {
        int32_t cols, rows, row;
        bool is_same, is_apart, expected;
    } s_cases[] = {{256, 32, 2, true, false, true},   {4096, 32, 2, true, false, true},
                   {4104, 32, 2, true, false, false}, {252, 32, 2, true, false, false},
                   {256, 31, 2, true, false, false},  {256, 32, 3, true, false, false},
                   {256, 32, 2, false, false, false}, {256, 32, 2, true, true, false}};
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        sumi_plan plan;
        begin_plan_for_90(&plan, &heap);
        sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 2, 0);
        sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 40, s_cases[i].cols),
                   other = sumi_plan_bound(&plan, "other", SUMI_ELEMENT_ACTIVATION, 40, s_cases[i].cols);
        // The sum is the last reader of b. If the pair did not keep b alive, the output of the norm would get its
        // memory.
        sumi_value b = sumi_plan_activate(&plan, other, SUMI_ACT_SILU);
        sumi_plan_norm_gate_add(&plan, &(sumi_plan_norm_gate_add_args){
                                           .label = "sum", .x = x, .x_row = 2, .branch = b, .rows = 32, .eps = 1e-5f});
        int32_t sum = (int32_t)plan.op_count - 1;
        if (s_cases[i].is_apart) (void)sumi_plan_activate(&plan, other, SUMI_ACT_SILU);
        (void)sumi_plan_norm(&plan, &(sumi_plan_norm_args){.label = "norm",
                                                           .x = s_cases[i].is_same ? x : other,
                                                           .x_row = s_cases[i].row,
                                                           .rows = s_cases[i].rows,
                                                           .eps = 1e-5f});
        CHECK(sumi_plan_finish(&plan, &error) == SUMI_OK);
        CHECK(sumi_cuda_is_fused_norm(&plan, sum) == s_cases[i].expected
              && sumi_cuda_is_fused_norm(&plan, sum + 1) == s_cases[i].expected);
        CHECK(!sumi_cuda_is_fused_norm(&plan, sum - 1) && !sumi_cuda_is_fused_norm(&plan, sum + 2));
        sumi_plan_end(&plan);
    }
}

// A norm over all channels that a tile of the convolution has, in the place of what the convolution wrote.
TEST(a_convolution_and_the_norm_of_its_pixels_are_one_kernel)
{
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    sumi_error error = {0};
    typedef enum difference {
        NOTHING,
        PORTABLE,
        ADDS,
        LOW,
        UPSAMPLES,
        ELSEWHERE,
        APART,
        WITHOUT_SILU,
        LAYER,
        UNWEIGHTED
    } difference;
    static const struct {
        int32_t in, out;
        difference difference;
        bool expected;
    } s_cases[] = {{96, 96, NOTHING, true},       {192, 96, NOTHING, true},   {192, 192, NOTHING, true},
                   {64, 192, NOTHING, true},      {96, 192, NOTHING, false}, // tiles of 96 columns
                   {64, 96, NOTHING, false},      {384, 384, NOTHING, false}, {144, 144, NOTHING, false},
                   {96, 96, PORTABLE, false},     {96, 96, ADDS, false},      {96, 96, LOW, false},
                   {96, 96, UPSAMPLES, false},    {96, 96, ELSEWHERE, false}, {96, 96, APART, false},
                   {96, 96, WITHOUT_SILU, false}, {96, 96, LAYER, false},     {96, 96, UNWEIGHTED, false}};
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        const int32_t in = s_cases[i].in, out = s_cases[i].out;
        const difference differs = s_cases[i].difference;
        const sumi_weight weight = make_weight("conv", out, 9 * in, NULL, SUMI_DTYPE_BF16),
                          vector = make_weight("bias", 1, out, NULL, SUMI_DTYPE_F32);
        const int32_t height = differs == LOW ? 7 : 16, pixels = height * 16, scale = differs == UPSAMPLES ? 4 : 1;
        sumi_plan plan;
        sumi_plan_begin(&plan, &heap, 2);
        plan.arrange = differs == PORTABLE ? arrange_for_90 : arrange_for_hopper;
        sumi_plan_section(&plan, SUMI_SECTION_DECODE, 1, 0);
        const sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, pixels, in),
                         added = sumi_plan_bound(&plan, "added", SUMI_ELEMENT_ACTIVATION, pixels * scale, out);
        const sumi_op_conv shape = {.height = height, .width = 16, .upsamples = differs == UPSAMPLES};
        const sumi_value y =
            sumi_plan_conv(&plan, &(sumi_plan_conv_args){.label = "conv",
                                                         .x = x,
                                                         .weight = &weight,
                                                         .bias = &vector,
                                                         .shape = shape,
                                                         .residual = differs == ADDS ? added : SUMI_NO_VALUE});
        if (differs == APART) (void)sumi_plan_activate(&plan, added, SUMI_ACT_SILU);
        (void)sumi_plan_norm(&plan, &(sumi_plan_norm_args){.label = "norm",
                                                           .x = y,
                                                           .norm = differs == LAYER ? SUMI_NORM_LAYER : SUMI_NORM_RMS,
                                                           .weight = differs == UNWEIGHTED ? NULL : &vector,
                                                           .eps = 1e-26f,
                                                           .silu = differs != WITHOUT_SILU,
                                                           .y = differs == ELSEWHERE ? SUMI_NO_VALUE : y});
        CHECK_NUMBER(sumi_plan_finish(&plan, &error), SUMI_OK);
        CHECK_NUMBER(sumi_plan_validate(&plan, &error), SUMI_OK);
        CHECK_TEXT(error.text, "");
        if (sumi_cuda_is_fused_conv(&plan, 0) != s_cases[i].expected)
            printf("  %d to %d channels, difference %d\n", (int)in, (int)out, (int)differs);
        CHECK(sumi_cuda_is_fused_conv(&plan, 0) == s_cases[i].expected
              && sumi_cuda_is_fused_conv(&plan, 1) == s_cases[i].expected && !sumi_cuda_is_fused_conv(&plan, 2));
        sumi_plan_end(&plan);
    }
}

// Two products in int8 with weights of one shape, of which neither reads the other one's rows, are beside each other.
TEST(products_of_two_streams_are_beside_each_other)
{
    typedef enum what_reads { OWN, THE_OTHER, OVERLAPPING } what_reads;
    static const struct {
        const char* what;
        int32_t cols; // of the second weight
        sumi_weight_format weights;
        bool is_hopper, is_joint, is_biased;
        what_reads second;
        bool expected;
    } s_cases[] = {
        {"two values", 512, SUMI_WEIGHTS_INT8, true, false, true, OWN, true},
        {"rows of one value", 512, SUMI_WEIGHTS_INT8, true, true, true, OWN, true},
        {"overlapping rows of one value", 512, SUMI_WEIGHTS_INT8, true, true, true, OVERLAPPING, false},
        {"the second reads the first", 512, SUMI_WEIGHTS_INT8, true, false, true, THE_OTHER, false},
        {"another width", 768, SUMI_WEIGHTS_INT8, true, false, true, OWN, false},
        {"one bias", 512, SUMI_WEIGHTS_INT8, true, false, false, OWN, false},
        {"fp8", 512, SUMI_WEIGHTS_FP8, true, false, true, OWN, false},
        {"bfloat16", 512, SUMI_WEIGHTS_BF16, true, false, true, OWN, false},
        {"another card", 512, SUMI_WEIGHTS_INT8, false, false, true, OWN, false},
    };
    enum { ROWS = 64, FEW = 8 };
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    sumi_error error = {0};
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        sumi_weight first = make_weight("first", 512, 512, NULL, SUMI_DTYPE_BF16),
                    second = make_weight("second", 512, s_cases[i].cols, NULL, SUMI_DTYPE_BF16),
                    third = make_weight("third", 512, 512, NULL, SUMI_DTYPE_BF16),
                    bias = make_weight("bias", 1, 512, NULL, SUMI_DTYPE_BF16);
        sumi_plan plan;
        sumi_plan_begin(&plan, &heap, 2);
        plan.arrange = s_cases[i].is_hopper ? arrange_for_hopper : arrange_for_86;
        plan.weight_options.weights = s_cases[i].weights;
        sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 2, 0);
        const sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, ROWS, 512),
                         few = sumi_plan_bound(&plan, "few", SUMI_ELEMENT_ACTIVATION, FEW, s_cases[i].cols),
                         joint = sumi_plan_bound(&plan, "joint", SUMI_ELEMENT_ACTIVATION, ROWS + FEW, 512);
        sumi_plan_linear_args a = {.label = "first", .x = x, .rows = ROWS, .weight = &first, .bias = &bias},
                              b = {.label = "second",
                                   .x = few,
                                   .rows = FEW,
                                   .weight = &second,
                                   .bias = s_cases[i].is_biased ? &bias : NULL};
        if (s_cases[i].is_joint) {
            a.y = b.y = joint;
            b.y_row = s_cases[i].second == OVERLAPPING ? ROWS - 1 : ROWS;
        }
        const sumi_value made = sumi_plan_linear(&plan, &a);
        if (s_cases[i].second == THE_OTHER) b.x = made;
        (void)sumi_plan_linear(&plan, &b);
        (void)sumi_plan_linear(&plan,
                               &(sumi_plan_linear_args){.label = "third", .x = x, .weight = &third, .bias = &bias});
        CHECK(sumi_plan_finish(&plan, &error) == SUMI_OK);
        CHECK_TEXT(error.text, "");
        if (plan.ops[0].is_beside_next != s_cases[i].expected) printf("  %s\n", s_cases[i].what);
        CHECK(plan.ops[0].is_beside_next == s_cases[i].expected && !plan.ops[2].is_beside_next);
        CHECK(!(plan.ops[0].is_beside_next && plan.ops[1].is_beside_next));
        CHECK(!plan.ops[0].is_first_of_pair && !sumi_cuda_is_fused_gated(&plan, 0));
        sumi_plan_end(&plan);
    }
}

// sumi_cuda_share() divides the units of an op among its slices.
TEST(shares_cover_every_unit_once)
{
    sumi_op op = {.range_count = 13};
    sumi_cuda_run run = {.op = &op};
    for (int32_t units = 0; units < 40; units++) {
        for (int32_t step = 1; step <= 13; step++) {
            int32_t at = 0, begin, end;
            for (int32_t p = 0; p < 13; p += step) {
                run.range_begin = p;
                run.range_end = p + step < 13 ? p + step : 13;
                sumi_cuda_share(&run, units, &begin, &end);
                CHECK(begin == at && end >= begin);
                at = end;
            }
            CHECK_NUMBER(at, units);
        }
    }
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(forms_follow_from_the_ops);
    RUN(eight_bits_take_large_weights_of_the_denoising_section);
    RUN(eight_bits_take_rows_that_become_shorter);
    RUN(text_encoders_have_a_format_of_their_own);
    RUN(a_norm_balances_what_it_writes_for_balanced_products_alone);
    RUN(an_adapter_between_product_and_gate_keeps_them_two_kernels);
    RUN(a_value_that_is_read_by_a_view_stays_in_16_bits);
    RUN(a_kronecker_product_keeps_its_forms);
    RUN(attention_in_8_bits_has_its_conditions);
    RUN(kept_keys_are_e4m3_for_all_readers_or_for_none);
    RUN(a_sum_and_the_norm_of_its_rows_are_one_kernel);
    RUN(a_convolution_and_the_norm_of_its_pixels_are_one_kernel);
    RUN(products_of_two_streams_are_beside_each_other);
    RUN(shares_cover_every_unit_once);
    TEST_END();
}
#else
#include "without_cuda.h"
#endif
