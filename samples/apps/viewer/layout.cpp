#include "viewer.h"
#include <algorithm>

static constexpr float LEFT = 344.0f, FORM = 336.0f, RIGHT = 262.0f, STRIP = 112.0f, STATUS = 28.0f;
static constexpr float MIDDLE = 220.0f; // the least width of the picture's place

// The ground is a cleared rectangle and not one of Dear ImGui's, which samples its font's texture for every pixel:
// where the processor draws, that is most of a frame.
static void begin_part(Viewer& viewer, const char* name, float x, float y, float width, float height, ImU32 ground,
                       ImVec2 padding, ImGuiWindowFlags flags = 0)
{
    viewer.grounds.push_back({ImVec2(x, y), ImVec2(width, height), ground});
    ImGui::SetCursorScreenPos(ImVec2(x, y));
    ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, padding);
    ImGui::BeginChild(name, ImVec2(width, height), false, flags | ImGuiWindowFlags_AlwaysUseWindowPadding);
    ImGui::PopStyleVar();
}

static void draw_status(Viewer& viewer)
{
    const sumi_job_status status = viewer.generator.status();
    ImGui::PushFont(viewer.theme.small);
    ImGui::PushStyleColor(ImGuiCol_Text, colour::DIM);
    char text[96];
    if (viewer.generator.is_opening())
        snprintf(text, sizeof text, "Opening the model  %.0f %%", 100.0 * (double)status.progress);
    const std::string left = viewer.generator.is_opening() ? text : viewer.status;
    // As many of the keys as leave half of the line to what has happened.
    static const char* const keys[] = {
        "Enter  generate      Esc  cancel      Ctrl+S  save      Ctrl+M  models      F2  graphs      F1  all keys",
        "F2  graphs      F1  all keys"};
    const float whole = ImGui::GetContentRegionAvail().x;
    const char* shown = ImGui::CalcTextSize(keys[0]).x < 0.5f * whole ? keys[0] : keys[1];
    const float width = ImGui::CalcTextSize(shown).x;
    ImGui::TextUnformatted(elided(left, whole - width - viewer.theme(20)).c_str());
    ImGui::SameLine(ImGui::GetWindowContentRegionMax().x - width);
    ImGui::PushStyleColor(ImGuiCol_Text, colour::FAINT);
    ImGui::TextUnformatted(shown);
    if (ImGui::IsItemClicked()) viewer.shows_help = true;
    mark(viewer, "keys");
    ImGui::PopStyleColor(2);
    ImGui::PopFont();
}

static bool has_room_for_graphs(const Viewer& viewer)
{
    const float form = viewer.prompt_kind == PromptKind::FORM ? FORM : 0.0f;
    return ImGui::GetIO().DisplaySize.x >= viewer.theme(LEFT + form + MIDDLE + RIGHT);
}

void toggle_graphs(Viewer& viewer)
{
    viewer.shows_graphs = !viewer.shows_graphs;
    if (viewer.shows_graphs && !has_room_for_graphs(viewer)) viewer.status = "The graphs need a wider window";
    viewer.report.event(viewer.now, "graphs %s", viewer.shows_graphs ? "on" : "off");
}

void draw_window(Viewer& viewer)
{
    const Theme& theme = viewer.theme;
    ImVec2 size = ImGui::GetIO().DisplaySize;
    // A window manager may make the window smaller all the same: then a part of it is not seen.
    size.x = std::max(size.x, theme(MIN_WIDTH));
    size.y = std::max(size.y, theme(MIN_HEIGHT));
    viewer.grounds.clear();
    if (viewer.leaves_text) ImGui::SetWindowFocus(nullptr); // what was typed stays, unlike with Dear ImGui's Escape
    viewer.leaves_text = false;
    ImGui::SetNextWindowPos(ImVec2(0, 0));
    ImGui::SetNextWindowSize(size);
    ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, ImVec2(0, 0));
    ImGui::Begin("sumi", nullptr,
                 ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoBackground | ImGuiWindowFlags_NoMove
                     | ImGuiWindowFlags_NoSavedSettings | ImGuiWindowFlags_NoBringToFrontOnFocus);
    ImGui::PopStyleVar();
    const float form = viewer.prompt_kind == PromptKind::FORM ? theme(FORM) : 0.0f, left = theme(LEFT) + form;
    const float right = viewer.shows_graphs && has_room_for_graphs(viewer) ? theme(RIGHT) : 0.0f;
    const float strip = theme(STRIP), status = theme(STATUS), middle = size.x - left - right, high = size.y - status;
    const bool has_middle = middle >= theme(MIDDLE); // the form for prompts in XML takes its place in a narrow window
    const ImVec2 padding(theme(20), theme(16));
    begin_part(viewer, "controls", 0, 0, theme(LEFT), high, colour::PANEL, padding);
    draw_controls(viewer);
    ImGui::EndChild();
    if (form > 0.0f) {
        begin_part(viewer, "xml", theme(LEFT), 0, has_middle ? form : size.x - theme(LEFT), high,
                   IM_COL32(20, 22, 26, 255), padding);
        draw_xml_form(viewer);
        ImGui::EndChild();
    }
    if (has_middle) {
        begin_part(
            viewer, "strip", left, high - strip, middle, strip, IM_COL32(20, 22, 26, 255), ImVec2(theme(20), theme(12)),
            ImGuiWindowFlags_HorizontalScrollbar | ImGuiWindowFlags_NoScrollWithMouse | ImGuiWindowFlags_NoNavInputs);
        draw_strip(viewer);
        ImGui::EndChild();
        begin_part(viewer, "canvas", left, 0, middle, high - strip, colour::GROUND, padding,
                   ImGuiWindowFlags_NoScrollbar | ImGuiWindowFlags_NoScrollWithMouse);
        draw_canvas(viewer);
        ImGui::EndChild();
    }
    if (right > 0.0f) {
        begin_part(viewer, "monitor", size.x - right, 0, right, high, colour::PANEL, padding);
        draw_monitor(viewer);
        ImGui::EndChild();
    }
    begin_part(viewer, "status", 0, high, size.x, status, IM_COL32(14, 15, 18, 255), ImVec2(theme(20), theme(7)),
               ImGuiWindowFlags_NoScrollbar);
    draw_status(viewer);
    ImGui::EndChild();
    draw_chooser(viewer);
    ImGui::End();
    draw_help(viewer);
    viewer.presses_line = false; // nothing has taken it
}
