// Runs cases on several machines and compares their outputs with those of the CPU. A machine is a runner with its
// options, such as the GPU without CUDA graphs.
#ifndef TEST_CUDA_OPS_RUN_H
#define TEST_CUDA_OPS_RUN_H
#include "base/workers.h"
#include "cuda_ops/scene.h"

#define SMALL 300000   // elements of all values and weights of a case that is rehearsed, or that --small runs
#define LARGE 20000000 // RUN_SMALL is left out for cases of more elements than this
#define MAX_MACHINES 4

typedef struct machine {
    const char* name;
    sumi_runner* runner;
    bool rounds_to_bf16; // only in the rehearsal: activations are rounded after each slice
} machine;

typedef enum run_mode {
    RUN_WHOLE, // each op is one slice
    RUN_AGAIN, // the same, twice: the second run is compared
    RUN_PARTS, // uneven slices; those of one op run in reverse order
    RUN_SMALL, // small slices
    RUN_MODE_COUNT
} run_mode;

// Set by test_cuda_ops.c before cases run.
typedef struct run_settings {
    sumi_heap heap;
    sumi_workers* workers;
    machine reference;              // the CPU backend
    machine machines[MAX_MACHINES]; // runners of the GPU
    int same_as[MAX_MACHINES];      // index of a machine with the same kernels, whose bits this one must have; -1: none
    int machine_count;
    uint64_t max_elements;   // of a case
    const char* case_filter; // a part of the names of cases; NULL: all
    const char* skip_reason; // why there is no GPU to test; NULL: there is one
    int case_count;          // cases that were run
} run_settings;
extern run_settings g_run;
extern const char* const g_run_modes[RUN_MODE_COUNT]; // names of modes

// Runs the case once. outs: the bytes of each output, which the caller frees with free_outs(). s: the scene, whose plan
// the caller ends. Returns false if it failed; the reason was printed.
bool run_case(const op_case* c, case_data* store, const machine* m, run_mode mode, void** outs, scene* s);
void free_outs(void** outs);
// Compares output i in `got` (of m) with `want` (of the CPU) over the rows that the op writes. *out_error grows to the
// relative error in norm.
void compare_output(const op_case* c, const scene* s, int i, const machine* m, const void* got,
                    const machine* reference, const void* want, double* out_error);
// Releases the weights of a case on a machine, before their memory is freed.
void release_case_weights(const machine* m, const case_data* store);
// Runs the case in every mode on every machine. Compares with the reference, and bit for bit between modes and with the
// machine same_as[i], unless that is -1.
void run_case_on_machines(const op_case* c, const machine* reference, const machine* machines, const int* same_as,
                          int machine_count);
// The number of elements of a case; its data is not made. Sets the kinds of its ops in `covered` (may be NULL).
uint64_t count_case_elements(const op_case* c, bool* covered);
// Runs the cases that the settings allow. False: no case is small enough.
bool run_cases(const op_case* cases, size_t count);
void check_same_bits(const op_case* c, const scene* s, const char* name, const char* mode, void** got, void** want);

// ---- Checks that are more than a table of cases ---------------------------------------------------------------------
// products.c: computes products by every kernel that can, on the first machine, and compares with the CPU. Does nothing
// in a build without CUDA.
void check_products(void);
// publications.c: converts images to every format on every machine, and compares bytes.
void check_publications(void);
// depth.c: makes control pictures of depth buffers on every machine, and compares with the CPU; and measures how long
// that takes on the first machine. Neither exists in a build without CUDA.
void check_depths(void);
void time_depths(void);
// quantised.c: runs plans whose weights do not fit, and compares bits with the same plans whose weights do.
void check_streamed_weights(const machine* m);
#endif
