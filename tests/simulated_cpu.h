// A CPU that computes nothing: slices let a clock that the test turns pass by what their ops cost on it. What a
// test says of a hundred jobs then holds on every machine, however busy it is.
#ifndef SIMULATED_CPU_H
#define SIMULATED_CPU_H
#include "engine_fixture.h"
#include "fake_clock.h"
#include "jobs/engine_state.h"
#include <math.h>

static uint32_t s_random;

// 0 .. 1
static inline double next_random(void)
{
    s_random = s_random * 1664525u + 1013904223u;
    return (double)(s_random >> 8) / (double)(1u << 24);
}

static inline sumi_rates simulated_rates(const sumi_runner* runner)
{
    (void)runner;
    return (sumi_rates){40000.0, 8000.0, 1.0};
}

// The rows that the work ranges before this one compute.
static inline double rows_before(const sumi_op* op, int32_t range)
{
    const int32_t computing = range > op->preparing_count ? range - op->preparing_count : 0;
    if (op->is_cut) return (double)op->rows * computing / (op->range_count - op->preparing_count);
    const int64_t rows = (int64_t)range * op->range_rows;
    return rows < op->rows ? (double)rows : (double)op->rows;
}

static const sumi_engine* s_engine; // that computes

static inline bool is_change(const sumi_plan* plan, sumi_value value)
{
    for (size_t i = 0; i < plan->op_count; i++) {
        if (plan->ops[i].kind == SUMI_OP_RESIDUAL_CHANGE && plan->ops[i].out.id == value.id) return true;
    }
    return false;
}

// Nothing was computed: the pictures are black, and all their values are finite. Residuals change by about as much as
// the sigmas do.
static inline void simulated_read(sumi_runner* runner, const sumi_plan* plan, sumi_value value, uint64_t offset,
                                  void* into, uint64_t bytes)
{
    (void)runner, (void)offset;
    memset(into, 0, (size_t)bytes);
    if (!is_change(plan, value)) return;
    const float sigma_change = s_engine->jobs.running->u.plan_job.progress.step_cache.reuse.sigma_change;
    float* sums = into;
    for (size_t i = 0; i + 1 < bytes / sizeof *sums; i += 2) {
        sums[i] = sigma_change * (float)(0.8 + 0.4 * next_random());
        sums[i + 1] = 1.0f;
    }
}

static sumi_runner_functions s_functions;

// The demo model on an engine whose slices `run` simulates. One engine at a time.
static inline sumi_engine* open_simulated(sumi_result (*run)(sumi_runner*, const sumi_plan*, const sumi_slice*, int32_t,
                                                             sumi_error*),
                                          uint32_t max_slice_us, sumi_model** out_model)
{
    memset(&s_host, 0, sizeof s_host);
    sumi_engine_desc desc = host_desc(&s_host);
    desc.cpu_thread_count = 1;
    desc.max_slice_us = max_slice_us;
    sumi_engine* engine = NULL;
    if (sumi_engine_create(&desc, &engine) != SUMI_OK) return NULL;
    *out_model = load_model_at(engine, "samples/demo_model");
    s_functions = *engine->runner->functions;
    s_functions.rates = simulated_rates;
    s_functions.run = run;
    s_functions.read = simulated_read;
    engine->runner->functions = &s_functions;
    s_engine = engine;
    return engine;
}
#endif
