// The CUDA runner on a driver that needs no GPU (fake_cuda): what it asks of the driver, in which order, and what it does when
// the driver refuses. Kernels do nothing there; what they compute is the subject of test_cuda_ops.c. Weights:
// test_cuda_uploads.c; how plans are arranged: test_cuda_arrange.c.
#include "test.h"
#ifdef SUMI_HAS_CUDA
#include "cuda/plan_records.h"
#include "fake_cuda.h"
#include "runner_fixture.h"

// ---- What the driver sees -------------------------------------------------------------------------------------------

TEST(leaves_nothing_behind)
{
    bench b;
    static model m;
    network n;
    sumi_error error = {0};
    open_network(&b, &m, &n, 100, &error);
    CHECK(run_network(b.runner, &n, &error) == SUMI_OK);
    CHECK_TEXT(error.text, "");
    sumi_plan_end(&n.plan); // not forgotten: the runner must not look at it when it goes
    close_bench(&b);
}

TEST(graphs_launch_what_the_ops_launch)
{
    bench b;
    static model m;
    uint64_t launches[2];
    make_model(&m);
    for (int graphs = 0; graphs < 2; graphs++) {
        for (uint32_t slice_us = 0; slice_us < 8; slice_us += 7) {
            fake_reset();
            network n;
            sumi_error error = {0};
            open_services(&b);
            CHECK(open_runner(&b, &(sumi_cuda_options){.without_graphs = graphs == 0}, &error) == SUMI_OK);
            CHECK(write_network(&n, &b, &m, TOKENS, slice_us, &error) == SUMI_OK);
            fake_count_launches(true);
            CHECK(run_network(b.runner, &n, &error) == SUMI_OK);
            uint64_t hash = fake_launch_hash();
            CHECK(graphs == 0 ? fake_graph_launches() == 0 : fake_graph_launches() > STEPS);
            CHECK(fake_launch_count() > STEPS);
            if (slice_us == 0) launches[graphs] = hash;
            plan_forget(b.runner, &n.plan);
            sumi_plan_end(&n.plan);
            close_bench(&b);
        }
    }
    CHECK(launches[0] == launches[1]);
}

TEST(runs_without_graphs_when_the_driver_makes_none)
{
    bench b;
    static model m;
    network n;
    sumi_error error = {0};
    open_network(&b, &m, &n, 100, &error);
    fake_refuse_graphs(true);
    CHECK(run_network(b.runner, &n, &error) == SUMI_OK);
    CHECK_NUMBER(fake_graph_launches(), 0);
    CHECK(fake_launch_count() > STEPS);
    close_network(&b, &n);
}

TEST(a_warm_run_allocates_nothing)
{
    bench b;
    static model m;
    network n;
    sumi_error error = {0};
    open_network(&b, &m, &n, 100, &error);
    CHECK(run_network(b.runner, &n, &error) == SUMI_OK);
    const uint64_t host = atomic_load(&b.heap.count), device = fake_allocation_count();
    CHECK(run_network(b.runner, &n, &error) == SUMI_OK);
    CHECK_NUMBER(atomic_load(&b.heap.count), host);
    CHECK_NUMBER(fake_allocation_count(), device);
    close_network(&b, &n);
}

// Everything that a run needs goes, so that the next one begins at the beginning.
static void forget_all(bench* b, network* n, const model* m)
{
    plan_forget(b->runner, &n->plan);
    b->runner->functions->release_weights(b->runner, m->list, 6);
    b->runner->functions->release(b->runner);
}

TEST(every_allocation_of_creation_may_fail)
{
    bool fails = true;
    for (int32_t nth = 1; fails && nth < 100; nth++) {
        for (int kind = 0; kind < 2; kind++) {
            fake_reset();
            bench b;
            sumi_error error = {0};
            open_services(&b);
            if (kind == 0) fake_fail_allocation(nth);
            else b.fails_at = nth;
            const sumi_engine_desc desc = {.cuda = {.ordinal = -1}};
            const sumi_result result = sumi_cuda_create(&b.heap, b.workers, &desc, NULL, &error, &b.runner);
            const bool has_failed = kind == 0 ? fake_fail_allocation(0) : b.fails_at == 0;
            CHECK(result == (!has_failed ? SUMI_OK : kind == 0 ? SUMI_OUT_OF_DEVICE_MEMORY : SUMI_OUT_OF_HOST_MEMORY));
            CHECK((result == SUMI_OK) == (b.runner != NULL));
            if (kind == 1) fails = has_failed;
            b.fails_at = 0;
            close_bench(&b);
        }
    }
    CHECK(!fails);
}

// In one runner, so that each failure is also followed by a success.
TEST(every_allocation_of_a_run_may_fail)
{
    bench b;
    static model m;
    network n;
    sumi_error error = {0};
    open_network(&b, &m, &n, 100, &error);
    for (int kind = 0; kind < 2 && b.runner != NULL; kind++) {
        bool fails = true;
        int32_t nth = 1;
        for (; fails && nth < 400; nth++) {
            error = (sumi_error){0};
            if (kind == 0) fake_fail_allocation(nth);
            else b.fails_at = nth;
            const sumi_result result = run_network(b.runner, &n, &error);
            fails = kind == 0 ? fake_fail_allocation(0) : b.fails_at == 0;
            b.fails_at = 0;
            if (!fails) CHECK(result == SUMI_OK);
            else if (kind == 1) CHECK(result == SUMI_OUT_OF_HOST_MEMORY);
            // ok: smaller blocks were had
            else CHECK(result == SUMI_OK || result == SUMI_OUT_OF_DEVICE_MEMORY || result == SUMI_OUT_OF_HOST_MEMORY);
            error = (sumi_error){0};
            CHECK(run_network(b.runner, &n, &error) == SUMI_OK);
            CHECK_TEXT(error.text, "");
            forget_all(&b, &n, &m);
        }
        CHECK(!fails && nth > 6);
    }
    sumi_plan_end(&n.plan);
    close_bench(&b);
}

TEST(a_larger_plan_takes_the_arena_over_and_graphs_follow)
{
    fake_reset();
    bench b;
    static model m;
    network small, large;
    sumi_error error = {0};
    make_model(&m);
    open_services(&b);
    CHECK(open_runner(&b, NULL, &error) == SUMI_OK);
    CHECK(write_network(&small, &b, &m, 8, 100, &error) == SUMI_OK);
    CHECK(write_network(&large, &b, &m, 1000, 100, &error) == SUMI_OK);
    CHECK(run_network(b.runner, &small, &error) == SUMI_OK);
    sumi_cuda* cuda = (sumi_cuda*)b.runner;
    const CUdeviceptr before = cuda->arena.address;
    CHECK(plan_ready(b.runner, &large.plan, &error) == SUMI_OK);
    CHECK(cuda->arena.address != before || cuda->arena.bytes >= large.plan.arena_bytes);
    CHECK_NUMBER(sumi_cuda_find_plan(cuda, &small.plan)->graph_count, 0);
    CHECK(run_network(b.runner, &small, &error) == SUMI_OK);
    CHECK_NUMBER(sumi_cuda_find_plan(cuda, &small.plan)->graph_count, small.plan.slice_count);
    CHECK_NUMBER(sumi_cuda_find_plan(cuda, &large.plan)->graph_count, large.plan.slice_count);

    // A larger one for which there is no room, not even after the old one has gone: a clear result, and the small one
    // works again.
    network huge;
    CHECK(write_network(&huge, &b, &m, 1024 * 1024, 100, &error) == SUMI_OK);
    fake_limit_device_bytes(64u << 20);
    CHECK(plan_prepare(b.runner, &huge.plan, &error) == SUMI_OK);
    const sumi_result refused = b.runner->functions->reserve(b.runner, &huge.plan, &error);
    CHECK(refused == SUMI_OUT_OF_DEVICE_MEMORY || refused == SUMI_OUT_OF_HOST_MEMORY); // whichever is asked for first
    error = (sumi_error){0};
    CHECK(run_network(b.runner, &small, &error) == SUMI_OK);
    fake_limit_device_bytes(0);
    plan_forget(b.runner, &huge.plan);
    plan_forget(b.runner, &large.plan);
    plan_forget(b.runner, &small.plan);
    sumi_plan_end(&huge.plan);
    sumi_plan_end(&large.plan);
    sumi_plan_end(&small.plan);
    close_bench(&b);
}

TEST(the_hosts_context_stays_current)
{
    fake_reset();
    bench b;
    static model m;
    network n;
    sumi_error error = {0};
    make_model(&m);
    struct CUctx_st* host = fake_host_context(0);
    fake_make_current(host);
#define CHECK_CURRENT(call)                                                                                            \
    do {                                                                                                               \
        call;                                                                                                          \
        CHECK(fake_current() == host && fake_context_depth() == 0);                                                    \
    } while (0)
    open_services(&b);
    CHECK_CURRENT(CHECK(open_runner(&b, NULL, &error) == SUMI_OK));
    const sumi_runner_functions* f = b.runner->functions;
    CHECK(write_network(&n, &b, &m, TOKENS, 100, &error) == SUMI_OK);
    CHECK_CURRENT(CHECK(plan_prepare(b.runner, &n.plan, &error) == SUMI_OK));
    CHECK_CURRENT(CHECK(f->reserve(b.runner, &n.plan, &error) == SUMI_OK));
    CHECK_CURRENT(CHECK(plan_prepare(b.runner, &n.plan, &error) == SUMI_OK));
    CHECK_CURRENT(f->start(b.runner, &n.plan));
    CHECK_CURRENT(write_ids(b.runner, &n));
    CHECK_CURRENT(CHECK(f->run(b.runner, &n.plan, &n.plan.slices[0], 0, &error) == SUMI_OK));
    CHECK_CURRENT(CHECK(f->run(b.runner, &n.plan, &n.plan.slices[1], 99, &error) == SUMI_OK));
    CHECK_CURRENT(CHECK(f->start_read(b.runner, &n.plan, n.y, &error) == SUMI_OK));
    CHECK_CURRENT(f->wait(b.runner, 1));
    sumi_slice_time time;
    CHECK_CURRENT(f->collect(b.runner, &time));
    CHECK_CURRENT(f->collect(b.runner, &time));
    CHECK_CURRENT((void)f->idle(b.runner));
    CHECK_CURRENT(f->health(b.runner, &error));
    uint16_t y[TOKENS * WIDTH];
    CHECK_CURRENT(f->read(b.runner, &n.plan, n.y, 0, y, sizeof y));
    CHECK_CURRENT(f->release(b.runner));
    CHECK_CURRENT(f->release_weights(b.runner, m.list, 6));
    CHECK_CURRENT(f->release_plan(b.runner, &n.plan));
    sumi_plan_end(&n.plan);
    CHECK_CURRENT(f->destroy(b.runner));
    b.runner = NULL;
    fake_make_current(NULL);
    fake_host_release(host);
    close_bench(&b);
}

// ---- Inputs and results ---------------------------------------------------------------------------------------------

TEST(inputs_go_through_the_ring_whole)
{
    fake_reset();
    fake_complete_after(3); // copies are slow: the ring fills
    bench b;
    sumi_error error = {0};
    open_services(&b);
    CHECK(open_runner(&b, NULL, &error) == SUMI_OK);
    enum { ROWS = 3000, COLS = 1024 }; // 12 MB: more than the ring
    sumi_plan plan;
    sumi_runner_begin_plan(b.runner, &plan, &b.heap);
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
    CHECK(sumi_plan_slice(&plan, &(sumi_rates){1e6, 1e6, 3.0}, 0, &error) == SUMI_OK);
    CHECK(plan_ready(b.runner, &plan, &error) == SUMI_OK);
    unsigned char *from = malloc((size_t)ROWS * COLS * 4), *into = malloc((size_t)ROWS * COLS * 4);
    for (size_t i = 0; i < (size_t)ROWS * COLS * 4; i++) from[i] = (unsigned char)(i * 2654435761u >> 11);
    b.runner->functions->start(b.runner, &plan);
    uint64_t at = 0;
    for (uint64_t piece = 1; at < (uint64_t)ROWS * COLS * 4; at += piece, piece = piece * 3 + 1) {
        if (piece > (uint64_t)ROWS * COLS * 4 - at) piece = (uint64_t)ROWS * COLS * 4 - at;
        b.runner->functions->write(b.runner, &plan, y, at, from + at, piece);
    }
    CHECK(b.runner->functions->health(b.runner, &error) == SUMI_OK);
    CHECK(plan_read(b.runner, &plan, y, into, &error) == SUMI_OK); // no kernel has written over it: there are none here
    CHECK(memcmp(from, into, (size_t)ROWS * COLS * 4) == 0);
    int32_t counts[4] = {0};
    CHECK(plan_read(b.runner, &plan, c, counts, &error) == SUMI_OK);
    CHECK(memcmp(counts, s_counts, sizeof counts) == 0);
    CHECK(plan_read(b.runner, &plan, first, counts, &error) == SUMI_OK);
    CHECK(memcmp(counts, others, sizeof others) == 0);
    CHECK(b.runner->functions->start_read(b.runner, &plan, x, &error) == SUMI_INTERNAL); // nothing writes it
    free(from);
    free(into);
    plan_forget(b.runner, &plan);
    sumi_plan_end(&plan);
    close_bench(&b);
}

TEST(slices_are_reported_in_order_when_they_are_over)
{
    bench b;
    static model m;
    network n;
    sumi_error error = {0};
    open_network(&b, &m, &n, 0, &error);
    CHECK(plan_ready(b.runner, &n.plan, &error) == SUMI_OK);
    const sumi_runner_functions* f = b.runner->functions;
    f->start(b.runner, &n.plan);
    write_ids(b.runner, &n);
    sumi_slice_time time = {.us = -1.0};
    CHECK(!f->collect(b.runner, &time) && f->pending(b.runner) == 0);
    f->wait(b.runner, 1); // returns at once
    fake_complete_after(2);
    CHECK(f->run(b.runner, &n.plan, &n.plan.slices[0], 0, &error) == SUMI_OK);
    CHECK(f->start_read(b.runner, &n.plan, n.y, &error) == SUMI_OK);
    CHECK(f->run(b.runner, &n.plan, &n.plan.slices[1], 5, &error) == SUMI_OK);
    CHECK_NUMBER(f->pending(b.runner), 2);
    CHECK(!f->idle(b.runner));
    int32_t asked = 1;
    while (!f->collect(b.runner, &time) && asked < 20) asked++;
    CHECK(asked > 3 && asked < 20); // the slice, then the copy behind it
    CHECK(time.us >= 0.0);
    CHECK_NUMBER(f->pending(b.runner), 1);
    f->wait(b.runner, 1);
    CHECK(f->collect(b.runner, &time));
    CHECK_NUMBER(f->pending(b.runner), 0);
    uint16_t y[TOKENS * WIDTH];
    f->read(b.runner, &n.plan, n.y, 0, y, sizeof y);
    CHECK(f->idle(b.runner));
    fake_complete_after(0);
    for (int32_t i = 0; i < SUMI_RUNNER_DEPTH; i++)
        CHECK(f->run(b.runner, &n.plan, &n.plan.slices[0], 0, &error) == SUMI_OK);
    CHECK(f->run(b.runner, &n.plan, &n.plan.slices[0], 0, &error) == SUMI_INTERNAL); // the engine never does that
    CHECK(runner_drain(b.runner, 0, NULL, NULL) == SUMI_OK);
    close_network(&b, &n);
}

TEST(a_lost_device_is_said_and_stays_lost)
{
    bench b;
    static model m;
    network n;
    sumi_error error = {0};
    open_network(&b, &m, &n, 100, &error);
    CHECK(plan_ready(b.runner, &n.plan, &error) == SUMI_OK);
    const sumi_runner_functions* f = b.runner->functions;
    f->start(b.runner, &n.plan);
    write_ids(b.runner, &n);
    CHECK(f->run(b.runner, &n.plan, &n.plan.slices[0], 0, &error) == SUMI_OK);
    fake_lose_device();
    sumi_slice_time time;
    CHECK(!f->collect(b.runner, &time));
    CHECK(f->health(b.runner, &error) == SUMI_DEVICE_LOST);
    CHECK(error.text[0] != 0);
    CHECK_NUMBER(f->pending(b.runner), 0); // nothing to wait for
    f->wait(b.runner, 1);
    CHECK(f->idle(b.runner));
    error = (sumi_error){0};
    CHECK(f->run(b.runner, &n.plan, &n.plan.slices[0], 0, &error) == SUMI_DEVICE_LOST);
    bool is_done;
    float progress;
    CHECK(f->prepare(b.runner, &n.plan, 1000, &is_done, &progress, NULL) == SUMI_DEVICE_LOST);
    f->start(b.runner, &n.plan);
    write_ids(b.runner, &n);
    uint16_t y[TOKENS * WIDTH];
    f->read(b.runner, &n.plan, n.y, 0, y, sizeof y); // anything, but no crash
    CHECK(f->health(b.runner, NULL) == SUMI_DEVICE_LOST);
    plan_forget(b.runner, &n.plan);
    f->release_weights(b.runner, m.list, 6);
    sumi_plan_end(&n.plan);
    close_bench(&b);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(leaves_nothing_behind);
    RUN(graphs_launch_what_the_ops_launch);
    RUN(runs_without_graphs_when_the_driver_makes_none);
    RUN(a_warm_run_allocates_nothing);
    RUN(every_allocation_of_creation_may_fail);
    RUN(every_allocation_of_a_run_may_fail);
    RUN(a_larger_plan_takes_the_arena_over_and_graphs_follow);
    RUN(the_hosts_context_stays_current);
    RUN(inputs_go_through_the_ring_whole);
    RUN(slices_are_reported_in_order_when_they_are_over);
    RUN(a_lost_device_is_said_and_stays_lost);
    TEST_END();
}
#else
TEST(the_runner) { SKIP("this build has no CUDA backend"); }

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(the_runner);
    TEST_END();
}
#endif
