// Sums over gradients, parameters and updates: per block by a first kernel, then over blocks by a second one, always in
// the same order.
#pragma once

#include "kernels/update/device_rules.cuh"

namespace trainopt::kernels::update {
namespace {

inline constexpr int kFoldThreads = 512;

/// Reduces two sums over the threads of a block; the first thread gets the results.
template <int kCount>
__device__ inline void add_up(double& sum, double& other) {
  const int thread = static_cast<int>(threadIdx.x);
  double* mine = shared_memory<double, 2 * kCount>() + thread;
  mine[0] = sum;
  mine[kCount] = other;
  for (int half = kCount / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread >= half) continue;
    mine[0] += mine[half];
    mine[kCount] += mine[kCount + half];
  }
  sum = mine[0];
  other = mine[kCount];
}

/// Adds at most sixteen squares per thread in float32; a non-finite value makes `other` NaN.
struct Measuring {
  const float* gradient;
  float &square_sum, &other;

  template <int kWidth>
  __device__ Floats<kWidth> load(int64_t at) const {
    return read<Floats<kWidth>>(gradient + at);
  }
  template <int kWidth>
  __device__ void use(int64_t, const Floats<kWidth>& values) const {
    for (int i = 0; i < kWidth; ++i) {
      square_sum += values.values[i] * values.values[i];
      other += 0 * values.values[i];
    }
  }
};

/// Writes Σ g² of a chunk and 0 or NaN to partials[block].
__global__ void __launch_bounds__(kThreads) measure(const __grid_constant__ Table table, double* partials) {
  const BlockRange range = range_of(table);
  float square_sum = 0, other = 0;
  sweep_range(Measuring{range.part.gradient, square_sum, other}, range, begins_packs(range.part.gradient));
  double sum = static_cast<double>(square_sum), zero = static_cast<double>(other);
  add_up<kThreads>(sum, zero);
  if (threadIdx.x != 0) return;
  partials[2 * static_cast<int64_t>(blockIdx.x)] = sum;
  partials[2 * static_cast<int64_t>(blockIdx.x) + 1] = zero;
}

/// One block adds the partials of all blocks, always in the same order.
__global__ void __launch_bounds__(kFoldThreads)
    fold(const double* partials, int64_t blocks, double* square_sum, float* not_finite) {
  double sum = 0, zero = 0;
  for (int64_t block = static_cast<int64_t>(threadIdx.x); block < blocks; block += kFoldThreads) {
    sum += partials[2 * block];
    zero += partials[2 * block + 1];
  }
  add_up<kFoldThreads>(sum, zero);
  if (threadIdx.x != 0) return;
  *square_sum = sum;
  *not_finite = zero == 0 ? 0 : 1;
}

/// Adds squares in double, because the square of a float may leave its range. `gradient` · factor is the other number.
struct Norms {
  Part part;
  float factor;
  double &of_parameter, &of_other;

  template <int kWidth>
  struct Read {
    Floats<kWidth> parameter, gradient;
  };
  template <int kWidth>
  __device__ Read<kWidth> load(int64_t at) const {
    return {read<Floats<kWidth>>(part.parameter + at), read<Floats<kWidth>>(part.gradient + at)};
  }
  template <int kWidth>
  __device__ void use(int64_t, const Read<kWidth>& all) const {
    for (int i = 0; i < kWidth; ++i) add(all.parameter.values[i], all.gradient.values[i] * factor);
  }
  __device__ void add(float parameter, float other) const {
    of_parameter += static_cast<double>(parameter) * static_cast<double>(parameter);
    of_other += static_cast<double>(other) * static_cast<double>(other);
  }
};

/// Updates LAMB's moments. The other number is its update.
struct Moments {
  Norms sums;
  AdamScalars numbers;
  LambUpdate update;
  bool skips;

  template <int kWidth>
  struct Read {
    Floats<kWidth> parameter, gradient, first, second;
  };
  template <int kWidth>
  __device__ Read<kWidth> load(int64_t at) const {
    const Part& part = sums.part;
    return {read<Floats<kWidth>>(part.parameter + at), read<Floats<kWidth>>(part.gradient + at),
            read<Floats<kWidth>>(part.first + at), read<Floats<kWidth>>(part.second + at)};
  }
  template <int kWidth>
  __device__ void use(int64_t at, Read<kWidth> all) const {
    if (skips) return;
    for (int i = 0; i < kWidth; ++i) {
      const float g = all.gradient.values[i] * sums.factor;
      float &first = all.first.values[i], &second = all.second.values[i];
      first += numbers.first_share * (g - first);
      second = numbers.second_decay * second + numbers.second_share * g * g;
      sums.add(all.parameter.values[i], update(all.parameter.values[i], first, second));
    }
    write(sums.part.first + at, all.first);
    write(sums.part.second + at, all.second);
  }
};

/// Adds up over the threads of a block, kCount, and writes the two sums.
template <int kCount>
__device__ inline void write_sums(double of_parameter, double of_other, double* to) {
  add_up<kCount>(of_parameter, of_other);
  if (threadIdx.x != 0) return;
  to[0] = of_parameter;
  to[1] = of_other;
}

__global__ void __launch_bounds__(kThreads)
    norms(const __grid_constant__ Table table, UpdateInputs inputs, double* partials) {
  const BlockRange range = range_of(table);
  const Part& part = range.part;
  double of_parameter = 0, of_other = 0;
  sweep_range(Norms{part, factor_of(inputs), of_parameter, of_other}, range,
              begins_packs(part.parameter) && begins_packs(part.gradient));
  write_sums<kThreads>(of_parameter, of_other, partials + 2 * static_cast<int64_t>(blockIdx.x));
}

__global__ void __launch_bounds__(kThreads)
    lamb_moments(const __grid_constant__ Table table, LambScalars numbers, const float* corrections,
                 UpdateInputs inputs, double* partials) {
  const BlockRange range = range_of(table);
  const Part& part = range.part;
  double of_parameter = 0, of_other = 0;
  sweep_range(Moments{{part, factor_of(inputs), of_parameter, of_other},
                      numbers.moments,
                      LambUpdate(numbers, corrections),
                      skips(inputs)},
              range,
              begins_packs(part.parameter) && begins_packs(part.gradient) && begins_packs(part.first) &&
                  begins_packs(part.second));
  write_sums<kThreads>(of_parameter, of_other, partials + 2 * static_cast<int64_t>(blockIdx.x));
}

inline constexpr int kFoldRowThreads = 32;  ///< most parts have few blocks

/// One block for each part of the table adds the partials of its blocks. `blocks`: of the whole table.
__global__ void __launch_bounds__(kFoldRowThreads)
    fold_rows(const __grid_constant__ Table table, const double* partials, int64_t blocks, double* squares) {
  const auto part = static_cast<int32_t>(blockIdx.x);
  const int64_t end = part + 1 < table.count ? table.first_block[part + 1] : blocks;
  double of_parameter = 0, of_other = 0;
  for (int64_t block = table.first_block[part] + static_cast<int64_t>(threadIdx.x); block < end;
       block += kFoldRowThreads) {
    of_parameter += partials[2 * block];
    of_other += partials[2 * block + 1];
  }
  write_sums<kFoldRowThreads>(of_parameter, of_other, squares + 2 * static_cast<int64_t>(table.parts[part].row));
}

}  // namespace
}  // namespace trainopt::kernels::update
