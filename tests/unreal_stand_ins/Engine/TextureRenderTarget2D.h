// A stand-in: see README.md.
#pragma once
#include "Engine/Texture2D.h"

struct FLinearColor {
    float R = 0.0f, G = 0.0f, B = 0.0f, A = 0.0f;
};

class FTextureRenderTargetResource {
  public:
    bool ReadLinearColorPixels(TArray<FLinearColor>& Out)
    {
        Out = Pixels;
        return Out.Num() > 0;
    }
    TArray<FLinearColor> Pixels; // the tests'
};

class UTextureRenderTarget2D : public UObject {
  public:
    FTextureRenderTargetResource* GameThread_GetRenderTargetResource() { return bHasResource ? &Resource : nullptr; }
    EPixelFormat GetFormat() const { return Format; }
    int32 SizeX = 0, SizeY = 0;

    // The tests'.
    FTextureRenderTargetResource Resource;
    EPixelFormat Format = PF_A32B32G32R32F;
    bool bHasResource = true;
};
