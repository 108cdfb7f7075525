// Prints the progress of a job to stderr: one line that is redrawn on a terminal; otherwise a plain line per stage and
// step, so that logs stay readable.
#ifndef PROGRESS_H
#define PROGRESS_H
#include <stdbool.h>
#include <sumi.h>

typedef struct cli_progress {
    bool quiet, terminal;
    bool reads_references; // the stage TEXT begins with reference images
    bool drawn;            // the last line of the terminal shows a bar
    sumi_stage stage;      // the stage in the last line or bar
    int32_t step;
    double last_draw; // time of the last redraw, as progress_clock() returns it
} cli_progress;

void progress_begin(cli_progress* progress, bool quiet);
void progress_show(cli_progress* progress, const sumi_job_status* status);
void progress_clear(cli_progress* progress); // removes the bar, so that another line can be printed
double progress_clock(void);                 // seconds, monotonic
const char* progress_stage_name(sumi_stage stage);
#endif
