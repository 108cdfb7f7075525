#include "SumiSubsystem.h"
#include "Misc/Paths.h"

void USumiSubsystem::Initialize(FSubsystemCollectionBase& Collection)
{
    Super::Initialize(Collection);
    bRunning = true;
    Ticker = FTSTicker::GetCoreTicker().AddTicker(FTickerDelegate::CreateUObject(this, &USumiSubsystem::Tick));
}

void USumiSubsystem::Deinitialize()
{
    bRunning = false;
    FTSTicker::GetCoreTicker().RemoveTicker(Ticker);
    if (Session) Session->Drop(this);
    Session.reset();
    Super::Deinitialize();
}

uint64 USumiSubsystem::Generate(sumi::Request Wish, sumi::Listener Told)
{
    sumi::Session* Open = GetSession();
    Wish.Owner = this;
    return Open ? Open->Generate(Wish, MoveTemp(Told)) : 0;
}

void USumiSubsystem::Cancel(uint64 Number)
{
    if (bRunning && Session) Session->Cancel(Number);
}

sumi::Session* USumiSubsystem::GetSession()
{
    if (!bRunning) return nullptr;
    if (!Session) {
        const uint64 Bytes = static_cast<uint64>(FMath::Max(MemoryBudget, 0)) * 1000000;
        const FString Path =
            FPaths::IsRelative(ModelPath) ? FPaths::Combine(FPaths::ProjectContentDir(), ModelPath) : ModelPath;
        sumi::ModelOptions Options;
        Options.Variant = TCHAR_TO_UTF8(*Variant);
        Options.Weights = static_cast<sumi_weight_format>(Weights);
        Options.Attention = static_cast<sumi_attention_format>(Attention);
        Session = sumi::Session::Open(
            TCHAR_TO_UTF8(*FPaths::ConvertRelativePathToFull(Path)),
            [Bytes](sumi_engine_desc& Engine) { Engine.memory_budget_bytes = Bytes; }, Options);
    }
    return Session.get();
}

bool USumiSubsystem::Tick(float)
{
    if (Session) Session->Tick(static_cast<uint32>(FMath::Clamp(FrameBudget, 0.0f, 1000.0f) * 1000.0f));
    return true; // again next frame
}
