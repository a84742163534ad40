// Device work that is recorded once and replayed: one launch instead of one for every kernel in it.
#pragma once

#include <ATen/core/Generator.h>

#include <functional>
#include <memory>

namespace trainopt {

class Graph {
 public:
  virtual ~Graph() = default;

  /// Calls `work` and keeps what it queues on the current stream, a side stream on which the same work has run before;
  /// nothing of it runs now. Tensors it makes hold their place as long as somebody holds them, and get values with each
  /// replay. What the host computes meanwhile is fixed; reading a value of the device there throws. Once.
  virtual void record(const std::function<void()>& work) = 0;
  /// Queues the work on the current stream, with the random numbers that `work` would have drawn now.
  virtual void replay() = 0;
};

/// `generator`: what the work draws from besides libtorch's default one. With a `neighbour`, which has been recorded,
/// the graph uses its memory too: they never run at the same time, and what one leaves for the other is held. Throws
/// UserError in a build without CUDA.
std::unique_ptr<Graph> make_graph(const at::Generator& generator, const Graph* neighbour);

using MakeGraph = std::function<std::unique_ptr<Graph>(const at::Generator& generator, const Graph* neighbour)>;

}  // namespace trainopt
