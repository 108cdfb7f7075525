// Pictures that come in: to edit, to start from, and the mask.
#include "viewer.h"
#include <algorithm>

// ---- The picture to start from --------------------------------------------------------------------------------------

void use_as_start(Viewer& viewer, SharedPixels pixels, bool keeps_size)
{
    viewer.start = std::move(pixels);
    viewer.start_texture.upload(viewer.start->bytes.data(), viewer.start->width, viewer.start->height,
                                viewer.start->channel_count);
    forget_mask(viewer);
    if (keeps_size) viewer.form.width = viewer.start->width, viewer.form.height = viewer.start->height;
    else fit_size(viewer, viewer.start->width, viewer.start->height);
    viewer.canvas = Canvas::START;
    form_changed(viewer);
    viewer.report.event(viewer.now, "start %dx%d", viewer.form.width, viewer.form.height);
}

void drop_start(Viewer& viewer)
{
    viewer.start.reset();
    viewer.start_texture.clear();
    forget_mask(viewer);
    viewer.canvas = Canvas::PICTURE;
    form_changed(viewer);
    viewer.report.event(viewer.now, "no start");
}

// ---- Pictures to edit -----------------------------------------------------------------------------------------------

bool takes_references(const Viewer& viewer)
{
    return viewer.generator.is_ready() && viewer.generator.model_info().takes_references;
}

static std::unique_ptr<Reference> make_reference(SharedPixels pixels)
{
    auto reference = std::make_unique<Reference>();
    reference->pixels = std::move(pixels);
    const Pixels& from = *reference->pixels;
    reference->texture.upload(from.bytes.data(), from.width, from.height, from.channel_count);
    return reference;
}

static void references_changed(Viewer& viewer)
{
    form_changed(viewer);
    viewer.report.event(viewer.now, "references %d", (int)viewer.references.size());
}

void use_as_reference(Viewer& viewer, SharedPixels pixels)
{
    const size_t most = (size_t)std::max(0, viewer.generator.model_info().max_references);
    if (most == 1) viewer.references.clear();
    if (viewer.references.size() >= most)
        return complain(viewer, "This model edits at most " + std::to_string(most)
                                    + " pictures at once: a click on one removes it.");
    viewer.references.push_back(make_reference(std::move(pixels)));
    viewer.use = Use::EDIT;
    references_changed(viewer);
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

// One picture is on the screen, and a model that edits was chosen: it is what the prompt will speak of. Pictures that
// somebody has brought for that stay.
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

bool edits_shown(const Viewer& viewer) { return viewer.use == Use::EDIT && takes_references(viewer); }

bool can_use_shown(const Viewer& viewer)
{
    return viewer.shown && viewer.shown->pixels && viewer.canvas == Canvas::PICTURE && viewer.generator.is_ready()
        && viewer.generator.model_info().has_vae_encoder && !(viewer.generator.is_generating() && viewer.watches)
        && !(edits_shown(viewer) && !viewer.references.empty() && viewer.references[0]->pixels == viewer.shown->pixels);
}

void use_shown(Viewer& viewer)
{
    if (!can_use_shown(viewer)) return;
    if (edits_shown(viewer)) edit_picture(viewer, viewer.shown->pixels);
    else use_as_start(viewer, viewer.shown->pixels, true);
}

static void drop_reference(Viewer& viewer, size_t index)
{
    viewer.references.erase(viewer.references.begin() + (std::ptrdiff_t)index);
    references_changed(viewer);
}

void take_arrived(Viewer& viewer)
{
    while (!viewer.arrived.empty() && !viewer.generator.is_opening()) {
        const ArrivedPicture picture = viewer.arrived.front();
        viewer.arrived.pop_front();
        const bool edits = edits_shown(viewer);
        if (picture.purpose == Purpose::MASK) {
            if (!viewer.start) return complain(viewer, "A mask needs a picture to start from.");
            set_mask(viewer, *picture.pixels);
            viewer.canvas = Canvas::START;
            continue;
        }
        if (picture.purpose == Purpose::REFERENCE || (picture.purpose == Purpose::MODEL && edits))
            use_as_reference(viewer, picture.pixels);
        else use_as_start(viewer, picture.pixels, false);
        viewer.offer = picture.parameters;
        viewer.offer_name = picture.name;
        viewer.offered = picture.pixels;
        if (!viewer.offer.empty()) viewer.report.event(viewer.now, "offers settings");
    }
}

// ---- The panel ------------------------------------------------------------------------------------------------------

// A frame with a sentence in it, where a picture would be.
static void draw_place(const Viewer& viewer, float width, float height, const char* text)
{
    const ImVec2 corner = ImGui::GetCursorScreenPos(), size = ImGui::CalcTextSize(text);
    ImDrawList* list = ImGui::GetWindowDrawList();
    list->AddRect(corner, ImVec2(corner.x + width, corner.y + height), ImGui::GetColorU32(colour::LINE),
                  viewer.theme(5), 0, viewer.theme(1));
    list->AddText(ImVec2(corner.x + 0.5f * (width - size.x), corner.y + 0.5f * (height - size.y)),
                  ImGui::GetColorU32(colour::FAINT), text);
    ImGui::Dummy(ImVec2(width, height));
}

// The middle square of a picture, at a corner.
static void draw_square(const Viewer& viewer, const Texture& texture, const Pixels& of, ImVec2 corner, float side)
{
    const float width = (float)of.width, height = (float)of.height, shorter = std::min(width, height);
    const ImVec2 low(0.5f - 0.5f * shorter / width, 0.5f - 0.5f * shorter / height);
    ImGui::GetWindowDrawList()->AddImageRounded(texture.id(), corner, ImVec2(corner.x + side, corner.y + side), low,
                                                ImVec2(1.0f - low.x, 1.0f - low.y), IM_COL32_WHITE, viewer.theme(4));
}

// In the order in which the prompt counts them. A click removes one.
static void draw_references(Viewer& viewer)
{
    const sumi_model_info& info = viewer.generator.model_info();
    const float side = viewer.theme(62), gap = ImGui::GetStyle().ItemSpacing.x;
    size_t removed = viewer.references.size();
    ImDrawList* list = ImGui::GetWindowDrawList();
    for (size_t i = 0; i < viewer.references.size(); i++) {
        const Reference& reference = *viewer.references[i];
        const ImVec2 corner = ImGui::GetCursorScreenPos(), end(corner.x + side, corner.y + side);
        ImGui::PushID((int)i);
        if (ImGui::InvisibleButton("reference", ImVec2(side, side))) removed = i;
        char name[32], number[24];
        snprintf(name, sizeof name, "reference-%zu", i);
        snprintf(number, sizeof number, "%zu", i + 1);
        mark(viewer, name);
        const bool is_hot = ImGui::IsItemHovered();
        hint("Remove it");
        draw_square(viewer, reference.texture, *reference.pixels, corner, side);
        if (is_hot) list->AddRectFilled(corner, end, IM_COL32(10, 11, 14, 150), viewer.theme(4));
        const float a = viewer.theme(4), badge = viewer.theme(18);
        const char* text = is_hot ? "\u00d7" : number;
        const ImVec2 size = ImGui::CalcTextSize(text);
        list->AddRectFilled(ImVec2(corner.x + a, corner.y + a), ImVec2(corner.x + a + badge, corner.y + a + badge),
                            is_hot ? colour::SEAL : IM_COL32(10, 11, 14, 190), viewer.theme(4));
        list->AddText(ImVec2(corner.x + a + 0.5f * (badge - size.x), corner.y + a + 0.5f * (badge - size.y)),
                      colour::TEXT, text);
        ImGui::PopID();
        ImGui::SameLine(0.0f, gap);
    }
    const int room = info.max_references - (int)viewer.references.size();
    if (room > 0) {
        char text[64];
        if (viewer.references.empty() && info.max_references == 1) snprintf(text, sizeof text, "Drop a picture here");
        else if (viewer.references.empty()) snprintf(text, sizeof text, "Drop up to %d pictures", info.max_references);
        else snprintf(text, sizeof text, "%d more", room);
        const float button = viewer.theme(78);
        draw_place(viewer, ImGui::GetContentRegionAvail().x - button - gap, side, text);
        ImGui::SameLine(0.0f, gap);
        if (ImGui::Button("Choose...", ImVec2(button, side))) open_chooser(viewer, Purpose::REFERENCE);
        mark(viewer, "choose-reference");
        hint("A PNG, JPEG or WebP file to edit");
    } else {
        ImGui::NewLine();
    }
    if (removed < viewer.references.size()) drop_reference(viewer, removed);
}

// What pictures are for that come in: a model may take some to edit and one to start from.
static void draw_use(Viewer& viewer)
{
    char edit[32] = "Edit", start[32] = "Start from";
    if (!viewer.references.empty()) snprintf(edit, sizeof edit, "Edit (%zu)", viewer.references.size());
    if (viewer.start) snprintf(start, sizeof start, "Start from (1)");
    const char* const uses[] = {edit, start};
    int use = (int)viewer.use;
    ImGui::SetNextItemWidth(ImGui::GetContentRegionAvail().x);
    static const char* const hints[] = {"Pictures that the prompt speaks of: picture 1, picture 2, ...",
                                        "A picture that is changed as a whole, or where a mask is painted"};
    if (segments(viewer, "use-as", uses, 2, &use, hints)) viewer.use = (Use)use;
}

void draw_inputs(Viewer& viewer)
{
    const bool both = takes_references(viewer);
    heading(viewer, both ? "PICTURES THAT COME IN" : "PICTURE TO START FROM");
    if (both) draw_use(viewer);
    if (both && viewer.use == Use::EDIT) return draw_references(viewer);
    if (!viewer.start) {
        const bool can_start = !viewer.generator.is_ready() || viewer.generator.model_info().has_vae_encoder;
        const float button = viewer.theme(78), gap = ImGui::GetStyle().ItemSpacing.x;
        draw_place(viewer, ImGui::GetContentRegionAvail().x - button - gap, viewer.theme(both ? 62 : 46),
                   can_start ? "Drop a picture here" : "The model has no VAE encoder");
        ImGui::SameLine(0.0f, gap);
        ImGui::BeginDisabled(!can_start);
        if (ImGui::Button("Choose...", ImVec2(button, viewer.theme(both ? 62 : 46))))
            open_chooser(viewer, Purpose::START);
        ImGui::EndDisabled();
        mark(viewer, "choose-start");
        hint("A PNG, JPEG or WebP file to start from: image to image, or inpainting with a mask");
        return;
    }
    const float side = viewer.theme(62);
    const ImVec2 corner = ImGui::GetCursorScreenPos();
    ImDrawList* list = ImGui::GetWindowDrawList();
    if (ImGui::InvisibleButton("start", ImVec2(side, side)))
        viewer.canvas = viewer.canvas == Canvas::START ? Canvas::PICTURE : Canvas::START;
    mark(viewer, "start");
    hint("Show it, to paint a mask");
    draw_square(viewer, viewer.start_texture, *viewer.start, corner, side);
    if (viewer.canvas == Canvas::START)
        list->AddRect(corner, ImVec2(corner.x + side, corner.y + side), colour::SEAL, viewer.theme(4), 0,
                      viewer.theme(2));
    ImGui::SameLine();
    ImGui::BeginGroup();
    const bool has_mask = viewer.mask.has_paint;
    ImGui::SetNextItemWidth(ImGui::GetContentRegionAvail().x);
    ImGui::BeginDisabled(has_mask);
    float strength = has_mask ? 1.0f : viewer.form.strength;
    if (slider("##strength", &strength, 0.01f, 1.0f, has_mask ? "repaints the mask" : "strength %.2f"))
        viewer.form.strength = strength;
    ImGui::EndDisabled();
    mark(viewer, "strength");
    hint("How much of the picture is made anew: near 0 it stays as it is, at 1 nothing of it is left");
    const float gap = ImGui::GetStyle().ItemSpacing.x, part = (ImGui::GetContentRegionAvail().x - 2.0f * gap) / 3.0f;
    if (ImGui::Button("Mask...", ImVec2(part, 0))) open_chooser(viewer, Purpose::MASK);
    mark(viewer, "choose-mask");
    hint("A mask from a PNG, JPEG or WebP file: white is made anew");
    ImGui::SameLine();
    ImGui::BeginDisabled(!has_mask);
    if (ImGui::Button("Clear", ImVec2(part, 0))) clear_mask(viewer);
    ImGui::EndDisabled();
    mark(viewer, "clear-mask");
    hint("Take the mask away (Ctrl+Z brings it back)");
    ImGui::SameLine();
    if (ImGui::Button("Remove", ImVec2(part, 0))) drop_start(viewer);
    mark(viewer, "remove-start");
    hint("Start from noise again");
    ImGui::EndGroup();
}
