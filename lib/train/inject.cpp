#include "train/inject.h"

#include "device/tensor.h"
#include "train/plan.h"

#include <c10/util/Exception.h>

#include <charconv>
#include <csignal>
#include <limits>
#include <thread>
#include <unistd.h>

namespace trainopt {
namespace {

constexpr std::array<std::pair<const char*, InjectedFault>, 8> kFaults{{{"nan", InjectedFault::nan},
                                                                        {"gradient", InjectedFault::gradient},
                                                                        {"oom", InjectedFault::oom},
                                                                        {"slow", InjectedFault::slow},
                                                                        {"gpu", InjectedFault::gpu},
                                                                        {"ecc", InjectedFault::ecc},
                                                                        {"hang", InjectedFault::hang},
                                                                        {"kill", InjectedFault::kill}}};

/// As libtorch throws it.
[[noreturn]] void throw_cuda_error(int code, const std::string& text) {
  throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, code,
                              "CUDA error: " + text + "\nCUDA kernel errors might be reported later than they happen.");
}

class FaultyRunner : public StepRunner {
 public:
  FaultyRunner(std::unique_ptr<StepRunner> inner, const ParameterStore& parameters, std::vector<Injection> injections)
      : inner_(std::move(inner)), parameters_(parameters), waiting_(std::move(injections)) {}

  at::Tensor micro_step(const StepBody& body, const Batch& micro) override {
    if (takes(InjectedFault::kill, micro)) ::raise(SIGKILL);
    if (takes(InjectedFault::slow, micro)) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (takes(InjectedFault::hang, micro))
      while (true) ::pause();  // a signal ends pause(), but not the loop
    Batch fed = micro;
    if (takes(InjectedFault::nan, micro))
      fed.input = at::full_like(fed.input, std::numeric_limits<double>::quiet_NaN());
    const at::Tensor loss = inner_->micro_step(body, fed);
    if (takes(InjectedFault::gradient, micro)) {
      at::Tensor gradient = parameters_.gradients().front();
      gradient.fill_(std::numeric_limits<double>::infinity());
    }
    // Thrown after the micro-step, when gradients, buffers and random state have all changed.
    if (takes(InjectedFault::oom, micro)) C10_THROW_ERROR(OutOfMemoryError, "injected: tried to allocate a lot. ");
    if (takes(InjectedFault::gpu, micro)) throw_cuda_error(700, "an illegal memory access was encountered");
    if (takes(InjectedFault::ecc, micro)) throw_cuda_error(214, "uncorrectable ECC error encountered");
    return loss;
  }
  at::Tensor update_step(const StepBody& body) override { return inner_->update_step(body); }
  bool drop_state(bool permanently) override { return inner_->drop_state(permanently); }
  void report(StepTrace& trace) const override { inner_->report(trace); }

 private:
  /// Whether the fault is due now. A one-time fault is then removed.
  bool takes(InjectedFault fault, const Batch& micro) {
    for (size_t i = 0; i < waiting_.size(); ++i) {
      if (waiting_[i].fault != fault || waiting_[i].step != micro.step + 1) continue;
      if (!waiting_[i].every_time) waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
      return true;
    }
    return false;
  }

  std::unique_ptr<StepRunner> inner_;
  const ParameterStore& parameters_;
  std::vector<Injection> waiting_;
};

}  // namespace

Injection parse_injection(const std::string& text) {
  Injection injection;
  const size_t at = text.find('@');
  const std::string name = text.substr(0, at);
  const auto known =
      std::find_if(kFaults.begin(), kFaults.end(), [&](const auto& fault) { return name == fault.first; });
  bool fits = known != kFaults.end() && at != std::string::npos;
  if (fits) {
    std::string_view number = std::string_view(text).substr(at + 1);
    injection.fault = known->second;
    injection.every_time = number.ends_with('+');
    if (injection.every_time) number.remove_suffix(1);
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), injection.step);
    fits = error == std::errc() && end == number.data() + number.size() && injection.step > 0;
  }
  if (!fits)
    throw UserError(fmt::format(
        "--inject takes nan, gradient, oom, gpu, ecc, slow, hang or kill, then @ and a step, then + to repeat it on "
        "every retry (nan@12, oom@3+): {}",
        text));
  return injection;
}

void inject(Plan& plan, const std::vector<Injection>& injections) {
  if (injections.empty()) return;
  plan.runner.wrap("--inject", "with injected faults",
                   [injections](const BuildContext& context, std::unique_ptr<StepRunner> inner) {
                     return std::make_unique<FaultyRunner>(std::move(inner), *context.parameters, injections);
                   });
  plan.notes.emplace_back("faults are injected (--inject): do not use the numbers of this run for anything else");
}

}  // namespace trainopt
