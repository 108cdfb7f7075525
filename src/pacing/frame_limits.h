// What a call of the host program allows: how much work may be in flight, how long slices and pieces of other work may
// be, and how long this thread may work.
//
// The caller protects the struct. None of the functions blocks or fails.
#ifndef SUMI_PACING_FRAME_LIMITS_H
#define SUMI_PACING_FRAME_LIMITS_H
#include <stdbool.h>
#include <stdint.h>

typedef struct sumi_frame_limits {
    // The most predicted time of slices in flight on a device: the budget of the current call, or SUMI_MAX_PENDING_US,
    // which sumi_frame_limits_pending_us may exceed.
    double max_pending_us;
    // On a device, during a call with a budget: the most time of this thread's own work in the call. 0: no budget, or
    // the backend is the CPU.
    double max_thread_us;
    // On the CPU, during a call with a budget: when the budget is used up (ns, steady clock). 0: no budget, or a
    // device.
    uint64_t end_ns;
    // Moving average of the budgets of the latest updates. 0: the latest call that worked had no budget.
    double average_us;
    // The longest slice of plans written from now on: the host program's limit, or a half, a quarter ... of it while
    // budgets are small.
    uint32_t slice_us;
} sumi_frame_limits;

// The most predicted time of slices in flight on a device when the host program gives no budget: the first of these by a
// thread of ours, and in a wait half of the step that runs, but not less than the first nor more than the second. More
// would make a cancel take longer, and less wakes this thread more often to submit the next slices: on an H200 each time
// takes 0.1 ms of the CPU, most of it because a thread that has slept finds its data gone from the caches.
#define SUMI_MAX_PENDING_US 32000.0
#define SUMI_MOST_PENDING_US 128000.0
// The share of it that is submitted at once: the device is busy with the other half when the next slices are submitted.
#define SUMI_SUBMITTED_SHARE 0.5

// A call of the host program that begins to work.
typedef struct sumi_frame_call {
    uint32_t budget_us;    // SUMI_FOREVER: none
    uint32_t max_slice_us; // the host program's limit; 0: slices are whole ops
    bool has_device;       // slices run on a device, beside this thread
    uint64_t now_ns;       // steady clock; not read with a device or without a budget
} sumi_frame_call;
// On a device it adapts slice_us to the budget.
void sumi_frame_limits_begin(sumi_frame_limits* limits, const sumi_frame_call* call);

// The most predicted time of slices in flight on a device, in a step that takes step_us.
double sumi_frame_limits_pending_us(const sumi_frame_limits* limits, double step_us);
// Whether the call that works now has a budget. On a device.
bool sumi_frame_limits_are_paced(const sumi_frame_limits* limits);
// How long a piece of this thread's own work may take: max_slice_us, or 5 ms where slices are whole ops, but no more
// than the budget of the current call.
uint32_t sumi_frame_limits_piece_us(const sumi_frame_limits* limits, uint32_t max_slice_us);
// On the CPU: how long a piece of a slice that begins now may take, in microseconds: max_slice_us, or the rest of the
// current call's budget if that is less.
double sumi_frame_limits_slice_us(const sumi_frame_limits* limits, uint32_t max_slice_us, uint64_t now_ns);
// Converts time of this thread's own work to the time in which slices are counted. When the host program gives budgets
// to a device, each frame has less time for this thread's own work than for slices, so the time grows by the ratio of
// the two limits.
double sumi_frame_limits_own_us_in_frames(const sumi_frame_limits* limits, double us);

// What this thread does in a turn.
typedef enum sumi_own_work {
    SUMI_OWN_PIECE,      // of anything that is not listed below
    SUMI_OWN_SUBMITTING, // slices
    SUMI_OWN_STREAMING,  // slices, with copies of streamed weights
    SUMI_OWN_PREPARING,  // weights and graphs of a new plan, and the other pieces of its job
    SUMI_OWN_UNLIMITED   // loads a model or an adapter, or begins a job
} sumi_own_work;

// The turn that comes next.
typedef struct sumi_next_turn {
    bool has_device;
    sumi_own_work work;
    double predicted_us;
    double in_flight_us; // predicted, of all slices in flight
    bool is_one_more;    // a slice that may be submitted although it may not fit (kind_time.h)
} sumi_next_turn;
// Whether the turn fits into a call with this budget that has taken elapsed_us. On a device the budget limits the work
// in flight, whether this call or an earlier one submitted it; this thread's own time is limited separately.
bool sumi_frame_limits_fit(const sumi_frame_limits* limits, const sumi_next_turn* turn, double budget_us,
                           double elapsed_us);
#endif
