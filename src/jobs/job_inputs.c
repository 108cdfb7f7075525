#include "jobs/job_inputs.h"
#include "base/assert.h"
#include "base/dtype.h"
#include "base/result.h"
#include "jobs/buffers.h"
#include "jobs/engine_state.h"
#include "jobs/held_inputs.h"
#include "jobs/job.h"
#include "jobs/job_controls.h"
#include "jobs/job_pictures.h"
#include "jobs/job_request.h"
#include "jobs/objects.h"
#include "jobs/plan_cache.h"
#include "jobs/plan_job.h"
#include "jobs/prompt.h"
#include "models/network.h"
#include "models/pipeline.h"
#include "pacing/frame_limits.h"
#include "pictures/picture_sizes.h"
#include "pictures/pixels.h"
#include "plan/ops.h"
#include "plan/plan.h"
#include "plan/runner.h"
#include "sampling/noise.h"
#include <string.h>

// Bytes of the two blocks that reserve_mask reserves.
static uint64_t mask_value_bytes(const sumi_plan_job* job)
{
    return sumi_plan_job_latent_size(job) * sizeof(float)
         + 2 * (uint64_t)job->request.width * (uint64_t)job->request.height;
}
static uint64_t mask_edge_bytes(const sumi_plan_job* job)
{
    return job->request.mask_feather > 0
             ? (uint64_t)job->request.width * (uint64_t)job->request.height * sizeof(uint16_t)
             : 0;
}

uint64_t sumi_plan_job_input_bytes(const sumi_plan_job* job)
{
    const sumi_job_request* request = &job->request;
    const int32_t width = request->width, height = request->height;
    uint64_t bytes = sumi_plan_job_latent_values(job) * sizeof(float);
    if (request->start_image.data != NULL) {
        const sumi_resize_args resize = {&request->start_image, width, height, SUMI_FILTER_LANCZOS,
                                         request->picture_channels == 4};
        bytes += sumi_resize_bytes(&resize) + (uint64_t)width * (uint64_t)height * (uint64_t)request->picture_channels;
    }
    if (request->mask.data != NULL) {
        const sumi_resize_args resize = {&request->mask, width, height, SUMI_FILTER_LANCZOS, false};
        bytes += mask_value_bytes(job) + mask_edge_bytes(job);
        bytes += sumi_pixels_mask_bytes(&request->mask, width, height);
        if (request->mask.channel_count != 4) bytes += sumi_resize_bytes(&resize); // see write_latent_mask
    }
    return bytes + sumi_control_inputs_bytes(request);
}

// Whether pieces of work may be larger, because no call has a budget.
static bool is_unpaced(const sumi_engine* engine)
{
    return engine->runner->traits.has_device && !sumi_frame_limits_are_paced(&engine->frame);
}

static void write_value(sumi_engine* engine, const sumi_plan_job* job, const sumi_value_part* bytes, const void* data)
{
    engine->runner->functions->write(engine->runner, &job->progress.entry->plan, bytes->value, bytes->first, data,
                                     bytes->count);
}

// The value was written to its end with what this prompt has, and holds it for the runs that follow.
static void note_held(const sumi_engine* engine, const sumi_plan_job* job, sumi_value value, uint64_t* held,
                      uint64_t prompt_serial)
{
    SUMI_ASSERT(!sumi_plan_writes(&job->progress.entry->plan, value)); // a run changes no input
    (void)job, (void)value;
    sumi_held_inputs_note(&engine->held_inputs, held, prompt_serial);
}

// Writes the token ids of the prompts that the plan encodes, and the times and solver rows of all evaluations.
static void write_ids_and_steps(sumi_engine* engine, sumi_job_slot* slot)
{
    sumi_plan_job* job = &slot->u.plan_job;
    const sumi_planning planning = {.workspace = &engine->workspace, .model = slot->model, .job = job};
    const sumi_job_progress* progress = &job->progress;
    SUMI_ASSERT(progress->plan_prompt_count <= job->request.prompt_count);
    const sumi_pipeline* pipeline = &progress->entry->pipeline;
    for (int32_t p = 0; p < progress->plan_prompt_count; p++) {
        const sumi_job_prompt* prompt = &job->request.prompts[progress->plan_prompts[p]];
        for (int32_t e = 0; e < slot->model->info.text_encoder_count; e++) {
            sumi_pipeline_rows ids = pipeline->ids[p][e];
            if (prompt->text == NULL || ids.value.id == 0) continue;
            // The prompt's first tokens are missing here if they are equal to those of the first prompt: the plan
            // computes shared tokens once (shared_tokens in job_request.c).
            const int32_t skipped = sumi_network_id_rows(slot->model->network, e, prompt->token_count[e]) - ids.count;
            const int32_t* from = sumi_plan_job_ids(&planning, progress->plan_prompts[p], e) + skipped;
            write_value(engine, job,
                        &(sumi_value_part){.value = ids.value,
                                           .first = (uint64_t)ids.row * sizeof *from,
                                           .count = (uint64_t)ids.count * sizeof *from},
                        from);
        }
    }
    if (job->request.goal != SUMI_GOAL_IMAGES) return;
    const size_t count = (size_t)progress->evaluation_count;
    write_value(engine, job, &(sumi_value_part){.value = pipeline->times, .count = count * sizeof *progress->times},
                progress->times);
    write_value(engine, job, &(sumi_value_part){.value = pipeline->solver, .count = count * sizeof *progress->rows},
                progress->rows);
}

// Writes the next piece of the features of prompts that the host program gave encoded. They are elements of activations
// already. Those that the run before has left in the arena stay.
static void write_features(sumi_engine* engine, const sumi_job_slot* slot, sumi_plan_job* job, bool* out_done)
{
    const sumi_pipeline* pipeline = &job->progress.entry->pipeline;
    const size_t element_bytes = (size_t)job->progress.entry->plan.activation_bytes,
                 most = SUMI_FEATURE_PIECE_VALUES * (is_unpaced(engine) ? SUMI_UNPACED_FACTOR : 1);
    size_t before = 0;
    for (int32_t p = 0; p < job->progress.plan_prompt_count; p++) {
        const sumi_job_prompt* prompt = &job->request.prompts[job->progress.plan_prompts[p]];
        for (int32_t e = 0; e < slot->model->info.text_encoder_count; e++) {
            const sumi_pipeline_rows features = pipeline->features[p][e];
            if (prompt->text != NULL || features.value.id == 0) continue;
            const size_t width = (size_t)slot->model->info.feature_width[e], count = (size_t)features.count * width;
            uint64_t* held = &engine->held_inputs.features[p][e];
            if (job->progress.moved_values == before && sumi_held_inputs_has(held, prompt->source->serial))
                job->progress.moved_values += count;
            if (job->progress.moved_values < before + count) {
                const size_t offset = job->progress.moved_values - before,
                             piece = count - offset < most ? count - offset : most;
                const sumi_value_part part = {.value = features.value,
                                              .first = ((uint64_t)features.row * width + offset) * element_bytes,
                                              .count = piece * element_bytes};
                *out_done = false;
                job->progress.moved_values += piece;
                write_value(engine, job, &part, (const char*)prompt->features[e] + offset * element_bytes);
                if (offset + piece == count) note_held(engine, job, features.value, held, prompt->source->serial);
                return;
            }
            before += count;
        }
    }
    *out_done = true;
}

// Writes the next piece of the start: start latents in one piece, a start image over several pieces, because of its
// resize.
static sumi_result write_start(sumi_engine* engine, sumi_plan_job* job, bool* out_done, sumi_error* error)
{
    const sumi_job_request* request = &job->request;
    SUMI_ASSERT(job->progress.entry != NULL && job->progress.phase == SUMI_PHASE_INPUT);
    const sumi_pipeline* pipeline = &job->progress.entry->pipeline;
    *out_done = true;
    if (request->start_latents != NULL) {
        const uint64_t bytes = sumi_plan_job_latent_values(job) * sizeof(float);
        for (int32_t i = 0; i < job->progress.batch_count; i++)
            write_value(engine, job,
                        &(sumi_value_part){.value = pipeline->clean, .first = (uint64_t)i * bytes, .count = bytes},
                        request->start_latents);
    }
    if (request->start_image.data == NULL) return SUMI_OK;
    sumi_pixels picture;
    const sumi_resize_args resize = {&request->start_image, request->width, request->height, SUMI_FILTER_LANCZOS,
                                     request->picture_channels == 4};
    SUMI_TRY(sumi_resize_advance(&engine->workspace, &resize, &job->progress.resize, &picture, error));
    *out_done = picture.data != NULL;
    if (!*out_done) return SUMI_OK;
    const uint64_t bytes = (uint64_t)request->width * (uint64_t)request->height * (uint64_t)request->picture_channels;
    SUMI_TRY(sumi_block_reserve(&engine->heap, &engine->workspace.values, bytes, "a start image", error));
    SUMI_TRY(
        sumi_picture_pack(&engine->heap, &picture, request->picture_channels, engine->workspace.values.data, error));
    write_value(engine, job, &(sumi_value_part){.value = pipeline->pixels, .count = bytes},
                engine->workspace.values.data);
    return SUMI_OK;
}

// The mask and what is computed from it. They lie in the workspace until the last piece of the mask is written.
typedef struct mask_blocks {
    float* latent;           // the mask in the latents' size
    uint8_t *mask, *opacity; // the mask and the opacity in the picture's size
    uint16_t* distances;     // distances to the mask's edge, in the picture's size; NULL: no feather
} mask_blocks;

static sumi_result reserve_mask(sumi_engine* engine, const sumi_plan_job* job, mask_blocks* out, sumi_error* error)
{
    const uint64_t pixels = (uint64_t)job->request.width * (uint64_t)job->request.height;
    sumi_block *values = &engine->workspace.values, *between = &engine->workspace.intermediate;
    SUMI_TRY(sumi_block_reserve(&engine->heap, values, mask_value_bytes(job), "a mask", error));
    out->latent = values->data;
    out->mask = (uint8_t*)(out->latent + sumi_plan_job_latent_size(job));
    out->opacity = out->mask + pixels;
    out->distances = NULL;
    if (job->request.mask_feather > 0) {
        SUMI_TRY(sumi_block_reserve(&engine->heap, between, mask_edge_bytes(job), "a mask's edge", error));
        out->distances = between->data;
    }
    return SUMI_OK;
}

// Writes the mask in the latents' size, as the solver reads it, over one or more pieces. With *out_done the mask is
// also in the workspace, where reserve_mask finds it.
static sumi_result write_latent_mask(sumi_engine* engine, const sumi_network_info* info, sumi_plan_job* job,
                                     bool* out_done, sumi_error* error)
{
    const sumi_job_request* request = &job->request;
    sumi_pixels picture = request->mask;
    *out_done = true;
    // The alpha channel of a mask is used, so colours must be premultiplied before the resize. sumi_pixels_to_mask does
    // that in one piece; masks without alpha are resized here in several pieces.
    if (request->mask.channel_count != 4) {
        const sumi_resize_args resize = {&request->mask, request->width, request->height, SUMI_FILTER_LANCZOS, false};
        SUMI_TRY(sumi_resize_advance(&engine->workspace, &resize, &job->progress.resize, &picture, error));
        *out_done = picture.data != NULL;
        if (!*out_done) return SUMI_OK;
    }
    mask_blocks blocks;
    SUMI_TRY(reserve_mask(engine, job, &blocks, error));
    sumi_temporary temporary;
    sumi_temporary_begin(&temporary, &engine->heap, &engine->workspace.temporary);
    sumi_result result =
        sumi_pixels_to_mask(&temporary.heap, &picture, request->width, request->height, blocks.mask, error);
    sumi_temporary_end(&temporary);
    SUMI_TRY(result);
    const sumi_latent_mask to = {blocks.latent, request->latent_width, request->latent_height, info->start.mask_filter};
    sumi_mask_to_latents(blocks.mask, request->width, request->height, &to);
    write_value(engine, job,
                &(sumi_value_part){.value = job->progress.entry->pipeline.mask,
                                   .count = sumi_plan_job_latent_size(job) * sizeof(float)},
                blocks.latent);
    return SUMI_OK;
}

#define DISTANCE_PIXELS 500000 // pixels per piece: about two milliseconds

// Writes the next piece of the mask: first the latent mask, then, if the start image is put back over the result
// (opacity), the distances downward, the distances upward, and the opacity. job->progress.mask_rows counts the rows of
// both passes over the distances.

static sumi_result write_mask(sumi_engine* engine, const sumi_network_info* info, sumi_plan_job* job, bool* out_done,
                              sumi_error* error)
{
    sumi_job_progress* progress = &job->progress;
    SUMI_ASSERT(progress->entry != NULL && progress->phase == SUMI_PHASE_INPUT);
    const sumi_value opacity = progress->entry->pipeline.opacity;
    *out_done = true;
    if (job->request.mask.data == NULL) return SUMI_OK;
    if (progress->mask_rows == 0) {
        SUMI_TRY(write_latent_mask(engine, info, job, out_done, error));
        if (!*out_done || opacity.id == 0) return SUMI_OK;
    }
    mask_blocks blocks;
    SUMI_TRY(reserve_mask(engine, job, &blocks, error));
    const int32_t height = job->request.height, width = job->request.width;
    if (blocks.distances != NULL && progress->mask_rows < 2 * height) {
        const bool upward = progress->mask_rows >= height;
        const int32_t first = upward ? progress->mask_rows - height : progress->mask_rows;
        int32_t count = DISTANCE_PIXELS / width + 1;
        count = count < height - first ? count : height - first;
        sumi_mask_distances(blocks.mask, width, height, upward ? height - first - count : first,
                            upward ? height - first : first + count, upward, blocks.distances);
        progress->mask_rows += count;
        *out_done = false;
        return SUMI_OK;
    }
    const size_t pixels = (size_t)width * (size_t)height;
    sumi_mask_opacity(blocks.mask, blocks.distances, pixels, job->request.mask_feather, blocks.opacity);
    write_value(engine, job, &(sumi_value_part){.value = opacity, .count = pixels}, blocks.opacity);
    progress->mask_rows = 0;
    return SUMI_OK;
}

// The pieces of a reference, in this order: see job_pictures.h.
typedef enum reference_stage { FOR_AUTOENCODER, BEFORE_VISION, FOR_VISION, REFERENCE_STAGES } reference_stage;

// A window of the result of a resize.
typedef struct reference_window {
    int32_t left, top;
    sumi_picture_size size;
} reference_window;

// Does the next piece of a resize. With *out_done workspace.first holds the window of the result, packed with the
// channels of the autoencoder's pictures.
static sumi_result resize_reference(sumi_engine* engine, sumi_plan_job* job, const sumi_resize_args* args,
                                    const reference_window* to, bool* out_done, sumi_error* error)
{
    sumi_pixels picture;
    SUMI_TRY(sumi_resize_advance(&engine->workspace, args, &job->progress.resize, &picture, error));
    *out_done = picture.data != NULL;
    if (!*out_done) return SUMI_OK;
    const int32_t width = to->size.width, height = to->size.height;
    const uint64_t bytes = (uint64_t)width * (uint64_t)height * (uint64_t)job->request.picture_channels;
    sumi_block* first = &engine->workspace.first;
    SUMI_TRY(sumi_block_reserve(&engine->heap, first, bytes, "a reference image", error));
    const sumi_pixels window = sumi_pixels_window(&picture, to->left, to->top, width, height);
    return sumi_picture_pack(&engine->heap, &window, job->request.picture_channels, first->data, error);
}

// Whether the autoencoder reads a reference as it is: it has the right size and channels, and no gaps. Those that prompts
// keep are, and so may be those that the host program gives.
static bool is_packed(const sumi_reference* reference, int32_t channels)
{
    const sumi_pixels* source = &reference->source;
    const sumi_picture_size read = reference->sizes.autoencoder, resized = reference->sizes.resized;
    return source->width == read.width && source->height == read.height && resized.width == read.width
        && resized.height == read.height && source->channel_count == channels
        && source->row_bytes == channels * source->width;
}

// Whether the picture before the vision tower is such a reference.
static bool is_seen_as_it_is(const sumi_reference* reference, int32_t channels)
{
    const sumi_picture_size read = reference->sizes.autoencoder, first = reference->sizes.first;
    return channels == 3 && is_packed(reference, channels) && first.width == read.width && first.height == read.height;
}

// Resizes a reference for the vision tower, unless workspace.first already holds it in that size or it is read as it
// is; then puts it in front of white, if it has alpha.
static sumi_result resize_before_vision(sumi_engine* engine, sumi_plan_job* job, const sumi_reference* reference,
                                        bool* out_done, sumi_error* error)
{
    const sumi_picture_size resized = reference->sizes.resized, read = reference->sizes.autoencoder,
                            first = reference->sizes.first;
    const int32_t channels = job->request.picture_channels;
    const bool keeps_alpha = channels == 4, is_cropped = read.width != resized.width || read.height != resized.height;
    if (is_seen_as_it_is(reference, channels)) return SUMI_OK;
    if (first.width != read.width || first.height != read.height || is_cropped || is_packed(reference, channels)) {
        const sumi_resize_args args = {&reference->source, first.width, first.height, SUMI_FILTER_LANCZOS, keeps_alpha};
        const reference_window whole = {.size = first};
        SUMI_TRY(resize_reference(engine, job, &args, &whole, out_done, error));
    }
    unsigned char* pixels = engine->workspace.first.data;
    if (*out_done && keeps_alpha) sumi_pixels_over_white(pixels, (size_t)first.width * (size_t)first.height, pixels);
    return SUMI_OK;
}

// The serial of the prompt that keeps the references; 0: the host program gave them.
static uint64_t keeper_of_references(const sumi_job_request* request)
{
    return request->references.are_of_prompt ? request->prompts[request->items[0].positive].source->serial : 0;
}

// Writes a reference as the autoencoder reads it; a prompt keeps it. keeper: as keeper_of_references; 0 after a resize.
static void put_reference(sumi_engine* engine, sumi_plan_job* job, int32_t index, const void* data, uint64_t keeper)
{
    const sumi_picture_size size = job->request.references.list[index].sizes.autoencoder;
    const sumi_value_part pixels = {.value = job->progress.entry->pipeline.reference_pixels[index],
                                    .count = (uint64_t)size.width * (uint64_t)size.height
                                           * (uint64_t)job->request.picture_channels};
    uint64_t* held = &engine->held_inputs.references[index];
    if (job->request.goal == SUMI_GOAL_PROMPTS) {
        memcpy(job->products.prompt->references[index], data, (size_t)pixels.count);
    } else if (!sumi_held_inputs_has(held, keeper)) {
        write_value(engine, job, &pixels, data);
        note_held(engine, job, pixels.value, held, keeper);
    }
}

// Does the next piece of one stage of a reference. The picture for the autoencoder and the picture before the vision
// tower use the same block; if both have the same size, the first is used for both. A reference that is read as it is
// needs none.
static sumi_result write_reference(sumi_engine* engine, sumi_plan_job* job, int32_t index, reference_stage stage,
                                   bool* out_done, sumi_error* error)
{
    SUMI_ASSERT(job->progress.entry != NULL && index >= 0 && index < job->request.references.count);
    const sumi_reference* reference = &job->request.references.list[index];
    const sumi_picture_size resized = reference->sizes.resized, read = reference->sizes.autoencoder,
                            first = reference->sizes.first, seen = reference->sizes.vision;
    const int32_t channels = job->request.picture_channels;
    sumi_workspace* workspace = &engine->workspace;
    const sumi_value vision = job->progress.entry->pipeline.vision_pixels[index];
    *out_done = true;
    if (stage != FOR_AUTOENCODER && vision.id == 0) return SUMI_OK; // no text is encoded, so the tower sees no picture
    if (stage == FOR_AUTOENCODER && is_packed(reference, channels)) {
        put_reference(engine, job, index, reference->source.data, keeper_of_references(&job->request));
        return SUMI_OK;
    }
    if (stage == FOR_AUTOENCODER) {
        const sumi_resize_args args = {&reference->source, resized.width, resized.height, SUMI_FILTER_LANCZOS,
                                       channels == 4};
        const reference_window window = {reference->sizes.left, reference->sizes.top, read};
        SUMI_TRY(resize_reference(engine, job, &args, &window, out_done, error));
        if (*out_done) put_reference(engine, job, index, workspace->first.data, 0);
        return SUMI_OK;
    }
    if (stage == BEFORE_VISION) return resize_before_vision(engine, job, reference, out_done, error);
    const void* seen_data = is_seen_as_it_is(reference, channels) ? reference->source.data : workspace->first.data;
    const sumi_pixels before = {seen_data, first.width, first.height, 3 * first.width, 3};
    const sumi_resize_args args = {&before, seen.width, seen.height, SUMI_FILTER_BICUBIC, false};
    sumi_pixels picture;
    SUMI_TRY(sumi_resize_advance(workspace, &args, &job->progress.resize, &picture, error));
    *out_done = picture.data != NULL;
    if (*out_done)
        write_value(engine, job,
                    &(sumi_value_part){.value = vision, .count = (uint64_t)seen.width * (uint64_t)seen.height * 3},
                    picture.data);
    return SUMI_OK;
}

// job->progress.cursor in phase INPUT: 0 texts, 1 the start, 2 the mask, then REFERENCE_STAGES numbers for each
// reference, then the pieces of the control nets (job_controls.h).
#define FIRST_REFERENCE_PIECE 3

sumi_result sumi_plan_job_write_input(sumi_engine* engine, sumi_job_slot* slot, bool* out_done, sumi_error* error)
{
    sumi_plan_job* job = &slot->u.plan_job;
    sumi_job_progress* progress = &job->progress;
    bool is_over = true;
    const int32_t reference_piece = progress->cursor - FIRST_REFERENCE_PIECE,
                  control_piece = reference_piece - REFERENCE_STAGES * job->request.references.count;
    engine->workspace.is_unpaced = is_unpaced(engine);
    if (progress->cursor == 0 && progress->moved_values == 0) write_ids_and_steps(engine, slot);
    if (progress->cursor == 0) write_features(engine, slot, job, &is_over);
    else if (progress->cursor == 1) SUMI_TRY(write_start(engine, job, &is_over, error));
    else if (progress->cursor == 2) SUMI_TRY(write_mask(engine, &slot->model->info, job, &is_over, error));
    else if (control_piece < 0)
        SUMI_TRY(write_reference(engine, job, reference_piece / REFERENCE_STAGES,
                                 (reference_stage)(reference_piece % REFERENCE_STAGES), &is_over, error));
    else SUMI_TRY(sumi_control_inputs_write(engine, job, control_piece, &is_over, error));
    if (is_over) progress->cursor++;
    *out_done = progress->cursor >= FIRST_REFERENCE_PIECE + REFERENCE_STAGES * job->request.references.count
                                        + sumi_control_inputs_pieces(job);
    return SUMI_OK;
}

// ---- Noise ----------------------------------------------------------------------------------------------------------

// Values per piece of noise; a piece takes a few dozen microseconds. The noise of torch on CUDA needs sines in double
// precision, so its pieces are smaller.
#define NOISE_VALUES (16 * 1024)
#define NOISE_VALUES_CUDA (2 * 1024)

static size_t noise_piece(const sumi_engine* engine, const sumi_plan_job* job)
{
    const size_t count = sumi_plan_job_latent_values(job), factor = is_unpaced(engine) ? SUMI_UNPACED_FACTOR : 1,
                 piece = factor * (job->request.noise == SUMI_NOISE_TORCH_CUDA ? NOISE_VALUES_CUDA : NOISE_VALUES);
    // If the number of values is not a multiple of 16, torch draws the last values of a call differently, so such noise
    // is drawn in one piece.
    return count % 16 != 0 || piece > count ? count : piece;
}

size_t sumi_plan_job_noise_values(const sumi_plan_job* job)
{
    return sumi_plan_job_latent_values(job)
         * ((sumi_plan_job_draws_posterior(job) ? 1 : 0) + (job->request.goal == SUMI_GOAL_IMAGES ? 1 : 0));
}

// Each item has its own generator, seeded with the item's noise_seed. The generator draws the posterior's noise first and the
// main noise second, in the order of the reference.
sumi_result sumi_plan_job_write_noise(sumi_engine* engine, sumi_plan_job* job, bool* out_done, sumi_error* error)
{
    sumi_job_progress* progress = &job->progress;
    const sumi_job_request* request = &job->request;
    SUMI_ASSERT(progress->cursor >= 0 && progress->cursor < progress->batch_count);
    const sumi_pipeline* pipeline = &progress->entry->pipeline;
    const size_t count = sumi_plan_job_latent_values(job), item = (size_t)(progress->batch_begin + progress->cursor);
    const bool samples = sumi_plan_job_draws_posterior(job), is_cuda = request->noise == SUMI_NOISE_TORCH_CUDA,
               is_posterior = samples && progress->drawn_values < count;
    const size_t total = sumi_plan_job_noise_values(job),
                 offset = samples && !is_posterior ? progress->drawn_values - count : progress->drawn_values;
    *out_done = progress->drawn_values >= total;
    if (*out_done) return SUMI_OK;
    if (progress->drawn_values == 0 && is_cuda)
        sumi_torch_cuda_seed(&progress->generator.cuda, request->items[item].noise_seed, request->multiprocessors,
                             request->threads_per_multiprocessor);
    else if (progress->drawn_values == 0)
        sumi_torch_cpu_seed(&progress->generator.cpu, request->items[item].noise_seed);

    const float* source = is_posterior                       ? request->start_noise
                        : request->noise == SUMI_NOISE_GIVEN ? request->noise_values + item * count
                                                             : NULL;
    const size_t most = noise_piece(engine, job), piece = most < count - offset ? most : count - offset;
    SUMI_ASSERT(piece > 0 && offset + piece <= count);
    SUMI_TRY(sumi_block_reserve(&engine->heap, &engine->workspace.values, piece * sizeof(float), "noise", error));
    float* values = engine->workspace.values.data;
    if (source == NULL && is_cuda) {
        sumi_torch_cuda_randn_range(&progress->generator.cuda, values, count, offset, piece);
        if (offset + piece == count) sumi_torch_cuda_skip(&progress->generator.cuda, count);
    } else if (source == NULL) {
        sumi_torch_cpu_randn(&progress->generator.cpu, values, piece);
    }
    write_value(engine, job,
                &(sumi_value_part){.value = is_posterior                 ? pipeline->eps
                                          : sumi_plan_job_has_start(job) ? pipeline->noise
                                                                         : pipeline->x,
                                   .first = ((size_t)progress->cursor * count + offset) * sizeof(float),
                                   .count = piece * sizeof(float)},
                source != NULL ? source + offset : values);
    progress->drawn_values += piece;
    SUMI_ASSERT(progress->drawn_values <= total);
    *out_done = progress->drawn_values >= total;
    return SUMI_OK;
}

double sumi_plan_job_noise_us(const sumi_engine* engine, const sumi_plan_job* job)
{
    return engine->overhead_us[SUMI_OVERHEAD_NOISE]
         * (double)((sumi_plan_job_noise_values(job) + noise_piece(engine, job) - 1) / noise_piece(engine, job));
}
