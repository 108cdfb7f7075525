// Pictures in flight in and out: resized as Pillow does it, masks, hostile sizes, previews.
#include "at_once.h"
#include "failing.h"
#include "files/tensors.h"
#include "models/recipe.h"
#include "pictures/pixels.h"
#include "recorded_values.h"
#include <spng.h>

typedef struct picture {
    uint8_t* data;
    int32_t width, height;
} picture;

static picture read_png(const char* path) // RGB
{
    picture p = {0};
    FILE* file = fopen(path, "rb");
    if (file == NULL) return p;
    spng_ctx* png = spng_ctx_new(0);
    struct spng_ihdr header;
    size_t bytes;
    spng_set_png_file(png, file);
    if (spng_get_ihdr(png, &header) == 0 && spng_decoded_image_size(png, SPNG_FMT_RGB8, &bytes) == 0) {
        p.data = malloc(bytes);
        p.width = (int32_t)header.width;
        p.height = (int32_t)header.height;
        if (spng_decode_image(png, p.data, bytes, SPNG_FMT_RGB8, 0) != 0) {
            free(p.data);
            p.data = NULL;
        }
    }
    spng_ctx_free(png);
    fclose(file);
    return p;
}

TEST(resize_equals_pillow_bit_for_bit)
{
    int compared = 0;
    for (int k = 0; k < 32; k++)
        for (int filter = 0; filter < 2; filter++) {
            char path[128];
            snprintf(path, sizeof path, "tests/golden/qwen-image/cases/resize.%d.in.png", k);
            picture in = read_png(path);
            if (in.data == NULL) continue; // past the last one: the count below notices
            snprintf(path, sizeof path, "tests/golden/qwen-image/cases/resize.%d.%s.png", k,
                     filter ? "lanczos" : "bicubic");
            picture want = read_png(path);
            CHECK(want.data != NULL);
            if (want.data != NULL) {
                size_t bytes = 3 * (size_t)want.width * (size_t)want.height;
                uint8_t* got = malloc(bytes);
                sumi_error error = {0};
                CHECK_NUMBER(
                    sumi_pixels_resize(&s_heap, &(sumi_pixels){in.data, in.width, in.height, 3 * in.width, 3},
                                       &(sumi_resized_pixels){got, want.width, want.height,
                                                              filter ? SUMI_FILTER_LANCZOS : SUMI_FILTER_BICUBIC},
                                       &error),
                    SUMI_OK);
                CHECK(memcmp(got, want.data, bytes) == 0);
                compared++;
                free(got);
            }
            free(in.data);
            free(want.data);
        }
    CHECK(compared >= 14);
}

// Rows far apart, and each channel as if alone: 1, 2 and 4 channels agree with what 3 give.
TEST(resize_treats_channels_alone_and_minds_row_bytes)
{
    enum { W = 23, H = 17, NW = 9, NH = 31 };
    uint8_t source[H * (4 * W + 13)], one[H * W], expected[NW * NH], got[4 * NW * NH];
    uint32_t x = 1;
    for (size_t i = 0; i < sizeof source; i++) source[i] = (uint8_t)((x = x * 1664525u + 1013904223u) >> 24);
    for (int32_t channels = 1; channels <= 4; channels++)
        for (int32_t c = 0; c < channels; c++) {
            for (int y = 0; y < H; y++)
                for (int i = 0; i < W; i++) one[y * W + i] = source[y * (4 * W + 13) + i * channels + c];
            CHECK_NUMBER(sumi_pixels_resize(&s_heap, &(sumi_pixels){one, W, H, W, 1},
                                            &(sumi_resized_pixels){expected, NW, NH, SUMI_FILTER_LANCZOS}, NULL),
                         SUMI_OK);
            CHECK_NUMBER(sumi_pixels_resize(&s_heap, &(sumi_pixels){source, W, H, 4 * W + 13, channels},
                                            &(sumi_resized_pixels){got, NW, NH, SUMI_FILTER_LANCZOS}, NULL),
                         SUMI_OK);
            int wrong = 0;
            for (int i = 0; i < NW * NH; i++) wrong += got[i * channels + c] != expected[i];
            CHECK_NUMBER(wrong, 0);
        }
    uint8_t copy[4 * W * H];
    CHECK_NUMBER(sumi_pixels_resize(&s_heap, &(sumi_pixels){source, W, H, 4 * W + 13, 4},
                                    &(sumi_resized_pixels){copy, W, H, SUMI_FILTER_LANCZOS}, NULL),
                 SUMI_OK);
    for (int y = 0; y < H; y++) CHECK(memcmp(copy + y * 4 * W, source + y * (4 * W + 13), 4 * W) == 0);
}

TEST(resize_keeps_flat_images_flat)
{
    static const int32_t s_sizes[] = {1, 2, 3, 7, 64, 200};
    for (int a = 0; a < 6; a++)
        for (int b = 0; b < 6; b++)
            for (int f = 0; f < 2; f++) {
                uint8_t* in = malloc((size_t)s_sizes[a] * 3);
                uint8_t* out = malloc((size_t)s_sizes[b] * 5);
                memset(in, f ? 255 : 93, (size_t)s_sizes[a] * 3);
                CHECK_NUMBER(sumi_pixels_resize(&s_heap, &(sumi_pixels){in, s_sizes[a], 3, s_sizes[a], 1},
                                                &(sumi_resized_pixels){out, s_sizes[b], 5,
                                                                       f ? SUMI_FILTER_LANCZOS : SUMI_FILTER_BICUBIC},
                                                NULL),
                             SUMI_OK);
                int wrong = 0;
                for (int i = 0; i < s_sizes[b] * 5; i++) wrong += out[i] != (f ? 255 : 93);
                CHECK_NUMBER(wrong, 0);
                free(in);
                free(out);
            }
}

// Lines of a picture along one axis: values of a line are `step` bytes apart, before and after their resize.
typedef struct plain_lines {
    int32_t length, new_length, step, count;
    int32_t row_bytes, new_row_bytes; // from a line to the next
    sumi_filter filter;
} plain_lines;

static double sinc(double x) { return x == 0.0 ? 1.0 : sin(x * 3.14159265358979323846) / (x * 3.14159265358979323846); }

static double plain_weight(sumi_filter filter, double x)
{
    if (filter == SUMI_FILTER_LANCZOS) return x >= -3.0 && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0;
    x = fabs(x);
    return x < 1.0 ? (1.5 * x - 2.5) * x * x + 1 : x < 2.0 ? (((x - 5) * x + 8) * x - 4) * -0.5 : 0.0;
}

static uint8_t plain_sum(const int32_t* weights, const uint8_t* from, int32_t count, int32_t step)
{
    int64_t sum = 1 << 21;
    for (int32_t j = 0; j < count; j++) sum += (int64_t)weights[j] * from[(ptrdiff_t)j * step];
    sum = sum < 0 ? 0 : sum >> 22;
    return (uint8_t)(sum > 255 ? 255 : sum);
}

static void resize_plainly(const plain_lines* lines, const uint8_t* from, uint8_t* into)
{
    const int32_t length = lines->length, new_length = lines->new_length, step = lines->step;
    const double scale = (double)length / new_length, wide = scale < 1.0 ? 1.0 : scale,
                 support = (lines->filter == SUMI_FILTER_LANCZOS ? 3.0 : 2.0) * wide;
    double* exact = malloc((size_t)length * sizeof *exact);
    int32_t* weights = malloc((size_t)length * sizeof *weights);
    for (int32_t i = 0; i < new_length; i++) {
        const double center = (i + 0.5) * scale;
        int32_t first = (int32_t)(center - support + 0.5), end = (int32_t)(center + support + 0.5);
        first = first < 0 ? 0 : first;
        end = end > length ? length : end;
        double total = 0.0;
        for (int32_t j = first; j < end; j++)
            total += exact[j] = plain_weight(lines->filter, (j - center + 0.5) * (1.0 / wide));
        for (int32_t j = first; j < end; j++) {
            const double weight = exact[j] / total * (1 << 22);
            weights[j - first] = (int32_t)(weight + (weight < 0.0 ? -0.5 : 0.5));
        }
        for (int32_t k = 0; k < lines->count; k++)
            into[(ptrdiff_t)k * lines->new_row_bytes + (ptrdiff_t)i * step] =
                plain_sum(weights, from + (ptrdiff_t)k * lines->row_bytes + (ptrdiff_t)first * step, end - first, step);
    }
    free(exact);
    free(weights);
}

// Noise in which a third of the bytes are 0 and 255, so that sums leave the range of bytes on both sides.
static void fill_noise(uint8_t* bytes, size_t count)
{
    uint32_t x = 7;
    for (size_t i = 0; i < count; i++) {
        x = x * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)(x >> 30 == 0 ? 0 : x >> 30 == 1 ? 255 : x >> 20);
    }
}

// Both passes in plain loops; a pass that changes no length changes nothing.
static uint8_t* resize_whole_plainly(const sumi_pixels* source, int32_t width, int32_t height, sumi_filter filter)
{
    const int32_t channels = source->channel_count, row = width * channels, from_height = source->height;
    const uint8_t* from = source->data;
    uint8_t *between = malloc((size_t)row * (size_t)from_height), *into = malloc((size_t)row * (size_t)height);
    const plain_lines across = {source->width, width, channels, from_height, source->row_bytes, row, filter},
                      down = {from_height, height, row, row, 1, 1, filter};
    if (width != source->width)
        for (int32_t c = 0; c < channels; c++) resize_plainly(&across, from + c, between + c);
    else
        for (int32_t y = 0; y < from_height; y++)
            memcpy(between + (ptrdiff_t)y * row, from + (ptrdiff_t)y * source->row_bytes, (size_t)row);
    if (height != from_height) resize_plainly(&down, between, into);
    else memcpy(into, between, (size_t)row * (size_t)height);
    free(between);
    return into;
}

TEST(resize_equals_plain_loops_at_any_size)
{
    static const struct {
        int32_t width, height, new_width, new_height;
    } s_sizes[] = {
        {1, 1, 1, 1},     {1, 1, 37, 19},   {53, 41, 1, 1},    {2, 3, 3, 2},     {5, 1, 4, 1},
        {1, 200, 3, 7},   {97, 61, 96, 62}, {97, 61, 98, 60},  {16, 16, 15, 17}, {31, 33, 160, 7},
        {300, 5, 17, 5},  {70, 90, 70, 31}, {1025, 3, 700, 9}, {3000, 2, 5, 3},  {2, 3000, 3, 5},
        {32768, 1, 1, 1}, {1, 32768, 2, 1}, {700, 34, 341, 2}, {1, 40, 1, 39},   {343, 17, 342, 16},
    };
    static uint8_t s_noise[400000];
    fill_noise(s_noise, sizeof s_noise);
    for (size_t k = 0; k < sizeof s_sizes / sizeof *s_sizes; k++)
        for (int32_t n = 0; n < 4; n++) {
            const int32_t channels = n + 1, width = s_sizes[k].new_width, height = s_sizes[k].new_height;
            const sumi_filter filter = (k + (size_t)n) % 2 == 0 ? SUMI_FILTER_BICUBIC : SUMI_FILTER_LANCZOS;
            const sumi_pixels source = {s_noise + n, s_sizes[k].width, s_sizes[k].height,
                                        s_sizes[k].width * channels + n, channels};
            const size_t bytes = (size_t)width * (size_t)height * (size_t)channels;
            uint8_t *want = resize_whole_plainly(&source, width, height, filter), *got = malloc(bytes);
            CHECK((size_t)source.row_bytes * (size_t)source.height + 8 <= sizeof s_noise);
            CHECK_NUMBER(sumi_pixels_resize(&s_heap, &source, &(sumi_resized_pixels){got, width, height, filter}, NULL),
                         SUMI_OK);
            CHECK(memcmp(want, got, bytes) == 0);
            free(want);
            free(got);
        }
}

// Chamfer distances in pieces of any height; opacity grows from the edge inwards.
TEST(distances_to_what_a_mask_keeps)
{
    enum { WIDTH = 23, HEIGHT = 17, COUNT = WIDTH * HEIGHT };
    uint8_t mask[COUNT], opacity[COUNT];
    uint16_t whole[COUNT], pieces[COUNT];
    for (int i = 0; i < COUNT; i++) mask[i] = (i * 7 % 31 != 0) && i % WIDTH != 4;
    sumi_mask_distances(mask, WIDTH, HEIGHT, 0, HEIGHT, false, whole);
    sumi_mask_distances(mask, WIDTH, HEIGHT, 0, HEIGHT, true, whole);
    for (int rows = 1; rows <= HEIGHT; rows++) {
        for (int y = 0; y < HEIGHT; y += rows)
            sumi_mask_distances(mask, WIDTH, HEIGHT, y, y + rows < HEIGHT ? y + rows : HEIGHT, false, pieces);
        for (int y = HEIGHT; y > 0; y -= rows)
            sumi_mask_distances(mask, WIDTH, HEIGHT, y > rows ? y - rows : 0, y, true, pieces);
        CHECK(memcmp(whole, pieces, sizeof whole) == 0);
    }
    for (int i = 0; i < COUNT; i++) { // by its definition
        int least = SUMI_FAR;
        for (int k = 0; k < COUNT; k++) {
            const int across = abs(i % WIDTH - k % WIDTH), down = abs(i / WIDTH - k / WIDTH),
                      far = 3 * (across > down ? across : down) + (across < down ? across : down);
            if (mask[k] == 0 && far < least) least = far;
        }
        CHECK_NUMBER(whole[i], least);
    }
    for (int feather = 0; feather < 5; feather++) {
        sumi_mask_opacity(mask, feather > 0 ? whole : NULL, COUNT, feather, opacity);
        for (int i = 0; i < COUNT; i++) {
            CHECK_NUMBER(opacity[i], mask[i] == 0                              ? 0
                                     : feather == 0 || whole[i] >= 3 * feather ? 255
                                                                               : 255 * whole[i] / (3 * feather));
        }
    }
    memset(mask, 1, sizeof mask); // nothing is kept
    sumi_mask_distances(mask, WIDTH, HEIGHT, 0, HEIGHT, false, whole);
    sumi_mask_distances(mask, WIDTH, HEIGHT, 0, HEIGHT, true, whole);
    sumi_mask_opacity(mask, whole, COUNT, 4, opacity);
    for (int i = 0; i < COUNT; i++) CHECK(whole[i] == SUMI_FAR && opacity[i] == 255);
}

TEST(image_and_mask_are_prepared_as_the_reference_does)
{
    sumi_tensor_set set;
    if (!open_set(&set, "tests/golden/z-image/cases/image_preprocess.safetensors")) {
        CHECK(!"image_preprocess.safetensors opens");
        return;
    }
    const sumi_tensor *image = sumi_tensor_find(&set, "input.image"), *mask = sumi_tensor_find(&set, "input.mask");
    const sumi_tensor *want = sumi_tensor_find(&set, "expect.image_u8"),
                      *want_mask = sumi_tensor_find(&set, "expect.mask"),
                      *want_latent = sumi_tensor_find(&set, "expect.mask_latent");
    CHECK(image && mask && want && want_mask && want_latent);
    if (image && mask && want && want_mask && want_latent) {
        int32_t w = (int32_t)image->shape[1], h = (int32_t)image->shape[0], nw = (int32_t)want->shape[1],
                nh = (int32_t)want->shape[0];
        size_t count = (size_t)nw * (size_t)nh;
        uint8_t *rgb = malloc(3 * count), *binary = malloc(count);
        float* latent = malloc(count / 64 * sizeof *latent);
        CHECK_NUMBER(sumi_pixels_to_rgb(&s_heap, &(sumi_pixels){image->data, w, h, 3 * w, 3}, nw, nh, rgb, NULL),
                     SUMI_OK);
        CHECK(memcmp(rgb, want->data, 3 * count) == 0);
        CHECK_NUMBER(sumi_pixels_to_mask(&s_heap, &(sumi_pixels){mask->data, w, h, w, 1}, nw, nh, binary, NULL),
                     SUMI_OK);
        sumi_mask_to_latents(binary, nw, nh, &(sumi_latent_mask){latent, nw / 8, nh / 8, SUMI_MASK_NEAREST});
        CHECK(memcmp(binary, want_mask->data, count) == 0);
        int wrong = 0;
        for (size_t i = 0; i < count / 64; i++) wrong += latent[i] != (float)((const uint8_t*)want_latent->data)[i];
        CHECK_NUMBER(wrong, 0);

        // RGBA with any alpha is the same picture; an RGB mask of equal channels and an opaque RGBA one are the grey
        // mask.
        uint8_t *four = malloc(4 * (size_t)w * (size_t)h), *grey_rgb = malloc(3 * (size_t)w * (size_t)h),
                *again = malloc(3 * count);
        const uint8_t *from = image->data, *grey = mask->data;
        for (size_t i = 0; i < (size_t)w * (size_t)h; i++)
            memcpy(four + 4 * i, from + 3 * i, 3), four[4 * i + 3] = (uint8_t)(i * 7);
        CHECK_NUMBER(sumi_pixels_to_rgb(&s_heap, &(sumi_pixels){four, w, h, 4 * w, 4}, nw, nh, again, NULL), SUMI_OK);
        CHECK(memcmp(rgb, again, 3 * count) == 0);
        for (size_t i = 0; i < (size_t)w * (size_t)h; i++) {
            memset(grey_rgb + 3 * i, grey[i], 3);
            memset(four + 4 * i, grey[i], 3);
            four[4 * i + 3] = 255;
        }
        CHECK_NUMBER(sumi_pixels_to_mask(&s_heap, &(sumi_pixels){grey_rgb, w, h, 3 * w, 3}, nw, nh, again, NULL),
                     SUMI_OK);
        CHECK(memcmp(binary, again, count) == 0);
        CHECK_NUMBER(sumi_pixels_to_mask(&s_heap, &(sumi_pixels){four, w, h, 4 * w, 4}, nw, nh, again, NULL), SUMI_OK);
        CHECK(memcmp(binary, again, count) == 0);
        // A grey picture equals the RGB picture of equal channels.
        uint8_t* repeated = malloc(3 * count);
        CHECK_NUMBER(sumi_pixels_to_rgb(&s_heap, &(sumi_pixels){mask->data, w, h, w, 1}, nw, nh, again, NULL), SUMI_OK);
        CHECK_NUMBER(sumi_pixels_to_rgb(&s_heap, &(sumi_pixels){grey_rgb, w, h, 3 * w, 3}, nw, nh, repeated, NULL),
                     SUMI_OK);
        CHECK(memcmp(repeated, again, 3 * count) == 0);
        free(four), free(grey_rgb), free(again), free(repeated), free(rgb), free(binary), free(latent);
    }
    sumi_tensor_set_close(&set);
}

TEST(mask_threshold_and_luma_are_pillows)
{
    // 127 keeps, 128 repaints; luma of pure colours 76, 150, 29; green 219 gives 129, 216 gives 127.
    static const uint8_t s_grey[] = {127, 128, 0, 255};
    static const uint8_t s_rgb[] = {255, 0, 0, 0, 255, 0, 0, 219, 0, 0, 216, 0};
    static const uint8_t s_rgba[] = {255, 255, 255, 0, 255, 255, 255, 255, 0, 0, 0, 0, 0, 255, 0, 3};
    uint8_t mask[4];
    CHECK_NUMBER(sumi_pixels_to_mask(&s_heap, &(sumi_pixels){s_grey, 4, 1, 4, 1}, 4, 1, mask, NULL), SUMI_OK);
    CHECK(memcmp(mask, (uint8_t[]){0, 1, 0, 1}, 4) == 0);
    CHECK_NUMBER(sumi_pixels_to_mask(&s_heap, &(sumi_pixels){s_rgb, 4, 1, 12, 3}, 4, 1, mask, NULL), SUMI_OK);
    CHECK(memcmp(mask, (uint8_t[]){0, 1, 1, 0}, 4) == 0);
    CHECK_NUMBER(sumi_pixels_to_mask(&s_heap, &(sumi_pixels){s_rgba, 4, 1, 16, 4}, 4, 1, mask, NULL), SUMI_OK);
    CHECK(memcmp(mask, (uint8_t[]){1, 1, 0, 1}, 4) == 0);
}

// Bilinear as torch.nn.functional.interpolate: between the two pixels in the middle of the 16 that a latent stands for.
TEST(masks_reach_latents_of_any_factor)
{
    enum { W = 64, H = 48, N = 16 };
    uint8_t mask[W * H];
    float nearest[W / N * (H / N)], linear[W / N * (H / N)];
    for (int y = 0; y < H; y++) // repainted from row 24 and column 40 on: both edges lie between two middle pixels
        for (int x = 0; x < W; x++) mask[y * W + x] = y >= 24 && x >= 40;
    sumi_mask_to_latents(mask, W, H, &(sumi_latent_mask){nearest, W / N, H / N, SUMI_MASK_NEAREST});
    sumi_mask_to_latents(mask, W, H, &(sumi_latent_mask){linear, W / N, H / N, SUMI_MASK_BILINEAR});
    static const float s_rows[H / N] = {0.0f, 0.5f, 1.0f}, s_columns[W / N] = {0.0f, 0.0f, 0.5f, 1.0f};
    for (int y = 0; y < H / N; y++)
        for (int x = 0; x < W / N; x++) {
            CHECK(linear[y * (W / N) + x] == s_rows[y] * s_columns[x]);
            CHECK(nearest[y * (W / N) + x] == (float)mask[y * N * W + x * N]);
        }
    // One pixel per latent: the mask itself.
    float same[W * H];
    int wrong = 0;
    sumi_mask_to_latents(mask, W, H, &(sumi_latent_mask){same, W, H, SUMI_MASK_BILINEAR});
    for (int i = 0; i < W * H; i++) wrong += same[i] != (float)mask[i];
    CHECK_NUMBER(wrong, 0);
    // An odd factor has a pixel in its middle, and a ratio that is no integer any share.
    float three[1], ratio[3];
    static const uint8_t s_row[] = {0, 1, 0, 1};
    sumi_mask_to_latents(s_row, 3, 1, &(sumi_latent_mask){three, 1, 1, SUMI_MASK_BILINEAR});
    CHECK(three[0] == 1.0f);
    sumi_mask_to_latents(s_row, 4, 1, &(sumi_latent_mask){ratio, 3, 1, SUMI_MASK_BILINEAR});
    CHECK_NEAR((double)ratio[0], 1.0 / 6, 1e-6, 0); // at 1/6, 3/2 and 17/6
    CHECK_NEAR((double)ratio[1], 0.5, 1e-6, 0);
    CHECK_NEAR((double)ratio[2], 5.0 / 6, 1e-6, 0);
}

TEST(windows_share_the_pixels_of_their_picture)
{
    uint8_t data[7 * 40], rgb[3 * 4 * 3];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)i;
    static const int32_t s_channels[] = {1, 3, 4};
    for (int k = 0; k < 3; k++) {
        const int32_t channels = s_channels[k];
        const sumi_pixels whole = {data, 9, 7, 40, channels}, window = sumi_pixels_window(&whole, 2, 3, 4, 3);
        CHECK(window.data == data + 3 * 40 + 2 * channels && window.width == 4 && window.height == 3);
        CHECK(window.row_bytes == 40 && window.channel_count == channels);
        CHECK_NUMBER(sumi_pixels_to_rgb(&s_heap, &window, 4, 3, rgb, NULL), SUMI_OK);
        int wrong = 0;
        for (int y = 0; y < 3; y++)
            for (int x = 0; x < 4; x++)
                for (int c = 0; c < 3; c++)
                    wrong +=
                        rgb[(y * 4 + x) * 3 + c] != data[(y + 3) * 40 + (x + 2) * channels + (channels == 1 ? 0 : c)];
        CHECK_NUMBER(wrong, 0);
    }
}

TEST(pixels_refuse_hostile_sizes_and_say_why)
{
    static const uint8_t s_data[64] = {0};
    static const sumi_pixels s_bad[] = {
        {NULL, 4, 4, 4, 1},
        {s_data, 0, 4, 4, 1},
        {s_data, 4, 0, 4, 1},
        {s_data, -4, 4, 4, 1},
        {s_data, 4, INT32_MIN, 4, 1},
        {s_data, 32769, 1, INT32_MAX, 1},
        {s_data, INT32_MAX, 1, INT32_MAX, 4},
        {s_data, 4, 4, 3, 1},
        {s_data, 4, 4, 11, 3},
        {s_data, 4, 4, 0, 1},
        {s_data, 4, 4, -16, 4},
        {s_data, 4, 4, 16, 2},
        {s_data, 4, 4, 16, 0},
        {s_data, 4, 4, 16, -1},
        {s_data, 4, 4, 64, 5},
    };
    uint8_t out[64 * 3];
    for (size_t i = 0; i < sizeof s_bad / sizeof *s_bad; i++) {
        sumi_error error = {0};
        CHECK_NUMBER(sumi_pixels_check(&s_bad[i], "the start image", &error), SUMI_INVALID_ARGUMENT);
        CHECK(strstr(error.text, "the start image") != NULL);
        error = (sumi_error){0};
        CHECK_NUMBER(sumi_pixels_to_rgb(&s_heap, &s_bad[i], 8, 8, out, &error), SUMI_INVALID_ARGUMENT);
        CHECK(strlen(error.text) > 20);
        error = (sumi_error){0};
        CHECK_NUMBER(sumi_pixels_to_mask(&s_heap, &s_bad[i], 8, 8, out, &error), SUMI_INVALID_ARGUMENT);
        CHECK(strlen(error.text) > 20);
    }
    const sumi_pixels good = {s_data, 4, 4, 4, 1};
    static const int32_t s_sizes[][2] = {{0, 8}, {8, 0}, {-1, 8}, {8, INT32_MIN}, {32769, 8}, {8, INT32_MAX}};
    for (size_t i = 0; i < 6; i++) {
        sumi_error error = {0};
        CHECK_NUMBER(sumi_pixels_to_rgb(&s_heap, &good, s_sizes[i][0], s_sizes[i][1], out, &error),
                     SUMI_INVALID_ARGUMENT);
        CHECK(error.text[0] != 0);
        CHECK_NUMBER(sumi_pixels_to_mask(&s_heap, &good, s_sizes[i][0], s_sizes[i][1], out, NULL),
                     SUMI_INVALID_ARGUMENT);
        CHECK_NUMBER(sumi_pixels_resize(&s_heap, &(sumi_pixels){s_data, 4, 4, 4, 1},
                                        &(sumi_resized_pixels){out, s_sizes[i][0], s_sizes[i][1], SUMI_FILTER_LANCZOS},
                                        NULL),
                     SUMI_INVALID_ARGUMENT);
    }
    CHECK_NUMBER(sumi_pixels_to_rgb(&s_heap, NULL, 8, 8, out, NULL), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_pixels_to_rgb(&s_heap, &good, 8, 8, NULL, NULL), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_pixels_to_mask(&s_heap, &good, 8, 8, NULL, NULL), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_pixels_resize(&s_heap, &(sumi_pixels){s_data, 4, 4, 4, 1},
                                    &(sumi_resized_pixels){NULL, 8, 8, SUMI_FILTER_LANCZOS}, NULL),
                 SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_pixels_resize(&s_heap, &(sumi_pixels){s_data, 4, 4, 4, 1},
                                    &(sumi_resized_pixels){out, 8, 8, (sumi_filter)9}, NULL),
                 SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_pixels_to_mask(&s_heap, &good, 7, 7, out, NULL), SUMI_OK);
    sumi_mask_to_latents(out, 7, 7, &(sumi_latent_mask){.values = NULL}); // no latent pixel at all
}

// The colour of transparent pixels has no influence, alpha is resized alone, and pictures without alpha are opaque.
TEST(colours_are_resized_by_their_alpha)
{
    enum { W = 17, H = 9, ROW = W * 4 + 3, NEW_W = 11, NEW_H = 14, COUNT = NEW_W * NEW_H };
    static uint8_t s_data[2][H * ROW], s_alpha[H * W], s_out[2][COUNT * 4], s_plain[COUNT * 4];
    for (int y = 0; y < H; y++) {
        for (int x = 0; x < W; x++) {
            uint8_t *p = s_data[0] + y * ROW + 4 * x, *q = s_data[1] + y * ROW + 4 * x;
            s_alpha[y * W + x] = (uint8_t)(x < 6 ? 0 : x < 9 ? 40 * x - 200 : 255);
            for (int c = 0; c < 3; c++) p[c] = q[c] = (uint8_t)(x * 13 + y * 7 + c * 50);
            p[3] = q[3] = s_alpha[y * W + x];
            if (p[3] == 0) q[0] = 255, q[1] = 3, q[2] = 77;
        }
    }
    for (int i = 0; i < 2; i++) {
        const sumi_pixels pixels = {s_data[i], W, H, ROW, 4};
        const sumi_resized_pixels resized = {s_out[i], NEW_W, NEW_H, SUMI_FILTER_LANCZOS};
        CHECK_NUMBER(sumi_pixels_to_rgba(&s_heap, &pixels, &resized, NULL), SUMI_OK);
    }
    CHECK(memcmp(s_out[0], s_out[1], sizeof s_out[0]) == 0);
    const sumi_pixels alpha = {s_alpha, W, H, W, 1};
    CHECK_NUMBER(
        sumi_pixels_resize(&s_heap, &alpha, &(sumi_resized_pixels){s_plain, NEW_W, NEW_H, SUMI_FILTER_LANCZOS}, NULL),
        SUMI_OK);
    int wrong = 0;
    for (int i = 0; i < COUNT; i++) wrong += s_out[0][4 * i + 3] != s_plain[i];
    CHECK_NUMBER(wrong, 0);

    for (int channels = 1; channels <= 4; channels += channels == 1 ? 2 : 1) { // opaque: as the colours alone
        for (int y = 0; y < H; y++)
            for (int x = 0; x < W && channels == 4; x++) s_data[0][y * ROW + 4 * x + 3] = 255;
        const sumi_pixels pixels = {s_data[0], W, H, ROW, channels};
        CHECK_NUMBER(sumi_pixels_to_rgba(&s_heap, &pixels,
                                         &(sumi_resized_pixels){s_out[0], NEW_W, NEW_H, SUMI_FILTER_LANCZOS}, NULL),
                     SUMI_OK);
        CHECK_NUMBER(sumi_pixels_to_rgb(&s_heap, &pixels, NEW_W, NEW_H, s_plain, NULL), SUMI_OK);
        wrong = 0;
        for (int i = 0; i < COUNT; i++)
            wrong += memcmp(s_out[0] + 4 * i, s_plain + 3 * i, 3) != 0 || s_out[0][4 * i + 3] != 255;
        CHECK_NUMBER(wrong, 0);
    }
    const sumi_pixels pixels = {s_data[1], W, H, ROW, 4};
    static uint8_t s_copy[W * H * 4];
    CHECK_NUMBER(sumi_pixels_to_rgba(&s_heap, &pixels, &(sumi_resized_pixels){s_copy, W, H, SUMI_FILTER_LANCZOS}, NULL),
                 SUMI_OK);
    for (int y = 0; y < H; y++) CHECK(memcmp(s_copy + y * W * 4, s_data[1] + y * ROW, W * 4) == 0);
    CHECK_NUMBER(sumi_pixels_to_rgba(&s_heap, &pixels, &(sumi_resized_pixels){NULL, W, H, SUMI_FILTER_LANCZOS}, NULL),
                 SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_pixels_to_rgba(&s_heap, &pixels, &(sumi_resized_pixels){s_copy, 0, H, SUMI_FILTER_LANCZOS}, NULL),
                 SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_pixels_to_rgba(&s_heap, NULL, &(sumi_resized_pixels){s_copy, W, H, SUMI_FILTER_LANCZOS}, NULL),
                 SUMI_INVALID_ARGUMENT);

    uint8_t in_place[8] = {10, 20, 30, 0, 200, 100, 0, 128};
    sumi_pixels_over_white(in_place, 2, in_place);
    static const uint8_t s_white[6] = {255, 255, 255, 227, 177, 127};
    CHECK(memcmp(in_place, s_white, sizeof s_white) == 0);
}

// Every colour with every alpha, as Pillow computes them: Premul.c (rounded), its inverse (truncated), and paste.
TEST(alpha_is_applied_as_the_reference_does)
{
    int wrong = 0;
    for (uint32_t alpha = 0; alpha < 256; alpha++) {
        for (uint32_t colour = 0; colour < 256; colour++) {
            const uint8_t in[4] = {(uint8_t)colour, (uint8_t)(255 - colour), (uint8_t)(colour * 7), (uint8_t)alpha};
            uint8_t multiplied[4], divided[4], white[3];
            memcpy(divided, in, sizeof in);
            sumi_pixels_premultiply(in, 1, multiplied);
            sumi_pixels_divide_by_alpha(divided, 1);
            sumi_pixels_over_white(in, 1, white);
            for (int c = 0; c < 3; c++) {
                const uint32_t quotient = alpha == 0 ? in[c] : 255u * in[c] / alpha;
                wrong += multiplied[c] != (in[c] * alpha + 127) / 255; // 255 is odd: there are no ties
                wrong += divided[c] != (quotient < 255 ? quotient : 255);
                wrong += white[c] != (in[c] * alpha + 255 * (255 - alpha) + 127) / 255;
            }
            wrong += multiplied[3] != alpha || divided[3] != alpha;
        }
    }
    CHECK_NUMBER(wrong, 0);
}

TEST(pixels_of_8_bits_become_any_format)
{
    static const uint8_t s_rgba[2][4] = {{0, 51, 255, 102}, {255, 204, 0, 255}};
    uint8_t bytes[8];
    float floats[6];
    uint16_t halves[8];
    sumi_rgba_to_format(s_rgba[0], 2, SUMI_FORMAT_RGBA8, bytes);
    CHECK(memcmp(bytes, s_rgba, sizeof s_rgba) == 0);
    sumi_rgba_to_format(s_rgba[0], 2, SUMI_FORMAT_BGRA8, bytes);
    for (int i = 0; i < 8; i++) CHECK_NUMBER(bytes[i], s_rgba[i / 4][i % 4 == 3 ? 3 : 2 - i % 4]);
    sumi_rgba_to_format(s_rgba[0], 2, SUMI_FORMAT_RGB8, bytes);
    sumi_rgba_to_format(s_rgba[0], 2, SUMI_FORMAT_RGB32F, floats);
    for (int i = 0; i < 6; i++) {
        CHECK_NUMBER(bytes[i], s_rgba[i / 3][i % 3]);
        CHECK(floats[i] == (float)s_rgba[i / 3][i % 3] / 255.0f);
    }
    sumi_rgba_to_format(s_rgba[0], 2, SUMI_FORMAT_RGBA16F, halves);
    for (int i = 0; i < 8; i++) CHECK_NUMBER(halves[i], sumi_float_to_f16((float)s_rgba[i / 4][i % 4] / 255.0f));
}

TEST(pixels_survive_every_failing_allocation)
{
    uint8_t data[40 * 30 * 4], out[4 * 16 * 16];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)(i * 31);
    for (int what = 0; what < 9; what++) {
        long n = 0;
        for (sumi_result result = SUMI_OUT_OF_HOST_MEMORY; result != SUMI_OK && n < 50; n++) {
            failing f = {.left = n};
            sumi_heap heap;
            sumi_error error = {0};
            const sumi_allocator allocator = failing_allocator(&f);
            sumi_heap_init(&heap, &allocator);
            int32_t channels = what % 3 == 0 ? 1 : what % 3 == 1 ? 3 : 4;
            const sumi_pixels p = {data, 40, 30, 40 * channels, channels};
            if (what < 3) result = sumi_pixels_to_rgb(&heap, &p, 16, 16, out, &error);
            else if (what < 6) result = sumi_pixels_to_mask(&heap, &p, 16, 16, out, &error);
            else if (what < 7) result = sumi_pixels_to_rgb(&heap, &p, 40, 6, out, &error);
            else {
                const sumi_resized_pixels resized = {out, 16, 16, SUMI_FILTER_LANCZOS};
                result = sumi_pixels_to_rgba(&heap, &p, &resized, &error);
            }
            CHECK_NUMBER(f.held, 0);
            CHECK(result == SUMI_OK || (result == SUMI_OUT_OF_HOST_MEMORY && error.text[0] != 0));
        }
        CHECK(n > 1 && n < 50);
    }
}

TEST(unit_values_round_half_to_even)
{
    CHECK_NUMBER(pixel_from_unit(-1.0f), 0);
    CHECK_NUMBER(pixel_from_unit(1.0f), 255);
    CHECK_NUMBER(pixel_from_unit(-7.0f), 0);
    CHECK_NUMBER(pixel_from_unit(INFINITY), 255);
    CHECK_NUMBER(pixel_from_unit(-INFINITY), 0);
    CHECK_NUMBER(pixel_from_unit(NAN), 0);
    CHECK_NUMBER(pixel_from_unit(0.0f), 128); // 127.5 to even
    int wrong = 0, ties = 0;
    for (int i = -70000; i <= 70000; i++) {
        float value = (float)i / 65536.0f, unit = value * 0.5f + 0.5f;
        unit = unit < 0.0f ? 0.0f : unit > 1.0f ? 1.0f : unit;
        float scaled = unit * 255.0f;
        ties += scaled - floorf(scaled) == 0.5f;
        wrong += pixel_from_unit(value) != (int)rintf(scaled);
    }
    CHECK_NUMBER(wrong, 0);
    CHECK(ties > 0);
    float planes[3 * 37];
    uint8_t rgba[4 * 37];
    for (int i = 0; i < 3 * 37; i++) planes[i] = (float)(i % 23) * 0.1f - 1.1f;
    planes[40] = NAN;
    sumi_planes_to_rgba(planes, 37, rgba);
    for (int i = 0; i < 37; i++) {
        for (int c = 0; c < 3; c++) CHECK_NUMBER(rgba[4 * i + c], pixel_from_unit(planes[c * 37 + i]));
        CHECK_NUMBER(rgba[4 * i + 3], 255);
    }
}

TEST(preview_factors_give_the_recorded_preview)
{
    sumi_tensor_set set;
    if (!open_set(&set, "tests/golden/z-image/cases/turbo_t2i.safetensors")) {
        CHECK(!"turbo_t2i.safetensors opens");
        return;
    }
    const sumi_preview_factors* p = sumi_preview_flux();
    size_t latent_count, rgb_count;
    float* latents = values_of(&set, "expect.latents", &latent_count); // [step][16][h][w]
    float* rgb = values_of(&set, "expect.preview_rgb_of_latents", &rgb_count);
    CHECK(latents != NULL && rgb != NULL && latent_count * 3 == rgb_count * 16);
    CHECK_NUMBER(p->channel_count, 16);
    const sumi_tensor* shape = sumi_tensor_find(&set, "expect.latents");
    size_t plane = shape ? (size_t)(shape->shape[2] * shape->shape[3]) : 0;
    for (size_t s = 0; latents != NULL && rgb != NULL && s < (size_t)shape->shape[0]; s++)
        for (size_t i = 0; i < plane; i++)
            for (size_t k = 0; k < 3; k++) {
                double sum = (double)p->bias[k];
                for (size_t c = 0; c < 16; c++)
                    sum += (double)p->factors[c][k] * (double)latents[(s * 16 + c) * plane + i];
                CHECK_NEAR(sum, (double)rgb[(s * 3 + k) * plane + i], 2e-6, 1e-5);
            }
    free(latents);
    free(rgb);
    sumi_tensor_set_close(&set);
    CHECK(sumi_preview_wan()->channel_count == 16 && sumi_preview_wan()->factors[7][1] == 0.1902f);
    CHECK(sumi_preview_flux2()->channel_count == 32 && sumi_preview_flux2()->factors[8][0] == -0.3527f);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    RUN(resize_equals_pillow_bit_for_bit);
    RUN(resize_treats_channels_alone_and_minds_row_bytes);
    RUN(resize_keeps_flat_images_flat);
    RUN(resize_equals_plain_loops_at_any_size);
    RUN(distances_to_what_a_mask_keeps);
    RUN(image_and_mask_are_prepared_as_the_reference_does);
    RUN(mask_threshold_and_luma_are_pillows);
    RUN(masks_reach_latents_of_any_factor);
    RUN(windows_share_the_pixels_of_their_picture);
    RUN(pixels_refuse_hostile_sizes_and_say_why);
    RUN(pixels_survive_every_failing_allocation);
    RUN(unit_values_round_half_to_even);
    RUN(preview_factors_give_the_recorded_preview);
    RUN(colours_are_resized_by_their_alpha);
    RUN(alpha_is_applied_as_the_reference_does);
    RUN(pixels_of_8_bits_become_any_format);
    TEST_END();
}
