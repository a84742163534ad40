#include "optimizations/sharding/sharding_receipt.h"

#include "base/units.h"
#include "comm/communicator.h"
#include "device/tensor.h"
#include "train/plan.h"

#include <cmath>

namespace trainopt {
namespace {

constexpr double kMaxRelativeError = 0.05;  // shares are padded, and batch-norm statistics are sent too

bool near(double measured, double formula) { return std::abs(measured - formula) <= kMaxRelativeError * formula; }

}  // namespace

void broadcast_state(const Model& model, Communicator& communicator) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : model.state())
    communicator.broadcast(tensor.detach().as_strided({tensor.numel()}, {1}), 0)
        ->wait();               // in memory order, whatever the layout
  communicator.take_traffic();  // resets the count: this traffic belongs to no step
}

MakeReceipt sharding_receipt(const Plan& plan, const ParallelConfig& config) {
  const ShardingCosts formula =
      sharding_costs(config.sharding_strategy, sharded_model(plan, config, plan.stages.replica));
  const bool hybrid = config.sharding_strategy == ShardingStrategy::hybrid;
  return [formula, hybrid](const StepTrace& seen) {
    if (seen.step == 0)
      return Receipt{.observed = "no step was observed", .effective = false, .reason = "the run was too short"};
    const auto text = [](const char* what, double measured, double by_formula) {
      return fmt::format("{} {} ({})", what, human_bytes(measured), human_bytes(by_formula));
    };
    const std::string sent = hybrid ? text("sent inside the machine", seen.sent_bytes - seen.across_bytes,
                                           formula.sent_bytes - formula.across_bytes) +
                                          text(", to other machines", seen.across_bytes, formula.across_bytes)
                                    : text("sent", seen.sent_bytes, formula.sent_bytes);
    const bool as_formula = near(seen.sent_bytes, formula.sent_bytes) &&
                            (!hybrid || near(seen.across_bytes, formula.across_bytes)) &&
                            near(static_cast<double>(seen.parameter_bytes), formula.parameter_bytes) &&
                            near(static_cast<double>(seen.gradient_bytes), formula.gradient_bytes) &&
                            near(static_cast<double>(seen.optimizer_bytes), formula.optimizer_bytes);
    return Receipt{
        .observed = fmt::format("per rank, measured (predicted): {}, {}, {}, {}", sent,
                                text("parameters", static_cast<double>(seen.parameter_bytes), formula.parameter_bytes),
                                text("gradients", static_cast<double>(seen.gradient_bytes), formula.gradient_bytes),
                                text("optimizer", static_cast<double>(seen.optimizer_bytes), formula.optimizer_bytes)),
        .effective = true,
        .reason = as_formula ? "" : "measured sizes differ from the predicted ones"};
  };
}

}  // namespace trainopt
