#include "viewer.h"
#include <algorithm>
#include <cmath>

void draw_strip(Viewer& viewer)
{
    const float side = ImGui::GetContentRegionAvail().y - ImGui::GetStyle().ScrollbarSize;
    ImDrawList* list = ImGui::GetWindowDrawList();
    if (viewer.history.empty()) {
        const char* text = "Pictures made here line up. A click brings back the picture, its prompt and its seed.";
        const ImVec2 corner = ImGui::GetCursorScreenPos(), size = ImGui::CalcTextSize(text);
        list->AddText(ImVec2(std::floor(corner.x + 0.5f * (ImGui::GetContentRegionAvail().x - size.x)),
                             std::floor(corner.y + 0.5f * (side - size.y))),
                      colour::FAINT, text);
        return;
    }
    const Entry* clicked = nullptr;
    for (size_t i = 0; i < viewer.history.size(); i++) {
        const Entry& entry = *viewer.history[i];
        const ImVec2 corner = ImGui::GetCursorScreenPos();
        ImGui::PushID((int)i);
        if (ImGui::InvisibleButton("entry", ImVec2(side, side))) clicked = &entry;
        const bool is_hot = ImGui::IsItemHovered(), is_shown = entry.product == viewer.shown;
        char name[32];
        snprintf(name, sizeof name, "entry-%zu", i);
        mark(viewer, name);
        // The middle square of the picture
        const float width = (float)entry.thumbnail.width(), height = (float)entry.thumbnail.height(),
                    shorter = std::min(width, height);
        const ImVec2 low(0.5f - 0.5f * shorter / width, 0.5f - 0.5f * shorter / height),
            high(1.0f - low.x, 1.0f - low.y);
        const ImVec2 end(corner.x + side, corner.y + side);
        list->AddImageRounded(entry.thumbnail.id(), corner, end, low, high,
                              ImGui::GetColorU32(is_hot || is_shown ? IM_COL32_WHITE : IM_COL32(255, 255, 255, 215)),
                              viewer.theme(4));
        if (is_shown) list->AddRect(corner, end, ImGui::GetColorU32(colour::SEAL), viewer.theme(4), 0, viewer.theme(2));
        if (is_hot) {
            const Settings& s = entry.product->settings;
            char text[4300];
            snprintf(text, sizeof text, "%s\n%d \u00d7 %d, %d steps, seed %llu, %.2f s", s.prompt.c_str(), s.width,
                     s.height, s.step_count, (unsigned long long)s.seed, entry.product->seconds);
            hint(text);
        }
        ImGui::PopID();
        if (i + 1 < viewer.history.size()) ImGui::SameLine();
    }
    if (ImGui::IsWindowHovered() && ImGui::GetIO().MouseWheel != 0.0f)
        ImGui::SetScrollX(ImGui::GetScrollX() - ImGui::GetIO().MouseWheel * side);
    if (clicked) show_entry(viewer, *clicked);
}
