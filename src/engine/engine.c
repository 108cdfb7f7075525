// Creates and destroys an engine.
#include "base/assert.h"
#include "base/memory.h"
#include "base/platform.h"
#include "base/result.h"
#include "base/workers.h"
#include "cpu/cpu.h"
#include "cuda/cuda.h"
#include "engine/calls.h"
#include "engine/controls.h"
#include "engine/externals.h"
#include "engine/loras.h"
#include "engine/models.h"
#include "jobs/buffers.h"
#include "jobs/engine_state.h"
#include "jobs/job.h"
#include "jobs/job_memory.h"
#include "jobs/load_kernels.h"
#include "jobs/log.h"
#include "jobs/plan_cache.h"
#include "jobs/prompt.h"
#include "jobs/pump.h"
#include "jobs/run.h"
#include "pacing/frame_limits.h"
#include "plan/runner.h"
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

// ---- Create ---------------------------------------------------------------------------------------------------------

static sumi_services services_of(const sumi_engine_desc* desc)
{
    sumi_services services = {0};
    if (desc->allocator != NULL) services.allocator = *desc->allocator;
    if (desc->device_allocator != NULL) services.device_allocator = *desc->device_allocator;
    if (desc->files != NULL) services.files = *desc->files;
    if (desc->tasks != NULL) services.tasks = *desc->tasks;
    if (desc->completion != NULL) services.completion = *desc->completion;
    if (desc->tracer != NULL) services.tracer = *desc->tracer;
    return services;
}

static void copy_desc(sumi_engine* engine, const sumi_engine_desc* desc)
{
    engine->services = services_of(desc);
    engine->desc = *desc;
    engine->desc.allocator = &engine->services.allocator;
    engine->desc.device_allocator = &engine->services.device_allocator;
    engine->desc.files = &engine->services.files;
    engine->desc.tasks = &engine->services.tasks;
    engine->desc.completion = &engine->services.completion;
    engine->desc.tracer = &engine->services.tracer;
}

static sumi_result check_services(const sumi_services* services, sumi_error* error)
{
    SUMI_REFUSE((services->allocator.allocate == NULL) != (services->allocator.release == NULL), SUMI_INVALID_ARGUMENT,
                "allocator: give both allocate and release, or neither for the C library's");
    SUMI_REFUSE((services->device_allocator.allocate == NULL) != (services->device_allocator.release == NULL),
                SUMI_INVALID_ARGUMENT, "device_allocator: give both allocate and release, or neither for the driver's");
    const sumi_files* files = &services->files;
    bool has_files = files->open != NULL || files->read != NULL || files->map != NULL || files->close != NULL;
    SUMI_REFUSE(has_files && (files->open == NULL || files->read == NULL || files->close == NULL),
                SUMI_INVALID_ARGUMENT,
                "files: give open, read and close (map may be NULL), or none of them for memory-mapped files");
    const sumi_tasks* tasks = &services->tasks;
    SUMI_REFUSE((tasks->begin == NULL) != (tasks->finish == NULL), SUMI_INVALID_ARGUMENT,
                "tasks: give both begin and finish, or neither");
    SUMI_REFUSE(tasks->begin != NULL && (tasks->worker_count < 1 || tasks->worker_count > 1024), SUMI_INVALID_ARGUMENT,
                "tasks.worker_count is %d: give 1 to 1024", (int)tasks->worker_count);
    SUMI_REFUSE(tasks->begin == NULL && tasks->worker_count != 0, SUMI_INVALID_ARGUMENT,
                "tasks.worker_count is %d, but tasks.begin is NULL", (int)tasks->worker_count);
    return SUMI_OK;
}

static sumi_result check_desc(const sumi_engine_desc* desc, sumi_error* error)
{
    SUMI_TRY(sumi_check_cookie(desc->cookie, SUMI_COOKIE_ENGINE, "sumi_engine_desc", "sumi_engine_defaults", error));
    int backend = (int)desc->backend, pump = (int)desc->pump;
    SUMI_REFUSE(backend < 0 || backend > SUMI_BACKEND_CUDA, SUMI_INVALID_ARGUMENT, "backend is %d: no such backend",
                backend);
    const sumi_services services = services_of(desc);
    SUMI_TRY(check_services(&services, error));
    SUMI_REFUSE(pump < 0 || pump > SUMI_PUMP_THREAD, SUMI_INVALID_ARGUMENT, "pump is %d: no such mode", pump);
    SUMI_REFUSE(desc->job_capacity < 1 || desc->job_capacity > SUMI_MAX_JOBS, SUMI_INVALID_ARGUMENT,
                "job_capacity is %d: give 1 to %d", (int)desc->job_capacity, SUMI_MAX_JOBS);
    SUMI_REFUSE(desc->cpu_thread_count < 0 || desc->cpu_thread_count > 256, SUMI_INVALID_ARGUMENT,
                "cpu_thread_count is %d: give 1 to 256, or 0 for every core", (int)desc->cpu_thread_count);
    return SUMI_OK;
}

// Refuses members that only a GPU can use.
static sumi_result check_for_cpu(const sumi_engine_desc* desc, sumi_error* error)
{
    SUMI_REFUSE(desc->device_allocator->allocate != NULL, SUMI_NOT_SUPPORTED,
                "device_allocator: the CPU backend has no device memory; leave NULL");
    SUMI_REFUSE(desc->cuda.ordinal != -1, SUMI_NOT_SUPPORTED,
                "cuda.ordinal is %d: the CPU backend has no devices to choose from; leave -1", (int)desc->cuda.ordinal);
    SUMI_REFUSE(desc->cuda.uuid != NULL, SUMI_NOT_SUPPORTED,
                "cuda.uuid: the CPU backend has no devices to choose from; leave NULL");
    SUMI_REFUSE(desc->cuda.luid != NULL, SUMI_NOT_SUPPORTED,
                "cuda.luid: the CPU backend has no devices to choose from; leave NULL");
    SUMI_REFUSE(desc->cuda.context != NULL, SUMI_NOT_SUPPORTED,
                "cuda.context: the CPU backend takes no context; leave NULL");
    SUMI_REFUSE(desc->cuda.stream != NULL, SUMI_NOT_SUPPORTED,
                "cuda.stream: the CPU backend takes no stream; leave NULL");
    return SUMI_OK;
}

// Tells the host program what makes the CPU slower than it could be.
static void log_slow_cpu(const sumi_engine* engine)
{
    const int32_t processor_count = sumi_cpu_count();
    if (engine->desc.cpu_thread_count == 1 && engine->desc.tasks->begin == NULL && processor_count > 1) {
        char text[160];
        snprintf(
            text, sizeof text,
            "the CPU backend works with 1 thread on a machine of %d logical processors: cpu_thread_count = 0 takes "
            "all of them",
            (int)processor_count);
        sumi_log_write(engine, SUMI_LOG_INFO, SUMI_OK, text);
    }
    if (!sumi_cpu_is_optimized) {
        sumi_log_write(engine, SUMI_LOG_WARNING, SUMI_OK,
                       "the CPU backend was built without optimisation, and images take about 25 times as long: build "
                       "src/cpu with -O2 or more (CMake does unless SUMI_OPTIMIZE_ALWAYS is OFF)");
    }
}

// SUMI_BACKEND_AUTO takes the CPU if there is no GPU that this build can use, and logs the reason.
static sumi_result create_runner(sumi_engine* engine, sumi_error* error)
{
    const sumi_engine_desc* desc = &engine->desc;
    if (desc->backend != SUMI_BACKEND_CPU) {
        sumi_error no_gpu = {0};
        sumi_result result = sumi_cuda_create(&engine->heap, engine->workers, desc, NULL, &no_gpu, &engine->runner);
        if (result == SUMI_OK) return SUMI_OK;
        const bool is_absent = result == SUMI_NO_DEVICE || result == SUMI_DRIVER_TOO_OLD
                            || result == SUMI_DEVICE_UNSUPPORTED || result == SUMI_NOT_SUPPORTED;
        if (desc->backend == SUMI_BACKEND_CUDA || !is_absent) return sumi_fail_with(error, &no_gpu);
        char text[sizeof no_gpu.text + 64];
        snprintf(text, sizeof text, "the CPU does the work: %s", no_gpu.text);
        sumi_log_write(engine, SUMI_LOG_INFO, SUMI_OK, text);
    }
    SUMI_TRY(check_for_cpu(desc, error));
    SUMI_TRY(sumi_cpu_create(&engine->heap, engine->workers, SUMI_CPU_AUTO, error, &engine->runner));
    log_slow_cpu(engine);
    return SUMI_OK;
}

static sumi_result create_members(sumi_engine* engine, sumi_error* error)
{
    sumi_heap* heap = &engine->heap;
    if (!sumi_mutex_init(&engine->state_lock)) return sumi_fail(error, SUMI_INTERNAL, "the system has no more locks");
    if (!sumi_condition_init(&engine->state_changed)) {
        sumi_mutex_destroy(&engine->state_lock);
        return sumi_fail(error, SUMI_INTERNAL, "the system has no more conditions");
    }
    engine->has_locks = true;
    size_t capacity = (size_t)engine->desc.job_capacity;
    engine->jobs.slots = sumi_alloc_zero(heap, capacity * sizeof *engine->jobs.slots);
    if (engine->jobs.slots == NULL)
        return sumi_out_of_memory(error, capacity * sizeof *engine->jobs.slots, "job slots");
    engine->jobs.slot_count = (int32_t)capacity;
    engine->jobs.free_slots = sumi_alloc_array(heap, capacity, sizeof *engine->jobs.free_slots);
    if (engine->jobs.free_slots == NULL)
        return sumi_out_of_memory(error, capacity * sizeof *engine->jobs.free_slots, "the list of free job slots");
    for (int32_t i = engine->jobs.slot_count; i-- > 0;) engine->jobs.free_slots[engine->jobs.free_count++] = i;
    SUMI_ASSERT(engine->jobs.free_count == engine->jobs.slot_count && engine->jobs.slot_count <= 1 << SUMI_SLOT_BITS);

    static const double s_first_guess_us[SUMI_OVERHEAD_COUNT] = {
        [SUMI_OVERHEAD_LOAD] = 1500,         [SUMI_OVERHEAD_TEXT] = 300,  [SUMI_OVERHEAD_PLAN] = 2000,
        [SUMI_OVERHEAD_PREPARE_DEVICE] = 10, [SUMI_OVERHEAD_INPUT] = 300, [SUMI_OVERHEAD_NOISE] = 100,
        [SUMI_OVERHEAD_OUTPUT] = 100};
    memcpy(engine->overhead_us, s_first_guess_us, sizeof s_first_guess_us);
    SUMI_TRY(sumi_workers_create(heap, engine->desc.tasks, engine->desc.cpu_thread_count, error, &engine->workers));
    engine->workspace.workers = engine->workers;
    SUMI_TRY(create_runner(engine, error));
    if (engine->desc.pump == SUMI_PUMP_THREAD && !sumi_pump_start_thread(engine))
        return sumi_fail(error, SUMI_OUT_OF_HOST_MEMORY, "the system has no thread for SUMI_PUMP_THREAD");
    return SUMI_OK;
}

sumi_result sumi_engine_create(const sumi_engine_desc* desc, sumi_engine** out_engine)
{
    if (out_engine != NULL) *out_engine = NULL;
    if (desc == NULL || out_engine == NULL) return SUMI_INVALID_ARGUMENT;
    sumi_error error = {0};
    sumi_engine* engine = NULL;
    if (check_desc(desc, &error) == SUMI_OK) {
        // The engine is allocated from the heap that is one of its members: this temporary heap makes the first
        // allocation, and its counts are then copied into the engine's.
        sumi_heap first;
        sumi_heap_init(&first, desc->allocator);
        engine = sumi_alloc_zero(&first, sizeof *engine);
        if (engine == NULL) {
            (void)sumi_out_of_memory(&error, sizeof *engine, "the engine");
        } else {
            sumi_heap_init(&engine->heap, desc->allocator);
            atomic_store(&engine->heap.allocated_bytes, atomic_load(&first.allocated_bytes));
            atomic_store(&engine->heap.peak, atomic_load(&first.peak));
            atomic_store(&engine->heap.count, atomic_load(&first.count));
            engine->workspace.heap = &engine->heap;
            copy_desc(engine, desc);
            sumi_process_mark_init(&engine->callers.process);
            engine->memory.host_limit = desc->memory_budget_bytes;
            engine->frame.max_pending_us = SUMI_MAX_PENDING_US;
            engine->frame.slice_us = desc->max_slice_us;
            engine->plan_inputs = (sumi_plan_inputs){.memory_limit = desc->memory_budget_bytes,
                                                     .host_limit = desc->memory_budget_bytes,
                                                     .slice_us = desc->max_slice_us};
            if (create_members(engine, &error) != SUMI_OK) {
                sumi_engine_destroy(engine);
                engine = NULL;
            }
        }
    }
    if (engine == NULL) {
        // The pointers of a desc that was not made by the defaults function may be garbage.
        bool may_log = error.result != SUMI_DESC_NOT_INITIALIZED && desc->log.write != NULL;
        if (may_log) desc->log.write(SUMI_LOG_ERROR, error.result, error.text, desc->log.user_data);
        return error.result;
    }
    *out_engine = engine;
    return SUMI_OK;
}

void sumi_engine_destroy(sumi_engine* engine)
{
    if (engine == NULL || sumi_call_begin(engine, "sumi_engine_destroy") != SUMI_OK) return;
    sumi_pump_stop_thread(engine);
    sumi_heap* heap = &engine->heap;
    if (engine->has_locks) {
        sumi_pump_lock(engine);
        sumi_kernels_stop_loading(engine);
        sumi_jobs_cancel(engine, &(sumi_used_object){.model = NULL});
        sumi_run_wait_for_all(engine);
        for (int32_t i = 0; i < engine->jobs.slot_count; i++) {
            sumi_job_slot* slot = &engine->jobs.slots[i];
            if (slot->id != 0) sumi_job_free(engine, slot);
            sumi_slot_close(engine, slot);
        }
        sumi_plan_cache_drop(engine, &(sumi_used_object){.model = NULL});
        while (engine->loras != NULL) sumi_lora_free(engine->loras);
        while (engine->controls != NULL) sumi_control_free(engine->controls);
        sumi_externals_close(engine);
        sumi_prompts_close(engine);
        while (engine->models != NULL) sumi_model_free(engine->models);
        sumi_pictures_close(engine);
        sumi_pump_unlock(engine);
    }
    sumi_workspace_close(&engine->workspace);
    sumi_block_free(heap, &engine->cache.key);
    if (engine->runner != NULL) engine->runner->functions->destroy(engine->runner);
    sumi_workers_destroy(engine->workers);
    sumi_free(heap, engine->jobs.free_slots);
    sumi_free(heap, engine->jobs.slots);
    if (engine->has_locks) {
        sumi_condition_destroy(&engine->state_changed);
        sumi_mutex_destroy(&engine->state_lock);
    }
    sumi_process_mark_close(&engine->callers.process);
    sumi_heap last; // the engine's own heap lies in the block that is freed last
    sumi_heap_init(&last, engine->desc.allocator);
    atomic_store(&last.allocated_bytes, atomic_load(&heap->allocated_bytes));
    sumi_free(&last, engine);
    SUMI_ASSERT(atomic_load(&last.allocated_bytes) == 0); // all memory was freed
}
