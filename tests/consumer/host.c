// What a host does with an installed library: one picture of a model, told by its size and a sum over its bytes.
// usage: host MODEL [cuda|open|small]      open: nothing but opening the model; small: a picture of 16 x 16 in one step
#include <stdio.h>
#include <string.h>
#include <sumi.h>

static void print_log(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    (void)result, (void)user_data;
    if (level <= SUMI_LOG_WARNING) fprintf(stderr, "host: %s\n", text);
}

static sumi_result draw_small(sumi_engine* engine, sumi_model* model, sumi_image* image)
{
    const sumi_image_item item = {.text = "a red house on the grass", .seed = 7};
    sumi_image_desc desc = sumi_image_defaults(model, SUMI_PRESET_MODEL);
    desc.width = desc.height = 16;
    desc.step_count = 1;
    desc.items = &item;
    desc.item_count = 1;
    sumi_job job;
    sumi_result result = sumi_submit_images(engine, &desc, &job);
    if (result == SUMI_OK) result = sumi_job_wait(engine, job, SUMI_FOREVER);
    if (result == SUMI_OK) result = sumi_fetch_images(engine, job, image, 1);
    return result;
}

int main(int count, char** arguments)
{
    const sumi_result version = sumi_check_version(SUMI_VERSION_NUMBER);
    if (version != SUMI_OK) {
        fprintf(stderr, "host: %s\n", sumi_result_text(version));
        return 1;
    }
    sumi_engine_desc desc = sumi_engine_defaults();
    desc.backend = count > 2 && strcmp(arguments[2], "cuda") == 0 ? SUMI_BACKEND_CUDA : SUMI_BACKEND_CPU;
    desc.log.write = print_log;
    sumi_engine* engine = NULL;
    sumi_model* model = NULL;
    sumi_image image;
    sumi_result result = sumi_engine_create(&desc, &engine);
    if (result == SUMI_OK) result = sumi_open_model(engine, count > 1 ? arguments[1] : "", &model);
    if (result == SUMI_OK && count > 2 && strcmp(arguments[2], "open") == 0) {
        printf("opened\n");
        sumi_engine_destroy(engine);
        return 0;
    }
    const bool is_small = count > 2 && strcmp(arguments[2], "small") == 0;
    if (result == SUMI_OK && is_small) result = draw_small(engine, model, &image);
    else if (result == SUMI_OK) result = sumi_generate(engine, model, "a red house on the grass", 7, &image);
    if (result == SUMI_OK) {
        unsigned long long sum = 14695981039346656037u; // FNV-1a
        for (size_t y = 0; y < (size_t)image.height; y++) {
            const unsigned char* row = (const unsigned char*)image.pixels + y * (size_t)image.row_bytes;
            for (size_t i = 0; i < (size_t)image.width * 4; i++) sum = (sum ^ row[i]) * 1099511628211u;
        }
        printf("%d x %d, %016llx\n", (int)image.width, (int)image.height, sum);
    } else {
        fprintf(stderr, "host: result %d\n", (int)result);
    }
    sumi_engine_destroy(engine);
    return result == SUMI_OK ? 0 : 1;
}
