// What every fused optimizer does in a step: groups of parameters with the same learning rate and weight decay are
// updated by the kernels, which also unscale, clip and clear gradients.
#pragma once

#include "kernels/update/update.h"
#include "model/model.h"
#include "train/optimizer/gradients.h"
#include "train/optimizer/optimizer.h"
#include "train/parameter_store.h"
#include "train/plan.h"

#include <algorithm>
#include <optional>

namespace trainopt::fused_optimizer {

// Gradients whose scaling is deferred to the update. If norm or finiteness are requested, one pass measures all
// gradients. Scale factors are only noted; the update applies them as it reads the gradients.

using kernels::update::Measured;
using kernels::update::UpdateKernels;

/// The Gradients that the fused update reads.
class DeferredGradients : public Gradients {
 public:
  /// `kernels` must outlive it; `like`: a tensor on the gradients' device.
  DeferredGradients(const UpdateKernels& kernels, at::Tensor like) : kernels_(kernels), like_(std::move(like)) {}

  at::Tensor value(const at::Tensor& gradient) const override;
  Pending pending() const override { return pending_; }
  void check_finite(at::Tensor& not_finite) override;
  void unscale(const at::Tensor& factor, at::Tensor& not_finite) override;
  void scale(const at::Tensor& factor) override;
  /// Clamps in a pass of its own, with the factors so far.
  void clamp(double bound) override;

 private:
  /// [1]
  at::Tensor norms() override;
  void reset() override;
  const Measured& measured(const std::vector<at::Tensor>& gradients);
  void multiply(const at::Tensor& factor);

  const UpdateKernels& kernels_;
  at::Tensor like_;
  std::optional<Measured> measured_;  ///< measured on this step's gradients as stored, before pending factors
  Pending pending_;
};

// 16-bit copies of the weights, for layers that autocast would otherwise give a cast in every forward pass.

/// 16-bit copies of parameters, which the model's layers use during this object's lifetime.
class WeightCopies {
 public:
  explicit WeightCopies(const BuildContext& context) : parameters_(context.parameters->parameters()) {
    const at::ScalarType type = context.plan.tensor_format.compute_type;
    if (type == at::kFloat || context.model == nullptr || !context.parameters->is_local()) return;
    layer_copies_ = context.model->weight_copies();
    for (size_t i = 0; i < layer_copies_.size(); ++i) {
      copies_.push_back(layer_copies_[i] ? at::empty_like(parameters_[i].second.detach(), type) : at::Tensor());
      if (layer_copies_[i]) *layer_copies_[i] = copies_[i];
    }
    refresh();
  }
  ~WeightCopies() {
    for (size_t i = 0; i < layer_copies_.size(); ++i)
      if (layer_copies_[i] && layer_copies_[i]->is_same(copies_[i])) layer_copies_[i]->reset();
  }
  WeightCopies(const WeightCopies&) = delete;
  WeightCopies& operator=(const WeightCopies&) = delete;

  /// Call after something else has written to the parameters.
  void refresh() {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < copies_.size(); ++i)
      if (copies_[i].defined()) copies_[i].copy_(parameters_[i].second);
  }
  /// One per parameter, undefined for those without a copy; empty if there are no copies.
  const std::vector<at::Tensor>& tensors() const { return copies_; }
  int64_t count() const {
    return std::count_if(copies_.begin(), copies_.end(), [](const at::Tensor& copy) { return copy.defined(); });
  }
  int64_t bytes() const {
    int64_t bytes = 0;
    for (const auto& copy : copies_)
      if (copy.defined()) bytes += static_cast<int64_t>(copy.nbytes());
    return bytes;
  }

 private:
  const NamedTensors& parameters_;
  std::vector<WeightCopy> layer_copies_;
  std::vector<at::Tensor> copies_;
};

using kernels::update::Settings;
using kernels::update::Tensors;
using kernels::update::UpdateKernels;

/// The parameters of a group that have a gradient in this step.
struct Batch {
  Tensors tensors;              ///< without state
  std::vector<size_t> indices;  ///< positions in the store's list
  Settings settings;
  float weight_decay;
  bool is_first;  ///< the step's first batch
};

class FusedOptimizer : public Optimizer {
 public:
  /// `kernels` and the context's parameter store must outlive it.
  FusedOptimizer(const UpdateKernels& kernels, const BuildContext& context);

  std::unique_ptr<Gradients> make_gradients() const final;
  void load(const ArchiveReader& archive) final;
  void parameters_changed() final { copies_.refresh(); }
  int64_t state_bytes() const final { return bytes_of_state() + copies_.bytes(); }
  void set_learning_rate(double learning_rate) final;
  void update(Gradients& gradients, const at::Tensor& skip_update) final;

 protected:
  /// The tensors of the batch from `all`, which has one per parameter.
  static std::vector<at::Tensor> chosen(const std::vector<at::Tensor>& all, const Batch& batch);
  /// [parameters] float32 on the device: each one's learning rate.
  at::Tensor learning_rates() const { return rates_ * learning_rate_; }
  const std::vector<ParameterSettings>& settings() const { return settings_; }

  const UpdateKernels& kernels_;
  const ParameterStore& store_;

 private:
  /// Parameters with the same learning rate and weight decay.
  struct Group {
    at::Tensor learning_rate;  ///< 0-dim float32 on the device, where recorded steps read it
    float weight_decay;
    std::vector<size_t> members;
  };

  std::vector<Batch> batches(const Gradients& gradients, const Settings& settings) const;
  // Both return the number of launches.
  /// What must be done with all batches before the first is updated.
  virtual int64_t prepare(std::vector<Batch>&) { return 0; }
  /// Adds the rule's state to the batch's tensors and updates them.
  virtual int64_t launch(Batch& batch) = 0;
  virtual void load_state(const ArchiveReader& archive) = 0;
  virtual int64_t bytes_of_state() const = 0;

  WeightCopies copies_;
  std::vector<ParameterSettings> settings_;  ///< one for each parameter
  std::vector<Group> groups_;
  std::optional<double> host_rate_;  ///< what was last written to the device
  at::Tensor learning_rate_;         ///< 0-dim float32 on the device
  at::Tensor group_rates_;           ///< [groups] by which the rate is multiplied
  at::Tensor learning_rates_;        ///< [groups], to which Group::learning_rate points
  at::Tensor rates_;                 ///< [parameters] by which the rate is multiplied
};

// The fused optimizers, one for each update rule that has kernels.

/// SGD's state, also of LARS: none if the momentum is 0.
struct Momentum {
  Momentum(double momentum, const ParameterStore& store) : velocity(momentum_of(momentum, store)) {}
  void save(ArchiveWriter& archive) const;
  void load(const ArchiveReader& archive);
  int64_t bytes() const { return velocity ? velocity->bytes() : 0; }

  std::optional<ParameterState> velocity;
};

/// Adam's state, also of LAMB.
struct Moments {
  explicit Moments(const ParameterStore& store);
  void save(ArchiveWriter& archive) const;
  void load(const ArchiveReader& archive);
  int64_t bytes() const { return first.bytes() + second.bytes(); }

  ParameterState first, second;
  at::Tensor updates;  ///< 0-dim float64 on the device
};

bool has_fused_rule(const OptimizerConfig& config);
/// Only for configs with has_fused_rule().
std::unique_ptr<Optimizer> make_fused_rule(const UpdateKernels& kernels, const BuildContext& context);

}  // namespace trainopt::fused_optimizer
