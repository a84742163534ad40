#include "recipe/validate.h"

#include "comm/nccl_environment.h"
#include "config/leads.h"
#include "data/formats/table.h"
#include "data/schedule.h"
#include "model/catalogue.h"
#include "recipe/make_plan.h"
#include "recipe/plain_plan.h"
#include "recipe/recipe_io.h"
#include "recipe/validate_data.h"
#include "train/evaluation.h"
#include "train/optimizer/optimizer.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>

namespace trainopt {
namespace {

using Problems = std::vector<RecipeProblem>;

void collect(const Json& value, const Json& standard, const std::string& path, std::set<std::string>& changed) {
  if (!value.is_object() || !standard.is_object()) {
    if (value != standard) changed.insert(path);
    return;
  }
  for (const auto& [key, entry] : value.items())
    collect(entry, standard.contains(key) ? standard.at(key) : Json(), path.empty() ? key : path + "." + key, changed);
}

/// Full names of the keys that differ from their defaults.
std::set<std::string> changed_keys(const Recipe& recipe) {
  std::set<std::string> changed;
  collect(recipe_json(recipe), recipe_json(Recipe()), "", changed);
  return changed;
}

bool known_device(const std::string& device) {
  if (device == "auto" || device == "cpu" || device == "cuda") return true;
  if (!device.starts_with("cuda:")) return false;
  const auto index = device.substr(5);
  return !index.empty() && index.size() <= 3 && index.find_first_not_of("0123456789") == std::string::npos;
}

void check_folders(const Recipe& recipe, Problems& problems) {
  if (recipe.name.empty() || recipe.name == "." || recipe.name == ".." || recipe.name.find('/') != std::string::npos)
    problems.push_back(
        {"name", fmt::format("starts the run directory's name, so it must not be empty, '.' or '..' or contain /: '{}'",
                             recipe.name)});
  if (recipe.output_dir.empty()) problems.push_back({"output_dir", "must not be empty"});
  if (recipe.checkpoint.resume.empty())
    problems.push_back({"checkpoint.resume", "must be none, auto or the path of a checkpoint"});
  if (recipe.checkpoint.resume == "auto" && !recipe.run_dir)
    problems.push_back({"checkpoint.resume", "auto needs run_dir (or --run-dir), whose newest checkpoint it resumes"});
  if (recipe.run_dir && recipe.run_dir->empty()) problems.push_back({"run_dir", "must not be empty"});
}

void check_program_head(const ModelConfig& model, const std::set<std::string>& changed, Problems& problems) {
  const bool has_classes = changed.contains("model.num_classes");
  if (model.replace_head && !has_classes)
    problems.push_back({"model.replace_head",
                        "needs model.num_classes, the outputs of the new last layer: a number, or auto, as many as the "
                        "data has classes"});
  if (has_classes && !model.replace_head)
    problems.push_back({"model.num_classes",
                        "a program has as many classes as it was exported with; set model.replace_head: true to give "
                        "it a new last layer, or remove this key"});
}

/// Words of other trainers that a path would take: checkpoint.resume: latest. A file of that name is meant if there is.
void check_paths(const Recipe& recipe, Problems& problems) {
  const auto check = [&](const char* key, const std::string& value, const char* must) {
    std::error_code error;
    if (lead_of_value(key, value) != nullptr && !std::filesystem::exists(value, error))
      problems.push_back({key, fmt::format("must be {}: {}", must, value)});
  };
  const std::string& resume = recipe.checkpoint.resume;
  if (resume != "none" && resume != "auto") check("checkpoint.resume", resume, "none, auto or a path");
  if (recipe.model.weights) check("model.weights", *recipe.model.weights, "a file or a folder");
  for (const auto& [key, folder] :
       {std::pair{"output_dir", recipe.output_dir}, {"run_dir", recipe.run_dir.value_or("")}})
    if (folder.starts_with('~'))
      problems.push_back(
          {key, fmt::format("only ~/ at the beginning stands for a folder; write it in full: {}", folder)});
}

void check_model(const Recipe& recipe, const std::set<std::string>& changed, Problems& problems) {
  ModelConfig model = recipe.model;
  const std::string_view name = word_of(model.name);
  for (const Option& option : outline_of(model)) {
    const auto& [key, values] = option.only_for;
    if (changed.contains("model." + option.name) && !values.empty() &&
        std::find(values.begin(), values.end(), name) == values.end())
      problems.push_back({"model." + option.name,
                          fmt::format("{} does not have this, only {}; remove it", name, fmt::join(values, ", "))});
  }
  if (traits_of(model.name).transformer) {
    const auto [layers, heads, width] = transformer_size(model);
    if (width % heads != 0)
      problems.push_back({model.heads ? "model.heads" : "model.width",
                          fmt::format("the width must be a multiple of the heads: {}, {}", width, heads)});
  }
  if (traits_of(model.name).from_file && model.path.value_or("").empty())
    problems.push_back({"model.path", fmt::format("{} needs this: a file that torch.export.save wrote", name)});
  if (traits_of(model.name).from_file) check_program_head(model, changed, problems);
  if (model.size && (model.layers || model.heads || model.width))
    problems.push_back({"model.size", "already determines layers, heads and width; remove it or them"});
  if (model.replace_head && traits_of(model.name).text)
    problems.push_back({"model.replace_head",
                        fmt::format("{} predicts with its embedding and has no head of its own; remove it", name)});
  else if (model.replace_head && !model.weights && !traits_of(model.name).from_file)
    problems.push_back({"model.replace_head", "needs model.weights; without them every layer starts anew"});
}

void check_target(const Recipe& recipe, Problems& problems) {
  const auto goal = goal_of(recipe.train.target);
  if (!goal) return;
  const std::string key = "train.target." + goal->metric;
  const TargetConfig& target = recipe.train.target;
  if (target.top1_pct.has_value() + target.loss.has_value() + target.perplexity.has_value() > 1)
    problems.push_back({"train.target", "names more than one number; keep one of them"});
  const bool language = predicts_text(recipe);
  if (!traits_of(recipe.model.name).from_file && goal->metric == (language ? "top1_pct" : "perplexity"))
    problems.push_back({key, fmt::format("{} does not measure this; use loss or {}", word_of(recipe.model.name),
                                         language ? "perplexity" : "top1_pct")});
  if (!recipe.evaluation.every_n_steps)
    problems.push_back({key, "no evaluation checks this before the end; set evaluation.every_n_steps"});
}

void check_end(const Recipe& recipe, Problems& problems) {
  const SchedulerConfig& scheduler = recipe.scheduler;
  const bool open_end = recipe.train.max_time && !recipe.train.max_steps && !recipe.train.epochs;
  const ScheduleEnd* end = end_of(scheduler);
  if (end != nullptr && !end->total_steps && open_end)
    problems.push_back(
        {"scheduler.total_steps",
         fmt::format("{} needs this, train.max_steps or train.epochs: with only train.max_time its end is unknown",
                     name_of(scheduler))});
  if (std::holds_alternative<ConstantSchedule>(scheduler.schedule) && scheduler.interval == ScheduleInterval::epoch)
    problems.push_back(
        {"scheduler.interval", "a constant rate changes neither by steps nor by epochs; remove this key"});
}

bool sets_max_lr(const SchedulerConfig& scheduler) {
  return std::visit(
      [](const auto& c) {
        if constexpr (requires { c.max_lr; }) return c.max_lr.has_value();
        return false;
      },
      scheduler.schedule);
}

/// Whether a momentum to cycle is given although none is cycled.
bool sets_unused_momentum(const SchedulerConfig& scheduler) {
  return std::visit(
      []<class Config>(const Config& c) {
        if constexpr (requires { c.momentum; })
          return !c.momentum.cycle_momentum && (c.momentum.base_momentum != Config().momentum.base_momentum ||
                                                c.momentum.max_momentum != Config().momentum.max_momentum);
        return false;
      },
      scheduler.schedule);
}

/// Rates that replace or bound that of the optimizer.
void check_rates(const Recipe& recipe, Problems& problems) {
  const bool scaled = common_of(recipe.optimizer).lr_scaling != LrScaling::none;
  if (scaled && sets_max_lr(recipe.scheduler))
    problems.push_back({"scheduler.max_lr",
                        "optimizer.lr_scaling scales optimizer.lr, which this replaces; set optimizer.lr and remove "
                        "this key"});
  if (!scaled) check_lowest_rate(recipe.scheduler, recipe.optimizer, problems);
  if (const auto* c = std::get_if<CyclicSchedule>(&recipe.scheduler.schedule)) {
    if (c->mode == CyclicMode::exp_range && c->gamma == 1)
      problems.push_back({"scheduler.gamma", "mode exp_range needs this below 1"});
    if (c->mode != CyclicMode::exp_range && c->gamma != 1)
      problems.push_back({"scheduler.gamma", "only mode exp_range uses this; remove this key"});
  }
}

void check_momentum(const Recipe& recipe, Problems& problems) {
  const CycledMomentum* cycled = cycled_momentum(recipe.scheduler);
  if (cycled == nullptr) {
    if (sets_unused_momentum(recipe.scheduler))
      problems.push_back({"scheduler.cycle_momentum", "base_momentum and max_momentum need this to be true"});
    return;
  }
  if (cycled->base_momentum > cycled->max_momentum)
    problems.push_back({"scheduler.base_momentum", fmt::format("must not be above max_momentum: {}, {}",
                                                               cycled->base_momentum, cycled->max_momentum)});
  if (!momentum_key(recipe.optimizer))
    problems.push_back({"scheduler.cycle_momentum",
                        "this optimizer has no momentum to move; set optimizer.momentum, or this to false"});
}

void check_milestones(const std::vector<int64_t>& milestones, Problems& problems) {
  if (milestones.empty())
    problems.push_back({"scheduler.milestones", "multistep needs at least one"});
  else if (std::adjacent_find(milestones.begin(), milestones.end(), std::greater_equal<>()) != milestones.end())
    problems.push_back({"scheduler.milestones", "must be in rising order"});
}

/// Adds the problems of `scheduler`. Two are known only to the plan: whether the phases of a schedule fit into its
/// length, which files determine, and with optimizer.lr_scaling check_lowest_rate(), because the job's ranks determine
/// the rate.
void check_schedule(const Recipe& recipe, Problems& problems) {
  check_end(recipe, problems);
  check_rates(recipe, problems);
  check_momentum(recipe, problems);
  if (const auto* c = std::get_if<MultiStepSchedule>(&recipe.scheduler.schedule))
    check_milestones(c->milestones, problems);
}

void check_training(const Recipe& recipe, const std::set<std::string>& changed, Problems& problems) {
  const bool nesterov_alone = std::visit(
      [](const auto& c) {
        if constexpr (requires { c.nesterov; }) return c.nesterov && c.momentum == 0;
        return false;
      },
      recipe.optimizer);
  if (nesterov_alone) problems.push_back({"optimizer.nesterov", "needs optimizer.momentum above 0"});
  if (std::visit([](const auto& c) { return !c.common.no_decay.empty() && c.weight_decay == 0; }, recipe.optimizer))
    problems.push_back({"optimizer.no_decay", "needs optimizer.weight_decay above 0"});
  const auto& common = common_of(recipe.optimizer);
  if (base_learning_rate(recipe.optimizer) == 0) {
    const char* needs = "needs optimizer.lr above 0, because a schedule changes both in proportion";
    for (size_t i = 0; i < common.groups.size(); ++i)
      if (common.groups[i].lr.value_or(0) > 0) problems.push_back({fmt::format("optimizer.groups[{}].lr", i), needs});
    const auto* muon = std::get_if<MuonConfig>(&recipe.optimizer);
    if (muon && muon->adamw_lr.value_or(0) > 0) problems.push_back({"optimizer.adamw_lr", needs});
  }
  if (common.lr_scaling != LrScaling::none && !common.reference_batch)
    problems.push_back(
        {"optimizer.reference_batch", "optimizer.lr_scaling needs this: the samples per step at which lr was chosen"});
  if (common.lr_scaling == LrScaling::none && common.reference_batch)
    problems.push_back({"optimizer.reference_batch", "needs optimizer.lr_scaling: linear or sqrt"});
  if (predicts_text(recipe) && recipe.train.label_smoothing > 0)
    problems.push_back(
        {"train.label_smoothing", fmt::format("only classification has this, and {} predicts tokens; remove this key",
                                              word_of(recipe.model.name))});
  check_target(recipe, problems);
  const auto* swa = std::get_if<SwaConfig>(&recipe.average);
  if (swa && !swa->start_step && recipe.train.max_time && !recipe.train.max_steps && !recipe.train.epochs)
    problems.push_back({"average.start_step", "needs a value, because with only train.max_time the end is unknown"});
  if (recipe.train.clip_value && recipe.train.max_grad_norm)
    problems.push_back({"train.clip_value", "train.max_grad_norm limits the gradients already; remove one of them"});
  check_schedule(recipe, problems);
  if (changed.contains("train.max_skipped_steps") && recipe.train.on_nonfinite != OnNonfinite::skip)
    problems.push_back({"train.max_skipped_steps", "needs train.on_nonfinite: skip"});
  if (changed.contains("logging.dump.what") && recipe.logging.dump.steps.empty())
    problems.push_back({"logging.dump.what", "needs logging.dump.steps"});
}

/// Checks the sizes that make up a step and, if the number of samples is known without reading files, that an epoch has
/// at least one step.
void check_steps(const Recipe& recipe, const std::set<std::string>& changed, int64_t ranks, Problems& problems) {
  const DataConfig& data = recipe.data;
  ranks = ranks_that_share_data(recipe, ranks);
  const auto micros = accumulation(recipe, ranks);
  if (const auto* problem = std::get_if<RecipeProblem>(&micros)) return problems.push_back(*problem);
  if (format_of(data.dataset).files) return;
  const auto no_step = why_no_step({.samples = data.size,
                                    .batch_size = data.batch_size,
                                    .ranks = ranks,
                                    .accumulation = std::get<int64_t>(micros),
                                    .drop_last = data.drop_last});
  if (no_step) problems.push_back({changed.contains("data.size") ? "data.size" : "data.batch_size", *no_step});
}

void check_pipeline(const Recipe& recipe, Problems& problems) {
  const ParallelConfig& parallel = recipe.parallel;
  const auto [stages, micro_batches, schedule] = parallel.pipeline;
  const int64_t batch = recipe.data.batch_size;
  if (stages == 1) {
    if (!(parallel.pipeline == PipelineConfig()))
      problems.push_back({"parallel.pipeline", "needs parallel.pipeline.stages above 1"});
    return;
  }
  if (batch % micro_batches != 0)
    problems.push_back(
        {"parallel.pipeline.micro_batches", fmt::format("must divide data.batch_size: {}, {}", micro_batches, batch)});
  else if (traits_of(recipe.model.name).batch_norm && batch < 2 * micro_batches)
    problems.push_back(
        {"parallel.pipeline.micro_batches",
         fmt::format("leaves less than the two samples that batch-norm needs: {} of {}", micro_batches, batch)});
  if (recipe.model.evaluation_path)
    problems.push_back({"model.evaluation_path",
                        "cannot be combined with parallel.pipeline, whose stages hold a part of the weights; remove "
                        "one of them"});
  if (parallel.sharding_strategy != ShardingStrategy::none)
    problems.push_back({"parallel.sharding_strategy",
                        "a pipeline already divides the model; its replicas need sharding_strategy none"});
  if (!recipe.logging.dump.steps.empty())
    problems.push_back(
        {"logging.dump.steps", "only the last stage of parallel.pipeline has outputs; remove one of them"});
  if (parallel.async_updates.staleness > 0)
    problems.push_back({"parallel.async_updates.staleness", "cannot be combined with parallel.pipeline; remove one"});
}

void check_parallel(const Recipe& recipe, const std::set<std::string>& changed, Problems& problems) {
  const ParallelConfig& parallel = recipe.parallel;
  const bool sharded = parallel.sharding_strategy != ShardingStrategy::none,
             stale = parallel.async_updates.staleness > 0;
  const bool gathers =
      parallel.sharding_strategy == ShardingStrategy::zero3 || parallel.sharding_strategy == ShardingStrategy::hybrid;
  if (gathers && recipe.model.evaluation_path)
    problems.push_back({"model.evaluation_path",
                        "cannot be combined with zero3 or hybrid, which gather weights unit by "
                        "unit; remove one of them"});
  if (sharded && changed.contains("parallel.bucket_cap_mb"))
    problems.push_back({"parallel.bucket_cap_mb",
                        "only sharding_strategy none has buckets; zero1, zero2, zero3 and hybrid send units: use "
                        "parallel.wrap instead"});
  if (!sharded && (changed.contains("parallel.wrap.policy") || changed.contains("parallel.wrap.min_parameters")))
    problems.push_back({"parallel.wrap", "only zero1, zero2, zero3 and hybrid use this; remove this key"});
  if (parallel.wrap.policy != WrapPolicy::size && changed.contains("parallel.wrap.min_parameters"))
    problems.push_back({"parallel.wrap.min_parameters", "needs parallel.wrap.policy: size"});
  const ModelTraits& model = traits_of(recipe.model.name);
  if (parallel.sync_batch_norm && !model.batch_norm && !model.from_file)
    problems.push_back({"parallel.sync_batch_norm",
                        fmt::format("the {} has no batch-norm; remove this key", word_of(recipe.model.name))});
  if (parallel.check_replicas_every > 0 &&
      (parallel.sharding_strategy == ShardingStrategy::zero3 || parallel.sharding_strategy == ShardingStrategy::hybrid))
    problems.push_back(
        {"parallel.check_replicas_every",
         fmt::format("{} keeps each weight on one rank only{}, so there are no copies to compare; remove "
                     "this key or use sharding_strategy none, zero1 or zero2",
                     word_of(parallel.sharding_strategy),
                     parallel.sharding_strategy == ShardingStrategy::hybrid ? " of a machine" : "")});
  if (stale && sharded)
    problems.push_back({"parallel.async_updates.staleness", "needs parallel.sharding_strategy: none"});
  if (stale && changed.contains("parallel.bucket_cap_mb"))
    problems.push_back({"parallel.bucket_cap_mb", "async_updates sends all gradients at once, without buckets"});
  if (stale && !parallel.overlap_comm)
    problems.push_back(
        {"parallel.async_updates.staleness", "contradicts parallel.overlap_comm: false; remove one of them"});
  if (stale && recipe.train.on_nonfinite != OnNonfinite::abort)
    problems.push_back({"parallel.async_updates.staleness",
                        "a non-finite step is detected too late to be undone; leave train.on_nonfinite at abort"});
  if (stale && recipe.data.warmup_largest)
    problems.push_back({"data.warmup_largest",
                        "async_updates would apply the gradients of this pass in the first step; remove one of them"});
  check_pipeline(recipe, problems);
  for (const auto& [key, sentence] : nccl_problems(parallel.nccl))
    problems.push_back({"parallel.nccl." + key, sentence});
  if (parallel.backend == CommBackend::gloo || recipe.device == "cpu")
    for (const auto& key : changed)
      if (key.starts_with("parallel.nccl.")) problems.push_back({key, "only NCCL on GPUs uses this; remove this key"});
  if (parallel.backend == CommBackend::gloo && recipe.device.starts_with("cuda"))
    problems.push_back({"parallel.backend", "gloo is for CPUs; remove this key or use device: cpu"});
}

void check_profiler(const Recipe& recipe, Problems& problems) {
  const auto& [on, profiler] = recipe.profiler;
  if (!on) return;
  if (profiler.with_stack && !profiler.units)
    problems.push_back({"profiler.with_stack", "the stacks are the paths of units, so it needs profiler.units: true"});
  const Json chosen = to_json(profiler), standard = to_json(ProfilerConfig());
  const auto refuse_changed = [&](std::initializer_list<const char*> keys, const char* sentence) {
    for (const char* key : keys)
      if (chosen.at(key) != standard.at(key)) problems.push_back({fmt::format("profiler.{}", key), sentence});
  };
  const auto& activities = profiler.activities;
  if (activities.empty() && !profiler.units && !profiler.memory_snapshot)
    problems.push_back(
        {"profiler.units",
         "with profiler.activities: [] these labels or memory_snapshot are all there is; remove this key"});
  if (activities.empty())
    refuse_changed(
        {"wait", "warmup", "active", "repeat", "record_shapes", "profile_memory", "with_stack", "with_flops"},
        "has no effect with profiler.activities: [], which records no trace; remove this key");
  else if (std::find(activities.begin(), activities.end(), ProfiledActivity::cpu) == activities.end())
    refuse_changed({"record_shapes", "with_stack", "with_flops"},
                   "is about operations, which only cpu in profiler.activities records; remove this key");
}

void check_device(const Recipe& recipe, Problems& problems) {
  if (!known_device(recipe.device))
    problems.push_back({"device", fmt::format("must be auto, cpu, cuda or cuda:N: {}", recipe.device)});
}

}  // namespace

bool predicts_text(const Recipe& recipe) {
  const ModelTraits& model = traits_of(recipe.model.name);
  return model.from_file ? format_of(recipe.data.dataset).text : model.text;
}

std::vector<RecipeProblem> validate(const Recipe& recipe, std::optional<int64_t> ranks) {
  const auto changed = changed_keys(recipe);
  Problems problems;
  check_folders(recipe, problems);
  check_device(recipe, problems);
  check_data(recipe, changed, problems);
  if (ranks) check_steps(recipe, changed, *ranks, problems);
  check_model(recipe, changed, problems);
  check_paths(recipe, problems);
  check_training(recipe, changed, problems);
  check_parallel(recipe, changed, problems);
  check_profiler(recipe, problems);
  for (auto& problem : check_optimizations(recipe)) problems.push_back(std::move(problem));
  return problems;
}

void check_lowest_rate(const SchedulerConfig& scheduler, const OptimizerConfig& optimizer, Problems& problems) {
  const double rate = base_learning_rate(optimizer);
  const std::string of_optimizer =
      common_of(optimizer).lr_scaling == LrScaling::none ? "optimizer.lr" : "optimizer.lr, as lr_scaling scales it";
  const auto refuse = [&](const char* key, const std::string& limit, double lowest, double highest) {
    if (lowest > highest)
      problems.push_back({key, fmt::format("must not be above {}: {}, {}", limit, lowest, highest)});
  };
  std::visit(
      [&](const auto& c) {
        if constexpr (requires { c.eta_min; }) refuse("scheduler.eta_min", of_optimizer, c.eta_min, rate);
        if constexpr (requires { c.base_lr; })
          refuse("scheduler.base_lr", c.max_lr ? "max_lr" : of_optimizer + ", the highest rate", c.base_lr.value_or(0),
                 c.max_lr.value_or(rate));
      },
      scheduler.schedule);
}

}  // namespace trainopt
