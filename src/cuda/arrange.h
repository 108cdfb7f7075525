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
#include "cuda/form.h"
#include "plan/plan.h"

// sumi_op.marks
enum {
    // A LINEAR that uses its weight in 8 bits, those of sumi_cuda_wish: a device that can, a weight that may lose
    // precision and is worth it.
    SUMI_CUDA_OP_8BIT = 1,
    // A LINEAR whose weight lies with gate and up interleaved by 8, as FORM_GATED says: it writes a GATED's input.
    SUMI_CUDA_OP_GATED = 2,
    // A LINEAR or EMBED_ROWS that reads its weight as the file has it, or a LINEAR that reads 4-bit codes made of it.
    SUMI_CUDA_OP_STORED = 4
};

// sumi_value_info.marks
enum {
    SUMI_CUDA_VALUE_GATED = 1, // its columns are interleaved by 8, as FORM_GATED says: the input of a GATED
    // It is kept in 8 bits: written by NORM_MODULATE and read by LINEARs with such weights only. [rows][pitch], then at
    // the next multiple of 16 bytes float scales [rows]. The pitch: sumi_cuda_8bit_pitch.
    SUMI_CUDA_VALUE_8BIT = 2,
    // Also balanced by the norm that writes it (balance.h): the matrices of its readers are.
    SUMI_CUDA_VALUE_BALANCED = 4
};

// What the operands of a product are: kernels/operands.cuh.
typedef enum sumi_cuda_operands { SUMI_CUDA_BF16, SUMI_CUDA_E4M3, SUMI_CUDA_INT8 } sumi_cuda_operands;
// The format that is wished for an op's weights. It follows from the section: a model's weights must have the same form
// in every plan, or they would lie on the device twice, and a weight is used in sections of one kind only.
sumi_weight_format sumi_cuda_wish(const sumi_plan* plan, const sumi_op* op);
// The form of the weight of an op that is marked as STORED.
sumi_cuda_form sumi_cuda_stored_form(const sumi_plan* plan, const sumi_op* op);
// BF16 where the wish is no format of 8 bits. Of a value that is kept in 8 bits: those of the op that writes it, and of
// every op that reads it.
sumi_cuda_operands sumi_cuda_8bit_operands(const sumi_plan* plan, const sumi_op* op);
// The op that first uses a value, which is no view: the one that writes it, unless it is bound.
const sumi_op* sumi_cuda_writer(const sumi_plan* plan, sumi_value value);
// Bytes from row to row of an 8-bit matrix that has as many columns: int8 in whole blocks of the rotation.
int32_t sumi_cuda_8bit_pitch(sumi_cuda_operands operands, int32_t cols);

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
