#include "session.h"
#include "budget_weights.h"
#include "files.h"
#include "needs.h"
#include "system.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define WAIT_MS 50          // of work between two checks of progress and Ctrl-C
#define PREVIEW_WAIT_US 500 // sleep between two updates of a GPU job; its steps take longer
// A tool draws no frames: long slices cost less throughput, and 0.1 s is still a quick reaction to Ctrl-C.
#define MAX_SLICE_US 100000

// A signal handler can use only global variables. The second Ctrl-C meets the default handler, which ends the process.
static volatile sig_atomic_t s_cancelled;

static void on_signal(int number)
{
    signal(number, SIG_DFL);
    s_cancelled = 1;
}

void session_catch_signals(void)
{
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
}

bool session_is_cancelled(void) { return s_cancelled != 0; }

static void write_log(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    static const char* const s_names[] = {"error", "warning", "info", "debug"};
    cli_session* session = user_data;
    (void)result;
    // kept, and printed with the failure that it explains
    if (level == SUMI_LOG_ERROR) snprintf(session->detail, sizeof session->detail, "%s", text);
    bool wanted = session->args->verbose || (level == SUMI_LOG_WARNING && !session->args->quiet);
    if (!wanted) return;
    progress_clear(&session->progress);
    fprintf(stderr, "sumi: %s: %s\n", s_names[level], text);
}

int session_open(cli_session* session, const session_args* args)
{
    session->args = args;
    progress_begin(&session->progress, args->quiet);
    session_catch_signals();
    sumi_engine_desc desc = sumi_engine_defaults();
    desc.backend = (sumi_backend)args->backend;
    desc.cpu_thread_count = args->thread_count;
    desc.memory_budget_bytes = args->memory_budget_bytes;
    desc.max_slice_us = session->slices_are_operations ? 0 : MAX_SLICE_US;
    desc.job_capacity = 32; // 16 adapters load beside the model
    desc.log.write = write_log;
    desc.log.user_data = session;
    const sumi_tracer tracer = session->trace ? trace_tracer(session->trace) : (sumi_tracer){0};
    desc.tracer = &tracer;
    const double began = progress_clock();
    sumi_result result = sumi_engine_create(&desc, &session->engine);
    if (result == SUMI_OK && args->verbose)
        fprintf(stderr, "sumi: starting the engine: %.2f s\n", progress_clock() - began);
    if (result == SUMI_OK) return EXIT_OK;
    return session_fail(session, result,
                        args->backend == SUMI_BACKEND_CUDA ? "starting the CUDA backend" : "starting the engine");
}

void session_close(cli_session* session)
{
    progress_clear(&session->progress);
    sumi_engine_destroy(session->engine);
    session->engine = NULL;
    session->model = NULL;
}

// The options behind the members of descs that messages of the library begin with.
static const struct member_option {
    const char *member, *option;
    bool is_of_model; // what the member may be depends on the model, and not on the machine
} s_options[] = {
    {"width", "--size", true},
    {"height", "--size", true},
    {"step_count", "--steps", true},
    {"guidance.norm_limit", "--guidance-norm", true},
    {"start.image", "--image", true},
    {"start.latents", "--latents", true},
    {"start.posterior", "--posterior", true},
    {"references", "--reference", true},
    {"reference_count", "--reference", true},
    {"loras", "--lora", true},
    {"controls", "--control", true},
    {"variant", "--variant", true},
    {"text_encoder_path", "--text-encoder", true},
    {"tokenizer_path", "--tokenizer", true},
    {"text_encoder_2_path", "--text-encoder-2", true},
    {"tokenizer_2_path", "--tokenizer-2", true},
    {"vision_path", "--vision", true},
    {"processor_path", "--processor", true},
    {"vae_path", "--vae", true},
    {"text_weights", "--text-weights", false},
    {"memory_budget_bytes", "--memory-budget", false},
};

static const struct member_option* find_option(const char* message)
{
    const size_t bytes = strspn(message, "abcdefghijklmnopqrstuvwxyz_0123456789.");
    for (size_t i = 0; i < sizeof s_options / sizeof *s_options; i++) {
        const char* member = s_options[i].member;
        if (strlen(member) == bytes && memcmp(member, message, bytes) == 0) return &s_options[i];
    }
    return NULL;
}

// Whether the message has this member as a whole word.
static bool names_member(const char* message, const char* member)
{
    static const char s_letters[] = "abcdefghijklmnopqrstuvwxyz_0123456789";
    const size_t bytes = strlen(member);
    for (const char* at = message; (at = strstr(at, member)) != NULL; at += bytes) {
        const bool begins = at == message || !strchr(s_letters, at[-1]);
        if (begins && (at[bytes] == 0 || !strchr(s_letters, at[bytes]))) return true;
    }
    return false;
}

// The options behind the paths that a message asks for.
static void print_path_options(const char* message)
{
    const char* between = "  the options are ";
    for (size_t i = 0; i < sizeof s_options / sizeof *s_options; i++) {
        const char* member = s_options[i].member;
        if (!strstr(member, "_path") || !names_member(message, member)) continue;
        fprintf(stderr, "%s%s", between, s_options[i].option);
        between = ", ";
    }
    if (between[0] == ',') fprintf(stderr, "\n");
}

int session_fail(cli_session* session, sumi_result result, const char* doing)
{
    progress_clear(&session->progress);
    doing = shown(doing); // which names a path
    if (result == SUMI_CANCELLED || s_cancelled) {
        fprintf(stderr, "sumi: cancelled while %s\n", doing);
        return EXIT_CANCELLED;
    }
    // For these two results sumi_result_text only points to the log, so the text of the log is printed instead.
    bool detail_says_all = session->detail[0] && (result == SUMI_INVALID_ARGUMENT || result == SUMI_NOT_SUPPORTED);
    fprintf(stderr, "sumi: %s failed: %s\n", doing, detail_says_all ? session->detail : sumi_result_text(result));
    if (session->detail[0] && !detail_says_all) fprintf(stderr, "  %s\n", session->detail);
    const bool is_absent =
        result == SUMI_NOT_SUPPORTED || (result >= SUMI_NO_DEVICE && result <= SUMI_DEVICE_UNSUPPORTED);
    if (is_absent && session->args->backend == SUMI_BACKEND_CUDA)
        fprintf(stderr, "  --backend cpu works on every machine\n");
    const struct member_option* option = find_option(session->detail);
    // What could be smaller, a prompt, an image, a batch or the references, is in the detail.
    if (result == SUMI_BUDGET_TOO_SMALL && !option) fprintf(stderr, "  the option is --memory-budget\n");
    if (option) fprintf(stderr, "  the option is %s\n", option->option);
    else print_path_options(session->detail);
    // A wish that this model cannot fulfil is a wrong argument, too.
    const bool is_wrong =
        result == SUMI_INVALID_ARGUMENT || (result == SUMI_NOT_SUPPORTED && option && option->is_of_model);
    return is_wrong ? EXIT_USAGE : EXIT_FAILED;
}

static void note_stage_times(cli_session* session, const sumi_job_status* status)
{
    size_t used = 0;
    session->stage_times[0] = 0;
    for (int stage = SUMI_STAGE_LOAD; stage < SUMI_STAGE_COUNT; stage++) {
        float seconds = status->stage_seconds[stage];
        if (seconds < 0.05f || used >= sizeof session->stage_times) continue;
        int written = snprintf(session->stage_times + used, sizeof session->stage_times - used, "%s%s %.1f",
                               used ? ", " : " (", progress_stage_name((sumi_stage)stage), (double)seconds);
        if (written > 0) used += (size_t)written;
    }
    if (used > 0 && used + 1 < sizeof session->stage_times) memcpy(session->stage_times + used, ")", 2);
}

static bool is_final(sumi_job_state state) { return state == SUMI_JOB_NONE || state >= SUMI_JOB_DONE; }

// Works for a short time, or waits for a GPU. With is_watched an update gets a budget of 1 us and so runs one slice,
// and the caller sees every preview.
static void work(cli_session* session, sumi_job job, bool is_watched)
{
    const uint64_t begin = system_clock_ns();
    if (!is_watched) {
        sumi_job_wait(session->engine, job, WAIT_MS);
    } else {
        sumi_engine_update(session->engine, 1);
        if (sumi_engine_get_info(session->engine).compute_capability > 0) system_sleep_us(PREVIEW_WAIT_US);
    }
    if (session->trace)
        trace_call(session->trace, is_watched ? "sumi_engine_update" : "sumi_job_wait", begin, system_clock_ns());
}

int session_run(cli_session* session, sumi_job job, const char* doing, session_seen* seen, void* context)
{
    bool asked = false;
    const double began = progress_clock();
    sumi_job_status status = sumi_job_poll(session->engine, job);
    while (!is_final(status.state)) {
        if (s_cancelled && !asked) {
            asked = true;
            sumi_job_cancel(session->engine, job);
        }
        work(session, job, seen != NULL);
        status = sumi_job_poll(session->engine, job);
        progress_show(&session->progress, &status);
        if (seen) seen(context, job, &status);
    }
    progress_clear(&session->progress);
    note_stage_times(session, &status);
    if (session->args->verbose)
        fprintf(stderr, "sumi: %s: %.2f s%s\n", shown(doing), progress_clock() - began, session->stage_times);
    if (status.state == SUMI_JOB_DONE && !s_cancelled) return EXIT_OK;
    if (status.message && status.message[0]) snprintf(session->detail, sizeof session->detail, "%s", status.message);
    int code = session_fail(session, status.state == SUMI_JOB_CANCELLED || s_cancelled ? SUMI_CANCELLED : status.result,
                            doing);
    sumi_job_discard(session->engine, job);
    return code;
}

// The format that was asked for; without one, what suits the memory budget on a GPU.
static sumi_weight_format choose_weights(cli_session* session)
{
    const session_args* args = session->args;
    const bool is_gpu = sumi_engine_get_info(session->engine).compute_capability > 0;
    if (args->weights != SUMI_WEIGHTS_AUTO || args->memory_budget_bytes == 0 || !is_gpu)
        return (sumi_weight_format)args->weights;
    char text[BUDGET_WEIGHTS_TEXT_BYTES];
    budget_weights_desc desc = {.budget_bytes = args->memory_budget_bytes};
    const sumi_network_desc network = {.path = args->model,
                                       .transformer_path = args->transformer,
                                       .vae_path = args->vae,
                                       .variant = args->variant,
                                       .without_text_encoder = true,
                                       .without_vae_encoder = true};
    needs_count_transformer(&network, &desc.values, &desc.bytes);
    const sumi_weight_format weights = budget_weights(&desc, text);
    if (text[0] != 0 && !args->quiet) {
        progress_clear(&session->progress);
        fprintf(stderr, "sumi: %s\n", text);
    }
    return weights;
}

int session_load_model(cli_session* session, bool without_text_encoder, bool without_vae_encoder)
{
    const session_args* args = session->args;
    sumi_model_desc desc = sumi_model_defaults();
    desc.path = args->model;
    desc.transformer_path = args->transformer;
    desc.text_encoder_path = args->text_encoder;
    desc.tokenizer_path = args->tokenizer;
    desc.vae_path = args->vae;
    desc.text_encoder_2_path = args->text_encoder_2;
    desc.tokenizer_2_path = args->tokenizer_2;
    desc.vision_path = args->vision;
    desc.processor_path = args->processor;
    desc.variant = args->variant;
    desc.weights = choose_weights(session);
    desc.text_weights = (sumi_weight_format)args->text_weights;
    desc.attention = (sumi_attention_format)args->attention;
    desc.without_text_encoder = without_text_encoder;
    desc.without_vae_encoder = without_vae_encoder;
    char doing[600];
    snprintf(doing, sizeof doing, "loading %s", args->model ? args->model : args->transformer);
    sumi_job job;
    sumi_result result = sumi_submit_model(session->engine, &desc, &job);
    if (result != SUMI_OK) return session_fail(session, result, doing);
    int code = session_run(session, job, doing, NULL, NULL);
    if (code != EXIT_OK) return code;
    result = sumi_fetch_model(session->engine, job, &session->model);
    return result == SUMI_OK ? EXIT_OK : session_fail(session, result, doing);
}

void name_of_path(const char* path, char* into, size_t capacity)
{
    static const char* const s_endings[] = {".safetensors", ".gguf", ".png"};
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    size_t begin = length;
    while (begin > 0 && path[begin - 1] != '/') begin--;
    snprintf(into, capacity, "%.*s", (int)(length - begin), path + begin);
    for (size_t i = 0; i < sizeof s_endings / sizeof *s_endings; i++) {
        size_t name_bytes = strlen(into), ending_bytes = strlen(s_endings[i]);
        if (name_bytes > ending_bytes && strcmp(into + name_bytes - ending_bytes, s_endings[i]) == 0)
            into[name_bytes - ending_bytes] = 0;
    }
}
