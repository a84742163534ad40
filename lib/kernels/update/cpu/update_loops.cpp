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
              rate = rates.learning_rate;
  for (int64_t i = 0; i < count; ++i) {
    float change = gradient[i] * factor + decay * parameter[i];
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
  constexpr int64_t kLanes = 8, kVectors = 4, kRun = 64 * kLanes * kVectors;  // a lane adds 64 squares in float32
  typedef float Vector __attribute__((vector_size(kLanes * sizeof(float)), aligned(sizeof(float)), may_alias));
  double sum = 0;
  float zero = 0;  // becomes NaN with the first non-finite value
  for (int64_t begin = 0; begin < count; begin += kRun) {
    const int64_t end = std::min(count, begin + kRun);
    Vector squares[kVectors] = {}, zeros[kVectors] = {};
    int64_t at = begin;
    for (; at + kLanes * kVectors <= end; at += kLanes * kVectors)
      for (int64_t k = 0; k < kVectors; ++k) {
        const Vector values = *reinterpret_cast<const Vector*>(gradient + at + k * kLanes);
        squares[k] += values * values;
        zeros[k] += values * 0.0f;
      }
    for (; at < end; ++at) {
      squares[0][at % kLanes] += gradient[at] * gradient[at];
      zeros[0][at % kLanes] += gradient[at] * 0.0f;
    }
    const Vector all_zeros = (zeros[0] + zeros[1]) + (zeros[2] + zeros[3]);
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      for (const Vector& part : squares) sum += static_cast<double>(part[lane]);
      zero += all_zeros[lane];
    }
  }
  return {sum, zero == 0};
}

}  // namespace trainopt::kernels::update
