#include "device/form.h"
#include "base/assert.h"
#include "base/numbers.h"
#include "kernels/rows.h"
#include "kernels/upload.h"

// Forms that differ only in the order of their rows or in their balance.
#define MATRIX_BF16                                                                                                    \
    .operands = SUMI_DEVICE_BF16, .element_bytes = 2, .pitch_step = 8, .taps = 1, .runs = 1, .keeps_bf16 = true,       \
    .upload_kernel = "sumi_upload_rows"
#define MATRIX_FP8                                                                                                     \
    .operands = SUMI_DEVICE_E4M3, .element_bytes = 1, .pitch_step = 16, .taps = 1, .runs = 1, .has_scales = true,      \
    .upload_kernel = "sumi_upload_rows_fp8"
#define MATRIX_INT8                                                                                                    \
    .operands = SUMI_DEVICE_INT8, .element_bytes = 1, .pitch_step = SUMI_ROTATED_COLS(1), .taps = 1, .runs = 1,        \
    .has_scales = true, .balancing = SUMI_DEVICE_BALANCED_BY_NORM, .upload_kernel = "sumi_upload_rows_int8"
#define VECTOR .element_bytes = 4, .pitch_step = 8, .taps = 1, .is_vector = true, .upload_kernel = "sumi_upload_vector"
#define CONV .element_bytes = 2, .pitch_step = 8, .taps = SUMI_UPLOAD_TAPS

// clang-format off
static const sumi_device_form_traits s_forms[SUMI_DEVICE_FORM_COUNT] = {
    [SUMI_DEVICE_FORM_MATRIX]          = {.name = "matrix", MATRIX_BF16},
    [SUMI_DEVICE_FORM_GATED]           = {.name = "gated", MATRIX_BF16, .is_gated = true},
    [SUMI_DEVICE_FORM_MATRIX_FP8]      = {.name = "matrix fp8", MATRIX_FP8},
    [SUMI_DEVICE_FORM_GATED_FP8]       = {.name = "gated fp8", MATRIX_FP8, .is_gated = true},
    [SUMI_DEVICE_FORM_MATRIX_INT8]     = {.name = "matrix int8", MATRIX_INT8},
    [SUMI_DEVICE_FORM_GATED_INT8]      = {.name = "gated int8", MATRIX_INT8, .is_gated = true},
    [SUMI_DEVICE_FORM_STORED]          = {.name = "stored", .pitch_step = 1, .taps = 1, .keeps_bytes = true},
    [SUMI_DEVICE_FORM_INT4]            = {.name = "int4", .pitch_step = 1, .taps = 1,
                                          .upload_kernel = "sumi_upload_rows_int4"},
    [SUMI_DEVICE_FORM_VECTOR]          = {.name = "vector", VECTOR},
    [SUMI_DEVICE_FORM_VECTOR_BALANCED] = {.name = "balanced vector", VECTOR,
                                          .balancing = SUMI_DEVICE_BALANCED_BY_ITSELF},
    [SUMI_DEVICE_FORM_CONV]            = {.name = "conv", CONV, .runs = SUMI_UPLOAD_TAPS,
                                          .upload_kernel = "sumi_upload_conv"},
    [SUMI_DEVICE_FORM_CONV_UP]         = {.name = "conv after upsampling", CONV, .runs = 4 * 4,
                                          .upload_kernel = "sumi_upload_conv_up"},
};
// clang-format on

const sumi_device_form_traits* sumi_device_traits(sumi_device_form form)
{
    SUMI_ASSERT((int)form >= 0 && form < SUMI_DEVICE_FORM_COUNT);
    return &s_forms[form];
}

int32_t sumi_device_quantised_pitch(sumi_device_operands operands, int32_t cols)
{
    SUMI_ASSERT(operands != SUMI_DEVICE_BF16 && cols >= 1);
    const sumi_device_form form =
        operands == SUMI_DEVICE_INT8 ? SUMI_DEVICE_FORM_MATRIX_INT8 : SUMI_DEVICE_FORM_MATRIX_FP8;
    return sumi_round_up(cols, sumi_device_traits(form)->pitch_step);
}
