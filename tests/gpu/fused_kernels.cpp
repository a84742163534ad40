// Tests fused kernels on a GPU: the checks that the CPU kernels pass, tensors with more than 2³¹ elements, and a
// training job.
#include "gpu.h"
#include "device/device.h"
#include "kernels/block_checks.h"
#include "kernels/head_checks.h"
#include "kernels/pool_checks.h"
#include "recipes.h"

using namespace trainopt;
using namespace trainopt::test;

namespace {

const NormKernels& norm_on_gpu() {
  REQUIRE(cuda_norm_kernels() != nullptr);
  return *cuda_norm_kernels();
}
const PoolKernels& pool_on_gpu() {
  REQUIRE(cuda_pool_kernels() != nullptr);
  return *cuda_pool_kernels();
}
const HeadKernels& head_on_gpu() {
  REQUIRE(cuda_head_kernels() != nullptr);
  return *cuda_head_kernels();
}
fused_kernels::BlockKernels all_on_gpu() {
  return {.norm = norm_on_gpu(), .pool = pool_on_gpu(), .head = head_on_gpu()};
}

}  // namespace

TEST_CASE("every fused pass matches the reference") {
  check_every_pass(norm_on_gpu(), kGpu);
  check_every_pool_pass(pool_on_gpu(), kGpu);
}

TEST_CASE("large values that differ little keep their variance on a GPU") { check_large_values(norm_on_gpu(), kGpu); }

TEST_CASE("fused kernels propagate NaN and infinity") {
  check_not_a_number(norm_on_gpu(), kGpu);
  check_pool_not_a_number(pool_on_gpu(), kGpu);
}

TEST_CASE("the pool chooses the first of equal values on a GPU") { check_pool_choices(pool_on_gpu(), kGpu); }

TEST_CASE("fused block operations and their gradients match libtorch") { check_block_operations(all_on_gpu(), kGpu); }

TEST_CASE("16-bit fused block operations are within one rounding of float32") { check_16_bits(all_on_gpu(), kGpu); }

TEST_CASE("fused means over pixels and their gradients match the reference") { check_means(head_on_gpu(), kGpu); }

TEST_CASE("the fused loss and its gradient match the reference") { check_losses(head_on_gpu(), kGpu); }

TEST_CASE("the gradient of the fused loss matches float64") { check_loss_gradients(head_on_gpu(), kGpu); }

TEST_CASE("the fused loss gives the same results as libtorch for extreme logits") {
  check_extreme_logits(head_on_gpu(), kGpu);
}

TEST_CASE("the fused head and its gradients match libtorch") { check_head(all_on_gpu(), kGpu); }

TEST_CASE("the fused loss is reproducible, and NaN for a target out of range") {
  const at::Tensor logits = random_logits(64, 1001, at::kBFloat16, kGpu), target = random_targets(64, 1001, kGpu);
  const CrossEntropy once = head_on_gpu().cross_entropy(logits, target, 0.1),
                     again = head_on_gpu().cross_entropy(logits, target, 0.1);
  CHECK(once.loss.equal(again.loss));
  CHECK(once.gradient.equal(again.gradient));
  target[3] = 1001;
  const CrossEntropy wrong = head_on_gpu().cross_entropy(logits, target, 0.1);
  CHECK(wrong.loss.isnan().item<bool>());
  CHECK(wrong.gradient.isnan().any(1).sum().item<int64_t>() == 1);
}

TEST_CASE("fused sums are reproducible and run on the current stream") {
  const at::Tensor x = random({32, 64, 56, 56}, at::kBFloat16, kGpu);
  const NormState state(64, kGpu);
  const Statistics once = norm_on_gpu().statistics(x, state.parameters());
  const Stream main = Stream::current(kGpu), side = Stream::side(kGpu);
  Event ready(kGpu);
  ready.record(main);
  const StreamGuard guard(side);
  ready.block(side);
  const Statistics again = norm_on_gpu().statistics(x, state.parameters());
  side.synchronize();
  CHECK(again.mean.equal(once.mean));
  CHECK(again.inverse.equal(once.inverse));
}

TEST_CASE("fused kernels count elements in 64 bits") {
  constexpr int64_t kImages = 5, kSide = 2700;  // 2.3 · 10⁹ elements, 4.7 GB
  if (device_facts(kGpu).memory_bytes < int64_t{20} << 30) {
    WARN("this GPU has too little memory for more than 2³¹ elements");
    return;
  }
  {
    constexpr int64_t kRows = 30001, kClasses = 100000;  // 3 · 10⁹ logits, 6 GB, and equally large gradients
    const at::Tensor logits = at::zeros({kRows, kClasses}, at::TensorOptions(kGpu).dtype(at::kBFloat16)),
                     target = at::full({kRows}, kClasses - 1, at::TensorOptions(kGpu).dtype(at::kLong));
    const CrossEntropy got = head_on_gpu().cross_entropy(logits, target, 0);
    CHECK(got.loss.item<double>() == Approx(std::log(1e5)).epsilon(1e-6));
    check_near(got.gradient[kRows - 1].to(at::kFloat).slice(0, kClasses - 2), at::tensor({1e-5f, -1.0f}).to(kGpu),
               epsilon(at::kBFloat16));
  }
  at::Tensor x =
      at::zeros({kImages, kSide, kSide, 64}, at::TensorOptions(kGpu).dtype(at::kBFloat16)).permute({0, 3, 1, 2});
  x[kImages - 1].fill_(1);
  const ByChannel by(64, kGpu);
  const Statistics statistics = norm_on_gpu().statistics(x, NormState(64, kGpu).parameters());
  CHECK(statistics.mean.sub(1.0 / kImages).abs().max().item<double>() < 1e-6);
  const auto last = [](const at::Tensor& tensor) {
    return tensor.slice(0, kImages - 1).slice(2, tensor.size(2) - 3).contiguous(at::MemoryFormat::ChannelsLast);
  };
  check_near(last(norm_on_gpu().apply(x, by.scale, by.shift, {}, true)),
             reference_norm_kernels().apply(last(x), by.scale, by.shift, {}, true), 2 * epsilon(at::kBFloat16));
  check_near(last(pool_on_gpu().pool(x, by.scale, by.shift).values).slice(3, 0, 1),
             at::relu(by.scale + by.shift).to(at::kBFloat16).view({1, 64, 1, 1}).expand({1, 64, 3, 1}),
             2 * epsilon(at::kBFloat16));
}

TEST_CASE("fused kernels train like plain ones, and the receipt confirms the switch") {
  Recipe recipe = small_recipe("cuda");
  recipe.optimizer = SgdConfig{.lr = 1e-4};
  recipe.optimizations.channels_last = true;
  const auto plain = train(recipe).rows.losses();
  recipe.optimizations.fused_kernels = true;
  const Finished fused = train(recipe);
  for (size_t step = 0; step < plain.size(); ++step)
    CHECK(fused.rows.losses()[step] == Approx(plain[step]).epsilon(1e-3));
  const auto own = std::find_if(fused.receipts.begin(), fused.receipts.end(),
                                [](const auto& receipt) { return receipt.name == "fused_kernels"; });
  REQUIRE(own != fused.receipts.end());
  INFO(own->receipt.observed);
  CHECK(own->receipt.effective);
  CHECK(own->receipt.reason.empty());
}
