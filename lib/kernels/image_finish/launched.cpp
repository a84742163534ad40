#include "base/error.h"
#include "kernels/image_finish/image_finish.h"
#include "kernels/tensors.h"

#include <c10/core/DeviceGuard.h>

#include <limits>

namespace trainopt::kernels {

at::Tensor ImageFinish::launched(const device::FinishLaunches& launches, const at::Tensor& images,
                                 const at::Tensor& placement) const {
  check(images, placement);
  const auto narrow = [](int64_t number) {
    TRAINOPT_CHECK(number <= std::numeric_limits<int32_t>::max());
    return static_cast<int32_t>(number);
  };
  narrow(images.size(1) * images.size(2));
  narrow(result_.size.height * result_.size.width);
  const at::Tensor batch = make_batch(images, placement);
  const c10::DeviceGuard guard(images.device());
  const Weights used = resize_ ? weights() : Weights{};  // on a GPU: the weights stored there
  const auto lines = [&](const ResizeWeights& weights) {
    if (!resize_) return device::ResizedLines{};
    return device::ResizedLines{.first = weights.first.const_data_ptr<int32_t>(),
                                .count = weights.count.const_data_ptr<int32_t>(),
                                .coefficients = weights.coefficients.const_data_ptr<int32_t>(),
                                .shortest = narrow(weights.shortest),
                                .output = narrow(weights.first.size(1)),
                                .taps = narrow(weights.coefficients.size(2))};
  };
  launches.finish({.images = images.const_data_ptr<uint8_t>(),
                   .image_bytes = images.numel(),
                   .image_height = narrow(images.size(1)),
                   .image_width = narrow(images.size(2)),
                   .placement = placement.defined() ? placement.const_data_ptr<int32_t>() : nullptr,
                   .placement_rows = placement.defined() ? placement.size(0) : 0,
                   .resizes = resize_.has_value(),
                   .rows = lines(used.rows),
                   .columns = lines(used.columns),
                   .items = batch.size(0),
                   .height = narrow(result_.size.height),
                   .width = narrow(result_.size.width),
                   .levels = levels_on_device_.const_data_ptr(),
                   .level_bytes = static_cast<int>(levels_.element_size()),
                   .interleaved = result_.memory_format == at::MemoryFormat::ChannelsLast,
                   .out = batch.mutable_data_ptr()},
                  queue_of(images.device()));
  return batch;
}

}  // namespace trainopt::kernels
