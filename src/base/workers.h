// Parallel loops. A loop over items is split over the calling thread and, if there are any, the host program's task
// system or sumi's own threads. A body must give the same bits for any split: it writes only data of its own items and
// never sums across items.
#ifndef SUMI_BASE_WORKERS_H
#define SUMI_BASE_WORKERS_H
#include "base/memory.h"

typedef struct sumi_workers sumi_workers;
typedef void sumi_loop_body(int32_t begin, int32_t end, int32_t worker_index, void* context);

// If tasks is not NULL and its worker_count is above 0, loops run on the host program's tasks. Otherwise sumi starts
// thread_count - 1 threads, which work beside the caller. thread_count 0: the number of logical processors; 1:
// only the caller works.
sumi_result sumi_workers_create(sumi_heap* heap, const sumi_tasks* tasks, int32_t thread_count, sumi_error* error,
                                sumi_workers** out_workers);
void sumi_workers_destroy(sumi_workers* workers); // accepts NULL; joins sumi's threads
// worker_index is below this; per-worker scratch has this many elements
int32_t sumi_workers_count(const sumi_workers* workers);

// Runs body over [0, item_count) and returns when every item is done. body gets ranges of at least min_range items (the
// last range may be shorter). Allocates nothing. One loop at a time.
void sumi_parallel(sumi_workers* workers, int32_t item_count, int32_t min_range, sumi_loop_body* body, void* context);
#endif
