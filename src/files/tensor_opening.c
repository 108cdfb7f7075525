// Opens the files of a tensor set. Their content decides which reader is used.
#include "base/assert.h"
#include "files/tensors.h"
#include <string.h>

sumi_result sumi_tensor_set_open(sumi_tensor_set* set, const char* path, sumi_error* error)
{
    SUMI_ASSERT(set->heap != NULL && path != NULL);
    SUMI_TRY(sumi_grow(set->heap, (void**)&set->opened, &set->opened_capacity, set->opened_count + 1,
                       sizeof *set->opened, error));
    sumi_file* file = &set->opened[set->opened_count];
    SUMI_TRY(sumi_file_open(file, set->heap, set->files, path, error));
    set->opened_count++;
    const size_t first = set->count;
    const sumi_mapping mapping = file->mapping; // a reader may move set->opened while it adds to the set
    const bool is_gguf = file->bytes >= 4 && memcmp(file->data, "GGUF", 4) == 0;
    SUMI_TRY(is_gguf ? sumi_gguf_read(set, file->data, file->bytes, path, error)
                     : sumi_safetensors_read(set, file->data, file->bytes, path, error));
    for (size_t i = first; i < set->count; i++) {
        set->tensors[i].mapping = mapping.is_shared ? mapping.data : NULL;
        set->tensors[i].mapping_bytes = mapping.bytes;
    }
    return SUMI_OK;
}

static sumi_result add_path(sumi_tensor_opening* opening, const char* path, sumi_error* error)
{
    SUMI_TRY(sumi_grow(opening->heap, (void**)&opening->paths, &opening->capacity, opening->count + 1,
                       sizeof *opening->paths, error));
    char* copy = sumi_copy_text(opening->heap, path);
    if (copy == NULL) return sumi_out_of_memory(error, strlen(path) + 1, "a file name");
    opening->paths[opening->count++] = copy;
    return SUMI_OK;
}

sumi_result sumi_tensor_opening_locate_file(sumi_tensor_opening* opening, sumi_heap* heap, const char* path,
                                            sumi_error* error)
{
    SUMI_ASSERT(opening->heap == NULL && opening->count == 0); // must be zeroed
    opening->heap = heap;
    return add_path(opening, path, error);
}

// The path folder/stem + suffix in newly allocated memory, which the caller frees. NULL: no memory.
static char* join_in_folder(sumi_heap* heap, const char* folder, const char* stem, const char* suffix)
{
    const size_t bytes = strlen(folder) + strlen(stem) + strlen(suffix) + 2;
    char* path = sumi_alloc(heap, bytes);
    char* name = sumi_alloc(heap, bytes);
    if (path != NULL && name != NULL) {
        strcpy(name, stem);
        strcat(name, suffix);
        sumi_path_join(path, bytes, folder, name);
    } else {
        sumi_free(heap, path);
        path = NULL;
    }
    sumi_free(heap, name);
    return path;
}

sumi_result sumi_tensor_opening_locate_folder(sumi_tensor_opening* opening, sumi_heap* heap, const sumi_files* files,
                                              const char* folder, const char* stem, sumi_error* error, bool* out_found)
{
    SUMI_ASSERT(opening->count == 0 && opening->index.heap == NULL);
    static const char* const s_suffixes[] = {".safetensors.index.json", ".safetensors", ".bf16.safetensors",
                                             ".fp16.safetensors", ".gguf"};
    opening->heap = heap;
    *out_found = false;
    for (size_t i = 0; i < sizeof s_suffixes / sizeof *s_suffixes && !*out_found; i++) {
        char* path = join_in_folder(heap, folder, stem, s_suffixes[i]);
        if (path == NULL) return sumi_out_of_memory(error, strlen(folder) + strlen(stem), "a file name");
        sumi_result result = SUMI_OK;
        if (sumi_file_exists(files, path)) {
            *out_found = true;
            if (i > 0) {
                result = add_path(opening, path, error);
            } else {
                result = sumi_file_open(&opening->index, heap, files, path, error);
                const sumi_index_text index = {opening->index.data, opening->index.bytes, folder, path};
                if (result == SUMI_OK) result = sumi_index_list_shards(opening, &index, error);
            }
        }
        sumi_free(heap, path);
        SUMI_TRY(result);
    }
    return SUMI_OK;
}

sumi_result sumi_tensor_opening_step(sumi_tensor_opening* opening, sumi_tensor_set* set, sumi_error* error,
                                     bool* out_done)
{
    SUMI_ASSERT(opening->heap != NULL && opening->next <= opening->count);
    *out_done = false;
    if (opening->next < opening->count) {
        SUMI_TRY(sumi_tensor_set_open(set, opening->paths[opening->next], error));
        opening->next++;
    }
    if (opening->next == opening->count) {
        if (opening->index.path != NULL) {
            const sumi_index_text index = {
                .data = opening->index.data, .bytes = opening->index.bytes, .path = opening->index.path};
            SUMI_TRY(sumi_index_check(set, opening->heap, &index, error));
        }
        *out_done = true;
    }
    return SUMI_OK;
}

void sumi_tensor_opening_end(sumi_tensor_opening* opening)
{
    if (opening->heap == NULL) return;
    sumi_file_close(&opening->index);
    for (size_t i = 0; i < opening->count; i++) sumi_free(opening->heap, opening->paths[i]);
    sumi_free(opening->heap, opening->paths);
    memset(opening, 0, sizeof *opening);
}
