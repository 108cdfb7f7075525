#include "SumiGenerateImage.h"
#include "Components/SceneCaptureComponent2D.h"
#include "Engine/Engine.h"
#include "Engine/GameInstance.h"
#include "Engine/TextureRenderTarget2D.h"
#include "Engine/World.h"
#include "Misc/Paths.h"
#include "RHI.h"
#include "SumiSubsystem.h"
#include <memory>

// The node's enum is converted by its numbers.
static_assert(static_cast<int>(ESumiPreset::Model) == SUMI_PRESET_MODEL, "");
static_assert(static_cast<int>(ESumiPreset::Preview) == SUMI_PRESET_PREVIEW, "");
static_assert(static_cast<int>(ESumiPreset::Standard) == SUMI_PRESET_STANDARD, "");
static_assert(static_cast<int>(ESumiPreset::Quality) == SUMI_PRESET_QUALITY, "");
static_assert(static_cast<int>(ESumiPreset::Lean) == SUMI_PRESET_LEAN, "");

// What the render thread copies from, some time later.
struct FSumiUpload {
    FUpdateTextureRegion2D Region;
    std::vector<uint8> Pixels;
};

static bool CanTake(const UTexture2D* Texture, const sumi::Picture& Picture)
{
    return Texture && Texture->GetResource() && Texture->GetPixelFormat() == PF_R8G8B8A8 && Texture->GetNumMips() == 1
        && Texture->GetSizeX() == Picture.Width && Texture->GetSizeY() == Picture.Height;
}

// Writes the picture into Texture, which stays the same object with the same resource, or into a new texture where that
// cannot take it. On the game thread.
static UTexture2D* PutIntoTexture(UTexture2D* Texture, const sumi::Picture& Picture)
{
    if (CanTake(Texture, Picture)) {
        const uint32 Width = static_cast<uint32>(Picture.Width), Height = static_cast<uint32>(Picture.Height);
        const std::shared_ptr<FSumiUpload> Upload(
            new FSumiUpload{FUpdateTextureRegion2D(0, 0, 0, 0, Width, Height), Picture.Rgba});
        Texture->UpdateTextureRegions(0, 1, &Upload->Region, Width * 4, 4, Upload->Pixels.data(),
                                      [Upload](uint8*, const FUpdateTextureRegion2D*) {}); // lives until it was called
        return Texture;
    }
    Texture = UTexture2D::CreateTransient(Picture.Width, Picture.Height, PF_R8G8B8A8);
    if (!Texture) return nullptr;
    Texture->SRGB = true;
    FTexture2DMipMap& Mip = Texture->GetPlatformData()->Mips[0];
    void* Pixels = Mip.BulkData.Lock(LOCK_READ_WRITE);
    FMemory::Memcpy(Pixels, Picture.Rgba.data(), Picture.Rgba.size());
    Mip.BulkData.Unlock();
    Texture->UpdateResource();
    return Texture;
}

// The first mip as the library reads it. Returns "", or a sentence that names the setting of the texture that is in the
// way.
static FString ReadTexture(UTexture2D* Texture, sumi::Picture& Picture)
{
    FTexturePlatformData* Data = Texture ? Texture->GetPlatformData() : nullptr;
    if (!Data || Data->Mips.Num() == 0)
        return TEXT("A reference or control picture is no texture, or one without pixels");
    const FString Name = Texture->GetName();
    if (Data->PixelFormat != PF_R8G8B8A8 && Data->PixelFormat != PF_B8G8R8A8)
        return FString::Printf(TEXT("The texture %s is compressed: set its Compression Settings to UserInterface2D "
                                    "(RGBA)"),
                               *Name);
    FTexture2DMipMap& Mip = Data->Mips[0];
    const int64 Bytes = static_cast<int64>(Mip.SizeX) * Mip.SizeY * 4;
    if (Mip.BulkData.GetBulkDataSize() >= Bytes) {
        const uint8* Pixels = static_cast<const uint8*>(Mip.BulkData.LockReadOnly());
        if (Pixels) Picture.Rgba.assign(Pixels, Pixels + Bytes);
        Mip.BulkData.Unlock();
    }
    if (Picture.Rgba.empty())
        return FString::Printf(TEXT("The processor cannot read the pixels of the texture %s: set its Mip Gen Settings "
                                    "to NoMipmaps, and Never Stream; or take a texture that was made at run time"),
                               *Name);
    Picture.Width = Mip.SizeX;
    Picture.Height = Mip.SizeY;
    if (Data->PixelFormat == PF_B8G8R8A8)
        for (size_t i = 0; i + 3 < Picture.Rgba.size(); i += 4) Swap(Picture.Rgba[i], Picture.Rgba[i + 2]);
    return FString();
}

// What a scene capture sees now. Returns "", or a sentence that names the setting of the capture that is in the way.
// SceneDepth is the distance from the camera's plane in centimetres, of orthographic captures too.
static FString CaptureDepth(const FSumiControl& From, sumi::DepthBuffer& Depth)
{
    USceneCaptureComponent2D* Capture = From.Depth;
    UTextureRenderTarget2D* Target = Capture->TextureTarget;
    if (Capture->CaptureSource != SCS_SceneDepth || !Target)
        return FString::Printf(TEXT("The scene capture %s gives no depth: set its Capture Source to SceneDepth, and a "
                                    "Texture Target"),
                               *Capture->GetName());
    const EPixelFormat Format = Target->GetFormat();
    // Vulkan's RHI stops the program when it has to read R32f back as colours.
    const bool bVulkan = GDynamicRHI && GDynamicRHI->GetInterfaceType() == ERHIInterfaceType::Vulkan;
    if (Format != PF_A32B32G32R32F && Format != PF_FloatRGBA && (Format != PF_R32_FLOAT || bVulkan))
        return FString::Printf(TEXT("The render target %s cannot hold distances, or cannot be read back: set its "
                                    "Render Target Format to RGBA32f"),
                               *Target->GetName());
    Capture->CaptureScene();
    FTextureRenderTargetResource* Resource = Target->GameThread_GetRenderTargetResource();
    TArray<FLinearColor> Pixels;
    if (!Resource || !Resource->ReadLinearColorPixels(Pixels) || Pixels.Num() != Target->SizeX * Target->SizeY)
        return FString::Printf(TEXT("The render target %s could not be read back: is there a renderer, and is its size "
                                    "set?"),
                               *Target->GetName());
    for (const FLinearColor& Each : Pixels) Depth.Values.push_back(Each.R);
    Depth.Width = Target->SizeX;
    Depth.Height = Target->SizeY;
    Depth.FarPlane = From.Sky > 0.0f ? From.Sky : Format == PF_FloatRGBA ? 65504.0f : 1e7f;
    Depth.Low = From.Low;
    Depth.High = From.High;
    return FString();
}

static FString GetPathOfNet(const FString& Net)
{
    const FString Path = FPaths::IsRelative(Net) ? FPaths::Combine(FPaths::ProjectContentDir(), Net) : Net;
    return FPaths::ConvertRelativePathToFull(Path);
}

USumiGenerateImage* USumiGenerateImage::GenerateImage(UObject* WorldContext, const FString& Prompt, int64 Seed,
                                                      const TArray<UTexture2D*>& References,
                                                      const TArray<FSumiControl>& Controls, ESumiPreset Preset,
                                                      const FString& Negative, int32 Width, int32 Height, int32 Steps,
                                                      float StepCacheDb, float StepCache, UTexture2D* Into)
{
    USumiGenerateImage* Action = NewObject<USumiGenerateImage>();
    Action->Wish.Prompt = TCHAR_TO_UTF8(*Prompt);
    for (UTexture2D* Each : References) {
        Action->Wish.References.emplace_back();
        const FString Trouble = ReadTexture(Each, Action->Wish.References.back());
        if (Action->PictureTrouble.IsEmpty()) Action->PictureTrouble = Trouble;
    }
    for (const FSumiControl& Each : Controls) {
        Action->Wish.Controls.emplace_back();
        sumi::ControlUse& Use = Action->Wish.Controls.back();
        const FString Trouble = Each.Depth ? CaptureDepth(Each, Use.Depth) : ReadTexture(Each.Picture, Use.Control);
        if (Action->PictureTrouble.IsEmpty()) Action->PictureTrouble = Trouble;
        Use.Net = TCHAR_TO_UTF8(*GetPathOfNet(Each.Net));
        Use.Strength = Each.Strength;
        Use.Start = Each.Start;
        Use.End = Each.End;
    }
    Action->Wish.Preset = static_cast<sumi_preset>(Preset);
    Action->Wish.Negative = TCHAR_TO_UTF8(*Negative);
    Action->Wish.Seed = static_cast<uint64>(Seed);
    Action->Wish.Width = Width;
    Action->Wish.Height = Height;
    Action->Wish.Steps = Steps;
    Action->Wish.StepCacheDb = StepCacheDb;
    Action->Wish.StepCache = StepCache;
    Action->Picture = Into;
    const UWorld* World =
        GEngine ? GEngine->GetWorldFromContextObject(WorldContext, EGetWorldErrorMode::ReturnNull) : nullptr;
    UGameInstance* Game = World ? World->GetGameInstance() : nullptr;
    if (Game) Action->Subsystem = Game->GetSubsystem<USumiSubsystem>();
    if (Game) Action->RegisterWithGameInstance(Game); // keeps the node alive
    return Action;
}

void USumiGenerateImage::Activate()
{
    USumiSubsystem* Owner = Subsystem.Get();
    if (!Owner) {
        OnFailed.Broadcast(nullptr, 0.0f, TEXT("Generate Image needs a running game: there is no game instance here"));
        SetReadyToDestroy();
        return;
    }
    if (Owner->GetSession() && !PictureTrouble.IsEmpty()) {
        OnFailed.Broadcast(nullptr, 0.0f, PictureTrouble);
        SetReadyToDestroy();
        return;
    }
    TWeakObjectPtr<USumiGenerateImage> Weak(this); // the session may live longer
    sumi::Listener Told;
    Told.Progress = [Weak](float Share, float) {
        if (USumiGenerateImage* Action = Weak.Get())
            Action->OnProgress.Broadcast(Action->Preview, Action->Progress = Share, FString());
    };
    Told.Preview = [Weak](const sumi::Picture& Made) {
        USumiGenerateImage* Action = Weak.Get();
        if (!Action) return;
        Action->Preview = PutIntoTexture(Action->Preview, Made);
        Action->OnPreview.Broadcast(Action->Preview, Action->Progress, FString());
    };
    Told.Done = [Weak](const sumi::Picture& Made) {
        USumiGenerateImage* Action = Weak.Get();
        if (!Action) return;
        Action->Picture = PutIntoTexture(Action->Picture, Made);
        Action->OnCompleted.Broadcast(Action->Picture, 1.0f, FString());
        Action->SetReadyToDestroy();
    };
    Told.Failed = [Weak](const std::string& Sentence) {
        USumiGenerateImage* Action = Weak.Get();
        if (!Action) return;
        Action->OnFailed.Broadcast(nullptr, Action->Progress, UTF8_TO_TCHAR(Sentence.c_str()));
        Action->SetReadyToDestroy();
    };
    Number = Owner->Generate(Wish, MoveTemp(Told));
    if (!Number) SetReadyToDestroy(); // the game instance is ending, and nothing is told from there
}

void USumiGenerateImage::Cancel()
{
    if (USumiSubsystem* Owner = Subsystem.Get()) Owner->Cancel(Number);
}
