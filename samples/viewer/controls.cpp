#include "viewer.h"
#include <algorithm>
#include <cstring>

static void draw_model(Viewer& viewer)
{
    Generator& generator = viewer.generator;
    heading(viewer, "MODEL");
    const float button = viewer.theme(74),
                width = ImGui::GetContentRegionAvail().x - button - ImGui::GetStyle().ItemSpacing.x;
    const ImVec2 corner = ImGui::GetCursorScreenPos();
    const float height = ImGui::GetFrameHeight();
    ImDrawList* list = ImGui::GetWindowDrawList();
    list->AddRectFilled(corner, ImVec2(corner.x + width, corner.y + height), ImGui::GetColorU32(ImGuiCol_FrameBg),
                        ImGui::GetStyle().FrameRounding);
    const bool is_ready = generator.is_ready();
    const std::string name = is_ready ? generator.model_name() : generator.is_opening() ? "opening..." : "none";
    const float pad = ImGui::GetStyle().FramePadding.x, dot = viewer.theme(3.5f);
    list->AddCircleFilled(ImVec2(corner.x + pad + dot, corner.y + 0.5f * height), dot,
                          is_ready                 ? colour::LEAF
                          : generator.is_opening() ? colour::SAND
                                                   : colour::SEAL,
                          16);
    std::string kind;
    if (is_ready) kind = std::string(generator.model_info().family) + " " + generator.model_info().variant;
    // long families give way to the name; the variant says enough
    if (is_ready && ImGui::CalcTextSize(kind.c_str()).x > 0.5f * width) kind = generator.model_info().variant;
    const float kind_width = ImGui::CalcTextSize(kind.c_str()).x,
                name_x = corner.x + pad + 2.0f * dot + viewer.theme(8);
    list->AddText(ImVec2(name_x, corner.y + ImGui::GetStyle().FramePadding.y), ImGui::GetColorU32(ImGuiCol_Text),
                  elided(name, corner.x + width - kind_width - 2.0f * pad - name_x).c_str());
    list->AddText(ImVec2(corner.x + width - kind_width - pad, corner.y + ImGui::GetStyle().FramePadding.y),
                  ImGui::GetColorU32(colour::FAINT), kind.c_str());
    ImGui::Dummy(ImVec2(width, height));
    if (is_ready) hint(generator.model_path().c_str());
    ImGui::SameLine();
    ImGui::BeginDisabled(generator.is_opening());
    if (ImGui::Button("Open...", ImVec2(button, 0))) open_chooser(viewer);
    mark(viewer, "open");
    ImGui::EndDisabled();
}

// Of letters beyond ASCII the font may have none.
static bool can_be_drawn(const std::string& text)
{
    return std::all_of(text.begin(), text.end(), [](unsigned char letter) { return letter < 0x80; });
}

// What an empty box stands for, in its place.
static void draw_own_negative(Viewer& viewer)
{
    std::string text = viewer.generator.negative_text();
    if (text.empty()) return;
    if (text.find_first_not_of(' ') == std::string::npos) text = "the model's own: a blank";
    else if (!can_be_drawn(text)) text = "the model's own text";
    const ImVec2 low = ImGui::GetItemRectMin(), pad = ImGui::GetStyle().FramePadding;
    ImGui::GetWindowDrawList()->AddText(ImVec2(low.x + pad.x, low.y + pad.y), colour::FAINT,
                                        elided(text, ImGui::GetItemRectMax().x - low.x - 2.0f * pad.x).c_str());
}

// At the right of the heading. Each kind keeps what was typed for it.
static void draw_prompt_kind(Viewer& viewer)
{
    static const char* const kinds[] = {"Text", "XML"};
    const float width = viewer.theme(104);
    int kind = (int)viewer.prompt_kind;
    ImGui::SameLine(ImGui::GetContentRegionMax().x - width);
    ImGui::SetNextItemWidth(width);
    ImGui::PushFont(viewer.theme.small);
    ImGui::PushStyleVar(ImGuiStyleVar_FramePadding, ImVec2(viewer.theme(3), viewer.theme(1)));
    if (segments(viewer, "prompt-as", kinds, 2, &kind)) choose_prompt(viewer, (PromptKind)kind);
    ImGui::PopStyleVar();
    ImGui::PopFont();
    hint("XML: characters and tags in a form, for models that were trained on such captions");
}

// The text that the form beside it makes, as it is sent.
static void draw_xml_text(const Viewer& viewer, float height)
{
    std::string text, trouble;
    if (!viewer.xml.write(text, trouble)) text = trouble;
    ImGui::PushStyleColor(ImGuiCol_Text, colour::DIM);
    ImGui::InputTextMultiline("##xml", &text[0], text.size() + 1, ImVec2(-1, height), ImGuiInputTextFlags_ReadOnly);
    ImGui::PopStyleColor();
}

static void draw_prompt(Viewer& viewer)
{
    bool changed = false;
    // gives way before the form scrolls
    const float rest = takes_references(viewer) ? viewer.theme(600) : viewer.theme(520);
    const float height = std::clamp(ImGui::GetWindowHeight() - rest, viewer.theme(40), viewer.theme(104));
    heading(viewer, "PROMPT");
    draw_prompt_kind(viewer);
    const bool is_text = viewer.prompt_kind == PromptKind::TEXT;
    if (is_text && viewer.wants_focus) {
        ImGui::SetKeyboardFocusHere();
        viewer.wants_focus = false;
    }
    if (is_text && wrapped_text("##prompt", viewer.prompt, sizeof viewer.prompt, ImVec2(-1, height), &changed))
        viewer.wants_picture = true;
    else if (!is_text) draw_xml_text(viewer, height);
    viewer.has_focus = is_text && ImGui::IsItemActive();
    mark(viewer, "prompt");
    const bool is_used = viewer.form.guidance > viewer.form.guidance_off;
    heading(viewer, is_used ? "NEGATIVE PROMPT" : "NEGATIVE PROMPT  (used with guidance)");
    ImGui::BeginDisabled(!is_used);
    if (wrapped_text("##negative", viewer.negative, sizeof viewer.negative,
                     ImVec2(-1, std::min(height, viewer.theme(48))), &changed))
        viewer.wants_picture = true;
    viewer.has_focus |= ImGui::IsItemActive();
    mark(viewer, "negative");
    if (is_used && !viewer.negative[0] && !ImGui::IsItemActive()) draw_own_negative(viewer);
    ImGui::EndDisabled();
    if (changed) form_changed(viewer);
}

static bool slide_size(const char* name, int* side, const sumi_model_info& info, float width)
{
    const int multiple = std::max(1, info.size_multiple), low = std::max(multiple, 64 / multiple * multiple),
              high = std::max(low, std::min(info.max_size, 2 * info.native_size) / multiple * multiple);
    int pixels = *side;
    ImGui::SetNextItemWidth(width);
    if (!slider(name, &pixels, low, high, "%d")) return false;
    pixels = (pixels + multiple / 2) / multiple * multiple;
    if (pixels == *side) return false;
    *side = pixels;
    return true;
}

static void draw_numbers(Viewer& viewer)
{
    static const char* const presets[] = {"Default", "Preview", "Standard", "Quality", "Fast"};
    const sumi_model_info& info = viewer.generator.model_info();
    Settings& form = viewer.form;
    heading(viewer, "PICTURE");
    int preset = form.preset;
    ImGui::SetNextItemWidth(ImGui::GetContentRegionAvail().x);
    if (segments(viewer, "preset", presets, PRESET_COUNT, &preset)) apply_preset(viewer, (sumi_preset)preset);
    bool changed = false;
    if (takes_references(viewer)) {
        label(viewer, "");
        ImGui::PushStyleVar(ImGuiStyleVar_FramePadding, ImVec2(viewer.theme(3), viewer.theme(3)));
        changed |= ImGui::Checkbox("by the pictures to edit", &form.follows_references);
        ImGui::PopStyleVar();
        mark(viewer, "follows");
    }
    const bool follows = form.follows_references && takes_references(viewer) && !viewer.references.empty();
    label(viewer, "Size");
    ImGui::BeginDisabled(follows);
    const int width = form.width, height = form.height;
    const float cross = ImGui::CalcTextSize("\u00d7").x, gap = ImGui::GetStyle().ItemSpacing.x;
    const float half = 0.5f * (ImGui::GetContentRegionAvail().x - cross - 2.0f * gap);
    changed |= slide_size("##width", &form.width, info, half);
    mark(viewer, "width");
    ImGui::SameLine();
    ImGui::TextDisabled("\u00d7");
    ImGui::SameLine();
    changed |= slide_size("##height", &form.height, info, half);
    mark(viewer, "height");
    ImGui::EndDisabled();
    if (form.width != width || form.height != height)
        viewer.report.event(viewer.now, "size %dx%d", form.width, form.height);
    label(viewer, "Steps");
    changed |= slider("##steps", &form.step_count, 1, 100, "%d", true);
    mark(viewer, "steps");
    label(viewer, "Guidance");
    changed |= slider("##guidance", &form.guidance, form.guidance_off, 10.0f,
                      form.guidance > form.guidance_off ? "%.1f" : "off");
    mark(viewer, "guidance");
    hint("How strongly the prompt is followed, and the negative prompt avoided. Needs two runs of the network in each "
         "step; models like Turbo are made to run "
         "without.");
    label(viewer, "Seed");
    const float side = ImGui::GetFrameHeight();
    ImGui::SetNextItemWidth(ImGui::GetContentRegionAvail().x - side - gap);
    ImGui::InputScalar("##seed", ImGuiDataType_U64, &viewer.seed);
    mark(viewer, "seed");
    ImGui::SameLine();
    if (dice_button(viewer, "##roll", side, 1 + (int)(viewer.seed % 6u))) roll_seed(viewer);
    mark(viewer, "dice");
    hint("Another seed (Ctrl+R)");
    label(viewer, "");
    ImGui::PushStyleVar(ImGuiStyleVar_FramePadding, ImVec2(viewer.theme(3), viewer.theme(3)));
    ImGui::Checkbox("new seed for every picture", &viewer.rolls_seed);
    ImGui::PopStyleVar();
    mark(viewer, "rolls");
    if (changed) form_changed(viewer);
}

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
        if (viewer.references.empty() && info.max_references == 1)
            snprintf(text, sizeof text, "Drop a PNG on the window");
        else if (viewer.references.empty())
            snprintf(text, sizeof text, "Drop up to %d PNGs on the window", info.max_references);
        else snprintf(text, sizeof text, "%d more", room);
        draw_place(viewer, ImGui::GetContentRegionAvail().x, side, text);
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
    if (segments(viewer, "use-as", uses, 2, &use)) viewer.use = (Use)use;
}

static void draw_start(Viewer& viewer)
{
    const bool both = takes_references(viewer);
    heading(viewer, both ? "PICTURES THAT COME IN" : "PICTURE TO START FROM");
    if (both) draw_use(viewer);
    if (both && viewer.use == Use::EDIT) return draw_references(viewer);
    if (!viewer.start) {
        draw_place(viewer, ImGui::GetContentRegionAvail().x, viewer.theme(both ? 62 : 46),
                   viewer.generator.is_ready() && !viewer.generator.model_info().has_vae_encoder
                       ? "This model takes none: it has no VAE encoder"
                       : "Drop a PNG on the window");
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
    const bool has_mask = viewer.mask_has_paint;
    ImGui::SetNextItemWidth(ImGui::GetContentRegionAvail().x);
    ImGui::BeginDisabled(has_mask);
    float strength = has_mask ? 1.0f : viewer.form.strength;
    if (slider("##strength", &strength, 0.0f, 1.0f, has_mask ? "repaints the mask" : "strength %.2f"))
        viewer.form.strength = strength;
    ImGui::EndDisabled();
    mark(viewer, "strength");
    const float part = 0.5f * (ImGui::GetContentRegionAvail().x - ImGui::GetStyle().ItemSpacing.x);
    ImGui::BeginDisabled(!has_mask);
    if (ImGui::Button("Clear mask", ImVec2(part, 0))) {
        viewer.mask = {};
        viewer.mask_has_paint = false;
        form_changed(viewer);
    }
    ImGui::EndDisabled();
    mark(viewer, "clear-mask");
    ImGui::SameLine();
    if (ImGui::Button("Remove", ImVec2(part, 0))) drop_start(viewer);
    mark(viewer, "remove-start");
    ImGui::EndGroup();
}

static const char* stage_name(sumi_stage stage, bool reads_references)
{
    static const char* const names[] = {
        "Waiting",   "Loading",  "Preparing", "Reading the prompt", "Reading the picture",
        "Denoising", "Decoding", "Finishing"};
    if (stage == SUMI_STAGE_TEXT && reads_references) return "Reading pictures and prompt";
    return names[stage];
}

// One place for what starts and what stops, so that the hand stays where it is; the progress is in it.
static void draw_go(Viewer& viewer)
{
    const Generator& generator = viewer.generator;
    const ImVec2 size(ImGui::GetContentRegionAvail().x, viewer.theme(44));
    const ImVec2 corner = ImGui::GetCursorScreenPos();
    if (!generator.is_generating()) {
        ImGui::BeginDisabled(!generator.is_ready());
        if (primary_button(viewer, "Generate", size)) generate(viewer);
        ImGui::EndDisabled();
        mark(viewer, "go");
        return;
    }
    const sumi_job_status status = generator.status();
    if (ImGui::InvisibleButton("cancel", size)) cancel(viewer);
    const bool is_hot = ImGui::IsItemHovered();
    mark(viewer, "go");
    ImDrawList* list = ImGui::GetWindowDrawList();
    const ImVec2 end(corner.x + size.x, corner.y + size.y);
    const float rounding = ImGui::GetStyle().FrameRounding;
    list->AddRectFilled(corner, end, ImGui::GetColorU32(is_hot ? colour::FIELD_HOT : colour::FIELD), rounding);
    const float filled = size.x * status.progress;
    if (filled > 2.0f * rounding)
        list->AddRectFilled(corner, ImVec2(corner.x + filled, end.y), ImGui::GetColorU32(colour::SEAL_DOWN), rounding);
    char text[128], left[48] = "";
    const double seconds = generator.seconds_left(viewer.now);
    if (status.stage == SUMI_STAGE_DENOISE)
        snprintf(text, sizeof text, "Denoising %d / %d", status.step, status.step_count);
    else snprintf(text, sizeof text, "%s", stage_name(status.stage, !generator.running().references.empty()));
    if (seconds >= 60.0) snprintf(left, sizeof left, "%.0f min left", seconds / 60.0);
    else if (seconds >= 0.0) snprintf(left, sizeof left, seconds < 10.0 ? "%.1f s left" : "%.0f s left", seconds);
    const float pad = viewer.theme(14), y = corner.y + 0.5f * (size.y - ImGui::GetTextLineHeight());
    list->AddText(ImVec2(corner.x + pad, y), colour::TEXT, is_hot ? "Cancel" : text);
    list->AddText(ImVec2(end.x - pad - ImGui::CalcTextSize(left).x, y), colour::TEXT, left);
}

static void draw_name(Viewer& viewer)
{
    const ImVec2 corner = ImGui::GetCursorScreenPos();
    ImDrawList* list = ImGui::GetWindowDrawList();
    const float side = viewer.theme(26);
    list->AddRectFilled(corner, ImVec2(corner.x + side, corner.y + side), colour::SEAL, viewer.theme(5));
    // The seal: three strokes of a brush
    const ImU32 paper = IM_COL32(255, 246, 238, 255);
    list->AddLine(ImVec2(corner.x + 0.50f * side, corner.y + 0.20f * side),
                  ImVec2(corner.x + 0.50f * side, corner.y + 0.68f * side), paper, viewer.theme(2.6f));
    list->AddLine(ImVec2(corner.x + 0.28f * side, corner.y + 0.34f * side),
                  ImVec2(corner.x + 0.36f * side, corner.y + 0.56f * side), paper, viewer.theme(2.6f));
    list->AddLine(ImVec2(corner.x + 0.72f * side, corner.y + 0.34f * side),
                  ImVec2(corner.x + 0.64f * side, corner.y + 0.56f * side), paper, viewer.theme(2.6f));
    list->AddLine(ImVec2(corner.x + 0.24f * side, corner.y + 0.80f * side),
                  ImVec2(corner.x + 0.76f * side, corner.y + 0.80f * side), paper, viewer.theme(2.6f));
    ImGui::PushFont(viewer.theme.title);
    list->AddText(ImVec2(corner.x + side + viewer.theme(10), corner.y + 0.5f * (side - ImGui::GetTextLineHeight())),
                  colour::TEXT, "sumi");
    ImGui::PopFont();
    ImGui::PushFont(viewer.theme.small);
    const float width = ImGui::GetContentRegionAvail().x, space = width - side - viewer.theme(90);
    const std::string device =
        viewer.generator.has_engine() ? elided(viewer.generator.info().device, space) : "starting";
    list->AddText(ImVec2(corner.x + width - ImGui::CalcTextSize(device.c_str()).x,
                         corner.y + 0.5f * (side - ImGui::GetTextLineHeight())),
                  colour::FAINT, device.c_str());
    ImGui::PopFont();
    ImGui::Dummy(ImVec2(width, side));
}

void draw_controls(Viewer& viewer)
{
    draw_name(viewer);
    const float go = viewer.theme(44) + ImGui::GetStyle().ItemSpacing.y;
    ImGui::BeginChild("form", ImVec2(0, -go)); // scrolls in a low window; the button stays
    draw_model(viewer);
    draw_prompt(viewer);
    ImGui::BeginDisabled(!viewer.generator.is_ready());
    draw_numbers(viewer);
    draw_start(viewer);
    ImGui::EndDisabled();
    ImGui::EndChild();
    draw_go(viewer);
}
