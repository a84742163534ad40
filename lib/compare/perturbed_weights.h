// Perturbs a training as rounding to bfloat16 does: makes each weight slightly larger or smaller.
#pragma once

#include <cstdint>

namespace trainopt {

class Model;
struct Plan;

/// The relative perturbation: half of the largest relative change that rounding to bfloat16 makes. It would be rounded
/// away in parameters that are bfloat16 already: theirs is the least that changes every value.
inline constexpr double kPerturbation = 0x1p-9, kPerturbationOfBfloat16 = 0x1p-7;

/// Multiplies every element of every parameter by 1 + the perturbation or 1 − it. The signs are a function of
/// (seed, parameter name, index), so they are the same on every device and in every memory format. Buffers are
/// unchanged.
void perturb_weights(Model& model, uint64_t seed);

/// Makes the plan train from such weights; the seed of everything else is unchanged.
void begin_perturbed(Plan& plan);

}  // namespace trainopt
