#include "train/observations.h"

#include "train/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <string_view>

namespace trainopt {

std::string type_name(c10::ScalarType type) {
  switch (type) {
    case c10::kFloat:
      return "float32";
    case c10::kDouble:
      return "float64";
    case c10::kHalf:
      return "float16";
    case c10::kBFloat16:
      return "bfloat16";
    case c10::kByte:
      return "uint8";
    default:
      return c10::toString(type);
  }
}

// libtorch's callbacks are plain functions; ThreadLocalDebugInfo carries our pointer to them, also onto backward's
// threads.
struct StepObserver::Tap : c10::DebugInfoBase {
  explicit Tap(Observations& o) : seen(o) {}

  /// Returns whether this is the label around an optimizer's step.
  bool start(const at::RecordFunction& function) {
    const std::lock_guard lock(mutex);
    const std::string_view name = function.name();
    if (function.scope() == at::RecordScope::USER_SCOPE) return in_optimizer = name == kOptimizerLabel;
    if (depth++ == 0 && in_optimizer) ++seen.optimizer_operations;
    const bool forward = name == kWinogradLabel || name == kFloat32ConvolutionLabel,
               gradient = name == kWinogradGradientLabel || name == kFloat32ConvolutionGradientLabel;
    if (name == "aten::_convolution" || name == "aten::convolution_backward" || gradient ||
        (forward && at::GradMode::is_enabled())) {
      convolution(function.inputs(), forward || name == "aten::_convolution");
      seen.computed_in_float32 += forward || gradient;
      seen.winograd_convolutions += name == kWinogradLabel;
      seen.winograd_gradients += name == kWinogradGradientLabel;
    } else if (name == "aten::mm" || name == "aten::addmm" || name == "aten::bmm")
      product(function.inputs());
    else if (name == "aten::_to_copy")
      cast(function.inputs());
    else if (name == kGradientMeasureLabel)
      ++seen.gradient_measures;
    else if (name == kFusedUpdateLabel)
      fused_update(function.inputs());
    else if (at::GradMode::is_enabled() ||
             name.starts_with("trainopt::"))  // backward's operations have no gradients of their own
      fused(name);
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
  void cast(c10::ArrayRef<const c10::IValue> inputs) {
    if (inputs.size() < 2 || !inputs[0].isTensor() || !inputs[1].isInt()) return;
    const at::Tensor& from = inputs[0].toTensor();
    const auto type = static_cast<at::ScalarType>(inputs[1].toInt());
    seen.weights_cast += from.scalar_type() == at::kFloat && from.is_leaf() && from.requires_grad() &&
                         (type == at::kBFloat16 || type == at::kHalf);
  }
  void fused_update(c10::ArrayRef<const c10::IValue> numbers) {
    seen.fused_update = {.tensors = numbers.at(0).toInt(),
                         .launches = numbers.at(1).toInt(),
                         .copies = numbers.at(2).toInt(),
                         .scaled = numbers.at(3).toBool(),
                         .clipped = numbers.at(4).toBool(),
                         .cleared = numbers.at(5).toBool()};
  }
  void product(c10::ArrayRef<const c10::IValue> inputs) {
    for (const auto& input : inputs)
      if (input.isTensor() && input.toTensor().dim() >= 2) {
        ++seen.product_types[type_name(input.toTensor().scalar_type())];
        return;
      }
  }

  void fused(std::string_view name) {
    struct Counted {
      std::string_view plain, forward, backward;
      FusedCounts Observations::*counts;
    };
    static constexpr Counted kCounted[] = {
        {"aten::batch_norm", kFusedNormLabel, kFusedNormGradientLabel, &Observations::norms},
        {"aten::adaptive_avg_pool2d", kFusedPoolLabel, kFusedPoolGradientLabel, &Observations::average_pools},
        {"aten::cross_entropy_loss", kFusedLossLabel, kFusedLossGradientLabel, &Observations::losses}};
    for (const auto& [plain, forward, backward, counts] : kCounted) {
      (seen.*counts).plain += name == plain;
      (seen.*counts).fused += name == forward;
      (seen.*counts).gradients += name == backward;
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
