// Threads that each keep a connection open and run transfers.
#pragma once

#include "storage/http.h"
#include "storage/s3/s3_client.h"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace trainopt {

class Transfers {
 public:
  using Job = std::function<void(HttpConnection&, const WaitOrStop&)>;

  /// Starts up to `most` threads, as they are needed.
  explicit Transfers(int64_t most) : most_(most) {}
  ~Transfers();  ///< aborts what is running; what was not begun fails
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  enum class Place { next, last };  ///< `next`: ahead of those that wait, because somebody waits for it
  /// The future throws what the job throws.
  std::future<void> start(Job job, Place place);

 private:
  void add_thread();
  void work(HttpConnection& connection);
  bool wait_or_stop(double seconds);

  int64_t most_;
  std::mutex mutex_;
  std::condition_variable work_, stopped_;
  std::deque<std::packaged_task<void(HttpConnection&, const WaitOrStop&)>> waiting_;
  std::vector<std::unique_ptr<HttpConnection>> connections_;
  std::vector<std::thread> threads_;
  int64_t idle_ = 0;
  bool stop_ = false;
};

}  // namespace trainopt
