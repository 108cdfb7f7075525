// A part of a picture is painted anew, the rest stays.
#include "cookbook.h"

sumi_result recipe_inpainting(const recipe_host* host)
{
    const sumi_pixels start = host->pictures[0], mask = host->pictures[1];
    // [excerpt inpainting]
    sumi_image_item item = {.text = host->prompt, .seed = 7};
    sumi_image_desc desc = sumi_image_defaults(host->model, SUMI_PRESET_MODEL);
    desc.items = &item;
    desc.item_count = 1;
    desc.start.image = &start;
    desc.start.mask = &mask;    // white is painted anew, black stays; resized like the start image
    desc.start.strength = 1.0f; // the white part begins with pure noise
    sumi_job job;
    sumi_result result = sumi_submit_images(host->engine, &desc, &job);
    // [end]
    return result == SUMI_OK ? recipe_finish(host, host->engine, job) : result;
}
