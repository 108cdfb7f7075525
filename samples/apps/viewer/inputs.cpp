// Pictures that come in: to start from, and the mask. Those to edit are in references.cpp.
#include "viewer.h"
#include <algorithm>

// ---- The picture to start from --------------------------------------------------------------------------------------

void use_as_start(Viewer& viewer, SharedPixels pixels, bool keeps_size)
{
    viewer.start = std::move(pixels);
    viewer.start_texture.upload(viewer.start->bytes.data(), viewer.start->width, viewer.start->height,
                                viewer.start->channel_count, viewer.start->has_alpha);
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

// ---- The picture that is shown --------------------------------------------------------------------------------------

bool edits_shown(const Viewer& viewer) { return viewer.use == Use::EDIT && takes_references(viewer); }

bool can_use_shown(const Viewer& viewer)
{
    return viewer.shown && viewer.shown->pixels && viewer.canvas == Canvas::PICTURE && viewer.generator.is_ready()
        && viewer.generator.model_info().has_vae_encoder && !(viewer.generator.is_generating() && viewer.watches)
        && !(follows_shown(viewer) && viewer.control.use.picture == viewer.shown->pixels)
        && !(edits_shown(viewer) && !viewer.references.empty() && viewer.references[0]->pixels == viewer.shown->pixels);
}

void use_shown(Viewer& viewer)
{
    if (!can_use_shown(viewer)) return;
    if (follows_shown(viewer)) follow_picture(viewer, viewer.shown->pixels, true);
    else if (edits_shown(viewer)) edit_picture(viewer, viewer.shown->pixels);
    else use_as_start(viewer, viewer.shown->pixels, true);
}

// ---- From files -----------------------------------------------------------------------------------------------------

void take_arrived(Viewer& viewer)
{
    while (!viewer.arrived.empty() && !viewer.generator.is_opening()) {
        const ArrivedPicture picture = viewer.arrived.front();
        viewer.arrived.pop_front();
        const bool edits = edits_shown(viewer), follows = follows_shown(viewer);
        if (picture.purpose == Purpose::MASK) {
            if (!viewer.start) return complain(viewer, "A mask needs a picture to start from.");
            set_mask(viewer, *picture.pixels);
            viewer.canvas = Canvas::START;
            continue;
        }
        if (picture.purpose == Purpose::FOLLOWED || (picture.purpose == Purpose::MODEL && follows)) {
            follow_picture(viewer, picture.pixels, false);
        } else if (picture.purpose == Purpose::REFERENCE || (picture.purpose == Purpose::MODEL && edits)) {
            if (!use_as_reference(viewer, picture.pixels)) continue;
        } else use_as_start(viewer, picture.pixels, false);
        viewer.offer = picture.parameters;
        viewer.offer_name = picture.name;
        viewer.offered = picture.pixels;
        if (!viewer.offer.empty()) viewer.report.event(viewer.now, "offers settings");
    }
}

// ---- The panel ------------------------------------------------------------------------------------------------------

void draw_place(const Viewer& viewer, float width, float height, const char* text)
{
    const ImVec2 corner = ImGui::GetCursorScreenPos(), size = ImGui::CalcTextSize(text);
    ImDrawList* list = ImGui::GetWindowDrawList();
    list->AddRect(corner, ImVec2(corner.x + width, corner.y + height), ImGui::GetColorU32(colour::LINE),
                  viewer.theme(5), 0, viewer.theme(1));
    list->AddText(ImVec2(corner.x + 0.5f * (width - size.x), corner.y + 0.5f * (height - size.y)),
                  ImGui::GetColorU32(colour::FAINT), text);
    ImGui::Dummy(ImVec2(width, height));
}

void draw_square(const Viewer& viewer, const Texture& texture, const Pixels& of, ImVec2 corner, float side)
{
    const float width = (float)of.width, height = (float)of.height, shorter = std::min(width, height);
    const ImVec2 low(0.5f - 0.5f * shorter / width, 0.5f - 0.5f * shorter / height);
    const ImVec2 end(corner.x + side, corner.y + side);
    draw_squares(viewer, texture, {corner, end}, 255);
    ImGui::GetWindowDrawList()->AddImageRounded(texture.id(), corner, end, low, ImVec2(1.0f - low.x, 1.0f - low.y),
                                                IM_COL32_WHITE, viewer.theme(4));
}

// What pictures are for that come in: a model may take some to edit and one to start from.
static void draw_use(Viewer& viewer)
{
    char edit[32] = "Edit", start[32] = "Start from", follow[32] = "Follow";
    if (used_references(viewer) > 0) snprintf(edit, sizeof edit, "Edit (%zu)", used_references(viewer));
    if (viewer.start) snprintf(start, sizeof start, "Start from (1)");
    if (viewer.control.use.picture) snprintf(follow, sizeof follow, "Follow (1)");
    const char* const uses[] = {edit, start, follow};
    const int first = takes_references(viewer) ? 0 : 1, count = (has_control(viewer) ? 3 : 2) - first;
    int use = (int)viewer.use - first;
    ImGui::SetNextItemWidth(ImGui::GetContentRegionAvail().x);
    static const char* const hints[] = {
        "Pictures that the prompt speaks of: picture 1, picture 2, ...",
        "A picture that is changed as a whole, or where a mask is painted",
        "A picture whose edges, pose or depth the next ones follow, by the control net"};
    if (segments(viewer, "use-as", uses + first, count, &use, hints + first)) viewer.use = (Use)(use + first);
}

void draw_inputs(Viewer& viewer)
{
    const bool both = takes_references(viewer) || has_control(viewer);
    heading(viewer, both ? "PICTURES THAT COME IN" : "PICTURE TO START FROM");
    if (both) draw_use(viewer);
    if (edits_shown(viewer)) return draw_references(viewer);
    if (follows_shown(viewer)) return draw_followed(viewer);
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
