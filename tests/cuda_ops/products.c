// Products by every kernel that can compute them. Each kernel is forced once, although the launcher would choose
// another.
#include "cuda_ops/linear.h"
#include "cuda_ops/run.h"
#ifdef SUMI_HAS_CUDA
#include "cuda/linear.h"
#include "cuda/state.h"
#endif

#ifdef SUMI_HAS_CUDA
static sumi_cuda_device* device_of(const machine* m) { return &((sumi_cuda*)m->runner)->device; }

// Every kernel has several tiles of this shape, and the last tile is not full.
#define PRODUCT_SHAPE 300, 560, 512
enum { GATED_BY_TABLE = GATED_RESIDUAL | FLOAT_TABLE | ALIGNED };
typedef struct product_case {
    op_case op;
    sumi_cuda_epilogue epilogue;
} product_case;
static const product_case s_products[] = {
    {{"product, plain", build_linear, PRODUCT_SHAPE, .bound = STORED}, SUMI_CUDA_EPILOGUE_plain},
    {{"product, bias", build_linear, PRODUCT_SHAPE, BIASED, .bound = STORED}, SUMI_CUDA_EPILOGUE_bias},
    {{"product, bias, gelu", build_linear, PRODUCT_SHAPE, BIASED, .act = SUMI_ACT_GELU_TANH, .bound = STORED},
     SUMI_CUDA_EPILOGUE_gelu},
    {{"product, bias, gelu erf", build_linear, PRODUCT_SHAPE, BIASED, .act = SUMI_ACT_GELU_ERF, .bound = STORED},
     SUMI_CUDA_EPILOGUE_gelu_erf},
    {{"product, gated", build_gated, 300, 280, 512, .act = SUMI_ACT_SILU, .bound = CHAINED}, SUMI_CUDA_EPILOGUE_swiglu},
    {{"product, residual", build_linear, PRODUCT_SHAPE, RESIDUAL, .bound = STORED}, SUMI_CUDA_EPILOGUE_resid},
    {{"product, bias, residual", build_linear, PRODUCT_SHAPE, BIASED | RESIDUAL, .bound = STORED},
     SUMI_CUDA_EPILOGUE_resid_bias},
    {{"product, gated residual", build_linear, PRODUCT_SHAPE, GATED_BY_TABLE, .counter = 2, .bound = STORED},
     SUMI_CUDA_EPILOGUE_gate},
    {{"product, bias, gated residual", build_linear, PRODUCT_SHAPE, BIASED | GATED_BY_TABLE, .counter = 2,
      .bound = STORED},
     SUMI_CUDA_EPILOGUE_gate_bias},
    {{"product, bias, silu", build_linear, PRODUCT_SHAPE, BIASED, .act = SUMI_ACT_SILU, .bound = STORED},
     SUMI_CUDA_EPILOGUE_any},
    {{"product, added", build_linear, PRODUCT_SHAPE, RESIDUAL | ADDING, .bound = STORED}, SUMI_CUDA_EPILOGUE_any},
    {{"product, added under a gate", build_linear, PRODUCT_SHAPE, GATED_BY_TABLE | ADDING, .counter = 2,
      .bound = STORED},
     SUMI_CUDA_EPILOGUE_any},
    {{"product 300x555x512, added under a gate", build_linear, 300, 555, 512, GATED_RESIDUAL | ADDING, .counter = 2,
      .bound = STORED},
     SUMI_CUDA_EPILOGUE_any},
    // So many columns that a device of 132 multiprocessors computes whole tiles and then halves, of which the last ones
    // lie beyond the last column. Slices take other halves, and must give the same bits.
    {{"product 300x12816x512, plain", build_linear, 300, 12816, 512, .bound = STORED}, SUMI_CUDA_EPILOGUE_plain},
    {{"product 300x9120x512, plain", build_linear, 300, 9120, 512, .bound = STORED}, SUMI_CUDA_EPILOGUE_plain},
    {{"product 300x12816x512, gated", build_gated, 300, 6408, 512, .act = SUMI_ACT_SILU, .bound = CHAINED},
     SUMI_CUDA_EPILOGUE_swiglu},
    {{"product 300x9120x512, gated", build_gated, 300, 4560, 512, .act = SUMI_ACT_SILU, .bound = CHAINED},
     SUMI_CUDA_EPILOGUE_swiglu},
    {{"product 300x12816x512, bias, gelu", build_linear, 300, 12816, 512, BIASED, .act = SUMI_ACT_GELU_TANH,
      .bound = STORED},
     SUMI_CUDA_EPILOGUE_gelu},
    {{"product 300x9120x512, bias", build_linear, 300, 9120, 512, BIASED, .bound = STORED}, SUMI_CUDA_EPILOGUE_bias},
    // few rows, as of a prompt, and deep enough for many parts of k
    {{"product 77x560x2560, plain", build_linear, 77, 560, 2560, .bound = STORED}, SUMI_CUDA_EPILOGUE_plain},
    {{"product 1x272x2064, bias", build_linear, 1, 272, 2064, BIASED, .bound = STORED}, SUMI_CUDA_EPILOGUE_bias},
    {{"product 16x560x2064, residual", build_linear, 16, 560, 2064, RESIDUAL, .bound = STORED},
     SUMI_CUDA_EPILOGUE_resid},
    {{"product 129x1120x2064, gated", build_gated, 129, 560, 2064, .act = SUMI_ACT_SILU, .bound = CHAINED},
     SUMI_CUDA_EPILOGUE_swiglu},
    {{"product 200x560x2064, bias, gelu erf", build_linear, 200, 560, 2064, BIASED, .act = SUMI_ACT_GELU_ERF,
      .bound = STORED},
     SUMI_CUDA_EPILOGUE_any},
    {{"product 12x560x512, added under a gate", build_linear, 12, 560, 512, GATED_BY_TABLE | ADDING, .counter = 2,
      .bound = STORED},
     SUMI_CUDA_EPILOGUE_any},
};

// Two streams in one launch, for each tile of the kernels that compute two products, and one after the other for other
// tiles. On a device of 132 multiprocessors there are two or three rounds of tiles, and the second product begins within
// one; the number of tile columns is odd, and no tile of the second product is full.
static const product_case s_streams[] = {
    {{"two streams, 300 and 77 x12816x512", build_streams, 300, 12816, 512, .b = 77}, SUMI_CUDA_EPILOGUE_bias},
    {{"two streams, 300 and 77 x12816x512, gelu", build_streams, 300, 12816, 512, .b = 77, .act = SUMI_ACT_GELU_TANH},
     SUMI_CUDA_EPILOGUE_gelu},
    {{"two streams, 300 and 77 x12816x512, gate", build_streams, 300, 12816, 512, GATED_RESIDUAL, 77, .counter = 1},
     SUMI_CUDA_EPILOGUE_gate_bias},
    {{"two streams, 1100 and 128 x1536x1024, gate", build_streams, 1100, 1536, 1024, GATED_RESIDUAL, 128, .counter = 2},
     SUMI_CUDA_EPILOGUE_gate_bias},
};

// Computes the case by every kernel and every number of parts of k that are possible, in `mode` and in small slices.
static void check_product(const product_case* product, const machine* m, sumi_cuda_operands operands, run_mode mode)
{
    static sumi_cuda_linear_choice s_list[512];
    static const char* const s_names[] = {"bf16", "fp8", "int8"};
    op_case c = product->op;
    const bool is_gated = product->epilogue == SUMI_CUDA_EPILOGUE_swiglu;
    if (operands != SUMI_CUDA_BF16) {
        const double bound = operands == SUMI_CUDA_INT8 ? INT8 : FP8;
        c.a |= operands == SUMI_CUDA_INT8 ? IN_INT8 : IN_FP8;
        c.bound = c.act == SUMI_ACT_NONE ? bound : 2 * bound; // as in the cases of feed-forward networks
    }
    const sumi_cuda_shape shape = {c.m, is_gated ? 2 * c.n : c.n, c.k, operands, true, product->epilogue};
    sumi_cuda_device* device = device_of(m);
    const int32_t count = sumi_cuda_list_linear(device, true, &shape, s_list, 512);
    CHECK(count > 0);
    case_data store = {.random = 0x9E3779B97F4A7C15u};
    scene s;
    void *want[MAX_VALUES] = {0}, *whole[MAX_VALUES] = {0}, *slices[MAX_VALUES] = {0};
    double error = 0.0;
    bool ok = run_case(&c, &store, &g_run.reference, RUN_WHOLE, want, &s);
    sumi_plan_end(&s.plan);
    for (int32_t i = 0; i < count && ok; i++) {
        const int errors = t_errors;
        device->forced_linear = &s_list[i];
        ok = run_case(&c, &store, m, mode, whole, &s);
        for (int k = 0; k < s.output_count && ok; k++)
            compare_output(&c, &s, k, m, whole[k], &g_run.reference, want[k], &error);
        sumi_plan_end(&s.plan);
        ok = run_case(&c, &store, m, RUN_SMALL, slices, &s) && ok;
        if (ok) check_same_bits(&c, &s, m->name, g_run_modes[RUN_SMALL], slices, whole);
        sumi_plan_end(&s.plan);
        free_outs(whole);
        free_outs(slices);
        if (t_errors > errors)
            printf("  %s, %s: method %d, kernel %d, %d parts of k\n", c.name, s_names[operands], (int)s_list[i].method,
                   (int)s_list[i].kernel, (int)s_list[i].split);
    }
    device->forced_linear = NULL;
    printf("  %-30s %-6s %3d ways                       %.3g\n", c.name, s_names[operands], (int)count, error);
    release_case_weights(m, &store);
    release_case_weights(&g_run.reference, &store);
    free_outs(want);
    for (int i = 0; i < store.block_count; i++) free(store.blocks[i]);
}

void check_products(void)
{
    if (g_run.machine_count == 0) return; // the device cannot be used, and that was reported
    for (size_t i = 0; i < sizeof s_products / sizeof *s_products; i++) {
        if (g_run.case_filter != NULL && strstr(s_products[i].op.name, g_run.case_filter) == NULL) continue;
        check_product(&s_products[i], &g_run.machines[0], SUMI_CUDA_BF16, RUN_WHOLE);
        // a product that adds to its output is never in 8 bits
        for (int o = SUMI_CUDA_E4M3; o <= SUMI_CUDA_INT8 && (s_products[i].op.a & ADDING) == 0; o++) {
            if (o == SUMI_CUDA_E4M3 && device_of(&g_run.machines[0])->capability < 89) continue;
            check_product(&s_products[i], &g_run.machines[0], (sumi_cuda_operands)o, RUN_WHOLE);
        }
        g_run.case_count++;
    }
    for (size_t i = 0; i < sizeof s_streams / sizeof *s_streams; i++) {
        if (g_run.case_filter != NULL && strstr(s_streams[i].op.name, g_run.case_filter) == NULL) continue;
        check_product(&s_streams[i], &g_run.machines[0], SUMI_CUDA_INT8, RUN_AGAIN); // both in one slice
        g_run.case_count++;
    }
}
#else
void check_products(void) {}
#endif
