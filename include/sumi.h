// sumi: images from diffusion transformers, inside your program.
//
// sumi runs image models inside a host program: a game, a paint tool or an engine plug-in that links sumi and has other
// work to do. The host program decides how much of each frame sumi may use. sumi never prints and never ends the
// process. It uses its own memory, threads and files unless the host program offers others, and gives everything back.
//
// The first part of this header is what most programs need, in the order of use: what an image is made of, rules,
// engine, models, jobs, images. The second part is the rest: services, memory, time, the queue, encoded prompts,
// adapters, control nets, references, textures of graphics APIs, tracing, and at its end what has not run on hardware
// yet. sumi_xml.h, which is optional, writes prompts in XML.
//
// There are two ways to use sumi. Both work with the same objects, and a program may mix them.
//
//   Jobs          Everything slow is a job. The host program submits the job, lets it work a little in every frame,
//                 polls its progress, and fetches the product.
//   Simple calls  For tools: sumi_open_model() and sumi_generate() each submit one job, wait for it and fetch it.
//
// A complete program with jobs:
//
//     #include <sumi.h>
//     #include <stdio.h>
//
//     int main(void)
//     {
//         sumi_engine_desc engine_desc = sumi_engine_defaults();
//         sumi_engine* engine;
//         if (sumi_engine_create(&engine_desc, &engine) != SUMI_OK) return 1;
//
//         sumi_model_desc model_desc = sumi_model_defaults();
//         model_desc.path = "models/Z-Image-Turbo";                   // a diffusers folder as released
//         sumi_job job;
//         sumi_model* model = NULL;
//         sumi_result result = sumi_submit_model(engine, &model_desc, &job);
//         if (result == SUMI_OK) result = sumi_job_wait(engine, job, SUMI_FOREVER); // a game polls, as below
//         if (result == SUMI_OK) result = sumi_fetch_model(engine, job, &model);
//
//         sumi_image_item item = {0};
//         item.text = "a lighthouse at dusk, ink wash";
//         item.seed = 7;
//         sumi_image_desc image_desc = sumi_image_defaults(model, SUMI_PRESET_MODEL);
//         image_desc.items = &item;
//         image_desc.item_count = 1;
//         if (result == SUMI_OK) result = sumi_submit_images(engine, &image_desc, &job);
//         while (result == SUMI_OK) {                                 // one pass per frame of the host program
//             sumi_engine_update(engine, 4000);                       // about 4 ms of work for this frame
//             sumi_job_status status = sumi_job_poll(engine, job);
//             if (status.state >= SUMI_JOB_DONE) break;
//             fprintf(stderr, "\r%3.0f %%", 100.0f * status.progress); // or draw sumi_job_preview()
//             // here the host program draws its frame and waits for the display
//         }
//         sumi_image image;
//         if (result == SUMI_OK) result = sumi_fetch_images(engine, job, &image, 1);
//         if (result == SUMI_OK) fwrite(image.pixels, 1, (size_t)image.row_bytes * image.height, stdout); // RGBA8
//         else fprintf(stderr, "%s\n", sumi_result_text(result));
//         sumi_engine_destroy(engine);                                // frees models, jobs and images too
//         return result == SUMI_OK ? 0 : 1;
//     }
//
// The same with simple calls, once there is an engine (samples/hello is the whole program):
//
//     sumi_model* model;
//     sumi_image image;
//     sumi_result result = sumi_open_model(engine, "models/Z-Image-Turbo", &model);
//     if (result == SUMI_OK) result = sumi_generate(engine, model, "a lighthouse at dusk, ink wash", 7, &image);
//
// ---- What an image is made of ---------------------------------------------------------------------------------------
//
// A checkpoint is the files of a model, for example a folder as the diffusers library saves it. It has components. The
// text encoder turns the tokens of a prompt into features. The transformer turns noise into latents, guided by these
// features. The VAE (variational autoencoder) has a decoder, which turns latents into pixels, and an encoder, which
// turns pixels into latents.
//
// Latents     The small representation of an image that the transformer works on: float32 [channel][y][x], with
//             latent_channels channels, height / latent_factor rows and width / latent_factor columns. sumi_model_info
//             has latent_channels and latent_factor. Comments write [channel][y][x] for this shape.
// Steps       The transformer removes the noise in several denoising steps. In each step, the solver moves the latents
//             from one noise level, called sigma (1: pure noise, 0: no noise), to a lower one. A step takes one or more
//             evaluations. An evaluation is a run of the transformer; its output is called a prediction.
// Guidance    With guidance, an evaluation is two runs: one with the prompt (positive) and one with a negative prompt.
//             Their predictions are combined into one that is farther from the negative one than the positive one is.
// Plan        sumi computes a job from a plan: a list of operations on matrices. It is made for one shape of job:
//             model, sizes, steps, lengths of the prompts, guidance, control nets and adapters (LoRA and LoKr files:
//             small changes of weights). The other matrices (intermediate values) share one block of memory: the arena.
//
// ---- Rules ----------------------------------------------------------------------------------------------------------
//
// Slices      sumi works in slices of about sumi_engine_desc.max_slice_us microseconds. Nothing interrupts a slice.
// Threads     Any thread may call an engine and its objects, but only one thread at a time. If several threads call,
//             use a mutex. A call that waits counts too: while one thread is inside sumi_job_wait, no other may submit
//             or fetch. Comments mark two exceptions:
//               Free call     may run at the same time as other calls of the engine. The only exception is
//                             sumi_engine_destroy: before it, stop making free calls.
//               At any time   the function uses no engine, and any thread may call it at any time.
//             Engines share nothing and need no coordination. sumi changes no setting of the process.
// Blocking    A call blocks only if its comment says so. Every other call waits for no thread, no slice, no file and no
//             GPU; it takes as long as copying its arguments and results.
//               Some calls block until the running slice has ended. With SUMI_PUMP_UPDATE none can be running. With
//             SUMI_PUMP_THREAD the wait takes about max_slice_us on the CPU, at most 20 ms on a GPU, and while a file
//             is read, the time of one call of sumi_files.read. If such a call frees memory that the GPU uses, it also
//             waits until the GPU has finished the submitted work.
// Callbacks   sumi calls the host program's services (log, allocators, files, tasks, tracer, completion) in the middle
//             of a call or of a slice. A callback may make free calls, calls marked "at any time", and calls of other
//             engines. Any other call of the same engine is refused, because it would wait for itself: it returns
//             SUMI_WRONG_STATE, or does nothing if it returns no result, and the log is told (unless the log made the
//             call). A callback must not wait for another thread that is inside the engine. It must return: no C++
//             exception or longjmp may leave it.
// Processes   After a fork, the child process has the engine's memory but not its threads. In the child, every call of
//             the engine is refused as in a callback (sumi_job_poll returns SUMI_JOB_NONE), and sumi_engine_destroy
//             frees nothing. Create engines after the fork.
// Descs       A desc is a struct of parameters. Get each one from its ..._defaults() function, which also sets its
//             cookie. A desc from elsewhere is refused with SUMI_DESC_NOT_INITIALIZED. A call copies everything that
//             its desc points to, and a job keeps its encoded prompts, so you may free all of it when the call returns.
//             Exceptions: models, adapters, nets and externals are not copied; releasing one cancels the jobs that use
//             it. sumi_target says how long the memory that it names must live. In sumi_engine_desc, the context, the
//             stream and what a user_data points to must live as long as the engine.
// Failure     Every failure is a sumi_result. sumi_result_text() returns a sentence that says what to do. Details
//             (file, tensor, value) go to the engine's log and, for jobs, to sumi_job_status.message. After any failure
//             except SUMI_DEVICE_LOST the engine still works. After that one, destroy the engine, create your CUDA
//             context again if you gave one, and create another engine. Output parameters mean something only after
//             SUMI_OK, unless the comment says otherwise. With NULL for the engine, a function returns
//             SUMI_INVALID_ARGUMENT or zeros, or does nothing if it returns nothing. A defaults function that gets NULL
//             for the model returns a desc that the submit refuses.
// Strings     UTF-8, zero-terminated. Invalid UTF-8 in a prompt is read as U+FFFD. Messages (sumi_log,
//             sumi_job_status.message, sumi_engine_last_error) may quote names from files, and are safe to print: each
//             byte of a control character (line ends too) and each byte that is not UTF-8 is written as \xNN.
//
// ---- Versions -------------------------------------------------------------------------------------------------------
//
// A version is major.minor.patch. A program that is compiled with the header of one version may run with the library of
// another one, above all if it loads the library by name. Such a program calls sumi_check_version(SUMI_VERSION_NUMBER)
// first, and continues only if that function exists and returns SUMI_OK.
//
// Patch       Patch versions change no declaration. A program works with all patch versions of its minor version.
// Minor       Minor versions may add functions, members and enum values. Compile the program again, because structs may
//             have grown (descs too: their defaults functions return them by value). Before version 1.0 they may also
//             rename and remove; CHANGELOG.md lists it.
// Structs     Structs whose name ends in _desc grow only at their end, and their cookie stays first. A binding to
//             another language therefore appends members and never moves any. All other structs are frozen within a
//             minor version and may change in the next one: those that functions return, those that a desc points to,
//             and those that are members or array elements of others. Only those nested in a desc (sumi_guidance,
//             sumi_noise, sumi_image_start, sumi_log and so on) keep their size then too, so that no member moves.
// Enums       The number of an enum value never changes, and no other value gets it.
// Layout      All struct layouts are those of 64-bit platforms; Linux and Windows have the same.
#ifndef SUMI_H
#define SUMI_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#ifndef SUMI_API
// Empty for the static library and for programs that load the shared one by name. A program that links against the
// import library of sumi.dll defines it as __declspec(dllimport).
#define SUMI_API
#endif

#define SUMI_VERSION_MAJOR 0
#define SUMI_VERSION_MINOR 2
#define SUMI_VERSION_PATCH 0
// One number that grows with every version: 1.2.3 is 1002003.
#define SUMI_VERSION_NUMBER (SUMI_VERSION_MAJOR * 1000000u + SUMI_VERSION_MINOR * 1000u + SUMI_VERSION_PATCH)

#define SUMI_FOREVER UINT32_MAX // no limit, for timeouts in milliseconds and budgets in microseconds

// ---- Results: stable numbers, grouped in tens -----------------------------------------------------------------------
typedef enum sumi_result {
    SUMI_OK = 0,
    // the caller
    SUMI_INVALID_ARGUMENT = 1,     // a value is out of range, or NULL where it may not be; the log names the member
    SUMI_DESC_NOT_INITIALIZED = 2, // the desc was not made by its ..._defaults() function
    SUMI_STALE_HANDLE = 3,         // the job was fetched (only once: keep its product) or discarded, or never existed
    // the job is not done yet, or is of another kind than this fetch; what you asked for does not exist yet (a preview,
    // a GL context); or the call came from a callback or a forked process (see the rules)
    SUMI_WRONG_STATE = 4,
    SUMI_QUEUE_FULL = 5,       // job_capacity jobs exist; fetch or discard one
    SUMI_NOT_SUPPORTED = 6,    // the request is valid, but this build, backend or model does not support it
    SUMI_VERSION_MISMATCH = 7, // the program was compiled with the header of another version
    SUMI_BUSY = 8,             // the copy into this external has not ended; nothing was done, try in a later frame
    // memory
    SUMI_OUT_OF_HOST_MEMORY = 10,   // the allocator returned NULL
    SUMI_OUT_OF_DEVICE_MEMORY = 11, // the device has no free memory, or the device allocator returned 0
    SUMI_BUDGET_TOO_SMALL = 12,     // too small for the job's smallest form; sumi_image_memory returns what it needs
    // files
    SUMI_FILE_NOT_FOUND = 20,
    SUMI_FILE_READ_FAILED = 21, // the system, or sumi_files.read, could not read bytes that are there
    SUMI_FILE_TRUNCATED = 22,   // the file ends before its content does
    SUMI_FILE_MALFORMED = 23,   // the file breaks the rules of its format
    // models
    SUMI_MODEL_UNKNOWN = 30,   // these files hold no model of a supported family
    SUMI_TENSOR_MISSING = 31,  // the model needs a tensor that none of its files has; the log names it
    SUMI_TENSOR_MISMATCH = 32, // a tensor has another shape or type than the model needs
    SUMI_LORA_NO_MATCH = 33,   // the adapter names layers that this model does not have
    SUMI_TEXT_INVALID = 34,    // a prompt's references leave no room for its text; sumi_xml.h: a text is not UTF-8
    // devices
    SUMI_NO_DEVICE = 40,          // no driver, no GPU, or none with the requested ordinal, uuid or luid
    SUMI_DRIVER_TOO_OLD = 41,     // the driver is older than CUDA 11.4
    SUMI_DEVICE_UNSUPPORTED = 42, // the GPU is older than compute capability 8.0
    SUMI_DEVICE_LOST = 43,        // the GPU was reset, a kernel in its context failed, or the driver's error is unknown
    // jobs
    SUMI_CANCELLED = 50,  // by sumi_job_cancel, or because an object that the job uses was released
    SUMI_TIMEOUT = 51,    // sumi_job_wait reached its timeout; the job continues
    SUMI_NOT_FINITE = 52, // the image holds NaN or infinity; it is not returned
    SUMI_INTERNAL = 90    // a bug in sumi; please report the message
} sumi_result;

// Returns one sentence that says what to do. The text is static and never NULL, even for unknown numbers. At any time.
SUMI_API const char* sumi_result_text(sumi_result result);

// Returns the version of the library, for example "0.2.0", which may differ from the header's. The text is static. This
// declaration and the next are the same in all versions. At any time.
SUMI_API const char* sumi_version(void);
// Pass SUMI_VERSION_NUMBER. Returns SUMI_OK if the library has the same major and minor version, otherwise
// SUMI_VERSION_MISMATCH. At any time.
SUMI_API sumi_result sumi_check_version(uint32_t header_version);

// ---- Objects --------------------------------------------------------------------------------------------------------
// Each object belongs to the engine that it was made with. sumi_engine_destroy() frees objects that were not released.
typedef struct sumi_engine sumi_engine;     // a backend and the services of the host program
typedef struct sumi_model sumi_model;       // an opened checkpoint
typedef struct sumi_prompt sumi_prompt;     // an encoded prompt; a game can ship it instead of the text encoder
typedef struct sumi_lora sumi_lora;         // an adapter (LoRA, LoKr): a small change of weights, applied per job
typedef struct sumi_external sumi_external; // a texture, buffer or semaphore of the host program's graphics API

// A job is a number that is never used twice; {0} means none. The handle of a freed job is stale: calls refuse it.
typedef struct sumi_job {
    uint64_t id;
} sumi_job;

// Structs that descs point to and that are declared farther below.
typedef struct sumi_allocator sumi_allocator;
typedef struct sumi_device_allocator sumi_device_allocator;
typedef struct sumi_files sumi_files;
typedef struct sumi_tasks sumi_tasks;
typedef struct sumi_completion sumi_completion;
typedef struct sumi_tracer sumi_tracer;
typedef struct sumi_lora_use sumi_lora_use;
typedef struct sumi_control_use sumi_control_use;
typedef struct sumi_target sumi_target;
struct CUctx_st; // the CUDA driver's CUcontext and CUstream are pointers to these two
struct CUstream_st;

// ---- Engine ---------------------------------------------------------------------------------------------------------
typedef enum sumi_log_level {
    SUMI_LOG_ERROR = 0,
    SUMI_LOG_WARNING = 1,
    SUMI_LOG_INFO = 2,
    SUMI_LOG_DEBUG = 3
} sumi_log_level;
// sumi never prints; its messages go here. Without a log, only sumi_engine_last_error tells why a call was refused, and
// it keeps only the newest failure. `text` is valid during the call. Must be thread-safe: it is called on the threads
// that call the engine and on those of sumi, and by several at once if free calls fail while other calls run.
typedef struct sumi_log {
    void (*write)(sumi_log_level level, sumi_result result, const char* text, void* user_data);
    void* user_data;
} sumi_log;

typedef enum sumi_backend {
    SUMI_BACKEND_AUTO = 0, // a GPU if this build and this machine have one, otherwise the CPU
    SUMI_BACKEND_CPU = 1,  // float32 arithmetic; the reference that the others are tested against
    SUMI_BACKEND_CUDA = 2  // an NVIDIA GPU of compute capability 8.0 or newer; bfloat16 values, float32 sums
} sumi_backend;

typedef enum sumi_pump {
    // Work advances inside sumi_engine_update and the calls that wait, on the calling thread and on the tasks or
    // threads that the desc names.
    SUMI_PUMP_UPDATE = 0,
    // A low-priority thread of sumi advances the work. sumi_engine_update then does nothing.
    SUMI_PUMP_THREAD = 1
} sumi_pump;

typedef struct sumi_engine_desc {
    uint32_t cookie; // set by sumi_engine_defaults(); leave it alone
    sumi_backend backend;
    // For CUDA. The device is that of `context`; without one, the first that matches all of ordinal, uuid and luid that
    // you give. If they name another device than the context's: SUMI_INVALID_ARGUMENT. Every call leaves the calling
    // thread's current CUDA context as it found it. On the CPU anything but the defaults is SUMI_NOT_SUPPORTED.
    struct {
        int32_t ordinal;          // -1: any
        const uint8_t* uuid;      // 16 bytes, or NULL
        const uint8_t* luid;      // 8 bytes (Direct3D 12), or NULL
        struct CUctx_st* context; // NULL: the device's primary context
        // NULL: a non-blocking stream of sumi with the lowest priority. sumi never uses CUDA's NULL stream, and refuses
        // a stream that is being captured.
        struct CUstream_st* stream;
    } cuda;
    sumi_log log;
    // See "Services of the host program". NULL: sumi's own. sumi_engine_create copies the structs.
    const sumi_allocator* allocator;               // host memory
    const sumi_device_allocator* device_allocator; // GPU memory
    const sumi_files* files;                       // reads checkpoints, for example out of archives
    const sumi_tasks* tasks;                       // the job system that runs loops of the CPU backend
    const sumi_completion* completion;             // is called when a job has finished
    const sumi_tracer* tracer;                     // is told what was done and when
    sumi_pump pump;
    int32_t job_capacity; // jobs that may exist at once, 1..4096; sumi_engine_create allocates their job slots
    // No slice is predicted to take longer than this. Smaller slices cost throughput. 0: a slice is a whole operation.
    // Results do not depend on it. See "Time".
    uint32_t max_slice_us;
    // The most memory that a job may take for intermediate values (CPU), or that the engine may allocate on the device
    // (GPU). 0: no limit. What does not fit is streamed or computed in tiles, more slowly. See "Memory".
    uint64_t memory_budget_bytes;
    // Threads that work on a loop without `tasks` (with a GPU: uploads, resizes); the calling thread is one of them. 1:
    // no hidden thread; the log mentions it if the machine has more processors. 0: one per logical processor.
    int32_t cpu_thread_count;
} sumi_engine_desc;

// Returns the AUTO backend, no log, sumi's own services, SUMI_PUMP_UPDATE, 16 jobs, slices of 2 ms, no memory limit,
// one thread. At any time.
SUMI_API sumi_engine_desc sumi_engine_defaults(void);

// Creates an engine, which the host program ends with sumi_engine_destroy. If AUTO finds no usable GPU it takes the
// CPU, and the log says why. On failure *out_engine is NULL and nothing is left behind. At any time. Blocks for a few
// milliseconds; for some hundred if the process has not used the CUDA driver before.
//
// Failures: SUMI_INVALID_ARGUMENT, SUMI_DESC_NOT_INITIALIZED, SUMI_OUT_OF_HOST_MEMORY; SUMI_NOT_SUPPORTED for a
// backend, or a service of a backend, that this build lacks. With SUMI_BACKEND_CUDA also SUMI_NO_DEVICE,
// SUMI_DRIVER_TOO_OLD, SUMI_DEVICE_UNSUPPORTED and SUMI_OUT_OF_DEVICE_MEMORY.
SUMI_API sumi_result sumi_engine_create(const sumi_engine_desc* desc, sumi_engine** out_engine);

// Cancels all jobs and frees all that the engine still holds: jobs, models, prompts, adapters, nets, externals, and
// images. No other call of this engine may run meanwhile, not even a free call. If OpenGL textures are imported, the GL
// context must be current on the calling thread. Accepts NULL. Blocks until the running slice has ended, the GPU has
// finished the submitted work (copies into externals too), and the GPU's kernels are loaded.
SUMI_API void sumi_engine_destroy(sumi_engine* engine);

// Advances jobs by about budget_us microseconds of work, the time budget: slices run while their predicted time still
// fits. The budget may change every frame; results do not depend on it. 0 is a pause: the call only ends cancelled
// jobs. SUMI_FOREVER works until no job has anything left to do. Does nothing with SUMI_PUMP_THREAD. sumi_job_poll
// reports failures of jobs; sumi_job_list tells whether jobs are left. Blocks for about the budget on the CPU. On a GPU
// it submits work and returns, usually after 0.25 ms, except with SUMI_FOREVER. "Time" has the exact promises.
SUMI_API void sumi_engine_update(sumi_engine* engine, uint32_t budget_us);

// Copies the text of the newest failure on any thread (a refused call, a failed job) for host programs without a log.
// Returns the result of that failure; SUMI_OK and "" if nothing has failed yet. Texts take at most 512 bytes with the
// terminating zero; a text that is longer than `capacity` (bytes) is cut. If sumi_engine_create fails there is no
// engine to ask: it writes to sumi_engine_desc.log. Free call. Failures: SUMI_INVALID_ARGUMENT if engine is NULL;
// SUMI_WRONG_STATE in a child process after a fork.
SUMI_API sumi_result sumi_engine_last_error(const sumi_engine* engine, char* into, size_t capacity);

// ---- Models ---------------------------------------------------------------------------------------------------------
// The format in which a GPU holds weights. The CPU backend reads all files but takes only AUTO and AS_STORED here; the
// rest is SUMI_NOT_SUPPORTED. See "Formats of weights".
typedef enum sumi_weight_format {
    SUMI_WEIGHTS_AUTO = 0,      // bfloat16 if the GPU is large enough, otherwise the file's own format or INT8
    SUMI_WEIGHTS_BF16 = 1,      // bfloat16
    SUMI_WEIGHTS_FP8 = 2,       // 8-bit floats; compute capability 8.9 or newer
    SUMI_WEIGHTS_AS_STORED = 3, // as in the file: GGUF block types, fp8, nvfp4; values as with BF16
    SUMI_WEIGHTS_INT8 = 4,      // 8-bit integers: the memory of FP8, more accurate, and faster
    SUMI_WEIGHTS_INT4 = 5       // 4.5 bits per weight: the least memory and the largest error
} sumi_weight_format;

// The format in which the transformer computes attention on a GPU. See "Formats of weights".
typedef enum sumi_attention_format {
    SUMI_ATTENTION_AUTO = 0, // bfloat16 on a GPU, float32 on the CPU
    SUMI_ATTENTION_BF16 = 1, // GPU: bfloat16. SUMI_NOT_SUPPORTED on the CPU
    SUMI_ATTENTION_8BIT = 2  // GPU: 8 bits, faster and less accurate. SUMI_NOT_SUPPORTED on the CPU
} sumi_attention_format;

// Where a checkpoint is. Each path after `path` names one component and takes the place of what `path` has for it; NULL
// takes the component from `path`. sumi recognises components by their content, not by file names. A component that the
// model's family does not have is refused with SUMI_NOT_SUPPORTED.
typedef struct sumi_model_desc {
    uint32_t cookie; // set by sumi_model_defaults(); leave it alone
    // A diffusers folder (model_index.json and a folder per component: transformer/, text_encoder/, tokenizer/, vae/,
    // scheduler/ and so on), or one safetensors or GGUF file with tensor names of diffusers, ComfyUI or llama.cpp. GGUF
    // files hold their tokenizer, few others do: give tokenizer_path. May be NULL if paths below name every component.
    const char* path;
    const char* transformer_path;  // folder or file
    const char* text_encoder_path; // folder or file
    // A tokenizer.json, a vocab.json with its merges.txt beside it, a SentencePiece model, or the folder of one of
    // them. NULL: from `path`; if it has none, from beside the text encoder's files or inside of them.
    const char* tokenizer_path;
    const char* vae_path; // folder or file
    sumi_weight_format weights;
    // Do not open text encoders, their tokenizers and the vision tower. Only encoded prompts can then be used; with
    // guidance, that holds for negative prompts too.
    bool without_text_encoder;
    bool without_vae_encoder; // images cannot be encoded: no start images, no references, no sumi_submit_encode
    int32_t priority;         // higher first
    void* user_data;          // returned in sumi_job_status and passed to the engine's completion
    // For families that have two text encoders. With only one of them the model opens, but cannot encode prompts.
    const char* text_encoder_2_path; // folder or file
    const char* tokenizer_2_path;    // as tokenizer_path
    // Edit models: the vision tower (the network that reads reference images for the text encoder) if the text
    // encoder's files do not have it. Folder or file.
    const char* vision_path;
    const char* processor_path; // edit models: the image processor, preprocessor_config.json or its folder
    // The model's variant within its family (sumi_model_info.variant), for files that do not tell it: a single file of
    // an edit model has the same tensors as the model that it was made from. NULL: the files tell. An unknown variant
    // is SUMI_INVALID_ARGUMENT, and the log names the known ones.
    const char* variant;
    sumi_weight_format text_weights; // of text encoders and vision tower; `weights` is the transformer's
    sumi_attention_format attention;
} sumi_model_desc;

typedef struct sumi_size {
    int32_t width, height; // pixels
} sumi_size;

// The formula that a model's authors use for their guidance number. sumi_guidance.scale takes the number of the model
// card as it is. positive and negative are the predictions for the two prompts.
typedef enum sumi_guidance_formula {
    SUMI_GUIDANCE_FROM_POSITIVE = 0, // positive + scale * (positive - negative); off: 0
    SUMI_GUIDANCE_FROM_NEGATIVE = 1  // negative + scale * (positive - negative), the classic CFG scale; off: 1
} sumi_guidance_formula;

// Guided predictions have a larger norm than the positive one, which makes colours harsher; a rule corrects that.
typedef enum sumi_guidance_rule {
    SUMI_GUIDANCE_MODEL = 0, // the rule of the model's authors, one of those below
    SUMI_GUIDANCE_PLAIN = 1, // no correction
    // per image: scaled down to at most norm_limit times the norm of the positive one (cfg_normalization, renorm_cfg)
    SUMI_GUIDANCE_NORM_LIMIT = 2,
    SUMI_GUIDANCE_NORM_RESCALE = 3 // per token: scaled to the norm of the positive one (true CFG of Qwen-Image)
} sumi_guidance_rule;

typedef struct sumi_model_info {
    const char* family;    // a name such as "z-image"; static
    const char* variant;   // a name within the family, such as "turbo" or "base"; valid while the model lives
    bool takes_references; // edit models: sumi_image_desc.references; max_references is above 0
    bool uses_guidance;    // the authors' settings use guidance
    bool has_text_encoder, has_vae_encoder, has_alpha; // has_alpha: its images are RGBA, and so are those that it reads
    float guidance;                                    // the authors' number, for guidance_formula
    float guidance_off;                                // the number that means no guidance: 0 or 1
    sumi_guidance_formula guidance_formula;
    sumi_guidance_rule guidance_rule; // what SUMI_GUIDANCE_MODEL stands for
    bool ignores_guidance;            // distilled to run without: guidance.scale and negative prompts are not used
    const char* negative_text;        // the authors' negative prompt, for items without one; "": the empty text
    int32_t size_multiple;            // width and height are multiples of this many pixels
    int32_t max_size;                 // most pixels along one side
    int32_t native_size;              // side in pixels of the images that the model was trained for
    const sumi_size* sizes;           // sizes that the authors name, their default first; valid while the model lives
    int32_t size_count;
    int32_t latent_channels, latent_factor; // channels of latents; pixels per latent along a side
    int32_t max_prompt_tokens; // longer prompts are cut, as in the reference code: sumi_job_status.cut_tokens
    uint64_t weight_bytes;     // in the files, of the components in use
    int32_t min_references, max_references; // reference images per job; both 0: the model takes none
    sumi_weight_format weights;             // as requested; for AUTO on a GPU, the format that was chosen
    sumi_weight_format text_weights;        // likewise
    sumi_attention_format attention;        // as requested; for AUTO on a GPU, SUMI_ATTENTION_BF16
} sumi_model_info;

// Returns AUTO for all formats, everything else zero. At any time.
SUMI_API sumi_model_desc sumi_model_defaults(void);
// Opens a checkpoint, in a job of stage LOAD. The job reads headers and tokenizers and checks the shape of every
// tensor. Weights stay in their files, which are mapped into memory: the files stay open while the model lives, and no
// program may shorten them. On a GPU the job also copies the weights to the device, and the engine's first job loads
// the kernels (see "Time"). A lack of device memory or a memory budget does not make it fail: what does not fit is
// streamed, and an image job that cannot run reports it.
//
// Fails at once with SUMI_INVALID_ARGUMENT, SUMI_DESC_NOT_INITIALIZED, SUMI_QUEUE_FULL, SUMI_NOT_SUPPORTED or
// SUMI_OUT_OF_HOST_MEMORY. The job fails with SUMI_FILE_NOT_FOUND, SUMI_FILE_READ_FAILED, SUMI_FILE_TRUNCATED,
// SUMI_FILE_MALFORMED, SUMI_MODEL_UNKNOWN, SUMI_TENSOR_MISSING, SUMI_TENSOR_MISMATCH, SUMI_NOT_SUPPORTED,
// SUMI_OUT_OF_HOST_MEMORY, SUMI_DEVICE_LOST or another result of a device.
SUMI_API sumi_result sumi_submit_model(sumi_engine* engine, const sumi_model_desc* desc, sumi_job* out_job);
// Frees the job and returns the model, which the host program ends with sumi_model_close. A failed or cancelled job is
// freed too, and its result is returned. Or SUMI_STALE_HANDLE; SUMI_WRONG_STATE while the job runs or of another kind.
SUMI_API sumi_result sumi_fetch_model(sumi_engine* engine, sumi_job job, sumi_model** out_model);
// Returns what the model is; for NULL all zero, with empty texts.
SUMI_API sumi_model_info sumi_model_get_info(const sumi_model* model);
// Closes the files and frees the model. Cancels unfinished jobs that use it; fetch or discard them as usual. Finished
// jobs keep their products. Prompts made with the model stay valid for other models of the same family and feature
// width; its adapters can only be released. Accepts NULL. Blocks until the running slice has ended.
SUMI_API void sumi_model_close(sumi_model* model);

// ---- Jobs -----------------------------------------------------------------------------------------------------------
// Jobs run one by one (on a GPU two may overlap, see "Time"), by priority, then by submission. A submit returns at once.
//
//     submit --> QUEUED --> RUNNING --> DONE      -- fetch --> the product is yours; the handle is stale
//                  | ^         |  |---> FAILED    -- fetch --> the result says why; the handle is stale
//                  | |- pause -|  |---> CANCELLED -- fetch --> SUMI_CANCELLED; the handle is stale
//                  |-- cancel ----------^
//
// A job has finished when it is in a final state: DONE, FAILED or CANCELLED. It keeps its job slot until it is freed by
// its fetch, which frees failed and cancelled jobs too, or by sumi_job_discard, which frees a job in any state.
//
// If something does not happen:
//
//     A job stays QUEUED    Nobody calls sumi_engine_update (SUMI_PUMP_UPDATE), or its budget is 0; or the job waits:
//                           see sumi_job_status.paused and jobs_ahead.
//     A job is slow         The budget of sumi_engine_update is the share of a frame that sumi may use. Compare
//                           sumi_job_status.device_seconds with the time that passed: the rest was not asked for.
//     No details            Set sumi_engine_desc.log, or call sumi_engine_last_error. Messages of the level DEBUG also
//                           name the source line that found a failure; include them in a bug report.
typedef enum sumi_job_state {
    SUMI_JOB_NONE = 0, // no such job: stale or {0}
    SUMI_JOB_QUEUED = 1,
    SUMI_JOB_RUNNING = 2,
    SUMI_JOB_DONE = 3, // states from here on are final; fetch the job
    SUMI_JOB_FAILED = 4,
    SUMI_JOB_CANCELLED = 5
} sumi_job_state;

typedef enum sumi_stage {
    SUMI_STAGE_WAIT = 0,    // in the queue
    SUMI_STAGE_LOAD = 1,    // reading a model or an adapter
    SUMI_STAGE_PREPARE = 2, // writing the plan and its tables, and drawing the noise
    SUMI_STAGE_TEXT = 3,    // text encoders, and the vision tower that reads reference images
    SUMI_STAGE_IMAGE = 4,   // VAE encoder: start images and references become latents
    SUMI_STAGE_DENOISE = 5,
    SUMI_STAGE_DECODE = 6,   // VAE decoder
    SUMI_STAGE_TRANSFER = 7, // converting the image to its format and copying it to its target
    SUMI_STAGE_COMPILE = 8   // the driver compiles kernels (see "Time")
} sumi_stage;
#define SUMI_STAGE_COUNT 9
#define SUMI_MEMORY_KIND_COUNT 4 // of sumi_memory_kind, see "Memory"

typedef struct sumi_job_status {
    sumi_job_state state;
    sumi_stage stage;
    // Denoising steps that are done, and all steps, which are known from the submission on; a deadline may lower them.
    // 0 for jobs that make no image. In the stage COMPILE: files of kernels.
    int32_t step, step_count;
    float progress;           // 0..1; never falls, and is 1 only when the job is done
    float seconds_left;       // of work, predicted from the speed so far; negative: not known yet
    uint32_t preview_version; // grows with each new preview
    sumi_result result;       // of a finished job; SUMI_OK before
    // Details of a failure, otherwise "". Valid until the job is freed, which no other thread may do while you read.
    const char* message;
    float stage_seconds[SUMI_STAGE_COUNT];       // of work so far, by sumi_stage; of stages that a GPU ran: its time
    double device_seconds;                       // of finished slices: on a GPU, the time that it worked for this job
    float pending_us;                            // predicted work of this job that is in flight on a GPU
    int32_t jobs_ahead;                          // of a queued job: how many jobs run before it, running ones included
    uint64_t held_bytes[SUMI_MEMORY_KIND_COUNT]; // of the whole engine, as in sumi_engine_info
    // How many tokens of the longest text were cut off because the model reads no more; 0: none. 1024 means 1024 or
    // more. Known before the stage TEXT begins; the log says it too.
    int32_t cut_tokens;
    void* user_data; // of the job's desc
    bool paused;     // sumi_job_pause: a queued job waits until it is resumed; a running job will go back to the queue
} sumi_job_status;

// Returns a snapshot of a job. A stale job has state SUMI_JOB_NONE and result SUMI_STALE_HANDLE. Free call.
SUMI_API sumi_job_status sumi_job_poll(const sumi_engine* engine, sumi_job job);
// Asks a job to stop. It stops within one slice, in any stage, and is then CANCELLED; with SUMI_PUMP_UPDATE in the next
// update, even of budget 0. A GPU still does what it was given: a budget at most, 32 ms by SUMI_PUMP_THREAD, in a wait
// half of a step up to 128 ms. The model stays usable. A finished job does not change. Free call. Accepts stale jobs.
SUMI_API void sumi_job_cancel(sumi_engine* engine, sumi_job job);
// Waits for a job. Blocks until the job has finished, or for timeout_ms milliseconds and at most one slice more. With
// SUMI_PUMP_UPDATE the calling thread works on this job and those before it, and completions are called; with
// SUMI_PUMP_THREAD it sleeps. With a timeout of 0 it only looks. SUMI_OK means that the job has finished; the fetch
// tells whether it succeeded. Failures: SUMI_TIMEOUT, SUMI_STALE_HANDLE, SUMI_INVALID_ARGUMENT.
SUMI_API sumi_result sumi_job_wait(sumi_engine* engine, sumi_job job, uint32_t timeout_ms);
// Frees a job in any state without a fetch; an unfinished job is cancelled. With SUMI_PUMP_UPDATE the job slot is free
// when the call returns. With SUMI_PUMP_THREAD the call returns at once, and the job slot is free when the running
// slice has ended. Never touches textures of the host program. Accepts stale jobs. Blocks in two cases: if the job is
// running, with SUMI_PUMP_UPDATE, until the GPU has finished the work that was submitted for it; and if it is a load of
// a model or an adapter that has finished, until the running slice has ended.
SUMI_API void sumi_job_discard(sumi_engine* engine, sumi_job job);

// ---- Images ---------------------------------------------------------------------------------------------------------
typedef enum sumi_preset {
    SUMI_PRESET_MODEL = 0,    // the settings of the model's authors: of this checkpoint, else of the family
    SUMI_PRESET_PREVIEW = 1,  // 768 x 768 if native_size is 1024, and fewer steps
    SUMI_PRESET_STANDARD = 2, // native_size x native_size, the steps of the model's authors
    SUMI_PRESET_QUALITY = 3,  // the same size, more evaluations
    // The fewest steps, without guidance: for models distilled to that few steps, or with an adapter of the same effect
    // (the 4-step and 8-step adapters of Qwen-Image), which you add to `loras` yourself.
    SUMI_PRESET_FAST = 4,
    // The authors' settings, with guidance only while 1 - sigma <= 0.5; for models that need guidance.
    SUMI_PRESET_LEAN = 5
} sumi_preset;

typedef enum sumi_solver {
    SUMI_SOLVER_EULER = 0,        // diffusers FlowMatchEulerDiscreteScheduler
    SUMI_SOLVER_HEUN = 1,         // second order, two evaluations per step (one in the last)
    SUMI_SOLVER_MIDPOINT = 2,     // second order, two evaluations per step
    SUMI_SOLVER_DPMPP_2M = 3,     // second order, multistep, one evaluation per step (Lu et al. 2022)
    SUMI_SOLVER_HEUN_FULL = 4,    // HEUN with two evaluations in the last step too, at sigma 0 (torchdiffeq heun2)
    SUMI_SOLVER_RK4 = 5,          // fourth order (Kutta's 3/8 rule), four evaluations per step
    SUMI_SOLVER_RES_MULTISTEP = 6 // second order, multistep, one evaluation per step (ComfyUI res_multistep)
} sumi_solver;

typedef enum sumi_format {
    SUMI_FORMAT_RGBA8 = 0,  // straight alpha, here and below; 255 (1) from models without sumi_model_info.has_alpha
    SUMI_FORMAT_RGB8 = 1,   // the same colours
    SUMI_FORMAT_RGB32F = 2, // 0..1, not clamped
    SUMI_FORMAT_BGRA8 = 3,  // Direct3D, Windows and Unreal call this format B8G8R8A8
    SUMI_FORMAT_RGBA16F = 4 // half floats, 0..1, only alpha is clamped; Direct3D calls it R16G16B16A16_FLOAT
} sumi_format;

// An image that the host program gives.
typedef struct sumi_pixels {
    const void* data;      // 8-bit sRGB, rows from the top
    int32_t width, height; // pixels
    int32_t row_bytes;     // pitch: bytes from row to row; 0: width * channel_count
    int32_t channel_count; // 1 grey, 3 RGB, 4 RGBA: straight alpha, which models with has_alpha read; others ignore it
} sumi_pixels;

// One image of a batch.
typedef struct sumi_image_item {
    // Exactly one of the two: a text, or an encoded prompt.
    const char* text;
    const sumi_prompt* prompt;
    // For guidance, at most one of the two. Both NULL: sumi_model_info.negative_text. "" is the empty text. Without
    // guidance both are ignored, and the log says so.
    const char* negative_text;
    const sumi_prompt* negative_prompt;
    uint64_t seed; // of the noise; with references some models draw that of another seed: see "References"
} sumi_image_item;

typedef struct sumi_guidance {
    // The number on the model card, for sumi_model_info.guidance_formula. sumi_model_info.guidance_off means no
    // guidance: the negative prompt is not used. A number above it runs each evaluation twice, unless the model was
    // distilled to ignore it (ignores_guidance). A number below it is SUMI_INVALID_ARGUMENT.
    float scale;
    float begin, end; // guidance is on while begin <= 1 - sigma <= end; the end is the reference's cfg_truncation
    sumi_guidance_rule rule; // MODEL by default
    // NORM_LIMIT: the factor, above 0 (1 for cfg_normalization of the reference pipelines). MODEL, if it stands for
    // NORM_LIMIT: likewise, or 0 for no limit. All other rules require 0.
    float norm_limit;
} sumi_guidance;

// Where the noise comes from with which an image begins.
typedef enum sumi_noise_source {
    SUMI_NOISE_TORCH_CPU = 0,  // the numbers of torch.Generator("cpu").manual_seed(seed), float32, bit for bit
    SUMI_NOISE_TORCH_CUDA = 1, // the numbers of torch.Generator("cuda") on the GPU described below, within 1.2e-6
    SUMI_NOISE_GIVEN = 2       // `values`
} sumi_noise_source;
typedef struct sumi_noise {
    sumi_noise_source source;
    // For TORCH_CUDA, the GPU whose numbers are reproduced: how many multiprocessors (SMs) it has, 132 for H100 and
    // H200 (default), 108 for A100, 128 for RTX 4090; and threads on each, 2048 (default), or 1536 for compute
    // capability 8.6, 8.9 and 12.0.
    int32_t multiprocessors, threads_per_multiprocessor;
    const float* values; // [item][channel][y][x], for GIVEN
} sumi_noise;

// The VAE encoder returns a mean and a deviation for each latent: its posterior.
typedef enum sumi_posterior {
    SUMI_POSTERIOR_SAMPLE = 0, // a sample: draws noise before the main noise
    SUMI_POSTERIOR_MODE = 1    // the mean; draws no noise
} sumi_posterior;
// What the job starts from instead of pure noise: image to image, and inpainting. At most one of image and latents.
typedef struct sumi_image_start {
    const sumi_pixels* image; // is resized to width x height
    const float* latents;     // [channel][y][x], as sumi_fetch_latents returns them
    // How much noise is added, above 0 and up to 1. The last strength * step_count steps run, rounded up. 0 would leave
    // no step and is SUMI_INVALID_ARGUMENT.
    float strength;
    sumi_posterior posterior;  // how the latents of `image` are taken; by default as the model's authors do it
    const float* noise_values; // [channel][y][x]: noise of the posterior's sample; NULL: from the noise source
    // Inpainting: where the mask is white the image is repainted, where it is black the start stays; grey of 128 or
    // more counts as white. It has 1 channel, or 3 or 4: then its luma counts, and its alpha does not. Is resized to
    // width x height. Needs image or latents.
    const sumi_pixels* mask;
    // From 0 on, pixels that the mask keeps equal those of the resized start image, to the last bit. 0: the new image
    // begins at the mask's edge. 1..256: it is blended in over this many pixels on the repainted side of the edge. -1,
    // and always with `latents`: the whole image comes from the VAE, which changes the kept pixels a little.
    int32_t mask_feather;
} sumi_image_start;

// In every array of values of any desc, NaN and infinity are SUMI_INVALID_ARGUMENT.
typedef struct sumi_image_desc {
    uint32_t cookie; // set by sumi_image_defaults(); leave it alone
    sumi_model* model;
    const sumi_image_item* items; // a batch shares everything below
    int32_t item_count;           // 1..64
    int32_t width, height;        // pixels, multiples of sumi_model_info.size_multiple; edit models: see "References"
    int32_t step_count;           // denoising steps, 1..1000; some models have a schedule for one number only
    sumi_solver solver;
    sumi_guidance guidance;
    // 0: the model's own sigma schedule, which may depend on size and step_count. Above 0, at most 10000: a static shift
    // instead, sigma = shift u / (1 + (shift - 1) u), with u falling in equal steps from 1 to 1 / step_count.
    float shift;
    // Your own schedule: step_count + 1 values in [0, 1], each below the one before, the last usually 0. With a
    // strength below 1 its last steps run. NULL: the model's schedule, or that of `shift`.
    const float* sigmas;
    sumi_noise noise;
    sumi_image_start start;
    const sumi_pixels* references; // edit models: the images that the texts refer to, in this order; see "References"
    int32_t reference_count;
    const sumi_lora_use* loras; // see "Adapters"
    int32_t lora_count;         // 0..16
    const sumi_target* targets; // where images are written, one per item; NULL: memory of sumi in RGBA8; see "Targets"
    int32_t preview_every;      // a preview after every n-th step; 0: none. Previews never change the image
    uint32_t deadline_ms;       // 0: none. Skips steps so as to be done this soon after submission; see "Deadlines"
    float step_cache;           // 0: off. 0.05 to 0.12 skip work in jobs of 20 steps or more; see "Step caching"
    bool profile;               // keep a table for sumi_job_profile; a slice is then a whole operation
    int32_t priority;           // higher first
    void* user_data;            // returned in sumi_job_status and passed to the engine's completion
    const sumi_control_use* controls; // 0 to 4 nets that make images follow control pictures; see "Control nets"
    int32_t control_count;
    float step_cache_db;      // instead of step_cache: 0, or the PSNR in dB that the image is to keep, such as 40
    int32_t step_cache_every; // instead of both: 0, or a fixed schedule
} sumi_image_desc;

// Returns the preset's values for this model, with sizes in proportion to its native_size. On edit models width and
// height are 0: the size follows from the references. start.strength is 0.6, for image to image; set 1.0 for
// inpainting. See "Settings of a checkpoint".
SUMI_API sumi_image_desc sumi_image_defaults(sumi_model* model, sumi_preset preset);

// Starts a batch of images. Fails at once with SUMI_INVALID_ARGUMENT, SUMI_DESC_NOT_INITIALIZED, SUMI_QUEUE_FULL,
// SUMI_NOT_SUPPORTED or SUMI_OUT_OF_HOST_MEMORY. The job fails with SUMI_TEXT_INVALID, SUMI_BUDGET_TOO_SMALL,
// SUMI_NOT_FINITE, or a result of memory or device.
//
// Same bits: the same inputs give the same bits on the same backend and the same model of CPU or GPU, whatever the time
// budgets, slices, threads and previews are. Exceptions: a deadline leaves out as many steps as the time requires;
// under a memory budget that is too small for whole images the VAE works in tiles, which changes the image a little;
// the GPU divides a batch that its memory does not hold, and batches of different size may differ in the last bits.
SUMI_API sumi_result sumi_submit_images(sumi_engine* engine, const sumi_image_desc* desc, sumi_job* out_job);

typedef struct sumi_image {
    const void* pixels; // sRGB, first row on top unless bottom_up; NULL if written to a device_address or an external
    int32_t width, height, row_bytes;
    sumi_format format;
    uint64_t seed;
    int32_t step_count; // steps that were run: a deadline may have left some out
    // Evaluations in these steps (a guided one counts once), and how many the step cache replaced; both 0 in previews.
    int32_t evaluation_count, reused_count;
    float predicted_db; // with a step cache: the PSNR that the image keeps, as predicted; see "Step caching"
    bool has_alpha;     // the model makes alpha and the format has it; false: all is opaque, as in every preview
    uint64_t handle;    // for sumi_images_release
} sumi_image;
// Frees the job and writes one sumi_image per item. The images are in their targets, or in memory of sumi that lives
// until sumi_images_release or sumi_engine_destroy. A failed or cancelled job is freed too, and its result is returned.
//
// Other failures: SUMI_WRONG_STATE while the job runs or if it is of another kind; SUMI_STALE_HANDLE;
// SUMI_INVALID_ARGUMENT if `capacity` is less than the number of items: the job is not freed. If a copy into an
// external fails, the result is one of sumi_import's and the job stays DONE: fetch it again, which copies only the rest.
SUMI_API sumi_result sumi_fetch_images(sumi_engine* engine, sumi_job job, sumi_image* out_images, int32_t capacity);
// Frees the memory of `count` images and zeroes the structs. Accepts NULL, and images in memory of the host program.
SUMI_API void sumi_images_release(sumi_engine* engine, sumi_image* images, int32_t count);

// Copies the newest preview of an item into `into`: RGBA8, an eighth of the image's size along each side (width / 8 x
// height / 8), an estimate of the clean image, by a linear map from latents to opaque sRGB. `capacity` is in
// bytes. out_image->pixels is `into`. Free call. Failures: SUMI_WRONG_STATE before the first preview,
// SUMI_STALE_HANDLE, SUMI_INVALID_ARGUMENT.
SUMI_API sumi_result sumi_job_preview(const sumi_engine* engine, sumi_job job, int32_t item, void* into,
                                      size_t capacity, sumi_image* out_image);

// ---- Simple calls ---------------------------------------------------------------------------------------------------
// For tools, which may wait. Each call is a submit, sumi_job_wait and a fetch, and needs a free job slot. Free calls
// may run meanwhile. A simple call returns no job, so it cannot be cancelled. It returns the first failure of its three
// calls, which the log explains, and leaves nothing behind. Both block until they are done. With SUMI_PUMP_UPDATE the
// calling thread works, first on jobs that come before; with SUMI_PUMP_THREAD it sleeps.

// Opens the checkpoint at `path`: sumi_submit_model with sumi_model_defaults() and this path. End the model with
// sumi_model_close, or with its engine. On failure *out_model is NULL. A tool sets sumi_engine_desc.cpu_thread_count to
// 0 before it creates the engine: by default the CPU backend has one thread.
SUMI_API sumi_result sumi_open_model(sumi_engine* engine, const char* path, sumi_model** out_model);

// Makes one RGBA8 image from a text: sumi_submit_images with SUMI_PRESET_MODEL and one item of this text and seed. The
// image is that of such a job. Its pixels live until sumi_images_release(engine, out_image, 1) or sumi_engine_destroy.
// On failure *out_image is zero. Edit models draw from the text alone; those that need references
// (sumi_model_info.min_references) return SUMI_INVALID_ARGUMENT.
SUMI_API sumi_result sumi_generate(sumi_engine* engine, sumi_model* model, const char* text, uint64_t seed,
                                   sumi_image* out_image);

// =====================================================================================================================
// Part 2: what only some programs need
// =====================================================================================================================

// ---- Services of the host program -----------------------------------------------------------------------------------
// sumi uses its own service for each one that you do not give. sumi_engine_create copies the structs. Several threads
// may call the allocator and the log at once; every other service is called by one thread at a time.

// Host memory (the CPU's memory). Must be thread-safe: both functions are called on the threads that call the engine,
// on those of sumi and of sumi_tasks, and by several at once.
struct sumi_allocator {
    // `alignment` is a power of two up to 64. `bytes` is a multiple of it, and not 0. Returns NULL if no memory is
    // left.
    void* (*allocate)(size_t bytes, size_t alignment, void* user_data);
    // `bytes` is the size that the memory was allocated with. Never called with NULL.
    void (*release)(void* memory, size_t bytes, void* user_data);
    void* user_data;
};

// Files, for checkpoints in the host program's archives. sumi's own service maps files read-only, so it never copies
// weights. It opens regular files only: a pipe, socket, folder or device in the place of a file, a symbolic link to
// nothing, and a file in the place of a component's folder make the job fail with a message that names the path. The
// files of a model stay open while the model lives. Files that only name other files (indexes, model_index.json) are
// closed when the model is open.
//
// Reading     A file without `map` is read whole, from its beginning to its end, into memory of the allocator. It is
//             read in pieces. A piece is as large as fits into the budget of sumi_engine_update (and max_slice_us) at
//             the speed of earlier pieces, and at least 64 KB. A job can be cancelled between any two pieces. `open`
//             and `map` should be quick, because one slice may open several files.
// Threads     The functions are called on the thread that runs slices: the one that calls the engine, or the pump's
//             thread. The calls that end a model, an adapter or a job also call `close`. No two of these functions run
//             at the same time. An update that reads a file lasts as long as your read function takes.
// Paths       Paths are those of the desc, and those joined with more names by '/'. A job asks for each path once and
//             opens each file once. A path that does not open is taken for a folder. Folders cannot be listed, so the
//             job tries names. First come the weights of the components transformer, text_encoder, text_encoder_2 or
//             clip_model, and vae. In each of these folders it tries S.safetensors.index.json, S.safetensors,
//             S.bf16.safetensors, S.fp16.safetensors and S.gguf, where S is diffusion_pytorch_model or model, until one
//             opens. For a given file N-00002-of-00005.safetensors or .gguf it asks for the four others too. (In a
//             folder without an index, only the built-in service looks for such parts.) Then come the files that the
//             indexes name; model_index.json; config.json of each component; tokenizers (tokenizer.json, or vocab.json
//             and the files beside it, or tokenizer.model, sentencepiece.bpe.model, spiece.model);
//             preprocessor_config.json; and scheduler/scheduler_config.json. For an adapter it tries the path; in a
//             folder, the names that PEFT and diffusers give; and adapter_config.json beside adapter_model.safetensors.
struct sumi_files {
    // Returns NULL for a folder, for a file that is not there, and if the file cannot be opened.
    void* (*open)(const char* path, uint64_t* out_bytes, void* user_data);
    // Returns false if the bytes could not be read: the job fails with SUMI_FILE_READ_FAILED.
    bool (*read)(void* file, uint64_t offset, void* into, size_t bytes, void* user_data);
    // Optional. Returns the whole file in memory, valid until `close`, or NULL to have it read. Called once per file.
    const void* (*map)(void* file, void* user_data);
    void (*close)(void* file, void* user_data);
    void* user_data;
};

// The host program's job system. sumi asks it to run loops over items. For each loop the host program calls task(begin,
// end, worker_index, task_context) for ranges [begin, end) that together cover each item of [0, item_count) exactly
// once. A range has at least min_range items; the last one may be shorter. Ranges may run on any threads. worker_index
// is in [0, worker_count), and ranges that run at the same time have different ones. An engine has one loop at a time:
// the thread that runs slices calls `begin` and `finish` in turn.
typedef void sumi_task(int32_t begin, int32_t end, int32_t worker_index, void* task_context);
struct sumi_tasks {
    int32_t worker_count;
    // Returns a handle for `finish`, which may be NULL. May run the whole loop before it returns.
    void* (*begin)(sumi_task* task, int32_t item_count, int32_t min_range, void* task_context, void* user_data);
    // Returns when all ranges are done.
    void (*finish)(void* handle, void* user_data);
    void* user_data;
};

// A callback for host programs that do not want to poll. `ended` is called when a job has finished, at most once per
// job. sumi_job_poll already returns the final state then. job_user_data is the user_data of the job's desc.
//
// `ended` runs on the thread that runs slices: inside sumi_engine_update, sumi_job_wait or the function that ended the
// job (sumi_model_close of its model, for example), or on sumi's own thread. If you lock a mutex around those
// functions, it is locked in the callback too. For a job that is cancelled before it begins, `ended` runs in the next
// sumi_engine_update or sumi_job_wait. It does not run for a job that was discarded before it finished, and it is
// sometimes skipped for a job that another thread has already fetched: if you fetch only after the callback, you miss
// no job. The callback itself must not fetch (see Callbacks). Let it put the job into a queue, or wake the thread that
// fetches.
struct sumi_completion {
    void (*ended)(sumi_job job, sumi_job_state state, void* job_user_data, void* user_data);
    void* user_data;
};

// ---- Time -----------------------------------------------------------------------------------------------------------
// Slices      sumi cuts operations into slices so that no slice is predicted to take longer than max_slice_us. It
//             predicts from the slices that ran before on this device. On the CPU it cuts operations while they run, by
//             the time that their parts took last, and makes slices shorter if less of a budget is left. On a GPU it
//             makes slices shorter while the budgets of sumi_engine_update are small, down to an eighth of max_slice_us
//             and not below 250 us, so that whole slices fill a budget well. If max_slice_us is 0, or
//             sumi_image_desc.profile is set, a slice is a whole operation.
// CPU         sumi_engine_update works inside the call. It exceeds its budget by at most one and a half times
//             max_slice_us, as far as the operating system lets the thread run. That holds for the first image of a
//             size too. However small a budget above 0 is, an update does at least a small part of an operation.
// GPU         sumi_engine_update submits work and does not wait for it. At any time at most budget_us of predicted work
//             is in flight on the device, or one slice if a slice is longer. If slices seem to wait for kernels of the
//             host program in the same context, sumi now and then submits one slice more than that, to measure how long
//             a slice takes without the wait. One call takes this much time of the calling thread:
//
//     while an image is denoised and decoded    0.25 ms, or a twelfth of the budget if that is more
//     when an image begins                      0.5 ms
//     the first image of a size and pace        up to 3 ms, and memory is allocated
//     while a model is loaded                   the whole budget; a read of your sumi_files takes as long as it takes
//
// Pace        A class of time budgets: up to 2 ms, up to 4, up to 8, up to 16, and more. It decides the size of slices,
//             so each pace has its own plans. While kernels of the host program keep the same context busy, the driver
//             may make an allocation wait for them. Therefore make a first image of each size while nothing is drawn,
//             with the budget that frames will have.
// Next job    If no job is running any more because it ended in a sumi_engine_update, that update begins no other job,
//             so that the host program can first change the order of the queue; with SUMI_FOREVER it does. On a GPU a
//             job that needs the same plan as the one before it begins earlier: while the last slices of that one are
//             in flight. The GPU is then never idle between queued images, and two jobs are RUNNING.
// Threads     sumi's own threads have names that debuggers and profilers show: "sumi pump" (SUMI_PUMP_THREAD), "sumi
//             worker 1" and so on (cpu_thread_count), and "sumi kernels". All have low priority.
// Kernels     The first job on a GPU loads the kernels on the thread "sumi kernels", which then ends. If the library
//             has no machine code for the GPU, because the GPU is newer, the driver compiles the kernels the first
//             time, on up to four threads: some while the model is loaded, which takes about a second, and those of an
//             image in the stage COMPILE of its job, which takes several seconds. Later engines load them in
//             milliseconds, until the driver is updated.

// ---- Memory ---------------------------------------------------------------------------------------------------------
// What sumi_engine_desc.memory_budget_bytes limits: on the CPU, intermediate values and packing buffers (copies of
// matrix operands in another order); on a GPU, everything that the engine allocates on the device. No job ever takes
// more. A job takes the first of these forms that the budget holds:
//
//     CPU   1. The VAE works on whole images.
//           2. The VAE works in tiles, overlapping pieces of the image, one by one. Changes the image a little.
//           3. The job fails with SUMI_BUDGET_TOO_SMALL.
//     GPU   1. All weights stay on the device.
//           2. Weights are streamed: copied to the device for each use. Slower, the same bits.
//           3. Weights are streamed and the VAE works in tiles.
//           4. The job fails with SUMI_BUDGET_TOO_SMALL.
//
// On a GPU the budget does not count what the driver takes for itself (sumi_engine_info.uncounted_bytes), nor any host
// memory. On the CPU it does not count other memory from the allocator: job slots, open models, prompts, adapters,
// plans of recent shapes, files that cannot be mapped, and what sumi_memory.images and sumi_memory.host say of a job.
// sumi_engine_info.host_peak_bytes counts everything that comes from the allocator.
//
// Device memory may run out below the budget, because other programs use it. Before a job fails, the engine tries again
// with a lower limit: what it holds plus what the driver reports as free, less a margin of up to 64 MB. With a
// sumi_device_allocator the limit is always below the total that the allocator refused. Later jobs keep to the limit as
// to a memory budget. The engine asks the driver again whenever a job begins, and raises or removes the limit. It tries
// a sumi_device_allocator again after a few jobs, then at growing intervals. The log reports all of this.
//
// A batch that the GPU's memory does not hold runs as smaller batches: half of its images at a time, then half of that,
// then one by one, and only then with streamed weights. The log says so. If that is not enough either, the job fails
// with SUMI_OUT_OF_DEVICE_MEMORY, and the engine still works. `step` of the job's status starts again in each smaller
// batch. A GPU's kernels depend on the number of rows, so the bits of an image may differ a little between batch sizes,
// and between a whole and a divided batch. The CPU backend divides no batch, and its bits are those of single images,
// except with texts of fewer than 8 tokens. Only a lack of device memory divides a batch; a memory budget never
// does.

typedef enum sumi_memory_kind {
    SUMI_MEMORY_WEIGHTS = 0,
    SUMI_MEMORY_ARENA = 1,  // intermediate values of a job
    SUMI_MEMORY_IMAGE = 2,  // finished images and previews; on a GPU also images on their way to externals
    SUMI_MEMORY_STAGING = 3 // GPU: pinned (page-locked) host memory. CPU: packing buffers of matrix products
} sumi_memory_kind;

// Device memory, for GPU backends. Addresses are CUdeviceptr. The engine's context is current during the call. One
// thread at a time calls: the one that runs slices, or one inside a call of the engine. Memory is released when the GPU
// has finished all work that uses it. STAGING is host memory that kernels can read at the same address, as
// cuMemHostAlloc returns it. If `allocate` returns 0 for STAGING, streamed weights are read from the mapped files
// instead, which is slower.
struct sumi_device_allocator {
    // Returns 0 if memory has run out. The engine's streams do not wait for work of the host program: any device work
    // of yours on this memory, for example a fill, must be complete before the function returns.
    uint64_t (*allocate)(size_t bytes, size_t alignment, sumi_memory_kind kind, void* user_data);
    void (*release)(uint64_t address, size_t bytes, sumi_memory_kind kind, void* user_data);
    void* user_data;
};

// Changes the memory budget for jobs that begin after this call, and for paused jobs that are resumed after it. A
// running job keeps the budget that it began with, in all parts of a divided batch. While no job runs, memory above the
// new budget is freed at once, otherwise when the last running job has ended. Blocks until the running slice has ended.
// Failures: SUMI_INVALID_ARGUMENT.
SUMI_API sumi_result sumi_engine_set_memory_budget(sumi_engine* engine, uint64_t bytes);

// All members but tiles_vae are bytes.
typedef struct sumi_memory {
    // CPU: weights in use. GPU: device memory for weights, resident ones and the buffers that streamed ones are copied
    // to.
    uint64_t weights;
    // Intermediate values. On a GPU, weights + arena are all that the engine allocates on the device for the job, and
    // never more than the memory budget. (Externals have separate memory: SUMI_MEMORY_IMAGE.)
    uint64_t arena;
    // CPU: packing buffers. GPU: pinned host memory, including the pinned copies of streamed weights. Weights that are
    // streamed straight from the mapping of their file have none.
    uint64_t staging;
    uint64_t images; // the products, kept until the fetch: images in their formats, latents and previews
    uint64_t host;   // at most: the plan, its tables, the copies that submit makes, and buffers for images and masks
    bool tiles_vae;  // the memory budget makes the VAE work in tiles
    // GPU: weights that the memory budget keeps in page-locked host memory and that are copied to the device for each
    // use, most of them in every step. 0: all weights are resident. If the device can use the format of the file, sumi
    // locks its mapping of the file, which takes no memory beside the page cache (Linux, sumi's own files). Other
    // weights get a pinned copy.
    uint64_t streamed;
    uint64_t uncounted; // GPU: sumi_engine_info.uncounted_bytes, on the device beside weights + arena
    // The sum that the memory budget limits: arena and staging (CPU), weights and arena (GPU). After
    // SUMI_BUDGET_TOO_SMALL and SUMI_OUT_OF_DEVICE_MEMORY it is the least that the job needs, in its smallest form, and
    // all other members are 0.
    uint64_t needed;
} sumi_memory;
// Returns the memory that such a job would take, before any of it is allocated. arena, staging and images are exact.
// Fails as sumi_submit_images, and with SUMI_BUDGET_TOO_SMALL. Blocks for some milliseconds, to write a plan, which it
// frees again; waits for no slice.
SUMI_API sumi_result sumi_image_memory(sumi_engine* engine, const sumi_image_desc* desc, sumi_memory* out_memory);

typedef struct sumi_engine_info {
    const char* backend;        // "cpu", "cuda"; static
    const char* device;         // "NVIDIA H200, driver 13.0", "CPU, AVX2, 2 threads"; valid while the engine lives
    int32_t compute_capability; // 90 for 9.0; 0 on the CPU
    int32_t driver_version;     // 13000 for 13.0; 0 on the CPU
    uint64_t device_bytes;      // memory of the device; 0: unknown
    // Held now, by sumi_memory_kind. CPU backend: WEIGHTS are bytes of mapped files.
    uint64_t held_bytes[SUMI_MEMORY_KIND_COUNT];
    uint64_t host_bytes;       // everything that is held from the allocator now
    uint64_t host_peak_bytes;  // the most that was ever held from the allocator
    uint64_t allocation_count; // allocations ever made; a job of a size and pace that ran before makes none
    int32_t job_count;         // job slots in use
    // Bytes of device_bytes that were neither free nor allocated by the engine when it last asked the driver: at
    // creation, after the kernels were loaded, when a job of a new size is ready, and as jobs begin while device memory
    // is short. No budget counts them. They include the CUDA context (H200: 556 MB); code, graphs, local memory of
    // kernels and the driver's rounding to pages (145 to 200 MB from the first image on); and memory of the host
    // program and of other programs, because the driver does not tell these apart. 0 on the CPU.
    uint64_t uncounted_bytes;
    // Which GPU this is, so that the host program can choose the same one for its graphics. Zero on the CPU.
    uint8_t device_uuid[16]; // equals VkPhysicalDeviceIDProperties.deviceUUID
    // Windows: equals DXGI_ADAPTER_DESC.AdapterLuid and VkPhysicalDeviceIDProperties.deviceLUID. Zero on other systems.
    uint8_t device_luid[8];
} sumi_engine_info;
// Returns what the engine is and holds; for NULL all zero, with empty texts. Free call.
SUMI_API sumi_engine_info sumi_engine_get_info(const sumi_engine* engine);

// ---- The queue ------------------------------------------------------------------------------------------------------
// Lists the jobs that are not freed: first running jobs, then queued jobs in the order in which they will run, then
// finished jobs. Running and finished jobs are in the order of submission. Writes at most `capacity` jobs and returns
// how many there are; NULL and 0 only count them. Free call. Returns 0 if engine is NULL, and in a child process after
// a fork.
SUMI_API int32_t sumi_job_list(const sumi_engine* engine, sumi_job* into, int32_t capacity);
// Changes the priority of a queued job, and so its place in the queue: behind the jobs of the same priority that were
// submitted before it. Any number is a priority; the default is 0. A running job that has done nothing yet, not even
// read a text, goes back into the queue if another job is now before it. A job that has done something continues.
//
// Free call. Failures: SUMI_WRONG_STATE if the job has done something or has finished: sumi_engine_last_error says
// which of the two, and the log is told only at the level DEBUG, because a job may begin at any moment;
// SUMI_STALE_HANDLE, SUMI_INVALID_ARGUMENT.
SUMI_API sumi_result sumi_job_set_priority(sumi_engine* engine, sumi_job job, int32_t priority);
// Pauses a job (true), or resumes it (false). Pausing a paused job and resuming one that is not paused return SUMI_OK.
//
// A queued job is skipped until it is resumed; it then has its place by priority and submission. A running job stops,
// so that other jobs can run, and is queued again. An image job in the stage DENOISE stops after the current
// evaluation; every other job stops at once. A stopped image job keeps only its latents, as float32 in host memory
// (three sets per image with solvers that use earlier steps; twice as many with a step cache). When it runs again it
// repeats the stages before DENOISE (texts, references, a start image) and continues where it stopped; with a step
// cache it also repeats the last one or two evaluations that were computed. The image is the same, bit for bit.
//
// A job starts from its beginning if host memory for the latents is missing, or if it had not reached DENOISE. Prompts
// and encodings therefore always start from their beginning. A job whose images are being decoded is finished instead:
// `paused` has no effect. A load that has begun cannot be paused. Deadlines include the time of a pause. While a job
// is paused, sumi_job_wait for it makes no progress: it returns at its timeout, or goes on when another thread resumes
// the job.
//
// Free call. Failures: SUMI_STALE_HANDLE; SUMI_WRONG_STATE for a finished job and for a load that has begun, reported
// as by sumi_job_set_priority; SUMI_INVALID_ARGUMENT.
SUMI_API sumi_result sumi_job_pause(sumi_engine* engine, sumi_job job, bool paused);

// ---- Settings of a checkpoint ---------------------------------------------------------------------------------------
// The author of a checkpoint can choose its steps and guidance in model_index.json:
//
//     "sumi": {"steps": 20, "guidance": 2}
//
// SUMI_PRESET_MODEL then has these steps. Every preset that has the family's usual guidance, except SUMI_PRESET_FAST,
// then has this guidance, and so has sumi_model_info.guidance. Other members of "sumi" are ignored. A number out of
// range is not used, and the log warns about it when the model is loaded.

// ---- Formats of weights ---------------------------------------------------------------------------------------------
// How a GPU holds the matrices of the transformer (sumi_model_desc.weights) and of the text encoders (text_weights):
//
// AUTO        For the transformer: bfloat16 if that takes at most three quarters of the GPU's memory; otherwise
//             AS_STORED if the file has 10 bits per weight or less; otherwise INT8. Only the file and the size of the
//             GPU's memory decide, not budgets. sumi_model_info.weights holds the choice. For text encoders and the
//             vision tower: AS_STORED if the transformer's format is AS_STORED, by request or by AUTO; otherwise
//             bfloat16, on GPUs with little memory too. There, a text encoder that does not fit beside the transformer
//             is streamed from host memory for each prompt, with the same features.
// FP8         The large matrices in the 8-bit float format e4m3 with a scale per row, quantised when they are loaded.
//             Embedders, modulation and the final layer stay bfloat16.
// AS_STORED   Matrices of GGUF's block types, of fp8 and of nvfp4 stay as they are in their file and are unpacked to
//             bfloat16 for each product: the memory is that of the file, and the values are those of BF16. fp8 with a
//             scale for each row or block takes 6 % more than its file, and stays if rows are a multiple of 256 long.
//             Everything else is held as with BF16. That includes mxfp8, int8, other formats of 4 bits, nvfp4 with
//             factors of columns, and matrices to which their file adds low-rank factors: these take two to four times
//             the memory of their file, and FP8, INT8 or INT4 keep them small. Compared
//             with BF16 on an H200, an evaluation at 1024x1024 takes 3 to 6 % longer, a prompt of 128 tokens 0.95 to
//             1.2 times as long, and one of 512 tokens 1.3 to 1.45 times as long. On the CPU: as AUTO.
// INT8        The matrices of FP8 as 8-bit integers with a scale per row. Before that, the rows are rotated (multiplied
//             by a fixed orthogonal matrix), which spreads large values over many columns, so that a few columns do not
//             decide the scale (QuaRot, Ashkboos et al. 2024). As large as FP8. At Z-Image's size the error of a
//             prediction, against float32, is 2.1 times that of PyTorch's bfloat16 (FP8: 5.9 times). On an H200 it
//             takes 0.94 of FP8's time.
// INT4        The same matrices as 4-bit codes, in groups of 32 along a row with a half-precision scale each (4.5 bits
//             per weight, the layout of GGUF's IQ4_NL), quantised from the file's values when they are loaded.
//             Activations and the operands of products stay bfloat16. At Z-Image's size the error of a prediction is
//             12.7 times that of PyTorch's bfloat16. On an H200 it takes 6 % longer than with BF16.
//
// As text_weights, a format applies to the large matrices of the text encoders. Their tables of token embeddings stay
// bfloat16, except with AS_STORED, which leaves them as they are in the file. INT8 and INT4 avoid the time of streaming
// and change the features: Z-Image's encoder takes 4.3 or 2.8 GB instead of 7.8.
//
// sumi_model_desc.attention is independent of these formats. It is the format of the operands of softmax(q k^T) v in
// the transformer on a GPU; text encoders and the VAE keep bfloat16. With SUMI_ATTENTION_8BIT the operands have 8 bits,
// in the format that is fast on the device, with sums of 32 bits. Compute capability 9.0: q, k, v and the probabilities
// in e4m3 (FlashAttention-3, Shah et al. 2024, without its rotation of q and k), v less a mean of each of its channels
// (SageAttention2, Zhang et al. 2024), for heads of 96 or 128 channels, which all supported transformers have. All other
// GPUs: q and k in int8 (SageAttention, Zhang et al. 2024), v and the probabilities in bfloat16, for heads of 64, 96 or
// 128 channels. Keys that are computed once for all steps (of text and references, by models that keep them) are in
// e4m3 too on 9.0; on all other GPUs attention that reads them is in bfloat16. At Z-Image's size the error of a
// prediction is 1.2 times that of PyTorch's bfloat16 (BF16: 0.8 times). On an H200, with weights in INT8, it takes
// 0.94 of the time that it takes with BF16 attention.

// ---- Encoded prompts ------------------------------------------------------------------------------------------------
// A prompt can be encoded once and used for many images, and a game can ship it instead of the text encoder.
//
// A model reads a text inside a template: words that its authors put around it. NewBie-image's template is a sentence
// that ends in "<Prompt Start> ". There is one sentence for texts that begin with '<' (captions in XML), another for
// all other texts, and none for the empty text. A text that contains "<Prompt Start>" brings its own sentence, and gets
// no other; a text that begins with "<Prompt Start>" is read without a sentence. Negative texts are treated alike.
typedef struct sumi_prompt_desc {
    uint32_t cookie; // set by sumi_prompt_defaults(); leave it alone
    sumi_model* model;
    const char* text; // "" is the empty prompt; NULL is refused
    // Edit models: the images that the text refers to, in this order. See "References".
    const sumi_pixels* references;
    int32_t reference_count;
    int32_t priority; // higher first
    void* user_data;  // returned in sumi_job_status and passed to the engine's completion
    // Adapters whose layers of text encoders change the features; others have no effect. See "Adapters".
    const sumi_lora_use* loras;
    int32_t lora_count; // 0..16
} sumi_prompt_desc;

// Returns a desc for this model, everything else zero.
SUMI_API sumi_prompt_desc sumi_prompt_defaults(sumi_model* model);
// Encodes a text, in a job of stage TEXT. The prompt also keeps the references, as the VAE reads them (3 bytes per
// pixel, about a million pixels each), so that image jobs need nothing else.
//
// Fails at once with SUMI_INVALID_ARGUMENT, SUMI_DESC_NOT_INITIALIZED, SUMI_QUEUE_FULL, SUMI_OUT_OF_HOST_MEMORY, or
// SUMI_NOT_SUPPORTED if the model was opened without its text encoder or, for a prompt with references, without its
// vision tower. The job fails with SUMI_TEXT_INVALID, SUMI_BUDGET_TOO_SMALL, or a result of memory or device.
SUMI_API sumi_result sumi_submit_prompt(sumi_engine* engine, const sumi_prompt_desc* desc, sumi_job* out_job);
// Frees the job and returns the prompt, which the host program ends with sumi_prompt_release. Fails as
// sumi_fetch_model.
SUMI_API sumi_result sumi_fetch_prompt(sumi_engine* engine, sumi_job job, sumi_prompt** out_prompt);

// The output of one text encoder for a prompt: one row of features per token, with padding in some families, or a
// single row if the encoder returns one pooled vector for the whole text.
typedef struct sumi_prompt_encoder {
    int32_t token_count;   // rows of features that the model reads; 1 for a pooled vector
    int32_t width;         // values in a row
    const float* features; // [token_count][width], valid while the prompt lives
} sumi_prompt_encoder;
typedef struct sumi_prompt_info {
    int32_t encoder_count;           // text encoders of the prompt's model: 1, or 2 in some families
    sumi_prompt_encoder encoders[4]; // in the order of the model's text encoders; zero after the last one
    int32_t reference_count;         // reference images that the prompt was encoded with and keeps
    // The adapters that changed the features: "NAME:TEXT_SCALE, NAME:TEXT_SCALE", with the last part of their paths; ""
    // if there were none. Valid while the prompt lives. It is for people to read: sumi does not compare it.
    const char* adapters;
} sumi_prompt_info;
// Returns the features of every text encoder, the number of references and the adapters; all zero for NULL. A prompt
// takes 4 bytes for each value of its features. On a GPU it takes 6, because jobs read them in bfloat16: features that
// were encoded there become float32 at the first call, and float32 becomes bfloat16 when the first job is submitted
// with it.
SUMI_API sumi_prompt_info sumi_prompt_get_info(const sumi_prompt* prompt);
// Writes a prompt as bytes, for a game to ship: the features of every text encoder, the references and the names of
// the adapters, in safetensors format, portable between machines. Returns the number of bytes needed, and writes
// them if `capacity` (bytes) suffices; `into` may be NULL with capacity 0. Returns 0 for NULL. Features are float32, as
// version 0.1 saved them; sumi_prompt_save_as saves smaller ones. This version and later ones can read the bytes, and
// version 0.1 too if the family has one text encoder.
SUMI_API size_t sumi_prompt_save(const sumi_prompt* prompt, void* into, size_t capacity);
// How sumi_prompt_save_as writes features. References keep their 3 bytes per pixel. The sizes are those of 512 rows of
// 7,680 values.
typedef enum sumi_prompt_format {
    SUMI_PROMPT_F32 = 0, // 15.7 MB; no value changes
    // 7.9 MB; every value is rounded to bfloat16, by 0.17 % (root mean square). On a GPU this changes nothing: it
    // encodes features in bfloat16, and image jobs round all features to bfloat16 in the same way.
    SUMI_PROMPT_BF16 = 1,
    // 4.2 MB; 8 bits per value, with a scale for each column and for every 32 values of a row. The error is about
    // 0.5 %, 3 times as large as with BF16. Saving takes some 30 ms.
    SUMI_PROMPT_INT8 = 2
} sumi_prompt_format;
// As sumi_prompt_save, in a format: sumi_prompt_save writes SUMI_PROMPT_F32. Returns 0 for a format that does not exist,
// too. sumi_prompt_load reads every format. Version 0.1 reads F32 alone, and refuses the others.
SUMI_API size_t sumi_prompt_save_as(const sumi_prompt* prompt, sumi_prompt_format format, void* into, size_t capacity);
// Makes a prompt from bytes that version 0.1 or a later one saved, at once, for a model of the same family and feature
// widths. The host program ends it with sumi_prompt_release. Failures: SUMI_FILE_MALFORMED, SUMI_FILE_TRUNCATED;
// SUMI_TENSOR_MISMATCH if the prompt was encoded for another family, width or number of text encoders, or with more
// references than the model takes; SUMI_INVALID_ARGUMENT, SUMI_OUT_OF_HOST_MEMORY.
SUMI_API sumi_result sumi_prompt_load(sumi_model* model, const void* data, size_t bytes, sumi_prompt** out_prompt);
// Frees a prompt; the engine keeps the memory of one freed prompt for the next one. Jobs that were submitted with the
// prompt share its memory, which is freed when the last of them is fetched or discarded. Accepts NULL.
SUMI_API void sumi_prompt_release(sumi_prompt* prompt);

// ---- Adapters -------------------------------------------------------------------------------------------------------
// Adapters change the weights W of a model. sumi reads safetensors files with the tensor names of PEFT, diffusers,
// ComfyUI, kohya, musubi, OneTrainer, LyCORIS and DiffSynth. D is the change of a layer:
//
//     LoRA     D = alpha / rank * up down
//     LoKr     D = w1 (x) w2, the Kronecker product; times alpha / rank if w1 or w2 is stored as a product
//     LoHa     D = alpha / rank * (w1a w1b) o (w2a w2b), the product element by element
//     .diff    D as it is; .diff_b the same of the layer's bias; w_norm or .diff of a norm's weight
//
// W' = W + scale * D. With DoRA (dora_scale, lora_magnitude_vector, magnitude)
// W' = W + scale * (m (W + D) / |W + D| - W), with norms over the inputs or the outputs, by the shape of m. Other kinds
// are refused by name, and so are weights in place of changes.
//
// alpha is a tensor of the file or a number in its header. For adapter_model.safetensors of PEFT it may be in
// adapter_config.json beside it (lora_alpha, use_rslora, alpha_pattern, rank_pattern); otherwise alpha / rank is 1.
// Every key must match a layer of the model, and no layer may be changed in two ways. A job applies its adapters
// without touching or reloading the model. The changes of several adapters add up. An adapter works only with the
// model that it was read for. A value that is NaN or infinite is refused.
//
// A file may have layers of the model's text encoders too, or only these: text_encoder., lora_te_, lora_te1_,
// lora_te2_, text_encoders.NAME.transformer. An image job encodes its texts with them. It does not encode an encoded
// prompt again, so give sumi_prompt_desc the same adapters; the log warns of a prompt that has none. Embeddings of
// text encoders do not change, and neither does the vision tower; textual inversions (bundle_emb) are refused. If
// the model was opened without its text encoder these layers are left out, and the log warns; a file with nothing
// else is refused.
typedef struct sumi_lora_desc {
    uint32_t cookie; // set by sumi_lora_defaults(); leave it alone
    sumi_model* model;
    // a safetensors file, or the folder that holds one as adapter_model.safetensors or pytorch_lora_weights.safetensors
    const char* path;
    int32_t priority; // higher first
    void* user_data;  // returned in sumi_job_status and passed to the engine's completion
} sumi_lora_desc;
// Returns a desc for this model, everything else zero.
SUMI_API sumi_lora_desc sumi_lora_defaults(sumi_model* model);
// Reads an adapter, in a job of stage LOAD. Fails at once with SUMI_INVALID_ARGUMENT, SUMI_DESC_NOT_INITIALIZED,
// SUMI_QUEUE_FULL or SUMI_OUT_OF_HOST_MEMORY. The job fails with SUMI_FILE_NOT_FOUND, SUMI_FILE_READ_FAILED,
// SUMI_FILE_TRUNCATED, SUMI_FILE_MALFORMED, SUMI_LORA_NO_MATCH if a key matches no layer, SUMI_TENSOR_MISMATCH,
// SUMI_TENSOR_MISSING, SUMI_NOT_SUPPORTED, or SUMI_OUT_OF_HOST_MEMORY.
SUMI_API sumi_result sumi_submit_lora(sumi_engine* engine, const sumi_lora_desc* desc, sumi_job* out_job);
// Frees the job and returns the adapter, which the host program ends with sumi_lora_release. Fails as sumi_fetch_model.
SUMI_API sumi_result sumi_fetch_lora(sumi_engine* engine, sumi_job job, sumi_lora** out_lora);
// Cancels the image and prompt jobs that use the adapter and frees it. Accepts NULL. Blocks until the running slice has
// ended.
SUMI_API void sumi_lora_release(sumi_lora* lora);
struct sumi_lora_use {
    const sumi_lora* lora;
    float scale;       // 1: as trained. 0: no effect. May be negative
    float text_scale;  // the same for its layers of text encoders. 0: as `scale`
    bool without_text; // leaves its layers of text encoders out
};

// ---- Control nets ---------------------------------------------------------------------------------------------------
// A control net (ControlNet) is a small network beside a model that makes an image follow a control picture: edges, a
// pose, or depth, which a game has in its depth buffer. sumi reads these kinds, by their tensors, from a safetensors file
// or a diffusers folder, in 16, 8 or 4 bits:
//
//     Z-Image                 Fun Controlnet Union 1.0, 2.0, 2.1, with Lite, Tile and the 8-step files
//     Qwen-Image              InstantX Union and Inpainting; DiffSynth blockwise (canny, depth, inpaint)
//     Qwen-Image, 2512        Fun Controlnet Union
//
// A job adds `strength` times what each net computes, in the steps of its range: step i of n runs with the net unless
// i / n < start or (i + 1) / n > end. Early steps decide on the layout; 0 to 0.7 leaves details to the prompt. Outside
// its range, or with strength 0, a net costs nothing, and a job has the bits of one without it. A net counts as weights
// in memory budgets, and is loaded, streamed and released like a model's. Several nets add up. A net that was made for
// Turbo runs on Base and the reverse, but was not trained for it.
//
// Guidance: nets run for the negative prompt too, except InstantX, which gives what it computed for the positive one to
// both, as its pipeline in diffusers does. Control pictures are encoded with the mean of the VAE's posterior.
typedef struct sumi_control sumi_control; // an opened control net
typedef struct sumi_depth sumi_depth;     // a depth buffer, below
typedef struct sumi_control_desc {
    uint32_t cookie; // set by sumi_control_defaults(); leave it alone
    sumi_model* model;
    const char* path; // a safetensors file, or a diffusers folder
    int32_t priority; // higher first
    void* user_data;  // returned in sumi_job_status and passed to the engine's completion
} sumi_control_desc;
// Returns a desc for this model, everything else zero.
SUMI_API sumi_control_desc sumi_control_defaults(sumi_model* model);
// Reads a control net, in a job of stage LOAD. Fails at once with SUMI_INVALID_ARGUMENT, SUMI_DESC_NOT_INITIALIZED,
// SUMI_QUEUE_FULL or SUMI_OUT_OF_HOST_MEMORY. The job fails with SUMI_FILE_NOT_FOUND, SUMI_FILE_READ_FAILED,
// SUMI_FILE_TRUNCATED, SUMI_FILE_MALFORMED, SUMI_MODEL_UNKNOWN, SUMI_NOT_SUPPORTED (a net for another family of models),
// SUMI_TENSOR_MISMATCH (one for a model of another size), SUMI_TENSOR_MISSING or SUMI_OUT_OF_HOST_MEMORY.
SUMI_API sumi_result sumi_submit_control(sumi_engine* engine, const sumi_control_desc* desc, sumi_job* out_job);
// Frees the job and returns the net, which the host program ends with sumi_control_release. Fails as sumi_fetch_model.
SUMI_API sumi_result sumi_fetch_control(sumi_engine* engine, sumi_job job, sumi_control** out_control);
// Cancels the image jobs that use the net and frees it. Accepts NULL. Blocks until the running slice has ended.
SUMI_API void sumi_control_release(sumi_control* control);

typedef struct sumi_control_info {
    const char* kind;      // "z-fun-1.0", "z-fun-2.0", "z-fun-2.1", "qwen-instantx", "qwen-fun", "qwen-blockwise"
    float strength;        // the usual one of this kind
    bool takes_picture;    // reads a control picture
    bool takes_inpainting; // reads an image to inpaint and its mask; without takes_picture it needs them
    uint64_t weight_bytes; // of the stored weights
} sumi_control_info;
// Returns what a net is; all zero for NULL and for a net whose model was closed.
SUMI_API sumi_control_info sumi_control_get_info(const sumi_control* control);

// What one image follows. Everything is resized to the image's width x height.
typedef struct sumi_control_picture {
    const sumi_pixels* picture; // as the net was trained with it: white edges on black, depth with white near, ..
    // For takes_inpainting: the image, and a mask that is white where it is to be painted again (the rule of
    // sumi_image_start.mask). This only tells the net what surrounds that part. To keep the other pixels exactly, set sumi_image_desc.start too.
    const sumi_pixels *inpaint, *mask;
    const sumi_depth* depth; // in place of `picture`: see "Depth buffers"
} sumi_control_picture;

struct sumi_control_use {
    const sumi_control* control;
    const sumi_control_picture* pictures;
    int32_t picture_count; // 1: for all images of the job; otherwise item_count
    float strength;        // -100 to 100; useful is 0.6 to 1
    float start, end;      // the range of steps, 0 to 1
};
// Returns the use of a net in all steps, with its usual strength and without a picture.
SUMI_API sumi_control_use sumi_control_use_defaults(const sumi_control* control);

// Which control picture to copy, and where to.
typedef struct sumi_control_view {
    int32_t control, item; // indices in sumi_image_desc.controls and .items
    void* into;            // 3 * width * height bytes of the image's size
    size_t capacity;       // in bytes
} sumi_control_view;
// Copies a control picture of a finished image job as the net saw it: RGB8 of the image's width x height, tightly
// packed, from the top. Call it before the fetch. A job keeps these bytes for each of its control pictures
// (sumi_memory.images; of an external, in pinned memory that the external keeps). SUMI_INVALID_ARGUMENT: an index is out of range, or capacity too small. SUMI_WRONG_STATE: the
// net saw none, because it had strength 0, no step in its range, or only inpaint and mask. Otherwise fails as
// sumi_fetch_images, and never frees the job.
SUMI_API sumi_result sumi_job_control_picture(const sumi_engine* engine, sumi_job job, const sumi_control_view* view);

// ---- References -----------------------------------------------------------------------------------------------------
// Edit models read reference images, which the texts refer to in their order. Each is prepared as the model's authors do
// it: most models resize it to a certain area, whatever its size; others shrink it only if it is larger, never enlarge
// it, and crop its middle to multiples of sumi_model_info.size_multiple. A start image may be combined with references.
// All items of a job, positive and negative prompts, use the same references:
//
// Given       sumi_image_desc.references. An encoded prompt of the job must have been encoded with as many references
//             of the same sizes; another one is SUMI_INVALID_ARGUMENT. sumi does not check that they are the same
//             images. Models that read references beside the text, and not with it, take any prompt with any
//             references.
// Not given   If references is NULL and reference_count 0, the job uses those that the encoded prompt of the first item
//             keeps, or none if the first item has a text. With references from a prompt no text can be encoded: give
//             encoded prompts for all items, and with guidance encoded negative prompts too. Models that read
//             references beside the text need neither.
// Inpainting  Some models read a start image that has a mask as their first reference, too, before those that are
//             given. It is encoded once, and is not among their number. The size that follows from the references is
//             then the start image's, shrunk to the model's area if it is larger, and rounded down to multiples.
// Number      sumi_model_info.min_references to max_references; another number is SUMI_INVALID_ARGUMENT, and the log
//             names the possible ones. Some models make no image without a reference.
// Refused     On models that take none, references are SUMI_NOT_SUPPORTED. For image jobs they are so too if the model
//             was opened without its VAE encoder. An image that is too long and narrow, or too small for a model that
//             enlarges none, is SUMI_INVALID_ARGUMENT.
// Seed        Some models return a sharpened copy of a reference if they begin with the noise from which that reference
//             was drawn. With references these draw the noise of the seed XOR 0x9e3779b97f4a7c15. Noise that is given
//             is used as it is.
// Memory      If a job does not fit the memory and would with fewer references, its message says how many.
// Size        If width and height of an image are both 0, the size follows from the references, by the rule of the
//             model's authors: the aspect ratio is that of the first or of the last reference, depending on the model.
//             Without references it is sumi_model_info.native_size along both sides, in whole multiples.

// Returns the size in pixels of the images of such a job: width and height of the desc, or what 0 x 0 stands for.
// Memory for targets, noise and previews must fit this size. Fails as sumi_submit_images, except with SUMI_QUEUE_FULL
// and SUMI_OUT_OF_HOST_MEMORY.
SUMI_API sumi_result sumi_image_size(const sumi_image_desc* desc, sumi_size* out_size);

// ---- Alpha ----------------------------------------------------------------------------------------------------------
// Models with sumi_model_info.has_alpha make and read pixels with alpha, which is straight: colours are not multiplied
// by it. All other models make an alpha of 255 (1), and ignore the alpha of images given to them.
//
// Images      RGBA8, BGRA8 and RGBA16F have the model's alpha, from 0 to 1. Formats without alpha have the colours as
//             the model made them, those of transparent pixels too: no background shows through. Ask for a format with
//             alpha to draw the image over your own. sumi_image.has_alpha says which of the two an image is.
// Given       The alpha of a start image, a reference and an image to encode is read; without alpha they are opaque. A
//             resize weights colours by alpha, so that those of transparent pixels do not spread. The vision tower of
//             an edit model sees references over white.
// Inpainting  What a mask keeps has the alpha of the start image. Where mask_feather blends, colours count by their
//             alpha on either side.
// Previews    are opaque: the linear map that makes them has no alpha.

// ---- Deadlines ------------------------------------------------------------------------------------------------------
// A job with sumi_image_desc.deadline_ms is meant to be done this many milliseconds after its submission. To be in time
// it leaves out steps. How many follows from the speed and the share of each frame that it got so far. At least 4 steps
// run, or step_count if that is less: a deadline that these steps cannot keep is missed. Solvers with one evaluation
// per step decide again before every step, so budgets may change meanwhile; the others decide once. Which steps run
// depends on time, so the bits do too. A deadline together with sigmas is SUMI_INVALID_ARGUMENT.
//
// 99 of 100 jobs are done within 1.1 times their deadline. That includes the first of a size, and jobs beside other
// work that comes and goes (with solvers that decide once, only if the speed stays the same). Jobs may be later than
// that in three cases: while other threads keep every core busy; with a deadline of only a few frames, because jobs end
// inside updates; and in an engine's very first decoding, whose time is a guess. The price is a margin: some steps are
// left out that might have fitted, more of them for a size that has not run before. A deadline of twice the time of all
// steps leaves none out, or a few with solvers that decide once. With a step cache, sumi predicts the evaluations that
// will be reused from those before them. Solvers that decide once know these only after the first such job of the
// model. That job may leave out more steps than it has to.

// ---- Step caching ---------------------------------------------------------------------------------------------------
// For jobs of about 20 steps or more. An evaluation that reuses earlier ones computes only the first block of the
// transformer. What the other blocks add is extrapolated from the last two evaluations that computed them. Which
// evaluations do so is decided by one of three numbers in sumi_image_desc; two above 0 are SUMI_INVALID_ARGUMENT.
//
// step_cache_db     The PSNR in dB that the image is to keep against the one without a step cache: 45 can hardly be
//                   seen, 40 changes details, 35 also small things. Evaluations are reused while the finished image is
//                   predicted to keep it. Evaluations that are computed measure what reusing would have changed in
//                   their place, so the same number serves all models, solvers, guidance scales and numbers of steps.
//                   At most 99.
// step_cache_every  A fixed schedule: the first two evaluations are computed, and of those after them every n-th. 2 to
//                   10.
// step_cache        The largest predicted change of the first block's output, relative to its size, over which an
//                   evaluation is reused, as in First-Block Cache (ParaAttention, diffusers). 0.05 to 0.12 are usual. A
//                   larger number is faster and changes the image more, by how much depends on model and steps. At most
//                   10.
//
// The first two evaluations, those of the last step and the first two after guidance begins or ends are always
// computed; with step_cache_db also the third, and without a fixed schedule at least every fourth one.
// sumi_image.reused_count says how many were not, and predicted_db what the image is predicted to keep: 99 if it is
// equal, 0 if that is not known. On demo models most predictions are 0 to 5 dB too low, with references 5 to 12, and a
// few are too high: of six pictures one lost 10 to 20 dB more.
//
// The same job reuses the same evaluations whatever the budgets, slices and threads are, but with a deadline they
// depend on time, as the steps do. Another backend rounds differently and may decide differently. Every image decides
// for itself: the images of a batch run one after another. A job takes four more matrices of one row per image token
// and the transformer's width, with guidance twice as many rows; sumi_image_memory counts them.

// ---- Targets --------------------------------------------------------------------------------------------------------
struct CUevent_st; // the CUDA driver's CUevent is a pointer to it

// A value of an imported semaphore (sumi_import). Timeline semaphores: the value to wait for or to signal. A value to
// signal is above all earlier ones. Binary semaphores have no value. semaphore NULL: nothing.
typedef struct sumi_sync {
    sumi_external* semaphore;
    uint64_t value;
} sumi_sync;

// Where an image is written: at most one of host_memory, device_address and external. All zero: memory of sumi in
// `format`, released with sumi_images_release.
//
// The fetch writes host_memory and an external: they must live until sumi_fetch_images or sumi_job_discard has
// returned.
//
// With device_address the image stays on the GPU. Its pixels are identical to those returned in host memory. The GPU
// writes it at the end of the stage TRANSFER, on the engine's stream. When the job is DONE the image is complete, and
// GPU work that the host program submits from then on need not wait. From the submit until the job has finished, or
// until sumi_job_discard has returned, the memory must stay allocated and nobody else may use it. A failed or cancelled
// job may have written a part of an image, or a whole image with values that are not finite.
struct sumi_target {
    sumi_format format;
    void* host_memory; // `height` rows in host memory; the fetch writes them, nothing does before
    // Pitch: bytes from row to row, of host_memory or at device_address; 0: tightly packed. With device_address a
    // multiple of 4 for all formats but RGB8.
    int32_t row_bytes;
    // `height` rows of linear device memory (CUdeviceptr) of the engine's context: the primary context of the device,
    // or sumi_engine_desc.cuda.context. The conversion to `format` writes here, without a copy. The address is a
    // multiple of 4 for all formats but RGB8. SUMI_NOT_SUPPORTED on the CPU backend.
    uint64_t device_address;
    // With device_address: an event of the host program, which sumi records on the engine's stream directly after the
    // image, for host programs that order all of their GPU work by events. When the job is DONE it has been recorded.
    // NULL: none. Must live as long as the memory.
    struct CUevent_st* event;
    // An import of the image's size and of this `format`; row_bytes is then 0 (sumi_import). sumi_fetch_images submits
    // the copy to a stream that belongs to the external.
    sumi_external* external;
    bool bottom_up; // for every kind: the last row comes first, as in textures of OpenGL and Unity; same pitch
    // With an external that was imported by its handle, of Vulkan for example: what the GPU waits for before the copy
    // into the external, and what it signals after it. `signal` is required, because nothing else tells when the image
    // is there. All other targets have neither.
    sumi_sync wait, signal;
};

// ---- Imports of graphics APIs ---------------------------------------------------------------------------------------
// A host program that draws with OpenGL or Vulkan can have images and previews written to its textures and buffers,
// without a copy through host memory. (Direct3D: see the end of this header.) It imports each of them once; with Vulkan
// also the semaphores that order the work of both sides. All must be of the engine's GPU: sumi_engine_info.device_uuid
// and device_luid say which one that is, and sumi_engine_desc.cuda.uuid and luid choose it. You need none of this if
// you upload the preview or image from host memory as any other texture.
//
// What happens to an image whose target is an external:
//
//     stage TRANSFER       The GPU writes the image to device memory of sumi, which the import has allocated.
//     sumi_fetch_images    puts three things into a stream of the external and returns: wait for target.wait, copy into
//                          the external, signal target.signal. The CPU waits for nothing. The GPU's work for the engine
//                          waits in one case only: before it writes the next image for the same external, until the
//                          image before has been copied. If you hold images for long, alternate between two externals.
//     on the GPU           Your command queue waits for target.signal. Or you read the semaphore's counter on the CPU,
//                          and show the last image until it is reached.
//
// With one external, timelines `ready` and `drawn`, and images numbered from 1: image n waits for `drawn` n - 1 and
// signals `ready` n; your queue signals `drawn` n after its commands that read image n. Then no image is overwritten
// while it is read, whoever is late.
//
// A failed or cancelled job copies nothing and signals nothing. Therefore let your queue wait for a value only after
// the fetch has returned SUMI_OK.
//
// OpenGL       OpenGL orders the copy between the commands before and after the call, without semaphores. Its context
//              must be current on the thread that calls the import, the fetch and the release. Release textures and
//              buffers before you delete them.
// Ownership    On SUMI_OK a file descriptor belongs to sumi, which closes it: do not use it again. A Windows handle
//              stays yours; you may close it (CloseHandle) after the import. After a failure both are yours, as before.
//              The driver keeps the memory or semaphore until both sides have freed it, so the graphics API may free it
//              before sumi_external_release.
// Layout       While sumi writes, Vulkan images are in the layout GENERAL and belong to VK_QUEUE_FAMILY_EXTERNAL:
//              record the release to that family before you signal `wait`, and the acquire after you wait for `signal`.
// Formats      RGBA8 is VK_FORMAT_R8G8B8A8_UNORM, _SRGB, or GL's format of that name; BGRA8 is VK_FORMAT_B8G8R8A8;
//              RGBA16F is VK_FORMAT_R16G16B16A16_SFLOAT. Values are sRGB encoded in all of them. Rows of pixels may
//              have any sumi_format; images have one of these three, OpenGL textures RGBA8 or RGBA16F.
// Signals      Only one side signals each timeline: sumi signals `ready`, your queue `drawn`. Values only grow, and
//              neither side knows which values the other has pending.
// Deadlocks    A copy that waits for a value that nobody signals never ends, and neither does the release of its
//              external. Before the release and before sumi_engine_destroy, signal what sumi was told to wait for. With
//              Vulkan, use a submission without commands to the queue that signals `drawn`: Vulkan does not
//              allow vkSignalSemaphore for a value while a queue has yet to signal that timeline.
// Unchecked    sumi cannot see what a handle refers to. If memory_bytes, is_dedicated, size, format or usage differ
//              from what the memory was made with, or if memory is passed as a Vulkan semaphore, some drivers refuse
//              the import. Others accept it: the import returns SUMI_OK, and then pixels may be wrong and copies may
//              never end.
typedef enum sumi_external_kind {
    SUMI_EXTERNAL_NONE = 0, // refused
    // Where images are written.
    SUMI_EXTERNAL_GL_TEXTURE = 1,     // gl_name, gl_target
    SUMI_EXTERNAL_GL_BUFFER = 2,      // gl_name; its storage must exist
    SUMI_EXTERNAL_VULKAN_MEMORY = 3,  // a VkDeviceMemory, exported as OPAQUE_FD or OPAQUE_WIN32
    SUMI_EXTERNAL_D3D12_RESOURCE = 4, // Direct3D: see the end of this header
    SUMI_EXTERNAL_D3D12_HEAP = 5,
    SUMI_EXTERNAL_D3D11_RESOURCE = 6,
    SUMI_EXTERNAL_D3D11_TEXTURE = 7,
    // Semaphores.
    SUMI_EXTERNAL_VULKAN_TIMELINE = 20,  // a timeline VkSemaphore, exported as OPAQUE_FD or OPAQUE_WIN32
    SUMI_EXTERNAL_VULKAN_SEMAPHORE = 21, // a binary one; its waits and signals must alternate
    SUMI_EXTERNAL_D3D12_FENCE = 22,
    SUMI_EXTERNAL_D3D11_FENCE = 23,
    SUMI_EXTERNAL_D3D11_KEYED_MUTEX = 24
} sumi_external_kind;

typedef struct sumi_import_desc {
    uint32_t cookie; // set by sumi_import_defaults(); leave it alone
    sumi_external_kind kind;
    // Vulkan on Linux: the file descriptor that vkGetMemoryFdKHR or vkGetSemaphoreFdKHR returned. Otherwise -1.
    int32_t fd;
    // Vulkan on Windows: the NT handle that vkGetMemoryWin32HandleKHR or vkGetSemaphoreWin32HandleKHR returned.
    // Direct3D: see the end of this header. Otherwise NULL.
    void* handle;
    uint32_t gl_name;   // of the texture or buffer
    uint32_t gl_target; // of a texture: what it is bound to (GL_TEXTURE_2D: 0x0DE1)
    // The device that the memory or semaphore is of: 16 bytes VkPhysicalDeviceIDProperties.deviceUUID, or 8 bytes
    // deviceLUID (AdapterLuid). One of the two is required, except with OpenGL and D3D11_TEXTURE. Another GPU than the
    // engine's is refused with SUMI_INVALID_ARGUMENT.
    const uint8_t* device_uuid;
    const uint8_t* device_luid;

    // The rest describes memory; leave it alone for semaphores.
    int32_t width, height; // pixels
    sumi_format format;
    // false: rows of pixels from byte `offset` on, as in a buffer or an image of linear tiling. true: an image of
    // optimal tiling. Textures of OpenGL and D3D11_TEXTURE are images whatever this says.
    bool is_image;
    bool is_color_attachment; // images: their usage includes color attachment (Vulkan), render target (Direct3D)
    int32_t level_count;      // images: mip levels; the first one is written
    int32_t row_bytes;        // rows: bytes from row to row; 0: tightly packed
    // Of the whole memory, as it was allocated: VkMemoryAllocateInfo.allocationSize. Required, except with OpenGL and
    // D3D11_TEXTURE.
    uint64_t memory_bytes;
    uint64_t offset;     // where the pixels begin in the memory or buffer, in bytes
    bool is_dedicated;   // Vulkan: the memory was allocated with VkMemoryDedicatedAllocateInfo
    bool takes_previews; // previews will be written to it: also allocates page-locked memory of the image's size
    // Pixels are one float each: sumi reads a depth buffer from it (sumi_depth.external) and writes nothing to it.
    // `format` is left alone; textures are GL_R32F, VK_FORMAT_R32_SFLOAT or DXGI_FORMAT_R32_FLOAT.
    bool is_depth;
} sumi_import_desc;

// Returns a desc with fd -1, RGBA8, one level, everything else zero. At any time.
SUMI_API sumi_import_desc sumi_import_defaults(void);
// Imports memory or a semaphore of a graphics API. The host program ends it with sumi_external_release. For each
// import of memory sumi allocates width * height pixels of device memory, which hold an image until it is copied.
// OpenGL textures must have immutable storage (glTexStorage2D) of exactly this size and format; others are refused. A
// texture keeps its content until an image is fetched. Only one job at a time can use an external as a target, from its
// submission to its fetch or discard; any number of jobs can use a semaphore. Blocks until the running slice has ended.
//
// Failures: SUMI_NOT_SUPPORTED on the CPU backend, and for kinds that the driver or the system does not have;
// SUMI_DESC_NOT_INITIALIZED; SUMI_INVALID_ARGUMENT, also for a handle that the driver refuses and for memory that is
// too small; SUMI_WRONG_STATE (no GL context, or one of another GPU), SUMI_OUT_OF_DEVICE_MEMORY,
// SUMI_OUT_OF_HOST_MEMORY. On failure *out_external is NULL.
SUMI_API sumi_result sumi_import(sumi_engine* engine, const sumi_import_desc* desc, sumi_external** out_external);
// Ends an import. Cancels the unfinished jobs that use the external, or that wait for or signal the semaphore. Finished
// ones stay DONE, but their images for it are lost. Accepts NULL. Blocks until the running slice and the copies in the
// streams of externals have ended, and therefore until the semaphores that these copies wait for are signalled.
SUMI_API void sumi_external_release(sumi_external* external);

// Writes the newest preview of an item to an external of the preview's size (width / 8 x height / 8) that was imported
// with takes_previews, in the external's format. Uses external, bottom_up, wait and signal of `target`; `format` must
// be the external's, and everything else zero. Puts wait, copy and signal into the external's stream and returns; sumi
// never waits for a preview. Like sumi_fetch_images, this is not a free call.
//
// SUMI_BUSY means that the preview before it was not copied yet, because you have not signalled `wait`. The call did
// nothing; call again in a later frame to show the preview that is the newest then. If you alternate between two or
// three externals, you have to know which one is free: read the counter that your queue signals when it has drawn with
// one.
//
// Other failures: SUMI_WRONG_STATE (no preview yet, no GL context), SUMI_STALE_HANDLE, SUMI_INVALID_ARGUMENT,
// SUMI_NOT_SUPPORTED on the CPU backend, and the results of a device. After any failure nothing will be signalled.
SUMI_API sumi_result sumi_job_show_preview(sumi_engine* engine, sumi_job job, int32_t item, const sumi_target* target);

// ---- Depth buffers --------------------------------------------------------------------------------------------------
// A depth buffer of the host program, from which sumi makes a control picture as the net was trained with it: grey, near
// is white.
//
// Distances    Values become distances from the camera's plane (view-space z), whatever the kind. A perspective camera
//              has one of the first three kinds. The depth of an orthographic camera is linear: give DISTANCE.
// Sky          is what lies at the far plane or beyond (a cleared depth buffer), at infinity, or is NaN. It is black.
// Greys        Fun nets: white - black is linear in the distance, from its 2nd percentile (white) to its 85th (black),
//              as the authors' ZoeDepth annotator has it; sky is not counted. Other nets: linear in 1 / distance, from
//              the 99th percentile of 1 / distance (white) to the 1st (black), as of MiDaS; sky counts. Percentiles are
//              exact and interpolated as numpy.percentile does. A picture with one distance only is white.
// Flicker      Percentiles differ from frame to frame. For sequences give `low` and `high`, once per shot: then the same
//              distance always has the same grey.
// Size         Greys are computed in the buffer's own size and then resized to the image's, by a triangle filter
//              (Pillow's BILINEAR), which cannot overshoot at silhouettes as Lanczos does, and rounded to 8 bits last.
// External     The depth stays on the GPU (CUDA only). sumi_submit_images puts three things into a stream of the external
//              and returns: wait for `wait`, copy the depth to memory of sumi, signal `signal`. With OpenGL it therefore
//              needs the context, as a fetch does. From the signal on you may draw into the texture again, long before
//              the job is done. All externals of the desc are read, also for nets with strength 0. If the call
//              fails, some may have been. The engine's GPU work waits for the copy, so signal `wait` soon. From its
//              submission to its fetch or discard, only one job can use an external, in one place. Greys are computed on
//              the GPU, within 1 of 255 of the CPU's.
// Formats      CUDA does not share depth formats (GL_DEPTH_COMPONENT*, GL_DEPTH24_STENCIL8, VK_FORMAT_D32_SFLOAT,
//              DXGI_FORMAT_D32_FLOAT). Copy the depth to a texture of one float (GL_R32F, VK_FORMAT_R32_SFLOAT,
//              DXGI_FORMAT_R32_FLOAT), by one pass of a triangle over the whole texture with a fragment shader such as
//              `out float z; uniform sampler2D depth; void main() { z = texelFetch(depth, ivec2(gl_FragCoord.xy), 0).r; }`
typedef enum sumi_depth_format {
    SUMI_DEPTH_F32 = 0,
    SUMI_DEPTH_U16 = 1 // 65535 stands for 1, with DISTANCE for far_plane
} sumi_depth_format;
typedef enum sumi_depth_kind {
    SUMI_DEPTH_STANDARD = 0, // 0 at the near plane, 1 at the far plane; also what OpenGL's depth buffer holds
    SUMI_DEPTH_REVERSED = 1, // 1 at the near plane, 0 at the far plane or at infinity: Unity, Unreal
    SUMI_DEPTH_OPENGL = 2,   // normalised device coordinates of OpenGL: -1 near, 1 far; not with U16
    SUMI_DEPTH_DISTANCE = 3  // distances already
} sumi_depth_kind;
struct sumi_depth {
    const void* data; // without jitter, antialiasing or sRGB encoding; NULL with `external`
    sumi_depth_format format;
    int32_t width, height; // pixels, any size; the image's shape avoids distortion
    int32_t row_bytes;     // pitch: bytes from row to row; 0: tightly packed
    bool bottom_up;        // the first row is the lowest, as glReadPixels gives them
    sumi_depth_kind kind;
    // Of the camera, 0 < near_plane < far_plane; INFINITY is allowed. DISTANCE reads far_plane only, from which on all
    // is sky; 0 is INFINITY there. Any unit of length, the same in all four members.
    float near_plane, far_plane;
    float low, high; // distances that become white and black, 0 < low < high; both 0: percentiles of this picture
    // A texture or buffer of floats in place of data, imported with sumi_import_desc.is_depth. width and height are 0 or
    // the import's, row_bytes is 0. `wait` and `signal` as of sumi_target, but each may be left out.
    sumi_external* external;
    sumi_sync wait, signal;
};
// Returns a standard F32 buffer without data and planes. At any time.
SUMI_API sumi_depth sumi_depth_defaults(void);

// ---- Images to latents ----------------------------------------------------------------------------------------------
typedef struct sumi_encode_desc {
    uint32_t cookie; // set by sumi_encode_defaults(); leave it alone
    sumi_model* model;
    const sumi_pixels* image;  // is resized to width x height (Lanczos, as Pillow)
    int32_t width, height;     // pixels, multiples of sumi_model_info.size_multiple
    sumi_posterior posterior;  // MODE by default: no noise
    uint64_t seed;             // of a sample's noise
    const float* noise_values; // [channel][y][x]: the sample's noise; NULL: from the seed
    int32_t priority;          // higher first
    void* user_data;           // returned in sumi_job_status and passed to the engine's completion
} sumi_encode_desc;
// Returns a desc of the model's native size.
SUMI_API sumi_encode_desc sumi_encode_defaults(sumi_model* model);
// Encodes an image to latents, from which many image jobs can start, in a job of stage IMAGE. Fails at once with
// SUMI_INVALID_ARGUMENT, SUMI_DESC_NOT_INITIALIZED, SUMI_QUEUE_FULL, SUMI_OUT_OF_HOST_MEMORY, or SUMI_NOT_SUPPORTED if
// the model was opened without its VAE encoder. The job fails with SUMI_BUDGET_TOO_SMALL, or a result of memory or
// device.
SUMI_API sumi_result sumi_submit_encode(sumi_engine* engine, const sumi_encode_desc* desc, sumi_job* out_job);
// Frees the job and writes latents [channel][y][x], scaled as the transformer takes them. `capacity` is in floats; one
// that is too small is SUMI_INVALID_ARGUMENT and does not free the job. Otherwise fails as sumi_fetch_model.
SUMI_API sumi_result sumi_fetch_latents(sumi_engine* engine, sumi_job job, float* into, size_t capacity);

// Copies the final latents [channel][y][x] of one item of a finished image job. Call it before the fetch. `capacity` is
// in floats; SUMI_INVALID_ARGUMENT if it is too small. Otherwise fails as sumi_fetch_images, and never frees the job.
// Of a job that sumi_job_pause has stopped after the stage DENOISE had begun, without a step cache, it copies the
// latents of the moment: those after sumi_job_status.step steps, with solvers of one evaluation per step.
SUMI_API sumi_result sumi_job_latents(const sumi_engine* engine, sumi_job job, int32_t item, float* into,
                                      size_t capacity);

// ---- Tracing and profiles -------------------------------------------------------------------------------------------
// Where the work of a span (sumi_trace_span) was done.
typedef enum sumi_track {
    // The thread that calls the engine, or the pump's thread: plans, tokens, noise; on the CPU backend also slices.
    SUMI_TRACK_HOST = 0,
    SUMI_TRACK_DEVICE = 1 // slices on a GPU
} sumi_track;
// What an engine did and when, for your own profiler (Tracy, Unreal Insights, a Chrome trace as `sumi generate --trace`
// writes it). Every piece of work is one span, which is reported when the work is done. Spans of a track come in order
// and never overlap. Times are nanoseconds of the system's steady clock: CLOCK_MONOTONIC, or QueryPerformanceCounter on
// Windows. CUDA events measure the length of a GPU span. Its position is an estimate: after its submission and after
// the span before it, never in the future.
typedef struct sumi_trace_span {
    // The first operation of a slice ("attention.qkv"), otherwise what was done ("noise"). Valid during the call.
    const char* name;
    sumi_track track;
    sumi_stage stage;
    int32_t step; // denoising step, from 0; -1 outside the denoising steps
    uint64_t job; // sumi_job.id
    uint64_t begin_ns, end_ns;
} sumi_trace_span;
// The thread that runs slices calls `span` while it works, so be quick. NULL: no spans are measured, at no cost.
struct sumi_tracer {
    void (*span)(const sumi_trace_span* span, void* user_data);
    void* user_data;
};

// Experimental: sumi_profile_row and sumi_job_profile may change between minor versions, after 1.0 too.
//
// One kind of operation in one stage, and what it cost. Operations of the same name in different layers are summed.
typedef struct sumi_profile_row {
    sumi_stage stage;
    char name[48]; // "attention.qkv"
    int32_t count; // how often it ran
    double seconds;
    double flops, bytes; // of all runs; bytes: the least that must be read and written
} sumi_profile_row;
// Writes the table of a finished image job that was submitted with `profile`, most time first. Call it before the
// fetch. Returns the number of rows that there are, and writes at most `capacity` of them; 0 for any other job.
SUMI_API int32_t sumi_job_profile(const sumi_engine* engine, sumi_job job, sumi_profile_row* rows, int32_t capacity);

// ---- What has not run on hardware yet -------------------------------------------------------------------------------
// Windows     The library compiles for Windows. There, the CPU backend has run under Wine, but not on Windows itself,
//             and no GPU has run.
// Direct3D    Imports of Direct3D 12 and 11 by sumi_import have run nowhere. Only their calls to CUDA are tested, with
//             a stand-in for the driver. The rules of "Imports of graphics APIs" hold for them, and these:
//
//     D3D12_RESOURCE      a committed ID3D12Resource with D3D12_HEAP_FLAG_SHARED
//     D3D12_HEAP          an ID3D12Heap with D3D12_HEAP_FLAG_SHARED
//     D3D11_RESOURCE      a resource with D3D11_RESOURCE_MISC_SHARED_NTHANDLE
//     D3D11_TEXTURE       an ID3D11Texture2D itself, of default usage, shared or not
//     D3D12_FENCE         an ID3D12Fence with D3D12_FENCE_FLAG_SHARED
//     D3D11_FENCE         an ID3D11Fence with D3D11_FENCE_FLAG_SHARED
//     D3D11_KEYED_MUTEX   the IDXGIKeyedMutex of a resource, by the resource's handle
//
// Handles      `handle` is the NT handle from CreateSharedHandle; of D3D11_TEXTURE the pointer to the ID3D11Texture2D.
// Order        Fences work as timelines do. For a keyed mutex, sumi_sync.value is the key to acquire or to release.
//              D3D11_TEXTURE needs neither, as OpenGL: make the import, the fetch and the release on the thread that
//              uses the immediate context. All other textures, buffers and heaps require target.signal.
// Memory       memory_bytes is the size of the heap, or GetResourceAllocationInfo().SizeInBytes. Resources always are
//              dedicated memory, whatever is_dedicated says. device_luid is DXGI_ADAPTER_DESC.AdapterLuid.
// State        While sumi writes, textures of Direct3D 12 are in the state COMMON.
// Formats      RGBA8, BGRA8 and RGBA16F are DXGI's formats of the same names.

#ifdef __cplusplus
}
#endif
#endif
