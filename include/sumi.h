// sumi: images from diffusion transformers, inside your program.
//
// sumi runs image models inside a host program: a game, a paint tool or an engine plug-in that links sumi and has other
// work to do. In a frame sumi works about as long as the host program allows. It never prints and never ends the
// process. It takes memory, threads and files from the host program where the host program offers them, and gives
// everything back.
//
// There are two ways to use sumi. Both work with the same objects and may be mixed.
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
// ---- How an image is made -------------------------------------------------------------------------------------------
//
// A checkpoint (the files of a model, for example a folder as the library diffusers saves it) has components. The text
// encoder turns the tokens of a prompt into features. The transformer, also called the denoiser, turns noise into
// latents (see Latents below) in several denoising steps, guided by these features. The VAE (variational autoencoder)
// decoder turns latents into pixels; the VAE encoder turns pixels into latents. At each step the solver moves the
// latents from one noise level, called sigma (1: pure noise, 0: no noise), to a lower one. A step takes one or more
// evaluations: runs of the transformer, whose output is called a prediction. With guidance each evaluation is made
// twice, with the prompt (positive) and with a negative prompt, and the combined prediction is moved away from the
// negative one.
//
// A network is computed as a plan: a list of operations over matrices, written for one shape of job (model, sizes,
// steps, prompt lengths, guidance, and adapters, which are small changes of the weights: LoRA and LoKr files). All
// matrices but the weights, called intermediate values, share one block of memory, the arena.
//
// ---- Rules that hold everywhere -------------------------------------------------------------------------------------
//
// Slices      A job is cut into slices: pieces of work that are not interrupted, of about
//             sumi_engine_desc.max_slice_us microseconds each.
// Threads     The functions of an engine and of its objects may be called from any thread, but only one at a time: the
//             host program sees to that, with a mutex if it has to. This holds for a call that waits, too: while one
//             thread is inside sumi_job_wait, no other thread may submit or fetch.
//               Free calls may be made beside any other call of the engine: sumi_job_poll, sumi_job_cancel,
//             sumi_job_preview, sumi_job_set_priority, sumi_job_pause, sumi_job_list, sumi_engine_get_info,
//             sumi_engine_last_error. Only sumi_engine_destroy is excepted: before it, the host program ends the
//             threads that make free calls.
//               Calls without an engine may be made at any time: sumi_engine_create, sumi_result_text, sumi_version,
//             sumi_check_version, sumi_engine_defaults, sumi_model_defaults, sumi_import_defaults,
//             and the functions of sumi_xml.h.
//               Two engines share nothing and need no coordination. Nothing is set for the whole process. sumi's
//             own threads have names, which debuggers and profilers show: "sumi pump" (SUMI_PUMP_THREAD), "sumi worker
//             1" and so on (sumi_engine_desc.cpu_thread_count), and "sumi kernels" (loads the GPU kernels beside the
//             first job, then ends; up to four where the driver compiles them). All have low priority.
// Callbacks   The services of the host program (log, allocators, files, tasks, tracer, completion) are called in the
//             middle of a call or of a slice. A callback may make free calls, calls without an engine, and calls of
//             other engines. Any other call of the same engine would wait for itself. Such a call is refused with
//             SUMI_WRONG_STATE, or does nothing if it returns no result, and the log is told (except when the log
//             itself made the call). A callback must not wait for another thread that is inside the engine. It must
//             return: no C++ exception or longjmp may leave it. The allocator and the log may be called by several
//             threads at once; every other service by one thread at a time.
// Processes   An engine belongs to the process that created it. A child process after a fork has the engine's memory
//             and none of its threads. In the child every call is refused in the same way (sumi_job_poll returns
//             SUMI_JOB_NONE), and sumi_engine_destroy frees nothing. Create engines after the fork.
// Blocking    Calls that block say so. All others never block: they wait for no other thread, no slice, no file and no
//             GPU, and take as long as the copy of what they are given or return.
//               sumi_engine_create                          a few milliseconds; the first CUDA engine of a process some
//                                                           hundred
//               sumi_engine_update                          about its time budget
//               sumi_job_wait                               until the job is in a final state, or until the timeout
//               sumi_open_model, sumi_generate              until they are done
//               sumi_engine_set_memory_budget, sumi_model_close, sumi_lora_release, sumi_import,
//               sumi_external_release                       until the running slice has ended; if they free memory
//                                                           that a GPU uses, also until the GPU has finished the
//                                                           submitted work; a release of an external also until the
//                                                           copies into externals have ended, and thus until the
//                                                           semaphores that these copies wait for are signalled
//               sumi_job_discard                            for a running job with SUMI_PUMP_UPDATE until the GPU has
//                                                           finished the submitted work; for a finished load of a
//                                                           model or an adapter until the running slice has ended
//               sumi_engine_destroy                         until the running slice has ended, the GPU has finished the
//                                                           submitted work (copies into externals included), and its
//                                                           kernels are loaded
//               sumi_image_memory                           writes a plan, which takes milliseconds; waits for no slice
//             A slice can run beside a call of the host program only with SUMI_PUMP_THREAD. The call then waits for
//             about max_slice_us; on a GPU for the slices in flight, 20 ms at most; or for one read of the host
//             program's files (see sumi_files).
// Descs       A desc is a struct of parameters. Every desc is made by its ..._defaults() function, which also sets its
//             cookie. Any other desc is refused with SUMI_DESC_NOT_INITIALIZED. A call copies everything that its desc
//             points to, encoded prompts included, so that the host program may free it when the call returns. Three
//             kinds of things are not copied. Models, adapters and externals may be released at any time, which cancels
//             the jobs that use them. What a sumi_target names must live as long as sumi_target says. context, stream,
//             and each user_data of sumi_engine_desc must live as long as the engine.
// Failure     Every failure is a sumi_result. sumi_result_text() says in a sentence what to do. Details (file, tensor,
//             number) go to the engine's log and, for jobs, to sumi_job_status.message. After any failure but
//             SUMI_DEVICE_LOST the engine still works. After that one, destroy the engine and create another; a host
//             program with its own CUDA context first creates that again. Out arguments are written on SUMI_OK;
//             otherwise do not read them, except where the function says what it writes (sumi_image_memory,
//             sumi_xml_prompt_write). With NULL for the engine a function returns SUMI_INVALID_ARGUMENT, zeros, or, if
//             it returns nothing, does nothing. A defaults function with a model of NULL returns a desc that the submit
//             refuses.
// Strings     UTF-8, zero-terminated. Invalid UTF-8 in the text of a prompt is read as U+FFFD; sumi_xml_prompt_write
//             refuses it. Messages (sumi_log, sumi_job_status.message, sumi_engine_last_error) quote names out of
//             files. They may be printed as they are: each byte of a control character (line ends included) and each
//             byte that is not UTF-8 is written as \xNN.
// Images      width x height pixels, row by row from the top (unless a target asks for bottom_up), sRGB.
// Latents     The small representation of an image in which the transformer works: float32 [channel][y][x], with
//             latent_channels channels, height / latent_factor rows and width / latent_factor columns. latent_channels
//             and latent_factor are members of sumi_model_info. Comments here write [channel][y][x] for this shape.
// Same bits   The same inputs give the same bits on the same backend and the same model of CPU or GPU, for any time
//             budget, slice size and number of threads, with previews on or off. There are three exceptions. A job with
//             a deadline leaves out as many steps as the time requires (sumi_image_desc.deadline_ms). Under a memory
//             budget that is too small for a whole image the VAE works in tiles, which changes the image a little
//             (sumi_engine_desc.memory_budget_bytes). A batch that does not fit into the memory of a GPU is divided,
//             and batches of different size may differ in the last bits (sumi_submit_images).
// Budgets     A time budget is what sumi_engine_update gets, in microseconds per call. A memory budget is
//             sumi_engine_desc.memory_budget_bytes.
// Finished    A job has finished when it is in a final state (DONE, FAILED, CANCELLED). It is freed by its fetch or by
//             sumi_job_discard: its handle is stale from then on.
// Files       Checkpoints are mapped into memory. The files of a model stay open while the model lives. No other
//             program may shorten them during that time.
//
// ---- Versions -------------------------------------------------------------------------------------------------------
//
// A version is major.minor.patch. A program is compiled with the header of one version and may run with a library of
// another version, above all when it loads the library by name.
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
//             and those that are members or array elements of others (sumi_image_item, sumi_target, sumi_allocator and
//             so on).
// Enums       The number of an enum value never changes and is never given to another value.
// Checking    A program that loads the library by name calls sumi_check_version(SUMI_VERSION_NUMBER) before any other
//             function, and does not continue unless the function exists and returns SUMI_OK. sumi_version() and
//             sumi_check_version() keep their declarations in all versions.
//
// All struct layouts are those of 64-bit platforms; Linux and Windows have the same.
#ifndef SUMI_H
#define SUMI_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#ifndef SUMI_API
// Nothing for the static library and for programs that load the shared one by name. A program that links against the
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
    SUMI_STALE_HANDLE = 3,         // the job was fetched or discarded before, or never existed
    // the job is not done yet, or is of another kind than this fetch; or what was asked for does not exist yet (a
    // preview, a GL context); or the call came from a callback (see Callbacks) or a forked process (see Processes)
    SUMI_WRONG_STATE = 4,
    SUMI_QUEUE_FULL = 5,       // job_capacity jobs exist; fetch or discard one
    SUMI_NOT_SUPPORTED = 6,    // the request is valid, but this build, backend or model does not support it
    SUMI_VERSION_MISMATCH = 7, // the header that the program was compiled with is of another version
    SUMI_BUSY = 8,             // the copy into this external has not ended; nothing was done, try in a later frame
    // memory
    SUMI_OUT_OF_HOST_MEMORY = 10,   // the allocator returned NULL
    SUMI_OUT_OF_DEVICE_MEMORY = 11, // the device has no free memory, or the device_allocator returned 0
    // memory_budget_bytes cannot hold this job even in its smallest form; sumi_image_memory returns the bytes needed
    SUMI_BUDGET_TOO_SMALL = 12,
    // files
    SUMI_FILE_NOT_FOUND = 20,
    SUMI_FILE_READ_FAILED = 21, // the system, or sumi_files.read, could not read bytes that are there
    SUMI_FILE_TRUNCATED = 22,   // the file ends before its content does
    SUMI_FILE_MALFORMED = 23,   // the file breaks the rules of its format
    // models
    SUMI_MODEL_UNKNOWN = 30,   // no supported model family in these files
    SUMI_TENSOR_MISSING = 31,  // a tensor that the model needs is in none of its files; the log names it
    SUMI_TENSOR_MISMATCH = 32, // a tensor has another shape or type than the model needs
    SUMI_LORA_NO_MATCH = 33,   // the adapter names layers that this model does not have
    // the references of a prompt leave no tokens for its text, or a text of a prompt in XML is not UTF-8
    SUMI_TEXT_INVALID = 34,
    // devices
    SUMI_NO_DEVICE = 40,          // no driver, no GPU, or none with the ordinal, uuid or luid that was asked for
    SUMI_DRIVER_TOO_OLD = 41,     // the driver is older than CUDA 11.4
    SUMI_DEVICE_UNSUPPORTED = 42, // the GPU is older than compute capability 8.0
    // the GPU stopped working (a reset, a fault of any program in this context), or its driver gave an unexpected answer
    SUMI_DEVICE_LOST = 43,
    // jobs
    SUMI_CANCELLED = 50,  // by sumi_job_cancel, or because an object that the job uses was released
    SUMI_TIMEOUT = 51,    // sumi_job_wait reached its timeout; the job continues
    SUMI_NOT_FINITE = 52, // the image holds NaN or infinity; it is not returned
    SUMI_INTERNAL = 90    // a bug in sumi; please report the message
} sumi_result;

// Returns one sentence that says what to do. The text is static and never NULL, for unknown numbers too. Any thread.
// Never blocks.
SUMI_API const char* sumi_result_text(sumi_result result);

// Returns the version of the library, for example "0.2.0". It may differ from the version of this header. The text is
// static. Any thread. Never blocks.
SUMI_API const char* sumi_version(void);

// Says whether the library can work for a program that was compiled with the header of version `header_version`; pass
// SUMI_VERSION_NUMBER. Returns SUMI_OK when major and minor version equal the library's, SUMI_VERSION_MISMATCH
// otherwise. Any thread. Never blocks.
SUMI_API sumi_result sumi_check_version(uint32_t header_version);

// ---- Objects --------------------------------------------------------------------------------------------------------
// Each object belongs to the engine that it was made with. sumi_engine_destroy() frees objects that were not released.
typedef struct sumi_engine sumi_engine;     // a backend and the services of the host program
typedef struct sumi_model sumi_model;       // an opened checkpoint
typedef struct sumi_prompt sumi_prompt;     // an encoded prompt; a game can ship it instead of the text encoder
typedef struct sumi_lora sumi_lora;         // an adapter (LoRA, LoKr): a small change of weights, applied per job
typedef struct sumi_external sumi_external; // a texture, buffer or semaphore of the host program's graphics API
// A job (sumi_job, below) is a number, not a pointer, and no number is used twice. {0} stands for none. The handle of
// a job that was freed is stale and refused.
struct CUctx_st; // CUcontext, CUstream and CUevent of the CUDA driver are pointers to these three
struct CUstream_st;
struct CUevent_st;

// ---- Services of the host program -----------------------------------------------------------------------------------
// Each service may be left zero: sumi then uses its built-in one.

// Host memory (the CPU's memory). Both functions are called on any thread that calls the engine, on threads of sumi and
// on those of sumi_tasks, and by several at once, so both must be thread-safe.
typedef struct sumi_allocator {
    // `alignment` is a power of two up to 64. `bytes` is a multiple of it, and not 0. Returns NULL when there is no
    // memory left.
    void* (*allocate)(size_t bytes, size_t alignment, void* user_data);
    // `bytes` is the size that the memory was allocated with. Never called with NULL.
    void (*release)(void* memory, size_t bytes, void* user_data);
    void* user_data;
} sumi_allocator;

typedef enum sumi_memory_kind {
    SUMI_MEMORY_WEIGHTS = 0,
    SUMI_MEMORY_ARENA = 1,  // intermediate values of a job
    SUMI_MEMORY_IMAGE = 2,  // finished images and previews; on a GPU also images on their way to externals
    SUMI_MEMORY_STAGING = 3 // GPU: pinned (page-locked) host memory. CPU: packing buffers of matrix products
} sumi_memory_kind;
#define SUMI_MEMORY_KIND_COUNT 4

// Device memory, for GPU backends. Addresses are CUdeviceptr. The engine's context is current during the call. The
// functions are called by one thread at a time: the one that runs slices, or one that is inside a call of the engine.
// Memory is released when the GPU has finished all work that uses it. STAGING is host memory that kernels can read at
// the same address, as cuMemHostAlloc returns it. When `allocate` returns 0 for STAGING, streamed weights (weights that
// are copied to the device for each use) are read from the mapped files instead, which is slower.
//
// When device memory runs out, other programs may be using it. The engine then tries again with a lower limit
// before a job fails. The limit is what the engine holds plus what the driver reports as free, less a margin of up to
// 64 MB; with a device_allocator the limit is always below the total that the allocator refused. Later jobs keep to the
// limit as to a memory_budget_bytes. The driver is asked again whenever a job begins, and the limit is then raised or
// removed. A device_allocator is tried again after a few jobs, then at growing intervals. The log reports all of this.
typedef struct sumi_device_allocator {
    // Returns 0 when memory has run out. The engine's streams do not wait for work of the host program: any device
    // work of the host program on this memory, a fill for example, must be complete before this function returns.
    uint64_t (*allocate)(size_t bytes, size_t alignment, sumi_memory_kind kind, void* user_data);
    void (*release)(uint64_t address, size_t bytes, sumi_memory_kind kind, void* user_data);
    void* user_data;
} sumi_device_allocator;

// Files, to read checkpoints out of the host program's archives. The built-in service maps files read-only, so weights
// are never copied. The files of a model stay open while the model lives. Files that only name other files (indexes,
// model_index.json) are closed when the model is open. The built-in functions open regular files only. A pipe, socket,
// folder or device in the place of a file, a symbolic link to nothing, and a file in the place of a component's folder
// make the job fail with a message that names the path.
//
// Reading     A file without `map` is read whole, into memory of the allocator, in pieces from its beginning to its
//             end. A piece is as large as fits into the budget of sumi_engine_update (and max_slice_us) at the speed of
//             the earlier pieces, and at least 64 KB. A job can be cancelled between any two pieces. `open` and `map`
//             should be quick: one slice may open several files.
// Threads     The functions are called by the thread that runs slices: the one that calls the engine, or the pump's
//             thread. `close` is also called by the calls that end a model, an adapter or a job. Never more than one of
//             these functions runs at a time. A read lasts as long as the host program takes for it, and the update
//             that makes it lasts so long, too.
// Paths       The desc's own paths, and those paths joined with further names by '/'. A job asks for each path once,
//             and opens each file once. A path that does not open is taken for a folder: folders cannot be listed, so
//             names are tried. First come weights, of the components transformer, text_encoder, text_encoder_2 or
//             clip_model, and vae: in each folder S.safetensors.index.json, S.safetensors, S.bf16.safetensors,
//             S.fp16.safetensors and S.gguf, where S is diffusion_pytorch_model or model, until one opens. Then come
//             the files that the indexes name; model_index.json; config.json of each component; tokenizers
//             (tokenizer.json, or vocab.json and the files beside it, or tokenizer.model and its other names);
//             preprocessor_config.json; and scheduler/scheduler_config.json. Of an adapter: its path; in a folder the
//             names that PEFT and diffusers give; and adapter_config.json beside it.
typedef struct sumi_files {
    // Returns NULL for a folder, for a file that is not there, and when the file cannot be opened.
    void* (*open)(const char* path, uint64_t* out_bytes, void* user_data);
    // Returns false when the bytes could not be read: the job fails with SUMI_FILE_READ_FAILED.
    bool (*read)(void* file, uint64_t offset, void* into, size_t bytes, void* user_data);
    // Optional. Returns the whole file in memory, valid until `close`, or NULL to have it read. Called once per file.
    const void* (*map)(void* file, void* user_data);
    void (*close)(void* file, void* user_data);
    void* user_data;
} sumi_files;

// The job system of the host program. sumi asks for loops over items. The host program calls
// task(begin, end, worker_index, task_context) for ranges [begin, end) that together cover every item of
// [0, item_count) exactly once. Ranges have at least min_range items; the last one may be shorter. They may run on any
// threads. An engine has one loop at a time: `begin` and `finish` are called in turn, by the thread that runs slices.
// worker_index is in [0, worker_count), and no two ranges that run at the same time have the same
// worker_index.
typedef void sumi_task(int32_t begin, int32_t end, int32_t worker_index, void* task_context);
typedef struct sumi_tasks {
    int32_t worker_count;
    // Returns a handle for `finish`, which may be NULL. It may run the whole loop before it returns.
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
// The library never prints. Without a log, the details of a refused call are available only from
// sumi_engine_last_error, which keeps the newest failure. `text` is valid during the call. Called on the threads that
// call the engine and on those of sumi, by several at once if free calls fail beside others: it must be thread-safe.
typedef struct sumi_log {
    void (*write)(sumi_log_level level, sumi_result result, const char* text, void* user_data);
    void* user_data;
} sumi_log;

// The stages of a job, as sumi_job_poll and traces name them.
typedef enum sumi_stage {
    SUMI_STAGE_WAIT = 0,    // in the queue
    SUMI_STAGE_LOAD = 1,    // reading a model or an adapter
    SUMI_STAGE_PREPARE = 2, // writing the plan (the job's list of operations), its tables and the noise
    SUMI_STAGE_TEXT = 3,    // text encoders, and the vision tower that reads reference images
    SUMI_STAGE_IMAGE = 4,   // VAE encoder: start images and references become latents
    SUMI_STAGE_DENOISE = 5,
    SUMI_STAGE_DECODE = 6,   // VAE decoder
    SUMI_STAGE_TRANSFER = 7, // conversion of the image to its format and its copy to its target
    // The driver compiles kernels for a GPU that is newer than the library. It takes some seconds once, and
    // milliseconds from then on, until there is a new driver.
    SUMI_STAGE_COMPILE = 8
} sumi_stage;
#define SUMI_STAGE_COUNT 9

// Where the work of a span (sumi_trace_span) was done.
typedef enum sumi_track {
    // The thread that calls the engine, or the pump's thread: plans, tokens, noise. On the CPU backend also the slices.
    SUMI_TRACK_HOST = 0,
    SUMI_TRACK_DEVICE = 1 // slices on a GPU
} sumi_track;
// What an engine did and when, for the host program's own profiler (Tracy, Unreal Insights, a Chrome trace as `sumi
// generate --trace` writes it). There is one span for every piece of work, reported when the work is done. Spans of a
// track come in order and never overlap. Times are nanoseconds of the system's steady clock: CLOCK_MONOTONIC, or
// QueryPerformanceCounter on Windows. The length of a GPU span is measured by CUDA events. Its position is an estimate:
// after its submission and after the span before it, never in the future.
typedef struct sumi_trace_span {
    // The first operation of a slice ("attention.qkv"), otherwise what was done ("noise"). Valid during the call.
    const char* name;
    sumi_track track;
    sumi_stage stage;
    int32_t step; // denoising step, from 0; -1 outside the denoising steps
    uint64_t job; // sumi_job.id
    uint64_t begin_ns, end_ns;
} sumi_trace_span;
// `span` is called by the thread that runs slices, while it works, and must be quick. NULL: no spans are
// measured, at no cost.
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

// For host programs that prefer a callback to polling. `ended` is called when a job has finished, at most once per job,
// after the state has changed, so that sumi_job_poll returns the final state. job_user_data is the user_data of the
// job's desc. The callback runs on the thread that runs slices: inside sumi_engine_update, sumi_job_wait, or the
// function that ended the job (sumi_model_close of its model, say), or on sumi's own thread. A mutex of the host
// program around those functions is locked meanwhile. For a job that was cancelled before it began, the callback runs
// in the next sumi_engine_update or sumi_job_wait. It is not called for a job that was discarded before it finished,
// and perhaps not for one that another thread has fetched already: whoever fetches on the callback alone misses no job.
// The callback may not fetch (see Callbacks): it puts the job into a queue of the host program, or wakes the thread
// that fetches.
typedef struct sumi_completion {
    void (*ended)(sumi_job job, sumi_job_state state, void* job_user_data, void* user_data);
    void* user_data;
} sumi_completion;

// ---- Engine ---------------------------------------------------------------------------------------------------------
typedef enum sumi_backend {
    SUMI_BACKEND_AUTO = 0, // a GPU when this build and machine have one, the CPU otherwise
    SUMI_BACKEND_CPU = 1,  // float32 arithmetic; the reference that the others are tested against
    SUMI_BACKEND_CUDA = 2  // an NVIDIA GPU of compute capability 8.0 or newer; bfloat16 values, float32 sums
} sumi_backend;

typedef enum sumi_pump {
    // Work advances inside sumi_engine_update and the calls that wait, on the calling thread (and on the tasks or
    // threads that the desc asks for).
    SUMI_PUMP_UPDATE = 0,
    // One low-priority thread of sumi advances the work. sumi_engine_update then does nothing.
    SUMI_PUMP_THREAD = 1
} sumi_pump;

typedef struct sumi_engine_desc {
    uint32_t cookie; // set by sumi_engine_defaults(); leave it alone
    sumi_backend backend;
    // For the CUDA backend. The device is that of `context`, or the first one that has every one of ordinal, uuid and
    // luid that is given; a context of another device is SUMI_INVALID_ARGUMENT. Calls leave the calling thread's
    // current CUDA context as they found it. With SUMI_BACKEND_CPU anything but the defaults is SUMI_NOT_SUPPORTED; so
    // it is with AUTO when there is no GPU that can be used.
    struct {
        int32_t ordinal;          // -1: the first device
        const uint8_t* uuid;      // 16 bytes, or NULL
        const uint8_t* luid;      // 8 bytes (Direct3D 12), or NULL
        struct CUctx_st* context; // NULL: the device's primary context
        // NULL: a non-blocking stream of sumi with the lowest priority. CUDA's NULL stream is never used. A stream that
        // is being captured is refused.
        struct CUstream_st* stream;
    } cuda;
    sumi_allocator allocator;
    sumi_device_allocator device_allocator;
    sumi_files files;
    sumi_tasks tasks; // loops of the CPU backend run here
    sumi_log log;
    sumi_tracer tracer;
    sumi_completion completion;
    sumi_pump pump;
    int32_t job_capacity; // jobs that may exist at once, 1..4096; their job slots are allocated at creation
    // Operations are cut into slices so that no slice is predicted to take longer than this many microseconds. The
    // prediction is made from the slices that ran before on this device. 0, or sumi_image_desc.profile: a slice is a
    // whole operation. Smaller slices cost throughput. On the CPU operations are cut while they run, by the time that
    // their parts took last, and slices are shorter where less of a budget is left. On a GPU slices are shorter while
    // the budgets of sumi_engine_update are small, down to an eighth of this and not below 250 us, so that whole slices
    // fill a budget well. Results do not depend on any of this.
    uint32_t max_slice_us;
    // The most memory, in bytes, for intermediate values and packing buffers (CPU; operands of matrix products are
    // copied to these buffers in another order), or for everything that the engine allocates on the device (GPU). 0: no
    // limit. No job ever takes more. On a GPU the budget does not count what the driver takes for itself
    // (sumi_engine_info.uncounted_bytes), nor any host memory. On the CPU it does not count other memory from the
    // allocator: job slots, open models, prompts, adapters, plans of recent shapes, files that cannot be mapped, and
    // sumi_memory.images and host of a job. sumi_engine_info.host_peak_bytes includes all of that.
    //
    // A job takes the first of these that the budget can hold:
    //     CPU   1. The VAE works on whole images.
    //           2. The VAE works in tiles (overlapping pieces of the image, one after the other), which changes the
    //              image a little.
    //           3. The job fails with SUMI_BUDGET_TOO_SMALL.
    //     GPU   1. All weights stay on the device.
    //           2. Weights are streamed, that is, copied to the device for each use. Slower, the same bits.
    //           3. Weights are streamed and the VAE works in tiles.
    //           4. The job fails with SUMI_BUDGET_TOO_SMALL.
    // What happens when the device has less memory than the budget: sumi_device_allocator and sumi_submit_images.
    uint64_t memory_budget_bytes;
    // Threads that work on a loop of the CPU backend without tasks, the calling thread included. 1: no hidden
    // thread; the log tells when the machine has more processors. 0: one thread per logical processor.
    int32_t cpu_thread_count;
} sumi_engine_desc;

// Returns the AUTO backend, built-in services, SUMI_PUMP_UPDATE, 16 jobs, slices of 2 ms, no memory limit, one thread.
// Any thread. Never blocks.
SUMI_API sumi_engine_desc sumi_engine_defaults(void);

// Creates an engine. Any thread. Blocks for a few milliseconds, and for some hundred milliseconds where the process has
// not used the CUDA driver before. On failure *out_engine is NULL and nothing is left behind. AUTO chooses the CPU if
// it finds no usable GPU, and the log says why. The host program ends an engine with sumi_engine_destroy.
//
// Failures: SUMI_INVALID_ARGUMENT, SUMI_DESC_NOT_INITIALIZED, SUMI_OUT_OF_HOST_MEMORY; SUMI_NOT_SUPPORTED for a
// backend, or a service of a backend, that this build lacks. With SUMI_BACKEND_CUDA also SUMI_NO_DEVICE,
// SUMI_DRIVER_TOO_OLD, SUMI_DEVICE_UNSUPPORTED and SUMI_OUT_OF_DEVICE_MEMORY.
SUMI_API sumi_result sumi_engine_create(const sumi_engine_desc* desc, sumi_engine** out_engine);

// Cancels all jobs, waits for the running slice, and frees everything that the engine still holds: jobs, models,
// prompts, adapters, externals, images. No other call of this engine may run meanwhile, free calls included.
// When there are imports of OpenGL textures, the GL context is current on the calling thread. Accepts NULL.
SUMI_API void sumi_engine_destroy(sumi_engine* engine);

// Advances jobs by about budget_us microseconds of work. Slices run while their predicted time still fits. 0 is a
// pause: the call only ends jobs that were cancelled. SUMI_FOREVER works until no job has anything left to do. The
// budget may change every frame; results do not depend on it. Does nothing with SUMI_PUMP_THREAD. Failures of jobs are
// reported by sumi_job_poll; sumi_job_list shows whether jobs are left. A call with a time budget in which the last
// running job ends begins no other one, so that the host program can change the order of the queue before.
//
// CPU backend: the work happens inside this call. It exceeds the budget by at most one and a half times max_slice_us, as
// far as the operating system lets the thread run, also for the first image of a size. A small part of an operation
// runs however small the budget is.
//
// GPU: the call submits work and does not wait for it. At any time at most budget_us of predicted work is in flight on
// the device, or one slice if a slice is longer than that. Where slices seem to wait for kernels of the host program in
// the same context, now and then one slice more, by which its own time is measured. The time of the calling thread in
// one call:
//
//     while an image is denoised and decoded    0.25 ms, or a twelfth of the budget if that is more
//     where an image begins                     0.5 ms
//     the first image of a size and pace        up to 3 ms, and memory is allocated
//     while a model is loaded                   the whole budget; a read of the host program's files lasts as it does
//
// A pace is a class of time budgets: up to 2 ms, up to 4, up to 8, up to 16, and above. Plans are made for a pace,
// because it decides the size of slices. Where kernels of the host program keep the same context busy, the driver may
// make an allocation wait for them. Therefore generate a first image of each size while nothing is drawn, by updates
// with the budget that frames will have.
SUMI_API void sumi_engine_update(sumi_engine* engine, uint32_t budget_us);

// Changes memory_budget_bytes. The new value holds for jobs that leave the queue later, which a paused job does when it
// goes on. A job that runs keeps the value that held when it left the queue, through all parts of a divided batch. Waits
// for the running slice. While no job runs, memory above the new budget is freed at once; otherwise it is freed when the
// last running job has ended. Failures: SUMI_INVALID_ARGUMENT.
SUMI_API sumi_result sumi_engine_set_memory_budget(sumi_engine* engine, uint64_t bytes);

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
    // Bytes of device_bytes that were neither free nor allocated by the engine when the driver was last asked: at
    // creation, after the kernels were loaded, when a job of a new size is ready, and as jobs begin while device memory
    // is short. No budget counts these bytes. They hold the CUDA context (H200: 556 MB); code, graphs, local memory of
    // kernels and the driver's rounding to pages (145 to 200 MB from the first image on); and the memory of other
    // programs and of the host program itself, because the driver does not tell these apart. 0 on the CPU.
    uint64_t uncounted_bytes;
    // Which GPU this is, for a host program that chooses the same one for its graphics. Zero on the CPU.
    uint8_t device_uuid[16]; // equals VkPhysicalDeviceIDProperties.deviceUUID
    // Windows: equals DXGI_ADAPTER_DESC.AdapterLuid and VkPhysicalDeviceIDProperties.deviceLUID. Zero on other systems.
    uint8_t device_luid[8];
} sumi_engine_info;
// Returns what the engine is and holds; all zero, with empty texts, for NULL. Any thread, beside any other call. Never
// blocks.
SUMI_API sumi_engine_info sumi_engine_get_info(const sumi_engine* engine);
// Copies the text of the last failure, for a host program without a log: of a call that was refused, or of a job that
// failed, on any thread. Returns the result of that failure; SUMI_OK and "" where nothing has failed yet. Texts take at
// most 512 bytes with the terminating zero; a text that is longer than `capacity` (bytes) is cut. A failed
// sumi_engine_create leaves no engine to ask: it reports to sumi_engine_desc.log. Any thread, beside any other call.
// Never blocks. engine NULL: SUMI_INVALID_ARGUMENT; in a child process after a fork: SUMI_WRONG_STATE.
SUMI_API sumi_result sumi_engine_last_error(const sumi_engine* engine, char* into, size_t capacity);

// ---- Jobs -----------------------------------------------------------------------------------------------------------
// Jobs run one after the other: higher priority first, then in the order of submission. On a GPU the next job is
// submitted while the last slices of the job before it are in flight, if both have the same shape (model, sizes, steps,
// lengths of the prompts in tokens). The GPU is then never idle between queued images, and two jobs are RUNNING.
//
// Every job is freed by its fetch or by sumi_job_discard. The fetch of a job that failed or was cancelled returns that
// result, and frees the job too. A job that was not freed keeps its job slot.
//
//     submit --> QUEUED --> RUNNING --> DONE      -- fetch --> the product is yours; the handle is stale
//                  | ^         |  |---> FAILED    -- fetch --> the result says why; the handle is stale
//                  | |- pause -|  |---> CANCELLED -- fetch --> SUMI_CANCELLED; the handle is stale
//                  |-- cancel ----------^
//
// sumi_job_discard leads from every state to a stale handle. The host program may free strings, arrays, pixels and
// prompts of the desc right after the submit, which copies them; sumi_target says how long its memory must live.
// Closing or releasing a model, adapter or external cancels the jobs that use it.
//
// When something does not happen:
//
//     A job stays QUEUED    Nobody calls sumi_engine_update (SUMI_PUMP_UPDATE), or its budget is 0; or the job, or the
//                           engine, waits: see sumi_job_status.paused and jobs_ahead.
//     A job is slow         The budget of sumi_engine_update is the share of a frame that sumi may use. Compare
//                           sumi_job_status.device_seconds with the time that passed: the rest was not asked for.
//     SUMI_QUEUE_FULL       Jobs in final states keep their job slots until they are fetched or discarded.
//     No details            Set sumi_engine_desc.log, or call sumi_engine_last_error. Messages of the level DEBUG also
//                           name the source line that found a failure; include them in a bug report.
//     SUMI_STALE_HANDLE     A job can be fetched once. Keep the product, not the job.

typedef struct sumi_job_status {
    sumi_job_state state;
    sumi_stage stage;
    // Denoising steps done, and in all, which is known from the submission on; a deadline may lower it. 0 for jobs that
    // make no image. In the stage COMPILE: files of kernels.
    int32_t step, step_count;
    float progress;           // 0..1; it never falls and is 1 only when done
    float seconds_left;       // of work, predicted from the speed so far; negative: not known yet
    uint32_t preview_version; // grows with each new preview
    sumi_result result;       // of a job in a final state; SUMI_OK before
    // Details of a failure, "" otherwise. Valid until the job is freed, so a thread that polls while another one may
    // free the job must not read it.
    const char* message;
    // Seconds of work so far, by sumi_stage: of the threads that worked, and of a GPU where it ran slices.
    float stage_seconds[SUMI_STAGE_COUNT];
    // Seconds that a GPU has worked for this job, in slices that have ended; on the CPU the seconds of the job's
    // slices.
    double device_seconds;
    float pending_us;   // predicted work of this job that is in flight on a GPU
    int32_t jobs_ahead; // of a queued job: how many jobs run before it, the running one included
    // By sumi_memory_kind, of the whole engine, as in sumi_engine_info: for a graph beside the job's progress.
    uint64_t held_bytes[SUMI_MEMORY_KIND_COUNT];
    // How many tokens of the longest text were cut off because the model reads no more; 0: all were read. It counts to
    // 1024, which means so many or more. Known before the stage TEXT begins; the log says it too.
    int32_t cut_tokens;
    void* user_data; // of the job's desc
    // sumi_job_pause(..., true) was called: a queued job waits until it is resumed; a running job will be queued again.
    bool paused;
} sumi_job_status;

// Returns a snapshot of a job, and does no work. Any thread, beside any other call. Never blocks. A stale job has state
// SUMI_JOB_NONE and result SUMI_STALE_HANDLE.
SUMI_API sumi_job_status sumi_job_poll(const sumi_engine* engine, sumi_job job);
// Requests that a job stops. The request takes effect within one slice, at any stage: with SUMI_PUMP_UPDATE in the next
// sumi_engine_update, also if that is a pause (budget 0). The state is then CANCELLED, and the model is usable as
// before. A job in a final state stays as it is. Any thread, beside any other call. Never blocks. Accepts stale jobs.
SUMI_API void sumi_job_cancel(sumi_engine* engine, sumi_job job);
// Changes the priority of a queued job, which moves it in the queue: behind those of the same priority that were
// submitted before it. Also of a running job that has done nothing yet, not even read a text: it goes back into the
// queue if another job is before it now. A job that has done something continues, whatever the priorities. Then, and
// when the job is in a final state, the result is SUMI_WRONG_STATE. sumi_engine_last_error says which of the two; the
// log is told at the level DEBUG only, because a job may begin at any moment. Any thread, beside any other call. Never
// blocks. Any number is a priority; the default is 0. Other failures: SUMI_STALE_HANDLE, SUMI_INVALID_ARGUMENT.
SUMI_API sumi_result sumi_job_set_priority(sumi_engine* engine, sumi_job job, int32_t priority);
// Pauses a job (true), or resumes it (false). Pausing a paused job and resuming one that is not paused return SUMI_OK.
//
// A queued job is skipped until it is resumed, and then has its place by priority and submission. A running job stops,
// so that other jobs can run, and is queued again: an image job in the stage DENOISE stops after the current
// evaluation, every other job at once. An image job keeps its latents, as float32 in host memory (three sets per image
// for solvers that use earlier steps), and nothing else. When it runs again it repeats the stages before DENOISE
// (texts, references, a start image), then continues where it stopped: the image is the same, bit for bit. (With a step
// cache it keeps twice as many, and repeats the last evaluations that were computed, one or two.) If host
// memory for the latents is missing, or the job had not reached DENOISE, it starts again, as prompts and encodings do.
// A job whose images are being decoded is finished instead, and `paused` then has no effect. A load that has begun
// cannot be paused. Time spent in a pause counts for a deadline. sumi_job_wait for a paused job lasts until its timeout,
// or until another thread resumes the job.
//
// Any thread, beside any other call. Never blocks. Failures: SUMI_STALE_HANDLE; SUMI_WRONG_STATE for a job in a final
// state and for a load that has begun, told as by sumi_job_set_priority; SUMI_INVALID_ARGUMENT.
SUMI_API sumi_result sumi_job_pause(sumi_engine* engine, sumi_job job, bool paused);
// Lists the jobs that were neither fetched nor discarded: first running jobs, then queued jobs in the order in which
// they will run, then jobs in a final state. Running and final jobs are listed by submission. Writes at most `capacity`
// jobs and returns how many there are, so that NULL and 0 count them. Any thread, beside any other call. Never blocks.
// engine NULL, or in a child process after a fork: 0.
SUMI_API int32_t sumi_job_list(const sumi_engine* engine, sumi_job* into, int32_t capacity);
// Blocks until the job is in a final state, for timeout_ms milliseconds and at most one slice more. With
// SUMI_PUMP_UPDATE the calling thread does the work of this job and of those before it, and completions are called;
// with SUMI_PUMP_THREAD it sleeps. With a timeout of 0 the call only looks. SUMI_OK means that the state is final, not
// that the job succeeded; the fetch returns the job's result. Failures: SUMI_TIMEOUT, SUMI_STALE_HANDLE,
// SUMI_INVALID_ARGUMENT.
SUMI_API sumi_result sumi_job_wait(sumi_engine* engine, sumi_job job, uint32_t timeout_ms);
// Frees a job of any state without a fetch; a job that has not finished is cancelled. With SUMI_PUMP_UPDATE the job
// slot is free when the call returns, which for a running job is when the GPU has finished its submitted work. With
// SUMI_PUMP_THREAD the call returns at once, and the job slot is free when the running slice has ended. For a finished
// load of a model or an adapter that was not fetched, the call waits for the running slice. Never touches the host
// program's textures. Accepts stale jobs.
SUMI_API void sumi_job_discard(sumi_engine* engine, sumi_job job);

// ---- Models ---------------------------------------------------------------------------------------------------------
typedef enum sumi_weight_format {
    // The CPU backend reads every format from the mapped files. A GPU holds the transformer in bfloat16 if that takes
    // at most three quarters of the GPU's memory; otherwise AS_STORED if the file has 10 bits per weight or less;
    // otherwise INT8. The choice follows from the file and the size of the GPU's memory alone, not from budgets;
    // sumi_model_info.weights holds the chosen format.
    SUMI_WEIGHTS_AUTO = 0,
    SUMI_WEIGHTS_BF16 = 1, // GPU: bfloat16. SUMI_NOT_SUPPORTED on the CPU
    // GPU of compute capability 8.9 or newer: the large matrices of the transformer in the 8-bit float format e4m3 with
    // a scale per row, quantised when they are loaded. Embedders, modulation and the final layer stay bfloat16.
    // SUMI_NOT_SUPPORTED on the CPU. As text_weights, this format and the formats below apply to the large matrices of
    // the text encoders, whose tables of token embeddings stay bfloat16.
    SUMI_WEIGHTS_FP8 = 2,
    // GPU: matrices of GGUF's block types and of fp8 files stay as they are in their file, those of text encoders and
    // their tables of token embeddings too, and are unpacked to bfloat16 for each product: the memory is that of the
    // file, and the values are those of BF16. On an H200 an evaluation at 1024x1024 takes 3 to 6 % longer, a prompt of
    // 128 tokens 0.95 to 1.2 times as long, one of 512 tokens 1.3 to 1.45 times. Everything else is as with BF16, also
    // fp8 files with a scale for each row, int8 files, and matrices with an adapter merged into them: these take twice
    // the memory of their file, and FP8 or INT8 are the formats that keep it at 8 bits. CPU: as AUTO.
    SUMI_WEIGHTS_AS_STORED = 3,
    // Any GPU: the same matrices as FP8 in 8-bit integers with a scale per row, after a rotation (a fixed
    // orthogonal matrix) of the rows that spreads large values over many columns, so that a few columns do not decide
    // the scale (QuaRot, Ashkboos et al. 2024). As large as FP8. A prediction of the transformer at Z-Image's size
    // differs from float32 by 2.1 times the error of PyTorch's bfloat16 (FP8: 5.9 times), in 0.94 of FP8's time on an
    // H200. SUMI_NOT_SUPPORTED on the CPU.
    SUMI_WEIGHTS_INT8 = 4,
    // Any GPU: the same matrices in 4-bit codes, groups of 32 along a row with a half-precision scale each (4.5 bits
    // per weight, the layout of GGUF's IQ4_NL), quantised from the file's values when they are loaded. Activations and
    // the operands of products stay bfloat16. The least memory and the largest error: a prediction at Z-Image's size
    // differs from float32 by 12.7 times the error of PyTorch's bfloat16, and takes 6 % longer than with BF16 on an
    // H200. SUMI_NOT_SUPPORTED on the CPU.
    SUMI_WEIGHTS_INT4 = 5
} sumi_weight_format;

// The format of the operands of attention, softmax(q k^T) v, in the transformer on a GPU. Text encoders and the VAE
// keep bfloat16. Independent of sumi_weight_format, which is about matrices of weights.
typedef enum sumi_attention_format {
    SUMI_ATTENTION_AUTO = 0, // bfloat16 on a GPU, float32 on the CPU
    SUMI_ATTENTION_BF16 = 1, // GPU: bfloat16. SUMI_NOT_SUPPORTED on the CPU
    // GPU: 8 bits, in the format that is fast on the device, with sums of 32 bits. SUMI_NOT_SUPPORTED on the CPU.
    // Compute capability 9.0: q, k, v and the probabilities in e4m3 (FlashAttention-3, Shah et al. 2024, without its
    // rotation of q and k), for heads of 128 channels (Z-Image, Qwen-Image); NewBie-image's heads of 96 channels keep
    // bfloat16. All other GPUs: q and k in int8 (SageAttention, Zhang et al. 2024), v and the probabilities in
    // bfloat16, for heads of 64, 96 or 128 channels. On an H200 a prediction of the transformer at Z-Image's size
    // differs from float32 by 1.8 times the error of PyTorch's bfloat16 (BF16: 0.8), and takes 0.94 of the time with
    // weights in INT8.
    SUMI_ATTENTION_8BIT = 2
} sumi_attention_format;

// Where a checkpoint is. Each path below `path` names one component. It overrides or completes the content of `path`;
// NULL takes the component from `path`. Components are recognised by their content, not by the names of their files. A
// component that the model's family does not have is refused with SUMI_NOT_SUPPORTED.
typedef struct sumi_model_desc {
    uint32_t cookie; // set by sumi_model_defaults(); leave it alone
    // A diffusers folder (model_index.json and a folder per component: transformer/, text_encoder/, tokenizer/, vae/,
    // scheduler/ and so on), or a single safetensors or GGUF file. May be NULL when the components below are complete.
    // Single files may use the tensor names of diffusers, ComfyUI or llama.cpp. Few of them hold a tokenizer: give
    // tokenizer_path. Models of two text encoders need both, or without_text_encoder: with only one of the two no
    // prompt can be encoded.
    const char* path;
    const char* transformer_path;  // folder or file
    const char* text_encoder_path; // folder or file
    // A tokenizer.json, a vocab.json with its merges.txt beside it, a SentencePiece model, or the folder of one of
    // them. NULL: from path, else inside or beside the text encoder's files.
    const char* tokenizer_path;
    const char* vae_path; // folder or file
    sumi_weight_format weights;
    // Text encoders, their tokenizers and the vision tower are not opened. Then only encoded prompts can be used, also
    // for negative prompts where guidance is on.
    bool without_text_encoder;
    bool without_vae_encoder; // images cannot be encoded: no start images, no references, no sumi_submit_encode
    int32_t priority;         // higher first
    void* user_data;          // returned in sumi_job_status and passed to the engine's completion
    // The second text encoder and its tokenizer, of families that have two.
    const char* text_encoder_2_path; // folder or file
    const char* tokenizer_2_path;    // as tokenizer_path
    // The vision tower of edit models (the network that reads reference images for the text encoder), where it is not
    // among the text encoder's files. Folder or file.
    const char* vision_path;
    // The image processor of edit models: a preprocessor_config.json, or its folder.
    const char* processor_path;
    // Which variant of its family the model is (sumi_model_info.variant), for files that do not say so: single files of
    // edit models have the same tensors as those of the model that they were made from. NULL: by the files. An unknown
    // variant is SUMI_INVALID_ARGUMENT, and the log names the known ones.
    const char* variant;
    // Format of the text encoders and of the vision tower; `weights` is the transformer's. AUTO on a GPU: AS_STORED if
    // `weights` is AS_STORED or AUTO has chosen it, else bfloat16, on GPUs with little memory too: there a text encoder
    // that does not fit beside the transformer is streamed from host memory for each prompt, with the same features.
    // INT8 and INT4 avoid that time and change the features: Z-Image's encoder then takes 4.3 or 2.8 GB instead of 7.8.
    // SUMI_NOT_SUPPORTED where `weights` would be.
    sumi_weight_format text_weights;
    sumi_attention_format attention;
} sumi_model_desc;

typedef struct sumi_size {
    int32_t width, height; // pixels
} sumi_size;

// The formula that the authors of a model use for their guidance number. sumi_image_desc.guidance takes the number on
// the model card unchanged, for either formula. positive and negative are the predictions with the prompt and with the
// negative prompt.
typedef enum sumi_guidance_formula {
    SUMI_GUIDANCE_FROM_POSITIVE = 0, // positive + guidance * (positive - negative); off: 0
    SUMI_GUIDANCE_FROM_NEGATIVE = 1  // negative + guidance * (positive - negative), the classic CFG scale; off: 1
} sumi_guidance_formula;

// How the norm of guided predictions is corrected. Their norm is larger than that of the positive prediction, which
// makes colours harsher.
typedef enum sumi_guidance_rule {
    SUMI_GUIDANCE_MODEL = 0, // the rule of the model's authors, one of those below
    SUMI_GUIDANCE_PLAIN = 1, // no correction
    // The prediction of a whole image is scaled down to at most guidance_norm_limit times the norm of the positive one
    // (cfg_normalization, renorm_cfg).
    SUMI_GUIDANCE_NORM_LIMIT = 2,
    // The prediction of each token is scaled to the norm of the positive one (true CFG of the Qwen-Image pipelines).
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
    // The authors' negative prompt, which is used for items without one; "": the empty text.
    const char* negative_text;
    int32_t size_multiple;  // width and height are multiples of this many pixels
    int32_t max_size;       // most pixels along one side
    int32_t native_size;    // side in pixels of the images that the model was trained for; presets are sized by it
    const sumi_size* sizes; // sizes that the authors name, their default first; valid while the model lives
    int32_t size_count;
    int32_t latent_channels;   // channels of latents
    int32_t latent_factor;     // pixels per latent along a side
    int32_t max_prompt_tokens; // longer prompts are cut, as by the reference code: sumi_job_status.cut_tokens
    uint64_t weight_bytes;     // in the files, of the components in use
    // The least and the most reference images of a job; both 0: the model takes none.
    int32_t min_references, max_references;
    sumi_weight_format weights;      // as requested; for AUTO on a GPU, the format that was chosen
    sumi_weight_format text_weights; // likewise
    sumi_attention_format attention; // as requested; for AUTO on a GPU, SUMI_ATTENTION_BF16
} sumi_model_info;

// Returns SUMI_WEIGHTS_AUTO for both kinds of weights, SUMI_ATTENTION_AUTO, everything else zero. Any thread. Never
// blocks.
SUMI_API sumi_model_desc sumi_model_defaults(void);
// Opens a checkpoint: a job of stage LOAD. Returns at once. The job reads headers and tokenizers and checks the shape
// of every tensor; weights stay in their mapped files. On a GPU the job also loads the kernels and copies the weights
// to the device. The kernels are loaded once per engine, on a thread of sumi that ends when they are loaded. Where the
// library has no machine code for the GPU, the driver compiles them the first time: some now, for about a second, and
// those that an image needs in that job's stage COMPILE.
//
// Fails at once with SUMI_INVALID_ARGUMENT, SUMI_DESC_NOT_INITIALIZED, SUMI_QUEUE_FULL, SUMI_NOT_SUPPORTED or
// SUMI_OUT_OF_HOST_MEMORY. The job fails with SUMI_FILE_NOT_FOUND, SUMI_FILE_READ_FAILED, SUMI_FILE_TRUNCATED,
// SUMI_FILE_MALFORMED, SUMI_MODEL_UNKNOWN, SUMI_TENSOR_MISSING, SUMI_TENSOR_MISMATCH, SUMI_NOT_SUPPORTED,
// SUMI_OUT_OF_HOST_MEMORY, SUMI_DEVICE_LOST or another result of a device. A load does not fail for lack of device
// memory, or because of the memory budget: what does not fit is streamed, and a job that cannot run says so.
SUMI_API sumi_result sumi_submit_model(sumi_engine* engine, const sumi_model_desc* desc, sumi_job* out_job);
// Frees the job and returns the model, which the host program ends with sumi_model_close. Returns the result of a job
// that failed or was cancelled, which is freed too. SUMI_WRONG_STATE while the job runs or when it is of another kind,
// SUMI_STALE_HANDLE. Never blocks.
SUMI_API sumi_result sumi_fetch_model(sumi_engine* engine, sumi_job job, sumi_model** out_model);
// Returns what the model is; all zero, with empty texts, for NULL. Never blocks.
SUMI_API sumi_model_info sumi_model_get_info(const sumi_model* model);
// Cancels the jobs that use the model and have not finished, which are then fetched or discarded as any others;
// finished jobs keep their products. Waits for the running slice, and closes the files. Prompts that were made with the
// model stay valid for other models of the same family and feature width. Adapters that were read for it can only be
// released. Accepts NULL.
SUMI_API void sumi_model_close(sumi_model* model);

// ---- Input images ---------------------------------------------------------------------------------------------------
typedef struct sumi_pixels {
    const void* data;      // 8-bit sRGB, rows from the top
    int32_t width, height; // pixels
    int32_t row_bytes;     // pitch: bytes from row to row; 0: width * channel_count
    int32_t channel_count; // 1 grey, 3 RGB, 4 RGBA (alpha is ignored)
} sumi_pixels;

// ---- Prompts --------------------------------------------------------------------------------------------------------
// The model reads a text inside a template: words that its authors put around the text. NewBie-image's template is a
// sentence that ends in "<Prompt Start> ": one sentence for texts that begin with '<' (captions in XML), another for
// all other texts, none for the empty text. A text that contains "<Prompt Start>" brings its own sentence, and nothing
// is put in front of it; a text that begins with "<Prompt Start>" is read without one. Negative texts are treated
// alike.
typedef struct sumi_prompt_desc {
    uint32_t cookie; // set by sumi_prompt_defaults(); leave it alone
    sumi_model* model;
    const char* text; // "" is the empty prompt; NULL is refused
    // Edit models: the reference_count images that the text refers to, in this order. Each is resized as the model's
    // authors do it, whatever its size. SUMI_NOT_SUPPORTED on other models. The number of references depends on the
    // model (sumi_model_info.min_references, max_references); another number is SUMI_INVALID_ARGUMENT, and the log
    // names the possible ones. An image that is too long and narrow is SUMI_INVALID_ARGUMENT too.
    const sumi_pixels* references;
    int32_t reference_count;
    int32_t priority; // higher first
    void* user_data;  // returned in sumi_job_status and passed to the engine's completion
} sumi_prompt_desc;

// Returns a desc for this model, everything else zero. Never blocks.
SUMI_API sumi_prompt_desc sumi_prompt_defaults(sumi_model* model);
// Encodes a text once, for many images: a job of stage TEXT. Returns at once. It copies the text and the references.
// The prompt also keeps the references, as the VAE reads them (3 bytes per pixel, about a million pixels each), so that
// image jobs need nothing else. Fails at once with SUMI_INVALID_ARGUMENT, SUMI_DESC_NOT_INITIALIZED, SUMI_QUEUE_FULL,
// SUMI_OUT_OF_HOST_MEMORY, or SUMI_NOT_SUPPORTED when the model was opened without its text encoder, or, for a prompt
// with references, without its vision tower. The job fails with SUMI_TEXT_INVALID, SUMI_BUDGET_TOO_SMALL, or a result
// of memory or device.
SUMI_API sumi_result sumi_submit_prompt(sumi_engine* engine, const sumi_prompt_desc* desc, sumi_job* out_job);
// Frees the job and returns the prompt, which the host program ends with sumi_prompt_release. Otherwise as
// sumi_fetch_model.
SUMI_API sumi_result sumi_fetch_prompt(sumi_engine* engine, sumi_job job, sumi_prompt** out_prompt);

// The output of one text encoder for a prompt: one row of features per token, or a single row when the encoder returns
// one pooled vector for the whole text.
typedef struct sumi_prompt_encoder {
    int32_t token_count;   // rows of features that the model reads; 1 for a pooled vector
    int32_t width;         // values in a row
    const float* features; // [token_count][width], valid while the prompt lives
} sumi_prompt_encoder;
typedef struct sumi_prompt_info {
    int32_t encoder_count;           // text encoders of the prompt's model: 1, or 2 in some families
    sumi_prompt_encoder encoders[4]; // in the order of the model's text encoders; zero after the last one
    int32_t reference_count;         // reference images that the prompt was encoded with and keeps
} sumi_prompt_info;
// Returns the features of every text encoder, and the number of references; all zero for NULL. Never blocks.
SUMI_API sumi_prompt_info sumi_prompt_get_info(const sumi_prompt* prompt);
// Writes a prompt as bytes, to ship it with a game: the features of every text encoder and the references, in
// safetensors format, portable between machines. Returns the number of bytes needed, and writes them when `capacity`
// (bytes) suffices; `into` may be NULL with capacity 0. Returns 0 for NULL. Never blocks. Versions that can read the
// bytes: this one and later ones; and version 0.1, for families of one text encoder.
SUMI_API size_t sumi_prompt_save(const sumi_prompt* prompt, void* into, size_t capacity);
// Makes a prompt from saved bytes, at once, for a model of the same family and feature widths. Reads what version 0.1
// and later ones saved. The host program ends the prompt with sumi_prompt_release. Failures: SUMI_FILE_MALFORMED,
// SUMI_FILE_TRUNCATED; SUMI_TENSOR_MISMATCH when the prompt was encoded for another family, width or number of text
// encoders, or with more references than the model takes; SUMI_INVALID_ARGUMENT, SUMI_OUT_OF_HOST_MEMORY.
SUMI_API sumi_result sumi_prompt_load(sumi_model* model, const void* data, size_t bytes, sumi_prompt** out_prompt);
// Frees a prompt; the engine keeps the memory of one for the next prompt. Jobs that were submitted with the prompt have
// their own copy. Accepts NULL. Never blocks.
SUMI_API void sumi_prompt_release(sumi_prompt* prompt);

// ---- LoRA -----------------------------------------------------------------------------------------------------------
// Adapters change the weights of a model. sumi reads safetensors files with the tensor names of PEFT, ComfyUI, kohya
// and LyCORIS:
//
//     LoRA     W' = W + scale * alpha / rank * up down
//     LoKr     W' = W + scale * w1 (x) w2, the Kronecker product, of linear layers; times alpha / rank where w1 or w2
//              is stored as a product
//     w_norm   a norm's weight' = weight + scale * w_norm
//
// alpha is a tensor of the file or a number in its header; else the value in adapter_config.json beside the file (PEFT:
// lora_alpha, use_rslora, alpha_pattern, rank_pattern); else alpha / rank is 1. Every key must match a layer of the
// model. Adapters are applied per job, without touching or reloading the model. The changes of several adapters add up.
// An adapter is used with the model that it was read for.
typedef struct sumi_lora_desc {
    uint32_t cookie; // set by sumi_lora_defaults(); leave it alone
    sumi_model* model;
    // a safetensors file, or the folder that holds one as adapter_model.safetensors or pytorch_lora_weights.safetensors
    const char* path;
    int32_t priority; // higher first
    void* user_data;  // returned in sumi_job_status and passed to the engine's completion
} sumi_lora_desc;
// Returns a desc for this model, everything else zero. Never blocks.
SUMI_API sumi_lora_desc sumi_lora_defaults(sumi_model* model);
// Reads an adapter: a job of stage LOAD. Returns at once. Fails at once with SUMI_INVALID_ARGUMENT,
// SUMI_DESC_NOT_INITIALIZED, SUMI_QUEUE_FULL or SUMI_OUT_OF_HOST_MEMORY. The job fails with SUMI_FILE_NOT_FOUND,
// SUMI_FILE_READ_FAILED, SUMI_FILE_TRUNCATED, SUMI_FILE_MALFORMED, SUMI_LORA_NO_MATCH when a key matches no layer,
// SUMI_TENSOR_MISMATCH, SUMI_TENSOR_MISSING, SUMI_NOT_SUPPORTED, or SUMI_OUT_OF_HOST_MEMORY.
SUMI_API sumi_result sumi_submit_lora(sumi_engine* engine, const sumi_lora_desc* desc, sumi_job* out_job);
// Frees the job and returns the adapter, which the host program ends with sumi_lora_release. Otherwise as
// sumi_fetch_model.
SUMI_API sumi_result sumi_fetch_lora(sumi_engine* engine, sumi_job job, sumi_lora** out_lora);
// Cancels the jobs that use the adapter, waits for the running slice, and frees the adapter. Accepts NULL.
SUMI_API void sumi_lora_release(sumi_lora* lora);
typedef struct sumi_lora_use {
    const sumi_lora* lora;
    float scale; // 1: as trained. 0: as if it were not listed. May be negative
} sumi_lora_use;

// ---- Images ---------------------------------------------------------------------------------------------------------
typedef enum sumi_preset {
    // the settings of the model's authors: those of the family, or of this checkpoint if its model_index.json has them
    SUMI_PRESET_MODEL = 0,
    SUMI_PRESET_PREVIEW = 1,  // 768 x 768 where native_size is 1024, and fewer steps
    SUMI_PRESET_STANDARD = 2, // native_size x native_size, the steps of the model's authors
    SUMI_PRESET_QUALITY = 3,  // the same size, more evaluations
    // The fewest steps, without guidance: for a model that was distilled to so few steps, or with an adapter that does
    // the same (the 4-step and 8-step adapters of Qwen-Image). The preset itself adds no adapter.
    SUMI_PRESET_FAST = 4
} sumi_preset;

typedef enum sumi_solver {
    SUMI_SOLVER_EULER = 0,    // diffusers FlowMatchEulerDiscreteScheduler
    SUMI_SOLVER_HEUN = 1,     // second order, two evaluations per step (one in the last)
    SUMI_SOLVER_MIDPOINT = 2, // second order, two evaluations per step
    SUMI_SOLVER_DPMPP_2M = 3, // second order, multistep, one evaluation per step (Lu et al. 2022)
    // Heun with two evaluations in the last step too, the second one at sigma 0 (torchdiffeq heun2)
    SUMI_SOLVER_HEUN_FULL = 4,
    SUMI_SOLVER_RK4 = 5,          // fourth order (Kutta's 3/8 rule), four evaluations per step
    SUMI_SOLVER_RES_MULTISTEP = 6 // second order, multistep, one evaluation per step (ComfyUI res_multistep)
} sumi_solver;

typedef enum sumi_noise {
    SUMI_NOISE_TORCH_CPU = 0,  // the numbers of torch.Generator("cpu").manual_seed(seed), float32, bit for bit
    SUMI_NOISE_TORCH_CUDA = 1, // those of torch.Generator("cuda") on a GPU of noise_multiprocessors, within 1.2e-6
    SUMI_NOISE_GIVEN = 2       // noise_values
} sumi_noise;

// The VAE encoder returns a mean and a deviation for each latent: its posterior.
typedef enum sumi_posterior {
    SUMI_POSTERIOR_SAMPLE = 0, // a sample, as the model's authors take it: draws noise before the main noise
    SUMI_POSTERIOR_MODE = 1    // the mean; draws no noise
} sumi_posterior;

typedef enum sumi_format {
    SUMI_FORMAT_RGBA8 = 0, // alpha is 255
    SUMI_FORMAT_RGB8 = 1,
    SUMI_FORMAT_RGB32F = 2, // 0..1, not clamped
    SUMI_FORMAT_BGRA8 = 3,  // alpha is 255; Direct3D, Windows and Unreal call this format B8G8R8A8
    // Four IEEE half floats; 0..1, not clamped; alpha is 1. Direct3D calls this format R16G16B16A16_FLOAT.
    SUMI_FORMAT_RGBA16F = 4
} sumi_format;

// A value of an imported semaphore (sumi_import). Timeline semaphores and fences: the value to wait for or to signal; a
// signalled value is above all earlier ones. Keyed mutexes: the key to acquire or to release. Binary semaphores have no
// value. semaphore NULL: nothing.
typedef struct sumi_sync {
    sumi_external* semaphore;
    uint64_t value;
} sumi_sync;

// Where an image is written: at most one of host_memory, device_address and external. All zero: memory of sumi in
// `format`, released with sumi_images_release.
//
// host_memory and an external are written by the fetch: they must live until sumi_fetch_images or sumi_job_discard has
// returned.
//
// With device_address the image stays on the GPU. Its pixels are identical to those returned in host memory. The GPU
// writes the image at the end of the TRANSFER stage, on the engine's stream. When the job is DONE the image is
// complete: GPU work that the host program submits from then on needs no further wait. From submit until the job is in
// a final state, or until sumi_job_discard has returned, the memory must stay allocated and nobody else may use it. A
// job that fails or is cancelled may have written a part of an image, or a whole image with values that were not
// finite.
typedef struct sumi_target {
    sumi_format format;
    void* host_memory; // `height` rows in host memory, written when the job is fetched, not before
    // Pitch: bytes from row to row, of host_memory or at device_address; 0: tightly packed. With device_address a
    // multiple of 4 for all formats but RGB8.
    int32_t row_bytes;
    // `height` rows of linear device memory (CUdeviceptr) of the engine's context: the primary context of the device,
    // or sumi_engine_desc.cuda.context. The conversion to `format` writes here, without a copy. The address is a
    // multiple of 4 for all formats but RGB8. SUMI_NOT_SUPPORTED on the CPU backend.
    uint64_t device_address;
    // With device_address: an event of the host program, recorded on the engine's stream directly after the image, for
    // host programs that order all of their GPU work by events. It has been recorded when the job is DONE. NULL: none.
    // The event must live as long as the memory must.
    struct CUevent_st* event;
    // An import of the image's size and of this `format`, without row_bytes (sumi_import). sumi_fetch_images puts the
    // copy into the external into its stream.
    sumi_external* external;
    // For every kind of target: the image's last row comes first, as in textures of OpenGL and Unity. The pitch stays.
    bool bottom_up;
    // With an external of Vulkan or Direct3D that was imported by its handle: what the GPU waits for before the copy
    // into the external, and what it signals after it. `signal` is required, because nothing else says when the image
    // is there. All other targets have neither.
    sumi_sync wait, signal;
} sumi_target;

// ---- Imports of graphics APIs ---------------------------------------------------------------------------------------
// A host program that draws with OpenGL, Vulkan or Direct3D can have images and previews written to its textures and
// buffers, without a copy through host memory. It imports each of them once, and with Vulkan and Direct3D also the
// semaphores that order the work of both sides. All must be of the engine's GPU: sumi_engine_info.device_uuid and
// device_luid say which one that is, and sumi_engine_desc.cuda.uuid and luid choose it. The other way is the preview or
// the image in host memory, uploaded as any other texture; it needs none of this.
//
// What happens to an image of a job whose target is an external:
//
//     TRANSFER stage       The GPU writes the image to device memory of sumi, which the import has allocated.
//     sumi_fetch_images    puts three things into a stream of the external and returns: wait for target.wait, copy into
//                          the external, signal target.signal. The CPU waits for nothing. The engine's own work does
//                          not wait either, with one exception: the next image for the same external is not written
//                          over an image that is still waiting to be copied. Host programs that hold images for long
//                          alternate between two externals.
//     on the GPU           The host program's command queue waits for target.signal, or the host program reads the
//                          semaphore's counter on the CPU and continues to show the last image meanwhile.
//
// With one external, timelines `ready` and `drawn`, and images numbered from 1: image n waits for `drawn` n - 1 and signals
// `ready` n; the queue signals `drawn` n behind its commands that read image n. Then no image is overwritten while it is
// read, whoever is late.
//
// A job that fails or is cancelled copies nothing and signals nothing. A host program should therefore let its queue
// wait for a value only after the fetch has returned SUMI_OK.
//
// OpenGL and D3D11_TEXTURE are ordered by their own API instead of semaphores: the import, the fetch and the release
// need the GL context current on the calling thread, or are made on the thread that uses the immediate context. The
// copy is in order with the commands before and after the call.
//
// Ownership    On SUMI_OK a file descriptor belongs to sumi, which closes it: the host program must not use it again. A
//              Windows handle stays the host program's, which may close it (CloseHandle) after the import. After a
//              failure both are the host program's, as before. The memory or semaphore itself stays alive in the driver
//              until both sides have freed it; it may be freed by the graphics API before sumi_external_release.
// Layout       Vulkan images are in the layout GENERAL and belong to VK_QUEUE_FAMILY_EXTERNAL while sumi writes: the
//              host program records the release to that family before `wait` and the acquire after `signal`. Textures
//              of Direct3D 12 are in the state COMMON meanwhile.
// Formats      RGBA8 is VK_FORMAT_R8G8B8A8_UNORM, _SRGB, or DXGI's and GL's of the same names; BGRA8 is
//              VK_FORMAT_B8G8R8A8; RGBA16F is VK_FORMAT_R16G16B16A16_SFLOAT. Values are sRGB encoded in all of them.
//              Rows of pixels may have any sumi_format; images have one of these three, OpenGL textures RGBA8 or
//              RGBA16F.
// Signals      Timelines and fences are signalled by one side each, `ready` by sumi and `drawn` by the host program's
//              queue: values only grow, and no side knows which ones the other has pending.
// Deadlocks    A copy that waits for a value that nobody signals never ends, and neither does the release of its
//              external. Signal what sumi was told to wait for before the release and before sumi_engine_destroy; with
//              Vulkan by a submission without commands to the queue that signals `drawn`, because vkSignalSemaphore may
//              not reach a value that a queue has yet to signal.
// Unchecked    The handle of memory or of a Vulkan semaphore does not tell what it is of. Another memory_bytes,
//              is_dedicated, size, format or usage than it was made with, and the handle of memory as a semaphore's, are
//              refused by some drivers. Others accept them: the import returns SUMI_OK, and then pixels may be wrong
//              and copies may never end.
typedef enum sumi_external_kind {
    SUMI_EXTERNAL_NONE = 0, // refused
    // Where images are written.
    SUMI_EXTERNAL_GL_TEXTURE = 1,     // gl_name, gl_target
    SUMI_EXTERNAL_GL_BUFFER = 2,      // gl_name, whose storage has been made
    SUMI_EXTERNAL_VULKAN_MEMORY = 3,  // a VkDeviceMemory, exported as OPAQUE_FD or OPAQUE_WIN32
    SUMI_EXTERNAL_D3D12_RESOURCE = 4, // a committed ID3D12Resource with D3D12_HEAP_FLAG_SHARED
    SUMI_EXTERNAL_D3D12_HEAP = 5,     // an ID3D12Heap with D3D12_HEAP_FLAG_SHARED
    SUMI_EXTERNAL_D3D11_RESOURCE = 6, // a resource with D3D11_RESOURCE_MISC_SHARED_NTHANDLE
    // An ID3D11Texture2D itself, of default usage, shared or not. `handle` is the pointer.
    SUMI_EXTERNAL_D3D11_TEXTURE = 7,
    // Semaphores.
    SUMI_EXTERNAL_VULKAN_TIMELINE = 20,  // a timeline VkSemaphore, exported as OPAQUE_FD or OPAQUE_WIN32
    SUMI_EXTERNAL_VULKAN_SEMAPHORE = 21, // a binary one; its waits and signals must alternate
    SUMI_EXTERNAL_D3D12_FENCE = 22,      // an ID3D12Fence with D3D12_FENCE_FLAG_SHARED
    SUMI_EXTERNAL_D3D11_FENCE = 23,      // an ID3D11Fence with D3D11_FENCE_FLAG_SHARED
    SUMI_EXTERNAL_D3D11_KEYED_MUTEX = 24 // the IDXGIKeyedMutex of a resource, by the resource's handle
} sumi_external_kind;

typedef struct sumi_import_desc {
    uint32_t cookie; // set by sumi_import_defaults(); leave it alone
    sumi_external_kind kind;
    // Vulkan on Linux: the file descriptor that vkGetMemoryFdKHR or vkGetSemaphoreFdKHR returned. Otherwise -1.
    int32_t fd;
    // Vulkan on Windows, Direct3D: the NT handle (CreateSharedHandle, vkGetMemoryWin32HandleKHR). D3D11_TEXTURE: the
    // ID3D11Texture2D. Otherwise NULL.
    void* handle;
    uint32_t gl_name;   // of the texture or buffer
    uint32_t gl_target; // of a texture: what it is bound to (GL_TEXTURE_2D: 0x0DE1)
    // The device that the memory or semaphore is of: 16 bytes VkPhysicalDeviceIDProperties.deviceUUID, or 8 bytes
    // AdapterLuid. One of the two is required, except with OpenGL and D3D11_TEXTURE. Another GPU than the engine's is
    // refused with SUMI_INVALID_ARGUMENT.
    const uint8_t* device_uuid;
    const uint8_t* device_luid;

    // The rest describes memory; leave it alone for semaphores.
    int32_t width, height; // pixels
    sumi_format format;
    // false: rows of pixels from byte `offset` on, as in a buffer or an image of linear tiling. true: an image of
    // optimal tiling. Textures of OpenGL and D3D11_TEXTURE are images whatever this says.
    bool is_image;
    bool is_color_attachment; // images: their usage includes color attachment (Vulkan), render target (Direct3D)
    int32_t level_count;      // images: mip levels, of which the first one is written
    int32_t row_bytes;        // rows: bytes from row to row; 0: tightly packed
    // Of the whole memory, as it was allocated: VkMemoryAllocateInfo.allocationSize, the size of the heap,
    // GetResourceAllocationInfo().SizeInBytes. Required, except with OpenGL and D3D11_TEXTURE.
    uint64_t memory_bytes;
    uint64_t offset; // where the pixels begin in the memory or buffer, in bytes
    // Vulkan: the memory was allocated with VkMemoryDedicatedAllocateInfo. Resources of Direct3D always are dedicated.
    bool is_dedicated;
    // Previews will be written to it: the import also allocates page-locked memory of the image's size.
    bool takes_previews;
} sumi_import_desc;

// Returns a desc with fd -1, RGBA8, one level, everything else zero. Any thread. Never blocks.
SUMI_API sumi_import_desc sumi_import_defaults(void);
// Imports memory or a semaphore of a graphics API. Memory takes width * height pixels of device memory beside its own,
// which hold an image until it is copied. Textures of OpenGL have immutable storage (glTexStorage2D) of exactly this
// size and format; others are refused. The texture keeps its content until an image is fetched. The import may wait for
// the running slice. One job at a time uses an external as a target, from its submission to its fetch or discard; a
// semaphore may be used by any number of jobs.
//
// The host program ends an external with sumi_external_release. Failures: SUMI_NOT_SUPPORTED on the CPU backend, and
// for kinds that the driver or the system does not have; SUMI_DESC_NOT_INITIALIZED; SUMI_INVALID_ARGUMENT, also for a
// handle that the driver refuses and for memory that is too small; SUMI_WRONG_STATE (no GL context, or one of another
// GPU), SUMI_OUT_OF_DEVICE_MEMORY, SUMI_OUT_OF_HOST_MEMORY. On failure *out_external is NULL.
SUMI_API sumi_result sumi_import(sumi_engine* engine, const sumi_import_desc* desc, sumi_external** out_external);
// Ends an import. Cancels the jobs that use the external, or wait for or signal the semaphore; those that are done stay
// so, but their images for it are lost. Waits for the running slice and for the copies that were put into streams.
// Textures and buffers of OpenGL are released before they are deleted. Accepts NULL.
SUMI_API void sumi_external_release(sumi_external* external);

// One image of a batch.
typedef struct sumi_image_item {
    // Exactly one of the two: a text, or a prompt that was encoded before.
    const char* text;
    const sumi_prompt* prompt;
    // With guidance: the text to move away from. At most one of the two. Both NULL: sumi_model_info.negative_text, the
    // negative prompt of the model's authors. "" is the empty text. Without guidance both are ignored, and the log says
    // so.
    const char* negative_text;
    const sumi_prompt* negative_prompt;
    uint64_t seed;
} sumi_image_item;

typedef struct sumi_image_desc {
    uint32_t cookie; // set by sumi_image_defaults(); leave it alone
    sumi_model* model;
    const sumi_image_item* items; // a batch shares everything below
    int32_t item_count;           // 1..64
    // Pixels, multiples of sumi_model_info.size_multiple. Both 0, on edit models: the size follows from the references,
    // by the rule of the model's authors: the aspect ratio is that of the first or of the last reference, depending on
    // the model. Without references it is sumi_model_info.native_size along both sides, in whole multiples.
    // sumi_image_size returns the resulting size.
    int32_t width, height;
    int32_t step_count; // denoising steps, 1..1000
    // The guidance number of the model card, for the formula sumi_model_info.guidance_formula. At
    // sumi_model_info.guidance_off the negative prompt is not used, and each evaluation is made once. Above that number
    // each evaluation is made twice: with the prompt and with the negative prompt. A number below it is
    // SUMI_INVALID_ARGUMENT.
    float guidance;
    // Guidance is on while begin <= 1 - sigma <= end. The end is cfg_truncation of the reference pipelines.
    float guidance_begin, guidance_end;
    // The factor of SUMI_GUIDANCE_NORM_LIMIT (1 for cfg_normalization of the reference pipelines); 0: no limit. Above 0
    // only where the rule is a norm limit.
    float guidance_norm_limit;
    sumi_guidance_rule guidance_rule; // MODEL by default
    sumi_solver solver;
    // 0: the model's own sigma schedule, which may depend on the image's size. Above 0: a static shift instead,
    // sigma = shift u / (1 + (shift - 1) u) with u falling in equal steps from 1 to 1 / step_count. At most 10000.
    float shift;
    // A schedule of the caller, step_count + 1 values in [0, 1], each below the one before, the last usually 0; with a
    // strength below 1 its last steps run. NULL: the model's schedule, or that of `shift`.
    const float* sigmas;
    sumi_noise noise;
    // The number of multiprocessors (SMs) of the GPU whose numbers SUMI_NOISE_TORCH_CUDA reproduces: 132 for H100 and
    // H200 (default), 108 for A100, 128 for RTX 4090.
    int32_t noise_multiprocessors;
    int32_t noise_threads_per_multiprocessor; // 2048; 1536 on compute capability 8.6, 8.9, 12.0
    // [item][channel][y][x], for SUMI_NOISE_GIVEN. In all arrays of values from the host program, NaN and infinity are
    // refused with SUMI_INVALID_ARGUMENT.
    const float* noise_values;
    // Image to image: the image to begin with, resized to width x height; or its latents [channel][y][x], as
    // sumi_fetch_latents returns them.
    const sumi_pixels* start_image;
    const float* start_latents;
    sumi_posterior start_posterior;  // how the latents of start_image are taken
    const float* start_noise_values; // [channel][y][x]: noise of the posterior's sample; NULL: from the generator
    // Inpainting: white is repainted, black stays; grey counts as white from 128 on. Of 1 channel, or of 3 or 4, of
    // which the luma counts and alpha does not. Resized to width x height. Needs start_image or start_latents. See
    // mask_feather.
    const sumi_pixels* mask;
    // With start_image or start_latents: how much noise is added to the start, above 0 and up to 1. The last strength *
    // step_count steps are run, rounded up. 0 would leave no step and is SUMI_INVALID_ARGUMENT.
    float strength;
    // Edit models: the images that the texts refer to, in this order, as in sumi_prompt_desc. All items, positive and
    // negative prompts use the same references. NULL and 0: the references that the encoded prompt of the first item
    // keeps, or none if the first item has a text. Every other encoded prompt of the job must have been encoded with as
    // many references of the same sizes; another one is SUMI_INVALID_ARGUMENT. sumi does not check that they are the
    // same images. With references from a prompt no text can be encoded: give encoded prompts for all items, with
    // guidance also negative ones. Some models make no image without a reference: then none is SUMI_INVALID_ARGUMENT.
    // SUMI_NOT_SUPPORTED on models that take none, and on models that were opened without their VAE encoder. References
    // may be combined with a start image.
    const sumi_pixels* references;
    int32_t reference_count;
    const sumi_lora_use* loras;
    int32_t lora_count; // 0..16
    // 0: no deadline. Otherwise the job is meant to be done this many milliseconds after its submission, and leaves
    // out as many steps as that needs, by the speed and the share of each frame that the job got so far. At least 4
    // steps are run, or step_count if that is less: a deadline that these steps cannot keep is missed. Solvers with one
    // evaluation per step decide again before every step, so budgets may change meanwhile; the others decide once.
    // Which steps are run depends on time, so the bits do too. Not together with sigmas.
    //
    // 99 of 100 jobs are done within 1.1 times their deadline, also the first of a size, and also beside other work
    // that comes and goes (with solvers that decide once, only if the speed stays the same). Later ones are to be
    // expected beside threads that keep every core busy; with a deadline of a few frames, because jobs end inside
    // updates; and for an engine's very first decoding, whose time is a guess. This reliability costs a margin: steps
    // are left out that might have fitted, more of them for a size that has not run before. A deadline of twice the
    // time of all steps leaves none out, or a few with solvers that decide once. With step_cache, the evaluations that
    // will be reused are predicted from those before them; what solvers that decide once can reuse is known after the
    // first such job of the model, which may leave out more steps than it has to.
    uint32_t deadline_ms;
    int32_t preview_every;      // a preview after every n-th step; 0: none. Previews never change the image
    int32_t priority;           // higher first
    void* user_data;            // returned in sumi_job_status and passed to the engine's completion
    const sumi_target* targets; // one per item; NULL: memory of sumi in RGBA8
    bool profile;               // keep a table of operations for sumi_job_profile; a slice is then a whole operation
    // Inpainting of a start image: the pixels that the mask keeps are those of the resized start image, to the last
    // bit. 0: the new image begins at the mask's edge. 1..256: the new image is blended in over so many pixels inside
    // the edge. -1: the whole image comes from the VAE, which changes the kept pixels a little. With start_latents
    // no pixels can be kept: the whole image always comes from the VAE.
    int32_t mask_feather;
    // Step caching, for jobs of about 20 steps or more. 0 (default): off, every evaluation of the transformer is
    // computed. Above 0: an evaluation that is predicted to differ little from an earlier one computes only the first
    // block of the transformer, and extrapolates what the other blocks add from the last two that were computed. The
    // number is the largest predicted change of the first block's output that counts as little, relative to its size,
    // as in First-Block Cache (ParaAttention, diffusers): 0.05 to 0.12 are usual; a larger number is faster and changes
    // the image more. At most 10; other numbers are SUMI_INVALID_ARGUMENT.
    //
    // The first two evaluations, those of the last step and the first two after guidance begins or ends are always
    // computed, and so is at least every fourth one. sumi_image.reused_count says how many were not. The same job
    // reuses the same evaluations whatever the budgets, slices and threads are. With a deadline the steps depend on
    // time, and so do these evaluations. Another backend rounds differently and may decide differently. Every image
    // decides for itself: the images of a batch run one after another. A job takes three more matrices of one row per
    // image token and the transformer's width, with guidance twice as many rows; sumi_image_memory counts them.
    float step_cache;
} sumi_image_desc;

// Returns the preset's values for this model, with sizes in proportion to its native_size. Edit models have presets of
// 0 x 0, for a size that follows from the references, and without references is native_size x native_size. strength is
// 0.6, for image to image; for inpainting set 1.0. With model NULL the function returns a desc that submit refuses.
// Never blocks.
//
// The author of a checkpoint can choose steps and guidance with a member of its model_index.json:
//     "sumi": {"steps": 20, "guidance": 2}
// step_count of SUMI_PRESET_MODEL is then that number, and so is the guidance of every preset that has the family's
// usual one, except SUMI_PRESET_FAST. sumi_model_info.guidance is the author's, too. Other members are ignored. A
// number that is out of range is not used, and the log has a warning when the model is loaded.
SUMI_API sumi_image_desc sumi_image_defaults(sumi_model* model, sumi_preset preset);

// Returns the size in pixels of the images of such a job: width and height of the desc, or with 0 x 0 what that stands
// for. Memory for targets, noise and previews must fit this size. Fails as submit does, except for SUMI_QUEUE_FULL and
// SUMI_OUT_OF_HOST_MEMORY. Never blocks.
SUMI_API sumi_result sumi_image_size(const sumi_image_desc* desc, sumi_size* out_size);

// All members but tiles_vae are bytes.
typedef struct sumi_memory {
    // CPU: weights in use. GPU: device memory for weights: resident weights, and the buffers on the device that
    // streamed weights are copied into.
    uint64_t weights;
    // Intermediate values. On a GPU, weights + arena are all that the engine allocates on the device for the job, and
    // never more than memory_budget_bytes. (Externals have memory of their own: SUMI_MEMORY_IMAGE.)
    uint64_t arena;
    // CPU: packing buffers. GPU: pinned host memory, including the pinned copies of streamed weights. Weights that are
    // streamed straight from the mapping of their file have none.
    uint64_t staging;
    uint64_t images; // the products, kept until the fetch: images in their formats, latents and previews
    uint64_t host;   // at most: the plan, its tables, the copies that submit makes, and buffers for images and masks
    bool tiles_vae;  // the memory budget makes the VAE work in tiles
    // GPU: weights that the memory budget keeps in page-locked host memory. They are copied to the device whenever they
    // are used, most of them in every step. 0: all weights are resident. Weights whose file format the device can use
    // directly are locked in sumi's mapping of the file, and take no memory beside the page cache (Linux, the built-in
    // file functions). Other weights get a pinned copy.
    uint64_t streamed;
    uint64_t uncounted; // GPU: sumi_engine_info.uncounted_bytes, which are in addition to weights + arena on the device
    // The sum that counts against memory_budget_bytes: arena and staging (CPU), weights and arena (GPU). After
    // SUMI_BUDGET_TOO_SMALL and SUMI_OUT_OF_DEVICE_MEMORY the least that the job needs, in its smallest form; all other
    // members are 0 then.
    uint64_t needed;
} sumi_memory;
// Returns the memory that such a job would take, before any of it is allocated: exact bytes of arena, staging and
// images. The plan that is written for this answer is freed again. Works for milliseconds, and waits for no slice.
// Fails as submit does, and with SUMI_BUDGET_TOO_SMALL.
SUMI_API sumi_result sumi_image_memory(sumi_engine* engine, const sumi_image_desc* desc, sumi_memory* out_memory);

// Starts a batch of images and returns at once. The call copies everything that it needs. Fails at once with
// SUMI_INVALID_ARGUMENT, SUMI_DESC_NOT_INITIALIZED, SUMI_QUEUE_FULL, SUMI_NOT_SUPPORTED or SUMI_OUT_OF_HOST_MEMORY.
// Later failures are reported by sumi_job_poll and the fetch: SUMI_TEXT_INVALID, SUMI_BUDGET_TOO_SMALL,
// SUMI_NOT_FINITE, and results of memory and device.
//
// A batch for which the GPU has too little memory is run as smaller batches: half of its images at a time, then half of
// that, then one by one, and only then with streamed weights. The log says so. When that is not enough either, the job
// fails with SUMI_OUT_OF_DEVICE_MEMORY and the engine continues to work. `step` of the job's status starts again in each
// smaller batch. The kernels on a GPU depend on the number of rows, so an image's bits may differ a little between
// batch sizes, and so between a batch that was run whole and one that was divided. On the CPU the bits are those of
// single images, except with texts of fewer than 8 tokens. The CPU backend divides no batch, and memory_budget_bytes
// divides none.
SUMI_API sumi_result sumi_submit_images(sumi_engine* engine, const sumi_image_desc* desc, sumi_job* out_job);

typedef struct sumi_image {
    const void* pixels; // rows from the top; NULL when the image was written to a device_address or an external
    int32_t width, height, row_bytes;
    sumi_format format;
    uint64_t seed;
    int32_t step_count; // steps that were run: a deadline may have left some out
    // Evaluations of the transformer for these steps, of which a guided one counts once; and how many of them were
    // reused (sumi_image_desc.step_cache). Both 0 in previews.
    int32_t evaluation_count, reused_count;
    uint64_t handle; // for sumi_images_release
} sumi_image;
// Frees the job and writes one sumi_image per item. The images are written to their targets, or to memory of sumi that
// lives until sumi_images_release or sumi_engine_destroy. Copies into externals are put into their streams; when that
// fails, the fetch fails with a result of sumi_import; the job is not freed, stays DONE and can be fetched again, and
// copies that succeeded are not repeated. Never blocks. A capacity below the number of items is
// SUMI_INVALID_ARGUMENT and does not free the job. Returns the result of a job that failed or was cancelled, which is
// freed too. SUMI_WRONG_STATE while the job runs or when it is of another kind, SUMI_STALE_HANDLE.
SUMI_API sumi_result sumi_fetch_images(sumi_engine* engine, sumi_job job, sumi_image* out_images, int32_t capacity);
// Frees the memory of images and zeroes the `count` structs. Accepts NULL, and images in memory of the host program.
// Never blocks.
SUMI_API void sumi_images_release(sumi_engine* engine, sumi_image* images, int32_t count);

// Copies the newest preview of an item into `into`: RGBA8, one pixel per latent (width / latent_factor x height /
// latent_factor), computed by linear factors from the current estimate of the clean latents. `capacity` is in bytes.
// out_image->pixels points to `into`. Any thread, beside any other call. Never blocks. SUMI_WRONG_STATE: there is no
// preview yet. SUMI_STALE_HANDLE, SUMI_INVALID_ARGUMENT.
SUMI_API sumi_result sumi_job_preview(const sumi_engine* engine, sumi_job job, int32_t item, void* into,
                                      size_t capacity, sumi_image* out_image);

// Writes the newest preview of an item to an external of the preview's size (width / latent_factor x height /
// latent_factor) that was imported with takes_previews, in the external's format. Of `target` external, bottom_up, wait
// and signal are used, all else but `format` is zero. Puts wait, copy and signal into the external's stream and
// returns; a preview is never waited for. SUMI_BUSY: the preview before it was not copied yet, because the host program
// has not signalled `wait`; this preview is dropped, nothing will be signalled, and a later frame may try again. Which
// of two or three externals is free for the next preview is the host program's to know: it reads the counter that its
// queue signals when it has drawn with one.
//
// As sumi_fetch_images with regard to threads. Never blocks. Other failures: SUMI_WRONG_STATE (no preview yet, no
// GL context), SUMI_STALE_HANDLE, SUMI_INVALID_ARGUMENT, SUMI_NOT_SUPPORTED on the CPU backend, and the results of a
// device. After a failure nothing will be signalled.
SUMI_API sumi_result sumi_job_show_preview(sumi_engine* engine, sumi_job job, int32_t item, const sumi_target* target);

// Copies the final latents [channel][y][x] of one item of a finished image job, before the job is fetched. `capacity`
// is in floats; SUMI_INVALID_ARGUMENT when it is too small. Otherwise fails as sumi_fetch_images, and does not free the
// job.
SUMI_API sumi_result sumi_job_latents(const sumi_engine* engine, sumi_job job, int32_t item, float* into,
                                      size_t capacity);

// ---- Image encoding -------------------------------------------------------------------------------------------------
typedef struct sumi_encode_desc {
    uint32_t cookie; // set by sumi_encode_defaults(); leave it alone
    sumi_model* model;
    const sumi_pixels* image;  // resized to width x height (Lanczos, as Pillow)
    int32_t width, height;     // pixels, multiples of sumi_model_info.size_multiple
    sumi_posterior posterior;  // MODE by default: no noise
    uint64_t seed;             // of a sample's noise
    const float* noise_values; // [channel][y][x]: the sample's noise; NULL: from the seed
    int32_t priority;          // higher first
    void* user_data;           // returned in sumi_job_status and passed to the engine's completion
} sumi_encode_desc;
// Returns a desc of the model's native size. Never blocks.
SUMI_API sumi_encode_desc sumi_encode_defaults(sumi_model* model);
// Encodes an image to latents, from which many image jobs can start: a job of stage IMAGE. Returns at once. Fails at
// once with SUMI_INVALID_ARGUMENT, SUMI_DESC_NOT_INITIALIZED, SUMI_QUEUE_FULL, SUMI_OUT_OF_HOST_MEMORY, or
// SUMI_NOT_SUPPORTED when the model was opened without its VAE encoder. The job fails with SUMI_BUDGET_TOO_SMALL, or a
// result of memory or device.
SUMI_API sumi_result sumi_submit_encode(sumi_engine* engine, const sumi_encode_desc* desc, sumi_job* out_job);
// Frees the job and writes latents [channel][y][x], scaled as the transformer takes them. `capacity` is in floats; one
// that is too small is SUMI_INVALID_ARGUMENT and does not free the job. Otherwise as sumi_fetch_model.
SUMI_API sumi_result sumi_fetch_latents(sumi_engine* engine, sumi_job job, float* into, size_t capacity);

// ---- Simple calls ---------------------------------------------------------------------------------------------------
// For tools, where waiting is fine. Each simple call submits one job, waits for it and fetches it, so it behaves as
// those three calls do:
//
// Blocking    They return when the job is done. With SUMI_PUMP_UPDATE the calling thread does the work. Jobs that were
//             submitted before, and those of a higher priority, are worked on first. With SUMI_PUMP_THREAD the calling
//             thread sleeps.
// Threads     As everywhere, one call of an engine at a time. The functions that are safe beside any other call (see
//             Threads at the top) are safe beside these too. The calls return no job id to cancel: a host
//             program that wants to cancel uses jobs.
// Failure     They return the first failure of the three calls, which the log explains. Nothing is left behind: no job
//             and no unfinished product. They need one free job slot, and return SUMI_QUEUE_FULL without one.

// Opens the checkpoint at `path`: sumi_submit_model with sumi_model_defaults() and this path, sumi_job_wait,
// sumi_fetch_model. On failure *out_model is NULL. The host program ends the model with sumi_model_close, or with its
// engine. On the CPU an engine works with one thread unless sumi_engine_desc.cpu_thread_count says otherwise: a tool
// that waits sets it to 0, for all processors, before it creates the engine.
SUMI_API sumi_result sumi_open_model(sumi_engine* engine, const char* path, sumi_model** out_model);

// Generates one image from a text, in RGBA8: sumi_submit_images with sumi_image_defaults(model, SUMI_PRESET_MODEL) and
// one item of this text and seed, sumi_job_wait, sumi_fetch_images. The image is the same as that of such a job. Its
// pixels lie in memory of sumi until sumi_images_release(engine, out_image, 1) or sumi_engine_destroy. On failure
// *out_image is zero. Edit models draw from the text alone; those that need references (sumi_model_info.min_references)
// return SUMI_INVALID_ARGUMENT.
SUMI_API sumi_result sumi_generate(sumi_engine* engine, sumi_model* model, const char* text, uint64_t seed,
                                   sumi_image* out_image);

// ---- Experimental: may change between minor versions, after 1.0 too -------------------------------------------------

// One kind of operation in one stage, and what it cost. Operations of the same name in different layers are summed.
typedef struct sumi_profile_row {
    sumi_stage stage;
    char name[48]; // "attention.qkv"
    int32_t count; // how often it ran
    double seconds;
    double flops, bytes; // of all runs; bytes: the least that must be read and written
} sumi_profile_row;
// Writes the table of a finished image job that was submitted with `profile`, before the job is fetched, most time
// first. Returns the number of rows that there are, and writes at most `capacity` of them; 0 for any other job. Never
// blocks.
SUMI_API int32_t sumi_job_profile(const sumi_engine* engine, sumi_job job, sumi_profile_row* rows, int32_t capacity);

#ifdef __cplusplus
}
#endif
#endif
