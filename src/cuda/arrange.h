// How this backend executes the ops of a plan: which ops one kernel does together, which values are stored differently
// from the plan, and which form of a weight an op reads (choose_forms.h). sumi_cuda_arrange decides all of this once,
// when the plan is finished, and records it in the plan's marks, where launchers find it.
//
//   LINEAR, LINEAR                 of the same shape but for their rows, in int8: one kernel may compute both
//                                  (is_beside_next)
//   NORM_GATE_ADD, NORM_MODULATE   one kernel adds, norms the sum, and writes both (is_first_of_pair)
//   LINEAR, GATED                  one kernel multiplies and gates; gate and up are never stored (is_unstored)
//   CONV, NORM_MODULATE            one kernel convolves and writes silu(norm(..)) in the place of the convolution's result
//                                  (is_first_of_pair)
//
// A plan without marks runs too: op by op, in bfloat16.
#ifndef SUMI_CUDA_ARRANGE_H
#define SUMI_CUDA_ARRANGE_H
#include "cuda/device.h"
#include "device/choose_forms.h"

// Marks beside those of choose_forms.h.
enum {
    // Of an op: an ATTENTION whose q k^T is computed in int8 by the portable kernels (SUMI_ATTENTION_8BIT).
    SUMI_CUDA_OP_INT8_ATTENTION = 8,
    // Of a value: q, k and v of an attention in e4m3 (SUMI_ATTENTION_8BIT): QK_NORM_ROPE writes the heads of q and k as
    // e4m3, each into the first half of its bytes, and v stays bfloat16 (kernels/attention.h).
    SUMI_CUDA_VALUE_QK_E4M3 = 8,
    // Of a value: kept k and v that such an attention reads. COPY_ROWS writes the heads of k into it as e4m3 in the same
    // way, and v as bfloat16. All readers have q and k in e4m3.
    SUMI_CUDA_VALUE_KEPT_E4M3 = 16
};

// The name that launchers use for operands.
typedef sumi_device_operands sumi_cuda_operands;
#define SUMI_CUDA_BF16 SUMI_DEVICE_BF16
#define SUMI_CUDA_E4M3 SUMI_DEVICE_E4M3
#define SUMI_CUDA_INT8 SUMI_DEVICE_INT8

// The arrange function (sumi_plan_arrange) of a device. Reads only its capability, whether it has the kernels for Hopper,
// and the shared memory of a block.
void sumi_cuda_arrange(const sumi_cuda_device* device, bool allows_hopper, sumi_plan* plan);

// Whether a LINEAR and the GATED after it are done together: the kernel of the first op writes the gated value, and the
// second op launches nothing.
bool sumi_cuda_is_fused_gated(const sumi_plan* plan, int32_t op_index);
// The same for a NORM_GATE_ADD and the NORM_MODULATE of the rows that it wrote.
bool sumi_cuda_is_fused_norm(const sumi_plan* plan, int32_t op_index);
// The same for a CONV and the NORM_MODULATE of its result.
bool sumi_cuda_is_fused_conv(const sumi_plan* plan, int32_t op_index);
#endif
