// The update rules of torch.optim. LoopOptimizer is the plain part and the reference for faster ones: for each parameter in turn,
// the operations of the published formula.
#pragma once

#include "train/archive.h"
#include "train/config.h"

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

namespace trainopt {

class ParameterStore;

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// Where the schedule writes; used by the next step().
  virtual void set_learning_rate(double learning_rate) = 0;
  /// Updates every parameter that has a gradient. Where `overflow` (a float on the device, may be undefined) is 1 nothing is written:
  /// neither parameters nor state. The host is never asked.
  void step(ParameterStore& parameters, const at::Tensor& overflow);
  virtual void save(ArchiveWriter& archive) const = 0;
  virtual void load(const ArchiveReader& archive) = 0;

 private:
  virtual void update(ParameterStore& parameters, const at::Tensor& overflow) = 0;
};

/// Names the range around every update in traces, and tells StepObserver which operations are the optimizer's.
inline constexpr const char* kOptimizerLabel = "optimizer";

/// "SGD, momentum 0.9" and the like, for the printed plan.
std::string describe_optimizer(const OptimizerConfig& config);

/// Learning rate of the recipe, before any schedule.
double base_learning_rate(const OptimizerConfig& config);

/// `parameters` are those of the store, in its order; state is allocated now, zeroed, as float32 of the parameters' shape and layout.
std::unique_ptr<Optimizer> make_loop_optimizer(const OptimizerConfig& config, const ParameterStore& parameters);

}  // namespace trainopt
