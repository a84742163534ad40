// A Graph for the CPU that follows the rules of a GPU graph: it records libtorch's operations below autograd and
// autocast, with the tensors they read and write, and replays them on those same tensors. So nothing that the host
// computes (a learning rate, a weight, which tensor is the gradient) is evaluated again, and reading a value on the
// host is an error.
#pragma once

#include "device/graph.h"

namespace trainopt::test {

std::unique_ptr<Graph> make_tape_graph(const at::Generator& generator, const Graph* pool_owner);

/// Runs `work`, which is not a libtorch operation, and records it if a recording is in progress.
void on_tape(std::function<void()> work);

}  // namespace trainopt::test
