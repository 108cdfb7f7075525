// What a checkpoint is refused for by what lies in its files: weights as another program quantises them, and folders
// that have a component's settings but not its weights.
#include "base/assert.h"
#include "files/checkpoint_files.h"
#include <stdio.h>
#include <string.h>

// ---- Methods of other programs ----------------------------------------------------------------------------------------

// The tensor that lies beside `tensor`, with the end `to` in place of `from`; NULL: there is none.
static const sumi_tensor* find_beside(const sumi_tensor_set* set, const sumi_tensor* tensor, const char* from,
                                      const char* to)
{
    char name[512];
    const size_t stem_bytes = strlen(tensor->name) - strlen(from);
    const int written = snprintf(name, sizeof name, "%.*s%s", (int)stem_bytes, tensor->name, to);
    return written > 0 && (size_t)written < sizeof name ? sumi_tensor_find(set, name) : NULL;
}

static bool has_mark(const sumi_tensor_set* set, const sumi_tensor* tensor, const sumi_foreign_method* method)
{
    const size_t bytes = strlen(tensor->name), end_bytes = strlen(method->ends[0]);
    if (bytes <= end_bytes || strcmp(tensor->name + bytes - end_bytes, method->ends[0]) != 0) return false;
    for (int32_t i = 1; i < SUMI_METHOD_ENDS && method->ends[i] != NULL; i++) {
        const sumi_tensor* beside = find_beside(set, tensor, method->ends[0], method->ends[i]);
        if (beside == NULL || (method->is_packed && beside->dtype != SUMI_DTYPE_U8)) return false;
    }
    return true;
}

const sumi_foreign_method* sumi_foreign_method_find(const sumi_foreign_method* methods, size_t method_count,
                                                    const sumi_tensor_set* set, const char* prefix,
                                                    const sumi_tensor** out_tensor)
{
    const size_t prefix_bytes = strlen(prefix);
    for (size_t k = 0; k < method_count; k++) { // the first row counts, whatever the order of the tensors
        for (size_t i = 0; i < set->count; i++) {
            *out_tensor = &set->tensors[i];
            if (strncmp(set->tensors[i].name, prefix, prefix_bytes) == 0
                && has_mark(set, &set->tensors[i], &methods[k]))
                return &methods[k];
        }
    }
    *out_tensor = NULL;
    return NULL;
}

void sumi_checkpoint_describe_method(const sumi_foreign_method* method, const sumi_tensor_set* set,
                                     const sumi_tensor* tensor, const char* path, char* text, size_t capacity)
{
    const char* file = tensor->file_index >= 0 && set->opened_count > 0 ? set->opened[tensor->file_index].path : path;
    const bool is_other = strcmp(file, path) != 0; // of a folder: which of its files it is
    snprintf(text, capacity,
             "its weights are quantised with %s, as the tensor %.*s%s%s shows, and this is not "
             "supported; " SUMI_QUANTISATION_ADVICE,
             method->name, sumi_name_shown(strlen(tensor->name)), tensor->name, is_other ? " in " : "",
             is_other ? file : "");
}

bool sumi_component_is_refused(const sumi_component* component, char* text, size_t capacity)
{
    if (component->method != NULL) {
        sumi_checkpoint_describe_method(component->method, component->set, component->method_tensor, component->path,
                                        text, capacity);
    } else if (component->signature != NULL && component->signature->refusal != NULL) {
        snprintf(text, capacity, "%s", component->signature->refusal);
    } else {
        return false;
    }
    return true;
}

// ---- Folders without weights ----------------------------------------------------------------------------------------

// Whether folder/name exists. False also if memory for the path is lacking.
static bool has_file(const sumi_checkpoint* checkpoint, const char* folder, const char* name)
{
    char* path;
    sumi_error ignored = {0};
    if (sumi_checkpoint_join(checkpoint->heap, folder, name, &ignored, &path) != SUMI_OK) return false;
    const bool exists = sumi_file_exists(checkpoint->files, path);
    sumi_free(checkpoint->heap, path);
    return exists;
}

// A file with weights as PyTorch pickles them; "": none. The names are those of diffusers, transformers and their users.
static void find_pickle(const sumi_checkpoint* checkpoint, const char* folder, char* name, size_t capacity)
{
    static const char* const s_stems[] = {"diffusion_pytorch_model", "pytorch_model", "model", "consolidated.00"};
    static const char* const s_ends[] = {
        ".bin", ".bin.index.json", "-00001-of-00002.bin", "-00001-of-00003.bin", ".fp16.bin", ".pt", ".pth", ".ckpt"};
    for (size_t i = 0; i < sizeof s_stems / sizeof *s_stems; i++) {
        for (size_t k = 0; k < sizeof s_ends / sizeof *s_ends; k++) {
            snprintf(name, capacity, "%s%s", s_stems[i], s_ends[k]);
            if (has_file(checkpoint, folder, name)) return;
        }
    }
    name[0] = '\0';
}

sumi_result sumi_checkpoint_check_folder(const sumi_checkpoint* checkpoint, const char* folder, const char* what,
                                         const char* stem, sumi_error* error)
{
    // The host program's files know no folders, and sumi.h says which names they are asked for.
    if (!sumi_file_exists(checkpoint->files, folder)) return SUMI_OK;
    char name[64];
    find_pickle(checkpoint, folder, name, sizeof name);
    if (name[0] != '\0') {
        return sumi_fail(error, SUMI_NOT_SUPPORTED,
                         "%s: the weights of this %s are there only as %s, a file of PyTorch (.bin, .pt, .ckpt), which "
                         "is not read because it may run code; take the safetensors (bf16, fp8) or GGUF files of the "
                         "model",
                         folder, what, name);
    }
    if (!has_file(checkpoint, folder, "config.json")) return SUMI_OK;
    return sumi_fail(error, SUMI_FILE_NOT_FOUND,
                     "%s: has a config.json and no weights; download them: %s.safetensors, or its parts with "
                     "%s.safetensors.index.json, or give the %s's own file (safetensors or GGUF)",
                     folder, stem, stem, what);
}
