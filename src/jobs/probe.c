#include "jobs/probe.h"
#include "base/assert.h"
#include "base/result.h"
#include "jobs/engine_state.h"
#include "jobs/pieces.h"
#include "jobs/plan_cache.h"
#include "plan/ops.h"
#include "plan/plan.h"
#include "plan/runner.h"

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
        const sumi_slice op = {op_index, op_index + 1, 0, entry->plan.ops[op_index].range_count, 0.0f};
        SUMI_TRY(sumi_piece_run(engine, entry, &op, 0, 0.0, &probe->cursor, &is_over, error));
        is_over = is_over || probe->cursor.range >= entry->plan.ops[op_index].preparing_count + RANGES;
        if (is_over) note_ratio(engine, entry, op_index);
    }
    if (!is_over) return SUMI_OK;
    probe->cursor = (sumi_slice_cursor){.op = 0};
    if (++probe->kind == KIND_COUNT) guess_sections(engine, entry);
    return SUMI_OK;
}
