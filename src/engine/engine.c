// Creating and destroying an engine, its log, its memory.
#include "engine/engine.h"
#include "base/assert.h"
#include "cpu/cpu.h"
#include "cuda/cuda.h"
#include <stdio.h>
#include <string.h>

// ---- Log ------------------------------------------------------------------------------------------------------------

static void keep_error(sumi_engine* engine, sumi_result result, const char* text)
{
    // Before the locks are made nobody can ask, and in a child after a fork the lock may be held by nobody who is there.
    if (!engine->has_locks || sumi_call_is_foreign(engine)) return;
    sumi_mutex_lock(&engine->table);
    engine->last_error.result = result;
    snprintf(engine->last_error.text, sizeof engine->last_error.text, "%s", text);
    sumi_mutex_unlock(&engine->table);
}

sumi_result sumi_engine_last_error(const sumi_engine* asked, char* into, size_t capacity)
{
    if (into != NULL && capacity > 0) into[0] = '\0';
    if (asked == NULL || (into == NULL && capacity > 0)) return SUMI_INVALID_ARGUMENT;
    if (sumi_call_is_foreign(asked)) return SUMI_WRONG_STATE;
    sumi_engine* engine = (sumi_engine*)asked; // the lock is not part of what a host sees as the engine's state
    sumi_mutex_lock(&engine->table);
    const sumi_result result = engine->last_error.result;
    if (capacity > 0) snprintf(into, capacity, "%s", engine->last_error.text);
    sumi_mutex_unlock(&engine->table);
    return result;
}

void sumi_log_write(const sumi_engine* engine, sumi_log_level level, sumi_result result, const char* text)
{
    SUMI_ASSERT(text != NULL && !sumi_mutex_is_held(&engine->table));
    sumi_engine* inside = (sumi_engine*)engine;
    if (level == SUMI_LOG_ERROR) keep_error(inside, result, text);
    const sumi_log* log = &engine->desc.log;
    if (log->write == NULL) return;
    uintptr_t thread = sumi_this_thread();
    const bool is_outermost = atomic_exchange(&inside->logger, thread) != thread;
    log->write(level, result, text, log->user_data);
    // another thread that logs at this time takes itself away
    if (is_outermost) (void)atomic_compare_exchange_strong(&inside->logger, &thread, 0);
}

sumi_result sumi_log_failure(const sumi_engine* engine, const sumi_error* error)
{
    SUMI_ASSERT(error->result != SUMI_OK);
    sumi_log_write(engine, SUMI_LOG_ERROR, error->result,
                   error->text[0] != '\0' ? error->text : sumi_result_text(error->result));
    return error->result;
}

sumi_result sumi_check_cookie(uint32_t cookie, uint32_t right, const char* type, const char* function,
                              sumi_error* error)
{
    SUMI_ASSERT(type != NULL && function != NULL);
    if (cookie == right) return SUMI_OK;
    return sumi_fail(error, SUMI_DESC_NOT_INITIALIZED,
                     "this %s was not made by %s(): begin with what that returns and change members", type, function);
}

// ---- Create ---------------------------------------------------------------------------------------------------------

static sumi_result check_services(const sumi_engine_desc* desc, sumi_error* error)
{
    SUMI_REFUSE((desc->allocator.allocate == NULL) != (desc->allocator.release == NULL), SUMI_INVALID_ARGUMENT,
                "allocator: give both allocate and release, or neither for the C library's");
    SUMI_REFUSE((desc->device_allocator.allocate == NULL) != (desc->device_allocator.release == NULL),
                SUMI_INVALID_ARGUMENT, "device_allocator: give both allocate and release, or neither for the driver's");
    const sumi_files* files = &desc->files;
    bool has_files = files->open != NULL || files->read != NULL || files->map != NULL || files->close != NULL;
    SUMI_REFUSE(has_files && (files->open == NULL || files->read == NULL || files->close == NULL),
                SUMI_INVALID_ARGUMENT,
                "files: give open, read and close (map may be NULL), or none of them for memory-mapped files");
    const sumi_tasks* tasks = &desc->tasks;
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
    int backend = (int)desc->backend, pump = (int)desc->pump, cublaslt = (int)desc->cuda.cublaslt;
    SUMI_REFUSE(backend < 0 || backend > SUMI_BACKEND_CUDA, SUMI_INVALID_ARGUMENT, "backend is %d: no such backend",
                backend);
    SUMI_REFUSE(cublaslt < 0 || cublaslt > SUMI_CUBLASLT_ALWAYS, SUMI_INVALID_ARGUMENT,
                "cuda.cublaslt is %d: no such choice", cublaslt);
    SUMI_TRY(check_services(desc, error));
    SUMI_REFUSE(pump < 0 || pump > SUMI_PUMP_THREAD, SUMI_INVALID_ARGUMENT, "pump is %d: no such mode", pump);
    SUMI_REFUSE(desc->job_capacity < 1 || desc->job_capacity > SUMI_MAX_JOBS, SUMI_INVALID_ARGUMENT,
                "job_capacity is %d: give 1 to %d", (int)desc->job_capacity, SUMI_MAX_JOBS);
    SUMI_REFUSE(desc->cpu_thread_count < 0 || desc->cpu_thread_count > 256, SUMI_INVALID_ARGUMENT,
                "cpu_thread_count is %d: give 1 to 256, or 0 for every core", (int)desc->cpu_thread_count);
    return SUMI_OK;
}

// What only a GPU can use.
static sumi_result check_for_cpu(const sumi_engine_desc* desc, sumi_error* error)
{
    SUMI_REFUSE(desc->device_allocator.allocate != NULL, SUMI_NOT_SUPPORTED,
                "device_allocator: the CPU backend has no device memory; leave it zero");
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
    SUMI_REFUSE(desc->cuda.cublaslt != SUMI_CUBLASLT_AUTO, SUMI_NOT_SUPPORTED,
                "cuda.cublaslt: the CPU backend has no use for it; leave SUMI_CUBLASLT_AUTO");
    return SUMI_OK;
}

// AUTO takes the processor when there is no GPU that this build can use, and says why in the log.
static sumi_result create_runner(sumi_engine* engine, sumi_error* error)
{
    const sumi_engine_desc* desc = &engine->desc;
    if (desc->backend != SUMI_BACKEND_CPU) {
        sumi_error no_gpu = {SUMI_OK, {0}};
        sumi_result result = sumi_cuda_create(&engine->heap, engine->workers, desc, NULL, &no_gpu, &engine->runner);
        if (result == SUMI_OK) return SUMI_OK;
        const bool is_absent = result == SUMI_NO_DEVICE || result == SUMI_DRIVER_TOO_OLD
                            || result == SUMI_DEVICE_UNSUPPORTED || result == SUMI_NOT_SUPPORTED;
        if (desc->backend == SUMI_BACKEND_CUDA || !is_absent) return sumi_fail(error, result, "%s", no_gpu.text);
        char text[sizeof no_gpu.text + 64];
        snprintf(text, sizeof text, "the processor does the work: %s", no_gpu.text);
        sumi_log_write(engine, SUMI_LOG_INFO, SUMI_OK, text);
    }
    SUMI_TRY(check_for_cpu(desc, error));
    return sumi_cpu_create(&engine->heap, engine->workers, SUMI_CPU_AUTO, error, &engine->runner);
}

static sumi_result create_parts(sumi_engine* engine, sumi_error* error)
{
    sumi_heap* heap = &engine->heap;
    if (!sumi_mutex_init(&engine->table)) return sumi_fail(error, SUMI_INTERNAL, "the system has no more locks");
    if (!sumi_condition_init(&engine->changed)) {
        sumi_mutex_destroy(&engine->table);
        return sumi_fail(error, SUMI_INTERNAL, "the system has no more conditions");
    }
    if (!sumi_mutex_init(&engine->text)) {
        sumi_condition_destroy(&engine->changed);
        sumi_mutex_destroy(&engine->table);
        return sumi_fail(error, SUMI_INTERNAL, "the system has no more locks");
    }
    engine->has_locks = true;
    size_t capacity = (size_t)engine->desc.job_capacity;
    engine->slots = sumi_alloc_zero(heap, capacity * sizeof *engine->slots);
    if (engine->slots == NULL) return sumi_out_of_memory(error, capacity * sizeof *engine->slots, "job slots");
    engine->slot_count = (int32_t)capacity;
    engine->free_slots = sumi_alloc_array(heap, capacity, sizeof *engine->free_slots);
    if (engine->free_slots == NULL)
        return sumi_out_of_memory(error, capacity * sizeof *engine->free_slots, "the list of free job slots");
    for (int32_t i = engine->slot_count; i-- > 0;) engine->free_slots[engine->free_count++] = i;
    SUMI_ASSERT(engine->free_count == engine->slot_count && engine->slot_count <= 1 << SUMI_SLOT_BITS);

    static const double first_guess_us[SUMI_CHORE_COUNT] = {
        [SUMI_CHORE_LOAD] = 1500, [SUMI_CHORE_TEXT] = 300,  [SUMI_CHORE_PLAN] = 2000, [SUMI_CHORE_READY] = 10,
        [SUMI_CHORE_INPUT] = 300, [SUMI_CHORE_NOISE] = 100, [SUMI_CHORE_OUTPUT] = 100};
    memcpy(engine->chore_us, first_guess_us, sizeof first_guess_us);
    SUMI_TRY(sumi_workers_create(heap, &engine->desc.tasks, engine->desc.cpu_thread_count, error, &engine->workers));
    SUMI_TRY(create_runner(engine, error));
    if (engine->desc.pump == SUMI_PUMP_THREAD && !sumi_pump_start_thread(engine)) {
        return sumi_fail(error, SUMI_OUT_OF_HOST_MEMORY, "the system has no thread for SUMI_PUMP_THREAD");
    }
    return SUMI_OK;
}

sumi_result sumi_engine_create(const sumi_engine_desc* desc, sumi_engine** out_engine)
{
    if (out_engine != NULL) *out_engine = NULL;
    if (desc == NULL || out_engine == NULL) return SUMI_INVALID_ARGUMENT;
    sumi_error error = {SUMI_OK, {0}};
    sumi_engine* engine = NULL;
    if (check_desc(desc, &error) == SUMI_OK) {
        sumi_heap first; // the engine holds the heap that it lies in itself
        sumi_heap_init(&first, &desc->allocator);
        engine = sumi_alloc_zero(&first, sizeof *engine);
        if (engine == NULL) {
            (void)sumi_out_of_memory(&error, sizeof *engine, "the engine");
        } else {
            sumi_heap_init(&engine->heap, &desc->allocator);
            atomic_store(&engine->heap.held, atomic_load(&first.held));
            atomic_store(&engine->heap.peak, atomic_load(&first.peak));
            atomic_store(&engine->heap.count, atomic_load(&first.count));
            engine->desc = *desc;
            engine->process = sumi_process_id();
            engine->memory_budget_bytes = desc->memory_budget_bytes;
            engine->most_pending_us = SUMI_MOST_PENDING_US;
            engine->slice_us = desc->max_slice_us;
            engine->plan_inputs = (sumi_plan_inputs){.budget = desc->memory_budget_bytes,
                                                     .host_budget = desc->memory_budget_bytes,
                                                     .slice_us = desc->max_slice_us};
            if (create_parts(engine, &error) != SUMI_OK) {
                sumi_engine_destroy(engine);
                engine = NULL;
            }
        }
    }
    if (engine == NULL) {
        // such a desc's pointers may be anything
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
        sumi_work_lock(engine);
        sumi_load_kernels_stop(engine);
        sumi_jobs_cancel(engine, NULL, NULL, NULL);
        sumi_run_drain(engine);
        for (int32_t i = 0; i < engine->slot_count; i++) {
            sumi_slot* slot = &engine->slots[i];
            if (slot->id != 0) sumi_job_free(engine, slot);
            sumi_slot_close(engine, slot);
        }
        sumi_plan_cache_drop(engine, NULL, NULL);
        while (engine->loras != NULL) sumi_lora_free(engine->loras);
        while (engine->externals != NULL) sumi_external_free(engine->externals);
        while (engine->prompts != NULL) sumi_prompt_free(engine->prompts);
        while (engine->models != NULL) sumi_model_free(engine->models);
        sumi_pictures_close(engine);
        sumi_work_unlock(engine);
    }
    sumi_workspace_close(heap, &engine->workspace);
    sumi_block_free(heap, &engine->cache.key);
    if (engine->runner != NULL) engine->runner->functions->destroy(engine->runner);
    sumi_workers_destroy(engine->workers);
    sumi_free(heap, engine->free_slots);
    sumi_free(heap, engine->slots);
    if (engine->has_locks) {
        sumi_condition_destroy(&engine->changed);
        sumi_mutex_destroy(&engine->text);
        sumi_mutex_destroy(&engine->table);
    }
    sumi_heap last; // outlives the block that the engine's heap is in
    sumi_heap_init(&last, &engine->desc.allocator);
    atomic_store(&last.held, atomic_load(&heap->held));
    sumi_free(&last, engine);
    SUMI_ASSERT(atomic_load(&last.held) == 0); // all that was taken has been given back
}

// ---- Kernels of a GPU -----------------------------------------------------------------------------------------------

static void load_main(void* context)
{
    sumi_engine* engine = context;
    bool is_done = false;
    float progress = 0.0f;
    atomic_store(&engine->loader, sumi_this_thread());
    while (!is_done
           && engine->runner->functions->load(engine->runner, &is_done, &progress, &engine->load_error) == SUMI_OK)
        continue;
    atomic_store(&engine->loader, 0);
    atomic_store(&engine->load_is_over, true);
}

sumi_result sumi_load_kernels(sumi_engine* engine, bool* out_done, sumi_error* error)
{
    SUMI_ASSERT(sumi_work_is_held(engine));
    *out_done = engine->runner->functions->load == NULL || engine->has_kernels;
    if (*out_done) return SUMI_OK;
    if (!engine->has_load_thread) {
        engine->load_error = (sumi_error){SUMI_OK, {0}};
        atomic_store(&engine->load_is_over, false);
        engine->load_start = (sumi_thread_start){load_main, engine, true};
        engine->has_load_thread = sumi_thread_begin(&engine->load_thread, &engine->load_start);
        if (!engine->has_load_thread)
            return sumi_fail(error, SUMI_OUT_OF_HOST_MEMORY, "the system has no thread to load the kernels with");
    }
    if (!atomic_load(&engine->load_is_over)) return SUMI_OK;
    sumi_load_kernels_stop(engine);
    if (engine->load_error.result != SUMI_OK)
        return sumi_fail(error, engine->load_error.result, "%s", engine->load_error.text);
    *out_done = engine->has_kernels = true;
    return SUMI_OK;
}

void sumi_load_kernels_stop(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_work_is_held(engine));
    if (!engine->has_load_thread) return;
    sumi_thread_join(&engine->load_thread);
    engine->has_load_thread = false;
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

uint64_t sumi_engine_budget(const sumi_engine* engine)
{
    SUMI_ASSERT(sumi_work_is_held(engine));
    const uint64_t budget = engine->memory_budget_bytes, limit = engine->limit.bytes;
    return limit != 0 && (budget == 0 || limit < budget) ? limit : budget;
}

static uint64_t held_on_device(const sumi_engine* engine)
{
    sumi_device_facts facts;
    if (engine->runner->functions->facts == NULL) return 0;
    engine->runner->functions->facts(engine->runner, &facts);
    return facts.held[SUMI_MEMORY_WEIGHTS] + facts.held[SUMI_MEMORY_ARENA] + facts.held[SUMI_MEMORY_IMAGE];
}

uint32_t sumi_engine_piece_us(const sumi_engine* engine)
{
    SUMI_ASSERT(sumi_work_is_held(engine) && engine->most_pending_us > 0.0);
    const uint32_t most = engine->desc.max_slice_us != 0 ? engine->desc.max_slice_us : 5000;
    return engine->most_pending_us < most ? (uint32_t)engine->most_pending_us : most;
}

void sumi_engine_forget_weights(sumi_engine* engine, const sumi_weight* const* weights, size_t count)
{
    SUMI_ASSERT(sumi_work_is_held(engine));
    if (engine->runner->functions->forget_weights == NULL) return;
    sumi_run_drain(engine);
    engine->runner->functions->forget_weights(engine->runner, weights, count);
}

void sumi_engine_release(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_work_is_held(engine));
    sumi_run_drain(engine);
    engine->runner->functions->release(engine->runner);
    atomic_store(&engine->arena_bytes, 0);
    atomic_store(&engine->scratch_bytes, 0);
}

sumi_result sumi_engine_reserve(sumi_engine* engine, const sumi_plan_entry* entry, sumi_error* error)
{
    SUMI_ASSERT(sumi_work_is_held(engine));
    SUMI_ASSERT(entry->model != NULL && entry->need.fits);
    const uint64_t held_arena = atomic_load(&engine->arena_bytes), held_scratch = atomic_load(&engine->scratch_bytes);
    uint64_t arena = entry->plan.arena_bytes > held_arena ? entry->plan.arena_bytes : held_arena;
    uint64_t scratch = entry->scratch_bytes > held_scratch ? entry->scratch_bytes : held_scratch;
    bool grows = arena > held_arena || scratch > held_scratch;
    // Under a budget the old blocks go first: both at once, or one job's arena with another's scratch, may be more than
    // it allows.
    if (grows && engine->memory_budget_bytes != 0) {
        sumi_engine_release(engine);
        arena = entry->plan.arena_bytes;
        scratch = entry->scratch_bytes;
    }
    sumi_result result = engine->runner->functions->reserve(engine->runner, &entry->plan, error);
    if (result != SUMI_OK) {
        sumi_limit_note(engine, result);
        // half of it may be new; beside a job that leaves nothing was to be made, and its results are there
        if (engine->leaving == NULL) sumi_engine_release(engine);
        return result;
    }
    atomic_store(&engine->arena_bytes, arena);
    atomic_store(&engine->scratch_bytes, scratch);
    return SUMI_OK;
}

void sumi_engine_trim(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_work_is_held(engine));
    const sumi_runner_functions* runner = engine->runner->functions;
    if (engine->run.entry != NULL || engine->leaving != NULL || engine->memory_budget_bytes == 0) return;
    if (runner->trim != NULL) {
        if (held_on_device(engine) <= engine->memory_budget_bytes) return;
        sumi_engine_release(engine);
        runner->set_budget(engine->runner, sumi_engine_budget(engine));
        runner->trim(engine->runner);
        return;
    }
    if (atomic_load(&engine->arena_bytes) + atomic_load(&engine->scratch_bytes) <= engine->memory_budget_bytes) return;
    sumi_engine_release(engine);
}

sumi_result sumi_engine_set_memory_budget(sumi_engine* engine, uint64_t bytes)
{
    if (engine == NULL) return SUMI_INVALID_ARGUMENT;
    SUMI_TRY(sumi_call_begin(engine, "sumi_engine_set_memory_budget"));
    sumi_work_lock(engine);
    engine->memory_budget_bytes = bytes;
    engine->limit = (sumi_device_limit){0};
    // a running job keeps what it has until it ends
    if (engine->running == NULL && engine->leaving == NULL) sumi_engine_trim(engine);
    sumi_work_unlock(engine);
    return sumi_call_end(engine, SUMI_OK, NULL);
}

static void read_memory(const sumi_engine* engine, sumi_engine_info* info)
{
    info->held_bytes[SUMI_MEMORY_WEIGHTS] = atomic_load(&engine->weight_bytes);
    info->held_bytes[SUMI_MEMORY_ARENA] = atomic_load(&engine->arena_bytes);
    info->held_bytes[SUMI_MEMORY_IMAGE] = atomic_load(&engine->image_bytes);
    info->held_bytes[SUMI_MEMORY_STAGING] = atomic_load(&engine->scratch_bytes);
    if (engine->runner->functions->facts == NULL) return;
    sumi_device_facts facts;
    engine->runner->functions->facts(engine->runner, &facts);
    facts.held[SUMI_MEMORY_IMAGE] += info->held_bytes[SUMI_MEMORY_IMAGE];
    memcpy(info->held_bytes, facts.held, sizeof info->held_bytes);
    info->device_bytes = facts.bytes;
    info->uncounted_bytes = facts.uncounted;
    info->compute_capability = facts.capability;
    info->driver_version = facts.driver;
}

void sumi_engine_held_bytes(const sumi_engine* engine, uint64_t out_bytes[4])
{
    sumi_engine_info info = {.backend = NULL};
    read_memory(engine, &info);
    memcpy(out_bytes, info.held_bytes, sizeof info.held_bytes);
}

sumi_engine_info sumi_engine_get_info(const sumi_engine* engine)
{
    sumi_engine_info info = {.backend = "", .device = ""};
    if (engine == NULL || sumi_call_is_foreign(engine)) return info;
    info.backend = engine->runner->functions->name(engine->runner);
    info.device = engine->runner->functions->device(engine->runner);
    read_memory(engine, &info);
    info.has_cublaslt =
        engine->runner->functions->has_cublaslt != NULL && engine->runner->functions->has_cublaslt(engine->runner);
    info.host_bytes = atomic_load(&engine->heap.held);
    info.host_peak_bytes = atomic_load(&engine->heap.peak);
    info.allocation_count = atomic_load(&engine->heap.count);
    sumi_engine* locked = (sumi_engine*)engine;
    sumi_mutex_lock(&locked->table);
    info.job_count = engine->slot_count - engine->free_count;
    SUMI_ASSERT(info.job_count >= 0 && info.job_count <= engine->slot_count);
    sumi_mutex_unlock(&locked->table);
    return info;
}
