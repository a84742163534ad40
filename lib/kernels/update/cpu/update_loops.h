// The update of a range of one parameter, as loops for the compiler to vectorise. No libtorch in this header.
#pragma once

#include "kernels/update/launch.h"

namespace trainopt::kernels::update {

/// Scalars as read at launch.
struct Rates {
  float learning_rate, factor;
  float ratio;  ///< the part's ratio
};
struct Corrections {
  float step, inverse_root;  ///< lr ÷ (1 − β₁ᵗ) and 1 ÷ √(1 − β₂ᵗ)
};

/// Updates the values [begin, end).
void update(const SgdScalars& rule, const Rates& rates, const Part& part, int64_t begin, int64_t end);
void update(const AdamScalars& rule, const Rates& rates, const Corrections& corrections, const Part& part,
            int64_t begin, int64_t end);

void update(const LionScalars& rule, const Rates& rates, const Part& part, int64_t begin, int64_t end);
/// Corrections without lr. Needs the moments of this update.
void update(const LambScalars& rule, const Rates& rates, const Corrections& corrections, const Part& part,
            int64_t begin, int64_t end);

/// Σ parameter² and Σ of the other values squared.
struct Squares {
  double of_parameter = 0, of_other = 0;
};
/// The squares' other values are gradient · factor.
Squares norms(const Rates& rates, const Part& part, int64_t begin, int64_t end);
/// Updates the moments of at most kMostValues values unless `skips`. The squares' other values are LAMB's update.
inline constexpr int64_t kMostValues = 1024;
Squares moments(const LambScalars& rule, const Rates& rates, const Corrections& corrections, bool skips,
                const Part& part, int64_t begin, int64_t end);

/// Rounds the values [begin, end) of the parameter into its copy.
void narrow(const Part& part, DType to, int64_t begin, int64_t end);

struct PartOfMeasure {
  double square_sum;
  bool finite;
};
PartOfMeasure measure(const float* gradient, int64_t count);

}  // namespace trainopt::kernels::update
