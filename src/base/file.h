// One open file: mapped by us, or read through the host's sumi_files. Either way its whole content is addressable for
// as long as it is open.
// With host files that cannot map, the bytes are read into a block of the host's allocator (documented in sumi.h).
#ifndef SUMI_BASE_FILE_H
#define SUMI_BASE_FILE_H
#include "base/memory.h"
#include "base/platform.h"

typedef struct sumi_file {
    const unsigned char* data;
    uint64_t bytes;
    char* path; // as opened, for messages
    sumi_heap* heap;
    const sumi_files* files; // NULL: the built-in mapping
    sumi_mapping mapping;
    void* handle;                    // of the host's open
    void* copy;                      // of a host file that cannot be mapped
    struct sumi_cached_file* cached; // of a cache, which holds handle and copy then
} sumi_file;

// What file held before is overwritten. On failure it is left closed. The message names the path. SUMI_TIMEOUT, without
// a message, of a cache's files alone: the file is there and has to be read first.
sumi_result sumi_file_open(sumi_file* file, sumi_heap* heap, const sumi_files* files, const char* path,
                           sumi_error* error);
void sumi_file_close(sumi_file* file); // accepts a zeroed or half-open file
bool sumi_file_exists(const sumi_files* files, const char* path);

// The host's files while a model or an adapter is opened: each path is asked for once, each file opened once, and what
// the host cannot map is read in pieces. It passes for the host's files itself, so what opens files need not know of it.
//
//     for (;;) {
//         if (sumi_file_cache_is_reading(&cache)) r = sumi_file_cache_read(&cache, budget_us, error);   // one piece
//         else r = open_something(sumi_file_cache_files(&cache));                                       // SUMI_TIMEOUT: once more
//     }
//
// Who gets SUMI_TIMEOUT undoes what it has begun and begins again when the file has been read.
typedef struct sumi_file_cache {
    sumi_files files; // what is handed on
    sumi_heap* heap;
    const sumi_files* host;          // NULL: the built-in mapping, and nothing is kept here
    struct sumi_cached_file* first;  // in the order of the asking
    struct sumi_cached_file* wanted; // is read; NULL: nothing is
    size_t piece;                    // bytes of the next one
} sumi_file_cache;

void sumi_file_cache_init(sumi_file_cache* cache, sumi_heap* heap, const sumi_files* host); // must stay in place
const sumi_files* sumi_file_cache_files(const sumi_file_cache* cache);                      // for sumi_file_open
bool sumi_file_cache_is_reading(const sumi_file_cache* cache);
// Reads one piece, which takes about budget_us if the host reads as fast as it did before.
sumi_result sumi_file_cache_read(sumi_file_cache* cache, uint32_t budget_us, sumi_error* error);
float sumi_file_cache_progress(const sumi_file_cache* cache); // 0..1, of the file that is read; 0: none is
void sumi_file_cache_trim(sumi_file_cache* cache);            // forgets what is not open
void sumi_file_cache_close(sumi_file_cache* cache);           // no file of it may be open. Accepts a zeroed one
#endif
