#include "viewer.h"
#include <algorithm>
#include <cmath>

static void draw_nothing(const Viewer& viewer, float side)
{
    const char* text = "Pictures made here line up. A click shows one again, a double click takes its settings too.";
    const ImVec2 corner = ImGui::GetCursorScreenPos();
    const float width = ImGui::GetContentRegionAvail().x;
    const std::string shown = elided(text, width);
    const ImVec2 size = ImGui::CalcTextSize(shown.c_str());
    ImGui::GetWindowDrawList()->AddText(
        ImVec2(std::floor(corner.x + 0.5f * (width - size.x)), std::floor(corner.y + 0.5f * (side - size.y))),
        viewer.generator.has_engine() ? colour::FAINT : colour::LINE, shown.c_str());
}

static void draw_menu(Viewer& viewer, size_t index)
{
    if (!ImGui::BeginPopupContextItem("menu")) return;
    const std::shared_ptr<Product> product = viewer.history[index]->product;
    auto line = [&viewer](const char* text, bool is_enabled = true) {
        return ImGui::MenuItem(text, nullptr, false, is_enabled) || is_entered(viewer);
    };
    if (line("Show")) show_entry(viewer, *viewer.history[index]);
    if (line("Use its settings")) apply_settings(viewer, *product);
    if (line("Compare with the shown one", viewer.shown && viewer.shown != product)) begin_compare(viewer, product);
    mark(viewer, "menu-compare");
    if (line("Save")) save(viewer, product);
    if (line("Delete")) delete_entry(viewer, index);
    mark(viewer, "menu-delete");
    ImGui::EndPopup();
}

static void draw_entry(Viewer& viewer, size_t index, float side)
{
    const Entry& entry = *viewer.history[index];
    ImDrawList* list = ImGui::GetWindowDrawList();
    const ImVec2 corner = ImGui::GetCursorScreenPos(), end(corner.x + side, corner.y + side);
    const bool is_clicked = ImGui::InvisibleButton("entry", ImVec2(side, side));
    const bool is_hot = ImGui::IsItemHovered(), is_shown = entry.product == viewer.shown;
    const bool is_compared = entry.product == viewer.compare.with;
    char name[32];
    snprintf(name, sizeof name, "entry-%zu", index);
    mark(viewer, name);
    // The middle square of the picture
    const float width = (float)entry.thumbnail.width(), height = (float)entry.thumbnail.height(),
                shorter = std::min(width, height);
    const ImVec2 low(0.5f - 0.5f * shorter / width, 0.5f - 0.5f * shorter / height), high(1.0f - low.x, 1.0f - low.y);
    draw_squares(viewer, entry.thumbnail, {corner, end}, is_hot || is_shown ? 255 : 215);
    list->AddImageRounded(entry.thumbnail.id(), corner, end, low, high,
                          ImGui::GetColorU32(is_hot || is_shown ? IM_COL32_WHITE : IM_COL32(255, 255, 255, 215)),
                          viewer.theme(4));
    if (is_shown || is_compared)
        list->AddRect(corner, end, ImGui::GetColorU32(is_shown ? colour::SEAL : colour::WASH), viewer.theme(4), 0,
                      viewer.theme(2));
    if (is_hot) {
        const Settings& s = entry.product->settings;
        char text[4400];
        snprintf(text, sizeof text,
                 "%s\n%d \u00d7 %d, %d steps, seed %llu, %.2f s\nDouble click: use its settings. "
                 "Ctrl+click: compare. Right click: more.",
                 s.prompt.c_str(), s.width, s.height, s.step_count, (unsigned long long)s.seed, entry.product->seconds);
        hint(text);
    }
    const std::shared_ptr<Product> product = entry.product;
    if (is_clicked && product != viewer.shown && (viewer.compare.with || ImGui::GetIO().KeyCtrl))
        begin_compare(viewer, product);
    else if (is_clicked) show_entry(viewer, entry);
    if (is_hot && ImGui::IsMouseDoubleClicked(ImGuiMouseButton_Left)) apply_settings(viewer, *product);
    draw_menu(viewer, index); // last: it may delete the entry
}

static void use_keys(Viewer& viewer)
{
    auto is_pressed = [](ImGuiKey key) { return ImGui::IsKeyPressed(ImGui::GetKeyIndex(key)); };
    if (is_pressed(ImGuiKey_LeftArrow)) show_neighbour(viewer, -1);
    if (is_pressed(ImGuiKey_RightArrow)) show_neighbour(viewer, 1);
    if (is_pressed(ImGuiKey_Home)) show_neighbour(viewer, -(int)viewer.history.size());
    if (is_pressed(ImGuiKey_End)) show_neighbour(viewer, (int)viewer.history.size());
}

void draw_strip(Viewer& viewer)
{
    const float side = ImGui::GetContentRegionAvail().y - ImGui::GetStyle().ScrollbarSize;
    const float gap = ImGui::GetStyle().ItemSpacing.x;
    if (viewer.focuses_strip) ImGui::SetWindowFocus();
    viewer.focuses_strip = false;
    if (ImGui::IsWindowFocused()) {
        const ImVec2 low = ImGui::GetWindowPos(), size = ImGui::GetWindowSize(); // a line above says where the keys go
        ImDrawList* list = ImGui::GetWindowDrawList();
        list->PushClipRectFullScreen();
        list->AddRectFilled(low, ImVec2(low.x + size.x, low.y + viewer.theme(2)), colour::SEAL_DOWN);
        list->PopClipRect();
        use_keys(viewer);
    }
    if (viewer.history.empty() && viewer.queue.jobs.empty()) return draw_nothing(viewer, side);
    draw_queue(viewer, side);
    const size_t count = viewer.history.size();
    for (size_t i = 0; i < viewer.history.size(); i++) {
        ImGui::PushID(viewer.history[i]->product.get());
        const bool was_shown = viewer.history[i]->product == viewer.shown;
        draw_entry(viewer, i, side);
        if (was_shown && viewer.scrolls_strip) ImGui::SetScrollHereX(), viewer.scrolls_strip = false;
        ImGui::PopID();
        if (viewer.history.size() != count) break; // one was deleted: the rest comes with the next frame
        if (i + 1 < count) ImGui::SameLine(0.0f, gap);
    }
    if (ImGui::IsWindowHovered() && ImGui::GetIO().MouseWheel != 0.0f)
        ImGui::SetScrollX(ImGui::GetScrollX() - ImGui::GetIO().MouseWheel * side);
}
