// What runs a plan: one runner per backend. The engine knows backends only through this table.
#ifndef SUMI_PLAN_RUNNER_H
#define SUMI_PLAN_RUNNER_H
#include "plan/plan.h"

typedef struct sumi_runner sumi_runner;
typedef struct sumi_runner_functions {
    void (*destroy)(sumi_runner* runner);
    const char* (*name)(const sumi_runner* runner);   // "cpu"
    const char* (*device)(const sumi_runner* runner); // "x86-64 AVX-512, 2 threads"
    sumi_rates (*rates)(const sumi_runner* runner);   // for slicing; measured once at creation or refined
    uint64_t (*element_bytes)(const sumi_runner* runner, sumi_element element);
    // Extra bytes the backend needs beside the arena to run this plan (packing buffers, per worker): part of the exact memory answer.
    uint64_t (*scratch_bytes)(const sumi_runner* runner, const sumi_plan* plan);
    // Makes arena and scratch large enough for the plan. The only place that allocates. Fails with an out-of-memory result and leaves what was there.
    sumi_result (*reserve)(sumi_runner* runner, const sumi_plan* plan, sumi_error* error);
    void (*release)(sumi_runner* runner);              // gives arena and scratch back
    void (*start)(sumi_runner* runner, const sumi_plan* plan); // a new run: constants are written, bound inputs not yet
    void (*write)(sumi_runner* runner, const sumi_plan* plan, sumi_value value, uint64_t offset, const void* data, uint64_t bytes);
    void (*read)(sumi_runner* runner, const sumi_plan* plan, sumi_value value, uint64_t offset, void* into, uint64_t bytes);
    // Runs one slice with the given counter. The CPU returns when it is done; a GPU returns after submitting.
    sumi_result (*run)(sumi_runner* runner, const sumi_plan* plan, const sumi_slice* slice, int32_t counter, sumi_error* error);
    bool (*idle)(sumi_runner* runner); // everything submitted has finished
} sumi_runner_functions;

struct sumi_runner { const sumi_runner_functions* functions; };
#endif
