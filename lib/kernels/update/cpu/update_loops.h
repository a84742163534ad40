// The updates of a stretch of one parameter, as loops for the compiler to vectorise: no libtorch in here.
#pragma once

#include "kernels/update/launch.h"

namespace trainopt::kernels::update {

/// As a launch found them.
struct Rates {
  float learning_rate, factor;
};
struct Corrections {
  float step, inverse_root;  ///< lr ÷ (1 − β₁ᵗ) and 1 ÷ √(1 − β₂ᵗ)
};

/// Of the numbers begin … end − 1.
void update(const SgdScalars& rule, const Rates& rates, const Part& part, int64_t begin, int64_t end);
void update(const AdamScalars& rule, const Rates& rates, const Corrections& corrections, const Part& part,
            int64_t begin, int64_t end);

/// The parameter's numbers begin … end − 1 into its copy.
void narrow(const Part& part, DType to, int64_t begin, int64_t end);

struct PartOfMeasure {
  double square_sum;
  bool finite;
};
PartOfMeasure measure(const float* gradient, int64_t count);

}  // namespace trainopt::kernels::update
