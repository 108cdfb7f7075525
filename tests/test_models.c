// Models: opening checkpoints in steps, every naming scheme, shape checks, adapters, and what plans promise (same bits
// for a batch, tiles, sections).
// The numbers of every stage are golden_run's business; here is what golden data does not show.
#include "cpu/cpu.h"
#include "failing.h"
#include "files/safetensors_write.h"
#include "models/network_state.h"
#include "models/pipeline.h"
#include "models/scheduler.h"
#include "plan/validate.h"
#include "sampling/schedule.h"
#include "system.h"
#include "test.h"
#include <stdatomic.h>

#define GOLDEN "tests/golden/z-image/"

static sumi_heap t_heap;
static sumi_workers* t_workers;
static sumi_runner* t_runner;

// ---- Helpers --------------------------------------------------------------------------------------------------------

static sumi_result open_all(sumi_heap* heap, const sumi_network_desc* desc, sumi_error* error, sumi_network** out)
{
    sumi_result result = sumi_network_open_begin(heap, NULL, desc, error, out);
    float progress;
    for (bool done = false; result == SUMI_OK && !done;)
        result = sumi_network_open_step(*out, 1000, &done, &progress, error);
    if (result != SUMI_OK) {
        sumi_network_close(*out);
        *out = NULL;
    }
    return result;
}

static sumi_network* open_path(const char* path)
{
    sumi_error error = {0};
    sumi_network* network = NULL;
    if (open_all(&t_heap, &(sumi_network_desc){.path = path}, &error, &network) != SUMI_OK)
        printf("  %s\n", error.text);
    return network;
}

static char t_folder[192]; // scratch files of this run
static const char* scratch(const char* name)
{
    static char path[8][256];
    static int next;
    next = (next + 1) % 8;
    if (t_folder[0] == 0) {
        if (!system_make_scratch(t_folder, sizeof t_folder, "sumi-models")) t_folder[0] = 0;
    }
    snprintf(path[next], sizeof path[next], "%s/%s", t_folder, name);
    return path[next];
}

static void write_file(const char* path, const void* data, size_t bytes)
{
    FILE* file = fopen(path, "wb");
    if (file != NULL) {
        fwrite(data, 1, bytes, file);
        fclose(file);
    }
}

static void copy_file(const char* from, const char* to)
{
    FILE* file = fopen(from, "rb");
    if (file == NULL) return;
    static char buffer[1 << 20];
    size_t bytes = fread(buffer, 1, sizeof buffer, file);
    fclose(file);
    write_file(to, buffer, bytes);
}

static void write_tensors(const char* path, const sumi_tensor* tensors, size_t count, const sumi_metadata* metadata,
                          size_t metadata_count)
{
    uint64_t bytes = sumi_safetensors_write(tensors, count, metadata, metadata_count, NULL, 0);
    void* image = malloc(bytes);
    sumi_safetensors_write(tensors, count, metadata, metadata_count, image, bytes);
    write_file(path, image, bytes);
    free(image);
}

// All tensors of a folder or file, to be written again under other names or shapes.
static bool read_tensors(sumi_tensor_set* set, const char* path, const char* stem)
{
    sumi_error error = {0};
    sumi_tensor_set_init(set, &t_heap, NULL);
    sumi_result result =
        stem != NULL ? sumi_tensor_set_open_folder(set, path, stem, &error) : sumi_tensor_set_open(set, path, &error);
    if (result != SUMI_OK) printf("  %s\n", error.text);
    return result == SUMI_OK;
}

typedef struct job {
    sumi_pipeline_request r;
    sumi_solver_row rows[64];
    float times[64];
    bool guided[64];
    const int32_t (*ids)[512];
    const float* noise;
    const uint8_t* pixels;
    const float* mask;
    const float* eps;
} job;

// Runs a plan in slices of at most max_us; returns the latents (and the picture's bytes), to be freed.
static float* run_job(const sumi_network* network, const job* j, uint32_t max_us, uint8_t** out_bytes,
                      sumi_error* error)
{
    sumi_plan plan;
    sumi_pipeline p;
    float* x = NULL;
    sumi_plan_begin(&plan, &t_heap, 4);
    const sumi_runner_functions* f = t_runner->functions;
    sumi_rates rates = {1e3, 1e3, 1.0};
    sumi_result result = sumi_pipeline_write(network, &j->r, &plan, &p, error);
    if (result == SUMI_OK) result = sumi_plan_slice(&plan, &rates, max_us, error);
    if (result == SUMI_OK) result = sumi_plan_validate(&plan, error);
    if (result == SUMI_OK) result = f->reserve(t_runner, &plan, error);
    if (result == SUMI_OK) {
        f->start(t_runner, &plan);
        for (int32_t i = 0; i < j->r.prompt_count; i++)
            if (p.ids[i][0].value.id != 0)
                f->write(t_runner, &plan, p.ids[i][0].value, (uint64_t)p.ids[i][0].row * 4, j->ids[i],
                         (uint64_t)p.ids[i][0].count * 4);
        uint64_t bytes = (uint64_t)sumi_plan_info(&plan, p.x)->rows * (uint64_t)sumi_plan_info(&plan, p.x)->cols * 4;
        f->write(t_runner, &plan, p.times, 0, j->times, (uint64_t)j->r.evaluation_count * 4);
        f->write(t_runner, &plan, p.solver, 0, j->rows, (uint64_t)j->r.evaluation_count * sizeof *j->rows);
        f->write(t_runner, &plan, p.noise.id != 0 ? p.noise : p.x, 0, j->noise, bytes);
        if (p.eps.id != 0) f->write(t_runner, &plan, p.eps, 0, j->eps, bytes);
        if (p.pixels.id != 0)
            f->write(t_runner, &plan, p.pixels, 0, j->pixels, (uint64_t)j->r.width * (uint64_t)j->r.height * 3);
        if (p.mask.id != 0)
            f->write(t_runner, &plan, p.mask, 0, j->mask, (uint64_t)sumi_plan_info(&plan, p.mask)->cols * 4);
    }
    for (size_t s = 0; s < plan.section_count && result == SUMI_OK; s++)
        for (int32_t k = 0; k < plan.sections[s].repeat; k++)
            for (int32_t i = plan.sections[s].slice_begin; i < plan.sections[s].slice_end && result == SUMI_OK; i++)
                result = f->run(t_runner, &plan, &plan.slices[i], plan.sections[s].first_counter + k, error);
    if (result == SUMI_OK) {
        const sumi_value_info* info = sumi_plan_info(&plan, p.x);
        x = malloc((size_t)info->rows * (size_t)info->cols * 4);
        f->read(t_runner, &plan, p.x, 0, x, (uint64_t)info->rows * (uint64_t)info->cols * 4);
        if (out_bytes != NULL && p.bytes.id != 0) {
            uint64_t bytes = (uint64_t)sumi_plan_info(&plan, p.bytes)->rows * 3;
            *out_bytes = malloc(bytes);
            f->read(t_runner, &plan, p.bytes, 0, *out_bytes, bytes);
        }
    }
    sumi_plan_end(&plan);
    return x;
}

static void fill(float* values, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (float)((double)(seed >> 8) / (1 << 24) * 4.0 - 2.0);
    }
}

static void set_schedule(job* j, const sumi_network* network, sumi_solver solver, int32_t steps, float guidance)
{
    float sigmas[33];
    CHECK_NUMBER(sumi_schedule_write(&sumi_network_get_info(network)->sigmas, 0, steps, sigmas, NULL), SUMI_OK);
    j->r.evaluation_count = sumi_solver_rows(solver, sigmas, steps, j->rows);
    for (int32_t e = 0; e < j->r.evaluation_count; e++) {
        j->times[e] = sumi_network_time(network, j->rows[e].sigma);
        j->rows[e].guidance = guidance;
        j->guided[e] = guidance > 0;
    }
    j->r.guided = guidance > 0 ? j->guided : NULL;
    sumi_pipeline_needs(j->rows, j->r.evaluation_count, &j->r.has_base, &j->r.has_history);
}

static double distance(const float* a, const float* b, size_t count)
{
    double difference = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)b[i] * b[i];
    }
    return sqrt(difference / (size > 0 ? size : 1));
}

// ---- Opening --------------------------------------------------------------------------------------------------------

TEST(network_opens_the_released_layout_and_says_what_it_is)
{
    sumi_network* network = open_path(GOLDEN "model");
    CHECK(network != NULL);
    if (network == NULL) return;
    const sumi_network_info* info = sumi_network_get_info(network);
    CHECK_TEXT(info->family, "z-image");
    CHECK_TEXT(info->variant, "turbo");
    CHECK_NUMBER(info->latent_channels, 16);
    CHECK_NUMBER(info->vae_factor, 8);
    CHECK_NUMBER(info->size_multiple, 16);
    CHECK_NUMBER(info->max_prompt_tokens, 512);
    CHECK_NUMBER(info->patch_size, 2);
    CHECK(info->has_text_encoder && info->has_vae_decoder && info->has_vae_encoder
          && info->presets[SUMI_PRESET_MODEL].guidance == info->guidance_off);
    CHECK(info->sigmas.kind == SUMI_SHIFT_STATIC && info->sigmas.shift == 3.0f);
    CHECK(info->weight_bytes > 100000 && info->preview != NULL);
    int32_t count;
    const sumi_weight* const* weights = sumi_network_weights(network, &count);
    for (int32_t i = 0; i < count; i++) CHECK_NUMBER(weights[i]->index, i);
    sumi_network_close(network);
}

static sumi_result read_scheduler(const char* path, sumi_sigma_rule* rule, sumi_error* error)
{
    sumi_file file = {0};
    sumi_result result = sumi_file_open(&file, &t_heap, NULL, path, error);
    if (result == SUMI_OK) result = sumi_scheduler_read(file.data, (size_t)file.bytes, path, rule, error);
    sumi_file_close(&file);
    return result;
}

TEST(schedulers_of_all_families_become_rules)
{
    sumi_error error = {0};
    sumi_sigma_rule rule = sumi_scheduler_defaults();
    CHECK_NUMBER(read_scheduler("tests/golden/qwen-image/model/scheduler/scheduler_config.json", &rule, &error),
                 SUMI_OK);
    CHECK(rule.kind == SUMI_SHIFT_DYNAMIC && rule.shift == 1.0f && rule.terminal == 0.02f
          && rule.grid == SUMI_GRID_EVEN);
    CHECK(rule.dynamic.base_shift == 0.5 && rule.dynamic.max_shift == 0.9 && rule.dynamic.base_tokens == 256
          && rule.dynamic.max_tokens == 8192 && rule.dynamic.curve == SUMI_CURVE_EXPONENTIAL);
    // an adapter's overrides over it: a shift of 3 for every size, no terminal
    CHECK_NUMBER(read_scheduler("tests/golden/qwen-image/scheduler_lightning.json", &rule, &error), SUMI_OK);
    CHECK(rule.kind == SUMI_SHIFT_DYNAMIC && rule.terminal == 0.0f);
    CHECK(rule.dynamic.base_shift == rule.dynamic.max_shift && rule.dynamic.max_tokens == 8192);
    float moving[9], still[9];
    CHECK_NUMBER(sumi_schedule_write(&rule, 6889, 8, moving, &error), SUMI_OK);
    CHECK_NUMBER(sumi_schedule_write(&(sumi_sigma_rule){.shift = 3.0f}, 0, 8, still, &error), SUMI_OK);
    for (int i = 0; i < 9; i++) CHECK_NEAR((double)moving[i], (double)still[i], 2e-7, 0);
    rule = sumi_scheduler_defaults();
    CHECK_NUMBER(read_scheduler("tests/golden/newbie/model/scheduler/scheduler_config.json", &rule, &error), SUMI_OK);
    CHECK(rule.kind == SUMI_SHIFT_STATIC && rule.shift == 6.0f && rule.terminal == 0.0f);
    rule = sumi_scheduler_defaults();
    CHECK_NUMBER(read_scheduler("tests/golden/z-image/model/scheduler/scheduler_config.json", &rule, &error), SUMI_OK);
    CHECK(rule.kind == SUMI_SHIFT_STATIC && rule.shift == 3.0f);
    CHECK_NUMBER(sumi_scheduler_read(NULL, 0, NULL, &rule, &error), SUMI_OK); // no file: as it was
    CHECK(rule.shift == 3.0f);
    CHECK_TEXT(error.text, "");
}

TEST(schedulers_that_are_not_these_are_refused)
{
    static const struct {
        const char *json, *says;
        sumi_result result;
    } cases[] = {
        {"{\"shift\": 2.5, \"time_shift_type\": null, \"unknown\": [1]}", "", SUMI_OK},
        {"{\"use_dynamic_shifting\": true, \"time_shift_type\": \"linear\"}", "", SUMI_OK},
        {"{\"_class_name\": \"EulerDiscreteScheduler\"}", "is a EulerDiscreteScheduler", SUMI_NOT_SUPPORTED},
        {"{\"time_shift_type\": \"quadratic\"}", "time_shift_type is \"quadratic\"", SUMI_NOT_SUPPORTED},
        {"{\"time_shift_type\": 3}", "file.json", SUMI_FILE_MALFORMED},
        {"{\"num_train_timesteps\": 500}", "num_train_timesteps is 500", SUMI_NOT_SUPPORTED},
        {"{\"invert_sigmas\": true}", "invert_sigmas", SUMI_NOT_SUPPORTED},
        {"{\"stochastic_sampling\": true}", "stochastic_sampling", SUMI_NOT_SUPPORTED},
        {"{\"use_karras_sigmas\": true}", "use_karras_sigmas", SUMI_NOT_SUPPORTED},
        {"{\"use_exponential_sigmas\": true}", "use_exponential_sigmas", SUMI_NOT_SUPPORTED},
        {"{\"use_beta_sigmas\": true}", "use_beta_sigmas", SUMI_NOT_SUPPORTED},
        {"{\"shift\": 0}", "shift is 0", SUMI_NOT_SUPPORTED},
        {"{\"shift\": \"3\"}", "file.json", SUMI_FILE_MALFORMED},
        {"{\"shift_terminal\": 1.5}", "terminal sigma is 1.5", SUMI_NOT_SUPPORTED},
        {"{\"use_dynamic_shifting\": true, \"max_image_seq_len\": 100}", "from 256 to 100", SUMI_NOT_SUPPORTED},
        {"{\"shift\": 3", "file.json", SUMI_FILE_MALFORMED},
        {"[]", "file.json", SUMI_FILE_MALFORMED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sumi_error error = {0};
        const sumi_sigma_rule before = sumi_scheduler_defaults();
        sumi_sigma_rule rule = before;
        CHECK_NUMBER(sumi_scheduler_read(cases[i].json, strlen(cases[i].json), "file.json", &rule, &error),
                     cases[i].result);
        CHECK(strstr(error.text, cases[i].says) != NULL);
        if (cases[i].result != SUMI_OK)
            CHECK(rule.kind == before.kind && rule.shift == before.shift && rule.terminal == before.terminal
                  && rule.dynamic.max_tokens == before.dynamic.max_tokens);
        if (i == 0) CHECK(rule.shift == 2.5f);
        if (i == 1) CHECK(rule.dynamic.curve == SUMI_CURVE_LINEAR && rule.kind == SUMI_SHIFT_DYNAMIC);
    }
}

TEST(presets_are_what_the_authors_say)
{
    for (int is_base = 0; is_base < 2; is_base++) {
        sumi_network_desc desc = {.path = is_base ? GOLDEN "model-base" : GOLDEN "model"};
        if (is_base) { // the folder of a scheduler alone
            desc.transformer_path = GOLDEN "model/transformer";
            desc.vae_path = GOLDEN "model/vae";
            desc.without_text_encoder = true;
        }
        sumi_error error = {0};
        sumi_network* network = NULL;
        CHECK_NUMBER(open_all(&t_heap, &desc, &error, &network), SUMI_OK);
        CHECK_TEXT(error.text, "");
        if (network == NULL) continue;
        const sumi_network_info* info = sumi_network_get_info(network);
        const sumi_preset_values* p = info->presets;
        CHECK_TEXT(info->variant, is_base ? "base" : "turbo");
        CHECK(info->sigmas.shift == (is_base ? 6.0f : 3.0f));
        CHECK(p[SUMI_PRESET_MODEL].step_count == (is_base ? 50 : 8));
        CHECK(p[SUMI_PRESET_QUALITY].guidance_norm_limit == (is_base ? 1.0f : 0.0f));
        CHECK(p[SUMI_PRESET_PREVIEW].solver == (is_base ? SUMI_SOLVER_DPMPP_2M : SUMI_SOLVER_EULER));
        CHECK(p[0].width == 1024 && p[1].width == 768 && p[2].width == 1024 && p[3].width == 1024);
        CHECK(p[1].step_count < p[2].step_count && p[2].step_count < p[3].step_count);
        for (int i = 0; i < SUMI_PRESET_COUNT; i++) {
            const bool is_fast = i == SUMI_PRESET_FAST; // without guidance, with the shift of the distilled model
            CHECK(p[i].height == p[i].width && p[i].guidance == (is_base && !is_fast ? 4.0f : 0.0f));
            CHECK(p[i].shift == (is_base && is_fast ? 3.0f : 0.0f));
            CHECK(p[i].guidance_begin == 0.0f && p[i].guidance_end == 1.0f && p[i].strength == 0.6f);
            CHECK(p[i].guidance_rule == SUMI_GUIDANCE_MODEL && p[i].negative_text == NULL);
        }
        CHECK(info->guidance_off == 0.0f && info->guidance_formula == SUMI_GUIDANCE_FROM_POSITIVE);
        CHECK(info->size_count == (is_base ? 3 : 1) && info->sizes[0].width == 1024);
        CHECK(!is_base || (info->sizes[1].width == 720 && info->sizes[1].height == 1280));
        sumi_network_close(network);
    }
}

TEST(network_opens_within_its_budget_and_can_be_cancelled_at_every_step)
{
    uint64_t held = atomic_load(&t_heap.held);
    int steps = 1000;
    for (int stop = 0; stop <= steps; stop++) {
        sumi_error error = {0};
        sumi_network* network = NULL;
        CHECK_NUMBER(
            sumi_network_open_begin(&t_heap, NULL, &(sumi_network_desc){.path = GOLDEN "model"}, &error, &network),
            SUMI_OK);
        float progress = 0, before = 0;
        bool done = false;
        int made = 0;
        while (made < stop && !done) {
            // a budget of nothing: one piece
            CHECK_NUMBER(sumi_network_open_step(network, 0, &done, &progress, &error), SUMI_OK);
            CHECK(progress >= before && progress <= 1.0f);
            before = progress;
            made++;
        }
        if (done) steps = made < steps ? made : steps;
        sumi_network_close(network);
        CHECK_NUMBER(atomic_load(&t_heap.held), held);
    }
    CHECK(steps > 6 && steps < 1000);
}

TEST(network_opens_parts_given_one_by_one)
{
    sumi_error error = {0};
    sumi_network* network = NULL;
    sumi_network_desc desc = {.transformer_path = GOLDEN "single-file/z_image_turbo_bf16.safetensors",
                              .text_encoder_path = GOLDEN "model/text_encoder",
                              .tokenizer_path = GOLDEN "model/tokenizer",
                              .vae_path = GOLDEN "model/vae"};
    CHECK_NUMBER(open_all(&t_heap, &desc, &error, &network), SUMI_OK);
    if (network == NULL) printf("  %s\n", error.text);
    CHECK(network != NULL && network->info.has_text_encoder && network->info.has_vae_decoder);
    sumi_network_close(network);
}

TEST(network_opens_a_transformer_alone_and_refuses_what_it_lacks)
{
    sumi_network* network = open_path(GOLDEN "single-file/z_image_turbo_bf16.safetensors");
    CHECK(network != NULL);
    if (network == NULL) return;
    CHECK(!network->info.has_text_encoder && !network->info.has_vae_decoder);
    sumi_error error = {0};
    int32_t ids[512], count;
    CHECK_NUMBER(sumi_network_tokenise(network, 0, "a", 1, ids, 512, &count, &error), SUMI_NOT_SUPPORTED);
    sumi_plan plan;
    sumi_pipeline p;
    sumi_pipeline_prompt prompt = {.token_count = {9}};
    sumi_pipeline_item item = {0, -1};
    sumi_pipeline_request r = {.prompts = &prompt,
                               .prompt_count = 1,
                               .items = &item,
                               .item_count = 1,
                               .width = 32,
                               .height = 32,
                               .evaluation_count = 1};
    sumi_plan_begin(&plan, &t_heap, 4);
    error = (sumi_error){0};
    CHECK_NUMBER(sumi_pipeline_write(network, &r, &plan, &p, &error), SUMI_NOT_SUPPORTED);
    CHECK(strstr(error.text, "text encoder") != NULL);
    prompt.given = true;
    error = (sumi_error){0};
    CHECK_NUMBER(sumi_pipeline_write(network, &r, &plan, &p, &error), SUMI_NOT_SUPPORTED);
    CHECK(strstr(error.text, "VAE decoder") != NULL);
    r.without_decode = true;
    error = (sumi_error){0};
    CHECK_NUMBER(sumi_pipeline_write(network, &r, &plan, &p, &error), SUMI_OK);
    sumi_plan_end(&plan);
    sumi_network_close(network);
}

TEST(network_refuses_what_is_not_a_model_it_runs)
{
    sumi_error error = {0};
    sumi_network* network = NULL;
    CHECK_NUMBER(open_all(&t_heap, &(sumi_network_desc){.path = GOLDEN "nothing here"}, &error, &network),
                 SUMI_FILE_NOT_FOUND);
    error = (sumi_error){0};
    CHECK_NUMBER(open_all(&t_heap, &(sumi_network_desc){.path = GOLDEN "model/vae"}, &error, &network),
                 SUMI_MODEL_UNKNOWN);
    CHECK(strstr(error.text, "vae") != NULL);
    error = (sumi_error){0};
    system_make_folder(scratch("alone"));
    sumi_tensor_set set;
    CHECK(read_tensors(&set, GOLDEN "model/text_encoder", "model"));
    write_tensors(scratch("alone/text.safetensors"), set.tensors, set.count, NULL, 0);
    sumi_tensor_set_close(&set);
    error = (sumi_error){0};
    sumi_network_desc desc = {.path = GOLDEN "single-file/z_image_turbo_bf16.safetensors",
                              .text_encoder_path = scratch("alone/text.safetensors")};
    CHECK_NUMBER(open_all(&t_heap, &desc, &error, &network), SUMI_FILE_NOT_FOUND); // no tokenizer
    CHECK(strstr(error.text, "tokenizer") != NULL);
    sumi_network_close(network);
    error = (sumi_error){0};
    desc = (sumi_network_desc){.path = GOLDEN "model", .vae_path = GOLDEN "single-file/z_image_turbo_bf16.safetensors"};
    CHECK_NUMBER(open_all(&t_heap, &desc, &error, &network), SUMI_MODEL_UNKNOWN);
    CHECK(strstr(error.text, "vae") != NULL);
    sumi_network_close(network);
}

// The same VAE under LDM names, with the config that says how many groups it has.
TEST(vae_with_ldm_names_decodes_and_encodes_the_same)
{
    system_make_folder(scratch("vae"));
    copy_file(GOLDEN "single-file/ae.safetensors", scratch("vae/ae.safetensors"));
    copy_file(GOLDEN "model/vae/config.json", scratch("vae/config.json"));
    sumi_error error = {0};
    sumi_network *network = open_path(GOLDEN "model"), *other = NULL;
    CHECK_NUMBER(open_all(&t_heap,
                          &(sumi_network_desc){.path = GOLDEN "model", .vae_path = scratch("vae/ae.safetensors")},
                          &error, &other),
                 SUMI_OK);
    if (network == NULL || other == NULL) {
        printf("  %s\n", error.text);
        sumi_network_close(network);
        return;
    }
    static float noise[16 * 4 * 6], eps[16 * 4 * 6];
    static uint8_t pixels[32 * 48 * 3];
    static int32_t ids[2][512];
    fill(noise, 16 * 4 * 6, 1);
    fill(eps, 16 * 4 * 6, 2);
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(i * 7);
    int32_t count;
    CHECK_NUMBER(sumi_network_tokenise(network, 0, "a cat", 5, ids[0], 512, &count, &error), SUMI_OK);
    sumi_pipeline_prompt prompt = {.token_count = {count}};
    sumi_pipeline_item item = {0, -1};
    job j = {.r = {.prompts = &prompt,
                   .prompt_count = 1,
                   .items = &item,
                   .item_count = 1,
                   .width = 48,
                   .height = 32,
                   .starts_from_image = true,
                   .samples_posterior = true},
             .ids = (const int32_t(*)[512])ids,
             .noise = noise,
             .pixels = pixels,
             .eps = eps};
    set_schedule(&j, network, SUMI_SOLVER_EULER, 2, 0);
    uint8_t *a = NULL, *b = NULL;
    float *x = run_job(network, &j, 0, &a, &error), *y = run_job(other, &j, 0, &b, &error);
    CHECK(x != NULL && y != NULL && memcmp(x, y, sizeof noise) == 0);
    CHECK(a != NULL && b != NULL && memcmp(a, b, 32 * 48 * 3) == 0);
    free(x);
    free(y);
    free(a);
    free(b);
    sumi_network_close(network);
    sumi_network_close(other);
}

// Group counts come from the config alone: without it a released VAE has 32, which this small one cannot have.
TEST(vae_without_config_is_held_to_the_released_groups)
{
    sumi_error error = {0};
    sumi_network* network = NULL;
    system_make_folder(scratch("bare"));
    copy_file(GOLDEN "single-file/ae.safetensors", scratch("bare/ae.safetensors"));
    sumi_network_desc desc = {.transformer_path = GOLDEN "model/transformer",
                              .vae_path = scratch("bare/ae.safetensors")};
    CHECK_NUMBER(open_all(&t_heap, &desc, &error, &network), SUMI_TENSOR_MISMATCH);
    CHECK(strstr(error.text, "groups") != NULL);
    sumi_network_close(network);
}

// llama.cpp's names for the text encoder, in a safetensors file: the reader of the names does not care.
TEST(text_encoder_opens_with_bare_and_with_llama_cpp_names)
{
    static const char* const names[][2] = {{"self_attn.q_proj", "attn_q"},
                                           {"self_attn.k_proj", "attn_k"},
                                           {"self_attn.v_proj", "attn_v"},
                                           {"self_attn.q_norm", "attn_q_norm"},
                                           {"self_attn.k_norm", "attn_k_norm"},
                                           {"self_attn.o_proj", "attn_output"},
                                           {"post_attention_layernorm", "ffn_norm"},
                                           {"input_layernorm", "attn_norm"},
                                           {"mlp.gate_proj", "ffn_gate"},
                                           {"mlp.up_proj", "ffn_up"},
                                           {"mlp.down_proj", "ffn_down"},
                                           {"model.embed_tokens", "token_embd"},
                                           {"model.norm", "output_norm"},
                                           {"model.layers.", "blk."}};
    sumi_tensor_set set;
    CHECK(read_tensors(&set, GOLDEN "model/text_encoder", "model"));
    for (int scheme = 0; scheme < 2; scheme++) {
        sumi_tensor* tensors = malloc(set.count * sizeof *tensors);
        char(*texts)[256] = malloc(set.count * sizeof *texts);
        for (size_t i = 0; i < set.count; i++) {
            tensors[i] = set.tensors[i];
            snprintf(texts[i], sizeof *texts, "%s", set.tensors[i].name);
            char next[256];
            if (scheme == 0) {
                CHECK(sumi_replace_text(texts[i], "model.", "", next, sizeof next));
                strcpy(texts[i], next);
            }
            for (size_t k = 0; scheme == 1 && k < sizeof names / sizeof *names; k++)
                if (sumi_replace_text(texts[i], names[k][0], names[k][1], next, sizeof next)) strcpy(texts[i], next);
            tensors[i].name = texts[i];
        }
        system_make_folder(scratch(scheme == 0 ? "bare_te" : "llama_te"));
        const char* path = scratch(scheme == 0 ? "bare_te/model.safetensors" : "llama_te/model.safetensors");
        write_tensors(path, tensors, set.count, NULL, 0);
        copy_file(GOLDEN "model/text_encoder/config.json",
                  scratch(scheme == 0 ? "bare_te/config.json" : "llama_te/config.json"));
        sumi_error error = {0};
        sumi_network* network = NULL;
        sumi_network_desc desc = {
            .path = GOLDEN "model", .text_encoder_path = path, .tokenizer_path = GOLDEN "model/tokenizer"};
        CHECK_NUMBER(open_all(&t_heap, &desc, &error, &network), SUMI_OK);
        if (network == NULL) printf("  %s\n", error.text);
        CHECK(network != NULL && network->info.has_text_encoder);
        sumi_network_close(network);
        free(tensors);
        free(texts);
    }
    sumi_tensor_set_close(&set);
}

// All parts in one file under ComfyUI's prefixes, without any config: sizes from the shapes, the rest from the release.
TEST(all_in_one_file_gives_the_bits_of_its_parts)
{
    sumi_tensor_set transformer, text;
    CHECK(read_tensors(&transformer, GOLDEN "single-file/z_image_turbo_bf16.safetensors", NULL)
          && read_tensors(&text, GOLDEN "model/text_encoder", "model"));
    size_t count = transformer.count + text.count;
    sumi_tensor* tensors = malloc(count * sizeof *tensors);
    char(*names)[256] = malloc(count * sizeof *names);
    for (size_t i = 0; i < count; i++) {
        bool first = i < transformer.count;
        tensors[i] = first ? transformer.tensors[i] : text.tensors[i - transformer.count];
        snprintf(names[i], sizeof *names, "%s%s",
                 first ? "model.diffusion_model." : "text_encoders.qwen3_4b.transformer.", tensors[i].name);
        tensors[i].name = names[i];
    }
    write_tensors(scratch("all.safetensors"), tensors, count, NULL, 0);
    free(tensors);
    free(names);
    sumi_tensor_set_close(&transformer);
    sumi_tensor_set_close(&text);
    sumi_error error = {0};
    sumi_network *one = NULL, *parts = NULL;
    sumi_network_desc all = {.path = scratch("all.safetensors"), .tokenizer_path = GOLDEN "model/tokenizer"};
    sumi_network_desc single = {.transformer_path = GOLDEN "single-file/z_image_turbo_bf16.safetensors",
                                .text_encoder_path = GOLDEN "model/text_encoder"};
    CHECK_NUMBER(open_all(&t_heap, &all, &error, &one), SUMI_OK);
    CHECK_NUMBER(open_all(&t_heap, &single, &error, &parts), SUMI_OK);
    if (one != NULL && parts != NULL) {
        static float noise[16 * 4 * 6];
        static int32_t ids[1][512];
        int32_t tokens;
        fill(noise, 16 * 4 * 6, 3);
        CHECK_NUMBER(sumi_network_tokenise(one, 0, "a cat", 5, ids[0], 512, &tokens, &error), SUMI_OK);
        sumi_pipeline_prompt prompt = {.token_count = {tokens}};
        sumi_pipeline_item item = {0, -1};
        job j = {.r = {.prompts = &prompt,
                       .prompt_count = 1,
                       .items = &item,
                       .item_count = 1,
                       .width = 48,
                       .height = 32,
                       .without_decode = true},
                 .ids = (const int32_t(*)[512])ids,
                 .noise = noise};
        set_schedule(&j, one, SUMI_SOLVER_EULER, 2, 0);
        float *x = run_job(one, &j, 0, NULL, &error), *y = run_job(parts, &j, 0, NULL, &error);
        CHECK(x != NULL && y != NULL && memcmp(x, y, sizeof noise) == 0);
        free(x);
        free(y);
    }
    if (error.result != SUMI_OK) printf("  %s\n", error.text);
    sumi_network_close(one);
    sumi_network_close(parts);
}

// A tensor left out or halved, one by one.
static void break_tensors(const sumi_tensor_set* set, const char* path, const sumi_network_desc* desc,
                          const char* unused_a, const char* unused_b)
{
    sumi_tensor* tensors = malloc((set->count + 1) * sizeof *tensors);
    uint64_t held = atomic_load(&t_heap.held);
    for (size_t broken = 0; broken < set->count; broken++) {
        bool is_unused =
            strstr(set->tensors[broken].name, unused_a) != NULL || strstr(set->tensors[broken].name, unused_b) != NULL;
        for (int how = 0; how < 2; how++) {
            size_t count = 0;
            for (size_t i = 0; i < set->count; i++) {
                if (i == broken && how == 0) continue;
                tensors[count] = set->tensors[i];
                if (i == broken) { // half as many rows; three become one
                    int32_t axis = tensors[count].rank == 2 && tensors[count].shape[0] == 1 ? 1 : 0;
                    tensors[count].bytes = tensors[count].bytes / (uint64_t)tensors[count].shape[axis]
                                         * (uint64_t)(tensors[count].shape[axis] / 2);
                    tensors[count].shape[axis] /= 2;
                }
                count++;
            }
            write_tensors(path, tensors, count, NULL, 0);
            sumi_error error = {0};
            sumi_network* network = NULL;
            sumi_result result = open_all(&t_heap, desc, &error, &network);
            // without its marks, the file is no model at all
            bool expected = is_unused ? result == SUMI_OK
                                      : result == SUMI_TENSOR_MISSING || result == SUMI_TENSOR_MISMATCH
                                            || result == SUMI_MODEL_UNKNOWN;
            if (!expected)
                printf("  %s %s: result %d, \"%s\"\n", how == 0 ? "without" : "half of", set->tensors[broken].name,
                       (int)result, error.text);
            CHECK(expected);
            CHECK(result == SUMI_OK || strstr(error.text, "broken") != NULL);
            sumi_network_close(network);
            CHECK_NUMBER(atomic_load(&t_heap.held), held);
        }
    }
    free(tensors);
}

TEST(every_missing_or_misshapen_tensor_of_the_transformer_is_named)
{
    sumi_tensor_set set;
    CHECK(read_tensors(&set, GOLDEN "single-file/z_image_turbo_bf16.safetensors", NULL));
    const char* path = scratch("broken.safetensors");
    break_tensors(&set, path, &(sumi_network_desc){.path = path}, "nothing unused", "nothing unused");
    sumi_tensor_set_close(&set);
    system_make_folder(scratch("broken"));
    copy_file(GOLDEN "model/transformer/config.json", scratch("broken/config.json"));
    CHECK(read_tensors(&set, GOLDEN "model/transformer", "diffusion_pytorch_model"));
    path = scratch("broken/diffusion_pytorch_model.safetensors");
    break_tensors(&set, path, &(sumi_network_desc){.transformer_path = scratch("broken")}, "nothing unused",
                  "nothing unused");
    sumi_tensor_set_close(&set);
    remove(scratch("broken/diffusion_pytorch_model.safetensors"));
}

TEST(every_missing_or_misshapen_tensor_of_the_vae_is_named)
{
    sumi_tensor_set set;
    const char* path = scratch("broken/ae.safetensors");
    system_make_folder(scratch("broken"));
    copy_file(GOLDEN "model/vae/config.json", scratch("broken/config.json"));
    for (int ldm = 0; ldm < 2; ldm++) {
        CHECK(ldm ? read_tensors(&set, GOLDEN "single-file/ae.safetensors", NULL)
                  : read_tensors(&set, GOLDEN "model/vae", "diffusion_pytorch_model"));
        break_tensors(&set, path,
                      &(sumi_network_desc){.transformer_path = GOLDEN "model/transformer", .vae_path = path},
                      "nothing unused", "nothing unused");
        sumi_tensor_set_close(&set);
    }
    remove(path);
}

// The last layer and the final norm are never used, so a file may lack them.
TEST(every_missing_or_misshapen_tensor_of_the_text_encoder_is_named)
{
    sumi_tensor_set set;
    system_make_folder(scratch("broken"));
    copy_file(GOLDEN "model/text_encoder/config.json", scratch("broken/config.json"));
    const char* path = scratch("broken/text.safetensors");
    CHECK(read_tensors(&set, GOLDEN "model/text_encoder", "model"));
    sumi_network_desc desc = {.transformer_path = GOLDEN "model/transformer",
                              .text_encoder_path = path,
                              .tokenizer_path = GOLDEN "model/tokenizer"};
    break_tensors(&set, path, &desc, ".layers.2.", "model.norm.");
    sumi_tensor_set_close(&set);
    remove(path);
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

// A folder with both ways to keep a LoKr, with a factor that is multiplied, and with a changed norm.
static void write_some_lokr(void)
{
    static const struct {
        const char* name;
        int64_t rows, cols;
    } stored[] = {
        {"lycoris_layers_0_attention_to_q.lokr_w1", 8, 8},   {"lycoris_layers_0_attention_to_q.lokr_w2_a", 8, 2},
        {"lycoris_layers_0_attention_to_q.lokr_w2_b", 2, 8}, {"lycoris_layers_0_attention_to_k.lokr_w1_a", 8, 5},
        {"lycoris_layers_0_attention_to_k.lokr_w1_b", 5, 8}, {"lycoris_layers_0_attention_to_k.lokr_w2", 8, 8},
        {"lycoris_layers_0_attention_norm1.w_norm", 64, 1},  {"lycoris_layers_1_attention_q_norm.w_norm", 32, 1}};
    static const char json[] = "{\"lora_alpha\": 2, \"alpha_pattern\": {\"a\": 1}}";
    static float values[64];
    sumi_tensor tensors[sizeof stored / sizeof *stored];
    for (size_t i = 0; i < sizeof stored / sizeof *stored; i++)
        tensors[i] = (sumi_tensor){.name = stored[i].name,
                                   .dtype = SUMI_DTYPE_F32,
                                   .rank = 2,
                                   .shape = {stored[i].rows, stored[i].cols},
                                   .data = values,
                                   .bytes = (uint64_t)(stored[i].rows * stored[i].cols) * 4};
    system_make_folder(scratch("lokr"));
    write_tensors(scratch("lokr/adapter_model.safetensors"), tensors, sizeof tensors / sizeof *tensors, NULL, 0);
    write_file(scratch("lokr/adapter_config.json"), json, sizeof json - 1);
}

// The n-th allocation fails, for every n up to all that opening, a plan and an adapter need.
TEST(every_failing_allocation_is_survived)
{
    write_some_lokr();
    bool finished = false;
    long n = 0;
    for (; n < 100000 && !finished; n++) {
        failing f = {.left = n};
        const sumi_allocator allocator = failing_allocator(&f);
        sumi_heap heap;
        sumi_heap_init(&heap, &allocator);
        sumi_error error = {0};
        sumi_network* network = NULL;
        sumi_result result = open_all(&heap, &(sumi_network_desc){.path = GOLDEN "model"}, &error, &network);
        sumi_adapter_file *adapter = NULL, *factors = NULL;
        if (result == SUMI_OK)
            result = sumi_adapter_open(&heap, NULL, network, GOLDEN "lora/lora_peft.safetensors", &error, &adapter);
        if (result == SUMI_OK) result = sumi_adapter_open(&heap, NULL, network, scratch("lokr"), &error, &factors);
        int32_t ids[512], count = 0;
        if (result == SUMI_OK) result = sumi_network_tokenise(network, 0, "a red fox", 9, ids, 512, &count, &error);
        if (result == SUMI_OK) {
            sumi_plan plan;
            sumi_pipeline p;
            bool guided[3] = {true, true, false};
            sumi_pipeline_prompt prompts[2] = {{.token_count = {count}}, {.token_count = {8}}};
            sumi_pipeline_item item = {0, 1};
            sumi_adapter_use uses[2] = {{sumi_adapter_get(adapter), 0.5f}, {sumi_adapter_get(factors), 0.5f}};
            sumi_pipeline_request r = {.prompts = prompts,
                                       .prompt_count = 2,
                                       .items = &item,
                                       .item_count = 1,
                                       .width = 64,
                                       .height = 48,
                                       .evaluation_count = 3,
                                       .guided = guided,
                                       .has_base = true,
                                       .has_history = true,
                                       .starts_from_image = true,
                                       .inpaints = true,
                                       .previews = true,
                                       .tile_latent = 4,
                                       .adapters = uses,
                                       .adapter_count = 2};
            sumi_plan_begin(&plan, &heap, 4);
            result = sumi_pipeline_write(network, &r, &plan, &p, &error);
            sumi_plan_end(&plan);
        }
        finished = f.refused == 0;
        CHECK(!finished || result == SUMI_OK);
        if (!finished && result != SUMI_OUT_OF_HOST_MEMORY) {
            printf("  allocation %ld: result %d, \"%s\"\n", n, (int)result, error.text);
            CHECK(!"a failed allocation is reported as one");
            finished = true;
        }
        sumi_adapter_close(adapter);
        sumi_adapter_close(factors);
        sumi_network_close(network);
        CHECK_NUMBER(f.held, 0);
    }
    CHECK(finished && n > 50);
}

// ---- Adapters -------------------------------------------------------------------------------------------------------

static sumi_result open_adapter(const sumi_network* network, const char* path, sumi_error* error)
{
    sumi_adapter_file* file = NULL;
    sumi_result result = sumi_adapter_open(&t_heap, NULL, network, path, error, &file);
    sumi_adapter_close(file);
    return result;
}

// One adapter in every spelling gives the same deltas.
TEST(adapter_names_of_every_program_are_understood)
{
    static const struct {
        const char *down, *up, *alpha;
    } spellings[] = {
        {"transformer.layers.0.attention.to_q.lora_A.weight", "transformer.layers.0.attention.to_q.lora_B.weight",
         NULL},
        {"layers.0.attention.to_q.lora_A.default.weight", "layers.0.attention.to_q.lora_B.default.weight", NULL},
        {"base_model.model.layers.0.attention.to_q.lora_A.weight",
         "base_model.model.layers.0.attention.to_q.lora_B.weight", NULL},
        {"diffusion_model.layers.0.attention.to_q.lora_down.weight",
         "diffusion_model.layers.0.attention.to_q.lora_up.weight", "diffusion_model.layers.0.attention.to_q.alpha"},
        {"model.diffusion_model.layers.0.attention.to_q.lora_A.weight",
         "model.diffusion_model.layers.0.attention.to_q.lora_B.weight", NULL},
        {"lora_unet_layers_0_attention_to_q.lora_down.weight", "lora_unet_layers_0_attention_to_q.lora_up.weight",
         "lora_unet_layers_0_attention_to_q.alpha"},
        {"lycoris_layers_0_attention_to_q.lora_down.weight", "lycoris_layers_0_attention_to_q.lora_up.weight",
         "lycoris_layers_0_attention_to_q.alpha"},
        {"layers.0.attention.to.q.lora.down.weight", "layers.0.attention.to.q.lora.up.weight", NULL}};
    sumi_network* network = open_path(GOLDEN "model");
    if (network == NULL) {
        CHECK(!"the model opens");
        return;
    }
    static float down[2 * 64], up[64 * 2], alpha = 1.0f;
    fill(down, 128, 5);
    fill(up, 128, 6);
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        sumi_tensor tensors[3] = {
            {.name = spellings[i].down,
             .dtype = SUMI_DTYPE_F32,
             .rank = 2,
             .shape = {2, 64},
             .data = down,
             .bytes = sizeof down},
            {.name = spellings[i].up,
             .dtype = SUMI_DTYPE_F32,
             .rank = 2,
             .shape = {64, 2},
             .data = up,
             .bytes = sizeof up},
            {.name = spellings[i].alpha, .dtype = SUMI_DTYPE_F32, .rank = 0, .data = &alpha, .bytes = 4}};
        write_tensors(scratch("adapter.safetensors"), tensors, spellings[i].alpha != NULL ? 3 : 2, NULL, 0);
        sumi_error error = {0};
        sumi_adapter_file* file = NULL;
        CHECK_NUMBER(sumi_adapter_open(&t_heap, NULL, network, scratch("adapter.safetensors"), &error, &file), SUMI_OK);
        if (file == NULL) {
            printf("  %s\n", error.text);
            continue;
        }
        const sumi_adapter* adapter = sumi_adapter_get(file);
        CHECK_NUMBER(adapter->delta_count, 1);
        CHECK_TEXT(network->weights.weights[adapter->deltas[0].weight_index]->name, "layers.0.attention.qkv");
        CHECK_NUMBER(adapter->deltas[0].row_begin, 0);
        CHECK_NEAR(adapter->deltas[0].scale, spellings[i].alpha != NULL ? 0.5 : 1.0, 0, 0);
        sumi_adapter_close(file);
    }
    sumi_network_close(network);
}

TEST(adapter_metadata_gives_alpha_per_module_and_rank_stabilised_scales)
{
    sumi_network* network = open_path(GOLDEN "model");
    if (network == NULL) return;
    static float down[4 * 64], up[64 * 4];
    sumi_tensor tensors[4] = {{.name = "transformer.layers.0.attention.to_k.lora_A.weight",
                               .dtype = SUMI_DTYPE_F32,
                               .rank = 2,
                               .shape = {4, 64},
                               .data = down,
                               .bytes = sizeof down},
                              {.name = "transformer.layers.0.attention.to_k.lora_B.weight",
                               .dtype = SUMI_DTYPE_F32,
                               .rank = 2,
                               .shape = {64, 4},
                               .data = up,
                               .bytes = sizeof up},
                              {.name = "transformer.layers.1.attention.to_out.0.lora_A.weight",
                               .dtype = SUMI_DTYPE_F32,
                               .rank = 2,
                               .shape = {4, 64},
                               .data = down,
                               .bytes = sizeof down},
                              {.name = "transformer.layers.1.attention.to_out.0.lora_B.weight",
                               .dtype = SUMI_DTYPE_F32,
                               .rank = 2,
                               .shape = {64, 4},
                               .data = up,
                               .bytes = sizeof up}};
    sumi_metadata metadata = {"lora_adapter_metadata",
                              "{\"transformer.r\": 4, \"transformer.lora_alpha\": 8, \"transformer.use_rslora\": true, "
                              "\"transformer.alpha_pattern\": {\"layers.1.attention.to_out.0\": 6}}"};
    write_tensors(scratch("peft.safetensors"), tensors, 4, &metadata, 1);
    sumi_error error = {0};
    sumi_adapter_file* file = NULL;
    CHECK_NUMBER(sumi_adapter_open(&t_heap, NULL, network, scratch("peft.safetensors"), &error, &file), SUMI_OK);
    if (file != NULL) {
        const sumi_adapter* adapter = sumi_adapter_get(file);
        CHECK_NUMBER(adapter->delta_count, 2);
        CHECK_NUMBER(adapter->deltas[0].row_begin, 64);     // k follows q
        CHECK_NEAR(adapter->deltas[0].scale, 4.0, 1e-6, 0); // 8 / sqrt(4)
        CHECK_NEAR(adapter->deltas[1].scale, 3.0, 1e-6, 0); // 6 / sqrt(4)
    }
    sumi_adapter_close(file);
    sumi_network_close(network);
}

// A folder as PEFT saves it, or its file: what adapter_config.json says of scales, and what it may not say.
TEST(adapter_config_beside_the_file_gives_scales)
{
    static const struct {
        const char *json, *header, *header_value; // NULL: not there
        bool has_alpha;
        sumi_result expected;
        double scale;     // of layers.0.attention.to_k, of rank 4
        const char* says; // where it fails
    } cases[] = {
        {NULL, NULL, NULL, false, SUMI_OK, 1.0, NULL},
        {"{\"r\": 4, \"lora_alpha\": 2}", NULL, NULL, false, SUMI_OK, 0.5, NULL},
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 6, \"use_rslora\": true}", NULL, NULL, false, SUMI_OK,
         3.0, NULL},
        {"{\"lora_alpha\": 2, \"alpha_pattern\": {\"to_q\": 1, \"attention.to_k\": 12, \"to_k\": 100}}", NULL, NULL,
         false, SUMI_OK, 3.0, NULL},
        {"{\"lora_alpha\": 2, \"alpha_pattern\": {\"o_k\": 12}}", NULL, NULL, false, SUMI_OK, 0.5, NULL},
        {"{\"lora_alpha\": 2, \"r\": 8, \"rank_pattern\": {\"^layers.0.attention.to_k\": 4}}", NULL, NULL, false,
         SUMI_OK, 0.5, NULL},
        {"{\"lora_alpha\": 2, \"r\": 8, \"rank_pattern\": {\"to_v\": 4}}", NULL, NULL, false, SUMI_TENSOR_MISMATCH, 0,
         "the rank 8, the tensors have 4"},
        {"{\"r\": 4, \"lora_alpha\": 2}", NULL, NULL, true, SUMI_OK, 0.25, NULL},
        // the file's own header goes first
        {"{\"r\": 4, \"lora_alpha\": 2}", "lora_alpha", "8", false, SUMI_OK, 2.0, NULL},
        {"{\"r\": 4, \"lora_alpha\": 2}", "lora_alpha", "None", false, SUMI_OK, 0.5, NULL},
        {"not json", "lora_adapter_metadata", "{\"transformer.lora_alpha\": 16}", false, SUMI_OK, 4.0, NULL},
        {NULL, "lora_alpha", "6", false, SUMI_OK, 1.5, NULL},
        {NULL, "lora_adapter_metadata", "{\"transformer.lora_alpha\": ", false, SUMI_FILE_MALFORMED, 0,
         "lora_adapter_metadata"},
        {"", NULL, NULL, false, SUMI_FILE_MALFORMED, 0, "adapter_config.json"},
        {"[1]", NULL, NULL, false, SUMI_FILE_MALFORMED, 0, "adapter_config.json"},
        {"{\"lora_alpha\": 2", NULL, NULL, false, SUMI_FILE_MALFORMED, 0, "adapter_config.json"},
        {"{\"lora_alpha\": 1e999}", NULL, NULL, false, SUMI_FILE_MALFORMED, 0, "adapter_config.json"},
        {"{\"alpha_pattern\": {\"to_(k|v)\": 2}}", NULL, NULL, false, SUMI_FILE_MALFORMED, 0, "plain module names"},
        {"{\"use_dora\": true}", NULL, NULL, true, SUMI_NOT_SUPPORTED, 0, "DoRA"},
        {"{\"peft_type\": \"LOHA\"}", NULL, NULL, false, SUMI_NOT_SUPPORTED, 0, "LOHA"},
    };
    sumi_network* network = open_path(GOLDEN "model");
    if (network == NULL) {
        CHECK(!"the model opens");
        return;
    }
    static float down[4 * 64], up[64 * 4], alpha = 1.0f;
    sumi_tensor tensors[3] = {{.name = "base_model.model.layers.0.attention.to_k.lora_A.weight",
                               .dtype = SUMI_DTYPE_F32,
                               .rank = 2,
                               .shape = {4, 64},
                               .data = down,
                               .bytes = sizeof down},
                              {.name = "base_model.model.layers.0.attention.to_k.lora_B.weight",
                               .dtype = SUMI_DTYPE_F32,
                               .rank = 2,
                               .shape = {64, 4},
                               .data = up,
                               .bytes = sizeof up},
                              {.name = "base_model.model.layers.0.attention.to_k.alpha",
                               .dtype = SUMI_DTYPE_F32,
                               .rank = 0,
                               .data = &alpha,
                               .bytes = 4}};
    system_make_folder(scratch("peft"));
    const uint64_t held = atomic_load(&t_heap.held);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const sumi_metadata header = {cases[i].header, cases[i].header_value};
        write_tensors(scratch("peft/adapter_model.safetensors"), tensors, cases[i].has_alpha ? 3 : 2, &header,
                      cases[i].header != NULL);
        remove(scratch("peft/adapter_config.json"));
        if (cases[i].json != NULL) {
            write_file(scratch("peft/adapter_config.json"), cases[i].json, strlen(cases[i].json));
        }
        for (int k = 0; k < 3; k++) { // the folder, with a slash behind it, the file
            const char* path = scratch(k == 0 ? "peft" : k == 1 ? "peft/" : "peft/adapter_model.safetensors");
            sumi_error error = {0};
            sumi_adapter_file* file = NULL;
            const int errors = t_errors;
            CHECK_NUMBER(sumi_adapter_open(&t_heap, NULL, network, path, &error, &file), cases[i].expected);
            if (file != NULL) { CHECK_NEAR(sumi_adapter_get(file)->deltas[0].scale, cases[i].scale, 1e-6, 0); }
            if (cases[i].says != NULL) { CHECK(strstr(error.text, cases[i].says) != NULL); }
            if (t_errors > errors) printf("  case %d: %s\n", (int)i, error.text);
            sumi_adapter_close(file);
        }
    }
    CHECK_NUMBER(atomic_load(&t_heap.held), held);
    sumi_error error = {0};
    CHECK_NUMBER(open_adapter(network, scratch("no folder"), &error), SUMI_FILE_NOT_FOUND);
    CHECK(strstr(error.text, "adapter_model.safetensors") != NULL);
    sumi_network_close(network);
}

TEST(adapter_with_the_same_change_twice_is_applied_once)
{
    sumi_network* network = open_path(GOLDEN "model");
    if (network == NULL) return;
    static float down[2 * 64], up[192 * 2];
    static const char* const modules[] = {"to.q", "to.k", "to.v", "qkv", "out", "to.out.0"};
    static char names[12][96];
    sumi_tensor tensors[12];
    for (int i = 0; i < 6; i++) {
        int64_t rows = i == 3 ? 192 : 64;
        snprintf(names[2 * i], sizeof names[0], "layers.0.attention.%s.lora.down.weight", modules[i]);
        snprintf(names[2 * i + 1], sizeof names[0], "layers.0.attention.%s.lora.up.weight", modules[i]);
        tensors[2 * i] = (sumi_tensor){.name = names[2 * i],
                                       .dtype = SUMI_DTYPE_F32,
                                       .rank = 2,
                                       .shape = {2, 64},
                                       .data = down,
                                       .bytes = sizeof down};
        tensors[2 * i + 1] = (sumi_tensor){.name = names[2 * i + 1],
                                           .dtype = SUMI_DTYPE_F32,
                                           .rank = 2,
                                           .shape = {rows, 2},
                                           .data = up,
                                           .bytes = (uint64_t)rows * 8};
    }
    write_tensors(scratch("twice.safetensors"), tensors, 12, NULL, 0);
    sumi_error error = {0};
    sumi_adapter_file* file = NULL;
    CHECK_NUMBER(sumi_adapter_open(&t_heap, NULL, network, scratch("twice.safetensors"), &error, &file), SUMI_OK);
    if (file != NULL) CHECK_NUMBER(sumi_adapter_get(file)->delta_count, 4);
    else printf("  %s\n", error.text);
    sumi_adapter_close(file);
    sumi_network_close(network);
}

// ---- LoKr

// A factor of a case: whole when rank is 0.
typedef struct stored_factor {
    int rows, cols, rank;
} stored_factor;

typedef struct lokr_case {
    const char* module; // as a path of the file
    const char* weight; // that is changed
    stored_factor w1, w2;
    float alpha;        // 0: no tensor
    const char* header; // lora_alpha in the file's header, or NULL
    double scale;
    int row_begin; // of the change
    int rank;      // of the low-rank change that is made of it; 0: it is kept as factors
    sumi_dtype dtype;
} lokr_case;

typedef struct lokr_file {
    char names[5][96];
    float floats[5][64 * 192];
    uint16_t halves[4][64 * 192];
    sumi_tensor tensors[5];
    int count;
} lokr_file;

static void store(lokr_file* f, const char* module, const char* suffix, int rows, int cols, sumi_dtype dtype, int seed)
{
    float* x = f->floats[f->count];
    fill(x, (size_t)rows * (size_t)cols, seed);
    if (dtype == SUMI_DTYPE_BF16) { // floats keep what bfloat16 holds
        for (int i = 0; i < rows * cols; i++) {
            f->halves[f->count][i] = sumi_float_to_bf16(x[i]);
            x[i] = sumi_bf16_to_float(f->halves[f->count][i]);
        }
    }
    snprintf(f->names[f->count], sizeof f->names[0], "%s%s", module, suffix);
    f->tensors[f->count] =
        (sumi_tensor){.name = f->names[f->count],
                      .dtype = dtype,
                      .rank = 2,
                      .shape = {rows, cols},
                      .data = dtype == SUMI_DTYPE_BF16 ? (const void*)f->halves[f->count] : (const void*)x,
                      .bytes = (uint64_t)(rows * cols) * (dtype == SUMI_DTYPE_BF16 ? 2 : 4)};
    f->count++;
}

// The factor in double, from what is stored of it.
static void store_factor(lokr_file* f, const lokr_case* c, int which, double* out)
{
    const stored_factor* s = which == 1 ? &c->w1 : &c->w2;
    char suffix[16];
    const float *a = f->floats[f->count], *b = f->floats[f->count + 1];
    snprintf(suffix, sizeof suffix, ".lokr_w%d%s", which, s->rank > 0 ? "_a" : "");
    store(f, c->module, suffix, s->rows, s->rank > 0 ? s->rank : s->cols, c->dtype, 11 * which);
    if (s->rank > 0) {
        snprintf(suffix, sizeof suffix, ".lokr_w%d_b", which);
        store(f, c->module, suffix, s->rank, s->cols, c->dtype, 11 * which + 1);
    }
    for (int i = 0; i < s->rows; i++) {
        for (int j = 0; j < s->cols; j++) {
            double sum = s->rank > 0 ? 0.0 : (double)a[i * s->cols + j];
            for (int k = 0; k < s->rank; k++) { sum += (double)a[i * s->rank + k] * (double)b[k * s->cols + j]; }
            out[i * s->cols + j] = sum;
        }
    }
}

static void try_lokr(const sumi_network* network, const lokr_case* c)
{
    static lokr_file f;
    static double w1[64 * 192], w2[64 * 192];
    f.count = 0;
    store_factor(&f, c, 1, w1);
    store_factor(&f, c, 2, w2);
    if (c->alpha != 0) {
        store(&f, c->module, ".alpha", 1, 1, SUMI_DTYPE_F32, 1);
        f.tensors[f.count - 1].rank = 0;
        f.floats[f.count - 1][0] = c->alpha;
    }
    const sumi_metadata header = {"lora_alpha", c->header};
    write_tensors(scratch("lokr.safetensors"), f.tensors, (size_t)f.count, &header, c->header != NULL);
    sumi_error error = {0};
    sumi_adapter_file* file = NULL;
    CHECK_NUMBER(sumi_adapter_open(&t_heap, NULL, network, scratch("lokr.safetensors"), &error, &file), SUMI_OK);
    if (file == NULL) {
        printf("  %s: %s\n", c->module, error.text);
        return;
    }
    const sumi_adapter* adapter = sumi_adapter_get(file);
    CHECK_NUMBER(adapter->delta_count, 1);
    const sumi_delta* delta = &adapter->deltas[0];
    const sumi_weight* weight = network->weights.weights[delta->weight_index];
    CHECK_TEXT(weight->name, c->weight);
    CHECK_NUMBER(delta->row_begin, c->row_begin);
    CHECK_NUMBER(delta->kind, c->rank > 0 ? SUMI_DELTA_LOW_RANK : SUMI_DELTA_KRONECKER);
    CHECK_NEAR(delta->scale, c->scale, 1e-6, 0);
    const int rows = c->w1.rows * c->w2.rows, cols = c->w1.cols * c->w2.cols;
    CHECK_NUMBER(cols, weight->cols);
    if (c->rank > 0) { CHECK_NUMBER(delta->down.rows, c->rank); }
    const sumi_adapter_use use = {adapter, -0.7f};
    float merged[192], plain[192];
    for (int r = 0; r < weight->rows; r++) {
        sumi_weight_to_float(weight, r, 1, plain, cols);
        sumi_weight_merged_row(weight, &use, 1, r, merged);
        const int local = r - c->row_begin, b = c->w2.rows, d = c->w2.cols;
        for (int k = 0; k < cols; k++) {
            double change = local < 0 || local >= rows
                              ? 0.0
                              : -0.7 * c->scale * w1[local / b * c->w1.cols + k / d] * w2[local % b * d + k % d];
            CHECK_NEAR(merged[k], (double)plain[k] + change, 3e-6, 1e-6);
        }
    }
    sumi_adapter_close(file);
}

TEST(lokr_factors_become_the_change_that_they_describe)
{
    static const lokr_case cases[] = {
        // one factored, r = 2 of a layer of 64 x 64: unit matrices on the smaller side
        {"lycoris_layers_0_attention_to_q",
         "layers.0.attention.qkv",
         {8, 8, 0},
         {8, 8, 2},
         1.0f,
         NULL,
         0.5,
         0,
         16,
         SUMI_DTYPE_F32},
        {"lycoris_layers_0_attention_to_k",
         "layers.0.attention.qkv",
         {16, 4, 0},
         {4, 16, 2},
         6.0f,
         NULL,
         3.0,
         64,
         8,
         SUMI_DTYPE_BF16},
        {"layers.0.attention.to_v",
         "layers.0.attention.qkv",
         {2, 32, 0},
         {32, 2, 1},
         0,
         NULL,
         1.0,
         128,
         2,
         SUMI_DTYPE_F32},
        {"base_model.model.layers.0.attention.qkv",
         "layers.0.attention.qkv",
         {8, 8, 0},
         {24, 8, 2},
         0,
         "1",
         0.5,
         0,
         16,
         SUMI_DTYPE_F32},
        {"lycoris_layers_1_attention_out",
         "layers.1.attention.to_out.0",
         {8, 8, 2},
         {8, 8, 2},
         1.0f,
         "7",
         0.5,
         0,
         4,
         SUMI_DTYPE_F32},
        // kept as factors: whole ones, whose alpha says nothing, and products that are not small
        {"lycoris_layers_0_attention_to_q",
         "layers.0.attention.qkv",
         {8, 8, 0},
         {8, 8, 0},
         5.0f,
         "7",
         1.0,
         0,
         0,
         SUMI_DTYPE_F32},
        {"lycoris_layers_0_attention_qkv",
         "layers.0.attention.qkv",
         {3, 2, 0},
         {64, 32, 0},
         0,
         NULL,
         1.0,
         0,
         0,
         SUMI_DTYPE_BF16},
        {"lycoris_layers_0_feed_forward_w3",
         "layers.0.feed_forward.w1w3",
         {8, 4, 0},
         {16, 16, 5},
         2.0f,
         NULL,
         0.4,
         128,
         0,
         SUMI_DTYPE_F32},
        {"lycoris_layers_1_attention_out",
         "layers.1.attention.to_out.0",
         {8, 8, 3},
         {8, 8, 0},
         6.0f,
         NULL,
         2.0,
         0,
         0,
         SUMI_DTYPE_BF16},
        {"lycoris_layers_1_attention_out",
         "layers.1.attention.to_out.0",
         {8, 8, 5},
         {8, 8, 5},
         1.0f,
         "7",
         0.2,
         0,
         0,
         SUMI_DTYPE_F32},
        // both whole, and small
        {"lycoris_layers_1_attention_out",
         "layers.1.attention.to_out.0",
         {64, 1, 0},
         {1, 64, 0},
         5.0f,
         "7",
         1.0,
         0,
         1,
         SUMI_DTYPE_F32},
    };
    sumi_network* network = open_path(GOLDEN "model");
    if (network == NULL) return;
    const uint64_t held = atomic_load(&t_heap.held);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int errors = t_errors;
        try_lokr(network, &cases[i]);
        if (t_errors > errors) { printf("  case %d\n", (int)i); }
    }
    CHECK_NUMBER(atomic_load(&t_heap.held), held);
    sumi_network_close(network);
}

// Files as a trainer saves them, for a transformer of which the tensors' names and shapes are all that is needed here.
TEST(files_of_a_trainer_are_read_whole)
{
    static const struct {
        const char* path;
        int32_t count, norms, factors; // of its changes: all, of norms, kept as factors
        float scale;                   // of those of layers
    } cases[] = {{"tests/golden/newbie/adapters/lora_peft", 20, 0, 0, 0.5f},
                 {"tests/golden/newbie/adapters/lokr_full", 38, 18, 20, 1.0f},
                 {"tests/golden/newbie/adapters/lokr_low/adapter_model.safetensors", 20, 0, 0, 0.5f}};
    enum { MOST = 256 };
    static sumi_weight weights[MOST];
    static const sumi_weight* list[MOST];
    static sumi_adapter_target targets[MOST];
    static char paths[MOST][SUMI_NAME_BYTES];
    sumi_tensor_set set;
    if (!read_tensors(&set, "tests/golden/newbie/model/transformer", "diffusion_pytorch_model")) {
        CHECK(!"the transformer opens");
        return;
    }
    sumi_network network = {.heap = &t_heap, .is_open = true};
    network.info.family = "newbie";
    network.weights = (sumi_weight_list){.weights = list, .targets = targets};
    for (size_t i = 0; i < set.count; i++) {
        const sumi_tensor* t = &set.tensors[i];
        const size_t length = strlen(t->name), k = network.weights.count;
        if (length < 7 || strcmp(t->name + length - 7, ".weight") != 0 || t->rank > 2 || k == MOST) continue;
        const int32_t rows = t->rank == 2 ? (int32_t)t->shape[0] : 1, cols = (int32_t)t->shape[t->rank - 1];
        weights[k] = (sumi_weight){.name = t->name, .rows = rows, .cols = cols, .index = (int32_t)k};
        list[k] = &weights[k];
        CHECK(sumi_fold_path(t->name, length - 7, paths[k], sizeof paths[k]));
        targets[k] = (sumi_adapter_target){
            .path = paths[k], .weight_index = (int32_t)k, .rows = rows, .cols = cols, .is_vector = t->rank == 1};
        network.weights.target_count = ++network.weights.count;
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sumi_error error = {0};
        sumi_adapter_file* file = NULL;
        CHECK_NUMBER(sumi_adapter_open(&t_heap, NULL, &network, cases[i].path, &error, &file), SUMI_OK);
        if (file == NULL) {
            printf("  %s\n", error.text);
            continue;
        }
        const sumi_adapter* adapter = sumi_adapter_get(file);
        int32_t norms = 0, factors = 0;
        for (int32_t d = 0; d < adapter->delta_count; d++) {
            const sumi_delta* delta = &adapter->deltas[d];
            norms += delta->kind == SUMI_DELTA_VECTOR;
            factors += delta->kind == SUMI_DELTA_KRONECKER;
            CHECK_NEAR(delta->scale, delta->kind == SUMI_DELTA_VECTOR ? 1.0 : (double)cases[i].scale, 0, 0);
            CHECK_NUMBER(sumi_delta_rows(delta), weights[delta->weight_index].rows);
        }
        CHECK_NUMBER(adapter->delta_count, cases[i].count);
        CHECK_NUMBER(norms, cases[i].norms);
        CHECK_NUMBER(factors, cases[i].factors);
        sumi_adapter_close(file);
    }
    sumi_tensor_set_close(&set);
}

TEST(adapter_that_does_not_fit_is_refused_by_name)
{
    static float values[64 * 8];
    static const struct {
        const char* names[2];
        int64_t shapes[2][2];
        sumi_result expected;
        const char* says;
    } cases[] = {{{"transformer.double_blocks.0.lora_A.weight", "transformer.double_blocks.0.lora_B.weight"},
                  {{2, 64}, {64, 2}},
                  SUMI_LORA_NO_MATCH,
                  "double_blocks"},
                 {{"text_encoder.layers.0.q.lora_A.weight", "text_encoder.layers.0.q.lora_B.weight"},
                  {{2, 64}, {64, 2}},
                  SUMI_LORA_NO_MATCH,
                  "text_encoder"},
                 {{"layers.0.attention.to_q.lora_A.weight", "layers.0.attention.to_q.lora_B.weight"},
                  {{2, 32}, {64, 2}},
                  SUMI_TENSOR_MISMATCH,
                  "to_q"},
                 {{"layers.0.attention.to_q.lora_A.weight", "layers.0.attention.to_q.lora_B.weight"},
                  {{2, 64}, {64, 3}},
                  SUMI_TENSOR_MISMATCH,
                  "to_q"},
                 {{"layers.0.attention.to_q.lora_A.weight", "layers.0.attention.to_k.lora_B.weight"},
                  {{2, 64}, {64, 2}},
                  SUMI_TENSOR_MISSING,
                  "partner"},
                 {{"layers.0.attention.to_q.hada_w1_a", "layers.0.attention.to_q.hada_w1_b"},
                  {{64, 2}, {2, 64}},
                  SUMI_NOT_SUPPORTED,
                  "LoHa"},
                 {{"layers.0.attention.to_q.lokr_w1", "layers.0.attention.to_q.lokr_t2"},
                  {{8, 8}, {8, 8}},
                  SUMI_NOT_SUPPORTED,
                  "LoKr of a convolution"},
                 {{"layers.0.attention.to_q.lokr_w1", "layers.0.attention.to_q.lokr_w2"},
                  {{8, 8}, {8, 4}},
                  SUMI_TENSOR_MISMATCH,
                  "[8, 8] and [8, 4], the layer is [64, 64]"},
                 {{"layers.0.attention.to_q.lokr_w1", "layers.0.attention.to_k.lokr_w2"},
                  {{8, 8}, {8, 8}},
                  SUMI_TENSOR_MISSING,
                  "lokr_w2_b"},
                 {{"layers.0.attention.to_q.lokr_w2_a", "layers.0.attention.to_q.lokr_w2_b"},
                  {{8, 2}, {2, 8}},
                  SUMI_TENSOR_MISSING,
                  "lokr_w1"},
                 {{"layers.0.attention.to_q.lokr_w1_a", "layers.0.attention.to_q.lokr_w1_b"},
                  {{8, 2}, {3, 8}},
                  SUMI_TENSOR_MISMATCH,
                  "multiplied"},
                 {{"lycoris_layers_0_attention_norm1.w_norm", "lycoris_layers_0_attention_norm1.b_norm"},
                  {{64, 1}, {64, 1}},
                  SUMI_NOT_SUPPORTED,
                  "bias of a norm"},
                 {{"lycoris_layers_0_attention_norm1.w_norm", "lycoris_layers_0_attention_norm2.w_norm"},
                  {{64, 1}, {32, 1}},
                  SUMI_TENSOR_MISMATCH,
                  "32 values"},
                 {{"lycoris_layers_0_attention_norm1.w_norm", "lycoris_layers_0_attention_to_q.w_norm"},
                  {{64, 1}, {64, 1}},
                  SUMI_LORA_NO_MATCH,
                  "to_q.w_norm"},
                 {{"layers.0.attention_norm1.lora_A.weight", "layers.0.attention_norm1.lora_B.weight"},
                  {{2, 64}, {1, 2}},
                  SUMI_LORA_NO_MATCH,
                  "attention_norm1"},
                 {{"lycoris_double_blocks_0.lokr_w1", "lycoris_double_blocks_0.lokr_w2"},
                  {{8, 8}, {8, 8}},
                  SUMI_LORA_NO_MATCH,
                  "double_blocks"},
                 {{"layers.0.attention.to_q.lora_magnitude_vector", "layers.0.attention.to_q.lora_B.weight"},
                  {{1, 64}, {64, 2}},
                  SUMI_NOT_SUPPORTED,
                  "DoRA"},
                 {{"layers.0.attention.to_q.alpha", "layers.0.attention.to_k.alpha"},
                  {{1, 1}, {1, 1}},
                  SUMI_LORA_NO_MATCH,
                  "alpha"}};
    sumi_network* network = open_path(GOLDEN "model");
    if (network == NULL) return;
    uint64_t held = atomic_load(&t_heap.held);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sumi_tensor tensors[2];
        for (int k = 0; k < 2; k++)
            tensors[k] = (sumi_tensor){.name = cases[i].names[k],
                                       .dtype = SUMI_DTYPE_F32,
                                       .rank = 2,
                                       .shape = {cases[i].shapes[k][0], cases[i].shapes[k][1]},
                                       .data = values,
                                       .bytes = (uint64_t)(cases[i].shapes[k][0] * cases[i].shapes[k][1]) * 4};
        write_tensors(scratch("wrong.safetensors"), tensors, 2, NULL, 0);
        sumi_error error = {0};
        CHECK_NUMBER(open_adapter(network, scratch("wrong.safetensors"), &error), cases[i].expected);
        CHECK(strstr(error.text, cases[i].says) != NULL && strstr(error.text, "wrong.safetensors") != NULL);
    }
    CHECK_NUMBER(atomic_load(&t_heap.held), held);
    sumi_network_close(network);
}

// ---- Plans ----------------------------------------------------------------------------------------------------------

typedef struct scene {
    sumi_network* network;
    int32_t ids[3][512];
    int32_t counts[3];
    float noise[4 * 16 * 6 * 8];
} scene;

static scene* open_scene(void)
{
    static const char* const texts[] = {
        "a lighthouse at dusk, ink wash, with a long shadow over the rocks and the sea behind it", "a cat", "blurry"};
    scene* s = calloc(1, sizeof *s);
    s->network = open_path(GOLDEN "model");
    sumi_error error = {0};
    for (int i = 0; i < 3 && s->network != NULL; i++)
        CHECK_NUMBER(
            sumi_network_tokenise(s->network, 0, texts[i], strlen(texts[i]), s->ids[i], 512, &s->counts[i], &error),
            SUMI_OK);
    fill(s->noise, sizeof s->noise / sizeof *s->noise, 9);
    return s;
}

static void close_scene(scene* s)
{
    sumi_network_close(s->network);
    free(s);
}

// One file with a change of everything that can be changed, each as its kind is stored.
typedef struct whole_file {
    char (*names)[128];
    sumi_tensor* tensors;
    size_t count, vectors;
} whole_file;

static int divisor_below(int of, int most)
{
    while (of % most != 0) most--;
    return most;
}

static void put(whole_file* f, const char* path, const char* suffix, int rows, int cols, int rank)
{
    sumi_tensor* t = &f->tensors[f->count];
    float* data = malloc((size_t)rows * (size_t)cols * sizeof *data);
    fill(data, (size_t)rows * (size_t)cols, (uint32_t)f->count + 7);
    for (int i = 0; i < rows * cols; i++) data[i] *= 0.15f;
    snprintf(f->names[f->count], sizeof f->names[0], "lycoris_%s%s", path, suffix);
    *t = (sumi_tensor){.name = f->names[f->count],
                       .dtype = SUMI_DTYPE_F32,
                       .rank = rank,
                       .shape = {rows, cols},
                       .data = data,
                       .bytes = (uint64_t)(rows * cols) * 4};
    f->count++;
}

static void write_whole_file(const sumi_network* network, const char* path, bool has_matrices, bool has_norms)
{
    const size_t targets = network->weights.target_count;
    whole_file f = {.names = calloc(2 * targets, sizeof *f.names), .tensors = calloc(2 * targets, sizeof *f.tensors)};
    for (size_t i = 0; i < targets; i++) {
        const sumi_adapter_target* t = &network->weights.targets[i];
        bool is_alias = t->is_fused;
        for (size_t k = 0; k < i; k++) {
            const sumi_adapter_target* other = &network->weights.targets[k];
            is_alias = is_alias
                    || (other->weight_index == t->weight_index && other->row_begin == t->row_begin && !other->is_fused);
        }
        if (is_alias || !(t->is_vector ? has_norms : has_matrices)) continue;
        if (t->is_vector) {
            put(&f, t->path, ".w_norm", t->cols, 1, 1);
            continue;
        }
        const int runs = divisor_below(t->rows, 8), folds = divisor_below(t->cols, 4);
        put(&f, t->path, ".lokr_w1", runs, folds, 2);
        put(&f, t->path, ".lokr_w2", t->rows / runs, t->cols / folds, 2);
    }
    write_tensors(path, f.tensors, f.count, NULL, 0);
    for (size_t i = 0; i < f.count; i++) free((void*)(uintptr_t)f.tensors[i].data);
    free(f.tensors);
    free(f.names);
}

// LoKr of every layer and changes of every norm, two files at once: the picture of merged weights.
TEST(lokr_and_changed_norms_give_the_picture_of_merged_weights)
{
    scene* s = open_scene();
    if (s->network == NULL) {
        close_scene(s);
        return;
    }
    write_whole_file(s->network, scratch("all_changed.safetensors"), true, true);
    write_whole_file(s->network, scratch("norms.safetensors"), false, true);
    sumi_error error = {0};
    sumi_adapter_file* files[2] = {NULL, NULL};
    CHECK_NUMBER(sumi_adapter_open(&t_heap, NULL, s->network, scratch("all_changed.safetensors"), &error, &files[0]),
                 SUMI_OK);
    CHECK_NUMBER(sumi_adapter_open(&t_heap, NULL, s->network, scratch("norms.safetensors"), &error, &files[1]),
                 SUMI_OK);
    if (files[0] == NULL || files[1] == NULL) {
        printf("  %s\n", error.text);
        sumi_adapter_close(files[0]);
        close_scene(s);
        return;
    }
    const size_t size = 16 * 6 * 8;
    sumi_pipeline_prompt prompts[2] = {{.token_count = {s->counts[0]}}, {.token_count = {s->counts[2]}}};
    sumi_pipeline_item item = {0, 1};
    int32_t ids[2][512];
    memcpy(ids[0], s->ids[0], sizeof ids[0]);
    memcpy(ids[1], s->ids[2], sizeof ids[1]);
    const sumi_adapter_use uses[2] = {{sumi_adapter_get(files[0]), 0.4f}, {sumi_adapter_get(files[1]), -0.3f}},
                           off[2] = {{sumi_adapter_get(files[0]), 0.0f}, {sumi_adapter_get(files[1]), 0.0f}};
    job j = {.r = {.prompts = prompts, .prompt_count = 2, .items = &item, .item_count = 1, .width = 64, .height = 48},
             .ids = (const int32_t(*)[512])ids,
             .noise = s->noise};
    set_schedule(&j, s->network, SUMI_SOLVER_EULER, 3, 3.0f);
    float* plain = run_job(s->network, &j, 0, NULL, &error);
    j.r.adapters = uses;
    j.r.adapter_count = 2;
    float *changed = run_job(s->network, &j, 0, NULL, &error), *sliced = run_job(s->network, &j, 3, NULL, &error);
    j.r.adapters = off;
    float* unchanged = run_job(s->network, &j, 0, NULL, &error);
    j.r.adapter_count = 0;
    // plans read the weights where they lie, in the parts' models
    const size_t count = s->network->weights.count;
    sumi_weight* before = calloc(count, sizeof *before);
    for (size_t i = 0; i < count; i++) {
        sumi_weight* weight = (sumi_weight*)(uintptr_t)s->network->weights.weights[i];
        before[i] = *weight;
        float* rows = malloc((size_t)weight->rows * (size_t)weight->cols * sizeof *rows);
        bool differs = false;
        for (int32_t r = 0; r < weight->rows && sumi_weight_is_dense(weight); r++) {
            float* row = rows + (size_t)r * (size_t)weight->cols;
            sumi_weight_merged_row(weight, uses, 2, r, row);
            float* was = malloc((size_t)weight->cols * sizeof *was);
            sumi_weight_to_float(weight, r, 1, was, weight->cols);
            differs = differs || memcmp(was, row, (size_t)weight->cols * sizeof *row) != 0;
            free(was);
        }
        if (differs) {
            weight->part_count = 1;
            weight->parts[0] =
                (sumi_weight_part){.data = rows, .dtype = SUMI_DTYPE_F32, .rows = weight->rows, .scale = 1.0f};
        } else {
            free(rows);
        }
    }
    float* merged = run_job(s->network, &j, 0, NULL, &error);
    for (size_t i = 0; i < count; i++) {
        sumi_weight* weight = (sumi_weight*)(uintptr_t)s->network->weights.weights[i];
        if (weight->parts[0].data != before[i].parts[0].data) free((void*)(uintptr_t)weight->parts[0].data);
        *weight = before[i];
    }
    free(before);
    CHECK(plain != NULL && changed != NULL && sliced != NULL && unchanged != NULL && merged != NULL);
    if (plain != NULL && changed != NULL && sliced != NULL && unchanged != NULL && merged != NULL) {
        CHECK(memcmp(plain, unchanged, size * sizeof *plain) == 0);
        CHECK(memcmp(changed, sliced, size * sizeof *plain) == 0);
        CHECK(distance(changed, merged, size) < 1e-5);
        CHECK(distance(plain, merged, size) > 1e-2);
        if (distance(changed, merged, size) >= 1e-5 || distance(plain, merged, size) <= 1e-2)
            printf("  %g from merged weights, which are %g from the model's\n", distance(changed, merged, size),
                   distance(plain, merged, size));
    }
    if (error.result != SUMI_OK) printf("  %s\n", error.text);
    free(plain), free(changed), free(sliced), free(unchanged), free(merged);
    sumi_adapter_close(files[0]);
    sumi_adapter_close(files[1]);
    close_scene(s);
}

// Two prompts with guidance in one job are the two jobs one by one, and slices do not change a bit.
TEST(batch_equals_single_jobs_and_slices_change_nothing)
{
    scene* s = open_scene();
    if (s->network == NULL) {
        close_scene(s);
        return;
    }
    const size_t size = 16 * 6 * 8;
    sumi_error error = {0};
    sumi_pipeline_prompt prompts[3] = {
        {.token_count = {s->counts[0]}}, {.token_count = {s->counts[1]}}, {.token_count = {s->counts[2]}}};
    sumi_pipeline_item items[3] = {{0, 2}, {1, 2}, {0, 2}};
    job j = {.r = {.prompts = prompts, .prompt_count = 3, .items = items, .item_count = 3, .width = 64, .height = 48},
             .ids = (const int32_t(*)[512])s->ids,
             .noise = s->noise};
    set_schedule(&j, s->network, SUMI_SOLVER_EULER, 4, 3.0f);
    j.guided[1] = j.guided[3] = false; // sections with and without take turns
    j.rows[1].guidance = j.rows[3].guidance = 0;
    uint8_t *bytes = NULL, *sliced_bytes = NULL;
    float *all = run_job(s->network, &j, 0, &bytes, &error),
          *sliced = run_job(s->network, &j, 3, &sliced_bytes, &error);
    CHECK(all != NULL && sliced != NULL && memcmp(all, sliced, 3 * size * sizeof *all) == 0);
    CHECK(bytes != NULL && sliced_bytes != NULL && memcmp(bytes, sliced_bytes, 3 * 64 * 48 * 3) == 0);
    for (int32_t i = 0; i < 3 && all != NULL; i++) {
        job one = j;
        int32_t single_ids[2][512];
        sumi_pipeline_prompt pair[2] = {prompts[items[i].positive], prompts[items[i].negative]};
        sumi_pipeline_item item = {0, 1};
        memcpy(single_ids[0], s->ids[items[i].positive], sizeof single_ids[0]);
        memcpy(single_ids[1], s->ids[items[i].negative], sizeof single_ids[1]);
        one.r.prompts = pair;
        one.r.prompt_count = 2;
        one.r.items = &item;
        one.r.item_count = 1;
        one.r.guided = one.guided;
        one.ids = (const int32_t(*)[512])single_ids;
        one.noise = s->noise + (size_t)i * size;
        float* x = run_job(s->network, &one, 0, NULL, &error);
        CHECK(x != NULL);
        if (x != NULL) CHECK(distance(all + (size_t)i * size, x, size) < 1e-5);
        free(x);
    }
    if (error.result != SUMI_OK) printf("  %s\n", error.text);
    free(all);
    free(sliced);
    free(bytes);
    free(sliced_bytes);
    close_scene(s);
}

// Every solver runs, and previews do not touch the result.
TEST(solvers_run_and_previews_change_nothing)
{
    static const sumi_solver solvers[] = {SUMI_SOLVER_EULER,        SUMI_SOLVER_HEUN,      SUMI_SOLVER_MIDPOINT,
                                          SUMI_SOLVER_DPMPP_2M,     SUMI_SOLVER_HEUN_FULL, SUMI_SOLVER_RK4,
                                          SUMI_SOLVER_RES_MULTISTEP};
    scene* s = open_scene();
    sumi_error error = {0};
    sumi_pipeline_prompt prompt = {.token_count = {s->counts[1]}};
    sumi_pipeline_item item = {0, -1};
    for (size_t i = 0; i < sizeof solvers / sizeof *solvers && s->network != NULL; i++) {
        job j = {
            .r = {.prompts = &prompt, .prompt_count = 1, .items = &item, .item_count = 1, .width = 64, .height = 48},
            .ids = (const int32_t(*)[512])(s->ids + 1),
            .noise = s->noise};
        set_schedule(&j, s->network, solvers[i], 5, 0);
        float* plain = run_job(s->network, &j, 0, NULL, &error);
        j.r.previews = true;
        float* shown = run_job(s->network, &j, 0, NULL, &error);
        CHECK(plain != NULL && shown != NULL);
        if (plain != NULL && shown != NULL) {
            CHECK(memcmp(plain, shown, 16 * 6 * 8 * sizeof *plain) == 0);
            for (size_t k = 0; k < 16 * 6 * 8; k++) CHECK(isfinite(plain[k]));
        }
        free(plain);
        free(shown);
    }
    if (error.result != SUMI_OK) printf("  %s\n", error.text);
    close_scene(s);
}

// Outside the mask an inpainted latent ends as the encoded start image; two items with the mode share one encoding.
TEST(inpainting_keeps_what_is_not_masked)
{
    scene* s = open_scene();
    static uint8_t pixels[48 * 64 * 3];
    static float mask[6 * 8];
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(i * 13 % 251);
    for (size_t i = 0; i < 48; i++) mask[i] = i % 8 < 4 ? 1.0f : 0.0f;
    sumi_error error = {0};
    sumi_pipeline_prompt prompt = {.token_count = {s->counts[1]}};
    sumi_pipeline_item items[2] = {{0, -1}, {0, -1}};
    job j = {.r = {.prompts = &prompt,
                   .prompt_count = 1,
                   .items = items,
                   .item_count = 2,
                   .width = 64,
                   .height = 48,
                   .starts_from_image = true,
                   .inpaints = true},
             .ids = (const int32_t(*)[512])(s->ids + 1),
             .noise = s->noise,
             .pixels = pixels,
             .mask = mask};
    if (s->network != NULL) {
        set_schedule(&j, s->network, SUMI_SOLVER_EULER, 3, 0);
        float* x = run_job(s->network, &j, 0, NULL, &error);
        CHECK(x != NULL);
        for (size_t k = 0; k < 16 * 48 && x != NULL; k++) {
            if (mask[k % 48] == 0.0f) CHECK(x[k] == x[16 * 48 + k]); // other noise, same kept region
            else CHECK(x[k] != x[16 * 48 + k]);
        }
        free(x);
    }
    if (error.result != SUMI_OK) printf("  %s\n", error.text);
    close_scene(s);
}

// Tiled decoding needs less memory, and away from the seams of a large picture it is close to the whole one.
TEST(tiles_bound_the_memory_of_decoding)
{
    sumi_network* network = open_path(GOLDEN "model");
    if (network == NULL) return;
    uint64_t arena[2] = {0, 0};
    for (int tiled = 0; tiled < 2; tiled++) {
        sumi_plan plan;
        sumi_error error = {0};
        sumi_plan_begin(&plan, &t_heap, 4);
        sumi_plan_section(&plan, SUMI_SECTION_DECODE, 1, 0);
        sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_FLOAT, 16, 96 * 96),
                   picture = sumi_plan_bound(&plan, "picture", SUMI_ELEMENT_ACTIVATION, 768 * 768, 3);
        network->recipe->autoencoder->write_decode(network->autoencoder, &plan, x, 96, 96, tiled ? 16 : 0, picture);
        CHECK_NUMBER(sumi_plan_finish(&plan, &error), SUMI_OK);
        CHECK_NUMBER(sumi_plan_validate(&plan, &error), SUMI_OK);
        CHECK_TEXT(error.text, "");
        arena[tiled] = plan.arena_bytes - (uint64_t)768 * 768 * 3 * 4;
        sumi_plan_end(&plan);
    }
    CHECK(arena[1] * 8 < arena[0]);
    sumi_network_close(network);
}

TEST(requests_that_make_no_sense_are_refused)
{
    sumi_network* network = open_path(GOLDEN "model");
    if (network == NULL) return;
    sumi_pipeline_prompt prompt = {.token_count = {9}};
    sumi_pipeline_item item = {0, -1};
    bool guided[2] = {true, true};
    const sumi_pipeline_request good = {.prompts = &prompt,
                                        .prompt_count = 1,
                                        .items = &item,
                                        .item_count = 1,
                                        .width = 64,
                                        .height = 48,
                                        .evaluation_count = 2};
    for (int i = 0; i < 16; i++) {
        sumi_pipeline_request r = good;
        sumi_pipeline_prompt p = prompt;
        sumi_pipeline_item one = item;
        r.prompts = &p;
        r.items = &one;
        switch (i) {
        case 0: r.width = 0; break;
        case 1: r.width = 40; break;
        case 2: r.height = 1 << 20; break;
        case 3: r.evaluation_count = 0; break;
        case 4: r.item_count = 0; break;
        case 5: r.item_count = 1 << 30; break;
        case 6: one.positive = 1; break;
        case 7: r.guided = guided; break; // and no negative prompt
        case 8: p.token_count[0] = 0; break;
        case 9: p.token_count[0] = INT32_MAX; break;
        case 10: r.prompt_count = 0; break;
        case 11: r.prompt_count = 1 << 20; break;
        case 12: r.inpaints = true; break;
        case 13: r.tile_latent = 6; break;
        case 14: one.positive = -1; break;
        default: r.evaluation_count = INT32_MAX; break;
        }
        sumi_plan plan;
        sumi_pipeline pipeline;
        sumi_error error = {0};
        sumi_plan_begin(&plan, &t_heap, 4);
        sumi_result result = sumi_pipeline_write(network, &r, &plan, &pipeline, &error);
        if (result != SUMI_INVALID_ARGUMENT) printf("  request %d: result %d, \"%s\"\n", i, (int)result, error.text);
        CHECK(result == SUMI_INVALID_ARGUMENT && error.text[0] != 0);
        sumi_plan_end(&plan);
    }
    sumi_network_close(network);
}

TEST(prompts_are_templated_and_cut_at_512_tokens)
{
    sumi_network* network = open_path(GOLDEN "model");
    if (network == NULL) return;
    static char text[8000];
    int32_t ids[600], count = 0, first[512], short_count = 0;
    sumi_error error = {0};
    memset(text, 'x', sizeof text);
    for (size_t i = 0; i < sizeof text; i += 2) text[i] = ' ';
    CHECK_NUMBER(sumi_network_tokenise(network, 0, text, sizeof text, ids, 600, &count, &error), SUMI_OK);
    CHECK_NUMBER(count, 512);
    CHECK_NUMBER(sumi_network_tokenise(network, 0, text, sizeof text, first, 3, &short_count, &error), SUMI_OK);
    CHECK_NUMBER(short_count, 3);
    CHECK(memcmp(ids, first, 3 * sizeof *ids) == 0);
    CHECK_NUMBER(sumi_network_tokenise(network, 0, NULL, 0, ids, 600, &count, &error), SUMI_OK);
    CHECK(count >= 8);
    CHECK_NUMBER(sumi_network_tokenise(network, 1, "a", 1, ids, 600, &count, &error), SUMI_INVALID_ARGUMENT);
    sumi_network_close(network);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&t_heap, NULL);
    sumi_error error = {0};
    if (sumi_workers_create(&t_heap, NULL, 1, &error, &t_workers) != SUMI_OK
        || sumi_cpu_create(&t_heap, t_workers, SUMI_CPU_AUTO, &error, &t_runner) != SUMI_OK) {
        printf("%s\n", error.text);
        return 1;
    }
    RUN(network_opens_the_released_layout_and_says_what_it_is);
    RUN(schedulers_of_all_families_become_rules);
    RUN(schedulers_that_are_not_these_are_refused);
    RUN(presets_are_what_the_authors_say);
    RUN(network_opens_within_its_budget_and_can_be_cancelled_at_every_step);
    RUN(network_opens_parts_given_one_by_one);
    RUN(network_opens_a_transformer_alone_and_refuses_what_it_lacks);
    RUN(network_refuses_what_is_not_a_model_it_runs);
    RUN(vae_with_ldm_names_decodes_and_encodes_the_same);
    RUN(vae_without_config_is_held_to_the_released_groups);
    RUN(text_encoder_opens_with_bare_and_with_llama_cpp_names);
    RUN(all_in_one_file_gives_the_bits_of_its_parts);
    RUN(every_missing_or_misshapen_tensor_of_the_transformer_is_named);
    RUN(every_missing_or_misshapen_tensor_of_the_vae_is_named);
    RUN(every_missing_or_misshapen_tensor_of_the_text_encoder_is_named);
    RUN(every_failing_allocation_is_survived);
    RUN(adapter_names_of_every_program_are_understood);
    RUN(adapter_metadata_gives_alpha_per_module_and_rank_stabilised_scales);
    RUN(adapter_config_beside_the_file_gives_scales);
    RUN(adapter_with_the_same_change_twice_is_applied_once);
    RUN(lokr_factors_become_the_change_that_they_describe);
    RUN(files_of_a_trainer_are_read_whole);
    RUN(adapter_that_does_not_fit_is_refused_by_name);
    RUN(lokr_and_changed_norms_give_the_picture_of_merged_weights);
    RUN(batch_equals_single_jobs_and_slices_change_nothing);
    RUN(solvers_run_and_previews_change_nothing);
    RUN(inpainting_keeps_what_is_not_masked);
    RUN(tiles_bound_the_memory_of_decoding);
    RUN(requests_that_make_no_sense_are_refused);
    RUN(prompts_are_templated_and_cut_at_512_tokens);
    t_runner->functions->destroy(t_runner);
    sumi_workers_destroy(t_workers);
    if (t_folder[0] != 0) {
        static const char* const files[] = {"vae/ae.safetensors",
                                            "vae/config.json",
                                            "vae",
                                            "bare/ae.safetensors",
                                            "bare",
                                            "bare_te/model.safetensors",
                                            "bare_te/config.json",
                                            "bare_te",
                                            "llama_te/model.safetensors",
                                            "llama_te/config.json",
                                            "llama_te",
                                            "broken.safetensors",
                                            "all.safetensors",
                                            "adapter.safetensors",
                                            "peft.safetensors",
                                            "peft/adapter_model.safetensors",
                                            "peft/adapter_config.json",
                                            "peft",
                                            "twice.safetensors",
                                            "lokr.safetensors",
                                            "lokr/adapter_model.safetensors",
                                            "lokr/adapter_config.json",
                                            "lokr",
                                            "all_changed.safetensors",
                                            "norms.safetensors",
                                            "wrong.safetensors",
                                            "alone/text.safetensors",
                                            "alone",
                                            "broken/config.json",
                                            "broken"};
        for (size_t i = 0; i < sizeof files / sizeof *files; i++) system_remove(scratch(files[i]));
        system_remove(t_folder);
    }
    if (atomic_load(&t_heap.held) != 0) {
        printf("test_models: the library still holds %llu bytes\n", (unsigned long long)atomic_load(&t_heap.held));
        t_failed++;
    }
    TEST_END();
}
