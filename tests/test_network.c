// Networks open in steps, from folders and from parts, and say what they are; schedulers and presets; what is refused;
// every allocation fails.
#include "at_once.h"
#include "failing.h"
#include "models/config.h"
#include "models/flux_dit.h"
#include "models/network_state.h"
#include "models/pipeline.h"
#include "network_fixture.h"
#include "sampling/schedule.h"
#include "system.h"
#include <stdatomic.h>

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
    CHECK(info->packing == 1 && info->preview == sumi_preview_flux() && info->tile_latent == 128);
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
    sumi_result result = sumi_file_open(&file, &s_heap, NULL, path, error);
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
    // numbers that no file has stay where the file says that the shift moves, whatever else it says
    rule = sumi_scheduler_defaults();
    rule.kind = SUMI_SHIFT_EMPIRICAL;
    rule.empirical.few = (sumi_shift_line){1e-4, 2.0};
    rule.empirical.many = (sumi_shift_line){2e-4, 0.5};
    rule.empirical.few_steps = 10;
    rule.empirical.many_steps = 200;
    const sumi_sigma_rule known = rule;
    CHECK_NUMBER(read_scheduler("tests/golden/qwen-image/model/scheduler/scheduler_config.json", &rule, &error),
                 SUMI_OK);
    CHECK(rule.kind == SUMI_SHIFT_EMPIRICAL && rule.terminal == 0.02f
          && memcmp(&rule.empirical, &known.empirical, sizeof known.empirical) == 0);
    rule = known;
    CHECK_NUMBER(read_scheduler("tests/golden/z-image/model/scheduler/scheduler_config.json", &rule, &error), SUMI_OK);
    CHECK(rule.kind == SUMI_SHIFT_STATIC && rule.shift == 3.0f);
    CHECK_TEXT(error.text, "");
}

TEST(schedulers_that_are_not_these_are_refused)
{
    static const struct {
        const char *json, *says;
        sumi_result result;
    } s_cases[] = {
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
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        sumi_error error = {0};
        const sumi_sigma_rule before = sumi_scheduler_defaults();
        sumi_sigma_rule rule = before;
        CHECK_NUMBER(sumi_scheduler_read(s_cases[i].json, strlen(s_cases[i].json), "file.json", &rule, &error),
                     s_cases[i].result);
        CHECK(strstr(error.text, s_cases[i].says) != NULL);
        if (s_cases[i].result != SUMI_OK)
            CHECK(rule.kind == before.kind && rule.shift == before.shift && rule.terminal == before.terminal
                  && rule.dynamic.max_tokens == before.dynamic.max_tokens);
        if (i == 0) CHECK(rule.shift == 2.5f);
        if (i == 1) CHECK(rule.dynamic.curve == SUMI_CURVE_LINEAR && rule.kind == SUMI_SHIFT_DYNAMIC);
    }
}

// What diffusers 0.42.1 makes of these files for 4 steps and 4096 tokens, in Flux2KleinPipeline.
TEST(kleins_shift_stands_still_where_its_file_says_so)
{
    static const struct {
        const char* json;
        float sigmas[4];
        const char* refused; // NULL: not
    } s_cases[] = {
        {"{\"use_dynamic_shifting\": true, \"shift\": 7, \"base_shift\": 0.1, \"max_image_seq_len\": 9}",
         {1.0f, 0.9673840403556824f, 0.908143937587738f, 0.7671999335289001f},
         NULL},
        {"{\"use_dynamic_shifting\": false, \"shift\": 3.0, \"base_shift\": 0.5}", {1.0f, 0.9f, 0.75f, 0.5f}, NULL},
        {"{\"use_dynamic_shifting\": false, \"shift\": 1.5}",
         {1.0f, 0.8181818127632141f, 0.6f, 0.3333333432674408f},
         NULL},
        {"{\"use_dynamic_shifting\": false}", {1.0f, 0.75f, 0.5f, 0.25f}, NULL},
        {"{\"use_dynamic_shifting\": true, \"shift_terminal\": 0.02}",
         {1.0f, 0.8626991510391235f, 0.6133208274841309f, 0.019999980926513672f},
         NULL},
        {"{\"use_dynamic_shifting\": true, \"time_shift_type\": \"linear\"}",
         {1.0f, 0.8729923367500305f, 0.6961575746536255f, 0.4330187439918518f},
         NULL},
        // not as diffusers, which takes it for false: the authors' schedule is in no file, and a file that does not say
        // that it is another one does not replace it
        {"{\"shift\": 3.0}", {1.0f, 0.9673840403556824f, 0.908143937587738f, 0.7671999335289001f}, NULL},
        {"{\"use_dynamic_shifting\": false, \"shift\": 0}", {0}, "shift is 0"},
        {"{\"use_dynamic_shifting\": false, \"shift\": -2.5}", {0}, "shift is -2.5"},
        {"{\"use_dynamic_shifting\": false, \"shift\": \"3\"}", {0}, "expected a number"},
        {"{\"use_dynamic_shifting\": \"no\"}", {0}, "expected true or false"},
        {"{\"use_dynamic_shifting\": true, \"shift_terminal\": 1}", {0}, "terminal sigma is 1"},
        {"{\"_class_name\": \"EulerDiscreteScheduler\"}", {0}, "EulerDiscreteScheduler"},
        {"{\"use_dynamic_shifting\": ", {0}, "scheduler_config.json"},
    };
    system_make_folder(scratch("klein"));
    system_make_folder(scratch("klein/scheduler"));
    write_file(scratch("klein/model_index.json"), "{\"is_distilled\": true}", 22);
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        write_file(scratch("klein/scheduler/scheduler_config.json"), s_cases[i].json, strlen(s_cases[i].json));
        const sumi_network_desc desc = {.path = scratch("klein"),
                                        .transformer_path = "tests/golden/flux2-klein/model/transformer",
                                        .vae_path = "tests/golden/flux2-klein/model/vae",
                                        .without_text_encoder = true};
        sumi_error error = {0};
        sumi_network* network = NULL;
        const sumi_result result = open_all(&s_heap, &desc, &error, &network);
        CHECK((result == SUMI_OK) == (s_cases[i].refused == NULL));
        if (s_cases[i].refused != NULL) {
            CHECK(strstr(error.text, s_cases[i].refused) != NULL
                  && strstr(error.text, "scheduler_config.json") != NULL);
            continue;
        }
        CHECK_TEXT(error.text, "");
        if (network == NULL) continue;
        float sigmas[5];
        CHECK_NUMBER(sumi_schedule_write(&sumi_network_get_info(network)->sigmas, 4096, 4, sigmas, &error), SUMI_OK);
        for (int k = 0; k < 4; k++) CHECK_NEAR((double)sigmas[k], (double)s_cases[i].sigmas[k], 3e-7, 0);
        CHECK(sigmas[4] == 0.0f);
        sumi_network_close(network);
    }
}

// Only the name of the pipeline tells the model that keeps keys and values of references; a caller's word counts more.
TEST(kleins_variants_are_told_by_the_index_or_by_the_caller)
{
    static const struct {
        const char *index, *variant, *found; // found NULL: refused
        bool keeps;
    } s_cases[] = {
        {"{\"_class_name\": \"Flux2KleinKVPipeline\", \"is_distilled\": true}", NULL, "kv", true},
        {"{\"_class_name\": \"Flux2KleinKVPipeline\"}", NULL, "kv", true},
        {"{\"_class_name\": \"Flux2KleinKVPipeline\"}", "distilled", "distilled", false},
        {"{\"_class_name\": \"Flux2KleinPipeline\", \"is_distilled\": true}", NULL, "distilled", false},
        {"{\"_class_name\": \"Flux2KleinPipeline\", \"is_distilled\": true}", "kv", "kv", true},
        {"{\"_class_name\": \"Flux2KleinPipeline\"}", NULL, "base", false},
        {"{\"_class_name\": \"Flux2KleinPipeline\"}", "9b-kv", NULL, false},
    };
    system_make_folder(scratch("klein"));
    system_make_folder(scratch("klein/scheduler"));
    write_file(scratch("klein/scheduler/scheduler_config.json"), "{\"use_dynamic_shifting\": true}", 30);
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        write_file(scratch("klein/model_index.json"), s_cases[i].index, strlen(s_cases[i].index));
        const sumi_network_desc desc = {.path = scratch("klein"),
                                        .transformer_path = "tests/golden/flux2-klein/model/transformer",
                                        .vae_path = "tests/golden/flux2-klein/model/vae",
                                        .variant = s_cases[i].variant,
                                        .without_text_encoder = true};
        sumi_error error = {0};
        sumi_network* network = NULL;
        const sumi_result result = open_all(&s_heap, &desc, &error, &network);
        CHECK((result == SUMI_OK) == (s_cases[i].found != NULL));
        if (s_cases[i].found == NULL) CHECK(strstr(error.text, "kv") != NULL && strstr(error.text, "base") != NULL);
        if (network == NULL) continue;
        const sumi_network_info* info = sumi_network_get_info(network);
        const sumi_flux_dit* transformer = network->denoiser;
        CHECK_TEXT(info->variant, s_cases[i].found);
        CHECK(transformer->settings->keeps_references == s_cases[i].keeps);
        CHECK_NUMBER(info->presets[SUMI_PRESET_MODEL].step_count, strcmp(info->variant, "base") == 0 ? 50 : 4);
        CHECK(info->ignores_guidance == (strcmp(info->variant, "base") != 0));
        sumi_network_close(network);
    }
}

#define QWEN_21 "tests/golden/qwen-image-21/"

TEST(qwen_image_21_is_turbo_where_its_folder_lists_sigmas)
{
    static const struct {
        const char *index, *variant, *refused;
        int32_t steps; // of the list; 0: the base's schedule
    } s_cases[] = {
        {"{}", NULL, NULL, 0},
        {"{\"sample_sigmas\": null}", NULL, NULL, 0},
        {"{\"sample_sigmas\": []}", NULL, NULL, 0},
        {"{\"sample_sigmas\": [1.0, 0.5]}", NULL, NULL, 2},
        {"{\"sample_sigmas\": [1.0, 0.5]}", "base", NULL, 0},
        {"{}", "turbo", NULL, 8},
        {"{\"sample_sigmas\": [0.5, 1.0]}", NULL, "sigma 1 of the list is 1", 0},
        {"{\"sample_sigmas\": [1.0, \"a\"]}", NULL, "not a list of up to 64 numbers", 0},
        {"{\"sample_sigmas\": 8}", NULL, "not a list of up to 64 numbers", 0},
    };
    system_make_folder(scratch("qwen21"));
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        write_file(scratch("qwen21/model_index.json"), s_cases[i].index, strlen(s_cases[i].index));
        const sumi_network_desc desc = {.path = scratch("qwen21"),
                                        .transformer_path = QWEN_21 "model/transformer",
                                        .vae_path = QWEN_21 "model/vae",
                                        .variant = s_cases[i].variant,
                                        .without_text_encoder = true};
        sumi_error error = {0};
        sumi_network* network = NULL;
        const sumi_result result = open_all(&s_heap, &desc, &error, &network);
        CHECK_NUMBER(result, s_cases[i].refused != NULL ? SUMI_FILE_MALFORMED : SUMI_OK);
        if (s_cases[i].refused != NULL) CHECK(strstr(error.text, s_cases[i].refused) != NULL);
        else CHECK_TEXT(error.text, "");
        if (network == NULL) continue;
        const sumi_network_info* info = sumi_network_get_info(network);
        const int32_t steps = s_cases[i].steps;
        CHECK_TEXT(info->family, "qwen-image-2.1");
        CHECK_TEXT(info->variant, steps > 0 ? "turbo" : "base");
        CHECK_NUMBER(sumi_sigma_rule_steps(&info->sigmas), steps);
        CHECK(steps > 0 || (info->sigmas.kind == SUMI_SHIFT_DYNAMIC && info->sigmas.terminal == 0.02f));
        for (int k = 0; k < SUMI_PRESET_COUNT; k++)
            CHECK(steps > 0 ? info->presets[k].step_count == steps : info->presets[k].guidance == 1.0f);
        CHECK(steps > 0 || info->presets[SUMI_PRESET_MODEL].step_count == 40);
        CHECK(info->size_multiple == 32 && info->vae_factor == 16 && info->preview_scale == 2);
        CHECK(info->preview != NULL && info->prompts_place_references && !info->ignores_guidance);
        sumi_network_close(network);
    }
}

TEST(authors_of_turbo_cannot_have_another_number_of_steps)
{
    static const char s_index[] = "{\"sample_sigmas\": [1.0, 0.5], \"sumi\": {\"steps\": 4}}";
    write_file(scratch("qwen21/model_index.json"), s_index, sizeof s_index - 1);
    const sumi_network_desc desc = {.path = scratch("qwen21"),
                                    .transformer_path = QWEN_21 "model/transformer",
                                    .vae_path = QWEN_21 "model/vae",
                                    .without_text_encoder = true};
    sumi_error error = {0};
    sumi_network* network = NULL;
    CHECK_NUMBER(open_all(&s_heap, &desc, &error, &network), SUMI_OK);
    if (network == NULL) return;
    CHECK_NUMBER(sumi_network_get_info(network)->presets[SUMI_PRESET_MODEL].step_count, 2);
    CHECK(strstr(sumi_network_get_info(network)->preset_fault, "give 2 to 2") != NULL);
    sumi_network_close(network);
}

// The vision tower reads the pixels that the autoencoder reads, in the size that the authors' rule gives.
TEST(qwen_image_21_reads_references_in_one_size)
{
    static const struct {
        sumi_picture_size picture, size;
    } s_cases[] = {{{1920, 1080}, {1376, 768}}, {{2048, 2048}, {1024, 1024}}, {{64, 64}, {1024, 1024}}};
    sumi_network* network = open_path(QWEN_21 "model");
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases && network != NULL; i++) {
        sumi_reference_sizes sizes;
        sumi_error error = {0};
        CHECK_NUMBER(sumi_network_reference_sizes(network, s_cases[i].picture, &sizes, &error), SUMI_OK);
        const sumi_picture_size all[] = {sizes.resized, sizes.autoencoder, sizes.first, sizes.vision};
        for (int k = 0; k < 4; k++)
            CHECK(all[k].width == s_cases[i].size.width && all[k].height == s_cases[i].size.height);
        CHECK_NUMBER(sizes.tokens, s_cases[i].size.width / 32 * (s_cases[i].size.height / 32));
    }
    sumi_network_close(network);
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
        CHECK_NUMBER(open_all(&s_heap, &desc, &error, &network), SUMI_OK);
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
    uint64_t held = atomic_load(&s_heap.allocated_bytes);
    int steps = 1000;
    for (int stop = 0; stop <= steps; stop++) {
        sumi_error error = {0};
        sumi_network* network = NULL;
        CHECK_NUMBER(
            sumi_network_open_begin(&s_heap, NULL, &(sumi_network_desc){.path = GOLDEN "model"}, &error, &network),
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
        CHECK_NUMBER(atomic_load(&s_heap.allocated_bytes), held);
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
    CHECK_NUMBER(open_all(&s_heap, &desc, &error, &network), SUMI_OK);
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
    CHECK_NUMBER(read_prompt(network, 0, &(sumi_prompt_text){.text = "a", .bytes = 1},
                             &(sumi_prompt_ids){ids, 512, NULL}, &count, &error),
                 SUMI_NOT_SUPPORTED);
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
    sumi_plan_begin(&plan, &s_heap, 4);
    error = (sumi_error){0};
    CHECK_NUMBER(sumi_pipeline_write(network, &r, &plan, &p, &error), SUMI_NOT_SUPPORTED);
    CHECK(strstr(error.text, "text encoder") != NULL);
    prompt.has_features = true;
    error = (sumi_error){0};
    CHECK_NUMBER(sumi_pipeline_write(network, &r, &plan, &p, &error), SUMI_NOT_SUPPORTED);
    CHECK(strstr(error.text, "VAE decoder") != NULL);
    error = (sumi_error){0};
    CHECK_NUMBER(sumi_pipeline_write_latents(network, &r, false, &plan, &p, &error), SUMI_OK);
    sumi_plan_end(&plan);
    sumi_network_close(network);
}

TEST(network_refuses_what_is_not_a_model_it_runs)
{
    sumi_error error = {0};
    sumi_network* network = NULL;
    CHECK_NUMBER(open_all(&s_heap, &(sumi_network_desc){.path = GOLDEN "nothing here"}, &error, &network),
                 SUMI_FILE_NOT_FOUND);
    error = (sumi_error){0};
    CHECK_NUMBER(open_all(&s_heap, &(sumi_network_desc){.path = GOLDEN "model/vae"}, &error, &network),
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
    CHECK_NUMBER(open_all(&s_heap, &desc, &error, &network), SUMI_FILE_NOT_FOUND); // no tokenizer
    CHECK(strstr(error.text, "tokenizer") != NULL);
    sumi_network_close(network);
    error = (sumi_error){0};
    desc = (sumi_network_desc){.path = GOLDEN "model", .vae_path = GOLDEN "single-file/z_image_turbo_bf16.safetensors"};
    CHECK_NUMBER(open_all(&s_heap, &desc, &error, &network), SUMI_MODEL_UNKNOWN);
    CHECK(strstr(error.text, "vae") != NULL);
    sumi_network_close(network);
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

// A folder with both ways to keep a LoKr, with a factor that is multiplied, and with a changed norm.
static void write_some_lokr(void)
{
    static const struct {
        const char* name;
        int64_t rows, cols;
    } s_stored[] = {
        {"lycoris_layers_0_attention_to_q.lokr_w1", 8, 8},   {"lycoris_layers_0_attention_to_q.lokr_w2_a", 8, 2},
        {"lycoris_layers_0_attention_to_q.lokr_w2_b", 2, 8}, {"lycoris_layers_0_attention_to_k.lokr_w1_a", 8, 5},
        {"lycoris_layers_0_attention_to_k.lokr_w1_b", 5, 8}, {"lycoris_layers_0_attention_to_k.lokr_w2", 8, 8},
        {"lycoris_layers_0_attention_norm1.w_norm", 64, 1},  {"lycoris_layers_1_attention_q_norm.w_norm", 32, 1}};
    static const char s_json[] = "{\"lora_alpha\": 2, \"alpha_pattern\": {\"a\": 1}}";
    static float s_values[64];
    sumi_tensor tensors[sizeof s_stored / sizeof *s_stored];
    for (size_t i = 0; i < sizeof s_stored / sizeof *s_stored; i++)
        tensors[i] = (sumi_tensor){.name = s_stored[i].name,
                                   .dtype = SUMI_DTYPE_F32,
                                   .rank = 2,
                                   .shape = {s_stored[i].rows, s_stored[i].cols},
                                   .data = s_values,
                                   .bytes = (uint64_t)(s_stored[i].rows * s_stored[i].cols) * 4};
    system_make_folder(scratch("lokr"));
    write_tensors(scratch("lokr/adapter_model.safetensors"), tensors, sizeof tensors / sizeof *tensors, NULL, 0);
    write_file(scratch("lokr/adapter_config.json"), s_json, sizeof s_json - 1);
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
            result = open_adapter_file(&heap, network, GOLDEN "lora/lora_peft.safetensors", &error, &adapter);
        if (result == SUMI_OK) result = open_adapter_file(&heap, network, scratch("lokr"), &error, &factors);
        int32_t ids[512], count = 0;
        if (result == SUMI_OK)
            result = read_prompt(network, 0, &(sumi_prompt_text){.text = "a red fox", .bytes = 9},
                                 &(sumi_prompt_ids){ids, 512, NULL}, &count, &error);
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

TEST(tiles_are_halved_in_latents_of_the_autoencoder)
{
    // the tiles of a network with this side and packing, as they are tried
    static const struct {
        int32_t tile_latent, packing, tiles[6];
    } s_cases[] = {{128, 1, {128, 64, 32, 16, 0}},
                   {64, 2, {64, 32, 16, 8, 0}},
                   {0, 1, {128, 64, 32, 16, 0}},
                   {0, 2, {64, 32, 16, 8, 0}},
                   {44, 1, {44, 16, 0}},
                   {22, 2, {22, 8, 0}},
                   {12, 1, {0}},
                   {6, 2, {0}}};
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        const sumi_network_info info = {.tile_latent = s_cases[i].tile_latent, .packing = s_cases[i].packing};
        int32_t tile = 0;
        for (int k = 0; k == 0 || tile > 0; k++) {
            tile = sumi_network_smaller_tile(&info, tile);
            CHECK_NUMBER(tile, s_cases[i].tiles[k]);
            CHECK_NUMBER(tile * info.packing % 4, 0);
        }
    }
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    if (!begin_cpu(1)) return 1;
    RUN(network_opens_the_released_layout_and_says_what_it_is);
    RUN(schedulers_of_all_families_become_rules);
    RUN(schedulers_that_are_not_these_are_refused);
    RUN(kleins_shift_stands_still_where_its_file_says_so);
    RUN(kleins_variants_are_told_by_the_index_or_by_the_caller);
    RUN(qwen_image_21_is_turbo_where_its_folder_lists_sigmas);
    RUN(authors_of_turbo_cannot_have_another_number_of_steps);
    RUN(qwen_image_21_reads_references_in_one_size);
    RUN(presets_are_what_the_authors_say);
    RUN(network_opens_within_its_budget_and_can_be_cancelled_at_every_step);
    RUN(network_opens_parts_given_one_by_one);
    RUN(network_opens_a_transformer_alone_and_refuses_what_it_lacks);
    RUN(network_refuses_what_is_not_a_model_it_runs);
    RUN(every_failing_allocation_is_survived);
    RUN(tiles_are_halved_in_latents_of_the_autoencoder);
    end_networks();
    TEST_END();
}
