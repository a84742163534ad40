// The gradient exchange of data parallelism (Li et al. 2020, "PyTorch Distributed"): sums gradients over the ranks
// bucket by bucket, each bucket as soon as backward has filled it. Wraps c10d::Reducer, whose header promises no
// stability.
#pragma once

#include "comm/communicator.h"

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

namespace trainopt {

struct GradientReducerOptions {
  int64_t bucket_bytes = 25 << 20;          ///< maximum, unless a single gradient is larger
  bool overlap = true;                      ///< false: send all buckets when backward has ended
  std::optional<at::ScalarType> wire_type;  ///< type to which gradients are rounded for the exchange; null: unchanged
};

class GradientReducer {
 public:
  /// `parameters`: leaves that require gradients, in model order. Their gradients become views of buckets.
  GradientReducer(Communicator& communicator, std::vector<at::Tensor> parameters,
                  const GradientReducerOptions& options);
  ~GradientReducer();

  /// Call before the forward pass whose backward should sum gradients over the ranks; otherwise they only accumulate
  /// locally. That backward throws LostRank if a rank is gone.
  void prepare();
  /// Lays out the buckets in the order in which the first backward filled them; does nothing before that and after the
  /// first time. Meanwhile the gradients exist twice, so call it when little else is in memory. Every rank must call
  /// it.
  void rebuild();

 private:
  class Sender;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trainopt
