// The optimizer's update of all parameters in one pass, and a measurement of all gradients before it. Unscaling,
// clipping and zeroing happen in the same pass: gradients are multiplied by a factor as they are read, and cleared
// afterwards.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace trainopt::kernels::update {

/// momentum ← μ · momentum + g, parameter ← parameter − lr · momentum (Nesterov: lr · (g + μ · momentum)), where g is
/// the gradient + weight_decay · parameter (torch.optim.SGD).
struct SgdRule {
  float momentum = 0, weight_decay = 0;  ///< momentum 0: no momentum is stored, g is used directly
  bool nesterov = false;
};

/// Adam (Kingma and Ba 2015), or AdamW (Loshchilov and Hutter 2019) if `decoupled`:
/// first ← first + (1 − β₁) (g − first), second ← β₂ · second + (1 − β₂) g², parameter ← parameter − lr ÷ (1 − β₁ᵗ) ·
/// first ÷ (√second ÷ √(1 − β₂ᵗ) + ε) in update t.
struct AdamRule {
  double beta1, beta2;  ///< 0 ≤ β < 1
  float epsilon, weight_decay = 0;
  bool decoupled;
  bool counts_update = true;  ///< false: a call before has counted this update, of other parameters
};

/// Lion (Chen et al. 2023, algorithm 2): parameter ← parameter · (1 − lr · weight_decay) − lr · sign(first + (1 − β₁)
/// (g − first)), then first ← first + (1 − β₂) (g − first).
struct LionRule {
  double beta1, beta2;  ///< 0 ≤ β < 1
  float weight_decay = 0;
};

/// LAMB (You et al. 2020) in two passes. moments(): both moments as Adam's, and the sums of squares of each parameter
/// and of its update u = first ÷ (1 − β₁ᵗ) ÷ (√second ÷ √(1 − β₂ᵗ) + ε) + weight_decay · parameter. update():
/// parameter ← parameter − lr · ratio · u.
struct LambRule {
  double beta1, beta2;  ///< 0 ≤ β < 1
  float epsilon, weight_decay = 0;
  bool bias_correction = true;  ///< false: 1 in place of 1 − βᵗ
  bool counts_update = true;    ///< moments(): as AdamRule's
};

/// Tensors of the parameters that have a gradient, in the same order. All are float32; tensors of one parameter have
/// its sizes and strides, without gaps. No two overlap.
struct Tensors {
  std::vector<at::Tensor> parameters, gradients;
  std::vector<at::Tensor> first, second;  ///< SGD: momentum in `first`, or none; Lion: `first`; Adam, LAMB: both
  /// Receive the updated parameters, rounded to nearest, ties to even: bfloat16 or float16, all of one type. Undefined:
  /// no copy.
  std::vector<at::Tensor> copies = {};
  /// Which row of sums of squares and of Settings::ratios belongs to each parameter; empty if neither is used.
  std::vector<int64_t> rows = {};
};

/// 0-dim float32 tensors on the device of the parameters.
struct Settings {
  at::Tensor learning_rate;
  at::Tensor factor;       ///< multiplies every gradient; undefined: 1
  at::Tensor skip_update;  ///< above 0: only cleared gradients are written; undefined: 0
  bool clears = false;     ///< set gradients to zero, even if the update is skipped
  at::Tensor ratios = {};  ///< contiguous, one for each row: multiplies lr of SGD and LAMB; undefined: 1
};

struct Measured {
  at::Tensor square_sum;  ///< Σ g²: 0-dim float64
  at::Tensor not_finite;  ///< 0-dim float32: 1 if any g is non-finite, else 0
};

/// In every implementation, results do not depend on the number of threads. Throws BrokenInvariant for tensors that are
/// not as described.
class UpdateKernels {
 public:
  virtual ~UpdateKernels() = default;
  // Both update in place and return the number of launches.
  virtual int64_t sgd(const SgdRule& rule, const Tensors& tensors, const Settings& settings) const = 0;
  /// `updates`: 0-dim float64 on the device; incremented unless the update is skipped or was counted before.
  virtual int64_t adam(const AdamRule& rule, const at::Tensor& updates, const Tensors& tensors,
                       const Settings& settings) const = 0;
  virtual int64_t lion(const LionRule& rule, const Tensors& tensors, const Settings& settings) const = 0;
  // Both write to the parameters' rows of `squares`, [rows, 2] float64, contiguous: the sum of squares of the parameter
  // and, here, of its gradient · factor. They leave gradients as they are. Return the number of launches.
  virtual int64_t norms(const Tensors& tensors, const Settings& settings, const at::Tensor& squares) const = 0;
  /// See LambRule. `updates` as in adam().
  virtual int64_t lamb_moments(const LambRule& rule, const at::Tensor& updates, const Tensors& tensors,
                               const Settings& settings, const at::Tensor& squares) const = 0;
  /// After lamb_moments() of the same tensors.
  virtual int64_t lamb(const LambRule& rule, const at::Tensor& updates, const Tensors& tensors,
                       const Settings& settings) const = 0;
  /// For values up to 10¹⁸; larger ones may make the sum infinite. Results are on the device of `like`.
  virtual Measured measure(const std::vector<at::Tensor>& gradients, const at::Tensor& like) const = 0;
};

/// Plain libtorch operations: the reference for the other implementations.
const UpdateKernels& reference_kernels();
const UpdateKernels& cpu_kernels();
/// For GPUs, on the device's current stream; nullptr without libtrainopt_cuda.so. Touches no GPU before it is used.
const UpdateKernels* cuda_kernels();

}  // namespace trainopt::kernels::update
