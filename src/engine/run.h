// Runs a plan slice by slice: which one is next, how long it will take, how much is left.
#ifndef SUMI_ENGINE_RUN_H
#define SUMI_ENGINE_RUN_H
#include "engine/plan_cache.h"

typedef struct sumi_run {
    sumi_plan_entry* entry;  // NULL: nothing runs
    size_t section;
    int32_t iteration, slice; // slice: index in the plan's list
    double done_us;          // measured, since the run began
    double iteration_us;     // estimates of the slices of this iteration that are done
} sumi_run;

typedef struct sumi_run_step {
    sumi_section_kind section; // of the slice that ran
    int32_t counter;
    bool ends_iteration, ends_run;
    const sumi_op* op;       // the first op of the slice
    double us;
} sumi_run_step;

void sumi_run_begin(sumi_engine* engine, sumi_plan_entry* entry); // also tells the runner; bound inputs are written next
double sumi_run_predict_us(const sumi_engine* engine);            // of the next slice
double sumi_run_left_us(const sumi_engine* engine);
sumi_result sumi_run_slice(sumi_engine* engine, sumi_run_step* out_step, sumi_error* error);
sumi_stage sumi_stage_of_section(sumi_section_kind kind);
#endif
