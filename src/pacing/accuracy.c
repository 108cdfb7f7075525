#include "pacing/accuracy.h"
#include "base/assert.h"

// The largest factor that sumi_accuracy_largest_factor() returns. It is below 2, so that a job whose deadline is twice
// its time runs all its steps, whatever was noted before.
#define MAX_TIMES 1.75
// The moving averages cover about this many predictions: each new one has a weight of at least 1 / RECENT_COUNT.
#define RECENT_COUNT 8

void sumi_accuracy_note(sumi_accuracy* accuracy, float first_deviation, double actual, double predicted)
{
    SUMI_ASSERT(first_deviation > 0.0f);
    if (!(predicted > 0.0)) return;
    if (accuracy->count == 0) *accuracy = (sumi_accuracy){.mean = 1.0f, .deviation = first_deviation};
    // A single outlier, for example because the host program paused once, says little about the next prediction. So the
    // distance of one ratio from the mean is limited.
    const float max_distance = 0.15f + 4.0f * accuracy->deviation,
                distance = (float)(actual / predicted) - accuracy->mean,
                limited_distance = distance > max_distance  ? max_distance
                                 : distance < -max_distance ? -max_distance
                                                            : distance;
    const float weight = 1.0f / (float)((accuracy->count < RECENT_COUNT - 2 ? accuracy->count : RECENT_COUNT - 2) + 2);
    accuracy->mean += weight * limited_distance;
    accuracy->deviation +=
        weight * ((limited_distance < 0.0f ? -limited_distance : limited_distance) - accuracy->deviation);
    accuracy->count++;
    SUMI_ASSERT(accuracy->deviation >= 0.0f);
}

double sumi_accuracy_deviation(const sumi_accuracy* accuracy, float first_deviation)
{
    return (double)(accuracy->count > 0 ? accuracy->deviation : first_deviation);
}

double sumi_accuracy_largest_factor(const sumi_accuracy* accuracy, float first_deviation)
{
    const double factor = (accuracy->count > 0 ? (double)accuracy->mean : 1.0)
                        + SUMI_ACCURACY_MARGIN * sumi_accuracy_deviation(accuracy, first_deviation);
    return factor < 0.5 ? 0.5 : factor > MAX_TIMES ? MAX_TIMES : factor;
}
