// Checks that every implementation of GeluKernels must pass, on any device: results match the reference in every type
// and size, and libtorch's GELU and its gradients.
#pragma once

#include "kernels/gelu/gelu.h"
#include "kernels/layer_norm_checks.h"

#include <cmath>
#include <tuple>

namespace trainopt::test {

inline constexpr Gelu kGeluForms[] = {Gelu::exact, Gelu::tanh};
inline c10::string_view torch_word(Gelu form) { return form == Gelu::tanh ? "tanh" : "none"; }

/// What values and slopes may be off by before rounding. Those that are rounded to 16 bits may come from shorter
/// polynomials.
inline double gelu_error(at::ScalarType type) { return type == at::kFloat ? 2e-6 : 2e-4; }

inline void check_values(const at::Tensor& got, const at::Tensor& wanted, at::ScalarType type) {
  check_each_near(got, wanted, two_roundings(type) + gelu_error(type), 2e-6);
}
inline void check_slopes(const at::Tensor& got, const at::Tensor& wanted, at::ScalarType type) {
  check_each_near(got, wanted, two_roundings(type), 2 * gelu_error(type));
}

/// Compares both passes with the reference.
inline void check_gelu(const GeluKernels& kernels, const at::Tensor& x) {
  const auto type = x.scalar_type();
  const at::Tensor bias = random_rows({x.size(-1)}, at::kFloat, x.device()),
                   gradient = random_rows(x.sizes(), type, x.device());
  for (const Gelu form : kGeluForms) {
    INFO(torch_word(form));
    const at::Tensor y = kernels.forward(x, bias, form);
    CHECK(y.scalar_type() == type);
    check_values(y, reference_gelu_kernels().forward(x, bias, form), type);
    const GeluGradients got = kernels.backward(gradient, x, bias, form),
                        wanted = reference_gelu_kernels().backward(gradient, x, bias, form);
    CHECK(got.of_x.scalar_type() == type);
    check_slopes(got.of_x, wanted.of_x, type);
    check_near(got.of_bias, wanted.of_bias, 5 * gelu_error(type));
  }
}

inline void check_gelus(const GeluKernels& kernels, at::Device device) {
  at::manual_seed(41);
  for (const auto type : kNormTypes) {
    for (const int64_t width : kRowWidths)
      for (const int64_t rows : {1, 37}) {
        INFO(type << " " << rows << " × " << width);
        check_gelu(kernels, random_rows({rows, width}, type, device, 2));
      }
    check_gelu(kernels, random_rows({2, 3, 40}, type, device, 2));
    check_gelu(kernels, random_rows({1500, 24}, type, device, 2));
    check_gelu(kernels, random_rows({5 * 64 + 1}, type, device).slice(0, 1).view({5, 64}));  // unaligned
  }
}

/// Values and slopes in float32 are within 2e-6 of float64 over the whole range; values also relative to their size,
/// where it is not tiny.
inline void check_gelu_accuracy(const GeluKernels& kernels, at::Device device) {
  const at::Tensor z = at::linspace(-14, 14, 40000, at::kFloat).to(device).view({-1, 8}),
                   none = at::zeros({8}, z.options()), ones = at::ones_like(z);
  for (const Gelu form : kGeluForms) {
    INFO(torch_word(form));
    const at::Tensor wide = z.to(at::kDouble).requires_grad_(),
                     value = form == Gelu::exact
                                 ? wide * (1 + (wide * M_SQRT1_2).erf()) / 2
                                 : wide * (2 * std::sqrt(2 / M_PI) * (wide + 0.044715 * wide.pow(3))).sigmoid();
    check_each_near(kernels.forward(z, none, form), value.detach(), 2e-6, 1e-8);
    check_each_near(kernels.backward(ones, z, none, form).of_x, torch::autograd::grad({value.sum()}, {wide})[0], 0,
                    2e-6);
  }
}

/// libtorch's formulas: the value and the slope. (Its own vector code says NaN for the exact GELU of ∞ on some CPUs.)
inline std::pair<double, double> formula_of(Gelu form, double z) {
  if (form == Gelu::exact) {
    const double share = (1 + std::erf(z * M_SQRT1_2)) / 2;
    return {z * share, share + z * std::exp(-z * z / 2) / std::sqrt(2 * M_PI)};
  }
  const double scale = std::sqrt(2 / M_PI), inner = std::tanh(scale * (z + 0.044715 * z * z * z)),
               of_inner = (1 - inner * inner) * scale * (1 + 3 * 0.044715 * z * z);
  return {z / 2 * (1 + inner), (1 + inner) / 2 + z / 2 * of_inner};
}

/// NaN, infinite and huge values give what the formulas give.
inline void check_unusual_gelu_inputs(const GeluKernels& kernels, at::Device device) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor values = at::tensor(
      {kNan, kInfinity, -kInfinity, 1e10f, -1e10f, 6e4f, -6e4f, 60.0f, -60.0f, 0.0f, -0.0f, 1e-30f, -13.5f, 1.0f});
  for (const auto type : kNormTypes)
    for (const Gelu form : kGeluForms)
      for (const int64_t width : {1, 3, 16}) {
        INFO(type << " " << torch_word(form) << " " << width);
        const at::Tensor x = values.to(device, type).unsqueeze(1).expand({-1, width}).contiguous(),
                         none = at::zeros({width}, x.options().dtype(at::kFloat));
        at::Tensor value = x.to(at::kCPU, at::kDouble), slope = value.clone();
        for (int64_t i = 0; i < value.numel(); ++i)
          std::tie(value.view(-1).mutable_data_ptr<double>()[i], slope.view(-1).mutable_data_ptr<double>()[i]) =
              formula_of(form, x.view(-1)[i].item<double>());
        check_each_near(kernels.forward(x, none, form).cpu(), value, two_roundings(type), 1e-6);
        check_each_near(kernels.backward(at::ones_like(x), x, none, form).of_x.cpu(), slope, two_roundings(type), 1e-6);
      }
}

/// Compares the differentiable form with float64.
inline void check_gelu_gradients(const GeluKernels& kernels, at::Device device) {
  at::manual_seed(42);
  for (const auto type : kNormTypes)
    for (const Gelu form : kGeluForms) {
      INFO(type << " " << torch_word(form));
      const at::Tensor x = random_rows({40, 7}, type, device, 2).t().requires_grad_(),  // not contiguous
          bias = random_rows({40}, at::kFloat, device).requires_grad_();
      const at::Tensor wide = x.detach().to(at::kDouble).requires_grad_(),
                       wide_bias = bias.detach().to(at::kDouble).requires_grad_();
      const at::Tensor y = bias_gelu(x, bias, form, kernels), wanted = at::gelu(wide + wide_bias, torch_word(form));
      check_values(y.detach(), wanted.detach(), type);
      const at::Tensor g = random_rows({7, 40}, type, device);
      const auto ours = torch::autograd::grad({y}, {x, bias}, {g}),
                 theirs = torch::autograd::grad({wanted}, {wide, wide_bias}, {g.to(at::kDouble)});
      CHECK(ours[0].scalar_type() == type);
      check_slopes(ours[0], theirs[0], type);
      check_near(ours[1].to(at::kDouble), theirs[1], 5 * gelu_error(type));
    }
}

}  // namespace trainopt::test
