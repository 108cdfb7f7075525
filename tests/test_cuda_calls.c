// What the CUDA backend asks of the driver, call by call, and what the library answers, of whole scenarios. It depends on
// nothing but the calls of the host program: not on the run, on addresses or on the system. With SUMI_CALLS=FOLDER in the
// environment each scenario's text is also written to FOLDER/NAME.txt, so that the texts of two systems can be compared
// (run_windows.sh). On the fake driver, and by a clock that passes by itself.
#include "engine_fixture.h"
#ifdef SUMI_HAS_CUDA
#include "cuda_fixture.h"
#include "fake_clock.h"
#include "fake_cuda.h"
#include "jobs/engine_state.h"
#include <stdarg.h>

// ---- The text of a scenario -----------------------------------------------------------------------------------------

typedef struct transcript {
    char* text;
    size_t bytes, capacity;
} transcript;

static transcript* s_now;          // of the scenario that runs
static transcript s_loading;       // calls of the thread that loads kernels, which are at its end
static uintptr_t s_calling_thread; // all other calls

static void add_line(transcript* t, const char* line)
{
    const size_t bytes = strlen(line);
    if (t->bytes + bytes + 2 > t->capacity) {
        t->capacity = 2 * (t->capacity + bytes) + 4096;
        t->text = realloc(t->text, t->capacity);
        if (t->text == NULL) abort();
    }
    memcpy(t->text + t->bytes, line, bytes);
    memcpy(t->text + t->bytes + bytes, "\n", 2);
    t->bytes += bytes + 1;
}

static void add_call(const char* line, void* user_data)
{
    add_line(sumi_this_thread() == s_calling_thread ? user_data : &s_loading, line);
}

static void say(const char* format, ...) SUMI_PRINTF(1, 2);
static void say(const char* format, ...)
{
    char line[1024] = "# ";
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + 2, sizeof line - 2, format, arguments);
    va_end(arguments);
    add_line(s_now, line);
}

static void say_result(const char* call, sumi_result result) { say("%s: %s", call, sumi_result_text(result)); }

static void say_log(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    (void)user_data;
    say("log, level %d, result %d: %s", (int)level, (int)result, text);
}

// ---- A host program -------------------------------------------------------------------------------------------------

static sumi_engine* make_engine(sumi_engine_desc desc)
{
    sumi_engine* engine = NULL;
    desc.log = (sumi_log){say_log, NULL};
    say_result("sumi_engine_create", sumi_engine_create(&desc, &engine));
    CHECK(engine != NULL);
    if (engine == NULL) return NULL;
    const sumi_engine_info info = sumi_engine_get_info(engine);
    say("%s, uuid begins with %d, luid with %d", info.device, (int)info.device_uuid[0], (int)info.device_luid[0]);
    return engine;
}

// Frames of a budget until the job has ended. No frame comes while another thread loads kernels, for the number of such
// frames would be another one in every run. Notes what the host program sees.
static sumi_result run(sumi_engine* engine, sumi_job job, uint32_t budget_us)
{
    sumi_job_state state = SUMI_JOB_NONE;
    sumi_stage stage = SUMI_STAGE_WAIT;
    for (int32_t frame = 0; frame < MAX_FRAMES; frame++) {
        sumi_engine_update(engine, budget_us);
        while (engine->kernels.has_thread && !atomic_load(&engine->kernels.is_over)) __real_sumi_sleep_us(50);
        const sumi_job_status status = sumi_job_poll(engine, job);
        if (status.state != state || status.stage != stage)
            say("frame %d: state %d, stage %d, %.6f: %s", (int)frame, (int)status.state, (int)status.stage,
                (double)status.progress, status.message);
        state = status.state, stage = status.stage;
        if (state >= SUMI_JOB_DONE) return status.result;
    }
    CHECK(!"the job ends");
    return SUMI_TIMEOUT;
}

static sumi_model* load(sumi_engine* engine, const sumi_model_desc* desc)
{
    sumi_job job;
    sumi_model* model = NULL;
    say_result("sumi_submit_model", sumi_submit_model(engine, desc, &job));
    (void)run(engine, job, 500);
    say_result("sumi_fetch_model", sumi_fetch_model(engine, job, &model));
    return model;
}

static sumi_model* load_tiny(sumi_engine* engine)
{
    sumi_model_desc desc = sumi_model_defaults();
    desc.path = MODEL_PATH;
    return load(engine, &desc);
}

static sumi_engine* open_tiny(sumi_engine_desc desc, sumi_model** out_model)
{
    sumi_engine* engine = make_engine(desc);
    *out_model = engine != NULL ? load_tiny(engine) : NULL;
    CHECK(*out_model != NULL);
    return *out_model != NULL ? engine : NULL;
}

static void fetch(sumi_engine* engine, sumi_job job, int32_t count)
{
    sumi_image images[8];
    const sumi_result result = sumi_fetch_images(engine, job, images, 8);
    say_result("sumi_fetch_images", result);
    if (result != SUMI_OK) return;
    for (int32_t i = 0; i < count; i++)
        say("image %d: %d x %d, %016llx", (int)i, (int)images[i].width, (int)images[i].height,
            (unsigned long long)hash_image(&images[i]));
    sumi_images_release(engine, images, count);
}

static void draw_image(sumi_engine* engine, const sumi_image_desc* desc)
{
    sumi_job job;
    const sumi_result submitted = sumi_submit_images(engine, desc, &job);
    say_result("sumi_submit_images", submitted);
    if (submitted != SUMI_OK) return;
    (void)run(engine, job, 300);
    fetch(engine, job, desc->item_count);
}

static void say_memory(const sumi_engine* engine)
{
    const sumi_engine_info info = sumi_engine_get_info(engine);
    for (int kind = 0; kind < SUMI_MEMORY_KIND_COUNT; kind++)
        say("kind %d of memory: %llu bytes", kind, (unsigned long long)info.held_bytes[kind]);
}

// ---- Scenarios ------------------------------------------------------------------------------------------------------

static void text_to_image(void)
{
    sumi_model* model;
    sumi_engine* engine = open_tiny(cuda_desc(), &model);
    if (engine == NULL) return;
    sumi_image_desc desc;
    rich_image(&desc, model);
    desc.preview_every = 1;
    draw_image(engine, &desc);
    say_memory(engine);
    desc = small_image(model, &s_item); // finds kernels and weights as they are
    draw_image(engine, &desc);
    sumi_job job; // and the plan; this time without frames
    say_result("sumi_submit_images", sumi_submit_images(engine, &desc, &job));
    say_result("sumi_job_wait", sumi_job_wait(engine, job, SUMI_FOREVER));
    fetch(engine, job, 1);
    close_engine(engine);
}

static void edit(void)
{
    sumi_engine* engine = make_engine(cuda_desc());
    if (engine == NULL) return;
#define QWEN "tests/golden/qwen-image/"
    sumi_model_desc md = sumi_model_defaults();
    md.path = QWEN "model-edit";
    md.transformer_path = QWEN "model/transformer";
    md.text_encoder_path = QWEN "model/text_encoder";
    md.vae_path = QWEN "model/vae";
    md.tokenizer_path = QWEN "model/tokenizer";
    md.processor_path = QWEN "model-edit/processor";
    sumi_model* model = load(engine, &md);
    CHECK(model != NULL);
    if (model != NULL) {
        static uint8_t s_pixels[64 * 64 * 3];
        for (size_t i = 0; i < sizeof s_pixels; i++) s_pixels[i] = (uint8_t)(i * 37 + i / 191);
        const sumi_pixels reference = {s_pixels, 64, 64, 0, 3};
        sumi_image_desc desc = small_image(model, &s_item);
        desc.width = desc.height = 0;
        desc.references = &reference;
        desc.reference_count = 1;
        draw_image(engine, &desc);
    }
    close_engine(engine);
}

// Less than the weights: they are streamed.
static void budget(void)
{
    sumi_model* model;
    sumi_engine* engine = open_tiny(cuda_desc(), &model);
    if (engine == NULL) return;
    sumi_image_desc desc = small_image(model, &s_item);
    sumi_memory memory;
    say_result("sumi_image_memory", sumi_image_memory(engine, &desc, &memory));
    say("%llu bytes, %llu of weights", (unsigned long long)memory.needed, (unsigned long long)memory.weights);
    draw_image(engine, &desc);
    say_result("sumi_engine_set_memory_budget", sumi_engine_set_memory_budget(engine, 1000));
    draw_image(engine, &desc); // fails
    say_result("sumi_image_memory", sumi_image_memory(engine, &desc, &memory));
    say_result("sumi_engine_set_memory_budget", sumi_engine_set_memory_budget(engine, memory.needed + 65536));
    say_result("sumi_image_memory", sumi_image_memory(engine, &desc, &memory));
    say("%llu bytes, %llu streamed", (unsigned long long)memory.needed, (unsigned long long)memory.streamed);
    CHECK(memory.streamed > 0);
    draw_image(engine, &desc);
    say_memory(engine);
    say_result("sumi_engine_set_memory_budget", sumi_engine_set_memory_budget(engine, 0));
    draw_image(engine, &desc);
    close_engine(engine);
}

static void cancel(void)
{
    sumi_model* model;
    sumi_engine* engine = open_tiny(cuda_desc(), &model);
    if (engine == NULL) return;
    sumi_image_desc desc = small_image(model, &s_item);
    static const int s_frames[] = {0, 40, 120, 300, 600}; // before it begins, and in every stage
    for (size_t f = 0; f < sizeof s_frames / sizeof *s_frames; f++) {
        sumi_job job;
        say_result("sumi_submit_images", sumi_submit_images(engine, &desc, &job));
        for (int i = 0; i < s_frames[f]; i++) sumi_engine_update(engine, 50);
        sumi_job_cancel(engine, job);
        (void)run(engine, job, 50);
        fetch(engine, job, 1);
    }
    draw_image(engine, &desc);
    close_engine(engine);
}

static void device_lost(void)
{
    sumi_model* model;
    sumi_engine* engine = open_tiny(cuda_desc(), &model);
    if (engine == NULL) return;
    sumi_image_desc desc = small_image(model, &s_item);
    sumi_job job;
    say_result("sumi_submit_images", sumi_submit_images(engine, &desc, &job));
    for (int i = 0; i < 10; i++) sumi_engine_update(engine, 50);
    fake_lose_device();
    CHECK_NUMBER(run(engine, job, 50), SUMI_DEVICE_LOST);
    fetch(engine, job, 1);
    draw_image(engine, &desc);
    char text[512];
    say_result("sumi_engine_last_error", sumi_engine_last_error(engine, text, sizeof text));
    say("%s", text);
    close_engine(engine);
}

static void no_memory(void)
{
    fake_limit_device_bytes(1000000);
    sumi_engine* engine = make_engine(cuda_desc());
    if (engine == NULL) return;
    sumi_model* model = load_tiny(engine);
    if (model != NULL) {
        const sumi_image_desc desc = small_image(model, &s_item);
        draw_image(engine, &desc);
    }
    close_engine(engine);
}

// Of two GPUs, by the number that Direct3D gives them.
static void luid(void)
{
    static const uint8_t s_first[8] = {1, 2, 3, 4, 5, 6, 7, 8}, s_second[8] = {9, 10, 11, 12, 13, 14, 15, 16},
                         s_none[8] = {99};
    const uint8_t* const luids[] = {s_first, s_second, s_none};
    fake_devices(2, 89);
    for (int i = 0; i < 3; i++) {
        sumi_engine_desc desc = cuda_desc();
        desc.cuda.luid = luids[i];
        desc.log = (sumi_log){say_log, NULL};
        sumi_engine* engine = NULL;
        say_result("sumi_engine_create", sumi_engine_create(&desc, &engine));
        CHECK((engine != NULL) == (i < 2));
        if (engine != NULL) CHECK(memcmp(sumi_engine_get_info(engine).device_luid, luids[i], sizeof s_first) == 0);
        sumi_engine_destroy(engine);
    }
}

// By Windows' handles. CUDA's numbers: 4 and 5 are heaps and resources of Direct3D 12, 2 Vulkan's memory; of semaphores 4
// is a fence, 10 a timeline.
static void imports(void)
{
    static const struct {
        sumi_external_kind kind, semaphore;
        int type, semaphore_type;
        bool is_image;
    } s_kinds[] = {{SUMI_EXTERNAL_D3D12_HEAP, SUMI_EXTERNAL_D3D12_FENCE, 4, 4, false},
                   {SUMI_EXTERNAL_D3D12_RESOURCE, SUMI_EXTERNAL_D3D12_FENCE, 5, 4, true},
                   {SUMI_EXTERNAL_VULKAN_MEMORY, SUMI_EXTERNAL_VULKAN_TIMELINE, 2, 10, true}};
    static const uint8_t s_luid[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    enum { SIDE = 32, BYTES = SIDE * SIDE * 4 };
    sumi_model* model;
    sumi_engine* engine = open_tiny(cuda_desc(), &model);
    if (engine == NULL) return;
    for (size_t k = 0; k < sizeof s_kinds / sizeof *s_kinds; k++) {
        const int memory = fake_shared_memory(s_kinds[k].type, BYTES, s_kinds[k].type == 5),
                  semaphore = fake_shared_semaphore(s_kinds[k].semaphore_type);
        sumi_import_desc desc = sumi_import_defaults();
        sumi_external *into = NULL, *fence = NULL;
        desc.kind = s_kinds[k].semaphore;
        desc.handle = fake_shared_handle(semaphore);
        desc.device_luid = s_luid;
        say_result("sumi_import", sumi_import(engine, &desc, &fence));
        desc.kind = s_kinds[k].kind;
        desc.handle = fake_shared_handle(memory);
        desc.width = desc.height = SIDE;
        desc.memory_bytes = BYTES;
        desc.is_image = s_kinds[k].is_image;
        say_result("sumi_import", sumi_import(engine, &desc, &into));
        CHECK(into != NULL && fence != NULL);
        const sumi_target target = {.external = into, .wait = {fence, 1}, .signal = {fence, 2}};
        sumi_image_desc image = small_image(model, &s_item);
        image.targets = &target;
        draw_image(engine, &image);
        say("before: %llu", (unsigned long long)fake_shared_value(semaphore));
        fake_shared_signal(semaphore, 1);
        say("after: %llu", (unsigned long long)fake_shared_value(semaphore));
        sumi_external_release(into);
        sumi_external_release(fence);
        desc.handle = fake_shared_handle(semaphore); // of another kind
        say_result("sumi_import", sumi_import(engine, &desc, &into));
        fake_shared_release(memory);
        fake_shared_release(semaphore);
    }
    close_engine(engine);
}

// ---- Running them ---------------------------------------------------------------------------------------------------

static void play(void (*scenario)(void), transcript* into)
{
    static const fake_clock s_clock = {sumi_clock_ns, fake_clock_pass_ns};
    *into = s_loading = (transcript){0};
    s_now = into;
    s_calling_thread = sumi_this_thread();
    fake_reset();
    fake_lock_read_only(false); // Windows maps files without sharing their pages, and locks none
    fake_clock_begin(1000);
    fake_use_clock(&s_clock);
    fake_kernels_take(20);
    fake_on_call(add_call, into);
    scenario();
    fake_on_call(NULL, NULL);
    fake_clock_end();
    if (s_loading.bytes > 0) add_line(into, s_loading.text);
    free(s_loading.text);
    CHECK_NUMBER(fake_held(), 0);
    CHECK_NUMBER(fake_violations(), 0);
    CHECK_NUMBER(fake_context_depth(), 0);
}

static void write_text(const char* name, const transcript* t)
{
    const char* folder = getenv("SUMI_CALLS");
    char path[512];
    if (folder == NULL || folder[0] == '\0') return;
    snprintf(path, sizeof path, "%s/%s.txt", folder, name);
    FILE* file = system_open(path, "wb");
    CHECK(file != NULL && fwrite(t->text, 1, t->bytes, file) == t->bytes);
    if (file != NULL) fclose(file);
}

static void check_scenario(const char* name, void (*scenario)(void))
{
    transcript first, second;
    play(scenario, &first);
    play(scenario, &second);
    CHECK(first.bytes > 1000);
    size_t same = 0, line = 1;
    while (same < first.bytes && same < second.bytes && first.text[same] == second.text[same])
        line += first.text[same++] == '\n';
    CHECK(first.bytes == second.bytes && same == first.bytes);
    if (first.bytes != second.bytes || same != first.bytes) {
        printf("  %s: the second run differs from line %zu on\n", name, line);
        write_text("second_run", &second);
    }
    write_text(name, &first);
    free(first.text);
    free(second.text);
}

#define SCENARIO(name)                                                                                                 \
    TEST(name) { check_scenario(#name, name); }
SCENARIO(text_to_image)
SCENARIO(edit)
SCENARIO(budget)
SCENARIO(cancel)
SCENARIO(device_lost)
SCENARIO(no_memory)
SCENARIO(luid)
SCENARIO(imports)

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(text_to_image);
    RUN(edit);
    RUN(budget);
    RUN(cancel);
    RUN(device_lost);
    RUN(no_memory);
    RUN(luid);
    RUN(imports);
    TEST_END();
}
#else
#include "without_cuda.h"
#endif
