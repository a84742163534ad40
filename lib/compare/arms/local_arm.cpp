#include "compare/arms/local_arm.h"

#include "base/files/files.h"
#include "base/philox.h"
#include "base/units.h"
#include "debugging/dump.h"
#include "device/memory.h"
#include "device/tensor.h"
#include "metrics/hardware/process_probe.h"
#include "recipe/plan_text.h"
#include "train/plan.h"
#include "train/receipt.h"

#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace trainopt {
namespace {

const std::atomic<int>& never() {
  static const std::atomic<int> none{0};
  return none;
}

/// Records go to files as the recipe specifies; the console belongs to the comparison.
LoggingConfig in_files(LoggingConfig logging) {
  std::erase(logging.sinks, SinkKind::console);
  logging.progress = Progress::off;
  return logging;
}

CheckpointWriterOptions checkpoint_options(const Plan& plan, const std::filesystem::path& folder) {
  CheckpointWriterOptions options;
  options.root = folder / "checkpoints";
  options.every_n_steps = plan.checkpoint.every_n_steps;
  options.keep_last = plan.checkpoint.keep_last;
  options.background = plan.checkpoint.background;
  options.position = plan.position;
  return options;
}

int64_t period_of(const Plan& plan) {
  const int64_t evaluations = plan.evaluation ? plan.evaluation->every_n_steps.value_or(1) : 1;
  const int64_t checkpoints = plan.position.ranks == 1 ? plan.checkpoint.every_n_steps.value_or(1) : 1;
  return std::lcm(std::lcm(evaluations, checkpoints), plan.logging.sinks.empty() ? 1 : plan.logging.every_n_steps);
}

}  // namespace

std::filesystem::path update_file(const std::filesystem::path& arm_folder) {
  return arm_folder / "first-update.safetensors";
}
std::filesystem::path gradients_file(const std::filesystem::path& arm_folder, int64_t step) {
  return arm_folder / "dump" / fmt::format("step-{:08}.safetensors", step);
}

std::vector<int64_t> gradient_steps(const Plan& plan) {
  constexpr int64_t kManyParameters = int64_t{1} << 25;
  if (plan.model.parameters > kManyParameters) return {1};
  return {1, 3, 4, 5};
}

namespace {

int64_t last_compared_step(const Plan& plan) { return gradient_steps(plan).back() - 1 + kUpdateSteps; }

}  // namespace

LocalArm::LocalArm(Plan plan, std::filesystem::path folder, LocalArmOptions options)
    : folder_(std::move(folder)), options_(std::move(options)) {
  if (plan.position.is_first()) create_folders(folder_);
  if (plan.position.is_first() && !plan.logging.sinks.empty()) {
    sinks_ = std::make_unique<Sinks>(in_files(plan.logging), folder_, ConsoleOptions{.fd = STDERR_FILENO});
    telemetry_ = std::make_unique<Telemetry>(TelemetryOptions{
        .device = plan.device, .interval_s = plan.telemetry.interval.seconds, .file = folder_ / "telemetry.jsonl"});
  }
  compared_steps_ = last_compared_step(plan);
  plan.logging.dump = {.steps = gradient_steps(plan), .what = {DumpKind::gradients}};
  plan.still_steps = plan.logging.dump.steps.back() - 1;
  add_dump(plan, RankDumps::complete);
  if (plan.checkpoint.every_n_steps && plan.position.ranks == 1)
    checkpoints_ = std::make_unique<CheckpointWriter>(checkpoint_options(plan, folder_));
  trainer_ = std::make_unique<Trainer>(std::move(plan), folder_, *this, never(),
                                       Persistence{.checkpoints = checkpoints_.get()}, options_.communicator);
  before_training_s_ = seconds_since(options_.began);
}

LocalArm::~LocalArm() = default;

void LocalArm::step_done(const StepRecord& row) {
  StepRecord full_row = row;
  if (telemetry_) telemetry_->fill(full_row);
  if (sinks_) sinks_->write(full_row);
  turn_.step_ms.push_back(full_row[Metric::step_ms].value_or(0));
  turn_.losses.push_back(full_row[Metric::loss].value_or(0));
  turn_.phases.add(full_row);
  turn_.data_wait_s += full_row[Metric::data_wait_ms].value_or(0) * 1e-3;
  if (const auto& scale = full_row[Metric::loss_scale]) {
    if (*scale < last_loss_scale_) ++turn_.overflows;
    last_loss_scale_ = *scale;
  }
  turn_.samples += full_row.step_samples;
  turn_.tokens += full_row.step_tokens;
  if (const auto& clock = full_row[Metric::gpu_sm_clock_mhz]) {
    clock_sum_ += *clock;
    ++clock_count_;
  }
  if (const auto& throttle = full_row[Metric::gpu_throttle])
    turn_.throttle = turn_.throttle.value_or(0) | std::llround(*throttle);
}

Turn LocalArm::turn(int64_t steps) {
  const int64_t earlier = trainer_->outcome().steps;
  const bool is_first = takes_first_steps_ && earlier < compared_steps_;
  if (earlier == 0) before_ = copy_of_state();
  NamedTensors update;
  turn_ = {};
  clock_sum_ = 0;
  clock_count_ = 0;
  if (telemetry_) telemetry_->resume();
  const double cpu_before = process_cpu_seconds();
  const auto began = Clock::now();
  for (bool last = steps == 0; !last;) {
    trainer_->step();
    ++turn_.steps;
    last = turn_.steps == steps || limit_.is_reached();
    const int64_t now = earlier + turn_.steps;
    if (is_first && (now == compared_steps_ || (now < compared_steps_ && last))) update = update_since(before_);
  }
  trainer_->pause();
  if (checkpoints_) checkpoints_->finish();  // what is still being written is this arm's work
  if (telemetry_) telemetry_->pause();
  turn_.seconds = seconds_since(began);
  turn_.cpu_s = process_cpu_seconds() - cpu_before;
  if (clock_count_ > 0) turn_.sm_clock_mhz = clock_sum_ / static_cast<double>(clock_count_);
  // Overflows show in the next step's loss scale.
  if (const at::Tensor scale = trainer_->parts().precision().loss_scale();
      scale.defined() && scale.item<double>() < last_loss_scale_) {
    ++turn_.overflows;
    last_loss_scale_ = scale.item<double>();
  }
  if (is_first && trainer_->plan().position.is_first()) save_tensors(update_file(folder_), update);
  if (earlier + turn_.steps >= compared_steps_) before_.clear();
  return turn_;
}

ArmFacts LocalArm::facts() {
  takes_first_steps_ = false;
  before_.clear();
  const Plan& plan = trainer_->plan();
  const RunOutcome& outcome = trainer_->outcome();
  ArmFacts facts;
  facts.step_samples = plan.data.schedule().step_samples();
  if (options_.whole) facts.period = period_of(plan);
  facts.time_to_first_step_s = before_training_s_ + outcome.time_to_first_step_s.value_or(0);
  if (options_.exclusive_process) facts.peak_memory_mib = peak_memory_mib(plan.device);
  facts.plan = plan_json(plan);
  facts.price_per_hour = plan.bench.price_per_hour;
  facts.receipts = receipts_json(receipts(plan.switches, outcome.trace));
  if (const StepTrace& seen = outcome.trace; seen.step != 0)
    facts.ranks.push_back({.peak_memory_mib = facts.peak_memory_mib,
                           .state_mib = mib(seen.parameter_bytes + seen.gradient_bytes + seen.optimizer_bytes),
                           .sent_mib = seen.sent_bytes / 0x1p20});
  return facts;
}

NamedTensors LocalArm::copy_of_state() {
  std::set<std::string> buffers;
  for (const auto& [name, tensor] : trainer_->parts().model().buffers()) buffers.insert(name);
  NamedTensors copies;
  trainer_->during("reading the weights", [&] {
    for (const auto& [name, tensor] : trainer_->weights()) {
      // In float32, because another arm may hold its weights in another type. Truth values have no difference.
      const auto own = tensor.scalar_type();
      const auto type = own == at::kBFloat16 ? at::kFloat : own == at::kBool ? at::kInt : own;
      copies.emplace_back(buffers.contains(name) ? std::string(kBufferPrefix) + name : name,
                          tensor.detach().to(type, /*non_blocking=*/false, /*copy=*/true));
    }
  });
  return copies;
}

NamedTensors LocalArm::update_since(NamedTensors before) {
  std::vector<double> along;
  const NamedTensors now = copy_of_state();
  for (size_t i = 0; i < now.size(); ++i) {
    at::Tensor& first = before[i].second;
    const at::Tensor& last = now[i].second;
    const at::Tensor update = at::where(last == first, at::zeros_like(last), last - first);  // −∞ in masks stays
    if (!now[i].first.starts_with(kBufferPrefix)) {
      const double length = first.norm().item<double>();
      along.push_back(length > 0 ? (update * first).sum().item<double>() / length : 0);
    }
    first = update;
  }
  before.emplace_back(kAlongWeights, at::tensor(along, at::kFloat));
  return before;
}

namespace {

// Separate these draws from those of the initial weights and from each other.
constexpr uint64_t kSigns = 0x7065727475726264, kSignsOfGradients = 0x6772616469656e74;

/// +1 or −1 for each of `count` elements, int8, on the CPU. One Philox block provides 128 signs.
at::Tensor signs(int64_t count, uint64_t key) {
  at::Tensor all = at::empty({count}, at::kChar);
  int8_t* const out = all.mutable_data_ptr<int8_t>();
  PhiloxBlock bits{};
  for (int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<uint64_t>(i);
    if (index % 128 == 0) bits = philox(key, 0, index / 128);
    const bool up = bits[index % 128 / 32] >> (index % 32) & 1;
    out[i] = up ? 1 : -1;
  }
  return all;
}

at::Tensor signs_like(const at::Tensor& tensor, uint64_t key) {
  return signs(tensor.numel(), key).view(tensor.sizes()).to(tensor.device());
}

/// Moves each element of each gradient by the perturbation, relative to the tensor's root mean square.
class PerturbedGradients : public WrappedPrecision {
 public:
  PerturbedGradients(std::unique_ptr<Precision> inner, uint64_t seed, int64_t steps)
      : WrappedPrecision(std::move(inner)), seed_(seed), steps_left_(steps) {}
  at::Tensor unscale(Gradients& gradients) override {
    const at::NoGradGuard no_grad;
    at::Tensor overflow = WrappedPrecision::unscale(gradients);
    // Only in steps whose update is compared: a twin also shows the noise of A's speed, so it must not do more.
    if (steps_left_-- <= 0) return overflow;
    const auto& tensors = gradients.tensors();
    for (size_t i = 0; i < tensors.size(); ++i) {
      at::Tensor gradient = tensors[i];
      if (!gradient.defined() || gradient.numel() == 0) continue;
      if (signs_.size() <= i) signs_.resize(i + 1);
      const std::string& name = gradients.parameters()[i].first;
      if (!signs_[i].defined()) signs_[i] = signs_like(gradient, mix_key(mix_key(seed_, kSignsOfGradients), name));
      const double by = gradient.scalar_type() == at::kBFloat16 ? kPerturbationOfBfloat16 : kPerturbation;
      const double root = std::sqrt(static_cast<double>(gradient.numel()));
      gradient.add_(signs_[i] * (gradient.norm() * (by / root)));
    }
    return overflow;
  }

 private:
  uint64_t seed_;
  int64_t steps_left_;
  std::vector<at::Tensor> signs_;  ///< each gradient's directions, the same in every step
};

}  // namespace

void perturb_weights(Model& model, uint64_t seed) {
  const at::NoGradGuard no_grad;
  for (auto& [name, parameter] : model.parameters()) {
    const double by = parameter.scalar_type() == at::kBFloat16 ? kPerturbationOfBfloat16 : kPerturbation;
    const at::Tensor up = signs_like(parameter, mix_key(mix_key(seed, kSigns), name)).gt(0);
    parameter.mul_(at::where(up, 1 + by, 1 - by).to(parameter.scalar_type()));
  }
}

void begin_perturbed(Plan& plan, uint64_t number) {
  const uint64_t seed = mix_key(plan.seed, number);
  plan.wrap_model.insert(plan.wrap_model.begin(), [seed](Model& model) { perturb_weights(model, seed); });
  const int64_t steps = last_compared_step(plan);
  plan.precision.wrap("perturbed twin", "perturbed gradients",
                      [seed, steps](const BuildContext&, std::unique_ptr<Precision> inner) {
                        return std::make_unique<PerturbedGradients>(std::move(inner), seed, steps);
                      });
}

}  // namespace trainopt
