#include "base/file.h"
#include "base/assert.h"
#include <string.h>

static bool is_built_in(const sumi_files* files) { return files == NULL || files->open == NULL; }

sumi_result sumi_file_open(sumi_file* file, sumi_heap* heap, const sumi_files* files, const char* path,
                           sumi_error* error)
{
    SUMI_ASSERT(heap != NULL && path != NULL);
    memset(file, 0, sizeof *file);
    file->heap = heap;
    file->path = sumi_copy_text(heap, path);
    if (file->path == NULL) { return sumi_out_of_memory(error, strlen(path) + 1, "a file name"); }
    if (is_built_in(files)) {
        sumi_result result = sumi_mapping_open(&file->mapping, path, error);
        if (result != SUMI_OK) {
            sumi_file_close(file);
            return result;
        }
        file->data = file->mapping.data;
        file->bytes = file->mapping.bytes;
        SUMI_ASSERT(file->data != NULL || file->bytes == 0);
        return SUMI_OK;
    }
    file->files = files;
    file->handle = files->open(path, &file->bytes, files->user_data);
    if (file->handle == NULL) {
        sumi_fail(error, SUMI_FILE_NOT_FOUND, "%s: the host's files.open returned NULL; check the path", path);
        sumi_file_close(file);
        return SUMI_FILE_NOT_FOUND;
    }
    if (files->map != NULL) { file->data = files->map(file->handle, files->user_data); }
    if (file->data == NULL && file->bytes > 0) {
        file->copy = file->bytes > SIZE_MAX ? NULL : sumi_alloc(heap, (size_t)file->bytes);
        if (file->copy == NULL) {
            sumi_out_of_memory(error, (size_t)file->bytes, path);
            sumi_file_close(file);
            return SUMI_OUT_OF_HOST_MEMORY;
        }
        if (files->read == NULL || !files->read(file->handle, 0, file->copy, (size_t)file->bytes, files->user_data)) {
            sumi_fail(error, SUMI_FILE_READ_FAILED, "%s: the host's files.read failed for %llu bytes", path,
                      (unsigned long long)file->bytes);
            sumi_file_close(file);
            return SUMI_FILE_READ_FAILED;
        }
        file->data = file->copy;
    }
    return SUMI_OK;
}

void sumi_file_close(sumi_file* file)
{
    if (file->heap == NULL) { return; }
    if (file->handle != NULL && file->files->close != NULL) {
        file->files->close(file->handle, file->files->user_data);
    }
    sumi_mapping_close(&file->mapping);
    sumi_free(file->heap, file->copy);
    sumi_free(file->heap, file->path);
    memset(file, 0, sizeof *file);
}

bool sumi_file_exists(const sumi_files* files, const char* path)
{
    SUMI_ASSERT(path != NULL);
    if (is_built_in(files)) { return sumi_path_is_file(path); }
    uint64_t bytes = 0;
    void* handle = files->open(path, &bytes, files->user_data);
    if (handle == NULL) { return false; }
    if (files->close != NULL) { files->close(handle, files->user_data); }
    return true;
}
