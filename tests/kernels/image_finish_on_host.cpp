// Tests the GPU's image-finishing kernel, compiled for the host and run thread by thread, against the tensor
// operations.
#include "support/cuda_on_host.h"

#include "kernels/image_finish/device.cuh"
#include "kernels/image_finish_checks.h"

using namespace trainopt;
using namespace trainopt::test;

namespace {

at::Tensor on_host(const ImageFinish& finish, const at::Tensor& images, const at::Tensor& placement) {
  static const kernels::device::DeviceFinishLaunches launches;
  return finish.launched(launches, images, placement);
}

}  // namespace

TEST_CASE("the GPU kernel finishes images bit-identically to the tensor operations") {
  check_finish(on_host, at::kCPU);
}

TEST_CASE("on a GPU, a block processes several groups of pixels, and no pixel depends on the order of threads") {
  at::manual_seed(3);
  const at::Tensor images = at::randint(0, 256, {8, 60, 61, 3}, at::kByte);
  for (const ImageSize size : {ImageSize{59, 63}, {59, 64}}) {
    // Odd widths: a block has a part of an item; others: a block has several items.
    const int64_t groups = size.height * (size.width == 63 ? 63 : 8), count = size.width == 63 ? 80 : 4300;
    const auto grid = kernels::device::finish_grid_of(count, groups);
    REQUIRE((size.width == 63 ? grid.parts > 1 : grid.slots < count));
    const ImageFinish finish = make_image_finish({}, normalizations().front(), {size, at::kBFloat16}, at::kCPU);
    const at::Tensor placement = some_placement(8, {60, 61}, size, count);
    const at::Tensor forwards = on_host(finish, images, placement);
    grid_on_host.backwards = true;
    const at::Tensor backwards = on_host(finish, images, placement);
    grid_on_host.backwards = false;
    CHECK(same_bits(forwards, backwards));
    CHECK(same_bits(forwards, finish.reference(images, placement)));
  }
}
