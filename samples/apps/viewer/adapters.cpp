// The list of LoRAs: what is applied to the next pictures, and how strongly.
#include "viewer.h"
#include <algorithm>
#include <cctype>
#include <filesystem>

static constexpr size_t MAX_ADAPTERS = 16; // of a job

static AdapterEntry* find(Viewer& viewer, const std::string& path)
{
    for (AdapterEntry& entry : viewer.adapters)
        if (entry.use.path == path) return &entry;
    return nullptr;
}

static AdapterEntry entry_of(const std::string& path)
{
    std::filesystem::path name = path;
    if (!name.has_filename()) name = name.parent_path(); // "folder/"
    AdapterEntry entry;
    entry.use.path = path;
    entry.use.name = name.extension() == ".safetensors" ? name.stem().string() : name.filename().string();
    return entry;
}

static void want(Viewer& viewer, AdapterEntry& entry)
{
    entry.is_wanted = true;
    // While a model is opening nothing is read: it will read the whole list.
    if (viewer.generator.is_ready()) viewer.generator.read_adapter(entry.use.path);
}

static void enable(Viewer& viewer, AdapterEntry& entry, bool is_enabled)
{
    entry.is_enabled = is_enabled;
    if (is_enabled && !entry.is_wanted) want(viewer, entry);
    viewer.report.event(viewer.now, "adapter %s %s", entry.use.name.c_str(), is_enabled ? "on" : "off");
    form_changed(viewer);
}

AdapterEntry& add_adapter(Viewer& viewer, const std::string& from)
{
    std::error_code ignored;
    const std::string path = std::filesystem::absolute(from, ignored).lexically_normal().string(); // one entry a file
    AdapterEntry* known = find(viewer, path);
    if (known && !known->is_wanted) enable(viewer, *known, true);
    if (known) return *known;
    viewer.adapters.push_back(entry_of(path));
    want(viewer, viewer.adapters.back());
    form_changed(viewer);
    return viewer.adapters.back();
}

void reread_adapters(Viewer& viewer)
{
    for (AdapterEntry& entry : viewer.adapters) {
        entry.use.adapter.reset();
        if (entry.is_wanted) viewer.generator.read_adapter(entry.use.path);
    }
}

// ---- Those that lie beside the model --------------------------------------------------------------------------------

void offer_adapters(Viewer& viewer, const std::vector<std::string>& paths)
{
    for (const std::string& path : paths) {
        AdapterEntry* entry = find(viewer, path);
        if (!entry) {
            viewer.adapters.push_back(entry_of(path));
            entry = &viewer.adapters.back();
            entry->is_enabled = entry->is_wanted = false;
        }
        entry->is_beside = true;
        viewer.report.event(viewer.now, "offers adapter %s", entry->use.name.c_str());
    }
}

void drop_offered_adapters(Viewer& viewer)
{
    std::vector<AdapterEntry>& all = viewer.adapters;
    all.erase(std::remove_if(all.begin(), all.end(), [](const AdapterEntry& each) { return each.is_beside; }),
              all.end());
}

// Whether the preset Fast is for it. The name is all that tells: the files say nothing of steps.
static bool is_for_few_steps(const Viewer& viewer, const AdapterEntry& entry)
{
    std::string name = entry.use.name;
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char letter) { return (char)tolower(letter); });
    return entry.is_beside && viewer.generator.model_info().uses_guidance
        && (name.find("turbo") != std::string::npos || name.find("lightning") != std::string::npos);
}

// Only the first of them is switched on: each is for the model as it is.
void switch_few_steps(Viewer& viewer, bool is_enabled)
{
    for (AdapterEntry& entry : viewer.adapters) {
        if (!is_for_few_steps(viewer, entry)) continue;
        if (entry.is_enabled != is_enabled) enable(viewer, entry, is_enabled);
        if (is_enabled) return;
    }
}

static void use_checkbox(Viewer& viewer, AdapterEntry& entry)
{
    enable(viewer, entry, entry.is_enabled);
    if (!is_for_few_steps(viewer, entry)) return;
    if (entry.is_enabled) apply_steps(viewer, SUMI_PRESET_FAST);
    else if (viewer.form.preset == SUMI_PRESET_FAST) apply_steps(viewer, SUMI_PRESET_MODEL);
}

// ---- For pictures ---------------------------------------------------------------------------------------------------

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

// Its name, and for how few steps it is where there is room for that.
static void draw_label(const Viewer& viewer, const AdapterEntry& entry, float width)
{
    ImVec2 at = ImGui::GetCursorScreenPos();
    at.y += ImGui::GetStyle().FramePadding.y;
    ImDrawList* list = ImGui::GetWindowDrawList();
    const std::string name = elided(entry.use.name, width);
    list->AddText(at, ImGui::GetColorU32(entry.is_enabled ? colour::TEXT : colour::DIM), name.c_str());
    if (!is_for_few_steps(viewer, entry)) return;
    const float right = at.x + width;
    at.x += ImGui::CalcTextSize(name.c_str()).x + viewer.theme(8);
    const std::string steps = std::to_string(viewer.generator.defaults(SUMI_PRESET_FAST).step_count) + " steps";
    if (at.x + ImGui::CalcTextSize(steps.c_str()).x <= right)
        list->AddText(at, ImGui::GetColorU32(colour::FAINT), steps.c_str());
}

// Returns whether it is to be removed.
static bool draw_entry(Viewer& viewer, size_t index, bool* changed)
{
    AdapterEntry& entry = viewer.adapters[index];
    const std::string marks = "adapter-" + std::to_string(index);
    const float side = ImGui::GetFrameHeight(), gap = ImGui::GetStyle().ItemInnerSpacing.x;
    if (ImGui::Checkbox("##enabled", &entry.is_enabled)) use_checkbox(viewer, entry);
    mark(viewer, (marks + "-enabled").c_str());
    hint(is_for_few_steps(viewer, entry) ? "Use it for the next pictures, with the steps of the preset Fast"
                                         : "Use it for the next pictures");
    ImGui::SameLine(0.0f, gap);
    const float whole = ImGui::GetContentRegionAvail().x - side - gap, part = std::min(viewer.theme(96), 0.45f * whole);
    draw_label(viewer, entry, whole - part - gap);
    ImGui::Dummy(ImVec2(whole - part - gap, side));
    hint(entry.use.path.c_str());
    ImGui::SameLine(0.0f, gap);
    ImGui::BeginDisabled(!entry.is_enabled);
    ImGui::SetNextItemWidth(part);
    *changed |= slider("##strength", &entry.use.strength, -1.0f, 2.0f,
                       entry.use.adapter || !entry.is_wanted ? "%.2f" : "reading");
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
