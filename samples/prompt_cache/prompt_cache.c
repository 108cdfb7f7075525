// Prompts encoded once, at home, and shipped with the game: the player's machine needs no text encoder, which is a
// third of a checkpoint.
//     prompt_cache encode MODEL "a lighthouse at dusk, ink wash" lighthouse.prompt [f32|bf16|int8]
//     prompt_cache draw MODEL lighthouse.prompt out.png                             MODEL may lack text encoder and tokenizer
#include "picture.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sumi.h>

static sumi_result load_model(sumi_engine* engine, const char* path, bool without_text_encoder, sumi_model** out_model)
{
    sumi_model_desc desc = sumi_model_defaults();
    desc.path = path;
    desc.without_text_encoder = without_text_encoder;
    sumi_job job;
    const sumi_result result = sumi_submit_model(engine, &desc, &job);
    if (result != SUMI_OK) return result;
    sumi_job_wait(engine, job, SUMI_FOREVER);
    return sumi_fetch_model(engine, job, out_model);
}

// These return NULL, or a sentence that says what is wrong.
static const char* encode(sumi_engine* engine, sumi_model* model, const char* text, sumi_prompt_format format,
                          const char* path)
{
    // [excerpt prompt_save]
    sumi_prompt_desc desc = sumi_prompt_defaults(model);
    desc.text = text;
    sumi_job job;
    sumi_prompt* prompt;
    sumi_result result = sumi_submit_prompt(engine, &desc, &job);
    if (result == SUMI_OK) sumi_job_wait(engine, job, SUMI_FOREVER);
    if (result == SUMI_OK) result = sumi_fetch_prompt(engine, job, &prompt);
    if (result != SUMI_OK) return sumi_result_text(result);
    // a safetensors image: portable between machines and backends
    const size_t bytes = sumi_prompt_save_as(prompt, format, NULL, 0); // SUMI_PROMPT_BF16: half of SUMI_PROMPT_F32
    void* data = malloc(bytes);
    FILE* file = data ? fopen(path, "wb") : NULL;
    bool is_written = file && sumi_prompt_save_as(prompt, format, data, bytes) == bytes;
    if (is_written) is_written = fwrite(data, 1, bytes, file) == bytes;
    // [end]
    if (file) is_written = fclose(file) == 0 && is_written;
    free(data);
    if (!is_written) return "the file cannot be written";
    printf("%s: %zu bytes, %d tokens\n", path, bytes, (int)sumi_prompt_get_info(prompt).encoders[0].token_count);
    return NULL;
}

static const char* read_prompt(sumi_model* model, const char* path, sumi_prompt** out_prompt)
{
    FILE* file = fopen(path, "rb");
    if (!file) return "the prompt's file cannot be opened";
    void* data = NULL;
    long bytes = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    if (bytes > 0) data = malloc((size_t)bytes);
    const bool is_read = data && fseek(file, 0, SEEK_SET) == 0 && fread(data, 1, (size_t)bytes, file) == (size_t)bytes;
    fclose(file);
    const sumi_result result =
        is_read ? sumi_prompt_load(model, data, (size_t)bytes, out_prompt) : SUMI_FILE_READ_FAILED;
    free(data);
    return result == SUMI_OK ? NULL : sumi_result_text(result);
}

static const char* draw(sumi_engine* engine, sumi_model* model, const char* prompt_path, const char* path)
{
    static char s_message[PICTURE_MESSAGE_BYTES];
    sumi_prompt* prompt;
    const char* wrong = read_prompt(model, prompt_path, &prompt);
    if (wrong) return wrong;
    // [excerpt prompt_use]
    sumi_image_item item = {.prompt = prompt, .seed = 7}; // from sumi_prompt_load(), in the place of a text
    sumi_image_desc desc = sumi_image_defaults(model, SUMI_PRESET_MODEL);
    desc.items = &item;
    desc.item_count = 1;
    sumi_job job;
    sumi_image image;
    sumi_result result = sumi_submit_images(engine, &desc, &job);
    sumi_prompt_release(prompt); // the job keeps what it needs
    // [end]
    if (result == SUMI_OK) sumi_job_wait(engine, job, SUMI_FOREVER);
    if (result == SUMI_OK) result = sumi_fetch_images(engine, job, &image, 1);
    if (result != SUMI_OK) return sumi_result_text(result);
    return picture_write(
               path, &(picture_source){image.pixels, image.width, image.height, (size_t)image.row_bytes, 4, NULL, 0},
               s_message)
             ? NULL
             : s_message;
}

static bool read_format(const char* name, sumi_prompt_format* out_format)
{
    static const char* const s_names[] = {"f32", "bf16", "int8"}; // in the order of sumi_prompt_format
    for (int i = 0; i < 3; i++) {
        if (strcmp(name, s_names[i]) != 0) continue;
        *out_format = (sumi_prompt_format)i;
        return true;
    }
    return false;
}

int main(int argc, char** argv)
{
    sumi_prompt_format format = SUMI_PROMPT_F32;
    const bool encodes = (argc == 5 || (argc == 6 && read_format(argv[5], &format))) && strcmp(argv[1], "encode") == 0,
               draws = argc == 5 && strcmp(argv[1], "draw") == 0;
    if (!encodes && !draws) {
        fprintf(stderr, "usage: prompt_cache encode MODEL PROMPT FILE [f32|bf16|int8]\n"
                        "       prompt_cache draw MODEL FILE out.png\n");
        return 2;
    }
    sumi_engine_desc ed = sumi_engine_defaults();
    ed.cpu_thread_count = 0;
    sumi_engine* engine;
    sumi_model* model = NULL;
    sumi_result result = sumi_engine_create(&ed, &engine);
    if (result == SUMI_OK) result = load_model(engine, argv[2], draws, &model);
    const char* wrong = result != SUMI_OK ? sumi_result_text(result)
                      : encodes           ? encode(engine, model, argv[3], format, argv[4])
                                          : draw(engine, model, argv[3], argv[4]);
    if (wrong) fprintf(stderr, "prompt_cache: %s\n", wrong);
    sumi_engine_destroy(engine);
    return wrong ? 1 : 0;
}
