#include "jobs/pieces.h"
#include "base/assert.h"
#include "base/platform.h"
#include "base/result.h"
#include "jobs/engine_state.h"
#include "jobs/plan_cache.h"
#include "pacing/frame_limits.h"
#include "plan/ops.h"
#include "plan/plan.h"
#include "plan/runner.h"
#include "plan/weight.h"

// What an op may take before it has run, as a multiple of what the backend's rates predict. Convolutions of few
// channels and first uses of memory take three to four times as long.
#define HIGH_GUESS 4.0
// The same for a kind of op that was measured, as a multiple of the times that were measured.
#define HIGH_RATIO 1.5
// A time that was measured for very few ranges, or while the clock stood, says little about many.
#define MAX_GROWTH 4

static const sumi_op* op_at(const sumi_plan_entry* entry, const sumi_slice* slice, const sumi_slice_cursor* cursor)
{
    SUMI_ASSERT(cursor->op >= 0 && slice->op_begin + cursor->op < slice->op_end);
    const sumi_op* op = &entry->plan.ops[slice->op_begin + cursor->op];
    SUMI_ASSERT(cursor->range >= 0 && cursor->range < op->range_count);
    return op;
}

static bool prepares(const sumi_op* op, int32_t range) { return range < op->preparing_count; }

// Where the time of the op's first ranges is kept.
static float* first_us(const sumi_plan_entry* entry, const sumi_op* op, int32_t range)
{
    const size_t index = (size_t)(op - entry->plan.ops);
    SUMI_ASSERT(entry->range_us != NULL && index < entry->plan.op_count);
    return &entry->range_us[2 * index + (prepares(op, range) ? 1 : 0)];
}

static double guess_us(const sumi_engine* engine, const sumi_plan_entry* entry, const sumi_op* op, int32_t range)
{
    const sumi_rates rates = engine->runner->functions->rates(engine->runner);
    if (prepares(op, range)) { // weights, or keys and values, are read and written once
        const double bytes = op->weight != NULL ? 8.0 * (double)op->weight->rows * (double)op->weight->cols : op->bytes;
        return HIGH_GUESS * bytes / rates.bytes_per_us / op->preparing_count;
    }
    const double measured = HIGH_RATIO * (double)engine->cache.op_ratio[op->kind],
                 factor = measured > HIGH_GUESS ? measured : HIGH_GUESS;
    return factor * (double)sumi_plan_predict_us(&entry->plan, op, &rates) / (op->range_count - op->preparing_count);
}

static double next_range_us(const sumi_engine* engine, const sumi_plan_entry* entry, const sumi_op* op,
                            const sumi_slice_cursor* cursor)
{
    if (cursor->latest_count > 0) return cursor->range_us;
    const double known_us = (double)*first_us(entry, op, cursor->range);
    return known_us > 0.0 ? known_us : guess_us(engine, entry, op, cursor->range);
}

double sumi_piece_predict_us(const sumi_engine* engine, const sumi_plan_entry* entry, const sumi_slice* slice,
                             const sumi_slice_cursor* cursor)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    return next_range_us(engine, entry, op_at(entry, slice, cursor), cursor);
}

// How many ranges fit into the rest of a piece; all of one kind, preparing or not.
static int32_t fitting_count(const sumi_op* op, const sumi_slice_cursor* cursor, double range_us, double rest_us)
{
    const int32_t end = prepares(op, cursor->range) ? op->preparing_count : op->range_count;
    int32_t most = end - cursor->range;
    if (cursor->latest_count > 0 && most / MAX_GROWTH > cursor->latest_count) most = cursor->latest_count * MAX_GROWTH;
    const double fitting = range_us > 0.0 ? rest_us / range_us : (double)most;
    return fitting >= (double)most ? most : fitting > 0.0 ? (int32_t)fitting : 0;
}

static void note_ranges(const sumi_plan_entry* entry, const sumi_op* op, int32_t count, double us,
                        sumi_slice_cursor* cursor)
{
    const bool was_preparing = prepares(op, cursor->range);
    cursor->range_us = us / count;
    if (cursor->latest_count == 0) {
        *first_us(entry, op, cursor->range) = (float)cursor->range_us;
        cursor->least_us = cursor->range_us;
    }
    if (cursor->range_us < cursor->least_us) cursor->least_us = cursor->range_us;
    cursor->latest_count = count;
    cursor->us += us;
    cursor->range += count;
    if (cursor->range == op->range_count) {
        cursor->op++;
        cursor->range = 0;
    } else if (was_preparing == prepares(op, cursor->range)) {
        return;
    }
    cursor->latest_count = 0;
}

static double predicted_share(const sumi_engine* engine, const sumi_plan_entry* entry, const sumi_slice* slice,
                              const sumi_op* op, int32_t count)
{
    if (slice->predicted_us <= 0.0f) return 0.0;
    const sumi_rates rates = engine->runner->functions->rates(engine->runner);
    return (double)sumi_plan_predict_us(&entry->plan, op, &rates) * (double)entry->op_ratio[op->kind]
         / (double)slice->predicted_us * count / op->range_count;
}

sumi_result sumi_piece_run(sumi_engine* engine, const sumi_cut_slice* cut, bool* out_over, sumi_error* error)
{
    sumi_plan_entry* entry = cut->entry;
    const sumi_slice* slice = cut->slice;
    sumi_slice_cursor* cursor = cut->cursor;
    SUMI_ASSERT(sumi_pump_is_locked(engine) && entry->range_us != NULL);
    uint64_t begin_ns = sumi_clock_ns();
    const double limit_us = sumi_frame_limits_slice_us(&engine->frame, engine->desc.max_slice_us, begin_ns);
    double elapsed_us = 0.0;
    *out_over = false;
    while (!*out_over) {
        const sumi_op* op = op_at(entry, slice, cursor);
        const double range_us = next_range_us(engine, entry, op, cursor);
        int32_t count = fitting_count(op, cursor, range_us, limit_us - elapsed_us);
        if (count < 1 && elapsed_us > 0.0) break;
        if (count < 1) count = 1;
        const int32_t op_index = slice->op_begin + cursor->op;
        const sumi_slice ranges = {.op_begin = op_index,
                                   .op_end = op_index + 1,
                                   .range_begin = cursor->range,
                                   .range_end = cursor->range + count};
        SUMI_TRY(engine->runner->functions->run(engine->runner, &entry->plan, &ranges, cut->counter, error));
        const uint64_t end_ns = sumi_clock_ns();
        const double us =
            end_ns > begin_ns ? (double)(end_ns - begin_ns) * 1e-3 : 1e-3; // 0 means that nothing has run yet
        begin_ns = end_ns;
        elapsed_us += us;
        const double share = predicted_share(engine, entry, slice, op, count);
        cursor->share += share;
        cursor->believed_us += cut->known_us > 0.0 ? cut->known_us * share : us;
        note_ranges(entry, op, count, us, cursor);
        *out_over = slice->op_begin + cursor->op == slice->op_end;
    }
    return SUMI_OK;
}

// ---- Before a plan runs for the first time --------------------------------------------------------------------------

// How many work ranges are run at least, beside those that prepare. The least time of several is the one that counts,
// for other programs only make some of them longer.
#define RANGES 16

// The kinds that take a decoder's time. None of them reads numbers that index something, or adds to what is there.
static const sumi_op_kind s_kinds[] = {SUMI_OP_CONV, SUMI_OP_GROUP_SUMS, SUMI_OP_GROUP_NORM, SUMI_OP_ATTENTION,
                                       SUMI_OP_LINEAR};
#define KIND_COUNT ((int32_t)(sizeof s_kinds / sizeof *s_kinds))

static bool is_decoder(const sumi_plan* plan, const sumi_op* op)
{
    return plan->sections[op->section].kind == SUMI_SECTION_DECODE;
}

static double predicted_us(const sumi_engine* engine, const sumi_plan_entry* entry, const sumi_op* op)
{
    const sumi_rates rates = engine->runner->functions->rates(engine->runner);
    return (double)sumi_plan_predict_us(&entry->plan, op, &rates) * (double)entry->op_ratio[op->kind];
}

// The index of the decoder's op of this kind that takes longest; -1: it has none.
static int32_t find_largest(const sumi_engine* engine, const sumi_plan_entry* entry, sumi_op_kind kind)
{
    int32_t largest = -1;
    double largest_us = 0.0;
    for (size_t i = 0; i < entry->plan.op_count; i++) {
        const sumi_op* op = &entry->plan.ops[i];
        if (op->kind != kind || !is_decoder(&entry->plan, op)) continue;
        const double us = predicted_us(engine, entry, op);
        if (us > largest_us) largest = (int32_t)i, largest_us = us;
    }
    return largest;
}

static void note_ratio(const sumi_engine* engine, sumi_plan_entry* entry, int32_t op_index)
{
    const sumi_op* op = &entry->plan.ops[op_index];
    const double preparing_us = (double)entry->range_us[2 * (size_t)op_index + 1],
                 us = entry->probe.cursor.least_us * (op->range_count - op->preparing_count)
                    + preparing_us * op->preparing_count;
    entry->probe.ratio[op->kind] = (float)(us / predicted_us(engine, entry, op));
}

// What the sections of the decoder take in all, if their kinds of ops are as fast as those that were probed.
static void guess_sections(const sumi_engine* engine, sumi_plan_entry* entry)
{
    for (size_t s = 0; s < entry->plan.section_count; s++) {
        double us = 0.0, expected_us = 0.0;
        const sumi_section* section = &entry->plan.sections[s];
        for (int32_t i = section->op_begin; i < section->op_end && section->kind == SUMI_SECTION_DECODE; i++) {
            const sumi_op* op = &entry->plan.ops[i];
            const double op_us = predicted_us(engine, entry, op);
            expected_us += op_us;
            us += op_us * (entry->probe.ratio[op->kind] > 0.0f ? (double)entry->probe.ratio[op->kind] : 1.0);
        }
        if (expected_us > 0.0) entry->sections[s].probed_ratio = us / expected_us;
    }
}

void sumi_probe_begin(sumi_plan_entry* entry) { entry->probe.cursor = (sumi_slice_cursor){.op = 0}; }

sumi_result sumi_probe_run(sumi_engine* engine, sumi_plan_entry* entry, bool* out_done, sumi_error* error)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    sumi_probe* probe = &entry->probe;
    *out_done = entry->range_us == NULL || probe->kind >= KIND_COUNT;
    if (*out_done) return SUMI_OK;
    const int32_t op_index = find_largest(engine, entry, s_kinds[probe->kind]);
    bool is_over = true;
    if (op_index >= 0) {
        const sumi_slice op = {
            .op_begin = op_index, .op_end = op_index + 1, .range_end = entry->plan.ops[op_index].range_count};
        const sumi_cut_slice cut = {.entry = entry, .slice = &op, .cursor = &probe->cursor};
        SUMI_TRY(sumi_piece_run(engine, &cut, &is_over, error));
        is_over = is_over || probe->cursor.range >= entry->plan.ops[op_index].preparing_count + RANGES;
        if (is_over) note_ratio(engine, entry, op_index);
    }
    if (!is_over) return SUMI_OK;
    probe->cursor = (sumi_slice_cursor){.op = 0};
    if (++probe->kind == KIND_COUNT) guess_sections(engine, entry);
    return SUMI_OK;
}
