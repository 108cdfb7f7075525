// The half of the rendering plug-in of samples/engines/unity that uses Direct3D, with a device, textures and fences that are none:
// who holds references to what, what is released when, and which of Unity's interfaces are found. For Windows: cross-
// compiled and run under Wine by tests/test_unity.sh. The last line is "unity_direct3d: N passed, N failed, 0 skipped".
#include "samples/engines/unity/Native~/sumi_unity.c"
#include <stdio.h>

static int s_passed, s_failed;
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (condition) s_passed++;                                                                                     \
        else s_failed++, printf("FAILED: line %d: %s\n", __LINE__, #condition);                                        \
    } while (0)

// ---- Objects --------------------------------------------------------------------------------------------------------
// All begin alike. Each kind has the table of its methods, of which only those that the plug-in calls are there.

typedef struct object {
    const void* methods;
    int references;
    UINT64 completed; // of a fence
} object;
static int s_alive; // objects that the plug-in made or got a reference to
static object s_device, s_frame_fence, s_d3d11, s_dxgi, s_adapter;
static UINT64 s_frame_value; // of the copy that was executed last
static int s_copies;

static ULONG STDMETHODCALLTYPE add_reference(void* this)
{
    s_alive++;
    return (ULONG)++((object*)this)->references;
}

static ULONG STDMETHODCALLTYPE release(void* this)
{
    object* of = this;
    CHECK(of->references > 0);
    s_alive--;
    return (ULONG)--of->references;
}

static UINT64 STDMETHODCALLTYPE completed_value(ID3D12Fence* this) { return ((object*)this)->completed; }
static HRESULT STDMETHODCALLTYPE reset_allocator(ID3D12CommandAllocator* this)
{
    (void)this;
    return S_OK;
}
static HRESULT STDMETHODCALLTYPE close_list(ID3D12GraphicsCommandList* this)
{
    (void)this;
    return S_OK;
}
static HRESULT STDMETHODCALLTYPE reset_list(ID3D12GraphicsCommandList* this, ID3D12CommandAllocator* allocator,
                                            ID3D12PipelineState* state)
{
    (void)this, (void)allocator, (void)state;
    return S_OK;
}
static void STDMETHODCALLTYPE copy_region(ID3D12GraphicsCommandList* this, const D3D12_TEXTURE_COPY_LOCATION* to,
                                          UINT x, UINT y, UINT z, const D3D12_TEXTURE_COPY_LOCATION* from,
                                          const D3D12_BOX* box)
{
    (void)this, (void)box;
    CHECK(x == 0 && y == 0 && z == 0 && to->pResource != NULL && from->PlacedFootprint.Footprint.RowPitch == 256);
    s_copies++;
}

#define REFERENCES .AddRef = (void*)add_reference, .Release = (void*)release
static const ID3D12ResourceVtbl s_resource_methods = {REFERENCES};
static const ID3D12FenceVtbl s_fence_methods = {REFERENCES, .GetCompletedValue = completed_value};
static const ID3D12CommandAllocatorVtbl s_allocator_methods = {REFERENCES, .Reset = reset_allocator};
static const ID3D12GraphicsCommandListVtbl s_list_methods = {REFERENCES, .Reset = reset_list, .Close = close_list,
                                                             .CopyTextureRegion = copy_region};

static HRESULT make(const void* methods, void** out)
{
    object* made = calloc(1, sizeof *made); // the test is over before they would be freed
    made->methods = methods;
    add_reference(made);
    *out = made;
    return S_OK;
}

static HRESULT STDMETHODCALLTYPE make_resource(ID3D12Device* this, const D3D12_HEAP_PROPERTIES* heap,
                                               D3D12_HEAP_FLAGS flags, const D3D12_RESOURCE_DESC* desc,
                                               D3D12_RESOURCE_STATES state, const D3D12_CLEAR_VALUE* clear, REFIID id,
                                               void** out)
{
    (void)this, (void)heap, (void)state, (void)clear, (void)id;
    CHECK(flags == D3D12_HEAP_FLAG_SHARED && desc->Width == 256 * 32);
    return make(&s_resource_methods, out);
}
static HRESULT STDMETHODCALLTYPE make_fence(ID3D12Device* this, UINT64 value, D3D12_FENCE_FLAGS flags, REFIID id,
                                            void** out)
{
    (void)this, (void)value, (void)flags, (void)id;
    return make(&s_fence_methods, out);
}
static HRESULT STDMETHODCALLTYPE make_allocator(ID3D12Device* this, D3D12_COMMAND_LIST_TYPE type, REFIID id, void** out)
{
    (void)this, (void)type, (void)id;
    return make(&s_allocator_methods, out);
}
static HRESULT STDMETHODCALLTYPE make_list(ID3D12Device* this, UINT node, D3D12_COMMAND_LIST_TYPE type,
                                           ID3D12CommandAllocator* allocator, ID3D12PipelineState* state, REFIID id,
                                           void** out)
{
    (void)this, (void)node, (void)type, (void)allocator, (void)state, (void)id;
    return make(&s_list_methods, out);
}
static HRESULT STDMETHODCALLTYPE make_handle(ID3D12Device* this, ID3D12DeviceChild* child,
                                             const SECURITY_ATTRIBUTES* attributes, DWORD access, const WCHAR* name,
                                             HANDLE* out)
{
    (void)this, (void)child, (void)attributes, (void)access, (void)name;
    *out = CreateEventW(NULL, FALSE, FALSE, NULL); // one that can be closed
    return S_OK;
}
static LUID* STDMETHODCALLTYPE adapter_luid(ID3D12Device* this, LUID* out)
{
    (void)this;
    *out = (LUID){.LowPart = 12, .HighPart = 0};
    return out;
}

static HRESULT STDMETHODCALLTYPE query_dxgi(ID3D11Device* this, REFIID id, void** out)
{
    (void)this;
    if (memcmp(id, &IID_IDXGIDevice, sizeof *id) != 0) return E_NOINTERFACE;
    add_reference(&s_dxgi);
    *out = &s_dxgi;
    return S_OK;
}
static HRESULT STDMETHODCALLTYPE get_adapter(IDXGIDevice* this, IDXGIAdapter** out)
{
    (void)this;
    add_reference(&s_adapter);
    *out = (IDXGIAdapter*)&s_adapter;
    return S_OK;
}
static HRESULT STDMETHODCALLTYPE get_desc(IDXGIAdapter* this, DXGI_ADAPTER_DESC* out)
{
    (void)this;
    *out = (DXGI_ADAPTER_DESC){.AdapterLuid = {.LowPart = 11, .HighPart = 0}};
    return S_OK;
}
static const ID3D11DeviceVtbl s_d3d11_methods = {REFERENCES, .QueryInterface = query_dxgi};
static const IDXGIDeviceVtbl s_dxgi_methods = {REFERENCES, .GetAdapter = get_adapter};
static const IDXGIAdapterVtbl s_adapter_methods = {REFERENCES, .GetDesc = get_desc};

// ---- Unity ----------------------------------------------------------------------------------------------------------

static int s_renderer, s_version; // of IUnityGraphicsD3D12; 0: there is none
static int UNITY_CALL current_renderer(void) { return s_renderer; }
static void(UNITY_CALL* s_device_event)(int type);
static void UNITY_CALL register_event(void(UNITY_CALL* function)(int type)) { s_device_event = function; }
static void UNITY_CALL unregister_event(void(UNITY_CALL* function)(int type)) { CHECK(function == s_device_event); }
static ID3D12Device* UNITY_CALL d3d12_device(void) { return (ID3D12Device*)&s_device; }
static ID3D11Device* UNITY_CALL d3d11_device(void) { return (ID3D11Device*)&s_d3d11; }
static ID3D12Fence* UNITY_CALL frame_fence(void) { return (ID3D12Fence*)&s_frame_fence; }
static UINT64 UNITY_CALL execute(ID3D12GraphicsCommandList* list, int count, unity_resource_state* states)
{
    CHECK(list != NULL && count == 1 && states->resource != NULL);
    return ++s_frame_value;
}

static void* UNITY_CALL interface_of(unsigned long long high, unsigned long long low)
{
    static unity_graphics s_shown_graphics = {current_renderer, register_event, unregister_event, NULL};
    static unity_d3d12_v5 s_v5 = {d3d12_device, frame_fence, NULL, execute};
    static unity_d3d12_v7 s_v7 = {d3d12_device, NULL, NULL, NULL, frame_fence, NULL, execute};
    static unity_d3d11 s_shown_d3d11 = {d3d11_device};
    (void)low;
    switch (high) {
    case 0x7CBA0A9CA4DDB544ull: return &s_shown_graphics;
    case 0xAAB37EF87A87D748ull: return s_renderer == RENDERER_D3D11 ? &s_shown_d3d11 : NULL;
    case 0xF5C8D8A37D37BC42ull: return s_version == 5 ? &s_v5 : NULL;
    case 0xA396DCE58CAC4D78ull: return s_version == 6 ? &s_v5 : NULL;
    case 0x4624B0DA41B64AACull: return s_version == 7 ? &s_v7 : NULL;
    default: return NULL;
    }
}

static void load(int renderer_kind, int version)
{
    static unity_interfaces s_shown_interfaces = {NULL, NULL, interface_of, NULL};
    s_renderer = renderer_kind;
    s_version = version;
    UnityPluginLoad(&s_shown_interfaces);
}

// ---- sumi -----------------------------------------------------------------------------------------------------------

static int s_imports; // that are not released
sumi_import_desc sumi_import_defaults(void) { return (sumi_import_desc){.fd = -1}; }
sumi_result sumi_import(sumi_engine* engine, const sumi_import_desc* desc, sumi_external** out)
{
    CHECK(engine != NULL && desc->handle != NULL);
    CHECK(desc->kind == SUMI_EXTERNAL_D3D11_TEXTURE || (desc->device_luid != NULL && desc->device_luid[0] == 12));
    *out = calloc(1, 1);
    s_imports++;
    return SUMI_OK;
}
void sumi_external_release(sumi_external* external)
{
    if (external != NULL) s_imports--;
    free(external);
}
sumi_result sumi_job_show_preview(sumi_engine* engine, sumi_job job, int32_t item, const sumi_target* target)
{
    (void)job, (void)item;
    return engine != NULL && target->external != NULL ? SUMI_OK : SUMI_INTERNAL;
}
sumi_result sumi_fetch_images(sumi_engine* engine, sumi_job job, sumi_image* images, int32_t capacity)
{
    (void)job, (void)images, (void)capacity;
    return engine != NULL ? SUMI_OK : SUMI_INTERNAL;
}
sumi_result sumi_engine_last_error(const sumi_engine* engine, char* into, size_t capacity)
{
    (void)engine, (void)into, (void)capacity;
    return SUMI_OK;
}

// ---- Tests ----------------------------------------------------------------------------------------------------------

static sumi_engine* const s_engine = (sumi_engine*)&s_failed; // an address
static object s_native = {&s_resource_methods, 0, 0};

static void tell(uint64_t id) { on_event(0, (void*)(uintptr_t)id); }
static void wish_for(uint64_t id, wish wished)
{
    CHECK(sumi_unity_wish(id, wished, 1) == SUMI_OK);
    tell(id);
}

static uint64_t imported(void)
{
    CHECK(s_alive == 0 && s_native.references == 0);
    const uint64_t id = sumi_unity_create(s_engine, &s_native, 32, 32, 0);
    sumi_target target;
    CHECK(s_native.references == 1);
    CHECK(sumi_unity_target(id, &target) == SUMI_WRONG_STATE);
    wish_for(id, WISH_IMPORT);
    CHECK(sumi_unity_result(id) == SUMI_OK && sumi_unity_target(id, &target) == SUMI_OK && target.external != NULL);
    return id;
}

// An image that was fetched, and is being copied by Unity's GPU.
static uint64_t being_copied(void)
{
    const uint64_t id = imported();
    CHECK(s_alive == 1 + 4 && s_imports == 2); // the texture; buffer, fence, allocator, list
    sumi_target target;
    CHECK(sumi_unity_target(id, &target) == SUMI_OK && target.signal.value == 1 && target.bottom_up);
    wish_for(id, WISH_FETCH);
    CHECK(sumi_unity_result(id) == SUMI_OK);
    const int copies = s_copies;
    tell(id);
    CHECK(s_copies == copies); // the image is not there yet
    ((object*)find(id)->ready)->completed = 1;
    tell(id);
    CHECK(s_copies == copies + 1 && find(id)->frame_value == s_frame_value);
    return id;
}

static void check_is_gone(uint64_t id)
{
    CHECK(s_alive == 0 && s_native.references == 0 && sumi_unity_result(id) == SUMI_STALE_HANDLE);
    CHECK(s_textures == NULL);
}

static void test_interfaces(void)
{
    uint8_t luid[8] = {0};
    for (int version = 5; version <= 7; version++) {
        load(RENDERER_D3D12, version);
        CHECK(sumi_unity_trouble()[0] == 0 && sumi_unity_luid(luid) == 1 && luid[0] == 12);
        const uint64_t id = being_copied();
        s_frame_fence.completed = s_frame_value;
        sumi_unity_dispose(id);
        tell(id);
        check_is_gone(id);
        CHECK(s_imports == 0);
        UnityPluginUnload();
    }
    load(RENDERER_D3D12, 0);
    CHECK(strstr(sumi_unity_trouble(), "IUnityGraphicsD3D12") != NULL && sumi_unity_luid(luid) == 0);
    s_version = 7; // the device is initialised after the plug-in was loaded
    s_device_event(DEVICE_INITIALIZE);
    CHECK(sumi_unity_trouble()[0] == 0);
}

static void test_disposed_while_unity_copies(void)
{
    load(RENDERER_D3D12, 7);
    const uint64_t id = being_copied();
    sumi_unity_dispose(id);
    tell(id);
    CHECK(s_alive == 5 && s_imports == 1 && find(id) == NULL); // what Unity's GPU uses stays
    s_frame_fence.completed = s_frame_value;
    tell(0);
    check_is_gone(id);
    CHECK(s_imports == 0);
}

static void test_the_engine_goes_first(void)
{
    load(RENDERER_D3D12, 7);
    const uint64_t id = being_copied();
    sumi_unity_forget(s_engine);
    CHECK(sumi_unity_wish(id, WISH_FETCH, 1) == SUMI_STALE_HANDLE);
    tell(id);
    CHECK(s_alive == 5 && s_imports == 2); // the engine's destruction ends its imports, nobody else
    s_frame_fence.completed = s_frame_value;
    tell(0);
    check_is_gone(id);
    CHECK(s_imports == 2);
    s_imports = 0;
}

static void test_the_device_is_reset(void)
{
    load(RENDERER_D3D12, 7);
    const uint64_t id = being_copied();
    s_device_event(DEVICE_BEFORE_RESET);
    check_is_gone(id);
    CHECK(s_imports == 0);
    s_frame_fence.completed = s_frame_value;
}

static void test_d3d11(void)
{
    uint8_t luid[8] = {0};
    load(RENDERER_D3D11, 0);
    CHECK(sumi_unity_trouble()[0] == 0 && sumi_unity_luid(luid) == 1 && luid[0] == 11);
    const uint64_t id = imported();
    CHECK(s_alive == 1 && s_imports == 1);
    wish_for(id, WISH_PREVIEW);
    CHECK(sumi_unity_result(id) == SUMI_OK);
    sumi_unity_dispose(id);
    tell(id);
    check_is_gone(id);
    CHECK(s_imports == 0);
}

int main(void)
{
    static ID3D12DeviceVtbl s_device_calls = {REFERENCES,
                                              .CreateCommittedResource = make_resource,
                                              .CreateFence = make_fence,
                                              .CreateCommandAllocator = make_allocator,
                                              .CreateCommandList = make_list,
                                              .CreateSharedHandle = make_handle};
    LUID*(STDMETHODCALLTYPE * method)(ID3D12Device * device, LUID * out) = adapter_luid;
    memcpy(&s_device_calls.GetAdapterLuid, &method, sizeof method);
    s_device.methods = &s_device_calls;
    s_frame_fence.methods = &s_fence_methods;
    s_d3d11.methods = &s_d3d11_methods;
    s_dxgi.methods = &s_dxgi_methods;
    s_adapter.methods = &s_adapter_methods;
    test_interfaces();
    test_disposed_while_unity_copies();
    test_the_engine_goes_first();
    test_the_device_is_reset();
    test_d3d11();
    printf("unity_direct3d: %d passed, %d failed, 0 skipped\n", s_passed, s_failed);
    return s_failed > 0;
}
