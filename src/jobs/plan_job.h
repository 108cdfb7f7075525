// The record of a job that runs a plan: prompts, image jobs, encodings. These kinds differ in what submit copies and in
// what a fetch returns; their phases are the same (job_phases.h). The functions that work on the record are in the
// files job_*.c.
#ifndef SUMI_JOBS_PLAN_JOB_H
#define SUMI_JOBS_PLAN_JOB_H
#include "base/assert.h"
#include "jobs/buffers.h"
#include "jobs/job_pictures.h"
#include "jobs/plan_cache.h"
#include "jobs/plan_key.h"
#include "models/limits.h"
#include "models/pipeline.h"
#include "pacing/forecast.h"
#include "sampling/noise.h"
#include "sampling/reuse.h"
#include "sampling/solver.h"

typedef struct sumi_job_prompt {
    const char* text;
    size_t text_bytes;                            // NULL: the features are given
    const void* features[SUMI_MAX_TEXT_ENCODERS]; // of `source`, as the runner has activations: float32 or bfloat16
    int32_t token_count[SUMI_MAX_TEXT_ENCODERS];  // of texts: known after phase TEXT
    // The first token row of each reference: known after phase TEXT. Of given features the first row, and how many rows
    // it has, if the model puts references there.
    int32_t picture_row[SUMI_MAX_REFERENCES], picture_rows[SUMI_MAX_REFERENCES];
    int32_t cut_tokens;  // known after phase TEXT: tokens beyond what the encoders read, the most of any encoder
    sumi_prompt* source; // of features: the job is one of its users until it is freed
} sumi_job_prompt;

// What images follow. data NULL: none; at most one of picture and depth.
typedef struct sumi_job_control_input {
    sumi_pixels picture, inpaint, mask;
    // With an external: width and height are the import's. The external is NULL again when the job forgets it.
    sumi_depth depth;
} sumi_job_control_input;
static inline bool sumi_job_control_has_picture(const sumi_job_control_input* picture)
{
    return picture->picture.data != NULL || picture->depth.data != NULL || picture->depth.external != NULL;
}

// A control net with what it reads.
typedef struct sumi_job_control {
    const sumi_control* control;
    sumi_job_control_input* pictures;
    int32_t picture_count; // 1, or one per item
    int32_t index;         // in the desc
    float strength, start, end;
} sumi_job_control;

typedef struct sumi_job_item {
    int32_t positive, negative; // indices of prompts; negative -1: none
    uint64_t seed;
    uint64_t noise_seed; // of its noise: sumi_network_noise_seed
    sumi_target target;
    sumi_picture* picture;                  // memory of sumi; NULL if the target has memory
    unsigned char* pixels;                  // the finished picture until the fetch
    int32_t step_count;                     // steps that were run
    int32_t evaluation_count, reused_count; // evaluations of these steps, and how many of them were reused
    float predicted_db;                     // sumi_reuse_db; 0: without a step cache, or not known
    bool is_copied;                         // the copy into the external was submitted by a fetch that failed later
} sumi_job_item;

// Which evaluations were left out so that the job meets its deadline (deadline.h).
typedef struct sumi_deadline_adaptation {
    float previous_sigma;    // sigma of the step before; 0: none
    int32_t next_evaluation; // the next evaluation to decide
    int32_t skipped_count;   // evaluations that were left out so far
    bool row_is_changed;     // the solver row of this step or of the step before differs from the schedule's
} sumi_deadline_adaptation;

// Which evaluations of this run were whole and which were reused (step_cache.h).
typedef struct sumi_step_cache {
    sumi_reuse reuse;
    int32_t next_evaluation; // the next evaluation to decide
    // Of the section with an alternative to which the last decided evaluation belongs: its first counter. -1: none.
    int32_t section_counter;
    int32_t whole_evaluation;   // the last whole evaluation of that section; -1: none
    int32_t earlier_evaluation; // the whole evaluation before it, of the same section; -1: none
    bool lacks_change;          // the change of that evaluation was not read yet
    bool error_is_pending;      // the copy of an error from the device was started, and was not read yet
    bool is_repeated;           // that evaluation is computed again after a pause, so its measurements are not read
    sumi_reuse_speed speed;     // for predictions: the newest of any section; 0: not known
    // Of all changes that were read, and of the ratios known then.
    double change_sum, sigma_sum, ratio_sum;
    int32_t ratio_count;
    int32_t evaluation_count, reused_count;     // evaluations decided, and how many of them are reused
    sumi_deadline_adaptation adaptation_before; // before whole_evaluation
} sumi_step_cache;

typedef enum sumi_phase {
    SUMI_PHASE_TEXT,
    SUMI_PHASE_PLAN,
    SUMI_PHASE_PREPARE_DEVICE,
    SUMI_PHASE_INPUT,
    SUMI_PHASE_RUN,
    SUMI_PHASE_OUTPUT
} sumi_phase;

// A part of a value of the plan: bytes, or elements of activations.
typedef struct sumi_value_part {
    sumi_value value;
    uint64_t first, count;
} sumi_value_part;

// What the host program asked for. Submit fills it and nothing changes it afterwards, except the members of prompts and
// items that are noted above. Arrays lie in the blocks of the job slot.
typedef struct sumi_job_request {
    sumi_pipeline_goal goal;
    sumi_job_prompt* prompts;
    int32_t prompt_count;
    sumi_job_item* items;
    int32_t item_count;
    int32_t width, height, step_count;
    int32_t latent_channels, latent_height, latent_width; // of the model's latents for this size
    int32_t picture_channels;                             // of the model's pictures: 3, or 4 with alpha
    // The factor of (positive - negative) that is added to the positive prediction, whatever the model's own formula
    // is. 0: no guidance.
    float guidance;
    float guidance_begin, guidance_end;
    sumi_guidance_rule guidance_rule; // never SUMI_GUIDANCE_MODEL
    float norm_limit;
    sumi_solver solver;
    float shift;
    const float* sigmas;
    sumi_noise_source noise;
    int32_t multiprocessors, threads_per_multiprocessor;
    const float *noise_values, *start_latents, *start_noise;
    sumi_pixels start_image, mask; // data NULL: none
    int32_t mask_feather;          // below 0: the pixels that the mask keeps are not copied back
    sumi_references references;    // the references that all prompts and items use
    sumi_posterior posterior;
    float strength;
    const sumi_lora* loras[SUMI_MAX_LORAS];
    float lora_scales[SUMI_MAX_LORAS], lora_text_scales[SUMI_MAX_LORAS]; // of denoiser and text encoders; 0: no effect
    int32_t lora_count;
    sumi_job_control controls[SUMI_MAX_CONTROLS]; // without those of strength 0
    int32_t control_count, given_control_count;   // the latter as in the desc
    uint32_t deadline_ms;
    sumi_reuse_rule reuse; // all 0: nothing is reused
    int32_t preview_every;
    bool profiles;
} sumi_job_request;

// How far a running job is, and what it works with.
typedef struct sumi_job_progress {
    sumi_phase phase;
    sumi_resize resize;      // of the start image, the mask or a reference
    bool is_preparing_depth; // the work on a depth buffer has begun, in the workspace
    // Progress of the mask's distances: rows done from top to bottom, then from bottom to top. Above 0 while the mask
    // is written.
    int32_t mask_rows;
    // cursor: the prompt or item of the phase; in INPUT the piece; in RUN the item whose noise is drawn. row: in OUTPUT
    // the row of the picture.
    int32_t cursor, row;
    // In TEXT: the text encoder for which the prompt is read next; whether the workspace's reader is reading it; the
    // tokens of the references; and where the tokens of further encoders would have the references.
    int32_t text_encoder;
    bool is_reading;
    int32_t picture_tokens[SUMI_MAX_REFERENCES], other_picture_rows[SUMI_MAX_REFERENCES];
    size_t drawn_values; // values of noise drawn for the item, those of the posterior included
    // Values of prompt features that were copied in or out in this phase; in RUN, whose memory has pages.
    size_t moved_values;
    int32_t pieces_in_flight; // pieces of noise that were drawn since the device was last idle
    union {
        sumi_torch_cpu_generator cpu;
        sumi_torch_cuda_generator cuda;
    } generator; // for the noise of the item
    sumi_plan_entry* entry;
    int32_t batch_begin, batch_count; // The items that are run together. All items, unless the device lacks the memory.
    bool has_prepared; // on a device: its plan had no graphs or lacked weights there. Usually the first of a size
    const sumi_solver_row* rows;
    const float* times;
    int32_t evaluation_count; // length of `rows` and `times`, which lie in the workspace
    // Those of the request's control nets that run in at least one evaluation, in the plan's order.
    int32_t plan_controls[SUMI_MAX_CONTROLS], plan_control_count;
    const int32_t* plan_prompts;
    // length of plan_prompts, which lies in the workspace: indices in `prompts`, in the plan's order
    int32_t plan_prompt_count;
    int32_t decided_steps; // step_count after the deadline was considered; the same for all batches
    // The steps that are run. Fewer than step_count if a start image gets only a part of the noise.
    int32_t run_steps;
    sumi_deadline_adaptation deadline_adaptation;
    sumi_step_cache step_cache;
    sumi_forecast forecast;
    bool preview_is_pending; // the copy from the device was started, and the preview is not published yet
    bool is_publishing;      // the device may be writing to device memory of the host program
} sumi_job_progress;

// What was done because the device had less memory than the job needs (job_memory.h).
typedef struct sumi_job_shortage {
    int32_t evictions; // how often weights were evicted that other jobs need again
    // how often the job began again because device memory was short; how often it then lowered the limit
    int32_t attempts, lowered_limits;
    // whether the limit was reviewed when the job began; whether it was raised when the plan did not fit
    bool has_reviewed, has_raised;
    bool has_tried_smallest; // the job was tried in its smallest form
} sumi_job_shortage;

// The state of denoising when the job yielded (pause.h).
typedef struct sumi_job_saved {
    // The solver's values for the items of this batch, before `evaluation`.
    float* state;
    int32_t evaluation; // 0: nothing was saved, and the job starts again
    // With a step cache: the evaluation to repeat before `evaluation`, because that one needs its residual; in `state`
    // the solver's values before it follow those before `evaluation`. -1: none.
    int32_t repeated_evaluation;
    bool repeats;           // repeated_evaluation has been restored, and `evaluation` not yet
    bool is_pending;        // the copies from the device were started and not read yet
    size_t restored_values; // values that were copied back to the device
    sumi_deadline_adaptation deadline_adaptation;
    sumi_step_cache step_cache;
} sumi_job_saved;

// What the job makes. What belongs to one item lies in the item.
typedef struct sumi_job_products {
    float* latents; // [item][channel][h * w]
    // Of each of the request's control nets: [picture][height][width][3], as the net saw them; NULL: it reads none.
    unsigned char* control_pictures[SUMI_MAX_CONTROLS];
    unsigned char* previews[2]; // [item][h * w][4]; preview_front is the one to read, under `state_lock`
    int32_t preview_front;
    sumi_prompt* prompt;
} sumi_job_products;

typedef struct sumi_plan_job {
    sumi_job_request request;
    sumi_job_progress progress;
    sumi_job_shortage shortage;
    sumi_job_saved saved;
    sumi_job_products products;
} sumi_plan_job;

static inline bool sumi_plan_job_has_start(const sumi_plan_job* job)
{
    return job->request.start_image.data != NULL || job->request.start_latents != NULL;
}
static inline bool sumi_plan_job_draws_posterior(const sumi_plan_job* job)
{
    return job->request.start_image.data != NULL && job->request.posterior == SUMI_POSTERIOR_SAMPLE;
}
static inline size_t sumi_plan_job_latent_size(const sumi_plan_job* job)
{
    return (size_t)job->request.latent_height * (size_t)job->request.latent_width;
}
// Pixels of a preview.
static inline size_t sumi_plan_job_preview_size(const sumi_plan_job* job)
{
    return (size_t)(job->request.width / SUMI_PREVIEW_FACTOR) * (size_t)(job->request.height / SUMI_PREVIEW_FACTOR);
}
// Values of one item.
static inline size_t sumi_plan_job_latent_values(const sumi_plan_job* job)
{
    return sumi_plan_job_latent_size(job) * (size_t)job->request.latent_channels;
}
// Whether the item's picture is written to device memory of the host program.
static inline bool sumi_job_item_has_device_target(const sumi_job_item* item)
{
    return item->target.device_address != 0;
}

// Begins a phase: the next one, or PLAN again.
static inline void sumi_plan_job_enter(sumi_plan_job* job, sumi_phase phase)
{
    SUMI_ASSERT(phase == SUMI_PHASE_PLAN || phase == job->progress.phase + 1);
    job->progress.phase = phase;
    job->progress.cursor = job->progress.mask_rows = 0;
    job->progress.drawn_values = job->progress.moved_values = 0;
    job->progress.pieces_in_flight = 0;
}

// Values of prompt features that are copied in one piece. The features of a prompt take up to some dozen megabytes, too
// much for one call within a frame's budget; copying and converting one piece takes some dozen microseconds.
#define SUMI_FEATURE_PIECE_VALUES ((size_t)64 * 1024)
#endif
