// Deadlines: fewer denoising steps when the time left is too short for all of them, decided again before every step.
//
// The schedule stays as it is and steps are left out of it: a step from sigma_i goes to sigma_j instead of sigma_i+1.
// So the plan, its graphs and its tables of times serve any number of steps; only the solver's row of this one step is
// written anew. Solvers of two evaluations a step have times between their sigmas: their steps are counted once, before
// the first.
//
// What counts is the clock on the wall, from submission: a host that gives less of each frame, or pauses, has fewer
// steps left. How much of the wall's time the work gets is measured from step to step.
#ifndef SUMI_ENGINE_DEADLINE_H
#define SUMI_ENGINE_DEADLINE_H
#include "base/result.h"
#include <sumi.h>

struct sumi_slot;

typedef struct sumi_pace {
    uint64_t begin_ns; // of the measurement that is under way; 0: none
    double work_us;    // done since
    double share;      // work per time on the wall, lately; 0: not known yet
} sumi_pace;

typedef struct sumi_adaption {
    float previous_sigma; // of the step before; 0: none
    int32_t next;         // the evaluation to look at next
    int32_t skipped;      // evaluations left out so far
    bool is_changed;      // the row before this one was not the schedule's own, or this one is not
} sumi_adaption;

// Before a plan is chosen: the step count that fits, for solvers whose steps cannot be left out later.
int32_t sumi_deadline_step_count(const sumi_engine* engine, const struct sumi_slot* slot, int32_t step_count);
void sumi_deadline_begin(sumi_engine* engine, struct sumi_slot* slot); // its run begins, perhaps for the second time
// Before the slice that begins an evaluation is submitted; more than once does no harm.
void sumi_deadline_adapt(sumi_engine* engine, struct sumi_slot* slot);
void sumi_deadline_note(sumi_engine* engine, double us); // work that was done, in the time that predictions are in
// Seconds until the deadline on the wall; negative when it is over.
double sumi_deadline_left(const struct sumi_slot* slot);
#endif
