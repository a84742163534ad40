// Tests updates on a GPU: the checks that the CPU kernels pass, a tensor with more than 2³¹ values, and a training job.
#include "device/device.h"
#include "gpu.h"
#include "kernels/update_checks.h"
#include "optimizations/fused_optimizer/fused_optimizer.h"
#include "recipes.h"

using namespace trainopt;
using namespace trainopt::test;

namespace {

const UpdateKernels& updates_on_gpu() {
  REQUIRE(cuda_kernels() != nullptr);
  return *cuda_kernels();
}

}  // namespace

TEST_CASE("updates on a GPU match the reference, including scaling, skipping, clearing and copies") {
  check_every_rule(updates_on_gpu(), kGpu);
}

TEST_CASE("updates on a GPU work for more tensors than one launch takes, and for none") {
  check_many_tensors(updates_on_gpu(), kGpu);
}

TEST_CASE("updates on a GPU match the reference for NaN, infinite, huge and subnormal gradients") {
  check_extreme_gradients(updates_on_gpu(), kGpu);
}

TEST_CASE("the measurement of gradients on a GPU matches the reference") { check_measures(updates_on_gpu(), kGpu); }

TEST_CASE("16-bit copies on a GPU are bit-identical to libtorch's cast") { check_copies(updates_on_gpu(), kGpu); }

TEST_CASE("updates on a GPU refuse gradients with other strides than their parameters") {
  check_layouts(updates_on_gpu(), kGpu);
}

TEST_CASE("updates count the values of a parameter in 64 bits") {
  constexpr int64_t kSize = (int64_t{1} << 31) + 5;
  if (device_facts(kGpu).memory_bytes < int64_t{24} << 30) {
    WARN("this GPU has too little memory for two tensors of more than 2³¹ values");
    return;
  }
  const at::Tensor parameter = at::zeros({kSize}, at::TensorOptions(kGpu).dtype(at::kFloat)),
                   gradient = at::ones_like(parameter);
  CHECK(updates_on_gpu().measure({gradient}, on(kGpu, 0)).square_sum.item<double>() == kSize);
  updates_on_gpu().sgd({.momentum = 0, .weight_decay = 0, .nesterov = false}, {{parameter}, {gradient}, {}, {}},
                       {.learning_rate = on(kGpu, 2), .factor = {}, .skip_update = {}, .clears = true});
  CHECK((parameter == -2).all().item<bool>());
  CHECK_FALSE(gradient.any().item<bool>());
}

TEST_CASE("a fused optimizer trains like a plain one and reports scaling, clipping and clearing") {
  Recipe recipe = small_recipe("cuda");
  recipe.optimizer = SgdConfig{.lr = 1e-4};
  recipe.train.max_grad_norm = 0.5;
  recipe.optimizations.amp = {true, {.dtype = amp::Type::float16, .init_scale = 1024}};
  const auto plain = train(recipe).rows;
  recipe.optimizations.fused_optimizer = true;
  const Finished fused = train(recipe);
  for (size_t step = 0; step < plain.rows.size(); ++step) {
    CHECK(*fused.rows.rows[step][Metric::loss] == Approx(*plain.rows[step][Metric::loss]).epsilon(1e-3));
    CHECK(*fused.rows.rows[step][Metric::grad_norm] == Approx(*plain.rows[step][Metric::grad_norm]).epsilon(2e-2));
  }
  const fused_optimizer::Update update = fused_optimizer::update_of(fused.seen);
  CHECK(update.tensors == fused.seen.parameters);
  CHECK(update.launches == 1);
  CHECK((update.scaled && update.clipped && update.cleared));
  CHECK(fused.seen.calls(fused_optimizer::kMeasureLabel) == 1);
}
