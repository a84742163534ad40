#include "data/device_preprocess.h"

#include "base/error.h"
#include "data/image/pipeline.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace trainopt {
namespace {

template <class T>
bool is(const TransformConfig& transform) {
  return std::holds_alternative<T>(transform);
}

}  // namespace

TransformSplit split_transforms(const std::vector<TransformConfig>& transforms, bool resize) {
  const auto moves = [&](const TransformConfig& t) { return is<NormalizeConfig>(t) || (resize && is<ResizeConfig>(t)); };
  const auto first = std::find_if(transforms.begin(), transforms.end(), moves);
  return {{transforms.begin(), first}, {first, transforms.end()}};
}

std::optional<std::string> device_resize_refusal(const std::vector<TransformConfig>& transforms) {
  const auto device = split_transforms(transforms, true).device;
  if (std::none_of(device.begin(), device.end(), is<ResizeConfig>)) return "data.transforms has no resize that could move";
  if (std::count_if(device.begin(), device.end(), is<ResizeConfig>) > 1) return "data.transforms resizes twice";
  for (const auto& transform : device)
    if (!is<ResizeConfig>(transform) && !is<CenterCropConfig>(transform) && !is<NormalizeConfig>(transform))
      return "data.transforms has a random transform after the resize, which only the loader's threads can do";
  return std::nullopt;
}

DevicePreprocess::DevicePreprocess(const std::vector<TransformConfig>& transforms, ImageSize input, c10::Device device,
                                   at::MemoryFormat memory_format)
    : output_size_(input), memory_format_(memory_format) {
  const auto options = at::TensorOptions().dtype(at::kFloat).device(device);
  for (const auto& transform : transforms) {
    if (is<NormalizeConfig>(transform)) {
      const auto normalization = Pipeline({transform}).normalization();
      mean_ = at::tensor(at::ArrayRef<float>(normalization.mean.data(), 3)).to(options).view({1, 3, 1, 1});
      std_ = at::tensor(at::ArrayRef<float>(normalization.std.data(), 3)).to(options).view({1, 3, 1, 1});
      continue;
    }
    const ImageSize before = output_size_;
    output_size_ = Pipeline({transform}).output_size(before).value();
    if (is<ResizeConfig>(transform)) {
      TRAINOPT_CHECK(!resized_ && !cut_);
      resized_ = output_size_;
    } else {
      TRAINOPT_CHECK(is<CenterCropConfig>(transform) && !cut_);
      if (output_size_.height > before.height || output_size_.width > before.width)
        throw UserError(fmt::format("optimizations.device_preprocess.resize cannot pad: center_crop {}×{} of {}×{}",
                                    output_size_.height, output_size_.width, before.height, before.width));
      // torchvision rounds halves to the even number.
      const auto offset = [](int64_t whole, int64_t part) {
        return static_cast<int64_t>(std::nearbyint(static_cast<double>(whole - part) / 2));
      };
      cut_ = Cut{offset(before.height, output_size_.height), offset(before.width, output_size_.width), output_size_};
    }
  }
  // A tensor on the device, not a number: CUDA divides by a host number as a multiplication with its inverse, which has other
  // bits.
  full_scale_ = at::full({1}, 255.0f, options);
}

at::Tensor DevicePreprocess::operator()(const at::Tensor& images) const {
  const at::NoGradGuard no_grad;
  at::Tensor values = images.permute({0, 3, 1, 2});
  if (resized_) {
    // In one go, without Pillow's rounding between its two passes: that keeps the difference below one level. Doing as Pillow
    // does would not help: enlargements by whole factors have many exact ties, which fall as the last bit of a weight has it.
    values = at::_upsample_bilinear2d_aa(values.to(at::kFloat), {resized_->height, resized_->width}, /*align_corners=*/false);
    values.add_(0.5).floor_().clamp_(0, 255);
  }
  if (cut_) values = values.narrow(2, cut_->top, cut_->size.height).narrow(3, cut_->left, cut_->size.width);
  at::Tensor scaled = at::empty(values.sizes(), full_scale_.options(), memory_format_);
  at::div_out(scaled, values, full_scale_);
  if (mean_.defined()) scaled.sub_(mean_).div_(std_);
  return scaled;
}

}  // namespace trainopt
