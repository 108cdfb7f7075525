// Row operations written with vector.h: activations, norms, rotary embedding, softmax. Included only by kernels_*.c.
#ifndef SUMI_CPU_BODY_ROWS_H
#define SUMI_CPU_BODY_ROWS_H
#include "cpu/kernels.h"
#include "cpu/vector.h"

// The two rare activations call the C library for each element. As everywhere in the CPU backend, they compute in
// double and round once: the double functions of different C libraries agree, their float functions do not.
static inline vec act_by_lane(sumi_activation activation, vec x)
{
    float lanes[SUMI_LANES];
    vec_store(lanes, x);
    for (int32_t i = 0; i < SUMI_LANES; i++) {
        lanes[i] = activation == SUMI_ACT_TANH
                     ? (float)tanh((double)lanes[i])
                     : 0.5f * lanes[i] * (1.0f + (float)erf((double)(lanes[i] * 0.70710678f)));
    }
    return vec_load(lanes);
}

static inline vec act(sumi_activation activation, vec x)
{
    switch (activation) {
    case SUMI_ACT_NONE: return x;
    case SUMI_ACT_SILU: return x * vec_sigmoid(x);
    case SUMI_ACT_QUICK_GELU: return x * vec_sigmoid(x * vec_all(1.702f));
    case SUMI_ACT_GELU_TANH: { // (1 + tanh u) / 2 = sigmoid(2 u)
        vec u = x * vec_fma(x * x, vec_all(0.044715f * 1.59576912f), vec_all(1.59576912f));
        return x * vec_sigmoid(u);
    }
    case SUMI_ACT_TANH:
    case SUMI_ACT_GELU_ERF: break;
    }
    return act_by_lane(activation, x);
}

// Runs the statement for whole vectors, then once for the remaining elements, for which LOAD and STORE access part of a
// vector. All elements get the same arithmetic.
#define FOR_VECTORS(count, statement)                                                                                  \
    do {                                                                                                               \
        int32_t i = 0;                                                                                                 \
        for (; i + SUMI_LANES <= (count); i += SUMI_LANES) {                                                           \
            enum { is_partial = 0, lane_count = 0 };                                                                   \
            statement;                                                                                                 \
        }                                                                                                              \
        if (i < (count)) {                                                                                             \
            enum { is_partial = 1 };                                                                                   \
            int32_t lane_count = (count)-i;                                                                            \
            statement;                                                                                                 \
        }                                                                                                              \
    } while (0)
#define LOAD(p) (is_partial ? vec_load_part((p) + i, lane_count) : vec_load((p) + i))
#define STORE(p, v) (is_partial ? vec_store_part((p) + i, v, lane_count) : vec_store((p) + i, v))

static void rows_activate(sumi_activation activation, float* y, const float* x, size_t count)
{
    for (size_t done = 0; done < count; done += 1u << 20) { // pieces, because a count may exceed int32_t
        int32_t piece = count - done < (1u << 20) ? (int32_t)(count - done) : 1 << 20;
        const float* from = x + done;
        float* to = y + done;
        FOR_VECTORS(piece, STORE(to, act(activation, LOAD(from))));
    }
}

static void rows_gated(sumi_activation activation, float* y, const float* x, const float* factor, size_t count)
{
    FOR_VECTORS((int32_t)count, STORE(y, act(activation, LOAD(x)) * LOAD(factor)));
}

static void rows_finish(const sumi_cpu_finish* finish, float* y, const float* c, const float* residual, int32_t count)
{
    const float *bias = finish->bias, *gate = finish->gate;
    vec scale = vec_all(finish->scale);
    if (finish->accumulates) {
        FOR_VECTORS(count, {
            vec factor = scale;
            if (gate != NULL) factor = factor * LOAD(gate);
            STORE(y, vec_fma(factor, LOAD(c), LOAD(y)));
        });
        return;
    }
    FOR_VECTORS(count, {
        vec v = LOAD(c);
        if (bias != NULL) v = v + LOAD(bias);
        v = act(finish->activation, v);
        if (gate != NULL) v = v * LOAD(gate);
        if (residual != NULL) v = v + LOAD(residual);
        STORE(y, v);
    });
}

// Four running sums hide the latency of the additions; they are added in a fixed order.
static float rows_sum(const float* x, int32_t count)
{
    vec sums[4] = {vec_all(0), vec_all(0), vec_all(0), vec_all(0)};
    int32_t at = 0;
    for (; at + 4 * SUMI_LANES <= count; at += 4 * SUMI_LANES) {
        for (int32_t u = 0; u < 4; u++) sums[u] = sums[u] + vec_load(x + at + u * SUMI_LANES);
    }
    const float* tail = x + at;
    FOR_VECTORS(count - at, sums[0] = sums[0] + LOAD(tail));
    return vec_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

static float rows_sum_squares(const float* x, float mean, int32_t count)
{
    vec sums[4] = {vec_all(0), vec_all(0), vec_all(0), vec_all(0)}, centre = vec_all(mean);
    int32_t at = 0;
    for (; at + 4 * SUMI_LANES <= count; at += 4 * SUMI_LANES) {
        for (int32_t u = 0; u < 4; u++) {
            vec d = vec_load(x + at + u * SUMI_LANES) - centre;
            sums[u] = vec_fma(d, d, sums[u]);
        }
    }
    const float* tail = x + at;
    float filled[SUMI_LANES]; // lanes past the end hold the mean, so that they add 0
    FOR_VECTORS(count - at, {
        vec v = LOAD(tail);
        if (is_partial) {
            vec_store(filled, centre);
            vec_store_part(filled, v, lane_count);
            v = vec_load(filled);
        }
        vec d = v - centre;
        sums[0] = vec_fma(d, d, sums[0]);
    });
    return vec_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

static void rows_normalise(float* y, const float* x, float mean, float factor, const float* w, const float* scale,
                           const float* shift, int32_t count)
{
    vec centre = vec_all(mean), f = vec_all(factor);
    FOR_VECTORS(count, {
        vec v = (LOAD(x) - centre) * f;
        if (w != NULL) v = v * LOAD(w);
        if (scale != NULL) v = v * LOAD(scale);
        if (shift != NULL) v = v + LOAD(shift);
        STORE(y, v);
    });
}

static void rows_gate_add(float* y, const float* x, const float* b, float factor, const float* w, const float* gate,
                          int32_t count)
{
    vec f = vec_all(factor);
    FOR_VECTORS(count, {
        vec v = LOAD(b) * f;
        if (w != NULL) v = v * LOAD(w);
        if (gate != NULL) v = v * LOAD(gate);
        STORE(y, LOAD(x) + v);
    });
}

static void rows_rotate(float* x, const float* cos_sin, int32_t pairs, sumi_rotary rotary)
{
    int32_t step = rotary == SUMI_ROTARY_INTERLEAVED ? 2 : 1,
            pair_offset = rotary == SUMI_ROTARY_INTERLEAVED ? 1 : pairs;
    for (int32_t k = 0; k < pairs; k++) {
        float a = x[k * step], b = x[k * step + pair_offset], c = cos_sin[2 * k], s = cos_sin[2 * k + 1];
        x[k * step] = a * c - b * s;
        x[k * step + pair_offset] = b * c + a * s;
    }
}

static void rows_channel_sums(float* sums, const float* x, const float* mean, int32_t count)
{
    if (mean == NULL) {
        FOR_VECTORS(count, STORE(sums, LOAD(sums) + LOAD(x)));
        return;
    }
    FOR_VECTORS(count, {
        vec d = LOAD(x) - LOAD(mean);
        STORE(sums, vec_fma(d, d, LOAD(sums)));
    });
}

static void rows_channel_norm(float* y, const float* x, const float* mean, const float* factor, const float* bias,
                              bool silu, int32_t count)
{
    FOR_VECTORS(count, {
        vec v = vec_fma(LOAD(x) - LOAD(mean), LOAD(factor), LOAD(bias));
        STORE(y, silu ? act(SUMI_ACT_SILU, v) : v);
    });
}

static float rows_softmax(float* s, int32_t count, float* max, float* sum)
{
    vec largest = vec_all(-INFINITY);
    int32_t at = 0;
    for (; at + SUMI_LANES <= count; at += SUMI_LANES) largest = vec_max(vec_load(s + at), largest);
    float top = vec_largest(largest);
    for (; at < count; at++) top = s[at] > top ? s[at] : top;
    top = top > *max ? top : *max;
    if (top == -INFINITY) { // every key so far is masked and adds nothing, or its score is NaN, which maxima skip
        for (int32_t i = 0; i < count; i++) *sum = isnan(s[i]) ? NAN : *sum;
        memset(s, 0, (size_t)count * sizeof *s);
        return 1.0f;
    }
    vec shift = vec_all(top), total = vec_all(0.0f);
    FOR_VECTORS(count, {
        vec e = vec_exp(LOAD(s) - shift);
        if (is_partial) {
            float lanes[SUMI_LANES] = {0};
            vec_store_part(lanes, e, lane_count);
            e = vec_load(lanes);
        }
        total = total + e;
        STORE(s, e);
    });
    float older = (float)exp((double)(*max - top));
    *sum = *sum * older + vec_sum(total);
    *max = top;
    return older;
}

static void rows_scale(float* y, const float* x, float factor, int32_t count)
{
    vec f = vec_all(factor);
    FOR_VECTORS(count, STORE(y, LOAD(x) * f));
}
#endif
