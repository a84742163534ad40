// Stochastic rounding of float32 to bfloat16 (Gupta et al. 2015, "Deep Learning with Limited Numerical Precision"): a
// value between two neighbours a < b becomes b with probability (value − a) ÷ (b − a), so that its mean is exact.
#pragma once

#include "train/optimizer/optimizer.h"

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

}  // namespace trainopt::precision
