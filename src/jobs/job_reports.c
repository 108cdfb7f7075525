#include "jobs/job_reports.h"
#include "base/assert.h"
#include "base/memory.h"
#include "base/platform.h"
#include "base/result.h"
#include "jobs/engine_state.h"
#include "jobs/job.h"
#include "jobs/run.h"
#include "plan/ops.h"
#include <string.h>

// ---- Spans ----------------------------------------------------------------------------------------------------------

void sumi_trace_turn(const sumi_engine* engine, const sumi_job_slot* slot, const sumi_trace_span* work)
{
    SUMI_ASSERT(work->begin_ns <= work->end_ns);
    const sumi_tracer* tracer = engine->desc.tracer;
    if (tracer->span == NULL) return;
    const bool is_slice = slot->live.trace_name != NULL;
    sumi_trace_span span = *work;
    if (is_slice) span.name = slot->live.trace_name;
    span.track = SUMI_TRACK_HOST;
    span.step = is_slice ? slot->live.trace_step : -1;
    span.job = slot->id;
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

// ---- The profile ----------------------------------------------------------------------------------------------------

// Writes an op's label without a leading "layers." and without the numbers between dots, so that all layers have the
// same name: "layers.3.attention.qkv" becomes "attention.qkv".
static void plain_label(const char* label, char* out, size_t out_bytes)
{
    SUMI_ASSERT(out_bytes > 0);
    size_t used = 0;
    if (strncmp(label, "layers.", 7) == 0) label += 7;
    for (const char* at = label; *at != '\0' && used + 1 < out_bytes;) {
        const char* end = at;
        while (*end >= '0' && *end <= '9') end++;
        bool starts = at == label || at[-1] == '.', is_number = starts && end > at && *end == '.';
        if (is_number) {
            at = end + 1;
            label = at; // a number right after this one is removed too
            continue;
        }
        out[used++] = *at++;
    }
    out[used] = '\0';
}

sumi_result sumi_plan_job_note_profile(sumi_engine* engine, sumi_job_slot* slot, const sumi_run_slice* slice,
                                       sumi_error* error)
{
    SUMI_ASSERT(slot->profile_count <= slot->profile_capacity && slice->op != NULL);
    char label[sizeof slot->profile->name] = {0};
    plain_label(sumi_run_slice_name(slice), label, sizeof label);
    const sumi_stage stage = sumi_stage_of_section(slice->section);
    sumi_profile_row* row = NULL;
    for (size_t i = 0; row == NULL && i < slot->profile_count; i++) {
        if (slot->profile[i].stage == stage && strcmp(slot->profile[i].name, label) == 0) row = &slot->profile[i];
    }
    if (row == NULL) {
        SUMI_TRY(sumi_grow(&engine->heap, (void**)&slot->profile, &slot->profile_capacity, slot->profile_count + 1,
                           sizeof *slot->profile, error));
        row = &slot->profile[slot->profile_count++];
        memset(row, 0, sizeof *row);
        row->stage = stage;
        memcpy(row->name, label, sizeof row->name);
    }
    row->count++;
    row->seconds += slice->us * 1e-6;
    row->flops += slice->op->flops;
    row->bytes += slice->op->bytes;
    return SUMI_OK;
}
