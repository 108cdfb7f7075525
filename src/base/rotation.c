// One pass for each factor of the Kronecker power, like a radix-4 fast Fourier transform. With
// half = (a + b + c + d) / 2 the four rows of H give half - d, half - c, half - b and half - a.
#include "base/rotation.h"
#include "base/assert.h"

bool sumi_rotation_is_known(int64_t group) { return group == 4 || group == 16 || group == 64 || group == 256; }

// The first pass combines adjacent values. It is separate from the other passes because the vectoriser needs shuffles
// for it.
static void rotate_neighbours(float* values, size_t count)
{
    for (size_t i = 0; i < count; i += 4) {
        const float a = values[i], b = values[i + 1], c = values[i + 2], d = values[i + 3];
        const float half = 0.5f * ((a + b) + (c + d));
        values[i] = half - d;
        values[i + 1] = half - c;
        values[i + 2] = half - b;
        values[i + 3] = half - a;
    }
}

static void rotate_runs(float* restrict a, float* restrict b, float* restrict c, float* restrict d, size_t run)
{
    for (size_t i = 0; i < run; i++) {
        const float half = 0.5f * ((a[i] + b[i]) + (c[i] + d[i])), first = a[i], second = b[i];
        a[i] = half - d[i];
        b[i] = half - c[i];
        c[i] = half - second;
        d[i] = half - first;
    }
}

void sumi_rotate(float* values, size_t count, int32_t group)
{
    SUMI_ASSERT(sumi_rotation_is_known(group) && count % (size_t)group == 0);
    rotate_neighbours(values, count);
    for (size_t run = 4; run < (size_t)group; run *= 4) {
        for (float* at = values; at < values + count; at += 4 * run)
            rotate_runs(at, at + run, at + 2 * run, at + 3 * run, run);
    }
}
