// The pump lock. The thread that holds it may run slices, and may touch the runner, the plan cache and the workspace.
// The pump holds it for one slice. Calls that take something away from running jobs (close, release, destroy) hold it
// too.
#ifndef SUMI_JOBS_PUMP_LOCK_H
#define SUMI_JOBS_PUMP_LOCK_H
#include <stdatomic.h>
#include <stdbool.h>
#include <sumi.h>

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
// The same for a caller that holds `state_lock` and has seen that the pump lock is free.
void sumi_pump_lock_take(sumi_engine* engine);
void sumi_pump_lock_give(sumi_engine* engine);
#endif
