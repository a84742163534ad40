// Tests the CPU kernels of layer_norm and gelu against their references, and against libtorch's own operations and
// their gradients.
#include "kernels/gelu_checks.h"

#include <ATen/Parallel.h>

using namespace trainopt;
using namespace trainopt::test;

namespace {

/// The results of `work` with four threads and with one are the same.
void check_same_with_any_threads(const std::function<std::vector<at::Tensor>()>& work) {
  const int threads = at::get_num_threads();
  at::set_num_threads(4);
  const auto many = work();
  at::set_num_threads(1);
  const auto one = work();
  at::set_num_threads(threads);
  for (size_t i = 0; i < many.size(); ++i) CHECK(many[i].equal(one[i]));
}

}  // namespace

TEST_CASE("layer norms and their gradients match the reference in every type and size") {
  for (const LayerNormKernels* width : all_cpu_layer_norm_kernels()) check_layer_norms(*width, at::kCPU);
}

TEST_CASE("layer norms and their gradients match float64") {
  check_layer_norm_gradients(reference_layer_norm_kernels(), at::kCPU);
  for (const LayerNormKernels* width : all_cpu_layer_norm_kernels()) check_layer_norm_gradients(*width, at::kCPU);
}

TEST_CASE("unusual rows have libtorch's layer norm") {
  for (const LayerNormKernels* width : all_cpu_layer_norm_kernels()) check_unusual_rows(*width, at::kCPU);
}

TEST_CASE("layer norms do not depend on the number of threads") {
  at::manual_seed(34);
  const at::Tensor x = random_rows({517, 300}, at::kFloat, at::kCPU), g = random_rows({517, 300}, at::kHalf, at::kCPU);
  const LayerNormState state(300, at::kCPU);
  check_same_with_any_threads([&] {
    const auto result = cpu_layer_norm_kernels().forward(x, g, state.parameters(), at::kHalf);
    const auto gradients =
        cpu_layer_norm_kernels().backward({g, {}}, result.sum, result.by, state.weight, at::kFloat, at::kHalf);
    return std::vector<at::Tensor>{result.sum,          result.normalized,   result.by.mean,    result.by.rstd,
                                   gradients.of_branch, gradients.of_weight, gradients.of_bias, gradients.of_residual};
  });
}

TEST_CASE("GELU and its gradients match the reference in every type and size") {
  for (const GeluKernels* width : all_cpu_gelu_kernels()) check_gelus(*width, at::kCPU);
}

TEST_CASE("GELU in float32 is accurate over the whole range") {
  for (const GeluKernels* width : all_cpu_gelu_kernels()) check_gelu_accuracy(*width, at::kCPU);
}

TEST_CASE("unusual values have libtorch's GELU") {
  for (const GeluKernels* width : all_cpu_gelu_kernels()) check_unusual_gelu_inputs(*width, at::kCPU);
}

TEST_CASE("GELU and its gradients match float64") {
  check_gelu_gradients(reference_gelu_kernels(), at::kCPU);
  for (const GeluKernels* width : all_cpu_gelu_kernels()) check_gelu_gradients(*width, at::kCPU);
}

TEST_CASE("GELU does not depend on the number of threads") {
  at::manual_seed(43);
  const at::Tensor x = random_rows({517, 300}, at::kFloat, at::kCPU), g = at::randn_like(x), bias = at::randn({300});
  check_same_with_any_threads([&] {
    const GeluGradients gradients = cpu_gelu_kernels().backward(g, x, bias, Gelu::exact);
    return std::vector<at::Tensor>{cpu_gelu_kernels().forward(x, bias, Gelu::exact), gradients.of_x, gradients.of_bias};
  });
}
