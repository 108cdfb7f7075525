// What the kernels of upload.cu and upload_fp8.cu are told: one piece of a weight, as it lies in its file, into the
// form that the networks' kernels read (src/cuda/launch.h names the forms). Shared by the kernels and
// src/cuda/upload.c.
#ifndef SUMI_KERNELS_UPLOAD_H
#define SUMI_KERNELS_UPLOAD_H
#include <stdint.h>

#define SUMI_UPLOAD_THREADS 256
#define SUMI_UPLOAD_TAPS 9 // of the convolutions that have a form of their own: 3x3

// Types that are converted on the device. The host makes floats of all others first.
#define SUMI_UPLOAD_F32 0
#define SUMI_UPLOAD_F16 1
#define SUMI_UPLOAD_BF16 2
#define SUMI_UPLOAD_E4M3 3
#define SUMI_UPLOAD_E5M2 4

typedef struct sumi_upload_args {
    uint64_t from;   // rows [row_begin, row_begin + row_count) of the stack of parts, dense, aligned to 16 bytes
    uint64_t to;     // the whole destination, aligned to 256 bytes
    uint64_t scales; // 8-bit forms: float [stack_rows]
    // floats [cols], 16-byte aligned, or 0: int8 rows are divided by them, a vector is multiplied (src/cuda/balance.h)
    uint64_t balance;
    int32_t type; // SUMI_UPLOAD_*
    int32_t row_begin, row_count, stack_rows;
    int32_t cols; // elements of a row in the file
    // elements of a row in the destination; convolutions: of a tap; vectors: all elements, padding included
    int32_t pitch;
    int32_t is_gated; // rows of [gate; up] go interleaved by 8
    float scale;      // of the part: fp8 files
} sumi_upload_args;
#endif
