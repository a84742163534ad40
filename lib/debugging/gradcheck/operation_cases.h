// Which operations a plan's model calls, and with which shapes.
#pragma once

#include "debugging/gradcheck/gradient_case.h"
#include "train/plan.h"

namespace trainopt::gradcheck {

/// The slots whose parts are checked, copied before wrappers that only observe are added.
struct CheckedSlots {
  explicit CheckedSlots(const Plan& plan) : operations(plan.operations), task(plan.task), precision(plan.precision) {}

  OperationSlots operations;
  Slot<Task> task;
  Slot<Precision> precision;
};

/// Every distinct operation that one forward of the plan's model calls through a slot that is not plain, in the order
/// of the calls; then the loss; then the 16-bit copies of `context.model`'s parameters, if it has some. Runs the model
/// on the meta device, so nothing is computed.
std::vector<GradientCase> operation_cases(const CheckedSlots& slots, const BuildContext& context);

}  // namespace trainopt::gradcheck
