// A stand-in: see README.md.
#pragma once
#include "RHI.h"
#include "d3d12.h"

class ID3D12DynamicRHI : public FDynamicRHI {
  public:
    virtual ID3D12Device* RHIGetDevice(uint32 Index) const = 0;
    virtual ID3D12Resource* RHIGetResource(FRHITexture* Texture) const = 0;
#if ENGINE_MINOR_VERSION >= 5
    virtual ID3D12GraphicsCommandList* RHIGetGraphicsCommandList(FRHICommandListBase& Executing,
                                                                 uint32 Index) const = 0;
    virtual void RHIFinishExternalComputeWork(FRHICommandListBase& Executing, uint32 Index,
                                              ID3D12GraphicsCommandList* List) = 0;
#else
    virtual ID3D12GraphicsCommandList* RHIGetGraphicsCommandList(uint32 Index) const = 0;
    virtual void RHIFinishExternalComputeWork(uint32 Index, ID3D12GraphicsCommandList* List) = 0;
#endif
    virtual void RHITransitionResource(FRHICommandList& List, FRHITexture* Texture, D3D12_RESOURCE_STATES State,
                                       uint32 Subresource) = 0;
    virtual void RHISignalManualFence(FRHICommandList& List, ID3D12Fence* Fence, uint64 Value) = 0;
};
inline ID3D12DynamicRHI* GetID3D12DynamicRHI() { return static_cast<ID3D12DynamicRHI*>(GDynamicRHI); }
