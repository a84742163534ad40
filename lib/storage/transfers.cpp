#include "storage/transfers.h"

#include "base/signals.h"

#include <chrono>

namespace trainopt {

Transfers::~Transfers() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    waiting_.clear();
    for (const auto& connection : connections_) connection->abort();
  }
  work_.notify_all();
  stopped_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::future<void> Transfers::start(Job job, Place place) {
  std::packaged_task<void(HttpConnection&, const WaitOrStop&)> task(std::move(job));
  std::future<void> done = task.get_future();
  {
    const std::lock_guard lock(mutex_);
    if (place == Place::next)
      waiting_.push_front(std::move(task));
    else
      waiting_.push_back(std::move(task));
    if (idle_ < static_cast<int64_t>(waiting_.size()) && static_cast<int64_t>(threads_.size()) < most_) {
      add_thread();
    }
  }
  work_.notify_one();
  return done;
}

/// Without one more, those that there are do the work.
void Transfers::add_thread() {
  const BlockedSignals blocked;
  try {
    HttpConnection& connection = *connections_.emplace_back(std::make_unique<HttpConnection>());
    threads_.emplace_back([this, &connection] { work(connection); });
  } catch (const std::exception&) {
    if (!threads_.empty()) return;
    waiting_.clear();
    throw;
  }
}

void Transfers::work(HttpConnection& connection) {
  const WaitOrStop wait = [this](double seconds) { return wait_or_stop(seconds); };
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_;
    work_.wait(lock, [&] { return stop_ || !waiting_.empty(); });
    --idle_;
    if (stop_) return;
    auto task = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    task(connection, wait);
    lock.lock();
  }
}

bool Transfers::wait_or_stop(double seconds) {
  std::unique_lock lock(mutex_);
  return !stopped_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return stop_; });
}

}  // namespace trainopt
