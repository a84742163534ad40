// What updates the weights. make_loop_optimizer() gives the plain part, which is the reference for faster ones: it
// applies a rule of update_rules.h to one parameter after another.
#pragma once

#include "train/checkpoint/archive.h"
#include "train/config.h"
#include "train/optimizer/parameter_settings.h"
#include "train/parameter_store.h"

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

// How an optimizer stores the new values of parameters whose type has fewer bits than it computes with. NearestRounding
// is the plain part.

/// Posted with the new values for each parameter that is stored so, in profiler traces and in StepTrace.
inline constexpr const char* kWeightRoundingLabel = "trainopt::weight_rounding";

class WeightRounding {
 public:
  virtual ~WeightRounding() = default;
  /// Writes `values` (float32) to the parameter of this name, which has the same sizes. Values that the parameter's
  /// type can represent are not changed.
  virtual void store(const std::string& name, const at::Tensor& values, const at::Tensor& parameter) const = 0;
};

/// Rounds to nearest, ties to even.
class NearestRounding : public WeightRounding {
 public:
  void store(const std::string&, const at::Tensor& values, const at::Tensor& parameter) const override {
    parameter.copy_(values);
  }
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// Set by the schedule; used by the next step().
  virtual void set_learning_rate(double learning_rate) = 0;
  /// SGD's momentum or Adam's beta1, set by schedules that cycle it; used by the next step().
  virtual void set_momentum(double momentum) = 0;
  /// The form of gradients that suits step() best. The plain form applies every operation immediately.
  virtual std::unique_ptr<Gradients> make_gradients() const;
  /// Updates every parameter that has a gradient. If `skip_update` (a float on the device, may be undefined) is 1,
  /// neither parameters nor state change. Does not synchronise with the host.
  void step(Gradients& gradients, const at::Tensor& skip_update);
  /// Call after something else has written to the parameters.
  virtual void parameters_changed() {}
  virtual void save(ArchiveWriter& archive) const = 0;
  virtual void load(const ArchiveReader& archive) = 0;
  virtual int64_t state_bytes() const = 0;  ///< bytes of optimizer state on this rank

 private:
  virtual void update(Gradients& gradients, const at::Tensor& skip_update) = 0;
};

/// One float32 tensor per parameter with its shape and layout, initially zero: momentum and the like. Parameters that
/// `wanted` refuses have none.
class ParameterState {
 public:
  ParameterState(std::string name, const ParameterStore& store, NameFilter wanted = every_name);
  void save(ArchiveWriter& archive) const;
  void load(const ArchiveReader& archive);

  at::Tensor& operator[](size_t parameter) { return tensors_[parameter]; }
  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  int64_t bytes() const;

 private:
  std::string prefix() const { return "optimizer." + name_ + "."; }  ///< as in "optimizer.momentum.conv1.weight"

  std::string name_;
  const ParameterStore& store_;
  NameFilter wanted_;
  std::vector<at::Tensor> tensors_;
};

/// The state of SGD's or LARS's momentum; of momentum 0 nullopt, so that no memory is used.
std::optional<ParameterState> momentum_of(double momentum, const ParameterStore& store);

/// Label of the range around every update, in profiler traces and in StepTrace.
inline constexpr const char* kOptimizerLabel = "optimizer";

/// "SGD, momentum 0.9" and the like, for the printed plan.
std::string describe_optimizer(const OptimizerConfig& config);

/// What Optimizer::set_momentum() changes: "optimizer.momentum" or "optimizer.betas"; null: this one has no momentum.
std::optional<std::string> momentum_key(const OptimizerConfig& config);

/// Learning rate of the recipe, before any schedule.
double base_learning_rate(const OptimizerConfig& config);

/// What optimizer.lr_scaling multiplies the rate by in steps of so many samples. Source: Goyal et al., "Accurate, Large
/// Minibatch SGD" (2017), for linear; Krizhevsky, "One weird trick" (2014), for sqrt.
double learning_rate_factor(const OptimizerConfig& config, int64_t step_samples);

/// The settings of each of the store's parameters. A name that `settings` lacks has the recipe's learning rate and
/// weight decay.
std::vector<ParameterSettings> settings_by_parameter(const OptimizerConfig& config, const ParameterStore& parameters,
                                                     const std::map<std::string, ParameterSettings>& settings);

/// An optimizer for the store's parameters, in its order. Allocates the state: float32 zeros of the parameters' shapes
/// and layouts. `settings`: by name, as settings_by_parameter() takes them. Parameters of a 16-bit type are updated in
/// float32 from their 16 bits and their gradient's, and `rounding` stores the result.
std::unique_ptr<Optimizer> make_loop_optimizer(
    const OptimizerConfig& config, const ParameterStore& parameters,
    const std::map<std::string, ParameterSettings>& settings = {},
    std::unique_ptr<WeightRounding> rounding = std::make_unique<NearestRounding>());

}  // namespace trainopt
