// What the files of sumi generate share: its arguments and its state. generate.c runs the job, products.c writes what
// comes of it.
#ifndef GENERATE_H
#define GENERATE_H
#include "control_options.h"
#include "dump.h"
#include "files.h"
#include "fit.h"
#include "json_out.h"
#include "lora_options.h"
#include "parameters.h"
#include "picture.h"
#include "prompt_lines.h"
#include "session.h"
#include "xml.h"

#define MAX_ITEMS 64 // of one job
#define MAX_PICTURES 1000000
#define MAX_REFERENCES 10 // as many as any model takes

typedef struct generate_args {
    session_args session;
    xml_args xml; // replaces `prompts` by one prompt in XML
    text_list prompts, encoded_prompts, loras, references;
    control_args controls;
    const char *prompts_path, *negative, *negative_file, *image, *latents, *mask, *noise, *posterior_noise,
        *latents_out, *preview_dir, *trace, *dump, *output, *step_cache_text;
    int32_t size[2], steps, batch, solver, preset, guidance_rule, noise_kind, posterior, multiprocessors, deadline_ms,
        preview_every, mask_feather, quality, fit;
    float guidance, guidance_begin, guidance_end, guidance_norm, shift, strength;
    parameters step_cache; // what step_cache_text says
    uint64_t seed;
    bool profile, is_json, no_clobber;
} generate_args;

typedef struct file_bytes {
    void* data;
    size_t bytes;
} file_bytes;

typedef struct generate_run {
    const cli_command* command;
    generate_args* args;
    prompt_lines lines;             // all prompts of this run
    char* texts[TEXT_LIST_MAX + 1]; // what "@FILE" was read into
    // A job makes the pictures of this many prompts: of one with --prompts, so that each picture is written when it is
    // ready and memory does not grow with the number of lines; else of all.
    int32_t job_prompt_count;
    int32_t picture_count; // of all jobs
    int32_t first_picture; // of the current job: `items` and `images` have the job's alone
    cli_session session;
    trace_writer trace;
    picture_file image, mask, references[MAX_REFERENCES];
    picture_part image_part; // that the current job uses
    file_tensor latents, noise, posterior_noise;
    sumi_pixels image_pixels, mask_pixels, reference_pixels[MAX_REFERENCES];
    float* noise_values; // of all items
    file_bytes encoded_prompts[MAX_ITEMS], encoded_negative;
    sumi_prompt* prompts[MAX_ITEMS]; // of --encoded-prompt
    sumi_prompt* negative;
    lora_list loras;
    control_list controls;
    sumi_image_item items[MAX_ITEMS];
    sumi_image images[MAX_ITEMS];
    sumi_image_desc desc;
    sumi_size preset_size;
    uint32_t preview_version; // version of the newest preview that was written
    void* preview_pixels;
    dump dump; // of --dump
    sumi_profile_row* rows;
    int32_t row_count;
    json_out json; // of --json; its depth is 0 until the first job is done
    char message[FILES_MESSAGE_BYTES];
} generate_run;

// Prints run->message and returns EXIT_FAILED.
int generate_fail(const generate_run* run);

// products.c. Those that return an exit code have printed why they failed.
int products_check_outputs(const generate_run* run);
void products_write_previews(void* context, sumi_job job,
                             const sumi_job_status* status); // of session_run; context: the run
int products_write_latents(generate_run* run, sumi_job job);
int products_read_profile(generate_run* run, sumi_job job); // before the fetch, which ends the job
int products_write_images(generate_run* run);               // of a job; each is told when it is written
// Profile and time; or the end of the JSON, which tells the images of the jobs that are done.
void products_print(generate_run* run, double seconds);
#endif
