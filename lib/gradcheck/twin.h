// An operation's counterpart in float64 on the CPU, with libtorch's operations.
#pragma once

#include "gradcheck/gradient_case.h"

namespace trainopt::gradcheck {

struct Evaluated {
  at::Tensor output;
  Tensors gradients;  ///< of the inputs

  /// Backward from `output`, which then no longer has a graph. `inputs`: the leaves that it was computed from.
  void run_backward(const Tensors& inputs, const at::Tensor& output_gradient);
};

/// `gradient_case` and `plain` must outlive it.
class Twin {
 public:
  /// `values`: of the inputs. The output's gradient is a function of `key`, rounded to `type`.
  Twin(const GradientCase& gradient_case, const Parts& plain, Tensors values, at::ScalarType type, uint64_t key);

  const Evaluated& evaluated() const { return evaluated_; }
  const at::Tensor& output_gradient() const { return output_gradient_; }

  /// |⟨gradient, d⟩ − (f(x + h d) − f(x − h d)) ÷ 2h| ÷ ‖gradient‖, with f = ⟨output gradient, output⟩ and a random
  /// direction d of ±1.
  double directional_error(uint64_t key) const;

 private:
  double f(const Tensors& d, double step) const;

  const GradientCase& case_;
  const Parts& plain_;
  Tensors values_;
  Evaluated evaluated_;
  at::Tensor output_gradient_;
};

/// The largest directional error that is no mistake. The step h = ε^⅓ makes truncation, of the order h², and rounding,
/// ε ÷ h, both 4e-11; this is a thousand times that, for the curvature of batch-norm and the number of values that are
/// added.
inline constexpr double kDirectionsBound = 4e-8;

}  // namespace trainopt::gradcheck
