// What the engine holds for the job that runs, on the host or on a device: arena and scratch; and what it holds in all.
#ifndef SUMI_ENGINE_ENGINE_MEMORY_H
#define SUMI_ENGINE_ENGINE_MEMORY_H
#include "engine/plan_cache.h"
#include <stdatomic.h>
#include <sumi.h>

typedef struct sumi_engine_memory {
    uint64_t budget_bytes;                                                      // the host's; 0: none
    atomic_uint_fast64_t weight_bytes, arena_bytes, scratch_bytes, image_bytes; // what sumi_engine_info shows
} sumi_engine_memory;

// All hold the work, but for the last.
sumi_result sumi_engine_reserve(sumi_engine* engine, const sumi_plan_entry* entry, sumi_error* error);
void sumi_engine_release(sumi_engine* engine); // gives all of both back; waits for what was submitted
void sumi_engine_trim(sumi_engine* engine);    // gives back what is more than the budget
// by sumi_memory_kind, now; any thread, without any lock
void sumi_engine_held_bytes(const sumi_engine* engine, uint64_t out_bytes[4]);
// Takes weights off a device, after everything submitted has ended. Nothing to do on the processor.
void sumi_engine_forget_weights(sumi_engine* engine, const sumi_weight* const* weights, size_t count);
#endif
