// A picture of many steps in less time: evaluations reuse most of an earlier one.
#include "cookbook.h"

sumi_result recipe_step_cache(const recipe_host* host)
{
    sumi_image_item item = {.text = host->prompt, .seed = 7};
    sumi_image_desc desc = sumi_image_defaults(host->model, SUMI_PRESET_MODEL);
    desc.items = &item;
    desc.item_count = 1;
    sumi_job job;
    // [excerpt step_cache]
    desc.step_count = 50;
    desc.step_cache_db = 40.0f; // as far as the image is predicted to keep so many dB; 45 can hardly be seen
    sumi_result result = sumi_submit_images(host->engine, &desc, &job);
    sumi_image image;
    if (result == SUMI_OK) sumi_job_wait(host->engine, job, SUMI_FOREVER);
    if (result == SUMI_OK) result = sumi_fetch_images(host->engine, job, &image, 1);
    if (result == SUMI_OK) {
        printf("%d of %d evaluations reused, ", image.reused_count, image.evaluation_count);
        printf("about %.0f dB kept\n", (double)image.predicted_db);
    }
    // [end]
    if (result == SUMI_OK) {
        result = recipe_write(host, &image);
        sumi_images_release(host->engine, &image, 1);
    }
    return result;
}
