#include "edges.h"
#include <stddef.h>
#include <stdlib.h>

enum { WEAK_FROM = 100, STRONG_FROM = 200 }; // of |dx| + |dy| by Sobel, for bytes
enum { WEAK = 1, STRONG = 255 };             // while lines are followed; in the end WEAK ones are 0

typedef struct gradients {
    int32_t width, height;
    int16_t *dx, *dy;
} gradients;

static int32_t clamp(int32_t value, int32_t last) { return value < 0 ? 0 : value > last ? last : value; }

static void differentiate(const uint8_t* luma, const gradients* g)
{
    for (int32_t y = 0; y < g->height; y++) {
        const uint8_t* rows[3];
        for (int32_t i = 0; i < 3; i++) rows[i] = luma + (size_t)clamp(y + i - 1, g->height - 1) * (size_t)g->width;
        for (int32_t x = 0; x < g->width; x++) {
            const int32_t left = clamp(x - 1, g->width - 1), right = clamp(x + 1, g->width - 1);
            const size_t at = (size_t)y * (size_t)g->width + (size_t)x;
            g->dx[at] = (int16_t)(rows[0][right] - rows[0][left] + 2 * (rows[1][right] - rows[1][left]) + rows[2][right]
                                  - rows[2][left]);
            g->dy[at] = (int16_t)(rows[2][left] - rows[0][left] + 2 * (rows[2][x] - rows[0][x]) + rows[2][right]
                                  - rows[0][right]);
        }
    }
}

// 0 outside the picture.
static int32_t magnitude(const gradients* g, int32_t x, int32_t y)
{
    if (x < 0 || y < 0 || x >= g->width || y >= g->height) return 0;
    const size_t at = (size_t)y * (size_t)g->width + (size_t)x;
    return abs(g->dx[at]) + abs(g->dy[at]);
}

// Only the crest of a slope is a line: a pixel whose gradient is larger than the one before it along the gradient's
// direction, in steps of 45 degrees, and not less than the one after it. Of two equal ones the first stays.
static uint8_t judge(const gradients* g, int32_t x, int32_t y)
{
    const int32_t here = magnitude(g, x, y);
    if (here < WEAK_FROM) return 0;
    const size_t at = (size_t)y * (size_t)g->width + (size_t)x;
    const int32_t across = abs(g->dx[at]), along = abs(g->dy[at]);
    // tan(22.5 degrees) is 0.4142, about 53 / 128
    const int32_t step_x = 128 * across < 53 * along ? 0 : 1, step_y = 128 * along < 53 * across ? 0 : 1;
    const int32_t turn = step_x && step_y && (g->dx[at] < 0) != (g->dy[at] < 0) ? -1 : 1;
    if (magnitude(g, x - step_x, y - turn * step_y) >= here) return 0;
    if (magnitude(g, x + step_x, y + turn * step_y) > here) return 0;
    return here >= STRONG_FROM ? STRONG : WEAK;
}

// Weak pixels that touch a line belong to it. `stack` has room for each pixel once: one is pushed when it becomes
// STRONG.
static void follow_lines(uint8_t* to, const gradients* g, size_t* stack)
{
    const size_t count = (size_t)g->width * (size_t)g->height;
    size_t depth = 0;
    for (size_t i = 0; i < count; i++)
        if (to[i] == STRONG) stack[depth++] = i;
    while (depth > 0) {
        const size_t at = stack[--depth];
        const int32_t x = (int32_t)(at % (size_t)g->width), y = (int32_t)(at / (size_t)g->width);
        for (int32_t v = clamp(y - 1, g->height - 1); v <= clamp(y + 1, g->height - 1); v++)
            for (int32_t u = clamp(x - 1, g->width - 1); u <= clamp(x + 1, g->width - 1); u++) {
                const size_t beside = (size_t)v * (size_t)g->width + (size_t)u;
                if (to[beside] != WEAK) continue;
                to[beside] = STRONG;
                stack[depth++] = beside;
            }
    }
    for (size_t i = 0; i < count; i++)
        if (to[i] == WEAK) to[i] = 0;
}

bool edges_find(const uint8_t* from, int32_t width, int32_t height, int32_t channel_count, uint8_t* to)
{
    const size_t count = (size_t)width * (size_t)height;
    size_t* stack = malloc(count * (sizeof(size_t) + 2 * sizeof(int16_t)));
    if (!stack) return false;
    const gradients g = {width, height, (int16_t*)(stack + count), (int16_t*)(stack + count) + count};
    for (size_t i = 0; i < count; i++) {
        const uint8_t* pixel = from + i * (size_t)channel_count;
        to[i] = (uint8_t)((299 * pixel[0] + 587 * pixel[1] + 114 * pixel[2] + 500) / 1000);
    }
    differentiate(to, &g);
    for (int32_t y = 0; y < height; y++)
        for (int32_t x = 0; x < width; x++) to[(size_t)y * (size_t)width + (size_t)x] = judge(&g, x, y);
    follow_lines(to, &g, stack);
    free(stack);
    return true;
}
