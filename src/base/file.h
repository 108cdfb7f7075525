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
    void* handle; // of the host's open
    void* copy;   // of a host file that cannot be mapped
} sumi_file;

// What file held before is overwritten. On failure it is left closed. The message names the path.
sumi_result sumi_file_open(sumi_file* file, sumi_heap* heap, const sumi_files* files, const char* path,
                           sumi_error* error);
void sumi_file_close(sumi_file* file); // accepts a zeroed or half-open file
bool sumi_file_exists(const sumi_files* files, const char* path);
#endif
