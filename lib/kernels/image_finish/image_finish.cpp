#include "kernels/image_finish/image_finish.h"

#include "base/error.h"
#include "device/tensor.h"
#include "kernels/image_finish/placement_rows.h"

namespace trainopt::kernels {

ImageFinish::ImageFinish(const std::optional<Resize>& resize, const Normalization& normalization, const Result& result,
                         c10::Device device)
    : resize_(resize), result_(result) {
  const auto options = at::TensorOptions().dtype(at::kFloat).device(device);
  // A tensor on the device, not a number: CUDA turns division by a host number into multiplication by its inverse,
  // which gives other bits.
  full_scale_ = at::full({1}, 255.0f, options);
  const Normalization nothing;
  if (normalization.mean != nothing.mean || normalization.std != nothing.std) {
    const auto by_channel = [&](const std::array<float, 3>& values) {
      return at::tensor(at::ArrayRef<float>(values.data(), 3)).to(options).view({1, 3, 1, 1});
    };
    mean_ = by_channel(normalization.mean), std_ = by_channel(normalization.std);
  }
  const at::Tensor levels = at::empty({3, kLevels}, at::kFloat);
  for (size_t channel = 0; channel < 3; ++channel)
    for (int value = 0; value < kLevels; ++value)
      levels.mutable_data_ptr<float>()[static_cast<int64_t>(channel) * kLevels + value] =
          (static_cast<float>(value) / 255.0f - normalization.mean[channel]) / normalization.std[channel];
  levels_ = levels.to(result.type);
  levels_on_device_ = levels_.to(device);
  if (resize_ && !device.is_cpu()) weights_ = make_weights(device);
}

/// Weights for every possible length of a box, or for whole images.
ImageFinish::Weights ImageFinish::make_weights(c10::Device device) const {
  const auto of = [&](int64_t from, int64_t to) {
    const ResizeWeights made = resize_->resizer->weights(resize_->boxed ? 1 : from, from, to);
    return ResizeWeights{made.shortest, made.first.to(device), made.count.to(device), made.coefficients.to(device)};
  };
  return {of(resize_->from.height, resize_->to.height), of(resize_->from.width, resize_->to.width)};
}

void ImageFinish::check(const at::Tensor& images, const at::Tensor& placement) const {
  TRAINOPT_CHECK(images.device() == levels_on_device_.device() && images.is_contiguous() &&
                 images.scalar_type() == at::kByte && images.dim() == 4 && images.size(3) == 3);
  if (placement.defined()) {
    TRAINOPT_CHECK(placement.device() == images.device() && placement.is_contiguous() &&
                   placement.scalar_type() == at::kInt && placement.dim() == 2);
    TRAINOPT_CHECK(placement.size(0) == 1 || placement.size(0) == (resize_ && resize_->boxed ? kBoxRows : kWindowRows));
  }
  const Extent size{images.size(1), images.size(2)};
  if (resize_) TRAINOPT_CHECK(size == resize_->from);
  const bool full_image = !placement.defined() || placement.size(0) == 1;
  TRAINOPT_CHECK(!full_image || ((resize_ ? resize_->to : size) == result_.size && !(resize_ && resize_->boxed)));
}

at::Tensor ImageFinish::make_batch(const at::Tensor& images, const at::Tensor& placement) const {
  return at::empty(
      {placement.defined() ? placement.size(1) : images.size(0), 3, result_.size.height, result_.size.width},
      levels_on_device_.options(), result_.memory_format);
}

at::Tensor ImageFinish::operator()(const at::Tensor& images, const at::Tensor& placement) const {
  if (images.is_cpu()) return on_cpu(images, placement);
  static const device::FinishLaunches* const launches = device::cuda_finish_launches();
  return images.is_cuda() && launches != nullptr ? launched(*launches, images, placement)
                                                 : reference(images, placement);
}

}  // namespace trainopt::kernels
