// Code that generate and encode share: the options of engine and model, an engine whose log is written to stderr, and a
// wait for a job with a progress bar and Ctrl-C.
#ifndef SESSION_H
#define SESSION_H
#include "args.h"
#include "progress.h"
#include "trace.h"

typedef struct session_args {
    const char *model, *transformer, *text_encoder, *text_encoder_2, *tokenizer, *tokenizer_2, *vae, *vision,
        *processor;
    const char* variant;
    int32_t backend;      // sumi_backend
    int32_t weights;      // sumi_weight_format
    int32_t text_weights; // sumi_weight_format
    int32_t attention;    // sumi_attention_format
    int32_t thread_count; // 0: every core
    uint64_t memory_budget_bytes;
    bool quiet, verbose;
} session_args;

// The rows of an option table that fill a session_args.
// clang-format off
#define MODEL_OPTIONS(args)                                                                                                                  \
    {"--model", OPTION_TEXT, &(args)->model, "PATH", "a diffusers folder as released, or one safetensors or GGUF file", 0, 0},               \
    {"--transformer", OPTION_TEXT, &(args)->transformer, "PATH", "folder or file of this part, instead of the model's", 0, 0},               \
    {"--text-encoder", OPTION_TEXT, &(args)->text_encoder, "PATH", "likewise", 0, 0},                                                        \
    {"--tokenizer", OPTION_TEXT, &(args)->tokenizer, "PATH", "likewise; a tokenizer.json or the folder it is in", 0, 0},                     \
    {"--vae", OPTION_TEXT, &(args)->vae, "PATH", "likewise", 0, 0},                                                                          \
    {"--text-encoder-2", OPTION_TEXT, &(args)->text_encoder_2, "PATH", "likewise, of families that have two", 0, 0},                         \
    {"--tokenizer-2", OPTION_TEXT, &(args)->tokenizer_2, "PATH", "its tokenizer", 0, 0},                                                     \
    {"--vision", OPTION_TEXT, &(args)->vision, "PATH",                                                                                       \
     "the vision tower of edit models, where it is not among the text encoder's files", 0, 0},                                               \
    {"--processor", OPTION_TEXT, &(args)->processor, "PATH",                                                                                 \
     "of edit models: a preprocessor_config.json or the folder it is in", 0, 0},                                                             \
    {"--variant", OPTION_TEXT, &(args)->variant, "NAME",                                                                                     \
     "which model of its family it is, for files that do not say so, as 2512 or edit-2511", 0, 0}
#define ENGINE_OPTIONS(args)                                                                                                                 \
    {"--backend", OPTION_CHOICE, &(args)->backend, "auto|cpu|cuda", "what computes", 0, 0},                                                  \
    {"--weights", OPTION_CHOICE, &(args)->weights, "auto|bf16|fp8|as-stored|int8|int4",                                                      \
     "what a GPU holds the transformer's large matrices in; int8 and fp8 take half of bf16's memory, int4 less than a third; as-stored: "     \
     "what their file has, the text encoder's too",                                                                                          \
     0, 0},                                                                                                                                  \
    {"--text-weights", OPTION_CHOICE, &(args)->text_weights, "auto|bf16|fp8|as-stored|int8|int4",                                            \
     "the same of text encoders and vision towers; auto: as-stored where the transformer is, else bf16", 0, 0},                              \
    {"--attention", OPTION_CHOICE, &(args)->attention, "auto|bf16|8bit",                                                                     \
     "what a GPU computes the transformer's attention in; auto: bf16", 0, 0},                                \
    {"--threads", OPTION_COUNT, &(args)->thread_count, "N", "threads of the CPU backend; 0, the default: every core", 0, 1024},              \
    {"--memory-budget", OPTION_BYTES, &(args)->memory_budget_bytes, "BYTES",                                                                 \
     "most memory for intermediate values, as in 500M or 2G, on a GPU with the weights; a short budget decodes the picture in tiles. Without " \
     "--weights, a transformer that exceeds it in bf16 has int8 on a GPU, or what its file has in 10 bits or less",                           \
     0, 0},                                                                                                                                  \
    {"--quiet", OPTION_FLAG, &(args)->quiet, NULL, "no progress, no summary; only failures are told", 0, 0},                                 \
    {"--verbose", OPTION_FLAG, &(args)->verbose, NULL, "the library's log, down to details", 0, 0}
// clang-format on

typedef struct cli_session {
    const session_args* args;
    trace_writer* trace;        // trace of the calls and the engine's work; NULL: none. Set before session_open
    bool slices_are_operations; // so that `seen` of session_run sees every one. Set before session_open
    sumi_engine* engine;
    sumi_model* model;
    cli_progress progress;
    char detail[1024];     // text of the newest error in the log
    char stage_times[128]; // seconds in the last job of session_run: " (text 1.2, denoise 30.1)"
} cli_session;

// Both return EXIT_OK, or print the reason and return another exit code. Zero the session first. session_close may be
// called at any point.
int session_open(cli_session* session, const session_args* args);
int session_load_model(cli_session* session, bool without_text_encoder, bool without_vae_encoder);
void session_close(cli_session* session);

// Works until the job is in a final state and prints its progress; Ctrl-C cancels the job. `seen` (may be NULL) is
// called after every slice. Returns EXIT_OK for a finished job. Otherwise discards the job, prints the reason and returns
// an exit code. `doing` names the work in messages: "loading models/x".
typedef void session_seen(void* context, sumi_job job, const sumi_job_status* status);
int session_run(cli_session* session, sumi_job job, const char* doing, session_seen* seen, void* context);

// Ctrl-C from now on only makes session_is_cancelled true, the first time; session_open() does this.
void session_catch_signals(void);
bool session_is_cancelled(void);

// Prints why `doing` failed, with the newest error of the log. Returns the exit code for this result.
int session_fail(cli_session* session, sumi_result result, const char* doing);
// Writes the last name of a path, without .safetensors, .gguf or .png.
void name_of_path(const char* path, char* into, size_t capacity);
#endif
