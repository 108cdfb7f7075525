// How much of a device jobs may hold when it has less than they want, because other programs have the rest. Nobody says
// so: it shows when an allocation fails, and it passes.
//
//   a job's allocation fails   note: weights of others go, half of the batch waits; then lower: the job tries again
//                              under a limit, and the jobs behind it keep to that
//   a job begins               review: is there more by now? The limit rises or goes. A job that finds out that there
//                              is not brings it back, and the next review is twice as many jobs away
//
// Where the driver has the memory, it knows how much is free. A host's device_allocator cannot be asked: there the
// limit is a guess between what was held and what was refused, and a review is a try.
#ifndef SUMI_ENGINE_DEVICE_LIMIT_H
#define SUMI_ENGINE_DEVICE_LIMIT_H
#include "base/result.h"
#include "plan/runner.h"

#define SUMI_MOST_LOWERED 8 // of one job: each takes an eighth away, so a third is left after the last

typedef struct sumi_device_limit {
    uint64_t bytes;         // jobs keep to it as to a budget; 0: none
    uint64_t wanted;        // what the job that met the shortage would hold without any limit; 0: unknown
    uint64_t before;        // the limit that a review raised, until a picture has had all that it wants; 0: none was
    uint64_t refused;       // what the newest plan that did not fit needs in its smallest form
    int32_t jobs, distance; // jobs that began since the newest review; how many there are between two, 0: every job
    sumi_device_room room;  // when the newest allocation failed
    bool is_short;          // one has failed, and the job has not tried again since
} sumi_device_limit;

// All hold the work. Nothing to do on the processor.
// Bytes that jobs keep to: the host's, or what the device had; 0: no limit
uint64_t sumi_engine_budget(const sumi_engine* engine);
void sumi_limit_note(sumi_engine* engine, sumi_result result); // after a failure of the runner
// After such a failure: a lower limit, worth a try. False: there is none. Says so in the log, as all of these do.
// plan: what was to be run, NULL: unknown.
bool sumi_limit_lower(sumi_engine* engine, const sumi_plan* plan);
// After a plan that did not fit the limit: whether it may be higher; whether the plan's smallest form is worth a try.
bool sumi_limit_raise(sumi_engine* engine);
bool sumi_limit_try_least(sumi_engine* engine);
void sumi_limit_review(sumi_engine* engine);  // a job begins, and nothing runs
void sumi_limit_confirm(sumi_engine* engine); // a picture has all memory that it wants
#endif
