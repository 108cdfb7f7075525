// What the tests of the CUDA backend inside a host program share: the host program's own CUDA, which is the driver,
// looked up at run time; memory that is counted and may fail; an engine that makes an image in one call. All that is
// tested goes through the public header. Without a GPU everything is skipped.
#ifndef CUDA_HOST_FIXTURE_H
#define CUDA_HOST_FIXTURE_H
#include "base/platform.h"
#include "system.h"
#include "test.h"
#include <stdatomic.h>
#include <sumi.h>

#define TINY "tests/golden/z-image/model"

// ---- The host program's CUDA ----------------------------------------------------------------------------------------

typedef struct CUctx_st* context_handle;
typedef struct CUstream_st* stream_handle;

static struct {
    int (*init)(unsigned flags);
    int (*device_get)(int* device, int ordinal);
    int (*primary_retain)(context_handle* context, int device);
    int (*primary_release)(int device);
    int (*context_create)(context_handle* context, unsigned flags, int device);
    int (*context_destroy)(context_handle context);
    int (*context_get)(context_handle* context);
    int (*context_set)(context_handle context);
    int (*memory_get)(size_t* free_bytes, size_t* total_bytes);
    int (*allocate)(uint64_t* address, size_t bytes);
    int (*release)(uint64_t address);
    int (*allocate_pinned)(void** memory, size_t bytes, unsigned flags);
    int (*release_pinned)(void* memory);
    int (*stream_create)(stream_handle* stream, unsigned flags);
    int (*stream_destroy)(stream_handle stream);
    int (*stream_synchronize)(stream_handle stream);
    int (*stream_call)(stream_handle stream, void (*function)(void*), void* user_data);
    int (*begin_capture)(stream_handle stream, int mode);
    int (*end_capture)(stream_handle stream, void** graph);
    int (*graph_destroy)(void* graph);
    int (*event_create)(void** event, unsigned flags);
    int (*event_record)(void* event, stream_handle stream);
    int (*event_query)(void* event);
    int (*event_destroy)(void* event);
    int (*stream_wait)(stream_handle stream, void* event, unsigned flags);
    int (*copy_to_host)(void* into, uint64_t from, size_t bytes, stream_handle stream);
    int (*fill)(uint64_t address, unsigned char value, size_t bytes);
} s_cu;

static inline const char* open_driver(void) // NULL: the driver is open
{
    static const struct {
        const char* name;
        void* into;
    } s_entries[] = {
        {"cuInit", &s_cu.init},
        {"cuDeviceGet", &s_cu.device_get},
        {"cuDevicePrimaryCtxRetain", &s_cu.primary_retain},
        {"cuDevicePrimaryCtxRelease_v2", &s_cu.primary_release},
        {"cuCtxCreate_v2", &s_cu.context_create},
        {"cuCtxDestroy_v2", &s_cu.context_destroy},
        {"cuCtxGetCurrent", &s_cu.context_get},
        {"cuCtxSetCurrent", &s_cu.context_set},
        {"cuMemGetInfo_v2", &s_cu.memory_get},
        {"cuMemAlloc_v2", &s_cu.allocate},
        {"cuMemFree_v2", &s_cu.release},
        {"cuMemHostAlloc", &s_cu.allocate_pinned},
        {"cuMemFreeHost", &s_cu.release_pinned},
        {"cuStreamCreate", &s_cu.stream_create},
        {"cuStreamDestroy_v2", &s_cu.stream_destroy},
        {"cuStreamSynchronize", &s_cu.stream_synchronize},
        {"cuLaunchHostFunc", &s_cu.stream_call},
        {"cuStreamBeginCapture_v2", &s_cu.begin_capture},
        {"cuStreamEndCapture", &s_cu.end_capture},
        {"cuGraphDestroy", &s_cu.graph_destroy},
        {"cuEventCreate", &s_cu.event_create},
        {"cuEventRecord", &s_cu.event_record},
        {"cuEventQuery", &s_cu.event_query},
        {"cuEventDestroy_v2", &s_cu.event_destroy},
        {"cuStreamWaitEvent", &s_cu.stream_wait},
        {"cuMemcpyDtoHAsync_v2", &s_cu.copy_to_host},
        {"cuMemsetD8_v2", &s_cu.fill},
    };
#if defined(_WIN32)
    void* library = sumi_library_open("nvcuda.dll");
#else
    void* library = sumi_library_open("libcuda.so.1");
#endif
    if (library == NULL) return "there is no NVIDIA driver here";
    for (size_t i = 0; i < sizeof s_entries / sizeof *s_entries; i++) {
        sumi_library_function* symbol = sumi_library_symbol(library, s_entries[i].name);
        if (symbol == NULL) return "the NVIDIA driver lacks an entry that this test needs";
        memcpy(s_entries[i].into, &symbol, sizeof symbol);
    }
    int device;
    if (s_cu.init(0) != 0 || s_cu.device_get(&device, 0) != 0) return "the NVIDIA driver has no device";
    return NULL;
}

static inline double now_ms(void) { return 1e-6 * (double)system_clock_ns(); }

// ---- The host program's memory --------------------------------------------------------------------------------------

#define MAX_BLOCKS 8192

typedef struct host {
    sumi_mutex lock;
    long count, live, fail_at, wrong, without_context;          // of device memory and pinned memory; fail_at 0: none
    uint64_t live_bytes, peak_bytes, on_device, peak_on_device; // on the device: weights and arena
    struct {
        uint64_t address;
        size_t bytes;
        int kind;
    } blocks[MAX_BLOCKS];
    atomic_long host_live;
    char text[512]; // of the newest error
    int fill;       // the content of device memory that the engine gets; negative: whatever it was
} host;

static host s_host;

static inline bool counts_on_device(sumi_memory_kind kind)
{
    return kind == SUMI_MEMORY_WEIGHTS || kind == SUMI_MEMORY_ARENA;
}

static inline uint64_t device_allocate(size_t bytes, size_t alignment, sumi_memory_kind kind, void* user_data)
{
    host* h = user_data;
    context_handle current = NULL;
    uint64_t address = 0;
    sumi_mutex_lock(&h->lock);
    h->without_context += s_cu.context_get(&current) != 0 || current == NULL;
    if (++h->count != h->fail_at) {
        if (kind == SUMI_MEMORY_STAGING) {
            void* memory = NULL;
            if (s_cu.allocate_pinned(&memory, bytes, 0) == 0) address = (uint64_t)(uintptr_t)memory;
        } else if (s_cu.allocate(&address, bytes) != 0) {
            address = 0;
        }
    }
    h->wrong += address % alignment != 0;
    if (address != 0 && h->fill >= 0 && kind == SUMI_MEMORY_STAGING) memset((void*)(uintptr_t)address, h->fill, bytes);
    else if (address != 0 && h->fill >= 0) {
        // The fill is in the NULL stream, which the engine's streams do not wait for.
        h->wrong += s_cu.fill(address, (unsigned char)h->fill, bytes) != 0 || s_cu.stream_synchronize(NULL) != 0;
    }
    for (int i = 0; address != 0 && i < MAX_BLOCKS; i++) {
        if (h->blocks[i].address != 0) continue;
        h->blocks[i].address = address, h->blocks[i].bytes = bytes, h->blocks[i].kind = (int)kind;
        h->live++;
        h->live_bytes += bytes;
        if (counts_on_device(kind)) h->on_device += bytes;
        break;
    }
    if (h->on_device > h->peak_on_device) h->peak_on_device = h->on_device;
    if (h->live_bytes > h->peak_bytes) h->peak_bytes = h->live_bytes;
    sumi_mutex_unlock(&h->lock);
    return address;
}

static inline void device_release(uint64_t address, size_t bytes, sumi_memory_kind kind, void* user_data)
{
    host* h = user_data;
    context_handle current = NULL;
    sumi_mutex_lock(&h->lock);
    h->without_context += s_cu.context_get(&current) != 0 || current == NULL;
    int i = 0;
    while (i < MAX_BLOCKS && h->blocks[i].address != address) i++;
    if (i == MAX_BLOCKS || h->blocks[i].bytes != bytes || h->blocks[i].kind != (int)kind) {
        h->wrong++;
    } else {
        h->blocks[i].address = 0;
        h->live--;
        h->live_bytes -= bytes;
        if (counts_on_device(kind)) h->on_device -= bytes;
        h->wrong +=
            (kind == SUMI_MEMORY_STAGING ? s_cu.release_pinned((void*)(uintptr_t)address) : s_cu.release(address)) != 0;
    }
    sumi_mutex_unlock(&h->lock);
}

static inline void* host_allocate(size_t bytes, size_t alignment, void* user_data)
{
    void* memory = system_allocate(bytes, alignment);
    if (memory != NULL) atomic_fetch_add(&((host*)user_data)->host_live, 1);
    return memory;
}

static inline void host_release(void* memory, size_t bytes, void* user_data)
{
    (void)bytes;
    atomic_fetch_sub(&((host*)user_data)->host_live, 1);
    system_release(memory);
}

static inline void host_log(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    (void)result;
    if (level == SUMI_LOG_ERROR) snprintf(((host*)user_data)->text, sizeof((host*)user_data)->text, "%s", text);
}

static inline sumi_engine_desc gpu_desc(void)
{
    static const sumi_allocator s_allocator = {host_allocate, host_release, &s_host};
    static const sumi_device_allocator s_device_allocator = {device_allocate, device_release, &s_host};
    s_host.count = s_host.fail_at = s_host.wrong = s_host.without_context = 0;
    s_host.peak_bytes = s_host.peak_on_device = 0;
    s_host.fill = -1;
    sumi_engine_desc desc = sumi_engine_defaults();
    desc.backend = SUMI_BACKEND_CUDA;
    desc.allocator = &s_allocator;
    desc.device_allocator = &s_device_allocator;
    desc.log = (sumi_log){host_log, &s_host};
    return desc;
}

static inline void check_all_is_back(void)
{
    CHECK_NUMBER(s_host.live, 0);
    CHECK_NUMBER(s_host.live_bytes, 0);
    CHECK_NUMBER(s_host.on_device, 0);
    CHECK_NUMBER(s_host.wrong, 0);
    CHECK_NUMBER(s_host.without_context, 0);
    CHECK_NUMBER(atomic_load(&s_host.host_live), 0);
}

static inline void close_engine(sumi_engine* engine)
{
    sumi_engine_destroy(engine);
    check_all_is_back();
}

// ---- In one call ----------------------------------------------------------------------------------------------------

// Of updates with a budget of a millisecond or less, by the stage of the job before the update.
static double s_longest_ms[SUMI_STAGE_COUNT], s_longest_poll_ms;

static inline sumi_job_status timed_poll(const sumi_engine* engine, sumi_job job)
{
    const double begin = now_ms();
    const sumi_job_status status = sumi_job_poll(engine, job);
    const double ms = now_ms() - begin;
    s_longest_poll_ms = ms > s_longest_poll_ms ? ms : s_longest_poll_ms;
    return status;
}

static inline void timed_update(sumi_engine* engine, sumi_job job, uint32_t budget_us)
{
    const sumi_stage stage = timed_poll(engine, job).stage;
    const double begin = now_ms();
    sumi_engine_update(engine, budget_us);
    const double ms = now_ms() - begin;
    if (budget_us <= 1000 && ms > s_longest_ms[stage]) s_longest_ms[stage] = ms;
}

// Runs the job with frames of this budget; 0: waits.
static inline sumi_result finish(sumi_engine* engine, sumi_job job, uint32_t budget_us)
{
    while (budget_us != 0 && timed_poll(engine, job).state < SUMI_JOB_DONE) timed_update(engine, job, budget_us);
    CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
    return timed_poll(engine, job).result;
}

static inline sumi_model* load(sumi_engine* engine, const char* path, sumi_weight_format weights,
                               sumi_result* out_result)
{
    sumi_model_desc desc = sumi_model_defaults();
    desc.path = path;
    desc.weights = weights;
    sumi_job job;
    sumi_model* model = NULL;
    sumi_result result = sumi_submit_model(engine, &desc, &job);
    if (result == SUMI_OK) {
        result = finish(engine, job, 1000);
        CHECK_NUMBER(sumi_fetch_model(engine, job, &model), result);
    }
    if (out_result != NULL) *out_result = result;
    else if (result != SUMI_OK) printf("  %s: %s\n", path, s_host.text);
    return model;
}

static inline sumi_engine* open_engine(const sumi_engine_desc* desc, const char* path, sumi_model** out_model)
{
    sumi_engine* engine = NULL;
    const sumi_result result = sumi_engine_create(desc, &engine);
    CHECK_NUMBER(result, SUMI_OK);
    if (engine == NULL) return NULL;
    *out_model = load(engine, path, SUMI_WEIGHTS_AUTO, NULL);
    CHECK(*out_model != NULL);
    if (*out_model != NULL) return engine;
    sumi_engine_destroy(engine);
    return NULL;
}

static const sumi_image_item s_items[2] = {{.text = "a red fox", .negative_text = "grey", .seed = 7},
                                           {.text = "a lighthouse at dusk", .seed = 8}};

static inline sumi_image_desc picture(sumi_model* model)
{
    sumi_image_desc desc = sumi_image_defaults(model, SUMI_PRESET_MODEL);
    desc.items = s_items;
    desc.item_count = 2;
    desc.width = 64;
    desc.height = 48;
    desc.step_count = 4;
    desc.guidance.scale = 2.0f;
    desc.guidance.end = 0.8f;
    return desc;
}

static inline uint64_t hash_bytes(uint64_t hash, const void* data, size_t bytes)
{
    const unsigned char* at = data;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ at[i]) * 1099511628211u;
    return hash;
}

// Hash of the pixels and the latents of a finished job; frees the job. 0 after a failure.
static inline uint64_t take_hash(sumi_engine* engine, sumi_job job, const sumi_image_desc* desc)
{
    uint64_t hash = 1469598103934665603u;
    const size_t count = (size_t)16 * (size_t)(desc->width / 8) * (size_t)(desc->height / 8);
    float* latents = malloc(count * sizeof *latents);
    for (int32_t i = 0; i < desc->item_count; i++) {
        if (sumi_job_latents(engine, job, i, latents, count) == SUMI_OK)
            hash = hash_bytes(hash, latents, count * sizeof *latents);
    }
    free(latents);
    sumi_image images[8];
    const sumi_result result = sumi_fetch_images(engine, job, images, 8);
    if (result != SUMI_OK) {
        printf("  a picture failed: %s\n", sumi_result_text(result));
        return 0;
    }
    for (int32_t i = 0; i < desc->item_count; i++)
        hash = hash_bytes(hash, images[i].pixels, (size_t)images[i].row_bytes * (size_t)images[i].height);
    sumi_images_release(engine, images, desc->item_count);
    return hash;
}

static inline uint64_t draw_hash(sumi_engine* engine, const sumi_image_desc* desc, uint32_t budget_us)
{
    sumi_job job;
    if (sumi_submit_images(engine, desc, &job) != SUMI_OK) return 0;
    (void)finish(engine, job, budget_us);
    return take_hash(engine, job, desc);
}

static uint64_t s_whole; // hash of picture() without any disturbance

TEST(a_picture_that_nothing_disturbs)
{
    sumi_engine_desc ed = gpu_desc();
    sumi_model* model;
    sumi_engine* engine = open_engine(&ed, TINY, &model);
    if (engine == NULL) return;
    const sumi_image_desc desc = picture(model);
    s_whole = draw_hash(engine, &desc, 0);
    CHECK(s_whole != 0);
    close_engine(engine);
}

// ---- The begin and the end of every program -------------------------------------------------------------------------

// The times of calls depend on the machine too, so they are printed and not checked. That no call waits for the device
// is checked where the stream is blocked, and on the fake driver.
static inline void tell_times(void)
{
    static const char* const s_stages[] = {"waiting",   "loading",  "preparing", "text",     "image",
                                           "denoising", "decoding", "transfer",  "compiling"};
    enum { STAGES = sizeof s_stages / sizeof *s_stages };
    printf("  the longest poll took %.3f ms; of updates of at most 1 ms of work:", s_longest_poll_ms);
    for (int i = 0; i < STAGES; i++) printf(" %s %.3f%s", s_stages[i], s_longest_ms[i], i < STAGES - 1 ? "," : " ms\n");
}

TEST(a_host_with_a_gpu)
{
    const char* why = open_driver();
    if (why == NULL) {
        sumi_engine_desc ed = gpu_desc();
        sumi_engine* engine = NULL;
        if (sumi_engine_create(&ed, &engine) != SUMI_OK) why = s_host.text;
        sumi_engine_destroy(engine);
    }
    if (why != NULL) SKIP(why);
}

// Behind it are the program's own tests. These two run whatever is asked for: without a GPU nothing does, and the others
// compare with the picture.
#define HOST_TEST_BEGIN(argc, argv)                                                                                    \
    TEST_BEGIN(argc, argv);                                                                                            \
    (void)sumi_mutex_init(&s_host.lock);                                                                               \
    const char* filter = t_filter;                                                                                     \
    t_filter = NULL;                                                                                                   \
    RUN(a_host_with_a_gpu);                                                                                            \
    if (t_skipped > 0) TEST_END();                                                                                     \
    RUN(a_picture_that_nothing_disturbs);                                                                              \
    t_filter = filter
#endif
