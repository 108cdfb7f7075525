#include "compare.h"
#include "viewer.h"
#include <algorithm>
#include <cmath>

void begin_compare(Viewer& viewer, std::shared_ptr<Product> with)
{
    Compare& compare = viewer.compare;
    if (!viewer.shown || with == viewer.shown || !with->pixels) return;
    compare.with = std::move(with);
    const Pixels& pixels = *compare.with->pixels;
    compare.texture.upload(pixels.bytes.data(), pixels.width, pixels.height, pixels.channel_count, pixels.has_alpha);
    compare.divider = 0.5f;
    viewer.canvas = Canvas::PICTURE;
    viewer.watches = false;
    viewer.report.event(viewer.now, "compare %llu %llu", (unsigned long long)viewer.shown->settings.seed,
                        (unsigned long long)compare.with->settings.seed);
}

void end_compare(Viewer& viewer)
{
    if (!viewer.compare.with) return;
    viewer.compare.with.reset();
    viewer.compare.texture.clear();
    viewer.compare.is_dragged = false;
    viewer.report.event(viewer.now, "compare ends");
}

void toggle_compare(Viewer& viewer)
{
    if (viewer.compare.with) return end_compare(viewer);
    for (size_t i = 0; i < viewer.history.size(); i++) {
        if (viewer.history[i]->product != viewer.shown) continue;
        const size_t other = i + 1 < viewer.history.size() ? i + 1 : i - 1; // the oldest one: with the next newer one
        if (other < viewer.history.size()) begin_compare(viewer, viewer.history[other]->product);
        return;
    }
}

// In a corner of what is seen of the picture.
static void draw_name(const Viewer& viewer, const Area& seen, bool is_right, const Product& product)
{
    char text[64];
    snprintf(text, sizeof text, "%s  seed %llu", is_right ? "B" : "A", (unsigned long long)product.settings.seed);
    const float pad = viewer.theme(6), inset = viewer.theme(8);
    const ImVec2 size = ImGui::CalcTextSize(text);
    const float x = is_right ? seen.high.x - inset - size.x - 2.0f * pad : seen.low.x + inset,
                y = seen.high.y - inset - size.y - 2.0f * pad;
    ImDrawList* list = ImGui::GetWindowDrawList();
    list->AddRectFilled(ImVec2(x, y), ImVec2(x + size.x + 2.0f * pad, y + size.y + 2.0f * pad),
                        IM_COL32(10, 11, 14, 190), viewer.theme(4));
    list->AddText(ImVec2(x + pad, y + pad), colour::TEXT, text);
}

bool draw_compare(Viewer& viewer, const Area& area, const Area& room)
{
    Compare& compare = viewer.compare;
    const Area seen = {ImVec2(std::max(area.low.x, room.low.x), std::max(area.low.y, room.low.y)),
                       ImVec2(std::min(area.high.x, room.high.x), std::min(area.high.y, room.high.y))};
    const float x = std::floor(seen.low.x + compare.divider * seen.width());
    ImDrawList* list = ImGui::GetWindowDrawList();
    list->PushClipRect(ImVec2(x, seen.low.y), seen.high, true);
    draw_squares(viewer, compare.texture, area, 255);
    list->AddImage(compare.texture.id(), area.low, area.high);
    list->PopClipRect();
    draw_name(viewer, seen, false, *viewer.shown);
    draw_name(viewer, seen, true, *compare.with);
    const float reach = viewer.theme(12), y = 0.5f * (seen.low.y + seen.high.y);
    ImGui::SetCursorScreenPos(ImVec2(x - reach, seen.low.y));
    ImGui::InvisibleButton("divider", ImVec2(2.0f * reach, std::max(1.0f, seen.height())));
    mark(viewer, "divider");
    const bool is_hot = ImGui::IsItemHovered() || ImGui::IsItemActive(), was_dragged = compare.is_dragged;
    compare.is_dragged = ImGui::IsItemActive();
    const float step = ImGui::IsItemFocused() ? 0.02f : 0.0f;
    if (ImGui::IsKeyPressed(ImGui::GetKeyIndex(ImGuiKey_LeftArrow))) compare.divider -= step;
    if (ImGui::IsKeyPressed(ImGui::GetKeyIndex(ImGuiKey_RightArrow))) compare.divider += step;
    if (compare.is_dragged) compare.divider = (ImGui::GetIO().MousePos.x - seen.low.x) / std::max(1.0f, seen.width());
    compare.divider = std::clamp(compare.divider, 0.0f, 1.0f);
    if (was_dragged && !compare.is_dragged) viewer.report.event(viewer.now, "divider %.2f", (double)compare.divider);
    if (is_hot) ImGui::SetMouseCursor(ImGuiMouseCursor_ResizeEW);
    list->AddLine(ImVec2(x, seen.low.y), ImVec2(x, seen.high.y), IM_COL32(0, 0, 0, 120), viewer.theme(3.5f));
    list->AddLine(ImVec2(x, seen.low.y), ImVec2(x, seen.high.y), IM_COL32(255, 255, 255, 220), viewer.theme(1.5f));
    list->AddCircleFilled(ImVec2(x, y), viewer.theme(is_hot ? 9 : 7), colour::SEAL, 24);
    list->AddCircle(ImVec2(x, y), viewer.theme(is_hot ? 9 : 7), IM_COL32_WHITE, 24, viewer.theme(1.5f));
    return is_hot;
}
