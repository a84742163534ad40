// Tests the kernels layer_norm and gelu on a GPU: the checks that the CPU kernels pass, and a training job.
#include "gpu.h"
#include "kernels/gelu_checks.h"
#include "recipes.h"

using namespace trainopt;
using namespace trainopt::test;

namespace {

const LayerNormKernels& layer_norm_on_gpu() {
  REQUIRE(cuda_layer_norm_kernels() != nullptr);
  return *cuda_layer_norm_kernels();
}
const GeluKernels& gelu_on_gpu() {
  REQUIRE(cuda_gelu_kernels() != nullptr);
  return *cuda_gelu_kernels();
}

}  // namespace

TEST_CASE("fused layer norms and their gradients match the reference and float64 on a GPU") {
  check_layer_norms(layer_norm_on_gpu(), kGpu);
  check_layer_norm_gradients(layer_norm_on_gpu(), kGpu);
}

TEST_CASE("unusual rows have libtorch's layer norm on a GPU") { check_unusual_rows(layer_norm_on_gpu(), kGpu); }

TEST_CASE("fused GELU and its gradients match the reference and float64 on a GPU") {
  check_gelus(gelu_on_gpu(), kGpu);
  check_gelu_accuracy(gelu_on_gpu(), kGpu);
  check_gelu_gradients(gelu_on_gpu(), kGpu);
}

TEST_CASE("unusual values have libtorch's GELU on a GPU") { check_unusual_gelu_inputs(gelu_on_gpu(), kGpu); }

TEST_CASE("sums of layer norm and GELU are reproducible on a GPU") {
  const at::Tensor x = random_rows({5000, 768}, at::kFloat, kGpu), g = random_rows({5000, 768}, at::kFloat, kGpu);
  const LayerNormState state(768, kGpu);
  const auto sums = [&] {
    const auto result = layer_norm_on_gpu().forward(x, {}, state.parameters(), at::kFloat);
    const auto gradients = layer_norm_on_gpu().backward({g, {}}, x, result.by, state.weight, at::kFloat, std::nullopt);
    return std::vector<at::Tensor>{gradients.of_weight, gradients.of_bias,
                                   gelu_on_gpu().backward(g, x, state.bias, Gelu::exact).of_bias};
  };
  const auto once = sums(), again = sums();
  for (size_t i = 0; i < once.size(); ++i) CHECK(once[i].equal(again[i]));
}

TEST_CASE("fused kernels train a vision transformer like plain ones on a GPU, and the receipt counts them") {
  Recipe recipe = small_recipe("cuda");
  recipe.model = {.name = ModelKind::vit, .patch = 4, .layers = 2, .heads = 2, .width = 128};
  const auto plain = train(recipe).rows.losses();
  recipe.optimizations.fused_kernels = true;
  const Finished fused = train(recipe);
  for (size_t step = 0; step < plain.size(); ++step)
    CHECK(fused.rows.losses()[step] == Approx(plain[step]).epsilon(1e-3));
  const auto own = std::find_if(fused.receipts.begin(), fused.receipts.end(),
                                [](const auto& receipt) { return receipt.name == "fused_kernels"; });
  REQUIRE(own != fused.receipts.end());
  CHECK_THAT(own->receipt.observed, ContainsSubstring("5 of 5 layer norms fused, 5 of their gradients"));
  CHECK_THAT(own->receipt.observed, ContainsSubstring("2 of 2 GELUs fused, 2 of their gradients"));
}
