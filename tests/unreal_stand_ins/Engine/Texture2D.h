// A stand-in: see README.md.
#pragma once
#include "CoreMinimal.h"

enum EPixelFormat { PF_Unknown, PF_B8G8R8A8, PF_DXT1, PF_R8G8B8A8, PF_A32B32G32R32F, PF_FloatRGBA, PF_R32_FLOAT };
enum { LOCK_READ_WRITE = 2 };

struct FByteBulkData {
    void* Lock(uint32) { return Bytes.data(); }
    const void* LockReadOnly() const { return Bytes.empty() ? nullptr : Bytes.data(); }
    void Unlock() const {}
    int64 GetBulkDataSize() const { return static_cast<int64>(Bytes.size()); }
    std::vector<uint8> Bytes;
};
struct FTexture2DMipMap {
    uint16 SizeX = 0, SizeY = 0;
    FByteBulkData BulkData;
};
struct FTexturePlatformData {
    EPixelFormat PixelFormat = PF_Unknown;
    TArray<FTexture2DMipMap> Mips;
};
struct FUpdateTextureRegion2D {
    FUpdateTextureRegion2D(uint32 X, uint32 Y, int32 FromX, int32 FromY, uint32 W, uint32 H)
        : DestX(X), DestY(Y), SrcX(FromX), SrcY(FromY), Width(W), Height(H)
    {
    }
    uint32 DestX, DestY;
    int32 SrcX, SrcY;
    uint32 Width, Height;
};
class FTextureResource;

class ENGINE_API UTexture2D : public UObject {
  public:
    using FCleanUp = TFunction<void(uint8*, const FUpdateTextureRegion2D*)>;
    static UTexture2D* CreateTransient(int32 Width, int32 Height, EPixelFormat Format);
    int32 GetSizeX() const { return Data.Mips.Num() ? Data.Mips.begin()->SizeX : 0; }
    int32 GetSizeY() const { return Data.Mips.Num() ? Data.Mips.begin()->SizeY : 0; }
    int32 GetNumMips() const { return Data.Mips.Num(); }
    EPixelFormat GetPixelFormat() const { return Data.PixelFormat; }
    FTexturePlatformData* GetPlatformData() { return &Data; }
    const FTextureResource* GetResource() const
    {
        return bHasResource ? reinterpret_cast<const FTextureResource*>(this) : nullptr;
    }
    void UpdateResource();
    void UpdateTextureRegions(
        int32 Mip, uint32 RegionCount, const FUpdateTextureRegion2D* Regions, uint32 SourcePitch, uint32 SourceBytes,
        uint8* Source, FCleanUp CleanUp = [](uint8*, const FUpdateTextureRegion2D*) {});
    uint8 SRGB : 1;

    // The tests'.
    FTexturePlatformData Data;
    std::vector<uint8> Shown; // what the GPU has
    int ResourceCount = 0, RegionUpdateCount = 0;
    bool bHasResource = false, bHasRenderer = true;
};
