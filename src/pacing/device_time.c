#include "pacing/device_time.h"
#include "base/assert.h"
#include "base/platform.h"

void sumi_device_time_submit(sumi_device_time* time, uint64_t submitted_ns, double us)
{
    if (time->ends_ns < submitted_ns) time->ends_ns = submitted_ns; // the device was idle
    time->ends_ns += (uint64_t)(us * 1e3);
}

void sumi_device_time_collect(sumi_device_time* time, uint64_t now_ns, double pending_us)
{
    const uint64_t latest_ns = now_ns + (uint64_t)(pending_us * 1e3);
    if (time->ends_ns > latest_ns) time->ends_ns = latest_ns;
}

double sumi_device_time_sleep_us(sumi_device_time* time, const sumi_in_flight* in_flight, uint64_t now_ns)
{
    SUMI_ASSERT(in_flight->count > 0);
    // Not half: of two equal slices the first one would end just then.
    const double pending_at_wake_us = in_flight->count > 1 ? 0.4 * in_flight->pending_us : 0.0;
    const double predicted_us = (double)(int64_t)(time->ends_ns - now_ns) * 1e-3 - pending_at_wake_us;
    // Predictions do not contain the gaps between slices, which add up. But the oldest slice has not ended, so at least
    // the slices after it are still to come. This correction is made once: if the slice has not ended then, the
    // predictions are wrong.
    const double certain_us = 0.5 * (in_flight->pending_us - in_flight->oldest_us);
    if (predicted_us >= sumi_sleep_slack_us() || certain_us < predicted_us
        || in_flight->oldest_submitted_ns == time->late_slice_ns)
        return predicted_us;
    time->late_slice_ns = in_flight->oldest_submitted_ns;
    return certain_us;
}
