// One evaluation of a denoiser in a golden case, by itself, in a batch and after others: what the cases of
// transformers share.
#ifndef GOLDEN_DENOISER_H
#define GOLDEN_DENOISER_H
#include "golden_support.h"
#include "golden_watch.h"

// How the case's evaluation is run. It is the last of the section's repetitions.
typedef struct denoiser_run denoiser_run;
struct denoiser_run {
    const void *model, *in; // of the module; the case's inputs
    // Runs the list of evaluations into `velocities`. False after reporting.
    bool (*run)(golden_case* c, denoiser_run* r);
    // Compares the velocity of evaluation `index` of the list with expect.out.
    void (*compare)(golden_case* c, const denoiser_run* r, int32_t index);
    const sumi_evaluation* list;
    int32_t list_count, item_count;
    const int32_t* prompt_rows; // the leading rows of the case's text that each prompt has
    int32_t prompt_count;
    int32_t least_rows; // that a prompt may have
    const float* times;
    int32_t time_count;
    const sumi_adapter_use* uses;
    int32_t use_count;
    bool whole; // with the rows that nothing reads
    watcher* w;
    sumi_value x, text, times_value, references[SUMI_MAX_REFERENCES];
    array velocities; // [list_count * channels, size]
};

// A plan_probe whose context is a denoiser_run: its watches.
void probe_denoiser(plan_run* run, const sumi_op* op, int32_t counter, bool before);
// The case's latents from value `x` on, [channels, size], and other pictures made of them for the other items.
void write_items(plan_run* run, const denoiser_run* r, const float* latents, int64_t channels, int64_t size);
// The case's evaluation among four others: other pictures, other prompts, its own twice.
void run_in_batch(golden_case* c, const denoiser_run* r, int32_t text_rows);
#endif
