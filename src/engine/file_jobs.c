// Jobs that read a file for a model: adapters and control nets are submitted, fetched and released alike. loras.c and
// controls.c read them. The cached plans that use an object are dropped when it is released.
#include "base/result.h"
#include "engine/calls.h"
#include "engine/controls.h"
#include "engine/loras.h"
#include "jobs/buffers.h"
#include "jobs/engine_state.h"
#include "jobs/job.h"
#include "jobs/objects.h"
#include "jobs/plan_cache.h"
#include "jobs/pump.h"
#include "jobs/run.h"
#include <string.h>

static void* take(sumi_job_slot* slot)
{
    void* product = slot->u.file_job.product;
    slot->u.file_job.product = NULL;
    return product;
}

static void drop(sumi_engine* engine, sumi_job_slot* slot)
{
    (void)engine;
    if (slot->kind == SUMI_JOB_KIND_LORA) sumi_lora_free(take(slot));
    else sumi_control_free(take(slot));
}

// The members of sumi_lora_desc and of sumi_control_desc.
typedef struct file_desc {
    uint32_t cookie;
    sumi_model* model;
    const char* path;
    int32_t priority;
    void* user_data;
} file_desc;

typedef struct file_kind {
    sumi_job_kind kind;
    const char* what; // for messages, as are the next two
    const char *desc_type, *defaults;
    uint32_t cookie;
    sumi_job_functions functions;
} file_kind;
static const file_kind s_lora = {
    SUMI_JOB_KIND_LORA, "an adapter",
    "sumi_lora_desc",   "sumi_lora_defaults",
    SUMI_COOKIE_LORA,   {"an adapter job", sumi_job_predict_load, sumi_lora_advance, NULL, drop, take}};
static const file_kind s_control = {
    SUMI_JOB_KIND_CONTROL, "a control net",
    "sumi_control_desc",   "sumi_control_defaults",
    SUMI_COOKIE_CONTROL,   {"a control net job", sumi_job_predict_load, sumi_control_advance, NULL, drop, take}};

static sumi_result queue(sumi_engine* engine, const file_kind* kind, const file_desc* desc, sumi_job* out_job,
                         sumi_error* error)
{
    SUMI_TRY(sumi_check_cookie(desc->cookie, kind->cookie, kind->desc_type, kind->defaults, error));
    SUMI_REFUSE(desc->model == NULL, SUMI_INVALID_ARGUMENT, "model is NULL: %s is read for an opened model",
                kind->what);
    SUMI_REFUSE(desc->model->engine != engine, SUMI_INVALID_ARGUMENT, "model belongs to another engine");
    SUMI_REFUSE(desc->path == NULL, SUMI_INVALID_ARGUMENT, "path is NULL: say where %s is", kind->what);
    sumi_job_slot* slot;
    SUMI_TRY(sumi_job_reserve(engine, kind->kind, &kind->functions, &slot, error));
    const size_t bytes = strlen(desc->path) + 1;
    const sumi_result result = sumi_block_reserve(&engine->heap, &slot->input, bytes, "a path", error);
    if (result != SUMI_OK) {
        sumi_job_free(engine, slot);
        return result;
    }
    slot->u.file_job.path = memcpy(slot->input.data, desc->path, bytes);
    slot->model = desc->model;
    sumi_job_queue(engine, slot, desc->priority, desc->user_data, out_job);
    return SUMI_OK;
}

static sumi_result submit(sumi_engine* engine, const file_kind* kind, const file_desc* desc, sumi_job* out_job)
{
    sumi_error error = {0};
    const sumi_result result = queue(engine, kind, desc, out_job, &error);
    return sumi_call_end(engine, result, &error);
}

sumi_result sumi_submit_lora(sumi_engine* engine, const sumi_lora_desc* desc, sumi_job* out_job)
{
    SUMI_TRY(sumi_call_begin_submit(engine, "sumi_submit_lora", desc, out_job));
    const file_desc file = {desc->cookie, desc->model, desc->path, desc->priority, desc->user_data};
    return submit(engine, &s_lora, &file, out_job);
}

sumi_result sumi_submit_control(sumi_engine* engine, const sumi_control_desc* desc, sumi_job* out_job)
{
    SUMI_TRY(sumi_call_begin_submit(engine, "sumi_submit_control", desc, out_job));
    const file_desc file = {desc->cookie, desc->model, desc->path, desc->priority, desc->user_data};
    return submit(engine, &s_control, &file, out_job);
}

sumi_result sumi_fetch_lora(sumi_engine* engine, sumi_job handle, sumi_lora** out_lora)
{
    static const sumi_object_fetch s_fetch = {"sumi_fetch_lora", SUMI_JOB_KIND_LORA, "out_lora"};
    sumi_result result;
    void* lora = sumi_call_fetch_object(engine, handle, &s_fetch, out_lora != NULL, &result);
    if (out_lora != NULL) *out_lora = lora;
    return result;
}

sumi_result sumi_fetch_control(sumi_engine* engine, sumi_job handle, sumi_control** out_control)
{
    static const sumi_object_fetch s_fetch = {"sumi_fetch_control", SUMI_JOB_KIND_CONTROL, "out_control"};
    sumi_result result;
    void* control = sumi_call_fetch_object(engine, handle, &s_fetch, out_control != NULL, &result);
    if (out_control != NULL) *out_control = control;
    return result;
}

// One of the two objects, the other NULL.
static void release(sumi_engine* engine, const char* function, sumi_lora* lora, sumi_control* control)
{
    if (sumi_call_begin(engine, function) != SUMI_OK) return;
    const sumi_used_object object = {.lora = lora, .control = control};
    sumi_pump_lock(engine);
    sumi_jobs_cancel(engine, &object);
    sumi_run_wait_for_all(engine);
    sumi_plan_cache_drop(engine, &object);
    sumi_lora_free(lora);
    sumi_control_free(control);
    sumi_pump_unlock(engine);
    (void)sumi_call_end(engine, SUMI_OK, NULL);
}

void sumi_lora_release(sumi_lora* lora)
{
    if (lora != NULL) release(lora->engine, "sumi_lora_release", lora, NULL);
}

void sumi_control_release(sumi_control* control)
{
    if (control != NULL) release(control->engine, "sumi_control_release", NULL, control);
}
