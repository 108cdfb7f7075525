// Times: every slice has a prediction from the backend's rates and, once it has run, its own measured time. Before that the prediction is corrected by how wrong
// the predictions of the same kind of op were so far, in this plan or an earlier one. So a job's first step is paced by estimates, all later ones by measurements.
#include "engine/engine.h"

sumi_stage sumi_stage_of_section(sumi_section_kind kind)
{
    switch (kind) {
    case SUMI_SECTION_TEXT: return SUMI_STAGE_TEXT;
    case SUMI_SECTION_IMAGE: return SUMI_STAGE_IMAGE;
    case SUMI_SECTION_DENOISE: return SUMI_STAGE_DENOISE;
    case SUMI_SECTION_DECODE: return SUMI_STAGE_DECODE;
    case SUMI_SECTION_TRANSFER: return SUMI_STAGE_TRANSFER;
    default: return SUMI_STAGE_PREPARE;
    }
}

// Sections without slices (nothing to do for this request) are passed over.
static void skip_empty_sections(sumi_run* run)
{
    const sumi_plan* plan = &run->entry->plan;
    while (run->section < plan->section_count && plan->sections[run->section].slice_begin == plan->sections[run->section].slice_end) run->section++;
    if (run->section < plan->section_count) run->slice = plan->sections[run->section].slice_begin;
}

void sumi_run_begin(sumi_engine* engine, sumi_plan_entry* entry)
{
    engine->run = (sumi_run){.entry = entry};
    engine->runner->functions->start(engine->runner, &entry->plan);
    skip_empty_sections(&engine->run);
}

static double slice_us(const sumi_engine* engine, const sumi_plan_entry* entry, int32_t slice)
{
    if (entry->slice_us[slice] > 0.0f) return entry->slice_us[slice];
    const sumi_slice* at = &entry->plan.slices[slice];
    const sumi_op_kind kind = entry->plan.ops[at->op_begin].kind;
    const float ratio = engine->cache.op_ratio[kind];
    return at->predicted_us * (ratio > 0.0f ? ratio / entry->op_ratio[kind] : 1.0f);
}

double sumi_run_predict_us(const sumi_engine* engine)
{
    const sumi_run* run = &engine->run;
    return run->entry != NULL && run->section < run->entry->plan.section_count ? slice_us(engine, run->entry, run->slice) : 0.0;
}

double sumi_run_left_us(const sumi_engine* engine)
{
    const sumi_run* run = &engine->run;
    if (run->entry == NULL) return 0.0;
    const sumi_plan* plan = &run->entry->plan;
    double left = 0.0;
    for (size_t s = run->section; s < plan->section_count; s++) {
        double once = sumi_section_us(run->entry, s);
        if (s > run->section) {
            left += once * plan->sections[s].repeat;
            continue;
        }
        double rest = once - run->iteration_us;
        left += once * (plan->sections[s].repeat - 1 - run->iteration) + (rest > 0.0 ? rest : 0.0);
    }
    return left;
}

// What the slice says of its ops' kinds: each learns in proportion to its share.
static void learn_ratios(sumi_engine* engine, const sumi_plan_entry* entry, const sumi_slice* slice, double us)
{
    if (slice->predicted_us <= 0.0f) return;
    const sumi_rates rates = engine->runner->functions->rates(engine->runner);
    const double factor = us / slice->predicted_us;
    for (int32_t i = slice->op_begin; i < slice->op_end; i++) {
        const sumi_op* op = &entry->plan.ops[i];
        const bool is_alone = slice->op_end == slice->op_begin + 1;
        double share = is_alone ? 1.0 : sumi_plan_predict_us(&entry->plan, op, &rates) * entry->op_ratio[op->kind] / slice->predicted_us;
        double seen = entry->op_ratio[op->kind] * factor;
        seen = seen < 0.05 ? 0.05 : seen > 50.0 ? 50.0 : seen;
        float* ratio = &engine->cache.op_ratio[op->kind];
        double known = *ratio > 0.0f ? *ratio : 1.0, weight = (*ratio > 0.0f ? 0.25 : 1.0) * (share < 1.0 ? share : 1.0);
        *ratio = (float)(known + weight * (seen - known));
    }
}

static void note_time(sumi_engine* engine, double us)
{
    sumi_run* run = &engine->run;
    sumi_plan_entry* entry = run->entry;
    const sumi_slice* slice = &entry->plan.slices[run->slice];
    sumi_section_time* section = &entry->sections[run->section];
    float* measured = &entry->slice_us[run->slice];
    if (us < 0.1) us = 0.1; // 0 means unmeasured
    if (*measured <= 0.0f) {
        *measured = (float)us;
        section->measured_us += *measured;
        section->expected_us += slice->predicted_us;
        section->unmeasured_us -= slice->predicted_us;
        if (section->unmeasured_us < 0.0) section->unmeasured_us = 0.0;
    } else {
        float mean = 0.5f * (*measured + (float)us);
        section->measured_us += (double)mean - (double)*measured;
        *measured = mean;
    }
    learn_ratios(engine, entry, slice, us);
    run->iteration_us += *measured;
    run->done_us += us;
}

sumi_result sumi_run_slice(sumi_engine* engine, sumi_run_step* out_step, sumi_error* error)
{
    sumi_run* run = &engine->run;
    const sumi_plan* plan = &run->entry->plan;
    if (run->section >= plan->section_count) { // a plan of constants only
        *out_step = (sumi_run_step){.section = SUMI_SECTION_PREPARE, .ends_run = true};
        return SUMI_OK;
    }
    const sumi_section* section = &plan->sections[run->section];
    const sumi_slice* slice = &plan->slices[run->slice];
    *out_step = (sumi_run_step){.section = section->kind, .counter = section->first_counter + run->iteration, .op = &plan->ops[slice->op_begin]};

    uint64_t begin = sumi_clock_ns();
    SUMI_TRY(engine->runner->functions->run(engine->runner, plan, slice, out_step->counter, error));
    out_step->us = (double)(sumi_clock_ns() - begin) * 1e-3;
    note_time(engine, out_step->us);

    if (++run->slice < section->slice_end) return SUMI_OK;
    out_step->ends_iteration = true;
    run->iteration_us = 0.0;
    run->slice = section->slice_begin;
    if (++run->iteration < section->repeat) return SUMI_OK;
    run->iteration = 0;
    run->section++;
    skip_empty_sections(run);
    out_step->ends_run = run->section >= plan->section_count;
    return SUMI_OK;
}
