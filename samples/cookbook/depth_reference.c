// A depth picture as a plain reference, for models without control nets.
#include "cookbook.h"

sumi_result recipe_depth_reference(const recipe_host* host)
{
    // [excerpt depth_reference]
    sumi_image_item item = {.text = host->prompt, .seed = 7}; // "a ruined tower, following the depth map of picture 1"
    sumi_image_desc desc = sumi_image_defaults(host->model, SUMI_PRESET_MODEL);
    desc.items = &item;
    desc.item_count = 1;
    desc.references = host->pictures; // the depth picture; near is white
    desc.reference_count = host->file_count;
    desc.width = desc.height = 256; // of the depth picture's shape
    sumi_job job;
    sumi_result result = sumi_submit_images(host->engine, &desc, &job);
    // [end]
    return result == SUMI_OK ? recipe_finish(host, host->engine, job) : result;
}
