// One thread for what would hold up a frame: files, and opening models.
#ifndef WORKER_H
#define WORKER_H
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

class Worker {
  public:
    explicit Worker(void (*wake)()); // called on the thread whenever something is ready to be delivered
    ~Worker();                       // finishes the tasks that were posted; nothing more is delivered
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    // `task` runs on the thread, in the order of posting; then `then` on the caller's, inside deliver().
    void post(std::function<void()> task, std::function<void()> then);
    void deliver();
    bool is_idle();

  private:
    struct Item {
        std::function<void()> task, then;
    };
    void run();

    void (*wake_)();
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Item> waiting_, done_;
    size_t open_count_ = 0; // posted and not delivered yet
    bool ends_ = false;
    std::thread thread_; // last: it uses the members above
};
#endif
