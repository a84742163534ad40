// Data parallelism's exchange (Li et al. 2020, "PyTorch Distributed"): gradients become sums over the ranks, bucket by
// bucket, each as soon as backward has filled it. Around c10d::Reducer, whose header carries no promise.
#pragma once

#include "comm/communicator.h"

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

namespace trainopt {

struct GradientReducerOptions {
  int64_t bucket_bytes = 25 << 20;          ///< at most, unless one gradient is larger
  bool overlap = true;                      ///< false: buckets are sent when backward has ended
  std::optional<at::ScalarType> wire_type;  ///< gradients are rounded to it for the exchange; null: as they are
};

class GradientReducer {
 public:
  /// `parameters`: leaves that require gradients, in the model's order. Their gradients become views of buckets.
  GradientReducer(Communicator& communicator, std::vector<at::Tensor> parameters,
                  const GradientReducerOptions& options);
  ~GradientReducer();

  /// Before the forward whose backward is to end with summed gradients; without it they only accumulate.
  /// That backward throws LostRank if a rank is gone.
  void prepare();

 private:
  class Sender;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trainopt
