#include "engine/accuracy.h"
#include "base/assert.h"

#define MOST_TIMES 1.75 // so that a deadline of twice the time leaves nothing out, whatever was noted
#define LATELY 8        // predictions; older ones fade

void sumi_accuracy_note(sumi_accuracy* accuracy, float first_deviation, double came, double predicted)
{
    SUMI_ASSERT(first_deviation > 0.0f);
    if (!(predicted > 0.0)) return;
    if (accuracy->count == 0) *accuracy = (sumi_accuracy){.mean = 1.0f, .deviation = first_deviation};
    // A host that pauses once says little of the next time: a single one moves things so far and no further.
    const float most = 0.15f + 4.0f * accuracy->deviation, off = (float)(came / predicted) - accuracy->mean,
                miss = off > most  ? most
                     : off < -most ? -most
                                   : off;
    const float weight = 1.0f / (float)((accuracy->count < LATELY - 2 ? accuracy->count : LATELY - 2) + 2);
    accuracy->mean += weight * miss;
    accuracy->deviation += weight * ((miss < 0.0f ? -miss : miss) - accuracy->deviation);
    accuracy->count++;
    SUMI_ASSERT(accuracy->deviation >= 0.0f);
}

double sumi_accuracy_deviation(const sumi_accuracy* accuracy, float first_deviation)
{
    return (double)(accuracy->count > 0 ? accuracy->deviation : first_deviation);
}

double sumi_accuracy_most_times(const sumi_accuracy* accuracy, float first_deviation)
{
    const double most = (accuracy->count > 0 ? (double)accuracy->mean : 1.0)
                      + SUMI_ACCURACY_MARGIN * sumi_accuracy_deviation(accuracy, first_deviation);
    return most < 0.5 ? 0.5 : most > MOST_TIMES ? MOST_TIMES : most;
}
