// Work in parallel: one loop over items, split over the calling thread and, when there are any, the host's task system
// or threads of our own.
// A body must give the same bits for any split: it writes only what belongs to its items and never sums across items.
#ifndef SUMI_BASE_WORKERS_H
#define SUMI_BASE_WORKERS_H
#include "base/memory.h"

typedef struct sumi_workers sumi_workers;
typedef void sumi_loop_body(int32_t begin, int32_t end, int32_t worker_index, void* context);

// tasks != NULL with worker_count > 0: the host's. Otherwise thread_count - 1 threads of our own beside the caller (0:
// every core; 1: none).
sumi_result sumi_workers_create(sumi_heap* heap, const sumi_tasks* tasks, int32_t thread_count, sumi_error* error,
                                sumi_workers** out_workers);
void sumi_workers_destroy(sumi_workers* workers);        // accepts NULL; joins our threads
int32_t sumi_workers_count(const sumi_workers* workers); // worker_index is below this: size per-worker scratch with it

// Runs body over [0, item_count) and returns when all is done. Items are handed out in ranges of at least min_range.
// Allocates nothing.
void sumi_parallel(sumi_workers* workers, int32_t item_count, int32_t min_range, sumi_loop_body* body, void* context);
#endif
