// Opening runs through stages, each call of step doing the smallest piece:
//
//     LOCATE  source i: which files does its path mean? (an index is read here)          } once per source
//     OPEN    one file of source i                                                       }
//     RESOLVE which part is in which source; config.json, model_index.json, tokenizer.json, scheduler_config.json
//
// A source is one path with its own tensor set. The overrides come first, then the folders below `path` (or `path`
// itself), so a part's own source has the lowest index that wants it, and "somewhere else" is a loop over the rest.
#include "files/checkpoint.h"
#include "base/assert.h"
#include "files/json.h"
#include <stdio.h>
#include <string.h>

#define MAX_SOURCES (2 * SUMI_PART_COUNT + 1)
#define ANY_PART (-1)

enum { STAGE_LOCATE, STAGE_OPEN, STAGE_RESOLVE, STAGE_DONE };

struct sumi_source {
    char* path;
    int32_t part; // what it was given for, or ANY_PART
    bool given;   // named by the caller, so that it must exist
    bool is_folder;
    bool found; // holds weights
    sumi_tensor_set set;
    sumi_tensor_opening opening;
};
typedef struct sumi_source source;

static const char* const s_part_names[SUMI_PART_COUNT] = {"transformer", "text_encoder", "vae"};

const char* sumi_part_kind_name(sumi_part_kind kind) { return s_part_names[kind]; }

// ---- What a tensor says about its file ------------------------------------------------------------------------------

// A tensor that every file of a kind of network holds. The longest name comes first where one ends in another.
typedef struct marker {
    int32_t part;
    const char* name;
} marker;

static const marker s_markers[] = {
    {SUMI_PART_TRANSFORMER, "cap_embedder.1.weight"},                     // Z-Image, NewBie-image, Lumina
    {SUMI_PART_TRANSFORMER, "transformer_blocks.0.img_mod.1.weight"},     // Qwen-Image
    {SUMI_PART_TEXT_ENCODER, "model.language_model.embed_tokens.weight"}, // Qwen2.5-VL, newer exports
    {SUMI_PART_TEXT_ENCODER, "language_model.model.embed_tokens.weight"}, // Gemma 3
    {SUMI_PART_TEXT_ENCODER, "model.embed_tokens.weight"},                // Qwen3, Qwen2.5-VL
    {SUMI_PART_TEXT_ENCODER, "embed_tokens.weight"},                      // the same saved without its head
    {SUMI_PART_TEXT_ENCODER, "token_embd.weight"},                        // GGUF
    {SUMI_PART_VAE, "decoder.conv_in.weight"},                            // diffusers and LDM
    {SUMI_PART_VAE, "decoder.conv1.weight"},                              // Wan
};

// What may stand in front of a marker in files in circulation; "*" is one word without a dot.
static const char* const s_prefixes[SUMI_PART_COUNT][6] = {
    {"", "model.diffusion_model.", "diffusion_model.", "transformer."},
    {"", "text_encoders.*.transformer.", "text_encoders.*.", "text_encoder.", "cond_stage_model.transformer."},
    {"", "vae.", "first_stage_model."},
};

static bool prefix_matches(const char* pattern, const char* text, size_t bytes)
{
    const char* end = text + bytes;
    for (; *pattern != '\0'; pattern++) {
        if (*pattern == '*') {
            const char* word = text;
            while (text < end && *text != '.') { text++; }
            if (text == word) { return false; }
        } else if (text == end || *text++ != *pattern) {
            return false;
        }
    }
    return text == end;
}

// If the name is a marker of `part` behind a prefix in use: the rank of the prefix in the list, and its length. Else
// -1.
static int32_t prefix_of(int32_t part, const char* name, size_t* out_bytes)
{
    const size_t name_bytes = strlen(name);
    for (size_t i = 0; i < sizeof s_markers / sizeof *s_markers; i++) {
        const size_t marker_bytes = strlen(s_markers[i].name);
        if (s_markers[i].part != part || name_bytes < marker_bytes
            || strcmp(name + name_bytes - marker_bytes, s_markers[i].name) != 0) {
            continue;
        }
        for (int32_t k = 0; k < 6 && s_prefixes[part][k] != NULL; k++) {
            if (prefix_matches(s_prefixes[part][k], name, name_bytes - marker_bytes)) {
                *out_bytes = name_bytes - marker_bytes;
                return k;
            }
        }
    }
    return -1;
}

// The tensor whose marker has the most usual prefix, NULL when the set does not hold the part.
static const sumi_tensor* find_marker(const sumi_tensor_set* set, int32_t part, size_t* out_prefix_bytes)
{
    SUMI_ASSERT(part >= 0 && part < SUMI_PART_COUNT);
    const sumi_tensor* best = NULL;
    int32_t best_rank = 0;
    for (size_t i = 0; i < set->count; i++) {
        size_t bytes = 0;
        const int32_t rank = prefix_of(part, set->tensors[i].name, &bytes);
        if (rank >= 0 && (best == NULL || rank < best_rank)) {
            best = &set->tensors[i];
            best_rank = rank;
            *out_prefix_bytes = bytes;
        }
    }
    return best;
}

static const char* guess_family(const sumi_checkpoint* checkpoint)
{
    const sumi_part* transformer = &checkpoint->parts[SUMI_PART_TRANSFORMER];
    if (sumi_checkpoint_part_find(transformer, "clip_text_pooled_proj.0.weight") != NULL) { return "newbie-image"; }
    if (sumi_checkpoint_part_find(transformer, "transformer_blocks.0.img_mod.1.weight") != NULL) {
        return "qwen-image";
    }
    // Lumina 2 has the same names with index 1 here, because of an activation at index 0
    if (sumi_checkpoint_part_find(transformer, "cap_embedder.1.weight") != NULL
        && sumi_checkpoint_part_find(transformer, "layers.0.adaLN_modulation.0.weight") != NULL) {
        return "z-image";
    }
    if (transformer->present) { return ""; }
    const char* name = checkpoint->class_name;
    return strncmp(name, "ZImage", 6) == 0    ? "z-image"
         : strncmp(name, "QwenImage", 9) == 0 ? "qwen-image"
         : strncmp(name, "Newbie", 6) == 0    ? "newbie-image"
                                              : "";
}

// ---- Paths ----------------------------------------------------------------------------------------------------------

// folder/name in new memory.
static sumi_result join(sumi_heap* heap, const char* folder, const char* name, sumi_error* error, char** out_path)
{
    const size_t bytes = strlen(folder) + strlen(name) + 2;
    *out_path = sumi_alloc(heap, bytes);
    if (*out_path == NULL) { return sumi_out_of_memory(error, bytes, "a file name"); }
    sumi_path_join(*out_path, bytes, folder, name);
    return SUMI_OK;
}

// The folder that a file or a folder is in: "a/b.txt" -> "a", "a/b/" -> "a", "b.txt" -> ".".
static sumi_result parent(sumi_heap* heap, const char* path, sumi_error* error, char** out_folder)
{
    size_t bytes = strlen(path);
    while (bytes > 1 && path[bytes - 1] == '/') { bytes--; }
    while (bytes > 0 && path[bytes - 1] != '/' && path[bytes - 1] != '\\') { bytes--; }
    *out_folder = sumi_alloc(heap, bytes + 2);
    if (*out_folder == NULL) { return sumi_out_of_memory(error, bytes + 2, "a file name"); }
    memcpy(*out_folder, bytes > 0 ? path : ".", bytes > 0 ? bytes : 1);
    (*out_folder)[bytes > 1 ? bytes - 1 : 1] = '\0';
    return SUMI_OK;
}

// The host's file callbacks know files only: whatever does not open as one is taken for a folder, and then something
// must be found in it.
static bool is_folder(const sumi_checkpoint* checkpoint, const char* path)
{
    return !sumi_file_exists(checkpoint->files, path);
}

static sumi_result copy(sumi_heap* heap, const char* text, sumi_error* error, char** out_copy)
{
    *out_copy = sumi_copy_text(heap, text);
    return *out_copy != NULL || text == NULL ? SUMI_OK : sumi_out_of_memory(error, strlen(text) + 1, "a file name");
}

static sumi_result check_json(const sumi_file* file, sumi_error* error)
{
    SUMI_ASSERT(file->data != NULL || file->bytes == 0);
    sumi_json json;
    sumi_json_begin(&json, file->data, (size_t)file->bytes, error);
    json.name = file->path;
    if (sumi_json_peek(&json) != SUMI_JSON_OBJECT) { sumi_json_refuse(&json, "an object is due"); }
    sumi_json_skip(&json);
    return sumi_json_end(&json);
}

// Opens folder/name into file if it is there. file->data stays NULL otherwise.
static sumi_result open_if_there(sumi_checkpoint* checkpoint, sumi_file* file, const char* folder, const char* name,
                                 bool is_json, sumi_error* error)
{
    SUMI_ASSERT(file->heap == NULL); // closed
    char* path;
    SUMI_TRY(join(checkpoint->heap, folder, name, error, &path));
    sumi_result result = SUMI_OK;
    if (sumi_file_exists(checkpoint->files, path)) {
        result = sumi_file_open(file, checkpoint->heap, checkpoint->files, path, error);
        if (result == SUMI_OK && is_json) { result = check_json(file, error); }
    }
    sumi_free(checkpoint->heap, path);
    return result;
}

static sumi_result file_is_there(const sumi_checkpoint* checkpoint, const char* folder, const char* name,
                                 sumi_error* error, bool* out_there)
{
    char* path;
    SUMI_TRY(join(checkpoint->heap, folder, name, error, &path));
    *out_there = sumi_file_exists(checkpoint->files, path);
    sumi_free(checkpoint->heap, path);
    return SUMI_OK;
}

// ---- Begin ----------------------------------------------------------------------------------------------------------

static sumi_result add_source(sumi_checkpoint* checkpoint, const char* path, int32_t part, bool given, bool folder,
                              sumi_error* error)
{
    SUMI_ASSERT(checkpoint->source_count < MAX_SOURCES && (part == ANY_PART || (part >= 0 && part < SUMI_PART_COUNT)));
    source* s = &checkpoint->sources[checkpoint->source_count++];
    sumi_tensor_set_init(&s->set, checkpoint->heap, checkpoint->files);
    s->part = part;
    s->given = given;
    s->is_folder = folder;
    return copy(checkpoint->heap, path, error, &s->path);
}

sumi_result sumi_checkpoint_begin(sumi_checkpoint* checkpoint, sumi_heap* heap, const sumi_files* files,
                                  const sumi_checkpoint_desc* desc, sumi_error* error)
{
    memset(checkpoint, 0, sizeof *checkpoint);
    checkpoint->heap = heap;
    checkpoint->files = files;
    checkpoint->family = "";
    checkpoint->without_text_encoder = desc->without_text_encoder;
    bool any = desc->path != NULL;
    for (int32_t part = 0; part < SUMI_PART_COUNT; part++) {
        any =
            any || (desc->part_paths[part] != NULL && !(part == SUMI_PART_TEXT_ENCODER && desc->without_text_encoder));
    }
    if (!any) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "no path is given: name a diffusers folder, a checkpoint file, or the transformer's path");
    }
    checkpoint->sources = sumi_alloc_zero(heap, MAX_SOURCES * sizeof *checkpoint->sources);
    if (checkpoint->sources == NULL) {
        return sumi_out_of_memory(error, MAX_SOURCES * sizeof *checkpoint->sources, "a checkpoint's files");
    }
    SUMI_TRY(copy(heap, desc->path, error, &checkpoint->path));
    SUMI_TRY(copy(heap, desc->without_text_encoder ? NULL : desc->tokenizer_path, error, &checkpoint->tokenizer_path));
    for (int32_t part = 0; part < SUMI_PART_COUNT; part++) {
        const char* path = desc->part_paths[part];
        if (path != NULL && !(part == SUMI_PART_TEXT_ENCODER && desc->without_text_encoder)) {
            SUMI_TRY(add_source(checkpoint, path, part, true, is_folder(checkpoint, path), error));
        }
    }
    if (desc->path == NULL) { return SUMI_OK; }
    checkpoint->path_is_folder = is_folder(checkpoint, desc->path);
    if (!checkpoint->path_is_folder) { return add_source(checkpoint, desc->path, ANY_PART, true, false, error); }
    for (int32_t part = 0; part < SUMI_PART_COUNT; part++) {
        if (desc->part_paths[part] == NULL && !(part == SUMI_PART_TEXT_ENCODER && desc->without_text_encoder)) {
            char* folder;
            SUMI_TRY(join(heap, desc->path, s_part_names[part], error, &folder));
            const sumi_result result = add_source(checkpoint, folder, part, false, true, error);
            sumi_free(heap, folder);
            SUMI_TRY(result);
        }
    }
    // the folder of a single part has its weights at its top
    return add_source(checkpoint, desc->path, ANY_PART, false, true, error);
}

// ---- Locate and open ------------------------------------------------------------------------------------------------

// Looks for weights under the names that diffusers and transformers give them.
static sumi_result locate_in(sumi_checkpoint* checkpoint, source* s, const char* folder, sumi_error* error)
{
    SUMI_ASSERT(!s->found);
    static const char* const s_stems[] = {"diffusion_pytorch_model", "model"};
    const bool text_first = s->part == SUMI_PART_TEXT_ENCODER;
    for (int32_t i = 0; i < 2 && !s->found; i++) {
        SUMI_TRY(sumi_tensor_opening_locate_folder(&s->opening, checkpoint->heap, checkpoint->files, folder,
                                                   s_stems[text_first ? 1 - i : i], error, &s->found));
    }
    return SUMI_OK;
}

static sumi_result locate(sumi_checkpoint* checkpoint, source* s, sumi_error* error)
{
    if (!s->is_folder) {
        s->found = true;
        return sumi_tensor_opening_locate_file(&s->opening, checkpoint->heap, s->path, error);
    }
    SUMI_TRY(locate_in(checkpoint, s, s->path, error));
    if (!s->found && s->given) { // a whole model's folder given for one part: its folder is below
        char* folder;
        SUMI_TRY(join(checkpoint->heap, s->path, s_part_names[s->part], error, &folder));
        const sumi_result result = locate_in(checkpoint, s, folder, error);
        if (result == SUMI_OK && s->found) {
            sumi_free(checkpoint->heap, s->path);
            s->path = folder;
        } else {
            sumi_free(checkpoint->heap, folder);
        }
        SUMI_TRY(result);
        if (!s->found) {
            return sumi_fail(error, SUMI_FILE_NOT_FOUND,
                             "%s: no such file, and no folder that holds the weights of a %s (model.safetensors, "
                             "diffusion_pytorch_model.safetensors, their index, or .gguf)",
                             s->path, s_part_names[s->part]);
        }
    }
    return SUMI_OK;
}

static sumi_result locate_next(sumi_checkpoint* checkpoint, sumi_error* error)
{
    SUMI_ASSERT(checkpoint->current >= 0 && checkpoint->current < checkpoint->source_count);
    source* s = &checkpoint->sources[checkpoint->current];
    bool below = false;
    for (int32_t i = 0; i < checkpoint->current; i++) {
        below = below || (!checkpoint->sources[i].given && checkpoint->sources[i].found);
    }
    if (!(s->part == ANY_PART && s->is_folder && below)) { // with parts in folders, files at the top are something else
        SUMI_TRY(locate(checkpoint, s, error));
    }
    checkpoint->file_count += s->opening.count;
    checkpoint->current++;
    return SUMI_OK;
}

// ---- Resolve --------------------------------------------------------------------------------------------------------

static sumi_result use_source(sumi_checkpoint* checkpoint, sumi_part* part, const source* s, const char* name,
                              size_t prefix_bytes, sumi_error* error)
{
    SUMI_ASSERT(!part->present && part->prefix == NULL && s->found);
    part->prefix = sumi_alloc(checkpoint->heap, prefix_bytes + 1);
    if (part->prefix == NULL) { return sumi_out_of_memory(error, prefix_bytes + 1, "a prefix of names"); }
    memcpy(part->prefix, name, prefix_bytes);
    part->prefix[prefix_bytes] = '\0';
    part->present = true;
    part->set = &s->set;
    part->path = s->path;
    return SUMI_OK;
}

static sumi_result resolve_part(sumi_checkpoint* checkpoint, int32_t kind, sumi_error* error)
{
    SUMI_ASSERT(kind >= 0 && kind < SUMI_PART_COUNT);
    sumi_part* part = &checkpoint->parts[kind];
    for (int32_t pass = 0; pass < 2; pass++) { // the part's own source, then all others
        for (int32_t i = 0; i < checkpoint->source_count; i++) {
            const source* s = &checkpoint->sources[i];
            if ((s->part == kind) != (pass == 0)) { continue; }
            part->path = part->path == NULL && s->part == kind ? s->path : part->path;
            if (!s->found) { continue; }
            size_t prefix_bytes = 0;
            const sumi_tensor* found = find_marker(&s->set, kind, &prefix_bytes);
            if (found != NULL) { return use_source(checkpoint, part, s, found->name, prefix_bytes, error); }
            if (pass == 0 && s->given) {
                return sumi_fail(error, SUMI_MODEL_UNKNOWN,
                                 "%s: its %zu tensors are not those of a known %s; check which part the file is",
                                 s->path, s->set.count, s_part_names[kind]);
            }
            if (pass == 0) { // a network this file does not know: its place says what it is
                return use_source(checkpoint, part, s, "", 0, error);
            }
        }
    }
    return SUMI_OK;
}

// A file given by itself must hold something.
static sumi_result check_sources(const sumi_checkpoint* checkpoint, sumi_error* error)
{
    bool any = false;
    for (int32_t i = 0; i < checkpoint->source_count; i++) {
        const source* s = &checkpoint->sources[i];
        any = any || s->found;
        bool known = s->part != ANY_PART || !s->found;
        for (int32_t part = 0; part < SUMI_PART_COUNT && !known; part++) {
            size_t prefix_bytes;
            known = find_marker(&s->set, part, &prefix_bytes) != NULL;
        }
        if (!known) {
            return sumi_fail(error, SUMI_MODEL_UNKNOWN,
                             "%s: its %zu tensors are neither a known transformer, text encoder nor VAE", s->path,
                             s->set.count);
        }
    }
    if (!any) {
        return sumi_fail(error, SUMI_FILE_NOT_FOUND,
                         "%s: no such file, and no folder with transformer/, text_encoder/ or vae/ and weights in them",
                         checkpoint->path);
    }
    return SUMI_OK;
}

// Whether a config.json that was not found in the part's own folder is about this part.
static bool config_suits(const sumi_file* file, int32_t kind)
{
    sumi_json json;
    sumi_json_text key, text;
    bool suits = false;
    sumi_json_begin(&json, file->data, (size_t)file->bytes, NULL);
    sumi_json_object(&json);
    while (sumi_json_key(&json, &key)) {
        if (sumi_json_is(&key, "_class_name") && sumi_json_peek(&json) == SUMI_JSON_STRING
            && sumi_json_string(&json, &text)) {
            char name[128] = "";
            sumi_json_decode(&text, name, sizeof name - 1);
            suits = suits
                 || (kind == SUMI_PART_TRANSFORMER
                     && (strstr(name, "Transformer") != NULL || strstr(name, "DiT") != NULL))
                 || (kind == SUMI_PART_VAE && strstr(name, "Autoencoder") != NULL);
        } else {
            suits = suits
                 || (kind == SUMI_PART_TEXT_ENCODER
                     && (sumi_json_is(&key, "architectures") || sumi_json_is(&key, "model_type")));
            sumi_json_skip(&json);
        }
    }
    return suits;
}

static const source* source_of(const sumi_checkpoint* checkpoint, const sumi_part* part)
{
    for (int32_t i = 0; i < checkpoint->source_count; i++) {
        if (part->set == &checkpoint->sources[i].set) { return &checkpoint->sources[i]; }
    }
    return NULL;
}

static sumi_result resolve_config(sumi_checkpoint* checkpoint, int32_t kind, sumi_error* error)
{
    sumi_part* part = &checkpoint->parts[kind];
    const source* s = source_of(checkpoint, part);
    if (s == NULL) { return SUMI_OK; }
    if (s->is_folder) {
        SUMI_TRY(open_if_there(checkpoint, &part->config, s->path, "config.json", true, error));
    } else {
        char* folder;
        SUMI_TRY(parent(checkpoint->heap, s->path, error, &folder));
        const sumi_result result = open_if_there(checkpoint, &part->config, folder, "config.json", true, error);
        sumi_free(checkpoint->heap, folder);
        SUMI_TRY(result);
    }
    if (part->config.data != NULL && (!s->is_folder || s->part != kind) && !config_suits(&part->config, kind)) {
        sumi_file_close(&part->config);
    }
    if (part->config.data == NULL && checkpoint->path_is_folder) { // weights from elsewhere for the model of `path`
        char* folder;
        SUMI_TRY(join(checkpoint->heap, checkpoint->path, s_part_names[kind], error, &folder));
        const sumi_result result = open_if_there(checkpoint, &part->config, folder, "config.json", true, error);
        sumi_free(checkpoint->heap, folder);
        return result;
    }
    return SUMI_OK;
}

static sumi_result read_model_index(sumi_checkpoint* checkpoint, sumi_error* error)
{
    sumi_file file = {0};
    sumi_result result = open_if_there(checkpoint, &file, checkpoint->path, "model_index.json", true, error);
    if (result == SUMI_OK && file.data != NULL) {
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
            } else {
                sumi_json_skip(&json);
            }
        }
        result = sumi_json_end(&json);
    }
    sumi_file_close(&file);
    return result;
}

// Opens folder/name/tokenizer.json, or notes the folder when it has vocab.json instead. name may be "".
static sumi_result try_tokenizer(sumi_checkpoint* checkpoint, const char* folder, const char* name, sumi_error* error)
{
    if (checkpoint->tokenizer_folder != NULL) { return SUMI_OK; }
    char* joined;
    SUMI_TRY(name[0] != '\0' ? join(checkpoint->heap, folder, name, error, &joined)
                             : copy(checkpoint->heap, folder, error, &joined));
    bool has_vocabulary = false;
    sumi_result result = open_if_there(checkpoint, &checkpoint->tokenizer, joined, "tokenizer.json", false, error);
    if (result == SUMI_OK && checkpoint->tokenizer.data == NULL) {
        result = file_is_there(checkpoint, joined, "vocab.json", error, &has_vocabulary);
    }
    if (result == SUMI_OK && (checkpoint->tokenizer.data != NULL || has_vocabulary)) {
        checkpoint->tokenizer_folder = joined;
    } else {
        sumi_free(checkpoint->heap, joined);
    }
    return result;
}

static sumi_result resolve_tokenizer(sumi_checkpoint* checkpoint, sumi_error* error)
{
    const char* given = checkpoint->tokenizer_path;
    if (given != NULL) {
        if (!is_folder(checkpoint, given)) {
            SUMI_TRY(parent(checkpoint->heap, given, error, &checkpoint->tokenizer_folder));
            return sumi_file_open(&checkpoint->tokenizer, checkpoint->heap, checkpoint->files, given, error);
        }
        SUMI_TRY(try_tokenizer(checkpoint, given, "", error));
        SUMI_TRY(try_tokenizer(checkpoint, given, "tokenizer", error));
        return checkpoint->tokenizer_folder != NULL
                 ? SUMI_OK
                 : sumi_fail(error, SUMI_FILE_NOT_FOUND, "%s: no such file, and no folder that holds tokenizer.json",
                             given);
    }
    if (checkpoint->path_is_folder) {
        static const char* const s_folders[] = {"tokenizer", "text_encoder", "processor", ""};
        for (size_t i = 0; i < sizeof s_folders / sizeof *s_folders; i++) {
            SUMI_TRY(try_tokenizer(checkpoint, checkpoint->path, s_folders[i], error));
        }
    }
    const sumi_part* part = &checkpoint->parts[SUMI_PART_TEXT_ENCODER];
    if (part->present && checkpoint->tokenizer_folder == NULL) { // beside the text encoder's weights
        const source* s = source_of(checkpoint, part);
        char* folder;
        sumi_result result = s->is_folder ? try_tokenizer(checkpoint, s->path, "", error) : SUMI_OK;
        SUMI_TRY(result);
        SUMI_TRY(parent(checkpoint->heap, s->path, error, &folder));
        result = s->is_folder ? SUMI_OK : try_tokenizer(checkpoint, folder, "", error);
        if (result == SUMI_OK) { result = try_tokenizer(checkpoint, folder, "tokenizer", error); }
        sumi_free(checkpoint->heap, folder);
        return result;
    }
    return SUMI_OK;
}

static sumi_result resolve_scheduler(sumi_checkpoint* checkpoint, sumi_error* error)
{
    if (checkpoint->path_is_folder) {
        SUMI_TRY(open_if_there(checkpoint, &checkpoint->scheduler, checkpoint->path, "scheduler/scheduler_config.json",
                               true, error));
    }
    const source* s = source_of(checkpoint, &checkpoint->parts[SUMI_PART_TRANSFORMER]);
    if (checkpoint->scheduler.data == NULL && s != NULL && s->is_folder) { // beside the transformer's folder
        char* folder;
        SUMI_TRY(parent(checkpoint->heap, s->path, error, &folder));
        const sumi_result result =
            open_if_there(checkpoint, &checkpoint->scheduler, folder, "scheduler/scheduler_config.json", true, error);
        sumi_free(checkpoint->heap, folder);
        return result;
    }
    return SUMI_OK;
}

static sumi_result resolve(sumi_checkpoint* checkpoint, sumi_error* error)
{
    SUMI_TRY(check_sources(checkpoint, error));
    if (checkpoint->path_is_folder) { SUMI_TRY(read_model_index(checkpoint, error)); }
    for (int32_t kind = 0; kind < SUMI_PART_COUNT; kind++) {
        if (kind == SUMI_PART_TEXT_ENCODER && checkpoint->without_text_encoder) { continue; }
        SUMI_TRY(resolve_part(checkpoint, kind, error));
        SUMI_TRY(resolve_config(checkpoint, kind, error));
    }
    if (!checkpoint->without_text_encoder) { SUMI_TRY(resolve_tokenizer(checkpoint, error)); }
    SUMI_TRY(resolve_scheduler(checkpoint, error));
    checkpoint->family = guess_family(checkpoint);
    return SUMI_OK;
}

// ---- Steps ----------------------------------------------------------------------------------------------------------

static sumi_result open_next(sumi_checkpoint* checkpoint, sumi_error* error)
{
    source* s = &checkpoint->sources[checkpoint->current];
    bool done = true;
    if (s->found) {
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

sumi_result sumi_checkpoint_step(sumi_checkpoint* checkpoint, bool* out_done, sumi_error* error)
{
    *out_done = false;
    switch (checkpoint->stage) {
    case STAGE_LOCATE: SUMI_TRY(locate_next(checkpoint, error)); break;
    case STAGE_OPEN: SUMI_TRY(open_next(checkpoint, error)); break;
    case STAGE_RESOLVE:
        SUMI_TRY(resolve(checkpoint, error));
        checkpoint->stage = STAGE_DONE;
        break;
    default: break;
    }
    if (checkpoint->stage < STAGE_RESOLVE && checkpoint->current == checkpoint->source_count) {
        checkpoint->stage++;
        checkpoint->current = 0;
    }
    *out_done = checkpoint->stage == STAGE_DONE;
    return SUMI_OK;
}

float sumi_checkpoint_progress(const sumi_checkpoint* checkpoint)
{
    switch (checkpoint->stage) {
    case STAGE_LOCATE:
        return checkpoint->source_count > 0 ? 0.05f * (float)checkpoint->current / (float)checkpoint->source_count
                                            : 0.0f;
    case STAGE_OPEN:
        return 0.05f
             + (checkpoint->file_count > 0 ? 0.9f * (float)checkpoint->opened_count / (float)checkpoint->file_count
                                           : 0.0f);
    case STAGE_RESOLVE: return 0.95f;
    default: return 1.0f;
    }
}

sumi_result sumi_checkpoint_open(sumi_checkpoint* checkpoint, sumi_heap* heap, const sumi_files* files,
                                 const sumi_checkpoint_desc* desc, sumi_error* error)
{
    SUMI_TRY(sumi_checkpoint_begin(checkpoint, heap, files, desc, error));
    for (bool done = false; !done;) { SUMI_TRY(sumi_checkpoint_step(checkpoint, &done, error)); }
    return SUMI_OK;
}

void sumi_checkpoint_close(sumi_checkpoint* checkpoint)
{
    if (checkpoint->heap == NULL) { return; }
    for (int32_t kind = 0; kind < SUMI_PART_COUNT; kind++) {
        sumi_file_close(&checkpoint->parts[kind].config);
        sumi_free(checkpoint->heap, checkpoint->parts[kind].prefix);
    }
    sumi_file_close(&checkpoint->tokenizer);
    sumi_file_close(&checkpoint->scheduler);
    for (int32_t i = 0; i < checkpoint->source_count; i++) {
        sumi_tensor_opening_end(&checkpoint->sources[i].opening);
        sumi_tensor_set_close(&checkpoint->sources[i].set);
        sumi_free(checkpoint->heap, checkpoint->sources[i].path);
    }
    sumi_free(checkpoint->heap, checkpoint->sources);
    sumi_free(checkpoint->heap, checkpoint->tokenizer_folder);
    sumi_free(checkpoint->heap, checkpoint->tokenizer_path);
    sumi_free(checkpoint->heap, checkpoint->path);
    memset(checkpoint, 0, sizeof *checkpoint);
}

// ---- Asking ---------------------------------------------------------------------------------------------------------

const sumi_tensor* sumi_checkpoint_part_find(const sumi_part* part, const char* name)
{
    return part->present ? sumi_tensor_find_prefixed(part->set, part->prefix, name) : NULL;
}

const char* sumi_checkpoint_part_name(const sumi_part* part, const sumi_tensor* tensor)
{
    if (!part->present) { return NULL; }
    const size_t bytes = strlen(part->prefix);
    return strncmp(tensor->name, part->prefix, bytes) == 0 ? tensor->name + bytes : NULL;
}

// The quantisation's name in JSON such as {"format": "float8_e4m3fn"}; "" without one.
static sumi_result read_format(sumi_json* json, char* format, size_t capacity)
{
    sumi_json_text key, text;
    sumi_json_object(json);
    while (sumi_json_key(json, &key)) {
        if (sumi_json_is(&key, "format") && sumi_json_string(json, &text)) {
            const size_t bytes = sumi_json_decode(&text, format, capacity - 1);
            format[bytes < capacity ? bytes : 0] = '\0';
            if (bytes >= capacity) { sumi_json_refuse(json, "a format with an overlong name"); }
        } else {
            sumi_json_skip(json);
        }
    }
    return json->failed ? json->failure : SUMI_OK;
}

// What the header says of a layer: {"format_version": ..., "layers": {L: {"format": ...}}}, with L as the file has it
// or without the prefix.
static sumi_result format_of_metadata(const sumi_part* part, const char* text, const char* layer, char* format,
                                      size_t capacity, sumi_error* error)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", part->prefix, layer);
    sumi_json json;
    sumi_json_text key, name;
    sumi_json_begin(&json, text, strlen(text), error);
    json.name = part->path;
    sumi_json_object(&json);
    while (sumi_json_key(&json, &key)) {
        if (!sumi_json_is(&key, "layers")) {
            sumi_json_skip(&json);
            continue;
        }
        sumi_json_object(&json);
        while (sumi_json_key(&json, &name)) {
            if (sumi_json_is(&name, full) || sumi_json_is(&name, layer)) {
                SUMI_TRY(read_format(&json, format, capacity));
            } else {
                sumi_json_skip(&json);
            }
        }
    }
    return sumi_json_end(&json);
}

static const sumi_tensor* find_beside(const sumi_part* part, const char* layer, const char* suffix)
{
    char name[512];
    const int written = snprintf(name, sizeof name, "%s%s", layer, suffix);
    return written > 0 && (size_t)written < sizeof name ? sumi_checkpoint_part_find(part, name) : NULL;
}

sumi_result sumi_tensor_scale(const sumi_part* part, const char* name, float* out_scale, sumi_error* error)
{
    *out_scale = 1.0f;
    char layer[480], format[64] = "";
    const size_t bytes = strlen(name);
    const sumi_tensor* weight = sumi_checkpoint_part_find(part, name);
    if (weight == NULL || bytes < 7 || strcmp(name + bytes - 7, ".weight") != 0 || bytes - 7 >= sizeof layer) {
        return SUMI_OK;
    }
    memcpy(layer, name, bytes - 7);
    layer[bytes - 7] = '\0';

    const sumi_tensor* quant = find_beside(part, layer, ".comfy_quant");
    if (quant != NULL) {
        sumi_json json;
        sumi_json_begin(&json, quant->data, (size_t)quant->bytes, error);
        json.name = part->path;
        SUMI_TRY(read_format(&json, format, sizeof format));
        SUMI_TRY(sumi_json_end(&json));
    } else {
        for (size_t i = 0; i < part->set->metadata_count; i++) { // every shard may have its own
            if (strcmp(part->set->metadata[i].key, "_quantization_metadata") == 0) {
                SUMI_TRY(format_of_metadata(part, part->set->metadata[i].value, layer, format, sizeof format, error));
            }
        }
    }
    const sumi_tensor* scale = find_beside(part, layer, ".weight_scale");
    const bool is_fp8 = weight->dtype == SUMI_DTYPE_F8_E4M3 || weight->dtype == SUMI_DTYPE_F8_E5M2;
    const char* refused = NULL;
    if (format[0] != '\0' && strcmp(format, "float8_e4m3fn") != 0 && strcmp(format, "float8_e5m2") != 0) {
        refused = format;
    } else if (find_beside(part, layer, ".weight_scale_2") != NULL) {
        refused = "nvfp4";
    } else if (scale != NULL && !is_fp8) {
        refused = weight->dtype == SUMI_DTYPE_I8 ? "int8" : sumi_dtype_get(weight->dtype)->name;
    }
    scale = scale != NULL ? scale : find_beside(part, layer, ".scale_weight");
    int64_t count = 1;
    for (int32_t i = 0; scale != NULL && i < scale->rank; i++) {
        count *= scale->shape[i] == 1 ? 1 : 2; // one value or not is all that matters
    }
    if (refused == NULL && count != 1) { refused = "fp8 with a scale per row or block"; }
    if (refused != NULL) {
        return sumi_fail(error, SUMI_NOT_SUPPORTED,
                         "%s: tensor %s%s is quantised as %s, which is not supported; take the bf16, fp8 (one scale) "
                         "or GGUF file of the model",
                         part->path, part->prefix, name, refused);
    }
    if (scale == NULL) { return SUMI_OK; }
    if (scale->dtype != SUMI_DTYPE_F32 && scale->dtype != SUMI_DTYPE_BF16 && scale->dtype != SUMI_DTYPE_F16
        && scale->dtype != SUMI_DTYPE_F64) {
        return sumi_fail(error, SUMI_NOT_SUPPORTED, "%s: the scale %s is of type %s; F32 is known", part->path,
                         scale->name, sumi_dtype_get(scale->dtype)->name);
    }
    sumi_dtype_to_float(scale->dtype, scale->data, out_scale, 1);
    if (!(*out_scale - *out_scale == 0.0f)) { // infinity or NaN
        return sumi_fail(error, SUMI_FILE_MALFORMED, "%s: the scale %s is not finite", part->path, scale->name);
    }
    return SUMI_OK;
}
