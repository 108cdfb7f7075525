#ifndef SUMI_CUDA_OP_TABLE_H
#define SUMI_CUDA_OP_TABLE_H
#include "cuda/launch.h"

typedef struct sumi_cuda_op_entry {
    sumi_cuda_op* run;
    sumi_cuda_op_scratch* scratch;
} sumi_cuda_op_entry;
extern const sumi_cuda_op_entry sumi_cuda_ops[SUMI_OP_KIND_COUNT];
#endif
