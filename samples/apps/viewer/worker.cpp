#include "worker.h"
#include <utility>

Worker::Worker(void (*wake)()) : wake_(wake), thread_([this] { run(); }) {}

Worker::~Worker()
{
    {
        std::lock_guard<std::mutex> lock(mutex_);
        ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void Worker::post(std::function<void()> task, std::function<void()> then)
{
    {
        std::lock_guard<std::mutex> lock(mutex_);
        waiting_.push_back({std::move(task), std::move(then)});
        open_count_++;
    }
    changed_.notify_all();
}

void Worker::deliver()
{
    for (;;) {
        Item item;
        {
            std::lock_guard<std::mutex> lock(mutex_);
            if (done_.empty()) return;
            item = std::move(done_.front());
            done_.pop_front();
            open_count_--;
        }
        if (item.then) item.then();
    }
}

bool Worker::is_idle()
{
    std::lock_guard<std::mutex> lock(mutex_);
    return open_count_ == 0;
}

void Worker::run()
{
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return ends_ || !waiting_.empty(); });
        if (waiting_.empty()) return;
        Item item = std::move(waiting_.front());
        waiting_.pop_front();
        lock.unlock();
        item.task();
        item.task = nullptr; // what it holds goes here, not in a frame
        lock.lock();
        done_.push_back(std::move(item));
        wake_();
    }
}
