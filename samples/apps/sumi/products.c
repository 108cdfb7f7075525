#include "generate.h"
#include "json_out.h"
#include "parameters.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- Checks ---------------------------------------------------------------------------------------------------------

// A device or a pipe without a known extension gets a PNG, as standard output does.
static picture_format format_of_output(const char* path)
{
    const picture_format format = picture_format_of_path(path);
    const bool has_no_name = is_standard_output(path) || system_look_at(path) == SYSTEM_OTHER;
    return format == PICTURE_UNKNOWN && has_no_name ? PICTURE_PNG : format;
}

// Where picture `index` of the run goes.
static bool image_path(const generate_run* run, int32_t index, char* into, size_t capacity)
{
    return numbered_path(run->args->output, index, run->picture_count, into, capacity);
}

static int fail_output(const char* message)
{
    fprintf(stderr, "sumi: %s\n", message);
    return EXIT_FAILED;
}

static bool is_kept(const generate_run* run, const char* path)
{
    return run->args->no_clobber && !is_standard_output(path) && system_look_at(path) == SYSTEM_FILE;
}

static int check_output(const generate_run* run, const char* path)
{
    char message[FILES_MESSAGE_BYTES];
    if (!path[0]) return args_wrong(run->command, "the path of an output is empty: name a file");
    if (!output_is_possible(path, message)) return fail_output(message);
    if (is_kept(run, path)) return args_wrong(run->command, "%s is there already, and --no-clobber keeps it", path);
    return EXIT_OK;
}

int products_check_outputs(const generate_run* run)
{
    const generate_args* args = run->args;
    char path[1100], message[FILES_MESSAGE_BYTES];
    int code = EXIT_OK;
    if (!numbered_path_is_possible(args->output, message)) return args_wrong(run->command, "%s", message);
    for (int32_t i = 0; i < run->picture_count && code == EXIT_OK; i++) {
        if (!image_path(run, i, path, sizeof path))
            return args_wrong(run->command, "the path of the output is too long");
        code = check_output(run, path);
    }
    if (code != EXIT_OK) return code;
    if (format_of_output(path) == PICTURE_UNKNOWN && !picture_path_is_possible(path, message))
        return args_wrong(run->command, "%s", message);
    if (format_of_output(path) != PICTURE_PNG && !picture_path_is_possible(path, message)) return fail_output(message);
    if (args->latents_out) code = check_output(run, args->latents_out);
    if (args->trace && code == EXIT_OK) code = check_output(run, args->trace);
    if (args->dump && code == EXIT_OK) code = dump_check_output(run);
    if (!args->preview_dir || code != EXIT_OK) return code;
    system_make_folder(args->preview_dir); // the check below reports a folder that cannot be used
    snprintf(path, sizeof path, "%s/preview-0-1.png", args->preview_dir);
    return output_is_possible(path, message) ? EXIT_OK : fail_output(message);
}

// ---- Writing --------------------------------------------------------------------------------------------------------

static bool write_picture(const char* path, const picture_source* source, char* message)
{
    void* data;
    size_t bytes;
    char reason[PICTURE_MESSAGE_BYTES];
    if (!picture_encode(format_of_output(path), source, &data, &bytes, reason)) {
        snprintf(message, FILES_MESSAGE_BYTES, "cannot write %s: %s", path, reason);
        return false;
    }
    if (reason[0]) fprintf(stderr, "sumi: %s: %s\n", shown(path), reason); // what a JPEG cannot keep
    const bool is_written = file_write(path, data, bytes, message);
    free(data);
    return is_written;
}

void products_write_previews(void* context, sumi_job job, const sumi_job_status* status)
{
    generate_run* run = context;
    if (status->preview_version == run->preview_version) return;
    run->preview_version = status->preview_version;
    const size_t bytes = (size_t)(run->desc.width / 8) * (size_t)(run->desc.height / 8) * 4;
    if (!run->preview_pixels) run->preview_pixels = malloc(bytes);
    for (int32_t i = 0; run->preview_pixels && i < run->desc.item_count; i++) {
        sumi_image preview;
        if (sumi_job_preview(run->session.engine, job, i, run->preview_pixels, bytes, &preview) != SUMI_OK) continue;
        char path[1200];
        snprintf(path, sizeof path, "%s/preview-%d-%d.png", run->args->preview_dir, run->first_picture + i,
                 status->step);
        const picture_source source = {.pixels = preview.pixels,
                                       .width = preview.width,
                                       .height = preview.height,
                                       .row_bytes = (size_t)preview.row_bytes,
                                       .channel_count = 4};
        if (!write_picture(path, &source, run->message)) {
            progress_clear(&run->session.progress);
            // a failed preview does not stop the image
            fprintf(stderr, "sumi: the preview was not written: %s\n", run->message);
        }
    }
}

int products_write_latents(generate_run* run, sumi_job job)
{
    sumi_model_info info = sumi_model_get_info(run->session.model);
    int64_t shape[4] = {run->desc.item_count, info.latent_channels, run->desc.height / info.latent_factor,
                        run->desc.width / info.latent_factor};
    size_t item_values = (size_t)(shape[1] * shape[2] * shape[3]);
    float* values = malloc(item_values * (size_t)run->desc.item_count * sizeof(float));
    sumi_result result = values ? SUMI_OK : SUMI_OUT_OF_HOST_MEMORY;
    for (int32_t i = 0; i < run->desc.item_count && result == SUMI_OK; i++)
        result = sumi_job_latents(run->session.engine, job, i, values + (size_t)i * item_values, item_values);
    int code = EXIT_OK;
    if (result != SUMI_OK) code = session_fail(&run->session, result, "reading the latents");
    else if (!tensor_write(run->args->latents_out, "latents", values, shape, 4, run->message))
        code = generate_fail(run);
    free(values);
    return code;
}

// The profile is read before the fetch, which ends the job, and printed after the images are written.
int products_read_profile(generate_run* run, sumi_job job)
{
    run->row_count = sumi_job_profile(run->session.engine, job, NULL, 0);
    if (run->row_count == 0) return EXIT_OK;
    run->rows = malloc((size_t)run->row_count * sizeof *run->rows);
    if (!run->rows) return session_fail(&run->session, SUMI_OUT_OF_HOST_MEMORY, "reading the profile");
    run->row_count = sumi_job_profile(run->session.engine, job, run->rows, run->row_count);
    return EXIT_OK;
}

static const char* model_path(const generate_args* args)
{
    return args->session.model ? args->session.model : args->session.transformer;
}

// The text that stays in the file; free() it. NULL: no memory, and the file goes without.
static char* make_parameters(const generate_run* run, int32_t index)
{
    const sumi_image* image = &run->images[index];
    const sumi_image_desc* desc = &run->desc;
    const generate_args* args = run->args;
    const sumi_model_info info = sumi_model_get_info(run->session.model);
    // the negative text of an item without one of its own; the text of a prompt file is not known
    const bool has_own_negative = desc->guidance.scale != info.guidance_off && !args->negative_file;
    char model_name[128], loras[2300] = "", controls[800] = "";
    size_t used = 0;
    name_of_path(model_path(args), model_name, sizeof model_name);
    for (int32_t i = 0; i < desc->lora_count && used < sizeof loras; i++) {
        const sumi_lora_use* use = &desc->loras[i];
        used += (size_t)snprintf(loras + used, sizeof loras - used, "%s%s:%g", i ? ", " : "", run->loras.names[i],
                                 (double)use->scale);
        if ((use->text_scale != 0.0f || use->without_text) && used < sizeof loras)
            used += (size_t)snprintf(loras + used, sizeof loras - used, ":%g", (double)use->text_scale);
    }
    for (int32_t i = 0, at = 0; i < desc->control_count && (size_t)at < sizeof controls; i++) {
        const sumi_control_use* use = &desc->controls[i];
        at += snprintf(controls + at, sizeof controls - (size_t)at, "%s%s:%g:%g:%g", i ? ", " : "",
                       run->controls.names[i], (double)use->strength, (double)use->start, (double)use->end);
    }
    parameters from = parameters_none();
    from.prompt = run->items[index].text;
    from.negative = args->negative || !has_own_negative ? args->negative : info.negative_text;
    from.model_name = model_name;
    from.loras = loras;
    from.controls = controls;
    from.step_count = desc->deadline_ms ? image->step_count : desc->step_count;
    from.width = image->width;
    from.height = image->height;
    from.solver = (int32_t)desc->solver;
    from.guidance_rule = (int32_t)desc->guidance.rule;
    from.noise = (int32_t)desc->noise.source;
    from.reference_count = desc->reference_count;
    from.seed = image->seed;
    from.has_seed = true;
    from.guidance = desc->guidance.scale;
    from.cfg_scale = parameters_cfg_scale(&info, desc->guidance.scale);
    if (desc->start.image || desc->start.latents) from.strength = desc->start.strength;
    from.shift = desc->shift;
    from.step_cache = desc->step_cache;
    from.step_cache_db = desc->step_cache_db;
    from.step_cache_every = desc->step_cache_every;
    const size_t bytes = parameters_write(&from, NULL, 0) + 1;
    char* text = malloc(bytes);
    if (text) parameters_write(&from, text, bytes);
    return text;
}

// ---- Telling --------------------------------------------------------------------------------------------------------

static void print_profile(const generate_run* run, FILE* to)
{
    double seconds = 1e-9, flops = 0.0, bytes = 0.0;
    for (int32_t i = 0; i < run->row_count; i++)
        seconds += run->rows[i].seconds, flops += run->rows[i].flops, bytes += run->rows[i].bytes;
    fprintf(to, "%10s %6s %7s %10s %10s %9s %8s  %s\n", "ms", "share", "runs", "GFLOP", "MB", "GFLOP/s", "GB/s", "op");
    for (int32_t i = 0; i < run->row_count; i++) {
        const sumi_profile_row* row = &run->rows[i];
        double time = row->seconds > 0.0 ? row->seconds : 1e-9;
        fprintf(to, "%10.2f %5.1f%% %7d %10.3f %10.2f %9.1f %8.2f  %s %s\n", 1e3 * row->seconds,
                100.0 * row->seconds / seconds, row->count, 1e-9 * row->flops, 1e-6 * row->bytes,
                1e-9 * row->flops / time, 1e-9 * row->bytes / time, progress_stage_name(row->stage), row->name);
    }
    fprintf(to, "%10.2f %5.1f%% %7s %10.3f %10.2f %9.1f %8.2f  all\n", 1e3 * seconds, 100.0, "", 1e-9 * flops,
            1e-6 * bytes, 1e-9 * flops / seconds, 1e-9 * bytes / seconds);
}

static void begin_json(generate_run* run)
{
    if (run->json.depth > 0) return;
    run->json = (json_out){.file = stdout};
    json_begin_object(&run->json, NULL);
    json_begin_array(&run->json, "images");
}

// Tells a picture that was written. A picture on standard output stays alone there.
static void tell_image(generate_run* run, int32_t index, const char* path)
{
    const sumi_image* image = &run->images[index];
    json_out* out = &run->json;
    if (run->args->is_json) {
        begin_json(run);
        json_begin_object(out, NULL);
        json_text(out, "path", path);
        json_text(out, "prompt", run->items[index].text);
        json_integer(out, "width", image->width);
        json_integer(out, "height", image->height);
        json_unsigned(out, "seed", image->seed);
        json_integer(out, "steps", image->step_count);
        json_integer(out, "evaluations", image->evaluation_count);
        json_integer(out, "reused_evaluations", image->reused_count);
        if (image->predicted_db > 0.0f) json_number(out, "predicted_db", (double)image->predicted_db);
        json_end_object(out);
    } else if (!run->args->session.quiet) {
        FILE* to = is_standard_output(path) ? stderr : stdout;
        fprintf(to, "%s  %dx%d, seed %llu, %d steps", shown(path), image->width, image->height,
                (unsigned long long)image->seed, image->step_count);
        if (run->args->step_cache_text)
            fprintf(to, ", %d of %d evaluations reused", image->reused_count, image->evaluation_count);
        if (image->reused_count > 0 && image->predicted_db > 0.0f)
            fprintf(to, ", about %.0f dB kept", (double)image->predicted_db);
        fprintf(to, "\n");
    }
    fflush(stdout); // the next job may take minutes
}

int products_write_images(generate_run* run)
{
    for (int32_t i = 0; i < run->desc.item_count; i++) {
        const sumi_image* image = &run->images[i];
        char path[1100];
        image_path(run, run->first_picture + i, path, sizeof path); // products_check_outputs has found that it fits
        if (is_kept(run, path)) {
            fprintf(stderr, "sumi: %s was made meanwhile, and --no-clobber keeps it\n", path);
            return EXIT_FAILED;
        }
        char* text = make_parameters(run, i);
        const bool is_written = write_picture(path,
                                              &(picture_source){.pixels = image->pixels,
                                                                .width = image->width,
                                                                .height = image->height,
                                                                .row_bytes = (size_t)image->row_bytes,
                                                                .channel_count = 4,
                                                                .parameters = text,
                                                                .quality = run->args->quality},
                                              run->message);
        free(text);
        if (!is_written) return generate_fail(run);
        tell_image(run, i, path);
    }
    return EXIT_OK;
}

static void end_json(generate_run* run, double seconds)
{
    json_out* out = &run->json;
    json_end_array(out);
    json_text(out, "model", model_path(run->args));
    const sumi_model_info info = sumi_model_get_info(run->session.model);
    json_number(out, "guidance", (double)run->desc.guidance.scale);
    json_number(out, "cfg_scale", (double)parameters_cfg_scale(&info, run->desc.guidance.scale));
    json_text(out, "solver", parameters_solver_name(run->desc.solver));
    if (run->desc.step_cache > 0.0f) json_number(out, "step_cache", (double)run->desc.step_cache);
    if (run->desc.step_cache_db > 0.0f) json_number(out, "step_cache_db", (double)run->desc.step_cache_db);
    if (run->desc.step_cache_every > 0) json_integer(out, "step_cache_every", run->desc.step_cache_every);
    controls_put(out, &run->controls);
    json_text(out, "device", sumi_engine_get_info(run->session.engine).device);
    json_number(out, "seconds", seconds);
    json_unsigned(out, "host_peak_bytes", sumi_engine_get_info(run->session.engine).host_peak_bytes);
    if (run->row_count > 0) {
        json_begin_array(out, "profile");
        for (int32_t i = 0; i < run->row_count; i++) {
            const sumi_profile_row* row = &run->rows[i];
            json_begin_object(out, NULL);
            json_text(out, "stage", progress_stage_name(row->stage));
            json_text(out, "op", row->name);
            json_number(out, "seconds", row->seconds);
            json_integer(out, "runs", row->count);
            json_number(out, "flops", row->flops);
            json_number(out, "bytes", row->bytes);
            json_end_object(out);
        }
        json_end_array(out);
    }
    json_end_object(out);
}

void products_print(generate_run* run, double seconds)
{
    if (run->args->is_json) {
        end_json(run, seconds);
        return;
    }
    if (run->row_count > 0) print_profile(run, is_standard_output(run->args->output) ? stderr : stdout);
    if (run->args->session.quiet) return;
    const bool is_one_job = run->job_prompt_count == run->lines.count; // of several the last one's times say little
    fprintf(stderr, "%.1f s%s, %.0f MB of memory at most beside the mapped weights\n", seconds,
            is_one_job ? run->session.stage_times : "",
            1e-6 * (double)sumi_engine_get_info(run->session.engine).host_peak_bytes);
}
