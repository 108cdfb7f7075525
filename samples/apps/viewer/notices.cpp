// What lies over the picture: a failure, and the offer of a picture's settings.
#include "viewer.h"
#include <algorithm>
#include <cmath>

static float draw_banner(Viewer& viewer, const Area& room)
{
    if (viewer.banner.empty()) return 0.0f;
    const float pad = viewer.theme(14), close = viewer.theme(28), width = std::min(room.width(), viewer.theme(720));
    const float wrap = width - 2.0f * pad - close;
    const ImVec2 size = ImGui::CalcTextSize(viewer.banner.c_str(), nullptr, false, wrap);
    const float x = std::floor(0.5f * (room.low.x + room.high.x - width)),
                y = room.low.y + ImGui::GetFrameHeight() + viewer.theme(14);
    // A child, so that it lies over the brush and takes its clicks.
    ImGui::SetCursorScreenPos(ImVec2(x, y));
    ImGui::PushStyleColor(ImGuiCol_ChildBg, colour::ALARM);
    ImGui::PushStyleVar(ImGuiStyleVar_ChildRounding, viewer.theme(6));
    ImGui::BeginChild("banner", ImVec2(width, size.y + 2.0f * pad), false, ImGuiWindowFlags_NoScrollbar);
    ImGui::GetWindowDrawList()->AddRectFilled(ImVec2(x, y), ImVec2(x + viewer.theme(4), y + size.y + 2.0f * pad),
                                              colour::SEAL, viewer.theme(6), ImDrawFlags_RoundCornersLeft);
    ImGui::SetCursorPos(ImVec2(pad + viewer.theme(4), pad));
    ImGui::PushTextWrapPos(pad + wrap);
    ImGui::TextUnformatted(viewer.banner.c_str());
    ImGui::PopTextWrapPos();
    ImGui::SetCursorPos(ImVec2(width - close - viewer.theme(6), viewer.theme(6)));
    const ImVec2 corner = ImGui::GetCursorScreenPos();
    if (ImGui::InvisibleButton("close", ImVec2(close, close))) viewer.banner.clear();
    mark(viewer, "close-banner");
    hint("Close");
    const ImU32 ink = ImGui::IsItemHovered() ? IM_COL32_WHITE : IM_COL32(255, 255, 255, 160);
    const float a = 0.35f * close, b = 0.65f * close;
    ImGui::GetWindowDrawList()->AddLine(ImVec2(corner.x + a, corner.y + a), ImVec2(corner.x + b, corner.y + b), ink,
                                        viewer.theme(1.5f));
    ImGui::GetWindowDrawList()->AddLine(ImVec2(corner.x + b, corner.y + a), ImVec2(corner.x + a, corner.y + b), ink,
                                        viewer.theme(1.5f));
    ImGui::EndChild();
    ImGui::PopStyleVar();
    ImGui::PopStyleColor();
    return size.y + 2.0f * pad + viewer.theme(10);
}

// Of a picture that has come in, whose file tells how it was made. `y`: below what is there already.
static void draw_offer(Viewer& viewer, const Area& room, float y)
{
    if (viewer.offer.empty()) return;
    const float pad = viewer.theme(12), width = std::min(room.width(), viewer.theme(560));
    const float height = 2.0f * pad + ImGui::GetFrameHeight() + ImGui::GetTextLineHeight() + viewer.theme(8);
    const float x = std::floor(0.5f * (room.low.x + room.high.x - width));
    y += room.low.y + ImGui::GetFrameHeight() + viewer.theme(14);
    ImGui::SetCursorScreenPos(ImVec2(x, y));
    ImGui::PushStyleColor(ImGuiCol_ChildBg, IM_COL32(36, 52, 66, 245));
    ImGui::PushStyleVar(ImGuiStyleVar_ChildRounding, viewer.theme(6));
    ImGui::BeginChild("offer", ImVec2(width, height), false, ImGuiWindowFlags_NoScrollbar);
    ImGui::SetCursorPos(ImVec2(pad, pad));
    ImGui::TextUnformatted(elided(viewer.offer_name + " tells how it was made.", width - 2.0f * pad).c_str());
    ImGui::SetCursorPosX(pad);
    if (primary_button(viewer, "Use its settings", ImVec2(0, 0))) {
        apply_parameters(viewer, viewer.offer);
        viewer.offer.clear();
    }
    mark(viewer, "offer-use");
    hint("Fills in prompt, negative prompt, seed, steps, size, guidance, solver, shift, step cache and strength");
    ImGui::SameLine();
    if (ImGui::Button("No", ImVec2(viewer.theme(52), 0))) viewer.offer.clear();
    mark(viewer, "offer-close");
    hint("Keep the form as it is");
    ImGui::EndChild();
    ImGui::PopStyleVar();
    ImGui::PopStyleColor();
}

void draw_notices(Viewer& viewer, const Area& room) { draw_offer(viewer, room, draw_banner(viewer, room)); }
