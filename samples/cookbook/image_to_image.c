// A picture that begins with another one: a sketch, a screenshot, the last picture.
#include "cookbook.h"

sumi_result recipe_image_to_image(const recipe_host* host)
{
    const sumi_pixels start = host->pictures[0];
    // [excerpt image_to_image]
    sumi_image_item item = {.text = host->prompt, .seed = 7};
    sumi_image_desc desc = sumi_image_defaults(host->model, SUMI_PRESET_MODEL);
    desc.items = &item;
    desc.item_count = 1;
    desc.start.image = &start;  // 8-bit grey, RGB or RGBA of any size; resized to desc.width x desc.height
    desc.start.strength = 0.6f; // near 0 the start stays as it is, at 1 nothing of it is left
    sumi_job job;
    sumi_result result = sumi_submit_images(host->engine, &desc, &job); // copies the start image
    // [end]
    return result == SUMI_OK ? recipe_finish(host, host->engine, job) : result;
}
