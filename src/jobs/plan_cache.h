// The plans of the most recent shapes. Writing a plan takes a few hundred allocations; a job whose plan is in the cache
// takes none.
//
// A request contains everything that a plan depends on: model, goal, sizes, token counts, the pattern of guided
// evaluations, adapters with their scales, the memory limit, the length of slices. A plan is written from the request
// alone and found by a key that is made of the whole request (plan_key.h). Seeds, texts, sigmas and guidance scales are
// not part of a request, because they are data of the plan's inputs.
#ifndef SUMI_JOBS_PLAN_CACHE_H
#define SUMI_JOBS_PLAN_CACHE_H
#include "base/memory.h"
#include "base/result.h"
#include "jobs/buffers.h"
#include "jobs/plan_key.h"
#include "models/pipeline.h"
#include "pacing/forecast.h"
#include "pacing/tempo.h"
#include "plan/plan.h"
#include "plan/runner.h"
#include "plan/weight.h"

#define SUMI_PLAN_CACHE_SIZE 4
#define SUMI_MAX_FEATHER 256 // of a mask, in pixels

// Times of a section in microseconds: what its measured slices took, what had been predicted for these slices, and the
// predictions for the slices that were not measured.
typedef struct sumi_section_time {
    double measured_us, expected_us, unmeasured_us;
    // Time / prediction of the whole section, from a few of its work ranges (pieces.h). 0: not known.
    double probed_ratio;
} sumi_section_time;

// How far a slice has run. All zero: it has not begun.
typedef struct sumi_slice_cursor {
    int32_t op, range;    // op: counted from the slice's first; range: of this op, the next one to run
    int32_t latest_count; // how many ranges of this op and of the same kind (preparing or not) ran last; 0: none yet
    double range_us;      // and how long each took
    double least_us;      // the least that each took, of the op and kind that ran last
    double us;            // of all pieces of the slice
    double share;         // of the slice's work that these pieces have done, as the backend's rates predict it
    double believed_us;   // the same, without what other programs took: as far as the time of the slice is known
} sumi_slice_cursor;

// What pieces.h has measured.
typedef struct sumi_probe {
    int32_t kind; // the next kind of op, in its list
    sumi_slice_cursor cursor;
    float ratio[SUMI_OP_KIND_COUNT]; // measured time / predicted time, of the decoder's ops; 0: not measured
} sumi_probe;

// An object that jobs and plans use: one member, the others NULL. All NULL stands for any object.
typedef struct sumi_used_object {
    const sumi_model* model;
    const sumi_lora* lora;
    const sumi_control* control;
    const sumi_external* external;
} sumi_used_object;

typedef struct sumi_plan_entry {
    sumi_plan plan;
    sumi_pipeline pipeline;
    sumi_adapter_use adapters[SUMI_MAX_LORAS], text_adapters[SUMI_MAX_LORAS];
    const sumi_model* model; // NULL: the entry is empty
    const sumi_lora* loras[SUMI_MAX_LORAS];
    int32_t lora_count;
    const sumi_control* controls[SUMI_MAX_CONTROLS];
    int32_t control_count;
    uint64_t scratch_bytes;
    sumi_device_need need; // on the CPU: arena and scratch only
    int32_t tile_latent;
    size_t noise_section; // the first section that reads random values; the number of sections if none does
    bool has_groups;      // slices may be submitted in groups: on a device, unless each op is measured
    float op_ratio[SUMI_OP_KIND_COUNT]; // the op ratios that the predictions of the slices were made with
    // Slices of the same ops and sizes are of one kind. Layers repeat, so a measurement of one slice predicts all
    // slices of its kind. The time of a kind is kept at its first slice.
    // for each slice the first slice of its kind; at a kind's first slice the number of its slices
    int32_t *kind_first, *kind_count;
    float* slice_us;   // measured, at a kind's first slice; 0: not measured yet
    float* scratch_us; // for each slice: times that one function needs at a time
    // at a kind's first slice: whether slice_us is less than what was measured (tempo.h)
    sumi_tempo_doubt* doubts;
    sumi_section_time* sections;
    // On the CPU, if slices are cut while they run (pieces.h), for each op: the time of one of its first work ranges,
    // in microseconds, when it ran last; of those behind the preparing ones, and of the preparing ones. 0: it has not
    // run. NULL: the plan's slices run as they are.
    float* range_us;
    sumi_probe probe;
    sumi_accuracy step; // of the wall-clock predictions for the steps of this plan
    unsigned char* key;
    size_t key_bytes;
    uint64_t serial; // of the plan: no other one of the engine has it
    uint64_t used;   // serial of the latest use; the entry with the lowest is replaced first
} sumi_plan_entry;

// The state of the engine that plans depend on. The thread that holds the pump lock changes it and leaves a copy under
// `state_lock`.
typedef struct sumi_plan_inputs {
    uint64_t memory_limit; // sumi_engine_memory_limit
    uint64_t host_limit;   // the host program's memory limit
    uint32_t slice_us;
    float op_ratio[SUMI_OP_KIND_COUNT]; // of the cache
} sumi_plan_inputs;

typedef struct sumi_plan_cache {
    sumi_plan_entry entries[SUMI_PLAN_CACHE_SIZE];
    uint64_t uses;
    sumi_block key; // of the request that is being looked up
    // for each kind of op: measured time / time by the backend's rates; 0: not measured yet
    float op_ratio[SUMI_OP_KIND_COUNT];
} sumi_plan_cache;

// The caller of the functions below holds the pump lock.
//
//  Completes a job's request by what the engine knows. The functions below do this themselves.
sumi_plan_request sumi_plan_complete(const sumi_engine* engine, const sumi_plan_request* job_request);
// NULL: no such plan is in the cache, and sumi_plan_get would write it
const sumi_plan_entry* sumi_plan_find(sumi_engine* engine, const sumi_plan_request* job_request);
sumi_result sumi_plan_get(sumi_engine* engine, const sumi_plan_request* job_request, sumi_plan_entry** out_entry,
                          sumi_error* error);
// Writes an entry that is not in the cache, for loading weights. The caller ends it with sumi_plan_entry_drop, also
// after a failure.
sumi_result sumi_plan_entry_write(sumi_engine* engine, const sumi_plan_request* job_request, sumi_plan_entry* entry,
                                  sumi_error* error);
void sumi_plan_entry_drop(sumi_engine* engine, sumi_plan_entry* entry);
// Drops the plans that use the object.
void sumi_plan_cache_drop(sumi_engine* engine, const sumi_used_object* object);

// The inputs of plans for a job that leaves the queue now: with the newest memory limit.
sumi_plan_inputs sumi_plan_inputs_of_next_job(const sumi_engine* engine);
// For the memory query; the pump lock is not needed. Writes an entry that nothing runs, on the caller's heap. After
// SUMI_BUDGET_TOO_SMALL and SUMI_OUT_OF_DEVICE_MEMORY entry->need is what the smallest form of the plan needs.
sumi_result sumi_plan_entry_write_for_query(sumi_engine* engine, sumi_heap* heap, const sumi_plan_request* job_request,
                                            sumi_plan_entry* entry, sumi_error* error);
void sumi_plan_entry_close(sumi_heap* heap, sumi_plan_entry* entry); // also after a failure

// Whether the slices should be grouped again, because their measured times are not those that they were planned to
// take: a group takes longer than may be submitted at once, so that its slices are submitted without its graph, or there
// are many more groups than are needed.
bool sumi_plan_entry_needs_grouping(const sumi_plan_entry* entry);
// If so, groups the slices again, by their measured times. No slice of the plan may be in flight.
void sumi_plan_entry_regroup(sumi_plan_entry* entry);

// predicted time of one run of the section, in microseconds
double sumi_section_us(const sumi_plan_entry* entry, size_t section);
// The part of it that a slice of the section takes.
double sumi_section_slice_us(const sumi_plan_entry* entry, size_t section, int32_t slice);
#endif
