// The memory that the engine holds for the job that runs: arena and scratch memory of the backend, in host memory or on
// a device. Also the sums that sumi_engine_get_info reports.
//
// The functions are called by the thread that holds the pump lock (engine_state.h), except sumi_engine_held_bytes.
#ifndef SUMI_JOBS_HELD_MEMORY_H
#define SUMI_JOBS_HELD_MEMORY_H
#include "base/result.h"
#include "jobs/plan_cache.h"
#include "plan/weight.h"
#include <stdatomic.h>
#include <sumi.h>

typedef struct sumi_held_memory {
    // Both are touched by whoever holds the pump lock. 0: none.
    // host_limit: the host program's memory limit that holds for what runs. A job keeps the one that held when it left
    // the queue.
    // next_host_limit: the host program's newest, which has not begun to hold while `has_next_host_limit` is true.
    uint64_t host_limit, next_host_limit;
    bool has_next_host_limit;
    // Bytes that sumi_engine_get_info reports. Written by whoever holds the pump lock, read by any thread.
    atomic_uint_fast64_t weight_bytes, arena_bytes, scratch_bytes, image_bytes;
} sumi_held_memory;

// Makes arena and scratch memory large enough for the plan. Under a memory limit, if either must grow, both are freed
// before. Fails with an out-of-memory result.
sumi_result sumi_engine_reserve(sumi_engine* engine, const sumi_plan_entry* entry, sumi_error* error);
void sumi_engine_release(sumi_engine* engine); // frees arena and scratch memory; blocks until all slices in flight end
// The host program's newest memory limit begins to hold. Called when a job leaves the queue: the job before it may
// still drain (engine_state.h), but a job that drains takes no more memory.
void sumi_engine_adopt_host_limit(sumi_engine* engine);
// While no job runs: adopts the newest memory limit, and frees memory if more than that is held. Otherwise does
// nothing.
void sumi_engine_trim(sumi_engine* engine);
// Bytes held now, by sumi_memory_kind. Any thread, takes no lock, never blocks.
void sumi_engine_held_bytes(const sumi_engine* engine, uint64_t out_bytes[4]);
// Removes weights from the device; blocks until all slices in flight have ended. Does nothing on the CPU.
void sumi_engine_release_weights(sumi_engine* engine, const sumi_weight* const* weights, size_t count);
#endif
