// How a parameter starts. Draws are a function of (seed, the parameter's full name, place in it), so a parameter starts
// the same on every device, on every rank, and whatever else the model holds.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace trainopt {

struct InitialValues {
  enum class Kind { constant, normal, uniform };
  Kind kind = Kind::constant;
  double amount = 0;  ///< the constant; the standard deviation; the bound b of uniform [-b, b)

  static InitialValues constant(double value) { return {Kind::constant, value}; }
  /// Kaiming He's normal draw for layers followed by ReLU, with the variance kept in the backward pass: torch's
  /// kaiming_normal_ with fan_out.
  static InitialValues kaiming_normal(int64_t fan_out);
  /// torch's default for Linear, weight and bias alike: uniform within ±1/√fan_in.
  static InitialValues torch_linear(int64_t fan_in);
};

/// Fills a contiguous float32 tensor on the CPU.
void fill_initial_values(const at::Tensor& tensor, const InitialValues& values, uint64_t seed, const std::string& name);

}  // namespace trainopt
