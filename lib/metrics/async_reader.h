// Reads metrics from the device one or two steps late, so that recording every step costs no synchronisation. submit()
// queues one small copy into a pinned ring and an event after it; poll() reads what has arrived.
#pragma once

#include "device/stream.h"
#include "metrics/record.h"

#include <ATen/core/Tensor.h>

#include <deque>
#include <vector>

namespace trainopt {

class AsyncReader {
 public:
  /// Rows are at most this many steps behind.
  static constexpr size_t kMaxInFlight = 2;

  /// `fixed_delay`: on a GPU, rows are always that late, even if they arrive earlier, so that all ranks see the same
  /// rows in the same step.
  explicit AsyncReader(c10::Device device, bool fixed_delay = false);

  /// Call after the step's last work is queued on the current stream. On the CPU the row is ready at once. On a GPU,
  /// waits for the oldest step if two newer ones are in flight, which also keeps the host from running far ahead.
  void submit(PendingRecord record);
  /// Rows that have arrived since the last call, in order; never waits.
  std::vector<StepRecord> poll();
  /// Waits for the remaining rows. submit() may be called again afterwards.
  std::vector<StepRecord> flush();
  size_t in_flight() const { return in_flight_.size(); }

 private:
  struct InFlight {
    PendingRecord record;
    size_t slot;
  };
  void queue_copy(const PendingRecord& record, size_t slot);
  void read_oldest();

  c10::Device device_;
  bool fixed_delay_;
  at::Tensor ring_;             ///< [kMaxInFlight + 1, kMetricCount] float32, pinned
  std::vector<Event> arrived_;  ///< one per slot of the ring
  std::deque<InFlight> in_flight_;
  size_t next_slot_ = 0;
  std::vector<StepRecord> ready_rows_;
};

}  // namespace trainopt
