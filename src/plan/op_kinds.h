// The properties of each kind of op: one line per kind in the table of op_kinds.c. sumi_plan_add_op fills ops from the
// table.
#ifndef SUMI_PLAN_OP_KINDS_H
#define SUMI_PLAN_OP_KINDS_H
#include "plan/plan.h"

#define SUMI_IN(k) (1u << (k)) // bit of in[k] in sumi_op_kind_info.in_place

typedef struct sumi_op_kind_info {
    const char* name;
    // rows: how much work the op is, in the unit of the kind (rows of the output, sequences, items and so on), which
    // becomes sumi_op.rows. If the verb was given a number of rows, it is in sumi_op.rows before the call and the
    // function returns it. range_rows: how much of this work one work range has.
    int64_t (*rows)(const sumi_plan* plan, const sumi_op* op);
    int64_t (*range_rows)(const sumi_plan* plan, const sumi_op* op);
    // in_place: the inputs that may also be the output. is_always_in_place: the output is always one of these inputs,
    // because the op changes only some of its output or reads its own output.
    uint32_t in_place;
    bool is_always_in_place;
    bool takes_pitch;     // the op's values may be views of some columns
    bool reads_any_pitch; // in[0] may be one
    // Bytes that are read and written: `output_count` times the bytes of the output, or the result of `bytes` if that
    // is not NULL.
    double output_count;
    double (*bytes)(const sumi_plan* plan, const sumi_op* op);
    double (*flops)(const sumi_plan* plan, const sumi_op* op); // NULL: negligible beside the bytes
} sumi_op_kind_info;

const sumi_op_kind_info* sumi_op_kind_get(sumi_op_kind kind);
#endif
