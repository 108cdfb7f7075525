// sumi generate: makes picture files from prompts. Mistakes in arguments, input files and output paths are reported before
// the model is opened, so that nobody waits minutes for an image that cannot be written.
#include "generate.h"
#include "commands.h"
#include "inside.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOT_GIVEN (-1.0f) // value of an option that was not given, for numbers that are never negative

// ---- Checks before anything slow ------------------------------------------------------------------------------------

static int check_prompts(const cli_command* command, const generate_args* args)
{
    const bool is_xml = xml_is_given(&args->xml), has_texts = args->prompts.count > 0,
               is_encoded = args->encoded_prompts.count > 0, has_file = args->prompts_path != NULL;
    if (is_xml && (has_texts || is_encoded || has_file))
        return args_wrong(command, "--character, --tags and --caption make the prompt: leave --prompt, --prompts and "
                                   "--encoded-prompt out");
    if (!is_xml && !has_texts && !is_encoded && !has_file)
        return args_wrong(command, "give a prompt: --prompt TEXT, --prompts FILE for a file with one in each line, "
                                   "--encoded-prompt FILE for one that sumi encode made, or --character, --tags and "
                                   "--caption for one in XML");
    if (has_texts && is_encoded) return args_wrong(command, "--prompt and --encoded-prompt exclude each other");
    if (has_file && (has_texts || is_encoded))
        return args_wrong(command, "--prompts and %s exclude each other", has_texts ? "--prompt" : "--encoded-prompt");
    if (is_encoded && args->negative)
        return args_wrong(command, "with --encoded-prompt the negative prompt is encoded too: use --negative-file");
    if (args->negative && args->negative_file)
        return args_wrong(command, "--negative and --negative-file exclude each other");
    return EXIT_OK;
}

// Checks what depends on the number of prompts, and decides what a job makes.
static int count_pictures(generate_run* run)
{
    const generate_args* args = run->args;
    const cli_command* command = run->command;
    const int64_t count = (int64_t)run->lines.count * args->batch;
    if (!args->prompts_path && count > MAX_ITEMS)
        return args_wrong(command,
                          "%d prompts times --batch %d are %d pictures; one run makes at most %d, and more "
                          "with --prompts FILE",
                          run->lines.count, args->batch, (int)count, MAX_ITEMS);
    if (count > MAX_PICTURES)
        return args_wrong(command, "%d prompts times --batch %d are more than %d pictures: divide the file",
                          run->lines.count, args->batch, MAX_PICTURES);
    run->picture_count = (int32_t)count;
    run->job_prompt_count = args->prompts_path ? 1 : run->lines.count;
    if (is_standard_output(args->output) && count > 1)
        return args_wrong(command, "-o - writes one picture to standard output, and this makes %d: name a file",
                          run->picture_count);
    if (run->job_prompt_count < run->lines.count && (args->latents_out || args->profile))
        return args_wrong(command, "%s is of one job, and --prompts makes a job of each of %d lines: leave it out",
                          args->latents_out ? "--latents-out" : "--profile", run->lines.count);
    return EXIT_OK;
}

static int check_args(const cli_command* command, generate_args* args)
{
    if (!args->session.model && !args->session.transformer) return args_wrong(command, "give the model: --model PATH");
    const int code = check_prompts(command, args);
    if (code != EXIT_OK) return code;
    if (!args->output) return args_wrong(command, "say where the picture goes: -o out.png");
    if (is_standard_output(args->output) && args->is_json)
        return args_wrong(command, "--json and -o - both write to standard output: name a file for the picture");
    if (args->image && args->latents)
        return args_wrong(command, "--image and --latents exclude each other: both are the picture to start from");
    bool starts = args->image || args->latents;
    if (args->mask && !starts) return args_wrong(command, "--mask needs the picture it belongs to: --image FILE");
    if (args->strength >= 0.0f && !starts)
        return args_wrong(command, "--strength needs a picture to start from: --image FILE");
    if (args->posterior_noise && !args->image) return args_wrong(command, "--posterior-noise needs --image FILE");
    if (args->preview_every > 0 && !args->preview_dir)
        return args_wrong(command, "--preview-every needs --preview-dir FOLDER");
    if (args->step_cache_text && !parameters_read_step_cache(args->step_cache_text, &args->step_cache))
        return args_wrong(command,
                          "--step-cache %s: give auto, auto:DB with 0 to 99 dB, every:N with 2 to 10, or a change of 0 "
                          "to 10 such as 0.08",
                          args->step_cache_text);
    const int lora_code = loras_check(command, &args->loras);
    if (lora_code != EXIT_OK) return lora_code;
    const int control_code = controls_check(command, &args->controls);
    if (control_code != EXIT_OK) return control_code;
    if (args->references.count > MAX_REFERENCES)
        return args_wrong(command, "at most %d references at once", MAX_REFERENCES);
    if (args->guidance_begin >= 0.0f && args->guidance_end >= 0.0f && args->guidance_begin > args->guidance_end)
        return args_wrong(command, "--guidance-begin %g lies behind --guidance-end %g", (double)args->guidance_begin,
                          (double)args->guidance_end);
    return EXIT_OK;
}

int generate_fail(const generate_run* run)
{
    fprintf(stderr, "sumi: %s\n", run->message);
    return EXIT_FAILED;
}

// Makes run->lines of what the prompts are: XML, texts, files of texts, encoded prompts.
static int read_prompts(generate_run* run)
{
    generate_args* args = run->args;
    int code = EXIT_OK;
    char** memory = run->texts;
    if (args->negative) code = prompt_text_read(run->command, "--negative", &args->negative, memory++);
    for (int32_t i = 0; i < args->prompts.count && code == EXIT_OK; i++)
        code = prompt_text_read(run->command, "--prompt", &args->prompts.texts[i], memory++);
    if (code == EXIT_OK && xml_is_given(&args->xml)) {
        code = xml_make(run->command, &args->xml, memory);
        args->prompts = (text_list){{*memory}, 1};
        if (code == EXIT_OK && !args->session.quiet) fprintf(stderr, "sumi: the prompt is\n%s\n", *memory);
    }
    if (code != EXIT_OK) return code;
    if (args->prompts_path) return prompt_lines_read(run->command, args->prompts_path, &run->lines);
    run->lines.count = args->prompts.count + args->encoded_prompts.count;
    run->lines.lines = calloc((size_t)run->lines.count, sizeof *run->lines.lines);
    if (!run->lines.lines) {
        fprintf(stderr, "sumi: %s\n", sumi_result_text(SUMI_OUT_OF_HOST_MEMORY));
        return EXIT_FAILED;
    }
    for (int32_t i = 0; i < args->prompts.count; i++) run->lines.lines[i].text = args->prompts.texts[i];
    return EXIT_OK;
}

static bool read_encoded(generate_run* run, const char* path, file_bytes* out)
{
    if (!file_read(path, ENCODED_MAX_BYTES, &out->data, &out->bytes, run->message)) return false;
    if (!file_is_text(out->data, out->bytes)) return true;
    snprintf(
        run->message, sizeof run->message,
        "%s is no encoded prompt: this is a text file; use --prompt @FILE, or --prompts FILE for one with a prompt "
        "in each line",
        path);
    return false;
}

static bool read_inputs(generate_run* run)
{
    const generate_args* args = run->args;
    for (int32_t i = 0; i < args->encoded_prompts.count; i++) {
        if (!read_encoded(run, args->encoded_prompts.texts[i], &run->encoded_prompts[i])) return false;
    }
    if (args->negative_file && !read_encoded(run, args->negative_file, &run->encoded_negative)) return false;
    if (args->image && !picture_read(args->image, 0, &run->image, run->message)) return false;
    if (args->mask && !picture_read(args->mask, 1, &run->mask, run->message)) return false;
    if (!controls_read(&args->controls, &run->controls, run->message)) return false;
    for (int32_t i = 0; i < args->references.count; i++) {
        if (!picture_read(args->references.texts[i], 0, &run->references[i], run->message)) return false;
    }
    if (args->latents && !tensor_read(args->latents, &run->latents, run->message)) return false;
    if (args->noise && !tensor_read(args->noise, &run->noise, run->message)) return false;
    return !args->posterior_noise || tensor_read(args->posterior_noise, &run->posterior_noise, run->message);
}

// ---- Prompts and adapters -------------------------------------------------------------------------------------------

static int load_prompt(generate_run* run, const char* path, file_bytes* file, sumi_prompt** out_prompt)
{
    run->session.detail[0] = 0;
    sumi_result result = sumi_prompt_load(run->session.model, file->data, file->bytes, out_prompt);
    free(file->data);
    file->data = NULL;
    if (result == SUMI_OK) return EXIT_OK;
    char doing[600];
    snprintf(doing, sizeof doing, "reading the prompt %s", path);
    return session_fail(&run->session, result, doing);
}

static int load_prompts(generate_run* run)
{
    const generate_args* args = run->args;
    int code = EXIT_OK;
    if (args->negative_file) code = load_prompt(run, args->negative_file, &run->encoded_negative, &run->negative);
    for (int32_t i = 0; i < args->encoded_prompts.count && code == EXIT_OK; i++)
        code = load_prompt(run, args->encoded_prompts.texts[i], &run->encoded_prompts[i], &run->prompts[i]);
    return code;
}

// Fills in the items of the job that begins with prompt `first`. Seeds count up over all pictures of the run; a seed of
// a line counts up over the pictures of that line, and leaves those of the others as they are.
static void make_items(generate_run* run, int32_t first)
{
    const generate_args* args = run->args;
    run->first_picture = first * args->batch;
    run->desc.items = run->items;
    run->desc.item_count = run->job_prompt_count * args->batch;
    for (int32_t i = 0; i < run->desc.item_count; i++) {
        const prompt_line* line = &run->lines.lines[first + i / args->batch];
        run->items[i] = (sumi_image_item){
            .text = line->text,
            .prompt = line->text ? NULL : run->prompts[first + i / args->batch],
            .negative_text = run->negative ? NULL : args->negative,
            .negative_prompt = run->negative,
            .seed = line->has_seed ? line->seed + (uint64_t)(i % args->batch)
                                   : args->seed + (uint64_t)(run->first_picture + i),
        };
    }
}

// ---- The desc -------------------------------------------------------------------------------------------------------

static sumi_pixels pixels_of(const picture_file* image)
{
    return (sumi_pixels){
        .data = image->pixels, .width = image->width, .height = image->height, .channel_count = image->channel_count};
}

// Chooses the size of a line, else --size, else the size of the start image, else that of the preset. 0 x 0: the size
// follows from references, see follow_references.
static int choose_size(generate_run* run, const prompt_line* line)
{
    const sumi_model_info info = sumi_model_get_info(run->session.model);
    sumi_image_desc* desc = &run->desc;
    const generate_args* args = run->args;
    const int32_t multiple = info.size_multiple > 0 ? info.size_multiple : 16;
    char said[1100] = "--size ";
    desc->width = run->preset_size.width;
    desc->height = run->preset_size.height;
    if (line->size[0] > 0) {
        desc->width = line->size[0], desc->height = line->size[1];
        prompt_line_name(line, args->prompts_path, said, sizeof said - 16);
        strcat(said, ": size=");
    } else if (args->size[0] > 0) {
        desc->width = args->size[0], desc->height = args->size[1];
    } else if (run->image.pixels) {
        const sumi_size size = fit_size(&run->image, multiple, info.max_size);
        desc->width = size.width, desc->height = size.height;
        if (size.width == 0 || size.height == 0)
            return args_wrong(run->command, "%s is %dx%d, which is no size this model makes: give --size", args->image,
                              run->image.width, run->image.height);
    } else if (run->latents.rank >= 2) {
        desc->height = (int32_t)run->latents.shape[run->latents.rank - 2] * info.latent_factor;
        desc->width = (int32_t)run->latents.shape[run->latents.rank - 1] * info.latent_factor;
    } else if (args->references.count > 0 && info.takes_references) {
        desc->width = desc->height = 0;
    }
    if (desc->width % multiple || desc->height % multiple) {
        int32_t width = (desc->width + multiple / 2) / multiple * multiple,
                height = (desc->height + multiple / 2) / multiple * multiple;
        return args_wrong(run->command, "%s%dx%d: this model makes multiples of %d, as in %dx%d", said, desc->width,
                          desc->height, multiple, width < multiple ? multiple : width,
                          height < multiple ? multiple : height);
    }
    if (desc->width > info.max_size || desc->height > info.max_size)
        return args_wrong(run->command, "%s%dx%d: this model makes at most %d pixels along a side", said, desc->width,
                          desc->height, info.max_size);
    return EXIT_OK;
}

static int check_count(generate_run* run, const char* option, const char* source, const file_tensor* tensor,
                       size_t needed, size_t or_needed)
{
    if (!tensor->values || tensor->count == needed || tensor->count == or_needed) return EXIT_OK;
    return args_wrong(run->command, "%s %s: %zu values do not fit; %dx%d pixels need %zu", option, source,
                      tensor->count, run->desc.width, run->desc.height, needed);
}

// Noise for one item is used for all items of the batch.
static int give_noise(generate_run* run, size_t item_values)
{
    sumi_image_desc* desc = &run->desc;
    const generate_args* args = run->args;
    size_t all = item_values * (size_t)desc->item_count;
    int code = check_count(run, "--noise", args->noise, &run->noise, item_values, all);
    if (code == EXIT_OK) code = check_count(run, "--latents", args->latents, &run->latents, item_values, item_values);
    if (code == EXIT_OK)
        code = check_count(run, "--posterior-noise", args->posterior_noise, &run->posterior_noise, item_values,
                           item_values);
    if (code != EXIT_OK) return code;
    desc->start.latents = run->latents.values;
    desc->start.noise_values = run->posterior_noise.values;
    if (!run->noise.values) return EXIT_OK;
    free(run->noise_values); // of the job before
    run->noise_values = malloc(all * sizeof(float));
    if (!run->noise_values) return session_fail(&run->session, SUMI_OUT_OF_HOST_MEMORY, "preparing the noise");
    for (size_t i = 0; i < all; i += run->noise.count)
        memcpy(run->noise_values + i, run->noise.values, run->noise.count * sizeof(float));
    desc->noise.source = SUMI_NOISE_GIVEN;
    desc->noise.values = run->noise_values;
    return EXIT_OK;
}

// Asks the library for the image size once the desc is complete. The rest of this run uses that size.
static int follow_references(generate_run* run)
{
    sumi_image_desc* desc = &run->desc;
    sumi_size size;
    if (desc->width != 0 || desc->height != 0) return EXIT_OK;
    sumi_result result = sumi_image_size(desc, &size);
    if (result != SUMI_OK) return session_fail(&run->session, result, "starting the picture");
    desc->width = size.width;
    desc->height = size.height;
    return EXIT_OK;
}

static void set_numbers(const generate_args* args, sumi_image_desc* desc)
{
    if (args->steps > 0) desc->step_count = args->steps;
    if (args->guidance >= 0.0f) desc->guidance.scale = args->guidance;
    if (args->guidance_rule >= 0) desc->guidance.rule = (sumi_guidance_rule)args->guidance_rule;
    if (args->guidance_begin >= 0.0f) desc->guidance.begin = args->guidance_begin;
    if (args->guidance_end >= 0.0f) desc->guidance.end = args->guidance_end;
    if (args->guidance_norm >= 0.0f) desc->guidance.norm_limit = args->guidance_norm;
    if (args->shift > 0.0f) desc->shift = args->shift;
    if (args->solver >= 0) desc->solver = (sumi_solver)args->solver;
    if (args->noise_kind >= 0) desc->noise.source = (sumi_noise_source)args->noise_kind;
    if (args->multiprocessors > 0) desc->noise.multiprocessors = args->multiprocessors;
    if (args->posterior >= 0) desc->start.posterior = (sumi_posterior)args->posterior;
    if (args->strength >= 0.0f) desc->start.strength = args->strength;
    desc->deadline_ms = (uint32_t)args->deadline_ms;
    desc->step_cache = args->step_cache.step_cache;
    desc->step_cache_db = args->step_cache.step_cache_db;
    desc->step_cache_every = args->step_cache.step_cache_every;
    desc->profile = args->profile;
    if (args->preview_dir) desc->preview_every = args->preview_every > 0 ? args->preview_every : 1;
}

static void set_pictures(generate_run* run)
{
    const generate_args* args = run->args;
    sumi_image_desc* desc = &run->desc;
    for (int32_t i = 0; i < args->references.count; i++) run->reference_pixels[i] = pixels_of(&run->references[i]);
    desc->references = args->references.count > 0 ? run->reference_pixels : NULL;
    desc->reference_count = args->references.count;
    if (run->image.pixels) desc->start.image = &run->image_pixels; // fit_pictures sets it, and the mask
    if (run->mask.pixels) {
        desc->start.mask = &run->mask_pixels;
        desc->start.mask_feather = args->mask_feather;
        desc->start.strength = 1.0f; // start from pure noise: the repainted region must not depend on its old content
    }
}

// "...-4steps-V1.0": the number of steps in an adapter's name. 0: it has none. No released adapter says it in its
// metadata.
static int32_t steps_of_name(const char* name)
{
    for (const char* at = name; (at = strstr(at, "step")) != NULL; at++) {
        const char* digit = at;
        if (digit > name && (digit[-1] == '-' || digit[-1] == '_')) digit--;
        if (digit > name && digit[-1] >= '1' && digit[-1] <= '9'
            && (digit - 1 == name || digit[-2] < '0' || digit[-2] > '9'))
            return digit[-1] - '0';
    }
    return 0;
}

// The static shift of a schedule that ends at zero; 0: it is of another kind. A dynamic one whose ends are equal is
// static, too.
static float static_shift(const sumi_sigma_rule* rule)
{
    const bool is_constant = rule->kind == SUMI_SHIFT_DYNAMIC && rule->dynamic.curve == SUMI_CURVE_EXPONENTIAL
                          && rule->dynamic.base_shift == rule->dynamic.max_shift;
    return rule->terminal > 0.0f           ? 0.0f
         : rule->kind == SUMI_SHIFT_STATIC ? rule->shift
         : is_constant                     ? (float)exp(rule->dynamic.base_shift)
                                           : 0.0f;
}

// Tells what goes unsaid where a model or an adapter was made for few steps and the job takes the settings of others.
static void note_few_steps(const generate_run* run)
{
    const generate_args* args = run->args;
    const sumi_image_desc* desc = &run->desc;
    const sumi_image_desc fast = sumi_image_defaults(run->session.model, SUMI_PRESET_FAST);
    const float shift = static_shift(&run->session.model->info.sigmas); // of the scheduler's file
    if (args->session.quiet) return;
    if (sumi_model_get_info(run->session.model).uses_guidance && desc->step_count > 2 * fast.step_count
        && fast.shift > 0.0f && fabsf(shift - fast.shift) < 1e-3f)
        fprintf(stderr,
                "sumi: the scheduler file of this model has the schedule of models that were distilled to few steps "
                "(static shift %g, which is used); if this is one, give --preset fast: %d steps, no guidance\n",
                (double)fast.shift, fast.step_count);
    for (int32_t i = 0; i < args->loras.count; i++) {
        const int32_t steps = steps_of_name(run->loras.names[i]);
        if (steps == 0 || desc->step_count <= 2 * steps) continue;
        fprintf(stderr,
                "sumi: the name of the adapter %s says that it is for %d steps, and this makes %d; give "
                "--preset fast --steps %d, which is without guidance\n",
                shown(run->loras.names[i]), steps, desc->step_count, steps);
    }
}

// Sets what all jobs share, and checks what the jobs to come add, so that no job is refused after others have run.
static int make_desc(generate_run* run)
{
    const generate_args* args = run->args;
    sumi_model_info info = sumi_model_get_info(run->session.model);
    sumi_image_desc* desc = &run->desc;
    run->session.progress.reads_references = args->references.count > 0;
    *desc = sumi_image_defaults(run->session.model, (sumi_preset)args->preset);
    run->preset_size = (sumi_size){desc->width, desc->height};
    int code = EXIT_OK;
    for (int32_t i = 0; i < run->lines.count && code == EXIT_OK; i++) code = choose_size(run, &run->lines.lines[i]);
    if (code == EXIT_OK) code = load_prompts(run);
    if (code == EXIT_OK) code = loras_load(&run->session, &args->loras, &run->loras);
    if (code == EXIT_OK) code = controls_load(&run->session, &args->controls, &run->controls);
    if (code != EXIT_OK) return code;
    desc->controls = run->controls.uses;
    desc->control_count = args->controls.nets.count;
    desc->loras = run->loras.uses;
    desc->lora_count = args->loras.count;
    set_pictures(run);
    set_numbers(args, desc);
    if (args->encoded_prompts.count > 0 && desc->guidance.scale != info.guidance_off && !args->negative_file
        && !info.ignores_guidance)
        return args_wrong(
            run->command,
            "guidance with --encoded-prompt needs --negative-file FILE (sumi encode --prompt \"%s\" makes "
            "one of the model's own negative text) or --guidance %g",
            info.negative_text, (double)info.guidance_off);
    note_few_steps(run);
    if (args->preset == SUMI_PRESET_FAST && info.uses_guidance && args->loras.count == 0 && !args->session.quiet)
        fprintf(stderr, "sumi: --preset fast is for models that were distilled to few steps; with this one it needs an "
                        "adapter that makes it so: --lora FILE\n");
    const bool has_negative = args->negative || args->negative_file;
    if (info.ignores_guidance) return EXIT_OK; // the library's log says what is not used
    if (!info.uses_guidance && args->guidance >= 0.0f && desc->guidance.scale != info.guidance_off
        && (!has_negative || args->guidance == 1.0f) && !args->session.quiet)
        fprintf(stderr,
                "sumi: --guidance %g: this model is made to run without guidance, which is %g here%s; any other number "
                "doubles the work of a step and changes the picture\n",
                (double)args->guidance, (double)info.guidance_off,
                args->guidance == 1.0f ? " (1 is none in ComfyUI, not here)" : "");
    if (has_negative && desc->guidance.scale == info.guidance_off && !args->session.quiet)
        fprintf(stderr, "sumi: the negative prompt has no effect without guidance; add --guidance 4 (models like Turbo "
                        "are made to run without)\n");
    return EXIT_OK;
}

// Gives the job the part of the start picture that fits its size, and the same part of the mask.
static void fit_pictures(generate_run* run, bool is_reduced)
{
    const generate_args* args = run->args;
    const sumi_size size = {run->desc.width, run->desc.height};
    if (run->mask.pixels) run->mask_pixels = pixels_of(&run->mask);
    if (!run->image.pixels) return;
    const picture_part part = fit_part(&run->image, size, (picture_fit)args->fit), before = run->image_part;
    run->image_part = part;
    run->image_pixels = fit_pixels(&run->image, part);
    if (run->mask.pixels) run->mask_pixels = fit_pixels(&run->mask, fit_part_of(&run->mask, &run->image, part));
    const bool is_told = part.width == before.width && part.height == before.height; // for another job
    if (!args->session.quiet && !is_told) fit_tell(args->image, &run->image, part, size, is_reduced);
}

// Completes the desc for the job that begins with prompt `first`.
static int make_job(generate_run* run, int32_t first)
{
    const sumi_model_info info = sumi_model_get_info(run->session.model);
    const sumi_image_desc* desc = &run->desc;
    make_items(run, first);
    int code = choose_size(run, &run->lines.lines[first]);
    if (code == EXIT_OK) code = follow_references(run);
    if (code != EXIT_OK) return code;
    const bool is_chosen = run->args->size[0] > 0 || run->lines.lines[first].size[0] > 0;
    fit_pictures(run, !is_chosen && fit_reduces(&run->image, info.max_size));
    if (first == 0 && !run->args->session.quiet)
        controls_note(&run->session, &run->args->controls, &run->controls, (sumi_size){desc->width, desc->height});
    return give_noise(run, (size_t)info.latent_channels * (size_t)(desc->width / info.latent_factor)
                               * (size_t)(desc->height / info.latent_factor));
}

// ---- The whole command ----------------------------------------------------------------------------------------------

static void print_memory(generate_run* run)
{
    sumi_memory memory;
    if (!run->args->session.verbose || sumi_image_memory(run->session.engine, &run->desc, &memory) != SUMI_OK) return;
    fprintf(stderr,
            "sumi: this job takes %.1f MB of intermediate values, %.1f MB of buffers, %.1f MB of pictures%s; the "
            "weights are %.1f MB of mapped files\n",
            1e-6 * (double)memory.arena, 1e-6 * (double)memory.staging, 1e-6 * (double)memory.images,
            memory.tiles_vae ? ", decoding in tiles" : "", 1e-6 * (double)memory.weights);
    if (memory.uncounted == 0) return;
    fprintf(stderr, "sumi: the driver and other programs have %.1f MB of the GPU, which no --memory-budget counts\n",
            1e-6 * (double)memory.uncounted);
}

static void watch_dump(void* context, sumi_job job, const sumi_job_status* status) { dump_watch(context, job, status); }

static int run_job(generate_run* run, int32_t first)
{
    const generate_args* args = run->args;
    cli_session* session = &run->session;
    int code = make_job(run, first);
    if (code == EXIT_OK && args->dump) code = dump_prepare(run);
    if (code != EXIT_OK) return code;
    char doing[1200] = "making the picture";
    if (args->prompts_path) {
        strcat(doing, " of ");
        prompt_line_name(&run->lines.lines[first], args->prompts_path, doing + strlen(doing),
                         sizeof doing - strlen(doing));
        if (!args->session.quiet && run->lines.count > 1)
            fprintf(stderr, "sumi: %s, %d of %d\n", doing + strlen("making the picture of "), first + 1,
                    run->lines.count);
    }
    print_memory(run);
    sumi_job job;
    sumi_result result = sumi_submit_images(session->engine, &run->desc, &job);
    if (result != SUMI_OK) return session_fail(session, result, doing);
    run->preview_version = 0;
    session_seen* seen = args->dump ? watch_dump : args->preview_dir ? products_write_previews : NULL;
    code = session_run(session, job, doing, seen, run);
    free(run->preview_pixels); // the next job may have another size
    run->preview_pixels = NULL;
    if (code != EXIT_OK) return code;
    if (args->dump) code = dump_finish(run, job);
    if (args->latents_out && code == EXIT_OK) code = products_write_latents(run, job);
    if (args->profile && code == EXIT_OK) code = products_read_profile(run, job);
    const uint64_t fetch_ns = system_clock_ns();
    result = sumi_fetch_images(session->engine, job, run->images, run->desc.item_count);
    trace_call(&run->trace, "sumi_fetch_images", fetch_ns, system_clock_ns());
    if (result != SUMI_OK) return session_fail(session, result, "fetching the picture");
    if (code == EXIT_OK) code = products_write_images(run);
    if (args->dump && code == EXIT_OK) code = dump_write(run);
    sumi_images_release(session->engine, run->images, run->desc.item_count);
    return code;
}

static int generate(generate_run* run)
{
    const generate_args* args = run->args;
    cli_session* session = &run->session;
    double began = progress_clock();
    int code = products_check_outputs(run);
    if (code != EXIT_OK) return code;
    if (!read_inputs(run) || !trace_open(&run->trace, args->trace, run->message)) return generate_fail(run);
    session->trace = &run->trace;
    session->slices_are_operations = args->dump != NULL;
    code = session_open(session, &args->session);
    const bool is_encoded = args->encoded_prompts.count > 0; // such a prompt may hold references
    const bool encodes = args->image || args->references.count > 0 || args->controls.nets.count > 0 || is_encoded;
    if (code == EXIT_OK) code = session_load_model(session, is_encoded, !encodes);
    if (code == EXIT_OK) code = make_desc(run);
    int32_t done = 0;
    for (; done < run->lines.count && code == EXIT_OK; done += run->job_prompt_count) code = run_job(run, done);
    // JSON is complete also after a failure: it tells which pictures are there
    if (code == EXIT_OK || run->json.depth > 0) products_print(run, progress_clock() - began);
    return code;
}

static void close_run(generate_run* run)
{
    session_close(&run->session); // also frees prompts, adapters and images
    picture_free(&run->image);
    picture_free(&run->mask);
    controls_free(&run->controls);
    for (int32_t i = 0; i < MAX_REFERENCES; i++) picture_free(&run->references[i]);
    for (int32_t i = 0; i < MAX_ITEMS; i++) free(run->encoded_prompts[i].data);
    free(run->encoded_negative.data);
    for (int32_t i = 0; i <= TEXT_LIST_MAX; i++) free(run->texts[i]);
    prompt_lines_free(&run->lines);
    free(run->latents.values);
    free(run->noise.values);
    free(run->posterior_noise.values);
    free(run->noise_values);
    free(run->rows);
    dump_free(run);
}

int generate_main(int argc, char** argv)
{
    static generate_run s_run; // static because it is large; used once
    generate_args args = {.batch = 1,
                          .seed = system_random(), // 32 bits, which are easy to type
                          .solver = -1,
                          .guidance_rule = -1,
                          .noise_kind = -1,
                          .posterior = -1,
                          .guidance = NOT_GIVEN,
                          .guidance_begin = NOT_GIVEN,
                          .guidance_end = NOT_GIVEN,
                          .guidance_norm = NOT_GIVEN,
                          .shift = NOT_GIVEN,
                          .strength = NOT_GIVEN};
    const cli_option options[] = {
        MODEL_OPTIONS(&args.session),
        {"--prompt", OPTION_TEXTS, &args.prompts, "TEXT",
         "what to make; may be given several times. @FILE: the text in that file; @@ stands for one @", 0, 0},
        {"--prompts", OPTION_TEXT, &args.prompts_path, "FILE",
         "a prompt in each line, made one after another; -: of standard input. At a line's end seed=N and size=WxH are "
         "of this prompt alone. Blank lines are left out, and lines that begin with #",
         0, 0},
        {"--encoded-prompt", OPTION_TEXTS, &args.encoded_prompts, "FILE",
         "a prompt saved by sumi encode; no text encoder is opened", 0, 0},
        {"--prompt-file", OPTION_RENAMED, NULL, "--encoded-prompt", NULL, 0, 0},
        XML_OPTIONS(&args.xml),
        {"--negative", OPTION_TEXT, &args.negative, "TEXT",
         "with guidance: what to move away from, or @FILE. Without it the model's own text, which sumi info --model "
         "tells",
         0, 0},
        {"--negative-file", OPTION_TEXT, &args.negative_file, "FILE", "the same, saved by sumi encode", 0, 0},
        {"-o", OPTION_TEXT, &args.output, "out.png",
         "where the picture goes: .png, .jpg, .jpeg or .webp; several go to out-0.png, out-1.png, ..., with as many "
         "digits as the last one needs. %d or %03d in the name is the number's place. -: a PNG to standard output",
         0, 0},
        {"--no-clobber", OPTION_FLAG, &args.no_clobber, NULL,
         "end before any work when an output is there already: a picture, --latents-out, --trace", 0, 0},
        {"--quality", OPTION_COUNT, &args.quality, "N", "of JPEG and WebP, 92 by default; WebP with 100 is lossless", 1,
         100},
        {"--preset", OPTION_CHOICE, &args.preset, "model|preview|standard|quality|fast|lean",
         "size, steps and guidance; what is given beside it counts more. fast: for a model that was distilled to few "
         "steps, or with an adapter (--lora) that makes it so. lean: guidance in the first half only. sumi info "
         "--model PATH lists them",
         0, 0},
        {"--size", OPTION_SIZE, args.size, "WxH",
         "pixels; with --image and without --size, the size of that picture, at most what the model makes; with "
         "--reference "
         "one of its shape",
         0, 0},
        {"--steps", OPTION_COUNT, &args.steps, "N", "denoising steps", 1, 1000},
        {"--guidance", OPTION_NUMBER, &args.guidance, "G",
         "the number on the model's card. 0 is none for Z-Image, 1 for other models; sumi info --model PATH tells it",
         0, 100},
        {"--guidance-rule", OPTION_CHOICE, &args.guidance_rule, "model|plain|norm-limit|norm-rescale",
         "what is done with guided predictions: what the model's authors do; nothing; shortened to --guidance-norm; "
         "each "
         "token as long as without guidance",
         0, 0},
        {"--guidance-begin", OPTION_NUMBER, &args.guidance_begin, "T",
         "guidance from this time on, 0 is noise and 1 the picture", 0, 1},
        {"--guidance-end", OPTION_NUMBER, &args.guidance_end, "T", "guidance up to this time (cfg_truncation)", 0, 1},
        {"--guidance-norm", OPTION_NUMBER, &args.guidance_norm, "X",
         "most that guidance may lengthen the prediction; 0: off (cfg_normalization)", 0, 100},
        {"--solver", OPTION_CHOICE, &args.solver, "euler|heun|midpoint|dpmpp-2m|heun-full|rk4|res-multistep",
         "how steps are taken", 0, 0},
        {"--shift", OPTION_NUMBER, &args.shift, "X", "of the sigma schedule; the model's own otherwise", 0.01, 100},
        {"--seed", OPTION_SEED, &args.seed, "N",
         "of the noise, another one at every run by default, which is printed; several pictures count up from it", 0,
         0},
        {"--batch", OPTION_COUNT, &args.batch, "N", "pictures per prompt", 1, MAX_ITEMS},
        {"--noise-kind", OPTION_CHOICE, &args.noise_kind, "cpu|cuda",
         "the numbers of PyTorch's generator on which device", 0, 0},
        {"--noise-multiprocessors", OPTION_COUNT, &args.multiprocessors, "N",
         "of the card whose CUDA noise is wanted; 132 by default", 1, 1024},
        {"--noise", OPTION_TEXT, &args.noise, "FILE:NAME", "noise from a tensor of a safetensors file", 0, 0},
        {"--image", OPTION_TEXT, &args.image, "FILE", "a picture to start from: PNG, JPEG or WebP", 0, 0},
        FIT_OPTION(&args.fit),
        {"--reference", OPTION_TEXTS, &args.references, "FILE",
         "for edit models: a picture file that the prompt speaks of, picture 1, picture 2, ...; may be given several "
         "times",
         0, 0},
        {"--latents", OPTION_TEXT, &args.latents, "FILE:NAME", "what to start from, encoded by sumi encode", 0, 0},
        {"--strength", OPTION_NUMBER, &args.strength, "X",
         "how much of the start is given up; 0.6 by default, 1 with a mask", 0, 1},
        {"--mask", OPTION_TEXT, &args.mask, "FILE",
         "a picture file: white is painted anew, black stays. It is cropped with the start picture", 0, 0},
        {"--mask-feather", OPTION_COUNT, &args.mask_feather, "N",
         "pixels inside the mask's edge over which the new picture comes in; 0 by default. -1: what stays goes through "
         "the VAE "
         "too",
         -1, 256},
        {"--posterior", OPTION_CHOICE, &args.posterior, "sample|mode",
         "how the start picture's latents are taken: drawn, or the mean", 0, 0},
        {"--posterior-noise", OPTION_TEXT, &args.posterior_noise, "FILE:NAME",
         "the numbers drawn for it, from a tensor", 0, 0},
        {"--lora", OPTION_TEXTS, &args.loras, LORA_FORM, LORA_HELP, 0, 0},
        CONTROL_OPTIONS(&args.controls),
        {"--latents-out", OPTION_TEXT, &args.latents_out, "FILE", "also write the final latents, as safetensors", 0, 0},
        {"--dump", OPTION_TEXT, &args.dump, "FOLDER",
         "also write what every stage has computed, for one picture: FOLDER/dump.safetensors has token ids, features "
         "of "
         "the text encoders, sigmas, noise, the first prediction, the latents after every step and the pixels; "
         "FOLDER/dump.json has the model's files and the settings",
         0, 0},
        {"--preview-dir", OPTION_TEXT, &args.preview_dir, "FOLDER", "write preview-ITEM-STEP.png while working", 0, 0},
        {"--preview-every", OPTION_COUNT, &args.preview_every, "N", "after every N-th step only", 1, 1000},
        {"--deadline-ms", OPTION_COUNT, &args.deadline_ms, "MS",
         "take fewer steps if needed, by the speed measured so far", 1, 2e9},
        {"--step-cache", OPTION_TEXT, &args.step_cache_text, "auto|auto:DB|every:N|X",
         "with 20 steps or more: reuse most of an evaluation in later ones. auto: as far as the image is predicted to "
         "keep DB, "
         "the PSNR in dB against the one without (auto is auto:40); every:N: compute the first two evaluations, every "
         "N-th after them and the last; X: as long as evaluations are predicted to change by less than this, 0.05 to "
         "0.12 are usual; 0 is off",
         0, 0},
        {"--trace", OPTION_TEXT, &args.trace, "FILE",
         "write what was done when, for chrome://tracing or ui.perfetto.dev", 0, 0},
        {"--profile", OPTION_FLAG, &args.profile, NULL, "print what every kind of operation cost", 0, 0},
        {"--json", OPTION_FLAG, &args.is_json, NULL, "print the result as JSON, for other programs", 0, 0},
        ENGINE_OPTIONS(&args.session),
    };
    const cli_command command = {
        .name = "generate",
        .about = "Makes pictures from prompts. The file carries its prompt and settings as other tools read them (sumi "
                 "inspect shows them). Sizes, steps and guidance come from the preset unless given.",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .examples =
            "  sumi generate --model models/Z-Image-Turbo --prompt \"a lighthouse at dusk, ink wash\" --seed 7 "
            "-o lighthouse.png\n"
            "  sumi generate --model models/Z-Image-Turbo --prompts prompts.txt --seed 1 -o out-%03d.png\n"
            "  sumi generate --model models/Z-Image-Turbo --prompt \"the same in winter\" --image "
            "lighthouse.png --strength 0.5 -o winter.png\n"
            "  sumi generate --model models/Z-Image --prompt \"a fox\" --negative blurry --guidance 4 --steps "
            "30 --lora ink.safetensors:0.8 -o fox.png\n"
            "  sumi generate --model models/Z-Image-Turbo --prompt \"a fox\" --quiet -o - | magick - -resize 50% "
            "fox.webp\n"
            "  sumi generate --model models/Qwen-Image-Edit-2511 --prompt \"the cat of picture 1 in the room of "
            "picture 2\" --reference cat.png --reference room.png -o both.png\n"
            "  sumi generate --model models/Qwen-Image-2512 --variant 2512 --preset fast --lora "
            "lightning-4steps.safetensors "
            "--prompt \"a fox\" -o fox.png\n"
            "  sumi generate --model models/Z-Image-Turbo --control "
            "Z-Image-Turbo-Fun-Controlnet-Union-2.1-2602-8steps.safetensors "
            "--control-picture depth.png:0.8 --prompt \"a ruined tower at dusk\" -o tower.png\n"
            "  sumi generate --model models/NewBie-image-Exp0.1 --character \"gender=1girl; appearance=silver_hair\" "
            "--character \"gender=1boy; position=right\" --tags \"style=anime_style\" -o two.png\n",
    };
    args_result parsed = args_parse(&command, argc, argv);
    if (parsed != ARGS_RUN) return parsed == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
    s_run.command = &command;
    s_run.args = &args;
    int code = check_args(&command, &args);
    if (code == EXIT_OK) code = read_prompts(&s_run);
    if (code == EXIT_OK) code = count_pictures(&s_run);
    if (code == EXIT_OK && args.dump) code = dump_check_args(&s_run);
    if (code == EXIT_OK) code = generate(&s_run);
    close_run(&s_run);
    // the trace of a failed run is written too
    if (!trace_close(&s_run.trace, s_run.message) && code == EXIT_OK) code = generate_fail(&s_run);
    return code;
}
