#include "jobs/trace.h"
#include "base/assert.h"
#include "base/platform.h"
#include "jobs/engine_state.h"
#include "jobs/job.h"
#include "jobs/run.h"

void sumi_trace_turn(const sumi_engine* engine, const sumi_job_slot* slot, const char* name, sumi_stage stage,
                     uint64_t begin_ns, uint64_t end_ns)
{
    SUMI_ASSERT(begin_ns <= end_ns);
    const sumi_tracer* tracer = engine->desc.tracer;
    if (tracer->span == NULL) return;
    const bool is_slice = slot->live.trace_name != NULL;
    const sumi_trace_span span = {.name = is_slice ? slot->live.trace_name : name,
                                  .track = SUMI_TRACK_HOST,
                                  .stage = stage,
                                  .step = is_slice ? slot->live.trace_step : -1,
                                  .job = slot->id,
                                  .begin_ns = begin_ns,
                                  .end_ns = end_ns};
    tracer->span(&span, tracer->user_data);
}

// The device works in order and without pauses while it has work. So a slice began when it was submitted or when the
// slice before it ended, whichever is later.
void sumi_trace_slice(sumi_engine* engine, const sumi_job_slot* slot, const sumi_run_slice* slice)
{
    const sumi_tracer* tracer = engine->desc.tracer;
    if (tracer->span == NULL || slice->index < 0) return;
    const uint64_t now_ns = sumi_clock_ns(), length_ns = (uint64_t)(slice->us * 1e3), earliest_ns = engine->traced_ns;
    uint64_t begin_ns = slice->submitted_ns > earliest_ns ? slice->submitted_ns : earliest_ns;
    if (begin_ns + length_ns > now_ns)
        begin_ns = now_ns > length_ns && now_ns - length_ns > earliest_ns ? now_ns - length_ns : earliest_ns;
    const uint64_t end_ns = begin_ns + length_ns < now_ns ? begin_ns + length_ns : now_ns;
    engine->traced_ns = end_ns;
    SUMI_ASSERT(begin_ns <= end_ns && begin_ns >= earliest_ns);
    const sumi_trace_span span = {.name = sumi_run_slice_name(slice),
                                  .track = SUMI_TRACK_DEVICE,
                                  .stage = sumi_stage_of_section(slice->section),
                                  .step = slice->denoising_step,
                                  .job = slot->id,
                                  .begin_ns = begin_ns,
                                  .end_ns = end_ns};
    tracer->span(&span, tracer->user_data);
}
