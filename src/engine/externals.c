// Memory and semaphores of graphics APIs that the host program shares: what may be imported, which targets may name it,
// and when it may go.
#include "engine/externals.h"
#include "base/assert.h"
#include "base/memory.h"
#include "base/pixel_formats.h"
#include "base/platform.h"
#include "base/result.h"
#include "engine/calls.h"
#include "interop/interop.h"
#include "jobs/engine_state.h"
#include "jobs/job.h"
#include "jobs/objects.h"
#include "jobs/pump.h"
#include "pictures/pixels.h"
#include "plan/runner.h"
#include <stdatomic.h>

static bool is_memory_kind(sumi_external_kind kind)
{
    return kind >= SUMI_EXTERNAL_GL_TEXTURE && kind <= SUMI_EXTERNAL_D3D11_TEXTURE;
}
static bool is_semaphore_kind(sumi_external_kind kind)
{
    return kind >= SUMI_EXTERNAL_VULKAN_TIMELINE && kind <= SUMI_EXTERNAL_D3D11_KEYED_MUTEX;
}
static bool is_vulkan_kind(sumi_external_kind kind)
{
    return kind == SUMI_EXTERNAL_VULKAN_MEMORY || kind == SUMI_EXTERNAL_VULKAN_TIMELINE
        || kind == SUMI_EXTERNAL_VULKAN_SEMAPHORE;
}
static bool is_gl_kind(sumi_external_kind kind)
{
    return kind == SUMI_EXTERNAL_GL_TEXTURE || kind == SUMI_EXTERNAL_GL_BUFFER;
}
// Whether copies are ordered by the API itself instead of semaphores.
static bool is_ordered_by_api(sumi_external_kind kind)
{
    return is_gl_kind(kind) || kind == SUMI_EXTERNAL_D3D11_TEXTURE;
}

// ---- Importing ------------------------------------------------------------------------------------------------------

static sumi_result check_handle(const sumi_import_desc* desc, sumi_error* error)
{
    const bool has_fd = desc->fd >= 0, has_handle = desc->handle != NULL;
    if (is_gl_kind(desc->kind)) {
        SUMI_REFUSE(has_fd || has_handle, SUMI_INVALID_ARGUMENT,
                    "sumi_import: OpenGL has gl_name and gl_target; fd is -1 and handle NULL");
        SUMI_REFUSE(desc->gl_name == 0, SUMI_INVALID_ARGUMENT,
                    "sumi_import: gl_name is 0: give the name of a texture or a buffer");
        return SUMI_OK;
    }
    SUMI_REFUSE(is_vulkan_kind(desc->kind) && has_fd == has_handle, SUMI_INVALID_ARGUMENT,
                "sumi_import: give fd (Linux) or handle (Windows) of the Vulkan object, one of the two");
    SUMI_REFUSE(!is_vulkan_kind(desc->kind) && (!has_handle || has_fd), SUMI_INVALID_ARGUMENT,
                "sumi_import: Direct3D has handle; fd is -1");
    SUMI_REFUSE(!is_ordered_by_api(desc->kind) && desc->device_uuid == NULL && desc->device_luid == NULL,
                SUMI_INVALID_ARGUMENT,
                "sumi_import: device_uuid and device_luid are NULL: give one of the two, of the device that draws");
    return SUMI_OK;
}

static sumi_result check_memory(const sumi_import_desc* desc, sumi_error* error)
{
    const uint64_t row = (uint64_t)desc->width * (uint64_t)sumi_format_bytes(desc->format);
    const bool is_buffer = desc->kind == SUMI_EXTERNAL_GL_BUFFER;
    const bool is_image = is_ordered_by_api(desc->kind) ? !is_buffer : desc->is_image;
    SUMI_TRY(sumi_pixels_check_size(desc->width, desc->height, "the import", error));
    SUMI_REFUSE(sumi_format_bytes(desc->format) == 0, SUMI_INVALID_ARGUMENT,
                "sumi_import: format is %d: no such format", (int)desc->format);
    SUMI_REFUSE(is_image && (desc->format == SUMI_FORMAT_RGB8 || desc->format == SUMI_FORMAT_RGB32F),
                SUMI_NOT_SUPPORTED,
                "sumi_import: images of three channels cannot be shared: take RGBA8, BGRA8 or RGBA16F");
    SUMI_REFUSE(desc->kind == SUMI_EXTERNAL_GL_TEXTURE && desc->format == SUMI_FORMAT_BGRA8, SUMI_NOT_SUPPORTED,
                "sumi_import: OpenGL textures are RGBA8 or RGBA16F");
    SUMI_REFUSE(desc->is_depth && (desc->format != SUMI_FORMAT_RGBA8 || desc->takes_previews), SUMI_INVALID_ARGUMENT,
                "sumi_import: with is_depth nothing is written: leave format and takes_previews alone");
    SUMI_REFUSE(is_image && desc->row_bytes != 0, SUMI_INVALID_ARGUMENT,
                "sumi_import: row_bytes is %d, but images have no rows: set 0", (int)desc->row_bytes);
    SUMI_REFUSE(desc->row_bytes != 0 && (desc->row_bytes < 0 || (uint64_t)desc->row_bytes < row), SUMI_INVALID_ARGUMENT,
                "sumi_import: row_bytes is %d, but a row takes %llu bytes", (int)desc->row_bytes,
                (unsigned long long)row);
    SUMI_REFUSE(desc->level_count < 1 || desc->level_count > 16, SUMI_INVALID_ARGUMENT,
                "sumi_import: level_count is %d: give 1 to 16", (int)desc->level_count);
    SUMI_REFUSE(is_ordered_by_api(desc->kind) && !is_buffer && desc->offset != 0, SUMI_INVALID_ARGUMENT,
                "sumi_import: offset is %llu, but this kind of texture begins at 0", (unsigned long long)desc->offset);
    SUMI_REFUSE(desc->offset > INT64_MAX, SUMI_INVALID_ARGUMENT,
                "sumi_import: offset is %llu, more than any memory has", (unsigned long long)desc->offset);
    if (is_ordered_by_api(desc->kind)) return SUMI_OK;
    const uint64_t pitch = desc->row_bytes != 0 ? (uint64_t)desc->row_bytes : row;
    const uint64_t needed = (uint64_t)(desc->height - 1) * pitch + row;
    SUMI_REFUSE(desc->memory_bytes < needed || desc->memory_bytes - needed < desc->offset, SUMI_INVALID_ARGUMENT,
                "sumi_import: memory_bytes is %llu, but %d x %d pixels from byte %llu on take %llu bytes",
                (unsigned long long)desc->memory_bytes, (int)desc->width, (int)desc->height,
                (unsigned long long)desc->offset, (unsigned long long)needed);
    return SUMI_OK;
}

static sumi_result check_desc(const sumi_engine* engine, const sumi_import_desc* desc, sumi_error* error)
{
    SUMI_TRY(sumi_check_cookie(desc->cookie, SUMI_COOKIE_IMPORT, "sumi_import_desc", "sumi_import_defaults", error));
    SUMI_REFUSE(engine->runner->interop == NULL, SUMI_NOT_SUPPORTED,
                "sumi_import: the CPU backend has no externals; give host_memory");
    SUMI_REFUSE(!is_memory_kind(desc->kind) && !is_semaphore_kind(desc->kind), SUMI_INVALID_ARGUMENT,
                "sumi_import: kind is %d: no such kind", (int)desc->kind);
    SUMI_TRY(check_handle(desc, error));
    if (is_memory_kind(desc->kind)) return check_memory(desc, error);
    SUMI_REFUSE(desc->width != 0 || desc->height != 0 || desc->memory_bytes != 0 || desc->offset != 0,
                SUMI_INVALID_ARGUMENT,
                "sumi_import: this kind is a semaphore: width, height, memory_bytes and offset are 0");
    return SUMI_OK;
}

static sumi_result import_external(sumi_engine* engine, const sumi_import_desc* desc, sumi_external** out_external,
                                   sumi_error* error)
{
    SUMI_TRY(check_desc(engine, desc, error));
    sumi_external* external = sumi_alloc_zero(&engine->heap, sizeof *external);
    if (external == NULL) return sumi_out_of_memory(error, sizeof *external, "an import");
    external->engine = engine;
    sumi_pump_lock(engine);
    const sumi_result result = engine->runner->interop->import(engine->runner, desc, &external->import, error);
    sumi_pump_unlock(engine);
    if (result != SUMI_OK) {
        sumi_free(&engine->heap, external);
        return result;
    }
    sumi_mutex_lock(&engine->state_lock);
    SUMI_LIST_INSERT(engine->externals, external);
    sumi_mutex_unlock(&engine->state_lock);
    *out_external = external;
    return SUMI_OK;
}

sumi_result sumi_import(sumi_engine* engine, const sumi_import_desc* desc, sumi_external** out_external)
{
    if (out_external != NULL) *out_external = NULL;
    if (engine == NULL) return SUMI_INVALID_ARGUMENT;
    SUMI_TRY(sumi_call_begin(engine, "sumi_import"));
    sumi_error error = {0};
    sumi_result result;
    if (desc == NULL || out_external == NULL)
        result = sumi_fail(&error, SUMI_INVALID_ARGUMENT, "sumi_import: desc or out_external is NULL");
    else result = import_external(engine, desc, out_external, &error);
    return sumi_call_end(engine, result, &error);
}

// ---- Targets --------------------------------------------------------------------------------------------------------

static sumi_result check_semaphore(const sumi_engine* engine, const sumi_sync* sync, const char* name,
                                   const char* member, sumi_error* error)
{
    if (sync->semaphore == NULL) return SUMI_OK;
    SUMI_REFUSE(sync->semaphore->engine != engine, SUMI_INVALID_ARGUMENT, "%s.%s was imported for another engine", name,
                member);
    SUMI_REFUSE(!is_semaphore_kind(sync->semaphore->import.kind), SUMI_INVALID_ARGUMENT,
                "%s.%s is no semaphore: import one by its kind", name, member);
    return SUMI_OK;
}

sumi_result sumi_external_check(const sumi_engine* engine, const sumi_target* target, const char* name, sumi_size size,
                                sumi_error* error)
{
    SUMI_REFUSE(engine->runner->interop == NULL, SUMI_NOT_SUPPORTED,
                "%s.external: the CPU backend has no externals; give host_memory", name);
    const sumi_external* external = target->external;
    SUMI_REFUSE(external->engine != engine, SUMI_INVALID_ARGUMENT, "%s.external was imported for another engine", name);
    const sumi_imported* import = &external->import;
    SUMI_REFUSE(is_semaphore_kind(import->kind), SUMI_INVALID_ARGUMENT,
                "%s.external is a semaphore: it belongs into wait or signal", name);
    SUMI_REFUSE(import->is_depth, SUMI_INVALID_ARGUMENT,
                "%s.external was imported with is_depth, and nothing is written to it: import a texture for images",
                name);
    SUMI_REFUSE(target->host_memory != NULL || target->device_address != 0, SUMI_INVALID_ARGUMENT,
                "%s has external and another place: give one of them", name);
    SUMI_REFUSE(target->format != import->format || target->row_bytes != 0, SUMI_INVALID_ARGUMENT,
                "%s: its format must be the external's (%d), and row_bytes is 0", name, (int)import->format);
    SUMI_REFUSE(import->width != size.width || import->height != size.height, SUMI_INVALID_ARGUMENT,
                "%s.external is %d x %d, the image %d x %d", name, (int)import->width, (int)import->height,
                (int)size.width, (int)size.height);
    SUMI_REFUSE(is_ordered_by_api(import->kind) && (target->wait.semaphore != NULL || target->signal.semaphore != NULL),
                SUMI_INVALID_ARGUMENT, "%s has wait or signal: this kind of external is ordered by its API", name);
    SUMI_REFUSE(!is_ordered_by_api(import->kind) && target->signal.semaphore == NULL, SUMI_INVALID_ARGUMENT,
                "%s.signal has no semaphore: nothing else says when the image is in the external", name);
    SUMI_TRY(check_semaphore(engine, &target->wait, name, "wait.semaphore", error));
    SUMI_TRY(check_semaphore(engine, &target->signal, name, "signal.semaphore", error));
    SUMI_REFUSE(atomic_load(&external->is_used), SUMI_INVALID_ARGUMENT,
                "%s.external is a target of a job that was neither fetched nor discarded", name);
    return SUMI_OK;
}

sumi_result sumi_external_check_depth(const sumi_engine* engine, const sumi_depth* depth, const char* name,
                                      sumi_error* error)
{
    const sumi_external* external = depth->external;
    SUMI_REFUSE(engine->runner->interop == NULL, SUMI_NOT_SUPPORTED,
                "%s.external: the CPU backend has no externals; give data", name);
    SUMI_REFUSE(external->engine != engine, SUMI_INVALID_ARGUMENT, "%s.external was imported for another engine", name);
    const sumi_imported* import = &external->import;
    SUMI_REFUSE(is_semaphore_kind(import->kind), SUMI_INVALID_ARGUMENT,
                "%s.external is a semaphore: it belongs into wait or signal", name);
    SUMI_REFUSE(!import->is_depth, SUMI_INVALID_ARGUMENT,
                "%s.external was imported for images: import an R32F texture or buffer with is_depth", name);
    SUMI_REFUSE(depth->data != NULL, SUMI_INVALID_ARGUMENT, "%s has data and external: give one of them", name);
    SUMI_REFUSE(depth->format != SUMI_DEPTH_F32 || depth->row_bytes != 0, SUMI_INVALID_ARGUMENT,
                "%s: with external, format is SUMI_DEPTH_F32 and row_bytes 0", name);
    SUMI_REFUSE((depth->width != 0 || depth->height != 0)
                    && (depth->width != import->width || depth->height != import->height),
                SUMI_INVALID_ARGUMENT, "%s is %d x %d, its external %d x %d: give the external's size, or 0 x 0", name,
                (int)depth->width, (int)depth->height, (int)import->width, (int)import->height);
    SUMI_REFUSE(is_ordered_by_api(import->kind) && (depth->wait.semaphore != NULL || depth->signal.semaphore != NULL),
                SUMI_INVALID_ARGUMENT, "%s has wait or signal: this kind of external is ordered by its API", name);
    SUMI_TRY(check_semaphore(engine, &depth->wait, name, "wait.semaphore", error));
    SUMI_TRY(check_semaphore(engine, &depth->signal, name, "signal.semaphore", error));
    SUMI_REFUSE(atomic_load(&external->is_used), SUMI_INVALID_ARGUMENT,
                "%s.external is read by a job that was neither fetched nor discarded: alternate between two", name);
    return SUMI_OK;
}

static const sumi_imported* import_of(const sumi_sync* sync)
{
    return sync->semaphore != NULL ? &sync->semaphore->import : NULL;
}

sumi_result sumi_external_read_depth(sumi_engine* engine, const sumi_depth* depth, sumi_error* error)
{
    const sumi_import_copy copy = {.to = &depth->external->import,
                                   .wait = import_of(&depth->wait),
                                   .signal = import_of(&depth->signal),
                                   .wait_value = depth->wait.value,
                                   .signal_value = depth->signal.value};
    return engine->runner->interop->copy_to_import(engine->runner, &copy, error);
}

sumi_result sumi_external_copy(sumi_engine* engine, const sumi_target* target, bool is_preview, sumi_error* error)
{
    const sumi_import_copy copy = {.to = &target->external->import,
                                   .from_staging = is_preview,
                                   .wait = import_of(&target->wait),
                                   .signal = import_of(&target->signal),
                                   .wait_value = target->wait.value,
                                   .signal_value = target->signal.value};
    return engine->runner->interop->copy_to_import(engine->runner, &copy, error);
}

// ---- Releasing ------------------------------------------------------------------------------------------------------

// The caller holds the pump lock, and no job uses the external. Locks `state_lock` for a moment.
static void free_external(sumi_external* external)
{
    SUMI_ASSERT(sumi_pump_is_locked(external->engine));
    sumi_engine* engine = external->engine;
    const sumi_interop_functions* interop = engine->runner->interop;
    // Any import's stream may be about to use the semaphore.
    for (sumi_external* user = is_semaphore_kind(external->import.kind) ? engine->externals : NULL; user != NULL;
         user = user->next)
        interop->finish_import(engine->runner, &user->import);
    interop->release_import(engine->runner, &external->import);
    SUMI_OBJECT_REMOVE(external);
    sumi_free(&engine->heap, external);
}

void sumi_externals_close(sumi_engine* engine)
{
    for (sumi_external *external = engine->externals, *next; external != NULL; external = next) {
        next = external->next;
        if (!is_semaphore_kind(external->import.kind)) free_external(external);
    }
    while (engine->externals != NULL) free_external(engine->externals);
}

// A job that is done but not fetched keeps its other pictures; this one has no target any more.
static void forget_in_jobs(sumi_engine* engine, const sumi_external* external)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    for (int32_t i = 0; i < engine->jobs.slot_count; i++) {
        sumi_job_slot* slot = &engine->jobs.slots[i];
        if (slot->id != 0 && slot->kind == SUMI_JOB_KIND_IMAGES)
            sumi_plan_job_forget_external(&slot->u.plan_job, external);
    }
}

void sumi_external_release(sumi_external* external)
{
    if (external == NULL || sumi_call_begin(external->engine, "sumi_external_release") != SUMI_OK) return;
    sumi_engine* engine = external->engine;
    sumi_pump_lock(engine);
    sumi_jobs_cancel(engine, &(sumi_used_object){.external = external});
    forget_in_jobs(engine, external);
    free_external(external);
    sumi_pump_unlock(engine);
    (void)sumi_call_end(engine, SUMI_OK, NULL);
}
