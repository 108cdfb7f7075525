#include "frames.h"
#include <algorithm>
extern "C" {
#include "utf8.h"
}

void FrameLog::add(double seconds, double update_seconds)
{
    const FrameTime time = {(float)(1e3 * seconds), (float)(1e3 * update_seconds)};
    ring_[next_] = time;
    next_ = (next_ + 1) % shown_count;
    if (keeps_all_) all_.push_back(time);
}

Report::~Report()
{
    if (file_) fclose(file_);
}

bool Report::open(const char* path)
{
    file_ = fopen(path, "w");
    return file_ != nullptr;
}

void Report::event(double seconds, const char* format, ...)
{
    if (!file_) return;
    char raw[4096], shown[4 * sizeof raw];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(raw, sizeof raw, format, arguments);
    va_end(arguments);
    utf8_show(shown, sizeof shown, raw); // one event is one line, whatever a name holds
    fprintf(file_, "event %.3f %s\n", seconds, shown);
    fflush(file_);
}

void Report::widget(const char* name, const Rectangle& at, const char* hidden)
{
    if (!file_) return;
    char place[64];
    snprintf(place, sizeof place, "%d %d %d %d", (int)(0.5f * (at.left + at.right)), (int)(0.5f * (at.top + at.bottom)),
             (int)(at.right - at.left), (int)(at.bottom - at.top));
    Widget& widget = widgets_[name];
    widget.is_drawn = true;
    const std::string now = *hidden ? hidden : place;
    if (widget.place == now) return;
    widget.place = now;
    fprintf(file_, "widget %s %s\n", name, now.c_str());
    fflush(file_);
}

void Report::frame()
{
    if (!file_) return;
    for (auto& [name, widget] : widgets_) {
        if (!widget.is_drawn && widget.place != "gone") {
            widget.place = "gone";
            fprintf(file_, "widget %s gone\n", name.c_str());
        }
        widget.is_drawn = false;
    }
    fputs("frame\n", file_);
    fflush(file_);
}

void Report::sum(const FrameLog& frames)
{
    if (!file_ || frames.all().empty()) return;
    std::vector<float> times, updates;
    for (const FrameTime& time : frames.all()) {
        times.push_back(time.milliseconds);
        if (time.update > 0.0f) updates.push_back(time.update);
    }
    std::sort(times.begin(), times.end());
    std::sort(updates.begin(), updates.end());
    auto at = [](const std::vector<float>& sorted, double part) {
        return sorted.empty() ? 0.0 : (double)sorted[(size_t)(part * (double)(sorted.size() - 1))];
    };
    fprintf(file_, "frames %zu\nmedian_ms %.2f\np99_ms %.2f\nlongest_ms %.2f\n", times.size(), at(times, 0.5),
            at(times, 0.99), at(times, 1.0));
    fprintf(file_, "updates %zu\nmedian_update_ms %.2f\np99_update_ms %.2f\nlongest_update_ms %.2f\n", updates.size(),
            at(updates, 0.5), at(updates, 0.99), at(updates, 1.0));
}
