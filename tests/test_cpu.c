// The CPU's runner: the same rows have the same bits among others and in a new run; every allocation fails, and a
// run makes none; it takes the best instructions that the CPU has.
#include "base/memory.h"
#include "base/platform.h"
#include "cpu/cpu.h"
#include "cpu_scenes.h"
#include "plan/plan.h"
#include "plan/runner.h"
#include "plan_runner.h"
#include "system.h"

// ---- Adapters -------------------------------------------------------------------------------------------------------

// A prompt of eight tokens, the shortest that networks make products of, sums alone as it does beside others: a batch
// gives the bits of single jobs.
TEST(eight_rows_have_the_same_bits_alone_and_among_more)
{
    enum { N = 70, K = 300, MANY = 40 };
    float *w = random_floats((size_t)N * K, 1.0f), *x = random_floats((size_t)MANY * K, 1.0f);
    for (size_t l = 0; l < sizeof s_levels / sizeof *s_levels; l++) {
        if (!has_level(s_levels[l])) continue;
        void* y[2] = {NULL, NULL};
        for (int i = 0; i < 2; i++) {
            linear_case c = {.m = i == 0 ? 8 : MANY, .n = N, .k = K, .weight = float_weight(w, N, K)};
            scene s = {.build = build_linear, .context = &c, .inputs = {NULL, x, NULL}};
            void* out[MAX_SCENE_VALUES] = {0};
            scene_once(&s, s_levels[l], 1, SPLIT_NONE, out);
            y[i] = out[0];
            free(out[1]), free(out[2]);
        }
        CHECK(y[0] != NULL && y[1] != NULL && memcmp(y[0], y[1], sizeof(float) * 8 * N) == 0);
        free(y[0]), free(y[1]);
    }
    free(w), free(x);
}

// ---- CONV, GROUP NORM -----------------------------------------------------------------------------------------------

TEST(a_new_run_packs_the_weights_anew)
{
    float w[9 * 16], bias[16] = {0}, x[25];
    for (int i = 0; i < 25; i++) x[i] = 1.0f;
    for (int i = 0; i < 9 * 16; i++) w[i] = 1.0f;
    conv_case c = {.conv = {5, 5, 3, 1, false, false, 0, 0},
                   .ci = 1,
                   .co = 16,
                   .weight = float_weight(w, 16, 9),
                   .bias = float_weight(bias, 1, 16)};
    scene s = {.context = &c};
    bench b;
    bench_begin(&b, SUMI_CPU_AUTO, 2);
    build_conv(&b, &s);
    if (bench_ready(&b)) {
        for (int run = 1; run <= 2; run++) {
            b.runner->functions->start(b.runner, &b.plan);
            bench_write(&b, s.values[1], x);
            bench_run(&b, SPLIT_NONE, 0);
            float* y = bench_read(&b, s.values[0]);
            CHECK(y[12 * 16 + 3] == 9.0f * (float)run);
            free(y);
            for (int i = 0; i < 9 * 16; i++) { // as if the model had been closed and another one lay at the same place
                w[i] = 2.0f;
            }
        }
    }
    bench_end(&b);
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

typedef struct counting {
    int until_failure;
    long blocks;
} counting;

static void* counting_allocate(size_t bytes, size_t alignment, void* user_data)
{
    counting* c = user_data;
    if (c->until_failure-- == 0) return NULL;
    c->blocks++;
    return system_allocate(bytes, alignment);
}

static void counting_release(void* memory, size_t bytes, void* user_data)
{
    (void)bytes;
    ((counting*)user_data)->blocks--;
    system_release(memory);
}

TEST(every_allocation_may_fail_and_a_run_makes_none)
{
    float* w = random_floats(64 * 64, 1.0f);
    sumi_weight weight = float_weight(w, 64, 64);
    int successes = 0;
    for (int n = 0; n < 40 && successes == 0; n++) {
        counting c = {n, 0};
        sumi_heap heap;
        sumi_allocator allocator = {0};
        allocator.allocate = counting_allocate;
        allocator.release = counting_release;
        allocator.user_data = &c;
        sumi_heap_init(&heap, &allocator);
        sumi_error error = {0};
        sumi_workers* workers = NULL;
        sumi_runner* runner = NULL;
        sumi_plan plan;
        sumi_plan_begin(&plan, &heap, 4);
        sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 1, 0);
        sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_FLOAT, 20, 64);
        sumi_plan_linear(
            &plan, &(sumi_plan_linear_args){.label = "linear", .x = x, .weight = &weight, .activation = SUMI_ACT_SILU});
        sumi_result result = sumi_plan_finish(&plan, &error);
        result = result != SUMI_OK ? result : sumi_workers_create(&heap, NULL, 2, &error, &workers);
        result = result != SUMI_OK ? result : sumi_cpu_create(&heap, workers, SUMI_CPU_AUTO, &error, &runner);
        if (result == SUMI_OK) {
            uint64_t before = heap.allocated_bytes,
                     promised = plan.arena_bytes + runner->functions->scratch_bytes(runner, &plan);
            result = runner->functions->reserve(runner, &plan, &error);
            if (result == SUMI_OK) {
                // and the two blocks' headers
                CHECK(heap.allocated_bytes - before >= promised && heap.allocated_bytes - before < promised + 512);
                uint64_t count = heap.count;
                runner->functions->start(runner, &plan);
                sumi_slice all = {.op_end = 1, .range_end = plan.ops[0].range_count};
                CHECK(runner->functions->run(runner, &plan, &all, 0, &error) == SUMI_OK);
                CHECK(runner->functions->reserve(runner, &plan, &error) == SUMI_OK); // room enough already
                CHECK(heap.count == count);
                CHECK(runner->async->idle(runner));
                CHECK_TEXT(runner->functions->name(runner), "cpu");
                CHECK(runner->functions->rates(runner).flops_per_us > 0.0);
                runner->functions->release(runner);
                CHECK(heap.allocated_bytes == before);
                c.until_failure = -1; // from here on there is memory
                CHECK(runner->functions->reserve(runner, &plan, &error) == SUMI_OK);
                successes++;
            }
        }
        if (result != SUMI_OK) {
            CHECK_NUMBER(result, SUMI_OUT_OF_HOST_MEMORY);
            CHECK(error.text[0] != 0);
        }
        if (runner != NULL) runner->functions->destroy(runner);
        sumi_workers_destroy(workers);
        sumi_plan_end(&plan);
        CHECK_NUMBER(c.blocks, 0);
    }
    CHECK(successes == 1);
    free(w);
}

TEST(a_level_that_the_cpu_lacks_is_refused)
{
    if (has_level(SUMI_CPU_AVX512)) SKIP("this CPU has every level");
    sumi_error error = {0};
    sumi_workers* workers;
    sumi_runner* runner;
    CHECK(sumi_workers_create(&s_heap, NULL, 1, &error, &workers) == SUMI_OK);
    CHECK(sumi_cpu_create(&s_heap, workers, SUMI_CPU_AVX512, &error, &runner) == SUMI_NOT_SUPPORTED && runner == NULL);
    sumi_workers_destroy(workers);
}

// The best level that the CPU has, and none above the one that SUMI_CPU_LEVEL names.
TEST(the_runner_takes_the_best_level_that_is_not_masked)
{
    const char* name = getenv("SUMI_CPU_LEVEL");
    const bool masks_all = name != NULL && strcmp(name, "portable") == 0,
               masks_one = masks_all || (name != NULL && strcmp(name, "avx2") == 0);
    CHECK(!(masks_all && has_level(SUMI_CPU_AVX2)) && !(masks_one && has_level(SUMI_CPU_AVX512)));
    size_t best = 0;
    for (size_t l = 0; l < sizeof s_levels / sizeof *s_levels; l++) {
        if (has_level(s_levels[l])) best = l;
    }
    sumi_error error = {0};
    sumi_workers* workers;
    sumi_runner* runner;
    CHECK_NUMBER(sumi_workers_create(&s_heap, NULL, 1, &error, &workers), SUMI_OK);
    CHECK_NUMBER(sumi_cpu_create(&s_heap, workers, SUMI_CPU_AUTO, &error, &runner), SUMI_OK);
    CHECK(strstr(runner->functions->device(runner), s_level_names[best]) != NULL);
    runner->functions->destroy(runner);
    sumi_workers_destroy(workers);
}

// What only a device has to do is done at once, and nothing is ever in flight.
TEST(every_function_is_there_and_nothing_is_pending)
{
    float *w = random_floats(24 * 40, 1.0f), *x = random_floats(8 * 40, 1.0f);
    linear_case c = {.m = 8, .n = 24, .k = 40, .weight = float_weight(w, 24, 40)};
    scene s = {.build = build_linear, .context = &c};
    bench b;
    bench_begin(&b, SUMI_CPU_AUTO, 2);
    build_linear(&b, &s);
    if (bench_ready(&b)) {
        sumi_runner* runner = b.runner;
        const sumi_runner_functions* f = runner->functions;
        const sumi_async_functions* async = runner->async;
        CHECK(table_is_whole(f, sizeof *f) && table_is_whole(async, sizeof *async) && runner->interop == NULL);
        const sumi_runner_traits traits = runner->traits;
        CHECK(!traits.has_device && !traits.has_memory && !traits.needs_preparing && !traits.has_formats);

        bool is_done = false;
        float progress = 0.0f;
        int32_t done = 1;
        CHECK(f->load(runner, &is_done, &progress, &b.error) == SUMI_OK && is_done && progress == 1.0f);
        is_done = false, progress = 0.0f;
        f->pace(runner, true);
        CHECK(f->prepare(runner, &b.plan, 1, &is_done, &progress, &b.error) == SUMI_OK && is_done && progress == 1.0f);
        CHECK(f->compiling(runner, &done) == 0 && done == 0);
        CHECK(f->is_ready(runner, &b.plan));

        const uint64_t bytes = b.plan.arena_bytes + f->scratch_bytes(runner, &b.plan);
        sumi_device_need need;
        CHECK(f->need(runner, &b.plan, 0, &need, &b.error) == SUMI_OK && need.fits && need.device_bytes == bytes);
        CHECK(f->need(runner, &b.plan, bytes, &need, &b.error) == SUMI_OK && need.fits);
        CHECK(f->need(runner, &b.plan, bytes - 1, &need, &b.error) == SUMI_OK && !need.fits);
        CHECK(need.weight_bytes + need.pinned_bytes + need.streamed_bytes == 0);
        sumi_device_capacity capacity;
        f->capacity(runner, &capacity);
        CHECK(!capacity.is_known && capacity.held_bytes + capacity.free_bytes + capacity.failed_request_bytes == 0);
        sumi_device_properties properties;
        f->properties(runner, &properties);
        CHECK(properties.capability == 0 && properties.device_bytes == 0);
        uint64_t held_bytes[4] = {1, 1, 1, 1};
        f->held_bytes(runner, held_bytes);
        CHECK(held_bytes[0] + held_bytes[1] + held_bytes[2] + held_bytes[3] == 0);
        const sumi_weight* list[] = {&c.weight};
        f->set_memory_limit(runner, 1);
        f->trim(runner);
        CHECK(!f->evict(runner, &b.plan));
        f->release_weights(runner, list, 1);
        f->release_plan(runner, &b.plan);
        f->list_kernels(runner, NULL, NULL); // there are none to call it for

        bench_write(&b, s.values[1], x);
        async->measure_delay(runner, true);
        bench_run(&b, SPLIT_NONE, 0);
        sumi_slice_time time;
        CHECK(async->pending(runner) == 0 && async->collect(runner, &time, 1) == 0 && async->idle(runner));
        async->wait(runner, 1);
        async->wait_all(runner);
        CHECK(async->start_read(runner, &b.plan, s.values[0], &b.error) == SUMI_OK);
        CHECK(async->health(runner, &b.error) == SUMI_OK);
        const sumi_publication picture = {.value = s.values[0], .address = 16};
        CHECK_NUMBER(async->publish(runner, &b.plan, &picture, &b.error), SUMI_NOT_SUPPORTED);
        f->release(runner);
        CHECK(!f->is_ready(runner, &b.plan));
    }
    bench_end(&b);
    free(w), free(x);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    RUN(eight_rows_have_the_same_bits_alone_and_among_more);
    RUN(a_new_run_packs_the_weights_anew);
    RUN(every_allocation_may_fail_and_a_run_makes_none);
    RUN(a_level_that_the_cpu_lacks_is_refused);
    RUN(the_runner_takes_the_best_level_that_is_not_masked);
    RUN(every_function_is_there_and_nothing_is_pending);
    TEST_END();
}
