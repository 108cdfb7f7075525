#ifndef SUMI_DEVICE_FORM_H
#define SUMI_DEVICE_FORM_H
#include <stdbool.h>
#include <stdint.h>

// The type of both operands of a product (kernels/operands.cuh).
typedef enum sumi_device_operands { SUMI_DEVICE_BF16, SUMI_DEVICE_E4M3, SUMI_DEVICE_INT8 } sumi_device_operands;
// Bytes from row to row of an 8-bit matrix with this many columns. Rows of int8 are whole blocks of the rotation.
int32_t sumi_device_8bit_pitch(sumi_device_operands operands, int32_t cols);

// The form of a weight: how the weight is stored on the device. The runner makes the forms that a plan needs before the
// plan runs (upload.h).
typedef enum sumi_device_form {
    SUMI_DEVICE_FORM_MATRIX, // bf16 [rows][pitch], 512-byte aligned; pitch = cols rounded up to 8, padded with zeros
    // As MATRIX, with the rows of [gate; up] interleaved by 8: gate 0..7, up 0..7, gate 8..15 and so on. rows / 2 is a
    // multiple of 8; otherwise MATRIX is used.
    SUMI_DEVICE_FORM_GATED,
    // e4m3 [rows][pitch], pitch = cols rounded up to 16; then, at `scales`, a float scale per row.
    SUMI_DEVICE_FORM_MATRIX_FP8,
    SUMI_DEVICE_FORM_GATED_FP8,
    // Rotated int8 [rows][pitch] (kernels/rotate.cuh), pitch = cols rounded up to 256; then, at `scales`, a float scale
    // per row. If a norm balances the matrix, its columns were divided by the floats [cols] at `balance`, after the
    // scales, before the rotation.
    SUMI_DEVICE_FORM_MATRIX_INT8,
    SUMI_DEVICE_FORM_GATED_INT8,
    // The bytes of the file, the stacked tensors one after the other (stored.h). Rows are in the order of the file,
    // gated or not.
    SUMI_DEVICE_FORM_STORED,
    SUMI_DEVICE_FORM_INT4,   // 4-bit codes in blocks of IQ4_NL, laid out as STORED; made when the weight is loaded
    SUMI_DEVICE_FORM_VECTOR, // float [cols]: norms, biases, pad tokens; padded with zeros to a multiple of 8
    // The weight of a norm multiplied by its balance (balance.h), so that the norm writes balanced rows. The balance
    // follows, at `balance`.
    SUMI_DEVICE_FORM_VECTOR_BALANCED,
    SUMI_DEVICE_FORM_CONV, // bf16 [co][kh * kw][ci rounded up to 8], padded with zeros; 1x1 convolutions are MATRIX
    // bf16 [parity 2a + b][co][2 * 2][ci rounded up to 8]: a 3x3 convolution after nearest 2x upsampling, folded into a
    // 2x2 convolution for each parity of the output. Sums of taps are rounded once (kernels/conv_sm90.cu).
    SUMI_DEVICE_FORM_CONV_UP,
    SUMI_DEVICE_FORM_COUNT
} sumi_device_form;
static inline bool sumi_device_is_vector(sumi_device_form form)
{
    return form == SUMI_DEVICE_FORM_VECTOR || form == SUMI_DEVICE_FORM_VECTOR_BALANCED;
}

typedef struct sumi_device_weight {
    uint64_t data, scales; // addresses; scales: of forms in 8 bits
    uint64_t balance;      // of balanced forms, 16-byte aligned; otherwise 0
    int32_t pitch;         // elements from row to row (CONV: from tap to tap)
    // For a table that is stored in pieces: rows per piece; `data` is then the list of the pieces' addresses. 0: one
    // piece.
    int32_t piece_rows;
} sumi_device_weight;
#endif
