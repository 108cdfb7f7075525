#include "jobs/job_request.h"
#include "base/assert.h"
#include "base/memory.h"
#include "base/result.h"
#include "jobs/buffers.h"
#include "jobs/engine_state.h"
#include "jobs/job_pictures.h"
#include "jobs/objects.h"
#include "jobs/plan_job.h"
#include "jobs/plan_key.h"
#include "jobs/prompt.h"
#include "models/network.h"
#include "models/pipeline.h"
#include "models/prompt_reader.h"
#include "pictures/picture_sizes.h"
#include "sampling/schedule.h"
#include "sampling/solver.h"
#include <math.h>
#include <string.h>

// The most token ids that a prompt of the job can have: those of its text and those of the references.
static int32_t max_ids(const sumi_model* model, const sumi_plan_job* job)
{
    return model->info.max_prompt_tokens + sumi_references_tokens(&job->request.references);
}

void sumi_plan_job_free_prompts(sumi_plan_job* job)
{
    for (int32_t i = 0; job->request.prompts != NULL && i < job->request.prompt_count; i++) {
        sumi_prompt_free(job->request.prompts[i].source);
        job->request.prompts[i].source = NULL;
    }
}

int32_t* sumi_plan_job_ids(const sumi_planning* planning, int32_t prompt, int32_t encoder)
{
    const sumi_model* model = planning->model;
    SUMI_ASSERT(prompt >= 0 && encoder >= 0 && encoder < model->info.text_encoder_count);
    size_t list_index = (size_t)prompt * (size_t)model->info.text_encoder_count + (size_t)encoder;
    return (int32_t*)planning->workspace->ids.data + list_index * (size_t)max_ids(model, planning->job);
}

// Begins to read the prompt for the next text encoder.
static sumi_result begin_reading(const sumi_planning* planning, int32_t prompt, sumi_error* error)
{
    sumi_workspace* workspace = planning->workspace;
    sumi_model* model = planning->model;
    sumi_plan_job* job = planning->job;
    const int32_t max_count = max_ids(model, job), encoder = job->progress.text_encoder;
    // The size is the same for every prompt of the job, so the block grows at most with the first one and keeps its
    // content.
    const uint64_t bytes = (uint64_t)job->request.prompt_count * (uint64_t)model->info.text_encoder_count
                         * (uint64_t)max_count * sizeof(int32_t);
    SUMI_TRY(sumi_block_reserve(workspace->heap, &workspace->ids, bytes, "token ids", error));
    if (workspace->reader == NULL) SUMI_TRY(sumi_prompt_reader_create(workspace->heap, error, &workspace->reader));
    sumi_job_prompt* p = &job->request.prompts[prompt];
    for (int32_t i = 0; i < job->request.references.count; i++)
        job->progress.picture_tokens[i] = job->request.references.list[i].sizes.tokens;
    const sumi_prompt_text text = {.text = p->text,
                                   .bytes = p->text_bytes,
                                   .picture_tokens = job->progress.picture_tokens,
                                   .picture_count = job->request.references.count};
    // Only the ids of the first encoder have places for the references.
    const sumi_prompt_ids ids = {.ids = sumi_plan_job_ids(planning, prompt, encoder),
                                 .capacity = max_count,
                                 .picture_rows = encoder == 0 ? p->picture_row : job->progress.other_picture_rows};
    SUMI_TRY(sumi_prompt_reader_begin(workspace->reader, model->network, encoder, &text, &ids, error));
    job->progress.is_reading = true;
    return SUMI_OK;
}

sumi_result sumi_plan_job_tokenise(const sumi_planning* planning, int32_t prompt, uint64_t max_work, bool* out_done,
                                   sumi_error* error)
{
    sumi_workspace* workspace = planning->workspace;
    sumi_plan_job* job = planning->job;
    sumi_job_progress* progress = &job->progress;
    SUMI_ASSERT(prompt >= 0 && prompt < job->request.prompt_count);
    sumi_job_prompt* p = &job->request.prompts[prompt];
    uint64_t work = 0;
    if (progress->text_encoder == 0 && !progress->is_reading) p->cut_tokens = 0;
    while (p->text != NULL && progress->text_encoder < planning->model->info.text_encoder_count) {
        *out_done = false;
        if (work >= max_work) return SUMI_OK;
        if (!progress->is_reading) SUMI_TRY(begin_reading(planning, prompt, error));
        sumi_prompt_reader* reader = workspace->reader;
        const uint64_t before = sumi_prompt_reader_work(reader);
        bool is_read;
        SUMI_TRY(sumi_prompt_reader_step(reader, max_work - work, &is_read, error));
        work += sumi_prompt_reader_work(reader) - before;
        if (!is_read) continue;
        p->token_count[progress->text_encoder] = sumi_prompt_reader_count(reader);
        const int32_t cut = sumi_prompt_reader_cut(reader);
        if (cut > p->cut_tokens) p->cut_tokens = cut;
        sumi_plan_job_end_reading(workspace, job);
        progress->text_encoder++;
    }
    progress->text_encoder = 0;
    *out_done = true;
    return SUMI_OK;
}

void sumi_plan_job_end_reading(sumi_workspace* workspace, sumi_plan_job* job)
{
    if (job->progress.is_reading) sumi_prompt_reader_end(workspace->reader);
    job->progress.is_reading = false;
}

// The decimal number that a float was written as, rounded to 6 digits after the point. 0.2f is 0.200000003, but the
// reference compares with 0.2.
static double as_written(float value) { return floor((double)value * 1e6 + 0.5) / 1e6; }

// The guidance at a sigma. The reference computes with the model time t = 1 - sigma, where 1000 * sigma is rounded to
// float32 in between, and turns guidance off while t > cfg_truncation.
static float guidance_at(const sumi_plan_job* job, float sigma)
{
    const float timestep = 1000.0f * sigma;
    const double t = (double)((1000.0f - timestep) / 1000.0f);
    bool is_on = t >= as_written(job->request.guidance_begin)
              && !(job->request.guidance_end <= 1.0f && t > as_written(job->request.guidance_end));
    return is_on ? job->request.guidance : 0.0f;
}

typedef struct request_tables {
    float *sigmas, *times;
    sumi_solver_row* rows;
    bool* guided;
    uint8_t* active_controls;
    sumi_pipeline_control* controls;
    const sumi_control** plan_controls;
    sumi_pipeline_prompt* prompts;
    sumi_pipeline_item* items;
    sumi_pipeline_reference* references;
    int32_t* plan_prompts;
} request_tables;

// Packs the tables of a plan request (buffers.h): the same code measures and fills in the addresses.
static void pack_tables(sumi_packer* packer, const sumi_plan_job* job, int32_t step_count, request_tables* out)
{
    const sumi_job_request* request = &job->request;
    SUMI_ASSERT(step_count >= 0 && request->prompt_count >= 0 && request->item_count >= 0);
    const uint64_t max_evaluations = (uint64_t)sumi_solver_max_rows(request->solver) * (uint64_t)step_count;
    out->sigmas = sumi_pack(packer, NULL, ((uint64_t)step_count + 1) * sizeof *out->sigmas);
    out->times = sumi_pack(packer, NULL, max_evaluations * sizeof *out->times);
    out->rows = sumi_pack(packer, NULL, max_evaluations * sizeof *out->rows);
    out->guided = sumi_pack(packer, NULL, max_evaluations * sizeof *out->guided);
    out->active_controls = sumi_pack(packer, NULL, max_evaluations * sizeof *out->active_controls);
    out->controls = sumi_pack(packer, NULL, SUMI_MAX_CONTROLS * sizeof *out->controls);
    out->plan_controls = sumi_pack(packer, NULL, SUMI_MAX_CONTROLS * sizeof *out->plan_controls);
    out->prompts = sumi_pack(packer, NULL, (uint64_t)request->prompt_count * sizeof *out->prompts);
    out->items = sumi_pack(packer, NULL, (uint64_t)request->item_count * sizeof *out->items);
    out->references = sumi_pack(packer, NULL, (uint64_t)request->references.count * sizeof *out->references);
    out->plan_prompts = sumi_pack(packer, NULL, (uint64_t)request->prompt_count * sizeof *out->plan_prompts);
}

// Returns the index of a prompt of the job in the plan's list of prompts, and adds it if it is not there.
static int32_t add_plan_prompt(sumi_plan_job* job, int32_t* list, int32_t prompt)
{
    SUMI_ASSERT(prompt >= 0 && prompt < job->request.prompt_count
                && job->progress.plan_prompt_count <= job->request.prompt_count);
    for (int32_t i = 0; i < job->progress.plan_prompt_count; i++) {
        if (list[i] == prompt) return i;
    }
    list[job->progress.plan_prompt_count] = prompt;
    return job->progress.plan_prompt_count++;
}

// Lists the batch's items and the prompts that they use: first the positive prompts, then, with guidance, the negative
// ones. If the batch is the whole job, these are all the job's prompts in the job's order.
static void choose_prompts(sumi_plan_job* job, bool is_guided, const request_tables* tables, sumi_pipeline_request* p)
{
    sumi_job_progress* progress = &job->progress;
    SUMI_ASSERT(progress->batch_begin >= 0 && progress->batch_count >= 1
                && progress->batch_begin + progress->batch_count <= job->request.item_count);
    const sumi_job_item* items = &job->request.items[progress->batch_begin];
    progress->plan_prompt_count = 0;
    for (int32_t i = 0; i < progress->batch_count; i++)
        tables->items[i] = (sumi_pipeline_item){add_plan_prompt(job, tables->plan_prompts, items[i].positive), -1};
    for (int32_t i = 0; i < progress->batch_count && is_guided; i++) { // without guidance negative prompts are not used
        if (items[i].negative >= 0)
            tables->items[i].negative = add_plan_prompt(job, tables->plan_prompts, items[i].negative);
    }
    p->prompt_count = progress->plan_prompt_count;
    p->item_count = progress->batch_count;
}

// Writes step_count + 1 sigmas: the model's own schedule, or the static shift that the job asks for.
static sumi_result write_sigmas(const sumi_network_info* info, const sumi_plan_job* job, int32_t step_count,
                                float* sigmas, sumi_error* error)
{
    SUMI_ASSERT(info->patch_size >= 1 && job->request.latent_height >= info->patch_size);
    const sumi_sigma_rule job_rule = {.kind = SUMI_SHIFT_STATIC, .shift = job->request.shift};
    const int32_t tokens =
        (job->request.latent_height / info->patch_size) * (job->request.latent_width / info->patch_size);
    return sumi_schedule_write(job->request.shift > 0.0f ? &job_rule : &info->sigmas, tokens, step_count, sigmas,
                               error);
}

int32_t sumi_plan_job_first_step(const sumi_plan_job* job, int32_t step_count)
{
    return sumi_plan_job_has_start(job) ? sumi_schedule_first_index(step_count, job->request.strength) : 0;
}

// Whether a net runs in a step of those that are run, by the rule of diffusers' pipelines, which compute in double.
static bool is_in_range(const sumi_job_control* control, int32_t step, int32_t step_count)
{
    return !((double)step / step_count < as_written(control->start)
             || (double)(step + 1) / step_count > as_written(control->end));
}

// Lists the control nets that run in at least one evaluation, and in which ones each runs: bit k of an evaluation
// stands for the k-th net in the plan.
static void list_controls(sumi_plan_job* job, const request_tables* tables, sumi_pipeline_request* p)
{
    const sumi_job_request* request = &job->request;
    sumi_job_progress* progress = &job->progress;
    progress->plan_control_count = 0;
    for (int32_t e = 0; e < progress->evaluation_count; e++) tables->active_controls[e] = 0;
    for (int32_t i = 0; i < request->control_count; i++) {
        const sumi_job_control* control = &request->controls[i];
        const uint8_t bit = (uint8_t)(1u << progress->plan_control_count);
        bool runs = false;
        for (int32_t e = 0; e < progress->evaluation_count; e++) {
            const bool is_active = is_in_range(control, tables->rows[e].step, progress->run_steps);
            if (is_active) tables->active_controls[e] |= bit;
            runs = runs || is_active;
        }
        if (!runs) continue;
        tables->plan_controls[progress->plan_control_count] = control->control;
        tables->controls[progress->plan_control_count] =
            (sumi_pipeline_control){.net = control->control->net,
                                    .picture_count = control->picture_count == 1 ? 1 : progress->batch_count,
                                    .has_picture = sumi_job_control_has_picture(&control->pictures[0]),
                                    .has_mask = control->pictures[0].mask.data != NULL};
        progress->plan_controls[progress->plan_control_count++] = i;
    }
    if (progress->plan_control_count == 0) return;
    p->controls = tables->controls;
    p->control_count = progress->plan_control_count;
    p->active_controls = tables->active_controls;
}

// Fills the tables of sigmas, solver rows, guidance and times, and the members of the pipeline request that depend on
// them.
static sumi_result write_schedule(const sumi_planning* planning, int32_t step_count, const request_tables* tables,
                                  sumi_pipeline_request* p, sumi_error* error)
{
    sumi_model* model = planning->model;
    sumi_plan_job* job = planning->job;
    sumi_job_progress* progress = &job->progress;
    const sumi_job_request* request = &job->request;
    SUMI_ASSERT(step_count >= 1);
    if (request->sigmas != NULL) memcpy(tables->sigmas, request->sigmas, ((size_t)step_count + 1) * sizeof(float));
    else SUMI_TRY(write_sigmas(&model->info, job, step_count, tables->sigmas, error));
    const int32_t first = sumi_plan_job_first_step(job, step_count);
    progress->run_steps = step_count - first;
    if (progress->run_steps < 1) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "strength %g of %d steps leaves no step to run: raise strength or step_count",
                         (double)request->strength, (int)step_count);
    }
    const int32_t count = sumi_solver_rows(request->solver, tables->sigmas + first, progress->run_steps, tables->rows);
    SUMI_ASSERT(count >= progress->run_steps && count <= sumi_solver_max_rows(request->solver) * progress->run_steps);
    bool is_guided = false;
    for (int32_t i = 0; i < count; i++) {
        sumi_solver_row* row = &tables->rows[i];
        row->guidance = guidance_at(job, row->sigma);
        tables->guided[i] = row->guidance != 0.0f;
        is_guided = is_guided || tables->guided[i];
        tables->times[i] = sumi_network_time(model->network, row->sigma);
    }
    progress->rows = tables->rows;
    progress->times = tables->times;
    progress->evaluation_count = count;
    p->evaluation_count = count;
    p->guided = is_guided ? tables->guided : NULL;
    // Without guidance the rule and the norm limit have no effect. Fixed values let all such jobs share one plan.
    p->guidance_rule = is_guided ? request->guidance_rule : SUMI_GUIDANCE_PLAIN;
    p->norm_limit = is_guided ? request->norm_limit : 0.0f;
    sumi_pipeline_needs(tables->rows, count, &p->has_base, &p->has_history);
    choose_prompts(job, is_guided, tables, p);
    list_controls(job, tables, p);
    return SUMI_OK;
}

// Lists the sizes of each reference. Sizes that the plan does not use are 0, so that jobs that differ only in them
// share one plan.
static void list_references(const sumi_plan_job* job, bool encodes_text, sumi_pipeline_request* p,
                            sumi_pipeline_reference* list)
{
    const bool reads = job->request.goal == SUMI_GOAL_IMAGES;
    for (int32_t i = 0; i < job->request.references.count; i++) {
        const sumi_reference_sizes* sizes = &job->request.references.list[i].sizes;
        list[i] = (sumi_pipeline_reference){0};
        if (encodes_text) {
            list[i].vision_width = sizes->vision.width;
            list[i].vision_height = sizes->vision.height;
        }
        if (reads) {
            list[i].width = sizes->autoencoder.width;
            list[i].height = sizes->autoencoder.height;
        }
    }
    p->references = list;
    p->reference_count = job->request.references.count;
}

// The number of first tokens that the plan computes once for all its prompts. It is the number for which this pays off,
// or 0 if the prompts' ids differ within these tokens.
static int32_t shared_tokens(const sumi_planning* planning, const sumi_pipeline_request* request, int32_t encoder)
{
    const sumi_plan_job* job = planning->job;
    const int32_t shared = sumi_pipeline_shared(planning->model->network, request, encoder);
    const int32_t* first = NULL;
    for (int32_t i = 0; i < job->progress.plan_prompt_count && shared > 0; i++) {
        if (request->prompts[i].has_features) continue;
        const int32_t* ids = sumi_plan_job_ids(planning, job->progress.plan_prompts[i], encoder);
        if (first == NULL) first = ids;
        else if (memcmp(first, ids, (size_t)shared * sizeof *ids) != 0) return 0;
    }
    return shared;
}

// Whether the rows [begin, end) of the features of two prompts are the same.
static bool are_rows_same(const sumi_planning* planning, const sumi_job_prompt* a, const sumi_job_prompt* b,
                          int32_t begin, int32_t end)
{
    const sumi_runner* runner = planning->model->engine->runner;
    const size_t row = (size_t)planning->model->info.feature_width[0]
                     * (size_t)runner->functions->element_bytes(runner, SUMI_ELEMENT_ACTIVATION);
    return begin >= end
        || memcmp((const char*)a->features[0] + (size_t)begin * row, (const char*)b->features[0] + (size_t)begin * row,
                  (size_t)(end - begin) * row)
               == 0;
}

// The number of first rows of features that the plan computes once for all its prompts, which are all given; 0 if they
// differ in these rows. Rows of references are not compared: the denoiser puts the references' latents there.
static int32_t shared_feature_rows(const sumi_planning* planning, const sumi_pipeline_request* request)
{
    const sumi_plan_job* job = planning->job;
    const int32_t shared = sumi_pipeline_shared_features(planning->model->network, request);
    const sumi_job_prompt* first = &job->request.prompts[job->progress.plan_prompts[0]];
    for (int32_t i = 1; i < job->progress.plan_prompt_count && shared > 0; i++) {
        const sumi_job_prompt* prompt = &job->request.prompts[job->progress.plan_prompts[i]];
        for (int32_t r = 0, row = 0; r < request->reference_count; r++) {
            if (!are_rows_same(planning, first, prompt, row, first->picture_row[r])) return 0;
            row = first->picture_row[r] + first->picture_rows[r];
        }
    }
    return shared;
}

sumi_result sumi_plan_job_request(const sumi_planning* planning, int32_t step_count, sumi_plan_request* out_request,
                                  sumi_error* error)
{
    sumi_workspace* workspace = planning->workspace;
    sumi_model* model = planning->model;
    sumi_plan_job* job = planning->job;
    sumi_job_progress* progress = &job->progress;
    const sumi_job_request* request = &job->request;
    request_tables tables;
    sumi_packer packer = {NULL, 0};
    pack_tables(&packer, job, step_count, &tables);
    SUMI_TRY(sumi_block_reserve(workspace->heap, &workspace->tables, packer.used, "a job's tables", error));
    packer = (sumi_packer){workspace->tables.data, 0};
    pack_tables(&packer, job, step_count, &tables);

    memset(out_request, 0, sizeof *out_request);
    SUMI_ASSERT(packer.used <= workspace->tables.bytes);
    sumi_pipeline_request* p = &out_request->pipeline;
    p->goal = request->goal;
    p->prompts = tables.prompts;
    p->prompt_count = request->prompt_count;
    p->items = tables.items;
    p->item_count = request->item_count;
    p->width = request->width;
    p->height = request->height;
    p->samples_posterior = sumi_plan_job_draws_posterior(job);
    // With a step cache every image decides for itself, so that its bits do not depend on the others.
    if (progress->batch_count == 0)
        progress->batch_count = sumi_reuse_rule_is_on(&request->reuse) ? 1 : request->item_count;
    progress->plan_prompts = tables.plan_prompts;
    progress->plan_prompt_count = 0;
    for (int32_t i = 0; i < request->prompt_count; i++) tables.plan_prompts[progress->plan_prompt_count++] = i;
    if (request->goal == SUMI_GOAL_IMAGES) {
        SUMI_TRY(write_schedule(planning, step_count, &tables, p, error));
        p->starts_from_image = request->start_image.data != NULL;
        p->starts_from_latents = request->start_latents != NULL;
        p->inpaints = request->mask.data != NULL;
        p->start_is_reference = p->inpaints && model->info.start.is_reference;
        p->composites = p->inpaints && p->starts_from_image && request->mask_feather >= 0;
        p->previews = request->preview_every > 0;
        p->caches_steps = sumi_reuse_rule_is_on(&request->reuse);
    }
    bool encodes_text = false;
    for (int32_t i = 0; i < progress->plan_prompt_count; i++) {
        const sumi_job_prompt* prompt = &request->prompts[tables.plan_prompts[i]];
        tables.prompts[i] = (sumi_pipeline_prompt){.has_features = prompt->text == NULL};
        encodes_text = encodes_text || prompt->text != NULL;
        memcpy(tables.prompts[i].token_count, prompt->token_count, sizeof tables.prompts[i].token_count);
        memcpy(tables.prompts[i].reference_row, prompt->picture_row, sizeof tables.prompts[i].reference_row);
        memcpy(tables.prompts[i].reference_rows, prompt->picture_rows, sizeof tables.prompts[i].reference_rows);
    }
    list_references(job, encodes_text, p, tables.references);
    SUMI_ASSERT(p->prompt_count == progress->plan_prompt_count);
    for (int32_t e = 0; e < model->info.text_encoder_count && encodes_text; e++)
        p->shared_tokens[e] = shared_tokens(planning, p, e);
    if (!encodes_text && request->goal == SUMI_GOAL_IMAGES) p->shared_feature_rows = shared_feature_rows(planning, p);
    out_request->model = model;
    out_request->loras = request->loras;
    out_request->lora_scales = request->lora_scales;
    out_request->lora_text_scales = request->lora_text_scales;
    out_request->lora_count = request->lora_count;
    out_request->controls = tables.plan_controls;
    out_request->control_count = p->control_count;
    out_request->whole_ops = request->profiles;
    return SUMI_OK;
}
