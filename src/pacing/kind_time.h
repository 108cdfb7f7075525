// The known time of a kind of slices, and how another measurement changes it. Slices of the same ops and sizes are of
// one kind, so one of them predicts all.
//
// A measured time is the slice's own work plus whatever ran between its beginning and its end, and on a device also its
// waits. So not every time is believed. The action depends on the state of the kind and on how the time compares with
// the known one:
//
//                    | MAY_HAVE_WAITED | SHORTER            | USUAL
//     ---------------+-----------------+--------------------+---------------------------------------------------
//     UNMEASURED     | KEEP            | BEGIN              | BEGIN        -> DOUBTED or KNOWN, as tempo.h says
//     DOUBTED        | KEEP            | TRY_AGAIN          | TRY_AGAIN    -> DOUBTED or KNOWN
//     KNOWN          | KEEP            | REPLACE            | LEARN        -> KNOWN
//
// A slice that is submitted to an idle device begins at once, as far as its events tell, and then waits for the
// commands that the host program has submitted before, maybe for kernels of 10 ms in every frame. Such times are all
// alike and say nothing about the slice. If they were believed, no other slice would fit into the frame, and every
// slice would be submitted to an idle device from then on. So they are upper bounds. The slices after it in the same
// frame begin when it has ended; their times are believed. A slice that fits into no budget after another one would
// only be submitted to an idle device. It follows another one now and then all the same, so that a device that has
// really become slower is noticed. Short times are believed: most slices are made longer than half of the least wait
// (frame_limits.h). If an empty kernel has run right before the slice, that kernel has waited, and the slice's time
// begins after it.
//
// The caller protects the structs. None of the functions blocks or fails.
#ifndef SUMI_PACING_KIND_TIME_H
#define SUMI_PACING_KIND_TIME_H
#include "pacing/tempo.h"

typedef struct sumi_kind_time {
    float us; // measured; 0: not measured yet
    sumi_tempo_doubt doubt;
} sumi_kind_time;

typedef enum sumi_time_state {
    SUMI_TIME_UNMEASURED,
    SUMI_TIME_DOUBTED, // less is believed than was measured
    SUMI_TIME_KNOWN,
    SUMI_TIME_STATE_COUNT
} sumi_time_state;

typedef enum sumi_time_event {
    SUMI_TIME_MAY_HAVE_WAITED, // compared with the known time, or with the prediction where none is known
    SUMI_TIME_SHORTER,         // so much shorter, after times that may contain waits, that the known time does too
    SUMI_TIME_USUAL,
    SUMI_TIME_EVENT_COUNT
} sumi_time_event;

typedef enum sumi_time_action {
    SUMI_TIME_KEEP,      // the time is an upper bound: the known time stays
    SUMI_TIME_BEGIN,     // the first measurement (sumi_tempo_first)
    SUMI_TIME_TRY_AGAIN, // another one while there is a doubt (sumi_tempo_again)
    SUMI_TIME_REPLACE,   // the known time contained a wait
    SUMI_TIME_LEARN      // the known time changes a little (sumi_tempo_learn)
} sumi_time_action;

// A slice of the kind that has ended.
typedef struct sumi_time_measured {
    double us;              // from its beginning to its end
    float submitted_us;     // its prediction when it was submitted
    double now_us;          // its prediction now
    double op_us;           // its prediction from times of ops of the same kind; needed if it is alone or unmeasured
    bool op_is_known;       // such ops were measured before
    bool has_device;        // false: slices run on the CPU, where they wait for nothing
    bool has_waits;         // it waited for streamed weights
    bool is_alone;          // nothing of ours was in flight or had been submitted in the same update
    bool has_delay;         // its time begins after an empty kernel
    bool is_crowded;        // has_delay, and kernels of others kept the device busy then
    bool is_paced;          // calls have a budget, so a time that is too long would do harm
    int32_t times_in_a_job; // how many slices of the kind a job has
} sumi_time_measured;

typedef struct sumi_time_change {
    sumi_time_action action;
    double known_us; // change of the known time
    double own_us;   // time of the slice's own work, as far as it is known
    bool teaches;    // the time tells something about other slices of the same kinds of ops
} sumi_time_change;

sumi_time_state sumi_kind_time_state(const sumi_kind_time* time);
sumi_time_event sumi_kind_time_event(const sumi_kind_time* time, const sumi_time_measured* measured);
// The table above.
sumi_time_action sumi_kind_time_action(sumi_time_state state, sumi_time_event event);
// Notes a measurement of the kind, and in the device's tempo if the kind is known.
sumi_time_change sumi_kind_time_note(sumi_kind_time* time, sumi_tempo* tempo, const sumi_time_measured* measured);
// Whether a slice of the kind should be submitted after others although it may not fit: so many of the newest times in
// a row may contain waits that a device that has become slower would look the same.
bool sumi_kind_time_wants_one_more(const sumi_kind_time* time);

// An empty kernel that takes longer has waited for kernels of others (H100: 3 to 6 us on an idle device).
#define SUMI_MAX_DELAY_US 40.0

// ---- Kinds of ops ---------------------------------------------------------------------------------------------------
//
// How predictions made from a backend's rates are corrected by what was measured: by the ratio of measured to predicted
// times, of each kind of op.

// The ratio after another measurement. 0: there was none before. `share` is the part of the measured time that ops of
// this kind have, as predicted.
float sumi_op_ratio_learn(float ratio, double measured_ratio, double share);
// The factor for a prediction that was made with the ratio made_with. recent_ratio 0: not measured, the factor is 1.
float sumi_op_ratio_correction(float recent_ratio, float made_with);
#endif
