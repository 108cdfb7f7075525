// The work is a flag under the table's mutex instead of a mutex of its own: so that the pump's thread can step back while
// a call waits for it (a mutex that is released and taken again at once starves the others), and so that waiting for it
// and for jobs is one condition.
#include "engine/pump_lock.h"
#include "base/assert.h"
#include "engine/engine.h"
#include "engine/plan_cache.h"

void sumi_work_take(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_mutex_is_held(&engine->state_lock) && !engine->pump_lock.is_locked);
    engine->pump_lock.is_locked = true;
#if defined(SUMI_CHECKED)
    atomic_store(&engine->pump_lock.holder, sumi_this_thread());
#endif
}

void sumi_work_give(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_mutex_is_held(&engine->state_lock) && engine->pump_lock.is_locked && sumi_pump_is_locked(engine));
    engine->plan_inputs = sumi_plan_inputs_now(engine);
    engine->pump_lock.is_locked = false;
#if defined(SUMI_CHECKED)
    atomic_store(&engine->pump_lock.holder, 0);
#endif
    sumi_condition_broadcast(&engine->state_changed);
}

void sumi_pump_lock(sumi_engine* engine)
{
    SUMI_ASSERT(!sumi_pump_is_locked(engine)); // it would wait for itself
    sumi_mutex_lock(&engine->state_lock);
    engine->pump_lock.waiters++;
    while (engine->pump_lock.is_locked) sumi_condition_wait(&engine->state_changed, &engine->state_lock);
    engine->pump_lock.waiters--;
    sumi_work_take(engine);
    sumi_mutex_unlock(&engine->state_lock);
}

void sumi_pump_unlock(sumi_engine* engine)
{
    sumi_mutex_lock(&engine->state_lock);
    sumi_work_give(engine);
    sumi_mutex_unlock(&engine->state_lock);
}
