// A host that draws with Direct3D 12, without a window: previews and the picture are copied to its screen on the GPU, and
// no pixel goes through host memory. Windows only.
//     d3d12 MODEL "a lighthouse at dusk, ink wash" [out.png]
//
//   Direct3D 12                                              sumi
//   shared buffer                   -- NT handle -->         sumi_import: external
//   shared ID3D12Fence `ready`      -- NT handle -->         sumi_import: what sumi signals when an image is there
//   shared ID3D12Fence `drawn`      -- NT handle -->         sumi_import: what sumi waits for before it writes
//
// Image n waits for `drawn` n - 1 and signals `ready` n. Each frame looks at the value of `ready`, copies the image if
// there is a new one and signals `drawn` n; otherwise the screen stays as it is. So neither side ever waits for the other. At the end the screen is read back and compared with the same picture in
// host memory: not one bit may differ. samples/vulkan is the same with a render pass, and with a way for other backends.
#define COBJMACROS
#define INITGUID
#include <windows.h>
// windows.h comes first
#include "picture.h"
#include "system.h"
#include <d3d12.h>
#include <dxgi1_4.h>
#include <stdlib.h>
#include <string.h>
#include <sumi.h>

static void die(const char* what, const char* why)
{
    fprintf(stderr, "d3d12: %s: %s\n", what, why);
    exit(1);
}

static void skip(const char* why)
{
    printf("skipped: %s\n", why);
    exit(0);
}

static void d3d_or_die(HRESULT result, const char* what)
{
    char why[32];
    snprintf(why, sizeof why, "HRESULT %#lx", (unsigned long)result);
    if (FAILED(result)) die(what, why);
}

static void sumi_or_die(sumi_result result, const char* what)
{
    if (result != SUMI_OK) die(what, sumi_result_text(result));
}

typedef struct host {
    ID3D12Device* device;
    ID3D12CommandQueue* queue;
    ID3D12CommandAllocator* allocator;
    ID3D12GraphicsCommandList* list;
    ID3D12Fence* idle; // for the CPU
    UINT64 idle_value;
    LUID luid;
    ID3D12Resource *screen, *readback;
    UINT row_bytes; // of the readback buffer: a multiple of 256
    int32_t width, height;
} host;

// An image that sumi writes and this host copies to its screen.
typedef struct shown_image {
    int32_t width, height;
    ID3D12Resource* buffer;
    UINT row_bytes;
    // Images are numbered: the newest that sumi was told to write, that the queue was told to draw, and that was there.
    ID3D12Fence *ready, *drawn;
    UINT64 ready_value, drawn_value, seen_value;
    sumi_external *external, *ready_import, *drawn_import;
} shown_image;

// ---- Direct3D -------------------------------------------------------------------------------------------------------

static void open_host(host* h, const uint8_t* sumi_luid)
{
    IDXGIFactory4* factory;
    IDXGIAdapter1* adapter;
    DXGI_ADAPTER_DESC1 desc;
    d3d_or_die(CreateDXGIFactory1(&IID_IDXGIFactory4, (void**)&factory), "CreateDXGIFactory1");
    memcpy(&h->luid, sumi_luid, sizeof h->luid); // sumi_engine_info.device_luid
    if (FAILED(IDXGIFactory4_EnumAdapterByLuid(factory, h->luid, &IID_IDXGIAdapter1, (void**)&adapter)))
        skip("Direct3D does not have the engine's GPU");
    d3d_or_die(IDXGIAdapter1_GetDesc1(adapter, &desc), "the adapter's name");
    printf("Direct3D draws with %ls\n", desc.Description);
    d3d_or_die(D3D12CreateDevice((IUnknown*)adapter, D3D_FEATURE_LEVEL_11_0, &IID_ID3D12Device, (void**)&h->device),
               "D3D12CreateDevice");
    const D3D12_COMMAND_QUEUE_DESC queue = {.Type = D3D12_COMMAND_LIST_TYPE_DIRECT};
    d3d_or_die(ID3D12Device_CreateCommandQueue(h->device, &queue, &IID_ID3D12CommandQueue, (void**)&h->queue),
               "a command queue");
    d3d_or_die(ID3D12Device_CreateCommandAllocator(h->device, D3D12_COMMAND_LIST_TYPE_DIRECT,
                                                   &IID_ID3D12CommandAllocator, (void**)&h->allocator),
               "a command allocator");
    d3d_or_die(ID3D12Device_CreateCommandList(h->device, 0, D3D12_COMMAND_LIST_TYPE_DIRECT, h->allocator, NULL,
                                              &IID_ID3D12GraphicsCommandList, (void**)&h->list),
               "a command list");
    d3d_or_die(ID3D12GraphicsCommandList_Close(h->list), "a command list");
    d3d_or_die(ID3D12Device_CreateFence(h->device, 0, D3D12_FENCE_FLAG_NONE, &IID_ID3D12Fence, (void**)&h->idle),
               "a fence");
    IDXGIAdapter1_Release(adapter);
    IDXGIFactory4_Release(factory);
}

static UINT aligned(UINT bytes, UINT alignment) { return (bytes + alignment - 1) / alignment * alignment; }

static D3D12_RESOURCE_DESC buffer_desc(UINT64 bytes)
{
    return (D3D12_RESOURCE_DESC){.Dimension = D3D12_RESOURCE_DIMENSION_BUFFER,
                                 .Width = bytes,
                                 .Height = 1,
                                 .DepthOrArraySize = 1,
                                 .MipLevels = 1,
                                 .SampleDesc = {1, 0},
                                 .Layout = D3D12_TEXTURE_LAYOUT_ROW_MAJOR};
}

// Where rows of RGBA8 pixels lie in a buffer.
static D3D12_TEXTURE_COPY_LOCATION rows_of(ID3D12Resource* buffer, int32_t width, int32_t height, UINT row_bytes)
{
    return (D3D12_TEXTURE_COPY_LOCATION){
        .pResource = buffer,
        .Type = D3D12_TEXTURE_COPY_TYPE_PLACED_FOOTPRINT,
        .PlacedFootprint = {.Footprint = {DXGI_FORMAT_R8G8B8A8_UNORM, (UINT)width, (UINT)height, 1, row_bytes}}};
}

static ID3D12Resource* make_resource(const host* h, D3D12_HEAP_TYPE type, D3D12_HEAP_FLAGS flags,
                                     const D3D12_RESOURCE_DESC* desc, D3D12_RESOURCE_STATES state)
{
    ID3D12Resource* resource;
    const D3D12_HEAP_PROPERTIES heap = {.Type = type};
    d3d_or_die(ID3D12Device_CreateCommittedResource(h->device, &heap, flags, desc, state, NULL, &IID_ID3D12Resource,
                                                    (void**)&resource),
               "a resource");
    return resource;
}

static void make_screen(host* h, int32_t width, int32_t height)
{
    h->width = width;
    h->height = height;
    h->row_bytes = aligned((UINT)width * 4, D3D12_TEXTURE_DATA_PITCH_ALIGNMENT);
    const D3D12_RESOURCE_DESC buffer = buffer_desc((UINT64)h->row_bytes * (UINT64)height);
    const D3D12_RESOURCE_DESC screen = {.Dimension = D3D12_RESOURCE_DIMENSION_TEXTURE2D,
                                        .Width = (UINT64)width,
                                        .Height = (UINT)height,
                                        .DepthOrArraySize = 1,
                                        .MipLevels = 1,
                                        .Format = DXGI_FORMAT_R8G8B8A8_UNORM,
                                        .SampleDesc = {1, 0}};
    h->screen =
        make_resource(h, D3D12_HEAP_TYPE_DEFAULT, D3D12_HEAP_FLAG_NONE, &screen, D3D12_RESOURCE_STATE_COPY_DEST);
    h->readback =
        make_resource(h, D3D12_HEAP_TYPE_READBACK, D3D12_HEAP_FLAG_NONE, &buffer, D3D12_RESOURCE_STATE_COPY_DEST);
}

static void begin_commands(const host* h)
{
    d3d_or_die(ID3D12CommandAllocator_Reset(h->allocator), "resetting commands");
    d3d_or_die(ID3D12GraphicsCommandList_Reset(h->list, h->allocator, NULL), "resetting commands");
}

// Executes and, to keep the sample short, waits: a frame is in flight at a time. `image` may be NULL.
static void run_commands(host* h, const shown_image* image)
{
    ID3D12CommandList* lists[] = {(ID3D12CommandList*)h->list};
    d3d_or_die(ID3D12GraphicsCommandList_Close(h->list), "closing commands");
    // `ready` has this value already, so the queue does not wait either. `drawn` lets sumi write the next image.
    if (image) d3d_or_die(ID3D12CommandQueue_Wait(h->queue, image->ready, image->seen_value), "waiting for sumi");
    ID3D12CommandQueue_ExecuteCommandLists(h->queue, 1, lists);
    if (image) d3d_or_die(ID3D12CommandQueue_Signal(h->queue, image->drawn, image->drawn_value), "signalling sumi");
    d3d_or_die(ID3D12CommandQueue_Signal(h->queue, h->idle, ++h->idle_value), "signalling");
    d3d_or_die(ID3D12Fence_SetEventOnCompletion(h->idle, h->idle_value, NULL), "waiting for the queue"); // blocks
}

// ---- Images that sumi writes ----------------------------------------------------------------------------------------

static ID3D12Fence* share_fence(const host* h, sumi_engine* engine, sumi_external** out_import)
{
    ID3D12Fence* fence;
    HANDLE handle;
    d3d_or_die(ID3D12Device_CreateFence(h->device, 0, D3D12_FENCE_FLAG_SHARED, &IID_ID3D12Fence, (void**)&fence),
               "a shared fence");
    d3d_or_die(ID3D12Device_CreateSharedHandle(h->device, (ID3D12DeviceChild*)fence, NULL, GENERIC_ALL, NULL, &handle),
               "the handle of a fence");
    sumi_import_desc desc = sumi_import_defaults();
    desc.kind = SUMI_EXTERNAL_D3D12_FENCE;
    desc.device_luid = (const uint8_t*)&h->luid;
    desc.handle = handle;
    sumi_or_die(sumi_import(engine, &desc, out_import), "importing a fence");
    CloseHandle(handle); // it stays the host program's
    return fence;
}

static void make_shown(const host* h, sumi_engine* engine, int32_t width, int32_t height, bool takes_previews,
                       shown_image* out)
{
    *out = (shown_image){.width = width, .height = height};
    // [excerpt d3d12_import]
    // Rows in a buffer have no layout that could differ. Buffers are always in the state COMMON between command lists.
    out->row_bytes = aligned((UINT)width * 4, D3D12_TEXTURE_DATA_PITCH_ALIGNMENT);
    const D3D12_RESOURCE_DESC buffer = buffer_desc((UINT64)out->row_bytes * (UINT64)height);
    HANDLE handle;
    out->buffer =
        make_resource(h, D3D12_HEAP_TYPE_DEFAULT, D3D12_HEAP_FLAG_SHARED, &buffer, D3D12_RESOURCE_STATE_COMMON);
    d3d_or_die(
        ID3D12Device_CreateSharedHandle(h->device, (ID3D12DeviceChild*)out->buffer, NULL, GENERIC_ALL, NULL, &handle),
        "the handle of a buffer");
    sumi_import_desc desc = sumi_import_defaults();
    desc.kind = SUMI_EXTERNAL_D3D12_RESOURCE;
    desc.device_luid = (const uint8_t*)&h->luid;
    desc.handle = handle;
    desc.width = width;
    desc.height = height;
    desc.row_bytes = (int32_t)out->row_bytes;
    desc.memory_bytes = // what GetResourceAllocationInfo says of a buffer
        (buffer.Width + D3D12_DEFAULT_RESOURCE_PLACEMENT_ALIGNMENT - 1) / D3D12_DEFAULT_RESOURCE_PLACEMENT_ALIGNMENT
        * D3D12_DEFAULT_RESOURCE_PLACEMENT_ALIGNMENT;
    desc.takes_previews = takes_previews;
    sumi_or_die(sumi_import(engine, &desc, &out->external), "importing a buffer");
    CloseHandle(handle);
    // [end]
    out->ready = share_fence(h, engine, &out->ready_import);
    out->drawn = share_fence(h, engine, &out->drawn_import);
}

// Copies the image to the screen if there is a new one.
static bool draw_frame(host* h, shown_image* image)
{
    const UINT64 ready = ID3D12Fence_GetCompletedValue(image->ready);
    if (ready == image->seen_value) return false; // nothing new: the screen stays
    image->seen_value = ready;
    image->drawn_value = ready;
    const D3D12_TEXTURE_COPY_LOCATION from = rows_of(image->buffer, image->width, image->height, image->row_bytes);
    const D3D12_TEXTURE_COPY_LOCATION to = {.pResource = h->screen, .Type = D3D12_TEXTURE_COPY_TYPE_SUBRESOURCE_INDEX};
    begin_commands(h);
    ID3D12GraphicsCommandList_CopyTextureRegion(h->list, &to, 0, 0, 0, &from, NULL); // a preview goes to a corner
    run_commands(h, image);
    return true;
}

static const unsigned char* read_screen(host* h)
{
    void* pixels;
    const D3D12_RESOURCE_BARRIER barrier = {.Type = D3D12_RESOURCE_BARRIER_TYPE_TRANSITION,
                                            .Transition = {.pResource = h->screen,
                                                           .Subresource = D3D12_RESOURCE_BARRIER_ALL_SUBRESOURCES,
                                                           .StateBefore = D3D12_RESOURCE_STATE_COPY_DEST,
                                                           .StateAfter = D3D12_RESOURCE_STATE_COPY_SOURCE}};
    const D3D12_TEXTURE_COPY_LOCATION to = rows_of(h->readback, h->width, h->height, h->row_bytes);
    const D3D12_TEXTURE_COPY_LOCATION from = {.pResource = h->screen,
                                              .Type = D3D12_TEXTURE_COPY_TYPE_SUBRESOURCE_INDEX};
    begin_commands(h);
    ID3D12GraphicsCommandList_ResourceBarrier(h->list, 1, &barrier);
    ID3D12GraphicsCommandList_CopyTextureRegion(h->list, &to, 0, 0, 0, &from, NULL);
    run_commands(h, NULL);
    d3d_or_die(ID3D12Resource_Map(h->readback, 0, NULL, &pixels), "mapping the screen");
    return pixels;
}

static void destroy_shown(shown_image* image)
{
    // The last preview may still wait for the one before it to be drawn, which will not happen: then it waits no longer.
    d3d_or_die(ID3D12Fence_Signal(image->drawn, image->ready_value), "signalling a fence");
    sumi_external_release(image->external);
    sumi_external_release(image->ready_import);
    sumi_external_release(image->drawn_import);
    ID3D12Fence_Release(image->ready);
    ID3D12Fence_Release(image->drawn);
    ID3D12Resource_Release(image->buffer);
}

static void close_host(host* h)
{
    ID3D12Resource_Release(h->screen);
    ID3D12Resource_Release(h->readback);
    ID3D12Fence_Release(h->idle);
    ID3D12GraphicsCommandList_Release(h->list);
    ID3D12CommandAllocator_Release(h->allocator);
    ID3D12CommandQueue_Release(h->queue);
    ID3D12Device_Release(h->device);
}

// ---- The game -------------------------------------------------------------------------------------------------------

typedef struct game {
    host host;
    sumi_engine* engine;
    sumi_image_desc desc;
    shown_image preview, picture;
    uint32_t seen_version;
    int frames, shown_previews, dropped_previews;
} game;

static void write_log(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    (void)result, (void)user_data;
    if (level <= SUMI_LOG_WARNING) fprintf(stderr, "d3d12: sumi: %s\n", text);
}

static void show_preview(game* g, sumi_job job, uint32_t version)
{
    shown_image* preview = &g->preview;
    if (version == g->seen_version) return;
    const sumi_target target = {.external = preview->external,
                                .wait = {preview->drawn_import, preview->ready_value},
                                .signal = {preview->ready_import, preview->ready_value + 1}};
    const sumi_result result = sumi_job_show_preview(g->engine, job, 0, &target);
    if (result == SUMI_BUSY) g->dropped_previews++; // a later frame may have more luck
    if (result == SUMI_BUSY) return;
    sumi_or_die(result, "showing a preview");
    preview->ready_value++;
    g->seen_version = version;
}

static void play(game* g)
{
    shown_image* picture = &g->picture;
    sumi_image image;
    sumi_job job;
    sumi_job_status status;
    const sumi_target target = {.external = picture->external,
                                .wait = {picture->drawn_import, 0},
                                .signal = {picture->ready_import, ++picture->ready_value}};
    g->desc.targets = &target;
    sumi_or_die(sumi_submit_images(g->engine, &g->desc, &job), "submitting a job");
    do {
        sumi_engine_update(g->engine, 4000);
        status = sumi_job_poll(g->engine, job);
        show_preview(g, job, status.preview_version);
        g->shown_previews += draw_frame(&g->host, &g->preview);
        g->frames++;
        system_sleep_us(1000); // a game waits for its display
    } while (status.state < SUMI_JOB_DONE);
    sumi_or_die(sumi_fetch_images(g->engine, job, &image, 1), "making a picture");
    while (!draw_frame(&g->host, picture)) g->frames++, system_sleep_us(1000); // the GPU is copying it
    g->frames++;
}

// Whether the screen shows the picture that sumi returns in host memory.
static int compare(game* g, const char* path)
{
    sumi_image image;
    sumi_job job;
    g->desc.targets = NULL;
    sumi_or_die(sumi_submit_images(g->engine, &g->desc, &job), "submitting a job");
    sumi_or_die(sumi_job_wait(g->engine, job, SUMI_FOREVER), "waiting");
    sumi_or_die(sumi_fetch_images(g->engine, job, &image, 1), "making a picture");
    const unsigned char *screen = read_screen(&g->host), *wanted = image.pixels;
    const size_t row = (size_t)image.width * 4;
    size_t different = 0;
    for (size_t y = 0; y < (size_t)image.height; y++)
        for (size_t x = 0; x < row; x++)
            different += screen[y * g->host.row_bytes + x] != wanted[y * (size_t)image.row_bytes + x];
    char message[PICTURE_MESSAGE_BYTES];
    const picture_source source = {screen, image.width, image.height, g->host.row_bytes, 4, NULL, 0};
    if (path && !picture_write(path, &source, message)) die("writing the picture", message);
    sumi_images_release(g->engine, &image, 1);
    printf("%d frames, %d previews shown, %d dropped; %zu of %zu bytes of the screen differ from host memory\n",
           g->frames, g->shown_previews, g->dropped_previews, different, row * (size_t)g->host.height);
    return different != 0;
}

int main(int argc, char** argv)
{
    argv = system_begin(argc, argv);
    if (argc != 3 && argc != 4) return fprintf(stderr, "usage: d3d12 MODEL PROMPT [out.png]\n"), 2;
    game g = {0};
    sumi_model* model;
    sumi_engine_desc engine_desc = sumi_engine_defaults();
    engine_desc.backend = SUMI_BACKEND_CUDA;
    engine_desc.log.write = write_log;
    const sumi_result created = sumi_engine_create(&engine_desc, &g.engine);
    if (created != SUMI_OK) skip(sumi_result_text(created));
    open_host(&g.host, sumi_engine_get_info(g.engine).device_luid);
    sumi_or_die(sumi_open_model(g.engine, argv[1], &model), argv[1]);
    sumi_image_item item = {.text = argv[2], .seed = 7};
    g.desc = sumi_image_defaults(model, SUMI_PRESET_MODEL);
    g.desc.items = &item;
    g.desc.item_count = 1;
    g.desc.preview_every = 1;
    make_screen(&g.host, g.desc.width, g.desc.height);
    make_shown(&g.host, g.engine, g.desc.width / 8, g.desc.height / 8, true, &g.preview);
    make_shown(&g.host, g.engine, g.desc.width, g.desc.height, false, &g.picture);
    play(&g);
    const int status = compare(&g, argc == 4 ? argv[3] : NULL);
    destroy_shown(&g.preview);
    destroy_shown(&g.picture);
    sumi_engine_destroy(g.engine);
    close_host(&g.host);
    return status;
}
