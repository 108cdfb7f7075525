// The files of a dump: dump.safetensors, whose tensors are numbers that the job has computed, and dump.json, which says
// with which settings. The prompts are encoded by jobs of their own, and the noise is drawn here: a job that is given
// both makes the same image, bit for bit. The job is paused after every step (sumi_job_pause), which changes no bit
// either, so that its latents can be copied.
#include "dump.h"
#include "generate.h"
#include "inside.h"
#include "parameters.h"
#include "system.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TENSORS_NAME "dump.safetensors"
#define SETTINGS_NAME "dump.json"
#define READ_WORK UINT64_MAX // all of a text at once

// ---- Checks ---------------------------------------------------------------------------------------------------------

int dump_check_args(const generate_run* run)
{
    const generate_args* args = run->args;
    const struct {
        bool is_given;
        const char* option;
    } refused[] = {
        {args->encoded_prompts.count > 0, "--encoded-prompt"},
        {args->negative_file != NULL, "--negative-file"},
        {args->prompts_path != NULL, "--prompts"},
        {args->prompts.count > 1, "more than one --prompt"},
        {args->batch > 1, "--batch"},
        {args->image != NULL, "--image"},
        {args->latents != NULL, "--latents"},
        {args->deadline_ms > 0, "--deadline-ms"},
        {args->step_cache_text != NULL, "--step-cache"},
        {args->preview_dir != NULL, "--preview-dir"},
        {args->profile, "--profile"},
    };
    if (!args->dump[0]) return args_wrong(run->command, "the path of an output is empty: name a folder");
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        if (refused[i].is_given)
            return args_wrong(run->command,
                              "--dump writes what one image from one prompt and noise has computed: leave %s out",
                              refused[i].option);
    }
    return EXIT_OK;
}

static bool dump_path(const generate_run* run, const char* name, char* into, size_t capacity)
{
    const int length = snprintf(into, capacity, "%s/%s", run->args->dump, name);
    return length > 0 && (size_t)length < capacity;
}

int dump_check_output(const generate_run* run)
{
    char path[900], message[FILES_MESSAGE_BYTES];
    static const char* const s_names[] = {TENSORS_NAME, SETTINGS_NAME};
    system_make_folder(run->args->dump); // the check below reports a folder that cannot be used
    for (size_t i = 0; i < sizeof s_names / sizeof *s_names; i++) {
        if (!dump_path(run, s_names[i], path, sizeof path))
            return args_wrong(run->command, "the path of the dump is too long");
        if (!output_is_possible(path, message)) {
            fprintf(stderr, "sumi: %s\n", message);
            return EXIT_FAILED;
        }
        if (run->args->no_clobber && system_look_at(path) == SYSTEM_FILE)
            return args_wrong(run->command, "%s is there already, and --no-clobber keeps it", path);
    }
    return EXIT_OK;
}

// ---- Before the job -------------------------------------------------------------------------------------------------

static sumi_result read_ids(sumi_model* model, const sumi_references* references, dump_prompt* prompt,
                            sumi_prompt_reader* reader, sumi_error* error)
{
    int32_t picture_tokens[SUMI_MAX_REFERENCES] = {0}, picture_rows[SUMI_MAX_REFERENCES];
    for (int32_t i = 0; i < references->count; i++) picture_tokens[i] = references->list[i].sizes.tokens;
    const sumi_prompt_text text = {.text = prompt->text,
                                   .bytes = strlen(prompt->text),
                                   .picture_tokens = picture_tokens,
                                   .picture_count = references->count};
    const int32_t capacity = model->info.max_prompt_tokens + sumi_references_tokens(references);
    for (int32_t e = 0; e < model->info.text_encoder_count; e++) {
        bool is_done = false;
        prompt->ids[e] = malloc((size_t)capacity * sizeof(int32_t));
        if (!prompt->ids[e]) return sumi_out_of_memory(error, (size_t)capacity * sizeof(int32_t), "the ids");
        const sumi_prompt_ids ids = {.ids = prompt->ids[e], .capacity = capacity, .picture_rows = picture_rows};
        SUMI_TRY(sumi_prompt_reader_begin(reader, model->network, e, &text, &ids, error));
        while (!is_done) SUMI_TRY(sumi_prompt_reader_step(reader, READ_WORK, &is_done, error));
        prompt->id_counts[e] = sumi_prompt_reader_count(reader);
        sumi_prompt_reader_end(reader);
    }
    return SUMI_OK;
}

static int read_all_ids(generate_run* run)
{
    dump* d = &run->dump;
    sumi_model* model = run->session.model;
    sumi_error error = {0};
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    sumi_references references = {.count = 0};
    sumi_prompt_reader* reader = NULL;
    sumi_result result =
        sumi_references_check(model, run->desc.references, run->desc.reference_count, &references, &error);
    if (result == SUMI_OK) result = sumi_prompt_reader_create(&heap, &error, &reader);
    for (int32_t i = 0; i < d->prompt_count && result == SUMI_OK; i++)
        result = read_ids(model, &references, &d->prompts[i], reader, &error);
    sumi_prompt_reader_destroy(reader);
    if (result == SUMI_OK) return EXIT_OK;
    snprintf(run->session.detail, sizeof run->session.detail, "%s", error.text);
    return session_fail(&run->session, result, "reading the prompt");
}

static int encode(generate_run* run, dump_prompt* prompt)
{
    cli_session* session = &run->session;
    sumi_prompt_desc desc = sumi_prompt_defaults(session->model);
    desc.text = prompt->text;
    desc.references = run->desc.references;
    desc.reference_count = run->desc.reference_count;
    desc.loras = run->desc.loras;
    desc.lora_count = run->desc.lora_count;
    sumi_job job;
    sumi_result result = sumi_submit_prompt(session->engine, &desc, &job);
    if (result != SUMI_OK) return session_fail(session, result, "encoding the prompt");
    const int code = session_run(session, job, "encoding the prompt", NULL, NULL);
    if (code != EXIT_OK) return code;
    result = sumi_fetch_prompt(session->engine, job, &prompt->encoded);
    return result == SUMI_OK ? EXIT_OK : session_fail(session, result, "encoding the prompt");
}

// Draws what the job would draw, so that the noise is known and the job is given it.
static void draw_noise(generate_run* run)
{
    dump* d = &run->dump;
    const sumi_noise* from = &run->desc.noise;
    const uint64_t seed =
        sumi_network_noise_seed(&run->session.model->info, d->item.seed, run->desc.reference_count > 0);
    if (from->source == SUMI_NOISE_GIVEN) {
        memcpy(d->noise, from->values, d->latent_count * sizeof(float));
    } else if (from->source == SUMI_NOISE_TORCH_CUDA) {
        sumi_torch_cuda_generator generator;
        sumi_torch_cuda_seed(&generator, seed, from->multiprocessors, from->threads_per_multiprocessor);
        sumi_torch_cuda_randn_range(&generator, d->noise, d->latent_count, 0, d->latent_count);
    } else {
        static sumi_torch_cpu_generator s_generator; // static because it is large
        sumi_torch_cpu_seed(&s_generator, seed);
        sumi_torch_cpu_randn(&s_generator, d->noise, d->latent_count);
    }
    d->asked_noise = *from;
    run->desc.noise.source = SUMI_NOISE_GIVEN;
    run->desc.noise.values = d->noise;
}

// The sigmas of the job: the model's own, or those of --shift.
static int write_sigmas(generate_run* run)
{
    const sumi_network_info* info = &run->session.model->info;
    const sumi_image_desc* desc = &run->desc;
    const sumi_sigma_rule shifted = {.kind = SUMI_SHIFT_STATIC, .shift = desc->shift};
    const int32_t cell = info->vae_factor * info->patch_size;
    sumi_error error = {0};
    const sumi_result result =
        sumi_schedule_write(desc->shift > 0.0f ? &shifted : &info->sigmas, desc->width / cell * (desc->height / cell),
                            desc->step_count, run->dump.sigmas, &error);
    if (result == SUMI_OK) return EXIT_OK;
    snprintf(run->session.detail, sizeof run->session.detail, "%s", error.text);
    return session_fail(&run->session, result, "writing the schedule");
}

int dump_prepare(generate_run* run)
{
    dump* d = &run->dump;
    const sumi_model_info info = sumi_model_get_info(run->session.model);
    sumi_image_desc* desc = &run->desc;
    d->latent_count = (size_t)info.latent_channels * (size_t)(desc->width / info.latent_factor)
                    * (size_t)(desc->height / info.latent_factor);
    const size_t steps = (size_t)desc->step_count;
    d->noise = malloc(d->latent_count * sizeof(float));
    d->sigmas = malloc((steps + 1) * sizeof(float));
    d->latents = malloc(steps * d->latent_count * sizeof(float));
    if (!d->noise || !d->sigmas || !d->latents)
        return session_fail(&run->session, SUMI_OUT_OF_HOST_MEMORY, "preparing the dump");
    d->item = run->items[0];
    d->is_complete = true;
    const bool is_guided = desc->guidance.scale != info.guidance_off && !info.ignores_guidance;
    d->prompts[0].text = d->item.text;
    d->prompts[1].text = d->item.negative_text ? d->item.negative_text : info.negative_text;
    d->prompt_count = is_guided ? 2 : 1;
    int code = read_all_ids(run);
    for (int32_t i = 0; i < d->prompt_count && code == EXIT_OK; i++) code = encode(run, &d->prompts[i]);
    if (code == EXIT_OK) code = write_sigmas(run);
    if (code != EXIT_OK) return code;
    draw_noise(run);
    d->item.text = d->item.negative_text = NULL;
    d->item.prompt = d->prompts[0].encoded;
    d->item.negative_prompt = d->prompts[1].encoded;
    desc->items = &d->item;
    return EXIT_OK;
}

// ---- While the job runs ---------------------------------------------------------------------------------------------

// A job that is paused in the middle of an evaluation stops where the next one begins. It must not be paused before it
// has gone on by a part of an evaluation: it would then get no farther.
void dump_watch(generate_run* run, sumi_job job, const sumi_job_status* status)
{
    dump* d = &run->dump;
    sumi_engine* engine = run->session.engine;
    if (status->state == SUMI_JOB_RUNNING && status->stage == SUMI_STAGE_DENOISE && !d->has_asked_pause)
        d->has_asked_pause = sumi_job_pause(engine, job, true) == SUMI_OK;
    if (status->state != SUMI_JOB_QUEUED || !status->paused) return;
    // With solvers of several evaluations it also stops within steps, where no step has been added.
    if (status->step > d->seen_steps) {
        float* into = d->latents + (size_t)(status->step - 1) * d->latent_count;
        d->is_complete = d->is_complete && status->step == d->seen_steps + 1
                      && sumi_job_latents(engine, job, 0, into, d->latent_count) == SUMI_OK;
        d->seen_steps = status->step;
    }
    d->has_asked_pause = false;
    sumi_job_pause(engine, job, false);
}

int dump_finish(generate_run* run, sumi_job job)
{
    dump* d = &run->dump;
    const int32_t steps = run->desc.step_count;
    run->desc.noise = d->asked_noise; // which the picture file tells
    if (!d->is_complete || d->seen_steps != steps - 1) {
        snprintf(run->message, sizeof run->message,
                 "the job did not stop after step %d, so there is no dump; please report this", d->seen_steps + 1);
        return generate_fail(run);
    }
    const sumi_result result = sumi_job_latents(run->session.engine, job, 0,
                                                d->latents + (size_t)(steps - 1) * d->latent_count, d->latent_count);
    return result == SUMI_OK ? EXIT_OK : session_fail(&run->session, result, "reading the latents");
}

// ---- After the job --------------------------------------------------------------------------------------------------

typedef struct tensor_list {
    sumi_tensor tensors[32];
    char names[32][40];
    size_t count;
} tensor_list;

static void add(tensor_list* list, const char* name, sumi_dtype dtype, const void* data, int32_t rank,
                const int64_t* shape)
{
    sumi_tensor* tensor = &list->tensors[list->count];
    snprintf(list->names[list->count], sizeof list->names[0], "%s", name);
    *tensor = (sumi_tensor){.name = list->names[list->count], .dtype = dtype, .rank = rank, .data = data};
    tensor->bytes = dtype == SUMI_DTYPE_U8 ? 1 : 4;
    for (int32_t i = 0; i < rank; i++) {
        tensor->shape[i] = shape[i];
        tensor->bytes *= (uint64_t)shape[i];
    }
    list->count++;
}

static void add_prompt(tensor_list* list, const dump_prompt* prompt, const char* which)
{
    const sumi_prompt_info info = sumi_prompt_get_info(prompt->encoded);
    char name[40];
    for (int32_t e = 0; e < info.encoder_count; e++) {
        const sumi_prompt_encoder* encoder = &info.encoders[e];
        snprintf(name, sizeof name, "ids.%s.%d", which, e);
        add(list, name, SUMI_DTYPE_I32, prompt->ids[e], 1, (const int64_t[]){prompt->id_counts[e]});
        snprintf(name, sizeof name, "features.%s.%d", which, e);
        add(list, name, SUMI_DTYPE_F32, encoder->features, 2, (const int64_t[]){encoder->token_count, encoder->width});
    }
}

// The first prediction, from the first step of Euler's method: x1 = x0 + (sigma1 - sigma0) v. Rounding x1 to float32 costs
// v an error of about 2^-24 |x1| / (sigma0 - sigma1): 1e-6 with 8 steps, 1e-5 with 50, where bfloat16 makes one of 1e-2.
static float* first_prediction(const dump* d)
{
    float* prediction = malloc(d->latent_count * sizeof(float));
    const double distance = (double)d->sigmas[1] - (double)d->sigmas[0];
    for (size_t i = 0; prediction && i < d->latent_count; i++)
        prediction[i] = (float)(((double)d->latents[i] - (double)d->noise[i]) / distance);
    return prediction;
}

// RGB, or RGBA of a model that makes alpha.
static unsigned char* pixels_of(const sumi_image* image, int64_t channels)
{
    const size_t width = (size_t)image->width, height = (size_t)image->height, count = (size_t)channels;
    unsigned char* pixels = malloc(width * height * count);
    for (size_t y = 0; pixels && y < height; y++) {
        const unsigned char* row = (const unsigned char*)image->pixels + y * (size_t)image->row_bytes;
        for (size_t x = 0; x < width; x++) memcpy(pixels + (y * width + x) * count, row + x * 4, count);
    }
    return pixels;
}

static bool write_tensors(generate_run* run)
{
    const dump* d = &run->dump;
    const sumi_model_info info = sumi_model_get_info(run->session.model);
    const sumi_image_desc* desc = &run->desc;
    const int64_t steps = desc->step_count, rows = desc->height / info.latent_factor,
                  columns = desc->width / info.latent_factor;
    static tensor_list s_list; // static because it is large
    const bool has_prediction = desc->solver == SUMI_SOLVER_EULER;
    float* prediction = has_prediction ? first_prediction(d) : NULL;
    const int64_t channels = run->images[0].has_alpha ? 4 : 3;
    unsigned char* pixels = pixels_of(&run->images[0], channels);
    char path[900];
    dump_path(run, TENSORS_NAME, path, sizeof path); // dump_check_output has found that it fits
    bool is_written = pixels && (prediction || !has_prediction);
    void* data = NULL;
    if (is_written) {
        add_prompt(&s_list, &d->prompts[0], "positive");
        if (d->prompt_count > 1) add_prompt(&s_list, &d->prompts[1], "negative");
        add(&s_list, "sigmas", SUMI_DTYPE_F32, d->sigmas, 1, (const int64_t[]){steps + 1});
        add(&s_list, "noise", SUMI_DTYPE_F32, d->noise, 3, (const int64_t[]){info.latent_channels, rows, columns});
        if (prediction)
            add(&s_list, "prediction", SUMI_DTYPE_F32, prediction, 3,
                (const int64_t[]){info.latent_channels, rows, columns});
        add(&s_list, "latents", SUMI_DTYPE_F32, d->latents, 4,
            (const int64_t[]){steps, info.latent_channels, rows, columns});
        add(&s_list, "pixels", SUMI_DTYPE_U8, pixels, 3,
            (const int64_t[]){run->images[0].height, run->images[0].width, channels});
        const sumi_metadata metadata = {.key = "format", .value = "sumi dump 1"};
        const uint64_t bytes = sumi_safetensors_write(s_list.tensors, s_list.count, &metadata, 1, NULL, 0);
        data = malloc((size_t)bytes);
        if (data) sumi_safetensors_write(s_list.tensors, s_list.count, &metadata, 1, data, bytes);
        is_written = data && file_write(path, data, (size_t)bytes, run->message);
    }
    if (!data) snprintf(run->message, sizeof run->message, "cannot write %s: no memory", path);
    free(data);
    free(pixels);
    free(prediction);
    return is_written;
}

static const char* format_name(sumi_weight_format format)
{
    static const char* const s_names[] = {"auto", "bf16", "fp8", "as-stored", "int8", "int4"};
    return (size_t)format < sizeof s_names / sizeof *s_names ? s_names[format] : "unknown";
}

static const char* rule_name(sumi_guidance_rule rule)
{
    static const char* const s_names[] = {"model", "plain", "norm-limit", "norm-rescale"};
    return (size_t)rule < sizeof s_names / sizeof *s_names ? s_names[rule] : "unknown";
}

static void write_files(json_out* out, const sumi_checkpoint* checkpoint)
{
    json_begin_array(out, "files");
    for (int32_t c = 0; c < SUMI_COMPONENT_COUNT; c++) {
        const sumi_tensor_set* set = checkpoint->components[c].present ? checkpoint->components[c].set : NULL;
        for (int32_t b = 0; b < c && set; b++) { // one file may hold several components
            if (checkpoint->components[b].present && checkpoint->components[b].set == set) set = NULL;
        }
        for (size_t i = 0; set && i < set->opened_count; i++) {
            json_begin_object(out, NULL);
            json_text(out, "path", set->opened[i].path);
            json_unsigned(out, "bytes", set->opened[i].bytes);
            json_end_object(out);
        }
    }
    json_end_array(out);
}

static void write_model(json_out* out, const generate_run* run)
{
    const sumi_model_info info = sumi_model_get_info(run->session.model);
    const sumi_engine_info engine = sumi_engine_get_info(run->session.engine);
    const session_args* args = &run->args->session;
    json_text(out, "sumi", sumi_version());
    json_text(out, "backend", engine.backend);
    json_text(out, "device", engine.device);
    json_text(out, "model", args->model ? args->model : args->transformer);
    json_text(out, "family", info.family);
    json_text(out, "variant", info.variant);
    json_text(out, "weights", format_name(info.weights));
    json_text(out, "text_weights", format_name(info.text_weights));
    json_text(out, "attention", info.attention == SUMI_ATTENTION_8BIT ? "8bit" : "auto");
    write_files(out, &run->session.model->network->checkpoint);
}

static void write_job(json_out* out, const generate_run* run)
{
    const sumi_model_info info = sumi_model_get_info(run->session.model);
    const sumi_image_desc* desc = &run->desc;
    const generate_args* args = run->args;
    json_text(out, "prompt", run->dump.prompts[0].text);
    json_text(out, "negative", run->dump.prompt_count > 1 ? run->dump.prompts[1].text : NULL);
    json_begin_array(out, "references");
    for (int32_t i = 0; i < args->references.count; i++) json_text(out, NULL, args->references.texts[i]);
    json_end_array(out);
    json_begin_array(out, "loras");
    for (int32_t i = 0; i < args->loras.count; i++) json_text(out, NULL, args->loras.texts[i]);
    json_end_array(out);
    controls_put(out, &run->controls);
    json_integer(out, "width", desc->width);
    json_integer(out, "height", desc->height);
    json_integer(out, "steps", desc->step_count);
    json_number(out, "guidance", (double)desc->guidance.scale);
    json_number(out, "guidance_off", (double)info.guidance_off);
    json_number(out, "guidance_begin", (double)desc->guidance.begin);
    json_number(out, "guidance_end", (double)desc->guidance.end);
    json_text(out, "guidance_rule", rule_name(desc->guidance.rule));
    json_text(out, "guidance_rule_of_model", rule_name(info.guidance_rule));
    json_number(out, "norm_limit", (double)desc->guidance.norm_limit);
    json_text(out, "solver", parameters_solver_name(desc->solver));
    json_number(out, "shift", (double)desc->shift);
    json_unsigned(out, "seed", run->dump.item.seed);
    json_text(out, "noise", args->noise ? "given" : args->noise_kind == (int)SUMI_NOISE_TORCH_CUDA ? "cuda" : "cpu");
    json_integer(out, "latent_channels", info.latent_channels);
    json_integer(out, "latent_factor", info.latent_factor);
}

static bool write_settings(generate_run* run)
{
    char path[900], part[1200];
    dump_path(run, SETTINGS_NAME, path, sizeof path);
    output_path(path, part, sizeof part);
    json_out out = {.file = system_open(part, "wb")};
    if (!out.file) {
        snprintf(run->message, sizeof run->message, "cannot write %s", path);
        return false;
    }
    json_begin_object(&out, NULL);
    json_text(&out, "format", "sumi dump 1");
    json_text(&out, "tensors", TENSORS_NAME);
    write_model(&out, run);
    write_job(&out, run);
    json_end_object(&out);
    bool is_written = !ferror(out.file);
    is_written = fclose(out.file) == 0 && is_written;
    if (!is_written)
        snprintf(run->message, sizeof run->message, "%s could not be written whole: is the disk full?", path);
    return output_finish(path, part, is_written, run->message);
}

int dump_write(generate_run* run) { return write_tensors(run) && write_settings(run) ? EXIT_OK : generate_fail(run); }

void dump_free(generate_run* run)
{
    dump* d = &run->dump;
    for (int32_t i = 0; i < 2; i++) {
        for (int32_t e = 0; e < 4; e++) free(d->prompts[i].ids[e]);
    }
    free(d->noise);
    free(d->sigmas);
    free(d->latents);
}
