#include "train/anomaly_watch.h"

#include "device/tensor.h"

#include <ATen/SequenceNumber.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>

namespace trainopt {
namespace {

constexpr size_t kStepsKept = 8;  ///< records arrive one or two steps late

/// Their results have no values yet.
constexpr std::array<std::string_view, 6> kUninitialized{"aten::empty",   "aten::new_empty", "aten::_empty",
                                                         "aten::resize_", "aten::_resize",   "aten::set_"};

bool is_uninitialized(std::string_view name) {
  return std::any_of(kUninitialized.begin(), kUninitialized.end(),
                     [&](std::string_view start) { return name.starts_with(start); });
}

bool has_values(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_floating_point() && tensor.numel() > 0 && !tensor.is_meta() &&
         tensor.layout() == at::kStrided;
}

/// Waits for the device.
bool is_finite(const at::Tensor& tensor) {
  if (!has_values(tensor)) return true;
  const at::NoGradGuard no_grad;
  const auto [least, greatest] = tensor.detach().aminmax();  // both NaN if a value is
  return std::isfinite(least.item<double>()) && std::isfinite(greatest.item<double>());
}

bool all_finite(const std::vector<at::Tensor>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), is_finite);
}

/// Null if all are finite.
const at::Tensor* first_bad(const std::vector<at::Tensor>& tensors) {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [](const auto& each) { return !is_finite(each); });
  return found == tensors.end() ? nullptr : &*found;
}

void add_tensors(const c10::IValue& value, std::vector<at::Tensor>& tensors) {
  if (value.isTensor()) {
    tensors.push_back(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& each : value.toTensorVector()) tensors.push_back(each);
  } else if (value.isOptionalTensorList()) {
    for (const auto& each : value.toOptionalTensorVector())
      if (each) tensors.push_back(*each);
  }
}

std::vector<at::Tensor> tensors_with_values(c10::ArrayRef<const c10::IValue> values) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : values) add_tensors(value, tensors);
  std::erase_if(tensors, [](const at::Tensor& tensor) { return !has_values(tensor); });
  return tensors;
}

std::string sizes_of(const at::Tensor& tensor) { return fmt::format("[{}]", fmt::join(tensor.sizes(), ", ")); }

std::string sizes_of(const std::vector<at::Tensor>& tensors) {
  std::vector<std::string> all;
  for (const at::Tensor& each : tensors)
    if (has_values(each)) all.push_back(sizes_of(each));
  return fmt::format("{}", fmt::join(all, " and "));
}

/// "4 of 128 values of its result [8, 16] are not finite".
std::string bad_values(const at::Tensor& tensor, std::string_view of) {
  const at::NoGradGuard no_grad;
  const int64_t finite = at::isfinite(tensor.detach()).sum().item<int64_t>();
  return fmt::format("{} of {} values of {} {} are not finite", tensor.numel() - finite, tensor.numel(), of,
                     sizes_of(tensor));
}

std::string in_unit(const std::string& unit) { return unit.empty() ? "outside the units" : "of unit " + unit; }

/// Names that libtorch gives to nodes of functions that it does not know itself.
bool is_own_node(std::string_view name) { return name.find("CppNode") != std::string_view::npos; }

}  // namespace

struct AnomalyWatch::Operation : at::ObserverContext {
  std::vector<at::Tensor> inputs;      ///< with values; none: the results are not checked
  std::vector<at::Tensor> bad_before;  ///< not finite before, if the operation may overwrite its inputs
  bool judged = false;
  bool in_place = false, overwrites = false;  ///< the latter also if it is given tensors to write to
  int exceptions = std::uncaught_exceptions();
};

void AnomalyWatch::begin_step(int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
  findings_.erase(findings_.lower_bound(step), findings_.end());  // also of later steps, if this one is repeated
  while (findings_.size() >= kStepsKept) findings_.erase(findings_.begin());
  expects_overflow_ = false;
}

void AnomalyWatch::begin_micro_batch() {
  const std::lock_guard lock(mutex_);
  labels_ = OpenLabels();
  forward_.clear();
  nodes_.clear();
  own_operations_.clear();
  failed_.clear();
}

void AnomalyWatch::begin_update() {
  const std::lock_guard lock(mutex_);
  labels_ = OpenLabels();
  labels_.begin("update");
}

void AnomalyWatch::check_at_start(const std::string& what, const at::Tensor& values) {
  const at::DisableRecordFunctionGuard own_operations;
  if (is_finite(values)) return;
  const std::lock_guard lock(mutex_);
  found(Stage::start, fmt::format("before step {}: {}", step_, bad_values(values, what)));
}

void AnomalyWatch::check_unit(const std::string& unit, const at::Tensor& input, const at::Tensor& output) {
  const at::DisableRecordFunctionGuard own_operations;
  const std::lock_guard lock(mutex_);
  const auto seen = std::exchange(own_operations_, {});
  if (!judges(Stage::forward) || is_finite(output) || !is_finite(input)) return;
  found(Stage::forward, fmt::format("in step {} in forward of unit {}, {}: {}; its input {} is finite", step_, unit,
                                    seen.empty() ? "in an operation that libtorch does not see"
                                                 : fmt::format("in {}", fmt::join(seen, " or ")),
                                    bad_values(output, "its output"), sizes_of(input)));
}

void AnomalyWatch::check_loss(const at::Tensor& loss, bool expects_overflow) {
  const at::DisableRecordFunctionGuard own_operations;
  const std::lock_guard lock(mutex_);
  expects_overflow_ = expects_overflow;
  if (!judges(Stage::forward) || is_finite(loss)) return;
  found(Stage::forward,
        fmt::format("in step {} in {}, outside the units", step_,
                    own_operations_.empty() ? "the loss" : fmt::format("{}", fmt::join(own_operations_, " or "))));
}

void AnomalyWatch::check_node(const BackwardNode& node) {
  const at::DisableRecordFunctionGuard own_operations;
  const std::lock_guard lock(mutex_);
  if (!judges(Stage::backward)) return;
  const at::Tensor* bad = first_bad(node.gradients_of_inputs);
  if (!bad || !all_finite(node.gradients_of_outputs)) return;
  found(Stage::backward, fmt::format("in step {} in the {}: {}; the gradients that it received, {}, are finite", step_,
                                     backward_of({node.forward_thread, node.number}, node.name),
                                     bad_values(*bad, "the gradient"), sizes_of(node.gradients_of_outputs)));
}

std::string AnomalyWatch::failed() const {
  const std::lock_guard lock(mutex_);
  return failed_;
}

std::string AnomalyWatch::began(int64_t step) const {
  const std::lock_guard lock(mutex_);
  const auto of_step = findings_.find(step);
  if (of_step == findings_.end()) return "";
  const auto& [stage, text] = *of_step->second.begin();
  if (stage != Stage::start) return text;
  const auto before = findings_.find(step - 1);
  if (before == findings_.end() || !before->second.contains(Stage::update)) return text;
  return before->second.at(Stage::update);  // it wrote what was found at the start
}

std::unique_ptr<at::ObserverContext> AnomalyWatch::start(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  const std::lock_guard lock(mutex_);
  if (function.scope() == at::RecordScope::USER_SCOPE) {
    labels_.begin(name);
    return nullptr;
  }
  auto operation = std::make_unique<Operation>();
  if (function.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    nodes_[function.threadId()].push_back({{function.forwardThreadId(), function.seqNr()}, std::string(name)});
    return operation;
  }
  if (stage() == Stage::forward) remember_forward(function);
  operation->judged = judges(stage()) && !is_uninitialized(name);
  if (!operation->judged) return operation;
  operation->inputs = tensors_with_values(function.inputs());
  operation->in_place = name.ends_with("_");
  operation->overwrites =
      operation->in_place || std::string_view(function.overload_name()).find("out") != std::string_view::npos;
  if (operation->overwrites)
    for (const at::Tensor& input : operation->inputs)
      if (!is_finite(input)) operation->bad_before.push_back(input);
  return operation;
}

void AnomalyWatch::end(const at::RecordFunction& function, at::ObserverContext* of_start) {
  const std::lock_guard lock(mutex_);
  if (function.scope() == at::RecordScope::USER_SCOPE) return labels_.end(function.name());
  const auto& operation = static_cast<const Operation&>(*of_start);
  const bool is_node = function.scope() == at::RecordScope::BACKWARD_FUNCTION;
  auto& nodes = nodes_[function.threadId()];
  if (std::uncaught_exceptions() > operation.exceptions && failed_.empty())
    failed_ = is_node && !nodes.empty() ? "in the " + backward_of(nodes.back().id, nodes.back().name)
                                        : place_of(function.name(), function.threadId());
  if (is_node && !nodes.empty()) nodes.pop_back();
  if (!operation.judged || std::uncaught_exceptions() > operation.exceptions || !judges(stage())) return;
  judge(function, operation);
}

/// The first operation whose result is not finite although its inputs were. A tensor that an operation is given to
/// write to may have had any values before. An operation may also return its input, as to() does.
void AnomalyWatch::judge(const at::RecordFunction& function, const Operation& operation) {
  const std::vector<c10::IValue>& outputs = function.outputs();
  auto results = tensors_with_values(c10::ArrayRef<const c10::IValue>(outputs.data(), outputs.size()));
  if (results.empty() && operation.in_place) results = operation.inputs;  // such as lists of tensors
  const at::Tensor* bad = first_bad(results);
  if (!bad) return;
  const auto is_result = [&](const at::Tensor& tensor) {
    return std::any_of(results.begin(), results.end(), [&](const at::Tensor& each) { return each.is_same(tensor); });
  };
  for (const at::Tensor& before : operation.bad_before)
    if (operation.in_place || !is_result(before)) return;
  for (const at::Tensor& input : operation.inputs)
    if (!(operation.overwrites && is_result(input)) && !is_finite(input)) return;
  found(stage(),
        fmt::format("in step {} {}: {}{}", step_, place_of(function.name(), function.threadId()),
                    bad_values(*bad, "its result"),
                    operation.inputs.empty() ? "" : "; its inputs " + sizes_of(operation.inputs) + " were finite"));
}

AnomalyWatch::Stage AnomalyWatch::stage() const {
  const std::string phase = labels_.place().phase;
  return phase == "forward" ? Stage::forward : phase == "backward" ? Stage::backward : Stage::update;
}

bool AnomalyWatch::judges(Stage stage) const {
  if (expects_overflow_ && stage != Stage::forward) return false;
  const auto of_step = findings_.find(step_);
  return of_step == findings_.end() || !(of_step->second.contains(stage) || of_step->second.contains(Stage::start));
}

/// libtorch numbers the nodes of backward as it makes them. An operation that makes one sees the node's number, and so
/// may others before it; the last of them is the one. This project's own functions run after theirs was made, with
/// recording of gradients off, and have only a label.
void AnomalyWatch::remember_forward(const at::RecordFunction& function) {
  const std::string name = function.name();
  const std::string unit = labels_.place().unit;
  if (function.seqNr() >= 0) {
    forward_[{function.threadId(), function.seqNr()}] = {name, unit};
  } else if (name.starts_with("trainopt::")) {
    if (std::find(own_operations_.begin(), own_operations_.end(), name) == own_operations_.end())
      own_operations_.push_back(name);
    if (!at::GradMode::is_enabled())
      forward_[{function.threadId(), static_cast<int64_t>(at::sequence_number::peek()) - 1}] = {name, unit};
  }
}

std::string AnomalyWatch::backward_of(const NodeId& node, const std::string& name) const {
  if (const auto forward = forward_.find(node); forward != forward_.end())
    return fmt::format("backward of {} {}", forward->second.name, in_unit(forward->second.unit));
  return fmt::format("backward {} ({})", in_unit(labels_.place().unit),
                     is_own_node(name) ? "a function with a gradient of its own" : name);
}

std::string AnomalyWatch::place_of(const std::string& operation, uint64_t thread) const {
  if (const auto nodes = nodes_.find(thread); nodes != nodes_.end() && !nodes->second.empty())
    return fmt::format("in {} in the {}", operation, backward_of(nodes->second.back().id, nodes->second.back().name));
  const auto [phase, unit] = labels_.place();
  return fmt::format("in {} in {} {}", operation, phase, in_unit(unit));
}

void AnomalyWatch::found(Stage stage, std::string text) { findings_[step_].try_emplace(stage, std::move(text)); }

}  // namespace trainopt
