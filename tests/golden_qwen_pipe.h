// A job of the Qwen-Image families from noise to picture: what is written into its plan, what is kept of each step, and
// the comparisons that are the same for both. golden_qwen_pipeline.c and golden_qwen21_pipeline.c make its inputs.
#ifndef GOLDEN_QWEN_PIPE_H
#define GOLDEN_QWEN_PIPE_H
#include "golden_qwen_image.h"
#include "sampling/schedule.h"

typedef struct pipe_job {
    sumi_network* network;
    // Latents [channels, height * width] as the reference has them: [tokens, values of a token].
    array (*tokens)(const float* latents, int64_t channels, int64_t height, int64_t width);
    int32_t width, height, steps, all_steps; // steps: those that are run, of all_steps
    float* sigmas;                           // of all steps
    sumi_solver_row* rows;
    float* times;
    bool* guided;
    case_prompt prompts[2];
    int32_t prompt_count; // 2: guided
    case_pictures pictures;
    array noise, posterior_noise;
    uint8_t* start;     // the start picture, with the channels of the family; NULL: none
    float* latent_mask; // NULL: no mask
    // Taken while it runs. previews: [3 * steps, pixels].
    array latents, start_latents, clean, velocities, decoded_from, references, previews;
} pipe_job;
void free_pipe(pipe_job* j); // what it has, not itself

// Sigmas of the rule, solver rows and guidance. usual_steps: where the case names none. False after reporting.
bool make_pipe_schedule(golden_case* c, pipe_job* j, const sumi_sigma_rule* rule, int32_t usual_steps);

// One run, whose results are those of KIND.
typedef struct pipe_way {
    const char* kind;
    bool rounds; // the times as the library's recipe has them
    bool shares; // the prompts' beginning is computed once
    const sumi_adapter_use* adapter;
    // What only this family compares, behind the latents and before the picture.
    void (*compare)(golden_case* c, const char* kind, const pipe_job* j, plan_run* run);
} pipe_way;
void run_pipe(golden_case* c, pipe_job* j, const pipe_way* way);

array step_of(const pipe_job* j, int32_t step); // the latents after a step
#endif
