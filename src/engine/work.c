// The work is a flag under the table's mutex instead of a mutex of its own: so that the pump's thread can step back while
// a call waits for it (a mutex that is released and taken again at once starves the others), and so that waiting for it
// and for jobs is one condition.
#include "engine/work.h"
#include "base/assert.h"
#include "engine/engine.h"
#include "engine/plan_cache.h"

void sumi_work_take(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_mutex_is_held(&engine->table) && !engine->work.is_taken);
    engine->work.is_taken = true;
#if defined(SUMI_CHECKED)
    atomic_store(&engine->work.holder, sumi_this_thread());
#endif
}

void sumi_work_give(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_mutex_is_held(&engine->table) && engine->work.is_taken && sumi_work_is_held(engine));
    engine->plan_inputs = sumi_plan_inputs_now(engine);
    engine->work.is_taken = false;
#if defined(SUMI_CHECKED)
    atomic_store(&engine->work.holder, 0);
#endif
    sumi_condition_broadcast(&engine->changed);
}

void sumi_work_lock(sumi_engine* engine)
{
    SUMI_ASSERT(!sumi_work_is_held(engine)); // it would wait for itself
    sumi_mutex_lock(&engine->table);
    engine->work.waiters++;
    while (engine->work.is_taken) sumi_condition_wait(&engine->changed, &engine->table);
    engine->work.waiters--;
    sumi_work_take(engine);
    sumi_mutex_unlock(&engine->table);
}

void sumi_work_unlock(sumi_engine* engine)
{
    sumi_mutex_lock(&engine->table);
    sumi_work_give(engine);
    sumi_mutex_unlock(&engine->table);
}
