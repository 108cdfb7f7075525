// A game that uses the Unreal plug-in, with stand-ins for the engine (unreal_stand_ins). usage: unreal_plugin MODEL KLEIN NET_MODEL
// NET
// The last line is "unreal_plugin: N passed, N failed, N skipped".
#include "Components/SceneCaptureComponent2D.h"
#include "Containers/Ticker.h"
#include "Engine/Engine.h"
#include "Engine/GameInstance.h"
#include "Engine/World.h"
#include "ID3D12DynamicRHI.h"
#include "StandIn.h"
#include "SumiGenerateImage.h"
#include "SumiRHITexture.h"
#include "SumiSettings.h"
#include "SumiSubsystem.h"
#include "SumiXmlPromptLibrary.h"
#include <cstdio>

static int Passed, Failed;

static void Check(bool bTrue, const char* What)
{
    if (bTrue) Passed++;
    else Failed++, std::printf("FAILED: %s\n", What);
}

// A game instance with its world, as play in the editor begins and ends it.
struct FGame {
    FGame()
    {
        Subsystem = NewObject<USumiSubsystem>();
        Instance = NewObject<UGameInstance>();
        Instance->Subsystem = Subsystem;
        World = NewObject<UWorld>();
        World->Game = Instance;
        Subsystem->Initialize(Collection);
    }
    ~FGame()
    {
        if (Subsystem) End();
    }
    void End()
    {
        Subsystem->Deinitialize();
        Check(Subsystem->GetSession() == nullptr, "there is no session when the game instance has ended");
        StandIn::Destroy(Subsystem);
        StandIn::Destroy(Instance);
        StandIn::Destroy(World);
        Subsystem = nullptr;
    }
    USumiGenerateImage* Ask(int32 Size, UTexture2D* Reference = nullptr, UTexture2D* Into = nullptr, int64 Seed = 7,
                            const TArray<FSumiControl>& Controls = {})
    {
        TArray<UTexture2D*> References;
        if (Reference) References.Add(Reference);
        return AskOf(References, Size, Into, Seed, Controls);
    }
    USumiGenerateImage* AskOf(const TArray<UTexture2D*>& References, int32 Size, UTexture2D* Into = nullptr,
                              int64 Seed = 7, const TArray<FSumiControl>& Controls = {})
    {
        GEngine->World = World;
        return USumiGenerateImage::GenerateImage(World, TEXT("a red house"), Seed, References, Controls,
                                                 ESumiPreset::Model, TEXT(""), Size, Size, 4, 0.0f, 0.0f, Into);
    }

    FSubsystemCollectionBase Collection;
    USumiSubsystem* Subsystem;
    UGameInstance* Instance;
    UWorld* World;
};

struct FEnding {
    int Completed = 0, Failures = 0, Previews = 0, Reports = 0;
    UTexture2D *Texture = nullptr, *Preview = nullptr;
    bool bPreviewStays = true;
    FString Trouble;
};

static void Listen(USumiGenerateImage* Action, FEnding& End)
{
    Action->OnProgress.Listeners.push_back([&End](UTexture2D*, float, const FString&) { End.Reports++; });
    Action->OnPreview.Listeners.push_back([&End](UTexture2D* Texture, float, const FString&) {
        End.Previews++;
        End.bPreviewStays = End.bPreviewStays && (!End.Preview || End.Preview == Texture);
        End.Preview = Texture;
    });
    Action->OnCompleted.Listeners.push_back([&End](UTexture2D* Texture, float, const FString&) {
        End.Completed++;
        End.Texture = Texture;
    });
    Action->OnFailed.Listeners.push_back([&End](UTexture2D*, float, const FString& Trouble) {
        End.Failures++;
        End.Trouble = Trouble;
    });
}

// Frames until the request has ended; what is drawn is what was asked for a frame ago.
static void PlayUntil(const FEnding& End)
{
    for (int Frame = 0; Frame < 1000000 && !End.Completed && !End.Failures; Frame++) {
        StandIn::RunRenderCommands();
        FTSTicker::GetCoreTicker().Tick(0.016f);
    }
    StandIn::RunRenderCommands();
}

template <typename F> static void PlayUntilSo(const F& IsSo)
{
    for (int Frame = 0; Frame < 1000000 && !IsSo(); Frame++) FTSTicker::GetCoreTicker().Tick(0.016f);
    Check(IsSo(), "what a test waits for comes");
}

static void TheNodeDraws()
{
    FGame Game;
    FEnding End;
    USumiGenerateImage* Action = Game.Ask(64);
    Listen(Action, End);
    Action->Activate();
    Check(Action->bRegistered, "the game instance keeps the node");
    PlayUntil(End);
    Check(End.Completed == 1 && End.Failures == 0 && End.Reports > 0, "the node completes once");
    Check(End.Texture && End.Texture->GetSizeX() == 64 && End.Texture->Shown.size() == 64 * 64 * 4
              && End.Texture->Shown[3] == 255,
          "its texture is drawn");
    Check(!Action->bRegistered, "nobody keeps the node afterwards");
    StandIn::Destroy(Action);
}

// What a Blueprint does that asks again when it has failed.
static void NothingIsToldWhileTheGameInstanceEnds()
{
    FGame Game;
    FEnding End;
    int Asked = 0;
    std::vector<USumiGenerateImage*> Actions;
    const auto Ask = [&] {
        USumiGenerateImage* Action = Game.Ask(64);
        Actions.push_back(Action);
        Listen(Action, End);
        return Action;
    };
    for (int i = 0; i < 4; i++) {
        USumiGenerateImage* Action = Ask();
        Action->OnFailed.Listeners.push_back([&](UTexture2D*, float, const FString&) {
            Asked++;
            if (Asked < 100) Ask()->Activate();
        });
        Action->Activate();
    }
    for (int i = 0; i < 4; i++) FTSTicker::GetCoreTicker().Tick(0.016f);
    // C++ may ask without the subsystem. Its listener is told, and finds no session.
    int Told = 0;
    sumi::Listener Own;
    Own.Failed = [&](const std::string&) {
        Told++;
        Check(Game.Subsystem->GetSession() == nullptr, "there is no session while the game instance ends");
        Check(Game.Subsystem->Generate({}, {}) == 0, "and none takes requests");
        Ask()->Activate();
        Actions.back()->Cancel();
        Check(!Actions.back()->bRegistered, "a node that begins then is kept by nobody");
    };
    Game.Subsystem->GetSession()->Generate({}, Own);
    Game.End();
    Check(Told == 1, "a listener without an owner is told");
    Check(End.Failures == 0 && End.Completed == 0 && Asked == 0, "nothing is broadcast to Blueprints");
    FTSTicker::GetCoreTicker().Tick(0.016f);
    for (USumiGenerateImage* Each : Actions) StandIn::Destroy(Each);
}

static void ANodeWithoutAGameFails()
{
    FEnding End;
    GEngine->World = nullptr;
    USumiGenerateImage* Action = USumiGenerateImage::GenerateImage(nullptr, TEXT(""), 7, {}, {}, ESumiPreset::Model,
                                                                   TEXT(""), 0, 0, 0, 0.0f, 0.0f, nullptr);
    Listen(Action, End);
    Action->Activate();
    Check(End.Failures == 1 && End.Trouble.Contains(TEXT("no game instance")), "a node without a game says so");
    StandIn::Destroy(Action);
}

static FEnding Draw(FGame& Game, int32 Size, UTexture2D* Into, int64 Seed)
{
    FEnding End;
    USumiGenerateImage* Action = Game.Ask(Size, nullptr, Into, Seed);
    Listen(Action, End);
    Action->Activate();
    PlayUntil(End);
    StandIn::Destroy(Action);
    return End;
}

static void TexturesStay()
{
    FGame Game;
    const FEnding First = Draw(Game, 64, nullptr, 7);
    Check(First.Previews > 1 && First.bPreviewStays && First.Preview->ResourceCount == 1
              && First.Preview->RegionUpdateCount == First.Previews - 1,
          "previews are one texture with one resource");
    const std::vector<uint8> Shown = First.Texture->Shown;
    const FEnding Second = Draw(Game, 64, First.Texture, 8);
    Check(Second.Texture == First.Texture && First.Texture->ResourceCount == 1 && First.Texture->Shown != Shown,
          "a picture is written into the texture of an earlier one");
    Draw(Game, 64, First.Texture, 7);
    Check(First.Texture->Shown == Shown, "all of it");
    const FEnding Larger = Draw(Game, 80, First.Texture, 7);
    Check(Larger.Texture != First.Texture && Larger.Texture->GetSizeX() == 80 && First.Texture->Shown == Shown,
          "another size has a texture of its own");
    UTexture2D* Compressed = UTexture2D::CreateTransient(64, 64, PF_DXT1);
    Compressed->UpdateResource();
    Check(Draw(Game, 64, Compressed, 7).Texture != Compressed, "and so has a texture of another format");
    // A server has no renderer: no texture ever has a resource.
    UTexture2D* Bare = UTexture2D::CreateTransient(64, 64, PF_R8G8B8A8);
    Bare->bHasRenderer = false;
    Bare->UpdateResource();
    Check(Draw(Game, 64, Bare, 7).Completed == 1, "a texture without a renderer is no error");
    // Destroyed before the render thread has read what it was given.
    UTexture2D* Ends = Draw(Game, 64, nullptr, 7).Texture;
    FEnding End;
    USumiGenerateImage* Action = Game.Ask(64, nullptr, Ends);
    Listen(Action, End);
    Action->Activate();
    PlayUntilSo([&] { return End.Completed; });
    StandIn::Destroy(Action);
    StandIn::Destroy(Ends);
    Check(StandIn::RunRenderCommands() > 0, "a texture may end before the renderer");
}

static void ReferencesNameWhatIsInTheWay()
{
    FGame Game;
    UTexture2D* Texture = UTexture2D::CreateTransient(64, 64, PF_DXT1);
    const auto Fails = [&](const TCHAR* Why) {
        FEnding End;
        USumiGenerateImage* Action = Game.Ask(64, Texture);
        Listen(Action, End);
        Action->Activate();
        PlayUntil(End);
        Check(!Action->bRegistered, "nobody keeps the node");
        StandIn::Destroy(Action);
        return End.Failures == 1 && End.Trouble.Contains(Why);
    };
    Check(Fails(TEXT("Compression Settings")), "a compressed reference");
    Texture->Data.PixelFormat = PF_B8G8R8A8;
    std::vector<uint8> Pixels;
    Pixels.swap(Texture->Data.Mips[0].BulkData.Bytes);
    Check(Fails(TEXT("Mip Gen Settings")), "a reference whose pixels only the GPU has");
    Pixels.swap(Texture->Data.Mips[0].BulkData.Bytes);
    Check(Fails(TEXT("reference")), "references of a model that takes none");
    Texture->Data.Mips = TArray<FTexture2DMipMap>();
    Check(Fails(TEXT("no texture")), "a texture without mips");
}

static void SeveralReferencesKeepTheirOrder(const TCHAR* Klein)
{
    const FString Model = GetMutableDefault<USumiSettings>()->ModelPath;
    GetMutableDefault<USumiSettings>()->ModelPath = Klein;
    FGame Game;
    UTexture2D* const Dark = UTexture2D::CreateTransient(96, 64, PF_R8G8B8A8);
    UTexture2D* const Blue = UTexture2D::CreateTransient(64, 96, PF_B8G8R8A8);
    for (size_t i = 0; i < Blue->Data.Mips[0].BulkData.Bytes.size(); i += 4) Blue->Data.Mips[0].BulkData.Bytes[i] = 255;
    const auto Draw = [&](std::initializer_list<UTexture2D*> Textures) {
        TArray<UTexture2D*> References;
        for (UTexture2D* Each : Textures) References.Add(Each);
        FEnding End;
        USumiGenerateImage* Action = Game.AskOf(References, 64);
        Listen(Action, End);
        Action->Activate();
        PlayUntil(End);
        StandIn::Destroy(Action);
        return End;
    };
    const FEnding Both = Draw({Dark, Blue}), Turned = Draw({Blue, Dark}), One = Draw({Dark});
    Check(Both.Completed == 1 && Turned.Completed == 1 && One.Completed == 1, "a node takes several references");
    if (Both.Completed + Turned.Completed + One.Completed == 3)
        Check(Both.Texture->Shown != Turned.Texture->Shown && Both.Texture->Shown != One.Texture->Shown,
              "all of them count, and their order");
    const FEnding Many = Draw({Dark, Dark, Dark, Dark, Dark, Dark, Dark, Dark, Dark, Dark, Dark});
    Check(Many.Failures == 1 && Many.Trouble.Contains(TEXT("10")), "more than the model takes are a sentence");
    Check(Draw({Dark, nullptr}).Trouble.Contains(TEXT("no texture")), "an empty place among them is one, too");
    Game.End();
    GetMutableDefault<USumiSettings>()->ModelPath = Model;
}

static void TheNodeFollowsAControlPicture(const FString& Model, const FString& Net)
{
    const FString Before = GetDefault<USumiSettings>()->ModelPath;
    GetMutableDefault<USumiSettings>()->ModelPath = Model;
    {
        FGame Game;
        const FEnding Plain = Draw(Game, 32, nullptr, 7);
        TArray<FSumiControl> Controls;
        Controls.Add(FSumiControl());
        Controls[0].Net = Net;
        Controls[0].Picture = Plain.Texture;
        const auto Follow = [&] {
            FEnding End;
            USumiGenerateImage* Action = Game.Ask(32, nullptr, nullptr, 7, Controls);
            Listen(Action, End);
            Action->Activate();
            PlayUntil(End);
            StandIn::Destroy(Action);
            return End;
        };
        const FEnding Followed = Follow();
        Check(Followed.Completed == 1 && Followed.Texture->Shown != Plain.Texture->Shown,
              "the node takes a control net");
        Controls[0].Strength = -0.5f;
        Check(Follow().Texture->Shown != Followed.Texture->Shown, "with a strength");
        Controls[0].Picture = nullptr;
        Check(Follow().Trouble.Contains(TEXT("control picture")), "without a picture it fails");
        // A scene capture in place of the picture: distances, and what the net sees of them between 1 and 256.
        UTexture2D* const Greys = UTexture2D::CreateTransient(32, 32, PF_R8G8B8A8);
        USceneCaptureComponent2D* const Capture = NewObject<USceneCaptureComponent2D>();
        UTextureRenderTarget2D* const Target = NewObject<UTextureRenderTarget2D>();
        for (size_t i = 0; i < 32 * 32; i++) {
            const size_t Away = i < 512 ? 1 + 7 * (i % 32) : 1 + 3 * (i / 32);
            Capture->Seen.Add({static_cast<float>(Away), -1.0f, -1.0f, -1.0f});
            for (size_t c = 0; c < 3; c++)
                Greys->Data.Mips[0].BulkData.Bytes[4 * i + c] = static_cast<uint8>(256 - Away);
        }
        Controls[0].Picture = Greys;
        const FEnding Grey = Follow();
        Controls[0].Depth = Capture;
        Controls[0].Low = 1.0f, Controls[0].High = 256.0f;
        Check(Follow().Trouble.Contains(TEXT("Texture Target")), "a capture without a target says so");
        Capture->TextureTarget = Target;
        Check(Follow().Trouble.Contains(TEXT("could not be read back")), "and one whose size is not set");
        Target->SizeX = Target->SizeY = 32;
        const FEnding Deep = Follow();
        Check(Deep.Completed == 1 && Deep.Texture->Shown == Grey.Texture->Shown && Capture->CaptureCount == 2,
              "the node follows what a scene capture sees");
        Target->Format = PF_R8G8B8A8;
        Check(Follow().Trouble.Contains(TEXT("RGBA32f")), "a target that cannot hold distances says so");
        Capture->CaptureSource = SCS_SceneColorHDR;
        Check(Follow().Trouble.Contains(TEXT("SceneDepth")), "and so does a capture of colours");
        Controls[0].Depth = nullptr;
        Controls[0].Picture = Plain.Texture;
        Controls[0].Net = TEXT("no/such/net");
        Check(Follow().Trouble.Contains(TEXT("no/such/net")), "and without a net");
    }
    GetMutableDefault<USumiSettings>()->ModelPath = Before;
}

static void ANodeOutlivesItsBlueprint()
{
    FGame Game;
    USumiGenerateImage* Action = Game.Ask(64);
    Action->Activate();
    for (int i = 0; i < 4; i++) FTSTicker::GetCoreTicker().Tick(0.016f);
    StandIn::Destroy(Action);
    PlayUntilSo([&] { return Game.Subsystem->GetSession()->IsIdle(); });
    StandIn::RunRenderCommands();
    Check(true, "a request ends after its node");
}

// Play in the editor with two players: each has a game instance, and they may end in any order.
static void GameInstancesShareASession()
{
    FEnding FirstEnd, SecondEnd;
    std::vector<USumiGenerateImage*> Actions;
    {
        FGame Second; // ends last
        {
            FGame First;
            Check(First.Subsystem->GetSession() && First.Subsystem->GetSession() == Second.Subsystem->GetSession(),
                  "two game instances have one session");
            for (FGame* Each : {&First, &Second}) {
                Actions.push_back(Each->Ask(64));
                Listen(Actions.back(), Each == &First ? FirstEnd : SecondEnd);
                Actions.back()->Activate();
            }
            PlayUntilSo([&] { return FirstEnd.Reports; });
        }
        const int Reports = FirstEnd.Reports;
        Check(Second.Subsystem->GetSession()->IsReady(), "the session goes on for who is left");
        PlayUntil(SecondEnd);
        Check(SecondEnd.Completed == 1, "and so do its requests");
        Check(FirstEnd.Reports == Reports && !FirstEnd.Completed && !FirstEnd.Failures,
              "nothing is broadcast for a game instance that has ended");
        // A Blueprint that ends its game while it is told of its picture.
        bool bEnds = false;
        USumiGenerateImage* Quits = Second.Ask(64);
        Actions.push_back(Quits);
        Quits->OnProgress.Listeners.push_back([&](UTexture2D*, float, const FString&) {
            if (!bEnds) Second.End();
            bEnds = true;
        });
        Quits->Activate();
        PlayUntilSo([&] { return bEnds; });
    }
    for (USumiGenerateImage* Each : Actions) StandIn::Destroy(Each);
    FGame Later;
    Check(!Later.Subsystem->GetSession()->IsReady(), "the last one closed it");
}

static void MessagesReachTheLog(const FString& Model)
{
    GetMutableDefault<USumiSettings>()->ModelPath = TEXT("/no/such/model");
    StandIn::GetLog().clear();
    {
        FGame Game;
        Check(Draw(Game, 64, nullptr, 7).Trouble.Contains(TEXT("/no/such/model")), "a model that is not there is told");
    }
    int Errors = 0;
    for (const StandIn::FLine& Each : StandIn::GetLog())
        Errors += Each.Verbosity == "Error" && Each.Text.Contains(TEXT("/no/such/model"));
    Check(Errors > 0, "and the engine's log has it");
    GetMutableDefault<USumiSettings>()->ModelPath = Model;
}

static void PromptsInXml()
{
    TArray<FSumiXmlCharacter> Characters;
    Characters.Add(FSumiXmlCharacter());
    Characters[0].Gender = TEXT("1girl");
    FString Trouble = TEXT("before");
    const FString Text = USumiXmlPromptLibrary::WriteXmlPrompt(Characters, FSumiXmlTags(), TEXT("Hello."), Trouble);
    Check(Text.Contains(TEXT("<gender>1girl</gender>")) && Trouble.IsEmpty(), "a prompt in XML");
}

// ---- Direct3D 12 ----------------------------------------------------------------------------------------------------
static int Interfaces; // that are there

template <typename T> struct TCounted : T {
    TCounted() { Interfaces++; }
    virtual ~TCounted() { Interfaces--; }
    UINT AddRef() override { return ++Count; }
    UINT Release() override
    {
        const UINT Left = --Count;
        if (Left == 0) delete this;
        return Left;
    }
    UINT Count = 1;
};
struct FFence : TCounted<ID3D12Fence> {
    UINT64 GetCompletedValue() override { return Value; }
    HRESULT Signal(UINT64 To) override { return Value = To, 0; }
    UINT64 Value = 0;
};
// Its n-th call fails.
struct FDevice : TCounted<ID3D12Device> {
    LUID GetAdapterLuid() override { return {1, 2}; }
    HRESULT CreateSharedHandle(ID3D12DeviceChild*, const void*, DWORD, const wchar_t*, HANDLE* Out) override
    {
        if (Calls++ == Fails) return -1;
        StandInHandleCount++;
        *Out = this;
        return 0;
    }
    HRESULT CreateCommittedResource(const D3D12_HEAP_PROPERTIES*, D3D12_HEAP_FLAGS, const D3D12_RESOURCE_DESC*,
                                    D3D12_RESOURCE_STATES, const void*, const IID&, void** Out) override
    {
        if (Calls++ == Fails) return -1;
        *Out = static_cast<ID3D12Resource*>(new TCounted<ID3D12Resource>());
        return 0;
    }
    HRESULT CreateFence(UINT64, D3D12_FENCE_FLAGS, const IID&, void** Out) override
    {
        if (Calls++ == Fails) return -1;
        *Out = static_cast<ID3D12Fence*>(new FFence());
        return 0;
    }
    int Calls = 0, Fails = -1;
};
struct FRHI : ID3D12DynamicRHI {
    ERHIInterfaceType GetInterfaceType() const override { return Kind; }
    ID3D12Device* RHIGetDevice(uint32) const override { return Device; }
    ID3D12Resource* RHIGetResource(FRHITexture*) const override { return nullptr; }
    ID3D12GraphicsCommandList* RHIGetGraphicsCommandList(FRHICommandListBase&, uint32) const override
    {
        return nullptr;
    }
    void RHIFinishExternalComputeWork(FRHICommandListBase&, uint32, ID3D12GraphicsCommandList*) override {}
    void RHITransitionResource(FRHICommandList&, FRHITexture*, D3D12_RESOURCE_STATES, uint32) override {}
    void RHISignalManualFence(FRHICommandList&, ID3D12Fence*, uint64) override {}
    ERHIInterfaceType Kind = ERHIInterfaceType::D3D12;
    ID3D12Device* Device = nullptr;
};

// A session without a GPU refuses the import, and Direct3D 12 may fail before: nothing is left of either.
static void BuffersThatCannotBeMadeLeaveNothing()
{
    FGame Game;
    FRHI RHI;
    GDynamicRHI = &RHI;
    int Made = 0, Calls = 0;
    for (int Fails = -1; Fails < 4; Fails++) {
        FDevice* Device = new FDevice();
        Device->Fails = Fails;
        RHI.Device = Device;
        Made += SumiMakeShared(*Game.Subsystem->GetSession(), 64, 64, false) != nullptr;
        sumi_result Result = SUMI_OK;
        Device->Calls = 0;
        Made += sumi::Shared12::Make(*Game.Subsystem->GetSession(), Device, 64, 64, false, Result) != nullptr;
        Check(Result != SUMI_OK, "a result says why there is no buffer");
        Calls += Device->Calls;
        Device->Release();
    }
    Check(Made == 0 && Calls > 5 && Interfaces == 0 && StandInHandleCount == 0,
          "nothing is left of a buffer that cannot be made");
    RHI.Kind = ERHIInterfaceType::Vulkan;
    Check(!SumiCanShare() && !SumiMakeShared(*Game.Subsystem->GetSession(), 64, 64, false),
          "another RHI than Direct3D 12 has no buffer");
    GDynamicRHI = nullptr;
}

extern "C" ENGINE_API int RunGame(int Count, char** Arguments)
{
    if (Count != 5) return std::printf("usage: unreal_plugin MODEL KLEIN NET_MODEL NET\n"), 2;
    GetMutableDefault<USumiSettings>()->ModelPath = UTF8_TO_TCHAR(Arguments[1]);
    GetMutableDefault<USumiSettings>()->FrameBudget = 0.001f; // one slice in each frame, however fast the machine is
    GEngine = NewObject<UEngine>();
    PromptsInXml();
    ANodeWithoutAGameFails();
    TheNodeDraws();
    NothingIsToldWhileTheGameInstanceEnds();
    TexturesStay();
    ReferencesNameWhatIsInTheWay();
    SeveralReferencesKeepTheirOrder(UTF8_TO_TCHAR(Arguments[2]));
    TheNodeFollowsAControlPicture(UTF8_TO_TCHAR(Arguments[3]), UTF8_TO_TCHAR(Arguments[4]));
    ANodeOutlivesItsBlueprint();
    GameInstancesShareASession();
    MessagesReachTheLog(UTF8_TO_TCHAR(Arguments[1]));
    BuffersThatCannotBeMadeLeaveNothing();
    StandIn::DestroyAll();
    std::printf("unreal_plugin: %d passed, %d failed, 0 skipped\n", Passed, Failed);
    return Failed > 0;
}
