// Implements NormLaunches: selects the body, the type and width, and the number of blocks. Include on_device.cuh or its
// host counterpart first.
#pragma once

#include "kernels/norm/bodies.cuh"
#include "kernels/norm/launch.h"

namespace trainopt::kernels::device {
namespace {

/// Calls with(sample type, Width<channels per access>).
template <class F>
auto by_type(const NormOperands& o, const F& with) {
  return by_type(o.dtype, o.shape.channels,
                 {o.x, o.gradient, o.y, o.residual, o.out, o.mean, o.scale, o.shift, o.of_x, o.rest}, with);
}

class DeviceNormLaunches : public NormLaunches {
 public:
  int64_t partials(const NormOperands& o) const override {
    return by_type(
        o, [&](auto, auto width) { return tiling_of(o.shape.pixels(), o.shape.channels, width.value).partials(); });
  }

  void statistics(const NormOperands& o, const StatisticsOperands& results, void* queue) const override {
    by_type(o, [&](auto type, auto width) {
      using T = decltype(type);
      const auto* x = samples<T>(o.x);
      launch_reduce(Distances<T, width.value>{x}, ToStatistics<T>{x, o.shape.pixels(), results}, o.shape.pixels(),
                    o.shape.channels, o.partials, queue);
    });
  }

  void apply(const NormOperands& o, bool relu, void* queue) const override {
    by_type(o, [&](auto type, auto width) {
      using T = decltype(type);
      constexpr int kWidth = decltype(width)::value;
      const auto run = [&](auto body) {
        body.x = samples<T>(o.x);
        body.residual = samples<T>(o.residual);
        body.scale_shift = {o.scale, o.shift};
        body.out = static_cast<T*>(o.out);
        launch_map(body, o.shape.pixels(), o.shape.channels, queue);
      };
      if (o.residual != nullptr)
        relu ? run(Apply<T, kWidth, true, true>()) : run(Apply<T, kWidth, true, false>());
      else
        relu ? run(Apply<T, kWidth, false, true>()) : run(Apply<T, kWidth, false, false>());
    });
  }

  void coefficients(const NormOperands& o, Gate gate, const CoefficientOperands& results, void* queue) const override {
    by_type(o, [&](auto type, auto width) {
      using T = decltype(type);
      constexpr int kWidth = decltype(width)::value;
      const auto run = [&](const auto& source) {
        launch_reduce(Sums<T, kWidth, std::decay_t<decltype(source)>>{source, samples<T>(o.x), o.mean},
                      ToCoefficients{results}, o.shape.pixels(), o.shape.channels, o.partials, queue);
      };
      const auto* gradient = samples<T>(o.gradient);
      switch (gate) {
        case Gate::output:
          return run(ThroughOutput<T, kWidth>{gradient, samples<T>(o.y), static_cast<T*>(o.out)});
        case Gate::relu:
          return run(ThroughRelu<T, kWidth>{gradient, {o.scale, o.shift}});
        default:
          return run(Open<T, kWidth>{gradient});
      }
    });
  }

  void input_gradient(const NormOperands& o, Gate gate, void* queue) const override {
    by_type(o, [&](auto type, auto width) {
      using T = decltype(type);
      constexpr int kWidth = decltype(width)::value;
      const auto run = [&](const auto& source) {
        launch_map(
            InputGradient<T, kWidth, std::decay_t<decltype(source)>>{
                source, samples<T>(o.x), {o.scale, o.of_x, o.rest}, static_cast<T*>(o.out)},
            o.shape.pixels(), o.shape.channels, queue);
      };
      const auto* gradient = samples<T>(o.gradient);
      switch (gate) {
        case Gate::relu:
          return run(ThroughRelu<T, kWidth>{gradient, {o.scale, o.shift}});
        default:
          return run(Open<T, kWidth>{gradient});
      }
    });
  }
};

}  // namespace
}  // namespace trainopt::kernels::device
