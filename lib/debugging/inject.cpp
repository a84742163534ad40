#include "debugging/inject.h"

#include "base/clock.h"
#include "base/error.h"
#include "comm/communicator.h"
#include "device/cuda_library.h"
#include "device/device.h"
#include "device/tensor.h"
#include "metrics/summary.h"
#include "train/plan.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <limits>
#include <thread>

namespace trainopt {
namespace {

constexpr std::array<std::pair<const char*, InjectedFault>, 10> kFaults{{{"nan", InjectedFault::nan},
                                                                         {"gradient", InjectedFault::gradient},
                                                                         {"oom", InjectedFault::oom},
                                                                         {"slow", InjectedFault::slow},
                                                                         {"gpu", InjectedFault::gpu},
                                                                         {"ecc", InjectedFault::ecc},
                                                                         {"hang", InjectedFault::hang},
                                                                         {"bit_flip", InjectedFault::bit_flip},
                                                                         {"kill", InjectedFault::kill},
                                                                         {"straggle", InjectedFault::straggle}}};

/// The highest bit of the mantissa, in the middle of the first weight: the model still trains.
void flip_bit(ParameterStore& parameters) {
  constexpr int kMantissaTop = 1 << 22;
  const at::NoGradGuard no_grad;
  const NamedTensors copies = parameters.replicated();
  const at::Tensor weight = (copies.empty() ? parameters.parameters() : copies).front().second.detach();
  weight.as_strided({weight.numel()}, {1}).view(at::kInt)[weight.numel() / 2].bitwise_xor_(kMantissaTop);
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Until the scope ends, backward gives this parameter an infinite gradient.
Scope spoil_in_backward(const at::Tensor& leaf) {
  const unsigned hook =
      leaf.register_hook([](const at::Tensor& gradient) { return at::full_like(gradient, kInfinity); });
  return Scope([leaf, hook] { leaf.remove_hook(hook); });
}

/// The model's first parameter if the store has shards, whose gradients an exchange overwrites: the fault must be there
/// before it. Undefined if the store has the model's own parameters.
at::Tensor leaf_to_spoil(const BuildContext& context) {
  const NamedTensors& stored = context.parameters->parameters();
  const NamedTensors leaves = context.model->parameters();
  const auto is_own = [&](const auto& leaf) { return leaf.second.is_same(stored.front().second); };
  if (stored.empty() || std::any_of(leaves.begin(), leaves.end(), is_own)) return {};
  return leaves.front().second;
}

/// Throws what libtorch would throw.
[[noreturn]] void throw_cuda_error(int code, const std::string& text) {
  throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, code,
                              "CUDA error: " + text + "\nCUDA kernel errors might be reported later than they happen.");
}

class FaultyRunner : public StepRunner {
 public:
  FaultyRunner(std::unique_ptr<StepRunner> inner, const BuildContext& context, std::vector<Injection> injections)
      : inner_(std::move(inner)),
        parameters_(*context.parameters),
        steps_done_(*context.steps_done),
        device_(context.device),
        leaf_to_spoil_(leaf_to_spoil(context)),
        waiting_(std::move(injections)) {
    const int64_t rank = context.plan.position.rank;
    for (const Injection& each : waiting_) {
      if (each.fault != InjectedFault::straggle) continue;
      if (each.rank.value_or(rank) == rank) stragglers_.emplace_back(each.step);
      if (context.plan.position.ranks > 1) communicator_ = context.communicator;
    }
  }

  at::Tensor micro_step(const StepBody& body, const Batch& micro) override {
    if (!began_) began_ = Clock::now();
    if (takes(InjectedFault::kill)) ::raise(SIGKILL);
    if (takes(InjectedFault::slow)) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (takes(InjectedFault::hang))
      while (true) ::pause();  // a signal ends pause(), but not the loop
    Batch fed = micro;
    if (takes(InjectedFault::nan)) fed.input = at::full_like(fed.input, std::numeric_limits<double>::quiet_NaN());
    const bool spoils = takes(InjectedFault::gradient);
    const Scope spoiling = spoils && leaf_to_spoil_.defined() ? spoil_in_backward(leaf_to_spoil_) : Scope();
    const at::Tensor loss = inner_->micro_step(body, fed);
    if (spoils && !leaf_to_spoil_.defined()) parameters_.gradients().front().fill_(kInfinity);
    // Thrown after the micro-step, when gradients, buffers and random state have all changed.
    if (takes(InjectedFault::oom)) C10_THROW_ERROR(OutOfMemoryError, "injected: tried to allocate a lot. ");
    if (takes(InjectedFault::gpu)) throw_cuda_error(700, "an illegal memory access was encountered");
    if (takes(InjectedFault::ecc)) throw_cuda_error(214, "uncorrectable ECC error encountered");
    return loss;
  }
  at::Tensor update_step(const StepBody& body) override {
    at::Tensor norm = inner_->update_step(body);
    if (takes(InjectedFault::bit_flip)) flip_bit(parameters_);
    if (communicator_) communicator_->gather(std::array{0.0});
    if (!stragglers_.empty()) straggle();
    return norm;
  }
  bool drop_state(bool permanently) override { return inner_->drop_state(permanently); }
  void report(StepTrace& trace) const override { inner_->report(trace); }

 private:
  void straggle() {
    synchronize(device_);  // a step ends with its work on the device, before which a sleeping host delays nothing
    const double seconds = seconds_since(*std::exchange(began_, std::nullopt));
    for (StragglerDelay& each : stragglers_)
      std::this_thread::sleep_for(std::chrono::duration<double>(each.after(steps_done_ + 1, seconds)));
  }

  /// Whether the fault is due now. A one-time fault is then removed.
  bool takes(InjectedFault fault) {
    for (size_t i = 0; i < waiting_.size(); ++i) {
      if (waiting_[i].fault != fault || waiting_[i].step != steps_done_ + 1) continue;
      if (!waiting_[i].every_time) waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
      return true;
    }
    return false;
  }

  std::unique_ptr<StepRunner> inner_;
  ParameterStore& parameters_;
  const int64_t& steps_done_;
  c10::Device device_;
  at::Tensor leaf_to_spoil_;
  std::vector<Injection> waiting_;
  std::vector<StragglerDelay> stragglers_;
  /// With a straggler on any rank: the ranks meet before it sleeps, and again at the end of the step. Otherwise a part
  /// of its delay would be time that it is ahead of the others. Null: no straggler, or one rank.
  Communicator* communicator_ = nullptr;
  std::optional<Clock::time_point> began_;  ///< the running step's first micro-batch
};

/// Reads a whole number from the end of `text` after `mark`, and removes both. False if that is no number.
bool take_number(std::string_view& text, char mark, int64_t& number) {
  const size_t at = text.rfind(mark);
  const std::string_view digits = at == std::string_view::npos ? "" : text.substr(at + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size()) return false;
  text.remove_suffix(digits.size() + 1);
  return true;
}

bool is_cuda_error(const Injection& injection) {
  return injection.fault == InjectedFault::gpu || injection.fault == InjectedFault::ecc;
}

/// Also where there is no GPU: what follows an error of CUDA depends on CUDA's own tables of them.
void require_cuda_errors() {
  open_cuda_library_without_driver();
  if (!cuda_table())
    throw UserError(fmt::format("--inject gpu and ecc raise errors of CUDA, which this program does not know: {}",
                                built_for_cuda() ? cuda_library_problem() : "it was built without CUDA"));
}

}  // namespace

Injection parse_injection(const std::string& text) {
  Injection injection;
  std::string_view left = text;
  bool fits = true;
  if (left.find(':') != std::string_view::npos) {
    injection.rank = 0;
    fits = take_number(left, ':', *injection.rank) && *injection.rank >= 0;
  }
  injection.every_time = left.ends_with('+');
  if (injection.every_time) left.remove_suffix(1);
  fits = fits && take_number(left, '@', injection.step) && injection.step > 0;
  const auto known =
      std::find_if(kFaults.begin(), kFaults.end(), [&](const auto& fault) { return left == fault.first; });
  if (!fits || known == kFaults.end())
    throw UserError(fmt::format(
        "--inject takes nan, gradient, oom, gpu, ecc, slow, hang, bit_flip, kill or straggle, then @ and a step, "
        "then + to repeat it on every retry, then : and a rank if only that rank is to fail (nan@12, oom@3+, "
        "hang@5:1): {}",
        text));
  injection.fault = known->second;
  if (injection.fault == InjectedFault::straggle &&
      (injection.step <= StragglerDelay::kMeasuredSteps || injection.every_time))
    throw UserError(fmt::format(
        "--inject straggle measures the steps before the one that it names, and takes no +; name step {} or "
        "a later one: {}",
        StragglerDelay::kMeasuredSteps + 1, text));
  return injection;
}

void inject(Plan& plan, const std::vector<Injection>& injections) {
  if (injections.empty()) return;
  if (std::any_of(injections.begin(), injections.end(), is_cuda_error)) require_cuda_errors();
  std::vector<Injection> mine;
  const auto& [rank, ranks] = std::pair(plan.position.rank, plan.position.ranks);
  for (const Injection& each : injections) {
    if (each.rank && *each.rank >= ranks)
      throw UserError(
          fmt::format("--inject names a rank that this job does not have: {}, ranks {}", *each.rank, ranks));
    const bool one_rank = each.fault != InjectedFault::straggle &&
                          (each.rank || each.fault == InjectedFault::bit_flip);  // flips on all ranks differ nowhere
    if (!one_rank || each.rank.value_or(ranks - 1) == rank) mine.push_back(each);
  }
  plan.runner.wrap("--inject", "with injected faults",
                   [mine](const BuildContext& context, std::unique_ptr<StepRunner> inner) {
                     return std::make_unique<FaultyRunner>(std::move(inner), context, mine);
                   });
  plan.notes.emplace_back("faults are injected (--inject): do not use the numbers of this run for anything else");
}

double StragglerDelay::after(int64_t step, double seconds) {
  if (step < first_) {
    before_.push_back(seconds);
    return 0;
  }
  if (before_.size() < kMeasuredSteps)
    throw UserError(
        fmt::format("--inject straggle measures the steps before the one that it names, and this process "
                    "took too few of them; name a later step: straggle@{}, measured {}, needed {}",
                    first_, before_.size(), kMeasuredSteps));
  return kShare * percentile(before_, 0.5);
}

}  // namespace trainopt
