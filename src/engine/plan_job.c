#include "base/assert.h"
#include "engine/deadline.h"
#include "engine/engine.h"
#include "engine/trace.h"
#include "sampling/schedule.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

// ---- Sizes ----------------------------------------------------------------------------------------------------------

int32_t sumi_format_bytes(sumi_format format)
{
    switch (format) {
    case SUMI_FORMAT_RGBA8:
    case SUMI_FORMAT_BGRA8: return 4;
    case SUMI_FORMAT_RGB8: return 3;
    case SUMI_FORMAT_RGB32F: return 12;
    }
    return 0;
}

static bool has_start(const sumi_plan_job* job) { return job->start_image.data != NULL || job->start_latents != NULL; }
static bool draws_posterior(const sumi_plan_job* job)
{
    return job->start_image.data != NULL && job->posterior == SUMI_POSTERIOR_SAMPLE;
}
static size_t latent_size(const sumi_plan_job* job) { return (size_t)job->latent_height * (size_t)job->latent_width; }
// of one item
static size_t latent_values(const sumi_plan_job* job) { return latent_size(job) * (size_t)job->latent_channels; }
static bool stays_on_device(const sumi_job_item* item) { return item->target.device_address != 0; } // the picture
static uint64_t picture_bytes(const sumi_plan_job* job, const sumi_job_item* item)
{
    if (stays_on_device(item)) return 0;
    return (uint64_t)job->width * (uint64_t)job->height * (uint64_t)sumi_format_bytes(item->target.format);
}

static void pack_products(sumi_packer* packer, sumi_plan_job* job)
{
    if (job->goal == SUMI_GOAL_PROMPTS) return;
    job->latents = sumi_pack(packer, NULL, (uint64_t)job->item_count * latent_values(job) * sizeof(float));
    if (job->preview_every > 0) {
        for (int i = 0; i < 2; i++)
            job->previews[i] = sumi_pack(packer, NULL, (uint64_t)job->item_count * latent_size(job) * 4);
    }
    for (int32_t i = 0; i < job->item_count && job->goal == SUMI_GOAL_IMAGES; i++) {
        if (job->items[i].target.host_memory != NULL)
            job->items[i].pixels = sumi_pack(packer, NULL, picture_bytes(job, &job->items[i]));
    }
}

uint64_t sumi_plan_job_image_bytes(const sumi_plan_job* job)
{
    sumi_plan_job measured = *job; // the pointers that packing sets are NULL while it measures, so nothing is lost
    sumi_packer packer = {NULL, 0};
    if (job->goal == SUMI_GOAL_IMAGES && job->items == NULL) return 0;
    pack_products(&packer, &measured);
    uint64_t bytes = packer.used;
    for (int32_t i = 0; i < job->item_count && job->goal == SUMI_GOAL_IMAGES; i++) {
        if (job->items[i].target.host_memory == NULL) bytes += picture_bytes(job, &job->items[i]);
    }
    return bytes;
}

// Of what reserve_mask takes.
static uint64_t mask_value_bytes(const sumi_plan_job* job)
{
    return latent_size(job) * sizeof(float) + 2 * (uint64_t)job->width * (uint64_t)job->height;
}
static uint64_t mask_edge_bytes(const sumi_plan_job* job)
{
    return job->mask_feather > 0 ? (uint64_t)job->width * (uint64_t)job->height * sizeof(uint16_t) : 0;
}

uint64_t sumi_plan_job_input_bytes(const sumi_plan_job* job)
{
    const int32_t width = job->width, height = job->height;
    uint64_t bytes = latent_values(job) * sizeof(float);
    if (job->start_image.data != NULL) {
        const sumi_resize_args resize = {&job->start_image, width, height, SUMI_FILTER_LANCZOS};
        bytes += sumi_resize_bytes(&resize) + (uint64_t)width * (uint64_t)height * 3;
    }
    if (job->mask.data != NULL) {
        const sumi_resize_args resize = {&job->mask, width, height, SUMI_FILTER_LANCZOS};
        bytes += mask_value_bytes(job) + mask_edge_bytes(job);
        bytes += sumi_pixels_mask_bytes(&job->mask, width, height);
        if (job->mask.channel_count != 4) bytes += sumi_resize_bytes(&resize); // see write_latent_mask
    }
    return bytes;
}

void sumi_workspace_close(sumi_heap* heap, sumi_workspace* workspace)
{
    sumi_block_free(heap, &workspace->ids);
    sumi_block_free(heap, &workspace->tables);
    sumi_block_free(heap, &workspace->values);
    sumi_block_free(heap, &workspace->between);
    sumi_block_free(heap, &workspace->picture);
    sumi_block_free(heap, &workspace->first);
    sumi_block_free(heap, &workspace->temporary);
}

// ---- The way to a plan ----------------------------------------------------------------------------------------------

// The most ids that a prompt of the job has: of its text, and of the pictures in it.
static int32_t most_ids(const sumi_model* model, const sumi_plan_job* job)
{
    return model->info.max_prompt_tokens + sumi_references_tokens(&job->references);
}

static int32_t* ids_of(const sumi_workspace* workspace, const sumi_model* model, const sumi_plan_job* job,
                       int32_t prompt, int32_t encoder)
{
    SUMI_ASSERT(prompt >= 0 && encoder >= 0 && encoder < model->info.text_encoder_count);
    size_t at = (size_t)prompt * (size_t)model->info.text_encoder_count + (size_t)encoder;
    return (int32_t*)workspace->ids.data + at * (size_t)most_ids(model, job);
}

sumi_result sumi_plan_job_tokenise(sumi_heap* heap, sumi_workspace* workspace, sumi_model* model, sumi_plan_job* job,
                                   int32_t prompt, sumi_error* error)
{
    SUMI_ASSERT(prompt >= 0 && prompt < job->prompt_count);
    const int32_t encoder_count = model->info.text_encoder_count, most = most_ids(model, job);
    // the same for every prompt, so nothing moves
    uint64_t bytes = (uint64_t)job->prompt_count * (uint64_t)encoder_count * (uint64_t)most * sizeof(int32_t);
    SUMI_TRY(sumi_block_reserve(heap, &workspace->ids, bytes, "token ids", error));
    sumi_job_prompt* p = &job->prompts[prompt];
    int32_t tokens[SUMI_MAX_REFERENCES], rows[SUMI_MAX_REFERENCES] = {0};
    for (int32_t i = 0; i < job->references.count; i++) tokens[i] = job->references.list[i].sizes.tokens;
    int32_t cut = 0;
    const sumi_prompt_text text = {.text = p->text,
                                   .bytes = p->text_bytes,
                                   .picture_tokens = tokens,
                                   .picture_count = job->references.count,
                                   .out_cut = &cut};
    sumi_result result = SUMI_OK;
    p->cut_tokens = 0;
    sumi_mutex_lock(&model->engine->text);
    for (int32_t e = 0; p->text != NULL && e < encoder_count && result == SUMI_OK; e++) {
        // pictures stand among the ids of the first encoder
        result = sumi_network_tokenise_pictures(model->network, e, &text, ids_of(workspace, model, job, prompt, e),
                                                most, &p->token_count[e], e == 0 ? p->picture_row : rows, error);
        if (cut > p->cut_tokens) p->cut_tokens = cut;
    }
    sumi_mutex_unlock(&model->engine->text);
    return result;
}

// A float that stands for a decimal number: 0.2f is 0.200000003, and the reference compares with 0.2.
static double as_written(float value) { return floor((double)value * 1e6 + 0.5) / 1e6; }

// The reference works in model time t = 1 - sigma, by way of 1000 sigma in float32, and turns guidance off while t >
// cfg_truncation.
static float guidance_at(const sumi_plan_job* job, float sigma)
{
    const float timestep = 1000.0f * sigma;
    const double t = (double)((1000.0f - timestep) / 1000.0f);
    bool is_on =
        t >= as_written(job->guidance_begin) && !(job->guidance_end <= 1.0f && t > as_written(job->guidance_end));
    return is_on ? job->guidance : 0.0f;
}

typedef struct request_tables {
    float *sigmas, *times;
    sumi_solver_row* rows;
    bool* guided;
    sumi_pipeline_prompt* prompts;
    sumi_pipeline_item* items;
    sumi_pipeline_reference* references;
    int32_t* plan_prompts;
} request_tables;

static void pack_tables(sumi_packer* packer, const sumi_plan_job* job, int32_t step_count, request_tables* out)
{
    SUMI_ASSERT(step_count >= 0 && job->prompt_count >= 0 && job->item_count >= 0);
    const uint64_t most = (uint64_t)sumi_solver_most_rows(job->solver) * (uint64_t)step_count; // evaluations
    out->sigmas = sumi_pack(packer, NULL, ((uint64_t)step_count + 1) * sizeof *out->sigmas);
    out->times = sumi_pack(packer, NULL, most * sizeof *out->times);
    out->rows = sumi_pack(packer, NULL, most * sizeof *out->rows);
    out->guided = sumi_pack(packer, NULL, most * sizeof *out->guided);
    out->prompts = sumi_pack(packer, NULL, (uint64_t)job->prompt_count * sizeof *out->prompts);
    out->items = sumi_pack(packer, NULL, (uint64_t)job->item_count * sizeof *out->items);
    out->references = sumi_pack(packer, NULL, (uint64_t)job->references.count * sizeof *out->references);
    out->plan_prompts = sumi_pack(packer, NULL, (uint64_t)job->prompt_count * sizeof *out->plan_prompts);
}

static int32_t add_plan_prompt(sumi_plan_job* job, int32_t* list, int32_t prompt)
{
    SUMI_ASSERT(prompt >= 0 && prompt < job->prompt_count && job->plan_prompt_count <= job->prompt_count);
    for (int32_t i = 0; i < job->plan_prompt_count; i++) {
        if (list[i] == prompt) return i;
    }
    list[job->plan_prompt_count] = prompt;
    return job->plan_prompt_count++;
}

// The part's items and the prompts that they use, positive ones first; of the whole batch those are all, in their own
// order.
static void choose_prompts(sumi_plan_job* job, bool is_guided, const request_tables* tables, sumi_pipeline_request* p)
{
    SUMI_ASSERT(job->part_begin >= 0 && job->part_count >= 1 && job->part_begin + job->part_count <= job->item_count);
    const sumi_job_item* items = &job->items[job->part_begin];
    job->plan_prompt_count = 0;
    for (int32_t i = 0; i < job->part_count; i++)
        tables->items[i] = (sumi_pipeline_item){add_plan_prompt(job, tables->plan_prompts, items[i].positive), -1};
    for (int32_t i = 0; i < job->part_count && is_guided; i++) { // nobody reads the negative ones otherwise
        if (items[i].negative >= 0)
            tables->items[i].negative = add_plan_prompt(job, tables->plan_prompts, items[i].negative);
    }
    p->prompt_count = job->plan_prompt_count;
    p->item_count = job->part_count;
}

// The model's own schedule, or the static shift that the job asks for instead.
static sumi_result write_sigmas(const sumi_network_info* info, const sumi_plan_job* job, int32_t step_count,
                                float* sigmas, sumi_error* error)
{
    SUMI_ASSERT(info->patch_size >= 1 && job->latent_height >= info->patch_size);
    const sumi_sigma_rule asked = {.kind = SUMI_SHIFT_STATIC, .shift = job->shift};
    const int32_t tokens = (job->latent_height / info->patch_size) * (job->latent_width / info->patch_size);
    return sumi_schedule_write(job->shift > 0.0f ? &asked : &info->sigmas, tokens, step_count, sigmas, error);
}

// Sigmas, solver rows, guidance: fills the tables and what the pipeline must know of them.
static sumi_result write_schedule(sumi_model* model, sumi_plan_job* job, int32_t step_count,
                                  const request_tables* tables, sumi_pipeline_request* p, sumi_error* error)
{
    SUMI_ASSERT(step_count >= 1);
    if (job->sigmas != NULL) memcpy(tables->sigmas, job->sigmas, ((size_t)step_count + 1) * sizeof(float));
    else SUMI_TRY(write_sigmas(&model->info, job, step_count, tables->sigmas, error));
    const int32_t first = has_start(job) ? sumi_schedule_first_index(step_count, job->strength) : 0;
    job->run_steps = step_count - first;
    if (job->run_steps < 1) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "strength %g of %d steps leaves no step to run: raise strength or step_count",
                         (double)job->strength, (int)step_count);
    }
    const int32_t count = sumi_solver_rows(job->solver, tables->sigmas + first, job->run_steps, tables->rows);
    SUMI_ASSERT(count >= job->run_steps && count <= sumi_solver_most_rows(job->solver) * job->run_steps);
    bool is_guided = false;
    for (int32_t i = 0; i < count; i++) {
        sumi_solver_row* row = &tables->rows[i];
        row->guidance = guidance_at(job, row->sigma);
        tables->guided[i] = row->guidance != 0.0f;
        is_guided = is_guided || tables->guided[i];
        tables->times[i] = sumi_network_time(model->network, row->sigma);
    }
    job->rows = tables->rows;
    job->times = tables->times;
    job->evaluation_count = count;
    p->evaluation_count = count;
    p->guided = is_guided ? tables->guided : NULL;
    p->guidance_rule = is_guided ? job->guidance_rule : SUMI_GUIDANCE_PLAIN; // unguided plans are one plan
    p->norm_limit = is_guided ? job->norm_limit : 0.0f;
    sumi_pipeline_needs(tables->rows, count, &p->has_base, &p->has_history);
    choose_prompts(job, is_guided, tables, p);
    return SUMI_OK;
}

// Of each reference the sizes that the plan has a use for, so that plans without that use are one plan.
static void list_references(const sumi_plan_job* job, bool encodes_text, sumi_pipeline_request* p,
                            sumi_pipeline_reference* list)
{
    const bool reads = job->goal == SUMI_GOAL_IMAGES;
    for (int32_t i = 0; i < job->references.count; i++) {
        const sumi_reference_sizes* sizes = &job->references.list[i].sizes;
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
    p->reference_count = job->references.count;
}

// What the plan may compute once for all of its prompts: as much as pays, if their ids agree so far.
static int32_t shared_tokens(const sumi_workspace* workspace, const sumi_model* model, const sumi_plan_job* job,
                             const sumi_pipeline_request* request, int32_t encoder)
{
    const int32_t shared = sumi_pipeline_shared(model->network, request, encoder);
    const int32_t* first = NULL;
    for (int32_t i = 0; i < job->plan_prompt_count && shared > 0; i++) {
        if (request->prompts[i].given) continue;
        const int32_t* ids = ids_of(workspace, model, job, job->plan_prompts[i], encoder);
        if (first == NULL) first = ids;
        else if (memcmp(first, ids, (size_t)shared * sizeof *ids) != 0) return 0;
    }
    return shared;
}

sumi_result sumi_plan_job_request(sumi_heap* heap, sumi_workspace* workspace, sumi_model* model, sumi_plan_job* job,
                                  int32_t step_count, sumi_plan_request* out_request, sumi_error* error)
{
    request_tables tables;
    sumi_packer packer = {NULL, 0};
    pack_tables(&packer, job, step_count, &tables);
    SUMI_TRY(sumi_block_reserve(heap, &workspace->tables, packer.used, "a job's tables", error));
    packer = (sumi_packer){workspace->tables.data, 0};
    pack_tables(&packer, job, step_count, &tables);

    memset(out_request, 0, sizeof *out_request);
    SUMI_ASSERT(packer.used <= workspace->tables.bytes);
    sumi_pipeline_request* p = &out_request->pipeline;
    p->goal = job->goal;
    p->prompts = tables.prompts;
    p->prompt_count = job->prompt_count;
    p->items = tables.items;
    p->item_count = job->item_count;
    p->width = job->width;
    p->height = job->height;
    p->samples_posterior = draws_posterior(job);
    if (job->part_count == 0) job->part_count = job->item_count;
    job->plan_prompts = tables.plan_prompts;
    job->plan_prompt_count = 0;
    for (int32_t i = 0; i < job->prompt_count; i++) tables.plan_prompts[job->plan_prompt_count++] = i;
    if (job->goal == SUMI_GOAL_IMAGES) {
        SUMI_TRY(write_schedule(model, job, step_count, &tables, p, error));
        p->starts_from_image = job->start_image.data != NULL;
        p->starts_from_latents = job->start_latents != NULL;
        p->inpaints = job->mask.data != NULL;
        p->composites = p->inpaints && p->starts_from_image && job->mask_feather >= 0;
        p->previews = job->preview_every > 0;
    }
    bool encodes_text = false;
    for (int32_t i = 0; i < job->plan_prompt_count; i++) {
        const sumi_job_prompt* prompt = &job->prompts[tables.plan_prompts[i]];
        tables.prompts[i] = (sumi_pipeline_prompt){.given = prompt->text == NULL};
        encodes_text = encodes_text || prompt->text != NULL;
        memcpy(tables.prompts[i].token_count, prompt->token_count, sizeof tables.prompts[i].token_count);
        memcpy(tables.prompts[i].picture_row, prompt->picture_row, sizeof tables.prompts[i].picture_row);
    }
    list_references(job, encodes_text, p, tables.references);
    SUMI_ASSERT(p->prompt_count == job->plan_prompt_count);
    for (int32_t e = 0; e < model->info.text_encoder_count && encodes_text; e++)
        p->shared_tokens[e] = shared_tokens(workspace, model, job, p, e);
    out_request->model = model;
    out_request->loras = job->loras;
    out_request->lora_scales = job->lora_scales;
    out_request->lora_count = job->lora_count;
    out_request->whole_ops = job->profiles;
    return SUMI_OK;
}

static sumi_result reserve_products(sumi_engine* engine, sumi_slot* slot, sumi_error* error)
{
    SUMI_ASSERT(sumi_work_is_held(engine));
    sumi_plan_job* job = &slot->u.plan;
    const size_t held = slot->products.bytes;
    sumi_packer packer = {NULL, 0};
    pack_products(&packer, job);
    sumi_result result = sumi_block_reserve(&engine->heap, &slot->products, packer.used, "finished pictures", error);
    atomic_fetch_add(&engine->image_bytes, slot->products.bytes);
    atomic_fetch_sub(&engine->image_bytes, held);
    SUMI_TRY(result);
    packer = (sumi_packer){slot->products.data, 0};
    pack_products(&packer, job);

    for (int32_t i = 0; i < job->item_count && job->goal == SUMI_GOAL_IMAGES; i++) {
        sumi_job_item* item = &job->items[i];
        // there: this is the second try
        if (item->target.host_memory != NULL || stays_on_device(item) || item->picture != NULL) continue;
        SUMI_TRY(sumi_picture_take(engine, (size_t)picture_bytes(job, item), &item->picture, error));
        item->pixels = item->picture->pixels;
    }
    if (job->goal == SUMI_GOAL_PROMPTS && job->prompt == NULL) {
        const sumi_network_info* info = &slot->model->info;
        int32_t rows[SUMI_MAX_TEXT_ENCODERS];
        for (int32_t e = 0; e < info->text_encoder_count; e++)
            rows[e] = sumi_network_feature_rows(slot->model->network, e, job->prompts[0].token_count[e]);
        sumi_prompt_shape shape = {.family = info->family,
                                   .encoder_count = info->text_encoder_count,
                                   .token_count = rows,
                                   .width = info->feature_width,
                                   .reference_count = job->references.count};
        for (int32_t i = 0; i < shape.reference_count; i++)
            shape.references[i] = job->references.list[i].sizes.autoencoder;
        SUMI_TRY(sumi_prompt_create(engine, &shape, &job->prompt, error));
    }
    return SUMI_OK;
}

static sumi_result make_plan(sumi_engine* engine, sumi_slot* slot, sumi_error* error)
{
    sumi_plan_job* job = &slot->u.plan;
    SUMI_ASSERT(slot == engine->running && job->part_begin >= 0);
    sumi_plan_request request;
    if (!job->has_reviewed && engine->leaving == NULL) sumi_limit_review(engine);
    job->has_reviewed = true;
    if (engine->runner->functions->set_budget != NULL)
        engine->runner->functions->set_budget(engine->runner, sumi_engine_budget(engine));
    const bool is_new = job->part_begin == 0 && job->kept_at == 0; // otherwise the steps are settled
    if (is_new) job->settled_steps = job->step_count;
    SUMI_TRY(sumi_plan_job_request(&engine->heap, &engine->workspace, slot->model, job, job->settled_steps, &request,
                                   error));
    SUMI_TRY(sumi_plan_get(engine, &request, &job->entry, error));
    if (job->deadline_ms > 0 && is_new) {
        int32_t steps = sumi_deadline_step_count(engine, slot, job->step_count);
        if (steps < job->step_count) {
            char text[128];
            snprintf(text, sizeof text, "deadline of %u ms: %d of %d steps", (unsigned)job->deadline_ms, (int)steps,
                     (int)job->step_count);
            sumi_log_write(engine, SUMI_LOG_INFO, SUMI_OK, text);
            job->settled_steps = steps;
            SUMI_TRY(
                sumi_plan_job_request(&engine->heap, &engine->workspace, slot->model, job, steps, &request, error));
            SUMI_TRY(sumi_plan_get(engine, &request, &job->entry, error));
        }
    }
    return SUMI_OK;
}

static sumi_result make_room(sumi_engine* engine, sumi_slot* slot, sumi_error* error)
{
    const sumi_plan_job* job = &slot->u.plan;
    SUMI_ASSERT(job->entry != NULL);
    SUMI_TRY(reserve_products(engine, slot, error));
    SUMI_TRY(sumi_engine_reserve(engine, job->entry, error));
    slot->live.step_count = job->goal == SUMI_GOAL_IMAGES ? job->run_steps : 0;
    return SUMI_OK;
}

// Weights and graphs, a piece at a time; nothing to do on the processor.
static sumi_result make_ready(sumi_engine* engine, sumi_slot* slot, bool* out_done, sumi_error* error)
{
    const sumi_runner_functions* runner = engine->runner->functions;
    sumi_plan_entry* entry = slot->u.plan.entry;
    SUMI_ASSERT(slot == engine->running && entry != NULL);
    *out_done = true;
    if (runner->prepare != NULL) {
        const uint32_t budget_us = sumi_engine_piece_us(engine);
        float progress = 0.0f;
        const sumi_result result = runner->prepare(engine->runner, &entry->plan, budget_us, out_done, &progress, error);
        sumi_limit_note(engine, result);
        if (result != SUMI_OK) return result;
    }
    if (!*out_done) return SUMI_OK;
    if (slot->u.plan.goal == SUMI_GOAL_IMAGES) sumi_limit_confirm(engine);
    sumi_run_begin(engine, entry);
    sumi_deadline_begin(engine, slot);
    return SUMI_OK;
}

// ---- Inputs ---------------------------------------------------------------------------------------------------------

static void write_value(sumi_engine* engine, const sumi_plan_job* job, sumi_value value, uint64_t offset,
                        const void* data, uint64_t bytes)
{
    engine->runner->functions->write(engine->runner, &job->entry->plan, value, offset, data, bytes);
}

static void read_value(sumi_engine* engine, const sumi_plan_job* job, sumi_value value, uint64_t offset, void* into,
                       uint64_t bytes)
{
    engine->runner->functions->read(engine->runner, &job->entry->plan, value, offset, into, bytes);
}

// Activations are float32 or bfloat16, as the runner likes; the engine's side is always float32. Conversion goes
// through the workspace.
static sumi_result write_activations(sumi_engine* engine, const sumi_plan_job* job, sumi_value value, uint64_t first,
                                     const float* data, size_t count, sumi_error* error)
{
    SUMI_ASSERT(count > 0);
    SUMI_ASSERT(job->entry->plan.activation_bytes == 4 || job->entry->plan.activation_bytes == 2);
    if (job->entry->plan.activation_bytes == 4) {
        write_value(engine, job, value, first * 4, data, count * 4);
        return SUMI_OK;
    }
    SUMI_TRY(
        sumi_block_reserve(&engine->heap, &engine->workspace.values, count * 2, "features on their way in", error));
    sumi_floats_to_bf16(data, engine->workspace.values.data, count);
    write_value(engine, job, value, first * 2, engine->workspace.values.data, count * 2);
    return SUMI_OK;
}

// In pieces that stay in the first cache between the copy and the conversion.
static void read_activations(sumi_engine* engine, const sumi_plan_job* job, sumi_value value, uint64_t first,
                             float* into, size_t count)
{
    SUMI_ASSERT(job->entry->plan.activation_bytes == 4 || job->entry->plan.activation_bytes == 2);
    if (job->entry->plan.activation_bytes == 4) {
        read_value(engine, job, value, first * 4, into, count * 4);
        return;
    }
    uint16_t halves[4096];
    for (size_t done = 0, part; done < count; done += part) {
        part = count - done < sizeof halves / sizeof *halves ? count - done : sizeof halves / sizeof *halves;
        read_value(engine, job, value, (first + done) * 2, halves, part * 2);
        sumi_dtype_to_float(SUMI_DTYPE_BF16, halves, into + done, part);
    }
}

// Token ids of the prompts that the plan encodes, and the steps' times and factors.
static void write_ids_and_steps(sumi_engine* engine, const sumi_slot* slot)
{
    const sumi_plan_job* job = &slot->u.plan;
    SUMI_ASSERT(job->plan_prompt_count <= job->prompt_count);
    const sumi_pipeline* pipeline = &job->entry->pipeline;
    for (int32_t p = 0; p < job->plan_prompt_count; p++) {
        const sumi_job_prompt* prompt = &job->prompts[job->plan_prompts[p]];
        for (int32_t e = 0; e < slot->model->info.text_encoder_count; e++) {
            sumi_pipeline_rows ids = pipeline->ids[p][e];
            if (prompt->text == NULL || ids.value.id == 0) continue;
            const int32_t skipped = prompt->token_count[e] - ids.count; // they are the first prompt's
            const int32_t* from = ids_of(&engine->workspace, slot->model, job, job->plan_prompts[p], e) + skipped;
            write_value(engine, job, ids.value, (uint64_t)ids.row * sizeof *from, from,
                        (uint64_t)ids.count * sizeof *from);
        }
    }
    if (job->goal != SUMI_GOAL_IMAGES) return;
    const size_t count = (size_t)job->evaluation_count;
    write_value(engine, job, pipeline->times, 0, job->times, count * sizeof *job->times);
    write_value(engine, job, pipeline->solver, 0, job->rows, count * sizeof *job->rows);
}

// Features of a prompt are up to some dozen megabytes, which one call could not move within a frame's budget: a piece is
// some dozen microseconds of copying and converting.
#define FEATURE_VALUES ((size_t)64 * 1024)

// The next piece of the features of the prompts that were encoded before.
static sumi_result write_features(sumi_engine* engine, const sumi_slot* slot, sumi_plan_job* job, bool* out_done,
                                  sumi_error* error)
{
    const sumi_pipeline* pipeline = &job->entry->pipeline;
    size_t before = 0;
    for (int32_t p = 0; p < job->plan_prompt_count; p++) {
        const sumi_job_prompt* prompt = &job->prompts[job->plan_prompts[p]];
        for (int32_t e = 0; e < slot->model->info.text_encoder_count; e++) {
            const sumi_pipeline_rows features = pipeline->features[p][e];
            if (prompt->text != NULL || features.value.id == 0) continue;
            const size_t width = (size_t)slot->model->info.feature_width[e], count = (size_t)features.count * width;
            if (job->moved < before + count) {
                const size_t at = job->moved - before, part = count - at < FEATURE_VALUES ? count - at : FEATURE_VALUES;
                *out_done = false;
                job->moved += part;
                return write_activations(engine, job, features.value, (uint64_t)features.row * width + at,
                                         prompt->features[e] + at, part, error);
            }
            before += count;
        }
    }
    *out_done = true;
    return SUMI_OK;
}

// A piece of the start: latents at once, an image over several slices.
static sumi_result write_start(sumi_engine* engine, sumi_plan_job* job, bool* out_done, sumi_error* error)
{
    SUMI_ASSERT(job->entry != NULL && job->phase == SUMI_PHASE_INPUT);
    const sumi_pipeline* pipeline = &job->entry->pipeline;
    *out_done = true;
    if (job->start_latents != NULL) {
        const uint64_t bytes = latent_values(job) * sizeof(float);
        for (int32_t i = 0; i < job->part_count; i++)
            write_value(engine, job, pipeline->clean, (uint64_t)i * bytes, job->start_latents, bytes);
    }
    if (job->start_image.data == NULL) return SUMI_OK;
    sumi_pixels picture;
    const sumi_resize_args resize = {&job->start_image, job->width, job->height, SUMI_FILTER_LANCZOS};
    SUMI_TRY(sumi_resize_step(&engine->heap, &engine->workspace, &resize, &job->resize, out_done, &picture, error));
    if (!*out_done) return SUMI_OK;
    const uint64_t bytes = (uint64_t)job->width * (uint64_t)job->height * 3;
    SUMI_TRY(sumi_block_reserve(&engine->heap, &engine->workspace.values, bytes, "a start image", error));
    SUMI_TRY(
        // of the right size: allocates nothing
        sumi_pixels_to_rgb(&engine->heap, &picture, job->width, job->height, engine->workspace.values.data, error));
    write_value(engine, job, pipeline->pixels, 0, engine->workspace.values.data, bytes);
    return SUMI_OK;
}

// The mask in full size and what becomes of it lie in the workspace until the last piece.
typedef struct mask_blocks {
    float* latent;
    uint8_t *mask, *opacity;
    uint16_t* distances; // NULL: no feather
} mask_blocks;

static sumi_result reserve_mask(sumi_engine* engine, const sumi_plan_job* job, mask_blocks* out, sumi_error* error)
{
    const uint64_t pixels = (uint64_t)job->width * (uint64_t)job->height;
    sumi_block *values = &engine->workspace.values, *between = &engine->workspace.between;
    SUMI_TRY(sumi_block_reserve(&engine->heap, values, mask_value_bytes(job), "a mask", error));
    out->latent = values->data;
    out->mask = (uint8_t*)(out->latent + latent_size(job));
    out->opacity = out->mask + pixels;
    out->distances = NULL;
    if (job->mask_feather > 0) {
        SUMI_TRY(sumi_block_reserve(&engine->heap, between, mask_edge_bytes(job), "a mask's edge", error));
        out->distances = between->data;
    }
    return SUMI_OK;
}

// The mask as the solver reads it. out_done: it is written, and in `blocks`.
static sumi_result write_latent_mask(sumi_engine* engine, sumi_plan_job* job, bool* out_done, sumi_error* error)
{
    sumi_pixels picture = job->mask;
    *out_done = true;
    // alpha counts in a mask, and takes the way through premultiplied colours in one go
    if (job->mask.channel_count != 4) {
        const sumi_resize_args resize = {&job->mask, job->width, job->height, SUMI_FILTER_LANCZOS};
        SUMI_TRY(sumi_resize_step(&engine->heap, &engine->workspace, &resize, &job->resize, out_done, &picture, error));
        if (!*out_done) return SUMI_OK;
    }
    mask_blocks blocks;
    SUMI_TRY(reserve_mask(engine, job, &blocks, error));
    sumi_temporary temporary;
    sumi_temporary_begin(&temporary, &engine->heap, &engine->workspace.temporary);
    sumi_result result =
        sumi_pixels_to_mask(&temporary.heap, &picture, job->width, job->height, blocks.mask, blocks.latent, error);
    sumi_temporary_end(&temporary);
    if (result == SUMI_OK) {
        write_value(engine, job, job->entry->pipeline.mask, 0, blocks.latent, latent_size(job) * sizeof(float));
    }
    return result;
}

#define DISTANCE_PIXELS 500000 // of a piece: about two milliseconds

static sumi_result write_mask(sumi_engine* engine, sumi_plan_job* job, bool* out_done, sumi_error* error)
{
    SUMI_ASSERT(job->entry != NULL && job->phase == SUMI_PHASE_INPUT);
    const sumi_value opacity = job->entry->pipeline.opacity;
    *out_done = true;
    if (job->mask.data == NULL) return SUMI_OK;
    if (job->mask_rows == 0) {
        SUMI_TRY(write_latent_mask(engine, job, out_done, error));
        if (!*out_done || opacity.id == 0) return SUMI_OK;
    }
    mask_blocks blocks;
    SUMI_TRY(reserve_mask(engine, job, &blocks, error));
    const int32_t height = job->height, width = job->width;
    if (blocks.distances != NULL && job->mask_rows < 2 * height) {
        const bool upward = job->mask_rows >= height;
        const int32_t first = upward ? job->mask_rows - height : job->mask_rows;
        int32_t count = DISTANCE_PIXELS / width + 1;
        count = count < height - first ? count : height - first;
        sumi_mask_distances(blocks.mask, width, height, upward ? height - first - count : first,
                            upward ? height - first : first + count, upward, blocks.distances);
        job->mask_rows += count;
        *out_done = false;
        return SUMI_OK;
    }
    const size_t pixels = (size_t)width * (size_t)height;
    sumi_mask_opacity(blocks.mask, blocks.distances, pixels, job->mask_feather, blocks.opacity);
    write_value(engine, job, opacity, 0, blocks.opacity, pixels);
    job->mask_rows = 0;
    return SUMI_OK;
}

// What is made of a reference, one after the other: references.h.
typedef enum reference_stage { FOR_AUTOENCODER, BEFORE_VISION, FOR_VISION, REFERENCE_STAGES } reference_stage;

// A piece of a resize, and with the last one the picture in RGB, in `block` of the workspace.
static sumi_result resize_reference(sumi_engine* engine, sumi_plan_job* job, const sumi_resize_args* args,
                                    sumi_block* block, bool* out_done, sumi_error* error)
{
    sumi_pixels picture;
    SUMI_TRY(sumi_resize_step(&engine->heap, &engine->workspace, args, &job->resize, out_done, &picture, error));
    if (!*out_done) return SUMI_OK;
    const uint64_t bytes = (uint64_t)args->width * (uint64_t)args->height * 3;
    SUMI_TRY(sumi_block_reserve(&engine->heap, block, bytes, "a reference picture", error));
    // of the right size: allocates nothing
    return sumi_pixels_to_rgb(&engine->heap, &picture, args->width, args->height, block->data, error);
}

// A piece of what is made of a reference. The picture for the autoencoder and the one before the vision tower lie in the
// same block; where they are of one size they are one.
static sumi_result write_reference(sumi_engine* engine, sumi_plan_job* job, int32_t index, reference_stage stage,
                                   bool* out_done, sumi_error* error)
{
    SUMI_ASSERT(job->entry != NULL && index >= 0 && index < job->references.count);
    const sumi_pipeline* pipeline = &job->entry->pipeline;
    const sumi_reference* reference = &job->references.list[index];
    const sumi_picture_size read = reference->sizes.autoencoder, first = reference->sizes.first,
                            seen = reference->sizes.vision;
    sumi_workspace* workspace = &engine->workspace;
    const sumi_value vision = pipeline->vision_pixels[index];
    *out_done = true;
    if (stage != FOR_AUTOENCODER && vision.id == 0) return SUMI_OK; // no text is encoded
    if (stage == FOR_AUTOENCODER) {
        const sumi_resize_args args = {&reference->source, read.width, read.height, SUMI_FILTER_LANCZOS};
        SUMI_TRY(resize_reference(engine, job, &args, &workspace->first, out_done, error));
        if (!*out_done) return SUMI_OK;
        const uint64_t bytes = (uint64_t)read.width * (uint64_t)read.height * 3;
        if (job->goal == SUMI_GOAL_PROMPTS)
            memcpy(job->prompt->references[index], workspace->first.data, (size_t)bytes);
        else write_value(engine, job, pipeline->reference_pixels[index], 0, workspace->first.data, bytes);
        return SUMI_OK;
    }
    if (stage == BEFORE_VISION) {
        if (first.width == read.width && first.height == read.height) return SUMI_OK;
        const sumi_resize_args args = {&reference->source, first.width, first.height, SUMI_FILTER_LANCZOS};
        return resize_reference(engine, job, &args, &workspace->first, out_done, error);
    }
    const sumi_pixels before = {workspace->first.data, first.width, first.height, 3 * first.width, 3};
    const sumi_resize_args args = {&before, seen.width, seen.height, SUMI_FILTER_BICUBIC};
    SUMI_TRY(resize_reference(engine, job, &args, &workspace->values, out_done, error));
    if (*out_done)
        write_value(engine, job, vision, 0, workspace->values.data, (uint64_t)seen.width * (uint64_t)seen.height * 3);
    return SUMI_OK;
}

// The pieces of INPUT: texts, the start, the mask, then the stages of each reference.
#define FIRST_REFERENCE_PIECE 3

static sumi_result write_input(sumi_engine* engine, sumi_slot* slot, bool* out_done, sumi_error* error)
{
    sumi_plan_job* job = &slot->u.plan;
    bool is_over = true;
    const int32_t at = job->cursor - FIRST_REFERENCE_PIECE;
    if (job->cursor == 0 && job->moved == 0) write_ids_and_steps(engine, slot);
    if (job->cursor == 0) SUMI_TRY(write_features(engine, slot, job, &is_over, error));
    else if (job->cursor == 1) SUMI_TRY(write_start(engine, job, &is_over, error));
    else if (job->cursor == 2) SUMI_TRY(write_mask(engine, job, &is_over, error));
    else
        SUMI_TRY(write_reference(engine, job, at / REFERENCE_STAGES, (reference_stage)(at % REFERENCE_STAGES), &is_over,
                                 error));
    if (is_over) job->cursor++;
    *out_done = job->cursor >= FIRST_REFERENCE_PIECE + REFERENCE_STAGES * job->references.count;
    return SUMI_OK;
}

#define NOISE_VALUES (16 * 1024)     // a piece: some dozen microseconds
#define NOISE_VALUES_CUDA (2 * 1024) // sines in double precision

static size_t noise_piece(const sumi_plan_job* job)
{
    const size_t count = latent_values(job),
                 part = job->noise == SUMI_NOISE_TORCH_CUDA ? NOISE_VALUES_CUDA : NOISE_VALUES;
    // a call's last values are drawn in another way when they are no multiple of 16
    return count % 16 != 0 || part > count ? count : part;
}

// of an item
static size_t noise_values(const sumi_plan_job* job)
{
    return latent_values(job) * ((draws_posterior(job) ? 1 : 0) + (job->goal == SUMI_GOAL_IMAGES ? 1 : 0));
}

// A piece of one item's noise. One generator: the posterior's noise first, the main noise second, as the reference
// draws them. Each item has its own, seeded with its own seed.
static sumi_result write_noise(sumi_engine* engine, sumi_plan_job* job, bool* out_done, sumi_error* error)
{
    SUMI_ASSERT(job->cursor >= 0 && job->cursor < job->part_count);
    const sumi_pipeline* pipeline = &job->entry->pipeline;
    const size_t count = latent_values(job), item = (size_t)(job->part_begin + job->cursor);
    const bool samples = draws_posterior(job), is_cuda = job->noise == SUMI_NOISE_TORCH_CUDA,
               is_posterior = samples && job->drawn < count;
    const size_t all = noise_values(job), at = samples && !is_posterior ? job->drawn - count : job->drawn;
    *out_done = job->drawn >= all;
    if (*out_done) return SUMI_OK;
    if (job->drawn == 0 && is_cuda)
        sumi_torch_cuda_seed(&job->generator.cuda, job->items[item].seed, job->multiprocessors,
                             job->threads_per_multiprocessor);
    else if (job->drawn == 0) sumi_torch_cpu_seed(&job->generator.cpu, job->items[item].seed);

    const float* given = is_posterior                   ? job->start_noise
                       : job->noise == SUMI_NOISE_GIVEN ? job->noise_values + item * count
                                                        : NULL;
    const size_t part = noise_piece(job) < count - at ? noise_piece(job) : count - at;
    SUMI_ASSERT(part > 0 && at + part <= count);
    SUMI_TRY(sumi_block_reserve(&engine->heap, &engine->workspace.values, part * sizeof(float), "noise", error));
    float* values = engine->workspace.values.data;
    if (given == NULL && is_cuda) {
        sumi_torch_cuda_randn_part(&job->generator.cuda, values, count, at, part);
        if (at + part == count) sumi_torch_cuda_skip(&job->generator.cuda, count);
    } else if (given == NULL) {
        sumi_torch_cpu_randn(&job->generator.cpu, values, part);
    }
    write_value(engine, job,
                is_posterior     ? pipeline->eps
                : has_start(job) ? pipeline->noise
                                 : pipeline->x,
                ((size_t)job->cursor * count + at) * sizeof(float), given != NULL ? given + at : values,
                part * sizeof(float));
    job->drawn += part;
    SUMI_ASSERT(job->drawn <= all);
    *out_done = job->drawn >= all;
    return SUMI_OK;
}

// ---- While it runs --------------------------------------------------------------------------------------------------

// The preview buffer that nobody reads is filled, then the two change places.
static sumi_result publish_preview(sumi_engine* engine, sumi_slot* slot, sumi_error* error)
{
    sumi_plan_job* job = &slot->u.plan;
    SUMI_ASSERT(job->part_begin + job->part_count <= job->item_count);
    SUMI_ASSERT(job->preview_every > 0 && (job->preview_front == 0 || job->preview_front == 1));
    const size_t size = latent_size(job);
    const uint64_t bytes = (uint64_t)job->part_count * 3 * size * sizeof(float);
    SUMI_TRY(sumi_block_reserve(&engine->heap, &engine->workspace.values, bytes, "a preview", error));
    const float* rgb = engine->workspace.values.data;
    read_value(engine, job, job->entry->pipeline.preview, 0, engine->workspace.values.data, bytes);
    const int32_t back = 1 - job->preview_front;
    // the other parts' stay
    if (job->part_count < job->item_count)
        memcpy(job->previews[back], job->previews[job->preview_front], (size_t)job->item_count * size * 4);
    unsigned char* to = job->previews[back] + (size_t)job->part_begin * size * 4;
    for (int32_t i = 0; i < job->part_count; i++)
        sumi_planes_to_rgba(rgb + 3 * size * (size_t)i, size, to + 4 * size * (size_t)i);
    sumi_mutex_lock(&engine->table);
    job->preview_front = back;
    slot->status.preview_version++;
    sumi_mutex_unlock(&engine->table);
    return SUMI_OK;
}

// "layers.3.attention.qkv" of any layer is "attention.qkv"; other numbers between dots go too.
static void plain_label(const char* label, char* out, size_t out_bytes)
{
    SUMI_ASSERT(out_bytes > 0);
    size_t used = 0;
    if (strncmp(label, "layers.", 7) == 0) label += 7;
    for (const char* at = label; *at != '\0' && used + 1 < out_bytes;) {
        const char* end = at;
        while (*end >= '0' && *end <= '9') end++;
        bool starts = at == label || at[-1] == '.', is_number = starts && end > at && *end == '.';
        if (is_number) {
            at = end + 1;
            label = at; // what follows starts again
            continue;
        }
        out[used++] = *at++;
    }
    out[used] = '\0';
}

static sumi_result note_profile(sumi_engine* engine, sumi_slot* slot, const sumi_run_step* step, sumi_error* error)
{
    SUMI_ASSERT(slot->profile_count <= slot->profile_capacity && step->op != NULL);
    char label[sizeof slot->profile->name] = {0};
    plain_label(sumi_run_step_name(step), label, sizeof label);
    const sumi_stage stage = sumi_stage_of_section(step->section);
    sumi_profile_row* row = NULL;
    for (size_t i = 0; row == NULL && i < slot->profile_count; i++) {
        if (slot->profile[i].stage == stage && strcmp(slot->profile[i].name, label) == 0) row = &slot->profile[i];
    }
    if (row == NULL) {
        SUMI_TRY(sumi_grow(&engine->heap, (void**)&slot->profile, &slot->profile_capacity, slot->profile_count + 1,
                           sizeof *slot->profile, error));
        row = &slot->profile[slot->profile_count++];
        memset(row, 0, sizeof *row);
        row->stage = stage;
        memcpy(row->name, label, sizeof row->name);
    }
    row->count++;
    row->seconds += step->us * 1e-6;
    row->flops += step->op->flops;
    row->bytes += step->op->bytes;
    return SUMI_OK;
}

// Which denoising step a slice is of, whether it ends that, whether a preview follows: noted before the slice goes, for
// the tables may be the next job's when it is over.
static void note_denoising_step(const sumi_plan_job* job, sumi_run_step* step)
{
    step->denoising_step = -1;
    if (step->section != SUMI_SECTION_DENOISE) return;
    const int32_t e = step->counter, of = job->rows[e].step;
    SUMI_ASSERT(e >= 0 && e < job->evaluation_count && of >= 0 && of < job->run_steps);
    step->denoising_step = of;
    if (!step->ends_iteration) return;
    // the first half of a two-stage solver's step
    if (e + 1 < job->evaluation_count && job->rows[e + 1].step == of) return;
    step->ends_step = true;
    step->shows = job->preview_every > 0 && (of + 1 + step->skips) / job->preview_every > of / job->preview_every;
}

static sumi_result fetch_value(sumi_engine* engine, const sumi_plan_job* job, sumi_value value, sumi_error* error)
{
    SUMI_ASSERT(job->entry != NULL);
    const sumi_runner_functions* runner = engine->runner->functions;
    if (runner->fetch == NULL || value.id == 0) return SUMI_OK;
    return runner->fetch(engine->runner, &job->entry->plan, value, error);
}

// Whether a device makes four channels of an item's three: the processor would take longer for that than for the copy.
static bool widens_on_device(const sumi_engine* engine, const sumi_job_item* item)
{
    const sumi_format format = item->target.format;
    return engine->runner->functions->publish != NULL && !stays_on_device(item)
        && (format == SUMI_FORMAT_RGBA8 || format == SUMI_FORMAT_BGRA8);
}

// Where the four channels lie: over the item's activations, which nobody reads after the bytes were made of them.
static uint64_t wide_offset(const sumi_plan_job* job, int32_t item)
{
    SUMI_ASSERT(item >= job->part_begin && item < job->part_begin + job->part_count);
    return (uint64_t)(item - job->part_begin) * (uint64_t)job->width * (uint64_t)job->height * 3
         * (uint64_t)job->entry->plan.activation_bytes;
}

// Pictures in formats that the plan does not write, and pictures that the host wants on the device: behind the last
// slice.
static sumi_result publish_pictures(sumi_engine* engine, sumi_plan_job* job, sumi_error* error)
{
    SUMI_ASSERT(job->part_begin + job->part_count <= job->item_count);
    const sumi_pipeline* pipeline = &job->entry->pipeline;
    const uint64_t pixels = (uint64_t)job->width * (uint64_t)job->height;
    for (int32_t i = 0; i < job->part_count; i++) {
        const sumi_job_item* item = &job->items[job->part_begin + i];
        const sumi_target* target = &item->target;
        if (!stays_on_device(item) && !widens_on_device(engine, item)) continue;
        const bool is_given = stays_on_device(item) && target->row_bytes != 0,
                   is_upward = stays_on_device(item) && target->bottom_up;
        const uint64_t row = (uint64_t)(is_given ? target->row_bytes : job->width * sumi_format_bytes(target->format));
        const sumi_publication picture = {
            .value = target->format == SUMI_FORMAT_RGB32F ? pipeline->picture : pipeline->bytes,
            .first_pixel = (uint64_t)i * pixels,
            .width = job->width,
            .height = job->height,
            .format = target->format,
            .address = target->device_address + (is_upward ? (uint64_t)(job->height - 1) * row : 0),
            .into = pipeline->picture,
            .into_offset = wide_offset(job, job->part_begin + i),
            .row_bytes = is_upward ? 0 - row : row,
            .event = target->event};
        job->is_publishing = job->is_publishing || stays_on_device(item);
        SUMI_TRY(engine->runner->functions->publish(engine->runner, &job->entry->plan, &picture, error));
    }
    return SUMI_OK;
}

// What `write_output` will read, on its way behind the last slice.
static sumi_result fetch_products(sumi_engine* engine, const sumi_plan_job* job, sumi_error* error)
{
    const sumi_pipeline* pipeline = &job->entry->pipeline;
    if (job->goal == SUMI_GOAL_ENCODE) return fetch_value(engine, job, pipeline->clean, error);
    if (job->goal == SUMI_GOAL_PROMPTS) {
        for (int32_t e = 0; e < job->prompt->encoder_count; e++)
            SUMI_TRY(fetch_value(engine, job, pipeline->features[0][e].value, error));
        return SUMI_OK;
    }
    bool has_picture = false, has_bytes = false;
    for (int32_t i = job->part_begin; i < job->part_begin + job->part_count; i++) {
        const bool is_picture =
            job->items[i].target.format == SUMI_FORMAT_RGB32F || widens_on_device(engine, &job->items[i]);
        if (stays_on_device(&job->items[i])) continue;
        has_picture = has_picture || is_picture;
        has_bytes = has_bytes || !is_picture;
    }
    SUMI_TRY(fetch_value(engine, job, pipeline->x, error));
    SUMI_TRY(fetch_value(engine, job, pipeline->not_finite, error));
    if (has_bytes) SUMI_TRY(fetch_value(engine, job, pipeline->bytes, error));
    return has_picture ? fetch_value(engine, job, pipeline->picture, error) : SUMI_OK;
}

static sumi_run* run_of(sumi_engine* engine, const sumi_slot* slot)
{
    return slot == engine->leaving ? &engine->leaving_run : &engine->run;
}

// What follows from a slice that has ended.
static sumi_result note_slice(sumi_engine* engine, sumi_slot* slot, const sumi_run* run, const sumi_run_step* step,
                              sumi_error* error)
{
    sumi_plan_job* job = &slot->u.plan;
    if (job->profiles && step->op != NULL) SUMI_TRY(note_profile(engine, slot, step, error));
    if (step->ends_step) slot->live.step = step->denoising_step + 1 + step->skips;
    if (step->shows) {
        SUMI_TRY(publish_preview(engine, slot, error));
        job->preview_is_coming = false;
    }
    // a prompt is no item
    const double left = sumi_run_left_us(run), done = run->done_us, all = job->item_count > 0 ? job->item_count : 1;
    const double share = job->part_count > 0 ? job->part_count / all : 1.0, later = 1.0 - share - job->part_begin / all;
    SUMI_ASSERT(share > 0.0 && share <= 1.0 && left >= 0.0);
    slot->live.progress = (float)(job->part_begin / all + share * 0.99 * done / (done + left + 1.0));
    slot->live.seconds_left =
        (float)((left + (left + done) * later / share + job->item_count * sumi_plan_job_output_us(engine, job)) * 1e-6);
    const double until_deadline = job->deadline_ms > 0 ? sumi_deadline_left(slot) : 0.0;
    // steps will be left out
    if (until_deadline > 0.0 && until_deadline < slot->live.seconds_left)
        slot->live.seconds_left = (float)until_deadline;
    return SUMI_OK;
}

// Looks after the slices that have ended.
static sumi_result collect(sumi_engine* engine, sumi_slot* slot, sumi_stage* out_stage, sumi_step_end* out_end,
                           bool* out_over, sumi_error* error)
{
    SUMI_ASSERT(sumi_work_is_held(engine));
    sumi_run* run = run_of(engine, slot);
    sumi_run_step step;
    while (sumi_run_collect(engine, run, &step)) {
        *out_end = SUMI_STEP_MORE;
        *out_stage = sumi_stage_of_section(step.section);
        slot->device_seconds += step.us * 1e-6;
        sumi_deadline_note(engine, step.own_us);
        if (engine->runner->functions->finished != NULL) {
            slot->live.device_us += step.us;
            slot->stage_seconds[*out_stage] += step.us * 1e-6;
            sumi_trace_slice(engine, slot, &step);
        } else {
            slot->live.doing = sumi_run_step_name(&step);
            slot->live.doing_step = step.denoising_step;
        }
        SUMI_TRY(note_slice(engine, slot, run, &step, error));
        if (step.ends_run) *out_over = true;
    }
    return SUMI_OK;
}

static sumi_result submit(sumi_engine* engine, sumi_plan_job* job, const sumi_run_step* step, sumi_error* error)
{
    SUMI_ASSERT(!job->preview_is_coming || !step->shows);
    SUMI_TRY(sumi_run_submit(engine, step, error));
    if (step->shows) {
        SUMI_TRY(fetch_value(engine, job, job->entry->pipeline.preview, error));
        job->preview_is_coming = true;
    }
    if (!step->ends_run) return SUMI_OK;
    if (job->goal == SUMI_GOAL_IMAGES) SUMI_TRY(publish_pictures(engine, job, error));
    return fetch_products(engine, job, error); // behind them: when these are over, those are
}

// Noise is drawn while the device works on what comes before the first section that reads it.
static bool lacks_noise(const sumi_plan_job* job) { return noise_values(job) > 0 && job->cursor < job->part_count; }

// pieces of noise behind slices: they wait in the runner's ring of inputs, and a write that finds it full would wait
// for the slices
#define MOST_BESIDE 16

bool sumi_plan_job_draws_next(const sumi_engine* engine, const sumi_slot* slot)
{
    SUMI_ASSERT(sumi_work_is_held(engine));
    const sumi_plan_job* job = &slot->u.plan;
    const sumi_run* run = &engine->run;
    if (job->phase != SUMI_PHASE_RUN || slot != engine->running || !lacks_noise(job)) return false;
    const bool is_busy = run->pending_count + engine->leaving_run.pending_count > 0;
    if (is_busy && job->drawn_beside >= MOST_BESIDE) return false;
    return run->section >= run->entry->noise_section || !sumi_run_has_room(engine);
}

static sumi_result draw_beside(sumi_engine* engine, sumi_slot* slot, sumi_error* error)
{
    sumi_plan_job* job = &slot->u.plan;
    SUMI_ASSERT(lacks_noise(job));
    bool is_over = false;
    const uint64_t begin = sumi_clock_ns();
    const bool is_busy = engine->run.pending_count + engine->leaving_run.pending_count > 0;
    job->drawn_beside = is_busy ? job->drawn_beside + 1 : 0;
    SUMI_TRY(write_noise(engine, job, &is_over, error));
    const double us = (double)(sumi_clock_ns() - begin) * 1e-3;
    engine->chore_us[SUMI_CHORE_NOISE] = 0.5 * (engine->chore_us[SUMI_CHORE_NOISE] + us);
    // on the processor the whole step is counted
    if (slot->live.device_us >= 0.0) slot->stage_seconds[SUMI_STAGE_PREPARE] += us * 1e-6;
    else sumi_deadline_note(engine, us);
    slot->live.doing = "noise";
    slot->live.doing_step = -1;
    if (!is_over) return SUMI_OK;
    job->drawn = 0;
    job->cursor++;
    return SUMI_OK;
}

// Looks after what a device has finished, which makes room, and submits one slice unless it holds back, or draws a piece
// of noise.
static sumi_result run_one(sumi_engine* engine, sumi_slot* slot, bool holds, sumi_stage* out_stage,
                           sumi_step_end* out_end, bool* out_over, sumi_error* error)
{
    SUMI_ASSERT(slot == engine->running || slot == engine->leaving);
    sumi_plan_job* job = &slot->u.plan;
    const sumi_runner_functions* runner = engine->runner->functions;
    const bool is_device = runner->finished != NULL;
    const sumi_run* run = run_of(engine, slot);
    *out_end = SUMI_STEP_WAITS;
    if (is_device) {
        slot->live.device_us = 0.0;
        if (run->pending_count > 0) *out_stage = sumi_stage_of_section(run->pending[run->pending_begin].section);
        SUMI_TRY(collect(engine, slot, out_stage, out_end, out_over, error));
    }
    if (!*out_over && sumi_plan_job_draws_next(engine, slot)) {
        SUMI_TRY(draw_beside(engine, slot, error));
        *out_end = SUMI_STEP_MORE;
        return is_device ? runner->health(engine->runner, error) : SUMI_OK;
    }
    const bool needs_noise = lacks_noise(job) && engine->run.section >= job->entry->noise_section;
    const bool restores = slot != engine->leaving && !needs_noise && sumi_plan_job_restores(engine, job);
    if (!*out_over && restores && run->pending_count == 0) {
        sumi_plan_job_restore(engine, job);
        *out_stage = SUMI_STAGE_PREPARE;
        *out_end = SUMI_STEP_MORE;
    } else if (!*out_over && slot != engine->leaving && !needs_noise && !restores && !holds
               && sumi_run_has_room(engine)) {
        sumi_deadline_adapt(engine, slot);
        sumi_run_step next = sumi_run_next(engine);
        note_denoising_step(job, &next);
        // What is fetched lies where the results of the job that is leaving lie.
        const bool may_fetch = engine->leaving == NULL && !job->preview_is_coming;
        if (may_fetch || (!next.shows && !(next.ends_run && engine->leaving != NULL))) {
            if (*out_end == SUMI_STEP_WAITS && run->pending_count == 0)
                *out_stage = sumi_stage_of_section(next.section);
            SUMI_TRY(submit(engine, job, &next, error));
            *out_end = SUMI_STEP_MORE;
        }
    }
    if (is_device) return runner->health(engine->runner, error);
    return collect(engine, slot, out_stage, out_end, out_over, error);
}

// ---- Outputs --------------------------------------------------------------------------------------------------------

// Rows [row, row + row_count) of an item's picture in the target's format.
static void read_rows(sumi_engine* engine, const sumi_plan_job* job, int32_t item, int32_t row, int32_t row_count,
                      unsigned char* pixels)
{
    const sumi_pipeline* pipeline = &job->entry->pipeline;
    const size_t width = (size_t)job->width, count = width * (size_t)row_count, from = width * (size_t)row;
    const uint64_t first = ((uint64_t)(item - job->part_begin) * width * (uint64_t)job->height + from) * 3;
    const sumi_format format = job->items[item].target.format;
    if (format == SUMI_FORMAT_RGB8) {
        read_value(engine, job, pipeline->bytes, first, pixels, count * 3);
    } else if (format == SUMI_FORMAT_RGB32F) {
        float* values = (float*)(void*)pixels; // in a block of ours, aligned
        read_activations(engine, job, pipeline->picture, first, values, count * 3);
        for (size_t i = 0; i < count * 3; i++) values[i] = values[i] * 0.5f + 0.5f;
    } else if (widens_on_device(engine, &job->items[item])) {
        read_value(engine, job, pipeline->picture, wide_offset(job, item) + from * 4, pixels, count * 4);
    } else {
        // into the last three quarters, then spread from the front: the reader stays ahead of the writer
        const unsigned char* rgb = pixels + count;
        read_value(engine, job, pipeline->bytes, first, pixels + count, count * 3);
        for (size_t i = 0; i < count; i++, rgb += 3, pixels += 4) {
            const unsigned char r = rgb[0], g = rgb[1], b = rgb[2];
            pixels[0] = format == SUMI_FORMAT_BGRA8 ? b : r, pixels[1] = g;
            pixels[2] = format == SUMI_FORMAT_BGRA8 ? r : b, pixels[3] = 255;
        }
    }
}

// The same into the picture, whose rows are one behind the other: with bottom_up the last one first.
static void read_picture(sumi_engine* engine, const sumi_plan_job* job, int32_t item, int32_t row, int32_t row_count)
{
    SUMI_ASSERT(item >= job->part_begin && item < job->part_begin + job->part_count);
    SUMI_ASSERT(row >= 0 && row_count >= 1 && row + row_count <= job->height);
    SUMI_ASSERT(job->items[item].pixels != NULL);
    const sumi_target* target = &job->items[item].target;
    const size_t row_bytes = (size_t)job->width * (size_t)sumi_format_bytes(target->format);
    unsigned char* pixels = job->items[item].pixels;
    if (!target->bottom_up) read_rows(engine, job, item, row, row_count, pixels + (size_t)row * row_bytes);
    for (int32_t r = row; r < row + row_count && target->bottom_up; r++)
        read_rows(engine, job, item, r, 1, pixels + (size_t)(job->height - 1 - r) * row_bytes);
}

static sumi_result check_finite(const float* values, size_t count, const char* what, sumi_error* error)
{
    size_t bad = 0;
    for (size_t i = 0; i < count; i++) bad += !isfinite(values[i]);
    if (bad == 0) return SUMI_OK;
    return sumi_fail(error, SUMI_NOT_FINITE,
                     "%zu of %zu values of %s are NaN or infinite: the weights or an adapter are damaged", bad, count,
                     what);
}

// The next piece of the features that were encoded.
static sumi_result read_features(sumi_engine* engine, sumi_plan_job* job, bool* out_done, sumi_error* error)
{
    const sumi_pipeline* pipeline = &job->entry->pipeline;
    size_t before = 0;
    for (int32_t e = 0; e < job->prompt->encoder_count; e++) {
        const size_t width = (size_t)job->prompt->width[e], count = (size_t)job->prompt->token_count[e] * width;
        if (job->moved < before + count) {
            const size_t at = job->moved - before, part = count - at < FEATURE_VALUES ? count - at : FEATURE_VALUES;
            float* into = job->prompt->features[e] + at;
            read_activations(engine, job, pipeline->features[0][e].value,
                             (uint64_t)pipeline->features[0][e].row * width + at, into, part);
            job->moved += part;
            *out_done = at + part == count && e + 1 == job->prompt->encoder_count;
            return check_finite(into, part, "the prompt's features", error);
        }
        before += count;
    }
    *out_done = true;
    return SUMI_OK;
}

static sumi_result read_item(sumi_engine* engine, const sumi_slot* slot, int32_t index, sumi_error* error)
{
    const sumi_plan_job* job = &slot->u.plan;
    SUMI_ASSERT(job->goal != SUMI_GOAL_PROMPTS && index >= job->part_begin && index < job->item_count);
    const sumi_pipeline* pipeline = &job->entry->pipeline;
    const size_t count = latent_values(job);
    float* latents = job->latents + (size_t)index * count;
    read_value(engine, job, job->goal == SUMI_GOAL_ENCODE ? pipeline->clean : pipeline->x,
               (uint64_t)(index - job->part_begin) * count * sizeof(float), latents, count * sizeof(float));
    if (job->goal == SUMI_GOAL_ENCODE) return check_finite(latents, count, "the latents", error);
    if (index == job->part_begin) {
        int32_t bad = 0;
        read_value(engine, job, pipeline->not_finite, 0, &bad, sizeof bad);
        if (bad != 0) {
            const bool is_given = job->noise_values != NULL || job->start_latents != NULL || job->start_noise != NULL;
            return sumi_fail(error, SUMI_NOT_FINITE,
                             "%d of %lld values of the pictures are NaN or infinite: the weights or an adapter are "
                             "damaged, or a scale is far too large%s",
                             (int)bad, (long long)job->part_count * job->width * job->height * 3,
                             is_given ? ", or so are values of the noise or the latents that were given" : "");
        }
    }
    return SUMI_OK;
}

// a piece: some dozen microseconds of copying, three times that where the processor converts
#define OUTPUT_PIXELS (32 * 1024)

static int32_t output_rows(const sumi_plan_job* job)
{
    return OUTPUT_PIXELS / job->width > 1 ? OUTPUT_PIXELS / job->width : 1;
}

// The next piece of output.
static sumi_result write_output(sumi_engine* engine, const sumi_slot* slot, sumi_plan_job* job, bool* out_done,
                                sumi_error* error)
{
    if (job->goal == SUMI_GOAL_PROMPTS) return read_features(engine, job, out_done, error);
    SUMI_ASSERT(job->row >= 0 && job->row < job->height);
    const int32_t item = job->part_begin + job->cursor;
    if (job->row == 0) SUMI_TRY(read_item(engine, slot, item, error));
    if (job->goal == SUMI_GOAL_IMAGES && !stays_on_device(&job->items[item])) {
        const int32_t left = job->height - job->row, rows = output_rows(job) < left ? output_rows(job) : left;
        read_picture(engine, job, item, job->row, rows);
        job->row += rows;
        if (job->row < job->height) return SUMI_OK;
        job->row = 0;
    }
    *out_done = ++job->cursor >= job->part_count;
    return SUMI_OK;
}

// ---- The steps ------------------------------------------------------------------------------------------------------

static void next_phase(sumi_plan_job* job, sumi_phase phase)
{
    SUMI_ASSERT(phase == SUMI_PHASE_PLAN || phase == job->phase + 1);
    job->phase = phase;
    job->cursor = job->mask_rows = 0;
    job->drawn = job->moved = 0;
    job->drawn_beside = 0;
}

#define MOST_SHEDS 2 // what other jobs read once, then what their steps read

static bool sheds(sumi_engine* engine, sumi_plan_job* job)
{
    if (job->sheds == MOST_SHEDS || job->entry == NULL) return false;
    sumi_engine_release(engine);
    const bool is_any = engine->runner->functions->shed(engine->runner, &job->entry->plan);
    job->sheds = is_any ? job->sheds + 1 : MOST_SHEDS;
    return is_any;
}

static void halve(sumi_engine* engine, sumi_plan_job* job)
{
    SUMI_ASSERT(job->part_count > 1);
    sumi_plan_job_forget_kept(engine, job); // it is of other items than the next part's
    char text[160];
    job->part_count = (job->part_count + 1) / 2;
    sumi_engine_release(engine); // the next arena is smaller, and the memory may be wanted for weights
    snprintf(text, sizeof text,
             "the device has no memory left for the batch: trying again with %d of its %d pictures at a time",
             (int)job->part_count, (int)job->item_count);
    sumi_log_write(engine, SUMI_LOG_WARNING, SUMI_OK, text);
}

// More than all the ways below together: two sheds, six halves, one raise, the smallest form, and the lowered limits.
#define MOST_TRIES 32

// The device has less memory than was thought. Weights that this job does not use go first; then half of the pictures
// are run at a time; then a limit streams weights in every step and has the VAE work in tiles; then the job fails. A
// plan that the limit, and not the device, has refused first asks whether there is more by now, and in the end may have
// what its smallest form needs.
static bool tries_again(sumi_engine* engine, sumi_plan_job* job, sumi_result result, sumi_error* error)
{
    SUMI_ASSERT(result != SUMI_OK);
    if (result != SUMI_OUT_OF_DEVICE_MEMORY) return false;
    const bool is_short = engine->limit.is_short;
    engine->limit.is_short = false;
    bool goes_on = ++job->tries <= MOST_TRIES;
    if (goes_on && is_short && job->part_count > 1) {
        if (!sheds(engine, job)) halve(engine, job);
    } else if (goes_on && is_short) {
        const sumi_plan* plan = job->entry != NULL ? &job->entry->plan : NULL;
        engine->limit.is_short = true;
        goes_on = job->lowered_limits++ < SUMI_MOST_LOWERED && sumi_limit_lower(engine, plan);
    } else if (goes_on && !job->has_raised && job->lowered_limits == 0 && sumi_limit_raise(engine)) {
        job->has_raised = true;
    } else if (goes_on && job->part_count > 1) {
        halve(engine, job);
    } else if (goes_on) {
        goes_on = !job->has_tried_least && sumi_limit_try_least(engine);
        job->has_tried_least = true;
    }
    if (!goes_on) {
        engine->limit = (sumi_device_limit){0};
        return false;
    }
    *error = (sumi_error){SUMI_OK, {0}};
    next_phase(job, SUMI_PHASE_PLAN);
    return true;
}

// After a part of the items: whether there is another one.
static bool begin_next_part(sumi_engine* engine, sumi_plan_job* job)
{
    SUMI_ASSERT(job->part_begin + job->part_count <= job->item_count);
    for (int32_t i = 0; i < job->part_count; i++)
        job->items[job->part_begin + i].step_count = job->run_steps - job->adaption.skipped;
    job->part_begin += job->part_count;
    const int32_t left = job->item_count - job->part_begin;
    if (left <= 0) return false;
    if (job->part_count > left) job->part_count = left;
    engine->run = (sumi_run){.entry = NULL}; // its plan may go
    job->entry = NULL;
    next_phase(job, SUMI_PHASE_PLAN);
    return true;
}

bool sumi_plan_job_can_leave(const sumi_engine* engine, const sumi_slot* slot)
{
    SUMI_ASSERT(sumi_work_is_held(engine));
    const sumi_plan_job* job = &slot->u.plan;
    const sumi_run *run = &engine->run, *before = &engine->leaving_run;
    const bool is_last_part = job->goal != SUMI_GOAL_IMAGES || job->part_begin + job->part_count >= job->item_count;
    return engine->runner->functions->is_ready != NULL && job->phase == SUMI_PHASE_RUN && run->is_submitted
        && run->pending_count > 0 && before->pending_count == 0 && is_last_part;
}

// Whether a job may take its plan beside the one that is leaving: it is there, and the device has all of it.
static bool can_follow(sumi_engine* engine, sumi_slot* slot)
{
    SUMI_ASSERT(sumi_work_is_held(engine) && engine->leaving != NULL);
    sumi_plan_job* job = &slot->u.plan;
    sumi_plan_request request;
    sumi_error none = {SUMI_OK, {0}};
    // a deadline may mean a plan that is not there yet
    if (job->deadline_ms > 0 || !sumi_run_is_alone(engine)) return false;
    if (sumi_plan_job_request(&engine->heap, &engine->workspace, slot->model, job, job->step_count, &request, &none)
        != SUMI_OK)
        return false;
    const sumi_plan_entry* entry = sumi_plan_find(engine, &request);
    if (entry == NULL) return false;
    const bool is_cut_short = engine->limit.bytes != 0 && (entry->need.streamed > 0 || entry->tile_latent > 0);
    if (is_cut_short && !job->has_reviewed) return false; // once nothing runs, it asks whether there is more memory
    return engine->runner->functions->is_ready(engine->runner, &entry->plan);
}

// Once per job, when the tokens of all its texts are known.
static void tell_cut_tokens(sumi_engine* engine, sumi_slot* slot)
{
    const sumi_plan_job* job = &slot->u.plan;
    const int32_t told = slot->live.cut_tokens;
    for (int32_t i = 0; i < job->prompt_count; i++) {
        if (job->prompts[i].cut_tokens > slot->live.cut_tokens) slot->live.cut_tokens = job->prompts[i].cut_tokens;
    }
    if (slot->live.cut_tokens == told) return;
    char text[160];
    snprintf(text, sizeof text, "a text is %d tokens longer than the model reads: its end is cut off; make it shorter",
             (int)slot->live.cut_tokens);
    sumi_log_write(engine, SUMI_LOG_WARNING, SUMI_OK, text);
}

sumi_result sumi_plan_job_step(sumi_engine* engine, sumi_slot* slot, sumi_stage* out_stage, sumi_step_end* out_end,
                               sumi_error* error)
{
    SUMI_ASSERT(sumi_work_is_held(engine) && slot->status.state == SUMI_JOB_RUNNING);
    sumi_plan_job* job = &slot->u.plan;
    bool is_over = false;
    sumi_result result;
    sumi_giving_way way = SUMI_GOES_ON;
    *out_stage = SUMI_STAGE_PREPARE;
    if ((slot->gives_way || job->kept_is_coming) && slot == engine->running)
        SUMI_TRY(sumi_plan_job_give_way(engine, slot, &way, error));
    if (way == SUMI_WENT_ASIDE) {
        *out_end = SUMI_STEP_ASIDE;
        return SUMI_OK;
    }
    switch (job->phase) {
    case SUMI_PHASE_TEXT:
        if (job->cursor < job->prompt_count)
            SUMI_TRY(sumi_plan_job_tokenise(&engine->heap, &engine->workspace, slot->model, job, job->cursor, error));
        if (++job->cursor < job->prompt_count) return SUMI_OK;
        tell_cut_tokens(engine, slot);
        next_phase(job, SUMI_PHASE_PLAN);
        return SUMI_OK;
    case SUMI_PHASE_PLAN:
        // Slices of a cancelled job, or of one that is leaving: their plan, weights and arena are not ours to change
        // yet.
        if (engine->leaving != NULL ? !can_follow(engine, slot) : !sumi_run_is_idle(engine)) {
            *out_end = SUMI_STEP_WAITS;
            return SUMI_OK;
        }
        // a millisecond or two each
        result = job->cursor == 0 ? make_plan(engine, slot, error) : make_room(engine, slot, error);
        if (result != SUMI_OK) return tries_again(engine, job, result, error) ? SUMI_OK : result;
        if (job->cursor++ == 0) return SUMI_OK;
        next_phase(job, SUMI_PHASE_READY);
        return SUMI_OK;
    case SUMI_PHASE_READY:
        result = make_ready(engine, slot, &is_over, error);
        if (result != SUMI_OK) return tries_again(engine, job, result, error) ? SUMI_OK : result;
        if (is_over) next_phase(job, SUMI_PHASE_INPUT);
        return SUMI_OK;
    case SUMI_PHASE_INPUT:
        SUMI_TRY(write_input(engine, slot, &is_over, error));
        if (is_over) next_phase(job, SUMI_PHASE_RUN);
        return SUMI_OK;
    case SUMI_PHASE_RUN:
        SUMI_TRY(run_one(engine, slot, way == SUMI_HOLDS, out_stage, out_end, &is_over, error));
        if (is_over) {
            job->is_publishing = false;
            next_phase(job, SUMI_PHASE_OUTPUT);
        }
        return SUMI_OK;
    case SUMI_PHASE_OUTPUT:
        *out_stage = SUMI_STAGE_TRANSFER; // the last slice was over when the copies behind it were
        SUMI_TRY(write_output(engine, slot, job, &is_over, error));
        // reading may have failed, and cannot say so
        if (engine->runner->functions->health != NULL)
            SUMI_TRY(engine->runner->functions->health(engine->runner, error));
        if (is_over && job->goal == SUMI_GOAL_IMAGES) sumi_deadline_end(engine, slot);
        if (is_over && (job->goal != SUMI_GOAL_IMAGES || !begin_next_part(engine, job))) *out_end = SUMI_STEP_DONE;
        return SUMI_OK;
    }
    return sumi_fail(error, SUMI_INTERNAL, "a job is in phase %d", (int)job->phase);
}

double sumi_plan_job_noise_us(const sumi_engine* engine, const sumi_plan_job* job)
{
    return engine->chore_us[SUMI_CHORE_NOISE] * (double)((noise_values(job) + noise_piece(job) - 1) / noise_piece(job));
}

double sumi_plan_job_output_us(const sumi_engine* engine, const sumi_plan_job* job)
{
    int32_t pieces = 1;
    for (int32_t i = 0; i < job->item_count && job->goal == SUMI_GOAL_IMAGES; i++) {
        if (!stays_on_device(&job->items[i])) pieces = (job->height + output_rows(job) - 1) / output_rows(job);
    }
    return engine->chore_us[SUMI_CHORE_OUTPUT] * pieces;
}

double sumi_plan_job_predict(const sumi_engine* engine, const sumi_slot* slot)
{
    switch (slot->u.plan.phase) {
    case SUMI_PHASE_TEXT: return engine->chore_us[SUMI_CHORE_TEXT];
    case SUMI_PHASE_PLAN: return engine->chore_us[SUMI_CHORE_PLAN];
    case SUMI_PHASE_READY: return engine->chore_us[SUMI_CHORE_READY];
    case SUMI_PHASE_INPUT: return engine->chore_us[SUMI_CHORE_INPUT];
    case SUMI_PHASE_OUTPUT: return engine->chore_us[SUMI_CHORE_OUTPUT];
    default:
        return sumi_plan_job_draws_next(engine, slot) ? engine->chore_us[SUMI_CHORE_NOISE]
                                                      : sumi_run_predict_us(engine);
    }
}

void sumi_plan_job_stop(sumi_engine* engine, sumi_slot* slot)
{
    SUMI_ASSERT(sumi_work_is_held(engine) && (slot == engine->running || slot == engine->leaving));
    // after a job's end nothing of ours touches the host's memory
    if (slot->u.plan.is_publishing) engine->runner->functions->settle(engine->runner);
    slot->u.plan.is_publishing = false;
    if (slot == engine->leaving) {
        engine->leaving_run.entry = NULL; // its slices are still in order before others
    } else {
        engine->run = (sumi_run){.entry = NULL};
    }
    slot->u.plan.entry = NULL;
    if (slot == engine->running || engine->running == NULL) sumi_engine_trim(engine);
}

void sumi_plan_job_claim(sumi_plan_job* job, bool is_used)
{
    for (int32_t i = 0; job->items != NULL && i < job->item_count; i++) {
        if (job->items[i].target.external != NULL) atomic_store(&job->items[i].target.external->is_used, is_used);
        if (!is_used) job->items[i].target.external = NULL; // it may go before the slot does
    }
}

void sumi_plan_job_drop(sumi_engine* engine, sumi_slot* slot)
{
    sumi_plan_job* job = &slot->u.plan;
    for (int32_t i = 0; job->items != NULL && i < job->item_count; i++) {
        if (job->items[i].picture != NULL) sumi_picture_release(engine, job->items[i].picture->handle);
        job->items[i].picture = NULL;
    }
    sumi_plan_job_claim(job, false);
    sumi_plan_job_forget_kept(engine, job);
    sumi_prompt_free(job->prompt);
    job->prompt = NULL;
}
