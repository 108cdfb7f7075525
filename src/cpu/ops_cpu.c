#include "cpu/ops_cpu.h"
#include "base/assert.h"
#include <string.h>

void* sumi_cpu_value(const sumi_cpu_run* run, sumi_value value)
{
    return value.id == 0 ? NULL : run->arena + sumi_plan_info(run->plan, value)->offset;
}
int32_t sumi_cpu_cols(const sumi_cpu_run* run, sumi_value value) { return sumi_plan_info(run->plan, value)->cols; }
int32_t sumi_cpu_pitch(const sumi_cpu_run* run, sumi_value value) { return sumi_plan_info(run->plan, value)->pitch; }
float* sumi_cpu_worker(const sumi_cpu_run* run, int32_t worker_index)
{
    SUMI_ASSERT(worker_index >= 0 && worker_index < sumi_workers_count(run->workers) && run->worker_bytes > 0);
    return (float*)(void*)(run->worker_memory + (uint64_t)worker_index * run->worker_bytes);
}

const float* sumi_cpu_step(const sumi_cpu_run* run, sumi_step_row step)
{
    if (step.table.id == 0) return NULL;
    int64_t row = step.per_step ? run->counter : 0;
    SUMI_ASSERT(row >= 0 && row < sumi_plan_info(run->plan, step.table)->rows);
    SUMI_ASSERT(step.column >= 0 && step.column < sumi_cpu_cols(run, step.table));
    return (const float*)sumi_cpu_value(run, step.table) + row * sumi_cpu_cols(run, step.table) + step.column;
}

void sumi_cpu_vector(const sumi_weight* weight, int64_t count, float* into)
{
    SUMI_ASSERT(sumi_weight_is_dense(weight) && count == (int64_t)weight->rows * weight->cols);
    (void)count;
    sumi_weight_to_float(weight, 0, weight->rows, into, weight->cols);
}

const void* sumi_cpu_weight_row(const sumi_weight* weight, int32_t row, sumi_dtype* dtype)
{
    SUMI_ASSERT(row >= 0 && row < weight->rows && weight->tensor_count >= 1 && sumi_weight_is_dense(weight));
    const sumi_stacked_tensor* tensor = weight->tensors;
    for (; tensor + 1 < weight->tensors + weight->tensor_count && row >= tensor->rows; tensor++) row -= tensor->rows;
    *dtype = tensor->dtype;
    if (weight->change != NULL || tensor->scale != 1.0f || !sumi_stacked_tensor_is_plain(tensor)
        || (*dtype != SUMI_DTYPE_F32 && *dtype != SUMI_DTYPE_F16 && *dtype != SUMI_DTYPE_BF16))
        return NULL;
    return (const unsigned char*)tensor->data + sumi_dtype_bytes(*dtype, (uint64_t)weight->cols) * (uint64_t)row;
}
