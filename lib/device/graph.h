// Device work that is recorded once and replayed with a single launch instead of one per kernel.
#pragma once

#include <ATen/core/Generator.h>

#include <functional>
#include <memory>

namespace trainopt {

class Graph {
 public:
  virtual ~Graph() = default;

  /// Calls `work` and records what it queues on the current stream without running it. The current stream must be a
  /// side stream on which the same work has already run. Tensors that `work` creates keep their memory as long as they
  /// are referenced, and each replay writes their values. Values that the host computes in `work` are fixed at
  /// recording; reading a device value there throws. Call once.
  virtual void record(const std::function<void()>& work) = 0;
  /// Queues the recorded work on the current stream, with the random numbers that `work` would draw now.
  virtual void replay() = 0;
};

/// `generator`: the generator that the work draws from, in addition to libtorch's default one. With a `pool_owner`,
/// which must have been recorded, the two graphs share a memory pool: they must never run at the same time, and tensors
/// that one passes to the other must be kept referenced. Throws UserError without libtrainopt_cuda.so.
std::unique_ptr<Graph> make_graph(const at::Generator& generator, const Graph* pool_owner);

using MakeGraph = std::function<std::unique_ptr<Graph>(const at::Generator& generator, const Graph* pool_owner)>;

}  // namespace trainopt
