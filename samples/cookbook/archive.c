// A model out of the host's archive: here a tar file, whose members lie in it as they are. Paths are those inside it.
#include "cookbook.h"
#include "system.h"
#include <stdlib.h>
#include <string.h>

#define TAR_BLOCK 512 // headers and contents begin at multiples of this

typedef struct archive {
    char* data;
    size_t bytes;
} archive;

// [excerpt archive]
typedef struct member {
    const char* data;
    uint64_t bytes;
} member;

// Finds a member of the archive. Returns NULL when there is none.
static void* open_member(const char* path, uint64_t* out_bytes, void* user_data)
{
    const archive* from = user_data;
    for (size_t at = 0; at + TAR_BLOCK <= from->bytes && from->data[at] != '\0';) {
        const char* header = from->data + at; // name at byte 0, size in octal digits at byte 124
        const uint64_t bytes = strtoull(header + 124, NULL, 8);
        if (bytes > from->bytes - at - TAR_BLOCK) return NULL;
        if (strncmp(header, path, 100) == 0) {
            member* found = malloc(sizeof *found);
            if (found) *found = (member){header + TAR_BLOCK, bytes};
            *out_bytes = bytes;
            return found;
        }
        at += TAR_BLOCK + (size_t)((bytes + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK);
    }
    return NULL;
}

static bool read_member(void* file, uint64_t offset, void* into, size_t bytes, void* user_data)
{
    (void)user_data;
    const member* from = file;
    if (offset > from->bytes || bytes > from->bytes - offset) return false;
    memcpy(into, from->data + offset, bytes);
    return true;
}

// Optional. With it weights are used where they lie; without it each file is read whole.
static const void* map_member(void* file, void* user_data)
{
    (void)user_data;
    return ((const member*)file)->data;
}

static void close_member(void* file, void* user_data)
{
    (void)user_data;
    free(file);
}
// [end]

static bool read_archive(const char* path, archive* out)
{
    FILE* file = system_open(path, "rb");
    if (!file) return false;
    const long bytes = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    *out = (archive){.bytes = bytes > 0 ? (size_t)bytes : 0};
    out->data = out->bytes > 0 ? system_allocate((out->bytes + 63) / 64 * 64, 64) : NULL;
    const bool is_read =
        out->data && fseek(file, 0, SEEK_SET) == 0 && fread(out->data, 1, out->bytes, file) == out->bytes;
    fclose(file);
    return is_read;
}

sumi_result recipe_archive(const recipe_host* host)
{
    archive from = {0};
    sumi_engine* engine = NULL;
    sumi_model* model;
    sumi_result result = read_archive(host->files[0], &from) ? SUMI_OK : SUMI_FILE_READ_FAILED;
    // [excerpt archive_engine]
    const sumi_files files = {open_member, read_member, map_member, close_member, &from};
    sumi_engine_desc desc = sumi_engine_defaults();
    desc.files = &files;
    // [end]
    desc.cpu_thread_count = 0;
    desc.log.write = recipe_log;
    if (result == SUMI_OK) result = sumi_engine_create(&desc, &engine);
    if (result == SUMI_OK) result = sumi_open_model(engine, host->model_path, &model);
    if (result == SUMI_OK) result = recipe_draw(host, engine, model);
    sumi_engine_destroy(engine); // closes the members, so the archive goes after it
    system_release(from.data);
    return result;
}
