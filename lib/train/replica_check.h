// Finds silent data corruption: weights of which every rank has a copy must have the same bits on all ranks. Each rank
// computes a checksum per tensor on its device, and the ranks exchange one of 64 bits over all of them. Only if these
// differ do they compare tensor by tensor, to name the rank and the first tensor that differ.
#pragma once

#include "comm/communicator.h"
#include "model/tensor_file.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace trainopt {

/// Checksum of the bits of `tensor`, whatever its type: Σ (2i + 1)·xᵢ modulo 2⁶⁴ over its elements in memory order,
/// read as integers. An int64 scalar on the tensor's device; does not wait for it. The sum has no rounding, so its
/// order does not matter. The weights are odd and differ, so one changed element, or two exchanged elements of up to 32
/// bits, always change the sum. The elements must fill their memory without gaps. Needs 64 MiB of temporary memory at
/// most.
at::Tensor checksum(const at::Tensor& tensor);

class ReplicaCheck {
 public:
  /// `communicator` must outlive this object. `every_n_steps`: 0 for never.
  ReplicaCheck(Communicator& communicator, int64_t every_n_steps)
      : communicator_(communicator), every_n_steps_(every_n_steps) {}

  bool enabled() const { return every_n_steps_ > 0 && communicator_.ranks() > 1; }
  bool due(int64_t step) const { return enabled() && step % every_n_steps_ == 0; }
  /// Compares the tensors, the same list on every rank, after `step`. Waits for the device; every rank must call it.
  /// Throws UserError on all ranks if any differ: hardware with the rank (with two ranks, both) and the first tensor
  /// that differ, or diverged if that tensor is non-finite on every rank, since the bits of a NaN are arbitrary.
  void compare(const NamedTensors& tensors, int64_t step);

 private:
  Communicator& communicator_;
  int64_t every_n_steps_;
  std::optional<int64_t> passed_step_;  ///< of the last comparison without a difference
};

}  // namespace trainopt
