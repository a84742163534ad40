#include "optimizations/fused_kernels/pass_kernels.h"

#include "base/error.h"
#include "kernels/tensors.h"

#include <ATen/Functions.h>
#include <c10/core/DeviceGuard.h>

#include <limits>

namespace trainopt::fused_kernels {
namespace {

using cuda::Gate;
using cuda::Shape;

Shape shape_of(const at::Tensor& x) {
  TRAINOPT_CHECK(x.dim() == 4);
  return {x.size(0), x.size(2), x.size(3), x.size(1)};
}

/// Values by channel, on one device.
class Channels {
 public:
  explicit Channels(const at::Tensor& like) : like_(like) {
    TRAINOPT_CHECK(like.dim() == 1 && like.scalar_type() == at::kFloat);
  }
  float* values(const at::Tensor& tensor) const {
    TRAINOPT_CHECK(tensor.device() == like_.device() && tensor.scalar_type() == at::kFloat && tensor.is_contiguous() &&
                   tensor.sizes() == like_.sizes());
    return static_cast<float*>(tensor.data_ptr());
  }
  at::Tensor make() const { return at::empty(like_.sizes(), like_.options().requires_grad(false)); }

 private:
  const at::Tensor& like_;
};

}  // namespace

/// One call of one pass: x's device is current, operands are checked as they are taken, and what the pass needs is
/// alive until it is queued.
class PassKernels::Call {
 public:
  Call(const PassKernels& kernels, const at::Tensor& x)
      : x_(x),
        guard_(x.device()),
        o_{.dtype = kernels::dtype_of(x.scalar_type()), .shape = shape_of(x), .x = x.const_data_ptr()} {
    TRAINOPT_CHECK(x.device().type() == kernels.device_);
    TRAINOPT_CHECK(x.numel() > 0 && o_.shape.pixels() <= std::numeric_limits<int32_t>::max());
    samples(x, o_.shape);
    queue_ = kernels::queue_of(x.device());
  }

  cuda::Operands& operands() { return o_; }
  void* queue() const { return queue_; }
  const Shape& shape() const { return o_.shape; }

  /// A tensor of samples like x's, of this shape.
  const void* samples(const at::Tensor& tensor, const Shape& shape) const {
    TRAINOPT_CHECK(tensor.scalar_type() == x_.scalar_type());
    return placed(tensor, shape);
  }
  const uint8_t* places(const at::Tensor& tensor, const Shape& shape) const {
    TRAINOPT_CHECK(tensor.scalar_type() == at::kByte);
    return static_cast<const uint8_t*>(placed(tensor, shape));
  }
  const float* by_channel(const at::Tensor& values) const {
    TRAINOPT_CHECK(values.device() == x_.device() && values.scalar_type() == at::kFloat && values.is_contiguous() &&
                   values.dim() == 1 && values.size(0) == shape().channels);
    return values.const_data_ptr<float>();
  }

  at::Tensor make_samples(const Shape& shape, at::ScalarType type) const {
    return at::empty({shape.images, shape.channels, shape.height, shape.width},
                     x_.options().dtype(type).memory_format(at::MemoryFormat::ChannelsLast).requires_grad(false));
  }
  at::Tensor make_out() {
    at::Tensor out = make_samples(shape(), x_.scalar_type());
    o_.out = out.mutable_data_ptr();
    return out;
  }
  /// Room for the two results by channel.
  at::Tensor make_first() { return make_floats(shape().channels, o_.first); }
  at::Tensor make_second() { return make_floats(shape().channels, o_.second); }
  void make_partials(const cuda::Passes& passes) { partials_ = make_floats(passes.partials(o_), o_.partials); }

  void set_line(const at::Tensor& scale, const at::Tensor& shift) {
    o_.scale = by_channel(scale);
    o_.shift = by_channel(shift);
  }
  void set_combination(const at::Tensor& of_gradient, const at::Tensor& of_x, const at::Tensor& rest) {
    o_.of_gradient = by_channel(of_gradient);
    o_.of_x = by_channel(of_x);
    o_.rest = by_channel(rest);
  }
  void set_gradient(const at::Tensor& gradient) { o_.gradient = samples(gradient, shape()); }
  void set_pooled_gradient(const at::Tensor& gradient, const at::Tensor& places_of_it) {
    o_.gradient = samples(gradient, shape().pooled());
    o_.places = places(places_of_it, shape().pooled());
  }

  GradientSums sums(const cuda::Passes& passes, const at::Tensor& mean, Gate gate) {
    o_.mean = by_channel(mean);
    GradientSums result{make_first(), make_second()};
    make_partials(passes);
    passes.sums(o_, gate, queue_);
    return result;
  }
  at::Tensor input_gradient(const cuda::Passes& passes, Gate gate) {
    at::Tensor result = make_out();
    passes.input_gradient(o_, gate, queue_);
    return result;
  }

 private:
  const void* placed(const at::Tensor& tensor, const Shape& shape) const {
    TRAINOPT_CHECK(tensor.device() == x_.device() && tensor.is_contiguous(at::MemoryFormat::ChannelsLast));
    const std::array<int64_t, 4> sizes{shape.images, shape.channels, shape.height, shape.width};
    TRAINOPT_CHECK(tensor.sizes() == at::IntArrayRef(sizes));
    return tensor.const_data_ptr();
  }
  at::Tensor make_floats(int64_t count, float*& pointer) const {
    at::Tensor room = at::empty(
        {count}, x_.options().dtype(at::kFloat).memory_format(at::MemoryFormat::Contiguous).requires_grad(false));
    pointer = room.mutable_data_ptr<float>();
    return room;
  }

  const at::Tensor& x_;
  c10::DeviceGuard guard_;
  cuda::Operands o_;
  at::Tensor partials_;  // the stream's order keeps its memory until the pass is done
  void* queue_ = nullptr;
};

Moments PassKernels::moments(const at::Tensor& x) const {
  Call call(*this, x);
  Moments result{call.make_first(), call.make_second()};
  call.make_partials(passes_);
  passes_.moments(call.operands(), call.queue());
  return result;
}

at::Tensor PassKernels::apply(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift,
                              const at::Tensor& residual, bool relu) const {
  Call call(*this, x);
  call.set_line(scale, shift);
  if (residual.defined()) call.operands().residual = call.samples(residual, call.shape());
  at::Tensor result = call.make_out();
  passes_.apply(call.operands(), relu, call.queue());
  return result;
}

Line PassKernels::line(const Moments& moments, int64_t count, const BatchNorm2d& norm) const {
  const Channels c(moments.mean);
  const c10::DeviceGuard guard(moments.mean.device());
  const Line result{c.make(), c.make(), c.make()};
  TRAINOPT_CHECK(norm.num_batches_tracked.device() == moments.mean.device() &&
                 norm.num_batches_tracked.scalar_type() == at::kLong);
  const auto n = static_cast<double>(count);
  passes_.line({.channels = moments.mean.size(0),
                .mean = c.values(moments.mean),
                .variance = c.values(moments.variance),
                .weight = c.values(norm.weight),
                .bias = c.values(norm.bias),
                .running_mean = c.values(norm.running_mean),
                .running_var = c.values(norm.running_var),
                .batches = static_cast<int64_t*>(norm.num_batches_tracked.data_ptr()),
                .inverse = c.values(result.inverse),
                .scale = c.values(result.scale),
                .shift = c.values(result.shift),
                .momentum = static_cast<float>(BatchNorm2d::kMomentum),
                .epsilon = static_cast<float>(BatchNorm2d::kEpsilon),
                .unbiased = static_cast<float>(n / (n - 1))},
               kernels::queue_of(moments.mean.device()));
  return result;
}

Coefficients PassKernels::coefficients(const GradientSums& sums, const Line& line, const at::Tensor& mean,
                                       int64_t count) const {
  const Channels c(mean);
  const c10::DeviceGuard guard(mean.device());
  const Coefficients result{c.make(), c.make(), c.make()};
  passes_.coefficients({.channels = mean.size(0),
                        .gradient = c.values(sums.gradient),
                        .product = c.values(sums.product),
                        .mean = c.values(mean),
                        .inverse = c.values(line.inverse),
                        .scale = c.values(line.scale),
                        .of_weight = c.values(result.of_weight),
                        .of_x = c.values(result.of_x),
                        .rest = c.values(result.rest),
                        .share = static_cast<float>(-1.0 / static_cast<double>(count))},
                       kernels::queue_of(mean.device()));
  return result;
}

GradientSums PassKernels::sums(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& mean) const {
  Call call(*this, x);
  call.set_gradient(gradient);
  return call.sums(passes_, mean, Gate::open);
}

GradientSums PassKernels::sums_through_relu(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& mean,
                                            const at::Tensor& scale, const at::Tensor& shift) const {
  Call call(*this, x);
  call.set_gradient(gradient);
  call.set_line(scale, shift);
  return call.sums(passes_, mean, Gate::relu);
}

GradientSums PassKernels::sums_through_output(const at::Tensor& gradient, const at::Tensor& y, const at::Tensor& x,
                                              const at::Tensor& mean, at::Tensor& g) const {
  Call call(*this, x);
  call.set_gradient(gradient);
  call.operands().y = call.samples(y, call.shape());
  at::Tensor passed = call.make_out();  // `g` may be the gradient's own name
  GradientSums result = call.sums(passes_, mean, Gate::output);
  g = std::move(passed);
  return result;
}

at::Tensor PassKernels::input_gradient(const at::Tensor& g, const at::Tensor& x, const at::Tensor& of_gradient,
                                       const at::Tensor& of_x, const at::Tensor& rest) const {
  Call call(*this, x);
  call.set_gradient(g);
  call.set_combination(of_gradient, of_x, rest);
  return call.input_gradient(passes_, Gate::open);
}

at::Tensor PassKernels::input_gradient_through_relu(const at::Tensor& gradient, const at::Tensor& x,
                                                    const at::Tensor& of_gradient, const at::Tensor& of_x,
                                                    const at::Tensor& rest, const at::Tensor& scale,
                                                    const at::Tensor& shift) const {
  Call call(*this, x);
  call.set_gradient(gradient);
  call.set_line(scale, shift);
  call.set_combination(of_gradient, of_x, rest);
  return call.input_gradient(passes_, Gate::relu);
}

Pooled PassKernels::pool(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift) const {
  Call call(*this, x);
  call.set_line(scale, shift);
  Pooled result{call.make_samples(call.shape().pooled(), x.scalar_type()),
                call.make_samples(call.shape().pooled(), at::kByte),
                call.make_samples(call.shape().pooled(), x.scalar_type())};
  call.operands().out = result.values.mutable_data_ptr();
  call.operands().places_out = result.places.mutable_data_ptr<uint8_t>();
  call.operands().chosen_out = result.chosen.mutable_data_ptr();
  passes_.pool(call.operands(), call.queue());
  return result;
}

GradientSums PassKernels::sums_through_pool(const at::Tensor& gradient, const Pooled& pooled,
                                            const at::Tensor& mean) const {
  Call call(*this, pooled.chosen);
  call.set_gradient(gradient);
  call.operands().places = call.places(pooled.places, call.shape());
  return call.sums(passes_, mean, Gate::chosen);
}

at::Tensor PassKernels::input_gradient_through_pool(const at::Tensor& gradient, const at::Tensor& places,
                                                    const at::Tensor& x, const at::Tensor& of_gradient,
                                                    const at::Tensor& of_x, const at::Tensor& rest) const {
  Call call(*this, x);
  call.set_pooled_gradient(gradient, places);
  call.set_combination(of_gradient, of_x, rest);
  return call.input_gradient(passes_, Gate::pooled);
}

const NormKernels* cuda_kernels() {
  static const cuda::Passes* const passes = cuda::cuda_passes();
  if (passes == nullptr) return nullptr;
  static const PassKernels kernels(*passes, at::kCUDA);
  return &kernels;
}

}  // namespace trainopt::fused_kernels
