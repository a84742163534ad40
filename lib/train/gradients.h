// The gradients of one step, from the end of backward to the update. They are unscaled, checked for values that are not
// finite, measured, clipped, read by the optimizer and cleared. The plain form does each of these at once, in a pass of
// its own; an optimizer may bring a form that leaves scaling to the update's own pass (Optimizer::make_gradients()).
#pragma once

#include "model/tensor_file.h"

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace trainopt {

class Communicator;
class ParameterStore;

/// Where a parameter store has the gradients of a step.
struct GradientMemory {
  std::vector<at::Tensor> tensors;       ///< one for each parameter; undefined where backward reached none
  std::vector<at::Tensor> shares = {};   ///< each rank has a share: the memory behind `tensors`; empty: all have all
  Communicator* communicator = nullptr;  ///< of the ranks that update together; null: this rank alone
  bool clears_with_zeros = false;        ///< clearing writes zeros, which the update may do in its own pass
};

/// Factors and flags are 0-dim floats on the gradients' device. Nothing is decided on the host, so that a step can be
/// recorded and replayed.
class Gradients {
 public:
  /// What the update multiplies every gradient by as it reads it.
  struct Pending {
    at::Tensor factor;                     ///< undefined: 1
    bool scaled = false, clipped = false;  ///< what the factor is made of
  };

  Gradients() = default;
  virtual ~Gradients() = default;
  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;

  /// Called by the store, which must outlive this, once backward is complete. What was kept of another step, or of one
  /// that broke off, is forgotten.
  void begin(ParameterStore& store, GradientMemory memory);

  /// One for each of parameters(), undefined where backward reached none. Values as they are in memory: value() tells
  /// what they stand for.
  const std::vector<at::Tensor>& tensors() const { return memory_.tensors; }
  const NamedTensors& parameters() const;
  /// The value of one of tensors() after everything that was done so far, scaling that is still pending included.
  virtual at::Tensor value(const at::Tensor& gradient) const { return gradient; }
  virtual Pending pending() const { return {}; }

  /// `not_finite` becomes 1 if a gradient of this rank is not finite; otherwise it stays.
  virtual void check_finite(at::Tensor& not_finite);
  /// Multiplies by `factor`, and checks as check_finite() does.
  virtual void unscale(const at::Tensor& factor, at::Tensor& not_finite);
  /// Multiplies by `factor`, without a check.
  virtual void scale(const at::Tensor& factor);
  /// The global 2-norm, over all ranks: 0-dim float32.
  at::Tensor norm();
  /// `flag` becomes 1 if it is on any rank: where ranks must decide alike.
  void agree(at::Tensor& flag) const;

  /// Whether the update may write the zeros of clear(); it then says so with mark_cleared().
  bool clears_with_zeros() const { return memory_.clears_with_zeros; }
  void mark_cleared() { cleared_ = true; }
  /// Ends the step: nothing of its gradients is held any longer.
  void clear();

 protected:
  /// The defined gradients only.
  const std::vector<at::Tensor>& defined() const { return defined_; }
  /// All memory behind them, in as few tensors as the store has.
  const std::vector<at::Tensor>& memory() const { return memory_.shares.empty() ? defined_ : memory_.shares; }

 private:
  /// [n]: 2-norms of groups of this rank's gradients (the plain form: of each of memory()), together of all.
  virtual at::Tensor norms();
  /// Forgets what was kept of a step.
  virtual void reset() {}

  ParameterStore* store_ = nullptr;
  GradientMemory memory_;
  std::vector<at::Tensor> defined_;
  bool cleared_ = false;
};

/// Scales the gradients so that their global 2-norm is at most `max_norm`, and returns the norm as it was (0-dim
/// float32 on the device). As torch.nn.utils.clip_grad_norm_: factor min(1, max_norm ÷ (norm + 1e-6)). Null: does
/// nothing and returns an undefined tensor.
at::Tensor clip(Gradients& gradients, std::optional<double> max_norm);

}  // namespace trainopt
