// What each kind of op is: one line per kind in the table of op_kinds.c. The verbs of plan.c fill every op from it.
#ifndef SUMI_PLAN_OP_KINDS_H
#define SUMI_PLAN_OP_KINDS_H
#include "plan/plan.h"

#define SUMI_IN(k) (1u << (k)) // in[k], as a bit of sumi_op_kind_info.in_place

typedef struct sumi_op_kind_info {
    const char* name;
    // How much work the op is, in the kind's unit (rows of the output, sequences, items ...), and how much of it a part
    // has. sumi_op.rows holds the first, so where the verb is told how many rows to work on, the function returns that.
    int64_t (*rows)(const sumi_plan* plan, const sumi_op* op);
    int64_t (*part_rows)(const sumi_plan* plan, const sumi_op* op);
    // The inputs that the output may be. Where the op changes only some of its output, or reads what it writes, the
    // output is one of them always.
    uint32_t in_place;
    bool is_always_in_place;
    bool takes_pitch; // its values may be views of some columns
    // Bytes read and written: so many times the output's, or what the function says.
    double output_count;
    double (*bytes)(const sumi_plan* plan, const sumi_op* op);
    double (*flops)(const sumi_plan* plan, const sumi_op* op); // NULL: few beside the bytes
} sumi_op_kind_info;

const sumi_op_kind_info* sumi_op_kind_get(sumi_op_kind kind);
#endif
