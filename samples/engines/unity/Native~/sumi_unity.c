// Unity's textures as targets of sumi: a native rendering plug-in. C# (SumiTexture.cs) asks for one thing at a time,
// and the thread that renders does it inside a plug-in event, where OpenGL's context and Direct3D 11's immediate
// context may be used.
//
// Events come a frame after C# issued them, when the texture or its engine may be gone. So an event carries a texture's
// number, which is never used twice and is looked up in the list of textures. Whatever is not in the list is ignored;
// C# reads SUMI_STALE_HANDLE for it.
//
//   OpenGL core    The texture is imported by its name.
//   Direct3D 11    The texture is imported by its pointer.
//   Direct3D 12    Unity's textures cannot be shared. A buffer and a fence of this plug-in are, and a command list of
//                  it copies the buffer into the texture, in a later event, once the fence says that the image is
//                  there.
//   Vulkan         Not supported: Unity's device would have to be created with extensions for shared memory.
//
// Unity's plug-in interfaces are tables of functions that are found by 128-bit ids. What is used of them is declared
// here, so no header of Unity is needed.
#if defined(_WIN32)
#define COBJMACROS
#define INITGUID
#include <windows.h>
// windows.h comes first
#include <d3d11.h>
#include <d3d12.h>
#include <dxgi.h>
#define UNITY_CALL __stdcall
#define UNITY_EXPORT __declspec(dllexport)
#else
#include <pthread.h>
#define UNITY_CALL
#define UNITY_EXPORT __attribute__((visibility("default")))
#endif
#include <stdlib.h>
#include <string.h>
#include <sumi.h>

// ---- Unity's tables -------------------------------------------------------------------------------------------------

typedef struct unity_interfaces {
    void *get_interface, *register_interface;
    void*(UNITY_CALL* get_interface_split)(unsigned long long high, unsigned long long low);
    void* register_interface_split;
} unity_interfaces;

typedef struct unity_graphics { // 7CBA0A9CA4DDB544 8C5AD4926EB17B11
    int(UNITY_CALL* get_renderer)(void);
    void(UNITY_CALL* register_device_event)(void(UNITY_CALL* function)(int type));
    void(UNITY_CALL* unregister_device_event)(void(UNITY_CALL* function)(int type));
    void* reserve_event_ids;
} unity_graphics;
enum { RENDERER_D3D11 = 2, RENDERER_NULL = 4, RENDERER_METAL = 16, RENDERER_GL_CORE = 17, RENDERER_D3D12 = 18 };
enum { RENDERER_VULKAN = 21 };
enum { DEVICE_INITIALIZE = 0, DEVICE_SHUTDOWN = 1, DEVICE_BEFORE_RESET = 2, DEVICE_AFTER_RESET = 3 };

#if defined(_WIN32)
typedef struct unity_resource_state {
    ID3D12Resource* resource;
    D3D12_RESOURCE_STATES expected, current; // before and after the command list
} unity_resource_state;

typedef ID3D12Device*(UNITY_CALL* get_device_function)(void);
typedef ID3D12Fence*(UNITY_CALL* get_fence_function)(void);
typedef UINT64(UNITY_CALL* execute_function)(ID3D12GraphicsCommandList* list, int count, unity_resource_state* states);

typedef struct unity_d3d12_v5 { // F5C8D8A37D37BC42 B02DFE93B5064A27, and version 6: A396DCE58CAC4D78 AFDD9B281F20B840
    get_device_function get_device;
    get_fence_function get_frame_fence;
    void* get_next_frame_fence_value;
    execute_function execute_command_list;
} unity_d3d12_v5;

typedef struct unity_d3d12_v7 { // 4624B0DA41B64AAC 915AABCB9BC3F0D3
    get_device_function get_device;
    void *get_swap_chain, *get_sync_interval, *get_present_flags;
    get_fence_function get_frame_fence;
    void* get_next_frame_fence_value;
    execute_function execute_command_list;
} unity_d3d12_v7;

typedef struct unity_d3d11 { // AAB37EF87A87D748 BF76967F07EFB177
    ID3D11Device*(UNITY_CALL* get_device)(void);
} unity_d3d11;

// Of whichever version there is; get_device is NULL where there is none.
static struct {
    get_device_function get_device;
    get_fence_function get_frame_fence;
    execute_function execute_command_list;
} s_d3d12;
#endif

static unity_interfaces* s_interfaces;
static unity_graphics* s_graphics;

// Unity has the interfaces of a renderer from its device's initialisation on.
static void find_interfaces(void)
{
#if defined(_WIN32)
    const unity_d3d12_v7* v7 = s_interfaces->get_interface_split(0x4624B0DA41B64AACull, 0x915AABCB9BC3F0D3ull);
    const unity_d3d12_v5* v5 = s_interfaces->get_interface_split(0xA396DCE58CAC4D78ull, 0xAFDD9B281F20B840ull);
    if (v5 == NULL) v5 = s_interfaces->get_interface_split(0xF5C8D8A37D37BC42ull, 0xB02DFE93B5064A27ull);
    memset(&s_d3d12, 0, sizeof s_d3d12);
    if (v7 != NULL) {
        s_d3d12.get_device = v7->get_device;
        s_d3d12.get_frame_fence = v7->get_frame_fence;
        s_d3d12.execute_command_list = v7->execute_command_list;
    } else if (v5 != NULL) {
        s_d3d12.get_device = v5->get_device;
        s_d3d12.get_frame_fence = v5->get_frame_fence;
        s_d3d12.execute_command_list = v5->execute_command_list;
    }
#endif
}

// ---- The lock -------------------------------------------------------------------------------------------------------
// Engines are called by one thread at a time. C# holds this lock around its calls, the events around theirs. The thread
// that waits longest is next: one that takes the lock again and again would otherwise keep the others out.
#if defined(_WIN32)
static SRWLOCK s_mutex = SRWLOCK_INIT;
static CONDITION_VARIABLE s_next = CONDITION_VARIABLE_INIT;
static void take_mutex(void) { AcquireSRWLockExclusive(&s_mutex); }
static void give_mutex(void) { ReleaseSRWLockExclusive(&s_mutex); }
static void wait_for_change(void) { SleepConditionVariableSRW(&s_next, &s_mutex, INFINITE, 0); }
static void wake_all(void) { WakeAllConditionVariable(&s_next); }
#else
static pthread_mutex_t s_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t s_next = PTHREAD_COND_INITIALIZER;
static void take_mutex(void) { pthread_mutex_lock(&s_mutex); }
static void give_mutex(void) { pthread_mutex_unlock(&s_mutex); }
static void wait_for_change(void) { pthread_cond_wait(&s_next, &s_mutex); }
static void wake_all(void) { pthread_cond_broadcast(&s_next); }
#endif
static uint64_t s_tickets, s_served; // given out, and done with

static void lock(void)
{
    take_mutex();
    const uint64_t mine = s_tickets++;
    while (s_served != mine) wait_for_change();
    give_mutex();
}

static bool try_lock(void)
{
    take_mutex();
    const bool is_free = s_served == s_tickets;
    if (is_free) s_tickets++;
    give_mutex();
    return is_free;
}

static void unlock(void)
{
    take_mutex();
    s_served++;
    wake_all();
    give_mutex();
}

// ---- Textures -------------------------------------------------------------------------------------------------------

typedef enum wish { WISH_NONE = 0, WISH_IMPORT = 1, WISH_PREVIEW = 2, WISH_FETCH = 3 } wish;

typedef struct sumi_unity_texture {
    struct sumi_unity_texture* next;
    uint64_t id;      // of no other texture, ever
    bool is_disposed; // the next event ends the import, and frees this
    // NULL: it was destroyed, and the import with it. The texture is in the list while Unity's GPU reads its buffer.
    sumi_engine* engine;
    void* native; // Texture.GetNativeTexturePtr()
    int32_t width, height;
    bool takes_previews;
    sumi_external* external;
    wish wish; // what the next event does
    sumi_job job;
    int32_t result;    // of the last wish, or NOT_YET
    char message[512]; // why it failed; ""
#if defined(_WIN32)
    ID3D12Resource* buffer;
    UINT row_bytes;
    ID3D12Fence* ready;
    sumi_external* ready_import;
    bool has_reference;                            // to `native`: Unity may destroy the texture while it is imported
    UINT64 ready_value, copied_value, frame_value; // of the frame fence: when the copy will be done
    ID3D12CommandAllocator* allocator;
    ID3D12GraphicsCommandList* list;
#endif
} sumi_unity_texture;
enum { NOT_YET = -1 };

static sumi_unity_texture* s_textures; // of all engines
static uint64_t s_last_id;

static sumi_unity_texture* find(uint64_t id)
{
    sumi_unity_texture* t = s_textures;
    while (t != NULL && (t->id != id || t->is_disposed)) t = t->next;
    return t;
}

#if defined(_WIN32)
static sumi_result result_of(HRESULT result) { return SUCCEEDED(result) ? SUMI_OK : SUMI_INTERNAL; }

#define TRY(expression)                                                                                                \
    do {                                                                                                               \
        const sumi_result tried_ = (expression);                                                                       \
        if (tried_ != SUMI_OK) return tried_;                                                                          \
    } while (0)

// Methods return structs through a hidden pointer. Headers for C declare this one in three ways, some of them wrong.
static LUID luid_of(ID3D12Device* device)
{
    LUID*(STDMETHODCALLTYPE * method)(ID3D12Device * device, LUID * out);
    LUID luid;
    memcpy(&method, &device->lpVtbl->GetAdapterLuid, sizeof method);
    return *method(device, &luid);
}

static sumi_result import_shared(sumi_unity_texture* t, sumi_import_desc* desc, ID3D12DeviceChild* child,
                                 sumi_external** out)
{
    ID3D12Device* device = s_d3d12.get_device();
    HANDLE handle;
    TRY(result_of(ID3D12Device_CreateSharedHandle(device, child, NULL, GENERIC_ALL, NULL, &handle)));
    const LUID luid = luid_of(device);
    desc->device_luid = (const uint8_t*)&luid;
    desc->handle = handle;
    const sumi_result result = sumi_import(t->engine, desc, out);
    CloseHandle(handle);
    return result;
}

static sumi_result import_d3d12(sumi_unity_texture* t)
{
    if (s_d3d12.get_device == NULL) return SUMI_NOT_SUPPORTED;
    ID3D12Device* device = s_d3d12.get_device();
    t->row_bytes = ((UINT)t->width * 4 + D3D12_TEXTURE_DATA_PITCH_ALIGNMENT - 1) / D3D12_TEXTURE_DATA_PITCH_ALIGNMENT
                 * D3D12_TEXTURE_DATA_PITCH_ALIGNMENT;
    const D3D12_HEAP_PROPERTIES heap = {.Type = D3D12_HEAP_TYPE_DEFAULT};
    const D3D12_RESOURCE_DESC buffer = {.Dimension = D3D12_RESOURCE_DIMENSION_BUFFER,
                                        .Width = (UINT64)t->row_bytes * (UINT64)t->height,
                                        .Height = 1,
                                        .DepthOrArraySize = 1,
                                        .MipLevels = 1,
                                        .SampleDesc = {1, 0},
                                        .Layout = D3D12_TEXTURE_LAYOUT_ROW_MAJOR};
    TRY(result_of(ID3D12Device_CreateCommittedResource(device, &heap, D3D12_HEAP_FLAG_SHARED, &buffer,
                                                       D3D12_RESOURCE_STATE_COMMON, NULL, &IID_ID3D12Resource,
                                                       (void**)&t->buffer)));
    TRY(result_of(ID3D12Device_CreateFence(device, 0, D3D12_FENCE_FLAG_SHARED, &IID_ID3D12Fence, (void**)&t->ready)));
    TRY(result_of(ID3D12Device_CreateCommandAllocator(device, D3D12_COMMAND_LIST_TYPE_DIRECT,
                                                      &IID_ID3D12CommandAllocator, (void**)&t->allocator)));
    TRY(result_of(ID3D12Device_CreateCommandList(device, 0, D3D12_COMMAND_LIST_TYPE_DIRECT, t->allocator, NULL,
                                                 &IID_ID3D12GraphicsCommandList, (void**)&t->list)));
    TRY(result_of(ID3D12GraphicsCommandList_Close(t->list)));
    sumi_import_desc desc = sumi_import_defaults();
    desc.kind = SUMI_EXTERNAL_D3D12_FENCE;
    TRY(import_shared(t, &desc, (ID3D12DeviceChild*)t->ready, &t->ready_import));
    desc = sumi_import_defaults();
    desc.kind = SUMI_EXTERNAL_D3D12_RESOURCE;
    desc.width = t->width;
    desc.height = t->height;
    desc.row_bytes = (int32_t)t->row_bytes;
    desc.memory_bytes = // what GetResourceAllocationInfo says of a buffer
        (buffer.Width + D3D12_DEFAULT_RESOURCE_PLACEMENT_ALIGNMENT - 1) / D3D12_DEFAULT_RESOURCE_PLACEMENT_ALIGNMENT
        * D3D12_DEFAULT_RESOURCE_PLACEMENT_ALIGNMENT;
    desc.takes_previews = t->takes_previews;
    return import_shared(t, &desc, (ID3D12DeviceChild*)t->buffer, &t->external);
}

// Whether Unity's GPU has done the last copy out of the buffer.
static bool is_copied(const sumi_unity_texture* t)
{
    return t->copied_value == t->ready_value
        && ID3D12Fence_GetCompletedValue(s_d3d12.get_frame_fence()) >= t->frame_value;
}

// Copies the buffer into Unity's texture, if the image is there and was not copied yet.
static sumi_result copy_buffer(sumi_unity_texture* t)
{
    if (t->copied_value == t->ready_value || ID3D12Fence_GetCompletedValue(t->ready) < t->ready_value) return SUMI_OK;
    if (ID3D12Fence_GetCompletedValue(s_d3d12.get_frame_fence()) < t->frame_value) return SUMI_OK; // the list is in use
    const D3D12_TEXTURE_COPY_LOCATION from = {.pResource = t->buffer,
                                              .Type = D3D12_TEXTURE_COPY_TYPE_PLACED_FOOTPRINT,
                                              .PlacedFootprint = {.Footprint = {DXGI_FORMAT_R8G8B8A8_UNORM,
                                                                                (UINT)t->width, (UINT)t->height, 1,
                                                                                t->row_bytes}}},
                                      to = {.pResource = t->native, .Type = D3D12_TEXTURE_COPY_TYPE_SUBRESOURCE_INDEX};
    TRY(result_of(ID3D12CommandAllocator_Reset(t->allocator)));
    TRY(result_of(ID3D12GraphicsCommandList_Reset(t->list, t->allocator, NULL)));
    ID3D12GraphicsCommandList_CopyTextureRegion(t->list, &to, 0, 0, 0, &from, NULL);
    TRY(result_of(ID3D12GraphicsCommandList_Close(t->list)));
    unity_resource_state state = {t->native, D3D12_RESOURCE_STATE_COPY_DEST, D3D12_RESOURCE_STATE_COPY_DEST};
    t->frame_value = s_d3d12.execute_command_list(t->list, 1, &state);
    t->copied_value = t->ready_value;
    return SUMI_OK;
}

// Unity's GPU reads the buffer no more: see is_copied.
static void free_d3d12(sumi_unity_texture* t)
{
    sumi_external_release(t->ready_import);
    if (t->list != NULL) ID3D12GraphicsCommandList_Release(t->list);
    if (t->allocator != NULL) ID3D12CommandAllocator_Release(t->allocator);
    if (t->ready != NULL) ID3D12Fence_Release(t->ready);
    if (t->buffer != NULL) ID3D12Resource_Release(t->buffer);
    t->ready_import = NULL;
    t->list = NULL, t->allocator = NULL, t->ready = NULL, t->buffer = NULL;
}
#endif

static int renderer(void) { return s_graphics != NULL ? s_graphics->get_renderer() : -1; }

static sumi_result import_texture(sumi_unity_texture* t)
{
    sumi_import_desc desc = sumi_import_defaults();
    desc.width = t->width;
    desc.height = t->height;
    desc.takes_previews = t->takes_previews;
    switch (renderer()) {
    case RENDERER_GL_CORE:
        desc.kind = SUMI_EXTERNAL_GL_TEXTURE;
        desc.gl_name = (uint32_t)(uintptr_t)t->native;
        desc.gl_target = 0x0DE1; // GL_TEXTURE_2D
        return sumi_import(t->engine, &desc, &t->external);
    case RENDERER_D3D11:
        desc.kind = SUMI_EXTERNAL_D3D11_TEXTURE;
        desc.handle = t->native;
        return sumi_import(t->engine, &desc, &t->external);
#if defined(_WIN32)
    case RENDERER_D3D12: return import_d3d12(t);
#endif
    default: return SUMI_NOT_SUPPORTED;
    }
}

// Where an image goes: the last row first, as Unity's textures have them.
static sumi_target target_of(sumi_unity_texture* t)
{
    sumi_target target = {.format = SUMI_FORMAT_RGBA8, .external = t->external, .bottom_up = true};
#if defined(_WIN32)
    if (t->ready_import != NULL) target.signal = (sumi_sync){t->ready_import, t->ready_value + 1};
#endif
    return target;
}

static void note_image(sumi_unity_texture* t)
{
#if defined(_WIN32)
    if (t->ready_import != NULL) t->ready_value++;
#endif
    (void)t;
}

// The result of the wish, or NOT_YET: a later event grants it.
static int32_t grant(sumi_unity_texture* t)
{
    sumi_result result = SUMI_OK;
    if (t->wish == WISH_IMPORT) return import_texture(t);
#if defined(_WIN32)
    // The buffer still holds an image that Unity's GPU has not read.
    if (t->ready_import != NULL && !is_copied(t)) return t->wish == WISH_PREVIEW ? (int32_t)SUMI_BUSY : NOT_YET;
#endif
    if (t->wish == WISH_PREVIEW) {
        const sumi_target target = target_of(t);
        result = sumi_job_show_preview(t->engine, t->job, 0, &target);
    } else {
        sumi_image image;
        result = sumi_fetch_images(t->engine, t->job, &image, 1);
    }
    if (result == SUMI_OK) note_image(t);
    return result;
}

// Whether nothing is left of a texture that was disposed. `is_idle`: Unity's GPU does nothing any more.
static bool end_texture(sumi_unity_texture* t, bool is_idle)
{
    sumi_external_release(t->external);
    t->external = NULL;
#if defined(_WIN32)
    // Without an import nothing is written any more. An image that was not copied never will be.
    if (t->list != NULL && !is_idle && ID3D12Fence_GetCompletedValue(s_d3d12.get_frame_fence()) < t->frame_value)
        return false;
    free_d3d12(t);
    if (t->has_reference) IUnknown_Release((IUnknown*)t->native);
    t->has_reference = false;
#endif
    (void)is_idle;
    return true;
}

static void end_disposed(bool is_idle)
{
    for (sumi_unity_texture** at = &s_textures; *at != NULL;) {
        sumi_unity_texture* t = *at;
        if (t->is_disposed && end_texture(t, is_idle)) {
            *at = t->next;
            free(t);
        } else at = &t->next;
    }
}

// Whether this thread is in an event. Then the log does not reach C#: a native thread that has called C# belongs to the
// scripts' domain from then on, and Mono cannot unload that domain (no script reload ends) while the thread lives.
static _Thread_local bool s_is_in_event;

// The log of engines: `user_data` is the sumi_log of C#.
static void write_log(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    const sumi_log* to = user_data;
    if (!s_is_in_event) to->write(level, result, text, to->user_data);
}

// `data` is the number of a texture, or 0: only what was disposed is ended.
static void UNITY_CALL on_event(int event, void* data)
{
    (void)event;
    lock();
    s_is_in_event = true;
    sumi_unity_texture* t = find((uintptr_t)data);
#if defined(_WIN32)
    // Asked for again by the next event when it fails: the device is gone then, which Unity tells.
    if (t != NULL && t->ready_import != NULL) (void)copy_buffer(t);
#endif
    if (t != NULL && t->wish != WISH_NONE) {
        t->result = grant(t);
        if (t->result != NOT_YET) t->wish = WISH_NONE;
        // Read now: it is the engine's newest failure, and C# comes frames later.
        if (t->result > SUMI_OK
            && (int32_t)sumi_engine_last_error(t->engine, t->message, sizeof t->message) != t->result)
            t->message[0] = '\0';
    }
    end_disposed(false);
    s_is_in_event = false;
    unlock();
}

// Without its device no texture is left; C# makes new ones. The renderer's thread, with nothing under way.
static void UNITY_CALL on_device_event(int type)
{
    lock();
    s_is_in_event = true;
    if (type == DEVICE_SHUTDOWN || type == DEVICE_BEFORE_RESET) {
        for (sumi_unity_texture* t = s_textures; t != NULL; t = t->next) t->is_disposed = true;
        end_disposed(true);
    }
    find_interfaces();
    s_is_in_event = false;
    unlock();
}

UNITY_EXPORT void UNITY_CALL UnityPluginLoad(unity_interfaces* interfaces);
UNITY_EXPORT void UNITY_CALL UnityPluginLoad(unity_interfaces* interfaces)
{
    s_interfaces = interfaces;
    s_graphics = interfaces->get_interface_split(0x7CBA0A9CA4DDB544ull, 0x8C5AD4926EB17B11ull);
    if (s_graphics != NULL) s_graphics->register_device_event(on_device_event);
    on_device_event(DEVICE_INITIALIZE); // which was before, where this is loaded late
}

UNITY_EXPORT void UNITY_CALL UnityPluginUnload(void);
UNITY_EXPORT void UNITY_CALL UnityPluginUnload(void)
{
    if (s_graphics != NULL) s_graphics->unregister_device_event(on_device_event);
    s_graphics = NULL;
}

// ---- What C# calls --------------------------------------------------------------------------------------------------

#define API UNITY_EXPORT
API void sumi_unity_lock(void);
API int32_t sumi_unity_try_lock(void);
API void sumi_unity_unlock(void);
API const char* sumi_unity_trouble(void);
API int32_t sumi_unity_luid(uint8_t out[8]);
API uint64_t sumi_unity_create(sumi_engine* engine, void* native, int32_t width, int32_t height,
                               int32_t takes_previews);
API int32_t sumi_unity_wish(uint64_t id, int32_t wished, uint64_t job);
API int32_t sumi_unity_result(uint64_t id);
API const char* sumi_unity_message(uint64_t id);
API int32_t sumi_unity_target(uint64_t id, sumi_target* out);
API void sumi_unity_dispose(uint64_t id);
API int32_t sumi_unity_dispose_all(sumi_engine* engine);
API void sumi_unity_forget(sumi_engine* engine);
API void* sumi_unity_event(void);
API void* sumi_unity_log(void);

API void sumi_unity_lock(void) { lock(); }
API int32_t sumi_unity_try_lock(void) { return try_lock(); }
API void sumi_unity_unlock(void) { unlock(); }

// Why Unity's textures cannot be shared, in a sentence that says what to do; "" where they can. Static.
API const char* sumi_unity_trouble(void)
{
    switch (renderer()) {
    case -1:
        return "Unity has not loaded sumi_unity as a rendering plug-in: it must be in the package's Runtime/Plugins "
               "folder when the program starts";
    case RENDERER_GL_CORE: return "";
#if defined(_WIN32)
    case RENDERER_D3D11: return "";
    case RENDERER_D3D12:
        return s_d3d12.get_device != NULL
                 ? ""
                 : "this version of Unity has none of the interfaces IUnityGraphicsD3D12v5, v6 and v7: use Direct3D 11";
#endif
    case RENDERER_NULL: return "Unity draws nothing (batch mode, -nographics): fetch pictures into memory";
    case RENDERER_VULKAN:
        return "textures of Vulkan cannot be shared, because Unity's device lacks the extensions: use OpenGL core, or "
               "fetch pictures into memory";
    case RENDERER_METAL: return "there is no CUDA on systems with Metal: fetch pictures into memory";
    default:
        return "only textures of OpenGL core, Direct3D 11 and Direct3D 12 can be shared: fetch pictures into memory";
    }
}

// The LUID of the adapter that Unity draws with. Returns 0 where it is not known: with other renderers than Direct3D.
API int32_t sumi_unity_luid(uint8_t out[8])
{
#if defined(_WIN32)
    const int current = renderer();
    LUID luid;
    if (current == RENDERER_D3D12 && s_d3d12.get_device != NULL) {
        luid = luid_of(s_d3d12.get_device());
        memcpy(out, &luid, sizeof luid);
        return 1;
    }
    const unity_d3d11* d3d11 = current == RENDERER_D3D11
                                 ? s_interfaces->get_interface_split(0xAAB37EF87A87D748ull, 0xBF76967F07EFB177ull)
                                 : NULL;
    IDXGIDevice* device = NULL;
    IDXGIAdapter* adapter = NULL;
    DXGI_ADAPTER_DESC desc;
    bool is_known =
        d3d11 != NULL && SUCCEEDED(ID3D11Device_QueryInterface(d3d11->get_device(), &IID_IDXGIDevice, (void**)&device))
        && SUCCEEDED(IDXGIDevice_GetAdapter(device, &adapter)) && SUCCEEDED(IDXGIAdapter_GetDesc(adapter, &desc));
    if (is_known) memcpy(out, &desc.AdapterLuid, sizeof desc.AdapterLuid);
    if (adapter != NULL) IDXGIAdapter_Release(adapter);
    if (device != NULL) IDXGIDevice_Release(device);
    return is_known;
#else
    (void)out;
    return 0;
#endif
}

// The caller of all that follows holds the lock.

// `native` is the texture's GetNativeTexturePtr(): RGBA32, linear, without mip levels. Returns the texture's number,
// the data of its events. 0: no memory.
API uint64_t sumi_unity_create(sumi_engine* engine, void* native, int32_t width, int32_t height, int32_t takes_previews)
{
    sumi_unity_texture* t = calloc(1, sizeof *t);
    if (t == NULL) return 0;
    *t = (sumi_unity_texture){.next = s_textures,
                              .id = ++s_last_id,
                              .engine = engine,
                              .native = native,
                              .width = width,
                              .height = height,
                              .takes_previews = takes_previews != 0,
                              .result = NOT_YET};
#if defined(_WIN32)
    t->has_reference = renderer() == RENDERER_D3D11 || renderer() == RENDERER_D3D12;
    if (t->has_reference) IUnknown_AddRef((IUnknown*)native);
#endif
    s_textures = t;
    return t->id;
}

// A sumi_result: SUMI_STALE_HANDLE for a texture that was disposed, or whose engine or device is gone.
API int32_t sumi_unity_wish(uint64_t id, int32_t wished, uint64_t job)
{
    sumi_unity_texture* t = find(id);
    if (t == NULL) return SUMI_STALE_HANDLE;
    t->wish = (wish)wished;
    t->job = (sumi_job){job};
    t->result = NOT_YET;
    t->message[0] = '\0';
    return SUMI_OK;
}

// A sumi_result, or -1 while the wish waits for an event.
API int32_t sumi_unity_result(uint64_t id)
{
    const sumi_unity_texture* t = find(id);
    return t != NULL ? t->result : (int32_t)SUMI_STALE_HANDLE;
}

// Why the last wish failed, in a sentence; "" where nothing is known. Valid while the lock is held.
API const char* sumi_unity_message(uint64_t id)
{
    const sumi_unity_texture* t = find(id);
    return t != NULL ? t->message : "";
}

// For sumi_image_desc.targets. A sumi_result: SUMI_WRONG_STATE before the import was done.
API int32_t sumi_unity_target(uint64_t id, sumi_target* out)
{
    sumi_unity_texture* t = find(id);
    *out = (sumi_target){0};
    if (t == NULL) return SUMI_STALE_HANDLE;
    if (t->external == NULL) return SUMI_WRONG_STATE;
    *out = target_of(t);
    return SUMI_OK;
}

// Waits for nothing: the next event ends the import.
API void sumi_unity_dispose(uint64_t id)
{
    sumi_unity_texture* t = find(id);
    if (t != NULL) t->is_disposed = true;
}

// All textures of an engine, which will be destroyed. Returns how many imports the next event ends: with OpenGL they
// must be ended before the engine is destroyed, because only the thread that renders has the context.
API int32_t sumi_unity_dispose_all(sumi_engine* engine)
{
    int32_t count = 0;
    for (sumi_unity_texture* t = s_textures; t != NULL; t = t->next) {
        if (t->engine != engine) continue;
        t->is_disposed = true;
        count += t->external != NULL;
    }
    return count;
}

// Directly before sumi_engine_destroy, which ends what imports are left.
API void sumi_unity_forget(sumi_engine* engine)
{
    for (sumi_unity_texture* t = s_textures; t != NULL; t = t->next) {
        if (t->engine != engine) continue;
        t->is_disposed = true;
        t->engine = NULL;
        t->external = NULL;
#if defined(_WIN32)
        t->ready_import = NULL;
#endif
    }
}

// For sumi_engine_desc.log.write, with the address of the real sumi_log as user_data.
API void* sumi_unity_log(void)
{
    void (*function)(sumi_log_level, sumi_result, const char*, void*) = write_log;
    void* address;
    memcpy(&address, &function, sizeof address);
    return address;
}

// For CommandBuffer.IssuePluginEventAndData, with the texture's number as data.
API void* sumi_unity_event(void)
{
    void(UNITY_CALL * function)(int event, void* data) = on_event;
    void* address;
    memcpy(&address, &function, sizeof address);
    return address;
}
