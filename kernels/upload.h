// Launch parameters of the upload kernels, which convert one piece of a weight (some of its rows) from its file's type
// and layout to the form that the other kernels read. src/device/form.h describes the forms. Shared by the kernels and
// src/device/upload.c.
#ifndef SUMI_KERNELS_UPLOAD_H
#define SUMI_KERNELS_UPLOAD_H
#include <stdint.h>

#define SUMI_UPLOAD_THREADS 256
#define SUMI_UPLOAD_TAPS 9 // taps of the convolutions that sumi_upload_conv and sumi_upload_conv_up convert: 3x3

// Types of a piece that the device converts. All other types the CPU converts to float first.
#define SUMI_UPLOAD_F32 0
#define SUMI_UPLOAD_F16 1
#define SUMI_UPLOAD_BF16 2
#define SUMI_UPLOAD_E4M3 3
#define SUMI_UPLOAD_E5M2 4

typedef struct sumi_upload_args {
    uint64_t from;   // the piece: rows row_begin .. row_begin + row_count - 1 of the stack, dense, 16-byte aligned
    uint64_t to;     // the whole destination, 256-byte aligned
    uint64_t scales; // 8-bit forms: float [stack_rows]
    // float [cols], 16-byte aligned, or 0. Rows that become int8 are divided by it, a vector is multiplied by it
    // (src/device/weight_forms.h).
    uint64_t balance;
    int32_t type; // SUMI_UPLOAD_*
    int32_t row_begin, row_count, stack_rows;
    int32_t cols; // elements of a row in the file
    // Elements of a row in the destination. Convolutions: elements of a tap. Vectors: all elements, padding included.
    int32_t pitch;
    int32_t is_gated; // the rows of the stack [gate; up] are interleaved by 8 in the destination
    float scale;      // of the stacked tensor, in fp8 files; otherwise 1
} sumi_upload_args;
#endif
