// The row above the picture: what can be done with the one that is shown.
#include "viewer.h"
#include <algorithm>
#include <functional>
#include <vector>

struct Tool {
    const char *name, *text, *hint; // `name`: of the report
    bool is_enabled;
    std::function<void()> act;
};

static float width_of(const char* text)
{
    return ImGui::CalcTextSize(text).x + 2.0f * ImGui::GetStyle().FramePadding.x;
}

// As many as there is room for, the first at the right; the rest is in a menu.
static void draw_row(Viewer& viewer, const Area& room, float left, const std::vector<Tool>& tools)
{
    const float gap = ImGui::GetStyle().ItemSpacing.x, more = width_of("...");
    float space = room.high.x - left;
    float whole = -gap;
    for (const Tool& tool : tools) whole += width_of(tool.text) + gap;
    const bool has_menu = whole > space;
    if (has_menu) space -= more + gap;
    size_t count = 0;
    float x = room.high.x;
    for (; count < tools.size(); count++) {
        const Tool& tool = tools[count];
        const float width = width_of(tool.text);
        if (width > space) break;
        space -= width + gap;
        x -= width;
        ImGui::SetCursorScreenPos(ImVec2(x, room.low.y));
        x -= gap;
        ImGui::BeginDisabled(!tool.is_enabled);
        if (ImGui::Button(tool.text, ImVec2(width, 0))) tool.act();
        ImGui::EndDisabled();
        mark(viewer, tool.name);
        hint(tool.hint);
    }
    if (!has_menu) return;
    ImGui::SetCursorScreenPos(ImVec2(x - more, room.low.y));
    if (ImGui::Button("...##more", ImVec2(more, 0))) ImGui::OpenPopup("more");
    mark(viewer, "more");
    hint("What else can be done with this picture");
    if (!ImGui::BeginPopup("more")) return;
    for (size_t i = count; i < tools.size(); i++) {
        if (ImGui::MenuItem(tools[i].text, nullptr, false, tools[i].is_enabled) || is_entered(viewer)) tools[i].act();
        mark(viewer, tools[i].name);
        hint_beside(tools[i].hint);
    }
    ImGui::EndPopup();
}

void draw_tools(Viewer& viewer, const Area& room)
{
    if (viewer.focuses_tools) ImGui::SetWindowFocus(); // the first arrow key goes to a button
    viewer.focuses_tools = false;
    float left = room.low.x;
    ImGui::SetCursorScreenPos(room.low);
    if (viewer.start) {
        static const char *const views[] = {"Picture", "Start and mask"}, *const short_views[] = {"Picture", "Start"};
        static const char* const hints[] = {"The pictures that were made",
                                            "The picture to start from, on which a mask can be painted"};
        const bool is_narrow = room.width() < viewer.theme(480);
        const float width = viewer.theme(is_narrow ? 124 : 250);
        int view = (int)viewer.canvas;
        ImGui::SetNextItemWidth(width);
        if (segments(viewer, "view", is_narrow ? short_views : views, 2, &view, hints)) viewer.canvas = (Canvas)view;
        left += width + ImGui::GetStyle().ItemSpacing.x;
    }
    if (!viewer.shown || viewer.canvas == Canvas::START) return;
    if (viewer.generator.is_generating() && viewer.watches) return; // another one is in its place
    if (viewer.canvas == Canvas::SEEN)
        return draw_row(viewer, room, left,
                        {{"unseen", "Back to the picture", "Show the picture that followed this one", true,
                          [&] { toggle_seen(viewer); }}});
    const bool edits = edits_shown(viewer), follows = follows_shown(viewer),
               has_pixels = viewer.shown->pixels != nullptr;
    std::vector<Tool> tools = {
        {"save", "Save", "As a PNG file with prompt and numbers in it (Ctrl+S)", true, [&] { save_picture(viewer); }},
        {"use",
         follows ? "Follow this"
         : edits ? "Edit this"
                 : "Start from this",
         follows ? "Let the next pictures follow this one as it is, by the control net (Ctrl+I)"
         : edits ? "Let the prompt speak of this picture, as picture 1 (Ctrl+I)"
                 : "Make the next picture from this one, or paint over a part of it to be made anew (Ctrl+I)",
         can_use_shown(viewer), [&] { use_shown(viewer); }},
        {"use-settings", "Use its settings", "Fill the form with this picture's prompt, seed and numbers (Ctrl+U)",
         true, [&] { apply_settings(viewer, *viewer.shown); }},
        {"compare", viewer.compare.with ? "End comparing" : "Compare",
         "With another picture, by a divider: the next older one, or what is clicked in the strip (Ctrl+K)",
         viewer.compare.with || viewer.history.size() > 1, [&] { toggle_compare(viewer); }},
        {"copy", "Copy", "The picture to the clipboard (Ctrl+C)", has_pixels, [&] { copy_picture(viewer); }},
        {"folder", "Show in folder", "Open the folder of the saved picture in the file manager (Ctrl+E)", true,
         [&] { show_in_folder(viewer); }},
        {"delete", "Delete", "Take it out of the strip; Ctrl+Z brings it back. Saved files stay (Delete)", has_pixels,
         [&] { delete_shown(viewer); }},
    };
    const size_t count = viewer.references.size();
    char text[32];
    snprintf(text, sizeof text, "As picture %zu", count + 1);
    if (edits && count > 0 && (int)count < viewer.generator.model_info().max_references)
        tools.insert(tools.begin() + 2, {"use-too", text, "Let the prompt speak of this picture too",
                                         can_use_shown(viewer) && !is_reference(viewer, viewer.shown->pixels),
                                         [&] { use_as_reference(viewer, viewer.shown->pixels); }});
    if (follows)
        tools.insert(tools.begin() + 2,
                     {"edges", "Edges of this picture", "Let the next pictures follow its edges: white lines on black",
                      has_pixels, [&] { follow_edges(viewer, viewer.shown->pixels); }});
    if (viewer.shown->seen)
        tools.insert(tools.begin() + 2, {"seen", "What the net saw", "The control picture as it went into the net",
                                         true, [&] { toggle_seen(viewer); }});
    draw_row(viewer, room, left, tools);
}
