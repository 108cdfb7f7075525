// How far a job is, on stderr: one line that redraws itself on a terminal, a plain line per stage and step elsewhere
// (logs stay readable).
#ifndef PROGRESS_H
#define PROGRESS_H
#include <stdbool.h>
#include <sumi.h>

typedef struct cli_progress {
    bool quiet, terminal;
    bool reads_references; // the stage TEXT begins with pictures
    bool drawn;            // a bar stands on the terminal's last line
    sumi_stage stage;      // of the last line or bar
    int32_t step;
    double last_draw; // when that was
} cli_progress;

void progress_begin(cli_progress* progress, bool quiet);
void progress_show(cli_progress* progress, const sumi_job_status* status);
void progress_clear(cli_progress* progress); // takes the bar away, so that another line can be printed
double progress_clock(void);                 // seconds, monotonic
const char* progress_stage_name(sumi_stage stage);
#endif
