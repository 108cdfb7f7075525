#include "files/checkpoint_files.h"
#include "base/assert.h"
#include "files/json.h"
#include <string.h>

sumi_result sumi_checkpoint_join(sumi_heap* heap, const char* folder, const char* name, sumi_error* error,
                                 char** out_path)
{
    const size_t bytes = strlen(folder) + strlen(name) + 2;
    *out_path = sumi_alloc(heap, bytes);
    if (*out_path == NULL) return sumi_out_of_memory(error, bytes, "a file name");
    sumi_path_join(*out_path, bytes, folder, name);
    return SUMI_OK;
}

sumi_result sumi_checkpoint_parent(sumi_heap* heap, const char* path, sumi_error* error, char** out_folder)
{
    size_t bytes = strlen(path);
    while (bytes > 1 && path[bytes - 1] == '/') bytes--;
    while (bytes > 0 && path[bytes - 1] != '/' && path[bytes - 1] != '\\') bytes--;
    *out_folder = sumi_alloc(heap, bytes + 2);
    if (*out_folder == NULL) return sumi_out_of_memory(error, bytes + 2, "a file name");
    memcpy(*out_folder, bytes > 0 ? path : ".", bytes > 0 ? bytes : 1);
    (*out_folder)[bytes > 1 ? bytes - 1 : 1] = '\0';
    return SUMI_OK;
}

bool sumi_checkpoint_is_folder(const sumi_checkpoint* checkpoint, const char* path)
{
    return sumi_file_is_folder(checkpoint->files, path);
}

sumi_result sumi_checkpoint_copy_text(sumi_heap* heap, const char* text, sumi_error* error, char** out_copy)
{
    *out_copy = sumi_copy_text(heap, text);
    return *out_copy != NULL || text == NULL ? SUMI_OK : sumi_out_of_memory(error, strlen(text) + 1, "a file name");
}

sumi_result sumi_checkpoint_check_json(const sumi_file* file, sumi_error* error)
{
    SUMI_ASSERT(file->data != NULL || file->bytes == 0);
    sumi_json json;
    sumi_json_begin(&json, file->data, (size_t)file->bytes, error);
    json.name = file->path;
    if (sumi_json_peek(&json) != SUMI_JSON_OBJECT) sumi_json_refuse(&json, "expected an object");
    sumi_json_skip(&json);
    return sumi_json_end(&json);
}

sumi_result sumi_checkpoint_open_optional(sumi_checkpoint* checkpoint, sumi_file* file, const char* folder,
                                          const char* name, bool is_json, sumi_error* error)
{
    SUMI_ASSERT(file->heap == NULL); // the file must be closed
    char* path;
    SUMI_TRY(sumi_checkpoint_join(checkpoint->heap, folder, name, error, &path));
    sumi_result result = SUMI_OK;
    if (sumi_file_exists(checkpoint->files, path)) {
        result = sumi_file_open(file, checkpoint->heap, checkpoint->files, path, error);
        if (result == SUMI_OK && is_json) result = sumi_checkpoint_check_json(file, error);
    }
    sumi_free(checkpoint->heap, path);
    return result;
}

const struct sumi_source* sumi_checkpoint_source_of(const sumi_checkpoint* checkpoint, const sumi_component* component)
{
    for (int32_t i = 0; i < checkpoint->source_count; i++) {
        if (component->set == &checkpoint->sources[i].set) return &checkpoint->sources[i];
    }
    return NULL;
}
