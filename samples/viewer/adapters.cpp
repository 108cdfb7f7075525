// The list of LoRAs: what is applied to the next pictures, and how strongly.
#include "viewer.h"
#include <algorithm>
#include <filesystem>

static constexpr size_t MAX_ADAPTERS = 16; // of a job

static AdapterEntry* find(Viewer& viewer, const std::string& path)
{
    for (AdapterEntry& entry : viewer.adapters)
        if (entry.use.path == path) return &entry;
    return nullptr;
}

AdapterEntry& add_adapter(Viewer& viewer, const std::string& from)
{
    std::error_code ignored;
    const std::string path = std::filesystem::absolute(from, ignored).lexically_normal().string(); // one entry a file
    if (AdapterEntry* known = find(viewer, path)) return *known;
    std::filesystem::path name = path;
    if (!name.has_filename()) name = name.parent_path(); // "folder/"
    AdapterEntry entry;
    entry.use.path = path;
    entry.use.name = name.extension() == ".safetensors" ? name.stem().string() : name.filename().string();
    viewer.adapters.push_back(entry);
    if (viewer.generator.is_ready()) viewer.generator.read_adapter(path); // another model reads the whole list
    form_changed(viewer);
    return viewer.adapters.back();
}

void reread_adapters(Viewer& viewer)
{
    for (AdapterEntry& entry : viewer.adapters) {
        entry.use.adapter.reset();
        viewer.generator.read_adapter(entry.use.path);
    }
}

void take_adapters(Viewer& viewer)
{
    for (AdapterNews& news : viewer.generator.take_adapters()) {
        std::vector<AdapterEntry>& all = viewer.adapters;
        const auto at =
            std::find_if(all.begin(), all.end(), [&](const AdapterEntry& each) { return each.use.path == news.path; });
        if (at == all.end()) continue; // removed meanwhile
        at->use.adapter = news.adapter;
        if (!news.adapter) all.erase(at);
        viewer.report.event(viewer.now, "adapters %zu", all.size());
        form_changed(viewer);
    }
}

std::vector<AdapterUse> adapters_in_use(const Viewer& viewer)
{
    std::vector<AdapterUse> uses;
    for (const AdapterEntry& entry : viewer.adapters)
        if (entry.is_enabled && entry.use.strength != 0.0f && uses.size() < MAX_ADAPTERS) uses.push_back(entry.use);
    return uses;
}

bool find_adapters(Viewer& viewer, Settings& settings)
{
    bool has_all = true;
    std::vector<AdapterUse>& uses = settings.adapters;
    for (AdapterUse& use : uses) {
        const AdapterEntry* entry = use.adapter ? nullptr : find(viewer, use.path);
        if (entry) use.adapter = entry->use.adapter;
        else if (!use.adapter) use.path.clear(); // it was removed, or could not be read, which a sentence has said
        has_all &= use.adapter || use.path.empty();
    }
    uses.erase(std::remove_if(uses.begin(), uses.end(), [](const AdapterUse& use) { return use.path.empty(); }),
               uses.end());
    return has_all;
}

void restore_adapters(Viewer& viewer, const std::vector<AdapterUse>& uses)
{
    for (AdapterEntry& entry : viewer.adapters) entry.is_enabled = false;
    for (const AdapterUse& use : uses) {
        AdapterEntry& entry = add_adapter(viewer, use.path);
        entry.is_enabled = true;
        entry.use.strength = use.strength;
    }
}

// Returns whether it is to be removed.
static bool draw_entry(Viewer& viewer, size_t index, bool* changed)
{
    AdapterEntry& entry = viewer.adapters[index];
    const std::string marks = "adapter-" + std::to_string(index);
    const float side = ImGui::GetFrameHeight(), gap = ImGui::GetStyle().ItemInnerSpacing.x;
    *changed |= ImGui::Checkbox("##enabled", &entry.is_enabled);
    mark(viewer, (marks + "-enabled").c_str());
    hint("Use it for the next pictures");
    ImGui::SameLine(0.0f, gap);
    const float whole = ImGui::GetContentRegionAvail().x - side - gap, part = std::min(viewer.theme(96), 0.45f * whole);
    const ImVec2 corner = ImGui::GetCursorScreenPos();
    ImGui::GetWindowDrawList()->AddText(ImVec2(corner.x, corner.y + ImGui::GetStyle().FramePadding.y),
                                        ImGui::GetColorU32(entry.is_enabled ? colour::TEXT : colour::FAINT),
                                        elided(entry.use.name, whole - part - gap).c_str());
    ImGui::Dummy(ImVec2(whole - part - gap, side));
    hint(entry.use.path.c_str());
    ImGui::SameLine(0.0f, gap);
    ImGui::BeginDisabled(!entry.is_enabled);
    ImGui::SetNextItemWidth(part);
    *changed |= slider("##strength", &entry.use.strength, -1.0f, 2.0f, entry.use.adapter ? "%.2f" : "reading");
    ImGui::EndDisabled();
    mark(viewer, (marks + "-strength").c_str());
    hint("Strength: 1 as it was trained, 0 not at all.");
    ImGui::SameLine(0.0f, gap);
    const bool removes = ImGui::Button("\u00d7", ImVec2(side, side));
    mark(viewer, (marks + "-remove").c_str());
    hint("Take it out of the list; the file stays");
    return removes;
}

void draw_adapters(Viewer& viewer)
{
    heading(viewer, "LORA");
    const float width = viewer.theme(64);
    ImGui::SameLine(ImGui::GetContentRegionMax().x - width);
    ImGui::PushFont(viewer.theme.small);
    ImGui::PushStyleVar(ImGuiStyleVar_FramePadding, ImVec2(viewer.theme(6), viewer.theme(1)));
    if (ImGui::Button("Add...", ImVec2(width, 0))) open_chooser(viewer, Purpose::ADAPTER);
    ImGui::PopStyleVar();
    ImGui::PopFont();
    mark(viewer, "add-adapter");
    hint("A LoRA or LoKr as a .safetensors file, which can also be dropped on the window");
    bool changed = false;
    size_t removed = viewer.adapters.size();
    for (size_t i = 0; i < viewer.adapters.size(); i++) {
        ImGui::PushID(viewer.adapters[i].use.path.c_str());
        if (draw_entry(viewer, i, &changed)) removed = i;
        ImGui::PopID();
    }
    if (viewer.adapters.empty()) {
        ImGui::PushStyleColor(ImGuiCol_Text, colour::FAINT);
        ImGui::TextUnformatted("None");
        ImGui::PopStyleColor();
    }
    if (changed) form_changed(viewer);
    if (removed == viewer.adapters.size()) return;
    viewer.adapters.erase(viewer.adapters.begin() + (std::ptrdiff_t)removed);
    viewer.report.event(viewer.now, "adapters %zu", viewer.adapters.size());
    form_changed(viewer);
}
