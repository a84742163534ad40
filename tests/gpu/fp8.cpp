// Tests linear layers in 8 bits on GPUs from sm_89: libtorch's products against their emulation, and whole runs.
#include "device/tensor.h"
#include "optimizations/fp8/linear.h"
#include "recipes.h"
#include "support/autograd.h"
#include "support/catch.h"

using namespace trainopt;
using namespace trainopt::test;
using fp8::Scaling;

namespace {

bool has_fp8() { return detect_machine().sm >= 89; }

const auto kOwnAmax = [](const at::Tensor&, fp8::Operand, const at::Tensor& current, bool) { return current; };

/// Output and gradients of a layer with bfloat16 inputs.
std::vector<at::Tensor> results(Scaling scaling, fp8::Product product, const at::Tensor& x, const at::Tensor& w) {
  const at::Tensor xs = x.detach().requires_grad_(), ws = w.detach().requires_grad_();
  const at::Tensor y = fp8::make_linear(scaling, product, kOwnAmax)->linear(xs, {ws, {}, ws});
  const auto gradients = torch::autograd::grad({y}, {xs, ws}, {at::ones_like(y)});
  return {y.detach(), gradients[0], gradients[1]};
}

Recipe language_recipe() {
  Recipe recipe = small_recipe("cuda");
  recipe.model = {.name = ModelKind::gpt2, .layers = 2, .heads = 2, .width = 128, .context = 63, .vocabulary = 61};
  recipe.data.dataset = DatasetKind::synthetic;
  recipe.data.transforms = {};
  recipe.optimizations.amp.on = recipe.optimizations.fp8.on = true;
  return recipe;
}

}  // namespace

TEST_CASE("linear layers in 8 bits agree with the emulation on a GPU, with any number of rows") {
  if (!has_fp8()) return;
  at::manual_seed(1);
  const at::Tensor w = at::randn({256, 128}).cuda();
  for (const int64_t rows : {64, 33})
    for (const auto scaling : {Scaling::tensorwise, Scaling::rowwise}) {
      const at::Tensor x = at::randn({rows, 128}).cuda().to(at::kBFloat16);
      const auto got = results(scaling, fp8::product, x, w), wanted = results(scaling, fp8::emulated_product, x, w);
      for (size_t i = 0; i < got.size(); ++i) {
        CHECK(got[i].scalar_type() == wanted[i].scalar_type());
        const at::Tensor reference = wanted[i].to(at::kFloat);
        // bfloat16 results, and sums with 14 bits of mantissa
        CHECK((got[i].to(at::kFloat) - reference).norm().item<double>() < 1e-2 * reference.norm().item<double>());
      }
    }
}

TEST_CASE("fp8 takes effect on a GPU in both recipes, alone and with kernels, history and a recorded step") {
  if (!has_fp8()) return;
  for (const fp8::Config& config : {fp8::Config{}, {.recipe = Scaling::rowwise}, {.amax_history = 4}})
    for (const bool all : {false, true}) {
      Recipe recipe = language_recipe();
      recipe.optimizations.fp8.options = config;
      recipe.optimizations.fused_kernels = recipe.optimizations.fused_optimizer = recipe.optimizations.cuda_graph = all;
      const Finished finished = train(recipe);
      for (const auto& [name, requested, receipt] : finished.receipts)
        if (name == "fp8") {
          INFO(receipt.observed << " / " << receipt.reason);
          CHECK(receipt.effective);
        }
      const auto losses = finished.rows.losses();
      CHECK(losses.back() < losses.front());
    }
}
