// Which weights stay where a budget has no room for all of them, which leave when another plan wants the room, and how
// many bytes a run copies, on the fake driver (fake_cuda): what steps read stays longest, and what a run reads
// once is copied once at most.
#include "at_once.h"
#include "cuda_fixture.h"
#ifdef SUMI_HAS_CUDA
#include "cuda/cuda.h"
#include "cuda/launch.h"
#include "cuda/state.h"
#include "device/device_memory.h"
#include "device/weight_forms.h"
#include "fake_cuda.h"
#include "jobs/engine_state.h"
#include "jobs/objects.h"
#include "models/network_state.h"
#include "plan_runner.h"

// ---- A network in small ---------------------------------------------------------------------------------------------

#define WIDTH 64
#define TOKENS 24
#define BLOCKS 12
#define PICTURES 2 // of DECODE

// The sections of an edit job, each with its own weights. Modulation's are half as many bytes as the steps', as in
// Qwen-Image, and one matrix of the text encoder is the largest of all.
enum { VISION_AT = 0, TEXT_AT = 4, IMAGE_AT = 12, PREPARE_AT = 15, STEPS_AT = 21, DECODE_AT = 33, WEIGHTS = 36 };

typedef struct network {
    sumi_plan plan;
    sumi_weight table, layers[WEIGHTS];
    const sumi_weight* list[WEIGHTS + 1];
} network;

static uint16_t s_table[50 * WIDTH], s_data[WEIGHTS][WIDTH * WIDTH * 5];

static sumi_weight weight_of(int32_t index, int32_t rows, const void* data)
{
    return (sumi_weight){.name = "weight",
                         .rows = rows,
                         .cols = WIDTH,
                         .tensor_count = 1,
                         .tensors = {{.data = data, .dtype = SUMI_DTYPE_BF16, .rows = rows, .scale = 1.0f}},
                         .index = index};
}

static int32_t height_of(int32_t i)
{
    if (i == TEXT_AT + 3) return 5 * WIDTH;
    if (i >= PREPARE_AT && i < STEPS_AT) return 3 * WIDTH;
    return (1 + i % 3) * WIDTH;
}

static void make_weights(network* n)
{
    memset(n, 0, sizeof *n);
    for (int32_t i = 0; i < WEIGHTS; i++) {
        n->layers[i] = weight_of(i, height_of(i), s_data[i]);
        n->list[i] = &n->layers[i];
    }
    n->table = weight_of(WEIGHTS, 50, s_table);
    n->list[WEIGHTS] = &n->table;
}

static void write_layers(network* n, sumi_value x, int32_t begin, int32_t end)
{
    for (int32_t i = begin; i < end; i++)
        (void)sumi_plan_linear(&n->plan, &(sumi_plan_linear_args){.label = "layer", .x = x, .weight = &n->layers[i]});
}

static sumi_result write_network(const sumi_runner* runner, network* n, sumi_heap* heap, sumi_error* error)
{
    sumi_plan* plan = &n->plan;
    sumi_runner_begin_plan(runner, plan, heap);
    sumi_value ids = sumi_plan_bound(plan, "ids", SUMI_ELEMENT_INT, TOKENS, 1);
    sumi_plan_section(plan, SUMI_SECTION_TEXT, 1, 0);
    sumi_value x = sumi_plan_embed_rows(plan, ids, &n->table, 1.0f);
    write_layers(n, x, TEXT_AT, IMAGE_AT);
    sumi_plan_section(plan, SUMI_SECTION_VISION, 1, 0);
    write_layers(n, x, VISION_AT, TEXT_AT);
    sumi_plan_section(plan, SUMI_SECTION_IMAGE, 1, 0);
    write_layers(n, x, IMAGE_AT, PREPARE_AT);
    sumi_plan_section(plan, SUMI_SECTION_PREPARE, 1, 0);
    write_layers(n, x, PREPARE_AT, STEPS_AT);
    sumi_plan_section(plan, SUMI_SECTION_DENOISE, 3, 0); // with guidance, then without
    write_layers(n, x, STEPS_AT, DECODE_AT);
    sumi_plan_section(plan, SUMI_SECTION_DENOISE, 2, 3);
    write_layers(n, x, STEPS_AT, DECODE_AT);
    sumi_plan_section(plan, SUMI_SECTION_DECODE, PICTURES, 0);
    write_layers(n, x, DECODE_AT, WEIGHTS);
    SUMI_TRY(sumi_plan_finish(plan, error));
    return plan_slice(plan, &(sumi_rates){1e6, 1e6, 3.0}, 40, error);
}

// ---- What a division must be ----------------------------------------------------------------------------------------

// Of the weights that can be streamed: those of steps, and the others.
typedef struct summary {
    uint64_t bytes, streamed, largest, least_streamed;
} summary;

static void sum_up(const sumi_device_division* division, summary* steps, summary* others)
{
    *steps = *others = (summary){.least_streamed = UINT64_MAX};
    for (int32_t i = 0; i < division->count; i++) {
        const sumi_device_division_entry* entry = &division->entries[i];
        if (entry->residence == SUMI_DEVICE_WEIGHT_PINNED || entry->form == SUMI_DEVICE_FORM_VECTOR) continue;
        summary* of = entry->in_steps ? steps : others;
        of->bytes += entry->bytes;
        of->largest = entry->bytes > of->largest ? entry->bytes : of->largest;
        if (entry->residence != SUMI_DEVICE_WEIGHT_STREAMED) continue;
        of->streamed += entry->bytes;
        of->least_streamed = entry->bytes < of->least_streamed ? entry->bytes : of->least_streamed;
    }
}

// Divides `room` and looks at what came out. *out_steps: bytes that every step copies. False: it does not fit.
static bool check_division(const sumi_cuda* cuda, const sumi_plan* plan, uint64_t room, uint64_t* out_steps)
{
    sumi_device_division division;
    sumi_error error = {0};
    summary steps, others;
    *out_steps = 0;
    CHECK_NUMBER(sumi_device_divide(&cuda->stock.weights, plan, room, &division, &error), SUMI_OK);
    const bool fits = division.fits, streams = division.streams;
    sum_up(&division, &steps, &others);
    if (fits && streams) {
        const uint64_t fixed =
            division.resident_bytes - (steps.bytes - steps.streamed) - (others.bytes - others.streamed);
        CHECK(division.resident_bytes + division.ring_bytes + division.staging_bytes <= room);
        CHECK_NUMBER(division.streamed_bytes, steps.streamed + others.streamed);
        // Steps copy nothing as long as one place for the others can be had beside their weights.
        const bool holds_steps = fixed + division.staging_bytes + steps.bytes + others.largest <= room;
        CHECK((steps.streamed == 0) == (steps.bytes == 0 || holds_steps));
        // Nothing else stays in the place of what steps copy.
        if (steps.streamed > 0) CHECK(others.bytes - others.streamed < steps.least_streamed);
        // The ring takes no more from what could stay than its use is worth.
        const uint64_t most = steps.streamed == 0                ? 3 * others.largest
                            : 3 * steps.largest > others.largest ? 3 * steps.largest
                                                                 : others.largest;
        CHECK(division.ring_bytes <= most);
    }
    *out_steps = steps.streamed;
    sumi_free(cuda->heap, division.entries);
    return fits;
}

// ---- What a run copies ----------------------------------------------------------------------------------------------

static struct {
    PFN_cuMemcpyHtoDAsync_v3020 copy;
    PFN_cuMemcpy2DAsync_v3020 copy_rows; // of interleaved matrices
    CUdeviceptr ring;
    uint64_t ring_bytes, bytes;
} s_copies; // into the ring

static CUresult CUDAAPI count_copy(CUdeviceptr to, const void* from, size_t bytes, CUstream stream)
{
    if (to >= s_copies.ring && to < s_copies.ring + s_copies.ring_bytes) s_copies.bytes += bytes;
    return s_copies.copy(to, from, bytes, stream);
}

static CUresult CUDAAPI count_rows(const CUDA_MEMCPY2D* rows, CUstream stream)
{
    if (rows->dstDevice >= s_copies.ring && rows->dstDevice < s_copies.ring + s_copies.ring_bytes)
        s_copies.bytes += rows->WidthInBytes * rows->Height;
    return s_copies.copy_rows(rows, stream);
}

static void begin_count(sumi_cuda* cuda)
{
    s_copies.copy = cuda->device.driver.cuMemcpyHtoDAsync;
    s_copies.copy_rows = cuda->device.driver.cuMemcpy2DAsync;
    s_copies.ring = cuda->stock.weight_ring.address;
    s_copies.ring_bytes = cuda->stock.weight_ring.bytes;
    s_copies.bytes = 0;
    cuda->device.driver.cuMemcpyHtoDAsync = count_copy;
    cuda->device.driver.cuMemcpy2DAsync = count_rows;
}

// Places are multiples of 512 bytes, what is copied into them may be less.
static void end_count(sumi_cuda* cuda, uint64_t expected, int32_t loads)
{
    cuda->device.driver.cuMemcpyHtoDAsync = s_copies.copy;
    cuda->device.driver.cuMemcpy2DAsync = s_copies.copy_rows;
    CHECK(s_copies.bytes <= expected && expected <= s_copies.bytes + 511 * (uint64_t)loads);
}

// What a run of the plan copies: each use in each repetition of a section. Counts the weights that a section which runs
// once copies more than once.
static uint64_t expected_copies(const sumi_cuda_plan* record, int32_t* out_loads, int32_t* out_repeated)
{
    const sumi_device_weight_streaming* streaming = record->held.streaming;
    uint64_t bytes = 0;
    *out_repeated = *out_loads = 0;
    for (size_t s = 0; streaming != NULL && s < record->held.plan->section_count; s++) {
        const sumi_section* section = &record->held.plan->sections[s];
        for (int32_t i = streaming->section_loads[s]; i < streaming->section_loads[s + 1]; i++) {
            bytes += streaming->loads[i].bytes * (uint64_t)section->repeat;
            *out_loads += section->repeat;
            for (int32_t k = streaming->section_loads[s]; k < i && section->kind != SUMI_SECTION_DENOISE; k++)
                *out_repeated += streaming->loads[k].weight_index == streaming->loads[i].weight_index;
        }
    }
    return bytes;
}

// ---- A runner -------------------------------------------------------------------------------------------------------

typedef struct bench {
    sumi_heap heap;
    sumi_workers* workers;
    sumi_runner* runner;
    sumi_cuda* cuda;
} bench;

static void open_bench(bench* b)
{
    sumi_error error = {0};
    memset(b, 0, sizeof *b);
    fake_reset();
    sumi_heap_init(&b->heap, NULL);
    CHECK(sumi_workers_create(&b->heap, NULL, 2, NULL, &b->workers) == SUMI_OK);
    const sumi_engine_desc desc = {.cuda = {.ordinal = -1}};
    CHECK(
        sumi_cuda_create(&b->heap, b->workers, &desc, &(sumi_cuda_options){.without_hopper = true}, &error, &b->runner)
        == SUMI_OK);
    CHECK(runner_load(b->runner, &error) == SUMI_OK);
    b->cuda = (sumi_cuda*)b->runner;
}

static void close_bench(bench* b)
{
    b->runner->functions->destroy(b->runner);
    sumi_workers_destroy(b->workers);
    CHECK_NUMBER(atomic_load(&b->heap.allocated_bytes), 0);
    CHECK_NUMBER(fake_held(), 0);
    CHECK_NUMBER(fake_violations(), 0);
}

static void close_network(bench* b, network* n)
{
    plan_release(b->runner, &n->plan);
    sumi_plan_end(&n->plan);
    b->runner->functions->release_weights(b->runner, n->list, WEIGHTS + 1);
}

static uint64_t whole_bytes(const network* n)
{
    uint64_t bytes = 0;
    for (int32_t i = 0; i < WEIGHTS; i++) bytes += sumi_device_form_bytes(&n->layers[i], SUMI_DEVICE_FORM_MATRIX);
    return bytes;
}

static network s_network, s_other;

// ---- Tests ----------------------------------------------------------------------------------------------------------

TEST(what_steps_read_stays_longest)
{
    bench b;
    network* n = &s_network;
    sumi_error error = {0};
    make_weights(n);
    open_bench(&b);
    CHECK(write_network(b.runner, n, &b.heap, &error) == SUMI_OK);
    uint64_t before = UINT64_MAX;
    int fitting = 0, streaming_steps = 0, keeping_steps = 0;
    for (uint64_t room = 0; room < 2 * whole_bytes(n) && t_errors == 0; room += 1500) {
        uint64_t steps;
        if (!check_division(b.cuda, &n->plan, room, &steps)) {
            CHECK_NUMBER(fitting, 0); // more room never fits less
            continue;
        }
        CHECK(steps <= before);
        before = steps;
        fitting++;
        streaming_steps += steps > 0;
        keeping_steps += steps == 0;
    }
    CHECK(streaming_steps > 20 && keeping_steps > 20);
    close_network(&b, n);
    close_bench(&b);
}

TEST(a_run_copies_what_it_reads_once_at_most_once)
{
    bench b;
    network* n = &s_network;
    sumi_error error = {0};
    make_weights(n);
    open_bench(&b);
    const sumi_runner_functions* f = b.runner->functions;
    CHECK(write_network(b.runner, n, &b.heap, &error) == SUMI_OK);
    uint64_t before = UINT64_MAX;
    int runs = 0, without_steps = 0;
    for (uint64_t budget = 40000; before > 0 && t_errors == 0; budget += 30000) {
        sumi_device_need need;
        CHECK(f->need(b.runner, &n->plan, budget, &need, &error) == SUMI_OK);
        if (!need.fits) continue;
        f->set_memory_limit(b.runner, budget);
        CHECK(f->reserve(b.runner, &n->plan, &error) == SUMI_OK);
        CHECK(plan_prepare(b.runner, &n->plan, &error) == SUMI_OK);
        CHECK_TEXT(error.text, "");
        int32_t repeated, loads;
        const sumi_cuda_plan* record = sumi_cuda_find_plan(b.cuda, &n->plan);
        const uint64_t expected = expected_copies(record, &loads, &repeated);
        CHECK_NUMBER(repeated, 0);
        begin_count(b.cuda);
        f->start(b.runner, &n->plan);
        CHECK(plan_run_all(b.runner, &n->plan, NULL, &error) == SUMI_OK);
        end_count(b.cuda, expected, loads);
        CHECK(expected <= before);
        before = expected;
        uint64_t steps;
        CHECK(check_division(b.cuda, &n->plan, budget - (need.device_bytes - need.weight_bytes), &steps));
        // What has no room is copied once; only weights of DECODE once for each picture.
        if (steps == 0) CHECK(need.streamed_bytes <= expected && expected <= PICTURES * need.streamed_bytes);
        without_steps += steps == 0 && expected > 0;
        runs++;
    }
    CHECK(runs > 8 && without_steps > 2);
    close_network(&b, n);
    close_bench(&b);
}

static int32_t count_placed(const bench* b, const network* n, int32_t begin, int32_t end)
{
    int32_t count = 0;
    for (int32_t i = begin; i < end; i++) {
        const sumi_device_resident* resident =
            sumi_device_weights_find(&b->cuda->stock.weights, &n->layers[i], SUMI_DEVICE_FORM_MATRIX);
        count += resident != NULL && resident->on_device.data != 0;
    }
    return count;
}

// Two models take turns under a budget that holds one and a half of them: what comes takes the place of what the other
// reads once, until that is not enough.
TEST(what_is_read_once_leaves_before_what_steps_read)
{
    bench b;
    network *n = &s_network, *other = &s_other;
    sumi_error error = {0};
    make_weights(n);
    make_weights(other);
    open_bench(&b);
    const sumi_runner_functions* f = b.runner->functions;
    CHECK(write_network(b.runner, n, &b.heap, &error) == SUMI_OK);
    sumi_runner_begin_plan(b.runner, &other->plan, &b.heap); // of a few weights that are read once
    sumi_value x = sumi_plan_bound(&other->plan, "x", SUMI_ELEMENT_ACTIVATION, TOKENS, WIDTH);
    sumi_plan_section(&other->plan, SUMI_SECTION_TEXT, 1, 0);
    write_layers(other, x, 0, TEXT_AT);
    CHECK(sumi_plan_finish(&other->plan, &error) == SUMI_OK);
    CHECK(plan_slice(&other->plan, &(sumi_rates){1e6, 1e6, 3.0}, 40, &error) == SUMI_OK);
    sumi_device_need need;
    CHECK(f->need(b.runner, &n->plan, 1ull << 40, &need, &error) == SUMI_OK && need.streamed_bytes == 0);
    f->set_memory_limit(b.runner, need.device_bytes + 1000);
    CHECK(plan_ready(b.runner, &n->plan, &error) == SUMI_OK);
    CHECK_NUMBER(count_placed(&b, n, 0, WEIGHTS), WEIGHTS);
    CHECK(plan_ready(b.runner, &other->plan, &error) == SUMI_OK);
    CHECK_TEXT(error.text, "");
    CHECK_NUMBER(count_placed(&b, other, 0, TEXT_AT), TEXT_AT);
    CHECK_NUMBER(count_placed(&b, n, STEPS_AT, DECODE_AT), DECODE_AT - STEPS_AT);
    CHECK(count_placed(&b, n, 0, STEPS_AT) < STEPS_AT);
    // The same where nobody says how much there is: a shortage takes them in two turns.
    CHECK(plan_ready(b.runner, &n->plan, &error) == SUMI_OK);
    CHECK_NUMBER(count_placed(&b, n, 0, WEIGHTS), WEIGHTS);
    f->release(b.runner);
    CHECK(f->evict(b.runner, &other->plan));
    CHECK_NUMBER(count_placed(&b, n, STEPS_AT, DECODE_AT), DECODE_AT - STEPS_AT);
    CHECK_NUMBER(count_placed(&b, n, 0, STEPS_AT) + count_placed(&b, n, DECODE_AT, WEIGHTS), 0);
    CHECK(f->evict(b.runner, &other->plan));
    CHECK_NUMBER(count_placed(&b, n, 0, WEIGHTS), 0);
    CHECK(!f->evict(b.runner, &other->plan));
    close_network(&b, other);
    close_network(&b, n);
    close_bench(&b);
}

// ---- Qwen-Image-Edit, the tiny checkpoint ---------------------------------------------------------------------------

#define QWEN "tests/golden/qwen-image/"

static sumi_model* load_edit(sumi_engine* engine)
{
    sumi_model_desc desc = sumi_model_defaults();
    desc.path = QWEN "model-edit";
    desc.transformer_path = QWEN "model/transformer";
    desc.text_encoder_path = QWEN "model/text_encoder";
    desc.vae_path = QWEN "model/vae";
    desc.tokenizer_path = QWEN "model/tokenizer";
    desc.processor_path = QWEN "model-edit/processor";
    sumi_model* model = load_model_of(engine, &desc);
    CHECK(model != NULL);
    if (model == NULL) return NULL;
    static sumi_recipe s_recipe; // small references, as its golden cases have them
    s_recipe = *model->network->recipe;
    s_recipe.references.autoencoder_area = s_recipe.references.vision_area = 96 * 96;
    model->network->recipe = &s_recipe;
    return model;
}

static const sumi_plan_entry* only_entry(const sumi_engine* engine)
{
    const sumi_plan_entry* found = NULL;
    for (int i = 0; i < SUMI_PLAN_CACHE_SIZE; i++) {
        if (engine->cache.entries[i].model != NULL) found = &engine->cache.entries[i];
    }
    return found;
}

TEST(an_edit_job_keeps_its_steps_under_every_budget)
{
    static uint8_t s_pixels[64 * 48 * 3];
    const sumi_pixels picture = {s_pixels, 64, 48, 0, 3};
    const sumi_image_item item = {.text = "Make the sky green", .negative_text = " ", .seed = 5};
    uint64_t whole = 0;
    int done = 0, streamed = 0, with_steps = 0;
    for (int percent = 100; percent >= 40 && t_errors == 0; percent -= 2) {
        fake_reset();
        sumi_engine_desc ed = cuda_desc();
        ed.memory_budget_bytes = percent == 100 ? 1ull << 40 : whole / 100 * (uint64_t)percent;
        sumi_engine* engine = open_engine(&ed, NULL);
        CHECK(engine != NULL);
        sumi_model* model = engine != NULL ? load_edit(engine) : NULL;
        if (model == NULL) return;
        sumi_image_desc desc = sumi_image_defaults(model, SUMI_PRESET_MODEL);
        desc.items = &item;
        desc.item_count = 1;
        desc.references = &picture;
        desc.reference_count = 1;
        desc.width = 64, desc.height = 48;
        desc.step_count = 3;
        desc.guidance.end = 0.5f; // two denoising sections
        sumi_memory memory;
        const sumi_result fits = sumi_image_memory(engine, &desc, &memory);
        CHECK(fits == SUMI_OK || fits == SUMI_BUDGET_TOO_SMALL);
        if (percent == 100) whole = memory.weights + memory.arena;
        if (fits == SUMI_OK) {
            const uint64_t hash = draw_hash(engine, &desc);
            CHECK(hash != 0);
            const sumi_plan_entry* entry = only_entry(engine);
            sumi_cuda* cuda = (sumi_cuda*)engine->runner;
            const sumi_cuda_plan* record = sumi_cuda_find_plan(cuda, &entry->plan);
            const uint64_t own = entry->need.device_bytes - entry->need.weight_bytes;
            uint64_t steps;
            int32_t repeated, loads;
            CHECK(check_division(cuda, &entry->plan, ed.memory_budget_bytes - own, &steps));
            const uint64_t expected = expected_copies(record, &loads, &repeated);
            CHECK(entry->tile_latent > 0 || repeated == 0);
            begin_count(cuda);
            CHECK(draw_hash(engine, &desc) == hash);
            end_count(cuda, expected, loads);
            done++;
            streamed += entry->need.streamed_bytes > 0;
            with_steps += steps > 0;
        }
        close_cuda(engine);
    }
    printf("  of %d budgets %d streamed, %d of these in steps\n", done, streamed, with_steps);
    CHECK(streamed > 5 && with_steps > 0 && streamed > with_steps);
}

// The scratch of a plan is found without asking every one of its products.
TEST(scratch_is_that_of_the_product_that_needs_most)
{
    static const sumi_weight_format s_formats[] = {SUMI_WEIGHTS_BF16, SUMI_WEIGHTS_FP8, SUMI_WEIGHTS_INT8,
                                                   SUMI_WEIGHTS_INT4};
    int differing = 0; // plans whose first product is not the one that needs most
    for (size_t f = 0; f < sizeof s_formats / sizeof *s_formats; f++) {
        fake_reset();
        sumi_engine_desc ed = cuda_desc();
        sumi_engine* engine = open_engine(&ed, NULL);
        CHECK(engine != NULL);
        if (engine == NULL) return;
        sumi_model_desc desc = sumi_model_defaults();
        desc.path = "tests/golden/z-image-wide/model";
        desc.weights = s_formats[f];
        sumi_model* model = load_model_of(engine, &desc);
        CHECK(model != NULL);
        if (model == NULL) return;
        sumi_image_desc image = small_image(model, &s_item);
        image.width = image.height = 256;
        CHECK(draw_hash(engine, &image) != 0);
        const sumi_cuda* cuda = (const sumi_cuda*)engine->runner;
        for (int i = 0; i < SUMI_PLAN_CACHE_SIZE; i++) {
            if (engine->cache.entries[i].model == NULL) continue;
            // The products alone: a convolution's scratch would hide a mistake.
            sumi_plan products = engine->cache.entries[i].plan;
            sumi_op* ops = malloc(products.op_count * sizeof *ops);
            uint64_t largest = 0;
            size_t count = 0;
            for (size_t k = 0; k < products.op_count; k++) {
                if (products.ops[k].kind == SUMI_OP_LINEAR) ops[count++] = products.ops[k];
            }
            products.ops = ops, products.op_count = count;
            for (size_t k = 0; k < count; k++) {
                const uint64_t bytes = sumi_cuda_ops[SUMI_OP_LINEAR].scratch(&cuda->device, &products, &ops[k]);
                if (bytes > largest) largest = bytes;
            }
            CHECK(sumi_cuda_runner_scratch_bytes(engine->runner, &products) == sumi_device_block_bytes(largest));
            differing += largest > 0 && sumi_cuda_ops[SUMI_OP_LINEAR].scratch(&cuda->device, &products, ops) < largest;
            free(ops);
        }
        close_cuda(engine);
    }
    CHECK(differing > 0);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(scratch_is_that_of_the_product_that_needs_most);
    RUN(what_steps_read_stays_longest);
    RUN(a_run_copies_what_it_reads_once_at_most_once);
    RUN(what_is_read_once_leaves_before_what_steps_read);
    RUN(an_edit_job_keeps_its_steps_under_every_budget);
    TEST_END();
}
#else
#include "without_cuda.h"
#endif
