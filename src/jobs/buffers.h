// Host memory that is kept from job to job, so that a job allocates nothing after warm-up.
//
// Each object here belongs to the struct that contains it, and its owner's rules apply: engine.workspace is touched
// only while the pump lock is held (engine_state.h), a job slot's blocks only by the slot's current owner (job.h). The
// functions take no lock and do not wait; they call the host program's allocator.
#ifndef SUMI_JOBS_BUFFERS_H
#define SUMI_JOBS_BUFFERS_H
#include "base/memory.h"
#include "base/result.h"
#include "models/prompt_reader.h"
#include <sumi.h>

// A block of host memory that grows and never shrinks. Its content is lost when it grows. Zeroed: empty.
typedef struct sumi_block {
    void* data;
    size_t bytes;
} sumi_block;
// Makes the block hold at least `bytes`. `what` names the content in the error text. After a failure
// (SUMI_OUT_OF_HOST_MEMORY) the block is empty.
sumi_result sumi_block_reserve(sumi_heap* heap, sumi_block* block, uint64_t bytes, const char* what, sumi_error* error);
void sumi_block_free(sumi_heap* heap, sumi_block* block); // leaves the block empty and usable

// Packs several arrays into one block. The caller runs the same packing code twice: first with base NULL, which only
// measures (`used` is then the size in bytes), then with the memory of a block of that size.
typedef struct sumi_packer {
    unsigned char* base;
    uint64_t used;
} sumi_packer;
// Returns the address of the next `bytes` bytes, aligned to SUMI_ALIGNMENT, and copies `data` to it if `data` is not
// NULL. Returns NULL while measuring.
void* sumi_pack(sumi_packer* packer, const void* data, uint64_t bytes);

// A heap for one call of a function that allocates temporary memory inside, such as the resize of a picture. The heap
// allocates from a block that the caller keeps. When the block is too small it allocates from the parent heap, and it
// notes the total that was requested, so that the block is large enough the next time.
typedef struct sumi_temporary {
    sumi_heap heap; // the heap to pass to the function
    sumi_heap* parent;
    sumi_block* block;
    size_t used, requested; // bytes allocated from the block; bytes requested in all
} sumi_temporary;
void sumi_temporary_begin(sumi_temporary* temporary, sumi_heap* parent, sumi_block* block);
// Grows the block to the size that was requested. A failure to grow is ignored: the next call then uses the parent
// heap.
void sumi_temporary_end(sumi_temporary* temporary);

// How much larger pieces of inputs and outputs are where no call has a budget: every piece costs a copy, or wakes the
// workers.
#define SUMI_UNPACED_FACTOR 4

// Memory that a job needs only while it runs. There is one workspace in the engine, for the job that runs, and one in
// each memory query (sumi_image_memory).
typedef struct sumi_workspace {
    sumi_heap* heap;              // of the blocks
    struct sumi_workers* workers; // share the rows of a resize; NULL: only the caller works
    sumi_block ids;               // token ids of all prompts (sumi_plan_job_ids)
    sumi_block tables;            // sigmas, solver rows, times, and the lists of the plan request (job_request.c)
    sumi_block values; // values that are copied to or from the arena: noise, pictures, features, masks, previews
    // The intermediate result of a resize, or the distances of a mask; the result of a resize.
    sumi_block intermediate, picture;
    sumi_block axis;  // the table of weights of a resize (pictures/resize.h)
    bool is_unpaced;  // no call has a budget: resizes are done in larger pieces
    sumi_block first; // a reference picture as RGB, resized for the autoencoder or before the vision tower's resize
    sumi_prompt_reader* reader; // of the text that becomes tokens; NULL: no text was read yet
    sumi_block temporary;       // the block of a sumi_temporary, for functions of other module folders that allocate
} sumi_workspace;
void sumi_workspace_close(sumi_workspace* workspace); // keeps the heap

// ---- Pictures -------------------------------------------------------------------------------------------------------
//
// The pool of memory for pictures (engine.pictures). The functions lock `state_lock` for a moment.

// Memory for one picture: in use by the host program or by a job, or free for the next job.
typedef struct sumi_picture {
    struct sumi_picture* next;
    void* pixels;
    size_t bytes;
    uint64_t handle; // 0: free
} sumi_picture;

// Returns a picture of at least `bytes` bytes, in use. sumi_picture_release makes it free again.
sumi_result sumi_picture_take(sumi_engine* engine, size_t bytes, sumi_picture** out_picture, sumi_error* error);
void sumi_picture_release(sumi_engine* engine, uint64_t handle);
void sumi_pictures_close(sumi_engine* engine);
#endif
