// Passes out of the kernels: which body, which type and width, on how many blocks. Include on_device.cuh or its twin
// for the host first.
#pragma once

#include "optimizations/fused_kernels/cuda/bodies.cuh"
#include "optimizations/fused_kernels/cuda/launches.cuh"
#include "optimizations/fused_kernels/cuda/passes.h"

namespace trainopt::fused_kernels::cuda {
namespace {

/// Calls with(a sample's type, Width<as many as are read at once>).
template <class F>
auto by_type(const Operands& o, const F& with) {
  return by_type(o.dtype, o.shape.channels,
                 {o.x, o.gradient, o.y, o.residual, o.out, o.places, o.places_out, o.chosen_out, o.mean, o.scale,
                  o.shift, o.of_gradient, o.of_x, o.rest},
                 with);
}

inline Windows windows_of(const Shape& x) {
  const Shape pooled = x.pooled();
  return {static_cast<uint32_t>(x.height), static_cast<uint32_t>(x.width), static_cast<uint32_t>(pooled.height),
          static_cast<uint32_t>(pooled.width), x.channels};
}

template <class Body>
void launch_map(const Body& body, const Shape& rows, void* queue) {
  launch_map(body, rows.pixels(), rows.channels, queue);
}
template <class Body, class Finish>
void launch_reduce(const Body& body, const Finish& finish, const Operands& o, void* queue) {
  const Tiling tiling = tiling_of(o.shape.pixels(), o.shape.channels, Body::kWidth);
  launch(queue, tiling.blocks(), kThreads, reduce<Body>, body, tiling, o.partials);
  launch(queue, divided_up(o.shape.channels, kFoldChannels), kFoldChannels * kFoldLanes, fold<Finish>, finish,
         o.partials, tiling.stripes, o.shape.channels);
}

template <class Body>
void launch_channels(const Body& body, int64_t channels, void* queue) {
  launch(queue, divided_up(channels, kThreads), kThreads, each_channel<Body>, body, channels);
}

class LaunchedPasses : public Passes {
 public:
  int64_t partials(const Operands& o) const override {
    return by_type(
        o, [&](auto, auto width) { return tiling_of(o.shape.pixels(), o.shape.channels, width.value).partials(); });
  }

  void moments(const Operands& o, void* queue) const override {
    by_type(o, [&](auto type, auto width) {
      using T = decltype(type);
      const auto* x = samples<T>(o.x);
      launch_reduce(Distances<T, width.value>{x}, ToMoments<T>{x, o.shape.pixels(), o.first, o.second}, o, queue);
    });
  }

  void apply(const Operands& o, bool relu, void* queue) const override {
    by_type(o, [&](auto type, auto width) {
      using T = decltype(type);
      constexpr int kWidth = decltype(width)::value;
      const auto run = [&](auto body) {
        body.x = samples<T>(o.x);
        body.residual = samples<T>(o.residual);
        body.line = {o.scale, o.shift};
        body.out = static_cast<T*>(o.out);
        launch_map(body, o.shape, queue);
      };
      if (o.residual != nullptr)
        relu ? run(Apply<T, kWidth, true, true>()) : run(Apply<T, kWidth, true, false>());
      else
        relu ? run(Apply<T, kWidth, false, true>()) : run(Apply<T, kWidth, false, false>());
    });
  }

  void sums(const Operands& o, Gate gate, void* queue) const override {
    by_type(o, [&](auto type, auto width) {
      using T = decltype(type);
      constexpr int kWidth = decltype(width)::value;
      const auto run = [&](const auto& source) {
        launch_reduce(Sums<T, kWidth, std::decay_t<decltype(source)>>{source, samples<T>(o.x), o.mean},
                      ToSums{o.first, o.second}, o, queue);
      };
      const auto* gradient = samples<T>(o.gradient);
      switch (gate) {
        case Gate::output:
          return run(ThroughOutput<T, kWidth>{gradient, samples<T>(o.y), static_cast<T*>(o.out)});
        case Gate::chosen:
          return run(WherePlaced<T, kWidth>{gradient, o.places});
        case Gate::relu:
          return run(ThroughRelu<T, kWidth>{gradient, {o.scale, o.shift}});
        default:
          return run(Open<T, kWidth>{gradient});
      }
    });
  }

  void input_gradient(const Operands& o, Gate gate, void* queue) const override {
    by_type(o, [&](auto type, auto width) {
      using T = decltype(type);
      constexpr int kWidth = decltype(width)::value;
      const auto run = [&](const auto& source) {
        launch_map(InputGradient<T, kWidth, std::decay_t<decltype(source)>>{source, samples<T>(o.x), o.of_gradient,
                                                                            o.of_x, o.rest, static_cast<T*>(o.out)},
                   o.shape, queue);
      };
      const auto* gradient = samples<T>(o.gradient);
      switch (gate) {
        case Gate::relu:
          return run(ThroughRelu<T, kWidth>{gradient, {o.scale, o.shift}});
        case Gate::pooled:
          return run(ThroughPool<T, kWidth>{gradient, o.places, windows_of(o.shape)});
        default:
          return run(Open<T, kWidth>{gradient});
      }
    });
  }

  void pool(const Operands& o, void* queue) const override {
    by_type(o, [&](auto type, auto width) {
      using T = decltype(type);
      launch_map(Pool<T, width.value>{samples<T>(o.x),
                                      windows_of(o.shape),
                                      {o.scale, o.shift},
                                      static_cast<T*>(o.out),
                                      o.places_out,
                                      static_cast<T*>(o.chosen_out)},
                 o.shape.pooled(), queue);
    });
  }

  void line(const LineOperands& o, void* queue) const override { launch_channels(MakeLine{o}, o.channels, queue); }
  void coefficients(const CoefficientOperands& o, void* queue) const override {
    launch_channels(MakeCoefficients{o}, o.channels, queue);
  }
};

}  // namespace
}  // namespace trainopt::fused_kernels::cuda
