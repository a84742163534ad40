// Being called in the middle of backward. Around libtorch's hooks, whose headers carry no promise.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace trainopt {

/// `call` runs whenever backward has added to the gradient of this leaf, and may take the gradient away. One for each
/// leaf: a later one replaces it.
void after_gradient(const at::Tensor& leaf, std::function<void()> call);

/// `call` runs when backward reaches what computed `output`, before anything of it; never if nothing there requires
/// gradients.
void before_backward_of(const at::Tensor& output, std::function<void()> call);

}  // namespace trainopt
