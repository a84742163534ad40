// What every fused optimizer does in a step: groups of parameters with the same learning rate and weight decay are
// updated by the kernels, which also unscale, clip and clear gradients.
#pragma once

#include "kernels/update/update.h"
#include "optimizations/fused_optimizer/weight_copies.h"
#include "train/optimizer/optimizer.h"

namespace trainopt::fused_optimizer {

using kernels::update::Settings;
using kernels::update::Tensors;
using kernels::update::UpdateKernels;

/// The parameters of a group that have a gradient in this step.
struct Batch {
  Tensors tensors;              ///< without state
  std::vector<size_t> indices;  ///< in the store's list
  Settings settings;
  float weight_decay;
  bool is_first;  ///< of this step
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
  std::vector<ParameterSettings> settings_;  ///< by parameter
  std::vector<Group> groups_;
  std::optional<double> host_rate_;  ///< what was last written to the device
  at::Tensor learning_rate_;         ///< 0-dim float32 on the device
  at::Tensor group_rates_;           ///< [groups] by which the rate is multiplied
  at::Tensor learning_rates_;        ///< [groups], to which Group::learning_rate points
  at::Tensor rates_;                 ///< [parameters] by which the rate is multiplied
};

}  // namespace trainopt::fused_optimizer
