// Runs cases on several machines (runners with different options) and compares their outputs with those of the CPU.
#ifndef TEST_CUDA_OPS_RUN_H
#define TEST_CUDA_OPS_RUN_H
#include "base/workers.h"
#include "cuda_ops/scene.h"

#define SMALL 300000   // elements of all values and weights: what is rehearsed, and what --small leaves
#define LARGE 20000000 // not run in every mode
#define MAX_MACHINES 4

typedef struct machine {
    const char* name;
    sumi_runner* runner;
    bool rounds; // the rehearsal: activations are rounded after every slice
} machine;

// How a case is run: the ops uncut; the same plan again; cut into uneven slices that run in reverse order; cut into small
// slices.
typedef enum run_mode { RUN_WHOLE, RUN_AGAIN, RUN_PARTS, RUN_SMALL, RUN_MODE_COUNT } run_mode;

// Set by test_cuda_ops.c before cases run.
typedef struct run_settings {
    sumi_heap heap;
    sumi_workers* workers;
    sumi_cublaslt cublaslt;
    machine reference;              // the CPU backend
    machine machines[MAX_MACHINES]; // runners of the GPU
    int same_as[MAX_MACHINES];      // index of a machine with the same kernels, whose bits this one must have; -1: none
    int machine_count;
    uint64_t max_elements;   // of a case
    const char* case_filter; // a part of the names of cases; NULL: all
    const char* absent;      // why there is no GPU to test; NULL: there is one
    int case_count;          // cases that were run
} run_settings;
extern run_settings g_run;
extern const char* const g_run_modes[RUN_MODE_COUNT]; // names of modes

// The outputs as they lie in memory, for the caller to free. False after saying why.
bool run_case(const op_case* c, case_data* store, const machine* m, run_mode mode, void** outs, scene* s);
void free_outs(void** outs);
// Output i of `got` (by m) against `want` (by the processor) over the rows that the op writes.
void compare_output(const op_case* c, const scene* s, int i, const machine* m, const void* got,
                    const machine* reference, const void* want, double* out_error);
void forget_weights(const machine* m, const case_data* store);
void run_case_on_machines(const op_case* c, const machine* reference, const machine* machines, const int* same_as,
                          int machine_count);
// Elements of a case, without making its data. Kinds of ops that it has are set in `covered` (NULL: not asked).
uint64_t count_case_elements(const op_case* c, bool* covered);
// Runs the cases that the settings allow. False: no case is small enough.
bool run_cases(const op_case* cases, size_t count);
void check_same_bits(const op_case* c, const scene* s, const char* name, const char* mode, void** got, void** want);
#endif
