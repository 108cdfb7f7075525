// What the files of golden_run share: JSON as a tree, tensors as floats, comparison and reports, and running a plan op
// by op while every value can be read.
#ifndef GOLDEN_SUPPORT_H
#define GOLDEN_SUPPORT_H
#include "base/file.h"
#include "cpu/cpu.h"
#include "families.h"
#include "files/tensors.h"
#include "models/network_modules.h"
#include "models/pipeline.h"
#include "text/tokenizer.h"
#include <stdio.h>

// ---- json -----------------------------------------------------------------------------------------------------------
typedef enum node_type { NODE_NULL, NODE_BOOL, NODE_NUMBER, NODE_TEXT, NODE_LIST, NODE_OBJECT } node_type;
typedef struct node {
    node_type type;
    char *key, *text; // decoded, terminated; text_bytes counts embedded zeros
    size_t text_bytes;
    double number;    // of numbers and booleans
    uint64_t integer; // the digits of a number modulo 2^64, because seeds do not fit into a double
    struct node *first, *next;
    int count; // number of children
} node;
node* json_read(const char* path, char* message, size_t message_bytes); // NULL and a message on failure
node* json_parse(const void* text, size_t bytes, char* message, size_t message_bytes);
void json_free(node* tree);
const node* json_get(const node* object, const char* key);  // NULL if it is absent
const char* json_text(const node* object, const char* key); // NULL if it is absent or not a text
double json_number(const node* object, const char* key, double otherwise);

// ---- Tensors --------------------------------------------------------------------------------------------------------
typedef struct array {
    float* values;
    int64_t count;
    int32_t rank;
    int64_t shape[SUMI_TENSOR_MAX_RANK];
} array; // values NULL: no array
// A copy as floats. Bytes and small integers are exact.
array array_of(const sumi_tensor* tensor);
array array_make(const float* values, int32_t rank, const int64_t* shape); // a copy; values NULL: zeros
void array_free(array* a);
bool join_path(char* out, size_t bytes, const char* folder, const char* name);

// ---- One case, and the whole run ------------------------------------------------------------------------------------
typedef struct golden {
    sumi_heap heap;
    sumi_workers* workers;
    sumi_runner* runner;    // the backend that is tested
    sumi_runner* cpu;       // the same runner, or on a GPU the CPU backend, for values that have no bound for bfloat16
    bool is_gpu, as_engine; // as_engine: only the first way of run_plan
    sumi_weight_format weights;
    bool has_text_weights;           // text encoders and vision towers have this weight format too
    sumi_attention_format attention; // of the transformer
    int passed, failed, not_checked; // numbers of tensors
    int cases, not_run;              // numbers of cases that were run; of cases of a known family that were not run
    int other_families;              // cases of families that the library does not have
    int case_failed;                 // failures of the running case
    char network_key[4096];          // names the checkpoint that is open
    sumi_network* network;
} golden;

typedef struct kept_bits {
    void* data;
    size_t bytes;
} kept_bits;

typedef struct golden_case {
    golden* g;
    char folder[2048]; // the folder of the JSON file; paths in it are relative to it
    char name[256];
    const node* json;
    const char* kind;
    sumi_tensor_set set; // of NAME.safetensors; empty if there is none
    bool* seen;          // for each tensor of the set: it was compared or reported
    bool by_op;          // the second way of run_plan
    int plans;           // plans that were run so far, in either way
    kept_bits* kept;     // results of all plans of the first way on the CPU, for the second way
    size_t kept_count, kept_next;
} golden_case;

// Compares with expect.NAME by the tolerance in the JSON. The result of a GPU may be off by one and a half times the
// reference's own error in bfloat16, which is stored too. `got` may have more rows or channels than the stored tensor:
// see rows_of_about in golden_support.c.
void compare(golden_case* c, const char* name, const array* got);
// The same, where rows from rows_known on were not computed.
void compare_partly(golden_case* c, const char* name, const array* got, int64_t rows_known);
// The same with KIND.NAME, of another run of the reference ("expect_tb").
void compare_with(golden_case* c, const char* kind, const char* name, const array* got);
// `got` must differ from wrong.NAME, the result of a known mistake.
void compare_wrong(golden_case* c, const char* name, const array* got);
// The error that weights in 8 or 4 bits may cause; 0: the weights are in neither.
double error_of_format(const golden_case* c);
// Reports a value that has no tensor: prints one line.
void report(golden_case* c, const char* what, double error, double tolerance, bool good);
void not_checked(golden_case* c, const char* name, const char* why);
void case_fails(golden_case* c, const char* format, ...) SUMI_PRINTF(2, 3);
array input(const golden_case* c, const char* name); // input.NAME
bool has_expected(const golden_case* c, const char* name);
bool has_tensor(const golden_case* c, const char* kind, const char* name); // KIND.NAME
void finish_case(golden_case* c); // names the tensors that were not compared, and frees the case

// Opens the checkpoint of the case, or keeps it open. NULL after reporting.
sumi_network* case_network(golden_case* c, const node* json);
// Opens a checkpoint by its desc, or keeps it open. `key` names the checkpoint. NULL after reporting.
sumi_network* open_network(golden_case* c, const char* key, const sumi_files* files, const sumi_network_desc* desc);
void close_network(golden* g); // accepts no network
// Opens a tokenizer.json. NULL after reporting. The caller destroys the tokenizer and closes the file, in any case.
sumi_tokenizer* open_tokenizer(golden_case* c, const char* path, sumi_file* out_file);

// ---- Plans ----------------------------------------------------------------------------------------------------------
typedef struct plan_run plan_run;
typedef void plan_probe(plan_run* run, const sumi_op* op, int32_t counter, bool before);
typedef void plan_input(plan_run* run);
struct plan_run {
    golden_case* c;
    const sumi_plan* plan;
    const sumi_pipeline* pipeline;
    plan_input* write;
    plan_probe* probe;
    void* context;
};
// Begins a plan for the backend. The caller ends it, and releases it from the runner before.
void begin_plan(const golden_case* c, sumi_plan* plan);
void end_plan(const golden_case* c, sumi_plan* plan);
// Slices the plan, reserves memory, starts, writes the inputs, and runs. False after reporting. A case is run twice,
// its plans in two ways:
//   first      as the engine does: only values that the plan's writer has bound can be read, ops are fused, slices have the
//              engine's default length. Probed are ops whose result is bound, after their slice
//   c->by_op   every value is bound and each op is a slice, so that any value can be read. Probed is every op, before and
//              after it
// Results are compared with the golden data both times; on the CPU the second run must have the bits of the first.
bool run_plan(plan_run* run, sumi_plan* plan);
void write_floats(plan_run* run, sumi_value value, int64_t first_row, const float* values, int64_t count);
float* read_floats(plan_run* run, sumi_value value);  // the whole value; the caller frees it
array read_array(plan_run* run, sumi_value value);    // [rows, cols]
array read_integers(plan_run* run, sumi_value value); // the same of SUMI_ELEMENT_INT
// Writes what a denoiser computes for the list, in every evaluation of the job, after the inputs that the plan has so
// far; runs and ends the plan. *out is replaced by the velocities. False after reporting.
bool run_denoiser(plan_run* run, const sumi_denoiser_module* module, const void* model, sumi_plan* plan,
                  sumi_denoising* job, const sumi_evaluation_list* list, sumi_value x, array* out);
array read_planes(plan_run* run, sumi_value picture, int64_t height, int64_t width); // [h * w, c] -> [c, h, w]

// ---- Families and common data ---------------------------------------------------------------------------------------
// run_NAME_case of every family of families.h. False if the kind is not known.
#define GOLDEN_RUNNER(name, folder) bool run_##name##_case(golden_case* c);
GOLDEN_FAMILIES(GOLDEN_RUNNER)
#undef GOLDEN_RUNNER
void run_common(golden* g, const char* folder, const char* part); // "tokenizers", "rng", ...
#endif
