#include "optimizations/cuda_graph/cuda_graph.h"

#include "base/log.h"
#include "data/batch.h"
#include "device/device.h"
#include "device/memory.h"
#include "device/tensor.h"
#include "optimizations/info.h"
#include "train/plan.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace trainopt::cuda_graph {
namespace {

/// After how many replayed steps the time spent on recording is recovered.
std::string when_it_pays(const StepTrace& seen) {
  const double eager_ms = seen.count(kEagerStepMsLabel), replayed_ms = seen.count(kReplayedStepMsLabel);
  if (eager_ms == 0 || replayed_ms == 0) return "";
  const double saved_ms = eager_ms - replayed_ms;
  return fmt::format(", {} (one step: {:.2f} ms eager, {:.2f} ms replayed)",
                     saved_ms > 0 ? fmt::format("pays off after about {:.0f} steps",
                                                std::ceil(seen.count(kRecordingMsLabel) / saved_ms))
                                  : "which does not pay off",
                     eager_ms, replayed_ms);
}

Receipt receipt(const StepTrace& seen) {
  const double eager = seen.count(kEagerStepsLabel), replayed = seen.count(kReplayedStepsLabel);
  const bool effective = replayed > 0, ended = seen.count(kEndedLabel) != 0;
  return {.observed =
              fmt::format("{:.0f} of {:.0f} steps replayed{}; recording took {:.1f} ms{}", replayed, eager + replayed,
                          ended ? ", until memory ran out" : "", seen.count(kRecordingMsLabel), when_it_pays(seen)),
          .effective = effective,
          .reason = effective ? ""
                    : ended   ? "memory ran out while the first step was recorded"
                              : fmt::format("no kind of step occurred more than {} times", GraphRunner::kEagerSteps)};
}

}  // namespace

void check(OptionChecks& checks) {
  if (!checks.learning_rate_on_device)
    checks.refuse("optimizations.cuda_graph",
                  "needs optimizations.fused_optimizer: true, which keeps the learning rate on the device");
}

Outcome apply(Plan& plan) {
  if (!plan.device.is_cuda()) return Outcome::none("CUDA graphs need an NVIDIA GPU; this plan runs on the CPU");
  if (plan.position.ranks > 1) return Outcome::none("exchanges between several ranks cannot be recorded yet");
  if (!plan.learning_rate_on_device)
    return Outcome::none(
        "without fused_optimizer the host supplies the learning rate, and a recording would never see it change");
  if (plan.data.micro_batches_vary())
    return Outcome::none(
        "batches of documents differ in length and weight, and a recording is for one; data.padding: max without "
        "accumulation makes them alike");
  if (cycled_momentum(plan.scheduler) != nullptr)
    return Outcome::none(
        "the schedule moves the momentum, which a recording would never see change; scheduler.cycle_momentum=false "
        "does without");
  if (std::holds_alternative<SwaConfig>(plan.average_config))
    return Outcome::none("average.name: swa counts some steps only, and a recording is the same for every step");
  if (plan.rewinds_random_state)
    return Outcome::none(
        "activation_checkpointing sets dropout's random state back in every step, which a recording cannot; "
        "model.dropout=0 does without");
  plan.runner.fill("cuda_graph", "CUDA graphs, recorded and replayed",
                   [](const BuildContext& context) { return std::make_unique<GraphRunner>(context, make_graph); });
  plan.replays_steps = true;
  return Outcome::applied(
      fmt::format("each kind of step runs eagerly {} times, then is recorded and replayed", GraphRunner::kEagerSteps),
      receipt);
}

GraphRunner::GraphRunner(const BuildContext& context, MakeGraph make_graph)
    : device_(context.device),
      parameters_(*context.parameters),
      generator_(context.generator.value()),
      steps_done_(*context.steps_done),
      dumped_steps_(context.plan.logging.dump.steps),
      make_graph_(std::move(make_graph)),
      side_(Stream::side(device_, /*high_priority=*/true)),
      reached_(device_) {}

GraphRunner::Key GraphRunner::key_of(const Batch& micro) {
  Key key{std::bit_cast<int64_t>(micro.weight), micro.is_last};
  for (const auto field : kBatchFields) {
    const at::Tensor& tensor = micro.*field;
    key.push_back(tensor.defined());
    if (!tensor.defined()) continue;
    key.push_back(static_cast<int64_t>(tensor.scalar_type()));
    key.push_back(tensor.dim());
    key.insert(key.end(), tensor.sizes().begin(), tensor.sizes().end());
    key.insert(key.end(), tensor.strides().begin(), tensor.strides().end());
  }
  return key;
}

at::Tensor GraphRunner::micro_step(const StepBody& body, const Batch& micro) {
  if (micro.is_first) begin_step(micro);
  return run_on_side_stream([&] {
    if (!replaying_) return body.micro_step(micro);
    Key key = key_of(micro);
    const Batch& static_batch = copy_to_static_batch(key, micro);
    key.push_back(has_gradients());  // backward adds to them, or creates them
    return recorded(kind_->micro_steps[key], [&] { return body.micro_step(static_batch); })
        .clone();  // the step's next micro-batch may replay the same recording
  });
}

at::Tensor GraphRunner::update_step(const StepBody& body) {
  const at::Tensor norm =
      run_on_side_stream([&] { return replaying_ ? recorded(kind_->update, body.update_step) : body.update_step(); });
  ++(replaying_ ? kind_->replayed_steps : kind_->eager_steps);
  ++(replaying_ ? replayed_steps_ : eager_steps_);
  if (timed_since_) {
    synchronize(device_);
    (replaying_ ? kind_->replayed_ms : kind_->eager_ms) = milliseconds_between(*timed_since_, Clock::now());
  }
  return norm;
}

void GraphRunner::begin_step(const Batch& micro) {
  if (!records_) static_batches_.clear();
  kind_ = &kinds_[key_of(micro)];
  // The host gathers what is dumped, so the step must run eagerly.
  const bool dumped = std::find(dumped_steps_.begin(), dumped_steps_.end(), steps_done_ + 1) != dumped_steps_.end();
  replaying_ = records_ && !dumped && kind_->eager_steps >= kEagerSteps;
  timed_since_.reset();
  // Time the last eager step and the second replay: the first replay also uploads the graph to the device.
  if (!dumped && (replaying_ ? kind_->replayed_steps == 1 : kind_->eager_steps == kEagerSteps - 1)) {
    synchronize(device_);
    timed_since_ = Clock::now();
  }
}

GraphRunner::Copied::Copied(const at::Tensor& from)
    : storage(from.storage().getWeakStorageImpl()), offset(from.storage_offset()), version(from._version()) {}

bool GraphRunner::Copied::operator==(const Copied& other) const {
  return storage._unsafe_get_target() == other.storage._unsafe_get_target() && offset == other.offset &&
         version == other.version;
}

/// Copies the batch to the buffers that the recordings for this key read, unless they contain it already.
const Batch& GraphRunner::copy_to_static_batch(const Key& key, const Batch& micro) {
  const auto [found, is_new] = static_batches_.try_emplace(key, StaticBatch{micro, {}});
  for (size_t i = 0; i < kBatchFields.size(); ++i) {
    const at::Tensor& tensor = micro.*kBatchFields[i];
    if (!tensor.defined()) continue;
    at::Tensor& buffer = found->second.batch.*kBatchFields[i];
    if (is_new) buffer = at::empty_like(tensor);
    Copied now(tensor);
    if (found->second.copied[i] == now) continue;
    buffer.copy_(tensor, /*non_blocking=*/true);
    found->second.copied[i] = std::move(now);
    ++copies_;
  }
  return found->second.batch;
}

/// Replays one half of the step, recording it first if there is no recording yet.
at::Tensor GraphRunner::recorded(Recording& recording, const std::function<at::Tensor()>& half) {
  if (recording.graph) return replay(recording);
  const auto gradients = parameters_.gradients();
  try {
    recording = record(half);
  } catch (const std::exception& error) {  // named recovery: recording runs nothing
    if (!is_out_of_memory(error)) throw;
    log_warning("memory ran out while recording a step: no more steps will be recorded");
    log_debug("{}", error.what());
    set_gradients(gradients);
    stop_recording();
    return half();
  }
  return replay(recording);
}

GraphRunner::Recording GraphRunner::record(const std::function<at::Tensor()>& half) {
  const auto began = Clock::now();
  release_cached_memory(device_);  // a recording cannot use cached blocks, and must not fail because of them
  Recording recording{make_graph_(generator_, pool_owner_), {}, {}};
  recording.graph->record([&] { recording.result = half(); });
  recording.gradients = parameters_.gradients();
  pool_owner_ = recording.graph.get();
  recording_ms_ += milliseconds_between(began, Clock::now());
  return recording;
}

at::Tensor GraphRunner::replay(const Recording& recording) {
  recording.graph->replay();
  set_gradients(recording.gradients);  // host state that the replay does not restore
  return recording.result;
}

void GraphRunner::set_gradients(const std::vector<at::Tensor>& gradients) {
  for (size_t i = 0; i < gradients.size(); ++i) parameters_.parameters()[i].second.mutable_grad() = gradients[i];
}

/// May be called in the middle of a step: the step's batch stays in its buffers.
void GraphRunner::stop_recording() {
  synchronize(device_);  // replays may still be running
  for (auto& [key, kind] : kinds_) {
    kind.micro_steps.clear();
    kind.update = {};
  }
  pool_owner_ = nullptr;
  records_ = replaying_ = false;
  timed_since_.reset();
  release_cached_memory(device_);
}

/// Runs `work` on the side stream, after all that is queued on the current stream and before all that follows there.
at::Tensor GraphRunner::run_on_side_stream(const std::function<at::Tensor()>& work) {
  const Stream here = Stream::current(device_);
  order(here, side_);
  at::Tensor result;
  {
    const StreamGuard guard(side_);
    result = work();
  }
  order(side_, here);
  return result;
}

void GraphRunner::order(const Stream& first, const Stream& then) {
  reached_.record(first);
  reached_.block(then);
}

bool GraphRunner::has_gradients() const {
  const auto& parameters = parameters_.parameters();
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const auto& parameter) { return parameter.second.grad().defined(); });
}

bool GraphRunner::drop_state(bool permanently) {
  const bool recorded = pool_owner_ != nullptr;
  if (recorded && permanently) records_ = false;
  synchronize(device_);  // the failed micro-step may have queued work on the side stream, which nothing waits for
  kind_ = nullptr;
  pool_owner_ = nullptr;
  kinds_.clear();
  static_batches_.clear();
  return recorded;
}

void GraphRunner::report(StepTrace& trace) const {
  trace.counts[kEagerStepsLabel] = static_cast<double>(eager_steps_);
  trace.counts[kReplayedStepsLabel] = static_cast<double>(replayed_steps_);
  trace.counts[kCopiesLabel] = static_cast<double>(copies_);
  trace.counts[kEndedLabel] = records_ ? 0 : 1;
  trace.counts[kRecordingMsLabel] = recording_ms_;
  for (int64_t most = 0; const auto& [key, kind] : kinds_) {
    if (kind.replayed_steps <= most) continue;
    most = kind.replayed_steps;
    trace.counts[kEagerStepMsLabel] = kind.eager_ms;
    trace.counts[kReplayedStepMsLabel] = kind.replayed_ms;
  }
}

}  // namespace trainopt::cuda_graph
