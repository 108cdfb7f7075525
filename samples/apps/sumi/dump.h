// sumi generate --dump: writes what every stage of a job has computed, so that another program can compare it with the
// model's reference implementation (samples/instruments/verify.py).
#ifndef DUMP_H
#define DUMP_H
#include "args.h"
#include <sumi.h>

struct generate_run;

typedef struct dump_prompt {
    const char* text;
    sumi_prompt* encoded; // of the engine
    int32_t* ids[4];      // by text encoder
    int32_t id_counts[4];
} dump_prompt;

typedef struct dump {
    dump_prompt prompts[2]; // the prompt; with guidance the negative one
    int32_t prompt_count;
    sumi_image_item item;   // the job's item, with encoded prompts
    sumi_noise asked_noise; // what the job was asked for before it was given `noise`
    float *noise, *sigmas, *latents;
    size_t latent_count;  // values of one picture's latents
    int32_t seen_steps;   // steps whose latents were copied
    bool is_complete;     // no step was missed
    bool has_asked_pause; // for the step that is running
} dump;

// Refuses what a dump does not describe. Both return an exit code, and have printed why if it is not EXIT_OK.
int dump_check_args(const struct generate_run* run);
// Makes the folder and finds out whether files can be written there.
int dump_check_output(const struct generate_run* run);
// Before the job is submitted: encodes its prompts, draws its noise, and puts both into the desc.
int dump_prepare(struct generate_run* run);
// After every slice of the job: stops it after each step, copies the latents, and lets it go on.
void dump_watch(struct generate_run* run, sumi_job job, const sumi_job_status* status);
// When the job is done and before the fetch: copies the latents after its last step, behind which it does not stop.
int dump_finish(struct generate_run* run, sumi_job job);
// When the images were fetched: writes the files. Prints nothing but failures.
int dump_write(struct generate_run* run);
void dump_free(struct generate_run* run);
#endif
