// A picture that stays on the GPU: it is written to memory of the host's, and an event says when. The host owns the
// CUDA context; sumi works in it.
#include "cookbook.h"
#include "system.h"
#include <string.h>

// Of the driver, found by name, so that the cookbook starts on machines without it. Returns are CUresult: 0 is success.
typedef struct cuda_driver {
    int (*init)(unsigned flags);
    int (*device_get)(int* device, int ordinal);
    int (*retain)(struct CUctx_st** context, int device);
    int (*release)(int device);
    int (*context_push)(struct CUctx_st* context);
    int (*context_pop)(struct CUctx_st** context);
    int (*stream_create)(struct CUstream_st** stream, unsigned flags, int priority);
    int (*stream_destroy)(struct CUstream_st* stream);
    int (*stream_wait)(struct CUstream_st* stream, struct CUevent_st* event, unsigned flags);
    int (*stream_synchronize)(struct CUstream_st* stream);
    int (*event_create)(struct CUevent_st** event, unsigned flags);
    int (*event_destroy)(struct CUevent_st* event);
    int (*allocate)(unsigned long long* address, size_t bytes);
    int (*free_memory)(unsigned long long address);
    int (*allocate_locked)(void** memory, size_t bytes, unsigned flags);
    int (*free_locked)(void* memory);
    int (*copy)(void* into, unsigned long long from, size_t bytes, struct CUstream_st* stream);
} cuda_driver;
enum { NON_BLOCKING = 1, WITHOUT_TIMING = 2 };

typedef struct gpu {
    void* library;
    cuda_driver call;
    int device;
    struct CUctx_st* context;
    bool is_current;
    struct CUstream_st* stream;
    struct CUevent_st* event;
    unsigned long long memory; // of the device, where the picture goes
    void* pixels;              // page-locked, to look at it
} gpu;

static bool open_gpu(gpu* g)
{
    const struct {
        const char* name;
        void* into;
    } entries[] = {
        {"cuInit", &g->call.init},
        {"cuDeviceGet", &g->call.device_get},
        {"cuDevicePrimaryCtxRetain", &g->call.retain},
        {"cuDevicePrimaryCtxRelease_v2", &g->call.release},
        {"cuCtxPushCurrent_v2", &g->call.context_push},
        {"cuCtxPopCurrent_v2", &g->call.context_pop},
        {"cuStreamCreateWithPriority", &g->call.stream_create},
        {"cuStreamDestroy_v2", &g->call.stream_destroy},
        {"cuStreamWaitEvent", &g->call.stream_wait},
        {"cuStreamSynchronize", &g->call.stream_synchronize},
        {"cuEventCreate", &g->call.event_create},
        {"cuEventDestroy_v2", &g->call.event_destroy},
        {"cuMemAlloc_v2", &g->call.allocate},
        {"cuMemFree_v2", &g->call.free_memory},
        {"cuMemHostAlloc", &g->call.allocate_locked},
        {"cuMemFreeHost", &g->call.free_locked},
        {"cuMemcpyDtoHAsync_v2", &g->call.copy},
    };
#if defined(_WIN32)
    g->library = system_library_open("nvcuda.dll");
#else
    g->library = system_library_open("libcuda.so.1");
#endif
    if (!g->library) return false;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        void* symbol = system_library_find(g->library, entries[i].name);
        if (!symbol) return false;
        memcpy(entries[i].into, &symbol, sizeof symbol);
    }
    if (g->call.init(0) != 0 || g->call.device_get(&g->device, 0) != 0 || g->call.retain(&g->context, g->device) != 0)
        return false;
    g->is_current = g->call.context_push(g->context) == 0;
    return g->is_current && g->call.stream_create(&g->stream, NON_BLOCKING, 0) == 0
        && g->call.event_create(&g->event, WITHOUT_TIMING) == 0;
}

static void close_gpu(gpu* g)
{
    if (g->pixels) g->call.free_locked(g->pixels);
    if (g->memory) g->call.free_memory(g->memory);
    if (g->event) g->call.event_destroy(g->event);
    if (g->stream) g->call.stream_destroy(g->stream);
    if (g->is_current) g->call.context_pop(&(struct CUctx_st*){NULL});
    if (g->context) g->call.release(g->device);
    system_library_close(g->library);
}

static sumi_result draw(const recipe_host* host, gpu* g, sumi_engine* engine, sumi_model* model)
{
    sumi_image_item item = {.text = host->prompt, .seed = 7};
    sumi_image_desc desc = sumi_image_defaults(model, SUMI_PRESET_MODEL);
    desc.items = &item;
    desc.item_count = 1;
    const size_t row_bytes = (size_t)desc.width * 4, bytes = row_bytes * (size_t)desc.height;
    if (g->call.allocate(&g->memory, bytes) != 0 || g->call.allocate_locked(&g->pixels, bytes, 0) != 0)
        return SUMI_OUT_OF_DEVICE_MEMORY;
    // [excerpt device_memory]
    sumi_target target = {.format = SUMI_FORMAT_RGBA8, .device_address = g->memory, .event = g->event};
    desc.targets = &target; // one for each item
    sumi_job job;
    sumi_image image;
    sumi_result result = sumi_submit_images(engine, &desc, &job);
    if (result == SUMI_OK) sumi_job_wait(engine, job, SUMI_FOREVER); // a game updates and polls
    if (result == SUMI_OK) result = sumi_fetch_images(engine, job, &image, 1);
    if (result != SUMI_OK) return result;
    // image.pixels is NULL. Work of this stream comes behind the picture, and no processor waits for it.
    if (g->call.stream_wait(g->stream, g->event, 0) != 0) return SUMI_DEVICE_LOST;
    // [end]
    if (g->call.copy(g->pixels, g->memory, bytes, g->stream) != 0 || g->call.stream_synchronize(g->stream) != 0)
        return SUMI_DEVICE_LOST;
    image.pixels = g->pixels;
    image.row_bytes = (int32_t)row_bytes;
    return recipe_write(host, &image);
}

sumi_result recipe_device_memory(const recipe_host* host)
{
    gpu g = {0};
    sumi_engine* engine = NULL;
    sumi_model* model;
    sumi_result result = open_gpu(&g) ? SUMI_OK : SUMI_NO_DEVICE;
    // [excerpt device_engine]
    sumi_engine_desc desc = sumi_engine_defaults();
    desc.backend = SUMI_BACKEND_CUDA; // fails where AUTO would take the processor, which has no device addresses
    desc.cuda.context = g.context;    // the memory is of this context
    // [end]
    desc.log.write = recipe_log;
    if (result == SUMI_OK) result = sumi_engine_create(&desc, &engine);
    if (result == SUMI_OK) result = sumi_open_model(engine, host->model_path, &model);
    if (result == SUMI_OK) result = draw(host, &g, engine, model);
    sumi_engine_destroy(engine); // before the memory and the context
    close_gpu(&g);
    return result;
}
