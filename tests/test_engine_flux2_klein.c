// What FLUX.2 [klein] alone has, through the public functions, with the tiny checkpoint: guidance depends on the
// variant, texts always have 512 rows, the first reference gives the size of the picture, and one variant computes
// references once per job. What holds for every
// family is in test_families.c and test_family_jobs.c.
#include "family_fixture.h"
#include "jobs/engine_state.h"
#include "models/flux_dit.h"

// The base model has the files of the distilled one here: who opens it says which it is.
static sumi_model* load_base(sumi_engine* engine) { return load_family(engine, find_family("flux2-klein-base")); }

// ---- What the model says --------------------------------------------------------------------------------------------

TEST(facts_and_presets_are_the_authors)
{
    OPEN_ROW("flux2-klein", engine, model);
    const sumi_model_info info = sumi_model_get_info(model);
    CHECK_TEXT(info.family, "flux2-klein");
    CHECK_TEXT(info.variant, "distilled");
    CHECK_TEXT(info.negative_text, "");
    CHECK(!info.uses_guidance && info.has_text_encoder && info.has_vae_encoder && info.takes_references);
    CHECK(info.guidance == 1.0f && info.guidance_off == 1.0f && info.ignores_guidance);
    CHECK_NUMBER(info.guidance_formula, SUMI_GUIDANCE_FROM_NEGATIVE);
    CHECK_NUMBER(info.guidance_rule, SUMI_GUIDANCE_PLAIN);
    CHECK_NUMBER(info.size_multiple, 16);
    const sumi_image_desc own = sumi_image_defaults(model, SUMI_PRESET_MODEL);
    CHECK_NUMBER(own.step_count, 4);
    CHECK(own.guidance.scale == 1.0f);
    sumi_prompt* prompt = encode_prompt(engine, model, "a red fox");
    CHECK_NUMBER(sumi_prompt_get_info(prompt).encoders[0].token_count, 512);
    sumi_prompt_release(prompt);

    sumi_model* base = load_base(engine);
    CHECK(base != NULL);
    if (base != NULL) {
        const sumi_model_info of_base = sumi_model_get_info(base);
        const sumi_image_desc desc = sumi_image_defaults(base, SUMI_PRESET_MODEL);
        CHECK_TEXT(of_base.variant, "base");
        CHECK(of_base.uses_guidance && !of_base.ignores_guidance && of_base.guidance == 4.0f
              && desc.guidance.scale == 4.0f);
        CHECK_NUMBER(desc.step_count, 50);
    }
    close_engine(engine);
}

// ---- Guidance -------------------------------------------------------------------------------------------------------

static int s_warnings;
static char s_warning[256];
static void count_warnings(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    (void)result, (void)user_data;
    if (level != SUMI_LOG_WARNING) return;
    s_warnings++;
    snprintf(s_warning, sizeof s_warning, "%s", text);
}

TEST(the_distilled_model_ignores_guidance_and_says_so)
{
    memset(&s_host, 0, sizeof s_host);
    sumi_engine_desc desc_of_engine = host_desc(&s_host);
    desc_of_engine.log = (sumi_log){count_warnings, NULL};
    sumi_engine* engine = open_engine(&desc_of_engine, NULL);
    sumi_model* model = load_family(engine, find_family("flux2-klein"));
    sumi_prompt* prompt = encode_prompt(engine, model, "a red fox");
    sumi_image_item item = {.prompt = prompt, .seed = 7};
    sumi_image_desc desc = small_image(model, &item);
    s_warnings = 0;
    const uint64_t plain = draw_hash(engine, &desc);
    CHECK_NUMBER(s_warnings, 0);
    desc.guidance.scale = 4.0f;
    CHECK(plain != 0 && draw_hash(engine, &desc) == plain);
    CHECK(s_warnings == 1 && strstr(s_warning, "guidance.scale 4") != NULL);
    item.negative_text = "grey";
    CHECK(draw_hash(engine, &desc) == plain);
    desc.guidance.scale = 1.0f;
    CHECK(draw_hash(engine, &desc) == plain);
    CHECK(s_warnings == 3 && strstr(s_warning, "items[0].negative_text is not used: this model") != NULL);

    item = (sumi_image_item){.text = "a red fox", .negative_text = "grey", .seed = 7};
    sumi_prompt_release(prompt);
    desc = small_image(load_base(engine), &item);
    desc.guidance.scale = 1.0f;
    CHECK(draw_hash(engine, &desc) == plain); // the same weights, and no guidance
    close_engine(engine);
}

// ---- References -----------------------------------------------------------------------------------------------------

TEST(the_first_reference_gives_the_size)
{
    static const uint8_t s_bytes[100 * 96 * 3];
    static const sumi_pixels s_pictures[3] = {
        {s_bytes, 100, 90, 0, 3}, {s_bytes, 80, 96, 0, 3}, {s_bytes, 100, 90, 0, 3}};
    OPEN_ROW("flux2-klein", engine, model);
    const sumi_image_item item = {.text = "swap them", .seed = 3};
    sumi_image_desc desc = small_image(model, &item);
    desc.references = s_pictures;
    desc.reference_count = 2;
    desc.width = desc.height = 0;
    sumi_size size;
    CHECK_NUMBER(sumi_image_size(&desc, &size), SUMI_OK);
    CHECK(size.width == 96 && size.height == 80); // cropped to multiples of 16
    desc.references = s_pictures + 1;
    CHECK_NUMBER(sumi_image_size(&desc, &size), SUMI_OK);
    CHECK(size.width == 80 && size.height == 96);
    close_engine(engine);
}

// As the reference makes them of a picture to inpaint: shrunk to 1024 x 1024 pixels, then cut down to multiples of 16.
TEST(the_picture_that_is_repainted_gives_the_size)
{
    static const int32_t s_sizes[][4] = {{1308, 2252, 768, 1328},  {1958, 978, 1440, 720},   {1440, 900, 1280, 800},
                                         {1920, 1080, 1360, 768},  {3000, 2000, 1248, 832},  {4032, 3024, 1168, 880},
                                         {1025, 1024, 1024, 1008}, {1024, 1024, 1024, 1024}, {70, 54, 64, 48}};
    OPEN_ROW("flux2-klein", engine, model);
    uint8_t* white = calloc((size_t)4032 * 3024, 3);
    const sumi_image_item item = {.text = "a robot", .seed = 3};
    sumi_image_desc desc = small_image(model, &item);
    for (size_t i = 0; i < sizeof s_sizes / sizeof *s_sizes; i++) {
        const int32_t* s = s_sizes[i];
        const sumi_pixels picture = {white, s[0], s[1], 0, 3}, mask = {white, 16, 16, 0, 1};
        sumi_size size = {0, 0};
        desc.start.image = &picture;
        desc.start.mask = &mask;
        desc.width = desc.height = 0;
        CHECK_NUMBER(sumi_image_size(&desc, &size), SUMI_OK);
        CHECK_NUMBER(size.width, s[2]);
        CHECK_NUMBER(size.height, s[3]);
        desc.width = 2048, desc.height = 1536; // a size that is given counts more
        CHECK_NUMBER(sumi_image_size(&desc, &size), SUMI_OK);
        CHECK(size.width == 2048 && size.height == 1536);
    }
    free(white);
    close_engine(engine);
}

// ---- References that are kept ---------------------------------------------------------------------------------------

// Draws without references and with two. 0 after a failure.
static void draw_both(const char* row, uint32_t slice_us, uint64_t hashes[2])
{
    sumi_model* model;
    s_family = find_family(row);
    sumi_engine* engine = open_family_with(slice_us, &model);
    hashes[0] = hashes[1] = 0;
    if (model == NULL) return;
    sumi_prompt* prompt = encode_prompt(engine, model, "a red fox");
    const sumi_image_item item = {.prompt = prompt, .seed = 7};
    sumi_image_desc desc = family_image(model, &item);
    for (int i = 0; i < 2; i++) {
        use_references(&desc, 2 * i);
        hashes[i] = draw_hash(engine, &desc);
        CHECK(hashes[i] != 0);
    }
    sumi_prompt_release(prompt);
    close_engine(engine);
}

static const sumi_plan* newest_plan(const sumi_engine* engine)
{
    const sumi_plan_entry* newest = NULL;
    for (int i = 0; i < SUMI_PLAN_CACHE_SIZE; i++) {
        const sumi_plan_entry* entry = &engine->cache.entries[i];
        if (entry->model != NULL && (newest == NULL || entry->used > newest->used)) newest = entry;
    }
    return &newest->plan;
}

// Rows of the value of that name; of several, the first. 0: there is none.
static int32_t rows_of(const sumi_plan* plan, const char* name)
{
    for (size_t i = 0; i < plan->value_count; i++)
        if (plan->values[i].name != NULL && strcmp(plan->values[i].name, name) == 0) return plan->values[i].rows;
    return 0;
}

static double flops_of(const sumi_plan* plan, sumi_section_kind kind)
{
    double flops = 0;
    for (size_t i = 0; i < plan->op_count; i++)
        if (plan->sections[plan->ops[i].section].kind == kind) flops += plan->ops[i].flops;
    return flops;
}

// A step reads what was kept and computes no rows of references: it differs from a step without them in its attention.
// In slices of another length the images have the same bits, and without references they are the distilled model's.
TEST(references_are_computed_once_per_job_and_their_memory_is_counted)
{
    OPEN_ROW("flux2-klein-kv", engine, model);
    const sumi_model_info info = sumi_model_get_info(model);
    CHECK_TEXT(info.variant, "kv");
    CHECK(info.ignores_guidance && info.takes_references && info.guidance == 1.0f);
    CHECK_NUMBER(sumi_image_defaults(model, SUMI_PRESET_MODEL).step_count, 4);
    sumi_prompt* prompt = encode_prompt(engine, model, "a red fox");
    const sumi_image_item item = {.prompt = prompt, .seed = 7};
    sumi_image_desc desc = family_image(model, &item);
    sumi_memory none, two;
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &none), SUMI_OK);
    uint64_t kept_hashes[2] = {draw_hash(engine, &desc), 0}, distilled[2], in_slices[2];
    const double without = flops_of(newest_plan(engine), SUMI_SECTION_DENOISE);
    CHECK_NUMBER(rows_of(newest_plan(engine), "kept"), 0);
    use_references(&desc, 2);
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &two), SUMI_OK);
    kept_hashes[1] = draw_hash(engine, &desc);
    const long long allocations = s_host.count;
    CHECK(kept_hashes[1] != 0 && draw_hash(engine, &desc) == kept_hashes[1]);
    CHECK_NUMBER(s_host.count, allocations);
    CHECK_NUMBER(sumi_engine_get_info(engine).held_bytes[SUMI_MEMORY_ARENA], two.arena);
    const sumi_plan* plan = newest_plan(engine);
    const int32_t rows = rows_of(plan, "kept");
    CHECK_NUMBER(rows, 2 * 4 * 4);
    CHECK_NUMBER(plan->arena_bytes, two.arena);
    const sumi_flux_dit* transformer = model->network->denoiser;
    const int32_t blocks = transformer->double_count + transformer->single_count;
    // 2 flops for q k^T and 2 for p v. In the last block the text has queries too (flux_dit.h).
    const double step = flops_of(plan, SUMI_SECTION_DENOISE), text = 512, all = text + 9,
                 more = 4.0 * transformer->dim * all * (rows * (double)blocks + text);
    CHECK_NEAR(step - without, more, 0, 1e-9);
    // k and v of every block live as long as the steps do
    size_t kept = 0;
    for (size_t i = 0; i < plan->value_count; i++) {
        if (plan->values[i].name == NULL || strcmp(plan->values[i].name, "kept") != 0) continue;
        CHECK(plan->values[i].rows == rows && plan->values[i].cols == 2 * transformer->dim);
        kept++;
    }
    CHECK_NUMBER(kept, blocks);
    CHECK(two.arena >= (uint64_t)kept * (uint64_t)rows * 2 * (uint64_t)transformer->dim * sizeof(float));
    CHECK(two.arena > none.arena);
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, two.arena / 2), SUMI_OK);
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &none), SUMI_BUDGET_TOO_SMALL);
    CHECK(strstr(s_host.log, " bytes") != NULL);
    sumi_prompt_release(prompt);
    close_engine(engine);
    draw_both("flux2-klein-kv", 50, in_slices);
    draw_both("flux2-klein", 2000, distilled);
    CHECK(in_slices[0] == kept_hashes[0] && in_slices[1] == kept_hashes[1]);
    CHECK(distilled[0] == kept_hashes[0] && distilled[1] != kept_hashes[1]);
}

// ---- What is refused ------------------------------------------------------------------------------------------------

TEST(components_that_the_family_lacks_are_refused)
{
    OPEN_ROW("flux2-klein", engine, model);
    sumi_model_desc desc = family_desc(s_family);
    desc.text_encoder_2_path = FAMILY_FOLDER("flux2-klein") "model/text_encoder";
    sumi_job job;
    sumi_model* none = NULL;
    sumi_result result = sumi_submit_model(engine, &desc, &job);
    if (result == SUMI_OK) {
        sumi_job_wait(engine, job, SUMI_FOREVER);
        result = sumi_fetch_model(engine, job, &none);
    }
    CHECK(result != SUMI_OK && none == NULL);
    CHECK(model != NULL);
    close_engine(engine);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(facts_and_presets_are_the_authors);
    RUN(the_distilled_model_ignores_guidance_and_says_so);
    RUN(the_first_reference_gives_the_size);
    RUN(the_picture_that_is_repainted_gives_the_size);
    RUN(references_are_computed_once_per_job_and_their_memory_is_counted);
    RUN(components_that_the_family_lacks_are_refused);
    TEST_END();
}
