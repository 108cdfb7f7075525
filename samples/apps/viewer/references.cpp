// Pictures to edit: those that the prompt speaks of, in the order in which it counts them.
#include "viewer.h"
#include <algorithm>
#include <cmath>
#include <cstring>

bool takes_references(const Viewer& viewer)
{
    return viewer.generator.is_ready() && viewer.generator.model_info().takes_references;
}

size_t used_references(const Viewer& viewer)
{
    const int most = takes_references(viewer) ? viewer.generator.model_info().max_references : 0;
    return std::min(viewer.references.size(), (size_t)std::max(0, most));
}

bool prompt_instructs(const Viewer& viewer)
{
    return takes_references(viewer) && (!viewer.generator.draws() || !viewer.references.empty());
}

static std::unique_ptr<Reference> make_reference(SharedPixels pixels)
{
    auto reference = std::make_unique<Reference>();
    reference->pixels = std::move(pixels);
    const Pixels& from = *reference->pixels;
    reference->texture.upload(from.bytes.data(), from.width, from.height, from.channel_count, from.has_alpha);
    return reference;
}

static void references_changed(Viewer& viewer)
{
    form_changed(viewer);
    viewer.report.event(viewer.now, "references %d", (int)viewer.references.size());
}

bool use_as_reference(Viewer& viewer, SharedPixels pixels)
{
    const size_t most = (size_t)std::max(0, viewer.generator.model_info().max_references);
    if (most == 1) viewer.references.clear();
    if (viewer.references.size() >= most) {
        complain(viewer,
                 "This model edits at most " + std::to_string(most) + " pictures at once: a click on one removes it.");
        return false;
    }
    viewer.references.push_back(make_reference(std::move(pixels)));
    viewer.use = Use::EDIT;
    references_changed(viewer);
    return true;
}

bool is_reference(const Viewer& viewer, const SharedPixels& pixels)
{
    return std::any_of(viewer.references.begin(), viewer.references.end(),
                       [&](const std::unique_ptr<Reference>& each) { return each->pixels == pixels; });
}

void edit_picture(Viewer& viewer, SharedPixels pixels)
{
    if (viewer.references.empty()) viewer.references.emplace_back();
    viewer.references[0] = make_reference(std::move(pixels));
    viewer.references[0]->was_shown = true;
    references_changed(viewer);
    viewer.report.event(viewer.now, "edits %dx%d", viewer.references[0]->pixels->width,
                        viewer.references[0]->pixels->height);
}

// One picture is on the screen, and a model that only edits was chosen: it is what the prompt will speak of. Pictures
// that somebody has brought for that stay.
void edit_screen(Viewer& viewer)
{
    const bool starts = viewer.canvas == Canvas::START && viewer.start && !viewer.mask.has_paint;
    const SharedPixels pixels = starts ? viewer.start : viewer.shown ? viewer.shown->pixels : nullptr;
    const bool has_own =
        viewer.references.size() > 1 || (viewer.references.size() == 1 && !viewer.references[0]->was_shown);
    if (!pixels || has_own || !viewer.arrived.empty()) return;
    edit_picture(viewer, pixels);
    if (starts) drop_start(viewer); // it would be edited and started from
    viewer.status = "The picture on the screen is the one to edit";
}

void restore_references(Viewer& viewer, const std::vector<SharedPixels>& pictures)
{
    std::vector<std::unique_ptr<Reference>> before;
    std::swap(before, viewer.references);
    bool is_same = before.size() == pictures.size();
    for (const SharedPixels& pixels : pictures) {
        auto at = std::find_if(before.begin(), before.end(),
                               [&](const std::unique_ptr<Reference>& each) { return each && each->pixels == pixels; });
        is_same = is_same && at != before.end() && at - before.begin() == (std::ptrdiff_t)viewer.references.size();
        // its texture is there already
        viewer.references.push_back(at != before.end() ? std::move(*at) : make_reference(pixels));
    }
    if (!pictures.empty()) viewer.use = Use::EDIT;
    if (!is_same) references_changed(viewer);
}

void drop_reference(Viewer& viewer, const SharedPixels& pixels)
{
    auto& all = viewer.references;
    auto at = std::find_if(all.begin(), all.end(),
                           [&](const std::unique_ptr<Reference>& each) { return each->pixels == pixels; });
    if (at == all.end()) return;
    all.erase(at);
    references_changed(viewer);
}

// Those between the two places move up.
static void move_reference(Viewer& viewer, size_t from, size_t to)
{
    const auto begin = viewer.references.begin();
    const auto at = [&](size_t index) { return begin + (std::ptrdiff_t)index; };
    if (from < to) std::rotate(at(from), at(from + 1), at(to + 1));
    else std::rotate(at(to), at(from), at(from + 1));
    form_changed(viewer);
    viewer.report.event(viewer.now, "reference %zu to %zu", from, to);
}

// ---- The panel ------------------------------------------------------------------------------------------------------

static constexpr const char* DRAGGED = "reference"; // what is dragged, for Dear ImGui: the index of one

struct Changes { // that the tiles ask for: made when all are drawn
    size_t removed, from, to;
};

static void draw_badge(const Viewer& viewer, ImVec2 corner, const char* text, ImU32 shade)
{
    const float inset = viewer.theme(3), badge = viewer.theme(18);
    const ImVec2 size = ImGui::CalcTextSize(text), low(corner.x + inset, corner.y + inset);
    ImDrawList* list = ImGui::GetWindowDrawList();
    list->AddRectFilled(low, ImVec2(low.x + badge, low.y + badge), shade, viewer.theme(4));
    list->AddText(ImVec2(low.x + 0.5f * (badge - size.x), low.y + 0.5f * (badge - size.y)), colour::TEXT, text);
}

// A click removes it, a drag takes it to the place of another one.
static void draw_tile(Viewer& viewer, size_t index, float side, Changes& changes)
{
    const Reference& reference = *viewer.references[index];
    const size_t used = used_references(viewer);
    const bool is_used = index < used;
    const ImVec2 corner = ImGui::GetCursorScreenPos(), end(corner.x + side, corner.y + side);
    ImDrawList* list = ImGui::GetWindowDrawList();
    char name[32], number[24], text[160];
    snprintf(name, sizeof name, "reference-%zu", index);
    snprintf(number, sizeof number, "%zu", index + 1);
    const bool is_pressed = ImGui::InvisibleButton("reference", ImVec2(side, side));
    const ImGuiIO& io = ImGui::GetIO();
    const bool was_dragged = io.MouseDragMaxDistanceSqr[0] >= io.MouseDragThreshold * io.MouseDragThreshold;
    if (is_pressed && !was_dragged) changes.removed = index; // a drag may end where it began
    mark(viewer, name);
    ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, ImVec2(viewer.theme(3), viewer.theme(3)));
    const bool is_dragged = ImGui::BeginDragDropSource(); // what follows is drawn beside the mouse pointer
    if (is_dragged) {
        ImGui::SetDragDropPayload(DRAGGED, &index, sizeof index);
        const float small = std::floor(0.7f * side);
        draw_square(viewer, reference.texture, *reference.pixels, ImGui::GetCursorScreenPos(), small);
        ImGui::Dummy(ImVec2(small, small));
        ImGui::EndDragDropSource();
    }
    ImGui::PopStyleVar();
    bool is_target = false;
    if (ImGui::BeginDragDropTarget()) {
        const ImGuiPayload* payload = ImGui::AcceptDragDropPayload(
            DRAGGED, ImGuiDragDropFlags_AcceptBeforeDelivery | ImGuiDragDropFlags_AcceptNoDrawDefaultRect);
        is_target = payload != nullptr;
        if (payload && payload->IsDelivery()) {
            memcpy(&changes.from, payload->Data, sizeof changes.from);
            changes.to = index;
        }
        ImGui::EndDragDropTarget();
    }
    const bool is_hot = ImGui::IsItemHovered() && !ImGui::GetDragDropPayload();
    if (is_used)
        snprintf(text, sizeof text, "Picture %zu, %d \u00d7 %d. A click removes it, a drag moves it.", index + 1,
                 reference.pixels->width, reference.pixels->height);
    else snprintf(text, sizeof text, "Not used: this model takes %zu. A click removes it, a drag moves it.", used);
    if (is_hot) hint(text);
    draw_square(viewer, reference.texture, *reference.pixels, corner, side);
    const int veil = !is_used || is_dragged ? 190 : is_hot ? 150 : 0;
    if (veil > 0) list->AddRectFilled(corner, end, IM_COL32(10, 11, 14, veil), viewer.theme(4));
    if (is_target) list->AddRect(corner, end, colour::SEAL, viewer.theme(4), 0, viewer.theme(2));
    if (is_hot) draw_badge(viewer, corner, "\u00d7", colour::SEAL);
    else if (is_used) draw_badge(viewer, corner, number, IM_COL32(10, 11, 14, 190));
}

// The place of the next one.
static void draw_adder(Viewer& viewer, float side, int room)
{
    const ImVec2 corner = ImGui::GetCursorScreenPos(), end(corner.x + side, corner.y + side);
    const bool is_pressed = ImGui::InvisibleButton("add", ImVec2(side, side));
    const bool is_hot = ImGui::IsItemHovered();
    mark(viewer, "choose-reference");
    char text[128];
    snprintf(text, sizeof text, "Drop a picture on the window, or click to choose a file. %d more can be edited.",
             room);
    hint(text);
    ImDrawList* list = ImGui::GetWindowDrawList();
    if (is_hot) list->AddRectFilled(corner, end, ImGui::GetColorU32(colour::FIELD_HOT), viewer.theme(4));
    list->AddRect(corner, end, ImGui::GetColorU32(colour::LINE), viewer.theme(5), 0, viewer.theme(1));
    const ImVec2 middle(std::floor(0.5f * (corner.x + end.x)) + 0.5f, std::floor(0.5f * (corner.y + end.y)) + 0.5f);
    const float half = viewer.theme(7);
    const ImU32 ink = ImGui::GetColorU32(is_hot ? colour::TEXT : colour::DIM);
    list->AddLine(ImVec2(middle.x - half, middle.y), ImVec2(middle.x + half, middle.y), ink, viewer.theme(1.5f));
    list->AddLine(ImVec2(middle.x, middle.y - half), ImVec2(middle.x, middle.y + half), ink, viewer.theme(1.5f));
    if (is_pressed) open_chooser(viewer, Purpose::REFERENCE);
}

static void draw_no_references(Viewer& viewer, int most)
{
    char text[64];
    if (most == 1) snprintf(text, sizeof text, "Drop a picture here");
    else snprintf(text, sizeof text, "Drop up to %d pictures", most);
    const float side = viewer.theme(62), button = viewer.theme(78), gap = ImGui::GetStyle().ItemSpacing.x;
    draw_place(viewer, ImGui::GetContentRegionAvail().x - button - gap, side, text);
    ImGui::SameLine(0.0f, gap);
    if (ImGui::Button("Choose...", ImVec2(button, side))) open_chooser(viewer, Purpose::REFERENCE);
    mark(viewer, "choose-reference");
    hint("A PNG, JPEG or WebP file to edit");
}

void draw_references(Viewer& viewer)
{
    const int most = viewer.generator.model_info().max_references, room = most - (int)viewer.references.size();
    if (viewer.references.empty()) return draw_no_references(viewer, most);
    // Smaller where there may be more, so that those below them stay in sight.
    const int columns = most > 4 ? 5 : 4;
    const float gap = ImGui::GetStyle().ItemSpacing.x,
                side = std::floor((ImGui::GetContentRegionAvail().x - (float)(columns - 1) * gap) / (float)columns);
    const size_t count = viewer.references.size(), none = count;
    Changes changes = {none, none, none};
    for (size_t i = 0; i < count + (room > 0); i++) {
        if (i % (size_t)columns != 0) ImGui::SameLine(0.0f, gap);
        ImGui::PushID((int)i);
        if (i < count) draw_tile(viewer, i, side, changes);
        else draw_adder(viewer, side, room);
        ImGui::PopID();
    }
    if (changes.removed < count) {
        viewer.references.erase(viewer.references.begin() + (std::ptrdiff_t)changes.removed);
        references_changed(viewer);
    } else if (changes.from < count && changes.to < count && changes.from != changes.to)
        move_reference(viewer, changes.from, changes.to);
}
