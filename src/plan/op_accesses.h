// What each op reads and writes, said once: a list of rectangles of values.
#ifndef SUMI_PLAN_OP_ACCESSES_H
#define SUMI_PLAN_OP_ACCESSES_H
#include "plan/plan.h"

enum {
    SUMI_ACCESS_INT = 1 << SUMI_ELEMENT_INT,
    SUMI_ACCESS_BYTE = 1 << SUMI_ELEMENT_BYTE,
    SUMI_ACCESS_FLOAT = 1 << SUMI_ELEMENT_FLOAT,
    SUMI_ACCESS_NUMBER = SUMI_ACCESS_FLOAT | (1 << SUMI_ELEMENT_ACTIVATION)
};

// Rows [row, row + rows), columns [column, column + cols) of a value.
typedef struct sumi_op_access {
    sumi_value value;
    int64_t row, rows;
    int32_t column, cols;
    int32_t width;    // columns that the value must have; 0: any that hold those above
    int32_t elements; // that it may have: SUMI_ACCESS_*
    bool writes;
    bool in_place; // a read: its op may write the same rectangle of the same memory
} sumi_op_access;

typedef struct sumi_op_accesses {
    const sumi_plan* plan;
    sumi_heap* heap;
    sumi_error* error;
    sumi_op_access* list;
    size_t count, capacity;
    int32_t first_counter, counter_count; // of the iterations that are looked at
    // A rectangle of a picture is a range of rows for each of its lines, not one from its first pixel to its last.
    bool by_line;
    sumi_result result;
} sumi_op_accesses;

// Everything that `op` touches in iterations [first, first + count) of its section, reads before writes. As the
// comments of ops.h and of sumi_op say it. accesses->list is freed with sumi_free by who is done with it.
sumi_result sumi_op_list_accesses(sumi_op_accesses* accesses, const sumi_op* op, int32_t first, int32_t count);
#endif
