#include "lora_options.h"
#include "files.h"
#include <stdio.h>
#include <string.h>

// "style.safetensors:0.8:0.5". Returns false when a scale is no number.
static bool split_lora(const char* text, char* path, size_t capacity, sumi_lora_use* use)
{
    float last = 1.0f, first = 1.0f;
    bool has_last, has_first = false;
    *use = (sumi_lora_use){.scale = 1.0f};
    snprintf(path, capacity, "%s", text);
    if (!path_cut_number(path, &last, &has_last)) return false;
    if (has_last && !path_cut_number(path, &first, &has_first)) return false;
    use->scale = has_first ? first : last;
    if (has_first) {
        use->text_scale = last;
        use->without_text = last == 0.0f;
    }
    return true;
}

int loras_check(const cli_command* command, const text_list* list)
{
    if (list->count > MAX_LORAS) return args_wrong(command, "at most %d adapters at once", MAX_LORAS);
    for (int32_t i = 0; i < list->count; i++) {
        char path[1024];
        sumi_lora_use use;
        const char* text = list->texts[i];
        if (!split_lora(text, path, sizeof path, &use))
            return args_wrong(command, "--lora %s: \"%s\" is no scale: write FILE or FILE:0.8", text,
                              text + strlen(path) + 1);
    }
    return EXIT_OK;
}

int loras_load(cli_session* session, const text_list* list, lora_list* out)
{
    for (int32_t i = 0; i < list->count; i++) {
        char path[1024], doing[1100];
        split_lora(list->texts[i], path, sizeof path, &out->uses[i]); // loras_check has refused bad scales
        name_of_path(path, out->names[i], sizeof out->names[i]);
        snprintf(doing, sizeof doing, "loading the adapter %s", path);
        sumi_lora_desc desc = sumi_lora_defaults(session->model);
        desc.path = path;
        sumi_job job;
        sumi_result result = sumi_submit_lora(session->engine, &desc, &job);
        if (result != SUMI_OK) return session_fail(session, result, doing);
        const int code = session_run(session, job, doing, NULL, NULL);
        if (code != EXIT_OK) return code;
        result = sumi_fetch_lora(session->engine, job, &out->loras[i]);
        if (result != SUMI_OK) return session_fail(session, result, doing);
        out->uses[i].lora = out->loras[i];
        out->count = i + 1;
    }
    return EXIT_OK;
}
