// `debug.gradcheck`: checks every backward of our own that a plan uses, with the plan's shapes, types and layout,
// before the training begins.
#pragma once

#include "debugging/gradcheck/check_case.h"
#include "debugging/gradcheck/operation_cases.h"

#include "base/json.h"

namespace trainopt::gradcheck {

struct CheckedOperation {
  GradientCase gradient_case;
  CheckedCase result;
};

struct Report {
  std::string type;  ///< that the model computes in
  std::vector<CheckedOperation> operations;
  double wall_s = 0;
};

/// Checks the plan's operations that have a backward of our own. With several ranks, every rank must call it. Changes
/// no state of the training: no weight, no statistics, no random number generator.
Report check_operations(const CheckedSlots& slots, const BuildContext& context);

/// One line: how many operations were checked and how close the worst came to its bound.
std::string summary_line(const Report& report);
/// What is wrong with the first operation that failed, in a sentence, as a UserError: `hardware` if it gave different
/// bits when repeated, otherwise `bug`. Null if all passed.
std::optional<UserError> failure_of(const Report& report);
/// A row per operation: {operation, unit, calls, shapes, batch, type, forward_error, backward_error, bound, tensor,
/// slice, directions_error, directions_bound, repeatable, passed}. `batch`: samples that were compared. `tensor` and
/// `slice`: where backward_error is.
Json to_json(const Report& report);

/// Lets the trainer check the operations while it is built, with what fills the slots now. Throws what failure_of()
/// returns. The report is summary.json's `gradcheck`.
void add_gradcheck(Plan& plan);

}  // namespace trainopt::gradcheck
