#include "chooser.h"
#include "viewer.h"
#include <algorithm>
#include <cstring>
#include <filesystem>
extern "C" {
#include "picture.h"
}

static bool is_model_folder(const std::filesystem::path& folder)
{
    std::error_code ignored;
    return std::filesystem::exists(folder / "model_index.json", ignored);
}

struct PurposeText {
    const char *title, *none;
};
static const PurposeText s_texts[] = {
    {"Open a model", "No folders, no .safetensors or .gguf files here"},
    {"Add a LoRA", "No folders, no .safetensors files here"},
    {"Open a control net", "No folders, no .safetensors files here"},
    {"Choose a picture to start from", "No folders, no PNG, JPEG or WebP files here"},
    {"Choose a mask", "No folders, no PNG, JPEG or WebP files here"},
    {"Choose a picture to edit", "No folders, no PNG, JPEG or WebP files here"},
    {"Choose a picture to follow", "No folders, no PNG, JPEG or WebP files here"},
    {"Choose the folder for saved pictures", "No folders here"},
};

// What is opened as a whole.
static bool is_wanted_folder(Purpose purpose, const std::filesystem::path& folder)
{
    if (purpose == Purpose::CONTROL) return is_control_folder(folder.string());
    return purpose == Purpose::MODEL && is_model_folder(folder);
}

static bool is_wanted_file(Purpose purpose, const std::string& name)
{
    const std::string ending = std::filesystem::path(name).extension().string();
    switch (purpose) {
    case Purpose::MODEL: return ending == ".safetensors" || ending == ".gguf";
    case Purpose::ADAPTER:
    case Purpose::CONTROL: return ending == ".safetensors";
    case Purpose::OUTPUT: return false;
    default: return picture_format_of_path(name.c_str()) != PICTURE_UNKNOWN;
    }
}

// Reading a folder may wait for a disk or a network, so it is done on the thread for files. `climbs`: to the nearest
// folder above that exists.
static void list_folder(Viewer& viewer, const std::string& folder, bool climbs = false)
{
    auto answer = std::make_shared<Chooser>();
    answer->purpose = viewer.chooser.purpose;
    viewer.chooser.is_listing = true;
    viewer.files.post(
        [folder, climbs, answer] {
            std::error_code error;
            std::filesystem::path whole = std::filesystem::weakly_canonical(folder, error);
            while (climbs && !std::filesystem::is_directory(whole, error) && whole.has_relative_path())
                whole = whole.parent_path();
            error.clear();
            answer->folder = whole.empty() ? folder : whole.string();
            const Purpose purpose = answer->purpose;
            answer->has_model = purpose == Purpose::OUTPUT || is_wanted_folder(purpose, answer->folder);
            std::filesystem::directory_iterator at(answer->folder,
                                                   std::filesystem::directory_options::skip_permission_denied, error),
                end;
            if (error) answer->message = error.message();
            for (; !error && at != end; at.increment(error)) {
                const std::string name = at->path().filename().string();
                std::error_code ignored;
                const bool is_folder = at->is_directory(ignored);
                if (name.empty() || name[0] == '.') continue;
                if (is_folder) answer->items.push_back({name, true, is_wanted_folder(purpose, at->path())});
                else if (is_wanted_file(purpose, name)) answer->items.push_back({name, false, true});
            }
            std::sort(answer->items.begin(), answer->items.end(), [](const Chooser::Item& a, const Chooser::Item& b) {
                return a.is_folder != b.is_folder ? a.is_folder : a.name < b.name;
            });
        },
        [&viewer, answer] {
            Chooser& chooser = viewer.chooser;
            chooser.is_listing = false;
            chooser.message = answer->message;
            // What cannot be read is not where the next look begins; what was typed stays to be corrected.
            if (!answer->message.empty())
                return viewer.report.event(viewer.now, "no folder %s", answer->folder.c_str());
            viewer.report.event(viewer.now, "folder %s", answer->folder.c_str());
            chooser.folder = chooser.folders[(int)answer->purpose] = answer->folder;
            chooser.has_model = answer->has_model;
            chooser.items = answer->items;
            chooser.selected.clear();
            snprintf(chooser.path, sizeof chooser.path, "%s", chooser.folder.c_str());
        });
}

static std::string first_folder(const Viewer& viewer, Purpose purpose)
{
    const std::string& last = viewer.chooser.folders[(int)purpose];
    if (!last.empty()) return last;
    if (purpose > Purpose::CONTROL) return viewer.output_folder;
    const std::filesystem::path model = viewer.generator.model_path();
    return model.has_parent_path() ? model.parent_path().string() : ".";
}

void open_chooser(Viewer& viewer, Purpose purpose)
{
    Chooser& chooser = viewer.chooser;
    chooser.purpose = purpose;
    chooser.wants_open = true;
    chooser.message.clear();
    chooser.items.clear();
    chooser.selected.clear();
    chooser.has_model = false;
    list_folder(viewer, first_folder(viewer, purpose), true);
}

static void choose(Viewer& viewer, const std::string& path)
{
    switch (viewer.chooser.purpose) {
    case Purpose::MODEL: return open_path(viewer, path);
    case Purpose::ADAPTER: add_adapter(viewer, path); return;
    case Purpose::CONTROL: return open_control(viewer, path, false);
    case Purpose::OUTPUT:
        snprintf(viewer.output_folder, sizeof viewer.output_folder, "%s", path.c_str());
        return viewer.report.event(viewer.now, "output %s", path.c_str());
    default: return read_picture(viewer, path, viewer.chooser.purpose);
    }
}

static void draw_items(Viewer& viewer, std::string& enter, std::string& chosen)
{
    Chooser& chooser = viewer.chooser;
    for (const Chooser::Item& item : chooser.items) {
        const std::string whole = (std::filesystem::path(chooser.folder) / item.name).string();
        const ImVec2 corner = ImGui::GetCursorScreenPos();
        const bool is_selected = chooser.selected == item.name;
        if (ImGui::Selectable(("##" + item.name).c_str(), is_selected,
                              ImGuiSelectableFlags_AllowDoubleClick | ImGuiSelectableFlags_DontClosePopups)) {
            chooser.selected = item.name;
            if (ImGui::IsMouseDoubleClicked(0)) (item.is_folder && !item.is_wanted ? enter : chosen) = whole;
        }
        ImDrawList* list = ImGui::GetWindowDrawList();
        const float height = ImGui::GetTextLineHeight(), indent = viewer.theme(24);
        const ImU32 ink = ImGui::GetColorU32(item.is_wanted ? colour::SEAL : colour::FAINT);
        const float x = corner.x + viewer.theme(4), y = corner.y + 0.5f * height;
        if (item.is_folder) {
            list->AddRectFilled(ImVec2(x, y - viewer.theme(5)), ImVec2(x + viewer.theme(6), y), ink, viewer.theme(1));
            list->AddRectFilled(ImVec2(x, y - viewer.theme(3)), ImVec2(x + viewer.theme(13), y + viewer.theme(5)), ink,
                                viewer.theme(1.5f));
        } else {
            list->AddRectFilled(ImVec2(x + viewer.theme(2), y - viewer.theme(6)),
                                ImVec2(x + viewer.theme(11), y + viewer.theme(6)), ink, viewer.theme(1.5f));
        }
        list->AddText(ImVec2(corner.x + indent, corner.y), ImGui::GetColorU32(colour::TEXT), shown(item.name).c_str());
        if (!item.is_wanted) continue;
        const char* text = chooser.purpose == Purpose::MODEL   ? "model"
                         : chooser.purpose == Purpose::CONTROL ? "net"
                                                               : "";
        list->AddText(
            ImVec2(corner.x + ImGui::GetContentRegionAvail().x - ImGui::CalcTextSize(text).x - viewer.theme(6),
                   corner.y),
            ImGui::GetColorU32(colour::DIM), text);
    }
    if (chooser.items.empty() && !chooser.is_listing) ImGui::TextDisabled("%s", s_texts[(int)chooser.purpose].none);
}

void draw_chooser(Viewer& viewer)
{
    Chooser& chooser = viewer.chooser;
    const char* title = s_texts[(int)chooser.purpose].title;
    if (chooser.wants_open) {
        chooser.wants_open = chooser.wants_close = false;
        ImGui::OpenPopup(title);
    }
    const ImVec2 screen = ImGui::GetIO().DisplaySize;
    ImGui::SetNextWindowSize(ImVec2(std::min(viewer.theme(620), screen.x), std::min(viewer.theme(460), screen.y)),
                             ImGuiCond_Always);
    ImGui::SetNextWindowPos(ImVec2(0.5f * screen.x, 0.5f * screen.y), ImGuiCond_Always, ImVec2(0.5f, 0.5f));
    chooser.is_shown = ImGui::BeginPopupModal(title, nullptr, ImGuiWindowFlags_NoResize | ImGuiWindowFlags_NoMove);
    if (!chooser.is_shown) return;
    std::string enter, chosen;
    const float up = viewer.theme(52);
    if (ImGui::IsWindowAppearing()) ImGui::SetKeyboardFocusHere();
    ImGui::SetNextItemWidth(-(up + ImGui::GetStyle().ItemSpacing.x));
    if (ImGui::InputText("##path", chooser.path, sizeof chooser.path, ImGuiInputTextFlags_EnterReturnsTrue)) {
        (is_wanted_file(chooser.purpose, chooser.path) ? chosen : enter) = chooser.path;
    }
    mark(viewer, "path");
    if (!ImGui::IsItemActive()) hint("A file or a folder; Enter opens it");
    ImGui::SameLine();
    const bool goes_up = ImGui::Button("Up", ImVec2(up, 0));
    hint("The folder above");
    if (goes_up && !chooser.folder.empty()) enter = std::filesystem::path(chooser.folder).parent_path().string();
    const float bottom = ImGui::GetFrameHeight() + 2.0f * ImGui::GetStyle().ItemSpacing.y;
    ImGui::PushStyleColor(ImGuiCol_ChildBg, colour::PANEL);
    ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, ImVec2(viewer.theme(8), viewer.theme(8)));
    ImGui::BeginChild("items", ImVec2(0, -bottom), false, ImGuiWindowFlags_AlwaysUseWindowPadding);
    draw_items(viewer, enter, chosen);
    ImGui::EndChild();
    ImGui::PopStyleVar();
    ImGui::PopStyleColor();

    const Chooser::Item* selected = nullptr;
    for (const Chooser::Item& item : chooser.items)
        if (item.name == chooser.selected) selected = &item;
    const float width = viewer.theme(110);
    if (!chooser.message.empty()) {
        ImGui::AlignTextToFramePadding();
        ImGui::TextUnformatted(elided(chooser.message, ImGui::GetContentRegionAvail().x - 2.2f * width).c_str());
        ImGui::SameLine();
    }
    ImGui::SetCursorPosX(ImGui::GetWindowContentRegionMax().x - 2.0f * width - ImGui::GetStyle().ItemSpacing.x);
    bool closes = ImGui::Button("Cancel", ImVec2(width, 0)) || chooser.wants_close;
    mark(viewer, "chooser-cancel");
    hint("Change nothing (Esc)");
    ImGui::SameLine();
    const bool can_open = selected || chooser.has_model;
    ImGui::BeginDisabled(!can_open);
    if (primary_button(viewer,
                       selected && !selected->is_wanted     ? "Enter"
                       : chooser.purpose == Purpose::OUTPUT ? "Use this"
                                                            : "Open",
                       ImVec2(width, 0))) {
        const std::string whole =
            selected ? (std::filesystem::path(chooser.folder) / selected->name).string() : chooser.folder;
        (selected && !selected->is_wanted ? enter : chosen) = whole;
    }
    mark(viewer, "chooser-open");
    hint("What is selected, or this folder");
    ImGui::EndDisabled();
    if (!enter.empty()) list_folder(viewer, enter);
    if (!chosen.empty()) {
        choose(viewer, chosen);
        closes = true;
    }
    if (closes) ImGui::CloseCurrentPopup();
    ImGui::EndPopup();
}
