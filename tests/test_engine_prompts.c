// Encoded prompts of several text encoders, and those that earlier versions saved.
#include "engine_fixture.h"
#include "jobs/engine_state.h"
#include "jobs/objects.h"
#include "jobs/prompt.h"
#include "models/network_state.h"
#include "text_adapter.h"

#define SAVED_PATH "tests/golden/z-image/prompts/red_fox_0_1.safetensors" // "a red fox", by version 0.1.0

static unsigned char* read_file(const char* path, size_t* out_bytes)
{
    *out_bytes = 0;
    FILE* file = fopen(path, "rb");
    if (file == NULL) return NULL;
    unsigned char* data = malloc(1 << 20);
    *out_bytes = fread(data, 1, 1 << 20, file);
    fclose(file);
    return data;
}

TEST(a_prompt_saved_by_an_earlier_version_is_read)
{
    OPEN(engine, model);
    size_t bytes = 0;
    unsigned char* saved = read_file(SAVED_PATH, &bytes);
    CHECK(saved != NULL);
    sumi_prompt *then = NULL, *now = encode_prompt(engine, model, "a red fox");
    CHECK_NUMBER(sumi_prompt_load(model, saved, bytes, &then), SUMI_OK);
    const sumi_prompt_info a = sumi_prompt_get_info(then), b = sumi_prompt_get_info(now);
    CHECK_NUMBER(a.encoder_count, 1);
    CHECK_NUMBER(a.encoders[0].token_count, b.encoders[0].token_count);
    CHECK_NUMBER(a.encoders[0].width, b.encoders[0].width);
    for (int e = 1; e < 4; e++) CHECK(a.encoders[e].token_count == 0 && a.encoders[e].features == NULL);
    const size_t count = (size_t)a.encoders[0].token_count * (size_t)a.encoders[0].width;
    CHECK(count > 0 && relative_error(a.encoders[0].features, b.encoders[0].features, count) < 1e-5);
    // the format is the same: version 0.1 reads what this one saves
    unsigned char* again = malloc(bytes);
    CHECK_NUMBER(sumi_prompt_save(then, again, bytes), bytes);
    CHECK(memcmp(saved, again, bytes) == 0);
    free(saved), free(again);
    close_engine(engine);
}

#define WIDTH 96 // of the model's own encoder
#define POOLED_WIDTH 8

// A prompt as a family of two text encoders makes it: rows of tokens, and one pooled row.
static sumi_prompt* make_pair(sumi_engine* engine)
{
    const int32_t tokens[SUMI_MAX_TEXT_ENCODERS] = {5, 1}, widths[SUMI_MAX_TEXT_ENCODERS] = {WIDTH, POOLED_WIDTH};
    sumi_error error = {0};
    sumi_prompt* prompt = NULL;
    const sumi_prompt_shape shape = {.family = "z-image", .encoder_count = 2, .token_count = tokens, .width = widths};
    CHECK_NUMBER(sumi_prompt_create(engine, &shape, &prompt, &error), SUMI_OK);
    for (int32_t e = 0; prompt != NULL && e < 2; e++) {
        for (int32_t i = 0; i < tokens[e] * widths[e]; i++) prompt->features[e][i] = (float)(i + 1000 * e) * 0.25f;
    }
    return prompt;
}

TEST(every_text_encoder_is_told_saved_and_loaded)
{
    OPEN(engine, model);
    sumi_prompt *pair = make_pair(engine), *loaded = NULL;
    const sumi_prompt_info info = sumi_prompt_get_info(pair);
    CHECK_NUMBER(info.encoder_count, 2);
    CHECK(info.encoders[0].token_count == 5 && info.encoders[0].width == WIDTH);
    CHECK(info.encoders[1].token_count == 1 && info.encoders[1].width == POOLED_WIDTH); // pooled
    CHECK(info.encoders[1].features != NULL && info.encoders[1].features[3] == 250.75f);
    CHECK(info.encoders[2].features == NULL && info.encoders[3].features == NULL);
    const size_t bytes = sumi_prompt_save(pair, NULL, 0);
    unsigned char* saved = malloc(bytes);
    CHECK_NUMBER(sumi_prompt_save(pair, saved, bytes), bytes);
    // this model has one encoder
    CHECK_NUMBER(sumi_prompt_load(model, saved, bytes, &loaded), SUMI_TENSOR_MISMATCH);
    CHECK(loaded == NULL && strstr(s_host.log, "2 text encoders") != NULL);

    // as if it had two
    model->info.text_encoder_count = 2;
    model->info.feature_width[1] = POOLED_WIDTH;
    CHECK_NUMBER(sumi_prompt_load(model, saved, bytes, &loaded), SUMI_OK);
    const sumi_prompt_info again = sumi_prompt_get_info(loaded);
    CHECK_NUMBER(again.encoder_count, 2);
    for (int e = 0; e < 2; e++) {
        const size_t count = (size_t)info.encoders[e].token_count * (size_t)info.encoders[e].width;
        CHECK_NUMBER(again.encoders[e].token_count, info.encoders[e].token_count);
        CHECK_NUMBER(again.encoders[e].width, info.encoders[e].width);
        CHECK(memcmp(again.encoders[e].features, info.encoders[e].features, count * sizeof(float)) == 0);
    }
    sumi_prompt_release(loaded);
    model->info.feature_width[1] = POOLED_WIDTH + 1;
    CHECK_NUMBER(sumi_prompt_load(model, saved, bytes, &loaded), SUMI_TENSOR_MISMATCH);
    model->info.feature_width[1] = POOLED_WIDTH;
    size_t single_bytes = 0;
    unsigned char* single = read_file(SAVED_PATH, &single_bytes);
    CHECK_NUMBER(sumi_prompt_load(model, single, single_bytes, &loaded), SUMI_TENSOR_MISMATCH);
    CHECK(loaded == NULL && strstr(s_host.log, "1 text encoder,") != NULL);
    model->info.text_encoder_count = 1;
    free(saved), free(single);
    close_engine(engine);
}

// ---- Texts that are too long ----------------------------------------------------------------------------------------

typedef struct listener {
    int warnings;
    char text[256];
} listener;

static void listen(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    listener* heard = user_data;
    (void)result;
    if (level != SUMI_LOG_WARNING) return;
    heard->warnings++;
    snprintf(heard->text, sizeof heard->text, "%s", text);
}

// "a " as often as it takes for so many bytes
static char* long_text(size_t bytes)
{
    char* text = malloc(bytes + 1);
    for (size_t i = 0; i < bytes; i++) text[i] = i % 2 == 0 ? 'a' : ' ';
    text[bytes] = 0;
    return text;
}

// What a prompt job and a picture job say of a text, and the rows that its features have.
static int32_t cut_tokens(sumi_engine* engine, sumi_model* model, const char* text, int32_t* out_rows)
{
    sumi_prompt_desc desc = sumi_prompt_defaults(model);
    desc.text = text;
    sumi_job job;
    sumi_prompt* prompt = NULL;
    CHECK_NUMBER(sumi_submit_prompt(engine, &desc, &job), SUMI_OK);
    CHECK_NUMBER(sumi_job_poll(engine, job).cut_tokens, 0); // not known yet
    CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
    const int32_t cut = sumi_job_poll(engine, job).cut_tokens;
    CHECK_NUMBER(sumi_fetch_prompt(engine, job, &prompt), SUMI_OK);
    *out_rows = sumi_prompt_get_info(prompt).encoders[0].token_count;
    const sumi_image_item items[2] = {{.text = "a"}, {.text = text}}, given = {.prompt = prompt, .negative_text = ""};
    sumi_image_desc image = small_image(model, items);
    image.item_count = 2;
    image.step_count = 1;
    for (int i = 0; i < 2; i++) {
        CHECK_NUMBER(sumi_submit_images(engine, &image, &job), SUMI_OK);
        CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
        CHECK_NUMBER(sumi_job_poll(engine, job).cut_tokens, i == 0 ? cut : 0); // nothing is cut off features
        sumi_job_discard(engine, job);
        image.items = &given;
        image.item_count = 1;
    }
    sumi_prompt_release(prompt);
    return cut;
}

// Of three families: one with a limit of tokens, one of rows behind a template, one of two encoders.
TEST(texts_that_are_too_long_are_reported)
{
    static const struct {
        const char* path;
        int32_t rows; // at most
    } s_models[] = {{MODEL_PATH, 512}, {"tests/golden/qwen-image/model", 512}, {"tests/golden/newbie/model", 512}};
    for (size_t i = 0; i < sizeof s_models / sizeof *s_models; i++) {
        listener heard = {0};
        memset(&s_host, 0, sizeof s_host);
        sumi_engine_desc desc = host_desc(&s_host);
        desc.log = (sumi_log){listen, &heard};
        sumi_engine* engine = open_engine(&desc, NULL);
        sumi_model* model = load_model_at(engine, s_models[i].path);
        CHECK(model != NULL);
        size_t low = 2, high = 6000; // low is read whole, high is not
        int32_t rows = 0, cut = 0;
        while (low + 2 < high) {
            const size_t middle = (low + high) / 4 * 2;
            char* text = long_text(middle);
            heard.warnings = 0;
            cut = cut_tokens(engine, model, text, &rows);
            CHECK_NUMBER(heard.warnings, cut > 0 ? 2 : 0); // the prompt's and the picture's; not with features
            CHECK(cut >= 0 && rows <= s_models[i].rows);
            if (cut == 0) low = middle;
            else high = middle;
            free(text);
        }
        CHECK(low > 800 && high < 1100); // a letter and a blank are a token
        char number[16], *text = long_text(high + 2000);
        cut = cut_tokens(engine, model, text, &rows);
        CHECK(cut > 990 && cut < 1010);
        CHECK_NUMBER(rows, s_models[i].rows);
        snprintf(number, sizeof number, "%d tokens", (int)cut);
        CHECK(strstr(heard.text, number) != NULL && strstr(heard.text, "cut off") != NULL);
        printf("  %s: %zu bytes are read; of %zu more, %d tokens are not\n", s_models[i].path, low, high + 2000 - low,
               (int)cut);
        free(text);
        close_engine(engine);
    }
}

// Prompts that follow one another allocate nothing: each has the block of one that was released.
TEST(prompts_use_the_memory_of_released_ones)
{
    OPEN(engine, model);
    static const char* const s_texts[] = {"a red fox in the snow, in the morning",
                                          "a blue owl in the snow, in the morning"};
    sumi_prompt* kept = NULL;
    long long count = 0;
    uint64_t first_hash[2] = {0};
    for (int i = 0; i < 8; i++) { // as a host program that keeps a prompt until it has the next one
        sumi_prompt* prompt = encode_prompt(engine, model, s_texts[i % 2]);
        const sumi_prompt_encoder features = sumi_prompt_get_info(prompt).encoders[0];
        const uint64_t hash = hash_bytes(features.features, (size_t)features.token_count * (size_t)features.width * 4);
        if (i < 2) first_hash[i] = hash;
        CHECK(hash == first_hash[i % 2]);
        sumi_prompt_release(kept);
        kept = prompt;
        if (i == 3) count = s_host.count;
    }
    CHECK(first_hash[0] != first_hash[1]);
    CHECK_NUMBER(s_host.count, count);
    // a short prompt does not take the block of a long one
    enum { LONG_TOKENS = 200 };
    const int32_t widths[] = {WIDTH}, longer[] = {LONG_TOKENS}, shorter[] = {1};
    sumi_prompt_shape shape = {.family = "z-image", .encoder_count = 1, .token_count = longer, .width = widths};
    sumi_error error = {0};
    sumi_prompt *large = NULL, *small = NULL;
    CHECK_NUMBER(sumi_prompt_create(engine, &shape, &large, &error), SUMI_OK);
    sumi_prompt_release(large);
    CHECK(engine->spare_prompt != NULL && engine->spare_prompt->block_bytes > LONG_TOKENS * WIDTH * sizeof(float));
    count = s_host.count;
    shape.token_count = shorter;
    CHECK_NUMBER(sumi_prompt_create(engine, &shape, &small, &error), SUMI_OK);
    CHECK_NUMBER(s_host.count, count + 1);
    sumi_prompt_release(small); // the smaller of two blocks is freed
    CHECK(engine->spare_prompt != NULL && engine->spare_prompt->block_bytes > LONG_TOKENS * WIDTH * sizeof(float));
    shape.token_count = longer;
    CHECK_NUMBER(sumi_prompt_create(engine, &shape, &large, &error), SUMI_OK);
    CHECK_NUMBER(s_host.count, count + 1);
    sumi_prompt_release(large);
    sumi_prompt_release(kept);
    close_engine(engine);
}

// ---- Padding --------------------------------------------------------------------------------------------------------

#define PADDED 48

// Makes a family of the model whose texts are padded. Plans are cached by the model, so before its first job.
static void pad_texts(sumi_model* model)
{
    static sumi_recipe s_recipe;
    sumi_network* network = model->network;
    s_recipe = *network->recipe;
    s_recipe.encoders[0].prompt.max_tokens = s_recipe.encoders[0].prompt.padded_tokens = PADDED;
    s_recipe.encoders[0].prompt.pad_token = "<|endoftext|>";
    network->recipe = &s_recipe;
    network->encoders[0].pad_id = sumi_tokenizer_id(network->encoders[0].tokenizer, "<|endoftext|>");
    network->info.max_prompt_tokens = PADDED;
    model->info = network->info;
    CHECK(network->encoders[0].pad_id >= 0);
}

static const char* const s_padded_texts[] = {"a red fox", "a blue owl in the snow, in the morning", ""};

TEST(padded_texts_have_features_for_all_rows)
{
    float* plain[3]; // features without padding
    int32_t counts[3];
    OPEN(unpadded, plain_model);
    for (int i = 0; i < 3; i++) {
        sumi_prompt* prompt = encode_prompt(unpadded, plain_model, s_padded_texts[i]);
        const sumi_prompt_encoder tokens = sumi_prompt_get_info(prompt).encoders[0];
        const size_t bytes = (size_t)tokens.token_count * (size_t)tokens.width * sizeof(float);
        counts[i] = tokens.token_count;
        plain[i] = malloc(bytes);
        memcpy(plain[i], tokens.features, bytes);
        sumi_prompt_release(prompt);
    }
    close_engine(unpadded);
    OPEN(engine, model);
    pad_texts(model);
    for (int i = 0; i < 3; i++) {
        sumi_prompt *prompt = encode_prompt(engine, model, s_padded_texts[i]), *loaded = NULL;
        const sumi_prompt_encoder all = sumi_prompt_get_info(prompt).encoders[0];
        CHECK_NUMBER(all.token_count, PADDED);
        CHECK(counts[i] >= 8 && counts[i] < PADDED - 2);
        // those of the tokens are the same, those of padding are not zero and differ by their positions
        const size_t width = (size_t)all.width, row = width * sizeof(float);
        const float* padding = all.features + (size_t)counts[i] * width;
        CHECK(memcmp(all.features, plain[i], (size_t)counts[i] * row) == 0);
        CHECK(relative_error(padding, padding + width, width) > 1e-3 && padding[0] != 0.0f);
        // a saved one has all rows
        const size_t bytes = sumi_prompt_save(prompt, NULL, 0);
        unsigned char* saved = malloc(bytes);
        CHECK_NUMBER(sumi_prompt_save(prompt, saved, bytes), bytes);
        CHECK(bytes > PADDED * row);
        CHECK_NUMBER(sumi_prompt_load(model, saved, bytes, &loaded), SUMI_OK);
        CHECK_NUMBER(sumi_prompt_get_info(loaded).encoders[0].token_count, PADDED);
        const sumi_image_item given = {.prompt = loaded, .seed = 3, .negative_text = "ugly"},
                              text = {.text = s_padded_texts[i], .seed = 3, .negative_text = "ugly"};
        sumi_image_desc desc = small_image(model, &given);
        desc.guidance.scale = 3.0f;
        const uint64_t of_prompt = draw_hash(engine, &desc);
        desc.items = &text;
        CHECK(of_prompt != 0 && draw_hash(engine, &desc) == of_prompt);
        free(saved), free(plain[i]);
        sumi_prompt_release(loaded), sumi_prompt_release(prompt);
    }
    // what is too long is cut off as without padding
    int32_t rows = 0;
    char* text = long_text(400);
    CHECK(cut_tokens(engine, model, text, &rows) > 100);
    CHECK_NUMBER(rows, PADDED);
    free(text);
    close_engine(engine);
}

TEST(padded_texts_of_a_batch_give_the_images_of_single_ones)
{
    OPEN(engine, model);
    pad_texts(model);
    sumi_image_item items[3];
    for (int i = 0; i < 3; i++)
        items[i] = (sumi_image_item){.text = s_padded_texts[i], .seed = 5, .negative_text = s_padded_texts[2 - i]};
    sumi_image_desc desc = small_image(model, items);
    sumi_image images[3], one;
    desc.guidance.scale = 3.0f;
    desc.item_count = 3;
    CHECK_NUMBER(draw(engine, &desc, images), SUMI_OK);
    desc.item_count = 1;
    for (int i = 0; i < 3; i++) {
        desc.items = &items[i];
        CHECK_NUMBER(draw(engine, &desc, &one), SUMI_OK);
        CHECK(hash_image(&one) == hash_image(&images[i]) && hash_image(&one) != 0);
        CHECK(i == 0 || hash_image(&images[i]) != hash_image(&images[0]));
        sumi_images_release(engine, &one, 1);
    }
    sumi_images_release(engine, images, 3);
    close_engine(engine);
}

// ---- Adapters -------------------------------------------------------------------------------------------------------

static sumi_prompt* encode_adapted(sumi_engine* engine, sumi_model* model, const sumi_lora_use* use)
{
    sumi_prompt_desc desc = sumi_prompt_defaults(model);
    desc.text = "a red fox";
    desc.loras = use;
    desc.lora_count = use != NULL;
    return encode_prompt_of(engine, &desc);
}

static uint64_t hash_adapted(sumi_engine* engine, sumi_model* model, const sumi_lora_use* use)
{
    sumi_prompt* prompt = encode_adapted(engine, model, use);
    const sumi_prompt_encoder features = sumi_prompt_get_info(prompt).encoders[0];
    const uint64_t hash = hash_bytes(features.features, (size_t)features.token_count * (size_t)features.width * 4);
    sumi_prompt_release(prompt);
    return hash;
}

TEST(adapters_change_the_features_of_prompts_by_their_text_scale)
{
    OPEN(engine, model);
    const text_adapter files[2] = {make_text_adapter("ink.safetensors", 0.5f, true),
                                   make_text_adapter("chalk.safetensors", 0.3f, false)};
    sumi_lora *ink = read_lora_at(engine, model, files[0].path), *chalk = read_lora_at(engine, model, files[1].path),
              *plain_lora = read_lora(engine, model, "lora_peft.safetensors");
    const uint64_t plain = hash_adapted(engine, model, NULL),
                   one = hash_adapted(engine, model, &(sumi_lora_use){.lora = ink, .scale = 1.0f}),
                   half = hash_adapted(engine, model, &(sumi_lora_use){.lora = ink, .scale = 0.5f}),
                   other = hash_adapted(engine, model, &(sumi_lora_use){.lora = chalk, .scale = 1.0f});
    CHECK(plain != one && one != half && plain != half && other != plain && other != one && other != half);
    CHECK(hash_adapted(engine, model, &(sumi_lora_use){.lora = ink, .scale = -1.0f}) != one);
    CHECK(hash_adapted(engine, model, &(sumi_lora_use){.lora = ink, .scale = 1.0f, .text_scale = 0.5f}) == half);
    CHECK(hash_adapted(engine, model, &(sumi_lora_use){.lora = ink, .scale = 0.0f, .text_scale = 1.0f}) == one);
    CHECK(hash_adapted(engine, model, &(sumi_lora_use){.lora = ink, .scale = 0.0f}) == plain);
    CHECK(hash_adapted(engine, model, &(sumi_lora_use){.lora = ink, .scale = 1.0f, .without_text = true}) == plain);
    CHECK(hash_adapted(engine, model,
                       &(sumi_lora_use){.lora = ink, .scale = 1.0f, .text_scale = 0.5f, .without_text = true})
          == plain);
    CHECK(hash_adapted(engine, model, &(sumi_lora_use){.lora = plain_lora, .scale = 1.0f}) == plain);
    CHECK(hash_adapted(engine, model, &(sumi_lora_use){.lora = ink, .scale = 1.0f}) == one); // from the cached plan
    // refused
    sumi_job job;
    sumi_prompt_desc desc = sumi_prompt_defaults(model);
    sumi_lora_use wrong[] = {{.lora = NULL, .scale = 1.0f},
                             {.lora = ink, .scale = NAN},
                             {.lora = ink, .scale = 1.0f, .text_scale = INFINITY},
                             {.lora = ink, .scale = 1.0f, .text_scale = 1001.0f}};
    desc.text = "a red fox";
    desc.lora_count = 1;
    CHECK_NUMBER(sumi_submit_prompt(engine, &desc, &job), SUMI_INVALID_ARGUMENT);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        desc.loras = &wrong[i];
        CHECK_NUMBER(sumi_submit_prompt(engine, &desc, &job), SUMI_INVALID_ARGUMENT);
    }
    sumi_lora_release(ink), sumi_lora_release(chalk), sumi_lora_release(plain_lora);
    CHECK(hash_adapted(engine, model, NULL) == plain);
    close_engine(engine);
    for (size_t i = 0; i < 2; i++) remove_text_adapter(&files[i]);
}

// The same text in jobs with different adapters is encoded for each of them; an encoded prompt stays as it is.
TEST(image_jobs_encode_their_texts_with_their_adapters)
{
    OPEN(engine, model);
    const text_adapter files[2] = {make_text_adapter("ink.safetensors", 0.5f, true),
                                   make_text_adapter("chalk.safetensors", 0.3f, false)};
    sumi_lora_use ink = {.lora = read_lora_at(engine, model, files[0].path), .scale = 1.0f},
                  chalk = {.lora = read_lora_at(engine, model, files[1].path), .scale = 1.0f}, without = ink,
                  weak = ink;
    without.without_text = true;
    weak.text_scale = 0.5f;
    sumi_image_desc desc = small_image(model, &s_item);
    const sumi_lora_use* uses[] = {NULL, &ink, &chalk, &without, &weak};
    uint64_t hashes[5];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 5; i++) {
            desc.loras = uses[i];
            desc.lora_count = uses[i] != NULL;
            const uint64_t hash = draw_hash(engine, &desc);
            for (int k = 0; k < i; k++) CHECK(hash != 0 && hash != hashes[k]);
            CHECK(round == 0 || hash == hashes[i]);
            hashes[i] = hash;
        }
    }
    // encoded prompts
    sumi_prompt *inked = encode_adapted(engine, model, &ink), *plain = encode_adapted(engine, model, NULL);
    const struct {
        const sumi_prompt* prompt;
        const sumi_lora_use* use;
        int same_as;
    } cases[] = {{inked, &ink, 1}, {inked, &without, 1}, {plain, &ink, 3}, {plain, &chalk, 0}, {plain, NULL, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const sumi_image_item item = {.prompt = cases[i].prompt, .seed = s_item.seed};
        desc.items = &item;
        desc.loras = cases[i].use;
        desc.lora_count = cases[i].use != NULL;
        CHECK(draw_hash(engine, &desc) == hashes[cases[i].same_as]);
    }
    sumi_prompt_release(inked), sumi_prompt_release(plain);
    close_engine(engine);
    for (size_t i = 0; i < 2; i++) remove_text_adapter(&files[i]);
}

static void note_unchanged(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    if (level == SUMI_LOG_WARNING && result == SUMI_OK && strstr(text, "items[0].prompt was encoded without") != NULL
        && strstr(text, "ink.safetensors") != NULL)
        ++*(int*)user_data;
}

TEST(an_encoded_prompt_without_the_jobs_adapters_is_reported)
{
    memset(&s_host, 0, sizeof s_host);
    int told = 0;
    sumi_engine_desc engine_desc = host_desc(&s_host);
    engine_desc.log = (sumi_log){note_unchanged, &told};
    sumi_model* model = NULL;
    sumi_engine* engine = open_engine(&engine_desc, &model);
    CHECK(engine != NULL);
    if (engine == NULL) return;
    const text_adapter file = make_text_adapter("ink.safetensors", 0.5f, true);
    const sumi_lora_use use = {.lora = read_lora_at(engine, model, file.path), .scale = 1.0f};
    sumi_lora_use without = use;
    without.without_text = true;
    sumi_prompt *plain = encode_adapted(engine, model, NULL), *inked = encode_adapted(engine, model, &use);
    const struct {
        const sumi_prompt* prompt; // NULL: a text
        const sumi_lora_use* use;
        int told;
    } cases[] = {{NULL, &use, 0}, {plain, NULL, 0}, {plain, &without, 0}, {inked, &use, 0}, {plain, &use, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const sumi_image_item item = {.text = cases[i].prompt == NULL ? "a red fox" : NULL, .prompt = cases[i].prompt};
        sumi_image_desc desc = small_image(model, &item);
        desc.loras = cases[i].use;
        desc.lora_count = cases[i].use != NULL;
        sumi_job job;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        sumi_job_discard(engine, job);
        CHECK_NUMBER(told, cases[i].told);
    }
    sumi_prompt_release(plain), sumi_prompt_release(inked);
    close_engine(engine);
    remove_text_adapter(&file);
}

#if defined(_WIN32)
#define INK "ink '1'.safetensors" // names have no quotation marks there
#else
#define INK "ink \"1\".safetensors"
#endif
TEST(saved_prompts_tell_their_adapters)
{
    OPEN(engine, model);
    const text_adapter file = make_text_adapter(INK, 0.5f, true);
    sumi_lora* lora = read_lora_at(engine, model, file.path);
    sumi_prompt *made =
                    encode_adapted(engine, model, &(sumi_lora_use){.lora = lora, .scale = 1.0f, .text_scale = -0.75f}),
                *loaded = NULL,
                *plain =
                    encode_adapted(engine, model, &(sumi_lora_use){.lora = lora, .scale = 1.0f, .without_text = true});
    CHECK_TEXT(sumi_prompt_get_info(made).adapters, INK ":-0.75");
    CHECK_TEXT(sumi_prompt_get_info(plain).adapters, "");
    CHECK(sumi_prompt_get_info(NULL).adapters == NULL);
    sumi_lora_release(lora); // the prompt needs it no more
    unsigned char saved[64 * 1024], again[64 * 1024];
    const size_t bytes = sumi_prompt_save(made, saved, sizeof saved);
    CHECK(bytes > 0 && bytes < sizeof saved);
    CHECK_NUMBER(sumi_prompt_load(model, saved, bytes, &loaded), SUMI_OK);
    CHECK_TEXT(sumi_prompt_get_info(loaded).adapters, INK ":-0.75");
    CHECK_NUMBER(sumi_prompt_save(loaded, again, sizeof again), bytes);
    CHECK(memcmp(saved, again, bytes) == 0);
    sumi_prompt_release(made), sumi_prompt_release(loaded), sumi_prompt_release(plain);
    // a list that is too long
    static char s_long[SUMI_PROMPT_ADAPTERS_BYTES + 1];
    for (int longer = 0; longer < 2; longer++) {
        memset(s_long, 'x', sizeof s_long);
        s_long[SUMI_PROMPT_ADAPTERS_BYTES - 1 + longer] = '\0';
        static float s_row[WIDTH];
        const sumi_tensor tensor = {.name = "features",
                                    .dtype = SUMI_DTYPE_F32,
                                    .rank = 2,
                                    .shape = {1, WIDTH},
                                    .data = s_row,
                                    .bytes = sizeof s_row};
        const sumi_metadata metadata[] = {
            {"sumi_prompt", "1"}, {"family", "z-image"}, {"token_count", "1"}, {"adapters", s_long}};
        const uint64_t size = sumi_safetensors_write(&tensor, 1, metadata, 4, saved, sizeof saved);
        CHECK_NUMBER(sumi_prompt_load(model, saved, (size_t)size, &loaded), longer ? SUMI_FILE_MALFORMED : SUMI_OK);
        sumi_prompt_release(loaded);
    }
    close_engine(engine);
    remove_text_adapter(&file);
}

TEST(releasing_an_adapter_cancels_the_prompt_jobs_that_use_it)
{
    OPEN(engine, model);
    const text_adapter file = make_text_adapter("ink.safetensors", 0.5f, false);
    sumi_lora* lora = read_lora_at(engine, model, file.path);
    const sumi_lora_use use = {.lora = lora, .scale = 1.0f};
    sumi_prompt_desc desc = sumi_prompt_defaults(model);
    desc.text = "a red fox";
    sumi_job with, without;
    sumi_prompt* prompt = NULL;
    CHECK_NUMBER(sumi_submit_prompt(engine, &desc, &without), SUMI_OK);
    desc.loras = &use;
    desc.lora_count = 1;
    CHECK_NUMBER(sumi_submit_prompt(engine, &desc, &with), SUMI_OK);
    sumi_lora_release(lora);
    CHECK_NUMBER(sumi_job_poll(engine, with).state, SUMI_JOB_CANCELLED);
    CHECK_NUMBER(sumi_fetch_prompt(engine, with, &prompt), SUMI_CANCELLED);
    CHECK_NUMBER(sumi_job_wait(engine, without, SUMI_FOREVER), SUMI_OK);
    CHECK_NUMBER(sumi_fetch_prompt(engine, without, &prompt), SUMI_OK);
    sumi_prompt_release(prompt);
    close_engine(engine);
    remove_text_adapter(&file);
}

TEST(adapters_of_the_text_encoder_alone_need_it)
{
    OPEN(engine, model);
    const text_adapter alone = make_text_adapter("ink.safetensors", 0.5f, false),
                       both = make_text_adapter("chalk.safetensors", 0.5f, true);
    sumi_model_desc desc = sumi_model_defaults();
    desc.path = MODEL_PATH;
    desc.without_text_encoder = true;
    sumi_model* bare = load_model_of(engine, &desc);
    sumi_lora_desc lora_desc = sumi_lora_defaults(bare);
    lora_desc.path = alone.path;
    sumi_job job;
    sumi_lora* lora = NULL;
    CHECK_NUMBER(sumi_submit_lora(engine, &lora_desc, &job), SUMI_OK);
    CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
    CHECK_NUMBER(sumi_fetch_lora(engine, job, &lora), SUMI_NOT_SUPPORTED);
    CHECK(lora == NULL);
    CHECK(strstr(s_host.log, "ink.safetensors: all layers, 1, are of the text encoder") != NULL);
    lora = read_lora_at(engine, bare, both.path);
    CHECK(lora != NULL); // without this part; test_adapters.c has what is told of it
    sumi_lora_release(lora);
    lora = read_lora_at(engine, model, alone.path);
    CHECK(lora != NULL);
    sumi_lora_release(lora);
    close_engine(engine);
    remove_text_adapter(&alone), remove_text_adapter(&both);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(a_prompt_saved_by_an_earlier_version_is_read);
    RUN(every_text_encoder_is_told_saved_and_loaded);
    RUN(texts_that_are_too_long_are_reported);
    RUN(prompts_use_the_memory_of_released_ones);
    RUN(padded_texts_have_features_for_all_rows);
    RUN(padded_texts_of_a_batch_give_the_images_of_single_ones);
    RUN(adapters_change_the_features_of_prompts_by_their_text_scale);
    RUN(image_jobs_encode_their_texts_with_their_adapters);
    RUN(an_encoded_prompt_without_the_jobs_adapters_is_reported);
    RUN(saved_prompts_tell_their_adapters);
    RUN(releasing_an_adapter_cancels_the_prompt_jobs_that_use_it);
    RUN(adapters_of_the_text_encoder_alone_need_it);
    TEST_END();
}
