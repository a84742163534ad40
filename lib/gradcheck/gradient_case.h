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
  int64_t output_values = 0;  ///< per sample
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
  int64_t values_per_sample() const;  ///< of the largest input or output
};

}  // namespace trainopt::gradcheck
