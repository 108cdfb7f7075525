#include "viewer.h"
#include <algorithm>
#include <cmath>

static constexpr float FRAME_MS = 1000.0f / 60.0f;

// Bars from right to left, the newest at the right: below, in colour, what sumi took; above it the rest of the frame.
static void draw_graph(Viewer& viewer)
{
    const float width = ImGui::GetContentRegionAvail().x, height = viewer.theme(92);
    const ImVec2 corner = ImGui::GetCursorScreenPos(), end(corner.x + width, corner.y + height);
    ImGui::Dummy(ImVec2(width, height));
    hint("Milliseconds of each frame: those of sumi_engine_update in colour, drawing and the rest in grey. The line is "
         "the budget, the dotted one 60 frames in "
         "a second.");
    ImDrawList* list = ImGui::GetWindowDrawList();
    list->AddRectFilled(corner, end, ImGui::GetColorU32(colour::FIELD), viewer.theme(5));
    const float step = std::floor(viewer.theme(2));
    const int count = std::min(FrameLog::shown_count, (int)(width / step) - 1);
    // High enough for all but a few: one long frame does not flatten the rest.
    std::vector<float> sorted;
    for (int i = 0; i < count; i++) sorted.push_back(viewer.frames.recent(i).milliseconds);
    std::sort(sorted.begin(), sorted.end());
    const float most = std::clamp(1.3f * sorted[(size_t)(0.95f * (float)(count - 1))], 1.3f * FRAME_MS, 200.0f),
                unit = height / most;
    for (int i = 0; i < count; i++) {
        const FrameTime& time = viewer.frames.recent(i);
        // no gaps: lines of a pixel would flicker
        const float right = std::floor(end.x) - step * (float)i - 1.0f, left = right - step;
        const float whole = std::min(time.milliseconds, most) * unit, update = std::min(time.update, most) * unit;
        list->AddRectFilled(ImVec2(left, end.y - whole), ImVec2(right, end.y - update),
                            ImGui::GetColorU32(IM_COL32(84, 90, 103, 255)));
        if (update > 0.0f)
            list->AddRectFilled(ImVec2(left, end.y - update), ImVec2(right, end.y), ImGui::GetColorU32(colour::WASH));
    }
    const float budget = std::floor(end.y - viewer.budget_ms * unit), frame = std::floor(end.y - FRAME_MS * unit);
    if (budget > corner.y)
        list->AddLine(ImVec2(corner.x, budget), ImVec2(end.x, budget), ImGui::GetColorU32(colour::SEAL),
                      viewer.theme(1));
    if (frame > corner.y)
        for (float x = corner.x + viewer.theme(4); x < end.x; x += viewer.theme(6))
            list->AddLine(ImVec2(x, frame), ImVec2(x + viewer.theme(2), frame), ImGui::GetColorU32(colour::DIM));
}

static void row(const Viewer& viewer, const char* name, const std::string& value, ImU32 square = 0)
{
    const float size = viewer.theme(8);
    if (square) {
        const ImVec2 corner = ImGui::GetCursorScreenPos();
        const float y = corner.y + 0.5f * (ImGui::GetTextLineHeight() - size);
        ImGui::GetWindowDrawList()->AddRectFilled(ImVec2(corner.x, y), ImVec2(corner.x + size, y + size), square,
                                                  viewer.theme(2));
        ImGui::SetCursorPosX(ImGui::GetCursorPosX() + viewer.theme(15));
    }
    ImGui::PushStyleColor(ImGuiCol_Text, colour::DIM);
    ImGui::TextUnformatted(name);
    ImGui::PopStyleColor();
    const float width = ImGui::CalcTextSize(value.c_str()).x;
    ImGui::SameLine(ImGui::GetWindowContentRegionMax().x - width);
    ImGui::TextUnformatted(value.c_str());
}

struct Part {
    const char* name;
    double value;
    ImU32 shade;
};

static void stacked_bar(const Viewer& viewer, const Part* parts, int count)
{
    double sum = 0.0;
    for (int i = 0; i < count; i++) sum += parts[i].value;
    const float width = ImGui::GetContentRegionAvail().x, height = viewer.theme(8);
    const ImVec2 corner = ImGui::GetCursorScreenPos();
    ImDrawList* list = ImGui::GetWindowDrawList();
    list->AddRectFilled(corner, ImVec2(corner.x + width, corner.y + height), ImGui::GetColorU32(colour::FIELD),
                        viewer.theme(3));
    float x = corner.x;
    for (int i = 0; i < count && sum > 0.0; i++) {
        const float part = std::floor((float)(parts[i].value / sum) * width);
        if (part < 1.0f) continue;
        list->AddRectFilled(ImVec2(x, corner.y), ImVec2(x + std::max(1.0f, part - 1.0f), corner.y + height),
                            parts[i].shade, viewer.theme(2));
        x += part;
    }
    ImGui::Dummy(ImVec2(width, height));
}

static std::string seconds_text(double seconds)
{
    char text[32];
    snprintf(text, sizeof text, seconds < 1.0 ? "%.0f ms" : "%.2f s", seconds < 1.0 ? 1e3 * seconds : seconds);
    return text;
}

static void draw_frames(Viewer& viewer)
{
    heading(viewer, "FRAMES");
    draw_graph(viewer);
    float frame = 0.0f, update = 0.0f;
    for (int i = 0; i < 20; i++)
        frame += viewer.frames.recent(i).milliseconds / 20.0f, update += viewer.frames.recent(i).update / 20.0f;
    char text[64];
    snprintf(text, sizeof text, "%.1f ms", (double)frame);
    row(viewer, "one frame", text);
    snprintf(text, sizeof text, "%.1f ms", (double)update);
    row(viewer, "of it in sumi", text, colour::WASH);
    ImGui::Dummy(ImVec2(0, 0));
    ImGui::SetNextItemWidth(-1.0f);
    if (slider("##budget", &viewer.budget_ms, 0.5f, 50.0f, "budget %.1f ms", true))
        viewer.report.event(viewer.now, "budget %.1f", (double)viewer.budget_ms);
    mark(viewer, "budget");
    hint("How long sumi_engine_update may work in each frame. It never changes the picture. On a GPU it bounds what is "
         "on its way to the device.");
}

static void draw_stages(Viewer& viewer)
{
    const bool runs = viewer.generator.is_generating();
    if (!runs && !viewer.shown) return;
    heading(viewer, runs ? "THIS PICTURE" : "PICTURE SHOWN");
    const sumi_job_status status = viewer.generator.status();
    const float* seconds = runs ? status.stage_seconds : viewer.shown->stage_seconds;
    const double text = (double)seconds[SUMI_STAGE_TEXT], encode = (double)seconds[SUMI_STAGE_IMAGE],
                 denoise = (double)seconds[SUMI_STAGE_DENOISE], decode = (double)seconds[SUMI_STAGE_DECODE];
    double rest = 0.0;
    for (int i = 0; i < 8; i++) rest += (double)seconds[i];
    rest -= text + encode + denoise + decode;
    const Part parts[] = {{"text", text, colour::SAND},
                          {"encoding", encode, colour::SEAL},
                          {"denoising", denoise, colour::WASH},
                          {"decoding", decode, colour::LEAF},
                          {"the rest", rest, colour::FAINT}};
    stacked_bar(viewer, parts, 5);
    for (const Part& part : parts)
        // few pictures start from one
        if (part.value > 0.0 || part.shade != colour::SEAL)
            row(viewer, part.name, seconds_text(part.value), part.shade);
    row(viewer, "on the clock",
        seconds_text(runs ? viewer.generator.seconds_since_start(viewer.now) : viewer.shown->seconds));
    if (runs) return;
    const bool is_direct = viewer.display.is_direct();
    row(viewer, "shown by", is_direct ? "GPU texture" : "pixel buffer");
    const std::string why = viewer.display.why_not().empty() ? "it comes from the history" : viewer.display.why_not();
    hint(is_direct ? "The GPU wrote the picture into the texture that is drawn here, without a way through host memory."
                   : ("The picture came through host memory: " + why + ".").c_str());
}

static const char* weights_text(sumi_weight_format weights)
{
    switch (weights) {
    case SUMI_WEIGHTS_FP8: return "fp8";
    case SUMI_WEIGHTS_INT8: return "int8";
    case SUMI_WEIGHTS_INT4: return "int4";
    case SUMI_WEIGHTS_AS_STORED: return "its file's format";
    default: return "bfloat16";
    }
}

static void draw_memory(Viewer& viewer)
{
    heading(viewer, "MEMORY");
    const sumi_engine_info info = viewer.generator.info();
    const bool on_gpu = info.compute_capability > 0;
    const Part parts[] = {
        {on_gpu ? "weights" : "weights, mapped", (double)info.held_bytes[SUMI_MEMORY_WEIGHTS], colour::SAND},
        {"intermediate values", (double)info.held_bytes[SUMI_MEMORY_ARENA], colour::WASH},
        {"pictures", (double)info.held_bytes[SUMI_MEMORY_IMAGE], colour::LEAF},
        {on_gpu ? "pinned" : "packing", (double)info.held_bytes[SUMI_MEMORY_STAGING], colour::SEAL}};
    stacked_bar(viewer, parts, 4);
    for (const Part& part : parts) row(viewer, part.name, bytes_text(part.value), part.shade);
    if (on_gpu && viewer.generator.is_ready()) {
        const sumi_model_info model = viewer.generator.model_info();
        row(viewer, "transformer in", weights_text(model.weights));
        if (model.has_text_encoder) row(viewer, "text encoder in", weights_text(model.text_weights));
        if (model.attention == SUMI_ATTENTION_8BIT) row(viewer, "attention in", "8 bits");
    }
    if (on_gpu) row(viewer, "driver, other programs", bytes_text((double)info.uncounted_bytes));
    row(viewer, "host memory", bytes_text((double)info.host_bytes));
    row(viewer, "host memory, peak", bytes_text((double)info.host_peak_bytes));
    const sumi_memory& next = viewer.generator.memory();
    if (next.arena == 0) return;
    heading(viewer, "THE NEXT PICTURE NEEDS");
    row(viewer, "intermediate values", bytes_text((double)next.arena));
    row(viewer, on_gpu ? "pinned" : "packing", bytes_text((double)next.staging));
    row(viewer, "pictures", bytes_text((double)next.images));
    if (next.streamed) row(viewer, "streamed weights", bytes_text((double)next.streamed));
    if (next.tiles_vae) row(viewer, "VAE", "in tiles");
}

void draw_monitor(Viewer& viewer)
{
    draw_frames(viewer);
    draw_stages(viewer);
    draw_memory(viewer);
}
