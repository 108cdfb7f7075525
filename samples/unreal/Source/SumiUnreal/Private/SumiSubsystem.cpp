#include "SumiSubsystem.h"
#include "Misc/Paths.h"

void USumiSubsystem::Initialize(FSubsystemCollectionBase& Collection)
{
    Super::Initialize(Collection);
    Ticker = FTSTicker::GetCoreTicker().AddTicker(FTickerDelegate::CreateUObject(this, &USumiSubsystem::Tick));
}

void USumiSubsystem::Deinitialize()
{
    FTSTicker::GetCoreTicker().RemoveTicker(Ticker);
    Session.reset();
    Super::Deinitialize();
}

sumi::Session& USumiSubsystem::GetSession()
{
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
    return *Session;
}

bool USumiSubsystem::Tick(float)
{
    if (Session) Session->Tick(static_cast<uint32>(FMath::Clamp(FrameBudget, 0.0f, 1000.0f) * 1000.0f));
    return true; // again next frame
}
