// Spans for the host's profiler: what its tracer is told. Nothing is done when there is none.
#ifndef SUMI_ENGINE_TRACE_H
#define SUMI_ENGINE_TRACE_H
#include "engine/run.h"

struct sumi_job_slot;

// A piece of work on this thread, over now. name NULL: of a slice, slot->live says which.
void sumi_trace_step(const sumi_engine* engine, const struct sumi_job_slot* slot, const char* name, sumi_stage stage,
                     uint64_t begin_ns, uint64_t end_ns);
// A slice that was collected from a device.
void sumi_trace_slice(sumi_engine* engine, const struct sumi_job_slot* slot, const sumi_run_slice* step);
#endif
