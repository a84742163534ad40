#include "train/observe/profiler.h"

#include "base/error.h"
#include "base/files/files.h"
#include "base/log.h"
#include "base/units.h"
#include "comm/communicator.h"
#include "device/device.h"
#include "device/profiler_recording.h"
#include "device/trace_range.h"
#include "model/model.h"
#include "trace/finished_trace.h"
#include "train/observe/autograd_hooks.h"
#include "train/plan.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace trainopt {
namespace {

bool records(const ProfilerConfig& config, ProfiledActivity activity) {
  return std::find(config.activities.begin(), config.activities.end(), activity) != config.activities.end();
}

RecordingOptions recording_options(const ProfilerConfig& config) {
  return {.cpu = records(config, ProfiledActivity::cpu),
          .gpu = records(config, ProfiledActivity::gpu),
          .shapes = config.record_shapes || config.with_flops,
          .memory = config.profile_memory};
}

class RecordingProfiler : public StepProfiler {
 public:
  RecordingProfiler(const ProfilerConfig& config, const BuildContext& context)
      : config_(config),
        device_(context.device),
        communicator_(*context.communicator),
        folder_(context.run_dir / "trace") {}

  Profiling begin_step(int64_t step) override {
    const Profiling profiling = profiling_of(config_, steps_++);
    if (profiling == Profiling::none) return profiling;
    if (!recording_) recording_.emplace(recording_options(config_));
    if (profiling == Profiling::warmup) return profiling;
    if (!first_step_) {
      recording_->start();
      { const TraceRange first("profiler"); }  // a thread's first event takes longer, and belongs to no step
      first_step_ = step;
    }
    label_name_ = fmt::format("ProfilerStep#{}", step);
    label_ = std::make_unique<TraceRange>(label_name_.c_str());
    return profiling;
  }

  bool ends_recording() const override {
    const bool adjoin = config_.wait + config_.warmup == 0 && steps_ % config_.active == 0;
    return first_step_ && (adjoin || profiling_of(config_, steps_) != Profiling::active);
  }

  void end_step() override {
    label_.reset();
    if (ends_recording()) save();
  }

  void finish() override {
    label_.reset();
    if (first_step_) save();
    if (saved_ == 0)
      log_warning("the run ended before the profiler's first recording, which begins with step {} of the process",
                  config_.wait + config_.warmup + 1);
  }

 private:
  void save() {
    synchronize(device_);
    const std::string suffix = fmt::format("-step{}.json", *first_step_);
    const auto trace = folder_ / fmt::format("rank{}{}.gz", communicator_.rank(), suffix);
    auto raw = trace;
    raw.replace_extension();
    first_step_.reset();
    ++saved_;
    try {
      write(raw, trace);
      log_info("wrote {}", trace.string());
    } catch (const UserError& error) {  // named recovery: the training does not depend on its trace
      log_warning("{}; training continues", error.what());
    }
    recording_.reset();
    if (communicator_.ranks() > 1) merge(suffix);
  }

  void write(const std::filesystem::path& raw, const std::filesystem::path& trace) {
    create_folders(folder_);
    recording_->save(raw);
    trace::finish_trace(
        raw, trace, {.rank = communicator_.rank(), .ranks = communicator_.ranks(), .call_stacks = config_.with_stack});
  }

  /// Ranks on other machines write to disks that this one may not see.
  void merge(const std::string& suffix) {
    gather_texts(communicator_, "");  // every rank has written its trace
    try {
      if (communicator_.rank() == 0) merge_files(suffix);
    } catch (const UserError& error) {  // named recovery: as in save()
      log_warning("{}; training continues", error.what());
    }
    gather_texts(communicator_, "");  // no rank waits in its next step for rank 0
  }

  void merge_files(const std::string& suffix) {
    std::vector<std::filesystem::path> of_ranks;
    for (int64_t rank = 0; rank < communicator_.ranks(); ++rank) {
      of_ranks.push_back(folder_ / fmt::format("rank{}{}.gz", rank, suffix));
      if (kind_of(of_ranks.back()) == PathKind::absent)
        return log_warning("the ranks' traces were not merged: rank 0 cannot read rank {}'s, {}", rank,
                           of_ranks.back().string());
    }
    trace::merge_traces(of_ranks, folder_ / fmt::format("all-ranks{}.gz", suffix));
  }

  ProfilerConfig config_;
  at::Device device_;
  Communicator& communicator_;
  std::filesystem::path folder_;
  int64_t steps_ = 0;  ///< steps begun in this process
  int64_t saved_ = 0;  ///< recordings saved
  std::optional<ProfilerRecording> recording_;
  std::optional<int64_t> first_step_;  ///< first step of the recording in progress
  std::string label_name_;
  std::unique_ptr<TraceRange> label_;
};

}  // namespace

Profiling profiling_of(const ProfilerConfig& config, int64_t index) {
  const int64_t cycle = config.wait + config.warmup + config.active;
  if (config.repeat > 0 && index / cycle >= config.repeat) return Profiling::none;
  const int64_t at = index % cycle;
  return at < config.wait ? Profiling::none : at < config.wait + config.warmup ? Profiling::warmup : Profiling::active;
}

int64_t profiled_steps(const ProfilerConfig& config) {
  TRAINOPT_CHECK(config.repeat > 0);
  return (config.wait + config.warmup + config.active) * config.repeat;
}

void add_profiler(Plan& plan, const ProfilerConfig& config) {
  if (plan.device.is_cpu() && !config.activities.empty() && !records(config, ProfiledActivity::cpu))
    throw UserError(
        "profiler.activities is [gpu], and this job runs on the CPU, so its traces would be empty; add cpu");
  plan.memory_snapshot = config.memory_snapshot;
  plan.records_traces = !config.activities.empty();
  if (plan.memory_snapshot && plan.records_traces && plan.device.is_cuda())
    throw UserError(
        "profiler.memory_snapshot listens on a GPU where libtorch's profiler does; add activities: [] to it, and "
        "record "
        "the trace in another run");
  auto what =
      config.activities.empty()
          ? std::string("labels only")
          : fmt::format("{} after {}, {}", counted(config.active, "step"), counted(config.wait + config.warmup, "step"),
                        config.repeat == 0 ? "repeated to the end" : counted(config.repeat, "time"));
  if (config.memory_snapshot) what += ", the memory's history to the end of the run";
  plan.profiler.fill("profiler", what, [config](const BuildContext& context) -> std::unique_ptr<StepProfiler> {
    if (config.units) label_units(*context.model);
    if (config.activities.empty()) return std::make_unique<StepProfiler>();
    return std::make_unique<RecordingProfiler>(config, context);
  });
}

namespace {

/// The label of the unit whose backward is running. Backward runs the units in reverse order, so the next one's label
/// ends the previous one's.
class BackwardLabel {
 public:
  /// `name` must outlive the label.
  void begin(const std::string& name) {
    if (const int64_t id = current_backward(); std::exchange(backward_, id) != id)
      at_end_of_backward([this] { range_.reset(); });
    range_.reset();  // before the next one begins: ranges of a thread nest
    range_ = std::make_unique<TraceRange>(name.c_str(), TraceRange::Ends::on_any_thread);
  }

 private:
  std::unique_ptr<TraceRange> range_;
  int64_t backward_ = -1;  ///< the one that begin() was last called in; an exception may have ended it
};

class LabelledUnit : public WrappedUnit {
 public:
  LabelledUnit(std::unique_ptr<Unit> inner, std::shared_ptr<BackwardLabel> backward)
      : WrappedUnit(std::move(inner)),
        forward_name_(std::string(kUnitLabel) + name()),
        backward_name_(std::string(kUnitBackwardLabel) + name()),
        backward_(std::move(backward)) {}

  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    const TraceRange range(forward_name_.c_str());
    at::Tensor output = inner_->forward(input, context);
    if (context.training) before_backward_of(output, [this] { backward_->begin(backward_name_); });
    return output;
  }

 private:
  std::string forward_name_, backward_name_;
  std::shared_ptr<BackwardLabel> backward_;
};

}  // namespace

void label_units(Model& model) {
  if (dynamic_cast<const LabelledUnit*>(model.units().front().get())) return;
  const auto backward = std::make_shared<BackwardLabel>();
  model.wrap_units(
      [&](std::unique_ptr<Unit> unit) { return std::make_unique<LabelledUnit>(std::move(unit), backward); });
}

}  // namespace trainopt
