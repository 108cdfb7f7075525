#include "jobs/buffers.h"
#include "base/assert.h"
#include "base/memory.h"
#include "base/result.h"
#include "models/prompt_reader.h"
#include <string.h>

sumi_result sumi_block_reserve(sumi_heap* heap, sumi_block* block, uint64_t bytes, const char* what, sumi_error* error)
{
    SUMI_ASSERT(what != NULL && (block->data == NULL) == (block->bytes == 0));
    if (bytes <= block->bytes) return SUMI_OK;
    sumi_block_free(heap, block); // before the allocation, so that the old and the new memory are never held together
    if (bytes < SIZE_MAX / 2) block->data = sumi_alloc(heap, (size_t)bytes);
    if (block->data == NULL) return sumi_out_of_memory(error, (size_t)bytes, what);
    block->bytes = (size_t)bytes;
    return SUMI_OK;
}

void sumi_block_free(sumi_heap* heap, sumi_block* block)
{
    sumi_free(heap, block->data);
    *block = (sumi_block){0};
}

void* sumi_pack(sumi_packer* packer, const void* data, uint64_t bytes)
{
    SUMI_ASSERT((uintptr_t)packer->base % SUMI_ALIGNMENT == 0 && packer->used % SUMI_ALIGNMENT == 0);
    void* to = packer->base != NULL ? packer->base + packer->used : NULL;
    packer->used += (bytes + SUMI_ALIGNMENT - 1) / SUMI_ALIGNMENT * SUMI_ALIGNMENT;
    if (to != NULL && data != NULL && bytes > 0) memcpy(to, data, (size_t)bytes);
    return to;
}

static void* allocate_temporary(size_t bytes, size_t alignment, void* user_data)
{
    SUMI_ASSERT(bytes % SUMI_ALIGNMENT == 0 && alignment == SUMI_ALIGNMENT);
    sumi_temporary* temporary = user_data;
    SUMI_ASSERT(temporary->used <= temporary->block->bytes);
    (void)alignment; // only the assertion reads it: blocks and sizes are multiples of SUMI_ALIGNMENT
    temporary->requested += bytes;
    if (temporary->block->bytes - temporary->used >= bytes) {
        void* memory = (unsigned char*)temporary->block->data + temporary->used;
        temporary->used += bytes;
        return memory;
    }
    return sumi_alloc(temporary->parent, bytes);
}

static void release_temporary(void* memory, size_t bytes, void* user_data)
{
    sumi_temporary* temporary = user_data;
    (void)bytes;
    uintptr_t address = (uintptr_t)memory, begin = (uintptr_t)temporary->block->data;
    bool is_ours = temporary->block->data != NULL && address >= begin && address < begin + temporary->block->bytes;
    // Memory inside the block is not freed one by one: sumi_temporary_begin() makes all of it available again.
    if (!is_ours) sumi_free(temporary->parent, memory);
}

void sumi_temporary_begin(sumi_temporary* temporary, sumi_heap* parent, sumi_block* block)
{
    SUMI_ASSERT(parent != NULL && block != NULL);
    sumi_allocator allocator = {allocate_temporary, release_temporary, temporary};
    sumi_heap_init(&temporary->heap, &allocator);
    temporary->parent = parent;
    temporary->block = block;
    temporary->used = temporary->requested = 0;
}

void sumi_temporary_end(sumi_temporary* temporary)
{
    SUMI_ASSERT(temporary->used <= temporary->requested && temporary->used <= temporary->block->bytes);
    sumi_error unused = {0};
    (void)sumi_block_reserve(temporary->parent, temporary->block, temporary->requested, "images to be resized",
                             &unused);
}

void sumi_workspace_close(sumi_heap* heap, sumi_workspace* workspace)
{
    sumi_prompt_reader_destroy(workspace->reader);
    workspace->reader = NULL;
    sumi_block_free(heap, &workspace->ids);
    sumi_block_free(heap, &workspace->tables);
    sumi_block_free(heap, &workspace->values);
    sumi_block_free(heap, &workspace->intermediate);
    sumi_block_free(heap, &workspace->picture);
    sumi_block_free(heap, &workspace->first);
    sumi_block_free(heap, &workspace->temporary);
}
