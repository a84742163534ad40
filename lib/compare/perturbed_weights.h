// The smallest change of a training that rounding to 8 bits makes: each weight a little larger or smaller.
#pragma once

#include <cstdint>

namespace trainopt {

class Model;
struct Plan;

/// How much: as much as the most that rounding to bfloat16 changes a number, relative.
inline constexpr double kPerturbation = 0x1p-9;

/// Multiplies every number of every parameter by 1 + kPerturbation or 1 − kPerturbation. The signs are a function of
/// (seed, the parameter's name, place in it), so they are the same on every device and in every memory format. Buffers
/// stay as they are.
void perturb_weights(Model& model, uint64_t seed);

/// The plan's training from such weights; its seed stays that of everything else.
void begin_perturbed(Plan& plan);

}  // namespace trainopt
