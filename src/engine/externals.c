// Textures of the host program that pictures are copied to.
#include "engine/externals.h"
#include "base/assert.h"
#include "engine/calls.h"
#include "engine/engine.h"
#include "engine/job.h"
#include "engine/object_list.h"
#include "engine/pump_lock.h"

static sumi_result import_texture(sumi_engine* engine, uint32_t texture, uint32_t target, int32_t width, int32_t height,
                                  sumi_external** out_external, sumi_error* error)
{
    SUMI_REFUSE(engine->runner->functions->import_gl == NULL, SUMI_NOT_SUPPORTED,
                "sumi_import_gl_texture: the CPU backend has no textures; give host_memory");
    SUMI_REFUSE(width < 1 || height < 1 || width > 32768 || height > 32768, SUMI_INVALID_ARGUMENT,
                "sumi_import_gl_texture: a texture of %d x %d", (int)width, (int)height);
    sumi_external* external = sumi_alloc_zero(&engine->heap, sizeof *external);
    if (external == NULL) return sumi_out_of_memory(error, sizeof *external, "a texture");
    *external = (sumi_external){.engine = engine, .width = width, .height = height};
    sumi_pump_lock(engine);
    const sumi_result result =
        engine->runner->functions->import_gl(engine->runner, texture, target, width, height, &external->import, error);
    sumi_pump_unlock(engine);
    if (result != SUMI_OK) {
        sumi_free(&engine->heap, external);
        return result;
    }
    sumi_mutex_lock(&engine->state_lock);
    SUMI_LIST_INSERT(engine->externals, external);
    sumi_mutex_unlock(&engine->state_lock);
    *out_external = external;
    return SUMI_OK;
}

sumi_result sumi_import_gl_texture(sumi_engine* engine, uint32_t texture, uint32_t target, int32_t width,
                                   int32_t height, sumi_external** out_external)
{
    if (out_external != NULL) *out_external = NULL;
    if (engine == NULL) return SUMI_INVALID_ARGUMENT;
    SUMI_TRY(sumi_call_begin(engine, "sumi_import_gl_texture"));
    sumi_error error = {0};
    sumi_result result;
    if (out_external == NULL)
        result = sumi_fail(&error, SUMI_INVALID_ARGUMENT, "sumi_import_gl_texture: out_external is NULL");
    else result = import_texture(engine, texture, target, width, height, out_external, &error);
    return sumi_call_end(engine, result, &error);
}

void sumi_external_free(sumi_external* external)
{
    SUMI_ASSERT(sumi_pump_is_locked(external->engine));
    sumi_engine* engine = external->engine;
    engine->runner->functions->release_import(engine->runner, &external->import);
    sumi_mutex_lock(&engine->state_lock);
    SUMI_LIST_REMOVE(external);
    sumi_mutex_unlock(&engine->state_lock);
    sumi_free(&engine->heap, external);
}

// A job that is done but not fetched keeps its other pictures; its target is no longer this texture.
static void forget_in_jobs(sumi_engine* engine, const sumi_external* external)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    for (int32_t i = 0; i < engine->jobs.slot_count; i++) {
        sumi_job_slot* slot = &engine->jobs.slots[i];
        if (slot->id == 0 || slot->kind != SUMI_JOB_KIND_IMAGES || slot->u.plan.items == NULL) continue;
        for (int32_t k = 0; k < slot->u.plan.item_count; k++) {
            if (slot->u.plan.items[k].target.external == external) slot->u.plan.items[k].target.external = NULL;
        }
    }
}

void sumi_external_release(sumi_external* external)
{
    if (external == NULL || sumi_call_begin(external->engine, "sumi_external_release") != SUMI_OK) return;
    sumi_engine* engine = external->engine;
    sumi_pump_lock(engine);
    sumi_jobs_cancel(engine, NULL, NULL, external);
    forget_in_jobs(engine, external);
    sumi_external_free(external);
    sumi_pump_unlock(engine);
    (void)sumi_call_end(engine, SUMI_OK, NULL);
}
