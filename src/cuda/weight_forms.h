// Which form of a weight an op takes, and how a form lies in memory.
#ifndef SUMI_CUDA_WEIGHT_FORMS_H
#define SUMI_CUDA_WEIGHT_FORMS_H
#include "cuda/arrange.h"
#include "cuda/form.h"

// The which-th weight that an op uses (0, 1, 2; the bias is one) and its form; false when there is no which-th.
bool sumi_cuda_op_weight(const sumi_plan* plan, int32_t op_index, int32_t which, const sumi_weight** out_weight,
                         sumi_cuda_form* out_form);
sumi_cuda_operands sumi_cuda_form_operands(sumi_cuda_form form); // of a matrix
bool sumi_cuda_is_gated_form(sumi_cuda_form form);
uint64_t sumi_cuda_form_bytes(const sumi_weight* weight, sumi_cuda_form form);       // on the device, rounded up to 512
uint64_t sumi_cuda_pinned_row_bytes(const sumi_weight* weight, sumi_cuda_form form); // see pinned.h
sumi_cuda_weight sumi_cuda_place_at(CUdeviceptr address, const sumi_weight* weight, sumi_cuda_form form);
// Whether the host can make the device's bytes: they are the file's, but for the order of rows, or sums with a change,
// rounded.
bool sumi_cuda_host_makes(const sumi_weight* weight, sumi_cuda_form form);

// Whether the form has the part's elements as the file has them.
bool sumi_cuda_keeps_bytes(const sumi_weight* weight, sumi_cuda_form form, const sumi_stacked_tensor* part);
uint64_t sumi_cuda_made_row_bytes(const sumi_weight* weight, sumi_cuda_form form); // of forms that the host makes
// The norm by whose weight a form is balanced (balance.h); NULL: it is not.
const sumi_weight* sumi_cuda_form_balance(const sumi_weight* weight, sumi_cuda_form form);
// Of the balance, which goes to the device in front of a form's first rows; 0: it has none.
uint64_t sumi_cuda_balance_bytes(const sumi_weight* weight, sumi_cuda_form form);
#endif
