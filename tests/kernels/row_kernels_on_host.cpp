// Tests the GPU kernels of layer_norm and gelu, compiled for the host and run thread by thread, against their
// references.
#include "support/cuda_on_host.h"

#include "kernels/gelu/device.cuh"
#include "kernels/gelu/launched.h"
#include "kernels/gelu_checks.h"
#include "kernels/layer_norm/device.cuh"
#include "kernels/layer_norm/launched.h"

using namespace trainopt;
using namespace trainopt::test;

namespace {

const LayerNormKernels& layer_norm_on_host() {
  static const kernels::device::DeviceLayerNormLaunches launches;
  static const LaunchedLayerNormKernels kernels(launches, at::kCPU);
  return kernels;
}

const GeluKernels& gelu_on_host() {
  static const kernels::device::DeviceGeluLaunches launches;
  static const LaunchedGeluKernels kernels(launches, at::kCPU);
  return kernels;
}

/// The results of `work` are the same if blocks and threads run in the opposite order.
void check_same_in_any_order(const std::function<std::vector<at::Tensor>()>& work) {
  const auto forwards = work();
  grid_on_host.backwards = true;
  const auto backwards = work();
  grid_on_host.backwards = false;
  for (size_t i = 0; i < forwards.size(); ++i) CHECK(forwards[i].equal(backwards[i]));
}

}  // namespace

TEST_CASE("on a GPU, layer norms and their gradients match the reference") {
  check_layer_norms(layer_norm_on_host(), at::kCPU);
}

TEST_CASE("on a GPU, layer norms and their gradients match float64") {
  check_layer_norm_gradients(layer_norm_on_host(), at::kCPU);
}

TEST_CASE("on a GPU, unusual rows have libtorch's layer norm") { check_unusual_rows(layer_norm_on_host(), at::kCPU); }

TEST_CASE("on a GPU, GELU and its gradients match the reference") { check_gelus(gelu_on_host(), at::kCPU); }

TEST_CASE("on a GPU, GELU in float32 is accurate over the whole range") {
  check_gelu_accuracy(gelu_on_host(), at::kCPU);
}

TEST_CASE("on a GPU, unusual values have libtorch's GELU") { check_unusual_gelu_inputs(gelu_on_host(), at::kCPU); }

TEST_CASE("on a GPU, GELU and its gradients match float64") { check_gelu_gradients(gelu_on_host(), at::kCPU); }

TEST_CASE("on a GPU, layer norm and GELU do not depend on the order of threads") {
  at::manual_seed(44);
  const at::Tensor x = random_rows({70, 272}, at::kFloat, at::kCPU), g = random_rows({70, 272}, at::kFloat, at::kCPU);
  const LayerNormState state(272, at::kCPU);
  check_same_in_any_order([&] {
    const auto result = layer_norm_on_host().forward(x, g, state.parameters(), at::kHalf);
    const auto of_norm =
        layer_norm_on_host().backward({g, {}}, result.sum, result.by, state.weight, at::kFloat, at::kFloat);
    const GeluGradients of_gelu = gelu_on_host().backward(g, x, state.bias, Gelu::tanh);
    return std::vector<at::Tensor>{result.normalized, result.by.rstd, of_norm.of_residual, of_norm.of_weight,
                                   of_norm.of_bias,   of_gelu.of_x,   of_gelu.of_bias};
  });
}
