#include "engine/fetch_object.h"
#include "base/result.h"
#include "engine/calls.h"
#include "jobs/job.h"

void* sumi_call_fetch_object(sumi_engine* engine, const char* function, sumi_job handle, sumi_job_kind kind,
                             const char* member, bool has_out_parameter, sumi_result* out_result)
{
    *out_result = engine != NULL ? sumi_call_begin(engine, function) : SUMI_INVALID_ARGUMENT;
    if (*out_result != SUMI_OK) return NULL;
    sumi_error error = {0};
    sumi_job_slot* slot = NULL;
    void* object = NULL;
    sumi_result result;
    if (!has_out_parameter) result = sumi_fail(&error, SUMI_INVALID_ARGUMENT, "%s: %s is NULL", function, member);
    else result = sumi_job_finished(engine, handle, kind, &slot, &error);
    if (slot != NULL) {
        result = slot->error.result;
        if (result == SUMI_OK) object = slot->functions->take(slot);
        sumi_job_free(engine, slot);
    }
    *out_result = sumi_call_end(engine, result, &error);
    return object;
}
