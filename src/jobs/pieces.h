// On the CPU: runs a slice in pieces that fit what is left of the host program's budget.
//
//   slice:   |  norm  |            conv, 40 work ranges             | gated |       whole ops
//   pieces:  |--- 2 ms ----|--- 2 ms ----|-- 0.7 --|--- 2 ms ---|-- 1.2 --|        the third ends with an update
//
// The slices of a plan that is cut so are whole ops. A piece goes through their work ranges and stops when the next one
// would not fit. A work range is predicted to take as long as the one before it, or as the first ones of this op took
// last. An op that has not run yet is guessed on the high side, and so its first piece is short.
//
// The functions are called by the thread that holds the pump lock (engine_state.h), and do not block.
#ifndef SUMI_JOBS_PIECES_H
#define SUMI_JOBS_PIECES_H
#include "base/result.h"
#include "jobs/plan_cache.h"
#include "plan/plan.h"

// Predicted time of the shortest piece that can run next.
double sumi_piece_predict_us(const sumi_engine* engine, const sumi_plan_entry* entry, const sumi_slice* slice,
                             const sumi_slice_cursor* cursor);
// Runs the next piece. known_us: the time of the whole slice; 0: not known. *out_over: the slice has ended.
sumi_result sumi_piece_run(sumi_engine* engine, sumi_plan_entry* entry, const sumi_slice* slice, int32_t counter,
                           double known_us, sumi_slice_cursor* cursor, bool* out_over, sumi_error* error);
#endif
