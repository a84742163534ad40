// Linear layers in 8 bits: x · wᵀ, and for its gradients dy · w and dyᵀ · x.
#pragma once

#include "model/operations.h"
#include "optimizations/fp8/fp8.h"

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace trainopt::fp8 {

// Matrices of 8-bit floating-point numbers with scales, and their products.

/// Micikevicius et al. 2022 (arXiv:2209.05433): e4m3 has 3 bits of mantissa and reaches 448; e5m2 has 2 and reaches
/// 57,344, for gradients, whose magnitudes differ more.
inline constexpr at::ScalarType kE4m3 = at::kFloat8_e4m3fn, kE5m2 = at::kFloat8_e5m2;

/// libtorch's products need sizes that are multiples of this.
inline constexpr int64_t kMultiple = 16;

/// The matrix with the entries values(i, j) · scale(i).
struct ScaledMatrix {
  at::Tensor values;  ///< e4m3 or e5m2, rows × columns, contiguous
  at::Tensor scale;   ///< float32, 1 × 1 or rows × 1
};

/// The largest magnitude of the matrix (float32 1 × 1) or of each row (rows × 1).
at::Tensor amax(const at::Tensor& matrix, Scaling scaling);

/// Rounds a contiguous matrix to `format`, scaled so that `amax` becomes the format's largest number. What is larger
/// than `amax` becomes that number, too. If `amax` is not finite, so are no products with the result.
ScaledMatrix quantise(const at::Tensor& matrix, at::ScalarType format, const at::Tensor& amax);

/// The contiguous transpose, with columns of zeros appended up to a multiple of kMultiple.
at::Tensor transposed(const at::Tensor& matrix);

/// How a product adds up on GPUs whose tensor cores add 8-bit products with 14 bits of mantissa (Hopper): fast: as they
/// do; accurate: in float32 every 128 terms. Elsewhere there is no difference.
enum class Sums { fast, accurate };

/// a · bᵀ in type `out`; a: m × k, b: n × k; k and n are multiples of kMultiple.
using Product = at::Tensor (*)(const ScaledMatrix& a, const ScaledMatrix& b, at::ScalarType out, Sums sums);
/// libtorch's. On CPUs only for 1 × 1 scales. With scales of rows, `sums` has no effect, and the result is rounded to
/// bfloat16 first.
at::Tensor product(const ScaledMatrix& a, const ScaledMatrix& b, at::ScalarType out, Sums sums);
/// The product in float32: products of 8-bit numbers are exact there.
at::Tensor emulated_product(const ScaledMatrix& a, const ScaledMatrix& b, at::ScalarType out, Sums sums);

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
