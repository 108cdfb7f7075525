// "Generate Image" in a Blueprint: one node with pins for progress, previews, the picture and failure.
#pragma once
#include "CoreMinimal.h"
#include "Engine/Texture2D.h"
#include "Kismet/BlueprintAsyncActionBase.h"
#include "SumiSession.h"

#include "SumiGenerateImage.generated.h" // Unreal's header tool wants it last

class USceneCaptureComponent2D;
class USumiSubsystem;

DECLARE_DYNAMIC_MULTICAST_DELEGATE_ThreeParams(FSumiGenerateImagePin, UTexture2D*, Texture, float, Progress,
                                               const FString&, Trouble);

// As sumi_preset.
UENUM(BlueprintType)
enum class ESumiPreset : uint8 { Model, Preview, Standard, Quality, Fast, Lean };

// A control net, and the picture that the image follows: white edges on black, depth with white near.
USTRUCT(BlueprintType)
struct FSumiControl {
    GENERATED_BODY()

    // A file, or a folder; relative to the project's Content.
    UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "Sumi") FString Net;
    UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "Sumi") TObjectPtr<UTexture2D> Picture;
    // 0: the net's usual one.
    UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "Sumi") float Strength = 0.0f;
    // The part of the steps in which it is on.
    UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "Sumi") float Start = 0.0f;
    UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "Sumi") float End = 1.0f;
    // In place of Picture: a scene capture whose Capture Source is SceneDepth and whose Texture Target has the image's
    // shape and the format RGBA32f, or RGBA16f for up to 655 m. The node captures the scene, and reads the target back
    // to memory, which waits for the GPU: meant for single images, not for every frame.
    UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "Sumi") TObjectPtr<USceneCaptureComponent2D> Depth;
    // The distances in centimetres that become white and black, once per shot: then greys do not flicker from image to
    // image. Both 0: from each capture.
    UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "Sumi") float Low = 0.0f;
    UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "Sumi") float High = 0.0f;
    // The distance in centimetres from which on all is sky. 0: 100 km, or with RGBA16f its largest number, 65504.
    UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "Sumi") float Sky = 0.0f;
};

UCLASS()
class SUMIUNREAL_API USumiGenerateImage : public UBlueprintAsyncActionBase {
    GENERATED_BODY()

  public:
    // Sizes of 0 are the preset's; otherwise multiples of 16. References are for edit models: textures in the order in
    // which the prompt counts them from 1, whose pixels the processor can read (BGRA8 or RGBA8, uncompressed, from a
    // file or made at run time; On Failed names the setting that is in the way). The size of 0 then follows from them.
    // An empty negative prompt is the model's own. Step Cache Db saves time where there are 20 steps or more: steps reuse
    // most of an earlier one as long as the picture is predicted to keep so many dB, such as 40; 0 is off. Step Cache
    // does so over changes below a number such as 0.08 instead. Controls are control nets with their pictures, which are
    // read as references are. Into is a texture that this node made before: the picture is written into it, and what
    // shows it shows the new one. Where it has another size, and when it is empty, a new texture is made.
    UFUNCTION(
        BlueprintCallable, Category = "Sumi",
        meta = (BlueprintInternalUseOnly = "true", WorldContext = "WorldContext",
                AutoCreateRefTerm = "References,Controls",
                AdvancedDisplay = "References,Controls,Preset,Negative,Width,Height,Steps,StepCacheDb,StepCache,Into"))
    static USumiGenerateImage* GenerateImage(UObject* WorldContext, const FString& Prompt, int64 Seed,
                                             const TArray<UTexture2D*>& References,
                                             const TArray<FSumiControl>& Controls, ESumiPreset Preset,
                                             const FString& Negative, int32 Width, int32 Height, int32 Steps,
                                             float StepCacheDb, float StepCache, UTexture2D* Into);

    UFUNCTION(BlueprintCallable, Category = "Sumi")
    void Cancel();

    UPROPERTY(BlueprintAssignable) FSumiGenerateImagePin OnProgress;
    UPROPERTY(BlueprintAssignable) FSumiGenerateImagePin OnPreview; // an eighth of the size; the same texture each time
    UPROPERTY(BlueprintAssignable) FSumiGenerateImagePin OnCompleted;
    UPROPERTY(BlueprintAssignable) FSumiGenerateImagePin OnFailed;

    virtual void Activate() override;

  private:
    UPROPERTY() TObjectPtr<UTexture2D> Preview;
    UPROPERTY() TObjectPtr<UTexture2D> Picture; // Into, then what was completed
    TWeakObjectPtr<USumiSubsystem> Subsystem;
    sumi::Request Wish;
    FString PictureTrouble; // of references and control pictures
    uint64 Number = 0;
    float Progress = 0.0f;
};
