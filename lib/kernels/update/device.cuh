// The kernels and their launches: the update of a table of parameters under a rule, Adam's count of updates, and the
// measurement of gradients with its final sum (fold). Include on_device.cuh or its host counterpart first.
#pragma once

#include "kernels/update/table.h"

#include <cmath>

namespace trainopt::kernels::update {
namespace {

/// The values of one part that a block processes.
struct BlockRange {
  Part part;
  int64_t begin, end;
};
__device__ inline BlockRange range_of(const Table& table) {
  const auto block = static_cast<int32_t>(blockIdx.x);
  int low = 0, high = table.count;  // the part is in [low, high)
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (table.first_block[middle] <= block)
      low = middle;
    else
      high = middle;
  }
  const int64_t begin = (block - table.first_block[low]) * kChunk, size = table.parts[low].size;
  return {table.parts[low], begin, begin + kChunk < size ? begin + kChunk : size};
}

__device__ inline bool begins_packs(const float* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % (kPack * sizeof(float)) == 0;
}
__device__ inline bool begins_packs_of_16_bits(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % (kPack * sizeof(uint16_t)) == 0;
}

/// Calls body.load<kWidth>(at) for kAhead positions of a thread, then body.use(at, loaded) for each, so that many reads
/// are in flight at once.
template <int kWidth, int kAhead, class Body>
__device__ inline void sweep(const Body& body, int64_t begin, int64_t end) {
  constexpr int64_t kStride = static_cast<int64_t>(kThreads) * kWidth;
  for (int64_t first = begin + static_cast<int64_t>(threadIdx.x) * kWidth; first < end; first += kAhead * kStride) {
    decltype(body.template load<kWidth>(0)) ahead[kAhead];
    for (int k = 0; k < kAhead; ++k)
      // Past the end: reads the first again and does not use it.
      ahead[k] = body.template load<kWidth>(first + k * kStride < end ? first + k * kStride : first);
    for (int k = 0; k < kAhead; ++k)
      if (first + k * kStride < end) body.use(first + k * kStride, ahead[k]);
  }
}
/// Sweeps all values of a range, in packs if memory is aligned.
template <class Body>
__device__ inline void sweep_range(const Body& body, const BlockRange& range, bool packs) {
  constexpr int kAhead = 2;
  const int64_t packed_end = packs ? range.end - (range.end - range.begin) % kPack : range.begin;
  sweep<kPack, kAhead>(body, range.begin, packed_end);
  sweep<1, kAhead>(body, packed_end, range.end);
}

template <int kWidth>
using Floats = Pack<float, kWidth>;

template <class Rule>
struct Updating {
  Part part;
  Rule rule;
  float factor;
  bool skips, clears;
  DType copies;

  template <int kWidth>
  struct Read {
    Floats<kWidth> parameter, gradient, first, second;
  };

  template <int kWidth>
  __device__ Read<kWidth> load(int64_t at) const {
    Read<kWidth> all;
    all.parameter = read<Floats<kWidth>>(part.parameter + at);
    all.gradient = read<Floats<kWidth>>(part.gradient + at);
    if constexpr (Rule::kStates > 0) all.first = read<Floats<kWidth>>(part.first + at);
    if constexpr (Rule::kStates > 1) all.second = read<Floats<kWidth>>(part.second + at);
    return all;
  }
  template <int kWidth>
  __device__ void use(int64_t at, Read<kWidth> all) const {
    if (!skips) {
      for (int i = 0; i < kWidth; ++i)
        rule.change(all.parameter.values[i], all.gradient.values[i] * factor, all.first.values[i],
                    all.second.values[i]);
      write(part.parameter + at, all.parameter);
      if constexpr (Rule::kStates > 0) write(part.first + at, all.first);
      if constexpr (Rule::kStates > 1) write(part.second + at, all.second);
      if (part.copy != nullptr)
        copies == DType::bfloat16 ? store<BFloat16>(at, all.parameter) : store<Float16>(at, all.parameter);
    }
    if (clears) write(part.gradient + at, Floats<kWidth>{});
  }

 private:
  template <class T, int kWidth>
  __device__ void store(int64_t at, const Floats<kWidth>& floats) const {
    Pack<T, kWidth> packed;
    for (int i = 0; i < kWidth; ++i) narrow(floats.values[i], packed.values[i]);
    write(static_cast<T*>(part.copy) + at, packed);
  }
};

template <bool kMomentum>
struct Sgd {
  static constexpr int kStates = kMomentum ? 1 : 0;
  SgdScalars numbers;
  float rate;

  __device__ void begin(const UpdateInputs& inputs) { rate = *inputs.learning_rate; }
  __device__ void change(float& parameter, float gradient, float& momentum, float&) const {
    float change = gradient + numbers.weight_decay * parameter;
    if constexpr (kMomentum) {
      momentum = numbers.momentum * momentum + change;
      change = numbers.nesterov ? change + numbers.momentum * momentum : momentum;
    }
    parameter -= rate * change;
  }
};

template <bool kDecoupled>
struct Adam {
  static constexpr int kStates = 2;
  AdamScalars numbers;
  const float* corrections;  ///< results of count()
  float step, inverse_root, decay_factor;

  __device__ void begin(const UpdateInputs& inputs) {
    step = corrections[0];
    inverse_root = corrections[1];
    decay_factor = 1 - *inputs.learning_rate * numbers.weight_decay;
  }
  __device__ void change(float& parameter, float gradient, float& first, float& second) const {
    const float g = kDecoupled ? gradient : gradient + numbers.weight_decay * parameter;
    first += numbers.first_share * (g - first);
    second = numbers.second_decay * second + numbers.second_share * g * g;
    parameter = (kDecoupled ? parameter * decay_factor : parameter) -
                step * first / (sqrtf(second) * inverse_root + numbers.epsilon);
  }
};

/// One launch for all parameters of a table, with one block per chunk.
template <class Rule>
__global__ void __launch_bounds__(kThreads)
    update(const __grid_constant__ Table table, Rule rule, UpdateInputs inputs) {
  const BlockRange range = range_of(table);
  rule.begin(inputs);
  const bool skips = inputs.skip_update != nullptr && *inputs.skip_update > 0;
  const Part& part = range.part;
  bool packs = begins_packs(part.parameter) && begins_packs(part.gradient) && begins_packs_of_16_bits(part.copy);
  if constexpr (Rule::kStates > 0) packs = packs && begins_packs(part.first);
  if constexpr (Rule::kStates > 1) packs = packs && begins_packs(part.second);
  sweep_range(
      Updating<Rule>{part, rule, inputs.factor == nullptr ? 1 : *inputs.factor, skips, inputs.clears, inputs.copies},
      range, packs);
}

/// One thread. expm1 keeps the digits of 1 − βᵗ while it is small.
__global__ void __launch_bounds__(1)
    count(AdamScalars numbers, double* updates, float* corrections, UpdateInputs inputs) {
  if (inputs.skip_update != nullptr && *inputs.skip_update > 0) return;  // corrections stay unset: nothing uses them
  const double update = *updates + (numbers.counts_update ? 1 : 0);
  *updates = update;
  corrections[0] = static_cast<float>(static_cast<double>(*inputs.learning_rate) / -expm1(numbers.log_beta1 * update));
  corrections[1] = static_cast<float>(1 / sqrt(-expm1(numbers.log_beta2 * update)));
}

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

// ---- launches ----

class DeviceUpdateLaunches : public UpdateLaunches {
 public:
  int64_t sgd(const SgdScalars& rule, const std::vector<Part>& parts, const UpdateInputs& inputs,
              void* queue) const override {
    return rule.keeps_momentum ? run(Sgd<true>{rule, 0}, parts, inputs, queue)
                               : run(Sgd<false>{rule, 0}, parts, inputs, queue);
  }

  int64_t adam(const AdamScalars& rule, double* updates, float* corrections, const std::vector<Part>& parts,
               const UpdateInputs& inputs, void* queue) const override {
    launch(queue, 1, 1, count, rule, updates, corrections, inputs);
    return 1 + (rule.decoupled ? run(Adam<true>{rule, corrections, 0, 0, 0}, parts, inputs, queue)
                               : run(Adam<false>{rule, corrections, 0, 0, 0}, parts, inputs, queue));
  }

  int64_t partials(const std::vector<Part>& parts) const override {
    int64_t blocks = 0;
    for (const Part& part : parts) blocks += blocks_of(part.size);
    return 2 * blocks;
  }

  void measure(const std::vector<Part>& parts, double* partials, double* square_sum, float* not_finite,
               void* queue) const override {
    each_table(parts, [&](const Table& table, int64_t blocks, int64_t before) {
      launch(queue, blocks, kThreads, update::measure, table, partials + 2 * before);
    });
    launch(queue, 1, kFoldThreads, fold, partials, this->partials(parts) / 2, square_sum, not_finite);
  }

 private:
  template <class Rule>
  static int64_t run(const Rule& rule, const std::vector<Part>& parts, const UpdateInputs& inputs, void* queue) {
    return each_table(parts, [&](const Table& table, int64_t blocks, int64_t) {
      launch(queue, blocks, kThreads, update<Rule>, table, rule, inputs);
    });
  }
};

}  // namespace
}  // namespace trainopt::kernels::update
