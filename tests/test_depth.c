// Depth buffers as control pictures: every kind, format and stretch against the textbook's formulas in double, ranges
// that the host program gives, sky, constant pictures, refusals.
#include "pictures/depth.h"
#include "test.h"

static sumi_heap s_heap;

// ---- The reference --------------------------------------------------------------------------------------------------

static double element(const sumi_depth* depth, int x, int y)
{
    const int32_t bytes = depth->format == SUMI_DEPTH_U16 ? 2 : 4,
                  row_bytes = depth->row_bytes != 0 ? depth->row_bytes : depth->width * bytes;
    const int row = depth->bottom_up ? depth->height - 1 - y : y;
    const char* at = (const char*)depth->data + (size_t)row * (size_t)row_bytes + (size_t)(x * bytes);
    uint16_t integer;
    float number;
    if (bytes == 2) {
        memcpy(&integer, at, sizeof integer);
        return integer / 65535.0;
    }
    memcpy(&number, at, sizeof number);
    return number;
}

// INFINITY for sky.
static double distance_of(const sumi_depth* depth, double d)
{
    const double n = depth->near_plane, f = depth->far_plane;
    switch (depth->kind) {
    case SUMI_DEPTH_DISTANCE:
        if (depth->format == SUMI_DEPTH_U16) d *= f;
        return isnan(d) || (f > 0.0 && d >= f) ? INFINITY : d;
    case SUMI_DEPTH_REVERSED: d = 1.0 - d; break;
    case SUMI_DEPTH_OPENGL: d = 0.5 * (d + 1.0); break;
    default: break;
    }
    if (isnan(d) || d >= 1.0) return INFINITY;
    d = d < 0.0 ? 0.0 : d;
    return isinf(f) ? n / (1.0 - d) : n * f / (f - d * (f - n));
}

static int ascending(const void* a, const void* b)
{
    const double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

// numpy.percentile
static double percentile(const double* sorted, size_t count, double percent)
{
    const double at = percent / 100.0 * (double)(count - 1);
    const size_t i = (size_t)at, next = i + 1 < count ? i + 1 : i;
    return sorted[i] + (at - (double)i) * (sorted[next] - sorted[i]);
}

// The share of input j in output i of an axis, by Pillow's BILINEAR, not divided by their sum.
static double triangle(int j, int i, int from, int to)
{
    const double scale = (double)from / to,
                 weight = 1.0 - fabs(j + 0.5 - (i + 0.5) * scale) / (scale > 1.0 ? scale : 1.0);
    return weight > 0.0 ? weight : 0.0;
}

#define MOST (64 * 64)
static double s_t[MOST], s_sorted[MOST];

static void reference(const sumi_depth_args* args, double* greys)
{
    const sumi_depth* depth = args->depth;
    const bool inverse = args->stretch == SUMI_STRETCH_INVERSE;
    const int w = depth->width, h = depth->height;
    const double sky = inverse && isfinite(depth->far_plane) && depth->far_plane > 0.0f ? 1.0 / depth->far_plane : 0.0;
    size_t count = 0;
    for (int i = 0; i < w * h; i++) {
        const double z = distance_of(depth, element(depth, i % w, i / w));
        s_t[i] = !inverse ? z : isinf(z) ? sky : 1.0 / z;
        if (isfinite(s_t[i])) s_sorted[count++] = s_t[i];
    }
    qsort(s_sorted, count, sizeof *s_sorted, ascending);
    double white = percentile(s_sorted, count, inverse ? 99 : 2), black = percentile(s_sorted, count, inverse ? 1 : 85);
    if (depth->high > 0.0f) {
        white = inverse ? 1.0 / depth->low : depth->low;
        black = inverse ? 1.0 / depth->high : depth->high;
    }
    for (int i = 0; i < w * h; i++) s_t[i] = fmin(fmax((s_t[i] - black) / (white - black), 0.0), 1.0);
    for (int y = 0; y < args->height; y++)
        for (int x = 0; x < args->width; x++) {
            double sum = 0.0, weights = 0.0;
            for (int v = 0; v < h; v++) {
                const double of_row = triangle(v, y, h, args->height);
                for (int u = 0; u < w && of_row > 0.0; u++) {
                    const double weight = of_row * triangle(u, x, w, args->width);
                    sum += weight * s_t[v * w + u];
                    weights += weight;
                }
            }
            greys[y * args->width + x] = sum / weights;
        }
}

static uint8_t s_rgb[MOST * 3];

static bool prepare(const sumi_depth_args* args)
{
    void* memory = sumi_alloc(&s_heap, (size_t)sumi_depth_bytes(args));
    int pieces = 0;
    memset(s_rgb, 7, sizeof s_rgb);
    sumi_depth_begin(args, memory);
    while (!sumi_depth_advance(memory, s_rgb) && pieces < 1000) pieces++;
    sumi_free(&s_heap, memory);
    return pieces >= 1 && pieces < 1000;
}

static void compare(const sumi_depth_args* args)
{
    static double s_greys[MOST];
    int wrong = 0, coloured = 0;
    reference(args, s_greys);
    CHECK(prepare(args));
    for (int i = 0; i < args->width * args->height; i++) {
        const uint8_t* rgb = s_rgb + 3 * (size_t)i;
        // 8 bits, and what float loses: an error of 1e-3 beside half a grey
        const bool is_near = fabs(rgb[0] - 255.0 * s_greys[i]) < 0.501;
        if (!is_near && wrong++ < 3) printf("  pixel %d is %d, not %.4f\n", i, rgb[0], 255.0 * s_greys[i]);
        coloured += rgb[0] != rgb[1] || rgb[0] != rgb[2];
    }
    CHECK_NUMBER(wrong, 0);
    CHECK_NUMBER(coloured, 0);
}

// ---- Scenes ---------------------------------------------------------------------------------------------------------

static float s_floats[MOST];
static uint16_t s_shorts[MOST];
static uint32_t s_random = 1;
static double random_unit(void) { return (double)((s_random = s_random * 1664525u + 1013904223u) >> 8) / 16777216.0; }

// A floor, a box and sky, with noise, of values of the given kind.
static sumi_depth scene(sumi_depth_kind kind, sumi_depth_format format, int width, int height)
{
    sumi_depth depth = sumi_depth_defaults();
    const bool is_infinite = kind == SUMI_DEPTH_REVERSED;
    const double n = 0.3, f = is_infinite ? INFINITY : 250.0;
    depth.kind = kind;
    depth.format = format;
    depth.width = width;
    depth.height = height;
    depth.near_plane = (float)n;
    depth.far_plane = (float)f;
    for (int i = 0; i < width * height; i++) {
        const int x = i % width, y = i / width;
        double z = 1.0 + 40.0 * (height - y) / height + random_unit();
        if (x > width / 2 && y > height / 3) z = 4.0 + 0.01 * x;
        double d = is_infinite ? 1.0 - n / z : f * (z - n) / (z * (f - n));
        if (y < height / 5) d = 1.0, z = kind == SUMI_DEPTH_DISTANCE && format ? f : INFINITY;
        if (kind == SUMI_DEPTH_REVERSED) d = 1.0 - d;
        if (kind == SUMI_DEPTH_OPENGL) d = 2.0 * d - 1.0;
        if (kind == SUMI_DEPTH_DISTANCE) d = format == SUMI_DEPTH_U16 ? z / f : z;
        s_floats[i] = (float)d;
        s_shorts[i] = format == SUMI_DEPTH_U16 ? (uint16_t)(65535.0 * d + 0.5) : 0;
    }
    depth.data = format == SUMI_DEPTH_U16 ? (const void*)s_shorts : s_floats;
    return depth;
}

TEST(every_kind_has_the_greys_of_the_textbook)
{
    for (int kind = SUMI_DEPTH_STANDARD; kind <= SUMI_DEPTH_DISTANCE; kind++)
        for (int format = 0; format < 2; format++)
            for (int stretch = 0; stretch < 2; stretch++) {
                if (kind == SUMI_DEPTH_OPENGL && format == SUMI_DEPTH_U16) continue;
                sumi_depth depth = scene((sumi_depth_kind)kind, (sumi_depth_format)format, 37, 29);
                sumi_depth_args args = {&depth, (sumi_depth_stretch)stretch, 37, 29};
                compare(&args);
                args.width = 16, args.height = 48; // smaller in one direction, larger in the other
                depth.bottom_up = true;
                compare(&args);
                depth.low = 2.0f, depth.high = 30.0f;
                compare(&args);
            }
}

TEST(rows_may_have_a_pitch)
{
    sumi_depth depth = scene(SUMI_DEPTH_STANDARD, SUMI_DEPTH_U16, 30, 11);
    depth.width = 23;
    depth.row_bytes = 60;
    compare(&(sumi_depth_args){&depth, SUMI_STRETCH_DISTANCE, 32, 16});
}

// What no distance can be is sky, and distances that are none are near.
TEST(values_out_of_range_have_a_meaning)
{
    for (int kind = SUMI_DEPTH_STANDARD; kind <= SUMI_DEPTH_DISTANCE; kind++)
        for (int stretch = 0; stretch < 2; stretch++) {
            const bool is_reversed = kind == SUMI_DEPTH_REVERSED;
            sumi_depth depth = scene((sumi_depth_kind)kind, SUMI_DEPTH_F32, 32, 32);
            s_floats[800] = NAN;
            s_floats[801] = is_reversed ? -3.0f : INFINITY;
            s_floats[802] = is_reversed ? INFINITY : -INFINITY;
            CHECK(prepare(&(sumi_depth_args){&depth, (sumi_depth_stretch)stretch, 32, 32}));
            CHECK_NUMBER(s_rgb[3 * 800], 0);
            CHECK_NUMBER(s_rgb[3 * 801], 0);
            CHECK_NUMBER(s_rgb[3 * 802], 255);
            CHECK_NUMBER(s_rgb[0], 0); // the cleared part
        }
}

static int sum_of(const sumi_depth* depth, sumi_depth_stretch stretch)
{
    int sum = 0;
    CHECK(prepare(&(sumi_depth_args){depth, stretch, 16, 16}));
    for (int i = 0; i < 16 * 16; i++) sum += s_rgb[3 * i];
    return sum;
}

// Many equal distances make both percentiles equal; nothing is divided by zero then.
TEST(pictures_of_one_distance_are_white_and_sky_is_black)
{
    for (int stretch = 0; stretch < 2; stretch++) {
        sumi_depth depth = scene(SUMI_DEPTH_REVERSED, SUMI_DEPTH_F32, 20, 20);
        for (int i = 0; i < 400; i++) s_floats[i] = 0.25f;
        CHECK_NUMBER(sum_of(&depth, (sumi_depth_stretch)stretch), 255 * 256);
        for (int i = 0; i < 400; i++) s_floats[i] = 0.0f;
        CHECK_NUMBER(sum_of(&depth, (sumi_depth_stretch)stretch), 0);
        // one pixel that is farther: between black and white lies nothing
        for (int i = 0; i < 400; i++) s_floats[i] = i == 0 ? 0.1f : 0.25f;
        CHECK(prepare(&(sumi_depth_args){&depth, (sumi_depth_stretch)stretch, 20, 20}));
        CHECK_NUMBER(s_rgb[0], 0);
        CHECK_NUMBER(s_rgb[3], 255);
        depth.width = depth.height = 1;
        CHECK_NUMBER(sum_of(&depth, (sumi_depth_stretch)stretch), 255 * 256);
    }
}

// Sky beyond a range that ends beyond the far plane.
TEST(sky_is_black_in_every_range)
{
    for (int stretch = 0; stretch < 2; stretch++) {
        sumi_depth depth = scene(SUMI_DEPTH_STANDARD, SUMI_DEPTH_F32, 16, 16);
        depth.low = 1.0f, depth.high = 9000.0f;
        CHECK(prepare(&(sumi_depth_args){&depth, (sumi_depth_stretch)stretch, 16, 16}));
        CHECK_NUMBER(s_rgb[0], 0);
        CHECK(s_rgb[3 * 16 * 15] > 0);
    }
}

// ---- Refusals -------------------------------------------------------------------------------------------------------

#define REFUSED(change, words)                                                                                         \
    do {                                                                                                               \
        sumi_depth depth = scene(SUMI_DEPTH_STANDARD, SUMI_DEPTH_F32, 20, 20);                                         \
        sumi_error error = {0};                                                                                        \
        CHECK_NUMBER(sumi_depth_check(&depth, "depth", &error), SUMI_OK);                                              \
        change;                                                                                                        \
        CHECK_NUMBER(sumi_depth_check(&depth, "depth", &error), SUMI_INVALID_ARGUMENT);                                \
        if (strstr(error.text, words) == NULL) printf("  %s\n", error.text);                                           \
        CHECK(strstr(error.text, words) != NULL);                                                                      \
    } while (0)

TEST(buffers_that_cannot_be_are_refused_by_name)
{
    REFUSED(depth.data = NULL, "data is NULL");
    REFUSED(depth.format = (sumi_depth_format)2, "depth.format is 2");
    REFUSED(depth.kind = (sumi_depth_kind)4, "depth.kind is 4");
    REFUSED((depth.kind = SUMI_DEPTH_OPENGL, depth.format = SUMI_DEPTH_U16), "give SUMI_DEPTH_STANDARD");
    REFUSED(depth.width = 0, "depth is 0 x 20");
    REFUSED(depth.height = 40000, "1 to 32768");
    REFUSED(depth.row_bytes = 79, "takes 80 bytes");
    REFUSED(depth.row_bytes = -80, "row_bytes -80");
    REFUSED(depth.near_plane = 0.0f, "near_plane is 0");
    REFUSED(depth.near_plane = -1.0f, "near_plane is -1");
    REFUSED(depth.near_plane = NAN, "near_plane");
    REFUSED(depth.near_plane = INFINITY, "near_plane");
    REFUSED(depth.far_plane = depth.near_plane, "far_plane is 0.3");
    REFUSED(depth.far_plane = NAN, "far_plane");
    REFUSED((depth.kind = SUMI_DEPTH_DISTANCE, depth.far_plane = -1.0f), "far_plane is -1");
    REFUSED((depth.kind = SUMI_DEPTH_DISTANCE, depth.format = SUMI_DEPTH_U16, depth.far_plane = 0.0f), "65535");
    REFUSED(depth.low = 1.0f, "low and high");
    REFUSED(depth.high = 1.0f, "low and high");
    REFUSED((depth.low = 2.0f, depth.high = 2.0f), "low and high");
    REFUSED((depth.low = 2.0f, depth.high = INFINITY), "low and high");
    REFUSED((depth.low = NAN, depth.high = 2.0f), "low and high");
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    RUN(every_kind_has_the_greys_of_the_textbook);
    RUN(rows_may_have_a_pitch);
    RUN(values_out_of_range_have_a_meaning);
    RUN(pictures_of_one_distance_are_white_and_sky_is_black);
    RUN(sky_is_black_in_every_range);
    RUN(buffers_that_cannot_be_are_refused_by_name);
    TEST_END();
}
