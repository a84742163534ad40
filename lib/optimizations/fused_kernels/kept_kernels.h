// Which kernels an autograd function's backward runs: those of its forward.
#pragma once

#include <torch/csrc/autograd/custom_function.h>

namespace trainopt::fused_kernels {

template <class Kernels>
void keep_kernels(torch::autograd::AutogradContext* context, const Kernels& kernels) {
  context->saved_data["kernels"] = reinterpret_cast<int64_t>(&kernels);
}
template <class Kernels>
const Kernels& kept_kernels(torch::autograd::AutogradContext* context) {
  return *reinterpret_cast<const Kernels*>(context->saved_data["kernels"].toInt());
}

}  // namespace trainopt::fused_kernels
