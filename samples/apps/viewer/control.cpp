// The control net: a picture that the next ones follow, and how closely.
#include "scale.h"
#include "viewer.h"
#include <algorithm>
#include <filesystem>
extern "C" {
#include "edges.h"
}

static void told(Viewer& viewer)
{
    const ControlUse& use = viewer.control.use;
    viewer.report.event(viewer.now, "net %s %.2f %.2f-%.2f%s", use.path.empty() ? "none" : use.name.c_str(),
                        (double)use.strength, (double)use.start, (double)use.end,
                        viewer.control.is_enabled ? "" : " off");
    form_changed(viewer);
}

bool has_control(const Viewer& viewer) { return !viewer.control.use.path.empty(); }

bool follows_shown(const Viewer& viewer) { return viewer.use == Use::FOLLOW && has_control(viewer); }

static void want(Viewer& viewer)
{
    viewer.control.use.net.reset();
    // While a model is opening nothing is read: it will be, when that is open.
    if (has_control(viewer) && viewer.generator.is_ready()) viewer.generator.read_control(viewer.control.use.path);
}

static void set_path(Viewer& viewer, const std::string& from)
{
    std::error_code ignored;
    ControlUse& use = viewer.control.use;
    use.path = std::filesystem::absolute(from, ignored).lexically_normal().string();
    std::filesystem::path name = use.path;
    if (!name.has_filename()) name = name.parent_path(); // "folder/"
    use.name = name.extension() == ".safetensors" ? name.stem().string() : name.filename().string();
    want(viewer);
}

void open_control(Viewer& viewer, const std::string& path, bool may_be_model)
{
    if (!viewer.generator.is_ready() && !viewer.generator.is_opening()) {
        if (may_be_model) return open_model(viewer, path);
        return complain(viewer, "A control net is for a model.\nOpen the model first.");
    }
    viewer.control.may_be_model = may_be_model;
    viewer.control.takes_usual_strength = viewer.control.is_enabled = true;
    viewer.control.use.start = 0.0f;
    viewer.control.use.end = 1.0f;
    viewer.use = Use::FOLLOW; // what is dropped next
    set_path(viewer, path);
    form_changed(viewer);
}

void reread_control(Viewer& viewer) { want(viewer); }

static void remove_net(Viewer& viewer)
{
    viewer.control.use.path.clear();
    viewer.control.use.net.reset();
    if (viewer.use == Use::FOLLOW) viewer.use = takes_references(viewer) ? Use::EDIT : Use::START;
    told(viewer);
}

void take_control(Viewer& viewer)
{
    for (const ControlNews& news : viewer.generator.take_control()) {
        Following& control = viewer.control;
        if (news.path != control.use.path) continue; // another one was opened, or it was removed
        if (!news.net || !news.takes_picture) {
            remove_net(viewer);
            if (news.is_unknown && control.may_be_model) open_model(viewer, news.path);
            else if (!news.net) complain(viewer, news.failure);
            else
                complain(viewer,
                         "This control net follows no picture: it only inpaints.\nsumi generate --control-inpaint "
                         "uses it.");
            continue;
        }
        control.use.net = news.net;
        if (control.takes_usual_strength) control.use.strength = news.strength;
        control.takes_usual_strength = control.may_be_model = false;
        told(viewer);
    }
}

// ---- The picture ----------------------------------------------------------------------------------------------------

static void set_picture(Viewer& viewer, SharedPixels pixels)
{
    viewer.control.use.picture = std::move(pixels);
    const Pixels& from = *viewer.control.use.picture;
    viewer.control.texture.upload(from.bytes.data(), from.width, from.height, from.channel_count, from.has_alpha);
    form_changed(viewer);
    viewer.report.event(viewer.now, "follows %dx%d", from.width, from.height);
}

void follow_picture(Viewer& viewer, SharedPixels pixels, bool keeps_size)
{
    const Pixels& from = *pixels;
    // It would be stretched.
    if (keeps_size) viewer.form.width = from.width, viewer.form.height = from.height;
    else if (!viewer.start) fit_size(viewer, from.width, from.height);
    set_picture(viewer, std::move(pixels));
}

void follow_edges(Viewer& viewer, const SharedPixels& of)
{
    auto edges = std::make_shared<Pixels>();
    viewer.files.post(
        [of, edges] {
            std::vector<uint8_t> lines((size_t)of->width * (size_t)of->height);
            if (!edges_find(of->bytes.data(), of->width, of->height, of->channel_count, lines.data())) return;
            edges->width = of->width;
            edges->height = of->height;
            edges->channel_count = 4;
            edges->bytes.assign(4 * lines.size(), 255);
            for (size_t i = 0; i < lines.size(); i++) std::fill_n(&edges->bytes[4 * i], 3, lines[i]);
        },
        [&viewer, edges] {
            if (edges->bytes.empty()) return complain(viewer, "There is no memory for the picture's edges.");
            set_picture(viewer, edges);
        });
}

static void drop_picture(Viewer& viewer)
{
    viewer.control.use.picture.reset();
    viewer.control.texture.clear();
    form_changed(viewer);
    viewer.report.event(viewer.now, "follows nothing");
}

// ---- For pictures ---------------------------------------------------------------------------------------------------

ControlUse control_in_use(const Viewer& viewer)
{
    const ControlUse& use = viewer.control.use;
    const bool is_used =
        viewer.control.is_enabled && has_control(viewer) && use.picture && use.strength != 0.0f && use.start < use.end;
    return is_used ? use : ControlUse();
}

bool find_control(const Viewer& viewer, Settings& settings)
{
    ControlUse& use = settings.control;
    if (use.path.empty() || use.net) return true;
    if (use.path == viewer.control.use.path) use.net = viewer.control.use.net;
    else use = ControlUse(); // it was removed, or could not be read, which a sentence has said
    return use.path.empty() || use.net;
}

void restore_control(Viewer& viewer, const ControlUse& use)
{
    Following& control = viewer.control;
    control.is_enabled = !use.path.empty();
    if (use.path.empty()) return told(viewer);
    control.takes_usual_strength = control.may_be_model = false;
    control.use.strength = use.strength;
    control.use.start = use.start;
    control.use.end = use.end;
    if (control.use.picture != use.picture) set_picture(viewer, use.picture);
    viewer.use = Use::FOLLOW;
    if (control.use.path != use.path) set_path(viewer, use.path);
    told(viewer);
}

static std::string change_of_seen(const SharedPixels& given, const Pixels& seen)
{
    if (given->width == seen.width && given->height == seen.height)
        return given->bytes == seen.bytes ? "as it was given" : "without what was transparent in it";
    return "resized from " + std::to_string(given->width) + " x " + std::to_string(given->height);
}

void toggle_seen(Viewer& viewer)
{
    if (viewer.canvas == Canvas::SEEN) {
        viewer.canvas = Canvas::PICTURE;
        return;
    }
    if (!viewer.shown || !viewer.shown->seen) return;
    const Pixels& seen = *viewer.shown->seen;
    viewer.seen_texture.upload(seen.bytes.data(), seen.width, seen.height, seen.channel_count);
    viewer.seen_change = change_of_seen(viewer.shown->settings.control.picture, seen);
    end_compare(viewer);
    viewer.canvas = Canvas::SEEN;
    viewer.report.event(viewer.now, "sees %dx%d %s", seen.width, seen.height, viewer.seen_change.c_str());
}

// ---- The panel ------------------------------------------------------------------------------------------------------

// Returns whether it is to be removed.
static bool draw_net(Viewer& viewer)
{
    Following& control = viewer.control;
    const float side = ImGui::GetFrameHeight(), gap = ImGui::GetStyle().ItemInnerSpacing.x;
    if (ImGui::Checkbox("##follows", &control.is_enabled)) told(viewer);
    mark(viewer, "net-enabled");
    hint("Use it for the next pictures");
    ImGui::SameLine(0.0f, gap);
    const float whole = ImGui::GetContentRegionAvail().x - side - gap;
    ImVec2 at = ImGui::GetCursorScreenPos();
    at.y += ImGui::GetStyle().FramePadding.y;
    const std::string name = control.use.net ? control.use.name : "reading " + control.use.name;
    ImGui::GetWindowDrawList()->AddText(at, ImGui::GetColorU32(control.is_enabled ? colour::TEXT : colour::DIM),
                                        elided(shown(name), whole).c_str());
    ImGui::Dummy(ImVec2(whole, side));
    hint(shown(control.use.path).c_str());
    ImGui::SameLine(0.0f, gap);
    const bool removes = ImGui::Button("\u00d7##net", ImVec2(side, side));
    mark(viewer, "net-remove");
    hint("Close it; the file stays, and so does the picture");
    return removes;
}

static void draw_numbers_of_net(Viewer& viewer)
{
    ControlUse& use = viewer.control.use;
    const float gap = ImGui::GetStyle().ItemSpacing.x, part = (ImGui::GetContentRegionAvail().x - 2.0f * gap) / 3.0f;
    bool changed = false;
    struct Number {
        const char *name, *format, *hint;
        float *value, high;
    };
    const Number numbers[] = {
        {"net-strength", "by %.2f", "Strength: how closely pictures follow; less leaves more to the prompt",
         &use.strength, 2.0f},
        {"net-start", "from %.2f", "The part of the steps at which it begins: 0 is the first", &use.start, 1.0f},
        {"net-end", "to %.2f", "The part of the steps at which it ends: up to 0.7 leaves details to the prompt",
         &use.end, 1.0f}};
    ImGui::BeginDisabled(!viewer.control.is_enabled);
    for (const Number& each : numbers) {
        if (each.value != numbers[0].value) ImGui::SameLine(0.0f, gap);
        ImGui::SetNextItemWidth(part);
        changed |= slider((std::string("##") + each.name).c_str(), each.value, 0.0f, each.high, each.format);
        mark(viewer, each.name);
        hint(each.hint);
    }
    ImGui::EndDisabled();
    if (changed) told(viewer);
}

void draw_control(Viewer& viewer)
{
    heading(viewer, "CONTROL NET");
    const float width = viewer.theme(64);
    ImGui::SameLine(ImGui::GetContentRegionMax().x - width);
    ImGui::PushFont(viewer.theme.small);
    ImGui::PushStyleVar(ImGuiStyleVar_FramePadding, ImVec2(viewer.theme(6), viewer.theme(1)));
    if (ImGui::Button("Open...##net", ImVec2(width, 0))) open_chooser(viewer, Purpose::CONTROL);
    ImGui::PopStyleVar();
    ImGui::PopFont();
    mark(viewer, "open-net");
    hint("A control net for this model, with which pictures follow the edges, pose or depth of another one: a "
         ".safetensors file or a diffusers folder, which can also be dropped on the window");
    if (!has_control(viewer)) {
        ImGui::PushStyleColor(ImGuiCol_Text, colour::FAINT);
        ImGui::TextUnformatted("None");
        ImGui::PopStyleColor();
        return;
    }
    const bool removes = draw_net(viewer);
    draw_numbers_of_net(viewer);
    if (removes) remove_net(viewer);
}

void draw_followed(Viewer& viewer)
{
    const ControlUse& use = viewer.control.use;
    const float side = viewer.theme(62), gap = ImGui::GetStyle().ItemSpacing.x;
    if (!use.picture) {
        const float button = viewer.theme(78);
        draw_place(viewer, ImGui::GetContentRegionAvail().x - button - gap, side, "Drop a picture to follow");
        ImGui::SameLine(0.0f, gap);
        if (ImGui::Button("Choose...##followed", ImVec2(button, side))) open_chooser(viewer, Purpose::FOLLOWED);
        mark(viewer, "choose-followed");
        hint("White edges on black, a pose, or depth with white near, as the net was trained with it");
        return;
    }
    draw_square(viewer, viewer.control.texture, *use.picture, ImGui::GetCursorScreenPos(), side);
    ImGui::Dummy(ImVec2(side, side));
    ImGui::SameLine();
    ImGui::BeginGroup();
    ImGui::TextColored(ImGui::ColorConvertU32ToFloat4(colour::DIM), "%d \u00d7 %d", use.picture->width,
                       use.picture->height);
    const float part = (ImGui::GetContentRegionAvail().x - 2.0f * gap) / 3.0f;
    if (ImGui::Button("Choose...##followed", ImVec2(part, 0))) open_chooser(viewer, Purpose::FOLLOWED);
    mark(viewer, "choose-followed");
    hint("Another picture to follow");
    ImGui::SameLine();
    if (ImGui::Button("Edges", ImVec2(part, 0))) follow_edges(viewer, use.picture);
    mark(viewer, "followed-edges");
    hint("Follow the edges of this picture instead: white lines on black");
    ImGui::SameLine();
    const bool removes = ImGui::Button("Remove##followed", ImVec2(part, 0));
    mark(viewer, "remove-followed");
    hint("Follow no picture");
    ImGui::EndGroup();
    if (removes) drop_picture(viewer);
}
