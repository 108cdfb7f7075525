// One engine and the thread that gives it pictures of the queue. "lane" because engines work side by side.
#ifndef LANE_H
#define LANE_H
#include "lines.h"
#include "picture_queue.h"
#include <sumi.h>

#define LANE_JOBS 2 // one that runs, and one that the GPU begins without a gap

// What all lanes have in common.
typedef struct assignment {
    picture_queue queue;
    const char *model, *prompt, *out; // `prompt` where `prompts` has none; pictures are out/0000.png ..
    lines prompts;                    // are used again when there are more pictures
    sumi_weight_format weights;
    int32_t width, height, steps; // 0: the model's
    uint64_t seed;                // of picture 0; the next one has the next seed
    bool warms_up;                // lane_open draws a picture that is not counted
} assignment;

typedef struct lane {
    assignment* work;
    sumi_engine* engine;
    sumi_model* model;
    int32_t number, drawn, job_count;
    struct {
        sumi_job job;
        int32_t picture;
    } jobs[LANE_JOBS]; // the oldest first
    bool has_failed;
} lane;

// For pthread_create, with a lane whose engine is there; an engine has one of them at a time. What fails is printed, and
// the lane then draws no more.
void* lane_open(void* context); // opens the model
void* lane_draw(void* context); // draws until the queue has no unfinished picture
#endif
