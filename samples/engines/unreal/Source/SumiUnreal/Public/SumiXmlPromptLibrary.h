// "Write Xml Prompt" in a Blueprint: characters and tags to a text for "Generate Image".
#pragma once
#include "CoreMinimal.h"
#include "Kismet/BlueprintFunctionLibrary.h"

#include "SumiXmlPromptLibrary.generated.h"

// As sumi_xml_character: lists of tags with commas between them; what is empty is left out.
USTRUCT(BlueprintType)
struct FSumiXmlCharacter {
    GENERATED_BODY()

    UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "Sumi") FString Name;
    UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "Sumi") FString Gender;
    UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "Sumi") FString Appearance;
    UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "Sumi") FString Clothing;
    UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "Sumi") FString BodyType;
    UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "Sumi") FString Expression;
    UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "Sumi") FString Action;
    UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "Sumi") FString Interaction;
    UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "Sumi") FString Position;
};

// As sumi_xml_tags.
USTRUCT(BlueprintType)
struct FSumiXmlTags {
    GENERATED_BODY()

    UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "Sumi") FString Count;
    UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "Sumi") FString Artists;
    UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "Sumi") FString Style;
    UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "Sumi") FString Background;
    UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "Sumi") FString Environment;
    UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "Sumi") FString Perspective;
    UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "Sumi") FString Atmosphere;
    UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "Sumi") FString Lighting;
    UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "Sumi") FString Resolution;
    UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "Sumi") FString Quality;
    UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "Sumi") FString Objects;
    UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "Sumi") FString Other;
    UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "Sumi") FString ExtraTags;
};

UCLASS()
class SUMIUNREAL_API USumiXmlPromptLibrary : public UBlueprintFunctionLibrary {
    GENERATED_BODY()

  public:
    // Trouble is empty, or a sentence that says what to do; the text is empty then. The text is written to the log.
    UFUNCTION(BlueprintCallable, Category = "Sumi", meta = (AutoCreateRefTerm = "Characters,Tags"))
    static FString WriteXmlPrompt(const TArray<FSumiXmlCharacter>& Characters, const FSumiXmlTags& Tags,
                                  const FString& Caption, FString& Trouble);
};
