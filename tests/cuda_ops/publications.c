// Publications: conversion of an image to the format and the row length of memory that the host program shares
// (sumi_async_functions.publish). Checked byte for byte.
#include "at_once.h"
#include "cuda_ops/run.h"

enum { PUBLISHED_WIDTH = 77, PUBLISHED_HEIGHT = 5, PUBLISHED_ROW = PUBLISHED_WIDTH * 12 + 20, PUBLISHED_BEFORE = 9 };

static float published_float(const void* x, size_t at)
{
    return sumi_bf16_to_float(((const uint16_t*)x)[at]) * 0.5f + 0.5f;
}

// Writes row y of the image as it is expected. `x` is the content of the value: bytes or bfloat16, with 3 or 4 channels.
static void publish_row(sumi_format format, int channels, const void* x, int y, unsigned char* into)
{
    for (int p = 0; p < PUBLISHED_WIDTH; p++) {
        const size_t from = (size_t)channels * ((size_t)PUBLISHED_BEFORE + (size_t)y * PUBLISHED_WIDTH + (size_t)p);
        const uint8_t* bytes = (const uint8_t*)x + from;
        for (int k = 0; k < 3; k++) {
            if (format == SUMI_FORMAT_RGBA8) into[4 * p + k] = bytes[k];
            else if (format == SUMI_FORMAT_BGRA8) into[4 * p + k] = bytes[2 - k];
            else if (format == SUMI_FORMAT_RGB8) into[3 * p + k] = bytes[k];
            else if (format == SUMI_FORMAT_RGBA16F) {
                const uint16_t half = sumi_float_to_f16(published_float(x, from + (size_t)k));
                memcpy(into + 8 * p + 2 * k, &half, 2);
            } else {
                const float value = published_float(x, from + (size_t)k);
                memcpy(into + 12 * p + 4 * k, &value, 4);
            }
        }
        if (format == SUMI_FORMAT_RGBA8 || format == SUMI_FORMAT_BGRA8)
            into[4 * p + 3] = channels == 4 ? bytes[3] : 255;
        if (format == SUMI_FORMAT_RGBA16F) {
            const float alpha = channels == 4 ? published_float(x, from + 3) : 1.0f;
            const uint16_t half = sumi_float_to_f16(alpha < 0.0f ? 0.0f : alpha > 1.0f ? 1.0f : alpha);
            memcpy(into + 8 * p + 6, &half, 2);
        }
    }
}

// An image in x is published to `into`, whose rows are longer than those of the image. The bytes behind each row must
// not change. An op then copies `into` to `out`, which can be read.
static void check_publication(const machine* m, sumi_format format, int channels)
{
    enum { PIXELS = PUBLISHED_BEFORE + PUBLISHED_WIDTH * PUBLISHED_HEIGHT, BYTES = PUBLISHED_ROW * PUBLISHED_HEIGHT };
    static unsigned char s_x[PIXELS * 4 * 2], s_got[BYTES], s_want[BYTES];
    const sumi_element element =
        format == SUMI_FORMAT_RGB32F || format == SUMI_FORMAT_RGBA16F ? SUMI_ELEMENT_ACTIVATION : SUMI_ELEMENT_BYTE;
    case_data store = {.random = 0x9E3779B97F4A7C15u};
    sumi_plan plan;
    sumi_error error = {0};
    const sumi_rates rates = m->runner->functions->rates(m->runner);
    for (int i = 0; i < PIXELS * channels; i++) {
        const uint16_t half = sumi_float_to_bf16(random_normal(&store));
        if (element == SUMI_ELEMENT_BYTE) s_x[i] = (unsigned char)(random_bits(&store) >> 56);
        else memcpy(s_x + 2 * i, &half, 2);
    }
    memset(s_want, 0xA5, sizeof s_want);
    memset(s_got, 0, sizeof s_got);
    sumi_runner_begin_plan(m->runner, &plan, &g_run.heap);
    sumi_plan_section(&plan, SUMI_SECTION_TRANSFER, 1, 0);
    sumi_value from = sumi_plan_bound(&plan, "x", element, PIXELS, channels),
               into = sumi_plan_bound(&plan, "into", SUMI_ELEMENT_BYTE, PUBLISHED_HEIGHT, PUBLISHED_ROW),
               out = sumi_plan_bound(&plan, "out", SUMI_ELEMENT_BYTE, PUBLISHED_HEIGHT, PUBLISHED_ROW);
    sumi_plan_copy_rows(&plan, &(sumi_plan_copy_args){.x = into, .y = out, .rows = PUBLISHED_HEIGHT});
    sumi_result result = sumi_plan_finish(&plan, &error);
    if (result == SUMI_OK) result = plan_slice(&plan, &rates, 0, &error);
    if (result == SUMI_OK) result = plan_ready(m->runner, &plan, &error);
    if (result == SUMI_OK) {
        const sumi_publication picture = {.value = from,
                                          .first_pixel = PUBLISHED_BEFORE,
                                          .width = PUBLISHED_WIDTH,
                                          .height = PUBLISHED_HEIGHT,
                                          .format = format,
                                          .into = into,
                                          .row_bytes = PUBLISHED_ROW};
        m->runner->functions->start(m->runner, &plan);
        m->runner->functions->write(m->runner, &plan, from, 0, s_x, sumi_plan_info(&plan, from)->bytes);
        m->runner->functions->write(m->runner, &plan, into, 0, s_want, sizeof s_want);
        result = m->runner->async->publish(m->runner, &plan, &picture, &error);
    }
    if (result == SUMI_OK) result = plan_run_all(m->runner, &plan, NULL, &error);
    if (result == SUMI_OK) result = plan_read(m->runner, &plan, out, s_got, &error);
    for (int y = 0; y < PUBLISHED_HEIGHT; y++) publish_row(format, channels, s_x, y, s_want + y * PUBLISHED_ROW);
    CHECK_TEXT(error.text, "");
    CHECK(memcmp(s_got, s_want, sizeof s_want) == 0);
    plan_release(m->runner, &plan);
    sumi_plan_end(&plan);
}

void check_publications(void)
{
    static const sumi_format s_formats[] = {SUMI_FORMAT_RGBA8, SUMI_FORMAT_RGB8, SUMI_FORMAT_RGB32F, SUMI_FORMAT_BGRA8,
                                            SUMI_FORMAT_RGBA16F};
    for (int i = 0; i < g_run.machine_count; i++) {
        for (size_t f = 0; f < sizeof s_formats / sizeof *s_formats; f++) {
            for (int channels = 3; channels <= 4; channels++)
                check_publication(&g_run.machines[i], s_formats[f], channels);
        }
    }
}
