// The whole engine with the CUDA backend on a driver that is none (fake_cuda): what a host may do at any moment, and
// what a driver may refuse at any moment. Kernels do nothing there, so a picture's latents are its noise: enough to see
// that inputs and results go where they should. What a GPU computes is shown by test_cuda_host.c, on one.
#include "engine_fixture.h"
#include "fake_clock.h"
#ifdef SUMI_HAS_CUDA
#include "cuda_fixture.h"
#include "engine/engine.h"
#include "fake_cuda.h"
#include <math.h>

static sumi_image_desc quick_image(sumi_model* model)
{
    sumi_image_desc desc = small_image(model, &s_item);
    desc.width = desc.height = 16;
    return desc;
}

// Some updates, each as small as can be; false when the job is over.
static bool run_updates(sumi_engine* engine, sumi_job job, int count)
{
    for (int i = 0; i < count; i++) sumi_engine_update(engine, 1);
    return sumi_job_poll(engine, job).state < SUMI_JOB_DONE;
}

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

    sumi_prompt* prompt = encode_prompt(engine, model, "a lighthouse");
    CHECK(sumi_prompt_get_info(prompt).encoders[0].token_count > 0);
    sumi_lora* lora = read_lora(engine, model, "lora_peft.safetensors");
    sumi_lora_use use = {lora, 0.5f};
    sumi_image_item item = {.prompt = prompt, .seed = 3};
    sumi_image_desc with = small_image(model, &item);
    with.loras = &use;
    with.lora_count = 1;
    CHECK(draw_hash(engine, &with) != 0);
    with.profile = true;
    sumi_job job;
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
    } cards[] = {{0, SUMI_WEIGHTS_BF16}, {1000, SUMI_WEIGHTS_INT8}};
    for (int i = 0; i < 2; i++) {
        fake_reset();
        fake_limit_device_bytes((uint64_t)1 << 30);
        fake_device_bytes(cards[i].bytes);
        sumi_model* model;
        sumi_engine* engine = cuda_engine(0, &model);
        if (engine == NULL) return;
        CHECK_NUMBER(sumi_model_get_info(model).weights, cards[i].weights);
        const sumi_image_desc desc = quick_image(model);
        CHECK(draw_hash(engine, &desc) != 0);
        close_cuda(engine);
    }
}

TEST(the_picture_is_the_same_at_any_pace)
{
    static const uint32_t slices[] = {0, 20, 2000}, budgets[] = {1, 500, 20000, SUMI_FOREVER};
    uint64_t whole = 0;
    for (size_t s = 0; s < 3; s++) {
        for (int pump = 0; pump < 2; pump++) {
            fake_reset();
            sumi_engine_desc ed = cuda_desc();
            ed.max_slice_us = slices[s];
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
                        sumi_engine_update(engine, budgets[b]);
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

// Who waits for a job sleeps through its slices: being woken by the driver costs more, and is for predictions that were
// wrong. Nor does a slice wake the driver's own thread.
// The first budget after a call without one counts as it is, later ones as a moving average.
TEST(slices_follow_the_budgets_of_updates)
{
    static const struct {
        uint32_t budget_us, slice_us;
    } paces[] = {{100, 250},   {1000, 250},   {2000, 500},   {4000, 500},
                 {8000, 1000}, {15000, 1000}, {16000, 2000}, {100000, 2000}};
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(2000, &model);
    if (engine == NULL) return;
    CHECK_NUMBER(engine->frame.slice_us, 2000);
    for (size_t i = 0; i < sizeof paces / sizeof paces[0]; i++) {
        sumi_engine_update(engine, SUMI_FOREVER);
        CHECK_NUMBER(engine->frame.slice_us, 2000);
        sumi_engine_update(engine, paces[i].budget_us);
        CHECK_NUMBER(engine->frame.slice_us, paces[i].slice_us);
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
    sumi_model* model;
    sumi_engine* engine = cuda_engine(0, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = small_image(model, &s_item);
    desc.step_count = 40;
    static const fake_clock clock = {sumi_clock_ns, fake_clock_pass_ns}; // the one that the library sleeps by
    fake_use_clock(&clock);
    fake_clock_begin(1000);
    fake_kernels_take(100);
    static const double measured[] = {0.1, 0.09, 0.07}; // less than it takes: gaps between slices are in none
    for (size_t i = 0; i < sizeof measured / sizeof measured[0]; i++) {
        fake_kernel_times(&measured[i], 1);
        for (int k = 0; k < 3; k++) CHECK(draw_hash(engine, &desc) != 0); // learns
        const uint64_t waits = fake_calls("cuEventSynchronize"), queries = fake_calls("cuEventQuery"),
                       launches = fake_calls("cuGraphLaunch");
        fake_count_launches(true);
        CHECK(draw_hash(engine, &desc) != 0);
        const uint64_t launched = fake_calls("cuGraphLaunch") - launches;
        CHECK(launched >= 40);
        CHECK(4 * (fake_calls("cuEventSynchronize") - waits) < launched);
        CHECK(4 * (uint64_t)fake_wakes() < launched);
        CHECK(fake_calls("cuEventQuery") - queries < 4 * launched);
    }
    fake_clock_end();
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
TEST(what_no_budget_counts_is_said)
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
    sumi_engine* processor = fresh_engine_with(2000, &model);
    CHECK_NUMBER(sumi_engine_get_info(processor).uncounted_bytes, 0);
    close_engine(processor);
}

// ---- Pacing ---------------------------------------------------------------------------------------------------------

TEST(no_more_than_the_budget_is_on_its_way)
{
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = small_image(model, &s_item);
    desc.width = desc.height = 128;
    desc.step_count = 20;
    static const uint32_t budgets[] = {10, 60, 200, 500, 4000};
    int32_t most_ever = 0;
    for (size_t b = 0; b < sizeof budgets / sizeof *budgets; b++) {
        sumi_job job;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        run_until_denoise(engine, job);
        fake_complete_after(1000000); // a device that is busy with something else
        const uint64_t waits = fake_calls("cuEventSynchronize") + fake_calls("cuStreamSynchronize");
        int32_t count = 0;
        for (int frame = 0; frame < 120; frame++) {
            sumi_engine_update(engine, budgets[b]);
            CHECK(engine->runs.current.pending_us <= budgets[b] + 1e-3 || engine->runs.current.pending_count == 1);
            // full, and no frame adds to it; a slow thread submits one slice in each
            if (frame >= 100)
                CHECK(engine->runs.current.pending_count >= 1 && engine->runs.current.pending_count == count);
            count = engine->runs.current.pending_count;
        }
        CHECK_NUMBER(fake_calls("cuEventSynchronize") + fake_calls("cuStreamSynchronize"), waits); // nor waits for it
        CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_RUNNING);
        CHECK(count >= most_ever);
        most_ever = count;
        fake_complete_after(0);
        sumi_job_discard(engine, job);
        fake_finish();
    }
    CHECK(most_ever > 1);
    close_cuda(engine);
}

TEST(a_frame_that_finds_its_slice_over_submits_the_next_one)
{
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = small_image(model, &s_item);
    desc.step_count = 20;
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    run_until_denoise(engine, job);
    fake_complete_after(1000000);
    sumi_engine_update(engine, 1);
    for (int frame = 0; frame < 10; frame++) { // a budget that no slice fits
        const uint64_t before = fake_calls("cuGraphLaunch");
        fake_finish(); // between two frames
        sumi_engine_update(engine, 1);
        CHECK_NUMBER(fake_calls("cuGraphLaunch"), before + 1);
        sumi_engine_update(engine, 1); // a frame that comes too early
        CHECK_NUMBER(fake_calls("cuGraphLaunch"), before + 1);
    }
    sumi_engine_update(engine, 0); // a pause
    sumi_job_discard(engine, job);
    close_cuda(engine);
}

static double known_us(const sumi_engine* engine) // of all slices of the plan that runs, just now
{
    const sumi_plan_entry* entry = engine->runs.current.entry;
    double us = 0.0;
    for (size_t i = 0; entry != NULL && i < entry->plan.slice_count; i++)
        us += (double)entry->slice_us[entry->kind_first[i]];
    return us * (engine->tempo.slowness > 1.0f ? (double)engine->tempo.slowness : 1.0);
}

// Noise comes in pieces, so that no frame waits for all of it. The fake's kernels do nothing: latents are the noise.
TEST(noise_in_pieces_is_the_noise_of_one_call)
{
    enum { SIDE = 768, COUNT = 16 * (SIDE / 8) * (SIDE / 8) }; // more than a piece, not a multiple of one
    static float expected[COUNT], latents[COUNT];
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(100, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = small_image(model, &s_item);
    desc.width = desc.height = SIDE;
    for (int is_cuda = 0; is_cuda < 2; is_cuda++) {
        sumi_torch_cpu_generator cpu;
        sumi_torch_cuda_generator cuda;
        sumi_torch_cpu_seed(&cpu, s_item.seed);
        sumi_torch_cuda_seed(&cuda, s_item.seed, 16, 2048); // fewer threads than values
        if (is_cuda) sumi_torch_cuda_randn(&cuda, expected, COUNT);
        else sumi_torch_cpu_randn(&cpu, expected, COUNT);
        desc.noise = is_cuda ? SUMI_NOISE_TORCH_CUDA : SUMI_NOISE_TORCH_CPU;
        desc.noise_multiprocessors = 16;
        sumi_job job;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        while (run_updates(engine, job, 1)) continue;
        CHECK_NUMBER(sumi_job_latents(engine, job, 0, latents, COUNT), SUMI_OK);
        CHECK(memcmp(latents, expected, sizeof latents) == 0);
        sumi_job_discard(engine, job);
    }
    close_cuda(engine);
}

// What comes before the denoising loop keeps the device busy while this thread draws: in the same updates, without
// waiting for it.
TEST(noise_is_drawn_while_the_device_works)
{
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    sumi_image_item items[4];
    for (int i = 0; i < 4; i++) items[i] = (sumi_image_item){.text = "a red fox in the snow", .seed = (uint64_t)i};
    sumi_image_desc desc = small_image(model, items);
    desc.item_count = 4;
    desc.width = desc.height = 640; // 4 * 7 pieces
    uint64_t whole = 0;
    for (int late = 1; late >= 0; late--) { // first: the ring of inputs is empty
        sumi_job job;
        float latents[16 * 80 * 80];
        uint64_t hash = 0;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        // a step in each
        while (engine->jobs.running == NULL || engine->jobs.running->u.plan.phase != SUMI_PHASE_RUN)
            sumi_engine_update(engine, 1);
        fake_complete_after(late ? 1000000 : 0);
        const uint64_t waits = fake_calls("cuEventSynchronize") + fake_calls("cuStreamSynchronize");
        for (int frame = 0; late && frame < 100; frame++) sumi_engine_update(engine, 100);
        const sumi_plan_job* plan = &engine->jobs.running->u.plan;
        // no more than the ring holds
        if (late)
            CHECK(engine->runs.current.pending_count > 0
                  && engine->runs.current.section < engine->runs.current.entry->noise_section
                  && (plan->cursor > 0 || plan->drawn > 0) && plan->cursor < 4);
        CHECK_NUMBER(fake_calls("cuEventSynchronize") + fake_calls("cuStreamSynchronize"), waits);
        fake_complete_after(0);
        fake_finish();
        CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
        for (int i = 0; i < 4; i++) {
            CHECK_NUMBER(sumi_job_latents(engine, job, i, latents, 16 * 80 * 80), SUMI_OK);
            hash = 31 * hash + hash_bytes(latents, sizeof latents);
        }
        CHECK(whole == 0 || whole == hash);
        whole = hash;
        sumi_job_discard(engine, job);
    }
    close_cuda(engine);
}

// What one slice takes is known of all that are like it, also by the sums that progress and deadlines are made of.
TEST(slices_of_a_kind_share_their_times)
{
    static const double times[] = {0.02, 0.05, 0.03, 0.07, 0.04};
    fake_reset();
    fake_kernel_times(times, 5);
    sumi_model* model;
    sumi_engine* engine = cuda_engine(3, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = small_image(model, &s_item);
    desc.step_count = 20;
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    while (sumi_job_poll(engine, job).step < 10 && run_updates(engine, job, 1)) continue;
    const sumi_plan_entry* entry = engine->runs.current.entry;
    CHECK(entry != NULL);
    int32_t alike = 0;
    for (size_t s = 0; entry != NULL && s < entry->plan.section_count; s++) {
        const sumi_section* section = &entry->plan.sections[s];
        double sum = 0.0;
        for (int32_t i = section->slice_begin; i < section->slice_end; i++) {
            const int32_t first = entry->kind_first[i];
            CHECK(first >= section->slice_begin && first <= i
                  && entry->plan.slices[first].predicted_us == entry->plan.slices[i].predicted_us);
            alike += first != i;
            sum += (double)entry->slice_us[first];
        }
        if (section->kind == SUMI_SECTION_DENOISE)
            CHECK(entry->sections[s].unmeasured_us < 1e-3 && fabs(entry->sections[s].measured_us - sum) < 1e-3 * sum);
    }
    CHECK(alike > 8); // its layers
    sumi_job_discard(engine, job);
    close_cuda(engine);
}

// While another context of the same GPU has its turn, a slice's clock runs on; kernels of the host's in the same
// context lie between any two of ours.
TEST(what_others_do_on_the_gpu_does_not_shrink_the_budget)
{
    static const double alone[] = {0.02}, beside[] = {0.02, 0.02, 0.5, 0.02, 0.02, 0.02, 0.1, 0.02, 0.02},
                        slower[] = {0.06};
    static const double between[] = {0.03, 0.05, 0.026, 0.09, 0.04, 0.07, 0.036, 0.12, 0.028, 0.06, 0.05};
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = small_image(model, &s_item);
    desc.step_count = 40;
    double known[5] = {0.0}, slowness[5] = {0.0};
    // twice, for the slices behind the one that is looked at
    const struct {
        const double* ms;
        int count;
    } times[] = {{alone, 1}, {alone, 1}, {beside, 9}, {between, 11}, {slower, 1}};
    for (int k = 0; k < 5; k++) {
        fake_kernel_times(times[k].ms, times[k].count);
        sumi_job job;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        run_until_denoise(engine, job);
        for (int i = 0; i < SUMI_TEMPO_TIMES; i++) run_updates(engine, job, 2);
        slowness[k] = (double)engine->tempo.slowness;
        while (sumi_job_poll(engine, job).step < 39 && run_updates(engine, job, 1)) known[k] = known_us(engine);
        CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
        sumi_job_discard(engine, job);
    }
    CHECK(known[1] > 0.0);
    CHECK(known[2] < 1.25 * known[1] && known[3] < 1.25 * known[1]);
    CHECK(slowness[2] < 1.1 && slowness[3] < 1.1);
    CHECK(known[4] > 1.3 * known[1] && slowness[4] > 1.3); // that is noticed, and soon
    printf("  slices: %.0f us alone, %.0f beside another context, %.0f among others' kernels, %.0f on a slower device; "
           "soon thought to be %.2f times as long there\n",
           known[1], known[2], known[3], known[4], slowness[4]);
    close_cuda(engine);
}

// ---- The host changes its mind --------------------------------------------------------------------------------------

TEST(every_job_can_be_cancelled_after_every_step)
{
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    fake_complete_after(2);
    sumi_image_desc desc = quick_image(model);
    desc.preview_every = 1;
    const uint64_t whole = draw_hash(engine, &desc);
    uint8_t grey[16 * 16] = {0};
    sumi_pixels pixels = {grey, 16, 16, 0, 1};
    for (int kind = 0; kind < 5; kind++) {
        bool seen[8] = {false}, is_done = false;
        int steps = 0;
        for (; !is_done && steps < 3000 && t_errors == 0; steps += steps < 40 ? 1 : 3) {
            sumi_job job = {0};
            sumi_model_desc md = sumi_model_defaults();
            md.path = MODEL_PATH;
            sumi_prompt_desc pd = sumi_prompt_defaults(model);
            pd.text = "a lighthouse";
            sumi_encode_desc ed = sumi_encode_defaults(model);
            ed.image = &pixels;
            ed.width = ed.height = 16;
            sumi_lora_desc ld = sumi_lora_defaults(model);
            ld.path = LORA_PATH "lora_kohya.safetensors";
            const sumi_result result = kind == 0 ? sumi_submit_images(engine, &desc, &job)
                                     : kind == 1 ? sumi_submit_model(engine, &md, &job)
                                     : kind == 2 ? sumi_submit_prompt(engine, &pd, &job)
                                     : kind == 3 ? sumi_submit_encode(engine, &ed, &job)
                                                 : sumi_submit_lora(engine, &ld, &job);
            CHECK_NUMBER(result, SUMI_OK);
            is_done = !run_updates(engine, job, steps);
            seen[sumi_job_poll(engine, job).stage] = true;
            if (steps % 2 == 0) {
                sumi_job_discard(engine, job);
            } else {
                sumi_job_cancel(engine, job);
                sumi_engine_update(engine, 1);
                CHECK_NUMBER(sumi_job_poll(engine, job).state, is_done ? SUMI_JOB_DONE : SUMI_JOB_CANCELLED);
                sumi_job_discard(engine, job);
            }
            CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_NONE);
            CHECK_NUMBER(sumi_engine_get_info(engine).job_count, 0);
            if (steps % 30 == 0) CHECK(draw_hash(engine, &desc) == whole); // right behind the cancelled one's slices
        }
        CHECK(is_done);
        if (kind == 0)
            CHECK(seen[SUMI_STAGE_PREPARE] && seen[SUMI_STAGE_TEXT] && seen[SUMI_STAGE_DENOISE]
                  && seen[SUMI_STAGE_DECODE]);
    }
    CHECK(whole != 0 && draw_hash(engine, &desc) == whole);
    close_cuda(engine);
}

// The latents that come back are those that were set aside, or the noise: kernels do nothing here.
TEST(a_job_can_be_paused_after_every_step)
{
    for (int late = 0; late < 3; late++) {
        fake_reset();
        sumi_model* model;
        sumi_engine* engine = cuda_engine(100, &model);
        if (engine == NULL) return;
        sumi_image_desc desc;
        rich_image(&desc, model);
        desc.preview_every = late == 1 ? 1 : 0;
        desc.solver = late == 2 ? SUMI_SOLVER_DPMPP_2M : SUMI_SOLVER_HEUN;
        const sumi_image_desc other = quick_image(model);
        const uint64_t want = draw_hash(engine, &desc), want_other = draw_hash(engine, &other);
        bool is_running = true;
        int gave_way = 0;
        for (int n = 0; is_running && t_errors == 0; n += late == 0 ? 1 : 3) {
            fake_complete_after(late * 2);
            sumi_job job, beside;
            CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
            is_running = run_updates(engine, job, n);
            CHECK_NUMBER(sumi_job_pause(engine, job, true), is_running ? SUMI_OK : SUMI_WRONG_STATE);
            CHECK_NUMBER(sumi_submit_images(engine, &other, &beside), SUMI_OK);
            CHECK_NUMBER(run_to_end(engine, beside), SUMI_OK);
            gave_way += sumi_job_poll(engine, job).state == SUMI_JOB_QUEUED;
            (void)sumi_job_pause(engine, job, false);
            CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
            CHECK(fetch_hash(engine, beside, &other) == want_other);
            CHECK(fetch_hash(engine, job, &desc) == want);
        }
        printf("  %d pauses\n", gave_way);
        CHECK(gave_way > 5);
        sumi_model_close(model);
        close_cuda(engine);
    }
}

TEST(the_first_load_can_be_cancelled_and_left)
{
    for (int steps = 1; steps < 40; steps += 13) {
        for (int leaves = 0; leaves < 2; leaves++) { // kernels may be being loaded on a thread
            fake_reset();
            sumi_engine_desc ed = cuda_desc();
            sumi_engine* engine = NULL;
            CHECK_NUMBER(sumi_engine_create(&ed, &engine), SUMI_OK);
            if (engine == NULL) return;
            sumi_model_desc md = sumi_model_defaults();
            md.path = MODEL_PATH;
            sumi_job job;
            CHECK_NUMBER(sumi_submit_model(engine, &md, &job), SUMI_OK);
            (void)run_updates(engine, job, steps);
            if (leaves == 0) {
                sumi_job_cancel(engine, job);
                sumi_engine_update(engine, 1);
                sumi_model* model = NULL;
                (void)sumi_fetch_model(engine, job, &model);
                if (model == NULL) model = load_model(engine);
                CHECK(model != NULL);
                sumi_image_desc desc = quick_image(model);
                if (model != NULL) CHECK(draw_hash(engine, &desc) != 0);
            }
            close_cuda(engine);
        }
    }
}

TEST(an_engine_can_go_while_slices_are_on_their_way)
{
    for (int closes = 0; closes < 3; closes++) {
        for (int pump = 0; pump < 2; pump++) {
            fake_reset();
            sumi_engine_desc ed = cuda_desc();
            ed.max_slice_us = 20;
            ed.pump = pump == 1 ? SUMI_PUMP_THREAD : SUMI_PUMP_UPDATE;
            sumi_model* model;
            sumi_engine* engine = open_engine(&ed, &model);
            CHECK(engine != NULL);
            if (engine == NULL) return;
            sumi_image_desc desc = small_image(model, &s_item);
            desc.step_count = 200;
            desc.preview_every = 1;
            sumi_job job, queued;
            CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
            CHECK_NUMBER(sumi_submit_images(engine, &desc, &queued), SUMI_OK);
            fake_complete_after(pump == 1 ? 2 : 1000000);
            for (int i = 0; i < 4000 && sumi_job_poll(engine, job).stage != SUMI_STAGE_TEXT; i++)
                sumi_engine_update(engine, 4000);
            // an update stops after a moment of its own time
            for (int i = 0; pump == 0 && i < 100 && engine->runs.current.pending_count < 2; i++)
                sumi_engine_update(engine, 4000);
            if (pump == 0) CHECK(engine->runs.current.pending_count > 1);
            if (closes == 1) {
                sumi_model_close(model);
                CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_CANCELLED);
                CHECK_NUMBER(sumi_job_poll(engine, queued).state, SUMI_JOB_CANCELLED);
                CHECK_NUMBER(sumi_engine_get_info(engine).held_bytes[SUMI_MEMORY_WEIGHTS], 0);
            } else if (closes == 2) {
                sumi_job_discard(engine, job);
            }
            close_cuda(engine);
        }
    }
}

// What is taken away belongs to nobody's running job: that one goes on, with all its steps and previews.
TEST(a_running_job_does_not_notice_what_others_release)
{
    fake_reset();
    sumi_model *model, *other;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = small_image(model, &s_item);
    desc.preview_every = 1;
    const uint64_t whole = draw_hash(engine, &desc);
    for (int stop = 1; stop < 120 && t_errors == 0; stop += 3) {
        fake_complete_after(0);
        other = load_model(engine);
        sumi_lora* lora = read_lora(engine, model, "lora_peft.safetensors");
        sumi_lora_use use = {lora, 1.0f};
        sumi_image_desc with = quick_image(model);
        with.loras = &use;
        with.lora_count = 1;
        CHECK(draw_hash(engine, &with) != 0);
        sumi_job job;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        fake_complete_after(1000000);
        for (int i = 0; i < stop; i++) {
            sumi_engine_update(engine, 100);
            if (i % 8 == 7) fake_finish(); // progress, but some slices are always on their way
        }
        if (stop % 2 == 0) sumi_lora_release(lora);
        else sumi_model_close(other);
        fake_complete_after(1);
        CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
        const sumi_job_status status = sumi_job_poll(engine, job);
        CHECK_NUMBER(status.step, desc.step_count);
        CHECK_NUMBER(status.preview_version, desc.step_count);
        sumi_job_discard(engine, job);
        if (stop % 2 == 0) sumi_model_close(other);
        else sumi_lora_release(lora);
    }
    CHECK(draw_hash(engine, &desc) == whole);
    close_cuda(engine);
}

// Beside a pump thread that works: products that nobody fetches are taken off the device.
TEST(products_can_be_thrown_away_beside_our_thread)
{
    fake_reset();
    sumi_engine_desc ed = cuda_desc();
    ed.max_slice_us = 20;
    ed.pump = SUMI_PUMP_THREAD;
    sumi_model* model;
    sumi_engine* engine = open_engine(&ed, &model);
    CHECK(engine != NULL);
    if (engine == NULL) return;
    fake_complete_after(1);
    sumi_image_desc desc = small_image(model, &s_item);
    const uint64_t whole = draw_hash(engine, &desc);
    for (int i = 0; i < 6; i++) {
        sumi_model_desc md = sumi_model_defaults();
        md.path = MODEL_PATH;
        sumi_job load, image;
        sumi_image_desc longer = desc;
        longer.step_count = 60; // still running when the discard comes
        CHECK_NUMBER(sumi_submit_model(engine, &md, &load), SUMI_OK);
        CHECK_NUMBER(sumi_submit_images(engine, &longer, &image), SUMI_OK);
        if (i % 2 == 0) CHECK_NUMBER(run_to_end(engine, load), SUMI_OK);
        sumi_job_discard(engine, load);
        CHECK_NUMBER(run_to_end(engine, image), SUMI_OK);
        sumi_job_discard(engine, image);
    }
    CHECK(whole != 0 && draw_hash(engine, &desc) == whole);
    close_cuda(engine);
}

// ---- The driver refuses ---------------------------------------------------------------------------------------------

// Engines are made until none of their allocations fails; models are loaded until none of theirs does.
TEST(the_nth_allocation_of_an_engine_may_fail)
{
    bool fails = true;
    for (int nth = 1; fails && nth < 50; nth++) {
        fake_reset();
        sumi_engine_desc ed = cuda_desc();
        sumi_engine* engine = NULL;
        fake_fail_allocation(nth);
        const sumi_result result = sumi_engine_create(&ed, &engine);
        fails = fake_fail_allocation(0);
        CHECK_NUMBER(result, fails ? SUMI_OUT_OF_DEVICE_MEMORY : SUMI_OK);
        CHECK((engine == NULL) == fails);
        close_cuda(engine);
    }
    CHECK(!fails);
}

TEST(the_nth_allocation_of_a_load_and_a_picture_may_fail)
{
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(100, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = quick_image(model);
    desc.preview_every = 1;
    const uint64_t whole = draw_hash(engine, &desc);
    bool fails = true;
    int nth = 1, failures = 0;
    for (; fails && nth < 200 && t_errors == 0; nth++) {
        sumi_model_close(model);
        CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 1), SUMI_OK); // everything idle goes
        CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 0), SUMI_OK);
        fake_fail_allocation(nth);
        sumi_model_desc md = sumi_model_defaults();
        md.path = MODEL_PATH;
        sumi_job job;
        model = NULL;
        CHECK_NUMBER(sumi_submit_model(engine, &md, &job), SUMI_OK);
        sumi_result result = run_to_end(engine, job);
        CHECK_NUMBER(sumi_fetch_model(engine, job, &model), result);
        if (result == SUMI_OK) {
            desc.model = model;
            CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
            result = run_to_end(engine, job);
            if (result != SUMI_OK) CHECK(sumi_job_poll(engine, job).message[0] != '\0');
            sumi_job_discard(engine, job);
        }
        fails = fake_fail_allocation(0);
        failures += result != SUMI_OK;
        // a smaller staging may do, too
        CHECK(fails ? result == SUMI_OK || result == SUMI_OUT_OF_DEVICE_MEMORY || result == SUMI_OUT_OF_HOST_MEMORY
                    : result == SUMI_OK);
        if (model == NULL) model = load_model(engine);
        CHECK(model != NULL);
        if (model == NULL) break;
        desc.model = model;
        CHECK(draw_hash(engine, &desc) == whole);
    }
    CHECK(!fails && nth > 6 && failures > 0); // not every failure is a job's: it may do with less
    printf("  %d allocations failed, %d times a job did\n", nth - 2, failures);
    close_cuda(engine);
}

// Entries that a job calls, but for those that give back or end something. One failure: the job may fail, the engine
// and what comes after it may not; unless the failure means a lost device.
TEST(the_nth_call_of_every_entry_may_fail)
{
    static const char* const entries[] = {"cuMemcpyHtoDAsync",
                                          "cuMemcpyDtoHAsync",
                                          "cuMemsetD32Async",
                                          "cuStreamBeginCapture",
                                          "cuGraphInstantiateWithFlags",
                                          "cuGraphUpload",
                                          "cuGraphLaunch",
                                          "cuLaunchKernel",
                                          "cuLaunchKernelEx",
                                          "cuEventCreate",
                                          "cuEventRecord",
                                          "cuEventQuery",
                                          "cuEventSynchronize",
                                          "cuEventElapsedTime",
                                          "cuStreamSynchronize",
                                          "cuModuleGetFunction",
                                          "cuFuncSetAttribute",
                                          "cuTensorMapEncodeTiled",
                                          "cuCtxPushCurrent"};
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = quick_image(model);
    desc.preview_every = 1;
    const uint64_t whole = draw_hash(engine, &desc);
    int failed_calls = 0, failed_jobs = 0, lost = 0;
    for (size_t e = 0; e < sizeof entries / sizeof *entries && engine != NULL; e++) {
        bool fails = true;
        for (int nth = 1; fails && nth < 4000 && t_errors == 0; nth += nth < 12 ? 1 : nth / 4) {
            CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 0), SUMI_OK);
            fake_complete_after(nth % 3);
            fake_fail_call(entries[e], nth, 1); // CUDA_ERROR_INVALID_VALUE
            desc.step_count = 1 + nth % 6;      // more plans than are kept: now one that is known, now one that is new
            sumi_job job;
            CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
            const sumi_result result = run_to_end(engine, job);
            CHECK(result == SUMI_OK || result == SUMI_INTERNAL || result == SUMI_DEVICE_LOST);
            if (result != SUMI_OK) CHECK(sumi_job_poll(engine, job).message[0] != '\0');
            sumi_job_discard(engine, job);
            fails = fake_fail_call(NULL, 0, 0);
            failed_calls += fails;
            failed_jobs += result != SUMI_OK;
            if (!fails) CHECK_NUMBER(result, SUMI_OK);
            if (result == SUMI_DEVICE_LOST) { // the engine says so from now on; a new one works
                lost++;
                CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
                CHECK_NUMBER(run_to_end(engine, job), SUMI_DEVICE_LOST);
                close_cuda(engine);
                fake_complete_after(0);
                engine = cuda_engine(20, &model);
                if (engine == NULL) return;
                desc.model = model;
            }
            desc.step_count = 2;
            const uint64_t hash = draw_hash(engine, &desc);
            CHECK(hash == whole);
            if (t_errors > 0) printf("  after call %d of %s\n", nth, entries[e]);
        }
    }
    CHECK(failed_calls > 100 && failed_jobs > 50);
    printf("  %d calls failed, %d jobs with them, %d times the device counted as lost\n", failed_calls, failed_jobs,
           lost);
    close_cuda(engine);
}

TEST(a_lost_device_is_said_and_everything_comes_back)
{
    for (int stop = 1; stop < 400 && t_errors == 0; stop = stop * 3 / 2 + 1) {
        fake_reset();
        sumi_model* model;
        sumi_engine* engine = cuda_engine(20, &model);
        if (engine == NULL) return;
        fake_complete_after(3);
        sumi_image_desc desc = small_image(model, &s_item);
        desc.step_count = 4;
        desc.preview_every = 1;
        sumi_lora* lora = read_lora(engine, model, "lora_peft.safetensors");
        sumi_job job, queued, load;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &queued), SUMI_OK);
        const bool runs = run_updates(engine, job, stop);
        fake_lose_device();
        const sumi_result result = run_to_end(engine, job);
        CHECK_NUMBER(result, runs ? SUMI_DEVICE_LOST : SUMI_OK);
        if (runs) CHECK(sumi_job_poll(engine, job).message[0] != '\0');
        CHECK_NUMBER(run_to_end(engine, queued), SUMI_DEVICE_LOST);
        sumi_model_desc md = sumi_model_defaults();
        md.path = MODEL_PATH;
        CHECK_NUMBER(sumi_submit_model(engine, &md, &load), SUMI_OK);
        CHECK_NUMBER(run_to_end(engine, load), SUMI_DEVICE_LOST);
        if (stop % 2 == 0) sumi_lora_release(lora);
        if (stop % 3 == 0) sumi_model_close(model);
        close_cuda(engine);
        if (!runs) break;
    }
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

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(draws_and_leaves_nothing);
    RUN(a_card_that_does_not_hold_bfloat16_gets_int8);
    RUN(the_picture_is_the_same_at_any_pace);
    RUN(a_warm_job_allocates_nothing_anywhere);
    RUN(whole_ops_go_together);
    RUN(slices_follow_the_budgets_of_updates);
    RUN(waiting_sleeps_by_predictions);
    RUN(the_memory_answer_is_what_the_device_holds);
    RUN(what_no_budget_counts_is_said);
    RUN(no_more_than_the_budget_is_on_its_way);
    RUN(a_frame_that_finds_its_slice_over_submits_the_next_one);
    RUN(noise_in_pieces_is_the_noise_of_one_call);
    RUN(noise_is_drawn_while_the_device_works);
    RUN(slices_of_a_kind_share_their_times);
    RUN(what_others_do_on_the_gpu_does_not_shrink_the_budget);
#ifdef __SANITIZE_THREAD__
    const bool has_time = false; // hundreds of lives on one thread: minutes there, and no second thread to race with
#else
    const bool has_time = true;
#endif
    if (has_time) {
        RUN(every_job_can_be_cancelled_after_every_step);
        RUN(a_running_job_does_not_notice_what_others_release);
        RUN(the_nth_allocation_of_an_engine_may_fail);
        RUN(the_nth_allocation_of_a_load_and_a_picture_may_fail);
        RUN(the_nth_call_of_every_entry_may_fail);
        RUN(a_lost_device_is_said_and_everything_comes_back);
    }
    RUN(a_job_can_be_paused_after_every_step);
    RUN(the_first_load_can_be_cancelled_and_left);
    RUN(an_engine_can_go_while_slices_are_on_their_way);
    RUN(products_can_be_thrown_away_beside_our_thread);
    RUN(the_hosts_context_stays_current_through_every_call);
    RUN(a_host_that_captures_is_not_disturbed);
    RUN(two_engines_share_a_device);
    TEST_END();
}
#else
TEST(the_engine_on_a_gpu) { SKIP("this build has no CUDA backend"); }

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(the_engine_on_a_gpu);
    TEST_END();
}
#endif
