// The keys, over everything else.
#include "viewer.h"
#include <algorithm>

struct Line {
    const char *keys, *text; // without a text: a heading
};
static const Line s_lines[] = {
    {"Make", nullptr},
    {"Enter", "generate; adds to the queue while a picture is made"},
    {"Esc, Shift+Esc", "cancel the picture or close what is open, also empty the queue"},
    {"Ctrl+R, Ctrl+L", "another seed, keep the seed"},
    {"Ctrl+M, Ctrl+O", "the menu of models, open a folder or a file"},
    {"Ctrl+I", "edit the picture that is shown, or start from it"},
    {"Ctrl+U", "use the settings of the picture that is shown"},
    {"Picture", nullptr},
    {"Ctrl+S, Ctrl+C", "save, copy to the clipboard"},
    {"Ctrl+E", "show in folder"},
    {"Ctrl+K", "compare with the next older picture"},
    {"Wheel, drag, double click", "zoom, move, fit; Ctrl + plus, minus, 0"},
    {"Delete, Ctrl+Z", "delete, bring back"},
    {"Alt+Left, Alt+Right", "the next newer, the next older picture"},
    {"Mask", nullptr},
    {"Left, right button", "paint, erase (or Shift)"},
    {"Wheel, Ctrl+wheel", "size of the brush, zoom; the middle button moves"},
    {"Ctrl+Z, Ctrl+Shift+Z", "undo, redo"},
    {"Without a mouse", nullptr},
    {"Tab, Shift+Tab", "the next, the previous field"},
    {"Arrows, Space", "from button to button, press it; Enter chooses in a menu too"},
    {"F3, F4, F5", "to the strip (Left, Right, Home, End), to the buttons above the picture, to the prompt"},
    {"Window", nullptr},
    {"F1, F2", "this list; frame times, memory and the budget of each frame"},
};

void draw_help(Viewer& viewer)
{
    if (!viewer.shows_help) return;
    const ImVec2 screen = ImGui::GetIO().DisplaySize;
    const Theme& theme = viewer.theme;
    const ImVec2 size(std::min(theme(560), screen.x), std::min(theme(680), screen.y));
    ImGui::SetNextWindowPos(ImVec2(0.5f * screen.x, 0.5f * screen.y), ImGuiCond_Always, ImVec2(0.5f, 0.5f));
    ImGui::SetNextWindowSize(size);
    ImGui::SetNextWindowFocus();
    ImGui::PushStyleColor(ImGuiCol_WindowBg, IM_COL32(30, 32, 38, 252));
    ImGui::PushStyleVar(ImGuiStyleVar_WindowRounding, theme(8));
    ImGui::Begin("Keys", &viewer.shows_help,
                 ImGuiWindowFlags_NoResize | ImGuiWindowFlags_NoMove | ImGuiWindowFlags_NoSavedSettings
                     | ImGuiWindowFlags_NoCollapse);
    for (const Line& line : s_lines) {
        if (!line.text) {
            heading(viewer, line.keys);
            continue;
        }
        ImGui::TextUnformatted(line.keys);
        ImGui::SameLine(theme(200));
        ImGui::PushStyleColor(ImGuiCol_Text, colour::DIM);
        ImGui::PushTextWrapPos(0.0f);
        ImGui::TextUnformatted(line.text);
        ImGui::PopTextWrapPos();
        ImGui::PopStyleColor();
    }
    mark_area(viewer, "help",
              {ImGui::GetWindowPos(), ImVec2(ImGui::GetWindowPos().x + size.x, ImGui::GetWindowPos().y + size.y)});
    ImGui::End();
    ImGui::PopStyleVar();
    ImGui::PopStyleColor();
}
