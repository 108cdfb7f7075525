// How the CUDA backend behaves inside a host, on a GPU: the same bits at any pace, every byte given back, failures and
// cancels at any moment, the host's own context and stream left as they are. Through the public header alone; the
// host's own CUDA is the driver, found at run time. Without a GPU everything is skipped.
#include "test.h"
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sumi.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TINY "tests/golden/z-image/model"
#define DEMO "samples/demo_model"
#define QWEN_IMAGE "tests/golden/qwen-image/model"
#define NEWBIE "tests/golden/newbie/model"

// ---- The host's CUDA ------------------------------------------------------------------------------------------------

typedef struct CUctx_st* context_handle;
typedef struct CUstream_st* stream_handle;
enum { NOT_READY = 600, THREAD_LOCAL_CAPTURE = 1, NON_BLOCKING = 1 };

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
} cu;

static const char* open_driver(void) // NULL: it is there
{
    static const struct {
        const char* name;
        void* into;
    } entries[] = {
        {"cuInit", &cu.init},
        {"cuDeviceGet", &cu.device_get},
        {"cuDevicePrimaryCtxRetain", &cu.primary_retain},
        {"cuDevicePrimaryCtxRelease_v2", &cu.primary_release},
        {"cuCtxCreate_v2", &cu.context_create},
        {"cuCtxDestroy_v2", &cu.context_destroy},
        {"cuCtxGetCurrent", &cu.context_get},
        {"cuCtxSetCurrent", &cu.context_set},
        {"cuMemGetInfo_v2", &cu.memory_get},
        {"cuMemAlloc_v2", &cu.allocate},
        {"cuMemFree_v2", &cu.release},
        {"cuMemHostAlloc", &cu.allocate_pinned},
        {"cuMemFreeHost", &cu.release_pinned},
        {"cuStreamCreate", &cu.stream_create},
        {"cuStreamDestroy_v2", &cu.stream_destroy},
        {"cuStreamSynchronize", &cu.stream_synchronize},
        {"cuLaunchHostFunc", &cu.stream_call},
        {"cuStreamBeginCapture_v2", &cu.begin_capture},
        {"cuStreamEndCapture", &cu.end_capture},
        {"cuGraphDestroy", &cu.graph_destroy},
        {"cuEventCreate", &cu.event_create},
        {"cuEventRecord", &cu.event_record},
        {"cuEventQuery", &cu.event_query},
        {"cuEventDestroy_v2", &cu.event_destroy},
        {"cuStreamWaitEvent", &cu.stream_wait},
        {"cuMemcpyDtoHAsync_v2", &cu.copy_to_host},
        {"cuMemsetD8_v2", &cu.fill},
    };
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) return "there is no NVIDIA driver here";
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        void* symbol = dlsym(library, entries[i].name);
        if (symbol == NULL) return "the NVIDIA driver lacks an entry that this test needs";
        memcpy(entries[i].into, &symbol, sizeof symbol);
    }
    int device;
    if (cu.init(0) != 0 || cu.device_get(&device, 0) != 0) return "the NVIDIA driver has no device";
    return NULL;
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

// ---- The host's memory ----------------------------------------------------------------------------------------------

#define MOST_BLOCKS 8192
typedef struct host {
    pthread_mutex_t lock;
    long count, live, fail_at, wrong, without_context; // of the device's memory, pinned memory too; fail_at 0: none
    uint64_t live_bytes, peak_bytes, on_device, peak_on_device; // on the device: weights and arena
    struct {
        uint64_t address;
        size_t bytes;
        int kind;
    } blocks[MOST_BLOCKS];
    atomic_long host_live;
    char text[512]; // of the last error
    int fill;       // what is in memory of the device that the engine is given; negative: what was there
} host;

static host s_host;

static bool counts_on_device(sumi_memory_kind kind) { return kind == SUMI_MEMORY_WEIGHTS || kind == SUMI_MEMORY_ARENA; }
static uint64_t most_on_device(void) { return s_host.peak_on_device; }

static uint64_t device_allocate(size_t bytes, size_t alignment, sumi_memory_kind kind, void* user_data)
{
    host* h = user_data;
    context_handle current = NULL;
    uint64_t address = 0;
    pthread_mutex_lock(&h->lock);
    h->without_context += cu.context_get(&current) != 0 || current == NULL;
    if (++h->count != h->fail_at) {
        if (kind == SUMI_MEMORY_STAGING) {
            void* memory = NULL;
            if (cu.allocate_pinned(&memory, bytes, 0) == 0) address = (uint64_t)(uintptr_t)memory;
        } else if (cu.allocate(&address, bytes) != 0) {
            address = 0;
        }
    }
    h->wrong += address % alignment != 0;
    if (address != 0 && h->fill >= 0 && kind == SUMI_MEMORY_STAGING) memset((void*)(uintptr_t)address, h->fill, bytes);
    else if (address != 0 && h->fill >= 0) {
        // The fill is the null stream's, which the engine's streams do not wait for.
        h->wrong += cu.fill(address, (unsigned char)h->fill, bytes) != 0 || cu.stream_synchronize(NULL) != 0;
    }
    for (int i = 0; address != 0 && i < MOST_BLOCKS; i++) {
        if (h->blocks[i].address != 0) continue;
        h->blocks[i].address = address, h->blocks[i].bytes = bytes, h->blocks[i].kind = (int)kind;
        h->live++;
        h->live_bytes += bytes;
        if (counts_on_device(kind)) h->on_device += bytes;
        break;
    }
    if (h->on_device > h->peak_on_device) h->peak_on_device = h->on_device;
    if (h->live_bytes > h->peak_bytes) h->peak_bytes = h->live_bytes;
    pthread_mutex_unlock(&h->lock);
    return address;
}

static void device_release(uint64_t address, size_t bytes, sumi_memory_kind kind, void* user_data)
{
    host* h = user_data;
    context_handle current = NULL;
    pthread_mutex_lock(&h->lock);
    h->without_context += cu.context_get(&current) != 0 || current == NULL;
    int i = 0;
    while (i < MOST_BLOCKS && h->blocks[i].address != address) i++;
    if (i == MOST_BLOCKS || h->blocks[i].bytes != bytes || h->blocks[i].kind != (int)kind) {
        h->wrong++;
    } else {
        h->blocks[i].address = 0;
        h->live--;
        h->live_bytes -= bytes;
        if (counts_on_device(kind)) h->on_device -= bytes;
        h->wrong +=
            (kind == SUMI_MEMORY_STAGING ? cu.release_pinned((void*)(uintptr_t)address) : cu.release(address)) != 0;
    }
    pthread_mutex_unlock(&h->lock);
}

static void* host_allocate(size_t bytes, size_t alignment, void* user_data)
{
    void* memory = aligned_alloc(alignment, bytes);
    if (memory != NULL) atomic_fetch_add(&((host*)user_data)->host_live, 1);
    return memory;
}
static void host_release(void* memory, size_t bytes, void* user_data)
{
    (void)bytes;
    atomic_fetch_sub(&((host*)user_data)->host_live, 1);
    free(memory);
}
static void host_log(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    (void)result;
    if (level == SUMI_LOG_ERROR) snprintf(((host*)user_data)->text, sizeof((host*)user_data)->text, "%s", text);
}

static sumi_engine_desc gpu_desc(void)
{
    s_host.count = s_host.fail_at = s_host.wrong = s_host.without_context = 0;
    s_host.peak_bytes = s_host.peak_on_device = 0;
    s_host.fill = -1;
    sumi_engine_desc desc = sumi_engine_defaults();
    desc.backend = SUMI_BACKEND_CUDA;
    desc.allocator = (sumi_allocator){host_allocate, host_release, &s_host};
    desc.device_allocator = (sumi_device_allocator){device_allocate, device_release, &s_host};
    desc.log = (sumi_log){host_log, &s_host};
    return desc;
}

static void check_all_is_back(void)
{
    CHECK_NUMBER(s_host.live, 0);
    CHECK_NUMBER(s_host.live_bytes, 0);
    CHECK_NUMBER(s_host.on_device, 0);
    CHECK_NUMBER(s_host.wrong, 0);
    CHECK_NUMBER(s_host.without_context, 0);
    CHECK_NUMBER(atomic_load(&s_host.host_live), 0);
}

static void close_engine(sumi_engine* engine)
{
    sumi_engine_destroy(engine);
    check_all_is_back();
}

// ---- In one call ----------------------------------------------------------------------------------------------------

// of updates with a budget of a millisecond or less, by the job's stage before
static double s_longest_ms[8], s_longest_poll_ms;

static sumi_job_status timed_poll(const sumi_engine* engine, sumi_job job)
{
    const double begin = now_ms();
    const sumi_job_status status = sumi_job_poll(engine, job);
    const double ms = now_ms() - begin;
    s_longest_poll_ms = ms > s_longest_poll_ms ? ms : s_longest_poll_ms;
    return status;
}
static void timed_update(sumi_engine* engine, sumi_job job, uint32_t budget_us)
{
    const sumi_stage stage = timed_poll(engine, job).stage;
    const double begin = now_ms();
    sumi_engine_update(engine, budget_us);
    const double ms = now_ms() - begin;
    if (budget_us <= 1000 && ms > s_longest_ms[stage]) s_longest_ms[stage] = ms;
}

// With frames of that budget; 0: waits.
static sumi_result finish(sumi_engine* engine, sumi_job job, uint32_t budget_us)
{
    while (budget_us != 0 && timed_poll(engine, job).state < SUMI_JOB_DONE) timed_update(engine, job, budget_us);
    CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
    return timed_poll(engine, job).result;
}

static sumi_model* load(sumi_engine* engine, const char* path, sumi_weight_format weights, sumi_result* out_result)
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

static sumi_engine* open_engine(const sumi_engine_desc* desc, const char* path, sumi_model** out_model)
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

static sumi_image_desc picture(sumi_model* model)
{
    sumi_image_desc desc = sumi_image_defaults(model, SUMI_PRESET_MODEL);
    desc.items = s_items;
    desc.item_count = 2;
    desc.width = 64;
    desc.height = 48;
    desc.step_count = 4;
    desc.guidance = 2.0f;
    desc.guidance_end = 0.8f;
    return desc;
}

static uint64_t hash_bytes(uint64_t hash, const void* data, size_t bytes)
{
    const unsigned char* at = data;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ at[i]) * 1099511628211u;
    return hash;
}

// The bits of a finished job's latents and pictures; ends it. 0 after a failure.
static uint64_t take_hash(sumi_engine* engine, sumi_job job, const sumi_image_desc* desc)
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

static uint64_t draw_hash(sumi_engine* engine, const sumi_image_desc* desc, uint32_t budget_us)
{
    sumi_job job;
    if (sumi_submit_images(engine, desc, &job) != SUMI_OK) return 0;
    (void)finish(engine, job, budget_us);
    return take_hash(engine, job, desc);
}

static uint64_t s_whole; // bits of picture() that nothing disturbed

// ---- The same bits --------------------------------------------------------------------------------------------------

TEST(the_same_bits_at_any_pace)
{
    static const uint32_t slices[] = {2000, 0, 200, 20}, budgets[] = {0, 500, 1000, 20000, SUMI_FOREVER};
    for (size_t s = 0; s < sizeof slices / sizeof *slices; s++) {
        for (int pump = 0; pump < 2; pump++) {
            sumi_engine_desc ed = gpu_desc();
            ed.max_slice_us = slices[s];
            ed.pump = pump == 1 ? SUMI_PUMP_THREAD : SUMI_PUMP_UPDATE;
            ed.cpu_thread_count = 1 + (int32_t)s;
            sumi_model* model;
            sumi_engine* engine = open_engine(&ed, TINY, &model);
            if (engine == NULL) return;
            sumi_image_desc desc = picture(model);
            for (size_t b = 0; b < sizeof budgets / sizeof *budgets && (pump == 0 || b == 0); b++) {
                const uint64_t hash = draw_hash(engine, &desc, budgets[b]);
                if (s_whole == 0) s_whole = hash;
                CHECK(hash != 0 && hash == s_whole);
            }
            desc.preview_every = 1;
            CHECK(draw_hash(engine, &desc, 500) == s_whole);
            desc.preview_every = 0;
            desc.profile = true;
            CHECK(draw_hash(engine, &desc, 0) == s_whole);
            desc.profile = false;
            CHECK(draw_hash(engine, &desc, 0) == s_whole);
            close_engine(engine);
        }
    }
}

// NaN, zeros, the largest numbers there are: what reads memory before it is written shows. (initcheck does not see what
// bulk tensor copies write.)
TEST(memory_may_hold_anything_before)
{
    static const int fills[] = {0xFF, 0x00, 0x7F};
    static const sumi_weight_format formats[] = {SUMI_WEIGHTS_BF16, SUMI_WEIGHTS_FP8, SUMI_WEIGHTS_INT8};
    for (int way = 0; way < 6; way++) { // the tiny model and the demo's, bfloat16 and 8 bits
        uint64_t first = way == 0 ? s_whole : 0;
        for (size_t i = 0; i < sizeof fills / sizeof *fills; i++) {
            sumi_engine_desc ed = gpu_desc();
            s_host.fill = fills[i];
            sumi_engine* engine = NULL;
            CHECK_NUMBER(sumi_engine_create(&ed, &engine), SUMI_OK);
            sumi_model* model =
                engine != NULL ? load(engine, way % 2 == 0 ? TINY : DEMO, formats[way / 2], NULL) : NULL;
            CHECK(model != NULL);
            if (model == NULL) return;
            const sumi_image_desc desc = picture(model);
            const uint64_t hash = draw_hash(engine, &desc, 0);
            if (first == 0) first = hash;
            CHECK(hash != 0 && hash == first);
            close_engine(engine);
        }
    }
}

// Slices, budgets of a call, a thread of the engine's, what was in the memory before.
static void check_the_same_bits(const char* path)
{
    static const struct {
        uint32_t slice_us, budget_us;
        int fill;
        bool pumps;
    } ways[] = {{2000, 0, -1, false},
                {0, 0, 0xFF, false},
                {200, 500, 0x7F, false},
                {20, 1000, 0, false},
                {2000, 0, 0xFF, true}};
    uint64_t first = 0;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        sumi_engine_desc ed = gpu_desc();
        ed.max_slice_us = ways[i].slice_us;
        ed.pump = ways[i].pumps ? SUMI_PUMP_THREAD : SUMI_PUMP_UPDATE;
        s_host.fill = ways[i].fill;
        sumi_model* model;
        sumi_engine* engine = open_engine(&ed, path, &model);
        if (engine == NULL) return;
        const sumi_image_desc desc = picture(model);
        const uint64_t hash = draw_hash(engine, &desc, ways[i].budget_us);
        if (first == 0) first = hash;
        CHECK(hash != 0 && hash == first);
        close_engine(engine);
    }
}

// From a budget that holds everything down to one that holds nothing: streamed weights change no bit, and what is held
// is never above the budget of a job that is drawn. Where the VAE works in tiles the bits are others.
static void check_budgets(const char* path)
{
    sumi_engine_desc ed = gpu_desc();
    sumi_model* model;
    sumi_engine* engine = open_engine(&ed, path, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = picture(model);
    const uint64_t whole = draw_hash(engine, &desc, 0), most = most_on_device();
    close_engine(engine);
    int drawn = 0;
    for (int eighths = 8; eighths > 0; eighths--) {
        ed = gpu_desc();
        ed.memory_budget_bytes = most / 8 * (uint64_t)eighths;
        engine = open_engine(&ed, path, &model);
        if (engine == NULL) return;
        desc = picture(model);
        sumi_memory memory;
        sumi_job job;
        const sumi_result said = sumi_image_memory(engine, &desc, &memory);
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        const sumi_result result = finish(engine, job, 1000);
        CHECK_NUMBER(result, said);
        if (result == SUMI_OK) {
            const uint64_t hash = take_hash(engine, job, &desc);
            CHECK(hash != 0 && (memory.tiles_vae || hash == whole));
            CHECK(most_on_device() <= ed.memory_budget_bytes);
            drawn++;
        } else {
            CHECK_NUMBER(result, SUMI_BUDGET_TOO_SMALL);
            sumi_job_discard(engine, job);
        }
        close_engine(engine);
    }
    printf("  %s: %llu bytes hold everything, %d of 8 budgets below were enough\n", path, (unsigned long long)most,
           drawn);
    CHECK(drawn >= 2);
}

TEST(every_family_keeps_its_bits)
{
    check_the_same_bits(QWEN_IMAGE);
    check_the_same_bits(NEWBIE);
}

TEST(every_family_keeps_its_budget)
{
    check_budgets(QWEN_IMAGE);
    check_budgets(NEWBIE);
}

// The largest size that Qwen-Image's authors name, in the least memory that it can be drawn in.
TEST(a_picture_of_2512_in_bounded_memory)
{
    sumi_engine_desc ed = gpu_desc();
    sumi_model* model;
    sumi_engine* engine = open_engine(&ed, QWEN_IMAGE, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = picture(model);
    sumi_memory memory;
    desc.item_count = 1;
    desc.guidance = 1.0f;
    desc.step_count = 2;
    desc.width = desc.height = 2512;
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_OK);
    CHECK(draw_hash(engine, &desc, 1000) != 0);
    const uint64_t most = most_on_device();
    CHECK(most <= memory.weights + memory.arena);
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 1), SUMI_OK);
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_BUDGET_TOO_SMALL);
    const uint64_t least = memory.needed;
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, least), SUMI_OK);
    s_host.peak_on_device = s_host.on_device;
    CHECK(draw_hash(engine, &desc, 1000) != 0);
    printf("  2512 x 2512: %llu bytes of weights and arena, then %llu of %llu\n", (unsigned long long)most,
           (unsigned long long)most_on_device(), (unsigned long long)least);
    CHECK(least < most && most_on_device() <= least);
    close_engine(engine);
}

TEST(a_batch_is_its_single_pictures)
{
    sumi_engine_desc ed = gpu_desc();
    sumi_model* model;
    sumi_engine* engine = open_engine(&ed, TINY, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = picture(model);
    desc.guidance = 0.0f;
    sumi_image both[2], single;
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    CHECK_NUMBER(finish(engine, job, 0), SUMI_OK);
    CHECK_NUMBER(sumi_fetch_images(engine, job, both, 2), SUMI_OK);
    desc.item_count = 1;
    for (int i = 0; i < 2; i++) {
        desc.items = &s_items[i];
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        CHECK_NUMBER(finish(engine, job, 0), SUMI_OK);
        if (sumi_fetch_images(engine, job, &single, 1) != SUMI_OK || both[i].pixels == NULL) continue;
        // Another shape may choose other tiles, so that sums are rounded in another order: nearly the same picture is
        // what can be asked for.
        int most = 0;
        for (size_t at = 0; at < (size_t)64 * 48 * 4; at++) {
            const int d = abs((int)((const uint8_t*)both[i].pixels)[at] - (int)((const uint8_t*)single.pixels)[at]);
            most = d > most ? d : most;
        }
        printf("  item %d: alone and in the batch differ by %d of 255 at most\n", i, most);
        CHECK(most <= 24);
        sumi_images_release(engine, &single, 1);
    }
    sumi_images_release(engine, both, 2);
    close_engine(engine);
}

TEST(budgets_that_hold_everything_change_nothing)
{
    sumi_engine_desc ed = gpu_desc();
    sumi_model* model;
    sumi_engine* engine = open_engine(&ed, TINY, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = picture(model);
    CHECK(draw_hash(engine, &desc, 0) == s_whole);
    const uint64_t held = s_host.live_bytes, most = s_host.peak_bytes;
    close_engine(engine);
    printf("  holds %llu bytes, at most %llu\n", (unsigned long long)held, (unsigned long long)most);
    const uint64_t budgets[] = {8ull << 30, 1ull << 30, 2 * most};
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
        ed = gpu_desc();
        ed.memory_budget_bytes = budgets[i];
        engine = open_engine(&ed, TINY, &model);
        if (engine == NULL) return;
        desc = picture(model);
        sumi_memory memory;
        CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_OK);
        CHECK(!memory.tiles_vae);
        CHECK(draw_hash(engine, &desc, 0) == s_whole);
        CHECK(draw_hash(engine, &desc, 500) == s_whole);
        close_engine(engine);
    }
}

TEST(a_budget_that_is_too_small_is_a_result)
{
    sumi_engine_desc ed = gpu_desc();
    sumi_model* model;
    sumi_engine* engine = open_engine(&ed, TINY, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = picture(model);
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 10000), SUMI_OK);
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    CHECK_NUMBER(finish(engine, job, 0), SUMI_BUDGET_TOO_SMALL);
    CHECK(timed_poll(engine, job).message[0] != '\0');
    sumi_job_discard(engine, job);
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 0), SUMI_OK);
    CHECK(draw_hash(engine, &desc, 0) == s_whole);
    close_engine(engine);
}

// ---- Everything comes back ------------------------------------------------------------------------------------------

TEST(engines_come_and_go)
{
    context_handle primary;
    // so that the context, and what the driver keeps in it, outlives the engines
    CHECK_NUMBER(cu.primary_retain(&primary, 0), 0);
    CHECK_NUMBER(cu.context_set(primary), 0);
    // Other programs take and return memory of the device as they please. What engines kept would be missing more
    // behind every four of them, so the least that is missing tells.
    size_t before = 0, after = 0, total;
    int64_t least = INT64_MAX;
    for (int i = 0; i <= 20; i++) {
        if (i % 4 == 0) {
            CHECK_NUMBER(cu.memory_get(&after, &total), 0);
            const int64_t missing = (int64_t)before - (int64_t)after;
            if (i > 4 && missing < least) least = missing; // the first ones make the driver's own pools
            before = after;
        }
        if (i == 20) break;
        sumi_engine_desc ed = gpu_desc();
        if (i % 2 == 1) ed.device_allocator = (sumi_device_allocator){NULL, NULL, NULL}; // the driver's
        sumi_engine* engine = NULL;
        CHECK_NUMBER(sumi_engine_create(&ed, &engine), SUMI_OK);
        if (engine != NULL && i % 4 < 2) {
            sumi_model* model = load(engine, TINY, SUMI_WEIGHTS_AUTO, NULL);
            CHECK(model != NULL);
            sumi_image_desc desc = picture(model);
            if (model != NULL) CHECK(draw_hash(engine, &desc, 0) == s_whole);
        }
        close_engine(engine);
    }
    printf("  device memory missing behind four engines: %.1f MiB at least\n", (double)least / 1048576.0);
    CHECK(least < 8 << 20); // the driver rounds
    CHECK_NUMBER(cu.context_set(NULL), 0);
    CHECK_NUMBER(cu.primary_release(0), 0);
}

TEST(a_warm_job_allocates_nothing)
{
    sumi_engine_desc ed = gpu_desc();
    sumi_model* model;
    sumi_engine* engine = open_engine(&ed, TINY, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = picture(model);
    desc.preview_every = 1;
    CHECK(draw_hash(engine, &desc, 0) == s_whole);
    // the budgets of updates make a plan of shorter slices, in the first one or before the second
    for (int i = 0; i < 2; i++) CHECK(draw_hash(engine, &desc, 500) == s_whole);
    const long device = s_host.count;
    const uint64_t host_count = sumi_engine_get_info(engine).allocation_count;
    CHECK(draw_hash(engine, &desc, 500) == s_whole);
    CHECK_NUMBER(s_host.count, device);
    CHECK_NUMBER(sumi_engine_get_info(engine).allocation_count, host_count);
    const sumi_engine_info info = sumi_engine_get_info(engine);
    CHECK_NUMBER(info.held_bytes[SUMI_MEMORY_WEIGHTS] + info.held_bytes[SUMI_MEMORY_ARENA]
                     + info.held_bytes[SUMI_MEMORY_STAGING],
                 s_host.live_bytes);
    sumi_model_close(model);
    CHECK_NUMBER(sumi_engine_get_info(engine).held_bytes[SUMI_MEMORY_WEIGHTS], 0);
    close_engine(engine);
}

TEST(the_nth_device_allocation_may_fail)
{
    int failures = 0;
    long n = 1;
    for (bool fails = true; fails && n < 300 && t_errors == 0; n++) {
        sumi_engine_desc ed = gpu_desc();
        s_host.fail_at = n;
        sumi_engine* engine = NULL;
        sumi_result result = sumi_engine_create(&ed, &engine);
        CHECK((result == SUMI_OK) == (engine != NULL));
        sumi_model* model = NULL;
        if (engine != NULL) {
            model = load(engine, TINY, SUMI_WEIGHTS_AUTO, &result);
            if (model != NULL) {
                sumi_image_desc desc = picture(model);
                sumi_job job;
                CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
                result = finish(engine, job, 0);
                // also with less memory: streamed, or in smaller batches, which may choose other tiles
                if (result == SUMI_OK) {
                    const uint64_t hash = take_hash(engine, job, &desc);
                    CHECK(hash != 0);
                    if (hash != s_whole) printf("  without allocation %ld the picture has other bits\n", n);
                } else {
                    sumi_job_discard(engine, job);
                }
            }
        }
        CHECK(result == SUMI_OK || result == SUMI_OUT_OF_DEVICE_MEMORY || result == SUMI_OUT_OF_HOST_MEMORY);
        if (result != SUMI_OK) CHECK(s_host.text[0] != '\0');
        failures += result != SUMI_OK;
        fails = s_host.count >= n;
        s_host.fail_at = 0;
        if (engine != NULL) { // and goes on as if nothing had been
            if (model == NULL) model = load(engine, TINY, SUMI_WEIGHTS_AUTO, NULL);
            CHECK(model != NULL);
            sumi_image_desc desc = picture(model);
            if (model != NULL) CHECK(draw_hash(engine, &desc, 0) == s_whole);
        }
        close_engine(engine);
    }
    printf("  %ld allocations failed, %d times a job or the engine did\n", n - 2, failures);
    CHECK(n > 5 && failures > 0);
}

// ---- Cancelling -----------------------------------------------------------------------------------------------------

TEST(jobs_can_be_cancelled_at_any_moment)
{
    uint32_t state = 12345;
    sumi_engine_desc ed = gpu_desc();
    ed.max_slice_us = 50;
    sumi_model* model;
    sumi_engine* engine = open_engine(&ed, TINY, &model);
    if (engine == NULL) return;
    int stages[8] = {0}, cancelled = 0;
    for (int i = 0; i < 200 && t_errors == 0; i++) {
        state = state * 1664525u + 1013904223u;
        const uint32_t random = state >> 8;
        sumi_image_desc desc = picture(model);
        desc.preview_every = (int32_t)(random & 1);
        desc.step_count = 4 + (int32_t)(random >> 1 & 1) * 12;
        sumi_model_desc md = sumi_model_defaults();
        md.path = TINY;
        sumi_prompt_desc pd = sumi_prompt_defaults(model);
        pd.text = "a lighthouse";
        sumi_job job = {0};
        const int kind = i % 8 == 3 ? 1 : i % 8 == 6 ? 2 : 0;
        CHECK_NUMBER(kind == 1   ? sumi_submit_model(engine, &md, &job)
                     : kind == 2 ? sumi_submit_prompt(engine, &pd, &job)
                                 : sumi_submit_images(engine, &desc, &job),
                     SUMI_OK);
        // By how far it is, not by frames: how many of those a job takes, other programs on the GPU decide as well.
        const float until = (float)((random >> 4) % 20) / 20.0f;
        while (timed_poll(engine, job).state < SUMI_JOB_DONE && timed_poll(engine, job).progress < until)
            timed_update(engine, job, 100);
        for (uint32_t u = 0; u < (random >> 9) % 4; u++) timed_update(engine, job, 100);
        const sumi_job_status before = timed_poll(engine, job);
        sumi_job_cancel(engine, job);
        timed_update(engine, job, 1);
        const sumi_job_status after = timed_poll(engine, job);
        CHECK_NUMBER(after.state, before.state >= SUMI_JOB_DONE ? SUMI_JOB_DONE : SUMI_JOB_CANCELLED);
        cancelled += after.state == SUMI_JOB_CANCELLED;
        stages[before.stage] += after.state == SUMI_JOB_CANCELLED;
        sumi_job_discard(engine, job);
        CHECK_NUMBER(sumi_engine_get_info(engine).job_count, 0);
        desc = picture(model);
        if (i % 20 == 19) CHECK(draw_hash(engine, &desc, 0) == s_whole);
    }
    printf("  %d cancelled; waiting %d, loading %d, preparing %d, text %d, denoising %d, decoding %d, transfer %d\n",
           cancelled, stages[0], stages[1], stages[2], stages[3], stages[5], stages[6], stages[7]);
    CHECK(cancelled > 40 && stages[SUMI_STAGE_DENOISE] > 0 && stages[SUMI_STAGE_LOAD] > 0);
    sumi_image_desc desc = picture(model);
    CHECK(draw_hash(engine, &desc, 0) == s_whole);
    close_engine(engine);
}

TEST(a_paused_job_keeps_its_bits)
{
    static const sumi_solver solvers[] = {SUMI_SOLVER_EULER, SUMI_SOLVER_HEUN, SUMI_SOLVER_DPMPP_2M};
    sumi_engine_desc ed = gpu_desc();
    ed.max_slice_us = 50;
    sumi_model* model;
    sumi_engine* engine = open_engine(&ed, TINY, &model);
    if (engine == NULL) return;
    int gave_way = 0;
    for (int i = 0; i < 60 && t_errors == 0; i++) {
        sumi_image_desc desc = picture(model), other = picture(model);
        desc.solver = solvers[i % 3];
        desc.step_count = 8;
        const uint64_t want = draw_hash(engine, &desc, 0), want_other = draw_hash(engine, &other, 0);
        sumi_job job, beside;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        const float until = (float)i / 60.0f;
        while (timed_poll(engine, job).state < SUMI_JOB_DONE && timed_poll(engine, job).progress < until)
            timed_update(engine, job, 100);
        (void)sumi_job_pause(engine, job, true);
        CHECK_NUMBER(sumi_submit_images(engine, &other, &beside), SUMI_OK);
        CHECK_NUMBER(finish(engine, beside, 0), SUMI_OK);
        CHECK(take_hash(engine, beside, &other) == want_other);
        gave_way += timed_poll(engine, job).state == SUMI_JOB_QUEUED;
        (void)sumi_job_pause(engine, job, false);
        CHECK_NUMBER(finish(engine, job, 0), SUMI_OK);
        CHECK(take_hash(engine, job, &desc) == want);
    }
    printf("  %d pauses\n", gave_way);
    CHECK(gave_way > 20);
    close_engine(engine);
}

TEST(engines_can_go_in_the_middle)
{
    for (int i = 0; i < 6; i++) {
        sumi_engine_desc ed = gpu_desc();
        ed.max_slice_us = 100;
        ed.pump = i % 2 == 1 ? SUMI_PUMP_THREAD : SUMI_PUMP_UPDATE;
        sumi_engine* engine = NULL;
        CHECK_NUMBER(sumi_engine_create(&ed, &engine), SUMI_OK);
        if (engine == NULL) return;
        if (i < 2) { // while the kernels are being loaded
            sumi_model_desc md = sumi_model_defaults();
            md.path = TINY;
            sumi_job job;
            CHECK_NUMBER(sumi_submit_model(engine, &md, &job), SUMI_OK);
            for (int u = 0; u < 10; u++) timed_update(engine, job, 1000);
        } else {
            sumi_model* model = load(engine, TINY, SUMI_WEIGHTS_AUTO, NULL);
            sumi_image_desc desc = picture(model);
            desc.step_count = 200;
            sumi_job job;
            if (model != NULL) CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
            for (int u = 0; model != NULL && u < 100000 && timed_poll(engine, job).stage < SUMI_STAGE_DENOISE; u++)
                timed_update(engine, job, 1000);
            if (i >= 4 && model != NULL) {
                sumi_model_close(model);
                CHECK_NUMBER(timed_poll(engine, job).state, SUMI_JOB_CANCELLED);
            }
        }
        close_engine(engine);
    }
}

// ---- Damaged weights ------------------------------------------------------------------------------------------------

static bool copy_file(const char* from, const char* to, bool damages)
{
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    unsigned char buffer[4096];
    uint64_t at = 0, data = 0; // data: where a safetensors file's tensors begin
    bool is_good = in != NULL && out != NULL;
    for (size_t n; is_good && (n = fread(buffer, 1, sizeof buffer, in)) > 0; at += n) {
        for (int i = 7; at == 0 && i >= 0; i--) data = data << 8 | buffer[i];
        for (size_t i = 0; damages && i < n; i++) {
            if (at + i >= data + 8) buffer[i] = 0xff; // NaN in every float type
        }
        is_good = fwrite(buffer, 1, n, out) == n;
    }
    if (in != NULL) fclose(in);
    if (out != NULL) is_good = fclose(out) == 0 && is_good;
    return is_good;
}

// A checkpoint's folder; the files of one part are damaged on the way. With `to` NULL it removes what a copy made.
static bool copy_tree(const char* from, const char* to, const char* damaged_part)
{
    DIR* folder = opendir(from);
    bool is_good = folder != NULL && (to == NULL || mkdir(to, 0700) == 0);
    for (struct dirent* entry; is_good && (entry = readdir(folder)) != NULL;) {
        char a[512], b[512] = "";
        if (entry->d_name[0] == '.') continue;
        if (snprintf(a, sizeof a, "%s/%s", from, entry->d_name) >= (int)sizeof a
            || (to != NULL && snprintf(b, sizeof b, "%s/%s", to, entry->d_name) >= (int)sizeof b))
            is_good = false;
        struct stat info;
        if (!is_good || stat(a, &info) != 0) is_good = false;
        else if (S_ISDIR(info.st_mode)) is_good = copy_tree(a, to != NULL ? b : NULL, damaged_part);
        else if (to == NULL) is_good = unlink(a) == 0;
        else
            is_good = copy_file(a, b,
                                damaged_part != NULL && strstr(a, damaged_part) != NULL
                                    && strstr(a, ".safetensors") != NULL && strstr(a, ".json") == NULL);
    }
    if (folder != NULL) closedir(folder);
    if (to == NULL && is_good) is_good = rmdir(from) == 0;
    return is_good;
}

TEST(weights_that_are_not_finite_give_a_result)
{
    static const char* const parts[] = {"/vae/", "/transformer/", "/text_encoder/"};
    for (size_t i = 0; i < 3; i++) {
        char base[] = "/tmp/sumi-damaged-XXXXXX", path[64];
        CHECK(mkdtemp(base) != NULL);
        snprintf(path, sizeof path, "%s/model", base);
        CHECK(copy_tree(TINY, path, parts[i]));
        sumi_engine_desc ed = gpu_desc();
        sumi_model* model;
        sumi_engine* engine = open_engine(&ed, path, &model);
        if (engine != NULL) {
            sumi_image_desc desc = picture(model);
            sumi_job job;
            CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
            const sumi_result result = finish(engine, job, 0);
            if (result != SUMI_NOT_FINITE) printf("  %s is all NaN\n", parts[i]);
            CHECK_NUMBER(result, SUMI_NOT_FINITE);
            CHECK(timed_poll(engine, job).message[0] != '\0');
            sumi_image image;
            CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_NOT_FINITE);
            sumi_model* good = load(engine, TINY, SUMI_WEIGHTS_AUTO, NULL); // nothing of it stays
            CHECK(good != NULL);
            desc = picture(good);
            if (good != NULL) CHECK(draw_hash(engine, &desc, 0) == s_whole);
            close_engine(engine);
        }
        CHECK(copy_tree(base, NULL, NULL));
    }
}

// ---- The host's own context and stream ------------------------------------------------------------------------------

static context_handle s_current;
#define KEEPS(call)                                                                                                    \
    do {                                                                                                               \
        context_handle now_ = NULL;                                                                                    \
        call;                                                                                                          \
        CHECK(cu.context_get(&now_) == 0 && now_ == s_current);                                                        \
    } while (0)

static atomic_bool s_gate_opens, s_gate_reached, s_gate_gave_up;
static void gate(void* user_data) // on a thread of the driver: the stream waits as long as this does
{
    (void)user_data;
    atomic_store(&s_gate_reached, true);
    const struct timespec a_moment = {.tv_nsec = 1000000};
    for (int i = 0; i < 120000 && !atomic_load(&s_gate_opens); i++) nanosleep(&a_moment, NULL);
    atomic_store(&s_gate_gave_up, !atomic_load(&s_gate_opens)); // somebody who should have opened it waits for it
}

TEST(the_hosts_context_and_stream_are_used_and_left_alone)
{
    context_handle theirs, given;
    stream_handle stream;
    CHECK_NUMBER(cu.context_create(&given, 0, 0), 0);
    CHECK_NUMBER(cu.stream_create(&stream, NON_BLOCKING), 0);
    CHECK_NUMBER(cu.context_create(&theirs, 0, 0), 0); // what the calling thread works with meanwhile
    s_current = theirs;
    sumi_engine_desc ed = gpu_desc();
    ed.cuda.context = given;
    ed.cuda.stream = stream;
    ed.max_slice_us = 50;
    sumi_engine* engine = NULL;
    KEEPS(CHECK_NUMBER(sumi_engine_create(&ed, &engine), SUMI_OK));
    if (engine != NULL) {
        sumi_model* model = NULL;
        KEEPS(model = load(engine, TINY, SUMI_WEIGHTS_AUTO, NULL));
        CHECK(model != NULL);
        sumi_image_desc desc = picture(model);
        sumi_memory memory;
        KEEPS(CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_OK));
        uint64_t hash = 0;
        KEEPS(hash = draw_hash(engine, &desc, 500));
        CHECK(hash == s_whole);

        // Their stream is busy with something of theirs: nothing of ours may overtake it, and nobody waits for it but
        // the job.
        void* event;
        CHECK_NUMBER(cu.context_set(given), 0);
        CHECK_NUMBER(cu.event_create(&event, 0), 0);
        atomic_store(&s_gate_opens, false);
        CHECK_NUMBER(cu.stream_call(stream, gate, NULL), 0);
        CHECK_NUMBER(cu.context_set(theirs), 0);
        sumi_job job;
        KEEPS(CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK));
        double longest = 0.0;
        for (int frame = 0; frame < 300; frame++) {
            const double begin = now_ms();
            KEEPS(timed_update(engine, job, 1000));
            const double ms = now_ms() - begin;
            longest = ms > longest ? ms : longest;
            KEEPS((void)timed_poll(engine, job));
            KEEPS((void)sumi_engine_get_info(engine));
        }
        printf("  the longest update while the stream was busy took %.3f ms\n", longest);
        CHECK_NUMBER(timed_poll(engine, job).state, SUMI_JOB_RUNNING);
        CHECK_NUMBER(timed_poll(engine, job).step, 0);
        CHECK_NUMBER(sumi_job_wait(engine, job, 0), SUMI_TIMEOUT);
        CHECK_NUMBER(cu.context_set(given), 0);
        CHECK_NUMBER(cu.event_record(event, stream), 0); // behind what we have submitted
        CHECK_NUMBER(cu.event_query(event), NOT_READY);
        atomic_store(&s_gate_opens, true);
        CHECK_NUMBER(cu.context_set(theirs), 0);
        KEEPS(CHECK_NUMBER(finish(engine, job, 1000), SUMI_OK));
        KEEPS(hash = take_hash(engine, job, &desc));
        CHECK(hash == s_whole);
        // none of these calls has waited for the device
        CHECK(atomic_load(&s_gate_reached) && !atomic_load(&s_gate_gave_up));
        CHECK_NUMBER(cu.context_set(given), 0);
        CHECK_NUMBER(cu.event_query(event), 0);
        CHECK_NUMBER(cu.event_destroy(event), 0);
        CHECK_NUMBER(cu.context_set(theirs), 0);

        KEEPS(CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK));
        for (int u = 0; u < 30; u++) KEEPS(sumi_engine_update(engine, 100));
        KEEPS(sumi_job_cancel(engine, job));
        KEEPS(CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK));
        KEEPS(sumi_job_discard(engine, job));
        KEEPS((void)sumi_engine_set_memory_budget(engine, 1));
        KEEPS(sumi_model_close(model));
        KEEPS(sumi_engine_destroy(engine));
        check_all_is_back();
    }
    CHECK_NUMBER(cu.context_set(given), 0);
    CHECK_NUMBER(cu.stream_synchronize(stream), 0); // it is still theirs, and alive

    // A stream that is being captured would get our work into their graph.
    CHECK_NUMBER(cu.begin_capture(stream, THREAD_LOCAL_CAPTURE), 0);
    s_current = given;
    ed = gpu_desc();
    ed.cuda.context = given;
    ed.cuda.stream = stream;
    KEEPS(CHECK_NUMBER(sumi_engine_create(&ed, &engine), SUMI_INVALID_ARGUMENT));
    CHECK(engine == NULL && strstr(s_host.text, "captured") != NULL);
    check_all_is_back();
    void* graph = NULL;
    CHECK_NUMBER(cu.end_capture(stream, &graph), 0);
    if (graph != NULL) CHECK_NUMBER(cu.graph_destroy(graph), 0);
    ed.cuda.stream = (stream_handle)(uintptr_t)1; // CUDA's own default stream
    KEEPS(CHECK_NUMBER(sumi_engine_create(&ed, &engine), SUMI_INVALID_ARGUMENT));
    CHECK_NUMBER(cu.stream_destroy(stream), 0);
    CHECK_NUMBER(cu.context_destroy(theirs), 0);
    CHECK_NUMBER(cu.context_destroy(given), 0);
    CHECK_NUMBER(cu.context_set(NULL), 0);
}

// Read back by a stream of the host's that was ordered by the event alone.
TEST(pictures_that_stay_on_the_device_have_the_same_bits)
{
    enum { W = 64, H = 48, MOST = (W * 12 + 64) * H };
    static unsigned char from_device[3][MOST], from_host[3][MOST], rgba[W * H * 4], rgb[W * H * 3];
    context_handle context;
    stream_handle stream;
    uint64_t memory[3];
    void* events[3];
    CHECK_NUMBER(cu.context_create(&context, 0, 0), 0);
    CHECK_NUMBER(cu.stream_create(&stream, NON_BLOCKING), 0);
    for (int i = 0; i < 3; i++)
        CHECK(cu.allocate(&memory[i], MOST) == 0 && cu.event_create(&events[i], 2 /* without timing */) == 0);
    sumi_engine_desc ed = gpu_desc();
    ed.cuda.context = context;
    sumi_model* model;
    sumi_engine* engine = open_engine(&ed, TINY, &model);
    if (engine == NULL) return;
    for (int format = 0; format < 4; format++) { // those with longer rows also from below
        const int32_t row = W * (format == SUMI_FORMAT_RGB32F ? 12 : format == SUMI_FORMAT_RGB8 ? 3 : 4);
        for (int padded = 0; padded < 2; padded++) {
            const int32_t pitch = row + (padded != 0 ? format == SUMI_FORMAT_RGB8 ? 5 : 64 : 0);
            sumi_image_desc desc = picture(model);
            sumi_target targets[2];
            for (int on_device = 0; on_device < 2; on_device++) {
                for (int i = 0; i < 2; i++) {
                    memset(from_device[i], 0xa5, MOST);
                    // our stream does not wait for that one
                    CHECK(cu.fill(memory[i], 0xa5, MOST) == 0 && cu.stream_synchronize(NULL) == 0);
                    targets[i] =
                        (sumi_target){.format = (sumi_format)format, .row_bytes = pitch, .bottom_up = padded != 0};
                    if (on_device != 0) targets[i].device_address = memory[i], targets[i].event = events[i];
                    else targets[i].host_memory = from_host[i];
                    if (on_device == 0) memset(from_host[i], 0xa5, MOST);
                }
                desc.targets = targets;
                sumi_job job;
                sumi_image images[2];
                CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
                CHECK_NUMBER(finish(engine, job, on_device != 0 ? 1000 : 0), SUMI_OK);
                for (int i = 0; i < 2 && on_device != 0; i++) {
                    CHECK_NUMBER(cu.stream_wait(stream, events[i], 0), 0);
                    CHECK_NUMBER(cu.copy_to_host(from_device[i], memory[i], MOST, stream), 0);
                }
                CHECK_NUMBER(cu.stream_synchronize(stream), 0);
                CHECK_NUMBER(sumi_fetch_images(engine, job, images, 2), SUMI_OK);
                for (int i = 0; i < 2; i++)
                    CHECK(images[i].row_bytes == pitch && (images[i].pixels == NULL) == (on_device != 0));
                sumi_images_release(engine, images, 2);
            }
            // what lies between the rows too
            for (int i = 0; i < 2; i++) CHECK(memcmp(from_device[i], from_host[i], MOST) == 0);
            if (padded == 0 && format == SUMI_FORMAT_RGBA8) memcpy(rgba, from_host[1], sizeof rgba);
            if (padded == 0 && format == SUMI_FORMAT_RGB8) memcpy(rgb, from_host[1], sizeof rgb);
        }
    }
    int32_t different = 0; // the device makes the one of the other
    for (int i = 0; i < W * H; i++) different += memcmp(&rgba[4 * i], &rgb[3 * i], 3) != 0 || rgba[4 * i + 3] != 255;
    CHECK_NUMBER(different, 0);
    sumi_engine_destroy(engine);
    check_all_is_back();
    for (int i = 0; i < 3; i++) CHECK(cu.release(memory[i]) == 0 && cu.event_destroy(events[i]) == 0);
    CHECK_NUMBER(cu.stream_destroy(stream), 0);
    CHECK_NUMBER(cu.context_destroy(context), 0);
}

TEST(two_engines_in_one_process)
{
    sumi_engine_desc ed = gpu_desc();
    sumi_model *first_model, *second_model;
    sumi_engine* first = open_engine(&ed, TINY, &first_model);
    if (first == NULL) return;
    ed.pump = SUMI_PUMP_THREAD;
    sumi_engine* second = open_engine(&ed, TINY, &second_model);
    if (second != NULL) {
        for (int i = 0; i < 3; i++) {
            sumi_image_desc a = picture(first_model), b = picture(second_model);
            sumi_job first_job, second_job;
            CHECK_NUMBER(sumi_submit_images(second, &b, &second_job), SUMI_OK);
            CHECK_NUMBER(sumi_submit_images(first, &a, &first_job), SUMI_OK);
            CHECK_NUMBER(finish(first, first_job, 500), SUMI_OK);
            CHECK_NUMBER(finish(second, second_job, 0), SUMI_OK);
            CHECK(take_hash(first, first_job, &a) == s_whole);
            CHECK(take_hash(second, second_job, &b) == s_whole);
        }
        sumi_engine_destroy(second);
    }
    sumi_image_desc desc = picture(first_model);
    CHECK(draw_hash(first, &desc, 0) == s_whole);
    close_engine(first);
}

// ---- The demo model -------------------------------------------------------------------------------------------------

// Peak signal to noise over the RGB of two pictures.
static double psnr(const uint8_t* a, const uint8_t* b, size_t pixels)
{
    double sum = 0.0;
    for (size_t i = 0; i < pixels * 4; i++) {
        const double d = i % 4 == 3 ? 0.0 : (double)a[i] - (double)b[i];
        sum += d * d;
    }
    sum /= 3.0 * (double)pixels;
    return sum > 0.0 ? 10.0 * log10(255.0 * 255.0 / sum) : 99.0;
}

// The demo model's picture on a backend; the caller frees. NULL: it could not be drawn.
static uint8_t* draw_demo(sumi_backend backend, sumi_weight_format weights, sumi_result* out_result)
{
    sumi_engine_desc ed = gpu_desc();
    ed.backend = backend;
    if (backend == SUMI_BACKEND_CPU) ed.device_allocator = (sumi_device_allocator){NULL, NULL, NULL};
    ed.cpu_thread_count = 0;
    sumi_engine* engine = NULL;
    *out_result = sumi_engine_create(&ed, &engine);
    CHECK_NUMBER(*out_result, SUMI_OK);
    if (engine == NULL) return NULL;
    uint8_t* copy = NULL;
    sumi_model* model = load(engine, DEMO, weights, out_result);
    if (model != NULL) {
        sumi_image_item item = {.text = "a yellow moon above a purple cat at night, watercolour", .seed = 7};
        sumi_image_desc desc = sumi_image_defaults(model, SUMI_PRESET_MODEL);
        desc.items = &item;
        desc.item_count = 1;
        desc.width = desc.height = 256;
        sumi_job job;
        sumi_image image;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        *out_result = finish(engine, job, 0);
        if (sumi_fetch_images(engine, job, &image, 1) == SUMI_OK) {
            copy = malloc((size_t)256 * 256 * 4);
            memcpy(copy, image.pixels, (size_t)256 * 256 * 4);
            sumi_images_release(engine, &image, 1);
        }
    }
    close_engine(engine);
    return copy;
}

TEST(the_demo_models_picture_is_the_processors)
{
    sumi_result result;
    uint8_t* gpu = draw_demo(SUMI_BACKEND_CUDA, SUMI_WEIGHTS_AUTO, &result);
    CHECK_NUMBER(result, SUMI_OK);
    uint8_t* cpu = draw_demo(SUMI_BACKEND_CPU, SUMI_WEIGHTS_AUTO, &result);
    CHECK_NUMBER(result, SUMI_OK);
    CHECK(gpu != NULL && cpu != NULL);
    if (gpu != NULL && cpu != NULL) {
        const double db = psnr(gpu, cpu, 256 * 256);
        printf("  the demo model's picture: GPU against processor %.2f dB\n", db);
        CHECK(db > 30.0);
    }
    free(gpu), free(cpu);
}

TEST(weights_in_8_bits_draw_nearly_the_same_picture)
{
    static const struct {
        sumi_weight_format weights;
        const char* name;
        double least_db; // that the picture may be off from bfloat16's
    } s_formats[] = {{SUMI_WEIGHTS_FP8, "fp8", 15.0}, {SUMI_WEIGHTS_INT8, "int8", 25.0}};
    sumi_result result;
    uint8_t* whole = draw_demo(SUMI_BACKEND_CUDA, SUMI_WEIGHTS_BF16, &result);
    for (int i = 0; i < 2; i++) {
        uint8_t* none = draw_demo(SUMI_BACKEND_CPU, s_formats[i].weights, &result);
        CHECK(none == NULL);
        CHECK_NUMBER(result, SUMI_NOT_SUPPORTED);
        uint8_t* eight = draw_demo(SUMI_BACKEND_CUDA, s_formats[i].weights, &result);
        if (result == SUMI_NOT_SUPPORTED && s_formats[i].weights == SUMI_WEIGHTS_FP8) {
            CHECK(eight == NULL && strstr(s_host.text, "8.9") != NULL);
            printf("  this GPU has no fp8\n");
        } else {
            CHECK_NUMBER(result, SUMI_OK);
            CHECK(whole != NULL && eight != NULL);
            if (whole != NULL && eight != NULL) {
                const double db = psnr(whole, eight, 256 * 256);
                printf("  the demo model's picture: %s against bfloat16 %.2f dB\n", s_formats[i].name, db);
                CHECK(db > s_formats[i].least_db);
            }
        }
        free(eight);
    }
    free(whole);
}

// How long calls took says something of the machine too, so it is told and not judged. That none waits for the device
// is judged where the stream is held up, and on the fake driver.
static void tell_times(void)
{
    static const char* const stages[8] = {"waiting", "loading",   "preparing", "text",
                                          "image",   "denoising", "decoding",  "transfer"};
    printf("  the longest poll took %.3f ms; of updates of at most 1 ms of work:", s_longest_poll_ms);
    for (int i = 0; i < 8; i++) printf(" %s %.3f%s", stages[i], s_longest_ms[i], i < 7 ? "," : " ms\n");
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

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    pthread_mutex_init(&s_host.lock, NULL);
    const char* filter = t_filter;
    t_filter = NULL;
    RUN(a_host_with_a_gpu);
    if (t_skipped > 0) TEST_END();
    RUN(the_same_bits_at_any_pace); // first, whatever is asked for: the others compare with its picture
    t_filter = filter;
    RUN(memory_may_hold_anything_before);
    RUN(every_family_keeps_its_bits);
    RUN(every_family_keeps_its_budget);
    RUN(a_picture_of_2512_in_bounded_memory);
    RUN(a_batch_is_its_single_pictures);
    RUN(budgets_that_hold_everything_change_nothing);
    RUN(a_budget_that_is_too_small_is_a_result);
    RUN(engines_come_and_go);
    RUN(a_warm_job_allocates_nothing);
    RUN(the_nth_device_allocation_may_fail);
    RUN(jobs_can_be_cancelled_at_any_moment);
    RUN(a_paused_job_keeps_its_bits);
    RUN(engines_can_go_in_the_middle);
    RUN(weights_that_are_not_finite_give_a_result);
    RUN(the_hosts_context_and_stream_are_used_and_left_alone);
    RUN(pictures_that_stay_on_the_device_have_the_same_bits);
    RUN(two_engines_in_one_process);
    RUN(the_demo_models_picture_is_the_processors);
    RUN(weights_in_8_bits_draw_nearly_the_same_picture);
    tell_times();
    TEST_END();
}
