// Which rectangles of which values an op reads and writes. All checks of reads and writes use this list.
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
    int32_t width;    // columns that the value must have; 0: any number that includes `cols`
    int32_t elements; // element types that the value may have: SUMI_ACCESS_*
    bool writes;
    bool in_place; // for a read: the op may write to the same rectangle of the same memory
} sumi_op_access;

typedef struct sumi_op_accesses {
    const sumi_plan* plan;
    sumi_heap* heap;
    sumi_error* error;
    sumi_op_access* list;
    size_t count, capacity;
    int32_t first_counter, counter_count; // the iterations that are examined, as counters of the section
    // A rectangle of a picture is listed as one range of rows per line of pixels. False: as one range of rows from its
    // first pixel to its last.
    bool by_line;
    sumi_result result;
} sumi_op_accesses;

// Lists everything that `op` reads and writes in iterations [first, first + count) of its section, reads before writes,
// as the comments of ops.h define it. The caller frees accesses->list with sumi_free.
sumi_result sumi_op_list_accesses(sumi_op_accesses* accesses, const sumi_op* op, int32_t first, int32_t count);
#endif
