#include "golden_component.h"
#include "models/signatures.h"
#include "plan_runner.h"
#include <stdlib.h>
#include <string.h>

// ---- Checkpoints ----------------------------------------------------------------------------------------------------

// The data has one folder "model" and, for other variants, folders with the few files that differ. A path below
// ".../edit-2511" is looked for in model-edit-2511, model-edit-2509, model-edit and model, in that order.
static const char* const s_layers[][2] = {{"turbo", "model-turbo"},
                                          {"edit-2511", "model-edit-2511"},
                                          {"edit-2509", "model-edit-2509"},
                                          {"edit", "model-edit"},
                                          {"t2i", "model"}};
#define LAYER_COUNT (sizeof s_layers / sizeof *s_layers)

typedef struct layered_file {
    uint64_t bytes;
    unsigned char data[];
} layered_file;

static void* read_whole(const char* path, uint64_t* out_bytes)
{
    FILE* stream = sumi_path_is_folder(path) ? NULL : fopen(path, "rb"); // a folder can be opened and has no length
    if (stream == NULL) return NULL;
    layered_file* file = NULL;
    if (fseek(stream, 0, SEEK_END) == 0) {
        const long bytes = ftell(stream);
        file = bytes >= 0 ? malloc(sizeof *file + (size_t)bytes) : NULL;
        if (file != NULL) {
            rewind(stream);
            file->bytes = fread(file->data, 1, (size_t)bytes, stream);
            *out_bytes = file->bytes;
        }
    }
    fclose(stream);
    return file;
}

static void* open_layered(const char* path, uint64_t* out_bytes, void* user_data)
{
    (void)user_data;
    for (size_t first = 0; first < LAYER_COUNT; first++) {
        char marked[64];
        snprintf(marked, sizeof marked, "/%s/", s_layers[first][0]);
        const char* at = strstr(path, marked);
        for (size_t layer = first; at != NULL && layer < LAYER_COUNT; layer++) {
            char tried[2400];
            snprintf(tried, sizeof tried, "%.*s/%s/%s", (int)(at - path), path, s_layers[layer][1],
                     at + strlen(marked));
            void* file = read_whole(tried, out_bytes);
            if (file != NULL) return file;
        }
    }
    return read_whole(path, out_bytes);
}

static bool read_layered(void* file, uint64_t offset, void* into, size_t bytes, void* user_data)
{
    (void)user_data;
    const layered_file* whole = file;
    if (offset > whole->bytes || bytes > whole->bytes - offset) return false;
    memcpy(into, whole->data + offset, bytes);
    return true;
}

static const void* map_layered(void* file, void* user_data)
{
    (void)user_data;
    return ((layered_file*)file)->data;
}

static void close_layered(void* file, void* user_data)
{
    (void)user_data;
    free(file);
}

static const sumi_files s_layered = {
    .open = open_layered, .read = read_layered, .map = map_layered, .close = close_layered};

static void checkpoint_path(const golden_case* c, char* out, size_t bytes)
{
    const char* model = json_text(c->json, "model");
    const bool is_path = model != NULL && strncmp(model, "../", 3) == 0;
    snprintf(out, bytes, "%.2000s/%s%.64s", c->folder, is_path ? "" : "../", model != NULL ? model : "model");
}

sumi_network* layered_network(golden_case* c, const char* model)
{
    char path[2100], key[2200];
    snprintf(path, sizeof path, "%.2000s/../%.64s", c->folder, model);
    snprintf(key, sizeof key, "layered|%s", path);
    const sumi_network_desc desc = {.path = path};
    return open_network(c, key, &s_layered, &desc);
}

bool open_checkpoint_file(golden_case* c, const char* name, sumi_file* out)
{
    char folder[2100], path[2400];
    checkpoint_path(c, folder, sizeof folder);
    snprintf(path, sizeof path, "%s/%.200s", folder, name);
    memset(out, 0, sizeof *out);
    sumi_error error = {0};
    if (sumi_file_open(out, &c->g->heap, &s_layered, path, &error) == SUMI_OK) return true;
    case_fails(c, "%s", error.text);
    return false;
}

bool open_component(golden_case* c, sumi_component_kind kind, const char* what, case_component* out)
{
    memset(out, 0, sizeof *out);
    sumi_weight_list_init(&out->list, &c->g->heap);
    char path[2100];
    checkpoint_path(c, path, sizeof path);
    sumi_checkpoint_desc desc = {.path = path};
    desc.signatures = sumi_signatures(&desc.signature_count);
    desc.class_words = sumi_class_words();
    sumi_error error = {0};
    const sumi_component* part = &out->checkpoint.components[kind];
    if (sumi_checkpoint_open(&out->checkpoint, &c->g->heap, &s_layered, &desc, &error) != SUMI_OK) {
        case_fails(c, "%s", error.text);
        return false;
    }
    if (!part->present) {
        case_fails(c, "%s has no %s", path, what);
        return false;
    }
    out->binder = (sumi_binder){.list = &out->list, .component = part, .what = what};
    out->config = (sumi_module_config){.data = part->config.data,
                                       .bytes = (size_t)part->config.bytes,
                                       .path = part->config.path != NULL ? part->config.path : part->path};
    return true;
}

void close_component(golden_case* c, case_component* component)
{
    if (component->list.count > 0) runner_release_weights(c->g->runner, component->list.weights, component->list.count);
    sumi_weight_list_close(&component->list);
    sumi_checkpoint_close(&component->checkpoint);
}
