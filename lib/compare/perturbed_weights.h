// Perturbs a training as rounding to bfloat16 does: makes each weight slightly larger or smaller.
#pragma once

#include <cstdint>

namespace trainopt {

class Model;
struct Plan;

/// The relative perturbation: the largest relative change that rounding to bfloat16 makes.
inline constexpr double kPerturbation = 0x1p-9;

/// Multiplies every element of every parameter by 1 + kPerturbation or 1 − kPerturbation. The signs are a function of
/// (seed, parameter name, index), so they are the same on every device and in every memory format. Buffers are
/// unchanged.
void perturb_weights(Model& model, uint64_t seed);

/// Makes the plan train from such weights; the seed of everything else is unchanged.
void begin_perturbed(Plan& plan);

}  // namespace trainopt
