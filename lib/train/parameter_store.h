// What this rank updates: the parameters and where their gradients are, summed over the ranks. LocalParameters is the
// plain store: everything is here, nothing is sent.
#pragma once

#include "model/tensor_file.h"
#include "train/archive.h"
#include "train/gradients.h"

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
  /// After the last micro-batch: the gradients of the whole step, summed over the ranks. Valid until the next call.
  Gradients& finish_gradients();
  /// The form of what finish_gradients() returns (Optimizer::make_gradients()); the plain one unless this is called.
  void set_form(std::unique_ptr<Gradients> gradients) { finished_ = std::move(gradients); }
  /// As backward has left them so far: one for each parameter; undefined where it reached none.
  virtual std::vector<at::Tensor> gradients() const = 0;
  /// Zeroes or drops them, also in the middle of a step.
  virtual void clear_gradients() = 0;
  /// parameters() have new values: those that others have too must reach them.
  virtual void updated() {}

  /// Whether parameters() are the model's, in its order, and nobody writes to them but the optimizer and load().
  virtual bool is_local() const { return false; }

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

 protected:
  /// Completes gradients(), where ranks exchange them, and says where they are.
  virtual GradientMemory complete_gradients() = 0;

 private:
  std::unique_ptr<Gradients> finished_ = std::make_unique<Gradients>();
};

class LocalParameters : public ParameterStore {
 public:
  LocalParameters(const Model& model, ClearGradients clear);

  const NamedTensors& parameters() const override { return parameters_; }
  Scope accumulate(bool) override { return Scope(); }
  std::vector<at::Tensor> gradients() const override;
  void clear_gradients() override;
  bool is_local() const override { return true; }

 protected:
  GradientMemory complete_gradients() override;

 private:
  NamedTensors parameters_;
  ClearGradients clear_;
};

}  // namespace trainopt
