// Checks that every implementation of LinearCrossEntropyKernels must pass, on any device: losses and gradients match
// the reference, and libtorch's own operations in float64.
#pragma once

#include "device/tensor.h"
#include "kernels/linear_cross_entropy/linear_cross_entropy.h"
#include "support/autograd.h"
#include "support/catch.h"

#include <limits>

namespace trainopt::test {

using namespace trainopt::kernels;

inline const std::vector<at::ScalarType> kTokenTypes = {at::kFloat, at::kBFloat16, at::kHalf};
inline constexpr int64_t kPadding = LinearCrossEntropyKernels::kIgnored;

/// Of a row's logits and gradients, both rounded to the type once or twice; of sums of many such values, less.
inline double tolerance_of(at::ScalarType type) {
  return type == at::kFloat ? 1e-5 : type == at::kBFloat16 ? 1.5e-2 : 2e-3;
}

struct TokenBatch {
  at::Tensor hidden, weight, target;
};

/// Logits of about 1; every third row is padding if there are several.
inline TokenBatch token_batch(int64_t rows, int64_t width, int64_t classes, at::ScalarType type, at::Device device) {
  TokenBatch batch{.hidden = at::randn({rows, width}).to(device, type),
                   .weight = (at::randn({classes, width}) / std::sqrt(static_cast<double>(width))).to(device, type),
                   .target = at::randint(classes, {rows}, at::kLong)};
  for (int64_t row = 1; row < rows; row += 3) batch.target[row] = kPadding;
  batch.target = batch.target.to(device);
  return batch;
}

/// ‖got − wanted‖ ≤ tolerance · ‖wanted‖
inline void check_norm(const at::Tensor& got, const at::Tensor& wanted, double tolerance) {
  REQUIRE(got.sizes() == wanted.sizes());
  const at::Tensor difference = (got.to(at::kDouble) - wanted.to(at::kDouble)).norm(),
                   size = wanted.to(at::kDouble).norm();
  INFO(difference.item<double>() << " of " << size.item<double>());
  CHECK(difference.item<double>() <= tolerance * size.item<double>() + 1e-12);
}

/// 131 rows are several pieces, the last of them shorter.
inline void check_against_reference(const LinearCrossEntropyKernels& kernels, at::Device device) {
  at::manual_seed(41);
  for (const auto type : kTokenTypes)
    for (const auto& [rows, width, classes] :
         {std::tuple<int64_t, int64_t, int64_t>(1, 1, 1), {5, 3, 10}, {131, 24, 10}, {131, 40, 1000}, {3, 16, 50257}}) {
      INFO(type << " " << rows << " × " << width << " × " << classes);
      const TokenBatch batch = token_batch(rows, width, classes, type, device);
      const WantedGradients both{.of_hidden = true, .of_weight = true};
      const LinearCrossEntropy got = kernels.run(batch.hidden, batch.weight, batch.target, both),
                               wanted = reference_linear_cross_entropy_kernels().run(batch.hidden, batch.weight,
                                                                                     batch.target, both);
      CHECK(got.loss.scalar_type() == at::kFloat);
      CHECK(got.loss.dim() == 0);
      CHECK(got.loss.item<double>() == Approx(wanted.loss.item<double>()).epsilon(tolerance_of(type)).margin(1e-6));
      CHECK(got.share.equal(wanted.share));
      CHECK(got.of_hidden.scalar_type() == at::kFloat);
      CHECK(got.of_weight.scalar_type() == at::kFloat);
      check_norm(got.of_hidden, wanted.of_hidden, tolerance_of(type));
      check_norm(got.of_weight, wanted.of_weight, tolerance_of(type));
      const at::Tensor padding = got.of_hidden.index({batch.target.eq(kPadding)});
      CHECK(padding.equal(at::zeros_like(padding)));
    }
}

struct TokenGradients {
  at::Tensor loss, of_hidden, of_weight;
};

/// libtorch's loss and gradients in float64.
inline TokenGradients in_float64(const TokenBatch& batch, double upstream) {
  const at::Tensor hidden = batch.hidden.to(at::kDouble).requires_grad_(),
                   weight = batch.weight.to(at::kDouble).requires_grad_(),
                   loss = at::cross_entropy_loss(at::linear(hidden, weight), batch.target, {}, at::Reduction::Mean,
                                                 kPadding);
  const auto gradients = torch::autograd::grad({loss * upstream}, {hidden, weight});
  return {loss.detach(), gradients[0], gradients[1]};
}

/// The differentiable form, under a loss scale; also with only one gradient, and with none.
inline void check_token_gradients(const LinearCrossEntropyKernels& kernels, at::Device device) {
  at::manual_seed(42);
  constexpr double kUpstream = 4096;
  for (const auto type : kTokenTypes)
    for (const int64_t classes : {10, 1001}) {
      INFO(type << " " << classes);
      const TokenBatch batch = token_batch(70, 33, classes, type, device);
      const TokenGradients wanted = in_float64(batch, kUpstream);
      const double tolerance = tolerance_of(type);
      const auto loss_of = [&](bool of_hidden, bool of_weight, std::vector<at::Tensor>& gradients) {
        const at::Tensor hidden = batch.hidden.detach().requires_grad_(of_hidden),
                         weight = batch.weight.detach().requires_grad_(of_weight),
                         loss = linear_cross_entropy(hidden, weight, batch.target, type, kernels);
        std::vector<at::Tensor> inputs;
        if (of_hidden) inputs.push_back(hidden);
        if (of_weight) inputs.push_back(weight);
        CHECK(loss.requires_grad() == !inputs.empty());
        if (!inputs.empty()) gradients = torch::autograd::grad({loss * kUpstream}, inputs);
        return loss.detach();
      };
      std::vector<at::Tensor> both, one, other, none;
      const at::Tensor loss = loss_of(true, true, both);
      CHECK(loss.item<double>() == Approx(wanted.loss.item<double>()).epsilon(tolerance));
      CHECK(both[0].scalar_type() == type);
      CHECK(both[1].scalar_type() == type);
      check_norm(both[0], wanted.of_hidden, tolerance);
      check_norm(both[1], wanted.of_weight, tolerance);
      CHECK(loss_of(true, false, one).equal(loss));
      CHECK(loss_of(false, true, other).equal(loss));
      CHECK(loss_of(false, false, none).equal(loss));
      CHECK(one[0].equal(both[0]));
      CHECK(other[0].equal(both[1]));
      const at::NoGradGuard no_grad;
      CHECK(loss_of(false, false, none).equal(loss));
    }
}

/// As under autocast: float32 inputs, computed in 16 bits, get float32 gradients.
inline void check_converted_tokens(const LinearCrossEntropyKernels& kernels, at::Device device) {
  at::manual_seed(48);
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const TokenBatch batch = token_batch(70, 24, 100, at::kFloat, device);
    const TokenGradients wanted = in_float64(batch, 1);
    const at::Tensor hidden = batch.hidden.detach().requires_grad_(), weight = batch.weight.detach().requires_grad_(),
                     loss = linear_cross_entropy(hidden, weight, batch.target, type, kernels);
    CHECK(loss.item<double>() == Approx(wanted.loss.item<double>()).epsilon(tolerance_of(type)));
    const auto got = torch::autograd::grad({loss}, {hidden, weight});
    for (const at::Tensor& gradient : got) CHECK(gradient.scalar_type() == at::kFloat);
    check_norm(got[0], wanted.of_hidden, tolerance_of(type));
    check_norm(got[1], wanted.of_weight, tolerance_of(type));
  }
}

/// Gradients are those of libtorch, also of hidden states and weights that are not contiguous.
inline void check_strided_tokens(const LinearCrossEntropyKernels& kernels, at::Device device) {
  at::manual_seed(43);
  TokenBatch batch = token_batch(9, 6, 15, at::kFloat, device);
  batch.hidden = batch.hidden.t().contiguous().t();
  batch.weight = batch.weight.t().contiguous().t();
  const TokenGradients wanted = in_float64(batch, 1);
  const at::Tensor hidden = batch.hidden.detach().requires_grad_(), weight = batch.weight.detach().requires_grad_();
  const auto got = torch::autograd::grad({linear_cross_entropy(hidden, weight, batch.target, at::kFloat, kernels)},
                                         {hidden, weight});
  check_norm(got[0], wanted.of_hidden, 1e-5);
  check_norm(got[1], wanted.of_weight, 1e-5);
}

/// No row counts: as in libtorch, the loss is NaN and the gradients are 0.
inline void check_only_padding(const LinearCrossEntropyKernels& kernels, at::Device device) {
  at::manual_seed(44);
  TokenBatch batch = token_batch(4, 6, 15, at::kFloat, device);
  batch.target.fill_(kPadding);
  const at::Tensor hidden = batch.hidden.requires_grad_(), weight = batch.weight.requires_grad_(),
                   loss = linear_cross_entropy(hidden, weight, batch.target, at::kFloat, kernels);
  CHECK(loss.isnan().item<bool>());
  for (const at::Tensor& gradient : torch::autograd::grad({loss}, {hidden, weight}))
    CHECK(gradient.equal(at::zeros_like(gradient)));
}

/// Logits that are too large, infinite or NaN give the loss and the gradient that libtorch gives for float32 logits.
inline void check_extreme_tokens(const LinearCrossEntropyKernels& kernels, at::Device device) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::vector<float>> patterns = {{1e30f, 0, -1e30f},
                                                    {65504, -65504, 0},
                                                    {-kInfinity, 0, 1},
                                                    {0, -kInfinity, -kInfinity},
                                                    {kInfinity, 0, 0},
                                                    {-kInfinity, kInfinity, 0},
                                                    {kNan, 0, 0},
                                                    {0, 0, kNan},
                                                    {-1e30f, -1e30f, -1e30f},
                                                    {88, -88, 0}};
  for (const auto type : kTokenTypes)
    for (const int64_t classes : {3, 37, 1200})
      for (const int64_t wanted_class : {0, 1, 2})
        for (size_t which = 0; which < patterns.size(); ++which) {
          INFO(type << " " << classes << " " << wanted_class << " pattern " << which);
          // One hidden state that is 1: the weight is the row of logits, and its gradient that of the logits.
          const at::Tensor weight = at::tensor(patterns[which])
                                        .repeat({(classes + 2) / 3})
                                        .slice(0, 0, classes)
                                        .unsqueeze(1)
                                        .contiguous()
                                        .to(device, type)
                                        .requires_grad_(),
                           hidden = at::ones({1, 1}, at::TensorOptions(device).dtype(type)),
                           target = at::full({1}, wanted_class, at::TensorOptions(device).dtype(at::kLong)),
                           logits = weight.detach().to(at::kFloat).t().requires_grad_();
          const at::Tensor loss = linear_cross_entropy(hidden, weight, target, type, kernels),
                           plain = at::cross_entropy_loss(logits, target);
          CHECK(at::allclose(loss, plain, 1e-5, 1e-6, /*equal_nan=*/true));
          const at::Tensor got = torch::autograd::grad({loss}, {weight})[0].to(at::kFloat),
                           wanted = torch::autograd::grad({plain}, {logits})[0].t();
          CHECK(at::allclose(got, wanted, tolerance_of(type), 1e-6, /*equal_nan=*/true));
        }
}

}  // namespace trainopt::test
