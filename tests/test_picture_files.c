// Reading and writing JPEG and WebP files, their EXIF, and the text about how a picture was made (samples/shared/picture.h,
// exif.h, parameters.h), and the edges of pictures (edges.h). test_png.c has PNG.
#include "edges.h"
#include "exif.h"
#include "parameters.h"
#include "picture.h"
#include "test.h"
#include "utf8.h"

#define FOLDER "tests/picture_files/"

static bool has_codec(const char* path)
{
    char message[PICTURE_MESSAGE_BYTES];
    return picture_path_is_possible(path, message);
}
#define NEEDS_CODEC(path)                                                                                              \
    if (!has_codec(path)) SKIP("this build has no codec for " path)

static int largest_difference(const picture_file* a, const picture_file* b)
{
    int largest = 0;
    if (!a->pixels || !b->pixels || a->width != b->width || a->height != b->height
        || a->channel_count != b->channel_count)
        return 256;
    for (size_t i = 0; i < (size_t)a->width * (size_t)a->height * (size_t)a->channel_count; i++) {
        const int difference = abs(a->pixels[i] - b->pixels[i]);
        if (difference > largest) largest = difference;
    }
    return largest;
}

// ---- Files of another program -----------------------------------------------------------------------------------------

static void check_file(const char* name, picture_format format, int32_t channel_count, int limit)
{
    char path[256], message[PICTURE_MESSAGE_BYTES];
    picture_file wanted, got;
    snprintf(path, sizeof path, FOLDER "%s", name);
    CHECK(picture_read(FOLDER "wanted.png", channel_count == 1 ? 1 : 3, &wanted, message));
    CHECK(picture_read(path, 0, &got, message));
    CHECK_TEXT(message, "");
    CHECK_NUMBER(got.format, format);
    CHECK_NUMBER(got.channel_count, channel_count);
    picture_free(&got);
    CHECK(picture_is_one(path));
    CHECK(picture_read(path, channel_count == 1 ? 1 : 3, &got, message));
    const int difference = largest_difference(&wanted, &got);
    if (difference > limit) printf("  %s: off by %d\n", name, difference);
    CHECK(difference <= limit);
    picture_free(&wanted);
    picture_free(&got);
}

// Lossy formats blur the edges between the rectangles; a wrong channel or a wrong place would be off by 150 and more.
TEST(jpegs_of_every_kind_are_read)
{
    NEEDS_CODEC("x.jpg");
    check_file("plain.jpg", PICTURE_JPEG, 3, 24);
    check_file("progressive.jpg", PICTURE_JPEG, 3, 24);
    check_file("grey.jpg", PICTURE_JPEG, 1, 24);
    check_file("cmyk.jpg", PICTURE_JPEG, 3, 24);
}

// Without the marker by which Adobe's programs say that CMYK is inverted, it is read as inverted all the same.
TEST(cmyk_is_read_without_the_marker_of_adobe)
{
    NEEDS_CODEC("x.jpg");
    uint8_t whole[8192];
    FILE* file = fopen(FOLDER "cmyk.jpg", "rb");
    size_t bytes = file ? fread(whole, 1, sizeof whole, file) : 0, at = 0;
    if (file) fclose(file);
    while (at + 16 < bytes
           && memcmp(whole + at,
                     "\xFF\xEE\0\x0E"
                     "Adobe",
                     9)
                  != 0)
        at++;
    CHECK(at + 16 < bytes);
    picture_file with, without;
    char message[PICTURE_MESSAGE_BYTES];
    CHECK(picture_read_memory(whole, bytes, "cmyk", 3, &with, message));
    memmove(whole + at, whole + at + 16, bytes - at - 16);
    CHECK(picture_read_memory(whole, bytes - 16, "cmyk", 3, &without, message));
    CHECK_NUMBER(largest_difference(&with, &without), 0);
    picture_free(&with);
    picture_free(&without);
}

TEST(webps_of_every_kind_are_read)
{
    NEEDS_CODEC("x.webp");
    check_file("lossless.webp", PICTURE_WEBP, 3, 0);
    check_file("lossy.webp", PICTURE_WEBP, 3, 100); // colour has half the resolution and runs over the edges
    check_file("alpha.webp", PICTURE_WEBP, 4, 0);
    check_file("turned.webp", PICTURE_WEBP, 3, 0);
    picture_file image;
    char message[PICTURE_MESSAGE_BYTES];
    CHECK(picture_read(FOLDER "alpha.webp", 4, &image, message));
    CHECK(image.pixels && image.pixels[3] == 255 && image.pixels[4 * 24 * 8 + 3] == 128);
    picture_free(&image);
    CHECK(!picture_read(FOLDER "animated.webp", 3, &image, message));
    CHECK(strstr(message, "animated.webp is an animation") != NULL && !image.pixels);
}

// Every cut of a file is refused or read, and never read past its end: the copy has exactly the bytes that are left.
TEST(files_cut_short_are_refused)
{
    static const char* const s_names[] = {"plain.jpg", "progressive.jpg", "lossless.webp", "lossy.webp", "webui.jpg"};
    char message[PICTURE_MESSAGE_BYTES];
    for (size_t k = 0; k < sizeof s_names / sizeof *s_names; k++) {
        char path[256];
        snprintf(path, sizeof path, FOLDER "%s", s_names[k]);
        if (!has_codec(path)) continue;
        FILE* file = fopen(path, "rb");
        uint8_t whole[8192];
        const size_t bytes = file ? fread(whole, 1, sizeof whole, file) : 0;
        if (file) fclose(file);
        CHECK(bytes > 50);
        for (size_t left = 0; left < bytes; left++) {
            uint8_t* copy = exact_copy(whole, left);
            picture_file image;
            const bool is_read = picture_read_memory(copy, left, s_names[k], 3, &image, message);
            CHECK(is_read == (image.pixels != NULL) && is_read == (message[0] == 0));
            if (left < bytes * 3 / 4) CHECK(!is_read); // the last bytes are an end mark or a checksum's
            picture_free(&image);
            free(copy);
        }
    }
}

// ---- What is written ----------------------------------------------------------------------------------------------------

static uint8_t s_pixels[20 * 12 * 4];

static void fill_pixels(void)
{
    for (int y = 0; y < 12; y++)
        for (int x = 0; x < 20; x++)
            for (int c = 0; c < 4; c++)
                s_pixels[(y * 20 + x) * 4 + c] = c == 3 ? 255 : (uint8_t)(60 + 4 * x + 3 * y * (c - 1));
}

TEST(what_is_written_reads_back)
{
    static const struct {
        picture_format format;
        const char* name;
        int32_t quality, limit;
    } s_cases[] = {{PICTURE_PNG, "x.png", 0, 0},
                   {PICTURE_JPEG, "x.jpg", 0, 12},
                   {PICTURE_JPEG, "x.jpeg", 100, 4},
                   {PICTURE_WEBP, "x.webp", 0, 24},
                   {PICTURE_WEBP, "x.WEBP", 100, 0}};
    static const char s_text[] = "a fox \xE5\x88\x9D\xE9\x9F\xB3 \xF0\x9F\x8C\x8A\nSteps: 8, Seed: 7, Size: 20x12";
    fill_pixels();
    for (size_t k = 0; k < sizeof s_cases / sizeof *s_cases; k++) {
        if (!has_codec(s_cases[k].name)) continue;
        CHECK_NUMBER(picture_format_of_path(s_cases[k].name), s_cases[k].format);
        for (int32_t channel_count = 1; channel_count <= 4; channel_count += channel_count == 1 ? 2 : 1) {
            // Rows with a gap behind them.
            const picture_source source = {
                s_pixels, (int32_t)(20 * 4 / channel_count) - 2, 12, 20 * 4, channel_count, s_text, s_cases[k].quality};
            void* data;
            size_t bytes;
            char message[PICTURE_MESSAGE_BYTES];
            picture_file got;
            CHECK(picture_encode(s_cases[k].format, &source, &data, &bytes, message));
            CHECK_TEXT(message, "");
            CHECK(picture_read_memory(data, bytes, s_cases[k].name, channel_count, &got, message));
            CHECK_TEXT(got.parameters ? got.parameters : "(none)", s_text);
            CHECK_NUMBER(got.width, source.width);
            int largest = 0;
            for (int y = 0; y < 12 && got.pixels; y++) {
                for (int i = 0; i < source.width * channel_count; i++) {
                    if (channel_count != 4 && s_cases[k].limit > 0)
                        continue; // the pattern of four channels is noise in others
                    const int difference = abs(got.pixels[y * source.width * channel_count + i] - s_pixels[y * 80 + i]);
                    if (difference > largest) largest = difference;
                }
            }
            if (largest > s_cases[k].limit)
                printf("  %s, %d channels: off by %d\n", s_cases[k].name, channel_count, largest);
            CHECK(largest <= s_cases[k].limit);
            picture_free(&got);
            free(data);
        }
    }
}

// PNG and lossless WebP keep every byte, of transparent pixels too; a WebP with loss keeps alpha and shows the colours
// where they are seen; a JPEG shows them over white, and says so.
TEST(alpha_is_kept_where_the_format_has_it)
{
    enum { W = 32, H = 16 };
    static uint8_t s_rgba[W * H * 4];
    for (int i = 0; i < W * H; i++) {
        const int x = i % W;
        s_rgba[4 * i] = 200, s_rgba[4 * i + 1] = 40, s_rgba[4 * i + 2] = 60;
        s_rgba[4 * i + 3] = (uint8_t)(x < 8 ? 255 : x < 16 ? 128 : 0);
        if (x >= 16) s_rgba[4 * i] = (uint8_t)(7 * i);
    }
    static const struct {
        picture_format format;
        const char* name;
        int32_t quality;
    } s_cases[] = {{PICTURE_PNG, "x.png", 0},
                   {PICTURE_WEBP, "x.webp", 100},
                   {PICTURE_WEBP, "x.webp", 0},
                   {PICTURE_JPEG, "x.jpg", 0}};
    for (size_t k = 0; k < sizeof s_cases / sizeof *s_cases; k++) {
        if (!has_codec(s_cases[k].name)) continue;
        const bool is_jpeg = s_cases[k].format == PICTURE_JPEG, is_exact = k < 2;
        const picture_source source = {s_rgba, W, H, W * 4, 4, NULL, s_cases[k].quality};
        char message[PICTURE_MESSAGE_BYTES];
        void* data;
        size_t bytes;
        picture_file got;
        CHECK(picture_encode(s_cases[k].format, &source, &data, &bytes, message));
        CHECK(is_jpeg ? strstr(message, "no alpha") != NULL : message[0] == 0);
        CHECK(picture_read_memory(data, bytes, s_cases[k].name, 0, &got, message));
        CHECK_NUMBER(got.channel_count, is_jpeg ? 3 : 4);
        int wrong = 0;
        for (int i = 0; i < W * H && got.pixels; i++) {
            const uint8_t *from = s_rgba + 4 * i, *to = got.pixels + got.channel_count * i;
            wrong += is_exact && memcmp(from, to, 4) != 0;
            wrong += !is_jpeg && to[3] != from[3];
            for (int c = 0; c < 3; c++) {
                const int want = is_jpeg ? (from[c] * from[3] + 255 * (255 - from[3]) + 127) / 255 : from[c];
                wrong += (is_jpeg || from[3] > 0) && abs(want - to[c]) > 24; // a wrong colour would be off by 95
            }
        }
        CHECK_NUMBER(wrong, 0);
        picture_free(&got);
        free(data);
    }
}

TEST(what_cannot_be_written_is_refused)
{
    char message[PICTURE_MESSAGE_BYTES];
    void* data;
    size_t bytes;
    picture_source source = {s_pixels, 20, 12, 80, 4, NULL, 0};
    static const char* const s_unknown[] = {"x", "x.gif", "x.png.part", "png", ".", "", "a.b/c", "x.jpegs"};
    for (size_t i = 0; i < sizeof s_unknown / sizeof *s_unknown; i++) {
        CHECK_NUMBER(picture_format_of_path(s_unknown[i]), PICTURE_UNKNOWN);
        CHECK(!picture_path_is_possible(s_unknown[i], message));
        CHECK(strstr(message, "write .png, .jpg") != NULL);
        CHECK(!picture_write(s_unknown[i], &source, message));
    }
    CHECK(!picture_encode(PICTURE_UNKNOWN, &source, &data, &bytes, message) && message[0] && !data);
    source.quality = 101;
    CHECK(!picture_encode(PICTURE_PNG, &source, &data, &bytes, message) && message[0] && !data);
    source.quality = 0;
    if (has_codec("x.webp")) { // a row of 16384 pixels is one too many
        uint8_t* wide = calloc(16384, 3);
        CHECK(!picture_encode(PICTURE_WEBP, &(picture_source){wide, 16384, 1, 16384 * 3, 3, NULL, 0}, &data, &bytes,
                              message));
        CHECK(strstr(message, "at most 16383 pixels") != NULL && !data);
        free(wide);
    }
    if (has_codec("x.jpg")) { // a text of 40,000 letters is 80,000 bytes of UTF-16
        char* text = malloc(40001);
        memset(text, 'a', 40000);
        text[40000] = 0;
        source.parameters = text;
        CHECK(picture_encode(PICTURE_JPEG, &source, &data, &bytes, message));
        CHECK(strstr(message, "left out") != NULL);
        picture_file got;
        CHECK(picture_read_memory(data, bytes, "x", 3, &got, message) && !got.parameters);
        picture_free(&got);
        free(data);
        free(text);
    }
}

// ---- EXIF -----------------------------------------------------------------------------------------------------------

static size_t put_number(uint8_t* to, uint32_t number, int bytes, bool is_little_endian)
{
    for (int i = 0; i < bytes; i++) to[i] = (uint8_t)(number >> 8 * (is_little_endian ? i : bytes - 1 - i));
    return (size_t)bytes;
}

// Writes an EXIF block with one orientation after another, and returns its size. type 3: short, 4: long.
static size_t write_orientations(uint8_t* block, bool is_little_endian, int type, const char* orientations)
{
    const size_t count = strlen(orientations);
    memcpy(block, is_little_endian ? "II*\0" : "MM\0*", 4);
    size_t at = 4 + put_number(block + 4, 8, 4, is_little_endian);
    at += put_number(block + at, (uint32_t)count, 2, is_little_endian);
    for (size_t i = 0; i < count; i++) {
        at += put_number(block + at, 0x0112, 2, is_little_endian);
        at += put_number(block + at, (uint32_t)type, 2, is_little_endian);
        at += put_number(block + at, 1, 4, is_little_endian);
        memset(block + at, 0, 4);
        put_number(block + at, (uint32_t)(orientations[i] - '0'), type == 3 ? 2 : 4, is_little_endian);
        at += 4;
    }
    return at + put_number(block + at, 0, 4, is_little_endian);
}

static uint32_t png_checksum(const uint8_t* data, size_t bytes)
{
    uint32_t crc = 0xFFFFFFFFu;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= data[i];
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (0xEDB88320u & (0u - (crc & 1)));
    }
    return ~crc;
}

// Puts a block into a file as the formats keep it: a marker behind the first two bytes of a JPEG; a chunk before the
// pixels of a PNG, or behind them; a last chunk of a WebP, whose first one says that it is there. Returns the new size.
static size_t put_exif(picture_format format, uint8_t* file, size_t bytes, const uint8_t* block, size_t block_bytes,
                       bool is_behind)
{
    uint8_t chunk[256];
    size_t at = format == PICTURE_JPEG ? 2 : is_behind ? bytes - 12 : 33, used = 0;
    if (format == PICTURE_JPEG) {
        memcpy(chunk, "\xFF\xE1??Exif\0", 10);
        put_number(chunk + 2, (uint32_t)block_bytes + 8, 2, false);
        memcpy(chunk + 10, block, block_bytes);
        used = 10 + block_bytes;
    } else if (format == PICTURE_PNG) {
        put_number(chunk, (uint32_t)block_bytes, 4, false);
        memcpy(chunk + 4, "eXIf", 4);
        memcpy(chunk + 8, block, block_bytes);
        put_number(chunk + 8 + block_bytes, png_checksum(chunk + 4, 4 + block_bytes), 4, false);
        used = 12 + block_bytes;
    } else {
        if (memcmp(file + 12, "VP8X", 4) != 0) {
            memcpy(chunk, "VP8X\x0A\0\0\0\x08\0\0\0\x17\0\0\x0F\0\0", 18); // EXIF, 24 x 16 pixels
            memmove(file + 12 + 18, file + 12, bytes - 12);
            memcpy(file + 12, chunk, 18);
            bytes += 18;
        }
        memcpy(chunk, "EXIF", 4);
        put_number(chunk + 4, (uint32_t)block_bytes, 4, true);
        memcpy(chunk + 8, block, block_bytes);
        chunk[8 + block_bytes] = 0;
        used = 8 + (block_bytes + 1) / 2 * 2;
        at = bytes;
    }
    memmove(file + at + used, file + at, bytes - at);
    memcpy(file + at, chunk, used);
    if (format == PICTURE_WEBP) put_number(file + 4, (uint32_t)(bytes + used) - 8, 4, true);
    return bytes + used;
}

// TIFF 6.0, Orientation: the side of the upright picture at which row 0 lies, and that at which column 0 lies.
static void check_upright(const uint8_t* file, size_t bytes, int orientation)
{
    static const char s_sides[9][2] = {"", "TL", "TR", "BR", "BL", "LT", "RT", "RB", "LB"};
    char message[PICTURE_MESSAGE_BYTES];
    picture_file got;
    uint8_t* copy = exact_copy(file, bytes);
    CHECK(picture_read_memory(copy, bytes, "turned", 3, &got, message));
    CHECK_TEXT(message, "");
    const bool is_wide = orientation < 5;
    CHECK_NUMBER(got.width, is_wide ? 24 : 16);
    CHECK_NUMBER(got.height, is_wide ? 16 : 24);
    // The corner where row 0 and column 0 meet; the green one lies at the other end of row 0.
    const char* side = s_sides[orientation];
    const bool right = side[0] == 'R' || side[1] == 'R', bottom = side[0] == 'B' || side[1] == 'B',
               row_lies_flat = side[0] == 'T' || side[0] == 'B';
    const int red_x = right ? got.width - 2 : 1, red_y = bottom ? got.height - 2 : 1,
              green_x = row_lies_flat ? got.width - 1 - red_x : red_x,
              green_y = row_lies_flat ? red_y : got.height - 1 - red_y;
    CHECK(got.pixels && got.pixels[(red_y * got.width + red_x) * 3] > 200);
    CHECK(got.pixels && got.pixels[(green_y * got.width + green_x) * 3 + 1] > 200);
    picture_free(&got);
    free(copy);
}

// 24 x 16 pixels in *out_file, which has 1024 bytes to spare: the corner of row 0 and column 0 is red, the other one of
// row 0 green, the rest blue.
static size_t encode_corners(picture_format format, uint8_t** out_file)
{
    static uint8_t s_stored[16 * 24 * 3];
    for (int y = 0; y < 16; y++)
        for (int x = 0; x < 24; x++) s_stored[(y * 24 + x) * 3 + (y >= 8 ? 2 : x < 12 ? 0 : 1)] = 250;
    char message[PICTURE_MESSAGE_BYTES];
    void* encoded;
    size_t bytes;
    CHECK(picture_encode(format, &(picture_source){s_stored, 24, 16, 72, 3, NULL, format == PICTURE_WEBP ? 100 : 95},
                         &encoded, &bytes, message));
    *out_file = malloc(bytes + 1024);
    memcpy(*out_file, encoded, bytes);
    free(encoded);
    return bytes;
}

static void check_turned(picture_format format)
{
    uint8_t *plain, block[128];
    const size_t bytes = encode_corners(format, &plain);
    uint8_t* file = malloc(bytes + 1024);
    for (int i = 0; i < 9 * 8; i++) {
        const bool is_little_endian = i / 9 % 2 == 1, is_behind = i / 9 >= 4;
        const int orientation = i % 9, type = i / 18 % 2 == 1 ? 4 : 3; // 0 is no orientation
        const char text[2] = {(char)('0' + orientation), 0};
        const size_t block_bytes = write_orientations(block, is_little_endian, type, text);
        memcpy(file, plain, bytes);
        check_upright(file, put_exif(format, file, bytes, block, block_bytes, is_behind),
                      orientation > 0 ? orientation : 1);
    }
    // Two orientations: the last one of a block. Of two blocks the first that has one.
    memcpy(file, plain, bytes);
    size_t block_bytes = write_orientations(block, false, 3, "36");
    size_t file_bytes = put_exif(format, file, bytes, block, block_bytes, false);
    check_upright(file, file_bytes, 6);
    if (format != PICTURE_PNG) { // a PNG may not have two
        block_bytes = write_orientations(block, true, 3, "8");
        memcpy(file, plain, bytes);
        const bool first_is_put_last = format == PICTURE_JPEG;
        file_bytes = put_exif(format, file, bytes, block, block_bytes, false);
        block_bytes = write_orientations(block, false, 3, "3");
        file_bytes = put_exif(format, file, file_bytes, block, block_bytes, false);
        check_upright(file, file_bytes, first_is_put_last ? 3 : 8);
    }
    // Cut anywhere: turned while the value is there, and read as it is stored before.
    block_bytes = write_orientations(block, false, 3, "6");
    for (size_t left = format == PICTURE_PNG; left < block_bytes; left++) { // libspng refuses an empty chunk
        memcpy(file, plain, bytes);
        check_upright(file, put_exif(format, file, bytes, block, left, false), left < 22 ? 1 : 6);
    }
    free(file);
    free(plain);
}

TEST(jpegs_are_turned_upright)
{
    NEEDS_CODEC("x.jpg");
    check_turned(PICTURE_JPEG);
}
TEST(pngs_are_turned_upright)
{
    check_turned(PICTURE_PNG);
    check_file("turned.png", PICTURE_PNG, 3, 0);
}
TEST(webps_are_turned_upright)
{
    NEEDS_CODEC("x.webp");
    check_turned(PICTURE_WEBP);
}

TEST(comments_of_other_programs_are_read)
{
    picture_file image;
    char message[PICTURE_MESSAGE_BYTES];
    if (has_codec("x.jpg")) {
        CHECK(picture_read(FOLDER "webui.jpg", 3, &image, message));
        CHECK(image.parameters && strncmp(image.parameters, "a fox\nNegative prompt: fog", 25) == 0);
        picture_free(&image);
        CHECK(picture_read(FOLDER "little_endian.jpg", 3, &image, message));
        CHECK_TEXT(image.parameters ? image.parameters : "(none)", "little end, Steps: 1");
        picture_free(&image);
    }
    int orientation = 0;
    char* comment = NULL;
    uint8_t block[] = "II*"
                      "\0\x08\0\0\0\x01\0\x69\x87\x04\0\x01\0\0\0\x1a\0\0\0\0\0\0\0\x01\0\x86\x92\x07\0\x0d\0\0\0\x2c\0"
                      "\0\0\0\0\0\0ASCII\0\0\0hello";
    exif_read(block, sizeof block - 1, &orientation, &comment);
    CHECK_TEXT(comment ? comment : "(none)", "hello");
    CHECK_NUMBER(orientation, 0);
    free(comment);
    // Every cut, and every byte replaced by the largest: nothing is read past the end (the copy has no byte more).
    for (size_t left = 0; left < sizeof block; left++) {
        for (int replaces = 0; replaces < 2; replaces++) {
            const size_t bytes = replaces ? sizeof block - 1 : left;
            uint8_t* copy = exact_copy(block, bytes);
            if (replaces && left < bytes) copy[left] = 0xFF;
            orientation = 0, comment = NULL;
            exif_read(copy, bytes, &orientation, &comment);
            CHECK(orientation >= 0 && orientation <= 8);
            free(comment);
            free(copy);
        }
    }
}

// ---- Texts ----------------------------------------------------------------------------------------------------------

TEST(every_code_point_survives_utf8_and_utf16)
{
    for (uint32_t code_point = 1; code_point < 0x110000; code_point += code_point < 0x900 ? 1 : 251) {
        if (code_point >= 0xD800 && code_point < 0xE000) continue;
        char text[5] = "";
        uint32_t decoded = 0;
        const size_t bytes = utf8_encode(code_point, text);
        CHECK(utf8_decode(text, bytes, &decoded) == bytes && decoded == code_point);
        CHECK(utf8_decode(text, bytes - 1, &decoded) == 0);
        // Among other letters, from which the order of the bytes is seen.
        char words[16];
        snprintf(words, sizeof words, "a %s b", text);
        size_t block_bytes;
        uint8_t* block = exif_write(words, &block_bytes);
        int orientation = 0;
        char* comment = NULL;
        exif_read(block, block_bytes, &orientation, &comment);
        CHECK_TEXT(comment ? comment : "(none)", words);
        free(comment);
        free(block);
    }
    static const char* const s_invalid[] = {"\x80", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                                            "\xF8", "\xC3",     "\xE2\x82"};
    uint32_t ignored;
    for (size_t i = 0; i < sizeof s_invalid / sizeof *s_invalid; i++)
        CHECK(utf8_decode(s_invalid[i], strlen(s_invalid[i]), &ignored) == 0);
}

static void check_same_parameters(const parameters* a, const parameters* b)
{
    CHECK_TEXT(a->prompt ? a->prompt : "", b->prompt ? b->prompt : "");
    CHECK_TEXT(a->negative ? a->negative : "", b->negative ? b->negative : "");
    CHECK_TEXT(a->model_name ? a->model_name : "", b->model_name ? b->model_name : "");
    CHECK_TEXT(a->loras ? a->loras : "", b->loras ? b->loras : "");
    CHECK_TEXT(a->controls ? a->controls : "", b->controls ? b->controls : "");
    CHECK_NUMBER(a->step_count, b->step_count);
    CHECK_NUMBER(a->width, b->width);
    CHECK_NUMBER(a->height, b->height);
    CHECK_NUMBER(a->solver, b->solver);
    CHECK_NUMBER(a->guidance_rule, b->guidance_rule);
    CHECK_NUMBER(a->noise, b->noise);
    CHECK_NUMBER(a->reference_count, b->reference_count);
    CHECK(a->seed == b->seed && a->has_seed == b->has_seed);
    CHECK(a->guidance == b->guidance && a->cfg_scale == b->cfg_scale && a->strength == b->strength
          && a->shift == b->shift && a->step_cache == b->step_cache && a->step_cache_db == b->step_cache_db
          && a->step_cache_every == b->step_cache_every);
}

TEST(parameters_read_what_parameters_write)
{
    parameters all = {"two lines\nof \"text\", with: commas",
                      "fog\nrain",
                      "a, \"b\": c\\d",
                      "ink:0.8, fox:-1",
                      "depth:0.8:0:0.7, pose:1:0:1",
                      30,
                      1024,
                      768,
                      SUMI_SOLVER_RES_MULTISTEP,
                      SUMI_GUIDANCE_NORM_RESCALE,
                      SUMI_NOISE_TORCH_CUDA,
                      2,
                      UINT64_MAX,
                      true,
                      4.5f,
                      3.5f,
                      0.25f,
                      3.1f,
                      0.08f,
                      0.0f,
                      0};
    parameters few = parameters_none();
    few.step_count = 4, few.width = 64, few.height = 48;
    parameters kept = few, fixed = few;
    kept.step_cache_db = 42.5f, fixed.step_cache_every = 3;
    const parameters* cases[] = {&all, &few, &kept, &fixed};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024];
        CHECK(parameters_write(cases[i], text, sizeof text) < sizeof text);
        parameters read;
        char* strings = parameters_read(text, &read);
        check_same_parameters(&read, cases[i]);
        free(strings);
        // A cut text is shorter and ends in zero.
        for (size_t capacity = 1; capacity < strlen(text); capacity += 7) {
            char cut[1024];
            memset(cut, 'x', sizeof cut);
            CHECK_NUMBER(parameters_write(cases[i], cut, capacity), strlen(text));
            CHECK(strlen(cut) == capacity - 1 && memcmp(cut, text, capacity - 1) == 0);
        }
    }
}

TEST(step_caches_are_read_as_they_are_written)
{
    static const char* const s_good[] = {"0", "0.08", "auto:40", "auto:42.5", "every:2", "every:10"};
    static const char* const s_bad[] = {"",        "-1",       "11",     "0.1x",    "nan",       "auto:",    "auto40",
                                        "auto:-1", "auto:100", "every:", "every:1", "every:2.5", "every:11", "every"};
    char text[24];
    for (size_t i = 0; i < sizeof s_good / sizeof *s_good; i++) {
        parameters read = parameters_none();
        CHECK(parameters_read_step_cache(s_good[i], &read));
        parameters_write_step_cache(&read, text);
        CHECK_TEXT(text, s_good[i]);
    }
    for (size_t i = 0; i < sizeof s_bad / sizeof *s_bad; i++) {
        parameters read = parameters_none();
        CHECK(!parameters_read_step_cache(s_bad[i], &read) && read.step_cache == 0.0f);
    }
    parameters read = parameters_none();
    CHECK(parameters_read_step_cache("auto", &read) && read.step_cache_db == PARAMETERS_STEP_CACHE_DB);
}

TEST(parameters_of_other_programs_are_read)
{
    static const char s_webui[] =
        "a fox\nin snow\nNegative prompt: fog, rain\nSteps: 20, Sampler: Euler a, Schedule type: Karras, CFG scale: "
        "7.5, "
        "Seed: 12345, Size: 512x768, Model hash: 6ce0161689, Model: v1-5-pruned, Denoising strength: 0.4, "
        "Lora hashes: \"ink: 1a2b, fox: 3c4d\", Version: v1.10.1";
    parameters got;
    char* strings = parameters_read(s_webui, &got);
    parameters wanted = parameters_none();
    wanted.prompt = "a fox\nin snow", wanted.negative = "fog, rain", wanted.model_name = "v1-5-pruned";
    wanted.step_count = 20, wanted.cfg_scale = 7.5f, wanted.seed = 12345, wanted.has_seed = true;
    wanted.width = 512, wanted.height = 768, wanted.strength = 0.4f;
    check_same_parameters(&got, &wanted);
    free(strings);
    // A text alone is a prompt; what is not understood stays unknown.
    strings = parameters_read("  just words, Steps: none of these  ", &got);
    CHECK_TEXT(got.prompt ? got.prompt : "(none)", "just words, Steps: none of these");
    CHECK(got.step_count == 0 && !got.has_seed);
    free(strings);
    strings = parameters_read("Steps: x, Seed: -1, Size: 0x5, CFG scale: nan, Sampler: \"unclosed", &got);
    CHECK(!got.prompt && got.step_count == 0 && !got.has_seed && got.width == 0 && got.cfg_scale < 0.0f
          && got.solver == -1);
    free(strings);
    strings = parameters_read("", &got);
    CHECK(strings && !got.prompt && !got.negative);
    free(strings);
}

// ---- Edges ----------------------------------------------------------------------------------------------------------

enum { EDGE_SIDE = 12 };

// Fills two areas, the second where `is_second` says so, and returns how many pixels are edges. `rows`: of each row.
static int find_edges(bool (*is_second)(int x, int y), const uint8_t* colours, uint8_t* to, int* rows)
{
    uint8_t from[EDGE_SIDE * EDGE_SIDE * 3];
    int count = 0;
    for (int i = 0; i < EDGE_SIDE * EDGE_SIDE; i++)
        memset(from + 3 * i, colours[is_second(i % EDGE_SIDE, i / EDGE_SIDE) ? 1 : 0], 3);
    CHECK(edges_find(from, EDGE_SIDE, EDGE_SIDE, 3, to));
    memset(rows, 0, EDGE_SIDE * sizeof *rows);
    for (int i = 0; i < EDGE_SIDE * EDGE_SIDE; i++) {
        CHECK(to[i] == 0 || to[i] == 255);
        rows[i / EDGE_SIDE] += to[i] == 255;
        count += to[i] == 255;
    }
    return count;
}

static bool is_right(int x, int y) { return x + 0 * y >= 5; }
static bool is_low(int x, int y) { return y + 0 * x >= 5; }
static bool is_below_diagonal(int x, int y) { return x + y >= EDGE_SIDE; }

TEST(edges_are_lines_of_one_pixel)
{
    const uint8_t colours[] = {10, 200};
    uint8_t edges[EDGE_SIDE * EDGE_SIDE];
    int rows[EDGE_SIDE];
    CHECK_NUMBER(find_edges(is_right, colours, edges, rows), EDGE_SIDE);
    for (int y = 0; y < EDGE_SIDE; y++) CHECK(rows[y] == 1 && edges[y * EDGE_SIDE + 4] == 255);
    CHECK_NUMBER(find_edges(is_low, colours, edges, rows), EDGE_SIDE);
    CHECK_NUMBER(rows[4], EDGE_SIDE);
    find_edges(is_below_diagonal, colours, edges, rows);
    for (int y = 1; y < EDGE_SIDE - 1; y++) // a staircase whose pixels share sides
        CHECK(rows[y] == 2 && edges[y * EDGE_SIDE + EDGE_SIDE - 1 - y] == 255);
    const uint8_t one = 7;
    CHECK(edges_find((const uint8_t[]){one, one, one, 0}, 1, 1, 4, edges) && edges[0] == 0);
}

// Sobel gives four times a step: 30 is weak, 60 strong, 20 nothing.
TEST(weak_edges_count_beside_strong_ones)
{
    uint8_t from[EDGE_SIDE * EDGE_SIDE * 3] = {0}, edges[EDGE_SIDE * EDGE_SIDE];
    int rows[EDGE_SIDE];
    CHECK_NUMBER(find_edges(is_right, (const uint8_t[]){0, 30}, edges, rows), 0);
    CHECK_NUMBER(find_edges(is_right, (const uint8_t[]){0, 60}, edges, rows), EDGE_SIDE);
    for (int i = 0; i < EDGE_SIDE * EDGE_SIDE; i++)
        if (i % EDGE_SIDE >= 5) memset(from + 3 * i, i / EDGE_SIDE == 0 ? 80 : i / EDGE_SIDE < 8 ? 30 : 20, 3);
    CHECK(edges_find(from, EDGE_SIDE, EDGE_SIDE, 3, edges));
    for (int y = 2; y < 7; y++) CHECK_NUMBER(edges[y * EDGE_SIDE + 4], 255);
    for (int y = 9; y < EDGE_SIDE; y++) CHECK_NUMBER(edges[y * EDGE_SIDE + 4], 0);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(jpegs_of_every_kind_are_read);
    RUN(cmyk_is_read_without_the_marker_of_adobe);
    RUN(webps_of_every_kind_are_read);
    RUN(files_cut_short_are_refused);
    RUN(what_is_written_reads_back);
    RUN(alpha_is_kept_where_the_format_has_it);
    RUN(what_cannot_be_written_is_refused);
    RUN(jpegs_are_turned_upright);
    RUN(pngs_are_turned_upright);
    RUN(webps_are_turned_upright);
    RUN(comments_of_other_programs_are_read);
    RUN(every_code_point_survives_utf8_and_utf16);
    RUN(parameters_read_what_parameters_write);
    RUN(step_caches_are_read_as_they_are_written);
    RUN(parameters_of_other_programs_are_read);
    RUN(edges_are_lines_of_one_pixel);
    RUN(weak_edges_count_beside_strong_ones);
    TEST_END();
}
