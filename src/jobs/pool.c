// The pool of memory for pictures. Memory is kept after its release and used again by the next job that it is large
// enough for.
#include "jobs/pool.h"
#include "base/assert.h"
#include "base/memory.h"
#include "base/platform.h"
#include "base/result.h"
#include "jobs/engine_state.h"
#include "jobs/held_memory.h"
#include <stdatomic.h>

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
