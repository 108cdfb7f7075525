// The smallest whole program: a model and a prompt in, a PNG out. It waits, as a tool may; frame_loop shows a game.
//     hello MODEL "a lighthouse at dusk, ink wash" out.png
#include "picture.h"
#include <stdio.h>
#include <sumi.h>

static void print_log(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    (void)result, (void)user_data;
    if (level <= SUMI_LOG_WARNING) fprintf(stderr, "%s\n", text);
}

int main(int argc, char** argv)
{
    if (argc != 4) return fprintf(stderr, "usage: hello MODEL PROMPT out.png\n"), 2;
    sumi_engine_desc desc = sumi_engine_defaults();
    desc.log.write = print_log; // says in sentences what went wrong
    desc.cpu_thread_count = 0;  // without a GPU: every core
    sumi_engine* engine;
    if (sumi_engine_create(&desc, &engine) != SUMI_OK) return 1;
    sumi_model* model;
    sumi_image image;
    char message[PICTURE_MESSAGE_BYTES] = "";
    bool is_done =
        sumi_open_model(engine, argv[1], &model) == SUMI_OK
        && sumi_generate(engine, model, argv[2], 7, &image) == SUMI_OK
        && picture_write(
            argv[3], &(picture_source){image.pixels, image.width, image.height, (size_t)image.row_bytes, 4, argv[2], 0},
            message);
    if (message[0] != '\0') fprintf(stderr, "%s\n", message);
    sumi_engine_destroy(engine); // takes the model and the picture with it
    return is_done ? 0 : 1;
}
