// A game instance's session: opened by the first request, ticked once per frame on the game thread, closed with the
// game instance. On the game thread.
#pragma once
#include "Containers/Ticker.h"
#include "CoreMinimal.h"
#include "Subsystems/GameInstanceSubsystem.h"
#include "SumiSession.h"

#include "SumiSubsystem.generated.h"

// As sumi_weight_format and sumi_attention_format.
UENUM(BlueprintType)
enum class ESumiWeights : uint8 { Auto, Bf16, Fp8, AsStored, Int8, Int4 };
UENUM(BlueprintType)
enum class ESumiAttention : uint8 { Auto, Bf16, EightBit };

UCLASS(Config = Game)
class SUMIUNREAL_API USumiSubsystem : public UGameInstanceSubsystem {
    GENERATED_BODY()

  public:
    // A diffusers folder; relative paths begin at the project's Content folder.
    UPROPERTY(Config, EditAnywhere, BlueprintReadWrite, Category = "Sumi")
    FString ModelPath = TEXT("Sumi/demo_model");

    // Which model of its family it is ("2512"), for files that do not say so; empty: by the files.
    UPROPERTY(Config, EditAnywhere, BlueprintReadWrite, Category = "Sumi")
    FString Variant;

    // The forms of the transformer's weights and of its attention on a GPU.
    UPROPERTY(Config, EditAnywhere, BlueprintReadWrite, Category = "Sumi")
    ESumiWeights Weights = ESumiWeights::Auto;
    UPROPERTY(Config, EditAnywhere, BlueprintReadWrite, Category = "Sumi")
    ESumiAttention Attention = ESumiAttention::Auto;

    // Work per frame, in milliseconds: time of this thread on the processor, of the GPU there. 0 pauses.
    UPROPERTY(Config, EditAnywhere, BlueprintReadWrite, Category = "Sumi")
    float FrameBudget = 3.0f;

    // Most memory on the GPU, in megabytes; 0: no limit.
    UPROPERTY(Config, EditAnywhere, BlueprintReadWrite, Category = "Sumi")
    int32 MemoryBudget = 0;

    virtual void Initialize(FSubsystemCollectionBase& Collection) override;
    virtual void Deinitialize() override;
    // Opens it when it is not open yet. nullptr before Initialize, and as soon as Deinitialize has begun.
    sumi::Session* GetSession();
    // As sumi::Session's. A request that is left when Deinitialize begins is cancelled, and its listener called no more:
    // the objects that it would call are ending, too. Generate returns 0, and calls nothing, where GetSession is nullptr.
    uint64 Generate(sumi::Request Wish, sumi::Listener Told);
    void Cancel(uint64 Number);

  private:
    bool Tick(float DeltaSeconds);
    std::unique_ptr<sumi::Session> Session;
    FTSTicker::FDelegateHandle Ticker;
    bool bRunning = false; // from Initialize to Deinitialize
};
