#include "progress.h"
#include "system.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BAR_CELLS 24
#define DRAW_SECONDS 0.1 // between redraws of a terminal's line; over ssh each redraw is a packet
#define LINE_SECONDS 0.5 // between lines in a log, if the job has more than FEW_STEPS steps
#define FEW_STEPS 60     // up to this many steps, every step is logged

double progress_clock(void) { return 1e-9 * (double)system_clock_ns(); }

const char* progress_stage_name(sumi_stage stage)
{
    switch (stage) {
    case SUMI_STAGE_WAIT: return "wait";
    case SUMI_STAGE_LOAD: return "load";
    case SUMI_STAGE_PREPARE: return "prepare";
    case SUMI_STAGE_TEXT: return "text";
    case SUMI_STAGE_IMAGE: return "encode";
    case SUMI_STAGE_DENOISE: return "denoise";
    case SUMI_STAGE_DECODE: return "decode";
    case SUMI_STAGE_TRANSFER: return "transfer";
    case SUMI_STAGE_COMPILE: return "compile";
    }
    return "?";
}

void progress_begin(cli_progress* progress, bool quiet)
{
    *progress = (struct cli_progress){.quiet = quiet, .step = -1, .terminal = system_is_terminal(stderr)};
}

static void write_time_left(char* into, size_t capacity, float seconds)
{
    if (!(seconds >= 0.0f)) into[0] = 0;
    else if (seconds < 99.5f) snprintf(into, capacity, ", %.0f s left", (double)seconds);
    else if (seconds < 5940.0f) snprintf(into, capacity, ", %d min left", (int)lroundf(seconds / 60.0f));
    else snprintf(into, capacity, ", %.1f h left", (double)seconds / 3600.0);
}

static void write_stage(const cli_progress* progress, const sumi_job_status* status, char* into, size_t capacity)
{
    const bool sees = progress->reads_references && status->stage == SUMI_STAGE_TEXT;
    const char* name = sees ? "vision and text" : progress_stage_name(status->stage);
    if ((status->stage == SUMI_STAGE_DENOISE || status->stage == SUMI_STAGE_COMPILE) && status->step_count > 0)
        snprintf(into, capacity, "%s %d/%d", name, status->step, status->step_count);
    else snprintf(into, capacity, "%s", name);
}

static void draw_bar(cli_progress* progress, const sumi_job_status* status)
{
    double now = progress_clock();
    bool changed = status->stage != progress->stage;
    if (progress->drawn && !changed && now - progress->last_draw < DRAW_SECONDS) return;
    char stage[64], left[32], bar[BAR_CELLS + 1];
    write_stage(progress, status, stage, sizeof stage);
    write_time_left(left, sizeof left, status->seconds_left);
    int filled = (int)(status->progress * BAR_CELLS + 0.5f);
    for (int i = 0; i < BAR_CELLS; i++) bar[i] = i < filled ? '#' : '.';
    bar[BAR_CELLS] = 0;
    fprintf(stderr, "\r\033[K%-16s [%s] %3.0f %%%s", stage, bar, (double)(100.0f * status->progress), left);
    fflush(stderr);
    progress->drawn = true;
    progress->last_draw = now;
    progress->stage = status->stage;
}

static void print_line(cli_progress* progress, const sumi_job_status* status)
{
    double now = progress_clock();
    bool changed = status->stage != progress->stage
                || (status->step != progress->step
                    && (status->step_count <= FEW_STEPS || now - progress->last_draw >= LINE_SECONDS));
    if (!changed) return;
    progress->last_draw = now;
    progress->stage = status->stage;
    progress->step = status->step;
    char stage[64], left[32];
    write_stage(progress, status, stage, sizeof stage);
    write_time_left(left, sizeof left, status->seconds_left);
    fprintf(stderr, "%s, %.0f %%%s\n", stage, (double)(100.0f * status->progress), left);
}

void progress_show(cli_progress* progress, const sumi_job_status* status)
{
    if (progress->quiet || status->state != SUMI_JOB_RUNNING || status->stage == SUMI_STAGE_WAIT) return;
    if (progress->terminal) draw_bar(progress, status);
    else print_line(progress, status);
}

void progress_clear(cli_progress* progress)
{
    if (progress->drawn) {
        fprintf(stderr, "\r\033[K");
        fflush(stderr);
    }
    progress->drawn = false;
}
