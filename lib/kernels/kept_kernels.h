// Which kernels an autograd function's backward runs: those of its forward.
#pragma once

#include <torch/csrc/autograd/custom_function.h>

namespace trainopt::kernels {

/// `kernels` must outlive the graph. `name`: for a function that has several.
template <class Kernels>
void keep_kernels(torch::autograd::AutogradContext* context, const Kernels& kernels, const char* name = "kernels") {
  context->saved_data[name] = reinterpret_cast<int64_t>(&kernels);
}
template <class Kernels>
const Kernels& kept_kernels(torch::autograd::AutogradContext* context, const char* name = "kernels") {
  return *reinterpret_cast<const Kernels*>(context->saved_data[name].toInt());
}

}  // namespace trainopt::kernels
