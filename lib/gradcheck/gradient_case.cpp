#include "gradcheck/gradient_case.h"

#include "base/error.h"
#include "device/tensor.h"

#include <algorithm>

namespace trainopt::gradcheck {

Parts plain_parts(double label_smoothing) { return {{}, std::make_shared<ClassificationTask>(label_smoothing)}; }

int64_t GradientCase::batch() const { return inputs.front().per_sample ? inputs.front().sizes.front() : 1; }

int64_t GradientCase::values_per_sample() const {
  int64_t largest = output_values;
  for (const auto& input : inputs)
    if (input.per_sample) largest = std::max(largest, c10::multiply_integers(input.sizes) / input.sizes.front());
  return largest;
}

}  // namespace trainopt::gradcheck
