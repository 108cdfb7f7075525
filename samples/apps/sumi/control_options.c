#include "control_options.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The parts of "depth.png:0.8:0:0.7".
typedef struct picture_option {
    char path[1024]; // "": none
    float numbers[3];
    int32_t number_count;
} picture_option;

// Returns false when what is behind the path is no number, or there are two of them.
static bool split_picture(const char* text, picture_option* out)
{
    float number;
    bool has_number = true;
    *out = (picture_option){.number_count = 0};
    snprintf(out->path, sizeof out->path, "%s", text);
    while (out->number_count < 3) {
        if (!path_cut_number(out->path, &number, &has_number)) return false;
        if (!has_number) break;
        memmove(out->numbers + 1, out->numbers, 2 * sizeof number);
        out->numbers[0] = number;
        out->number_count++;
    }
    return out->number_count != 2;
}

int controls_check(const cli_command* command, const control_args* args)
{
    const int32_t count = args->nets.count;
    if (count == 0 && args->pictures.count > 0)
        return args_wrong(command, "--control-picture needs the net that follows it: --control NET");
    if (count == 0 && (args->inpaint || args->mask))
        return args_wrong(command,
                          "%s needs a control net that inpaints: --control NET; without one give --image and "
                          "--mask",
                          args->inpaint ? "--control-inpaint" : "--control-mask");
    if (count > MAX_CONTROLS) return args_wrong(command, "at most %d control nets at once", MAX_CONTROLS);
    if (args->pictures.count > count)
        return args_wrong(command, "%d control pictures belong to %d control nets: give --control for each",
                          args->pictures.count, count);
    if (!args->inpaint != !args->mask)
        return args_wrong(command, "--control-inpaint and --control-mask belong together: give %s too",
                          args->inpaint ? "--control-mask FILE" : "--control-inpaint FILE");
    if (args->pictures.count < count && !args->inpaint)
        return args_wrong(command, "--control %s: give the picture that it follows: --control-picture FILE",
                          args->nets.texts[args->pictures.count]);
    for (int32_t i = 0; i < args->pictures.count; i++) {
        picture_option option;
        const char* text = args->pictures.texts[i];
        if (!split_picture(text, &option))
            return args_wrong(command,
                              "--control-picture %s: write FILE, FILE:STRENGTH or FILE:STRENGTH:START:END, as "
                              "in %s:0.8:0:0.7",
                              text, option.path[0] ? option.path : "depth.png");
        const float start = option.numbers[1], end = option.numbers[2];
        if (option.number_count == 3 && !(start >= 0.0f && start <= end && end <= 1.0f))
            return args_wrong(command,
                              "--control-picture %s: the steps from %g to %g are no range: give numbers "
                              "from 0 to 1, the smaller one first",
                              text, (double)start, (double)end);
        if (option.number_count > 0 && fabsf(option.numbers[0]) > 100.0f)
            return args_wrong(command, "--control-picture %s: the strength is -100 to 100, and usually 0.6 to 1", text);
        if (!option.path[0] && !args->inpaint) return args_wrong(command, "--control-picture %s names no file", text);
    }
    return EXIT_OK;
}

bool controls_read(const control_args* args, control_list* out, char* message)
{
    for (int32_t i = 0; i < args->pictures.count; i++) {
        picture_option option;
        split_picture(args->pictures.texts[i], &option); // controls_check has refused what is wrong
        if (option.path[0] && !picture_read(option.path, 3, &out->pictures[i], message)) return false;
    }
    if (args->inpaint && !picture_read(args->inpaint, 3, &out->inpaint, message)) return false;
    return !args->mask || picture_read(args->mask, 1, &out->mask, message);
}

static sumi_pixels pixels_of(const picture_file* image)
{
    return (sumi_pixels){
        .data = image->pixels, .width = image->width, .height = image->height, .channel_count = image->channel_count};
}

// Completes the use of a net that was read.
static void make_use(const control_args* args, control_list* out, int32_t index)
{
    picture_option option = {.number_count = 0};
    sumi_control_picture* members = &out->members[index];
    sumi_control_use* use = &out->uses[index];
    if (index < args->pictures.count) split_picture(args->pictures.texts[index], &option);
    *use = sumi_control_use_defaults(out->nets[index]);
    if (option.number_count > 0) use->strength = option.numbers[0];
    if (option.number_count == 3) use->start = option.numbers[1], use->end = option.numbers[2];
    out->picture_pixels[index] = pixels_of(&out->pictures[index]);
    if (out->pictures[index].pixels) members->picture = &out->picture_pixels[index];
    if (args->inpaint && sumi_control_get_info(out->nets[index]).takes_inpainting) {
        members->inpaint = &out->inpaint_pixels;
        members->mask = &out->mask_pixels;
    }
    use->pictures = members;
    use->picture_count = 1;
}

// A diffusers folder calls its file diffusion_pytorch_model: the net's name is the folder's then.
static void name_of_net(const char* path, char* into, size_t capacity)
{
    char folder[1024];
    name_of_path(path, into, capacity);
    if (strcmp(into, "diffusion_pytorch_model") != 0) return;
    snprintf(folder, sizeof folder, "%s", path);
    char* slash = strrchr(folder, '/');
    if (!slash) return;
    *slash = 0;
    name_of_path(folder, into, capacity);
}

int controls_load(cli_session* session, const control_args* args, control_list* out)
{
    bool inpaints = false;
    out->inpaint_pixels = pixels_of(&out->inpaint);
    out->mask_pixels = pixels_of(&out->mask);
    for (int32_t i = 0; i < args->nets.count; i++) {
        char doing[1100];
        name_of_net(args->nets.texts[i], out->names[i], sizeof out->names[i]);
        snprintf(doing, sizeof doing, "loading the control net %s", args->nets.texts[i]);
        sumi_control_desc desc = sumi_control_defaults(session->model);
        desc.path = args->nets.texts[i];
        sumi_job job;
        sumi_result result = sumi_submit_control(session->engine, &desc, &job);
        if (result != SUMI_OK) return session_fail(session, result, doing);
        const int code = session_run(session, job, doing, NULL, NULL);
        if (code != EXIT_OK) return code;
        result = sumi_fetch_control(session->engine, job, &out->nets[i]);
        if (result != SUMI_OK) return session_fail(session, result, doing);
        make_use(args, out, i);
        out->count = i + 1;
        inpaints |= sumi_control_get_info(out->nets[i]).takes_inpainting;
    }
    if (!args->inpaint || inpaints) return EXIT_OK;
    snprintf(session->detail, sizeof session->detail,
             "--control-inpaint: none of the control nets inpaints; leave it out, or give --image and --mask");
    return session_fail(session, SUMI_INVALID_ARGUMENT, "starting the picture");
}

// The file names of the nets for Turbo and for Base differ in one word, and the tensors in nothing.
static void note_variant(const cli_session* session, const char* path)
{
    const char* variant = sumi_model_get_info(session->model).variant;
    const bool is_turbo = strstr(path, "Z-Image-Turbo-Fun") != NULL, is_base = strstr(path, "Z-Image-Fun") != NULL;
    const bool is_other = (is_turbo && !is_base && strcmp(variant, "base") == 0)
                       || (is_base && !is_turbo && strcmp(variant, "turbo") == 0);
    if (!is_other) return;
    fprintf(stderr,
            "sumi: by its name the control net %s was made for Z-Image%s, and this is Z-Image %s: it runs, but "
            "was not trained for it\n",
            shown(path), is_turbo ? " Turbo" : " (Base)", variant);
}

void controls_note(const cli_session* session, const control_args* args, const control_list* list, sumi_size size)
{
    for (int32_t i = 0; i < list->count; i++) {
        const picture_file* picture = &list->pictures[i];
        note_variant(session, args->nets.texts[i]);
        if (!picture->pixels) continue;
        const double shape = (double)picture->width / (double)picture->height,
                     wanted = (double)size.width / (double)size.height;
        if (fabs(shape / wanted - 1.0) < 0.03) continue;
        fprintf(stderr,
                "sumi: the control picture %d is %dx%d, and the image %dx%d: it is stretched; another --size "
                "keeps its shape\n",
                i + 1, picture->width, picture->height, size.width, size.height);
    }
}

void controls_put(json_out* out, const control_list* list)
{
    if (list->count == 0) return;
    json_begin_array(out, "controls");
    for (int32_t i = 0; i < list->count; i++) {
        const sumi_control_use* use = &list->uses[i];
        json_begin_object(out, NULL);
        json_text(out, "name", list->names[i]);
        json_text(out, "kind", sumi_control_get_info(list->nets[i]).kind);
        json_number(out, "strength", (double)use->strength);
        json_number(out, "start", (double)use->start);
        json_number(out, "end", (double)use->end);
        json_end_object(out);
    }
    json_end_array(out);
}

void controls_free(control_list* list)
{
    for (int32_t i = 0; i < MAX_CONTROLS; i++) picture_free(&list->pictures[i]);
    picture_free(&list->inpaint);
    picture_free(&list->mask);
}
