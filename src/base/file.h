// One open file, mapped by sumi or read through the host program's sumi_files. Its whole content is addressable while
// it is open. If the host program's files cannot be mapped, the bytes are read into a block of its allocator
// (documented in sumi.h).
#ifndef SUMI_BASE_FILE_H
#define SUMI_BASE_FILE_H
#include "base/memory.h"
#include "base/platform.h"

typedef struct sumi_file {
    const unsigned char* data;
    uint64_t bytes;
    char* path; // as opened; error messages name it
    sumi_heap* heap;
    const sumi_files* files; // NULL: the built-in mapping, or a file of a cache
    sumi_mapping mapping;
    void* handle;                    // from the host program's open
    void* copy;                      // content of a file of the host program that cannot be mapped
    struct sumi_cached_file* cached; // the cache's entry, which then owns handle and copy; NULL: no cache
} sumi_file;

// Overwrites what *file held before. On failure the file is left closed and the error message names the path.
// SUMI_TIMEOUT, without a message, comes only from the files of a cache: the file exists and has to be read first.
sumi_result sumi_file_open(sumi_file* file, sumi_heap* heap, const sumi_files* files, const char* path,
                           sumi_error* error);
void sumi_file_close(sumi_file* file); // accepts a zeroed or half-open file
// Whether anything exists at the path. With the built-in files it may not be a regular file: sumi_file_open says so.
bool sumi_file_exists(const sumi_files* files, const char* path);
// Whether a path is treated as a folder: it is one, or nothing exists there. The host program's files know only files,
// so whatever they do not open is treated as a folder.
bool sumi_file_is_folder(const sumi_files* files, const char* path);

// A cache between the host program's files and the code that opens a model or an adapter. The cache asks for each path
// once, opens each file once, and reads the files that the host program cannot map in pieces. It is itself a
// sumi_files, so the code that opens files need not know of it.
//
//     for (;;) {
//         if (sumi_file_cache_is_reading(&cache)) r = sumi_file_cache_read(&cache, budget_us, error); // one piece
//         else r = open_something(sumi_file_cache_files(&cache)); // SUMI_TIMEOUT: the loop continues
//     }
//
// A caller that gets SUMI_TIMEOUT undoes what it has begun and begins again when the file has been read.
typedef struct sumi_file_cache {
    sumi_files files; // handed to the code that opens files
    sumi_heap* heap;
    const sumi_files* host;           // NULL: the built-in mapping is used and the cache stays empty
    struct sumi_cached_file* first;   // in the order in which paths were asked for
    struct sumi_cached_file* reading; // the file that is being read; NULL: none
    size_t piece;                     // size of the next piece, in bytes
} sumi_file_cache;

void sumi_file_cache_init(sumi_file_cache* cache, sumi_heap* heap, const sumi_files* host); // the cache must not move
const sumi_files* sumi_file_cache_files(const sumi_file_cache* cache); // pass this to sumi_file_open
bool sumi_file_cache_is_reading(const sumi_file_cache* cache);
// Reads one piece. It takes about budget_us if the host program reads as fast as for the previous piece.
sumi_result sumi_file_cache_read(sumi_file_cache* cache, uint32_t budget_us, sumi_error* error);
float sumi_file_cache_progress(const sumi_file_cache* cache); // 0..1 of the file that is being read; 0: none is
void sumi_file_cache_trim(sumi_file_cache* cache);            // frees the entries of files that are not open
// requires that no file of the cache is open; accepts a zeroed cache
void sumi_file_cache_close(sumi_file_cache* cache);
#endif
