// What is needed to undo a step. At its start, buffers (batch-norm statistics), random state and counts are saved, so
// that a step that ran out of memory can be retried. With `detects_nonfinite`, the first non-finite loss or gradient
// sets a flag on the device. While the flag is set, nothing is written (parameters, optimizer, loss scale, averages,
// buffers). The host learns of it a step or two later and finds the state from before the bad step.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <deque>
#include <vector>

namespace trainopt {

class Gradients;
class Model;

/// The host's part of the state at a step's start.
struct StepStart {
  int64_t step = 0;                 ///< counted from 1
  int64_t samples = 0;              ///< samples seen before this step
  at::Tensor random_state;          ///< state of the model's generator
  std::vector<int64_t> sample_ids;  ///< samples in the step's micro-batches so far
};

class StepGuard {
 public:
  /// Moves the model's buffers into one block of memory per type, so that saving them costs two copies for any network.
  StepGuard(const Model& model, c10::Device device, at::Generator generator, bool detects_nonfinite);

  void begin(int64_t step, int64_t samples);
  void add_samples(const std::vector<int64_t>& ids);

  // On the device, without synchronising with the host. Call in every step, whether or not non-finite values are
  // detected.
  void watch(const at::Tensor& loss);
  /// Returns 1 (a float) if this step's update must be skipped, because `overflow` (may be undefined) or the flag is 1.
  /// Undefined if there is neither. Checks the gradients only if `overflow` is undefined: an overflow caused by a loss
  /// scale is no fault.
  at::Tensor decide(const at::Tensor& overflow, Gradients& gradients);
  /// Restores the buffers if the flag is set.
  void restore_bad_buffers();
  /// A float that is 1 from the first bad step until rewind_to(); undefined without `detects_nonfinite`.
  const at::Tensor& flag() const { return flag_; }

  // The functions below run on the host.
  /// The start of one of the last few steps; null if unknown.
  const StepStart* start_of(int64_t step) const;
  /// Restores buffers and random state to the start of the running step.
  void rollback();
  /// Restores the random state to the start of `step`, if it has begun. Clears the flag and forgets that step and later
  /// ones.
  void rewind_to(int64_t step);

 private:
  struct SavedBuffer {
    at::Tensor now, before;  ///< all buffers of one type, and their copy from the step's start
  };

  at::Generator generator_;
  std::vector<SavedBuffer> buffers_;
  at::Tensor flag_, bad_loss_;
  std::deque<StepStart> starts_;
};

}  // namespace trainopt
