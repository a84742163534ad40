// Numbers come back from the device a step or two late, so that writing every step down costs no synchronisation:
// submit() queues one small copy into a pinned ring and an event behind it, poll() reads what has arrived.
#pragma once

#include "device/stream.h"
#include "metrics/record.h"

#include <ATen/core/Tensor.h>

#include <array>
#include <deque>
#include <vector>

namespace trainopt {

class AsyncReader {
 public:
  /// Rows are at most this many steps behind.
  static constexpr size_t kMostInFlight = 2;

  /// `steady`: on a GPU rows are always that late, whenever they arrive, so that several ranks have the same ones in
  /// the same step.
  explicit AsyncReader(c10::Device device, bool steady = false);

  /// Takes the step's numbers after its last work was queued on the current stream. On the CPU the row is ready at
  /// once; on a GPU this waits for the oldest step if two more are already on their way, which also keeps the host from
  /// running far ahead.
  void submit(PendingRecord record);
  /// Rows that have arrived since the last call, in order; never waits.
  std::vector<StepRecord> poll();
  /// Waits for the rest. After it, submit() may be called again.
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
  bool steady_;
  at::Tensor ring_;             ///< [kMostInFlight + 1, kMetricCount] float32, pinned
  std::vector<Event> arrived_;  ///< by slot of the ring
  std::deque<InFlight> in_flight_;
  size_t next_slot_ = 0;
  std::vector<StepRecord> ready_rows_;
};

}  // namespace trainopt
