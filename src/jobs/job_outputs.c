#include "jobs/job_outputs.h"
#include "base/assert.h"
#include "base/dtype.h"
#include "base/pixel_formats.h"
#include "base/platform.h"
#include "base/result.h"
#include "base/workers.h"
#include "jobs/buffers.h"
#include "jobs/engine_state.h"
#include "jobs/job.h"
#include "jobs/objects.h"
#include "jobs/plan_cache.h"
#include "jobs/plan_job.h"
#include "jobs/prompt.h"
#include "models/limits.h"
#include "models/network.h"
#include "models/pipeline.h"
#include "pacing/frame_limits.h"
#include "pictures/pixels.h"
#include "plan/async.h"
#include "plan/ops.h"
#include "plan/plan.h"
#include "plan/runner.h"
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static uint64_t picture_bytes(const sumi_plan_job* job, const sumi_job_item* item)
{
    if (sumi_job_item_has_device_target(item)) return 0;
    return (uint64_t)job->request.width * (uint64_t)job->request.height
         * (uint64_t)sumi_format_bytes(item->target.format);
}

static void pack_products(sumi_packer* packer, sumi_plan_job* job)
{
    const sumi_job_request* request = &job->request;
    if (request->goal == SUMI_GOAL_PROMPTS) return;
    job->products.latents =
        sumi_pack(packer, NULL, (uint64_t)request->item_count * sumi_plan_job_latent_values(job) * sizeof(float));
    for (int32_t i = 0; i < request->control_count; i++) {
        const sumi_job_control* control = &request->controls[i];
        if (!sumi_job_control_has_picture(&control->pictures[0])) continue;
        job->products.control_pictures[i] = sumi_pack(
            packer, NULL, (uint64_t)control->picture_count * (uint64_t)request->width * (uint64_t)request->height * 3);
    }
    if (request->preview_every > 0) {
        for (int i = 0; i < 2; i++)
            job->products.previews[i] =
                sumi_pack(packer, NULL, (uint64_t)request->item_count * sumi_plan_job_preview_size(job) * 4);
    }
    for (int32_t i = 0; i < request->item_count && request->goal == SUMI_GOAL_IMAGES; i++) {
        if (request->items[i].target.host_memory != NULL)
            request->items[i].pixels = sumi_pack(packer, NULL, picture_bytes(job, &request->items[i]));
    }
}

uint64_t sumi_plan_job_image_bytes(const sumi_plan_job* job)
{
    sumi_plan_job measured = *job; // a copy, because packing sets pointers of the job, to NULL while it measures
    sumi_packer packer = {NULL, 0};
    if (job->request.goal == SUMI_GOAL_IMAGES && job->request.items == NULL) return 0;
    pack_products(&packer, &measured);
    uint64_t bytes = packer.used;
    for (int32_t i = 0; i < job->request.item_count && job->request.goal == SUMI_GOAL_IMAGES; i++) {
        if (job->request.items[i].target.host_memory == NULL) bytes += picture_bytes(job, &job->request.items[i]);
    }
    return bytes;
}

_Static_assert(SUMI_MAX_LORAS*(SUMI_LORA_NAME_BYTES + 20) < SUMI_PROMPT_ADAPTERS_BYTES, "all adapters of a prompt");

// Writes the adapters that change the features: "NAME:SCALE, NAME:SCALE".
static void list_adapters(const sumi_job_request* request, char into[SUMI_PROMPT_ADAPTERS_BYTES])
{
    size_t used = 0;
    into[0] = '\0';
    for (int32_t i = 0; i < request->lora_count; i++) {
        used += (size_t)snprintf(into + used, SUMI_PROMPT_ADAPTERS_BYTES - used, "%s%s:%g", i > 0 ? ", " : "",
                                 request->loras[i]->name, (double)request->lora_text_scales[i]);
    }
}

sumi_result sumi_plan_job_reserve_products(sumi_engine* engine, sumi_job_slot* slot, sumi_error* error)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    sumi_plan_job* job = &slot->u.plan_job;
    const sumi_job_request* request = &job->request;
    const size_t previous_bytes = slot->products.bytes;
    sumi_packer packer = {NULL, 0};
    pack_products(&packer, job);
    sumi_result result = sumi_block_reserve(&engine->heap, &slot->products, packer.used, "finished images", error);
    atomic_fetch_add(&engine->memory.image_bytes, slot->products.bytes);
    atomic_fetch_sub(&engine->memory.image_bytes, previous_bytes);
    SUMI_TRY(result);
    packer = (sumi_packer){slot->products.data, 0};
    pack_products(&packer, job);

    for (int32_t i = 0; i < request->item_count && request->goal == SUMI_GOAL_IMAGES; i++) {
        sumi_job_item* item = &request->items[i];
        // A picture is there already if the job has returned to phase PLAN, for its next batch or after a shortage.
        if (item->target.host_memory != NULL || sumi_job_item_has_device_target(item) || item->picture != NULL)
            continue;
        SUMI_TRY(sumi_picture_take(engine, (size_t)picture_bytes(job, item), &item->picture, error));
        item->pixels = item->picture->pixels;
    }
    if (request->goal == SUMI_GOAL_PROMPTS && job->products.prompt == NULL) {
        const sumi_network_info* info = &slot->model->info;
        int32_t rows[SUMI_MAX_TEXT_ENCODERS];
        char adapters[SUMI_PROMPT_ADAPTERS_BYTES];
        for (int32_t e = 0; e < info->text_encoder_count; e++)
            rows[e] = sumi_network_feature_rows(slot->model->network, e, request->prompts[0].token_count[e]);
        sumi_prompt_shape shape = {.family = info->family,
                                   .encoder_count = info->text_encoder_count,
                                   .token_count = rows,
                                   .width = info->feature_width,
                                   .reference_count = request->references.count,
                                   .picture_channels = request->picture_channels,
                                   .adapters = adapters};
        list_adapters(request, adapters);
        for (int32_t i = 0; i < shape.reference_count; i++) {
            const sumi_reference_sizes* sizes = &request->references.list[i].sizes;
            const int32_t token = request->prompts[0].picture_row[i];
            shape.references[i] = sizes->autoencoder;
            if (info->prompts_place_references)
                shape.places[i] =
                    (sumi_reference_place){sumi_network_feature_row(slot->model->network, 0, token), sizes->tokens};
        }
        SUMI_TRY(sumi_prompt_create(engine, &shape, &job->products.prompt, error));
        // At the job's end it has what read_features reads.
        job->products.prompt->has_halves = job->products.prompt->halves[0] != NULL;
        job->products.prompt->has_features = !job->products.prompt->has_halves;
    }
    return SUMI_OK;
}

// ---- Submitted after the last slice ---------------------------------------------------------------------------------

static void read_value(sumi_engine* engine, const sumi_plan_job* job, const sumi_value_part* bytes, void* into)
{
    engine->runner->functions->read(engine->runner, &job->progress.entry->plan, bytes->value, bytes->first, into,
                                    bytes->count);
}

sumi_result sumi_plan_job_fetch_value(sumi_engine* engine, const sumi_plan_job* job, sumi_value value,
                                      sumi_error* error)
{
    SUMI_ASSERT(job->progress.entry != NULL);
    if (value.id == 0) return SUMI_OK;
    return engine->runner->async->start_read(engine->runner, &job->progress.entry->plan, value, error);
}

// Whether the device makes four bytes of a pixel out of three, or puts them into another order. On the CPU the
// conversion would take longer than the copy from the device.
static bool converts_on_device(const sumi_engine* engine, const sumi_plan_job* job, const sumi_job_item* item)
{
    const sumi_format format = item->target.format;
    return engine->runner->traits.has_device && !sumi_job_item_has_device_target(item)
        && (format == SUMI_FORMAT_BGRA8 || (format == SUMI_FORMAT_RGBA8 && job->request.picture_channels == 3));
}

// The byte offset of an item's converted picture in the plan's value `picture`. It overwrites the item's activations,
// which are not read after the value `bytes` was computed from them.
static uint64_t converted_offset(const sumi_plan_job* job, int32_t item)
{
    SUMI_ASSERT(item >= job->progress.batch_begin && item < job->progress.batch_begin + job->progress.batch_count);
    return (uint64_t)(item - job->progress.batch_begin) * (uint64_t)job->request.width * (uint64_t)job->request.height
         * (uint64_t)job->request.picture_channels * (uint64_t)job->progress.entry->plan.activation_bytes;
}

// Submits conversions of pictures to formats that the plan does not write, and copies of pictures to device memory of
// the host program.
sumi_result sumi_plan_job_publish_pictures(sumi_engine* engine, sumi_plan_job* job, sumi_error* error)
{
    sumi_job_progress* progress = &job->progress;
    const sumi_job_request* request = &job->request;
    SUMI_ASSERT(progress->batch_begin + progress->batch_count <= request->item_count);
    const sumi_pipeline* pipeline = &progress->entry->pipeline;
    const uint64_t pixels = (uint64_t)request->width * (uint64_t)request->height;
    for (int32_t i = 0; i < progress->batch_count; i++) {
        const sumi_job_item* item = &request->items[progress->batch_begin + i];
        const sumi_target* target = &item->target;
        if (!sumi_job_item_has_device_target(item) && !converts_on_device(engine, job, item)) continue;
        const bool is_given = sumi_job_item_has_device_target(item) && target->row_bytes != 0,
                   is_upward = sumi_job_item_has_device_target(item) && target->bottom_up;
        const uint64_t row =
            (uint64_t)(is_given ? target->row_bytes : request->width * sumi_format_bytes(target->format));
        const sumi_publication picture = {
            .value = sumi_format_is_float(target->format) ? pipeline->picture : pipeline->bytes,
            .first_pixel = (uint64_t)i * pixels,
            .width = request->width,
            .height = request->height,
            .format = target->format,
            .address = target->device_address + (is_upward ? (uint64_t)(request->height - 1) * row : 0),
            .into = pipeline->picture,
            .into_offset = converted_offset(job, progress->batch_begin + i),
            .row_bytes = is_upward ? 0 - row : row,
            .event = target->event,
            .import = target->external != NULL ? &target->external->import : NULL};
        progress->is_publishing = progress->is_publishing || sumi_job_item_has_device_target(item);
        SUMI_TRY(engine->runner->async->publish(engine->runner, &progress->entry->plan, &picture, error));
    }
    return SUMI_OK;
}

sumi_result sumi_plan_job_fetch_products(sumi_engine* engine, const sumi_plan_job* job, sumi_error* error)
{
    const sumi_pipeline* pipeline = &job->progress.entry->pipeline;
    if (job->request.goal == SUMI_GOAL_ENCODE) return sumi_plan_job_fetch_value(engine, job, pipeline->clean, error);
    if (job->request.goal == SUMI_GOAL_PROMPTS) {
        for (int32_t e = 0; e < job->products.prompt->encoder_count; e++)
            SUMI_TRY(sumi_plan_job_fetch_value(engine, job, pipeline->features[0][e].value, error));
        return SUMI_OK;
    }
    bool has_picture = false, has_bytes = false;
    for (int32_t i = job->progress.batch_begin; i < job->progress.batch_begin + job->progress.batch_count; i++) {
        const bool is_picture = sumi_format_is_float(job->request.items[i].target.format)
                             || converts_on_device(engine, job, &job->request.items[i]);
        if (sumi_job_item_has_device_target(&job->request.items[i])) continue;
        has_picture = has_picture || is_picture;
        has_bytes = has_bytes || !is_picture;
    }
    SUMI_TRY(sumi_plan_job_fetch_value(engine, job, pipeline->x, error));
    SUMI_TRY(sumi_plan_job_fetch_value(engine, job, pipeline->not_finite, error));
    if (has_bytes) SUMI_TRY(sumi_plan_job_fetch_value(engine, job, pipeline->bytes, error));
    return has_picture ? sumi_plan_job_fetch_value(engine, job, pipeline->picture, error) : SUMI_OK;
}

// Makes each pixel of a picture `scale` pixels high and wide, in place. width: of the result. From the last pixel to the
// first, because a pixel never lies after those that it becomes.
static void enlarge(unsigned char* rgba, size_t size, size_t width, size_t scale)
{
    for (size_t i = size; i-- > 0 && scale > 1;)
        memmove(rgba + 4 * i, rgba + 4 * (i / width / scale * (width / scale) + i % width / scale), 4);
}

// Fills the preview buffer that sumi_job_preview does not read, then exchanges the two buffers under `state_lock`.
sumi_result sumi_plan_job_publish_preview(sumi_engine* engine, sumi_job_slot* slot, sumi_error* error)
{
    sumi_plan_job* job = &slot->u.plan_job;
    sumi_job_products* products = &job->products;
    sumi_job_progress* progress = &job->progress;
    SUMI_ASSERT(progress->batch_begin + progress->batch_count <= job->request.item_count);
    SUMI_ASSERT(job->request.preview_every > 0 && (products->preview_front == 0 || products->preview_front == 1));
    const size_t size = sumi_plan_job_preview_size(job), scale = (size_t)slot->model->info.preview_scale,
                 given = size / (scale * scale);
    const uint64_t bytes = (uint64_t)progress->batch_count * 3 * given * sizeof(float);
    SUMI_TRY(sumi_block_reserve(&engine->heap, &engine->workspace.values, bytes, "a preview", error));
    const float* rgb = engine->workspace.values.data;
    read_value(engine, job, &(sumi_value_part){.value = progress->entry->pipeline.preview, .count = bytes},
               engine->workspace.values.data);
    const int32_t back = 1 - products->preview_front;
    // The previews of items in other batches are kept.
    if (progress->batch_count < job->request.item_count)
        memcpy(products->previews[back], products->previews[products->preview_front],
               (size_t)job->request.item_count * size * 4);
    unsigned char* to = products->previews[back] + (size_t)progress->batch_begin * size * 4;
    for (int32_t i = 0; i < progress->batch_count; i++, to += 4 * size) {
        sumi_planes_to_rgba(rgb + 3 * given * (size_t)i, given, to);
        enlarge(to, size, (size_t)(job->request.width / SUMI_PREVIEW_FACTOR), scale);
    }
    sumi_mutex_lock(&engine->state_lock);
    products->preview_front = back;
    slot->status.preview_version++;
    sumi_mutex_unlock(&engine->state_lock);
    return SUMI_OK;
}

// ---- After the run --------------------------------------------------------------------------------------------------

static size_t count_not_finite(const float* values, size_t count)
{
    size_t bad = 0;
    for (size_t i = 0; i < count; i++) bad += !isfinite(values[i]);
    return bad;
}

#define MOST_HALVES 4096 // the count of those that are not finite fits 16 bits, and so the loop fills vectors with it

static size_t count_not_finite_bf16(const uint16_t* halves, size_t count)
{
    SUMI_ASSERT(count <= MOST_HALVES);
    uint16_t bad = 0;
    for (size_t i = 0; i < count; i++) bad = (uint16_t)(bad + !sumi_bf16_is_finite(halves[i]));
    return bad;
}

// Elements of bfloat16 that are read as they are or as float32, in chunks of 8 KiB, which stay in the L1 cache while
// they are read, looked through and converted.
typedef struct halves_to_read {
    sumi_engine* engine;
    const sumi_plan_job* job;
    const sumi_value_part* elements;
    float* into;
    uint16_t* into_halves; // instead of `into`, if this is not NULL
    atomic_size_t bad;     // not finite
} halves_to_read;

static void read_halves(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    (void)worker_index;
    halves_to_read* all = context;
    uint16_t between[MOST_HALVES];
    for (int32_t chunk = begin; chunk < end; chunk++) {
        const size_t at = (size_t)chunk * MOST_HALVES, left = (size_t)all->elements->count - at,
                     count = left < MOST_HALVES ? left : MOST_HALVES;
        uint16_t* halves = all->into_halves != NULL ? all->into_halves + at : between;
        const sumi_value_part part = {
            .value = all->elements->value, .first = (all->elements->first + at) * 2, .count = count * 2};
        read_value(all->engine, all->job, &part, halves);
        const size_t bad = count_not_finite_bf16(halves, count);
        if (bad > 0) atomic_fetch_add(&all->bad, bad);
        if (all->into != NULL) sumi_dtype_to_float(SUMI_DTYPE_BF16, halves, all->into + at, count);
    }
}

static void read_later_halves(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    read_halves(begin + 1, end + 1, worker_index, context);
}

// A chunk takes 2 us, and to wake a worker takes 50: in frames they are left alone.
#define LEAST_CHUNKS 8

// Reads elements of bfloat16. Returns how many are not finite.
static size_t read_all_halves(halves_to_read* all)
{
    sumi_engine* engine = all->engine;
    SUMI_ASSERT(all->job->progress.entry->plan.activation_bytes == 2
                && (all->into != NULL) != (all->into_halves != NULL));
    const int32_t chunks = (int32_t)((all->elements->count + MOST_HALVES - 1) / MOST_HALVES);
    // After the first read of a value the workers may read others of its bytes (runner.h).
    read_halves(0, chunks < 1 ? chunks : 1, 0, all);
    const int32_t least = sumi_frame_limits_are_paced(&engine->frame) ? chunks : LEAST_CHUNKS;
    sumi_parallel(engine->workers, chunks - 1, least, read_later_halves, all);
    return atomic_load(&all->bad);
}

// Reads elements of activations as float32. Returns how many are not finite.
static size_t read_activations(sumi_engine* engine, const sumi_plan_job* job, const sumi_value_part* elements,
                               float* into)
{
    const uint64_t first = elements->first;
    const size_t count = (size_t)elements->count;
    if (job->progress.entry->plan.activation_bytes != 4)
        return read_all_halves(&(halves_to_read){.engine = engine, .job = job, .elements = elements, .into = into});
    read_value(engine, job, &(sumi_value_part){.value = elements->value, .first = first * 4, .count = count * 4}, into);
    return count_not_finite(into, count);
}

typedef struct picture_rows {
    int32_t item;
    int32_t first, count;
} picture_rows;

// Pixels of the plan's values `bytes` and `picture`.
typedef struct pixel_range {
    uint64_t first;
    size_t count;
} pixel_range;

#define PIECE_PIXELS 512 // that are converted on the stack at once

// Reads pixels of 8 bits with `channels` values. If the plan's have one more, alpha, it is left out.
static void read_bytes(sumi_engine* engine, const sumi_plan_job* job, pixel_range range, size_t channels,
                       unsigned char* into)
{
    const size_t stored = (size_t)job->request.picture_channels;
    SUMI_ASSERT(channels == stored || (channels == 3 && stored == 4));
    sumi_value_part part = {
        .value = job->progress.entry->pipeline.bytes, .first = range.first * stored, .count = range.count * stored};
    if (channels == stored) {
        read_value(engine, job, &part, into);
        return;
    }
    unsigned char rgba[4 * PIECE_PIXELS];
    for (size_t done = 0, piece; done < range.count; done += piece, part.first += part.count) {
        piece = range.count - done < PIECE_PIXELS ? range.count - done : PIECE_PIXELS;
        part.count = 4 * piece;
        read_value(engine, job, &part, rgba);
        for (size_t i = 0; i < piece; i++, into += 3) memcpy(into, rgba + 4 * i, 3);
    }
}

// Reads pixels as four bytes. Those of three are read into the last three quarters of `pixels`, then widened from the
// front: the read position stays ahead of the write position.
static void read_four_bytes(sumi_engine* engine, const sumi_plan_job* job, pixel_range range, bool is_bgra,
                            unsigned char* pixels)
{
    const size_t channels = (size_t)job->request.picture_channels;
    const unsigned char* from = pixels + (4 - channels) * range.count;
    read_bytes(engine, job, range, channels, pixels + (4 - channels) * range.count);
    if (channels == 4 && !is_bgra) return;
    for (size_t i = 0; i < range.count; i++, from += channels, pixels += 4) {
        const unsigned char r = from[0], g = from[1], b = from[2], alpha = channels == 4 ? from[3] : 255;
        pixels[0] = is_bgra ? b : r, pixels[1] = g, pixels[2] = is_bgra ? r : b, pixels[3] = alpha;
    }
}

// From 0 to 1; NaN gives 0, as on a GPU.
static float clamp_alpha(float alpha) { return alpha > 0.0f ? alpha < 1.0f ? alpha : 1.0f : 0.0f; }

// Reads pixels as half floats with alpha, or as floats without. Colours are not clamped.
static void read_unrounded(sumi_engine* engine, const sumi_plan_job* job, pixel_range range, uint16_t* halves,
                           float* floats)
{
    const size_t channels = (size_t)job->request.picture_channels;
    float values[4 * PIECE_PIXELS];
    for (size_t done = 0, piece; done < range.count; done += piece) {
        piece = range.count - done < PIECE_PIXELS ? range.count - done : PIECE_PIXELS;
        const sumi_value_part part = {.value = job->progress.entry->pipeline.picture,
                                      .first = (range.first + done) * channels,
                                      .count = piece * channels};
        (void)read_activations(engine, job, &part, values);
        for (size_t i = 0; i < piece; i++) {
            const float* pixel = values + channels * i;
            for (int c = 0; c < 3 && floats != NULL; c++) *floats++ = pixel[c] * 0.5f + 0.5f;
            if (halves == NULL) continue;
            for (int c = 0; c < 3; c++) *halves++ = sumi_float_to_f16(pixel[c] * 0.5f + 0.5f);
            *halves++ = sumi_float_to_f16(channels == 4 ? clamp_alpha(pixel[3] * 0.5f + 0.5f) : 1.0f);
        }
    }
}

// Reads rows of an item's picture in the target's format.
static void read_rows(sumi_engine* engine, const sumi_plan_job* job, picture_rows rows, unsigned char* pixels)
{
    const int32_t item = rows.item;
    const sumi_pipeline* pipeline = &job->progress.entry->pipeline;
    const size_t width = (size_t)job->request.width, from = width * (size_t)rows.first;
    const pixel_range range = {(uint64_t)(item - job->progress.batch_begin) * width * (uint64_t)job->request.height
                                   + from,
                               width * (size_t)rows.count};
    const sumi_format format = job->request.items[item].target.format;
    void* values = pixels; // aligned for the format: memory of sumi
    if (format == SUMI_FORMAT_RGB8) {
        read_bytes(engine, job, range, 3, pixels);
    } else if (format == SUMI_FORMAT_RGB32F && job->request.picture_channels == 3) {
        float* floats = values;
        const sumi_value_part part = {.value = pipeline->picture, .first = range.first * 3, .count = range.count * 3};
        (void)read_activations(engine, job, &part, floats);
        for (size_t i = 0; i < range.count * 3; i++) floats[i] = floats[i] * 0.5f + 0.5f;
    } else if (format == SUMI_FORMAT_RGB32F) {
        read_unrounded(engine, job, range, NULL, values);
    } else if (format == SUMI_FORMAT_RGBA16F) {
        read_unrounded(engine, job, range, values, NULL);
    } else if (converts_on_device(engine, job, &job->request.items[item])) {
        const sumi_value_part part = {
            .value = pipeline->picture, .first = converted_offset(job, item) + from * 4, .count = range.count * 4};
        read_value(engine, job, &part, pixels);
    } else {
        read_four_bytes(engine, job, range, format == SUMI_FORMAT_BGRA8, pixels);
    }
}

// Reads rows to their places in the item's picture in host memory. Its rows have no gaps; with bottom_up the last row
// comes first.
static void read_picture(sumi_engine* engine, const sumi_plan_job* job, picture_rows rows)
{
    SUMI_ASSERT(rows.item >= job->progress.batch_begin
                && rows.item < job->progress.batch_begin + job->progress.batch_count);
    SUMI_ASSERT(rows.first >= 0 && rows.count >= 1 && rows.first + rows.count <= job->request.height);
    SUMI_ASSERT(job->request.items[rows.item].pixels != NULL);
    const sumi_target* target = &job->request.items[rows.item].target;
    const size_t row_bytes = (size_t)job->request.width * (size_t)sumi_format_bytes(target->format);
    unsigned char* pixels = job->request.items[rows.item].pixels;
    if (!target->bottom_up) read_rows(engine, job, rows, pixels + (size_t)rows.first * row_bytes);
    for (int32_t r = rows.first; r < rows.first + rows.count && target->bottom_up; r++)
        read_rows(engine, job, (picture_rows){.item = rows.item, .first = r, .count = 1},
                  pixels + (size_t)(job->request.height - 1 - r) * row_bytes);
}

static sumi_result check_finite(size_t bad, size_t count, const char* what, sumi_error* error)
{
    if (bad == 0) return SUMI_OK;
    return sumi_fail(error, SUMI_NOT_FINITE,
                     "%zu of %zu values of %s are NaN or infinite: the weights or an adapter are damaged", bad, count,
                     what);
}

#define PAGE_BYTES 4096

bool sumi_plan_job_touch_features(sumi_plan_job* job)
{
    SUMI_ASSERT(job->progress.phase == SUMI_PHASE_RUN && job->request.goal == SUMI_GOAL_PROMPTS);
    const sumi_prompt* prompt = job->products.prompt;
    size_t before = 0;
    for (int32_t e = 0; e < prompt->encoder_count; e++) {
        const size_t count = sumi_prompt_value_count(prompt, e), moved = job->progress.moved_values - before;
        if (moved < count) {
            const size_t end = count - moved < SUMI_FEATURE_PIECE_VALUES ? count : moved + SUMI_FEATURE_PIECE_VALUES,
                         bytes = prompt->halves[e] != NULL ? sizeof(uint16_t) : sizeof(float);
            unsigned char* elements = (unsigned char*)prompt->features[e];
            if (prompt->halves[e] != NULL) elements = (unsigned char*)prompt->halves[e];
            for (size_t i = moved * bytes; i < end * bytes; i += PAGE_BYTES) elements[i] = 0;
            job->progress.moved_values = before + end;
            return true;
        }
        before += count;
    }
    return false;
}

// Reads the next piece of the encoded features into the prompt object, as the device has them. Where no call has a
// budget the workers share a piece.
static sumi_result read_features(sumi_engine* engine, sumi_plan_job* job, bool* out_done, sumi_error* error)
{
    const sumi_pipeline* pipeline = &job->progress.entry->pipeline;
    sumi_prompt* prompt = job->products.prompt;
    size_t before = 0;
    for (int32_t e = 0; e < prompt->encoder_count; e++) {
        const size_t width = (size_t)prompt->width[e], count = sumi_prompt_value_count(prompt, e);
        if (job->progress.moved_values < before + count) {
            const size_t most = SUMI_FEATURE_PIECE_VALUES
                              * (sumi_frame_limits_are_paced(&engine->frame) ? 1 : 4 * SUMI_UNPACED_FACTOR),
                         offset = job->progress.moved_values - before,
                         piece = count - offset < most ? count - offset : most;
            const sumi_value_part elements = {.value = pipeline->features[0][e].value,
                                              .first = (uint64_t)pipeline->features[0][e].row * width + offset,
                                              .count = piece};
            const size_t bad = prompt->halves[e] == NULL
                                 ? read_activations(engine, job, &elements, prompt->features[e] + offset)
                                 : read_all_halves(&(halves_to_read){.engine = engine,
                                                                     .job = job,
                                                                     .elements = &elements,
                                                                     .into_halves = prompt->halves[e] + offset});
            job->progress.moved_values += piece;
            *out_done = offset + piece == count && e + 1 == prompt->encoder_count;
            return check_finite(bad, piece, "the prompt's features", error);
        }
        before += count;
    }
    *out_done = true;
    return SUMI_OK;
}

// Reads an item's latents. For the first item of a batch of pictures it also reads the plan's count of values that are
// not finite, which covers the whole batch.
static sumi_result read_item(sumi_engine* engine, const sumi_job_slot* slot, int32_t index, sumi_error* error)
{
    const sumi_plan_job* job = &slot->u.plan_job;
    const sumi_job_request* request = &job->request;
    SUMI_ASSERT(request->goal != SUMI_GOAL_PROMPTS && index >= job->progress.batch_begin
                && index < request->item_count);
    const sumi_pipeline* pipeline = &job->progress.entry->pipeline;
    const size_t count = sumi_plan_job_latent_values(job);
    float* latents = job->products.latents + (size_t)index * count;
    read_value(engine, job,
               &(sumi_value_part){.value = request->goal == SUMI_GOAL_ENCODE ? pipeline->clean : pipeline->x,
                                  .first = (uint64_t)(index - job->progress.batch_begin) * count * sizeof(float),
                                  .count = count * sizeof(float)},
               latents);
    if (request->goal == SUMI_GOAL_ENCODE)
        return check_finite(count_not_finite(latents, count), count, "the latents", error);
    if (index == job->progress.batch_begin) {
        int32_t bad = 0;
        read_value(engine, job, &(sumi_value_part){.value = pipeline->not_finite, .count = sizeof bad}, &bad);
        if (bad != 0) {
            const bool is_given =
                request->noise_values != NULL || request->start_latents != NULL || request->start_noise != NULL;
            return sumi_fail(error, SUMI_NOT_FINITE,
                             "%d of %lld values of the images are NaN or infinite: the weights or an adapter are "
                             "damaged, or a scale is far too large%s",
                             (int)bad,
                             (long long)job->progress.batch_count * request->width * request->height
                                 * request->picture_channels,
                             is_given ? ", or so are values of the noise or the latents that were given" : "");
        }
    }
    return SUMI_OK;
}

// Pixels per piece of output. Copying a piece takes a few dozen microseconds, and three times as long where the
// CPU converts the format.
#define OUTPUT_PIXELS (32 * 1024)

static int32_t output_rows(const sumi_plan_job* job)
{
    return OUTPUT_PIXELS / job->request.width > 1 ? OUTPUT_PIXELS / job->request.width : 1;
}

sumi_result sumi_plan_job_read_output(sumi_engine* engine, const sumi_job_slot* slot, sumi_plan_job* job,
                                      bool* out_done, sumi_error* error)
{
    sumi_job_progress* progress = &job->progress;
    if (job->request.goal == SUMI_GOAL_PROMPTS) return read_features(engine, job, out_done, error);
    SUMI_ASSERT(progress->row >= 0 && progress->row < job->request.height);
    const int32_t item = progress->batch_begin + progress->cursor;
    if (progress->row == 0) SUMI_TRY(read_item(engine, slot, item, error));
    if (job->request.goal == SUMI_GOAL_IMAGES && !sumi_job_item_has_device_target(&job->request.items[item])) {
        const int32_t remaining_rows = job->request.height - progress->row,
                      rows = output_rows(job) < remaining_rows ? output_rows(job) : remaining_rows;
        read_picture(engine, job, (picture_rows){.item = item, .first = progress->row, .count = rows});
        progress->row += rows;
        if (progress->row < job->request.height) return SUMI_OK;
        progress->row = 0;
    }
    *out_done = ++progress->cursor >= progress->batch_count;
    return SUMI_OK;
}

double sumi_plan_job_output_us(const sumi_engine* engine, const sumi_plan_job* job)
{
    int32_t pieces = 1;
    for (int32_t i = 0; i < job->request.item_count && job->request.goal == SUMI_GOAL_IMAGES; i++) {
        if (!sumi_job_item_has_device_target(&job->request.items[i]))
            pieces = (job->request.height + output_rows(job) - 1) / output_rows(job);
    }
    return engine->overhead_us[SUMI_OVERHEAD_OUTPUT] * pieces;
}
