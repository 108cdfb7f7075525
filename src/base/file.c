#include "base/file.h"
#include "base/assert.h"
#include <string.h>

// Limits of the pieces in which a file is read, in bytes. A piece smaller than MIN_PIECE would spend most of its time
// on the fixed cost of the host program's callback. Reading MIN_PIECE takes two thirds of a millisecond at 100 MB/s.
#define MIN_PIECE ((size_t)64 << 10)
#define MAX_PIECE ((size_t)16 << 20)

static bool is_built_in(const sumi_files* files) { return files == NULL || files->open == NULL; }

// ---- Files that are read in pieces ----------------------------------------------------------------------------------

typedef struct sumi_cached_file {
    struct sumi_cached_file* next;
    char* path;
    void* handle; // from the host program's open; NULL: the file does not exist
    uint64_t bytes, read_bytes;
    const unsigned char* data; // NULL until the whole file is mapped or read, and for an empty file
    void* copy;
    int32_t users; // number of sumi_file that have this file open
} sumi_cached_file;

static bool is_whole(const sumi_cached_file* cached) { return cached->data != NULL || cached->bytes == 0; }

static void free_cached(sumi_file_cache* cache, sumi_cached_file* cached)
{
    SUMI_ASSERT(cached->users == 0);
    if (cached->handle != NULL) cache->host->close(cached->handle, cache->host->user_data);
    sumi_free(cache->heap, cached->copy);
    sumi_free(cache->heap, cached->path);
    sumi_free(cache->heap, cached);
}

// Returns the cached entry of the path. Asks the host program for a path that has none. NULL: no memory for a new
// entry.
static sumi_cached_file* look_up(sumi_file_cache* cache, const char* path)
{
    sumi_cached_file** end = &cache->first;
    for (; *end != NULL; end = &(*end)->next) {
        if (strcmp((*end)->path, path) == 0) return *end;
    }
    sumi_cached_file* cached = sumi_alloc_zero(cache->heap, sizeof *cached);
    if (cached == NULL) return NULL;
    cached->path = sumi_copy_text(cache->heap, path);
    if (cached->path == NULL) {
        sumi_free(cache->heap, cached);
        return NULL;
    }
    const sumi_files* host = cache->host;
    cached->handle = host->open(path, &cached->bytes, host->user_data);
    *end = cached;
    return cached;
}

// Never called. Its address marks the sumi_files of a cache.
static void* open_in_cache(const char* path, uint64_t* out_bytes, void* user_data)
{
    (void)path;
    (void)out_bytes;
    (void)user_data;
    return NULL;
}

static sumi_file_cache* cache_of(const sumi_files* files)
{
    return files != NULL && files->open == open_in_cache ? files->user_data : NULL;
}

void sumi_file_cache_init(sumi_file_cache* cache, sumi_heap* heap, const sumi_files* host)
{
    SUMI_ASSERT(heap != NULL);
    *cache = (sumi_file_cache){.files = {.open = open_in_cache, .user_data = cache},
                               .heap = heap,
                               .host = is_built_in(host) ? NULL : host,
                               .piece = MIN_PIECE};
}

const sumi_files* sumi_file_cache_files(const sumi_file_cache* cache)
{
    return cache->host != NULL ? &cache->files : NULL;
}

bool sumi_file_cache_is_reading(const sumi_file_cache* cache) { return cache->reading != NULL; }

float sumi_file_cache_progress(const sumi_file_cache* cache)
{
    const sumi_cached_file* cached = cache->reading;
    return cached != NULL && cached->bytes > 0 ? (float)((double)cached->read_bytes / (double)cached->bytes) : 0.0f;
}

sumi_result sumi_file_cache_read(sumi_file_cache* cache, uint32_t budget_us, sumi_error* error)
{
    sumi_cached_file* cached = cache->reading;
    SUMI_ASSERT(cached != NULL && cached->copy != NULL && cached->read_bytes < cached->bytes);
    const uint64_t remaining_bytes = cached->bytes - cached->read_bytes;
    const size_t bytes = remaining_bytes < cache->piece ? (size_t)remaining_bytes : cache->piece;
    const uint64_t begin_ns = sumi_clock_ns();
    if (!cache->host->read(cached->handle, cached->read_bytes, (unsigned char*)cached->copy + cached->read_bytes, bytes,
                           cache->host->user_data)) {
        return sumi_fail(error, SUMI_FILE_READ_FAILED,
                         "%s: the host program's files.read failed for %zu bytes from byte %llu on", cached->path,
                         bytes, (unsigned long long)cached->read_bytes);
    }
    const double us = (double)(sumi_clock_ns() - begin_ns) * 1e-3;
    cached->read_bytes += bytes;
    // The next piece is as long as the budget allows at this speed, but at most twice this piece, which may have come
    // from a cache of the host program or of the operating system.
    const double fitting_bytes = us > 0.0 ? (double)bytes / us * budget_us : (double)MAX_PIECE;
    const size_t max_bytes = bytes < MAX_PIECE / 2 ? 2 * bytes : MAX_PIECE;
    const size_t next_bytes = fitting_bytes < (double)max_bytes ? (size_t)fitting_bytes : max_bytes;
    cache->piece = next_bytes > MIN_PIECE ? next_bytes : MIN_PIECE;
    if (cached->read_bytes == cached->bytes) {
        cached->data = cached->copy;
        cache->reading = NULL;
    }
    return SUMI_OK;
}

static void free_entries(sumi_file_cache* cache, bool includes_open)
{
    cache->reading = NULL;
    for (sumi_cached_file** link = &cache->first; *link != NULL;) {
        sumi_cached_file* cached = *link;
        if (cached->users > 0 && !includes_open) {
            link = &cached->next;
            continue;
        }
        *link = cached->next;
        free_cached(cache, cached);
    }
}

void sumi_file_cache_trim(sumi_file_cache* cache)
{
    SUMI_ASSERT(cache->reading == NULL);
    free_entries(cache, false);
}

void sumi_file_cache_close(sumi_file_cache* cache)
{
    free_entries(cache, true);
    memset(cache, 0, sizeof *cache);
}

static sumi_result open_cached(sumi_file* file, sumi_file_cache* cache, sumi_error* error)
{
    sumi_cached_file* cached = look_up(cache, file->path);
    if (cached == NULL) return sumi_out_of_memory(error, sizeof *cached, "a file");
    if (cached->handle == NULL) {
        return sumi_fail(error, SUMI_FILE_NOT_FOUND, "%s: the host program's files.open returned NULL; check the path",
                         file->path);
    }
    const sumi_files* host = cache->host;
    if (!is_whole(cached) && host->map != NULL) cached->data = host->map(cached->handle, host->user_data);
    if (!is_whole(cached)) {
        SUMI_ASSERT(cache->reading == NULL && cached->copy == NULL);
        cached->copy = cached->bytes > SIZE_MAX ? NULL : sumi_alloc(cache->heap, (size_t)cached->bytes);
        if (cached->copy == NULL) return sumi_out_of_memory(error, (size_t)cached->bytes, file->path);
        cache->reading = cached;
        return SUMI_TIMEOUT;
    }
    cached->users++;
    file->cached = cached;
    file->data = cached->data;
    file->bytes = cached->bytes;
    return SUMI_OK;
}

// ---- One file -------------------------------------------------------------------------------------------------------

sumi_result sumi_file_open(sumi_file* file, sumi_heap* heap, const sumi_files* files, const char* path,
                           sumi_error* error)
{
    SUMI_ASSERT(heap != NULL && path != NULL);
    memset(file, 0, sizeof *file);
    file->heap = heap;
    file->path = sumi_copy_text(heap, path);
    if (file->path == NULL) return sumi_out_of_memory(error, strlen(path) + 1, "a file name");
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
    sumi_file_cache* cache = cache_of(files);
    if (cache != NULL) {
        const sumi_result result = open_cached(file, cache, error);
        if (result != SUMI_OK) sumi_file_close(file);
        return result;
    }
    file->files = files;
    file->handle = files->open(path, &file->bytes, files->user_data);
    if (file->handle == NULL) {
        sumi_fail(error, SUMI_FILE_NOT_FOUND, "%s: the host program's files.open returned NULL; check the path", path);
        sumi_file_close(file);
        return SUMI_FILE_NOT_FOUND;
    }
    if (files->map != NULL) file->data = files->map(file->handle, files->user_data);
    if (file->data == NULL && file->bytes > 0) {
        file->copy = file->bytes > SIZE_MAX ? NULL : sumi_alloc(heap, (size_t)file->bytes);
        if (file->copy == NULL) {
            sumi_out_of_memory(error, (size_t)file->bytes, path);
            sumi_file_close(file);
            return SUMI_OUT_OF_HOST_MEMORY;
        }
        if (files->read == NULL || !files->read(file->handle, 0, file->copy, (size_t)file->bytes, files->user_data)) {
            sumi_fail(error, SUMI_FILE_READ_FAILED, "%s: the host program's files.read failed for %llu bytes", path,
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
    if (file->heap == NULL) return;
    if (file->cached != NULL) {
        SUMI_ASSERT(file->cached->users > 0);
        file->cached->users--;
    }
    if (file->handle != NULL && file->files->close != NULL) file->files->close(file->handle, file->files->user_data);
    sumi_mapping_close(&file->mapping);
    sumi_free(file->heap, file->copy);
    sumi_free(file->heap, file->path);
    memset(file, 0, sizeof *file);
}

bool sumi_file_exists(const sumi_files* files, const char* path)
{
    SUMI_ASSERT(path != NULL);
    if (is_built_in(files)) return sumi_path_look_at(path) != SUMI_PATH_NOTHING;
    sumi_file_cache* cache = cache_of(files);
    if (cache != NULL) {
        const sumi_cached_file* cached = look_up(cache, path);
        if (cached != NULL) return cached->handle != NULL;
        files = cache->host; // no memory for a cache entry: ask the host program directly
    }
    uint64_t bytes = 0;
    void* handle = files->open(path, &bytes, files->user_data);
    if (handle == NULL) return false;
    if (files->close != NULL) files->close(handle, files->user_data);
    return true;
}

bool sumi_file_is_folder(const sumi_files* files, const char* path)
{
    return !sumi_file_exists(files, path) || (is_built_in(files) && sumi_path_is_folder(path));
}
