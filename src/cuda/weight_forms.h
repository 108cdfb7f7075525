// Which form of a weight an op reads, and how much memory forms take.
#ifndef SUMI_CUDA_WEIGHT_FORMS_H
#define SUMI_CUDA_WEIGHT_FORMS_H
#include "cuda/arrange.h"
#include "cuda/form.h"

// Returns the weight number `which` (0, 1, 2; the bias is one of them) of an op, and its form. False if the op has
// fewer.
bool sumi_cuda_op_weight(const sumi_plan* plan, int32_t op_index, int32_t which, const sumi_weight** out_weight,
                         sumi_cuda_form* out_form);
sumi_cuda_operands sumi_cuda_form_operands(sumi_cuda_form form); // for matrices
bool sumi_cuda_is_gated_form(sumi_cuda_form form);
uint64_t sumi_cuda_form_bytes(const sumi_weight* weight, sumi_cuda_form form);       // on the device, rounded up to 512
uint64_t sumi_cuda_pinned_row_bytes(const sumi_weight* weight, sumi_cuda_form form); // see pinned.h
// The addresses of a form that begins at `address`.
sumi_cuda_weight sumi_cuda_weight_at(uint64_t address, const sumi_weight* weight, sumi_cuda_form form);
// Whether the CPU can make the bytes of the form: they are those of the file, except for the order of rows, or the
// rounded sums of a weight with a change.
bool sumi_cuda_form_is_made_on_cpu(const sumi_weight* weight, sumi_cuda_form form);

// Whether the form stores the tensor's elements as the file has them.
bool sumi_cuda_keeps_bytes(const sumi_weight* weight, sumi_cuda_form form, const sumi_stacked_tensor* tensor);
uint64_t sumi_cuda_made_row_bytes(const sumi_weight* weight, sumi_cuda_form form); // for forms that the CPU makes
// The norm whose weight balances the form (balance.h). NULL: the form is not balanced.
const sumi_weight* sumi_cuda_form_balance(const sumi_weight* weight, sumi_cuda_form form);
// Bytes of the balance, which is uploaded before the first rows of the form. 0: there is none.
uint64_t sumi_cuda_balance_bytes(const sumi_weight* weight, sumi_cuda_form form);
#endif
