#ifndef SUMI_CUDA_FORM_H
#define SUMI_CUDA_FORM_H
#include "cuda/driver.h"

// How a weight lies on the device. The runner makes the forms a plan needs before it runs (upload.h).
typedef enum sumi_cuda_form {
    SUMI_CUDA_FORM_MATRIX, // bf16 [rows][pitch]; pitch = cols rounded up to 8, the rest zero. 512-byte aligned
    // the same, rows of [gate; up] interleaved by 8: gate 0..7, up 0..7, gate 8..15 ... (rows / 2 a multiple of 8;
    // otherwise MATRIX is used)
    SUMI_CUDA_FORM_GATED,
    // e4m3 [rows][pitch], pitch = cols rounded up to 16; a float scale per row behind it at `scales`
    SUMI_CUDA_FORM_MATRIX_FP8,
    SUMI_CUDA_FORM_GATED_FP8,
    // rotated int8 [rows][pitch] (kernels/rotate.cuh), pitch = cols rounded up to 256; scales likewise. With a norm that
    // balances it: its columns divided before that by the floats [cols] at `balance`, behind the scales
    SUMI_CUDA_FORM_MATRIX_INT8,
    SUMI_CUDA_FORM_GATED_INT8,
    // the file's bytes, part behind part (stored.h); rows in the file's order, gated or not
    SUMI_CUDA_FORM_STORED,
    SUMI_CUDA_FORM_INT4,   // the same of 4-bit codes in IQ4_NL's blocks, made when the weight is loaded
    SUMI_CUDA_FORM_VECTOR, // float [cols]: norms, biases, pad tokens; zero-padded to a multiple of 8
    // a norm's weight multiplied by its balance (balance.h), the norm writes balanced rows; `balance` lies behind it
    SUMI_CUDA_FORM_VECTOR_BALANCED,
    SUMI_CUDA_FORM_CONV, // bf16 [co][kh * kw][ci rounded up to 8], rest zero; 1x1 convolutions are MATRIX
    // bf16 [parity 2a + b][co][2 * 2][ci rounded up to 8]: 3x3 folded for nearest 2x upsampling, sums rounded once (see
    // kernels/conv_sm90.cu)
    SUMI_CUDA_FORM_CONV_UP,
    SUMI_CUDA_FORM_COUNT
} sumi_cuda_form;
static inline bool sumi_cuda_is_vector(sumi_cuda_form form)
{
    return form == SUMI_CUDA_FORM_VECTOR || form == SUMI_CUDA_FORM_VECTOR_BALANCED;
}

typedef struct sumi_cuda_weight {
    CUdeviceptr data, scales; // scales: 8-bit forms
    CUdeviceptr balance;      // of balanced forms, 16-byte aligned; else 0
    int32_t pitch;            // elements per row (CONV: per tap)
    int32_t piece_rows;       // of a table that lies in pieces: data is the list of their addresses. 0: it is whole
} sumi_cuda_weight;
#endif
