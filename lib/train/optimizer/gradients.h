// The gradients of one step, from the end of backward to the update. They are unscaled, checked for non-finite values,
// measured, clipped, read by the optimizer and cleared. The plain form does each of these immediately in a separate
// pass. An optimizer may supply a form that defers scaling to the update's own pass (Optimizer::make_gradients()).
#pragma once

#include "model/weights_file.h"

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace trainopt {

class Communicator;
class ParameterStore;

/// Where a parameter store keeps the gradients of a step.
struct GradientMemory {
  std::vector<at::Tensor> tensors;       ///< one per parameter; undefined if backward did not reach it
  std::vector<at::Tensor> shards = {};   ///< with sharding: this rank's part of the memory; otherwise empty
  Communicator* communicator = nullptr;  ///< between the ranks that update together; null: this rank alone
  Communicator* stages = nullptr;        ///< between the ranks that hold the rest of the model; null: this rank has all
  std::vector<size_t> counted_elsewhere = {};  ///< tensors that another stage has, too, and counts (tied weights)
  bool clears_with_zeros = false;  ///< gradients are cleared by zeroing, which the update may do in its own pass
};

/// Factors and flags are 0-dim floats on the gradients' device. The host makes no decisions from them, so that a step
/// can be recorded and replayed.
class Gradients {
 public:
  /// What the update multiplies every gradient by as it reads it.
  struct Pending {
    at::Tensor factor;                     ///< undefined: 1
    bool scaled = false, clipped = false;  ///< what the factor includes
  };

  Gradients() = default;
  virtual ~Gradients() = default;
  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;

  /// Called by `store`, which must outlive this object, once backward is complete. Discards state of an earlier or
  /// interrupted step.
  void begin(ParameterStore& store, GradientMemory memory);

  /// One for each of parameters(), undefined if backward did not reach it. These are the values in memory; value()
  /// applies pending scaling.
  const std::vector<at::Tensor>& tensors() const { return memory_.tensors; }
  const NamedTensors& parameters() const;
  /// The value of one of tensors() after all operations so far, including pending scaling.
  virtual at::Tensor value(const at::Tensor& gradient) const { return gradient; }
  virtual Pending pending() const { return {}; }

  /// Sets `not_finite` to 1 if a gradient of this rank is non-finite; otherwise leaves it unchanged.
  virtual void check_finite(at::Tensor& not_finite);
  /// Multiplies by `factor` and checks as check_finite() does.
  virtual void unscale(const at::Tensor& factor, at::Tensor& not_finite);
  /// Multiplies by `factor` without a check.
  virtual void scale(const at::Tensor& factor);
  /// Clamps every value to ±`bound`.
  virtual void clamp(double bound);
  /// The global 2-norm over all ranks and stages: 0-dim float32.
  at::Tensor norm();
  /// Sets `flag` to 1 if it is 1 on any rank, so that all ranks decide alike.
  void agree(at::Tensor& flag) const;

  /// Whether the update may zero the gradients in place of clear(); it must then call mark_cleared().
  bool clears_with_zeros() const { return memory_.clears_with_zeros; }
  void mark_cleared() { cleared_ = true; }
  /// Clears the gradients and drops all references to them at the end of a step.
  void clear();

 protected:
  /// The defined gradients only.
  const std::vector<at::Tensor>& defined() const { return defined_; }
  /// All memory behind the gradients, in as few tensors as the store has.
  const std::vector<at::Tensor>& memory() const { return memory_.shards.empty() ? defined_ : memory_.shards; }

 private:
  /// [n]: 2-norms of disjoint groups that together cover this rank's gradients. Plain form: one per tensor of memory().
  virtual at::Tensor norms();
  /// Discards state of a step.
  virtual void reset() {}

  ParameterStore* store_ = nullptr;
  GradientMemory memory_;
  std::vector<at::Tensor> defined_;
  bool cleared_ = false;
};

/// Scales the gradients so that their global 2-norm is at most `max_norm`, and returns the norm before scaling (0-dim
/// float32 on the device). The factor is min(1, max_norm ÷ (norm + 1e-6)), as in torch.nn.utils.clip_grad_norm_. If
/// `max_norm` is null, returns an undefined tensor. Before that, clamps every value to ±`max_value`, unless that is
/// null, as torch.nn.utils.clip_grad_value_ does.
at::Tensor clip(Gradients& gradients, std::optional<double> max_norm, std::optional<double> max_value = {});

}  // namespace trainopt
