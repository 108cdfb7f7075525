// Jobs that run a plan: prompts, images, encodings. They differ in what they copy at submission and in what they hand
// out, not in how they go (job_phases.h). This is what such a job knows; the files job_*.c are what it does.
#ifndef SUMI_ENGINE_PLAN_JOB_H
#define SUMI_ENGINE_PLAN_JOB_H
#include "base/assert.h"
#include "engine/plan_cache.h"
#include "engine/pool.h"
#include "engine/prompts.h"
#include "engine/references.h"
#include "engine/resize.h"
#include "sampling/noise.h"

typedef struct sumi_job_prompt {
    const char* text;
    size_t text_bytes; // NULL: features are given
    const float* features[SUMI_MAX_TEXT_ENCODERS];
    int32_t token_count[SUMI_MAX_TEXT_ENCODERS]; // of texts: known after phase TEXT
    int32_t picture_row[SUMI_MAX_REFERENCES];    // likewise: where the tokens of each reference begin
    int32_t cut_tokens;                          // likewise: that the model has no place for, of any encoder
    const sumi_prompt* source;                   // only while submit looks for equal prompts
} sumi_job_prompt;

typedef struct sumi_job_item {
    int32_t positive, negative; // indices of prompts; negative -1: none
    uint64_t seed;
    sumi_target target;
    sumi_picture* picture; // of ours, when the target has no memory
    unsigned char* pixels; // where the finished picture waits for the fetch
    int32_t step_count;    // that were run
} sumi_job_item;

// What was predicted for a job, until it comes.
typedef struct sumi_forecast {
    uint64_t begin_ns;    // of the newest step; 0: none has begun
    double step_seconds;  // predicted for it; 0: not noted
    double end_seconds;   // predicted for what is behind it, when nothing but the end is; 0: there are more steps
    double whole_seconds; // of the first part, from the choice of the plan on, of jobs that are decided once
    uint64_t planned_ns;  // that choice
    bool is_guess;        // of the end: most of it was never measured
} sumi_forecast;

typedef struct sumi_adaption {
    float previous_sigma; // of the step before; 0: none
    int32_t next;         // the evaluation to look at next
    int32_t skipped;      // evaluations left out so far
    bool is_changed;      // the row before this one was not the schedule's own, or this one is not
} sumi_adaption;

typedef enum sumi_phase {
    SUMI_PHASE_TEXT,
    SUMI_PHASE_PLAN,
    SUMI_PHASE_PREPARE_DEVICE,
    SUMI_PHASE_INPUT,
    SUMI_PHASE_RUN,
    SUMI_PHASE_OUTPUT
} sumi_phase;

typedef struct sumi_plan_job {
    sumi_pipeline_goal goal;
    // Copied by submit; arrays lie in the slot's blocks.
    sumi_job_prompt* prompts;
    int32_t prompt_count;
    sumi_job_item* items;
    int32_t item_count;
    int32_t width, height, step_count;
    float guidance; // how far beyond the positive prediction, whatever the model's formula; 0: off
    float guidance_begin, guidance_end;
    sumi_guidance_rule guidance_rule; // never MODEL
    float norm_limit;
    sumi_solver solver;
    float shift;
    const float* sigmas;
    sumi_noise noise;
    int32_t multiprocessors, threads_per_multiprocessor;
    const float *noise_values, *start_latents, *start_noise;
    sumi_pixels start_image, mask; // data NULL: none
    int32_t mask_feather;          // below 0: what the mask keeps is not put back
    sumi_references references;    // that all prompts and items see
    sumi_posterior posterior;
    float strength;
    const sumi_lora* loras[SUMI_MAX_LORAS];
    float lora_scales[SUMI_MAX_LORAS];
    int32_t lora_count;
    uint32_t deadline_ms;
    int32_t preview_every;
    bool profiles;

    // While it runs.
    sumi_phase phase;
    sumi_resize resize; // of the start image, the mask or a reference
    int32_t mask_rows;  // whose distances are known: downward, then upward; the mask itself is written when above 0
    // prompt or item of the phase, piece of INPUT, in RUN item of the noise; row of the picture in OUTPUT
    int32_t cursor, row;
    size_t drawn_values;      // values of the item's noise, the posterior's counted in
    size_t moved_values;      // values of prompts' features that went in or came out in this phase
    int32_t pieces_in_flight; // pieces of it that lie behind slices
    union {
        sumi_torch_cpu_generator cpu;
        sumi_torch_cuda_generator cuda;
    } generator; // of the item
    sumi_plan_entry* entry;
    int32_t batch_begin, batch_count; // the items that are run together: all of them, if the device has the memory
    int32_t evictions;                // how often weights went that other jobs would need again
    int32_t attempts, lowered_limits; // it began again for want of device memory; of them, with less of it
    bool has_reviewed, has_raised;    // asked whether there is memory again: as it began; as its plan did not fit
    bool has_tried_smallest;          // its smallest form
    const sumi_solver_row* rows;
    const float* times;
    int32_t evaluation_count; // in the workspace
    const int32_t* plan_prompts;
    int32_t plan_prompt_count; // in the workspace: those of `prompts` that the plan's are
    int32_t decided_steps;     // what step_count became by the deadline, for all batches
    // steps that are run: fewer than step_count when a start image is noised only in part
    int32_t run_steps;
    sumi_adaption adaption; // to a deadline
    sumi_forecast forecast;
    bool preview_is_pending; // fetched, not yet published
    bool is_publishing;      // the device may be writing to the host's device memory

    // What denoising had come to when the job gave way: the solver's states before evaluation kept_at, of this batch's
    // items. kept_at 0: nothing; then it begins anew.
    float* saved_state;
    int32_t saved_evaluation;
    bool save_is_pending;   // fetched from a device, not read yet
    size_t restored_values; // values that were written back
    sumi_adaption saved_adaption;

    // Products.
    int32_t latent_channels, latent_height, latent_width;
    float* latents;             // [item][channel][h * w]
    unsigned char* previews[2]; // [item][h * w][4]; `preview_front` is the one to read, under `table`
    int32_t preview_front;
    sumi_prompt* prompt;
} sumi_plan_job;

static inline bool sumi_plan_job_has_start(const sumi_plan_job* job)
{
    return job->start_image.data != NULL || job->start_latents != NULL;
}
static inline bool sumi_plan_job_draws_posterior(const sumi_plan_job* job)
{
    return job->start_image.data != NULL && job->posterior == SUMI_POSTERIOR_SAMPLE;
}
static inline size_t sumi_plan_job_latent_size(const sumi_plan_job* job)
{
    return (size_t)job->latent_height * (size_t)job->latent_width;
}
// of one item
static inline size_t sumi_plan_job_latent_values(const sumi_plan_job* job)
{
    return sumi_plan_job_latent_size(job) * (size_t)job->latent_channels;
}
// Its picture.
static inline bool sumi_job_item_stays_on_device(const sumi_job_item* item) { return item->target.device_address != 0; }

// Begins a phase: the next one, or PLAN again.
static inline void sumi_plan_job_enter(sumi_plan_job* job, sumi_phase phase)
{
    SUMI_ASSERT(phase == SUMI_PHASE_PLAN || phase == job->phase + 1);
    job->phase = phase;
    job->cursor = job->mask_rows = 0;
    job->drawn_values = job->moved_values = 0;
    job->pieces_in_flight = 0;
}

// Features of a prompt are up to some dozen megabytes, which one call could not move within a frame's budget: a piece is
// some dozen microseconds of copying and converting.
#define SUMI_FEATURE_PIECE_VALUES ((size_t)64 * 1024)
#endif
