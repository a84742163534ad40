// What this rank updates: parameters, their gradients, and how gradients are summed, measured, clipped and cleared.
// LocalParameters is the plain store: everything is here, nothing is sent.
#pragma once

#include "model/tensor_file.h"
#include "train/archive.h"
#include "train/gradient_passes.h"

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace trainopt {

class Model;

/// Runs its function when it goes out of scope.
class Scope {
 public:
  Scope() = default;
  explicit Scope(std::function<void()> at_end) : at_end_(std::move(at_end)) {}
  ~Scope() {
    if (at_end_) at_end_();
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  std::function<void()> at_end_;
};

enum class ClearGradients { zero, drop };

class ParameterStore {
 public:
  virtual ~ParameterStore() = default;

  /// In the model's order; float32 leaves that require gradients.
  virtual const NamedTensors& parameters() const = 0;

  /// Open around the forward and backward of one micro-batch; only the last one of a step communicates.
  virtual Scope accumulate(bool is_last) = 0;
  /// After the last micro-batch: from here on gradients() are those of the whole step.
  virtual void finish_gradients() = 0;
  /// One for each parameter; undefined where backward reached none.
  virtual std::vector<at::Tensor> gradients() const = 0;
  /// Those of them that there are.
  std::vector<at::Tensor> present_gradients() const;
  /// How they are gone through until they are cleared: the plain form, unless set_passes() was given another that is
  /// still there.
  virtual std::shared_ptr<GradientPasses> passes() const;
  virtual void set_passes(std::weak_ptr<GradientPasses> passes) { passes_ = std::move(passes); }
  /// Scales the gradients so that their global 2-norm is at most `max_norm`, and returns that norm as it was (0-dim, on
  /// the device; the host is never asked). As torch.nn.utils.clip_grad_norm_: factor min(1, max_norm / (norm + 1e-6)).
  /// Null: does nothing, returns an undefined tensor.
  virtual at::Tensor clip(std::optional<double> max_norm) = 0;
  virtual void clear_gradients() = 0;
  /// Whether clear_gradients() writes zeros to memory.
  virtual bool clears_with_zeros() const { return false; }
  /// parameters() have new values: those that others have too must reach them.
  virtual void updated() {}

  /// Whether parameters() are the model's, in its order, and nobody writes to them but the optimizer and load().
  virtual bool is_local() const { return false; }

  /// `flag`, a float on the device, becomes 1 if it is on any rank: where ranks must decide alike.
  virtual void agree(at::Tensor&) {}

  // Of each parameter's own tensors (the parameters themselves, momentum), one for each of parameters(), under `prefix`
  // and its name. Archives hold them whole, whatever a rank has of them.
  virtual void save(ArchiveWriter& archive, const std::string& prefix, const std::vector<at::Tensor>& tensors) const;
  virtual void load(const ArchiveReader& archive, const std::string& prefix, std::vector<at::Tensor>& tensors) const;
  /// The model's parameters and buffers, whole, on rank 0 (nothing elsewhere); every rank must call it.
  virtual NamedTensors whole(const Model& model) const;
  /// What a store keeps between steps besides the parameters.
  virtual void save_pending(ArchiveWriter&) const {}
  virtual void load_pending(const ArchiveReader&) {}
  /// Bytes this rank holds between steps: of parameters, and of gradients.
  virtual int64_t parameter_bytes() const;
  virtual int64_t gradient_bytes() const;

 private:
  std::weak_ptr<GradientPasses> passes_;
};

class LocalParameters : public ParameterStore {
 public:
  LocalParameters(const Model& model, ClearGradients clear);

  const NamedTensors& parameters() const override { return parameters_; }
  Scope accumulate(bool) override { return Scope(); }
  void finish_gradients() override {}
  std::vector<at::Tensor> gradients() const override;
  at::Tensor clip(std::optional<double> max_norm) override;
  void clear_gradients() override;
  bool clears_with_zeros() const override { return clear_ == ClearGradients::zero; }
  bool is_local() const override { return true; }

 private:
  NamedTensors parameters_;
  ClearGradients clear_;
};

}  // namespace trainopt
