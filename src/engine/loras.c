// LoRA adapters: read in turns of a job, and freed. file_jobs.c submits the job.
#include "engine/loras.h"
#include "base/assert.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/result.h"
#include "jobs/engine_state.h"
#include "jobs/job.h"
#include "jobs/job_memory.h"
#include "jobs/log.h"
#include "jobs/objects.h"
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
    sumi_lora_close(lora);
    SUMI_OBJECT_REMOVE(lora);
    sumi_free(&lora->engine->heap, lora);
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
    SUMI_ASSERT(slot->model != NULL && slot->u.file_job.product == NULL);
    sumi_lora* lora = sumi_alloc(&engine->heap, sizeof *lora);
    if (lora == NULL) return sumi_out_of_memory(error, sizeof *lora, "an adapter");
    *lora = (sumi_lora){.engine = engine, .model = slot->model};
    copy_name(slot->u.file_job.path, lora->name, sizeof lora->name);
    SUMI_OBJECT_ADD(loras, lora);
    slot->u.file_job.product = lora;
    sumi_file_cache_init(&lora->cache, &engine->heap, engine->desc.files);
    return SUMI_OK;
}

// Reads a piece of a file that the host program cannot map, or some layers.
sumi_result sumi_lora_advance(sumi_engine* engine, sumi_job_slot* slot, sumi_turn* turn, sumi_error* error)
{
    turn->stage = SUMI_STAGE_LOAD;
    if (slot->u.file_job.product == NULL) SUMI_TRY(begin_reading(engine, slot, error));
    sumi_lora* lora = slot->u.file_job.product;
    if (sumi_file_cache_is_reading(&lora->cache)) {
        SUMI_TRY(sumi_file_cache_read(&lora->cache,
                                      sumi_frame_limits_piece_us(&engine->frame, engine->desc.max_slice_us), error));
        slot->live.progress = sumi_file_cache_progress(&lora->cache);
        return SUMI_OK;
    }
    if (lora->file == NULL) {
        const sumi_result result =
            sumi_adapter_open_begin(&engine->heap, sumi_file_cache_files(&lora->cache), slot->model->network,
                                    slot->u.file_job.path, error, &lora->file);
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
