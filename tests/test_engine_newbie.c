// What NewBie-image alone has, through the public functions: two text encoders, one of which gives one row per prompt,
// so that modulation differs from prompt to prompt. What holds for every family is in test_families.c and
// test_family_jobs.c.
#include "family_fixture.h"
#include "files/json.h"
#include "files/tensors.h"
#include "jobs/engine_state.h"
#include "jobs/prompt.h"

#define NEWBIE "tests/golden/newbie/"
#define MARK "<Prompt Start>"
#define PLAIN                                                                                                          \
    "You are an assistant designed to generate high-quality anime images with the highest degree of image-text "       \
    "alignment based on textual prompts. " MARK " "
#define MARKUP                                                                                                         \
    "You are an assistant designed to generate high-quality anime images based on xml format prompts. " MARK " "
#define ITEM(words, number) ((sumi_image_item){.text = (words), .negative_text = "blurry", .seed = (number)})

// A small guided picture of four steps.
static sumi_image_desc small_newbie(sumi_model* model, const sumi_image_item* item)
{
    sumi_image_desc desc = small_image(model, item);
    desc.width = 48;
    desc.step_count = 4;
    return desc;
}

// ---- What the model says --------------------------------------------------------------------------------------------

TEST(facts_and_presets_are_the_authors)
{
    OPEN_ROW("newbie", engine, model);
    const sumi_model_info info = sumi_model_get_info(model);
    CHECK_TEXT(info.family, "newbie-image");
    CHECK_TEXT(info.variant, "exp0.1");
    CHECK_TEXT(info.negative_text, "");
    CHECK(info.uses_guidance && info.has_text_encoder && info.has_vae_encoder && !info.takes_references);
    CHECK(info.guidance == 5.0f && info.guidance_off == 1.0f);
    CHECK_NUMBER(info.guidance_formula, SUMI_GUIDANCE_FROM_NEGATIVE);
    CHECK_NUMBER(info.guidance_rule, SUMI_GUIDANCE_NORM_LIMIT);
    CHECK_NUMBER(info.size_multiple, 16);
    CHECK_NUMBER(info.latent_channels, 16);
    CHECK_NUMBER(info.native_size, 1024);
    CHECK_NUMBER(info.max_prompt_tokens, 512);
    CHECK(info.sizes[0].width == 1024 && info.sizes[0].height == 1024 && info.size_count == 51);
    for (int32_t i = 0; i < info.size_count; i++) {
        CHECK(info.sizes[i].width % 64 == 0 && info.sizes[i].height % 64 == 0);
        for (int32_t k = 0; k < i; k++)
            CHECK(info.sizes[i].width != info.sizes[k].width || info.sizes[i].height != info.sizes[k].height);
    }
    static const struct {
        sumi_preset preset;
        int32_t side, steps;
        float guidance, end;
        sumi_solver solver;
    } s_presets[] = {{SUMI_PRESET_MODEL, 1024, 17, 5.0f, 0.25f, SUMI_SOLVER_MIDPOINT},
                     {SUMI_PRESET_PREVIEW, 768, 12, 5.5f, 1.0f, SUMI_SOLVER_RES_MULTISTEP},
                     {SUMI_PRESET_STANDARD, 1024, 20, 5.5f, 1.0f, SUMI_SOLVER_RES_MULTISTEP},
                     {SUMI_PRESET_QUALITY, 1024, 27, 5.0f, 0.25f, SUMI_SOLVER_MIDPOINT},
                     {SUMI_PRESET_FAST, 1024, 8, 1.0f, 1.0f, SUMI_SOLVER_EULER}};
    for (size_t i = 0; i < sizeof s_presets / sizeof *s_presets; i++) {
        const sumi_image_desc desc = sumi_image_defaults(model, s_presets[i].preset);
        CHECK(desc.width == s_presets[i].side && desc.height == s_presets[i].side);
        CHECK_NUMBER(desc.step_count, s_presets[i].steps);
        CHECK(desc.guidance.scale == s_presets[i].guidance && desc.guidance.end == s_presets[i].end);
        CHECK(desc.guidance.begin == 0.0f && desc.guidance.norm_limit == 0.0f && desc.shift == 0.0f);
        CHECK_NUMBER(desc.solver, s_presets[i].solver);
    }
    close_engine(engine);
}

// ---- The references' latents ----------------------------------------------------------------------------------------

#define XML_PROMPT                                                                                                     \
    "<character_1>\n<n>$character_1$</n>\n<gender>1girl</gender>\n<appearance>silver_hair, short_hair, green_eyes, "   \
    "freckles</appearance>\n<clothing>yellow_raincoat, rubber_boots</clothing>\n<expression>grin, "                    \
    "open_mouth</expression>\n<action>jumping, "                                                                       \
    "holding_umbrella</action>\n<position>center_left</position>\n</character_1>\n\n<general_tags>\n<count>1girl, "    \
    "solo</count>\n<style>anime_style, watercolor</style>\n<background>city_street, rain, "                            \
    "puddle</background>\n<atmosphere>cheerful</atmosphere>\n<quality>high_resolution, "                               \
    "detailed</quality>\n</general_tags>"
#define BAD "low_quality, worst_quality, blurry, bad_anatomy"
// in front of a negative text stands what is in front of the positive one
#define BAD_XML MARKUP BAD

typedef struct pipeline_case {
    const char *name, *text, *negative_text;
    sumi_solver solver;
    int32_t width, height;
    float guidance, guidance_end, norm_limit;
} pipeline_case;

static const pipeline_case s_cases[] = {
    {"pipe_euler", XML_PROMPT, BAD_XML, SUMI_SOLVER_EULER, 64, 64, 5.0f, 1.0f, 0.0f},
    {"pipe_euler_authors", "1boy, black_hair, red_eyes, holding_sword, night, moon", "", SUMI_SOLVER_EULER, 48, 80,
     4.0f, 1.0f, 1.0f},
    {"pipe_midpoint", XML_PROMPT, "", SUMI_SOLVER_MIDPOINT, 80, 48, 5.0f, 0.25f, 0.0f},
    {"pipe_res_multistep", XML_PROMPT, BAD_XML, SUMI_SOLVER_RES_MULTISTEP, 64, 64, 5.5f, 1.0f, 0.0f}};

static void check_pipeline(sumi_engine* engine, sumi_model* model, const pipeline_case* c)
{
    char path[256];
    golden g;
    sumi_error error = {0};
    snprintf(path, sizeof path, NEWBIE "cases/%s.safetensors", c->name);
    sumi_heap_init(&g.heap, NULL);
    sumi_tensor_set_init(&g.set, &g.heap, NULL);
    CHECK_NUMBER(sumi_tensor_set_open(&g.set, path, &error), SUMI_OK);
    const size_t count = (size_t)16 * (size_t)(c->height / 8) * (size_t)(c->width / 8);
    float *noise = golden_copy(&g, "input.noise"), *want = golden_copy(&g, "expect.latent6"),
          *got = calloc(count, sizeof *got);
    CHECK(noise != NULL && want != NULL && golden_count(&g, "expect.latent6") == count);
    const sumi_image_item item = {.text = c->text, .negative_text = c->negative_text};
    sumi_image_desc desc = small_newbie(model, &item);
    desc.width = c->width;
    desc.height = c->height;
    desc.step_count = 6;
    desc.solver = c->solver;
    desc.guidance.scale = c->guidance;
    desc.guidance.end = c->guidance_end;
    desc.guidance.norm_limit = c->norm_limit;
    desc.noise.source = SUMI_NOISE_GIVEN;
    desc.noise.values = noise;
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    sumi_job_wait(engine, job, SUMI_FOREVER);
    CHECK_NUMBER(sumi_job_latents(engine, job, 0, got, count), SUMI_OK);
    sumi_job_discard(engine, job);
    const double off = want != NULL ? relative_error(got, want, count) : 1.0;
    printf("  %s: latents %.2g\n", c->name, off);
    CHECK(off <= 1e-4); // as the cases say
    free(noise), free(want), free(got);
    golden_close(&g);
}

TEST(pipelines_give_the_references_latents)
{
    OPEN_ROW("newbie", engine, model);
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) check_pipeline(engine, model, &s_cases[i]);
    close_engine(engine);
}

// ---- The words in front ---------------------------------------------------------------------------------------------

static bool has_same_rows(const sumi_prompt* a, const sumi_prompt* b, int32_t encoder)
{
    const sumi_prompt_encoder one = sumi_prompt_get_info(a).encoders[encoder],
                              other = sumi_prompt_get_info(b).encoders[encoder];
    return one.token_count == other.token_count && one.width == other.width && one.features != NULL
        && memcmp(one.features, other.features, (size_t)one.token_count * (size_t)one.width * sizeof(float)) == 0;
}

TEST(the_first_encoder_alone_reads_the_words_in_front)
{
    static const struct {
        const char *text, *whole; // `whole` is what the first encoder reads of `text`
    } s_texts[] = {{"a red fox", PLAIN "a red fox"},
                   {"<n>fox</n>", MARKUP "<n>fox</n>"},
                   {" \n <n>fox</n>", MARKUP " \n <n>fox</n>"},
                   {"a <n>fox</n>", PLAIN "a <n>fox</n>"},
                   {" ", PLAIN " "}};
    OPEN_ROW("newbie", engine, model);
    for (size_t i = 0; i < sizeof s_texts / sizeof *s_texts; i++) {
        char cleared[128], own[160];
        snprintf(cleared, sizeof cleared, MARK "%s", s_texts[i].text);
        snprintf(own, sizeof own, "My words. " MARK "%s", s_texts[i].text);
        sumi_prompt *short_one = encode_prompt(engine, model, s_texts[i].text),
                    *whole = encode_prompt(engine, model, s_texts[i].whole),
                    *bare = encode_prompt(engine, model, cleared), *mine = encode_prompt(engine, model, own);
        CHECK(has_same_rows(short_one, whole, 0) && has_same_rows(short_one, whole, 1));
        const int32_t rows = sumi_prompt_get_info(short_one).encoders[0].token_count,
                      bare_rows = sumi_prompt_get_info(bare).encoders[0].token_count,
                      own_rows = sumi_prompt_get_info(mine).encoders[0].token_count;
        CHECK(bare_rows < own_rows && own_rows < rows);
        CHECK(has_same_rows(short_one, bare, 1) && has_same_rows(short_one, mine, 1));
        CHECK(!has_same_rows(bare, mine, 0));
        sumi_prompt_release(short_one), sumi_prompt_release(whole), sumi_prompt_release(bare);
        sumi_prompt_release(mine);
    }
    // none stand in front of nothing: the first token, and for the other encoder what stands around every text
    sumi_prompt *empty = encode_prompt(engine, model, ""), *blank = encode_prompt(engine, model, " "),
                *mark = encode_prompt(engine, model, MARK);
    CHECK_NUMBER(sumi_prompt_get_info(empty).encoders[0].token_count, 1);
    CHECK(has_same_rows(empty, mark, 0) && has_same_rows(empty, mark, 1));
    CHECK(has_same_rows(empty, blank, 1) && !has_same_rows(empty, blank, 0)); // one of them reads blanks
    sumi_prompt_release(empty), sumi_prompt_release(blank), sumi_prompt_release(mark);
    close_engine(engine);
}

// ---- Prompts --------------------------------------------------------------------------------------------------------

// A member of a case's description. Free it.
static char* text_of_case(const char* path, const char* member)
{
    char* json_text = calloc(1, 1 << 16);
    FILE* file = system_open(path, "rb");
    CHECK(file != NULL);
    const size_t bytes = file != NULL ? fread(json_text, 1, (1 << 16) - 1, file) : 0;
    if (file != NULL) fclose(file);
    sumi_json json;
    sumi_json_text key, value;
    char* found = NULL;
    sumi_json_begin(&json, json_text, bytes, NULL);
    sumi_json_object(&json);
    while (sumi_json_key(&json, &key)) {
        if (found != NULL || !sumi_json_is(&key, member)) {
            sumi_json_skip(&json);
        } else if (sumi_json_string(&json, &value)) {
            found = calloc(1, value.bytes + 1);
            sumi_json_decode(&value, found, value.bytes);
        }
    }
    free(json_text);
    CHECK(found != NULL);
    return found;
}

// 1403 tokens for one encoder and 1466 for the other, of which each reads 512: the job says what is lost.
TEST(a_text_that_is_too_long_is_cut_as_by_the_reference)
{
    OPEN_ROW("newbie", engine, model);
    golden g;
    sumi_error error = {0};
    sumi_heap_init(&g.heap, NULL);
    sumi_tensor_set_init(&g.set, &g.heap, NULL);
    CHECK_NUMBER(sumi_tensor_set_open(&g.set, NEWBIE "cases/text_long.safetensors", &error), SUMI_OK);
    float *pooled = golden_copy(&g, "expect.jina_pooled"), *hidden = golden_copy(&g, "expect.gemma_hidden");
    const sumi_tensor* rows = sumi_tensor_find(&g.set, "input.rows");
    char* text = text_of_case(NEWBIE "cases/text_long.json", "prompt");
    CHECK(pooled != NULL && hidden != NULL && rows != NULL && text != NULL);
    sumi_prompt_desc desc = sumi_prompt_defaults(model);
    desc.text = text;
    sumi_job job;
    sumi_prompt* prompt = NULL;
    CHECK_NUMBER(sumi_submit_prompt(engine, &desc, &job), SUMI_OK);
    sumi_job_wait(engine, job, SUMI_FOREVER);
    CHECK_NUMBER(sumi_job_poll(engine, job).cut_tokens, 1466 - 512);
    CHECK_NUMBER(sumi_fetch_prompt(engine, job, &prompt), SUMI_OK);
    const sumi_prompt_info info = sumi_prompt_get_info(prompt);
    CHECK_NUMBER(info.encoders[0].token_count, 512);
    if (prompt != NULL && pooled != NULL && hidden != NULL && rows != NULL) {
        const size_t width = (size_t)info.encoders[0].width, count = golden_count(&g, "input.rows");
        float* got = malloc(count * width * sizeof *got);
        for (size_t i = 0; i < count; i++) {
            int64_t row = 0;
            if (rows->dtype == SUMI_DTYPE_I64) memcpy(&row, (const char*)rows->data + 8 * i, 8);
            else memcpy(&row, (const char*)rows->data + 4 * i, 4);
            CHECK(row >= 0 && row < 512);
            memcpy(got + i * width, info.encoders[0].features + (size_t)row * width, width * sizeof *got);
        }
        CHECK(relative_error(got, hidden, count * width) <= 2e-5); // as the case says
        CHECK(relative_error(info.encoders[1].features, pooled, 128) <= 2e-5);
        free(got);
    }
    sumi_prompt_release(prompt);
    free(text), free(pooled), free(hidden);
    golden_close(&g);
    close_engine(engine);
}

// The saved bytes with other rows of one encoder.
static sumi_result load_with_rows(sumi_model* model, int32_t encoder, int32_t rows, int32_t width)
{
    static const float s_values[64 * 256];
    static const int32_t s_good[2][2] = {{12, 32}, {1, 128}};
    const sumi_metadata metadata[] = {{"sumi_prompt", "1"}, {"family", "newbie-image"}, {"token_count", "12"}};
    sumi_tensor tensors[2] = {{.name = "features"}, {.name = "features.1"}};
    for (int32_t e = 0; e < 2; e++) {
        sumi_tensor* t = &tensors[e];
        t->dtype = SUMI_DTYPE_F32;
        t->rank = 2;
        t->shape[0] = e == encoder ? rows : s_good[e][0];
        t->shape[1] = e == encoder ? width : s_good[e][1];
        t->data = s_values;
        t->bytes = (uint64_t)(t->shape[0] * t->shape[1]) * sizeof(float);
        t->file_index = -1;
    }
    unsigned char* saved = malloc(1 << 17);
    sumi_prompt* prompt = NULL;
    const uint64_t bytes = sumi_safetensors_write(tensors, 2, metadata, 3, saved, 1 << 17);
    const sumi_result result = sumi_prompt_load(model, saved, (size_t)bytes, &prompt);
    CHECK((prompt != NULL) == (result == SUMI_OK));
    sumi_prompt_release(prompt);
    free(saved);
    return result;
}

TEST(prompts_that_do_not_fit_are_refused)
{
    OPEN_ROW("newbie", engine, model);
    CHECK_NUMBER(load_with_rows(model, 1, 1, 128), SUMI_OK);
    CHECK_NUMBER(load_with_rows(model, 1, 2, 128), SUMI_FILE_MALFORMED); // pooled is one row
    CHECK(strstr(s_host.log, "features.1") != NULL);
    CHECK_NUMBER(load_with_rows(model, 1, 0, 128), SUMI_FILE_MALFORMED);
    CHECK_NUMBER(load_with_rows(model, 1, 1, 127), SUMI_TENSOR_MISMATCH);
    CHECK_NUMBER(load_with_rows(model, 0, 12, 33), SUMI_TENSOR_MISMATCH);
    CHECK_NUMBER(load_with_rows(model, 0, 11, 32), SUMI_FILE_MALFORMED); // another number than it says
    close_engine(engine);
}

// ---- Same bits ------------------------------------------------------------------------------------------------------

TEST(handles_give_the_bits_of_texts_under_every_solver)
{
    OPEN_ROW("newbie", engine, model);
    sumi_prompt *positive = encode_prompt(engine, model, "a red fox"),
                *negative = encode_prompt(engine, model, "blurry");
    const sumi_image_item items[2] = {ITEM("a red fox", 7),
                                      {.prompt = positive, .negative_prompt = negative, .seed = 7}};
    uint64_t seen[SUMI_SOLVER_RES_MULTISTEP + 1];
    for (int solver = 0; solver <= SUMI_SOLVER_RES_MULTISTEP; solver++) {
        sumi_image_desc desc = small_newbie(model, items);
        desc.solver = (sumi_solver)solver;
        seen[solver] = draw_hash(engine, &desc);
        desc.items = items + 1;
        CHECK(seen[solver] != 0 && draw_hash(engine, &desc) == seen[solver]);
        for (int other = 0; other < solver; other++) CHECK(seen[other] != seen[solver]);
    }
    sumi_prompt_release(positive);
    sumi_prompt_release(negative);
    close_engine(engine);
}

TEST(guidance_counts_at_the_beginning_alone)
{
    OPEN_ROW("newbie", engine, model);
    sumi_image_item item = ITEM("a red fox", 7);
    sumi_image_desc desc = small_newbie(model, &item);
    CHECK(desc.guidance.end == 0.25f);
    const uint64_t early = draw_hash(engine, &desc);
    desc.guidance.end = 1.0f;
    const uint64_t whole = draw_hash(engine, &desc);
    desc.guidance.end = 0.0f; // the first run of the network has time 0
    const uint64_t first = draw_hash(engine, &desc);
    desc.guidance.end = 0.25f;
    desc.guidance.norm_limit = 1.0f;
    const uint64_t limited = draw_hash(engine, &desc);
    desc.guidance.norm_limit = 1e6f;
    CHECK(draw_hash(engine, &desc) == early);
    desc.guidance.norm_limit = 0.0f;
    item.negative_text = "grey";
    const uint64_t other = draw_hash(engine, &desc);
    desc.guidance.scale = 1.0f; // off: nobody reads the negative text
    const uint64_t off = draw_hash(engine, &desc);
    item.negative_text = NULL;
    CHECK(draw_hash(engine, &desc) == off);
    const uint64_t all[] = {early, whole, first, limited, other, off};
    for (int i = 0; i < 6; i++) {
        CHECK(all[i] != 0);
        for (int k = 0; k < i; k++) CHECK(all[i] != all[k]);
    }
    desc.guidance.scale = 4.0f; // without a text it is the authors' own: the empty one
    const uint64_t own = draw_hash(engine, &desc);
    item.negative_text = "";
    CHECK(draw_hash(engine, &desc) == own && own != early);
    close_engine(engine);
}

// The pooled row changes every layer's modulation: a picture depends on it even where the tokens are the same.
TEST(an_image_depends_on_both_encoders)
{
    OPEN_ROW("newbie", engine, model);
    sumi_prompt *fox = encode_prompt(engine, model, "a red fox"), *owl = encode_prompt(engine, model, "a grey owl"),
                *mixed = encode_prompt(engine, model, "a red fox");
    const sumi_prompt_info info = sumi_prompt_get_info(fox);
    CHECK(info.encoders[0].width == 32 && info.encoders[0].token_count > 10);
    CHECK(info.encoders[1].width == 128 && info.encoders[1].token_count == 1);
    memcpy(mixed->features[1], owl->features[1], (size_t)owl->width[1] * sizeof(float));
    sumi_image_item items[3] = {{.prompt = fox, .seed = 7}, {.prompt = owl, .seed = 7}, {.prompt = mixed, .seed = 7}};
    sumi_image_desc desc = small_newbie(model, items);
    desc.guidance.scale = 1.0f;
    uint64_t hashes[3];
    for (int i = 0; i < 3; i++) {
        desc.items = &items[i];
        hashes[i] = draw_hash(engine, &desc);
        CHECK(hashes[i] != 0);
    }
    CHECK(hashes[0] != hashes[1] && hashes[0] != hashes[2] && hashes[1] != hashes[2]);
    sumi_prompt_release(fox), sumi_prompt_release(owl), sumi_prompt_release(mixed);
    close_engine(engine);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(facts_and_presets_are_the_authors);
    RUN(pipelines_give_the_references_latents);
    RUN(the_first_encoder_alone_reads_the_words_in_front);
    RUN(a_text_that_is_too_long_is_cut_as_by_the_reference);
    RUN(prompts_that_do_not_fit_are_refused);
    RUN(handles_give_the_bits_of_texts_under_every_solver);
    RUN(guidance_counts_at_the_beginning_alone);
    RUN(an_image_depends_on_both_encoders);
    TEST_END();
}
