#include "kernels/linear_cross_entropy/launched.h"

#include "base/error.h"
#include "device/tensor.h"
#include "kernels/head/head.h"
#include "kernels/tensors.h"

#include <c10/core/DeviceGuard.h>

#include <limits>

namespace trainopt::kernels {

static_assert(device::kIgnoredTarget == LinearCrossEntropyKernels::kIgnored);

void LaunchedLinearCrossEntropy::check(const at::Tensor& hidden, const at::Tensor&, int64_t) const {
  TRAINOPT_CHECK(hidden.device().type() == device_ && hidden.size(0) <= std::numeric_limits<int32_t>::max());
}

void LaunchedLinearCrossEntropy::losses(const Piece& piece) const {
  const at::Tensor& logits = piece.buffer;
  const c10::DeviceGuard guard(logits.device());
  const int64_t stride = logits.size(1);
  // So that the kernel can take whole packs, also if the classes do not fill the last.
  logits.narrow(1, piece.classes, stride - piece.classes).fill_(-std::numeric_limits<float>::infinity());
  void* memory = logits.mutable_data_ptr();
  launches_.cross_entropy({.dtype = dtype_of(logits.scalar_type()),
                           .rows = logits.size(0),
                           .classes = piece.classes,
                           .stride = stride,
                           .logits = memory,
                           .targets = piece.target.const_data_ptr<int64_t>(),
                           .ignores = true,
                           .gradient = piece.with_gradient ? memory : nullptr,
                           .row_losses = piece.losses.mutable_data_ptr<float>(),
                           .smoothing = 0,
                           .gradient_scale = stored_gradient_scale(logits.scalar_type())},
                          queue_of(logits.device()));
}

void LaunchedLinearCrossEntropy::mean(const at::Tensor& losses, const at::Tensor& target,
                                      LinearCrossEntropy& result) const {
  const c10::DeviceGuard guard(losses.device());
  launches_.mean_loss({.rows = losses.size(0),
                       .row_losses = losses.const_data_ptr<float>(),
                       .targets = target.const_data_ptr<int64_t>(),
                       .loss = result.loss.mutable_data_ptr<float>(),
                       .share = result.share.mutable_data_ptr<float>()},
                      queue_of(losses.device()));
}

const LinearCrossEntropyKernels* cuda_linear_cross_entropy_kernels() {
  static const device::HeadLaunches* const launches = device::cuda_head_launches();
  if (launches == nullptr) return nullptr;
  static const LaunchedLinearCrossEntropy kernels(*launches, at::kCUDA);
  return &kernels;
}

}  // namespace trainopt::kernels
