#include "kernels/update/cpu/update_loops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <immintrin.h>

namespace trainopt::kernels::update {
namespace {

template <bool kMomentum, bool kNesterov>
void sgd(const SgdScalars& rule, const Rates& rates, float* __restrict__ parameter, const float* __restrict__ gradient,
         float* __restrict__ momentum, int64_t count) {
  const float factor = rates.factor, decay = rule.weight_decay, momentum_factor = rule.momentum,
              rate = rates.learning_rate, ratio = rates.ratio;
  for (int64_t i = 0; i < count; ++i) {
    float change = (gradient[i] * factor + decay * parameter[i]) * ratio;
    if constexpr (kMomentum) {
      const float moved = momentum_factor * momentum[i] + change;
      momentum[i] = moved;
      change = kNesterov ? change + momentum_factor * moved : moved;
    }
    parameter[i] -= rate * change;
  }
}

template <bool kDecoupled>
void adam(const AdamScalars& rule, const Rates& rates, const Corrections& corrections, float* __restrict__ parameter,
          const float* __restrict__ gradient, float* __restrict__ first, float* __restrict__ second, int64_t count) {
  const float factor = rates.factor, decay = rule.weight_decay,
              decay_factor = 1 - rates.learning_rate * rule.weight_decay;
  const float first_share = rule.first_share, second_decay = rule.second_decay, second_share = rule.second_share,
              epsilon = rule.epsilon;
  const float step = corrections.step, inverse_root = corrections.inverse_root;
  for (int64_t i = 0; i < count; ++i) {
    const float g = kDecoupled ? gradient[i] * factor : gradient[i] * factor + decay * parameter[i];
    const float m = first[i] + first_share * (g - first[i]), v = second_decay * second[i] + second_share * g * g;
    first[i] = m;
    second[i] = v;
    parameter[i] =
        (kDecoupled ? parameter[i] * decay_factor : parameter[i]) - step * m / (std::sqrt(v) * inverse_root + epsilon);
  }
}

void lion(const LionScalars& rule, const Rates& rates, float* __restrict__ parameter,
          const float* __restrict__ gradient, float* __restrict__ first, int64_t count) {
  const float factor = rates.factor, rate = rates.learning_rate, decay_factor = 1 - rate * rule.weight_decay,
              sign_share = rule.sign_share, first_share = rule.first_share;
  for (int64_t i = 0; i < count; ++i) {
    const float difference = gradient[i] * factor - first[i], direction = first[i] + sign_share * difference;
    first[i] += first_share * difference;
    const float sign = static_cast<float>(direction > 0) - static_cast<float>(direction < 0);  // 0 for NaN
    parameter[i] = parameter[i] * decay_factor - rate * sign;
  }
}

void lamb(const LambScalars& rule, const Rates& rates, const Corrections& corrections, float* __restrict__ parameter,
          const float* __restrict__ first, const float* __restrict__ second, int64_t count) {
  const float rate = rates.learning_rate * rates.ratio, decay = rule.moments.weight_decay,
              epsilon = rule.moments.epsilon, step = corrections.step, inverse_root = corrections.inverse_root;
  for (int64_t i = 0; i < count; ++i)
    parameter[i] -= rate * (step * first[i] / (std::sqrt(second[i]) * inverse_root + epsilon) + decay * parameter[i]);
}

template <bool kSkips>
void lamb_moments(const LambScalars& rule, const Rates& rates, const Corrections& corrections,
                  const float* __restrict__ parameter, const float* __restrict__ gradient, float* __restrict__ first,
                  float* __restrict__ second, float* __restrict__ result, int64_t count) {
  const AdamScalars& moments = rule.moments;
  const float factor = rates.factor, decay = moments.weight_decay, first_share = moments.first_share,
              second_decay = moments.second_decay, second_share = moments.second_share, epsilon = moments.epsilon,
              step = corrections.step, inverse_root = corrections.inverse_root;
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * factor;
    const float m = kSkips ? first[i] : first[i] + first_share * (g - first[i]),
                v = kSkips ? second[i] : second_decay * second[i] + second_share * g * g;
    if constexpr (!kSkips) first[i] = m, second[i] = v;
    result[i] = step * m / (std::sqrt(v) * inverse_root + epsilon) + decay * parameter[i];
  }
}

constexpr int64_t kLanes = 8, kVectors = 4;
typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float)), aligned(sizeof(float)), may_alias));

/// The sum of at most kMostValues values: a lane adds few enough of them that float is as good as double, unless
/// squares leave its range.
double sum_in_float(const float* values, int64_t count) {
  Lanes sums[kVectors] = {};
  int64_t at = 0;
  for (; at + kLanes * kVectors <= count; at += kLanes * kVectors)
    for (int64_t k = 0; k < kVectors; ++k) {
      const Lanes some = *reinterpret_cast<const Lanes*>(values + at + k * kLanes);
      sums[k] += some * some;
    }
  for (; at < count; ++at) sums[0][at % kLanes] += values[at] * values[at];
  double sum = 0;
  for (const Lanes& lanes : sums)
    for (int64_t lane = 0; lane < kLanes; ++lane) sum += static_cast<double>(lanes[lane]);
  return sum;
}

double sum_of_squares(const float* values, int64_t count) {
  const double fast = sum_in_float(values, count);
  if (fast > 1e-20 && fast < 1e38) return fast;
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return sum;
}

}  // namespace

void update(const SgdScalars& rule, const Rates& rates, const Part& part, int64_t begin, int64_t end) {
  const auto run = rule.keeps_momentum ? rule.nesterov ? sgd<true, true> : sgd<true, false> : sgd<false, false>;
  run(rule, rates, part.parameter + begin, part.gradient + begin, rule.keeps_momentum ? part.first + begin : nullptr,
      end - begin);
}

void update(const AdamScalars& rule, const Rates& rates, const Corrections& corrections, const Part& part,
            int64_t begin, int64_t end) {
  const auto run = rule.decoupled ? adam<true> : adam<false>;
  run(rule, rates, corrections, part.parameter + begin, part.gradient + begin, part.first + begin, part.second + begin,
      end - begin);
}

void update(const LionScalars& rule, const Rates& rates, const Part& part, int64_t begin, int64_t end) {
  lion(rule, rates, part.parameter + begin, part.gradient + begin, part.first + begin, end - begin);
}

void update(const LambScalars& rule, const Rates& rates, const Corrections& corrections, const Part& part,
            int64_t begin, int64_t end) {
  lamb(rule, rates, corrections, part.parameter + begin, part.first + begin, part.second + begin, end - begin);
}

Squares norms(const Rates& rates, const Part& part, int64_t begin, int64_t end) {
  const double factor = rates.factor;
  return {sum_of_squares(part.parameter + begin, end - begin),
          factor * factor * sum_of_squares(part.gradient + begin, end - begin)};
}

Squares moments(const LambScalars& rule, const Rates& rates, const Corrections& corrections, bool skips,
                const Part& part, int64_t begin, int64_t end) {
  float of_update[kMostValues];
  (skips ? lamb_moments<true> : lamb_moments<false>)(rule, rates, corrections, part.parameter + begin,
                                                     part.gradient + begin, part.first + begin, part.second + begin,
                                                     of_update, end - begin);
  return {sum_of_squares(part.parameter + begin, end - begin), sum_of_squares(of_update, end - begin)};
}

void narrow(const Part& part, DType to, int64_t begin, int64_t end) {
  const float* __restrict__ from = part.parameter;
  auto* __restrict__ copy = static_cast<uint16_t*>(part.copy);
  if (to == DType::float16) {
    int64_t i = begin;
    for (; i + 8 <= end; i += 8)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(copy + i),
                       _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < end; ++i) copy[i] = _cvtss_sh(from[i], _MM_FROUND_TO_NEAREST_INT);
    return;
  }
  for (int64_t i = begin; i < end; ++i) {
    uint32_t bits;
    std::memcpy(&bits, from + i, sizeof bits);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
    // NaN must not round to infinity.
    copy[i] = static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
  }
}

PartOfMeasure measure(const float* gradient, int64_t count) {
  constexpr int64_t kRun = 64 * kLanes * kVectors;  // a lane adds 64 squares in float32
  double sum = 0;
  float zero = 0;  // becomes NaN with the first non-finite value
  for (int64_t begin = 0; begin < count; begin += kRun) {
    const int64_t end = std::min(count, begin + kRun);
    Lanes squares[kVectors] = {}, zeros[kVectors] = {};
    int64_t at = begin;
    for (; at + kLanes * kVectors <= end; at += kLanes * kVectors)
      for (int64_t k = 0; k < kVectors; ++k) {
        const Lanes values = *reinterpret_cast<const Lanes*>(gradient + at + k * kLanes);
        squares[k] += values * values;
        zeros[k] += values * 0.0f;
      }
    for (; at < end; ++at) {
      squares[0][at % kLanes] += gradient[at] * gradient[at];
      zeros[0][at % kLanes] += gradient[at] * 0.0f;
    }
    const Lanes all_zeros = (zeros[0] + zeros[1]) + (zeros[2] + zeros[3]);
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      for (const Lanes& part : squares) sum += static_cast<double>(part[lane]);
      zero += all_zeros[lane];
    }
  }
  return {sum, zero == 0};
}

}  // namespace trainopt::kernels::update
