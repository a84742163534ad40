// Transformed values with their memory, and the weights' transform.
#pragma once

#include "base/error.h"
#include "device/tensor.h"
#include "kernels/cpu/by_type.h"
#include "kernels/tensors.h"
#include "kernels/winograd/tiles.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

namespace trainopt::kernels::winograd {

/// Tiles, or rows of weights, below which starting another thread does not pay.
inline constexpr int64_t kGrain = 8;

/// Calls work(a value of the tensor's element type), which may be double.
template <class F>
auto by_image_type(const at::Tensor& x, const F& work) {
  if (x.scalar_type() == at::kDouble) return work(double());
  return by_type(x, work);
}

/// Transformed values with their memory.
template <class W>
struct TransformedBuffer : Transformed<W> {
  TransformedBuffer(int64_t by_rows, int64_t by_channels, at::Device device)
      : Transformed<W>{
            .at = nullptr, .position = by_rows * by_channels + kGap, .rows = by_rows, .channels = by_channels} {
    TRAINOPT_CHECK(by_rows > 0 && by_channels > 0 && by_channels % kPanel == 0);
    memory_ =
        at::empty({kPositions * this->position}, at::TensorOptions(device).dtype(c10::CppTypeToScalarType<W>::value));
    this->at = memory_.template mutable_data_ptr<W>();
  }

  void add(const TransformedBuffer& other) { values().add_(other.values()); }

 private:
  /// Positions are a cache line apart: otherwise those of one tile would often map to the same cache set.
  static constexpr int64_t kGap = 64 / sizeof(W);

  at::Tensor values() const { return memory_.view({kPositions, this->position}).narrow(1, 0, this->position - kGap); }

  at::Tensor memory_;
};

/// Transposes a panel of columns of weights[outputs][3 × 3 × inputs]: to[inputs of the panel][3 × 3 × outputs]. In
/// squares and with prefetching, because otherwise each value would be read from or written to another cache line.
template <class T>
void transpose(const T* weights, int64_t outputs, int64_t inputs, int64_t first, T* to) {
  constexpr int64_t kTaps = kKernel * kKernel;
  for (int64_t tap = 0; tap < kTaps; ++tap)
    for (int64_t output = 0; output < outputs; output += kPanel) {
      T square[kPanel][kPanel];
      for (int64_t row = 0; row < kPanel; ++row) {
        const T* const from = weights + ((output + row) * kTaps + tap) * inputs + first;
        __builtin_prefetch(from + kPanel * kTaps * inputs);
        for (int64_t c = 0; c < kPanel; ++c) square[c][row] = from[c];
      }
      for (int64_t c = 0; c < kPanel; ++c) std::copy_n(square[c], kPanel, to + (c * kTaps + tap) * outputs + output);
    }
}

/// Weights transformed with their output (`by_output`) or input channels as rows, the others as channels.
template <class W>
TransformedBuffer<W> transformed_weights(const at::Tensor& weight, bool by_output, bool rotated) {
  TRAINOPT_CHECK(weight.dim() == 4 && weight.size(2) == kKernel && weight.size(3) == kKernel);
  const at::Tensor w = nhwc(weight);
  const int64_t outputs = w.size(0), inputs = w.size(1);
  TransformedBuffer<W> to(by_output ? outputs : inputs, by_output ? inputs : outputs, w.device());
  TRAINOPT_CHECK(to.rows % kPanel == 0);
  if (w.is_meta()) return to;
  by_image_type(w, [&](auto type) {
    using T = decltype(type);
    const T* const from = w.const_data_ptr<T>();
    if constexpr (!std::is_same_v<Work<T>, Sum<W>>) {
      throw BrokenInvariant("images and weights must both be float64, or neither");
    } else if (by_output) {
      at::parallel_for(0, to.rows, kGrain, [&](int64_t begin, int64_t end) {
        tile_kernels<T, W>().weights(from, rotated, begin, end, to);
      });
    } else {
      at::parallel_for(0, to.rows / kPanel, 1, [&](int64_t begin, int64_t end) {
        std::vector<T> rows(static_cast<size_t>(kPanel * kKernel * kKernel * outputs));
        for (int64_t first = begin * kPanel; first < end * kPanel; first += kPanel) {
          transpose(from, outputs, inputs, first, rows.data());
          tile_kernels<T, W>().weights(rows.data(), rotated, 0, kPanel, to.from_row(first));
        }
      });
    }
  });
  return to;
}

}  // namespace trainopt::kernels::winograd
