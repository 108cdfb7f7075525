// Plans of the last few shapes. Writing one takes a few hundred allocations; a job whose shape is here takes none.
//
// A request says everything a plan depends on: model, goal, sizes, token counts, the pattern of guided evaluations,
// adapters with their scales, the memory budget, the length of slices. A plan is written from nothing else, and found
// by a key that is made of all of it (plan_key.h). Seeds, texts, sigmas and guidance scales are not in it: they are
// data.
#ifndef SUMI_ENGINE_PLAN_CACHE_H
#define SUMI_ENGINE_PLAN_CACHE_H
#include "engine/accuracy.h"
#include "engine/plan_key.h"
#include "plan/runner.h"

#define SUMI_PLAN_CACHE_SIZE 4
#define SUMI_MAX_FEATHER 256 // of a mask, in pixels

// Time of a section: what its measured slices took lately and what had been predicted for them, and the predictions of
// the others.
typedef struct sumi_section_time {
    double measured_us, expected_us, unmeasured_us;
} sumi_section_time;

typedef struct sumi_plan_entry {
    sumi_plan plan;
    sumi_pipeline pipeline;
    sumi_adapter_use adapters[SUMI_MAX_LORAS];
    const sumi_model* model; // NULL: the entry is empty
    const sumi_lora* loras[SUMI_MAX_LORAS];
    int32_t lora_count;
    uint64_t scratch_bytes;
    sumi_device_need need; // on the processor: arena and scratch alone
    int32_t tile_latent;
    size_t noise_section;               // the first one that reads what is drawn at random; as many as there are: none
    float op_ratio[SUMI_OP_KIND_COUNT]; // that the slices' predictions were made with
    // Slices of the same ops in the same sizes are a kind: layers repeat, so what a step measures of one says what all
    // of them take. Times are kept at the kind's first slice.
    int32_t *kind_first, *kind_count; // by slice; the count at the first
    float* slice_us;                  // measured, 0: not yet
    sumi_section_time* sections;
    sumi_accuracy step; // of what is predicted for its steps on the wall
    unsigned char* key;
    size_t key_bytes;
    uint64_t used; // grows with every use: the smallest goes first
} sumi_plan_entry;

// What a plan takes of the engine as it is now. Who holds the work changes it, and leaves a copy under `table`.
typedef struct sumi_plan_inputs {
    uint64_t budget;      // sumi_engine_budget
    uint64_t host_budget; // memory_budget_bytes
    uint32_t slice_us;
    float op_ratio[SUMI_OP_KIND_COUNT]; // of the cache
} sumi_plan_inputs;

typedef struct sumi_plan_cache {
    sumi_plan_entry entries[SUMI_PLAN_CACHE_SIZE];
    uint64_t uses;
    sumi_block key; // of the request being looked up
    // how much longer than the backend's rates say ops take here; 0: not measured yet
    float op_ratio[SUMI_OP_KIND_COUNT];
} sumi_plan_cache;

// All hold the work.
// A job's request with the engine's part; the functions below do this themselves.
sumi_plan_request sumi_plan_complete(const sumi_engine* engine, const sumi_plan_request* asked);
// NULL: sumi_plan_get would write it
const sumi_plan_entry* sumi_plan_find(sumi_engine* engine, const sumi_plan_request* asked);
sumi_result sumi_plan_get(sumi_engine* engine, const sumi_plan_request* asked, sumi_plan_entry** out_entry,
                          sumi_error* error);
// Writes an entry that is not in the cache, for loading weights. Ends with sumi_plan_entry_free, also after a failure.
sumi_result sumi_plan_entry_write(sumi_engine* engine, const sumi_plan_request* asked, sumi_plan_entry* entry,
                                  sumi_error* error);
void sumi_plan_entry_free(sumi_engine* engine, sumi_plan_entry* entry);
// plans that use them; both NULL: all
void sumi_plan_cache_drop(sumi_engine* engine, const sumi_model* model, const sumi_lora* lora);

sumi_plan_inputs sumi_plan_inputs_now(const sumi_engine* engine);
// These two do not hold the work. An entry that nothing runs, on a heap of the caller's, for the memory query. After
// SUMI_BUDGET_TOO_SMALL and SUMI_OUT_OF_DEVICE_MEMORY entry->need says what its smallest form needs.
sumi_result sumi_plan_entry_try(sumi_engine* engine, sumi_heap* heap, const sumi_plan_request* asked,
                                sumi_plan_entry* entry, sumi_error* error);
void sumi_plan_entry_close(sumi_heap* heap, sumi_plan_entry* entry); // also after a failure

double sumi_section_us(const sumi_plan_entry* entry, size_t section); // one run of it, by what is known
#endif
