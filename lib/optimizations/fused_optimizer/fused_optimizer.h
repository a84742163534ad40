// SGD, Adam, AdamW, Lion, LARS and LAMB for all parameters in one pass over memory, or two, which also unscales, clips
// and zeroes gradients.
#pragma once

#include "optimizations/info.h"

#include "train/optimizer/optimizer.h"

namespace trainopt {
namespace kernels::update {
class UpdateKernels;
}
struct BuildContext;
struct Plan;
struct Outcome;
struct OptionChecks;
}  // namespace trainopt

namespace trainopt::fused_optimizer {

inline constexpr Info kInfo{"fused_optimizer", Exactness::same_math, 1e-4};

void check(OptionChecks& checks);
Outcome apply(Plan& plan);

/// Reads and writes the same archives as make_loop_optimizer(). If forward runs under autocast and the parameters
/// belong to this rank alone, it keeps 16-bit copies of the weights that autocast would cast, for the model's layers.
/// `kernels` and the context's parameter store must outlive it.
std::unique_ptr<Optimizer> make_fused_optimizer(const kernels::update::UpdateKernels& kernels,
                                                const BuildContext& context);

}  // namespace trainopt::fused_optimizer
