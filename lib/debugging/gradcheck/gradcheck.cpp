#include "debugging/gradcheck/gradcheck.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"
#include "comm/communicator.h"
#include "device/tensor.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace trainopt::gradcheck {
namespace {

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(fmt::format("{}", value)); }

Json shapes_of(const CheckedOperation& checked) {
  Json shapes = Json::object();
  for (const CaseInput& input : checked.gradient_case.inputs) shapes[input.name] = input.sizes;
  return shapes;
}

std::string shapes_text(const CheckedOperation& checked) {
  std::vector<std::string> texts;
  for (const CaseInput& input : checked.gradient_case.inputs)
    texts.push_back(fmt::format("{} [{}]", input.name, fmt::join(input.sizes, ", ")));
  return fmt::format("{}", fmt::join(texts, ", "));
}

double worst_share(const Report& report) {
  double worst = 0;
  for (const auto& checked : report.operations) worst = std::max(worst, checked.result.share_of_bound());
  return worst;
}

/// Which result is wrong, and by how much.
std::string error_text(const CheckedOperation& checked) {
  const CheckedCase& result = checked.result;
  const auto against_float64 = [&](const std::string& what, const Deviation& deviation) {
    return fmt::format("{} differs from float64 by {:.2g} of its norm in {}, and rounding explains {:.2g}", what,
                       deviation.relative, deviation.slice, result.bound);
  };
  if (!(result.backward.relative <= result.bound))
    return against_float64("the gradient of " + result.gradient, result.backward);
  if (!(result.forward.relative <= result.bound)) return against_float64("the output", result.forward);
  return fmt::format(
      "the float64 gradient that it is compared with differs from central differences by {:.2g} of its norm, and "
      "rounding explains {:.2g}",
      result.directions_error, kDirectionsBound);
}

}  // namespace

Report check_operations(const CheckedSlots& slots, const BuildContext& context) {
  const auto began = Clock::now();
  const Checked checked{.context = context,
                        .ours = {slots.operations.build(context), slots.task.build(context)},
                        .plain = plain_parts(context.plan.train.label_smoothing),
                        .precision = slots.precision.build(context)};
  Report report{.type = type_name(context.plan.tensor_format.compute_type), .operations = {}};
  for (auto& each : operation_cases(slots, context))
    if (auto result = check_case(each, checked)) report.operations.push_back({std::move(each), *std::move(result)});
  context.communicator->take_traffic();  // belongs to no step
  report.wall_s = seconds_since(began);
  return report;
}

std::string summary_line(const Report& report) {
  if (report.operations.empty())
    return "gradcheck: this plan uses no backward of trainopt's own, so there is nothing to check";
  const auto reduced = std::count_if(report.operations.begin(), report.operations.end(), [](const auto& checked) {
    return checked.result.samples < checked.gradient_case.batch();
  });
  return fmt::format("gradcheck: {} of trainopt's own checked in {}{}, largest error {:.2g} of its bound, {:.1f} s",
                     counted(static_cast<int64_t>(report.operations.size()), "operation"), report.type,
                     reduced > 0 ? fmt::format(" ({} with a part of the batch)", reduced) : "", worst_share(report),
                     report.wall_s);
}

std::optional<UserError> failure_of(const Report& report) {
  const auto failed = [](const CheckedOperation& checked) { return !checked.result.passed(); };
  const auto first = std::find_if(report.operations.begin(), report.operations.end(), failed);
  if (first == report.operations.end()) return std::nullopt;
  const auto count = std::count_if(first, report.operations.end(), failed);
  const bool repeatable = first->result.repeatable;
  return UserError(
      fmt::format("gradcheck: {} of {} ({}; {}): {}; {}{}", first->gradient_case.operation, first->gradient_case.layer,
                  shapes_text(*first), report.type, error_text(*first),
                  repeatable ? "this is a bug in the program, please report it"
                             : "the same computation gave other bits when repeated, so suspect the hardware",
                  count > 1 ? fmt::format("; {} failed", counted(count, "operation")) : ""),
      repeatable ? ExitCode::bug : ExitCode::hardware);
}

Json to_json(const Report& report) {
  Json rows = Json::array();
  for (const auto& checked : report.operations) {
    const auto& [gradient_case, result] = checked;
    rows.push_back({{"operation", gradient_case.operation},
                    {"unit", gradient_case.layer},
                    {"calls", gradient_case.calls},
                    {"shapes", shapes_of(checked)},
                    {"batch", result.samples},
                    {"type", report.type},
                    {"forward_error", number(result.forward.relative)},
                    {"backward_error", number(result.backward.relative)},
                    {"bound", result.bound},
                    {"tensor", result.gradient},
                    {"slice", result.backward.slice},
                    {"directions_error", number(result.directions_error)},
                    {"directions_bound", kDirectionsBound},
                    {"repeatable", result.repeatable},
                    {"passed", result.passed()}});
  }
  return rows;
}

void add_gradcheck(Plan& plan) {
  const auto slots = std::make_shared<const CheckedSlots>(plan);
  const auto rows = std::make_shared<Json>();
  plan.reports.emplace_back("gradcheck", [rows] { return *rows; });
  plan.runner.wrap("debug.gradcheck", "gradients checked before the first step",
                   [slots, rows](const BuildContext& context, std::unique_ptr<StepRunner> inner) {
                     if (context.device.is_meta()) return inner;  // a forecast, without values to check
                     const Report report = check_operations(*slots, context);
                     *rows = to_json(report);
                     if (const auto failure = failure_of(report)) throw *failure;
                     if (context.plan.position.is_first()) log_info("{}", summary_line(report));
                     return inner;
                   });
}

}  // namespace trainopt::gradcheck
