// The update of a table of parameters under a rule, and the count of updates that Adam and LAMB need before it.
#pragma once

#include "kernels/update/device_sweep.cuh"

#include <cmath>

namespace trainopt::kernels::update {
namespace {

/// A rule has the number of its states, whether it reads gradients and writes its states, begin(inputs, part), which
/// reads what all values of a part share, and change(parameter, gradient, first, second) of one value.
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
    all.gradient = Rule::kReadsGradient ? read<Floats<kWidth>>(part.gradient + at) : Floats<kWidth>{};
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
      if constexpr (Rule::kWritesState && Rule::kStates > 0) write(part.first + at, all.first);
      if constexpr (Rule::kWritesState && Rule::kStates > 1) write(part.second + at, all.second);
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

struct ReadsAndWrites {
  static constexpr bool kReadsGradient = true, kWritesState = true;
};

__device__ inline float ratio_of(const UpdateInputs& inputs, const Part& part) {
  return inputs.ratios == nullptr ? 1 : inputs.ratios[part.row];
}

template <bool kMomentum>
struct Sgd : ReadsAndWrites {
  static constexpr int kStates = kMomentum ? 1 : 0;
  SgdScalars numbers;
  float rate = 0, ratio = 0;

  explicit Sgd(const SgdScalars& scalars) : numbers(scalars) {}
  __device__ void begin(const UpdateInputs& inputs, const Part& part) {
    rate = *inputs.learning_rate;
    ratio = ratio_of(inputs, part);
  }
  __device__ void change(float& parameter, float gradient, float& momentum, float&) const {
    float change = (gradient + numbers.weight_decay * parameter) * ratio;
    if constexpr (kMomentum) {
      momentum = numbers.momentum * momentum + change;
      change = numbers.nesterov ? change + numbers.momentum * momentum : momentum;
    }
    parameter -= rate * change;
  }
};

template <bool kDecoupled>
struct Adam : ReadsAndWrites {
  static constexpr int kStates = 2;
  AdamScalars numbers;
  const float* corrections;  ///< results of count()
  float step = 0, inverse_root = 0, decay_factor = 0;

  Adam(const AdamScalars& scalars, const float* counted) : numbers(scalars), corrections(counted) {}
  __device__ void begin(const UpdateInputs& inputs, const Part&) {
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

struct Lion : ReadsAndWrites {
  static constexpr int kStates = 1;
  LionScalars numbers;
  float rate = 0, decay_factor = 0;

  explicit Lion(const LionScalars& scalars) : numbers(scalars) {}
  __device__ void begin(const UpdateInputs& inputs, const Part&) {
    rate = *inputs.learning_rate;
    decay_factor = 1 - rate * numbers.weight_decay;
  }
  __device__ void change(float& parameter, float gradient, float& first, float&) const {
    const float difference = gradient - first, direction = first + numbers.sign_share * difference;
    first += numbers.first_share * difference;
    const float sign = static_cast<float>(direction > 0) - static_cast<float>(direction < 0);  // 0 for NaN
    parameter = parameter * decay_factor - rate * sign;
  }
};

/// LAMB's update u of one value from its moments.
struct LambUpdate {
  float step = 0, inverse_root = 0, epsilon = 0, decay = 0;

  LambUpdate() = default;
  __device__ LambUpdate(const LambScalars& numbers, const float* corrections)
      : step(corrections[0]),
        inverse_root(corrections[1]),
        epsilon(numbers.moments.epsilon),
        decay(numbers.moments.weight_decay) {}
  __device__ float operator()(float parameter, float first, float second) const {
    return step * first / (sqrtf(second) * inverse_root + epsilon) + decay * parameter;
  }
};

struct Lamb {
  static constexpr int kStates = 2;
  static constexpr bool kReadsGradient = false, kWritesState = false;
  LambScalars numbers;
  const float* corrections;  ///< results of count()
  float rate = 0;
  LambUpdate update;

  Lamb(const LambScalars& scalars, const float* counted) : numbers(scalars), corrections(counted) {}
  __device__ void begin(const UpdateInputs& inputs, const Part& part) {
    rate = *inputs.learning_rate * ratio_of(inputs, part);
    update = LambUpdate(numbers, corrections);
  }
  __device__ void change(float& parameter, float, float& first, float& second) const {
    parameter -= rate * update(parameter, first, second);
  }
};

/// One launch for all parameters of a table, with one block per chunk.
template <class Rule>
__global__ void __launch_bounds__(kThreads)
    update(const __grid_constant__ Table table, Rule rule, UpdateInputs inputs) {
  const BlockRange range = range_of(table);
  const Part& part = range.part;
  rule.begin(inputs, part);
  bool packs = begins_packs(part.parameter) && begins_packs(part.gradient) && begins_packs_of_16_bits(part.copy);
  if constexpr (Rule::kStates > 0) packs = packs && begins_packs(part.first);
  if constexpr (Rule::kStates > 1) packs = packs && begins_packs(part.second);
  sweep_range(Updating<Rule>{part, rule, factor_of(inputs), skips(inputs), inputs.clears, inputs.copies}, range, packs);
}

/// Counts the update if it is not skipped. `rate`: what the first moment is multiplied by. Left as they are:
/// corrections of a skipped update, which nothing uses.
__device__ inline void count_update(const AdamScalars& numbers, double* updates, float* corrections,
                                    const UpdateInputs& inputs, double rate, bool corrects_bias) {
  if (skips(inputs)) return;
  const double update = *updates + (numbers.counts_update ? 1 : 0);
  *updates = update;  // expm1 keeps the digits of 1 − βᵗ while it is small
  corrections[0] = static_cast<float>(corrects_bias ? rate / -expm1(numbers.log_beta1 * update) : rate);
  corrections[1] = static_cast<float>(corrects_bias ? 1 / sqrt(-expm1(numbers.log_beta2 * update)) : 1);
}
// These kernels run in one thread.
__global__ void __launch_bounds__(1)
    count(AdamScalars numbers, double* updates, float* corrections, UpdateInputs inputs) {
  count_update(numbers, updates, corrections, inputs, static_cast<double>(*inputs.learning_rate), true);
}
__global__ void __launch_bounds__(1)
    count_lamb(LambScalars numbers, double* updates, float* corrections, UpdateInputs inputs) {
  count_update(numbers.moments, updates, corrections, inputs, 1, numbers.corrects_bias);
}

}  // namespace
}  // namespace trainopt::kernels::update
