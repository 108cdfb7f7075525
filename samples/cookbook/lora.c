// An adapter: read once, used by any number of jobs, each with a scale of its own. The model itself is not changed.
#include "cookbook.h"

sumi_result recipe_lora(const recipe_host* host)
{
    // [excerpt lora]
    sumi_lora_desc ld = sumi_lora_defaults(host->model);
    ld.path = host->files[0]; // a safetensors file, or the folder of one
    sumi_job reading;
    sumi_lora* lora = NULL;
    sumi_result result = sumi_submit_lora(host->engine, &ld, &reading);
    if (result == SUMI_OK) sumi_job_wait(host->engine, reading, SUMI_FOREVER); // a game polls instead
    if (result == SUMI_OK) result = sumi_fetch_lora(host->engine, reading, &lora);
    if (result != SUMI_OK) return result; // SUMI_LORA_NO_MATCH: the adapter was made for another model

    const sumi_lora_use use = {.lora = lora, .scale = 1.0f};
    sumi_image_item item = {.text = host->prompt, .seed = 7};
    sumi_image_desc desc = sumi_image_defaults(host->model, SUMI_PRESET_MODEL);
    desc.items = &item;
    desc.item_count = 1;
    desc.loras = &use; // up to 16 of them add up
    desc.lora_count = 1;
    sumi_job job;
    result = sumi_submit_images(host->engine, &desc, &job);
    // [end]
    if (result == SUMI_OK) result = recipe_finish(host, host->engine, job);
    sumi_lora_release(lora);
    return result;
}
