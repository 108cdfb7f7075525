// A stand-in: see README.md. What the plug-in names of Direct3D 12, as abstract structs.
#pragma once
#include <cstdint>

typedef std::int32_t HRESULT;
typedef void* HANDLE;
typedef unsigned int UINT;
typedef std::uint64_t UINT64;
typedef std::uint32_t DWORD;
struct LUID {
    std::uint32_t LowPart;
    std::int32_t HighPart;
};
struct IID {
    int Number;
};
#define SUCCEEDED(Result) ((Result) >= 0)
#define FAILED(Result) ((Result) < 0)
#define GENERIC_ALL 0x10000000u
extern "C" __attribute__((visibility("default"))) int CloseHandle(HANDLE Handle);
__attribute__((visibility("default"))) extern int StandInHandleCount; // the tests' device counts up

struct IUnknown {
    virtual UINT AddRef() = 0;
    virtual UINT Release() = 0;

  protected:
    ~IUnknown() = default;
};
struct ID3D12DeviceChild : IUnknown {};
struct ID3D12Resource : ID3D12DeviceChild {
    static constexpr IID Id = {1};
};
struct ID3D12Fence : ID3D12DeviceChild {
    static constexpr IID Id = {2};
    virtual UINT64 GetCompletedValue() = 0;
    virtual HRESULT Signal(UINT64 Value) = 0;
};
template <typename T> void** StandInOut(T** Out) { return reinterpret_cast<void**>(Out); }
#define IID_PPV_ARGS(Out) std::remove_pointer_t<std::remove_reference_t<decltype(*(Out))>>::Id, StandInOut(Out)

#define D3D12_TEXTURE_DATA_PITCH_ALIGNMENT 256
#define D3D12_DEFAULT_RESOURCE_PLACEMENT_ALIGNMENT 65536
enum D3D12_HEAP_TYPE { D3D12_HEAP_TYPE_DEFAULT = 1 };
enum D3D12_HEAP_FLAGS { D3D12_HEAP_FLAG_SHARED = 1 };
enum D3D12_FENCE_FLAGS { D3D12_FENCE_FLAG_SHARED = 1 };
enum D3D12_RESOURCE_STATES { D3D12_RESOURCE_STATE_COMMON = 0, D3D12_RESOURCE_STATE_COPY_DEST = 0x400 };
enum D3D12_RESOURCE_DIMENSION { D3D12_RESOURCE_DIMENSION_UNKNOWN, D3D12_RESOURCE_DIMENSION_BUFFER };
enum D3D12_TEXTURE_LAYOUT { D3D12_TEXTURE_LAYOUT_UNKNOWN, D3D12_TEXTURE_LAYOUT_ROW_MAJOR };
enum D3D12_TEXTURE_COPY_TYPE { D3D12_TEXTURE_COPY_TYPE_SUBRESOURCE_INDEX, D3D12_TEXTURE_COPY_TYPE_PLACED_FOOTPRINT };
enum DXGI_FORMAT { DXGI_FORMAT_R8G8B8A8_UNORM = 28 };
struct D3D12_HEAP_PROPERTIES {
    D3D12_HEAP_TYPE Type;
};
struct D3D12_RESOURCE_DESC {
    D3D12_RESOURCE_DIMENSION Dimension;
    UINT64 Width;
    UINT Height;
    std::uint16_t DepthOrArraySize, MipLevels;
    struct {
        UINT Count, Quality;
    } SampleDesc;
    D3D12_TEXTURE_LAYOUT Layout;
};
struct D3D12_SUBRESOURCE_FOOTPRINT {
    DXGI_FORMAT Format;
    UINT Width, Height, Depth, RowPitch;
};
struct D3D12_PLACED_SUBRESOURCE_FOOTPRINT {
    UINT64 Offset;
    D3D12_SUBRESOURCE_FOOTPRINT Footprint;
};
struct D3D12_TEXTURE_COPY_LOCATION {
    ID3D12Resource* pResource;
    D3D12_TEXTURE_COPY_TYPE Type;
    D3D12_PLACED_SUBRESOURCE_FOOTPRINT PlacedFootprint;
};
struct ID3D12GraphicsCommandList : ID3D12DeviceChild {
    virtual void CopyTextureRegion(const D3D12_TEXTURE_COPY_LOCATION* To, UINT X, UINT Y, UINT Z,
                                   const D3D12_TEXTURE_COPY_LOCATION* From, const void* Box) = 0;
};
struct ID3D12Device : IUnknown {
    virtual LUID GetAdapterLuid() = 0;
    virtual HRESULT CreateSharedHandle(ID3D12DeviceChild* Child, const void*, DWORD Access, const wchar_t* Name,
                                       HANDLE* Out) = 0;
    virtual HRESULT CreateCommittedResource(const D3D12_HEAP_PROPERTIES* Heap, D3D12_HEAP_FLAGS Flags,
                                            const D3D12_RESOURCE_DESC* Desc, D3D12_RESOURCE_STATES State, const void*,
                                            const IID& Id, void** Out) = 0;
    virtual HRESULT CreateFence(UINT64 Value, D3D12_FENCE_FLAGS Flags, const IID& Id, void** Out) = 0;
};
