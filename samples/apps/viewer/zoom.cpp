#include "zoom.h"
#include "viewer.h"
#include <algorithm>
#include <cmath>

static constexpr float MAX_FACTOR = 32.0f;

Area zoomed(const Zoom& zoom, const Area& fit)
{
    const ImVec2 middle = fit.middle();
    const float width = fit.width() * zoom.factor, height = fit.height() * zoom.factor;
    const ImVec2 low(std::floor(middle.x - zoom.x * width), std::floor(middle.y - zoom.y * height));
    return {low, ImVec2(low.x + width, low.y + height)};
}

static void set(Viewer& viewer, float factor, float x, float y)
{
    Zoom& zoom = viewer.zoom;
    const float before = zoom.factor;
    zoom.factor = std::clamp(factor, 1.0f, MAX_FACTOR);
    // The picture never leaves the place where all of it fits.
    const float half = 0.5f / zoom.factor;
    zoom.x = std::clamp(x, half, 1.0f - half);
    zoom.y = std::clamp(y, half, 1.0f - half);
    if (zoom.factor != before) viewer.report.event(viewer.now, "zoom %.2f", (double)zoom.factor);
}

void zoom_by(Viewer& viewer, const Area& fit, ImVec2 at, float factor)
{
    const Zoom before = viewer.zoom;
    const Area area = zoomed(before, fit);
    const float u = (at.x - area.low.x) / area.width(), v = (at.y - area.low.y) / area.height();
    const float after = std::clamp(before.factor * factor, 1.0f, MAX_FACTOR), ratio = before.factor / after;
    set(viewer, after, u + (before.x - u) * ratio, v + (before.y - v) * ratio);
}

void zoom_fit(Viewer& viewer) { set(viewer, 1.0f, 0.5f, 0.5f); }

void use_zoom(Viewer& viewer, const Area& fit, const Area& room, float wheel, int drag_button)
{
    const ImGuiIO& io = ImGui::GetIO();
    const bool is_over = ImGui::IsWindowHovered(ImGuiHoveredFlags_AllowWhenBlockedByActiveItem)
                      && ImGui::IsMouseHoveringRect(room.low, room.high);
    if (!is_over) return;
    if (wheel != 0.0f) zoom_by(viewer, fit, io.MousePos, std::pow(1.2f, wheel));
    if (ImGui::IsMouseDragging(drag_button, 0.0f) && !viewer.zoom.is_fit())
        set(viewer, viewer.zoom.factor, viewer.zoom.x - io.MouseDelta.x / (fit.width() * viewer.zoom.factor),
            viewer.zoom.y - io.MouseDelta.y / (fit.height() * viewer.zoom.factor));
    if (drag_button == ImGuiMouseButton_Left && ImGui::IsMouseDoubleClicked(ImGuiMouseButton_Left)) zoom_fit(viewer);
}
