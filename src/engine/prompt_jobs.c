// Jobs that encode prompts.
#include "base/result.h"
#include "engine/calls.h"
#include "engine/desc_checks.h"
#include "jobs/buffers.h"
#include "jobs/engine_state.h"
#include "jobs/job.h"
#include "jobs/job_phases.h"
#include "jobs/job_pictures.h"
#include "jobs/objects.h"
#include "jobs/plan_job.h"
#include "models/network.h"
#include "models/pipeline.h"
#include <string.h>

static void* take_prompt(sumi_job_slot* slot)
{
    sumi_prompt* prompt = slot->u.plan_job.products.prompt;
    slot->u.plan_job.products.prompt = NULL;
    return prompt;
}

static const sumi_job_functions s_functions = {"a prompt job",     sumi_plan_job_predict, sumi_plan_job_advance,
                                               sumi_plan_job_stop, sumi_plan_job_drop,    take_prompt};

static sumi_result check_prompt_desc(const sumi_engine* engine, const sumi_prompt_desc* desc,
                                     sumi_references* out_references, sumi_error* error)
{
    SUMI_TRY(sumi_check_cookie(desc->cookie, SUMI_COOKIE_PROMPT, "sumi_prompt_desc", "sumi_prompt_defaults", error));
    SUMI_TRY(sumi_check_model(engine, desc->model, error));
    if (desc->text == NULL)
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "text is NULL: give the prompt, \"\" for the empty one");
    if (!desc->model->info.has_text_encoder) {
        return sumi_fail(
            error, SUMI_NOT_SUPPORTED,
            "model: it was opened without a text encoder; load prompts that were encoded before with sumi_prompt_load");
    }
    SUMI_TRY(sumi_references_check(desc->model, desc->references, desc->reference_count, out_references, error));
    SUMI_TRY(sumi_references_check_count(desc->model, desc->reference_count, error));
    SUMI_TRY(sumi_loras_check(desc->model, desc->loras, desc->lora_count, error));
    return sumi_references_check_vision(desc->model, out_references, error);
}

static void pack_prompt_job(sumi_packer* packer, const char* text, const sumi_references* references,
                            sumi_job_request* request)
{
    request->prompts = sumi_pack(packer, NULL, sizeof *request->prompts);
    const size_t bytes = strlen(text);
    const char* copy = sumi_pack(packer, text, bytes + 1);
    if (request->prompts != NULL) request->prompts[0] = (sumi_job_prompt){.text = copy, .text_bytes = bytes};
    request->references = sumi_references_copy(packer, references);
}

static sumi_result fill_prompt(sumi_engine* engine, const sumi_prompt_desc* desc, const sumi_references* references,
                               sumi_job_slot* slot, sumi_error* error)
{
    sumi_job_request* request = &slot->u.plan_job.request;
    sumi_packer packer = {NULL, 0};
    pack_prompt_job(&packer, desc->text, references, request);
    SUMI_TRY(sumi_block_reserve(&engine->heap, &slot->input, packer.used, "a prompt", error));
    packer = (sumi_packer){slot->input.data, 0};
    pack_prompt_job(&packer, desc->text, references, request);
    sumi_loras_copy(desc->loras, desc->lora_count, false, true, request);
    request->goal = SUMI_GOAL_PROMPTS;
    request->prompt_count = 1;
    request->picture_channels = desc->model->info.picture_channels;
    return SUMI_OK;
}

static sumi_result submit_prompt(sumi_engine* engine, const sumi_prompt_desc* desc, sumi_job* out_job,
                                 sumi_error* error)
{
    sumi_references references;
    SUMI_TRY(check_prompt_desc(engine, desc, &references, error));
    sumi_job_slot* slot;
    SUMI_TRY(sumi_job_reserve(engine, SUMI_JOB_KIND_PROMPT, &s_functions, &slot, error));
    const sumi_result result = fill_prompt(engine, desc, &references, slot, error);
    if (result != SUMI_OK) {
        sumi_job_free(engine, slot);
        return result;
    }
    slot->model = desc->model;
    sumi_job_queue(engine, slot, desc->priority, desc->user_data, out_job);
    return SUMI_OK;
}

sumi_result sumi_submit_prompt(sumi_engine* engine, const sumi_prompt_desc* desc, sumi_job* out_job)
{
    SUMI_TRY(sumi_call_begin_submit(engine, "sumi_submit_prompt", desc, out_job));
    sumi_error error = {0};
    const sumi_result result = submit_prompt(engine, desc, out_job, &error);
    return sumi_call_end(engine, result, &error);
}

sumi_result sumi_fetch_prompt(sumi_engine* engine, sumi_job handle, sumi_prompt** out_prompt)
{
    static const sumi_object_fetch s_fetch = {"sumi_fetch_prompt", SUMI_JOB_KIND_PROMPT, "out_prompt"};
    sumi_result result;
    void* prompt = sumi_call_fetch_object(engine, handle, &s_fetch, out_prompt != NULL, &result);
    if (out_prompt != NULL) *out_prompt = prompt;
    return result;
}
