#include "jobs/buffers.h"
#include "base/assert.h"
#include "base/memory.h"
#include "base/platform.h"
#include "base/result.h"
#include "jobs/engine_state.h"
#include "models/prompt_reader.h"
#include <stdatomic.h>
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

void sumi_workspace_close(sumi_workspace* workspace)
{
    sumi_heap* heap = workspace->heap;
    sumi_prompt_reader_destroy(workspace->reader);
    workspace->reader = NULL;
    sumi_block_free(heap, &workspace->ids);
    sumi_block_free(heap, &workspace->tables);
    sumi_block_free(heap, &workspace->values);
    sumi_block_free(heap, &workspace->intermediate);
    sumi_block_free(heap, &workspace->picture);
    sumi_block_free(heap, &workspace->axis);
    sumi_block_free(heap, &workspace->first);
    sumi_block_free(heap, &workspace->temporary);
}

// ---- Pictures -------------------------------------------------------------------------------------------------------
//
// The pool of memory for pictures. Memory is kept after its release and used again by the next job that it is large
// enough for.

static void free_picture(sumi_engine* engine, sumi_picture* picture)
{
    SUMI_ASSERT(atomic_load(&engine->memory.image_bytes) >= picture->bytes);
    atomic_fetch_sub(&engine->memory.image_bytes, picture->bytes);
    sumi_free(&engine->heap, picture->pixels);
    sumi_free(&engine->heap, picture);
}

// Returns the smallest free picture that is large enough. NULL: there is none.
static sumi_picture* find_free(sumi_engine* engine, size_t bytes)
{
    SUMI_ASSERT(sumi_mutex_is_held(&engine->state_lock));
    sumi_picture* best = NULL;
    for (sumi_picture* picture = engine->pictures; picture != NULL; picture = picture->next) {
        if (picture->handle == 0 && picture->bytes >= bytes && (best == NULL || picture->bytes < best->bytes))
            best = picture;
    }
    return best;
}

// Removes a free picture that is too small from the list and returns it. Picture sizes have changed, and memory of the
// old size would not be used again.
static sumi_picture* remove_small(sumi_engine* engine, size_t bytes)
{
    SUMI_ASSERT(sumi_mutex_is_held(&engine->state_lock));
    for (sumi_picture** link = &engine->pictures; *link != NULL; link = &(*link)->next) {
        sumi_picture* picture = *link;
        if (picture->handle == 0 && picture->bytes < bytes) {
            *link = picture->next;
            return picture;
        }
    }
    return NULL;
}

sumi_result sumi_picture_take(sumi_engine* engine, size_t bytes, sumi_picture** out_picture, sumi_error* error)
{
    SUMI_ASSERT(bytes > 0);
    *out_picture = NULL;
    sumi_mutex_lock(&engine->state_lock);
    sumi_picture* picture = find_free(engine, bytes);
    if (picture != NULL) picture->handle = ++engine->next_serial;
    sumi_picture* small = picture == NULL ? remove_small(engine, bytes) : NULL;
    sumi_mutex_unlock(&engine->state_lock);
    while (small != NULL) {
        free_picture(engine, small);
        sumi_mutex_lock(&engine->state_lock);
        small = remove_small(engine, bytes);
        sumi_mutex_unlock(&engine->state_lock);
    }
    if (picture == NULL) {
        picture = sumi_alloc_zero(&engine->heap, sizeof *picture);
        if (picture != NULL) picture->pixels = sumi_alloc(&engine->heap, bytes);
        if (picture == NULL || picture->pixels == NULL) {
            sumi_free(&engine->heap, picture);
            return sumi_out_of_memory(error, bytes, "a finished image");
        }
        picture->bytes = bytes;
        atomic_fetch_add(&engine->memory.image_bytes, bytes);
        sumi_mutex_lock(&engine->state_lock);
        picture->handle = ++engine->next_serial;
        picture->next = engine->pictures;
        engine->pictures = picture;
        sumi_mutex_unlock(&engine->state_lock);
    }
    SUMI_ASSERT(picture->handle != 0 && picture->bytes >= bytes);
    *out_picture = picture;
    return SUMI_OK;
}

void sumi_picture_release(sumi_engine* engine, uint64_t handle)
{
    if (handle == 0) return;
    sumi_mutex_lock(&engine->state_lock);
    for (sumi_picture* picture = engine->pictures; picture != NULL; picture = picture->next) {
        if (picture->handle == handle) {
            picture->handle = 0;
            break;
        }
    }
    sumi_mutex_unlock(&engine->state_lock);
}

void sumi_pictures_close(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    while (engine->pictures != NULL) {
        sumi_picture* picture = engine->pictures;
        engine->pictures = picture->next;
        free_picture(engine, picture);
    }
}
