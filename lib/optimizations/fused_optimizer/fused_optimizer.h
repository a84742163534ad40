// SGD, Adam, AdamW, Lion, LARS and LAMB for all parameters in one pass over memory, or two, which also unscales, clips
// and zeroes gradients.
#pragma once

#include "optimizations/info.h"
#include "train/optimizer/optimizer.h"
#include "train/receipt.h"

namespace trainopt {
namespace kernels::update {
class UpdateKernels;
}
struct BuildContext;
struct Plan;
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

// What a fused update reports in a StepTrace, and the receipt built from it.

/// Posted by a fused update, with its figures in the order of Update.
inline constexpr const char* kUpdateLabel = "trainopt::fused_update";
/// Posted by each pass that measures all gradients before such an update.
inline constexpr const char* kMeasureLabel = "trainopt::gradient_measure";

/// What an update did.
struct Update {
  int64_t tensors = 0, launches = 0, copies = 0;          ///< copies: parameters that have a 16-bit copy
  bool scaled = false, clipped = false, cleared = false;  ///< what it did to gradients
};

void post(const Update& update);
/// All zeros if the step had no fused update.
Update update_of(const StepTrace& trace);
/// Number of casts of float32 parameters to 16 bits, by autocast or anything else.
int64_t casts_of_parameters(const StepTrace& trace);

Receipt receipt(const StepTrace& trace);

}  // namespace trainopt::fused_optimizer
