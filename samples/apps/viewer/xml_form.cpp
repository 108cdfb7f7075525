#include "xml_form.h"
#include "viewer.h"
#include <cctype>
#include <sumi_xml.h>

static const char* const s_character_names[XmlForm::CHARACTER_FIELDS] = {
    "Name", "Gender", "Appearance", "Clothing", "Body type", "Expression", "Action", "Interaction", "Position"};
static const char* const s_character_hints[XmlForm::CHARACTER_FIELDS] = {
    "", "1girl", "silver_hair, green_eyes", "yellow_raincoat", "", "smile", "standing, waving", "", "center_left"};
static const char* const s_tag_names[XmlForm::TAG_FIELDS] = {
    "Count",    "Artists",    "Style",   "Background", "Environment", "Perspective", "Atmosphere",
    "Lighting", "Resolution", "Quality", "Objects",    "Other",       "Extra tags"};
static const char* const s_tag_hints[XmlForm::TAG_FIELDS] = {"1girl, solo",
                                                             "",
                                                             "anime_style, watercolor",
                                                             "city_street, rain",
                                                             "",
                                                             "",
                                                             "cheerful",
                                                             "",
                                                             "",
                                                             "detailed",
                                                             "",
                                                             "",
                                                             ""};

// ---- The text -------------------------------------------------------------------------------------------------------

static void keep_sentence(sumi_log_level, sumi_result, const char* text, void* user_data)
{
    *static_cast<std::string*>(user_data) = text;
}

bool XmlForm::write(std::string& text, std::string& trouble) const
{
    static_assert(sizeof(sumi_xml_character) == CHARACTER_FIELDS * sizeof(char*), "a field for each member");
    static_assert(sizeof(sumi_xml_tags) == TAG_FIELDS * sizeof(char*), "a field for each member");
    std::vector<sumi_xml_character> all;
    for (const Character& each : characters) {
        const auto& v = each.values;
        all.push_back({v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8]});
    }
    const std::string prose = unwrapped(caption);
    sumi_xml_prompt_desc desc = sumi_xml_prompt_defaults();
    desc.characters = all.data();
    desc.character_count = (int32_t)all.size();
    desc.tags = {tags[0], tags[1], tags[2], tags[3],  tags[4],  tags[5], tags[6],
                 tags[7], tags[8], tags[9], tags[10], tags[11], tags[12]};
    desc.caption = prose.c_str();
    desc.log = {keep_sentence, &trouble};
    text.clear();
    trouble.clear();
    size_t bytes = 0;
    sumi_result result = sumi_xml_prompt_write(&desc, nullptr, 0, &bytes);
    if (result == SUMI_OK) {
        text.resize(bytes); // with the zero
        result = sumi_xml_prompt_write(&desc, &text[0], bytes, nullptr);
        text.resize(bytes - 1);
    }
    if (result != SUMI_OK && trouble.empty()) trouble = sumi_result_text(result);
    return result == SUMI_OK;
}

// ---- The panel ------------------------------------------------------------------------------------------------------

static bool field(Viewer& viewer, const char* name, const char* mark_name, const char* example, char* text,
                  size_t capacity)
{
    ImGui::AlignTextToFramePadding();
    ImGui::PushStyleColor(ImGuiCol_Text, colour::DIM);
    ImGui::TextUnformatted(name);
    ImGui::PopStyleColor();
    ImGui::SameLine(viewer.theme(112));
    ImGui::SetNextItemWidth(-1.0f);
    ImGui::PushID(name);
    ImGui::PushStyleColor(ImGuiCol_TextDisabled, colour::FAINT);
    if (ImGui::InputTextWithHint("##field", example, text, capacity, ImGuiInputTextFlags_EnterReturnsTrue))
        viewer.wants_picture = true;
    ImGui::PopStyleColor();
    const bool changed = ImGui::IsItemEdited();
    viewer.has_focus |= ImGui::IsItemActive();
    ImGui::PopID();
    mark(viewer, mark_name);
    if (!ImGui::IsItemActive()) hint("Tags, with commas between them");
    return changed;
}

// Says "xml-0-body-type" of "Body type".
static std::string mark_of(const std::string& before, const char* name)
{
    std::string made = before + name;
    for (char& letter : made) letter = letter == ' ' ? '-' : (char)tolower((unsigned char)letter);
    return made;
}

static bool draw_character(Viewer& viewer, size_t index, bool* removes)
{
    XmlForm::Character& character = viewer.xml.characters[index];
    const std::string number = std::to_string(index + 1), marks = "xml-" + std::to_string(index) + "-";
    bool changed = false;
    ImGui::PushID((int)index);
    heading(viewer, ("CHARACTER " + number).c_str());
    const float width = viewer.theme(64);
    ImGui::SameLine(ImGui::GetContentRegionMax().x - width);
    ImGui::PushFont(viewer.theme.small);
    ImGui::PushStyleVar(ImGuiStyleVar_FramePadding, ImVec2(viewer.theme(6), viewer.theme(1)));
    *removes = ImGui::Button("Remove", ImVec2(width, 0));
    ImGui::PopStyleVar();
    ImGui::PopFont();
    mark(viewer, (marks + "remove").c_str());
    hint("Take this character out of the prompt");
    const std::string placeholder = "$character_" + number + "$";
    for (int i = 0; i < XmlForm::CHARACTER_FIELDS; i++)
        changed |=
            field(viewer, s_character_names[i], mark_of(marks, s_character_names[i]).c_str(),
                  i == 0 ? placeholder.c_str() : s_character_hints[i], character.values[i], sizeof character.values[i]);
    ImGui::PopID();
    return changed;
}

void draw_xml_form(Viewer& viewer)
{
    XmlForm& form = viewer.xml;
    const size_t count = form.characters.size();
    bool changed = false;
    size_t removed = count;
    for (size_t i = 0; i < count; i++) {
        bool removes = false;
        changed |= draw_character(viewer, i, &removes);
        if (removes) removed = i;
    }
    ImGui::BeginDisabled(count >= XmlForm::MAX_CHARACTERS);
    const bool adds = ImGui::Button("Add a character", ImVec2(-1, 0));
    ImGui::EndDisabled();
    mark(viewer, "xml-add");
    hint("One more character, with fields of its own");
    heading(viewer, "WHOLE PICTURE");
    for (int i = 0; i < XmlForm::TAG_FIELDS; i++)
        changed |= field(viewer, s_tag_names[i], mark_of("xml-", s_tag_names[i]).c_str(), s_tag_hints[i], form.tags[i],
                         sizeof form.tags[i]);
    heading(viewer, "CAPTION");
    if (wrapped_text("##caption", form.caption, sizeof form.caption, ImVec2(-1, viewer.theme(96)), &changed))
        viewer.wants_picture = true;
    viewer.has_focus |= ImGui::IsItemActive();
    mark(viewer, "xml-caption");
    if (!ImGui::IsItemActive()) hint("The picture in sentences");

    // Behind the fields: what follows a character that is removed moves up.
    if (removed < count) form.characters.erase(form.characters.begin() + (std::ptrdiff_t)removed);
    else if (adds) form.characters.emplace_back();
    if (form.characters.size() != count) viewer.report.event(viewer.now, "characters %zu", form.characters.size());
    if (changed || form.characters.size() != count) form_changed(viewer);
}
