#include "train/step_trace.h"

#include "device/tensor.h"

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <mutex>

namespace trainopt {
namespace {

constexpr std::string_view kOwn = "trainopt::", kForward = "_convolution", kBackward = "_convolution_backward";

bool is_own_forward(const TracedOperation& operation) {
  return operation.name.starts_with(kOwn) && operation.name.ends_with(kForward) && operation.grad_mode;
}
bool is_own_backward(const TracedOperation& operation) {
  return operation.name.starts_with(kOwn) && operation.name.ends_with(kBackward);
}

/// The tensor whose type is the element type of a convolution or matrix product; null for other operations.
const TracedTensor* multiplied(const TracedOperation& operation) {
  if (operation.name == "aten::_convolution" || operation.name == "aten::convolution_backward" ||
      is_own_convolution(operation))
    return operation.tensor(0);
  if (operation.name != "aten::mm" && operation.name != "aten::addmm" && operation.name != "aten::bmm") return nullptr;
  for (size_t i = 0; i < operation.inputs.size(); ++i)  // addmm's first input is the bias
    if (const TracedTensor* tensor = operation.tensor(i); tensor && tensor->dim() >= 2) return tensor;
  return nullptr;
}

TracedInput traced(const c10::IValue& value) {
  if (value.isInt()) return value.toInt();
  if (value.isBool()) return value.toBool();
  if (!value.isTensor() || !value.toTensor().defined()) return std::monostate();
  const at::Tensor& tensor = value.toTensor();
  return TracedTensor{.type = tensor.scalar_type(),
                      .sizes = tensor.sizes().vec(),
                      .is_nhwc = tensor.dim() == 4 && tensor.suggest_memory_format() == at::MemoryFormat::ChannelsLast,
                      .is_parameter = tensor.scalar_type() == at::kFloat && tensor.is_leaf() && tensor.requires_grad()};
}

}  // namespace

const TracedTensor* TracedOperation::tensor(size_t i) const {
  return i < inputs.size() ? std::get_if<TracedTensor>(&inputs[i]) : nullptr;
}

int64_t TracedOperation::number(size_t i) const {
  if (i >= inputs.size()) return 0;
  if (const bool* value = std::get_if<bool>(&inputs[i])) return *value;
  const int64_t* value = std::get_if<int64_t>(&inputs[i]);
  return value ? *value : 0;
}

int64_t StepTrace::calls(const std::function<bool(const TracedOperation&)>& chosen) const {
  int64_t calls = 0;
  for (const auto& [operation, times] : operations)
    if (chosen(operation)) calls += times;
  return calls;
}

int64_t StepTrace::calls(std::string_view name) const {
  return calls([name](const TracedOperation& operation) { return operation.name == name; });
}

const TracedOperation* StepTrace::find(std::string_view name) const {
  const auto found = std::find_if(operations.begin(), operations.end(),
                                  [name](const auto& entry) { return entry.first.name == name; });
  return found == operations.end() ? nullptr : &found->first;
}

double StepTrace::count(std::string_view label) const {
  const auto found = counts.find(label);
  return found == counts.end() ? 0 : found->second;
}

bool is_own_convolution(const TracedOperation& operation) {
  return is_own_forward(operation) || is_own_backward(operation);
}

bool is_forward_convolution(const TracedOperation& operation) {
  const TracedTensor* images = operation.tensor(0);
  return (operation.name == "aten::_convolution" || is_own_forward(operation)) && images && images->dim() == 4;
}

std::map<std::string, int64_t> multiplications_by_type(const StepTrace& trace) {
  std::map<std::string, int64_t> calls;
  for (const auto& [operation, times] : trace.operations)
    if (const TracedTensor* tensor = multiplied(operation)) calls[type_name(tensor->type)] += times;
  return calls;
}

// libtorch's callbacks are plain functions. ThreadLocalDebugInfo passes them our pointer, on backward's threads too.
struct StepObserver::Tap : c10::DebugInfoBase {
  explicit Tap(StepTrace::Operations& o) : operations(o) {}

  void start(const at::RecordFunction& function) {
    const std::lock_guard lock(mutex);
    if (function.scope() == at::RecordScope::USER_SCOPE) {
      ranges.emplace_back(function.name());
      return;
    }
    TracedOperation operation{.name = function.name(),
                              .inputs = {},
                              .range = ranges.empty() ? "" : ranges.back(),
                              .depth = depth++,
                              .grad_mode = at::GradMode::is_enabled()};
    for (const c10::IValue& input : function.inputs()) operation.inputs.push_back(traced(input));
    ++operations[std::move(operation)];
  }
  void end(const at::RecordFunction& function) {
    const std::lock_guard lock(mutex);
    if (function.scope() != at::RecordScope::USER_SCOPE)
      --depth;
    else if (!ranges.empty())
      ranges.pop_back();
  }

  StepTrace::Operations& operations;
  std::vector<std::string> ranges;
  int64_t depth = 0;
  std::mutex mutex;
};

class StepObserver::Installed {
 public:
  explicit Installed(std::shared_ptr<Tap> tap) : guard_(c10::DebugInfoKind::PRODUCER_INFO, std::move(tap)) {}

  static Tap* current() { return static_cast<Tap*>(c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PRODUCER_INFO)); }

 private:
  c10::DebugInfoGuard guard_;
};

StepObserver::StepObserver(StepTrace::Operations& operations)
    : tap_(std::make_shared<Tap>(operations)), installed_(std::make_unique<Installed>(tap_)) {
  auto callback = at::RecordFunctionCallback(
                      [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
                        if (Tap* tap = Installed::current()) tap->start(function);
                        return nullptr;
                      },
                      [](const at::RecordFunction& function, at::ObserverContext*) {
                        if (Tap* tap = Installed::current()) tap->end(function);
                      })
                      .needsInputs(true)
                      .scopes({at::RecordScope::FUNCTION, at::RecordScope::USER_SCOPE});
  callback_ = at::addThreadLocalCallback(callback);
}

StepObserver::~StepObserver() { at::removeCallback(callback_); }

}  // namespace trainopt
