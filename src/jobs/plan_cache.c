#include "jobs/plan_cache.h"
#include "base/assert.h"
#include "base/memory.h"
#include "base/platform.h"
#include "base/result.h"
#include "jobs/buffers.h"
#include "jobs/engine_state.h"
#include "jobs/objects.h"
#include "jobs/plan_key.h"
#include "models/network.h"
#include "models/pipeline.h"
#include "pacing/frame_limits.h"
#include "pacing/shortage_limit.h"
#include "plan/ops.h"
#include "plan/plan.h"
#include "plan/runner.h"
#include "plan/weight.h"
#include <stdio.h>
#include <string.h>

// Slices that are whole ops are gathered up to this predicted time, because submitting one slice takes about 20 us of
// this thread and a step of a large model has hundreds of ops.
#define GATHERED_US 4000
// Where no call has a budget, slices are submitted as groups of this predicted time: a group takes as much of this
// thread as a slice. It is a little less than may always be submitted at once (frame_limits.h), because the same slices
// do not take the same time in every step.
#define GROUPED_US 14000
#define LONG_GROUP_US (SUMI_SUBMITTED_SHARE * SUMI_MAX_PENDING_US) // what may always be submitted at once
// A plan that would have more groups than this has groups of two or four times the time: the graphs of all plans
// together have a limit (cuda/graphs.h), and slices without one are launched op by op. Such a plan has long steps, of
// which more may be submitted at once.
#define MAX_GROUPS 256

// ---- Requests -------------------------------------------------------------------------------------------------------

// Of the job that runs.
static sumi_plan_inputs inputs_now(const sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    sumi_plan_inputs inputs = {.memory_limit = sumi_engine_memory_limit(engine),
                               .host_limit = engine->memory.host_limit,
                               .slice_us = engine->frame.slice_us};
    memcpy(inputs.op_ratio, engine->cache.op_ratio, sizeof inputs.op_ratio);
    return inputs;
}

sumi_plan_inputs sumi_plan_inputs_of_next_job(const sumi_engine* engine)
{
    sumi_plan_inputs inputs = inputs_now(engine);
    if (engine->memory.has_next_host_limit) inputs.memory_limit = inputs.host_limit = engine->memory.next_host_limit;
    return inputs;
}

static sumi_plan_request complete_request(const sumi_plan_inputs* inputs, const sumi_plan_request* job_request)
{
    SUMI_ASSERT(job_request->model != NULL && job_request->lora_count >= 0
                && job_request->lora_count <= SUMI_MAX_LORAS);
    SUMI_ASSERT(job_request->pipeline.adapters == NULL && job_request->pipeline.text_adapters == NULL
                && job_request->pipeline.adapter_count == 0 && job_request->pipeline.tile_latent == 0
                && !job_request->pipeline.long_strips);
    sumi_plan_request request = *job_request;
    request.memory_limit = inputs->memory_limit;
    request.slice_us = job_request->whole_ops ? 0 : inputs->slice_us;
    request.weight_options.weights = job_request->model->weights;
    request.weight_options.text_weights = job_request->model->text_weights;
    request.weight_options.attention = job_request->model->attention;
    // If a model does not fit as a whole, a text or image encoder, which runs for a moment, must not evict weights of
    // the transformer, which would have to be copied again afterwards.
    request.weight_options.streams_weights = request.memory_limit != 0 && job_request->pipeline.goal != SUMI_GOAL_IMAGES
                                          && job_request->model->info.weight_bytes > request.memory_limit / 8 * 7;
    return request;
}

sumi_plan_request sumi_plan_complete(const sumi_engine* engine, const sumi_plan_request* job_request)
{
    const sumi_plan_inputs inputs = inputs_now(engine);
    return complete_request(&inputs, job_request);
}

// ---- Writing --------------------------------------------------------------------------------------------------------

void sumi_plan_entry_drop(sumi_engine* engine, sumi_plan_entry* entry)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    SUMI_ASSERT(engine->runs.current.entry != entry); // the slices in flight use the entry
    SUMI_ASSERT(engine->runs.draining.entry != entry);
    engine->runner->functions->release_plan(engine->runner, &entry->plan);
    sumi_plan_entry_close(&engine->heap, entry);
}

void sumi_plan_entry_close(sumi_heap* heap, sumi_plan_entry* entry)
{
    sumi_plan_end(&entry->plan);
    sumi_free(heap, entry->slice_us);
    sumi_free(heap, entry->doubts);
    sumi_free(heap, entry->kind_first);
    sumi_free(heap, entry->kind_count);
    sumi_free(heap, entry->scratch_us);
    sumi_free(heap, entry->sections);
    sumi_free(heap, entry->range_us);
    sumi_free(heap, entry->key);
    memset(entry, 0, sizeof *entry);
}

// What a plan is written from. Writing changes nothing of the runner.
typedef struct writing {
    const sumi_runner* runner;
    sumi_heap* heap;
    sumi_plan_inputs inputs;
    sumi_plan_request request; // after sumi_plan_complete
} writing;

// How a plan works on pictures.
typedef struct picture_form {
    int32_t tile; // sumi_pipeline_request.tile_latent
    bool long_strips;
} picture_form;

static sumi_result write_plan(const writing* w, picture_form form, sumi_plan_entry* entry, sumi_error* error)
{
    SUMI_ASSERT(form.tile >= 0 && (form.tile == 0 || !form.long_strips));
    const sumi_runner_functions* runner = w->runner->functions;
    sumi_pipeline_request pipeline = w->request.pipeline;
    pipeline.tile_latent = form.tile;
    pipeline.long_strips = form.long_strips;
    pipeline.adapters = entry->adapters;
    pipeline.text_adapters = entry->text_adapters;
    pipeline.adapter_count = entry->lora_count;
    sumi_runner_begin_plan(w->runner, &entry->plan, w->heap);
    entry->plan.weight_options = w->request.weight_options;
    memset(&entry->pipeline, 0, sizeof entry->pipeline);
    SUMI_TRY(sumi_pipeline_write(w->request.model->network, &pipeline, &entry->plan, &entry->pipeline, error));
    entry->scratch_bytes = runner->scratch_bytes(w->runner, &entry->plan);
    entry->tile_latent = form.tile;
    return SUMI_OK;
}

// Computes all memory that the job needs at once. On a device this includes the weights, as many of them streamed as
// necessary. On the CPU the weights are in the page cache and not counted.
static sumi_result measure_need(const writing* w, sumi_plan_entry* entry, sumi_error* error)
{
    const uint64_t memory_limit = w->request.memory_limit;
    const uint64_t device_bytes = entry->plan.arena_bytes + entry->scratch_bytes;
    entry->need =
        (sumi_device_need){.device_bytes = device_bytes, .fits = memory_limit == 0 || device_bytes <= memory_limit};
    return w->runner->functions->need(w->runner, &entry->plan, memory_limit, &entry->need, error);
}

// Whether the plan fits the memory limit in the form of the refused one, with the first `count` references only. The
// answer errs to the safe side (sumi_pipeline_keep_references).
static bool fits_with_references(const writing* w, const sumi_plan_entry* refused, int32_t count)
{
    struct {
        sumi_plan_entry entry;
        sumi_pipeline_prompt prompts[SUMI_MAX_PROMPTS];
    }* memory = sumi_alloc_zero(w->heap, sizeof *memory);
    if (memory == NULL) return false;
    sumi_plan_entry* entry = &memory->entry;
    writing fewer = *w;
    sumi_pipeline_keep_references(w->request.model->network, &fewer.request.pipeline, count, memory->prompts);
    memcpy(entry->adapters, refused->adapters, sizeof entry->adapters);
    memcpy(entry->text_adapters, refused->text_adapters, sizeof entry->text_adapters);
    entry->lora_count = refused->lora_count;
    sumi_error ignored = {0};
    const bool fits = write_plan(&fewer, (picture_form){.tile = refused->tile_latent}, entry, &ignored) == SUMI_OK
                   && measure_need(&fewer, entry, &ignored) == SUMI_OK && entry->need.fits;
    sumi_plan_end(&entry->plan);
    sumi_free(w->heap, memory);
    return fits;
}

#define HINT_BYTES 80

// Writes how many references of a refused job, or of a prompt that is encoded, would fit. "": it has none, it does not
// fit without them either, or the model needs more than those that fit.
static void write_reference_hint(const writing* w, const sumi_plan_entry* refused, char hint[HINT_BYTES])
{
    const int32_t count = w->request.pipeline.reference_count;
    hint[0] = '\0';
    if (count == 0 || w->request.pipeline.goal == SUMI_GOAL_ENCODE || !fits_with_references(w, refused, 0)) return;
    int32_t most = 0, too_many = count; // halves the range between: a plan takes about a millisecond
    while (too_many - most > 1) {
        const int32_t middle = (most + too_many) / 2;
        const bool fits = fits_with_references(w, refused, middle);
        most = fits ? middle : most;
        too_many = fits ? too_many : middle;
    }
    if (most < w->request.model->info.min_references) return;
    if (count == 1) snprintf(hint, HINT_BYTES, "; it would fit without its reference image");
    else if (most == 0) snprintf(hint, HINT_BYTES, "; not one of its %d reference images fits", (int)count);
    else snprintf(hint, HINT_BYTES, "; %d of its %d reference images would fit", (int)most, (int)count);
}

static sumi_result refuse_plan(const writing* w, const sumi_plan_entry* entry, sumi_error* error)
{
    SUMI_ASSERT(!entry->need.fits);
    char hint[HINT_BYTES];
    write_reference_hint(w, entry, hint);
    const char* smaller =
        w->request.pipeline.goal == SUMI_GOAL_PROMPTS ? "a shorter prompt" : "a smaller image or batch";
    const unsigned long long needed = entry->need.device_bytes, memory_limit = w->request.memory_limit;
    const char* how = entry->need.streamed_bytes > 0 ? entry->tile_latent > 0
                                                         ? " even with its weights streamed and the VAE in small tiles"
                                                         : " even with its weights streamed"
                    : entry->tile_latent > 0         ? " even with the VAE in small tiles"
                                                     : "";
    if (memory_limit != w->inputs.host_limit) {
        return sumi_fail(error, SUMI_OUT_OF_DEVICE_MEMORY,
                         "this job needs %llu bytes on the device%s, which has no more than %llu for it: free device "
                         "memory, or use %s%s",
                         needed, how, memory_limit, smaller, hint);
    }
    return sumi_fail(error, SUMI_BUDGET_TOO_SMALL,
                     "this job needs %llu bytes%s, memory_budget_bytes allows %llu: raise it, or use %s%s", needed, how,
                     memory_limit, smaller, hint);
}

static sumi_result write_plan_and_measure(const writing* w, picture_form form, sumi_plan_entry* entry,
                                          sumi_error* error)
{
    SUMI_TRY(write_plan(w, form, entry, error));
    return measure_need(w, entry, error);
}

// Writes a plan for the whole picture if it fits the memory limit, even if weights must be streamed, because the bits
// are then the same. Otherwise writes a plan with the largest tiles that fit. A prompt has no VAE, so only the first
// plan is tried. On a device the VAE works in long strips if all weights are resident beside them: for one picture of
// 1024 x 1024 they take 38 MB more, and streaming as many bytes of weights in every step takes longer than they save.
static sumi_result write_fitting_plan(const writing* w, sumi_plan_entry* entry, sumi_error* error)
{
    const sumi_network_info* info = &w->request.model->info;
    const int32_t height = w->request.pipeline.height / info->vae_factor,
                  width = w->request.pipeline.width / info->vae_factor;
    int32_t largest_side = height > width ? height : width;
    for (int32_t i = 0; i < w->request.pipeline.reference_count; i++) { // the VAE encoder reads references too
        const sumi_pipeline_reference* reference = &w->request.pipeline.references[i];
        const int32_t reference_side =
            (reference->height > reference->width ? reference->height : reference->width) / info->vae_factor;
        largest_side = reference_side > largest_side ? reference_side : largest_side;
    }
    const bool may_tile = w->request.pipeline.goal != SUMI_GOAL_PROMPTS,
               long_strips = may_tile && info->has_long_strips && w->runner->traits.has_memory;
    SUMI_TRY(write_plan_and_measure(w, (picture_form){.long_strips = long_strips}, entry, error));
    if (long_strips && (!entry->need.fits || entry->need.streamed_bytes > 0)) {
        sumi_plan_end(&entry->plan);
        SUMI_TRY(write_plan_and_measure(w, (picture_form){.tile = 0}, entry, error));
    }
    for (int32_t tile = may_tile ? sumi_network_smaller_tile(info, 0) : 0; tile > 0 && !entry->need.fits;
         tile = sumi_network_smaller_tile(info, tile)) {
        if (tile >= largest_side) continue; // such a tile would cover the largest picture
        sumi_plan_end(&entry->plan);
        SUMI_TRY(write_plan_and_measure(w, (picture_form){.tile = tile}, entry, error));
    }
    return entry->need.fits ? SUMI_OK : refuse_plan(w, entry, error);
}

static bool is_same_kind(const sumi_plan* plan, const sumi_slice* a, const sumi_slice* b)
{
    const int32_t count = a->op_end - a->op_begin;
    if (a->predicted_us != b->predicted_us || count != b->op_end - b->op_begin
        || (count == 1 && a->range_end - a->range_begin != b->range_end - b->range_begin)
        // the first work range of an op does what the other ranges need
        || (a->range_begin == 0) != (b->range_begin == 0))
        return false;
    for (int32_t i = 0; i < count; i++) {
        const sumi_op *x = &plan->ops[a->op_begin + i], *y = &plan->ops[b->op_begin + i];
        if (x->kind != y->kind || x->rows != y->rows || x->range_count != y->range_count || x->flops != y->flops
            || x->bytes != y->bytes)
            return false;
    }
    return true;
}

#define KINDS 64 // A section has a few dozen kinds. A slice that matches none of the latest kinds begins a new one.

static void find_kinds(sumi_plan_entry* entry)
{
    const sumi_plan* plan = &entry->plan;
    for (size_t s = 0; s < plan->section_count; s++) {
        int32_t firsts[KINDS], count = 0;
        for (int32_t i = plan->sections[s].slice_begin; i < plan->sections[s].slice_end; i++) {
            int32_t k = 0;
            while (k < count && k < KINDS && !is_same_kind(plan, &plan->slices[firsts[k]], &plan->slices[i])) k++;
            const bool is_new = k == count || k == KINDS;
            SUMI_ASSERT(is_new || firsts[k] < i);
            if (is_new) firsts[count++ % KINDS] = i;
            entry->kind_first[i] = is_new ? i : firsts[k];
            entry->kind_count[entry->kind_first[i]]++;
        }
    }
}

static size_t find_noise_section(const sumi_plan* plan, const sumi_pipeline* pipeline)
{
    for (size_t i = 0; i < plan->op_count; i++) { // ops are sorted by section
        for (int32_t k = 0; k < SUMI_OP_MAX_INPUTS; k++) {
            const int32_t id = plan->ops[i].in[k].id;
            if (id != 0 && (id == pipeline->x.id || id == pipeline->noise.id || id == pipeline->eps.id))
                return (size_t)plan->ops[i].section;
        }
    }
    return plan->section_count;
}

// The grouping by the measured times of slices, as far as they are known. The times are in the entry's scratch_us.
static sumi_grouping grouping_by_times(const sumi_plan_entry* entry)
{
    const sumi_plan* plan = &entry->plan;
    for (size_t i = 0; i < plan->slice_count; i++) {
        const float measured_us = entry->slice_us[entry->kind_first[i]];
        entry->scratch_us[i] = measured_us > 0.0f ? measured_us : plan->slices[i].predicted_us;
    }
    sumi_grouping grouping = {entry->scratch_us, GROUPED_US};
    while (grouping.grouped_us < 4 * GROUPED_US && sumi_plan_count_groups(plan, &grouping) > MAX_GROUPS)
        grouping.grouped_us *= 2;
    return grouping;
}

static void group_slices(sumi_plan_entry* entry)
{
    const sumi_grouping grouping = grouping_by_times(entry);
    sumi_plan_group_slices(&entry->plan, &grouping);
}

bool sumi_plan_entry_needs_grouping(const sumi_plan_entry* entry)
{
    if (!entry->has_groups) return false;
    const sumi_plan* plan = &entry->plan;
    const sumi_grouping grouping = grouping_by_times(entry);
    const double long_us = LONG_GROUP_US / GROUPED_US * grouping.grouped_us;
    int32_t count = 0;
    for (size_t i = 0; i < plan->slice_count; count++) {
        const size_t first = i, end = i + (size_t)(plan->slices[i].group_count > 1 ? plan->slices[i].group_count : 1);
        double us = 0.0;
        for (; i < end; i++) us += (double)grouping.times_us[i];
        if (end - first > 1 && us > long_us) return true;
    }
    return 4 * count >= 5 * sumi_plan_count_groups(plan, &grouping);
}

void sumi_plan_entry_regroup(sumi_plan_entry* entry)
{
    SUMI_ASSERT(entry->model != NULL && sumi_plan_entry_needs_grouping(entry));
    group_slices(entry);
}

// Measured times of ops change where slices end, but not what they compute.
static sumi_result write_entry(const writing* w, sumi_plan_entry* entry, sumi_error* error)
{
    const sumi_plan_request* request = &w->request;
    SUMI_ASSERT(entry->slice_us == NULL && entry->key == NULL); // the entry is empty
    entry->model = request->model;
    entry->lora_count = request->lora_count;
    for (int32_t i = 0; i < request->lora_count; i++) {
        entry->loras[i] = request->loras[i];
        const sumi_adapter_file* file = request->loras[i]->file;
        entry->adapters[i] = (sumi_adapter_use){sumi_adapter_get(file), request->lora_scales[i]};
        entry->text_adapters[i] = (sumi_adapter_use){sumi_adapter_get_text(file), request->lora_text_scales[i]};
    }
    entry->control_count = request->control_count;
    for (int32_t i = 0; i < request->control_count; i++) entry->controls[i] = request->controls[i];
    SUMI_TRY(write_fitting_plan(w, entry, error));
    sumi_plan* plan = &entry->plan;
    entry->noise_section = find_noise_section(plan, &entry->pipeline);
    sumi_rates rates = w->runner->functions->rates(w->runner);
    for (int32_t k = 0; k < SUMI_OP_KIND_COUNT; k++) { // limits the effect of a single strange measurement
        float ratio = w->inputs.op_ratio[k];
        entry->op_ratio[k] = ratio <= 0.0f ? 1.0f : ratio < 0.25f ? 0.25f : ratio > 16.0f ? 16.0f : ratio;
    }
    // The CPU cuts slices while they run (pieces.h). A device gets them as they are.
    const bool is_device = w->runner->traits.has_device, are_cut = !is_device && request->slice_us > 0,
               gathers = is_device && request->slice_us == 0 && !request->whole_ops;
    const sumi_slicing slicing = {.rates = &rates,
                                  .op_ratio = entry->op_ratio,
                                  .max_us = are_cut ? 0 : request->slice_us,
                                  .gathered_us = gathers ? GATHERED_US : request->slice_us,
                                  .grouped_us = is_device && !request->whole_ops ? GROUPED_US : 0};
    SUMI_TRY(sumi_plan_slice(plan, &slicing, error));
    entry->has_groups = slicing.grouped_us > 0;
    entry->range_us = are_cut ? sumi_alloc_zero(w->heap, 2 * plan->op_count * sizeof *entry->range_us) : NULL;
    entry->slice_us = sumi_alloc_zero(w->heap, plan->slice_count * sizeof *entry->slice_us);
    entry->doubts = sumi_alloc_zero(w->heap, plan->slice_count * sizeof *entry->doubts);
    entry->kind_first = sumi_alloc_zero(w->heap, plan->slice_count * sizeof *entry->kind_first);
    entry->kind_count = sumi_alloc_zero(w->heap, plan->slice_count * sizeof *entry->kind_count);
    entry->scratch_us = sumi_alloc_zero(w->heap, plan->slice_count * sizeof *entry->scratch_us);
    entry->sections = sumi_alloc_zero(w->heap, plan->section_count * sizeof *entry->sections);
    if (entry->slice_us == NULL || entry->doubts == NULL || entry->kind_first == NULL || entry->kind_count == NULL
        || entry->scratch_us == NULL || entry->sections == NULL || (are_cut && entry->range_us == NULL))
        return sumi_out_of_memory(error, plan->slice_count * sizeof *entry->slice_us, "the times of a plan's slices");
    find_kinds(entry);
    if (entry->has_groups) group_slices(entry);
    for (size_t s = 0; s < plan->section_count; s++) {
        for (int32_t i = plan->sections[s].slice_begin; i < plan->sections[s].slice_end; i++)
            entry->sections[s].unmeasured_us += plan->slices[i].predicted_us;
    }
    return SUMI_OK;
}

// For the thread that holds the pump lock. A refusal by the device is noted, because the shortage may be over later.
static sumi_result write_and_note_refusal(sumi_engine* engine, const sumi_plan_request* job_request,
                                          sumi_plan_entry* entry, sumi_error* error)
{
    writing w = {.runner = engine->runner, .heap = &engine->heap, .inputs = inputs_now(engine)};
    w.request = complete_request(&w.inputs, job_request);
    const sumi_result result = write_entry(&w, entry, error);
    if (result != SUMI_OK && entry->need.device_bytes > 0 && !entry->need.fits)
        engine->shortage.smallest_form_bytes = entry->need.device_bytes;
    return result;
}

sumi_result sumi_plan_entry_write(sumi_engine* engine, const sumi_plan_request* job_request, sumi_plan_entry* entry,
                                  sumi_error* error)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    return write_and_note_refusal(engine, job_request, entry, error);
}

sumi_result sumi_plan_entry_write_for_query(sumi_engine* engine, sumi_heap* heap, const sumi_plan_request* job_request,
                                            sumi_plan_entry* entry, sumi_error* error)
{
    writing w = {.runner = engine->runner, .heap = heap};
    sumi_mutex_lock(&engine->state_lock);
    w.inputs = engine->plan_inputs;
    sumi_mutex_unlock(&engine->state_lock);
    w.request = complete_request(&w.inputs, job_request);
    return write_entry(&w, entry, error);
}

// ---- The cache ------------------------------------------------------------------------------------------------------

static sumi_result make_key(sumi_engine* engine, const sumi_plan_request* request, sumi_packer* out_key,
                            sumi_error* error)
{
    *out_key = (sumi_packer){NULL, 0};
    sumi_plan_key_write(out_key, request);
    SUMI_TRY(sumi_block_reserve(&engine->heap, &engine->cache.key, out_key->used, "a plan's key", error));
    *out_key = (sumi_packer){engine->cache.key.data, 0};
    sumi_plan_key_write(out_key, request);
    return SUMI_OK;
}

static sumi_plan_entry* find_plan(sumi_plan_cache* cache, const sumi_packer* key)
{
    SUMI_ASSERT(key->used > 0);
    for (int32_t i = 0; i < SUMI_PLAN_CACHE_SIZE; i++) {
        sumi_plan_entry* entry = &cache->entries[i];
        if (entry->model != NULL && entry->key_bytes == key->used
            && memcmp(entry->key, key->base, entry->key_bytes) == 0)
            return entry;
    }
    return NULL;
}

const sumi_plan_entry* sumi_plan_find(sumi_engine* engine, const sumi_plan_request* job_request)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    sumi_packer key;
    sumi_error none = {0};
    const sumi_plan_request request = sumi_plan_complete(engine, job_request);
    return make_key(engine, &request, &key, &none) == SUMI_OK ? find_plan(&engine->cache, &key) : NULL;
}

sumi_result sumi_plan_get(sumi_engine* engine, const sumi_plan_request* job_request, sumi_plan_entry** out_entry,
                          sumi_error* error)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    const sumi_plan_request request = sumi_plan_complete(engine, job_request);
    sumi_plan_cache* cache = &engine->cache;
    *out_entry = NULL;
    sumi_packer key;
    SUMI_TRY(make_key(engine, &request, &key, error));
    *out_entry = find_plan(cache, &key);
    if (*out_entry != NULL) {
        (*out_entry)->used = ++cache->uses;
        return SUMI_OK;
    }
    sumi_plan_entry* oldest = &cache->entries[0];
    for (int32_t i = 0; i < SUMI_PLAN_CACHE_SIZE; i++) {
        if (cache->entries[i].used < oldest->used) oldest = &cache->entries[i];
    }

    sumi_plan_entry_drop(engine, oldest);
    sumi_result result = write_and_note_refusal(engine, job_request, oldest, error);
    if (result == SUMI_OK) {
        oldest->key = sumi_alloc(&engine->heap, (size_t)key.used);
        if (oldest->key == NULL) result = sumi_out_of_memory(error, (size_t)key.used, "a plan's key");
    }
    if (result != SUMI_OK) {
        sumi_plan_entry_drop(engine, oldest);
        return result;
    }
    SUMI_ASSERT(oldest->model == request.model && key.used <= cache->key.bytes);
    memcpy(oldest->key, key.base, (size_t)key.used);
    oldest->key_bytes = (size_t)key.used;
    oldest->serial = oldest->used = ++cache->uses;
    *out_entry = oldest;
    return SUMI_OK;
}

static bool uses(const sumi_plan_entry* entry, const sumi_used_object* object)
{
    bool is_used = entry->model != NULL && (object->model == NULL || entry->model == object->model);
    if (object->lora != NULL) {
        bool has = false;
        for (int32_t i = 0; i < entry->lora_count; i++) has = has || entry->loras[i] == object->lora;
        is_used = is_used && has;
    }
    if (object->control != NULL) {
        bool has = false;
        for (int32_t i = 0; i < entry->control_count; i++) has = has || entry->controls[i] == object->control;
        is_used = is_used && has;
    }
    return is_used;
}

void sumi_plan_cache_drop(sumi_engine* engine, const sumi_used_object* object)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    for (int32_t i = 0; i < SUMI_PLAN_CACHE_SIZE; i++) {
        sumi_plan_entry* entry = &engine->cache.entries[i];
        if (uses(entry, object)) sumi_plan_entry_drop(engine, entry);
    }
}

// The unmeasured rest of a section is corrected like the measured part. While that is small, what was probed counts.
static double correction_of(const sumi_section_time* time)
{
    const double prior_us = time->probed_ratio > 0.0 ? time->unmeasured_us : 0.0,
                 weight_us = time->expected_us + prior_us;
    return weight_us > 0.0 ? (time->measured_us + time->probed_ratio * prior_us) / weight_us : 1.0;
}

double sumi_section_us(const sumi_plan_entry* entry, size_t section)
{
    SUMI_ASSERT(section < entry->plan.section_count);
    const sumi_section_time* time = &entry->sections[section];
    return time->measured_us + time->unmeasured_us * correction_of(time);
}

double sumi_section_slice_us(const sumi_plan_entry* entry, size_t section, int32_t slice)
{
    SUMI_ASSERT(section < entry->plan.section_count && (size_t)slice < entry->plan.slice_count);
    const float measured_us = entry->slice_us[entry->kind_first[slice]];
    return measured_us > 0.0f
             ? (double)measured_us
             : (double)entry->plan.slices[slice].predicted_us * correction_of(&entry->sections[section]);
}
