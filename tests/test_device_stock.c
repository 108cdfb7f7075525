// What lies on a device (src/device) without a device: plans of every family run on one in host memory (toy_device.h),
// under budgets from all of their weights to hardly any. Whatever is resident, streamed or pinned, an op finds the same
// bytes; no budget is exceeded; and a call that fails leaves nothing behind.
#include "at_once.h"
#include "device/choose_forms.h"
#include "device/memory_share.h"
#include "device/stored.h"
#include "device/upload.h"
#include "device/weight_forms.h"
#include "device_stock/toy_device.h"
#include "families.h"
#include "network_fixture.h"

// ---- A stock and a plan ---------------------------------------------------------------------------------------------

typedef struct shelf {
    sumi_heap heap;
    sumi_workers* workers;
    toy_device toy;
    sumi_device_stock stock;
    sumi_device_plan records[2];
    sumi_device_plan* record; // the plan that is prepared and run
    sumi_error error;
} shelf;

static void open_shelf(shelf* s, toy_lateness lateness, int32_t threads)
{
    memset(s, 0, sizeof *s);
    sumi_heap_init(&s->heap, NULL);
    CHECK(sumi_workers_create(&s->heap, NULL, threads, NULL, &s->workers) == SUMI_OK);
    toy_open(&s->toy, lateness);
    sumi_device_stock_init(&s->stock, &s->heap, &s->toy.port, NULL);
}

// To be called after the toy's settings. A second plan becomes the one that is prepared and run.
static void add_plan(shelf* s, const sumi_plan* plan)
{
    sumi_device_stock* stock = &s->stock;
    if (stock->plan_count == 0) {
        sumi_device_weights_init(&stock->weights, &s->heap, s->workers, &s->toy.port, &stock->memory);
        stock->weights.mapped.chunk_bytes = 16384; // several in a small file
    }
    CHECK(sumi_grow(&s->heap, (void**)&stock->plans, &stock->plan_capacity, stock->plan_count + 1, sizeof *stock->plans,
                    NULL)
          == SUMI_OK);
    s->record = &s->records[stock->plan_count];
    *s->record = (sumi_device_plan){.plan = plan, .scratch_bytes = 1536};
    stock->plans[stock->plan_count++] = s->record;
}

static void close_shelf(shelf* s)
{
    sumi_device_settle(&s->stock);
    for (size_t i = 0; i < s->stock.plan_count; i++) sumi_device_drop_division(&s->stock, s->stock.plans[i]);
    sumi_device_release_blocks(&s->stock);
    sumi_device_release(&s->stock.memory, &s->stock.weight_ring);
    sumi_device_weights_close(&s->stock.weights);
    sumi_free(&s->heap, s->stock.plans);
    sumi_workers_destroy(s->workers);
    toy_close(&s->toy);
    CHECK_NUMBER(s->toy.violations, 0);
    CHECK_NUMBER(s->toy.held, 0);
    CHECK_NUMBER(s->toy.pinned, 0);
    CHECK_NUMBER(atomic_load(&s->heap.allocated_bytes), 0);
}

// As a runner prepares a plan: weights, their pinned copies, the arena.
static sumi_result prepare(shelf* s)
{
    sumi_device_stock* stock = &s->stock;
    sumi_device_plan* r = s->record;
    const sumi_device_budget budget = {.until_ns = 0, .us = 1000};
    SUMI_TRY(sumi_device_divide_plan(stock, r, &s->error));
    SUMI_TRY(sumi_device_make_fit(stock, r, &s->error));
    SUMI_TRY(sumi_device_reserve_ring(stock, r, &s->error));
    stock->weights.uses_single_slabs = r->division.streams;
    for (bool is_done = false; !is_done;)
        SUMI_TRY(sumi_device_weights_upload(&stock->weights, &r->list, budget, &is_done, &s->error));
    for (bool is_done = r->streaming == NULL; !is_done;)
        SUMI_TRY(sumi_device_make_pinned_copies(stock, r, budget, &is_done, &s->error));
    while (!sumi_device_needs_pinned_copies(r) && r->unpinned_count < r->list.count)
        sumi_device_drop_pinned_copies(stock, r, 0);
    return sumi_device_reserve_blocks(stock, r, &s->error);
}

// ---- What an op finds -----------------------------------------------------------------------------------------------

static uint64_t hash_more(uint64_t hash, const void* bytes, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) hash = (hash ^ ((const unsigned char*)bytes)[i]) * 1099511628211ull;
    return hash;
}

// `bytes` of row r where the toy's copies and kernels put them. pitch_bytes 0: the rows lie without gaps.
static uint64_t hash_row(uint64_t hash, const sumi_device_weight* at, uint64_t row, uint64_t bytes,
                         uint64_t pitch_bytes)
{
    const uint64_t pitch = pitch_bytes > 0 ? pitch_bytes : bytes;
    if (at->piece_rows == 0) return hash_more(hash, (void*)(uintptr_t)(at->data + row * pitch), bytes);
    const uint64_t* pieces = (const uint64_t*)(uintptr_t)at->data;
    const uint64_t piece = pieces[row / (uint64_t)at->piece_rows];
    return hash_more(hash, (void*)(uintptr_t)(piece + row % (uint64_t)at->piece_rows * pitch), bytes);
}

static uint64_t hash_weight(const sumi_weight* weight, sumi_device_form form, const sumi_device_weight* at)
{
    const sumi_device_form_traits* traits = sumi_device_traits(form);
    uint64_t hash = 14695981039346656037ull, row = 0;
    if (at->balance != 0) hash = hash_more(hash, (void*)(uintptr_t)at->balance, (uint64_t)weight->cols * sizeof(float));
    sumi_device_stored_tensor stored[SUMI_WEIGHT_MAX_TENSORS];
    if (traits->keeps_bytes) (void)sumi_device_stored_tensors(weight, form, stored);
    const bool is_made_on_cpu = sumi_device_form_is_made_on_cpu(weight, form),
               is_kept = traits->keeps_bytes || traits->keeps_bf16; // otherwise the toy's kernels have hashed the rows
    for (int32_t p = 0; p < weight->tensor_count; p++) {
        const sumi_stacked_tensor* tensor = &weight->tensors[p];
        const uint64_t end = row + (uint64_t)tensor->rows;
        if (traits->keeps_bytes && !is_made_on_cpu)
            hash = hash_more(hash, (void*)(uintptr_t)(at->data + stored[p].offset),
                             stored[p].row_bytes * (uint64_t)stored[p].rows);
        else
            for (uint64_t r = row; r < end; r++)
                hash = hash_row(hash, at, r, is_kept ? sumi_device_made_row_bytes(weight, form) : 8,
                                is_kept && traits->keeps_bf16 ? (uint64_t)at->pitch * 2 : 0);
        row = end;
    }
    return hash;
}

// For each weight of a plan in each of its forms what an op found first.
typedef struct findings {
    const sumi_weight* weight[4096]; // a hash table; NULL: free
    sumi_device_form form[4096];
    uint64_t hash[4096];
    int32_t different, checked;
} findings;

static findings s_findings;

static void note_finding(const sumi_weight* weight, sumi_device_form form, uint64_t hash)
{
    findings* f = &s_findings;
    size_t i = sumi_device_form_hash(weight, form, 4096);
    while (f->weight[i] != NULL && (f->weight[i] != weight || f->form[i] != form)) i = (i + 1) % 4096;
    f->different += f->weight[i] != NULL && f->hash[i] != hash;
    if (f->weight[i] == NULL) f->weight[i] = weight, f->form[i] = form, f->hash[i] = hash;
    f->checked++;
}

// The work of an op, when it runs: reads its weights.
typedef struct op_work {
    const shelf* shelf;
    int32_t op_index;
} op_work;

static void read_weights(void* context)
{
    const op_work* work = context;
    const shelf* s = work->shelf;
    const sumi_weight* weight;
    sumi_device_form form;
    for (int32_t k = 0; sumi_device_op_weight(s->record->plan, work->op_index, k, &weight, &form); k++) {
        const sumi_device_resident* resident = sumi_device_weights_find(&s->stock.weights, weight, form);
        CHECK(resident != NULL);
        sumi_device_weight at = resident->on_device;
        (void)sumi_device_streaming_find_weight(&s->stock, s->record, work->op_index, resident, &at);
        CHECK(at.data != 0);
        if (at.data != 0) note_finding(weight, form, hash_weight(weight, form, &at));
    }
}

static sumi_result run_slice(shelf* s, const sumi_slice* slice, int32_t counter, op_work** io_work)
{
    for (sumi_slice segment = {0}; sumi_device_next_segment(s->record, slice, &segment);) {
        bool waits = false;
        SUMI_TRY(sumi_device_streaming_begin_segment(&s->stock, s->record, &segment, counter, &waits, &s->error));
        for (int32_t i = segment.op_begin; i < segment.op_end; i++) {
            **io_work = (op_work){s, i};
            toy_submit(&s->toy, read_weights, (*io_work)++);
        }
        SUMI_TRY(sumi_device_streaming_end_segment(&s->stock, s->record, &segment, &s->error));
    }
    return sumi_device_streaming_start_loads(&s->stock, s->record, &s->error);
}

static sumi_result run(shelf* s)
{
    const sumi_plan* plan = s->record->plan;
    size_t count = 0;
    for (size_t i = 0; i < plan->section_count; i++)
        count += (size_t)plan->sections[i].repeat * (plan->op_count + plan->slice_count);
    op_work *work = calloc(count, sizeof *work), *next = work;
    sumi_result result = sumi_device_streaming_begin_run(&s->stock, s->record, &s->error);
    for (size_t i = 0; i < plan->section_count; i++) {
        const sumi_section* section = &plan->sections[i];
        for (int32_t k = 0; k < section->repeat && !section->is_alternative; k++) {
            for (int32_t j = section->slice_begin; j < section->slice_end && result == SUMI_OK; j++)
                result = run_slice(s, &plan->slices[j], section->first_counter + k, &next);
        }
    }
    toy_finish(&s->toy);
    free(work);
    return result;
}

// ---- Plans of the families ------------------------------------------------------------------------------------------

static void arrange(const sumi_runner* runner, sumi_plan* plan)
{
    (void)runner;
    sumi_device_choose_forms(plan, true);
}

static const sumi_weight_format s_formats[] = {SUMI_WEIGHTS_BF16, SUMI_WEIGHTS_FP8, SUMI_WEIGHTS_INT8,
                                               SUMI_WEIGHTS_INT4, SUMI_WEIGHTS_AS_STORED};
enum { FORMATS = sizeof s_formats / sizeof *s_formats };

// A picture of two prompts, whose later evaluations are not guided.
static bool write_plan(const sumi_network* network, sumi_weight_format format, sumi_plan* plan)
{
    static const bool s_guided[] = {true, true, false, false, false};
    const sumi_pipeline_prompt prompts[2] = {{.token_count = {40, 40}}, {.token_count = {40, 40}}};
    const sumi_pipeline_item item = {0, 1};
    const sumi_pipeline_request request = {.goal = SUMI_GOAL_IMAGES,
                                           .prompts = prompts,
                                           .prompt_count = 2,
                                           .items = &item,
                                           .item_count = 1,
                                           .guided = s_guided,
                                           .width = 64,
                                           .height = 64,
                                           .evaluation_count = 5};
    sumi_pipeline pipeline;
    sumi_error error = {0};
    sumi_plan_begin(plan, &s_heap, 2);
    plan->arrange = arrange;
    plan->weight_options.weights = plan->weight_options.text_weights = format;
    sumi_result result = sumi_pipeline_write(network, &request, plan, &pipeline, &error);
    if (result == SUMI_OK) result = plan_slice(plan, &(sumi_rates){1e6, 1e6, 3.0}, 40, &error);
    CHECK_TEXT(error.text, "");
    return result == SUMI_OK;
}

static uint64_t needed_bytes(shelf* s, uint64_t budget, bool* out_fits)
{
    sumi_device_need need = {0};
    CHECK_NUMBER(sumi_device_measure_need(&s->stock, s->record, budget, &need, &s->error), SUMI_OK);
    *out_fits = need.fits;
    return need.device_bytes;
}

// ---- Under budgets --------------------------------------------------------------------------------------------------

// Prepares and runs a plan that fits, within the budget of the stock.
static void draw(shelf* s)
{
    s->toy.limit_bytes = s->stock.memory_limit;
    sumi_device_release_blocks(&s->stock); // as a runner trims
    const sumi_result result = prepare(s);
    CHECK_NUMBER(result, SUMI_OK);
    if (result == SUMI_OK) CHECK_NUMBER(run(s), SUMI_OK);
    CHECK_TEXT(s->error.text, "");
    CHECK_NUMBER(s->toy.held, sumi_device_held_bytes(&s->stock.memory));
    CHECK_NUMBER(s->toy.violations, 0);
}

typedef struct budget_case {
    toy_lateness lateness;
    int32_t threads;
    bool locks_pages;
} budget_case;

// One plan under budgets that fall and rise. Returns how many of them streamed weights.
static int32_t run_budgets(const sumi_plan* plan, const budget_case* c)
{
    static const int32_t s_percents[] = {0, 102, 90, 75, 60, 45, 30, 20, 10, 50, 95, 102};
    shelf s;
    bool fits = false;
    int32_t streaming = 0;
    open_shelf(&s, c->lateness, c->threads);
    s.toy.locks_pages = c->locks_pages;
    add_plan(&s, plan);
    const uint64_t whole = needed_bytes(&s, 0, &fits);
    for (size_t i = 0; i < sizeof s_percents / sizeof *s_percents && t_errors == 0; i++) {
        const uint64_t budget = whole / 100 * (uint64_t)s_percents[i];
        (void)needed_bytes(&s, budget, &fits);
        sumi_device_set_memory_limit(&s.stock, budget);
        if (fits) {
            draw(&s);
            streaming += s.record->division.streamed_bytes > 0;
        } else {
            CHECK_NUMBER(prepare(&s), SUMI_BUDGET_TOO_SMALL);
            s.error = (sumi_error){0};
        }
    }
    close_shelf(&s);
    return streaming;
}

// The smallest budget, in steps of a hundredth, that holds the plan.
static uint64_t smallest_budget(shelf* s)
{
    bool fits = false;
    const uint64_t step = needed_bytes(s, 0, &fits) / 100;
    uint64_t budget = step;
    for (fits = false; !fits; budget += step) (void)needed_bytes(s, budget, &fits);
    return budget - step;
}

// ---- Tests ----------------------------------------------------------------------------------------------------------

TEST(every_family_finds_the_same_bytes_under_every_budget)
{
    static const budget_case s_cases[] = {{TOY_COPIES_LATE, 2, true}, // streamed from the mapping
                                          {TOY_WORK_LATE, 2, true},
                                          {TOY_COPIES_LATE, 2, false}, // from pinned copies
                                          {TOY_WORK_LATE, 2, false},
                                          {TOY_COPIES_LATE, 1, true}}; // uploaded from the mapping, too
    for (const family_row* row = next_network(NULL); row != NULL; row = next_network(row)) {
        sumi_network* network = open_path(row->wide.path);
        CHECK(network != NULL);
        for (int32_t f = 0; f < FORMATS && network != NULL && t_errors == 0; f++) {
            sumi_plan plan;
            int32_t streaming = 0;
            memset(&s_findings, 0, sizeof s_findings);
            if (write_plan(network, s_formats[f], &plan)) {
                // Every case with every family and with every format, but not all three in every combination: that
                // would take a third more time.
                for (int32_t i = 0; i < (int32_t)(sizeof s_cases / sizeof *s_cases); i++)
                    streaming += (row - s_families + f + i) % 4 != 0 ? run_budgets(&plan, &s_cases[i]) : 0;
                CHECK_NUMBER(s_findings.different, 0);
                CHECK(streaming >= 8 && s_findings.checked > 1000);
            }
            sumi_plan_end(&plan);
        }
        sumi_network_close(network);
    }
}

// More memory never makes less fit or more be copied in steps, and every weight has one place.
TEST(every_family_is_divided_within_its_memory)
{
    for (const family_row* row = next_network(NULL); row != NULL; row = next_network(row)) {
        sumi_network* network = open_path(row->wide.path);
        sumi_plan plan;
        shelf s;
        CHECK(network != NULL);
        if (network == NULL) return;
        CHECK(write_plan(network, SUMI_WEIGHTS_BF16, &plan));
        open_shelf(&s, TOY_COPIES_LATE, 1);
        add_plan(&s, &plan);
        bool fitted = false;
        uint64_t whole = needed_bytes(&s, 0, &fitted), steps_before = UINT64_MAX;
        fitted = false;
        for (uint64_t memory = 0; memory < whole && t_errors == 0; memory += whole / 200 + 1) {
            sumi_device_division d;
            CHECK_NUMBER(sumi_device_divide(&s.stock.weights, &plan, memory, &d, &s.error), SUMI_OK);
            uint64_t bytes[3] = {0, 0, 0}, steps = 0;
            for (int32_t i = 0; i < d.count; i++) {
                const sumi_device_division_entry* entry = &d.entries[i];
                bytes[entry->residence] += entry->bytes;
                if (entry->in_steps && entry->residence == SUMI_DEVICE_WEIGHT_STREAMED) steps += entry->bytes;
                if (sumi_device_traits(entry->form)->is_vector)
                    CHECK_NUMBER(entry->residence, SUMI_DEVICE_WEIGHT_RESIDENT);
                if (entry->residence == SUMI_DEVICE_WEIGHT_PINNED) CHECK(entry->is_table);
            }
            CHECK_NUMBER(bytes[SUMI_DEVICE_WEIGHT_RESIDENT], d.resident_bytes);
            CHECK_NUMBER(bytes[SUMI_DEVICE_WEIGHT_STREAMED], d.streamed_bytes);
            CHECK(d.pinned_bytes >= bytes[SUMI_DEVICE_WEIGHT_PINNED]);
            CHECK(!fitted || d.fits);
            CHECK(!d.fits || (d.resident_bytes + d.ring_bytes + d.staging_bytes <= memory && steps <= steps_before));
            if (d.fits) fitted = true, steps_before = steps;
            sumi_free(&s.heap, d.entries);
        }
        CHECK(fitted && steps_before == 0);
        close_shelf(&s);
        sumi_plan_end(&plan);
        sumi_network_close(network);
    }
}

// Under a budget for one and a half of them, each evicts what the other one left.
TEST(two_models_take_turns)
{
    sumi_plan plans[2];
    sumi_network* networks[2];
    shelf s;
    memset(&s_findings, 0, sizeof s_findings);
    open_shelf(&s, TOY_WORK_LATE, 2);
    uint64_t needed[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        bool fits = false;
        networks[i] = open_path(s_families[i].wide.path);
        CHECK(networks[i] != NULL && write_plan(networks[i], s_formats[2 * i], &plans[i]));
        add_plan(&s, &plans[i]);
        needed[i] = needed_bytes(&s, 0, &fits);
    }
    const uint64_t larger = needed[0] > needed[1] ? needed[0] : needed[1];
    for (int turn = 0; turn < 6 && t_errors == 0; turn++) {
        s.record = &s.records[turn % 2];
        sumi_device_set_memory_limit(&s.stock, turn < 4 ? larger + larger / 20 : larger / 2);
        draw(&s);
    }
    sumi_device_set_memory_limit(&s.stock, larger / 4);
    sumi_device_release_blocks(&s.stock);
    sumi_device_trim(&s.stock);
    CHECK(s.toy.held <= larger / 4);
    while (sumi_device_evict(&s.stock, NULL)) continue;
    CHECK_NUMBER(s.toy.held, s.stock.weight_ring.bytes);
    sumi_device_set_memory_limit(&s.stock, 0);
    for (int i = 0; i < 2 && t_errors == 0; i++) {
        s.record = &s.records[i];
        draw(&s);
        const sumi_weight* weight = s.stock.weights.residents[s.record->list.indices[0]].weight;
        sumi_device_release_weights(&s.stock, &weight, 1);
        CHECK(!s.record->has_weights); // the plan finds out again what it needs
        if (!s.record->has_weights) draw(&s);
    }
    CHECK_NUMBER(s_findings.different, 0);
    close_shelf(&s);
    for (int i = 0; i < 2; i++) {
        sumi_plan_end(&plans[i]);
        sumi_network_close(networks[i]);
    }
}

// With pinned memory for the first of the streamed weights only, the others are read from their file at each use.
TEST(weights_without_pinned_memory_come_from_their_file)
{
    sumi_network* network = open_path(s_families[0].wide.path);
    sumi_plan plan;
    CHECK(network != NULL && write_plan(network, SUMI_WEIGHTS_INT8, &plan));
    memset(&s_findings, 0, sizeof s_findings);
    int32_t pieces = 0;
    for (int is_short = 0; is_short < 2; is_short++) {
        shelf s;
        open_shelf(&s, TOY_COPIES_LATE, 2);
        s.toy.locks_pages = false;
        add_plan(&s, &plan);
        sumi_device_set_memory_limit(&s.stock, smallest_budget(&s));
        if (is_short) s.toy.pieces_left = pieces / 2;
        draw(&s);
        if (!is_short) pieces = -1 - s.toy.pieces_left;
        int32_t without = 0;
        for (int32_t i = 0; s.record->streaming != NULL && i < s.record->streaming->list.count; i++)
            without += !s.stock.weights.residents[s.record->streaming->list.indices[i]].has_pinned_copy;
        CHECK((without > 0) == (is_short == 1));
        close_shelf(&s);
    }
    CHECK_NUMBER(s_findings.different, 0);
    sumi_plan_end(&plan);
    sumi_network_close(network);
}

// The calls of the device fail one after the other. Each time everything is given back, and a second try finds the same
// bytes.
TEST(any_call_of_the_device_may_fail)
{
    sumi_network* network = open_path(s_families[0].wide.path);
    sumi_plan plan;
    CHECK(network != NULL && write_plan(network, SUMI_WEIGHTS_INT8, &plan));
    memset(&s_findings, 0, sizeof s_findings);
    int32_t failures = 0, tries = 0;
    bool has_failed = true;
    for (int64_t n = 1; has_failed && t_errors == 0; n += n < 100 ? 1 : n / 16, tries++) {
        shelf s;
        open_shelf(&s, n % 2 == 0 ? TOY_COPIES_LATE : TOY_WORK_LATE, 1 + (int32_t)(n % 2));
        s.toy.locks_pages = n % 3 != 0;
        add_plan(&s, &plan);
        sumi_device_set_memory_limit(&s.stock, smallest_budget(&s));
        s.toy.fail_at = n;
        sumi_result result = prepare(&s);
        if (result == SUMI_OK) result = run(&s);
        has_failed = s.toy.calls >= n;
        failures += result != SUMI_OK;
        CHECK((result == SUMI_OK) == (s.error.text[0] == 0));
        s.error = (sumi_error){0};
        sumi_device_settle(&s.stock);
        if (result != SUMI_OK) draw(&s);
        close_shelf(&s);
    }
    CHECK(failures > 60);
    CHECK_NUMBER(s_findings.different, 0);
    sumi_plan_end(&plan);
    sumi_network_close(network);
}

// Bytes of 48 rows of 80 columns in each form.
TEST(forms_have_their_bytes)
{
    static const struct {
        sumi_device_form form;
        uint64_t bytes;
        int32_t pitch;
    } s_forms[] = {{SUMI_DEVICE_FORM_MATRIX, 48 * 80 * 2, 80},
                   {SUMI_DEVICE_FORM_GATED, 48 * 80 * 2, 80},
                   {SUMI_DEVICE_FORM_MATRIX_FP8, 48 * 80 + 48 * 4, 80},
                   {SUMI_DEVICE_FORM_GATED_FP8, 48 * 80 + 48 * 4, 80},
                   {SUMI_DEVICE_FORM_MATRIX_INT8, 48 * 256 + 48 * 4, 256},
                   {SUMI_DEVICE_FORM_GATED_INT8, 48 * 256 + 48 * 4, 256},
                   {SUMI_DEVICE_FORM_STORED, 48 * 80 * 2 + 16, 80},
                   {SUMI_DEVICE_FORM_CONV, 48 * 9 * 8 * 2, 8},
                   {SUMI_DEVICE_FORM_CONV_UP, 4 * 48 * 4 * 8 * 2, 8},
                   {SUMI_DEVICE_FORM_VECTOR, 48 * 80 * 4, 48 * 80},
                   {SUMI_DEVICE_FORM_VECTOR_BALANCED, 48 * 80 * 4 + 512, 48 * 80}};
    static const uint16_t s_data[48 * 80] = {0};
    const sumi_weight weight = {.rows = 48,
                                .cols = 80,
                                .tensor_count = 1,
                                .tensors = {{.data = s_data, .dtype = SUMI_DTYPE_BF16, .rows = 48, .scale = 1.0f}}};
    for (size_t i = 0; i < sizeof s_forms / sizeof *s_forms; i++) {
        const sumi_device_form_traits* traits = sumi_device_traits(s_forms[i].form);
        const sumi_device_weight at = sumi_device_weight_at(1 << 20, &weight, s_forms[i].form);
        CHECK_NUMBER(sumi_device_form_bytes(&weight, s_forms[i].form), (s_forms[i].bytes + 511) / 512 * 512);
        CHECK_NUMBER(at.pitch, s_forms[i].pitch);
        CHECK((at.scales != 0) == traits->has_scales && (traits->operands != SUMI_DEVICE_BF16) == traits->has_scales);
        CHECK((at.balance != 0) == (s_forms[i].form == SUMI_DEVICE_FORM_VECTOR_BALANCED));
        CHECK((traits->upload_kernel == NULL) == (s_forms[i].form == SUMI_DEVICE_FORM_STORED));
    }
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    RUN(forms_have_their_bytes);
    RUN(every_family_is_divided_within_its_memory);
    RUN(every_family_finds_the_same_bytes_under_every_budget);
    RUN(two_models_take_turns);
    RUN(weights_without_pinned_memory_come_from_their_file);
    RUN(any_call_of_the_device_may_fail);
    TEST_END();
}
