// A forecast computed by hand; tests/optimizations/memory_forecast.cpp compares forecasts with measurements.
#include "train/memory_forecast.h"

#include "support/catch.h"
#include "support/plans.h"

#include <cmath>

using namespace trainopt;
using namespace trainopt::test;

namespace {

constexpr int64_t kBatch = 4096, kIn = 192, kHidden = 32, kOut = 10, kFloat32 = 4;
constexpr int64_t kParameters = kFloat32 * ((kIn + 1) * kHidden + (kHidden + 1) * kOut);
constexpr int64_t kActivation = kFloat32 * kBatch * kHidden, kLogits = kFloat32 * kBatch * kOut;
constexpr int64_t kImagesAndLabels = kBatch * (kFloat32 * kIn + 8);
constexpr int64_t kScalars = 64;  ///< at most: losses and the like

/// 192 inputs, 32 hidden values, 10 outputs; the batch is created once.
Plan two_layers() {
  Plan plan = small_plan(2);
  plan.data.kind = DatasetKind::synthetic;
  plan.data.dataset = nullptr;
  plan.data.synthetic = {.samples = 2 * kBatch, .side = 8};
  plan.data.transforms.clear();
  plan.data.batch_size = kBatch;
  plan.model.config = {.name = ModelKind::mlp, .hidden = {kHidden}};
  plan.model.input = plan.data.input_shape();
  return plan;
}

bool about(int64_t bytes, int64_t expected) { return std::abs(bytes - expected) <= kScalars; }

}  // namespace

TEST_CASE("the forecast of a network with two layers is the one computed by hand") {
  const MemoryPeak peak = forecast_memory(two_layers());
  const MemoryBreakdown& at_peak = peak.breakdown;
  CHECK(at_peak[MemoryUse::parameters] == kParameters);
  CHECK(at_peak[MemoryUse::gradients] == kParameters);
  CHECK(at_peak[MemoryUse::optimizer] == kParameters);  // momentum
  CHECK(at_peak[MemoryUse::batches] == kImagesAndLabels);
  // Backward through ReLU reads its output and the gradient of that, and writes another gradient.
  CHECK(peak.where == "backward of layers.0");
  CHECK(about(at_peak[MemoryUse::activations], kActivation));
  CHECK(about(at_peak[MemoryUse::other], 2 * kActivation));
  CHECK(at_peak.activations.front() == std::pair<std::string, int64_t>("layers.0", kActivation));
}

TEST_CASE("dropout keeps a mask, and momentum 0 keeps no state") {
  Plan plan = two_layers();
  plan.optimizer_config = SgdConfig{.momentum = 0};
  plan.model.config.dropout = 0.5;
  const MemoryPeak peak = forecast_memory(plan);
  CHECK(peak.breakdown[MemoryUse::optimizer] == 0);
  // ReLU's output, the mask, and the product, which the next layer reads.
  CHECK(peak.breakdown.activations.front() == std::pair<std::string, int64_t>("layers.0", 3 * kActivation));
}

TEST_CASE("what grows with the batch, and what does not") {
  Plan plan = two_layers();
  const MemoryPeak whole = forecast_memory(plan);
  plan.data.batch_size /= 2;
  const MemoryPeak half = forecast_memory(plan);
  const auto state = [](const MemoryPeak& peak) {
    return peak.breakdown[MemoryUse::parameters] + peak.breakdown[MemoryUse::gradients] +
           peak.breakdown[MemoryUse::optimizer];
  };
  CHECK(state(half) == state(whole));
  CHECK(about(2 * (half.breakdown.total() - state(half)), whole.breakdown.total() - state(whole)));
  plan.data.accumulation = 2;
  CHECK(about(forecast_memory(plan).breakdown.total(), half.breakdown.total()));
}

TEST_CASE("steps whose update may be skipped keep copies until then") {
  Plan plan = two_layers();
  plan.optimizer_config = LionConfig{};
  plan.data.batch_size = 8;  // few activations
  const MemoryPeak aborts = forecast_memory(plan);
  plan.train.on_nonfinite = OnNonfinite::skip;
  const MemoryPeak skips = forecast_memory(plan);
  CHECK(aborts.where == "backward of layers.0");
  CHECK(skips.where == "update");
  constexpr int64_t kLargest = kFloat32 * kIn * kHidden;
  CHECK(about(skips.breakdown[MemoryUse::other], 2 * kLargest));  // the update of the largest parameter, and a copy
  CHECK(skips.breakdown.total() > aborts.breakdown.total());
}

TEST_CASE("a GPU's forecast includes cuBLAS's work space, and memory is that of the device") {
  Plan plan = two_layers();
  const int64_t on_cpu = forecast_memory(plan).breakdown.total();
  plan.machine.memory_bytes = 8 << 20;
  plan.machine.gpu_memory_bytes = 4 << 20;
  plan.position = {.ranks = 2, .local_ranks = 2};
  CHECK(memory_capacity(plan) == 4 << 20);  // each rank's share
  plan.position = {};
  plan.device = at::Device(at::kCUDA, 0);
  plan.machine.sm = 80;
  CHECK(memory_capacity(plan) == 4 << 20);
  CHECK(forecast_memory(plan).breakdown.total() == on_cpu + 2 * (8 * 1024 + 128) * 1024);
  plan.machine.sm = 90;
  CHECK(forecast_memory(plan).breakdown.total() == on_cpu + (int64_t{64} << 20));
}

TEST_CASE("an assumed machine's memory is that of the device that trains") {
  CHECK(assume(Machine{}, "gpus=0,memory_gib=16").machine.memory_bytes == int64_t{16} << 30);
  CHECK(assume(Machine{}, "gpus=0,memory_gib=16").machine.gpu_memory_bytes == 0);
  CHECK(assume(Machine{}, "gpus=1,memory_gib=16").machine.gpu_memory_bytes == int64_t{16} << 30);
  CHECK(assume(Machine{}, "gpus=1,memory_gib=7.5").machine.gpu_memory_bytes == int64_t{15} << 29);
}
