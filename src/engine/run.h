// Runs a plan slice by slice: which one is next, how long it will take, how much is left.
//
//   submit --> [ slices in flight, oldest first ] --> collect
//
// The processor does a slice inside submit, so it can be collected at once. A GPU takes slices ahead of time; what
// depends on a slice's end (progress, times, previews) happens when it is collected.
#ifndef SUMI_ENGINE_RUN_H
#define SUMI_ENGINE_RUN_H
#include "engine/plan_cache.h"
#include "plan/runner.h"

typedef struct sumi_run_slice {
    sumi_section_kind section; // of the slice that ran
    int32_t counter, slice;
    size_t section_index;
    bool ends_iteration, ends_run;
    int32_t skip_count;          // of a slice that ends an iteration: how many iterations are left out behind it
    const sumi_op* op;           // the first op of the slice
    float predicted_us;          // when it was submitted
    int32_t denoising_step;      // -1: outside of the loop
    bool ends_step, has_preview; // the denoising step ends with it; a preview follows it
    double us;                   // from its begin to its end
    bool has_waits;              // for streamed weights: its own work took less
    double unwaited_us;          // of that its own work, as far as it is known: what predictions are made of
    uint64_t submitted_ns;
    bool is_over; // reported by the runner while something else was waited for, not collected yet
} sumi_run_slice;

typedef struct sumi_run {
    sumi_plan_entry* entry;                    // NULL: nothing runs
    size_t section;                            // what is submitted next
    int32_t iteration, slice;                  // slice: index in the plan's list
    int32_t skip_count;                        // iterations to leave out behind this one; see sumi_run_skip
    bool is_submitted;                         // all of it
    sumi_run_slice pending[SUMI_RUNNER_DEPTH]; // a ring
    int32_t pending_begin, pending_count;
    double pending_us; // predicted, of the pending ones
    double done_us;    // own work that was done since the run began
    // what was collected: the place of the oldest slice that has not ended
    size_t done_section;
    int32_t done_iteration;
    double iteration_us; // of its slices that have ended
} sumi_run;

// What runs, and the run before it, whose last slices may still be in flight. Whoever holds the work.
typedef struct sumi_runs {
    sumi_run current;
    // of jobs.draining. A job that is cancelled while it drains leaves its slices here: a run without an entry
    sumi_run draining;
    uint64_t device_ends_ns; // when all that is in flight will have ended, by predictions
    // When the most recent slice was submitted that had not ended after its predicted time (ns, steady clock).
    uint64_t late_slice_ns;
} sumi_runs;

// also tells the runner; bound inputs are written next
void sumi_run_begin(sumi_engine* engine, sumi_plan_entry* entry);
double sumi_run_predict_us(const sumi_engine* engine); // of the next slice to submit; 0 when there is none
double sumi_run_left_us(const sumi_run* run);          // of all its slices that have not ended
double sumi_run_pending_us(const sumi_engine* engine); // predicted, of all that is in flight
// until about half of the slices in flight have ended, by predictions. The oldest has not; not positive: it should
// have
double sumi_run_sleep_us(sumi_engine* engine);
// another slice may be submitted: engine->frame.max_pending_us
bool sumi_run_has_room(const sumi_engine* engine);
// The slice to submit next; denoising_step, ends_step and shows are the caller's to fill in.
sumi_run_slice sumi_run_next(const sumi_engine* engine);
// Whether the next slice begins an iteration of the loop, and of which evaluation.
bool sumi_run_begins_evaluation(const sumi_engine* engine, int32_t* out_counter, int32_t* out_left_in_section);
// Goes on with this evaluation instead of the first one, which begins. Nothing is in flight.
void sumi_run_jump(sumi_engine* engine, int32_t counter);
// leaves so many iterations out behind the one that begins; fewer than are left in its section
void sumi_run_skip(sumi_engine* engine, int32_t count);
// Work that is left: what its slices took when they were measured, and guesses for the others.
typedef struct sumi_work_us {
    double known, guessed;
} sumi_work_us;

// One run of a section. What was not measured is guessed from how long ops of its kinds took lately, in any plan.
sumi_work_us sumi_section_work_us(const sumi_engine* engine, const sumi_plan_entry* entry, size_t section);
// The work that is left when an iteration begins now: of that one, of one of all evaluations that are left, this one
// included, on the average (they differ where guidance begins or ends), and of what is behind the last one. Slices that
// are in flight are part of the last.
typedef struct sumi_work_left {
    sumi_work_us evaluation, end;
    double average_us;
    // Of a processor in frames: how much of a frame the end's slices do, by what those of evaluations do. A budget is
    // used up as far as whole slices go.
    double end_fill;
} sumi_work_left;
sumi_work_left sumi_run_left_from_here(const sumi_engine* engine);
sumi_result sumi_run_submit(sumi_engine* engine, const sumi_run_slice* next, sumi_error* error);
// the run's oldest, if it has ended and nothing older is in flight; its times are noted
bool sumi_run_collect(sumi_engine* engine, sumi_run* run, sumi_run_slice* out_step);
// All of the run is submitted: it becomes the one that drains, and another one may begin before its last slices have
// ended. There is no other one that drains.
void sumi_run_begin_draining(sumi_engine* engine);
// Whether nothing is in flight but slices of the run that drains.
bool sumi_run_is_alone(const sumi_engine* engine);
// of its first op: the label, or what kind it is; for profiles and traces
const char* sumi_run_slice_name(const sumi_run_slice* step);
sumi_stage sumi_stage_of_section(sumi_section_kind kind);

// Lets everything that was submitted end: slices of jobs that were cancelled are forgotten, those of the running job
// are collected later. Blocks for as long as they take.
// Holds the work.
void sumi_run_wait_for_all(sumi_engine* engine);
// nothing submitted is unfinished; forgets what has finished when no plan runs
bool sumi_run_is_idle(sumi_engine* engine);
#endif
