// Opens the files of a tensor set. Their content decides which reader is used.
#include "base/assert.h"
#include "files/tensors.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_PARTS 4096
#define MOST_TRIED_PARTS 48 // of a folder without an index: parts have 5 GB, and the largest models some ten of them

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

// ---- Parts ----------------------------------------------------------------------------------------------------------

// A path of one part: all of them are NAME-00002-of-00005.EXTENSION.
typedef struct part_path {
    int32_t name_bytes, count; // of the path before the number; how many parts there are
    const char* extension;     // ".safetensors" or ".gguf"
} part_path;

static int32_t five_digits(const char* text)
{
    int32_t value = 0;
    for (int32_t i = 0; i < 5; i++) {
        if (text[i] < '0' || text[i] > '9') return -1;
        value = 10 * value + (text[i] - '0');
    }
    return value;
}

// False if the path is not that of one of several parts.
static bool is_part(const char* path, part_path* out)
{
    static const char* const s_extensions[] = {".safetensors", ".gguf"};
    const size_t bytes = strlen(path);
    for (size_t i = 0; i < sizeof s_extensions / sizeof *s_extensions; i++) {
        const size_t end = strlen(s_extensions[i]);
        if (bytes < end + 15 || strcmp(path + bytes - end, s_extensions[i]) != 0) continue;
        const char* number = path + bytes - end - 15; // "-00002-of-00005"
        const int32_t index = number[0] == '-' ? five_digits(number + 1) : -1, count = five_digits(number + 10);
        if (strncmp(number + 6, "-of-", 4) != 0 || index < 1 || count < 2 || index > count || count > MOST_PARTS)
            continue;
        *out = (part_path){(int32_t)(number - path), count, s_extensions[i]};
        return true;
    }
    return false;
}

// Lists all parts. A part that is not there fails, and the message has the numbers of the first few.
static sumi_result add_parts(sumi_tensor_opening* opening, const sumi_files* files, const char* path,
                             const part_path* part, sumi_error* error)
{
    const size_t bytes = (size_t)part->name_bytes + 32;
    char *name = sumi_alloc(opening->heap, bytes), missing[64] = "";
    if (name == NULL) return sumi_out_of_memory(error, bytes, "a file name");
    sumi_result result = SUMI_OK;
    int32_t missing_count = 0;
    for (int32_t i = 1; i <= part->count && result == SUMI_OK; i++) {
        snprintf(name, bytes, "%.*s-%05d-of-%05d%s", (int)part->name_bytes, path, (int)i, (int)part->count,
                 part->extension);
        if (sumi_file_exists(files, name)) {
            result = add_path(opening, name, error);
            continue;
        }
        const size_t used = strlen(missing);
        if (missing_count++ < 8) snprintf(missing + used, sizeof missing - used, "%s%d", used > 0 ? ", " : "", (int)i);
    }
    sumi_free(opening->heap, name);
    if (result != SUMI_OK || missing_count == 0) return result;
    return sumi_fail(error, SUMI_FILE_NOT_FOUND,
                     "%s: is one of %d parts, and %d of them (%s%s) %s not beside it: download the whole folder", path,
                     (int)part->count, (int)missing_count, missing, missing_count > 8 ? " ..." : "",
                     missing_count > 1 ? "are" : "is");
}

sumi_result sumi_tensor_opening_locate_file(sumi_tensor_opening* opening, sumi_heap* heap, const sumi_files* files,
                                            const char* path, sumi_error* error)
{
    SUMI_ASSERT(opening->heap == NULL && opening->count == 0); // must be zeroed
    part_path part;
    opening->heap = heap;
    return is_part(path, &part) && sumi_file_exists(files, path) ? add_parts(opening, files, path, &part, error)
                                                                 : add_path(opening, path, error);
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

// Looks for the parts of weights without an index, by the names of the first two: one of them may be missing.
static sumi_result locate_parts(sumi_tensor_opening* opening, const sumi_files* files, const char* folder,
                                const char* stem, sumi_error* error, bool* out_found)
{
    static const char* const s_extensions[] = {".safetensors", ".gguf"};
    if (!sumi_file_exists(files, folder))
        return SUMI_OK; // of the host program's files, which know no folders, sumi.h
                        // says which names are tried
    sumi_result result = SUMI_OK;
    for (int32_t i = 0; i < 4 * (MOST_TRIED_PARTS - 1) && result == SUMI_OK && !*out_found; i++) {
        char suffix[48];
        const int32_t count = 2 + i / 4;
        snprintf(suffix, sizeof suffix, "-%05d-of-%05d%s", (int)(1 + i % 2), (int)count, s_extensions[i / 2 % 2]);
        char* path = join_in_folder(opening->heap, folder, stem, suffix);
        if (path == NULL) return sumi_out_of_memory(error, strlen(folder) + strlen(stem), "a file name");
        part_path part;
        *out_found = sumi_file_exists(files, path);
        if (*out_found && is_part(path, &part)) result = add_parts(opening, files, path, &part, error);
        sumi_free(opening->heap, path);
    }
    return result;
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
    return *out_found ? SUMI_OK : locate_parts(opening, files, folder, stem, error, out_found);
}

// A split GGUF file whose parts were renamed.
static sumi_result check_split(const sumi_tensor_opening* opening, const sumi_tensor_set* set, sumi_error* error)
{
    const char* count = sumi_metadata_find(set, "split.count");
    if (count == NULL || strtol(count, NULL, 10) <= 1 || (size_t)strtol(count, NULL, 10) == opening->count)
        return SUMI_OK;
    return sumi_fail(
        error, SUMI_NOT_SUPPORTED,
        "%s: is a split GGUF file of %.20s parts, which are read if they are named NAME-00001-of-%05d.gguf "
        "and so on in one folder; join them with llama-gguf-split --merge",
        opening->paths[0], count, (int)strtol(count, NULL, 10));
}

sumi_result sumi_tensor_opening_step(sumi_tensor_opening* opening, sumi_tensor_set* set, sumi_error* error,
                                     bool* out_done)
{
    SUMI_ASSERT(opening->heap != NULL && opening->next <= opening->count);
    *out_done = false;
    if (opening->next < opening->count) {
        const char* path = opening->paths[opening->next];
        sumi_error detail = {0};
        const sumi_result result = sumi_tensor_set_open(set, path, &detail);
        if (result == SUMI_FILE_NOT_FOUND && opening->index.path != NULL)
            return sumi_fail(error, result, "%s (%s names it: download it)", detail.text, opening->index.path);
        if (result != SUMI_OK) return detail.result != SUMI_OK ? sumi_fail_with(error, &detail) : result;
        opening->next++;
    }
    if (opening->next == opening->count) {
        if (opening->count > 0) SUMI_TRY(check_split(opening, set, error));
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
