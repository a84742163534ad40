// Implements PoolLaunches: selects the body, the type and width, and the number of blocks. Include on_device.cuh or its
// host counterpart first.
#pragma once

#include "kernels/pool/backward.cuh"
#include "kernels/pool/forward.cuh"
#include "kernels/pool/launch.h"

namespace trainopt::kernels::device {
namespace {

inline Windows windows_of(const Shape& x) {
  const Shape small = pooled(x);
  return {static_cast<int32_t>(x.height), static_cast<int32_t>(x.width), static_cast<int32_t>(small.height),
          static_cast<int32_t>(small.width), x.channels};
}

/// Calls with(sample type, Width<channels per access>).
template <class F>
auto by_type(const PoolOperands& o, const F& with) {
  return by_type(
      o.dtype, o.shape.channels,
      {o.x, o.gradient, o.out, o.positions, o.positions_out, o.chosen_out, o.mean, o.scale, o.shift, o.of_x, o.rest},
      with);
}

class DevicePoolLaunches : public PoolLaunches {
 public:
  int64_t partials(const PoolOperands& o) const override {
    return by_type(
        o, [&](auto, auto width) { return tiling_of(o.shape.pixels(), o.shape.channels, width.value).partials(); });
  }

  void pool(const PoolOperands& o, void* queue) const override {
    const Shape small = pooled(o.shape);
    by_type(o, [&](auto type, auto width) {
      using T = decltype(type);
      launch_map(Pool<T, width.value>{samples<T>(o.x),
                                      windows_of(o.shape),
                                      {o.scale, o.shift},
                                      static_cast<T*>(o.out),
                                      o.positions_out,
                                      static_cast<T*>(o.chosen_out)},
                 small.images * divided_up(small.height, 2) * small.width, small.channels, queue);
    });
  }

  void coefficients(const PoolOperands& o, const CoefficientOperands& results, void* queue) const override {
    by_type(o, [&](auto type, auto width) {
      using T = decltype(type);
      constexpr int kWidth = decltype(width)::value;
      const WhereChosen<T, kWidth> source{samples<T>(o.gradient), o.positions};
      launch_reduce(Sums<T, kWidth, WhereChosen<T, kWidth>>{source, samples<T>(o.x), o.mean}, ToCoefficients{results},
                    o.shape.pixels(), o.shape.channels, o.partials, queue);
    });
  }

  void input_gradient(const PoolOperands& o, void* queue) const override {
    by_type(o, [&](auto type, auto width) {
      using T = decltype(type);
      launch_map(PoolInputGradient<T, width.value>{samples<T>(o.gradient),
                                                   o.positions,
                                                   samples<T>(o.x),
                                                   windows_of(o.shape),
                                                   {o.scale, o.of_x, o.rest},
                                                   static_cast<T*>(o.out)},
                 pooled(o.shape).pixels(), o.shape.channels, queue);
    });
  }
};

}  // namespace
}  // namespace trainopt::kernels::device
