// How this backend executes the ops of a plan: which ops one kernel does together, which values are stored differently
// from what the plan says, and which form of a weight an op reads. sumi_cuda_arrange decides all of this once, when the
// plan is finished, and records it in the plan's marks, where residency, streaming and launchers find it.
//
//   NORM_GATE_ADD, NORM_MODULATE   one kernel adds, norms the sum, and writes both (is_first_of_pair)
//   LINEAR, GATED                  one kernel multiplies and gates; gate and up are never stored (is_unstored)
//
// A plan without marks runs too: op by op, in bfloat16.
#ifndef SUMI_CUDA_ARRANGE_H
#define SUMI_CUDA_ARRANGE_H
#include "cuda/device.h"
#include "cuda/form.h"
#include "plan/plan.h"

// Values of sumi_op.marks.
enum {
    // A LINEAR whose product is computed in 8 bits, in the format of sumi_cuda_requested_format. The device can do
    // that, the weight may lose precision, and the product is large enough to gain from it.
    SUMI_CUDA_OP_8BIT = 1,
    // A LINEAR that writes the input of a GATED. The rows of gate and up are interleaved by 8 (SUMI_CUDA_FORM_GATED).
    SUMI_CUDA_OP_GATED = 2,
    // A LINEAR or EMBED_ROWS that reads its weight in the bytes of its file, or a LINEAR that reads 4-bit codes that
    // were made of the weight.
    SUMI_CUDA_OP_STORED = 4,
    // An ATTENTION whose q k^T is computed in int8 by the portable kernels (SUMI_ATTENTION_8BIT).
    SUMI_CUDA_OP_INT8_ATTENTION = 8
};

// Values of sumi_value_info.marks.
enum {
    SUMI_CUDA_VALUE_GATED = 1, // the input of a GATED: its columns are interleaved by 8 (SUMI_CUDA_FORM_GATED)
    // The value is stored in 8 bits, because a NORM_MODULATE writes it and only LINEARs with 8-bit weights read it:
    // [rows][pitch] bytes, pitch from sumi_cuda_8bit_pitch; then, at the next multiple of 16 bytes, float scales
    // [rows].
    SUMI_CUDA_VALUE_8BIT = 2,
    // The norm that writes the value also balances it (balance.h), and the matrices that read it are balanced too.
    SUMI_CUDA_VALUE_BALANCED = 4,
    // q, k and v of an attention in e4m3 (SUMI_ATTENTION_8BIT): QK_NORM_ROPE writes the heads of q and k as e4m3, each
    // into the first half of its bytes, and v stays bfloat16 (kernels/attention.h).
    SUMI_CUDA_VALUE_QK_E4M3 = 8
};

// The type of both operands of a product (kernels/operands.cuh).
typedef enum sumi_cuda_operands { SUMI_CUDA_BF16, SUMI_CUDA_E4M3, SUMI_CUDA_INT8 } sumi_cuda_operands;
// The weight format that the plan requests for an op. It follows from the op's section. A weight must have the same
// form in all plans, or the device would hold it twice; this holds, because a weight is used in sections of one kind
// only.
sumi_weight_format sumi_cuda_requested_format(const sumi_plan* plan, const sumi_op* op);
// The form of the weight of an op that has the mark STORED.
sumi_cuda_form sumi_cuda_stored_form(const sumi_plan* plan, const sumi_op* op);
// The operands of an op, BF16 unless the requested format is one of 8 bits. For a value that is stored in 8 bits, call
// it with the op that writes the value or with any op that reads it.
sumi_cuda_operands sumi_cuda_8bit_operands(const sumi_plan* plan, const sumi_op* op);
// The first op that uses a value, which must not be a view. This op writes the value, unless the value is bound.
const sumi_op* sumi_cuda_writer(const sumi_plan* plan, sumi_value value);
// Bytes from row to row of an 8-bit matrix with this many columns. Rows of int8 are whole blocks of the rotation.
int32_t sumi_cuda_8bit_pitch(sumi_cuda_operands operands, int32_t cols);

// The arrange function (sumi_plan_arrange) of a device. Reads only its capability, and for SUMI_ATTENTION_8BIT whether it
// has the kernels for Hopper.
void sumi_cuda_arrange(const sumi_cuda_device* device, bool allows_hopper, sumi_plan* plan);

// Whether the op applies a change of an adapter. The last of these ops adds to a value; the op before it writes the
// input of the last one.
bool sumi_cuda_is_adapter_op(const sumi_plan* plan, size_t op_index);

// Whether a LINEAR and the GATED after it are done together: the kernel of the first op writes the gated value, and the
// second op launches nothing.
bool sumi_cuda_is_fused_gated(const sumi_plan* plan, int32_t op_index);
// The same for a NORM_GATE_ADD and the NORM_MODULATE of the rows that it wrote.
bool sumi_cuda_is_fused_norm(const sumi_plan* plan, int32_t op_index);
#endif
