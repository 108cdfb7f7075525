// How long slices and other pieces of work may be, given the host program's budget per frame.
//
// The struct is a part of the engine. The functions are called by the thread that holds the pump lock (engine.h); they
// do not block or fail.
#ifndef SUMI_ENGINE_FRAME_BUDGET_H
#define SUMI_ENGINE_FRAME_BUDGET_H
#include <stdbool.h>
#include <stdint.h>
#include <sumi.h>

typedef struct sumi_frame_budget {
    // The most predicted time of slices in flight on a device: the budget of the current call, or SUMI_MAX_PENDING_US.
    double max_pending_us;
    // On a device, during a call with a budget: the most time of this thread's own work in the call. 0: no budget, or
    // the backend is the processor.
    double max_thread_us;
    // On the CPU, during a call with a budget: when the budget is used up (ns, steady clock). 0: no budget, or a device.
    uint64_t end_ns;
    // Moving average of the budgets of the latest updates. 0: the latest call that worked had no budget.
    double average_us;
    // The longest slice of plans written from now on: desc.max_slice_us, or a half, a quarter ... of it while budgets
    // are small.
    uint32_t slice_us;
} sumi_frame_budget;

// The most predicted time of slices in flight on a device when the host program gives no budget. A few slices keep the
// device busy; more would only make a cancel take longer.
#define SUMI_MAX_PENDING_US 32000.0

// Called when a call of the host program begins to work. SUMI_FOREVER: a call without a budget. On a device it adapts
// slice_us to the budget.
void sumi_frame_budget_follow(sumi_engine* engine, uint32_t budget_us);
// Whether the call that works now has a budget. On a device.
bool sumi_frame_budget_is_paced(const sumi_engine* engine);
// How long a piece of this thread's own work may take: max_slice_us, or 5 ms where slices are whole ops, but no more
// than the budget of the current call.
uint32_t sumi_frame_budget_piece_us(const sumi_engine* engine);
// On the CPU: how long a piece of a slice may take that begins now, in microseconds. max_slice_us, or what is left of the
// current call's budget, if that is less.
double sumi_frame_budget_slice_us(const sumi_engine* engine, uint64_t now_ns);
#endif
