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

// A slice that runs in pieces.
typedef struct sumi_cut_slice {
    sumi_plan_entry* entry;
    const sumi_slice* slice; // of the plan of the entry
    int32_t counter;         // passed to the runner
    double known_us;         // time of the whole slice; 0: not known
    sumi_slice_cursor* cursor;
} sumi_cut_slice;
// Runs the next piece, and moves the cursor. *out_over: the slice has ended.
sumi_result sumi_piece_run(sumi_engine* engine, const sumi_cut_slice* cut, bool* out_over, sumi_error* error);

// ---- Before a plan runs for the first time --------------------------------------------------------------------------
//
// On the CPU: how fast the decoder's kinds of ops are, before anything is decoded.
//
// No step has convolutions, so nothing says how long they take on this CPU, at this size, until the last step has
// ended; what the backend's rates predict can be wrong by a factor of ten. So before a plan runs for the first time, a
// few work ranges of the largest op of each kind are run on whatever the arena holds. Nothing reads what they write:
// the inputs are written afterwards, and the decoder's ops write all of it again. This takes some milliseconds.

// Called before the first piece of each job. The job before it may have left an op half done, because it was paused or
// cancelled; this op starts again. What was measured is kept.
void sumi_probe_begin(sumi_plan_entry* entry);
// Runs the next piece, which is as long as a piece of a slice may be. *out_done: nothing is left to do.
sumi_result sumi_probe_run(sumi_engine* engine, sumi_plan_entry* entry, bool* out_done, sumi_error* error);
#endif
