// Runs a plan slice by slice: finds the next slice, predicts its time and the time of all that is left.
//
//   submit --> [ slices in flight, oldest first ] --> collect
//
// The CPU computes a piece of a slice inside submit. With the last piece the slice can be collected at once. A GPU has
// several slices in flight; everything that depends on the end of a slice (progress, times, previews) happens when it
// is collected.
#ifndef SUMI_JOBS_RUN_H
#define SUMI_JOBS_RUN_H
#include "base/result.h"
#include "jobs/plan_cache.h"
#include "pacing/device_time.h"
#include "pacing/forecast.h"
#include "plan/async.h"
#include "plan/ops.h"
#include "plan/plan.h"

typedef struct sumi_run_slice {
    sumi_section_kind section; // of the slice's section
    int32_t counter, index;    // index: of the slice in the plan; -1: the plan has none, the run only ends
    int32_t count;             // more than 1: groups of slices from `index` on, submitted and measured as one slice
    size_t section_index;
    bool ends_iteration, ends_run;
    int32_t skip_count;             // for a slice that ends an iteration: how many iterations are left out after it
    const sumi_op* op;              // the first op of the slice
    float predicted_us;             // as predicted when the slice was submitted
    int32_t denoising_step;         // -1: not a slice of the denoising loop
    bool ends_step, has_preview;    // the denoising step ends with this slice; a preview is taken after it
    sumi_value change, reuse_error; // to read when the slice has ended (step_cache.h); none: nothing
    double us;                      // measured, from the begin to the end of the slice
    bool has_delay;                 // the slice's time begins behind an empty kernel (sumi_slice_time)
    bool is_crowded;                // has_delay, and kernels of others kept the device busy then
    bool has_waits;                 // the slice waited for streamed weights, so its own work took less than `us`
    double unwaited_us;             // the time of its own work as far as it is known; predictions are made from it
    uint64_t submitted_ns;
    // Nothing of sumi's was in flight or had been submitted in the same update. Then the slice may have waited between
    // its begin and its first kernel for commands of the host program.
    bool is_alone;
    // The slice has ended and is not collected yet: the runner reported its end while something else was waited for. On
    // the CPU every slice has ended once it is submitted.
    bool is_over;
    bool is_submitted; // false: pieces of the slice are left to run
    // On the CPU: what this piece took; and the same without the time of other programs, as far as that is known.
    double piece_us, piece_believed_us;
} sumi_run_slice;

typedef struct sumi_run {
    sumi_plan_entry* entry;                    // NULL: nothing runs
    size_t section;                            // of the next slice to submit
    int32_t iteration, slice;                  // of the next slice to submit; slice: index in the plan's list
    int32_t skip_count;                        // how many iterations to leave out after this one (sumi_run_skip)
    sumi_slice_cursor cursor;                  // on the CPU: how far the next slice to submit has run
    bool is_submitted;                         // all slices of the run were submitted
    sumi_run_slice pending[SUMI_RUNNER_DEPTH]; // the slices in flight, a ring buffer
    int32_t pending_begin, pending_count;
    double pending_us; // sum of the predictions of the pending slices
    double done_us;    // own work of the slices that were collected since the run began
    // Section and iteration of the oldest slice that was not collected.
    size_t done_section; // never an alternative
    int32_t done_iteration;
    double iteration_us;      // time of the slices of done_iteration that were collected
    bool done_is_alternative; // these slices belong to the alternative of done_section
    // Of the iterations after the newest one, in sections with an alternative: the predicted share for which the
    // alternative runs. 0 .. 1, written by step_cache.c.
    double alternative_share;
} sumi_run;

// The current run, and the run before it, whose last slices may still be in flight. Touched by the thread that holds
// the pump lock.
typedef struct sumi_runs {
    sumi_run current;
    // The run of jobs.draining. If that job is cancelled, its slices stay here, in a run without an entry.
    sumi_run draining;
    sumi_device_time device; // of both
    // The runner was asked and the oldest slice in flight had not ended. It is asked again when nothing else can be
    // done, or after the pump has stepped back (sumi_run_ask_again).
    bool oldest_runs;
    // The runner was asked and some slice in flight had not ended: while slices are collected it is not asked again.
    bool has_others;
    bool has_submitted; // a slice, since the pump has begun to work or has waited for the device
} sumi_runs;

// Begins a run. The runner is told too. The caller writes the bound inputs next.
void sumi_run_begin(sumi_engine* engine, sumi_plan_entry* entry);
double sumi_run_predict_us(const sumi_engine* engine); // of the next slice to submit, or piece of it; 0: there is none
double sumi_run_remaining_us(const sumi_run* run);     // of all slices of the run that were not collected
double sumi_run_pending_us(const sumi_engine* engine); // predicted, of all that is in flight
// Predicted time until half of the work in flight has ended. The oldest slice has not ended; a result of 0 or less
// means that it was predicted to have ended already.
double sumi_run_sleep_us(sumi_engine* engine);
// Whether another slice may be submitted (sumi_frame_limits_pending_us).
bool sumi_run_can_submit(const sumi_engine* engine);
// Whether the next slice should be submitted behind others although it may not fit, because the newest times of slices
// like it may contain waits. At most one in an update.
bool sumi_run_wants_one_more(const sumi_engine* engine);
// Returns the next slice to submit, and changes nothing. The caller fills in denoising_step, ends_step and has_preview.
sumi_run_slice sumi_run_next(const sumi_engine* engine);
// Whether the next slice begins an iteration of the denoising loop, and if so, which evaluation.
bool sumi_run_begins_evaluation(const sumi_engine* engine, int32_t* out_counter, int32_t* out_left_in_section);
// Continues a run that has just begun with this evaluation instead of the first one. Nothing may be in flight.
void sumi_run_jump(sumi_engine* engine, int32_t counter);
// Runs the alternative of the section for the iteration that begins. Nothing of the iteration may have been submitted.
void sumi_run_use_alternative(sumi_engine* engine);
// Leaves `count` iterations out after the one that begins. count is less than what is left in the section.
void sumi_run_skip(sumi_engine* engine, int32_t count);
// The work of one run of a section. Slices that were not measured are guessed from recent times of ops of the same
// kinds in any plan.
sumi_work_us sumi_section_work_us(const sumi_engine* engine, const sumi_plan_entry* entry, size_t section);
// The work that remains when an iteration begins.
sumi_remaining_work sumi_run_remaining_work(const sumi_engine* engine);
// later_us, if this share of the later evaluations runs alternatives where there are any.
double sumi_run_later_us(const sumi_engine* engine, double alternative_share);
// Submits the slice, or on the CPU runs a piece of it, and writes is_submitted and piece_us. If it is not submitted,
// the next calls run its other pieces.
sumi_result sumi_run_submit(sumi_engine* engine, sumi_run_slice* next, sumi_error* error);
// Returns the oldest slice of the run if it has ended and no older slice is in flight, and notes its times.
bool sumi_run_collect(sumi_engine* engine, sumi_run* run, sumi_run_slice* out_slice);
// Called before slices are collected one after the other.
void sumi_run_begin_collecting(sumi_engine* engine);
// Called when the pump begins to work, or has waited for the device: slices may have ended since the runner was asked.
void sumi_run_ask_again(sumi_engine* engine);
// Begins to drain the run, whose slices were all submitted: another run may begin before they have ended. No other run
// may be draining.
void sumi_run_begin_draining(sumi_engine* engine);
// Whether everything in flight belongs to the draining run.
bool sumi_run_is_only_draining(const sumi_engine* engine);
// Name for profiles and traces: the label of the slice's first op, or the name of its kind.
const char* sumi_run_slice_name(const sumi_run_slice* slice);
sumi_stage sumi_stage_of_section(sumi_section_kind kind);

// Waits until everything that was submitted has ended. Slices of cancelled jobs are forgotten; those of the running job
// are collected later. Blocks. The caller holds the pump lock.
void sumi_run_wait_for_all(sumi_engine* engine);
// Whether nothing is in flight. If no plan runs, slices that have ended are forgotten.
bool sumi_run_is_idle(sumi_engine* engine);
#endif
