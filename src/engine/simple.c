// The simple calls: each submits one job, waits for it and fetches it, for tools that may wait. They use only public
// functions, so they behave like these with either pump and beside other jobs.
#include "base/assert.h"
#include "base/result.h"
#include "jobs/log.h"
#include <string.h>

// Waits for the job. The result of the wait is not used: without a timeout a wait fails only with the job's own
// failure, which the fetch returns.
static void wait_for(sumi_engine* engine, sumi_job handle)
{
    const sumi_result result = sumi_job_wait(engine, handle, SUMI_FOREVER);
    SUMI_ASSERT(result == SUMI_OK);
    (void)result;
}

sumi_result sumi_open_model(sumi_engine* engine, const char* path, sumi_model** out_model)
{
    if (out_model != NULL) *out_model = NULL;
    if (engine == NULL) return SUMI_INVALID_ARGUMENT;
    if (out_model == NULL) {
        sumi_error error = {0};
        (void)sumi_fail(&error, SUMI_INVALID_ARGUMENT, "sumi_open_model: out_model is NULL");
        return sumi_log_failure(engine, &error);
    }
    sumi_model_desc desc = sumi_model_defaults();
    desc.path = path;
    sumi_job handle;
    SUMI_TRY(sumi_submit_model(engine, &desc, &handle));
    wait_for(engine, handle);
    return sumi_fetch_model(engine, handle, out_model);
}

sumi_result sumi_generate(sumi_engine* engine, sumi_model* model, const char* text, uint64_t seed,
                          sumi_image* out_image)
{
    if (out_image != NULL) memset(out_image, 0, sizeof *out_image);
    if (engine == NULL) return SUMI_INVALID_ARGUMENT;
    if (out_image == NULL) {
        sumi_error error = {0};
        (void)sumi_fail(&error, SUMI_INVALID_ARGUMENT, "sumi_generate: out_image is NULL");
        return sumi_log_failure(engine, &error);
    }
    const sumi_image_item item = {.text = text, .seed = seed};
    sumi_image_desc desc = sumi_image_defaults(model, SUMI_PRESET_MODEL);
    desc.items = &item;
    desc.item_count = 1;
    sumi_job handle;
    SUMI_TRY(sumi_submit_images(engine, &desc, &handle));
    wait_for(engine, handle);
    return sumi_fetch_images(engine, handle, out_image, 1);
}
