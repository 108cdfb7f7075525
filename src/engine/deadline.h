// Deadlines: fewer denoising steps when the time left is too short for all of them, decided again before every step.
//
// The schedule stays as it is and steps are left out of it: a step from sigma_i goes to sigma_j instead of sigma_i+1.
// So the plan, its graphs and its tables of times serve any number of steps; only the solver's row of this one step is
// written anew. Solvers of two evaluations a step have times between their sigmas: their steps are counted once, before
// the first.
//
// What counts is the clock on the wall, from submission: a host that gives less of each frame, or pauses, has fewer
// steps left. How much of the wall's time the work gets is measured from step to step.
//
// No prediction is trusted further than predictions of its kind were right. Every image job, with a deadline or without
// one, notes what its steps and its end took against what had been predicted for them:
//
//   wall   |-- step --|-- step --|-- last step --|-- decode, pictures --|      deadline
//                                                 <------- end -------><- margin ->|
//
// The margin is for what no later decision can make good: the end, the step at hand, and the one behind it. It is so
// many mean deviations of what was noted, and large before anything was. The end of a size that was never decoded is
// predicted from how long the kinds of its ops took elsewhere; how wrong that was is noted for itself.
#ifndef SUMI_ENGINE_DEADLINE_H
#define SUMI_ENGINE_DEADLINE_H
#include "engine/accuracy.h"
#include <sumi.h>

struct sumi_slot;

typedef struct sumi_pace {
    uint64_t begin_ns; // of the measurement that is under way; 0: none
    double work_us;    // done since
    double share;      // work per time on the wall, lately; 0: not known yet
    // On a processor, of the host's updates: the budget of the newest one, 0 for none; when it began, 0 before the first
    // one; how long they lie apart, 0 while that is not known.
    double budget_us;
    uint64_t update_ns;
    double apart_us;
    // of the ends of jobs whose decoder had been measured, of those where it had not; of whole jobs that are decided
    // once
    sumi_accuracy end, guess, whole;
} sumi_pace;

// Before a plan is chosen: the step count that fits, for solvers whose steps cannot be left out later.
int32_t sumi_deadline_step_count(const sumi_engine* engine, struct sumi_slot* slot, int32_t step_count);
// An update with that budget begins, or with SUMI_FOREVER a call without one: idle or not, they tell how often there is
// one.
void sumi_deadline_follow(sumi_engine* engine, uint32_t budget_us, uint64_t now_ns);
void sumi_deadline_begin(sumi_engine* engine, struct sumi_slot* slot); // its run begins, perhaps for the second time
// Before the slice that begins an evaluation is submitted; more than once does no harm.
void sumi_deadline_adapt(sumi_engine* engine, struct sumi_slot* slot);
void sumi_deadline_note(sumi_engine* engine, double us); // work that was done, in the time that predictions are in
void sumi_deadline_end(sumi_engine* engine, struct sumi_slot* slot); // its pictures are there
// Seconds until the deadline on the wall; negative when it is over.
double sumi_deadline_left(const struct sumi_slot* slot);
#endif
