// Memory budgets on the fake driver (fake_cuda): which weights stay, whether the others are in their places when
// the kernels that read them run, and whether more is ever held than is allowed. Kernels do nothing there, but copies
// are real.
#include "at_once.h"
#include "engine_fixture.h"
#ifdef SUMI_HAS_CUDA
#include "cuda/cuda.h"
#include "cuda/state.h"
#include "device_meter.h"
#include "fake_cuda.h"
#include "jobs/engine_state.h"
#include "plan_runner.h"

#define WIDTH 64

// ---- A network whose weights can be told apart ----------------------------------------------------------------------

#define TOKENS 24
#define BLOCKS 24 // of the repeated section; a third as many before and behind it
#define STEPS 3
#define MIXED_STEPS 9 // with an alternative
#define WEIGHTS (BLOCKS + 2 * (BLOCKS / 3))

typedef struct network {
    sumi_plan plan;
    sumi_value ids;
    sumi_weight table, gain, layers[WEIGHTS];
    const sumi_weight* list[WEIGHTS + 2];
    uint16_t table_data[50 * WIDTH], data[WEIGHTS][WIDTH * WIDTH * 3];
    float gain_data[WIDTH];
    // of weights that are given a change, and what the device is to have of them then
    sumi_weight_change changes[WEIGHTS + 1];
    uint16_t factor[WIDTH * WIDTH], sums[WEIGHTS + 1][WIDTH * WIDTH * 3];
} network;

static sumi_weight weight_of(int32_t index, int32_t rows, const void* data, sumi_dtype dtype)
{
    return (sumi_weight){.name = "weight",
                         .rows = rows,
                         .cols = WIDTH,
                         .tensor_count = 1,
                         .tensors = {{.data = data, .dtype = dtype, .rows = rows, .scale = 1.0f}},
                         .index = index};
}

static void make_weights(network* n)
{
    memset(n, 0, sizeof *n);
    uint32_t seed = 1;
    for (int32_t i = 0; i < WEIGHTS; i++) {
        for (int32_t k = 0; k < WIDTH * WIDTH * 3; k++) {
            seed = seed * 1664525u + 1013904223u;
            n->data[i][k] = (uint16_t)(seed >> 18);
        }
        n->layers[i] = weight_of(i,
                                 i % 3 == 1   ? 3 * WIDTH
                                 : i % 3 == 2 ? 2 * WIDTH
                                              : WIDTH,
                                 n->data[i], SUMI_DTYPE_BF16);
        n->list[i] = &n->layers[i];
    }
    for (int32_t k = 0; k < 50 * WIDTH; k++) n->table_data[k] = (uint16_t)k;
    n->table = weight_of(WEIGHTS, 50, n->table_data, SUMI_DTYPE_BF16);
    n->gain = weight_of(WEIGHTS + 1, 1, n->gain_data, SUMI_DTYPE_F32);
    n->list[WEIGHTS] = &n->table;
    n->list[WEIGHTS + 1] = &n->gain;
}

// weight: of n->list, of 3 * WIDTH rows at most.
static void give_change(network* n, int32_t index)
{
    enum { RANK = 3 };
    sumi_weight* weight = (sumi_weight*)(uintptr_t)n->list[index];
    float row[WIDTH];
    for (int32_t i = 0; i < WIDTH * WIDTH; i++)
        n->factor[i] = sumi_float_to_bf16((float)(i * 37 % 101) / 64.0f - 0.75f);
    sumi_weight_change* change = &n->changes[index];
    change->down = (sumi_stacked_tensor){.data = n->factor, .dtype = SUMI_DTYPE_BF16, .rows = RANK, .scale = 1.0f};
    change->up = (sumi_stacked_tensor){
        .data = n->factor + 10 + index, .dtype = SUMI_DTYPE_BF16, .rows = weight->rows, .scale = 0.5f};
    weight->change = change;
    for (int32_t r = 0; r < weight->rows; r++) {
        sumi_weight_to_float(weight, r, 1, row, WIDTH);
        sumi_floats_to_bf16(row, n->sums[index] + r * WIDTH, WIDTH);
    }
    CHECK(memcmp(n->sums[index], weight->tensors[0].data, (size_t)weight->rows * WIDTH * 2) != 0);
}

static void write_layers(network* n, sumi_value x, int32_t begin, int32_t end)
{
    for (int32_t i = begin; i < end; i++) {
        sumi_value normed = sumi_plan_norm(
            &n->plan,
            &(sumi_plan_norm_args){.label = "norm", .x = x, .rows = TOKENS, .weight = &n->gain, .eps = 1e-5f});
        (void)sumi_plan_linear(&n->plan,
                               &(sumi_plan_linear_args){.label = "layer", .x = normed, .weight = &n->layers[i]});
        if (i % 5 == 0)
            (void)sumi_plan_linear(
                &n->plan, &(sumi_plan_linear_args){
                              .label = "again", .x = normed, .weight = &n->layers[i]}); // neighbours of one weight
    }
}

// Writes an alternative to the steps, of every eighth of their layers.
static bool s_has_alternative;
static uint32_t s_alternatives; // bit k: step k runs it

// The section that runs for iteration k of section s.
static const sumi_section* section_of(const sumi_plan* plan, size_t s, int32_t k)
{
    return &plan->sections[sumi_plan_has_alternative(plan, s) && (s_alternatives >> k & 1) != 0 ? s + 1 : s];
}

// How often section s runs by itself: not at all if it is an alternative.
static int32_t repeat_of(const sumi_plan* plan, size_t s)
{
    return plan->sections[s].is_alternative ? 0 : plan->sections[s].repeat;
}

static sumi_result write_network(const sumi_runner* runner, network* n, sumi_heap* heap, uint32_t slice_us,
                                 sumi_error* error)
{
    sumi_plan* plan = &n->plan;
    sumi_runner_begin_plan(runner, plan, heap);
    n->ids = sumi_plan_bound(plan, "ids", SUMI_ELEMENT_INT, TOKENS, 1);
    sumi_plan_section(plan, SUMI_SECTION_TEXT, 1, 0);
    sumi_value x = sumi_plan_embed_rows(plan, n->ids, &n->table, 1.0f);
    write_layers(n, x, 0, BLOCKS / 3);
    sumi_plan_section(plan, SUMI_SECTION_DENOISE, s_has_alternative ? MIXED_STEPS : STEPS, 2);
    write_layers(n, x, BLOCKS / 3, BLOCKS / 3 + BLOCKS);
    if (s_has_alternative) sumi_plan_alternative(plan);
    for (int32_t i = 0; i < BLOCKS && s_has_alternative; i += 8) write_layers(n, x, BLOCKS / 3 + i, BLOCKS / 3 + i + 1);
    sumi_plan_section(plan, SUMI_SECTION_DECODE, 2, 0);
    write_layers(n, x, BLOCKS / 3 + BLOCKS, WEIGHTS);
    SUMI_TRY(sumi_plan_finish(plan, error));
    return plan_slice(plan, &(sumi_rates){1e6, 1e6, 3.0}, slice_us, error);
}

// ---- What kernels find ----------------------------------------------------------------------------------------------

// The products of a run in their order. A launch that is given an address in the ring is of the current one or begins
// the next.
typedef struct watch {
    const network* network;
    CUdeviceptr ring;
    uint64_t ring_bytes;
    struct {
        CUdeviceptr address;
        const sumi_weight* weight;
    } uses[4096];
    int32_t count, at, wrong;
    int32_t loads; // of the run
} watch;

static bool is_there(const watch* w, int32_t at, uint64_t address)
{
    if (at < 0 || at >= w->count || w->uses[at].address != address) return false;
    const sumi_weight* weight = w->uses[at].weight;
    const void* wanted = weight->change != NULL ? w->network->sums[weight->index] : weight->tensors[0].data;
    return memcmp((const void*)(uintptr_t)address, wanted, (size_t)weight->rows * WIDTH * 2) == 0;
}

static void look(const char* kernel, const unsigned char* parameters, uint64_t bytes, void* user_data)
{
    watch* w = user_data;
    (void)kernel;
    for (uint64_t k = 0; k + 8 <= bytes; k += 8) {
        uint64_t address;
        memcpy(&address, parameters + k, sizeof address);
        if (address < w->ring || address >= w->ring + w->ring_bytes) continue;
        if (is_there(w, w->at, address)) continue;
        if (is_there(w, w->at + 1, address)) w->at++;
        else w->wrong++;
    }
}

static void expect(watch* w, const sumi_cuda* cuda, const network* n)
{
    const sumi_plan* plan = &n->plan;
    const sumi_cuda_plan* record = sumi_cuda_find_plan((sumi_cuda*)(uintptr_t)cuda, plan);
    const sumi_device_weight_streaming* streaming = record->held.streaming;
    memset(w, 0, sizeof *w);
    w->at = -1;
    w->network = n;
    w->ring = cuda->stock.weight_ring.address;
    w->ring_bytes = cuda->stock.weight_ring.bytes;
    for (size_t s = 0; streaming != NULL && s < plan->section_count; s++) {
        for (int32_t k = 0; k < repeat_of(plan, s); k++) {
            const sumi_section* section = section_of(plan, s, k);
            for (int32_t i = section->op_begin, last = -1; i < section->op_end; i++) {
                if (streaming->op_loads[i] < 0 || streaming->op_loads[i] == last) continue;
                last = streaming->op_loads[i];
                w->loads++;
                const CUdeviceptr address = w->ring + streaming->loads[last].offset;
                // After an alternative the same weight may follow at the same address: launches do not show that.
                if (w->count > 0 && w->uses[w->count - 1].address == address
                    && w->uses[w->count - 1].weight == plan->ops[i].weight)
                    continue;
                w->uses[w->count].address = address;
                w->uses[w->count++].weight = plan->ops[i].weight;
            }
        }
    }
}

// ---- A runner -------------------------------------------------------------------------------------------------------

typedef struct bench {
    sumi_heap heap;
    sumi_workers* workers;
    sumi_runner* runner;
    meter meter;
} bench;

static void open_bench(bench* b, bool without_graphs)
{
    sumi_error error = {0};
    memset(b, 0, sizeof *b);
    sumi_heap_init(&b->heap, NULL);
    CHECK(sumi_workers_create(&b->heap, NULL, 2, NULL, &b->workers) == SUMI_OK);
    const sumi_device_allocator allocator = {meter_allocate, meter_release, &b->meter};
    const sumi_engine_desc desc = {.cuda = {.ordinal = -1}, .device_allocator = &allocator};
    CHECK(sumi_cuda_create(&b->heap, b->workers, &desc,
                           &(sumi_cuda_options){.without_hopper = true, .without_graphs = without_graphs}, &error,
                           &b->runner)
          == SUMI_OK);
    CHECK(runner_load(b->runner, &error) == SUMI_OK);
}

static void close_bench(bench* b)
{
    b->runner->functions->destroy(b->runner);
    sumi_workers_destroy(b->workers);
    CHECK_NUMBER(atomic_load(&b->heap.allocated_bytes), 0);
    CHECK_NUMBER(b->meter.held, 0);
    CHECK_NUMBER(b->meter.pinned, 0);
    CHECK_NUMBER(fake_held(), 0);
    CHECK_NUMBER(fake_violations(), 0);
}

static void close_network(bench* b, network* n)
{
    plan_release(b->runner, &n->plan);
    sumi_plan_end(&n->plan);
    close_bench(b);
}

// The copies run as early as events allow, before the compute stream does anything it need not: a load that does not
// wait for those who still read its place shows.
static void hurry_copies(sumi_cuda* cuda)
{
    sumi_cuda_scope scope;
    CHECK(sumi_cuda_enter(&cuda->device, &scope, NULL) == SUMI_OK);
    CHECK(cuda->device.driver.cuStreamSynchronize(cuda->device.copy) == CUDA_SUCCESS);
    sumi_cuda_leave(&cuda->device, &scope);
}

static sumi_result run_watched(bench* b, network* n, watch* w, bool hurries, sumi_error* error)
{
    const sumi_runner_functions* f = b->runner->functions;
    sumi_cuda* cuda = (sumi_cuda*)b->runner;
    SUMI_TRY(f->reserve(b->runner, &n->plan, error));
    SUMI_TRY(plan_prepare(b->runner, &n->plan, error));
    expect(w, cuda, n);
    fake_on_launch(look, w);
    f->start(b->runner, &n->plan);
    for (size_t s = 0; s < n->plan.section_count; s++) {
        for (int32_t k = 0; k < repeat_of(&n->plan, s); k++) {
            const sumi_section* section = section_of(&n->plan, s, k);
            for (int32_t i = section->slice_begin; i < section->slice_end; i++) {
                SUMI_TRY(
                    plan_run_slice(b->runner, &n->plan, &n->plan.slices[i], section->first_counter + k, NULL, error));
                if (hurries) hurry_copies(cuda);
            }
        }
    }
    SUMI_TRY(runner_drain(b->runner, 0, NULL, error));
    fake_on_launch(NULL, NULL);
    CHECK_NUMBER(w->wrong, 0);
    CHECK_NUMBER(w->at, w->count - 1); // every product was seen
    return SUMI_OK;
}

// The smallest budget that holds the plan, by asking.
static uint64_t smallest_budget(bench* b, const sumi_plan* plan)
{
    sumi_device_need need;
    CHECK(b->runner->functions->need(b->runner, plan, 1, &need, NULL) == SUMI_OK && !need.fits);
    uint64_t low = 1, high = 1;
    CHECK(b->runner->functions->need(b->runner, plan, 0, &need, NULL) == SUMI_OK && need.fits);
    high = 2 * need.device_bytes + (1u << 20);
    while (low + 1 < high) {
        const uint64_t middle = low + (high - low) / 2;
        CHECK(b->runner->functions->need(b->runner, plan, middle, &need, NULL) == SUMI_OK);
        CHECK(!need.fits || need.device_bytes <= middle);
        if (need.fits) high = middle;
        else low = middle;
    }
    return high;
}

static _Alignas(4096) network s_network;
static watch s_watch;

// As if the weights lay in a file that the library has mapped. Chunks are so small that weights share them and need
// several.
static void map_weights(bench* b, network* n)
{
    ((sumi_cuda*)b->runner)->stock.weights.mapped.chunk_bytes = 16384;
    for (int32_t i = 0; i < WEIGHTS; i++) {
        n->layers[i].tensors[0].mapping = n;
        n->layers[i].tensors[0].mapping_bytes = sizeof *n;
    }
}

TEST(streamed_weights_are_there_when_they_are_used)
{
    static const uint32_t s_slices[] = {0, 5, 40, 100000};
    for (int variant = 0; variant < 32; variant++) {
        const bool is_mapped = variant >= 16;
        fake_reset();
        network* n = &s_network;
        bench b;
        sumi_error error = {0};
        make_weights(n);
        open_bench(&b, variant % 2 == 1);
        if (is_mapped) map_weights(&b, n);
        CHECK(write_network(b.runner, n, &b.heap, s_slices[variant % 16 / 4], &error) == SUMI_OK);
        const uint64_t least = smallest_budget(&b, &n->plan);
        sumi_device_need all, need;
        CHECK(b.runner->functions->need(b.runner, &n->plan, 0, &all, &error) == SUMI_OK);
        uint64_t streamed = UINT64_MAX;
        for (uint64_t budget = least; streamed > 0; budget += 60000) {
            CHECK(b.runner->functions->need(b.runner, &n->plan, budget, &need, &error) == SUMI_OK && need.fits
                  && need.device_bytes <= budget);
            CHECK(need.streamed_bytes <= streamed && need.streamed_bytes <= all.weight_bytes);
            streamed = need.streamed_bytes;
            b.runner->functions->set_memory_limit(b.runner, budget);
            fake_complete_after(variant % 4 < 2 ? 0 : 2);
            b.meter.peak = b.meter.held; // what an earlier, smaller budget has left
            CHECK(run_watched(&b, n, &s_watch, variant % 4 >= 2, &error) == SUMI_OK);
            CHECK_TEXT(error.text, "");
            CHECK(b.meter.peak <= budget);
            CHECK(streamed == 0 || s_watch.count > 0);
            CHECK((fake_held_kind("locked") > 0) == (is_mapped && streamed > 0)); // the table has an image in any case
            CHECK(!is_mapped
                  || b.meter.pinned <= need.pinned_bytes); // images that an earlier, smaller budget wanted stay
            const uint64_t blocks = fake_allocation_count();
            CHECK(run_watched(&b, n, &s_watch, false, &error) == SUMI_OK);
            CHECK_NUMBER(fake_allocation_count(), blocks); // warm
        }
        b.runner->functions->release_weights(b.runner, n->list, WEIGHTS + 2);
        close_network(&b, n);
        if (t_errors != 0) {
            printf("  variant %d\n", variant);
            return;
        }
    }
}

// Their sums lie in no file: the host makes images of them, while others are copied from where the file is mapped.
TEST(weights_with_a_change_are_streamed_as_sums)
{
    for (int variant = 0; variant < 4; variant++) {
        fake_reset();
        network* n = &s_network;
        bench b;
        sumi_error error = {0};
        make_weights(n);
        for (int32_t i = 0; i < WEIGHTS; i += 4) give_change(n, i);
        open_bench(&b, variant % 2 == 1);
        map_weights(&b, n);
        CHECK(write_network(b.runner, n, &b.heap, 40, &error) == SUMI_OK);
        const uint64_t budget = smallest_budget(&b, &n->plan);
        sumi_device_need need;
        CHECK(b.runner->functions->need(b.runner, &n->plan, budget, &need, &error) == SUMI_OK);
        b.runner->functions->set_memory_limit(b.runner, budget);
        fake_complete_after(variant < 2 ? 0 : 2);
        CHECK(run_watched(&b, n, &s_watch, variant >= 2, &error) == SUMI_OK);
        CHECK_TEXT(error.text, "");
        CHECK(s_watch.count > 0 && b.meter.peak <= budget && b.meter.pinned <= need.pinned_bytes);
        int32_t images = 0, mapped = 0;
        for (int32_t i = 0; i < WEIGHTS; i++) {
            const sumi_device_resident* layer = sumi_device_weights_find(&((const sumi_cuda*)b.runner)->stock.weights,
                                                                         &n->layers[i], SUMI_DEVICE_FORM_MATRIX);
            CHECK(layer != NULL && (layer->chunks == 0 || i % 4 != 0));
            if (layer != NULL && layer->has_pinned_copy && i % 4 == 0) images++;
            if (layer != NULL && layer->chunks > 0) mapped++;
        }
        CHECK(images > 2 && mapped > 2 && fake_held_kind("locked") > 0);
        b.runner->functions->release_weights(b.runner, n->list, WEIGHTS + 2);
        close_network(&b, n);
    }
}

// So that a copy waits for no op that has nothing to do with it, and no op for another's copy.
TEST(a_segment_has_one_load_and_none_but_its_ops)
{
    fake_reset();
    network* n = &s_network;
    bench b;
    sumi_error error = {0};
    make_weights(n);
    open_bench(&b, false);
    map_weights(&b, n);
    CHECK(write_network(b.runner, n, &b.heap, 100000, &error) == SUMI_OK);
    b.runner->functions->set_memory_limit(b.runner, smallest_budget(&b, &n->plan));
    CHECK(b.runner->functions->reserve(b.runner, &n->plan, &error) == SUMI_OK
          && plan_prepare(b.runner, &n->plan, &error) == SUMI_OK);
    const sumi_cuda_plan* record = sumi_cuda_find_plan((sumi_cuda*)b.runner, &n->plan);
    const sumi_device_weight_streaming* streaming = record->held.streaming;
    b.runner->functions->start(b.runner, &n->plan);
    int32_t with_load = 0, waits = 0;
    for (size_t i = 0; i < n->plan.slice_count && t_errors == 0; i++) {
        const sumi_slice* slice = &n->plan.slices[i];
        int32_t next = slice->op_begin, loads = 0;
        for (sumi_slice segment = {0}; sumi_device_next_segment(&record->held, slice, &segment);
             next = segment.op_end) {
            CHECK_NUMBER(segment.op_begin, next);
            const int32_t load = streaming->op_loads[segment.op_begin];
            for (int32_t op = segment.op_begin; op < segment.op_end; op++)
                CHECK(streaming->op_loads[op] == load
                      || (load >= 0 && streaming->op_loads[op] < 0 && op < streaming->loads[load].op_last));
            CHECK(load < 0 || segment.op_end == slice->op_end || segment.op_end == streaming->loads[load].op_last + 1);
            with_load += load >= 0;
            loads += load >= 0 && segment.op_begin != slice->op_begin;
        }
        CHECK_NUMBER(next, slice->op_end);
        sumi_slice_time time;
        CHECK(b.runner->functions->run(b.runner, &n->plan, slice,
                                       n->plan.sections[n->plan.ops[slice->op_begin].section].first_counter, &error)
              == SUMI_OK);
        if (t_errors != 0) break; // it will not finish
        while (!b.runner->async->collect(b.runner, &time, 1)) b.runner->async->wait(b.runner, 1);
        CHECK(time.has_waits == (loads > 0)); // but for the first op's
        waits += loads > 0;
    }
    CHECK(with_load > WEIGHTS / 2 && waits > 0);
    CHECK(runner_drain(b.runner, 0, NULL, &error) == SUMI_OK);
    CHECK(fake_held_kind("locked") > 0);
    b.runner->functions->release_weights(b.runner, n->list, WEIGHTS + 2);
    CHECK_NUMBER(fake_held_kind("locked"), 0); // their file may go now
    close_network(&b, n);
}

// A driver that locks no read-only memory, or only some of it: images in pinned memory take the place of mappings, and
// what was locked is given back or used.
TEST(mappings_that_cannot_be_locked_get_images)
{
    for (int nth = 0; nth < 12; nth++) {
        fake_reset();
        network* n = &s_network;
        bench b;
        sumi_error error = {0};
        fake_lock_read_only(nth > 0);
        make_weights(n);
        open_bench(&b, false);
        map_weights(&b, n);
        CHECK(write_network(b.runner, n, &b.heap, 40, &error) == SUMI_OK);
        b.runner->functions->set_memory_limit(b.runner, smallest_budget(&b, &n->plan));
        if (nth > 0) fake_fail_call("cuMemHostRegister", nth, CUDA_ERROR_NOT_SUPPORTED);
        CHECK(run_watched(&b, n, &s_watch, false, &error) == SUMI_OK);
        CHECK_TEXT(error.text, "");
        CHECK(s_watch.count > 0 && b.meter.pinned > 0);
        if (nth > 0) CHECK(fake_fail_call(NULL, 0, 0)); // it was asked for so often
        CHECK(!((sumi_cuda*)b.runner)->stock.weights.mapped.is_supported);
        b.runner->functions->release_weights(b.runner, n->list, WEIGHTS + 2);
        CHECK_NUMBER(fake_held_kind("locked"), 0);
        close_network(&b, n);
        if (t_errors != 0) {
            printf("  refused the %d. time\n", nth);
            return;
        }
    }
}

TEST(tables_are_read_where_they_lie)
{
    for (int changed = 0; changed < 2; changed++) {
        fake_reset();
        network* n = &s_network;
        bench b;
        sumi_error error = {0};
        make_weights(n);
        if (changed) give_change(n, WEIGHTS);
        open_bench(&b, false);
        CHECK(write_network(b.runner, n, &b.heap, 100, &error) == SUMI_OK);
        b.runner->functions->set_memory_limit(b.runner, smallest_budget(&b, &n->plan));
        CHECK(run_watched(&b, n, &s_watch, true, &error) == SUMI_OK);
        const sumi_device_resident* table =
            sumi_device_weights_find(&((const sumi_cuda*)b.runner)->stock.weights, &n->table, SUMI_DEVICE_FORM_MATRIX);
        CHECK(table != NULL && table->on_device.data == 0 && table->has_pinned_copy
              && memcmp(sumi_device_host(&table->pinned_copy.pieces[0]), changed ? n->sums[WEIGHTS] : n->table_data,
                        sizeof n->table_data)
                     == 0);
        close_network(&b, n);
    }
}

#define LARGE_ROWS 200000 // 25.6 MB

TEST(large_tables_are_pinned_in_pieces)
{
    static uint16_t s_data[LARGE_ROWS * WIDTH];
    fake_reset();
    network* n = &s_network;
    bench b;
    sumi_error error = {0};
    make_weights(n);
    for (size_t i = 0; i < sizeof s_data / sizeof s_data[0]; i++) s_data[i] = (uint16_t)(i * 2654435761u >> 16);
    n->table = weight_of(WEIGHTS, LARGE_ROWS, s_data, SUMI_DTYPE_BF16);
    open_bench(&b, false);
    CHECK(write_network(b.runner, n, &b.heap, 100, &error) == SUMI_OK);
    b.runner->functions->set_memory_limit(b.runner, smallest_budget(&b, &n->plan));
    uint64_t most = 0;
    int32_t calls = 0;
    float progress;
    for (bool is_done = false; !is_done && calls < 10000; calls++) {
        const uint64_t before = b.meter.pinned;
        CHECK(b.runner->functions->prepare(b.runner, &n->plan, 0, &is_done, &progress, &error) == SUMI_OK);
        const uint64_t pinned = b.meter.pinned > before ? b.meter.pinned - before : 0;
        most = pinned > most ? pinned : most;
    }
    CHECK(most > 0 && most <= 4u << 20);
    CHECK(run_watched(&b, n, &s_watch, true, &error) == SUMI_OK);
    sumi_device_need need;
    CHECK(b.runner->functions->need(b.runner, &n->plan, smallest_budget(&b, &n->plan), &need, &error) == SUMI_OK);
    CHECK_NUMBER(b.meter.pinned, need.pinned_bytes);
    const sumi_device_resident* table =
        sumi_device_weights_find(&((const sumi_cuda*)b.runner)->stock.weights, &n->table, SUMI_DEVICE_FORM_MATRIX);
    const sumi_device_pinned* image = &table->pinned_copy;
    CHECK(table->has_pinned_copy && image->count == 7 && image->made == 7
          && image->piece_bytes == (uint64_t)image->piece_rows * WIDTH * 2);
    for (int32_t row = 0; row < LARGE_ROWS; row++) { // as kernels/rows.cu finds it
        const uint64_t piece = ((const uint64_t*)sumi_device_host(&image->list))[row / image->piece_rows];
        const uint16_t* at = (const uint16_t*)(uintptr_t)piece + row % image->piece_rows * WIDTH;
        CHECK(memcmp(at, s_data + row * WIDTH, WIDTH * 2) == 0);
    }
    close_network(&b, n);
}

TEST(without_pinned_memory_weights_come_from_the_file)
{
    for (int variant = 0; variant < 4; variant++) {
        fake_reset();
        network* n = &s_network;
        bench b;
        sumi_error error = {0};
        make_weights(n);
        open_bench(&b, variant % 2 == 1);
        CHECK(write_network(b.runner, n, &b.heap, 40, &error) == SUMI_OK);
        // The table has to be pinned, so it goes first.
        const uint64_t budget = smallest_budget(&b, &n->plan) + 200000;
        b.runner->functions->set_memory_limit(b.runner, budget);
        b.meter.refused_pinned = WIDTH * WIDTH * 6; // images of this file's weights; not slots, nor the ring of inputs
        CHECK(run_watched(&b, n, &s_watch, false, &error) == SUMI_OUT_OF_HOST_MEMORY);
        CHECK(strstr(error.text, "memory_budget_bytes") != NULL);
        b.meter.refused_pinned = 0;
        error = (sumi_error){0};
        sumi_cuda* cuda = (sumi_cuda*)b.runner;
        while (!sumi_device_weights_find(&cuda->stock.weights, &n->table, SUMI_DEVICE_FORM_MATRIX)->has_pinned_copy) {
            bool is_done;
            float progress;
            CHECK(b.runner->functions->prepare(b.runner, &n->plan, 0, &is_done, &progress, &error) == SUMI_OK);
        }
        CHECK(b.runner->functions->reserve(b.runner, &n->plan, &error) == SUMI_OK);
        b.meter.refused_pinned = WIDTH * WIDTH * 6;
        fake_complete_after(variant < 2 ? 0 : 2);
        CHECK(run_watched(&b, n, &s_watch, variant >= 2, &error) == SUMI_OK);
        CHECK_TEXT(error.text, "");
        CHECK(s_watch.count > 0 && b.meter.peak <= budget);
        close_network(&b, n);
    }
}

// Alternatives run in the place of steps, in any pattern, and steps are left out: every product finds its weight. If
// those of the alternative are all resident, the copies for the steps go on as if it were not there.
TEST(alternatives_find_their_weights)
{
    static const uint32_t s_patterns[] = {0, 4, 0x1dc, 0xee, 0x1fe, 0xaa};
    uint64_t plain_others = 0;
    int went_on = 0;
    s_has_alternative = true;
    for (int variant = 0; variant < 8 && t_errors == 0; variant++) {
        fake_reset();
        network* n = &s_network;
        bench b;
        sumi_error error = {0};
        make_weights(n);
        open_bench(&b, variant % 2 == 1);
        CHECK(write_network(b.runner, n, &b.heap, variant < 4 ? 40 : 100000, &error) == SUMI_OK);
        const uint64_t least = smallest_budget(&b, &n->plan);
        uint64_t streamed = UINT64_MAX;
        for (uint64_t budget = least; streamed > 0 && t_errors == 0; budget += 60000) {
            sumi_device_need need;
            CHECK(b.runner->functions->need(b.runner, &n->plan, budget, &need, &error) == SUMI_OK && need.fits);
            streamed = need.streamed_bytes;
            b.runner->functions->set_memory_limit(b.runner, budget);
            fake_complete_after(variant % 4 < 2 ? 0 : 2);
            s_alternatives = 0;
            CHECK(run_watched(&b, n, &s_watch, false, &error) == SUMI_OK); // also uploads weights
            for (size_t p = 0; p < sizeof s_patterns / sizeof *s_patterns && t_errors == 0; p++) {
                s_alternatives = s_patterns[p];
                const uint64_t copied = fake_calls("cuMemcpyHtoDAsync");
                CHECK(run_watched(&b, n, &s_watch, variant % 4 >= 2, &error) == SUMI_OK);
                CHECK_TEXT(error.text, "");
                const sumi_device_weight_streaming* streaming =
                    sumi_cuda_find_plan((sumi_cuda*)b.runner, &n->plan)->held.streaming;
                const bool is_resident =
                    streaming != NULL && streaming->section_loads[2] == streaming->section_loads[3];
                const uint64_t others = fake_calls("cuMemcpyHtoDAsync") - copied - (uint64_t)s_watch.loads;
                if (p == 0) plain_others = others; // of inputs and the like
                // Nothing is copied that is not used, unless the last step is an alternative.
                if (is_resident && (s_patterns[p] >> (MIXED_STEPS - 1) & 1) == 0) {
                    CHECK_NUMBER(others, plain_others);
                    went_on++;
                }
            }
        }
        b.runner->functions->release_weights(b.runner, n->list, WEIGHTS + 2);
        close_network(&b, n);
        if (t_errors != 0) printf("  variant %d, pattern %x\n", variant, s_alternatives);
    }
    printf("  copies went on beside alternatives in %d runs\n", went_on);
    CHECK(went_on > 20);
    s_has_alternative = false;
    s_alternatives = 0;
}

// Slices again and again, out of their order, as profiles and tests may.
TEST(any_order_of_slices_finds_its_weights)
{
    fake_reset();
    network* n = &s_network;
    bench b;
    sumi_error error = {0};
    make_weights(n);
    open_bench(&b, false);
    CHECK(write_network(b.runner, n, &b.heap, 40, &error) == SUMI_OK);
    b.runner->functions->set_memory_limit(b.runner, smallest_budget(&b, &n->plan));
    CHECK(b.runner->functions->reserve(b.runner, &n->plan, &error) == SUMI_OK);
    CHECK(plan_prepare(b.runner, &n->plan, &error) == SUMI_OK);
    b.runner->functions->start(b.runner, &n->plan);
    fake_complete_after(2);
    uint32_t seed = 1;
    for (int32_t i = 0; i < 300; i++) {
        seed = seed * 1664525u + 1013904223u;
        const int32_t slice = (int32_t)(seed >> 16) % (int32_t)n->plan.slice_count;
        const int32_t section = n->plan.ops[n->plan.slices[slice].op_begin].section;
        CHECK(plan_run_slice(b.runner, &n->plan, &n->plan.slices[slice],
                             n->plan.sections[section].first_counter
                                 + (int32_t)(seed >> 8) % n->plan.sections[section].repeat,
                             NULL, &error)
              == SUMI_OK);
    }
    CHECK(runner_drain(b.runner, 0, NULL, &error) == SUMI_OK);
    fake_complete_after(0);
    CHECK(run_watched(&b, n, &s_watch, true, &error) == SUMI_OK); // and then in order
    close_network(&b, n);
}

// A job that was cancelled leaves slices in flight: the next run's first copies wait for them.
TEST(a_new_run_does_not_disturb_what_is_left_of_another)
{
    static watch s_all;
    fake_reset();
    network* n = &s_network;
    bench b;
    sumi_error error = {0};
    make_weights(n);
    open_bench(&b, false);
    const sumi_runner_functions* f = b.runner->functions;
    CHECK(write_network(b.runner, n, &b.heap, 0, &error) == SUMI_OK); // an op is a slice
    f->set_memory_limit(b.runner, smallest_budget(&b, &n->plan));     // a ring of one weight
    CHECK(f->reserve(b.runner, &n->plan, &error) == SUMI_OK);
    CHECK(plan_prepare(b.runner, &n->plan, &error) == SUMI_OK);
    fake_complete_after(2);
    expect(&s_watch, (const sumi_cuda*)b.runner, n);
    s_all = s_watch;
    const sumi_device_weight_streaming* streaming = sumi_cuda_find_plan((sumi_cuda*)b.runner, &n->plan)->held.streaming;
    // Up to the middle of the use of a weight, which nothing else waits for.
    int32_t slices = n->plan.sections[1].slice_begin;
    while (streaming->op_loads[slices] < 0 || streaming->loads[streaming->op_loads[slices]].op_last == slices) slices++;
    slices++;
    f->start(b.runner, &n->plan);
    int32_t seen = 0;
    for (int32_t i = 0, last = -1; i < slices; i++) {
        const int32_t load = streaming->op_loads[n->plan.slices[i].op_begin];
        if (load >= 0 && load != last) seen++, last = load;
        CHECK(f->run(b.runner, &n->plan, &n->plan.slices[i], i < n->plan.sections[1].slice_begin ? 0 : 2, &error)
              == SUMI_OK);
    }
    CHECK(seen > 4 && seen + s_all.count < 4096);
    memcpy(&s_watch.uses[seen], s_all.uses, (size_t)s_all.count * sizeof s_all.uses[0]);
    s_watch.count = seen + s_all.count;
    fake_on_launch(look, &s_watch);
    f->start(b.runner, &n->plan);
    hurry_copies((sumi_cuda*)b.runner);
    for (size_t s = 0; s < n->plan.section_count; s++) {
        const sumi_section* section = &n->plan.sections[s];
        for (int32_t i = 0; i < section->repeat * (section->slice_end - section->slice_begin); i++) {
            const int32_t length = section->slice_end - section->slice_begin;
            CHECK(plan_run_slice(b.runner, &n->plan, &n->plan.slices[section->slice_begin + i % length],
                                 section->first_counter + i / length, NULL, &error)
                  == SUMI_OK);
        }
    }
    CHECK(runner_drain(b.runner, 0, NULL, &error) == SUMI_OK);
    fake_on_launch(NULL, NULL);
    CHECK_NUMBER(s_watch.wrong, 0);
    CHECK_NUMBER(s_watch.at, s_watch.count - 1);
    close_network(&b, n);
}

// ---- Through the engine ---------------------------------------------------------------------------------------------

static sumi_engine_desc budget_desc(meter* m, uint64_t budget)
{
    memset(&s_host, 0, sizeof s_host);
    memset(m, 0, sizeof *m);
    sumi_engine_desc desc = host_desc(&s_host);
    desc.backend = SUMI_BACKEND_CUDA;
    desc.memory_budget_bytes = budget;
    static sumi_device_allocator s_allocator; // the desc that is returned points to it
    s_allocator = (sumi_device_allocator){meter_allocate, meter_release, m};
    desc.device_allocator = &s_allocator;
    return desc;
}

static void close_budget(sumi_engine* engine, const meter* m)
{
    close_engine(engine);
    CHECK_NUMBER(m->held, 0);
    CHECK_NUMBER(m->pinned, 0);
    CHECK_NUMBER(fake_held(), 0);
    CHECK_NUMBER(fake_violations(), 0);
}

static uint64_t s_whole, s_latents; // bytes of the job below without a budget; its picture

static void measure_whole(void)
{
    fake_reset();
    meter m;
    sumi_model* model = NULL;
    sumi_engine_desc ed = budget_desc(&m, 0);
    sumi_engine* engine = open_engine(&ed, &model);
    CHECK(engine != NULL);
    sumi_image_desc desc = small_image(model, &s_item);
    sumi_memory memory;
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_OK);
    CHECK(memory.streamed == 0 && !memory.tiles_vae);
    s_whole = memory.weights + memory.arena;
    s_latents = draw_hash(engine, &desc);
    CHECK(s_latents != 0);
    CHECK_NUMBER(m.held, s_whole); // exactly what was said
    close_budget(engine, &m);
}

TEST(a_job_never_holds_more_than_its_budget)
{
    measure_whole();
    int streamed = 0, refused = 0, tiled = 0;
    for (int percent = 110; percent > 20; percent -= 5) {
        fake_reset();
        meter m;
        const uint64_t budget = s_whole / 100 * (uint64_t)percent;
        sumi_model* model = NULL;
        sumi_engine_desc ed = budget_desc(&m, budget);
        sumi_engine* engine = open_engine(&ed, &model);
        CHECK(engine != NULL);
        if (engine == NULL) return;
        sumi_image_desc desc = small_image(model, &s_item);
        sumi_memory memory;
        const sumi_result fits = sumi_image_memory(engine, &desc, &memory);
        CHECK(fits == SUMI_OK || fits == SUMI_BUDGET_TOO_SMALL);
        const uint64_t hash = draw_hash(engine, &desc);
        CHECK((fits == SUMI_OK) == (hash != 0));
        CHECK(m.peak <= budget);
        if (fits == SUMI_OK) CHECK(memory.weights + memory.arena <= budget && (memory.tiles_vae || hash == s_latents));
        streamed += memory.streamed > 0;
        tiled += memory.tiles_vae;
        refused += fits != SUMI_OK;
        if (fits == SUMI_OK) CHECK_NUMBER(memory.needed, memory.weights + memory.arena);
        if (fits != SUMI_OK) { // exactly so much as it says is enough
            const uint64_t needed = memory.needed;
            CHECK(needed > budget);
            CHECK_NUMBER(sumi_engine_set_memory_budget(engine, needed - 1), SUMI_OK);
            CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_BUDGET_TOO_SMALL);
            CHECK_NUMBER(sumi_engine_set_memory_budget(engine, needed), SUMI_OK);
            CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_OK);
            CHECK(draw_hash(engine, &desc) != 0 && m.held <= needed);
        }
        close_budget(engine, &m);
    }
    printf("  of 18 budgets %d streamed, %d tiled, %d were too small\n", streamed, tiled, refused);
    CHECK(streamed > 2 && refused > 0);
}

TEST(budgets_change_while_alive)
{
    fake_reset();
    meter m;
    sumi_model* model = NULL;
    sumi_engine_desc ed = budget_desc(&m, 0);
    ed.max_slice_us = 100;
    sumi_engine* engine = open_engine(&ed, &model);
    CHECK(engine != NULL && s_whole > 0);
    sumi_image_desc desc = small_image(model, &s_item);
    CHECK(draw_hash(engine, &desc) == s_latents);
    for (int i = 0; i < 12; i++) {
        const uint64_t budget = i % 3 == 2 ? 0 : s_whole / 100 * (uint64_t)(i % 3 == 0 ? 85 : 70);
        sumi_job job;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        for (int k = 0; k < i; k++) sumi_engine_update(engine, 1); // some change it in the middle of a job
        CHECK_NUMBER(sumi_engine_set_memory_budget(engine, budget), SUMI_OK);
        sumi_job_wait(engine, job, SUMI_FOREVER);
        sumi_image image;
        CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_OK);
        sumi_images_release(engine, &image, 1);
        CHECK(budget == 0 || m.held <= budget);
        m.peak = m.held;
        CHECK(draw_hash(engine, &desc) == s_latents);
        CHECK(budget == 0 || m.peak <= budget);
    }
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, s_whole / 4), SUMI_OK); // idle: at once
    CHECK(m.held <= s_whole / 4);
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 0), SUMI_OK);
    CHECK(draw_hash(engine, &desc) == s_latents);
    close_budget(engine, &m);
}

// The host says no where no budget was set: the job streams what does not fit. Enough memory again: it does not.
TEST(a_device_with_less_memory_streams)
{
    for (int percent = 95; percent > 20; percent -= 15) {
        fake_reset();
        meter m;
        sumi_model* model = NULL;
        sumi_engine_desc ed = budget_desc(&m, 0);
        m.cap = s_whole / 100 * (uint64_t)percent;
        sumi_engine* engine = open_engine(&ed, &model);
        CHECK(engine != NULL);
        if (engine == NULL) return;
        sumi_image_desc desc = small_image(model, &s_item);
        sumi_job job;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        sumi_job_wait(engine, job, SUMI_FOREVER);
        const sumi_job_status status = sumi_job_poll(engine, job);
        CHECK(status.result == SUMI_OK || (status.result == SUMI_OUT_OF_DEVICE_MEMORY && status.message[0] != 0));
        CHECK(percent < 60 || status.result == SUMI_OK);
        printf("  %d %%: %s\n", percent, status.result == SUMI_OK ? "done" : status.message);
        sumi_job_discard(engine, job);
        m.cap = 0;
        CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 0), SUMI_OK);
        CHECK(draw_hash(engine, &desc) == s_latents);
        CHECK_NUMBER(m.held, s_whole);
        close_budget(engine, &m);
    }
}

// A batch that the device cannot hold is halved until it can; then weights are streamed; then the job fails. The same
// pictures, and the engine is as good as before, whatever it came to.
TEST(a_batch_that_does_not_fit_is_halved)
{
    static const sumi_image_item s_items[5] = {{.text = "a red fox", .negative_text = "grey", .seed = 3},
                                               {.text = "a lighthouse at dusk", .seed = 4},
                                               {.text = "a red fox", .seed = 5},
                                               {.text = "grey", .negative_text = "a red fox", .seed = 6},
                                               {.text = "an owl", .negative_text = "grey", .seed = 7}};
    enum { MOST = 5, VALUES = 16 * 8 * 8 };
    static float s_whole_latents[MOST][VALUES], s_parts[MOST][VALUES];
    static uint8_t s_grey[64 * 64];
    uint64_t need[2][MOST + 1] = {{0}}, weights = 0;
    int halved = 0, streamed = 0, refused = 0;
    for (int round = 0; round < 14 && t_errors == 0; round++) {
        fake_reset();
        meter m;
        sumi_model* model = NULL;
        sumi_engine_desc ed = budget_desc(&m, 0);
        ed.max_slice_us = 100;
        sumi_engine* engine = open_engine(&ed, &model);
        CHECK(engine != NULL);
        if (engine == NULL) return;
        sumi_image_desc desc = small_image(model, s_items);
        sumi_pixels start = {s_grey, 64, 64, 0, 1};
        desc.width = desc.height = 64;
        desc.step_count = 4;
        desc.guidance.scale = 2.0f;
        desc.guidance.end = 0.5f;
        desc.preview_every = 1;
        desc.start.strength = 1.0f;
        for (int32_t i = 0; i < 2 * MOST && round == 0; i++) {
            sumi_memory memory;
            desc.item_count = i / 2 + 1;
            desc.start.image = i % 2 == 1 ? &start : NULL;
            CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_OK);
            need[i % 2][i / 2 + 1] = memory.weights + memory.arena;
            weights = memory.weights;
        }
        const int has_start = round % 3 == 2;
        desc.start.image = has_start ? &start : NULL;
        desc.item_count = MOST;
        // Round 0: all there is. Then exactly enough for one more at a time, then a little less than one by one take
        // with all weights.
        const uint64_t cap = round == 0    ? 0
                           : round <= MOST ? need[has_start][MOST + 1 - round]
                                           : need[has_start][1] - weights / 12 * (uint64_t)(round - MOST);
        sumi_job job;
        if (round % 2 == 1) { // there is an arena already, of another size
            desc.item_count = 1;
            CHECK(draw_hash(engine, &desc) != 0);
            desc.item_count = MOST;
        }
        m.cap = cap;
        fake_complete_after(round % 3);
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        float progress = 0.0f;
        while (sumi_job_poll(engine, job).state < SUMI_JOB_DONE) {
            sumi_engine_update(engine, 1000);
            CHECK(sumi_job_poll(engine, job).progress >= progress);
            progress = sumi_job_poll(engine, job).progress;
        }
        const sumi_job_status status = sumi_job_poll(engine, job);
        CHECK(status.result == SUMI_OK || (status.result == SUMI_OUT_OF_DEVICE_MEMORY && status.message[0] != 0));
        CHECK(cap == 0 || m.held <= cap);
        if (status.result == SUMI_OK) {
            uint8_t preview[8 * 8 * 4];
            sumi_image image;
            for (int32_t i = 0; i < MOST; i++)
                CHECK_NUMBER(sumi_job_preview(engine, job, i, preview, sizeof preview, &image), SUMI_OK);
            for (int32_t i = 0; i < MOST; i++)
                CHECK_NUMBER(sumi_job_latents(engine, job, i, round == 0 ? s_whole_latents[i] : s_parts[i], VALUES),
                             SUMI_OK);
            if (round > 0 && desc.start.image == NULL)
                CHECK(memcmp(s_whole_latents, s_parts, sizeof s_whole_latents) == 0);
            CHECK_NUMBER(status.step, 4);
            const bool has_all = engine->shortage.bytes == 0; // otherwise with what was had, streaming
            CHECK(round > MOST || has_all);                   // halving comes before streaming
            halved += round > 1 && has_all;
            streamed += !has_all;
        }
        refused += status.result != SUMI_OK;
        sumi_image images[MOST];
        CHECK_NUMBER(sumi_fetch_images(engine, job, images, MOST), status.result);
        for (int32_t i = 0; i < MOST && status.result == SUMI_OK; i++)
            CHECK(images[i].pixels != NULL && images[i].seed == s_items[i].seed);
        sumi_images_release(engine, images, MOST);
        fake_complete_after(0);
        m.cap = 0;
        CHECK(draw_hash(engine, &desc) != 0);
        close_budget(engine, &m);
    }
    printf("  with ever less memory: %d times in parts, %d times streamed, %d times refused\n", halved, streamed,
           refused);
    CHECK(halved >= 4 && streamed > 0);
}

TEST(every_device_allocation_may_fail)
{
    for (int budgeted = 0; budgeted < 2; budgeted++) {
        bool fails = true;
        int nth = 1, survived = 0;
        for (; fails && nth < 400 && t_errors == 0; nth++) {
            fake_reset();
            meter m;
            sumi_model* model = NULL;
            sumi_engine_desc ed = budget_desc(&m, budgeted ? s_whole / 100 * 75 : 0);
            sumi_engine* engine = NULL;
            m.fails_at = nth;
            const sumi_result created = sumi_engine_create(&ed, &engine);
            CHECK(created == SUMI_OK || created == SUMI_OUT_OF_DEVICE_MEMORY);
            if (created == SUMI_OK) {
                model = load_model(engine);
                if (model == NULL) model = load_model(engine);
                CHECK(model != NULL);
                sumi_image_desc desc = small_image(model, &s_item);
                sumi_job job;
                CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
                sumi_job_wait(engine, job, SUMI_FOREVER);
                const sumi_job_status status = sumi_job_poll(engine, job);
                CHECK(status.result == SUMI_OK || status.result == SUMI_OUT_OF_DEVICE_MEMORY);
                survived += status.result == SUMI_OK;
                sumi_job_discard(engine, job);
                fails = m.count >= nth;
                CHECK(draw_hash(engine, &desc) == s_latents); // the engine works all the same
                CHECK(!budgeted || m.peak <= ed.memory_budget_bytes);
            }
            close_budget(engine, &m);
        }
        printf("  %s a budget: %d allocations failed, %d jobs were done all the same\n", budgeted ? "with" : "without",
               nth - 2, survived - 1);
        CHECK(!fails);
    }
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(streamed_weights_are_there_when_they_are_used);
    RUN(weights_with_a_change_are_streamed_as_sums);
    RUN(a_segment_has_one_load_and_none_but_its_ops);
    RUN(mappings_that_cannot_be_locked_get_images);
    RUN(tables_are_read_where_they_lie);
    RUN(large_tables_are_pinned_in_pieces);
    RUN(without_pinned_memory_weights_come_from_the_file);
    RUN(alternatives_find_their_weights);
    RUN(any_order_of_slices_finds_its_weights);
    RUN(a_new_run_does_not_disturb_what_is_left_of_another);
    RUN(a_job_never_holds_more_than_its_budget);
    RUN(budgets_change_while_alive);
    RUN(a_device_with_less_memory_streams);
    RUN(a_batch_that_does_not_fit_is_halved);
    RUN(every_device_allocation_may_fail);
    TEST_END();
}
#else
#include "without_cuda.h"
#endif
