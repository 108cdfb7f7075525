// A stand-in: see README.md.
#pragma once
#include "Engine/TextureRenderTarget2D.h"

enum ESceneCaptureSource { SCS_SceneColorHDR, SCS_SceneDepth };

class USceneCaptureComponent2D : public UObject {
  public:
    void CaptureScene()
    {
        CaptureCount++;
        TextureTarget->Resource.Pixels = Seen;
    }
    ESceneCaptureSource CaptureSource = SCS_SceneDepth;
    TObjectPtr<UTextureRenderTarget2D> TextureTarget;

    // The tests'.
    TArray<FLinearColor> Seen;
    int CaptureCount = 0;
};
