// Memory that is kept from job to job, so that a warmed-up job allocates nothing.
#ifndef SUMI_ENGINE_BUFFERS_H
#define SUMI_ENGINE_BUFFERS_H
#include "base/memory.h"

// A block that only grows. Its content is lost when it does.
typedef struct sumi_block {
    void* data;
    size_t bytes;
} sumi_block;
sumi_result sumi_block_reserve(sumi_heap* heap, sumi_block* block, uint64_t bytes, const char* what, sumi_error* error);
void sumi_block_free(sumi_heap* heap, sumi_block* block);

// Lays many arrays into one block. The same code runs twice: first with base NULL, which only measures, then with a
// block of that size.
typedef struct sumi_packer {
    unsigned char* base;
    uint64_t used;
} sumi_packer;
// Room for `bytes`, aligned to SUMI_ALIGNMENT, with `data` copied into it when data is not NULL. NULL while measuring.
void* sumi_pack(sumi_packer* packer, const void* data, uint64_t bytes);

// A heap for one call of a function that allocates and frees inside (a picture's resize): it serves from a block that
// is kept, falls back on the parent when the block is too small, and notes how much was wanted, so that the block is
// large enough the next time.
typedef struct sumi_temporary {
    sumi_heap heap; // hand this to the function
    sumi_heap* parent;
    sumi_block* block;
    size_t used, wanted;
} sumi_temporary;
void sumi_temporary_begin(sumi_temporary* temporary, sumi_heap* parent, sumi_block* block);
void sumi_temporary_end(sumi_temporary* temporary); // grows the block; that this may fail does no harm

// Tables of the job that runs, and of the memory query.
typedef struct sumi_workspace {
    sumi_block ids;              // token ids
    sumi_block tables;           // sigmas, solver rows, times, lists of the request
    sumi_block values;           // one item's noise, a picture on its way in
    sumi_block between, picture; // of a resize
    sumi_block first;            // a reference in RGB, before the vision tower's own resize
    sumi_block temporary;        // what functions of other rooms allocate inside
} sumi_workspace;
void sumi_workspace_close(sumi_heap* heap, sumi_workspace* workspace);
#endif
