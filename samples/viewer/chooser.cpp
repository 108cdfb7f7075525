#include "viewer.h"
#include <algorithm>
#include <cstring>
#include <filesystem>

static bool is_model_folder(const std::filesystem::path& folder)
{
    std::error_code ignored;
    return std::filesystem::exists(folder / "model_index.json", ignored);
}

// Reading a folder may wait for a disk or a network, so it is done on the thread for files.
static void list_folder(Viewer& viewer, const std::string& folder)
{
    auto answer = std::make_shared<PathChoice>();
    viewer.choice.is_listing = true;
    viewer.files.post(
        [folder, answer] {
            std::error_code error;
            const std::filesystem::path whole = std::filesystem::weakly_canonical(folder, error);
            answer->folder = error ? folder : whole.string();
            answer->has_model = is_model_folder(answer->folder);
            std::filesystem::directory_iterator at(answer->folder,
                                                   std::filesystem::directory_options::skip_permission_denied, error),
                end;
            if (error) answer->message = error.message();
            for (; !error && at != end; at.increment(error)) {
                const std::string name = at->path().filename().string(), ending = at->path().extension().string();
                std::error_code ignored;
                const bool is_folder = at->is_directory(ignored);
                if (name.empty() || name[0] == '.') continue;
                if (is_folder) answer->items.push_back({name, true, is_model_folder(at->path())});
                else if (ending == ".safetensors" || ending == ".gguf") answer->items.push_back({name, false, true});
            }
            std::sort(answer->items.begin(), answer->items.end(),
                      [](const PathChoice::Item& a, const PathChoice::Item& b) {
                          return a.is_folder != b.is_folder ? a.is_folder : a.name < b.name;
                      });
        },
        [&viewer, answer] {
            PathChoice& choice = viewer.choice;
            choice.is_listing = false;
            choice.message = answer->message;
            // What cannot be read is not where the next look begins; what was typed stays to be corrected.
            if (!answer->message.empty())
                return viewer.report.event(viewer.now, "no folder %s", answer->folder.c_str());
            viewer.report.event(viewer.now, "folder %s", answer->folder.c_str());
            choice.folder = answer->folder;
            choice.has_model = answer->has_model;
            choice.items = answer->items;
            choice.selected.clear();
            snprintf(choice.path, sizeof choice.path, "%s", choice.folder.c_str());
        });
}

void open_chooser(Viewer& viewer)
{
    viewer.choice.wants_open = true;
    viewer.choice.message.clear();
    const std::filesystem::path model = viewer.generator.model_path();
    list_folder(viewer, !viewer.choice.folder.empty() ? viewer.choice.folder
                        : model.has_parent_path()     ? model.parent_path().string()
                                                      : ".");
}

static void draw_items(Viewer& viewer, std::string& enter, std::string& chosen)
{
    PathChoice& choice = viewer.choice;
    for (const PathChoice::Item& item : choice.items) {
        const std::string whole = (std::filesystem::path(choice.folder) / item.name).string();
        const ImVec2 corner = ImGui::GetCursorScreenPos();
        const bool is_selected = choice.selected == item.name;
        if (ImGui::Selectable(("##" + item.name).c_str(), is_selected,
                              ImGuiSelectableFlags_AllowDoubleClick | ImGuiSelectableFlags_DontClosePopups)) {
            choice.selected = item.name;
            if (ImGui::IsMouseDoubleClicked(0)) (item.is_folder && !item.is_model ? enter : chosen) = whole;
        }
        ImDrawList* list = ImGui::GetWindowDrawList();
        const float height = ImGui::GetTextLineHeight(), indent = viewer.theme(24);
        const ImU32 ink = ImGui::GetColorU32(item.is_model ? colour::SEAL : colour::FAINT);
        const float x = corner.x + viewer.theme(4), y = corner.y + 0.5f * height;
        if (item.is_folder) {
            list->AddRectFilled(ImVec2(x, y - viewer.theme(5)), ImVec2(x + viewer.theme(6), y), ink, viewer.theme(1));
            list->AddRectFilled(ImVec2(x, y - viewer.theme(3)), ImVec2(x + viewer.theme(13), y + viewer.theme(5)), ink,
                                viewer.theme(1.5f));
        } else {
            list->AddRectFilled(ImVec2(x + viewer.theme(2), y - viewer.theme(6)),
                                ImVec2(x + viewer.theme(11), y + viewer.theme(6)), ink, viewer.theme(1.5f));
        }
        list->AddText(ImVec2(corner.x + indent, corner.y), ImGui::GetColorU32(colour::TEXT), item.name.c_str());
        if (!item.is_model) continue;
        const char* text = "model";
        list->AddText(
            ImVec2(corner.x + ImGui::GetContentRegionAvail().x - ImGui::CalcTextSize(text).x - viewer.theme(6),
                   corner.y),
            ImGui::GetColorU32(colour::DIM), text);
    }
    if (choice.items.empty() && !choice.is_listing)
        ImGui::TextDisabled("No folders, no .safetensors or .gguf files here");
}

void draw_chooser(Viewer& viewer)
{
    PathChoice& choice = viewer.choice;
    const char* title = "Open a model";
    if (choice.wants_open) {
        choice.wants_open = choice.wants_close = false;
        ImGui::OpenPopup(title);
    }
    const ImVec2 screen = ImGui::GetIO().DisplaySize;
    ImGui::SetNextWindowSize(ImVec2(std::min(viewer.theme(620), screen.x), std::min(viewer.theme(460), screen.y)),
                             ImGuiCond_Always);
    ImGui::SetNextWindowPos(ImVec2(0.5f * screen.x, 0.5f * screen.y), ImGuiCond_Always, ImVec2(0.5f, 0.5f));
    choice.is_shown = ImGui::BeginPopupModal(title, nullptr, ImGuiWindowFlags_NoResize | ImGuiWindowFlags_NoMove);
    if (!choice.is_shown) return;
    std::string enter, chosen;
    const float up = viewer.theme(52);
    ImGui::SetNextItemWidth(-(up + ImGui::GetStyle().ItemSpacing.x));
    if (ImGui::InputText("##path", choice.path, sizeof choice.path, ImGuiInputTextFlags_EnterReturnsTrue)) {
        const std::string ending = std::filesystem::path(choice.path).extension().string();
        (ending == ".safetensors" || ending == ".gguf" ? chosen : enter) = choice.path;
    }
    mark(viewer, "path");
    ImGui::SameLine();
    if (ImGui::Button("Up", ImVec2(up, 0)) && !choice.folder.empty())
        enter = std::filesystem::path(choice.folder).parent_path().string();
    const float bottom = ImGui::GetFrameHeight() + 2.0f * ImGui::GetStyle().ItemSpacing.y;
    ImGui::PushStyleColor(ImGuiCol_ChildBg, colour::PANEL);
    ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, ImVec2(viewer.theme(8), viewer.theme(8)));
    ImGui::BeginChild("items", ImVec2(0, -bottom), false, ImGuiWindowFlags_AlwaysUseWindowPadding);
    draw_items(viewer, enter, chosen);
    ImGui::EndChild();
    ImGui::PopStyleVar();
    ImGui::PopStyleColor();

    const PathChoice::Item* selected = nullptr;
    for (const PathChoice::Item& item : choice.items)
        if (item.name == choice.selected) selected = &item;
    const float width = viewer.theme(110);
    if (!choice.message.empty()) {
        ImGui::AlignTextToFramePadding();
        ImGui::TextUnformatted(elided(choice.message, ImGui::GetContentRegionAvail().x - 2.2f * width).c_str());
        ImGui::SameLine();
    }
    ImGui::SetCursorPosX(ImGui::GetWindowContentRegionMax().x - 2.0f * width - ImGui::GetStyle().ItemSpacing.x);
    bool closes = ImGui::Button("Cancel", ImVec2(width, 0)) || choice.wants_close;
    mark(viewer, "chooser-cancel");
    ImGui::SameLine();
    const bool can_open = selected || choice.has_model;
    ImGui::BeginDisabled(!can_open);
    if (primary_button(viewer, selected && !selected->is_model ? "Enter" : "Open", ImVec2(width, 0))) {
        const std::string whole =
            selected ? (std::filesystem::path(choice.folder) / selected->name).string() : choice.folder;
        (selected && !selected->is_model ? enter : chosen) = whole;
    }
    mark(viewer, "chooser-open");
    ImGui::EndDisabled();
    if (!enter.empty()) list_folder(viewer, enter);
    if (!chosen.empty()) {
        open_path(viewer, chosen);
        closes = true;
    }
    if (closes) ImGui::CloseCurrentPopup();
    ImGui::EndPopup();
}
