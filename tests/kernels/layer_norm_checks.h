// Checks that every implementation of LayerNormKernels must pass, on any device: results match the reference in every
// type and size, and libtorch's layer norm and its gradients.
#pragma once

#include "kernels/head_checks.h"
#include "kernels/layer_norm/layer_norm.h"

namespace trainopt::test {

inline const std::vector<int64_t> kRowWidths = {1, 2, 7, 8, 100, 384, 768, 1600, 1601};

/// The types of one call; no type stands for no branch.
struct LayerNormTypes {
  at::ScalarType residual;
  std::optional<at::ScalarType> branch;
  at::ScalarType normalized;
};
/// Without autocast and with it.
inline const std::vector<LayerNormTypes> kUsualLayerNormTypes = {{at::kFloat, {}, at::kFloat},
                                                                 {at::kFloat, at::kFloat, at::kFloat},
                                                                 {at::kFloat, at::kBFloat16, at::kBFloat16},
                                                                 {at::kHalf, at::kHalf, at::kHalf}};

inline at::Tensor random_rows(at::IntArrayRef sizes, at::ScalarType type, at::Device device, double scale = 1,
                              double offset = 0) {
  return (at::randn(sizes) * scale + offset).to(device, type);
}

struct LayerNormState {
  LayerNormState(int64_t width, at::Device device)
      : weight(at::randn({width}).to(device)), bias(at::randn({width}).to(device)) {}
  LayerNormParameters parameters(double epsilon = 1e-5) const { return {weight, bias, epsilon}; }
  at::Tensor weight, bias;
};

/// Compares both passes with the reference; `branch` may be undefined.
inline void check_layer_norm(const LayerNormKernels& kernels, const at::Tensor& residual, const at::Tensor& branch,
                             at::ScalarType type) {
  const LayerNormKernels& plain = reference_layer_norm_kernels();
  const int64_t width = residual.size(-1);
  const LayerNormState state(width, residual.device());
  const auto got = kernels.forward(residual, branch, state.parameters(), type),
             wanted = plain.forward(residual, branch, state.parameters(), type);
  CHECK(got.sum.scalar_type() == wanted.sum.scalar_type());
  CHECK(got.sum.equal(wanted.sum));
  CHECK(got.sum.is_same(residual) == !branch.defined());
  CHECK(got.normalized.scalar_type() == type);
  check_each_near(got.normalized, wanted.normalized, two_roundings(type), 5e-6);
  check_each_near(got.by.mean, wanted.by.mean, 1e-6, 1e-6);
  check_each_near(got.by.rstd, wanted.by.rstd, 3e-6, 0);

  const at::Tensor of_normalized = random_rows(residual.sizes(), type, residual.device());
  const auto of_branch = branch.defined() ? std::optional(branch.scalar_type()) : std::nullopt;
  for (const bool used_elsewhere : {false, true}) {
    const at::Tensor of_sum =
        used_elsewhere ? random_rows(residual.sizes(), wanted.sum.scalar_type(), residual.device()) : at::Tensor();
    const auto backward = [&](const LayerNormKernels& by) {
      return by.backward({of_normalized, of_sum}, wanted.sum, wanted.by, state.weight, residual.scalar_type(),
                         of_branch);
    };
    const LayerNormGradients ours = backward(kernels), theirs = backward(plain);
    const double error = 1e-6 * wanted.by.rstd.max().item<double>() * static_cast<double>(1 + (width > 1));
    CHECK(ours.of_residual.scalar_type() == residual.scalar_type());
    check_each_near(ours.of_residual, theirs.of_residual, two_roundings(residual.scalar_type()), error + 1e-6);
    REQUIRE(ours.of_branch.defined() == branch.defined());
    if (branch.defined()) {
      CHECK(ours.of_branch.is_same(ours.of_residual) == (of_branch == residual.scalar_type()));
      CHECK(ours.of_branch.scalar_type() == of_branch);
      check_each_near(ours.of_branch, theirs.of_branch, two_roundings(*of_branch), error + 1e-6);
    }
    check_near(ours.of_weight, theirs.of_weight, 1e-5);
    check_near(ours.of_bias, theirs.of_bias, 1e-5);
  }
}

inline void check_layer_norm(const LayerNormKernels& kernels, at::IntArrayRef sizes, const LayerNormTypes& types,
                             at::Device device) {
  INFO(sizes << " " << types.residual << " " << types.branch.value_or(at::kBool) << " " << types.normalized);
  check_layer_norm(kernels, random_rows(sizes, types.residual, device, 2, 1),
                   types.branch ? random_rows(sizes, *types.branch, device) : at::Tensor(), types.normalized);
}

inline void check_layer_norms(const LayerNormKernels& kernels, at::Device device) {
  at::manual_seed(31);
  for (const int64_t width : kRowWidths)
    for (const int64_t rows : {1, 37})
      for (const auto& types : kUsualLayerNormTypes) check_layer_norm(kernels, {rows, width}, types, device);
  for (const auto residual : kNormTypes)
    for (const auto normalized : kNormTypes)
      for (const int64_t width : {21, 48}) {
        check_layer_norm(kernels, {5, width}, {residual, {}, normalized}, device);
        for (const auto branch : kNormTypes)
          check_layer_norm(kernels, {5, width}, {residual, branch, normalized}, device);
      }
  check_layer_norm(kernels, {2, 3, 40}, kUsualLayerNormTypes[2], device);
  check_layer_norm(kernels, {1500, 24}, kUsualLayerNormTypes[1], device);
  check_layer_norm(kernels, {2, 20011}, kUsualLayerNormTypes[1], device);
  for (const auto type : kNormTypes) {  // unaligned
    const at::Tensor memory = random_rows({5 * 64 + 1}, type, device).slice(0, 1).view({5, 64});
    check_layer_norm(kernels, memory, memory, type);
  }
}

/// Compares the differentiable forms with float64: outputs and gradients, of both outputs or of one.
inline void check_layer_norm_gradients(const LayerNormKernels& kernels, at::Device device) {
  at::manual_seed(32);
  constexpr int64_t kWidth = 40;
  const auto differentiable_copy = [](const at::Tensor& of) { return of.detach().to(at::kDouble).requires_grad_(); };
  const LayerNormState state(kWidth, device);
  const at::Tensor weight = state.weight.requires_grad_(), bias = state.bias.requires_grad_();
  for (const auto& types : kUsualLayerNormTypes)
    for (const double of_sum : {0, 1})
      for (const double of_normalized : {0, 1}) {
        if (of_sum + of_normalized == 0 || (!types.branch && of_sum > 0)) continue;
        INFO(types.residual << " " << types.normalized << " " << of_sum << of_normalized);
        // Not contiguous.
        const auto input = [&](at::ScalarType type) {
          return random_rows({kWidth, 6}, type, device, 2, 1).t().requires_grad_();
        };
        std::vector<at::Tensor> ours{input(types.residual), weight, bias};
        if (types.branch) ours.push_back(input(*types.branch));
        std::vector<at::Tensor> theirs;
        for (const auto& each : ours) theirs.push_back(differentiable_copy(each));
        const AddedAndNormalized got =
            types.branch
                ? add_layer_norm(ours[0], ours[3], state.parameters(), types.normalized, kernels)
                : AddedAndNormalized{ours[0], layer_norm(ours[0], state.parameters(), types.normalized, kernels)};
        // The sum as rounded, so that only the rounding of results differs.
        at::Tensor sum = theirs[0];
        if (types.branch) sum = sum + theirs[3] + (got.sum.detach() - sum.detach() - theirs[3].detach());
        const at::Tensor normalized = at::layer_norm(sum, {kWidth}, theirs[1], theirs[2], 1e-5);
        check_each_near(got.normalized.detach(), normalized.detach(), two_roundings(types.normalized), 2e-6);
        const at::Tensor g = random_rows({6, kWidth}, types.normalized, device),
                         h = random_rows({6, kWidth}, got.sum.scalar_type(), device);
        const auto gradients = [&](const at::Tensor& of_first, const at::Tensor& of_second,
                                   const std::vector<at::Tensor>& inputs) {
          at::Tensor loss = at::zeros({}, of_first.options().dtype(at::kDouble));
          if (of_sum > 0) loss = loss + (of_first.to(at::kDouble) * h).sum();
          if (of_normalized > 0) loss = loss + (of_second.to(at::kDouble) * g).sum();
          return torch::autograd::grad({loss}, inputs, {}, {}, false, /*allow_unused=*/true);
        };
        const auto by_ours = gradients(got.sum, got.normalized, ours), by_theirs = gradients(sum, normalized, theirs);
        for (size_t i = 0; i < ours.size(); ++i) {
          INFO("input " << i);
          REQUIRE(by_ours[i].defined() == by_theirs[i].defined());
          if (!by_ours[i].defined()) continue;
          CHECK(by_ours[i].scalar_type() == ours[i].scalar_type());
          check_each_near(by_ours[i], by_theirs[i], 2 * two_roundings(ours[i].scalar_type()), 1e-5);
        }
      }
}

/// NaN, infinite, huge, constant and offset rows give what libtorch gives, and do not change other rows.
inline void check_unusual_rows(const LayerNormKernels& kernels, at::Device device) {
  at::manual_seed(33);
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  for (const auto type : kNormTypes)
    for (const int64_t width : {3, 8, 37, 800}) {
      INFO(type << " " << width);
      const double huge = type == at::kHalf ? 6e4 : 1e30;
      at::Tensor x = at::randn({9, width});
      x[1][0] = kNan;
      x[2][width - 1] = kNan;
      x[3][1] = kInfinity;
      x[4][width / 2] = -kInfinity;
      x[5].mul_(at::arange(width) % 2).mul_(huge);
      x[6].fill_(3);
      x[7].add_(100);
      x = x.to(device, type);
      const LayerNormState state(width, device);
      const auto got = kernels.forward(x, {}, state.parameters(), type);
      at::Tensor wanted = at::layer_norm(x.to(at::kFloat), {width}, state.weight, state.bias, 1e-5).to(type);
      if (huge > 1e20) wanted[5].copy_(state.bias);  // 1 / √∞ is 0; libtorch says NaN, depending on the width
      check_each_near(got.normalized, wanted, two_roundings(type), 1e-4);
      const at::Tensor g = random_rows({9, width}, type, device);
      const auto backward = [&](const LayerNormKernels& by) {
        return by.backward({g, {}}, x, got.by, state.weight, type, std::nullopt).of_residual;
      };
      check_each_near(backward(kernels), backward(reference_layer_norm_kernels()), two_roundings(type), 1e-4);
    }
  // Large values that differ little keep their variance.
  const at::Tensor x = random_rows({6, 500}, at::kFloat, device, 0.1, 1000);
  const LayerNormState state(500, device);
  const auto got = kernels.forward(x, {}, state.parameters(1e-12), at::kFloat);
  const at::Tensor deviation = x.to(at::kDouble).var({1}, /*unbiased=*/false).sqrt();
  check_each_near((got.by.rstd * deviation).cpu(), at::ones({6}), 1e-4, 0);
}

}  // namespace trainopt::test
