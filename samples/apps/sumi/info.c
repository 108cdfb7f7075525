// sumi info: prints the backends and devices that this build can use on this machine; for a model, the inputs that it
// takes and the settings of its authors.
#include "commands.h"
#include "files.h"
#include "inside.h"
#include "json_out.h"
#include "needs.h"
#include "parameters.h"
#include "session.h"
#include <stdio.h>
#include <string.h>

static void keep_text(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    (void)result;
    if (level == SUMI_LOG_ERROR) snprintf(user_data, 512, "%s", text);
}

// An engine of this backend, or NULL and the reason in `detail`.
static sumi_engine* open_backend(sumi_backend backend, char detail[512])
{
    sumi_engine_desc desc = sumi_engine_defaults();
    desc.backend = backend;
    desc.cpu_thread_count = backend == SUMI_BACKEND_CPU ? 0 : 1;
    desc.log.write = keep_text;
    desc.log.user_data = detail;
    detail[0] = 0;
    sumi_engine* engine;
    const sumi_result result = sumi_engine_create(&desc, &engine);
    if (result == SUMI_OK) return engine;
    if (!detail[0]) snprintf(detail, 512, "%s", sumi_result_text(result));
    return NULL;
}

static void print_backend(sumi_backend backend, const char* name)
{
    char detail[512];
    sumi_engine* engine = open_backend(backend, detail);
    if (!engine) {
        printf("%-10s not available: %s\n", name, detail);
        return;
    }
    sumi_engine_info info = sumi_engine_get_info(engine);
    printf("%-10s %s", name, shown(info.device));
    if (info.compute_capability)
        printf(", compute capability %d.%d, driver %d", info.compute_capability / 10, info.compute_capability % 10,
               info.driver_version);
    if (info.device_bytes) printf(", %.1f GB", (double)info.device_bytes * 1e-9);
    printf("\n");
    if (info.device_bytes) {
        printf("%-10s %.1f MB of them are the driver's and other programs', which no --memory-budget counts\n", "",
               1e-6 * (double)info.uncounted_bytes);
    }
    sumi_engine_destroy(engine);
}

// Devices of which the library has machine code start at once; on others the driver compiles first.
static void print_machine_code(void)
{
#if defined(SUMI_HAS_CUDA)
    char text[128];
    sumi_cuda_machine_code(text, sizeof text);
    printf("%-10s machine code: %s\n", "", text[0] ? text : "none, the driver compiles all kernels");
#endif
}

static void print_processor(void)
{
    sumi_cpu_features features = sumi_cpu_detect();
    printf("%-10s %d logical processors,%s%s%s%s%s\n", "processor", sumi_cpu_count(),
           features.avx2_fma_f16c ? " AVX2 FMA F16C" : "", features.avx512 ? " AVX-512" : "",
           features.avx512_bf16 ? " BF16" : "", features.neon ? " NEON" : "",
           features.avx2_fma_f16c || features.avx512 || features.neon ? "" : " no vector units that sumi uses");
}

static void put_backend(json_out* out, sumi_backend backend, const char* name)
{
    char detail[512];
    sumi_engine* engine = open_backend(backend, detail);
    json_begin_object(out, name);
    json_bool(out, "is_available", engine != NULL);
    if (engine) {
        const sumi_engine_info info = sumi_engine_get_info(engine);
        json_text(out, "device", info.device);
        if (info.compute_capability) {
            json_integer(out, "compute_capability", info.compute_capability);
            json_integer(out, "driver_version", info.driver_version);
            json_unsigned(out, "device_bytes", info.device_bytes);
            json_unsigned(out, "uncounted_bytes", info.uncounted_bytes);
        }
        sumi_engine_destroy(engine);
    } else {
        json_text(out, "reason", detail);
    }
    json_end_object(out);
}

static void put_machine_code(json_out* out)
{
    char text[128];
    sumi_cuda_machine_code(text, sizeof text);
    json_begin_array(out, "machine_code");
    for (char* rest = text; *rest != 0;) {
        const size_t length = strcspn(rest, " ");
        const bool is_last = rest[length] == 0;
        rest[length] = 0;
        json_text(out, NULL, rest);
        rest += is_last ? length : length + 1;
    }
    json_end_array(out);
}

static void print_json(void)
{
    const sumi_cpu_features features = sumi_cpu_detect();
    json_out out = {.file = stdout};
    json_begin_object(&out, NULL);
    json_text(&out, "version", sumi_version());
    put_backend(&out, SUMI_BACKEND_CPU, "cpu");
    put_backend(&out, SUMI_BACKEND_CUDA, "cuda");
    put_machine_code(&out);
    json_begin_object(&out, "processor");
    json_integer(&out, "logical_processors", sumi_cpu_count());
    json_bool(&out, "avx2_fma_f16c", features.avx2_fma_f16c);
    json_bool(&out, "avx512", features.avx512);
    json_bool(&out, "avx512_bf16", features.avx512_bf16);
    json_bool(&out, "neon", features.neon);
    json_end_object(&out);
    json_end_object(&out);
}

// ---- A model --------------------------------------------------------------------------------------------------------

static void print_presets(sumi_model* model, const sumi_model_info* info)
{
    static const char* const s_names[] = {"model", "preview", "standard", "quality", "fast", "lean"};
    for (size_t i = 0; i < sizeof s_names / sizeof *s_names; i++) {
        const sumi_image_desc desc = sumi_image_defaults(model, (sumi_preset)i);
        char size[64] = "the references' size", guidance[48] = "no guidance";
        if (desc.width > 0) snprintf(size, sizeof size, "%dx%d", desc.width, desc.height);
        if (desc.guidance.scale != info->guidance_off)
            snprintf(guidance, sizeof guidance, desc.guidance.end < 1.0f ? "guidance %g up to %g" : "guidance %g",
                     (double)desc.guidance.scale, (double)desc.guidance.end);
        printf("  %-14s %-9s %s, %d steps, %s, %s", i == 0 ? "presets" : "", s_names[i], size, desc.step_count,
               guidance, parameters_solver_name(desc.solver));
        if (desc.shift > 0.0f) printf(", shift %g", (double)desc.shift);
        printf("\n");
    }
}

static void print_guidance(const sumi_model_info* info)
{
    static const char* const s_formulas[] = {"positive + G x (positive - negative)",
                                             "negative + G x (positive - negative)"};
    static const char* const s_rules[] = {"", "nothing (plain)", "shortened to a norm limit (norm-limit)",
                                          "each token as long as without guidance (norm-rescale)"};
    printf("  %-14s %s; off: %g; the authors' number: %g%s\n", "guidance", s_formulas[info->guidance_formula],
           (double)info->guidance_off, (double)info->guidance,
           info->ignores_guidance ? ", off; every other number is taken for it"
           : info->uses_guidance  ? ""
                                  : ", off");
    printf("  %-14s %s\n", "guidance rule", s_rules[info->guidance_rule]);
    printf("  %-14s \"%s\"\n", "negative text", shown(info->negative_text));
}

static void print_references(const sumi_model_info* info)
{
    printf("  %-14s ", "references");
    if (info->max_references == 0) printf("none");
    else if (info->min_references == info->max_references) printf("%d", info->max_references);
    else printf("%d to %d", info->min_references, info->max_references);
    const int32_t side = info->native_size / info->size_multiple * info->size_multiple;
    if (info->max_references > 0 && info->min_references == 0) printf("; without any the size is %dx%d", side, side);
    printf("\n");
}

// The control nets that this family takes, by the networks that `sumi inspect` tells.
static void print_controls(const sumi_model* model)
{
    const sumi_control_module* const* controls = model->network->recipe->controls;
    printf("  %-14s %s", "control nets", controls && model->info.has_vae_encoder ? "" : "none");
    for (int32_t i = 0; controls && model->info.has_vae_encoder && controls[i]; i++)
        printf("%s%s", i ? ", " : "", controls[i]->network);
    printf("\n");
}

static void print_model(sumi_model* model, const char* path)
{
    const sumi_model_info info = sumi_model_get_info(model);
    printf("%s\n  %-14s %s\n  %-14s %s\n", shown(path), "family", info.family, "variant",
           info.variant[0] ? info.variant : "the only one");
    printf("  %-14s %.1f MB in the files\n", "weights", 1e-6 * (double)info.weight_bytes);
    printf("  %-14s multiples of %d up to %d pixels a side; made for %d x %d", "sizes", info.size_multiple,
           info.max_size, info.native_size, info.native_size);
    for (int32_t i = 0; i < info.size_count; i++)
        printf("%s%dx%d", i == 0 ? "; its authors': " : ", ", info.sizes[i].width, info.sizes[i].height);
    printf("\n");
    print_presets(model, &info);
    print_guidance(&info);
    printf("  %-14s at most %d tokens\n", "prompts", info.max_prompt_tokens);
    print_references(&info);
    printf("  %-14s %s\n", "start pictures", info.has_vae_encoder ? "yes" : "no: the VAE has no encoder");
    printf("  %-14s %s\n", "alpha", info.has_alpha ? "made, and read of start pictures and references" : "none");
    print_controls(model);
}

// ---- What an image of a size takes ----------------------------------------------------------------------------------

static const char* const s_format_names[NEEDS_FORMATS] = {"bf16", "fp8", "int8", "int4", "as-stored"};

// One word or two for each card: whether it holds everything, and if not, how many GB are copied in every step.
static void print_card(const needs_of_limit* card)
{
    char text[32] = "no";
    if (card->fits && card->streamed_bytes == 0) snprintf(text, sizeof text, "fits");
    else if (card->fits && card->step_bytes == 0) snprintf(text, sizeof text, "text");
    else if (card->fits) snprintf(text, sizeof text, "%.1f/step", 1e-9 * (double)card->step_bytes);
    if (card->fits && card->tiles_vae) strcat(text, " t");
    printf(" %10s", text);
}

static void print_needs(const needs_job* job, const needs_row* rows)
{
    char references[48] = "";
    if (job->reference_count == 1) snprintf(references, sizeof references, ", one reference of this size");
    if (job->reference_count > 1)
        snprintf(references, sizeof references, ", %d references of this size", job->reference_count);
    printf("  %-14s computed, not measured: %dx%d, a prompt of %d tokens, %s guidance%s\n", "memory in GB", job->width,
           job->height, job->token_count[0], job->is_guided ? "with" : "without", references);
    printf("  %-14s %8s %8s ", "weights", "weights", "other");
    for (int32_t c = 0; c < NEEDS_CARDS; c++) printf(" %5d GB  ", needs_card_gigabytes[c]);
    printf("\n");
    for (int32_t f = 0; f < NEEDS_FORMATS; f++) {
        printf("  %-14s %8.2f %8.2f ", s_format_names[f], 1e-9 * (double)rows[f].whole.weight_bytes,
               1e-9 * (double)rows[f].whole.other_bytes);
        for (int32_t c = 0; c < NEEDS_CARDS; c++) print_card(&rows[f].cards[c]);
        printf("\n");
    }
    printf("  %-14s 1 GB of a card is left to the driver and other programs. text: what steps read stays on the card, "
           "the rest is copied once per image.\n"
           "  %-14s 3.1/step: so many GB are copied to the card in every step. t: the image is decoded in tiles. no: "
           "too little even so.\n"
           "  %-14s fp8 needs compute capability 8.9; text encoders are in bf16, and as stored with as-stored\n",
           "", "", "");
}

static void put_need(json_out* out, const needs_of_limit* need)
{
    json_bool(out, "fits", need->fits);
    json_unsigned(out, "weight_bytes", need->weight_bytes);
    json_unsigned(out, "other_bytes", need->other_bytes);
    json_unsigned(out, "streamed_bytes", need->streamed_bytes);
    json_unsigned(out, "streamed_step_bytes", need->step_bytes);
    json_bool(out, "tiles_vae", need->tiles_vae);
}

static void put_needs(json_out* out, const needs_job* job, const needs_row* rows)
{
    json_begin_object(out, "needs");
    json_bool(out, "is_measured", false);
    json_integer(out, "width", job->width);
    json_integer(out, "height", job->height);
    json_integer(out, "prompt_tokens", job->token_count[0]);
    json_integer(out, "references", job->reference_count);
    json_bool(out, "is_guided", job->is_guided);
    json_unsigned(out, "left_to_others_bytes", NEEDS_RESERVE_BYTES);
    json_begin_object(out, "weights");
    for (int32_t f = 0; f < NEEDS_FORMATS; f++) {
        json_begin_object(out, s_format_names[f]);
        json_begin_object(out, "whole");
        put_need(out, &rows[f].whole);
        json_end_object(out);
        json_begin_array(out, "cards");
        for (int32_t c = 0; c < NEEDS_CARDS; c++) {
            json_begin_object(out, NULL);
            json_unsigned(out, "card_bytes", (uint64_t)needs_card_gigabytes[c] << 30);
            put_need(out, &rows[f].cards[c]);
            json_end_object(out);
        }
        json_end_array(out);
        json_end_object(out);
    }
    json_end_object(out);
    json_end_object(out);
}

static void put_presets(json_out* out, sumi_model* model)
{
    static const char* const s_names[] = {"model", "preview", "standard", "quality", "fast", "lean"};
    json_begin_object(out, "presets");
    for (size_t i = 0; i < sizeof s_names / sizeof *s_names; i++) {
        const sumi_image_desc desc = sumi_image_defaults(model, (sumi_preset)i);
        json_begin_object(out, s_names[i]);
        json_integer(out, "width", desc.width); // 0: the references' size
        json_integer(out, "height", desc.height);
        json_integer(out, "steps", desc.step_count);
        json_number(out, "guidance", (double)desc.guidance.scale);
        json_number(out, "guidance_end", (double)desc.guidance.end);
        json_text(out, "solver", parameters_solver_name(desc.solver));
        json_number(out, "shift", (double)desc.shift); // 0: the schedule of the files
        json_end_object(out);
    }
    json_end_object(out);
}

static void print_model_json(sumi_model* model, const char* path, const needs_job* job, const needs_row* rows)
{
    static const char* const s_rules[] = {"model", "plain", "norm-limit", "norm-rescale"};
    const sumi_model_info info = sumi_model_get_info(model);
    json_out out = {.file = stdout};
    json_begin_object(&out, NULL);
    json_text(&out, "path", path);
    json_text(&out, "family", info.family);
    json_text(&out, "variant", info.variant);
    json_unsigned(&out, "weight_bytes", info.weight_bytes);
    json_integer(&out, "size_multiple", info.size_multiple);
    json_integer(&out, "max_size", info.max_size);
    json_integer(&out, "native_size", info.native_size);
    json_begin_array(&out, "sizes");
    for (int32_t i = 0; i < info.size_count; i++) {
        json_begin_object(&out, NULL);
        json_integer(&out, "width", info.sizes[i].width);
        json_integer(&out, "height", info.sizes[i].height);
        json_end_object(&out);
    }
    json_end_array(&out);
    put_presets(&out, model);
    json_number(&out, "guidance", (double)info.guidance);
    json_number(&out, "guidance_off", (double)info.guidance_off);
    json_bool(&out, "uses_guidance", info.uses_guidance);
    json_bool(&out, "ignores_guidance", info.ignores_guidance);
    json_text(&out, "guidance_rule", s_rules[info.guidance_rule]);
    json_text(&out, "negative_text", info.negative_text);
    json_integer(&out, "max_prompt_tokens", info.max_prompt_tokens);
    json_integer(&out, "min_references", info.min_references);
    json_integer(&out, "max_references", info.max_references);
    json_bool(&out, "takes_start_images", info.has_vae_encoder);
    json_bool(&out, "has_alpha", info.has_alpha);
    const sumi_control_module* const* controls = model->network->recipe->controls;
    json_begin_array(&out, "controls");
    for (int32_t i = 0; controls && info.has_vae_encoder && controls[i]; i++)
        json_text(&out, NULL, controls[i]->network);
    json_end_array(&out);
    if (job) put_needs(&out, job, rows);
    json_end_object(&out);
}

// The image whose memory is asked for.
typedef struct asked_image {
    int32_t size[2];         // 0 x 0: none
    int32_t reference_count; // USUAL: what needs_usual_job takes
} asked_image;
#define USUAL (-1)

// Computes what an image takes. Prints why it cannot.
static int compute_needs(const cli_command* command, const sumi_model* model, const asked_image* asked, needs_job* job,
                         needs_row* rows)
{
    const sumi_network_info* network = &model->info;
    const int32_t* size = asked->size;
    const int32_t multiple = network->size_multiple;
    if (size[0] % multiple || size[1] % multiple || size[0] > network->max_side || size[1] > network->max_side)
        return args_wrong(command, "--size %dx%d: this model makes multiples of %d up to %d", size[0], size[1],
                          multiple, network->max_side);
    sumi_heap heap;
    sumi_error error = {0};
    sumi_heap_init(&heap, NULL);
    *job = needs_usual_job(model->network, size[0], size[1]);
    if (asked->reference_count != USUAL && job->reference_count == 0 && asked->reference_count > 0)
        return args_wrong(command, "--references %d: this model takes none", asked->reference_count);
    if (asked->reference_count > network->max_references)
        return args_wrong(command, "--references %d: this model takes at most %d", asked->reference_count,
                          network->max_references);
    if (asked->reference_count != USUAL) job->reference_count = asked->reference_count;
    const sumi_result result = needs_compute(&heap, model->network, job, rows, &error);
    if (result == SUMI_OK) return EXIT_OK;
    fprintf(stderr, "sumi: computing the memory of %dx%d failed: %s\n", size[0], size[1],
            error.text[0] ? error.text : sumi_result_text(result));
    return EXIT_FAILED;
}

// Opens the model with the CPU backend, which copies no weights: only headers are read.
static int describe_model(const cli_command* command, session_args* args, const asked_image* asked, bool is_json)
{
    cli_session session = {0};
    args->backend = SUMI_BACKEND_CPU;
    args->thread_count = 1;
    args->quiet = true;
    int code = session_open(&session, args);
    if (code == EXIT_OK) code = session_load_model(&session, false, false);
    const char* path = args->model ? args->model : args->transformer;
    needs_job job;
    needs_row rows[NEEDS_FORMATS];
    const bool has_size = asked->size[0] > 0;
    if (code == EXIT_OK && has_size) code = compute_needs(command, session.model, asked, &job, rows);
    if (code == EXIT_OK && is_json) print_model_json(session.model, path, has_size ? &job : NULL, rows);
    else if (code == EXIT_OK) print_model(session.model, path);
    if (code == EXIT_OK && has_size && !is_json) print_needs(&job, rows);
    session_close(&session);
    return code;
}

int info_main(int argc, char** argv)
{
    session_args model = {0};
    asked_image asked = {.reference_count = USUAL};
    bool is_json = false;
    const cli_option options[] = {
        MODEL_OPTIONS(&model),
        {"--size", OPTION_SIZE, asked.size, "WxH",
         "with a model: also print what an image of this size takes of cards of 6 to 24 GB in each format of weights, "
         "computed without a GPU",
         0, 0},
        {"--references", OPTION_COUNT, &asked.reference_count, "N",
         "with --size: the image has so many references, as large as itself; one is the default of a model that takes "
         "any",
         0, SUMI_MAX_REFERENCES},
        {"--json", OPTION_FLAG, &is_json, NULL, "print JSON, for other programs", 0, 0},
    };
    const cli_command command = {
        .name = "info",
        .about = "Prints the backends of this build and what they run on, the processor, and how the program was "
                 "built. With a model it prints what that is instead: family and variant, sizes, presets, guidance, "
                 "its own negative text, how many references it takes; with --size also what an image takes of a "
                 "card's memory.",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .examples = "  sumi info\n  sumi info --model models/Qwen-Image-Edit-2511\n"
                    "  sumi info --model models/Z-Image-Turbo --size 1024x1024\n",
    };
    args_result parsed = args_parse(&command, argc, argv);
    if (parsed != ARGS_RUN) return parsed == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
    if (asked.reference_count != USUAL && asked.size[0] == 0)
        return args_wrong(&command, "--references is of an image: give --size WxH too");
    if (model.model || model.transformer) return describe_model(&command, &model, &asked, is_json);
    if (asked.size[0] > 0)
        return args_wrong(&command, "--size is of an image that a model makes: give --model PATH too");
    for (size_t i = 0; i < command.option_count; i++) {
        if (options[i].kind == OPTION_TEXT && *(const char**)options[i].value)
            return args_wrong(&command, "%s is a part of a model: give --model PATH too", options[i].name);
    }
    if (is_json) {
        print_json();
        return EXIT_OK;
    }
    printf("%-10s %s\n", "sumi", sumi_version());
    print_backend(SUMI_BACKEND_CPU, "cpu");
    print_backend(SUMI_BACKEND_CUDA, "cuda");
    print_machine_code();
    print_processor();
#if defined(NDEBUG)
    const char* kind = "release";
#else
    const char* kind = "checked";
#endif
#if defined(__clang__)
    printf("%-10s %s, %s\n", "build", kind, __VERSION__);
#else
    printf("%-10s %s, GCC %s\n", "build", kind, __VERSION__);
#endif
    return EXIT_OK;
}
