#include "scale.h"
#include <algorithm>

static constexpr int FACTOR = 4, TAPS = 4;

// Weights of the four pixels around the middle of a new one; there are FACTOR kinds of places.
static void spline_weights(float (&weights)[FACTOR][TAPS], int (&first)[FACTOR])
{
    for (int i = 0; i < FACTOR; i++) {
        const float place = ((float)i + 0.5f) / (float)FACTOR - 0.5f; // from the old pixel's middle
        const int whole = place < 0.0f ? -1 : 0;
        const float t = place - (float)whole, s = 1.0f - t;
        first[i] = whole - 1;
        weights[i][0] = s * s * s / 6.0f;
        weights[i][1] = (4.0f - 6.0f * t * t + 3.0f * t * t * t) / 6.0f;
        weights[i][2] = (4.0f - 6.0f * s * s + 3.0f * s * s * s) / 6.0f;
        weights[i][3] = t * t * t / 6.0f;
    }
}

SharedPixels enlarged(const Pixels& from)
{
    const int width = from.width * FACTOR, height = from.height * FACTOR;
    float weights[FACTOR][TAPS];
    int first[FACTOR];
    spline_weights(weights, first);
    std::vector<float> wide((size_t)width * (size_t)from.height * 4); // widened, not yet heightened
    for (int y = 0; y < from.height; y++) {
        const uint8_t* row = &from.bytes[(size_t)y * (size_t)from.width * 4];
        float* to = &wide[(size_t)y * (size_t)width * 4];
        for (int x = 0; x < width; x++) {
            const int kind = x % FACTOR, begin = x / FACTOR + first[kind];
            for (int c = 0; c < 4; c++) {
                float sum = 0.0f;
                for (int k = 0; k < TAPS; k++)
                    sum += weights[kind][k] * (float)row[4 * std::clamp(begin + k, 0, from.width - 1) + c];
                to[4 * x + c] = sum;
            }
        }
    }
    auto result = std::make_shared<Pixels>();
    result->width = width;
    result->height = height;
    result->channel_count = 4;
    result->bytes.resize((size_t)width * (size_t)height * 4);
    for (int y = 0; y < height; y++) {
        const int kind = y % FACTOR, begin = y / FACTOR + first[kind];
        const float* rows[TAPS];
        for (int k = 0; k < TAPS; k++)
            rows[k] = &wide[(size_t)std::clamp(begin + k, 0, from.height - 1) * (size_t)width * 4];
        uint8_t* to = &result->bytes[(size_t)y * (size_t)width * 4];
        for (int i = 0; i < 4 * width; i++) {
            float sum = 0.5f;
            for (int k = 0; k < TAPS; k++) sum += weights[kind][k] * rows[k][i];
            to[i] = (uint8_t)sum;
        }
    }
    return result;
}

SharedPixels reduced(const Pixels& from, int side)
{
    const int longer = std::max(from.width, from.height);
    auto result = std::make_shared<Pixels>();
    result->channel_count = 4;
    result->has_alpha = from.has_alpha;
    result->width = longer <= side ? from.width : std::max(1, from.width * side / longer);
    result->height = longer <= side ? from.height : std::max(1, from.height * side / longer);
    result->bytes.resize((size_t)result->width * (size_t)result->height * 4);
    for (int y = 0; y < result->height; y++) {
        const int top = (int)((int64_t)y * from.height / result->height),
                  bottom = std::max(top + 1, (int)((int64_t)(y + 1) * from.height / result->height));
        for (int x = 0; x < result->width; x++) {
            const int left = (int)((int64_t)x * from.width / result->width),
                      right = std::max(left + 1, (int)((int64_t)(x + 1) * from.width / result->width));
            uint64_t sums[4] = {}, weights = 0;
            for (int v = top; v < bottom; v++) {
                for (int u = left; u < right; u++) {
                    const uint8_t* pixel =
                        &from.bytes[((size_t)v * (size_t)from.width + (size_t)u) * (size_t)from.channel_count];
                    const uint32_t weight = from.has_alpha ? pixel[3] : 1;
                    for (int c = 0; c < from.channel_count; c++) sums[c] += c < 3 ? weight * pixel[c] : pixel[c];
                    weights += weight;
                }
            }
            const uint64_t count = (uint64_t)((bottom - top) * (right - left)),
                           colours = std::max<uint64_t>(weights, 1);
            uint8_t* to = &result->bytes[((size_t)y * (size_t)result->width + (size_t)x) * 4];
            for (int c = 0; c < 3; c++) to[c] = (uint8_t)(sums[from.channel_count == 1 ? 0 : c] / colours);
            to[3] = from.channel_count < 4 ? 255 : (uint8_t)(sums[3] / count);
        }
    }
    return result;
}
