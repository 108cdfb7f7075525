// What all functions have in common that fetch an object: a model, a prompt, an adapter.
#ifndef SUMI_ENGINE_FETCH_OBJECT_H
#define SUMI_ENGINE_FETCH_OBJECT_H
#include "jobs/job.h"

// The body of a public function that fetches an object, which functions->take returns. NULL after a failure. `member`:
// name of the out parameter, for messages. has_out_parameter: the out parameter is not NULL.
void* sumi_call_fetch_object(sumi_engine* engine, const char* function, sumi_job handle, sumi_job_kind kind,
                             const char* member, bool has_out_parameter, sumi_result* out_result);
#endif
