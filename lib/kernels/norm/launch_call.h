// The argument handling that the launched passes of norm and pool share.
#pragma once

#include "base/error.h"
#include "device/tensor.h"
#include "kernels/norm/launch.h"
#include "kernels/norm/norm.h"
#include "kernels/tensors.h"

#include <c10/core/DeviceGuard.h>

#include <array>
#include <limits>

namespace trainopt::kernels {

/// One call of one pass with operands O. Makes the device of x current, checks operands as they are set, and keeps the
/// work space of the pass alive until the pass is queued.
template <class O>
class LaunchCall {
 public:
  LaunchCall(const at::Tensor& x, at::DeviceType device) : x_(x), guard_(x.device()) {
    TRAINOPT_CHECK(x.dim() == 4);
    o_.dtype = dtype_of(x.scalar_type());
    o_.shape = {x.size(0), x.size(2), x.size(3), x.size(1)};
    o_.x = x.const_data_ptr();
    TRAINOPT_CHECK(x.device().type() == device);
    TRAINOPT_CHECK(x.numel() > 0 && o_.shape.pixels() <= std::numeric_limits<int32_t>::max());
    samples(x, o_.shape);
    queue_ = queue_of(x.device());
  }

  O& operands() { return o_; }
  void* queue() const { return queue_; }
  const device::Shape& shape() const { return o_.shape; }

  /// Checks that a tensor has x's type and this shape.
  const void* samples(const at::Tensor& tensor, const device::Shape& shape) const {
    TRAINOPT_CHECK(tensor.scalar_type() == x_.scalar_type());
    return as_nhwc(tensor, shape);
  }
  const float* by_channel(const at::Tensor& values) const {
    TRAINOPT_CHECK(values.device() == x_.device() && values.scalar_type() == at::kFloat && values.is_contiguous() &&
                   values.dim() == 1 && values.size(0) == shape().channels);
    return values.const_data_ptr<float>();
  }

  at::Tensor make_samples(const device::Shape& shape, at::ScalarType type) const {
    return at::empty({shape.images, shape.channels, shape.height, shape.width},
                     x_.options().dtype(type).memory_format(at::MemoryFormat::ChannelsLast).requires_grad(false));
  }
  at::Tensor make_out() {
    at::Tensor out = make_samples(shape(), x_.scalar_type());
    o_.out = out.mutable_data_ptr();
    return out;
  }
  at::Tensor make_by_channel() const { return make_floats(shape().channels); }
  template <class Launches>
  void make_partials(const Launches& launches) {
    partials_ = make_floats(launches.partials(o_));
    o_.partials = partials_.mutable_data_ptr<float>();
  }

  /// Queues launches.coefficients(operands, …, results, queue) and returns the results. `count`: values per channel.
  template <class Launches, class Queue>
  Coefficients make_coefficients(const Launches& launches, const Statistics& by, int64_t count, const Queue& run) {
    o_.mean = by_channel(by.mean);
    const Coefficients made{make_by_channel(), make_by_channel(), make_by_channel(), make_by_channel()};
    make_partials(launches);
    run(device::CoefficientOperands{.mean = o_.mean,
                                    .inverse = by_channel(by.inverse),
                                    .scale = by_channel(by.scale),
                                    .of_bias = made.of_bias.mutable_data_ptr<float>(),
                                    .of_weight = made.of_weight.mutable_data_ptr<float>(),
                                    .of_x = made.of_x.mutable_data_ptr<float>(),
                                    .rest = made.rest.mutable_data_ptr<float>(),
                                    .share = static_cast<float>(-1.0 / static_cast<double>(count))});
    return made;
  }

  void set_scale_shift(const at::Tensor& scale, const at::Tensor& shift) {
    o_.scale = by_channel(scale);
    o_.shift = by_channel(shift);
  }
  void set_combination(const Statistics& by, const Coefficients& coefficients) {
    o_.scale = by_channel(by.scale);
    o_.of_x = by_channel(coefficients.of_x);
    o_.rest = by_channel(coefficients.rest);
  }
  void set_gradient(const at::Tensor& gradient) { o_.gradient = samples(gradient, shape()); }

 protected:
  const void* as_nhwc(const at::Tensor& tensor, const device::Shape& shape) const {
    TRAINOPT_CHECK(tensor.device() == x_.device() && tensor.is_contiguous(at::MemoryFormat::ChannelsLast));
    const std::array<int64_t, 4> sizes{shape.images, shape.channels, shape.height, shape.width};
    TRAINOPT_CHECK(tensor.sizes() == at::IntArrayRef(sizes));
    return tensor.const_data_ptr();
  }

 private:
  at::Tensor make_floats(int64_t count) const {
    return at::empty({count},
                     x_.options().dtype(at::kFloat).memory_format(at::MemoryFormat::Contiguous).requires_grad(false));
  }

  const at::Tensor& x_;
  c10::DeviceGuard guard_;
  O o_{};
  at::Tensor partials_;  // its memory is reused only in stream order, so after the pass
  void* queue_ = nullptr;
};

}  // namespace trainopt::kernels
