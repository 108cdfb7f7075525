// The forms of weights: how much memory they take, and how they are made.
#ifndef SUMI_DEVICE_WEIGHT_FORMS_H
#define SUMI_DEVICE_WEIGHT_FORMS_H
#include "device/form.h"
#include "plan/weight.h"

uint64_t sumi_device_form_bytes(const sumi_weight* weight, sumi_device_form form); // on the device, rounded up to 512
uint64_t sumi_device_pinned_row_bytes(const sumi_weight* weight, sumi_device_form form); // see pinned.h
// The addresses of a form that begins at `address`.
sumi_device_weight sumi_device_weight_at(uint64_t address, const sumi_weight* weight, sumi_device_form form);
// Whether the CPU can make the bytes of the form: these equal the file's, except for the order of rows, or are the
// rounded sums of a weight with a change.
bool sumi_device_form_is_made_on_cpu(const sumi_weight* weight, sumi_device_form form);

// Whether the form stores the tensor's elements as the file has them.
bool sumi_device_keeps_bytes(const sumi_weight* weight, sumi_device_form form, const sumi_stacked_tensor* tensor);
uint64_t sumi_device_made_row_bytes(const sumi_weight* weight, sumi_device_form form); // for forms that the CPU makes
// The norm whose weight balances the form (below). NULL: the form is not balanced.
const sumi_weight* sumi_device_form_balance(const sumi_weight* weight, sumi_device_form form);
// Bytes of the balance, which is uploaded before the first rows of the form. 0: there is none.
uint64_t sumi_device_balance_bytes(const sumi_weight* weight, sumi_device_form form);

// ---- Balance

// Balancing of products in 8-bit integers: which columns become smaller, and which larger, before both operands are
// rounded.
//
//   y = x w^T = (x s) (w / s)^T      s[c] = 1 / sqrt(|n[c]|)      n: the weight of the norm that makes x
//
// All values of a row share one scale, so a few large channels make the rounding step too coarse for all others.
// Trained networks have channels where n is 15 to 40 times as large as in the rest. The rotation spreads rounding
// errors over all channels; the error of the product is then least if s[c]^2 is the magnitude of column c of w divided
// by that of column c of x (Cauchy-Schwarz; SmoothQuant, Xiao et al. 2023, uses maxima in the same way). Here the
// norm's weight stands for x, and all columns of w are assumed to be alike, because their magnitudes would take another
// pass over every matrix. In simulation (3840 columns, 16 outliers) the error of the product falls from 1.29e-2 to
// 8.2e-3. Where w is smaller in just these columns it falls from 4.2e-2 to 1.4e-2; with the magnitudes of w it would be
// 1.2e-2. Exponents of |n| other than a half are worse.
//
// Matrices are stored as w / s wherever they are stored in 8-bit integers. x is multiplied by s once: by the norm that
// writes x if it writes 8 bits (FORM_VECTOR_BALANCED), otherwise by the kernel that rounds x before the product.
// arrange.c decides which.

// Computes s from a norm's weight: [cols], finite and above 0 where the weight is finite.
void sumi_device_balance(const sumi_weight* norm, float* into);
#endif
