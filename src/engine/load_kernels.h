// A GPU's kernels: loaded once, on a thread of their own, during the first model job.
#ifndef SUMI_ENGINE_LOAD_KERNELS_H
#define SUMI_ENGINE_LOAD_KERNELS_H
#include "base/platform.h"
#include "base/result.h"
#include <stdatomic.h>
#include <sumi.h>

// All of it is touched by who holds the work, but for what the thread sets: is_over, and error before that.
typedef struct sumi_kernel_loading {
    sumi_thread thread;
    sumi_thread_start start;
    bool has_thread;
    bool is_done; // loaded: nothing more to do
    atomic_bool is_over;
    sumi_error error;
} sumi_kernel_loading;

// Both hold the work.
// Begins to load them on a thread of its own, then says when that is over. At once on the processor.
sumi_result sumi_kernels_load(sumi_engine* engine, bool* out_done, sumi_error* error);
void sumi_kernels_stop_loading(sumi_engine* engine); // waits for that thread
#endif
