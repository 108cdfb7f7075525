// The memory that the engine holds for the job that runs: arena and scratch memory of the backend, in host memory or on
// a device. Also the sums that sumi_engine_get_info reports.
//
// The functions are called by the thread that holds the pump lock (engine.h), except sumi_engine_held_bytes.
#ifndef SUMI_ENGINE_ENGINE_MEMORY_H
#define SUMI_ENGINE_ENGINE_MEMORY_H
#include "engine/plan_cache.h"
#include <stdatomic.h>
#include <sumi.h>

typedef struct sumi_engine_memory {
    uint64_t budget_bytes; // memory budget of the host program, 0: none; touched by whoever holds the pump lock
    // Bytes that sumi_engine_get_info reports. Written by whoever holds the pump lock, read by any thread.
    atomic_uint_fast64_t weight_bytes, arena_bytes, scratch_bytes, image_bytes;
} sumi_engine_memory;

// Makes arena and scratch memory large enough for the plan. Under a memory budget, if either must grow, both are freed
// before. Fails with an out-of-memory result.
sumi_result sumi_engine_reserve(sumi_engine* engine, const sumi_plan_entry* entry, sumi_error* error);
void sumi_engine_release(sumi_engine* engine); // frees arena and scratch memory; blocks until all slices in flight end
// Frees memory if more than the memory budget is held. Does nothing while a plan runs or a job drains (engine.h).
void sumi_engine_trim(sumi_engine* engine);
// Bytes held now, by sumi_memory_kind. Any thread, takes no lock, never blocks.
void sumi_engine_held_bytes(const sumi_engine* engine, uint64_t out_bytes[4]);
// Removes weights from the device; blocks until all slices in flight have ended. Does nothing on the processor.
void sumi_engine_forget_weights(sumi_engine* engine, const sumi_weight* const* weights, size_t count);
#endif
