// A limit on the device memory that jobs may hold, for times when the device has less than they need because other
// programs use the rest. It is lowered when an allocation has failed, and raised or removed when there is more again.
//
// If the driver allocates the memory, the driver knows how much is free, and at first every job reviews the limit. If
// the host program's allocator does, the free memory is unknown: the limit is then a guess between the bytes that were
// held and the bytes that were refused, a review takes place every 4 jobs at first, and it removes the limit to see
// whether the next job succeeds. If an allocation then fails again, a limit returns, and the next review comes after 4
// jobs, then after twice as many each time (at most 256).
//
// host_limit: the memory limit that the host program has set, in bytes. A limit of 0 stands for none. The caller
// protects the structs. None of the functions blocks or fails.
#ifndef SUMI_PACING_SHORTAGE_LIMIT_H
#define SUMI_PACING_SHORTAGE_LIMIT_H
#include <stdbool.h>
#include <stdint.h>

// The device's memory, when it was asked.
typedef struct sumi_memory_capacity {
    uint64_t held_bytes, free_bytes; // held: by sumi; free: for anybody, 0 if unknown
    bool is_known;                   // whether free_bytes is known
    // The newest allocation that failed: bytes that sumi held at that time, bytes that were refused.
    uint64_t failed_held_bytes, failed_request_bytes;
} sumi_memory_capacity;

typedef struct sumi_shortage_limit {
    uint64_t bytes;               // the limit; jobs keep to it as to that of the host program. 0: none
    uint64_t requested_bytes;     // device bytes that the job that met the shortage needs without a limit; 0: unknown
    uint64_t previous_bytes;      // the limit before it was raised, until it is confirmed; 0: it was not raised
    uint64_t smallest_form_bytes; // device bytes that the newest plan that did not fit needs in its smallest form
    int32_t job_count,
        review_distance; // jobs that began since the newest review; jobs between two reviews, 0: every job reviews
    sumi_memory_capacity capacity; // when the newest allocation failed
    bool retry_is_pending;         // an allocation has failed, and the job has not been retried since
} sumi_shortage_limit;

// The memory limit that jobs keep to: the host program's or this one, whichever is less; 0: neither.
uint64_t sumi_shortage_limit_lesser(const sumi_shortage_limit* limit, uint64_t host_limit);
// An allocation has failed.
void sumi_shortage_limit_note(sumi_shortage_limit* limit, const sumi_memory_capacity* capacity);
// A job that met the shortage needs this many device bytes without a limit.
void sumi_shortage_limit_note_request(sumi_shortage_limit* limit, uint64_t device_bytes);
// After a failed allocation: sets a lower limit. *out_was_raised: the limit before had been raised, and the device has
// no memory for more. False: it cannot be lower.
bool sumi_shortage_limit_lower(sumi_shortage_limit* limit, uint64_t host_limit, bool* out_was_raised);
// Removes the limit if the device has as much memory as the job requested or as host_limit allows, or if the free
// memory is not known. Otherwise raises the limit if the usable memory is more than least_bytes: a smaller gain does
// not justify new plans. The old limit is then previous_bytes. False: the limit stays.
bool sumi_shortage_limit_raise(sumi_shortage_limit* limit, const sumi_memory_capacity* capacity, uint64_t host_limit,
                               uint64_t least_bytes);
// After a plan that did not fit: raises the limit to smallest_form_bytes, unless that is more than is available or than
// host_limit. False: the limit stays.
bool sumi_shortage_limit_raise_to_smallest_form(sumi_shortage_limit* limit, uint64_t host_limit);
// A job begins. Returns whether it is time to check for more device memory; the limit is then raised only above
// *out_least_bytes.
bool sumi_shortage_limit_begin_job(sumi_shortage_limit* limit, uint64_t* out_least_bytes);
// A job got all its memory: a raised limit stays.
void sumi_shortage_limit_confirm(sumi_shortage_limit* limit);
#endif
