// What a step must be able to take back. At its start buffers (batch-norm's statistics), random state and counts are
// noted, so that a step that ran out of memory can be tried again. With `gates`, a flag on the device is set by the
// first loss or gradient that is not finite, and while it is set nothing is written (parameters, optimizer, loss scale,
// averages, buffers): the host learns of it a step or two later and finds the state of the moment before.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <deque>
#include <vector>

namespace trainopt {

class Gradients;
class Model;

/// A step's start, as the host knows it.
struct StepStart {
  int64_t step = 0;                 ///< counted from 1
  int64_t samples = 0;              ///< seen before it
  at::Tensor random_state;          ///< of the model's generator
  std::vector<int64_t> sample_ids;  ///< of the step, as far as its micro-batches have come
};

class StepGuard {
 public:
  /// Moves the model's buffers into one piece of memory, so that keeping them costs two copies whatever the network.
  StepGuard(const Model& model, c10::Device device, at::Generator generator, bool gates);

  void begin(int64_t step, int64_t samples);
  void add_samples(const std::vector<int64_t>& ids);

  // On the device, without asking the host; called in every step, gated or not.
  void watch(const at::Tensor& loss);
  /// Whether this step's update is to be skipped: a float, 1 where `overflow` (may be undefined) or the flag is;
  /// undefined where there is neither. Checks the gradients unless `overflow` says what they are: an overflow that a
  /// loss scale causes is no fault.
  at::Tensor decide(const at::Tensor& overflow, Gradients& gradients);
  /// Puts the buffers back if the flag is set.
  void settle_buffers();
  /// A float, 1 from the first bad step on until release(); undefined without gates.
  const at::Tensor& flag() const { return flag_; }

  // On the host.
  /// The start of one of the last few steps; null if it has not begun.
  const StepStart* start_of(int64_t step) const;
  /// Buffers and random state as the step that is running found them.
  void rollback();
  /// Random state as at the start of `step`, if it has begun. Clears the flag and forgets that step and what came
  /// after.
  void rewind_to(int64_t step);

 private:
  struct Kept {
    at::Tensor now, before;  ///< all buffers of one type; and as they were at the step's start
  };

  at::Generator generator_;
  std::vector<Kept> buffers_;
  at::Tensor flag_, bad_loss_;
  std::deque<StepStart> starts_;
};

}  // namespace trainopt
