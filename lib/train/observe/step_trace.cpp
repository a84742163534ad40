#include "train/observe/step_trace.h"

#include "device/product.h"
#include "device/tensor.h"
#include "train/observe/operation_listener.h"

#include <algorithm>
#include <mutex>

namespace trainopt {
namespace {

constexpr std::string_view kOwn = "trainopt::", kForward = "_convolution", kBackward = "_convolution_backward",
                           kAttention = "aten::_scaled_dot_product_", kDecomposed = "_math",
                           kOwnAttention = "trainopt::fused_attention";

bool is_own_forward(const TracedOperation& operation) {
  return operation.name.starts_with(kOwn) && operation.name.ends_with(kForward) && operation.grad_mode;
}
bool is_own_backward(const TracedOperation& operation) {
  return operation.name.starts_with(kOwn) && operation.name.ends_with(kBackward);
}

/// Whether this is an attention computed in one piece: libtorch's other implementation consists of matrix products,
/// which are traced by themselves.
bool is_attention(const TracedOperation& operation) {
  if (operation.name.starts_with(kOwnAttention)) return true;
  return operation.name.starts_with(kAttention) && operation.name.find(kDecomposed) == std::string::npos;
}

/// The tensor whose type is the element type of a convolution or matrix product; null for other operations.
const TracedTensor* multiplied(const TracedOperation& operation) {
  if (operation.name == "aten::_convolution" || operation.name == "aten::convolution_backward" ||
      is_own_convolution(operation) || is_attention(operation))
    return operation.tensor(0);
  constexpr std::string_view kProducts[] = {"aten::mm", "aten::addmm", "aten::bmm", "aten::_scaled_mm", kOnednnLinear};
  if (std::ranges::find(kProducts, operation.name) == std::end(kProducts)) return nullptr;
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

namespace {

class OperationRecorder : public OperationListener {
 public:
  explicit OperationRecorder(StepTrace::Operations& operations) : operations_(operations) {}

  std::unique_ptr<at::ObserverContext> start(const at::RecordFunction& function) override {
    const std::lock_guard lock(mutex_);
    if (function.scope() == at::RecordScope::USER_SCOPE) {
      ranges_.emplace_back(function.name());
      return nullptr;
    }
    TracedOperation operation{.name = function.name(),
                              .inputs = {},
                              .range = ranges_.empty() ? "" : ranges_.back(),
                              .depth = depth_++,
                              .grad_mode = at::GradMode::is_enabled()};
    for (const c10::IValue& input : function.inputs()) operation.inputs.push_back(traced(input));
    ++operations_[std::move(operation)];
    return nullptr;
  }
  void end(const at::RecordFunction& function, at::ObserverContext*) override {
    const std::lock_guard lock(mutex_);
    if (function.scope() != at::RecordScope::USER_SCOPE)
      --depth_;
    else if (!ranges_.empty())
      ranges_.pop_back();
  }

 private:
  StepTrace::Operations& operations_;
  std::vector<std::string> ranges_;
  int64_t depth_ = 0;
  std::mutex mutex_;
};

}  // namespace

StepObserver::StepObserver(StepTrace::Operations& operations)
    : listening_(std::make_unique<Listening>(ListensFor::receipts, std::make_shared<OperationRecorder>(operations))) {}

StepObserver::~StepObserver() = default;

}  // namespace trainopt
