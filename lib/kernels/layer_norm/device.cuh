// The kernels behind LayerNormLaunches and their launches. The types of samples are known at run time only: branches
// that all threads take alike cost little, and templates for every combination would be a hundred kernels. Include
// on_device.cuh or its host counterpart first.
#pragma once

#include "kernels/layer_norm/launch.h"
#include "kernels/rows.cuh"

#include <cmath>

namespace trainopt::kernels::device {
namespace {

template <int kWidth>
__device__ inline Floats<kWidth> load_samples(const ConstSamples& from, int64_t at) {
  switch (from.dtype) {
    case DType::bfloat16:
      return load_wide<kWidth>(static_cast<const BFloat16*>(from.memory) + at);
    case DType::float16:
      return load_wide<kWidth>(static_cast<const Float16*>(from.memory) + at);
    default:
      return load<kWidth>(static_cast<const float*>(from.memory) + at);
  }
}

template <class T, int kWidth>
__device__ inline Floats<kWidth> store_rounded(T* to, const Floats<kWidth>& values) {
  Pack<T, kWidth> packed;
  for (int i = 0; i < kWidth; ++i) narrow(values.values[i], packed.values[i]);
  write(to, packed);
  return widened(packed);
}
/// Returns the values as rounded.
template <int kWidth>
__device__ inline Floats<kWidth> store_samples(const Samples& to, int64_t at, const Floats<kWidth>& values) {
  switch (to.dtype) {
    case DType::bfloat16:
      return store_rounded(static_cast<BFloat16*>(to.memory) + at, values);
    case DType::float16:
      return store_rounded(static_cast<Float16*>(to.memory) + at, values);
    default:
      write(static_cast<float*>(to.memory) + at, values);
      return values;
  }
}

__device__ inline ConstSamples reading(const Samples& samples) { return {samples.dtype, samples.memory}; }

/// The row of a thread, of which it takes every `step`-th column from `first` on, `kWidth` at a time. Rows past the end
/// are empty.
struct RowPart {
  int64_t row, begin, first, end, step;
  int lane;
};
__device__ inline RowPart part_of_row(int64_t rows, int64_t width, int lanes, int pack) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % lanes;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / lanes) + thread / lanes;
  return {row, row * width, static_cast<int64_t>(lane) * pack, row < rows ? width : 0, lanes * pack, lane};
}

/// Combines the values of a row's threads in a tree, always in the same order.
template <class T, class Join>
__device__ inline T joined_over_row(const T& own, int lane, int lanes, const Join& join) {
  T* shared = shared_memory<T, kThreads>() + static_cast<int>(threadIdx.x);
  *shared = own;
  for (int half = lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half) *shared = join(*shared, shared[half]);
  }
  __syncthreads();
  return *(shared - lane);
}

/// The mean of `count` values and the sum of their squared distances from it (Chan, Golub and LeVeque 1979).
struct Moments {
  float count, mean, squares;
};
__device__ inline Moments joined(const Moments& a, const Moments& b) {
  const float count = a.count + b.count, distance = b.mean - a.mean,
              share = count > 0 ? b.count * fast_reciprocal(count) : 0;
  // In this order, 0 · ∞ does not occur where a is empty and the square overflows.
  return {count, fmaf(distance, share, a.mean), a.squares + fmaf(distance * (a.count * share), distance, b.squares)};
}
template <int kWidth>
__device__ inline Moments moments_of(const Floats<kWidth>& values) {
  Moments result{kWidth, 0, 0};
  for (int i = 0; i < kWidth; ++i) result.mean += values.values[i];
  result.mean *= 1.0f / kWidth;
  for (int i = 0; i < kWidth; ++i) {
    const float distance = values.values[i] - result.mean;
    result.squares = fmaf(distance, distance, result.squares);
  }
  return result;
}

/// Threads sweep a row twice; the second sweep reads the sum from the caches.
template <int kWidth>
__global__ void __launch_bounds__(kThreads) layer_norm(LayerNormOperands o, int lanes) {
  const RowPart part = part_of_row(o.rows, o.width, lanes, kWidth);
  const bool adds = o.branch.memory != nullptr;
  Moments own{0, 0, 0};
  for (int64_t c = part.first; c < part.end; c += part.step) {
    auto values = load_samples<kWidth>(o.residual, part.begin + c);
    if (adds) {
      const auto more = load_samples<kWidth>(o.branch, part.begin + c);
      for (int i = 0; i < kWidth; ++i) values.values[i] += more.values[i];
      values = store_samples(o.sum, part.begin + c, values);
    }
    own = joined(own, moments_of(values));
  }
  const Moments all =
      joined_over_row(own, part.lane, lanes, [](const Moments& a, const Moments& b) { return joined(a, b); });
  const float rstd = 1 / sqrtf(all.squares / all.count + o.epsilon);
  const ConstSamples sum = adds ? reading(o.sum) : o.residual;
  for (int64_t c = part.first; c < part.end; c += part.step) {
    auto values = load_samples<kWidth>(sum, part.begin + c);
    const auto weight = load<kWidth>(o.weight + c), bias = load<kWidth>(o.bias + c);
    for (int i = 0; i < kWidth; ++i)
      values.values[i] = fmaf((values.values[i] - all.mean) * rstd, weight.values[i], bias.values[i]);
    store_samples(o.normalized, part.begin + c, values);
  }
  if (part.lane != 0 || part.row >= o.rows) return;
  o.mean[part.row] = all.mean;
  o.rstd[part.row] = rstd;
}

/// Σ g · weight and Σ g · weight · n.
struct RowSums {
  float scaled, product;
};

/// The gradient of the sum. Threads sweep a row twice; the second sweep reads from the caches.
template <int kWidth>
__global__ void __launch_bounds__(kThreads) layer_norm_gradient(LayerNormGradientOperands o, int lanes) {
  const RowPart part = part_of_row(o.rows, o.width, lanes, kWidth);
  const int64_t inside = part.row < o.rows ? part.row : 0;
  const float mean = o.mean[inside], rstd = o.rstd[inside];
  RowSums own{0, 0};
  for (int64_t c = part.first; c < part.end; c += part.step) {
    const auto g = load_samples<kWidth>(o.of_normalized, part.begin + c),
               values = load_samples<kWidth>(o.sum, part.begin + c), weight = load<kWidth>(o.weight + c);
    for (int i = 0; i < kWidth; ++i) {
      const float scaled = g.values[i] * weight.values[i];
      own.scaled += scaled;
      own.product = fmaf(scaled, (values.values[i] - mean) * rstd, own.product);
    }
  }
  const RowSums all = joined_over_row(own, part.lane, lanes, [](const RowSums& a, const RowSums& b) {
    return RowSums{a.scaled + b.scaled, a.product + b.product};
  });
  const float share = 1 / static_cast<float>(o.width), mean_scaled = share * all.scaled,
              of_distance = -share * all.product * rstd;
  for (int64_t c = part.first; c < part.end; c += part.step) {
    auto g = load_samples<kWidth>(o.of_normalized, part.begin + c);
    const auto values = load_samples<kWidth>(o.sum, part.begin + c), weight = load<kWidth>(o.weight + c);
    Floats<kWidth> more{};
    if (o.of_sum.memory != nullptr) more = load_samples<kWidth>(o.of_sum, part.begin + c);
    for (int i = 0; i < kWidth; ++i) {
      const float scaled = fmaf(g.values[i], weight.values[i], -mean_scaled);
      g.values[i] = fmaf(fmaf(values.values[i] - mean, of_distance, scaled), rstd, more.values[i]);
    }
    store_samples(o.of_residual, part.begin + c, g);
    if (o.of_branch.memory != nullptr) store_samples(o.of_branch, part.begin + c, g);
  }
}

/// What reduce() adds up: Σ g and Σ g · n over rows.
template <int kColumns>
struct ColumnSums {
  static constexpr int kWidth = kColumns, kAhead = 1;
  struct Ahead {
    Floats<kWidth> g, values;
    float mean, rstd;
  };
  ConstSamples of_normalized, sum;
  const float *mean, *rstd;

  __device__ NoConstants constants(int64_t) const { return {}; }
  __device__ Ahead load(const RowPosition& pos) const {
    return {load_samples<kWidth>(of_normalized, pos.at), load_samples<kWidth>(sum, pos.at), mean[pos.row],
            rstd[pos.row]};
  }
  __device__ void add(NoConstants, const RowPosition&, const Ahead& ahead, Floats<kWidth>& gradients,
                      Floats<kWidth>& products) const {
    for (int i = 0; i < kWidth; ++i) {
      gradients.values[i] += ahead.g.values[i];
      products.values[i] =
          fmaf(ahead.g.values[i], (ahead.values.values[i] - ahead.mean) * ahead.rstd, products.values[i]);
    }
  }
};

struct ToParameterGradients {
  float *of_bias, *of_weight;
  __device__ void operator()(int64_t column, double gradients, double products) const {
    of_bias[column] = static_cast<float>(gradients);
    of_weight[column] = static_cast<float>(products);
  }
};

// ---- launches ----

/// Calls with(Width<columns per access>): 8, so that an access is at least 16 bytes, if rows are a whole number of
/// packs and all memory is aligned; otherwise 1.
template <class F>
auto by_width(int64_t width, std::initializer_list<const void*> memory, const F& with) {
  uintptr_t bits = 0;
  for (const void* pointer : memory) bits |= reinterpret_cast<uintptr_t>(pointer);
  return width % 8 == 0 && bits % 16 == 0 ? with(Width<8>()) : with(Width<1>());
}

template <class F>
auto by_width(const LayerNormOperands& o, const F& with) {
  return by_width(o.width, {o.residual.memory, o.branch.memory, o.sum.memory, o.normalized.memory, o.weight, o.bias},
                  with);
}
template <class F>
auto by_width(const LayerNormGradientOperands& o, const F& with) {
  return by_width(
      o.width,
      {o.of_normalized.memory, o.of_sum.memory, o.sum.memory, o.weight, o.of_residual.memory, o.of_branch.memory},
      with);
}

/// Threads per row: each takes a few packs, so that a block has many rows and moves many bytes between two barriers.
constexpr int threads_per_row(int64_t width, int pack) {
  constexpr int kPacksEach = 4;
  int lanes = 1;
  while (lanes < kThreads && static_cast<int64_t>(lanes) * pack * kPacksEach < width) lanes *= 2;
  return lanes;
}

class DeviceLayerNormLaunches : public LayerNormLaunches {
 public:
  void forward(const LayerNormOperands& o, void* queue) const override {
    by_width(o, [&](auto columns) {
      constexpr int kWidth = decltype(columns)::value;
      const int lanes = threads_per_row(o.width, kWidth);
      launch(queue, divided_up(o.rows, kThreads / lanes), kThreads, layer_norm<kWidth>, o, lanes);
    });
  }

  int64_t partials(const LayerNormGradientOperands& o) const override {
    return by_width(o, [&](auto columns) { return tiling_of(o.rows, o.width, columns.value).partials(); });
  }

  void backward(const LayerNormGradientOperands& o, void* queue) const override {
    by_width(o, [&](auto columns) {
      constexpr int kWidth = decltype(columns)::value;
      const int lanes = threads_per_row(o.width, kWidth);
      launch(queue, divided_up(o.rows, kThreads / lanes), kThreads, layer_norm_gradient<kWidth>, o, lanes);
      launch_reduce(ColumnSums<kWidth>{o.of_normalized, o.sum, o.mean, o.rstd},
                    ToParameterGradients{o.of_bias, o.of_weight}, o.rows, o.width, o.partials, queue);
    });
  }
};

}  // namespace
}  // namespace trainopt::kernels::device
