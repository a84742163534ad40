// The update rules of torch.optim. LoopOptimizer is the plain part and the reference for faster ones: for each
// parameter in turn, the operations of the published formula.
#pragma once

#include "train/archive.h"
#include "train/config.h"

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

class Gradients;
class ParameterStore;

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// Where the schedule writes; used by the next step().
  virtual void set_learning_rate(double learning_rate) = 0;
  /// The form of the gradients that step() reads best. Plain: everything that is done to them is done at once.
  virtual std::unique_ptr<Gradients> make_gradients() const;
  /// Updates every parameter that has a gradient. Where `skip_update` (a float on the device, may be undefined) is 1
  /// nothing is written: neither parameters nor state. The host is never asked.
  void step(Gradients& gradients, const at::Tensor& skip_update);
  virtual void save(ArchiveWriter& archive) const = 0;
  virtual void load(const ArchiveReader& archive) = 0;
  virtual int64_t state_bytes() const = 0;  ///< held by this rank, one for each parameter

 private:
  virtual void update(Gradients& gradients, const at::Tensor& skip_update) = 0;
};

/// One tensor for each parameter, of its shape and layout, zero at first: momentum and the like.
class ParameterState {
 public:
  ParameterState(std::string name, const ParameterStore& store);
  void save(ArchiveWriter& archive) const;
  void load(const ArchiveReader& archive);

  at::Tensor& operator[](size_t parameter) { return tensors_[parameter]; }
  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  int64_t bytes() const;

 private:
  std::string prefix() const { return "optimizer." + name_ + "."; }  ///< of "optimizer.momentum.conv1.weight"

  std::string name_;
  const ParameterStore& store_;
  std::vector<at::Tensor> tensors_;
};

/// The state of SGD's momentum; without momentum there is none, and no memory goes to it.
std::optional<ParameterState> momentum_of(const SgdConfig& config, const ParameterStore& store);

/// Names the range around every update, in profilers' traces and in StepTrace.
inline constexpr const char* kOptimizerLabel = "optimizer";

/// "SGD, momentum 0.9" and the like, for the printed plan.
std::string describe_optimizer(const OptimizerConfig& config);

/// Learning rate of the recipe, before any schedule.
double base_learning_rate(const OptimizerConfig& config);

/// `parameters` are those of the store, in its order; state is allocated now, zeroed, as float32 of the parameters'
/// shape and layout.
std::unique_ptr<Optimizer> make_loop_optimizer(const OptimizerConfig& config, const ParameterStore& parameters);

}  // namespace trainopt
