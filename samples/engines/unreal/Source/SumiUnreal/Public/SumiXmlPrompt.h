// Prompts in XML, for models that were trained on such captions; sumi_xml.h says how the text looks. Plain C++17, as
// SumiSession.h. Any other text is a prompt as well.
//
//     sumi::XmlPrompt Prompt;
//     Prompt.Characters.resize(1);
//     Prompt.Characters[0].Gender = "1girl";
//     Prompt.Characters[0].Appearance = "silver_hair, green_eyes";
//     Prompt.Tags.Style = "anime_style";
//     Prompt.Write(Wish.Prompt, Trouble);
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#if !defined(SUMIUNREAL_API)
#define SUMIUNREAL_API // Unreal's build tool defines it: what other modules may link
#endif

namespace sumi {
// UTF-8, lists of tags with commas between them. What is empty is left out.
struct XmlCharacter {
    std::string Name; // "": $character_1$, $character_2$ ...
    std::string Gender, Appearance, Clothing, BodyType, Expression, Action, Interaction, Position;
};

struct XmlTags {
    std::string Count, Artists, Style, Background, Environment, Perspective, Atmosphere, Lighting, Resolution, Quality,
        Objects, Other, ExtraTags;
};

struct SUMIUNREAL_API XmlPrompt {
    std::vector<XmlCharacter> Characters;
    XmlTags Tags;
    std::string Caption; // prose, behind the tags
    int32_t Indent = 0;  // spaces before every line

    // Needs no session. Any thread. On failure Text is "" and Trouble a sentence that says what to do.
    bool Write(std::string& Text, std::string& Trouble) const;
};
} // namespace sumi
