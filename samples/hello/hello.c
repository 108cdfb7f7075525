// The smallest whole program: a model and a prompt in, a PNG out, with work done a few milliseconds at a time as a game
// would.
//     hello MODEL "a lighthouse at dusk, ink wash" out.png
#include "png.h"
#include <stdio.h>
#include <sumi.h>

static void print_log(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    (void)result, (void)user_data;
    if (level <= SUMI_LOG_WARNING) fprintf(stderr, "%s\n", text);
}

int main(int argc, char** argv)
{
    if (argc != 4) return fprintf(stderr, "usage: hello MODEL PROMPT out.png\n"), 2;
    sumi_engine_desc ed = sumi_engine_defaults();
    ed.log.write = print_log;
    sumi_engine* engine;
    if (sumi_engine_create(&ed, &engine) != SUMI_OK) return 1;

    sumi_model_desc md = sumi_model_defaults();
    md.path = argv[1];
    sumi_job load, job;
    sumi_model* model = NULL;
    sumi_result result = sumi_submit_model(engine, &md, &load);
    if (result == SUMI_OK) sumi_job_wait(engine, load, SUMI_FOREVER);
    if (result == SUMI_OK) result = sumi_fetch_model(engine, load, &model);

    sumi_image_item item = {.text = argv[2], .seed = 7};
    sumi_image_desc id = sumi_image_defaults(model, SUMI_PRESET_PREVIEW);
    id.items = &item;
    id.item_count = 1;
    if (result == SUMI_OK) result = sumi_submit_images(engine, &id, &job);
    while (result == SUMI_OK) { // the host's own frame loop
        sumi_engine_update(engine, 4000);
        sumi_job_status status = sumi_job_poll(engine, job);
        printf("\r%3.0f %%", 100.0 * (double)status.progress);
        if (status.state >= SUMI_JOB_DONE) break;
    }
    sumi_image image;
    if (result == SUMI_OK) result = sumi_fetch_images(engine, job, &image, 1);
    char message[PNG_MESSAGE_BYTES] = "";
    bool written =
        result == SUMI_OK
        && png_write(argv[3], image.pixels, image.width, image.height, (size_t)image.row_bytes, 4, argv[2], message);
    printf("\n");
    if (!written) fprintf(stderr, "%s\n", result == SUMI_OK ? message : sumi_result_text(result));
    sumi_engine_destroy(engine); // takes models, jobs and images with it
    return written ? 0 : 1;
}
