#include "SumiGenerateImage.h"
#include "Engine/Engine.h"
#include "Engine/GameInstance.h"
#include "Engine/World.h"
#include "SumiSubsystem.h"

// Into the texture's first mip; made anew when there is none of this size. On the game thread.
static UTexture2D* PutIntoTexture(UTexture2D* Texture, const sumi::Picture& Picture)
{
    if (!Texture || Texture->GetSizeX() != Picture.Width || Texture->GetSizeY() != Picture.Height) {
        Texture = UTexture2D::CreateTransient(Picture.Width, Picture.Height, PF_R8G8B8A8);
        if (!Texture) return nullptr;
        Texture->SRGB = true;
    }
    FTexture2DMipMap& Mip = Texture->GetPlatformData()->Mips[0];
    void* Pixels = Mip.BulkData.Lock(LOCK_READ_WRITE);
    FMemory::Memcpy(Pixels, Picture.Rgba.data(), Picture.Rgba.size());
    Mip.BulkData.Unlock();
    Texture->UpdateResource();
    return Texture;
}

// The first mip as the library reads it. Empty when the processor cannot read the texture: the request then fails with a
// sentence.
static sumi::Picture ReadTexture(UTexture2D* Texture)
{
    sumi::Picture Picture;
    FTexturePlatformData* Data = Texture ? Texture->GetPlatformData() : nullptr;
    if (!Data || Data->Mips.Num() == 0) return Picture;
    if (Data->PixelFormat != PF_R8G8B8A8 && Data->PixelFormat != PF_B8G8R8A8) return Picture;
    FTexture2DMipMap& Mip = Data->Mips[0];
    const int64 Bytes = static_cast<int64>(Mip.SizeX) * Mip.SizeY * 4;
    const uint8* Pixels = static_cast<const uint8*>(Mip.BulkData.LockReadOnly());
    if (Pixels && Mip.BulkData.GetBulkDataSize() >= Bytes) {
        Picture.Width = Mip.SizeX;
        Picture.Height = Mip.SizeY;
        Picture.Rgba.assign(Pixels, Pixels + Bytes);
    }
    Mip.BulkData.Unlock();
    if (Data->PixelFormat == PF_B8G8R8A8)
        for (size_t i = 0; i + 3 < Picture.Rgba.size(); i += 4) Swap(Picture.Rgba[i], Picture.Rgba[i + 2]);
    return Picture;
}

USumiGenerateImage* USumiGenerateImage::GenerateImage(UObject* WorldContext, const FString& Prompt, int64 Seed,
                                                      const TArray<UTexture2D*>& References, ESumiPreset Preset,
                                                      const FString& Negative, int32 Width, int32 Height, int32 Steps,
                                                      float StepCache)
{
    USumiGenerateImage* Action = NewObject<USumiGenerateImage>();
    Action->Wish.Prompt = TCHAR_TO_UTF8(*Prompt);
    for (UTexture2D* Each : References) Action->Wish.References.push_back(ReadTexture(Each));
    Action->Wish.Preset = static_cast<sumi_preset>(Preset);
    Action->Wish.Negative = TCHAR_TO_UTF8(*Negative);
    Action->Wish.Seed = static_cast<uint64>(Seed);
    Action->Wish.Width = Width;
    Action->Wish.Height = Height;
    Action->Wish.Steps = Steps;
    Action->Wish.StepCache = StepCache;
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
    TWeakObjectPtr<USumiGenerateImage> Weak(this); // the session may live longer
    sumi::Listener Told;
    Told.Progress = [Weak](float Share, float) {
        if (USumiGenerateImage* Action = Weak.Get())
            Action->OnProgress.Broadcast(Action->Preview, Action->Progress = Share, FString());
    };
    Told.Preview = [Weak](const sumi::Picture& Picture) {
        USumiGenerateImage* Action = Weak.Get();
        if (!Action) return;
        Action->Preview = PutIntoTexture(Action->Preview, Picture);
        Action->OnPreview.Broadcast(Action->Preview, Action->Progress, FString());
    };
    Told.Done = [Weak](const sumi::Picture& Picture) {
        USumiGenerateImage* Action = Weak.Get();
        if (!Action) return;
        Action->OnCompleted.Broadcast(PutIntoTexture(nullptr, Picture), 1.0f, FString());
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
