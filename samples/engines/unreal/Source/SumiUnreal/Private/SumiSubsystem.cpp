#include "SumiSubsystem.h"
#include "Misc/Paths.h"
#include "SumiSettings.h"

DEFINE_LOG_CATEGORY_STATIC(LogSumi, Log, All);

static void WriteLog(sumi_log_level Level, const char* Text)
{
    const FString Line = UTF8_TO_TCHAR(Text);
    switch (Level) {
    case SUMI_LOG_ERROR: UE_LOG(LogSumi, Error, TEXT("%s"), *Line); break;
    case SUMI_LOG_WARNING: UE_LOG(LogSumi, Warning, TEXT("%s"), *Line); break;
    case SUMI_LOG_INFO: UE_LOG(LogSumi, Log, TEXT("%s"), *Line); break;
    default: UE_LOG(LogSumi, Verbose, TEXT("%s"), *Line); break;
    }
}

static sumi::SharedSession& GetShared()
{
    static sumi::SharedSession Shared;
    return Shared;
}

static std::unique_ptr<sumi::Session> OpenSession()
{
    const USumiSettings& Settings = *GetDefault<USumiSettings>();
    const FString Path = FPaths::IsRelative(Settings.ModelPath)
                           ? FPaths::Combine(FPaths::ProjectContentDir(), Settings.ModelPath)
                           : Settings.ModelPath;
    const uint64 Bytes = static_cast<uint64>(FMath::Max(Settings.MemoryBudget, 0)) * 1000000;
    sumi::ModelOptions Options;
    Options.Variant = TCHAR_TO_UTF8(*Settings.Variant);
    Options.Weights = static_cast<sumi_weight_format>(Settings.Weights);
    Options.Attention = static_cast<sumi_attention_format>(Settings.Attention);
    Options.Log = WriteLog;
    return sumi::Session::Open(
        TCHAR_TO_UTF8(*FPaths::ConvertRelativePathToFull(Path)),
        [Bytes](sumi_engine_desc& Engine) { Engine.memory_budget_bytes = Bytes; }, Options);
}

void USumiSubsystem::Initialize(FSubsystemCollectionBase& Collection)
{
    Super::Initialize(Collection);
    bRunning = true;
    GetShared().Join(this);
    Ticker = FTSTicker::GetCoreTicker().AddTicker(FTickerDelegate::CreateUObject(this, &USumiSubsystem::Tick));
}

void USumiSubsystem::Deinitialize()
{
    bRunning = false;
    FTSTicker::GetCoreTicker().RemoveTicker(Ticker);
    GetShared().Leave(this);
    Super::Deinitialize();
}

sumi::Session* USumiSubsystem::GetSession() { return bRunning ? GetShared().Get(this, OpenSession) : nullptr; }

uint64 USumiSubsystem::Generate(sumi::Request Wish, sumi::Listener Told)
{
    sumi::Session* Session = GetSession();
    Wish.Owner = this;
    return Session ? Session->Generate(Wish, MoveTemp(Told)) : 0;
}

void USumiSubsystem::Cancel(uint64 Number)
{
    if (sumi::Session* Session = GetSession()) Session->Cancel(Number);
}

bool USumiSubsystem::Tick(float)
{
    const float Milliseconds = FMath::Clamp(GetDefault<USumiSettings>()->FrameBudget, 0.0f, 1000.0f);
    GetShared().Tick(this, static_cast<uint32>(Milliseconds * 1000.0f));
    return true; // again next frame
}
