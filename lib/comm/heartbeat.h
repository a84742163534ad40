// Each rank writes to the job's store twice a second that it is alive and where it is. By that the other ranks find
// those that are gone.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace trainopt {

inline constexpr double kSilentS = 3;     ///< without a beat: the rank is gone. A process that only waits still beats
inline constexpr double kFarewellS = 10;  ///< rank 0 waits so long for the others to read why the job ends
inline constexpr auto kPollInterval = std::chrono::milliseconds(20);

/// What the store knows of a rank.
struct Beat {
  int64_t rank = 0, count = -1, steps = 0;
  std::string stage;
  bool left = false;  ///< it has ended in order
  bool asks = false;  ///< it asks why the job failed
};
/// Of all ranks, by rank.
std::vector<Beat> read_beats(c10d::Store& store, int64_t ranks);

class Heartbeat {
 public:
  /// Beats until it is destroyed, on a thread and over a connection of its own: a call that hangs holds up all others
  /// of its connection.
  Heartbeat(c10::intrusive_ptr<c10d::Store> store, int64_t rank);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// Must be a string literal. Wait-free; called by one thread.
  void at(const char* stage, int64_t steps) noexcept;

 private:
  void run();

  c10::intrusive_ptr<c10d::Store> store_;
  int64_t rank_;
  std::atomic<const char*> stage_{"start"};
  std::atomic<int64_t> steps_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  bool leaving_ = false;
  std::thread thread_;
};

/// On rank 0, which serves the store: returns once all others have left, or are silent.
void wait_for_farewells(c10d::Store& store, int64_t ranks);

}  // namespace trainopt
