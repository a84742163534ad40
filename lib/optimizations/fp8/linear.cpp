#include "optimizations/fp8/linear.h"

#include "base/error.h"
#include "device/autocast.h"
#include "device/differentiable.h"
#include "device/tensor.h"

#include <ATen/ops/_scaled_mm.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <limits>

namespace trainopt::fp8 {
namespace {

/// The types of the results of a layer's backward.
struct GradientTypes {
  at::ScalarType input, weight;
};

class Fp8Linear : public PlainLinearOperations {
 public:
  Fp8Linear(Scaling scaling, Product product, ChooseAmax choose)
      : scaling_(scaling), product_(product), choose_(std::move(choose)) {}

  at::Tensor linear(const at::Tensor& input, const LinearTensors& layer) const override {
    if (!fits(layer.weight.size(1), layer.weight.size(0))) {
      RECORD_FUNCTION(kOtherLinearLabel, std::vector<c10::IValue>());
      return PlainLinearOperations::linear(input, layer);
    }
    RECORD_FUNCTION(kLinearLabel, std::vector<c10::IValue>());
    const auto type = autocast_type(input.device().type()).value_or(input.scalar_type());
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    std::vector<int64_t> sizes = input.sizes().vec();
    sizes.back() = layer.weight.size(0);
    const at::Tensor rows = input.to(type).reshape({-1, input.size(-1)}).contiguous();
    const at::Tensor output = multiply(rows, layer.weight.contiguous(), layer.parameter).view(sizes);
    return layer.bias.defined() ? output + layer.bias.to(type) : output;
  }
  std::optional<at::ScalarType> rounds_to() const override { return scaling_ == Scaling::rowwise ? kE4m3 : kE5m2; }

 private:
  at::Tensor multiply(const at::Tensor& x, const at::Tensor& w, const at::Tensor& parameter) const {
    const bool is_counted = at::GradMode::is_enabled();
    const auto forward = [&](std::vector<at::Tensor>& saved) {
      const ScaledMatrix scaled_x = scaled(x, kE4m3, parameter, Operand::input, is_counted),
                         scaled_w = scaled(w, kE4m3, parameter, Operand::weight, is_counted);
      if (scaling_ == Scaling::tensorwise)
        saved = {scaled_x.values, scaled_x.scale, scaled_w.values, scaled_w.scale};
      else
        saved = {x, w};
      return product_(scaled_x, scaled_w, x.scalar_type(), Sums::fast);
    };
    const GradientTypes types{x.scalar_type(), w.scalar_type()};
    // The parameter is captured as an identity only: as a saved tensor it would be kept, or gathered, for backward.
    const auto backward = [this, types, parameter](const BackwardCall& call) {
      RECORD_FUNCTION(kLinearGradientLabel, std::vector<c10::IValue>());
      return scaling_ == Scaling::tensorwise ? of_tensors(call, types, parameter) : of_rows(call, types);
    };
    return differentiable({x, w}, forward, backward);
  }

  std::vector<at::Tensor> of_tensors(const BackwardCall& call, GradientTypes types, const at::Tensor& parameter) const {
    const auto transposed_of = [&](size_t i) { return ScaledMatrix{transposed(call.saved[i]), call.saved[i + 1]}; };
    const ScaledMatrix dy = scaled(call.gradient.contiguous(), kE5m2, parameter, Operand::gradient, true);
    at::Tensor dx, dw;
    if (call.needed[0]) dx = product_(dy, transposed_of(2), types.input, Sums::accurate);
    if (call.needed[1])
      dw = product_({transposed(dy.values), dy.scale}, transposed_of(0), types.weight, Sums::accurate);
    return {dx, dw};
  }

  std::vector<at::Tensor> of_rows(const BackwardCall& call, GradientTypes types) const {
    const auto by_row = [](const at::Tensor& matrix) {
      return quantise(matrix, kE4m3, amax(matrix, Scaling::rowwise));
    };
    const at::Tensor &x = call.saved[0], &w = call.saved[1], dy = call.gradient.contiguous();
    at::Tensor dx, dw;
    if (call.needed[0]) dx = product_(by_row(dy), by_row(transposed(w)), types.input, Sums::accurate);
    if (call.needed[1]) dw = product_(by_row(transposed(dy)), by_row(transposed(x)), types.weight, Sums::accurate);
    return {dx, dw};
  }

  ScaledMatrix scaled(const at::Tensor& matrix, at::ScalarType format, const at::Tensor& parameter, Operand operand,
                      bool is_counted) const {
    return quantise(matrix, format, choose_(parameter, operand, amax(matrix, scaling_), is_counted));
  }

  Scaling scaling_;
  Product product_;
  ChooseAmax choose_;
};

}  // namespace

std::unique_ptr<LinearOperations> make_linear(Scaling scaling, Product product, ChooseAmax choose) {
  return std::make_unique<Fp8Linear>(scaling, product, std::move(choose));
}

namespace {

constexpr double kLargestE4m3 = 448, kLargestE5m2 = 57344;
constexpr double kSmallestAmax = 1e-30;  // a matrix of zeros needs a scale, too, and its inverse must be finite

}  // namespace

at::Tensor amax(const at::Tensor& matrix, Scaling scaling) {
  const std::vector<int64_t> over = scaling == Scaling::rowwise ? std::vector<int64_t>{1} : std::vector<int64_t>{0, 1};
  return at::linalg_vector_norm(matrix, std::numeric_limits<double>::infinity(), over, /*keepdim=*/true, at::kFloat);
}

ScaledMatrix quantise(const at::Tensor& matrix, at::ScalarType format, const at::Tensor& amax) {
  TRAINOPT_CHECK(matrix.dim() == 2 && matrix.is_contiguous());
  const double largest = format == kE4m3 ? kLargestE4m3 : kLargestE5m2;
  const at::Tensor scale = amax.clamp_min(kSmallestAmax) / largest;
  return {(matrix / scale).clamp_(-largest, largest).to(format), scale};
}

at::Tensor transposed(const at::Tensor& matrix) {
  const int64_t rows = matrix.size(0), padded = (rows + kMultiple - 1) / kMultiple * kMultiple;
  if (rows == padded) return matrix.t().contiguous();
  const at::Tensor result = at::zeros({matrix.size(1), padded}, matrix.options());
  result.narrow(1, 0, rows).copy_(matrix.t());
  return result;
}

at::Tensor product(const ScaledMatrix& a, const ScaledMatrix& b, at::ScalarType out, Sums sums) {
  const bool of_rows = a.scale.numel() > 1;
  return at::_scaled_mm(a.values, b.values.t(), a.scale, b.scale.t(), {}, {}, of_rows ? at::kBFloat16 : out,
                        of_rows || sums == Sums::fast)
      .to(out);
}

at::Tensor emulated_product(const ScaledMatrix& a, const ScaledMatrix& b, at::ScalarType out, Sums) {
  return (at::mm(a.values.to(at::kFloat), b.values.to(at::kFloat).t()) * a.scale * b.scale.t()).to(out);
}

}  // namespace trainopt::fp8
