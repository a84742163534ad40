// Linear layers in 8 bits: x · wᵀ, and for its gradients dy · w and dyᵀ · x.
#pragma once

#include "model/operations.h"
#include "optimizations/fp8/scaled_matrix.h"

#include <functional>
#include <memory>

namespace trainopt::fp8 {

// RECORD_FUNCTION labels: a layer computed in 8 bits, its backward, and a layer whose sizes do not allow that.
inline constexpr const char *kLinearLabel = "trainopt::fp8_linear",
                            *kLinearGradientLabel = "trainopt::fp8_linear_backward",
                            *kOtherLinearLabel = "trainopt::linear_of_other_sizes";

/// Whether a layer with these sizes is computed in 8 bits.
constexpr bool fits(int64_t in, int64_t out) { return in % kMultiple == 0 && out % kMultiple == 0; }

/// The operands of the products that are scaled.
enum class Operand { input, weight, gradient };
inline constexpr int64_t kOperands = 3;

/// The magnitude by which to scale an operand of the layer with this parameter, whose own is `current`. `is_counted`:
/// false in evaluation, and in a forward that will be repeated for backward.
using ChooseAmax =
    std::function<at::Tensor(const at::Tensor& parameter, Operand operand, const at::Tensor& current, bool is_counted)>;

/// Inputs, weights and outputs have autocast's type or, without autocast, their own. Layers of other sizes are
/// libtorch's. tensorwise keeps input and weight for backward in 8 bits, rowwise in the type they had, because
/// the rows of their transposes have other scales.
std::unique_ptr<LinearOperations> make_linear(Scaling scaling, Product product, ChooseAmax choose);

}  // namespace trainopt::fp8
