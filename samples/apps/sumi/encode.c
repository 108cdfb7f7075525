// sumi encode: encodes a prompt to a small file, so that generating from it needs no text encoder (a game can ship such
// files), or an image to latents, from which an image job can start.
#include "commands.h"
#include "files.h"
#include "fit.h"
#include "lora_options.h"
#include "picture.h"
#include "prompt_lines.h"
#include "session.h"
#include <stdio.h>
#include <stdlib.h>

#define MAX_REFERENCES 10 // as many as any model takes

typedef struct encode_args {
    session_args session;
    const char *prompt, *image, *output;
    text_list references, loras;
    int32_t size[2], posterior, fit, format;
    uint64_t seed;
} encode_args;

static int check_args(const cli_command* command, const encode_args* args)
{
    if (!args->session.model && !args->session.transformer) return args_wrong(command, "give the model: --model PATH");
    if (!args->prompt == !args->image)
        return args_wrong(command, args->prompt ? "one at a time: --prompt or --image"
                                                : "say what to encode: --prompt TEXT or --image FILE");
    if (args->references.count > 0 && !args->prompt)
        return args_wrong(command, "--reference is what a prompt speaks of: give --prompt TEXT");
    if (args->references.count > MAX_REFERENCES)
        return args_wrong(command, "at most %d references at once", MAX_REFERENCES);
    if (args->loras.count > 0 && !args->prompt)
        return args_wrong(command, "--lora changes how a prompt is encoded: give --prompt TEXT");
    if (args->format >= 0 && !args->prompt)
        return args_wrong(command, "--format is how the features of a prompt are saved: give --prompt TEXT");
    if (!args->output || !args->output[0]) return args_wrong(command, "say where it goes: -o file.safetensors");
    return loras_check(command, &args->loras);
}

static int encode_prompt(cli_session* session, const encode_args* args, const picture_file* references)
{
    int code = session_load_model(session, false, true);
    static lora_list s_loras;
    if (code == EXIT_OK) code = loras_load(session, &args->loras, &s_loras);
    if (code != EXIT_OK) return code;
    sumi_prompt_desc desc = sumi_prompt_defaults(session->model);
    desc.loras = s_loras.uses;
    desc.lora_count = s_loras.count;
    desc.text = args->prompt;
    sumi_pixels pixels[MAX_REFERENCES];
    for (int32_t i = 0; i < args->references.count; i++) {
        pixels[i] = (sumi_pixels){.data = references[i].pixels,
                                  .width = references[i].width,
                                  .height = references[i].height,
                                  .channel_count = references[i].channel_count};
    }
    desc.references = args->references.count > 0 ? pixels : NULL;
    desc.reference_count = args->references.count;
    session->progress.reads_references = args->references.count > 0;
    sumi_job job;
    sumi_prompt* prompt;
    sumi_result result = sumi_submit_prompt(session->engine, &desc, &job);
    if (result != SUMI_OK) return session_fail(session, result, "encoding the prompt");
    code = session_run(session, job, "encoding the prompt", NULL, NULL);
    if (code != EXIT_OK) return code;
    result = sumi_fetch_prompt(session->engine, job, &prompt);
    if (result != SUMI_OK) return session_fail(session, result, "encoding the prompt");
    const sumi_prompt_format format = args->format < 0 ? SUMI_PROMPT_F32 : (sumi_prompt_format)args->format;
    size_t bytes = sumi_prompt_save_as(prompt, format, NULL, 0);
    void* data = malloc(bytes ? bytes : 1);
    if (!data) return session_fail(session, SUMI_OUT_OF_HOST_MEMORY, "saving the prompt");
    sumi_prompt_save_as(prompt, format, data, bytes);
    char message[FILES_MESSAGE_BYTES];
    bool written = file_write(args->output, data, bytes, message);
    free(data);
    sumi_prompt_info info = sumi_prompt_get_info(prompt);
    if (!written) fprintf(stderr, "sumi: %s\n", message);
    else if (!args->session.quiet)
        printf("%s  %d tokens, %zu bytes%s%s\n", shown(args->output), info.encoders[0].token_count, bytes,
               info.adapters[0] ? ", adapters " : "", info.adapters[0] ? shown(info.adapters) : "");
    if (args->loras.count > 0 && !info.adapters[0] && !args->session.quiet)
        fprintf(stderr, "sumi: the adapters do not change the prompt: none has layers of a text encoder in use\n");
    return written ? EXIT_OK : EXIT_FAILED;
}

static int encode_image(const cli_command* command, cli_session* session, const encode_args* args,
                        const picture_file* image)
{
    int code = session_load_model(session, true, false);
    if (code != EXIT_OK) return code;
    sumi_model_info info = sumi_model_get_info(session->model);
    int32_t multiple = info.size_multiple > 0 ? info.size_multiple : 16;
    const bool is_chosen = args->size[0] > 0;
    const sumi_size size =
        is_chosen ? (sumi_size){args->size[0], args->size[1]} : fit_size(image, multiple, info.max_size);
    if (size.width < multiple || size.height < multiple || size.width % multiple || size.height % multiple
        || size.width > info.max_size || size.height > info.max_size)
        return args_wrong(command, "%dx%d pixels: give a --size of multiples of %d up to %d", size.width, size.height,
                          multiple, info.max_size);
    const picture_part part = fit_part(image, size, (picture_fit)args->fit);
    if (!args->session.quiet) fit_tell(args->image, image, part, size, !is_chosen && fit_reduces(image, info.max_size));
    const sumi_pixels pixels = fit_pixels(image, part);
    sumi_encode_desc desc = sumi_encode_defaults(session->model);
    desc.image = &pixels;
    desc.width = size.width;
    desc.height = size.height;
    if (args->posterior >= 0) desc.posterior = (sumi_posterior)args->posterior;
    desc.seed = args->seed;
    sumi_job job;
    sumi_result result = sumi_submit_encode(session->engine, &desc, &job);
    if (result != SUMI_OK) return session_fail(session, result, "encoding the picture");
    code = session_run(session, job, "encoding the picture", NULL, NULL);
    if (code != EXIT_OK) return code;

    int64_t shape[3] = {info.latent_channels, desc.height / info.latent_factor, desc.width / info.latent_factor};
    size_t count = (size_t)(shape[0] * shape[1] * shape[2]);
    float* values = malloc(count * sizeof(float));
    if (!values) return session_fail(session, SUMI_OUT_OF_HOST_MEMORY, "reading the latents");
    char message[FILES_MESSAGE_BYTES];
    result = sumi_fetch_latents(session->engine, job, values, count);
    bool written = result == SUMI_OK && tensor_write(args->output, "latents", values, shape, 3, message);
    free(values);
    if (result != SUMI_OK) return session_fail(session, result, "encoding the picture");
    if (!written) fprintf(stderr, "sumi: %s\n", message);
    else if (!args->session.quiet)
        printf("%s  %d x %d x %d latents\n", shown(args->output), (int)shape[0], (int)shape[1], (int)shape[2]);
    return written ? EXIT_OK : EXIT_FAILED;
}

int encode_main(int argc, char** argv)
{
    encode_args args = {.posterior = -1, .format = -1};
    const cli_option options[] = {
        MODEL_OPTIONS(&args.session),
        {"--prompt", OPTION_TEXT, &args.prompt, "TEXT",
         "encode this prompt, for generate --encoded-prompt. @FILE: the text in that file; @@ stands for one @", 0, 0},
        {"--reference", OPTION_TEXTS, &args.references, "FILE",
         "for edit models: a picture file that the prompt speaks of; may be given several times, and is kept in the "
         "file",
         0, 0},
        {"--lora", OPTION_TEXTS, &args.loras, LORA_FORM, LORA_HELP, 0, 0},
        {"--format", OPTION_CHOICE, &args.format, "f32|bf16|int8",
         "how a prompt's features are saved: as they are, the default; in half the bytes, which changes no image of a "
         "GPU; or in about a quarter, with 3 times bf16's error",
         0, 0},
        {"--image", OPTION_TEXT, &args.image, "FILE", "encode this picture, for generate --latents", 0, 0},
        {"-o", OPTION_TEXT, &args.output, "FILE", "where it goes, a safetensors file", 0, 0},
        {"--size", OPTION_SIZE, args.size, "WxH", "resize the picture to this first", 0, 0},
        FIT_OPTION(&args.fit),
        {"--posterior", OPTION_CHOICE, &args.posterior, "sample|mode",
         "draw the latents or take their mean, the default", 0, 0},
        {"--seed", OPTION_SEED, &args.seed, "N", "of the drawing", 0, 0},
        ENGINE_OPTIONS(&args.session),
    };
    const cli_command command = {
        .name = "encode",
        .about = "Encodes a prompt or a picture once, to a file that sumi generate starts from.",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .examples =
            "  sumi encode --model models/Z-Image-Turbo --prompt \"a lighthouse at dusk\" -o lighthouse.safetensors\n"
            "  sumi generate --model models/Z-Image-Turbo --encoded-prompt lighthouse.safetensors -o lighthouse.png\n"
            "  sumi encode --model models/FLUX.2-klein-4B --prompt \"a fox\" --format bf16 -o fox.safetensors\n"
            "  sumi encode --model models/Z-Image-Turbo --prompt \"a fox\" --lora ink.safetensors:1:0.5 -o "
            "fox.safetensors\n"
            "  sumi encode --model models/Z-Image-Turbo --image lighthouse.png -o latents.safetensors\n",
    };
    args_result parsed = args_parse(&command, argc, argv);
    if (parsed != ARGS_RUN) return parsed == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
    int code = check_args(&command, &args);
    char* text = NULL;
    if (code == EXIT_OK && args.prompt) code = prompt_text_read(&command, "--prompt", &args.prompt, &text);
    if (code != EXIT_OK) return code;

    char message[FILES_MESSAGE_BYTES];
    picture_file image = {0}, references[MAX_REFERENCES] = {0};
    bool is_read =
        output_is_possible(args.output, message) && (!args.image || picture_read(args.image, 0, &image, message));
    for (int32_t i = 0; is_read && i < args.references.count; i++)
        is_read = picture_read(args.references.texts[i], 0, &references[i], message);
    cli_session session = {0};
    if (is_read) {
        code = session_open(&session, &args.session);
        if (code == EXIT_OK)
            code = args.prompt ? encode_prompt(&session, &args, references)
                               : encode_image(&command, &session, &args, &image);
        session_close(&session);
    } else {
        fprintf(stderr, "sumi: %s\n", message);
        code = EXIT_FAILED;
    }
    free(text);
    picture_free(&image);
    for (int32_t i = 0; i < MAX_REFERENCES; i++) picture_free(&references[i]);
    return code;
}
