// What tests of pauses share: a picture that is paused after a number of updates, while another one is drawn.
#ifndef SUMI_PAUSE_FIXTURE_H
#define SUMI_PAUSE_FIXTURE_H
#include "engine_fixture.h"

static inline uint64_t hash_now(sumi_engine* engine, sumi_job job, const sumi_image_desc* desc)
{
    CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
    return fetch_hash(engine, job, desc);
}

typedef struct paused_drawing {
    sumi_engine* engine;
    const sumi_image_desc *desc, *other;
    uint64_t want, want_other; // hashes of both pictures
} paused_drawing;

// Draws the picture with a pause after so many updates, and another picture meanwhile. False: it was over before. Counts
// pauses behind a step, which a job goes on from.
static inline bool draw_with_pause(const paused_drawing* d, int updates, int* io_kept)
{
    sumi_engine* engine = d->engine;
    sumi_job job, beside;
    CHECK_NUMBER(sumi_submit_images(engine, d->desc, &job), SUMI_OK);
    for (int i = 0; i < updates; i++) sumi_engine_update(engine, 1);
    const sumi_job_status before = sumi_job_poll(engine, job);
    const bool is_running = before.state < SUMI_JOB_DONE;
    CHECK_NUMBER(sumi_job_pause(engine, job, true), is_running ? SUMI_OK : SUMI_WRONG_STATE);
    CHECK(sumi_job_poll(engine, job).paused == is_running);
    CHECK_NUMBER(sumi_submit_images(engine, d->other, &beside), SUMI_OK);
    CHECK(hash_now(engine, beside, d->other) == d->want_other);
    const sumi_job_status paused = sumi_job_poll(engine, job);
    CHECK(paused.progress >= before.progress && paused.step >= before.step);
    *io_kept += paused.state == SUMI_JOB_QUEUED && before.step > 0;
    if (paused.state == SUMI_JOB_QUEUED) CHECK(paused.paused && paused.stage == SUMI_STAGE_WAIT);
    else CHECK(paused.state == SUMI_JOB_DONE && !paused.paused); // it was at its end
    CHECK_NUMBER(sumi_job_pause(engine, job, false), paused.state == SUMI_JOB_QUEUED ? SUMI_OK : SUMI_WRONG_STATE);
    const bool is_same = hash_now(engine, job, d->desc) == d->want;
    if (!is_same) printf("  other bits after a pause behind %d updates\n", updates);
    CHECK(is_same);
    return is_running;
}
#endif
