#ifndef SUMI_DEVICE_FORM_H
#define SUMI_DEVICE_FORM_H
#include <stdbool.h>
#include <stdint.h>

// The type of both operands of a product (kernels/operands.cuh).
typedef enum sumi_device_operands { SUMI_DEVICE_BF16, SUMI_DEVICE_E4M3, SUMI_DEVICE_INT8 } sumi_device_operands;

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
    // The bytes of the file, some of them packed (stored.h), the stacked tensors one after the other. Rows are in the order of the file,
    // gated or not.
    SUMI_DEVICE_FORM_STORED,
    SUMI_DEVICE_FORM_INT4,   // 4-bit codes in blocks of IQ4_NL, laid out as STORED; made when the weight is loaded
    SUMI_DEVICE_FORM_VECTOR, // float [cols]: norms, biases, pad tokens; padded with zeros to a multiple of 8
    // The weight of a norm multiplied by its balance (weight_forms.h), so that the norm writes balanced rows. The balance
    // follows, at `balance`.
    SUMI_DEVICE_FORM_VECTOR_BALANCED,
    SUMI_DEVICE_FORM_CONV, // bf16 [co][kh * kw][ci rounded up to 8], padded with zeros; 1x1 convolutions are MATRIX
    // bf16 [parity 2a + b][co][2 * 2][ci rounded up to 8]: a 3x3 convolution after nearest 2x upsampling, folded into a
    // 2x2 convolution for each parity of the output. Sums of taps are rounded once (kernels/conv_sm90.cu).
    SUMI_DEVICE_FORM_CONV_UP,
    SUMI_DEVICE_FORM_COUNT
} sumi_device_form;

// Which norm a form is balanced by (weight_forms.h).
typedef enum sumi_device_balancing {
    SUMI_DEVICE_UNBALANCED,
    SUMI_DEVICE_BALANCED_BY_NORM,  // by the norm that the weight names, if it names one
    SUMI_DEVICE_BALANCED_BY_ITSELF // the weight is the norm's own
} sumi_device_balancing;

// The properties of a form. All code that depends on the form reads them here.
typedef struct sumi_device_form_traits {
    const char* name;
    // Converts rows to the form (kernels/upload.h). NULL: the bytes of the file are copied.
    const char* upload_kernel;
    sumi_device_operands operands; // of products that read the form
    sumi_device_balancing balancing;
    int32_t element_bytes; // 0: a stored form (stored.h)
    int32_t pitch_step;    // the pitch is the number of columns rounded up to a multiple of this
    int32_t taps;          // the columns of the weight belong to this many taps, each with its own pitch
    int32_t runs;          // runs of `pitch` elements for each row of the weight
    bool is_vector;        // one run for the whole weight
    bool is_gated;         // rows of gate and up are interleaved by 8
    bool has_scales;       // a float for each row follows
    bool keeps_bytes;      // those of the file, some of them packed (stored.h)
    bool keeps_bf16;       // the bytes of the file where it has plain bfloat16
} sumi_device_form_traits;
const sumi_device_form_traits* sumi_device_traits(sumi_device_form form);
// Bytes from row to row of an 8-bit matrix with this many columns. Rows of int8 are whole blocks of the rotation.
int32_t sumi_device_quantised_pitch(sumi_device_operands operands, int32_t cols);

typedef struct sumi_device_weight {
    uint64_t data, scales; // addresses; scales: of forms in 8 bits
    uint64_t balance;      // of balanced forms, 16-byte aligned; otherwise 0
    int32_t pitch;         // elements from row to row (CONV: from tap to tap)
    // For a table that is stored in pieces: rows per piece; `data` is then the list of the pieces' addresses. 0: one
    // piece.
    int32_t piece_rows;
} sumi_device_weight;
#endif
