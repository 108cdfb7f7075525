#include "prompt_inspection.h"
#include "commands.h"
#include "files.h"
#include "session.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool prompt_is_one(const sumi_tensor_set* set)
{
    return sumi_metadata_find(set, "sumi_prompt") && sumi_metadata_find(set, "family");
}

// Features of a text encoder are a matrix, and references have a third number. Scales of int8 are neither.
static bool is_features(const sumi_tensor* tensor)
{
    return tensor->rank == 2 && (strcmp(tensor->name, "features") == 0 || strcmp(tensor->name, "features.1") == 0);
}
static bool is_reference(const sumi_tensor* tensor)
{
    return tensor->rank == 3 && strncmp(tensor->name, "reference.", 10) == 0;
}

void prompt_print(const inspection* in, const sumi_tensor_set* set)
{
    const char* adapters = sumi_metadata_find(set, "adapters");
    const char* between = "";
    printf("%s\n  %-14s of %s, encoded\n", shown(in->path), "prompt", shown(sumi_metadata_find(set, "family")));
    for (size_t i = 0; i < set->count; i++) {
        const sumi_tensor* tensor = &set->tensors[i];
        if (is_features(tensor))
            printf("  %-14s %lld rows of %lld values, %s\n", tensor->name, (long long)tensor->shape[0],
                   (long long)tensor->shape[1], sumi_dtype_get(tensor->dtype)->name);
    }
    for (size_t i = 0; i < set->count; i++) {
        const sumi_tensor* tensor = &set->tensors[i];
        if (!is_reference(tensor)) continue;
        if (!between[0]) printf("  %-14s ", "references");
        printf("%s%lldx%lld", between, (long long)tensor->shape[1], (long long)tensor->shape[0]);
        between = ", ";
    }
    if (between[0]) printf("\n");
    if (adapters) printf("  %-14s %s\n", "adapters", shown(adapters));
}

void prompt_put(json_out* out, const sumi_tensor_set* set)
{
    json_text(out, "family", sumi_metadata_find(set, "family"));
    json_begin_array(out, "encoders");
    for (size_t i = 0; i < set->count; i++) {
        const sumi_tensor* tensor = &set->tensors[i];
        if (!is_features(tensor)) continue;
        json_begin_object(out, NULL);
        json_integer(out, "row_count", tensor->shape[0]);
        json_integer(out, "width", tensor->shape[1]);
        json_text(out, "type", sumi_dtype_get(tensor->dtype)->name);
        json_end_object(out);
    }
    json_end_array(out);
    json_begin_array(out, "references");
    for (size_t i = 0; i < set->count; i++) {
        const sumi_tensor* tensor = &set->tensors[i];
        if (!is_reference(tensor)) continue;
        json_begin_object(out, NULL);
        json_integer(out, "width", tensor->shape[1]);
        json_integer(out, "height", tensor->shape[0]);
        json_integer(out, "channel_count", tensor->shape[2]);
        json_end_object(out);
    }
    json_end_array(out);
    json_text(out, "adapters", sumi_metadata_find(set, "adapters"));
}

int prompt_try(const inspection* in)
{
    const session_args args = {.model = in->model, .backend = SUMI_BACKEND_CPU, .quiet = true};
    cli_session session = {0};
    char doing[1100], message[FILES_MESSAGE_BYTES];
    void* data = NULL;
    size_t bytes = 0;
    snprintf(doing, sizeof doing, "reading the prompt %s", in->path);
    if (!file_read(in->path, ENCODED_MAX_BYTES, &data, &bytes, message)) {
        fprintf(stderr, "sumi: %s\n", message);
        return EXIT_FAILED;
    }
    int code = session_open(&session, &args);
    if (code == EXIT_OK) code = session_load_model(&session, true, true);
    if (code == EXIT_OK) {
        sumi_prompt* prompt = NULL;
        const sumi_result result = sumi_prompt_load(session.model, data, bytes, &prompt);
        if (result != SUMI_OK) code = session_fail(&session, result, doing);
        sumi_prompt_release(prompt);
    }
    session_close(&session);
    free(data);
    return code == EXIT_OK ? EXIT_OK : EXIT_FAILED;
}
