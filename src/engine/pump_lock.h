// The right to work: who has it may run slices, and touch runner, cache and workspace. The pump holds it for one slice;
// so do calls that take something away from running jobs: close, release, destroy.
#ifndef SUMI_ENGINE_PUMP_LOCK_H
#define SUMI_ENGINE_PUMP_LOCK_H
#include <stdatomic.h>
#include <stdbool.h>
#include <sumi.h>

// under `table`
typedef struct sumi_pump_lock_state {
    bool is_locked;  // somebody holds the work
    int32_t waiters; // calls that want it: the pump's thread steps back for them
#if defined(SUMI_CHECKED)
    atomic_uintptr_t holder; // sumi_this_thread() of who; 0: nobody
#endif
} sumi_pump_lock_state;

void sumi_pump_lock(sumi_engine* engine);
void sumi_pump_unlock(sumi_engine* engine);
// The same for who holds `table` and has seen that nobody holds the work.
void sumi_work_take(sumi_engine* engine);
void sumi_work_give(sumi_engine* engine);
#endif
