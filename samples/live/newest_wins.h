// Which jobs are cancelled when a newer input has come. The newest input wins, and pictures keep coming however fast the
// input changes. This is all that decides it: it knows no clock and no engine.
#ifndef NEWEST_WINS_H
#define NEWEST_WINS_H
#include <stdbool.h>

// A job of an older input.
typedef struct older_job {
    bool has_begun;
    double spent;          // 0..1: the share of its work that would be lost
    bool another_gave_way; // a job that had begun was cancelled, and no picture has come since
} older_job;

#define NEWEST_WINS_MOST_LOST 0.25

// Whether the job is cancelled for the newer one; otherwise the newer one waits for it. Ask when the newer one is
// submitted, about every unfinished job.
bool newest_wins(const older_job* older);

// The share that would be lost: what is done, and of the rest what is in flight on a GPU, which runs in any case.
// seconds_left and in_flight_seconds are the engine's predictions; not above 0: not known, or nothing.
double newest_wins_spent(double progress, double seconds_left, double in_flight_seconds);
#endif
