#include "jobs/job_profile.h"
#include "base/assert.h"
#include "base/memory.h"
#include "base/result.h"
#include "jobs/engine_state.h"
#include "jobs/job.h"
#include "jobs/run.h"
#include "plan/ops.h"
#include <string.h>

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
