#include "pacing/op_ratio.h"
#include "base/assert.h"

// A measured ratio outside of these says more about the moment than about the op.
#define LEAST_RATIO 0.05
#define MAX_RATIO 50.0

float sumi_op_ratio_learn(float ratio, double measured_ratio, double share)
{
    const double measured = measured_ratio < LEAST_RATIO ? LEAST_RATIO
                          : measured_ratio > MAX_RATIO   ? MAX_RATIO
                                                         : measured_ratio;
    const double previous = ratio > 0.0f ? (double)ratio : 1.0,
                 weight = (ratio > 0.0f ? 0.25 : 1.0) * (share < 1.0 ? share : 1.0);
    return (float)(previous + weight * (measured - previous));
}

float sumi_op_ratio_correction(float recent_ratio, float made_with)
{
    SUMI_ASSERT(recent_ratio <= 0.0f || made_with > 0.0f);
    return recent_ratio > 0.0f ? recent_ratio / made_with : 1.0f;
}
