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

// Lines of text, written at once: "event 1.234 done 7", "widget save 900 40", "frame" behind each of them, and at the
// end what frames took. Without a file nothing is kept.
class Report {
  public:
    ~Report();
    bool open(const char* path);
    bool is_on() const { return file_ != nullptr; }
    void event(double seconds, const char* format, ...) __attribute__((format(printf, 3, 4)));
    void widget(const char* name, float x, float y); // where to click, when that has changed
    void frame();                                    // one was drawn
    void sum(const FrameLog& frames);

  private:
    std::FILE* file_ = nullptr;
    std::map<std::string, std::pair<int, int>> widgets_;
};
#endif
