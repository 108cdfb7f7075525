// What all submit and fetch functions have in common.
#ifndef SUMI_ENGINE_SUBMISSION_H
#define SUMI_ENGINE_SUBMISSION_H
#include "engine/job.h"

// A desc that has passed its checks.
typedef struct sumi_submission {
    sumi_job_kind kind;
    const sumi_job_functions* functions;
    sumi_model* model; // NULL: the job opens a model
    // Copies what the job needs of `source` into its job slot.
    sumi_result (*copy)(sumi_engine* engine, const void* source, sumi_job_slot* slot, sumi_error* error);
    const void* source;
    int32_t priority;
    void* user_data;
} sumi_submission;
sumi_result sumi_job_submit(sumi_engine* engine, const sumi_submission* submission, sumi_job* out_job,
                            sumi_error* error);

// The body of a public function that submits: begins and ends the call and refuses NULL. `submit` checks the desc and
// calls sumi_job_submit.
typedef sumi_result (*sumi_submit_function)(sumi_engine* engine, const void* desc, sumi_job* out_job,
                                            sumi_error* error);
sumi_result sumi_call_submit(sumi_engine* engine, const char* function, sumi_submit_function submit, const void* desc,
                             sumi_job* out_job);

// The body of a public function that fetches an object, which functions->take returns. NULL after a failure. `member`:
// name of the out parameter, for messages. has_out_parameter: the out parameter is not NULL.
void* sumi_call_fetch_object(sumi_engine* engine, const char* function, sumi_job job, sumi_job_kind kind,
                             const char* member, bool has_out_parameter, sumi_result* out_result);
#endif
