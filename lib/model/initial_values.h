// Initial values of parameters. Each draw is a function of (seed, the parameter's full name, element index), so a
// parameter starts with the same values on every device and rank, whatever else the model holds.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace trainopt {

struct InitialValues {
  enum class Kind { constant, normal, truncated_normal, uniform };
  Kind kind = Kind::constant;
  double amount = 0;  ///< the constant; the standard deviation; the bound b of uniform [-b, b)

  static InitialValues constant(double value) { return {Kind::constant, value}; }
  static InitialValues normal(double deviation) { return {Kind::normal, deviation}; }
  /// torch's trunc_normal_ with its default bounds: values outside [-2, 2] are drawn again.
  static InitialValues truncated_normal(double deviation) { return {Kind::truncated_normal, deviation}; }
  /// Glorot and Bengio's uniform distribution, torch's xavier_uniform_.
  static InitialValues xavier_uniform(int64_t fan_in, int64_t fan_out);
  /// Kaiming He's normal distribution for layers followed by ReLU, which preserves the variance in the backward pass:
  /// torch's kaiming_normal_ with fan_out.
  static InitialValues kaiming_normal(int64_t fan_out);
  /// torch's default for Linear, weight and bias alike: uniform within ±1/√fan_in.
  static InitialValues torch_linear(int64_t fan_in);
};

/// Fills a contiguous float32 tensor on the CPU.
void fill_initial_values(const at::Tensor& tensor, const InitialValues& values, uint64_t seed, const std::string& name);

}  // namespace trainopt
