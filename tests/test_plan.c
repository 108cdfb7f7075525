#include "at_once.h"
#include "failing.h"
#include "plan/op_kinds.h"
#include "plan/validate.h"
#include "system.h"
#include "test.h"

static sumi_heap s_heap;
static const float s_ones[64 * 64] = {1.0f};

static sumi_weight make_weight(int32_t rows, int32_t cols)
{
    sumi_weight weight = {.name = "w", .rows = rows, .cols = cols, .tensor_count = 1};
    weight.tensors[0] = (sumi_stacked_tensor){.data = s_ones, .dtype = SUMI_DTYPE_F32, .rows = rows, .scale = 1.0f};
    return weight;
}

// The plan finishes, and breaks no invariant.
static void check_finish(sumi_plan* plan)
{
    sumi_error error = {0};
    CHECK_NUMBER(sumi_plan_finish(plan, &error), SUMI_OK);
    CHECK_NUMBER(sumi_plan_validate(plan, &error), SUMI_OK);
    CHECK_TEXT(error.text, "");
}

static const sumi_rates s_rates = {1000.0, 1000.0, 1.0};

// No two values that live at the same time may share a byte.
static void check_no_overlap(const sumi_plan* plan)
{
    for (size_t a = 0; a < plan->value_count; a++) {
        for (size_t b = a + 1; b < plan->value_count; b++) {
            const sumi_value_info *x = &plan->values[a], *y = &plan->values[b];
            bool meets =
                x->first_use >= 0 && y->first_use >= 0 && x->first_use <= y->last_use && y->first_use <= x->last_use;
            CHECK(!meets || x->offset + x->bytes <= y->offset || y->offset + y->bytes <= x->offset);
        }
        CHECK(plan->values[a].first_use < 0 || plan->values[a].offset + plan->values[a].bytes <= plan->arena_bytes);
        CHECK(plan->values[a].offset % SUMI_ALIGNMENT == 0);
    }
}

TEST(plan_reuses_memory_of_dead_values)
{
    sumi_weight w = make_weight(64, 64);
    sumi_plan plan;
    sumi_plan_begin(&plan, &s_heap, 4);
    sumi_plan_section(&plan, SUMI_SECTION_PREPARE, 1, 0);
    sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 16, 64);
    for (int i = 0; i < 10; i++) {
        x = sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "chain", .x = x, .weight = &w});
    }
    check_finish(&plan);
    check_no_overlap(&plan);
    CHECK_NUMBER(plan.arena_bytes, 3 * 16 * 64 * 4); // the input and two that alternate
    sumi_plan_end(&plan);
}

TEST(plan_keeps_values_that_cross_into_a_repeated_section)
{
    sumi_weight w = make_weight(64, 64);
    sumi_plan plan;
    sumi_plan_begin(&plan, &s_heap, 4);
    sumi_plan_section(&plan, SUMI_SECTION_PREPARE, 1, 0);
    sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 16, 64);
    sumi_value once = sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "once", .x = x, .weight = &w});
    sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 8, 0);
    sumi_value y = sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "reads once", .x = once, .weight = &w});
    for (int i = 0; i < 4; i++) {
        y = sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "loop", .x = y, .weight = &w});
    }
    check_finish(&plan);
    CHECK_NUMBER(sumi_plan_info(&plan, once)->last_use, (int)plan.op_count - 1);
    CHECK_NUMBER(plan.total_flops, 2.0 * 16 * 64 * 64 * (1 + 8 * 5));
    check_no_overlap(&plan);
    sumi_plan_end(&plan);
}

TEST(plan_arena_has_no_overlaps_for_random_graphs)
{
    uint32_t state = 7;
    for (int trial = 0; trial < 50; trial++) {
        sumi_plan plan;
        sumi_plan_begin(&plan, &s_heap, 2);
        sumi_value values[40];
        int count = 0;
        values[count++] = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 8, 32);
        for (int i = 0; i < 39; i++) {
            state = state * 1664525u + 1013904223u;
            if (i % 9 == 0) sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 1 + (int)(state >> 30), 0);
            sumi_value from = values[(state >> 16) % (uint32_t)count];
            values[count++] = sumi_plan_activate(&plan, from, SUMI_ACT_SILU);
        }
        check_finish(&plan);
        check_no_overlap(&plan);
        sumi_plan_end(&plan);
    }
}

// What a section leaves to its alternative lives until both have ended, and so does what both read from before. Breaking
// that is detected.
TEST(plan_values_live_through_a_section_and_its_alternative)
{
    static const char* const s_messages[] = {"lives until both end", "lives until the section ends",
                                             "has the kind and the counters of the section before it",
                                             "value kept: row 0 is read, but", ""};
    for (int broken = 0; broken < 5; broken++) {
        sumi_error error = {0};
        sumi_plan plan;
        sumi_plan_begin(&plan, &s_heap, 4);
        sumi_plan_section(&plan, SUMI_SECTION_PREPARE, 1, 0);
        sumi_value input = sumi_plan_bound(&plan, "input", SUMI_ELEMENT_ACTIVATION, 16, 64),
                   state = sumi_plan_bound(&plan, "state", SUMI_ELEMENT_ACTIVATION, 16, 64),
                   kept = sumi_plan_value(&plan, "kept", SUMI_ELEMENT_ACTIVATION, 16, 64);
        sumi_value table = sumi_plan_activate(&plan, input, SUMI_ACT_SILU);
        sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 5, 2);
        sumi_value whole = sumi_plan_activate(&plan, table, SUMI_ACT_SILU);
        if (broken != 3) sumi_plan_copy_rows(&plan, &(sumi_plan_copy_args){.x = whole, .y = kept});
        sumi_plan_activate(&plan, whole, SUMI_ACT_SILU);
        sumi_plan_copy_rows(&plan, &(sumi_plan_copy_args){.x = whole, .y = state});
        sumi_plan_alternative(&plan);
        sumi_plan_copy_rows(&plan, &(sumi_plan_copy_args){.x = kept, .y = state});
        sumi_value other = sumi_plan_activate(&plan, state, SUMI_ACT_SILU);
        other = sumi_plan_activate(&plan, other, SUMI_ACT_SILU);
        sumi_plan_section(&plan, SUMI_SECTION_DECODE, 1, 0);
        sumi_plan_activate(&plan, state, SUMI_ACT_SILU);
        if (broken == 3) {
            const sumi_result result = sumi_plan_finish(&plan, &error);
            if (result == SUMI_OK) CHECK(sumi_plan_validate(&plan, &error) == SUMI_INTERNAL);
            CHECK(strstr(error.text, s_messages[broken]) != NULL);
            sumi_plan_end(&plan);
            continue;
        }
        check_finish(&plan);
        check_no_overlap(&plan);
        const int32_t last = plan.sections[2].op_end - 1;
        CHECK(!plan.sections[1].is_alternative && plan.sections[2].is_alternative);
        CHECK(sumi_plan_has_alternative(&plan, 1) && !sumi_plan_has_alternative(&plan, 2));
        CHECK_NUMBER(plan.sections[2].repeat, 5);
        CHECK_NUMBER(plan.sections[2].first_counter, 2);
        CHECK_NUMBER(sumi_plan_info(&plan, kept)->last_use, last);
        CHECK_NUMBER(sumi_plan_info(&plan, table)->last_use, last);
        CHECK(sumi_plan_info(&plan, whole)->last_use < plan.sections[1].op_end);
        if (broken == 0) plan.values[kept.id - 1].last_use--;
        if (broken == 1) plan.values[table.id - 1].last_use = plan.sections[1].op_end - 2;
        if (broken == 2) plan.sections[2].repeat = 4;
        CHECK_NUMBER(sumi_plan_validate(&plan, &error), broken < 4 ? SUMI_INTERNAL : SUMI_OK);
        CHECK(strstr(error.text, s_messages[broken]) != NULL);
        sumi_plan_end(&plan);
    }
    sumi_plan plan; // there is nothing to be an alternative to
    sumi_plan_begin(&plan, &s_heap, 4);
    sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 5, 0);
    sumi_plan_alternative(&plan);
    CHECK_NUMBER(plan.error.result, SUMI_INTERNAL);
    sumi_plan_end(&plan);
}

TEST(plan_views_lie_in_their_base_and_keep_it_alive)
{
    sumi_weight w = make_weight(16, 64);
    sumi_plan plan;
    sumi_plan_begin(&plan, &s_heap, 2);
    sumi_plan_section(&plan, SUMI_SECTION_DECODE, 1, 0);
    sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 8, 64);
    sumi_value wide = sumi_plan_value(&plan, "wide", SUMI_ELEMENT_ACTIVATION, 24, 64);
    sumi_value rows = sumi_plan_view(&plan, "rows", wide, (sumi_span){8, 8}, (sumi_span){0, 64});
    sumi_value part = sumi_plan_view(&plan, "part", rows, (sumi_span){2, 4}, (sumi_span){16, 32});
    sumi_plan_linear(
        &plan, &(sumi_plan_linear_args){
                   .label = "first", .x = x, .weight = &w, .y = rows, .writes_some_columns = true, .y_column = 16});
    sumi_value between = sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "between", .x = x, .weight = &w});
    sumi_plan_group_sums(&plan, "sums", part, 4);
    check_finish(&plan);
    const sumi_value_info *base = sumi_plan_info(&plan, wide), *view = sumi_plan_info(&plan, part);
    CHECK_NUMBER(view->offset, base->offset + (10 * 64 + 16) * 2);
    CHECK_NUMBER(view->pitch, 64);
    CHECK_NUMBER(view->bytes, (3 * 64 + 32) * 2);
    CHECK_NUMBER(view->cut_from.id, rows.id);
    CHECK_NUMBER(view->base.id, wide.id);
    CHECK_NUMBER(base->first_use, 0);
    CHECK_NUMBER(base->last_use, 2);
    CHECK(sumi_plan_info(&plan, between)->offset >= base->offset + base->bytes
          || sumi_plan_info(&plan, between)->offset + 8 * 16 * 2 <= base->offset);
    sumi_plan_end(&plan);
}

TEST(plan_refuses_views_where_they_cannot_be)
{
    sumi_weight w = make_weight(64, 32);
    sumi_error error = {0};
    for (int wrong = 0; wrong < 5; wrong++) {
        sumi_plan plan;
        sumi_plan_begin(&plan, &s_heap, 4);
        sumi_plan_section(&plan, SUMI_SECTION_DECODE, 1, 0);
        sumi_value bound = sumi_plan_bound(&plan, "bound", SUMI_ELEMENT_ACTIVATION, 8, 64),
                   wide = sumi_plan_value(&plan, "wide", SUMI_ELEMENT_ACTIVATION, 8, 64);
        sumi_plan_copy_rows(&plan, &(sumi_plan_copy_args){.x = bound, .y = wide, .rows = 8});
        if (wrong == 0) sumi_plan_view(&plan, "of what is bound", bound, (sumi_span){0, 8}, (sumi_span){0, 64});
        if (wrong == 1) sumi_plan_view(&plan, "too many rows", wide, (sumi_span){1, 8}, (sumi_span){0, 64});
        if (wrong == 2) sumi_plan_view(&plan, "too many columns", wide, (sumi_span){0, 8}, (sumi_span){33, 32});
        if (wrong == 3) {
            sumi_value columns = sumi_plan_view(&plan, "columns", wide, (sumi_span){0, 8}, (sumi_span){0, 32});
            sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "some columns", .x = columns, .weight = &w});
        }
        if (wrong == 4) sumi_plan_share(&plan, wide, bound);
        CHECK_NUMBER(sumi_plan_finish(&plan, &error), SUMI_INTERNAL);
        sumi_plan_end(&plan);
    }
}

// A guest takes its host's first bytes, unless something that lives with it is there.
TEST(plan_lets_a_guest_lie_in_its_host)
{
    sumi_weight w = make_weight(64, 64);
    for (int crowded = 0; crowded < 2; crowded++) {
        sumi_plan plan;
        sumi_plan_begin(&plan, &s_heap, 4);
        sumi_plan_section(&plan, SUMI_SECTION_DECODE, 1, 0);
        sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 8, 64), large = SUMI_NO_VALUE;
        if (crowded) {
            large = sumi_plan_value(&plan, "larger than the host", SUMI_ELEMENT_ACTIVATION, 64, 64);
            sumi_plan_linear(&plan,
                             &(sumi_plan_linear_args){.label = "large", .x = x, .rows = 8, .weight = &w, .y = large});
        }
        sumi_value guest = sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "guest", .x = x, .weight = &w});
        if (crowded) {
            sumi_plan_linear(&plan,
                             &(sumi_plan_linear_args){
                                 .label = "alive with the guest", .x = large, .rows = 8, .weight = &w, .y = guest});
        }
        sumi_value host = sumi_plan_value(&plan, "host", SUMI_ELEMENT_ACTIVATION, 32, 64);
        sumi_plan_share(&plan, guest, host);
        sumi_plan_linear(&plan, &(sumi_plan_linear_args){
                                    .label = "host", .x = guest, .rows = 8, .weight = &w, .y = host, .y_row = 24});
        check_finish(&plan);
        const sumi_value_info *a = sumi_plan_info(&plan, guest), *b = sumi_plan_info(&plan, host),
                              *c = sumi_plan_info(&plan, large);
        CHECK_NUMBER(a->offset == b->offset, !crowded);
        CHECK(!crowded || a->offset >= c->offset + c->bytes || a->offset + a->bytes <= c->offset);
        CHECK(!crowded || a->offset >= b->offset + b->bytes || a->offset + a->bytes <= b->offset);
        sumi_plan_end(&plan);
    }
}

// A table of solver rows that ops write lives until the solver has read it, as any value: it is none of the six inputs.
TEST(plan_keeps_a_solver_table_until_it_is_read)
{
    sumi_plan plan;
    sumi_plan_begin(&plan, &s_heap, 4);
    sumi_value given = sumi_plan_bound(&plan, "given", SUMI_ELEMENT_FLOAT, 4, 12),
               x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_FLOAT, 4, 64);
    sumi_plan_section(&plan, SUMI_SECTION_PREPARE, 1, 0);
    sumi_value table = sumi_plan_value(&plan, "table", SUMI_ELEMENT_FLOAT, 4, 12), v = SUMI_NO_VALUE;
    sumi_plan_copy_rows(&plan, &(sumi_plan_copy_args){.x = given, .y = table});
    sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 4, 0);
    v = sumi_plan_activate(&plan, x, SUMI_ACT_SILU);
    sumi_plan_solve(&plan, &(sumi_plan_solve_args){.x = x, .v = v, .row = {table, 0, true}, .channels = 4});
    check_finish(&plan);
    CHECK_NUMBER(sumi_plan_info(&plan, table)->last_use, 2);
    check_no_overlap(&plan);
    sumi_plan_end(&plan);
}

// A backend that multiplies and gates in one kernel, and normalises what it has just added.
static void arrange_pairs(const struct sumi_runner* runner, sumi_plan* plan)
{
    CHECK(runner == NULL);
    for (size_t i = 0; i + 1 < plan->op_count; i++) {
        sumi_op *op = &plan->ops[i], *next = op + 1;
        sumi_value_info* between = &plan->values[op->out.id - 1];
        CHECK(!op->is_first_of_pair && op->marks == 0 && !between->is_unstored && between->marks == 0);
        if (next->in[0].id != op->out.id || next->section != op->section) continue;
        const bool is_gate =
            op->kind == SUMI_OP_LINEAR && !op->u.linear.is_adapter_product && next->kind == SUMI_OP_GATED;
        op->is_first_of_pair = is_gate || (op->kind == SUMI_OP_NORM_GATE_ADD && next->kind == SUMI_OP_NORM_MODULATE);
        between->is_unstored = is_gate && !between->bound && between->last_use == (int32_t)i + 1;
        op->marks = between->marks = 7;
    }
}

// Gate and up together are never written where one kernel makes what is read; with an adapter between, or where each op
// is done by itself, they are.
TEST(plan_gives_no_memory_to_a_value_inside_a_pair)
{
    sumi_weight w = make_weight(64, 64);
    w.index = 1;
    sumi_delta delta = {.weight_index = 1, .scale = 1.0f, .down = make_weight(4, 64), .up = make_weight(64, 4)};
    sumi_adapter adapter = {&delta, 1};
    sumi_adapter_use use = {&adapter, 1.0f};
    for (int k = 0; k < 4; k++) {
        bool is_pair = k == 0;
        sumi_plan plan;
        sumi_plan_begin(&plan, &s_heap, 2);
        if (k != 1) plan.arrange = arrange_pairs;
        sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 2, 0);
        sumi_plan_adapters(&plan, &use, k == 2);
        sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 16, 64);
        sumi_value y = sumi_plan_linear_gated(&plan, "gated", x, &w, SUMI_ACT_SILU);
        if (k == 3) { // it is looked at
            check_finish(&plan);
            CHECK(sumi_plan_info(&plan, plan.ops[0].out)->is_unstored);
            plan.values[plan.ops[0].out.id - 1].bound = true;
        }
        check_finish(&plan);
        const sumi_value_info* both = sumi_plan_info(&plan, plan.ops[0].out);
        CHECK_NUMBER(both->bytes, is_pair ? 0 : 16 * 64 * 2);
        CHECK_NUMBER(both->is_unstored, is_pair);
        CHECK(!is_pair || plan.arena_bytes == 16 * 96 * 2);
        CHECK_NUMBER(plan.ops[0].is_first_of_pair, k == 0 || k == 3);
        CHECK(sumi_plan_info(&plan, y)->bytes > 0);
        check_no_overlap(&plan);
        sumi_plan_end(&plan);
    }
}

// The second result of a pair is written while the first op's inputs are read: it does not lie in their place.
TEST(plan_keeps_apart_what_a_pair_reads_and_writes)
{
    for (int k = 0; k < 2; k++) {
        sumi_plan plan;
        sumi_plan_begin(&plan, &s_heap, 4);
        if (k == 1) plan.arrange = arrange_pairs;
        sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 2, 0);
        sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 16, 64);
        sumi_value b = sumi_plan_activate(&plan, x, SUMI_ACT_SILU);
        sumi_plan_norm_gate_add(&plan, &(sumi_plan_norm_gate_add_args){.label = "sum", .x = x, .branch = b, .eps = 1});
        sumi_value n = sumi_plan_norm(&plan, &(sumi_plan_norm_args){.label = "norm", .x = x, .eps = 1});
        check_finish(&plan);
        CHECK_NUMBER(sumi_plan_info(&plan, n)->first_use, k == 1 ? 1 : 2);
        CHECK_NUMBER(sumi_plan_info(&plan, n)->offset == sumi_plan_info(&plan, b)->offset, k == 0);
        CHECK_NUMBER(plan.ops[1].marks, k == 1 ? 7 : 0);
        CHECK(sumi_plan_info(&plan, x)->bytes == 16 * 64 * 4); // stored: x is bound
        check_no_overlap(&plan);
        sumi_plan_end(&plan);
    }
}

// Slices cover every part of every op once, in order, whatever the bound.
static void check_slices(const sumi_plan* plan)
{
    size_t slice = 0;
    for (size_t s = 0; s < plan->section_count; s++) {
        int32_t op = plan->sections[s].op_begin, part = 0;
        CHECK_NUMBER(plan->sections[s].slice_begin, slice);
        for (; slice < (size_t)plan->sections[s].slice_end; slice++) {
            const sumi_slice* piece = &plan->slices[slice];
            CHECK_NUMBER(piece->op_begin, op);
            CHECK(piece->op_end > piece->op_begin);
            if (piece->op_end == piece->op_begin + 1) {
                CHECK_NUMBER(piece->range_begin, part);
                CHECK(piece->range_end > piece->range_begin);
                part = piece->range_end;
                if (part == plan->ops[op].range_count) op++, part = 0;
            } else {
                CHECK_NUMBER(part, 0);
                op = piece->op_end;
            }
        }
        CHECK_NUMBER(op, plan->sections[s].op_end);
        CHECK_NUMBER(part, 0);
    }
    CHECK_NUMBER(slice, plan->slice_count);
}

// The last part of an op may have far fewer rows than the others, and takes as much less time.
TEST(parts_are_predicted_by_their_rows)
{
    sumi_weight big = make_weight(512, 512);
    sumi_plan plan;
    sumi_plan_begin(&plan, &s_heap, 4);
    sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 1, 0);
    sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 4000, 512);
    sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "l", .x = x, .weight = &big});
    check_finish(&plan);
    const sumi_op* op = &plan.ops[0];
    const int32_t rest = op->rows - (op->range_count - 1) * op->range_rows;
    CHECK(op->range_count >= 3 && rest < op->range_rows);
    const float whole = sumi_plan_predict_us(&plan, op, &s_rates);
    CHECK_NUMBER(plan_slice(&plan, &s_rates, 1, NULL), SUMI_OK); // every part alone
    CHECK_NUMBER(plan.slice_count, op->range_count);
    for (size_t i = 0; i < plan.slice_count; i++) {
        const int32_t rows = i + 1 < plan.slice_count ? op->range_rows : rest;
        const float expected = whole * (float)rows / (float)op->rows, off = plan.slices[i].predicted_us - expected;
        CHECK(off <= 1e-4f * whole && off >= -1e-4f * whole);
    }
    sumi_plan_end(&plan);
}

TEST(plan_slices_cover_all_work_and_respect_the_bound)
{
    sumi_weight big = make_weight(64, 64);
    sumi_plan plan;
    sumi_plan_begin(&plan, &s_heap, 4);
    for (int s = 0; s < 3; s++) {
        sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 2, 0);
        sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 1000 + s, 64);
        for (int i = 0; i < 5; i++) {
            x = sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "l", .x = x, .weight = &big});
            x = sumi_plan_activate(&plan, x, SUMI_ACT_SILU);
        }
    }
    check_finish(&plan);
    size_t before = 0;
    for (uint32_t bound = 0; bound <= 65536; bound = bound == 0 ? 1 : bound * 4) {
        CHECK_NUMBER(plan_slice(&plan, &s_rates, bound, NULL), SUMI_OK);
        check_slices(&plan);
        CHECK_NUMBER(sumi_plan_validate(&plan, NULL), SUMI_OK);
        for (size_t i = 0; i < plan.slice_count && bound > 0; i++) {
            const sumi_slice* slice = &plan.slices[i];
            bool single_part = slice->op_end == slice->op_begin + 1 && slice->range_end - slice->range_begin == 1;
            CHECK(slice->predicted_us <= (float)bound * 1.001f || single_part);
        }
        CHECK(bound <= 1 || plan.slice_count <= before);
        before = plan.slice_count;
    }
    sumi_plan_end(&plan);
}

// Groups hold the slices of each section, in order, as many as their time has room for.
static void check_groups(const sumi_plan* plan, float grouped_us)
{
    int32_t group_count = 0;
    for (size_t s = 0; s < plan->section_count; s++) {
        const sumi_section* section = &plan->sections[s];
        for (int32_t i = section->slice_begin, count; i < section->slice_end; i += count) {
            float us = 0.0f;
            count = plan->slices[i].group_count;
            group_count++;
            CHECK(count >= 1 && i + count <= section->slice_end);
            if (count < 1) return;
            for (int32_t k = i; k < i + count; k++) {
                us += plan->slices[k].predicted_us;
                CHECK(k == i || plan->slices[k].group_count == 1);
            }
            CHECK(count == 1 || us <= grouped_us * 1.001f);
            CHECK(i + count == section->slice_end || us + plan->slices[i + count].predicted_us > grouped_us * 0.999f);
        }
    }
    CHECK_NUMBER(sumi_plan_count_groups(plan, &(sumi_grouping){.grouped_us = (uint32_t)grouped_us}), group_count);
}

TEST(plan_slices_are_grouped)
{
    sumi_weight big = make_weight(64, 64);
    sumi_plan plan;
    sumi_plan_begin(&plan, &s_heap, 4);
    for (int s = 0; s < 2; s++) {
        sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 2, 0);
        sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 1000 + s, 64);
        for (int i = 0; i < 5; i++)
            x = sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "l", .x = x, .weight = &big});
    }
    check_finish(&plan);
    CHECK_NUMBER(plan_slice(&plan, &s_rates, 100, NULL), SUMI_OK);
    check_groups(&plan, 0.0f);
    for (uint32_t grouped_us = 150; grouped_us < 100000; grouped_us *= 3) {
        const sumi_slicing slicing = {.rates = &s_rates, .max_us = 100, .gathered_us = 100, .grouped_us = grouped_us};
        CHECK_NUMBER(sumi_plan_slice(&plan, &slicing, NULL), SUMI_OK);
        check_slices(&plan);
        check_groups(&plan, (float)grouped_us);
    }
    // By times of their own: slices that take ten times as long.
    float* times_us = malloc(plan.slice_count * sizeof *times_us);
    for (size_t i = 0; i < plan.slice_count; i++) times_us[i] = 10.0f * plan.slices[i].predicted_us;
    const sumi_grouping grouping = {times_us, 3000};
    const int32_t count = sumi_plan_count_groups(&plan, &grouping);
    sumi_plan_group_slices(&plan, &grouping);
    CHECK_NUMBER(sumi_plan_count_groups(&plan, &(sumi_grouping){.grouped_us = 300}), count);
    check_groups(&plan, 300.0f);
    free(times_us);
    sumi_plan_end(&plan);
}

// Every kind has its line in the table, and what a verb writes over is what the line allows.
TEST(plan_ops_write_over_their_inputs_only_where_the_table_says_so)
{
    for (int32_t kind = 0; kind < SUMI_OP_KIND_COUNT; kind++) {
        const sumi_op_kind_info* info = sumi_op_kind_get((sumi_op_kind)kind);
        CHECK(info->name != NULL && strcmp(info->name, sumi_op_name((sumi_op_kind)kind)) == 0);
        CHECK(info->rows != NULL && info->range_rows != NULL);
        CHECK((info->bytes != NULL) != (info->output_count > 0));
        CHECK(info->in_place != 0 || !info->is_always_in_place);
    }
    sumi_weight w = make_weight(64, 64), b = make_weight(1, 64);
    for (int wrong = 0; wrong < 4; wrong++) {
        sumi_error error = {0};
        sumi_plan plan;
        sumi_plan_begin(&plan, &s_heap, 4);
        sumi_plan_section(&plan, SUMI_SECTION_PREPARE, 1, 0);
        sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 16, 64);
        sumi_value y = sumi_plan_bound(&plan, "y", SUMI_ELEMENT_ACTIVATION, 16, 64);
        // a sum may take the place of the residual, a group norm that of its input; a product and a convolution may not
        sumi_plan_linear(&plan, &(sumi_plan_linear_args){
                                    .label = "product", .x = x, .weight = &w, .y = wrong == 1 ? x : SUMI_NO_VALUE});
        sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "sum", .x = y, .weight = &w, .residual = x});
        sumi_plan_group_norm(&plan,
                             &(sumi_plan_group_norm_args){
                                 .label = "norm", .x = x, .weight = &b, .bias = &b, .groups = 4, .eps = 1e-6f, .y = x});
        sumi_plan_conv(&plan, &(sumi_plan_conv_args){.label = "conv",
                                                     .x = x,
                                                     .weight = &w,
                                                     .shape = {.height = 4, .width = 4, .kernel = 1},
                                                     .y = wrong == 2 ? x : SUMI_NO_VALUE});
        if (wrong == 3) sumi_plan_add_noise(&plan, x, x, SUMI_NO_ROW, x);
        CHECK_NUMBER(sumi_plan_finish(&plan, &error), wrong == 0 ? SUMI_OK : SUMI_INTERNAL);
        CHECK(wrong == 0 || strstr(error.text, "cannot write over") != NULL);
        sumi_plan_end(&plan);
    }
}

// A member that is left out means the usual: all rows, a new output, a 3 x 3 convolution of stride 1.
TEST(plan_arguments_that_are_left_out_mean_the_usual)
{
    sumi_weight w = make_weight(32, 64), square = make_weight(8, 8 * 9);
    sumi_plan plan;
    sumi_plan_begin(&plan, &s_heap, 4);
    sumi_plan_section(&plan, SUMI_SECTION_PREPARE, 1, 0);
    sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 16, 64);
    sumi_value all = sumi_plan_norm(&plan, &(sumi_plan_norm_args){.label = "norm", .x = x, .eps = 1e-6f});
    sumi_value rest = sumi_plan_norm(&plan, &(sumi_plan_norm_args){.label = "norm", .x = x, .x_row = 5, .eps = 1e-6f});
    sumi_value some = sumi_plan_linear(
        &plan, &(sumi_plan_linear_args){.label = "some", .x = all, .x_row = 2, .rows = 3, .weight = &w});
    sumi_value last = sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "last", .x = rest, .weight = &w});
    sumi_plan_copy_rows(&plan, &(sumi_plan_copy_args){.x = some, .y = last, .y_row = 8});
    sumi_value pixels = sumi_plan_bound(&plan, "pixels", SUMI_ELEMENT_ACTIVATION, 5 * 6, 8);
    sumi_value conv = sumi_plan_conv(
        &plan,
        &(sumi_plan_conv_args){.label = "conv", .x = pixels, .weight = &square, .shape = {.height = 5, .width = 6}});
    CHECK_NUMBER(sumi_plan_finish(&plan, NULL), SUMI_OK);
    CHECK_NUMBER(sumi_plan_info(&plan, all)->rows, 16);
    CHECK_NUMBER(sumi_plan_info(&plan, rest)->rows, 11);
    CHECK_NUMBER(sumi_plan_info(&plan, some)->rows, 3);
    CHECK_NUMBER(sumi_plan_info(&plan, last)->rows, 11);
    CHECK_NUMBER(plan.ops[4].rows, 3); // the copy
    CHECK_NUMBER(sumi_plan_info(&plan, conv)->rows, 5 * 6);
    CHECK(plan.ops[5].u.conv.kernel == 3 && plan.ops[5].u.conv.stride == 1);
    sumi_plan_end(&plan);
}

TEST(plan_keeps_the_first_writing_error)
{
    sumi_weight w = make_weight(64, 32);
    sumi_plan plan;
    sumi_plan_begin(&plan, &s_heap, 4);
    sumi_plan_section(&plan, SUMI_SECTION_PREPARE, 1, 0);
    sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 16, 64);
    sumi_plan_prefix(&plan, "layers.%d.", 3);
    sumi_value y = sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "wrong", .x = x, .weight = &w});
    sumi_plan_copy_rows(&plan, &(sumi_plan_copy_args){.x = y, .y = x, .rows = 99});
    sumi_error error = {0};
    CHECK_NUMBER(sumi_plan_finish(&plan, &error), SUMI_INTERNAL);
    CHECK(strstr(error.text, "layers.3.wrong") != NULL);
    CHECK(strstr(error.text, "[64, 32]") != NULL);
    sumi_plan_end(&plan);
}

// Means of spans and what is added to all rows: what is refused, and that the list is the plan's own.
TEST(plan_refuses_means_and_biases_that_do_not_fit)
{
    sumi_weight table = make_weight(30, 64), bias = make_weight(1, 64), narrow = make_weight(1, 32);
    static const sumi_span s_wrong_spans[][2] = {
        {{0, 4}, {4, 12}}, {{0, 4}, {-1, 4}}, {{0, 4}, {4, 13}}, {{0, 4}, {4, 0}}, {{0, 4}, {2147483647, 2147483647}}};
    for (int wrong = 0; wrong < 11; wrong++) {
        sumi_plan plan;
        sumi_error error = {0};
        sumi_plan_begin(&plan, &s_heap, 4);
        sumi_plan_section(&plan, SUMI_SECTION_TEXT, 1, 0);
        sumi_value ids = sumi_plan_bound(&plan, "ids", SUMI_ELEMENT_INT, 16, 1);
        sumi_step_row row = {sumi_plan_bound(&plan, "table", SUMI_ELEMENT_FLOAT, 1, 64), 0, false};
        sumi_value x = sumi_plan_embed_rows_biased(&plan, ids, &table, wrong == 5 ? &narrow : &bias);
        sumi_plan_norm(&plan, &(sumi_plan_norm_args){.label = "norm",
                                                     .x = x,
                                                     .norm = SUMI_NORM_LAYER,
                                                     .weight = &bias,
                                                     .bias = wrong == 6 ? &narrow : &bias,
                                                     .eps = 1e-5f,
                                                     .scale = wrong == 7 ? row : SUMI_NO_ROW,
                                                     .shift = wrong == 8 ? row : SUMI_NO_ROW,
                                                     .silu = wrong == 9});
        sumi_span spans[2] = {s_wrong_spans[wrong < 5 ? wrong : 0][0], s_wrong_spans[wrong < 5 ? wrong : 0][1]};
        sumi_value means = sumi_plan_mean_rows(&plan, "pool", x, spans, wrong == 10 ? 0 : 2);
        spans[0].begin = 7;
        CHECK_NUMBER(sumi_plan_finish(&plan, &error), wrong == 0 ? SUMI_OK : SUMI_INTERNAL);
        CHECK(wrong == 0 || strstr(error.text, wrong == 5 ? "embed" : wrong > 5 && wrong < 10 ? "norm" : "pool"));
        if (wrong == 0) {
            CHECK_NUMBER(sumi_plan_info(&plan, means)->rows, 2);
            CHECK_NUMBER(plan.ops[2].range_count, 2);
            CHECK_NUMBER(plan.ops[2].u.mean.spans[0].begin, 0);
        }
        sumi_plan_end(&plan);
    }
}

// Guidance and latent statistics: what is refused, and that lists are the plan's own.
TEST(plan_refuses_guidance_and_statistics_that_do_not_fit)
{
    static const int32_t s_positive[] = {0}, s_negative[] = {1};
    for (int wrong = 0; wrong < 11; wrong++) {
        float scale[4] = {1.0f, 2.0f, 3.0f, 4.0f}, shift[4] = {0.5f, 0.25f, 0.125f, 0.0f}, none = 0.0f;
        if (wrong == 1) scale[2] = 0.0f;
        sumi_plan plan;
        sumi_plan_begin(&plan, &s_heap, 4);
        sumi_plan_section(&plan, SUMI_SECTION_PREPARE, 1, 0);
        sumi_value table = sumi_plan_bound(&plan, "table", SUMI_ELEMENT_FLOAT, 1, 12),
                   both = sumi_plan_bound(&plan, "both", SUMI_ELEMENT_FLOAT, 8, 48),
                   moments = sumi_plan_bound(&plan, "moments", SUMI_ELEMENT_ACTIVATION, 48, 8),
                   latents = sumi_plan_bound(&plan, "latents", SUMI_ELEMENT_FLOAT, 4, 48);
        const sumi_latent_statistics statistics = {wrong == 2 ? NULL : scale, wrong == 3 ? NULL : shift,
                                                   wrong == 4 ? 3 : 4};
        sumi_plan_posterior(&plan,
                            &(sumi_plan_posterior_args){
                                .moments = moments, .channels = 4, .latents = latents, .statistics = statistics});
        sumi_plan_latent_in(&plan, &(sumi_plan_latent_args){.latents = latents,
                                                            .channels = 4,
                                                            .height = 6,
                                                            .width = 8,
                                                            .tile = {0, 0, 6, 8},
                                                            .statistics = {wrong == 5 ? &none : &scale[1], shift, 1}});
        sumi_plan_guide(&plan, &(sumi_plan_guide_args){.predictions = both,
                                                       .item_count = 1,
                                                       .channels = 4,
                                                       .positive = s_positive,
                                                       .negative = s_negative,
                                                       .scale = {table, 10, false},
                                                       .rule = wrong == 6 ? SUMI_GUIDANCE_MODEL
                                                             : wrong == 7 ? (sumi_guidance_rule)4
                                                                          : SUMI_GUIDANCE_NORM_RESCALE,
                                                       .norm_limit = wrong == 8 ? -1.0f : 0.0f,
                                                       .width = wrong == 9 ? 3 : 8,
                                                       .patch_size = wrong == 10 ? 0 : 2});
        scale[0] = shift[0] = 99.0f; // the plan has copies
        sumi_error error = {0};
        CHECK_NUMBER(sumi_plan_finish(&plan, &error), wrong == 0 ? SUMI_OK : SUMI_INTERNAL);
        if (wrong == 0) {
            CHECK_NUMBER(sumi_plan_validate(&plan, &error), SUMI_OK);
            const sumi_op_posterior* p = &plan.ops[0].u.posterior;
            CHECK(p->scale[0] == 1.0f && p->scale[3] == 4.0f && p->shift[0] == 0.5f && p->shift[2] == 0.125f);
            const sumi_op_latent_in* in = &plan.ops[1].u.latent_in;
            CHECK(in->scale[0] == 2.0f && in->scale[3] == 2.0f && in->shift[0] == 0.5f && in->shift[3] == 0.5f);
        }
        sumi_plan_end(&plan);
    }
}

// Shortcuts and pixels with alpha: what is refused.
TEST(plan_refuses_shortcuts_and_channels_that_do_not_fit)
{
    for (int wrong = 0; wrong < 12; wrong++) {
        sumi_plan plan;
        sumi_plan_begin(&plan, &s_heap, 4);
        sumi_plan_section(&plan, SUMI_SECTION_DECODE, 1, 0);
        const sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 24, 6),
                         y = sumi_plan_bound(&plan, "y", SUMI_ELEMENT_ACTIVATION, wrong == 1 ? 48 : 96, 3),
                         bytes = sumi_plan_bound(&plan, "bytes", SUMI_ELEMENT_BYTE, 24, wrong == 2 ? 3 : 4),
                         out = sumi_plan_bound(&plan, "out", SUMI_ELEMENT_BYTE, 24, wrong == 3 ? 3 : 4);
        const int32_t zero = 0;
        const sumi_value bad = sumi_plan_constant(&plan, "bad", SUMI_ELEMENT_INT, 1, 1, &zero);
        const sumi_op_shortcut up = {wrong == 4 ? 5 : 6, wrong == 5 ? 3 : 2, wrong == 6 ? 1 : 0, true},
                               down = {.width = wrong == 7 ? 3
                                              : wrong == 8 ? 8
                                                           : 6,
                                       .scale = wrong == 9 ? 3 : 0};
        sumi_plan_shortcut(&plan, &(sumi_plan_shortcut_args){"up", x, up, wrong == 10 ? 7 : 3, y});
        sumi_plan_shortcut(&plan, &(sumi_plan_shortcut_args){"down", x, down, wrong == 11 ? 5 : 12, SUMI_NO_VALUE});
        const sumi_value pixels = sumi_plan_pixels_in(&plan, bytes, 6, (sumi_tile){0, 0, 4, 6}, 4);
        sumi_plan_pixels_out(&plan, pixels, out, bad);
        sumi_error error = {0};
        const sumi_result result = sumi_plan_finish(&plan, &error);
        if (result != (wrong == 0 ? SUMI_OK : SUMI_INTERNAL))
            printf("  %d: %d \"%s\"\n", wrong, (int)result, error.text);
        CHECK(result == (wrong == 0 ? SUMI_OK : SUMI_INTERNAL));
        sumi_plan_end(&plan);
    }
}

// Packed latents and patches: what is refused, and what an op says of a packing that the verb was not given.
TEST(plan_refuses_packings_and_patches_that_do_not_fit)
{
    static const int32_t s_items[] = {0}, s_begins[] = {0};
    static const float s_one = 1.0f, s_factors[9] = {1.0f};
    for (int wrong = 0; wrong < 13; wrong++) {
        sumi_plan plan;
        sumi_plan_begin(&plan, &s_heap, 4);
        sumi_plan_section(&plan, SUMI_SECTION_PREPARE, 1, 0);
        const int32_t packing = wrong == 1 ? 3 : wrong == 2 ? -1 : 2, width = wrong == 3 ? 7 : wrong == 4 ? 0 : 12;
        const sumi_latent_statistics same = {&s_one, &s_one, 1};
        // 2 channels of 8 x 12 pixels, or 8 channels of 4 x 6
        const sumi_value latents = sumi_plan_bound(&plan, "latents", SUMI_ELEMENT_FLOAT, 8, 24),
                         moments = sumi_plan_bound(&plan, "moments", SUMI_ELEMENT_ACTIVATION, wrong == 5 ? 24 : 96, 4),
                         eps = sumi_plan_bound(&plan, "eps", SUMI_ELEMENT_FLOAT, wrong == 6 ? 2 : 8, 24),
                         rows = sumi_plan_bound(&plan, "rows", SUMI_ELEMENT_ACTIVATION, 24, 8),
                         table = sumi_plan_bound(&plan, "table", SUMI_ELEMENT_FLOAT, 1, 1),
                         rgb = sumi_plan_bound(&plan, "rgb", SUMI_ELEMENT_FLOAT, 3, wrong == 7 ? 24 : 96);
        sumi_plan_posterior(&plan, &(sumi_plan_posterior_args){.moments = moments,
                                                               .eps = eps,
                                                               .channels = 2,
                                                               .packing = packing,
                                                               .width = width,
                                                               .statistics = same,
                                                               .latents = latents});
        sumi_plan_latent_in(&plan, &(sumi_plan_latent_args){.latents = latents,
                                                            .channels = 2,
                                                            .height = wrong == 8 ? 7 : 8,
                                                            .width = 12,
                                                            .packing = 2,
                                                            .tile = {1, 3, wrong == 9 ? 8 : 6, 9},
                                                            .statistics = {&s_one, &s_one, wrong == 10 ? 2 : 1}});
        sumi_plan_preview(&plan, &(sumi_plan_preview_args){.x = latents,
                                                           .v = latents,
                                                           .sigma = {table, 0, false},
                                                           .channels = 2,
                                                           .packing = 2,
                                                           .width = width,
                                                           .factors = s_factors,
                                                           .bias = s_factors,
                                                           .rgb = rgb});
        const sumi_patch_layout layout = {4, 6, 8, wrong == 11 ? 0 : wrong == 12 ? 2 : 1, 1, s_items, s_begins, true};
        sumi_plan_patchify(&plan, latents, &layout, rows);
        sumi_plan_posterior(
            &plan, &(sumi_plan_posterior_args){.moments = sumi_plan_bound(&plan, "plain", SUMI_ELEMENT_FLOAT, 24, 16),
                                               .channels = 8,
                                               .width = 99,
                                               .statistics = same,
                                               .latents = latents});
        sumi_error error = {0};
        CHECK_NUMBER(sumi_plan_finish(&plan, &error), wrong == 0 ? SUMI_OK : SUMI_INTERNAL);
        if (wrong == 0 && plan.op_count == 5) {
            CHECK(plan.ops[0].u.posterior.packing == 2 && plan.ops[0].u.posterior.width == 12);
            CHECK(plan.ops[4].u.posterior.packing == 1 && plan.ops[4].u.posterior.width == 0);
            CHECK_NUMBER(sumi_plan_info(&plan, plan.ops[1].out)->cols, 2);
        }
        sumi_plan_end(&plan);
    }
}

TEST(plan_applies_adapters_to_their_weight_only)
{
    sumi_weight a = make_weight(64, 64), b = make_weight(64, 64);
    a.index = 0;
    b.index = 1;
    sumi_delta delta = {
        .weight_index = 1, .row_begin = 16, .scale = 0.5f, .down = make_weight(4, 64), .up = make_weight(32, 4)};
    sumi_adapter adapter = {&delta, 1};
    sumi_adapter_use use = {&adapter, 2.0f};
    sumi_plan plan;
    sumi_plan_begin(&plan, &s_heap, 4);
    sumi_plan_section(&plan, SUMI_SECTION_PREPARE, 1, 0);
    sumi_plan_adapters(&plan, &use, 1);
    sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 16, 64);
    x = sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "a", .x = x, .weight = &a});
    x = sumi_plan_linear(&plan,
                         &(sumi_plan_linear_args){.label = "b", .x = x, .weight = &b, .activation = SUMI_ACT_SILU});
    check_finish(&plan);
    CHECK_NUMBER(plan.op_count, 5); // a | b, down, up, silu
    CHECK(plan.ops[1].u.linear.activation == SUMI_ACT_NONE);
    CHECK(plan.ops[3].u.linear.is_adapter_product && plan.ops[3].u.linear.y_column == 16
          && plan.ops[3].u.linear.scale == 1.0f);
    CHECK_NUMBER(plan.ops[4].kind, SUMI_OP_ACTIVATE);
    sumi_plan_end(&plan);
}

// Two adapters of a weight of 64 rows: one reaches rows 16 to 48, the other one all.
typedef struct adapted {
    sumi_weight weight;
    sumi_delta deltas[2];
    sumi_adapter adapters[2];
    sumi_adapter_use uses[2];
} adapted;

static void make_adapted(adapted* a)
{
    a->weight = make_weight(64, 64);
    a->weight.index = 1;
    a->deltas[0] = (sumi_delta){1, 16, 0.5f, make_weight(4, 64), make_weight(32, 4), SUMI_DELTA_LOW_RANK};
    a->deltas[1] = (sumi_delta){1, 0, 0.25f, make_weight(33, 64), make_weight(64, 33), SUMI_DELTA_LOW_RANK};
    for (int i = 0; i < 2; i++) {
        a->adapters[i] = (sumi_adapter){&a->deltas[i], 1};
        a->uses[i] = (sumi_adapter_use){&a->adapters[i], 2.0f};
    }
}

// Ops 2 and 4 add what the adapters change to the rows and columns that the product wrote, gated as it is, in the order
// of the uses.
static void check_added(const sumi_plan* plan, const sumi_plan_linear_args* args)
{
    const sumi_op* product = &plan->ops[0];
    for (int i = 0; i < 2; i++) {
        const sumi_op *low = &plan->ops[1 + 2 * i], *op = low + 1;
        const int begin = i == 0 ? 16 : 0;
        CHECK(op->u.linear.is_adapter_product && op->in[1].id == op->out.id && op->out.id == product->out.id);
        CHECK(low->in[0].id == product->in[0].id && low->out.id == op->in[0].id);
        CHECK_NUMBER(low->u.linear.x_row, args->x_row);
        CHECK_NUMBER(low->rows, product->rows);
        CHECK_NUMBER(op->rows, product->rows);
        CHECK_NUMBER(op->u.linear.y_row, args->y_row);
        CHECK_NUMBER(op->u.linear.y_column, args->y_column + begin);
        CHECK_NEAR(op->u.linear.scale, i == 0 ? 1.0 : 0.5, 0, 0);
        CHECK_NUMBER(op->u.linear.activation, SUMI_ACT_NONE);
        CHECK_NUMBER(op->in[2].id, args->gate.table.id);
        CHECK_NUMBER(op->u.linear.gate.column, args->gate.table.id != 0 ? args->gate.column + begin : 0);
        CHECK(op->u.linear.gate.per_step == args->gate.per_step);
    }
}

TEST(plan_adds_adapters_under_every_epilogue)
{
    enum { ACTIVATED, ACTIVATED_ROWS, COLUMNS, RESIDUAL, GATED, KINDS };
    for (int i = 0; i < KINDS * 2; i++) {
        const int kind = i / 2;
        const bool is_activated = kind <= ACTIVATED_ROWS;
        adapted a;
        make_adapted(&a);
        sumi_plan plan;
        sumi_plan_begin(&plan, &s_heap, i % 2 == 0 ? 4 : 2);
        sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 2, 0);
        sumi_plan_adapters(&plan, a.uses, 2);
        sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 16, 64),
                   table = sumi_plan_bound(&plan, "table", SUMI_ELEMENT_FLOAT, 2, 200);
        sumi_plan_linear_args args = {.label = "linear", .x = x, .weight = &a.weight};
        if (is_activated) args.activation = SUMI_ACT_GELU_TANH;
        if (kind == ACTIVATED_ROWS) {
            args.y = sumi_plan_value(&plan, "y", SUMI_ELEMENT_FLOAT, 32, 64);
            args.x_row = 3, args.rows = 8, args.y_row = 5;
        }
        if (kind == COLUMNS) {
            args.y = sumi_plan_value(&plan, "y", SUMI_ELEMENT_FLOAT, 16, 96);
            args.writes_some_columns = true, args.y_column = 24;
        }
        if (kind >= RESIDUAL) args.residual = sumi_plan_bound(&plan, "y", SUMI_ELEMENT_ACTIVATION, 16, 64);
        if (kind == GATED) { args.gate = (sumi_step_row){table, 100, true}; }
        sumi_plan_linear(&plan, &args);
        check_finish(&plan);
        check_no_overlap(&plan);
        CHECK_NUMBER(plan.op_count, is_activated ? 6 : 5);
        CHECK_NUMBER(plan.ops[0].u.linear.activation, SUMI_ACT_NONE);
        if (plan.op_count >= 5) check_added(&plan, &args);
        if (plan.op_count == 6) {
            const sumi_op* op = &plan.ops[5];
            CHECK(op->kind == SUMI_OP_ACTIVATE && op->in[0].id == op->out.id && op->out.id == plan.ops[0].out.id);
            CHECK_NUMBER(op->u.activate.activation, SUMI_ACT_GELU_TANH);
            CHECK_NUMBER(op->u.activate.row, args.y_row);
            CHECK_NUMBER(op->rows, plan.ops[0].rows);
        }
        sumi_plan_end(&plan);
    }
}

// A Kronecker product reads x as rows of another length: columns of zeros behind it would be among them.
TEST(plan_refuses_a_kronecker_product_of_padded_rows)
{
    sumi_weight w = make_weight(64, 20);
    w.index = 1;
    const sumi_delta delta = {.weight_index = 1,
                              .scale = 1.0f,
                              .up = make_weight(8, 4),
                              .down = make_weight(8, 5),
                              .kind = SUMI_DELTA_KRONECKER};
    const sumi_adapter adapter = {&delta, 1};
    const sumi_adapter_use use = {&adapter, 1.0f};
    for (int padded = 0; padded < 2; padded++) {
        sumi_plan plan;
        sumi_error error = {0};
        sumi_plan_begin(&plan, &s_heap, 2);
        sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 1, 0);
        sumi_plan_adapters(&plan, &use, 1);
        sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 16, padded ? 24 : 20);
        sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "linear", .x = x, .weight = &w});
        CHECK_NUMBER(sumi_plan_finish(&plan, &error), padded ? SUMI_NOT_SUPPORTED : SUMI_OK);
        if (padded) CHECK(strstr(error.text, "use a LoRA") != NULL);
        sumi_plan_end(&plan);
    }
}

// The sum of a norm's weight and its changes is made once, where it is asked for first, and read by every norm.
TEST(plan_makes_a_changed_norm_once)
{
    sumi_weight norm = make_weight(1, 64), other = make_weight(1, 64);
    norm.index = 1;
    other.index = 2;
    sumi_delta delta = {.weight_index = 1, .scale = 0.5f, .up = make_weight(64, 1), .kind = SUMI_DELTA_VECTOR};
    const sumi_adapter adapter = {&delta, 1};
    for (int how = 0; how < 4; how++) { // asked for before; not; off; a change of another width
        const sumi_adapter_use uses[] = {{&adapter, how == 2 ? 0.0f : 2.0f}, {&adapter, how == 2 ? 0.0f : 1.0f}};
        sumi_plan plan;
        sumi_error error = {0};
        delta.up = make_weight(how == 3 ? 32 : 64, 1);
        sumi_plan_begin(&plan, &s_heap, 4);
        sumi_plan_adapters(&plan, uses, 2);
        sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 16, 64);
        sumi_plan_section(&plan, SUMI_SECTION_PREPARE, 1, 0);
        sumi_plan_activate(&plan, x, SUMI_ACT_SILU);
        if (how == 0) CHECK(sumi_plan_changed_vector(&plan, &norm).id != 0);
        sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 3, 0);
        for (int i = 0; i < 3; i++) {
            sumi_plan_norm(&plan, &(sumi_plan_norm_args){
                                      .label = "norm", .x = x, .weight = i == 2 ? &other : &norm, .eps = 1e-5f});
        }
        CHECK_NUMBER(sumi_plan_finish(&plan, &error), how == 3 ? SUMI_INTERNAL : SUMI_OK);
        if (how < 3) {
            const sumi_op* norms = &plan.ops[plan.op_count - 3];
            CHECK_NUMBER(plan.op_count, how == 2 ? 4 : 7);
            CHECK_NUMBER(plan.sections[0].op_end, how == 0 ? 4 : 1);
            CHECK(norms[2].weight == &other && norms[2].in[3].id == 0);
            const bool is_changed = how < 2;
            CHECK((norms[0].weight == NULL) == is_changed && (norms[0].in[3].id != 0) == is_changed);
            if (how == 0) CHECK(norms[1].in[3].id == norms[0].in[3].id);
            check_finish(&plan);
            check_no_overlap(&plan);
        }
        sumi_plan_end(&plan);
    }
}

TEST(plan_refuses_an_adapter_of_a_convolution)
{
    adapted a;
    make_adapted(&a);
    sumi_weight conv = make_weight(4, 36);
    conv.index = 1;
    sumi_plan plan;
    sumi_error error = {0};
    sumi_plan_begin(&plan, &s_heap, 4);
    sumi_plan_section(&plan, SUMI_SECTION_DECODE, 1, 0);
    sumi_plan_adapters(&plan, a.uses, 2);
    sumi_plan_conv(&plan, &(sumi_plan_conv_args){.label = "conv",
                                                 .x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 64, 4),
                                                 .weight = &conv,
                                                 .shape = {.height = 8, .width = 8}});
    CHECK_NUMBER(sumi_plan_finish(&plan, &error), SUMI_NOT_SUPPORTED);
    CHECK(strstr(error.text, "only linear layers can be adapted") != NULL);
    sumi_plan_end(&plan);
}

// A use of scale 0 and an adapter of other weights leave the plan as it is without them.
TEST(plan_is_the_same_where_no_adapter_reaches)
{
    adapted a;
    make_adapted(&a);
    sumi_weight other = make_weight(64, 64);
    other.index = 2;
    for (int i = 0; i < 3; i++) {
        sumi_plan plan;
        sumi_plan_begin(&plan, &s_heap, 4);
        sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 2, 0);
        a.uses[0].scale = a.uses[1].scale = i == 1 ? 0.0f : 1.0f;
        if (i > 0) sumi_plan_adapters(&plan, a.uses, 2);
        sumi_plan_linear(&plan,
                         &(sumi_plan_linear_args){.label = "linear",
                                                  .x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 16, 64),
                                                  .weight = i == 2 ? &other : &a.weight,
                                                  .activation = SUMI_ACT_SILU});
        check_finish(&plan);
        CHECK_NUMBER(plan.op_count, 1);
        CHECK_NUMBER(plan.ops[0].u.linear.activation, SUMI_ACT_SILU);
        sumi_plan_end(&plan);
    }
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

TEST(plan_survives_every_failing_allocation)
{
    for (int n = 0;; n++) {
        failing state = {.left = n};
        const sumi_allocator allocator = failing_allocator(&state);
        sumi_heap heap;
        sumi_heap_init(&heap, &allocator);
        sumi_weight w = make_weight(64, 64);
        sumi_plan plan;
        sumi_error error = {0};
        sumi_plan_begin(&plan, &heap, 4);
        sumi_plan_section(&plan, SUMI_SECTION_PREPARE, 1, 0);
        int32_t positions[16 * 3] = {0};
        sumi_value p = sumi_plan_constant(&plan, "positions", SUMI_ELEMENT_INT, 16, 3, positions);
        sumi_plan_rope_table(&plan,
                             &(sumi_plan_rope_args){.positions = p, .axes = 3, .pairs = {4, 6, 6}, .theta = 256.0});
        sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 16, 64);
        for (int i = 0; i < 20; i++) {
            x = sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "chain", .x = x, .weight = &w});
        }
        sumi_result result = sumi_plan_finish(&plan, &error);
        if (result == SUMI_OK) result = plan_slice(&plan, &s_rates, 1, &error);
        sumi_plan_end(&plan);
        CHECK_NUMBER(state.held, 0);
        if (result == SUMI_OK) {
            CHECK(n > 5);
            break;
        }
        CHECK_NUMBER(result, SUMI_OUT_OF_HOST_MEMORY);
    }
}

TEST(weight_stack_reads_rows_across_parts)
{
    float a[2 * 3] = {1, 2, 3, 4, 5, 6};
    uint16_t b[1 * 3] = {0x3f80, 0x4000, 0x4040}; // bf16 1 2 3
    sumi_weight weight = {.name = "stack", .rows = 3, .cols = 3, .tensor_count = 2};
    weight.tensors[0] = (sumi_stacked_tensor){.data = a, .dtype = SUMI_DTYPE_F32, .rows = 2, .scale = 1.0f};
    weight.tensors[1] = (sumi_stacked_tensor){.data = b, .dtype = SUMI_DTYPE_BF16, .rows = 1, .scale = 10.0f};
    float rows[2][4] = {{0}};
    sumi_weight_to_float(&weight, 1, 2, &rows[0][0], 4);
    CHECK(rows[0][0] == 4 && rows[0][2] == 6 && rows[1][0] == 10 && rows[1][2] == 30 && rows[0][3] == 0);
    CHECK_NUMBER(sumi_weight_bytes(&weight), 24 + 6);
}

// Over the seams of parts and of pieces of columns: rows alone, all rows, and columns alone are the same sums, to the
// bit.
static void check_changed(sumi_dtype dtype, const void* down, const float* down_values)
{
    enum { ROWS = 9, COLS = 608, RANK = 5 };
    static float s_first[4 * COLS], s_up[ROWS * RANK], s_rows[ROWS][COLS + 1], s_one[COLS], s_piece[ROWS][COLS];
    static uint16_t s_second[5 * COLS];
    for (int i = 0; i < 4 * COLS; i++) s_first[i] = (float)(i * 37 % 101) / 64.0f;
    for (int i = 0; i < 5 * COLS; i++) s_second[i] = sumi_float_to_bf16((float)(i * 53 % 97) / 32.0f);
    for (int i = 0; i < ROWS * RANK; i++) s_up[i] = (float)(i * 31 % 23 - 11) / 8.0f;
    const sumi_weight_change change = {.down = {.data = down, .dtype = dtype, .rows = RANK, .scale = 2.0f},
                                       .up = {.data = s_up, .dtype = SUMI_DTYPE_F32, .rows = ROWS, .scale = 0.25f}};
    sumi_weight weight = {.name = "changed",
                          .rows = ROWS,
                          .cols = COLS,
                          .tensor_count = 2,
                          .tensors = {{.data = s_first, .dtype = SUMI_DTYPE_F32, .rows = 4, .scale = 1.0f},
                                      {.data = s_second, .dtype = SUMI_DTYPE_BF16, .rows = 5, .scale = 0.5f}},
                          .change = &change};
    sumi_weight_to_float(&weight, 0, ROWS, &s_rows[0][0], COLS + 1);
    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < COLS; c++) {
            double want =
                r < 4 ? (double)s_first[r * COLS + c] : 0.5 * (double)sumi_bf16_to_float(s_second[(r - 4) * COLS + c]);
            for (int k = 0; k < RANK; k++) want += 0.5 * (double)s_up[r * RANK + k] * (double)down_values[k * COLS + c];
            CHECK(fabs((double)s_rows[r][c] - want) < 1e-5);
        }
        sumi_weight_to_float(&weight, r, 1, s_one, 0);
        CHECK_NUMBER(memcmp(s_one, s_rows[r], sizeof s_one), 0);
    }
    for (int column = 0; column < COLS; column += 256) {
        const int cols = COLS - column < 256 ? COLS - column : 256;
        sumi_weight_block_to_float(&weight, (sumi_weight_block){2, 6, column, cols}, &s_piece[0][0], COLS);
        for (int r = 0; r < 6; r++)
            CHECK_NUMBER(memcmp(s_piece[r], &s_rows[2 + r][column], (size_t)cols * sizeof(float)), 0);
    }
    CHECK_NUMBER(sumi_weight_bytes(&weight),
                 4 * COLS * 4 + 5 * COLS * 2 + ROWS * RANK * 4 + (int)sumi_dtype_bytes(dtype, RANK * COLS));
}

TEST(weight_rows_have_their_change_however_they_are_read)
{
    enum { COUNT = 5 * 608 };
    static uint16_t s_halves[COUNT];
    static unsigned char s_blocks[COUNT / 32 * 34];
    static float s_values[COUNT];
    for (int i = 0; i < COUNT; i++) {
        s_halves[i] = sumi_float_to_bf16((float)(i * 29 % 89 - 44) / 16.0f);
        s_values[i] = sumi_bf16_to_float(s_halves[i]);
    }
    check_changed(SUMI_DTYPE_BF16, s_halves, s_values);
    for (int i = 0; i < (int)sizeof s_blocks; i++) s_blocks[i] = (unsigned char)(i * 29);
    for (int b = 0; b < COUNT / 32; b++) { s_blocks[34 * b] = 0, s_blocks[34 * b + 1] = 0x24; } // a scale of 1 / 64
    sumi_dtype_to_float(SUMI_DTYPE_Q8_0, s_blocks, s_values, COUNT);
    check_changed(SUMI_DTYPE_Q8_0, s_blocks, s_values);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    RUN(plan_reuses_memory_of_dead_values);
    RUN(plan_keeps_values_that_cross_into_a_repeated_section);
    RUN(plan_arena_has_no_overlaps_for_random_graphs);
    RUN(plan_values_live_through_a_section_and_its_alternative);
    RUN(plan_views_lie_in_their_base_and_keep_it_alive);
    RUN(plan_refuses_views_where_they_cannot_be);
    RUN(plan_lets_a_guest_lie_in_its_host);
    RUN(plan_keeps_a_solver_table_until_it_is_read);
    RUN(plan_gives_no_memory_to_a_value_inside_a_pair);
    RUN(plan_keeps_apart_what_a_pair_reads_and_writes);
    RUN(parts_are_predicted_by_their_rows);
    RUN(plan_slices_cover_all_work_and_respect_the_bound);
    RUN(plan_slices_are_grouped);
    RUN(plan_ops_write_over_their_inputs_only_where_the_table_says_so);
    RUN(plan_arguments_that_are_left_out_mean_the_usual);
    RUN(plan_keeps_the_first_writing_error);
    RUN(plan_refuses_means_and_biases_that_do_not_fit);
    RUN(plan_refuses_guidance_and_statistics_that_do_not_fit);
    RUN(plan_refuses_packings_and_patches_that_do_not_fit);
    RUN(plan_refuses_shortcuts_and_channels_that_do_not_fit);
    RUN(plan_applies_adapters_to_their_weight_only);
    RUN(plan_adds_adapters_under_every_epilogue);
    RUN(plan_refuses_a_kronecker_product_of_padded_rows);
    RUN(plan_makes_a_changed_norm_once);
    RUN(plan_refuses_an_adapter_of_a_convolution);
    RUN(plan_is_the_same_where_no_adapter_reaches);
    RUN(plan_survives_every_failing_allocation);
    RUN(weight_stack_reads_rows_across_parts);
    RUN(weight_rows_have_their_change_however_they_are_read);
    TEST_END();
}
