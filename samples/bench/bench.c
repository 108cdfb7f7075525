// bench: how long the library's stages take on this machine, through the public header alone, as a host would see it.
//
//     bench --synthetic mid --size 512x512          a random checkpoint, written to a temporary folder and removed again
//     bench --model models/Z-Image-Turbo            a real one
//     bench --write DIR --synthetic mid             only writes the checkpoint
//     bench --model DIR --serve                     measures on demand, for compare_torch.py: a command per line of input, a line of JSON per answer
//
// text      one prompt job, from submit to done
// forward   one evaluation of the transformer: an image job of one step from sigma 1 to 0, with everything that precedes the step, less the decoding
// decode    the decoder and the conversion to pixels of that job
#include "synthetic.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sumi.h>
#include <time.h>
#include <unistd.h>

#define MAX_RUNS 64
#define MAX_PROMPT 4096

typedef struct bench {
    const char *model_path, *write_path;
    const char* prompt_path; // a saved prompt: the text encoder is not opened
    const synthetic_config* synthetic;
    int32_t width, height, tokens, runs, threads;
    uint64_t memory_budget;
    bool float32, serves, has_picture;
    sumi_engine* engine;
    sumi_model* model;
    sumi_prompt* prompt;
    char text[MAX_PROMPT];
    float *latents, *picture;
    size_t latent_count;
    double flops_text, flops_forward, flops_decode;
    char detail[512];
} bench;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

// The most memory this process ever had resident, mapped weights included. 0 where the system does not tell.
static double peak_megabytes(void)
{
    char line[256];
    double kilobytes = 0.0;
    FILE* file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, "VmHWM:", 6) == 0) kilobytes = strtod(line + 6, NULL);
    }
    if (file) fclose(file);
    return kilobytes * 1024e-6;
}

static void keep_log(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    (void)result;
    if (level == SUMI_LOG_ERROR) snprintf(((bench*)user_data)->detail, sizeof((bench*)user_data)->detail, "%s", text);
}

static bool check(const bench* b, sumi_result result, const char* doing)
{
    if (result == SUMI_OK) return true;
    fprintf(stderr, "bench: %s failed: %s\n  %s\n", doing, sumi_result_text(result), b->detail);
    return false;
}

static bool wait_for(bench* b, sumi_job job, const char* doing)
{
    sumi_job_wait(b->engine, job, SUMI_FOREVER);
    sumi_job_status status = sumi_job_poll(b->engine, job);
    if (status.message && status.message[0]) snprintf(b->detail, sizeof b->detail, "%s", status.message);
    return check(b, status.result, doing);
}

// ---- Opening ------------------------------------------------------------------------------------------------------------------------------

static bool open_model(bench* b)
{
    sumi_engine_desc ed = sumi_engine_defaults();
    ed.backend = SUMI_BACKEND_CPU;
    ed.cpu_thread_count = b->threads;
    ed.max_slice_us = 0; // whole ops
    ed.memory_budget_bytes = b->memory_budget;
    ed.log.write = keep_log;
    ed.log.user_data = b;
    if (!check(b, sumi_engine_create(&ed, &b->engine), "creating the engine")) return false;
    sumi_model_desc md = sumi_model_defaults();
    md.path = b->model_path;
    md.without_text_encoder = b->prompt_path != NULL;
    md.without_vae_encoder = true;
    sumi_job job;
    return check(b, sumi_submit_model(b->engine, &md, &job), "loading the model") && wait_for(b, job, "loading the model")
        && check(b, sumi_fetch_model(b->engine, job, &b->model), "loading the model");
}

static bool load_prompt(bench* b)
{
    FILE* file = fopen(b->prompt_path, "rb");
    long bytes = file && fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    void* data = bytes > 0 ? malloc((size_t)bytes) : NULL;
    bool read = data && fseek(file, 0, SEEK_SET) == 0 && fread(data, 1, (size_t)bytes, file) == (size_t)bytes;
    if (file) fclose(file);
    if (!read) fprintf(stderr, "bench: cannot read %s\n", b->prompt_path);
    bool done = read && check(b, sumi_prompt_load(b->model, data, (size_t)bytes, &b->prompt), "loading the prompt");
    free(data);
    return done;
}

// A text of `tokens` tokens with the synthetic tokenizer; about as many words otherwise.
static void make_text(bench* b)
{
    static const char words[] = "a red fox in the snow under old trees, ";
    int32_t count = b->tokens - SYNTHETIC_TEMPLATE_TOKENS;
    if (count < 1) count = 1;
    if (count > MAX_PROMPT - 1) count = MAX_PROMPT - 1;
    for (int32_t i = 0; i < count; i++) b->text[i] = words[(size_t)i % (sizeof words - 1)];
    b->text[count] = 0;
}

// ---- Measuring ----------------------------------------------------------------------------------------------------------------------------

static bool measure_text(bench* b, double* out_seconds)
{
    sumi_prompt_desc desc = sumi_prompt_defaults(b->model);
    desc.text = b->text;
    sumi_job job;
    double began = now();
    if (!check(b, sumi_submit_prompt(b->engine, &desc, &job), "encoding the prompt") || !wait_for(b, job, "encoding the prompt")) return false;
    *out_seconds = now() - began;
    sumi_prompt* prompt;
    if (!check(b, sumi_fetch_prompt(b->engine, job, &prompt), "encoding the prompt")) return false;
    sumi_prompt_release(b->prompt);
    b->prompt = prompt;
    return true;
}

static void sum_flops(bench* b, sumi_job job)
{
    sumi_profile_row rows[512];
    int32_t count = sumi_job_profile(b->engine, job, rows, 512);
    b->flops_text = b->flops_forward = b->flops_decode = 0.0;
    for (int32_t i = 0; i < count && i < 512; i++) {
        if (rows[i].stage == SUMI_STAGE_TEXT) b->flops_text += rows[i].flops;
        else if (rows[i].stage == SUMI_STAGE_DECODE) b->flops_decode += rows[i].flops;
        else if (rows[i].stage == SUMI_STAGE_DENOISE || rows[i].stage == SUMI_STAGE_PREPARE) b->flops_forward += rows[i].flops;
    }
}

static bool measure_image(bench* b, bool profile, double* out_forward, double* out_decode)
{
    static const float sigmas[] = {1.0f, 0.0f};
    sumi_image_item item = {.seed = 7};
    if (profile && !b->prompt_path) item.text = b->text; // text encoding is in the table then
    else item.prompt = b->prompt;
    sumi_target target = {.format = SUMI_FORMAT_RGB32F, .host_memory = b->picture};
    sumi_image_desc desc = sumi_image_defaults(b->model, SUMI_PRESET_MODEL);
    desc.items = &item;
    desc.item_count = 1;
    desc.width = b->width;
    desc.height = b->height;
    desc.step_count = 1;
    desc.sigmas = sigmas;
    desc.guidance = 0.0f;
    desc.targets = &target;
    desc.profile = profile;
    sumi_job job;
    double began = now();
    if (!check(b, sumi_submit_images(b->engine, &desc, &job), "making a picture") || !wait_for(b, job, "making a picture")) return false;
    double wall = now() - began;
    sumi_job_status status = sumi_job_poll(b->engine, job);
    *out_decode = (double)status.stage_seconds[SUMI_STAGE_DECODE] + (double)status.stage_seconds[SUMI_STAGE_TRANSFER];
    *out_forward = wall - *out_decode;
    if (profile) sum_flops(b, job);
    b->has_picture = true;
    sumi_image image;
    return check(b, sumi_job_latents(b->engine, job, 0, b->latents, b->latent_count), "reading the latents")
        && check(b, sumi_fetch_images(b->engine, job, &image, 1), "fetching the picture");
}

static int compare_doubles(const void* a, const void* b)
{
    double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

static void print_row(const char* name, double* seconds, int32_t count, double flops)
{
    qsort(seconds, (size_t)count, sizeof *seconds, compare_doubles);
    double median = count % 2 ? seconds[count / 2] : 0.5 * (seconds[count / 2 - 1] + seconds[count / 2]);
    printf("| %-22s | %10.1f | %10.1f | %8.2f | %8.1f |\n", name, 1e3 * median, 1e3 * seconds[0], 1e-9 * flops, 1e-9 * flops / median);
}

static bool print_table(bench* b)
{
    double text[MAX_RUNS], forward[MAX_RUNS], decode[MAX_RUNS], ignored[2];
    if (!measure_image(b, true, &ignored[0], &ignored[1])) return false; // warms up, and counts the work
    for (int32_t i = 0; i < b->runs; i++) {
        if (!measure_text(b, &text[i]) || !measure_image(b, false, &forward[i], &decode[i])) return false;
    }
    char names[3][32];
    snprintf(names[0], sizeof names[0], "text, %d tokens", sumi_prompt_get_info(b->prompt).token_count);
    snprintf(names[1], sizeof names[1], "forward, %dx%d", b->width, b->height);
    snprintf(names[2], sizeof names[2], "decode, %dx%d", b->width, b->height);
    sumi_engine_info info = sumi_engine_get_info(b->engine);
    printf("%s; median and best of %d\n\n", info.device, b->runs);
    printf("| %-22s | %10s | %10s | %8s | %8s |\n|------------------------|-----------:|-----------:|---------:|---------:|\n", "stage", "median ms", "best ms",
           "GFLOP", "GFLOP/s");
    print_row(names[0], text, b->runs, b->flops_text);
    print_row(names[1], forward, b->runs, b->flops_forward);
    print_row(names[2], decode, b->runs, b->flops_decode);
    printf("\nmemory: weights %.0f MB mapped, at most %.0f MB beside them, process at most %.0f MB resident\n",
           1e-6 * (double)sumi_model_get_info(b->model).weight_bytes, 1e-6 * (double)info.host_peak_bytes, peak_megabytes());
    return true;
}

// ---- Serving ------------------------------------------------------------------------------------------------------------------------------

// What was computed last: PATH holds tensors, PATH.prompt the prompt as a host would save it.
static bool save(bench* b, const char* path)
{
    char prompt_path[1200];
    sumi_prompt_info info = sumi_prompt_get_info(b->prompt);
    const synthetic_tensor tensors[] = {
        {"features", info.features, 2, {info.token_count, info.width}},
        {"latents", b->latents, 3, {sumi_model_get_info(b->model).latent_channels, b->height / 8, b->width / 8}},
        {"picture", b->picture, 3, {b->height, b->width, 3}},
    };
    if (!synthetic_save(path, tensors, b->has_picture ? 3 : 1)) return false;
    size_t bytes = sumi_prompt_save(b->prompt, NULL, 0);
    void* data = malloc(bytes + 1);
    if (data) sumi_prompt_save(b->prompt, data, bytes);
    snprintf(prompt_path, sizeof prompt_path, "%s.prompt", path);
    FILE* file = data ? fopen(prompt_path, "wb") : NULL;
    bool written = file && fwrite(data, 1, bytes, file) == bytes;
    if (file && fclose(file) != 0) written = false;
    free(data);
    return written;
}

static bool answer(bench* b, const char* line)
{
    double first, second;
    if (strcmp(line, "text") == 0) return measure_text(b, &first) && printf("{\"text\": %.9f}\n", first) > 0;
    if (strcmp(line, "image") == 0) return measure_image(b, false, &first, &second) && printf("{\"forward\": %.9f, \"decode\": %.9f}\n", first, second) > 0;
    if (strcmp(line, "flops") == 0)
        return measure_image(b, true, &first, &second)
            && printf("{\"text\": %.0f, \"forward\": %.0f, \"decode\": %.0f}\n", b->flops_text, b->flops_forward, b->flops_decode) > 0;
    if (strcmp(line, "memory") == 0)
        return printf("{\"peak_mb\": %.3f, \"allocator_mb\": %.3f}\n", peak_megabytes(), 1e-6 * (double)sumi_engine_get_info(b->engine).host_peak_bytes) > 0;
    if (strncmp(line, "save ", 5) == 0) return save(b, line + 5) && printf("{}\n") > 0;
    fprintf(stderr, "bench: no command \"%s\"; there are text, image, flops, memory, save PATH\n", line);
    return false;
}

static bool serve(bench* b)
{
    char line[1100];
    printf("{\"device\": \"%s\"}\n", sumi_engine_get_info(b->engine).device);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\r\n")] = 0;
        if (!answer(b, line)) return false;
        fflush(stdout);
    }
    return true;
}

// ---- Arguments ----------------------------------------------------------------------------------------------------------------------------

static int usage(void)
{
    fprintf(
        stderr,
        "usage: bench [--synthetic tiny|mid | --model PATH] [--size WxH] [--tokens N] [--runs N] [--threads N] [--memory-budget MB] [--float32] [--write DIR]\n"
        "             [--serve [--prompt-file FILE]]\n"
        "  --threads 0 is every core; --float32 writes synthetic weights as float32 instead of bfloat16; --write only writes the checkpoint\n");
    return 2;
}

static bool read_arguments(bench* b, int argc, char** argv)
{
    for (int i = 1; i < argc; i++) {
        const char* name = argv[i];
        if (strcmp(name, "--float32") == 0 || strcmp(name, "--serve") == 0) {
            if (name[2] == 'f') b->float32 = true;
            else b->serves = true;
            continue;
        }
        if (i + 1 >= argc) return false;
        const char* value = argv[++i];
        if (strcmp(name, "--synthetic") == 0) b->synthetic = strcmp(value, "tiny") == 0 ? &synthetic_tiny : strcmp(value, "mid") == 0 ? &synthetic_mid : NULL;
        else if (strcmp(name, "--model") == 0) b->model_path = value;
        else if (strcmp(name, "--write") == 0) b->write_path = value;
        else if (strcmp(name, "--prompt-file") == 0) b->prompt_path = value;
        else if (strcmp(name, "--size") == 0) {
            if (sscanf(value, "%dx%d", &b->width, &b->height) != 2) return false;
        } else if (strcmp(name, "--tokens") == 0) b->tokens = atoi(value);
        else if (strcmp(name, "--runs") == 0) b->runs = atoi(value);
        else if (strcmp(name, "--threads") == 0) b->threads = atoi(value);
        else if (strcmp(name, "--memory-budget") == 0) b->memory_budget = strtoull(value, NULL, 10) * 1000000u;
        else return false;
    }
    bool sizes = b->width >= 16 && b->height >= 16 && b->width <= 4096 && b->height <= 4096 && b->width % 16 == 0 && b->height % 16 == 0;
    return (b->synthetic || b->model_path) && sizes && b->runs >= 1 && b->runs <= MAX_RUNS && b->threads >= 0 && b->tokens > 0
        && (b->serves || !b->prompt_path);
}

static bool run(bench* b)
{
    b->latent_count = (size_t)16 * (size_t)(b->width / 8) * (size_t)(b->height / 8);
    b->latents = malloc(b->latent_count * sizeof(float));
    b->picture = malloc((size_t)b->width * (size_t)b->height * 3 * sizeof(float));
    if (!b->latents || !b->picture) return check(b, SUMI_OUT_OF_HOST_MEMORY, "starting");
    make_text(b);
    double ignored;
    if (!open_model(b) || !(b->prompt_path ? load_prompt(b) : measure_text(b, &ignored))) return false;
    return b->serves ? serve(b) : print_table(b);
}

int main(int argc, char** argv)
{
    static bench b = {.width = 512, .height = 512, .tokens = 128, .runs = 5};
    if (!read_arguments(&b, argc, argv)) return usage();
    char folder[256] = "";
    if (b.synthetic) {
        synthetic_config config = *b.synthetic;
        config.float32 = b.float32;
        if (!b.write_path) {
            const char* temporary = getenv("TMPDIR");
            snprintf(folder, sizeof folder, "%s/sumi-bench-%ld", temporary ? temporary : "/tmp", (long)getpid());
            b.model_path = folder;
        }
        bool written = synthetic_write(b.write_path ? b.write_path : folder, &config);
        if (!written && folder[0]) synthetic_remove(folder);
        if (!written || b.write_path) return written ? 0 : 1;
    }
    bool done = run(&b);
    sumi_engine_destroy(b.engine);
    if (folder[0]) synthetic_remove(folder);
    free(b.latents);
    free(b.picture);
    return done ? 0 : 1;
}
