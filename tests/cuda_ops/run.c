// Runs cases and compares outputs.
#include "cuda_ops/run.h"
#include "at_once.h"
#include "base/platform.h"

run_settings g_run;

// ---- Running --------------------------------------------------------------------------------------------------------

const char* const g_run_modes[RUN_MODE_COUNT] = {"whole ops", "again, all ops in one slice", "parts in another order",
                                                 "small slices"};

static void scene_begin(scene* s, const op_case* c, case_data* store, const machine* m)
{
    memset(s, 0, sizeof *s);
    s->store = store;
    s->makes_data = store->block_count == 0;
    sumi_runner_begin_plan(m->runner, &s->plan, &g_run.heap);
    sumi_plan_section(&s->plan, SUMI_SECTION_DENOISE, c->repeat > 0 ? c->repeat : 1, c->counter);
    c->build(s, c);
}

static void add_used_weight(case_data* store, const sumi_weight* weight)
{
    for (int i = 0; i < store->used_weight_count; i++)
        if (store->used_weights[i] == weight) return;
    if (weight == NULL) return;
    if (store->used_weight_count == MAX_WEIGHTS * 2) abort();
    store->used_weights[store->used_weight_count++] = weight;
}
static void collect_used_weights(case_data* store, const sumi_plan* plan)
{
    for (size_t i = 0; i < plan->op_count; i++) {
        add_used_weight(store, plan->ops[i].weight);
        add_used_weight(store, plan->ops[i].bias);
        if (plan->ops[i].kind == SUMI_OP_QK_NORM_ROPE) add_used_weight(store, plan->ops[i].u.qk.k_weight);
    }
}

// Up to 12 slices per op, of uneven sizes.
static sumi_result slice_by_parts(sumi_plan* plan, sumi_error* error)
{
    sumi_section* section = &plan->sections[0];
    plan->slice_count = 0;
    for (int32_t i = 0; i < (int32_t)plan->op_count; i++) {
        int32_t parts = plan->ops[i].range_count, step = (parts + 9) / 10, count = 0;
        for (int32_t begin = 0; begin < parts; count++) {
            int32_t length = step + (step > 1 ? count % 3 - 1 : 0),
                    end = parts - begin < length || count == 11 ? parts : begin + length;
            sumi_result result = sumi_grow(plan->heap, (void**)&plan->slices, &plan->slice_capacity,
                                           plan->slice_count + 1, sizeof *plan->slices, error);
            if (result != SUMI_OK) return result;
            plan->slices[plan->slice_count++] = (sumi_slice){
                .op_begin = i, .op_end = i + 1, .range_begin = begin, .range_end = end, .predicted_us = 1.0f};
            begin = end;
        }
    }
    section->slice_begin = 0;
    section->slice_end = (int32_t)plan->slice_count;
    return SUMI_OK;
}

static void write_all(const machine* m, const sumi_plan* plan, sumi_value value, const unsigned char* data,
                      uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += 1 << 20)
        m->runner->functions->write(m->runner, plan, value, at, data + at, bytes - at < 1 << 20 ? bytes - at : 1 << 20);
}

// Fills the arena with 0xFF. A plan with one value as large as the arena is written over; the next plan gets the same
// arena.
static sumi_result fill_arena_with_nan(const machine* m, uint64_t arena_bytes, sumi_error* error)
{
    sumi_plan plan;
    sumi_runner_begin_plan(m->runner, &plan, &g_run.heap);
    sumi_plan_section(&plan, SUMI_SECTION_PREPARE, 1, 0);
    sumi_value all = sumi_plan_bound(&plan, "arena", SUMI_ELEMENT_BYTE, (int32_t)(arena_bytes / 4096 + 1), 4096);
    sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 1, 64); // because a plan must have an op
    sumi_plan_copy_rows(
        &plan,
        &(sumi_plan_copy_args){.x = x, .y = sumi_plan_bound(&plan, "y", SUMI_ELEMENT_ACTIVATION, 1, 64), .rows = 1});
    sumi_rates rates = m->runner->functions->rates(m->runner);
    sumi_result result = sumi_plan_finish(&plan, error);
    if (result == SUMI_OK) result = plan_slice(&plan, &rates, 0, error);
    if (result == SUMI_OK) result = plan_ready(m->runner, &plan, error);
    if (result == SUMI_OK) {
        uint64_t bytes = sumi_plan_info(&plan, all)->bytes;
        unsigned char* data = malloc((size_t)bytes);
        memset(data, 0xFF, (size_t)bytes);
        m->runner->functions->start(m->runner, &plan);
        write_all(m, &plan, all, data, bytes);
        write_all(m, &plan, x, data, sumi_plan_info(&plan, x)->bytes);
        result = plan_run_all(m->runner, &plan, NULL, error);
        free(data);
    }
    plan_release(m->runner, &plan);
    sumi_plan_end(&plan);
    return result;
}

static void write_inputs(const scene* s, const machine* m)
{
    m->runner->functions->start(m->runner, &s->plan);
    for (int i = 0; i < s->input_count; i++) {
        const sumi_value_info* info = sumi_plan_info(&s->plan, s->inputs[i].value);
        if (s->inputs[i].is_raw) {
            write_all(m, &s->plan, s->inputs[i].value, s->inputs[i].data, info->bytes);
            continue;
        }
        const float* x = s->inputs[i].data;
        uint64_t count = (uint64_t)info->rows * (uint64_t)info->cols;
        for (uint64_t at = 0; at < count; at += 1 << 18)
            plan_write_floats(m->runner, &s->plan, s->inputs[i].value, at, x + at,
                              count - at < 1 << 18 ? count - at : 1 << 18);
    }
}

// Rounds the output of an op to bfloat16, as a GPU stores it. The whole value is rounded after every slice: rounding
// again changes nothing.
static void round_output(const scene* s, const machine* m, int32_t op_index)
{
    sumi_value out = s->plan.ops[op_index].out;
    const sumi_value_info* info = sumi_plan_info(&s->plan, out);
    if (info->element != SUMI_ELEMENT_ACTIVATION) return;
    float* x = malloc((size_t)info->bytes);
    m->runner->functions->read(m->runner, &s->plan, out, 0, x, info->bytes);
    for (uint64_t k = 0; k < info->bytes / 4; k++) x[k] = round_to_bf16(x[k]);
    m->runner->functions->write(m->runner, &s->plan, out, 0, x, info->bytes);
    free(x);
}

static sumi_result run_once(const scene* s, const machine* m, bool backwards, sumi_error* error)
{
    const sumi_section* section = &s->plan.sections[0];
    sumi_result result = SUMI_OK;
    for (int32_t k = 0; k < section->repeat; k++) {
        for (int32_t i = section->slice_begin; result == SUMI_OK && i < section->slice_end;) {
            int32_t end = i + 1; // the slices of one op may run in any order
            while (backwards && end < section->slice_end && s->plan.slices[end].op_begin == s->plan.slices[i].op_begin)
                end++;
            for (int32_t j = end - 1; result == SUMI_OK && j >= i; j--) {
                const sumi_slice* slice = &s->plan.slices[j];
                if (!m->rounds_to_bf16) {
                    result = plan_run_slice(m->runner, &s->plan, slice, section->first_counter + k, NULL, error);
                    continue;
                }
                // also round between the ops of a slice
                for (int32_t op = slice->op_begin; result == SUMI_OK && op < slice->op_end; op++) {
                    sumi_slice one = *slice;
                    if (slice->op_end - slice->op_begin > 1)
                        one = (sumi_slice){.op_begin = op, .op_end = op + 1, .range_end = s->plan.ops[op].range_count};
                    result = plan_run_slice(m->runner, &s->plan, &one, section->first_counter + k, NULL, error);
                    round_output(s, m, op);
                }
            }
            i = end;
        }
    }
    return result == SUMI_OK ? runner_drain(m->runner, 0, NULL, error) : result;
}

bool run_case(const op_case* c, case_data* store, const machine* m, run_mode mode, void** outs, scene* s)
{
    sumi_error error = {0};
    scene_begin(s, c, store, m);
    sumi_rates rates = m->runner->functions->rates(m->runner);
    sumi_result result = sumi_plan_finish(&s->plan, &error);
    collect_used_weights(store, &s->plan);
    double us = 0.0;
    for (size_t i = 0; i < s->plan.op_count && result == SUMI_OK; i++)
        us += (double)sumi_plan_predict_us(&s->plan, &s->plan.ops[i], &rates);
    if (result == SUMI_OK)
        result = mode == RUN_PARTS ? slice_by_parts(&s->plan, &error)
               : mode == RUN_AGAIN
                   ? sumi_plan_slice(&s->plan, &(sumi_slicing){.rates = &rates, .gathered_us = 1u << 30}, &error)
                   : plan_slice(&s->plan, &rates, mode == RUN_SMALL ? (uint32_t)(us / 5.0) + 1 : 0, &error);
    if (result == SUMI_OK) result = fill_arena_with_nan(m, s->plan.arena_bytes, &error);
    if (result == SUMI_OK) result = plan_ready(m->runner, &s->plan, &error);
    for (int again = mode == RUN_AGAIN ? 0 : 1; again < 2 && result == SUMI_OK; again++) {
        write_inputs(s, m);
        result = run_once(s, m, mode == RUN_PARTS, &error);
    }
    for (int i = 0; i < s->output_count && result == SUMI_OK; i++) {
        outs[i] = malloc((size_t)sumi_plan_info(&s->plan, s->outputs[i].value)->bytes + 1);
        result = plan_read(m->runner, &s->plan, s->outputs[i].value, outs[i], &error);
    }
    plan_release(m->runner, &s->plan);
    if (result != SUMI_OK) printf("  %s on %s: %s\n", c->name, m->name, error.text);
    CHECK(result == SUMI_OK);
    return result == SUMI_OK;
}

void free_outs(void** outs)
{
    for (int i = 0; i < MAX_VALUES; i++) free(outs[i]), outs[i] = NULL;
}
// ---- Comparing ------------------------------------------------------------------------------------------------------

void compare_output(const op_case* c, const scene* s, int i, const machine* m, const void* got,
                    const machine* reference, const void* want, double* out_error)
{
    const sumi_value_info* info = sumi_plan_info(&s->plan, s->outputs[i].value);
    size_t cols = (size_t)info->cols, first = (size_t)s->outputs[i].rows.begin * cols,
           count = (size_t)s->outputs[i].rows.count * cols, all = (size_t)info->rows * cols;
    float *a = malloc(all * 4 + 4), *b = malloc(all * 4 + 4);
    plan_floats(m->runner, info->element, got, a, all);
    plan_floats(reference->runner, info->element, want, b, all);
    double difference = 0.0, size = 0.0, bound = s->outputs[i].bound;
    for (size_t k = first; k < first + count; k++) size += (double)b[k] * (double)b[k];
    double rms = sqrt(size / (double)count);
    // A single element may be off by half a unit of bfloat16, twice that if a tie is rounded the other way, for each of
    // the roundings that the bound allows; and by eight times what all elements are off by on average.
    double roundings = bound > STORED ? bound / STORED : 1.0;
    double relative = bound == EXACT                           ? 0.0
                    : info->element == SUMI_ELEMENT_ACTIVATION ? roundings / 128
                                                               : 8 * bound,
           absolute = 8 * bound * rms;
    int shown = 0;
    bool is_bytes = info->element == SUMI_ELEMENT_BYTE;
    for (size_t k = first; k < first + count; k++) {
        double d = fabs((double)a[k] - (double)b[k]);
        difference += d * d;
        bool is_good = is_bytes ? d <= 1.0
                                : d <= relative * fabs((double)b[k]) + absolute
                                      || (bound == EXACT && memcmp(&a[k], &b[k], 4) == 0);
        if (!is_good && shown++ < 3)
            printf("  %s on %s: output %d, row %zu, column %zu: %.9g, want %.9g\n", c->name, m->name, i, k / cols,
                   k % cols, (double)a[k], (double)b[k]);
    }
    double error = size > 0.0 ? sqrt(difference / size) : sqrt(difference);
    if (!(error <= *out_error)) *out_error = error; // NaN too
    if (is_bytes) bound = 2e-3;
    if (shown > 0 || !(error <= bound))
        printf("  %s on %s: output %d is off by %.3g, bound %.3g\n", c->name, m->name, i, error, bound);
    CHECK(shown == 0);
    CHECK(error <= bound);
    free(a);
    free(b);
}

void check_same_bits(const op_case* c, const scene* s, const char* name, const char* mode, void** got, void** want)
{
    for (int i = 0; i < s->output_count; i++) {
        const sumi_value_info* info = sumi_plan_info(&s->plan, s->outputs[i].value);
        size_t row = (size_t)(info->bytes / (uint64_t)info->rows);
        const unsigned char *a = (const unsigned char*)got[i] + (size_t)s->outputs[i].rows.begin * row,
                            *b = (const unsigned char*)want[i] + (size_t)s->outputs[i].rows.begin * row;
        bool same = memcmp(a, b, (size_t)s->outputs[i].rows.count * row) == 0;
        size_t at = 0;
        while (!same && a[at] == b[at]) at++;
        if (!same)
            printf("  %s on %s, %s: output %d has other bits, first in row %zu, byte %zu of it\n", c->name, name, mode,
                   i, at / row, at % row);
        CHECK(same);
    }
}

static void check_equal_pairs(const op_case* c, const scene* s, const machine* m, void** got)
{
    for (int i = 0; i < s->equal_pair_count; i++) {
        int a = s->equal_pairs[i].a, b = s->equal_pairs[i].b;
        if (s->equal_pairs[i].is_bf16 && m->rounds_to_bf16) continue;
        bool same = memcmp(got[a], got[b], (size_t)sumi_plan_info(&s->plan, s->outputs[a].value)->bytes) == 0;
        if (!same) printf("  %s on %s: outputs %d and %d have other bits\n", c->name, m->name, a, b);
        CHECK(same);
    }
}

void release_case_weights(const machine* m, const case_data* store)
{
    runner_release_weights(m->runner, store->used_weights, (size_t)store->used_weight_count);
}

// Of all values, and of weights, which count once for every op that reads them.
static uint64_t count_elements(const sumi_plan* plan)
{
    uint64_t count = 0;
    for (size_t v = 0; v < plan->value_count; v++)
        count += plan->values[v].base.id != 0 ? 0 : (uint64_t)plan->values[v].rows * (uint64_t)plan->values[v].cols;
    for (size_t i = 0; i < plan->op_count; i++)
        count +=
            plan->ops[i].weight != NULL ? (uint64_t)plan->ops[i].weight->rows * (uint64_t)plan->ops[i].weight->cols : 0;
    return count;
}

void run_case_on_machines(const op_case* c, const machine* reference, const machine* machines, const int* same_as,
                          int machine_count)
{
    case_data store = {.random = 0x9E3779B97F4A7C15u};
    scene s;
    void *want[MAX_VALUES] = {0}, *first[MAX_MACHINES][MAX_VALUES] = {{0}};
    bool ok = run_case(c, &store, reference, RUN_WHOLE, want, &s);
    uint64_t elements = count_elements(&s.plan);
    sumi_plan_end(&s.plan);
    for (int k = 0; k < machine_count && ok; k++) {
        const machine* m = &machines[k];
        double error = 0.0;
        for (run_mode mode = RUN_WHOLE; mode < RUN_MODE_COUNT && ok; mode++) {
            if ((same_as[k] >= 0 && mode != RUN_WHOLE && mode != RUN_SMALL) || (elements > LARGE && mode == RUN_SMALL))
                continue;
            void* outs[MAX_VALUES] = {0};
            ok = run_case(c, &store, m, mode, outs, &s);
            if (ok && mode == RUN_WHOLE && same_as[k] < 0)
                for (int i = 0; i < s.output_count; i++)
                    compare_output(c, &s, i, m, outs[i], reference, want[i], &error);
            if (ok) check_equal_pairs(c, &s, m, outs);
            if (ok && (mode != RUN_WHOLE || same_as[k] >= 0))
                check_same_bits(c, &s, m->name, g_run_modes[mode], outs, first[same_as[k] >= 0 ? same_as[k] : k]);
            if (ok && mode == RUN_WHOLE) memcpy(first[k], outs, sizeof outs), memset(outs, 0, sizeof outs);
            free_outs(outs);
            sumi_plan_end(&s.plan);
        }
        if (same_as[k] < 0) printf("  %-52s %-22s %.3g\n", c->name, m->name, error);
        release_case_weights(m, &store);
    }
    release_case_weights(reference, &store);
    for (int k = 0; k < MAX_MACHINES; k++) free_outs(first[k]);
    free_outs(want);
    for (int i = 0; i < store.block_count; i++) free(store.blocks[i]);
}

uint64_t count_case_elements(const op_case* c, bool* covered)
{
    scene s;
    case_data store = {.shapes_only = true};
    scene_begin(&s, c, &store, &g_run.reference);
    CHECK_TEXT(s.plan.error.text, "");
    uint64_t elements = count_elements(&s.plan);
    for (size_t k = 0; k < s.plan.op_count && covered != NULL; k++) covered[s.plan.ops[k].kind] = true;
    sumi_plan_end(&s.plan);
    for (int k = 0; k < store.block_count; k++) free(store.blocks[k]);
    return elements;
}

bool run_cases(const op_case* cases, size_t count)
{
    int tried = 0;
    for (size_t i = 0; i < count; i++) {
        if ((g_run.case_filter != NULL && strstr(cases[i].name, g_run.case_filter) == NULL)
            || count_case_elements(&cases[i], NULL) > g_run.max_elements)
            continue;
        run_case_on_machines(&cases[i], &g_run.reference, g_run.machines, g_run.same_as, g_run.machine_count);
        tried++;
    }
    g_run.case_count += tried;
    return tried > 0 || g_run.case_filter != NULL;
}
