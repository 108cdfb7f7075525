// The pump: runs slices of jobs, inside updates and waits of the host program or on a thread of sumi. And the pump
// lock: the thread that holds it may run slices, and may touch the runner, the plan cache and the workspace. The pump
// holds it for one slice. Calls that take something away from running jobs (close, release, destroy) hold it too.
#ifndef SUMI_JOBS_PUMP_H
#define SUMI_JOBS_PUMP_H
#include "base/platform.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <sumi.h>

// ---- The pump lock --------------------------------------------------------------------------------------------------

// protected by `state_lock`
typedef struct sumi_pump_lock_state {
    bool is_locked;  // somebody holds the pump lock
    int32_t waiters; // calls that wait for the lock: the pump's thread lets them go first
#if defined(SUMI_CHECKED)
    atomic_uintptr_t holder; // sumi_this_thread() of the holder; 0: nobody
#endif
} sumi_pump_lock_state;

void sumi_pump_lock(sumi_engine* engine);
void sumi_pump_unlock(sumi_engine* engine);

// ---- The pump -------------------------------------------------------------------------------------------------------

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
