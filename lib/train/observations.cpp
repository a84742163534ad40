#include "train/observations.h"

#include "train/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <string_view>

namespace trainopt {

std::string type_name(c10::ScalarType type) {
  switch (type) {
    case c10::kFloat: return "float32";
    case c10::kDouble: return "float64";
    case c10::kHalf: return "float16";
    case c10::kBFloat16: return "bfloat16";
    case c10::kByte: return "uint8";
    default: return c10::toString(type);
  }
}

// libtorch's callbacks are plain functions; ThreadLocalDebugInfo carries our pointer to them, also onto backward's threads.
struct StepObserver::Tap : c10::DebugInfoBase {
  explicit Tap(Observations& o) : seen(o) {}

  /// Returns whether this is the label around an optimizer's step.
  bool start(const at::RecordFunction& function) {
    const std::lock_guard lock(mutex);
    const std::string_view name = function.name();
    if (function.scope() == at::RecordScope::USER_SCOPE) return in_optimizer = name == kOptimizerLabel;
    if (depth++ == 0 && in_optimizer) ++seen.optimizer_operations;
    if (name == "aten::_convolution")
      convolution(function.inputs(), true);
    else if (name == "aten::convolution_backward")
      convolution(function.inputs(), false);
    else if (name == "aten::mm" || name == "aten::addmm" || name == "aten::bmm")
      product(function.inputs());
    else if (name == "aten::batch_norm")
      ++seen.plain_norms;
    else if (name == "trainopt::fused_batch_norm")
      ++seen.fused_norms;
    else if (name == "trainopt::fused_batch_norm_backward")
      ++seen.fused_norm_gradients;
    return false;
  }
  void end(const at::RecordFunction& function, bool optimizer_label) {
    const std::lock_guard lock(mutex);
    if (optimizer_label) in_optimizer = false;
    if (function.scope() != at::RecordScope::USER_SCOPE) --depth;
  }

  void convolution(c10::ArrayRef<const c10::IValue> inputs, bool forward) {
    if (inputs.empty() || !inputs[0].isTensor()) return;
    const at::Tensor& input = inputs[0].toTensor();
    ++seen.convolution_types[type_name(input.scalar_type())];
    if (!forward || input.dim() != 4) return;
    ++seen.convolution_inputs;
    // A one-channel or 1×1 image is stored the same either way; suggest_memory_format settles those by strides.
    if (input.suggest_memory_format() == at::MemoryFormat::ChannelsLast) ++seen.channels_last_inputs;
  }
  void product(c10::ArrayRef<const c10::IValue> inputs) {
    for (const auto& input : inputs)
      if (input.isTensor() && input.toTensor().dim() >= 2) {
        ++seen.product_types[type_name(input.toTensor().scalar_type())];
        return;
      }
  }

  Observations& seen;
  bool in_optimizer = false;
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

StepObserver::StepObserver(Observations& observations)
    : tap_(std::make_shared<Tap>(observations)), installed_(std::make_unique<Installed>(tap_)) {
  struct OptimizerLabel : at::ObserverContext {};
  auto callback = at::RecordFunctionCallback(
                      [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
                        Tap* tap = Installed::current();
                        if (tap && tap->start(function)) return std::make_unique<OptimizerLabel>();
                        return nullptr;
                      },
                      [](const at::RecordFunction& function, at::ObserverContext* label) {
                        if (Tap* tap = Installed::current()) tap->end(function, label != nullptr);
                      })
                      .needsInputs(true)
                      .scopes({at::RecordScope::FUNCTION, at::RecordScope::USER_SCOPE});
  callback_ = at::addThreadLocalCallback(callback);
}

StepObserver::~StepObserver() { at::removeCallback(callback_); }

}  // namespace trainopt
