#include "SumiXmlPromptLibrary.h"
#include "SumiXmlPrompt.h"

static std::string Utf8(const FString& Text) { return TCHAR_TO_UTF8(*Text); }

FString USumiXmlPromptLibrary::WriteXmlPrompt(const TArray<FSumiXmlCharacter>& Characters, const FSumiXmlTags& Tags,
                                              const FString& Caption, FString& Trouble)
{
    sumi::XmlPrompt Prompt;
    for (const FSumiXmlCharacter& Each : Characters)
        Prompt.Characters.push_back({Utf8(Each.Name), Utf8(Each.Gender), Utf8(Each.Appearance), Utf8(Each.Clothing),
                                     Utf8(Each.BodyType), Utf8(Each.Expression), Utf8(Each.Action),
                                     Utf8(Each.Interaction), Utf8(Each.Position)});
    Prompt.Tags = {Utf8(Tags.Count),       Utf8(Tags.Artists),     Utf8(Tags.Style),      Utf8(Tags.Background),
                   Utf8(Tags.Environment), Utf8(Tags.Perspective), Utf8(Tags.Atmosphere), Utf8(Tags.Lighting),
                   Utf8(Tags.Resolution),  Utf8(Tags.Quality),     Utf8(Tags.Objects),    Utf8(Tags.Other),
                   Utf8(Tags.ExtraTags)};
    Prompt.Caption = Utf8(Caption);
    std::string Text, Sentence;
    Prompt.Write(Text, Sentence);
    Trouble = UTF8_TO_TCHAR(Sentence.c_str());
    const FString Written = UTF8_TO_TCHAR(Text.c_str());
    if (!Written.IsEmpty()) UE_LOG(LogTemp, Log, TEXT("Sumi: the prompt is\n%s"), *Written);
    return Written;
}
