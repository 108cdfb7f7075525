#include "models.h"
#include "desktop.h"
#include "viewer.h"
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

static constexpr size_t MAX_RECENT = 6;

struct DemoModel {
    const char *folder, *name, *remark;
};
static const DemoModel s_demos[] = {
    {"samples/demo_model", "Demo model", "draws pictures"},
    {"samples/demo_edit_model", "Demo edit model", "edits pictures"},
};

static std::string plain_path(const std::string& path)
{
    std::error_code ignored;
    std::filesystem::path plain = std::filesystem::absolute(path, ignored).lexically_normal();
    if (!plain.has_filename() && plain.has_relative_path()) plain = plain.parent_path(); // "model/"
    return plain.string();
}

static std::string name_of(const std::filesystem::path& path)
{
    const std::string ending = path.extension().string();
    return (ending == ".safetensors" || ending == ".gguf" ? path.stem() : path.filename()).string();
}

// ---- Demo models ----------------------------------------------------------------------------------------------------

static std::string find_demo_model(const char* name, const char* program)
{
    std::error_code ignored;
    const std::filesystem::path index = std::filesystem::path(name) / "model_index.json";
    if (std::filesystem::exists(index, ignored)) return name;
    for (std::filesystem::path folder = std::filesystem::absolute(program, ignored).parent_path();
         folder.has_relative_path(); folder = folder.parent_path())
        if (std::filesystem::exists(folder / index, ignored)) return (folder / name).string();
    return "";
}

void find_demo_models(Viewer& viewer, const char* program)
{
    for (const DemoModel& demo : s_demos) {
        const std::string path = find_demo_model(demo.folder, program);
        if (path.empty()) continue;
        viewer.models.demos.push_back({plain_path(path), demo.name, demo.remark});
        viewer.report.event(viewer.now, "demo %s", path.c_str());
    }
}

static const ModelEntry* find_demo(const Viewer& viewer, const std::string& path)
{
    for (const ModelEntry& demo : viewer.models.demos)
        if (demo.path == path) return &demo;
    return nullptr;
}

// ---- Models that were opened before ---------------------------------------------------------------------------------

static std::string recent_file()
{
    const std::string folder = state_folder();
    return folder.empty() ? "" : (std::filesystem::path(folder) / "sumi" / "viewer_models").string();
}

static void add_recent(std::vector<std::string>& paths, const std::string& path)
{
    const bool is_known = std::find(paths.begin(), paths.end(), path) != paths.end();
    if (!is_known && paths.size() < MAX_RECENT) paths.push_back(path);
}

// A path a line. What is none is left out: somebody may have written into the file.
static std::vector<std::string> read_recent(const std::string& file_path)
{
    std::vector<std::string> paths;
    std::ifstream file(file_path);
    std::string line;
    for (int i = 0; i < 100 && std::getline(file, line); i++) {
        const bool is_path = std::filesystem::path(line).is_absolute() && line.size() < 4096;
        if (is_path && std::none_of(line.begin(), line.end(), [](unsigned char letter) { return letter < 0x20; }))
            add_recent(paths, line);
    }
    return paths;
}

// Under a name of its own first, as another viewer may be reading.
static bool write_recent(const std::string& file_path, const std::vector<std::string>& paths)
{
    std::error_code error;
    const std::string part = file_path + ".part";
    std::filesystem::create_directories(std::filesystem::path(file_path).parent_path(), error);
    std::ofstream file(part);
    for (const std::string& path : paths) file << path << '\n';
    file.close();
    if (!file) return false;
    std::filesystem::rename(part, file_path, error);
    return !error;
}

void read_recent_models(Viewer& viewer)
{
    auto paths = std::make_shared<std::vector<std::string>>();
    viewer.files.post([file = recent_file(), paths] { *paths = read_recent(file); },
                      [&viewer, paths] {
                          for (const std::string& path : *paths) add_recent(viewer.models.recent, path);
                      });
}

// The file is read again, as another viewer may have written it meanwhile. Where it cannot be written the list is kept
// until the window is closed.
void remember_model(Viewer& viewer, const std::string& path)
{
    const std::string plain = plain_path(path);
    viewer.models.current = plain;
    if (find_demo(viewer, plain) || plain.find('\n') != std::string::npos) return;
    std::vector<std::string> paths = {plain};
    for (const std::string& each : viewer.models.recent) add_recent(paths, each);
    viewer.models.recent = paths;
    const std::string file = recent_file();
    auto is_written = std::make_shared<bool>(false);
    viewer.files.post(
        [file, paths, is_written] {
            std::vector<std::string> all = paths;
            for (const std::string& each : read_recent(file)) add_recent(all, each);
            *is_written = !file.empty() && write_recent(file, all);
        },
        [&viewer, plain, is_written] {
            viewer.report.event(viewer.now, *is_written ? "remembered %s" : "not remembered %s", plain.c_str());
        });
}

// ---- The field ------------------------------------------------------------------------------------------------------

static void choose(Viewer& viewer, const std::string& path)
{
    viewer.wants_focus = true; // the next thing to do is to type
    if (path == viewer.models.current && viewer.generator.is_ready()) return;
    viewer.report.event(viewer.now, "chosen %s", path.c_str());
    open_path(viewer, path);
}

// A line of the menu; returns whether it was chosen.
static bool draw_line(Viewer& viewer, const char* mark_name, const std::string& name, const std::string& remark,
                      bool is_current)
{
    const ImVec2 corner = ImGui::GetCursorScreenPos();
    const float width = ImGui::GetContentRegionAvail().x, pad = viewer.theme(4), dot = viewer.theme(3);
    const float height = ImGui::GetTextLineHeight() + 2.0f * pad, gap = viewer.theme(18);
    ImGui::PushID(mark_name);
    bool is_chosen = ImGui::Selectable("##line", false, 0, ImVec2(width, height));
    ImGui::PopID();
    is_chosen |= is_entered(viewer);
    if (is_current) ImGui::SetItemDefaultFocus();
    mark(viewer, mark_name);
    ImDrawList* list = ImGui::GetWindowDrawList();
    if (viewer.models.by_keys && ImGui::IsItemFocused()) // Dear ImGui shows it from the first arrow key on
        list->AddRectFilled(corner, ImVec2(corner.x + width, corner.y + height), colour::FIELD_HOT);
    if (is_current)
        list->AddCircleFilled(ImVec2(corner.x + dot + pad, corner.y + 0.5f * height), dot, colour::LEAF, 16);
    const std::string shown = elided(remark, 0.5f * width);
    const float right = corner.x + width - ImGui::CalcTextSize(shown.c_str()).x - pad;
    list->AddText(ImVec2(corner.x + gap, corner.y + pad), colour::TEXT,
                  elided(name, right - corner.x - gap - pad).c_str());
    list->AddText(ImVec2(right, corner.y + pad), colour::FAINT, shown.c_str());
    return is_chosen;
}

static void draw_lines(Viewer& viewer)
{
    const ModelMenu& menu = viewer.models;
    const std::string current = viewer.generator.is_ready() ? menu.current : "";
    std::string chosen;
    for (size_t i = 0; i < menu.demos.size(); i++) {
        const ModelEntry& demo = menu.demos[i];
        const std::string name = "model-demo-" + std::to_string(i);
        if (draw_line(viewer, name.c_str(), demo.name, demo.remark, demo.path == current)) chosen = demo.path;
        hint_beside(demo.path.c_str());
    }
    if (!menu.recent.empty()) heading(viewer, "OPENED BEFORE");
    for (size_t i = 0; i < menu.recent.size(); i++) {
        const std::filesystem::path path = menu.recent[i];
        const std::string name = "model-recent-" + std::to_string(i);
        if (draw_line(viewer, name.c_str(), name_of(path), path.parent_path().filename().string(),
                      menu.recent[i] == current))
            chosen = menu.recent[i];
        hint_beside(menu.recent[i].c_str());
    }
    if (!menu.demos.empty() || !menu.recent.empty()) ImGui::Separator();
    if (draw_line(viewer, "model-open", "Open folder or file...", "Ctrl+O", false))
        open_chooser(viewer, Purpose::MODEL);
    hint_beside("A diffusers folder, a .safetensors or .gguf file");
    if (!chosen.empty()) choose(viewer, chosen);
}

// Below the field, and as high as the window has room for it.
static void draw_menu(Viewer& viewer, ImVec2 corner, float width)
{
    const float top = std::max(corner.y, viewer.theme(8)), room = ImGui::GetIO().DisplaySize.y - top - viewer.theme(8);
    ImGui::SetNextWindowPos(ImVec2(corner.x, top));
    ImGui::SetNextWindowSizeConstraints(ImVec2(width, 0.0f), ImVec2(width, room));
    ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, ImVec2(viewer.theme(8), viewer.theme(8)));
    ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, ImVec2(viewer.theme(8), viewer.theme(2)));
    const bool was_shown = viewer.models.is_shown;
    viewer.models.is_shown = ImGui::BeginPopup("models");
    if (was_shown && !viewer.models.is_shown) viewer.report.event(viewer.now, "menu closed");
    if (viewer.models.is_shown) {
        draw_lines(viewer);
        ImGui::EndPopup();
    }
    ImGui::PopStyleVar(2);
}

static void draw_arrow(const Viewer& viewer, ImVec2 middle)
{
    const float a = viewer.theme(4), b = viewer.theme(2);
    const ImVec2 points[] = {ImVec2(middle.x - a, middle.y - b), ImVec2(middle.x, middle.y + b),
                             ImVec2(middle.x + a, middle.y - b)};
    ImGui::GetWindowDrawList()->AddPolyline(points, 3, ImGui::GetColorU32(colour::DIM), 0, viewer.theme(1.5f));
}

// The name at the left, what kind of model it is at the right.
static void draw_field(const Viewer& viewer, ImVec2 corner, float width)
{
    const Generator& generator = viewer.generator;
    ImDrawList* list = ImGui::GetWindowDrawList();
    const bool is_ready = generator.is_ready();
    const ModelEntry* demo = is_ready ? find_demo(viewer, viewer.models.current) : nullptr;
    const std::string name = demo                   ? demo->name
                           : is_ready               ? generator.model_name()
                           : generator.is_opening() ? "opening..."
                                                    : "choose a model";
    const ImVec2 pad = ImGui::GetStyle().FramePadding;
    const float height = ImGui::GetFrameHeight(), dot = viewer.theme(3.5f), arrow = viewer.theme(18);
    list->AddCircleFilled(ImVec2(corner.x + pad.x + dot, corner.y + 0.5f * height), dot,
                          is_ready                 ? colour::LEAF
                          : generator.is_opening() ? colour::SAND
                                                   : colour::SEAL,
                          16);
    const float right = corner.x + width - pad.x - arrow, left = corner.x + pad.x + 2.0f * dot + viewer.theme(8);
    std::string kind;
    if (is_ready) kind = std::string(generator.model_info().family) + " " + generator.model_info().variant;
    // long families give way to the name; the variant says enough
    if (is_ready && ImGui::CalcTextSize(kind.c_str()).x > 0.5f * width) kind = generator.model_info().variant;
    const float kind_width = ImGui::CalcTextSize(kind.c_str()).x;
    list->AddText(ImVec2(left, corner.y + pad.y), ImGui::GetColorU32(ImGuiCol_Text),
                  elided(name, right - kind_width - pad.x - left).c_str());
    list->AddText(ImVec2(right - kind_width, corner.y + pad.y), ImGui::GetColorU32(colour::FAINT), kind.c_str());
    draw_arrow(viewer, ImVec2(corner.x + width - pad.x - viewer.theme(4), corner.y + 0.5f * height));
}

void draw_model(Viewer& viewer)
{
    heading(viewer, "MODEL");
    const float width = ImGui::GetContentRegionAvail().x, height = ImGui::GetFrameHeight();
    const ImVec2 corner = ImGui::GetCursorScreenPos();
    if (ImGui::Button("##model", ImVec2(width, height)) || viewer.models.wants_open) {
        ImGui::OpenPopup("models");
        viewer.models.by_keys = viewer.models.wants_open;
    }
    viewer.models.wants_open = false;
    mark(viewer, "model");
    std::string text = "The demo models, those that were opened before, or any folder or file (Ctrl+M)";
    if (viewer.generator.is_ready()) text = viewer.generator.model_path() + "\n" + text;
    hint(text.c_str());
    draw_field(viewer, corner, width);
    draw_menu(viewer, ImVec2(corner.x, corner.y + height + viewer.theme(4)), width);
}
