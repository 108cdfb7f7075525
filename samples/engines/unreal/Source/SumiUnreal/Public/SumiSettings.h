// Project Settings > Plugins > Sumi, kept in Config/DefaultGame.ini. FrameBudget holds from the next frame on; the
// others when a session is opened.
#pragma once
#include "CoreMinimal.h"
#include "Engine/DeveloperSettings.h"

#include "SumiSettings.generated.h"

// As sumi_weight_format and sumi_attention_format.
UENUM(BlueprintType)
enum class ESumiWeights : uint8 { Auto, Bf16, Fp8, AsStored, Int8, Int4 };
UENUM(BlueprintType)
enum class ESumiAttention : uint8 { Auto, Bf16, EightBit };

UCLASS(Config = Game, DefaultConfig, meta = (DisplayName = "Sumi"))
class SUMIUNREAL_API USumiSettings : public UDeveloperSettings {
    GENERATED_BODY()

  public:
    // A diffusers folder; relative paths begin at the project's Content folder.
    UPROPERTY(Config, EditAnywhere, Category = "Model")
    FString ModelPath = TEXT("Sumi/demo_model");

    // Which model of its family it is ("2512"), for files that do not say so; empty: by the files.
    UPROPERTY(Config, EditAnywhere, Category = "Model")
    FString Variant;

    // The forms of the transformer's weights and of its attention on a GPU.
    UPROPERTY(Config, EditAnywhere, Category = "Model")
    ESumiWeights Weights = ESumiWeights::Auto;
    UPROPERTY(Config, EditAnywhere, Category = "Model")
    ESumiAttention Attention = ESumiAttention::Auto;

    // Work per frame, in milliseconds: time of the game thread on the CPU backend, time of the GPU there. 0 pauses.
    UPROPERTY(Config, EditAnywhere, Category = "Work", meta = (ClampMin = "0", ClampMax = "1000"))
    float FrameBudget = 3.0f;

    // Most memory on the GPU, in megabytes; 0: no limit.
    UPROPERTY(Config, EditAnywhere, Category = "Work", meta = (ClampMin = "0"))
    int32 MemoryBudget = 0;

    virtual FName GetCategoryName() const override;
};
