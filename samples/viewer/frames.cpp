#include "frames.h"
#include <algorithm>

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
    va_list arguments;
    va_start(arguments, format);
    fprintf(file_, "event %.3f ", seconds);
    vfprintf(file_, format, arguments);
    fputc('\n', file_);
    fflush(file_);
    va_end(arguments);
}

void Report::widget(const char* name, float x, float y)
{
    if (!file_) return;
    const std::pair<int, int> place = {(int)x, (int)y};
    auto known = widgets_.find(name);
    if (known != widgets_.end() && known->second == place) return;
    widgets_[name] = place;
    fprintf(file_, "widget %s %d %d\n", name, place.first, place.second);
    fflush(file_);
}

void Report::frame()
{
    if (!file_) return;
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
