// The pump lock is a flag that the mutex `state_lock` protects, and not a mutex of its own, for two reasons. The pump's
// thread can step back while a call waits for the lock; with a mutex that is unlocked and locked again at once, the
// others would starve. And waiting for the lock and waiting for jobs use one condition variable.
#include "jobs/pump_lock.h"
#include "base/assert.h"
#include "base/platform.h"
#include "jobs/engine_state.h"
#include "jobs/plan_cache.h"
#include <stdatomic.h>

void sumi_pump_lock_take(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_mutex_is_held(&engine->state_lock) && !engine->pump_lock.is_locked);
    engine->pump_lock.is_locked = true;
#if defined(SUMI_CHECKED)
    atomic_store(&engine->pump_lock.holder, sumi_this_thread());
#endif
}

void sumi_pump_lock_give(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_mutex_is_held(&engine->state_lock) && engine->pump_lock.is_locked && sumi_pump_is_locked(engine));
    engine->plan_inputs = sumi_plan_inputs_of_next_job(engine);
    engine->pump_lock.is_locked = false;
#if defined(SUMI_CHECKED)
    atomic_store(&engine->pump_lock.holder, 0);
#endif
    sumi_condition_broadcast(&engine->state_changed);
}

void sumi_pump_lock(sumi_engine* engine)
{
    SUMI_ASSERT(!sumi_pump_is_locked(engine)); // this thread would wait for itself
    sumi_mutex_lock(&engine->state_lock);
    engine->pump_lock.waiters++;
    while (engine->pump_lock.is_locked) sumi_condition_wait(&engine->state_changed, &engine->state_lock);
    engine->pump_lock.waiters--;
    sumi_pump_lock_take(engine);
    sumi_mutex_unlock(&engine->state_lock);
}

void sumi_pump_unlock(sumi_engine* engine)
{
    sumi_mutex_lock(&engine->state_lock);
    sumi_pump_lock_give(engine);
    sumi_mutex_unlock(&engine->state_lock);
}
