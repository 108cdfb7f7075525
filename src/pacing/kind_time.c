#include "pacing/kind_time.h"
#include "base/assert.h"
#include "pacing/tempo.h"

// A time may contain a wait if it is longer than this multiple of the known time, and than LEAST_WAIT_US.
#define MAX_ALONE 2.0
#define LEAST_WAIT_US 500.0
// After this many such times in a row, of slices alike, one more is submitted: while their time is not known, and
// afterwards.
#define ONE_MORE_IF_UNKNOWN 2
#define ONE_MORE_IF_KNOWN 8

sumi_time_state sumi_kind_time_state(const sumi_kind_time* time)
{
    SUMI_ASSERT(time->us > 0.0f || time->doubt.alike_count == 0);
    return time->us <= 0.0f ? SUMI_TIME_UNMEASURED : time->doubt.alike_count > 0 ? SUMI_TIME_DOUBTED : SUMI_TIME_KNOWN;
}

// 0 means unmeasured, so the least time is 0.1. If a slice has waited for copies, its time is only an upper bound. When
// such times were used as they were, the slices of later plans became a sixth as long (streamed text encoder, H200).
static double limited_us(const sumi_time_measured* measured)
{
    const double us = measured->us < 0.1 ? 0.1 : measured->us;
    const bool is_limited = measured->has_waits && measured->submitted_us > 0.1f && us > (double)measured->submitted_us;
    return is_limited ? (double)measured->submitted_us : us;
}

static bool may_have_waited(const sumi_time_measured* measured, double known_us)
{
    const double us = limited_us(measured);
    return measured->has_device && measured->is_alone && !measured->has_delay && us > LEAST_WAIT_US && known_us > 0.0
        && us > known_us * MAX_ALONE;
}

sumi_time_event sumi_kind_time_event(const sumi_kind_time* time, const sumi_time_measured* measured)
{
    if (may_have_waited(measured, measured->now_us)) return SUMI_TIME_MAY_HAVE_WAITED;
    const bool is_shorter = time->doubt.suspect_count > 0 && limited_us(measured) * MAX_ALONE < measured->now_us;
    return is_shorter ? SUMI_TIME_SHORTER : SUMI_TIME_USUAL;
}

sumi_time_action sumi_kind_time_action(sumi_time_state state, sumi_time_event event)
{
    static const sumi_time_action s_actions[SUMI_TIME_STATE_COUNT][SUMI_TIME_EVENT_COUNT] = {
        [SUMI_TIME_UNMEASURED] = {SUMI_TIME_KEEP, SUMI_TIME_BEGIN, SUMI_TIME_BEGIN},
        [SUMI_TIME_DOUBTED] = {SUMI_TIME_KEEP, SUMI_TIME_TRY_AGAIN, SUMI_TIME_TRY_AGAIN},
        [SUMI_TIME_KNOWN] = {SUMI_TIME_KEEP, SUMI_TIME_REPLACE, SUMI_TIME_LEARN}};
    SUMI_ASSERT(state < SUMI_TIME_STATE_COUNT && event < SUMI_TIME_EVENT_COUNT);
    return s_actions[state][event];
}

// How much of the first measurement is believed. It is doubted only if ops like these were measured before or kernels
// of others were seen, and only if enough measurements follow to end the doubt.
static double first_us(sumi_kind_time* time, const sumi_time_measured* measured, double us, bool* out_doubted)
{
    const bool may_doubt = measured->has_device && (measured->op_is_known || measured->is_crowded);
    const double believed_us = may_doubt ? sumi_tempo_first(&time->doubt, measured->op_us, us) : us;
    *out_doubted = time->doubt.alike_count > 0;
    if (measured->times_in_a_job >= SUMI_TEMPO_FEWEST_REPEATS) return believed_us;
    time->doubt = (sumi_tempo_doubt){.suspect_count = time->doubt.suspect_count};
    return measured->is_crowded ? believed_us : us;
}

sumi_time_change sumi_kind_time_note(sumi_kind_time* time, sumi_tempo* tempo, const sumi_time_measured* measured)
{
    const double us = limited_us(measured), known_us = (double)time->us;
    const sumi_time_event event = sumi_kind_time_event(time, measured);
    const sumi_time_action action = sumi_kind_time_action(sumi_kind_time_state(time), event);
    // Counts also where the known time itself may contain a wait: then the time is far above the prediction from ops.
    const bool is_suspect = event == SUMI_TIME_MAY_HAVE_WAITED || may_have_waited(measured, measured->op_us);
    time->doubt.suspect_count = is_suspect ? time->doubt.suspect_count + 1 : 0;
    double new_us = known_us;
    bool is_doubted = false;
    switch (action) {
    case SUMI_TIME_KEEP: return (sumi_time_change){.action = action, .own_us = measured->now_us};
    case SUMI_TIME_BEGIN: new_us = (double)(float)first_us(time, measured, us, &is_doubted); break;
    case SUMI_TIME_TRY_AGAIN:
        new_us = (double)(float)(measured->is_paced ? sumi_tempo_again : sumi_tempo_again_unpaced)(
            &time->doubt, measured->is_crowded, known_us, us);
        is_doubted = time->doubt.alike_count > 0;
        break;
    case SUMI_TIME_REPLACE: new_us = us; break;
    case SUMI_TIME_LEARN:
        sumi_tempo_note(tempo, known_us, us);
        new_us = (double)(float)sumi_tempo_learn(tempo, known_us, us);
        break;
    }
    time->us = (float)new_us;
    return (sumi_time_change){.action = action,
                              .known_us = new_us - known_us,
                              .own_us = (double)time->us,
                              .teaches = !is_suspect && !measured->is_crowded && !is_doubted};
}

bool sumi_kind_time_wants_one_more(const sumi_kind_time* time)
{
    const bool is_known = sumi_kind_time_state(time) == SUMI_TIME_KNOWN;
    return time->doubt.suspect_count >= (is_known ? ONE_MORE_IF_KNOWN : ONE_MORE_IF_UNKNOWN);
}

// ---- Kinds of ops ---------------------------------------------------------------------------------------------------

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
