#include "queue.h"
#include "viewer.h"
#include <algorithm>
#include <cstring>

// Sets the size of pictures whose size follows from their references. Returns false while nobody can tell it, because the
// engine is lent to the worker thread.
static bool settle_size(Viewer& viewer, Settings& settings)
{
    if (!settings.has_size_of_references()) return true;
    if (!viewer.generator.can_tell_size()) return false;
    const sumi_size size = viewer.generator.size_of(settings);
    if (size.width > 0) settings.width = size.width, settings.height = size.height;
    return true;
}

void add_to_queue(Viewer& viewer, const Settings& settings, int picture_count)
{
    std::deque<QueuedJob>& jobs = viewer.queue.jobs;
    jobs.push_back({viewer.queue.next_number++, settings, picture_count, 0});
    (void)settle_size(viewer, jobs.back().settings); // for its tile; if it cannot be told, advance_queue asks again
    if (jobs.size() > 1) viewer.report.event(viewer.now, "queued %zu", jobs.size() - 1);
}

void skip_running(Viewer& viewer)
{
    if (viewer.queue.jobs.empty()) return;
    QueuedJob& job = viewer.queue.jobs.front();
    job.started_count = job.picture_count;
}

void remove_from_queue(Viewer& viewer, uint64_t number)
{
    std::deque<QueuedJob>& jobs = viewer.queue.jobs;
    auto at = std::find_if(jobs.begin(), jobs.end(), [number](const QueuedJob& job) { return job.number == number; });
    if (at == jobs.end()) return;
    if (at == jobs.begin() && viewer.generator.is_generating()) return cancel(viewer);
    jobs.erase(at);
    viewer.report.event(viewer.now, "queued %zu", jobs.empty() ? 0 : jobs.size() - 1);
}

void clear_queue(Viewer& viewer)
{
    std::deque<QueuedJob>& jobs = viewer.queue.jobs;
    const size_t kept = std::min<size_t>(jobs.size(), viewer.generator.is_generating() ? 1 : 0);
    jobs.erase(jobs.begin() + (std::ptrdiff_t)kept, jobs.end());
    viewer.report.event(viewer.now, "queued 0");
}

static void start(Viewer& viewer, const Settings& settings)
{
    viewer.banner.clear();
    viewer.has_preview = viewer.has_source = false;
    viewer.status.clear();
    viewer.generator.generate(settings);
    std::string prompt = settings.prompt;
    std::replace(prompt.begin(), prompt.end(), '\n', ' ');
    viewer.report.event(viewer.now, "generate %llu %dx%d %d %s", (unsigned long long)settings.seed, settings.width,
                        settings.height, settings.step_count, prompt.c_str());
}

void advance_queue(Viewer& viewer)
{
    std::deque<QueuedJob>& jobs = viewer.queue.jobs;
    if (!viewer.generator.is_ready() || viewer.generator.is_generating()) return;
    while (!jobs.empty() && jobs.front().started_count >= jobs.front().picture_count) jobs.pop_front();
    if (jobs.empty()) return;
    QueuedJob& job = jobs.front();
    if (!find_adapters(viewer, job.settings) || !find_control(viewer, job.settings))
        return; // some are being read still
    if (!settle_size(viewer, job.settings)) return;
    Settings settings = job.settings;
    settings.seed += (uint64_t)job.started_count++;
    start(viewer, settings);
}

// ---- The tiles ------------------------------------------------------------------------------------------------------

// A line that begins at `text` and fits the width; returns where the next one begins.
static const char* draw_line(const char* text, ImVec2 at, float width)
{
    const char* end = ImGui::GetFont()->CalcWordWrapPositionA(1.0f, text, text + strlen(text), width);
    if (end == text) end++;
    ImGui::GetWindowDrawList()->AddText(at, ImGui::GetColorU32(colour::DIM), text, end);
    while (*end == ' ') end++;
    return end;
}

static void draw_cross(const Viewer& viewer, ImVec2 corner, float side)
{
    ImDrawList* list = ImGui::GetWindowDrawList();
    const bool is_hot = ImGui::IsItemHovered();
    const float a = 0.32f * side, b = 0.68f * side;
    list->AddRectFilled(corner, ImVec2(corner.x + side, corner.y + side),
                        is_hot ? colour::SEAL : IM_COL32(10, 11, 14, 190), viewer.theme(4));
    list->AddLine(ImVec2(corner.x + a, corner.y + a), ImVec2(corner.x + b, corner.y + b), colour::TEXT,
                  viewer.theme(1.3f));
    list->AddLine(ImVec2(corner.x + b, corner.y + a), ImVec2(corner.x + a, corner.y + b), colour::TEXT,
                  viewer.theme(1.3f));
}

// Returns whether it is to be removed.
static bool draw_tile(Viewer& viewer, size_t index, float side)
{
    const QueuedJob& job = viewer.queue.jobs[index];
    const Settings& s = job.settings;
    const bool runs = index == 0;
    ImDrawList* list = ImGui::GetWindowDrawList();
    const ImVec2 corner = ImGui::GetCursorScreenPos(), end(corner.x + side, corner.y + side);
    char name[48], text[4400];
    if (ImGui::InvisibleButton("tile", ImVec2(side, side)) && runs) viewer.watches = true;
    ImGui::SetItemAllowOverlap();
    const bool is_over = ImGui::IsMouseHoveringRect(corner, end) && ImGui::IsWindowHovered();
    snprintf(name, sizeof name, "queued-%zu", index);
    mark(viewer, name);
    if (job.picture_count > 1)
        snprintf(text, sizeof text, "%s: %d pictures, %d \u00d7 %d, from seed %llu\n%s", runs ? "Being made" : "Waits",
                 job.picture_count, s.width, s.height, (unsigned long long)s.seed, s.prompt.c_str());
    else
        snprintf(text, sizeof text, "%s: %d \u00d7 %d, seed %llu\n%s", runs ? "Being made" : "Waits", s.width, s.height,
                 (unsigned long long)s.seed, s.prompt.c_str());
    hint(text);
    list->AddRectFilled(corner, end, ImGui::GetColorU32(is_over ? colour::FIELD_HOT : colour::FIELD), viewer.theme(4));
    if (runs && viewer.has_preview && viewer.generator.is_generating()) {
        const float width = (float)viewer.preview.width(), height = (float)viewer.preview.height(),
                    shorter = std::min(width, height);
        const ImVec2 low(0.5f - 0.5f * shorter / width, 0.5f - 0.5f * shorter / height);
        list->AddImageRounded(viewer.preview.id(), corner, end, low, ImVec2(1.0f - low.x, 1.0f - low.y),
                              IM_COL32(255, 255, 255, 150), viewer.theme(4));
    } else {
        ImGui::PushFont(viewer.theme.small);
        const float pad = viewer.theme(6), line = ImGui::GetTextLineHeight();
        const char* at = s.prompt.c_str();
        for (float y = corner.y + pad; *at && y + line < end.y - line; y += line)
            at = draw_line(at, ImVec2(corner.x + pad, y), side - 2.0f * pad);
        ImGui::PopFont();
    }
    char badge[32] = "";
    if (job.picture_count > 1 && runs) snprintf(badge, sizeof badge, "%d / %d", job.started_count, job.picture_count);
    else if (job.picture_count > 1) snprintf(badge, sizeof badge, "\u00d7 %d", job.picture_count);
    ImGui::PushFont(viewer.theme.small);
    const ImVec2 size = ImGui::CalcTextSize(badge);
    list->AddText(ImVec2(end.x - size.x - viewer.theme(6), end.y - size.y - viewer.theme(7)), colour::TEXT, badge);
    ImGui::PopFont();
    if (runs) {
        const float progress = viewer.generator.is_generating() ? viewer.generator.status().progress : 0.0f;
        list->AddRectFilled(ImVec2(corner.x, end.y - viewer.theme(4)),
                            ImVec2(corner.x + std::max(viewer.theme(4), side * progress), end.y), colour::SEAL,
                            viewer.theme(2));
    }
    const float cross = viewer.theme(20), inset = viewer.theme(3);
    const ImVec2 back = ImGui::GetCursorScreenPos(), at(end.x - cross - inset, corner.y + inset);
    ImGui::SetCursorScreenPos(at);
    const bool removes = ImGui::InvisibleButton("remove", ImVec2(cross, cross));
    snprintf(name, sizeof name, "queued-%zu-remove", index);
    mark(viewer, name);
    hint(runs ? "Cancel it (Esc)" : "Take it out of the queue (Shift+Esc: all of them)");
    if (is_over) draw_cross(viewer, at, cross);
    ImGui::SetCursorScreenPos(back);
    return removes;
}

float draw_queue(Viewer& viewer, float side)
{
    const ImVec2 begin = ImGui::GetCursorScreenPos();
    const float gap = ImGui::GetStyle().ItemSpacing.x;
    uint64_t removed = 0;
    ImVec2 at = begin;
    for (size_t i = 0; i < viewer.queue.jobs.size(); i++) {
        ImGui::SetCursorScreenPos(at);
        ImGui::PushID((int)viewer.queue.jobs[i].number);
        if (draw_tile(viewer, i, side)) removed = viewer.queue.jobs[i].number;
        ImGui::PopID();
        at.x += side + gap;
    }
    if (at.x > begin.x) {
        ImGui::GetWindowDrawList()->AddLine(ImVec2(at.x, at.y), ImVec2(at.x, at.y + side), colour::LINE,
                                            viewer.theme(1));
        at.x += gap;
    }
    ImGui::SetCursorScreenPos(at);
    if (removed) remove_from_queue(viewer, removed);
    return at.x - begin.x;
}
