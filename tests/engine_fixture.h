// What the tests of the engine share: the tiny checkpoint, golden cases, an engine that loads a model and makes an
// image in one call, an allocator that counts and fails.
#ifndef ENGINE_FIXTURE_H
#define ENGINE_FIXTURE_H
#include "files/tensors.h"
#include "system.h"
#include "test.h"
#include <limits.h>
#include <stdatomic.h>
#include <sumi.h>

#define MODEL_PATH "tests/golden/z-image/model"
#define CASES "tests/golden/z-image/cases/"

// ---- A host program -------------------------------------------------------------------------------------------------

// Thread-safe, because worker threads allocate too.
typedef struct host {
    atomic_llong count; // allocations so far
    atomic_llong live;  // blocks that were not released
    atomic_llong live_bytes;
    atomic_llong peak_bytes; // the largest value of live_bytes since a test set this
    atomic_llong fail_at;    // the allocation that fails (1 is the first); 0: none
    atomic_int wrong_releases;
    char log[512]; // the newest text
    sumi_result log_result;
    int log_count;
} host;

typedef struct host_header {
    size_t bytes;
    size_t check;
} host_header;

static inline void* host_allocate(size_t bytes, size_t alignment, void* user_data)
{
    host* h = user_data;
    long long n = atomic_fetch_add(&h->count, 1) + 1;
    if (atomic_load(&h->fail_at) == n) return NULL;
    size_t front = alignment > sizeof(host_header) ? alignment : 64;
    unsigned char* block = system_allocate(front + bytes, front);
    if (block == NULL) return NULL;
    *(host_header*)(void*)block = (host_header){bytes, bytes ^ 0x5a5au};
    atomic_fetch_add(&h->live, 1);
    const long long now = atomic_fetch_add(&h->live_bytes, (long long)bytes) + (long long)bytes;
    long long peak = atomic_load(&h->peak_bytes);
    while (now > peak && !atomic_compare_exchange_weak(&h->peak_bytes, &peak, now)) {}
    return block + front;
}

static inline void host_release(void* memory, size_t bytes, void* user_data)
{
    host* h = user_data;
    unsigned char* block = (unsigned char*)memory - 64;
    host_header header = *(host_header*)(void*)block;
    if (header.bytes != bytes || header.check != (bytes ^ 0x5a5au)) atomic_fetch_add(&h->wrong_releases, 1);
    atomic_fetch_sub(&h->live, 1);
    atomic_fetch_sub(&h->live_bytes, (long long)bytes);
    system_release(block);
}

static inline void host_log(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    host* h = user_data;
    if (level != SUMI_LOG_ERROR) return;
    snprintf(h->log, sizeof h->log, "%s", text);
    h->log_result = result;
    h->log_count++;
}

// The allocator of a host's descs. It is not a member of the host, which tests clear after they have made a desc. Two
// threads may make descs at once.
static inline const sumi_allocator* host_allocator(host* h)
{
    static _Thread_local sumi_allocator s_allocators[8];
    size_t i = 0;
    while (i < 7 && s_allocators[i].user_data != NULL && s_allocators[i].user_data != h) i++;
    s_allocators[i] = (sumi_allocator){host_allocate, host_release, h};
    return &s_allocators[i];
}

static inline sumi_engine_desc host_desc(host* h)
{
    sumi_engine_desc desc = sumi_engine_defaults();
    desc.backend = SUMI_BACKEND_CPU; // the same bits on every machine, with a GPU or without
    desc.allocator = host_allocator(h);
    desc.log = (sumi_log){host_log, h};
    return desc;
}

// ---- In one call ----------------------------------------------------------------------------------------------------

static inline sumi_model* load_model_of(sumi_engine* engine, const sumi_model_desc* desc)
{
    sumi_job job;
    sumi_model* model = NULL;
    if (sumi_submit_model(engine, desc, &job) != SUMI_OK) return NULL;
    sumi_job_wait(engine, job, SUMI_FOREVER);
    sumi_job_status status = sumi_job_poll(engine, job);
    if (status.result != SUMI_OK) printf("  %s: %s\n", desc->path, status.message);
    if (sumi_fetch_model(engine, job, &model) != SUMI_OK) return NULL;
    return model;
}
static inline sumi_model* load_model_at(sumi_engine* engine, const char* path)
{
    sumi_model_desc desc = sumi_model_defaults();
    desc.path = path;
    return load_model_of(engine, &desc);
}
static inline sumi_model* load_model(sumi_engine* engine) { return load_model_at(engine, MODEL_PATH); }

static inline sumi_engine* open_engine(const sumi_engine_desc* desc, sumi_model** out_model)
{
    sumi_engine* engine = NULL;
    if (sumi_engine_create(desc, &engine) != SUMI_OK) return NULL;
    if (out_model != NULL && (*out_model = load_model(engine)) == NULL) {
        sumi_engine_destroy(engine);
        return NULL;
    }
    return engine;
}

// A desc of a small image with one item; the test changes members before it submits.
static inline sumi_image_desc small_image(sumi_model* model, const sumi_image_item* item)
{
    sumi_image_desc desc = sumi_image_defaults(model, SUMI_PRESET_MODEL);
    desc.items = item;
    desc.item_count = 1;
    desc.width = desc.height = 32;
    desc.step_count = 2;
    return desc;
}

static inline sumi_result draw(sumi_engine* engine, const sumi_image_desc* desc, sumi_image* out_images)
{
    sumi_job job;
    sumi_result result = sumi_submit_images(engine, desc, &job);
    if (result != SUMI_OK) return result;
    sumi_job_wait(engine, job, SUMI_FOREVER);
    return sumi_fetch_images(engine, job, out_images, desc->item_count);
}

static inline uint64_t hash_bytes(const void* data, size_t bytes)
{
    const unsigned char* at = data;
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ at[i]) * 1099511628211u;
    return hash;
}

static inline uint64_t hash_image(const sumi_image* image)
{
    return image->pixels != NULL ? hash_bytes(image->pixels, (size_t)image->row_bytes * (size_t)image->height) : 0;
}

// Values of an image's latents.
static inline size_t latent_count(const sumi_image_desc* desc)
{
    const sumi_model_info info = sumi_model_get_info(desc->model);
    return (size_t)info.latent_channels * (size_t)(desc->width / info.latent_factor)
         * (size_t)(desc->height / info.latent_factor);
}

// A hash of the pixels and the latents of a finished job; 0 after a failure.
static inline uint64_t fetch_hash(sumi_engine* engine, sumi_job job, const sumi_image_desc* desc)
{
    uint64_t hash = 0;
    const size_t count = latent_count(desc);
    float* latents = malloc(count * sizeof *latents);
    for (int32_t i = 0; i < desc->item_count; i++) {
        if (sumi_job_latents(engine, job, i, latents, count) == SUMI_OK)
            hash = hash * 31 + hash_bytes(latents, count * sizeof *latents);
    }
    free(latents);
    sumi_image images[64];
    sumi_result result = sumi_fetch_images(engine, job, images, 64);
    if (result != SUMI_OK) {
        printf("  a picture failed: %s\n", sumi_result_text(result));
        return 0;
    }
    for (int32_t i = 0; i < desc->item_count; i++) hash = hash * 31 + hash_image(&images[i]);
    sumi_images_release(engine, images, desc->item_count);
    return hash;
}

static inline uint64_t draw_hash(sumi_engine* engine, const sumi_image_desc* desc)
{
    sumi_job job;
    if (sumi_submit_images(engine, desc, &job) != SUMI_OK) return 0;
    sumi_job_wait(engine, job, SUMI_FOREVER);
    return fetch_hash(engine, job, desc);
}

// ---- Golden cases ---------------------------------------------------------------------------------------------------

typedef struct golden {
    sumi_heap heap;
    sumi_tensor_set set;
} golden;

static inline bool golden_open(golden* g, const char* name)
{
    char path[256];
    snprintf(path, sizeof path, CASES "%s.safetensors", name);
    sumi_heap_init(&g->heap, NULL);
    sumi_tensor_set_init(&g->set, &g->heap, NULL);
    sumi_error error = {0};
    if (sumi_tensor_set_open(&g->set, path, &error) == SUMI_OK) return true;
    printf("  %s\n", error.text);
    sumi_tensor_set_close(&g->set);
    return false;
}
static inline void golden_close(golden* g) { sumi_tensor_set_close(&g->set); }

// An aligned copy, which the caller frees. NULL: there is no such tensor.
static inline void* golden_copy(golden* g, const char* name)
{
    const sumi_tensor* tensor = sumi_tensor_find(&g->set, name);
    if (tensor == NULL) return NULL;
    void* copy = malloc((size_t)tensor->bytes + 1);
    memcpy(copy, tensor->data, (size_t)tensor->bytes);
    return copy;
}

static inline size_t golden_count(golden* g, const char* name)
{
    const sumi_tensor* tensor = sumi_tensor_find(&g->set, name);
    size_t count = tensor != NULL ? 1 : 0;
    for (int32_t i = 0; tensor != NULL && i < tensor->rank; i++) count *= (size_t)tensor->shape[i];
    return count;
}

// The largest difference of an RGBA image from golden RGB.
static inline int picture_difference(const sumi_image* image, const uint8_t* rgb)
{
    int most = 0;
    for (int32_t y = 0; y < image->height; y++) {
        const uint8_t* row = (const uint8_t*)image->pixels + (size_t)y * (size_t)image->row_bytes;
        for (int32_t x = 0; x < image->width; x++, rgb += 3) {
            for (int c = 0; c < 3; c++) {
                int d = abs((int)row[4 * x + c] - (int)rgb[c]);
                most = d > most ? d : most;
            }
            if (row[4 * x + 3] != 255) most = 256;
        }
    }
    return most;
}

static inline double relative_error(const float* got, const float* want, size_t count)
{
    double error = 0.0, norm = 0.0;
    for (size_t i = 0; i < count; i++) {
        double d = (double)got[i] - (double)want[i];
        error += d * d;
        norm += (double)want[i] * (double)want[i];
    }
    return sqrt(error / (norm > 0.0 ? norm : 1.0));
}
// ---- The begin and the end of most tests ----------------------------------------------------------------------------

#define LORA_PATH "tests/golden/z-image/lora/"

static host s_host;

// A slice_us below the default cuts the tiny model's work into enough slices to stop in the middle.
static inline sumi_engine* fresh_engine_with(uint32_t slice_us, sumi_model** out_model)
{
    memset(&s_host, 0, sizeof s_host);
    sumi_engine_desc desc = host_desc(&s_host);
    desc.max_slice_us = slice_us;
    return open_engine(&desc, out_model);
}

// Every test ends with this. It checks that all memory was released, with the sizes that it was allocated with.
static inline void close_engine(sumi_engine* engine)
{
    sumi_engine_destroy(engine);
    CHECK_NUMBER(s_host.live, 0);
    CHECK_NUMBER(s_host.live_bytes, 0);
    CHECK_NUMBER(s_host.wrong_releases, 0);
}

#define OPEN_WITH(slice_us, engine, model)                                                                             \
    sumi_model* model = NULL;                                                                                          \
    sumi_engine* engine = fresh_engine_with(slice_us, &model);                                                         \
    CHECK(engine != NULL);                                                                                             \
    if (engine == NULL) return
#define OPEN(engine, model) OPEN_WITH(2000, engine, model)

static const sumi_image_item s_item = {.text = "a red fox", .seed = 7};

static inline sumi_prompt* encode_prompt_of(sumi_engine* engine, const sumi_prompt_desc* desc)
{
    sumi_job job;
    sumi_prompt* prompt = NULL;
    CHECK_NUMBER(sumi_submit_prompt(engine, desc, &job), SUMI_OK);
    CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
    CHECK_NUMBER(sumi_fetch_prompt(engine, job, &prompt), SUMI_OK);
    return prompt;
}
// references: `count` of them, or NULL.
static inline sumi_prompt* encode_with(sumi_engine* engine, sumi_model* model, const char* text,
                                       const sumi_pixels* references, int32_t count)
{
    sumi_prompt_desc desc = sumi_prompt_defaults(model);
    desc.text = text;
    desc.references = references;
    desc.reference_count = count;
    return encode_prompt_of(engine, &desc);
}
static inline sumi_prompt* encode_prompt(sumi_engine* engine, sumi_model* model, const char* text)
{
    return encode_with(engine, model, text, NULL, 0);
}

// A job that is no image: 0 loads a model, 1 encodes a prompt, 2 encodes an image, 3 reads an adapter.
static inline sumi_job submit_kind(sumi_engine* engine, sumi_model* model, int kind)
{
    static const uint8_t s_grey[16 * 16];
    const sumi_pixels pixels = {s_grey, 16, 16, 0, 1};
    sumi_model_desc md = sumi_model_defaults();
    md.path = MODEL_PATH;
    sumi_prompt_desc pd = sumi_prompt_defaults(model);
    pd.text = "a lighthouse";
    sumi_encode_desc ed = sumi_encode_defaults(model);
    ed.image = &pixels;
    ed.width = ed.height = 16;
    sumi_lora_desc ld = sumi_lora_defaults(model);
    ld.path = LORA_PATH "lora_kohya.safetensors";
    sumi_job job = {0};
    CHECK_NUMBER(kind == 0   ? sumi_submit_model(engine, &md, &job)
                 : kind == 1 ? sumi_submit_prompt(engine, &pd, &job)
                 : kind == 2 ? sumi_submit_encode(engine, &ed, &job)
                             : sumi_submit_lora(engine, &ld, &job),
                 SUMI_OK);
    return job;
}

// Gives a job up at any moment, cancelled first or not. Its handle is stale at once.
static inline void give_up(sumi_engine* engine, sumi_job job, bool cancels)
{
    const bool is_done = sumi_job_poll(engine, job).state >= SUMI_JOB_DONE;
    if (cancels) {
        sumi_job_cancel(engine, job);
        sumi_engine_update(engine, 1);
        CHECK_NUMBER(sumi_job_poll(engine, job).state, is_done ? SUMI_JOB_DONE : SUMI_JOB_CANCELLED);
    }
    sumi_job_discard(engine, job);
    CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_NONE);
}

static inline sumi_result import_gl_texture(sumi_engine* engine, uint32_t name, uint32_t target, int32_t width,
                                            int32_t height, sumi_external** out_external)
{
    sumi_import_desc desc = sumi_import_defaults();
    desc.kind = SUMI_EXTERNAL_GL_TEXTURE;
    desc.gl_name = name;
    desc.gl_target = target;
    desc.width = width;
    desc.height = height;
    return sumi_import(engine, &desc, out_external);
}

static inline sumi_lora* read_lora_at(sumi_engine* engine, sumi_model* model, const char* path)
{
    sumi_lora_desc desc = sumi_lora_defaults(model);
    desc.path = path;
    sumi_job job;
    sumi_lora* lora = NULL;
    CHECK_NUMBER(sumi_submit_lora(engine, &desc, &job), SUMI_OK);
    CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
    CHECK_NUMBER(sumi_fetch_lora(engine, job, &lora), SUMI_OK);
    return lora;
}

static inline sumi_lora* read_lora(sumi_engine* engine, sumi_model* model, const char* name)
{
    char path[256];
    snprintf(path, sizeof path, LORA_PATH "%s", name);
    return read_lora_at(engine, model, path);
}

// Text, guidance, two items, a start image with a sample: most of what a job can have.
static inline void rich_image(sumi_image_desc* desc, sumi_model* model)
{
    static const sumi_image_item s_items[2] = {{.text = "a red fox", .negative_text = "grey", .seed = 3},
                                               {.text = "a lighthouse at dusk", .seed = 4}};
    static uint8_t s_pixels[48 * 40 * 4];
    static bool s_is_filled; // two threads may share the picture once it is filled
    for (size_t i = 0; !s_is_filled && i < sizeof s_pixels; i++) s_pixels[i] = (uint8_t)(i * 37 + i / 191);
    if (!s_is_filled) s_is_filled = true;
    static sumi_pixels s_start = {s_pixels, 40, 48, 0, 4};
    *desc = small_image(model, s_items);
    desc->item_count = 2;
    desc->step_count = 3;
    desc->guidance.scale = 2.0f;
    desc->guidance.end = 0.5f;
    desc->start.image = &s_start;
    desc->start.strength = 0.9f;
    desc->solver = SUMI_SOLVER_HEUN;
}

// Draws a job that stops after every step, and copies its latents there, `count` values for each item. False if it did not
// stop after one of its steps.
static inline bool draw_by_steps(sumi_engine* engine, const sumi_image_desc* desc, float* latents, size_t count)
{
    sumi_job job;
    sumi_job_status status;
    bool has_asked = false;
    int step = 0;
    CHECK_NUMBER(sumi_submit_images(engine, desc, &job), SUMI_OK);
    while ((status = sumi_job_poll(engine, job)).state < SUMI_JOB_DONE) {
        if (status.state == SUMI_JOB_RUNNING && status.stage == SUMI_STAGE_DENOISE && !has_asked) {
            CHECK_NUMBER(sumi_job_latents(engine, job, 0, latents, count), SUMI_WRONG_STATE); // it runs
            has_asked = sumi_job_pause(engine, job, true) == SUMI_OK;
        } else if (status.state == SUMI_JOB_QUEUED && status.paused) {
            if (status.step != ++step) return false;
            for (int32_t i = 0; i < desc->item_count; i++)
                CHECK_NUMBER(
                    sumi_job_latents(engine, job, i, latents + (size_t)(step * desc->item_count + i) * count, count),
                    SUMI_OK);
            CHECK_NUMBER(sumi_job_latents(engine, job, desc->item_count, latents, count), SUMI_INVALID_ARGUMENT);
            CHECK_NUMBER(sumi_job_latents(engine, job, 0, latents, count - 1), SUMI_INVALID_ARGUMENT);
            has_asked = false;
            CHECK_NUMBER(sumi_job_pause(engine, job, false), SUMI_OK);
            CHECK_NUMBER(sumi_job_latents(engine, job, 0, latents, count), SUMI_WRONG_STATE); // it will run
        }
        sumi_engine_update(engine, 1);
    }
    sumi_job_discard(engine, job);
    return step == desc->step_count - 1;
}

// Counts the frames of a loop that waits for an event. An update does a piece of work however slow the machine is, and
// no test has so many pieces: then the event will not come, and the test fails instead of running forever.
#define MAX_FRAMES 200000
static inline bool count_frame(int32_t* frames)
{
    const bool goes_on = ++*frames <= MAX_FRAMES;
    CHECK(goes_on);
    return goes_on;
}

// Runs a job until it is in the stage DENOISE. That needs small slices.
static inline void run_until_denoise(sumi_engine* engine, sumi_job job)
{
    int32_t frames = 0;
    while (sumi_job_poll(engine, job).state < SUMI_JOB_DONE && sumi_job_poll(engine, job).stage != SUMI_STAGE_DENOISE
           && count_frame(&frames))
        sumi_engine_update(engine, 1);
    CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_RUNNING);
}

// Files from an archive of the host program. They cannot be mapped, so everything is read. One tensor of one file may
// be damaged when it is read.
typedef struct archive {
    int open_count, opened;
    const char* damages;
    bool refuses;
} archive;
typedef struct archive_file {
    FILE* file;
    bool is_damaged;
    uint64_t bytes;
} archive_file;
static inline void* archive_open(const char* path, uint64_t* out_bytes, void* user_data)
{
    archive* a = user_data;
    FILE* file = fopen(path, "rb");
    if (file == NULL) return NULL;
    if (fseek(file, 0, SEEK_END) != 0 || ftell(file) == LONG_MAX) { // a folder can be opened too
        fclose(file);
        return NULL;
    }
    archive_file* f = malloc(sizeof *f);
    f->file = file;
    f->bytes = *out_bytes = (uint64_t)ftell(file);
    f->is_damaged = a->damages != NULL && strstr(path, a->damages) != NULL && strstr(path, ".safetensors") != NULL
                 && strstr(path, ".json") == NULL;
    a->open_count++;
    a->opened++;
    return f;
}
static inline bool archive_read(void* file, uint64_t offset, void* into, size_t bytes, void* user_data)
{
    archive_file* f = file;
    if (((archive*)user_data)->refuses) return false;
    if (fseek(f->file, (long)offset, SEEK_SET) != 0 || fread(into, 1, bytes, f->file) != bytes) return false;
    for (size_t i = 0; f->is_damaged && i < bytes; i++) {
        if (offset + i + 64 >= f->bytes) ((unsigned char*)into)[i] = 0xff; // the last values are NaN
    }
    return true;
}
static inline void archive_close(void* file, void* user_data)
{
    ((archive*)user_data)->open_count--;
    fclose(((archive_file*)file)->file);
    free(file);
}

// The simplest job system of a host program: it cuts the loop into uneven ranges and runs them in reverse order on the
// calling thread.
typedef struct tasks_host {
    int begun, finished;
} tasks_host;
static inline void* begin_task(sumi_task* task, int32_t item_count, int32_t min_range, void* task_context,
                               void* user_data)
{
    tasks_host* h = user_data;
    h->begun++;
    int32_t size = min_range * 2 + 1, pieces = (item_count + size - 1) / size;
    for (int32_t i = pieces - 1; i >= 0; i--)
        task(i * size, (i + 1) * size < item_count ? (i + 1) * size : item_count, i % 3, task_context);
    return h;
}
static inline void finish_task(void* handle, void* user_data)
{
    (void)handle;
    ((tasks_host*)user_data)->finished++;
}

#endif
