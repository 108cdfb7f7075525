// Edits a picture by words with an edit model: one job at a time, submitted, polled and fetched.
//     edit MODEL cat.png "make the cat blue" out.png [ADAPTER for four steps, such as lora/turbo.safetensors]
#include "picture.h"
#include <stdio.h>
#include <sumi.h>

static void print_log(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    (void)result, (void)user_data;
    if (level <= SUMI_LOG_WARNING) fprintf(stderr, "edit: %s\n", text);
}

// A game makes one pass of this loop per frame, and draws the frame in between. A failure is told by the fetch.
static void finish(sumi_engine* engine, sumi_job job, const char* what)
{
    for (sumi_job_status status = {0}; status.state < SUMI_JOB_DONE;) {
        sumi_engine_update(engine, 4000); // about 4 ms of work
        status = sumi_job_poll(engine, job);
        printf("\r%s %3.0f %%", what, 100.0 * (double)status.progress);
    }
    printf("\n");
}

static sumi_result read_adapter(sumi_engine* engine, sumi_model* model, const char* path, sumi_lora** out_adapter)
{
    sumi_lora_desc desc = sumi_lora_defaults(model);
    desc.path = path;
    sumi_job job;
    const sumi_result result = sumi_submit_lora(engine, &desc, &job);
    if (result != SUMI_OK) return result;
    finish(engine, job, "adapter");
    return sumi_fetch_lora(engine, job, out_adapter);
}

static sumi_result edit(sumi_engine* engine, sumi_model* model, const sumi_pixels* picture, const char* words,
                        sumi_lora* adapter, sumi_image* out_image)
{
    const sumi_image_item item = {.text = words, .seed = 7};
    const sumi_lora_use use = {.lora = adapter, .scale = 1.0f};
    sumi_image_desc desc = sumi_image_defaults(model, adapter ? SUMI_PRESET_FAST : SUMI_PRESET_MODEL);
    desc.items = &item;
    desc.item_count = 1;
    desc.references = picture; // of any size; the edited picture's size follows from it
    desc.reference_count = 1;
    desc.loras = &use;
    desc.lora_count = adapter ? 1 : 0;
    sumi_job job;
    const sumi_result result = sumi_submit_images(engine, &desc, &job); // copies what the desc points to
    if (result != SUMI_OK) return result;
    finish(engine, job, "edit");
    return sumi_fetch_images(engine, job, out_image, 1);
}

int main(int argc, char** argv)
{
    if (argc != 5 && argc != 6) return fprintf(stderr, "usage: edit MODEL PICTURE WORDS out.png [ADAPTER]\n"), 2;
    char message[PICTURE_MESSAGE_BYTES] = "";
    picture_file file;
    if (!picture_read(argv[2], 0, &file, message)) return fprintf(stderr, "edit: %s\n", message), 1;
    const sumi_pixels picture = {file.pixels, file.width, file.height, 0, file.channel_count};
    sumi_engine_desc desc = sumi_engine_defaults();
    desc.cpu_thread_count = 0;  // on the CPU: every core
    desc.log.write = print_log; // says in sentences what went wrong
    sumi_engine* engine = NULL;
    sumi_model* model;
    sumi_lora* adapter = NULL; // none
    sumi_image image;
    const bool is_done =
        sumi_engine_create(&desc, &engine) == SUMI_OK && sumi_open_model(engine, argv[1], &model) == SUMI_OK
        && (argc == 5 || read_adapter(engine, model, argv[5], &adapter) == SUMI_OK)
        && edit(engine, model, &picture, argv[3], adapter, &image) == SUMI_OK
        && picture_write(
            argv[4], &(picture_source){image.pixels, image.width, image.height, (size_t)image.row_bytes, 4, argv[3], 0},
            message);
    if (message[0] != '\0') fprintf(stderr, "edit: %s\n", message);
    sumi_engine_destroy(engine); // takes the model, the adapter and the picture with it
    picture_free(&file);
    return is_done ? 0 : 1;
}
