// A control net: read once, used by any number of jobs, each with a picture that its image follows.
#include "cookbook.h"

static sumi_result read_net(const recipe_host* host, sumi_control** out_net)
{
    // [excerpt control_net]
    sumi_control_desc cd = sumi_control_defaults(host->model);
    cd.path = host->files[0]; // a safetensors file, or a diffusers folder
    sumi_job reading;
    sumi_result result = sumi_submit_control(host->engine, &cd, &reading);
    if (result == SUMI_OK) sumi_job_wait(host->engine, reading, SUMI_FOREVER); // a game polls instead
    if (result == SUMI_OK) result = sumi_fetch_control(host->engine, reading, out_net);
    // SUMI_NOT_SUPPORTED: the net was made for another family of models
    // [end]
    return result;
}

sumi_result recipe_control(const recipe_host* host)
{
    sumi_control* net = NULL;
    sumi_result result = read_net(host, &net);
    if (result != SUMI_OK) return result;
    const sumi_pixels pixels = host->pictures[1];
    // [excerpt control_use]
    const sumi_control_picture picture = {.picture = &pixels}; // white edges on black, depth with white near, a pose ..
    sumi_control_use use = sumi_control_use_defaults(net);     // the net's usual strength, in all steps
    use.pictures = &picture;
    use.picture_count = 1; // for all images of the job; or one for each

    sumi_image_item item = {.text = host->prompt, .seed = 7};
    sumi_image_desc desc = sumi_image_defaults(host->model, SUMI_PRESET_MODEL);
    desc.items = &item;
    desc.item_count = 1;
    desc.width = desc.height = 256; // of the picture's shape, which would be stretched
    desc.controls = &use;           // up to four nets add up
    desc.control_count = 1;
    sumi_job job;
    result = sumi_submit_images(host->engine, &desc, &job); // copies the picture
    // [end]
    if (result == SUMI_OK) result = recipe_finish(host, host->engine, job);
    if (result != SUMI_OK) {
        sumi_control_release(net);
        return result;
    }
    // [excerpt control]
    use.strength = 0.5f; // 0 is off, and costs nothing
    use.end = 0.7f;      // the layout is decided early: the last steps are the prompt's alone
    result = sumi_submit_images(host->engine, &desc, &job);
    // [end]
    if (result == SUMI_OK) result = recipe_finish(host, host->engine, job); // over the first picture
    sumi_control_release(net);
    return result;
}
