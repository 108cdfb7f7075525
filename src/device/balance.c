#include "device/balance.h"
#include "base/assert.h"
#include <math.h>

// Weights of a norm below this fraction of their mean count as this fraction. A channel that is nearly off must not
// become large when an adapter changes the norm. In simulation 1/16 and 1/1000 gave the same error.
#define LEAST_OF_MEAN (1.0 / 16)

void sumi_device_balance(const sumi_weight* norm, float* into)
{
    SUMI_ASSERT(norm->rows == 1 && norm->cols >= 1);
    double sum = 0.0;
    sumi_weight_to_float(norm, 0, 1, into, norm->cols);
    for (int32_t c = 0; c < norm->cols; c++) sum += fabs((double)into[c]);
    const float mean = (float)(sum / norm->cols * LEAST_OF_MEAN), least = mean > 1e-12f ? mean : 1e-12f;
    for (int32_t c = 0; c < norm->cols; c++) {
        const float size = fabsf(into[c]);
        into[c] = 1.0f / sqrtf(size < least ? least : size); // NaN stays NaN
    }
}
