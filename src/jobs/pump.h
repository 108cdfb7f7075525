// The pump: runs slices of jobs, inside updates and waits of the host program or on a thread of sumi.
#ifndef SUMI_JOBS_PUMP_H
#define SUMI_JOBS_PUMP_H
#include "base/platform.h"
#include <sumi.h>

typedef struct sumi_pump_state {
    sumi_thread thread; // of SUMI_PUMP_THREAD
    sumi_thread_start start;
    bool has_thread;
    bool is_closing; // protected by `state_lock`
} sumi_pump_state;

// Runs slices for about this long, without waiting for a device: the body of sumi_engine_update. 0: only cancelled jobs
// end. Not with SUMI_PUMP_THREAD.
void sumi_pump_update(sumi_engine* engine, uint32_t budget_us);
// Runs slices, or waits for the pump's thread, until the job has ended: the body of sumi_job_wait. SUMI_STALE_HANDLE,
// SUMI_TIMEOUT.
sumi_result sumi_pump_wait(sumi_engine* engine, sumi_job handle, uint32_t timeout_ms);
bool sumi_pump_start_thread(sumi_engine* engine);
void sumi_pump_stop_thread(sumi_engine* engine);
#endif
