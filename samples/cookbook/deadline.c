// A picture that has to be there at a certain time: steps are left out as far as needed.
#include "cookbook.h"

sumi_result recipe_deadline(const recipe_host* host)
{
    sumi_image_item item = {.text = host->prompt, .seed = 7};
    sumi_image_desc desc = sumi_image_defaults(host->model, SUMI_PRESET_MODEL);
    desc.items = &item;
    desc.item_count = 1;
    sumi_job job;
    // [excerpt deadline]
    // A first job measures the speed of its size on this machine. Without it the deadline is kept too, with fewer steps.
    sumi_result result = sumi_submit_images(host->engine, &desc, &job);
    if (result == SUMI_OK) sumi_job_wait(host->engine, job, SUMI_FOREVER);
    sumi_job_discard(host->engine, job);

    desc.step_count = 50;   // as many as there is time for
    desc.deadline_ms = 400; // after the submission; at least 4 steps are run, whatever time it is
    if (result == SUMI_OK) result = sumi_submit_images(host->engine, &desc, &job);
    sumi_image image;
    if (result == SUMI_OK) sumi_job_wait(host->engine, job, SUMI_FOREVER);
    if (result == SUMI_OK) result = sumi_fetch_images(host->engine, job, &image, 1);
    if (result == SUMI_OK) printf("%d of 50 steps\n", image.step_count);
    // [end]
    if (result == SUMI_OK) {
        result = recipe_write(host, &image);
        sumi_images_release(host->engine, &image, 1);
    }
    return result;
}
