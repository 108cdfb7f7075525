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

void draw_squares(const Viewer& viewer, const Texture& picture, const Area& area, int opacity)
{
    if (!picture.has_alpha()) return;
    const float two = 2.0f * viewer.theme(8);
    ImGui::GetWindowDrawList()->AddImageRounded(viewer.squares.id(), area.low, area.high, ImVec2(0, 0),
                                                ImVec2(area.width() / two, area.height() / two),
                                                IM_COL32(255, 255, 255, opacity), viewer.theme(4));
}

static void draw_texture(const Viewer& viewer, const Texture& texture, const Area& area, float alpha)
{
    if (texture.is_empty() || alpha <= 0.0f) return;
    draw_squares(viewer, texture, area, (int)(255.0f * alpha));
    ImGui::GetWindowDrawList()->AddImageRounded(texture.id(), area.low, area.high, ImVec2(0, 0), ImVec2(1, 1),
                                                IM_COL32(255, 255, 255, (int)(255.0f * alpha)), viewer.theme(4));
}

// A zoomed picture is larger than its place.
static void begin_clip(const Area& room, const Zoom& zoom)
{
    if (!zoom.is_fit()) ImGui::PushClipRect(room.low, room.high, true);
}

static void end_clip(const Zoom& zoom)
{
    if (!zoom.is_fit()) ImGui::PopClipRect();
}

static void centred_text(const Area& area, float y, ImU32 ink, const char* text)
{
    const ImVec2 size = ImGui::CalcTextSize(text);
    ImGui::GetWindowDrawList()->AddText(ImVec2(std::floor(0.5f * (area.low.x + area.high.x - size.x)), y), ink, text);
}

static void draw_start(Viewer& viewer, const Area& room)
{
    const Area whole = fit(room, (float)viewer.form.width, (float)viewer.form.height); // as the model will see it
    use_zoom(viewer, whole, room, ImGui::GetIO().KeyCtrl ? ImGui::GetIO().MouseWheel : 0.0f, ImGuiMouseButton_Middle);
    const Area area = zoomed(viewer.zoom, whole);
    if (viewer.zoom.is_fit()) draw_ground(viewer, area, true);
    begin_clip(room, viewer.zoom);
    draw_texture(viewer, viewer.start_texture, area, 1.0f);
    use_brush(viewer, area, room);
    end_clip(viewer.zoom);
    const char* text = viewer.mask.has_paint
                         ? "Red is repainted.  Right button: erase.  Wheel: brush.  Ctrl+wheel: zoom.  Ctrl+Z: undo"
                         : "Paint over what is to be made anew, or generate to change all of it.";
    centred_text(room, room.high.y + viewer.theme(14), colour::DIM, elided(text, room.width()).c_str());
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

// A texture of the picture that is edited or started from; nullptr: there is none. The user may have removed it from
// the form meanwhile.
static const Texture* find_source(Viewer& viewer, const Settings& s)
{
    const SharedPixels source = s.start || s.references.empty() ? s.start : s.references.front();
    if (!source) return nullptr;
    if (viewer.shown && viewer.shown->pixels == source) return &viewer.display.texture();
    if (viewer.start == source) return &viewer.start_texture;
    for (const std::unique_ptr<Reference>& each : viewer.references)
        if (each->pixels == source) return &each->texture;
    if (viewer.source != source)
        viewer.source_texture.upload(source->bytes.data(), source->width, source->height, source->channel_count,
                                     source->has_alpha);
    viewer.source = source;
    return &viewer.source_texture;
}

static void draw_running(Viewer& viewer, const Area& room)
{
    const Generator& generator = viewer.generator;
    const Settings& s = generator.running();
    const Texture* source = viewer.has_preview ? nullptr : find_source(viewer, s);
    if (viewer.has_preview && viewer.source) viewer.source.reset(), viewer.source_texture.clear();
    // A picture to edit stays as it was; one to start from has the shape in which the model sees it.
    const bool has_own_shape = source && !s.start;
    const Area area = has_own_shape ? fit(room, (float)source->width(), (float)source->height())
                                    : fit(room, (float)s.width, (float)s.height);
    draw_ground(viewer, area, viewer.has_preview || source);
    if (source && !viewer.has_source)
        viewer.report.event(viewer.now, "source %dx%d", source->width(), source->height());
    viewer.has_source = viewer.has_source || source;
    if (viewer.has_preview) draw_texture(viewer, viewer.preview, area, 1.0f);
    else if (source) draw_texture(viewer, *source, area, 1.0f);
    else if (viewer.shown && viewer.shown->settings.width * s.height == viewer.shown->settings.height * s.width)
        draw_texture(viewer, viewer.display.texture(), area, 0.25f);
    draw_progress(viewer, area, generator.status().progress);
}

static void draw_nothing(const Viewer& viewer, const Area& room)
{
    const Generator& generator = viewer.generator;
    const Area area = fit(room, (float)std::max(1, viewer.form.width), (float)std::max(1, viewer.form.height));
    draw_ground(viewer, area, false);
    const float y = 0.5f * (area.low.y + area.high.y) - ImGui::GetTextLineHeight();
    centred_text(room, y, colour::DIM,
                 elided(generator.is_ready()     ? "Press Enter to make a picture"
                        : generator.is_opening() ? "Opening the model"
                                                 : "Open a model to begin",
                        room.width())
                     .c_str());
}

static std::string caption(const Product& product)
{
    const Settings& s = product.settings;
    char text[200], reused[64] = "";
    if (product.reused_count > 0 && product.predicted_db > 0.0f)
        snprintf(reused, sizeof reused, ", %d reused, about %.0f dB kept", product.reused_count,
                 (double)product.predicted_db);
    else if (product.reused_count > 0) snprintf(reused, sizeof reused, ", %d reused", product.reused_count);
    snprintf(text, sizeof text, "%d \u00d7 %d    %d steps%s    seed %llu    %.2f s%s", s.width, s.height, s.step_count,
             reused, (unsigned long long)s.seed, product.seconds,
             s.mask                  ? "    repainted in part"
             : s.start               ? "    from a picture"
             : !s.references.empty() ? "    edited"
             : s.control.picture     ? "    following a picture"
                                     : "");
    return text;
}

static void draw_shown(Viewer& viewer, const Area& room)
{
    const Texture& texture = viewer.display.texture();
    const Area whole = fit(room, (float)texture.width(), (float)texture.height());
    const bool compares = viewer.compare.with != nullptr;
    const double part = (viewer.now - viewer.fade_begin) / FADE_SECONDS;
    const Area area = zoomed(viewer.zoom, whole);
    if (viewer.zoom.is_fit()) draw_ground(viewer, area, part >= 1.0 || viewer.has_preview);
    begin_clip(room, viewer.zoom);
    if (part < 1.0 && viewer.has_preview) draw_texture(viewer, viewer.preview, area, 1.0f);
    draw_texture(viewer, texture, area, part < 1.0 ? (float)std::max(0.0, part) : 1.0f);
    const bool is_taken = compares && draw_compare(viewer, area, room);
    end_clip(viewer.zoom);
    if (!is_taken) use_zoom(viewer, whole, room, ImGui::GetIO().MouseWheel, ImGuiMouseButton_Left);
    std::string text = caption(*viewer.shown);
    char zoom[32];
    snprintf(zoom, sizeof zoom, "    %.0f %%", 100.0 * (double)(area.width() / (float)texture.width()));
    if (!viewer.zoom.is_fit()) text += zoom;
    if (compares) text = "A is the picture that is shown.  Drag the divider; a click in the strip changes B.  Esc: end";
    centred_text(room, room.high.y + viewer.theme(14), colour::DIM, elided(text, room.width()).c_str());
}

// The control picture, for which the other one made room.
static void draw_seen(Viewer& viewer, const Area& room)
{
    const Texture& texture = viewer.seen_texture;
    const Area whole = fit(room, (float)texture.width(), (float)texture.height());
    use_zoom(viewer, whole, room, ImGui::GetIO().MouseWheel, ImGuiMouseButton_Left);
    const Area area = zoomed(viewer.zoom, whole);
    if (viewer.zoom.is_fit()) draw_ground(viewer, area, true);
    begin_clip(room, viewer.zoom);
    draw_texture(viewer, texture, area, 1.0f);
    end_clip(viewer.zoom);
    centred_text(room, room.high.y + viewer.theme(14), colour::DIM,
                 elided("The control picture as the net saw it: " + viewer.seen_change, room.width()).c_str());
}

static void draw_picture(Viewer& viewer, const Area& room)
{
    if (viewer.generator.is_generating() && viewer.watches) draw_running(viewer, room);
    else if (viewer.shown) draw_shown(viewer, room);
    else draw_nothing(viewer, room);
}

void draw_canvas(Viewer& viewer)
{
    const ImVec2 corner = ImGui::GetCursorScreenPos(), space = ImGui::GetContentRegionAvail();
    const Area whole = {corner, ImVec2(corner.x + space.x, corner.y + space.y)};
    Area room = whole;
    room.low.y += ImGui::GetFrameHeight() + viewer.theme(14);
    room.high.y -= viewer.theme(34);
    mark_area(viewer, "canvas", room);
    if (room.width() < 16.0f || room.height() < 16.0f) return;
    if (viewer.canvas == Canvas::START && viewer.start) draw_start(viewer, room);
    else if (viewer.canvas == Canvas::SEEN && viewer.shown && viewer.shown->seen) draw_seen(viewer, room);
    else draw_picture(viewer, room);
    draw_tools(viewer, whole);
    draw_notices(viewer, whole);
}
