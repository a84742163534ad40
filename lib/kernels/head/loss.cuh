// The kernels of softmax cross-entropy: a row's loss and gradient, and the mean over rows. Include on_device.cuh or its
// host counterpart first.
#pragma once

#include "kernels/head/launch.h"
#include "kernels/rows.cuh"

#include <cfloat>
#include <cmath>
#include <limits>

namespace trainopt::kernels::device {
namespace {

/// Packs that a thread has in flight before it uses the first.
inline constexpr int kPacksAhead = 4;

/// Running sums over part of a row's logits, in one sweep (Milakov and Gimelshein 2018): Σ e^(x − largest) and Σ
/// (largest − x) for the largest so far. `largest` starts from the lowest number, not −∞, because −∞ − −∞ would be NaN.
struct Softmax {
  float largest, sum, gap_sum, count;
};

/// Σ (largest − x) for another `largest` that is at least the current one.
__device__ inline float gap_sum_from(const Softmax& s, float largest) {
  return s.count > 0 ? fmaf(s.count, largest - s.largest, s.gap_sum) : 0;
}

__device__ inline Softmax joined(const Softmax& a, const Softmax& b) {
  const float largest = fmaxf(a.largest, b.largest);
  return {largest, a.sum * expf(a.largest - largest) + b.sum * expf(b.largest - largest),
          gap_sum_from(a, largest) + gap_sum_from(b, largest), a.count + b.count};
}

/// e^x for x ≤ 0. For 16-bit logits in a quarter of the instructions, with a relative error of about 1e-7 · (2 + |x|):
/// far below their rounding where e^x counts.
template <class T>
__device__ inline float exp_below(float x) {
  constexpr float kLog2OfE = 1.44269504f;
  if constexpr (sizeof(T) == 2) return fast_exp2(x * kLog2OfE);
  return expf(x);
}

/// Threads per row. Each takes only a few packs, so that a block has many rows and moves many bytes between two
/// barriers.
constexpr int row_lanes_of(int64_t classes, int width) {
  int lanes = 1;
  while (lanes < kThreads && static_cast<int64_t>(lanes) * width * kPacksAhead < classes) lanes *= 2;
  return lanes;
}

/// Calls use(first class, its pack) for all packs of one thread, which starts at class `begin_at` and advances by
/// `step`. Calls begin(packs) on each group of kPacksAhead loaded packs first.
template <class T, int kWidth, class Begin, class Use>
__device__ void sweep_row(const T* logits, int64_t classes, int64_t begin_at, int step, const Begin& begin,
                          const Use& use) {
  for (int64_t first = begin_at; first < classes; first += step * kPacksAhead) {
    Pack<T, kWidth> ahead[kPacksAhead];
    TRAINOPT_UNROLL
    for (int k = 0; k < kPacksAhead; ++k) {
      const int64_t c = first + k * step;
      ahead[k] = load<kWidth>(logits + (c < classes ? c : first));  // past the end: loads the first again, unused
    }
    begin(ahead);
    TRAINOPT_UNROLL
    for (int k = 0; k < kPacksAhead; ++k)
      if (first + k * step < classes) use(first + k * step, ahead[k]);
  }
}

/// Ignores NaN, which the sums keep.
template <class T, int kWidth>
__device__ inline float largest_of(const Pack<T, kWidth> (&packs)[kPacksAhead], float largest) {
  TRAINOPT_UNROLL
  for (int k = 0; k < kPacksAhead; ++k) {
    const auto values = widened(packs[k]);
    for (int i = 0; i < kWidth; ++i) largest = fmaxf(largest, values.values[i]);
  }
  return largest;
}

/// The sums over a row. Every thread of the block must call it; `sweep` visits the packs of this thread.
template <class T, int kWidth, class Sweep>
__device__ inline Softmax softmax_of(const Sweep& sweep, int lane, int lanes) {
  Softmax own{-FLT_MAX, 0, 0, 0};
  sweep(
      [&](const Pack<T, kWidth>(&ahead)[kPacksAhead]) {
        const float largest = largest_of(ahead, own.largest);
        own = {largest, own.sum * expf(own.largest - largest), gap_sum_from(own, largest), own.count};
      },
      [&](int64_t, const Pack<T, kWidth>& pack) {
        const auto values = widened(pack);
        for (int i = 0; i < kWidth; ++i) {
          const float below = values.values[i] - own.largest;
          own.sum += exp_below<T>(below);
          own.gap_sum -= below;
        }
        own.count += kWidth;
      });
  Softmax* shared = shared_memory<Softmax, kThreads>() + static_cast<int>(threadIdx.x);
  *shared = own;
  for (int half = lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half) *shared = joined(*shared, shared[half]);
  }
  __syncthreads();
  return *(shared - lane);
}

/// Loss and gradient of rows, with `lanes` threads per row. They sweep a row twice; the second sweep reads from the
/// caches. The gradient may replace the logits: nothing reads a row's logits through another thread after the barriers.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads, 3) cross_entropy(LossOperands o, int lanes) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % lanes, step = lanes * kWidth;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / lanes) + thread / lanes,
                inside = row < o.rows ? row : o.rows - 1;
  const T* logits = static_cast<const T*>(o.logits) + inside * o.stride;
  const auto sweep = [&](const auto& begin, const auto& use) {
    sweep_row<T, kWidth>(logits, o.stride, lane * kWidth, step, begin, use);
  };

  const int64_t target = o.targets[inside];
  const bool is_class = target >= 0 && target < o.classes;
  const float logit = lane == 0 ? wide(logits[is_class ? target : 0]) : 0;

  const Softmax all = softmax_of<T, kWidth>(sweep, lane, lanes);
  if (row >= o.rows) return;

  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const bool ignored = o.ignores && target == kIgnoredTarget;
  const float of_target = 1 - o.smoothing, of_all = o.smoothing / static_cast<float>(o.classes);
  if (lane == 0) {
    const float loss =
        of_target * (all.largest - logit) + logf(all.sum);  // the weights of the logarithm, 1 − s and s, add up to 1
    o.row_losses[row] = ignored           ? 0
                        : !is_class       ? kNan
                        : o.smoothing > 0 ? fmaf(of_all, all.gap_sum, loss)
                                          : loss;  // 0 · ∞ would be NaN
  }
  if (o.gradient == nullptr) return;
  T* gradient = static_cast<T*>(o.gradient) + row * o.stride;
  if (ignored) {
    for (int64_t c = lane * kWidth; c < o.stride; c += step) store(gradient + c, Floats<kWidth>{});
    return;
  }
  const float factor = o.gradient_scale / all.sum, offset = is_class ? -of_all * o.gradient_scale : kNan,
              of_right = of_target * o.gradient_scale;
  sweep([](const auto&) {},
        [&](int64_t c, const Pack<T, kWidth>& pack) {
          auto g = widened(pack);
          const int right = target >= c && target < c + kWidth ? static_cast<int>(target - c) : kWidth;
          for (int i = 0; i < kWidth; ++i)
            g.values[i] = fmaf(exp_below<T>(g.values[i] - all.largest), factor, offset) - (i == right ? of_right : 0);
          store(gradient + c, g);
        });
}

/// One block adds in float64, always in the same order.
__global__ void __launch_bounds__(kThreads) mean_of_rows(MeanLossOperands o) {
  const int thread = static_cast<int>(threadIdx.x);
  double sum = 0, count = 0;
  for (int64_t row = thread; row < o.rows; row += kThreads) {
    sum += static_cast<double>(o.row_losses[row]);
    if (o.targets == nullptr || o.targets[row] != kIgnoredTarget) count += 1;
  }
  double* sums = shared_memory<double, 2 * kThreads>() + thread;
  double* counts = sums + kThreads;
  *sums = sum, *counts = count;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) *sums += sums[half], *counts += counts[half];
  }
  if (thread != 0) return;
  *o.loss = static_cast<float>(*sums / *counts);
  if (o.share != nullptr) *o.share = static_cast<float>(1 / (*counts > 0 ? *counts : 1));
}

}  // namespace
}  // namespace trainopt::kernels::device
