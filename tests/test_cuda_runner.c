// The CUDA runner (cuda/cuda.h) on the fake driver: what it asks of the driver while it runs a plan, and what it does
// when the driver refuses. Covered are CUDA graphs, allocations and their failures, the arena, inputs and results,
// finished slices, a lost device, and the context of the host program. How weights reach the device is in
// test_cuda_uploads.c, what the backend marks in a plan in test_cuda_arrange.c. Kernels do nothing here; what they
// compute is checked by test_cuda_ops.c.
#include "at_once.h"
#include "test.h"
#ifdef SUMI_HAS_CUDA
#include "cuda/state.h"
#include "fake_cuda.h"
#include "interop/interop.h"
#include "runner_fixture.h"
#include <math.h>

// ---- Running a plan -------------------------------------------------------------------------------------------------

TEST(leaves_nothing_behind)
{
    runner_setup setup;
    static small_model s_model;
    small_plan small;
    sumi_error error = {0};
    open_small_plan(&setup, &s_model, &small, 100, &error);
    CHECK(run_small_plan(setup.runner, &small, &error) == SUMI_OK);
    CHECK_TEXT(error.text, "");
    // Without plan_release(): the runner still knows the plan, but must not read it when it is destroyed.
    sumi_plan_end(&small.plan);
    close_setup(&setup);
}

TEST(the_hosts_context_stays_current)
{
    fake_reset();
    runner_setup setup;
    static small_model s_model;
    small_plan small;
    sumi_error error = {0};
    make_small_model(&s_model);
    struct CUctx_st* host = fake_host_context(0);
    fake_make_current(host);
#define CHECK_CURRENT(call)                                                                                            \
    do {                                                                                                               \
        call;                                                                                                          \
        CHECK(fake_current() == host && fake_context_depth() == 0);                                                    \
    } while (0)
    open_setup(&setup);
    CHECK_CURRENT(CHECK(create_runner(&setup, NULL, &error) == SUMI_OK));
    const sumi_runner_functions* f = setup.runner->functions;
    CHECK(table_is_whole(f, sizeof *f) && table_is_whole(setup.runner->async, sizeof *setup.runner->async)
          && table_is_whole(setup.runner->interop, sizeof *setup.runner->interop));
    CHECK(write_small_plan(&small, &setup, &s_model, TOKENS, 100, &error) == SUMI_OK);
    CHECK_CURRENT(CHECK(plan_prepare(setup.runner, &small.plan, &error) == SUMI_OK));
    CHECK_CURRENT(CHECK(f->reserve(setup.runner, &small.plan, &error) == SUMI_OK));
    CHECK_CURRENT(CHECK(plan_prepare(setup.runner, &small.plan, &error) == SUMI_OK));
    CHECK_CURRENT(f->start(setup.runner, &small.plan));
    CHECK_CURRENT(write_ids(setup.runner, &small));
    CHECK_CURRENT(CHECK(f->run(setup.runner, &small.plan, &small.plan.slices[0], 0, &error) == SUMI_OK));
    CHECK_CURRENT(CHECK(f->run(setup.runner, &small.plan, &small.plan.slices[1], 99, &error) == SUMI_OK));
    CHECK_CURRENT(CHECK(setup.runner->async->start_read(setup.runner, &small.plan, small.y, &error) == SUMI_OK));
    CHECK_CURRENT(setup.runner->async->wait(setup.runner, 1));
    sumi_slice_time time;
    CHECK_CURRENT(setup.runner->async->collect(setup.runner, &time, 1));
    CHECK_CURRENT(setup.runner->async->collect(setup.runner, &time, 1));
    CHECK_CURRENT((void)setup.runner->async->idle(setup.runner));
    CHECK_CURRENT(setup.runner->async->health(setup.runner, &error));
    uint16_t y[TOKENS * WIDTH];
    CHECK_CURRENT(f->read(setup.runner, &small.plan, small.y, 0, y, sizeof y));
    CHECK_CURRENT(f->release(setup.runner));
    CHECK_CURRENT(f->release_weights(setup.runner, s_model.list, 6));
    CHECK_CURRENT(f->release_plan(setup.runner, &small.plan));
    sumi_plan_end(&small.plan);
    CHECK_CURRENT(f->destroy(setup.runner));
    setup.runner = NULL;
    fake_make_current(NULL);
    fake_host_release(host);
    close_setup(&setup);
}

TEST(graphs_launch_what_the_ops_launch)
{
    runner_setup setup;
    static small_model s_model;
    uint64_t launches[2];
    make_small_model(&s_model);
    for (int graphs = 0; graphs < 2; graphs++) {
        for (uint32_t slice_us = 0; slice_us < 8; slice_us += 7) {
            fake_reset();
            small_plan small;
            sumi_error error = {0};
            open_setup(&setup);
            CHECK(create_runner(&setup, &(sumi_cuda_options){.without_graphs = graphs == 0}, &error) == SUMI_OK);
            CHECK(write_small_plan(&small, &setup, &s_model, TOKENS, slice_us, &error) == SUMI_OK);
            fake_count_launches(true);
            CHECK(run_small_plan(setup.runner, &small, &error) == SUMI_OK);
            uint64_t hash = fake_launch_hash();
            CHECK(graphs == 0 ? fake_graph_launches() == 0 : fake_graph_launches() > STEPS);
            CHECK(fake_launch_count() > STEPS);
            if (slice_us == 0) launches[graphs] = hash;
            plan_release(setup.runner, &small.plan);
            sumi_plan_end(&small.plan);
            close_setup(&setup);
        }
    }
    CHECK(launches[0] == launches[1]);
}

// Slices behind the last graph are launched op by op. A plan that repeats its slices takes the place of other plans.
TEST(graphs_are_limited_over_all_plans)
{
    static const int s_most[] = {0, 3};
    static small_model s_model;
    uint64_t hashes[2];
    make_small_model(&s_model);
    for (int limit = 0; limit < 2; limit++) {
        fake_reset();
        runner_setup setup;
        small_plan first, second;
        sumi_error error = {0};
        open_setup(&setup);
        CHECK(create_runner(&setup, &(sumi_cuda_options){.max_graphs = s_most[limit]}, &error) == SUMI_OK);
        CHECK(write_small_plan(&first, &setup, &s_model, TOKENS, 7, &error) == SUMI_OK);
        CHECK(write_small_plan(&second, &setup, &s_model, TOKENS, 7, &error) == SUMI_OK);
        const int slices = (int)first.plan.slice_count;
        CHECK(slices > s_most[1]);
        for (int i = 0; i < 4; i++) {
            small_plan* plan = i % 2 == 0 ? &first : &second;
            fake_count_launches(true);
            CHECK(run_small_plan(setup.runner, plan, &error) == SUMI_OK);
            const int count = sumi_cuda_find_plan((sumi_cuda*)setup.runner, &plan->plan)->group_graphs.count;
            CHECK_NUMBER(count, limit == 0 ? slices : s_most[limit]);
            CHECK(limit == 0 || fake_held_kind("graph exec") == s_most[limit]);
            CHECK(fake_graph_launches() > 0);
        }
        // The graphs of a plan that is given up are destroyed when others need their place.
        const uint64_t destroyed = fake_calls("cuGraphExecDestroy");
        sumi_device_drop_all_recordings(&((sumi_cuda*)setup.runner)->stock);
        CHECK_NUMBER(fake_calls("cuGraphExecDestroy"), destroyed);
        CHECK(run_small_plan(setup.runner, &second, &error) == SUMI_OK);
        CHECK(limit == 0 || fake_held_kind("graph exec") == s_most[limit]);
        hashes[limit] = fake_launch_hash(); // weights were uploaded by runs before
        plan_release(setup.runner, &second.plan);
        sumi_plan_end(&second.plan);
        close_small_plan(&setup, &first);
    }
    CHECK(hashes[0] == hashes[1]);
}

TEST(runs_without_graphs_when_the_driver_makes_none)
{
    runner_setup setup;
    static small_model s_model;
    small_plan small;
    sumi_error error = {0};
    open_small_plan(&setup, &s_model, &small, 100, &error);
    fake_refuse_graphs(true);
    CHECK(run_small_plan(setup.runner, &small, &error) == SUMI_OK);
    CHECK_NUMBER(fake_graph_launches(), 0);
    CHECK(fake_launch_count() > STEPS);
    close_small_plan(&setup, &small);
}

TEST(a_warm_run_allocates_nothing)
{
    runner_setup setup;
    static small_model s_model;
    small_plan small;
    sumi_error error = {0};
    open_small_plan(&setup, &s_model, &small, 100, &error);
    CHECK(run_small_plan(setup.runner, &small, &error) == SUMI_OK);
    const uint64_t host = atomic_load(&setup.heap.count), device = fake_allocation_count();
    CHECK(run_small_plan(setup.runner, &small, &error) == SUMI_OK);
    CHECK_NUMBER(atomic_load(&setup.heap.count), host);
    CHECK_NUMBER(fake_allocation_count(), device);
    close_small_plan(&setup, &small);
}

// Frees all that a run needs, so that the next run allocates it again.
static void release_everything(runner_setup* setup, small_plan* small, const small_model* model)
{
    plan_release(setup->runner, &small->plan);
    setup->runner->functions->release_weights(setup->runner, model->list, 6);
    setup->runner->functions->release(setup->runner);
}

// ---- Failed allocations ---------------------------------------------------------------------------------------------
// In both tests kind 0 is a failed allocation of the driver (device or pinned memory), kind 1 one of host memory.

TEST(every_allocation_of_creation_may_fail)
{
    bool fails = true;
    for (int32_t nth = 1; fails && nth < 100; nth++) {
        for (int kind = 0; kind < 2; kind++) {
            fake_reset();
            runner_setup setup;
            sumi_error error = {0};
            open_setup(&setup);
            if (kind == 0) fake_fail_allocation(nth);
            else setup.failing_allocation = nth;
            const sumi_engine_desc desc = {.cuda = {.ordinal = -1}};
            const sumi_result result = sumi_cuda_create(&setup.heap, setup.workers, &desc, NULL, &error, &setup.runner);
            const bool has_failed = kind == 0 ? fake_fail_allocation(0) : setup.failing_allocation == 0;
            CHECK(result == (!has_failed ? SUMI_OK : kind == 0 ? SUMI_OUT_OF_DEVICE_MEMORY : SUMI_OUT_OF_HOST_MEMORY));
            CHECK((result == SUMI_OK) == (setup.runner != NULL));
            if (kind == 1) fails = has_failed;
            setup.failing_allocation = 0;
            close_setup(&setup);
        }
    }
    CHECK(!fails);
}

// One runner has all the failures. After each of them a run must succeed.
TEST(every_allocation_of_a_run_may_fail)
{
    runner_setup setup;
    static small_model s_model;
    small_plan small;
    sumi_error error = {0};
    open_small_plan(&setup, &s_model, &small, 100, &error);
    for (int kind = 0; kind < 2 && setup.runner != NULL; kind++) {
        bool fails = true;
        int32_t nth = 1;
        for (; fails && nth < 400; nth++) {
            error = (sumi_error){0};
            if (kind == 0) fake_fail_allocation(nth);
            else setup.failing_allocation = nth;
            const sumi_result result = run_small_plan(setup.runner, &small, &error);
            fails = kind == 0 ? fake_fail_allocation(0) : setup.failing_allocation == 0;
            setup.failing_allocation = 0;
            if (!fails) CHECK(result == SUMI_OK);
            else if (kind == 1) CHECK(result == SUMI_OUT_OF_HOST_MEMORY);
            // it may succeed, with smaller blocks of memory
            else CHECK(result == SUMI_OK || result == SUMI_OUT_OF_DEVICE_MEMORY || result == SUMI_OUT_OF_HOST_MEMORY);
            error = (sumi_error){0};
            CHECK(run_small_plan(setup.runner, &small, &error) == SUMI_OK);
            CHECK_TEXT(error.text, "");
            release_everything(&setup, &small, &s_model);
        }
        CHECK(!fails && nth > 6);
    }
    sumi_plan_end(&small.plan);
    close_setup(&setup);
}

// ---- The arena ------------------------------------------------------------------------------------------------------

TEST(a_larger_plan_takes_the_arena_over_and_graphs_follow)
{
    fake_reset();
    runner_setup setup;
    static small_model s_model;
    small_plan small, large;
    sumi_error error = {0};
    make_small_model(&s_model);
    open_setup(&setup);
    CHECK(create_runner(&setup, NULL, &error) == SUMI_OK);
    CHECK(write_small_plan(&small, &setup, &s_model, 8, 100, &error) == SUMI_OK);
    CHECK(write_small_plan(&large, &setup, &s_model, 1000, 100, &error) == SUMI_OK);
    CHECK(run_small_plan(setup.runner, &small, &error) == SUMI_OK);
    sumi_cuda* cuda = (sumi_cuda*)setup.runner;
    const CUdeviceptr before = cuda->stock.arena.address;
    CHECK(plan_ready(setup.runner, &large.plan, &error) == SUMI_OK);
    CHECK(cuda->stock.arena.address != before || cuda->stock.arena.bytes >= large.plan.arena_bytes);
    CHECK_NUMBER(sumi_cuda_find_plan(cuda, &small.plan)->group_graphs.count, 0);
    CHECK(run_small_plan(setup.runner, &small, &error) == SUMI_OK);
    CHECK_NUMBER(sumi_cuda_find_plan(cuda, &small.plan)->group_graphs.count, small.plan.slice_count);
    CHECK_NUMBER(sumi_cuda_find_plan(cuda, &large.plan)->group_graphs.count, large.plan.slice_count);

    // There is no room for the arena of an even larger plan, not even after the old arena was freed. That plan fails
    // with one of the results below, and the small plan still runs.
    small_plan huge;
    CHECK(write_small_plan(&huge, &setup, &s_model, 1024 * 1024, 100, &error) == SUMI_OK);
    fake_limit_device_bytes(64u << 20);
    CHECK(plan_prepare(setup.runner, &huge.plan, &error) == SUMI_OK);
    const sumi_result refused = setup.runner->functions->reserve(setup.runner, &huge.plan, &error);
    CHECK(refused == SUMI_OUT_OF_DEVICE_MEMORY || refused == SUMI_OUT_OF_HOST_MEMORY); // whichever is allocated first
    error = (sumi_error){0};
    CHECK(run_small_plan(setup.runner, &small, &error) == SUMI_OK);
    fake_limit_device_bytes(0);
    plan_release(setup.runner, &huge.plan);
    plan_release(setup.runner, &large.plan);
    plan_release(setup.runner, &small.plan);
    sumi_plan_end(&huge.plan);
    sumi_plan_end(&large.plan);
    sumi_plan_end(&small.plan);
    close_setup(&setup);
}

// ---- Inputs, results and finished slices ----------------------------------------------------------------------------

TEST(inputs_go_through_the_ring_whole)
{
    fake_reset();
    fake_complete_after(3); // copies take a while, so that the ring buffer fills
    runner_setup setup;
    sumi_error error = {0};
    open_setup(&setup);
    CHECK(create_runner(&setup, NULL, &error) == SUMI_OK);
    enum { ROWS = 3000, COLS = 1024 }; // 12 MB: more than the ring buffer holds
    sumi_plan plan;
    sumi_runner_begin_plan(setup.runner, &plan, &setup.heap);
    sumi_plan_section(&plan, SUMI_SECTION_PREPARE, 1, 0);
    sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_FLOAT, ROWS, COLS);
    sumi_value y = sumi_plan_bound(&plan, "y", SUMI_ELEMENT_FLOAT, ROWS, COLS);
    const int32_t others[3] = {7, 8, 9};
    sumi_value first = sumi_plan_constant(&plan, "first", SUMI_ELEMENT_INT, 3, 1, others);
    sumi_value c = sumi_plan_constant(&plan, "c", SUMI_ELEMENT_INT, 2, 2, s_counts);
    sumi_plan_copy_rows(&plan, &(sumi_plan_copy_args){.x = first, .y = first, .y_row = 2, .rows = 1});
    sumi_plan_copy_rows(&plan, &(sumi_plan_copy_args){.x = x, .y = y, .rows = ROWS});
    sumi_plan_copy_rows(&plan, &(sumi_plan_copy_args){.x = c, .y = c, .y_row = 1, .rows = 1});
    CHECK(sumi_plan_finish(&plan, &error) == SUMI_OK);
    CHECK(plan_slice(&plan, &(sumi_rates){1e6, 1e6, 3.0}, 0, &error) == SUMI_OK);
    CHECK(plan_ready(setup.runner, &plan, &error) == SUMI_OK);
    unsigned char *from = malloc((size_t)ROWS * COLS * 4), *into = malloc((size_t)ROWS * COLS * 4);
    for (size_t i = 0; i < (size_t)ROWS * COLS * 4; i++) from[i] = (unsigned char)(i * 2654435761u >> 11);
    setup.runner->functions->start(setup.runner, &plan);
    uint64_t at = 0;
    for (uint64_t piece = 1; at < (uint64_t)ROWS * COLS * 4; at += piece, piece = piece * 3 + 1) {
        if (piece > (uint64_t)ROWS * COLS * 4 - at) piece = (uint64_t)ROWS * COLS * 4 - at;
        setup.runner->functions->write(setup.runner, &plan, y, at, from + at, piece);
    }
    CHECK(setup.runner->async->health(setup.runner, &error) == SUMI_OK);
    CHECK(plan_read(setup.runner, &plan, y, into, &error)
          == SUMI_OK); // still the bytes written above, because kernels do nothing here
    CHECK(memcmp(from, into, (size_t)ROWS * COLS * 4) == 0);
    int32_t counts[4] = {0};
    CHECK(plan_read(setup.runner, &plan, c, counts, &error) == SUMI_OK);
    CHECK(memcmp(counts, s_counts, sizeof counts) == 0);
    CHECK(plan_read(setup.runner, &plan, first, counts, &error) == SUMI_OK);
    CHECK(memcmp(counts, others, sizeof others) == 0);
    CHECK(setup.runner->async->start_read(setup.runner, &plan, x, &error) == SUMI_INTERNAL); // no op writes x
    free(from);
    free(into);
    plan_release(setup.runner, &plan);
    sumi_plan_end(&plan);
    close_setup(&setup);
}

TEST(slices_are_reported_in_order_when_they_are_over)
{
    runner_setup setup;
    static small_model s_model;
    small_plan small;
    sumi_error error = {0};
    open_small_plan(&setup, &s_model, &small, 0, &error);
    CHECK(plan_ready(setup.runner, &small.plan, &error) == SUMI_OK);
    const sumi_runner_functions* f = setup.runner->functions;
    f->start(setup.runner, &small.plan);
    write_ids(setup.runner, &small);
    sumi_slice_time time = {.us = -1.0};
    CHECK(!setup.runner->async->collect(setup.runner, &time, 1) && setup.runner->async->pending(setup.runner) == 0);
    setup.runner->async->wait(setup.runner, 1); // returns at once, because nothing is pending
    fake_complete_after(4);
    CHECK(f->run(setup.runner, &small.plan, &small.plan.slices[0], 0, &error) == SUMI_OK);
    CHECK(setup.runner->async->start_read(setup.runner, &small.plan, small.y, &error) == SUMI_OK);
    CHECK(f->run(setup.runner, &small.plan, &small.plan.slices[1], 5, &error) == SUMI_OK);
    CHECK_NUMBER(setup.runner->async->pending(setup.runner), 2);
    CHECK(!setup.runner->async->idle(setup.runner));
    int32_t asked = 1;
    while (!setup.runner->async->collect(setup.runner, &time, 1) && asked < 20) asked++;
    CHECK(asked > 4 && asked < 20); // the end of the slice, then the end of the copy after it
    CHECK(time.us >= 0.0);
    CHECK_NUMBER(setup.runner->async->pending(setup.runner), 1);
    setup.runner->async->wait(setup.runner, 1);
    CHECK_NUMBER(setup.runner->async->collect(setup.runner, &time, 1), 1);
    CHECK_NUMBER(setup.runner->async->pending(setup.runner), 0);
    uint16_t y[TOKENS * WIDTH];
    f->read(setup.runner, &small.plan, small.y, 0, y, sizeof y);
    CHECK(setup.runner->async->idle(setup.runner));
    fake_complete_after(0);
    for (int32_t i = 0; i < SUMI_RUNNER_DEPTH; i++)
        CHECK(f->run(setup.runner, &small.plan, &small.plan.slices[0], 0, &error) == SUMI_OK);
    CHECK(f->run(setup.runner, &small.plan, &small.plan.slices[0], 0, &error)
          == SUMI_INTERNAL); // more than SUMI_RUNNER_DEPTH are refused
    CHECK(runner_drain(setup.runner, 0, NULL, NULL) == SUMI_OK);
    close_small_plan(&setup, &small);
}

// ---- A lost device --------------------------------------------------------------------------------------------------

TEST(a_lost_device_is_reported_and_stays_lost)
{
    runner_setup setup;
    static small_model s_model;
    small_plan small;
    sumi_error error = {0};
    open_small_plan(&setup, &s_model, &small, 100, &error);
    CHECK(plan_ready(setup.runner, &small.plan, &error) == SUMI_OK);
    const sumi_runner_functions* f = setup.runner->functions;
    f->start(setup.runner, &small.plan);
    write_ids(setup.runner, &small);
    CHECK(f->run(setup.runner, &small.plan, &small.plan.slices[0], 0, &error) == SUMI_OK);
    fake_lose_device();
    sumi_slice_time time;
    CHECK(!setup.runner->async->collect(setup.runner, &time, 1));
    CHECK(setup.runner->async->health(setup.runner, &error) == SUMI_DEVICE_LOST);
    CHECK(error.text[0] != 0);
    CHECK_NUMBER(setup.runner->async->pending(setup.runner), 0); // there is nothing to wait for
    setup.runner->async->wait(setup.runner, 1);
    CHECK(setup.runner->async->idle(setup.runner));
    error = (sumi_error){0};
    CHECK(f->run(setup.runner, &small.plan, &small.plan.slices[0], 0, &error) == SUMI_DEVICE_LOST);
    bool is_done;
    float progress;
    CHECK(f->prepare(setup.runner, &small.plan, 1000, &is_done, &progress, NULL) == SUMI_DEVICE_LOST);
    f->start(setup.runner, &small.plan);
    write_ids(setup.runner, &small);
    uint16_t y[TOKENS * WIDTH];
    f->read(setup.runner, &small.plan, small.y, 0, y, sizeof y); // the bytes are undefined, but it must not crash
    CHECK(setup.runner->async->health(setup.runner, NULL) == SUMI_DEVICE_LOST);
    plan_release(setup.runner, &small.plan);
    f->release_weights(setup.runner, s_model.list, 6);
    sumi_plan_end(&small.plan);
    close_setup(&setup);
}

// A slice that directly follows another begins at that one's end. With as many in flight as there may be, each time is the
// one that an event of its own would give, also when events are used again.
TEST(slices_that_follow_one_another_have_their_own_times)
{
    enum { SLICES = 300, KERNELS = 97 };
    static double s_kernel_ms[KERNELS], s_measured[2][SLICES];
    for (int i = 0; i < KERNELS; i++) s_kernel_ms[i] = 0.01 * (1 + i * 31 % KERNELS);
    runner_setup setup;
    static small_model s_model;
    small_plan small;
    sumi_error error = {0};
    uint64_t records[2];
    for (int follows = 0; follows < 2; follows++) {
        open_small_plan(&setup, &s_model, &small, 7, &error);
        const sumi_runner_functions* f = setup.runner->functions;
        for (size_t i = 0; i < small.plan.slice_count; i++) small.plan.slices[i].predicted_us = follows ? 100.0f : 0.0f;
        CHECK(plan_ready(setup.runner, &small.plan, &error) == SUMI_OK);
        f->start(setup.runner, &small.plan);
        fake_kernel_times(s_kernel_ms, KERNELS);
        records[follows] = fake_calls("cuEventRecord");
        int submitted = 0;
        for (int collected = 0; collected < SLICES;) {
            fake_complete_after(1000000);
            for (; submitted < SLICES && setup.runner->async->pending(setup.runner) < SUMI_RUNNER_DEPTH; submitted++)
                CHECK(f->run(setup.runner, &small.plan, &small.plan.slices[(size_t)submitted % small.plan.slice_count],
                             0, &error)
                      == SUMI_OK);
            fake_complete_after(0);
            if (collected % 40 == 0) fake_finish();
            sumi_slice_time times[3];
            const int32_t count = setup.runner->async->collect(setup.runner, times, collected % 3 + 1);
            if (count == 0) fake_finish();
            for (int32_t i = 0; i < count && collected < SLICES; i++) s_measured[follows][collected++] = times[i].us;
        }
        records[follows] = fake_calls("cuEventRecord") - records[follows];
        fake_kernel_times(NULL, 0);
        close_small_plan(&setup, &small);
    }
    double sum = 0.0;
    for (int i = 0; i < SLICES; i++) {
        CHECK(s_measured[0][i] > 0.0 && fabs(s_measured[0][i] - s_measured[1][i]) < 0.5);
        sum += s_measured[0][i];
    }
    CHECK(sum > 0.0);
    CHECK_NUMBER(records[0], 2 * SLICES);
    CHECK(records[1] < SLICES + 2); // one begins, the others follow
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(leaves_nothing_behind);
    RUN(the_hosts_context_stays_current);
    RUN(graphs_launch_what_the_ops_launch);
    RUN(graphs_are_limited_over_all_plans);
    RUN(runs_without_graphs_when_the_driver_makes_none);
    RUN(a_warm_run_allocates_nothing);
    RUN(every_allocation_of_creation_may_fail);
    RUN(every_allocation_of_a_run_may_fail);
    RUN(a_larger_plan_takes_the_arena_over_and_graphs_follow);
    RUN(inputs_go_through_the_ring_whole);
    RUN(slices_are_reported_in_order_when_they_are_over);
    RUN(slices_that_follow_one_another_have_their_own_times);
    RUN(a_lost_device_is_reported_and_stays_lost);
    TEST_END();
}
#else
#include "without_cuda.h"
#endif
