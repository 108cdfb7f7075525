// Wrong arguments one by one: each has its own result and its own text.
#include "engine_fixture.h"

// ---- Arguments ------------------------------------------------------------------------------------------------------

TEST(engine_descs_are_checked_member_by_member)
{
    int counter = 0;
    const uint8_t id[16] = {0};
    sumi_engine* engine;
    memset(&s_host, 0, sizeof s_host);
    const sumi_engine_desc good = host_desc(&s_host);
    char texts[40][512];
    int text_count = 0;
#define BAD(change, result)                                                                                            \
    do {                                                                                                               \
        sumi_engine_desc d = good;                                                                                     \
        d.change;                                                                                                      \
        s_host.log[0] = '\0';                                                                                          \
        engine = (sumi_engine*)(void*)&counter;                                                                        \
        if (sumi_engine_create(&d, &engine) != (result)) {                                                             \
            t_errors++;                                                                                                \
            printf("  " #change ": %s\n", s_host.log);                                                                 \
        }                                                                                                              \
        CHECK(engine == NULL);                                                                                         \
        if ((result) != SUMI_DESC_NOT_INITIALIZED) CHECK(s_host.log[0] != '\0' && s_host.log_result == (result));      \
        for (int t = 0; t < text_count; t++) CHECK(s_host.log[0] == '\0' || strcmp(texts[t], s_host.log) != 0);        \
        snprintf(texts[text_count++], 512, "%s", s_host.log);                                                          \
    } while (0)
    BAD(cookie = 0, SUMI_DESC_NOT_INITIALIZED);
    BAD(backend = (sumi_backend)9, SUMI_INVALID_ARGUMENT);
    BAD(cuda.ordinal = 0, SUMI_NOT_SUPPORTED);
    BAD(cuda.uuid = id, SUMI_NOT_SUPPORTED);
    BAD(cuda.luid = id, SUMI_NOT_SUPPORTED);
    BAD(cuda.context = (struct CUctx_st*)(void*)&counter, SUMI_NOT_SUPPORTED);
    BAD(cuda.stream = (struct CUstream_st*)(void*)&counter, SUMI_NOT_SUPPORTED);
    const sumi_allocator half = {host_allocate, NULL, &s_host};
    BAD(allocator = &half, SUMI_INVALID_ARGUMENT);
    const sumi_device_allocator device = {
        (uint64_t(*)(size_t, size_t, sumi_memory_kind, void*))(void (*)(void))host_allocate,
        (void (*)(uint64_t, size_t, sumi_memory_kind, void*))(void (*)(void))host_release, NULL};
    const sumi_device_allocator half_device = {NULL, device.release, NULL};
    BAD(device_allocator = &half_device, SUMI_INVALID_ARGUMENT);
    BAD(device_allocator = &device, SUMI_NOT_SUPPORTED);
    const sumi_files half_files = {.open = archive_open};
    BAD(files = &half_files, SUMI_INVALID_ARGUMENT);
    const sumi_tasks half_tasks = {.begin = begin_task}, no_workers = {0, begin_task, finish_task, NULL},
                     no_functions = {.worker_count = 4};
    BAD(tasks = &half_tasks, SUMI_INVALID_ARGUMENT);
    BAD(tasks = &no_workers, SUMI_INVALID_ARGUMENT);
    BAD(tasks = &no_functions, SUMI_INVALID_ARGUMENT);
    BAD(pump = (sumi_pump)2, SUMI_INVALID_ARGUMENT);
    BAD(job_capacity = 0, SUMI_INVALID_ARGUMENT);
    BAD(job_capacity = 4097, SUMI_INVALID_ARGUMENT);
    BAD(cpu_thread_count = -1, SUMI_INVALID_ARGUMENT);
#undef BAD
    CHECK_NUMBER(sumi_engine_create(NULL, &engine), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_engine_create(&good, NULL), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(s_host.live, 0);
    sumi_engine_desc most = good;
    most.job_capacity = 4096;
    most.backend = SUMI_BACKEND_CPU;
    CHECK_NUMBER(sumi_engine_create(&most, &engine), SUMI_OK);
    CHECK_TEXT(sumi_engine_get_info(engine).backend, "cpu");
    CHECK_NUMBER(sumi_engine_get_info(NULL).job_count, 0);
    close_engine(engine);
    // A GPU that is not there is said to be missing when it was asked for, and passed over otherwise.
    sumi_engine_desc cuda = good;
    cuda.backend = SUMI_BACKEND_CUDA;
    sumi_result result = sumi_engine_create(&cuda, &engine);
    if (result == SUMI_OK) {
        CHECK_TEXT(sumi_engine_get_info(engine).backend, "cuda");
        sumi_engine_destroy(engine);
        return;
    }
    CHECK(result == SUMI_NO_DEVICE || result == SUMI_NOT_SUPPORTED || result == SUMI_DRIVER_TOO_OLD
          || result == SUMI_DEVICE_UNSUPPORTED);
    CHECK(engine == NULL && s_host.log[0] != '\0' && s_host.log_result == result);
    CHECK_NUMBER(s_host.live, 0);
    cuda.backend = SUMI_BACKEND_AUTO;
    CHECK_NUMBER(sumi_engine_create(&cuda, &engine), SUMI_OK);
    CHECK_TEXT(sumi_engine_get_info(engine).backend, "cpu");
    close_engine(engine);
}

TEST(model_and_object_descs_are_checked)
{
    OPEN(engine, model);
    sumi_engine_desc ed = sumi_engine_defaults();
    ed.backend = SUMI_BACKEND_CPU;
    sumi_engine* second = NULL;
    CHECK_NUMBER(sumi_engine_create(&ed, &second), SUMI_OK);
    sumi_job job;
#define BAD(type, defaults, submit, setup, change, result)                                                             \
    do {                                                                                                               \
        type d = defaults;                                                                                             \
        setup;                                                                                                         \
        change;                                                                                                        \
        s_host.log[0] = '\0';                                                                                          \
        job.id = 5;                                                                                                    \
        if (submit(engine, &d, &job) != (result)) {                                                                    \
            t_errors++;                                                                                                \
            printf("  " #change ": %s\n", s_host.log);                                                                 \
        }                                                                                                              \
        CHECK(job.id == 0 && s_host.log[0] != '\0');                                                                   \
    } while (0)
#define BAD_MODEL(change, result)                                                                                      \
    BAD(sumi_model_desc, sumi_model_defaults(), sumi_submit_model, d.path = MODEL_PATH, change, result)
    BAD_MODEL(d.cookie = 1, SUMI_DESC_NOT_INITIALIZED);
    BAD_MODEL(d.path = NULL, SUMI_INVALID_ARGUMENT);
    BAD_MODEL((d.path = NULL, d.transformer_path = "x"), SUMI_INVALID_ARGUMENT);
    BAD_MODEL((d.path = NULL, d.transformer_path = "x", d.vae_path = "y"), SUMI_INVALID_ARGUMENT);
    BAD_MODEL(d.weights = SUMI_WEIGHTS_BF16, SUMI_NOT_SUPPORTED);
    BAD_MODEL(d.weights = SUMI_WEIGHTS_FP8, SUMI_NOT_SUPPORTED);
    BAD_MODEL(d.weights = SUMI_WEIGHTS_INT8, SUMI_NOT_SUPPORTED);
    BAD_MODEL(d.weights = SUMI_WEIGHTS_INT4, SUMI_NOT_SUPPORTED);
    BAD_MODEL(d.weights = (sumi_weight_format)6, SUMI_INVALID_ARGUMENT);
    BAD_MODEL(d.text_weights = SUMI_WEIGHTS_BF16, SUMI_NOT_SUPPORTED);
    BAD_MODEL(d.text_weights = SUMI_WEIGHTS_FP8, SUMI_NOT_SUPPORTED);
    BAD_MODEL(d.text_weights = SUMI_WEIGHTS_INT8, SUMI_NOT_SUPPORTED);
    BAD_MODEL(d.text_weights = SUMI_WEIGHTS_INT4, SUMI_NOT_SUPPORTED);
    BAD_MODEL(d.text_weights = (sumi_weight_format)6, SUMI_INVALID_ARGUMENT);
    BAD_MODEL(d.attention = SUMI_ATTENTION_BF16, SUMI_NOT_SUPPORTED);
    BAD_MODEL(d.attention = SUMI_ATTENTION_8BIT, SUMI_NOT_SUPPORTED);
    BAD_MODEL(d.attention = (sumi_attention_format)3, SUMI_INVALID_ARGUMENT);
#define BAD_PROMPT(change, result)                                                                                     \
    BAD(sumi_prompt_desc, sumi_prompt_defaults(model), sumi_submit_prompt, d.text = "x", change, result)
    uint8_t grey[256] = {0};
    sumi_pixels pixels = {grey, 16, 16, 0, 1};
    BAD_PROMPT(d.cookie = 1, SUMI_DESC_NOT_INITIALIZED);
    BAD_PROMPT(d.model = NULL, SUMI_INVALID_ARGUMENT);
    BAD_PROMPT(d.text = NULL, SUMI_INVALID_ARGUMENT);
    BAD_PROMPT(d.references = &pixels, SUMI_NOT_SUPPORTED);
    BAD_PROMPT(d.reference_count = 1, SUMI_NOT_SUPPORTED);
#define BAD_LORA(change, result)                                                                                       \
    BAD(sumi_lora_desc, sumi_lora_defaults(model), sumi_submit_lora, d.path = "x", change, result)
    BAD_LORA(d.cookie = 1, SUMI_DESC_NOT_INITIALIZED);
    BAD_LORA(d.model = NULL, SUMI_INVALID_ARGUMENT);
    CHECK_TEXT(s_host.log, "model is NULL: an adapter is read for an opened model");
    BAD_LORA(d.path = NULL, SUMI_INVALID_ARGUMENT);
    CHECK_TEXT(s_host.log, "path is NULL: say where an adapter is");
#define BAD_CONTROL(change, result)                                                                                    \
    BAD(sumi_control_desc, sumi_control_defaults(model), sumi_submit_control, d.path = "x", change, result)
    BAD_CONTROL(d.cookie = 1, SUMI_DESC_NOT_INITIALIZED);
    BAD_CONTROL(d.model = NULL, SUMI_INVALID_ARGUMENT);
    CHECK_TEXT(s_host.log, "model is NULL: a control net is read for an opened model");
    BAD_CONTROL(d.path = NULL, SUMI_INVALID_ARGUMENT);
    CHECK_TEXT(s_host.log, "path is NULL: say where a control net is");
#define BAD_ENCODE(change, result)                                                                                     \
    BAD(sumi_encode_desc, sumi_encode_defaults(model), sumi_submit_encode,                                             \
        (d.image = &pixels, d.width = d.height = 32), change, result)
    sumi_pixels narrow = {grey, 16, 16, 4, 1}, five = {grey, 4, 4, 0, 5}, empty = {grey, 0, 16, 0, 1},
                nothing = {NULL, 16, 16, 0, 1}, huge = {grey, 1 << 30, 16, 0, 4};
    BAD_ENCODE(d.cookie = 1, SUMI_DESC_NOT_INITIALIZED);
    BAD_ENCODE(d.model = NULL, SUMI_INVALID_ARGUMENT);
    BAD_ENCODE(d.image = NULL, SUMI_INVALID_ARGUMENT);
    BAD_ENCODE(d.image = &narrow, SUMI_INVALID_ARGUMENT);
    BAD_ENCODE(d.image = &five, SUMI_INVALID_ARGUMENT);
    BAD_ENCODE(d.image = &empty, SUMI_INVALID_ARGUMENT);
    BAD_ENCODE(d.image = &nothing, SUMI_INVALID_ARGUMENT);
    BAD_ENCODE(d.image = &huge, SUMI_INVALID_ARGUMENT);
    BAD_ENCODE(d.width = 24, SUMI_INVALID_ARGUMENT);
    BAD_ENCODE(d.height = 0, SUMI_INVALID_ARGUMENT);
    BAD_ENCODE(d.posterior = (sumi_posterior)2, SUMI_INVALID_ARGUMENT);
#undef BAD
    // another engine's model
    sumi_image_desc desc = small_image(model, &s_item);
    CHECK_NUMBER(sumi_submit_images(second, &desc, &job), SUMI_INVALID_ARGUMENT);
    const sumi_lora_desc lora_desc = sumi_lora_defaults(model);
    CHECK_NUMBER(sumi_submit_lora(second, &lora_desc, &job), SUMI_INVALID_ARGUMENT);
    // NULLs
    sumi_memory memory;
    CHECK_NUMBER(sumi_submit_model(engine, NULL, &job), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_submit_prompt(engine, NULL, &job), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_submit_lora(engine, NULL, &job), SUMI_INVALID_ARGUMENT);
    CHECK_TEXT(s_host.log, "sumi_submit_lora: desc or out_job is NULL");
    CHECK_NUMBER(sumi_submit_lora(engine, &lora_desc, NULL), SUMI_INVALID_ARGUMENT);
    job.id = 5;
    CHECK_NUMBER(sumi_submit_lora(NULL, &lora_desc, &job), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(job.id, 0);
    CHECK_NUMBER(sumi_submit_control(engine, NULL, &job), SUMI_INVALID_ARGUMENT);
    CHECK_TEXT(s_host.log, "sumi_submit_control: desc or out_job is NULL");
    CHECK_NUMBER(sumi_submit_images(engine, NULL, &job), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_submit_encode(engine, NULL, &job), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_submit_images(engine, &desc, NULL), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_submit_images(NULL, &desc, &job), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_image_memory(engine, &desc, NULL), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_image_memory(engine, NULL, &memory), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_fetch_model(engine, job, NULL), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_fetch_prompt(engine, job, NULL), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_fetch_lora(engine, job, NULL), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_engine_get_info(engine).job_count, 0);
    sumi_engine_destroy(second);
    close_engine(engine);
}

// The family is known once the files are open, so the job fails, and says which member.
TEST(components_that_a_family_lacks_are_refused)
{
    OPEN(engine, model);
    sumi_model_desc base = sumi_model_defaults();
    base.path = MODEL_PATH;
    sumi_model_desc descs[4] = {base, base, base, base};
    descs[0].text_encoder_2_path = "tests/golden/newbie/model/clip_model";
    descs[1].tokenizer_2_path = MODEL_PATH "/tokenizer";
    descs[2].vision_path = "tests/golden/qwen-image/model/text_encoder";
    descs[3].processor_path = "tests/golden/qwen-image/model-edit/processor";
    static const char* const s_members[4] = {
        "text_encoder_2_path:", "tokenizer_2_path:", "vision_path:", "processor_path:"};
    for (int i = 0; i < 4; i++) {
        sumi_job job;
        CHECK_NUMBER(sumi_submit_model(engine, &descs[i], &job), SUMI_OK);
        CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
        CHECK(strncmp(sumi_job_poll(engine, job).message, s_members[i], strlen(s_members[i])) == 0);
        sumi_model* other = model;
        CHECK_NUMBER(sumi_fetch_model(engine, job, &other), SUMI_NOT_SUPPORTED);
        CHECK(other == NULL);
        CHECK(strncmp(s_host.log, s_members[i], strlen(s_members[i])) == 0);
    }
    close_engine(engine);
}

TEST(image_descs_are_checked_member_by_member)
{
    OPEN(engine, model);
    sumi_prompt* prompt = encode_prompt(engine, model, "x");
    sumi_job job;
    uint8_t grey[32 * 32 * 3] = {0};
    sumi_pixels pixels = {grey, 32, 32, 0, 3}, five = {grey, 4, 4, 0, 5};
    float values[16 * 16] = {0}, not_finite[16 * 16] = {0};
    not_finite[200] = INFINITY;
    const float rising[3] = {0.5f, 0.9f, 0.0f}, good_sigmas[3] = {1.0f, 0.5f, 0.0f};
    sumi_image_item neither = {.seed = 1}, both = {.text = "x", .prompt = prompt},
                    negatives = {.text = "x", .negative_text = "y", .negative_prompt = prompt};
    sumi_lora_use no_lora = {.lora = NULL, .scale = 1.0f};
    sumi_target target;
    char texts[80][512];
    int text_count = 0;
#define BAD(change, result)                                                                                            \
    do {                                                                                                               \
        sumi_image_desc d = small_image(model, &s_item);                                                               \
        target = (sumi_target){.format = SUMI_FORMAT_RGBA8};                                                           \
        change;                                                                                                        \
        s_host.log[0] = '\0';                                                                                          \
        job.id = 5;                                                                                                    \
        if (sumi_submit_images(engine, &d, &job) != (result)) {                                                        \
            t_errors++;                                                                                                \
            printf("  " #change ": %s\n", s_host.log);                                                                 \
        }                                                                                                              \
        CHECK(job.id == 0 && s_host.log[0] != '\0' && s_host.log_result == (result));                                  \
        for (int t = 0; t < text_count; t++) {                                                                         \
            if (strcmp(texts[t], s_host.log) == 0) {                                                                   \
                t_errors++;                                                                                            \
                printf("  " #change ": the text of another member: %s\n", s_host.log);                                 \
            }                                                                                                          \
        }                                                                                                              \
        snprintf(texts[text_count++], 512, "%s", s_host.log);                                                          \
        sumi_memory memory;                                                                                            \
        CHECK(sumi_image_memory(engine, &d, &memory) == (result));                                                     \
    } while (0)
    BAD(d.cookie = 0, SUMI_DESC_NOT_INITIALIZED);
    BAD(d.model = NULL, SUMI_INVALID_ARGUMENT);
    BAD(d.items = NULL, SUMI_INVALID_ARGUMENT);
    BAD(d.item_count = 0, SUMI_INVALID_ARGUMENT);
    BAD(d.item_count = 65, SUMI_INVALID_ARGUMENT);
    BAD(d.items = &neither, SUMI_INVALID_ARGUMENT);
    BAD(d.items = &both, SUMI_INVALID_ARGUMENT);
    BAD(d.items = &negatives, SUMI_INVALID_ARGUMENT);
    BAD(d.width = 40, SUMI_INVALID_ARGUMENT);
    BAD(d.width = 0, SUMI_INVALID_ARGUMENT);
    BAD(d.height = -16, SUMI_INVALID_ARGUMENT);
    BAD(d.height = 1 << 20, SUMI_INVALID_ARGUMENT);
    BAD(d.step_count = 0, SUMI_INVALID_ARGUMENT);
    BAD(d.step_count = 1001, SUMI_INVALID_ARGUMENT);
    BAD(d.guidance.scale = -1.0f, SUMI_INVALID_ARGUMENT);
    BAD(d.guidance.scale = NAN, SUMI_INVALID_ARGUMENT);
    BAD(d.guidance.begin = 2.0f, SUMI_INVALID_ARGUMENT);
    BAD(d.guidance.end = -0.5f, SUMI_INVALID_ARGUMENT);
    BAD((d.guidance.begin = 0.5f, d.guidance.end = 0.25f), SUMI_INVALID_ARGUMENT);
    BAD(d.guidance.norm_limit = -1.0f, SUMI_INVALID_ARGUMENT);
    BAD(d.guidance.rule = (sumi_guidance_rule)4, SUMI_INVALID_ARGUMENT);
    BAD(d.guidance.rule = (sumi_guidance_rule)-1, SUMI_INVALID_ARGUMENT);
    BAD(d.guidance.rule = SUMI_GUIDANCE_NORM_LIMIT, SUMI_INVALID_ARGUMENT);
    BAD((d.guidance.rule = SUMI_GUIDANCE_PLAIN, d.guidance.norm_limit = 1.0f), SUMI_INVALID_ARGUMENT);
    BAD((d.guidance.rule = SUMI_GUIDANCE_NORM_RESCALE, d.guidance.norm_limit = 0.5f), SUMI_INVALID_ARGUMENT);
    BAD(d.solver = (sumi_solver)7, SUMI_INVALID_ARGUMENT);
    BAD(d.solver = (sumi_solver)-1, SUMI_INVALID_ARGUMENT);
    BAD(d.shift = -3.0f, SUMI_INVALID_ARGUMENT);
    BAD(d.shift = 1e30f, SUMI_INVALID_ARGUMENT);
    CHECK(strstr(s_host.log, "10000") != NULL);
    BAD(d.sigmas = rising, SUMI_INVALID_ARGUMENT);
    BAD((d.sigmas = good_sigmas, d.deadline_ms = 5), SUMI_INVALID_ARGUMENT);
    BAD(d.noise.source = (sumi_noise_source)3, SUMI_INVALID_ARGUMENT);
    BAD(d.noise.multiprocessors = 0, SUMI_INVALID_ARGUMENT);
    BAD(d.noise.threads_per_multiprocessor = 0, SUMI_INVALID_ARGUMENT);
    BAD(d.noise.source = SUMI_NOISE_GIVEN, SUMI_INVALID_ARGUMENT);
    BAD(d.noise.values = values, SUMI_INVALID_ARGUMENT);
    BAD((d.start.image = &pixels, d.start.latents = values), SUMI_INVALID_ARGUMENT);
    BAD(d.start.image = &five, SUMI_INVALID_ARGUMENT);
    BAD((d.start.image = &pixels, d.start.posterior = (sumi_posterior)2), SUMI_INVALID_ARGUMENT);
    BAD(d.start.noise_values = values, SUMI_INVALID_ARGUMENT);
    BAD(d.start.mask = &pixels, SUMI_INVALID_ARGUMENT);
    BAD((d.start.latents = values, d.start.mask = &five), SUMI_INVALID_ARGUMENT);
    BAD(d.start.strength = 1.5f, SUMI_INVALID_ARGUMENT);
    BAD((d.start.latents = values, d.start.strength = 0.0f), SUMI_INVALID_ARGUMENT);
    BAD((d.start.latents = values, d.start.strength = 1e-7f), SUMI_INVALID_ARGUMENT);
    BAD((d.noise.source = SUMI_NOISE_GIVEN, d.noise.values = not_finite), SUMI_INVALID_ARGUMENT);
    BAD(d.start.latents = not_finite, SUMI_INVALID_ARGUMENT);
    BAD((d.start.image = &pixels, d.start.noise_values = not_finite), SUMI_INVALID_ARGUMENT);
    CHECK(strstr(s_host.log, "start.noise_values[200]") != NULL);
    BAD(d.references = &pixels, SUMI_NOT_SUPPORTED);
    BAD(d.reference_count = 1, SUMI_NOT_SUPPORTED);
    BAD(d.lora_count = -1, SUMI_INVALID_ARGUMENT);
    BAD(d.lora_count = 1, SUMI_INVALID_ARGUMENT);
    BAD((d.lora_count = 1, d.loras = &no_lora), SUMI_INVALID_ARGUMENT);
    BAD(d.preview_every = -1, SUMI_INVALID_ARGUMENT);
    BAD((target.format = (sumi_format)5, d.targets = &target), SUMI_INVALID_ARGUMENT);
    BAD((target.device_address = 5, d.targets = &target), SUMI_NOT_SUPPORTED);
    BAD((target.external = (struct sumi_external*)(void*)&target, d.targets = &target), SUMI_NOT_SUPPORTED);
    BAD((target.wait.semaphore = (struct sumi_external*)(void*)&target, d.targets = &target), SUMI_INVALID_ARGUMENT);
    BAD((target.signal.semaphore = (struct sumi_external*)(void*)&target, d.targets = &target), SUMI_INVALID_ARGUMENT);
    BAD((target.row_bytes = 500, d.targets = &target), SUMI_INVALID_ARGUMENT);
    BAD((target.host_memory = grey, target.row_bytes = 127, d.targets = &target), SUMI_INVALID_ARGUMENT);
#undef BAD
    sumi_encode_desc encoding = sumi_encode_defaults(model);
    encoding.image = &pixels;
    encoding.width = encoding.height = 32;
    encoding.noise_values = not_finite;
    CHECK_NUMBER(sumi_submit_encode(engine, &encoding, &job), SUMI_INVALID_ARGUMENT);
    CHECK(strstr(s_host.log, "noise_values[200]") != NULL);
    sumi_lora* lora = read_lora(engine, model, "lora_peft.safetensors");
    sumi_lora_use use = {.lora = lora, .scale = NAN};
    sumi_image_desc d = small_image(model, &s_item);
    d.loras = &use;
    d.lora_count = 1;
    CHECK_NUMBER(sumi_submit_images(engine, &d, &job), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_engine_get_info(engine).job_count, 0);
    close_engine(engine);
}

static void note_unused(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    if (level == SUMI_LOG_WARNING && result == SUMI_OK && strstr(text, "is not used") != NULL
        && strstr(text, "items[1].negative_text") != NULL)
        ++*(int*)user_data;
}

TEST(a_negative_prompt_without_guidance_is_reported)
{
    memset(&s_host, 0, sizeof s_host);
    int told = 0;
    sumi_engine_desc ed = host_desc(&s_host);
    ed.log = (sumi_log){note_unused, &told};
    sumi_model* model = NULL;
    sumi_engine* engine = open_engine(&ed, &model);
    CHECK(engine != NULL);
    if (engine == NULL) return;
    const sumi_image_item items[2] = {{.text = "a fox", .negative_text = ""},
                                      {.text = "a fox", .negative_text = "grey"}};
    sumi_image_desc desc = small_image(model, items);
    desc.item_count = 2;
    sumi_job job;
    for (int guided = 0; guided < 2; guided++) {
        desc.guidance.scale = sumi_model_get_info(model).guidance_off + (guided == 1 ? 2.0f : 0.0f);
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        sumi_job_discard(engine, job);
        CHECK_NUMBER(told, 1); // without guidance, and once
    }
    close_engine(engine);
}

static void keep_origin(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    if (level == SUMI_LOG_DEBUG && result == SUMI_FILE_NOT_FOUND) snprintf(user_data, 128, "%s", text);
}

TEST(the_log_names_the_source_line_that_found_a_failure)
{
    char origin[128] = "";
    sumi_engine_desc ed = host_desc(&s_host);
    ed.log = (sumi_log){keep_origin, origin};
    sumi_engine* engine = NULL;
    CHECK_NUMBER(sumi_engine_create(&ed, &engine), SUMI_OK);
    sumi_model* model = NULL;
    CHECK_NUMBER(sumi_open_model(engine, "no such folder", &model), SUMI_FILE_NOT_FOUND);
    int line = 0;
    char file[64] = "";
    CHECK(sscanf(origin, "the failure was found in %63[^,], line %d", file, &line) == 2 && line > 0);
    CHECK_TEXT(file, "files/checkpoint.c"); // the last folder and the name, whatever path the compiler was given
    sumi_engine_destroy(engine);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(engine_descs_are_checked_member_by_member);
    RUN(model_and_object_descs_are_checked);
    RUN(components_that_a_family_lacks_are_refused);
    RUN(image_descs_are_checked_member_by_member);
    RUN(a_negative_prompt_without_guidance_is_reported);
    RUN(the_log_names_the_source_line_that_found_a_failure);
    TEST_END();
}
