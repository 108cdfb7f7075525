// The stand-ins' own state: a library of its own, as the engine is to its modules.
#include "StandIn.h"
#include "Containers/Ticker.h"
#include "Engine/Engine.h"
#include "Engine/Texture2D.h"
#include "ID3D12DynamicRHI.h"
#include "RenderingThread.h"
#include <map>
#include <mutex>

UEngine* GEngine = nullptr;
FDynamicRHI* GDynamicRHI = nullptr;
int StandInHandleCount;
int CloseHandle(HANDLE) { return StandInHandleCount--, 1; }
static std::map<uint64, UObject*> Objects;
static uint64 LastSerial;
static std::vector<std::function<void(FRHICommandListImmediate&)>> RenderCommands;

std::u16string StandInWide(const char* Text) // ASCII is enough here
{
    std::u16string Made;
    for (; *Text; Text++) Made += static_cast<char16_t>(static_cast<unsigned char>(*Text));
    return Made;
}

std::string StandInNarrow(const TCHAR* Text)
{
    std::string Made;
    for (; *Text; Text++) Made += static_cast<char>(*Text);
    return Made;
}

UObject::UObject() : Serial(++LastSerial) { Objects[Serial] = this; }
UObject::~UObject() { Objects.erase(Serial); }
UObject* StandInFind(uint64 Serial)
{
    const auto Found = Objects.find(Serial);
    return Found == Objects.end() ? nullptr : Found->second;
}

void StandInLog(const char* Verbosity, const TCHAR* Format)
{
    static std::mutex Lock; // UE_LOG may be called by any thread
    const std::lock_guard<std::mutex> Guard(Lock);
    StandIn::GetLog().push_back({Verbosity, Format});
}

void StandInRender(std::function<void(FRHICommandListImmediate&)> Command)
{
    RenderCommands.push_back(std::move(Command));
}

namespace StandIn {
void Destroy(UObject* Object) { delete Object; }
void DestroyAll()
{
    const auto Copied = Objects;
    for (const auto& Each : Copied)
        if (Each.second->bMade) delete Each.second;
}

int RunRenderCommands()
{
    FRHICommandListImmediate List;
    const auto Taken = std::move(RenderCommands);
    RenderCommands.clear();
    for (const auto& Each : Taken) Each(List);
    return static_cast<int>(Taken.size());
}

std::vector<FLine>& GetLog()
{
    static std::vector<FLine> Log;
    return Log;
}
} // namespace StandIn

// ---- Ticker ---------------------------------------------------------------------------------------------------------
FTSTicker& FTSTicker::GetCoreTicker()
{
    static FTSTicker Core;
    return Core;
}

FTSTicker::FDelegateHandle FTSTicker::AddTicker(const FTickerDelegate& Delegate, float)
{
    Delegates[++Last] = Delegate;
    return {Last};
}

void FTSTicker::RemoveTicker(FDelegateHandle Handle) { Delegates.erase(Handle.Number); }

void FTSTicker::Tick(float Seconds)
{
    const auto Copied = Delegates;
    for (const auto& Each : Copied)
        if (Delegates.count(Each.first) && !Each.second.Call(Seconds)) Delegates.erase(Each.first);
}

// ---- Textures -------------------------------------------------------------------------------------------------------
UTexture2D* UTexture2D::CreateTransient(int32 Width, int32 Height, EPixelFormat Format)
{
    UTexture2D* Made = NewObject<UTexture2D>();
    Made->Data.PixelFormat = Format;
    Made->Data.Mips.Add(FTexture2DMipMap());
    Made->Data.Mips[0].SizeX = static_cast<uint16>(Width);
    Made->Data.Mips[0].SizeY = static_cast<uint16>(Height);
    Made->Data.Mips[0].BulkData.Bytes.resize(static_cast<size_t>(Width) * static_cast<size_t>(Height) * 4);
    return Made;
}

void UTexture2D::UpdateResource()
{
    ResourceCount++;
    if (!bHasRenderer) return;
    bHasResource = true;
    const TWeakObjectPtr<UTexture2D> Weak(this);
    StandInRender([Weak](FRHICommandListImmediate&) {
        if (UTexture2D* Texture = Weak.Get()) Texture->Shown = Texture->Data.Mips[0].BulkData.Bytes;
    });
}

void UTexture2D::UpdateTextureRegions(int32, uint32 RegionCount, const FUpdateTextureRegion2D* Regions,
                                      uint32 SourcePitch, uint32 SourceBytes, uint8* Source, FCleanUp CleanUp)
{
    if (!bHasResource) return; // Unreal does not call CleanUp then
    RegionUpdateCount++;
    const TWeakObjectPtr<UTexture2D> Weak(this);
    StandInRender([=](FRHICommandListImmediate&) {
        UTexture2D* Texture = Weak.Get();
        for (uint32 i = 0; Texture && i < RegionCount; i++) {
            const FUpdateTextureRegion2D& Region = Regions[i];
            for (uint32 y = 0; y < Region.Height; y++)
                std::memcpy(
                    &Texture->Shown[((Region.DestY + y) * static_cast<size_t>(Texture->GetSizeX()) + Region.DestX)
                                    * SourceBytes],
                    Source + (static_cast<uint32>(Region.SrcY) + y) * static_cast<size_t>(SourcePitch)
                        + static_cast<uint32>(Region.SrcX) * SourceBytes,
                    static_cast<size_t>(Region.Width) * SourceBytes);
        }
        CleanUp(Source, Regions);
    });
}
