#include "recipe/plain_plan.h"

#include "base/units.h"
#include "data/evaluation_transforms.h"
#include "data/formats/table.h"
#include "data/formats/text/text_dataset.h"
#include "data/files/overlap.h"
#include "device/device.h"
#include "model/catalogue.h"
#include "recipe/program_of_plan.h"
#include "recipe/short_batch.h"
#include "recipe/validate.h"

#include <algorithm>

namespace trainopt {
namespace {

constexpr const char* kNoGpu = "no GPU found";

struct ChosenDevice {
  at::Device device;
  std::string reason;
};

/// Each rank on a machine has its own GPU.
ChosenDevice gpu_of(const RankPosition& position, const Machine& machine, std::string reason) {
  if (position.local_ranks > 1 && position.local_ranks > machine.gpus && !machine.assumed)
    throw UserError(
        fmt::format("device: every rank needs its own GPU; start fewer ranks here or use cpu: {} ranks, {} GPUs",
                    position.local_ranks, machine.gpus));
  return {at::Device(at::kCUDA, static_cast<at::DeviceIndex>(position.local_rank)), std::move(reason)};
}

/// Why this machine's first GPU cannot be used; empty if it can.
std::string why_no_gpu(const Machine& machine) {
  if (machine.gpus == 0) return machine.gpu_trouble.empty() ? kNoGpu : machine.gpu_trouble;
  if (machine.sm < kMinSm) return why_too_old(machine.gpu, machine.sm);
  return machine.gpu_trouble;
}

ChosenDevice choose_device(const std::string& wanted, const Machine& machine, const RankPosition& position) {
  if (wanted == "cpu") return {at::kCPU, "set in the recipe"};
  const std::string why_not = why_no_gpu(machine);
  if (wanted == "auto")
    return why_not.empty() ? gpu_of(position, machine, "auto: GPU found") : ChosenDevice{at::kCPU, "auto: " + why_not};
  if (machine.gpus == 0)
    throw UserError(
        fmt::format("device: {}, but {}", wanted,
                    machine.gpu_trouble.empty() ? "this process sees no GPU and no NVIDIA driver" : why_not));
  if (position.local_ranks > 1) {
    if (wanted != "cuda")
      throw UserError(fmt::format("device: several ranks cannot share one GPU; use auto or cuda: {}", wanted));
    return gpu_of(position, machine, "set in the recipe");
  }
  const int index = wanted == "cuda" ? 0 : std::stoi(wanted.substr(5));
  if (index >= machine.gpus)
    throw UserError(fmt::format("device: the recipe asks for a GPU that does not exist; use auto or cpu: {}, {} GPUs",
                                wanted, machine.gpus));
  return {at::Device(at::kCUDA, static_cast<at::DeviceIndex>(index)), "set in the recipe"};
}

/// Ranks are ordered by stage first (train/ranks.h).
RankPosition replica_of(const RankPosition& position, int64_t stages) {
  if (position.ranks == 1 || stages == 1) return position;
  if (position.ranks % stages != 0)
    throw UserError(
        fmt::format("parallel.pipeline.stages must divide the number of ranks: {}, {}", stages, position.ranks));
  const int64_t replicas = position.ranks / stages, rank = position.rank % replicas;
  return {.rank = rank, .ranks = replicas, .local_rank = rank, .local_ranks = replicas};
}

int64_t accumulation_or_throw(const Recipe& recipe, int64_t ranks) {
  const auto found = accumulation(recipe, ranks);
  if (const auto* problem = std::get_if<RecipeProblem>(&found))
    throw UserError(fmt::format("{}: {}", problem->key, problem->message));
  return std::get<int64_t>(found);
}

/// optimizer.lr, and the rates of single parameters, which are in proportion to it.
OptimizerConfig with_scaled_rate(OptimizerConfig config, int64_t step_samples) {
  const double factor = learning_rate_factor(config, step_samples);
  const auto scale = [&](auto& optimizer) {
    optimizer.lr *= factor;
    for (ParameterGroup& group : optimizer.common.groups)
      if (group.lr) *group.lr *= factor;
    if constexpr (requires { optimizer.adamw_lr; })
      if (optimizer.adamw_lr) *optimizer.adamw_lr *= factor;
  };
  std::visit(scale, config);
  return config;
}

/// The device determines the communication library. A recipe that names another one is refused.
void check_backend(const Recipe& recipe, at::Device device) {
  if (recipe.parallel.backend == CommBackend::nccl && device.is_cpu())
    throw UserError("parallel.backend: nccl needs GPUs; remove this key or use gloo");
  if (recipe.parallel.backend == CommBackend::gloo && !device.is_cpu())
    throw UserError("parallel.backend: gloo is for CPUs; remove this key or use device: cpu");
}

int64_t steps_of(int64_t epochs, int64_t steps_per_epoch) {
  // In double first: a billion epochs of a large data set would overflow.
  const double steps = static_cast<double>(epochs) * static_cast<double>(steps_per_epoch);
  return steps < 1e15 ? epochs * steps_per_epoch : int64_t{1'000'000'000'000'000};
}

/// The smaller of the limits on steps; null if only time ends the run.
std::optional<int64_t> planned_steps(const TrainConfig& train, int64_t steps_per_epoch) {
  if (!train.max_steps && !train.epochs) return train.max_time ? std::nullopt : std::optional(steps_per_epoch);
  if (!train.epochs) return train.max_steps;
  const int64_t of_epochs = steps_of(*train.epochs, steps_per_epoch);
  return train.max_steps ? std::min(*train.max_steps, of_epochs) : of_epochs;
}

/// Also decides what becomes of an epoch's last batch.
void set_steps(Plan& plan, const Recipe& recipe, const ProgramOfPlan& program) {
  const auto planned = [&] { return planned_steps(recipe.train, plan.data.schedule().steps_per_epoch()); };
  plan.steps = planned();
  if (fit_short_batch(plan, recipe, program.least_batch())) plan.steps = planned();
  program.require_batches(plan.data, "data.batch_size");
}

/// The step at which the schedule ends; of one without an end, the run's last step.
int64_t schedule_steps(const Plan& plan) {
  const ScheduleEnd* end = end_of(plan.scheduler);
  if (end == nullptr || !end->total_steps) return plan.steps.value_or(0);
  if (plan.scheduler.interval == ScheduleInterval::step) return *end->total_steps;
  return steps_of(*end->total_steps, plan.data.schedule().steps_per_epoch());
}

void fill_average(Plan& plan) {
  AverageRule rule;
  std::string what;
  if (const auto* ema = std::get_if<EmaConfig>(&plan.average_config)) {
    rule.decay = ema->decay;
    what = fmt::format("exponential, decay {}", ema->decay);
  } else if (const auto* swa = std::get_if<SwaConfig>(&plan.average_config)) {
    rule.first_step = swa->start_step.value_or(plan.steps.value_or(0) * 3 / 4 + 1);
    rule.every_n_steps = swa->every_n_steps;
    if (plan.steps && rule.first_step > *plan.steps)
      throw UserError(
          fmt::format("average.start_step must not be after the last step: {}, {}", rule.first_step, *plan.steps));
    what = fmt::format("of the weights every {} from step {} on", counted(rule.every_n_steps, "step"),
                       with_commas(rule.first_step));
  } else {
    return;
  }
  plan.average =
      Slot<WeightAverage>("average", what, [rule](const BuildContext& context) { return make_average(rule, context); });
}

/// Images of another size would not fit the model; text always has the model's context.
void check_size(const DataPlan& evaluation, const DataPlan& training) {
  const auto image = evaluation.input_shape(), trained = training.input_shape();
  if (image == trained) return;
  throw UserError(
      fmt::format("evaluation.transforms must produce images of the same size as data.transforms: {}×{}, {}×{}",
                  image.height, image.width, trained.height, trained.width));
}

/// With optimizer.lr_scaling the recipe alone does not show it.
void require_rate_in_order(const Plan& plan) {
  std::vector<RecipeProblem> problems;
  check_lowest_rate(plan.scheduler, plan.optimizer_config, problems);
  if (!problems.empty()) throw UserError(fmt::format("{}: {}", problems[0].key, problems[0].message));
}

/// Goyal et al. found that a rate scaled up needs warm-up at the start.
void note_sudden_rate(Plan& plan) {
  const double factor = learning_rate_factor(plan.optimizer_config, plan.data.schedule().step_samples());
  if (factor > 2 && plan.scheduler.warmup_steps == 0)
    plan.notes.push_back(fmt::format(
        "optimizer.lr_scaling multiplies lr by {:.3g} from the first step on; scheduler.warmup_steps would raise it "
        "gradually",
        factor));
}

void note_cpu(const Recipe& recipe, Plan& plan, const Machine& machine) {
  if (recipe.device == "auto" && plan.device.is_cpu() && why_no_gpu(machine) != kNoGpu)
    plan.notes.push_back(fmt::format("this job uses the CPU: {}", why_no_gpu(machine)));
}

/// What is changed in the trained weights so that they fit. A run that resumes does not read them.
void note_weights(const Recipe& recipe, const Model& model, std::vector<std::string>& notes) {
  const auto& weights = recipe.model.weights;
  std::error_code error;
  if (!weights || recipe.checkpoint.resume != "none" || !std::filesystem::exists(*weights, error)) return;
  for (std::string& note : model.fit_weights(*weights, recipe.model.replace_head)) notes.push_back(std::move(note));
}

void note_cut_documents(const DataPlan& data, std::vector<std::string>& notes) {
  const auto text = data.text();
  if (text && text->cut_samples() > 0)
    notes.push_back(fmt::format("{} of {} are longer than model.context and are cut: {} tokens",
                                with_commas(text->cut_samples()), counted(text->size(), "document"), data.context));
}

/// What a person should know of the data who looks at the plan.
void note_data(const Recipe& recipe, const Plan& plan, std::vector<std::string>& notes) {
  const DataFormat& format = format_of(recipe.data.dataset);
  const auto left_out = [&](const char* key, const Dataset* dataset) {
    if (dataset && !dataset->left_out().empty())
      notes.push_back(fmt::format("{} leaves out {}", key, dataset->left_out().text()));
  };
  if (plan.evaluation && !plan.evaluation->trained_on.empty())
    notes.push_back(
        fmt::format("WARNING: the evaluation data is trained on: {}; its results say nothing about data that "
                    "the model has not seen",
                    plan.evaluation->trained_on));
  left_out("data.path", plan.data.dataset.get());
  if (plan.evaluation) left_out("evaluation.path", plan.evaluation->data.dataset.get());
  const int64_t workers = recipe.data.num_workers.value.value_or(0) * std::max<int64_t>(1, plan.position.local_ranks);
  if (workers > plan.machine.cores)
    notes.push_back(
        fmt::format("data.num_workers is {} and there {} only; more threads than cores rarely load faster", workers,
                    plan.machine.cores == 1 ? "is 1 core" : fmt::format("are {} cores", plan.machine.cores)));
  const bool normalizes =
      std::any_of(recipe.data.transforms.begin(), recipe.data.transforms.end(),
                  [](const TransformConfig& each) { return std::holds_alternative<NormalizeConfig>(each); });
  if (format.files && !format.text && !normalizes)
    notes.push_back(
        "data.transforms has no normalize, so the model receives values from 0 to 1; networks usually train "
        "better on normalized ones, and pretrained ones need the mean and std they were trained with");
}

std::optional<EvaluationPlan> evaluation_plan(const Recipe& recipe, const DataPlan& training,
                                              const ProgramOfPlan& program) {
  if (!training.dataset) return std::nullopt;
  auto dataset = open_evaluation_data(recipe.data, program.needs(), recipe.evaluation.path, training.dataset.get(),
                                      training.files);
  if (!dataset) {
    if (recipe.evaluation.every_n_steps)
      throw UserError(
          fmt::format("evaluation.every_n_steps: there is nothing to evaluate on; set evaluation.path or put "
                      "{} next to the training data: {}",
                      format_of(recipe.data.dataset).test_file, recipe.data.path.value_or(DataPaths("")).text()));
    return std::nullopt;
  }
  EvaluationPlan plan{
      .every_n_steps = recipe.evaluation.every_n_steps, .at_end = recipe.evaluation.at_end, .data = training};
  plan.data.dataset = std::move(dataset);
  plan.trained_on = trained_on(*training.dataset, *plan.data.dataset);
  if (plan.every_n_steps || plan.at_end) program.require_evaluation();
  program.require_classes(plan.data, "the evaluation data");
  plan.data.shuffle = false;
  plan.data.drop_last = false;
  plan.data.batch_size = recipe.evaluation.batch_size.value_or(recipe.data.batch_size);
  plan.data.transforms =
      recipe.evaluation.transforms ? *recipe.evaluation.transforms : evaluation_transforms(recipe.data.transforms);
  plan.data.accumulation = 1;
  program.require_batches(plan.data, "evaluation.batch_size");
  check_size(plan.data, training);
  return plan;
}

}  // namespace

Plan plain_plan(const Recipe& recipe, const Machine& machine, const RankPosition& position, int64_t stages) {
  const auto [device, reason] = choose_device(recipe.device, machine, position);
  check_backend(recipe, device);
  const RankPosition replica = replica_of(position, stages);
  const int64_t micro_batches = accumulation_or_throw(recipe, replica.ranks);
  Plan plan(machine.assumed ? machine : with_gpu_of(machine, device), device,
            with_scaled_rate(recipe.optimizer, recipe.data.batch_size * micro_batches * replica.ranks));
  plan.position = position;
  plan.stages.replica = replica;
  plan.device_reason = reason;
  if (const std::string why_not = why_no_gpu(plan.machine); device.is_cuda() && !why_not.empty())
    throw UserError(fmt::format("device: {}: {}", device.str(), why_not));
  if (device.is_cuda() && !plan.machine.gpu_caution.empty()) plan.notes.push_back(plan.machine.gpu_caution);
  note_cpu(recipe, plan, machine);
  plan.name = recipe.name;
  plan.seed = static_cast<uint64_t>(recipe.seed);

  ProgramOfPlan program(recipe.model);
  static_cast<DataSpec&>(plan.data) = open_data(recipe.data, program.needs(), plan.seed, machine.variables);
  plan.data.ranks = plan.stages.replica.ranks;
  plan.data.rank = plan.stages.replica.rank;
  plan.data.accumulation = micro_batches;
  plan.loader.memory_limit = recipe.data.memory_limit.count;
  program.choose_classes(plan.data);
  program.require_fit(plan.data, recipe);
  note_cut_documents(plan.data, plan.notes);

  plan.model = {.config = program.model(), .input = plan.data.input_shape(), .task = program.task()};
  const Model shapes = plan.model.shapes();
  plan.model.describe(shapes);
  note_weights(recipe, shapes, plan.notes);
  plan.stages.parameters = plan.model.parameters;
  plan.parameter_settings = parameter_settings(recipe.optimizer, shapes);
  plan.optimizer_states = states_per_value(recipe.optimizer, shapes);
  plan.evaluation = evaluation_plan(recipe, plan.data, program);
  note_data(recipe, plan, plan.notes);
  program.note(plan);

  plan.train = recipe.train;
  plan.parallel = recipe.parallel;
  plan.scheduler = recipe.scheduler;
  require_rate_in_order(plan);
  note_sudden_rate(plan);
  set_steps(plan, recipe, program);
  plan.schedule_steps = schedule_steps(plan);
  plan.schedule();  // refuses phases that do not fit
  plan.average_config = recipe.average;
  fill_average(plan);
  plan.checkpoint = recipe.checkpoint;
  plan.logging = recipe.logging;
  plan.telemetry = recipe.telemetry;
  plan.bench = recipe.bench;
  plan.backend.deterministic = recipe.deterministic;
  if (plan.model.layers.attentions > 0) plan.backend.attention = AttentionKernel::math;
  program.fill_task(plan);
  plan.process.num_threads = static_cast<int>(recipe.num_threads.value_or(machine.cores));
  plan.process.deterministic = recipe.deterministic;
  return plan;
}

int64_t ranks_that_share_data(const Recipe& recipe, int64_t ranks) {
  const int64_t stages = recipe.parallel.pipeline.stages;
  return ranks % stages == 0 ? ranks / stages : ranks;
}

std::variant<int64_t, RecipeProblem> accumulation(const Recipe& recipe, int64_t ranks) {
  const int64_t batch_size = recipe.data.batch_size, combined = ranks * batch_size;
  const auto& global = recipe.data.global_batch_size;
  const auto& requested = recipe.train.gradient_accumulation_steps;
  if (!global) return requested.value_or(1);
  if (requested && *requested * combined != *global)
    return RecipeProblem{
        "data.global_batch_size",
        fmt::format("must equal ranks × train.gradient_accumulation_steps × data.batch_size: {}, {} × {} × {}", *global,
                    ranks, *requested, batch_size)};
  if (*global % combined != 0) {
    const int64_t near = std::max<int64_t>(1, (*global + combined / 2) / combined) * combined;
    return RecipeProblem{"data.global_batch_size",
                         fmt::format("must be a multiple of ranks × data.batch_size, such as {}: {}, {} × {}", near,
                                     *global, ranks, batch_size)};
  }
  return *global / combined;
}

}  // namespace trainopt
