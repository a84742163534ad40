// The update rules of torch.optim and timm, applied to one parameter at a time. Each computes the direction d of an
// update, parameter ← parameter − lr · d, from the gradient and from tensors that it keeps per parameter.
#pragma once

#include "device/tensor.h"
#include "train/checkpoint/archive.h"
#include "train/optimizer/parameter_settings.h"

#include <memory>
#include <string>
#include <vector>

namespace trainopt {

/// One parameter in an update; its tensors are at least float32 and of its shape.
struct RuleInput {
  at::Tensor values, gradient;
  double weight_decay;
  std::vector<at::Tensor> state;  ///< one for each of UpdateRule::state()
  at::Tensor skip_update;         ///< 0-dim; 1: the state must not change; undefined: 0
  double learning_rate;
  /// 0-dim 2-norms of the whole parameter and of what measured() returned, for a rule that measures(). Undefined until
  /// all parameters are measured.
  at::Tensor parameter_norm = {}, measured_norm = {};
};

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  /// Names of the tensors kept per parameter.
  virtual std::vector<std::string> state() const = 0;
  /// Whether such a parameter has this one of state(). The others are undefined in its RuleInput.
  virtual bool keeps(const std::string& /*state*/, const ParameterSettings&) const { return true; }
  /// What those start from.
  virtual double first_value() const { return 0; }
  /// Whether weight decay is applied to the weight itself: parameter ← (1 − lr · decay) · parameter before the update.
  virtual bool decays_weights() const { return false; }
  /// Whether it takes the norm of each parameter and of its update, as LARS and LAMB do. Then each update first calls
  /// measured() for every parameter, and after that direction().
  virtual bool measures() const { return false; }

  /// Counts an update. Call before each. `skip_update` as in RuleInput.
  virtual void count(const at::Tensor& /*skip_update*/) {}
  /// Changes the state if direction() does not.
  virtual at::Tensor measured(const RuleInput&) const { return {}; }
  virtual at::Tensor direction(const RuleInput&) const = 0;

  // Parameters with ParameterSettings::orthogonal use these in place of measured() and direction():
  /// Changes the state. This rank's part of a tensor of the parameter's shape.
  virtual at::Tensor part_of_whole(const RuleInput&) const { return {}; }
  /// The direction of the parameter, which is at least 2-D, from that whole tensor.
  virtual at::Tensor whole_direction(const at::Tensor& whole) const { return whole; }

  /// SGD's momentum or Adam's beta1, for the next updates.
  virtual void set_momentum(double momentum) = 0;
  /// 0-dim tensors that all parameters share.
  virtual void save(ArchiveWriter&) const {}
  virtual void load(const ArchiveReader&) {}
};

/// `like`: a parameter, whose device the shared tensors are on.
std::unique_ptr<UpdateRule> make_update_rule(const OptimizerConfig& config, const at::Tensor& like);

/// Applies `change` to `target` in place, and reverts it if `skip_update` (a 0-dim float, may be undefined) is 1.
template <class Change>
void commit(at::Tensor target, const at::Tensor& skip_update, Change change) {
  const at::Tensor before = skip_update.defined() ? target.clone() : at::Tensor();
  change(target);
  if (before.defined()) at::where_out(target, skip_update > 0, before, target);
}

// Muon (Jordan et al. 2024): the momentum of a matrix, made nearly orthogonal, is its update. As torch.optim.Muon.

/// Nearly the nearest matrix with orthogonal rows or columns, by `config.ns_steps` Newton-Schulz iterations in
/// `config.ns_dtype`, which is the result's type. `matrix`: of any floating type, 2-D.
at::Tensor orthogonalized(const at::Tensor& matrix, const MuonConfig& config);

}  // namespace trainopt
