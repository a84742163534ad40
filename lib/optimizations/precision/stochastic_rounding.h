// Stochastic rounding of float32 to bfloat16 (Gupta et al. 2015, "Deep Learning with Limited Numerical Precision"): a
// value between two neighbours a < b becomes b with probability (value − a) ÷ (b − a), so that its mean is exact.
#pragma once

#include "train/optimizer/optimizer.h"

#include <ATen/core/Tensor.h>

#include <memory>

namespace trainopt::precision {

/// `values` (float32) rounded to bfloat16 with `halves` (int32 in [0, 2^16), of the same sizes), the random numbers.
/// Infinities and NaN stay; values beyond bfloat16's largest may become infinite, as with the other roundings.
at::Tensor rounded_stochastically(const at::Tensor& values, const at::Tensor& halves);

/// Random numbers are a function of the seed, the step, the parameter's name and the element's index, the same on every
/// rank. `steps_done` (BuildContext) must outlive the result. `for_cpu`: values on the meta device stand for those of a
/// CPU, whose random numbers take less temporary memory.
std::unique_ptr<WeightRounding> make_stochastic_rounding(uint64_t seed, const int64_t* steps_done,
                                                         bool for_cpu = false);

// Random numbers of 16 bits for every element of a tensor. Each is a function of (key, step, element), so they do not
// depend on threads, device or layout.

struct HalvesRange {
  int64_t first = 0, count = 0;
};

/// [range.count] int32, uniform in [0, 2^16). The block philox(key, step, i) has numbers 8i to 8i + 7, the low half of
/// each word first.
at::Tensor random_halves(const HalvesRange& range, uint64_t key, uint64_t step, at::Device device);

/// random_halves() from tensor operations, for devices other than the CPU. Takes about a hundred operations.
at::Tensor random_halves_by_operations(const HalvesRange& range, uint64_t key, uint64_t step, at::Device device);

}  // namespace trainopt::precision
