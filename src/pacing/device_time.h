// When a device will have finished all work in flight, and how long a thread that waits for it may sleep.
//
// The caller protects the struct. None of the functions blocks or fails.
#ifndef SUMI_PACING_DEVICE_TIME_H
#define SUMI_PACING_DEVICE_TIME_H
#include <stdint.h>

typedef struct sumi_device_time {
    uint64_t ends_ns; // predicted end of all work in flight (ns, steady clock)
    // Time of submission (ns, steady clock) of the most recent slice that took longer than predicted.
    uint64_t late_slice_ns;
} sumi_device_time;

// A slice was submitted whose predicted time is `us`.
void sumi_device_time_submit(sumi_device_time* time, uint64_t submitted_ns, double us);
// A slice has ended, and pending_us of predicted work remain in flight: the device ends no later than after these.
void sumi_device_time_collect(sumi_device_time* time, uint64_t now_ns, double pending_us);

// The work in flight: at least one slice.
typedef struct sumi_in_flight {
    int32_t count;
    double pending_us; // predicted, of all slices
    double oldest_us;  // predicted, of the oldest slice, which has not ended
    uint64_t oldest_submitted_ns;
} sumi_in_flight;
// Predicted time until half of the work has ended. A result of 0 or less means that the oldest slice was predicted to
// have ended already.
double sumi_device_time_sleep_us(sumi_device_time* time, const sumi_in_flight* in_flight, uint64_t now_ns);
#endif
