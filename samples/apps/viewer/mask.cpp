#include "mask.h"
#include "viewer.h"
#include <algorithm>
#include <cmath>

static constexpr size_t MAX_UNDO_BYTES = 64u << 20;

// ---- Steps back -----------------------------------------------------------------------------------------------------

static void mask_changed(Viewer& viewer)
{
    Mask& mask = viewer.mask;
    const std::vector<uint8_t>& bytes = mask.pixels.bytes;
    mask.has_changed = true;
    mask.has_paint = std::any_of(bytes.begin(), bytes.end(), [](uint8_t value) { return value > 0; });
    form_changed(viewer);
    viewer.report.event(viewer.now, "mask %ld",
                        (long)std::count_if(bytes.begin(), bytes.end(), [](uint8_t value) { return value > 127; }));
}

static void keep_step(Mask& mask)
{
    mask.redos.clear();
    mask.undos.push_back(mask.pixels);
    size_t bytes = 0, first = mask.undos.size();
    while (first > 0 && (bytes += mask.undos[first - 1].bytes.size()) <= MAX_UNDO_BYTES) first--;
    mask.undos.erase(mask.undos.begin(), mask.undos.begin() + (std::ptrdiff_t)first);
}

static bool step(Viewer& viewer, std::vector<Pixels>& from, std::vector<Pixels>& to)
{
    if (from.empty() || viewer.mask.is_painting) return false;
    to.push_back(std::move(viewer.mask.pixels));
    viewer.mask.pixels = std::move(from.back());
    from.pop_back();
    mask_changed(viewer);
    return true;
}

bool undo_mask(Viewer& viewer) { return step(viewer, viewer.mask.undos, viewer.mask.redos); }
bool redo_mask(Viewer& viewer) { return step(viewer, viewer.mask.redos, viewer.mask.undos); }

void clear_mask(Viewer& viewer)
{
    if (!viewer.mask.has_paint) return;
    keep_step(viewer.mask);
    viewer.mask.pixels = {};
    mask_changed(viewer);
}

void forget_mask(Viewer& viewer)
{
    viewer.mask.undos.clear();
    viewer.mask.redos.clear();
    viewer.mask.pixels = {};
    viewer.mask.has_paint = viewer.mask.is_painting = false;
}

// The nearest pixels of one channel.
static Pixels resized(const Pixels& from, int width, int height)
{
    Pixels to;
    to.width = width;
    to.height = height;
    to.channel_count = 1;
    to.bytes.assign((size_t)width * (size_t)height, 0);
    if (from.bytes.empty()) return to;
    for (int y = 0; y < height; y++) {
        const uint8_t* row = &from.bytes[(size_t)((int64_t)y * from.height / height) * (size_t)from.width];
        uint8_t* line = &to.bytes[(size_t)y * (size_t)width];
        for (int x = 0; x < width; x++) line[x] = row[(int64_t)x * from.width / width];
    }
    return to;
}

void set_mask(Viewer& viewer, const Pixels& from)
{
    keep_step(viewer.mask);
    viewer.mask.pixels = resized(from, viewer.form.width, viewer.form.height);
    mask_changed(viewer);
}

// ---- The brush ------------------------------------------------------------------------------------------------------

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

void use_brush(Viewer& viewer, const Area& area, const Area& room)
{
    const ImGuiIO& io = ImGui::GetIO();
    Mask& mask = viewer.mask;
    const ImVec2 low(std::max(area.low.x, room.low.x), std::max(area.low.y, room.low.y)),
        high(std::min(area.high.x, room.high.x), std::min(area.high.y, room.high.y));
    ImGui::SetCursorScreenPos(low);
    ImGui::InvisibleButton("brush", ImVec2(std::max(1.0f, high.x - low.x), std::max(1.0f, high.y - low.y)),
                           ImGuiButtonFlags_MouseButtonLeft | ImGuiButtonFlags_MouseButtonRight);
    mark(viewer, "brush");
    const bool is_over = ImGui::IsItemHovered(), is_down = ImGui::IsItemActive();
    if (is_over && io.MouseWheel != 0.0f && !io.KeyCtrl)
        mask.brush = std::clamp(mask.brush * std::pow(1.15f, io.MouseWheel), 0.01f, 0.4f);
    const int width = viewer.form.width, height = viewer.form.height;
    const float x = (io.MousePos.x - area.low.x) / area.width() * (float)width,
                y = (io.MousePos.y - area.low.y) / area.height() * (float)height;
    const float radius = mask.brush * (float)std::min(width, height) / viewer.zoom.factor;
    if (is_down) {
        if (!mask.is_painting) keep_step(mask);
        if (mask.pixels.width != width || mask.pixels.height != height)
            mask.pixels = resized(mask.pixels, width, height);
        const bool erases = ImGui::IsMouseDown(ImGuiMouseButton_Right) || io.KeyShift;
        paint_stroke(mask.pixels, mask.is_painting ? mask.last_x : x, mask.is_painting ? mask.last_y : y, x, y, radius,
                     erases);
        mask.last_x = x;
        mask.last_y = y;
        mask.has_changed = true;
    } else if (mask.is_painting) { // the stroke has ended
        mask_changed(viewer);
    }
    mask.is_painting = is_down;
    if (mask.has_changed && !mask.pixels.bytes.empty())
        mask.texture.upload(mask.pixels.bytes.data(), mask.pixels.width, mask.pixels.height, 1);
    mask.has_changed = false;
    ImDrawList* list = ImGui::GetWindowDrawList();
    if (!mask.pixels.bytes.empty())
        list->AddImage(mask.texture.id(), area.low, area.high, ImVec2(0, 0), ImVec2(1, 1), IM_COL32(214, 84, 58, 150));
    if (!is_over && !is_down) return;
    const float shown = mask.brush * std::min(area.width(), area.height()) / viewer.zoom.factor;
    ImGui::SetMouseCursor(ImGuiMouseCursor_None);
    list->AddCircle(io.MousePos, shown + viewer.theme(1), IM_COL32(0, 0, 0, 140), 48, viewer.theme(1));
    list->AddCircle(io.MousePos, shown, IM_COL32(255, 255, 255, 220), 48, viewer.theme(1.2f));
}
