// Reports spans to the tracer of the host program. Without a tracer the functions do nothing.
#ifndef SUMI_JOBS_TRACE_H
#define SUMI_JOBS_TRACE_H
#include "jobs/run.h"

struct sumi_job_slot;

// Reports a piece of work of this thread that ends now. name NULL: a slice on the CPU, which slot->live describes.
void sumi_trace_turn(const sumi_engine* engine, const struct sumi_job_slot* slot, const char* name, sumi_stage stage,
                     uint64_t begin_ns, uint64_t end_ns);
// Reports a slice that was collected from a device.
void sumi_trace_slice(sumi_engine* engine, const struct sumi_job_slot* slot, const sumi_run_slice* slice);
#endif
