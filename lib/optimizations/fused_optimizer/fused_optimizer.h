// One pass over memory updates all parameters: SGD, Adam and AdamW, with what else is to be done to gradients.
#pragma once

#include "optimizations/info.h"

#include "train/optimizer.h"

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

/// Archives are those of make_loop_optimizer(). Where forward is autocast and the parameters are this rank's alone, it
/// keeps 16-bit copies of what autocast would cast, for the model's layers. `kernels` and the context's store must
/// outlive it.
std::unique_ptr<Optimizer> make_fused_optimizer(const kernels::update::UpdateKernels& kernels,
                                                const BuildContext& context);

}  // namespace trainopt::fused_optimizer
