// The upload kernels of the toy device.
#include "base/dtype.h"
#include "toy_device.h"
#include <string.h>

static const sumi_dtype s_types[] = {SUMI_DTYPE_F32, SUMI_DTYPE_F16, SUMI_DTYPE_BF16, SUMI_DTYPE_F8_E4M3,
                                     SUMI_DTYPE_F8_E5M2}; // by SUMI_UPLOAD_*

uint64_t toy_upload_bytes(const sumi_upload_args* args)
{
    return sumi_dtype_bytes(s_types[args->type], (uint64_t)args->cols) * (uint64_t)args->row_count;
}

// The row of the destination that a row of the stack becomes (kernels/upload.cuh).
static uint64_t row_of(const sumi_upload_args* args, int32_t row)
{
    const int32_t half = args->stack_rows / 2, in_half = row % half;
    return (uint64_t)(args->is_gated ? in_half / 8 * 16 + row / half * 8 + in_half % 8 : row);
}

static void upload_bf16(const sumi_upload_args* args, int32_t row, const unsigned char* from)
{
    uint16_t* to = (uint16_t*)(uintptr_t)args->to + row_of(args, row) * (uint64_t)args->pitch;
    for (int32_t i = 0; i < args->cols; i++) {
        float value;
        sumi_dtype_to_float(s_types[args->type], from + sumi_dtype_bytes(s_types[args->type], (uint64_t)i), &value, 1);
        value *= args->scale;
        sumi_floats_to_bf16(&value, to + i, 1);
    }
}

void toy_upload(const char* kernel, const sumi_upload_args* args)
{
    const uint64_t row_bytes = sumi_dtype_bytes(s_types[args->type], (uint64_t)args->cols);
    for (int32_t r = 0; r < args->row_count; r++) {
        const unsigned char* from = (const unsigned char*)(uintptr_t)args->from + row_bytes * (uint64_t)r;
        uint64_t hash = 14695981039346656037ull + (uint64_t)args->type;
        for (uint64_t i = 0; i < row_bytes; i++) hash = (hash ^ from[i]) * 1099511628211ull;
        if (strcmp(kernel, "sumi_upload_rows") == 0) upload_bf16(args, args->row_begin + r, from);
        else memcpy((uint64_t*)(uintptr_t)args->to + args->row_begin + r, &hash, sizeof hash);
    }
}
