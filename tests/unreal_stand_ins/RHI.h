// A stand-in: see README.md.
#pragma once
#include "CoreMinimal.h"

class FRHICommandListBase {};
class FRHICommandList : public FRHICommandListBase {};
class FRHICommandListImmediate : public FRHICommandList {
  public:
    void EnqueueLambda(std::function<void(FRHICommandListImmediate&)> Command) { Command(*this); }
};
class FRHITexture {};
class FTextureRHIRef {
  public:
    FTextureRHIRef(FRHITexture* From = nullptr) : Texture(From) {}
    operator FRHITexture*() const { return Texture; }
    FRHITexture* GetReference() const { return Texture; }

  private:
    FRHITexture* Texture;
};
enum class ERHIInterfaceType { Null, D3D12, Vulkan };
class FDynamicRHI {
  public:
    virtual ~FDynamicRHI() = default;
    virtual ERHIInterfaceType GetInterfaceType() const = 0;
};
extern ENGINE_API FDynamicRHI* GDynamicRHI;
