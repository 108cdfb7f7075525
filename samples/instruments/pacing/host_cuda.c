// A host that computes with CUDA in the context that sumi works in (physics, a renderer of its own): there nothing but
// the streams' priorities decides whose blocks come first. Its kernel is the text below, compiled by the driver.
#include "host.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PASSES 16
#define BLOCK 256
#define BLOCKS_PER_PROCESSOR 32 // four rounds of all that fit: a block ends soon, so priorities matter often

static const char s_kernel[] = ".version 7.0\n"
                               ".target sm_80\n"
                               ".address_size 64\n"
                               ".visible .entry spin(.param .u64 out, .param .s32 count)\n"
                               "{\n"
                               "    .reg .pred %p;\n"
                               "    .reg .f32 %x, %y;\n"
                               "    .reg .b32 %left, %t, %b, %n;\n"
                               "    .reg .b64 %address, %offset;\n"
                               "    ld.param.u64 %address, [out];\n"
                               "    ld.param.s32 %left, [count];\n"
                               "    mov.u32 %t, %tid.x;\n"
                               "    mov.u32 %b, %ctaid.x;\n"
                               "    mov.u32 %n, %ntid.x;\n"
                               "    mad.lo.s32 %t, %b, %n, %t;\n"
                               "    cvt.rn.f32.s32 %x, %t;\n"
                               "    mov.f32 %y, 0f3F7FBE77;\n" // 0.999
                               "again:\n"
                               "    fma.rn.f32 %x, %x, %y, %y;\n"
                               "    fma.rn.f32 %x, %x, %y, %y;\n"
                               "    fma.rn.f32 %x, %x, %y, %y;\n"
                               "    fma.rn.f32 %x, %x, %y, %y;\n"
                               "    add.s32 %left, %left, -1;\n"
                               "    setp.gt.s32 %p, %left, 0;\n"
                               "    @%p bra again;\n"
                               "    mul.wide.s32 %offset, %t, 4;\n"
                               "    add.s64 %address, %address, %offset;\n"
                               "    st.global.f32 [%address], %x;\n"
                               "    ret;\n"
                               "}\n";

typedef struct CUctx_st* context_handle;
enum { NOT_READY = 600, NON_BLOCKING = 1, WITHOUT_TIMING = 2, PROCESSOR_COUNT = 16 };

typedef struct cuda_host {
    host base;
    void *library, *module, *function, *stream;
    void* events[FRAMES_IN_FLIGHT];
    bool has_event[FRAMES_IN_FLIGHT];
    int device, processors;
    bool has_context;
    unsigned long long memory;

    int (*init)(unsigned flags);
    int (*device_get)(int* device, int ordinal);
    int (*device_name)(char* name, int bytes, int device);
    int (*device_attribute)(int* value, int attribute, int device);
    int (*retain)(context_handle* context, int device);
    int (*release)(int device);
    int (*context_set)(context_handle context);
    int (*load)(void** module, const void* image);
    int (*unload)(void* module);
    int (*get_function)(void** function, void* module, const char* name);
    int (*priorities)(int* least, int* greatest);
    int (*stream_create)(void** stream, unsigned flags, int priority);
    int (*stream_destroy)(void* stream);
    int (*event_create)(void** event, unsigned flags);
    int (*event_record)(void* event, void* stream);
    int (*event_query)(void* event);
    int (*event_destroy)(void* event);
    int (*allocate)(unsigned long long* address, size_t bytes);
    int (*free_memory)(unsigned long long address);
    int (*launch)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                  unsigned block_z, unsigned shared_bytes, void* stream, void** arguments, void** extra);
} cuda_host;

static bool find_entries(cuda_host* c)
{
    const struct {
        const char* name;
        void* into;
    } entries[] = {
        {"cuInit", &c->init},
        {"cuDeviceGet", &c->device_get},
        {"cuDeviceGetName", &c->device_name},
        {"cuDeviceGetAttribute", &c->device_attribute},
        {"cuDevicePrimaryCtxRetain", &c->retain},
        {"cuDevicePrimaryCtxRelease_v2", &c->release},
        {"cuCtxSetCurrent", &c->context_set},
        {"cuModuleLoadData", &c->load},
        {"cuModuleUnload", &c->unload},
        {"cuModuleGetFunction", &c->get_function},
        {"cuCtxGetStreamPriorityRange", &c->priorities},
        {"cuStreamCreateWithPriority", &c->stream_create},
        {"cuStreamDestroy_v2", &c->stream_destroy},
        {"cuEventCreate", &c->event_create},
        {"cuEventRecord", &c->event_record},
        {"cuEventQuery", &c->event_query},
        {"cuEventDestroy_v2", &c->event_destroy},
        {"cuMemAlloc_v2", &c->allocate},
        {"cuMemFree_v2", &c->free_memory},
        {"cuLaunchKernel", &c->launch},
    };
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        void* symbol = dlsym(c->library, entries[i].name);
        if (symbol == NULL) return false;
        memcpy(entries[i].into, &symbol, sizeof symbol);
    }
    return true;
}

static bool open_context(cuda_host* c)
{
    if (c->init(0) != 0 || c->device_get(&c->device, 0) != 0
        || c->device_attribute(&c->processors, PROCESSOR_COUNT, c->device) != 0)
        return false;
    c->has_context = c->retain(&c->base.context, c->device) == 0;
    return c->has_context && c->context_set(c->base.context) == 0;
}

static bool open_stream(cuda_host* c)
{
    int least, greatest;
    if (c->priorities(&least, &greatest) != 0 || c->stream_create(&c->stream, NON_BLOCKING, greatest) != 0)
        return false;
    for (int32_t i = 0; i < FRAMES_IN_FLIGHT; i++) {
        if (c->event_create(&c->events[i], WITHOUT_TIMING) != 0) return false;
        c->has_event[i] = true;
    }
    return c->allocate(&c->memory, (size_t)c->processors * BLOCKS_PER_PROCESSOR * BLOCK * sizeof(float)) == 0;
}

static void cuda_submit(host* h, int32_t slot)
{
    cuda_host* c = (cuda_host*)h;
    int32_t count = (int32_t)h->work;
    void* arguments[] = {&c->memory, &count};
    for (int32_t i = 0; i < PASSES; i++)
        c->launch(c->function, (unsigned)c->processors * BLOCKS_PER_PROCESSOR, 1, 1, BLOCK, 1, 1, 0, c->stream,
                  arguments, NULL);
    c->event_record(c->events[slot], c->stream);
}

static bool cuda_finished(host* h, int32_t slot)
{
    cuda_host* c = (cuda_host*)h;
    return c->event_query(c->events[slot]) != NOT_READY;
}

static void cuda_destroy(host* h)
{
    cuda_host* c = (cuda_host*)h;
    for (int32_t i = 0; i < FRAMES_IN_FLIGHT; i++) {
        if (c->has_event[i]) c->event_destroy(c->events[i]);
    }
    if (c->stream != NULL) c->stream_destroy(c->stream);
    if (c->memory != 0) c->free_memory(c->memory);
    if (c->module != NULL) c->unload(c->module);
    if (c->has_context) {
        c->context_set(NULL);
        c->release(c->device);
    }
    if (c->library != NULL) dlclose(c->library);
    free(c);
}

host* host_open_cuda(char why[256])
{
    cuda_host* c = calloc(1, sizeof *c);
    const char* reason = NULL;
    char name[128] = "";
    if (c == NULL) reason = "no memory";
    else if ((c->library = dlopen("libcuda.so.1", RTLD_NOW)) == NULL) reason = "there is no NVIDIA driver here";
    else if (!find_entries(c)) reason = "the NVIDIA driver lacks an entry that is needed";
    else if (!open_context(c)) reason = "the NVIDIA driver has no device";
    else if (c->load(&c->module, s_kernel) != 0 || c->get_function(&c->function, c->module, "spin") != 0)
        reason = "the NVIDIA driver does not compile the kernel";
    else if (!open_stream(c)) reason = "the NVIDIA driver makes no stream";
    if (reason != NULL) {
        snprintf(why, 256, "%s", reason);
        if (c != NULL) cuda_destroy(&c->base);
        return NULL;
    }
    c->base.work = 100.0;
    c->base.submit = cuda_submit;
    c->base.finished = cuda_finished;
    c->base.destroy = cuda_destroy;
    c->device_name(name, sizeof name, c->device);
    snprintf(c->base.device, sizeof c->base.device, "%s, CUDA in sumi's context, a stream of the highest priority",
             name);
    return &c->base;
}
