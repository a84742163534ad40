// The fused optimizers, one for each update rule that has kernels.
#pragma once

#include "optimizations/fused_optimizer/fused_update.h"

namespace trainopt::fused_optimizer {

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
/// For configs with has_fused_rule().
std::unique_ptr<Optimizer> make_fused_rule(const UpdateKernels& kernels, const BuildContext& context);

/// LARS and LAMB, whose updates need the norms of whole parameters first.
std::unique_ptr<Optimizer> make_fused_lars(const UpdateKernels& kernels, const LarsConfig& config,
                                           const BuildContext& context);
std::unique_ptr<Optimizer> make_fused_lamb(const UpdateKernels& kernels, const LambConfig& config,
                                           const BuildContext& context);

}  // namespace trainopt::fused_optimizer
