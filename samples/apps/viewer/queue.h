// Pictures that are to be made, one after the other: what Generate adds to while one is made.
#ifndef QUEUE_H
#define QUEUE_H
#include "generator.h"
#include <deque>

struct Viewer;

struct QueuedJob {
    uint64_t number;
    Settings settings; // of the first picture; the next ones have the next seeds
    int picture_count = 1, started_count = 0;
};

struct Queue {
    std::deque<QueuedJob> jobs; // the first one is being made
    uint64_t next_number = 1;
};

void add_to_queue(Viewer& viewer, const Settings& settings, int picture_count);
void remove_from_queue(Viewer& viewer, uint64_t number); // cancels it when it is being made
void clear_queue(Viewer& viewer);                        // of all that wait
void skip_running(Viewer& viewer);                       // no more pictures of the first one
void advance_queue(Viewer& viewer);                      // once per frame: starts the next picture
float draw_queue(Viewer& viewer, float side);            // at the left of the strip; returns the width
#endif
