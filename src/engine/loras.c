// LoRA adapters: read by a job, used by image jobs, dropped from cached plans when they are released.
#include "engine/loras.h"
#include "base/assert.h"
#include "engine/buffers.h"
#include "engine/calls.h"
#include "engine/engine.h"
#include "engine/engine_memory.h"
#include "engine/frame_budget.h"
#include "engine/job.h"
#include "engine/object_list.h"
#include "engine/plan_cache.h"
#include "engine/run.h"
#include "engine/work.h"
#include <string.h>

void sumi_lora_close(sumi_lora* lora)
{
    SUMI_ASSERT(sumi_work_is_held(lora->engine));
    const sumi_adapter* adapter = lora->file != NULL ? sumi_adapter_get(lora->file) : NULL;
    for (int32_t i = 0; adapter != NULL && i < adapter->delta_count; i++) {
        const sumi_weight* pair[] = {&adapter->deltas[i].down, &adapter->deltas[i].up};
        sumi_engine_forget_weights(lora->engine, pair, 2);
    }
    sumi_adapter_close(lora->file);
    lora->file = NULL;
    sumi_file_cache_close(&lora->cache);
}

void sumi_lora_free(sumi_lora* lora)
{
    if (lora == NULL) return;
    sumi_engine* engine = lora->engine;
    sumi_lora_close(lora);
    sumi_mutex_lock(&engine->table);
    SUMI_LIST_REMOVE(lora);
    sumi_mutex_unlock(&engine->table);
    sumi_free(&engine->heap, lora);
}

static sumi_result begin(sumi_engine* engine, sumi_slot* slot, sumi_error* error)
{
    SUMI_ASSERT(slot->model != NULL && slot->u.lora.product == NULL);
    sumi_lora* lora = sumi_alloc_zero(&engine->heap, sizeof *lora);
    if (lora == NULL) return sumi_out_of_memory(error, sizeof *lora, "an adapter");
    lora->engine = engine;
    lora->model = slot->model;
    sumi_mutex_lock(&engine->table);
    lora->serial = ++engine->next_serial;
    SUMI_LIST_INSERT(engine->loras, lora);
    sumi_mutex_unlock(&engine->table);
    slot->u.lora.product = lora;
    sumi_file_cache_init(&lora->cache, &engine->heap, &engine->desc.files);
    return SUMI_OK;
}

// A piece of a file that the host has no map of, or all the rest.
static sumi_result step(sumi_engine* engine, sumi_slot* slot, sumi_stage* out_stage, sumi_step_end* out_end,
                        sumi_error* error)
{
    *out_stage = SUMI_STAGE_LOAD;
    if (slot->u.lora.product == NULL) SUMI_TRY(begin(engine, slot, error));
    sumi_lora* lora = slot->u.lora.product;
    if (sumi_file_cache_is_reading(&lora->cache)) {
        SUMI_TRY(sumi_file_cache_read(&lora->cache, sumi_frame_budget_piece_us(engine), error));
        slot->live.progress = sumi_file_cache_progress(&lora->cache);
        return SUMI_OK;
    }
    const sumi_result result = sumi_adapter_open(&engine->heap, sumi_file_cache_files(&lora->cache),
                                                 slot->model->network, slot->u.lora.path, error, &lora->file);
    if (result == SUMI_TIMEOUT) return SUMI_OK; // a file has to be read first
    SUMI_TRY(result);
    sumi_file_cache_trim(&lora->cache);
    *out_end = SUMI_STEP_DONE;
    return SUMI_OK;
}

static double predict(const sumi_engine* engine, const sumi_slot* slot)
{
    (void)slot;
    return engine->overhead_us[SUMI_OVERHEAD_LOAD];
}

static void stop(sumi_engine* engine, sumi_slot* slot)
{
    (void)engine;
    (void)slot;
}

static void drop(sumi_engine* engine, sumi_slot* slot)
{
    (void)engine;
    sumi_lora_free(slot->u.lora.product);
    slot->u.lora.product = NULL;
}

static const sumi_job_functions s_functions = {"an adapter job", predict, step, stop, drop};

static sumi_result submit(sumi_engine* engine, const sumi_lora_desc* desc, sumi_job* out_job, sumi_error* error)
{
    SUMI_TRY(sumi_check_cookie(desc->cookie, SUMI_COOKIE_LORA, "sumi_lora_desc", "sumi_lora_defaults", error));
    if (desc->model == NULL)
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "model is NULL: an adapter is read for an opened model");
    if (desc->model->engine != engine)
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "model belongs to another engine");
    if (desc->path == NULL) return sumi_fail(error, SUMI_INVALID_ARGUMENT, "path is NULL: say where the adapter is");
    sumi_slot* slot;
    SUMI_TRY(sumi_job_reserve(engine, SUMI_JOB_KIND_LORA, &s_functions, &slot, error));
    size_t bytes = strlen(desc->path) + 1;
    sumi_result result = sumi_block_reserve(&engine->heap, &slot->input, bytes, "an adapter's path", error);
    if (result != SUMI_OK) {
        sumi_job_free(engine, slot);
        return result;
    }
    memcpy(slot->input.data, desc->path, bytes);
    slot->u.lora.path = slot->input.data;
    slot->model = desc->model;
    sumi_job_queue(engine, slot, desc->priority, desc->user_data, out_job);
    return SUMI_OK;
}

sumi_result sumi_submit_lora(sumi_engine* engine, const sumi_lora_desc* desc, sumi_job* out_job)
{
    if (out_job != NULL) out_job->id = 0;
    if (engine == NULL) return SUMI_INVALID_ARGUMENT;
    SUMI_TRY(sumi_call_begin(engine, "sumi_submit_lora"));
    sumi_error error = {SUMI_OK, {0}};
    sumi_result result;
    if (desc == NULL || out_job == NULL)
        result = sumi_fail(&error, SUMI_INVALID_ARGUMENT, "sumi_submit_lora: desc or out_job is NULL");
    else result = submit(engine, desc, out_job, &error);
    return sumi_call_end(engine, result, &error);
}

static sumi_result fetch(sumi_engine* engine, sumi_job job, sumi_lora** out_lora, sumi_error* error)
{
    SUMI_REFUSE(out_lora == NULL, SUMI_INVALID_ARGUMENT, "sumi_fetch_lora: out_lora is NULL");
    sumi_slot* slot;
    SUMI_TRY(sumi_job_finished(engine, job, SUMI_JOB_KIND_LORA, &slot, error));
    const sumi_result result = slot->error.result;
    if (result == SUMI_OK) {
        *out_lora = slot->u.lora.product;
        slot->u.lora.product = NULL;
    }
    sumi_job_free(engine, slot);
    return result;
}

sumi_result sumi_fetch_lora(sumi_engine* engine, sumi_job job, sumi_lora** out_lora)
{
    if (out_lora != NULL) *out_lora = NULL;
    if (engine == NULL) return SUMI_INVALID_ARGUMENT;
    SUMI_TRY(sumi_call_begin(engine, "sumi_fetch_lora"));
    sumi_error error = {SUMI_OK, {0}};
    const sumi_result result = fetch(engine, job, out_lora, &error);
    return sumi_call_end(engine, result, &error);
}

void sumi_lora_release(sumi_lora* lora)
{
    if (lora == NULL || sumi_call_begin(lora->engine, "sumi_lora_release") != SUMI_OK) return;
    sumi_engine* engine = lora->engine;
    sumi_work_lock(engine);
    sumi_jobs_cancel(engine, NULL, lora, NULL);
    sumi_run_wait_for_all(engine);
    sumi_plan_cache_drop(engine, NULL, lora);
    sumi_lora_free(lora);
    sumi_work_unlock(engine);
    (void)sumi_call_end(engine, SUMI_OK, NULL);
}
