#include "debugging/wait_finder.h"

#include "base/clock.h"
#include "base/units.h"
#include "device/sync_reports.h"
#include "device/tensor.h"
#include "train/observe/observed_step.h"
#include "train/observe/operation_listener.h"
#include "train/observe/profiler.h"
#include "train/plan.h"
#include "train/step_place.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <utility>

namespace trainopt {
namespace {

constexpr std::string_view kLibtorch = "aten::", kCopy = "aten::copy_", kRepeat = "aten::repeat_interleave",
                           kScaledProduct = "aten::_scaled_mm",
                           kReported = "libtorch reports that the host waited for the GPU",
                           kNoOperation = "a call outside any operation";

constexpr std::string_view kReadsValue = "the host reads a value from the device",
                           kSizeDepends = "the size of the result depends on values on the device";

/// Operations that cannot return before the device has computed their input. Others wait only through one of these:
/// item() and is_nonzero() read with _local_scalar_dense, indexing by a mask and argwhere() call nonzero, allclose()
/// calls item().
constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kReading{
    {{"aten::_local_scalar_dense", kReadsValue},
     {"aten::equal", kReadsValue},
     {"aten::nonzero", kSizeDepends},
     {"aten::masked_select", kSizeDepends},
     {"aten::_unique", kSizeDepends},
     {"aten::_unique2", kSizeDepends},
     {"aten::unique_dim", kSizeDepends},
     {"aten::unique_consecutive", kSizeDepends},
     {"aten::unique_dim_consecutive", kSizeDepends},
     {"aten::bincount", kSizeDepends},
     {"aten::repeat_interleave", "the size of the result is the sum of the repeats; pass output_size"}}};

/// Why an operation of this name waits, if its input is on a GPU: the host needs a value from there. Empty: it does
/// not.
std::string_view why_reading_waits(std::string_view operation) {
  const auto found =
      std::find_if(kReading.begin(), kReading.end(), [&](const auto& entry) { return entry.first == operation; });
  return found == kReading.end() ? std::string_view() : found->second;
}

std::string_view why_copy_waits(c10::ArrayRef<const c10::IValue> inputs) {
  if (inputs.size() < 3 || !inputs[0].isTensor() || !inputs[1].isTensor() || !inputs[2].isBool()) return {};
  const at::Tensor &to = inputs[0].toTensor(), &from = inputs[1].toTensor();
  if (to.device().is_cpu() == from.device().is_cpu()) return {};
  const bool to_host = to.device().is_cpu();
  return why_copying_waits(
      {.to_host = to_host, .pinned = (to_host ? to : from).is_pinned(), .non_blocking = inputs[2].toBool()});
}

/// On a CPU plan every tensor stands for one on a GPU.
std::string_view why_it_waits(std::string_view name, c10::ArrayRef<const c10::IValue> inputs, bool on_cpu) {
  if (name == kCopy) return why_copy_waits(inputs);
  const std::string_view why = why_reading_waits(name);
  if (why.empty() || inputs.empty() || !inputs[0].isTensor()) return {};
  if (!on_cpu && inputs[0].toTensor().device().is_cpu()) return {};
  // repeat_interleave(repeats, output_size); the other form calls this one.
  if (name == kRepeat && (inputs.size() != 2 || !inputs[1].isNone())) return {};
  return why;
}

}  // namespace

class WaitFinder::Listener : public OperationListener {
 public:
  explicit Listener(bool on_cpu) : on_cpu_(on_cpu) {}

  /// From now on libtorch's reports count, on every thread. `reports` must outlive this listener's operations.
  void count(const SyncReports& reports) { reports_ = &reports; }

  std::unique_ptr<at::ObserverContext> start(const at::RecordFunction& function) override {
    const std::lock_guard lock(mutex_);
    if (function.scope() == at::RecordScope::USER_SCOPE) {
      labels_.begin(function.name());
      return nullptr;
    }
    auto& open = open_[function.threadId()];
    OpenOperation operation{.name = function.name()};
    if (!waits(open) && !reads_scales(open)) operation.why = why_it_waits(operation.name, function.inputs(), on_cpu_);
    open.push_back(std::move(operation));
    return reports_ ? std::make_unique<ReportedHere>(*reports_) : nullptr;
  }

  void end(const at::RecordFunction& function, at::ObserverContext*) override {
    const std::lock_guard lock(mutex_);
    if (function.scope() == at::RecordScope::USER_SCOPE) return labels_.end(function.name());
    auto& open = open_[function.threadId()];
    if (open.empty()) return;  // begun before this listened
    if (const auto& [name, why, began] = open.back(); !why.empty())
      add(called(open), std::string(why), milliseconds_between(began, Clock::now()));
    open.pop_back();
  }

  /// libtorch has reported a wait on this thread.
  void reported() {
    const std::lock_guard lock(mutex_);
    auto& open = open_[at::RecordFunction::currentThreadId()];
    if (waits(open)) return;  // counted already
    if (open.empty()) return add(std::string(kNoOperation), std::string(kReported), std::nullopt);
    open.back().why = kReported;
  }

  std::vector<HiddenWait> found() const {
    const std::lock_guard lock(mutex_);
    return found_;
  }

 private:
  /// An operation that has begun and not ended on a thread.
  struct OpenOperation {
    std::string name;
    std::string_view why = {};  ///< why it waits; empty: it does not, as far as known
    Clock::time_point began = Clock::now();
  };

  /// The name by which the program called the innermost operation.
  static std::string called(const std::vector<OpenOperation>& open) {
    size_t outermost = open.size() - 1;
    while (outermost > 0 && open[outermost - 1].name.starts_with(kLibtorch)) --outermost;
    return open[outermost].name;
  }

  /// libtorch keeps reports of a backward thread to the end of backward, unless the thread has a handler of its own.
  struct ReportedHere : at::ObserverContext {
    explicit ReportedHere(const SyncReports& reports) : on_thread(reports) {}
    SyncReports::OnThread on_thread;
  };

  static bool waits(const std::vector<OpenOperation>& open) {
    return std::any_of(open.begin(), open.end(), [](const OpenOperation& each) { return !each.why.empty(); });
  }

  /// libtorch's product of scaled matrices reads their scales on the host on a CPU, and on the device on a GPU.
  bool reads_scales(const std::vector<OpenOperation>& open) const {
    return on_cpu_ &&
           std::any_of(open.begin(), open.end(), [](const OpenOperation& each) { return each.name == kScaledProduct; });
  }

  void add(std::string operation, std::string why, std::optional<double> ms) {
    const auto [phase, unit] = labels_.place();
    const auto same = std::find_if(found_.begin(), found_.end(), [&](const HiddenWait& known) {
      return known.operation == operation && known.where == phase && known.unit == unit && known.why == why;
    });
    auto& wait = same != found_.end()
                     ? *same
                     : found_.emplace_back(HiddenWait{
                           .operation = std::move(operation), .where = phase, .unit = unit, .why = std::move(why)});
    ++wait.calls;
    if (ms) wait.ms = wait.ms.value_or(0) + *ms;
  }

  bool on_cpu_;
  const SyncReports* reports_ = nullptr;
  mutable std::mutex mutex_;
  OpenLabels labels_;
  std::map<uint64_t, std::vector<OpenOperation>> open_;  ///< by thread
  std::vector<HiddenWait> found_;
};

WaitFinder::WaitFinder(c10::Device device) : listener_(std::make_shared<Listener>(device.is_cpu())) {
  if (!device.is_cpu()) {
    reports_ = std::make_unique<SyncReports>([listener = listener_] { listener->reported(); });
    listener_->count(*reports_);
  }
  listening_ = std::make_unique<Listening>(ListensFor::waits, listener_);
}

WaitFinder::~WaitFinder() = default;

std::vector<HiddenWait> WaitFinder::found() const { return listener_->found(); }

namespace {

class WaitFindingProfiler : public WrappedProfiler {
 public:
  WaitFindingProfiler(std::unique_ptr<StepProfiler> inner, const BuildContext& context)
      : WrappedProfiler(std::move(inner)), device_(context.device), planned_steps_(context.plan.steps) {}

  Profiling begin_step(int64_t step) override {
    const Profiling profiling = WrappedProfiler::begin_step(step);
    if (!found_ && ObservedStep::observes(steps_, planned_steps_ ? *planned_steps_ - step + 1 : 2))
      finder_ = std::make_unique<WaitFinder>(device_);
    ++steps_;
    return profiling;
  }
  void end_step() override {
    if (finder_) found_ = finder_->found();
    finder_.reset();
    WrappedProfiler::end_step();
  }
  void report(StepTrace& trace) const override {
    trace.hidden_waits = found_;
    WrappedProfiler::report(trace);
  }

 private:
  c10::Device device_;
  std::optional<int64_t> planned_steps_;
  int64_t steps_ = 0;  ///< begun in this process
  std::unique_ptr<WaitFinder> finder_;
  std::optional<std::vector<HiddenWait>> found_;
};

}  // namespace

void add_find_syncs(Plan& plan) {
  plan.profiler.wrap("debug.find_syncs", "finding the hidden waits of one step",
                     [](const BuildContext& context, std::unique_ptr<StepProfiler> inner) {
                       label_units(*context.model);
                       return std::make_unique<WaitFindingProfiler>(std::move(inner), context);
                     });
}

std::string_view why_copying_waits(const HostCopy& copy) {
  if (copy.to_host)
    return copy.non_blocking && copy.pinned ? ""
           : copy.non_blocking              ? "a copy to pageable host memory waits although it is non-blocking"
                                            : "a blocking copy to the host";
  if (!copy.pinned)
    return copy.non_blocking ? "a copy from pageable host memory, which the driver first copies to page-locked memory"
                             : "a blocking copy from pageable host memory";
  return copy.non_blocking ? "" : "a blocking copy, although the host memory is page-locked";
}

std::string hidden_waits_text(const std::vector<HiddenWait>& waits, int64_t step, bool on_cpu) {
  const std::string of_gpu = on_cpu ? " (operations that would wait on a GPU; copies are not checked on a CPU)" : "";
  if (waits.empty()) return fmt::format("hidden waits: none in step {}{}", step, of_gpu);
  std::string text = fmt::format("hidden waits in step {}{}", step, of_gpu);
  for (const HiddenWait& wait : waits)
    text += fmt::format(
        "\n  {}: {}{}{}: {}", wait.operation, counted(wait.calls, "call"),
        wait.ms ? fmt::format(", {:.3f} ms", *wait.ms) : "",
        wait.unit.empty() ? fmt::format(" in {}", wait.where) : fmt::format(" in {} of unit {}", wait.where, wait.unit),
        wait.why);
  return text;
}

Json hidden_waits_json(const std::vector<HiddenWait>& waits) {
  Json json = Json::array();
  for (const HiddenWait& wait : waits)
    json.push_back({{"operation", wait.operation},
                    {"where", wait.where},
                    {"unit", wait.unit.empty() ? Json() : Json(wait.unit)},
                    {"calls", wait.calls},
                    {"ms", wait.ms ? Json(*wait.ms) : Json()},
                    {"why", wait.why}});
  return json;
}

}  // namespace trainopt
