// On the CPU: how fast the decoder's kinds of ops are, before anything is decoded.
//
// No step has convolutions, so nothing says how long they take on this CPU, at this size, until the last step has
// ended; what the backend's rates predict can be wrong by a factor of ten. So before a plan runs for the first time, a
// few work ranges of the largest op of each kind are run on whatever the arena holds. Nothing reads what they write:
// the inputs are written afterwards, and the decoder's ops write all of it again. This takes some milliseconds.
//
// Called by the thread that holds the pump lock (engine_state.h). Does not block.
#ifndef SUMI_JOBS_PROBE_H
#define SUMI_JOBS_PROBE_H
#include "base/result.h"
#include "jobs/plan_cache.h"

// Called before the first piece of each job. The job before it may have left an op half done, because it was paused or
// cancelled; this op starts again. What was measured is kept.
void sumi_probe_begin(sumi_plan_entry* entry);
// Runs the next piece, which is as long as a piece of a slice may be. *out_done: nothing is left to do.
sumi_result sumi_probe_run(sumi_engine* engine, sumi_plan_entry* entry, bool* out_done, sumi_error* error);
#endif
