// Callbacks during backward. Wraps libtorch's hooks, whose headers promise no stability.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace trainopt {

/// Runs `call` each time backward has accumulated into the gradient of `leaf`. `call` may take the gradient away. Each
/// leaf has one such hook; a later one replaces it.
void after_gradient(const at::Tensor& leaf, std::function<void()> call);

/// Runs `call` when backward reaches the operation that computed `output`, before that operation's backward. Does
/// nothing if `output` requires no gradient.
void before_backward_of(const at::Tensor& output, std::function<void()> call);

/// A node of backward that has run.
struct BackwardNode {
  std::string name;
  uint64_t forward_thread = 0;                          ///< as at::RecordFunction::forwardThreadId()
  int64_t number = 0;                                   ///< as at::RecordFunction::seqNr()
  const std::vector<at::Tensor>& gradients_of_outputs;  ///< what it was given; may have undefined tensors
  const std::vector<at::Tensor>& gradients_of_inputs;   ///< what it computed; may have undefined tensors
};

/// Runs `call` after each node of the next backward of `loss`, on the thread that ran it. Nodes that only accumulate
/// into a leaf are left out.
void after_each_node(const at::Tensor& loss, const std::function<void(const BackwardNode&)>& call);

/// A number of the backward that is running on this thread.
int64_t current_backward();

/// Runs `call` once, when the backward that is running on this thread has ended. Call it from one of the hooks above.
void at_end_of_backward(std::function<void()> call);

}  // namespace trainopt
