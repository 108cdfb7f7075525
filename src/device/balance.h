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
// Matrices that are stored in 8-bit integers are stored as w / s. x is multiplied by s once: by the norm that
// writes x if it writes 8 bits (FORM_VECTOR_BALANCED), otherwise by the kernel that rounds x before the product.
// arrange.c decides which.
#ifndef SUMI_DEVICE_BALANCE_H
#define SUMI_DEVICE_BALANCE_H
#include "plan/weight.h"

// Computes s from a norm's weight: [cols], finite and above 0 where the weight is finite.
void sumi_device_balance(const sumi_weight* norm, float* into);
#endif
