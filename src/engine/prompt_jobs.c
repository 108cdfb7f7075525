// Jobs that encode prompts.
#include "base/assert.h"
#include "engine/buffers.h"
#include "engine/calls.h"
#include "engine/desc_checks.h"
#include "engine/engine.h"
#include "engine/job.h"
#include "engine/job_phases.h"
#include "engine/plan_job.h"
#include "engine/prompts.h"
#include "engine/references.h"
#include "engine/submission.h"
#include <string.h>

static void* take_prompt(sumi_job_slot* slot)
{
    sumi_prompt* prompt = slot->u.plan.products.prompt;
    slot->u.plan.products.prompt = NULL;
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
    return sumi_references_check_vision(desc->model, out_references, error);
}

typedef struct prompt_source {
    const char* text;
    sumi_references references;
} prompt_source;

static void pack_prompt_job(sumi_packer* packer, const prompt_source* source, sumi_job_request* request)
{
    request->prompts = sumi_pack(packer, NULL, sizeof *request->prompts);
    const size_t bytes = strlen(source->text);
    const char* copy = sumi_pack(packer, source->text, bytes + 1);
    if (request->prompts != NULL) request->prompts[0] = (sumi_job_prompt){.text = copy, .text_bytes = bytes};
    request->references = sumi_references_copy(packer, &source->references);
}

static sumi_result copy_prompt(sumi_engine* engine, const void* source, sumi_job_slot* slot, sumi_error* error)
{
    sumi_job_request* request = &slot->u.plan.request;
    sumi_packer packer = {NULL, 0};
    pack_prompt_job(&packer, source, request);
    SUMI_TRY(sumi_block_reserve(&engine->heap, &slot->input, packer.used, "a prompt", error));
    packer = (sumi_packer){slot->input.data, 0};
    pack_prompt_job(&packer, source, request);
    request->goal = SUMI_GOAL_PROMPTS;
    request->prompt_count = 1;
    return SUMI_OK;
}

static sumi_result submit_prompt(sumi_engine* engine, const void* public_desc, sumi_job* out_job, sumi_error* error)
{
    const sumi_prompt_desc* desc = public_desc;
    prompt_source source = {.text = desc->text};
    SUMI_TRY(check_prompt_desc(engine, desc, &source.references, error));
    const sumi_submission submission = {.kind = SUMI_JOB_KIND_PROMPT,
                                        .functions = &s_functions,
                                        .model = desc->model,
                                        .copy = copy_prompt,
                                        .source = &source,
                                        .priority = desc->priority,
                                        .user_data = desc->user_data};
    return sumi_job_submit(engine, &submission, out_job, error);
}

sumi_result sumi_submit_prompt(sumi_engine* engine, const sumi_prompt_desc* desc, sumi_job* out_job)
{
    return sumi_call_submit(engine, "sumi_submit_prompt", submit_prompt, desc, out_job);
}

sumi_result sumi_fetch_prompt(sumi_engine* engine, sumi_job job, sumi_prompt** out_prompt)
{
    sumi_result result;
    void* prompt = sumi_call_fetch_object(engine, "sumi_fetch_prompt", job, SUMI_JOB_KIND_PROMPT, "out_prompt",
                                          out_prompt != NULL, &result);
    if (out_prompt != NULL) *out_prompt = prompt;
    return result;
}
