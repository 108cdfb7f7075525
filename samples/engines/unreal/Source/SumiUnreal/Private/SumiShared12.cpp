#include "SumiShared12.h"

#if defined(_WIN32) || (defined(PLATFORM_WINDOWS) && PLATFORM_WINDOWS)
#if defined(__MINGW32__)
#define WIDL_EXPLICIT_AGGREGATE_RETURNS // MinGW-w64's g++ returns structs from methods in another way than Direct3D
#endif
#if __has_include("Windows/AllowWindowsPlatformTypes.h") // Unreal's: it hides names of Windows that are its own, too
#include "CoreMinimal.h"

#include "Windows/AllowWindowsPlatformTypes.h"
THIRD_PARTY_INCLUDES_START
#include <d3d12.h>
THIRD_PARTY_INCLUDES_END
#else
#include <d3d12.h>
#endif

namespace sumi {
static sumi_result ResultOf(HRESULT Result) { return SUCCEEDED(Result) ? SUMI_OK : SUMI_INTERNAL; }

std::shared_ptr<Shared12> Shared12::Make(Session& Of, ID3D12Device* Device, int32_t Width, int32_t Height,
                                         bool bPreviews, sumi_result& Result)
{
    std::shared_ptr<Shared12> Made(new Shared12());
    Made->Width = Width;
    Made->Height = Height;
    Result = Of.GetEngine() ? Made->Open(Of.GetEngine(), Device, bPreviews) : SUMI_WRONG_STATE;
    if (Result != SUMI_OK) {
        Made->Release();
        return nullptr;
    }
    Of.Attach(Made);
    return Made;
}

sumi_result Shared12::Import(sumi_engine* Engine, ID3D12Device* Device, sumi_import_desc Desc, ID3D12DeviceChild* Child,
                             sumi_external** Out) const
{
    HANDLE Handle = nullptr;
    const LUID Luid = Device->GetAdapterLuid();
    if (FAILED(Device->CreateSharedHandle(Child, nullptr, GENERIC_ALL, nullptr, &Handle))) return SUMI_INTERNAL;
    Desc.handle = Handle;
    Desc.device_luid = reinterpret_cast<const uint8_t*>(&Luid);
    const sumi_result Result = sumi_import(Engine, &Desc, Out);
    CloseHandle(Handle); // it stays ours
    return Result;
}

sumi_result Shared12::Open(sumi_engine* Engine, ID3D12Device* Device, bool bPreviews)
{
    const UINT Pitch = D3D12_TEXTURE_DATA_PITCH_ALIGNMENT;
    RowBytes = (static_cast<UINT>(Width) * 4 + Pitch - 1) / Pitch * Pitch;
    D3D12_HEAP_PROPERTIES Heap = {};
    Heap.Type = D3D12_HEAP_TYPE_DEFAULT;
    D3D12_RESOURCE_DESC Rows = {};
    Rows.Dimension = D3D12_RESOURCE_DIMENSION_BUFFER;
    Rows.Width = static_cast<UINT64>(RowBytes) * static_cast<UINT64>(Height);
    Rows.Height = Rows.DepthOrArraySize = Rows.MipLevels = 1;
    Rows.SampleDesc.Count = 1;
    Rows.Layout = D3D12_TEXTURE_LAYOUT_ROW_MAJOR;
    sumi_result Result = ResultOf(Device->CreateCommittedResource(
        &Heap, D3D12_HEAP_FLAG_SHARED, &Rows, D3D12_RESOURCE_STATE_COMMON, nullptr, IID_PPV_ARGS(&Buffer)));
    if (Result == SUMI_OK) Result = ResultOf(Device->CreateFence(0, D3D12_FENCE_FLAG_SHARED, IID_PPV_ARGS(&Ready)));
    if (Result == SUMI_OK) Result = ResultOf(Device->CreateFence(0, D3D12_FENCE_FLAG_SHARED, IID_PPV_ARGS(&Drawn)));
    sumi_import_desc Fence = sumi_import_defaults();
    Fence.kind = SUMI_EXTERNAL_D3D12_FENCE;
    if (Result == SUMI_OK) Result = Import(Engine, Device, Fence, Ready, &ReadyImport);
    if (Result == SUMI_OK) Result = Import(Engine, Device, Fence, Drawn, &DrawnImport);
    sumi_import_desc Memory = sumi_import_defaults();
    Memory.kind = SUMI_EXTERNAL_D3D12_RESOURCE;
    Memory.width = Width;
    Memory.height = Height;
    Memory.row_bytes = static_cast<int32_t>(RowBytes);
    const UINT64 Unit = D3D12_DEFAULT_RESOURCE_PLACEMENT_ALIGNMENT;
    Memory.memory_bytes = (Rows.Width + Unit - 1) / Unit * Unit; // what GetResourceAllocationInfo says of a buffer
    Memory.takes_previews = bPreviews;
    if (Result == SUMI_OK) Result = Import(Engine, Device, Memory, Buffer, &External);
    return Result;
}

void Shared12::Release()
{
    if (Drawn && DrawnImport) Drawn->Signal(WrittenValue); // sumi may wait for a copy that will not come
    sumi_external_release(External);
    sumi_external_release(ReadyImport);
    sumi_external_release(DrawnImport);
    External = ReadyImport = DrawnImport = nullptr;
}

Shared12::~Shared12()
{
    if (Drawn) Drawn->Signal(WrittenValue); // as in Release, which may not have been called
    if (Ready) Ready->Release();
    if (Drawn) Drawn->Release();
    if (Buffer) Buffer->Release();
}

sumi_target Shared12::NextTarget() const
{
    sumi_target Target = {};
    Target.format = SUMI_FORMAT_RGBA8;
    Target.external = External;
    Target.wait = {DrawnImport, WrittenValue};
    Target.signal = {ReadyImport, WrittenValue + 1};
    return Target;
}

bool Shared12::HasNew() const { return Ready->GetCompletedValue() > SeenValue; }

uint64_t Shared12::RecordCopy(ID3D12GraphicsCommandList* List, ID3D12Resource* Texture)
{
    SeenValue = Ready->GetCompletedValue();
    D3D12_TEXTURE_COPY_LOCATION From = {}, To = {};
    From.pResource = Buffer;
    From.Type = D3D12_TEXTURE_COPY_TYPE_PLACED_FOOTPRINT;
    From.PlacedFootprint.Footprint = {DXGI_FORMAT_R8G8B8A8_UNORM, static_cast<UINT>(Width), static_cast<UINT>(Height),
                                      1, RowBytes};
    To.pResource = Texture;
    To.Type = D3D12_TEXTURE_COPY_TYPE_SUBRESOURCE_INDEX;
    List->CopyTextureRegion(&To, 0, 0, 0, &From, nullptr);
    return SeenValue;
}
} // namespace sumi

#if __has_include("Windows/HideWindowsPlatformTypes.h")
#include "Windows/HideWindowsPlatformTypes.h"
#endif
#endif
