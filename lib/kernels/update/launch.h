// UpdateKernels over raw memory: pointers, sizes, a queue. No libtorch and no CUDA in this header.
#pragma once

#include "kernels/dtype.h"

#include <cstdint>
#include <vector>

namespace trainopt::kernels::update {

/// The arrays of a parameter; null if the rule does not use them.
struct Part {
  float *parameter, *gradient, *first, *second;
  void* copy;
  int64_t size;
  int32_t row;  ///< this parameter's row in tables of sums of squares and of ratios
};

struct SgdScalars {
  float momentum, weight_decay;
  bool keeps_momentum, nesterov;
};

struct AdamScalars {
  double log_beta1, log_beta2;                                           ///< −∞ for 0
  float first_share, second_decay, second_share, epsilon, weight_decay;  ///< 1 − β₁, β₂, 1 − β₂
  bool decoupled, counts_update;
};

struct LionScalars {
  float sign_share, first_share, weight_decay;  ///< 1 − β₁, 1 − β₂
};

/// `moments`: what LAMB has in common with Adam; its own weight decay is part of the update.
struct LambScalars {
  AdamScalars moments;
  bool corrects_bias;
};

/// Where a launch reads its scalars. Null: factor 1, not skipped.
struct UpdateInputs {
  const float *learning_rate, *factor, *skip_update;
  bool clears;
  DType copies;         ///< type of the copies; ignored if there are none
  const float* ratios;  ///< indexed by Part::row; null: 1
};

class UpdateLaunches {
 public:
  virtual ~UpdateLaunches() = default;
  // Returns the number of launches.
  virtual int64_t sgd(const SgdScalars& rule, const std::vector<Part>& parts, const UpdateInputs& inputs,
                      void* queue) const = 0;
  /// `corrections`: work space for two floats.
  virtual int64_t adam(const AdamScalars& rule, double* updates, float* corrections, const std::vector<Part>& parts,
                       const UpdateInputs& inputs, void* queue) const = 0;
  virtual int64_t lion(const LionScalars& rule, const std::vector<Part>& parts, const UpdateInputs& inputs,
                       void* queue) const = 0;
  // `squares`: two doubles for each row; `partials`: work space, as many doubles as partials() says.
  virtual int64_t norms(const std::vector<Part>& parts, const UpdateInputs& inputs, double* partials, double* squares,
                        void* queue) const = 0;
  virtual int64_t lamb_moments(const LambScalars& rule, double* updates, float* corrections,
                               const std::vector<Part>& parts, const UpdateInputs& inputs, double* partials,
                               double* squares, void* queue) const = 0;
  virtual int64_t lamb(const LambScalars& rule, double* updates, float* corrections, const std::vector<Part>& parts,
                       const UpdateInputs& inputs, void* queue) const = 0;
  /// Number of doubles of work space for sums over these parts.
  virtual int64_t partials(const std::vector<Part>& parts) const = 0;
  /// Measures the gradients.
  virtual void measure(const std::vector<Part>& parts, double* partials, double* square_sum, float* not_finite,
                       void* queue) const = 0;
};

const UpdateLaunches& cpu_launches();
/// nullptr without libtrainopt_cuda.so. Touches no GPU.
const UpdateLaunches* cuda_launches();

}  // namespace trainopt::kernels::update
