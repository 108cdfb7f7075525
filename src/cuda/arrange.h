// How this backend does a plan's ops: which of them one kernel does together, which values are not as the plan
// describes them, which form of a weight an op takes. All of it is decided once, in sumi_cuda_arrange, when the plan is
// finished; residency, streaming and launchers find it in the plan's marks.
//
//   NORM_GATE_ADD, NORM_MODULATE   one kernel adds, norms what it added and writes both (joins_next)
//   LINEAR, GATED                  one kernel multiplies and gates; gate and up are never stored (is_unstored)
//
// A plan that no backend has arranged runs too: op by op, in bfloat16.
#ifndef SUMI_CUDA_ARRANGE_H
#define SUMI_CUDA_ARRANGE_H
#include "cuda/device.h"
#include "plan/plan.h"

// sumi_op.marks
enum {
    // A LINEAR that uses its weight in e4m3: plan->wishes.weights, a device of 8.9 or newer, a weight of the denoising
    // section that may lose precision and is worth it.
    SUMI_CUDA_OP_FP8 = 1,
    // A LINEAR whose weight lies with gate and up interleaved by 8, as FORM_GATED says: it writes a GATED's input.
    SUMI_CUDA_OP_GATED = 2
};

// sumi_value_info.marks
enum {
    SUMI_CUDA_VALUE_GATED = 1, // its columns are interleaved by 8, as FORM_GATED says: the input of a GATED
    // It is kept as e4m3: written by NORM_MODULATE and read by LINEARs with fp8 weights only. [rows][cols] e4m3, then
    // at the next multiple of 16 bytes float scales [rows].
    SUMI_CUDA_VALUE_FP8 = 2
};

// A sumi_plan_arrange, of a device. Reads its capability only.
void sumi_cuda_arrange(const sumi_cuda_device* device, sumi_plan* plan);

// The ops that apply a change of an adapter: the last of them adds to a value, the one before it writes what that reads.
bool sumi_cuda_is_adapter_op(const sumi_plan* plan, size_t op_index);

// Both ops of a LINEAR and a GATED that are done together: the first one's kernel writes the gated value, the second op
// launches nothing.
bool sumi_cuda_is_fused_gated(const sumi_plan* plan, int32_t op_index);
// The same of a NORM_GATE_ADD and a NORM_MODULATE of the rows that it wrote.
bool sumi_cuda_is_fused_norm(const sumi_plan* plan, int32_t op_index);
#endif
