// bench: how long the library's stages take on this machine, through the public header alone, as a host would see it.
//
//     bench --synthetic mid --size 512x512          a random checkpoint that lies in no file
//     bench --synthetic z-image --backend cuda --report --sizes 1024,768,512     the released sizes, 20 GB that take 64 MB of the host's memory; sustained rates
//     bench --synthetic qwen-image --backend cuda --report --sizes 1024,1328 --steps 4     57 GB of weights, in 64 MB too
//     bench --synthetic newbie --backend cuda --report --sizes 1024 --steps 4 --guided-steps 28     16 GB, two text encoders
//     bench --synthetic qwen-image --references 1 --backend cuda --report --sizes 1024     an edit model, with a picture
//     bench --synthetic klein --backend cuda --report --sizes 1024,768,512     FLUX.2 [klein]: 14 GB in use, 4 steps
//     bench --synthetic klein --references 1 --backend cuda --report --sizes 1024     with a picture to refer to
//     bench --synthetic klein-9b-kv --references 1 --backend cuda --report --sizes 1024     keeps it; klein-9b does not
//     bench --synthetic qwen-image-21 --backend cuda --report --sizes 1024 --tokens 64     Qwen-Image-2.1: 30 GB, 40 steps
//     bench --synthetic z-image --control z-fun-1.0,z-fun-2.1 --backend cuda --report --sizes 1024     control nets
//     bench --synthetic z-image --stored q4_k --weights as-stored --backend cuda --report     as a GGUF file has it
//     bench --model models/Z-Image-Turbo            a real one
//     bench --write DIR --synthetic mid             only writes the checkpoint
//     bench --model DIR --synthetic mid --report    one that was written so
//     bench --model DIR --serve                     measures on demand, for compare_torch.py: a command per line of input, a line of JSON per answer
//
// text      one prompt job, from submit to done
// forward   one evaluation of the transformer: an image job of one step from sigma 1 to 0, with everything that
//           precedes the step, less the decoding
// decode    the decoder and the conversion to pixels of that job
//
// The report runs jobs back to back for some seconds, for a GPU that is cold does more than its power limit lets it
// sustain: "first" is the median of the first jobs, "sustained" that of the second half. Its "forward" is the work time
// of the DENOISE stage per evaluation (on a GPU: by the device's own clock), "picture" the wall time of a job from
// submit to fetch. "spread of steps" is what the 99th of 100 steps takes beyond the median one. A prompt's "wall" is from
// submit to done, "first" there the time of the first prompt of that length, for which a plan is made; "from its saved
// form" is sumi_prompt_load of what sumi_prompt_save gave.
//
// Every prompt of FLUX.2 [klein] has 512 rows; --tokens says how many of them are tokens, the others are padding. Its
// report also has the picture with its text, and under a memory budget a job whose prompt is stored: what is streamed
// for that one belongs to the transformer or the VAE.
//
// Text and references of Qwen-Image-2.1 are a prefix that is computed once for all steps: "forward" is the rest, and
// the rows below "picture" are the prefix (with what a step's number decides) and the VAE's encoder. --tokens are the rows
// of text. The references of FLUX.2 [klein] 9B-kv are such a prefix too, and have the same rows.
//
// With --control the report has, for each net, steps with and without it in turns: jobs of --steps steps for the seconds
// of a row, and the medians of all. "of its work" is the same ratio of operations. The net reads one picture, and has its
// usual strength in all steps. "preparing its picture" is the IMAGE stage of such a job: the VAE's encoder. --ops then has
// a table without a net and one for each.
//
// With --blocks N the transformer of a synthetic checkpoint is cut to N blocks. "forward" is then scaled to the blocks
// that it has whole, and says so; pictures, memory and the rest are those of the cut one. With --without-text-encoder
// prompts are given as random features.
#include "budget_weights.h"
#include "parameters.h"
#include "pretend.h"
#include "synthetic.h"
#include "synthetic_blocks.h"
#include "system.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sumi.h>

#define MAX_RUNS 64
#define MAX_PROMPT 4096
#define NAME_BYTES 128 // of a row of the report
#define MAX_REFERENCES 10
#define KLEIN_ROWS 512 // of every prompt of FLUX.2 [klein]
#define BY_FAMILY -1   // a number that the family of the checkpoint decides
#define REFERENCE_SIDE 1024

typedef struct bench {
    const char *model_path, *write_path;
    const char* prompt_path;    // a saved prompt: the text encoder is not opened
    const char* variant;        // sumi_model_desc.variant
    synthetic_config synthetic; // all zero: none
    sumi_control* controls[SYNTHETIC_MAX_CONTROLS];
    const synthetic_control* control_kinds[SYNTHETIC_MAX_CONTROLS]; // of --control
    sumi_control_picture control_picture;
    const synthetic_type* stored;
    int32_t whole_blocks; // of the transformer before --blocks
    synthetic_files* files;
    int32_t width, height, tokens, runs, threads, sizes[8], size_count, steps, batch, blocks;
    int32_t guided_steps;  // of a picture with guidance; 0: none is made
    parameters step_cache; // of such a picture that is made too; without a step cache: none is
    sumi_pixels references[MAX_REFERENCES];
    int32_t reference_count;
    unsigned char* reference; // all of them are this picture
    int32_t slice_us;         // -1: the engine's default, which is what a host gets that sets nothing
    double seconds;           // of sustained work per row of the report
    uint64_t memory_budget;
    sumi_backend backend;
    sumi_weight_format weights, text_weights;
    sumi_attention_format attention;
    bool float32, serves, reports, shows_ops, without_text, is_short, has_picture, outliers, compares_text;
    sumi_engine* engine;
    sumi_model* model;
    sumi_prompt *prompt, *empty; // empty: of the text "", what NewBie-image moves away from
    char text[MAX_PROMPT + 32];
    float *latents, *picture;
    size_t latent_count;
    double flops_text, flops_forward, flops_prepare, flops_decode;
    char detail[512];
} bench;

static double now(void) { return 1e-9 * (double)system_clock_ns(); }

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

// ---- Opening --------------------------------------------------------------------------------------------------------

static bool is_qwen_image(const bench* b)
{
    return b->synthetic.dim > 0 && b->synthetic.family == SYNTHETIC_QWEN_IMAGE;
}

static bool is_newbie(const bench* b) { return b->synthetic.dim > 0 && b->synthetic.family == SYNTHETIC_NEWBIE; }

// Its references are rows beside the text: prompts know nothing of them.
static bool is_klein(const bench* b) { return b->synthetic.dim > 0 && b->synthetic.family == SYNTHETIC_KLEIN; }

// Its references are in the prompts, as in Qwen-Image, and their rows are computed once for all steps.
static bool is_qwen_image_21(const bench* b)
{
    return b->synthetic.dim > 0 && b->synthetic.family == SYNTHETIC_QWEN_IMAGE_21;
}

// Text and references of Qwen-Image-2.1, references of FLUX.2 [klein] 9B-kv: rows that are computed once for all steps.
static bool has_prefix(const bench* b)
{
    return is_qwen_image_21(b) || (b->synthetic.keeps_references && b->reference_count > 0);
}

static bool edits(const bench* b) { return is_qwen_image(b) || is_klein(b) || is_qwen_image_21(b); }

static int32_t most_references(const bench* b) { return is_qwen_image(b) ? 3 : edits(b) ? MAX_REFERENCES : 0; }

// Where no format was asked for, what suits the memory budget on a GPU, as sumi does.
static void choose_weights(bench* b, const synthetic_config* config)
{
    char text[BUDGET_WEIGHTS_TEXT_BYTES];
    budget_weights_desc desc = {.budget_bytes = b->memory_budget};
    if (b->backend != SUMI_BACKEND_CUDA || b->weights != SUMI_WEIGHTS_AUTO) return;
    synthetic_count_transformer(config, &desc.values, &desc.bytes);
    b->weights = budget_weights(&desc, text);
    if (text[0]) fprintf(stderr, "bench: %s\n", text);
}

static bool open_model(bench* b)
{
    sumi_engine_desc ed = sumi_engine_defaults();
    ed.backend = b->backend;
    ed.cpu_thread_count = b->threads;
    if (b->slice_us >= 0) ed.max_slice_us = (uint32_t)b->slice_us;
    const sumi_files files = synthetic_services(b->files);
    if (b->files) ed.files = &files;
    ed.memory_budget_bytes = b->memory_budget;
    ed.log.write = keep_log;
    ed.log.user_data = b;
    if (!check(b, sumi_engine_create(&ed, &b->engine), "creating the engine")) return false;
    sumi_model_desc md = sumi_model_defaults();
    md.path = b->model_path;
    md.weights = b->weights;
    md.text_weights = b->text_weights;
    md.attention = b->attention;
    md.variant = b->variant;
    md.without_text_encoder = b->prompt_path != NULL || b->without_text;
    md.without_vae_encoder = !edits(b) && !b->control_kinds[0];
    sumi_job job;
    return check(b, sumi_submit_model(b->engine, &md, &job), "loading the model")
        && wait_for(b, job, "loading the model")
        && check(b, sumi_fetch_model(b->engine, job, &b->model), "loading the model");
}

static bool open_controls(bench* b)
{
    for (int32_t i = 0; i < SYNTHETIC_MAX_CONTROLS && b->control_kinds[i]; i++) {
        char path[128];
        synthetic_control_path(&b->synthetic, i, path, sizeof path);
        sumi_control_desc desc = sumi_control_defaults(b->model);
        desc.path = path;
        sumi_job job;
        if (!check(b, sumi_submit_control(b->engine, &desc, &job), "loading a control net")
            || !wait_for(b, job, "loading a control net")
            || !check(b, sumi_fetch_control(b->engine, job, &b->controls[i]), "loading a control net"))
            return false;
    }
    return true;
}

static bool has_text_encoder(const bench* b) { return !b->prompt_path && !b->without_text; }

static bool load_prompt(bench* b)
{
    FILE* file = fopen(b->prompt_path, "rb");
    long bytes = file && fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    void* data = bytes > 0 ? malloc((size_t)bytes) : NULL;
    bool read = data && fseek(file, 0, SEEK_SET) == 0 && fread(data, 1, (size_t)bytes, file) == (size_t)bytes;
    if (file) fclose(file);
    if (!read) fprintf(stderr, "bench: cannot read %s\n", b->prompt_path);
    const bool is_text = read && !memchr(data, 0, (size_t)bytes); // a saved prompt begins with a length of 8 bytes
    if (is_text)
        fprintf(stderr, "bench: %s is a text file; --encoded-prompt takes what sumi encode saved\n", b->prompt_path);
    bool done =
        read && !is_text && check(b, sumi_prompt_load(b->model, data, (size_t)bytes, &b->prompt), "loading the prompt");
    free(data);
    return done;
}

// A prompt of `tokens` rows of random features, with the vector of a second encoder and the pictures that it refers to,
// in the form of sumi_prompt_save; in place of *io_prompt.
static bool make_prompt(bench* b, int32_t tokens, sumi_prompt** io_prompt)
{
    char json[1024], others[512] = "";
    if (is_klein(b)) tokens = KLEIN_ROWS;
    const int32_t reference_count = is_klein(b) ? 0 : b->reference_count;
    const int32_t width = (is_klein(b) ? 3 : 1) * b->synthetic.text_width, pooled = b->synthetic.pooled_width;
    const uint64_t token_bytes = (uint64_t)tokens * (uint64_t)width * 4;
    const uint64_t picture_bytes = (uint64_t)REFERENCE_SIDE * REFERENCE_SIDE * 3;
    const uint64_t feature_bytes = token_bytes + (uint64_t)pooled * 4;
    size_t used = 0;
    if (pooled > 0)
        used +=
            (size_t)sprintf(others, ",\"features.1\":{\"dtype\":\"F32\",\"shape\":[1,%d],\"data_offsets\":[%llu,%llu]}",
                            pooled, (unsigned long long)token_bytes, (unsigned long long)feature_bytes);
    for (int32_t i = 0; i < reference_count; i++)
        used += (size_t)sprintf(
            others + used, ",\"reference.%d\":{\"dtype\":\"U8\",\"shape\":[%d,%d,3],\"data_offsets\":[%llu,%llu]}", i,
            REFERENCE_SIDE, REFERENCE_SIDE, (unsigned long long)(feature_bytes + (uint64_t)i * picture_bytes),
            (unsigned long long)(feature_bytes + (uint64_t)(i + 1) * picture_bytes));
    const size_t length = (size_t)sprintf(
        json,
        "{\"__metadata__\":{\"sumi_prompt\":\"1\",\"family\":\"%s\",\"token_count\":\"%d\"},"
        "\"features\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[0,%llu]}%s}",
        sumi_model_get_info(b->model).family, tokens, tokens, width, (unsigned long long)token_bytes, others);
    const size_t bytes = 8 + length + feature_bytes + (uint64_t)reference_count * picture_bytes;
    unsigned char* data = malloc(bytes);
    if (!data) return check(b, SUMI_OUT_OF_HOST_MEMORY, "making a prompt");
    for (int i = 0; i < 8; i++) data[i] = (unsigned char)((uint64_t)length >> 8 * i);
    memcpy(data + 8, json, length);
    uint64_t state = 0x9E3779B97F4A7C15u;
    for (uint64_t i = 0; i < feature_bytes; i += 4) { // uniform, with a variance of 1
        state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
        const float value = ((float)(state * 0x2545F4914F6CDD1Du >> 40) / 8388608.0f - 1.0f) * 1.7320508f;
        memcpy(data + 8 + length + i, &value, 4);
    }
    for (int32_t i = 0; i < reference_count; i++)
        memcpy(data + 8 + length + feature_bytes + (uint64_t)i * picture_bytes, b->reference, picture_bytes);
    sumi_prompt* prompt;
    const bool made = check(b, sumi_prompt_load(b->model, data, bytes, &prompt), "making a prompt");
    free(data);
    if (!made) return false;
    sumi_prompt_release(*io_prompt);
    *io_prompt = prompt;
    return true;
}

// Of as many rows as the text "" has.
static bool make_empty(bench* b)
{
    const int32_t tokens = synthetic_template_rows(&b->synthetic);
    return make_prompt(b, tokens > 0 ? tokens : 1, &b->empty);
}

// A text that becomes `tokens` rows of features with the synthetic tokenizer, pictures and padding apart; about as many
// words otherwise.
static void make_text(bench* b, int32_t tokens)
{
    static const char s_words[] = SYNTHETIC_WORDS;
    int32_t count = tokens - synthetic_template_rows(&b->synthetic);
    if (count < 1) count = 1;
    if (count > MAX_PROMPT - 1) count = MAX_PROMPT - 1;
    const int begun = snprintf(b->text, sizeof b->text, "%s", synthetic_opening(&b->synthetic));
    for (int32_t i = 0; i < count; i++) b->text[begun + i] = s_words[(size_t)i % (sizeof s_words - 1)];
    b->text[begun + count] = 0;
}

// The tokens of the text that make_text makes.
static int32_t text_tokens(const bench* b, int32_t tokens)
{
    const int32_t least = synthetic_template_rows(&b->synthetic) + 1;
    return tokens < least ? least : tokens > KLEIN_ROWS ? KLEIN_ROWS : tokens;
}

// "text, 128 tokens"; of FLUX.2 [klein] "text, 128 tokens in 512 rows".
static void name_text(const bench* b, char name[NAME_BYTES], int32_t tokens)
{
    const int32_t rows = sumi_prompt_get_info(b->prompt).encoders[0].token_count;
    if (is_klein(b)) snprintf(name, NAME_BYTES, "text, %d tokens in %d rows", text_tokens(b, tokens), rows);
    else snprintf(name, NAME_BYTES, "text, %d tokens", rows);
}

// ---- Measuring ------------------------------------------------------------------------------------------------------

// The pictures that the job refers to. A prompt that was encoded with its own keeps them.
static void set_references(const bench* b, sumi_image_desc* desc, bool has_text)
{
    if (b->reference_count == 0 || !(has_text || is_klein(b))) return;
    desc->references = b->references;
    desc->reference_count = b->reference_count;
}

static bool encode_text(bench* b, double* out_seconds, double* out_work_seconds)
{
    sumi_prompt_desc desc = sumi_prompt_defaults(b->model);
    desc.text = b->text;
    if (b->reference_count > 0 && !is_klein(b))
        desc.references = b->references, desc.reference_count = b->reference_count;
    sumi_job job;
    double began = now();
    if (!check(b, sumi_submit_prompt(b->engine, &desc, &job), "encoding the prompt")
        || !wait_for(b, job, "encoding the prompt"))
        return false;
    *out_seconds = now() - began;
    *out_work_seconds = (double)sumi_job_poll(b->engine, job).stage_seconds[SUMI_STAGE_TEXT];
    sumi_prompt* prompt;
    if (!check(b, sumi_fetch_prompt(b->engine, job, &prompt), "encoding the prompt")) return false;
    sumi_prompt_release(b->prompt);
    b->prompt = prompt;
    return true;
}

static bool measure_text(bench* b, double* out_seconds)
{
    double work;
    return encode_text(b, out_seconds, &work);
}

// Keeps the prompt of the text "" too, which guided pictures have as their negative one.
static bool encode_empty(bench* b)
{
    sumi_prompt_desc desc = sumi_prompt_defaults(b->model);
    desc.text = "";
    sumi_job job;
    return check(b, sumi_submit_prompt(b->engine, &desc, &job), "encoding the empty prompt")
        && wait_for(b, job, "encoding the empty prompt")
        && check(b, sumi_fetch_prompt(b->engine, job, &b->empty), "encoding the empty prompt");
}

static void sum_flops(bench* b, sumi_job job)
{
    sumi_profile_row rows[512];
    int32_t count = sumi_job_profile(b->engine, job, rows, 512);
    b->flops_text = b->flops_forward = b->flops_prepare = b->flops_decode = 0.0;
    for (int32_t i = 0; i < count && i < 512; i++) {
        if (rows[i].stage == SUMI_STAGE_TEXT) b->flops_text += rows[i].flops;
        else if (rows[i].stage == SUMI_STAGE_DECODE) b->flops_decode += rows[i].flops;
        else if (rows[i].stage == SUMI_STAGE_DENOISE || rows[i].stage == SUMI_STAGE_PREPARE)
            b->flops_forward += rows[i].flops;
        if (rows[i].stage == SUMI_STAGE_PREPARE) b->flops_prepare += rows[i].flops;
    }
}

// A job with this net; NULL: without one.
static void set_control(const bench* b, sumi_image_desc* desc, const sumi_control* control, sumi_control_use* use)
{
    if (!control) return;
    *use = sumi_control_use_defaults(control);
    use->pictures = &b->control_picture;
    use->picture_count = 1;
    desc->controls = use;
    desc->control_count = 1;
}

static bool measure_image(bench* b, bool profile, double* out_forward, double* out_decode)
{
    static const float s_sigmas[] = {1.0f, 0.0f};
    sumi_image_item item = {.seed = 7};
    const bool has_text = profile && has_text_encoder(b); // text encoding is in the table then
    if (has_text) item.text = b->text;
    else item.prompt = b->prompt;
    sumi_target target = {.format = SUMI_FORMAT_RGB32F, .host_memory = b->picture};
    sumi_image_desc desc = sumi_image_defaults(b->model, SUMI_PRESET_MODEL);
    desc.items = &item;
    desc.item_count = 1;
    desc.width = b->width;
    desc.height = b->height;
    desc.step_count = 1;
    desc.sigmas = s_sigmas;
    desc.guidance.scale = sumi_model_get_info(b->model).guidance_off;
    desc.solver = SUMI_SOLVER_EULER; // one evaluation a step
    desc.targets = &target;
    desc.profile = profile;
    set_references(b, &desc, has_text);
    sumi_job job;
    double began = now();
    if (!check(b, sumi_submit_images(b->engine, &desc, &job), "making a picture")
        || !wait_for(b, job, "making a picture"))
        return false;
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
    printf("| %-28s | %10.1f | %10.1f | %8.2f | %8.1f |\n", name, 1e3 * median, 1e3 * seconds[0], 1e-9 * flops,
           1e-9 * flops / median);
}

static bool print_table(bench* b)
{
    double text[MAX_RUNS], forward[MAX_RUNS], decode[MAX_RUNS], ignored[2];
    if (!measure_image(b, true, &ignored[0], &ignored[1])) return false; // warms up, and counts the work
    for (int32_t i = 0; i < b->runs; i++) {
        if ((has_text_encoder(b) && !measure_text(b, &text[i])) || !measure_image(b, false, &forward[i], &decode[i]))
            return false;
    }
    char names[3][NAME_BYTES];
    name_text(b, names[0], b->tokens);
    snprintf(names[1], sizeof names[1], "forward, %dx%d", b->width, b->height);
    snprintf(names[2], sizeof names[2], "decode, %dx%d", b->width, b->height);
    sumi_engine_info info = sumi_engine_get_info(b->engine);
    printf("%s; median and best of %d\n\n", info.device, b->runs);
    printf("| %-28s | %10s | %10s | %8s | %8s "
           "|\n|------------------------------|-----------:|-----------:|---------:|---------:|\n",
           "stage", "median ms", "best ms", "GFLOP", "GFLOP/s");
    if (has_text_encoder(b)) print_row(names[0], text, b->runs, b->flops_text);
    print_row(names[1], forward, b->runs, b->flops_forward);
    print_row(names[2], decode, b->runs, b->flops_decode);
    printf("\nmemory: weights %.0f MB mapped, at most %.0f MB beside them",
           1e-6 * (double)sumi_model_get_info(b->model).weight_bytes, 1e-6 * (double)info.host_peak_bytes);
    // views of one block would be counted over and over
    if (!b->files) printf(", process at most %.0f MB resident", peak_megabytes());
    printf("\n");
    return true;
}

// ---- The report -----------------------------------------------------------------------------------------------------

#define MAX_BATCH 16
#define MAX_JOBS 4096
#define MAX_STEPS 1024

// One job of `items` pictures of the size.
typedef struct work {
    int32_t side, steps, items;
    bool has_text; // the prompt is encoded by the job
    // As the authors have it. The negative prompt is the empty text. (Were it the prompt itself, one evaluation would do.)
    bool is_guided;
    const parameters* step_cache; // NULL: none
    const sumi_control* control;  // NULL: none
    sumi_pixels canvas;           // what an image to image begins with, at CANVAS_STRENGTH; without data: noise
} work;
#define CANVAS_STRENGTH 0.6f
typedef struct sample {
    double forward, decode, picture, cpu_per_step, image, prepare; // seconds; picture: of the whole job
    double reused;                                                 // evaluations of the first picture
} sample;

static sumi_image_desc describe(const bench* b, const work* w, sumi_image_item items[MAX_BATCH])
{
    for (int32_t i = 0; i < w->items; i++) {
        items[i] = (sumi_image_item){.seed = 7 + (uint64_t)i};
        if (w->has_text) items[i].text = b->text;
        else items[i].prompt = b->prompt;
    }
    // The few steps of Qwen-Image are those of its adapters, with a schedule of their own.
    const sumi_preset preset = is_qwen_image(b) && !w->is_guided ? SUMI_PRESET_FAST : SUMI_PRESET_MODEL;
    sumi_image_desc desc = sumi_image_defaults(b->model, preset);
    desc.items = items;
    desc.item_count = w->items;
    desc.width = desc.height = w->side;
    desc.step_count = w->steps;
    if (!w->is_guided) desc.guidance.scale = sumi_model_get_info(b->model).guidance_off;
    for (int32_t i = 0; i < w->items && w->is_guided; i++) {
        if (w->has_text) items[i].negative_text = "";
        else items[i].negative_prompt = b->empty;
    }
    if (is_newbie(b)) { // Euler's steps with guidance in all of them, as diffusers has them
        desc.solver = SUMI_SOLVER_EULER;
        desc.guidance.end = 1.0f;
    }
    if (w->canvas.data) desc.start.image = &w->canvas, desc.start.strength = CANVAS_STRENGTH;
    if (w->step_cache) {
        desc.step_cache = w->step_cache->step_cache;
        desc.step_cache_db = w->step_cache->step_cache_db;
        desc.step_cache_every = w->step_cache->step_cache_every;
    }
    set_references(b, &desc, w->has_text);
    return desc;
}

// Steps of jobs, in seconds of work.
typedef struct step_times {
    double seconds[MAX_STEPS];
    int32_t count;
} step_times;

// Waits in small pieces, and looks at what the DENOISE stage came to whenever a step is done. The first step has the
// stage's beginning in it and is not counted.
static void watch_steps(bench* b, sumi_job job, step_times* times)
{
    sumi_job_status status = {0};
    double last = 0.0;
    for (int32_t step = 0; sumi_job_wait(b->engine, job, 1) == SUMI_TIMEOUT;) {
        status = sumi_job_poll(b->engine, job);
        if (status.step == step) continue;
        const double at = (double)status.stage_seconds[SUMI_STAGE_DENOISE];
        if (status.step == step + 1 && step > 0 && times->count < MAX_STEPS) times->seconds[times->count++] = at - last;
        last = at;
        step = status.step;
    }
}

// times: NULL, or what the steps are added to.
static bool run_work(bench* b, const work* w, step_times* times, sample* out)
{
    sumi_image_item items[MAX_BATCH];
    sumi_image_desc desc = describe(b, w, items);
    sumi_control_use use;
    set_control(b, &desc, w->control, &use);
    sumi_image images[MAX_BATCH];
    sumi_job job;
    double began = now(), busy = system_processor_seconds();
    if (!check(b, sumi_submit_images(b->engine, &desc, &job), "making pictures")) return false;
    if (times) watch_steps(b, job, times);
    if (!wait_for(b, job, "making pictures")) return false;
    sumi_job_status status = sumi_job_poll(b->engine, job);
    if (!check(b, sumi_fetch_images(b->engine, job, images, MAX_BATCH), "fetching the pictures")) return false;
    *out = (sample){(double)status.stage_seconds[SUMI_STAGE_DENOISE] / w->steps,
                    (double)status.stage_seconds[SUMI_STAGE_DECODE] / w->items,
                    now() - began,
                    (system_processor_seconds() - busy) / w->steps,
                    (double)status.stage_seconds[SUMI_STAGE_IMAGE],
                    (double)status.stage_seconds[SUMI_STAGE_PREPARE],
                    images[0].reused_count};
    sumi_images_release(b->engine, images, w->items);
    return true;
}

static double median_of(double* values, int32_t count)
{
    qsort(values, (size_t)count, sizeof *values, compare_doubles);
    return count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}

// Medians of members of samples [begin, end).
static sample median_sample(const sample* samples, int32_t begin, int32_t end)
{
    static double s_values[MAX_JOBS];
    sample median;
    double* into = (double*)&median;
    for (size_t k = 0; k < sizeof(sample) / sizeof(double); k++) {
        for (int32_t i = begin; i < end; i++) s_values[i - begin] = ((const double*)&samples[i])[k];
        into[k] = median_of(s_values, end - begin);
    }
    return median;
}

// Back to back for `seconds`, at least three jobs after one that warms up.
static bool sustain(bench* b, const work* w, double seconds, sample* out_first, sample* out_sustained,
                    int32_t* out_count)
{
    static sample s_samples[MAX_JOBS];
    int32_t count = 0;
    sample warm;
    if (!run_work(b, w, NULL, &warm)) return false;
    for (double began = now(); count < MAX_JOBS && (count < 3 || now() - began < seconds); count++) {
        if (!run_work(b, w, NULL, &s_samples[count])) return false;
    }
    *out_first = median_sample(s_samples, 0, count / 20 > 3 ? count / 20 : 3);
    *out_sustained = median_sample(s_samples, count / 2, count);
    *out_count = count;
    return true;
}

typedef struct text_times {
    double first, wall, work; // seconds; first: of the first one, from submit to done as wall
    int32_t count;
} text_times;

static bool sustain_text(bench* b, int32_t tokens, double seconds, text_times* out)
{
    static double s_wall[MAX_JOBS], s_work_time[MAX_JOBS];
    int32_t count = 0;
    make_text(b, tokens);
    if (!encode_text(b, &out->first, &s_work_time[0])) return false;
    for (double began = now(); count < MAX_JOBS && (count < 3 || now() - began < seconds); count++) {
        if (!encode_text(b, &s_wall[count], &s_work_time[count])) return false;
    }
    out->wall = median_of(s_wall + count / 2, count - count / 2);
    out->work = median_of(s_work_time + count / 2, count - count / 2);
    out->count = count;
    return true;
}

static void report_row(const char* what, double sustained, double first, double flops)
{
    printf("| %-40s | %10.2f | %10.2f | ", what, 1e3 * sustained, 1e3 * first);
    if (flops > 0.0) printf("%8.1f |\n", 1e-12 * flops / sustained);
    else printf("%8s |\n", "");
    fflush(stdout);
}

// The 99th of 100 steps over the median one, of pictures of `steps` steps for the time of a row.
// Sorts the times.
static void report_spread_of(step_times* times, const char* what)
{
    char name[NAME_BYTES];
    const double median = median_of(times->seconds, times->count);
    const double late = times->seconds[(times->count * 99 + 99) / 100 - 1];
    snprintf(name, sizeof name, "spread of %d %ssteps, p99 / median %.3f", times->count, what, late / median);
    report_row(name, late - median, late - median, 0.0);
}

static bool report_spread(bench* b, const work* w)
{
    static step_times s_times;
    sample ignored;
    s_times.count = 0;
    for (double began = now(); s_times.count < MAX_STEPS && (s_times.count == 0 || now() - began < b->seconds);) {
        if (!run_work(b, w, &s_times, &ignored)) return false;
        if (w->steps < 3) return true; // no step but the first and the last
    }
    report_spread_of(&s_times, "");
    return true;
}

// A forward of the whole transformer, by one of fewer blocks.
static double scale_of(const bench* b) { return b->blocks > 0 ? (double)b->whole_blocks / b->blocks : 1.0; }

static void name_forward(const bench* b, char name[NAME_BYTES], const char* what, int32_t side)
{
    if (b->blocks > 0)
        snprintf(name, NAME_BYTES, "%s, %dx%d, %d blocks x %.3g", what, side, side, b->blocks, scale_of(b));
    else snprintf(name, NAME_BYTES, "%s, %dx%d", what, side, side);
}

// One, behind pictures that warmed up: 50 steps take many seconds. Under a budget another one with its texts, for which
// the encoders' weights come again.
static bool report_guided(bench* b, int32_t side)
{
    char name[NAME_BYTES];
    sample one;
    work guided = {.side = side, .steps = b->guided_steps, .items = 1, .is_guided = true};
    static step_times s_times;
    s_times.count = 0;
    const sumi_model_info info = sumi_model_get_info(b->model);
    if (sumi_image_defaults(b->model, SUMI_PRESET_MODEL).guidance.scale == info.guidance_off) {
        fprintf(stderr,
                "bench: the authors of variant %s use no guidance: leave out --guided-steps, or name another "
                "one (of Z-Image: --variant base)\n",
                info.variant);
        return false;
    }
    if (!run_work(b, &guided, &s_times, &one)) return false;
    name_forward(b, name, "guided step", side);
    report_row(name, scale_of(b) * one.forward, scale_of(b) * one.forward, 0.0);
    snprintf(name, sizeof name, "guided picture of %d steps, %dx%d", guided.steps, side, side);
    report_row(name, one.picture, one.picture, 0.0);
    if (s_times.count > 0) report_spread_of(&s_times, "guided ");
    char cache[24];
    parameters_write_step_cache(&b->step_cache, cache);
    if (strcmp(cache, "0") != 0) {
        guided.step_cache = &b->step_cache;
        if (!run_work(b, &guided, NULL, &one) || !run_work(b, &guided, NULL, &one))
            return false; // makes its plan first
        snprintf(name, sizeof name, "step cache %s, %.0f evaluations reused", cache, one.reused);
        report_row(name, one.picture, one.picture, 0.0);
        guided.step_cache = NULL;
    }
    if (!b->memory_budget || !has_text_encoder(b)) return true;
    guided.has_text = true;
    if (!run_work(b, &guided, NULL, &one)) return false;
    snprintf(name, sizeof name, "the same with its texts, %dx%d", side, side);
    report_row(name, one.picture, one.picture, 0.0);
    return true;
}

static bool sustain_encode(bench* b, int32_t side, double seconds, double* out_first, double* out_sustained,
                           int32_t* out_count)
{
    static double s_work_time[MAX_JOBS];
    const sumi_model_info info = sumi_model_get_info(b->model);
    const size_t along = (size_t)(side / info.latent_factor), most = (size_t)info.latent_channels * along * along;
    int32_t count = 0;
    const sumi_pixels picture = {
        .data = b->reference, .width = REFERENCE_SIDE, .height = REFERENCE_SIDE, .channel_count = 3};
    sumi_encode_desc desc = sumi_encode_defaults(b->model);
    desc.image = &picture;
    desc.width = desc.height = side;
    float* latents = malloc(most * sizeof *latents);
    bool done = latents != NULL;
    for (double began = now(); done && count < MAX_JOBS && (count < 4 || now() - began < seconds); count++) {
        sumi_job job;
        done = check(b, sumi_submit_encode(b->engine, &desc, &job), "encoding a picture")
            && wait_for(b, job, "encoding a picture");
        if (!done) break;
        s_work_time[count] = (double)sumi_job_poll(b->engine, job).stage_seconds[SUMI_STAGE_IMAGE];
        done = check(b, sumi_fetch_latents(b->engine, job, latents, most), "encoding a picture");
    }
    free(latents);
    if (!done) return false;
    *out_first = median_of(s_work_time + 1, 3);
    *out_sustained = median_of(s_work_time + count / 2, count - count / 2);
    *out_count = count;
    return true;
}

static bool report_encode(bench* b, int32_t side)
{
    char name[NAME_BYTES];
    double first, sustained;
    int32_t count;
    if (!sustain_encode(b, side, b->seconds / 4, &first, &sustained, &count)) return false;
    snprintf(name, sizeof name, "encode, %dx%d", side, side);
    report_row(name, sustained, first, 0.0);
    return true;
}

#define QUEUED 8

static bool wait_and_fetch(bench* b, sumi_job job, double* io_worked)
{
    sumi_image image;
    if (!wait_for(b, job, "making pictures")) return false;
    *io_worked += sumi_job_poll(b->engine, job).device_seconds;
    if (!check(b, sumi_fetch_images(b->engine, job, &image, 1), "fetching the picture")) return false;
    sumi_images_release(b->engine, &image, 1);
    return true;
}

// Jobs of one picture, each submitted when the one before was fetched, or all before the first one begins: what the GPU
// does nothing of that time, by its own clock. The least of three tries: another process may take the processor.
static bool report_idle(bench* b, int32_t side, bool queued)
{
    char name[NAME_BYTES];
    const work one = {.side = side, .steps = b->steps, .items = 1};
    sumi_image_item items[MAX_BATCH];
    sumi_image_desc desc = describe(b, &one, items);
    sumi_job jobs[QUEUED];
    double least = 0.0, wall = 0.0;
    for (int32_t i = 0; i < 3; i++) {
        const double began = now();
        double worked = 0.0;
        for (int32_t k = 0; k < QUEUED; k++) {
            if (!check(b, sumi_submit_images(b->engine, &desc, &jobs[k]), "making pictures")
                || (!queued && !wait_and_fetch(b, jobs[k], &worked)))
                return false;
        }
        for (int32_t k = 0; k < QUEUED && queued; k++) {
            if (!wait_and_fetch(b, jobs[k], &worked)) return false;
        }
        const double took = now() - began, idle = took - worked;
        if (i == 0 || idle < least) least = idle, wall = took;
    }
    snprintf(name, sizeof name, "each of %d %s, %dx%d", QUEUED, queued ? "queued" : "in turn", side, side);
    report_row(name, wall / QUEUED, wall / QUEUED, 0.0);
    snprintf(name, sizeof name, "  of it the GPU is idle");
    report_row(name, least / QUEUED, least / QUEUED, 0.0);
    return true;
}

static bool report_size(bench* b, int32_t side)
{
    char name[NAME_BYTES];
    double ignored[2];
    sample first, last;
    int32_t count;
    const work one = {.side = side, .steps = b->steps, .items = 1};
    const work with_text = {.side = side, .steps = b->steps, .items = 1, .has_text = true};
    b->width = b->height = side;
    if (!measure_image(b, true, &ignored[0], &ignored[1])) return false; // counts the work
    if (!sustain(b, &one, b->seconds, &first, &last, &count)) return false;
    char what[48] = "forward";
    if (b->reference_count > 0)
        snprintf(what, sizeof what, "forward, %d reference%s", b->reference_count, b->reference_count > 1 ? "s" : "");
    const double scale = scale_of(b);
    name_forward(b, name, what, side);
    const double once = has_prefix(b) ? b->flops_prepare : 0.0;
    report_row(name, scale * last.forward, scale * first.forward, scale * (b->flops_forward - once));
    snprintf(name, sizeof name, "decode, %dx%d", side, side);
    report_row(name, last.decode, first.decode, b->flops_decode);
    snprintf(name, sizeof name, "picture of %d steps, %dx%d", b->steps, side, side);
    report_row(name, last.picture, first.picture, 0.0);
    if (has_prefix(b)) {
        report_row("  of it the prefix", last.prepare, first.prepare, once);
        if (b->reference_count > 0) report_row("  of it encoding its references", last.image, first.image, 0.0);
    }
    if (edits(b) && (!report_spread(b, &one) || !report_encode(b, side))) return false;
    if (b->guided_steps > 0 && !report_guided(b, side)) return false;
    if (b->backend == SUMI_BACKEND_CUDA && !b->is_short
        && (!report_idle(b, side, false) || !report_idle(b, side, true)))
        return false;
    // Under a budget the text encoder's weights come again for every picture.
    if ((b->memory_budget || is_klein(b)) && has_text_encoder(b)) {
        if (!sustain(b, &with_text, b->seconds, &first, &last, &count)) return false;
        snprintf(name, sizeof name, "picture of %d steps, text in, %dx%d", b->steps, side, side);
        report_row(name, last.picture, first.picture, 0.0);
    }
    if (is_klein(b) && side <= REFERENCE_SIDE) { // as a painting program draws over its canvas
        work over = one;
        over.canvas = (sumi_pixels){.data = b->reference, .width = side, .height = side, .channel_count = 3};
        sample over_first, over_last;
        if (!sustain(b, &over, b->seconds, &over_first, &over_last, &count)) return false;
        snprintf(name, sizeof name, "from a canvas, %.1f of %d steps, %dx%d", (double)CANVAS_STRENGTH, b->steps, side,
                 side);
        report_row(name, over_last.picture, over_first.picture, 0.0);
    }
    snprintf(name, sizeof name, "host CPU time per step, %dx%d", side, side);
    report_row(name, last.cpu_per_step, first.cpu_per_step, 0.0);
    return true;
}

// The operations of a step.
static bool count_step(bench* b, int32_t side, const sumi_control* control, double* out_flops)
{
    sumi_profile_row rows[512];
    const work one = {.side = side, .steps = 1, .items = 1};
    sumi_image_item items[MAX_BATCH];
    sumi_image_desc desc = describe(b, &one, items);
    sumi_control_use use;
    set_control(b, &desc, control, &use);
    desc.profile = true;
    sumi_job job;
    sumi_image image;
    if (!check(b, sumi_submit_images(b->engine, &desc, &job), "counting the work")
        || !wait_for(b, job, "counting the work"))
        return false;
    const int32_t count = sumi_job_profile(b->engine, job, rows, 512);
    *out_flops = 0.0;
    for (int32_t i = 0; i < count && i < 512; i++)
        *out_flops += rows[i].stage == SUMI_STAGE_DENOISE ? rows[i].flops : 0.0;
    if (!check(b, sumi_fetch_images(b->engine, job, &image, 1), "counting the work")) return false;
    sumi_images_release(b->engine, &image, 1);
    return true;
}

// Steps without the net and with it, in turns, so that the card's clock is the same for both.
static bool report_control(bench* b, int32_t side, int32_t index)
{
    static double s_steps[2][MAX_JOBS], s_images[MAX_JOBS];
    const char* kind = b->control_kinds[index]->name;
    char name[NAME_BYTES];
    double flops[2], median[2];
    int32_t count = 0;
    for (int32_t i = 0; i < 2; i++) {
        sample warm;
        const work w = {.side = side, .steps = b->steps, .items = 1, .control = i ? b->controls[index] : NULL};
        if (!count_step(b, side, w.control, &flops[i]) || !run_work(b, &w, NULL, &warm)) return false;
    }
    for (double began = now(); count < MAX_JOBS && (count < 3 || now() - began < b->seconds); count++) {
        for (int32_t i = 0; i < 2; i++) {
            sample one;
            const work w = {.side = side, .steps = b->steps, .items = 1, .control = i ? b->controls[index] : NULL};
            if (!run_work(b, &w, NULL, &one)) return false;
            s_steps[i][count] = one.forward;
            s_images[count] = one.image;
        }
    }
    for (int32_t i = 0; i < 2; i++) {
        const double first = s_steps[i][0];
        median[i] = median_of(s_steps[i], count);
        snprintf(name, sizeof name, "step %s%s, %dx%d", i ? "with " : "without ", i ? kind : "a net", side, side);
        report_row(name, median[i], first, flops[i]);
    }
    snprintf(name, sizeof name, "  preparing its picture");
    const double first = s_images[0];
    report_row(name, median_of(s_images, count), first, 0.0);
    printf("| %-40s | %10.3f | %10s | %8s |\n", "  times a step without", median[1] / median[0], "", "");
    printf("| %-40s | %10.3f | %10s | %8s |\n", "  of its work", flops[1] / flops[0], "", "");
    fflush(stdout);
    return true;
}

static bool report_batch(bench* b, int32_t side)
{
    char name[NAME_BYTES];
    sample first, last;
    int32_t count;
    const work batch = {.side = side, .steps = b->steps, .items = b->batch};
    if (!sustain(b, &batch, b->seconds, &first, &last, &count)) return false;
    char what[32];
    snprintf(what, sizeof what, "forward of %d", b->batch);
    name_forward(b, name, what, side);
    report_row(name, scale_of(b) * last.forward, scale_of(b) * first.forward, 0.0);
    snprintf(name, sizeof name, "one of a batch of %d, %dx%d", b->batch, side, side);
    report_row(name, last.picture / b->batch, first.picture / b->batch, 0.0);
    return true;
}

static bool report_memory(const bench* b, int32_t side, int32_t items, bool has_text)
{
    sumi_image_item list[MAX_BATCH];
    const work w = {.side = side, .steps = b->steps, .items = items, .has_text = has_text};
    sumi_image_desc desc = describe(b, &w, list);
    sumi_memory memory;
    if (!check(b, sumi_image_memory(b->engine, &desc, &memory), "asking for the memory")) return false;
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%d x %d%s", side, side, has_text_encoder(b) && !has_text ? ", prompt stored" : "");
    printf("| %-26s | %8d | %10.0f | %11.0f | %10.1f | %10.1f | %10.1f |\n", name, items, 1e-6 * (double)memory.weights,
           1e-6 * (double)memory.streamed, 1e-6 * (double)memory.arena, 1e-6 * (double)memory.staging,
           1e-6 * (double)memory.images);
    return true;
}

// Where the time of a picture goes: op by op, each a slice of its own, with the rates that its operations and its bytes
// come to.
static bool report_ops(bench* b, int32_t side, const sumi_control* control)
{
    static sumi_profile_row s_rows[512];
    static const char* const s_stages[] = {"wait",    "load",   "prepare",  "text",   "image",
                                           "denoise", "decode", "transfer", "compile"};
    sumi_image_item items[MAX_BATCH];
    sumi_image image;
    const work one = {.side = side, .steps = b->steps, .items = 1};
    sumi_image_desc desc = describe(b, &one, items);
    if (has_text_encoder(b)) {
        items[0] = (sumi_image_item){.text = b->text, .seed = 7};
        set_references(b, &desc, true);
    }
    sumi_control_use use;
    set_control(b, &desc, control, &use);
    desc.profile = true;
    int32_t count = 0;
    for (int32_t i = 0; i < 2; i++) { // the first one warms up
        sumi_job job;
        if (!check(b, sumi_submit_images(b->engine, &desc, &job), "profiling") || !wait_for(b, job, "profiling"))
            return false;
        count = sumi_job_profile(b->engine, job, s_rows, 512);
        if (!check(b, sumi_fetch_images(b->engine, job, &image, 1), "fetching the picture")) return false;
        sumi_images_release(b->engine, &image, 1);
    }
    printf("\nops of one picture, %dx%d, %d steps, %s%s; each op launched alone\n\n", side, side, b->steps,
           has_text_encoder(b) ? "with its text" : "its prompt stored", control ? ", with a control net" : "");
    printf("| stage    | op                               |  times | ms in all |  us each |  TFLOP/s |   GB/s "
           "|\n|----------|----------------------------------|-------:|----------:|---------:|---------:|-------:|\n");
    for (int32_t i = 0; i < count && i < 48; i++) {
        const sumi_profile_row* r = &s_rows[i];
        printf("| %-8s | %-32.32s | %6d | %9.2f | %8.1f | %8.1f | %6.0f |\n", s_stages[r->stage], r->name, r->count,
               1e3 * r->seconds, 1e6 * r->seconds / r->count, 1e-12 * r->flops / r->seconds,
               1e-9 * r->bytes / r->seconds);
    }
    return true;
}

// A host that keeps encoded prompts needs no encoder for them.
static bool report_saved_prompt(bench* b)
{
    enum { TIMES = 9 };
    char name[NAME_BYTES];
    double seconds[TIMES];
    const size_t bytes = sumi_prompt_save(b->prompt, NULL, 0);
    void* data = malloc(bytes + 1);
    bool done = data != NULL;
    if (done) sumi_prompt_save(b->prompt, data, bytes);
    for (int32_t i = 0; done && i < TIMES; i++) {
        sumi_prompt* prompt;
        const double began = now();
        done = check(b, sumi_prompt_load(b->model, data, bytes, &prompt), "loading a saved prompt");
        seconds[i] = now() - began;
        if (done) sumi_prompt_release(prompt);
    }
    free(data);
    if (!done) return false;
    snprintf(name, sizeof name, "the same from its saved form, %d %s",
             sumi_prompt_get_info(b->prompt).encoders[0].token_count, is_klein(b) ? "rows" : "tokens");
    const double first = seconds[0];
    report_row(name, median_of(seconds, TIMES), first, 0.0);
    return true;
}

static bool print_report(bench* b)
{
    char name[NAME_BYTES];
    const int32_t texts[2] = {b->tokens, 512};
    text_times times;
    sumi_engine_info info = sumi_engine_get_info(b->engine);
    printf("%s; %s weights, %s of text; captions of %d tokens%s; medians of jobs back to back for %.3g s\n",
           info.device, synthetic_weights_name(b->weights),
           synthetic_weights_name(sumi_model_get_info(b->model).text_weights), b->tokens,
           is_klein(b) ? ", padded to 512 rows" : "", b->seconds);
    if (b->blocks > 0)
        printf("the transformer has %d of its %d blocks: \"forward\" is scaled to all, everything else is not\n",
               b->blocks, b->whole_blocks);
    printf("\n");
    printf("| %-40s | %10s | %10s | %8s "
           "|\n|------------------------------------------|-----------:|-----------:|---------:|\n",
           "what", "sustained", "first ms", "TFLOP/s");
    for (int32_t i = 0; i < 2 && has_text_encoder(b); i++) {
        if (!sustain_text(b, texts[i], b->seconds / 4, &times)) return false;
        if (b->reference_count > 0 && !is_klein(b))
            snprintf(name, sizeof name, "text with %d picture%s, %d rows", b->reference_count,
                     b->reference_count > 1 ? "s" : "", sumi_prompt_get_info(b->prompt).encoders[0].token_count);
        else name_text(b, name, texts[i]);
        report_row(name, times.work, times.work, 0.0);
        strncat(name, ", wall", sizeof name - strlen(name) - 1);
        report_row(name, times.wall, times.first, 0.0);
        if (!report_saved_prompt(b)) return false;
    }
    // the captions of the rows below
    if (has_text_encoder(b) && !sustain_text(b, b->tokens, 0.0, &times)) return false;
    for (int32_t i = 0; i < b->size_count; i++) {
        if (!report_size(b, b->sizes[i])) return false;
        for (int32_t k = 0; k < SYNTHETIC_MAX_CONTROLS && b->controls[k]; k++) {
            if (!report_control(b, b->sizes[i], k)) return false;
        }
    }
    if (b->batch > 1 && !report_batch(b, b->sizes[0])) return false;
    if (b->memory_budget) printf("\nmemory budget %.0f MB\n", 1e-6 * (double)b->memory_budget);
    printf(
        "\n| a job of                   | pictures | weights MB | streamed MB |   arena MB | staging MB |  images MB "
        "|\n|----------------------------|---------:|-----------:|------------:|-----------:|-----------:|-----------:|"
        "\n");
    for (int32_t i = 0; i < b->size_count; i++) {
        if (!report_memory(b, b->sizes[i], 1, has_text_encoder(b))
            || (b->memory_budget && has_text_encoder(b) && !report_memory(b, b->sizes[i], 1, false)))
            return false;
    }
    if (b->batch > 1 && !report_memory(b, b->sizes[0], b->batch, has_text_encoder(b))) return false;
    info = sumi_engine_get_info(b->engine);
    printf("\nheld now, MB: weights %.0f, arena %.1f, images %.1f, staging %.1f; host memory at most %.1f\n",
           1e-6 * (double)info.held_bytes[SUMI_MEMORY_WEIGHTS], 1e-6 * (double)info.held_bytes[SUMI_MEMORY_ARENA],
           1e-6 * (double)info.held_bytes[SUMI_MEMORY_IMAGE], 1e-6 * (double)info.held_bytes[SUMI_MEMORY_STAGING],
           1e-6 * (double)info.host_peak_bytes);
    if (!b->shows_ops) return true;
    bool good = report_ops(b, b->sizes[0], NULL);
    for (int32_t k = 0; k < SYNTHETIC_MAX_CONTROLS && b->controls[k] && good; k++)
        good = report_ops(b, b->sizes[0], b->controls[k]);
    return good;
}

// ---- Formats of the text encoder ----------------------------------------------------------------------------------

// ||a - b|| / ||b||
static double error_of(const float* a, const float* b, size_t count)
{
    double difference = 0.0, size = 0.0;
    for (size_t i = 0; i < count; i++) {
        const double d = (double)a[i] - (double)b[i];
        difference += d * d;
        size += (double)b[i] * (double)b[i];
    }
    return sqrt(difference / size);
}

// The features of the same text by each format, the model opened anew for each.
static bool compare_text(bench* b)
{
    static const sumi_weight_format s_formats[] = {SUMI_WEIGHTS_BF16, SUMI_WEIGHTS_AS_STORED, SUMI_WEIGHTS_INT8,
                                                   SUMI_WEIGHTS_INT4, SUMI_WEIGHTS_FP8}; // fp8: not everywhere
    enum { MAX_ENCODERS = sizeof((sumi_prompt_info){0}.encoders) / sizeof(sumi_prompt_encoder) };
    float* wanted[MAX_ENCODERS] = {NULL};
    bool good = true;
    printf("| %-12s | encoder | %6s | %8s | %9s | %10s |\n"
           "|--------------|--------:|-------:|---------:|----------:|-----------:|\n",
           "text weights", "rows", "ms", "error", "weights MB");
    for (size_t f = 0; f < sizeof s_formats / sizeof *s_formats && good; f++) {
        sumi_engine_destroy(b->engine);
        b->engine = NULL, b->prompt = NULL, b->empty = NULL;
        b->text_weights = s_formats[f];
        text_times times;
        good = open_model(b) && sustain_text(b, b->tokens, b->seconds / 4, &times);
        if (!good) break;
        const sumi_prompt_info info = sumi_prompt_get_info(b->prompt);
        const double held = (double)sumi_engine_get_info(b->engine).held_bytes[SUMI_MEMORY_WEIGHTS];
        for (int32_t e = 0; e < info.encoder_count && good; e++) {
            const sumi_prompt_encoder* its = &info.encoders[e];
            const size_t count = (size_t)its->token_count * (size_t)its->width;
            if (f == 0) {
                wanted[e] = malloc(count * sizeof(float));
                good = wanted[e] != NULL;
                if (good) memcpy(wanted[e], its->features, count * sizeof(float));
            }
            if (good)
                printf("| %-12s | %7d | %6d | %8.2f | %9.5f | %10.0f |\n", synthetic_weights_name(s_formats[f]), (int)e,
                       (int)its->token_count, 1e3 * times.work, error_of(its->features, wanted[e], count), 1e-6 * held);
            fflush(stdout);
        }
    }
    for (int32_t e = 0; e < MAX_ENCODERS; e++) free(wanted[e]);
    return good;
}

// ---- Serving --------------------------------------------------------------------------------------------------------

// What was computed last: PATH holds tensors, PATH.prompt the prompt as a host would save it.
static bool save(bench* b, const char* path)
{
    char prompt_path[1200];
    const sumi_prompt_info prompt = sumi_prompt_get_info(b->prompt);
    synthetic_tensor tensors[4];
    int32_t count = 0;
    for (int32_t e = 0; e < prompt.encoder_count && e < 2; e++) {
        const sumi_prompt_encoder* features = &prompt.encoders[e];
        tensors[count++] = (synthetic_tensor){
            e == 0 ? "features" : "features.1", features->features, 2, {features->token_count, features->width}};
    }
    if (b->has_picture) {
        const sumi_model_info info = sumi_model_get_info(b->model);
        tensors[count++] =
            (synthetic_tensor){"latents",
                               b->latents,
                               3,
                               {info.latent_channels, b->height / info.latent_factor, b->width / info.latent_factor}};
        tensors[count++] = (synthetic_tensor){"picture", b->picture, 3, {b->height, b->width, 3}};
    }
    if (!synthetic_save(path, tensors, count)) return false;
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
    work w = {0};
    sample cold, warm;
    text_times times;
    int32_t count;
    if (sscanf(line, "sustain %d %d %d %lf", &w.side, &w.steps, &w.items, &first) == 4 && w.steps > 0 && w.items > 0
        && w.items <= MAX_BATCH)
        return sustain(b, &w, first, &cold, &warm, &count)
            && printf(
                   "{\"forward\": %.9f, \"decode\": %.9f, \"picture\": %.9f, \"cpu_per_step\": %.9f, \"jobs\": %d}\n",
                   warm.forward, warm.decode, warm.picture, warm.cpu_per_step, count)
                   > 0;
    w = (work){.items = 1, .has_text = true};
    if (sscanf(line, "draw %d %d %lf", &w.side, &w.steps, &first) == 3 && w.steps > 0 && has_text_encoder(b))
        return sustain(b, &w, first, &cold, &warm, &count)
            && printf("{\"forward\": %.9f, \"decode\": %.9f, \"picture\": %.9f, \"jobs\": %d}\n", warm.forward,
                      warm.decode, warm.picture, count)
                   > 0;
    if (sscanf(line, "refer %d", &count) == 1 && is_klein(b) && count >= 0 && count <= most_references(b))
        return b->reference_count = count, printf("{}\n") > 0;
    w = (work){.items = 1, .is_guided = true};
    if (sscanf(line, "guided %d %d %lf", &w.side, &w.steps, &first) == 3 && w.steps > 0)
        return sustain(b, &w, first, &cold, &warm, &count)
            && printf("{\"step\": %.9f, \"decode\": %.9f, \"picture\": %.9f, \"jobs\": %d}\n", warm.forward,
                      warm.decode, warm.picture, count)
                   > 0;
    if (sscanf(line, "sustain_text %d %lf", &w.items, &first) == 2)
        return sustain_text(b, w.items, first, &times)
            && printf("{\"text\": %.9f, \"work\": %.9f, \"jobs\": %d}\n", times.wall, times.work, times.count) > 0;
    if (sscanf(line, "sustain_encode %d %lf", &w.items, &first) == 2 && w.items >= 16 && w.items <= 4096
        && w.items % 32 == 0 && edits(b))
        return sustain_encode(b, w.items, first, &cold.forward, &second, &count)
            && printf("{\"work\": %.9f, \"jobs\": %d}\n", second, count) > 0;
    if (strcmp(line, "text") == 0) return measure_text(b, &first) && printf("{\"text\": %.9f}\n", first) > 0;
    if (strcmp(line, "image") == 0)
        return measure_image(b, false, &first, &second)
            && printf("{\"forward\": %.9f, \"decode\": %.9f}\n", first, second) > 0;
    if (strcmp(line, "flops") == 0)
        return measure_image(b, true, &first, &second)
            && printf("{\"text\": %.0f, \"forward\": %.0f, \"decode\": %.0f}\n", b->flops_text, b->flops_forward,
                      b->flops_decode)
                   > 0;
    if (strcmp(line, "memory") == 0)
        return printf("{\"peak_mb\": %.3f, \"allocator_mb\": %.3f}\n", peak_megabytes(),
                      1e-6 * (double)sumi_engine_get_info(b->engine).host_peak_bytes)
             > 0;
    if (strncmp(line, "save ", 5) == 0) return save(b, line + 5) && printf("{}\n") > 0;
    fprintf(stderr,
            "bench: no command \"%s\"; there are text, image, flops, memory, save PATH, sustain SIDE STEPS ITEMS "
            "SECONDS, draw SIDE STEPS SECONDS (with the text), guided SIDE STEPS SECONDS, sustain_text TOKENS SECONDS, "
            "sustain_encode SIDE SECONDS (of the families that edit), refer COUNT (of klein: pictures that the jobs "
            "after it refer to)\n",
            line);
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

// ---- Arguments ------------------------------------------------------------------------------------------------------

static int usage(void)
{
    fprintf(
        stderr,
        "usage: bench [--synthetic tiny|mid|z-image|qwen-image[-tiny|-mid]|newbie[-tiny|-mid]|klein[-tiny|-mid]|"
        "klein-9b|klein-9b-kv[-tiny]|qwen-image-21[-tiny|-mid] | --model PATH] "
        "[--backend cpu|cuda] [--size WxH] [--tokens N] "
        "[--runs N] [--threads N] [--memory-budget MB] [--float32] [--as CARD]\n"
        "             [--write DIR] [--serve [--encoded-prompt FILE]] [--weights " SYNTHETIC_WEIGHTS
        "] [--text-weights FORMAT] [--attention bf16|8bit] [--slice US]\n"
        "       bench --synthetic "
        "qwen-image[-tiny|-mid]|klein[-tiny|-mid]|klein-9b|klein-9b-kv[-tiny]|qwen-image-21[-tiny|-mid] "
        "[--references N] ...\n"
        "       bench --synthetic z-image|qwen-image[-tiny|-mid] --control NAME[,NAME..] --report ..: control "
        "nets, " SYNTHETIC_CONTROLS "\n"
        "       bench --synthetic NAME [--blocks N] [--without-text-encoder] [--outliers] [--stored " SYNTHETIC_TYPES
        "] ...\n"
        "       bench ... --report [--short] [--sizes N,N,..] [--steps N] [--guided-steps N [--step-cache "
        "auto:DB|every:N|X] [--variant NAME]] [--batch N] [--seconds N] "
        "[--ops]\n"
        "  --threads 0 is every core; --float32 makes synthetic weights float32 instead of bfloat16; --write only "
        "writes the checkpoint\n"
        "  --slice is max_slice_us of the engine, 0 for whole ops; without it the engine's default\n"
        "  --as 8.9[,MULTIPROCESSORS]: on this GPU with the kernels that are for such a card (tests/gpu.md)\n"
        "  --references: pictures refer to N others of 1024 x 1024; with Qwen-Image an edit model, 1 for "
        "Qwen-Image-Edit, 2 or 3 for Edit-Plus; with klein and qwen-image-21 up to 10\n"
        "  --tokens of klein are so many of a prompt's 512 rows\n"
        "  --steps is 8, with klein 4, with qwen-image-21 40 (--variant turbo: 8)\n"
        "  --weights: without it and with a --memory-budget that a synthetic transformer exceeds in bfloat16, a GPU "
        "has "
        "int8, or what --stored says\n"
        "  --blocks cuts the transformer to N blocks and scales the forward; --short leaves out the idle share\n"
        "  --stored: what the blocks' matrices are stored as, and the text encoder's; --outliers: 20 channels before "
        "their products are 15 to 40 times as large as the others\n"
        "       bench ... --compare-text [--tokens N] [--seconds N]\n"
        "  --compare-text: each format of the text encoder's weights: its error against bf16, its time, its memory\n"
        "  --step-cache: the guided picture also with evaluations reused, as that option of the command line\n"
        "  --guided-steps: also a picture of N steps with the authors' guidance, two runs of the network a step; of "
        "NewBie-image Euler's steps, all of them guided, away from the empty text; Z-Image wants --variant base\n");
    return 2;
}

// "1024,768,512"
static bool read_sizes(bench* b, const char* text)
{
    for (b->size_count = 0; *text; b->size_count++) {
        char* end;
        long side = strtol(text, &end, 10);
        if (end == text || (*end && *end != ',') || side < 16 || side > 4096 || side % 16
            || b->size_count == (int32_t)(sizeof b->sizes / sizeof *b->sizes))
            return false;
        b->sizes[b->size_count] = (int32_t)side;
        text = *end ? end + 1 : end;
    }
    return b->size_count > 0;
}

// "z-fun-1.0,z-fun-2.1"
static bool read_controls(bench* b, const char* text)
{
    for (int32_t i = 0; *text; i++) {
        char name[32];
        const size_t bytes = strcspn(text, ",");
        snprintf(name, sizeof name, "%.*s", (int)bytes, text);
        if (i == SYNTHETIC_MAX_CONTROLS) return false;
        b->control_kinds[i] = synthetic_control_find(name);
        if (!b->control_kinds[i]) return false;
        text += bytes + (text[bytes] == ',');
    }
    return b->control_kinds[0] != NULL;
}

// Whether the nets are for this model, and the report is printed that has them.
static bool controls_fit(const bench* b)
{
    for (int32_t i = 0; i < SYNTHETIC_MAX_CONTROLS && b->control_kinds[i]; i++) {
        if (b->synthetic.dim > 0 && b->reports && b->reference_count == 0 && !b->model_path && !b->write_path
            && b->control_kinds[i]->family == b->synthetic.family)
            continue;
        fprintf(stderr,
                "bench: --control %s is for --report and --synthetic %s, without references, --model and "
                "--write\n",
                b->control_kinds[i]->name,
                b->control_kinds[i]->family == SYNTHETIC_Z_IMAGE ? "tiny, mid or z-image" : "qwen-image[-tiny|-mid]");
        return false;
    }
    return true;
}

static bool read_arguments(bench* b, int argc, char** argv)
{
    for (int i = 1; i < argc; i++) {
        const char* name = argv[i];
        bool* flag = strcmp(name, "--float32") == 0              ? &b->float32
                   : strcmp(name, "--serve") == 0                ? &b->serves
                   : strcmp(name, "--report") == 0               ? &b->reports
                   : strcmp(name, "--ops") == 0                  ? &b->shows_ops
                   : strcmp(name, "--short") == 0                ? &b->is_short
                   : strcmp(name, "--without-text-encoder") == 0 ? &b->without_text
                   : strcmp(name, "--outliers") == 0             ? &b->outliers
                   : strcmp(name, "--compare-text") == 0         ? &b->compares_text
                                                                 : NULL;
        if (flag) {
            *flag = true;
            continue;
        }
        if (i + 1 >= argc) return false;
        const char* value = argv[++i];
        if (strcmp(name, "--synthetic") == 0) {
            const synthetic_config* config = synthetic_find(value);
            if (!config) return false;
            b->synthetic = *config;
        } else if (strcmp(name, "--control") == 0) {
            if (!read_controls(b, value)) return false;
        } else if (strcmp(name, "--references") == 0) b->reference_count = atoi(value);
        else if (strcmp(name, "--blocks") == 0) b->blocks = atoi(value);
        else if (strcmp(name, "--variant") == 0) b->variant = value;
        else if (strcmp(name, "--stored") == 0) {
            b->stored = synthetic_type_find(value);
            if (!b->stored || b->stored->block_bytes >= 2 * b->stored->block) return false; // bf16, f32
        } else if (strcmp(name, "--guided-steps") == 0) b->guided_steps = atoi(value);
        else if (strcmp(name, "--step-cache") == 0) {
            if (!parameters_read_step_cache(value, &b->step_cache)) return false;
        } else if (strcmp(name, "--model") == 0) b->model_path = value;
        else if (strcmp(name, "--write") == 0) b->write_path = value;
        else if (strcmp(name, "--encoded-prompt") == 0) b->prompt_path = value;
        else if (strcmp(name, "--size") == 0) {
            if (sscanf(value, "%dx%d", &b->width, &b->height) != 2) return false;
        } else if (strcmp(name, "--tokens") == 0) b->tokens = atoi(value);
        else if (strcmp(name, "--runs") == 0) b->runs = atoi(value);
        else if (strcmp(name, "--threads") == 0) b->threads = atoi(value);
        else if (strcmp(name, "--steps") == 0) b->steps = atoi(value);
        else if (strcmp(name, "--batch") == 0) b->batch = atoi(value);
        else if (strcmp(name, "--slice") == 0) {
            b->slice_us = atoi(value);
            if (b->slice_us < 0) return false;
        } else if (strcmp(name, "--seconds") == 0) b->seconds = atof(value);
        else if (strcmp(name, "--backend") == 0 && (strcmp(value, "cpu") == 0 || strcmp(value, "cuda") == 0))
            b->backend = value[1] == 'p' ? SUMI_BACKEND_CPU : SUMI_BACKEND_CUDA;
        else if (strcmp(name, "--weights") == 0 && synthetic_weights(value, &b->weights)) continue;
        else if (strcmp(name, "--attention") == 0 && strcmp(value, "bf16") == 0) b->attention = SUMI_ATTENTION_BF16;
        else if (strcmp(name, "--attention") == 0 && strcmp(value, "8bit") == 0) b->attention = SUMI_ATTENTION_8BIT;
        else if (strcmp(name, "--text-weights") == 0 && synthetic_weights(value, &b->text_weights)) continue;
        else if (strcmp(name, "--sizes") == 0) {
            if (!read_sizes(b, value)) return false;
        } else if (strcmp(name, "--memory-budget") == 0) b->memory_budget = strtoull(value, NULL, 10) * 1000000u;
        else return false;
    }
    const bool is_turbo = b->variant && strcmp(b->variant, "turbo") == 0;
    if (b->steps == BY_FAMILY) b->steps = is_klein(b) ? 4 : is_qwen_image_21(b) && !is_turbo ? 40 : 8; // the authors'
    if (is_klein(b) && (b->blocks != 0 || b->outliers || b->guided_steps != 0)) {
        fprintf(stderr, "bench: klein has two kinds of blocks, no norms with weights and no guidance: leave out "
                        "--blocks, --outliers and --guided-steps\n");
        return false;
    }
    if (is_qwen_image_21(b) && b->outliers) {
        fprintf(stderr, "bench: qwen-image-21 has no norms with weights before its products: leave out --outliers\n");
        return false;
    }
    if (is_qwen_image_21(b) && b->without_text && b->reference_count > 0) {
        fprintf(stderr, "bench: prompts of qwen-image-21 say where their references stand: leave out "
                        "--without-text-encoder or --references\n");
        return false;
    }
    if (!controls_fit(b)) return false;
    const int32_t multiple = is_qwen_image_21(b) ? 32 : 16;
    bool sizes = b->width >= 16 && b->height >= 16 && b->width <= 4096 && b->height <= 4096 && b->width % multiple == 0
              && b->height % multiple == 0;
    for (int32_t i = 0; i < b->size_count; i++) sizes = sizes && b->sizes[i] % multiple == 0;
    bool report = b->steps > 0 && b->steps <= 1000 && b->batch > 0 && b->batch <= MAX_BATCH && b->seconds >= 0.0;
    const bool is_synthetic = b->synthetic.dim > 0;
    const bool parts =
        (is_synthetic || (b->blocks == 0 && !b->without_text && b->reference_count == 0 && !b->stored && !b->outliers))
        && b->blocks >= 0 && b->blocks <= b->synthetic.layers && b->reference_count >= 0
        && b->reference_count <= most_references(b) && b->guided_steps >= 0 && b->guided_steps <= 1000;
    return (is_synthetic || b->model_path) && parts && sizes && report && b->runs >= 1 && b->runs <= MAX_RUNS
        && b->threads >= 0 && b->tokens > 0 && b->tokens <= MAX_PROMPT && (b->serves || !b->prompt_path);
}

static bool run(bench* b)
{
    size_t pixels = (size_t)b->width * (size_t)b->height;
    for (int32_t i = 0; i < b->size_count; i++) {
        size_t more = (size_t)b->sizes[i] * (size_t)b->sizes[i];
        if (more > pixels) pixels = more;
    }
    b->latent_count = 32 * (pixels / 64); // as many as any model has: 128 channels at a sixteenth of the size
    b->latents = malloc(b->latent_count * sizeof(float));
    b->picture = malloc(pixels * 3 * sizeof(float));
    b->reference = malloc((size_t)REFERENCE_SIDE * REFERENCE_SIDE * 3);
    if (!b->latents || !b->picture || !b->reference) return check(b, SUMI_OUT_OF_HOST_MEMORY, "starting");
    for (size_t i = 0; i < (size_t)REFERENCE_SIDE * REFERENCE_SIDE * 3; i++) // speckled, with a slope
        b->reference[i] = (unsigned char)(i / (REFERENCE_SIDE * 24) + (i * 2654435761u >> 13) % 128);
    for (int32_t i = 0; i < MAX_REFERENCES; i++)
        b->references[i] =
            (sumi_pixels){.data = b->reference, .width = REFERENCE_SIDE, .height = REFERENCE_SIDE, .channel_count = 3};
    b->control_picture.picture = &b->references[0];
    make_text(b, b->tokens);
    if (b->compares_text) return compare_text(b); // opens the model itself
    double ignored;
    if (!open_model(b)
        || !(b->prompt_path    ? load_prompt(b)
             : b->without_text ? make_prompt(b, b->tokens, &b->prompt)
                               : measure_text(b, &ignored))
        || ((is_newbie(b) || b->guided_steps > 0) && has_text_encoder(b) && !encode_empty(b))
        || (b->guided_steps > 0 && b->without_text && !make_empty(b)) || !open_controls(b))
        return false;
    return b->serves ? serve(b) : b->reports ? print_report(b) : print_table(b);
}

int main(int argc, char** argv)
{
    static bench s_b = {.width = 512,
                        .height = 512,
                        .tokens = 128,
                        .runs = 5,
                        .steps = BY_FAMILY,
                        .batch = 4,
                        .seconds = 8.0,
                        .slice_us = -1,
                        .backend = SUMI_BACKEND_CPU};
    if (!pretend_take_argument(&argc, argv)) return 2;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--prompt-file") != 0) continue;
        fprintf(stderr, "bench: --prompt-file is called --encoded-prompt now\n");
        return 2;
    }
    if (!read_arguments(&s_b, argc, argv)) return usage();
    if (s_b.size_count == 0) read_sizes(&s_b, "1024,768,512");
    if (s_b.synthetic.dim > 0 && s_b.model_path) choose_weights(&s_b, &s_b.synthetic);
    if (s_b.synthetic.dim > 0 && !s_b.model_path) {
        synthetic_config config = s_b.synthetic;
        config.float32 = s_b.float32;
        config.references = s_b.reference_count;
        config.stored = s_b.stored;
        config.outliers = s_b.outliers;
        s_b.whole_blocks = config.layers;
        if (s_b.blocks > 0) config.layers = s_b.blocks;
        memcpy(config.controls, s_b.control_kinds, sizeof config.controls);
        s_b.synthetic.stored = s_b.stored;
        memcpy(s_b.synthetic.controls, s_b.control_kinds, sizeof config.controls);
#if defined(_WIN32)
        if (s_b.write_path) {
            fprintf(stderr, "bench: --write is not on Windows: write the checkpoint on Linux and copy it\n");
            return 2;
        }
#else
        if (s_b.write_path) return synthetic_write(s_b.write_path, &config) ? 0 : 1;
#endif
        choose_weights(&s_b, &config);
        s_b.files = synthetic_open(&config);
        if (!s_b.files) return 1;
        s_b.model_path = SYNTHETIC_PATH;
    }
    bool done = run(&s_b);
    sumi_engine_destroy(s_b.engine);
    synthetic_close(s_b.files);
    free(s_b.latents);
    free(s_b.picture);
    free(s_b.reference);
    return done ? 0 : 1;
}
