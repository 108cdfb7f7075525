// sumi: images from diffusion transformers, inside your program.
//
// sumi runs image models in a host that has something better to do: a game, a paint tool, an engine plug-in. It never
// blocks a frame, never prints and never ends the process. It takes its memory, threads and files from the host where
// the host wants that, and gives everything back.
//
// There are two ways to use it. Both work with the same objects and may be mixed.
//
//   Jobs          Everything slow is a job. The host submits it, lets it work a little in every frame, looks how far it
//                 is, and fetches the product. Nothing blocks.
//   Simple calls  For tools: sumi_open_model() and sumi_generate() each submit one job, wait for it and fetch.
//
// A complete program with jobs:
//
//     #include <sumi.h>
//     #include <stdio.h>
//
//     int main(void)
//     {
//         sumi_engine_desc ed = sumi_engine_defaults();
//         sumi_engine* engine;
//         if (sumi_engine_create(&ed, &engine) != SUMI_OK) return 1;
//
//         sumi_model_desc md = sumi_model_defaults();
//         md.path = "models/Z-Image-Turbo";                          // a diffusers folder as released
//         sumi_job load;
//         sumi_model* model = NULL;
//         sumi_submit_model(engine, &md, &load);
//         sumi_job_wait(engine, load, SUMI_FOREVER);                 // a tool waits; a game polls, see below
//         if (sumi_fetch_model(engine, load, &model) != SUMI_OK) return 1;
//
//         sumi_image_item item = {0};
//         item.text = "a lighthouse at dusk, ink wash";
//         item.seed = 7;
//         sumi_image_desc id = sumi_image_defaults(model, SUMI_PRESET_MODEL);
//         id.items = &item;
//         id.item_count = 1;
//         sumi_job job;
//         sumi_result result = sumi_submit_images(engine, &id, &job);
//         while (result == SUMI_OK) {                                 // the host's own frame loop
//             sumi_engine_update(engine, 4000);                       // about 4 ms of work for this frame
//             sumi_job_status status = sumi_job_poll(engine, job);
//             if (status.state >= SUMI_JOB_DONE) break;
//             printf("%3.0f %%\n", 100.0f * status.progress);         // ... or draw sumi_job_preview()
//         }
//         sumi_image image;
//         if (result == SUMI_OK) result = sumi_fetch_images(engine, job, &image, 1);
//         if (result == SUMI_OK) fwrite(image.pixels, 1, (size_t)image.row_bytes * image.height, stdout); // RGBA8
//         else fprintf(stderr, "%s\n", sumi_result_text(result));
//         sumi_engine_destroy(engine);                                // takes models, jobs and images with it
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
// ---- Rules that hold everywhere -------------------------------------------------------------------------------------
//
// Threads     An engine may be used from any thread, one call at a time. Seven functions are safe beside any other
//             call, from any thread: sumi_job_poll, sumi_job_cancel, sumi_job_preview, sumi_job_set_priority,
//             sumi_job_list, sumi_engine_get_info, sumi_engine_last_error. Two engines share nothing and need no
//             coordination. There are no process-wide settings.
// Callbacks   The host's services (log, allocators, files, tasks, tracer, completion) are called in the middle of a call
//             or of a slice. They may call the seven functions above, the functions that need no engine, and other engines. Any
//             other call of the same engine would wait for itself: it is refused with SUMI_WRONG_STATE, does nothing
//             where it returns no result, and is told to the log (but not by a call from the log itself). Nor may a
//             callback wait for another thread that is inside of the engine.
// Processes   An engine lives in the process that made it. A child after a fork has its memory and none of its threads:
//             every call is refused there as above (sumi_job_poll says SUMI_JOB_NONE), and sumi_engine_destroy frees
//             nothing. Make engines after the fork.
// Blocking    Calls that block say so; all others return at once, or after a copy of what they are given.
//               sumi_engine_create                          a few milliseconds, or as long as the CUDA driver takes
//               sumi_engine_update                          about its budget
//               sumi_job_wait                               until the job is over, or the time
//               sumi_open_model, sumi_generate              until they are done
//               sumi_engine_set_memory_budget, sumi_model_close, sumi_lora_release, sumi_import_gl_texture,
//               sumi_external_release                       until the slice that runs is over, and until a GPU has done
//                                                           what was submitted where they take something from it
//               sumi_job_discard                            the same, of a running job with SUMI_PUMP_UPDATE, and of a
//                                                           model or an adapter that nobody fetched
//               sumi_engine_destroy                         the same, and until the loading of a GPU's kernels is over
//               sumi_image_memory                           writes a plan, which takes milliseconds; waits for no slice
//             Only with SUMI_PUMP_THREAD does a slice run while the host calls. It is a piece of about max_slice_us, or
//             a read of the host's files (see sumi_files).
// Descs       Every desc is made by its ..._defaults() function, which also sets its cookie. Any other desc is refused
//             with SUMI_DESC_NOT_INITIALIZED. Submit copies everything that a desc points to, unless a member says
//             otherwise.
// Failure     Every failure is a sumi_result. sumi_result_text() says in a sentence what to do. Details (file, tensor,
//             number) go to the engine's log and, for jobs, to sumi_job_status.message. After any failure the engine
//             still works. Out arguments are written on SUMI_OK; otherwise they are zeroed or left as they were. With
//             NULL for the engine a function returns SUMI_INVALID_ARGUMENT; one that returns no result does nothing.
// Strings     UTF-8, zero-terminated. Invalid UTF-8 in a prompt is read as U+FFFD.
// Pictures    width x height pixels, row by row from the top, sRGB.
// Latents     The model's own small form of a picture: float32 [channel][y][x], with latent_channels channels,
//             height / latent_factor rows and width / latent_factor columns; both numbers are in sumi_model_info.
//             Comments here write [channel][y][x] for this shape.
// Same bits   The same inputs give the same bits on the same backend and processor, for any budget, slice size and
//             worker count, with previews on or off.
// Files       Checkpoints are mapped into memory. A model's files stay open while the model lives. No other program may
//             cut them short meanwhile.
//
// ---- Versions -------------------------------------------------------------------------------------------------------
//
// A version is major.minor.patch. A program is compiled with the header of one version and may meet a library of
// another one, above all when it loads the library by name.
//
// Patch       Patch versions change nothing that is declared here. A program works with any patch version of the
//             library that has its major and minor version.
// Minor       Minor versions may add functions, members and enum values. The program must then be compiled again,
//             because structs may have grown. That holds for descs too: their defaults functions return them by value.
//             Until version 1.0 a minor version may also rename or remove; CHANGELOG.md lists it.
// Descs       Structs whose name ends in _desc grow at their end only; the cookie stays their first member. A binding
//             to another language therefore appends members and never moves any.
// Others      All other structs are frozen within a minor version and may change in the next one: those that functions
//             return (sumi_engine_info, sumi_job_status, sumi_model_info, sumi_prompt_info, sumi_memory, sumi_image),
//             and those that are members or arrays of others (sumi_image_item, sumi_target, sumi_allocator and so on).
// Enums       The number of an enum value never changes and is never given to another one.
// Checking    A program that loads the library by name calls sumi_check_version(SUMI_VERSION_NUMBER) before any other
//             function, and goes no further unless it is there and returns SUMI_OK. sumi_version() and
//             sumi_check_version() keep their form in all versions.
//
// All layouts are those of 64-bit platforms; Linux and Windows have the same.
#ifndef SUMI_H
#define SUMI_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#ifndef SUMI_API
#define SUMI_API // dllexport or visibility, when built as a shared library for engine plug-ins
#endif

#define SUMI_VERSION_MAJOR 0
#define SUMI_VERSION_MINOR 2
#define SUMI_VERSION_PATCH 0
// One number that grows with every version: 1.2.3 is 1002003.
#define SUMI_VERSION_NUMBER (SUMI_VERSION_MAJOR * 1000000u + SUMI_VERSION_MINOR * 1000u + SUMI_VERSION_PATCH)

#define SUMI_FOREVER UINT32_MAX // no limit, of timeouts in milliseconds and budgets in microseconds

// ---- Results: stable numbers, grouped in tens -----------------------------------------------------------------------
typedef enum sumi_result {
    SUMI_OK = 0,
    // the caller
    SUMI_INVALID_ARGUMENT = 1,     // a value is out of range, or NULL where it may not be; the log names the member
    SUMI_DESC_NOT_INITIALIZED = 2, // the desc was not made by its ..._defaults() function
    SUMI_STALE_HANDLE = 3,         // the job was fetched or discarded before, or never existed
    // the job is not done yet, or is of another kind than this fetch; or the call came from a callback (see Callbacks)
    SUMI_WRONG_STATE = 4,
    SUMI_QUEUE_FULL = 5,       // job_capacity jobs exist; fetch or discard one
    SUMI_NOT_SUPPORTED = 6,    // the request is valid, but this build, backend or model does not support it
    SUMI_VERSION_MISMATCH = 7, // the header that the program was compiled with is of another version
    // memory
    SUMI_OUT_OF_HOST_MEMORY = 10,   // the allocator returned NULL
    SUMI_OUT_OF_DEVICE_MEMORY = 11, // the device has no memory left, or the device_allocator returned 0
    // memory_budget_bytes cannot hold this job even in its smallest form; sumi_image_memory says how many bytes can
    SUMI_BUDGET_TOO_SMALL = 12,
    // files
    SUMI_FILE_NOT_FOUND = 20,
    SUMI_FILE_READ_FAILED = 21,
    SUMI_FILE_TRUNCATED = 22, // the file ends before its content does
    SUMI_FILE_MALFORMED = 23, // the file is not what it says it is
    // models
    SUMI_MODEL_UNKNOWN = 30, // no supported model family in these files
    SUMI_TENSOR_MISSING = 31,
    SUMI_TENSOR_MISMATCH = 32, // a tensor has another shape or type than the model needs
    SUMI_LORA_NO_MATCH = 33,   // the adapter names layers that this model does not have
    SUMI_TEXT_INVALID = 34,    // the prompt cannot be encoded
    // devices
    SUMI_NO_DEVICE = 40,
    SUMI_DRIVER_TOO_OLD = 41,
    SUMI_DEVICE_UNSUPPORTED = 42,
    SUMI_DEVICE_LOST = 43,
    // jobs
    SUMI_CANCELLED = 50,
    SUMI_TIMEOUT = 51,    // the time of sumi_job_wait is over; the job goes on
    SUMI_NOT_FINITE = 52, // the picture holds NaN or infinity; it is not handed out
    SUMI_INTERNAL = 90    // a bug in sumi; please report the message
} sumi_result;

// Returns one sentence that says what to do. The text is static and never NULL, for unknown numbers too. Any thread.
// Never blocks.
SUMI_API const char* sumi_result_text(sumi_result result);

// Returns the version of the library, "0.2.0", which may be another one than this header's. The text is static. Any
// thread. Never blocks.
SUMI_API const char* sumi_version(void);

// Says whether the library can work for a program that was compiled with the header of this version; pass
// SUMI_VERSION_NUMBER. Returns SUMI_OK when major and minor version are the library's, SUMI_VERSION_MISMATCH otherwise.
// Any thread. Never blocks.
SUMI_API sumi_result sumi_check_version(uint32_t header_version);

// ---- Objects --------------------------------------------------------------------------------------------------------
// Each belongs to the engine that it was made with. sumi_engine_destroy() frees what was not released before.
typedef struct sumi_engine sumi_engine;     // a backend and the host's services
typedef struct sumi_model sumi_model;       // an opened checkpoint
typedef struct sumi_prompt sumi_prompt;     // an encoded prompt, which can be saved: a game may ship without encoder
typedef struct sumi_lora sumi_lora;         // a low-rank change of a model, applied per job
typedef struct sumi_external sumi_external; // a texture of the host's that pictures are written to
// A job is a value with a generation. {0} is no job. The id of a job that has ended is refused; it is never taken for a
// newer job.
struct CUctx_st; // CUcontext, CUstream and CUevent of the CUDA driver point to these three
struct CUstream_st;
struct CUevent_st;

// ---- The host's services --------------------------------------------------------------------------------------------
// Each may be left zero: sumi then uses its built-in one.

// Host memory. Called from the threads that call the engine and from worker threads of sumi's, so both functions must
// be thread-safe.
typedef struct sumi_allocator {
    // `alignment` is a power of two up to 64. `bytes` is a multiple of it. Returns NULL when there is no memory left.
    void* (*allocate)(size_t bytes, size_t alignment, void* user_data);
    // `bytes` is the size that the memory was allocated with.
    void (*release)(void* memory, size_t bytes, void* user_data);
    void* user_data;
} sumi_allocator;

typedef enum sumi_memory_kind {
    SUMI_MEMORY_WEIGHTS = 0,
    SUMI_MEMORY_ARENA = 1, // intermediate values
    SUMI_MEMORY_IMAGE = 2,
    SUMI_MEMORY_STAGING = 3 // pinned host memory
} sumi_memory_kind;

// Device memory, for GPU backends. Addresses are CUdeviceptr. The engine's context is current during the call. STAGING
// is host memory that kernels can read at the same address, as cuMemHostAlloc gives it. When there is none left for
// STAGING, streamed weights are read from the mapped files instead, which is slower.
//
// When there is no device memory left, other programs may have it. The engine then tries again with less before a job
// fails. The new limit is what the engine holds and what the driver says is free, less a margin of up to 64 MB; with a
// device_allocator it is ever less than what that refused. Later jobs keep to this limit as to a memory_budget_bytes.
// The driver is asked again whenever a job begins, and the limit rises or goes. A device_allocator is tried again after
// a few jobs, then ever more rarely. The log says all of this.
typedef struct sumi_device_allocator {
    // Returns 0 when there is no memory left. The engine's streams wait for nothing of the host's: whatever the host has
    // the device do with this memory, a fill for example, is done before it is returned.
    uint64_t (*allocate)(size_t bytes, size_t alignment, sumi_memory_kind kind, void* user_data);
    void (*release)(uint64_t address, size_t bytes, sumi_memory_kind kind, void* user_data);
    void* user_data;
} sumi_device_allocator;

// Files, to read checkpoints out of the host's archives. The built-in service maps files read-only, so weights are
// never copied. The files of a model stay open while the model lives; those that only say where others are (indexes,
// model_index.json) are closed when it is there.
//
// Reading     A file without `map` is read whole, into memory of the allocator, in pieces from its begin to its end.
//             A piece is as large as fits into the budget of sumi_engine_update (and max_slice_us) at the speed of the
//             pieces before it, and 64 KB at least. A job can be cancelled between any two. `open` and `map` should be
//             quick: several files may be opened in one piece of work.
// Threads     Called by the thread that works: the one that calls the engine, or the pump's. `close` is also called by
//             the calls that end a model, an adapter or a job. Never two at a time.
// Paths       The desc's own, and those with names below them, joined with '/'. A job asks for each path once, and
//             opens each file once. What does not open is taken for a folder: folders cannot be listed, so names are
//             tried. First come weights, of the components transformer, text_encoder, text_encoder_2 or clip_model, and
//             vae: in each folder S.safetensors.index.json, S.safetensors, S.bf16.safetensors, S.fp16.safetensors and
//             S.gguf, where S is diffusion_pytorch_model or model, until one is there. Then the files that the indexes
//             name are read; model_index.json; config.json of each component; tokenizers (tokenizer.json, or vocab.json
//             and what lies beside it, or tokenizer.model and its other names); preprocessor_config.json; and
//             scheduler/scheduler_config.json.
typedef struct sumi_files {
    // Returns NULL when there is no such file.
    void* (*open)(const char* path, uint64_t* out_bytes, void* user_data);
    // Returns false when the bytes could not be read: the job fails with SUMI_FILE_READ_FAILED.
    bool (*read)(void* file, uint64_t offset, void* into, size_t bytes, void* user_data);
    // Optional. Returns the whole file in memory, valid until `close`, or NULL to have it read. Called once for a file.
    const void* (*map)(void* file, void* user_data);
    void (*close)(void* file, void* user_data);
    void* user_data;
} sumi_files;

// The host's job system. sumi asks for loops. The host runs task(begin, end, worker_index, task_context) so that every
// item of [0, item_count) is covered exactly once. Ranges have at least min_range items; the last one may be shorter.
// They may run on any threads. worker_index is in [0, worker_count), and no two ranges that run at the same time have
// the same one.
typedef void sumi_task(int32_t begin, int32_t end, int32_t worker_index, void* task_context);
typedef struct sumi_tasks {
    int32_t worker_count;
    // Returns a handle for `finish`. It may run the whole loop before it returns.
    void* (*begin)(sumi_task* task, int32_t item_count, int32_t min_range, void* task_context, void* user_data);
    // Returns when all ranges are done.
    void (*finish)(void* handle, void* user_data);
    void* user_data;
} sumi_tasks;

typedef enum sumi_log_level {
    SUMI_LOG_ERROR = 0,
    SUMI_LOG_WARNING = 1,
    SUMI_LOG_INFO = 2,
    SUMI_LOG_DEBUG = 3
} sumi_log_level;
// The library never prints. Without a log the details of refused calls are lost; their results are not. `text` is valid
// during the call. Called on the threads that call the engine, and on the pump's thread.
typedef struct sumi_log {
    void (*write)(sumi_log_level level, sumi_result result, const char* text, void* user_data);
    void* user_data;
} sumi_log;

// The parts of a job's life, as sumi_job_poll and traces name them.
typedef enum sumi_stage {
    SUMI_STAGE_WAIT = 0,    // in the queue
    SUMI_STAGE_LOAD = 1,    // reading a model or an adapter
    SUMI_STAGE_PREPARE = 2, // writing the plan, its tables and the noise
    SUMI_STAGE_TEXT = 3,    // vision tower and text encoders
    SUMI_STAGE_IMAGE = 4,   // VAE encoder
    SUMI_STAGE_DENOISE = 5,
    SUMI_STAGE_DECODE = 6,  // VAE decoder
    SUMI_STAGE_TRANSFER = 7 // conversion of the picture and its copy to where it goes
} sumi_stage;

// What an engine did and when, for the host's own profiler (Tracy, Unreal Insights, a Chrome trace as `sumi generate
// --trace` writes it). There is one span for every piece of work, told when it is over. Spans of a track come in order
// and never overlap. Times are nanoseconds of the system's steady clock: CLOCK_MONOTONIC, or QueryPerformanceCounter on
// Windows. The length of a GPU's span is measured by its timed events. Its place is an estimate: after its submission
// and after the span before it, never in the future.
typedef enum sumi_track {
    // The thread that calls the engine, or the pump's: plans, tokens, noise. On the processor also the slices.
    SUMI_TRACK_HOST = 0,
    SUMI_TRACK_DEVICE = 1 // slices on a GPU
} sumi_track;
typedef struct sumi_trace_span {
    // The first op of a slice ("attention.qkv"), otherwise what was done ("noise"). Valid during the call.
    const char* name;
    sumi_track track;
    sumi_stage stage;
    int32_t step; // denoising step, from 0; -1 outside of the loop
    uint64_t job; // sumi_job.id
    uint64_t begin_ns, end_ns;
} sumi_trace_span;
// Called by the thread that works, while it works. It must be quick. NULL: no spans, at no cost.
typedef struct sumi_tracer {
    void (*span)(const sumi_trace_span* span, void* user_data);
    void* user_data;
} sumi_tracer;

typedef struct sumi_job {
    uint64_t id;
} sumi_job;
typedef enum sumi_job_state {
    SUMI_JOB_NONE = 0, // no such job: stale or {0}
    SUMI_JOB_QUEUED = 1,
    SUMI_JOB_RUNNING = 2,
    SUMI_JOB_DONE = 3, // states from here on are final; fetch the job
    SUMI_JOB_FAILED = 4,
    SUMI_JOB_CANCELLED = 5
} sumi_job_state;

// For hosts that would rather be told than poll. `ended` is called once for each job that comes into a final state,
// behind the change, so that sumi_job_poll shows it; job_user_data is the user_data of the job's desc. The call comes
// from the thread that works: inside of sumi_engine_update, sumi_job_wait, or the call that ended the job (the close of
// its model, say), or from sumi's own thread. A job that was cancelled before it began is told in the next
// sumi_engine_update or sumi_job_wait. A discarded job is not told. One that another thread fetches meanwhile may be
// told when it is stale already, or not at all. The callback may not fetch (see Callbacks): it puts the job into a queue
// of the host's, or wakes the thread that does.
typedef struct sumi_completion {
    void (*ended)(sumi_job job, sumi_job_state state, void* job_user_data, void* user_data);
    void* user_data;
} sumi_completion;

// ---- Engine ---------------------------------------------------------------------------------------------------------
typedef enum sumi_backend {
    SUMI_BACKEND_AUTO = 0, // a GPU when this build and machine have one, the processor otherwise
    SUMI_BACKEND_CPU = 1,  // float32 arithmetic; the reference that the others are tested against
    SUMI_BACKEND_CUDA = 2  // an NVIDIA GPU of compute capability 8.0 or newer; bfloat16 values, float32 sums
} sumi_backend;

// Matrix products by NVIDIA's cuBLASLt instead of sumi's kernels. The library is opened by name (libcublasLt.so.13 or
// .12, cublasLt64_13.dll or _12), where there is one: it takes hundreds of megabytes and comes with a program, or with
// its user's CUDA.
//
// It computes bfloat16 products whose results are stored (with or without bias), added to what is there, or gated. All
// other products, and all products where there is no cuBLASLt, are computed by sumi's kernels. Sizes and device decide
// which one it is, never a measurement. The same inputs therefore give the same bits as long as driver and library stay
// the same. They are other bits than those of sumi's kernels, and others again where a short budget makes the VAE work
// in strips.
//
// Opening it makes the creation of an engine longer: 0.1 s, from a cold disk a second. Its code takes device memory
// that no budget counts. One of its calls may work for about half a millisecond, however small max_slice_us is.
typedef enum sumi_cublaslt {
    // For 512 rows or more, on GPUs whose tensor cores have instructions that sumi's kernels do not use: compute
    // capability 10 and 11. It is not opened on others.
    SUMI_CUBLASLT_AUTO = 0,
    SUMI_CUBLASLT_NEVER = 1,
    SUMI_CUBLASLT_ALWAYS = 2 // on any GPU, for more than 16 rows; measure before you ship it
} sumi_cublaslt;

typedef enum sumi_pump {
    // Work advances inside sumi_engine_update and the calls that wait, on the calling thread (and on the tasks or
    // threads that the desc asks for).
    SUMI_PUMP_UPDATE = 0,
    // One low-priority thread of sumi's advances the work. sumi_engine_update then does nothing.
    SUMI_PUMP_THREAD = 1
} sumi_pump;

typedef struct sumi_engine_desc {
    uint32_t cookie; // set by sumi_engine_defaults(); leave it alone
    sumi_backend backend;
    // For the CUDA backend. Anything but the defaults is SUMI_NOT_SUPPORTED when the processor does the work.
    struct {
        int32_t ordinal;          // -1: the first device
        const uint8_t* uuid;      // 16 bytes, or NULL
        const uint8_t* luid;      // 8 bytes (Direct3D 12), or NULL
        struct CUctx_st* context; // NULL: the device's primary context
        // NULL: a lowest-priority non-blocking stream of sumi's. CUDA's NULL stream is never used. A stream that is
        // being captured is refused.
        struct CUstream_st* stream;
        sumi_cublaslt cublaslt;
    } cuda;
    sumi_allocator allocator;
    sumi_device_allocator device_allocator;
    sumi_files files;
    sumi_tasks tasks; // loops of the CPU backend run here
    sumi_log log;
    sumi_tracer tracer;
    sumi_completion completion;
    sumi_pump pump;
    int32_t job_capacity; // jobs that may exist at once, 1..4096; their slots are allocated at creation
    // No piece of work is predicted to take longer than this many microseconds. 0: operations are never cut. Smaller
    // slices cost throughput. While the budgets of sumi_engine_update are small, a GPU's plans are made with slices of
    // a half, a quarter or an eighth of this, but not below 250 us: a call submits whole slices, and a part of its
    // budget stays unused where two do not fit together. Budgets count as a moving average. Results do not depend on
    // any of this.
    uint32_t max_slice_us;
    // The most memory for intermediate values and packing buffers (CPU), or for all that the engine allocates on the
    // device (GPU). 0: no limit. No job ever takes more. Not counted are, on a GPU, what the driver takes for itself
    // (sumi_engine_info.uncounted_bytes) and all host memory; on the CPU the rest of what the allocator gives: slots,
    // open models, prompts, adapters and plans of the last shapes, files that cannot be mapped, and of a job
    // sumi_memory.images and host. sumi_engine_info.host_peak_bytes has all of that. Under a short budget a GPU streams
    // weights, which changes no bits; then the VAE works in tiles.
    uint64_t memory_budget_bytes;
    // Threads that work on a loop of the CPU backend when there are no tasks, the caller included. 1: no hidden thread.
    // 0: every core.
    int32_t cpu_thread_count;
} sumi_engine_desc;

// Returns the AUTO backend, built-in services, SUMI_PUMP_UPDATE, 16 jobs, slices of 2 ms, no memory limit, one thread.
// Any thread. Never blocks.
SUMI_API sumi_engine_desc sumi_engine_defaults(void);

// Makes an engine. Any thread. Blocks for a few milliseconds, and for some hundred where the process has not used the
// CUDA driver before. On failure *out_engine is NULL and nothing is left behind. AUTO takes the processor when there is
// no GPU to use, and the log says why. The host ends an engine with sumi_engine_destroy.
//
// Failures: SUMI_INVALID_ARGUMENT, SUMI_DESC_NOT_INITIALIZED, SUMI_OUT_OF_HOST_MEMORY; SUMI_NOT_SUPPORTED for a
// backend, or a service of one, that this build lacks. With SUMI_BACKEND_CUDA also SUMI_NO_DEVICE, SUMI_DRIVER_TOO_OLD,
// SUMI_DEVICE_UNSUPPORTED and SUMI_OUT_OF_DEVICE_MEMORY.
SUMI_API sumi_result sumi_engine_create(const sumi_engine_desc* desc, sumi_engine** out_engine);

// Cancels all jobs, waits for the slice that runs, and frees everything that the engine still holds: jobs, models,
// prompts, adapters, textures, images. No other call of this engine may run meanwhile. Accepts NULL.
SUMI_API void sumi_engine_destroy(sumi_engine* engine);

// Advances jobs by about budget_us microseconds of work. Slices run while their predicted time still fits. At least one
// runs per call, unless budget_us is 0, which is a pause: it only ends jobs that were cancelled. SUMI_FOREVER works
// until no job has anything left to do. The budget may change every frame; results do not depend on it. Does nothing
// with SUMI_PUMP_THREAD. Failures of jobs arrive through sumi_job_poll.
//
// CPU backend: the work happens inside this call.
//
// GPU: work is submitted, and the call does not wait for it. No more than budget_us of predicted work is on its way to
// the device at any time. The call takes this thread a quarter of a millisecond, or a twelfth of the budget if that is
// more. It takes half a millisecond where a picture begins, up to 3 ms for the first job of a size and pace, and the
// whole budget while a model is loaded. (Paces are budgets of up to 2 ms, 4, 8 and 16; see max_slice_us.) A first job
// also allocates. Where the host's kernels keep the same context busy, the driver may make that wait for them. So make
// a first picture of each size while nothing is drawn, by updates of the budget that frames will give.
SUMI_API void sumi_engine_update(sumi_engine* engine, uint32_t budget_us);

// Changes memory_budget_bytes. It holds for jobs that start later. Waits for the slice that runs; then idle memory
// above it is given back at once. Failures: SUMI_INVALID_ARGUMENT.
SUMI_API sumi_result sumi_engine_set_memory_budget(sumi_engine* engine, uint64_t bytes);

typedef struct sumi_engine_info {
    const char* backend;        // "cpu", "cuda"; static
    const char* device;         // "NVIDIA H200, driver 13.0"; valid while the engine lives
    int32_t compute_capability; // 90 for 9.0; 0 on the CPU
    int32_t driver_version;     // 0 on the CPU
    uint64_t device_bytes;      // memory of the device; 0: unknown
    uint64_t held_bytes[4];     // now, by sumi_memory_kind. CPU backend: WEIGHTS are bytes of mapped files
    uint64_t host_bytes;        // everything that is held from the allocator, now
    uint64_t host_peak_bytes;   // the most that was ever held
    uint64_t allocation_count;  // allocations ever made; a job of a size and pace that ran before makes none
    int32_t job_count;          // slots in use
    bool has_cublaslt;          // cuBLASLt is open and takes products as sumi_engine_desc.cuda.cublaslt says
    // Of device_bytes, what was neither free nor allocated by the engine when the driver was asked last: at creation,
    // after the kernels were loaded, when a job of a new size is ready, and as jobs begin in a shortage. No budget
    // counts it. It holds the CUDA context (H200: 556 MB); code, graphs, local memory of kernels and the driver's
    // rounding to pages (145 to 200 MB from the first picture on); and what other programs and the host itself have
    // there, for the driver does not tell them apart. 0 on the CPU.
    uint64_t uncounted_bytes;
} sumi_engine_info;
// Returns what the engine is and holds; all zero, with empty texts, for NULL. Any thread, beside any other call. Never
// blocks.
SUMI_API sumi_engine_info sumi_engine_get_info(const sumi_engine* engine);
// Copies the text of the last failure, for a host that keeps no log: of a call that was refused, or of a job that
// failed, on any thread. Returns its result; SUMI_OK and "" where nothing has failed yet. A text of up to 512 bytes
// with its zero is written whole, a longer one than capacity is cut. A failed sumi_engine_create leaves no engine to
// ask: it tells sumi_engine_desc.log. Any thread, beside any other call. Never blocks. engine NULL:
// SUMI_INVALID_ARGUMENT; in a child after a fork: SUMI_WRONG_STATE.
SUMI_API sumi_result sumi_engine_last_error(const sumi_engine* engine, char* into, size_t capacity);

// ---- Jobs -----------------------------------------------------------------------------------------------------------
// Jobs run one after the other: higher priority first, then in the order of submission. On a GPU the next job is
// submitted while the last slices of the one before are on their way, if it has the same shape (model, sizes, steps,
// lengths of the prompts in tokens). The GPU does not rest between queued pictures then, and two jobs are RUNNING.
//
// Every job is ended by its fetch or by sumi_job_discard. A fetch also ends a job that failed or was cancelled: it
// returns the job's result and frees its slot.

typedef struct sumi_job_status {
    sumi_job_state state;
    sumi_stage stage;
    int32_t step, step_count; // denoising steps done, and in all; 0 for other jobs
    float progress;           // 0..1; it never falls and is 1 only when done
    float seconds_left;       // of work, predicted from the speed so far; negative: not known yet
    uint32_t preview_version; // grows with each new preview
    sumi_result result;       // of a final state; SUMI_OK before
    const char* message;      // details of a failure, "" otherwise; valid until the job is fetched or discarded
    // Seconds of work so far, by sumi_stage: of the threads that worked, and of a GPU where it ran slices.
    float stage_seconds[8];
    // The rest is for a host's graphs. Seconds that a GPU has worked for this job, of slices that have ended; on the
    // processor those of its slices.
    double device_seconds;
    float pending_us;       // predicted work of this job that is on its way to a GPU
    int32_t jobs_ahead;     // of a queued job: how many run before it, the running one included
    uint64_t held_bytes[4]; // by sumi_memory_kind, of the whole engine, as in sumi_engine_info
    // How many tokens of the longest text were cut off because the model reads no more; 0: all were read. Known before
    // the stage TEXT begins; the log says it too.
    int32_t cut_tokens;
    void* user_data; // of the job's desc
    // sumi_job_pause has asked for it: a queued job waits until it is resumed; one that runs is about to give way.
    bool paused;
} sumi_job_status;

// Returns a snapshot of a job. Any thread, beside any other call. Never blocks. A stale job has state SUMI_JOB_NONE and
// result SUMI_STALE_HANDLE.
SUMI_API sumi_job_status sumi_job_poll(const sumi_engine* engine, sumi_job job);
// Asks a job to end. It takes effect within one slice, at any stage: with SUMI_PUMP_UPDATE in the next
// sumi_engine_update, a pause included. The state is then CANCELLED, and the model is usable as before. Any thread,
// beside any other call. Never blocks. Accepts stale jobs.
SUMI_API void sumi_job_cancel(sumi_engine* engine, sumi_job job);
// Gives a job another place in the queue: behind those of the same priority that were submitted before it. A job that
// runs goes on, whatever the priorities. SUMI_WRONG_STATE when it has begun or ended, which is not logged:
// it may begin at any moment. Any thread, beside any other call. Never blocks. Failures: SUMI_STALE_HANDLE,
// SUMI_INVALID_ARGUMENT.
SUMI_API sumi_result sumi_job_set_priority(sumi_engine* engine, sumi_job job, int32_t priority);
// Pauses a job (true), or resumes it (false); either one twice is SUMI_OK. A queued job is passed over by the queue until
// it is resumed, and then has its place by priority and submission. A job that runs gives way to others and is queued
// again: an image job that denoises after the evaluation at hand, every other one at once. What it has come to it keeps,
// as float32 latents in the host's memory (three of each picture for solvers that look back), and nothing else. When it
// runs again it repeats what comes before denoising (texts, references, a start image), then goes on where it was: the
// picture is the same, bit for bit. Without memory for that, and before it denoises, it begins anew, as prompts and
// encodings do. A job whose pictures are being decoded ends first; one that loads cannot be paused. Time goes on for a
// deadline. A wait for a paused job lasts until its timeout, or until another thread resumes it. Any thread, beside any
// other call. Never blocks. Failures: SUMI_STALE_HANDLE; SUMI_WRONG_STATE for a job in a final state and a load that
// runs, which is not logged; SUMI_INVALID_ARGUMENT.
SUMI_API sumi_result sumi_job_pause(sumi_engine* engine, sumi_job job, bool paused);
// Lists the jobs that were neither fetched nor discarded: those that run, then the queued ones in the order in which
// they will run, then those in a final state; the first and the last by submission. Writes at most capacity of them and
// returns how many there are, so that NULL and 0 count them. Any thread, beside any other call. Never blocks.
// engine NULL, in a child after a fork: 0.
SUMI_API int32_t sumi_job_list(const sumi_engine* engine, sumi_job* into, int32_t capacity);
// Blocks until the job is in a final state, at most for timeout_ms milliseconds. With SUMI_PUMP_UPDATE the calling
// thread does the work, of this job and of those before it; with SUMI_PUMP_THREAD it sleeps. SUMI_OK means final, not
// successful; the fetch tells. Failures: SUMI_TIMEOUT, SUMI_STALE_HANDLE, SUMI_INVALID_ARGUMENT.
SUMI_API sumi_result sumi_job_wait(sumi_engine* engine, sumi_job job, uint32_t timeout_ms);
// Ends a job of any state without a fetch. It is cancelled, and its slot is free as soon as its slice is over; with
// SUMI_PUMP_UPDATE that is at once. With SUMI_PUMP_THREAD the call may wait for the slice that runs. Accepts stale
// jobs.
SUMI_API void sumi_job_discard(sumi_engine* engine, sumi_job job);

// ---- Models ---------------------------------------------------------------------------------------------------------
typedef enum sumi_weight_format {
    // The CPU backend reads every format from the mapped files. A GPU holds bfloat16 where the transformer takes at most
    // three quarters of its memory so; else AS_STORED where the file has 10 bits a weight or less, else INT8. That follows
    // from the file and the GPU's size alone, not from budgets; sumi_model_info.weights says what it was.
    SUMI_WEIGHTS_AUTO = 0,
    SUMI_WEIGHTS_BF16 = 1, // GPU: bfloat16. SUMI_NOT_SUPPORTED on the CPU
    // GPU of 8.9 or newer: the large matrices of the transformer in e4m3 with a scale per row, quantised when they are
    // loaded. Embedders, modulation and the final layer stay bfloat16. SUMI_NOT_SUPPORTED on the CPU. Here and below: as
    // text_weights those of the text encoders, whose token tables stay bfloat16.
    SUMI_WEIGHTS_FP8 = 2,
    // GPU: matrices of GGUF's block types and of fp8 files stay as their file has them, those of text encoders and their
    // token tables too, and are unpacked to bfloat16 for each product: the memory is that of the file, and the values are
    // those of BF16. On an H200 an evaluation at 1024x1024 takes 6 to 8 % more, a prompt 1.5 times as long. Everything
    // else is as BF16, and so are fp8 files with a scale for each row, int8 files, and matrices with an adapter merged
    // into them. CPU: as AUTO.
    SUMI_WEIGHTS_AS_STORED = 3,
    // Any GPU: the same matrices in 8-bit integers with a scale per row, rotated so that no few columns decide it (QuaRot,
    // Ashkboos et al. 2024). As large as FP8. A prediction of Z-Image's size is off from float32 by 2.1 times what it is
    // off in PyTorch's bfloat16 (FP8: 5.9 times), in 0.94 of FP8's time on an H200. SUMI_NOT_SUPPORTED on the CPU.
    SUMI_WEIGHTS_INT8 = 4,
    // Any GPU: the same matrices in 4-bit codes, groups of 32 along a row with a half-precision scale each (4.5 bits a
    // weight, the form of GGUF's IQ4_NL), quantised from the file's values when they are loaded. Activations and the
    // operands of products stay bfloat16. The least memory and the largest error: a prediction of Z-Image's size is off
    // from float32 by 12.7 times what it is off in PyTorch's bfloat16, and takes 6 % longer than with BF16 on an H200.
    // SUMI_NOT_SUPPORTED on the CPU.
    SUMI_WEIGHTS_INT4 = 5
} sumi_weight_format;

// Where a checkpoint is. Each path below `path` names one component. It overrides or completes what `path` holds; NULL
// takes the component from `path`. Components are told by their content, not by the names of their files. A component
// that the model's family does not have is refused with SUMI_NOT_SUPPORTED.
typedef struct sumi_model_desc {
    uint32_t cookie; // set by sumi_model_defaults(); leave it alone
    // A diffusers folder (model_index.json and a folder per component: transformer/, text_encoder/, tokenizer/, vae/,
    // scheduler/ and so on), or a single safetensors or GGUF file. May be NULL when the components below are complete.
    // Single files go by diffusers', ComfyUI's and llama.cpp's names. Few hold a tokenizer: give tokenizer_path.
    // Models of two text encoders need both, or without_text_encoder: with one of them no prompt can be encoded.
    const char* path;
    const char* transformer_path;  // folder or file
    const char* text_encoder_path; // folder or file
    // A tokenizer.json, a vocab.json with its merges.txt beside it, a SentencePiece model, or the folder of one of
    // them. NULL: from path, else inside or beside the text encoder's files.
    const char* tokenizer_path;
    const char* vae_path; // folder or file
    sumi_weight_format weights;
    // Text encoders, their tokenizers and the vision tower are not opened. Only encoded prompts can be used then,
    // negative ones too where guidance is on.
    bool without_text_encoder;
    bool without_vae_encoder; // pictures cannot be encoded then: no start images, references, sumi_submit_encode
    int32_t priority;         // higher first
    void* user_data;          // of the host's: given back in sumi_job_status and to the engine's completion
    // The second text encoder and its tokenizer, of families that have two.
    const char* text_encoder_2_path; // folder or file
    const char* tokenizer_2_path;    // as tokenizer_path
    // The vision tower of edit models, where it is not among the text encoder's files. Folder or file.
    const char* vision_path;
    // The picture processor of edit models: a preprocessor_config.json, or the folder that it is in.
    const char* processor_path;
    // Which variant of its family the model is (sumi_model_info.variant), for files that do not say so: single files of
    // edit models have the same tensors as those of the model they were made from. NULL: by the files. An unknown one
    // is SUMI_INVALID_ARGUMENT, and the log names those that there are.
    const char* variant;
    // Of the text encoders, with the vision tower where there is one; `weights` is the transformer's. AUTO on a GPU:
    // AS_STORED where `weights` is that or has become it, else bfloat16, on small cards too: there an encoder that has no
    // room beside the transformer is read from host memory for each prompt, with the same features as anywhere. INT8 and
    // INT4 save that time and change the features: Z-Image's encoder takes 4.3 or 2.8 GB then, instead of 7.8.
    // SUMI_NOT_SUPPORTED where `weights` would be.
    sumi_weight_format text_weights;
} sumi_model_desc;

typedef struct sumi_size {
    int32_t width, height; // pixels
} sumi_size;

// The formula that the authors of a model mean by their number of guidance. sumi_image_desc.guidance takes the number
// of the model's own card unchanged, whichever formula it is for.
typedef enum sumi_guidance_formula {
    SUMI_GUIDANCE_FROM_POSITIVE = 0, // positive + guidance * (positive - negative); off: 0
    SUMI_GUIDANCE_FROM_NEGATIVE = 1  // negative + guidance * (positive - negative), the classic CFG scale; off: 1
} sumi_guidance_formula;

// What is done with guided predictions, which are longer than the positive one and so make colours harder.
typedef enum sumi_guidance_rule {
    SUMI_GUIDANCE_MODEL = 0, // what the model's authors do, one of those below
    SUMI_GUIDANCE_PLAIN = 1, // nothing
    // The prediction of a whole picture is shortened to at most guidance_norm_limit times the norm of the positive one
    // (cfg_normalization, renorm_cfg).
    SUMI_GUIDANCE_NORM_LIMIT = 2,
    // The prediction of each token is given the norm of the positive one (true CFG of the Qwen-Image pipelines).
    SUMI_GUIDANCE_NORM_RESCALE = 3
} sumi_guidance_rule;

typedef struct sumi_model_info {
    const char* family;    // a name such as "z-image"; static
    const char* variant;   // a name within the family, such as "turbo" or "base"; valid while the model lives
    bool takes_references; // edit models: sumi_image_desc.references; max_references is above 0
    bool uses_guidance;    // the authors' settings use guidance
    bool has_text_encoder, has_vae_encoder;
    float guidance;     // the authors' number, in the meaning of guidance_formula
    float guidance_off; // the number that means no guidance: 0 or 1
    sumi_guidance_formula guidance_formula;
    sumi_guidance_rule guidance_rule; // the model's own: what SUMI_GUIDANCE_MODEL stands for
    // The authors' negative prompt, which items have that name none; "": the empty text.
    const char* negative_text;
    int32_t size_multiple;  // width and height are multiples of this many pixels
    int32_t max_size;       // most pixels along one side
    int32_t native_size;    // side in pixels of the pictures it was made for; presets are sized by it
    const sumi_size* sizes; // that the authors name, their own first; valid while the model lives
    int32_t size_count;
    int32_t latent_channels;   // of latents
    int32_t latent_factor;     // pixels per latent along a side
    int32_t max_prompt_tokens; // longer prompts are cut, as the reference does: sumi_job_status.cut_tokens
    uint64_t weight_bytes;     // in the files, of the components in use
    // How many reference pictures a job has at least and at most; both 0: the model takes none.
    int32_t min_references, max_references;
    sumi_weight_format weights;      // as asked for; of AUTO on a GPU what it stands for there
    sumi_weight_format text_weights; // likewise
} sumi_model_info;

// Returns SUMI_WEIGHTS_AUTO for both kinds of weights, everything else zero. Any thread. Never blocks.
SUMI_API sumi_model_desc sumi_model_defaults(void);
// Opens a checkpoint: a job of stage LOAD. Returns at once. The job reads headers and tokenizers and checks the shape
// of every tensor; weights stay in their mapped files. On a GPU it also loads the kernels and copies the weights there.
// The kernels are loaded once per engine, on a thread of sumi's that ends with it: the driver may compile for seconds
// the first time.
//
// Fails at once with SUMI_INVALID_ARGUMENT, SUMI_DESC_NOT_INITIALIZED, SUMI_QUEUE_FULL, SUMI_NOT_SUPPORTED or
// SUMI_OUT_OF_HOST_MEMORY. The job fails with SUMI_FILE_*, SUMI_MODEL_UNKNOWN, SUMI_TENSOR_MISSING,
// SUMI_TENSOR_MISMATCH, SUMI_NOT_SUPPORTED, SUMI_OUT_OF_HOST_MEMORY, or a result of the devices' group.
SUMI_API sumi_result sumi_submit_model(sumi_engine* engine, const sumi_model_desc* desc, sumi_job* out_job);
// Ends the job and hands out the model; the host ends that with sumi_model_close. Returns the result of a job that
// failed or was cancelled, which is ended too. SUMI_WRONG_STATE while the job runs or when it is of another kind,
// SUMI_STALE_HANDLE. Never blocks.
SUMI_API sumi_result sumi_fetch_model(sumi_engine* engine, sumi_job job, sumi_model** out_model);
// Returns what the model is; all zero, with empty texts, for NULL. Never blocks.
SUMI_API sumi_model_info sumi_model_get_info(const sumi_model* model);
// Cancels the jobs that use the model, waits for the slice that runs, and closes the files. Prompts that were made with
// it stay valid for other models of the same family and width. Adapters that were read for it can only be released.
// Accepts NULL.
SUMI_API void sumi_model_close(sumi_model* model);

// ---- Pictures that come in ------------------------------------------------------------------------------------------
typedef struct sumi_pixels {
    const void* data;      // 8-bit sRGB, rows from the top
    int32_t width, height; // pixels
    int32_t row_bytes;     // distance of rows; 0: width * channel_count
    int32_t channel_count; // 1 grey, 3 RGB, 4 RGBA (alpha is ignored)
} sumi_pixels;

// ---- Prompts --------------------------------------------------------------------------------------------------------
// A text goes to the model inside the words that its authors put around it. NewBie-image's are a sentence that ends in
// "<Prompt Start> ": one for texts that begin with '<', which are captions in XML, another for all others, none for the
// empty text. A text that holds "<Prompt Start>" brings its own words, and nothing is put in front of it; one that
// begins with it has none. Negative texts are treated alike.
typedef struct sumi_prompt_desc {
    uint32_t cookie; // set by sumi_prompt_defaults(); leave it alone
    sumi_model* model;
    const char* text; // "" is the empty prompt; NULL is refused
    // Of edit models, reference_count of them: what the text speaks of, in this order. Each is resized as the model's
    // authors do it, whatever its size. SUMI_NOT_SUPPORTED on other models. How many a model takes depends on the
    // model; another number is SUMI_INVALID_ARGUMENT, and the log says which ones are possible. A picture that is too
    // long and narrow is SUMI_INVALID_ARGUMENT too.
    const sumi_pixels* references;
    int32_t reference_count;
    int32_t priority; // higher first
    void* user_data;  // of the host's: given back in sumi_job_status and to the engine's completion
} sumi_prompt_desc;

// Returns a desc for this model, everything else zero. Never blocks.
SUMI_API sumi_prompt_desc sumi_prompt_defaults(sumi_model* model);
// Encodes a text once, for many images: a job of stage TEXT. Returns at once. It copies the text and the references.
// The prompt that it makes keeps the references too, as the VAE reads them (3 bytes per pixel, about a million pixels
// each), so that image jobs need nothing beside it. Fails at once with SUMI_INVALID_ARGUMENT,
// SUMI_DESC_NOT_INITIALIZED, SUMI_QUEUE_FULL, SUMI_OUT_OF_HOST_MEMORY, or SUMI_NOT_SUPPORTED when the model was opened
// without its text encoder, or with references without its vision tower. The job fails with SUMI_TEXT_INVALID,
// SUMI_BUDGET_TOO_SMALL, or a result of memory or device.
SUMI_API sumi_result sumi_submit_prompt(sumi_engine* engine, const sumi_prompt_desc* desc, sumi_job* out_job);
// Ends the job and hands out the prompt; the host ends that with sumi_prompt_release. Otherwise as sumi_fetch_model.
SUMI_API sumi_result sumi_fetch_prompt(sumi_engine* engine, sumi_job job, sumi_prompt** out_prompt);

// What one text encoder made of a prompt: one row of features per token, or a single row when the encoder gives one
// pooled vector for the whole text.
typedef struct sumi_prompt_encoder {
    int32_t token_count;   // rows of features that the model reads; 1 for a pooled vector
    int32_t width;         // values in a row
    const float* features; // [token_count][width], valid while the prompt lives
} sumi_prompt_encoder;
typedef struct sumi_prompt_info {
    int32_t encoder_count;           // text encoders of the model it was made for: 1, or 2 in some families
    sumi_prompt_encoder encoders[4]; // in the order of the model's text encoders; zero behind the last one
    int32_t reference_count;         // pictures that it was encoded with and keeps
} sumi_prompt_info;
// Returns the features of every text encoder, and how many references there are; all zero for NULL. Never blocks.
SUMI_API sumi_prompt_info sumi_prompt_get_info(const sumi_prompt* prompt);
// Writes a prompt as bytes to ship with a game: the features of every text encoder and the references, in a safetensors
// image that is portable between machines. Returns how many bytes that takes, and writes them when capacity suffices;
// `into` may be NULL with capacity 0. Returns 0 for NULL. Never blocks. Versions that can read them: this one and later
// ones; and version 0.1, for families of one text encoder.
SUMI_API size_t sumi_prompt_save(const sumi_prompt* prompt, void* into, size_t capacity);
// The reverse, at once, for a model of the same family and widths. Reads what version 0.1 and later ones saved. The
// host ends the prompt with sumi_prompt_release. Failures: SUMI_FILE_MALFORMED, SUMI_FILE_TRUNCATED;
// SUMI_TENSOR_MISMATCH when it was encoded for another family, width or number of text encoders, or with more
// references than the model takes; SUMI_INVALID_ARGUMENT, SUMI_OUT_OF_HOST_MEMORY.
SUMI_API sumi_result sumi_prompt_load(sumi_model* model, const void* data, size_t bytes, sumi_prompt** out_prompt);
// Frees a prompt. Jobs that were submitted with it have their own copy. Accepts NULL. Never blocks.
SUMI_API void sumi_prompt_release(sumi_prompt* prompt);

// ---- XML prompts ----------------------------------------------------------------------------------------------------
// Some models were trained on captions in XML (NewBie-image): one group of tags per character, one for the picture, and
// a caption in prose. These functions write such a text. It is an ordinary text then, for sumi_image_item.text or
// sumi_prompt_desc.text of any model. Other texts, prose or lists of tags, work as ever.
//
//     sumi_xml_character girl = {0};
//     girl.gender = "1girl";
//     girl.appearance = "silver_hair, short_hair, green_eyes";
//     sumi_xml_prompt_desc desc = sumi_xml_prompt_defaults();
//     desc.characters = &girl;
//     desc.character_count = 1;
//     desc.tags.style = "anime_style, watercolor";
//     char text[4096];
//     if (sumi_xml_prompt_write(&desc, text, sizeof text, NULL) == SUMI_OK) item.text = text;
//
// which writes
//
//     <character_1>
//     <n>$character_1$</n>
//     <gender>1girl</gender>
//     <appearance>silver_hair, short_hair, green_eyes</appearance>
//     </character_1>
//
//     <general_tags>
//     <style>anime_style, watercolor</style>
//     </general_tags>
//
// Layout      White space becomes tokens, so there is one layout: each tag on a line of its own, an empty line between
//             groups, no line end after the last one. The order is that of the members below. It is the layout of the
//             prompts that the model's workflow comes with; the training captions are not published. The example of its
//             model card has two spaces before every line besides: `indent`.
// Values      Lists of tags with commas between them, as booru sites write them (long_hair, blue_eyes); prose in the
//             caption. White space at both ends is left out, white space inside stays. What is NULL, empty or nothing
//             but white space is left out with its tag. general_tags without tags are left out too.
// Escapes     & < > become &amp; &lt; &gt; as in the builders of the model's authors. So no value can open or close
//             a tag. Everything else stays as it is: quotes, parentheses and backslashes too, as no prompt is read for
//             weights. A value that was escaped before is escaped again.
// Length      The model cuts what is longer than sumi_model_info.max_prompt_tokens, and the caption comes last.

// One character. They are numbered from 1 in their order. One without any value is a group with a name.
typedef struct sumi_xml_character {
    const char* name;   // "hatsune_miku". NULL or empty: $character_1$, $character_2$ ..., by which a caption names it
    const char* gender; // "1girl", "1boy"
    const char* appearance;
    const char* clothing;
    const char* body_type;
    const char* expression;
    const char* action;
    const char* interaction;
    const char* position; // "center_left"
} sumi_xml_character;

// The tags of the whole picture.
typedef struct sumi_xml_tags {
    const char* count; // "2girls, multiple_girls"
    const char* artists;
    const char* style;
    const char* background;
    const char* environment;
    const char* perspective;
    const char* atmosphere;
    const char* lighting;
    const char* resolution;
    const char* quality;
    const char* objects;
    const char* other;
    const char* extra_tags;
} sumi_xml_tags;

typedef struct sumi_xml_prompt_desc {
    uint32_t cookie; // set by sumi_xml_prompt_defaults(); leave it alone
    int32_t indent;  // spaces before every line that is not empty, 0..16
    const sumi_xml_character* characters;
    int32_t character_count; // 0..64
    sumi_xml_tags tags;
    const char* caption; // prose, written behind all tags
    sumi_log log;        // is told which member is wrong; all zero: nobody is told
} sumi_xml_prompt_desc;

// Returns a desc without characters, tags, caption and indent. Any thread. Never blocks.
SUMI_API sumi_xml_prompt_desc sumi_xml_prompt_defaults(void);
// Writes the text, zero-terminated. *out_bytes are the bytes that it takes, the zero included; out_bytes may be NULL.
// `into` may be NULL with capacity 0, to ask for the bytes alone. A desc with nothing in it gives the empty text. Needs
// no engine and allocates nothing. Any thread, beside any other call. Never blocks.
//
// A capacity that is too small is SUMI_INVALID_ARGUMENT; *out_bytes are written all the same and are above capacity.
// Other failures, with *out_bytes 0: SUMI_INVALID_ARGUMENT, SUMI_DESC_NOT_INITIALIZED; SUMI_TEXT_INVALID when a value
// is not UTF-8. After any failure `into` holds the empty text, where it has room for that.
SUMI_API sumi_result sumi_xml_prompt_write(const sumi_xml_prompt_desc* desc, char* into, size_t capacity,
                                           size_t* out_bytes);

// ---- LoRA -----------------------------------------------------------------------------------------------------------
// Adapters in PEFT, ComfyUI, kohya and LyCORIS naming, as safetensors:
//
//     LoRA     W' = W + scale * alpha / rank * up down
//     LoKr     W' = W + scale * w1 (x) w2, the Kronecker product, of linear layers; times alpha / rank where w1 or w2
//              is stored as a product
//     w_norm   a norm's weight' = weight + scale * w_norm
//
// alpha is a tensor of the file or a number in its header; else what adapter_config.json beside the file says (PEFT:
// lora_alpha, use_rslora, alpha_pattern, rank_pattern); else alpha / rank is 1. Every key must match a layer of the
// model. Adapters are applied per job, without touching or reloading the model. Several add up. An adapter is used with
// the model that it was read for.
typedef struct sumi_lora_desc {
    uint32_t cookie; // set by sumi_lora_defaults(); leave it alone
    sumi_model* model;
    // a safetensors file, or the folder that holds one as adapter_model.safetensors or pytorch_lora_weights.safetensors
    const char* path;
    int32_t priority; // higher first
    void* user_data;  // of the host's: given back in sumi_job_status and to the engine's completion
} sumi_lora_desc;
// Returns a desc for this model, everything else zero. Never blocks.
SUMI_API sumi_lora_desc sumi_lora_defaults(sumi_model* model);
// Reads an adapter: a job of stage LOAD. Returns at once. Fails at once with SUMI_INVALID_ARGUMENT,
// SUMI_DESC_NOT_INITIALIZED, SUMI_QUEUE_FULL or SUMI_OUT_OF_HOST_MEMORY. The job fails with SUMI_FILE_*,
// SUMI_LORA_NO_MATCH when a key matches no layer, SUMI_TENSOR_MISMATCH, SUMI_TENSOR_MISSING, SUMI_NOT_SUPPORTED, or
// SUMI_OUT_OF_HOST_MEMORY.
SUMI_API sumi_result sumi_submit_lora(sumi_engine* engine, const sumi_lora_desc* desc, sumi_job* out_job);
// Ends the job and hands out the adapter; the host ends that with sumi_lora_release. Otherwise as sumi_fetch_model.
SUMI_API sumi_result sumi_fetch_lora(sumi_engine* engine, sumi_job job, sumi_lora** out_lora);
// Cancels the jobs that use the adapter, waits for the slice that runs, and frees it. Accepts NULL.
SUMI_API void sumi_lora_release(sumi_lora* lora);
typedef struct sumi_lora_use {
    const sumi_lora* lora;
    float scale; // 1: as trained. 0: as if it were not listed. May be negative
} sumi_lora_use;

// ---- Images ---------------------------------------------------------------------------------------------------------
typedef enum sumi_preset {
    SUMI_PRESET_MODEL = 0,    // what the model's authors say
    SUMI_PRESET_PREVIEW = 1,  // 768 x 768, few steps
    SUMI_PRESET_STANDARD = 2, // 1024 x 1024
    SUMI_PRESET_QUALITY = 3,
    // The fewest steps, without guidance: for a model that was distilled to them, or with an adapter that makes a model
    // so (the 4-step and 8-step adapters of Qwen-Image). Adds no adapter by itself.
    SUMI_PRESET_FAST = 4
} sumi_preset;

typedef enum sumi_solver {
    SUMI_SOLVER_EULER = 0,    // diffusers FlowMatchEulerDiscreteScheduler
    SUMI_SOLVER_HEUN = 1,     // second order, two network runs per step (one in the last)
    SUMI_SOLVER_MIDPOINT = 2, // second order, two network runs per step
    SUMI_SOLVER_DPMPP_2M = 3, // second order, multistep, one network run per step (Lu et al. 2022)
    // Heun with two network runs in the last step too, the second one at no noise (torchdiffeq heun2)
    SUMI_SOLVER_HEUN_FULL = 4,
    SUMI_SOLVER_RK4 = 5,          // fourth order (Kutta's 3/8 rule), four network runs per step
    SUMI_SOLVER_RES_MULTISTEP = 6 // second order, multistep, one network run per step (ComfyUI res_multistep)
} sumi_solver;

typedef enum sumi_noise {
    SUMI_NOISE_TORCH_CPU = 0,  // the numbers of torch.Generator("cpu").manual_seed(seed), float32, bit for bit
    SUMI_NOISE_TORCH_CUDA = 1, // those of torch.Generator("cuda") on a card of noise_multiprocessors, within 1.2e-6
    SUMI_NOISE_GIVEN = 2       // noise_values
} sumi_noise;

typedef enum sumi_posterior {
    SUMI_POSTERIOR_SAMPLE = 0, // as the reference: draws noise before the main noise
    SUMI_POSTERIOR_MODE = 1    // no noise
} sumi_posterior;

typedef enum sumi_format {
    SUMI_FORMAT_RGBA8 = 0, // alpha is 255
    SUMI_FORMAT_RGB8 = 1,
    SUMI_FORMAT_RGB32F = 2, // 0..1, not clamped
    SUMI_FORMAT_BGRA8 = 3   // alpha is 255; what Direct3D, Windows and Unreal call B8G8R8A8
} sumi_format;

// Where a picture goes: at most one of host_memory, device_address and external. All zero: memory of sumi's in RGBA8,
// released with sumi_images_release.
//
// A picture for a device_address stays on the GPU. Its pixels are identical to those returned in host memory. The GPU
// writes it at the end of the TRANSFER stage, on the engine's stream, before the job is fetched. From submit until the
// job is in a final state, or until sumi_job_discard has returned, the memory must be there and nobody else may use it.
// Only GPU work of the host's that waits for `event` may. With that event the host puts its own work behind the
// picture, and the processor waits for neither: it calls cuStreamWaitEvent on its own stream once the event was
// recorded, which it is when the job is done. A job that fails or is cancelled may have written a part of a picture, or
// a whole one with values that were not finite.
typedef struct sumi_target {
    sumi_format format;
    void* host_memory; // `height` rows, written when the job is fetched, not before
    // Distance of rows, of host_memory or at device_address; 0: tightly packed. With device_address a multiple of 4 for
    // all but RGB8.
    int32_t row_bytes;
    // `height` rows of linear device memory of the engine's context (CUdeviceptr), a multiple of 4 for all but RGB8.
    // SUMI_NOT_SUPPORTED on the CPU backend.
    uint64_t device_address;
    // With device_address: an event of the host's, recorded right behind the picture. NULL: none. It must live as long
    // as the memory must.
    struct CUevent_st* event;
    // An imported texture of the picture's size, RGBA8, without row_bytes. The picture is in it once sumi_fetch_images
    // has returned.
    sumi_external* external;
    // Wherever it goes, the picture's last row comes first, as OpenGL and Unity have textures. Rows keep their distance.
    bool bottom_up;
} sumi_target;

// Imports an OpenGL texture of the host's, to show pictures without a way through host memory. The texture is GL_RGBA8
// with storage that never changes (glTexStorage2D), and its level 0 has the size that is given; others are refused.
// `target` is what it is bound to (GL_TEXTURE_2D: 0x0DE1). GL must run on the engine's GPU. The import takes width *
// height * 4 bytes on the device, where the picture waits for the fetch; the texture keeps its content until then.
//
// The import, the fetch and the release need the GL context current on the thread that calls them. The import may wait
// for the slice that runs. The copy into the texture happens inside sumi_fetch_images, between what the context was
// told before and what it is told after. It waits for nothing: the GPU keeps the order. When the fetch fails, the job
// stays as it is and can be fetched again. One job at a time uses an external, from its submission to its fetch or
// discard.
//
// Vulkan and Direct3D 12 hosts import their shared memory with CUDA themselves and give a device_address.
//
// The host ends an external with sumi_external_release. Failures: SUMI_NOT_SUPPORTED on the CPU backend;
// SUMI_INVALID_ARGUMENT, SUMI_WRONG_STATE (no GL context, or one of another GPU), SUMI_OUT_OF_DEVICE_MEMORY,
// SUMI_OUT_OF_HOST_MEMORY.
SUMI_API sumi_result sumi_import_gl_texture(sumi_engine* engine, uint32_t texture, uint32_t target, int32_t width,
                                            int32_t height, sumi_external** out_external);
// Ends an import, before the texture is deleted. Cancels the jobs that use it and waits for the slice that runs.
// Accepts NULL.
SUMI_API void sumi_external_release(sumi_external* external);

// One picture of a batch.
typedef struct sumi_image_item {
    // Exactly one of the two: a text, or a prompt that was encoded before.
    const char* text;
    const sumi_prompt* prompt;
    // With guidance: what to move away from. At most one of the two. Both NULL: sumi_model_info.negative_text, what the
    // model's authors move away from. "" is the empty text. Without guidance they are not used, and the log says so.
    const char* negative_text;
    const sumi_prompt* negative_prompt;
    uint64_t seed;
} sumi_image_item;

typedef struct sumi_image_desc {
    uint32_t cookie; // set by sumi_image_defaults(); leave it alone
    sumi_model* model;
    const sumi_image_item* items; // a batch shares everything below
    int32_t item_count;           // 1..64
    // Pixels, multiples of sumi_model_info.size_multiple. Both 0, with references: the size follows from them, as the
    // model's authors have it. It has the first or the last one's ratio of sides, which of them depends on the model.
    // sumi_image_size says what comes out.
    int32_t width, height;
    int32_t step_count; // 1..1000
    // The number of the model's card, for the formula sumi_model_info.guidance_formula. At
    // sumi_model_info.guidance_off a step is one run of the network, and there is no negative prompt. Above it a step
    // is two runs. Below it is SUMI_INVALID_ARGUMENT.
    float guidance;
    // Guidance is on while begin <= 1 - sigma <= end. The end is the references' cfg_truncation.
    float guidance_begin, guidance_end;
    // The factor of a norm limit (1 for the references' cfg_normalization); 0: no limit. Above 0 only where the rule is
    // a norm limit.
    float guidance_norm_limit;
    sumi_guidance_rule guidance_rule; // MODEL by default
    sumi_solver solver;
    // 0: the model's own sigma schedule, which may depend on the picture's size. Above 0: a static shift instead,
    // sigma = shift u / (1 + (shift - 1) u) with u falling in equal steps from 1 to 1 / step_count. At most 10000.
    float shift;
    const float* sigmas; // a schedule of the caller's: step_count + 1 falling values in [0, 1]; NULL: by shift
    sumi_noise noise;
    // The card whose numbers SUMI_NOISE_TORCH_CUDA reproduces: 132 for H100 and H200 (default), 108 for A100, 128 for
    // RTX 4090.
    int32_t noise_multiprocessors;
    int32_t noise_threads_per_multiprocessor; // 2048; 1536 on compute capability 8.6, 8.9, 12.0
    // [item][channel][y][x], for SUMI_NOISE_GIVEN. In all values that a host gives, NaN and infinity are refused with
    // SUMI_INVALID_ARGUMENT.
    const float* noise_values;
    // Image to image: the picture to begin with, resized to width x height; or its latents [channel][y][x], as
    // sumi_fetch_latents gives them.
    const sumi_pixels* start_image;
    const float* start_latents;
    sumi_posterior start_posterior;  // how the latents of start_image are taken
    const float* start_noise_values; // [channel][y][x]: noise of the posterior's sample; NULL: the generator's
    // Inpainting: white is repainted, black stays. Needs start_image or start_latents. See mask_feather.
    const sumi_pixels* mask;
    // With start_image or start_latents: how far the start is noised, above 0 and up to 1. The last strength *
    // step_count steps are run, rounded up. 0 would leave none and is SUMI_INVALID_ARGUMENT.
    float strength;
    // Of edit models: the pictures that the texts speak of, in this order, as in sumi_prompt_desc. All items, positive
    // and negative prompts see the same ones. NULL and 0: those that the prompt of the first item keeps, or none where
    // that is a text. Every other encoded prompt of the job must have been encoded with as many references of the same
    // sizes; another one is SUMI_INVALID_ARGUMENT. Whether they are the same pictures nobody checks. With references
    // that a prompt keeps no text can be encoded: give encoded prompts for all, with guidance negative ones too.
    // Some models make no picture without a reference: then none is SUMI_INVALID_ARGUMENT. SUMI_NOT_SUPPORTED on models
    // that take none, and on models that were opened without their VAE encoder. References may go together with a start
    // image.
    const sumi_pixels* references;
    int32_t reference_count;
    const sumi_lora_use* loras;
    int32_t lora_count; // 0..16
    // 0: none. Otherwise as many steps are left out as needed for the job to be done so many milliseconds after its
    // submission, by the speed and the share of each frame that it got so far. At least 4 steps are run, or as many as
    // were asked for: a deadline that these cannot keep is missed. Solvers of one network run per step decide again
    // before every step, so budgets may change meanwhile; the others decide once. Which steps are run depends on time:
    // this is the one exception to "same bits". Not together with sigmas.
    //
    // On the processor a job is meant to be done within 1.1 of its deadline. On a simulated one 99 of 100 are, the first
    // of a size as well, also beside work that comes and goes and makes sumi half as fast; with solvers that decide once,
    // if its speed stays as it was. Beside threads that keep every core busy more are late (tests/bench.md). This costs
    // a margin: steps are left out that might have fitted, of an unknown size more of them. A deadline
    // of twice the time that all steps take leaves none out, or of solvers that decide once a few. Jobs end inside of
    // updates, so a deadline of a few frames is kept to a frame and not to a tenth. An engine's very first decoding is
    // guessed from its other work: where it takes more than half again as long, that job is late.
    uint32_t deadline_ms;
    int32_t preview_every;      // a preview after every n-th step; 0: none. It never changes the picture
    int32_t priority;           // higher first
    void* user_data;            // of the host's: given back in sumi_job_status and to the engine's completion
    const sumi_target* targets; // one per item; NULL: memory of sumi's in RGBA8
    bool profile;               // keep a table of ops for sumi_job_profile; slices are then whole ops
    // Inpainting of a start image: what the mask keeps is that image's, resized, to the last bit. The new picture
    // begins at the mask's edge, or with 1..256 comes in over so many pixels inside of it. -1: pictures are as the VAE
    // makes them, which changes what was kept a little. With start_latents there is no image to keep, and it is always
    // so.
    int32_t mask_feather;
} sumi_image_desc;

// Returns the preset's values for this model, with sizes in proportion to its native_size. Edit models have presets of
// 0 x 0, for a size that follows from the references. strength is 0.6, for image to image; inpainting wants 1.0. With
// model NULL it returns a desc that submit refuses. Never blocks.
SUMI_API sumi_image_desc sumi_image_defaults(sumi_model* model, sumi_preset preset);

// Returns the size that the pictures of such a job get: width and height of the desc, or with 0 x 0 what follows from
// the references. Memory for targets, noise and previews goes by it. Fails as submit does, but for SUMI_QUEUE_FULL and
// SUMI_OUT_OF_HOST_MEMORY. Never blocks.
SUMI_API sumi_result sumi_image_size(const sumi_image_desc* desc, sumi_size* out_size);

typedef struct sumi_memory {
    // CPU: bytes of weights in use. GPU: bytes on the device for weights, those that stay there and the room that
    // others pass through.
    uint64_t weights;
    // Intermediate values. On a GPU, weights + arena are all that the engine allocates there for the job, and never
    // more than memory_budget_bytes.
    uint64_t arena;
    // CPU: packing buffers. GPU: pinned memory, including streamed weights that are not copied from their file's
    // mapping.
    uint64_t staging;
    uint64_t images; // the products, kept until the fetch: pictures in their formats, latents and previews
    uint64_t host;   // the plan, its tables, what submit copies, and what pictures and masks pass through, at most
    bool tiles_vae;  // the memory budget makes the VAE work in tiles
    // GPU: bytes of weights that the memory budget keeps in page-locked host memory. They are copied to the device
    // whenever they are used, most of them in every step. 0: all stay on the device. Weights that a device can use as
    // their file has them are locked where sumi has mapped the file, and take no memory beside the page cache (Linux,
    // the built-in file functions). Others get a pinned copy.
    uint64_t streamed;
    uint64_t uncounted; // GPU: sumi_engine_info.uncounted_bytes, which come on top of weights + arena on the device
    // What of all this counts against memory_budget_bytes: arena and staging (CPU), weights and arena (GPU). After
    // SUMI_BUDGET_TOO_SMALL and SUMI_OUT_OF_DEVICE_MEMORY the least that the job needs, in its smallest form; all other
    // members are 0 then.
    uint64_t needed;
} sumi_memory;
// Returns what such a job would take, before anything of it is allocated: exact bytes of arena, staging and images. The
// plan that answers is thrown away. Works for milliseconds, and waits for no slice. Fails as submit does, and with
// SUMI_BUDGET_TOO_SMALL.
SUMI_API sumi_result sumi_image_memory(sumi_engine* engine, const sumi_image_desc* desc, sumi_memory* out_memory);

// Starts a batch of pictures and returns at once. It copies all that it needs. Fails at once with
// SUMI_INVALID_ARGUMENT, SUMI_DESC_NOT_INITIALIZED, SUMI_QUEUE_FULL, SUMI_NOT_SUPPORTED or SUMI_OUT_OF_HOST_MEMORY.
// Later failures arrive through sumi_job_poll and the fetch: SUMI_TEXT_INVALID, SUMI_BUDGET_TOO_SMALL, SUMI_NOT_FINITE,
// and results of memory and device.
//
// A batch for which the GPU has no memory is run in parts: half of its pictures at a time, then half of that, then one
// by one, and only then with streamed weights. The log says so. When that is not enough either, the job fails with
// SUMI_OUT_OF_DEVICE_MEMORY and the engine goes on. `step` of its status counts anew in each part. A GPU's kernels
// depend on the number of rows, so a picture's bits may differ a little between batch sizes, and so between a batch
// that was run whole and one that was not. The CPU backend has no such parts. memory_budget_bytes divides no batch.
SUMI_API sumi_result sumi_submit_images(sumi_engine* engine, const sumi_image_desc* desc, sumi_job* out_job);

typedef struct sumi_image {
    const void* pixels; // rows from the top; NULL when the picture went to a device_address or an external
    int32_t width, height, row_bytes;
    sumi_format format;
    uint64_t seed;
    int32_t step_count; // steps that were run: deadlines may have left some out
    uint64_t handle;    // for sumi_images_release
} sumi_image;
// Ends the job and writes one image per item. Pictures go to their targets, or to memory of sumi's that lives until
// sumi_images_release or sumi_engine_destroy. Never blocks. A capacity below the number of items is
// SUMI_INVALID_ARGUMENT and ends nothing. Returns the result of a job that failed or was cancelled, which is ended too.
// SUMI_WRONG_STATE while the job runs or when it is of another kind, SUMI_STALE_HANDLE.
SUMI_API sumi_result sumi_fetch_images(sumi_engine* engine, sumi_job job, sumi_image* out_images, int32_t capacity);
// Gives pictures back and zeroes the images. Accepts NULL, and images whose memory is the host's. Never blocks.
SUMI_API void sumi_images_release(sumi_engine* engine, sumi_image* images, int32_t count);

// Copies the newest preview of an item into `into`: RGBA8, one pixel per latent (width / latent_factor x height /
// latent_factor), by linear factors from the running estimate of the clean latents. `capacity` is in bytes. The image
// that is written points to `into`. Any thread, beside any other call. Never blocks. SUMI_WRONG_STATE: there is none
// yet. SUMI_STALE_HANDLE, SUMI_INVALID_ARGUMENT.
SUMI_API sumi_result sumi_job_preview(const sumi_engine* engine, sumi_job job, int32_t item, void* into,
                                      size_t capacity, sumi_image* out_image);

// Copies the final latents [channel][y][x] of one item of a finished image job, before it is fetched. `capacity` is in
// floats; SUMI_INVALID_ARGUMENT when it is too small. Otherwise fails as sumi_fetch_images, and ends nothing.
SUMI_API sumi_result sumi_job_latents(const sumi_engine* engine, sumi_job job, int32_t item, float* into,
                                      size_t capacity);

// ---- Image encoding -------------------------------------------------------------------------------------------------
typedef struct sumi_encode_desc {
    uint32_t cookie; // set by sumi_encode_defaults(); leave it alone
    sumi_model* model;
    const sumi_pixels* image;  // resized to width x height (Lanczos, as Pillow)
    int32_t width, height;     // pixels, multiples of sumi_model_info.size_multiple
    sumi_posterior posterior;  // MODE by default: no noise
    uint64_t seed;             // of a sample
    const float* noise_values; // [channel][y][x]: the sample's noise; NULL: by the seed
    int32_t priority;          // higher first
    void* user_data;           // of the host's: given back in sumi_job_status and to the engine's completion
} sumi_encode_desc;
// Returns a desc of the model's native size. Never blocks.
SUMI_API sumi_encode_desc sumi_encode_defaults(sumi_model* model);
// Encodes a picture to latents, to start many image jobs from: a job of stage IMAGE. Returns at once. Fails at once
// with SUMI_INVALID_ARGUMENT, SUMI_DESC_NOT_INITIALIZED, SUMI_QUEUE_FULL, SUMI_OUT_OF_HOST_MEMORY, or
// SUMI_NOT_SUPPORTED when the model was opened without its VAE encoder. The job fails with SUMI_BUDGET_TOO_SMALL, or a
// result of memory or device.
SUMI_API sumi_result sumi_submit_encode(sumi_engine* engine, const sumi_encode_desc* desc, sumi_job* out_job);
// Ends the job and writes latents [channel][y][x], scaled as the transformer takes them. `capacity` is in floats; one
// that is too small is SUMI_INVALID_ARGUMENT and ends nothing. Otherwise as sumi_fetch_model.
SUMI_API sumi_result sumi_fetch_latents(sumi_engine* engine, sumi_job job, float* into, size_t capacity);

// ---- Simple calls ---------------------------------------------------------------------------------------------------
// For tools, where waiting is fine. Each submits one job, waits for it and fetches it, so it behaves as those three
// calls do:
//
// Blocking    They return when the job is done. With SUMI_PUMP_UPDATE the calling thread does the work. Jobs that were
//             submitted before, and those of a higher priority, are worked on first. With SUMI_PUMP_THREAD the calling
//             thread sleeps.
// Threads     As everywhere, one call of an engine at a time. The four calls that are safe beside any other are safe
//             beside these too. Nothing cancels them from outside: a host that wants to cancel uses jobs.
// Failure     They return the first failure of the three calls, which the log explains. Nothing is left behind: no job,
//             no half of a product. They need one free job slot, and return SUMI_QUEUE_FULL without one.

// Opens the checkpoint at `path`: sumi_submit_model with sumi_model_defaults() and this path, sumi_job_wait,
// sumi_fetch_model. On failure *out_model is NULL. The host ends the model with sumi_model_close, or with its engine.
SUMI_API sumi_result sumi_open_model(sumi_engine* engine, const char* path, sumi_model** out_model);

// Makes one picture of a text, in RGBA8: sumi_submit_images with sumi_image_defaults(model, SUMI_PRESET_MODEL) and one
// item of this text and seed, sumi_job_wait, sumi_fetch_images. The picture is the one that this job gives. Its pixels
// lie in memory of sumi's until sumi_images_release(engine, out_image, 1) or sumi_engine_destroy. On failure *out_image
// is zero. Edit models, whose size follows from references, return SUMI_INVALID_ARGUMENT.
SUMI_API sumi_result sumi_generate(sumi_engine* engine, sumi_model* model, const char* text, uint64_t seed,
                                   sumi_image* out_image);

// ---- Experimental: may change between minor versions ----------------------------------------------------------------

// One kind of op in one stage, and what it cost. Ops of the same name in different layers are summed.
typedef struct sumi_profile_row {
    sumi_stage stage;
    char name[48]; // "attention.qkv"
    int32_t count; // times it ran
    double seconds;
    double flops, bytes; // of all runs; bytes that must move at least
} sumi_profile_row;
// Writes the table of a finished image job that was submitted with `profile`, before it is fetched, most time first.
// Returns the number of rows that there are, and writes at most `capacity` of them; 0 for any other job. Never blocks.
SUMI_API int32_t sumi_job_profile(const sumi_engine* engine, sumi_job job, sumi_profile_row* rows, int32_t capacity);

#ifdef __cplusplus
}
#endif
#endif
