// Many prompts, as fast as the machine can: batches of a few pictures, and always a job waiting behind the one that
// runs, so that the device never is without work.
//     batch MODEL prompts.txt FOLDER [pictures per job]       one prompt per line; FOLDER/0000.png, 0001.png, ...
#include "lines.h"
#include "picture.h"
#include "system.h"
#include <stdio.h>
#include <stdlib.h>
#include <sumi.h>

#define MAX_BATCH 16
#define JOBS 3 // one that runs, one that waits, one whose pictures are being written

typedef struct batch {
    sumi_job job;
    int first, count;
} batch;

static double now(void) { return 1e-9 * (double)system_clock_ns(); }

static sumi_result submit(sumi_engine* engine, sumi_model* model, const lines* prompts, batch* b)
{
    sumi_image_item items[MAX_BATCH];
    for (int i = 0; i < b->count; i++)
        items[i] = (sumi_image_item){.text = prompts->at[b->first + i], .seed = (uint64_t)(b->first + i)};
    sumi_image_desc desc = sumi_image_defaults(model, SUMI_PRESET_MODEL);
    desc.items = items; // copied
    desc.item_count = b->count;
    return sumi_submit_images(engine, &desc, &b->job);
}

static sumi_result finish(sumi_engine* engine, const batch* b, const char* folder)
{
    sumi_image images[MAX_BATCH];
    sumi_job_wait(engine, b->job, SUMI_FOREVER);
    const sumi_result result = sumi_fetch_images(engine, b->job, images, b->count);
    for (int i = 0; i < b->count && result == SUMI_OK; i++) {
        char path[1200], message[PICTURE_MESSAGE_BYTES];
        snprintf(path, sizeof path, "%s/%04d.png", folder, b->first + i);
        if (!picture_write(path,
                           &(picture_source){images[i].pixels, images[i].width, images[i].height,
                                             (size_t)images[i].row_bytes, 4, NULL, 0},
                           message))
            fprintf(stderr, "batch: %s\n", message);
    }
    if (result == SUMI_OK) sumi_images_release(engine, images, b->count);
    return result;
}

static sumi_result run(sumi_engine* engine, sumi_model* model, const lines* prompts, int per_job, const char* folder)
{
    batch jobs[JOBS]; // a ring
    int begun = 0, ended = 0, next_line = 0;
    sumi_result result = SUMI_OK;
    while (result == SUMI_OK && (next_line < prompts->count || ended < begun)) {
        if (next_line < prompts->count && begun - ended < JOBS) {
            batch* b = &jobs[begun++ % JOBS];
            *b = (batch){.first = next_line,
                         .count = prompts->count - next_line < per_job ? prompts->count - next_line : per_job};
            next_line += b->count;
            result = submit(engine, model, prompts, b);
        } else {
            result = finish(engine, &jobs[ended++ % JOBS], folder);
        }
    }
    return result;
}

int main(int argc, char** argv)
{
    if (argc != 4 && argc != 5)
        return fprintf(stderr, "usage: batch MODEL prompts.txt FOLDER [pictures per job, 1 to %d]\n", MAX_BATCH), 2;
    const int per_job = argc == 5 ? atoi(argv[4]) : 4;
    lines prompts = lines_read(argv[2]);
    if (prompts.count == 0 || per_job < 1 || per_job > MAX_BATCH) {
        lines_free(&prompts);
        return fprintf(stderr, "batch: %s holds no prompt, or more than %d pictures per job are asked for\n", argv[2],
                       MAX_BATCH),
               2;
    }

    sumi_engine_desc ed = sumi_engine_defaults();
    ed.pump = SUMI_PUMP_THREAD; // works on while this thread writes files
    ed.cpu_thread_count = 0;
    ed.max_slice_us = 0; // nobody draws frames here
    sumi_engine* engine;
    sumi_model* model = NULL;
    sumi_job load;
    sumi_model_desc md = sumi_model_defaults();
    md.path = argv[1];
    sumi_result result = sumi_engine_create(&ed, &engine);
    if (result == SUMI_OK) result = sumi_submit_model(engine, &md, &load);
    if (result == SUMI_OK) sumi_job_wait(engine, load, SUMI_FOREVER);
    if (result == SUMI_OK) result = sumi_fetch_model(engine, load, &model);
    const double begin = now();
    if (result == SUMI_OK) result = run(engine, model, &prompts, per_job, argv[3]);
    if (result == SUMI_OK)
        printf("%d pictures in %.2f s, %.2f a second\n", prompts.count, now() - begin, prompts.count / (now() - begin));
    else fprintf(stderr, "batch: %s\n", sumi_result_text(result));
    sumi_engine_destroy(engine);
    lines_free(&prompts);
    return result == SUMI_OK ? 0 : 1;
}
