#include "SumiXmlPrompt.h"
#include "SumiSession.h"
#include "sumi_xml.h"

namespace sumi {
static void KeepSentence(sumi_log_level, sumi_result, const char* Text, void* UserData)
{
    *static_cast<std::string*>(UserData) = Text;
}

bool XmlPrompt::Write(std::string& Text, std::string& Trouble) const
{
    Text.clear();
    Trouble = CheckVersion();
    if (!Trouble.empty()) return false;
    std::vector<sumi_xml_character> All;
    for (const XmlCharacter& Each : Characters)
        All.push_back({Each.Name.c_str(), Each.Gender.c_str(), Each.Appearance.c_str(), Each.Clothing.c_str(),
                       Each.BodyType.c_str(), Each.Expression.c_str(), Each.Action.c_str(), Each.Interaction.c_str(),
                       Each.Position.c_str()});
    sumi_xml_prompt_desc Desc = sumi_xml_prompt_defaults();
    Desc.indent = Indent;
    Desc.characters = All.data();
    Desc.character_count = static_cast<int32_t>(All.size());
    Desc.tags = {Tags.Count.c_str(),       Tags.Artists.c_str(),     Tags.Style.c_str(),      Tags.Background.c_str(),
                 Tags.Environment.c_str(), Tags.Perspective.c_str(), Tags.Atmosphere.c_str(), Tags.Lighting.c_str(),
                 Tags.Resolution.c_str(),  Tags.Quality.c_str(),     Tags.Objects.c_str(),    Tags.Other.c_str(),
                 Tags.ExtraTags.c_str()};
    Desc.caption = Caption.c_str();
    Desc.log = {KeepSentence, &Trouble};
    size_t Bytes = 0;
    sumi_result Result = sumi_xml_prompt_write(&Desc, nullptr, 0, &Bytes);
    if (Result == SUMI_OK) {
        Text.resize(Bytes); // with the zero
        Result = sumi_xml_prompt_write(&Desc, &Text[0], Bytes, nullptr);
        Text.resize(Result == SUMI_OK ? Bytes - 1 : 0);
    }
    if (Result != SUMI_OK && Trouble.empty()) Trouble = sumi_result_text(Result);
    return Result == SUMI_OK;
}
} // namespace sumi
