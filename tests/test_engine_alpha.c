// Pictures with alpha, through the public functions, with the tiny checkpoint of a model that makes and reads them: every
// format and target, start images and references, masks, previews, and the same of a model without.
#include "base/dtype.h"
#include "family_fixture.h"
#include "jobs/engine_state.h"
#include "jobs/prompt.h"
#include "picture.h"
#include "pictures/pixels.h"

#define GOLDEN_CASES "tests/golden/qwen-image-21/cases/"
enum { W = 96, H = 64, PIXELS = W * H, LATENTS = 64 * (W / 16) * (H / 16) };

// Colours and alpha of an odd size; a third of the pixels are transparent, and a third opaque.
enum { ODD_W = 101, ODD_H = 83, ODD_ROW = ODD_W * 4 + 6 };
static const uint8_t* odd_picture(void)
{
    static uint8_t s_data[ODD_ROW * ODD_H];
    for (int y = 0; y < ODD_H; y++) {
        for (int x = 0; x < ODD_W; x++) {
            uint8_t* pixel = s_data + y * ODD_ROW + 4 * x;
            for (int c = 0; c < 3; c++) pixel[c] = (uint8_t)(x * (5 + c) + y * 3 + x * y / 9);
            pixel[3] = (uint8_t)(x < ODD_W / 3 ? 0 : x > 2 * ODD_W / 3 ? 255 : 3 * y);
        }
    }
    return s_data;
}
static sumi_pixels odd_pixels(void) { return (sumi_pixels){odd_picture(), ODD_W, ODD_H, ODD_ROW, 4}; }

// The reference of a resize, RGBA without gaps.
static void resize_whole(const sumi_pixels* from, int32_t width, int32_t height, uint8_t* rgba)
{
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    const sumi_resized_pixels to = {rgba, width, height, SUMI_FILTER_LANCZOS};
    CHECK_NUMBER(sumi_pixels_to_rgba(&heap, from, &to, NULL), SUMI_OK);
}

static sumi_image_desc alpha_image(sumi_model* model)
{
    sumi_image_desc desc = small_image(model, &s_item);
    desc.width = W;
    desc.height = H;
    return desc;
}

static bool draw_rgba(sumi_engine* engine, const sumi_image_desc* desc, uint8_t* rgba)
{
    sumi_image image;
    if (draw(engine, desc, &image) != SUMI_OK) {
        printf("  %s\n", s_host.log);
        return false;
    }
    CHECK(image.has_alpha && image.format == SUMI_FORMAT_RGBA8 && image.row_bytes == image.width * 4);
    memcpy(rgba, image.pixels, (size_t)image.row_bytes * (size_t)image.height);
    sumi_images_release(engine, &image, 1);
    return true;
}

static bool encode_latents(sumi_engine* engine, sumi_model* model, const sumi_pixels* pixels, float* latents)
{
    sumi_encode_desc desc = sumi_encode_defaults(model);
    desc.image = pixels;
    desc.width = W;
    desc.height = H;
    sumi_job job;
    if (sumi_submit_encode(engine, &desc, &job) != SUMI_OK) return false;
    sumi_job_wait(engine, job, SUMI_FOREVER);
    return sumi_fetch_latents(engine, job, latents, LATENTS) == SUMI_OK;
}

// ---- Out ------------------------------------------------------------------------------------------------------------

// Noise of three times the deviation, so that the decoder leaves the range from 0 to 1 on both sides.
static const float* wide_noise(int32_t item_count)
{
    static float s_noise[7 * LATENTS];
    uint32_t state = 9;
    for (int i = 0; i < LATENTS; i++) {
        float sum = -6.0f;
        for (int k = 0; k < 12; k++) sum += (float)((state = state * 1664525u + 1013904223u) >> 8) / 16777216.0f;
        s_noise[i] = 3.0f * sum;
    }
    for (int32_t i = 1; i < item_count; i++) memcpy(s_noise + i * LATENTS, s_noise, LATENTS * sizeof *s_noise);
    return s_noise;
}

TEST(every_format_has_the_models_alpha_or_none)
{
    OPEN_ROW("qwen-image-2.1", engine, model);
    CHECK(sumi_model_get_info(model).has_alpha);
    enum { COUNT = 7, RGBA_ROW = W * 4 + 20, BGRA_ROW = W * 4 + 8, HALF_ROW = W * 8 + 2 };
    sumi_image_item items[COUNT];
    for (int i = 0; i < COUNT; i++) items[i] = s_item;
    static unsigned char s_rgba[RGBA_ROW * H], s_rgb[W * 3 * H], s_raw[W * 12 * H], s_bgra[BGRA_ROW * H],
        s_halves[HALF_ROW * H];
    memset(s_rgba, 0x77, sizeof s_rgba);
    const sumi_target targets[COUNT] = {
        {.format = SUMI_FORMAT_RGBA8, .host_memory = s_rgba, .row_bytes = RGBA_ROW},
        {.format = SUMI_FORMAT_RGB8, .host_memory = s_rgb},
        {.format = SUMI_FORMAT_RGB32F, .host_memory = s_raw},
        {.format = SUMI_FORMAT_RGBA8},
        {.format = SUMI_FORMAT_BGRA8, .host_memory = s_bgra, .row_bytes = BGRA_ROW, .bottom_up = true},
        {.format = SUMI_FORMAT_RGB8, .bottom_up = true},
        {.format = SUMI_FORMAT_RGBA16F, .host_memory = s_halves, .row_bytes = HALF_ROW}};
    sumi_image_desc desc = alpha_image(model);
    desc.items = items;
    desc.item_count = COUNT;
    desc.targets = targets;
    desc.noise.source = SUMI_NOISE_GIVEN;
    desc.noise.values = wide_noise(COUNT);
    sumi_image images[COUNT];
    const sumi_result result = draw(engine, &desc, images);
    CHECK_TEXT(s_host.log, "");
    CHECK_NUMBER(result, SUMI_OK);
    if (result != SUMI_OK) {
        close_engine(engine);
        return;
    }
    for (int i = 0; i < COUNT; i++) CHECK_NUMBER(images[i].has_alpha, i != 1 && i != 2 && i != 5);
    int wrong = 0, outside = 0, transparent = 0, opaque = 0, between = 0;
    for (int y = 0; y < H; y++) {
        for (int x = 0; x < W; x++) {
            const unsigned char *four = s_rgba + y * RGBA_ROW + x * 4, *below = s_bgra + (H - 1 - y) * BGRA_ROW + x * 4,
                                *upward = (const unsigned char*)images[5].pixels + ((H - 1 - y) * W + x) * 3,
                                *own = (const unsigned char*)images[3].pixels + (y * W + x) * 4;
            for (int c = 0; c < 3; c++) {
                float value;
                uint16_t half;
                memcpy(&value, s_raw + ((y * W + x) * 3 + c) * 4, sizeof value);
                memcpy(&half, s_halves + y * HALF_ROW + x * 8 + 2 * c, sizeof half);
                const float clamped = value < 0.0f ? 0.0f : value > 1.0f ? 1.0f : value;
                outside += clamped != value;
                wrong += half != sumi_float_to_f16(value);
                wrong += fabsf(clamped * 255.0f - (float)four[c]) > 0.501f || four[c] != s_rgb[(y * W + x) * 3 + c];
            }
            uint16_t half;
            memcpy(&half, s_halves + y * HALF_ROW + x * 8 + 6, sizeof half);
            const float alpha = sumi_f16_to_float(half);
            wrong += !(alpha >= 0.0f && alpha <= 1.0f) || fabsf(alpha * 255.0f - (float)four[3]) > 0.6f;
            transparent += four[3] == 0, opaque += four[3] == 255, between += four[3] > 0 && four[3] < 255;
            wrong += below[0] != four[2] || below[1] != four[1] || below[2] != four[0] || below[3] != four[3];
            wrong += memcmp(upward, four, 3) != 0 || memcmp(own, four, 4) != 0;
        }
        for (int i = W * 4; i < RGBA_ROW; i++) wrong += s_rgba[y * RGBA_ROW + i] != 0x77;
    }
    CHECK_NUMBER(wrong, 0);
    CHECK(outside > 0 && transparent > 0 && opaque > 0 && between > 0); // else the picture shows nothing
    sumi_images_release(engine, images, COUNT);
    close_engine(engine);
}

TEST(previews_are_opaque)
{
    OPEN_ROW("qwen-image-2.1", engine, model);
    sumi_image_desc desc = alpha_image(model);
    desc.preview_every = 1;
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    sumi_job_wait(engine, job, SUMI_FOREVER);
    static uint8_t s_preview[PIXELS / 64 * 4];
    sumi_image preview;
    CHECK_NUMBER(sumi_job_preview(engine, job, 0, s_preview, sizeof s_preview, &preview), SUMI_OK);
    CHECK(!preview.has_alpha && preview.width == W / 8 && preview.height == H / 8);
    int wrong = 0;
    for (int i = 0; i < PIXELS / 64; i++) wrong += s_preview[4 * i + 3] != 255;
    CHECK_NUMBER(wrong, 0);
    sumi_job_discard(engine, job);
    close_engine(engine);
}

// ---- In -------------------------------------------------------------------------------------------------------------

TEST(an_image_is_resized_by_its_alpha_and_encoded_with_it)
{
    OPEN_ROW("qwen-image-2.1", engine, model);
    static float s_latents[6][LATENTS];
    static uint8_t s_resized[PIXELS * 4], s_other[PIXELS * 4], s_rgb[PIXELS * 3];
    const sumi_pixels odd = odd_pixels();
    resize_whole(&odd, W, H, s_resized);
    const sumi_pixels resized = {s_resized, W, H, 0, 4};
    CHECK(encode_latents(engine, model, &odd, s_latents[0]) && encode_latents(engine, model, &resized, s_latents[1]));
    CHECK(memcmp(s_latents[0], s_latents[1], sizeof s_latents[0]) == 0);
    // colours of transparent pixels are seen as they are, where nothing is resized; so is alpha
    for (int k = 0; k < 2; k++) {
        memcpy(s_other, s_resized, sizeof s_other);
        for (int i = 0; i < PIXELS; i++) {
            if (s_other[4 * i + 3] != 0) continue;
            if (k == 0) s_other[4 * i] ^= 0x80;
            else s_other[4 * i + 3] = 90;
        }
        const sumi_pixels other = {s_other, W, H, 0, 4};
        CHECK(encode_latents(engine, model, &other, s_latents[2]));
        CHECK(memcmp(s_latents[0], s_latents[2], sizeof s_latents[0]) != 0);
    }
    // a picture without alpha is an opaque one
    for (int i = 0; i < PIXELS; i++) {
        memcpy(s_rgb + 3 * i, s_resized + 4 * i, 3);
        memcpy(s_other + 4 * i, s_resized + 4 * i, 3);
        s_other[4 * i + 3] = 255;
    }
    const sumi_pixels rgb = {s_rgb, W, H, 0, 3}, opaque = {s_other, W, H, 0, 4}, grey = {s_rgb, W, H, 3 * W, 1};
    CHECK(encode_latents(engine, model, &rgb, s_latents[3]) && encode_latents(engine, model, &opaque, s_latents[4])
          && encode_latents(engine, model, &grey, s_latents[5]));
    CHECK(memcmp(s_latents[3], s_latents[4], sizeof s_latents[3]) == 0);
    CHECK(memcmp(s_latents[3], s_latents[0], sizeof s_latents[3]) != 0);
    for (int i = 0; i < PIXELS; i++) {
        for (int c = 0; c < 3; c++) s_other[4 * i + c] = s_rgb[i / W * 3 * W + i % W];
    }
    CHECK(encode_latents(engine, model, &opaque, s_latents[4]));
    CHECK(memcmp(s_latents[5], s_latents[4], sizeof s_latents[5]) == 0);
    close_engine(engine);
}

TEST(a_start_image_is_what_its_latents_are)
{
    OPEN_ROW("qwen-image-2.1", engine, model);
    static float s_latents[LATENTS];
    static uint8_t s_pictures[2][PIXELS * 4];
    const sumi_pixels odd = odd_pixels();
    sumi_image_desc desc = alpha_image(model);
    desc.start.posterior = SUMI_POSTERIOR_MODE;
    desc.start.strength = 0.5f;
    desc.start.image = &odd;
    CHECK(draw_rgba(engine, &desc, s_pictures[0]));
    CHECK(encode_latents(engine, model, &odd, s_latents));
    desc.start.image = NULL;
    desc.start.latents = s_latents;
    CHECK(draw_rgba(engine, &desc, s_pictures[1]));
    CHECK(memcmp(s_pictures[0], s_pictures[1], sizeof s_pictures[0]) == 0);
    close_engine(engine);
}

// What a mask keeps is the start image with its alpha, and a feather weighs colours by alpha.
TEST(a_mask_keeps_alpha)
{
    OPEN_ROW("qwen-image-2.1", engine, model);
    static uint8_t s_start[PIXELS * 4], s_mask[PIXELS], s_pictures[2][PIXELS * 4];
    const sumi_pixels odd = odd_pixels();
    resize_whole(&odd, W, H, s_start);
    enum { EDGE = 50, FEATHER = 8 };
    for (int i = 0; i < PIXELS; i++) s_mask[i] = i % W >= EDGE ? 255 : 0;
    const sumi_pixels mask = {s_mask, W, H, 0, 1};
    sumi_image_desc desc = alpha_image(model);
    desc.start.image = &odd;
    desc.start.mask = &mask;
    desc.start.strength = 1.0f;
    for (int k = 0; k < 2; k++) {
        desc.start.mask_feather = k * FEATHER;
        CHECK(draw_rgba(engine, &desc, s_pictures[k]));
    }
    int kept = 0, wrong = 0, blended = 0;
    for (int i = 0; i < PIXELS; i++) {
        const uint8_t *start = s_start + 4 * i, *plain = s_pictures[0] + 4 * i, *soft = s_pictures[1] + 4 * i;
        if (s_mask[i] == 0) {
            kept += start[3] != 255;
            wrong += memcmp(plain, start, 4) != 0 || memcmp(soft, start, 4) != 0;
            continue;
        }
        // What the decoder made is blended before it is clamped: pixels of which a byte is at an end tell nothing.
        bool is_inside = true;
        for (int c = 0; c < 4; c++) is_inside = is_inside && plain[c] > 0 && plain[c] < 255;
        if (!is_inside) continue;
        const int inside = i % W - EDGE + 1;
        blended += inside < FEATHER;
        const double share = inside < FEATHER ? floor(255.0 * inside / FEATHER) / 255.0 : 1.0, over = share * plain[3],
                     under = (1.0 - share) * start[3], colour = over + under > 0.0 ? over / (over + under) : share;
        // Bytes are rounded on all sides, and so is the alpha that weighs colours.
        wrong += fabs(start[3] + share * (plain[3] - start[3]) - soft[3]) > 1.01;
        const double slack = 1.01 + 255.0 / (over + under + 1.0);
        for (int c = 0; c < 3; c++) wrong += fabs(start[c] + colour * (plain[c] - start[c]) - soft[c]) > slack;
    }
    CHECK(kept > 0 && blended > 50);
    CHECK_NUMBER(wrong, 0);
    close_engine(engine);
}

// ---- References -----------------------------------------------------------------------------------------------------

static int feature_differences(const sumi_prompt* a, const sumi_prompt* b)
{
    const sumi_prompt_encoder x = sumi_prompt_get_info(a).encoders[0], y = sumi_prompt_get_info(b).encoders[0];
    int differences = x.token_count != y.token_count || x.width != y.width;
    for (int i = 0; differences == 0 && i < x.token_count * x.width; i++)
        differences += memcmp(&x.features[i], &y.features[i], sizeof(float)) != 0;
    return differences;
}

// The autoencoder reads a reference with alpha; the vision tower sees it in front of white.
TEST(a_reference_keeps_alpha_and_is_seen_over_white)
{
    OPEN_ROW("qwen-image-2.1", engine, model);
    const sumi_pixels odd = odd_pixels();
    sumi_prompt* prompt = encode_with(engine, model, "the hat of picture 1", &odd, 1);
    CHECK(prompt != NULL && prompt->reference_count == 1);
    const sumi_picture_size size = prompt->reference_sizes[0];
    const int count = size.width * size.height;
    uint8_t *resized = malloc((size_t)count * 4), *white = malloc((size_t)count * 3);
    resize_whole(&odd, size.width, size.height, resized);
    CHECK_NUMBER(prompt->picture_channels, 4);
    CHECK(memcmp(prompt->references[0], resized, (size_t)count * 4) == 0);

    const sumi_pixels small = {resized, size.width, size.height, 0, 4}, over = {white, size.width, size.height, 0, 3};
    sumi_pixels_over_white(resized, (size_t)count, white);
    sumi_prompt *of_resized = encode_with(engine, model, "the hat of picture 1", &small, 1),
                *of_white = encode_with(engine, model, "the hat of picture 1", &over, 1);
    CHECK_NUMBER(feature_differences(prompt, of_resized), 0);
    CHECK_NUMBER(feature_differences(prompt, of_white), 0);
    CHECK(memcmp(prompt->references[0], of_white->references[0], (size_t)count * 4) != 0);
    for (int i = 0; i < count; i++) resized[4 * i + 3] = 255; // the colours of transparent pixels are seen now
    sumi_prompt* of_colours = encode_with(engine, model, "the hat of picture 1", &small, 1);
    CHECK(feature_differences(prompt, of_colours) > 0);
    sumi_prompt_release(of_resized), sumi_prompt_release(of_white), sumi_prompt_release(of_colours);

    // an image of the prompt, of its saved bytes, and of the text with the picture
    static uint8_t s_pictures[4][PIXELS * 4];
    const size_t bytes = sumi_prompt_save(prompt, NULL, 0);
    void* saved = malloc(bytes);
    CHECK_NUMBER(sumi_prompt_save(prompt, saved, bytes), bytes);
    sumi_prompt* loaded = NULL;
    CHECK_NUMBER(sumi_prompt_load(model, saved, bytes, &loaded), SUMI_OK);
    sumi_image_item item = {.prompt = prompt, .seed = 3};
    sumi_image_desc desc = alpha_image(model);
    desc.items = &item;
    CHECK(draw_rgba(engine, &desc, s_pictures[0]));
    item.prompt = loaded;
    CHECK(draw_rgba(engine, &desc, s_pictures[1]));
    item = (sumi_image_item){.text = "the hat of picture 1", .seed = 3};
    desc.references = &odd;
    desc.reference_count = 1;
    CHECK(draw_rgba(engine, &desc, s_pictures[2]));
    desc.references = &over;
    CHECK(draw_rgba(engine, &desc, s_pictures[3])); // the same words and rows of features, without the alpha
    for (int k = 1; k < 3; k++) CHECK(memcmp(s_pictures[0], s_pictures[k], sizeof s_pictures[0]) == 0);
    CHECK(memcmp(s_pictures[0], s_pictures[3], sizeof s_pictures[0]) != 0);
    sumi_prompt_release(loaded), sumi_prompt_release(prompt);
    free(saved), free(resized), free(white);
    close_engine(engine);
}

// The whole way of an edit with two references, of which one is transparent, against the reference implementation: its
// last latents, to the case's tolerance, within which a reference without its alpha is not.
TEST(an_edit_of_a_transparent_picture_is_that_of_the_reference)
{
    enum { WIDTH = 32, HEIGHT = 96, TOKENS = WIDTH / 16 * (HEIGHT / 16), CHANNELS = 64 };
    static const char* const s_names[2] = {"pipe-edit2.in0.png", "pipe-edit2.in1.png"};
    OPEN_ROW("qwen-image-2.1", engine, model); // its references have the area of the case's
    golden g;
    sumi_error error = {0};
    sumi_heap_init(&g.heap, NULL);
    sumi_tensor_set_init(&g.set, &g.heap, NULL);
    CHECK_NUMBER(sumi_tensor_set_open(&g.set, GOLDEN_CASES "pipe-edit2.safetensors", &error), SUMI_OK);
    float *noise = golden_copy(&g, "input.noise"), *tokens = golden_copy(&g, "expect_tb.latents_final");
    CHECK(noise != NULL && tokens != NULL);
    CHECK_NUMBER(golden_count(&g, "expect_tb.latents_final"), TOKENS * CHANNELS);
    picture_file files[2];
    sumi_pixels references[2];
    for (int i = 0; i < 2; i++) {
        char path[256], message[PICTURE_MESSAGE_BYTES];
        snprintf(path, sizeof path, GOLDEN_CASES "%s", s_names[i]);
        CHECK(picture_read(path, 0, &files[i], message));
        references[i] = (sumi_pixels){files[i].pixels, files[i].width, files[i].height, 0, files[i].channel_count};
    }
    CHECK(references[0].channel_count == 3 && references[1].channel_count == 4);
    const sumi_image_item item = {.text = "Put the hat of <image1> on the dog of <image2>.", .negative_text = " "};
    sumi_image_desc desc = small_image(model, &item);
    desc.width = WIDTH;
    desc.height = HEIGHT;
    desc.step_count = 3;
    desc.guidance.scale = 3.0f;
    desc.noise.source = SUMI_NOISE_GIVEN;
    desc.noise.values = noise;
    desc.references = references;
    desc.reference_count = 2;
    static float s_want[TOKENS * CHANNELS], s_got[TOKENS * CHANNELS];
    for (int t = 0; t < TOKENS && tokens != NULL; t++)
        for (int c = 0; c < CHANNELS; c++) s_want[c * TOKENS + t] = tokens[t * CHANNELS + c];
    for (int k = 0; k < 2; k++) {
        if (k == 1) // opaque now
            for (int i = 0; i < files[1].width * files[1].height; i++) files[1].pixels[4 * i + 3] = 255;
        sumi_job job;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        sumi_job_wait(engine, job, SUMI_FOREVER);
        CHECK_NUMBER(sumi_job_latents(engine, job, 0, s_got, TOKENS * CHANNELS), SUMI_OK);
        sumi_job_discard(engine, job);
        const double off = relative_error(s_got, s_want, TOKENS * CHANNELS);
        if (k == 0) printf("  latents %.2g from the reference's\n", off);
        CHECK(k == 0 ? off < 5e-5 : off > 5e-5);
    }
    for (int i = 0; i < 2; i++) picture_free(&files[i]);
    free(noise), free(tokens);
    golden_close(&g);
    close_engine(engine);
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

// A warm job with a start image and a reference allocates no more than a warm job without.
TEST(a_warm_job_with_alpha_allocates_nothing)
{
    OPEN_ROW("qwen-image-2.1", engine, model);
    static uint8_t s_picture[PIXELS * 4];
    static uint8_t s_rgba[PIXELS * 4];
    const sumi_pixels odd = odd_pixels();
    const sumi_target target = {.host_memory = s_rgba};
    sumi_image_desc desc = alpha_image(model);
    desc.start.image = &odd;
    desc.start.strength = 0.6f;
    desc.references = &odd;
    desc.reference_count = 1;
    desc.targets = &target;
    sumi_memory memory;
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_OK);
    uint64_t count = 0;
    for (int k = 0; k < 3; k++) {
        count = sumi_engine_get_info(engine).allocation_count;
        CHECK(draw_rgba(engine, &desc, s_picture));
    }
    CHECK_NUMBER(sumi_engine_get_info(engine).allocation_count, count);
    close_engine(engine);
}

// ---- Models without -------------------------------------------------------------------------------------------------

TEST(a_model_without_alpha_ignores_it)
{
    OPEN_ROW("flux2-klein", engine, model);
    CHECK(!sumi_model_get_info(model).has_alpha);
    static uint8_t s_rgb[ODD_W * ODD_H * 3];
    const sumi_pixels odd = odd_pixels(), rgb = {s_rgb, ODD_W, ODD_H, 0, 3};
    for (int i = 0; i < ODD_W * ODD_H; i++)
        memcpy(s_rgb + 3 * i, odd_picture() + i / ODD_W * ODD_ROW + i % ODD_W * 4, 3);
    sumi_image_desc desc = alpha_image(model);
    sumi_image images[2];
    desc.start.strength = 0.5f;
    for (int k = 0; k < 2; k++) {
        desc.start.image = desc.references = k == 0 ? &odd : &rgb;
        desc.reference_count = 1;
        CHECK_NUMBER(draw(engine, &desc, &images[k]), SUMI_OK);
        CHECK(!images[k].has_alpha);
    }
    int wrong = 0;
    for (int i = 0; i < PIXELS; i++) wrong += ((const uint8_t*)images[0].pixels)[4 * i + 3] != 255;
    CHECK_NUMBER(wrong, 0);
    CHECK(hash_image(&images[0]) == hash_image(&images[1]));
    sumi_images_release(engine, images, 2);
    close_engine(engine);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(every_format_has_the_models_alpha_or_none);
    RUN(previews_are_opaque);
    RUN(an_image_is_resized_by_its_alpha_and_encoded_with_it);
    RUN(a_start_image_is_what_its_latents_are);
    RUN(a_mask_keeps_alpha);
    RUN(a_reference_keeps_alpha_and_is_seen_over_white);
    RUN(an_edit_of_a_transparent_picture_is_that_of_the_reference);
    RUN(a_warm_job_with_alpha_allocates_nothing);
    RUN(a_model_without_alpha_ignores_it);
    TEST_END();
}
