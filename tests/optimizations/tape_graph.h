// A Graph for the CPU with the rules of a GPU's: libtorch's operations are written down below autograd and autocast,
// with the very tensors they read and wrote, and done again on those tensors. So nothing that the host computes
// meanwhile (a learning rate, a weight, which tensor is the gradient) is ever asked again, and a value that the host
// reads is an error.
#pragma once

#include "device/graph.h"

namespace trainopt::test {

std::unique_ptr<Graph> make_tape_graph(const at::Generator& generator, const Graph* neighbour);

/// Does `work`, which is no operation of libtorch's, and writes it down if something is being recorded.
void on_tape(std::function<void()> work);

}  // namespace trainopt::test
