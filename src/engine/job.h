// Jobs: fixed slots, a generation in the id, and a table of functions per kind.
//
//   FREE --sumi_job_reserve--> filled by submit --sumi_job_queue--> QUEUED --pump--> RUNNING --> DONE | FAILED | CANCELLED --fetch, discard--> FREE
//                                                                      ^--- a pause ---'
//
// An id is generation * 8192 + index of the slot. Generations never repeat, so a stale id finds a slot whose id is
// another one.
#ifndef SUMI_ENGINE_JOB_H
#define SUMI_ENGINE_JOB_H
#include "engine/plan_job.h"
#include "models/network.h"

#define SUMI_MAX_JOBS 4096
#define SUMI_SLOT_BITS 13

typedef struct sumi_slot sumi_slot;

typedef enum sumi_job_kind {
    SUMI_JOB_KIND_MODEL,
    SUMI_JOB_KIND_PROMPT,
    SUMI_JOB_KIND_LORA,
    SUMI_JOB_KIND_IMAGES,
    SUMI_JOB_KIND_ENCODE
} sumi_job_kind;

// How a job's step ended. MORE: another one can follow at once. WAITS: nothing can be done before the device has
// finished something. ASIDE: it gives way, and will begin again (pause.c).
typedef enum sumi_step_end { SUMI_STEP_MORE, SUMI_STEP_WAITS, SUMI_STEP_DONE, SUMI_STEP_ASIDE } sumi_step_end;

typedef struct sumi_job_functions {
    const char* name; // "an image job", for messages
    // Microseconds that the next step will probably take.
    double (*predict)(const sumi_engine* engine, const sumi_slot* slot);
    // One slice of work; sets *out_stage to what it was and *out_end to how it goes on.
    sumi_result (*step)(sumi_engine* engine, sumi_slot* slot, sumi_stage* out_stage, sumi_step_end* out_end,
                        sumi_error* error);
    // after the last step, whatever the end: gives back what only a running job holds. Holds the work
    void (*stop)(sumi_engine* engine, sumi_slot* slot);
    // frees the product that nobody fetched; nothing the second time. Of models and adapters: holds the work
    void (*drop)(sumi_engine* engine, sumi_slot* slot);
    // Takes out the object that a job which is done has made, for the host. NULL: jobs of this kind make none.
    void* (*take)(sumi_slot* slot);
} sumi_job_functions;

typedef struct sumi_model_job {
    sumi_network_desc desc; // its texts lie in the slot's input
    sumi_weight_format weights, text_weights;
    sumi_model* product;
    bool has_begun, is_open, has_reviewed; // reviewed: whether there is memory again on the device
    int32_t lowered_limits;                // how often its weights had to do with less device memory
    // a plan of the whole network, written so that its weights go to the device now; NULL: not yet, or over
    struct sumi_plan_entry* warm;
    uint64_t begin_ns;
} sumi_model_job;

typedef struct sumi_lora_job {
    const char* path;
    sumi_lora* product;
} sumi_lora_job;

// What the running job says of itself after a slice; the pump publishes it.
typedef struct sumi_job_live {
    int32_t step, step_count;
    int32_t cut_tokens;
    float progress, seconds_left;
    double device_us; // of what finished on a device during this step; negative: the step's own time counts
    const char* doing;
    int32_t doing_step; // the slice that the processor ran, for traces; NULL: something else
} sumi_job_live;

struct sumi_slot {
    // under `table`
    uint64_t id; // 0: free
    sumi_job_kind kind;
    int32_t priority;
    uint64_t order, submitted_ns; // of submission
    sumi_job_status status;       // as poll returns it; NONE while submit fills the slot
    bool cancel_asked, is_discarded;
    bool pause_asked; // of a running job: it gives way when it can. A queued one is status.paused
    bool has_begun;
    bool is_untold; // in a final state of which the host's completion has not been told

    // submit, then the pump, then fetch: one at a time
    const sumi_job_functions* functions;
    sumi_model* model; // NULL: needs none any more
    bool yields;       // pause_asked, as it was before this step
    sumi_error error;
    sumi_block lists, input; // what submit copied
    sumi_block products;     // latents, previews, pictures on their way to the host's memory
    sumi_profile_row* profile;
    size_t profile_count, profile_capacity;
    sumi_job_live live;
    double stage_seconds[8], device_seconds;
    union {
        sumi_model_job model;
        sumi_lora_job lora;
        sumi_plan_job plan; // prompts, images, encodings
    } u;
};

// Everything but the two at the end is under `table`.
typedef struct sumi_job_table {
    sumi_slot* slots;
    int32_t slot_count;
    int32_t* free_slots;
    int32_t free_count; // a stack: the slot that was freed last has its buffers warm
    int32_t queued_count;
    int32_t untold_count; // slots with is_untold
    bool has_running;     // `running` or `draining` is not NULL: for who may not look at that
    uint64_t next_generation, next_order;
    // whoever holds the work
    sumi_slot* running;
    sumi_slot* draining; // the job before it, NULL: it has ended. All of its slices are submitted
} sumi_job_table;

// A free slot for submit to fill; poll does not see it yet. SUMI_QUEUE_FULL.
sumi_result sumi_job_reserve(sumi_engine* engine, sumi_job_kind kind, const sumi_job_functions* functions,
                             sumi_slot** out_slot, sumi_error* error);
// Of the next step of a job that loads: predict, for their tables.
double sumi_job_predict_load(const sumi_engine* engine, const sumi_slot* slot);
void sumi_job_queue(sumi_engine* engine, sumi_slot* slot, int32_t priority, void* user_data, sumi_job* out_job);
// drops products; the id is stale from here on. Not while holding `table`
void sumi_job_free(sumi_engine* engine, sumi_slot* slot);

sumi_slot* sumi_job_find(const sumi_engine* engine, sumi_job job); // NULL when stale; hold `table`
// For fetches: the slot of a job of this kind in a final state, or the failure. SUMI_STALE_HANDLE, SUMI_WRONG_STATE.
sumi_result sumi_job_finished(const sumi_engine* engine, sumi_job job, sumi_job_kind kind, sumi_slot** out_slot,
                              sumi_error* error);
// of queued ones: higher priority first, then the older one; hold `table`
bool sumi_job_is_before(const sumi_slot* a, const sumi_slot* b);
bool sumi_job_is_final(const sumi_slot* slot); // hold `table`, or own the slot
// Whether a host may name it: submitted, neither fetched nor discarded. Hold `table`.
bool sumi_job_is_listed(const sumi_slot* slot);
// The job goes before the host's completion was told. Hold `table`.
void sumi_job_forget_completion(sumi_engine* engine, sumi_slot* slot);
bool sumi_job_is_load(const sumi_slot* slot); // of a model or an adapter
// Moves a job to its final state, frees it when it was discarded, and wakes who waits. Holds the work.
void sumi_job_end(sumi_engine* engine, sumi_slot* slot, sumi_job_state state, const sumi_error* error);
// A running job gives way: it is queued again, or paused. Holds the work.
void sumi_job_set_aside(sumi_engine* engine, sumi_slot* slot);
// Tells the host's completion of jobs that ended where no callback may be made.
void sumi_jobs_tell(sumi_engine* engine);
// Ends jobs from outside of their own steps. Those that have ended, or of another model, adapter or texture, are left
// alone. NULL: any. Holds the work.
void sumi_jobs_cancel(sumi_engine* engine, const sumi_model* model, const sumi_lora* lora,
                      const sumi_external* external);
void sumi_slot_close(sumi_engine* engine, sumi_slot* slot); // its buffers, when the engine goes
#endif
