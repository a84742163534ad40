#include "debugging/anomaly.h"

#include "comm/communicator.h"
#include "data/batch_source.h"
#include "device/gpu_error.h"
#include "device/memory.h"
#include "device/tensor.h"
#include "train/observe/autograd_hooks.h"
#include "train/observe/operation_listener.h"
#include "train/observe/profiler.h"
#include "train/plan.h"
#include "train/step_place.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trainopt {
namespace {

constexpr const char* kAnomaly = "debug.anomaly";

/// Finds the first operation of a step that turns finite values into non-finite ones, by checking the result of every
/// operation that libtorch's dispatcher runs, of every node of backward, and of every unit of the model. Each check
/// reads a value on the host.
class AnomalyWatch : public OperationListener {
 public:
  /// A step begins, perhaps again. Its findings and its record of forward operations are discarded.
  void begin_step(int64_t step);
  void begin_micro_batch();
  /// The update's label has begun already.
  void begin_update();
  /// What exists before the step's first operation. `what`: "the parameter fc.weight".
  void check_at_start(const std::string& what, const at::Tensor& values);
  /// The results of a unit of the model, which this project's own operations may have written unseen.
  void check_unit(const std::string& unit, const at::Tensor& input, const at::Tensor& output);
  /// The loss, before its backward. `expects_overflow`: of the gradients, because the loss will be scaled; they are
  /// then not judged.
  void check_loss(const at::Tensor& loss, bool expects_overflow);
  /// The gradients that a node of backward has computed.
  void check_node(const BackwardNode& node);

  /// The innermost operation that an exception ended in this micro-batch: "in aten::mm in the backward of aten::addmm
  /// of unit fc". Empty: none did.
  std::string failed() const;
  /// "in step 3 in aten::log in forward of unit layers.1: 4 of 128 values …". Empty: nothing was found in that step.
  std::string began(int64_t step) const;

  std::unique_ptr<at::ObserverContext> start(const at::RecordFunction& function) override;
  void end(const at::RecordFunction& function, at::ObserverContext* of_start) override;

 private:
  struct Operation;
  /// Identifies a node of backward: the thread of its forward, and its number there.
  using NodeId = std::pair<uint64_t, int64_t>;
  struct ForwardOperation {
    std::string name, unit;
  };
  struct OpenNode {
    NodeId id;
    std::string name;
  };
  enum class Stage { start, forward, backward, update };

  Stage stage() const;
  bool judges(Stage stage) const;
  void remember_forward(const at::RecordFunction& function);
  void judge(const at::RecordFunction& function, const Operation& operation);
  /// "backward of aten::pow of unit fc".
  std::string backward_of(const NodeId& node, const std::string& name) const;
  /// "in aten::mul in the backward of aten::pow of unit fc", or "in aten::log in forward of unit fc".
  std::string place_of(const std::string& operation, uint64_t thread) const;
  void found(Stage stage, std::string text);

  mutable std::mutex mutex_;
  OpenLabels labels_;
  int64_t step_ = 0;
  bool expects_overflow_ = false;
  std::map<int64_t, std::map<Stage, std::string>> findings_;  ///< findings by step: the first of each stage
  std::map<NodeId, ForwardOperation> forward_;                ///< operations of the running micro-batch
  std::map<uint64_t, std::vector<OpenNode>> nodes_;           ///< open nodes by thread
  std::vector<std::string> own_operations_;                   ///< this project's own since the last unit
  std::string failed_;
};

class CheckedUnit : public WrappedUnit {
 public:
  CheckedUnit(std::unique_ptr<Unit> inner, std::shared_ptr<AnomalyWatch> watch)
      : WrappedUnit(std::move(inner)), watch_(std::move(watch)) {}
  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    at::Tensor output = inner_->forward(input, context);
    if (context.training) watch_->check_unit(name(), input, output);
    return output;
  }

 private:
  std::shared_ptr<AnomalyWatch> watch_;
};

/// Listens while a micro-step or an update runs.
class CheckingRunner : public StepRunner {
 public:
  CheckingRunner(std::unique_ptr<StepRunner> inner, const BuildContext& context, std::shared_ptr<AnomalyWatch> watch)
      : inner_(std::move(inner)),
        model_(*context.model),
        parameters_(*context.parameters),
        steps_done_(*context.steps_done),
        watch_(std::move(watch)) {}

  at::Tensor micro_step(const StepBody& body, const Batch& micro) override {
    if (micro.is_first) begin_step();
    watch_->begin_micro_batch();
    watch_->check_at_start("the batch's input", micro.input);
    const Listening listening = listen();
    return inner_->micro_step(body, micro);
  }
  at::Tensor update_step(const StepBody& body) override {
    watch_->begin_update();
    const Listening listening = listen();
    return inner_->update_step(body);
  }
  bool drop_state(bool permanently) override { return inner_->drop_state(permanently); }
  void report(StepTrace& trace) const override { inner_->report(trace); }

 private:
  Listening listen() const {
    return Listening(ListensFor::anomalies, watch_, {.outputs = true, .backward_nodes = true});
  }

  void begin_step() {
    watch_->begin_step(steps_done_ + 1);
    for (const auto& [name, tensor] : parameters_.parameters()) watch_->check_at_start("the parameter " + name, tensor);
    for (const auto& [name, tensor] : model_.buffers()) watch_->check_at_start("the buffer " + name, tensor);
  }

  std::unique_ptr<StepRunner> inner_;
  const Model& model_;
  ParameterStore& parameters_;
  const int64_t& steps_done_;
  std::shared_ptr<AnomalyWatch> watch_;
};

class CheckingPrecision : public WrappedPrecision {
 public:
  CheckingPrecision(std::unique_ptr<Precision> inner, std::shared_ptr<AnomalyWatch> watch)
      : WrappedPrecision(std::move(inner)), watch_(std::move(watch)) {}

  void backward(const at::Tensor& loss) override {
    watch_->check_loss(loss, /*expects_overflow=*/loss_scale().defined());
    after_each_node(loss, [watch = watch_](const BackwardNode& node) { watch->check_node(node); });
    try {
      WrappedPrecision::backward(loss);
    } catch (const UserError&) {  // says what to do itself
      throw;
    } catch (const std::exception& error) {  // named recovery: the run ends, and says where
      if (is_out_of_memory(error) || gpu_fault(error) || watch_->failed().empty()) throw;
      const auto* torch = dynamic_cast<const c10::Error*>(&error);
      throw UserError(fmt::format("backward failed {}: {}", watch_->failed(),
                                  torch ? torch->what_without_backtrace() : error.what()),
                      ExitCode::bug);
    }
  }

 private:
  std::shared_ptr<AnomalyWatch> watch_;
};

class AnomalyReporter : public WrappedProfiler {
 public:
  AnomalyReporter(std::unique_ptr<StepProfiler> inner, const BuildContext& context,
                  std::shared_ptr<const AnomalyWatch> watch)
      : WrappedProfiler(std::move(inner)), communicator_(*context.communicator), watch_(std::move(watch)) {}

  std::string where_nonfinite_began(int64_t step) override {
    std::vector<std::string> found;
    const auto texts = gather_texts(communicator_, watch_->began(step));
    for (size_t rank = 0; rank < texts.size(); ++rank)
      if (!texts[rank].empty())
        found.push_back(texts.size() == 1 ? texts[rank] : fmt::format("on rank {} {}", rank, texts[rank]));
    if (found.empty()) return fmt::format("no operation of step {} was seen to make finite values non-finite", step);
    return fmt::format("it began {}", fmt::join(found, "; "));
  }

 private:
  Communicator& communicator_;
  std::shared_ptr<const AnomalyWatch> watch_;
};

}  // namespace

void add_anomaly(Plan& plan) {
  if (plan.replays_steps)
    throw UserError(fmt::format(
        "debug.anomaly checks operations as they run, and a replayed step runs none; remove it, or what replays: {}",
        plan.runner.describe()));
  // Each trainer has its own, made with the first of its parts.
  const auto watch = std::make_shared<std::shared_ptr<AnomalyWatch>>();
  plan.detects_nonfinite = true;
  plan.precision.wrap(kAnomaly, "checking every node of backward",
                      [watch](const BuildContext&, std::unique_ptr<Precision> inner) {
                        *watch = std::make_shared<AnomalyWatch>();
                        return std::make_unique<CheckingPrecision>(std::move(inner), *watch);
                      });
  plan.runner.wrap(kAnomaly, "checking the result of every operation",
                   [watch](const BuildContext& context, std::unique_ptr<StepRunner> inner) {
                     return std::make_unique<CheckingRunner>(std::move(inner), context, *watch);
                   });
  plan.profiler.wrap(kAnomaly, "naming where non-finite values begin",
                     [watch](const BuildContext& context, std::unique_ptr<StepProfiler> inner) {
                       label_units(*context.model);
                       context.model->wrap_units([&](std::unique_ptr<Unit> unit) {
                         return std::make_unique<CheckedUnit>(std::move(unit), *watch);
                       });
                       return std::make_unique<AnomalyReporter>(std::move(inner), context, *watch);
                     });
}

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
