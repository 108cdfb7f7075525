// The clock, calibrating, and the host that renders nothing.
#include "host.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void sleep_until(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)floor(seconds)};
    t.tv_nsec = (long)((seconds - floor(seconds)) * 1e9);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) continue;
}

// ---- Calibrating ----------------------------------------------------------------------------------------------------

static double frame_seconds(host* h, double for_seconds)
{
    const double begin = seconds_now();
    int32_t count = 0, slot = 0;
    for (int32_t i = 0; i < FRAMES_IN_FLIGHT; i++) h->submit(h, i);
    while (count < 4 || seconds_now() - begin < for_seconds) {
        while (!h->finished(h, slot)) sleep_until(seconds_now() + 20e-6);
        h->submit(h, slot);
        slot = (slot + 1) % FRAMES_IN_FLIGHT;
        count++;
    }
    const double seconds = (seconds_now() - begin) / count;
    for (int32_t i = 0; i < FRAMES_IN_FLIGHT; i++) {
        while (!h->finished(h, i)) sleep_until(seconds_now() + 20e-6);
    }
    return seconds;
}

double host_calibrate(host* h, double load_ms)
{
    if (h->counts_ms) return h->work = load_ms;
    double ms = 1e3 * frame_seconds(h, 0.3); // wakes the GPU up: its clock rises with the load
    for (int32_t i = 0; i < 4; i++) {
        ms = 1e3 * frame_seconds(h, 0.2);
        h->work *= load_ms / ms;
    }
    return 1e3 * frame_seconds(h, 0.2);
}

// ---- No renderer ----------------------------------------------------------------------------------------------------

typedef struct none_host {
    host base;
    double end[FRAMES_IN_FLIGHT], last_end;
} none_host;

static void none_submit(host* h, int32_t slot)
{
    none_host* n = (none_host*)h;
    const double now = seconds_now();
    n->last_end = (n->last_end > now ? n->last_end : now) + 1e-3 * h->work;
    n->end[slot] = n->last_end;
}

static bool none_finished(host* h, int32_t slot) { return seconds_now() >= ((none_host*)h)->end[slot]; }

static void none_destroy(host* h) { free(h); }

host* host_open_none(char why[256])
{
    none_host* n = calloc(1, sizeof *n);
    if (n == NULL) {
        snprintf(why, 256, "no memory");
        return NULL;
    }
    n->base = (host){.device = "no renderer: frames end by the clock",
                     .work = 10.0,
                     .counts_ms = true,
                     .submit = none_submit,
                     .finished = none_finished,
                     .destroy = none_destroy};
    return &n->base;
}
