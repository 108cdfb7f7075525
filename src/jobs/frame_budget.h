// How long slices and other pieces of work may be, given the host program's budget per frame (frame_limits.h), in the
// engine.
//
// The functions are called by the thread that holds the pump lock (engine_state.h); they do not block or fail.
#ifndef SUMI_JOBS_FRAME_BUDGET_H
#define SUMI_JOBS_FRAME_BUDGET_H
#include <sumi.h>

// Called when a call of the host program begins to work. SUMI_FOREVER: a call without a budget.
void sumi_frame_budget_follow(sumi_engine* engine, uint32_t budget_us);
// As sumi_frame_limits_are_paced, _piece_us and _slice_us.
bool sumi_frame_budget_is_paced(const sumi_engine* engine);
uint32_t sumi_frame_budget_piece_us(const sumi_engine* engine);
double sumi_frame_budget_slice_us(const sumi_engine* engine, uint64_t now_ns);
#endif
