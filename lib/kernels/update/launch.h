// UpdateKernels over bare memory: pointers, sizes, a queue. No libtorch and no CUDA in this header.
#pragma once

#include "kernels/dtype.h"

#include <cstdint>
#include <vector>

namespace trainopt::kernels::update {

/// A parameter's memory; null where a rule has none of its kind.
struct Part {
  float *parameter, *gradient, *first, *second;
  void* copy;
  int64_t size;
};

struct SgdScalars {
  float momentum, weight_decay;
  bool keeps_momentum, nesterov;
};

struct AdamScalars {
  double log_beta1, log_beta2;                                          ///< −∞ for 0
  float first_share, second_kept, second_share, epsilon, weight_decay;  ///< 1 − β₁, β₂, 1 − β₂
  bool decoupled;
};

/// Where a launch finds its numbers; null: factor 1, not skipped.
struct Given {
  const float *learning_rate, *factor, *skip_update;
  bool clears;
  DType copies;  ///< what they are of; where there are none it may be any
};

class UpdateLaunches {
 public:
  virtual ~UpdateLaunches() = default;
  // How many launches it took.
  virtual int64_t sgd(const SgdScalars& rule, const std::vector<Part>& parts, const Given& given,
                      void* queue) const = 0;
  /// `corrections`: room for two floats.
  virtual int64_t adam(const AdamScalars& rule, double* updates, float* corrections, const std::vector<Part>& parts,
                       const Given& given, void* queue) const = 0;
  /// Doubles of work space that measure() needs.
  virtual int64_t partials(const std::vector<Part>& parts) const = 0;
  /// Of the gradients.
  virtual void measure(const std::vector<Part>& parts, double* partials, double* square_sum, float* not_finite,
                       void* queue) const = 0;
};

const UpdateLaunches& cpu_launches();
/// nullptr in builds without CUDA. Touches no GPU.
const UpdateLaunches* cuda_launches();

}  // namespace trainopt::kernels::update
