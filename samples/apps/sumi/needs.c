// The same steps as an engine's on a GPU (jobs/plan_cache.c): write the plan, divide its weights under the limit; if
// weights are streamed, try again without long strips; if it does not fit even so, with smaller and smaller tiles of the
// picture.
#include "needs.h"
#include <string.h>

const sumi_weight_format needs_formats[NEEDS_FORMATS] = {SUMI_WEIGHTS_BF16, SUMI_WEIGHTS_FP8, SUMI_WEIGHTS_INT8,
                                                         SUMI_WEIGHTS_INT4, SUMI_WEIGHTS_AS_STORED};
const int32_t needs_card_gigabytes[NEEDS_CARDS] = {6, 8, 12, 16, 24};

// ---- A card that is not there ---------------------------------------------------------------------------------------

// The card of which the backend is asked: a GeForce 40 of the middle. Other cards differ in scratch memory only.
#if defined(SUMI_HAS_CUDA)
static void make_card(sumi_cuda* card)
{
    memset(card, 0, sizeof *card);
    card->device.capability = 89;
    card->device.multiprocessors = 46;
    card->device.shared_per_block = 99 << 10;
    card->device.shared_per_multiprocessor = 100 << 10;
    card->device.l2_bytes = 32 << 20;
    card->options.without_hopper = true;
}

static void arrange(const sumi_runner* runner, sumi_plan* plan)
{
    sumi_cuda_arrange(&((const sumi_cuda*)runner)->device, false, plan);
}
#else // a build without the backend does not know what its kernels need beside the arena
static void arrange(const sumi_runner* runner, sumi_plan* plan)
{
    (void)runner;
    sumi_device_choose_forms(plan, true);
}
#endif

// ---- The plan -------------------------------------------------------------------------------------------------------

// A model that was opened with all that its references need.
static bool takes_references(const sumi_network_info* info)
{
    return info->max_references > 0 && info->has_vae_encoder && (info->has_vision || !info->prompts_read_references);
}

needs_job needs_usual_job(const sumi_network* network, int32_t width, int32_t height)
{
    const sumi_network_info* info = sumi_network_get_info(network);
    const sumi_preset_values* preset = &info->presets[SUMI_PRESET_MODEL];
    needs_job job = {.width = width,
                     .height = height,
                     .preset = *preset,
                     .reference_count = takes_references(info),
                     .is_guided = preset->guidance != info->guidance_off};
    for (int32_t e = 0; e < info->text_encoder_count; e++) {
        const int32_t least = info->min_prompt_tokens[e];
        job.token_count[e] = job.negative_token_count[e] = least > NEEDS_TOKENS ? least : NEEDS_TOKENS;
    }
    return job;
}

// The evaluations of the solver; which of them are guided is decided by their noise level (jobs/job_request.c).
typedef struct evaluations {
    sumi_solver_row rows[4 * SUMI_SCHEDULE_MAX_STEPS];
    bool guided[4 * SUMI_SCHEDULE_MAX_STEPS];
    int32_t count;
    bool has_base, has_history, is_guided;
} evaluations;

static sumi_result list_evaluations(const sumi_network_info* info, const needs_job* job, evaluations* out,
                                    sumi_error* error)
{
    static float s_sigmas[SUMI_SCHEDULE_MAX_STEPS + 1];
    const sumi_preset_values* preset = &job->preset;
    const sumi_sigma_rule shifted = {.kind = SUMI_SHIFT_STATIC, .shift = preset->shift};
    const int32_t token_side = info->vae_factor * info->patch_size;
    SUMI_TRY(sumi_schedule_write(preset->shift > 0.0f ? &shifted : &info->sigmas,
                                 (job->width / token_side) * (job->height / token_side), preset->step_count, s_sigmas,
                                 error));
    out->count = sumi_solver_rows(preset->solver, s_sigmas, preset->step_count, out->rows);
    sumi_pipeline_needs(out->rows, out->count, &out->has_base, &out->has_history);
    out->is_guided = false;
    for (int32_t i = 0; i < out->count; i++) {
        const float t = 1.0f - out->rows[i].sigma;
        out->guided[i] = job->is_guided && t >= preset->guidance_begin && t <= preset->guidance_end;
        out->is_guided = out->is_guided || out->guided[i];
    }
    return SUMI_OK;
}

typedef struct job_plan {
    sumi_plan plan;
    int32_t tile;
    bool long_strips;
    uint64_t scratch_bytes, fixed_bytes;
} job_plan;

static sumi_result write_plan(sumi_heap* heap, const sumi_network* network, const needs_job* job,
                              sumi_weight_format weights, job_plan* out, sumi_error* error)
{
    const sumi_network_info* info = sumi_network_get_info(network);
    sumi_pipeline_prompt prompts[2] = {{.unused = {false}}};
    sumi_pipeline_reference references[SUMI_MAX_REFERENCES];
    sumi_reference_sizes sizes = {.tokens = 0};
    if (job->reference_count > 0) {
        SUMI_TRY(sumi_network_reference_sizes(network, (sumi_picture_size){job->width, job->height}, &sizes, error));
        for (int32_t r = 0; r < job->reference_count; r++) {
            references[r] = (sumi_pipeline_reference){sizes.vision.width, sizes.vision.height, sizes.autoencoder.width,
                                                      sizes.autoencoder.height};
        }
    }
    // how many rows of the first text encoder's prompt are pictures
    const int32_t picture_rows = job->reference_count * sizes.tokens;
    for (int32_t i = 0; i < 2; i++) {
        sumi_pipeline_prompt* prompt = &prompts[i];
        prompt->has_features = !info->has_text_encoder;
        for (int32_t r = 0; r < job->reference_count; r++) {
            prompt->reference_row[r] = info->min_prompt_tokens[0] - 1 + r * sizes.tokens;
            if (!prompt->has_features || !info->prompts_place_references) continue;
            // encoded before: how many rows a reference has there changes nothing but the features' size
            prompt->reference_row[r] = r;
            prompt->reference_rows[r] = 1;
        }
        for (int32_t e = 0; e < info->text_encoder_count; e++) {
            const int32_t count =
                (i == 0 ? job->token_count[e] : job->negative_token_count[e]) + (e == 0 ? picture_rows : 0);
            prompt->token_count[e] = prompt->has_features ? sumi_network_feature_rows(network, e, count) : count;
        }
    }
    static evaluations s_evaluations; // static because it is large
    evaluations* solved = &s_evaluations;
    SUMI_TRY(list_evaluations(info, job, solved, error));
    const bool is_guided = solved->is_guided;
    const sumi_pipeline_item item = {0, is_guided ? 1 : -1};
    sumi_pipeline_request request = {.goal = SUMI_GOAL_IMAGES,
                                     .prompts = prompts,
                                     .prompt_count = is_guided ? 2 : 1,
                                     .items = &item,
                                     .item_count = 1,
                                     .references = references,
                                     .reference_count = job->reference_count,
                                     .guided = is_guided ? solved->guided : NULL,
                                     .has_base = solved->has_base,
                                     .has_history = solved->has_history,
                                     .width = job->width,
                                     .height = job->height,
                                     .evaluation_count = solved->count,
                                     .tile_latent = out->tile,
                                     .long_strips = out->long_strips,
                                     .guidance_rule = is_guided ? job->preset.guidance_rule : SUMI_GUIDANCE_PLAIN,
                                     .norm_limit = is_guided ? job->preset.guidance_norm_limit : 0.0f};
    for (int32_t e = 0; e < info->text_encoder_count && info->has_text_encoder; e++)
        request.shared_tokens[e] = sumi_pipeline_shared(network, &request, e);
    sumi_plan_begin(&out->plan, heap, 2); // values are in bfloat16
    out->plan.arrange = arrange;
    out->plan.weight_options =
        (sumi_weight_options){.weights = weights,
                              .text_weights = weights == SUMI_WEIGHTS_AS_STORED ? weights : SUMI_WEIGHTS_BF16,
                              .attention = SUMI_ATTENTION_BF16};
#if defined(SUMI_HAS_CUDA)
    sumi_cuda card;
    make_card(&card);
    out->plan.runner = &card.runner;
    out->fixed_bytes = sumi_device_block_bytes(SUMI_CUDA_ARRIVALS * sizeof(uint32_t) + 64);
#endif
    sumi_pipeline pipeline;
    const sumi_result result = sumi_pipeline_write(network, &request, &out->plan, &pipeline, error);
#if defined(SUMI_HAS_CUDA)
    if (result == SUMI_OK) out->scratch_bytes = sumi_cuda_runner_scratch_bytes(&card.runner, &out->plan);
#endif
    out->plan.runner = NULL;
    return result;
}

// ---- Limits ---------------------------------------------------------------------------------------------------------

static sumi_result measure(sumi_heap* heap, const job_plan* plan, uint64_t limit, needs_of_limit* out,
                           sumi_error* error)
{
    // of the stock, only these members say what a plan needs
    const sumi_device_stock stock = {.heap = heap, .weights = {.heap = heap}, .fixed_bytes = plan->fixed_bytes};
    const sumi_device_plan record = {.plan = &plan->plan, .scratch_bytes = plan->scratch_bytes};
    sumi_device_need need;
    SUMI_TRY(sumi_device_measure_need(&stock, &record, limit, &need, error));
    *out = (needs_of_limit){.fits = need.fits,
                            .weight_bytes = need.weight_bytes,
                            .other_bytes = need.device_bytes - need.weight_bytes,
                            .streamed_bytes = need.streamed_bytes};
    if (need.streamed_bytes == 0) return SUMI_OK;
    sumi_device_division division;
    const uint64_t left = limit > out->other_bytes ? limit - out->other_bytes : 0;
    SUMI_TRY(sumi_device_divide(&stock.weights, &plan->plan, left, &division, error));
    for (int32_t i = 0; i < division.count; i++) {
        const sumi_device_division_entry* entry = &division.entries[i];
        if (entry->in_steps && entry->residence == SUMI_DEVICE_WEIGHT_STREAMED) out->step_bytes += entry->bytes;
    }
    sumi_free(heap, division.entries);
    return SUMI_OK;
}

sumi_result needs_under_limits(sumi_heap* heap, const sumi_network* network, const needs_job* job,
                               sumi_weight_format weights, const uint64_t* limits, int32_t limit_count,
                               needs_of_limit* out, sumi_error* error)
{
    const sumi_network_info* info = sumi_network_get_info(network);
    const int32_t side = (job->width > job->height ? job->width : job->height) / info->vae_factor;
    bool all_fit = false, long_strips = info->has_long_strips;
    sumi_result result = SUMI_OK;
    for (int32_t i = 0; i < limit_count; i++) out[i] = (needs_of_limit){.fits = false};
    for (int32_t tile = 0; result == SUMI_OK && !all_fit;) {
        if (tile < side) { // others would cover the picture
            job_plan plan = {.tile = tile, .long_strips = long_strips};
            result = write_plan(heap, network, job, weights, &plan, error);
            all_fit = true;
            for (int32_t i = 0; i < limit_count && result == SUMI_OK; i++) {
                if (out[i].fits) continue;
                result = measure(heap, &plan, limits[i], &out[i], error);
                out[i].fits = out[i].fits && !(long_strips && out[i].streamed_bytes > 0);
                out[i].tiles_vae = tile > 0;
                all_fit = all_fit && out[i].fits;
            }
            sumi_plan_end(&plan.plan);
        }
        tile = long_strips ? tile : sumi_network_smaller_tile(info, tile);
        if (tile == 0 && !long_strips) break;
        long_strips = false;
    }
    return result;
}

sumi_result needs_compute(sumi_heap* heap, const sumi_network* network, const needs_job* job,
                          needs_row out_rows[NEEDS_FORMATS], sumi_error* error)
{
    uint64_t limits[1 + NEEDS_CARDS] = {0};
    for (int32_t c = 0; c < NEEDS_CARDS; c++)
        limits[1 + c] = ((uint64_t)needs_card_gigabytes[c] << 30) - NEEDS_RESERVE_BYTES;
    for (int32_t f = 0; f < NEEDS_FORMATS; f++) {
        needs_of_limit needs[1 + NEEDS_CARDS];
        SUMI_TRY(needs_under_limits(heap, network, job, needs_formats[f], limits, 1 + NEEDS_CARDS, needs, error));
        out_rows[f] = (needs_row){.weights = needs_formats[f], .whole = needs[0]};
        memcpy(out_rows[f].cards, needs + 1, sizeof out_rows[f].cards);
    }
    return SUMI_OK;
}

// ---- The transformer ------------------------------------------------------------------------------------------------

void needs_count_transformer(const sumi_network_desc* desc, uint64_t* out_values, uint64_t* out_bytes)
{
    sumi_heap heap;
    sumi_error error = {0};
    sumi_network* network = NULL;
    float progress;
    sumi_heap_init(&heap, NULL);
    *out_values = *out_bytes = 0;
    sumi_result result = sumi_network_open_begin(&heap, NULL, desc, &error, &network);
    for (bool done = false; result == SUMI_OK && !done;)
        result = sumi_network_open_step(network, UINT32_MAX, &done, &progress, &error);
    if (result == SUMI_OK) {
        *out_values = sumi_network_get_info(network)->denoiser_values;
        *out_bytes = sumi_network_get_info(network)->denoiser_bytes;
    }
    sumi_network_close(network);
}
