#include "viewer.h"
#include <algorithm>
#include <cmath>

static constexpr double FADE_SECONDS = 0.35; // from the last preview to the picture

// The largest place of these proportions in the middle.
static Area fit(const Area& into, float width, float height)
{
    const float factor = std::min(into.width() / width, into.height() / height);
    const ImVec2 half(std::floor(0.5f * width * factor), std::floor(0.5f * height * factor));
    const ImVec2 middle(std::floor(0.5f * (into.low.x + into.high.x)), std::floor(0.5f * (into.low.y + into.high.y)));
    return {ImVec2(middle.x - half.x, middle.y - half.y), ImVec2(middle.x + half.x, middle.y + half.y)};
}

// A shadow around the place of a picture, and what is there before it.
static void draw_ground(const Viewer& viewer, const Area& area, bool is_covered)
{
    ImDrawList* list = ImGui::GetWindowDrawList();
    const float d = viewer.theme(14), x0 = area.low.x, y0 = area.low.y, x1 = area.high.x, y1 = area.high.y;
    const ImU32 dark = IM_COL32(0, 0, 0, 90), none = IM_COL32(0, 0, 0, 0);
    list->AddRectFilledMultiColor(ImVec2(x0, y1), ImVec2(x1, y1 + d), dark, dark, none, none);
    list->AddRectFilledMultiColor(ImVec2(x0, y0 - d), ImVec2(x1, y0), none, none, dark, dark);
    list->AddRectFilledMultiColor(ImVec2(x0 - d, y0), ImVec2(x0, y1), none, dark, dark, none);
    list->AddRectFilledMultiColor(ImVec2(x1, y0), ImVec2(x1 + d, y1), dark, none, none, dark);
    list->AddRectFilledMultiColor(ImVec2(x0 - d, y0 - d), ImVec2(x0, y0), none, none, dark, none);
    list->AddRectFilledMultiColor(ImVec2(x1, y0 - d), ImVec2(x1 + d, y0), none, none, none, dark);
    list->AddRectFilledMultiColor(ImVec2(x0 - d, y1), ImVec2(x0, y1 + d), none, dark, none, none);
    list->AddRectFilledMultiColor(ImVec2(x1, y1), ImVec2(x1 + d, y1 + d), dark, none, none, none);
    if (!is_covered) list->AddRectFilled(area.low, area.high, IM_COL32(30, 32, 38, 255), viewer.theme(4));
}

static void draw_texture(const Viewer& viewer, const Texture& texture, const Area& area, float alpha)
{
    if (texture.is_empty() || alpha <= 0.0f) return;
    ImGui::GetWindowDrawList()->AddImageRounded(texture.id(), area.low, area.high, ImVec2(0, 0), ImVec2(1, 1),
                                                IM_COL32(255, 255, 255, (int)(255.0f * alpha)), viewer.theme(4));
}

static void centred_text(const Area& area, float y, ImU32 ink, const char* text)
{
    const ImVec2 size = ImGui::CalcTextSize(text);
    ImGui::GetWindowDrawList()->AddText(ImVec2(std::floor(0.5f * (area.low.x + area.high.x - size.x)), y), ink, text);
}

// ---- The mask -------------------------------------------------------------------------------------------------------

// A disc along the line from the brush's last place to this one, soft by a pixel at its edge.
static void paint_stroke(Pixels& mask, float x0, float y0, float x1, float y1, float radius, bool erases)
{
    const int left = std::max(0, (int)(std::min(x0, x1) - radius - 1.0f)),
              right = std::min(mask.width - 1, (int)(std::max(x0, x1) + radius + 1.0f));
    const int top = std::max(0, (int)(std::min(y0, y1) - radius - 1.0f)),
              bottom = std::min(mask.height - 1, (int)(std::max(y0, y1) + radius + 1.0f));
    const float dx = x1 - x0, dy = y1 - y0, length = dx * dx + dy * dy;
    for (int y = top; y <= bottom; y++) {
        for (int x = left; x <= right; x++) {
            const float px = (float)x + 0.5f - x0, py = (float)y + 0.5f - y0;
            const float t = length > 0.0f ? std::clamp((px * dx + py * dy) / length, 0.0f, 1.0f) : 0.0f;
            const float distance = std::hypot(px - t * dx, py - t * dy);
            const int ink = (int)(255.0f * std::clamp(radius - distance + 0.5f, 0.0f, 1.0f));
            uint8_t& value = mask.bytes[(size_t)y * (size_t)mask.width + (size_t)x];
            value = (uint8_t)(erases ? std::min<int>(value, 255 - ink) : std::max<int>(value, ink));
        }
    }
}

static void use_brush(Viewer& viewer, const Area& area)
{
    const ImGuiIO& io = ImGui::GetIO();
    ImGui::SetCursorScreenPos(area.low);
    ImGui::InvisibleButton("brush", ImVec2(area.width(), area.height()),
                           ImGuiButtonFlags_MouseButtonLeft | ImGuiButtonFlags_MouseButtonRight);
    mark(viewer, "brush");
    const bool is_over = ImGui::IsItemHovered(), is_down = ImGui::IsItemActive();
    if (is_over && io.MouseWheel != 0.0f)
        viewer.brush = std::clamp(viewer.brush * std::pow(1.15f, io.MouseWheel), 0.01f, 0.4f);
    const int width = viewer.form.width, height = viewer.form.height;
    const float x = (io.MousePos.x - area.low.x) / area.width() * (float)width,
                y = (io.MousePos.y - area.low.y) / area.height() * (float)height;
    const float radius = viewer.brush * (float)std::min(width, height);
    if (is_down) {
        if (viewer.mask.width != width || viewer.mask.height != height) {
            viewer.mask.width = width;
            viewer.mask.height = height;
            viewer.mask.channel_count = 1;
            viewer.mask.bytes.assign((size_t)width * (size_t)height, 0);
        }
        const bool erases = ImGui::IsMouseDown(ImGuiMouseButton_Right) || io.KeyShift;
        paint_stroke(viewer.mask, viewer.paints ? viewer.last_x : x, viewer.paints ? viewer.last_y : y, x, y, radius,
                     erases);
        viewer.last_x = x;
        viewer.last_y = y;
        viewer.mask_changed = true;
    } else if (viewer.paints) { // the stroke has ended
        viewer.mask_has_paint =
            std::any_of(viewer.mask.bytes.begin(), viewer.mask.bytes.end(), [](uint8_t value) { return value > 0; });
        form_changed(viewer);
        viewer.report.event(viewer.now, "mask %ld",
                            (long)std::count_if(viewer.mask.bytes.begin(), viewer.mask.bytes.end(),
                                                [](uint8_t value) { return value > 127; }));
    }
    viewer.paints = is_down;
    if (viewer.mask_changed && !viewer.mask.bytes.empty())
        viewer.mask_texture.upload(viewer.mask.bytes.data(), viewer.mask.width, viewer.mask.height, 1);
    viewer.mask_changed = false;
    ImDrawList* list = ImGui::GetWindowDrawList();
    if (!viewer.mask.bytes.empty())
        list->AddImage(viewer.mask_texture.id(), area.low, area.high, ImVec2(0, 0), ImVec2(1, 1),
                       IM_COL32(214, 84, 58, 150));
    if (!is_over && !is_down) return;
    const float shown = viewer.brush * std::min(area.width(), area.height());
    ImGui::SetMouseCursor(ImGuiMouseCursor_None);
    list->AddCircle(io.MousePos, shown + viewer.theme(1), IM_COL32(0, 0, 0, 140), 48, viewer.theme(1));
    list->AddCircle(io.MousePos, shown, IM_COL32(255, 255, 255, 220), 48, viewer.theme(1.2f));
}

static void draw_start(Viewer& viewer, const Area& room)
{
    const Area area = fit(room, (float)viewer.form.width, (float)viewer.form.height); // as the model will see it
    draw_ground(viewer, area, true);
    draw_texture(viewer, viewer.start_texture, area, 1.0f);
    use_brush(viewer, area);
    centred_text(room, room.high.y + viewer.theme(14), colour::DIM,
                 viewer.mask_has_paint
                     ? "Generate repaints what is red.  Right button or Shift: erase.  Wheel: size of the brush."
                     : "Paint over what is to be made anew, or generate to change all of it.");
}

// ---- The picture ----------------------------------------------------------------------------------------------------

static void draw_progress(const Viewer& viewer, const Area& area, float progress)
{
    ImDrawList* list = ImGui::GetWindowDrawList();
    const float y = area.high.y + viewer.theme(14), thick = viewer.theme(3);
    list->AddRectFilled(ImVec2(area.low.x, y), ImVec2(area.high.x, y + thick), colour::FIELD, thick);
    if (progress > 0.0f)
        list->AddRectFilled(ImVec2(area.low.x, y),
                            ImVec2(area.low.x + std::max(thick, area.width() * progress), y + thick), colour::SEAL,
                            thick);
}

static void draw_picture(Viewer& viewer, const Area& room)
{
    const Generator& generator = viewer.generator;
    if (generator.is_generating()) {
        const Settings& s = generator.running();
        const Area area = fit(room, (float)s.width, (float)s.height);
        draw_ground(viewer, area, viewer.has_preview);
        if (viewer.has_preview) draw_texture(viewer, viewer.preview, area, 1.0f);
        else if (viewer.shown && viewer.shown->settings.width * s.height == viewer.shown->settings.height * s.width)
            draw_texture(viewer, viewer.display.texture(), area, 0.25f);
        draw_progress(viewer, area, generator.status().progress);
        return;
    }
    if (!viewer.shown) {
        const Area area = fit(room, (float)std::max(1, viewer.form.width), (float)std::max(1, viewer.form.height));
        draw_ground(viewer, area, false);
        const float y = 0.5f * (area.low.y + area.high.y) - ImGui::GetTextLineHeight();
        centred_text(area, y, colour::DIM,
                     generator.is_ready()     ? "Press Enter to make a picture"
                     : generator.is_opening() ? "Opening the model"
                                              : "Open a model to begin");
        return;
    }
    const Area area = fit(room, (float)viewer.display.texture().width(), (float)viewer.display.texture().height());
    const double part = (viewer.now - viewer.fade_begin) / FADE_SECONDS;
    draw_ground(viewer, area, part >= 1.0 || viewer.has_preview);
    if (part < 1.0 && viewer.has_preview) draw_texture(viewer, viewer.preview, area, 1.0f);
    draw_texture(viewer, viewer.display.texture(), area, part < 1.0 ? (float)std::max(0.0, part) : 1.0f);
    const Settings& s = viewer.shown->settings;
    char text[160];
    snprintf(text, sizeof text, "%d \u00d7 %d    %d steps    seed %llu    %.2f s%s", s.width, s.height, s.step_count,
             (unsigned long long)s.seed, viewer.shown->seconds,
             s.mask                 ? "    repainted in part"
             : s.start              ? "    from a picture"
             : s.references.empty() ? ""
                                    : "    edited");
    centred_text(room, room.high.y + viewer.theme(14), colour::DIM, text);
}

static void draw_banner(Viewer& viewer, const Area& room)
{
    if (viewer.banner.empty()) return;
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
    const ImU32 ink = ImGui::IsItemHovered() ? IM_COL32_WHITE : IM_COL32(255, 255, 255, 160);
    const float a = 0.35f * close, b = 0.65f * close;
    ImGui::GetWindowDrawList()->AddLine(ImVec2(corner.x + a, corner.y + a), ImVec2(corner.x + b, corner.y + b), ink,
                                        viewer.theme(1.5f));
    ImGui::GetWindowDrawList()->AddLine(ImVec2(corner.x + b, corner.y + a), ImVec2(corner.x + a, corner.y + b), ink,
                                        viewer.theme(1.5f));
    ImGui::EndChild();
    ImGui::PopStyleVar();
    ImGui::PopStyleColor();
}

void draw_canvas(Viewer& viewer)
{
    const ImVec2 corner = ImGui::GetCursorScreenPos(), space = ImGui::GetContentRegionAvail();
    const Area whole = {corner, ImVec2(corner.x + space.x, corner.y + space.y)};
    Area room = whole;
    room.low.y += ImGui::GetFrameHeight() + viewer.theme(14);
    room.high.y -= viewer.theme(34);
    if (room.width() < 16.0f || room.height() < 16.0f) return;
    if (viewer.canvas == Canvas::START && viewer.start) draw_start(viewer, room);
    else draw_picture(viewer, room);
    draw_tools(viewer, whole);
    draw_banner(viewer, whole);
}
