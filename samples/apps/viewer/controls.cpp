#include "viewer.h"
#include <algorithm>
#include <cstring>

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
    placeholder(text.c_str());
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
    const float height = std::clamp(0.13f * ImGui::GetWindowHeight(), viewer.theme(46), viewer.theme(120));
    heading(viewer, "PROMPT");
    draw_prompt_kind(viewer);
    const bool is_text = viewer.prompt_kind == PromptKind::TEXT;
    if (is_text && viewer.wants_focus) {
        ImGui::SetKeyboardFocusHere();
        viewer.wants_focus = false;
    }
    if (is_text && wrapped_text("##prompt", viewer.prompt, sizeof viewer.prompt, ImVec2(-1, height), &changed))
        viewer.wants_picture = viewer.wants_focus = true; // the next prompt can be typed at once
    else if (!is_text) draw_xml_text(viewer, height);
    viewer.has_focus = is_text && ImGui::IsItemActive();
    mark(viewer, "prompt");
    const bool edits = prompt_instructs(viewer);
    if (is_text && !viewer.prompt[0])
        placeholder(edits ? "An instruction: make the moon red" : "What is to be seen: a moon above a cat");
    if (!viewer.has_focus)
        hint(edits ? "What is to be changed, such as: make the moon red (F5). Enter makes the picture."
                   : "What is to be seen (F5). Enter makes the picture.");
    if (changed) form_changed(viewer);
}

static void draw_negative(Viewer& viewer)
{
    bool changed = false;
    if (viewer.generator.model_info().ignores_guidance) return;
    const bool is_used = viewer.form.guidance > viewer.form.guidance_off;
    heading(viewer, is_used ? "NEGATIVE PROMPT" : "NEGATIVE PROMPT  (used with guidance)");
    ImGui::BeginDisabled(!is_used);
    if (wrapped_text("##negative", viewer.negative, sizeof viewer.negative, ImVec2(-1, viewer.theme(46)), &changed))
        viewer.wants_picture = true;
    viewer.has_focus |= ImGui::IsItemActive();
    mark(viewer, "negative");
    if (!ImGui::IsItemActive()) hint("What is not to be seen; used with guidance");
    if (is_used && !viewer.negative[0] && !ImGui::IsItemActive()) draw_own_negative(viewer);
    ImGui::EndDisabled();
    if (changed) form_changed(viewer);
}

static const char* stage_name(sumi_stage stage, size_t reference_count)
{
    static const char* const names[] = {
        "Waiting",   "Loading",  "Preparing", "Reading the prompt",    "Reading the picture",
        "Denoising", "Decoding", "Finishing", "Compiling for this GPU"};
    if (stage == SUMI_STAGE_TEXT && reference_count > 0) return "Reading pictures and prompt";
    if (stage == SUMI_STAGE_IMAGE && reference_count > 1) return "Reading the pictures";
    return names[stage];
}

// The progress of the picture at hand; a click cancels it.
static void draw_progress(Viewer& viewer)
{
    const Generator& generator = viewer.generator;
    const ImVec2 size(ImGui::GetContentRegionAvail().x, viewer.theme(26));
    const ImVec2 corner = ImGui::GetCursorScreenPos();
    const sumi_job_status status = generator.status();
    if (ImGui::InvisibleButton("cancel", size)) cancel(viewer);
    const bool is_hot = ImGui::IsItemHovered();
    mark(viewer, "cancel");
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
    else if (status.stage == SUMI_STAGE_COMPILE)
        snprintf(text, sizeof text, "Compiling for this GPU, once: %d / %d", status.step, status.step_count);
    else snprintf(text, sizeof text, "%s", stage_name(status.stage, generator.running().references.size()));
    if (seconds >= 60.0) snprintf(left, sizeof left, "%.0f min left", seconds / 60.0);
    else if (seconds >= 0.0) snprintf(left, sizeof left, seconds < 10.0 ? "%.1f s left" : "%.0f s left", seconds);
    const float pad = viewer.theme(10), y = corner.y + 0.5f * (size.y - ImGui::GetTextLineHeight());
    list->AddText(ImVec2(corner.x + pad, y), colour::TEXT, is_hot ? "Cancel  (Esc)" : text);
    list->AddText(ImVec2(end.x - pad - ImGui::CalcTextSize(left).x, y), colour::TEXT, left);
}

// The button stays where it is, so that a second click adds another picture and cancels none.
static void draw_go(Viewer& viewer)
{
    const bool is_busy = viewer.generator.is_generating() || !viewer.queue.jobs.empty();
    if (viewer.generator.is_generating()) draw_progress(viewer);
    ImGui::BeginDisabled(!viewer.generator.is_ready());
    char text[48] = "Generate";
    if (viewer.picture_count > 1)
        snprintf(text, sizeof text, is_busy ? "Add %d to the queue" : "Generate %d pictures", viewer.picture_count);
    else if (is_busy) snprintf(text, sizeof text, "Add to the queue");
    if (primary_button(viewer, (std::string(text) + "###go").c_str(),
                       ImVec2(ImGui::GetContentRegionAvail().x, viewer.theme(44))))
        generate(viewer);
    ImGui::EndDisabled();
    mark(viewer, "go");
    hint(is_busy ? "It is made when those before it are done; they line up below the picture (Enter)"
                 : "Make the picture (Enter)");
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

// Where saved pictures go.
static void draw_output(Viewer& viewer)
{
    heading(viewer, "SAVED PICTURES");
    const float button = viewer.theme(74), gap = ImGui::GetStyle().ItemSpacing.x;
    ImGui::SetNextItemWidth(ImGui::GetContentRegionAvail().x - button - gap);
    ImGui::InputText("##output", viewer.output_folder, sizeof viewer.output_folder);
    mark(viewer, "output");
    hint("The folder that pictures are saved in. It is made when the first one is saved.");
    ImGui::SameLine();
    if (ImGui::Button("Choose...##output", ImVec2(button, 0))) open_chooser(viewer, Purpose::OUTPUT);
    mark(viewer, "choose-output");
    hint("Another folder");
    ImGui::PushStyleVar(ImGuiStyleVar_FramePadding, ImVec2(viewer.theme(3), viewer.theme(3)));
    ImGui::Checkbox("save every picture", &viewer.saves_all);
    ImGui::PopStyleVar();
    mark(viewer, "saves-all");
    hint("As soon as it is done, as a PNG file with its settings in it");
}

void draw_controls(Viewer& viewer)
{
    draw_name(viewer);
    const float gap = ImGui::GetStyle().ItemSpacing.y;
    float go = viewer.theme(44) + gap;
    if (viewer.generator.is_generating()) go += viewer.theme(26) + gap;
    // scrolls in a low window; the button stays
    ImGui::BeginChild("form", ImVec2(0, -go));
    draw_model(viewer);
    draw_prompt(viewer);
    const bool edits = takes_references(viewer); // then the prompt speaks of pictures, which are near it
    if (edits) draw_inputs(viewer);
    draw_negative(viewer);
    ImGui::BeginDisabled(!viewer.generator.is_ready());
    draw_numbers(viewer);
    draw_adapters(viewer);
    draw_control(viewer);
    if (!edits) draw_inputs(viewer);
    ImGui::EndDisabled();
    draw_output(viewer);
    ImGui::EndChild();
    draw_go(viewer);
}
