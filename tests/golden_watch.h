// Watches over the ops of a golden case's plan: the outputs of labelled ops, as the reference's tensors have them, are
// taken as they are made and compared under a tensor's name when the plan is done.
#ifndef GOLDEN_WATCH_H
#define GOLDEN_WATCH_H
#include "golden_support.h"

#define MAX_WATCHES 96

typedef enum watch_kind {
    WATCH_ROWS,    // the op's output as it is
    WATCH_NEGATED, // the velocity is minus the network's output
    WATCH_PLANES,  // a picture: channels first
    WATCH_BRANCH,  // output minus the residual it was added to
    WATCH_PRODUCT, // of a product its x W^T + bias, made here: what it was before its gate and its residual
    WATCH_COS,
    WATCH_SIN, // of a rotary table
    WATCH_Q,
    WATCH_K, // heads after their norm: the rotation is undone
    WATCH_V,
    WATCH_PLAIN_NORM // a group norm before the SiLU that is fused to it
} watch_kind;

// Takes the output of the last op whose label is `label` (or begins with it, when it ends in '*').
typedef struct watch {
    char expected[128], label[96];
    watch_kind kind;
    array got;
    float* before;
    int64_t first, rows;     // of the op's output, that are compared; rows 0: all from `first` on
    int64_t first_col, cols; // likewise
    int64_t turned;          // the rows from here on come first
    array strips;            // of WATCH_PLANES: rows of the picture so far, for its strips may be ops of their own
    sumi_value strips_base;  // the value that the strips are views of, and where the first row lies in it
    uint64_t strips_element;
} watch;
typedef struct watcher {
    watch list[MAX_WATCHES];
    int count;
    int32_t q_heads, kv_heads, head_dim;
    bool halves;
    int32_t groups;
    int32_t counter;
} watcher;

watch* add_watch(watcher* w, const char* expected, watch_kind kind, const char* format, ...) SUMI_PRINTF(4, 5);
// For a plan's probe: before and after every op.
void watch_op(plan_run* run, watcher* w, const sumi_op* op, int32_t counter, bool before);
void compare_watches(golden_case* c, watcher* w); // and frees what was taken
// Tensor i's expect.NAME without "expect."; NULL when it is an input.
const char* expected_name(const golden_case* c, size_t i);
#endif
