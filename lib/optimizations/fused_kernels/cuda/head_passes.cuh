// Passes out of the kernels. Include on_device.cuh or its twin for the host first.
#pragma once

#include "optimizations/fused_kernels/cuda/head_kernels.cuh"
#include "optimizations/fused_kernels/cuda/launches.cuh"

namespace trainopt::fused_kernels::cuda {
namespace {

class LaunchedHeadPasses : public HeadPasses {
 public:
  void mean(const MeanOperands& o, void* queue) const override {
    by_type(o.dtype, o.channels, {o.from, o.to}, [&](auto type, auto width) {
      using T = decltype(type);
      constexpr int kWidth = decltype(width)::value;
      const MeanTiling tiling = mean_tiling_of(o.images, o.pixels, o.channels, kWidth);
      launch(queue, tiling.blocks(), kThreads, mean_of_pixels<T, kWidth>, samples<T>(o.from), static_cast<T*>(o.to),
             tiling);
    });
  }

  void mean_gradient(const MeanOperands& o, void* queue) const override {
    by_type(o.dtype, o.channels, {o.from, o.to}, [&](auto type, auto width) {
      using T = decltype(type);
      launch_map(ToPixels<T, decltype(width)::value>{samples<T>(o.from), static_cast<uint32_t>(o.pixels), o.channels,
                                                     static_cast<T*>(o.to)},
                 o.images * o.pixels, o.channels, queue);
    });
  }

  void cross_entropy(const LossOperands& o, void* queue) const override {
    by_type(o.dtype, o.classes, {o.logits, o.gradient}, [&](auto type, auto width) {
      constexpr int kWidth = decltype(width)::value;
      const int lanes = row_lanes_of(o.classes, kWidth);
      launch(queue, divided_up(o.rows, kThreads / lanes), kThreads, cuda::cross_entropy<decltype(type), kWidth>, o,
             lanes);
    });
    launch(queue, 1, kThreads, mean_of_rows, o.row_losses, o.rows, o.loss);
  }

  void finish_gradient(const ScaleOperands& o, void* queue) const override {
    by_type(o.dtype, o.classes, {o.values}, [&](auto type, auto width) {
      using T = decltype(type);
      launch_map(TimesUpstream<T, decltype(width)::value>{static_cast<T*>(o.values), o.upstream, o.factor}, o.rows,
                 o.classes, queue);
    });
  }
};

}  // namespace
}  // namespace trainopt::fused_kernels::cuda
