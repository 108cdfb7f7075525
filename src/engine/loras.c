// LoRA adapters: read by a job, used by image jobs, and released; the cached plans that use them are dropped then.
#include "engine/loras.h"
#include "base/assert.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/platform.h"
#include "base/result.h"
#include "engine/calls.h"
#include "jobs/buffers.h"
#include "jobs/engine_state.h"
#include "jobs/job.h"
#include "jobs/job_memory.h"
#include "jobs/objects.h"
#include "jobs/plan_cache.h"
#include "jobs/pump.h"
#include "jobs/run.h"
#include "models/network.h"
#include "pacing/frame_limits.h"
#include "plan/weight.h"
#include <string.h>

void sumi_lora_close(sumi_lora* lora)
{
    SUMI_ASSERT(sumi_pump_is_locked(lora->engine));
    for (int32_t part = 0; part < 2 && lora->file != NULL; part++) {
        const sumi_adapter* adapter = part == 0 ? sumi_adapter_get(lora->file) : sumi_adapter_get_text(lora->file);
        for (int32_t i = 0; i < adapter->delta_count; i++) {
            const sumi_weight* pair[] = {&adapter->deltas[i].down, &adapter->deltas[i].up};
            sumi_engine_release_weights(lora->engine, pair, 2);
        }
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
    sumi_mutex_lock(&engine->state_lock);
    SUMI_LIST_REMOVE(lora);
    sumi_mutex_unlock(&engine->state_lock);
    sumi_free(&engine->heap, lora);
}

// The last part of a path; of a longer one its end.
static void copy_name(const char* path, char* into, size_t bytes)
{
    size_t end = strlen(path);
    while (end > 1 && (path[end - 1] == '/' || path[end - 1] == '\\')) end--;
    size_t begin = end;
    while (begin > 0 && end - begin < bytes - 1 && path[begin - 1] != '/' && path[begin - 1] != '\\') begin--;
    while (begin < end && ((unsigned char)path[begin] & 0xC0) == 0x80) begin++; // no rest of a character in UTF-8
    memcpy(into, path + begin, end - begin);
    into[end - begin] = '\0';
}

static sumi_result begin_reading(sumi_engine* engine, sumi_job_slot* slot, sumi_error* error)
{
    SUMI_ASSERT(slot->model != NULL && slot->u.lora_job.product == NULL);
    sumi_lora* lora = sumi_alloc_zero(&engine->heap, sizeof *lora);
    if (lora == NULL) return sumi_out_of_memory(error, sizeof *lora, "an adapter");
    lora->engine = engine;
    lora->model = slot->model;
    copy_name(slot->u.lora_job.path, lora->name, sizeof lora->name);
    sumi_mutex_lock(&engine->state_lock);
    lora->serial = ++engine->next_serial;
    SUMI_LIST_INSERT(engine->loras, lora);
    sumi_mutex_unlock(&engine->state_lock);
    slot->u.lora_job.product = lora;
    sumi_file_cache_init(&lora->cache, &engine->heap, engine->desc.files);
    return SUMI_OK;
}

// Reads a piece of a file that the host program cannot map, or some layers.
static sumi_result advance_reading(sumi_engine* engine, sumi_job_slot* slot, sumi_turn* turn, sumi_error* error)
{
    turn->stage = SUMI_STAGE_LOAD;
    if (slot->u.lora_job.product == NULL) SUMI_TRY(begin_reading(engine, slot, error));
    sumi_lora* lora = slot->u.lora_job.product;
    if (sumi_file_cache_is_reading(&lora->cache)) {
        SUMI_TRY(sumi_file_cache_read(&lora->cache,
                                      sumi_frame_limits_piece_us(&engine->frame, engine->desc.max_slice_us), error));
        slot->live.progress = sumi_file_cache_progress(&lora->cache);
        return SUMI_OK;
    }
    if (lora->file == NULL) {
        const sumi_result result =
            sumi_adapter_open_begin(&engine->heap, sumi_file_cache_files(&lora->cache), slot->model->network,
                                    slot->u.lora_job.path, error, &lora->file);
        return result == SUMI_TIMEOUT ? SUMI_OK : result; // a file has to be read first; the next turn continues
    }
    bool is_done;
    SUMI_TRY(sumi_adapter_open_step(lora->file, sumi_frame_limits_piece_us(&engine->frame, engine->desc.max_slice_us),
                                    &is_done, &slot->live.progress, error));
    if (!is_done) return SUMI_OK;
    const char* notice = sumi_adapter_notice(lora->file);
    if (notice[0] != '\0') sumi_log_write(engine, SUMI_LOG_WARNING, SUMI_OK, notice);
    sumi_file_cache_trim(&lora->cache);
    turn->end = SUMI_TURN_DONE;
    return SUMI_OK;
}

static void stop_reading(sumi_engine* engine, sumi_job_slot* slot)
{
    (void)engine;
    (void)slot;
}

static void drop_lora(sumi_engine* engine, sumi_job_slot* slot)
{
    (void)engine;
    sumi_lora_free(slot->u.lora_job.product);
    slot->u.lora_job.product = NULL;
}

static void* take_lora(sumi_job_slot* slot)
{
    sumi_lora* lora = slot->u.lora_job.product;
    slot->u.lora_job.product = NULL;
    return lora;
}

static const sumi_job_functions s_functions = {
    "an adapter job", sumi_job_predict_load, advance_reading, stop_reading, drop_lora, take_lora};

static sumi_result submit_lora(sumi_engine* engine, const sumi_lora_desc* desc, sumi_job* out_job, sumi_error* error)
{
    SUMI_REFUSE(desc == NULL || out_job == NULL, SUMI_INVALID_ARGUMENT, "sumi_submit_lora: desc or out_job is NULL");
    SUMI_TRY(sumi_check_cookie(desc->cookie, SUMI_COOKIE_LORA, "sumi_lora_desc", "sumi_lora_defaults", error));
    SUMI_TRY(sumi_check_file_of_model(engine, desc->model, desc->path, "an adapter", error));
    sumi_job_slot* slot;
    SUMI_TRY(sumi_job_reserve(engine, SUMI_JOB_KIND_LORA, &s_functions, &slot, error));
    const sumi_result result = sumi_job_keep_path(engine, slot, desc->path, &slot->u.lora_job.path, error);
    if (result != SUMI_OK) {
        sumi_job_free(engine, slot);
        return result;
    }
    slot->model = desc->model;
    sumi_job_queue(engine, slot, desc->priority, desc->user_data, out_job);
    return SUMI_OK;
}

sumi_result sumi_submit_lora(sumi_engine* engine, const sumi_lora_desc* desc, sumi_job* out_job)
{
    if (out_job != NULL) out_job->id = 0;
    if (engine == NULL) return SUMI_INVALID_ARGUMENT;
    SUMI_TRY(sumi_call_begin(engine, "sumi_submit_lora"));
    sumi_error error = {0};
    const sumi_result result = submit_lora(engine, desc, out_job, &error);
    return sumi_call_end(engine, result, &error);
}

sumi_result sumi_fetch_lora(sumi_engine* engine, sumi_job handle, sumi_lora** out_lora)
{
    sumi_result result;
    const sumi_object_fetch fetch = {
        .function = "sumi_fetch_lora", .kind = SUMI_JOB_KIND_LORA, .out_name = "out_lora", .has_out = out_lora != NULL};
    void* lora = sumi_call_fetch_object(engine, handle, &fetch, &result);
    if (out_lora != NULL) *out_lora = lora;
    return result;
}

void sumi_lora_release(sumi_lora* lora)
{
    if (lora == NULL || sumi_call_begin(lora->engine, "sumi_lora_release") != SUMI_OK) return;
    sumi_engine* engine = lora->engine;
    sumi_pump_lock(engine);
    sumi_jobs_cancel(engine, &(sumi_used_object){.lora = lora});
    sumi_run_wait_for_all(engine);
    sumi_plan_cache_drop(engine, &(sumi_used_object){.lora = lora});
    sumi_lora_free(lora);
    sumi_pump_unlock(engine);
    (void)sumi_call_end(engine, SUMI_OK, NULL);
}
