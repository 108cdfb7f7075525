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

static void draw_prompt(Viewer& viewer)
{
    bool changed = false;
    // gives way before the form scrolls
    const float height = std::clamp(ImGui::GetWindowHeight() - viewer.theme(520), viewer.theme(58), viewer.theme(104));
    heading(viewer, "PROMPT");
    if (viewer.wants_focus) {
        ImGui::SetKeyboardFocusHere();
        viewer.wants_focus = false;
    }
    if (wrapped_text("##prompt", viewer.prompt, sizeof viewer.prompt, ImVec2(-1, height), &changed))
        viewer.wants_picture = true;
    viewer.has_focus = ImGui::IsItemActive();
    mark(viewer, "prompt");
    const bool is_used = viewer.form.guidance > viewer.form.guidance_off;
    heading(viewer, is_used ? "NEGATIVE PROMPT" : "NEGATIVE PROMPT  (used with guidance)");
    ImGui::BeginDisabled(!is_used);
    if (wrapped_text("##negative", viewer.negative, sizeof viewer.negative, ImVec2(-1, viewer.theme(48)), &changed))
        viewer.wants_picture = true;
    viewer.has_focus |= ImGui::IsItemActive();
    mark(viewer, "negative");
    ImGui::EndDisabled();
    if (changed) form_changed(viewer);
}

static bool slide_size(const char* name, int* side, const sumi_model_info& info, float width)
{
    const int multiple = std::max(1, info.size_multiple), low = std::max(1, 64 / multiple),
              high = std::max(low, std::min(info.max_size, 2 * info.native_size) / multiple);
    int count = *side / multiple;
    char text[32];
    snprintf(text, sizeof text, "%d", *side);
    ImGui::SetNextItemWidth(width);
    const bool changed = slider(name, &count, low, high, text); // counts multiples, and says pixels
    if (changed) *side = count * multiple;
    return changed;
}

static void draw_numbers(Viewer& viewer)
{
    static const char* const presets[] = {"Default", "Preview", "Standard", "Quality"};
    const sumi_model_info& info = viewer.generator.model_info();
    Settings& form = viewer.form;
    heading(viewer, "PICTURE");
    int preset = form.preset;
    ImGui::SetNextItemWidth(ImGui::GetContentRegionAvail().x);
    if (segments(viewer, "preset", presets, 4, &preset)) apply_preset(viewer, (sumi_preset)preset);
    bool changed = false;
    label(viewer, "Size");
    const float cross = ImGui::CalcTextSize("\u00d7").x, gap = ImGui::GetStyle().ItemSpacing.x;
    const float half = 0.5f * (ImGui::GetContentRegionAvail().x - cross - 2.0f * gap);
    changed |= slide_size("##width", &form.width, info, half);
    mark(viewer, "width");
    ImGui::SameLine();
    ImGui::TextDisabled("\u00d7");
    ImGui::SameLine();
    changed |= slide_size("##height", &form.height, info, half);
    mark(viewer, "height");
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

static void draw_start(Viewer& viewer)
{
    heading(viewer, "PICTURE TO START FROM");
    if (!viewer.start) {
        const float height = viewer.theme(46), width = ImGui::GetContentRegionAvail().x;
        const ImVec2 corner = ImGui::GetCursorScreenPos();
        ImGui::GetWindowDrawList()->AddRect(corner, ImVec2(corner.x + width, corner.y + height),
                                            ImGui::GetColorU32(colour::LINE), viewer.theme(5), 0, viewer.theme(1));
        const char* text = viewer.generator.is_ready() && !viewer.generator.model_info().has_vae_encoder
                             ? "This model takes none: it has no VAE encoder"
                             : "Drop a PNG on the window";
        const ImVec2 size = ImGui::CalcTextSize(text);
        ImGui::GetWindowDrawList()->AddText(
            ImVec2(corner.x + 0.5f * (width - size.x), corner.y + 0.5f * (height - size.y)),
            ImGui::GetColorU32(colour::FAINT), text);
        ImGui::Dummy(ImVec2(width, height));
        return;
    }
    const float side = viewer.theme(62);
    const ImVec2 corner = ImGui::GetCursorScreenPos();
    ImDrawList* list = ImGui::GetWindowDrawList();
    const float width = (float)viewer.start->width, height = (float)viewer.start->height,
                shorter = std::min(width, height);
    const ImVec2 low(0.5f - 0.5f * shorter / width, 0.5f - 0.5f * shorter / height);
    if (ImGui::InvisibleButton("start", ImVec2(side, side)))
        viewer.canvas = viewer.canvas == Canvas::START ? Canvas::PICTURE : Canvas::START;
    mark(viewer, "start");
    hint("Show it, to paint a mask");
    list->AddImageRounded(viewer.start_texture.id(), corner, ImVec2(corner.x + side, corner.y + side), low,
                          ImVec2(1.0f - low.x, 1.0f - low.y), IM_COL32_WHITE, viewer.theme(4));
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

static const char* stage_name(sumi_stage stage)
{
    static const char* const names[] = {
        "Waiting",   "Loading",  "Preparing", "Reading the prompt", "Reading the picture",
        "Denoising", "Decoding", "Finishing"};
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
    else snprintf(text, sizeof text, "%s", stage_name(status.stage));
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
