// Predictions of times. Before a slice has run, its prediction is made from the backend's rates, corrected by the ratio
// of measured to predicted times of the same kinds of ops, in this plan or an earlier one. After it has run, its
// prediction is its own measured time. So the predictions for the first step of a job are estimates, and those
// for all later steps are measurements.
//
// On a device that also draws, other work may run between the begin and the end of a slice, so measured times can be
// too long but never too short. kind_time.h says which times are used. With plain averages, a host program that kept
// the GPU busy for half of the time made slices look twice as long and got only half of the budget that it gave.
#include "jobs/run.h"
#include "base/assert.h"
#include "base/platform.h"
#include "base/result.h"
#include "jobs/engine_state.h"
#include "jobs/pieces.h"
#include "jobs/plan_cache.h"
#include "pacing/device_time.h"
#include "pacing/forecast.h"
#include "pacing/frame_limits.h"
#include "pacing/kind_time.h"
#include "pacing/tempo.h"
#include "plan/async.h"
#include "plan/ops.h"
#include "plan/plan.h"
#include "plan/runner.h"
#include <math.h>

sumi_stage sumi_stage_of_section(sumi_section_kind kind)
{
    switch (kind) {
    case SUMI_SECTION_VISION:
    case SUMI_SECTION_TEXT: return SUMI_STAGE_TEXT;
    case SUMI_SECTION_IMAGE: return SUMI_STAGE_IMAGE;
    case SUMI_SECTION_DENOISE: return SUMI_STAGE_DENOISE;
    case SUMI_SECTION_DECODE: return SUMI_STAGE_DECODE;
    case SUMI_SECTION_TRANSFER: return SUMI_STAGE_TRANSFER;
    default: return SUMI_STAGE_PREPARE;
    }
}

const char* sumi_run_slice_name(const sumi_run_slice* slice)
{
    if (slice->op == NULL) return "slice";
    return slice->op->label != NULL && slice->op->label[0] != '\0' ? slice->op->label : sumi_op_name(slice->op->kind);
}

// Skips alternatives and sections without slices.
static size_t next_section(const sumi_plan* plan, size_t section)
{
    SUMI_ASSERT(section <= plan->section_count);
    while (section < plan->section_count
           && (plan->sections[section].is_alternative
               || plan->sections[section].slice_begin == plan->sections[section].slice_end))
        section++;
    return section;
}

// The section itself, or the one that it is an alternative to.
static size_t own_section(const sumi_plan* plan, size_t section)
{
    SUMI_ASSERT(section < plan->section_count && (section > 0 || !plan->sections[section].is_alternative));
    return plan->sections[section].is_alternative ? section - 1 : section;
}

// The predicted time of an iteration for which an alternative runs with this probability.
static double mixed_us(double own_us, double alternative_us, double alternative_share)
{
    return own_us + alternative_share * (alternative_us - own_us);
}

static double expected_us(const sumi_run* run, size_t section)
{
    const double own_us = sumi_section_us(run->entry, section);
    if (!sumi_plan_has_alternative(&run->entry->plan, section)) return own_us;
    return mixed_us(own_us, sumi_section_us(run->entry, section + 1), run->alternative_share);
}

static void enter_section(sumi_run* run, size_t section)
{
    SUMI_ASSERT(run->entry != NULL);
    const sumi_plan* plan = &run->entry->plan;
    run->section = next_section(plan, section);
    run->iteration = 0;
    run->is_submitted = run->section >= plan->section_count;
    if (!run->is_submitted) run->slice = plan->sections[run->section].slice_begin;
}

void sumi_run_begin(sumi_engine* engine, sumi_plan_entry* entry)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    SUMI_ASSERT(entry->model != NULL && entry->slice_us != NULL);
    SUMI_ASSERT(engine->runs.current.entry == NULL && engine->runs.current.pending_count == 0);
    engine->runs.current = (sumi_run){.entry = entry};
    sumi_held_inputs_begin(&engine->held_inputs, entry->serial,
                           engine->runner->functions->arena_serial(engine->runner));
    engine->runner->functions->start(engine->runner, &entry->plan);
    enter_section(&engine->runs.current, 0);
    engine->runs.current.done_section = engine->runs.current.section;
}

// The prediction of a slice whose kind was not measured in this plan. *out_is_known: ops like its first one were
// measured before.
static double predict_unmeasured_us(const sumi_engine* engine, const sumi_plan_entry* entry, int32_t slice_index,
                                    bool* out_is_known)
{
    const sumi_slice* slice = &entry->plan.slices[slice_index];
    SUMI_ASSERT(slice->op_begin >= 0 && slice->op_begin < slice->op_end
                && (size_t)slice->op_end <= entry->plan.op_count);
    const sumi_op_kind kind = entry->plan.ops[slice->op_begin].kind;
    const float ratio = engine->cache.op_ratio[kind];
    *out_is_known = ratio > 0.0f;
    return slice->predicted_us * sumi_op_ratio_correction(ratio, entry->op_ratio[kind]);
}

static double slice_us(const sumi_engine* engine, const sumi_plan_entry* entry, int32_t slice_index)
{
    SUMI_ASSERT(slice_index >= 0 && (size_t)slice_index < entry->plan.slice_count);
    const float measured_us = entry->slice_us[entry->kind_first[slice_index]];
    bool is_known;
    return measured_us > 0.0f ? sumi_tempo_now_us(&engine->tempo, (double)measured_us)
                              : predict_unmeasured_us(engine, entry, slice_index, &is_known);
}

static sumi_kind_time kind_time(const sumi_plan_entry* entry, int32_t slice)
{
    const int32_t kind = entry->kind_first[slice];
    return (sumi_kind_time){.us = entry->slice_us[kind], .doubt = entry->doubts[kind]};
}

// The measured time of the group of slices that begins with this slice. INFINITY: it is not known. The time of a submission is
// measured as a whole, so the times of its slices must be known.
static double group_us(const sumi_engine* engine, const sumi_plan_entry* entry, int32_t first, int32_t count)
{
    double us = 0.0;
    for (int32_t i = first; i < first + count; i++) {
        const sumi_kind_time time = kind_time(entry, i);
        if (sumi_kind_time_state(&time) != SUMI_TIME_KNOWN) return INFINITY;
        us += slice_us(engine, entry, i);
    }
    return us;
}

// A thread of ours submits little ahead: a call of the host program that takes something away from a running job waits
// for all that is in flight.
static double max_pending_us(const sumi_engine* engine)
{
    const sumi_run* run = &engine->runs.current;
    if (engine->desc.pump == SUMI_PUMP_THREAD) return engine->frame.max_pending_us;
    return sumi_frame_limits_pending_us(&engine->frame, sumi_section_us(run->entry, run->section));
}

// How many slices are submitted next, and their predicted time. Where no call limits the work in flight, these are as
// many groups of the section as there is room for in flight. A group that takes too long, or whose time is not known as
// a whole, counts slice by slice.
static int32_t next_count(const sumi_engine* engine, double* out_us)
{
    const sumi_run* run = &engine->runs.current;
    const sumi_plan_entry* entry = run->entry;
    *out_us = slice_us(engine, entry, run->slice);
    if (!entry->has_groups || sumi_frame_limits_are_paced(&engine->frame) || entry->need.streamed_bytes > 0) return 1;
    const double pending_us = max_pending_us(engine), most_us = SUMI_SUBMITTED_SHARE * pending_us,
                 room_us = pending_us - sumi_run_pending_us(engine);
    const int32_t end = entry->plan.sections[run->section].slice_end;
    int32_t total_count = 0;
    double total_us = 0.0;
    for (int32_t i = run->slice, count; i < end; i += count) {
        count = entry->plan.slices[i].group_count > 1 ? entry->plan.slices[i].group_count : 1;
        double us = group_us(engine, entry, i, count);
        if (us > most_us && count > 1) us = group_us(engine, entry, i, count = 1);
        if (total_us + us > most_us || (total_count > 0 && total_us + us > room_us)) break;
        total_us += us;
        total_count += count;
    }
    if (total_count <= 1) return 1;
    *out_us = total_us;
    return total_count;
}

double sumi_run_predict_us(const sumi_engine* engine)
{
    const sumi_run* run = &engine->runs.current;
    double us;
    if (run->entry == NULL || run->is_submitted) return 0.0;
    if (run->entry->range_us == NULL) return (void)next_count(engine, &us), us;
    return sumi_piece_predict_us(engine, run->entry, &run->entry->plan.slices[run->slice], &run->cursor);
}

// Whether pieces of the slice have run that is submitted next.
static bool has_begun_slice(const sumi_run* run) { return run->cursor.op > 0 || run->cursor.range > 0; }

// What is left of a slice of which pieces have run: the others are as fast as these were.
static double rest_of_slice_us(const sumi_run* run, double predicted_us)
{
    const sumi_slice_cursor* cursor = &run->cursor;
    if (!has_begun_slice(run) || cursor->share >= 1.0) return 0.0;
    return cursor->share > 0.0 ? cursor->believed_us / cursor->share * (1.0 - cursor->share) : predicted_us;
}

double sumi_run_remaining_us(const sumi_run* run)
{
    if (run->entry == NULL) return 0.0;
    const sumi_plan* plan = &run->entry->plan;
    double remaining_us = 0.0;
    for (size_t s = run->done_section; s < plan->section_count; s++) {
        if (plan->sections[s].is_alternative) continue;
        const double section_us = expected_us(run, s);
        if (s > run->done_section) {
            remaining_us += section_us * plan->sections[s].repeat;
            continue;
        }
        const size_t done = run->done_is_alternative ? s + 1 : s;
        const double begun_us = has_begun_slice(run) ? sumi_section_slice_us(run->entry, done, run->slice) : 0.0,
                     other_us = sumi_section_us(run->entry, done) - run->iteration_us - begun_us;
        remaining_us += section_us * (plan->sections[s].repeat - 1 - run->done_iteration)
                      + (other_us > 0.0 ? other_us : 0.0) + rest_of_slice_us(run, begun_us);
    }
    return remaining_us;
}

// Learns the ratios of the kinds of the slice's ops, each in proportion to its share of the slice.
static void learn_ratios(sumi_engine* engine, const sumi_plan_entry* entry, const sumi_slice* slice, double us)
{
    SUMI_ASSERT(us > 0.0);
    if (slice->predicted_us <= 0.0f) return;
    const sumi_rates rates = engine->runner->functions->rates(engine->runner);
    SUMI_ASSERT(slice->op_begin < slice->op_end);
    const double factor = us / slice->predicted_us;
    for (int32_t i = slice->op_begin; i < slice->op_end; i++) {
        const sumi_op* op = &entry->plan.ops[i];
        const bool is_single = slice->op_end == slice->op_begin + 1;
        const double share = is_single ? 1.0
                                       : sumi_plan_predict_us(&entry->plan, op, &rates) * entry->op_ratio[op->kind]
                                             / slice->predicted_us;
        float* ratio = &engine->cache.op_ratio[op->kind];
        *ratio = sumi_op_ratio_learn(*ratio, entry->op_ratio[op->kind] * factor, share);
    }
}

// What kind_time.h needs to know of the slice.
static sumi_time_measured measured_time(const sumi_engine* engine, const sumi_plan_entry* entry,
                                        const sumi_run_slice* slice)
{
    const int32_t kind = entry->kind_first[slice->index];
    sumi_time_measured measured = {.us = slice->us,
                                   .submitted_us = slice->predicted_us,
                                   .now_us = slice_us(engine, entry, slice->index),
                                   .has_device = engine->runner->traits.has_device,
                                   .has_waits = slice->has_waits,
                                   .is_alone = slice->is_alone,
                                   .has_delay = slice->has_delay,
                                   .is_crowded = slice->is_crowded,
                                   .is_paced = sumi_frame_limits_are_paced(&engine->frame)};
    measured.times_in_a_job = entry->kind_count[kind] * entry->plan.sections[slice->section_index].repeat;
    // It goes through the ops of the slice, so it is left out for the many slices that follow another.
    if (slice->is_alone || entry->slice_us[kind] <= 0.0f)
        measured.op_us = predict_unmeasured_us(engine, entry, slice->index, &measured.op_is_known);
    return measured;
}

static void note_slice_time(sumi_engine* engine, sumi_run* run, sumi_run_slice* slice)
{
    sumi_plan_entry* entry = run->entry;
    SUMI_ASSERT(slice->index >= 0 && own_section(&entry->plan, slice->section_index) == run->done_section);
    run->done_is_alternative = entry->plan.sections[slice->section_index].is_alternative;
    const sumi_slice* plan_slice = &entry->plan.slices[slice->index];
    sumi_section_time* section = &entry->sections[slice->section_index];
    const int32_t kind = entry->kind_first[slice->index], alike = entry->kind_count[kind];
    SUMI_ASSERT(kind <= slice->index && alike >= 1);
    sumi_kind_time time = kind_time(entry, slice->index);
    const sumi_time_measured measured = measured_time(engine, entry, slice);
    const sumi_time_change change = sumi_kind_time_note(&time, &engine->tempo, &measured);
    entry->slice_us[kind] = time.us;
    entry->doubts[kind] = time.doubt;
    section->measured_us += alike * change.known_us;
    if (change.action == SUMI_TIME_BEGIN) {
        section->expected_us += alike * (double)plan_slice->predicted_us;
        section->unmeasured_us -= alike * (double)plan_slice->predicted_us;
        if (section->unmeasured_us < 0.0) section->unmeasured_us = 0.0;
    }
    slice->unwaited_us = change.own_us;
    // of groups only the whole was measured
    if (change.teaches && slice->count <= 1) learn_ratios(engine, entry, plan_slice, slice->unwaited_us);
    run->iteration_us += slice->unwaited_us;
    run->done_us += slice->unwaited_us;
    if (!slice->ends_iteration) return;
    run->iteration_us = 0.0;
    run->done_is_alternative = false;
    run->done_iteration += 1 + slice->skip_count;
    SUMI_ASSERT(run->done_iteration <= entry->plan.sections[slice->section_index].repeat);
    if (run->done_iteration < entry->plan.sections[slice->section_index].repeat) return;
    run->done_iteration = 0;
    run->done_section = next_section(&entry->plan, slice->section_index + 1);
}

// The times of slices in groups are known, and each has its share of the whole: all have become slower or faster alike.
// The shares are computed before the first one is noted: with it the times of other slices of its kind change.
static void note_time(sumi_engine* engine, sumi_run* run, sumi_run_slice* slice)
{
    if (slice->count <= 1) {
        note_slice_time(engine, run, slice);
        return;
    }
    double expected_us = 0.0;
    float* shares_us = run->entry->scratch_us;
    for (int32_t i = 0; i < slice->count; i++) {
        const double us = slice_us(engine, run->entry, slice->index + i);
        shares_us[i] = (float)us;
        expected_us += us;
    }
    const double factor = slice->us / expected_us;
    slice->unwaited_us = 0.0;
    for (int32_t i = 0; i < slice->count; i++) {
        sumi_run_slice part = *slice;
        part.index += i;
        part.us = factor * (double)shares_us[i];
        part.ends_iteration = slice->ends_iteration && i + 1 == slice->count;
        note_slice_time(engine, run, &part);
        slice->unwaited_us += part.unwaited_us;
    }
}

// ---- Leaving evaluations out ----------------------------------------------------------------------------------------

bool sumi_run_begins_evaluation(const sumi_engine* engine, int32_t* out_counter, int32_t* out_left_in_section)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    const sumi_run* run = &engine->runs.current;
    if (run->entry == NULL || run->is_submitted) return false;
    const sumi_section* section = &run->entry->plan.sections[run->section];
    *out_counter = section->first_counter + run->iteration;
    *out_left_in_section = section->repeat - run->iteration;
    return section->kind == SUMI_SECTION_DENOISE && run->slice == section->slice_begin && !has_begun_slice(run);
}

void sumi_run_jump(sumi_engine* engine, int32_t counter)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine) && engine->runs.current.entry != NULL
                && engine->runs.current.pending_count == 0);
    sumi_run* run = &engine->runs.current;
    const sumi_plan* plan = &run->entry->plan;
    while (counter >= plan->sections[run->section].first_counter + plan->sections[run->section].repeat) {
        enter_section(run, run->section + 1);
        SUMI_ASSERT(!run->is_submitted && plan->sections[run->section].kind == SUMI_SECTION_DENOISE);
    }
    run->iteration = run->done_iteration = counter - plan->sections[run->section].first_counter;
    run->done_section = run->section;
    run->iteration_us = 0.0;
}

void sumi_run_use_alternative(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine) && engine->runs.current.entry != NULL);
    sumi_run* run = &engine->runs.current;
    const sumi_plan* plan = &run->entry->plan;
    SUMI_ASSERT(sumi_plan_has_alternative(plan, run->section)
                && run->slice == plan->sections[run->section].slice_begin);
    run->section++;
    run->slice = plan->sections[run->section].slice_begin;
}

void sumi_run_skip(sumi_engine* engine, int32_t count)
{
    SUMI_ASSERT(count >= 0 && engine->runs.current.entry != NULL && !engine->runs.current.is_submitted);
    SUMI_ASSERT(engine->runs.current.iteration + count
                < engine->runs.current.entry->plan.sections[engine->runs.current.section].repeat);
    engine->runs.current.skip_count = count;
}

// The time of an op or of a work range of a section: from what was probed, or from recent times of its kind.
static double guess_us(const sumi_engine* engine, const sumi_plan_entry* entry, size_t section, sumi_op_kind kind,
                       double predicted_us)
{
    if (entry->sections[section].probed_ratio > 0.0 && entry->probe.ratio[kind] > 0.0f)
        return predicted_us * (double)entry->probe.ratio[kind];
    return predicted_us * (double)sumi_op_ratio_correction(engine->cache.op_ratio[kind], entry->op_ratio[kind]);
}

sumi_work_us sumi_section_work_us(const sumi_engine* engine, const sumi_plan_entry* entry, size_t section)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine) && section < entry->plan.section_count);
    const sumi_plan* plan = &entry->plan;
    const sumi_section_time* time = &entry->sections[section];
    sumi_work_us work = {.measured = time->measured_us};
    // only rounding errors are left
    if (time->unmeasured_us < 1e-3 * (time->expected_us + time->unmeasured_us)) return work;
    const sumi_rates rates = engine->runner->functions->rates(engine->runner);
    for (int32_t i = plan->sections[section].slice_begin; i < plan->sections[section].slice_end; i++) {
        const sumi_slice* slice = &plan->slices[i];
        if (entry->slice_us[entry->kind_first[i]] > 0.0f) continue;
        if (slice->op_end == slice->op_begin + 1) {
            work.guessed +=
                guess_us(engine, entry, section, plan->ops[slice->op_begin].kind, (double)slice->predicted_us);
            continue;
        }
        for (int32_t o = slice->op_begin; o < slice->op_end; o++) {
            const sumi_op* op = &plan->ops[o];
            const double us = (double)(sumi_plan_predict_us(plan, op, &rates) * entry->op_ratio[op->kind]);
            work.guessed += guess_us(engine, entry, section, op->kind, us);
        }
    }
    return work;
}

// As expected_us, with the guesses of sumi_section_work_us.
static double mixed_section_us(const sumi_engine* engine, const sumi_run* run, size_t section, double alternative_share)
{
    const bool has_alternative = sumi_plan_has_alternative(&run->entry->plan, section);
    const sumi_work_us own = sumi_section_work_us(engine, run->entry, section),
                       other = has_alternative ? sumi_section_work_us(engine, run->entry, section + 1) : own;
    return mixed_us(own.measured + own.guessed, other.measured + other.guessed, alternative_share);
}

double sumi_run_later_us(const sumi_engine* engine, double alternative_share)
{
    SUMI_ASSERT(engine->runs.current.entry != NULL && !engine->runs.current.is_submitted);
    const sumi_run* run = &engine->runs.current;
    const sumi_plan* plan = &run->entry->plan;
    const size_t section = own_section(plan, run->section);
    int32_t count = 0;
    double total_us = 0.0;
    for (size_t s = section; s < plan->section_count; s++) {
        if (plan->sections[s].kind != SUMI_SECTION_DENOISE || plan->sections[s].is_alternative) continue;
        const int32_t later_count = plan->sections[s].repeat - (s == section ? run->iteration + 1 : 0);
        total_us += later_count * mixed_section_us(engine, run, s, alternative_share);
        count += later_count;
    }
    return count > 0 ? total_us / count : 0.0;
}

sumi_remaining_work sumi_run_remaining_work(const sumi_engine* engine)
{
    SUMI_ASSERT(engine->runs.current.entry != NULL && !engine->runs.current.is_submitted);
    const sumi_run* run = &engine->runs.current;
    const sumi_plan* plan = &run->entry->plan;
    sumi_remaining_work work = {.evaluation = sumi_section_work_us(engine, run->entry, run->section),
                                .later_us = sumi_run_later_us(engine, run->alternative_share),
                                .end.measured = sumi_run_pending_us(engine)};
    for (size_t s = own_section(plan, run->section) + 1; s < plan->section_count; s++) {
        if (plan->sections[s].kind == SUMI_SECTION_DENOISE) continue;
        const sumi_work_us iteration_work = sumi_section_work_us(engine, run->entry, s);
        work.end.measured += plan->sections[s].repeat * iteration_work.measured;
        work.end.guessed += plan->sections[s].repeat * iteration_work.guessed;
    }
    return work;
}

// ---- Submitting and collecting --------------------------------------------------------------------------------------

bool sumi_run_can_submit(const sumi_engine* engine)
{
    SUMI_ASSERT(engine->runs.current.entry != NULL);
    const int32_t count = engine->runs.current.pending_count + engine->runs.draining.pending_count;
    if (engine->runs.current.is_submitted || count >= SUMI_RUNNER_DEPTH) return false;
    if (count == 0) return true; // a limit below the smallest slice must not stop all progress
    return sumi_run_pending_us(engine) + sumi_run_predict_us(engine) <= max_pending_us(engine)
        || sumi_run_wants_one_more(engine);
}

bool sumi_run_wants_one_more(const sumi_engine* engine)
{
    const sumi_run* run = &engine->runs.current;
    // The slices in flight were submitted in this update, and none of them was one more.
    if (run->entry == NULL || run->is_submitted || !engine->runs.has_submitted || run->pending_count == 0
        || engine->runs.draining.pending_count > 0 || !run->pending[run->pending_begin].is_alone
        || (run->pending_count > 1 && run->pending_us > engine->frame.max_pending_us))
        return false;
    const sumi_kind_time time = kind_time(run->entry, run->slice);
    return sumi_kind_time_wants_one_more(&time);
}

double sumi_run_pending_us(const sumi_engine* engine)
{
    return engine->runs.current.pending_us + engine->runs.draining.pending_us;
}

sumi_run_slice sumi_run_next(const sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine) && engine->runs.current.entry != NULL);
    const sumi_run* run = &engine->runs.current;
    const sumi_plan* plan = &run->entry->plan;
    // the plan has only constants
    if (run->is_submitted) return (sumi_run_slice){.section = SUMI_SECTION_PREPARE, .index = -1, .ends_run = true};
    const sumi_section* section = &plan->sections[run->section];
    sumi_run_slice slice = {.section = section->kind,
                            .counter = section->first_counter + run->iteration,
                            .index = run->slice,
                            .section_index = run->section,
                            .op = &plan->ops[plan->slices[run->slice].op_begin]};
    double us;
    slice.count = run->entry->range_us == NULL ? next_count(engine, &us) : 1;
    slice.predicted_us = (float)(run->entry->range_us == NULL ? us : slice_us(engine, run->entry, run->slice));
    slice.ends_iteration = run->slice + slice.count >= section->slice_end;
    slice.skip_count = slice.ends_iteration ? run->skip_count : 0;
    slice.ends_run = slice.ends_iteration && run->iteration + 1 + run->skip_count >= section->repeat
                  && next_section(plan, run->section + 1) >= plan->section_count;
    return slice;
}

static sumi_result run_slice(sumi_engine* engine, sumi_run* run, sumi_run_slice* slice, sumi_error* error)
{
    sumi_plan_entry* entry = run->entry;
    const sumi_slice* plan_slice = &entry->plan.slices[slice->index];
    if (entry->range_us == NULL) {
        const sumi_kind_time time = kind_time(entry, slice->index);
        engine->runner->async->measure_delay(engine->runner, sumi_kind_time_state(&time) != SUMI_TIME_KNOWN);
        slice->submitted_ns = sumi_clock_ns();
        if (slice->count > 1)
            SUMI_TRY(engine->runner->async->run_groups(
                engine->runner, &entry->plan, &(sumi_slice_groups){plan_slice, slice->count}, slice->counter, error));
        else SUMI_TRY(engine->runner->functions->run(engine->runner, &entry->plan, plan_slice, slice->counter, error));
        // on a GPU this is the time of submission only; collect writes the time of the slice
        slice->us = slice->piece_us = slice->piece_believed_us = (double)(sumi_clock_ns() - slice->submitted_ns) * 1e-3;
        return SUMI_OK;
    }
    const bool is_known = entry->slice_us[entry->kind_first[slice->index]] > 0.0f;
    const sumi_slice_cursor before = run->cursor;
    const sumi_cut_slice cut = {.entry = entry,
                                .slice = plan_slice,
                                .counter = slice->counter,
                                .known_us = is_known ? (double)slice->predicted_us : 0.0,
                                .cursor = &run->cursor};
    SUMI_TRY(sumi_piece_run(engine, &cut, &slice->is_submitted, error));
    slice->us = run->cursor.us;
    slice->piece_us = run->cursor.us - before.us;
    slice->piece_believed_us = run->cursor.believed_us - before.believed_us;
    return SUMI_OK;
}

sumi_result sumi_run_submit(sumi_engine* engine, sumi_run_slice* slice, sumi_error* error)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine) && engine->runs.current.entry != NULL);
    SUMI_ASSERT(engine->runs.current.pending_count + engine->runs.draining.pending_count < SUMI_RUNNER_DEPTH);
    SUMI_ASSERT(
        slice->index < 0
        || (slice->index == engine->runs.current.slice && slice->section_index == engine->runs.current.section));
    sumi_run* run = &engine->runs.current;
    const sumi_plan* plan = &run->entry->plan;
    sumi_run_slice* submitted = &run->pending[(run->pending_begin + run->pending_count) % SUMI_RUNNER_DEPTH];
    slice->is_alone = !engine->runs.has_submitted && run->pending_count + engine->runs.draining.pending_count == 0;
    slice->is_submitted = true;
    if (slice->index >= 0) SUMI_TRY(run_slice(engine, run, slice, error));
    if (!slice->is_submitted) return SUMI_OK;
    run->cursor = (sumi_slice_cursor){.op = 0};
    *submitted = *slice;
    submitted->is_over = !engine->runner->traits.has_device; // it has ended inside `run`
    engine->runs.has_submitted = true;
    run->pending_count++;
    run->pending_us += submitted->predicted_us;
    sumi_device_time_submit(&engine->runs.device, submitted->submitted_ns, (double)submitted->predicted_us);
    if (submitted->index >= 0 && submitted->ends_iteration) run->section = own_section(plan, run->section);
    if (submitted->index < 0 || !submitted->ends_iteration) {
        run->slice += submitted->index < 0 ? 1 : submitted->count;
    } else if (run->iteration + 1 + run->skip_count < plan->sections[run->section].repeat) {
        run->iteration += 1 + run->skip_count;
        run->slice = plan->sections[run->section].slice_begin;
    } else {
        enter_section(run, run->section + 1);
    }
    if (submitted->ends_iteration) run->skip_count = 0;
    return SUMI_OK;
}

static void take_oldest(sumi_run* run, sumi_run_slice* out_slice)
{
    SUMI_ASSERT(run->pending_count > 0 && run->pending_count <= SUMI_RUNNER_DEPTH);
    SUMI_ASSERT(run->pending_begin >= 0 && run->pending_begin < SUMI_RUNNER_DEPTH);
    *out_slice = run->pending[run->pending_begin];
    run->pending_begin = (run->pending_begin + 1) % SUMI_RUNNER_DEPTH;
    run->pending_us -= out_slice->predicted_us;
    if (--run->pending_count == 0) run->pending_us = 0.0;
}

// Returns the oldest slice of the run whose end was not reported; NULL: there is none.
static sumi_run_slice* find_unreported(sumi_run* run)
{
    for (int32_t i = 0; i < run->pending_count; i++) {
        sumi_run_slice* slice = &run->pending[(run->pending_begin + i) % SUMI_RUNNER_DEPTH];
        if (slice->index >= 0 && !slice->is_over) return slice;
    }
    return NULL;
}

// Asks the runner once for all slices that have ended, and marks them. Slices of the draining run are older than those
// of the current run. Slices that neither run knows belong to a cancelled job and are the newest, because no run begins
// before they have ended; they are forgotten. Returns whether any had ended.
static bool mark_ended(sumi_engine* engine)
{
    sumi_slice_time times[SUMI_RUNNER_DEPTH];
    const int32_t count = engine->runner->async->collect(engine->runner, times, SUMI_RUNNER_DEPTH);
    SUMI_ASSERT(count >= 0 && count <= SUMI_RUNNER_DEPTH);
    for (int32_t i = 0; i < count; i++) {
        sumi_run_slice* slice = find_unreported(&engine->runs.draining);
        if (slice == NULL) slice = find_unreported(&engine->runs.current);
        if (slice == NULL) break;
        slice->us = times[i].us;
        slice->has_waits = times[i].has_waits;
        slice->has_delay = times[i].has_delay;
        slice->is_crowded = times[i].has_delay && times[i].delay_us > SUMI_MAX_DELAY_US;
        slice->is_over = true;
    }
    return count > 0;
}

static bool is_oldest_over(sumi_engine* engine, sumi_run* run)
{
    SUMI_ASSERT(run->pending_count > 0);
    const sumi_run_slice* oldest = &run->pending[run->pending_begin];
    if (oldest->index < 0 || oldest->is_over) return true;
    if (!engine->runs.has_others) (void)mark_ended(engine);
    engine->runs.has_others = engine->runner->async->pending(engine->runner) > 0;
    engine->runs.oldest_runs = !oldest->is_over;
    return !engine->runs.oldest_runs;
}

// Collects a slice of a job that was cancelled while it drained; no job asks for it any more.
static bool forget_older(sumi_engine* engine)
{
    sumi_run* run = &engine->runs.draining;
    sumi_run_slice slice;
    if (run->entry != NULL) return run->pending_count == 0;
    // the device is lost
    if (engine->runner->async->pending(engine->runner) == 0) run->pending_count = 0, run->pending_us = 0.0;
    while (run->pending_count > 0 && is_oldest_over(engine, run)) take_oldest(run, &slice);
    return run->pending_count == 0;
}

bool sumi_run_collect(sumi_engine* engine, sumi_run* run, sumi_run_slice* out_slice)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine) && (run == &engine->runs.current || run == &engine->runs.draining));
    if (run->pending_count == 0 || (run == &engine->runs.current && !forget_older(engine))
        || !is_oldest_over(engine, run))
        return false;
    take_oldest(run, out_slice);
    sumi_device_time_collect(&engine->runs.device, sumi_clock_ns(), sumi_run_pending_us(engine));
    if (out_slice->index >= 0) note_time(engine, run, out_slice);
    return true;
}

void sumi_run_begin_collecting(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    engine->runs.has_others = false;
}

void sumi_run_ask_again(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    engine->runs.has_others = false;
    engine->runs.oldest_runs = engine->runs.has_submitted = false;
}

double sumi_run_sleep_us(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    const int32_t count = engine->runs.current.pending_count + engine->runs.draining.pending_count;
    if (count == 0) return 0.0;
    const sumi_run* run = engine->runs.draining.pending_count > 0 ? &engine->runs.draining : &engine->runs.current;
    const sumi_run_slice* oldest = &run->pending[run->pending_begin];
    const sumi_in_flight in_flight = {.count = count,
                                      .pending_us = sumi_run_pending_us(engine),
                                      .oldest_us = (double)oldest->predicted_us,
                                      .oldest_submitted_ns = oldest->submitted_ns};
    return sumi_device_time_sleep_us(&engine->runs.device, &in_flight, sumi_clock_ns());
}

void sumi_run_begin_draining(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine) && engine->runs.current.entry != NULL && engine->runs.current.is_submitted);
    SUMI_ASSERT(engine->runs.draining.entry == NULL && engine->runs.draining.pending_count == 0);
    engine->runs.draining = engine->runs.current;
    engine->runs.current = (sumi_run){.entry = NULL};
}

static int32_t count_unreported(const sumi_run* run)
{
    SUMI_ASSERT(run->pending_count >= 0 && run->pending_count <= SUMI_RUNNER_DEPTH);
    int32_t count = 0;
    for (int32_t i = 0; i < run->pending_count; i++) {
        const sumi_run_slice* slice = &run->pending[(run->pending_begin + i) % SUMI_RUNNER_DEPTH];
        count += slice->index >= 0 && !slice->is_over;
    }
    return count;
}

bool sumi_run_is_only_draining(const sumi_engine* engine)
{
    return engine->runner->async->pending(engine->runner) == count_unreported(&engine->runs.draining);
}

// ---- Waiting for all of them ----------------------------------------------------------------------------------------

void sumi_run_wait_for_all(sumi_engine* engine)
{
    if (engine->runner == NULL) return;
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    const sumi_async_functions* async = engine->runner->async;
    while (async->pending(engine->runner) > 0) {
        if (mark_ended(engine)) continue;
        async->wait(engine->runner, 1);
        if (!mark_ended(engine)) break; // the device is lost: no slice will end
    }
}

bool sumi_run_is_idle(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    if (!forget_older(engine)) return false;
    if (engine->runs.current.entry == NULL) (void)mark_ended(engine);
    return engine->runner->async->pending(engine->runner) == 0;
}
