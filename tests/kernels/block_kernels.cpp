// Tests the CPU kernels of norm, pool and head against the reference of each pass, and against libtorch's own
// operations and their gradients.
#include "kernels/block_checks.h"
#include "kernels/cpu/pieces.h"
#include "kernels/head_checks.h"
#include "kernels/pool_checks.h"

#include <ATen/Parallel.h>

using namespace trainopt;
using namespace trainopt::test;

namespace {

fused_kernels::BlockKernels on_cpu(const HeadKernels& head) {
  return {.norm = cpu_norm_kernels(), .pool = cpu_pool_kernels(), .head = head};
}
fused_kernels::BlockKernels plain() {
  return {.norm = reference_norm_kernels(), .pool = reference_pool_kernels(), .head = reference_head_kernels()};
}

}  // namespace

TEST_CASE("every pass matches the reference in every type and shape") {
  for (const bool always_stream : {false, true}) {
    for (const NormKernels* width : all_cpu_norm_kernels(always_stream)) check_every_pass(*width, at::kCPU);
    for (const PoolKernels* width : all_cpu_pool_kernels(always_stream)) check_every_pool_pass(*width, at::kCPU);
  }
  const at::Tensor large = random({5, 64, 33, 31}, at::kBFloat16);  // sums in several pieces
  for (const NormKernels* width : all_cpu_norm_kernels()) check_passes(*width, large);
  for (const PoolKernels* width : all_cpu_pool_kernels()) check_pool_passes(*width, large);
}

TEST_CASE("large values that differ little keep their variance") { check_large_values(cpu_norm_kernels(), at::kCPU); }

TEST_CASE("NaN and infinity are propagated") {
  for (const NormKernels* width : all_cpu_norm_kernels()) check_not_a_number(*width, at::kCPU);
  for (const PoolKernels* width : all_cpu_pool_kernels()) check_pool_not_a_number(*width, at::kCPU);
}

TEST_CASE("the pool chooses the first of equal values") {
  for (const PoolKernels* width : all_cpu_pool_kernels()) check_pool_choices(*width, at::kCPU);
}

TEST_CASE("sums of rows include every piece") {
  for (const auto& [rows, channels] : {std::pair<int64_t, int64_t>{1, 1}, {3, 40000}, {5003, 70}, {65539, 64}}) {
    INFO(rows << " × " << channels);
    const Sums<1> sums = sums_over<1>(rows, channels, [&, size = channels](int64_t first, int64_t count, float* sum) {
      for (int64_t row = first; row < first + count; ++row)
        for (int64_t c = 0; c < size; ++c) sum[c] += static_cast<float>(row % 7 + c % 5);
    });
    double of_rows = 0;
    for (int64_t row = 0; row < rows; ++row) of_rows += static_cast<double>(row % 7);
    for (int64_t c = 0; c < channels; ++c)
      if (sums[0][static_cast<size_t>(c)] != of_rows + static_cast<double>(rows * (c % 5))) FAIL("channel " << c);
  }
}

TEST_CASE("large results with aligned rows are streamed") {
  const auto nhwc = [](int64_t channels, int64_t rows) {
    return at::empty({1, channels, rows, 1}, at::MemoryFormat::ChannelsLast);
  };
  const auto bytes = [](const at::Tensor& tensor) { return tensor.nbytes(); };
  const at::Tensor aligned = nhwc(16, 8), odd = nhwc(24, 8);
  CHECK(streams(aligned, bytes(aligned)));
  CHECK_FALSE(streams(aligned, bytes(aligned) + 1));
  CHECK_FALSE(streams(odd, bytes(odd)));
  const at::Tensor shifted = at::empty({16 * 8 + 1}).slice(0, 1).view({1, 8, 1, 16}).permute({0, 3, 1, 2});
  CHECK_FALSE(streams(shifted, bytes(shifted)));
}

TEST_CASE("sums do not depend on the number of threads") {
  const at::Tensor x = random({5, 70, 19, 23}, at::kFloat);
  const int threads = at::get_num_threads();
  const NormState state(70);
  const Statistics many = cpu_norm_kernels().statistics(x, state.parameters());
  at::set_num_threads(1);
  const Statistics one = cpu_norm_kernels().statistics(x, state.parameters());
  at::set_num_threads(threads);
  CHECK(many.mean.equal(one.mean));
  CHECK(many.inverse.equal(one.inverse));
}

TEST_CASE("block operations and their gradients match libtorch") {
  check_block_operations(on_cpu(reference_head_kernels()), at::kCPU);
  check_block_operations(plain(), at::kCPU);
}

TEST_CASE("16-bit outputs are within one rounding of float32, gradients within a few") {
  check_16_bits(on_cpu(reference_head_kernels()), at::kCPU);
}

TEST_CASE("gradients of the formulas match finite differences in float64") {
  // The formulas of the reference, without its rounding: y = weight · (x − mean) / √(variance + ε) + bias, through
  // ReLU.
  at::manual_seed(7);
  const at::Tensor x = at::randn({2, 3, 3, 3}, at::kDouble), weight = at::randn({3}, at::kDouble),
                   bias = at::randn({3}, at::kDouble), seed = at::randn({2, 3, 3, 3}, at::kDouble);
  const auto view = [](const at::Tensor& by_channel) { return by_channel.view({1, 3, 1, 1}); };
  const auto loss = [&](const at::Tensor& at_x) {
    const auto [variance, mean] = at::var_mean(at_x, {0, 2, 3}, 0);
    return (((at_x - view(mean)) * view(weight / (variance + 1e-5).sqrt()) + view(bias)).relu() * seed)
        .sum()
        .item<double>();
  };
  const auto [variance, mean] = at::var_mean(x, {0, 2, 3}, 0);
  const at::Tensor inverse = (variance + 1e-5).rsqrt(), scale = weight * inverse, shift = bias - mean * scale;
  const at::Tensor g = at::where(x * view(scale) + view(shift) > 0, seed, at::zeros({}, at::kDouble));
  const at::Tensor sum = g.sum({0, 2, 3}), product = (g * (x - view(mean))).sum({0, 2, 3});
  const at::Tensor of_x = -scale * inverse.square() * product / 18, rest = -scale * sum / 18 - of_x * mean;
  const at::Tensor gradient = view(scale) * g + view(of_x) * x + view(rest);
  for (const int64_t at : {0, 5, 13, 26, 40, 53}) {
    at::Tensor above = x.clone(), below = x.clone();
    above.view(-1)[at] += 1e-6;
    below.view(-1)[at] -= 1e-6;
    CHECK(gradient.view(-1)[at].item<double>() ==
          Approx((loss(above) - loss(below)) / 2e-6).epsilon(1e-5).margin(1e-7));
  }
}

TEST_CASE("means over pixels and their gradients match the reference") {
  for (const HeadKernels* width : all_cpu_head_kernels()) check_means(*width, at::kCPU);
}

TEST_CASE("the loss and its gradient match the reference") {
  for (const HeadKernels* width : all_cpu_head_kernels()) check_losses(*width, at::kCPU);
}

TEST_CASE("the gradient of the loss matches float64") {
  check_loss_gradients(reference_head_kernels(), at::kCPU);
  for (const HeadKernels* width : all_cpu_head_kernels()) check_loss_gradients(*width, at::kCPU);
}

TEST_CASE("extreme logits give the same results as libtorch") {
  for (const HeadKernels* width : all_cpu_head_kernels()) check_extreme_logits(*width, at::kCPU);
}

TEST_CASE("the head and its gradients match libtorch") {
  check_head(plain(), at::kCPU);
  for (const HeadKernels* width : all_cpu_head_kernels()) check_head(on_cpu(*width), at::kCPU);
}

TEST_CASE("exponentials have a relative error below 3e-7 over their whole range") {
  // With two classes the probability of the first is e^−d ÷ (1 + e^−d), which is also its gradient.
  constexpr int64_t kRows = 20001;
  for (const HeadKernels* width : all_cpu_head_kernels()) {
    const at::Tensor below = -at::linspace(0, 86, kRows, at::kFloat),
                     logits = at::stack({below, at::zeros({kRows})}, 1);
    const at::Tensor
        gradient = width->cross_entropy(logits, at::ones({kRows}, at::kLong), 0).gradient.select(1, 0).to(at::kDouble),
        e = below.to(at::kDouble).exp();
    CHECK((gradient * (1 + e) / e - 1).abs().max().item<double>() < 3e-7);
  }
}

TEST_CASE("results of the head and the loss do not depend on the number of threads") {
  at::manual_seed(25);
  const at::Tensor x = random({9, 70, 19, 23}, at::kFloat), logits = random_logits(129, 1001, at::kHalf, at::kCPU),
                   target = random_targets(129, 1001, at::kCPU);
  const auto all = [&] {
    CrossEntropy loss = cpu_head_kernels().cross_entropy(logits, target, 0.1);
    cpu_head_kernels().finish_gradient(loss.gradient, at::full({}, 3, at::kFloat));
    const at::Tensor mean = cpu_head_kernels().mean(x);
    return std::vector<at::Tensor>{loss.loss, loss.gradient, mean, cpu_head_kernels().mean_gradient(mean, 19, 23)};
  };
  const int threads = at::get_num_threads();
  at::set_num_threads(4);
  const auto many = all();
  at::set_num_threads(1);
  const auto one = all();
  at::set_num_threads(threads);
  for (size_t i = 0; i < many.size(); ++i) CHECK(many[i].equal(one[i]));
}

TEST_CASE("the gradient of the loss is finished in place, so a second backward is refused") {
  const at::Tensor logits = at::randn({4, 5}).requires_grad_(),
                   loss = cross_entropy(logits, at::zeros({4}, at::kLong), 0, cpu_head_kernels());
  loss.backward({}, /*retain_graph=*/true);
  const at::Tensor once = logits.grad().clone();
  CHECK_THROWS_WITH(loss.backward(), ContainsSubstring("modified by an inplace operation"));
  CHECK(logits.grad().equal(once));
}
