// An edit model makes a picture out of pictures that the prompt speaks of.
#include "cookbook.h"

sumi_result recipe_editing(const recipe_host* host)
{
    // [excerpt editing]
    const sumi_model_info info = sumi_model_get_info(host->model);
    if (host->file_count < info.min_references || host->file_count > info.max_references) return SUMI_NOT_SUPPORTED;
    sumi_image_item item = {.text = host->prompt, .seed = 7}; // "the hat of picture 1 on the cat of picture 2"
    sumi_image_desc desc = sumi_image_defaults(host->model, SUMI_PRESET_FAST);
    desc.items = &item;
    desc.item_count = 1;
    desc.references = host->pictures; // any sizes; picture 1 comes first
    desc.reference_count = host->file_count;
    desc.width = desc.height = 256; // 0 x 0, the default: the size that follows from the references, or the native one
    sumi_job job;
    sumi_result result = sumi_submit_images(host->engine, &desc, &job);
    // [end]
    return result == SUMI_OK ? recipe_finish(host, host->engine, job) : result;
}
