// The whole engine with the CUDA backend on the fake driver (fake_cuda): what works, and the host program's own
// CUDA beside it. Kernels do nothing there, so a picture's latents are its noise: enough to see that inputs and results
// go where they should. What a GPU computes is shown by test_cuda_host.c, on one.
#include "engine_fixture.h"
#include "fake_clock.h"
#ifdef SUMI_HAS_CUDA
#include "cuda/state.h"
#include "cuda_fixture.h"
#include "fake_cuda.h"
#include "jobs/engine_state.h"
#include "jobs/prompt.h"
#include "synthetic.h"
#include "text_adapter.h"
#include <math.h>

// ---- What works -----------------------------------------------------------------------------------------------------

TEST(draws_and_leaves_nothing)
{
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(100, &model);
    if (engine == NULL) return;
    CHECK_TEXT(sumi_engine_get_info(engine).backend, "cuda");
    CHECK_NUMBER(sumi_engine_get_info(engine).compute_capability, 90);
    CHECK(sumi_engine_get_info(engine).held_bytes[SUMI_MEMORY_WEIGHTS] > 0);
    sumi_image_desc desc;
    rich_image(&desc, model);
    desc.preview_every = 1;
    const uint64_t whole = draw_hash(engine, &desc);
    CHECK(whole != 0 && fake_graph_launches() > 0);

    sumi_job job;
    sumi_prompt* prompt = encode_prompt(engine, model, "a lighthouse");
    CHECK(sumi_prompt_get_info(prompt).encoders[0].token_count > 0);
    sumi_lora* lora = read_lora(engine, model, "lora_peft.safetensors");
    const text_adapter file = make_text_adapter("text.safetensors", 0.5f, true);
    sumi_lora* text_lora = read_lora_at(engine, model, file.path);
    sumi_lora_use uses[2] = {{.lora = lora, .scale = 0.5f}, {.lora = text_lora, .scale = 1.0f, .text_scale = 0.5f}};
    sumi_image_item item = {.prompt = prompt, .seed = 3};
    sumi_image_desc with = small_image(model, &item);
    with.loras = uses;
    with.lora_count = 1;
    CHECK(draw_hash(engine, &with) != 0);
    sumi_prompt_desc pd = sumi_prompt_defaults(model);
    pd.text = "a lighthouse";
    pd.loras = uses;
    pd.lora_count = 2;
    sumi_prompt* adapted = NULL;
    CHECK_NUMBER(sumi_submit_prompt(engine, &pd, &job), SUMI_OK);
    CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
    CHECK_NUMBER(sumi_fetch_prompt(engine, job, &adapted), SUMI_OK);
    CHECK_TEXT(sumi_prompt_get_info(adapted).adapters, "text.safetensors:0.5");
    sumi_prompt_release(adapted);
    sumi_image_item text_item = {.text = "a lighthouse", .seed = 3};
    sumi_image_desc text_with = small_image(model, &text_item);
    text_with.loras = uses;
    text_with.lora_count = 2;
    CHECK(draw_hash(engine, &text_with) != 0);
    sumi_lora_release(text_lora);
    remove_text_adapter(&file);
    with.profile = true;
    CHECK_NUMBER(sumi_submit_images(engine, &with, &job), SUMI_OK);
    CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
    sumi_profile_row rows[64];
    const int32_t count = sumi_job_profile(engine, job, rows, 64);
    CHECK(count > 5);
    double seconds = 0.0;
    for (int32_t i = 0; i < count && i < 64; i++) seconds += rows[i].seconds;
    CHECK(seconds > 0.0); // the device's clock
    sumi_job_discard(engine, job);

    uint8_t grey[16 * 16] = {0};
    sumi_pixels pixels = {grey, 16, 16, 0, 1};
    sumi_encode_desc ed = sumi_encode_defaults(model);
    ed.image = &pixels;
    ed.width = ed.height = 16;
    float latents[16 * 2 * 2];
    CHECK_NUMBER(sumi_submit_encode(engine, &ed, &job), SUMI_OK);
    CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
    CHECK_NUMBER(sumi_fetch_latents(engine, job, latents, 64), SUMI_OK);
    CHECK(draw_hash(engine, &desc) == whole);
    sumi_lora_release(lora);
    sumi_prompt_release(prompt);
    sumi_model_close(model);
    CHECK_NUMBER(sumi_engine_get_info(engine).held_bytes[SUMI_MEMORY_WEIGHTS], 0);
    close_cuda(engine);
}

// AUTO follows from the GPU's size, not from what is free of it.
TEST(a_card_that_does_not_hold_bfloat16_gets_int8)
{
    static const struct {
        uint64_t bytes;
        sumi_weight_format weights;
    } s_cards[] = {{0, SUMI_WEIGHTS_BF16}, {1000, SUMI_WEIGHTS_INT8}};
    for (int i = 0; i < 2; i++) {
        fake_reset();
        fake_limit_device_bytes((uint64_t)1 << 30);
        fake_device_bytes(s_cards[i].bytes);
        sumi_model* model;
        sumi_engine* engine = cuda_engine(0, &model);
        if (engine == NULL) return;
        CHECK_NUMBER(sumi_model_get_info(model).weights, s_cards[i].weights);
        const sumi_image_desc desc = quick_image(model);
        CHECK(draw_hash(engine, &desc) != 0);
        close_cuda(engine);
    }
}

// What weights take of a model with matrices that are worth 8 bits. 0: refused.
static uint64_t weights_of_model(sumi_weight_format weights, sumi_weight_format text_weights,
                                 sumi_weight_format expected)
{
    synthetic_config config = synthetic_tiny;
    config.dim = config.text_width = 512;
    synthetic_files* files = synthetic_open(&config);
    CHECK(files != NULL);
    if (files == NULL) return 0;
    sumi_engine_desc ed = cuda_desc();
    const sumi_files services = synthetic_services(files);
    ed.files = &services;
    sumi_engine* engine = NULL;
    CHECK_NUMBER(sumi_engine_create(&ed, &engine), SUMI_OK);
    if (engine == NULL) return 0;
    sumi_model_desc md = sumi_model_defaults();
    md.path = SYNTHETIC_PATH;
    md.weights = weights;
    md.text_weights = text_weights;
    sumi_job job;
    sumi_model* model = NULL;
    sumi_memory memory = {.weights = 0};
    if (sumi_submit_model(engine, &md, &job) == SUMI_OK) {
        CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
        CHECK_NUMBER(sumi_fetch_model(engine, job, &model), SUMI_OK);
        CHECK_NUMBER(sumi_model_get_info(model).text_weights, expected);
        sumi_image_desc desc = small_image(model, &s_item);
        CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_OK);
        CHECK(draw_hash(engine, &desc) != 0);
        // no weight lies there twice, in two forms
        CHECK_NUMBER(sumi_engine_get_info(engine).held_bytes[SUMI_MEMORY_WEIGHTS], memory.weights);
    }
    close_cuda(engine);
    synthetic_close(files);
    return memory.weights;
}

// Attention in 8 bits can be had on every GPU.
TEST(attention_has_a_format)
{
    static const struct {
        int capability;
        sumi_attention_format attention, expected;
    } s_cases[] = {{90, SUMI_ATTENTION_AUTO, SUMI_ATTENTION_BF16},
                   {90, SUMI_ATTENTION_BF16, SUMI_ATTENTION_BF16},
                   {90, SUMI_ATTENTION_8BIT, SUMI_ATTENTION_8BIT},
                   {86, SUMI_ATTENTION_AUTO, SUMI_ATTENTION_BF16},
                   {86, SUMI_ATTENTION_8BIT, SUMI_ATTENTION_8BIT}};
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        fake_reset();
        fake_devices(1, s_cases[i].capability);
        synthetic_files* files = synthetic_open(&synthetic_tiny);
        sumi_engine_desc ed = cuda_desc();
        const sumi_files services = synthetic_services(files);
        ed.files = &services;
        sumi_engine* engine = NULL;
        CHECK_NUMBER(sumi_engine_create(&ed, &engine), SUMI_OK);
        sumi_model_desc md = sumi_model_defaults();
        md.path = SYNTHETIC_PATH;
        md.attention = s_cases[i].attention;
        sumi_job job;
        sumi_model* model = NULL;
        CHECK_NUMBER(sumi_submit_model(engine, &md, &job), SUMI_OK);
        CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
        CHECK_NUMBER(sumi_fetch_model(engine, job, &model), SUMI_OK);
        CHECK_NUMBER(sumi_model_get_info(model).attention, s_cases[i].expected);
        sumi_image_desc desc = small_image(model, &s_item);
        CHECK(draw_hash(engine, &desc) != 0);
        close_cuda(engine);
        synthetic_close(files);
    }
    fake_reset();
}

TEST(text_encoders_take_the_memory_of_their_own_format)
{
    fake_reset();
    const uint64_t bf16 = weights_of_model(SUMI_WEIGHTS_BF16, SUMI_WEIGHTS_AUTO, SUMI_WEIGHTS_BF16),
                   int8 = weights_of_model(SUMI_WEIGHTS_BF16, SUMI_WEIGHTS_INT8, SUMI_WEIGHTS_INT8),
                   int4 = weights_of_model(SUMI_WEIGHTS_BF16, SUMI_WEIGHTS_INT4, SUMI_WEIGHTS_INT4),
                   both = weights_of_model(SUMI_WEIGHTS_INT8, SUMI_WEIGHTS_INT8, SUMI_WEIGHTS_INT8);
    CHECK(both > 0 && both < int8 && int4 < int8 && int8 < bf16);
    // AUTO is not what the transformer is, but for AS_STORED
    CHECK(weights_of_model(SUMI_WEIGHTS_INT8, SUMI_WEIGHTS_AUTO, SUMI_WEIGHTS_BF16) > both);
    CHECK_NUMBER(weights_of_model(SUMI_WEIGHTS_AS_STORED, SUMI_WEIGHTS_AUTO, SUMI_WEIGHTS_AS_STORED), bf16);
    fake_devices(1, 86);
    CHECK_NUMBER(weights_of_model(SUMI_WEIGHTS_BF16, SUMI_WEIGHTS_FP8, SUMI_WEIGHTS_FP8), 0);
    CHECK(strstr(s_host.log, "text_weights: fp8 needs") != NULL && strstr(s_host.log, "SUMI_WEIGHTS_INT8") != NULL);
}

TEST(the_image_is_the_same_at_any_pace)
{
    static const uint32_t s_slices[] = {0, 20, 2000}, s_budgets[] = {1, 500, 20000, SUMI_FOREVER};
    uint64_t whole = 0;
    for (size_t s = 0; s < 3; s++) {
        for (int pump = 0; pump < 2; pump++) {
            fake_reset();
            sumi_engine_desc ed = cuda_desc();
            ed.max_slice_us = s_slices[s];
            ed.pump = pump == 1 ? SUMI_PUMP_THREAD : SUMI_PUMP_UPDATE;
            sumi_model* model;
            sumi_engine* engine = open_engine(&ed, &model);
            CHECK(engine != NULL);
            if (engine == NULL) return;
            sumi_image_desc desc;
            rich_image(&desc, model);
            for (int b = 0; b < 4 && (pump == 0 || b == 0); b++) {
                for (int late = 0; late < 3; late++) {
                    fake_complete_after(late * 2);
                    desc.preview_every = late == 1 ? 1 : 0;
                    sumi_job job;
                    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
                    uint32_t versions = 0;
                    for (int i = 0; pump == 0 && i < 100000 && sumi_job_poll(engine, job).state < SUMI_JOB_DONE; i++)
                        sumi_engine_update(engine, s_budgets[b]);
                    CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
                    versions = sumi_job_poll(engine, job).preview_version;
                    CHECK_NUMBER(versions, late == 1 ? sumi_job_poll(engine, job).step_count : 0);
                    float latents[2][16 * 4 * 4];
                    for (int i = 0; i < 2; i++)
                        CHECK_NUMBER(sumi_job_latents(engine, job, i, latents[i], 16 * 4 * 4), SUMI_OK);
                    const uint64_t hash = hash_bytes(latents, sizeof latents);
                    CHECK(whole == 0 || hash == whole);
                    whole = hash;
                    sumi_job_discard(engine, job);
                }
            }
            close_cuda(engine);
        }
    }
}

TEST(a_warm_job_allocates_nothing_anywhere)
{
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(100, &model);
    if (engine == NULL) return;
    sumi_image_desc desc;
    rich_image(&desc, model);
    desc.preview_every = 1;
    const uint64_t whole = draw_hash(engine, &desc);
    CHECK(whole != 0 && draw_hash(engine, &desc) == whole);
    const long long from_host = s_host.count;
    const uint64_t device = fake_allocation_count(), events = fake_calls("cuEventCreate"),
                   graphs = fake_calls("cuGraphInstantiateWithFlags");
    CHECK(draw_hash(engine, &desc) == whole);
    CHECK_NUMBER(s_host.count, from_host);
    CHECK_NUMBER(fake_allocation_count(), device);
    CHECK_NUMBER(fake_calls("cuEventCreate"), events);
    CHECK_NUMBER(fake_calls("cuGraphInstantiateWithFlags"), graphs);
    close_cuda(engine);
}

// A driver that loads kernels lazily may wait at the first use of each for all that runs in the context, in the host
// program's frame. So they are loaded with the model.
TEST(a_first_picture_finds_its_kernels_loaded)
{
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(100, &model);
    if (engine == NULL) return;
    const uint64_t looked_up = fake_calls("cuModuleGetFunction"), asked = fake_calls("cuFuncGetAttribute");
    CHECK(looked_up > 0 && asked > 0);
    CHECK(fake_calls("cuMemFreeAsync") > 0); // the first one of a context takes milliseconds
    sumi_image_desc desc;
    rich_image(&desc, model);
    CHECK(draw_hash(engine, &desc) != 0);
    CHECK_NUMBER(fake_calls("cuModuleGetFunction"), looked_up);
    CHECK_NUMBER(fake_calls("cuFuncGetAttribute"), asked);
    close_cuda(engine);
}

// The memory of a larger picture takes the place of a smaller one's in a frame of the host program, where a free would
// wait for the host's kernels.
TEST(a_larger_picture_frees_without_waiting)
{
    for (int has_entry = 1; has_entry >= 0; has_entry--) {
        fake_reset();
        if (!has_entry) fake_lack_entry("cuMemFreeAsync"); // an older driver
        sumi_model* model;
        sumi_engine* engine = cuda_engine(100, &model);
        if (engine == NULL) return;
        sumi_image_desc desc = small_image(model, &s_item);
        CHECK(draw_hash(engine, &desc) != 0);
        const uint64_t frees = fake_calls("cuMemFree"), arena = atomic_load(&engine->memory.arena_bytes);
        desc.width = desc.height = 512;
        CHECK(draw_hash(engine, &desc) != 0);
        CHECK(atomic_load(&engine->memory.arena_bytes) > arena);
        CHECK(has_entry ? fake_calls("cuMemFree") == frees && fake_calls("cuMemFreeAsync") > 0
                        : fake_calls("cuMemFree") > frees);
        const sumi_engine_info info = sumi_engine_get_info(engine);
        uint64_t held = 0;
        for (int kind = 0; kind < SUMI_MEMORY_KIND_COUNT; kind++) held += info.held_bytes[kind];
        CHECK_NUMBER(fake_held_bytes(), held - atomic_load(&engine->memory.image_bytes));
        close_cuda(engine);
    }
}

// Where ops are never cut they are not launched one by one either; a profile, which times them, does that. The bits are
// the same.
TEST(whole_ops_go_together)
{
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(0, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = small_image(model, &s_item);
    fake_count_launches(true);
    const uint64_t whole = draw_hash(engine, &desc);
    const int together = fake_graph_launches(), kernels = fake_launch_count();
    CHECK(whole != 0 && together < 8 + 4 * desc.step_count); // a few for each section, however many ops it has
    desc.profile = true;
    fake_count_launches(true);
    CHECK(draw_hash(engine, &desc) == whole);
    CHECK(fake_graph_launches() > 4 * together);
    CHECK_NUMBER(fake_launch_count(), kernels);
    close_cuda(engine);
}

// Slices are submitted in groups of up to 14 ms, by what is known of their times. The first groups are made by
// predictions, of kernels that take much longer here, and the next ones by measured times; when kernels take much less
// than before there are fewer.
TEST(groups_follow_measured_times)
{
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = small_image(model, &s_item);
    desc.step_count = 20;
    static const double s_ms[] = {2.0, 0.05};
    int launches[2] = {0}, first = 0;
    for (int i = 0; i < 2; i++) {
        fake_kernel_times(&s_ms[i], 1);
        fake_count_launches(true);
        CHECK(draw_hash(engine, &desc) != 0);
        if (i == 0) first = fake_graph_launches();
        for (int k = 0; k < 6; k++) CHECK(draw_hash(engine, &desc) != 0); // learns
        fake_count_launches(true);
        const uint64_t made = fake_calls("cuGraphInstantiateWithFlags");
        CHECK(draw_hash(engine, &desc) != 0);
        CHECK_NUMBER(fake_calls("cuGraphInstantiateWithFlags"), made); // they stay
        launches[i] = fake_graph_launches();
    }
    printf("  %d graphs in a first job, %d in a later one, %d of shorter kernels\n", first, launches[0], launches[1]);
    CHECK(launches[0] >= 3 * launches[1] && launches[1] >= desc.step_count);
    close_cuda(engine);
}

static const sumi_engine* s_watched;
static double s_most_us;
static void watch_flight(const char* line, void* unused)
{
    (void)line, (void)unused;
    const double us = s_watched->runs.current.pending_us;
    if (us > s_most_us) s_most_us = us;
}

// Of long steps half may be in flight while somebody waits, and 32 ms at most by a thread of the engine's.
TEST(what_is_in_flight_depends_on_who_works)
{
    static const double s_ms = 2.0; // of a kernel: a step takes 0.1 s and more
    for (int pump = SUMI_PUMP_UPDATE; pump <= SUMI_PUMP_THREAD; pump++) {
        fake_reset();
        sumi_model* model;
        sumi_engine* engine = cuda_engine_with((sumi_pump)pump, 20, &model);
        if (engine == NULL) return;
        sumi_image_desc desc = small_image(model, &s_item);
        desc.step_count = 8;
        fake_kernel_times(&s_ms, 1);
        for (int k = 0; k < 3; k++) CHECK(draw_hash(engine, &desc) != 0); // learns
        fake_complete_after(3);
        s_watched = engine;
        s_most_us = 0.0;
        fake_on_call(watch_flight, NULL);
        CHECK(draw_hash(engine, &desc) != 0);
        fake_on_call(NULL, NULL);
        printf("  %.1f ms\n", 1e-3 * s_most_us);
        if (pump == SUMI_PUMP_THREAD) CHECK(s_most_us > 16000.0 && s_most_us <= SUMI_MAX_PENDING_US);
        else CHECK(s_most_us > 1.2 * SUMI_MAX_PENDING_US && s_most_us <= SUMI_MOST_PENDING_US);
        close_cuda(engine);
    }
}

// Who waits for a job sleeps through its slices: being woken by the driver costs more, and is for predictions that were
// wrong. Nor does a slice wake the driver's own thread.
// The first budget after a call without one counts as it is, later ones as a moving average.
TEST(slices_follow_the_budgets_of_updates)
{
    static const struct {
        uint32_t budget_us, slice_us;
    } s_paces[] = {{100, 250},   {1000, 250},   {2000, 500},   {4000, 500},
                   {8000, 1000}, {15000, 1000}, {16000, 2000}, {100000, 2000}};
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(2000, &model);
    if (engine == NULL) return;
    CHECK_NUMBER(engine->frame.slice_us, 2000);
    for (size_t i = 0; i < sizeof s_paces / sizeof s_paces[0]; i++) {
        sumi_engine_update(engine, SUMI_FOREVER);
        CHECK_NUMBER(engine->frame.slice_us, 2000);
        sumi_engine_update(engine, s_paces[i].budget_us);
        CHECK_NUMBER(engine->frame.slice_us, s_paces[i].slice_us);
    }
    sumi_engine_update(engine, SUMI_FOREVER);
    for (int i = 0; i < 100; i++) { // about a limit: no new plans each time
        sumi_engine_update(engine, i % 2 == 0 ? 7000 : 9000);
        if (i > 0) CHECK_NUMBER(engine->frame.slice_us, 500);
    }
    for (int i = 0; i < 100; i++) sumi_engine_update(engine, 16000);
    CHECK_NUMBER(engine->frame.slice_us, 1000); // not by half as much again
    for (int i = 0; i < 100; i++) sumi_engine_update(engine, 25000);
    CHECK_NUMBER(engine->frame.slice_us, 2000);
    for (int i = 0; i < 100; i++) sumi_engine_update(engine, 0); // pauses say nothing of the pace
    CHECK_NUMBER(engine->frame.slice_us, 2000);

    // The picture is the same, by plans of their own; and a pace that was there before allocates nothing.
    sumi_image_desc desc = small_image(model, &s_item);
    const uint64_t whole = draw_hash(engine, &desc);
    uint64_t count = 0;
    for (int i = 0; i < 3; i++) {
        sumi_job job;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        while (sumi_job_poll(engine, job).state < SUMI_JOB_DONE) sumi_engine_update(engine, 1000);
        CHECK(fetch_hash(engine, job, &desc) == whole);
        if (i == 1) count = sumi_engine_get_info(engine).allocation_count;
    }
    CHECK_NUMBER(sumi_engine_get_info(engine).allocation_count, count);
    close_cuda(engine);

    engine = cuda_engine(0, &model); // a host that does not want operations cut
    sumi_engine_update(engine, 1000);
    CHECK_NUMBER(engine->frame.slice_us, 0);
    close_cuda(engine);
}

TEST(waiting_sleeps_by_predictions)
{
    fake_reset();
    fake_clock_begin(1000);
    sumi_model* model;
    sumi_engine* engine = cuda_engine(0, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = small_image(model, &s_item);
    desc.step_count = 40;
    static const fake_clock s_clock = {sumi_clock_ns, fake_clock_pass_ns}; // the one that the library sleeps by
    fake_use_clock(&s_clock);
    fake_kernels_take(100);
    static const double s_measured[] = {0.1, 0.09, 0.07}; // less than it takes: gaps between slices are in none
    for (size_t i = 0; i < sizeof s_measured / sizeof s_measured[0]; i++) {
        fake_kernel_times(&s_measured[i], 1);
        for (int k = 0; k < 3; k++) CHECK(draw_hash(engine, &desc) != 0); // learns
        const uint64_t waits = fake_calls("cuEventSynchronize"), queries = fake_calls("cuEventQuery"),
                       launches = fake_calls("cuGraphLaunch");
        fake_count_launches(true);
        CHECK(draw_hash(engine, &desc) != 0);
        const uint64_t launched = fake_calls("cuGraphLaunch") - launches;
        CHECK(launched >= 40);
        CHECK(4 * (fake_calls("cuEventSynchronize") - waits) < launched);
        CHECK(4 * (uint64_t)fake_wakes() < launched);
        CHECK(fake_calls("cuEventQuery") - queries < 2 * launched);
    }
    fake_clock_end();
    close_cuda(engine);
}

// An update that begins a picture prepares, draws noise and submits, all in this thread's time. By a clock that the
// driver's calls turn, 2 us each: on an H200 the 18 calls that a slice had took 37 us.
TEST(an_update_that_begins_a_picture_is_no_longer)
{
    enum { BUDGET_US = 4000, CALL_NS = 2000, MOST_US = 300 };
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(50, &model);
    if (engine == NULL) return;
    sumi_prompt* prompt = encode_prompt(engine, model, "a red fox in the snow");
    const sumi_image_item item = {.prompt = prompt, .seed = 3};
    sumi_image_desc desc = small_image(model, &item);
    desc.width = desc.height = 768;
    desc.step_count = 3;
    CHECK(draw_hash(engine, &desc) != 0);
    static const fake_clock s_clock = {sumi_clock_ns, fake_clock_pass_ns};
    fake_use_clock(&s_clock);
    fake_clock_begin(200);
    fake_calls_take(CALL_NS);
    uint64_t longest_us[SUMI_STAGE_COUNT] = {0};
    for (int picture = 0; picture < 4; picture++) {
        sumi_job job;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        int32_t frames = 0;
        for (sumi_job_status status = sumi_job_poll(engine, job); status.state < SUMI_JOB_DONE && count_frame(&frames);
             status = sumi_job_poll(engine, job)) {
            const uint64_t begin = fake_clock_now_ns();
            fake_complete_after(1000000);
            sumi_engine_update(engine, BUDGET_US);
            fake_complete_after(0);
            fake_finish();
            const uint64_t us = (fake_clock_now_ns() - begin) / 1000;
            if (picture > 1 && us > longest_us[status.stage]) longest_us[status.stage] = us;
        }
        sumi_job_discard(engine, job);
    }
    fake_calls_take(0);
    fake_clock_end();
    for (int stage = 0; stage < SUMI_STAGE_COUNT; stage++) {
        if (longest_us[stage] > 0) printf("  stage %d: at most %d us\n", stage, (int)longest_us[stage]);
        CHECK(longest_us[stage] <= MOST_US);
    }
    CHECK(longest_us[SUMI_STAGE_PREPARE] > 100 && longest_us[SUMI_STAGE_DENOISE] > 100);
    sumi_prompt_release(prompt);
    close_cuda(engine);
}

// Like those of a model: in the answer about memory, held, streamed under a budget, and given back with the net.
TEST(a_control_net_counts_as_weights)
{
    static const uint8_t s_pixels[4] = {0, 255, 90, 30};
    const sumi_pixels pixels = {s_pixels, 2, 2, 0, 1};
    const sumi_control_picture picture = {.picture = &pixels};
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(2000, &model);
    if (engine == NULL) return;
    sumi_control_desc cd = sumi_control_defaults(model);
    cd.path = "tests/golden/controlnet/Z-Image-Turbo-Fun-Controlnet-Union-2.1-2602-8steps.safetensors";
    sumi_job job;
    sumi_control* control = NULL;
    CHECK_NUMBER(sumi_submit_control(engine, &cd, &job), SUMI_OK);
    CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
    CHECK_NUMBER(sumi_fetch_control(engine, job, &control), SUMI_OK);
    sumi_control_use use = sumi_control_use_defaults(control);
    use.pictures = &picture;
    use.picture_count = 1;
    sumi_image_desc desc = small_image(model, &s_item);
    sumi_memory without, with;
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &without), SUMI_OK);
    const uint64_t before = fake_held_bytes();
    sumi_image_desc started = desc; // a control picture takes the VAE's encoder, as a start image does
    started.start.image = &pixels;
    sumi_memory encoding;
    CHECK_NUMBER(sumi_image_memory(engine, &started, &encoding), SUMI_OK);
    desc.controls = &use;
    desc.control_count = 1;
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &with), SUMI_OK);
    CHECK_NUMBER(fake_held_bytes(), before); // a question takes nothing
    const uint64_t stored = sumi_control_get_info(control).weight_bytes, more = with.weights - encoding.weights;
    CHECK(encoding.weights > without.weights && more >= stored && more <= stored + stored / 8);
    CHECK(draw_hash(engine, &desc) != 0);
    CHECK_NUMBER(sumi_engine_get_info(engine).held_bytes[SUMI_MEMORY_WEIGHTS], with.weights);
    // Less than all weights, which are streamed then.
    const uint64_t budget = with.arena + with.weights * 3 / 4;
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, budget), SUMI_OK);
    CHECK(draw_hash(engine, &desc) != 0);
    sumi_engine_info info = sumi_engine_get_info(engine);
    CHECK(info.held_bytes[SUMI_MEMORY_WEIGHTS] + info.held_bytes[SUMI_MEMORY_ARENA] <= budget);
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 0), SUMI_OK);
    CHECK(draw_hash(engine, &desc) != 0);
    CHECK_NUMBER(sumi_engine_get_info(engine).held_bytes[SUMI_MEMORY_WEIGHTS], with.weights);
    sumi_control_release(control); // gives back all that is the net's, and nothing of the model
    CHECK_NUMBER(sumi_engine_get_info(engine).held_bytes[SUMI_MEMORY_WEIGHTS], encoding.weights);
    close_cuda(engine);
}

TEST(the_memory_answer_is_what_the_device_holds)
{
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(2000, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = small_image(model, &s_item);
    sumi_memory memory;
    const uint64_t before = sumi_engine_get_info(engine).held_bytes[SUMI_MEMORY_ARENA];
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_OK);
    CHECK_NUMBER(sumi_engine_get_info(engine).held_bytes[SUMI_MEMORY_ARENA], before); // a question takes nothing
    CHECK(draw_hash(engine, &desc) != 0);
    const sumi_engine_info info = sumi_engine_get_info(engine);
    CHECK(memory.arena > 0 && info.held_bytes[SUMI_MEMORY_ARENA] >= memory.arena);
    CHECK_NUMBER(info.held_bytes[SUMI_MEMORY_WEIGHTS] + info.held_bytes[SUMI_MEMORY_ARENA]
                     + info.held_bytes[SUMI_MEMORY_STAGING],
                 fake_held_bytes());
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 1000), SUMI_OK); // idle memory above it goes
    CHECK(sumi_engine_get_info(engine).held_bytes[SUMI_MEMORY_ARENA] < info.held_bytes[SUMI_MEMORY_ARENA]);
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    CHECK_NUMBER(run_to_end(engine, job), SUMI_BUDGET_TOO_SMALL);
    sumi_job_discard(engine, job);
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 0), SUMI_OK);
    CHECK(draw_hash(engine, &desc) != 0);
    close_cuda(engine);
}

// Context, code and graphs: what is neither free nor the engine's own.
TEST(what_no_budget_counts_is_reported)
{
    enum { CONTEXT = 5 << 20, MODULE = 4096, GRAPH = 512, OTHERS = 100 << 20 };
    fake_reset();
    fake_keeps(CONTEXT, MODULE, GRAPH);
    sumi_engine_desc desc = cuda_desc();
    sumi_engine* engine = NULL;
    CHECK_NUMBER(sumi_engine_create(&desc, &engine), SUMI_OK);
    if (engine == NULL) return;
    CHECK_NUMBER(sumi_engine_get_info(engine).uncounted_bytes, CONTEXT);
    fake_limit_device_bytes(sumi_engine_get_info(engine).device_bytes - OTHERS); // another program
    sumi_model* model = load_model(engine);
    const long modules = fake_held_kind("module");
    CHECK(model != NULL && modules > 5);
    CHECK_NUMBER(sumi_engine_get_info(engine).uncounted_bytes, OTHERS + CONTEXT + modules * MODULE);
    sumi_image_desc image = small_image(model, &s_item);
    CHECK(draw_hash(engine, &image) != 0);
    const long graphs = fake_held_kind("graph exec");
    const uint64_t uncounted = sumi_engine_get_info(engine).uncounted_bytes;
    CHECK(graphs > 0);
    CHECK_NUMBER(uncounted, OTHERS + CONTEXT + modules * MODULE + graphs * GRAPH);
    sumi_memory memory;
    CHECK_NUMBER(sumi_image_memory(engine, &image, &memory), SUMI_OK);
    CHECK_NUMBER(memory.uncounted, uncounted);
    const uint64_t calls = fake_calls("cuMemGetInfo");
    CHECK(draw_hash(engine, &image) != 0);
    CHECK_NUMBER(fake_calls("cuMemGetInfo"), calls); // not asked again and again
    close_cuda(engine);
    memset(&s_host, 0, sizeof s_host);
    sumi_engine* on_cpu = fresh_engine_with(2000, &model);
    CHECK_NUMBER(sumi_engine_get_info(on_cpu).uncounted_bytes, 0);
    close_engine(on_cpu);
}

// ---- The host's own CUDA --------------------------------------------------------------------------------------------

TEST(the_hosts_context_stays_current_through_every_call)
{
    fake_reset();
    struct CUctx_st *theirs = fake_host_context(0), *given = fake_host_context(0);
    struct CUstream_st* stream = fake_host_stream(given);
    fake_make_current(theirs);
#define KEEPS(call)                                                                                                    \
    do {                                                                                                               \
        call;                                                                                                          \
        CHECK(fake_current() == theirs && fake_context_depth() == 0);                                                  \
    } while (0)
    sumi_engine_desc ed = cuda_desc();
    ed.max_slice_us = 20;
    ed.cuda.context = given;
    ed.cuda.stream = stream;
    sumi_engine* engine = NULL;
    sumi_model* model = NULL;
    KEEPS(CHECK_NUMBER(sumi_engine_create(&ed, &engine), SUMI_OK));
    if (engine == NULL) return;
    KEEPS(model = load_model(engine));
    CHECK(model != NULL);
    sumi_image_desc desc = quick_image(model);
    desc.preview_every = 1;
    sumi_memory memory;
    KEEPS(CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_OK));
    fake_complete_after(2);
    sumi_job job;
    KEEPS(CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK));
    while (sumi_job_poll(engine, job).state < SUMI_JOB_DONE) KEEPS(sumi_engine_update(engine, 100));
    sumi_image image;
    KEEPS(CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_OK));
    KEEPS(sumi_images_release(engine, &image, 1));
    KEEPS(CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK));
    KEEPS(sumi_engine_update(engine, 100));
    KEEPS(sumi_job_cancel(engine, job));
    KEEPS(CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK));
    KEEPS(sumi_job_discard(engine, job));
    sumi_lora* lora = NULL;
    KEEPS(lora = read_lora(engine, model, "lora_peft.safetensors"));
    KEEPS(sumi_lora_release(lora));
    KEEPS((void)sumi_engine_set_memory_budget(engine, 1));
    KEEPS((void)sumi_engine_get_info(engine));
    KEEPS(sumi_model_close(model));
    KEEPS(sumi_engine_destroy(engine));
    CHECK_NUMBER(s_host.live, 0);
    fake_make_current(NULL);
    fake_host_release(stream); // a violation if somebody else did
    fake_host_release(given);
    fake_host_release(theirs);
    CHECK_NUMBER(fake_held(), 0);
    CHECK_NUMBER(fake_violations(), 0);
}

TEST(a_host_that_captures_is_not_disturbed)
{
    fake_reset();
    struct CUctx_st* theirs = fake_host_context(0);
    struct CUstream_st* stream = fake_host_stream(theirs);
    sumi_engine_desc ed = cuda_desc();
    ed.cuda.context = theirs;
    ed.cuda.stream = stream;
    fake_host_begin_capture(stream);
    sumi_engine* engine = NULL;
    CHECK_NUMBER(sumi_engine_create(&ed, &engine), SUMI_INVALID_ARGUMENT);
    CHECK(engine == NULL && strstr(s_host.log, "captured") != NULL);
    CHECK_NUMBER(s_host.live, 0);

    CHECK(fake_host_end_capture(stream)); // looking was harmless
    CHECK_NUMBER(fake_violations(), 0);

    // In global mode, by another thread, on a stream that is not ours: a whole life beside it.
    for (int pump = 0; pump < 2; pump++) {
        ed = cuda_desc();
        ed.pump = pump == 1 ? SUMI_PUMP_THREAD : SUMI_PUMP_UPDATE;
        ed.max_slice_us = 100;
        fake_host_begin_capture(stream);
        sumi_model* model = NULL;
        engine = open_engine(&ed, &model);
        CHECK(engine != NULL);
        if (engine != NULL) {
            fake_complete_after(2);
            sumi_image_desc desc;
            rich_image(&desc, model);
            desc.preview_every = 1;
            CHECK(draw_hash(engine, &desc) != 0);
            sumi_image_desc quick = quick_image(model);
            sumi_job job;
            for (int after = 0; after < 40; after += 13) { // cancelled at different places
                CHECK_NUMBER(sumi_submit_images(engine, &quick, &job), SUMI_OK);
                (void)run_updates(engine, job, after);
                sumi_job_cancel(engine, job);
                (void)run_to_end(engine, job);
                sumi_job_discard(engine, job);
            }
            const uint64_t whole = sumi_engine_get_info(engine).held_bytes[SUMI_MEMORY_WEIGHTS];
            // arena and weights do not fit together: some are streamed
            CHECK_NUMBER(sumi_engine_set_memory_budget(engine, whole), SUMI_OK);
            CHECK(draw_hash(engine, &quick) != 0);
            CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 0), SUMI_OK);
            CHECK(draw_hash(engine, &quick) != 0);
            close_engine(engine);
        }
        CHECK(fake_host_end_capture(stream));
        CHECK_NUMBER(fake_capture_mode(), 0); // this thread's, as it was: CU_STREAM_CAPTURE_MODE_GLOBAL
    }
    fake_host_release(stream);
    fake_host_release(theirs);
    CHECK_NUMBER(fake_held(), 0);
    CHECK_NUMBER(fake_violations(), 0);
}

TEST(two_engines_share_a_device)
{
    fake_reset();
    sumi_model *first_model, *second_model;
    sumi_engine* first = cuda_engine(100, &first_model);
    if (first == NULL) return;
    host second_host;
    memset(&second_host, 0, sizeof second_host);
    sumi_engine_desc ed = host_desc(&second_host);
    ed.backend = SUMI_BACKEND_CUDA;
    sumi_engine* second = open_engine(&ed, &second_model);
    CHECK(second != NULL);
    if (second == NULL) return;
    sumi_image_desc a = quick_image(first_model), b = quick_image(second_model);
    const uint64_t hash = draw_hash(first, &a);
    CHECK(hash != 0 && draw_hash(second, &b) == hash);
    sumi_engine_destroy(second);
    CHECK_NUMBER(atomic_load(&second_host.live), 0);
    CHECK(draw_hash(first, &a) == hash);
    close_cuda(first);
}

// Halves of the arena: the index of each, in parts of 14 bits, so that none is NaN.
static uint16_t* fill_arena(sumi_engine* engine, int shift)
{
    const sumi_cuda* cuda = (const sumi_cuda*)engine->runner;
    uint16_t* halves = (uint16_t*)(uintptr_t)cuda->stock.arena.address;
    for (size_t i = 0; i < cuda->stock.arena.bytes / 2; i++) halves[i] = (uint16_t)(i >> shift & 0x3fff);
    return halves;
}

static uint32_t half_of(float feature)
{
    uint32_t bits;
    memcpy(&bits, &feature, sizeof bits);
    return bits >> 16;
}

// Waits for the job, or gives it frames.
static sumi_result encode_long(sumi_engine* engine, sumi_model* model, bool in_frames, sumi_prompt** out_prompt)
{
    static char s_text[4000];
    for (size_t i = 0; i + 1 < sizeof s_text; i++) s_text[i] = "fox "[i % 4];
    sumi_prompt_desc desc = sumi_prompt_defaults(model);
    desc.text = s_text;
    sumi_job job;
    *out_prompt = NULL;
    CHECK_NUMBER(sumi_submit_prompt(engine, &desc, &job), SUMI_OK);
    for (int i = 0; in_frames && i < 10000 && sumi_job_poll(engine, job).state < SUMI_JOB_DONE; i++)
        sumi_engine_update(engine, 4000);
    if (!in_frames) (void)run_to_end(engine, job);
    return sumi_fetch_prompt(engine, job, out_prompt);
}

enum { FORMATS = 3 };

// The bytes of a prompt in every format, one after the other. The caller frees them.
static unsigned char* save_all(const sumi_prompt* prompt, size_t* out_bytes)
{
    unsigned char* all = NULL;
    *out_bytes = 0;
    for (int f = 0; f < FORMATS; f++) {
        const size_t bytes = sumi_prompt_save_as(prompt, (sumi_prompt_format)f, NULL, 0);
        all = realloc(all, *out_bytes + bytes);
        CHECK_NUMBER(sumi_prompt_save_as(prompt, (sumi_prompt_format)f, all + *out_bytes, bytes), bytes);
        *out_bytes += bytes;
    }
    return all;
}

static void check_saved(const sumi_prompt* prompt, const unsigned char* want, size_t want_bytes)
{
    size_t bytes;
    unsigned char* saved = save_all(prompt, &bytes);
    CHECK(bytes == want_bytes && memcmp(saved, want, bytes) == 0);
    free(saved);
}

// A prompt has its features as they came, and other forms of them when somebody asks: a job, or the host program. None
// of that changes a byte of what is saved, which is the same as on the CPU. Jobs share one of the forms.
TEST(a_prompt_gives_its_features_in_every_form)
{
    static const char* const s_names[FORMATS + 1] = {"1", "2_bf16", "2_int8", "large"};
    fake_reset();
    sumi_model *model = NULL, *cpu_model = NULL;
    sumi_engine* cpu = fresh_engine_with(100, &cpu_model); // closed first, because both count in s_host
    if (cpu == NULL) return;
    unsigned char *files[FORMATS + 1] = {NULL}, *want[FORMATS + 1] = {NULL};
    size_t file_bytes[FORMATS + 1] = {0}, want_bytes[FORMATS + 1] = {0};
    for (int f = 0; f <= FORMATS; f++) {
        char path[128];
        snprintf(path, sizeof path, "tests/golden/z-image/prompts/red_fox_0_%s.safetensors", s_names[f % FORMATS]);
        FILE* file = fopen(path, "rb");
        files[f] = calloc(1, 1 << 16);
        file_bytes[f] = file != NULL ? fread(files[f], 1, 1 << 16, file) : 0;
        if (file != NULL) fclose(file);
        CHECK(file_bytes[f] > 4);
        // The largest float32, which jobs round to infinity: saved in bfloat16 it is the largest finite value.
        if (f == FORMATS) memcpy(files[f] + file_bytes[f] - 4, "\xff\xff\x7f\x7f", 4);
        sumi_prompt* prompt = NULL;
        CHECK_NUMBER(sumi_prompt_load(cpu_model, files[f], file_bytes[f], &prompt), SUMI_OK);
        want[f] = save_all(prompt, &want_bytes[f]);
        sumi_prompt_release(prompt);
    }
    close_engine(cpu);
    sumi_engine* engine = cuda_engine(100, &model);
    if (engine == NULL) return;
    for (int f = 0; f <= FORMATS; f++) {
        for (int order = 0; order < (f == SUMI_PROMPT_F32 ? 2 : 1); order++) {
            sumi_prompt* prompt = NULL;
            CHECK_NUMBER(sumi_prompt_load(model, files[f], file_bytes[f], &prompt), SUMI_OK);
            CHECK(prompt != NULL && prompt->has_halves == (f == SUMI_PROMPT_BF16));
            if (prompt == NULL) return;
            if (order == 1) check_saved(prompt, want[f], want_bytes[f]);
            const sumi_image_item item = {.prompt = prompt, .seed = 3};
            sumi_image_desc desc = quick_image(model);
            desc.items = &item;
            desc.step_count = 1;
            sumi_job jobs[2];
            for (int i = 0; i < 2; i++) CHECK_NUMBER(sumi_submit_images(engine, &desc, &jobs[i]), SUMI_OK);
            CHECK(prompt->has_halves && prompt->user_count == 3);
            int32_t found = 0;
            for (int32_t s = 0; s < engine->jobs.slot_count; s++) {
                const sumi_job_slot* slot = &engine->jobs.slots[s];
                if (slot->id == 0) continue;
                found += slot->u.plan_job.request.prompts[0].features[0] == prompt->halves[0];
                CHECK(slot->input.bytes < sumi_prompt_value_count(prompt, 0)); // nothing was copied
            }
            CHECK_NUMBER(found, 2);
            check_saved(prompt, want[f], want_bytes[f]);
            const sumi_prompt_encoder info = sumi_prompt_get_info(prompt).encoders[0];
            CHECK(prompt->has_features && info.features == prompt->features[0]);
            size_t wrong = 0;
            for (size_t i = 0; i < sumi_prompt_value_count(prompt, 0); i++)
                wrong += prompt->halves[0][i] != sumi_float_to_bf16(info.features[i]);
            CHECK_NUMBER(wrong, 0);
            sumi_prompt_release(prompt);
            for (int i = 0; i < 2; i++) CHECK_NUMBER(run_to_end(engine, jobs[i]), SUMI_OK);
            CHECK(engine->prompts == prompt); // of the jobs
            for (int i = 0; i < 2; i++) sumi_job_discard(engine, jobs[i]);
            CHECK(engine->prompts == NULL);
        }
    }
    for (int f = 0; f <= FORMATS; f++) free(files[f]), free(want[f]);
    close_cuda(engine);
}

// Kernels do nothing here, so features are the bytes of the arena.
TEST(features_that_workers_share_are_in_their_places)
{
    enum { THREADS = 3, LEAST = 65000, BAD = 60000 };
    fake_reset();
    sumi_engine_desc ed = cuda_desc();
    ed.cpu_thread_count = THREADS;
    sumi_engine* engine = open_engine(&ed, NULL);
    sumi_model* model = engine != NULL ? load_model_at(engine, "tests/golden/qwen-image/model") : NULL;
    CHECK(model != NULL);
    if (model == NULL) return;
    sumi_prompt* prompt;
    for (int in_frames = 0; in_frames < 2; in_frames++) {
        CHECK_NUMBER(encode_long(engine, model, in_frames, &prompt), SUMI_OK); // has the arena now
        sumi_prompt_release(prompt);
        size_t first = 0;
        for (int shift = 14; shift >= 0; shift -= 14) {
            (void)fill_arena(engine, shift);
            CHECK_NUMBER(encode_long(engine, model, in_frames, &prompt), SUMI_OK);
            if (prompt == NULL) return;
            size_t bytes = sumi_prompt_save(prompt, NULL, 0);
            unsigned char* saved = malloc(bytes);
            CHECK_NUMBER(sumi_prompt_save(prompt, saved, bytes), bytes);
            const sumi_prompt_info info = sumi_prompt_get_info(prompt);
            const float* features = info.encoders[0].features;
            const size_t count = (size_t)info.encoders[0].token_count * (size_t)info.encoders[0].width;
            CHECK(count > LEAST);
            first += (size_t)half_of(features[0]) << shift;
            size_t wrong = 0;
            for (size_t i = 1; i < count && shift == 0; i++) wrong += half_of(features[i]) != ((first + i) & 0x3fff);
            CHECK_NUMBER(wrong, 0);
            // They were saved before there were floats of them.
            CHECK(memcmp(saved + bytes - count * sizeof *features, features, count * sizeof *features) == 0);
            free(saved);
            sumi_prompt_release(prompt);
        }
        fill_arena(engine, 0)[first + BAD] = 0x7f80;
        CHECK_NUMBER(encode_long(engine, model, in_frames, &prompt), SUMI_NOT_FINITE);
        (void)fill_arena(engine, 0);
    }
    close_cuda(engine);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
#ifdef __SANITIZE_THREAD__
    const bool has_time = false; // those that begin no second thread: a minute there, and nothing to race with
#else
    const bool has_time = true;
#endif
    if (has_time) {
        RUN(a_card_that_does_not_hold_bfloat16_gets_int8);
        RUN(attention_has_a_format);
        RUN(text_encoders_take_the_memory_of_their_own_format);
        RUN(a_warm_job_allocates_nothing_anywhere);
        RUN(a_first_picture_finds_its_kernels_loaded);
        RUN(a_larger_picture_frees_without_waiting);
        RUN(whole_ops_go_together);
        RUN(groups_follow_measured_times);
        RUN(what_is_in_flight_depends_on_who_works);
        RUN(slices_follow_the_budgets_of_updates);
        RUN(waiting_sleeps_by_predictions);
        RUN(an_update_that_begins_a_picture_is_no_longer);
        RUN(a_control_net_counts_as_weights);
        RUN(the_memory_answer_is_what_the_device_holds);
        RUN(what_no_budget_counts_is_reported);
        RUN(the_hosts_context_stays_current_through_every_call);
    }
    RUN(draws_and_leaves_nothing);
    RUN(a_prompt_gives_its_features_in_every_form);
    RUN(features_that_workers_share_are_in_their_places);
    RUN(the_image_is_the_same_at_any_pace);
    RUN(a_host_that_captures_is_not_disturbed);
    RUN(two_engines_share_a_device);
    TEST_END();
}
#else
#include "text_adapter.h"
#include "without_cuda.h"
#endif
