// What the recipes have in common. Each is one file with one function; the parts between `[excerpt NAME]` and `[end]`
// are shown in samples/README.md, word for word.
#ifndef COOKBOOK_H
#define COOKBOOK_H
#include <stdio.h>
#include <sumi.h>

#define RECIPE_MAX_FILES 8

typedef struct recipe_host {
    sumi_engine* engine; // both NULL in recipes that make their own
    sumi_model* model;
    const char *model_path, *prompt, *out_path;
    const char* files[RECIPE_MAX_FILES];    // behind out.png on the command line
    sumi_pixels pictures[RECIPE_MAX_FILES]; // what is in them, of recipes that read pictures
    int32_t file_count;
} recipe_host;

// The end of a recipe: waits for the job, as a tool may, and writes its picture to out_path.
sumi_result recipe_finish(const recipe_host* host, sumi_engine* engine, sumi_job job);
// Writes a picture whose pixels lie in host memory.
sumi_result recipe_write(const recipe_host* host, const sumi_image* image);
// Draws the prompt with the preset of the model, and writes the picture.
sumi_result recipe_draw(const recipe_host* host, sumi_engine* engine, sumi_model* model);
// For sumi_log: warnings and errors to stderr.
void recipe_log(sumi_log_level level, sumi_result result, const char* text, void* user_data);

sumi_result recipe_image_to_image(const recipe_host* host);
sumi_result recipe_inpainting(const recipe_host* host);
sumi_result recipe_editing(const recipe_host* host);
sumi_result recipe_lora(const recipe_host* host);
sumi_result recipe_control(const recipe_host* host);
sumi_result recipe_depth_reference(const recipe_host* host);
sumi_result recipe_xml_prompt(const recipe_host* host);
sumi_result recipe_device_memory(const recipe_host* host);
sumi_result recipe_memory_budget(const recipe_host* host);
sumi_result recipe_deadline(const recipe_host* host);
sumi_result recipe_step_cache(const recipe_host* host);
sumi_result recipe_archive(const recipe_host* host);
sumi_result recipe_services(const recipe_host* host);
sumi_result recipe_by_name(const recipe_host* host);
#endif
