// Jobs. Each job has a job slot, one of the engine's fixed records, an id, and the table of functions of its kind.
//
//   FREE --sumi_job_reserve--> filled by submit --sumi_job_queue--> QUEUED --pump--> RUNNING --> DONE or FAILED
//    ^                                                                 ^-- paused, yields --'     or CANCELLED
//    '------------------------------------------- fetch, discard -----------------------------------------'
//
// An id is generation * 8192 + index of the job slot. Generations never repeat, so for a stale id the job slot has
// another id.
//
// The state lock and the pump lock are the engine's two locks (engine_state.h). A function with the note "hold
// `state_lock`" is called by a thread that has locked it; "holds the pump lock" means that the calling thread does.
// Functions without a note lock `state_lock` themselves for a moment. None of the functions waits for a device, except
// sumi_job_end, sumi_jobs_cancel and sumi_job_free where `stop` or `drop` do.
#ifndef SUMI_JOBS_JOB_H
#define SUMI_JOBS_JOB_H
#include "base/result.h"
#include "jobs/buffers.h"
#include "jobs/plan_job.h"
#include "models/network.h"

#define SUMI_MAX_JOBS 4096
#define SUMI_SLOT_BITS 13

typedef struct sumi_job_slot sumi_job_slot;

typedef enum sumi_job_kind {
    SUMI_JOB_KIND_MODEL,
    SUMI_JOB_KIND_PROMPT,
    SUMI_JOB_KIND_LORA,
    SUMI_JOB_KIND_CONTROL,
    SUMI_JOB_KIND_IMAGES,
    SUMI_JOB_KIND_ENCODE
} sumi_job_kind;

// What follows a turn. MORE: another turn can follow at once. WAITS: nothing can be done before the device has finished
// something. DONE: the job is complete. YIELDS: the job goes back into the queue and will begin again (pause.h).
typedef enum sumi_turn_end { SUMI_TURN_MORE, SUMI_TURN_WAITS, SUMI_TURN_DONE, SUMI_TURN_YIELDS } sumi_turn_end;

// A turn is one call of a job's `advance` function by the pump: a slice, or a piece of other work.
typedef struct sumi_turn {
    sumi_stage stage; // that the work belongs to
    sumi_turn_end end;
    bool ends_phase; // of a plan job, in PREPARE_DEVICE and RUN: nothing is left to do in the phase
} sumi_turn;

// What differs between the kinds of jobs. Their functions that are in src/engine are called through this table alone.
typedef struct sumi_job_functions {
    const char* name; // "an image job", for messages
    // Predicted time of the next turn, in microseconds. The caller holds the pump lock.
    double (*predict)(const sumi_engine* engine, const sumi_job_slot* slot);
    // Does one piece of work, and changes what it knows of the turn: before it, the turn is of stage WAIT and ends with
    // MORE. A failure ends the job. The caller holds the pump lock.
    sumi_result (*advance)(sumi_engine* engine, sumi_job_slot* slot, sumi_turn* turn, sumi_error* error);
    // Releases what only a running job holds. Called once after the last turn, whether the job succeeded, failed, was
    // cancelled or yields. The caller holds the pump lock. May block until the device has written the job's
    // pictures. NULL: a running job holds nothing else.
    void (*stop)(sumi_engine* engine, sumi_job_slot* slot);
    // Frees the product if it was not fetched. A second call does nothing. The caller holds the pump lock if the job
    // slot may still have a model or an adapter.
    void (*drop)(sumi_engine* engine, sumi_job_slot* slot);
    // Removes the object that a finished job has made from the job slot and returns it, for the host program. NULL:
    // jobs of this kind make no object.
    void* (*take)(sumi_job_slot* slot);
} sumi_job_functions;

typedef struct sumi_model_job {
    sumi_network_desc desc; // its strings lie in the job slot's block `input`
    sumi_weight_format weights, text_weights;
    sumi_attention_format attention;
    sumi_model* product;
    // has_reviewed: the job has checked whether the device has more memory than the current limit (job_memory.h).
    bool has_begun, is_open, has_reviewed;
    int32_t lowered_limits; // how often the job has lowered the limit
    // A plan of the whole network, written to copy the weights to the device while the model loads. NULL: not written
    // yet, or freed.
    struct sumi_plan_entry* upload_entry;
    uint64_t begin_ns;
} sumi_model_job;

// Of a job that reads a file for a model (engine/file_jobs.c).
typedef struct sumi_file_job {
    const char* path; // lies in the job slot's block `input`
    void* product;    // of kind LORA a sumi_lora, of kind CONTROL a sumi_control; NULL: not begun, or taken
} sumi_file_job;

// What a running job reports after each of its turns. The pump copies it to sumi_job_slot.status under `state_lock`.
typedef struct sumi_job_live {
    int32_t step, step_count;        // denoising steps that ended, and all of them
    int32_t compiled, compile_count; // in stage COMPILE
    uint64_t compiling_since_ns;     // 0: not in this stage. The driver's threads work, so its seconds are those passed
    int32_t cut_tokens;              // the most tokens by which a text is longer than the model reads
    float progress, seconds_left;
    // Microseconds of slices that ended on a device during this turn of the job. Negative: this was no turn of phase
    // RUN on a device, so the time of the pump's thread is counted instead.
    double device_us;
    const char* trace_name; // for traces: the op of the slice that the CPU ran, or "noise"; NULL: anything else
    int32_t trace_step;     // for traces: the denoising step of that slice; -1: none
} sumi_job_live;

// A job slot. The engine owns all job slots from its creation to its destruction.
struct sumi_job_slot {
    // Protected by `state_lock`.
    uint64_t id; // 0: the job slot is free
    sumi_job_kind kind;
    int32_t priority;
    uint64_t order, submitted_ns;        // position in the order of submissions; time of submission (steady clock)
    sumi_job_status status;              // as sumi_job_poll returns it; state NONE while submit fills the job slot
    bool cancel_requested, is_discarded; // the host program has called sumi_job_cancel; sumi_job_discard
    // The job runs, and the host program has asked to pause it. A queued job has status.paused instead.
    bool pause_requested;
    bool has_begun; // the pump has begun this job at least once
    // The job has read a text, or more, since it left the queue. Until then sumi_job_set_priority and sumi_job_pause
    // can send it back (pump.c).
    bool has_worked;
    // The job is in a final state, and the completion callback of the host program was not called yet.
    bool completion_is_pending;

    // Touched by one thread at a time: the thread that submits, then the pump, then the thread that fetches.
    const sumi_job_functions* functions;
    sumi_model* model; // NULL: the job has no model, or its model was closed
    bool must_yield;   // the job must yield: a copy of pause_requested, made before each turn
    sumi_error error;
    sumi_block lists, input; // the copies that submit made
    sumi_block products;     // latents, previews, and pictures until they are copied to memory of the host program
    sumi_profile_row* profile;
    size_t profile_count, profile_capacity;
    sumi_job_live live;
    double stage_seconds[SUMI_STAGE_COUNT], device_seconds;
    union {
        sumi_model_job model_job;
        sumi_file_job file_job; // jobs of the kinds LORA and CONTROL
        sumi_plan_job plan_job; // jobs of the kinds PROMPT, IMAGES and ENCODE
    } u;
};

// All jobs of an engine. Everything but running and draining is protected by `state_lock`.
typedef struct sumi_job_table {
    sumi_job_slot* slots;
    int32_t slot_count;
    // Indices of free job slots. A stack: the job slot freed last is used first, so that its blocks are used again.
    int32_t* free_slots;
    int32_t free_count;
    int32_t queued_count;             // jobs that are queued and not paused
    int32_t pending_completion_count; // jobs with completion_is_pending
    // `running` or `draining` is not NULL: a copy for threads that hold `state_lock` but not the pump lock.
    bool has_running;
    uint64_t next_generation, next_order;
    // Touched only by the thread that holds the pump lock.
    sumi_job_slot* running;
    // The job before `running`: all its slices are submitted, and it has not ended (engine_state.h). NULL: none.
    sumi_job_slot* draining;
} sumi_job_table;

// Takes a free job slot and clears it, for submit to fill. sumi_job_poll does not find it yet. Fails with
// SUMI_QUEUE_FULL.
sumi_result sumi_job_reserve(sumi_engine* engine, sumi_job_kind kind, const sumi_job_functions* functions,
                             sumi_job_slot** out_slot, sumi_error* error);
// The function `predict` of jobs that load models, adapters or control nets.
double sumi_job_predict_load(const sumi_engine* engine, const sumi_job_slot* slot);
// Queues a job slot that submit has filled, and wakes threads that wait for jobs.
void sumi_job_queue(sumi_engine* engine, sumi_job_slot* slot, int32_t priority, void* user_data, sumi_job* out_job);
// Drops the products and makes the job slot free; the id is stale from here on. Do not hold `state_lock`. The caller
// holds the pump lock if the job slot may still have a model or an adapter.
void sumi_job_free(sumi_engine* engine, sumi_job_slot* slot);

sumi_job_slot* sumi_job_find(const sumi_engine* engine, sumi_job handle); // NULL for a stale job; hold `state_lock`
// For fetches: finds the job slot of a job of this kind in a final state. Fails with SUMI_STALE_HANDLE, or with
// SUMI_WRONG_STATE for another kind or a job that has not ended.
sumi_result sumi_job_finished(const sumi_engine* engine, sumi_job handle, sumi_job_kind kind, sumi_job_slot** out_slot,
                              sumi_error* error);
// The order of queued jobs: the higher priority first, then the older job. Hold `state_lock`.
bool sumi_job_is_before(const sumi_job_slot* a, const sumi_job_slot* b);
bool sumi_job_is_final(const sumi_job_slot* slot); // DONE, FAILED or CANCELLED; hold `state_lock`, or own the job slot
// Whether the host program may use the job's id: the job was submitted, and neither fetched nor discarded. Hold
// `state_lock`.
bool sumi_job_is_listed(const sumi_job_slot* slot);
// The job is freed or discarded, so the completion callback will not be called for it any more. Hold `state_lock`.
void sumi_job_forget_completion(sumi_engine* engine, sumi_job_slot* slot);
bool sumi_job_is_load(const sumi_job_slot* slot); // the job loads a model, an adapter or a control net
// Moves a job to its final state, wakes the threads that wait, and calls the completion callback; a discarded job is
// freed instead. The caller holds the pump lock.
void sumi_job_end(sumi_engine* engine, sumi_job_slot* slot, sumi_job_state state, const sumi_error* error);
// Moves the running job back into the queue without ending it; it is paused if the host program has asked for that. The
// caller holds the pump lock.
void sumi_job_yield(sumi_engine* engine, sumi_job_slot* slot);
// Calls the completion callback for jobs that ended where no callback may be called (sumi_job_cancel). The caller holds
// the pump lock.
void sumi_jobs_call_completions(sumi_engine* engine);
// Cancels all queued and running jobs that use this object. Jobs that have ended keep their state; if their model is
// closed, they forget it. The caller holds the pump lock.
void sumi_jobs_cancel(sumi_engine* engine, const sumi_used_object* object);
// Frees the blocks of a free job slot, when the engine is destroyed. The caller holds the pump lock.
void sumi_slot_close(sumi_engine* engine, sumi_job_slot* slot);

// ---- Externals --------------------------------------------------------------------------------------------------------
//
// The externals that the targets of an image job, and the depth buffers of its control nets, name. A job marks them as used from its submission to its fetch or
// discard. The host program may release an external meanwhile; the job then forgets it.

// Marks the externals as used by a job. is_used false: as not used any more, and the job forgets
// them. Called by the thread that submits, and by the one that drops the job.
void sumi_plan_job_mark_externals(sumi_plan_job* job, bool is_used);
// Forgets the targets and depth buffers that name it. The caller holds the pump lock.
void sumi_plan_job_forget_external(sumi_plan_job* job, const sumi_external* external);
#endif
