// Makes an autograd function's backward use the same kernels as its forward.
#pragma once

#include <torch/csrc/autograd/custom_function.h>

namespace trainopt::kernels {

/// `kernels` must outlive the graph. `name` distinguishes several sets of kernels in one function.
template <class Kernels>
void save_kernels(torch::autograd::AutogradContext* context, const Kernels& kernels, const char* name = "kernels") {
  context->saved_data[name] = reinterpret_cast<int64_t>(&kernels);
}
template <class Kernels>
const Kernels& saved_kernels(torch::autograd::AutogradContext* context, const char* name = "kernels") {
  return *reinterpret_cast<const Kernels*>(context->saved_data[name].toInt());
}

}  // namespace trainopt::kernels
