// One recipe at a time; samples/README.md explains them.
//     cookbook RECIPE MODEL "a red house on the grass" out.png [what the recipe reads]
#include "cookbook.h"
#include "picture.h"
#include "system.h"
#include <string.h>

#define NO_PICTURES RECIPE_MAX_FILES

typedef struct recipe {
    const char* name;
    sumi_result (*run)(const recipe_host* host);
    bool makes_its_engine;
    int first_picture; // files from this one on are pictures; NO_PICTURES: none
    int min_files, max_files;
    const char* files;
} recipe;

static const recipe s_recipes[] = {
    {"image_to_image", recipe_image_to_image, false, 0, 1, 1, "START.png"},
    {"inpainting", recipe_inpainting, false, 0, 2, 2, "START.png MASK.png"},
    {"editing", recipe_editing, false, 0, 1, RECIPE_MAX_FILES, "PICTURE1.png [PICTURE2.png ...]"},
    {"lora", recipe_lora, false, NO_PICTURES, 1, 1, "ADAPTER.safetensors"},
    {"control", recipe_control, false, 1, 2, 2, "NET PICTURE.png"},
    {"depth_reference", recipe_depth_reference, false, 0, 1, 1, "DEPTH.png"},
    {"xml_prompt", recipe_xml_prompt, false, NO_PICTURES, 0, 0, ""},
    {"device_memory", recipe_device_memory, true, NO_PICTURES, 0, 0, ""},
    {"memory_budget", recipe_memory_budget, false, NO_PICTURES, 0, 0, ""},
    {"deadline", recipe_deadline, false, NO_PICTURES, 0, 0, ""},
    {"step_cache", recipe_step_cache, false, NO_PICTURES, 0, 0, ""},
    {"archive", recipe_archive, true, NO_PICTURES, 1, 1, "ARCHIVE.tar, with MODEL as a path in it"},
    {"services", recipe_services, true, NO_PICTURES, 0, 0, ""},
    {"by_name", recipe_by_name, true, NO_PICTURES, 1, 1, "LIBRARY, path/to/libsumi.so"},
};
#define RECIPE_COUNT (sizeof s_recipes / sizeof *s_recipes)

void recipe_log(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    (void)result, (void)user_data;
    if (level <= SUMI_LOG_WARNING) fprintf(stderr, "cookbook: %s\n", text);
}

sumi_result recipe_write(const recipe_host* host, const sumi_image* image)
{
    char message[PICTURE_MESSAGE_BYTES];
    if (picture_write(
            host->out_path,
            &(picture_source){image->pixels, image->width, image->height, (size_t)image->row_bytes, 4, host->prompt, 0},
            message))
        return SUMI_OK;
    fprintf(stderr, "cookbook: %s\n", message);
    return SUMI_FILE_READ_FAILED;
}

sumi_result recipe_finish(const recipe_host* host, sumi_engine* engine, sumi_job job)
{
    sumi_image image;
    sumi_job_wait(engine, job, SUMI_FOREVER);
    sumi_result result = sumi_fetch_images(engine, job, &image, 1);
    if (result == SUMI_OK) result = recipe_write(host, &image);
    sumi_images_release(engine, &image, 1);
    return result;
}

sumi_result recipe_draw(const recipe_host* host, sumi_engine* engine, sumi_model* model)
{
    sumi_image image;
    sumi_result result = sumi_generate(engine, model, host->prompt, 7, &image);
    if (result == SUMI_OK) result = recipe_write(host, &image);
    sumi_images_release(engine, &image, 1);
    return result;
}

static int print_usage(void)
{
    fprintf(stderr, "usage: cookbook RECIPE MODEL PROMPT out.png [FILES]\n\n");
    for (size_t i = 0; i < RECIPE_COUNT; i++) fprintf(stderr, "  %-15s %s\n", s_recipes[i].name, s_recipes[i].files);
    return 2;
}

static sumi_result open_and_run(const recipe* r, recipe_host* host)
{
    if (r->makes_its_engine) return r->run(host);
    sumi_engine_desc desc = sumi_engine_defaults();
    desc.cpu_thread_count = 0; // on the processor: every core
    desc.log.write = recipe_log;
    sumi_result result = sumi_engine_create(&desc, &host->engine);
    if (result == SUMI_OK) result = sumi_open_model(host->engine, host->model_path, &host->model);
    if (result == SUMI_OK) result = r->run(host);
    sumi_engine_destroy(host->engine);
    return result;
}

static bool read_pictures(const recipe* r, recipe_host* host, picture_file* pictures)
{
    char message[PICTURE_MESSAGE_BYTES];
    for (int i = r->first_picture; i < host->file_count; i++) {
        if (!picture_read(host->files[i], 0, &pictures[i], message))
            return fprintf(stderr, "cookbook: %s\n", message), false;
        host->pictures[i] = (sumi_pixels){.data = pictures[i].pixels,
                                          .width = pictures[i].width,
                                          .height = pictures[i].height,
                                          .channel_count = pictures[i].channel_count};
    }
    return true;
}

int main(int argc, char** argv)
{
    argv = system_begin(argc, argv);
    const recipe* r = NULL;
    for (size_t i = 0; i < RECIPE_COUNT && argc >= 5; i++)
        if (strcmp(argv[1], s_recipes[i].name) == 0) r = &s_recipes[i];
    if (!r || argc - 5 < r->min_files || argc - 5 > r->max_files) return print_usage();
    recipe_host host = {.model_path = argv[2], .prompt = argv[3], .out_path = argv[4], .file_count = argc - 5};
    for (int i = 0; i < host.file_count; i++) host.files[i] = argv[5 + i];
    picture_file pictures[RECIPE_MAX_FILES] = {0};
    const bool is_read = read_pictures(r, &host, pictures);
    const sumi_result result = is_read ? open_and_run(r, &host) : SUMI_FILE_READ_FAILED;
    for (int i = 0; i < RECIPE_MAX_FILES; i++) picture_free(&pictures[i]);
    if (is_read && result != SUMI_OK) fprintf(stderr, "cookbook: %s: %s\n", r->name, sumi_result_text(result));
    return result == SUMI_OK ? 0 : 1;
}
