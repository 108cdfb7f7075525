// Draws image to image from inputs that change faster than pictures are drawn: one prompt, one seed, the newest input.
#ifndef PAINTER_H
#define PAINTER_H
#include "series.h"
#include "synthetic.h"

typedef struct painter_desc {
    const char *model, *prompt;
    synthetic_files* synthetic; // or NULL: `model` is in files
    sumi_backend backend;
    sumi_weight_format weights;
    sumi_attention_format attention;
    sumi_size size; // 0x0: 512x512, or the model's native size if it is smaller
    int32_t steps;  // of the whole schedule; 0: the model's
    double strength;
    uint64_t seed;
    // sumi's thread works, so that the device has work while this one reads and writes files; otherwise painter_turn
    bool has_thread;
} painter_desc;

typedef struct drawing {
    sumi_job job;
    double came, submitted; // seconds: when its input came, and when the job was submitted
    bool is_cancelled, had_begun;
} drawing;

#define PAINTER_DRAWINGS                                                                                               \
    8 // no more than six are ever unfinished: two that run on a GPU, one that waits, three cancelled

typedef struct painter {
    sumi_engine* engine;
    sumi_model* model;
    sumi_prompt *prompt, *negative;
    sumi_image_item item;
    sumi_image_desc desc;
    uint32_t budget_us;
    bool works_elsewhere; // on a GPU or on sumi's thread: a turn only looks

    drawing drawings[PAINTER_DRAWINGS]; // not finished yet, the oldest first
    int32_t drawing_count;
    bool one_gave_way; // a job that had begun, since the last picture
    sumi_image shown;  // the newest picture
    double shown_at;

    // submitted = finished + cancelled + failed
    int32_t submitted, finished, cancelled, cancelled_begun, failed;
    series from_submit, from_input, between; // ms
} painter;

// Opens the model and encodes the prompt. Returns false after printing a sentence. Call painter_close either way.
bool painter_open(painter* p, const painter_desc* desc);
void painter_close(painter* p);

// Draws white paper twice and forgets what was counted: the first picture makes plans and loads kernels. Returns how
// many ms the second one took, or 0 after printing a sentence.
double painter_warm_up(painter* p);

bool painter_can_submit(const painter* p);
// Submits a job for the newest input, which came at this time, and cancels older ones as newest_wins.h says. Returns
// false after printing a sentence.
bool painter_submit(painter* p, const sumi_pixels* pixels, double came);
// Works for a moment and takes the pictures that are done. Returns false after printing why a job failed.
bool painter_turn(painter* p);
// Cancels what is not finished and waits until it has ended.
bool painter_stop(painter* p);

double painter_now(void); // seconds, for `came`
#endif
