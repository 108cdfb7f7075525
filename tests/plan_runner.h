// Runs plans on a runner as the engine does (plan/runner.h), but blocking: for tests of whichever backend.
//
//     runner_load | plan_ready | start, plan_write ..  | plan_run_all          | plan_read ..  | plan_release
//     once          weights,     the caller              every slice, in order   fetch and read
//                   arena, graphs
#ifndef PLAN_RUNNER_H
#define PLAN_RUNNER_H
#include "base/dtype.h"
#include "base/platform.h"
#include "plan/runner.h"
#include "plan/validate.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Whether every function of a table is there.
static inline bool table_is_whole(const void* table, size_t bytes)
{
    typedef void function(void);
    for (size_t at = 0; at < bytes; at += sizeof(function*)) {
        function* entry;
        memcpy(&entry, (const char*)table + at, sizeof entry);
        if (entry == NULL) return false;
    }
    return true;
}

static inline sumi_result runner_load(sumi_runner* runner, sumi_error* error)
{
    sumi_result result = SUMI_OK;
    float progress;
    for (bool done = false; result == SUMI_OK && !done;)
        result = runner->functions->load(runner, &done, &progress, error);
    return result;
}

static inline sumi_result plan_prepare_valid(sumi_runner* runner, const sumi_plan* plan, sumi_error* error)
{
    sumi_result result = SUMI_OK;
    float progress;
    for (bool done = false; result == SUMI_OK && !done;)
        result = runner->functions->prepare(runner, plan, 10000, &done, &progress, error);
    return result;
}

static inline sumi_result plan_prepare(sumi_runner* runner, const sumi_plan* plan, sumi_error* error)
{
    sumi_result result = sumi_plan_validate(plan, error);
    return result == SUMI_OK ? plan_prepare_valid(runner, plan, error) : result;
}

// A finished and sliced plan: weights first, so that a failure leaves the arena as it was; graphs need the arena.
static inline sumi_result plan_ready(sumi_runner* runner, const sumi_plan* plan, sumi_error* error)
{
    sumi_result result = plan_prepare(runner, plan, error);
    if (result == SUMI_OK) result = runner->functions->reserve(runner, plan, error);
    return result == SUMI_OK ? plan_prepare_valid(runner, plan, error) : result;
}

// Waits until at most `left` slices are unreported; with left 0 also until copies have arrived. *device_us grows by
// what the slices took (NULL: not asked).
static inline sumi_result runner_drain(sumi_runner* runner, int32_t left, double* device_us, sumi_error* error)
{
    const sumi_async_functions* f = runner->async;
    while (f->pending(runner) > left) {
        sumi_slice_time time;
        f->wait(runner, 1);
        sumi_result result = f->health(runner, error);
        if (result != SUMI_OK) return result;
        if (f->collect(runner, &time, 1) > 0 && device_us != NULL) *device_us += time.us;
    }
    while (left == 0 && !f->idle(runner)) {
        sumi_result result = f->health(runner, error);
        if (result != SUMI_OK) return result;
        sumi_sleep_us(20);
    }
    return f->health(runner, error);
}

static inline sumi_result plan_run_slice(sumi_runner* runner, const sumi_plan* plan, const sumi_slice* slice,
                                         int32_t counter, double* device_us, sumi_error* error)
{
    sumi_result result = runner_drain(runner, SUMI_RUNNER_DEPTH - 1, device_us, error);
    return result == SUMI_OK ? runner->functions->run(runner, plan, slice, counter, error) : result;
}

static inline sumi_result plan_run_all(sumi_runner* runner, const sumi_plan* plan, double* device_us, sumi_error* error)
{
    sumi_result result = SUMI_OK;
    for (size_t s = 0; result == SUMI_OK && s < plan->section_count; s++) {
        const sumi_section* section = &plan->sections[s];
        for (int32_t k = 0; result == SUMI_OK && k < section->repeat && !section->is_alternative; k++)
            for (int32_t i = section->slice_begin; result == SUMI_OK && i < section->slice_end; i++)
                result = plan_run_slice(runner, plan, &plan->slices[i], section->first_counter + k, device_us, error);
    }
    return result == SUMI_OK ? runner_drain(runner, 0, device_us, error) : result;
}

// Floats into a value of any floating element; `first` counts elements.
static inline void plan_write_floats(sumi_runner* runner, const sumi_plan* plan, sumi_value value, uint64_t first,
                                     const float* values, uint64_t count)
{
    const sumi_value_info* info = sumi_plan_info(plan, value);
    uint64_t size = runner->functions->element_bytes(runner, info->element);
    uint16_t* halves = NULL;
    if (size == 2) {
        halves = malloc((size_t)count * 2 + 1);
        sumi_floats_to_bf16(values, halves, count);
    }
    runner->functions->write(runner, plan, value, first * size, halves != NULL ? (const void*)halves : values,
                             count * size);
    free(halves);
}

// The whole value as it lies there. On a GPU only bound values can be fetched; a constant is the plan's own.
static inline sumi_result plan_read(sumi_runner* runner, const sumi_plan* plan, sumi_value value, void* into,
                                    sumi_error* error)
{
    if (runner->traits.has_device) {
        for (size_t i = 0; i < plan->constant_count; i++) {
            if (plan->constants[i].value.id != value.id) continue;
            memcpy(into, plan->constants[i].data, (size_t)plan->constants[i].bytes);
            return SUMI_OK;
        }
        sumi_result result = runner->async->start_read(runner, plan, value, error);
        if (result == SUMI_OK) result = runner_drain(runner, 0, NULL, error);
        if (result != SUMI_OK) return result;
    }
    runner->functions->read(runner, plan, value, 0, into, sumi_plan_info(plan, value)->bytes);
    return SUMI_OK;
}

static inline void plan_floats(const sumi_runner* runner, sumi_element element, const void* raw, float* into,
                               size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (element == SUMI_ELEMENT_BYTE) into[i] = ((const uint8_t*)raw)[i];
        else if (element == SUMI_ELEMENT_INT) into[i] = (float)((const int32_t*)raw)[i];
        else if (runner->functions->element_bytes(runner, element) == 2)
            into[i] = sumi_bf16_to_float(((const uint16_t*)raw)[i]);
        else into[i] = ((const float*)raw)[i];
    }
}

// A line "kernel NAME COUNT" for every kernel that the runner's device has: see tests/check_kernels.sh.
static inline void print_kernel(const char* name, uint64_t use_count, void* user_data)
{
    (void)user_data;
    printf("kernel %s %llu\n", name, (unsigned long long)use_count);
}
static inline void print_kernels(const sumi_runner* runner)
{
    runner->functions->list_kernels(runner, print_kernel, NULL);
}

// Before a plan ends, or before its slices change: plans are known by their address, which the next one may have.
static inline void plan_release(sumi_runner* runner, const sumi_plan* plan)
{
    runner->functions->release_plan(runner, plan);
}
static inline void runner_release_weights(sumi_runner* runner, const sumi_weight* const* weights, size_t count)
{
    if (count > 0) runner->functions->release_weights(runner, weights, count);
}
#endif
