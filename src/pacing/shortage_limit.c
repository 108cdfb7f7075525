#include "pacing/shortage_limit.h"
#include "base/assert.h"

// A limit leaves a sixteenth of the memory that sumi could have free, but at most 64 MiB: CUDA graphs, the kernels'
// local memory and the driver's rounding to pages take some of it, and the use by other programs varies.
#define MARGIN_SHARE 16
#define MAX_MARGIN (64ull << 20)

// How many jobs pass between two attempts to raise the limit, where the free memory is unknown. The distance
// doubles after each failed attempt, up to MAX_DISTANCE.
#define FIRST_GUESS_DISTANCE 4
#define MAX_DISTANCE 256

uint64_t sumi_shortage_limit_lesser(const sumi_shortage_limit* limit, uint64_t host_limit)
{
    return limit->bytes != 0 && (host_limit == 0 || limit->bytes < host_limit) ? limit->bytes : host_limit;
}

// The bytes that jobs may use: the bytes that sumi holds plus the free ones, less a margin. The result is rounded down
// to a multiple of a power of two that is about a hundredth of it, so that a shortage of nearly constant size gives the
// same limit, and so the same plans, each time.
static uint64_t usable_bytes(const sumi_memory_capacity* capacity)
{
    const uint64_t total_bytes = capacity->held_bytes + capacity->free_bytes, share = total_bytes / MARGIN_SHARE;
    const uint64_t margin = share < MAX_MARGIN ? share : MAX_MARGIN;
    SUMI_ASSERT(margin <= total_bytes);
    uint64_t step = 1;
    for (uint64_t quotient = (total_bytes - margin) / 128; quotient > 1; quotient /= 2) step *= 2;
    return (total_bytes - margin) / step * step;
}

// The smallest total of device bytes that is known to be unavailable.
static uint64_t refused_bytes(const sumi_memory_capacity* capacity)
{
    return capacity->is_known ? capacity->held_bytes + capacity->free_bytes + 1
                              : capacity->failed_held_bytes + capacity->failed_request_bytes;
}

static void set_limit(sumi_shortage_limit* limit, uint64_t bytes)
{
    limit->bytes = bytes > 0 ? bytes : 1; // 0 would mean no limit
    limit->retry_is_pending = false;
}

void sumi_shortage_limit_note(sumi_shortage_limit* limit, const sumi_memory_capacity* capacity)
{
    limit->capacity = *capacity;
    limit->retry_is_pending = true;
}

void sumi_shortage_limit_note_request(sumi_shortage_limit* limit, uint64_t device_bytes)
{
    if (device_bytes > limit->requested_bytes) limit->requested_bytes = device_bytes;
}

// A limit where the free memory is not known: seven eighths of the present one, or of the total that was refused if
// that is less.
static uint64_t guess_limit_bytes(const sumi_memory_capacity* capacity, uint64_t memory_limit)
{
    SUMI_ASSERT(!capacity->is_known);
    const uint64_t refused = refused_bytes(capacity);
    const uint64_t top = memory_limit != 0 && (memory_limit < refused || refused == 0) ? memory_limit : refused,
                   lower = top / 8 * 7;
    const bool held_more = capacity->failed_held_bytes > lower
                        && capacity->failed_held_bytes < top; // failed_held_bytes is known to be available
    return held_more ? capacity->failed_held_bytes : lower;
}

static int32_t next_review_distance(int32_t review_distance)
{
    if (review_distance == 0) return FIRST_GUESS_DISTANCE;
    return review_distance < MAX_DISTANCE ? 2 * review_distance : MAX_DISTANCE;
}

bool sumi_shortage_limit_lower(sumi_shortage_limit* limit, uint64_t host_limit, bool* out_was_raised)
{
    const sumi_memory_capacity* capacity = &limit->capacity;
    const uint64_t memory_limit = sumi_shortage_limit_lesser(limit, host_limit);
    *out_was_raised = limit->previous_bytes != 0;
    if (!limit->retry_is_pending) return false;
    uint64_t new_bytes = capacity->is_known ? usable_bytes(capacity) : guess_limit_bytes(capacity, memory_limit);
    if (*out_was_raised) limit->review_distance = next_review_distance(limit->review_distance);
    else if (limit->bytes == 0) limit->review_distance = capacity->is_known ? 0 : FIRST_GUESS_DISTANCE;
    if (*out_was_raised && !capacity->is_known) new_bytes = limit->previous_bytes;
    if (memory_limit != 0 && new_bytes >= memory_limit) new_bytes = memory_limit / 8 * 7;
    limit->previous_bytes = 0;
    limit->job_count = 0;
    if (new_bytes == 0) return false;
    set_limit(limit, new_bytes);
    return true;
}

bool sumi_shortage_limit_raise(sumi_shortage_limit* limit, const sumi_memory_capacity* capacity, uint64_t host_limit,
                               uint64_t least_bytes)
{
    SUMI_ASSERT(limit->bytes != 0);
    const uint64_t available_bytes = capacity->is_known ? usable_bytes(capacity) : 0;
    const uint64_t enough_bytes =
        host_limit != 0 && (limit->requested_bytes == 0 || host_limit < limit->requested_bytes)
            ? host_limit
            : limit->requested_bytes;
    const bool is_removed = !capacity->is_known || (enough_bytes != 0 && available_bytes >= enough_bytes);
    if (!is_removed && available_bytes <= least_bytes) return false;
    limit->previous_bytes = limit->bytes;
    limit->bytes = is_removed ? 0 : available_bytes;
    limit->job_count = 0;
    limit->retry_is_pending = false;
    return true;
}

bool sumi_shortage_limit_raise_to_smallest_form(sumi_shortage_limit* limit, uint64_t host_limit)
{
    const uint64_t bytes = limit->smallest_form_bytes;
    if (limit->bytes == 0 || bytes <= limit->bytes || bytes >= refused_bytes(&limit->capacity)) return false;
    if (host_limit != 0 && bytes > host_limit) return false;
    set_limit(limit, bytes);
    return true;
}

bool sumi_shortage_limit_begin_job(sumi_shortage_limit* limit, uint64_t* out_least_bytes)
{
    *out_least_bytes = limit->bytes + limit->bytes / 8;
    if (limit->bytes == 0 || ++limit->job_count <= limit->review_distance) return false;
    limit->job_count = 0;
    return true;
}

void sumi_shortage_limit_confirm(sumi_shortage_limit* limit)
{
    if (limit->previous_bytes == 0) return;
    limit->previous_bytes = 0;
    if (limit->bytes == 0) limit->requested_bytes = 0;
    limit->review_distance = limit->capacity.is_known ? 0 : FIRST_GUESS_DISTANCE;
}
