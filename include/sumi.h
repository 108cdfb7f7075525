// sumi: images from diffusion transformers, inside your program.
//
// sumi runs Z-Image (Turbo and Base) in a host that has something better to do: a game, a paint tool, an engine
// plug-in. It never blocks a frame, never prints, never ends the process, takes its memory, threads and files from you
// when you wish, and gives everything back.
//
// A complete program. Everything slow is a job: submit it, let it work a little in every frame, look how far it is,
// fetch the product.
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
// ---- Rules that hold everywhere -------------------------------------------------------------------------------------
//
// Threads     An engine may be used from any thread, one call at a time. Beside any other call, from any thread, these
//             are safe: sumi_job_poll, sumi_job_cancel, sumi_job_preview, sumi_engine_get_info. Two engines share
//             nothing and need no coordination. There are no process-wide settings.
// Blocking    Only sumi_job_wait blocks (with a timeout), and sumi_engine_destroy / sumi_model_close, which let the
//             running slice end.
// Descs       Every desc is made by its ..._defaults() function, which also sets `cookie`. A desc that was not is
//             refused with SUMI_DESC_NOT_INITIALIZED. Members added later keep old code valid. Everything a desc points
//             to is copied by submit, unless it says otherwise.
// Failure     Every failure is a sumi_result; sumi_result_text() says in a sentence what to do. Details (file, tensor,
//             number) go to the engine's log and, for jobs, to sumi_job_status.message. After any failure the engine
//             still works. Out arguments are written only on SUMI_OK, or zeroed.
// Strings     UTF-8, zero-terminated. Invalid UTF-8 in a prompt is read as U+FFFD.
// Sizes       Pictures are width x height pixels, row by row from the top, sRGB. Latents are float32 [item][16][height
//             / 8][width / 8].
// Same bits   The same inputs give the same bits on the same backend and processor, for any budget, slice size, worker
//             count, preview on or off.
//
// Memory-mapped checkpoints: a model's files stay open while the model lives, and must not be cut short by another
// program meanwhile.
#ifndef SUMI_H
#define SUMI_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#ifndef SUMI_API
#define SUMI_API // dllexport / visibility when built as a shared library for engine plug-ins
#endif

#define SUMI_VERSION_MAJOR 0
#define SUMI_VERSION_MINOR 1
#define SUMI_VERSION_PATCH 0
// "0.1.0", of the library that is linked, not of this header.
SUMI_API const char* sumi_version(void);

#define SUMI_FOREVER UINT32_MAX // timeouts in milliseconds and budgets in microseconds: no limit

// ---- Results: stable numbers, grouped in tens -----------------------------------------------------------------------
typedef enum sumi_result {
    SUMI_OK = 0,
    // the caller
    SUMI_INVALID_ARGUMENT = 1,     // a value is out of range or NULL where it may not be; the log names the member
    SUMI_DESC_NOT_INITIALIZED = 2, // the desc was not made by its ..._defaults() function
    SUMI_STALE_HANDLE = 3,         // the job was fetched or discarded before, or never existed
    SUMI_WRONG_STATE = 4,          // the job is not done yet, or is of another kind than this fetch
    SUMI_QUEUE_FULL = 5,           // job_capacity jobs exist; fetch or discard one
    SUMI_NOT_SUPPORTED = 6,        // a valid wish that this build, backend or model does not do
    // memory
    SUMI_OUT_OF_HOST_MEMORY = 10, // the allocator returned NULL
    SUMI_OUT_OF_DEVICE_MEMORY = 11,
    SUMI_BUDGET_TOO_SMALL = 12, // memory_budget_bytes cannot hold this job even in its smallest form
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
    SUMI_NOT_FINITE = 52, // NaN or infinity in the picture: never a silent black image
    SUMI_INTERNAL = 90    // a bug of ours; please report the message
} sumi_result;

// One sentence that says what to do. Never NULL, static, any thread.
SUMI_API const char* sumi_result_text(sumi_result result);

// ---- Objects --------------------------------------------------------------------------------------------------------
// All belong to the engine they were made with and die with it at the latest.
typedef struct sumi_engine sumi_engine; // a backend and the host's services
typedef struct sumi_model sumi_model;   // an opened checkpoint
// an encoded prompt: reusable, savable, so that a shipped game needs no text encoder
typedef struct sumi_prompt sumi_prompt;
typedef struct sumi_lora sumi_lora;         // a low-rank change of a model, applied per job
typedef struct sumi_external sumi_external; // a texture of the host's that pictures go to
// A job is a value with a generation. {0} is no job; one that ended is refused, never mistaken for a newer one.
typedef struct sumi_job {
    uint64_t id;
} sumi_job;
struct CUctx_st; // the driver's CUcontext, CUstream and CUevent point to these
struct CUstream_st;
struct CUevent_st;

// ---- The host's services (all members zero mean: the built-in) ------------------------------------------------------

// Host memory. Called from the threads that call the engine and from worker threads of ours, so both must be
// thread-safe.
typedef struct sumi_allocator {
    // alignment: a power of two up to 64; bytes: a multiple of it. NULL: none left
    void* (*allocate)(size_t bytes, size_t alignment, void* user_data);
    void (*release)(void* memory, size_t bytes, void* user_data); // with the size it was allocated with
    void* user_data;
} sumi_allocator;

typedef enum sumi_memory_kind {
    SUMI_MEMORY_WEIGHTS = 0,
    SUMI_MEMORY_ARENA = 1,
    SUMI_MEMORY_IMAGE = 2,
    SUMI_MEMORY_STAGING = 3 /* pinned host memory */
} sumi_memory_kind;
// Device memory for GPU backends. Addresses are CUdeviceptr; the engine's context is current during the call. STAGING
// is host memory that kernels can read at the same address, as cuMemHostAlloc gives it. When there is none for STAGING,
// streamed weights come from the mapped files instead, slower.
//
// When there is no device memory left, other programs may have it. The engine then tries again with less before a job
// fails: with what it holds and what is free by the driver, less a margin of up to 64 MB; or, where a device_allocator
// has the memory, with ever less than what it refused. Later jobs keep to that as to a memory_budget_bytes. Whenever a
// job begins the driver is asked again, and the limit rises or goes; an allocator is tried again after a few jobs, then
// ever more rarely. The log says all of this.
typedef struct sumi_device_allocator {
    uint64_t (*allocate)(size_t bytes, size_t alignment, sumi_memory_kind kind, void* user_data); // 0 on failure
    void (*release)(uint64_t address, size_t bytes, sumi_memory_kind kind, void* user_data);
    void* user_data;
} sumi_device_allocator;

// Files, to read checkpoints out of the host's archives. Built in: read-only memory maps, so that weights are never
// copied. All of one model's files stay open while the model lives. A file without `map` is read whole into memory of
// the allocator.
typedef struct sumi_files {
    void* (*open)(const char* path, uint64_t* out_bytes, void* user_data); // NULL: no such file
    bool (*read)(void* file, uint64_t offset, void* into, size_t bytes, void* user_data);
    // optional: the whole file in memory, valid until close; NULL: read it
    const void* (*map)(void* file, void* user_data);
    void (*close)(void* file, void* user_data);
    void* user_data;
} sumi_files;

// The host's job system. sumi asks for loops: run task(begin, end, worker_index, task_context) so that every item of
// [0, item_count) is covered exactly once, in ranges of at least min_range items (the last may be shorter), on any
// threads. worker_index is in [0, worker_count) and no two ranges that run at the same time have the same one. `finish`
// returns when all ranges are done. `begin` may run the whole task before it returns.
typedef void sumi_task(int32_t begin, int32_t end, int32_t worker_index, void* task_context);
typedef struct sumi_tasks {
    int32_t worker_count;
    void* (*begin)(sumi_task* task, int32_t item_count, int32_t min_range, void* task_context, void* user_data);
    void (*finish)(void* handle, void* user_data);
    void* user_data;
} sumi_tasks;

typedef enum sumi_log_level {
    SUMI_LOG_ERROR = 0,
    SUMI_LOG_WARNING = 1,
    SUMI_LOG_INFO = 2,
    SUMI_LOG_DEBUG = 3
} sumi_log_level;
// The library never prints. Without a log, details of refused calls are lost (the result is not). `text` is valid
// during the call. Any thread that calls the engine.
typedef struct sumi_log {
    void (*write)(sumi_log_level level, sumi_result result, const char* text, void* user_data);
    void* user_data;
} sumi_log;

// The parts of a job's life, as sumi_job_poll and traces call them.
typedef enum sumi_stage {
    SUMI_STAGE_WAIT = 0,    // queued
    SUMI_STAGE_LOAD = 1,    // reading a model or adapter
    SUMI_STAGE_PREPARE = 2, // writing the plan, tables, noise
    SUMI_STAGE_TEXT = 3,    // text encoder
    SUMI_STAGE_IMAGE = 4,   // VAE encoder
    SUMI_STAGE_DENOISE = 5,
    SUMI_STAGE_DECODE = 6,  // VAE decoder
    SUMI_STAGE_TRANSFER = 7 // conversion and copy to where the picture goes
} sumi_stage;

// What an engine did and when, for the host's own profiler (Tracy, Unreal Insights, a Chrome trace as `sumi generate
// --trace` writes it): one span for every piece of work, told when it is over. Spans of a track come in order and never
// overlap. Times are nanoseconds of the system's steady clock: CLOCK_MONOTONIC, or QueryPerformanceCounter on Windows.
// A span of a GPU is as long as its timed events say; where it lies is an estimate (behind its submission and the span
// before it, never in the future).
typedef enum sumi_track {
    // the thread that calls the engine, or the pump's: writing plans, tokens, noise; the slices themselves on the
    // processor
    SUMI_TRACK_HOST = 0,
    SUMI_TRACK_DEVICE = 1 // slices on a GPU
} sumi_track;
typedef struct sumi_trace_span {
    // of a slice its first op ("attention.qkv"), otherwise what was done ("noise"); valid during the call
    const char* name;
    sumi_track track;
    sumi_stage stage;
    int32_t step; // denoising step, from 0; -1: outside of the loop
    uint64_t job; // sumi_job.id
    uint64_t begin_ns, end_ns;
} sumi_trace_span;
// NULL: no spans, no cost. Called by the thread that works, while it works: be quick, and call nothing of the engine.
typedef struct sumi_tracer {
    void (*span)(const sumi_trace_span* span, void* user_data);
    void* user_data;
} sumi_tracer;

// ---- Engine ---------------------------------------------------------------------------------------------------------
typedef enum sumi_backend {
    SUMI_BACKEND_AUTO = 0, // a GPU when this build and machine have one, the processor otherwise
    SUMI_BACKEND_CPU = 1,  // float32 arithmetic: the reference
    SUMI_BACKEND_CUDA = 2  // an NVIDIA GPU of compute capability 8.0 or newer; bfloat16 values, float32 sums
} sumi_backend;

// Matrix products by NVIDIA's cuBLASLt instead of ours, where the library can be opened by name (libcublasLt.so.13 or
// .12, cublasLt64_13.dll or _12): hundreds of megabytes that come with a program, or with its user's CUDA. It takes
// bfloat16 products whose results are stored, with a bias or without, added to what is there, or gated; all others, and
// these without it, are our kernels'. The choice follows from sizes and the device, never from a measurement: the same
// inputs give the same bits as long as driver and library stay the same (other bits than our kernels', and others where
// a short budget has the VAE work in strips). Creating an engine takes longer by the opening (0.1 s; from a cold disk a
// second), its code takes device memory beside what we count, and one of its calls may work for about half a
// millisecond however small max_slice_us is.
typedef enum sumi_cublaslt {
    // for 512 rows or more on GPUs whose tensor cores have instructions that our kernels do not use: compute capability
    // 10 and 11. Elsewhere not even opened
    SUMI_CUBLASLT_AUTO = 0,
    SUMI_CUBLASLT_NEVER = 1,
    SUMI_CUBLASLT_ALWAYS = 2 // on any GPU, for more than 16 rows: measure before you ship it
} sumi_cublaslt;

typedef enum sumi_pump {
    // work advances inside sumi_engine_update and sumi_job_wait, on the calling thread (and the tasks or threads asked
    // for)
    SUMI_PUMP_UPDATE = 0,
    SUMI_PUMP_THREAD = 1 // one low-priority thread of ours advances the work; sumi_engine_update is then a no-op
} sumi_pump;

typedef struct sumi_engine_desc {
    sumi_backend backend;
    // for the CUDA backend; anything but the defaults is SUMI_NOT_SUPPORTED when the processor does the work
    struct {
        int32_t ordinal;          // -1: the first device
        const uint8_t* uuid;      // 16 bytes, or NULL
        const uint8_t* luid;      // 8 bytes (Direct3D 12), or NULL
        struct CUctx_st* context; // NULL: the device's primary context
        // NULL: a lowest-priority non-blocking stream of ours. Never the NULL stream of CUDA, and not one that is being
        // captured
        struct CUstream_st* stream;
        sumi_cublaslt cublaslt; // AUTO
    } cuda;
    sumi_allocator allocator;
    sumi_device_allocator device_allocator;
    sumi_files files;
    sumi_tasks tasks; // CPU backend: loops run here
    sumi_log log;
    sumi_tracer tracer;
    sumi_pump pump;
    int32_t job_capacity; // jobs that may exist at once, 1..4096; their slots are allocated at creation
    // No piece of work is predicted longer than this many microseconds; 0: operations are never cut. Smaller slices
    // cost throughput. On a GPU, plans that are made while the budgets of sumi_engine_update are small have slices of a
    // half, a quarter or an eighth of this, but not below 250 us: a call submits whole slices, and two that do not fit
    // together leave a part of its budget unused. Budgets are taken as a moving average; the bits do not depend on it.
    uint32_t max_slice_us;
    // Most memory for one job's intermediate values (CPU) / for all that the engine allocates on the device (GPU); 0:
    // no limit. What the driver takes there for itself is not counted: see sumi_engine_info.uncounted_bytes. Short
    // budgets stream weights (GPU: same bits), then tile the VAE
    uint64_t memory_budget_bytes;
    // CPU backend without tasks: threads that work on a loop, the caller included. 1: no hidden thread (default); 0:
    // every core
    int32_t cpu_thread_count;
    uint32_t cookie; // set by sumi_engine_defaults(), leave alone
} sumi_engine_desc;

// AUTO backend, built-in services, PUMP_UPDATE, 16 jobs, slices of 2 ms, no memory limit, one thread.
SUMI_API sumi_engine_desc sumi_engine_defaults(void);

// Makes an engine. Blocks for a few milliseconds; where it is the process's first use of the CUDA driver, for as long
// as that takes to start (some hundred). On failure *out_engine is NULL and nothing is left behind. AUTO takes the
// processor when there is no GPU to use, and tells the log why. SUMI_INVALID_ARGUMENT, SUMI_DESC_NOT_INITIALIZED,
// SUMI_OUT_OF_HOST_MEMORY; SUMI_NOT_SUPPORTED for a backend, or services of one, that this build lacks;
// with SUMI_BACKEND_CUDA also SUMI_NO_DEVICE, SUMI_DRIVER_TOO_OLD, SUMI_DEVICE_UNSUPPORTED, SUMI_OUT_OF_DEVICE_MEMORY.
SUMI_API sumi_result sumi_engine_create(const sumi_engine_desc* desc, sumi_engine** out_engine);

// Cancels jobs, waits for the running slice, frees everything the engine still holds: jobs, models, prompts, adapters,
// images. Accepts NULL.
SUMI_API void sumi_engine_destroy(sumi_engine* engine);

// Advances jobs by about budget_us microseconds of work: slices are run while their predicted time still fits, at least
// one slice per call unless budget_us is 0 (a pause). SUMI_FOREVER works until no job has anything left to do. Changing
// the budget every frame is fine; it never changes results. On the CPU backend the work happens inside this call. On a
// GPU it is submitted: no more than budget_us of predicted work is on its way to the device at any time, and the call
// does not wait for it; it takes this thread a quarter of a millisecond, or a twelfth of the budget if that is more;
// half a millisecond where a picture begins, up to 3 ms for the first job of a size and pace, and the budget's time
// while a model is loaded. (A pace: budgets of up to 2 ms, 4, 8, 16, see max_slice_us.) A first job also allocates:
// where the host's kernels keep the same context busy, the driver may let that wait for them, so make a first picture
// of each size while nothing is drawn, by updates of the budget that frames will give.
SUMI_API void sumi_engine_update(sumi_engine* engine, uint32_t budget_us);

// Changes memory_budget_bytes while alive; takes effect for jobs that start later, and gives idle memory above it back
// at once.
SUMI_API sumi_result sumi_engine_set_memory_budget(sumi_engine* engine, uint64_t bytes);

typedef struct sumi_engine_info {
    const char* backend; // "cpu", "cuda"
    // "x86-64 AVX-512, 2 threads", "NVIDIA H200, driver 13.0"; valid while the engine lives
    const char* device;
    int32_t compute_capability; // 90 for 9.0; 0 on the CPU
    int32_t driver_version;     // 0 on the CPU
    uint64_t device_bytes;      // memory of the device; 0: unknown
    uint64_t held_bytes[4];     // by sumi_memory_kind, now. CPU backend: WEIGHTS are bytes of mapped files
    uint64_t host_bytes;        // everything held from the allocator, now
    uint64_t host_peak_bytes;   // the most ever held
    // allocations ever made; a job of a size and pace that ran before does not change it
    uint64_t allocation_count;
    int32_t job_count; // slots in use
    bool has_cublaslt; // cuBLASLt is open and takes products as sumi_engine_desc.cuda.cublaslt says
    // Of device_bytes, what was neither free nor allocated by the engine when the driver was asked last: at creation,
    // after the kernels were loaded, when a job of a new size is ready, and as jobs begin in a shortage. No budget
    // counts it. It is a measurement: the CUDA context (H200: 556 MB), code, graphs and local memory of kernels and the
    // driver's rounding to pages (145 to 200 MB from the first picture on); and what other programs and the host itself
    // have there, for the driver does not tell them apart. Where nothing else uses the GPU, it comes on top of the
    // budget. 0 on the CPU
    uint64_t uncounted_bytes;
} sumi_engine_info;
SUMI_API sumi_engine_info sumi_engine_get_info(const sumi_engine* engine);

// ---- Jobs -----------------------------------------------------------------------------------------------------------
// Jobs run one after the other, higher priority first, then in the order of submission. On a GPU the next one is
// submitted while the last slices of the one before are on their way, if it has the same shape (model, sizes, steps,
// lengths of the prompts in tokens): the GPU does not rest between queued pictures, and two jobs are RUNNING then.
// Every job is ended by its fetch (also when it failed or was cancelled: the fetch returns its result and frees the
// slot) or by sumi_job_discard.
typedef enum sumi_job_state {
    SUMI_JOB_NONE = 0, // no such job: stale or {0}
    SUMI_JOB_QUEUED = 1,
    SUMI_JOB_RUNNING = 2,
    SUMI_JOB_DONE = 3, // states from here on are final; fetch it
    SUMI_JOB_FAILED = 4,
    SUMI_JOB_CANCELLED = 5
} sumi_job_state;

typedef struct sumi_job_status {
    sumi_job_state state;
    sumi_stage stage;
    int32_t step, step_count; // denoising steps done and in all; 0 for other jobs
    float progress;           // 0..1, never falls; 1 only when done
    float seconds_left;       // of work, as predicted from the speed so far; negative: not known yet
    uint32_t preview_version; // grows with each new preview
    sumi_result result;       // of a final state; SUMI_OK before
    const char* message;      // details of a failure, "" otherwise; valid until the job is fetched or discarded
    // work time so far, by sumi_stage: of the threads that worked, and of a GPU where it ran slices
    float stage_seconds[8];
    // For a host's graphs.
    // time that a GPU has worked for this job, of slices that have ended; on the processor: of its slices
    double device_seconds;
    float pending_us;       // work of this job on its way to a GPU, as predicted
    int32_t jobs_ahead;     // of a queued job: how many run before it, the running one included
    uint64_t held_bytes[4]; // by sumi_memory_kind, of the whole engine, as in sumi_engine_info
} sumi_job_status;

// A snapshot. Never blocks, any thread, beside any other call. A stale job has state SUMI_JOB_NONE and result
// SUMI_STALE_HANDLE.
SUMI_API sumi_job_status sumi_job_poll(const sumi_engine* engine, sumi_job job);
// Asks for the end: takes effect within one slice, at any stage; the state is then CANCELLED and the model usable as
// before. Any thread; accepts stale jobs.
SUMI_API void sumi_job_cancel(sumi_engine* engine, sumi_job job);
// Returns when the job is in a final state, or SUMI_TIMEOUT. With SUMI_PUMP_UPDATE the calling thread does the work (of
// this job and of those before it).
// SUMI_OK means final, not successful: fetch tells.
SUMI_API sumi_result sumi_job_wait(sumi_engine* engine, sumi_job job, uint32_t timeout_ms);
// Ends a job of any state without fetching: cancels it and frees its slot as soon as its slice is over. Accepts stale
// jobs.
SUMI_API void sumi_job_discard(sumi_engine* engine, sumi_job job);

// ---- Models ---------------------------------------------------------------------------------------------------------
typedef enum sumi_weight_format {
    SUMI_WEIGHTS_AUTO = 0, // the CPU backend reads every format where it lies; a GPU holds bfloat16
    SUMI_WEIGHTS_BF16 = 1, // GPU: bfloat16. SUMI_NOT_SUPPORTED on the CPU
    // GPU of 8.9 or newer: the large matrices of the transformer in e4m3 with a scale per row, quantised when they are
    // loaded; embedders, modulation and final layer stay bfloat16. SUMI_NOT_SUPPORTED on the CPU
    SUMI_WEIGHTS_FP8 = 2,
    SUMI_WEIGHTS_AS_STORED = 3 // CPU: as AUTO. GPU: as AUTO too, in this version
} sumi_weight_format;

typedef struct sumi_model_desc {
    // a diffusers folder (model_index.json, transformer/, text_encoder/, tokenizer/, vae/, scheduler/), or a single
    // safetensors or GGUF file; told by content. May be NULL when the parts below say all
    const char* path;
    const char* transformer_path; // folder or file that overrides or completes what `path` holds; NULL: from path
    const char* text_encoder_path;
    const char* tokenizer_path; // a tokenizer.json or the folder it is in
    const char* vae_path;
    sumi_weight_format weights;
    // only encoded prompts will be used, negative ones too where guidance is on: text encoder and tokenizer are not
    // opened
    bool without_text_encoder;
    bool without_vae_encoder; // no image inputs will be used
    int32_t priority;         // higher first
    uint32_t cookie;
} sumi_model_desc;

typedef struct sumi_size {
    int32_t width, height; // pixels
} sumi_size;

// What a number of guidance means to the authors of a model. sumi_image_desc.guidance takes the number of the model's
// card, whichever it is.
typedef enum sumi_guidance_formula {
    SUMI_GUIDANCE_FROM_POSITIVE = 0, // positive + guidance * (positive - negative); off: 0
    SUMI_GUIDANCE_FROM_NEGATIVE = 1  // negative + guidance * (positive - negative), the classic CFG scale; off: 1
} sumi_guidance_formula;

// What is done about guided predictions that are longer than the positive one.
typedef enum sumi_guidance_rule {
    SUMI_GUIDANCE_MODEL = 0, // what the model's authors do, one of those below
    SUMI_GUIDANCE_PLAIN = 1, // nothing
    // over a whole picture at most guidance_norm_limit times as long as the positive one (cfg_normalization, renorm_cfg)
    SUMI_GUIDANCE_NORM_LIMIT = 2,
    SUMI_GUIDANCE_NORM_RESCALE = 3 // each token exactly as long as the positive one's (Qwen-Image's true CFG)
} sumi_guidance_rule;

typedef struct sumi_model_info {
    const char* family;    // "z-image"
    const char* variant;   // "turbo" or "base" (told by the scheduler's shift); valid while the model lives
    bool takes_references; // edit models
    bool uses_guidance;    // the authors' settings use guidance
    bool has_text_encoder, has_vae_encoder;
    float guidance;     // the authors' number, in the meaning of guidance_formula
    float guidance_off; // the number that means no guidance: 0 or 1
    sumi_guidance_formula guidance_formula;
    sumi_guidance_rule guidance_rule; // the model's own: what SUMI_GUIDANCE_MODEL stands for
    const char* negative_text;        // the authors' negative prompt; "": none. Items do not take it by themselves
    int32_t size_multiple;            // of width and height, in pixels
    int32_t max_size;                 // most pixels along one side
    // side of the pictures the checkpoint was made for: 1024 for the released ones. Presets are sized by it
    int32_t native_size;
    const sumi_size* sizes; // that the authors name, their own first; valid while the model lives
    int32_t size_count;
    int32_t latent_channels;
    int32_t latent_factor;     // pixels per latent along a side: 8
    int32_t max_prompt_tokens; // longer prompts are cut, as the reference does
    uint64_t weight_bytes;     // in the files, of the parts in use
} sumi_model_info;

SUMI_API sumi_model_desc sumi_model_defaults(void);
// Opens a checkpoint: a job of stage LOAD. Reads headers and the tokenizer, checks every tensor's shape; weights stay
// in their mapped files. On a GPU it also loads the kernels (once per engine, on a thread of ours that ends with it:
// the driver may compile for seconds the first time) and copies the weights there. Failures arrive through the job:
// SUMI_FILE_*, SUMI_MODEL_UNKNOWN, SUMI_TENSOR_MISSING, SUMI_TENSOR_MISMATCH, SUMI_OUT_OF_HOST_MEMORY,
// SUMI_NOT_SUPPORTED.
SUMI_API sumi_result sumi_submit_model(sumi_engine* engine, const sumi_model_desc* desc, sumi_job* out_job);
SUMI_API sumi_result sumi_fetch_model(sumi_engine* engine, sumi_job job, sumi_model** out_model);
SUMI_API sumi_model_info sumi_model_get_info(const sumi_model* model); // accepts NULL: all zero, empty texts
// Cancels the jobs that use the model, waits for the running slice, closes the files. Accepts NULL. Prompts made with
// it stay valid for other models of the same family and width; adapters read for it can only be released.
SUMI_API void sumi_model_close(sumi_model* model);

// ---- Pictures that come in ------------------------------------------------------------------------------------------
typedef struct sumi_pixels {
    const void* data;      // 8-bit sRGB rows from the top
    int32_t width, height; // pixels
    int32_t row_bytes;     // distance of rows; 0: width * channel_count
    int32_t channel_count; // 1 grey, 3 RGB, 4 RGBA (alpha is ignored)
} sumi_pixels;

// ---- Prompts --------------------------------------------------------------------------------------------------------
typedef struct sumi_prompt_desc {
    sumi_model* model;
    const char* text;
    const sumi_pixels* references; // edit models; SUMI_NOT_SUPPORTED on others
    int32_t reference_count;
    int32_t priority;
    uint32_t cookie;
} sumi_prompt_desc;

SUMI_API sumi_prompt_desc sumi_prompt_defaults(sumi_model* model);
// Encodes a text once, for many images. SUMI_NOT_SUPPORTED when the model has no text encoder.
SUMI_API sumi_result sumi_submit_prompt(sumi_engine* engine, const sumi_prompt_desc* desc, sumi_job* out_job);
SUMI_API sumi_result sumi_fetch_prompt(sumi_engine* engine, sumi_job job, sumi_prompt** out_prompt);
typedef struct sumi_prompt_info {
    int32_t token_count, width;
    const float* features; /* [token_count][width], valid while the prompt lives */
} sumi_prompt_info;
SUMI_API sumi_prompt_info sumi_prompt_get_info(const sumi_prompt* prompt);
// Bytes to ship with a game: returns how many are needed and writes them when capacity suffices (into may be NULL with
// capacity 0). A safetensors image: portable between machines.
SUMI_API size_t sumi_prompt_save(const sumi_prompt* prompt, void* into, size_t capacity);
// The reverse, at once. SUMI_FILE_MALFORMED, SUMI_FILE_TRUNCATED; SUMI_TENSOR_MISMATCH when it was encoded for another
// family or width.
SUMI_API sumi_result sumi_prompt_load(sumi_model* model, const void* data, size_t bytes, sumi_prompt** out_prompt);
// accepts NULL; jobs that were submitted with it have their copy
SUMI_API void sumi_prompt_release(sumi_prompt* prompt);

// ---- LoRA -----------------------------------------------------------------------------------------------------------
// Adapters in PEFT, ComfyUI and kohya naming, alpha included (W' = W + scale * alpha / rank * up down). Every key must
// match a layer of the model, or SUMI_LORA_NO_MATCH. They are applied per job, without touching or reloading the model;
// several add up. An adapter is used with the model it was read for.
typedef struct sumi_lora_desc {
    sumi_model* model;
    const char* path;
    int32_t priority;
    uint32_t cookie;
} sumi_lora_desc;
SUMI_API sumi_lora_desc sumi_lora_defaults(sumi_model* model);
SUMI_API sumi_result sumi_submit_lora(sumi_engine* engine, const sumi_lora_desc* desc, sumi_job* out_job);
SUMI_API sumi_result sumi_fetch_lora(sumi_engine* engine, sumi_job job, sumi_lora** out_lora);
SUMI_API void sumi_lora_release(sumi_lora* lora); // accepts NULL; cancels jobs that use it, waits for the running slice
typedef struct sumi_lora_use {
    const sumi_lora* lora;
    float scale; /* 1: as trained; may be negative; 0: as if it were not listed */
} sumi_lora_use;

// ---- Images ---------------------------------------------------------------------------------------------------------
typedef enum sumi_preset {
    // what the model's authors say (Turbo: 1024 x 1024, 8 steps, no guidance; Base: 50 steps, guidance 4)
    SUMI_PRESET_MODEL = 0,
    SUMI_PRESET_PREVIEW = 1,  // 768 x 768, few steps
    SUMI_PRESET_STANDARD = 2, // 1024 x 1024
    SUMI_PRESET_QUALITY = 3
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
    SUMI_POSTERIOR_SAMPLE = 0 /* as the reference: draws noise before the main noise */,
    SUMI_POSTERIOR_MODE = 1
} sumi_posterior;

typedef enum sumi_format {
    SUMI_FORMAT_RGBA8 = 0 /* alpha 255 */,
    SUMI_FORMAT_RGB8 = 1,
    SUMI_FORMAT_RGB32F = 2 /* 0..1, not clamped */
} sumi_format;

// Where a picture goes: at most one of host_memory, device_address and external. All zero: memory of ours in RGBA8,
// released with sumi_images_release.
//
// A picture for a device_address never leaves the GPU, and holds the same bits as one that does. The GPU writes it at
// the end of the TRANSFER stage, on the engine's stream, so before the job is fetched: from submit until the job is in
// a final state (or sumi_job_discard has returned) the memory must be there and nobody else may use it, but for GPU
// work of the host's that waits for `event`. With that the host can put its own work behind the picture without the
// processor waiting for either: cuStreamWaitEvent in its stream, once the event was recorded, which it is when the job
// is done. A job that fails or is cancelled may have written a part, or the whole of a picture with values that were
// not finite.
typedef struct sumi_target {
    sumi_format format;
    void* host_memory; // height rows, written when the job is fetched, not before
    // of host_memory or at device_address; 0: tightly packed. With device_address multiples of 4 for RGBA8 and RGB32F
    int32_t row_bytes;
    // height rows of linear device memory of the engine's context (CUdeviceptr), a multiple of 4 for RGBA8 and RGB32F.
    // SUMI_NOT_SUPPORTED on the CPU backend
    uint64_t device_address;
    // with device_address: an event of the host's, recorded right behind the picture; NULL: none. It must live as the
    // memory must
    struct CUevent_st* event;
    // an imported texture of the picture's size, RGBA8; no row_bytes. The picture is in it once sumi_fetch_images has
    // returned
    sumi_external* external;
} sumi_target;

// An OpenGL texture of the host's, to show pictures without a way through host memory. It is GL_RGBA8 with storage that
// never changes (glTexStorage2D), level 0 has the size that is given: others are refused; `target` is what it is bound
// to (GL_TEXTURE_2D: 0x0DE1). It keeps what is in it until the fetch. GL must run on the engine's GPU. Takes width *
// height * 4 bytes on the device, where the picture waits for the fetch. The import, the fetch and the release need the
// GL context current on the thread that calls them. The copy into the texture happens inside sumi_fetch_images, between
// what the context was told before and what it is told after, and waits for nothing: the GPU keeps the order. When the
// fetch fails, the job stays as it is, and can be fetched again. One job at a time uses an external, from its
// submission to its fetch or discard. Vulkan and Direct3D 12 hosts import their shared memory with CUDA themselves and
// give a device_address. SUMI_NOT_SUPPORTED on the CPU backend; SUMI_INVALID_ARGUMENT, SUMI_WRONG_STATE (no GL context,
// or one of another GPU), SUMI_OUT_OF_DEVICE_MEMORY, SUMI_OUT_OF_HOST_MEMORY.
SUMI_API sumi_result sumi_import_gl_texture(sumi_engine* engine, uint32_t texture, uint32_t target, int32_t width,
                                            int32_t height, sumi_external** out_external);
// before the texture goes. Accepts NULL; cancels jobs that use it, waits for the running slice
SUMI_API void sumi_external_release(sumi_external* external);

// One picture of a batch.
typedef struct sumi_image_item {
    const char* text;          // or
    const sumi_prompt* prompt; // encoded before; exactly one of the two
    const char* negative_text; // with guidance: what to move away from; both NULL: the empty text
    const sumi_prompt* negative_prompt;
    uint64_t seed;
} sumi_image_item;

typedef struct sumi_image_desc {
    sumi_model* model;
    const sumi_image_item* items; // a batch shares everything below
    int32_t item_count;           // 1..64
    int32_t width, height;        // pixels, multiples of sumi_model_info.size_multiple
    int32_t step_count;           // 1..1000
    // the number of the model's card, see sumi_model_info.guidance_formula: at sumi_model_info.guidance_off one network
    // run per step and no negative prompt, above it two; not below it
    float guidance;
    // guidance is on while begin <= 1 - sigma <= end (end is the reference's cfg_truncation)
    float guidance_begin, guidance_end;
    // the factor of a norm limit (cfg_normalization: 1), above 0 with SUMI_GUIDANCE_NORM_LIMIT. 0 with other rules, and
    // for no limit with SUMI_GUIDANCE_MODEL where the model's own is a norm limit
    float guidance_norm_limit;
    sumi_guidance_rule guidance_rule; // MODEL
    sumi_solver solver;
    // 0: the model's own sigma schedule. Otherwise sigma = shift u / (1 + (shift - 1) u) with u = 1 - step / step_count
    // instead of it, whatever the picture's size
    float shift;
    // a schedule of the caller's: step_count + 1 falling values in [0, 1]; NULL: from shift
    const float* sigmas;
    sumi_noise noise;
    // of the card whose numbers SUMI_NOISE_TORCH_CUDA reproduces: 132 for H100 and H200 (default), 108 A100, 128 RTX
    // 4090
    int32_t noise_multiprocessors;
    int32_t noise_threads_per_multiprocessor; // 2048; 1536 on compute capability 8.6, 8.9, 12.0
    const float* noise_values;                // [item][channel][height / 8][width / 8] for SUMI_NOISE_GIVEN
    const sumi_pixels* start_image;           // image to image: resized to width x height
    const float* start_latents;     // or its latents [channel][height / 8][width / 8], from sumi_fetch_latents
    sumi_posterior start_posterior; // how start_image's latents are taken
    // [channel][height / 8][width / 8]: the sample's noise, instead of the generator's; NULL: the generator's
    const float* start_noise_values;
    // inpainting: white is repainted, black stays; needs start_image or start_latents
    const sumi_pixels* mask;
    // 0..1: how far the start is noised; the last strength * step_count steps are run
    float strength;
    const sumi_pixels* references; // edit models; SUMI_NOT_SUPPORTED on others
    int32_t reference_count;
    const sumi_lora_use* loras;
    int32_t lora_count; // 0..16
    // 0: none. Otherwise steps are left out, as many as needed for the job to be done so long after its submission, by
    // the speed and the share of each frame that it got so far; never below 4 (or what was asked, if that is less).
    // Solvers of one network run per step decide again before every step, so budgets may change meanwhile; the others
    // once. Which steps are run depends on time: the one exception to "same bits". Not together with sigmas
    uint32_t deadline_ms;
    int32_t preview_every;      // a preview after every n-th step; 0: none. Never changes the picture
    int32_t priority;           // higher first
    const sumi_target* targets; // one per item; NULL: memory of ours in RGBA8
    bool profile;               // keep a table of ops for sumi_job_profile; slices are then whole ops
    uint32_t cookie;
} sumi_image_desc;

// The preset's values for this model, with sizes in proportion to its native_size; strength 0.6 is ready for image to
// image, inpainting wants 1.0. model NULL: a desc that submit refuses.
SUMI_API sumi_image_desc sumi_image_defaults(sumi_model* model, sumi_preset preset);

typedef struct sumi_memory {
    // bytes of weights in use (CPU); on the device for weights (GPU): those that stay there, and the room that others
    // pass through
    uint64_t weights;
    uint64_t arena;   // intermediate values; weights + arena are all that the engine allocates on a GPU for the job,
                      // and never more than memory_budget_bytes
    uint64_t staging; // packing buffers (CPU); pinned memory (GPU), with those streamed weights in it that are not
                      // copied from their file's mapping
    uint64_t images;  // the products: pictures in their formats, latents and previews, kept until the fetch
    uint64_t host;    // the plan and its tables, at most
    bool tiles_vae;   // the memory budget makes the VAE run in tiles
    // GPU: bytes of weights that the memory budget keeps in page-locked host memory, copied whenever they are used, in
    // every step for most; 0: all stay on the device. Weights that a device can use as their file has them are locked
    // where sumi has mapped the file, so that they take no memory beside the page cache (Linux, the built-in file
    // functions); others get a pinned copy.
    uint64_t streamed;
    uint64_t uncounted; // GPU: sumi_engine_info.uncounted_bytes, which come on top of weights + arena on the device
} sumi_memory;
// Exact arena, staging and image bytes of such a job, before anything of it is allocated (the answer is computed on a
// plan that is thrown away). Same checks as submit.
SUMI_API sumi_result sumi_image_memory(sumi_engine* engine, const sumi_image_desc* desc, sumi_memory* out_memory);

// A batch for which the GPU has no memory is run in parts: half of its pictures at a time, then half of that, then one
// by one, and only then with streamed weights (the log says so); when that is not enough either, the job fails with
// SUMI_OUT_OF_DEVICE_MEMORY and the engine goes on. `step` of its status counts anew in each part. A GPU's kernels
// depend on the number of rows, so a picture's bits may differ a little between batch sizes, and so between a batch
// that was run whole and one that was not; the CPU backend has no such parts. memory_budget_bytes divides no batch.
//
// Starts a batch of pictures and returns at once; copies all it needs. Fails only if the work could not start:
// SUMI_INVALID_ARGUMENT, SUMI_DESC_NOT_INITIALIZED, SUMI_QUEUE_FULL, SUMI_NOT_SUPPORTED, SUMI_OUT_OF_HOST_MEMORY. Later
// failures arrive through sumi_job_poll and the fetch.
SUMI_API sumi_result sumi_submit_images(sumi_engine* engine, const sumi_image_desc* desc, sumi_job* out_job);

typedef struct sumi_image {
    const void* pixels; // rows from the top; NULL when the picture went to a device_address or an external
    int32_t width, height, row_bytes;
    sumi_format format;
    uint64_t seed;
    int32_t step_count; // what was run: deadlines may have lowered it
    uint64_t handle;    // for sumi_images_release
} sumi_image;
// Ends the job. Pictures go to their targets, or to memory of ours that lives until sumi_images_release. Writes
// item_count images; capacity below that is SUMI_INVALID_ARGUMENT and ends nothing. A failed or cancelled job returns
// its result and is ended too. SUMI_WRONG_STATE while it runs.
SUMI_API sumi_result sumi_fetch_images(sumi_engine* engine, sumi_job job, sumi_image* out_images, int32_t capacity);
// accepts NULL and targets of the host; zeroes them
SUMI_API void sumi_images_release(sumi_engine* engine, sumi_image* images, int32_t count);

// The newest preview of an item: RGBA8 at an eighth of the size, by linear factors from the running estimate of the
// clean latents. Any thread, never blocks on work.
// Copies into `into` (capacity in bytes, (width / 8) * (height / 8) * 4 needed). SUMI_WRONG_STATE: none yet.
SUMI_API sumi_result sumi_job_preview(const sumi_engine* engine, sumi_job job, int32_t item, void* into,
                                      size_t capacity, sumi_image* out_image);

// The final latents of a finished image job, before it is fetched: float32 [channel][height / 8][width / 8] of one
// item. Returns SUMI_INVALID_ARGUMENT when capacity (in floats) is too small.
SUMI_API sumi_result sumi_job_latents(const sumi_engine* engine, sumi_job job, int32_t item, float* into,
                                      size_t capacity);

// ---- Image encoding -------------------------------------------------------------------------------------------------
typedef struct sumi_encode_desc {
    sumi_model* model;
    const sumi_pixels* image; // resized to width x height (Lanczos, as Pillow)
    int32_t width, height;
    sumi_posterior posterior;  // MODE by default: no noise
    uint64_t seed;             // of a sample
    const float* noise_values; // [channel][height / 8][width / 8]: the sample's noise given, or NULL
    int32_t priority;
    uint32_t cookie;
} sumi_encode_desc;
SUMI_API sumi_encode_desc sumi_encode_defaults(sumi_model* model);
// Latents of a picture, to start many image jobs from. SUMI_NOT_SUPPORTED without a VAE encoder.
SUMI_API sumi_result sumi_submit_encode(sumi_engine* engine, const sumi_encode_desc* desc, sumi_job* out_job);
// Ends the job; writes channel * (height / 8) * (width / 8) floats, scaled as the transformer takes them. A too small
// capacity is SUMI_INVALID_ARGUMENT and ends nothing.
SUMI_API sumi_result sumi_fetch_latents(sumi_engine* engine, sumi_job job, float* into, size_t capacity);

// ---- Experimental: may change between minor versions ----------------------------------------------------------------

// One kind of op in one stage: what it cost. Ops of the same name in different layers are summed.
typedef struct sumi_profile_row {
    sumi_stage stage;
    char name[48]; // "attention.qkv"
    int32_t count; // times it ran
    double seconds;
    double flops, bytes; // of all runs; bytes that must move at least
} sumi_profile_row;
// The table of a finished image job submitted with `profile`, before it is fetched. Returns the number of rows there
// are; writes at most capacity, most time first.
SUMI_API int32_t sumi_job_profile(const sumi_engine* engine, sumi_job job, sumi_profile_row* rows, int32_t capacity);

#ifdef __cplusplus
}
#endif
#endif
