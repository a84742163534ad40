// Values of tensors for a check: pure functions of a key and the sizes, the same on every machine. float64, on the CPU.
#pragma once

#include "debugging/gradcheck/gradient_case.h"

namespace trainopt::gradcheck {

/// For each input of the case, `samples` in a batch, rounded to `type`, so that float64 and the type that is checked
/// begin with the same numbers. Every channel of a sample tensor has a mean and a spread of its own, so that a mistaken
/// channel shows.
Tensors input_values(const GradientCase& gradient_case, int64_t samples, at::ScalarType type, uint64_t key);

/// The gradient of the output, rounded to `type`. None is small, because a small gradient hides an error, but those of
/// outputs close to a kink are 0: rounding, or a step along a direction, may cross the kink, and then neither side is
/// wrong.
at::Tensor output_gradient(const GradientCase& gradient_case, const at::Tensor& output, const Tensors& inputs,
                           at::ScalarType type, uint64_t key);

/// ±1 for every value of every input.
Tensors direction(const Tensors& inputs, uint64_t key);

}  // namespace trainopt::gradcheck
