#include "engine/submission.h"
#include "base/assert.h"
#include "engine/calls.h"
#include "engine/engine.h"
#include "engine/job.h"

sumi_result sumi_job_submit(sumi_engine* engine, const sumi_submission* submission, sumi_job* out_job,
                            sumi_error* error)
{
    SUMI_ASSERT(submission->copy != NULL && submission->source != NULL);
    sumi_job_slot* slot;
    SUMI_TRY(sumi_job_reserve(engine, submission->kind, submission->functions, &slot, error));
    const sumi_result result = submission->copy(engine, submission->source, slot, error);
    if (result != SUMI_OK) {
        sumi_job_free(engine, slot);
        return result;
    }
    slot->model = submission->model;
    sumi_job_queue(engine, slot, submission->priority, submission->user_data, out_job);
    return SUMI_OK;
}

sumi_result sumi_call_submit(sumi_engine* engine, const char* function, sumi_submit_function submit, const void* desc,
                             sumi_job* out_job)
{
    if (out_job != NULL) out_job->id = 0;
    if (engine == NULL) return SUMI_INVALID_ARGUMENT;
    SUMI_TRY(sumi_call_begin(engine, function));
    sumi_error error = {0};
    sumi_result result;
    if (desc == NULL || out_job == NULL)
        result = sumi_fail(&error, SUMI_INVALID_ARGUMENT, "%s: desc or out_job is NULL", function);
    else result = submit(engine, desc, out_job, &error);
    return sumi_call_end(engine, result, &error);
}

void* sumi_call_fetch_object(sumi_engine* engine, const char* function, sumi_job job, sumi_job_kind kind,
                             const char* member, bool has_out_parameter, sumi_result* out_result)
{
    *out_result = engine != NULL ? sumi_call_begin(engine, function) : SUMI_INVALID_ARGUMENT;
    if (*out_result != SUMI_OK) return NULL;
    sumi_error error = {0};
    sumi_job_slot* slot = NULL;
    void* object = NULL;
    sumi_result result;
    if (!has_out_parameter) result = sumi_fail(&error, SUMI_INVALID_ARGUMENT, "%s: %s is NULL", function, member);
    else result = sumi_job_finished(engine, job, kind, &slot, &error);
    if (slot != NULL) {
        result = slot->error.result;
        if (result == SUMI_OK) object = slot->functions->take(slot);
        sumi_job_free(engine, slot);
    }
    *out_result = sumi_call_end(engine, result, &error);
    return object;
}
