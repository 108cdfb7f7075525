// Images like those that the demo models were trained with, in any size: a few things in flat colours or as lines, on a
// plain background, in a blue sky or at night. demo_faults says whether an edited image shows the scene that it should.
//
// The formulas are those of samples/demo_model/train/pictures.py, without what is random there (stars, clouds).
#ifndef DEMO_SCENE_H
#define DEMO_SCENE_H
#include "test.h"

typedef enum demo_colour { RED, ORANGE, YELLOW, GREEN, BLUE, PURPLE, PINK, BROWN, DEMO_COLOUR_COUNT } demo_colour;
static const double s_demo_palette[DEMO_COLOUR_COUNT][3] = {{214, 48, 49},   {240, 140, 30}, {250, 210, 50},
                                                            {60, 160, 70},   {45, 105, 215}, {130, 70, 180},
                                                            {245, 140, 180}, {130, 80, 45}};
static const char* const s_demo_colour_names[DEMO_COLOUR_COUNT] = {"red",  "orange", "yellow", "green",
                                                                   "blue", "purple", "pink",   "brown"};

typedef enum demo_object { CIRCLE, SQUARE, STAR, HEART, MOON, HOUSE, TREE, CAT } demo_object;
typedef enum demo_background { PLAIN, SKY, NIGHT } demo_background;

typedef struct demo_thing {
    demo_object object;
    demo_colour colour;
    double x, y; // centre, in units of width and height
    double half; // half size, in units of the shorter side
} demo_thing;

typedef struct demo_scene {
    demo_background background;
    bool outline; // lines instead of flat colours
    int count;
    demo_thing things[3];
} demo_scene;

// ---- Distances, in units of a thing's half size: u to the right, v down ---------------------------------------------

static inline double demo_clamp(double x, double low, double high) { return x < low ? low : x > high ? high : x; }
static inline double demo_circle(double u, double v, double x, double y, double r) { return hypot(u - x, v - y) - r; }

static inline double demo_rectangle(double u, double v, double x, double y, double w, double h)
{
    const double a = fabs(u - x) - w, b = fabs(v - y) - h;
    return hypot(fmax(a, 0.0), fmax(b, 0.0)) + fmin(fmax(a, b), 0.0);
}

static inline double demo_ellipse(double u, double v, double x, double y, double a, double b)
{
    return (hypot((u - x) / a, (v - y) / b) - 1.0) * fmin(a, b);
}

// Convex: the largest distance to its edges.
static inline double demo_polygon(double u, double v, const double (*points)[2], int count)
{
    double cx = 0.0, cy = 0.0, distance = -1e9;
    for (int i = 0; i < count; i++) cx += points[i][0] / count, cy += points[i][1] / count;
    for (int i = 0; i < count; i++) {
        const double *a = points[i], *b = points[(i + 1) % count];
        double nx = b[1] - a[1], ny = a[0] - b[0];
        const double length = hypot(nx, ny) * ((cx - a[0]) * nx + (cy - a[1]) * ny > 0.0 ? -1.0 : 1.0);
        distance = fmax(distance, ((u - a[0]) * nx + (v - a[1]) * ny) / length);
    }
    return distance;
}
#define DEMO_POLYGON(u, v, ...)                                                                                        \
    demo_polygon(u, v, (const double[][2]){__VA_ARGS__}, (int)(sizeof(double[][2]){__VA_ARGS__} / sizeof(double[2])))

static inline double demo_segment(double u, double v, double ax, double ay, double bx, double by, double r)
{
    const double dx = bx - ax, dy = by - ay,
                 t = demo_clamp(((u - ax) * dx + (v - ay) * dy) / (dx * dx + dy * dy), 0.0, 1.0);
    return hypot(u - ax - t * dx, v - ay - t * dy) - r;
}

static inline double demo_star(double u, double v)
{
    const double sector = 2.0 * 3.14159265358979 / 5.0, turned = atan2(u, -v) + sector / 2.0,
                 angle = turned - sector * floor(turned / sector) - sector / 2.0, r = hypot(u, v);
    const double x = r * sin(fabs(angle)), y = r * cos(angle), bx = 0.42 * sin(sector / 2.0),
                 by = 0.42 * cos(sector / 2.0);
    return -(x * (by - 1.0) - (y - 1.0) * bx) / hypot(by - 1.0, bx);
}

// ---- Things: layers from back to front ------------------------------------------------------------------------------

typedef enum demo_shade { MAIN, DARK, LIGHT, WOOD, CREAM, INK, NOSE } demo_shade;
typedef struct demo_layer {
    double distance;
    demo_shade shade;
} demo_layer;

static inline int demo_layers(demo_object object, double u, double v, demo_layer out[8])
{
    const double x = fabs(u);
    int count = 0;
#define LAYER(distance, shade)                                                                                         \
    out[count++] = (demo_layer) { distance, shade }
    switch (object) {
    case CIRCLE: LAYER(demo_circle(u, v, 0, 0, 0.95), MAIN); break;
    case SQUARE: LAYER(demo_rectangle(u, v, 0, 0, 0.78, 0.78) - 0.05, MAIN); break;
    case STAR: LAYER(demo_star(u, v + 0.05), MAIN); break;
    case HEART:
        LAYER(fmin(demo_circle(x, 0.12 - v, 0.46, 0.42, 0.5),
                   DEMO_POLYGON(x, 0.12 - v, {-0.5, 0.62}, {0.10, 0.62}, {0.85, 0.10}, {0.0, -0.95}, {-0.5, -0.4})),
              MAIN);
        break;
    case MOON: LAYER(fmax(demo_circle(u, v, -0.05, 0, 0.92), -demo_circle(u, v, 0.42, -0.18, 0.78)), MAIN); break;
    case HOUSE:
        LAYER(demo_rectangle(u, v, 0.52, -0.62, 0.12, 0.28), DARK);
        LAYER(demo_rectangle(u, v, 0, 0.38, 0.72, 0.55), MAIN);
        LAYER(DEMO_POLYGON(u, v, {0, -0.98}, {0.95, -0.12}, {-0.95, -0.12}), DARK);
        LAYER(demo_rectangle(u, v, 0, 0.62, 0.16, 0.31), WOOD);
        LAYER(demo_rectangle(u, v, -0.42, 0.28, 0.15, 0.15), CREAM);
        LAYER(demo_rectangle(u, v, 0.42, 0.28, 0.15, 0.15), CREAM);
        break;
    case TREE:
        LAYER(demo_rectangle(u, v, 0, 0.65, 0.13, 0.34), WOOD);
        LAYER(fmin(fmin(demo_circle(u, v, 0, -0.42, 0.52), demo_circle(x, v, 0.42, -0.08, 0.42)),
                   demo_circle(u, v, 0, 0.05, 0.42)),
              MAIN);
        break;
    case CAT:
        LAYER(DEMO_POLYGON(x, v, {0.30, -0.62}, {0.82, -0.98}, {0.84, -0.20}), MAIN);
        LAYER(demo_circle(u, v * 1.08, 0, 0.14, 0.84), MAIN);
        LAYER(DEMO_POLYGON(x, v, {0.45, -0.62}, {0.72, -0.80}, {0.74, -0.42}), LIGHT);
        LAYER(demo_ellipse(x, v, 0.33, 0.0, 0.13, 0.17), CREAM);
        LAYER(demo_ellipse(x, v, 0.33, 0.02, 0.07, 0.13), INK);
        LAYER(DEMO_POLYGON(u, v, {-0.10, 0.28}, {0.10, 0.28}, {0, 0.40}), NOSE);
        LAYER(demo_segment(x, v, 0.22, 0.46, 0.66, 0.40, 0.018), INK);
        LAYER(demo_segment(x, v, 0.22, 0.56, 0.62, 0.60, 0.018), INK);
        break;
    }
#undef LAYER
    return count;
}

static inline double demo_channel(demo_colour colour, demo_shade shade, bool outline, int c)
{
    static const double s_fixed[][3] = {[WOOD] = {0.45, 0.30, 0.18},
                                        [CREAM] = {0.95, 0.90, 0.76},
                                        [INK] = {0.16, 0.16, 0.20},
                                        [NOSE] = {0.90, 0.50, 0.55}};
    const double main = s_demo_palette[colour][c] / 255.0;
    if (outline && (shade == CREAM || shade == LIGHT)) return main;
    switch (shade) {
    case MAIN: return main;
    case DARK: return main * 0.72;
    case LIGHT: return main + (1.0 - main) * 0.45;
    default: return s_fixed[shade][c];
    }
}

// ---- Painting -------------------------------------------------------------------------------------------------------

static inline void demo_paint_thing(const demo_thing* thing, bool outline, double px, double py, double side,
                                    double width, double height, double pixel[3])
{
    const double half = thing->half * side, u = (px - thing->x * width) / half, v = (py - thing->y * height) / half;
    if (fabs(u) > 1.6 || fabs(v) > 1.6) return;
    const double behind[3] = {pixel[0], pixel[1], pixel[2]};
    demo_layer layers[8];
    if (!outline) { // a shadow
        const double su = u - 0.05, sv = v - 0.09;
        double distance = 1e9;
        for (int i = 0, n = demo_layers(thing->object, su, sv, layers); i < n; i++)
            distance = fmin(distance, layers[i].distance);
        distance = fmax(distance, fmax(fabs(su), fabs(sv)) - 1.0);
        const double alpha = 0.22 / (1.0 + exp(distance / 0.045));
        pixel[0] *= 1.0 - 0.9 * alpha, pixel[1] *= 1.0 - 0.85 * alpha, pixel[2] *= 1.0 - 0.7 * alpha;
    }
    for (int i = 0, n = demo_layers(thing->object, u, v, layers); i < n; i++) {
        const double line = fmax(0.062, 2.2 / half), d = layers[i].distance,
                     fill = demo_clamp(0.5 - d * half / 1.4, 0.0, 1.0),
                     alpha = !outline ? fill : demo_clamp(0.5 - (fabs(d + 0.4 * line) - line) * half / 1.4, 0.0, 1.0),
                     light = !outline ? 1.02 - 0.09 * demo_clamp(v, -1.0, 1.0) : 1.0;
        for (int c = 0; c < 3; c++) {
            if (outline) pixel[c] += fill * (behind[c] - pixel[c]); // nearer lines hide those behind them
            pixel[c] += alpha * (demo_channel(thing->colour, layers[i].shade, outline, c) * light - pixel[c]);
        }
    }
}

// Paints RGBA8 with an alpha of 255; the caller frees.
static inline uint8_t* demo_paint(const demo_scene* scene, int width, int height)
{
    static const double s_top[][3] = {{0.985, 0.98, 0.965}, {0.45, 0.70, 0.94}, {0.05, 0.07, 0.18}},
                        s_low[][3] = {{0.965, 0.96, 0.945}, {0.80, 0.91, 0.98}, {0.13, 0.16, 0.34}};
    uint8_t* picture = malloc((size_t)4 * (size_t)width * (size_t)height);
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            const double t = height > 1 ? (double)y / (height - 1) : 0.0;
            double pixel[3];
            for (int c = 0; c < 3; c++)
                pixel[c] =
                    s_top[scene->background][c] + t * (s_low[scene->background][c] - s_top[scene->background][c]);
            for (int i = 0; i < scene->count; i++)
                demo_paint_thing(&scene->things[i], scene->outline, x + 0.5, y + 0.5, fmin(width, height), width,
                                 height, pixel);
            uint8_t* at = picture + (size_t)4 * ((size_t)y * (size_t)width + (size_t)x);
            for (int c = 0; c < 3; c++) at[c] = (uint8_t)(255.0 * demo_clamp(pixel[c], 0.0, 1.0) + 0.5);
            at[3] = 255;
        }
    }
    return picture;
}

// ---- Judging --------------------------------------------------------------------------------------------------------

// Peak signal to noise over the RGB of two RGBA8 images, where `counts` is set; NULL: everywhere.
static inline double demo_psnr(const uint8_t* a, const uint8_t* b, int width, int height, const uint8_t* counts)
{
    double sum = 0.0, n = 0.0;
    for (int i = 0; i < width * height; i++) {
        if (counts != NULL && !counts[i]) continue;
        for (int c = 0; c < 3; c++) {
            const double d = (double)a[4 * i + c] - (double)b[4 * i + c];
            sum += d * d;
        }
        n += 3.0;
    }
    return sum > 0.0 ? 10.0 * log10(255.0 * 255.0 * n / sum) : 99.0;
}

typedef struct demo_box {
    int x0, x1, y0, y1;
} demo_box;

// Pixels that are clearly of this colour. The painter's own differ by at most 24 from the palette.
static inline int demo_count(const uint8_t* picture, int width, demo_box box, demo_colour colour)
{
    int count = 0;
    for (int y = box.y0; y < box.y1; y++) {
        for (int x = box.x0; x < box.x1; x++) {
            const uint8_t* at = picture + 4 * (y * width + x);
            const double* want = s_demo_palette[colour];
            count += fabs(at[0] - want[0]) < 40 && fabs(at[1] - want[1]) < 40 && fabs(at[2] - want[2]) < 40;
        }
    }
    return count;
}

static inline bool demo_is_near(const demo_scene* scene, int x, int y, int width, int height)
{
    for (int i = 0; i < scene->count; i++) {
        const demo_thing* thing = &scene->things[i];
        const double reach = (1.1 * thing->half + 0.03) * fmin(width, height);
        if (fabs(x + 0.5 - thing->x * width) < reach && fabs(y + 0.5 - thing->y * height) < reach) return true;
    }
    return false;
}

// The number of faults of a picture that should show `after` and was made from one of `before`; `why` is the first one.
//
//     things       in each cell of 3 x 3, each colour of the palette covers as many pixels as the painter gives it: a
//                  third more or less and 2 % of the cell. A thing covers at least 10 % of one
//     background   the mean colour of its upper and its lower half is the painter's
//     unchanged    away from all things the picture is the one before, at 26 dB, as train/check_edit.py wants it;
//                  where background and style stay
static inline int demo_faults(const demo_scene* before, const demo_scene* after, const uint8_t* picture, int width,
                              int height, char why[256])
{
    uint8_t *truth = demo_paint(after, width, height), *old = demo_paint(before, width, height),
            *is_free = malloc((size_t)(width * height));
    int faults = 0;
    for (int i = 0; i < width * height; i++) {
        is_free[i] = !demo_is_near(before, i % width, i / width, width, height)
                  && !demo_is_near(after, i % width, i / width, width, height);
    }
    for (int cell = 0; cell < 9; cell++) {
        const demo_box box = {width * (cell % 3) / 3, width * (cell % 3 + 1) / 3, height * (cell / 3) / 3,
                              height * (cell / 3 + 1) / 3};
        for (demo_colour colour = 0; colour < DEMO_COLOUR_COUNT; colour++) {
            const int got = demo_count(picture, width, box, colour), want = demo_count(truth, width, box, colour);
            if (abs(got - want) <= want / 3 + (box.x1 - box.x0) * (box.y1 - box.y0) / 50) continue;
            if (faults++ == 0)
                snprintf(why, 256, "row %d, column %d: %d pixels are %s, not %d", cell / 3 + 1, cell % 3 + 1, got,
                         s_demo_colour_names[colour], want);
        }
    }
    for (int half = 0; half < 2; half++) {
        double off[3] = {0}, n = 0.0;
        for (int i = half * height / 2 * width; i < (half + 1) * height / 2 * width; i++) {
            if (!is_free[i]) continue;
            for (int c = 0; c < 3; c++) off[c] += (double)picture[4 * i + c] - (double)truth[4 * i + c];
            n += 1.0;
        }
        for (int c = 0; c < 3; c++) {
            if (fabs(off[c]) <= 25.0 * n) continue;
            if (faults++ == 0)
                snprintf(why, 256, "the %s background is off by %.0f in %s", half == 0 ? "upper" : "lower", off[c] / n,
                         c == 0   ? "red"
                         : c == 1 ? "green"
                                  : "blue");
        }
    }
    const double psnr = demo_psnr(picture, old, width, height, is_free);
    if (before->background == after->background && before->outline == after->outline && psnr < 26.0 && faults++ == 0)
        snprintf(why, 256, "what should stay is %.1f dB from the picture before", psnr);
    free(truth), free(old), free(is_free);
    return faults;
}
#endif
