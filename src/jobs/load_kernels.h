// Loading of a GPU's kernels: once, on a thread of its own, during the first load of a model.
#ifndef SUMI_JOBS_LOAD_KERNELS_H
#define SUMI_JOBS_LOAD_KERNELS_H
#include "base/platform.h"
#include "base/result.h"
#include <stdatomic.h>
#include <sumi.h>

// Touched by the thread that holds the pump lock, except what the loading thread sets: is_over, and error before it.
typedef struct sumi_kernel_loading {
    sumi_thread thread;
    sumi_thread_start start;
    bool has_thread;
    bool is_done;            // loaded: nothing more to do
    bool has_told_compiling; // the log knows that the driver compiles kernels when a plan wants them
    atomic_bool is_over;
    sumi_error error;
} sumi_kernel_loading;

// The callers hold the pump lock.
//
//  Starts the loading thread, and then reports whether it has ended. On the CPU *out_done is true at once.
sumi_result sumi_kernels_load(sumi_engine* engine, bool* out_done, sumi_error* error);
void sumi_kernels_stop_loading(sumi_engine* engine); // waits for the loading thread
#endif
