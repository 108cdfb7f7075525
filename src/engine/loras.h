#ifndef SUMI_ENGINE_LORAS_H
#define SUMI_ENGINE_LORAS_H
#include "base/result.h"
#include "jobs/job.h"
#include <sumi.h>

// Removes the adapter's weights from the device and closes its file. The caller holds the pump lock.
void sumi_lora_close(sumi_lora* lora);
void sumi_lora_free(sumi_lora* lora); // the caller holds the pump lock
// The function `advance` of jobs that read an adapter (jobs/job.h).
sumi_result sumi_lora_advance(sumi_engine* engine, sumi_job_slot* slot, sumi_turn* turn, sumi_error* error);
#endif
