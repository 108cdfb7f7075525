// What the host program is told of the time of slices: spans for its tracer, and the table of sumi_job_profile. The
// functions are called by the thread that holds the pump lock (engine_state.h).
#ifndef SUMI_JOBS_JOB_REPORTS_H
#define SUMI_JOBS_JOB_REPORTS_H
#include "base/result.h"
#include "jobs/job.h"
#include "jobs/run.h"

// ---- Spans ----------------------------------------------------------------------------------------------------------
//
// Reports spans to the tracer of the host program. Without a tracer the functions do nothing.

// Reports a piece of work of this thread: its name, stage and times. If slot->live describes a slice on the CPU, the
// span has the name and the step of that.
void sumi_trace_turn(const sumi_engine* engine, const sumi_job_slot* slot, const sumi_trace_span* work);
// Reports a slice that was collected from a device.
void sumi_trace_slice(sumi_engine* engine, const sumi_job_slot* slot, const sumi_run_slice* slice);

// ---- The profile ----------------------------------------------------------------------------------------------------
//
// The table that sumi_job_profile returns: the time of all ops with the same name, summed over the layers. The table
// belongs to the job slot.

// Adds a slice that has ended to the table's row for its stage and its op's name. Fails with
// SUMI_OUT_OF_HOST_MEMORY.
sumi_result sumi_plan_job_note_profile(sumi_engine* engine, sumi_job_slot* slot, const sumi_run_slice* slice,
                                       sumi_error* error);
#endif
