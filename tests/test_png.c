// Reading and writing PNG files, which samples and tests share (samples/shared/picture.h): every good file to the pixel, every bad
// one refused with a sentence.
#include "files/json.h"
#include "files/tensors.h"
#include "picture.h"
#include "test.h"

#define FOLDER "tests/golden/common/images/"

static sumi_heap s_heap;

static char* text_of(const sumi_json_text* raw) // file names and verdicts of the manifest: plain ASCII without escapes
{
    char* text = malloc(raw->bytes + 1);
    memcpy(text, raw->data, raw->bytes);
    text[raw->bytes] = 0;
    return text;
}

typedef void visit_function(const char* file, const char* expect, int width, int height, void* context);

// Calls visit for every entry of one of the manifest's lists.
static void visit_manifest(const char* list, visit_function* visit, void* context)
{
    sumi_file file = {0};
    sumi_error error = {0};
    CHECK_NUMBER(sumi_file_open(&file, &s_heap, NULL, FOLDER "manifest.json", &error), SUMI_OK);
    sumi_json json;
    sumi_json_text key, value;
    sumi_json_begin(&json, file.data, file.bytes, &error);
    int count = 0;
    if (sumi_json_object(&json)) {
        while (sumi_json_key(&json, &key)) {
            if (!sumi_json_is(&key, list)) {
                sumi_json_skip(&json);
                continue;
            }
            if (!sumi_json_array(&json)) break;
            while (sumi_json_item(&json)) {
                char *name = NULL, *expect = NULL;
                int width = 0, height = 0;
                if (!sumi_json_object(&json)) break;
                while (sumi_json_key(&json, &key)) {
                    if (sumi_json_is(&key, "file") && sumi_json_string(&json, &value)) name = text_of(&value);
                    else if (sumi_json_is(&key, "expect") && sumi_json_string(&json, &value)) expect = text_of(&value);
                    else if (sumi_json_is(&key, "width")) width = (int)sumi_json_integer(&json);
                    else if (sumi_json_is(&key, "height")) height = (int)sumi_json_integer(&json);
                    else sumi_json_skip(&json);
                }
                if (name) visit(name, expect ? expect : "accept", width, height, context);
                count++;
                free(name);
                free(expect);
            }
        }
    }
    CHECK_NUMBER(sumi_json_end(&json), SUMI_OK);
    CHECK(count > 0);
    sumi_file_close(&file);
}

static void check_good(const char* file, const char* expect, int width, int height, void* context)
{
    (void)expect;
    const sumi_tensor_set* expected = context;
    char path[256], name[256], message[PICTURE_MESSAGE_BYTES];
    snprintf(path, sizeof path, FOLDER "%s", file);
    snprintf(name, sizeof name, "%.*s.rgba8", (int)strlen(file) - 4, file);
    picture_file image;
    if (!picture_read(path, 4, &image, message)) {
        t_errors++;
        printf("  refused: %s\n", message);
        return;
    }
    CHECK_NUMBER(image.width, width);
    CHECK_NUMBER(image.height, height);
    const sumi_tensor* pixels = sumi_tensor_find(expected, name);
    CHECK(pixels && pixels->bytes == (uint64_t)width * (uint64_t)height * 4);
    if (pixels && memcmp(pixels->data, image.pixels, pixels->bytes) != 0) {
        t_errors++;
        printf("  %s: pixels differ\n", file);
    }
    picture_free(&image);
}

TEST(every_color_type_and_depth_gives_the_expected_pixels)
{
    sumi_tensor_set expected = {0};
    sumi_error error = {0};
    sumi_tensor_set_init(&expected, &s_heap, NULL);
    CHECK_NUMBER(sumi_tensor_set_open(&expected, FOLDER "expected.safetensors", &error), SUMI_OK);
    visit_manifest("good", check_good, &expected);
    sumi_tensor_set_close(&expected);
}

static void check_bad(const char* file, const char* expect, int width, int height, void* context)
{
    (void)width, (void)height, (void)context;
    char path[256], message[PICTURE_MESSAGE_BYTES];
    snprintf(path, sizeof path, FOLDER "%s", file);
    picture_file image;
    bool read = picture_read(path, 4, &image, message);
    if (read && strcmp(expect, "reject") == 0) {
        t_errors++;
        printf("  %s was accepted\n", file);
    }
    if (!read) {
        CHECK(strstr(message, path) != NULL); // the sentence names the file
        CHECK(!image.pixels && !image.parameters && image.width == 0);
    }
    picture_free(&image);
}

TEST(damaged_files_are_refused_by_name) { visit_manifest("malformed", check_bad, NULL); }

// ---- Writing --------------------------------------------------------------------------------------------------------
static char s_scratch[256]; // a file beside the test program, so that several builds can run at once

TEST(what_is_written_reads_back_the_same)
{
    uint8_t pixels[5 * 64];
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(i * 37 + 11);
    char message[PICTURE_MESSAGE_BYTES];
    static const int s_counts[3] = {1, 3, 4};
    for (int k = 0; k < 3; k++) {
        int channels = s_counts[k];
        picture_file image;
        CHECK(picture_write(s_scratch, &(picture_source){pixels, 7, 5, 64, channels, NULL, 0},
                            message)); // rows have a gap
        CHECK(picture_read(s_scratch, 0, &image, message));
        CHECK_NUMBER(image.channel_count, channels);
        CHECK_NUMBER(image.width, 7);
        CHECK_NUMBER(image.height, 5);
        for (int y = 0; y < 5 && image.pixels; y++)
            CHECK(memcmp(image.pixels + y * 7 * channels, pixels + y * 64, (size_t)(7 * channels)) == 0);
        CHECK(!image.parameters);
        picture_free(&image);
    }
}

TEST(alpha_that_is_255_everywhere_is_left_out)
{
    uint8_t pixels[5 * 36];
    char message[PICTURE_MESSAGE_BYTES];
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = i % 4 == 3 ? 255 : (uint8_t)(i * 37 + 11);
    for (int channels = 3; channels <= 4; channels++) {
        picture_file image;
        CHECK(picture_write(s_scratch, &(picture_source){pixels, 7, 5, 36, 4, NULL, 0}, message)); // rows have a gap
        CHECK(picture_read(s_scratch, 0, &image, message));
        CHECK_NUMBER(image.channel_count, channels);
        for (int i = 0; i < 7 * 5 && image.pixels; i++)
            CHECK(memcmp(image.pixels + i * channels, pixels + i / 7 * 36 + i % 7 * 4, (size_t)channels) == 0);
        picture_free(&image);
        pixels[4 * 36 + 6 * 4 + 3] = 254; // the last pixel
    }
}

TEST(parameters_survive_in_latin1_and_in_unicode)
{
    static const char* const s_texts[] = {
        "a lighthouse at dusk, \"ink wash\"\nNegative prompt: fog\nSteps: 8, Sampler: Euler, Seed: 7, Size: 256x256",
        "caf\xC3\xA9 \xC3\x97 2\xC2\xBD\nSteps: 1",            // fits Latin-1: tEXt
        "\xE7\x81\xAF\xE5\xA1\x94 \xF0\x9F\x8C\x8A\nSteps: 1", // does not: iTXt
    };
    static const uint8_t s_pixel[3] = {1, 2, 3};
    char message[PICTURE_MESSAGE_BYTES];
    for (int k = 0; k < 3; k++) {
        picture_file image;
        CHECK(picture_write(s_scratch, &(picture_source){s_pixel, 1, 1, 3, 3, s_texts[k], 0}, message));
        FILE* file = fopen(s_scratch, "rb");
        char bytes[1024];
        size_t count = file ? fread(bytes, 1, sizeof bytes - 5, file) : 0;
        if (file) fclose(file);
        bool international = false;
        for (size_t i = 0; i + 4 <= count; i++) international |= memcmp(bytes + i, "iTXt", 4) == 0;
        CHECK(international == (k == 2));
        CHECK(picture_read(s_scratch, 3, &image, message));
        CHECK_TEXT(image.parameters ? image.parameters : "(none)", s_texts[k]);
        picture_free(&image);
    }
}

TEST(channels_are_converted_on_request)
{
    static const uint8_t s_pixels[16] = {255, 0, 0, 9, 0, 255, 0, 128, 10, 20, 30, 255, 0, 0, 255, 255};
    char message[PICTURE_MESSAGE_BYTES];
    picture_file image;
    CHECK(picture_write(s_scratch, &(picture_source){s_pixels, 4, 1, 16, 4, NULL, 0}, message));
    CHECK(picture_read(s_scratch, 3, &image, message)); // alpha is dropped
    CHECK(image.pixels && memcmp(image.pixels, "\xFF\0\0\0\xFF\0\x0A\x14\x1E\0\0\xFF", 12) == 0);
    picture_free(&image);
    CHECK(picture_read(s_scratch, 1, &image, message)); // Pillow's convert("L") gives these
    CHECK(image.pixels && image.pixels[0] == 76 && image.pixels[1] == 150 && image.pixels[2] == 18
          && image.pixels[3] == 29);
    picture_free(&image);
    CHECK(picture_write(s_scratch, &(picture_source){s_pixels, 3, 1, 3, 1, NULL, 0}, message));
    CHECK(picture_read(s_scratch, 4, &image, message)); // grey is repeated, alpha filled
    CHECK(image.pixels && memcmp(image.pixels, "\xFF\xFF\xFF\xFF\0\0\0\xFF\0\0\0\xFF", 12) == 0);
    picture_free(&image);
}

TEST(failures_say_what_and_why)
{
    static const uint8_t s_pixel[3] = {0};
    char message[PICTURE_MESSAGE_BYTES];
    picture_file image;
    CHECK(!picture_read("no/such/file.png", 0, &image, message));
    CHECK_TEXT(message, "cannot open no/such/file.png: No such file or directory");
    CHECK(!picture_read("tests", 0, &image, message));
    // Windows opens no folder
    CHECK(strstr(message, "cannot read tests") != NULL || strstr(message, "cannot open tests") != NULL);
    CHECK(!picture_read(FOLDER "manifest.json", 0, &image, message));
    CHECK_TEXT(message, FOLDER "manifest.json is not a PNG, JPEG or WebP file: convert the picture first");
    CHECK(!picture_write("no/such/folder/x.png", &(picture_source){s_pixel, 1, 1, 3, 3, NULL, 0}, message));
    CHECK(strstr(message, "cannot write no/such/folder/x.png") != NULL);
    CHECK(!picture_write(s_scratch, &(picture_source){s_pixel, 0, 1, 3, 3, NULL, 0}, message) && message[0]);
    CHECK(!picture_write(s_scratch, &(picture_source){s_pixel, 1, 1, 2, 3, NULL, 0}, message)
          && message[0]); // rows too short
    CHECK(!picture_write(s_scratch, &(picture_source){s_pixel, 1, 1, 3, 2, NULL, 0}, message) && message[0]);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    snprintf(s_scratch, sizeof s_scratch, "%s.scratch.png", argv[0]);
    RUN(every_color_type_and_depth_gives_the_expected_pixels);
    RUN(damaged_files_are_refused_by_name);
    RUN(what_is_written_reads_back_the_same);
    RUN(alpha_that_is_255_everywhere_is_left_out);
    RUN(parameters_survive_in_latin1_and_in_unicode);
    RUN(channels_are_converted_on_request);
    RUN(failures_say_what_and_why);
    remove(s_scratch);
    TEST_END();
}
