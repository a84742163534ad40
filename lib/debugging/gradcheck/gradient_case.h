// One operation of the model with the shapes of a plan, as a function that can be evaluated on the plan's own parts and
// on the plain ones.
#pragma once

#include "model/operations.h"
#include "model/task.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trainopt::gradcheck {

using Tensors = std::vector<at::Tensor>;

/// What a model computes with.
struct Parts {
  Operations operations;
  std::shared_ptr<const Task> task;
};
/// libtorch's operations one by one; in float64 if their inputs are.
Parts plain_parts(double label_smoothing);

/// A differentiable input of an operation.
struct CaseInput {
  std::string name;            ///< "input", "residual", "weight", "bias"
  std::vector<int64_t> sizes;  ///< the first is the batch if `per_sample`
  bool per_sample = false;
};

struct GradientCase {
  std::string operation;  ///< "batch_norm_add_relu"
  std::string layer;      ///< the first that calls it with these shapes: "layer1.0.bn2"
  int64_t calls = 1;      ///< number of layers that do
  std::vector<CaseInput> inputs;
  int64_t output_values = 0;  ///< values per sample
  /// Number of terms in the operation's sums: those whose number does not depend on the batch, and those per sample.
  int64_t fixed_terms = 1, terms_per_sample = 1;
  bool over_ranks = false;  ///< the samples of all ranks are one batch
  /// Tensors in the order of `inputs`. Returns one tensor.
  std::function<at::Tensor(const Parts&, const Tensors&)> compute;
  /// The type to which the operation rounds its operands; empty or null: the one that the model computes in.
  std::function<std::optional<at::ScalarType>(const Parts&)> rounds_to;
  /// How far each value of the output is from the nearest point where its derivative jumps, in units of the normalised
  /// values; empty if there is no such point.
  std::function<at::Tensor(const Tensors&)> distance_to_kink;

  int64_t batch() const;              ///< the recipe's; 1 if the operation has none
  int64_t values_per_sample() const;  ///< values in the largest input or output
};

// An operation's counterpart in float64 on the CPU, with libtorch's operations.

struct Evaluated {
  at::Tensor output;
  Tensors gradients;  ///< the inputs' gradients

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
