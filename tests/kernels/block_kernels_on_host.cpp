// Tests the GPU kernels, compiled for the host and run thread by thread, against the reference of each pass.
#include "support/cuda_on_host.h"

#include "kernels/block_checks.h"
#include "kernels/head/device.cuh"
#include "kernels/head/launched.h"
#include "kernels/head_checks.h"
#include "kernels/norm/device.cuh"
#include "kernels/norm/launched.h"
#include "kernels/norm/norm.h"
#include "kernels/pool/device.cuh"
#include "kernels/pool/launched.h"
#include "kernels/pool/pool.h"
#include "kernels/pool_checks.h"

#include <array>
#include <set>

using namespace trainopt;
using namespace trainopt::test;
namespace rows = trainopt::kernels::device;
using rows::Tiling;
using rows::tiling_of;

namespace {

const NormKernels& on_host() {
  static const rows::DeviceNormLaunches launches;
  static const LaunchedNormKernels kernels(launches, at::kCPU);
  return kernels;
}

const PoolKernels& pool_on_host() {
  static const rows::DevicePoolLaunches launches;
  static const LaunchedPoolKernels kernels(launches, at::kCPU);
  return kernels;
}

const HeadKernels& head_on_host() {
  static const rows::DeviceHeadLaunches launches;
  static const LaunchedHeadKernels kernels(launches, at::kCPU);
  return kernels;
}

fused_kernels::BlockKernels all_on_host() {
  return {.norm = on_host(), .pool = pool_on_host(), .head = head_on_host()};
}

}  // namespace

TEST_CASE("GPU passes match the reference in every type and shape") {
  check_every_pass(on_host(), at::kCPU);
  check_every_pool_pass(pool_on_host(), at::kCPU);
}

TEST_CASE("on a GPU, large values that differ little keep their variance") { check_large_values(on_host(), at::kCPU); }

TEST_CASE("on a GPU, NaN and infinity are propagated") {
  check_not_a_number(on_host(), at::kCPU);
  check_pool_not_a_number(pool_on_host(), at::kCPU);
}

TEST_CASE("on a GPU, the pool chooses the first of equal values") { check_pool_choices(pool_on_host(), at::kCPU); }

TEST_CASE("on a GPU, block operations and their gradients match libtorch") {
  check_block_operations(all_on_host(), at::kCPU);
}

TEST_CASE("on a GPU, 16-bit outputs are within one rounding of float32") { check_16_bits(all_on_host(), at::kCPU); }

TEST_CASE("unaligned samples are read one by one") {
  at::manual_seed(8);
  for (const auto type : kNormTypes) {
    const at::Tensor memory = at::randn({2 * 5 * 3 * 16 + 1}).to(type);
    const at::Tensor x = memory.slice(0, 1).view({2, 5, 3, 16}).permute({0, 3, 1, 2});
    REQUIRE(x.is_contiguous(at::MemoryFormat::ChannelsLast));
    REQUIRE(reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 != 0);
    check_passes(on_host(), x);
    check_pool_passes(pool_on_host(), x);
  }
}

TEST_CASE("a block processes several chunks of rows, and results do not depend on the order of threads") {
  at::manual_seed(10);
  const at::Tensor x = random({1, 8192, 13, 41}, at::kBFloat16), gradient = random({1, 8192, 13, 41}, at::kBFloat16);
  const Tiling tiling = tiling_of(13 * 41, 8192, 8);
  REQUIRE(tiling.chunks > tiling.stripes);
  const ByChannel by(8192);
  const NormState state(8192);
  const auto all = [&] {
    const Statistics statistics = on_host().statistics(x, state.copy().parameters());
    const Coefficients sums = on_host().coefficients_through_relu(gradient, x, by);
    return std::vector<at::Tensor>{statistics.mean, statistics.inverse, sums.of_bias, sums.of_x,
                                   on_host().apply(x, by.scale, by.shift, gradient, true)};
  };
  const auto forwards = all();
  grid_on_host.backwards = true;
  const auto backwards = all();
  grid_on_host.backwards = false;
  for (size_t i = 0; i < forwards.size(); ++i) CHECK(forwards[i].equal(backwards[i]));
  check_near(forwards[0], reference_norm_kernels().statistics(x, state.parameters()).mean, 1e-6);
  check_near(forwards[4], reference_norm_kernels().apply(x, by.scale, by.shift, gradient, true),
             2 * epsilon(at::kBFloat16));
}

TEST_CASE("a batch-norm takes three launches each way on a GPU, also before a pool") {
  at::manual_seed(13);
  const at::Tensor weight = at::randn({16}).requires_grad_(), bias = at::randn({16}).requires_grad_();
  const NormState state(16);
  const NormParameters norm{weight, bias, state.mean, state.var, state.batches, 0.1, 1e-5};
  const at::Tensor x = random({2, 16, 6, 6}, at::kFloat).requires_grad_();
  const auto launches_of = [](const auto& work) {
    grid_on_host.launches = 0;
    const at::Tensor result = work();
    return std::pair(result, grid_on_host.launches);
  };
  for (const bool pools : {false, true}) {
    const auto [y, forward] = launches_of([&] {
      return pools ? kernels::normalize_and_pool(x, norm, on_host(), pool_on_host())
                   : kernels::normalize(x, norm, std::nullopt, true, on_host());
    });
    const at::Tensor loss = y.sum();
    const auto [none, backward] = launches_of([&] {
      loss.backward();
      return at::Tensor();
    });
    CHECK(forward == 3);
    CHECK(backward == 3);
  }
}

TEST_CASE("on a GPU, means over pixels and their gradients match the reference") {
  check_means(head_on_host(), at::kCPU);
}

TEST_CASE("on a GPU, the loss and its gradient match the reference") { check_losses(head_on_host(), at::kCPU); }

TEST_CASE("on a GPU, the gradient of the loss matches float64") { check_loss_gradients(head_on_host(), at::kCPU); }

TEST_CASE("on a GPU, extreme logits give the same results as libtorch") {
  check_extreme_logits(head_on_host(), at::kCPU);
}

TEST_CASE("on a GPU, the head and its gradients match libtorch") { check_head(all_on_host(), at::kCPU); }

TEST_CASE("on a GPU, a target out of range makes its own row NaN and no other") {
  at::manual_seed(11);
  for (const int64_t classes : {10, 1000}) {
    const at::Tensor logits = random_logits(4, classes, at::kFloat, at::kCPU),
                     target = at::tensor({0, -1, 3, 1}, at::kLong);
    target[3] = classes;
    const CrossEntropy got = head_on_host().cross_entropy(logits, target, 0.1);
    CHECK(got.loss.isnan().item<bool>());
    CHECK(got.gradient.isnan().all(1).equal(at::tensor({0, 1, 0, 1}).to(at::kBool)));
    CHECK(got.gradient.isnan().any(1).equal(at::tensor({0, 1, 0, 1}).to(at::kBool)));
  }
}

TEST_CASE("results of the head and the loss do not depend on the order of threads") {
  at::manual_seed(12);
  const at::Tensor x = random({5, 130, 9, 11}, at::kBFloat16), logits = random_logits(37, 1001, at::kFloat, at::kCPU),
                   target = random_targets(37, 1001, at::kCPU);
  const auto all = [&] {
    CrossEntropy loss = head_on_host().cross_entropy(logits, target, 0.1);
    const at::Tensor kept = loss.gradient.clone(), mean = head_on_host().mean(x);
    head_on_host().finish_gradient(loss.gradient, at::full({}, 3, at::kFloat));
    return std::vector<at::Tensor>{loss.loss, kept, loss.gradient, mean, head_on_host().mean_gradient(mean, 9, 11)};
  };
  const auto forwards = all();
  grid_on_host.backwards = true;
  const auto backwards = all();
  grid_on_host.backwards = false;
  for (size_t i = 0; i < forwards.size(); ++i) CHECK(forwards[i].equal(backwards[i]));
}

TEST_CASE("the tiling covers every row and channel once and limits the rows summed in float32") {
  for (const int width : {1, 4, 8})
    for (const int64_t channels : {1, 3, 8, 64, 65, 256, 2048})
      for (const int64_t rows : {1, 49, 3000, 401408, 12845056}) {
        const Tiling t = tiling_of(rows, channels, width);
        INFO(width << " " << channels << " " << rows);
        CHECK(rows::kThreads % t.lanes == 0);
        CHECK(int64_t{t.tiles} * t.lanes * width >= channels);
        CHECK((int64_t{t.tiles} - 1) * t.lanes * width < channels);
        const int64_t in_chunk = int64_t{t.rows_at_once()} * rows::kRowsPerThread;
        CHECK(t.chunks * in_chunk >= rows);
        CHECK((t.chunks - 1) * in_chunk < rows);
        CHECK((t.stripes > 0 && t.stripes <= t.chunks));
        CHECK(rows::divided_up(t.chunks, t.stripes) * rows::kRowsPerThread <= rows::kRowsInFloat);
      }
}

TEST_CASE("the host grid detects errors that would break a kernel on a GPU") {
  const auto some_wait = [] {
    if (threadIdx.x < 5) __syncthreads();
  };
  CHECK_THROWS_AS(grid_on_host.run(1, 32, some_wait), BrokenKernel);
  CHECK_THROWS_AS(grid_on_host.run(1, 2048, [] {}), BrokenKernel);
  CHECK_THROWS_AS(grid_on_host.run(0, 32, [] {}), BrokenKernel);
  const std::array<float, 8> floats{};
  CHECK_THROWS_AS(grid_on_host.run(1, 32,
                                   [&] {
                                     kernels::read<kernels::Pack<float, 4>>(
                                         floats.data() + (reinterpret_cast<uintptr_t>(floats.data()) % 16 == 0));
                                   }),
                  BrokenKernel);
  // Each thread of each block runs once; after a barrier all threads of a block have written.
  std::multiset<unsigned> seen;
  bool all_wrote = true;
  grid_on_host.run(3, 64, [&] {
    float* buffer = kernels::shared_memory<float, 64>();
    buffer[threadIdx.x] = 1;
    __syncthreads();
    for (int i = 0; i < 64; ++i) all_wrote = all_wrote && buffer[i] == 1;
    seen.insert(blockIdx.x * 64 + threadIdx.x);
  });
  CHECK(all_wrote);
  CHECK(seen.size() == 192);
  CHECK(std::set<unsigned>(seen.begin(), seen.end()).size() == 192);
}
