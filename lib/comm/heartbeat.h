// Twice a second each rank writes a heartbeat with its current stage to the job's store. The other ranks use it to
// detect ranks that are gone.
#pragma once

#include "comm/store.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace trainopt {

inline constexpr double kHeartbeatTimeoutS =
    3;                                    ///< no heartbeat for this long: the rank is gone (a blocked rank still beats)
inline constexpr double kExitWaitS = 10;  ///< how long rank 0 waits for the others to read why the job ends
inline constexpr auto kPollInterval = std::chrono::milliseconds(20);

/// What the store knows about a rank.
struct Beat {
  int64_t rank = 0, count = -1, steps = 0;
  std::string stage;
  bool left = false;        ///< it has left the job in an orderly way
  bool explaining = false;  ///< it is asking why the job failed
};
/// The state of all ranks, indexed by rank.
std::vector<Beat> read_beats(c10d::Store& store, int64_t ranks);

class Heartbeat {
 public:
  /// Beats until destroyed, on its own thread. `store` must be a separate connection: a hanging call blocks all other
  /// calls on its connection.
  Heartbeat(c10::intrusive_ptr<c10d::Store> store, int64_t rank);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// Sets what the next beat reports. `stage` must be a string literal. Wait-free; call from one thread only.
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

/// For rank 0, which serves the store: returns once all others have left or fallen silent, at most after kExitWaitS.
void wait_for_other_ranks(c10d::Store& store, int64_t ranks);

}  // namespace trainopt
