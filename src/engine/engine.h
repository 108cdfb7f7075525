// The engine from inside: who owns what, and which thread may touch it.
//
//   host's calls                     the pump (whoever holds the work)              other threads
//   submit -> slot QUEUED  ------->  slot RUNNING, one slice at a time  ------->    poll, cancel, preview, info
//   fetch, discard <---------------  slot DONE / FAILED / CANCELLED                 (read what the pump published)
//
// Two locks, both short in different ways:
//   table   a mutex around slots' states, published statuses, lists and pool. Never held while anything is computed,
//           allocated or logged.
//   work    a flag under that mutex (pump.c): who has it may run slices, and touch runner, cache and workspace. Held for
//           one slice by the pump, and by the calls that take something away from running jobs: close, release, destroy.
//           The memory query does without: it writes a plan of its own, from what the last holder left under `table`.
// Order: work before table. Nobody waits for the work while holding the table.
//
// Jobs run one after the other, so everything a job needs only while it runs exists once, here, and is reused by the
// next one. On a GPU the next one begins while the last slices of the one before it are on their way and its pictures
// are read, if that one's plan is ready as it is: nothing is allocated, moved or given back then, and what both use is
// used in order.
//
//   running   TEXT PLAN .. RUN ..  all submitted -> leaving   last slices end, OUTPUT
//                                                   running   TEXT PLAN READY INPUT NOISE RUN ..       first fetch: when nothing is leaving any more
#ifndef SUMI_ENGINE_ENGINE_H
#define SUMI_ENGINE_ENGINE_H
#include "base/platform.h"
#include "base/workers.h"
#include "engine/device_limit.h"
#include "engine/job.h"
#include "engine/objects.h"
#include "engine/plan_cache.h"
#include "engine/run.h"
#include "engine/tempo.h"
#include "plan/runner.h"

// Pieces of work that are not slices of a plan. Their times are measured, so that they fit into a host's budget too.
typedef enum sumi_chore {
    SUMI_CHORE_LOAD,
    SUMI_CHORE_TEXT,
    SUMI_CHORE_PLAN,
    SUMI_CHORE_READY,
    SUMI_CHORE_INPUT,
    SUMI_CHORE_NOISE,
    SUMI_CHORE_OUTPUT,
    SUMI_CHORE_COUNT
} sumi_chore;

// Tables of the job that runs, and of the memory query.
typedef struct sumi_workspace {
    sumi_block ids;              // token ids
    sumi_block tables;           // sigmas, solver rows, times, lists of the request
    sumi_block values;           // one item's noise, a picture on its way in
    sumi_block between, picture; // of a resize
    sumi_block first;            // a reference in RGB, before the vision tower's own resize
    sumi_block temporary;        // what functions of other rooms allocate inside
} sumi_workspace;

struct sumi_engine {
    sumi_heap heap;
    sumi_engine_desc desc;
    sumi_workers* workers;
    sumi_runner* runner;

    sumi_mutex table;
    sumi_condition changed; // the work is free, a job was queued, a job has ended, the engine closes
    bool has_locks;
    bool is_working; // somebody holds the work
#if defined(SUMI_CHECKED)
    atomic_uintptr_t worker; // sumi_this_thread() of who; 0: nobody
#endif
    // sumi_this_thread() of who is inside; 0: nobody. A callback of the host's is on one of these threads
    atomic_uintptr_t caller, logger; // in a call that others may not be made beside; in the host's log
    atomic_uintptr_t pump, loader;   // of pump_thread and load_thread, while they run
    uint64_t process;                // that made the engine
    int32_t work_waiters;            // calls that want it: the pump thread steps back for them
    bool is_closing;
    sumi_thread pump_thread;
    sumi_thread_start pump_start;
    bool has_pump_thread;
    sumi_thread load_thread; // of a GPU: loads its kernels, once, during the first model job
    sumi_thread_start load_start;
    bool has_load_thread, has_kernels; // kernels: loaded, nothing more to do
    atomic_bool load_is_over;
    sumi_error load_error;

    // under `table`
    sumi_slot* slots;
    int32_t slot_count;
    int32_t* free_slots;
    int32_t free_count; // a stack: the slot that was freed last has its buffers warm
    int32_t queued_count;
    int32_t untold_count; // slots with is_untold
    bool has_running;     // `running` or `leaving` is not NULL: for who may not look at that
    uint64_t next_generation, next_order, next_serial;
    sumi_error last_error; // what sumi_engine_last_error tells
    sumi_model* models;
    sumi_prompt* prompts;
    sumi_lora* loras;
    sumi_external* externals;
    sumi_picture* pictures;
    sumi_plan_inputs plan_inputs; // as they were when the work was given back last

    // Of the tokenizers, whose scratch jobs and memory queries share. Held while one prompt is split, by who holds the
    // work or does not; never while holding `table`.
    sumi_mutex text;

    // whoever holds the work
    sumi_slot* running;
    sumi_slot* leaving; // the job before it, NULL: it has ended. All of it is submitted
    // a job that is cancelled while it leaves leaves its slices behind: leaving_run without an entry
    sumi_run run, leaving_run;
    uint64_t device_ends_ns; // when all that is on its way will have ended, by predictions
    uint64_t outslept_ns;    // submission of the slice that had not ended when it should have, lately
    uint64_t traced_ns;      // where the newest span of the device's track ended
    double most_pending_us;  // predicted, of slices on their way to a device: by the budget of the call that works
    double most_own_us;      // of this thread's time, beside a device, for a call that is paced; 0: nobody paces
    // moving average of the budgets of the latest updates; 0: the latest call that worked had no budget
    double paced_us;
    // of plans that are written now: desc.max_slice_us, or a half, a quarter .. of it while budgets are small
    uint32_t slice_us;
    sumi_workspace workspace;
    sumi_plan_cache cache;
    sumi_pace pace;
    sumi_tempo tempo;
    double chore_us[SUMI_CHORE_COUNT]; // moving averages, guesses at first
    uint64_t memory_budget_bytes;
    sumi_device_limit limit;

    atomic_uint_fast64_t weight_bytes, arena_bytes, scratch_bytes, image_bytes; // what sumi_engine_info shows
};

// Tells the host's log. Not while holding `table`.
void sumi_log_write(const sumi_engine* engine, sumi_log_level level, sumi_result result, const char* text);
// The same for a failure, which it returns: the end of every public function.
sumi_result sumi_log_failure(const sumi_engine* engine, const sumi_error* error);

// ---- Calls (calls.c) ------------------------------------------------------------------------------------------------
// The first and the last thing in every public function but those that may be called beside others. begin refuses with
// SUMI_WRONG_STATE what comes from inside of a callback, or from another process; there is no end then. end logs the
// error of a call that has failed, and returns the result.
sumi_result sumi_call_begin(const sumi_engine* engine, const char* function);
sumi_result sumi_call_end(const sumi_engine* engine, sumi_result result, const sumi_error* error);
bool sumi_call_is_foreign(const sumi_engine* engine); // this process is not the one that made the engine

// One line per rule in the checks of descs.
#define SUMI_REFUSE(condition, result, ...)                                                                            \
    do {                                                                                                               \
        if (condition) return sumi_fail(error, result, __VA_ARGS__);                                                   \
    } while (0)

// "this desc was made by its defaults function"
#define SUMI_COOKIE_ENGINE 0x53754531u
#define SUMI_COOKIE_MODEL 0x53754d31u
#define SUMI_COOKIE_PROMPT 0x53755031u
#define SUMI_COOKIE_LORA 0x53754c31u
#define SUMI_COOKIE_IMAGE 0x53754931u
#define SUMI_COOKIE_ENCODE 0x53754331u
#define SUMI_COOKIE_XML_PROMPT 0x53755831u
sumi_result sumi_check_cookie(uint32_t cookie, uint32_t right, const char* type, const char* function,
                              sumi_error* error);

// A device that nobody paces is kept fed by a few slices. More would only lengthen the way to a cancel.
#define SUMI_MOST_PENDING_US 32000.0

// ---- The pump (pump.c) ----------------------------------------------------------------------------------------------
void sumi_work_lock(sumi_engine* engine);
void sumi_work_unlock(sumi_engine* engine);
bool sumi_work_is_held(const sumi_engine* engine); // by this thread. For assertions; defined in checked builds only
// Ends a job from outside its own steps; holds the work. Jobs that have ended, or of another model, are left alone.
// NULL: any
void sumi_jobs_cancel(sumi_engine* engine, const sumi_model* model, const sumi_lora* lora,
                      const sumi_external* external);
bool sumi_pump_start_thread(sumi_engine* engine);
void sumi_pump_stop_thread(sumi_engine* engine);

// SUMI_FOREVER: a call without a budget. Holds the work
void sumi_engine_follow_pace(sumi_engine* engine, uint32_t budget_us);
// how long a piece of work that is no slice may take: max_slice_us, or 5 ms where slices are whole ops; no more than
// the call's budget
uint32_t sumi_engine_piece_us(const sumi_engine* engine);
// Takes weights off a device, after everything submitted has ended. Holds the work. Nothing to do on the processor.
void sumi_engine_forget_weights(sumi_engine* engine, const sumi_weight* const* weights, size_t count);

// ---- Kernels of a GPU (engine.c); hold the work ---------------------------------------------------------------------
// Begins to load them on a thread of its own, then says when that is over. At once on the processor.
sumi_result sumi_load_kernels(sumi_engine* engine, bool* out_done, sumi_error* error);
void sumi_load_kernels_stop(sumi_engine* engine); // waits for that thread

// ---- Arena and scratch (engine.c); hold the work --------------------------------------------------------------------
sumi_result sumi_engine_reserve(sumi_engine* engine, const sumi_plan_entry* entry, sumi_error* error);
void sumi_engine_release(sumi_engine* engine); // gives all of both back; waits for what was submitted
void sumi_engine_trim(sumi_engine* engine);    // gives back what is more than the budget
// by sumi_memory_kind, now; any thread, without any lock
void sumi_engine_held_bytes(const sumi_engine* engine, uint64_t out_bytes[4]);
// that jobs keep to: the host's, or what the device had; 0: no limit
uint64_t sumi_engine_budget(const sumi_engine* engine);
#endif
