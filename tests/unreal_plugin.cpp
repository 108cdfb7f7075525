// A game that uses the Unreal plug-in, with stand-ins for the engine (unreal_stand_ins). usage: unreal_plugin MODEL
// The last line is "unreal_plugin: N passed, N failed, N skipped".
#include "Containers/Ticker.h"
#include "Engine/Engine.h"
#include "Engine/GameInstance.h"
#include "Engine/World.h"
#include "StandIn.h"
#include "SumiGenerateImage.h"
#include "SumiSubsystem.h"
#include "SumiXmlPromptLibrary.h"
#include <cstdio>

static int Passed, Failed;

static void Check(bool bTrue, const char* What)
{
    if (bTrue) Passed++;
    else Failed++, std::printf("FAILED: %s\n", What);
}

static FString Model;

// A game instance with its world, as play in the editor begins and ends it.
struct FGame {
    FGame()
    {
        Subsystem = NewObject<USumiSubsystem>();
        Subsystem->ModelPath = Model;
        Subsystem->FrameBudget = 1.0f;
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
    USumiGenerateImage* Ask(int32 Size, UTexture2D* Reference = nullptr)
    {
        GEngine->World = World;
        TArray<UTexture2D*> References;
        if (Reference) References.Add(Reference);
        return USumiGenerateImage::GenerateImage(World, TEXT("a red house"), 7, References, ESumiPreset::Model,
                                                 TEXT(""), Size, Size, 2, 0.0f);
    }

    FSubsystemCollectionBase Collection;
    USumiSubsystem* Subsystem;
    UGameInstance* Instance;
    UWorld* World;
};

struct FEnding {
    int Completed = 0, Failures = 0, Previews = 0, Reports = 0;
    UTexture2D* Texture = nullptr;
    FString Trouble;
};

static void Listen(USumiGenerateImage* Action, FEnding& End)
{
    Action->OnProgress.Listeners.push_back([&End](UTexture2D*, float, const FString&) { End.Reports++; });
    Action->OnPreview.Listeners.push_back([&End](UTexture2D*, float, const FString&) { End.Previews++; });
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
    USumiGenerateImage* Action =
        USumiGenerateImage::GenerateImage(nullptr, TEXT(""), 7, {}, ESumiPreset::Model, TEXT(""), 0, 0, 0, 0.0f);
    Listen(Action, End);
    Action->Activate();
    Check(End.Failures == 1 && End.Trouble.Contains(TEXT("no game instance")), "a node without a game says so");
    StandIn::Destroy(Action);
}

static void ANodeOutlivesItsBlueprint()
{
    FGame Game;
    USumiGenerateImage* Action = Game.Ask(64);
    Action->Activate();
    for (int i = 0; i < 4; i++) FTSTicker::GetCoreTicker().Tick(0.016f);
    StandIn::Destroy(Action);
    while (!Game.Subsystem->GetSession()->IsIdle()) FTSTicker::GetCoreTicker().Tick(0.016f);
    StandIn::RunRenderCommands();
    Check(true, "a request ends after its node");
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

extern "C" ENGINE_API int RunGame(int Count, char** Arguments)
{
    if (Count != 2) return std::printf("usage: unreal_plugin MODEL\n"), 2;
    Model = UTF8_TO_TCHAR(Arguments[1]);
    GEngine = NewObject<UEngine>();
    PromptsInXml();
    ANodeWithoutAGameFails();
    TheNodeDraws();
    NothingIsToldWhileTheGameInstanceEnds();
    ANodeOutlivesItsBlueprint();
    StandIn::DestroyAll();
    std::printf("unreal_plugin: %d passed, %d failed, 0 skipped\n", Passed, Failed);
    return Failed > 0;
}
