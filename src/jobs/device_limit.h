// A limit on the device memory that jobs may hold, for times when the device has less than they need because other
// programs use the rest. Such a shortage is noticed only when an allocation fails, and it can end at any time.
//
//   a job's allocation fails   sumi_limit_note. The job first evicts weights of other jobs and runs half of its batch
//                              at a time (job_shortage.h). If that is not enough, sumi_limit_lower sets a limit; the
//                              job tries again under it, and later jobs keep to it too.
//   a job begins               sumi_limit_review: if the device has more memory now, the limit is raised or removed.
//
// shortage_limit.h says how large a limit is, and which jobs review it.
//
// All functions are called by the thread that holds the pump lock (engine_state.h). They do nothing on the CPU.
// Changes of the limit are logged.
#ifndef SUMI_JOBS_DEVICE_LIMIT_H
#define SUMI_JOBS_DEVICE_LIMIT_H
#include "plan/plan.h"

// How often one job may lower the limit. Usually each time takes an eighth away, so about a third is left after the
// last.
#define SUMI_MAX_LOWERED 8

// The memory limit that jobs keep to, in bytes: the host program's or the one of a shortage, whichever is less; 0:
// none.
uint64_t sumi_engine_memory_limit(const sumi_engine* engine);
// Called with every result of the runner that may be an out-of-memory failure; records the state of the device.
void sumi_limit_note(sumi_engine* engine, sumi_result result);
// After such a failure: sets a lower limit. False: it cannot be lower. `plan` is the plan that was to run; NULL:
// unknown.
bool sumi_limit_lower(sumi_engine* engine, const sumi_plan* plan);
// After a plan that did not fit the limit: raises or removes the limit if the device has more memory now. False: the
// limit stays.
bool sumi_limit_raise(sumi_engine* engine);
// After a plan that did not fit the limit: raises the limit to what the smallest form of the plan needs, unless that is
// more than is available. False: the limit stays.
bool sumi_limit_raise_to_smallest_form(sumi_engine* engine);
void sumi_limit_review(sumi_engine* engine);  // called when a job begins and nothing runs
void sumi_limit_confirm(sumi_engine* engine); // called when an image job got all its memory: a raised limit stays
#endif
