// The update of a range of one parameter, as loops for the compiler to vectorise. No libtorch in this header.
#pragma once

#include "kernels/update/launch.h"

namespace trainopt::kernels::update {

/// Scalars as read at launch.
struct Rates {
  float learning_rate, factor;
};
struct Corrections {
  float step, inverse_root;  ///< lr ÷ (1 − β₁ᵗ) and 1 ÷ √(1 − β₂ᵗ)
};

/// Updates the values [begin, end).
void update(const SgdScalars& rule, const Rates& rates, const Part& part, int64_t begin, int64_t end);
void update(const AdamScalars& rule, const Rates& rates, const Corrections& corrections, const Part& part,
            int64_t begin, int64_t end);

/// Rounds the values [begin, end) of the parameter into its copy.
void narrow(const Part& part, DType to, int64_t begin, int64_t end);

struct PartOfMeasure {
  double square_sum;
  bool finite;
};
PartOfMeasure measure(const float* gradient, int64_t count);

}  // namespace trainopt::kernels::update
