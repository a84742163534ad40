#include "debugging/gradcheck/gradient_case.h"

#include "base/error.h"
#include "debugging/gradcheck/values.h"
#include "device/tensor.h"

#include <algorithm>
#include <cmath>

namespace trainopt::gradcheck {

Parts plain_parts(double label_smoothing) { return {{}, std::make_shared<ClassificationTask>(label_smoothing)}; }

int64_t GradientCase::batch() const { return inputs.front().per_sample ? inputs.front().sizes.front() : 1; }

int64_t GradientCase::values_per_sample() const {
  int64_t largest = output_values;
  for (const auto& input : inputs)
    if (input.per_sample) largest = std::max(largest, c10::multiply_integers(input.sizes) / input.sizes.front());
  return largest;
}

void Evaluated::run_backward(const Tensors& inputs, const at::Tensor& output_gradient) {
  output.backward(output_gradient);
  for (const auto& input : inputs)
    gradients.push_back(input.grad().defined() ? input.grad() : at::zeros_like(input.detach()));
  output = output.detach();
}

Twin::Twin(const GradientCase& gradient_case, const Parts& plain, Tensors values, at::ScalarType type, uint64_t key)
    : case_(gradient_case), plain_(plain), values_(std::move(values)) {
  Tensors inputs;
  for (const auto& value : values_) inputs.push_back(value.detach().requires_grad_());
  evaluated_.output = case_.compute(plain_, inputs);
  output_gradient_ = gradcheck::output_gradient(case_, evaluated_.output, values_, type, key);
  evaluated_.run_backward(inputs, output_gradient_);
}

double Twin::directional_error(uint64_t key) const {
  static const double kStep = std::cbrt(std::ldexp(1, -52));
  const Tensors d = direction(values_, key);
  double along = 0, norm = 0;
  for (size_t i = 0; i < d.size(); ++i) {
    along += (evaluated_.gradients[i] * d[i]).sum().item<double>();
    norm += evaluated_.gradients[i].square().sum().item<double>();
  }
  const double difference = (f(d, kStep) - f(d, -kStep)) / (2 * kStep);
  return std::abs(along - difference) / std::sqrt(norm);
}

double Twin::f(const Tensors& d, double step) const {
  const at::NoGradGuard no_grad;
  Tensors moved;
  for (size_t i = 0; i < d.size(); ++i) moved.push_back(at::add(values_[i], d[i], step));
  return (case_.compute(plain_, moved) * output_gradient_).sum().item<double>();
}

}  // namespace trainopt::gradcheck
