// Tests the GPU's update kernels, compiled for the host and run thread by thread, against the reference.
#include "support/cuda_on_host.h"

#include "kernels/update/device.cuh"
#include "kernels/update/launched.h"
#include "kernels/update_checks.h"

using namespace trainopt;
using namespace trainopt::test;

namespace {

const UpdateKernels& on_host() {
  static const DeviceUpdateLaunches launches;
  static const LaunchedUpdateKernels kernels(launches, at::kCPU);
  return kernels;
}

}  // namespace

TEST_CASE("GPU updates match the reference, including scaling, skipping, clearing and copies") {
  check_every_rule(on_host(), at::kCPU);
}

TEST_CASE("GPU updates work for more tensors than one launch takes, and for none") {
  check_many_tensors(on_host(), at::kCPU);
}

TEST_CASE("GPU updates match the reference for NaN, infinite, huge and subnormal gradients") {
  check_extreme_gradients(on_host(), at::kCPU);
}

TEST_CASE("the GPU measurement of gradients matches the reference") { check_measures(on_host(), at::kCPU); }

TEST_CASE("16-bit copies on a GPU are bit-identical to libtorch's cast") { check_copies(on_host(), at::kCPU); }

TEST_CASE("GPU updates refuse gradients with other strides than their parameters") {
  check_layouts(on_host(), at::kCPU);
}

TEST_CASE("every table takes one launch, and measurements do not depend on the order of threads") {
  const auto launches_of = [](size_t parameters) {
    Tensors tensors;
    for (size_t i = 0; i < parameters; ++i) {
      tensors.parameters.push_back(at::zeros({1}));
      tensors.gradients.push_back(at::ones({1}));
    }
    return on_host().sgd({.momentum = 0, .weight_decay = 0, .nesterov = false}, tensors,
                         {.learning_rate = on(at::kCPU, 1), .factor = {}, .skip_update = {}, .clears = false});
  };
  CHECK(launches_of(0) == 0);
  CHECK(launches_of(kMaxParts) == 1);
  CHECK(launches_of(kMaxParts + 1) == 2);

  const std::vector<at::Tensor> gradients{at::randn({30011}), at::randn({7})};
  const auto forwards = on_host().measure(gradients, on(at::kCPU, 0)).square_sum;
  grid_on_host.backwards = true;
  const auto backwards = on_host().measure(gradients, on(at::kCPU, 0)).square_sum;
  grid_on_host.backwards = false;
  CHECK(forwards.equal(backwards));
}
