#include "sampling/reuse.h"
#include "base/assert.h"
#include <math.h>

void sumi_reuse_begin(sumi_reuse* reuse, float threshold)
{
    SUMI_ASSERT(threshold >= 0.0f);
    *reuse = (sumi_reuse){.threshold = threshold, .speed = -1.0};
}

bool sumi_reuse_allows(const sumi_reuse* reuse, float sigma)
{
    if (reuse->speed < 0.0 || reuse->reused_count >= SUMI_REUSE_MOST) return false;
    return reuse->speed * fabs((double)reuse->whole_sigma - (double)sigma) < (double)reuse->threshold;
}

void sumi_reuse_note_reused(sumi_reuse* reuse)
{
    SUMI_ASSERT(reuse->reused_count < SUMI_REUSE_MOST && reuse->has_whole);
    reuse->reused_count++;
}

void sumi_reuse_note_whole(sumi_reuse* reuse, float sigma)
{
    reuse->sigma_change = reuse->has_whole ? fabsf(reuse->whole_sigma - sigma) : 0.0f;
    reuse->whole_sigma = sigma;
    reuse->has_whole = true;
    reuse->reused_count = 0;
}

void sumi_reuse_note_change(sumi_reuse* reuse, double change, double size)
{
    SUMI_ASSERT(reuse->has_whole);
    if (reuse->sigma_change <= 0.0f) return;
    const double speed = change / size / (double)reuse->sigma_change;
    reuse->speed = size > 0.0 && isfinite(speed) ? speed : -1.0;
}
