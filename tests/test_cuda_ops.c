// Compares the GPU backend with the CPU backend, op by op: every kind of op at odd, tiny and real shapes, from the same
// inputs (rounded to bfloat16 first). Outputs are compared in norm and element by element. The GPU must also give its
// own bits again: in a second run, with and without CUDA graphs, and cut into slices of any size that run in another
// order.
//
//     test_cuda_ops [--small] [--list-kernels] [--as CARD] [TEST [CASE]]
//     test_cuda_ops --list        the tests' names
//
//     TEST, CASE       parts of names; each case prints its error
//     --small          only small cases, for slow tools
//     --list-kernels   which kernels were used, for tests/check_kernels.sh
//     --as 8.9         the kernels that are for such a card, on whatever GPU there is (tests/pretend_cuda)
//
// The cases are in the folder cuda_ops, a file for each subject. Before each run every byte of the arena is set to
// 0xFF, which is NaN in both floating types. This finds ops that read what was never written, and ops that do not write
// all of their output. Without a GPU the small cases are rehearsed: the CPU backend is compared with a second one that
// rounds activations to bfloat16, which shows that cases and bounds are sound.
//
// Bounds. Rounding to bfloat16 (8 bits of significand) changes an element by at most 2^-8 and an output by 1.7e-3 in
// norm, whatever the op. Inputs are exact and sums are float, so there should be no other error: STORED. An op that
// reads what another op has rounded adds the same error again: CHAINED. An op that computes nothing must give the same
// bits: EXACT.
#define TEST_STATE // the counters of test.h are defined here
#include "base/memory.h"
#include "cpu/cpu.h"
#include "cuda/cuda.h"
#include "cuda_ops/run.h"
#include "pretend.h"
#ifdef SUMI_HAS_CUDA
#include "cuda/state.h"
#endif

// The tables, in the order in which they run.
#define TABLES(X)                                                                                                      \
    X(moving_rows)                                                                                                     \
    X(linear)                                                                                                          \
    X(gated)                                                                                                           \
    X(fp8)                                                                                                             \
    X(int8)                                                                                                            \
    X(balanced)                                                                                                        \
    X(stored)                                                                                                          \
    X(quantised)                                                                                                       \
    X(chains)                                                                                                          \
    X(norms)                                                                                                           \
    X(rotary_and_tables)                                                                                               \
    X(attention)                                                                                                       \
    X(latents)                                                                                                         \
    X(conv)                                                                                                            \
    X(strips)                                                                                                          \
    X(group_norm)                                                                                                      \
    X(pictures)                                                                                                        \
    X(autoencoder)

#define RUN_TABLE(name)                                                                                                \
    TEST(name)                                                                                                         \
    {                                                                                                                  \
        if (g_run.skip_reason != NULL) SKIP(g_run.skip_reason);                                                        \
        if (!run_cases(name##_cases.cases, name##_cases.count)) SKIP("none of its cases is small");                    \
    }
TABLES(RUN_TABLE)
#undef RUN_TABLE

#ifdef SUMI_HAS_CUDA
TEST(products_by_every_kernel)
{
    if (g_run.skip_reason != NULL) SKIP(g_run.skip_reason);
    check_products();
}

TEST(depth_buffers_become_the_pictures_of_the_cpu)
{
    if (g_run.skip_reason != NULL) SKIP(g_run.skip_reason);
    check_depths();
}

TEST(a_depth_buffer_takes_less_than_half_a_millisecond)
{
    if (g_run.skip_reason != NULL) SKIP(g_run.skip_reason);
    time_depths();
}
#endif

TEST(publications)
{
    if (g_run.skip_reason != NULL) SKIP(g_run.skip_reason);
    check_publications();
}

TEST(weights_are_streamed)
{
    if (g_run.skip_reason != NULL) SKIP(g_run.skip_reason);
    check_streamed_weights(&g_run.machines[0]);
}

// ---- Without a GPU --------------------------------------------------------------------------------------------------
TEST(the_cases_are_sound)
{
#define LIST(name) &name##_cases,
    const case_table* const all[] = {TABLES(LIST)};
#undef LIST
    bool covered[SUMI_OP_KIND_COUNT] = {false};
    machine rehearsal = {"rehearsal", NULL, true};
    sumi_error error = {0};
    CHECK(sumi_cpu_create(&g_run.heap, g_run.workers, SUMI_CPU_AUTO, &error, &rehearsal.runner) == SUMI_OK);
    for (size_t l = 0; l < sizeof all / sizeof *all && rehearsal.runner != NULL; l++) {
        for (size_t i = 0; i < all[l]->count; i++) {
            const int alone[] = {-1};
            if (count_case_elements(&all[l]->cases[i], covered) <= SMALL)
                run_case_on_machines(&all[l]->cases[i], &g_run.reference, &rehearsal, alone, 1);
        }
    }
    for (int k = 0; k < SUMI_OP_KIND_COUNT; k++) {
        if (!covered[k]) printf("  no case has the op %s\n", sumi_op_name((sumi_op_kind)k));
        CHECK(covered[k]);
    }
    if (rehearsal.runner != NULL) rehearsal.runner->functions->destroy(rehearsal.runner);
}

// ---- The machines ---------------------------------------------------------------------------------------------------
static char s_reason[700];

static bool add_machine(const char* name, const sumi_cuda_options* options, int same_as)
{
    sumi_error error = {0};
    sumi_engine_desc desc = sumi_engine_defaults();
    desc.backend = SUMI_BACKEND_CUDA;
    sumi_runner* runner = NULL;
    sumi_result result = sumi_cuda_create(&g_run.heap, g_run.workers, &desc, options, &error, &runner);
    if (result == SUMI_OK) result = runner_load(runner, &error);
    if (result != SUMI_OK) {
        // Tests are skipped if there is no device or no CUDA in this build. A device that cannot be used is a failure.
        bool is_absent = g_run.machine_count == 0
                      && (result == SUMI_NO_DEVICE || result == SUMI_NOT_SUPPORTED || result == SUMI_DRIVER_TOO_OLD
                          || result == SUMI_DEVICE_UNSUPPORTED);
        snprintf(s_reason, sizeof s_reason, "%s", error.text);
        if (is_absent) g_run.skip_reason = s_reason;
        else printf("  %s: %s\n", name, error.text), t_failed++;
        if (runner != NULL) runner->functions->destroy(runner);
        return false;
    }
    if (g_run.machine_count == 0) printf("%s\n", runner->functions->device(runner));
    g_run.same_as[g_run.machine_count] = same_as;
    g_run.machines[g_run.machine_count++] = (machine){name, runner, false};
    return true;
}

static int32_t capability(const sumi_runner* runner)
{
    sumi_device_properties properties;
    runner->functions->properties(runner, &properties);
    return properties.capability;
}

int main(int argc, char** argv)
{
    if (!pretend_take_argument(&argc, argv)) return 2;
    bool lists_kernels = false;
    g_run.max_elements = UINT64_MAX;
    for (; argc > 1 && argv[1][0] == '-' && strcmp(argv[1], "--list") != 0; argv[1] = argv[0], argv++, argc--) {
        if (strcmp(argv[1], "--small") == 0) g_run.max_elements = SMALL;
        else if (strcmp(argv[1], "--list-kernels") == 0) lists_kernels = true;
        else
            return fprintf(stderr,
                           "usage: test_cuda_ops [--small] [--list-kernels] [--as CARD] [--list | TEST [CASE]]\n"),
                   2;
    }
    TEST_BEGIN(argc, argv);
    g_run.case_filter = argc > 2 ? argv[2] : NULL;
    sumi_error error = {0};
    sumi_heap_init(&g_run.heap, NULL);
    g_run.reference.name = "CPU";
    if (sumi_workers_create(&g_run.heap, NULL, 0, &error, &g_run.workers) != SUMI_OK
        || sumi_cpu_create(&g_run.heap, g_run.workers, SUMI_CPU_AUTO, &error, &g_run.reference.runner) != SUMI_OK) {
        printf("%s\n", error.text);
        return 1;
    }
    if (add_machine("the best kernels", NULL, -1)) {
        add_machine("without graphs", &(sumi_cuda_options){.without_graphs = true}, 0);
        if (capability(g_run.machines[0].runner) == 90) {
            add_machine("portable kernels", &(sumi_cuda_options){.without_hopper = true}, -1);
        }
#ifdef SUMI_HAS_CUDA
        // As on GPUs for consumers: 100 KiB of shared memory per multiprocessor, of which a block may use 99.
        if (add_machine("kernels for less memory", &(sumi_cuda_options){.without_hopper = true}, -1)) {
            sumi_cuda_device* device = &((sumi_cuda*)g_run.machines[g_run.machine_count - 1].runner)->device;
            device->shared_per_multiprocessor =
                device->shared_per_multiprocessor < 102400 ? device->shared_per_multiprocessor : 102400;
            device->shared_per_block = device->shared_per_block < 101376 ? device->shared_per_block : 101376;
        }
#endif
    } else if (g_run.skip_reason == NULL) {
        g_run.skip_reason = s_reason;
    }
    RUN(the_cases_are_sound);
#define RUN_TABLE(name) RUN(name);
    TABLES(RUN_TABLE)
#undef RUN_TABLE
#ifdef SUMI_HAS_CUDA
    RUN(products_by_every_kernel);
    RUN(depth_buffers_become_the_pictures_of_the_cpu);
    RUN(a_depth_buffer_takes_less_than_half_a_millisecond);
#endif
    RUN(publications);
    RUN(weights_are_streamed);
    if (g_run.case_filter != NULL && g_run.case_count == 0 && g_run.skip_reason == NULL)
        printf("FAILED: no case has %s in its name\n", g_run.case_filter), t_failed++;
    for (int i = 0; i < g_run.machine_count && lists_kernels; i++) print_kernels(g_run.machines[i].runner);
    for (int i = 0; i < g_run.machine_count; i++)
        g_run.machines[i].runner->functions->destroy(g_run.machines[i].runner);
    g_run.reference.runner->functions->destroy(g_run.reference.runner);
    sumi_workers_destroy(g_run.workers);
    if (atomic_load(&g_run.heap.allocated_bytes) != 0)
        printf("  %llu bytes were not given back\n", (unsigned long long)atomic_load(&g_run.heap.allocated_bytes)),
            t_failed++;
    TEST_END();
}
