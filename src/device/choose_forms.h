// Which form of a weight an op reads. sumi_device_choose_forms decides it once, when the plan is finished, and records
// it in the marks of ops and values, where residency, streaming and launchers find it. A plan without marks runs too:
// in bfloat16.
//
// The rules depend on the weight, not on the rows of the product, because a weight must have the same form in every
// plan, or the device would hold it twice.
#ifndef SUMI_DEVICE_CHOOSE_FORMS_H
#define SUMI_DEVICE_CHOOSE_FORMS_H
#include "device/form.h"
#include "plan/plan.h"

// Values of sumi_op.marks. A backend may use the bits from 8 on for its own marks.
enum {
    // A LINEAR whose product is computed in 8 bits, in the format that the plan requests for its section. The device
    // can do that, the weight may lose precision, and the product is large enough to gain from it.
    SUMI_DEVICE_OP_8BIT = 1,
    // A LINEAR that writes the input of a GATED. The rows of gate and up are interleaved by 8 (SUMI_DEVICE_FORM_GATED).
    SUMI_DEVICE_OP_GATED = 2,
    // A LINEAR or EMBED_ROWS that reads its weight in the bytes of its file, or a LINEAR that reads 4-bit codes made
    // from the weight.
    SUMI_DEVICE_OP_STORED = 4,
    // An op outside of the denoising sections in the format that the plan requests for these: it reads a weight that
    // they read too, or it is a norm in the same section.
    SUMI_DEVICE_OP_OF_STEPS = 8
};

// Values of sumi_value_info.marks. The bits from 8 on are free too.
enum {
    SUMI_DEVICE_VALUE_GATED = 1, // the input of a GATED: its columns are interleaved by 8 (SUMI_DEVICE_FORM_GATED)
    // The value is stored in 8 bits, because a NORM_MODULATE writes it and only LINEARs with 8-bit weights read it:
    // [rows][pitch] bytes, pitch from sumi_device_quantised_pitch; then, at the next multiple of 16 bytes, float scales
    // [rows].
    SUMI_DEVICE_VALUE_QUANTISED = 2,
    // The norm that writes the value also balances it (weight_forms.h), and the matrices that read it are balanced too.
    SUMI_DEVICE_VALUE_BALANCED = 4
};

// Sets these marks. has_e4m3: the device multiplies e4m3.
void sumi_device_choose_forms(sumi_plan* plan, bool has_e4m3);
// Returns the weight number `which` (0, 1, 2; the bias is one of them) of an op, and its form. False if the op has
// fewer.
bool sumi_device_op_weight(const sumi_plan* plan, int32_t op_index, int32_t which, const sumi_weight** out_weight,
                           sumi_device_form* out_form);

// Whether products can read each stacked tensor of the weight as it is: a known type, no change, no row scales, no
// rotation. The kernels have one scale for each tensor, which they apply while they unpack; row scales would have to
// lie after the tensors, be streamed with them, and be read by three kernels. Such files are about the size of the
// formats FP8 and INT8, which have products in 8 bits.
bool sumi_device_is_storable(const sumi_weight* weight);
// The form of the weight of an op that has the mark STORED.
sumi_device_form sumi_device_stored_form(const sumi_plan* plan, const sumi_op* op);
// The operands of an op, BF16 unless the requested format is one of 8 bits. For a value that is stored in 8 bits, call
// it with the op that writes the value or with any op that reads it.
sumi_device_operands sumi_device_quantised_operands(const sumi_plan* plan, const sumi_op* op);
// The first op that uses a value, which must not be a view. This op writes the value, unless the value is bound.
const sumi_op* sumi_device_writer(const sumi_plan* plan, sumi_value value);
// The value that a view is a part of; otherwise the value itself.
int32_t sumi_device_base_id(const sumi_plan* plan, sumi_value value);
// Whether a LINEAR reads and writes whole values, and its gate and up can be interleaved by 8 columns.
bool sumi_device_is_plain_product(const sumi_plan* plan, const sumi_op* op);
// Whether the op applies a change of an adapter. The last of these ops adds to a value; the op before it writes the
// input of the last one.
bool sumi_device_is_adapter_op(const sumi_plan* plan, size_t op_index);
#endif
