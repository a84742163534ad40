// A parameter store without a model, for tests of optimizers and precision.
#pragma once

#include "device/tensor.h"
#include "train/optimizer/optimizer.h"
#include "train/parameter_store.h"

#include <ATen/CPUGeneratorImpl.h>

namespace trainopt::test {

class FixedParameters : public ParameterStore {
 public:
  explicit FixedParameters(NamedTensors parameters) : parameters_(std::move(parameters)) {
    for (auto& [name, tensor] : parameters_) tensor.set_requires_grad(true);
  }
  bool clears_with_zeros = false;

  const NamedTensors& parameters() const override { return parameters_; }
  Scope accumulate(bool) override { return Scope(); }
  std::vector<at::Tensor> gradients() const override {
    std::vector<at::Tensor> all;
    for (const auto& [name, tensor] : parameters_) all.push_back(tensor.grad());
    return all;
  }
  void clear_gradients() override {
    for (const auto& [name, tensor] : parameters_)
      if (tensor.grad().defined()) tensor.mutable_grad().zero_();
  }

 protected:
  GradientMemory complete_gradients() override {
    return {.tensors = gradients(), .clears_with_zeros = clears_with_zeros};
  }

 private:
  NamedTensors parameters_;
};

/// Three tensors of different shapes, the same numbers at each call.
inline FixedParameters some_parameters() {
  const auto generator = at::detail::createCPUGenerator(7);
  return FixedParameters({{"a", at::randn({3, 5}, generator)},
                          {"b", at::randn({7}, generator)},
                          {"c", at::randn({2, 3, 2, 2}, generator)}});
}

/// Gradients of step `step`, the same numbers at each call.
inline void set_gradients(const ParameterStore& store, uint64_t step) {
  const auto generator = at::detail::createCPUGenerator(100 + step);
  for (const auto& [name, parameter] : store.parameters())
    parameter.mutable_grad() = at::randn(parameter.sizes(), generator);
}

/// How many tensors an optimizer keeps from step to step.
inline size_t state_tensors(const Optimizer& optimizer) {
  ArchiveWriter archive;
  optimizer.save(archive);
  return archive.tensors().size();
}

inline double largest_difference(const ParameterStore& a, const ParameterStore& b) {
  double largest = 0;
  for (size_t i = 0; i < a.parameters().size(); ++i)
    largest = std::max(largest, (a.parameters()[i].second - b.parameters()[i].second).abs().max().item<double>());
  return largest;
}

}  // namespace trainopt::test
