// Opening a checkpoint runs through four stages. Each call of sumi_checkpoint_step does the smallest possible piece:
//
//     LOCATE    for each source: list the files that its path means (an index is read here)
//     OPEN      for each source: its files, one per step
//     RESOLVE   for each component: find its source and its config.json
//     REST      tokenizers, preprocessor_config.json, scheduler_config.json
//
// A source is one path with its own tensor set. The sources are in order of preference: first the paths that the caller
// gave for components, then the folders below `path`, then `path` itself. A component is taken from its own source if
// that has weights: a path that was given must have the component's tensors, while a component's folder is used even if
// no signature knows its tensors. Without its own source, the component is taken from the first other source that has
// its tensors.
//
// With the files of a sumi_file_cache a step may end with SUMI_TIMEOUT, which means that a file has to be read first
// (base/file.h). The step is undone and repeated later.
#include "files/checkpoint.h"
#include "base/assert.h"
#include "files/checkpoint_files.h"
#include "files/json.h"
#include "files/tensor_scaling.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_SOURCES                                                                                                    \
    (SUMI_COMPONENT_COUNT + 1) // a component has a given path or a folder, never both; and `path` itself

enum { STAGE_LOCATE, STAGE_OPEN, STAGE_RESOLVE, STAGE_OTHER_FILES, STAGE_DONE };

typedef struct sumi_source source;

static const char* const s_kind_names[SUMI_COMPONENT_COUNT] = {"transformer", "text_encoder", "text_encoder_2",
                                                               "vision", "vae"};

// Folders of each component below a model's folder. A vision tower has no separate folder: files keep it with its text
// encoder.
static const char* const s_folders[SUMI_COMPONENT_COUNT][2] = {
    {"transformer"}, {"text_encoder"}, {"text_encoder_2", "clip_model"}, {"text_encoder"}, {"vae"}};

const char* sumi_component_kind_name(sumi_component_kind kind) { return s_kind_names[kind]; }

static bool is_for_prompts(int32_t kind)
{
    return kind == SUMI_COMPONENT_TEXT_ENCODER || kind == SUMI_COMPONENT_TEXT_ENCODER_2
        || kind == SUMI_COMPONENT_VISION;
}

// ---- Identification by tensors --------------------------------------------------------------------------------------

// '*' in the pattern stands for one word: at least one character, no dots.
static bool prefix_matches(const char* pattern, const char* text, size_t bytes)
{
    const char* end = text + bytes;
    for (; *pattern != '\0'; pattern++) {
        if (*pattern == '*') {
            const char* word = text;
            while (text < end && *text != '.') text++;
            if (text == word) return false;
        } else if (text == end || *text++ != *pattern) {
            return false;
        }
    }
    return text == end;
}

// Whether the set holds every tensor of the signature after the prefix, and the first of them in the signature's
// shape.
static bool holds_all(const sumi_tensor_set* set, const sumi_signature* signature, const char* prefix,
                      size_t prefix_bytes)
{
    char name[512];
    for (int32_t i = 0; i < SUMI_SIGNATURE_TENSORS && signature->tensors[i] != NULL; i++) {
        const int written = snprintf(name, sizeof name, "%.*s%s", (int)prefix_bytes, prefix, signature->tensors[i]);
        if (written < 0 || (size_t)written >= sizeof name) return false;
        const sumi_tensor* tensor = sumi_tensor_find(set, name);
        if (tensor == NULL) return false;
        const int32_t rank = signature->shape.rank, axis = signature->shape.axis;
        if (i == 0 && rank != 0 && tensor->rank != rank) return false;
        if (i == 0 && signature->shape.maximum != 0
            && (tensor->rank <= axis || tensor->shape[axis] < signature->shape.minimum
                || tensor->shape[axis] > signature->shape.maximum))
            return false;
    }
    return true;
}

typedef struct match {
    const sumi_signature* signature; // NULL: none
    const char* prefix;              // not terminated: has prefix_bytes bytes
    size_t prefix_bytes;
    int32_t preference; // index of the prefix in the signature's list: less is better
} match;

// Finds a prefix among the set's names that matches the pattern (which contains '*') and is followed by all of the
// signature's tensors.
static bool find_prefix(const sumi_tensor_set* set, const sumi_signature* signature, const char* pattern, match* out)
{
    const size_t fixed_bytes = strcspn(pattern, "*"), tensor_bytes = strlen(signature->tensors[0]);
    for (size_t i = 0; i < set->count; i++) {
        const char* name = set->tensors[i].name;
        if (strncmp(name, pattern, fixed_bytes) != 0) continue;
        const size_t bytes = strlen(name), prefix_bytes = bytes > tensor_bytes ? bytes - tensor_bytes : 0;
        if (strcmp(name + prefix_bytes, signature->tensors[0]) == 0 && prefix_matches(pattern, name, prefix_bytes)
            && holds_all(set, signature, name, prefix_bytes)) {
            out->prefix = name;
            out->prefix_bytes = prefix_bytes;
            return true;
        }
    }
    return false;
}

// Returns the best match for the component: the signature whose prefix comes earliest in its own list, and among equals
// the signature that comes first in the table.
static match find_match(const sumi_checkpoint* checkpoint, const sumi_tensor_set* set, int32_t kind)
{
    static const char* const s_no_prefix[] = {"", NULL};
    SUMI_ASSERT(kind == SUMI_ANY_COMPONENT || (kind >= 0 && kind < SUMI_COMPONENT_COUNT));
    match best = {.preference = INT32_MAX};
    for (size_t k = 0; k < checkpoint->signature_count; k++) {
        const sumi_signature* signature = &checkpoint->signatures[k];
        if (signature->tensors[0] == NULL || (kind != SUMI_ANY_COMPONENT && (int32_t)signature->component != kind))
            continue;
        const char* const* prefixes = signature->prefixes != NULL ? signature->prefixes : s_no_prefix;
        for (int32_t preference = 0; prefixes[preference] != NULL && preference < best.preference; preference++) {
            match candidate = {signature, prefixes[preference], strlen(prefixes[preference]), preference};
            if (strchr(prefixes[preference], '*') != NULL
                    ? find_prefix(set, signature, prefixes[preference], &candidate)
                    : holds_all(set, signature, candidate.prefix, candidate.prefix_bytes))
                best = candidate;
        }
    }
    return best;
}

// ---- Begin ----------------------------------------------------------------------------------------------------------

static sumi_result add_source(sumi_checkpoint* checkpoint, const char* path, int32_t kind, bool must_exist,
                              bool is_no_file, sumi_error* error)
{
    SUMI_ASSERT(checkpoint->source_count < MAX_SOURCES && kind >= SUMI_ANY_COMPONENT && kind < SUMI_COMPONENT_COUNT);
    source* s = &checkpoint->sources[checkpoint->source_count++];
    sumi_tensor_set_init(&s->set, checkpoint->heap, checkpoint->files);
    s->kind = kind;
    s->must_exist = must_exist;
    s->is_no_file = is_no_file;
    return sumi_checkpoint_copy_text(checkpoint->heap, path, error, &s->path);
}

// The path in the desc of a component. NULL if there is none or the component is left out.
static const char* component_path(const sumi_checkpoint_desc* desc, int32_t kind)
{
    return desc->without_text_encoder && is_for_prompts(kind) ? NULL : desc->component_paths[kind];
}

static sumi_result keep_paths(sumi_checkpoint* checkpoint, const sumi_checkpoint_desc* desc, sumi_error* error)
{
    SUMI_TRY(sumi_checkpoint_copy_text(checkpoint->heap, desc->path, error, &checkpoint->path));
    for (int32_t i = 0; i < SUMI_CHECKPOINT_ENCODERS && !desc->without_text_encoder; i++) {
        SUMI_TRY(sumi_checkpoint_copy_text(checkpoint->heap, desc->tokenizer_paths[i], error,
                                           &checkpoint->tokenizer_paths[i]));
    }
    return sumi_checkpoint_copy_text(checkpoint->heap, desc->without_text_encoder ? NULL : desc->processor_path, error,
                                     &checkpoint->processor_path);
}

// Adds the component folders below `path`, then `path` itself.
static sumi_result add_folders(sumi_checkpoint* checkpoint, const sumi_checkpoint_desc* desc, sumi_error* error)
{
    for (int32_t kind = 0; kind < SUMI_COMPONENT_COUNT; kind++) {
        if (desc->component_paths[kind] != NULL || kind == SUMI_COMPONENT_VISION
            || (desc->without_text_encoder && is_for_prompts(kind)))
            continue;
        char* folder;
        // The name of the first of the component's possible folders; locate_below() tries the others too.
        SUMI_TRY(sumi_checkpoint_join(checkpoint->heap, desc->path, s_folders[kind][0], error, &folder));
        const sumi_result result = add_source(checkpoint, folder, kind, false, true, error);
        sumi_free(checkpoint->heap, folder);
        SUMI_TRY(result);
    }
    // `path` may also be the folder of a single component, with weights at its top
    return add_source(checkpoint, desc->path, SUMI_ANY_COMPONENT, false, true, error);
}

sumi_result sumi_checkpoint_begin(sumi_checkpoint* checkpoint, sumi_heap* heap, const sumi_files* files,
                                  const sumi_checkpoint_desc* desc, sumi_error* error)
{
    SUMI_ASSERT(desc->signatures != NULL || desc->signature_count == 0);
    memset(checkpoint, 0, sizeof *checkpoint);
    checkpoint->heap = heap;
    checkpoint->files = files;
    checkpoint->signatures = desc->signatures;
    checkpoint->signature_count = desc->signature_count;
    checkpoint->methods = desc->methods;
    checkpoint->transformer_name = desc->transformer_name;
    checkpoint->method_count = desc->method_count;
    checkpoint->class_words = desc->class_words;
    checkpoint->without_text_encoder = desc->without_text_encoder;
    bool any = desc->path != NULL;
    for (int32_t kind = 0; kind < SUMI_COMPONENT_COUNT; kind++) any = any || component_path(desc, kind) != NULL;
    if (!any) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "no path is given: name a diffusers folder, a checkpoint file, or the transformer's path");
    }
    checkpoint->sources = sumi_alloc_zero(heap, MAX_SOURCES * sizeof *checkpoint->sources);
    if (checkpoint->sources == NULL)
        return sumi_out_of_memory(error, MAX_SOURCES * sizeof *checkpoint->sources, "a checkpoint's files");
    SUMI_TRY(keep_paths(checkpoint, desc, error));
    for (int32_t kind = 0; kind < SUMI_COMPONENT_COUNT; kind++) {
        const char* path = component_path(desc, kind);
        if (path != NULL)
            SUMI_TRY(add_source(checkpoint, path, kind, true, sumi_checkpoint_is_folder(checkpoint, path), error));
    }
    if (desc->path == NULL) return SUMI_OK;
    checkpoint->path_is_folder = sumi_checkpoint_is_folder(checkpoint, desc->path);
    return checkpoint->path_is_folder ? add_folders(checkpoint, desc, error)
                                      : add_source(checkpoint, desc->path, SUMI_ANY_COMPONENT, true, false, error);
}

// ---- Locate and open ------------------------------------------------------------------------------------------------

// Looks for weights in `folder` under the file names of diffusers and transformers.
static sumi_result locate_in(sumi_checkpoint* checkpoint, source* s, const char* folder, sumi_error* error)
{
    SUMI_ASSERT(!s->is_located);
    static const char* const s_stems[] = {"diffusion_pytorch_model", "model"};
    const bool text_first = is_for_prompts(s->kind);
    for (int32_t i = 0; i < 2 && !s->is_located; i++) {
        SUMI_TRY(sumi_tensor_opening_locate_folder(&s->opening, checkpoint->heap, checkpoint->files, folder,
                                                   s_stems[text_first ? 1 - i : i], error, &s->is_located));
    }
    return SUMI_OK;
}

// Looks in the component's possible folders below the model's folder. If one has weights, it becomes the source's path.
static sumi_result locate_below(sumi_checkpoint* checkpoint, source* s, const char* model, sumi_error* error)
{
    SUMI_ASSERT(s->kind != SUMI_ANY_COMPONENT);
    for (int32_t i = 0; i < 2 && s_folders[s->kind][i] != NULL && !s->is_located; i++) {
        char* folder;
        SUMI_TRY(sumi_checkpoint_join(checkpoint->heap, model, s_folders[s->kind][i], error, &folder));
        const sumi_result result = locate_in(checkpoint, s, folder, error);
        if (result == SUMI_OK && s->is_located) {
            sumi_free(checkpoint->heap, s->path);
            s->path = folder;
        } else {
            sumi_free(checkpoint->heap, folder);
        }
        SUMI_TRY(result);
    }
    return SUMI_OK;
}

// Fails with the reason if a folder has no weights of the component, or with SUMI_ANY_COMPONENT no weights at all, but
// was plainly meant to.
static sumi_result check_folder(const sumi_checkpoint* checkpoint, const char* folder, int32_t kind, sumi_error* error)
{
    return sumi_checkpoint_check_folder(checkpoint, folder, kind == SUMI_ANY_COMPONENT ? "model" : s_kind_names[kind],
                                        is_for_prompts(kind) ? "model" : "diffusion_pytorch_model", error);
}

static sumi_result locate(sumi_checkpoint* checkpoint, source* s, sumi_error* error)
{
    if (!s->is_no_file) {
        s->is_located = true;
        return sumi_tensor_opening_locate_file(&s->opening, checkpoint->heap, checkpoint->files, s->path, error);
    }
    if (s->kind != SUMI_ANY_COMPONENT && !s->must_exist) return locate_below(checkpoint, s, checkpoint->path, error);
    SUMI_TRY(locate_in(checkpoint, s, s->path, error));
    if (!s->is_located
        && s->must_exist) { // the folder of a whole model was given for one component: look in its subfolder
        SUMI_TRY(locate_below(checkpoint, s, s->path, error));
        if (!s->is_located) {
            SUMI_TRY(check_folder(checkpoint, s->path, s->kind, error));
            return sumi_fail(error, SUMI_FILE_NOT_FOUND,
                             "%s: no such file, and no folder that holds the weights of a %s (model.safetensors, "
                             "diffusion_pytorch_model.safetensors, their index, or .gguf)",
                             s->path, s_kind_names[s->kind]);
        }
    }
    return SUMI_OK;
}

static sumi_result locate_next(sumi_checkpoint* checkpoint, sumi_error* error)
{
    SUMI_ASSERT(checkpoint->current >= 0 && checkpoint->current < checkpoint->source_count);
    source* s = &checkpoint->sources[checkpoint->current];
    bool has_component_folder = false;
    for (int32_t i = 0; i < checkpoint->current; i++) {
        has_component_folder =
            has_component_folder || (!checkpoint->sources[i].must_exist && checkpoint->sources[i].is_located);
    }
    // if component folders with weights were found, files at the top of `path` are not the model's components
    if (!(s->kind == SUMI_ANY_COMPONENT && s->is_no_file && has_component_folder))
        SUMI_TRY(locate(checkpoint, s, error));
    checkpoint->file_count += s->opening.count;
    checkpoint->current++;
    return SUMI_OK;
}

// ---- Resolve --------------------------------------------------------------------------------------------------------

// found->signature is NULL if only the folder identifies the component.
static sumi_result use_source(sumi_checkpoint* checkpoint, sumi_component* component, const source* s,
                              const match* matched, sumi_error* error)
{
    SUMI_ASSERT(!component->present && component->prefix == NULL && s->is_located);
    component->prefix = sumi_alloc(checkpoint->heap, matched->prefix_bytes + 1);
    if (component->prefix == NULL) return sumi_out_of_memory(error, matched->prefix_bytes + 1, "a prefix of names");
    if (matched->prefix_bytes > 0) memcpy(component->prefix, matched->prefix, matched->prefix_bytes);
    component->prefix[matched->prefix_bytes] = '\0';
    component->present = true;
    component->signature = matched->signature;
    component->set = &s->set;
    component->path = s->path;
    component->method = sumi_foreign_method_find(checkpoint->methods, checkpoint->method_count, component->set,
                                                 component->prefix, &component->method_tensor);
    return SUMI_OK;
}

// Fails if the weights of a source, which no signature knows, are quantised by another program.
static sumi_result check_method(const sumi_checkpoint* checkpoint, const source* s, sumi_error* error)
{
    const sumi_tensor* tensor;
    char text[1024];
    const sumi_foreign_method* method =
        sumi_foreign_method_find(checkpoint->methods, checkpoint->method_count, &s->set, "", &tensor);
    if (method == NULL) return SUMI_OK;
    sumi_checkpoint_describe_method(method, &s->set, tensor, s->path, text, sizeof text);
    return sumi_fail(error, SUMI_NOT_SUPPORTED, "%s: %s", s->path, text);
}

// Fails because the file that was given for a component holds something else.
static sumi_result refuse_source(const sumi_checkpoint* checkpoint, const source* s, sumi_error* error)
{
    SUMI_TRY(check_method(checkpoint, s, error));
    const match matched = find_match(checkpoint, &s->set, SUMI_ANY_COMPONENT);
    const sumi_signature* signature = matched.signature;
    return sumi_fail(
        error, SUMI_MODEL_UNKNOWN,
        "%s: its %zu tensors are not those of a known %s%s%s%s%s%s; check which component the file is", s->path,
        s->set.count,
        s->kind == SUMI_COMPONENT_TRANSFORMER && checkpoint->transformer_name != NULL ? checkpoint->transformer_name
                                                                                      : s_kind_names[s->kind],
        signature != NULL ? ", they look like the " : "", signature != NULL ? s_kind_names[signature->component] : "",
        signature != NULL ? " \"" : "", signature != NULL ? signature->network : "", signature != NULL ? "\"" : "");
}

static sumi_result resolve_component(sumi_checkpoint* checkpoint, int32_t kind, sumi_error* error)
{
    SUMI_ASSERT(kind >= 0 && kind < SUMI_COMPONENT_COUNT);
    sumi_component* component = &checkpoint->components[kind];
    for (int32_t pass = 0; pass < 2; pass++) { // pass 0: the component's own source; pass 1: all others
        for (int32_t i = 0; i < checkpoint->source_count; i++) {
            const source* s = &checkpoint->sources[i];
            if ((s->kind == kind) != (pass == 0)) continue;
            if (component->path == NULL && s->kind == kind) {
                component->path = s->path;
            } // for messages, also if absent
            if (!s->is_located) continue;
            const match matched = find_match(checkpoint, &s->set, kind);
            if (matched.signature != NULL) return use_source(checkpoint, component, s, &matched, error);
            if (pass == 0 && s->must_exist) return refuse_source(checkpoint, s, error);
            if (pass == 0) { // no signature knows the network, but its folder says which component it is
                return use_source(checkpoint, component, s, &matched, error);
            }
        }
    }
    return SUMI_OK;
}

// Fails if no source has weights, or if a file that was not given for a component holds no known component.
static sumi_result check_sources(const sumi_checkpoint* checkpoint, sumi_error* error)
{
    bool any = false;
    for (int32_t i = 0; i < checkpoint->source_count; i++) {
        const source* s = &checkpoint->sources[i];
        any = any || s->is_located;
        if (s->kind == SUMI_ANY_COMPONENT && s->is_located
            && find_match(checkpoint, &s->set, SUMI_ANY_COMPONENT).signature == NULL) {
            SUMI_TRY(check_method(checkpoint, s, error));
            return sumi_fail(error, SUMI_MODEL_UNKNOWN,
                             "%s: its %zu tensors are neither a known transformer, text encoder nor VAE", s->path,
                             s->set.count);
        }
    }
    for (int32_t kind = 0; kind < SUMI_COMPONENT_COUNT && !any; kind++)
        SUMI_TRY(sumi_checkpoint_check_absent(checkpoint, (sumi_component_kind)kind, error));
    if (!any && checkpoint->path_is_folder)
        SUMI_TRY(check_folder(checkpoint, checkpoint->path, SUMI_ANY_COMPONENT, error));
    if (!any) {
        return sumi_fail(error, SUMI_FILE_NOT_FOUND,
                         "%s: no such file, and no folder with transformer/, text_encoder/ or vae/ and weights in them",
                         checkpoint->path);
    }
    return SUMI_OK;
}

// Reads the class from a config.json: "_class_name", otherwise the first of "architectures". Empty if there is neither.
static void read_class(const sumi_file* file, char* name, size_t capacity)
{
    sumi_json json;
    sumi_json_text key, text;
    bool has_class_name = false;
    name[0] = '\0';
    sumi_json_begin(&json, file->data, (size_t)file->bytes, NULL);
    sumi_json_object(&json);
    while (sumi_json_key(&json, &key)) {
        const bool is_class = sumi_json_is(&key, "_class_name") && sumi_json_peek(&json) == SUMI_JSON_STRING;
        const bool is_list = sumi_json_is(&key, "architectures") && sumi_json_peek(&json) == SUMI_JSON_ARRAY;
        if (is_list) sumi_json_array(&json);
        if (is_class || (is_list && sumi_json_item(&json) && sumi_json_peek(&json) == SUMI_JSON_STRING)) {
            sumi_json_string(&json, &text);
            const size_t bytes = has_class_name ? capacity : sumi_json_decode(&text, name, capacity - 1);
            if (bytes < capacity) name[bytes] = '\0';
            has_class_name = has_class_name || is_class;
            while (is_list && sumi_json_item(&json)) sumi_json_skip(&json);
        } else if (!is_list) {
            sumi_json_skip(&json);
        } else {
            return; // the list is empty or does not begin with a text: no class
        }
    }
}

// Whether a config.json from outside the component's own folder describes this component.
static bool config_matches(const sumi_checkpoint* checkpoint, const sumi_file* file, int32_t kind)
{
    sumi_json json;
    sumi_json_text key, text;
    bool matches = false;
    sumi_json_begin(&json, file->data, (size_t)file->bytes, NULL);
    sumi_json_object(&json);
    while (sumi_json_key(&json, &key)) {
        if (sumi_json_is(&key, "_class_name") && sumi_json_peek(&json) == SUMI_JSON_STRING
            && sumi_json_string(&json, &text)) {
            char name[128] = "";
            sumi_json_decode(&text, name, sizeof name - 1);
            const char* const* words = checkpoint->class_words != NULL ? checkpoint->class_words[kind] : NULL;
            for (; words != NULL && *words != NULL; words++) matches = matches || strstr(name, *words) != NULL;
        } else {
            matches =
                matches
                || (is_for_prompts(kind) && (sumi_json_is(&key, "architectures") || sumi_json_is(&key, "model_type")));
            sumi_json_skip(&json);
        }
    }
    return matches;
}

static sumi_result open_config(sumi_checkpoint* checkpoint, int32_t kind, sumi_error* error)
{
    sumi_component* component = &checkpoint->components[kind];
    const source* s = sumi_checkpoint_source_of(checkpoint, component);
    if (s == NULL) return SUMI_OK;
    if (s->is_no_file) {
        SUMI_TRY(sumi_checkpoint_open_optional(checkpoint, &component->config, s->path, "config.json", true, error));
    } else {
        char* folder;
        SUMI_TRY(sumi_checkpoint_parent(checkpoint->heap, s->path, error, &folder));
        const sumi_result result =
            sumi_checkpoint_open_optional(checkpoint, &component->config, folder, "config.json", true, error);
        sumi_free(checkpoint->heap, folder);
        SUMI_TRY(result);
    }
    if (component->config.data != NULL && (!s->is_no_file || s->kind != kind)
        && !config_matches(checkpoint, &component->config, kind))
        sumi_file_close(&component->config);
    // the weights may be from elsewhere while config.json is in the folder of `path`
    for (int32_t i = 0; i < 2 && checkpoint->path_is_folder && component->config.data == NULL; i++) {
        if (s_folders[kind][i] == NULL) break;
        char* folder;
        SUMI_TRY(sumi_checkpoint_join(checkpoint->heap, checkpoint->path, s_folders[kind][i], error, &folder));
        const sumi_result result =
            sumi_checkpoint_open_optional(checkpoint, &component->config, folder, "config.json", true, error);
        sumi_free(checkpoint->heap, folder);
        SUMI_TRY(result);
    }
    return SUMI_OK;
}

// Whether tensors of the component are stored in less than 16 bits, or as integers that may hold packed weights.
static bool has_quantised_tensors(const sumi_component* component)
{
    for (size_t i = 0; i < component->set->count; i++) {
        const sumi_tensor* tensor = &component->set->tensors[i];
        const bool is_plain = tensor->dtype == SUMI_DTYPE_F64 || tensor->dtype == SUMI_DTYPE_F32
                           || tensor->dtype == SUMI_DTYPE_F16 || tensor->dtype == SUMI_DTYPE_BF16
                           || tensor->dtype == SUMI_DTYPE_I64 || tensor->dtype == SUMI_DTYPE_BOOL;
        if (!is_plain && tensor->rank >= 1 && sumi_component_tensor_name(component, tensor) != NULL) return true;
    }
    return false;
}

// The config.json of a component may lie beside other weights, in the folder `path`, or in a folder of many files.
// It is asked if it is in the folder of the weights, or if the weights are quantised. GGUF files need none.
static sumi_result read_config_quantisation(const sumi_checkpoint* checkpoint, sumi_component* component,
                                            sumi_error* error)
{
    const source* s = sumi_checkpoint_source_of(checkpoint, component);
    const sumi_file* config = &component->config;
    if (s == NULL || config->data == NULL || sumi_metadata_find(component->set, "general.architecture") != NULL)
        return SUMI_OK;
    char *folder, *path;
    SUMI_TRY(s->is_no_file ? sumi_checkpoint_copy_text(checkpoint->heap, s->path, error, &folder)
                           : sumi_checkpoint_parent(checkpoint->heap, s->path, error, &folder));
    sumi_result result = sumi_checkpoint_join(checkpoint->heap, folder, "config.json", error, &path);
    if (result == SUMI_OK && strcmp(path, config->path) == 0 && (s->is_no_file || has_quantised_tensors(component))) {
        const sumi_quantisation_text text = {(const char*)config->data, (size_t)config->bytes, config->path};
        result = sumi_quantisation_read_config(&text, &component->quantisation, error);
    }
    sumi_free(checkpoint->heap, path);
    sumi_free(checkpoint->heap, folder);
    return result;
}

static sumi_result read_quantisation(const sumi_checkpoint* checkpoint, sumi_component* component, sumi_error* error)
{
    const bool is_refused = component->signature != NULL && component->signature->refusal != NULL;
    if (is_refused || component->method != NULL) return SUMI_OK; // by the caller
    component->knows_neighbours = sumi_tensor_neighbours_are_known(component);
    const char* path = component->path;
    const char* metadata = component->present ? sumi_metadata_find(component->set, "quantization_config") : NULL;
    if (metadata != NULL) {
        const sumi_quantisation_text text = {metadata, strlen(metadata), path};
        SUMI_TRY(sumi_quantisation_read(&text, &component->quantisation, error));
    }
    if (!component->quantisation.is_said) {
        SUMI_TRY(read_config_quantisation(checkpoint, component, error));
        path = component->quantisation.is_said ? component->config.path : path;
    }
    char name[192];
    const char* unknown = sumi_quantisation_unknown(&component->quantisation, name, sizeof name);
    if (unknown == NULL) return SUMI_OK;
    return sumi_fail(error, SUMI_NOT_SUPPORTED,
                     "%s: quantization_config says that the weights are quantised with %s, which is not "
                     "supported; " SUMI_QUANTISATION_ADVICE,
                     path, unknown);
}

static sumi_result resolve_config(sumi_checkpoint* checkpoint, int32_t kind, sumi_error* error)
{
    SUMI_TRY(open_config(checkpoint, kind, error));
    SUMI_TRY(read_quantisation(checkpoint, &checkpoint->components[kind], error));
    sumi_component* component = &checkpoint->components[kind];
    if (component->present && component->signature == NULL && component->config.data != NULL) {
        char name[128];
        read_class(&component->config, name, sizeof name);
        for (size_t i = 0; i < checkpoint->signature_count && component->signature == NULL; i++) {
            const sumi_signature* signature = &checkpoint->signatures[i];
            if ((int32_t)signature->component == kind && signature->class_name != NULL
                && strcmp(signature->class_name, name) == 0)
                component->signature = signature;
        }
    }
    return SUMI_OK;
}

static void read_author_value(sumi_json* json, bool* out_has, double* out_value)
{
    *out_has = true;
    *out_value = NAN;
    if (sumi_json_peek(json) == SUMI_JSON_NUMBER) *out_value = sumi_json_number(json);
    else sumi_json_skip(json);
}

static void read_author_values(sumi_json* json, sumi_author_values* out)
{
    sumi_json_text key;
    out->is_no_object = sumi_json_peek(json) != SUMI_JSON_OBJECT;
    if (out->is_no_object) {
        sumi_json_skip(json);
        return;
    }
    sumi_json_object(json);
    while (sumi_json_key(json, &key)) {
        if (sumi_json_is(&key, "steps")) read_author_value(json, &out->has_steps, &out->steps);
        else if (sumi_json_is(&key, "guidance")) read_author_value(json, &out->has_guidance, &out->guidance);
        else sumi_json_skip(json);
    }
}

static void read_author_sigmas(sumi_json* json, sumi_author_sigmas* out)
{
    const bool is_null = sumi_json_peek(json) == SUMI_JSON_NULL;
    *out = (sumi_author_sigmas){.is_no_list = !is_null && sumi_json_peek(json) != SUMI_JSON_ARRAY};
    if (is_null || out->is_no_list) {
        sumi_json_skip(json);
        return;
    }
    sumi_json_array(json);
    while (sumi_json_item(json)) {
        if (sumi_json_peek(json) == SUMI_JSON_NUMBER && out->count < SUMI_CHECKPOINT_SIGMAS) {
            out->levels[out->count++] = (float)sumi_json_number(json);
        } else {
            out->is_no_list = true;
            sumi_json_skip(json);
        }
    }
}

static sumi_result read_model_index(sumi_checkpoint* checkpoint, sumi_error* error)
{
    sumi_file file = {0};
    checkpoint->author = (sumi_author_values){0};
    checkpoint->sigmas = (sumi_author_sigmas){.count = 0};
    checkpoint->is_distilled = false;
    sumi_result result =
        sumi_checkpoint_open_optional(checkpoint, &file, checkpoint->path, "model_index.json", true, error);
    checkpoint->has_model_index = result == SUMI_OK && file.data != NULL;
    if (checkpoint->has_model_index) {
        sumi_json json;
        sumi_json_text key, text;
        sumi_json_begin(&json, file.data, (size_t)file.bytes, error);
        json.name = file.path;
        sumi_json_object(&json);
        while (sumi_json_key(&json, &key)) {
            if (sumi_json_is(&key, "_class_name") && sumi_json_peek(&json) == SUMI_JSON_STRING
                && sumi_json_string(&json, &text)) {
                const size_t bytes = sumi_json_decode(&text, checkpoint->class_name, sizeof checkpoint->class_name - 1);
                checkpoint->class_name[bytes < sizeof checkpoint->class_name ? bytes : 0] = '\0';
            } else if (sumi_json_is(&key, "is_distilled")) {
                checkpoint->is_distilled = sumi_json_peek(&json) == SUMI_JSON_TRUE;
                sumi_json_skip(&json);
            } else if (sumi_json_is(&key, "sample_sigmas")) {
                read_author_sigmas(&json, &checkpoint->sigmas);
            } else if (sumi_json_is(&key, "sumi")) {
                read_author_values(&json, &checkpoint->author);
            } else {
                sumi_json_skip(&json);
            }
        }
        result = sumi_json_end(&json);
    }
    sumi_file_close(&file);
    return result;
}

// ---- Processor and scheduler ----------------------------------------------------------------------------------------

static sumi_result resolve_processor(sumi_checkpoint* checkpoint, sumi_error* error)
{
    static const char s_name[] = "preprocessor_config.json", s_below[] = "processor/preprocessor_config.json";
    const char* path = checkpoint->processor_path;
    sumi_file* file = &checkpoint->processor;
    if (path != NULL && !sumi_checkpoint_is_folder(checkpoint, path)) {
        SUMI_TRY(sumi_file_open(file, checkpoint->heap, checkpoint->files, path, error));
        return sumi_checkpoint_check_json(file, error);
    }
    const char* folder = path != NULL ? path : checkpoint->path_is_folder ? checkpoint->path : NULL;
    if (folder != NULL) SUMI_TRY(sumi_checkpoint_open_optional(checkpoint, file, folder, s_below, true, error));
    if (folder != NULL && file->data == NULL)
        SUMI_TRY(sumi_checkpoint_open_optional(checkpoint, file, folder, s_name, true, error));
    if (path != NULL && file->data == NULL)
        return sumi_fail(error, SUMI_FILE_NOT_FOUND, "%s: no such file, and no folder that holds %s", path, s_name);
    const source* s = sumi_checkpoint_source_of(checkpoint, &checkpoint->components[SUMI_COMPONENT_VISION]);
    return file->data == NULL && s != NULL && s->is_no_file
             ? sumi_checkpoint_open_optional(checkpoint, file, s->path, s_name, true, error)
             : SUMI_OK;
}

static sumi_result resolve_scheduler(sumi_checkpoint* checkpoint, sumi_error* error)
{
    if (checkpoint->path_is_folder) {
        SUMI_TRY(sumi_checkpoint_open_optional(checkpoint, &checkpoint->scheduler, checkpoint->path,
                                               "scheduler/scheduler_config.json", true, error));
    }
    const source* s = sumi_checkpoint_source_of(checkpoint, &checkpoint->components[SUMI_COMPONENT_TRANSFORMER]);
    // in the folder that contains the transformer's folder
    if (checkpoint->scheduler.data == NULL && s != NULL && s->is_no_file) {
        char* folder;
        SUMI_TRY(sumi_checkpoint_parent(checkpoint->heap, s->path, error, &folder));
        const sumi_result result = sumi_checkpoint_open_optional(checkpoint, &checkpoint->scheduler, folder,
                                                                 "scheduler/scheduler_config.json", true, error);
        sumi_free(checkpoint->heap, folder);
        return result;
    }
    return SUMI_OK;
}

static sumi_result resolve_next(sumi_checkpoint* checkpoint, sumi_error* error)
{
    const int32_t kind = checkpoint->current;
    if (kind == 0) {
        SUMI_TRY(check_sources(checkpoint, error));
        if (checkpoint->path_is_folder) SUMI_TRY(read_model_index(checkpoint, error));
    }
    if (!is_for_prompts(kind) || !checkpoint->without_text_encoder) {
        SUMI_TRY(resolve_component(checkpoint, kind, error));
        SUMI_TRY(resolve_config(checkpoint, kind, error));
    }
    checkpoint->current++;
    return SUMI_OK;
}

static sumi_result resolve_other_files(sumi_checkpoint* checkpoint, sumi_error* error)
{
    for (int32_t i = 0; i < SUMI_CHECKPOINT_ENCODERS && !checkpoint->without_text_encoder; i++)
        SUMI_TRY(sumi_checkpoint_resolve_tokenizer(checkpoint, i, error));
    if (!checkpoint->without_text_encoder) SUMI_TRY(resolve_processor(checkpoint, error));
    return resolve_scheduler(checkpoint, error);
}

// ---- Steps ----------------------------------------------------------------------------------------------------------

static sumi_result open_next(sumi_checkpoint* checkpoint, sumi_error* error)
{
    source* s = &checkpoint->sources[checkpoint->current];
    bool done = true;
    if (s->is_located) {
        const size_t before = s->opening.next;
        SUMI_TRY(sumi_tensor_opening_step(&s->opening, &s->set, error, &done));
        checkpoint->opened_count += s->opening.next - before;
    }
    if (done) {
        sumi_tensor_opening_end(&s->opening);
        checkpoint->current++;
    }
    return SUMI_OK;
}

static void close_component(sumi_checkpoint* checkpoint, int32_t kind)
{
    sumi_component* component = &checkpoint->components[kind];
    sumi_file_close(&component->config);
    sumi_free(checkpoint->heap, component->prefix);
    memset(component, 0, sizeof *component);
}

// Undoes a step that found a file which has to be read first (SUMI_TIMEOUT), so that the step can be repeated.
static void undo_step(sumi_checkpoint* checkpoint)
{
    const int32_t current = checkpoint->current;
    switch (checkpoint->stage) {
    case STAGE_LOCATE:
        sumi_tensor_opening_end(&checkpoint->sources[current].opening);
        checkpoint->sources[current].is_located = false;
        break;
    case STAGE_RESOLVE: close_component(checkpoint, current); break;
    case STAGE_OTHER_FILES:
        for (int32_t i = 0; i < SUMI_CHECKPOINT_ENCODERS; i++)
            sumi_checkpoint_close_tokenizer(checkpoint, &checkpoint->tokenizers[i]);
        sumi_file_close(&checkpoint->processor);
        sumi_file_close(&checkpoint->scheduler);
        break;
    default: break; // a failed open leaves nothing to undo
    }
}

static sumi_result run_step(sumi_checkpoint* checkpoint, sumi_error* error)
{
    switch (checkpoint->stage) {
    case STAGE_LOCATE: return locate_next(checkpoint, error);
    case STAGE_OPEN: return open_next(checkpoint, error);
    case STAGE_RESOLVE: return resolve_next(checkpoint, error);
    case STAGE_OTHER_FILES: return resolve_other_files(checkpoint, error);
    default: return SUMI_OK;
    }
}

sumi_result sumi_checkpoint_step(sumi_checkpoint* checkpoint, bool* out_done, sumi_error* error)
{
    *out_done = false;
    const sumi_result result = run_step(checkpoint, error);
    if (result == SUMI_TIMEOUT) undo_step(checkpoint);
    SUMI_TRY(result);
    const int32_t count = checkpoint->stage < STAGE_RESOLVE  ? checkpoint->source_count
                        : checkpoint->stage == STAGE_RESOLVE ? SUMI_COMPONENT_COUNT
                                                             : 0;
    if (checkpoint->stage < STAGE_DONE && checkpoint->current == count) {
        checkpoint->stage++;
        checkpoint->current = 0;
    }
    *out_done = checkpoint->stage == STAGE_DONE;
    return SUMI_OK;
}

// Opening the files is nearly all of the work: 0.9. `read`: the fraction of the file that is being read.
float sumi_checkpoint_progress(const sumi_checkpoint* checkpoint, float read)
{
    SUMI_ASSERT(read >= 0.0f && read <= 1.0f);
    switch (checkpoint->stage) {
    case STAGE_LOCATE:
        return checkpoint->source_count > 0 ? 0.05f * (float)checkpoint->current / (float)checkpoint->source_count
                                            : 0.0f;
    case STAGE_OPEN:
        return 0.05f
             + (checkpoint->file_count > 0
                    ? 0.9f * ((float)checkpoint->opened_count + read) / (float)checkpoint->file_count
                    : 0.0f);
    case STAGE_RESOLVE:
    case STAGE_OTHER_FILES: return 0.95f;
    default: return 1.0f;
    }
}

sumi_result sumi_checkpoint_open(sumi_checkpoint* checkpoint, sumi_heap* heap, const sumi_files* files,
                                 const sumi_checkpoint_desc* desc, sumi_error* error)
{
    SUMI_TRY(sumi_checkpoint_begin(checkpoint, heap, files, desc, error));
    for (bool done = false; !done;) SUMI_TRY(sumi_checkpoint_step(checkpoint, &done, error));
    return SUMI_OK;
}

void sumi_checkpoint_close(sumi_checkpoint* checkpoint)
{
    if (checkpoint->heap == NULL) return;
    for (int32_t kind = 0; kind < SUMI_COMPONENT_COUNT; kind++) close_component(checkpoint, kind);
    for (int32_t i = 0; i < SUMI_CHECKPOINT_ENCODERS; i++) {
        sumi_checkpoint_close_tokenizer(checkpoint, &checkpoint->tokenizers[i]);
        sumi_free(checkpoint->heap, checkpoint->tokenizer_paths[i]);
    }
    sumi_file_close(&checkpoint->processor);
    sumi_file_close(&checkpoint->scheduler);
    for (int32_t i = 0; i < checkpoint->source_count; i++) {
        sumi_tensor_opening_end(&checkpoint->sources[i].opening);
        sumi_tensor_set_close(&checkpoint->sources[i].set);
        sumi_free(checkpoint->heap, checkpoint->sources[i].path);
    }
    sumi_free(checkpoint->heap, checkpoint->sources);
    sumi_free(checkpoint->heap, checkpoint->processor_path);
    sumi_free(checkpoint->heap, checkpoint->path);
    memset(checkpoint, 0, sizeof *checkpoint);
}

sumi_result sumi_checkpoint_check_absent(const sumi_checkpoint* checkpoint, sumi_component_kind kind, sumi_error* error)
{
    bool is_given = !checkpoint->path_is_folder || kind == SUMI_COMPONENT_VISION || checkpoint->components[kind].present
                 || (is_for_prompts(kind) && checkpoint->without_text_encoder);
    for (int32_t i = 0; i < checkpoint->source_count; i++) // a folder below `path` is of no interest then
        is_given = is_given || (checkpoint->sources[i].kind == (int32_t)kind && checkpoint->sources[i].must_exist);
    for (int32_t i = 0; i < 2 && !is_given && s_folders[kind][i] != NULL; i++) {
        char* folder;
        SUMI_TRY(sumi_checkpoint_join(checkpoint->heap, checkpoint->path, s_folders[kind][i], error, &folder));
        const sumi_result result = check_folder(checkpoint, folder, (int32_t)kind, error);
        sumi_free(checkpoint->heap, folder);
        SUMI_TRY(result);
    }
    return SUMI_OK;
}

// ---- A tokenizer without a model ------------------------------------------------------------------------------------

sumi_result sumi_checkpoint_open_tokenizer(sumi_checkpoint* checkpoint, sumi_heap* heap, const sumi_files* files,
                                           const char* path, sumi_error* error)
{
    memset(checkpoint, 0, sizeof *checkpoint);
    checkpoint->heap = heap;
    checkpoint->files = files;
    checkpoint->stage = STAGE_DONE;
    return sumi_checkpoint_open_tokenizer_path(checkpoint, &checkpoint->tokenizers[0], path, error);
}
