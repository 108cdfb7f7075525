// Jobs that run a plan: prompts, images, encodings. They differ in what they copy at submission and in what they hand
// out, not in how they go:
//
//   TEXT (one prompt a slice) -> PLAN (schedule, plan, arena) -> READY (weights, graphs; a GPU) -> INPUT -> NOISE (some values a slice) -> RUN (slices of the plan) -> OUTPUT (some rows a slice)
//                                 ^-------- a device without memory for the whole batch: a part of its items at a time, from PLAN to OUTPUT --------------------------------'
#ifndef SUMI_ENGINE_PLAN_JOB_H
#define SUMI_ENGINE_PLAN_JOB_H
#include "engine/deadline.h"
#include "engine/objects.h"
#include "engine/references.h"
#include "engine/resize.h"
#include "engine/run.h"
#include "sampling/noise.h"

struct sumi_slot;
struct sumi_workspace;

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

typedef enum sumi_phase {
    SUMI_PHASE_TEXT,
    SUMI_PHASE_PLAN,
    SUMI_PHASE_READY,
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
    size_t drawn;         // values of the item's noise, the posterior's counted in
    size_t moved;         // values of prompts' features that went in or came out in this phase
    int32_t drawn_beside; // pieces of it that lie behind slices
    union {
        sumi_torch_cpu_generator cpu;
        sumi_torch_cuda_generator cuda;
    } generator; // of the item
    sumi_plan_entry* entry;
    int32_t part_begin, part_count; // the items that are run together: all of them, if the device has the memory
    int32_t sheds;                  // how often weights went that other jobs would need again
    int32_t tries, lowered_limits;  // it began again for want of device memory; of them, with less of it
    bool has_reviewed, has_raised;  // asked whether there is memory again: as it began; as its plan did not fit
    bool has_tried_least;           // its smallest form
    const sumi_solver_row* rows;
    const float* times;
    int32_t evaluation_count; // in the workspace
    const int32_t* plan_prompts;
    int32_t plan_prompt_count; // in the workspace: those of `prompts` that the plan's are
    int32_t settled_steps;     // what step_count became by the deadline, for all parts
    // steps that are run: fewer than step_count when a start image is noised only in part
    int32_t run_steps;
    sumi_adaption adaption; // to a deadline
    sumi_forecast forecast;
    bool preview_is_coming; // fetched, not yet published
    bool is_publishing;     // the device may be writing to the host's device memory

    // What denoising had come to when the job gave way: the solver's states before evaluation kept_at, of this part's
    // items. kept_at 0: nothing; then it begins anew.
    float* kept;
    int32_t kept_at;
    bool kept_is_coming; // fetched from a device, not read yet
    size_t restored;     // values that were written back
    sumi_adaption kept_adaption;

    // Products.
    int32_t latent_channels, latent_height, latent_width;
    float* latents;             // [item][channel][h * w]
    unsigned char* previews[2]; // [item][h * w][4]; `preview_front` is the one to read, under `table`
    int32_t preview_front;
    sumi_prompt* prompt;
} sumi_plan_job;

// pause.c. A job that was asked to give way: whether it goes on as before, submits nothing more for now, or has gone
// back to its first phase.
typedef enum sumi_giving_way { SUMI_GOES_ON, SUMI_HOLDS, SUMI_WENT_ASIDE } sumi_giving_way;
sumi_result sumi_plan_job_give_way(sumi_engine* engine, struct sumi_slot* slot, sumi_giving_way* out,
                                   sumi_error* error);
// Before the first evaluation of a job that kept its states: a piece of writing them back, and with the last one the run
// goes on where it was. False: there is nothing to restore, or not yet.
bool sumi_plan_job_restores(const sumi_engine* engine, const sumi_plan_job* job);
void sumi_plan_job_restore(sumi_engine* engine, sumi_plan_job* job);
void sumi_plan_job_forget_kept(sumi_engine* engine, sumi_plan_job* job);

double sumi_plan_job_predict(const sumi_engine* engine, const struct sumi_slot* slot);
// RUN: the next step is a piece of noise, not a slice
bool sumi_plan_job_draws_next(const sumi_engine* engine, const struct sumi_slot* slot);
// of this thread's time for an item
double sumi_plan_job_noise_us(const sumi_engine* engine, const sumi_plan_job* job);
// likewise, the longest among its items
double sumi_plan_job_output_us(const sumi_engine* engine, const sumi_plan_job* job);
sumi_result sumi_plan_job_step(sumi_engine* engine, struct sumi_slot* slot, sumi_stage* out_stage,
                               sumi_step_end* out_end, sumi_error* error);
// Whether it only waits for slices to end: the next job may begin. Never on the processor.
bool sumi_plan_job_can_leave(const sumi_engine* engine, const struct sumi_slot* slot);
void sumi_plan_job_stop(sumi_engine* engine, struct sumi_slot* slot);
void sumi_plan_job_drop(sumi_engine* engine, struct sumi_slot* slot);

void sumi_plan_job_claim(sumi_plan_job* job, bool is_used); // the externals of its targets
int32_t sumi_format_bytes(sumi_format format);              // of a pixel; 0: no such format
// Bytes of the things a finished job keeps until its fetch: latents, previews, pictures.
uint64_t sumi_plan_job_image_bytes(const sumi_plan_job* job);

// Bytes of the workspace that its start picture, its mask and its noise pass through, at most.
uint64_t sumi_plan_job_input_bytes(const sumi_plan_job* job);

// The two halves of the way to a plan, for the memory query: token ids of one prompt into the workspace, then the
// request for `step_count` steps.
sumi_result sumi_plan_job_tokenise(sumi_heap* heap, struct sumi_workspace* workspace, sumi_model* model,
                                   sumi_plan_job* job, int32_t prompt, sumi_error* error);
sumi_result sumi_plan_job_request(sumi_heap* heap, struct sumi_workspace* workspace, sumi_model* model,
                                  sumi_plan_job* job, int32_t step_count, sumi_plan_request* out_request,
                                  sumi_error* error);
void sumi_workspace_close(sumi_heap* heap, struct sumi_workspace* workspace);
#endif
