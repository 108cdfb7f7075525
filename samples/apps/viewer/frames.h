// How long frames take: for the graph, and for a report that a test reads.
#ifndef FRAMES_H
#define FRAMES_H
#include <cstdarg>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

struct FrameTime {
    float milliseconds, update; // of the frame without waiting for the next one; of those inside sumi_engine_update
};

class FrameLog {
  public:
    static constexpr int shown_count = 120;
    void add(double seconds, double update_seconds);
    // 0: the last one
    const FrameTime& recent(int age) const { return ring_[(next_ + shown_count - 1 - age) % shown_count]; }
    const std::vector<FrameTime>& all() const { return all_; }
    void keep_all() { keeps_all_ = true; }

  private:
    FrameTime ring_[shown_count] = {};
    int next_ = 0;
    bool keeps_all_ = false;
    std::vector<FrameTime> all_;
};

struct Rectangle {
    float left, top, right, bottom;
};

// Lines of text, written at once: "event 1.234 done 7", "widget save 900 40 78 26" (the middle and the size), "widget
// save below" when it has to be scrolled to, "widget save gone", "frame" behind each of them, and at the end what frames
// took. Without a file nothing is kept.
class Report {
  public:
    ~Report();
    bool open(const char* path);
    bool is_on() const { return file_ != nullptr; }
    void event(double seconds, const char* format, ...) __attribute__((format(printf, 3, 4)));
    // Where to click, when that has changed. `hidden`: "", or the side of its panel at which it is out of sight.
    void widget(const char* name, const Rectangle& place, const char* hidden);
    void frame(); // one was drawn
    void sum(const FrameLog& frames);

  private:
    std::FILE* file_ = nullptr;
    struct Widget {
        std::string place;
        bool is_drawn; // in this frame
    };
    std::map<std::string, Widget> widgets_;
};
#endif
