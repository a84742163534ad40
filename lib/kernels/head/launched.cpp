#include "kernels/head/launched.h"

#include "base/error.h"
#include "device/tensor.h"
#include "kernels/tensors.h"

#include <c10/core/DeviceGuard.h>

#include <limits>

namespace trainopt::kernels {
namespace {

void check_pixels(int64_t images, int64_t pixels) {
  TRAINOPT_CHECK(images * pixels > 0 && images * pixels <= std::numeric_limits<int32_t>::max());
}

}  // namespace

void LaunchedHeadKernels::check_rows(const at::Tensor& rows) const {
  TRAINOPT_CHECK(rows.dim() == 2 && rows.size(0) <= std::numeric_limits<int32_t>::max() &&
                 rows.device().type() == device_ && rows.is_contiguous() && rows.numel() > 0);
}

at::Tensor LaunchedHeadKernels::mean(const at::Tensor& x) const {
  TRAINOPT_CHECK(x.dim() == 4 && x.device().type() == device_ && x.is_contiguous(at::MemoryFormat::ChannelsLast) &&
                 x.numel() > 0);
  const int64_t pixels = x.size(2) * x.size(3);
  check_pixels(x.size(0), pixels);
  const c10::DeviceGuard guard(x.device());
  at::Tensor result = empty_beside({x.size(0), x.size(1)}, x, x.scalar_type());
  launches_.mean({.dtype = dtype_of(x.scalar_type()),
                  .images = x.size(0),
                  .pixels = pixels,
                  .channels = x.size(1),
                  .from = x.const_data_ptr(),
                  .to = result.mutable_data_ptr()},
                 queue_of(x.device()));
  return result;
}

at::Tensor LaunchedHeadKernels::mean_gradient(const at::Tensor& gradient, int64_t height, int64_t width) const {
  check_rows(gradient);
  check_pixels(gradient.size(0), height * width);
  const c10::DeviceGuard guard(gradient.device());
  at::Tensor result = empty_beside({gradient.size(0), gradient.size(1), height, width}, gradient,
                                   gradient.scalar_type(), at::MemoryFormat::ChannelsLast);
  launches_.mean_gradient({.dtype = dtype_of(gradient.scalar_type()),
                           .images = gradient.size(0),
                           .pixels = height * width,
                           .channels = gradient.size(1),
                           .from = gradient.const_data_ptr(),
                           .to = result.mutable_data_ptr()},
                          queue_of(gradient.device()));
  return result;
}

CrossEntropy LaunchedHeadKernels::cross_entropy(const at::Tensor& logits, const at::Tensor& target,
                                                double smoothing) const {
  check_rows(logits);
  TRAINOPT_CHECK(target.dim() == 1 && target.size(0) == logits.size(0) && target.device() == logits.device() &&
                 target.scalar_type() == at::kLong && target.is_contiguous());
  const c10::DeviceGuard guard(logits.device());
  CrossEntropy result{empty_beside({}, logits, at::kFloat), empty_beside(logits.sizes(), logits, logits.scalar_type())};
  // Its memory is reused only in stream order, so after the pass.
  const at::Tensor row_losses = empty_beside({logits.size(0)}, logits, at::kFloat);
  launches_.cross_entropy({.dtype = dtype_of(logits.scalar_type()),
                           .rows = logits.size(0),
                           .classes = logits.size(1),
                           .stride = logits.size(1),
                           .logits = logits.const_data_ptr(),
                           .targets = target.const_data_ptr<int64_t>(),
                           .ignores = false,
                           .gradient = result.gradient.mutable_data_ptr(),
                           .row_losses = row_losses.mutable_data_ptr<float>(),
                           .smoothing = static_cast<float>(smoothing),
                           .gradient_scale = stored_gradient_scale(logits.scalar_type())},
                          queue_of(logits.device()));
  launches_.mean_loss({.rows = logits.size(0),
                       .row_losses = row_losses.const_data_ptr<float>(),
                       .targets = nullptr,
                       .loss = result.loss.mutable_data_ptr<float>(),
                       .share = nullptr},
                      queue_of(logits.device()));
  return result;
}

void LaunchedHeadKernels::finish_gradient(at::Tensor& gradient, const at::Tensor& upstream) const {
  check_rows(gradient);
  TRAINOPT_CHECK(upstream.dim() == 0 && upstream.device() == gradient.device() && upstream.scalar_type() == at::kFloat);
  const c10::DeviceGuard guard(gradient.device());
  const double parts =
      static_cast<double>(gradient.size(0)) * static_cast<double>(stored_gradient_scale(gradient.scalar_type()));
  launches_.finish_gradient({.dtype = dtype_of(gradient.scalar_type()),
                             .rows = gradient.size(0),
                             .classes = gradient.size(1),
                             .values = gradient.mutable_data_ptr(),
                             .upstream = upstream.const_data_ptr<float>(),
                             .factor = static_cast<float>(1 / parts)},
                            queue_of(gradient.device()));
}

const HeadKernels* cuda_head_kernels() {
  static const device::HeadLaunches* const launches = device::cuda_head_launches();
  if (launches == nullptr) return nullptr;
  static const LaunchedHeadKernels kernels(*launches, at::kCUDA);
  return &kernels;
}

}  // namespace trainopt::kernels
